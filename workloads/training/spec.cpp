#include "workloads/training/spec.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::inline training {

void describe(Fields& fields, PlanSpec& plan) {
    fields.integer({"tensor", "tensor-parallel degree", false, 1, 1024}, plan.tensor);
    fields.integer({"pipeline", "pipeline stages", false, 1, 10000}, plan.pipeline);
    fields.integer({"data", "data-parallel degree", false, 1, 1'000'000}, plan.data);
    fields.integer({"context", "context-parallel degree", false, 1, 1024}, plan.context);
    fields.integer({"micro_batch", "sequences in a micro-batch", false, 1, 1'000'000}, plan.micro_batch);
    fields.integer({"global_batch", "sequences in a step, over all ranks", true, 1, 1'000'000'000}, plan.global_batch);
    const auto& schedules = schedule_table();
    std::vector<std::string> names;
    for (const PipelineSchedule* row : schedules) {
        names.emplace_back(row->name);
    }
    auto index =
        static_cast<std::size_t>(std::find(schedules.begin(), schedules.end(), plan.schedule) - schedules.begin());
    fields.choice({"schedule", "pipeline schedule"}, names, index);
    plan.schedule = schedules[index];
    fields.integer({"chunks", "model chunks a stage, where the schedule takes several", false, 1, 1000}, plan.chunks);
    fields.enumeration({"recompute", "activation recomputation"}, {"none", "selective", "half", "full"},
                       plan.recompute);
    fields.boolean({"sequence_parallel", "shard norms and dropout over the tensor-parallel group"},
                   plan.sequence_parallel);
    fields.integer({"zero", "ZeRO stage (3: FSDP)", false, 0, 3}, plan.zero);
    fields.integer({"shard", "ranks that share weights under ZeRO-3; 0: all", false, 0, 1'000'000}, plan.shard);
    fields.enumeration({"precision", "of matrix products"}, training_precision_names(), plan.precision);
    fields.group(plan.scaling_given, [&](Fields& same) {
        same.enumeration(
            {"fp8_scaling", "scales of fp8 operands: a tensor's of earlier steps, or of this one, or a row's"},
            {"delayed", "current", "row"}, plan.fp8_scaling);
    });
    fields.enumeration({"attention", "attention kernel"}, {"unfused", "flash", "flash2"}, plan.attention);
    fields.enumeration({"fusion", "elementwise kernels: fused, or one an operation"}, {"fused", "eager"}, plan.fusion);
    fields.enumeration({"gradient_precision", "of gradients on the wire"}, training_precision_names(),
                       plan.gradient_precision);
    fields.group(plan.gather_given, [&](Fields& same) {
        same.enumeration(
            {"gather_precision",
             "of what tensor-parallel ranks gather (sequence_parallel); fp8: products take it as it comes"},
            training_precision_names(), plan.gather_precision);
    });
    fields.section({"overlap", "which communication hides behind computation"}, [&](Fields& inner) {
        inner.enumeration({"tensor", "none; backward: behind weight gradients; full: also chunked into GEMMs"},
                          {"none", "backward", "full"}, plan.overlap_tensor);
        inner.boolean({"pipeline", "stages do not wait for their sends"}, plan.overlap_pipeline);
        inner.boolean({"data", "gradient reduction starts as soon as a chunk's gradients are final"},
                      plan.overlap_data);
        inner.boolean({"parameters", "weights of ZeRO-1 are gathered behind the first forward passes"},
                      plan.overlap_parameters);
    });
}

void describe(Fields& fields, SoftwareSpec& software) {
    fields.text({"name", "name of the generation"}, software.name);
    fields.sourced({"kernel_slowdown", "kernel time in a training step over that in a microbenchmark", true, 0.5, 3},
                   Dimension::fraction, software.kernel_slowdown);
    fields.sourced(
        {"launch", "time of the host per kernel or collective of a pass, which long kernels hide", true, 0, 1e-2},
        Dimension::time, software.launch);
    fields.boolean({"pipeline_sync", "the host waits for the device where a stage has sent or received"},
                   software.pipeline_sync);
    fields.sourced({"step_overhead", "time per iteration beyond its passes", true, 0, 60}, Dimension::time,
                   software.step_overhead);
    fields.boolean({"fused_casts", "casts to fp8 by known scales are part of the norm or activation before a product"},
                   software.fused_casts);
    fields.sourced(
        {"communication_units", "SMs or CUs that a collective takes from the kernels beside it", false, 0, 1000},
        Dimension::number, software.communication_units);
    fields.sourced(
        {"tensor_communication_units", "the same of collectives that overlap.tensor: full cuts", false, 0, 1000},
        Dimension::number, software.tensor_communication_units);
    fields.sourced({"gradient_bucket", "weights whose gradients travel together (0: 40 million)", false, 0, 1e12},
                   Dimension::number, software.gradient_bucket);
    fields.sourced({"gradient_bucket_per_rank", "the same per data-parallel rank, where that is more", false, 0, 1e9},
                   Dimension::number, software.gradient_bucket_per_rank);
    fields.boolean({"fused_gradient_accumulation", "weight gradients are added in the GEMM's epilogue"},
                   software.fused_gradient_accumulation);
    fields.boolean({"scatter_gather_pipeline", "each tensor-parallel rank sends its share between stages"},
                   software.scatter_gather_pipeline);
    fields.integer({"gathers_per_layer", "collectives that ZeRO-3 gathers a layer's weights with", false, 1, 1000},
                   software.gathers_per_layer);
    fields.integer({"reductions_per_layer", "collectives that ZeRO-3 reduces a layer's gradients with", false, 1, 1000},
                   software.reductions_per_layer);
    fields.boolean({"unpacks_gathers", "ZeRO-3 copies gathered weights out of the buffer of the collective"},
                   software.unpacks_gathers);
    fields.boolean({"packs_gradients", "ZeRO-2 and 3 copy gradients into the buffer of the collective"},
                   software.packs_gradients);
    fields.boolean({"regathers", "full recomputation gathers weights that its backward pass gathers again"},
                   software.regathers);
    fields.sourced(
        {"piece_time", "host time for each rank's piece of a collective over a list of tensors", false, 0, 1e-3},
        Dimension::time, software.piece_time);
    fields.sourced({"interval",
                    "half-width of the 90 % interval of an iteration time that the software leaves (0: of all presets)",
                    false, 0, 2},
                   Dimension::fraction, software.interval);
    fields.sourced({"reserved_memory", "memory a GPU for context and library buffers", true, 0, 1e12}, Dimension::bytes,
                   software.reserved_memory);
}

double SoftwareSpec::bucket_weights(double ranks) const {
    constexpr double kMegatronCore = 40e6;  // DistributedDataParallelConfig.bucket_size: max(40e6, 1e6 * ranks)
    const double least = gradient_bucket.value > 0 ? gradient_bucket.value : kMegatronCore;
    return std::max(least, gradient_bucket_per_rank.value * ranks);
}

// Of an iteration: lists of more would fill the memory before the tasks made of them are counted.
constexpr double kMostPasses = 1e8;

void check(const ModelSpec& model, const PlanSpec& plan, std::uint32_t gpus, const Mark& mark) {
    if (model.heads % model.kv_heads != 0) {
        throw ConfigError(
            {mark.error(fmt::format("kv_heads ({}) must divide heads ({})", model.kv_heads, model.heads))});
    }
    if (model.experts.count > 0 || model.latent.kv_rank > 0 || model.full_every > 0) {
        throw ConfigError({mark.error(
            "training knows no mixtures of experts, latent attention or mixed windows yet; 'kind: serving' does")});
    }
    const auto require = [](bool fits, const std::string& text) {
        if (!fits) {
            throw InfeasibleError("the plan does not divide: " + text);
        }
    };
    require(plan.ranks() == gpus,
            fmt::format("tensor {} x pipeline {} x data {} x context {} = {} ranks, but the cluster "
                        "has {} GPUs",
                        plan.tensor, plan.pipeline, plan.data, plan.context, plan.ranks(), gpus));
    require(model.heads % plan.tensor == 0,
            fmt::format("tensor {} must divide the {} heads", plan.tensor, model.heads));
    require(model.ffn % plan.tensor == 0,
            fmt::format("tensor {} must divide the feed-forward width {}", plan.tensor, model.ffn));
    require(plan.global_batch % (plan.micro_batch * plan.data) == 0,
            fmt::format("micro_batch {} x data {} must divide global_batch {}", plan.micro_batch, plan.data,
                        plan.global_batch));
    const double passes = 2.0 * static_cast<double>(plan.micro_batches()) * static_cast<double>(plan.pipeline) *
                          static_cast<double>(plan.chunks);
    if (passes > kMostPasses) {
        throw InfeasibleError(
            fmt::format("{} micro-batches through {} stages are {:.3g} passes, and at most {:.3g} are simulated: raise "
                        "micro_batch or "
                        "data, or lower global_batch",
                        plan.micro_batches(), plan.pipeline, passes, kMostPasses));
    }
    require(model.sequence % plan.context == 0,
            fmt::format("context {} must divide the sequence {}", plan.context, model.sequence));
    const std::int64_t chunks = plan.schedule->chunked ? plan.chunks : 1;
    require(plan.pipeline * chunks <= model.layers + 2,
            fmt::format("pipeline {} x chunks {} is more than the {} layers", plan.pipeline, chunks, model.layers));
    if (plan.gather_given &&
        (!plan.sequence_parallel ||
         (bytes_of(plan.gather_precision) < 2 && bytes_of(plan.precision) > bytes_of(plan.gather_precision)))) {
        throw ConfigError(
            {mark.error("gather_precision needs sequence_parallel: true, and products that take what is gathered: "
                        "precision: fp8")});
    }
    if (plan.scaling_given && plan.precision != Precision::fp8) {
        throw ConfigError({mark.error("fp8_scaling needs precision: fp8")});
    }
    if (plan.chunks != chunks) {
        std::vector<std::string> chunked;
        for (const PipelineSchedule* row : schedule_table()) {
            if (row->chunked) {
                chunked.emplace_back(row->name);
            }
        }
        throw ConfigError({mark.error(fmt::format("'chunks' above 1 needs schedule: {}", fmt::join(chunked, " or ")))});
    }
    const std::string problem = plan.schedule->problem(plan.shape());
    require(problem.empty(), problem);
    if (plan.zero == 3 && plan.pipeline > 1) {
        throw ConfigError({mark.error("zero: 3 with pipeline > 1 is not supported: use zero: 1 or 2")});
    }
    const std::int64_t shard = plan.shard > 0 ? plan.shard : plan.data * plan.context;
    require(plan.data * plan.context % shard == 0,
            fmt::format("shard {} must divide data x context {}", shard, plan.data * plan.context));
}

}  // namespace orrery::inline training
