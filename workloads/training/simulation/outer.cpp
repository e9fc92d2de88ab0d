#include "workloads/training/simulation/outer.hpp"

#include "sim/base/error.hpp"
#include "workloads/training/features/outer.hpp"
#include "workloads/training/lowering/lower.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>

namespace orrery::training {

namespace {

class OuterCosts {
  public:
    OuterCosts(const TrainingInput& input, const TrainingGraph& inner, double inner_step)
        : in_(input),
          cost_(input.model, input.plan, input.software, input.device, input.gpu, input.fabric, input.collectives,
                input.paths, input.priced()) {
        add_inner_use(inner, inner_step);
        find_weights();
    }

    [[nodiscard]] FragmentCost fragment() const {
        const OuterPlan& outer = in_.plan.feature<OuterPlan>();
        const double bits = static_cast<double>(outer.bits) / 8;
        const double weights = weights_ / static_cast<double>(outer.fragments);
        const double own = weights / static_cast<double>(in_.plan.alike());
        FragmentCost out;
        // Reads both copies in 32 bits, writes what is sent.
        out.prepare = kernel(own * (4 + 4 + bits));
        // Reads what came, momentum and the old copy, writes these, the weight of the optimizer and that in 16 bits.
        out.update = kernel(own * (bits + 8 + 8 + 4 + 2));
        out.exchange = exchange_seconds(bits * own);
        if (in_.plan.zero < 3 && in_.plan.alike() > 1) {
            out.update += gather_seconds(2 * weights);
        }
        return out;
    }
    /// B of all exchanges of a round that a rank puts on the wire.
    [[nodiscard]] double bytes() const {
        const double own = weights_ / static_cast<double>(in_.plan.alike());
        return wire_bytes(CollectiveOp::all_reduce, static_cast<std::uint32_t>(in_.plan.islands()),
                          Bytes(static_cast<double>(in_.plan.feature<OuterPlan>().bits) / 8 * own))
            .value();
    }

  private:
    [[nodiscard]] double kernel(double bytes) const {
        return in_.software.kernel_slowdown.value * cost_.memory_traffic(bytes);
    }

    // The mean share of each link that inner steps use; folded runs know it of the nodes that they keep, which stand for all.
    void add_inner_use(const TrainingGraph& inner, double inner_step) {
        used_.assign(in_.fabric.resource_count(), 0);
        for (std::uint32_t i = 0; i < inner.graph.size(); ++i) {
            const Task task = inner.graph.task(TaskId(i));
            if (task.activity == Task::kNoActivity) {
                continue;
            }
            const TaskGraph::Activity activity = inner.graph.activity(TaskId(i));
            for (const Demand& demand : inner.graph.demands(activity.demand_set)) {
                ORRERY_ASSERT(demand.resource.value() < used_.size());
                used_[demand.resource.value()] +=
                    activity.amount * demand.weight / in_.fabric.capacity(demand.resource) / inner_step;
            }
        }
    }

    // Of a rank of the fullest stage.
    void find_weights() {
        const std::vector<std::uint32_t> layers = layers_of_parts(in_.model, in_.plan);
        std::vector<std::int64_t> first(layers.size(), 0);
        std::partial_sum(layers.begin(), layers.end() - 1, first.begin() + 1);
        const PipelineShape shape = in_.plan.shape();
        for (std::uint32_t stage = 0; stage < shape.stages; ++stage) {
            LayerMix held;
            double tables = 0;
            for (std::uint32_t chunk = 0; chunk < shape.chunks; ++chunk) {
                const std::uint32_t part = part_at(in_.plan.schedule->map, shape, {stage, chunk});
                held += mix_of(in_.model, first[part], layers[part], part == 0);
                tables += (part == 0 ? 1 : 0) + (part + 1 == layers.size() && !in_.model.tied_embeddings ? 1 : 0);
            }
            weights_ = std::max(weights_, weights_of(in_.model, in_.plan, held, tables).total());
        }
    }

    /// The GPU of a rank of the stage; `rank`: from the first of a replica on.
    [[nodiscard]] GpuId gpu(std::int64_t stage, std::int64_t replica, std::int64_t rank) const {
        const RankMap order(in_.plan);
        return in_.placement.gpu(
            order.rank({static_cast<std::uint32_t>(stage), static_cast<std::uint32_t>(replica), 0}) +
            static_cast<std::uint32_t>(rank));
    }

    // Of so many bytes by every rank at once: the groups of all ranks share the links.
    [[nodiscard]] double exchange_seconds(double bytes) const {
        const std::int64_t replicas = in_.plan.data / in_.plan.islands();
        ORRERY_ASSERT(replicas * in_.plan.islands() == in_.plan.data);
        std::map<std::uint32_t, double> load;
        double latency = 0;
        for (std::int64_t stage = 0; stage < in_.plan.pipeline; ++stage) {
            for (std::int64_t member = 0; member < replicas * in_.plan.replica_ranks(); ++member) {
                std::vector<GpuId> group;
                for (std::int64_t worker = 0; worker < in_.plan.islands(); ++worker) {
                    group.push_back(gpu(stage, worker * replicas, member));
                }
                const GroupTransfer one = make_transfer(in_.fabric, in_.collectives, CollectiveOp::all_reduce, group,
                                                        Bytes(bytes), in_.paths);
                latency = std::max(latency, one.latency.value());
                for (const Demand& demand : one.demands) {
                    load[demand.resource.value()] += one.bytes.value() * demand.weight;
                }
            }
        }
        constexpr double kLeast = 1e-3;  // of a link that inner steps fill
        double seconds = 0;
        for (const auto& [resource, sum] : load) {
            const double left = std::max(kLeast, 1 - used_[resource]);
            seconds = std::max(seconds, sum / (in_.fabric.capacity(ResourceId(resource)) * left));
        }
        return latency + seconds;
    }

    // The ranks of a worker gather what each of them has brought up to date.
    [[nodiscard]] double gather_seconds(double bytes) const {
        std::vector<GpuId> group;
        for (std::int64_t replica = 0; replica < in_.plan.data / in_.plan.islands(); ++replica) {
            for (std::int64_t context = 0; context < in_.plan.context; ++context) {
                group.push_back(gpu(0, replica, context * in_.plan.tensor));
            }
        }
        return seconds_alone(in_.fabric, make_transfer(in_.fabric, in_.collectives, CollectiveOp::all_gather, group,
                                                       Bytes(bytes), in_.paths))
            .value();
    }

    const TrainingInput& in_;
    PassCost cost_;
    std::vector<double> used_;  ///< by resource: share of its capacity
    double weights_ = 0;        ///< of a rank
};

}  // namespace

OuterTimes play_rounds(const OuterPlan& outer, double inner_step, const std::vector<FragmentCost>& fragments) {
    struct Exchange {
        std::int64_t due;  ///< the step at whose end it is waited for
        double end;
        double update;
    };
    constexpr std::int64_t kRounds = 8;  // what waits at the end of a round is at most its own exchanges
    const auto count = static_cast<std::int64_t>(fragments.size());
    OuterTimes out;
    double now = 0;
    double free = 0;  // when the exchange before is done
    double begun = 0;
    std::deque<Exchange> on_the_way;
    for (std::int64_t step = 1; step <= kRounds * outer.steps; ++step) {
        const bool measured = step > (kRounds - 1) * outer.steps;
        if (step == (kRounds - 1) * outer.steps + 1) {
            begun = now;
        }
        now += inner_step;
        const auto finish = [&](const Exchange& one) {
            out.wait += measured ? std::max(0.0, one.end - now) : 0;
            out.kernels += measured ? one.update : 0;
            now = std::max(now, one.end) + one.update;
        };
        while (!on_the_way.empty() && on_the_way.front().due <= step) {
            finish(on_the_way.front());
            on_the_way.pop_front();
        }
        for (std::int64_t f = 0; f < count; ++f) {
            if ((step - f * outer.steps / count) % outer.steps != 0) {
                continue;
            }
            const FragmentCost& cost = fragments[static_cast<std::size_t>(f)];
            now += cost.prepare;
            free = std::max(free, now) + cost.exchange;
            on_the_way.push_back({step + outer.overlap, free, cost.update});
            out.kernels += measured ? cost.prepare : 0;
            out.exchange += measured ? cost.exchange : 0;
            if (outer.overlap == 0) {
                finish(on_the_way.front());
                on_the_way.pop_front();
            }
        }
    }
    ORRERY_ASSERT(now >= begun && out.wait >= 0);
    const auto steps = static_cast<double>(outer.steps);
    out.step = (now - begun) / steps;
    out.inner = inner_step;
    out.wait /= steps;
    out.kernels /= steps;
    return out;
}

OuterTimes outer_times(const TrainingInput& input, const TrainingGraph& inner, double inner_step) {
    const OuterCosts costs(input, inner, inner_step);
    const std::vector<FragmentCost> fragments(static_cast<std::size_t>(input.plan.feature<OuterPlan>().fragments),
                                              costs.fragment());
    OuterTimes out = play_rounds(input.plan.feature<OuterPlan>(), inner_step, fragments);
    out.bytes = costs.bytes() / static_cast<double>(input.plan.feature<OuterPlan>().steps);
    return out;
}

}  // namespace orrery::training
