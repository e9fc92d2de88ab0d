#pragma once
// What the software of an inference engine adds to its kernels.
//
// Claims: an iteration takes its kernels, a little longer than each alone in a microbenchmark, and small kernels that are not
// modelled, a fixed time per layer; where no captured graph is replayed, at least what the host takes to launch every layer's
// kernels (a graph computes as many sequences as it was captured for; graphs between two attentions leave little to launch); and
// the host's own work (scheduling, input tables, sampling, detokenisation), which waits for the device and lets it wait, or runs
// beside it where the engine schedules ahead (what comes meanwhile then misses that iteration: cluster/pipelines.hpp).
// Engines that compile their models, or fuse by hand, run norms, rotary embeddings and activations in kernels of their own (`compiled`):
// the public rows of A100 and H100 time those of 2023 one by one, 5 to 6 us each, where vLLM 0.19 takes 2 (LLMServingSim, RTX 4090), so
// that none takes longer than a kernel's start and its bytes. Libraries that try their kernels for each shape (`tuned`) do not take
// longer for a few rows than for more, as the public tables do where vLLM's fp8 products change kernels (17 to 32 rows, 65 to 128, 129 to 256).
// Scope: one set of constants an engine version, whatever model and device.
// Limits: host times are those of the machines that the constants were fitted on; prompts and decodes of one iteration are
// launched alike.
// Sources: each preset in workloads/data/engines names them; vllm-project/vllm, docs/design/torch_compile.md (`compiled` since 0.8);
// NVIDIA/TensorRT-LLM, autotuner.py (tactics tried by powers of two of the tokens); fitted ones were fitted on the declared half of validation/serving.
// Validated by `orrery validate serving` and tests/workloads/serving_price_test.cpp.

#include "sim/config/fields.hpp"
#include "sim/device/kernel_sets.hpp"
#include "workloads/serving/engine/memory_rules.hpp"

#include <string>

namespace orrery::serving {

/// Half-widths of log(measured / predicted) that nine of ten measured runs keep, by mean latency; 0: not known.
struct LatencyWidths {
    Sourced<double> tpot;
    Sourced<double> ttft;
    Sourced<double> end_to_end;
};

struct HostSpec {
    std::string name;
    Sourced<double> step;      ///< s of the host an iteration
    Sourced<double> sequence;  ///< s of the host for each sequence in it
    Sourced<double> request;   ///< s from a client to the engine's queue, and back with the first token
    Sourced<double> frontend;  ///< s that the front end works on a request before the engine sees it, one after another
    Sourced<double> prompt_token;         ///< s of that on each token of its prompt: tokenised, copied
    bool shared_front_end = false;        ///< one is before all replicas
    Sourced<double> layer_launch;         ///< s of the host to launch the kernels of a layer one by one
    Sourced<double> latent_launch;        ///< s of the host beyond that, to launch latent attention
    Sourced<double> experts_launch;       ///< s of the host beyond that, to launch those of routed experts
    Sourced<double> layer_gap;            ///< s of the device a layer: small kernels that are not modelled
    Sourced<double> slowdown{1, "", ""};  ///< kernels in an engine over the same in a microbenchmark
    KernelSets kernels;                   ///< that it runs where a device has them
    bool compiled =
        false;  ///< kernels bound by memory are compiled or fused: none takes longer than its start and its bytes
    bool tuned = false;    ///< products run the fastest kernel: none takes longer than one of up to four times its rows
    bool overlap = false;  ///< the host prepares an iteration while the device runs the one before
    std::int64_t graph_sequences = 0;  ///< iterations of decodes alone up to this size replay a graph
    std::int64_t graph_tokens = 0;     ///< others of up to this many tokens replay one graph between two attentions
    std::int64_t graph_regular = 0;    ///< graphs exist for 1, 2, 4, multiples of 8 up to this, and powers of two
                                       ///< beyond; 0: for every size
    MemoryRules memory;                ///< what it takes of a device before its cache
    bool has_interval = false;
    LatencyWidths interval;  ///< of its dense models
    bool has_experts_interval = false;
    LatencyWidths experts_interval;  ///< of its mixtures of experts
};

inline constexpr PresetKind kEnginePresets{"engine", "workloads/data/engines"};
void describe(Fields& fields, HostSpec& host);

/// Sequences that an iteration of `sequences` decodes alone computes: those of the smallest graph that has room for them.
[[nodiscard]] std::uint32_t graph_size(const HostSpec& host, std::uint32_t sequences);

/// What an iteration has the host do.
struct IterationShape {
    double layers = 0;
    double routed_layers = 0;  ///< of them, those with routed experts
    double sequences = 0;
    double tokens = 0;
    bool prompts = false;
    double latent_layers = 0;  ///< of the layers, those with latent attention
};
/// Time of an iteration in s whose kernels alone take `kernels` s.
[[nodiscard]] double iteration_seconds(const HostSpec& host, double kernels, const IterationShape& shape);

}  // namespace orrery::serving
