// The program under the corpus of hostile inputs.

#include "tests/fuzz/attacks.hpp"
#include "tests/support/command.hpp"
#include "tests/support/support.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <regex>
#include <set>

using namespace orrery::test;

namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Commands that compare say with 1 that what they compared is worse.
bool may_fail(const std::string& command) {
    return command.starts_with("check") || command.starts_with("sweep");
}

std::string problem_of(const Attack& attack, const std::string& folder) {
    for (const auto& [name, bytes] : attack.files) {
        const std::filesystem::path path = std::filesystem::path(folder) / name;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path, std::ios::binary) << bytes;
    }
    const auto start = std::chrono::steady_clock::now();
    const Outcome out = shell_command(
        fmt::format("cd {} && timeout -s KILL 60 {} {} < /dev/null", folder, orrery_program(), attack.command));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    for (const auto& [name, bytes] : attack.files) {
        if (read(folder + "/" + name) != bytes) {
            return name + " is not as it was";
        }
    }
    if (!(out.code == 0 || out.code == 2 || out.code == 3 || (out.code == 1 && may_fail(attack.command)))) {
        return fmt::format("it ended with {}", out.code);
    }
    if (seconds > (kSanitized ? 60 : 20)) {
        return fmt::format("it took {:.0f} s", seconds);
    }
    if (out.text.find("Sanitizer") != std::string::npos || out.text.find("runtime error:") != std::string::npos) {
        return "a sanitizer speaks: " + out.text;
    }
    if (std::any_of(out.text.begin(), out.text.end(),
                    [](char c) { return c != '\n' && static_cast<unsigned char>(c) < 0x20; })) {
        return "control characters reach the terminal";
    }
    if (out.text.size() > 50'000) {
        return fmt::format("it says {} characters", out.text.size());
    }
    if (attack.verdict != Verdict::any && out.code != 2) {
        return fmt::format("it is accepted, with {}: {}", out.code, out.text);
    }
    const std::string file = std::filesystem::path(attack.attacked).filename().string();
    if (out.code == 2 && out.text.find(file) == std::string::npos) {
        return "the error does not name the file: " + out.text;
    }
    const bool located = std::regex_search(out.text, std::regex(file + ":[0-9]+:"));
    return attack.verdict == Verdict::located && !located ? "the error names no line: " + out.text : "";
}

}  // namespace

TEST_CASE("attack: no hostile input crashes, hangs, changes a file, or passes where it is surely wrong") {
    const auto corpus = attacks(ORRERY_SOURCE_DIR);
    CHECK(corpus.size() >= 870);
    std::set<std::string> kinds;
    // A sample of all kinds takes some 20 s of CPU; the soak run and the sanitizers take all.
    const std::size_t step = kSanitized || scale() > 1 ? 1 : 9;
    const Folder folder;
    for (std::size_t i = 0; i < corpus.size(); ++i) {
        kinds.insert(corpus[i].name.substr(0, corpus[i].name.find(':')));
        if (i % step == 0) {
            const std::string place = folder.file(fmt::format("{}", i));
            const std::string problem = problem_of(corpus[i], place);
            CHECK_MESSAGE(problem.empty(), i << " " << corpus[i].name << ": " << problem);
            std::filesystem::remove_all(place);
        }
    }
    CHECK(kinds.size() >= 26);
}
