// Files that appear whole or not at all.

#include "sim/record/output_file.hpp"
#include "sim/base/error.hpp"
#include "sim/record/summary.hpp"
#include "tests/support/command.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <csignal>
#include <set>

using namespace orrery;
using namespace orrery::test;

namespace {

std::set<std::string> names_in(const std::string& folder) {
    std::set<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        out.insert(entry.path().filename().string());
    }
    return out;
}

}  // namespace

TEST_CASE("two writers of one target each have a file of their own, and the last to end wins whole") {
    const Folder folder;
    const std::string target = folder.file("x.json");
    PartFile first(target);
    PartFile second(target);
    CHECK(first.path() != second.path());
    first.write("first");
    second.write("second and longer");
    second.keep();
    CHECK(read(target) == "second and longer");
    first.keep();
    CHECK(read(target) == "first");
    CHECK(names_in(folder.file("")) == std::set<std::string>{"x.json"});
}

TEST_CASE("a part that is not kept goes with its scope, and what whoever wrote it made beside it") {
    const Folder folder;
    {
        PartFile part(folder.file("r.sqlite"), {"-wal"});
        part.write("some");
        std::ofstream(part.path() + "-wal") << "more";
        CHECK(names_in(folder.file("")).size() == 2);
    }
    CHECK(names_in(folder.file("")).empty());
    PartFile kept(folder.file("r.sqlite"), {"-wal"});
    std::ofstream(kept.path() + "-wal") << "more";
    kept.keep();
    CHECK(names_in(folder.file("")).contains("r.sqlite"));
}

TEST_CASE("a target that is a link stays one, whether the file behind it is there or not, and keeps its mode") {
    const Folder folder;
    std::filesystem::create_directories(folder.file("far"));
    const std::string behind = folder.file("far/a.json", "before");
    REQUIRE(chmod(behind.c_str(), 0640) == 0);
    std::filesystem::create_symlink("far/a.json", folder.file("link"));
    std::filesystem::create_symlink("link", folder.file("chain"));
    std::filesystem::create_symlink("far/b.json", folder.file("dangling"));
    write_file(folder.file("chain"), "after");
    write_file(folder.file("dangling"), "new");
    CHECK(std::filesystem::is_symlink(folder.file("chain")));
    CHECK(std::filesystem::is_symlink(folder.file("link")));
    CHECK(std::filesystem::is_symlink(folder.file("dangling")));
    CHECK(read(behind) == "after");
    CHECK(read(folder.file("far/b.json")) == "new");
    CHECK(names_in(folder.file("far")) == std::set<std::string>{"a.json", "b.json"});
    struct stat found {};
    REQUIRE(stat(behind.c_str(), &found) == 0);
    CHECK((found.st_mode & 07777U) == 0640U);
}

TEST_CASE("signals that end the process remove its parts and none of its parent's, and end it as they would") {
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
        const Folder folder;
        const PartFile own(folder.file("own"));
        const pid_t child = fork();
        if (child == 0) {
            (void)std::signal(signal, SIG_DFL);  // the test runner has a handler of its own
            const PartFile part(folder.file("x"), {"-wal"});
            std::ofstream(part.path() + "-wal") << "more";
            (void)kill(getpid(), signal);
            _exit(0);
        }
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status));
        CHECK(WTERMSIG(status) == signal);
        CHECK(names_in(folder.file("")).size() == 1);
    }
}

TEST_CASE("what the system refuses is an error with its reason, and leaves nothing") {
    const Folder folder;
    CHECK_THROWS_WITH_AS(write_file(folder.file("no/x"), "text"), doctest::Contains("cannot be written: No such file"),
                         ConfigError);
    CHECK_THROWS_WITH_AS(write_file("/dev/full", "text"), doctest::Contains("cannot be written: No space left"),
                         ConfigError);
    // A limit of the size of files, as ulimit -f sets it: in blocks of 1,024 bytes.
    const std::string ring = folder.file(
        "s.yaml", "orrery: 1\nkind: collective\ncluster: {nodes: 1, node: dgx-h100}\ncollective: {size: 1 MiB}\n");
    const Outcome limited = shell_command(
        fmt::format("ulimit -f 1; {} run {} --quiet --report {}", orrery_program(), ring, folder.file("r.html")));
    CHECK(limited.code == 2);
    CHECK_MESSAGE(limited.text.find("r.html: error: cannot be written: File too large") != std::string::npos,
                  limited.text);
    CHECK(names_in(folder.file("")) == std::set<std::string>{"s.yaml"});
}
