#pragma once
// Memory of a rank by kind, and the error when it does not fit.
//
// Claims: weights, gradients and optimizer states of a stage under ZeRO 0 to 3; activations a layer after Korthikanti
// et al., arXiv:2205.05198, equations 1 to 6, times the micro-batches that the schedule holds at its peak. Routed experts are
// divided by their own mapping, their optimizer states over the ranks that hold the same experts; a layer of them keeps what
// the rank with the most wanted experts gets: its rows before and after each product. A layer of a hybrid keeps half of what is around a
// whole layer, and its part (state_space.hpp). An encoder keeps what its layers do, at the peak of the passes of its own part
// (encoder.hpp). Limits: fragmentation and library buffers are one constant of the software; 16-bit weights and fp32 optimizer states.

#include "workloads/training/plan/memory_use.hpp"
#include "workloads/training/plan/spec.hpp"

namespace orrery::training {

/// `layers`: of the stage; `in_flight`: micro-batch passes of one chunk held at the peak (of `chunks` a stage); `encoded`: micro-batches
/// whose images it then holds.
[[nodiscard]] MemoryUse memory_of(const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software,
                                  const LayerMix& layers, bool first_stage, bool last_stage, double in_flight,
                                  double encoded = 0);

/// Every stage's, from the first. `held`: micro-batch passes of one chunk that each holds at its peak; none: as its schedule says.
[[nodiscard]] std::vector<MemoryUse> memory_by_stage(const ModelSpec& model, const PlanSpec& plan,
                                                     const SoftwareSpec& software, std::vector<double> held = {});

/// Micro-batches whose activations each stage may hold under `schedule: search`. Throws InfeasibleError that names the first stage
/// that may not hold one.
[[nodiscard]] std::vector<std::uint32_t> most_in_flight(const ModelSpec& model, const PlanSpec& plan,
                                                        const SoftwareSpec& software);

/// Of running out of a memory of so many bytes: the need is log-normal around what is predicted.
[[nodiscard]] double odds_of_running_out(const MemoryUse& use, double capacity, const SoftwareSpec& software);
/// Odds beyond which a plan is refused, and below which nothing is said of them.
inline constexpr double kRefusedOdds = 0.95;
inline constexpr double kNamedOdds = 0.05;

/// Throws InfeasibleError that names the first stage that runs out of its `capacity` of bytes by odds above kRefusedOdds, and the changes of the plan
/// (sequence parallelism, ZeRO, recomputation, micro-batch, context, tensor and pipeline degrees on the same GPUs) that were
/// tried and make it fit: single ones first, else together.
void require_fits(const std::vector<MemoryUse>& stages, const std::vector<double>& capacity, const ModelSpec& model,
                  const PlanSpec& plan, const SoftwareSpec& software);

/// B of activations that a rank keeps of the encoder and its projector while it holds the images of so many micro-batches.
[[nodiscard]] double encoder_activations(const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software,
                                         double in_flight);

}  // namespace orrery::training
