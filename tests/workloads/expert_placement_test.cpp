// Placement of experts by their loads: all placements of small cases, what the busiest rank has, and what is refused.

#include "workloads/training/plan/expert_placement.hpp"
#include "sim/base/random.hpp"
#include "tests/support/scenarios.hpp"
#include "tools/driver/kinds/training.hpp"
#include "workloads/training/plan/experts.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

using namespace orrery;

namespace {

using test::refused;

double busiest(const std::vector<double>& loads, const std::vector<std::size_t>& rank_of, std::size_t ranks) {
    std::vector<double> sums(ranks, 0);
    std::vector<std::size_t> held(ranks, 0);
    for (std::size_t i = 0; i < loads.size(); ++i) {
        sums[rank_of[i]] += loads[i];
        ++held[rank_of[i]];
    }
    for (const std::size_t one : held) {
        REQUIRE(one == loads.size() / ranks);
    }
    return *std::max_element(sums.begin(), sums.end());
}

Scenario job(const std::string& placement, int sequence = 4096,
             const std::string& loads =
                 "[{load: 0.577}, {load: 1}, {load: 0.5}, {load: 0.447}, {load: 0.707}, {load: 0.408}, {load: 0.354}, "
                 "{load: 0.378}]") {
    return test::scenario(fmt::format(
        "orrery: 1\nkind: training\ncluster: {{nodes: 1, node: dgx-h100}}\n"
        "model: {{preset: mixtral-8x7b, layers: 2, sequence: {}}}\n"
        "plan: {{data: 8, micro_batch: 1, global_batch: 8, expert: 4, expert_tensor: 1, router_loads: {}{}}}\n",
        sequence, loads, placement));
}

}  // namespace

TEST_CASE(
    "a balanced placement of pairs is the best there is, and of larger groups within a few per cent of the mean") {
    ExpertPlacement balanced;
    ExpertPlacement in_order;
    in_order.policy = PlacementPolicy::in_order;
    RandomStream random(1, "test/placement");
    for (int round = 0; round < 50; ++round) {
        std::vector<double> loads(6);
        for (double& load : loads) {
            load = random.uniform();
        }
        // All placements of six experts in three pairs.
        double best = 1e9;
        std::vector<std::size_t> order = {0, 0, 1, 1, 2, 2};
        do {
            best = std::min(best, busiest(loads, order, 3));
        } while (std::next_permutation(order.begin(), order.end()));
        CHECK(busiest(loads, balanced.place(loads, 3), 3) == doctest::Approx(best).epsilon(1e-9));
        CHECK(busiest(loads, in_order.place(loads, 3), 3) >= best - 1e-12);
    }
    std::vector<double> many(64);
    for (double& load : many) {
        load = random.uniform();
    }
    const double mean = std::accumulate(many.begin(), many.end(), 0.0) / 8;
    CHECK(busiest(many, balanced.place(many, 8), 8) < 1.02 * mean);
}

TEST_CASE("placed experts load the busiest rank by what their places add up to") {
    const auto hottest = [](const std::string& placement) {
        const Scenario s = job(placement);
        const auto& training = s.as<TrainingKind>();
        return load_of(training.model.experts, training.plan).hottest;
    };
    const double sum = 0.577 + 1 + 0.5 + 0.447 + 0.707 + 0.408 + 0.354 + 0.378;
    CHECK(hottest("") == doctest::Approx((0.577 + 1) / (sum / 4)).epsilon(1e-9));
    CHECK(hottest(", expert_placement: {policy: in-order}") == hottest(""));
    // The most wanted expert has to be beside another: at best the least wanted.
    CHECK(hottest(", expert_placement: {}") == doctest::Approx((1 + 0.354) / (sum / 4)).epsilon(1e-9));
}

TEST_CASE("a balanced placement shortens a step, the more the longer its experts compute") {
    const auto gain = [](int sequence) {
        const auto seconds = [&](const std::string& placement) {
            return run_scenario(job(placement, sequence), test::model_cache(), {})
                .summary.find("iteration_time_s")
                ->value;
        };
        return seconds(", expert_placement: {policy: in-order}") / seconds(", expert_placement: {}");
    };
    CHECK(gain(4096) > 1.02);
    CHECK(gain(4096) < 1.577 / 1.354);  // not all of a step is experts
    // Few tokens are bound by reading weights and by their update, however they are placed.
    CHECK(gain(256) < gain(4096));
}

TEST_CASE("a placement of nothing is refused") {
    CHECK(refused(job(", expert_placement: {}, router_exponent: 1")).find("give one") != std::string::npos);
    CHECK(refused(job(", expert_placement: {}", 4096, "[]")).find("needs loads that differ") != std::string::npos);
}
