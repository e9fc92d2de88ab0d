#include "tests/support/scenarios.hpp"
#include "tools/driver/kinds/training.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

using namespace orrery;

namespace {

using test::train;

/// Forward pass, whole backward pass, gradient of the input, gradients of the weights: in this unit.
std::vector<std::uint32_t> lengths(std::uint32_t forward, std::uint32_t input, std::uint32_t weights) {
    return {forward, input + weights, input, weights, 1, 1};
}

double booked(const TrainingResult& of, Category category) {
    return of.booked[static_cast<std::size_t>(category)];
}
double work(const TrainingResult& of) {
    return booked(of, Category::forward) + booked(of, Category::backward);
}

// Equal parts: the tables are tiny, sends take no time, and sums in 32 bits make gradients of weights about as long as other passes.
Scenario equal_parts(const std::string& plan, int layers = 16) {
    Scenario s = test::scenario(fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 1, node: dgx-a100-80g}}
model: {{layers: {}, hidden: 4096, heads: 32, vocabulary: 8, sequence: 2048, tied_embeddings: false}}
plan: {{micro_batch: 1, gradient_precision: fp32, overlap: {{pipeline: true}}, {}}}
software: {{preset: megatron-core-2024, launch: 0 us, step_overhead: 0 s}}
network: {{collectives: ideal}}
)",
                                            layers, plan));
    s.cluster.node.intra_bandwidth.value = 1e14;
    s.cluster.node.intra_latency.value = 0;
    return s;
}

std::string refusal(const Scenario& s) {
    try {
        (void)train(s);
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("a schedule runs each pass once, in an order that no stage waits for forever, and holds what its row says") {
    for (const PipelineSchedule* schedule : schedule_table()) {
        for (const std::uint32_t stages : {1U, 2U, 3U, 4U, 6U, 7U}) {
            for (const std::uint32_t chunks : {1U, 2U, 3U}) {
                for (const std::uint32_t m : {1U, 2U, stages, 2 * stages, 4 * stages, 4 * stages + 1, 9 * stages}) {
                    const PipelineShape shape{stages, chunks, m};
                    if ((chunks > 1 && !schedule->chunked) || !schedule->problem(shape).empty()) {
                        continue;
                    }
                    const PipelineOrder order = schedule->order(shape);
                    REQUIRE(order.size() == stages);
                    std::set<std::tuple<std::uint32_t, std::uint32_t>> forward;  // parts and micro-batches
                    std::set<std::tuple<std::uint32_t, std::uint32_t>> final;
                    for (std::uint32_t stage = 0; stage < stages; ++stage) {
                        std::set<std::tuple<std::uint32_t, std::uint32_t>> here;
                        for (const Pass& pass : order[stage]) {
                            const std::tuple key{part_at(schedule->map, shape, {stage, pass.chunk}), pass.micro_batch};
                            if (pass.work == PassWork::forward) {
                                REQUIRE(forward.insert(key).second);
                            } else if (pass.gives_gradient()) {
                                REQUIRE(forward.contains(key));
                                REQUIRE(here.insert(key).second);
                            }
                            if (pass.ends_micro_batch()) {
                                REQUIRE(here.contains(key));
                                REQUIRE(final.insert(key).second);
                            }
                        }
                    }
                    const std::size_t parts = parts_of(schedule->map, shape);
                    CHECK_MESSAGE(forward.size() == parts * m, schedule->name);
                    CHECK_MESSAGE(final.size() == parts * m, schedule->name);
                    CHECK_MESSAGE(schedule->in_flight(shape) == peaks_of(order), schedule->name);
                    // It plays to its end, whatever passes take.
                    (void)longest_wait(schedule->map, schedule->staggers, shape, order, lengths(1, 1, 1));
                    (void)longest_wait(schedule->map, schedule->staggers, shape, order, lengths(5, 7, 3));
                }
            }
        }
    }
}

TEST_CASE("a stage map is one: every part is where it says, and its neighbours follow") {
    for (const StageMap map : {StageMap::round_robin, StageMap::back_and_forth, StageMap::both_ways}) {
        const PipelineShape shape{6, map == StageMap::round_robin ? 3U : 2U, 12};
        for (std::uint32_t stage = 0; stage < shape.stages; ++stage) {
            for (std::uint32_t chunk = 0; chunk < shape.chunks; ++chunk) {
                const std::uint32_t part = part_at(map, shape, {stage, chunk});
                CHECK(place_of_part(map, shape, part, chunk) == ChunkPlace{stage, chunk});
            }
        }
    }
    const PipelineShape v{4, 2, 8};
    CHECK(part_at(StageMap::round_robin, v, {3, 1}) == 7);
    CHECK(part_at(StageMap::back_and_forth, v, {0, 1}) == 7);  // the model's two ends meet
    CHECK(part_at(StageMap::both_ways, v, {0, 1}) == 3);
}

TEST_CASE("bubbles and peaks of split schedules with equal passes are the published ones") {
    const auto wait = [](const char* name, std::uint32_t stages, std::uint32_t chunks,
                         const std::vector<std::uint32_t>& time) {
        const PipelineSchedule& row = schedule_named(name);
        const PipelineShape shape{stages, chunks, 4 * stages};
        return longest_wait(row.map, row.staggers, shape, row.order(shape), time);
    };
    const auto peak = [](const char* name, std::uint32_t stages) {
        const std::vector<std::uint32_t> held = schedule_named(name).in_flight({stages, 2, 4 * stages});
        return *std::max_element(held.begin(), held.end());
    };
    for (const std::uint32_t p : {2U, 4U, 8U, 16U, 32U}) {
        CHECK(wait("zb-h1", p, 1, lengths(1, 1, 1)) == p - 1);  // (p - 1)(f + b - 2w), b whole
        CHECK(wait("zb-h2", p, 1, lengths(1, 1, 1)) == 0);
        // arXiv:2405.15362: none, about p / 2 and 2 p / 3 passes of a micro-batch through a stage, of six units; activations of p,
        // (p + 2) / 2 and (p + 4) / 3 micro-batches.
        CHECK(wait("zb-v", p, 2, lengths(1, 1, 1)) == 0);
        CHECK(wait("v-half", p, 2, lengths(1, 1, 1)) <= 6 * p / 2);
        CHECK(wait("v-half", p, 2, lengths(1, 1, 1)) + 4 >= (p > 2 ? 6 * p / 2 : 0));
        CHECK(wait("v-min", p, 2, lengths(1, 1, 1)) <= 6 * 2 * p / 3);
        CHECK(peak("zb-v", p) == 2 * p);
        CHECK(peak("v-half", p) == 2 * ((p + 2) / 2));
        CHECK(peak("v-min", p) == 2 * ((p + 4) / 3));
        // arXiv:2412.19437, table 2: (p / 2 - 1)(f + 2b - 3w), b whole; p + 1 micro-batches. Cut in half: twice as many stages' worth.
        for (const auto& [f, i, w] : {std::tuple{1U, 1U, 1U}, {3U, 4U, 2U}, {5U, 5U, 5U}}) {
            CHECK(wait("dualpipe", p, 2, lengths(f, i, w)) == (p / 2 - 1) * (f + 2 * (i + w) - 3 * w));
            CHECK(wait("dualpipev", p, 2, lengths(f, i, w)) == (p - 1) * (f + 2 * (i + w) - 3 * w));
        }
        CHECK(peak("dualpipe", p) == p + 1);
        CHECK(peak("dualpipev", p) == 2 * p + 1);
        for (const char* name : {"zb-v", "v-half", "v-min", "dualpipe", "dualpipev"}) {
            const PipelineSchedule& row = schedule_named(name);
            const PipelineShape shape{p, 2, 4 * p};
            const double passes = row.map == StageMap::both_ways ? 3 : 6;
            CHECK_MESSAGE(row.bubble(shape) * passes == doctest::Approx(wait(name, p, 2, lengths(1, 1, 1))), name);
        }
    }
}

TEST_CASE(
    "waves wait 4 (p - 1) chunks' passes in a round, never less than 3 (p - 1), and hold 2 p micro-batches at most") {
    const PipelineSchedule& row = schedule_named("hanayo");
    for (const std::uint32_t p : {2U, 4U, 8U, 16U}) {
        for (const std::uint32_t chunks : {2U, 4U, 8U}) {
            for (const std::uint32_t rounds : {1U, 2U, 4U}) {
                CAPTURE(p);
                CAPTURE(chunks);
                CAPTURE(rounds);
                const PipelineShape shape{p, chunks, rounds * p};
                const double wait = row.bubble(shape) * 3 * chunks;
                CHECK(wait >= 3 * (p - 1) - 1e-9);
                if (chunks == 2 && rounds == 1) {
                    CHECK(wait == doctest::Approx(4 * (p - 1)));
                }
                if (p >= 4) {
                    CHECK(wait <= 2 * (p - 1) * chunks);  // two thirds of 3 (p - 1) whole passes
                }
                const std::vector<std::uint32_t> held = row.in_flight(shape);
                CHECK(*std::max_element(held.begin(), held.end()) <= 2 * p * chunks);
            }
        }
    }
    CHECK_FALSE(row.problem({4, 3, 8}).empty());
    CHECK_FALSE(row.problem({1, 2, 8}).empty());
    const TrainingResult plain = train(equal_parts("pipeline: 8, global_batch: 32, schedule: 1f1b"));
    const TrainingResult waves = train(equal_parts("pipeline: 8, global_batch: 32, schedule: hanayo, chunks: 2"));
    CHECK(work(waves) == doctest::Approx(work(plain)).epsilon(1e-9));
    CHECK(waves.bubble_s < 0.7 * plain.bubble_s);
}

TEST_CASE("simulated V-shaped and bidirectional pipelines do the work of 1F1B, and wait and hold less or as much") {
    const auto trained = [](const std::string& schedule) {
        return train(equal_parts("pipeline: 8, global_batch: 32, schedule: " + schedule));
    };
    const TrainingResult plain = trained("1f1b");
    for (const char* name : {"zb-v", "v-half", "v-min", "dualpipe", "dualpipev"}) {
        const TrainingResult r = trained(fmt::format("{}, chunks: 2", name));
        CHECK_MESSAGE(work(r) == doctest::Approx(work(plain)).epsilon(1e-9), name);
        CHECK_MESSAGE(r.hardware_flops == doctest::Approx(plain.hardware_flops).epsilon(1e-9), name);
        // The order of v-min, which has least to spare, waits where passes are not equal: its authors' limit.
        CHECK_MESSAGE(r.bubble_s < (std::string(name) == "v-min" ? 1.15 : 0.8) * plain.bubble_s, name);
    }
    const auto activations = [](const TrainingResult& r) {
        double most = 0;
        for (const MemoryUse& stage : r.memory) {
            most = std::max(most, stage.activations);
        }
        return most;
    };
    CHECK(activations(trained("zb-v, chunks: 2")) == doctest::Approx(activations(plain)).epsilon(0.01));
    CHECK(activations(trained("v-half, chunks: 2")) == doctest::Approx(5.0 / 8 * activations(plain)).epsilon(0.01));
    CHECK(activations(trained("v-min, chunks: 2")) == doctest::Approx(4.0 / 8 * activations(plain)).epsilon(0.01));
    // Two copies of the parameters, and p + 1 micro-batches instead of p.
    const TrainingResult dual = trained("dualpipe, chunks: 2");
    CHECK(dual.memory[3].weights == doctest::Approx(2 * plain.memory[3].weights).epsilon(1e-9));
    CHECK(activations(dual) == doctest::Approx(9.0 / 8 * activations(plain)).epsilon(0.01));
    // Optimizer states are shared by the two copies.
    const double whole = train(equal_parts("pipeline: 8, global_batch: 32, zero: 1")).memory[3].optimizer;
    const double shared =
        train(equal_parts("pipeline: 8, global_batch: 32, zero: 1, schedule: dualpipe, chunks: 2")).memory[3].optimizer;
    CHECK(shared == doctest::Approx(whole).epsilon(1e-9));
}

TEST_CASE("the two copies of a bidirectional pipeline reduce their gradients with each other") {
    const auto reduced = [](const char* schedule) {
        Scenario s = equal_parts(fmt::format("pipeline: 4, data: 2, global_batch: 16, schedule: {}", schedule));
        s.cluster.node.intra_bandwidth.value = 100e9;
        return booked(train(s), Category::data_communication);
    };
    // A ring over four ranks moves 2 x 3/4 of two parts, one over two ranks 2 x 1/2 of one.
    CHECK(reduced("dualpipe, chunks: 2") == doctest::Approx(3 * reduced("gpipe")).epsilon(0.05));
    const Scenario one = equal_parts("pipeline: 8, global_batch: 16, schedule: dualpipe, chunks: 2");
    CHECK(booked(train(one), Category::data_communication) > 0);  // without replicas too
}

TEST_CASE("on a V the first stage holds both ends of the model") {
    Scenario s = equal_parts("pipeline: 8, global_batch: 16, schedule: zb-v, chunks: 2");
    auto& training = s.as<TrainingKind>();
    training.model.vocabulary = 32000;
    const double table = 2 * 32000.0 * 4096;
    const std::vector<MemoryUse> v = train(s).memory;
    CHECK(v[0].weights - v[7].weights == doctest::Approx(2 * table).epsilon(1e-9));
    CHECK(v[1].weights == v[7].weights);
    training.model.tied_embeddings = true;
    CHECK(train(s).memory[0].weights - v[7].weights == doctest::Approx(table).epsilon(1e-9));
    training.plan.schedule = &schedule_named("zb-h1");
    training.plan.chunks = 1;
    const std::vector<MemoryUse> line = train(s).memory;
    CHECK(line[0].weights - line[3].weights == doctest::Approx(table).epsilon(1e-9));
    CHECK(line[7].weights == line[0].weights);
}

TEST_CASE("stages of given layers: time and memory follow them, and all that is wrong with them is said at once") {
    const auto staged = [](const char* stages) {
        return equal_parts(fmt::format("pipeline: 4, data: 2, global_batch: 16, stages: {}", stages));
    };
    const TrainingResult even = train(staged("[{layers: 4}, {layers: 4}, {layers: 4}, {layers: 4}]"));
    const TrainingResult split = train(equal_parts("pipeline: 4, data: 2, global_batch: 16"));
    CHECK(even.iteration_s == split.iteration_s);
    CHECK(even.memory_bytes == split.memory_bytes);
    const TrainingResult uneven = train(staged("[{layers: 2}, {layers: 4}, {layers: 4}, {layers: 6}]"));
    // Eight micro-batches: 1F1B takes as long as its slowest stage's and one pass through each of the others.
    const double layer = work(split) / 8 / 4;
    CHECK(uneven.iteration_s - split.iteration_s == doctest::Approx(8 * 6 * layer + 10 * layer - (8 * 4 + 12) * layer)
                                                        .epsilon(0.07));  // the last has the final norm, too
    CHECK(uneven.memory[3].weights == doctest::Approx(1.5 * split.memory[3].weights).epsilon(0.001));
    CHECK(uneven.memory[0].activations == doctest::Approx(0.5 * split.memory[0].activations).epsilon(0.001));
    const std::string wrong = refusal(staged("[{layers: 4}, {layers: 0}, {layers: 4}]"));
    CHECK_MESSAGE(wrong.find("stages: part 1 has no layer") != std::string::npos, wrong);
    CHECK_MESSAGE(wrong.find("lists 3 parts, and 1f1b on 4 stages makes 4") != std::string::npos, wrong);
    CHECK_MESSAGE(wrong.find("8 layers in all, and the model has 16") != std::string::npos, wrong);
}

TEST_CASE("shapes that a schedule cannot have are refused with what it needs") {
    CHECK(refusal(equal_parts("pipeline: 8, global_batch: 32, schedule: zb-v")).find("chunks: 2") != std::string::npos);
    CHECK(refusal(equal_parts("pipeline: 8, global_batch: 15, schedule: dualpipe, chunks: 2"))
              .find("even number of micro-batches") != std::string::npos);
    CHECK(refusal(equal_parts("pipeline: 8, global_batch: 15, schedule: dualpipev, chunks: 2"))
              .find("two micro-batches a stage") != std::string::npos);
    CHECK(refusal(equal_parts("pipeline: 8, global_batch: 32, schedule: zb-h1, vocabulary_parallel: one-barrier"))
              .find("vocabulary_parallel needs schedule: 1f1b") != std::string::npos);
    CHECK(refusal(equal_parts("pipeline: 1, data: 8, global_batch: 32, vocabulary_parallel: one-barrier"))
              .find("at least 2") != std::string::npos);
}

TEST_CASE("a vocabulary cut over the stages: an equal share of time and memory, one more micro-batch a barrier") {
    const auto of = [](const char* vocabulary) {
        Scenario s = equal_parts(fmt::format("pipeline: 8, global_batch: 64, vocabulary_parallel: {}", vocabulary));
        s.as<TrainingKind>().model.vocabulary = 262144;
        return train(s);
    };
    const TrainingResult ends = of("none");
    for (const char* way : {"two-barriers", "one-barrier"}) {
        const TrainingResult cut = of(way);
        // The same products, cut in eight: no stage waits for the last one, which had them all.
        CHECK_MESSAGE(cut.hardware_flops == doctest::Approx(ends.hardware_flops).epsilon(1e-9), way);
        CHECK_MESSAGE(work(cut) == doctest::Approx(work(ends)).epsilon(0.05), way);
        CHECK_MESSAGE(cut.bubble_s < 0.4 * ends.bubble_s, way);
        CHECK_MESSAGE(cut.iteration_s < 0.7 * ends.iteration_s, way);
        const double table = 2 * 262144.0 * 4096;
        CHECK_MESSAGE(cut.memory[3].weights - ends.memory[3].weights == doctest::Approx(2 * table / 8).epsilon(1e-9),
                      way);
        CHECK_MESSAGE(cut.memory[0].weights == cut.memory[7].weights, way);
    }
    for (const auto& [way, more] :
         {std::pair{VocabularyParallel::two_barriers, 2U}, {VocabularyParallel::one_barrier, 1U}}) {
        const PipelineShape shape{8, 1, 64, way};
        const PipelineOrder order = schedule_named("1f1b").order(shape);
        const std::vector<std::uint32_t> held = peaks_of(order);
        CHECK(held == schedule_named("1f1b").in_flight(shape));
        CHECK(held[0] == 8 + more);
        CHECK(held[7] == 1 + more);
        for (const std::vector<Pass>& passes : order) {
            CHECK(passes.size() == 4 * 64);
            for (const PassWork work : {PassWork::scores, PassWork::score_gradients}) {
                CHECK(std::count_if(passes.begin(), passes.end(),
                                    [&](const Pass& pass) { return pass.work == work; }) == 64);
            }
        }
    }
    // Tables that are cut are updated in equal parts; folded as unfolded.
    Scenario s = equal_parts("pipeline: 4, data: 2, global_batch: 32, vocabulary_parallel: one-barrier");
    const double folded = train(s).iteration_s;
    s.network.fold = false;
    CHECK(train(s).iteration_s == folded);
}
