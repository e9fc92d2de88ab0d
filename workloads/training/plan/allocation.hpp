#pragma once
// How training software allocates memory, beside what the plan says.
//
// Claims: software with `moments` frees gradients after each step and buffers when their last reader has run, so that the peak is the largest
// of the moments of a step (memory/moments.hpp); other software holds all kinds of memory at once. The types of weights, gradients and
// optimizer states are those of `plan.states` or the software's.

#include "sim/config/fields.hpp"

#include <cstdint>

namespace orrery::training {

/// Types that trained weights, their gradients and Adam's two moments are kept in:
///   mixed   16-bit weights and gradients beside 32-bit weights and moments (Apex O2, Megatron-LM, DeepSpeed)
///   narrow  all in 16 bits (a model that is loaded in bf16 and trained as it is)
///   wide    all in 32 bits (autocast, FSDP's MixedPrecision); products take copies in 16
enum class StateTypes : std::uint8_t { mixed, narrow, wide, software };

/// Whose code shards weights under ZeRO-3, which decides what stays gathered:
///   fsdp        FullyShardedDataParallel around each layer: the root's tables stay gathered from the forward to the backward pass
///   fsdp_whole  around the model alone: all weights are gathered
///   fsdp2       fully_shard on each layer and table; the unit that follows is gathered ahead
///   deepspeed   ZeRO-3: up to stage3_max_live_parameters weights
enum class ShardingCode : std::uint8_t { none, fsdp, fsdp_whole, fsdp2, deepspeed };

struct AllocationSpec {
    bool moments = false;
    StateTypes states = StateTypes::mixed;  ///< never software
    ShardingCode sharding = ShardingCode::none;
    bool wide_adapters = false;     ///< adapters, their gradients and states have 32 bits whatever the model has
    bool unfused_modules = false;   ///< layers run kernel by kernel, as Transformers writes them
    bool quantised_inputs = false;  ///< products with 4-bit weights keep a copy of their input
    bool wide_logits = false;       ///< logits are widened to 32 bits and copied one token further before the loss
    Sourced<double> step_copies;    ///< values per updated weight that the optimizer's kernels hold beside the states
    Sourced<double> idle;  ///< memory of freed blocks that the caching allocator keeps, over that of activations
    Sourced<double> idle_sharded;   ///< the same where ZeRO-3 gathers weights
    Sourced<double> communicators;  ///< B of collective libraries where a job has several GPUs
    Sourced<double> spread;         ///< standard deviation of log(needed / predicted); 0: that of all software
};

inline void describe(Fields& fields, AllocationSpec& of) {
    fields.boolean({"moments",
                    "free gradients after a step and buffers after their last use, so that the peak is the fullest "
                    "moment, not a sum"},
                   of.moments);
    fields.when(of.moments, "memory by moments (software.allocation.moments)", [&](Fields& same) {
        same.enumeration({"states", "types of trained weights, gradients and states where plan.states names none"},
                         {"mixed", "16-bit", "32-bit"}, of.states);
        same.enumeration({"sharding", "code that shards weights under ZeRO-3, which decides what stays gathered"},
                         {"none", "fsdp", "fsdp-whole", "fsdp2", "deepspeed"}, of.sharding);
        same.boolean({"wide_adapters", "adapters, their gradients and states have 32 bits, whatever the model has"},
                     of.wide_adapters);
        same.boolean(
            {"unfused_modules",
             "run layers unfused, as in Transformers: gates keep both factors, and experts run one after another"},
            of.unfused_modules);
        same.boolean({"quantised_inputs", "products with weights of 4 bits keep a copy of their input"},
                     of.quantised_inputs);
        same.boolean({"wide_logits", "logits are widened to 32 bits and copied one token further before the loss"},
                     of.wide_logits);
        same.sourced({"step_copies",
                      "temporary values per updated weight that optimizer kernels hold, in addition to the states",
                      false, 0, 16},
                     Dimension::number, of.step_copies);
        same.sourced(
            {"idle", "freed blocks that the caching allocator keeps, over the memory of activations", false, 0, 4},
            Dimension::fraction, of.idle);
        same.sourced(
            {"idle_sharded",
             "freed blocks that the caching allocator keeps with ZeRO-3, over the memory of activations", false, 0, 4},
            Dimension::fraction, of.idle_sharded);
        same.sourced({"communicators", "memory of collective libraries where a job has several GPUs", false, 0, 1e12},
                     Dimension::bytes, of.communicators);
    });
    fields.sourced({"spread",
                    "standard deviation of log(needed / predicted memory), for the odds of running out (0: of all "
                    "software)",
                    false, 0, 1},
                   Dimension::fraction, of.spread);
}

}  // namespace orrery::training
