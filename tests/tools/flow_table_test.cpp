// `orrery run --flows`: the messages of a run one by one.

#include "sim/base/text.hpp"
#include "tests/support/command.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

using namespace orrery::test;

namespace {

constexpr const char* kHead = "flow,source,destination,bytes,start_s,end_s,fct_s,alone_s,slowdown";
constexpr const char* kPackets =
    ",paths,packets_sent,retransmissions,needless_retransmissions,trims,drops,ecn_marks,timeouts";

// Empty fields are not numbers.
std::vector<std::vector<double>> rows_of(const std::string& table, bool packets = false) {
    std::istringstream in(table);
    std::string line;
    std::getline(in, line);
    CHECK(line == std::string(kHead) + (packets ? kPackets : ""));
    std::vector<std::vector<double>> out;
    while (std::getline(in, line)) {
        out.emplace_back();
        for (const std::string_view cell : orrery::split(line, ',')) {
            out.back().push_back(cell.empty() ? std::nan("") : std::stod(std::string(cell)));
        }
        REQUIRE(out.back().size() == (packets ? 17 : 9));
    }
    return out;
}

// The one value that a query of a database gives, as text.
std::string asked(const std::string& file, const char* sql) {
    sqlite3* database = nullptr;
    REQUIRE(sqlite3_open_v2(file.c_str(), &database, SQLITE_OPEN_READONLY, nullptr) == SQLITE_OK);
    sqlite3_stmt* statement = nullptr;
    REQUIRE_MESSAGE(sqlite3_prepare_v2(database, sql, -1, &statement, nullptr) == SQLITE_OK, sqlite3_errmsg(database));
    REQUIRE(sqlite3_step(statement) == SQLITE_ROW);
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, 0));
    std::string out = text != nullptr ? text : "NULL";
    sqlite3_finalize(statement);
    sqlite3_close(database);
    return out;
}

constexpr const char* kIncast =
    "orrery: 1\nkind: network\n"
    "cluster: {hosts: 16, fabric: {kind: leaf-spine, hosts_per_leaf: 4, spines: 4, link: 100 Gbps, latency: 1 us}}\n"
    "traffic: {pattern: incast, senders: 8, size: 1 MiB}\n";

}  // namespace

TEST_CASE("--flows says of each message when it went and how much others held it up") {
    for (const auto& [fidelity, within] : {std::pair{"analytic", 0.01}, std::pair{"fluid", 0.01},
                                           std::pair{"simgrid", 0.01}, std::pair{"packet", 0.05}}) {
        const Folder folder;
        const std::string scenario = folder.file(
            "s.yaml",
            fmt::format("orrery: 1\nkind: network\n"
                        "cluster: {{hosts: 4, fabric: {{kind: single-switch, link: 100 Gbps, latency: 1 us}}}}\n"
                        "traffic: {{flows: flows.csv}}\nnetwork: {{fidelity: {}}}\n",
                        fidelity));
        // Two flows share the way into host 2 from the same instant on; the third, later, has its own.
        (void)folder.file("flows.csv", "src,dst,bytes,start\n0,2,10000000,0\n1,2,10000000,0\n3,1,5000000,0.004\n");
        const std::string table = folder.file("table.csv");
        const Outcome run = orrery_command("run " + scenario + " --quiet --flows " + table);
        REQUIRE_MESSAGE(run.code == 0, run.text);
        const auto rows = rows_of(read(table), std::string(fidelity) == "packet");
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
    const std::string ring =
        folder.file("ring.yaml",
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
    const std::string serving = std::string(ORRERY_SOURCE_DIR "/scenarios/serving/front-end-8b.yaml");
    const std::string none = folder.file("none.csv");
    const Outcome refused = orrery_command("run " + serving + " --flows " + none);
    CHECK(refused.code == 2);
    CHECK_MESSAGE(
        refused.text.find("--flows lists the messages of a network, collective or training") != std::string::npos,
        refused.text);
    CHECK_FALSE(std::filesystem::exists(none));
}

TEST_CASE("--flows tells of each message what became of its packets, and adds up to the summary") {
    const Folder folder;
    const std::string scenario = folder.file(
        "s.yaml", std::string(kIncast) +
                      "network: {fidelity: packet, paths: {kind: oblivious}, transport: {kind: multipath},\n"
                      "          queues: {size: 64 KiB, trim: true, ecn: [16 KiB, 48 KiB]}}\n");
    const std::string table = folder.file("t.csv");
    const std::string database = folder.file("t.sqlite");
    const std::string summary = folder.file("s.json");
    const Outcome run = orrery_command("run " + scenario + " --quiet --flows " + table + " --json " + summary);
    REQUIRE_MESSAGE(run.code == 0, run.text);
    const auto rows = rows_of(read(table), true);
    REQUIRE(rows.size() == 8);
    std::vector<double> sums(17, 0);
    for (const auto& row : rows) {
        CHECK(row[9] == (row[1] < 4 ? 1 : 4));  // beyond the leaf by every spine
        CHECK(row[10] == 256 + row[11]);
        for (std::size_t i = 0; i < row.size(); ++i) {
            sums[i] += row[i];
        }
    }
    const auto metrics = nlohmann::json::parse(read(summary))["metrics"];
    const auto metric = [&](const char* name) { return metrics[name]["value"].get<double>(); };
    CHECK(sums[11] == metric("retransmissions"));
    CHECK(sums[13] == metric("trims"));
    CHECK(sums[15] == metric("ecn_marks"));
    CHECK(sums[16] == metric("timeouts"));
    CHECK(sums[13] > 0);
    CHECK(sums[15] > 0);
    // The same in a database, whose numbers are numbers.
    REQUIRE(orrery_command("run " + scenario + " --quiet --flows " + database).code == 0);
    CHECK(asked(database, "SELECT count(*) FROM flows") == "8");
    CHECK(asked(database, "SELECT sum(trims) FROM flows") == fmt::format("{:.0f}", sums[13]));
    CHECK(asked(database, "SELECT typeof(paths) || typeof(slowdown) FROM flows") == "integerreal");
    CHECK(std::stod(asked(database, "SELECT max(fct_s) FROM flows")) ==
          doctest::Approx(metrics["fct_s"]["max"]["value"].get<double>()));
}

TEST_CASE("a message inside a node has no packets, and its fields say nothing") {
    const Folder folder;
    const std::string scenario = folder.file("s.yaml",
                                             "orrery: 1\nkind: network\n"
                                             "cluster: {nodes: 2, node: dgx-a100-80g}\n"
                                             "traffic: {flows: flows.csv}\nnetwork: {fidelity: packet}\n");
    (void)folder.file("flows.csv", "src,dst,bytes,start\n0,1,1000000,0\n0,8,1000000,0\n");
    const std::string table = folder.file("t.csv");
    const Outcome run = orrery_command("run " + scenario + " --quiet --flows " + table);
    REQUIRE_MESSAGE(run.code == 0, run.text);
    const auto rows = rows_of(read(table), true);
    REQUIRE(rows.size() == 2);
    for (std::size_t i = 9; i < 17; ++i) {
        CHECK(std::isnan(rows[0][i]));
        CHECK_FALSE(std::isnan(rows[1][i]));
    }
    CHECK(rows[1][9] >= 1);
    CHECK(rows[1][10] == 245);  // 1,000,000 B in packets of 4,096 B
    const std::string database = folder.file("t.db");
    REQUIRE(orrery_command("run " + scenario + " --quiet --flows " + database).code == 0);
    CHECK(asked(database, "SELECT typeof(paths) FROM flows WHERE flow = 0") == "null");
}

TEST_CASE("a table by another name is refused before anything runs") {
    const Folder folder;
    const std::string scenario = folder.file("s.yaml", kIncast);
    for (const char* name : {"t.txt", "t", "t.json"}) {
        const std::string table = folder.file(name);
        const Outcome refused = orrery_command("run " + scenario + " --flows " + table);
        CHECK(refused.code == 2);
        CHECK_MESSAGE(
            refused.text.find("a table is written as .csv, or as .sqlite, .sqlite3 or .db") != std::string::npos,
            refused.text);
        CHECK_FALSE(std::filesystem::exists(table));
    }
    // A file that is there is replaced as a whole, where that is asked for.
    const std::string old = folder.file("old.sqlite", "something else");
    REQUIRE(orrery_command("run " + scenario + " --quiet --force --flows " + old).code == 0);
    CHECK(asked(old, "SELECT count(*) FROM flows") == "8");
}

TEST_CASE("summaries tell the makespan and how completion times and slowdowns are spread, at every fidelity") {
    for (const std::string fidelity : {"analytic", "fluid", "simgrid", "packet"}) {
        const Folder folder;
        const std::string scenario =
            folder.file("s.yaml", kIncast + ("network: {paths: ecmp, fidelity: " + fidelity + "}\n"));
        const std::string summary = folder.file("s.json");
        const std::string table = folder.file("t.csv");
        const Outcome run = orrery_command("run " + scenario + " --json " + summary + " --flows " + table);
        REQUIRE_MESSAGE(run.code == 0, run.text);
        const auto metrics = nlohmann::json::parse(read(summary))["metrics"];
        const auto value = [&](const char* family, const char* of) {
            return metrics[family][of]["value"].get<double>();
        };
        for (const char* family : {"fct_s", "slowdown"}) {
            INFO(fidelity << " " << family);
            CHECK(value(family, "p50") <= value(family, "p95"));
            CHECK(value(family, "p95") <= value(family, "p99"));
            CHECK(value(family, "p99") <= value(family, "max"));
            CHECK(value(family, "mean") <= value(family, "max"));
        }
        CHECK(metrics["makespan_s"]["value"].get<double>() == value("fct_s", "max"));
        double slowest = 0;
        for (const auto& row : rows_of(read(table), fidelity == "packet")) {
            slowest = std::max(slowest, row[8]);
        }
        CHECK(value("slowdown", "max") == doctest::Approx(slowest).epsilon(1e-4));
        CHECK(value("slowdown", "max") == doctest::Approx(8).epsilon(0.1));  // eight share a link
        CHECK(run.text.find("p95") != std::string::npos);
        CHECK(run.text.find("slowdown") != std::string::npos);
    }
}

TEST_CASE("the summary of a collective tells of its messages where they are simulated one by one, asked for or not") {
    const Folder folder;
    for (const auto& [algorithm, told] : {std::pair{"ring", false}, {"halving-doubling", true}}) {
        const std::string scenario = folder.file(
            "c.yaml",
            fmt::format("orrery: 1\nkind: collective\n"
                        "cluster: {{hosts: 8, fabric: {{kind: single-switch, link: 100 Gbps, latency: 1 us}}}}\n"
                        "collective: {{op: all-reduce, size: 1 MiB, algorithm: {}}}\n",
                        algorithm));
        const std::string plain = folder.file("plain.json");
        const std::string asked_for = folder.file("asked.json");
        REQUIRE(orrery_command("run " + scenario + " --quiet --json " + plain).code == 0);
        REQUIRE(orrery_command("run " + scenario + " --quiet --json " + asked_for + " --flows " + folder.file("t.csv"))
                    .code == 0);
        for (const std::string& file : {plain, asked_for}) {
            CHECK(nlohmann::json::parse(read(file))["metrics"].contains("slowdown") == told);
        }
    }
}

TEST_CASE("network.flow_samples records windows and rates, and is refused where there are none") {
    const Folder folder;
    const std::string head = std::string(kIncast) +
                             "network: {fidelity: packet, transport: {kind: dctcp}, paths: ecmp,\n"
                             "  queues: {ecn: [32 KiB, 32 KiB]}, ";
    const std::string scenario = folder.file("s.yaml", head + "flow_samples: {every: 10 us, flows: \"0, 2-3\"}}\n");
    const std::string table = folder.file("t.csv");
    Outcome run = orrery_command("run " + scenario + " --quiet --flow-samples " + table);
    REQUIRE_MESSAGE(run.code == 0, run.text);
    std::istringstream in(read(table));
    std::string line;
    std::getline(in, line);
    CHECK(line == "time_s,flow,window_bytes,pace_bytes_per_s,rate_bytes_per_s,ecn_fraction");
    std::size_t rows = 0;
    while (std::getline(in, line)) {
        const auto cells = orrery::split(line, ',');
        REQUIRE(cells.size() == 6);
        CHECK((cells[1] == "0" || cells[1] == "2" || cells[1] == "3"));
        CHECK(std::stod(std::string(cells[2])) > 0);
        CHECK(cells[3].empty());  // dctcp has windows, and no pace
        ++rows;
    }
    CHECK(rows > 100);
    const std::string database = folder.file("t.sqlite");
    REQUIRE(orrery_command("run " + scenario + " --quiet --flow-samples " + database).code == 0);
    CHECK(asked(database, "SELECT count(*) FROM flow_samples") == std::to_string(rows));

    const auto refused = [&](const std::string& text, const std::string& options) {
        const Outcome out = orrery_command("run " + folder.file("r.yaml", text) + " --quiet " + options);
        CHECK(out.code == 2);
        return out.text;
    };
    CHECK(refused(head + "flow_samples: {every: 10 us, flows: some}}\n", "").find("r.yaml:") != std::string::npos);
    CHECK(refused(head + "flow_samples: {flows: 3}}\n", "").find("flow_samples.every must say when") !=
          std::string::npos);
    CHECK(refused(std::string(kIncast) + "network: {fidelity: fluid, flow_samples: {every: 10 us}}\n", "")
              .find("no effect without network.fidelity: packet") != std::string::npos);
    CHECK(refused(head + "flow_samples: {every: 10 us}, skip: {error: 0.5 %}}\n", "").find("leave them or skip out") !=
          std::string::npos);
    CHECK(refused(head + "flow_samples: {every: 10 us}, threads: 2}\n", "").find("they look at all flows at once") !=
          std::string::npos);
    CHECK(refused(head + "mtu: 4096 B}\n", "--flow-samples " + folder.file("n.csv")).find("this scenario has none") !=
          std::string::npos);
}
