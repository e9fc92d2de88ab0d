// The search for plans against simulating everything.

#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/kinds/training.hpp"
#include "tools/driver/kinds/training_input.hpp"
#include "tools/plan/estimate.hpp"
#include "tools/plan/plan_space.hpp"
#include "tools/plan/search.hpp"
#include "workloads/training/features/documents.hpp"
#include "workloads/training/features/offload.hpp"
#include "workloads/training/features/signatures.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

using namespace orrery;
using namespace orrery::test;

namespace {

// Sixteen GPUs and a model that fits in many ways, but not in all.
constexpr const char* kPlanned = R"(orrery: 1
kind: training
cluster: {nodes: 2, node: dgx-a100-80g, fabric: {nodes_per_leaf: 2, rails: 8}}
model: {layers: 24, hidden: 6144, heads: 48, vocabulary: 51200}
plan: {tensor: 8, data: 2, global_batch: 64}
software: {preset: megatron-lm-2021, attention: flash}
)";

}  // namespace

TEST_CASE("plan: the search finds what simulating the whole space finds, and drops only what cannot be") {
    const Scenario base = scenario(kPlanned);
    PlanOptions all;
    all.headroom = 0;
    all.simulate = 100'000;
    all.workers = 2;
    const PlanSearch whole = search_plans(base, data(), all);
    CHECK(whole.listed == whole.do_not_divide + whole.do_not_fit + whole.ranked.size());
    CHECK(whole.do_not_fit > 0);
    CHECK(whole.ranked.size() > 500);
    for (std::size_t i = 1; i < whole.ranked.size(); ++i) {
        REQUIRE(whole.ranked[i].simulated);
        CHECK(whole.ranked[i - 1].iteration_s <= whole.ranked[i].iteration_s);
        CHECK(whole.ranked[i].memory_gib <= 80);
    }
    PlanOptions few = all;
    few.simulate = 50;
    const PlanSearch search = search_plans(base, data(), few);
    CHECK(search.ranked.size() == whole.ranked.size());
    CHECK(search.ranked[0].iteration_s == whole.ranked[0].iteration_s);
    CHECK(search.worst_error < 0.2);
    // The estimate ranks: over the whole space it is seldom far off.
    std::vector<double> errors;
    for (const RankedPlan& plan : whole.ranked) {
        errors.push_back(std::abs(plan.estimate_s / plan.iteration_s - 1));
    }
    std::sort(errors.begin(), errors.end());
    MESSAGE("estimate against simulation: median ", errors[errors.size() / 2], ", 95 % ",
            errors[errors.size() * 95 / 100], ", worst ", errors.back());
    CHECK(errors[errors.size() * 95 / 100] < 0.1);
    // What the search calls a plan is what the scenario runs with its assignments.
    for (const std::size_t i : {std::size_t{0}, std::size_t{20}}) {
        YamlNode tree = parse_yaml(kPlanned, "test.yaml");
        for (const std::string& assignment : assignments_of(search.ranked[i])) {
            apply_override(tree, assignment);
        }
        const Scenario again = read_scenario(tree, "test", data());
        CHECK(run_scenario(again, model_cache(), {}).summary.find("iteration_time_s")->value ==
              search.ranked[i].iteration_s);
    }
    // On the front nothing is better in both, off the front something is.
    for (const RankedPlan& plan : whole.ranked) {
        const bool beaten = std::any_of(whole.ranked.begin(), whole.ranked.end(), [&](const RankedPlan& other) {
            return other.iteration_s <= plan.iteration_s && other.memory_gib <= plan.memory_gib &&
                   (other.iteration_s < plan.iteration_s || other.memory_gib < plan.memory_gib);
        });
        CHECK(plan.pareto != beaten);
    }
}

TEST_CASE("plan: schedules come from their table: those marked for it, and the scenario's own") {
    YamlNode tree = parse_yaml(kPlanned, "test.yaml");
    const auto schedules = [&] {
        PlanOptions options;
        options.simulate = 4;
        std::set<std::pair<std::string, bool>> found;  // with several chunks, or one
        for (const RankedPlan& plan : search_plans(read_scenario(tree, "test", data()), data(), options).ranked) {
            found.insert({plan.plan.schedule->name, plan.plan.chunks > 1});
            CHECK(plan.plan.schedule->problem(plan.plan.shape()).empty());
        }
        return found;
    };
    std::set<std::pair<std::string, bool>> expected;
    for (const PipelineSchedule* row : schedule_table()) {
        if (row->searched) {
            expected.insert({row->name, row->chunked});
        }
    }
    CHECK(schedules() == expected);
    apply_override(tree, "plan.schedule=breadth-first");
    expected.insert({"breadth-first", true});
    CHECK(schedules() == expected);
    RankedPlan ranked;
    ranked.plan.schedule = &schedule_named("breadth-first");
    ranked.plan.chunks = 3;
    CHECK(describe_plan(ranked.plan).find("breadth-first, 3 chunks") != std::string::npos);
    RankedPlan waves = ranked;
    waves.plan.schedule = &schedule_named("hanayo");
    waves.plan.chunks = 2;
    CHECK(describe_plan(waves.plan).find("hanayo, 2 chunks") != std::string::npos);
    const std::vector<std::string> assignments = assignments_of(ranked);
    CHECK(std::find(assignments.begin(), assignments.end(), "plan.schedule=breadth-first") != assignments.end());
}

TEST_CASE("plan: every plan is another one, and leaves the headroom that was asked for") {
    const Scenario base = scenario(kPlanned);
    PlanOptions options;
    options.simulate = 1;
    options.workers = 2;
    const PlanSearch usual = search_plans(base, data(), options);
    std::set<std::string> seen;
    for (const RankedPlan& plan : usual.ranked) {
        // Under fused attention selective recomputation recomputes nothing.
        CHECK(plan.plan.recompute != Recompute::selective);
        CHECK(seen.insert(fmt::format("{}", fmt::join(assignments_of(plan), " "))).second);
        CHECK(plan.memory_gib <= 0.95 * 80);
    }
    options.headroom = 0.5;
    const PlanSearch half = search_plans(base, data(), options);
    CHECK(half.do_not_fit > usual.do_not_fit);
    CHECK(std::all_of(half.ranked.begin(), half.ranked.end(), [](const auto& plan) { return plan.memory_gib <= 40; }));
    CHECK(half.do_not_divide == usual.do_not_divide);
    Scenario unfused = base;
    unfused.as<TrainingKind>().plan.attention = AttentionKernel::unfused;
    options.headroom = 0;
    const PlanSearch more = search_plans(unfused, data(), options);
    CHECK(std::any_of(more.ranked.begin(), more.ranked.end(),
                      [](const auto& plan) { return plan.plan.recompute == Recompute::selective; }));
    const Folder folder;
    const std::string file = folder.file("scenario.yaml", kPlanned);
    CHECK(orrery_command("plan " + file + " --headroom 2").text.find("--headroom is the share") != std::string::npos);
    CHECK(orrery_command("plan " + file + " --headroom '99.9 %'").text.find("0.1 % of the memory") !=
          std::string::npos);
}

TEST_CASE("plan: its tables fit the width that COLUMNS gives, and --all or a pipe shows every column in full") {
    const Folder folder;
    const std::string command = orrery_program() + " plan " + folder.file("scenario.yaml", kPlanned) + " --simulate 5";
    // Characters of the longest line between two that say where the tables are.
    const auto widest = [](const std::string& text) {
        std::size_t most = 0;
        std::istringstream lines(text.substr(text.find("best plans, simulated")));
        for (std::string line; std::getline(lines, line) &&
                               line.find("best plan that was not simulated") > line.size() &&
                               line.find("To run the best") > line.size();) {
            if (line.find("no plan is better in time") > line.size()) {
                most = std::max(most, line.size());
            }
        }
        return most;
    };
    const std::string whole = shell_command(command).text;
    CHECK(widest(whole) > 100);
    for (const std::size_t width : {72, 80, 100}) {
        const std::string text = shell_command(fmt::format("COLUMNS={} {}", width, command)).text;
        CHECK_MESSAGE(widest(text) <= width, text);
        CHECK(text.find("micro-batch") != std::string::npos);
    }
    const std::string narrow = shell_command("COLUMNS=72 " + command).text;
    CHECK_MESSAGE(narrow.find("not shown: MFU, tokens/s, USD / 10^9 tokens, where its time goes") != std::string::npos,
                  narrow);
    CHECK(narrow.find("--all") != std::string::npos);
    CHECK(shell_command("COLUMNS=72 " + command + " --all").text == whole);
}

TEST_CASE("plan: the program prints best, reasons and front, the same on one or two processes") {
    const Folder folder;
    const std::string file = folder.file("scenario.yaml", kPlanned);
    const Outcome one = orrery_command(fmt::format("plan {} -j 1 --json {}", file, folder.file("one.json")));
    REQUIRE(one.code == 0);
    REQUIRE(orrery_command(fmt::format("plan {} -j 2 --quiet --json {}", file, folder.file("two.json"))).code == 0);
    CHECK(read(folder.file("one.json")) == read(folder.file("two.json")));
    for (const char* expected : {"best plans, simulated", "Pareto front", "To run the best: orrery run", "backward"}) {
        CHECK_MESSAGE(one.text.find(expected) != std::string::npos, one.text);
    }
    const auto json = nlohmann::json::parse(read(folder.file("one.json")));
    CHECK(json["plans"].size() == json["feasible"].get<std::size_t>());
    const Outcome sizes = orrery_command(fmt::format("plan {} --nodes 1,2 --price 2 --json - --simulate 5", file));
    CHECK(sizes.text.find("cost_per_billion_tokens") != std::string::npos);
    CHECK(orrery_command(fmt::format("plan {} --set model.layers=2000", file)).code == 3);
    CHECK(orrery_command(fmt::format("plan {} --nodes x", file)).text.find("--nodes is a list") != std::string::npos);
    const std::string network = folder.file("network.yaml",
                                            "orrery: 1\nkind: network\ncluster: {hosts: 16, fabric: {link: 1 "
                                            "Gbps}}\ntraffic: {pattern: ring, size: 1 MB}\n");
    CHECK(orrery_command("plan " + network).text.find("for training and serving scenarios") != std::string::npos);
}

TEST_CASE(
    "plan: --output writes the scenario with the best plan and the user's own values, and the last line keeps those") {
    const Folder folder;
    const std::string file = folder.file("scenario.yaml", kPlanned);
    const std::string best = folder.file("best.yaml");
    const std::string search = fmt::format("plan {} --simulate 3 --set model.layers=12 --set plan.tensor=4", file);
    const Outcome written = orrery_command(fmt::format("{} -o {} --json {}", search, best, folder.file("plans.json")));
    REQUIRE_MESSAGE(written.code == 0, written.text);
    CHECK(written.text.find("To run the best: orrery run " + best) != std::string::npos);
    const auto plan = nlohmann::json::parse(read(folder.file("plans.json")))["plans"][0];
    const auto run = nlohmann::json::parse(orrery_command("run " + best + " --quiet --json -").text)["metrics"];
    for (const char* metric : {"iteration_time_s", "mfu", "tokens_per_s"}) {
        CHECK(run[metric]["value"].get<double>() == doctest::Approx(plan[metric].get<double>()).epsilon(1e-9));
    }
    CHECK(read(best).find("layers: 12") != std::string::npos);
    // What the search chose goes before the user's value of it.
    const std::string words = orrery_command(search).text;
    CHECK_MESSAGE((words.find(" --set model.layers=12 ") != std::string::npos &&
                   words.find(" --set plan.tensor=4 --set plan.tensor") == std::string::npos),
                  words);
    CHECK(orrery_command(search + " -o - --quiet").text.find("layers: 12") != std::string::npos);
    const Outcome piped = shell_command(orrery_program() + " plan - -o " + folder.file("piped.yaml") + " < " + file);
    CHECK_MESSAGE((piped.code == 2 && piped.text.find("must be a file") != std::string::npos), piped.text);
    CHECK(orrery_command(search + " -o " + file).code == 2);  // the input stays
}

TEST_CASE("plan: of a serving scenario with split phases --output takes them out where one pool is best") {
    const Folder folder;
    const std::string file =
        folder.file("scenario.yaml",
                    "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-3-8b\n"
                    "engine: {prefill: {tensor: 4}, decode: {tensor: 4}}\n"
                    "requests: {rate: 20, count: 200, prompt: 500, output: 100}\nslo: {ttft: 1 s, tbt: 50 ms}\n");
    const std::string best = folder.file("best.yaml");
    const Outcome written = orrery_command(fmt::format("plan {} --simulate 2 -o {}", file, best));
    REQUIRE_MESSAGE(written.code == 0, written.text);
    CHECK_MESSAGE(orrery_command("run " + best + " --dry-run").code == 0, read(best));
}

TEST_CASE("plan: states go to the fastest memory of the node that has room for them") {
    const auto best = [](const char* dram) {
        const Scenario base = scenario(fmt::format(R"(orrery: 1
kind: training
cluster:
  nodes: 1
  node:
    preset: rtx-4090
    pcie_bandwidth: 25 GB/s
    host:
      tiers:
        - {{name: dram, medium: dram, capacity: {}, read: 80 GB/s}}
        - {{name: nvme, medium: nvme, capacity: 4 TB, read: 5 GB/s, write: 3 GB/s}}
model: {{layers: 24, hidden: 4096, heads: 32, vocabulary: 50257, sequence: 1024}}
plan: {{global_batch: 8, overlap: {{data: true}}, offload: {{optimizer: {{tier: dram}}, parameters: {{tier: dram}}, prefetch: 1}}}}
software: pytorch-fsdp
)",
                                                   dram));
        PlanOptions options;
        options.simulate = 40;
        return search_plans(base, data(), options);
    };
    // 12 B of states a weight: 58 GB, and 10 GB of weights, of which the device has room for the weights alone.
    const PlanSearch roomy = best("256 GB");
    CHECK(roomy.ranked[0].plan.feature<OffloadPlan>().optimizer.tier == "dram");
    CHECK(roomy.ranked[0].plan.feature<OffloadPlan>().optimizer.away() > 0);
    const PlanSearch tight = best("20 GB");
    CHECK(tight.ranked[0].plan.feature<OffloadPlan>().optimizer.tier == "nvme");
    CHECK(tight.ranked[0].iteration_s > roomy.ranked[0].iteration_s);
    CHECK(tight.do_not_fit > roomy.do_not_fit);
    CHECK(describe_plan(roomy.ranked[0].plan).find("optimizer in dram") != std::string::npos);
    const std::vector<std::string> changes = assignments_of(tight.ranked[0]);
    CHECK(std::find(changes.begin(), changes.end(), "plan.offload.optimizer.tier=nvme") != changes.end());
}

TEST_CASE("plan: on groups of unlike nodes the search says which of them hold which stages") {
    const std::string kMixed = R"(orrery: 1
kind: training
cluster: {groups: [{name: old, nodes: 1, node: dgx-a100-80g}, {name: new, nodes: 1, node: dgx-h100}], fabric: {rails: 8}}
model: {layers: 8, hidden: 4096, heads: 32, vocabulary: 51200, sequence: 2048}
plan: {tensor: 8, pipeline: 2, global_batch: 16}
)";
    PlanOptions options;
    options.simulate = 20;
    options.workers = 2;
    const PlanSearch search = search_plans(scenario(kMixed), data(), options);
    std::set<std::pair<std::string, Spread>> placements;
    for (const RankedPlan& plan : search.ranked) {
        if (plan.plan.pipeline > 1) {
            placements.insert({plan.plan.groups, plan.plan.spread});
        }
    }
    CHECK(placements.size() == 4);
    // Layers have moved to the faster nodes, which no even split does as well.
    const PlanSpec& best = search.ranked[0].plan;
    REQUIRE(best.stages.size() == best.parts());
    CHECK(std::accumulate(best.stages.begin(), best.stages.end(), std::int64_t{0}) == 8);
    CHECK(search.moved > 0);
    CHECK(std::count_if(search.ranked.begin(), search.ranked.end(), [](const RankedPlan& plan) {
              return !plan.plan.stages.empty();
          }) == static_cast<std::ptrdiff_t>(search.moved));
    const auto even = std::find_if(search.ranked.begin(), search.ranked.end(),
                                   [](const RankedPlan& plan) { return plan.plan.stages.empty(); });
    CHECK(even->iteration_s > 1.05 * search.ranked[0].iteration_s);
    // Its assignments make the scenario that it is.
    YamlNode tree = parse_yaml(kMixed, "test.yaml");
    for (const std::string& assignment : assignments_of(search.ranked[0])) {
        apply_override(tree, assignment);
    }
    CHECK(
        run_scenario(read_scenario(tree, "test", data()), model_cache(), {}).summary.find("iteration_time_s")->value ==
        search.ranked[0].iteration_s);
    // What a scenario says stays, and sizes are those of the groups.
    tree = parse_yaml(kMixed, "test.yaml");
    apply_override(tree, "plan.groups=new");
    for (const RankedPlan& plan : search_plans(read_scenario(tree, "test", data()), data(), options).ranked) {
        CHECK(plan.plan.groups == "new");
    }
    options.nodes = {2};
    CHECK_THROWS_AS((void)search_plans(scenario(kMixed), data(), options), ConfigError);
}

TEST_CASE("plan: where NVLink joins several nodes, what lies inside it is chosen as well") {
    const char* const kTrays = R"(orrery: 1
kind: training
cluster: {nodes: 36, node: gb200-tray, fabric: {kind: rail-only}}
model: {layers: 8, hidden: 4096, heads: 32, vocabulary: 51200, sequence: 2048}
plan: {tensor: 4, pipeline: 2, data: 18, global_batch: 144}
)";
    PlanOptions options;
    options.simulate = 1;
    options.workers = 2;
    std::set<Spread> spreads;
    for (const RankedPlan& plan : search_plans(scenario(kTrays), data(), options).ranked) {
        if (plan.plan.pipeline > 1 && plan.plan.data > 1) {
            spreads.insert(plan.plan.spread);
        }
    }
    CHECK(spreads.size() == 2);
}

TEST_CASE("plan: experts are spread in every way that divides them, each plan once, and the best is what it says") {
    const char* const kExperts = R"(orrery: 1
kind: training
cluster: {nodes: 2, node: dgx-h100, fabric: {nodes_per_leaf: 2, rails: 8}}
model: {layers: 8, hidden: 2048, heads: 16, ffn: 4096, gated: true, vocabulary: 32000, sequence: 2048, experts: {count: 16, topk: 2, ffn: 2048, shared: 2048}}
plan: {tensor: 1, data: 16, expert: 8, global_batch: 64}
software: megatron-core-2024
)";
    const Scenario base = scenario(kExperts);
    PlanOptions options;
    options.simulate = 10;
    options.workers = 2;
    const PlanSearch search = search_plans(base, data(), options);
    std::set<std::int64_t> degrees;
    std::set<std::int64_t> cuts;
    std::set<TokenDispatch> dispatches;
    std::set<ExpertOverlap> overlaps;
    std::set<std::string> seen;
    for (const RankedPlan& ranked : search.ranked) {
        const PlanSpec& plan = ranked.plan;
        CHECK(plan.stage_ranks() % (plan.experts.expert * plan.expert_tensor()) == 0);
        degrees.insert(plan.experts.expert);
        cuts.insert(plan.expert_tensor());
        dispatches.insert(plan.experts.dispatch);
        overlaps.insert(plan.experts.overlap);
        CHECK(seen.insert(fmt::format("{}", fmt::join(assignments_of(ranked), " "))).second);
    }
    CHECK(degrees == std::set<std::int64_t>{1, 2, 4, 8, 16});
    CHECK(cuts.size() > 1);
    CHECK(dispatches.size() == 3);
    CHECK(overlaps.size() == 2);
    YamlNode tree = parse_yaml(kExperts, "test.yaml");
    for (const std::string& assignment : assignments_of(search.ranked[0])) {
        apply_override(tree, assignment);
    }
    CHECK(
        run_scenario(read_scenario(tree, "test", data()), model_cache(), {}).summary.find("iteration_time_s")->value ==
        search.ranked[0].iteration_s);
    CHECK(describe_plan(search.ranked[0].plan).find("expert ") != std::string::npos);
}

TEST_CASE("plan: sharded experts are gathered among the ranks that hold the same ones, in estimates too") {
    const Scenario base = scenario(R"(orrery: 1
kind: training
cluster: {nodes: 4, node: dgx-h100, fabric: {nodes_per_leaf: 4, rails: 8}}
model: {layers: 8, hidden: 2048, heads: 16, ffn: 4096, gated: true, vocabulary: 32000, sequence: 2048, experts: {count: 16, topk: 2, ffn: 4096}}
plan: {tensor: 1, data: 32, expert: 8, global_batch: 128}
software: megatron-core-2024
)");
    PlanOptions options;
    options.simulate = 100;
    options.workers = 2;
    int sharded = 0;
    for (const RankedPlan& ranked : search_plans(base, data(), options).ranked) {
        if (ranked.simulated && ranked.plan.zero >= 2 && ranked.plan.expert_data() > 1) {
            CHECK(ranked.estimate_s == doctest::Approx(ranked.iteration_s).epsilon(0.08));  // as dense ones: up to 27 %
            ++sharded;
        }
    }
    CHECK(sharded > 5);
}

TEST_CASE("plan: the passes of a family of plans are priced once, and each estimate is what it is alone") {
    const std::string experts = R"(orrery: 1
kind: training
cluster: {nodes: 2, node: dgx-h100, fabric: {nodes_per_leaf: 2, rails: 8}}
model: {layers: 8, hidden: 2048, heads: 16, ffn: 4096, gated: true, vocabulary: 32000, sequence: 2048, experts: {count: 8, topk: 2, ffn: 2048}}
plan: {tensor: 1, data: 16, expert: 8, global_batch: 32, gradient_precision: fp32}
software: megatron-core-2024
)";
    const std::string vocabulary = std::string(kPlanned).replace(std::string(kPlanned).find("global_batch"), 12,
                                                                 "vocabulary_parallel: two-barriers, global_batch");
    for (const std::string& text : {experts, vocabulary}) {
        Scenario base = scenario(text);
        auto& training = base.as<TrainingKind>();
        PlanSpace space(base);
        space.list(2);
        const Fabric fabric(shape_of(base.cluster, base.cluster_mark));
        Estimator together;
        std::set<std::size_t> families;
        for (std::size_t i = 0; i < space.size(); i += 7) {
            training.plan = space.plan(i);
            if (training.plan.vocabulary != VocabularyParallel::none && training.plan.sequence_parallel) {
                continue;  // is refused
            }
            const TrainingInput input = training_input(base, model_cache(), fabric, Placement(fabric));
            const PlanSpec& plan = training.plan;
            const double bubble = plan.pipeline > 1 ? plan.schedule->bubble(plan.shape()) : 0;
            REQUIRE(together.iteration(input, bubble, space.family(i)) == Estimator().iteration(input, bubble));
            families.insert(space.family(i));
        }
        CHECK(families.size() < space.size() / 10);
    }
}

TEST_CASE("plan: who computes which documents is searched, and signatures are another notation") {
    const std::string documents = std::string(kPlanned).replace(
        std::string(kPlanned).find("global_batch: 64"), 16,
        "global_batch: 64, documents: {lengths: [{tokens: 256, share: 20}, {tokens: 2048, share: 1}], fill: packed}");
    PlanOptions options;
    options.simulate = 20;
    options.workers = 2;
    const PlanSearch search = search_plans(scenario(documents), data(), options);
    std::set<std::pair<bool, bool>> ways;
    for (const RankedPlan& ranked : search.ranked) {
        ways.insert({ranked.plan.feature<DocumentsPlan>().balanced, ranked.plan.feature<DocumentsPlan>().dynamic});
    }
    CHECK(ways == std::set<std::pair<bool, bool>>{{false, false}, {true, false}, {false, true}});
    YamlNode tree = parse_yaml(documents, "test.yaml");
    for (const std::string& assignment : assignments_of(search.ranked[0])) {
        apply_override(tree, assignment);
    }
    CHECK(
        run_scenario(read_scenario(tree, "test", data()), model_cache(), {}).summary.find("iteration_time_s")->value ==
        search.ranked[0].iteration_s);
    Scenario signatures = scenario(kPlanned);
    signatures.as<TrainingKind>().plan.feature<SignaturePlan>().given = true;
    CHECK_THROWS_WITH_AS((void)search_plans(signatures, data(), options), doctest::Contains("leave 'signatures' out"),
                         ConfigError);
}

TEST_CASE("plan: ranks of a sequence exchange keys, or heads where these divide") {
    const std::string kLong = R"(orrery: 1
kind: training
cluster: {nodes: 1, node: dgx-h100}
model: {layers: 8, hidden: 4096, heads: 32, kv_heads: 4, vocabulary: 32000, sequence: 65536}
plan: {context: 4, context_exchange: hierarchical, context_inner: 2, data: 2, global_batch: 8, recompute: full, overlap: {context: false}}
software: megatron-core-2024
)";
    PlanOptions options;
    options.simulate = 1000;
    const PlanSearch search = search_plans(scenario(kLong), data(), options);
    std::set<ContextExchange> seen;
    for (const RankedPlan& ranked : search.ranked) {
        const PlanSpec& plan = ranked.plan;
        seen.insert(plan.context_exchange);
        CHECK((plan.context > 1 || plan.context_exchange == ContextExchange::ring));
        if (plan.context_exchange == ContextExchange::all_to_all) {
            CHECK(4 % (plan.tensor * plan.context) == 0);
        }
    }
    CHECK(seen == std::set{ContextExchange::ring, ContextExchange::all_gather, ContextExchange::all_to_all,
                           ContextExchange::hierarchical});
    // What is printed sets it, whatever the scenario says.
    YamlNode tree = parse_yaml(kLong, "test.yaml");
    for (const std::string& assignment : assignments_of(search.ranked[0])) {
        apply_override(tree, assignment);
    }
    CHECK(
        run_scenario(read_scenario(tree, "test", data()), model_cache(), {}).summary.find("iteration_time_s")->value ==
        search.ranked[0].iteration_s);
}

TEST_CASE("plan: the limits of a searched order go with it") {
    YamlNode tree = parse_yaml(kPlanned, "test.yaml");
    apply_override(tree, "plan.schedule={kind: search, held: 6, activations: 30 GiB}");
    const Scenario base = read_scenario(tree, "test", data());
    RankedPlan ranked;
    ranked.plan = base.as<TrainingKind>().plan;
    ranked.plan.pipeline = 2;
    ranked.plan.data = 1;
    YamlNode again = parse_yaml(kPlanned, "test.yaml");
    for (const std::string& assignment : assignments_of(ranked)) {
        if (assignment.find("cluster.nodes") == std::string::npos) {
            apply_override(again, assignment);
        }
    }
    const PlanSpec read_back = read_scenario(again, "test", data()).as<TrainingKind>().plan;
    CHECK(read_back.search.held == 6);
    CHECK(read_back.search.activations == base.as<TrainingKind>().plan.search.activations);
    CHECK(describe_plan(ranked.plan).find("search of 6 micro-batches") != std::string::npos);
}

TEST_CASE("plan: --engine lists the plans of the whole space that the software runs, and no other") {
    const Scenario base = scenario(kPlanned);
    plan::PlanSpace whole(base);
    whole.list(2);
    for (const plan::PlanSoftware& software : plan::plan_software_table()) {
        CAPTURE(software.name);
        plan::PlanSpace space(base, &software);
        space.list(2);
        std::size_t expected = 0;
        for (std::size_t i = 0; i < whole.size(); ++i) {
            const PlanSpec one = whole.plan(i);
            expected += software.divides(one) && software.orders(one) ? 1 : 0;
        }
        std::size_t beyond = 0;  // weights and gradients cut in a pipeline, which the whole space leaves out
        for (std::size_t i = 0; i < space.size(); ++i) {
            const PlanSpec one = space.plan(i);
            REQUIRE(software.divides(one));
            REQUIRE(software.orders(one));
            beyond += one.pipeline > 1 && one.zero > 1 ? 1 : 0;
        }
        CHECK(space.size() - beyond == expected);
        CHECK(expected > 0);
        CHECK(expected < whole.size());
        CHECK((beyond > 0) == (std::string(software.name) == "torchtitan"));
    }
    // By hand: FSDP alone has 16 ranks of data, one degree each, stages 0, 2 and 3, with and without recomputation, for micro-batches
    // of 1, 2 and 4 of the four sequences a rank.
    plan::PlanSpace alone(base, &plan::plan_software("fsdp"));
    alone.list(2);
    CHECK(alone.size() == 3 * 2 * 3);
    const Folder folder;
    const std::string file = folder.file("plan.yaml", kPlanned);
    const Outcome shown = orrery_command("plan " + file + " --engine deepspeed --simulate 3");
    CHECK(shown.code == 0);
    CHECK(shown.text.find("Listed are the plans of Megatron-DeepSpeed") != std::string::npos);
    CHECK(shown.text.find("interleaved") == std::string::npos);
    const Outcome unknown = orrery_command("plan " + file + " --engine torchtitn");
    CHECK(unknown.code == 2);
    CHECK(unknown.text.find("did you mean 'torchtitan'") != std::string::npos);
}
