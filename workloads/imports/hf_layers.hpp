#pragma once
// Which layers of a Hugging Face model attend to what and have experts, as far as a description can say it.
//
// Claims: layers with a window or in chunks, gated delta nets and Kimi delta attention beside full attention, patterns
// of attention, Mamba-2's
// state-space layers, feed-forwards and experts (layers that mix tokens and have a feed-forward are two of a pattern),
// the order of layers with
// experts. Other layers that keep a state in place of keys and values (state-space layers of before Mamba-2 or beside
// experts in some layers,
// other linear attention, short convolutions) are priced as attention through a window whose keys and values are as large as their state,
// with as many query heads as give attention the weights of those layers' projections: memory and weights are right, and the time of their
// scan is that of a short attention. Each such choice is noted.

#include "workloads/imports/hf_values.hpp"

#include <cstdint>
#include <string>

namespace orrery::imports {

/// Sizes that decide layers, as the file has them.
struct HfSizes {
    std::int64_t layers = 0;
    std::int64_t hidden = 0;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;  ///< 0: as heads
    std::int64_t head_dim = 0;  ///< 0: hidden / heads
    std::int64_t ffn = 0;       ///< 0: 4 x hidden
    std::int64_t window = 0;
    std::int64_t full_every = 0;
    bool output_gate = false;
    std::string linear;       ///< layers of linear attention, as one YAML value
    std::string pattern;      ///< of a hybrid that is described as one
    std::string state_space;  ///< its layers, as one YAML value
};

/// Sets what the layers' kinds say. `latent`: values of a token in a latent cache; 0: attention has none.
void read_layers(HfValues& config, std::int64_t latent, HfSizes& sizes, ImportNotes& notes);

/// Keys of `experts` that say which layers have them: ", dense_layers: 1, every: 2".
[[nodiscard]] std::string read_expert_layers(HfValues& config, std::int64_t layers, ImportNotes& notes);

}  // namespace orrery::imports
