// Timelines of training: what spans say of themselves, what passes exchange, memory and links over time.

#include "tests/support/scenarios.hpp"
#include "tools/report/svg.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

using namespace orrery;
using namespace orrery::test;

namespace {

Scenario job(const std::string& plan) {
    return scenario(
        fmt::format("orrery: 1\nkind: training\ncluster: {{nodes: 2, node: dgx-a100-80g}}\n"
                    "model: {{layers: 8, hidden: 2048, heads: 16, vocabulary: 1000, sequence: 1024}}\n"
                    "plan: {{{}}}\n",
                    plan));
}

RunOutput drawn(const Scenario& scenario) {
    RunOptions options;
    options.timeline = true;
    return run_scenario(scenario, model_cache(), options);
}

double argument(const Span& span, const std::string& name) {
    for (const auto& [own, value] : span.arguments) {
        if (name == own) {
            return value;
        }
    }
    return -1;
}

std::uint32_t thread_named(const Timeline& timeline, const std::string& name) {
    for (const auto& [thread, own] : timeline.threads) {
        if (own == name) {
            return thread;
        }
    }
    return 0xFFFFFFFFU;
}

}  // namespace

TEST_CASE(
    "timeline of training: spans say their micro-batch, chunk, layers, stage, tokens and bytes, and names no numbers") {
    const RunOutput out =
        drawn(job("tensor: 2, pipeline: 4, data: 2, chunks: 2, schedule: interleaved, "
                  "micro_batch: 2, global_batch: 32"));
    std::set<double> micro_batches;
    std::map<double, std::set<double>> layers;  // by stage
    for (const Span& span : out.timeline.spans) {
        CHECK_MESSAGE(span.name.find_first_of("0123456789") == std::string::npos, span.name);
        CHECK(argument(span, "stage") >= 0);
        if (span.name == "forward") {
            CHECK(argument(span, "tokens") == 2 * 1024);
            CHECK(argument(span, "layers") == 1);
            micro_batches.insert(argument(span, "micro-batch"));
            layers[argument(span, "stage")].insert(argument(span, "first layer"));
            CHECK(argument(span, "chunk") == (argument(span, "first layer") >= 4 ? 1 : 0));
        }
        if (span.name == "send activations") {
            CHECK(argument(span, "bytes") > 0);
            CHECK(argument(span, "micro-batch") >= 0);
        }
    }
    CHECK(micro_batches.size() == 8);
    // Chunks go round: stage s has layers s and s + 4.
    for (double stage = 0; stage < 4; ++stage) {
        CHECK(layers[stage] == std::set<double>{stage, stage + 4});
    }
    // ZeRO-3: gathers and reductions name their layer.
    std::set<double> gathered;
    const RunOutput sharded = drawn(job("data: 16, zero: 3, global_batch: 16"));
    for (const Span& span : sharded.timeline.spans) {
        if (span.name == "gather weights") {
            gathered.insert(argument(span, "first layer"));
        }
    }
    CHECK(gathered == std::set<double>{-1, 0, 1, 2, 3, 4, 5, 6, 7});  // -1: the tables
}

TEST_CASE("timeline of training: what passes exchange has a lane of its own, inside the passes and as long as it is") {
    const Scenario scenario = job("tensor: 8, pipeline: 2, data: 1, global_batch: 4");
    const RunOutput out = drawn(scenario);
    const std::uint32_t lane = thread_named(out.timeline, "tensor-parallel communication");
    REQUIRE(lane != 0xFFFFFFFFU);
    double exchanged = 0;
    std::set<std::uint32_t> ranks;
    std::size_t inside = 0;
    std::size_t count = 0;
    for (const Span& span : out.timeline.spans) {
        if (span.thread != lane) {
            continue;
        }
        ++count;
        ranks.insert(span.process);
        exchanged += span.duration_us * 1e-6;
        CHECK(span.category == "tensor communication");
        inside +=
            std::any_of(out.timeline.spans.begin(), out.timeline.spans.end(),
                        [&](const Span& pass) {
                            constexpr double kRounding = 1e-3;
                            return pass.thread == 0 && pass.process == span.process &&
                                   argument(pass, "micro-batch") == argument(span, "micro-batch") &&
                                   pass.start_us <= span.start_us + kRounding &&
                                   span.start_us + span.duration_us <= pass.start_us + pass.duration_us + kRounding;
                        })
                ? 1
                : 0;
    }
    CHECK(inside == count);
    CHECK(ranks == std::set<std::uint32_t>{0, 8});  // the first of each stage
    // Two all-reduces per layer and direction: eight layers, four micro-batches, and nothing overlaps here.
    CHECK(count == 2 * 2 * 8 * 4);
    double booked = 0;
    for (const auto& [name, seconds] : out.summary.breakdown) {
        booked += name == "tensor communication" ? seconds : 0;
    }
    // What is booked holds the tables' as well.
    CHECK(exchanged / 2 <= booked * 1.001);
    CHECK(exchanged / 2 > booked * 0.5);
    // Nothing to exchange: no lane.
    CHECK(thread_named(drawn(job("data: 16, global_batch: 16")).timeline, "tensor-parallel communication") ==
          0xFFFFFFFFU);
    // Kernels of the first micro-batch have one too, in the order of the program and without overlap.
    const std::uint32_t kernels = thread_named(out.timeline, "kernels");
    REQUIRE(kernels != 0xFFFFFFFFU);
    std::map<std::uint32_t, double> ended;
    std::map<std::string, int> names;
    for (const Span& span : out.timeline.spans) {
        if (span.thread == kernels) {
            CHECK(argument(span, "micro-batch") == 0);
            CHECK(span.start_us >= ended[span.process] - 1e-3);
            ended[span.process] = span.start_us + span.duration_us;
            ++names[span.name];
        }
    }
    CHECK(names["attention"] == 2 * 8);  // of each layer, forward and backward
    CHECK(names["weight gradient, in"] == 2 * 8);
    // In the picture it is a line between compute and transfers.
    const std::string svg = timeline_svg("t", out.timeline, TimelineRows::processes, 16, {});
    CHECK(svg.find("fill-opacity") != std::string::npos);
    CHECK(svg.find(">tensor communication</text>") != std::string::npos);
    CHECK(svg.find("busiest links") == std::string::npos);  // counters alone
}

TEST_CASE("timeline of training: memory rises to what it is at its fullest, and links carry what transfers move") {
    const Scenario scenario = job("tensor: 2, pipeline: 4, data: 2, micro_batch: 1, global_batch: 16");
    const RunOutput out = drawn(scenario);
    constexpr double kGib = 1024.0 * 1024 * 1024;
    std::map<std::uint32_t, double> most;
    std::map<std::uint32_t, double> last;
    std::map<std::string, double> carried;  // Gb by link
    std::map<std::string, std::pair<double, double>> before;
    std::map<std::uint32_t, std::string> processes(out.timeline.processes.begin(), out.timeline.processes.end());
    for (const CounterPoint& point : out.timeline.counters) {
        if (point.name == "memory, GiB") {
            most[point.process] = std::max(most[point.process], point.value);
            last[point.process] = point.value;
        } else {
            CHECK(processes.at(point.process) == "busiest links");
            auto& [at, rate] = before[point.name];
            carried[point.name] += rate * (point.at_us - at) * 1e-6;
            before[point.name] = {point.at_us, point.value};
        }
    }
    REQUIRE(out.training);
    for (std::uint32_t stage = 0; stage < 4; ++stage) {
        const MemoryUse& use = out.training->memory[stage];
        CHECK(most.at(4 * stage) == doctest::Approx(use.total() / kGib));
        CHECK(last.at(4 * stage) == doctest::Approx((use.total() - use.activations) / kGib));
    }
    // Of the links, none carries more than it can, and each ends idle.
    REQUIRE(!carried.empty());
    for (const auto& [name, point] : before) {
        CHECK_MESSAGE(point.second == 0, name);
        CHECK_MESSAGE(carried.at(name) > 0, name);
    }
    for (const CounterPoint& point : out.timeline.counters) {
        if (point.name.rfind("NIC out", 0) == 0) {
            CHECK(point.value <= 200.1);
        }
    }
}

TEST_CASE("timelines as pictures: what takes no time is seen, and long times are in hours or days") {
    Timeline timeline;
    timeline.processes = {{0, "job"}};
    timeline.threads = {{0, "job"}, {1, "faults"}};
    timeline.spans = {{"training", "training", 0, 0, 0, 36e9}, {"gpu", "fault", 0, 1, 18e9, 0}};
    const std::string hours = timeline_svg("t", timeline, TimelineRows::streams, 2, {});
    CHECK(hours.find("h2.00v14h-2.00z") != std::string::npos);
    CHECK(hours.find(">10 h</text>") != std::string::npos);
    CHECK(hours.find("e+0") == std::string::npos);
    timeline.spans[0].duration_us = 864e9;
    CHECK(timeline_svg("t", timeline, TimelineRows::streams, 2, {}).find(">10 d</text>") != std::string::npos);
}
