// `orrery run --flows` and the summary's completion times of training: the messages between nodes of an iteration.

#include "sim/base/text.hpp"
#include "tests/support/command.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

using namespace orrery::test;

namespace {

struct Row {
    int from, to;
    double bytes, start, end, fct, alone;
};

std::vector<Row> rows_of(const std::string& table) {
    std::istringstream in(table);
    std::string line;
    std::getline(in, line);
    REQUIRE(line.rfind("flow,source,destination,bytes,start_s,end_s,fct_s,alone_s,slowdown", 0) == 0);
    std::vector<Row> out;
    while (std::getline(in, line)) {
        const std::vector<std::string_view> cells = orrery::split(line, ',');
        const auto number = [&](std::size_t i) { return std::stod(std::string(cells[i])); };
        CHECK(number(0) == static_cast<double>(out.size()));
        out.push_back({static_cast<int>(number(1)), static_cast<int>(number(2)), number(3), number(4), number(5),
                       number(6), number(7)});
    }
    return out;
}

// Two stages on four nodes: activations cross nodes, and gradients of eight ranks a stage go round two nodes.
std::string training_case(const std::string& network) {
    return "orrery: 1\nkind: training\n"
           "cluster: {nodes: 4, node: dgx-a100-80g, fabric: {kind: leaf-spine, nodes_per_leaf: 2, rails: 8,\n"
           "  oversubscription: 1, latency: 600 ns}}\n"
           "model: {layers: 4, hidden: 2048, heads: 16, vocabulary: 32000, sequence: 2048}\n"
           "plan: {tensor: 4, pipeline: 2, data: 4, micro_batch: 1, global_batch: 16, schedule: 1f1b}\n"
           "network: " +
           network + "\n";
}

nlohmann::json metrics_of(const Folder& folder, const std::string& network, const std::string& table) {
    const std::string scenario = folder.file("t.yaml", training_case(network));
    const std::string summary = folder.file("t.json");
    const Outcome run =
        orrery_command("run " + scenario + " --quiet --json " + summary + (table.empty() ? "" : " --flows " + table));
    REQUIRE_MESSAGE(run.code == 0, run.text);
    return nlohmann::json::parse(read(summary))["metrics"];
}

}  // namespace

TEST_CASE("--flows lists the messages between nodes of an iteration at every fidelity, the same ones") {
    const Folder folder;
    std::vector<std::vector<Row>> all;
    for (const char* fidelity : {"packet", "fluid", "analytic"}) {
        INFO(fidelity);
        const std::string table = folder.file("f.csv");
        const nlohmann::json metrics =
            metrics_of(folder, fmt::format("{{fidelity: {}, paths: ecmp}}", fidelity), table);
        all.push_back(rows_of(read(table)));
        const std::vector<Row>& rows = all.back();
        const double iteration = metrics["iteration_time_s"]["value"].get<double>();
        std::size_t sends = 0;
        for (const Row& row : rows) {
            CHECK(row.from / 8 != row.to / 8);
            CHECK(row.from % 8 == row.to % 8);  // by rails
            CHECK(row.start >= 0);
            CHECK(row.end <= iteration * (1 + 1e-9));
            CHECK(row.fct == doctest::Approx(row.end - row.start).epsilon(1e-6));
            CHECK(row.fct >= row.alone * 0.999);
            sends += row.bytes == 2048 * 2048 * 2 / 4 ? 1 : 0;  // an activation, scattered over four ranks
        }
        // Each of 4 tensor ranks in 4 replicas sends 4 micro-batches forward and back.
        CHECK(sends == 4 * 4 * 4 * 2);
        CHECK(std::is_sorted(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.start < b.start; }));
        // Only packets give each message an end of its own, which costs nothing that is not asked for.
        CHECK(metrics.contains("fct_s") == (std::string(fidelity) == "packet"));
    }
    const auto what = [](const std::vector<Row>& rows) {
        std::vector<std::array<double, 3>> out;
        for (const Row& row : rows) {
            out.push_back({static_cast<double>(row.from), static_cast<double>(row.to), std::ceil(row.bytes)});
        }
        std::sort(out.begin(), out.end());
        return out;
    };
    REQUIRE(!all[0].empty());
    CHECK(what(all[0]) == what(all[1]));
    CHECK(what(all[1]) == what(all[2]));
}

TEST_CASE(
    "completion times of training stand in the summary of a packet run, asked for or not, and skipping keeps them") {
    const Folder folder;
    const std::string table = folder.file("f.csv");
    const nlohmann::json exact = metrics_of(folder, "{fidelity: packet, paths: ecmp}", "");
    const nlohmann::json listed = metrics_of(folder, "{fidelity: packet, paths: ecmp}", table);
    const nlohmann::json skipped = metrics_of(folder, "{fidelity: packet, paths: ecmp, skip: {error: 0.5 %}}", "");
    const auto value = [](const nlohmann::json& of, const char* name) {
        return of["fct_s"][name]["value"].get<double>();
    };
    std::vector<double> times;
    for (const Row& row : rows_of(read(table))) {
        times.push_back(row.fct);
    }
    std::sort(times.begin(), times.end());
    CHECK(exact["messages"]["value"].get<std::size_t>() == times.size());
    CHECK(value(exact, "max") == doctest::Approx(times.back()).epsilon(1e-6));
    CHECK(value(exact, "p50") == doctest::Approx(times[times.size() / 2]).epsilon(1e-6));
    for (const char* name : {"mean", "p50", "p99", "max"}) {
        CHECK(value(exact, name) == value(listed, name));
        CHECK(value(skipped, name) == doctest::Approx(value(exact, name)).epsilon(0.005));
    }
}

TEST_CASE("messages of an iteration are sampled by the numbers that the table gives them") {
    const Folder folder;
    const std::string scenario = folder.file(
        "t.yaml", training_case("{fidelity: packet, paths: ecmp, flow_samples: {every: 20 us, flows: \"0, 7\"}}"));
    const std::string table = folder.file("f.csv");
    const std::string samples = folder.file("s.csv");
    const Outcome run = orrery_command("run " + scenario + " --quiet --flows " + table + " --flow-samples " + samples);
    REQUIRE_MESSAGE(run.code == 0, run.text);
    const std::vector<Row> rows = rows_of(read(table));
    std::istringstream in(read(samples));
    std::string line;
    std::getline(in, line);
    std::size_t seen = 0;
    for (; std::getline(in, line); ++seen) {
        const std::vector<std::string_view> cells = orrery::split(line, ',');
        const double time = std::stod(std::string(cells[0]));
        const auto flow = static_cast<std::size_t>(std::stoul(std::string(cells[1])));
        REQUIRE((flow == 0 || flow == 7));
        CHECK(time >= rows[flow].start);
        CHECK(time <= rows[flow].end + 20e-6);
    }
    CHECK(seen > 4);
}
