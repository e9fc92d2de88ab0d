#include "sim/base/error.hpp"
#include "workloads/serving/routers/prefix_index.hpp"

#include <algorithm>
#include <utility>

namespace orrery::serving {

namespace {

/// Replicas that hold most of a prompt keep it until they are saturated; among those that are left the least tokens of prompts on their way
/// take it, this request's uncached ones included, and among equals a drawn one. In flight are the uncached tokens of prompts, as the router
/// saw them when it sent them, until their first token. Source: llm-d/llm-d-router@655726d, filter/prefixcacheaffinity (affinityThreshold
/// 0.80; maxTTFTPenaltyMs 18,000 at a peakPrefillThroughput of 15,928 tokens/s, or maxTokensInFlightPenalty, is `imbalance`; 0: always
/// sticky), and @1b30d10, scorer/tokenload (whose threshold of 4,194,304 tokens, beyond which all are equal, is left out).
class Affinity final : public Router {
  public:
    struct Parameters {
        double cached = 0.8;
        std::int64_t imbalance = 286'720;
        PrefixIndexSpec index;
        void describe(Fields& fields) {
            fields.quantity(
                {"cached", "cached share of a prompt from which a replica keeps the request", false, 1e-6, 1},
                Dimension::fraction, cached);
            fields.integer({"imbalance",
                            "allowed excess of uncached tokens in flight on the best replica with the prompt over the "
                            "idlest other one; 0: any",
                            false, 0, 1 << 30},
                           imbalance);
            describe_index(fields, index);
        }
    };
    explicit Affinity(const Parameters& own) : own_(own), index_(own.index) {}
    [[nodiscard]] RouterNeeds needs() const override { return {.prefix_cache = !own_.index.of_traffic}; }
    void watch(std::uint32_t replica, EngineState& engine, const std::function<SimTime()>& now) override {
        index_.watch(replica, engine, now);
    }

    std::uint32_t choose(const EngineStates& engines, const std::vector<std::uint32_t>& among,
                         const RoutedRequest& request) override {
        in_flight_.resize(engines.size());
        std::vector<std::uint32_t> sticky;
        std::vector<std::uint32_t> others;
        for (const std::uint32_t i : among) {
            (index_.share(engines, i, request) >= own_.cached ? sticky : others).push_back(i);
            forget_started(*engines[i], i);
        }
        const auto idlest = [&](const std::vector<std::uint32_t>& replicas) {
            std::uint64_t tokens = ~std::uint64_t{0};
            for (const std::uint32_t i : replicas) {
                tokens = std::min(tokens, in_flight_[i].tokens);
            }
            return tokens;
        };
        const bool keeps =
            !sticky.empty() && (others.empty() || own_.imbalance == 0 ||
                                idlest(sticky) <= idlest(others) + static_cast<std::uint64_t>(own_.imbalance));
        std::vector<std::uint32_t> best;
        std::uint64_t least_tokens = ~std::uint64_t{0};
        for (const std::uint32_t i : keeps ? sticky : among) {
            const std::uint64_t tokens = in_flight_[i].tokens + uncached(engines, i, request);
            if (tokens < least_tokens) {
                least_tokens = tokens;
                best.clear();
            }
            if (tokens == least_tokens) {
                best.push_back(i);
            }
        }
        ORRERY_ASSERT(!best.empty());
        const std::uint32_t chosen =
            best.size() == 1 ? best.front() : best[draw_for(engines, request).below(best.size())];
        const std::uint32_t tokens = uncached(engines, chosen, request);
        in_flight_[chosen].tokens += tokens;
        in_flight_[chosen].sent.emplace_back(request.request, tokens);
        index_.sent(engines, chosen, request);
        return chosen;
    }

  private:
    struct InFlight {
        std::uint64_t tokens = 0;
        std::vector<std::pair<std::uint64_t, std::uint32_t>> sent;  ///< requests, with the tokens of each
    };

    [[nodiscard]] std::uint32_t uncached(const EngineStates& engines, std::uint32_t replica,
                                         const RoutedRequest& request) {
        return request.prompt - std::min(request.prompt, index_.cached(engines, replica, request));
    }

    // What has had its first token, or has gone, is no longer in flight.
    void forget_started(const EngineState& engine, std::uint32_t replica) {
        InFlight& of = in_flight_[replica];
        ORRERY_ASSERT(!of.sent.empty() || of.tokens == 0);
        if (of.sent.empty()) {
            return;
        }
        waiting_.clear();
        for (const std::uint32_t index : engine.all()) {
            if (engine.sequence(index).generated == 0) {
                waiting_.push_back(engine.sequence(index).id);
            }
        }
        std::sort(waiting_.begin(), waiting_.end());
        std::erase_if(of.sent, [&](const auto& one) {
            const bool started = !std::binary_search(waiting_.begin(), waiting_.end(), one.first);
            ORRERY_ASSERT(of.tokens >= one.second);
            of.tokens -= started ? one.second : 0;
            return started;
        });
    }

    Parameters own_;
    PrefixIndex index_;
    std::vector<InFlight> in_flight_;     ///< by replica
    std::vector<std::uint64_t> waiting_;  ///< requests of a replica without a token yet
};

}  // namespace

extern const PolicyRow<Router> kAffinity = policy_row<Router, Affinity>(
    "affinity",
    "a replica that holds most of the prompt, until it is saturated; else the fewest prompt tokens (llm-d)");

}  // namespace orrery::serving
