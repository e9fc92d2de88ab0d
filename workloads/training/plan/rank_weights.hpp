#pragma once
// Layers of a stage by their kinds, and the weights that a rank holds of them.

#include "sim/base/namespaces.hpp"

namespace orrery::training {

/// Layers of a stage, by what holds their weights.
struct LayerMix {
    double dense = 0;
    double experts = 0;
    double attention = 0, feed_forward = 0, state_space = 0;  ///< of a hybrid
    double encoder = 0;    ///< layers of the encoder before them, which total() leaves out
    double projector = 0;  ///< of the encoder, with its first product and positions
    [[nodiscard]] double total() const { return dense + experts + (attention + feed_forward + state_space); }
    LayerMix& operator+=(const LayerMix& other) {
        dense += other.dense;
        experts += other.experts;
        attention += other.attention;
        feed_forward += other.feed_forward;
        state_space += other.state_space;
        encoder += other.encoder;
        projector += other.projector;
        return *this;
    }
};
/// Trained weights of a rank: those that attention's mapping divides, and those of routed experts; what it holds frozen beside them.
struct RankWeights {
    double dense = 0;
    double experts = 0;
    double frozen = 0;  ///< B
    [[nodiscard]] double total() const { return dense + experts; }
    /// B of all of them as they are computed with.
    [[nodiscard]] double bytes() const { return 2 * total() + frozen; }
    RankWeights& operator+=(const RankWeights& other) {
        dense += other.dense;
        experts += other.experts;
        frozen += other.frozen;
        return *this;
    }
};

}  // namespace orrery::training
