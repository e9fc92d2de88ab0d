// Steps of reinforcement-learning post-training.

#include "tests/support/scenarios.hpp"

#include "workloads/rl/reshard.hpp"
#include "workloads/rl/rows.hpp"
#include "workloads/rl/steps.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <map>

using namespace orrery;

namespace {

struct Times {
    std::vector<double> generation;
    double preparation, training, weights;
};

// Generation on node 0, all else on node 1 (or, sharing, on node 0 too).
StepsResult steps(const Times& times, std::int64_t staleness, bool sharing = false) {
    const std::vector<std::uint32_t> other = {sharing ? 0U : 1U};
    StepsInput input;
    input.staleness = staleness;
    input.draws = static_cast<std::int64_t>(times.generation.size());
    input.parts = {{"generator", StepPhase::generation, times.generation, {0}},
                   {"reference", StepPhase::preparation, {times.preparation}, other},
                   {"actor", StepPhase::training, {times.training}, other},
                   {"weights", StepPhase::synchronisation, {times.weights}, {0}}};
    Simulation simulation;
    const RlSteps steps(input, 2, simulation);
    simulation.run();
    return steps.result();
}

double sum(const std::array<double, kStepPhases>& values) {
    double out = 0;
    for (const double value : values) {
        out += value;
    }
    return out;
}

constexpr const char* kModel = "{layers: 4, hidden: 1024, heads: 16, ffn: 4096, vocabulary: 32000, sequence: 1024}";
constexpr const char* kRequests = "prompt: {mean: 100}, output: {kind: lognormal, mean: 100, spread: 0.7, most: 600}";
constexpr const char* kPlan = "{tensor: 2, data: 4, global_batch: 8, micro_batch: 1}";

// One node that takes turns, or one for generation and one for training.
std::string scenario_text(const std::string& more, const std::string& generator = "0-0",
                          const std::string& trainer = "0-0", const std::string& of_reference = "",
                          const std::string& kv = "60 %") {
    return fmt::format(R"(orrery: 1
kind: rl
cluster: {{nodes: 2, node: dgx-h100}}
algorithm: grpo
batch: {{prompts: 16, samples: 4, draws: 1}}
{}
jobs:
  - {{role: generator, nodes: {}, scenario: {{kind: serving, model: {}, engine: {{replicas: 4, tensor: 2, kv: {{memory: {}}}}},
     requests: {{{}}}}}}}
  - {{role: reference, nodes: {}, {} scenario: {{kind: training, model: {}, plan: {}}}}}
  - {{role: actor, nodes: {}, scenario: {{kind: training, model: {}, plan: {}}}}}
)",
                       more, generator, kModel, kv, kRequests, trainer, of_reference, kModel, kPlan, trainer, kModel,
                       kPlan);
}

double value(const Summary& summary, const std::string& name) {
    const Metric* metric = summary.find(name);
    REQUIRE_MESSAGE(metric != nullptr, name);
    return metric->value;
}

Summary run_text(const std::string& text) {
    return run_scenario(test::scenario(text), test::model_cache(), {}).summary;
}

std::string errors_of(const std::string& text) {
    try {
        (void)test::scenario(text);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("what a reference's plan says of training is a note of the run, as it runs forward alone") {
    std::string text = scenario_text("");
    text.replace(text.find("micro_batch: 1"), 14, "micro_batch: 1, recompute: full, zero: 1, host_checkpoints: {}");
    const Summary noted = run_text(text);
    for (const char* key : {"recompute", "zero", "host_checkpoints"}) {
        const std::string note = fmt::format("reference: 'plan.{}' has no effect: this model is not trained", key);
        CHECK_MESSAGE(std::count_if(noted.notes.begin(), noted.notes.end(),
                                    [&](const std::string& one) { return one.find(note) == 0; }) == 1,
                      note);
    }
    const Summary plain = run_text(scenario_text(""));
    CHECK(value(plain, "iteration_time_s") == value(noted, "iteration_time_s"));
}

TEST_CASE("a synchronous step takes the sum of its phases, on nodes of its own or shared") {
    for (const bool sharing : {false, true}) {
        const StepsResult result = steps({{5}, 2, 7, 1}, 0, sharing);
        CHECK(result.step_s == doctest::Approx(15).epsilon(1e-12));
        CHECK(sum(result.limiting) == doctest::Approx(15).epsilon(1e-12));
        CHECK(result.phase_s[0] == doctest::Approx(5));
        CHECK(result.phase_s[2] == doctest::Approx(7));
        CHECK(result.busy[0] == doctest::Approx(sharing ? 1 : 6.0 / 15));
        CHECK(result.busy[1] == doctest::Approx(sharing ? 0 : 9.0 / 15));
    }
}

TEST_CASE(
    "an asynchronous step takes what the slower side takes: generation and weights, or preparation and training") {
    for (const std::int64_t staleness : {1, 2, 5}) {
        for (const double generation : {1.0, 5.0, 20.0}) {
            const StepsResult result = steps({{generation}, 2, 7, 1}, staleness);
            CHECK(result.step_s == doctest::Approx(std::max(generation + 1, 9.0)).epsilon(1e-12));
            CHECK(sum(result.limiting) == doctest::Approx(result.step_s).epsilon(1e-12));
        }
    }
}

TEST_CASE("more staleness evens out batches that take unlike times, down to their mean") {
    // Two batches in turn, of 2 and 12 s: with ample slack the generator never waits.
    const Times times{{2, 12}, 0, 6, 0};
    const double one = steps(times, 1).step_s;
    CHECK(steps(times, 8).step_s == doctest::Approx(7).epsilon(1e-12));
    CHECK(one >= steps(times, 2).step_s);
    CHECK(steps(times, 0).step_s == doctest::Approx(13).epsilon(1e-12));
    // Training as long as the mean: one step of slack is not enough.
    CHECK(steps({{2, 12}, 0, 7, 0}, 1).step_s > 7.4);
    CHECK(steps({{2, 12}, 0, 7, 0}, 3).step_s == doctest::Approx(7).epsilon(1e-12));
}

TEST_CASE("weights go where they are missing: bytes by bands, nothing to a GPU that has them") {
    const Fabric fabric = fabric_of(test::scenario(scenario_text("")));
    const auto gpus = [](std::uint32_t first, std::uint32_t count) {
        std::vector<GpuId> out;
        for (std::uint32_t i = 0; i < count; ++i) {
            out.emplace_back(first + i);
        }
        return out;
    };
    const auto total = [](const std::vector<WeightMove>& moves) {
        double bytes = 0;
        for (const WeightMove& move : moves) {
            bytes += move.bytes;
        }
        return bytes;
    };
    const WeightHolders training{4, 1, 2, gpus(0, 8), false, false};
    // Of quarters on the same GPUs halves: of each four, two lack a quarter and two a half.
    CHECK(total(reshard(fabric, training, {2, 1, 4, gpus(0, 8), true, false}, 1)) == doctest::Approx(3));
    CHECK(reshard(fabric, training, {4, 1, 2, gpus(0, 8), true, false}, 1).empty());
    // On another node every replica gets all of it, and each GPU of training sends as much.
    const auto moves = reshard(fabric, training, {2, 1, 4, gpus(8, 8), true, false}, 1);
    CHECK(total(moves) == doctest::Approx(4));
    std::map<std::uint32_t, double> sent;
    for (const WeightMove& move : moves) {
        sent[move.from.value()] += move.bytes;
    }
    CHECK(sent.size() == 8);
    for (const auto& [gpu, bytes] : sent) {
        CHECK_MESSAGE(bytes == doctest::Approx(0.5), gpu);
    }
    // Stages and shards that do not divide each other; shares of ZeRO-3.
    CHECK(total(reshard(fabric, {2, 3, 1, gpus(0, 6), false, false}, {4, 2, 1, gpus(8, 8), true, false}, 1)) ==
          doctest::Approx(1));
    CHECK(total(reshard(fabric, {1, 1, 8, gpus(0, 8), false, true}, {1, 1, 8, gpus(0, 8), true, false}, 1)) ==
          doctest::Approx(7));
}

namespace {

// A scenario whose batch says this.
std::string with_batch(std::string text, const std::string& more) {
    return text.replace(text.find("draws: 1"), 8, "draws: 1, " + more);
}

}  // namespace

TEST_CASE("routed experts go to the ranks that have them, and none is lost where layouts do not divide") {
    const Fabric fabric = fabric_of(test::scenario(scenario_text("")));
    const auto gpus = [](std::uint32_t first, std::uint32_t count) {
        std::vector<GpuId> out;
        for (std::uint32_t i = 0; i < count; ++i) {
            out.emplace_back(first + i);
        }
        return out;
    };
    const auto received = [](const std::vector<WeightMove>& moves) {
        std::map<std::uint32_t, double> bytes;
        for (const WeightMove& move : moves) {
            bytes[move.to.value()] += move.bytes;
        }
        return bytes;
    };
    // Eight bands of experts to four, on another node: each gets two bands.
    const WeightHolders eight{1, 1, 1, gpus(0, 8), false, false, 8};
    const auto to_four = reshard(fabric, eight, {1, 1, 1, gpus(8, 4), true, false, 4}, 1);
    CHECK(to_four.size() == 8);
    // To ranks that cut each expert: each needs an eighth of every band, of all eight GPUs.
    const auto cut = reshard(fabric, eight, {8, 1, 1, gpus(8, 8), true, false, 1}, 1);
    CHECK(cut.size() == 64);
    for (const auto& moves : {to_four, cut}) {
        for (const auto& [gpu, bytes] : received(moves)) {
            CHECK_MESSAGE(bytes == doctest::Approx(moves.size() == 8 ? 0.25 : 0.125), gpu);
        }
    }
    // The same bands on the same GPUs stay.
    CHECK(reshard(fabric, eight, {1, 1, 1, gpus(0, 8), true, false, 8}, 1).empty());
    // Three bands to two of halves of the width.
    double all = 0;
    for (const auto& [gpu, bytes] :
         received(reshard(fabric, {1, 1, 2, gpus(0, 6), false, false, 3}, {2, 1, 2, gpus(8, 8), true, false, 2}, 1))) {
        CHECK_MESSAGE(bytes == doctest::Approx(0.25), gpu);
        all += bytes;
    }
    CHECK(all == doctest::Approx(2));
}

TEST_CASE("rows of a batch have its tokens, and the sum of squares that attention pays for") {
    const std::vector<std::int64_t> lengths = {100, 200, 300, 400, 900, 100};
    const double tokens = 2000;
    const double squares = 1e4 + 4e4 + 9e4 + 16e4 + 81e4 + 1e4;
    for (const RowLayout layout : {RowLayout::packed, RowLayout::single}) {
        const Rows rows = rows_of(lengths, layout, 1000, false);
        const double inside = static_cast<double>(rows.tokens) / static_cast<double>(rows.sample);
        CHECK(inside == std::round(inside));
        CHECK(rows.count * static_cast<double>(rows.tokens) == doctest::Approx(tokens));
        CHECK(rows.count * inside * static_cast<double>(rows.sample * rows.sample) ==
              doctest::Approx(squares).epsilon(1e-3));
    }
    // 900 + 100 and 400 + 300 + 200 + 100 fill two sequences; with stages both are whole.
    const Rows piped = rows_of(lengths, RowLayout::packed, 1000, true);
    CHECK(piped.count * static_cast<double>(piped.tokens) == doctest::Approx(2000));
    // 600 and 600 do not: two whole sequences, or two of 600.
    const Rows apart = rows_of({600, 600}, RowLayout::packed, 1000, true);
    CHECK(apart.count * static_cast<double>(apart.tokens) == doctest::Approx(2000));
    CHECK(rows_of({600, 600}, RowLayout::packed, 1000, false).tokens == 600);
    const Rows padded = rows_of(lengths, RowLayout::padded, 1000, false);
    CHECK(padded.count == 6);
    CHECK(padded.tokens == 1000);
    CHECK(rows_of(lengths, RowLayout::packed, 1000, false, 64).sample % 64 == 0);
    // Two updates of three, each with a replica of one sample and one of two: 500 of 600, and 1300 of 1400.
    CHECK(busiest_replica(lengths, 3, 2) == doctest::Approx((500.0 + 1000.0) / (300 + 700)));
    CHECK(busiest_replica(lengths, 6, 1) == 1);
}

TEST_CASE(
    "an update of so many samples takes the sequences that they fill, and recomputed log-probabilities one pass more") {
    const Summary two = run_text(with_batch(scenario_text(""), "update: 32"));
    const Summary one = run_text(with_batch(scenario_text(""), "update: 64"));
    CHECK(value(two, "updates_per_step") == 2);
    CHECK(value(one, "updates_per_step") == 1);
    CHECK(value(one, "training_s") < value(two, "training_s"));
    const Summary passes = run_text(with_batch(scenario_text("log_probabilities: recomputed"), "update: 32"));
    CHECK(value(passes, "actor.forward_s") == value(passes, "reference.forward_s"));  // the same plan
    CHECK(value(passes, "preparation_s") ==
          doctest::Approx(value(two, "preparation_s") + value(passes, "actor.forward_s")).epsilon(1e-9));
    CHECK(errors_of(with_batch(scenario_text(""), "update: 65")).find("batch.update is as many at most") !=
          std::string::npos);
    // Nothing arrives at a rate.
    CHECK(one.find("generator.offered_rps") == nullptr);
}

TEST_CASE("weights that one GPU gathers and broadcasts take longer than from each GPU to those that need them") {
    const Summary direct = run_text(scenario_text("", "0-0", "1-1"));
    const Summary gathered = run_text(scenario_text("synchronisation: {through: gathered}", "0-0", "1-1"));
    CHECK(value(gathered, "synchronisation_s") > 2 * value(direct, "synchronisation_s"));
    // Half of the weights to the one that gathers, all of them to each of eight GPUs.
    CHECK(value(gathered, "weights_moved_bytes") == doctest::Approx(8.5 / 4 * value(direct, "weights_moved_bytes")));
}

TEST_CASE("the parts of a step take what they take by themselves") {
    const Summary all = run_text(with_batch(scenario_text(""), "rows: padded"));
    const Summary generation = run_text(fmt::format(
        "orrery: 1\nkind: serving\ncluster: {{nodes: 2, node: dgx-h100}}\nmodel: {}\nengine: {{replicas: 4, tensor: 2, "
        "kv: {{memory: 60 %}}}}\nrequests: {{arrivals: at-once, count: 64, samples: 4, {}}}\n",
        kModel, kRequests));
    const Summary training = run_text(fmt::format(
        "orrery: 1\nkind: training\ncluster: {{nodes: 1, node: dgx-h100}}\nmodel: {}\nplan: {}\n", kModel, kPlan));
    for (const Metric& metric : generation.metrics) {
        if (metric.measured() && metric.name != "offered_rps") {
            CHECK_MESSAGE(value(all, "generator." + metric.name) == metric.value, metric.name);
        }
    }
    CHECK(value(all, "generation_s") == doctest::Approx(value(generation, "e2e_s.max")).epsilon(0.05));
    CHECK(value(all, "actor.iteration_time_s") == value(training, "iteration_time_s"));
    CHECK(value(all, "training_s") ==
          doctest::Approx(value(all, "updates_per_step") * value(training, "iteration_time_s")).epsilon(1e-9));
    CHECK(value(all, "preparation_s") == doctest::Approx(value(all, "reference.forward_s")).epsilon(1e-9));
    CHECK(value(all, "iteration_time_s") == doctest::Approx(value(all, "generation_s") + value(all, "preparation_s") +
                                                            value(all, "training_s") + value(all, "synchronisation_s"))
                                                .epsilon(1e-9));
    // A forward pass is less than a third and more than a fifth of an iteration that does nothing but compute.
    CHECK(value(all, "reference.forward_s") < value(all, "training_s") / 2);
    // The bytes of 200 or so tokens a sample fill a fifth of the sequences that padding has.
    CHECK(value(all, "updates_per_step") == 8);  // 64 samples of 8 a batch
    CHECK(value(run_text(scenario_text("")), "updates_per_step") == 2);
}

TEST_CASE("forward passes alone take what training books for its own, and stages follow each other") {
    const auto part = [](const std::string& plan) {
        return run_text(fmt::format(
            "orrery: 1\nkind: training\ncluster: {{nodes: 1, node: dgx-h100}}\nmodel: {}\nplan: {}\n", kModel, plan));
    };
    const auto forward = [](const std::string& plan) {
        std::string text = with_batch(scenario_text(""), "rows: padded");
        for (std::size_t at = text.find(kPlan); at != std::string::npos; at = text.find(kPlan, at + plan.size())) {
            text.replace(at, std::string(kPlan).size(), plan);
        }
        return run_text(text);
    };
    // Two micro-batches a replica and update.
    const std::string flat = "{data: 8, global_batch: 16, micro_batch: 1}";
    const Summary training = part(flat);
    double booked = 0;
    for (const auto& [name, seconds] : training.breakdown) {
        booked += name == "forward" ? seconds : 0;
    }
    const Summary step = forward(flat);
    CHECK(value(step, "reference.forward_s") ==
          doctest::Approx(value(step, "updates_per_step") * booked).epsilon(1e-9));
    // Four stages, eight micro-batches: eleven turns of the slowest stage or fewer, and more than eight.
    const Summary piped = forward("{pipeline: 4, data: 2, global_batch: 16, micro_batch: 1}");
    const double turn = booked / 2 / 4;  // of an even stage
    const double each = value(piped, "reference.forward_s") / value(piped, "updates_per_step");
    CHECK(each > 8 * turn);
    CHECK(each < 2 * 11 * turn);
}

TEST_CASE("asynchronous steps of staleness 0 are synchronous, and a run is the same each time") {
    const std::string waits = scenario_text("", "0-0", "1-1");
    const Summary one = run_text(waits);
    const Summary zero = run_text(scenario_text("asynchronous: {staleness: 0}", "0-0", "1-1"));
    const Summary ahead = run_text(scenario_text("asynchronous: {staleness: 1}", "0-0", "1-1"));
    CHECK(one.metrics == zero.metrics);
    CHECK(one.metrics == run_text(waits).metrics);
    CHECK(value(ahead, "iteration_time_s") ==
          doctest::Approx(std::max(value(one, "generation_s") + value(one, "synchronisation_s"),
                                   value(one, "preparation_s") + value(one, "training_s")))
              .epsilon(1e-9));
    // Through a server: once in, and four replicas out.
    const Summary server =
        run_text(scenario_text("synchronisation: {through: server, bandwidth: 1 GB/s}", "0-0", "1-1"));
    CHECK(value(server, "synchronisation_s") ==
          doctest::Approx(value(server, "weights_moved_bytes") / 1e9).epsilon(1e-9));
    CHECK(value(server, "weights_moved_bytes") == doctest::Approx(1.25 * value(one, "weights_moved_bytes")));
    // Without the tail of each batch.
    const Summary partial = run_text(scenario_text("asynchronous: {staleness: 1, partial: true}", "0-0", "1-1"));
    CHECK(value(partial, "generation_s") < value(ahead, "generation_s"));
}

TEST_CASE("several samples of a prompt are requests whose prompt a prefix cache finds again") {
    const auto serve = [](const std::string& kv, const std::string& samples) {
        return run_text(
            fmt::format("orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: dgx-h100}}\nmodel: llama-3-8b\nengine: "
                        "{{kv: {}}}\nrequests: {{arrivals: at-once, count: 32, {} prompt: {{mean: 4000}}, output: "
                        "{{mean: 16}}}}\n",
                        kv, samples));
    };
    const double each = value(serve("{prefix: {}}", ""), "e2e_s.max");
    const double eight = value(serve("{prefix: {}}", "samples: 8,"), "e2e_s.max");
    CHECK(eight < 0.5 * each);
    CHECK(value(serve("{}", "samples: 8,"), "e2e_s.max") > 0.9 * each);
}

TEST_CASE("what a step cannot be is said at once, and what does not fit is infeasible") {
    std::string text = errors_of(R"(orrery: 1
kind: rl
cluster: {nodes: 2, node: dgx-h100}
algorithm: ppo
synchronisation: {through: server}
jobs:
  - {role: generator, nodes: 0-0, scenario: {kind: serving, model: llama-3-8b, requests: {count: 5}}}
  - {role: reward, nodes: 0-0, scenario: {kind: serving, model: llama-3-8b}}
)");
    for (const char* part : {"needs a job with role 'actor'", "ppo has a critic", "needs its 'bandwidth'",
                             "generates what 'batch' says", "'reward' is of kind training, not serving"}) {
        CHECK_MESSAGE(text.find(part) != std::string::npos, text);
    }
    // A misspelt role is one mistake and no second generator; batches that nobody could hold are refused beforehand.
    text = errors_of(R"(orrery: 1
kind: rl
cluster: {nodes: 2, node: dgx-h100}
algorithm: grpo
batch: {prompts: 16777216, samples: 65536}
jobs:
  - {role: generator, nodes: 0-0, scenario: {kind: serving, model: llama-3-8b}}
  - {role: actr, nodes: 0-0, scenario: {kind: training, model: llama-3-8b, plan: {global_batch: 8}}}
)");
    CHECK_MESSAGE(text.find("did you mean 'actor'") != std::string::npos, text);
    CHECK_MESSAGE(text.find("100000000 in all at most") != std::string::npos, text);
    CHECK_MESSAGE(text.find("more than one job") == std::string::npos, text);
    CHECK_MESSAGE(text.find("needs a job") == std::string::npos, text);
    CHECK(errors_of(scenario_text("asynchronous: {staleness: 1}")).find("shares nodes with the generator") !=
          std::string::npos);
    CHECK(errors_of(scenario_text("", "0-5")).find("the cluster has nodes 0 to 1") != std::string::npos);
    CHECK(errors_of(scenario_text("rewards: {time: 1 s}\nasynchronous: {staleness: 0, partial: true}", "0-0", "1-1"))
              .find("asynchronous.staleness is 1 or more") != std::string::npos);
    // The engine beside the states of training.
    CHECK_THROWS_WITH_AS(run_text(scenario_text("", "0-0", "0-0", "", "100 %")),
                         doctest::Contains("'generator' needs 79.6 of the 79.6 GiB of a GPU beside"), InfeasibleError);
    CHECK_THROWS_WITH_AS(run_text(scenario_text("").replace(scenario_text("").find("{mean: 100}"), 11, "{mean: 1000}")),
                         doctest::Contains("'reference': a sample has"), InfeasibleError);
}

TEST_CASE("a part in host memory makes room and costs its copies") {
    const Summary stays = run_text(scenario_text(""));
    const Summary goes = run_text(scenario_text("", "0-0", "0-0", "offload: true,"));
    CHECK(value(goes, "preparation_s") > value(stays, "preparation_s"));
    CHECK(value(goes, "reference.forward_s") == value(stays, "reference.forward_s"));
}

TEST_CASE("rl: models with an encoder have no rows of images, and no part takes one") {
    std::string text = scenario_text("");
    const std::string encoder = ", encoder: {layers: 2, hidden: 512, heads: 8, tokens: 64}}";
    for (std::size_t at = text.rfind(kModel); at != std::string::npos; at = at > 0 ? text.rfind(kModel, at - 1) : at) {
        text.replace(at + std::string(kModel).size() - 1, 1, encoder);
        if (at == 0) {
            break;
        }
    }
    const std::string said = errors_of(text);
    for (const char* part : {"'actor' has rows of text: no 'encoder' of the model", "'reference' has rows of text",
                             "models with an 'encoder' are trained and not served here"}) {
        CHECK_MESSAGE(said.find(part) != std::string::npos, said);
    }
}

TEST_CASE("rl: remax generates and judges a greedy answer beside the samples, and trains on the samples alone") {
    const auto with = [](const std::string& algorithm, int samples) {
        std::string text = scenario_text("rewards: {time: 1 ms}");
        text.replace(text.find("algorithm: grpo"), 15, "algorithm: " + algorithm);
        text.replace(text.find("samples: 4"), 10, fmt::format("samples: {}, rows: padded", samples));
        return run_text(text);
    };
    const Summary remax = with("remax", 3);
    const Summary grpo = with("grpo", 4);  // as many answers
    CHECK(value(remax, "batch_output_tokens") == value(grpo, "batch_output_tokens"));
    CHECK(value(remax, "generation_s") == value(grpo, "generation_s"));
    // 48 and 64 rows in updates of eight.
    CHECK(value(remax, "updates_per_step") == 6);
    CHECK(value(grpo, "updates_per_step") == 8);
    CHECK(value(remax, "training_s") == doctest::Approx(value(grpo, "training_s") * 6 / 8).epsilon(1e-9));
    // The reference judges samples alone, the rules all answers.
    CHECK(value(remax, "reference.forward_s") ==
          doctest::Approx(value(grpo, "reference.forward_s") * 6 / 8).epsilon(1e-9));
    CHECK(value(with("remax", 1), "samples_per_s") > 0);  // its greedy answer is enough to compare with
}
