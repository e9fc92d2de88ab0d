// Adam's states in fewer bits than 32: closed forms of what is held and of what an update moves, and what is refused.

#include "workloads/training/features/optimizer_types.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/kinds/training.hpp"
#include "workloads/training/memory/memory.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;

namespace {

Scenario job(const std::string& plan) {
    return test::scenario(
        fmt::format("orrery: 1\nkind: training\ncluster: {{nodes: 1, node: {{preset: dgx-h100, gpus: 4}}}}\n"
                    "model: {{preset: llama-2-7b, sequence: 256}}\n"
                    "plan: {{data: 4, micro_batch: 1, global_batch: 4, zero: 1, {}}}\n"
                    "software: {{preset: megatron-core-2024, launch: 0 us}}\n",
                    plan));
}

double held(const std::string& plan) {
    const Scenario s = job(plan);
    const auto& training = s.as<TrainingKind>();
    return memory_by_stage(training.model, training.plan, training.software).at(0).optimizer;
}

double update_seconds(const std::string& plan) {
    const RunOutput out = run_scenario(job(plan), test::model_cache(), {});
    return out.training->booked[static_cast<std::size_t>(Category::optimizer)];
}

std::string refused(const std::string& plan) {
    return test::problems_when([&] { (void)run_scenario(job(plan), test::model_cache(), {}); });
}

}  // namespace

TEST_CASE("states in fewer bits take as many bytes as their types, and an update moves as many less") {
    struct Case {
        const char* types;
        double bytes;  ///< of a weight, of 12
        double less;   ///< B that an update reads and writes less
    };
    const double whole = held("states: mixed");
    const double slowest = update_seconds("states: mixed");
    // Of the update's bytes nothing but the states changes: its time falls in proportion to them.
    double per_byte = 0;
    for (const Case& of : {
             Case{"{first_moment: bf16, second_moment: bf16}", 8, 8},
             Case{"{first_moment: bf16, second_moment: bf16, remainders: true}", 6, 10},
             Case{"{master: fp16, first_moment: fp16, second_moment: fp16}", 6, 12},
             Case{"{master: fp16, first_moment: fp8, second_moment: fp8}", 4, 16},
         }) {
        CAPTURE(std::string(of.types));
        const std::string plan = fmt::format("states: mixed, optimizer_types: {}", of.types);
        CHECK(held(plan) == doctest::Approx(whole * of.bytes / 12).epsilon(1e-12));
        const double saved = slowest - update_seconds(plan);
        CHECK(saved > 0);
        per_byte = per_byte > 0 ? per_byte : saved / of.less;
        CHECK(saved == doctest::Approx(per_byte * of.less).epsilon(0.01));
    }
}

TEST_CASE("types of states that cannot be say so") {
    CHECK(refused("optimizer_types: {first_moment: bf16}").find("states: mixed") != std::string::npos);
    CHECK(refused("states: mixed, optimizer_types: {first_moment: fp32}").find("changes nothing") != std::string::npos);
    CHECK(refused("states: mixed, optimizer_types: {master: bf16}").find("master is fp32 or fp16") !=
          std::string::npos);
    CHECK(
        refused("states: mixed, optimizer_types: {master: fp16, remainders: true}").find("those of a master of fp32") !=
        std::string::npos);
    CHECK(refused("states: mixed, precision: fp16, optimizer_types: {remainders: true}").find("weights in bf16") !=
          std::string::npos);
}
