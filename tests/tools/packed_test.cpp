// Inputs packed as gzip, xz and Zstandard.

#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"
#include "sim/base/unpacker.hpp"
#include "tests/support/command.hpp"
#include "tests/support/support.hpp"

#include <doctest/doctest.h>

#include <array>

namespace orrery {

namespace {

struct Packer {
    const char* command;
    const char* extension;
};
constexpr std::array<Packer, 3> kPackers = {{{"gzip", ".gz"}, {"xz", ".xz"}, {"zstd -q", ".zst"}}};

bool is_here(const Packer& packer) {
    const std::string command = packer.command;
    return test::shell_command("command -v " + command.substr(0, command.find(' '))).code == 0;
}

std::string pack(const Packer& packer, const std::string& from, const std::string& to) {
    REQUIRE(test::shell_command(fmt::format("{} -c {} > {}", packer.command, from, to)).code == 0);
    return to;
}

std::string field_file(const std::string& name) {
    return test::data().path("tests/data/fields/" + name);
}

// What a command says with the file, without its name.
std::string said(std::string command, const std::string& file) {
    command.replace(command.find("FILE"), 4, file);
    test::Outcome out = test::orrery_command(command);
    CHECK_MESSAGE(out.code == 0, out.text);
    const std::string name = std::filesystem::path(file).filename().string();
    for (auto at = out.text.find(name); at != std::string::npos; at = out.text.find(name)) {
        out.text.replace(at, name.size(), "NAME");
    }
    return out.text;
}

}  // namespace

TEST_CASE("inputs packed as gzip, xz and zstd are read everywhere as if they were plain") {
    const test::Folder folder;
    const std::string summary = folder.file("before.json");
    REQUIRE(test::orrery_command("run " + field_file("network.yaml") + " --quiet --json " + summary).code == 0);
    const std::array<std::array<std::string, 2>, 6> inputs = {{
        {field_file("network.yaml"), "run FILE --quiet --json -"},
        {field_file("requests.csv"),
         "run " + field_file("serving-fair.yaml") + " --quiet --json - --set requests.trace=FILE | grep -v hash"},
        {field_file("flows.csv"),
         "run " + field_file("network-flows.yaml") + " --quiet --json - --set traffic.flows=FILE | grep -v hash"},
        {test::data().path("tests/data/replay/step.json"),
         "import pytorch-profiler FILE -o " + folder.file("step.replay") + " && cat " + folder.file("step.replay")},
        {test::data().path("tests/data/microbenchmark.csv"), "validate compute --trace FILE"},
        {summary, "compare FILE " + summary + " | tail -n +2"},
    }};
    for (const Packer& packer : kPackers) {
        if (!is_here(packer)) {
            MESSAGE("skipped: there is no " << packer.command);
            continue;
        }
        for (const auto& [plain, command] : inputs) {
            CAPTURE(command);
            const std::string copy = folder.file(std::filesystem::path(plain).filename().string(), test::read(plain));
            const std::string packed = pack(packer, copy, copy + packer.extension);
            CHECK(said(command, packed) == said(command, copy));
        }
    }
}

TEST_CASE("packed files are read in pieces, in members that follow one another, and to their last byte") {
    const test::Folder folder;
    std::string text;
    for (int i = 0; i < 200'000; ++i) {
        text += fmt::format("line {}\n", i * 7919 % 100'003);
    }
    const std::string plain = folder.file("lines.txt", text);
    for (const Packer& packer : kPackers) {
        if (!is_here(packer)) {
            continue;
        }
        CAPTURE(packer.command);
        const std::string packed = pack(packer, plain, plain + packer.extension);
        CHECK(read_input(packed) == text);
        CHECK(tail_of_input(packed, 1000) == text.substr(text.size() - 1000));
        CHECK(unpacked_name(packed) == plain);
        const std::string bytes = test::read(packed);
        CHECK(read_input(folder.file(std::string("twice") + packer.extension, bytes + bytes)) == text + text);
        InputFile file(packed);
        std::string line;
        std::getline(file, line);
        CHECK(line == "line 0");
        CHECK(file.packed());
        CHECK(file.share_read() <= 1);

        const auto problem = [&](const std::string& damaged, std::size_t most = 1U << 30U) {
            try {
                (void)read_input(folder.file(std::string("damaged") + packer.extension, damaged), most);
            } catch (const ConfigError& error) {
                return std::string(error.what());
            }
            return std::string();
        };
        CHECK(problem(bytes.substr(0, bytes.size() / 2)).find("is cut off") != std::string::npos);
        CHECK(problem(bytes.substr(0, bytes.size() - 3)).find("is cut off") != std::string::npos);
        std::string changed = bytes;
        changed[bytes.size() / 2] = static_cast<char>(changed[bytes.size() / 2] ^ 0x55);
        CHECK(problem(changed).find("is damaged") != std::string::npos);
        CHECK(problem(bytes, 1 << 20).find("is larger than 1 MiB") != std::string::npos);
        CHECK(problem("plain text").find("is not packed as its name says") != std::string::npos);
    }
}

TEST_CASE("the head of a file tells how it is packed, whatever it is called") {
    CHECK(packing_of("\x1f\x8b\x08") == "gzip");
    CHECK(packing_of("kind: training").empty());
    CHECK(packing_of("").empty());
    CHECK(packing_by_name("a.csv.zst") == "zstd");
    CHECK(packing_by_name("a.csv").empty());
    CHECK(unpacked_name("a.csv") == "a.csv");
}

}  // namespace orrery
