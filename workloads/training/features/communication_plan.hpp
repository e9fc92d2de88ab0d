#pragma once
// What a plan says of communication beyond degrees: who shares weights, gradients and optimizer states, in how many bits they
// travel, how rarely islands of replicas meet, and which gradients are left out.

#include "sim/base/namespaces.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::config {
class Fields;
}

namespace orrery::training {

struct PlanSpec;

/// Partitions of ZeRO-3, each over neighbours among the ranks that hold the same weights.
/// Sources: Rajbhandari et al., "ZeRO", SC20; Wang et al., "ZeRO++", arXiv:2306.10209, sections 3.1 to 3.3 (quantised weights,
/// secondary partition, quantised gradients by all-to-all); Xu et al., arXiv:2501.04266 (three levels).
struct ShardingPlan {
    bool given = false;
    std::int64_t weights = 0;    ///< ranks that share the 16-bit weights; 0: all
    std::int64_t gradients = 0;  ///< ranks that share the gradients; 0: all
    std::int64_t optimizer = 0;  ///< ranks that share the optimizer states; 0: all
    std::int64_t secondary =
        0;  ///< ranks that share a second copy of the weights, for backward passes; 0: there is none
    std::int64_t weight_bits = 0;    ///< of a gathered weight on the wire; 0: 16, as they are
    std::int64_t gradient_bits = 0;  ///< of a gradient on the wire; 0: as gradient_precision
    std::int64_t block = 2048;       ///< quantised values that share one 32-bit scale
    std::int64_t prefetch = 0;       ///< units gathered ahead of the one that computes; 0: two
};

/// Local steps of islands of replicas, which meet every so many steps.
/// Sources: Stich, "Local SGD", ICLR 2019; Sun et al., "CO2", ICLR 2024 (one round late); Douillard et al., "Streaming DiLoCo",
/// arXiv:2501.18512 (fragments, overlap, bits).
struct OuterPlan {
    bool given = false;
    std::int64_t workers = 1;    ///< islands that the replicas divide into, neighbours each
    std::int64_t steps = 1;      ///< inner steps from one exchange of a weight to the next
    std::int64_t fragments = 1;  ///< parts of the model that are exchanged one after another
    std::int64_t overlap = 0;    ///< inner steps after which an exchange is waited for
    std::int64_t bits = 32;      ///< of an exchanged weight
};

/// Gradients of which the largest alone are exchanged, by a sparse all-gather; the others add up locally.
/// Source: Lin et al., "Deep Gradient Compression", ICLR 2018, arXiv:1712.01887.
struct CompressionPlan {
    bool given = false;
    double density = 0.001;        ///< share of the gradients that is sent
    std::int64_t value_bits = 32;  ///< of one that is sent
    std::int64_t index_bits = 32;  ///< that tell where it belongs
    double dense = 0;              ///< share of the weights whose gradients are exchanged whole: norms and biases
    double sample = 0.01;          ///< share of the gradients that the threshold is estimated from; 1: exact
};

void describe(Fields& fields, ShardingPlan& sharding);
void describe(Fields& fields, OuterPlan& outer);
void describe(Fields& fields, CompressionPlan& compression);

/// What cannot be in these sections: never, and where degrees do not divide.
struct PlanProblems {
    std::vector<std::string> refused;
    std::vector<std::string> unfit;
};
[[nodiscard]] PlanProblems communication_problems(const PlanSpec& plan, bool has_experts);

/// Ranks that share each kind of state, as ZeRO or `sharding` says; 1: each has it whole.
struct ShardDegrees {
    std::int64_t weights = 1;
    std::int64_t gradients = 1;
    std::int64_t optimizer = 1;
    std::int64_t secondary = 0;  ///< of the second copy of the weights; 0: there is none
};
[[nodiscard]] ShardDegrees degrees_of(const PlanSpec& plan);

/// Bytes on the wire of a gathered weight and of a reduced gradient, with their part of a scale.
[[nodiscard]] double weight_wire_bytes(const PlanSpec& plan);
[[nodiscard]] double gradient_wire_bytes(const PlanSpec& plan);
/// Layers whose gathered weights a rank has room for.
[[nodiscard]] double gathered_layers(const PlanSpec& plan);

/// Payload of the dense all-reduce and of the sparse all-gather over `ranks`, B, of so many weights of a rank.
struct CompressedBytes {
    double dense = 0;
    double sparse = 0;
};
[[nodiscard]] CompressedBytes compressed_bytes(const PlanSpec& plan, double weights, double ranks);
/// B through memory that choosing what is sent takes, and adding up what came.
[[nodiscard]] double compress_traffic(const PlanSpec& plan, double weights);
[[nodiscard]] double decompress_traffic(const PlanSpec& plan, double weights, double ranks);

}  // namespace orrery::training
