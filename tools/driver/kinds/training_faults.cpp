#include "tools/driver/kinds/training_faults.hpp"

#include "models/scaled_device.hpp"
#include "tools/driver/group_names.hpp"
#include "tools/driver/kinds/campaign_summary.hpp"
#include "tools/driver/kinds/training.hpp"
#include "tools/driver/kinds/training_input.hpp"
#include "tools/driver/scenario_checks.hpp"
#include "workloads/training/features/adapters.hpp"
#include "workloads/training/features/offload.hpp"
#include "workloads/training/features/outer.hpp"
#include "workloads/training/lowering/node_memories.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

namespace orrery::driver {

namespace {

// Bytes of weights (bf16), master weights and both moments (fp32) of a parameter, each kept once: what mixed-precision checkpoints
// measure in MLPerf Storage's workloads and in BLOOM (13.0 to 14.0).
constexpr double kBytesPerParameter = 14;

unsigned campaign_threads() {
    return std::max(1U, std::thread::hardware_concurrency());
}

// Of the vocabulary, in the whole model.
double tables_of(const Scenario& s) {
    return s.as<TrainingKind>().model.tied_embeddings ? 1 : 2;
}

// What of an iteration goes with the load of a replica, and what with the gradients that it sends.
RoundParts parts_of(const TrainingResult& result) {
    const auto booked = [&](Category category) { return result.booked[static_cast<std::size_t>(category)]; };
    const double exchange = booked(Category::data_communication);
    const double fixed = booked(Category::optimizer) + booked(Category::overhead) + booked(Category::other);
    return {std::max(0.0, result.iteration_s - exchange - fixed), exchange, fixed};
}

// A job on groups of nodes of which some are gone: the plan with the most replicas on those that are left, which it fills in its order.
struct Layout {
    Layout(const Scenario& shrunk, const TrainingInput& whole, std::vector<std::uint32_t> nodes)
        : scenario(shrunk),
          input(training_input(scenario, whole.groups, whole.fabric, Placement(whole.fabric, std::move(nodes)))) {}
    Scenario scenario;
    TrainingInput input;
    std::vector<std::uint32_t> used;                 ///< nodes of each kind
    std::map<std::uint32_t, std::uint32_t> rank_of;  ///< by GPU
};

std::map<std::uint32_t, std::uint32_t> ranks_by_gpu(const TrainingInput& input) {
    std::map<std::uint32_t, std::uint32_t> out;
    for (std::uint32_t rank = 0; rank < static_cast<std::uint32_t>(input.plan.ranks()); ++rank) {
        out.emplace(input.placement.gpu(rank).value(), rank);
    }
    return out;
}

// Places of a cluster are folded onto the few that differ, so that each distinct state is simulated once.
class TrainingJob final : public JobModel {
  public:
    TrainingJob(const Scenario& scenario, const TrainingInput& input, const TrainingResult& result)
        : scenario_(scenario),
          training_(scenario.as<TrainingKind>()),
          input_(input),
          shape_(job_shape(scenario)),
          set_(folding_set(input)) {
        if (!input.groups.empty()) {
            rank_of_ = ranks_by_gpu(input);
            list_places();
        }
        times_[key({shape_.nodes, {}, 0})] = result.iteration_s;
        constexpr std::int64_t kRuns = 100;  // more change the mean of rounds by less than anybody can see
        for (std::int64_t run = 0; has_rounds() && run < std::min(kRuns, scenario.as<TrainingKind>().faults.runs);
             ++run) {
            rounds_.push_back(play(input.plan, parts_of(result), scenario.seed + run));
        }
    }

    // Replicas that are slow for single iterations, or a code against them.
    [[nodiscard]] bool has_rounds() const {
        return training_.faults.stragglers.given || training_.faults.coding.given();
    }
    [[nodiscard]] const std::vector<RoundsPlayed>& rounds() const { return rounds_; }

    double iteration_s(const ClusterState& state) override {
        const ClusterState folded = fold(state);
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto [found, added] = times_.try_emplace(key(folded), 0.0);
        if (added) {
            found->second = simulate(folded);
            ORRERY_ASSERT(found->second > 0);
        }
        return found->second;
    }

    double straggling_s() override {
        double sum = 0;
        for (const RoundsPlayed& one : rounds_) {
            sum += one.round_s / static_cast<double>(rounds_.size());
        }
        return sum;
    }

    std::vector<std::uint32_t> kinds() const override { return kinds_; }

    std::vector<std::uint32_t> nodes_used(const std::vector<std::uint32_t>& nodes) const override {
        if (kinds_.empty()) {
            const PlanSpec plan = plan_on(nodes.front());
            return {plan.data == 0 ? 0 : static_cast<std::uint32_t>(plan.ranks() / shape_.gpus_per_node)};
        }
        const Layout* layout = layout_of(nodes);
        return layout == nullptr ? std::vector<std::uint32_t>(kinds_.size()) : layout->used;
    }

    CheckpointSetting checkpoint() const override {
        CheckpointSetting out;
        out.bytes = checkpoint_bytes(scenario_);
        if (training_.plan.has<AdapterPlan>()) {
            PlanSpec whole = training_.plan;
            whole.tensor = whole.experts.expert = whole.experts.tensor = 1;
            out.frozen = frozen_bytes(training_.model, whole, mix_of(training_.model, 0, training_.model.layers),
                                      tables_of(scenario_));
        }
        // A frozen encoder is not written again, and read where a node starts.
        out.frozen += 2 * (training_.model.encoder_parameters() - training_.model.trained_encoder_parameters());
        out.nodes = shape_.nodes;
        out.gpus_per_node = shape_.gpus_per_node;
        const FabricShape& fabric = input_.fabric.shape();
        out.pcie = fabric.pcie_bandwidth;
        out.nic = fabric.nic_bandwidth * fabric.nics_per_node;
        for (const NodeGroup& group : fabric.groups) {  // a checkpoint is there when that of the slowest node is
            out.pcie = group.pcie_bandwidth > 0 ? std::min(out.pcie, group.pcie_bandwidth) : out.pcie;
            out.nic = std::min(out.nic, group.nic_bandwidth * group.nics);
        }
        out.storage = training_.faults.checkpoint.storage;
        return out;
    }

    [[nodiscard]] std::size_t states() const { return times_.size(); }

  private:
    [[nodiscard]] RoundsPlayed play(const PlanSpec& plan, const RoundParts& parts, std::int64_t seed) const {
        return play_rounds(training_.faults.stragglers, training_.faults.coding, plan.data, parts,
                           static_cast<std::uint64_t>(seed));
    }

    // On a cluster of groups: the nodes that hold ranks are the job's places, in their order, and of as many kinds as groups.
    void list_places() {
        for (const auto& [gpu, rank] : rank_of_) {
            const std::uint32_t node = gpu / shape_.gpus_per_node;
            if (!nodes_.empty() && nodes_.back() == node) {
                continue;
            }
            const std::uint32_t group = input_.fabric.group_of_node(node);
            if (nodes_.empty() || input_.fabric.group_of_node(nodes_.back()) != group) {
                kinds_.push_back(0);
            }
            ++kinds_.back();
            nodes_.push_back(node);
        }
        ORRERY_ASSERT(std::is_sorted(nodes_.begin(), nodes_.end()));  // `place_of` looks them up
        ORRERY_ASSERT(std::accumulate(kinds_.begin(), kinds_.end(), 0U) == nodes_.size());
        // The plan fills the groups that it names first.
        const std::vector<std::string> named = names_in(input_.plan.groups);
        std::vector<std::size_t> rank_of_kind;
        std::size_t first = 0;
        for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
            const std::uint32_t group = input_.fabric.group_of_node(nodes_[first]);
            const std::string& name = input_.fabric.shape().groups[group].name;
            rank_of_kind.push_back(
                static_cast<std::size_t>(std::find(named.begin(), named.end(), name) - named.begin()));
            order_.push_back(kind);
            first += kinds_[kind];
        }
        ORRERY_ASSERT(first == nodes_.size() && order_.size() == kinds_.size());
        std::stable_sort(order_.begin(), order_.end(),
                         [&](std::size_t a, std::size_t b) { return rank_of_kind[a] < rank_of_kind[b]; });
    }

    // The plan divides among `plan.data` replicas on whole nodes.
    [[nodiscard]] bool divides(const PlanSpec& plan) const {
        return plan.global_batch % (plan.micro_batch * plan.data) == 0 && plan.ranks() % shape_.gpus_per_node == 0 &&
               (plan.shard == 0 || plan.data % plan.shard == 0) && feature_problems(input_.model, plan).unfit.empty() &&
               plan.stage_ranks() % (plan.experts.expert * plan.expert_tensor()) == 0;
    }

    // What is left of a job on groups; null: nothing that could run.
    const Layout* layout_of(const std::vector<std::uint32_t>& nodes) const {
        const std::lock_guard<std::mutex> lock(layouts_mutex_);
        const auto [found, added] = layouts_.try_emplace(nodes);
        if (added) {
            found->second = lay_out(nodes);
        }
        return found->second.get();
    }

    [[nodiscard]] std::unique_ptr<Layout> lay_out(const std::vector<std::uint32_t>& left) const {
        Scenario shrunk = scenario_;
        PlanSpec& plan = shrunk.as<TrainingKind>().plan;
        const std::int64_t per_replica = plan.ranks() / plan.data;
        const std::int64_t gpus = std::accumulate(left.begin(), left.end(), std::int64_t{0}) * shape_.gpus_per_node;
        for (plan.data = std::min(plan.data, gpus / per_replica); plan.data > 0; --plan.data) {
            if (divides(plan)) {
                std::vector<std::uint32_t> used(left.size());
                const auto nodes = static_cast<std::uint32_t>(plan.ranks() / shape_.gpus_per_node);
                if (auto out = fill(shrunk, left, nodes, 0, used)) {
                    return out;
                }
            }
        }
        return nullptr;
    }

    // So many nodes, as many as may be of the groups that the plan fills first; null: no choice of them will do. `used`: those of
    // the groups before number `place` of that order.
    [[nodiscard]] std::unique_ptr<Layout> fill(const Scenario& shrunk, const std::vector<std::uint32_t>& left,
                                               std::uint32_t nodes, std::size_t place,
                                               std::vector<std::uint32_t>& used) const {
        if (place == order_.size()) {
            return nodes == 0 ? try_layout(shrunk, used) : nullptr;
        }
        std::uint32_t behind = 0;
        for (std::size_t next = place + 1; next < order_.size(); ++next) {
            behind += left[order_[next]];
        }
        std::uint32_t& own = used[order_[place]];
        const std::uint32_t least = nodes > behind ? nodes - behind : 0;
        for (own = std::min(left[order_[place]], nodes) + 1; own-- > least;) {
            if (auto out = fill(shrunk, left, nodes - own, place + 1, used)) {
                return out;
            }
            if (own == 0) {
                break;
            }
        }
        own = 0;
        return nullptr;
    }

    // Null: replicas would lie on unlike nodes, or do not fit into their memories.
    [[nodiscard]] std::unique_ptr<Layout> try_layout(const Scenario& shrunk,
                                                     const std::vector<std::uint32_t>& used) const {
        std::vector<std::uint32_t> left;
        std::size_t first = 0;
        for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
            ORRERY_ASSERT(used[kind] <= kinds_[kind]);
            for (std::size_t i = 0; i < used[kind]; ++i) {
                left.push_back(nodes_[first + i]);
            }
            first += kinds_[kind];
        }
        ORRERY_ASSERT(first == nodes_.size() && left.size() <= nodes_.size());
        std::unique_ptr<Layout> out;
        try {
            out = std::make_unique<Layout>(shrunk, input_, left);
        } catch (const InfeasibleError&) {
            return nullptr;
        }
        const TrainingInput& input = out->input;
        const auto memory = memory_by_stage(input.model, input.plan, input.software);
        for (std::size_t stage = 0; stage < memory.size(); ++stage) {
            if (memory[stage].total() > input.memory_of_stage(static_cast<std::int64_t>(stage))) {
                return nullptr;
            }
        }
        if (input.plan.has<OffloadPlan>() && !fits(host_uses(input))) {
            return nullptr;
        }
        out->rank_of = ranks_by_gpu(input);
        out->used = used;
        return out;
    }

    // The plan with the most replicas on so many nodes that share the global batch, whole nodes and the memory of their devices.
    [[nodiscard]] PlanSpec plan_on(std::uint32_t nodes) const {
        PlanSpec plan = input_.plan;
        const std::int64_t per_replica = plan.ranks() / plan.data;
        for (plan.data = std::min(plan.data, static_cast<std::int64_t>(nodes) * shape_.gpus_per_node / per_replica);
             plan.data > 0; --plan.data) {
            if (!divides(plan)) {
                continue;
            }
            if (plan.has<OffloadPlan>()) {
                const double ranks = std::min(static_cast<double>(plan.ranks()), 1.0 * shape_.gpus_per_node);
                if (!fits({{"", input_.host, 0, ranks,
                            tier_use(input_.model, plan, input_.software, *input_.host, ranks)}})) {
                    continue;
                }
            }
            const auto memory = memory_by_stage(input_.model, plan, input_.software);
            if (std::all_of(memory.begin(), memory.end(),
                            [&](const MemoryUse& use) { return use.total() <= input_.gpu.memory.value; })) {
                return plan;
            }
        }
        return plan;
    }

    // Sets of replicas are alike: those with impairments become the first. Ranks that share micro-batches and layers are, too.
    [[nodiscard]] ClusterState fold(const ClusterState& state) const {
        if (!state.by_kind.empty()) {
            return state;
        }
        const PlanSpec plan = state.nodes == shape_.nodes ? input_.plan : plan_on(state.nodes);
        if (set_ >= plan.data) {
            return state;
        }
        ClusterState out{state.nodes, {}, state.nic_share};
        std::map<std::uint32_t, std::uint32_t> renamed;
        const RankMap order(plan);
        for (Impairment one : state.impairments) {
            const bool nic = one.place.what == Place::What::nic;
            if (nic || one.place.what == Place::What::gpu || one.place.what == Place::What::node) {
                const std::uint32_t per_node = one.place.what == Place::What::gpu ? shape_.gpus_per_node
                                               : nic                              ? shape_.nics_per_node
                                                                                  : 1;
                const auto found =
                    rank_on(nullptr, one.place.index / per_node * shape_.gpus_per_node +
                                         (one.place.what == Place::What::gpu ? one.place.index % per_node : 0));
                if (!found || *found >= order.ranks()) {
                    continue;  // a spare
                }
                const RankMap::Place place = order.place(*found);
                const auto name =
                    renamed.try_emplace(place.replica / set_, static_cast<std::uint32_t>(renamed.size())).first->second;
                const std::uint32_t renamed_rank = order.rank({place.stage, name * set_, 0});
                const std::uint32_t first =
                    input_.groups.empty() ? renamed_rank : place_of(input_.placement.gpu(renamed_rank).value());
                one.place.index = one.place.what == Place::What::gpu ? first : first / shape_.gpus_per_node * per_node;
            }
            out.impairments.push_back(one);
        }
        return out;
    }

    static std::string key(const ClusterState& state) {
        std::string out = fmt::format("{} {} {}", state.nodes, fmt::join(state.by_kind, ","), state.nic_share);
        for (const Impairment& one : state.impairments) {
            out += fmt::format(" {}:{}:{}:{}:{}", static_cast<int>(one.kind), static_cast<int>(one.place.what),
                               one.place.index, one.place.upper, one.factor);
        }
        return out;
    }

    // Spines that are gone or slow take their share of the links between switches; checkpoints theirs of NICs. 0: no way is left.
    [[nodiscard]] FabricShape fabric_in(const ClusterState& state) const {
        FabricShape shape = input_.fabric.shape();
        double left = shape.spines;
        ORRERY_ASSERT(state.nic_share >= 0 && state.nic_share <= 1);
        for (const Impairment& one : state.impairments) {
            if (one.place.what == Place::What::spine || one.place.what == Place::What::leaf_spine) {
                left -= one.kind == FaultKind::degraded ? 1 - one.factor : 1;
            }
        }
        if (left < shape.spines) {
            shape.leaf_oversubscription *= left > 0 ? shape.spines / left : 0;
        }
        if (state.nic_share > 0) {
            shape.nic_bandwidth *= 1 - state.nic_share;
            for (NodeGroup& group : shape.groups) {
                group.nic_bandwidth *= 1 - state.nic_share;
            }
            shape.leaf_oversubscription *= 1 - state.nic_share;  // links between switches stay as they are
        }
        return shape;
    }

    // Ranks whose kernels an impairment slows.
    void add_slow(const Impairment& one, const Layout* layout, TrainingInput& input) {
        const bool cap = one.kind == FaultKind::power_cap;
        if (one.kind != FaultKind::slow && !cap) {
            return;
        }
        const std::uint32_t gpus = shape_.gpus_per_node;
        std::uint32_t first = one.place.index;
        std::uint32_t last = first + 1;
        if (one.place.what == Place::What::node) {
            first = one.place.index * gpus;
            last = first + gpus;
        } else if (one.place.what == Place::What::leaf) {
            first = one.place.index / shape_.rails * shape_.nodes_per_leaf * gpus;
            last = first + shape_.nodes_per_leaf * gpus;
        } else if (one.place.what == Place::What::job) {
            first = 0;
            last = shape_.nodes * gpus;
        }
        const std::uint32_t all =
            input.groups.empty() ? static_cast<std::uint32_t>(input.plan.ranks()) : shape_.nodes * gpus;
        for (std::uint32_t gpu = first; gpu < std::min(last, all); ++gpu) {
            if (const auto rank = rank_on(layout, gpu)) {
                input.slow.push_back({*rank, cap ? speed_at(one.factor, group_of(gpu)) : one.factor});
            }
        }
    }

    // The rank on the n-th GPU of the job's places, if there is one. Where all nodes are alike it is as good as any other, and ranks
    // are GPUs. `layout`: of a job on groups that has shrunk.
    [[nodiscard]] std::optional<std::uint32_t> rank_on(const Layout* layout, std::uint32_t gpu) const {
        if (input_.groups.empty()) {
            return gpu;
        }
        const std::map<std::uint32_t, std::uint32_t>& ranks = layout != nullptr ? layout->rank_of : rank_of_;
        const auto found = ranks.find(gpu_at(gpu));
        return found == ranks.end() ? std::nullopt : std::optional(found->second);
    }
    // Its number in the cluster.
    [[nodiscard]] std::uint32_t gpu_at(std::uint32_t gpu) const {
        return nodes_.empty() ? gpu
                              : nodes_[gpu / shape_.gpus_per_node] * shape_.gpus_per_node + gpu % shape_.gpus_per_node;
    }
    // The same the other way.
    [[nodiscard]] std::uint32_t place_of(std::uint32_t gpu) const {
        const auto node = std::lower_bound(nodes_.begin(), nodes_.end(), gpu / shape_.gpus_per_node);
        ORRERY_ASSERT(node != nodes_.end() && *node == gpu / shape_.gpus_per_node);  // one with ranks
        return static_cast<std::uint32_t>(node - nodes_.begin()) * shape_.gpus_per_node + gpu % shape_.gpus_per_node;
    }
    [[nodiscard]] std::uint32_t group_of(std::uint32_t gpu) const {
        return input_.groups.empty() ? 0 : input_.fabric.group_of(GpuId(gpu_at(gpu)));
    }

    // Speed of kernels at a share of the clock: arithmetic slows with it, memory does not.
    double speed_at(double clock, std::uint32_t group) {
        const auto [found, added] = speeds_.try_emplace({clock, group}, 1.0);
        if (added) {
            const GroupDevice of = input_.groups.empty() ? GroupDevice{&input_.device, &input_.gpu, &input_.collectives}
                                                         : input_.groups[group];
            const auto kernels = [&](const CostModel& device) {
                const PassCost cost(input_.model, input_.plan, input_.software, device, *of.gpu, input_.fabric,
                                    *of.collectives, input_.paths, input_.priced());
                double seconds = 0;
                for (std::int64_t layer = 0; layer < input_.model.layers; ++layer) {
                    const LayerKind kind = input_.model.kind_of(layer);
                    for (const Price* price : {&cost.layer_forward(kind), &cost.layer_backward(kind)}) {
                        for (const Category category : {Category::forward, Category::backward, Category::recompute}) {
                            seconds += (*price)[category];
                        }
                    }
                }
                return seconds;
            };
            found->second = kernels(*of.device) / kernels(ScaledDevice(*of.device, *of.gpu, clock, 1));
            ORRERY_ASSERT(found->second > 0);
        }
        return found->second;
    }

    double simulate(const ClusterState& state) {
        const Layout* layout = state.by_kind.empty() ? nullptr : layout_of(state.by_kind);
        const TrainingInput& base = layout != nullptr ? layout->input : input_;
        const PlanSpec plan = layout != nullptr || state.nodes == shape_.nodes ? base.plan : plan_on(state.nodes);
        const FabricShape shape = fabric_in(state);
        if (shape.leaf_oversubscription <= 0) {
            return std::numeric_limits<double>::infinity();
        }
        const Fabric fabric(shape);
        TrainingInput input{base.model,       plan,           base.software, base.device, base.gpu,         fabric,
                            base.collectives, base.placement, base.paths,    base.fold,   base.routes_flows};
        input.in_order = input_.in_order;
        input.groups = input_.groups;
        input.host = base.host;
        RunSettings settings = run_settings(scenario_);
        std::vector<std::pair<std::uint32_t, double>> nics;
        const std::uint32_t gpus = shape_.gpus_per_node;
        const RankMap order(plan);
        std::uint32_t unlike = 0;
        for (const Impairment& one : state.impairments) {
            add_slow(one, layout, input);
            std::optional<std::uint32_t> rank;
            switch (one.place.what) {
                case Place::What::nic:
                    rank = rank_on(layout, one.place.index / shape_.nics_per_node * gpus);
                    nics.emplace_back(
                        gpu_at(one.place.index / shape_.nics_per_node * gpus) / gpus * shape_.nics_per_node +
                            one.place.index % shape_.nics_per_node,
                        one.factor);
                    break;
                case Place::What::gpu:
                    rank = rank_on(layout, one.place.index);
                    break;
                case Place::What::node:
                    rank = rank_on(layout, one.place.index * gpus);
                    break;
                case Place::What::leaf:
                    input.fold = false;
                    continue;
                default:
                    continue;
            }
            if (!rank || *rank >= order.ranks()) {
                continue;
            }
            unlike = std::max(unlike, order.place(*rank).replica / std::max(1U, folding_set(input)) + 1);
        }
        input.unlike = unlike;
        settings.links_change = !nics.empty();
        Simulation simulation(fabric, settings);
        const TrainingRun run(input, std::numeric_limits<double>::infinity(), simulation);
        for (const auto& [nic, factor] : nics) {
            for (const ResourceId link : {fabric.nic_out(nic), fabric.nic_in(nic)}) {
                simulation.resources().set_capacity(link, factor * fabric.capacity(link));
            }
        }
        simulation.run();
        const TrainingResult result = run.result();
        return has_rounds() ? play(plan, parts_of(result), scenario_.seed).round_s : result.iteration_s;
    }

    const Scenario& scenario_;
    const TrainingKind& training_;
    const TrainingInput& input_;
    JobShape shape_;
    std::uint32_t set_;  ///< replicas in a set of which one stands for all
    std::mutex mutex_;
    std::map<std::string, double> times_;
    std::vector<RoundsPlayed> rounds_;                           ///< on healthy machines, by run
    std::map<std::pair<double, std::uint32_t>, double> speeds_;  ///< by clock and group of nodes
    std::map<std::uint32_t, std::uint32_t> rank_of_;             ///< by GPU, on a cluster of groups
    std::vector<std::uint32_t> nodes_;                           ///< there: those with ranks, in the order of places
    std::vector<std::uint32_t> kinds_;                           ///< there: nodes of each kind
    std::vector<std::size_t> order_;  ///< there: kinds in the order in which the plan fills them
    mutable std::mutex layouts_mutex_;
    mutable std::map<std::vector<std::uint32_t>, std::unique_ptr<Layout>>
        layouts_;  ///< by nodes of each kind that are left
};

// The same job with another store.
class OtherStore final : public JobModel {
  public:
    OtherStore(JobModel& job, const StorageSpec& storage) : job_(job), storage_(storage) {}
    double iteration_s(const ClusterState& state) override { return job_.iteration_s(state); }
    double straggling_s() override { return job_.straggling_s(); }
    std::vector<std::uint32_t> kinds() const override { return job_.kinds(); }
    std::vector<std::uint32_t> nodes_used(const std::vector<std::uint32_t>& nodes) const override {
        return job_.nodes_used(nodes);
    }
    CheckpointSetting checkpoint() const override {
        CheckpointSetting out = job_.checkpoint();
        out.storage = storage_;
        return out;
    }

  private:
    JobModel& job_;
    const StorageSpec& storage_;
};

CampaignOutcome run_variant(const CampaignVariant& variant, const JobShape& shape, TrainingJob& job,
                            const std::vector<TimedFault>& trace, std::uint64_t seed) {
    OtherStore stored(job, variant.faults.checkpoint.storage);
    CampaignPlan plan = plan_campaign(variant.faults, shape, stored, trace);
    if (plan.interval_s < kNoInterval) {
        plan.interval_s =
            plan.iteration_s * std::max(1.0, std::floor(variant.interval * plan.interval_s / plan.iteration_s + 0.5));
    }
    CampaignOutcome out;
    ORRERY_ASSERT(plan.iteration_s > 0 && plan.interval_s > 0);
    out.interval_s = plan.interval_s;
    for (const CampaignResult& run :
         run_campaigns(plan, stored, seed, static_cast<std::uint64_t>(variant.faults.runs), campaign_threads())) {
        out.goodput.push_back(goodput_of(run));
    }
    return out;
}

}  // namespace

double checkpoint_bytes(const Scenario& s) {
    const auto& training = s.as<TrainingKind>();
    if (training.faults.checkpoint.size > 0) {
        return training.faults.checkpoint.size;
    }
    if (training.plan.has<AdapterPlan>()) {
        return kBytesPerParameter * trained_parameters(training.model, training.plan);
    }
    const double layers = training.model.hybrid()
                              ? training.model.hybrid_parameters()
                              : static_cast<double>(training.model.layers) * training.model.layer_parameters();
    const double parameters =
        layers + tables_of(s) * training.model.embedding_parameters() + training.model.trained_encoder_parameters();
    return kBytesPerParameter * parameters;
}

Timeline with_campaign(const RunOutput& out) {
    Timeline both = out.timeline;
    constexpr std::uint32_t kProcess = 1U << 30U;  // beyond all ranks
    constexpr std::uint32_t kThread = 1000;
    for (const auto& [process, name] : out.campaign.processes) {
        ORRERY_ASSERT(process < kProcess);
        both.processes.emplace_back(kProcess + process, name);
    }
    for (const auto& [thread, name] : out.campaign.threads) {
        both.threads.emplace_back(kThread + thread, name);
    }
    for (Span span : out.campaign.spans) {
        ORRERY_ASSERT(span.process < kProcess);
        span.process += kProcess;
        span.thread += kThread;
        both.spans.push_back(std::move(span));
    }
    return both;
}

JobShape job_shape(const Scenario& scenario) {
    const Fabric fabric = fabric_of(scenario);
    const FabricShape& shape = fabric.shape();
    JobShape out;
    out.gpus_per_node = shape.gpus_per_node;
    out.nics_per_node = std::max(1U, shape.nics_per_node);
    out.nodes = static_cast<std::uint32_t>((scenario.as<TrainingKind>().plan.ranks() + shape.gpus_per_node - 1) /
                                           shape.gpus_per_node);
    if (fabric.as_tree() != nullptr && shape.nodes > 1) {
        out.nodes_per_leaf = shape.nodes_per_leaf;
        out.rails = std::max(1U, shape.rails);
        out.leaves = (out.nodes + shape.nodes_per_leaf - 1) / shape.nodes_per_leaf * out.rails;
        out.spines = shape.spines;
    }
    return out;
}

void check_faults(const YamlNode& root, const Scenario& scenario, std::vector<Diagnostic>& errors) {
    const auto& training = scenario.as<TrainingKind>();
    const YamlNode* node = root.find("faults");
    if (!training.faults.campaign || node == nullptr || node->kind != YamlNode::Kind::map) {
        return;
    }
    if (const YamlNode* kind = node->find("kind"); kind != nullptr && kind->scalar == "none") {
        errors.push_back(kind->mark.error("'none' has no parameters: leave 'kind' out, or all of the others"));
    }
    const FaultsSpec& faults = training.faults;
    const auto refuse = [&](const char* section, const char* text) {
        errors.push_back((node->find(section) != nullptr ? node->find(section) : node)->mark.error(text));
    };
    if (faults.coding.given() && faults.recovery.shrinks) {
        refuse("coding", "'coding' of a job that 'shrinks' is not simulated: a code is made for a number of replicas");
    }
    if ((faults.stragglers.given || faults.coding.given()) && training.plan.has<OuterPlan>()) {
        refuse(faults.coding.given() ? "coding" : "stragglers",
               "replicas that are slow for single iterations are not simulated with 'plan.outer': its workers do not "
               "wait for each other in every step");
    }
    if (names_lines_of(errors, root, "cluster") || names_lines_of(errors, root, "plan") || training.plan.ranks() <= 0) {
        return;  // what the job has is not known
    }
    check_spec(*node, faults.stragglers, faults.coding, training.plan.data, errors);
    try {
        check_spec(*node, faults, job_shape(scenario), errors);
    } catch (const Error&) {
        return;  // said where the cluster is read
    }
}

void add_campaign(const Scenario& scenario, const TrainingInput& input, const TrainingResult& result,
                  const std::vector<CampaignVariant>& variants, RunOutput& out) {
    TrainingJob job(scenario, input, result);
    const JobShape shape = job_shape(scenario);
    const FaultsSpec& faults = scenario.as<TrainingKind>().faults;
    std::vector<TimedFault> trace;
    if (!faults.trace.empty()) {
        trace = read_fault_trace(scenario.file(faults.trace), shape);
    }
    const CampaignPlan plan = plan_campaign(faults, shape, job, trace);
    const auto seed = static_cast<std::uint64_t>(scenario.seed);
    const std::vector<CampaignResult> runs =
        run_campaigns(plan, job, seed, static_cast<std::uint64_t>(faults.runs), campaign_threads());
    add_rounds(scenario, job.rounds(), out.summary);
    add_metrics(plan, job.checkpoint(), runs, out.summary);
    add_energy(scenario, runs, out.summary);
    add_cost(scenario, runs, out.summary);
    add_notes(plan, runs, out.summary);
    out.summary.notes.push_back(fmt::format(
        "the campaign has {} run{}; {} simulated", faults.runs, faults.runs == 1 ? "" : "s",
        job.states() == 1 ? "1 state of the cluster was" : fmt::format("{} states of the cluster were", job.states())));
    ORRERY_ASSERT(runs.size() == static_cast<std::size_t>(faults.runs));
    out.campaign = draw(runs.front());
    for (const CampaignVariant& variant : variants) {
        out.campaigns.push_back(run_variant(variant, shape, job, trace, seed));
    }
}

}  // namespace orrery::driver
