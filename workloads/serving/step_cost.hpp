#pragma once
// How long an iteration of an engine replica takes.
//
// Claims: an iteration runs its new tokens through every layer once: products over all tokens together, attention for each
// prompt piece over its own context and for all decoding sequences at their mean context; tensor-parallel ranks meet twice a
// layer in an all-reduce; each iteration costs the host a fixed time and a time for every sequence.
// Scope: dense transformers, MHA and GQA, 16-bit or quantised weights and caches as the device's cost model prices them.
// Limits: decoding sequences are priced at their mean context (attention time is nearly linear in it); host work is not hidden
// behind the device.
// Sources: as workloads/training/pass_cost.hpp; Agrawal et al., "Vidur", MLSys 2024 (operations of an iteration).
// Validated by tests/workloads/serving_test.cpp.

#include "sim/device/cost_model.hpp"
#include "sim/network/collective.hpp"
#include "workloads/serving/sequence.hpp"
#include "workloads/training/spec.hpp"

#include <memory>

namespace orrery {

class StepCost {
  public:
    virtual ~StepCost() = default;
    [[nodiscard]] virtual double seconds(const Batch& batch) = 0;
};

/// fixed + token x new tokens + context x tokens that decoding sequences look back on; for closed forms.
class AffineStep final : public StepCost {
  public:
    AffineStep(double fixed_s, double token_s, double context_s)
        : fixed_(fixed_s), token_(token_s), context_(context_s) {}
    [[nodiscard]] double seconds(const Batch& batch) override;

  private:
    double fixed_, token_, context_;
};

struct ServingModel {
    const ModelSpec& model;
    const CostModel& device;
    const Fabric& fabric;
    const CollectiveModel& collectives;
    std::vector<GpuId> gpus;  ///< of the replica: its tensor-parallel group
    Precision weights = Precision::bf16;
    Precision cache = Precision::bf16;
    double block = 16;             ///< tokens of a cache block
    double step_overhead = 0;      ///< s of the host an iteration
    double sequence_overhead = 0;  ///< s of the host a sequence and iteration
    std::int64_t layers = 0;       ///< of a pipeline stage; 0: all
    bool head = true;              ///< the stage has the LM head
};

/// Prices with a device's cost model; every product is priced once for each number of tokens.
class ModelStep final : public StepCost {
  public:
    explicit ModelStep(const ServingModel& model);
    [[nodiscard]] double seconds(const Batch& batch) override;

    /// Parts of an iteration, for checks: products and small kernels over all layers for this many tokens ...
    [[nodiscard]] double dense_seconds(std::uint32_t tokens);
    /// ... attention of one sequence's piece, or of `sequences` decoding ones, over all layers ...
    [[nodiscard]] double attention_seconds(double sequences, double queries, double keys) const;
    /// ... and the LM head for this many sequences.
    [[nodiscard]] double head_seconds(std::uint32_t sequences);

  private:
    [[nodiscard]] double product(double m, double n, double k) const;
    [[nodiscard]] double price_dense(double tokens) const;

    ServingModel m_;
    double t_;  ///< tensor-parallel degree
    double layers_;
    std::vector<double> dense_;  ///< by tokens; below 0: not priced yet
    std::vector<double> head_;   ///< by sequences
};

/// Bytes of keys and values of one token over all layers on all ranks of a replica.
[[nodiscard]] double cache_bytes_per_token(const ModelSpec& model, Precision cache);
/// Bytes of weights on one rank of a pipeline stage: the first has the embedding, the last the LM head.
[[nodiscard]] double weight_bytes_per_rank(const ModelSpec& model, Precision weights, std::int64_t tensor,
                                           std::int64_t stage = 0, std::int64_t stages = 1);
/// Layers of a pipeline stage: as even as can be, the first stages have one more where it does not divide.
[[nodiscard]] constexpr std::int64_t stage_layers(std::int64_t layers, std::int64_t stage, std::int64_t stages) {
    return layers / stages + (stage < layers % stages ? 1 : 0);
}

}  // namespace orrery
