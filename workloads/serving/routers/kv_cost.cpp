#include "sim/base/error.hpp"
#include "sim/base/math.hpp"
#include "workloads/serving/routers/prefix_index.hpp"

#include <algorithm>
#include <utility>

namespace orrery::serving {

namespace {

/// The KV router of Dynamo: the cost of a replica is `overlap` times the blocks of prompts that it would have to compute with this request,
/// and the blocks that it would hold; the least cost takes the request. With a temperature replicas are drawn by softmax over their costs,
/// scaled to 1 between the least and the largest (lib/kv-router/src/scheduling/selector.rs, DefaultWorkerSelector; there the weight is 1 and
/// the temperature 0 by default, and the first of equals is the one with the smallest tree).
class KvCost final : public Router {
  public:
    struct Parameters {
        double overlap = 1;
        double temperature = 0;
        PrefixIndexSpec index;
        void describe(Fields& fields) {
            fields.number(
                {"overlap", "weight of the prompt's blocks that are not cached, to those in use", false, 0, 1000},
                overlap);
            fields.number(
                {"temperature", "temperature of the softmax over costs that replicas are drawn by; 0: the least cost",
                 false, 0, 100},
                temperature);
            describe_index_delay(fields, index);
        }
    };
    explicit KvCost(const Parameters& own) : own_(own), index_(own.index) {}
    [[nodiscard]] RouterNeeds needs() const override { return {.prefix_cache = true}; }
    void watch(std::uint32_t replica, EngineState& engine, const std::function<SimTime()>& now) override {
        index_.watch(replica, engine, now);
    }

    std::uint32_t choose(const EngineStates& engines, const std::vector<std::uint32_t>& among,
                         const RoutedRequest& request) override {
        costs_.clear();
        for (const std::uint32_t i : among) {
            const EngineState& engine = *engines[i];
            const double block = engine.limits().block;
            const double own = (request.prompt - index_.cached(engines, i, request)) / block;
            const auto [prompts, held] = work_of(engine);
            costs_.push_back(own_.overlap * (prompts + own) + held + own);
        }
        const auto [least_cost, most_cost] = std::minmax_element(costs_.begin(), costs_.end());
        if (own_.temperature == 0 || *least_cost == *most_cost) {
            return among[static_cast<std::size_t>(least_cost - costs_.begin())];
        }
        const double from = *least_cost;
        const double span = *most_cost - from;
        double sum = 0;
        for (double& cost : costs_) {
            cost = exp_pinned(-(cost - from) / span / own_.temperature);
            sum += cost;
        }
        ORRERY_ASSERT(sum >= 1);
        double drawn = draw_for(engines, request).uniform() * sum;
        std::size_t chosen = 0;
        while (chosen + 1 < costs_.size() && drawn >= costs_[chosen]) {
            drawn -= costs_[chosen++];
        }
        return among[chosen];
    }

  private:
    /// Blocks of prompts to compute, and blocks that are held or will be when they are.
    [[nodiscard]] static std::pair<double, double> work_of(const EngineState& engine) {
        std::uint64_t tokens = 0;
        std::uint64_t blocks = engine.used_blocks();
        for (const std::uint32_t index : engine.waiting) {
            const Sequence& waiting = engine.sequence(index);
            tokens += waiting.left_to_prefill();
            blocks +=
                engine.blocks_for(waiting.needed()) - std::min(waiting.blocks, engine.blocks_for(waiting.needed()));
        }
        for (const std::uint32_t index : engine.running) {
            const Sequence& running = engine.sequence(index);
            tokens += running.decoding() ? 0 : running.left_to_prefill();
        }
        return {static_cast<double>(tokens) / engine.limits().block, static_cast<double>(blocks)};
    }

    Parameters own_;
    PrefixIndex index_;
    std::vector<double> costs_;  ///< of the replicas it chooses among
};

}  // namespace

extern const PolicyRow<Router> kKvCost = policy_row<Router, KvCost>(
    "kv-cost",
    "the replica with the least cost: blocks to compute for the prompt, plus blocks in use (Dynamo's KV router)");

}  // namespace orrery::serving
