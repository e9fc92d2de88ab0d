#pragma once
// A model of four layers whose weights are easy to count, for what trains few of its weights: adapters and slices of products.

#include "tests/support/scenarios.hpp"
#include "tools/driver/kinds/training.hpp"

#include <fmt/format.h>

#include <string>

namespace orrery::test::few_weights {

inline std::string text_of(const std::string& plan, const std::string& rest = "") {
    return fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 1, node: dgx-h100}}
model: {{layers: 4, hidden: 1024, heads: 16, kv_heads: 4, ffn: 4096, gated: true, vocabulary: 32000, sequence: 512, tied_embeddings: false}}
plan: {{{}}}
network: {{collectives: ideal}}
{})",
                       plan, rest);
}

inline Scenario scenario_of(const std::string& plan, const std::string& rest = "") {
    Scenario s = scenario(text_of(plan, rest));
    s.as<TrainingKind>().software.launch.value = 1e-6;  // no kernel waits for its host
    return s;
}

inline constexpr double h = 1024;
inline constexpr double kv = 256;
inline constexpr double ffn = 4096;
inline constexpr double kLayer = h * (h + 2 * kv) + h * h + 3 * h * ffn;  // weights of a layer's products
inline constexpr double kTable = 32000 * h;

inline const std::string kPlan = "data: 8, micro_batch: 1, global_batch: 8";

}  // namespace orrery::test::few_weights
