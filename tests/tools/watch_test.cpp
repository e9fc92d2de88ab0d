// orrery run --watch: a run again for every change of what it reads.

#include "tests/support/command.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

using namespace orrery::test;

namespace {

// The program in the background, until the end of the scope.
class Watching {
  public:
    Watching(const Folder& folder, const std::string& arguments) {
        const std::string out = shell_command(fmt::format("{} run {} --watch > {} 2>&1 & echo $!", orrery_program(),
                                                          arguments, folder.file("log")))
                                    .text;
        pid_ = std::stoi(out);
    }
    ~Watching() { (void)::kill(pid_, SIGTERM); }  // a shell lets what it starts in the background ignore SIGINT
    Watching(const Watching&) = delete;
    Watching& operator=(const Watching&) = delete;

  private:
    int pid_ = 0;
};

bool comes(const std::function<bool()>& what) {
    for (int i = 0; i < 200; ++i) {
        if (what()) {
            return true;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return false;
}

std::size_t count(const std::string& text, const std::string& part) {
    std::size_t out = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
        ++out;
    }
    return out;
}

}  // namespace

TEST_CASE("run --watch runs again when the scenario or a file that it reads changes, and says what is wrong with it") {
    const Folder folder;
    (void)folder.file("flows.csv", "src,dst,bytes,start\n0,1,1000000,0\n");
    const std::string text =
        "orrery: 1\nkind: network\ncluster: {hosts: 4, fabric: {link: 100 Gbps}}\ntraffic: {flows: flows.csv}\n";
    const std::string file = folder.file("watched.yaml", text);
    const std::string json = folder.file("out.json");
    const auto longest = [&] {
        const auto parsed = nlohmann::json::parse(read(json), nullptr, false);
        return parsed.is_discarded() ? 0.0 : parsed["metrics"]["fct_s"]["max"]["value"].get<double>();
    };
    const Watching watching(folder, fmt::format("{} --json {}", file, json));
    REQUIRE(comes([&] { return longest() > 0; }));
    const double first = longest();
    REQUIRE(comes([&] { return read(folder.file("log")).find("watching 2 files") != std::string::npos; }));
    // A file that the scenario reads.
    (void)folder.file("flows.csv", "src,dst,bytes,start\n0,1,8000000,0\n");
    REQUIRE(comes([&] { return longest() > 4 * first; }));
    // The scenario itself; in place of it another file, as editors write.
    std::filesystem::rename(folder.file("new.yaml", text + "network: {paths: ecmpp}\n"), file);
    REQUIRE(comes([&] { return read(folder.file("log")).find("did you mean 'ecmp'") != std::string::npos; }));
    CHECK(read(folder.file("log")).find("watched.yaml:5:18: error:") != std::string::npos);
    (void)folder.file("watched.yaml", text + "seed: 7\n");
    REQUIRE(comes([&] { return read(json).find("\"seed\": 7") != std::string::npos; }));
    // Nothing changes, nothing runs.
    REQUIRE(comes([&] { return count(read(folder.file("log")), "watching") == 4; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    CHECK(count(read(folder.file("log")), "watching") == 4);

    CHECK(orrery_command("run - --watch < /dev/null").code == 2);
}
