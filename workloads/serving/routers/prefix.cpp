#include "workloads/serving/routers/prefix_index.hpp"

#include <algorithm>

namespace orrery::serving {

namespace {

// The replica that has most of the prompt in its cache takes it, when that is more than a share of the prompt; otherwise, and
// whenever the most loaded replica has more requests than the least loaded by both thresholds, the least loaded takes it.
// Source: the cache-aware policy of SGLang's router (balance_abs_threshold 64, balance_rel_threshold 1.5, cache_threshold
// 0.5), with each replica's cache (as events tell of it) instead of the router's approximation of it.
class Prefix final : public Router {
  public:
    struct Parameters {
        std::int64_t imbalance = 64;
        double relative_imbalance = 1.5;
        double cached = 0.5;
        PrefixIndexSpec index;

        void describe(Fields& fields) {
            fields.integer(
                {"imbalance", "load difference in requests beyond which the least loaded replica takes the request",
                 false, 0, 1 << 20},
                imbalance);
            fields.number(
                {"relative_imbalance", "ratio of the most to the least loaded replica that must be exceeded as well",
                 false, 1, 1000},
                relative_imbalance);
            fields.quantity(
                {"cached", "cached share of a prompt above which the replica that holds it takes the request", false, 0,
                 1},
                Dimension::fraction, cached);
            describe_index_delay(fields, index);
        }
    };
    explicit Prefix(const Parameters& parameters) : own_(parameters), index_(parameters.index) {}
    [[nodiscard]] RouterNeeds needs() const override { return {.prefix_cache = true}; }
    void watch(std::uint32_t replica, EngineState& engine, const std::function<SimTime()>& now) override {
        index_.watch(replica, engine, now);
    }

    std::uint32_t choose(const EngineStates& engines, const std::vector<std::uint32_t>& among,
                         const RoutedRequest& request) override {
        const std::uint32_t idlest = least(engines, among, outstanding_requests);
        std::uint32_t best = idlest;
        std::uint32_t most = 0;
        std::size_t busiest = 0;
        for (const std::uint32_t i : among) {
            const std::uint32_t cached = index_.cached(engines, i, request);
            if (cached > most) {
                most = cached;
                best = i;
            }
            busiest = std::max(busiest, outstanding_requests(*engines[i]));
        }
        const std::size_t idle = outstanding_requests(*engines[idlest]);
        const bool uneven = busiest > idle + static_cast<std::size_t>(own_.imbalance) &&
                            static_cast<double>(busiest) > own_.relative_imbalance * static_cast<double>(idle);
        return !uneven && most > own_.cached * request.prompt ? best : idlest;
    }

  private:
    Parameters own_;
    PrefixIndex index_;
};

}  // namespace

extern const PolicyRow<Router> kPrefix =
    policy_row<Router, Prefix>("prefix", "the replica with most of the prompt in its cache, unless loads are uneven");

}  // namespace orrery::serving
