// The standard scenarios of scenarios/faults, against what their comments derive by hand.

#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/kinds/training.hpp"
#include "tools/driver/kinds/training_faults.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

namespace orrery {

namespace {

RunOutput run_file(const std::string& name, const std::vector<std::string>& overrides = {}) {
    const Scenario scenario =
        load_scenario(std::string(ORRERY_SOURCE_DIR "/scenarios/faults/") + name + ".yaml", overrides, test::data());
    return run_scenario(scenario, test::model_cache(), {});
}

double value(const RunOutput& out, const std::string& name) {
    const Metric* metric = out.summary.find(name);
    return metric != nullptr ? metric->value : 0;
}

double part(const RunOutput& out, std::initializer_list<Category> categories) {
    double sum = 0;
    for (const Category category : categories) {
        sum += out.training->booked[static_cast<std::size_t>(category)];
    }
    return sum;
}

// Every second of the campaign has one cause.
void check_sum(const RunOutput& out) {
    double sum = value(out, "goodput_fraction") * value(out, "campaign_s");
    for (const Metric& metric : out.summary.metrics) {
        sum += metric.name.rfind("lost_s.", 0) == 0 ? metric.value : 0;
    }
    CHECK(sum == doctest::Approx(value(out, "campaign_s")).epsilon(1e-12));
}

}  // namespace

TEST_CASE("scenarios/faults/gpu-fail-stop: work since the checkpoint, detection, diagnosis, restart, load") {
    const RunOutput out = run_file("gpu-fail-stop");
    const double cycle = value(out, "checkpoint_interval_s") + value(out, "checkpoint_stall_s");
    CHECK(value(out, "checkpoint_interval_s") == doctest::Approx(1000).epsilon(1e-3));
    CHECK(value(out, "lost_s.lost_work") == doctest::Approx(5000 - 4 * cycle).epsilon(1e-6));
    CHECK(value(out, "lost_s.detection") == doctest::Approx(30));
    CHECK(value(out, "lost_s.diagnosis") == doctest::Approx(300));
    CHECK(value(out, "lost_s.restart") == doctest::Approx(120));
    CHECK(value(out, "lost_s.load") == doctest::Approx(60).epsilon(1e-3));
    CHECK(value(out, "lost_s.hardware") == 0);
    CHECK(value(out, "interruptions") == 1);
    CHECK(value(out, "mean_time_to_recover_s") == doctest::Approx(510).epsilon(1e-3));
    check_sum(out);
}

TEST_CASE("scenarios/faults/link-flap: a short one stalls, a long one fails the job") {
    const RunOutput out = run_file("link-flap");
    CHECK(value(out, "lost_s.network") == doctest::Approx(2));
    CHECK(value(out, "interruptions") == 1);
    CHECK(value(out, "lost_s.detection") == doctest::Approx(30));
    const double interval = value(out, "checkpoint_interval_s");
    const double stall = value(out, "checkpoint_stall_s");
    const double cycles = std::floor(20000 / (interval + stall));
    CHECK(value(out, "lost_s.lost_work") == doctest::Approx(20000 - cycles * (interval + stall)).epsilon(1e-6));
    check_sum(out);
}

TEST_CASE("scenarios/faults/degraded-nic: the all-reduce between nodes takes twice as long") {
    const RunOutput out = run_file("degraded-nic");
    const double t = value(out, "iteration_time_s");
    const double d = part(out, {Category::data_communication});
    CHECK(d > 0.04 * t);
    CHECK(value(out, "lost_s.network") == doctest::Approx(3600 * d / (t + d)).epsilon(0.01));
    check_sum(out);
}

TEST_CASE("a degraded NIC in a job of 128 GPUs costs as much packet by packet as fluid, within 5 %") {
    const RunOutput fluid = run_file("degraded-nic", {"model.layers=2", "model.vocabulary=2048"});
    const RunOutput packet = run_file(
        "degraded-nic", {"model.layers=2", "model.vocabulary=2048", "network.fidelity=packet", "network.mtu=9000 B"});
    CHECK(value(packet, "lost_s.network") == doctest::Approx(value(fluid, "lost_s.network")).epsilon(0.05));
}

TEST_CASE("scenarios/faults/straggler: kernels of one GPU pace the job") {
    const RunOutput out = run_file("straggler");
    const double t = value(out, "iteration_time_s");
    const double k = part(out, {Category::forward, Category::backward, Category::recompute, Category::optimizer}) / 9;
    CHECK(value(out, "lost_s.stragglers") == doctest::Approx(3600 * k / (t + k)).epsilon(0.01));
    check_sum(out);
}

TEST_CASE("scenarios/faults/switch-loss: a spine slows the rings between leaves, a leaf stops the job") {
    const RunOutput out = run_file("switch-loss");
    const double t = value(out, "iteration_time_s");
    const double d = part(out, {Category::data_communication}) / 3;
    CHECK(value(out, "lost_s.network") == doctest::Approx(3600 * d / (t + d)).epsilon(0.02));
    CHECK(value(out, "interruptions") == 1);
    CHECK(value(out, "lost_s.hardware") == doctest::Approx(1800 - 30 - 300 + 180));
    check_sum(out);
}

TEST_CASE("scenarios/faults/silent-hang: the time-out of a collective finds it") {
    const RunOutput out = run_file("silent-hang");
    CHECK(value(out, "lost_s.detection") == doctest::Approx(600));
    const double cycle = value(out, "checkpoint_interval_s") + value(out, "checkpoint_stall_s");
    CHECK(value(out, "lost_s.lost_work") == doctest::Approx(5000 - 5 * cycle).epsilon(1e-6));
    CHECK(value(out, "lost_s.hardware") == 0);
    const RunOutput watched = run_file("silent-hang", {"faults.recovery.anomaly.delay=15 s"});
    CHECK(value(watched, "lost_s.detection") == doctest::Approx(15));
}

TEST_CASE("scenarios/faults/storage-outage: the checkpoint that falls into it waits for its end") {
    const RunOutput out = run_file("storage-outage");
    const double cycle = value(out, "checkpoint_interval_s") + value(out, "checkpoint_stall_s");
    CHECK(value(out, "lost_s.storage") ==
          doctest::Approx(13600 - 8 * cycle - value(out, "checkpoint_interval_s")).epsilon(1e-6));
    CHECK(value(out, "lost_s.storage") == doctest::Approx(2716).epsilon(0.001));
    check_sum(out);
}

TEST_CASE("scenarios/faults/power-cap: one capped node costs as much as all") {
    const RunOutput out = run_file("power-cap");
    const RunOutput one = run_file("power-cap", {"faults.events.1.factor=0.999999"});
    CHECK(value(one, "lost_s.power") > 0);
    CHECK(value(one, "lost_s.power") <= 720);
    CHECK(value(out, "lost_s.power") == doctest::Approx(2 * value(one, "lost_s.power")).epsilon(0.001));
    check_sum(out);
}

TEST_CASE("a campaign without faults is plain training, and all of it is useful") {
    const std::string plain = test::kSmallTraining;
    const RunOutput without = run_scenario(test::scenario(plain), test::model_cache(), {});
    const RunOutput with = run_scenario(test::scenario(plain + "faults: {duration: 30 d}\n"), test::model_cache(), {});
    for (const Metric& metric : without.summary.metrics) {
        REQUIRE(with.summary.find(metric.name) != nullptr);
        CHECK(with.summary.find(metric.name)->value == metric.value);
    }
    CHECK(value(with, "goodput_fraction") == 1);
    CHECK(run_scenario(test::scenario(plain + "faults: none\n"), test::model_cache(), {}).summary.metrics ==
          without.summary.metrics);
    CHECK(resolved_json(test::scenario(plain + "faults: none\n")) == resolved_json(test::scenario(plain)));
}

TEST_CASE("a job with experts shrinks to replicas that hold them all, or waits for machines") {
    const auto lost_to = [](int expert, const char* cause) {
        const Scenario s = test::scenario(fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 3, node: dgx-h100}}
model: {{layers: 4, hidden: 256, heads: 4, vocabulary: 1024, sequence: 512, experts: {{count: 24, topk: 2, ffn: 256}}}}
plan: {{data: 24, global_batch: 48, micro_batch: 1, expert: {}, dispatch: all-to-all}}
faults:
  duration: 10 h
  events: [{{at: 1 h, kind: fail-stop, where: gpu3}}]
  recovery: {{shrinks: true, repair: {{automatic: {{mean: 2 h}}}}}}
  checkpoint: {{interval: {{kind: fixed, every: 10 min}}}}
)",
                                                      expert));
        return value(run_scenario(s, test::model_cache(), {}), std::string("lost_s.") + cause);
    };
    CHECK(lost_to(8, "fewer_nodes") > 0);
    CHECK(lost_to(24, "fewer_nodes") == 0);
    CHECK(lost_to(24, "hardware") > lost_to(8, "hardware") + 3600);
}

TEST_CASE("a folded state of the cluster takes as long as the unfolded one") {
    for (const char* file : {"degraded-nic", "straggler"}) {
        const RunOutput folded = run_file(file);
        const RunOutput all = run_file(file, {"network.fold=false"});
        CHECK(value(folded, "goodput_fraction") == doctest::Approx(value(all, "goodput_fraction")).epsilon(1e-9));
    }
}

TEST_CASE("what a campaign cannot be is refused with its line") {
    const auto refused = [](const std::string& faults, const std::string& why) {
        const std::string text = test::refusal(test::kSmallTraining + ("faults: " + faults + "\n"));
        CHECK_MESSAGE(text.find(why) != std::string::npos, faults, ": ", text);
        CHECK(text.find("test.yaml:7:") != std::string::npos);
    };
    refused("{events: [{at: 1 s, kind: fail-stop, where: gpu8}]}", "'gpu8' does not exist: the job has gpu0 to gpu7");
    refused("{events: [{at: 1 s, kind: fail-stop, where: leaf0}]}", "the fabric is no tree");
    refused("{events: [{at: 1 s, kind: hang, where: storage}]}", "'hang' cannot happen to 'storage'");
    refused("{events: [{at: 1 s, kind: melt, where: gpu0}]}", "'melt'");
    refused("{events: [{at: 1 s, kind: slow, where: gpu0}]}", "needs a 'factor'");
    refused("{events: [{at: 1 s, kind: hang, where: gpu0, factor: 0.5}]}", "'factor' means nothing for 'hang'");
    refused("{events: [{at: 1 s, kind: fail-stop, where: gpu0, lasts: 3 s}]}", "'lasts' means nothing");
    refused("{events: [{at: 1 s, kind: outage, where: storage}]}", "needs 'lasts'");
    refused("{processes: [{component: storage, kind: hang, mtbf: 1 d}]}", "has the kinds outage, degraded");
    refused("{processes: [{component: software, kind: hang, mtbf: 1 d, bad_share: 5 %, bad_factor: 2}]}",
            "'bad_share'");
    refused("{events: [{at: 1 s, kind: fail-stop, where: gpu0}]}", "no process interrupts the job");
    refused("{checkpoint: {method: {kind: memory, group: 2, parity: 2}}}", "'parity' must be less than 'group'");
    refused("{kind: none, duration: 1 d}", "'none' has no parameters");
    refused("{stragglers: {delay: 1 s}}", "need a 'share'");
    refused("{stragglers: {share: 5 %}}", "are not slow");
    refused("{stragglers: {share: 80 %, delay: 1 s, burst: 2}}", "last at least 1, and with this share 4");
    refused("{coding: {kind: gradient, late: 4}}", "'late' must be less than the 4 workers");
    refused("{coding: {kind: multiplexed, burst: 2, window: 2, models: 9}}", "no shorter than the 'window'");
    refused("{coding: {kind: multiplexed, workers: 5, models: 9}}", "5 workers may be late, of 4");
    refused("{coding: {kind: multiplexed, burst: 1, window: 2}}", "at least 2 'models'");
    refused("{coding: {kind: selective-repeat, burst: 2, window: 4, models: 9}}", "2 does not divide 3");
    refused("{coding: {kind: none, patience: 2}}", "patience");
    refused("{coding: gradient, recovery: {shrinks: true}}", "is not simulated: a code is made for");
    refused("{duration: 30}", "unit");
    CHECK_THROWS_AS(
        (void)run_scenario(test::scenario(std::string(test::kSmallTraining) +
                                          "faults: {checkpoint: {size: 2 TB, storage: {capacity: 3 TB}}}\n"),
                           test::model_cache(), {}),
        InfeasibleError);
}

TEST_CASE(
    "scenarios/faults/spot-preemptions: an elastic job trains through a day on spot machines, one that waits hardly") {
    const RunOutput elastic = run_file("spot-preemptions");
    const RunOutput waits = run_file("spot-preemptions", {"faults.recovery.shrinks=false"});
    check_sum(elastic);
    check_sum(waits);
    CHECK(value(elastic, "goodput_fraction") > 0.6);
    CHECK(value(elastic, "goodput_fraction") < 57.3 / 64);  // the machines that were there
    CHECK(value(waits, "goodput_fraction") < 0.5 * value(elastic, "goodput_fraction"));
    // It waits at least until all 64 are there for the first time.
    CHECK(value(waits, "lost_s.hardware") > 20000);
    CHECK(value(elastic, "lost_s.fewer_nodes") > 0);
    // 154 machines were lost and 163 gained, as the source's statistics have it; 9 of the 64 are away at the start.
    const Scenario scenario =
        load_scenario(ORRERY_SOURCE_DIR "/scenarios/faults/spot-preemptions.yaml", {}, test::data());
    CHECK(read_fault_trace(scenario.file(scenario.as<TrainingKind>().faults.trace), job_shape(scenario)).size() ==
          9 + 154);
}

TEST_CASE("bad places and values of faults come at once, each where it stands and with the nearest name") {
    const std::string text = test::refusal(std::string(test::kSmallTraining) + R"(faults:
  duration: 0 s
  events:
    - {at: -1 s, kind: fail-stop, where: gpuu3}
    - {at: 1 h, kind: slow, where: gpu99}
    - {at: 1 h, kind: slwo, where: storage, factor: 50 %}
    - {at: 1 h, kind: hang, where: storge}
  processes:
    - {component: gpu, kind: outage, mtbf: 1 d}
    - {component: gppu, kind: fail-stop, mtbf: 0 s}
)");
    const auto at = [&](const char* where, const char* what) {
        const std::size_t line = text.find(where);
        REQUIRE_MESSAGE(line != std::string::npos, where << "\n" << text);
        CHECK_MESSAGE(text.substr(line, text.find('\n', line) - line).find(what) != std::string::npos, what << "\n"
                                                                                                            << text);
    };
    at("test.yaml:8:13:", "0 s");
    at("test.yaml:10:12:", "-1 s");
    at("test.yaml:10:42:", "did you mean 'gpu3'");
    at("test.yaml:11:7:", "needs a 'factor'");
    at("test.yaml:11:36:", "the job has gpu0 to gpu7");
    at("test.yaml:12:23:", "did you mean 'slow'");
    at("test.yaml:13:36:", "did you mean 'storage'");
    at("test.yaml:15:7:", "component 'gpu' has the kinds");
    at("test.yaml:16:19:", "did you mean 'gpu'");
    at("test.yaml:16:48:", "0 s");
    // What follows from one of these is not said: a kind that is none suits every place.
    CHECK(text.find("cannot happen") == std::string::npos);
    // Nor is what the job has, where its plan is wrong.
    std::string bad =
        std::string(test::kSmallTraining) + "faults: {events: [{at: 1 s, kind: fail-stop, where: gpu8}]}\n";
    bad.replace(bad.find("tensor: 2"), 9, "tensor: 0");
    CHECK(test::refusal(bad).find("gpu8") == std::string::npos);
    // Kinds that are simulated once say their places beside other errors, too.
    const std::string once = test::refusal(
        "orrery: 1\nkind: collective\ncluster: {nodes: 2, node: dgx-h100}\n"
        "collective: {operation: all-reduce, size: -1 B}\nfaults: {events: [{at: -1 s, kind: degraded, where: "
        "nicc3}]}\n");
    CHECK_MESSAGE(once.find("did you mean 'nic3'") != std::string::npos, once);
}

TEST_CASE("replicas that are slow for single iterations: goodput is what rounds leave, and a code costs its load") {
    // A host that is faster than its device, which alone is what becomes slow.
    std::string small = test::kSmallTraining;
    const std::string software = "software: megatron-lm-2021";
    small.replace(small.find(software), software.size(), "software: {preset: megatron-lm-2021, launch: 10 us}");
    const auto run_with = [&](const std::string& faults) {
        return run_scenario(test::scenario(small + "faults: {" + faults + "}\n"), test::model_cache(), {});
    };
    const RunOutput plain = run_with("duration: 1 d");
    const double iteration = value(plain, "iteration_time_s");
    const RunOutput slow = run_with("duration: 1 d, runs: 4, stragglers: {share: 5 %, delay: 1 s}");
    CHECK(value(slow, "iteration_time_s") == iteration);
    const double nobody = std::pow(0.95, 4);
    CHECK(value(slow, "round_time_s") == doctest::Approx(iteration + (1 - nobody)).epsilon(0.03));
    CHECK(slow.summary.find("round_time_s")->low.has_value());
    CHECK(value(slow, "goodput_fraction") == doctest::Approx(iteration / value(slow, "round_time_s")).epsilon(1e-6));
    check_sum(slow);
    const RunOutput coded = run_with("duration: 1 d, coding: {kind: gradient, late: 1}");
    const double passes = iteration - part(plain, {Category::data_communication, Category::optimizer,
                                                   Category::overhead, Category::other});
    CHECK(value(coded, "round_time_s") == doctest::Approx(iteration + passes));
    CHECK(value(coded, "coding_load") == 0.5);
    CHECK(value(coded, "lost_s.stragglers") > 0);
    // Where a slow GPU paces the job, what rounds add is on top of it.
    const std::string pacing = "duration: 1 h, events: [{at: 0 s, kind: slow, where: gpu0, factor: 0.5}]";
    const double paced = iteration / value(run_with(pacing), "goodput_fraction");
    CHECK(paced > 1.05 * iteration);
    CHECK(value(run_with(pacing + ", stragglers: {share: 5 %, delay: 1 s}"), "goodput_fraction") ==
          doctest::Approx(iteration / (paced + 1 - nobody)).epsilon(0.03));
}

TEST_CASE("months of 16,384 GPUs with failing switches share the prices of their states") {
    Scenario scenario = load_scenario(ORRERY_SOURCE_DIR "/scenarios/faults/llama3-405b-16384xH100-month.yaml",
                                      {"faults.runs=8"}, test::data());
    ProcessSpec process;
    process.component = Component::switches;
    process.kind = FaultKind::switch_loss;
    process.mtbf_s = 100000 * 3600.0;
    process.lasts_s = 4 * 3600.0;
    scenario.as<TrainingKind>().faults.processes.push_back(process);
    RunOptions options;
    options.campaigns = {{"again", scenario.as<TrainingKind>().faults, 1}};
    const RunOutput out = run_scenario(scenario, test::model_cache(), options);
    check_sum(out);
    CHECK(value(out, "goodput_fraction") > 0.85);
    CHECK(value(out, "goodput_fraction") < 0.95);
    double mean = 0;
    for (const double goodput : out.campaigns.at(0).goodput) {
        mean += goodput / 8;
    }
    CHECK(mean == doctest::Approx(value(out, "goodput_fraction")).epsilon(1e-12));
}

TEST_CASE("the timeline of a campaign covers it, and faults have a row of their own") {
    const RunOutput out = run_file("gpu-fail-stop");
    double job = 0;
    std::size_t faults = 0;
    for (const Span& span : out.campaign.spans) {
        job += span.thread == 0 ? span.duration_us : 0;
        faults += span.thread == 1 ? 1 : 0;
    }
    CHECK(job == doctest::Approx(36000e6).epsilon(1e-9));
    CHECK(faults == 1);
    CHECK(to_chrome_trace(with_campaign(out)).find("campaign") != std::string::npos);
}

}  // namespace orrery
