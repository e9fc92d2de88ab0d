#include "sim/base/error.hpp"
#include "workloads/serving/routers/prefix_index.hpp"

#include <algorithm>

namespace orrery::serving {

namespace {

/// Scores of 0 to 1 for a short queue, free cache blocks and the cached share of the prompt, weighted and added: the highest sum takes the
/// request, and among equals a drawn one. The scorers are those of the Gateway API Inference Extension and llm-d (queue-scorer,
/// kv-cache-utilization-scorer, prefix-cache-scorer with max-score-picker); the weights are those of llm-d's guide to precise
/// prefix-cache routing (2, 2, 3). Each replica's own state stands in for the metrics that the picker scrapes. `cold` spreads prompts that
/// no replica knows anything of: 1 for the replica that has gone without such a prompt for longest, 0 for the one that had the last
/// (no-hit-lru-scorer, llm-d/llm-d-router@0b59e4e; llm-d's guides give it 2).
class WeightedScores final : public Router {
  public:
    struct Parameters {
        double queue = 2;
        double cache = 2;
        double prefix = 3;
        double cold = 0;
        PrefixIndexSpec index;
        void describe(Fields& fields) {
            fields.number({"queue", "weight of a short queue: 1 for the shortest, 0 for the longest", false, 0, 1000},
                          queue);
            fields.number({"cache", "weight of the share of cache blocks that are free", false, 0, 1000}, cache);
            fields.number({"prefix", "weight of the share of the prompt that is cached", false, 0, 1000}, prefix);
            fields.number({"cold",
                           "weight, for a prompt that no replica has any block of, of how long a replica has gone "
                           "without one",
                           false, 0, 1000},
                          cold);
            fields.when(prefix > 0 || cold > 0, "a weight of prompts that are cached or not (prefix, cold)",
                        [&](Fields& same) { describe_index(same, index); });
        }
    };
    explicit WeightedScores(const Parameters& own) : own_(own), index_(own.index) {}
    [[nodiscard]] RouterNeeds needs() const override {
        return {.prefix_cache = !own_.index.of_traffic && (own_.prefix > 0 || own_.cold > 0)};
    }
    void watch(std::uint32_t replica, EngineState& engine, const std::function<SimTime()>& now) override {
        index_.watch(replica, engine, now);
    }

    std::uint32_t choose(const EngineStates& engines, const std::vector<std::uint32_t>& among,
                         const RoutedRequest& request) override {
        const auto queue = [&](std::uint32_t i) { return waiting_requests(*engines[i]); };
        const auto [shortest, longest] = std::minmax_element(
            among.begin(), among.end(), [&](std::uint32_t a, std::uint32_t b) { return queue(a) < queue(b); });
        const std::size_t least_queue = queue(*shortest);
        const std::size_t most_queue = queue(*longest);
        const bool cold = own_.cold > 0 && std::all_of(among.begin(), among.end(), [&](std::uint32_t i) {
                              return index_.cached(engines, i, request) == 0;
                          });
        std::vector<std::uint32_t> best;
        double most = -1;
        for (const std::uint32_t i : among) {
            const EngineState& engine = *engines[i];
            const double idle = most_queue == least_queue ? 1
                                                          : static_cast<double>(most_queue - queue(i)) /
                                                                static_cast<double>(most_queue - least_queue);
            const double free = static_cast<double>(engine.free_blocks()) /
                                static_cast<double>(std::max<std::uint64_t>(1, engine.limits().blocks));
            const double cached =
                own_.prefix > 0 ? static_cast<double>(index_.cached(engines, i, request)) / request.prompt : 0;
            const double score = own_.queue * idle + own_.cache * free + own_.prefix * cached +
                                 (cold ? own_.cold * rested(among, i) : 0);
            if (score > most) {
                most = score;
                best.clear();
            }
            if (score == most) {
                best.push_back(i);
            }
        }
        ORRERY_ASSERT(!best.empty());
        const std::uint32_t chosen =
            best.size() == 1 ? best.front() : best[draw_for(engines, request).below(best.size())];
        if (cold) {
            std::erase(cold_, chosen);
            cold_.push_back(chosen);
        }
        index_.sent(engines, chosen, request);
        return chosen;
    }

  private:
    /// 1 for the replica that has gone without a cold prompt for longest, 0 for the one that had the last; those that never had one go
    /// first, by number.
    [[nodiscard]] double rested(const std::vector<std::uint32_t>& among, std::uint32_t replica) const {
        if (among.size() < 2) {
            return 1;
        }
        const auto place = [&](std::uint32_t i) {
            const auto found = std::find(cold_.begin(), cold_.end(), i);
            return std::pair(found == cold_.end() ? -1 : found - cold_.begin(), i);
        };
        const auto before =
            std::count_if(among.begin(), among.end(), [&](std::uint32_t i) { return place(i) < place(replica); });
        return 1 - static_cast<double>(before) / static_cast<double>(among.size() - 1);
    }

    Parameters own_;
    PrefixIndex index_;
    std::vector<std::uint32_t> cold_;  ///< replicas that had a prompt that nobody knew, the last at the end
};

}  // namespace

extern const PolicyRow<Router> kWeightedScores = policy_row<Router, WeightedScores>(
    "weighted-scores",
    "the replica with the highest weighted score for short queue, free cache and cached prompt (llm-d, Gateway API)");

}  // namespace orrery::serving
