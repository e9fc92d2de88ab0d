// The host of a training step: what it launches, when its device waits for it.

#include "tests/support/scenarios.hpp"
#include "tools/driver/kinds/training.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

using namespace orrery;

namespace {

using test::train;

}  // namespace

TEST_CASE("long kernels hide the host that launches them, short ones wait for it") {
    const auto iteration = [](double launch, const char* plan, const char* sync) {
        Scenario s = test::scenario(fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 1, node: dgx-h100}}
model: {{layers: 8, hidden: 4096, heads: 32, vocabulary: 32000, sequence: 2048}}
plan: {{{}, global_batch: 16}}
software: {{preset: megatron-core-2024, step_overhead: 10 ms, pipeline_sync: {}}}
)",
                                                plan, sync));
        s.as<TrainingKind>().software.launch.value = launch;
        return train(s);
    };
    const char* kDataParallel = "data: 8, micro_batch: 1";
    const TrainingResult free = iteration(0, kDataParallel, "false");
    CHECK(iteration(1e-6, kDataParallel, "false").iteration_s == free.iteration_s);
    // A host that takes a millisecond per kernel is all that counts, but for the gradients and the optimizer behind it.
    const TrainingResult slow = iteration(1e-3, kDataParallel, "false");
    const TrainingResult slower = iteration(2e-3, kDataParallel, "false");
    const double per_millisecond = slower.iteration_s - slow.iteration_s;
    CHECK(slow.iteration_s > per_millisecond);
    CHECK(slow.iteration_s < per_millisecond + 0.010 + free.iteration_s);
    // What the device waits for its host is booked as overhead, and every second is booked.
    double booked = slow.bubble_s;
    for (const double seconds : slow.booked) {
        booked += seconds;
    }
    CHECK(booked == doctest::Approx(slow.iteration_s));
    CHECK(slow.booked[static_cast<std::size_t>(Category::overhead)] > 0.5 * slow.iteration_s);
    // In a pipeline whose host waits for its device no pass is prepared while another one runs: four launches until each begins. The
    // first stage runs the forward and backward passes of four micro-batches, and waits for one of each on the other.
    const char* kPipeline = "pipeline: 2, data: 4, micro_batch: 1";
    CHECK(iteration(1e-6, kPipeline, "true").iteration_s - iteration(0, kPipeline, "true").iteration_s ==
          doctest::Approx(2 * (4 + 1) * 4e-6).epsilon(1e-6));
    CHECK(iteration(1e-3, kPipeline, "true").iteration_s >= iteration(1e-3, kPipeline, "false").iteration_s);
    const char* kOverlapped = "pipeline: 2, data: 4, micro_batch: 1, overlap: {pipeline: true}";
    CHECK(iteration(1e-6, kOverlapped, "true").iteration_s == iteration(0, kOverlapped, "true").iteration_s);
}

TEST_CASE(
    "a host that launches a kernel when the one before it has ended adds all of its time, and refuses what would "
    "overlap") {
    const auto text = [](const char* launch, const char* plan, const char* software) {
        return fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 1, node: dgx-h100}}
model: {{layers: 8, hidden: 4096, heads: 32, vocabulary: 32000, sequence: 2048}}
plan: {{{}, micro_batch: 1, global_batch: 16}}
software: {{preset: megatron-core-2024, pipeline_sync: false, launch: {}, {}}}
)",
                           plan, launch, software);
    };
    for (const char* plan : {"data: 8", "data: 8, zero: 3", "pipeline: 2, data: 4",
                             "pipeline: 2, data: 4, schedule: 1f1b, vocabulary_parallel: one-barrier"}) {
        const auto train_with = [&](const char* launch, const char* blocking) {
            return train(test::scenario(text(launch, plan, blocking)));
        };
        const double free = train_with("0 us", "blocking_launches: false").iteration_s;
        CHECK(train_with("0 us", "blocking_launches: true").iteration_s == doctest::Approx(free).epsilon(1e-9));
        const TrainingResult one = train_with("10 us", "blocking_launches: true");
        const TrainingResult ten = train_with("100 us", "blocking_launches: true");
        CHECK(one.iteration_s > free);
        // In proportion, but where another stage than before is waited for.
        const bool alone = std::string(plan).find("pipeline") == std::string::npos;
        CHECK(ten.iteration_s - free == doctest::Approx(10 * (one.iteration_s - free)).epsilon(alone ? 1e-6 : 0.01));
        // As long as a slow host takes for the same kernels while its device waits for it.
        if (std::string(plan) == "data: 8") {
            const double slow = train_with("2 ms", "blocking_launches: false").iteration_s -
                                train_with("1 ms", "blocking_launches: false").iteration_s;
            CHECK(100 * (one.iteration_s - free) == doctest::Approx(slow).epsilon(0.02));
        }
        CHECK(ten.booked[static_cast<std::size_t>(Category::overhead)] >
              one.booked[static_cast<std::size_t>(Category::overhead)]);
    }
    const auto refused = [&](const char* plan, const char* software, const char* why) {
        const std::string found = test::refusal(text("10 us", plan, software));
        CHECK_MESSAGE(found.find(why) != std::string::npos, found);
    };
    refused("data: 8, overlap: {data: true}", "blocking_launches: true", "nothing overlaps");
    refused("data: 4, context: 2", "blocking_launches: true", "nothing overlaps");
    refused("data: 8", "blocking_launches: true, graphs: layers", "no 'graphs' of them");
}

TEST_CASE("graphs of an iteration hide the step's overhead, and one that a scenario gives is refused") {
    const std::string graphs =
        std::string(test::kSmallTraining).substr(0, std::string(test::kSmallTraining).find("software:")) +
        "software: {preset: megatron-core-2024, graphs: ";
    const auto overhead = [](const std::string& text) {
        double seconds = 0;
        for (const auto& [name, part] : run_scenario(test::scenario(text), test::model_cache(), {}).summary.breakdown) {
            seconds += name == "overhead" ? part : 0;
        }
        return seconds;
    };
    CHECK(overhead(graphs + "iteration}\n") == 0);
    CHECK(overhead(graphs + "layers}\n") > 0);
    CHECK(test::refusal(graphs + "iteration, step_overhead: 1 ms}\n").find("'software.step_overhead' has no effect") !=
          std::string::npos);
}
