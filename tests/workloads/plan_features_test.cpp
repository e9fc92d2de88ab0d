// Optional features of a plan: their set, what they change together, and what does not go together.

#include "tests/support/scenarios.hpp"
#include "tools/driver/kinds/training.hpp"
#include "workloads/training/features/adapters.hpp"
#include "workloads/training/features/outer.hpp"
#include "workloads/training/features/sharding.hpp"
#include "workloads/training/features/zeroth_order.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <set>

using namespace orrery;

TEST_CASE("a plan has every feature of the table, and its copies have their own") {
    std::set<std::string> keys;
    for (const FeatureRow* row : feature_table()) {
        CHECK(keys.insert(row->key).second);
    }
    PlanSpec plan;
    CHECK(plan.features.keys().empty());
    plan.feature<OuterPlan>().given = true;
    plan.feature<OuterPlan>().workers = 4;
    PlanSpec copy = plan;
    copy.feature<OuterPlan>().workers = 2;
    copy.feature<AdapterPlan>().given = true;
    CHECK(plan.feature<OuterPlan>().workers == 4);
    CHECK(plan.features.keys() == std::vector<std::string>{"outer"});
    CHECK(copy.features.keys() == std::vector<std::string>{"outer", "adapters"});
    plan = copy;
    CHECK(plan.has<AdapterPlan>());
}

TEST_CASE("what a plan asks all its features changes with those that it has") {
    PlanSpec plan;
    plan.data = 8;
    plan.global_batch = 8;
    CHECK(plan.alike() == 8);
    CHECK(plan.micro_batches() == 1);
    CHECK(!plan.by_layer());
    plan.feature<OuterPlan>().workers = 4;
    CHECK(plan.alike() == 8);  // not given: no effect
    plan.feature<OuterPlan>().given = true;
    CHECK(plan.alike() == 2);
    plan.zero = 3;
    plan.feature<ShardingPlan>().weights = 2;
    CHECK(degrees_of(plan).weights == 2);
    CHECK(degrees_of(plan).secondary == 0);
    plan.feature<OuterPlan>().given = false;
    CHECK(degrees_of(plan).weights == 8);
    plan.feature<ShardingPlan>().given = true;
    CHECK(degrees_of(plan).weights == 2);
    CHECK(degrees_of(plan).optimizer == 8);
    PlanSpec steps;
    steps.data = 2;
    steps.global_batch = 1;
    steps.feature<ZerothOrderPlan>().given = true;
    steps.feature<ZerothOrderPlan>().perturbation = 2;
    CHECK(steps.micro_batches() == 1);
    CHECK(steps.by_layer());
    CHECK(!steps.sums_gradients());
}

TEST_CASE("features that are not modelled together are refused by their names, all at once") {
    const auto refused = [](const std::string& plan, const std::string& model = "") {
        try {
            const Scenario s = test::scenario(
                fmt::format("orrery: 1\nkind: training\ncluster: {{nodes: 1, node: dgx-h100}}\n"
                            "model: {{layers: 4, hidden: 1024, heads: 8, vocabulary: 1000, sequence: 1024{}}}\n"
                            "plan: {{data: 8, global_batch: 8, {}}}\n",
                            model, plan));
            (void)run_scenario(s, test::model_cache(), {});
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    const std::string three = refused("zero: 0, adapters: {rank: 8}, compression: {}, outer: {workers: 2, steps: 4}");
    CHECK(three.find("outer cannot be combined with adapters") != std::string::npos);
    CHECK(three.find("compression cannot be combined with adapters") != std::string::npos);
    CHECK(refused("documents: {lengths: [{tokens: 512}]}",
                  ", pattern: 'M*-M', state_space: {heads: 8, head_dim: 64, state: 64}")
              .find("documents cannot be combined with a model that has a 'pattern'") != std::string::npos);
    const std::string experts = refused("zero: 3, sharding: {weights: 4}", ", experts: {count: 8, topk: 2, ffn: 512}");
    CHECK(experts.find("sharding cannot be combined with a model with experts: use zero: 3 over all ranks") !=
          std::string::npos);
    CHECK(refused("outer: {workers: 2, steps: 4}").empty());
}
