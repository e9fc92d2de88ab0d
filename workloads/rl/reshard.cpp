#include "workloads/rl/reshard.hpp"

#include "sim/base/error.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace orrery::rl {

namespace {

// The share of everything that band `i` of `n` and band `k` of `m` have in common.
double common(std::int64_t i, std::int64_t n, std::int64_t k, std::int64_t m) {
    const std::int64_t low = std::max(i * m, k * n);
    const std::int64_t high = std::min((i + 1) * m, (k + 1) * n);
    return high > low ? static_cast<double>(high - low) / static_cast<double>(n * m) : 0;
}

class Resharding {
  public:
    Resharding(const Fabric& fabric, const WeightHolders& from) : fabric_(fabric), from_(from) {}

    // Bytes of one rank of training's shard, to a GPU.
    void fetch(std::int64_t stage, std::int64_t shard, GpuId to, double bytes) {
        if (from_.shared) {
            for (std::int64_t replica = 0; replica < from_.replicas; ++replica) {
                send(from_.at(stage, replica, shard), to, bytes / static_cast<double>(from_.replicas));
            }
            return;
        }
        GpuId best;
        std::tuple<int, double, std::uint32_t> least;
        for (std::int64_t replica = 0; replica < from_.replicas; ++replica) {
            const GpuId gpu = from_.at(stage, replica, shard);
            const int far = gpu == to ? 0 : fabric_.domain_of(gpu) == fabric_.domain_of(to) ? 1 : 2;
            const std::tuple<int, double, std::uint32_t> cost{far, sent_[gpu.value()], gpu.value()};
            if (!best.valid() || cost < least) {
                best = gpu;
                least = cost;
            }
        }
        ORRERY_ASSERT(best.valid());  // some replica holds the shard
        send(best, to, bytes);
    }

    [[nodiscard]] std::vector<WeightMove> moves() const {
        std::vector<WeightMove> out;
        for (const auto& [pair, bytes] : moves_) {
            ORRERY_ASSERT(pair.first != pair.second && bytes > 0);
            out.push_back({GpuId(pair.first), GpuId(pair.second), bytes});
        }
        return out;
    }

  private:
    void send(GpuId from, GpuId to, double bytes) {
        if (from != to) {
            ORRERY_ASSERT(bytes > 0);
            sent_[from.value()] += bytes;
            moves_[{from.value(), to.value()}] += bytes;
        }
    }

    const Fabric& fabric_;
    const WeightHolders& from_;
    std::map<std::uint32_t, double> sent_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, double> moves_;
};

}  // namespace

std::vector<WeightMove> reshard(const Fabric& fabric, const WeightHolders& from, const WeightHolders& to,
                                double model_bytes) {
    Resharding out(fabric, from);
    for (std::int64_t replica = 0; replica < to.replicas; ++replica) {
        for (std::int64_t stage = 0; stage < to.pipeline; ++stage) {
            for (std::int64_t shard = 0; shard < to.shards(); ++shard) {
                double held = 0;
                for (std::int64_t s = 0; s < from.pipeline; ++s) {
                    for (std::int64_t t = 0; t < from.shards(); ++t) {
                        const double share = common(stage, to.pipeline, s, from.pipeline) *
                                             common(shard / to.tensor, to.expert, t / from.tensor, from.expert) *
                                             common(shard % to.tensor, to.tensor, t % from.tensor, from.tensor);
                        ORRERY_ASSERT(share >= 0 && share <= 1);
                        held += share;
                        if (share > 0) {
                            out.fetch(s, t, to.at(stage, replica, shard), share * model_bytes);
                        }
                    }
                }
                // The shards of training make up that of the generator, without gap or overlap.
                ORRERY_ASSERT(std::abs(held * static_cast<double>(to.pipeline * to.shards()) - 1) < 1e-9);
            }
        }
    }
    return out.moves();
}

}  // namespace orrery::rl
