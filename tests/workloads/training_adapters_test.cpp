// Low-rank adapters: what is trained, held, computed, moved and kept, as closed forms; and what is refused.

#include "models/roofline.hpp"
#include "tests/support/few_weights.hpp"
#include "tools/driver/kinds/training.hpp"
#include "tools/driver/kinds/training_faults.hpp"
#include "tools/driver/kinds/training_input.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;
using namespace orrery::test::few_weights;

namespace {

using test::train;

const std::string kAdapted = kPlan + ", adapters: {rank: 16}";

}  // namespace

TEST_CASE("an adapter on a product of n outputs and k inputs trains rank x (n + k) weights") {
    const Scenario s = scenario_of(kPlan + ", adapters: {rank: 8, modules: 'query, value, down'}");
    CHECK(trained_parameters(s.as<TrainingKind>().model, s.as<TrainingKind>().plan) ==
          4 * 8 * ((h + h) + (h + kv) + (ffn + h)));
    // Fused products have one adapter for all of them: one matrix down.
    const Scenario fused = scenario_of(kPlan + ", adapters: {rank: 8, modules: qkv}");
    CHECK(trained_parameters(fused.as<TrainingKind>().model, fused.as<TrainingKind>().plan) ==
          4 * 8 * (h + h + 2 * kv));
    // Tensor-parallel ranks cut one side each and have the other whole.
    const Scenario cut =
        scenario_of("tensor: 4, data: 2, micro_batch: 1, global_batch: 8, adapters: {rank: 8, modules: 'qkv, output'}");
    CHECK(trained_parameters(cut.as<TrainingKind>().model, cut.as<TrainingKind>().plan) ==
          4 * 8 * (h + h + 2 * kv + h + h));
    CHECK(adapter_weights(cut.as<TrainingKind>().model, cut.as<TrainingKind>().plan).all ==
          8 * (h + (h + 2 * kv) / 4 + h / 4 + h));
    CHECK(adapter_weights(cut.as<TrainingKind>().model, cut.as<TrainingKind>().plan).shared == 8 * (h + h));
}

TEST_CASE("frozen weights are held without gradients and optimizer states, in the bits of the base") {
    const double trained = 4 * 16 * ((h + h) + 2 * (h + kv) + (h + h));
    const double rest = 2 * (4 * 4 * h + 2 * kTable);  // norms and tables
    for (const auto& [base, bytes] : {std::pair{"16-bit", 2.0}, {"fp8", 1.0}, {"nf4", (4 + 0.125 + 1.0 / 512) / 8}}) {
        const Scenario s = scenario_of(kPlan + fmt::format(", adapters: {{rank: 16, base: {}}}", base));
        const MemoryUse use =
            memory_by_stage(s.as<TrainingKind>().model, s.as<TrainingKind>().plan, s.as<TrainingKind>().software)[0];
        CHECK(use.weights == doctest::Approx(2 * trained + 4 * bytes * kLayer + rest).epsilon(1e-12));
        CHECK(use.gradients == doctest::Approx(2 * trained).epsilon(1e-12));
        CHECK(use.optimizer == doctest::Approx(12 * trained).epsilon(1e-12));
    }
    // ZeRO-3 shares all of them.
    const Scenario shared = scenario_of(kAdapted + ", zero: 3");
    CHECK(memory_by_stage(shared.as<TrainingKind>().model, shared.as<TrainingKind>().plan,
                          shared.as<TrainingKind>().software)[0]
              .weights == doctest::Approx((2 * trained + 2 * 4 * kLayer + rest) / 8).epsilon(1e-12));
}

TEST_CASE("inputs of frozen products are kept for adapters alone") {
    const auto kept = [](const std::string& modules) {
        const std::string adapters =
            modules.empty() ? "" : fmt::format(", adapters: {{rank: 16, modules: '{}'}}", modules);
        const Scenario s = scenario_of(kPlan + adapters);
        return memory_by_stage(s.as<TrainingKind>().model, s.as<TrainingKind>().plan, s.as<TrainingKind>().software)[0]
            .activations;
    };
    const double token = 4 * 512.0;  // of all layers
    const double all = kept("");
    // Attention alone: the norm before the feed-forward (2 h) and the output of its activation function (2 ffn) are not kept.
    CHECK(all - kept("qkv, output") == doctest::Approx(token * (2 * h + 2 * ffn - 2 * 2 * 16)).epsilon(1e-12));
    CHECK(all - kept("qkv, gate_up, down") == doctest::Approx(-token * 3 * 2 * 16).epsilon(1e-12));
    CHECK(all - kept("output") == doctest::Approx(token * (4 * h + 2 * ffn - 2 * 16)).epsilon(1e-12));
}

TEST_CASE("the backward pass of frozen weights has one product for two, and adapters their own six") {
    const double tokens = 512;
    const double attention = train(scenario_of(kPlan)).hardware_flops / 8 - 6 * tokens * (4 * kLayer + kTable);
    const TrainingResult adapted = train(scenario_of(kAdapted));
    const double trained = 4 * 16 * ((h + h) + 2 * (h + kv) + (h + h));
    CHECK(adapted.hardware_flops / 8 ==
          doctest::Approx(4 * tokens * (4 * kLayer + kTable) + 6 * tokens * trained + attention).epsilon(1e-9));
    const Scenario s = scenario_of(kAdapted);
    const auto& training = s.as<TrainingKind>();
    CHECK(adapted.model_flops == doctest::Approx(8 * tokens * flops_per_token(training.model, training.plan)));
    CHECK(training.model.flops_per_token() - flops_per_token(training.model, training.plan) ==
          doctest::Approx(2 * (4 * kLayer + kTable) - 6 * trained));
    CHECK(adapted.iteration_s < train(scenario_of(kPlan)).iteration_s);
}

TEST_CASE("products of adapters cost what their shapes cost, and widening a narrow base its bytes") {
    const auto programs = [](const std::string& plan, auto&& look) {
        const Scenario s = scenario_of(plan);
        const Fabric fabric(shape_of(s.cluster, s.cluster_mark));
        const Placement placement(fabric);
        const TrainingInput in = training_input(s, test::model_cache(), fabric, placement);
        const PassCost cost(in.model, in.plan, in.software, in.device, in.gpu, in.fabric, in.collectives, in.paths);
        const double slow = in.software.kernel_slowdown.value;
        look(cost, in.device, slow, slow * in.gpu.slowest_of(8));
    };
    const std::string one = kPlan + ", adapters: {rank: 16, modules: output}";
    double whole = 0;
    programs(one, [&](const PassCost& cost, const CostModel& device, double slow, double matrix) {
        const auto gemm = [&](double m, double n, double k) {
            return matrix * device.seconds(Gemm{m, n, k, 1, Precision::bf16, 0}).value();
        };
        std::vector<double> forward, backward;
        for (const PassOperation& each : cost.forward_program({}).operations()) {
            if (std::string(each.name) == "adapter") {
                forward.push_back(each.seconds);
            }
        }
        for (const PassOperation& each : cost.backward_program({}).operations()) {
            if (std::string(each.name).find("adapter") != std::string::npos) {
                backward.push_back(each.seconds);
            }
            CHECK(std::string(each.name).find("weight gradient, in") == std::string::npos);
        }
        const double sum = slow * device.seconds(Streaming{512 * h * 6, 1}).value();
        REQUIRE(forward.size() == 1);
        CHECK(forward[0] == doctest::Approx(gemm(512, 16, h) + gemm(512, h, 16) + sum));
        REQUIRE(backward.size() == 2);
        CHECK(backward[0] == doctest::Approx(gemm(512, 16, h) + gemm(512, h, 16) + sum));
        CHECK(backward[1] == doctest::Approx(gemm(h, 16, 512) + gemm(16, h, 512)));
        whole = cost.layer_forward({}).total();
    });
    programs(
        kPlan + ", adapters: {rank: 16, modules: output, base: nf4}",
        [&](const PassCost& cost, const CostModel& device, double slow, double) {
            double widened = 0;
            for (const double weights : {h * (h + 2 * kv), h * h, 2 * h * ffn, h * ffn}) {
                widened += slow * device.seconds(Streaming{weights * (2 + (4 + 0.125 + 1.0 / 512) / 8), 1}).value();
            }
            CHECK(cost.layer_forward({}).total() - whole == doctest::Approx(widened));
        });
}

TEST_CASE("gradients of adapters alone are reduced, and ZeRO-3 gathers what is frozen as it is held") {
    const auto sent = [](const std::string& plan) {
        Scenario s = scenario_of(plan);
        s.network.fold = false;
        const Fabric fabric(shape_of(s.cluster, s.cluster_mark));
        const Placement placement(fabric);
        const TrainingInput input = training_input(s, test::model_cache(), fabric, placement);
        const TrainingGraph lowered = lower(input);
        double bytes = 0;
        for (std::uint32_t i = 0; i < lowered.graph.size(); ++i) {
            const Task& task = lowered.graph.task(TaskId(i));
            if (task.activity == Task::kNoActivity) {
                continue;
            }
            const TaskGraph::Activity activity = lowered.graph.activity(TaskId(i));
            for (const Demand& demand : lowered.graph.demands(activity.demand_set)) {
                bytes += demand.resource == fabric.intra_up(GpuId(0)) ? activity.amount * demand.weight : 0;
            }
        }
        return bytes;
    };
    const double trained = 4 * 16 * ((h + h) + 2 * (h + kv) + (h + h));
    const double rest = 2 * (4 * 4 * h + 2 * kTable);
    CHECK(sent(kAdapted) == doctest::Approx(2 * 2 * trained * 7 / 8).epsilon(1e-9));
    for (const auto& [base, bytes] : {std::pair{"16-bit", 2.0}, {"nf4", (4 + 0.125 + 1.0 / 512) / 8}}) {
        const double gathered = 2 * trained + 4 * bytes * kLayer + rest;
        CHECK(sent(kPlan + fmt::format(", zero: 3, adapters: {{rank: 16, base: {}}}", base)) ==
              doctest::Approx((2 * gathered + 2 * trained) * 7 / 8).epsilon(1e-9));
    }
}

TEST_CASE("tensor-parallel ranks sum the gradients of what all have of the adapters once a step") {
    const Scenario s = scenario_of(
        "tensor: 8, micro_batch: 1, global_batch: 4, sequence_parallel: true, adapters: {rank: 16, modules: 'qkv, "
        "output'}");
    const Fabric fabric(shape_of(s.cluster, s.cluster_mark));
    const Placement placement(fabric);
    const TrainingInput in = training_input(s, test::model_cache(), fabric, placement);
    const TrainingGraph lowered = lower(in);
    const auto seconds = [&](double bytes) {
        std::vector<GpuId> group;
        for (std::uint32_t i = 0; i < 8; ++i) {
            group.emplace_back(i);
        }
        return seconds_alone(fabric, make_transfer(fabric, in.collectives, CollectiveOp::all_reduce, group,
                                                   Bytes(bytes), in.paths))
            .value();
    };
    int found = 0;
    for (std::uint32_t i = 0; i < lowered.graph.size(); ++i) {
        const Task& task = lowered.graph.task(TaskId(i));
        if (lowered.graph.name_of(TaskId(i)) == "sum gradients of adapters" && task.rank == 0) {
            ++found;
            CHECK(task.duration.seconds() == doctest::Approx(seconds(2 * 4 * 16 * 2 * h)).epsilon(1e-6));
        }
    }
    CHECK(found == 1);
}

TEST_CASE("a checkpoint holds the adapters, and a load reads the frozen weights beside it") {
    const std::string faults =
        "faults: {checkpoint: {interval: {kind: fixed, every: 10 min}, storage: {write: 10 GB/s, read: 10 GB/s}}, "
        "duration: 1 h}\n";
    const Scenario s = scenario_of(kAdapted, faults);
    const double trained = 4 * 16 * ((h + h) + 2 * (h + kv) + (h + h));
    CHECK(checkpoint_bytes(s) == 14 * trained);
    const Summary out = run_scenario(s, test::model_cache(), {}).summary;
    const double frozen = 2 * (4 * kLayer + 4 * 4 * h + 2 * kTable);
    CHECK(out.find("checkpoint_load_s")->value == doctest::Approx((14 * trained + frozen) / 10e9));
    CHECK(out.find("trained_parameters")->value == trained);
}

TEST_CASE("adapters of pipelines, and every schedule that splits the backward pass, train on") {
    for (const char* schedule : {"1f1b", "gpipe", "zb-h1"}) {
        const std::string plan = fmt::format(
            "pipeline: 4, data: 2, micro_batch: 1, global_batch: 16, schedule: {}, adapters: {{rank: 16, modules: "
            "'qkv, output'}}",
            schedule);
        const TrainingResult one = train(scenario_of(plan));
        CHECK(one.iteration_s > 0);
        CHECK(one.hardware_flops < train(scenario_of(plan.substr(0, plan.find(", adapters")))).hardware_flops);
    }
}

TEST_CASE("what cannot be honoured of adapters is refused with its line, all at once") {
    const auto errors = [](const std::string& adapters, const std::string& rest = "") {
        try {
            (void)train(scenario_of(kPlan + ", adapters: {" + adapters + "}" + rest));
        } catch (const ConfigError& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    CHECK(errors("modules: qkv").find("rank") != std::string::npos);
    CHECK(errors("rank: 16, modules: ''").find("nothing is trained") != std::string::npos);
    CHECK(errors("rank: 16, modules: 'querry'").find("did you mean 'query'?") != std::string::npos);
    const std::string twice = errors("rank: 16, modules: 'qkv, query, down, down'");
    CHECK(twice.find("'query' is a part of 'qkv'") != std::string::npos);
    CHECK(twice.find("'down' twice") != std::string::npos);
    CHECK(errors("rank: 16, base: nf4", ", precision: fp8").find("widened to 16 bits") != std::string::npos);
    CHECK(errors("rank: 16", ", compression: {density: 0.01}").find("compression") != std::string::npos);
}
