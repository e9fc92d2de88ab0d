// Jobs of the service and the processes that do them.

#include "tools/service/jobs.hpp"
#include "tests/support/command.hpp"

#include "sim/base/error.hpp"

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

using namespace orrery;
using namespace orrery::test;
using namespace std::chrono_literals;
using service::ChildLimits;
using service::Confinement;
using service::JobLimits;
using service::Jobs;
using service::JobState;

namespace {

// Ends when it is told to, or stopped.
struct Held {
    std::atomic<bool> free = false;
    Jobs::Work work() {
        return [this](const std::string& command, const std::string&, const auto& say,
                      const auto& stop) -> std::optional<std::string> {
            say("began " + command);
            while (!free) {
                if (stop()) {
                    return std::nullopt;
                }
                std::this_thread::sleep_for(1ms);
            }
            if (command == "fail") {
                throw ConfigError("as asked");
            }
            return "result of " + command;
        };
    }
};

service::JobView ended(Jobs& jobs, const std::string& id) {
    std::uint64_t version = 0;
    while (true) {
        const auto view = jobs.wait(id, version, 1000ms);
        REQUIRE(view);
        if (view->ended()) {
            return *jobs.view(id);
        }
        version = view->version;
    }
}

program::Invocation shell(const std::string& command, const Confinement* confinement = nullptr,
                          const ChildLimits& limits = {}) {
    const auto out = service::run_child(
        {"/bin/sh", "-c", command}, "/", "input", confinement, limits, [](const std::string&) {}, [] { return false; });
    REQUIRE(out);
    return *out;
}

}  // namespace

TEST_CASE("Jobs run in order up to a limit at once, and those beyond the queue are refused") {
    Held held;
    JobLimits limits;
    limits.running = 2;
    limits.waiting = 2;
    Jobs jobs(limits, held.work());
    std::vector<std::string> ids;
    for (const char* name : {"a", "b"}) {
        ids.push_back(*jobs.add(name, ""));
        while (jobs.load().first > 0) {
            std::this_thread::sleep_for(1ms);
        }
    }
    ids.push_back(*jobs.add("c", ""));
    ids.push_back(*jobs.add("d", ""));
    CHECK(jobs.load() == std::pair<std::size_t, std::size_t>(2, 2));
    CHECK(!jobs.add("e", ""));
    CHECK(jobs.view(ids[2])->state == JobState::queued);
    CHECK(jobs.view(ids[0])->progress == "began a");
    CHECK(jobs.cancel(ids[2]));
    CHECK(jobs.view(ids[2])->state == JobState::cancelled);
    held.free = true;
    CHECK(ended(jobs, ids[3]).result == "result of d");
    CHECK(ended(jobs, ids[0]).state == JobState::done);
    CHECK(ended(jobs, *jobs.add("fail", "")).state == JobState::failed);
}

TEST_CASE("A job that is cancelled ends, and its result is dropped when it is asked for again") {
    Held held;
    Jobs jobs({}, held.work());
    const std::string id = *jobs.add("a", "");
    CHECK(jobs.cancel(id));
    CHECK(ended(jobs, id).state == JobState::cancelled);
    CHECK(!jobs.cancel(id));
    CHECK(!jobs.view(id));
    CHECK(!jobs.cancel("no such job"));
}

TEST_CASE("Results stay within their number and their bytes, the newest last") {
    Held held;
    held.free = true;
    JobLimits limits;
    limits.kept = 3;
    limits.kept_bytes = 2 * std::string("result of 0").size();
    Jobs jobs(limits, held.work());
    std::vector<std::string> ids;
    for (int i = 0; i < 5; ++i) {
        ids.push_back(*jobs.add(std::to_string(i), ""));
        (void)ended(jobs, ids.back());
    }
    CHECK(!jobs.view(ids[2]));
    CHECK(jobs.view(ids[3])->result == "result of 3");
    CHECK(jobs.view(ids[4])->result == "result of 4");
}

TEST_CASE("Jobs that run are cancelled with their queue") {
    Held held;
    {
        Jobs jobs({}, held.work());
        (void)jobs.add("a", "");
        (void)jobs.add("b", "");
    }
    CHECK(!held.free);  // it came here without
}

TEST_CASE("A child is given its input, and killed beyond its limits or when it is stopped") {
    CHECK(shell("cat; echo error >&2; exit 7").output == "input");
    CHECK(shell("cat; echo error >&2; exit 7").code == 7);
    CHECK(shell("cat; echo error >&2; exit 7").errors == "error\n");
    CHECK(shell("kill -SEGV $$").code == 4);
    CHECK(shell("echo ${HOME:-none}").output == "none\n");
    ChildLimits limits;
    limits.seconds = 0.2;
    const auto began = std::chrono::steady_clock::now();
    CHECK(shell("sleep 20", nullptr, limits).code == 3);
    limits = {};
    limits.output = 1000;
    CHECK(shell("yes", nullptr, limits).code == 3);
    std::vector<std::string> lines;
    CHECK(!service::run_child(
        {"/bin/sh", "-c", "echo one >&2; echo two >&2; sleep 20"}, "/", "", nullptr, {},
        [&](const std::string& line) { lines.push_back(line); }, [&] { return lines.size() == 2; }));
    CHECK(lines == std::vector<std::string>{"one", "two"});
    CHECK(std::chrono::steady_clock::now() - began < 10s);
}

TEST_CASE("A confined child reads its folders and no other file, by whatever path") {
    if (!service::can_confine()) {
        MESSAGE("skipped: this kernel has no Landlock");
        return;
    }
    const Folder folder;
    std::filesystem::create_directories(folder.file("in"));
    std::filesystem::create_directories(folder.file("scratch"));
    std::ofstream(folder.file("in/open")) << "open";
    std::ofstream(folder.file("secret")) << "secret";
    std::filesystem::create_symlink(folder.file("secret"), folder.file("in/link"));
    const Confinement confinement(
        {"/bin", "/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/no/such/folder", folder.file("in")},
        {folder.file("scratch")});
    const auto reads = [&](const std::string& path) { return shell("cat " + path, &confinement).output; };
    CHECK(reads(folder.file("in/open")) == "open");
    CHECK(reads(folder.file("secret")).empty());
    CHECK(reads(folder.file("in/link")).empty());
    CHECK(reads(folder.file("in/../secret")).empty());
    CHECK(reads("/etc/passwd").empty());
    CHECK(shell("echo x > " + folder.file("scratch/new"), &confinement).code == 0);
    CHECK(shell("echo x > " + folder.file("in/new"), &confinement).code != 0);
    CHECK(!std::filesystem::exists(folder.file("in/new")));
}
