#include "tools/plan/plan_space.hpp"

#include "sim/base/error.hpp"
#include "tools/driver/kinds/training.hpp"
#include "tools/plan/expert_space.hpp"
#include "tools/plan/offload_space.hpp"
#include "workloads/training/features/documents.hpp"
#include "workloads/training/features/offload.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace orrery::plan {

namespace {

std::vector<std::int64_t> divisors(std::int64_t n, std::int64_t most) {
    std::vector<std::int64_t> out;
    for (std::int64_t d = 1; d <= std::min(n, most); ++d) {
        if (n % d == 0) {
            out.push_back(d);
        }
    }
    return out;
}

/// How the ranks of a pipeline lie on the nodes.
struct PlanPlacement {
    std::string groups;
    Spread spread;
};

// The orders in which stages or replicas may fill groups of unlike nodes: all orders of up to four groups, of more that in which
// they stand and its reverse. Where an NVLink fabric joins several nodes, what its GPUs have in common is a choice as well.
std::vector<PlanPlacement> placements_of(const Scenario& scenario) {
    const ClusterSpec& cluster = scenario.cluster;
    const bool given = scenario.origins.contains("plan.groups") || scenario.origins.contains("plan.spread");
    if (given || (!cluster.mixed && cluster.node.domain <= 1)) {
        return {};
    }
    constexpr std::size_t kMostPermuted = 4;
    std::vector<std::size_t> order(cluster.groups.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::vector<PlanPlacement> out;
    for (bool more = true; more;) {
        std::string names;
        for (const std::size_t group : order) {
            names += (names.empty() ? "" : ", ") + cluster.groups[group].name;
        }
        out.push_back({names, Spread::stages});
        out.push_back({names, Spread::replicas});
        if (order.size() <= kMostPermuted) {
            more = std::next_permutation(order.begin(), order.end());
        } else {
            more = order.front() == 0;
            std::reverse(order.begin(), order.end());
        }
    }
    return out;
}

}  // namespace

// Lists the space for one size of cluster.
class PlanSpace::Lister {
  public:
    Lister(PlanSpace& space, std::int64_t nodes)
        : space_(space),
          scenario_(space.scenario_),
          training_(scenario_.as<TrainingKind>()),
          nodes_(nodes),
          gpus_(nodes * scenario_.cluster.node.gpus),
          placements_(placements_of(scenario_)) {}

    void list() {
        for (const std::int64_t tensor : divisors(gpus_, 64)) {
            const ModelSpec& model = training_.model;
            const bool scans = model.hybrid() && model.layers_with(LayerPart::state_space) > 0;
            const EncoderSpec& encoder = model.encoder;
            if (model.heads % tensor != 0 || model.ffn % tensor != 0 ||
                (encoder.given() &&
                 (encoder.heads % tensor != 0 || encoder.ffn % tensor != 0 || encoder.projector % tensor != 0)) ||
                (scans && (model.state_space.heads % tensor != 0 || model.state_space.groups % tensor != 0))) {
                continue;
            }
            for (const std::int64_t context : divisors(gpus_ / tensor, 64)) {
                // Splitting sequences below a few thousand tokens a rank is what nobody does: it only costs exchanges.
                if (context > 1 &&
                    (scans || training_.model.sequence % context != 0 || training_.model.sequence / context < 4096)) {
                    continue;
                }
                for (const std::int64_t pipeline : divisors(gpus_ / tensor / context, training_.model.layers + 2)) {
                    PlanSpec plan = training_.plan;
                    plan.tensor = tensor;
                    plan.context = context;
                    plan.pipeline = pipeline;
                    plan.data = gpus_ / tensor / context / pipeline;
                    plan.shard = 0;
                    for (const ContextExchange exchange : exchanges_of(plan)) {
                        plan.context_exchange = exchange;
                        plan.context_inner =
                            exchange == ContextExchange::hierarchical ? training_.plan.context_inner : 0;
                        const bool rings =
                            exchange != ContextExchange::all_gather && exchange != ContextExchange::all_to_all;
                        plan.overlap_context = context == 1 || !rings || training_.plan.overlap_context;
                        add_placements(plan);
                    }
                }
            }
        }
    }

  private:
    // A ring, keys gathered first, tokens for heads where these divide, and what the scenario has.
    [[nodiscard]] std::vector<ContextExchange> exchanges_of(const PlanSpec& plan) const {
        if (plan.context == 1 || plan.has<DocumentsPlan>()) {
            return {ContextExchange::ring};
        }
        const bool pieces = plan.attention != AttentionKernel::unfused;
        const auto divides = [&](std::int64_t ranks) {
            return ranks > 0 && training_.model.kv_heads % (plan.tensor * ranks) == 0;
        };
        std::vector<ContextExchange> out;
        if (pieces) {
            out.push_back(ContextExchange::ring);
        }
        out.push_back(ContextExchange::all_gather);
        if (divides(plan.context)) {
            out.push_back(ContextExchange::all_to_all);
        }
        const ContextExchange own = training_.plan.context_exchange;
        const std::int64_t inner = training_.plan.context_inner;
        if (std::find(out.begin(), out.end(), own) == out.end() && pieces && own != ContextExchange::all_to_all &&
            (own != ContextExchange::hierarchical || (divides(inner) && plan.context % inner == 0))) {
            out.push_back(own);
        }
        return out;
    }

    // Without a pipeline every rank does the same wherever it is; with one replica there is one order of stages.
    void add_placements(PlanSpec plan) {
        if (placements_.empty() || plan.pipeline == 1) {
            add_batches(plan);
            return;
        }
        for (const PlanPlacement& placement : placements_) {
            if (placement.spread == Spread::stages || plan.data > 1) {
                plan.groups = placement.groups;
                plan.spread = placement.spread;
                add_batches(plan);
            }
        }
    }

    void add_batches(PlanSpec plan) {
        if (plan.global_batch % plan.data != 0) {
            return;
        }
        const std::vector<ExpertPlan> experts = expert_choices(scenario_, plan);
        for (const std::int64_t micro_batch : divisors(plan.global_batch / plan.data, 16)) {
            plan.micro_batch = micro_batch;
            list_members(plan);
            for (const ExpertPlan& one : experts) {
                plan.experts = one;
                add_recomputation(plan);
            }
        }
    }

    // What the families of a shape consist of.
    void list_members(PlanSpec plan) {
        some_.clear();
        for (std::size_t i = 0; i < schedule_table().size(); ++i) {
            plan.schedule = schedule_table()[i];
            if (plan.schedule->searched || plan.schedule == training_.plan.schedule) {
                add_chunks(plan, i);
            }
        }
    }

    // Schedules of several chunks a stage are tried with two and more: with one they are schedules of one.
    void add_chunks(PlanSpec plan, std::size_t schedule) {
        const std::int64_t layers = training_.model.layers;
        const std::int64_t most = plan.schedule->chunked ? layers / plan.pipeline : 1;
        for (plan.chunks = plan.schedule->chunked ? 2 : 1; plan.chunks <= most; ++plan.chunks) {
            const std::int64_t parts = plan.parts();
            plan.vocabulary = plan.schedule->cuts_vocabulary && plan.pipeline > 1 ? training_.plan.vocabulary
                                                                                  : VocabularyParallel::none;
            if ((plan.chunks == 1 || layers % parts == 0 || (layers + 2) % parts == 0) &&
                plan.schedule->problem(plan.shape()).empty()) {
                add_sharding(plan, schedule);
            }
        }
    }

    void add_sharding(PlanSpec plan, std::size_t schedule) {
        // In a pipeline gradients and weights are used once a micro-batch: to cut them pays for no software but that which must.
        const bool all = plan.pipeline == 1 || space_.software_ != nullptr;
        const std::int64_t most = plan.data * plan.context == 1 ? 0 : all ? 3 : 1;
        for (plan.zero = 0; plan.zero <= most; ++plan.zero) {
            if (space_.software_ != nullptr && !space_.software_->orders(plan)) {
                continue;
            }
            for (std::size_t offload = 0; offload < space_.offloads_.size(); ++offload) {
                plan.feature<OffloadPlan>() = space_.offloads_[offload];
                if (!plan.has<OffloadPlan>() || may_offload(plan)) {
                    ORRERY_ASSERT(plan.chunks <= std::numeric_limits<std::uint16_t>::max());
                    some_.push_back({0, static_cast<std::uint16_t>(schedule), static_cast<std::uint16_t>(plan.chunks),
                                     static_cast<std::uint16_t>(offload), static_cast<std::uint8_t>(plan.zero),
                                     plan.vocabulary});
                }
            }
        }
    }

    void add_recomputation(PlanSpec plan) {
        plan.recompute_layers = 0;
        plan.recompute_modules.clear();
        for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
            // Fused attention recomputes its scores by itself: selective recomputation would be the same plan again.
            if (recompute == Recompute::selective && plan.attention != AttentionKernel::unfused) {
                continue;
            }
            plan.recompute = recompute;
            for (const bool sequence_parallel : {false, true}) {
                const bool routes = training_.model.experts.count > 0;  // ranks route tokens of their own
                if (plan.tensor == 1 ? sequence_parallel : routes && !sequence_parallel) {
                    continue;
                }
                plan.sequence_parallel = sequence_parallel;
                add_documents(plan);
            }
        }
    }

    // Who computes which documents. How they fill sequences decides what a step trains, and stays.
    void add_documents(PlanSpec plan) {
        const DocumentsPlan& own = training_.plan.feature<DocumentsPlan>();
        const bool cut = own.given && own.fill != DocumentFill::padded;
        for (const bool balanced : {false, true}) {
            for (const bool dynamic : {false, true}) {
                const bool groups = plan.pipeline == 1 && own.fill == DocumentFill::packed && !balanced &&
                                    plan.context * plan.data > 1 && training_.model.experts.count == 0;
                if ((balanced && (!cut || plan.data == 1)) || (dynamic && (!cut || !groups))) {
                    continue;
                }
                plan.feature<DocumentsPlan>().balanced = balanced;
                plan.feature<DocumentsPlan>().dynamic = dynamic;
                add_family(plan);
            }
        }
    }

    void add_family(const PlanSpec& plan) {
        if (some_.empty() || (space_.software_ != nullptr && !space_.software_->divides(plan))) {
            return;
        }
        for (Member member : some_) {
            member.family = static_cast<std::uint32_t>(space_.families_.size());
            space_.members_.push_back(member);
        }
        space_.families_.push_back({nodes_, plan});
    }

    PlanSpace& space_;
    const Scenario& scenario_;
    const TrainingKind& training_;
    std::int64_t nodes_, gpus_;
    std::vector<PlanPlacement> placements_;
    std::vector<Member> some_;  ///< of a family of the shape at hand
};

PlanSpace::PlanSpace(const Scenario& scenario, const PlanSoftware* software)
    : scenario_(scenario), software_(software), offloads_(offload_choices(scenario)) {}

void PlanSpace::list(std::int64_t nodes) {
    Lister(*this, nodes).list();
}

void PlanSpace::add(std::int64_t nodes, const PlanSpec& plan) {
    const auto& table = schedule_table();
    const auto schedule = std::find(table.begin(), table.end(), plan.schedule) - table.begin();
    ORRERY_ASSERT(static_cast<std::size_t>(schedule) < table.size());
    members_.push_back({static_cast<std::uint32_t>(families_.size()), static_cast<std::uint16_t>(schedule),
                        static_cast<std::uint16_t>(plan.chunks), static_cast<std::uint16_t>(offloads_.size()),
                        static_cast<std::uint8_t>(plan.zero), plan.vocabulary});
    offloads_.push_back(plan.feature<OffloadPlan>());
    families_.push_back({nodes, plan});
}

PlanSpec PlanSpace::plan(std::size_t i) const {
    ORRERY_ASSERT(i < members_.size() && members_[i].family < families_.size());
    const Member& member = members_[i];
    PlanSpec out = families_[member.family].plan;
    out.schedule = schedule_table()[member.schedule];
    out.chunks = member.chunks;
    out.vocabulary = member.vocabulary;
    out.zero = member.zero;
    out.feature<OffloadPlan>() = offloads_[member.offload];
    return out;
}

}  // namespace orrery::plan
