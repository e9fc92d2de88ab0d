// The program as a user meets it: exit codes, texts, files.

#include "sim/config/units.hpp"
#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/report/page.hpp"
#include "tools/terminal/terminal.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <limits>

using namespace orrery;
using namespace orrery::test;

namespace {

const std::string kBase = std::string(ORRERY_SOURCE_DIR) + "/scenarios/training/gpt3-175b-1024xA100.yaml";

}  // namespace

TEST_CASE("what is no number is printed as not known, and never as nan") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(duration_text(-nan) == "an unknown time");
    CHECK(duration_text(7200) == "2 h");
    CHECK(pretty_quantity(-nan, Dimension::time) == "not known");
    CHECK(pretty_quantity(nan, Dimension::fraction) == "not known");
}

TEST_CASE("numbers for people have four or five digits and a prefix or a unit of their size") {
    CHECK(pretty_quantity(599.9, Dimension::time) == "599.9 s");
    CHECK(pretty_quantity(5074, Dimension::time) == "84.57 min");
    CHECK(pretty_quantity(5.184e6, Dimension::time) == "60 d");
    CHECK(pretty_quantity(36'000, Dimension::time) == "10 h");
    CHECK(pretty_quantity(9e9, Dimension::time) == "9e+09 s");
    CHECK(pretty_quantity(std::numeric_limits<double>::infinity(), Dimension::time) == "inf s");
    CHECK(report::value_text(445'123, "1/s") == "445.1k/s");
    CHECK(report::value_text(8123.4, "1/s") == "8123.4/s");
    CHECK(report::value_text(273'400, "W") == "273.4 kW");
    CHECK(report::value_text(1.3503e13, "J") == "13.5 TJ");
    CHECK(report::value_text(0.0947, "J") == "0.0947 J");
    CHECK(report::value_text(16'760'832, "packets") == "16.76M");
    CHECK(report::value_text(2'015'808, "tokens") == "2.016M tokens");
    CHECK(report::value_text(706'900, "1") == "706900");
    CHECK(report::value_text(5.68201e12, "B") == "5.168 TiB");
    CHECK(report::value_text(337.334738, "TFLOP/s") == "337.33 TFLOP/s");
}

TEST_CASE("bad input exits with 2, the place and what to do, and writes no file") {
    const Folder folder;
    const std::string good = folder.file("good.yaml", test::kSmallTraining);
    struct Case {
        std::string arguments;
        std::string expected;
    };
    std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n";
    for (char c = 'b'; c < 'k'; ++c) {
        bomb += fmt::format("{0}: &{0} [*{1}, *{1}, *{1}, *{1}, *{1}, *{1}, *{1}, *{1}, *{1}, *{1}]\n", c,
                            static_cast<char>(c - 1));
    }
    const std::vector<Case> cases = {
        {"run " + folder.file("missing.yaml"), "missing.yaml: error: cannot be read"},
        {"run " + folder.file("blank.yaml", "\n"), "blank.yaml:1:1: error: the file is empty"},
        {"run " + folder.file("list.yaml", "- 1\n"), "a scenario is a map"},
        {"run " + folder.file("bomb.yaml", bomb), "expands to more than"},
        {"run " + folder.file("dup.yaml", std::string(test::kSmallTraining) + "software: maxtext\n"),
         "dup.yaml:7:1: error: duplicate key 'software'"},
        {"run " + good + " --set plan.tensr=2", "unknown key 'tensr' (did you mean 'tensor'?)"},
        {"run " + good + " --set cluster.fabric.link=400", "has no unit"},
        {"run " + good + " --set cluster.fabric.link='400 GB'", "wrong kind of unit"},
        {"run " + good + " --set model.layers=1e30", "'layers' must be at most 9e15"},
        {"run " + good + " --seed 9007199254740993", "'seed' must be at most 9e15"},
        {"run " + good + " --set model.layers=999999999", "'layers' must be between"},
        {"run " + good + " --set cluster.nodes=900000", "more than 4,000,000 GPUs"},
        {"run " + good + " --set cluster.node=dgx-a10", "unknown node preset 'dgx-a10'"},
        {"run " + good + " --set cluster.node=l40s", "which is what a node may have: node: {gpu: l40s, ...}"},
        {"run " + good + " --set nonsense", "expected key.path=value"},
        {"run " + good + " --set network.fidelity=simgrid", "serves collective and network scenarios"},
        {"run " + good + " --json /nowhere/x.json", "cannot be written"},
        {"run", "takes one argument"},
        {"rum " + good, "did you mean 'run'?"},
        {"run " + good + " --jsn x", "unrecognised option '--jsn' (did you mean '--json'?)"},
        {"init serving --gpu h100-sxm", "unrecognised option '--gpu' (did you mean '--gpus'?)"},
        {"run " + good + " --color pink", "--color is auto, always or never"},
        {"list modles", "did you mean 'models'?"},
        {"schema nothing", "unknown kind"},
        {"validate nothing", "unknown suite"},
    };
    for (const Case& c : cases) {
        const Outcome out = orrery_command(c.arguments);
        CHECK_MESSAGE(out.code == 2, c.arguments << "\n" << out.text);
        CHECK_MESSAGE(out.text.find(c.expected) != std::string::npos, c.arguments << "\n" << out.text);
    }
    const std::string json = folder.file("out.json");
    CHECK(orrery_command("run " + good + " --set plan.tensr=2 --json " + json).code == 2);
    CHECK(!std::filesystem::exists(json));
}

TEST_CASE("what is valid but infeasible exits with 3 and says why in numbers") {
    const Folder folder;
    const std::string good = folder.file("good.yaml", test::kSmallTraining);
    const std::string traffic = folder.file("traffic.yaml",
                                            "orrery: 1\nkind: network\ncluster: {hosts: 16, fabric: {link: 1 Gbps}}\n"
                                            "traffic: {pattern: all-to-all, size: 1 MB}\n");
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"run " + good + " --set plan.tensor=4",
         "the plan does not divide: tensor 4 x pipeline 1 x data 4 x context 1 = 16 ranks, but the cluster has 8 GPUs"},
        {"run " + good + " --set plan.global_batch=9", "micro_batch 1 x data 4 must divide global_batch 9"},
        {"run " + good + " --set model.layers=900 --set model.hidden=16384", "out of memory: stage 0 needs"},
        {"run " + good + " --set cluster.nodes=2 --set cluster.node.nics=0 --set plan.data=8",
         "node 1 cannot be reached"},
        {"run " + good + " --set plan.precision=fp8", "no matrix unit for fp8"},
        {"run " + good + " --set plan.precision=fp4", "no matrix unit for fp4"},
        {"run " + good + " --set plan.global_batch=800000000",
         "200000000 micro-batches through 1 stages are 4e+08 passes"},
        {"run " + traffic + " --set cluster.hosts=100000", "the schedule has 1e+10 messages"},
        {"run " + traffic +
             " --set cluster.hosts=1000000 --set cluster.fabric.hosts_per_leaf=1 --set "
             "cluster.fabric.spines=4096",
         "more than 200 million switch links"},
    };
    for (const auto& row : cases) {
        const std::string& arguments = row.first;
        const std::string& expected = row.second;
        const Outcome out = orrery_command(arguments);
        CHECK_MESSAGE(out.code == 3, arguments << "\n" << out.text);
        CHECK_MESSAGE(out.text.find(expected) != std::string::npos, arguments << "\n" << out.text);
    }
}

TEST_CASE("help, version, list, schema, explain and topology answer with 0") {
    CHECK(orrery_command("--help").code == 0);
    CHECK(orrery_command("--version").text.find("orrery 0.") != std::string::npos);
    CHECK(orrery_command("list").text.find("gpt3-175b") != std::string::npos);
    CHECK(orrery_command("list fields").text.find("plan.tensor") != std::string::npos);
    CHECK(nlohmann::json::parse(orrery_command("schema training").text).contains("properties"));
    const Outcome explain = orrery_command("explain " + kBase);
    CHECK(explain.code == 0);
    CHECK(explain.text.find("cluster.node.gpu.memory_bandwidth") != std::string::npos);
    CHECK(explain.text.find("gpu-benches") != std::string::npos);
    const Outcome topology = orrery_command("topology " + kBase);
    CHECK(topology.code == 0);
    CHECK(topology.text.find("1024 of 1024 GPUs") != std::string::npos);
    CHECK(orrery_command("").code == 2);
}

TEST_CASE("equal input gives byte-identical JSON and trace, which are valid and agree") {
    const Folder folder;
    const std::string small = kBase + " --set cluster.nodes=16 --set plan.data=1 --set plan.global_batch=32";
    for (const char* name : {"1", "2"}) {
        REQUIRE(orrery_command(fmt::format("run {} --quiet --json {} --trace {}", small,
                                           folder.file(std::string("j") + name), folder.file(std::string("t") + name)))
                    .code == 0);
    }
    CHECK(read(folder.file("j1")) == read(folder.file("j2")));
    CHECK(read(folder.file("t1")) == read(folder.file("t2")));
    const auto summary = nlohmann::json::parse(read(folder.file("j1")));
    for (const char* metric : {"iteration_time_s", "tokens_per_s", "tflops_per_gpu", "mfu", "hfu", "memory_per_gpu_gib",
                               "bubble_fraction", "exposed_communication_s"}) {
        CHECK_MESSAGE(summary["metrics"].contains(metric), metric);
        CHECK(summary["metrics"][metric].contains("low"));
    }
    double sum = 0;
    for (const auto& part : summary["breakdown"]) {
        sum += part.get<double>();
    }
    const double total = summary["metrics"]["iteration_time_s"]["value"];
    CHECK(sum == doctest::Approx(total).epsilon(1e-9));
    const auto trace = nlohmann::json::parse(read(folder.file("t1")));
    double end = 0;
    std::size_t starts = 0;
    std::size_t finishes = 0;
    for (const auto& event : trace["traceEvents"]) {
        if (event["ph"] == "X") {
            end = std::max(end, event["ts"].get<double>() + event["dur"].get<double>());
        }
        starts += event["ph"] == "s" ? 1 : 0;
        finishes += event["ph"] == "f" ? 1 : 0;
    }
    CHECK(end * 1e-6 == doctest::Approx(total).epsilon(1e-6));
    CHECK(starts > 0);
    CHECK(starts == finishes);
}

TEST_CASE("a resolved scenario runs to the same summary") {
    const Folder folder;
    REQUIRE(orrery_command(
                fmt::format("run {} --quiet --json {} --resolved {}", kBase, folder.file("a"), folder.file("r.yaml")))
                .code == 0);
    REQUIRE(orrery_command(fmt::format("run {} --quiet --json {}", folder.file("r.yaml"), folder.file("b"))).code == 0);
    auto a = nlohmann::json::parse(read(folder.file("a")));
    auto b = nlohmann::json::parse(read(folder.file("b")));
    a.erase("scenario");
    b.erase("scenario");
    CHECK(a == b);
}

TEST_CASE("a scenario can come from standard input") {
    const Folder folder;
    CHECK(orrery_command("run - --json - < " + folder.file("good.yaml", test::kSmallTraining))
              .text.find("\"iteration_time_s\"") != std::string::npos);
}

TEST_CASE("out of memory: the levers that make it fit are named, and they do") {
    const std::string head =
        "orrery: 1\nkind: training\ncluster: {nodes: 2, node: dgx-a100-80g}\nsoftware: megatron-lm-2021\n";
    const auto hint = [&](const std::string& rest) {
        try {
            (void)run_scenario(test::scenario(head + rest), model_cache(), {});
        } catch (const InfeasibleError& error) {
            return std::string(error.what());
        }
        return std::string("it fits");
    };
    const std::string model = "model: {layers: 40, hidden: 5120, heads: 40, vocabulary: 51200, sequence: 4096}\n";
    const std::string plan = "plan: {tensor: 4, data: 4, micro_batch: 8, global_batch: 64, attention: flash";
    const std::string said = hint(model + plan + "}\n");
    CHECK_MESSAGE(said.find("each of these alone makes it fit: ") != std::string::npos, said);
    // Every lever that is named is tried: what is said is so.
    std::size_t named = 0;
    for (std::size_t at = said.find("plan."); at != std::string::npos; at = said.find(", plan.", at + 1)) {
        at += said[at] == ',' ? 2 : 0;
        const std::string item = said.substr(at, said.find(" (", at) - at);  // "plan.context=2 with plan.data=2"
        std::string changed = model + plan + "}\n";
        YamlNode tree = parse_yaml(head + changed, "test.yaml");
        for (std::size_t from = 0; from < item.size();) {
            const std::size_t end = std::min(item.find(" with ", from), item.size());
            apply_override(tree, item.substr(from, end - from));
            from = end == item.size() ? end : end + 6;
        }
        CHECK_NOTHROW_MESSAGE((void)run_scenario(read_scenario(tree, "test", test::data()), model_cache(), {}), item);
        ++named;
    }
    CHECK_MESSAGE(named >= 3, said);
    // What this software keeps of its scores is named too.
    const std::string kept = hint(model + "plan: {tensor: 4, data: 4, micro_batch: 2, global_batch: 64}\n");
    CHECK_MESSAGE(kept.find("plan.attention=flash (") != std::string::npos, kept);
    // No lever alone is enough, two are.
    const std::string two =
        hint(model + "plan: {tensor: 1, data: 16, micro_batch: 4, global_batch: 64, attention: flash}\n");
    CHECK_MESSAGE(
        (two.find("with one of plan.") != std::string::npos || two.find("each of these alone") != std::string::npos),
        two);
    const std::string none =
        hint("model: {layers: 400, hidden: 20480, heads: 160, vocabulary: 51200, sequence: 4096}\n" + plan + "}\n");
    CHECK_MESSAGE(none.find("it needs more of them") != std::string::npos, none);
}
