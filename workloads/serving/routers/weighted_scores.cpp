#include "workloads/serving/routers/load.hpp"

#include <algorithm>

namespace orrery::serving {

namespace {

/// Scores of 0 to 1 for a short queue, free cache blocks and the cached share of the prompt, weighted and added: the highest sum takes the
/// request, and among equals a drawn one. The scorers are those of the Gateway API Inference Extension and llm-d (queue-scorer,
/// kv-cache-utilization-scorer, prefix-cache-scorer with max-score-picker); the weights are those of llm-d's guide to precise
/// prefix-cache routing (2, 2, 3). Each replica's own state stands in for the metrics that the picker scrapes.
class WeightedScores final : public Router {
  public:
    struct Parameters {
        double queue = 2;
        double cache = 2;
        double prefix = 3;
        void describe(Fields& fields) {
            fields.number({"queue", "weight of a short queue: 1 for the shortest, 0 for the longest", false, 0, 1000},
                          queue);
            fields.number({"cache", "weight of the share of cache blocks that are free", false, 0, 1000}, cache);
            fields.number({"prefix", "weight of the share of the prompt that is cached", false, 0, 1000}, prefix);
        }
    };
    explicit WeightedScores(const Parameters& own) : own_(own) {}
    [[nodiscard]] RouterNeeds needs() const override { return {.prefix_cache = own_.prefix > 0}; }

    std::uint32_t choose(const EngineStates& engines, const std::vector<std::uint32_t>& among,
                         const RoutedRequest& request) override {
        const auto queue = [&](std::uint32_t i) { return waiting_requests(*engines[i]); };
        const auto [shortest, longest] = std::minmax_element(
            among.begin(), among.end(), [&](std::uint32_t a, std::uint32_t b) { return queue(a) < queue(b); });
        const std::size_t least_queue = queue(*shortest);
        const std::size_t most_queue = queue(*longest);
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
                own_.prefix > 0
                    ? static_cast<double>(engine.cached_prefix(request.content, request.prompt)) / request.prompt
                    : 0;
            const double score = own_.queue * idle + own_.cache * free + own_.prefix * cached;
            if (score > most) {
                most = score;
                best.clear();
            }
            if (score == most) {
                best.push_back(i);
            }
        }
        return best.size() == 1 ? best.front() : best[draw_for(engines, request).below(best.size())];
    }

  private:
    Parameters own_;
};

}  // namespace

extern const PolicyRow<Router> kWeightedScores = policy_row<Router, WeightedScores>(
    "weighted-scores", "the highest weighted score of short queue, free cache and cached prompt (llm-d, Gateway API)");

}  // namespace orrery::serving
