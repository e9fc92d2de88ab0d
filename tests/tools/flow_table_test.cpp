// `orrery run --flows`: the messages of a run one by one.

#include "tests/support/command.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

using namespace orrery::test;

namespace {

// flow,source,destination,bytes,start_s,end_s,fct_s,alone_s,slowdown
std::vector<std::vector<double>> rows_of(const std::string& table) {
    std::istringstream in(table);
    std::string line;
    std::getline(in, line);
    CHECK(line == "flow,source,destination,bytes,start_s,end_s,fct_s,alone_s,slowdown");
    std::vector<std::vector<double>> out;
    while (std::getline(in, line)) {
        std::istringstream cells(line);
        out.emplace_back();
        for (std::string cell; std::getline(cells, cell, ',');) {
            out.back().push_back(std::stod(cell));
        }
        REQUIRE(out.back().size() == 9);
    }
    return out;
}

}  // namespace

TEST_CASE("--flows says of each message when it went and how much others held it up") {
    for (const auto& [fidelity, within] :
         {std::pair{"analytic", 0.01}, std::pair{"fluid", 0.01}, std::pair{"simgrid", 0.01}, std::pair{"packet", 0.05}}) {
        const Folder folder;
        const std::string scenario = folder.file(
            "s.yaml", fmt::format("orrery: 1\nkind: network\n"
                                  "cluster: {{hosts: 4, fabric: {{kind: single-switch, link: 100 Gbps, latency: 1 us}}}}\n"
                                  "traffic: {{flows: flows.csv}}\nnetwork: {{fidelity: {}}}\n",
                                  fidelity));
        // Two flows share the way into host 2 from the same instant on; the third, later, has its own.
        (void)folder.file("flows.csv", "src,dst,bytes,start\n0,2,10000000,0\n1,2,10000000,0\n3,1,5000000,0.004\n");
        const std::string table = folder.file("flows.csv.out");
        const Outcome run = orrery_command("run " + scenario + " --quiet --flows " + table);
        REQUIRE_MESSAGE(run.code == 0, run.text);
        const auto rows = rows_of(read(table));
        REQUIRE(rows.size() == 3);
        CHECK(rows[0][3] == 1e7);
        CHECK(rows[2][4] == doctest::Approx(0.004));
        CHECK(rows[2][5] == doctest::Approx(rows[2][4] + rows[2][6]));
        CHECK(rows[2][8] == doctest::Approx(1).epsilon(0.001));
        CHECK(rows[0][7] == doctest::Approx(8e-4).epsilon(0.05));  // 10 MB at 100 Gb/s
        // Where links are shared both take twice as long; analytic reserves them one after the other.
        const bool shared = std::string(fidelity) != "analytic";
        CHECK(rows[1][8] == doctest::Approx(2).epsilon(within));
        CHECK(rows[0][8] == doctest::Approx(shared ? 2 : 1).epsilon(within));
    }
}

TEST_CASE("--flows lists the messages of a collective, and is refused where there are none") {
    const Folder folder;
    const std::string ring = folder.file("ring.yaml",
                                         "orrery: 1\nkind: collective\n"
                                         "cluster: {hosts: 4, fabric: {kind: single-switch, link: 100 Gbps, latency: 1 us}}\n"
                                         "collective: {op: all-gather, size: 4 MiB, algorithm: ring}\n");
    const std::string table = folder.file("t.csv");
    const Outcome run = orrery_command("run " + ring + " --quiet --flows " + table);
    REQUIRE_MESSAGE(run.code == 0, run.text);
    const auto rows = rows_of(read(table));
    REQUIRE(rows.size() == 4 * 3);
    for (const auto& row : rows) {
        CHECK(row[3] == 1048576);
        CHECK(row[8] == doctest::Approx(1).epsilon(0.001));
    }
    const std::string training = folder.file("training.yaml",
                                             "orrery: 1\nkind: training\ncluster: {nodes: 1, node: dgx-a100-80g}\n"
                                             "model: gpt3-175b\nplan: {tensor: 8, global_batch: 8}\n");
    const std::string none = folder.file("none.csv");
    const Outcome refused = orrery_command("run " + training + " --flows " + none);
    CHECK(refused.code == 2);
    CHECK_MESSAGE(refused.text.find("--flows lists the messages of a network or collective") != std::string::npos,
                  refused.text);
    CHECK_FALSE(std::filesystem::exists(none));
}
