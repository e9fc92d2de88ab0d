// Dragonfly: groups of routers, fully connected inside a group, with one link or more between every two groups.
//
// Source: Kim, Dally, Scott, Abts, "Technology-Driven, Highly-Scalable Dragonfly Topology", ISCA 2008: sections 3 (topology)
// and 4 (minimal routing; Valiant's, by way of a random third group; UGAL, which chooses between the two by its queues).
// Global links of a group go to the other groups in turn, so that each pair of groups has the same number of them.

#include "sim/base/error.hpp"
#include "sim/network/topology/routed.hpp"
#include "sim/network/topology/shape.hpp"

namespace orrery::network {

namespace {

enum class DragonflyRouting { minimal, valiant, adaptive };

struct DragonflyParameters {
    std::int64_t groups = 0;
    std::int64_t routers_per_group = 0;
    std::int64_t nics_per_router = 0;
    std::int64_t global_links = 0;
    double local_link = 0;
    double global_link = 0;
    double local_latency = 500e-9;
    double global_latency = 1e-6;
    DragonflyRouting routing = DragonflyRouting::minimal;
    void describe(Fields& fields) {
        fields.integer({"groups", "groups of routers", true, 1, 65536}, groups);
        fields.integer({"routers_per_group", "routers of a group, each joined to all others", true, 1, 65536},
                       routers_per_group);
        fields.integer({"nics_per_router", "NICs that hang on a router", true, 1, 65536}, nics_per_router);
        fields.integer({"global_links", "links of a router to other groups", true, 1, 65536}, global_links);
        fields.quantity({"local_link", "rate of a link inside a group, per direction (0: a NIC's)", false, 0, 1e14},
                        Dimension::rate, local_link);
        fields.quantity({"global_link", "rate of a link between groups, per direction (0: a NIC's)", false, 0, 1e14},
                        Dimension::rate, global_link);
        fields.quantity({"local_latency", "latency of a link inside a group, its router included", false, 0, 1},
                        Dimension::time, local_latency);
        fields.quantity({"global_latency", "latency of a link between groups, its router included", false, 0, 1},
                        Dimension::time, global_latency);
        fields.enumeration(
            {"routing", "minimal; valiant: by way of another group; adaptive: whichever waits less (packets)"},
            {"minimal", "valiant", "adaptive"}, routing);
    }
};

class Dragonfly final : public RoutedTopology {
  public:
    Dragonfly(const FabricShape& shape, const DragonflyParameters& own)
        : RoutedTopology(shape.link_latency),
          groups_(static_cast<std::uint32_t>(own.groups)),
          routers_(static_cast<std::uint32_t>(own.routers_per_group)),
          nics_per_router_(static_cast<std::uint32_t>(own.nics_per_router)),
          global_links_(static_cast<std::uint32_t>(own.global_links)),
          copies_(groups_ > 1 ? routers_ * global_links_ / (groups_ - 1) : 0),
          routing_(own.routing) {
        const double links = double{1} * groups_ * routers_ * (routers_ - 1) + double{1} * groups_ * groups_ * copies_;
        if (links > 2e8) {
            throw InfeasibleError("the dragonfly has more than 200 million links");
        }
        const double local = own.local_link > 0 ? own.local_link : shape.nic_bandwidth;
        const double global = own.global_link > 0 ? own.global_link : shape.nic_bandwidth;
        for (std::uint32_t router = 0; router < groups_ * routers_; ++router) {
            const std::uint32_t base = router / routers_ * routers_;
            for (std::uint32_t k = 1; k < routers_; ++k) {
                add_link({router, base + (router - base + k) % routers_, local, own.local_latency});
            }
        }
        first_global_ = static_cast<std::uint32_t>(links_.size());
        for (std::uint32_t group = 0; group < groups_; ++group) {
            for (std::uint32_t j = 0; j < copies_ * (groups_ - 1); ++j) {
                ORRERY_ASSERT(landing(group, j) < groups_ * routers_ && landing(group, j) / routers_ != group);
                add_link({gateway(group, j), landing(group, j), global, own.global_latency});
            }
        }
    }

    [[nodiscard]] std::uint32_t switches() const override { return groups_ * routers_; }
    [[nodiscard]] std::string switch_name(std::uint32_t number) const override {
        return "router " + std::to_string(number % routers_) + " of group " + std::to_string(number / routers_);
    }
    [[nodiscard]] std::uint32_t switch_of(std::uint32_t nic) const override { return nic / nics_per_router_; }
    [[nodiscard]] bool adaptive() const override { return routing_ == DragonflyRouting::adaptive; }
    [[nodiscard]] std::uint32_t ways() const override { return routing_ == DragonflyRouting::valiant ? groups_ : 1; }
    [[nodiscard]] Reach reach() const override { return reach_from_first(); }
    [[nodiscard]] std::string summary() const override {
        static const char* const kNames[] = {"minimal", "Valiant", "adaptive"};
        return "dragonfly: " + std::to_string(groups_) + " groups of " + std::to_string(routers_) + " routers, " +
               std::to_string(copies_) + " links between two groups, routing " +
               kNames[static_cast<std::size_t>(routing_)];
    }

    [[nodiscard]] LinkSet next_links(std::uint32_t at, std::uint32_t to, std::uint32_t entropy) const override {
        const std::uint32_t group = at / routers_;
        const std::uint32_t last = to / routers_;
        ORRERY_ASSERT(at != to && group < groups_ && last < groups_);
        LinkSet out;
        if (group == last) {
            out.add(local_link(at, to));
            return out;
        }
        std::uint32_t target = last;
        if (routing_ == DragonflyRouting::valiant || (adaptive() && (entropy & 1U) != 0)) {
            const auto third = static_cast<std::uint32_t>((std::uint64_t{entropy} * groups_) >> 32U);
            target = third == group ? last : third;
        }
        add_towards(at, target, target == last ? to : kAnywhere, out);
        return out;
    }

  private:
    static constexpr std::uint32_t kAnywhere = 0xFFFFFFFFU;

    // Global link j of a group goes to the group j + 1 further, counted round without the own.
    [[nodiscard]] std::uint32_t gateway(std::uint32_t group, std::uint32_t j) const {
        return group * routers_ + j / global_links_;
    }
    [[nodiscard]] std::uint32_t landing(std::uint32_t group, std::uint32_t j) const {
        const std::uint32_t offset = j % (groups_ - 1);
        const std::uint32_t back = j - offset + groups_ - 2 - offset;
        return gateway((group + 1 + offset) % groups_, back);
    }
    [[nodiscard]] std::uint32_t local_link(std::uint32_t at, std::uint32_t to) const {
        return at * (routers_ - 1) + (to + routers_ - at) % routers_ - 1;
    }
    // The links to a group by which the way to `to` in it is shortest.
    void add_towards(std::uint32_t at, std::uint32_t target, std::uint32_t to, LinkSet& out) const {
        const std::uint32_t group = at / routers_;
        const std::uint32_t offset = (target + groups_ - group - 1) % groups_;
        const auto length = [&](std::uint32_t j) {
            return (gateway(group, j) == at ? 0 : 1) + (to == kAnywhere || landing(group, j) == to ? 0 : 1);
        };
        ORRERY_ASSERT(copies_ > 0 && target != group);
        int shortest = 2;
        for (std::uint32_t copy = 0; copy < copies_; ++copy) {
            shortest = std::min(shortest, length(copy * (groups_ - 1) + offset));
        }
        for (std::uint32_t copy = 0; copy < copies_; ++copy) {
            const std::uint32_t j = copy * (groups_ - 1) + offset;
            if (length(j) == shortest) {
                out.add(gateway(group, j) == at ? first_global_ + group * copies_ * (groups_ - 1) + j
                                                : local_link(at, gateway(group, j)));
            }
        }
    }

    std::uint32_t groups_;
    std::uint32_t routers_;
    std::uint32_t nics_per_router_;
    std::uint32_t global_links_;
    std::uint32_t copies_;  ///< links from a group to another
    DragonflyRouting routing_;
    std::uint32_t first_global_ = 0;
};

class DragonflyPlan final : public TopologyPlan {
  public:
    using Parameters = DragonflyParameters;
    explicit DragonflyPlan(const Parameters& own) : own_(own) {}
    [[nodiscard]] bool needs_packets() const override { return own_.routing == DragonflyRouting::adaptive; }
    void complete(FabricShape& shape, std::vector<std::string>& problems) const override {
        const std::int64_t places = own_.groups * own_.routers_per_group * own_.nics_per_router;
        if (places < static_cast<std::int64_t>(shape.nics())) {
            problems.push_back("the dragonfly has room for " + std::to_string(places) + " NICs, not for " +
                               std::to_string(shape.nics()));
        }
        if (own_.routers_per_group * own_.global_links < own_.groups - 1) {
            problems.push_back("a group has " + std::to_string(own_.routers_per_group * own_.global_links) +
                               " global links, fewer than the " + std::to_string(own_.groups - 1) +
                               " other groups: raise global_links");
        }
        shape.nodes_per_leaf = 1;
        shape.topology = [own = own_](const FabricShape& s) { return std::make_shared<Dragonfly>(s, own); };
    }

  private:
    Parameters own_;
};

}  // namespace

extern const PolicyRow<TopologyPlan> kDragonfly = policy_row<TopologyPlan, DragonflyPlan>(
    "dragonfly", "groups of fully connected routers, every two groups joined by links of their own");

}  // namespace orrery::network
