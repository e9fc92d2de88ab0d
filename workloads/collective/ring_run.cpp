// Rings in steady bookkeeping: a rank sends its next message when the last one has left and its data have come.

#include "workloads/collective/alike.hpp"
#include "workloads/collective/message_path.hpp"
#include "workloads/collective/rings.hpp"

#include <algorithm>
#include <numeric>

namespace orrery::collective {

namespace {

constexpr std::uint64_t kRingProgress = 1U << 18;

class RingRun final : public MessageRun, public TaskSource {
  public:
    /// `simulated`: members of a ring that stand for all, from the first one on; `slow`: a member of the first ring whose link is
    /// slow by `factor`, -1 for none.
    RingRun(Simulation& simulation, const Placement& placement, const Rings& rings, std::uint32_t simulated,
            std::int64_t slow, double factor, const MessageRunOptions& options, SimTime start)
        : simulation_(simulation),
          fabric_(*simulation.fabric()),
          placement_(placement),
          rings_(rings),
          simulated_(simulated),
          slow_(slow),
          slow_factor_(factor),
          options_(options),
          resources_(simulation.resources()),
          dispatcher_(simulation.add(static_cast<TaskSource&>(*this), start)) {}

    MessageRunResult result() override {
        MessageRunResult result;
        result.folded_into_one = size() / simulated_;
        result.messages = done_;
        result.bytes = static_cast<double>(done_) * rings_.bytes;
        result.seconds = last_.seconds();
        result.classes = classes_;
        return result;
    }

    void end(Dispatcher&) override {
        if (done_ != total()) {
            resources_.require_finished();
            throw InfeasibleError("the ring can never finish: a link on it has no capacity", ErrorCode::no_route);
        }
    }

    void begin(Dispatcher&) override {
        // A ring that the symmetry of its fabric has folded is done with; other jobs on these links would tell messages apart.
        const bool may_fold = options_.fold && options_.run.fidelity == Fidelity::fluid && simulation_.jobs() == 1 &&
                              rings_.members.size() > 1;
        const auto alike = may_fold ? alike_messages(fabric_, placement_, stream(), options_.paths) : std::nullopt;
        if (alike.has_value()) {
            take(*alike);
        } else {
            take_each();
        }
        ORRERY_ASSERT(std::accumulate(edges_.begin(), edges_.end(), std::uint64_t{0},
                                      [](std::uint64_t sum, const Edge& edge) { return sum + edge.count; }) *
                          rings_.steps ==
                      total());
        for (auto i = static_cast<std::uint32_t>(edges_.size()); i-- > 0;) {
            edges_[i].sibling = edges_[edges_[i].before].follower;
            edges_[edges_[i].before].follower = i;
        }
        for (std::uint32_t i = 0; i < edges_.size(); ++i) {
            advance(i);
        }
    }

    void on_done(std::uint64_t token, Dispatcher&) override {
        last_ = dispatcher_.now();
        Edge& edge = edges_[token];
        ORRERY_ASSERT(edge.sending == 1 && edge.sent < rings_.steps);
        edge.sending = 0;
        ++edge.sent;
        done_ += edge.count;
        ORRERY_ASSERT(done_ <= total());
        if (done_ % kRingProgress < edge.count && options_.progress) {
            options_.progress(static_cast<double>(done_) / static_cast<double>(total()));
        }
        advance(static_cast<std::uint32_t>(token));
        for (std::uint32_t next = edge.follower; next != kNone; next = edges_[next].sibling) {
            advance(next);
        }
    }

  private:
    static constexpr std::uint32_t kNone = 0x7FFFFFFFU;
    struct Edge {
        ClassId flow;
        std::uint32_t before = 0;  ///< brings what it sends on
        SimTime latency;
        std::uint32_t sent = 0;
        std::uint32_t count = 1;             ///< edges that it stands for
        std::uint32_t follower = kNone;      ///< the first of those that send on what it brings
        std::uint32_t sibling : 31 = kNone;  ///< the next of those that send on what the same one brings
        std::uint32_t sending : 1 = 0;
    };

    [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(rings_.members.front().size()); }
    [[nodiscard]] std::uint64_t total() const { return std::uint64_t{size()} * rings_.members.size() * rings_.steps; }

    [[nodiscard]] MessageStream stream() const {
        const std::uint32_t n = size();
        MessageStream out;
        out.bytes = rings_.bytes;
        out.size = std::uint64_t{n} * rings_.members.size();
        out.for_each = [this, n](const MessageStream::Visit& visit) {
            std::uint64_t number = 0;
            for (const std::vector<std::uint32_t>& members : rings_.members) {
                for (std::uint32_t i = 0; i < n; ++i) {
                    visit(number++, members[i], members[(i + 1) % n]);
                }
            }
        };
        out.before = [n](std::uint64_t number) { return number % n == 0 ? number + n - 1 : number - 1; };
        return out;
    }

    void take(const std::vector<MessageClass>& classes) {
        classes_ = classes.size();
        for (const MessageClass& one : classes) {
            Edge edge;
            edge.flow = dispatcher_.keep_flows({}, one.demands, one.bound);
            edge.latency = SimTime::from_seconds(one.latency);
            edge.before = one.before;
            edge.count = static_cast<std::uint32_t>(one.count);
            edges_.push_back(edge);
        }
    }

    void take_each() {
        double crossing = 0;
        MessagePath path;
        path.flow.traffic_class = options_.traffic_class;
        for (const std::vector<std::uint32_t>& members : rings_.members) {
            const auto first = static_cast<std::uint32_t>(edges_.size());
            for (std::uint32_t i = 0; i < simulated_; ++i) {
                const GpuId from = placement_.gpu(members[i]);
                const GpuId to = placement_.gpu(members[(i + 1) % size()]);
                const Route route = fabric_.route(from, to, options_.paths, hash_of(from, to.value()));
                double bound = bound_of(route);
                if (slow_ == static_cast<std::int64_t>(i)) {
                    for (const ResourceId link : route.resources()) {
                        bound = std::min(bound, slow_factor_ * fabric_.capacity(link));
                    }
                }
                path.take(fabric_, from, to, route);
                Edge edge;
                edge.flow = dispatcher_.keep_flows(path.flows(), path.demands, bound);
                edge.latency = SimTime::from_seconds(latency_of(resources_, route, path.crosses) +
                                                     slow_start_of(fabric_, from, to, rings_.bytes));
                edge.before = first + (i + simulated_ - 1) % simulated_;
                edge.count = size() / simulated_;
                edges_.push_back(edge);
                crossing += path.crosses ? 1 : 0;
            }
        }
        resources_.set_progress(crossing * rings_.steps * rings_.bytes, options_.progress);
    }

    void advance(std::uint32_t i) {
        Edge& edge = edges_[i];
        if (edge.sending != 0 || edge.sent == rings_.steps || edges_[edge.before].sent < edge.sent) {
            return;
        }
        edge.sending = 1;
        dispatcher_.share(edge.flow, rings_.bytes, edge.latency, i, i);
    }

    Simulation& simulation_;
    const Fabric& fabric_;
    Placement placement_;
    Rings rings_;
    std::uint32_t simulated_;
    std::int64_t slow_;
    double slow_factor_;
    MessageRunOptions options_;
    ResourceModel& resources_;
    Dispatcher& dispatcher_;
    std::vector<Edge> edges_;
    std::uint64_t classes_ = 0;
    std::uint64_t done_ = 0;
    SimTime last_;
};

// Smallest number of neighbouring ranks after which the ring looks the same from every link's point of view: a node
// when all nodes hang on one leaf, else a whole group of nodes under one leaf. Equal capacities are the fabric's
// construction; what has to hold is that groups are whole and that switches cannot bind.
std::uint32_t ring_period(const Fabric& fabric, const CollectiveSpec& spec, std::uint32_t ranks,
                          const MessageRunOptions& options) {
    const FabricShape& shape = fabric.shape();
    if (!options.fold || options.run.fidelity == Fidelity::packet || spec.slow_rank >= 0 || !fabric.full_bisection() ||
        options.paths != PathChoice::spray || shape.kind != FabricKind::leaf_spine ||
        ranks % shape.gpus_per_node != 0 || shape.nodes_per_domain > 1 || !shape.groups.empty()) {
        return ranks;
    }
    const std::uint32_t nodes = ranks / shape.gpus_per_node;
    if (nodes == 1) {
        return 1;
    }
    if (nodes <= shape.nodes_per_leaf) {
        return shape.gpus_per_node;
    }
    return nodes % shape.nodes_per_leaf == 0 ? shape.nodes_per_leaf * shape.gpus_per_node : ranks;
}

}  // namespace

std::unique_ptr<MessageRun> add_ring(Simulation& simulation, const Placement& placement, const CollectiveSpec& spec,
                                     std::uint32_t ranks, const MessageRunOptions& options, SimTime start) {
    ORRERY_ASSERT(ranks > 1);
    const Fabric& fabric = *simulation.fabric();
    const std::uint32_t period = placement.aligned(fabric) ? ring_period(fabric, spec, ranks, options) : ranks;
    Rings rings{{std::vector<std::uint32_t>(ranks)},
                spec.bytes / ranks,
                (spec.op == CollectiveOp::all_reduce ? 2 : 1) * (ranks - 1)};
    std::iota(rings.members[0].begin(), rings.members[0].end(), 0U);
    return std::make_unique<RingRun>(simulation, placement, rings, period, spec.slow_rank, spec.slow_factor, options,
                                     start);
}

std::unique_ptr<MessageRun> add_rings(Simulation& simulation, const Placement& placement, const Rings& rings,
                                      const MessageRunOptions& options, SimTime start) {
    ORRERY_ASSERT(!rings.members.empty() && rings.members[0].size() > 1 && options.run.fidelity == Fidelity::fluid);
    return std::make_unique<RingRun>(simulation, placement, rings, static_cast<std::uint32_t>(rings.members[0].size()),
                                     -1, 1, options, start);
}

MessageRunResult run_ring(const Fabric& fabric, const CollectiveSpec& spec, std::uint32_t ranks,
                          const MessageRunOptions& options) {
    if (ranks < 2) {
        return {};
    }
    Simulation simulation(fabric, options.run);
    return finish(simulation, *add_ring(simulation, Placement(fabric), spec, ranks, options));
}

MessageRunResult run_rings(const Fabric& fabric, const Rings& rings, const MessageRunOptions& options) {
    Simulation simulation(fabric, options.run);
    return finish(simulation, *add_rings(simulation, Placement(fabric), rings, options));
}

}  // namespace orrery::collective
