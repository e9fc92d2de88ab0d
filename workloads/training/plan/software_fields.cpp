#include "workloads/training/plan/spec.hpp"

namespace orrery::training {

void describe(Fields& fields, SoftwareSpec& software) {
    fields.text({"name", "name of the generation"}, software.name);
    fields.sourced({"kernel_slowdown", "kernel time in a training step over that in a microbenchmark", true, 0.5, 3},
                   Dimension::fraction, software.kernel_slowdown);
    fields.sourced(
        {"launch", "time of the host per kernel or collective of a pass, which long kernels hide", true, 0, 1e-2},
        Dimension::time, software.launch);
    fields.enumeration({"graphs",
                        "parts that are replayed as CUDA graphs: none; layers, except exchanges and products of "
                        "experts; all passes of an iteration"},
                       {"none", "layers", "iteration"}, software.graphs);
    fields.sourced({"expert_wait",
                    "device wait per expert layer for token counts on the host; shorter with graphs of layers, none "
                    "with iteration graphs or padded capacity",
                    false, 0, 1},
                   Dimension::time, software.expert_wait);
    fields.boolean(
        {"pipeline_sync", "synchronise host and device after each pipeline send or receive, unless overlap.pipeline"},
        software.pipeline_sync);
    fields.boolean({"blocking_launches",
                    "launch each kernel only after the previous one ends (CUDA_LAUNCH_BLOCKING=1), so that launch time "
                    "is never hidden"},
                   software.blocking_launches);
    fields.boolean(
        {"waits_at_ends", "stages wait for their sends while the pipeline fills and drains (needs overlap.pipeline)"},
        software.waits_at_ends);
    fields.sourced(
        {"step_overhead", "time per iteration beyond its passes, which graphs of an iteration hide", true, 0, 60},
        Dimension::time, software.step_overhead);
    fields.sourced({"update_bytes",
                    "optimizer traffic in bytes per updated weight, without the 6 that widen a 16-bit gradient (0: 42, "
                    "with Adam, unscaling, norm and zeroing)",
                    false, 0, 1000},
                   Dimension::number, software.update_bytes);
    fields.sourced(
        {"gradient_sweeps",
         "extra sweeps over all gradients per step, such as zeroing, checking, scaling or copying them", false, 0, 100},
        Dimension::number, software.gradient_sweeps);
    fields.boolean({"keeps_gradients",
                    "keep 16-bit gradients in addition to the 32-bit sums, which moves 26 instead of 10 bytes per "
                    "weight and micro-batch"},
                   software.keeps_gradients);
    fields.boolean({"fused_norms", "a norm is one kernel, with plan.fusion: eager too"}, software.fused_norms);
    fields.enumeration({"loss", "kernels of the loss, where the plan names none"},
                       {"separate", "compiled", "online", "fused", "chunked"}, software.loss);
    fields.enumeration({"attention", "attention kernel, where the plan names none"},
                       {"unfused", "flash", "flash2", "flash1"}, software.attention);
    fields.boolean({"fused_casts", "casts to fp8 by known scales are part of the norm before a product"},
                   software.fused_casts);
    fields.boolean(
        {"fused_activation_casts",
         "casts to fp8 by known scales are part of the activation function before a product, and of its backward pass"},
        software.fused_activation_casts);
    fields.sourced({"column_casts",
                    "share of the memory's rate that casts with scales of rows reach in the backward pass, where they "
                    "reduce over columns (0: all)",
                    false, 0, 1},
                   Dimension::fraction, software.column_casts);
    fields.boolean({"cuts_only",
                    "overlap.tensor: full hides what it cuts into one product, and neither sums of several products' "
                    "gradients nor inputs that are gathered again"},
                   software.cuts_only);
    fields.boolean({"whole_row_gathers",
                    "overlap.tensor: full does not cut gathers before products in 8 bits with scales of rows"},
                   software.whole_row_gathers);
    fields.sourced({"scan_efficiency",
                    "share of the vector units' 32-bit rate that kernels of a state-space scan reach at most; 0: as "
                    "measured for mamba_ssm",
                    false, 0, 1},
                   Dimension::fraction, software.scan_efficiency);
    fields.boolean({"rescales_products", "scale backward products with row scales in a separate kernel"},
                   software.rescales_products);
    fields.sourced(
        {"communication_units", "SMs or CUs that a collective takes from concurrent kernels", false, 0, 1000},
        Dimension::number, software.communication_units);
    fields.sourced(
        {"tensor_communication_units",
         "SMs or CUs that a tensor-parallel collective takes from concurrent kernels, with overlap.tensor: full", false,
         0, 1000},
        Dimension::number, software.tensor_communication_units);
    fields.sourced({"gradient_bucket", "weights whose gradients travel together (0: 40 million)", false, 0, 1e12},
                   Dimension::number, software.gradient_bucket);
    fields.sourced(
        {"gradient_bucket_per_rank",
         "weights per data-parallel rank whose gradients travel together, where that is more than gradient_bucket",
         false, 0, 1e9},
        Dimension::number, software.gradient_bucket_per_rank);
    fields.boolean({"fused_gradient_accumulation", "weight gradients are added in the GEMM's epilogue"},
                   software.fused_gradient_accumulation);
    fields.boolean({"fused_biases", "biases are added, and their gradients summed, by the kernels of products"},
                   software.fused_biases);
    fields.boolean({"repeats_keys", "grouped keys and values are copied for every query head before attention"},
                   software.repeats_keys);
    fields.boolean({"copies_sequences",
                    "sequence parallelism copies gathered or summed activations, as the sequence is not the outermost "
                    "dimension; not where overlap.tensor cuts them"},
                   software.copies_sequences);
    fields.boolean({"splits_heads",
                    "copy queries, keys and values to separate tensors before fused attention, and merge their "
                    "gradients after it"},
                   software.splits_heads);
    fields.boolean(
        {"scatter_gather_pipeline", "tensor-parallel ranks each send their share of an activation between stages"},
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
    fields.sourced({"reserved_memory", "memory per GPU for context and library buffers", true, 0, 1e12},
                   Dimension::bytes, software.reserved_memory);
    fields.section({"allocation", "rules by which the software allocates memory, in addition to the plan"},
                   [&](Fields& inner) { describe(inner, software.allocation); });
}

}  // namespace orrery::training
