#pragma once
// All-reduces inside the switches: the tree of one, and the sums that its switches hold.
//
// Claims: each member sends every packet of its vector once towards the root of a tree of switches. A switch adds the
// packets of equal number from all its children and sends one on; the root sends the sum down, and switches copy it to
// their children. So a link carries the vector once each way, however many members there are. A switch holds sums for
// `slots` packets at once, and a member is never more than half of that ahead of the sums it has: then the sum before
// last in a slot is in everybody's hands when the slot is taken again, and a member that has lost a sum can ask for it by
// sending its packet again. Sums wait for their ports in the slots: full queues and pauses of other traffic's memory do not
// concern them, only what is before them in the port's queue.
// Limits: adding takes no time; losses are found by timeout alone; one tree a reduction, which does not move when a link
// fails; no congestion control beyond the slots.
// Sources: Graham et al., "Scalable hierarchical aggregation protocol (SHArP)", COMHPC 2016 (the tree); Sapio et al.,
// "Scaling distributed machine learning with in-network aggregation", NSDI 2021, section 3.5 (slots and lost packets).
// Validated by tests/sim/network/packet_reduction_test.cpp.

#include "sim/network/packet/nic.hpp"
#include "sim/network/slots.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace orrery::network::packet {

/// The sum of the packets of one number.
struct SumSlot {
    std::uint32_t sequence = kNone;
    std::uint32_t missing = 0;  ///< children that have not sent theirs
    bool known = false;         ///< the sum of all members has come, or (root) is complete
};

/// A switch of the tree.
struct TreeSwitch {
    std::uint32_t up = kNone;         ///< port towards its parent; none: the root
    std::vector<std::uint32_t> down;  ///< ports to its children
    std::vector<SumSlot> slots;
    std::vector<std::uint64_t> heard;  ///< bit by child, whole words a slot: has sent its packet
};

/// What a link leads to in the tree.
struct TreeLink {
    static constexpr std::uint32_t kParent = kNone;
    std::uint32_t port = 0;   ///< whose link it is
    std::uint32_t at = 0;     ///< the switch at its end; the member, at a NIC
    std::uint32_t child = 0;  ///< who sends over it: a child, or `kParent`
    friend bool operator<(const TreeLink& a, const TreeLink& b) { return a.port < b.port; }
};

/// A reduction under way.
struct Reduction {
    std::uint32_t anchor = kNone;        ///< flow of the packets that switches send
    std::vector<std::uint32_t> members;  ///< flow of each
    std::uint32_t left = 0;              ///< members without the whole sum
    std::vector<TreeSwitch> switches;
    std::vector<TreeLink> links;  ///< by port

    [[nodiscard]] const TreeLink& link(std::uint32_t port) const {
        const auto found = std::lower_bound(links.begin(), links.end(), TreeLink{port, 0, 0});
        ORRERY_ASSERT(found != links.end() && found->port == port);
        return *found;
    }
};

/// An all-reduce in the switches over GPUs with NICs of their own.
struct ReductionRequest {
    std::vector<GpuId> members;
    std::uint32_t tree = 0;   ///< picks the root among spines and core switches
    std::uint64_t bytes = 0;  ///< of each member
    double rate_limit = 0;    ///< B/s of each; 0: none
    std::uint64_t token = 0;
    double weight = 0;  ///< as of a SendRequest
    double share = 0;
};

/// All of a run.
class Reductions {
  public:
    Reductions(const Setup& setup, Clock& clock, Slab& slab, Flows& flows, Messages& messages, Ports& ports, Nics& nics)
        : setup_(setup), clock_(clock), slab_(slab), flows_(flows), messages_(messages), ports_(ports), nics_(nics) {}

    void begin(const ReductionRequest& request);
    /// One of its packets has passed a link.
    void arrive(std::uint32_t port, std::uint32_t packet);

  private:
    using Bits = Flows::Bits;
    void build_tree(Reduction& reduction, const std::vector<std::uint32_t>& nics, std::uint32_t number) const;
    void contribute(Reduction& reduction, const TreeLink& link, const Packet& p);
    void spread_sum(Reduction& reduction, std::uint32_t at, const Packet& p);
    void take_sum(const Reduction& reduction, std::uint32_t member, const Packet& p);
    void emit(const Reduction& reduction, std::uint32_t port, const Packet& from);

    const Setup& setup_;
    Clock& clock_;
    Slab& slab_;
    Flows& flows_;
    Messages& messages_;
    Ports& ports_;
    Nics& nics_;
    Slots<Reduction> reductions_;
};

}  // namespace orrery::network::packet
