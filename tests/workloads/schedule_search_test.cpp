// `schedule: search` against exhaustive search, closed forms and the orders of equal passes.

#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/kinds/training.hpp"
#include "workloads/training/schedules/search.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

using namespace orrery;

namespace {

MeasuredPipeline equal(const PipelineShape& shape, std::uint32_t held) {
    MeasuredPipeline out;
    out.forward = out.input = out.weight = std::vector<std::int64_t>(shape.stages, 1);
    out.send = out.send_gradient = out.step = std::vector<std::int64_t>(shape.stages, 0);
    out.held.assign(shape.stages, held);
    out.tries = 2000;
    return out;
}

std::int64_t below(RandomStream& random, std::uint64_t limit) {
    return static_cast<std::int64_t>(random.below(limit));
}

MeasuredPipeline unequal(const PipelineShape& shape, RandomStream& random) {
    MeasuredPipeline out = equal(shape, 1);
    for (std::uint32_t s = 0; s < shape.stages; ++s) {
        out.forward[s] = 3 + below(random, 12);
        out.input[s] = 3 + below(random, 12);
        out.weight[s] = 2 + below(random, 12);
        out.send[s] = s + 1 < shape.stages ? below(random, 4) : 0;
        out.send_gradient[s] = s > 0 ? below(random, 4) : 0;
        out.step[s] = below(random, 10);
        out.held[s] = static_cast<std::uint32_t>(1 + below(random, 2 * shape.stages));
    }
    out.sender_waits = below(random, 2) == 1;
    out.ends_meet = below(random, 2) == 1;
    return out;
}

OrderWords found_for(const PipelineShape& shape, const MeasuredPipeline& measured) {
    return words_of(schedule_named("search").search(shape, measured));
}

// All words of a stage: an input gradient needs its forward pass before it, weight gradients their input gradient.
std::vector<StageWord> all_words(std::uint32_t m) {
    std::vector<StageWord> out;
    StageWord word;
    const std::function<void(std::uint32_t, std::uint32_t, std::uint32_t)> extend =
        [&](std::uint32_t f, std::uint32_t b, std::uint32_t w) {
            if (w == m) {
                out.push_back(word);
            }
            const auto with = [&](bool may, PassWork work, std::uint32_t more_f, std::uint32_t more_b,
                                  std::uint32_t more_w) {
                if (may) {
                    word.push_back(work);
                    extend(f + more_f, b + more_b, w + more_w);
                    word.pop_back();
                }
            };
            with(f < m, PassWork::forward, 1, 0, 0);
            with(b < f, PassWork::input_gradient, 0, 1, 0);
            with(w < b, PassWork::weight_gradient, 0, 0, 1);
        };
    extend(0, 0, 0);
    return out;
}

std::int64_t best_of_all(const PipelineShape& shape, const MeasuredPipeline& measured) {
    const std::vector<StageWord> words = all_words(shape.micro_batches);
    std::int64_t best = INT64_MAX;
    OrderWords order(shape.stages);
    const std::function<void(std::uint32_t)> fill = [&](std::uint32_t stage) {
        if (stage == shape.stages) {
            if (const auto time = play(shape, measured, order)) {
                best = std::min(best, time->longest);
            }
            return;
        }
        for (const StageWord& word : words) {
            order[stage] = word;
            fill(stage + 1);
        }
    };
    fill(0);
    return best;
}

TrainingResult train(const Scenario& s) {
    return *run_scenario(s, test::model_cache(), {}).training;
}

// Stages of three and four layers, and an output layer on the last.
std::string heavy_end(const std::string& schedule, const std::string& more = "") {
    return fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 1, node: dgx-a100-80g}}
model: {{layers: 30, hidden: 2048, heads: 16, vocabulary: 51200, sequence: 2048, tied_embeddings: false}}
plan: {{pipeline: 8, micro_batch: 1, global_batch: 24, schedule: {}, overlap: {{pipeline: true}}{}}}
software: megatron-core-2024
)",
                       schedule, more);
}

}  // namespace

TEST_CASE("search: with equal passes a third of the wait of 1F1B with its memory, and none with twice as much") {
    for (const std::uint32_t p : {2U, 4U, 8U, 16U}) {
        for (const std::uint32_t m : {p, 2 * p, 5 * p}) {
            const PipelineShape shape{p, 1, m};
            const auto wait = [&](std::uint32_t held) {
                const MeasuredPipeline measured = equal(shape, held);
                return play(shape, measured, found_for(shape, measured))->longest - 3 * std::int64_t{m};
            };
            CHECK(wait(p) == p - 1);  // 1F1B waits 3 (p - 1)
            if (m >= 2 * p) {
                CHECK(wait(2 * p) == 0);
            }
            CHECK(wait(p) == least_time(shape, equal(shape, p)) - 3 * std::int64_t{m});  // none is faster
        }
    }
}

TEST_CASE("search: the best of all orders on small pipelines, whatever passes and sends take and stages may hold") {
    CHECK(all_words(3).size() == 42);  // standard Young tableaux of three rows of three
    RandomStream random(7, "search");
    for (const auto& [stages, micro_batches, cases] : {std::tuple{2U, 3U, 40}, {3U, 3U, 8}}) {
        const PipelineShape shape{stages, 1, micro_batches};
        for (int i = 0; i < cases * test::scale(); ++i) {
            MeasuredPipeline measured = unequal(shape, random);
            measured.tries = 20'000;
            const std::int64_t best = best_of_all(shape, measured);
            const auto found = play(shape, measured, found_for(shape, measured));
            REQUIRE(found.has_value());
            CHECK_MESSAGE(found->longest == best, stages, " stages, case ", i);
            CHECK(least_time(shape, measured) <= best);
            // The program alone finds it from an order that is twice as slow, and proves that there is no better one.
            if (!measured.sender_waits) {
                continue;  // sends that wait for each other are not in the program
            }
            const ProgramResult alone = solve_program(shape, measured, 2 * best, 20'000);
            CHECK(alone.proven);
            REQUIRE(alone.words.has_value());
            CHECK(play(shape, measured, *alone.words)->longest == best);
            const ProgramResult none = solve_program(shape, measured, best, 20'000);
            CHECK(none.proven);
            CHECK_FALSE(none.words.has_value());
        }
    }
}

TEST_CASE("search: each pass once, no stage waits forever or holds more than it may, and zb-h1 is never faster") {
    RandomStream random(11, "search");
    int better = 0;
    for (int i = 0; i < 30 * test::scale(); ++i) {
        const auto stages = static_cast<std::uint32_t>(2 + below(random, 7));
        const PipelineShape shape{stages, 1, static_cast<std::uint32_t>(1 + below(random, 4 * stages))};
        MeasuredPipeline measured = unequal(shape, random);
        measured.tries = 300;
        const PipelineOrder order = schedule_named("search").search(shape, measured);
        const std::vector<std::uint32_t> peaks = peaks_of(order);
        for (std::uint32_t s = 0; s < stages; ++s) {
            CHECK(order[s].size() == 3 * shape.micro_batches);
            CHECK(peaks[s] <= measured.held[s]);
        }
        const auto time = play(shape, measured, words_of(order));
        REQUIRE(time.has_value());
        CHECK(schedule_named("search").search(shape, measured) == order);
        measured.held.assign(stages, stages);
        const std::int64_t searched = play(shape, measured, found_for(shape, measured))->longest;
        const std::int64_t listed = play(shape, measured, words_of(schedule_named("zb-h1").order(shape)))->longest;
        CHECK(searched <= listed);
        better += searched < listed ? 1 : 0;
    }
    CHECK(better > 10);
}

TEST_CASE(
    "search: stages of unlike length wait less with more memory, and zb-h1 and zb-h2 are never faster in theirs") {
    const TrainingResult h1 = train(test::scenario(heavy_end("zb-h1")));
    const TrainingResult h2 = train(test::scenario(heavy_end("zb-h2")));
    const TrainingResult plain = train(test::scenario(heavy_end("1f1b")));
    const TrainingResult searched = train(test::scenario(heavy_end("search")));
    CHECK(searched.iteration_s <= h1.iteration_s);
    CHECK(searched.hardware_flops == doctest::Approx(plain.hardware_flops).epsilon(1e-9));
    CHECK(searched.memory[0].activations <= plain.memory[0].activations * (1 + 1e-9));
    const auto limited = [](int held) {
        return train(test::scenario(heavy_end(fmt::format("{{kind: search, held: {}}}", held))));
    };
    const TrainingResult more = limited(12);
    CHECK(more.iteration_s < 0.97 * h1.iteration_s);
    CHECK(more.memory[0].activations <= 12.0 / 8 * plain.memory[0].activations * (1 + 1e-9));
    CHECK(limited(16).iteration_s < 0.995 * h2.iteration_s);
    // Faster than 1F1B in three quarters of its memory.
    const TrainingResult less = limited(6);
    CHECK(less.memory[0].activations <= 6.0 / 8 * plain.memory[0].activations * (1 + 1e-9));
    CHECK(less.iteration_s < 0.95 * plain.iteration_s);
    CHECK(limited(1).iteration_s > plain.iteration_s);
}

TEST_CASE("search: uneven stages get a better order than zb-h1's in the same memory") {
    const auto trained = [](const char* schedule) {
        return train(test::scenario(fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 1, node: dgx-a100-80g}}
model: {{layers: 11, hidden: 1024, heads: 8, vocabulary: 8192, sequence: 1024}}
plan: {{pipeline: 4, data: 2, global_batch: 24, micro_batch: 1, schedule: {}, stages: [{{layers: 5}}, {{layers: 1}}, {{layers: 4}}, {{layers: 1}}]}}
software: {{preset: megatron-core-2024, launch: 1 us}}
)",
                                                schedule)));
    };
    const TrainingResult h1 = trained("zb-h1");
    const TrainingResult searched = trained("search");
    CHECK(searched.iteration_s < 0.998 * h1.iteration_s);
    CHECK(searched.memory_bytes <= h1.memory_bytes);
}

TEST_CASE("search: rules alone are what is left without tries, and more tries are never worse") {
    double last = INFINITY;
    for (const char* tries : {"0", "100", "2000"}) {
        const double now =
            train(test::scenario(heavy_end(fmt::format("{{kind: search, tries: {}}}", tries)))).iteration_s;
        CHECK(now <= last);
        last = now;
    }
}

TEST_CASE("search: memory in bytes is what each stage may hold of micro-batches") {
    const TrainingResult all = train(test::scenario(heavy_end("{kind: search, held: 24}")));
    const TrainingResult bytes = train(test::scenario(heavy_end("{kind: search, activations: 6 GiB}")));
    for (const MemoryUse& stage : bytes.memory) {
        CHECK(stage.activations <= 6 * 1024.0 * 1024 * 1024);
    }
    CHECK(bytes.iteration_s >= all.iteration_s);
    const Scenario s = test::scenario(heavy_end("{kind: search, activations: 6 GiB}"));
    const std::vector<std::uint32_t> most =
        most_in_flight(s.as<TrainingKind>().model, s.as<TrainingKind>().plan, s.as<TrainingKind>().software);
    CHECK(most[7] < most[0]);  // as many layers, and logits
    CHECK_THROWS_WITH_AS((void)train(test::scenario(heavy_end("{kind: search, activations: 1 MiB}"))),
                         doctest::Contains("plan.schedule.activations is 1 MiB, and stage 0 needs"), InfeasibleError);
}

TEST_CASE("search: what is not of the schedule is refused with its line") {
    const auto refused = [](const char* schedule) { return test::refusal(heavy_end(schedule)); };
    CHECK(refused("{kind: search, held: 3}").empty());
    CHECK(refused("{kind: search, held: -1}").find("test.yaml:5:") != std::string::npos);
    CHECK(refused("{kind: search, held: 1.5}").find("test.yaml:5:") != std::string::npos);
    CHECK(refused("{kind: search, activations: 3}").find("test.yaml:5:") != std::string::npos);
    CHECK(refused("{kind: search, tries: 1000000}").find("test.yaml:5:") != std::string::npos);
    CHECK(refused("{kind: search, time: 3 s}").find("time") != std::string::npos);
    CHECK(refused("{kind: zb-h1, held: 3}").find("held") != std::string::npos);
    CHECK(refused("{kind: serach}").find("search") != std::string::npos);
    Scenario alone = test::scenario(heavy_end("search", ", data: 8"));
    alone.as<TrainingKind>().plan.pipeline = 1;
    CHECK_THROWS_AS((void)train(alone), InfeasibleError);
}
