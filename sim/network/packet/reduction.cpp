// All-reduces in the switches: contributions on their way up, sums on their way down.

#include "sim/network/packet/reduction.hpp"

#include <bit>
#include <map>

namespace orrery::network::packet {

void Reductions::begin(const ReductionRequest& request) {
    ORRERY_ASSERT(request.bytes > 0 && request.members.size() > 1);
    const std::uint64_t packets = (request.bytes + setup_.mtu - 1) / setup_.mtu;
    if (packets >= kNone) {
        throw InfeasibleError("an all-reduce of " + std::to_string(request.bytes) +
                              " bytes is more than 2^32 packets: raise network.mtu or split it");
    }
    const std::uint32_t id = messages_.add({request.members.front(), request.members.back(), request.bytes,
                                            request.rate_limit, request.token, request.weight, request.share},
                                           clock_.now);
    messages_[id].parts = static_cast<std::uint32_t>(request.members.size());

    const std::uint32_t number = reductions_.take({});
    Reduction reduction;
    reduction.left = messages_[id].parts;
    std::vector<std::uint32_t> nics;
    for (const GpuId gpu : request.members) {
        nics.push_back(setup_.fabric.nic_of(gpu));
    }
    build_tree(reduction, nics, request.tree);

    // Half the slots are a member's window: what it may be ahead of the sums that it has.
    const std::int64_t slots = setup_.spec.queues.reduction_slots;
    const double window = slots > 0 ? static_cast<double>(slots) / 2 : setup_.congestion.max_window / setup_.full;
    const auto wanted = static_cast<std::uint32_t>(std::clamp(window, 1.0, static_cast<double>(packets)));
    const std::uint32_t ahead = slots > 0 ? std::bit_floor(wanted) : std::bit_ceil(wanted);
    for (TreeSwitch& at : reduction.switches) {
        at.slots.resize(std::size_t{2} * ahead);
        at.heard.resize(at.slots.size() * ((at.down.size() + 63) / 64), 0);
    }
    const auto flow_at = [&](std::uint32_t nic) {
        const std::uint32_t flow_id = nics_.new_flow(id, request.bytes, mix64(request.token), 0);
        Flow& flow = flows_[flow_id];
        flows_.give_bitmaps(flow, std::max(64U, ahead));
        flow.ahead = ahead;
        flow.source = flow.destination = nic;
        flow.timeout = setup_.timeout;  // up to the root and down again
        flow.congestion = CongestionState();
        flow.credits = kNone;
        flow.credits <<= 30;  // as many as it likes
        flow.reduction = number;
        return flow_id;
    };
    reduction.anchor = flow_at(nics.front());
    for (const std::uint32_t nic : nics) {
        reduction.members.push_back(flow_at(nic));
    }
    const std::vector<std::uint32_t> members = reduction.members;
    reductions_[number] = std::move(reduction);
    for (const std::uint32_t member : members) {
        nics_.post(member, true);
    }
}

// Leaves, then spines, then the core switch: as many levels as it takes to have one root.
void Reductions::build_tree(Reduction& reduction, const std::vector<std::uint32_t>& nics, std::uint32_t number) const {
    const std::uint32_t lane = number % setup_.spines;
    const std::uint32_t core = number / setup_.spines % setup_.cores;
    std::map<std::uint32_t, std::uint32_t> leaves;  // switch of each, in the order of leaves
    std::map<std::uint32_t, std::uint32_t> pods;
    const auto add_switch = [&](std::map<std::uint32_t, std::uint32_t>& of, std::uint32_t key) {
        const auto [at, fresh] = of.emplace(key, static_cast<std::uint32_t>(reduction.switches.size()));
        if (fresh) {
            reduction.switches.emplace_back();
        }
        return at->second;
    };
    // Contributions come over `from`, sums go back over `down`.
    const auto join = [&](std::uint32_t parent, std::uint32_t from, std::uint32_t down) {
        TreeSwitch& at = reduction.switches[parent];
        reduction.links.push_back({from, parent, static_cast<std::uint32_t>(at.down.size())});
        at.down.push_back(down);
    };
    for (std::uint32_t member = 0; member < nics.size(); ++member) {
        const std::uint32_t nic = nics[member];
        join(add_switch(leaves, setup_.leaf_of_nic[nic]), setup_.base[0] + nic, setup_.base[1] + nic);
        reduction.links.push_back({setup_.base[1] + nic, member, TreeLink::kParent});
    }
    if (leaves.size() > 1) {
        for (const auto& [leaf, at] : leaves) {
            const std::uint32_t up = setup_.base[2] + leaf * setup_.spines + lane;
            const std::uint32_t down = setup_.base[3] + leaf * setup_.spines + lane;
            join(add_switch(pods, setup_.pod_of_leaf[leaf]), up, down);
            reduction.switches[at].up = up;
            reduction.links.push_back({down, at, TreeLink::kParent});
        }
    }
    if (pods.size() > 1) {
        const auto root = static_cast<std::uint32_t>(reduction.switches.size());
        reduction.switches.emplace_back();
        for (const auto& [pod, at] : pods) {
            const std::uint32_t link = (pod * setup_.spines + lane) * setup_.cores + core;
            join(root, setup_.base[4] + link, setup_.base[5] + link);
            reduction.switches[at].up = setup_.base[4] + link;
            reduction.links.push_back({setup_.base[5] + link, at, TreeLink::kParent});
        }
    }
    std::sort(reduction.links.begin(), reduction.links.end());
    for (std::size_t i = 1; i < reduction.links.size(); ++i) {
        ORRERY_ASSERT(reduction.links[i - 1].port != reduction.links[i].port);  // a NIC has one member
    }
}

void Reductions::arrive(std::uint32_t port, std::uint32_t id) {
    if (ports_.noisy() && ports_.spoiled(port, slab_[id])) {
        flows_.drop(id);
        return;
    }
    const Packet p = slab_[id];
    ++flows_.counts.arrived;
    // A member that is done has everything, and so has everybody of what it sent.
    if (flows_[p.flow].live) {
        Reduction& reduction = reductions_[flows_[p.flow].reduction];
        const TreeLink& link = reduction.link(port);
        if (ports_[port].kind == PortKind::nic_in) {
            take_sum(reduction, link.at, p);
        } else if (link.child == TreeLink::kParent) {
            spread_sum(reduction, link.at, p);
        } else {
            contribute(reduction, link, p);
        }
    }
    flows_.discard(id);
}

void Reductions::contribute(Reduction& reduction, const TreeLink& link, const Packet& p) {
    TreeSwitch& at = reduction.switches[link.at];
    const std::size_t place = p.sequence & (at.slots.size() - 1);
    SumSlot& slot = at.slots[place];
    const std::size_t words = (at.down.size() + 63) / 64;
    std::uint64_t* heard = &at.heard[place * words];
    if (slot.sequence != p.sequence) {
        if (slot.sequence != kNone && slot.sequence > p.sequence) {
            return;  // sent again although the sum was on its way
        }
        slot = {p.sequence, static_cast<std::uint32_t>(at.down.size()), false};
        std::fill_n(heard, words, 0);
    }
    std::uint64_t& word = heard[link.child / 64];
    const std::uint64_t bit = 1ULL << (link.child % 64);
    const bool again = (word & bit) != 0;
    if (!again) {
        word |= bit;
        --slot.missing;
    }
    const bool root = at.up == kNone;
    if (again && slot.known) {
        emit(reduction, at.down[link.child], p);  // the sum was lost on its way to this child
    } else if (slot.missing == 0 && (!again || (link.child == 0 && !root))) {
        // Complete, or lost above: then every child asks, and the first one's question is passed on.
        if (root) {
            spread_sum(reduction, link.at, p);
        } else {
            emit(reduction, at.up, p);
        }
    }
}

void Reductions::spread_sum(Reduction& reduction, std::uint32_t index, const Packet& p) {
    TreeSwitch& at = reduction.switches[index];
    SumSlot& slot = at.slots[p.sequence & (at.slots.size() - 1)];
    if (slot.sequence != p.sequence || slot.known) {
        return;
    }
    slot.known = true;
    for (const std::uint32_t port : at.down) {
        emit(reduction, port, p);
    }
}

// A packet that a switch sends, in answer to `from`.
void Reductions::emit(const Reduction& reduction, std::uint32_t port, const Packet& from) {
    const std::uint32_t id = slab_.take();
    Packet& p = slab_[id];
    p = from;
    p.flow = reduction.anchor;
    p.flags = kReduces;
    ++flows_[p.flow].records;
    ++flows_.counts.sent;
    ports_.send(port, id);
}

void Reductions::take_sum(const Reduction& reduction, std::uint32_t member, const Packet& p) {
    const std::uint32_t id = reduction.members[member];
    Flow& flow = flows_[id];
    if (!flow.live || p.sequence < flow.acked || flows_.test(flow, Bits::acknowledged, p.sequence)) {
        return;
    }
    double newly = 0;
    flows_.set(flow, Bits::acknowledged, p.sequence);
    nics_.acknowledge(flow, p.sequence, newly);
    while (flow.acked < flow.packets && flows_.test(flow, Bits::acknowledged, flow.acked)) {
        flows_.clear(flow, Bits::acknowledged, flow.acked);
        ++flow.acked;
    }
    flow.highest = std::max(flow.highest, p.sequence + 1);
    flow.backoff = 0;
    flow.last_news = clock_.now;
    flow.deadline = clock_.now + nics_.timeout_of(flow);
    flow.overtaken = flow.highest;
    ++flows_.counts.delivered;
    flows_.counts.payload += p.size - setup_.header;
    if (flow.acked < flow.packets) {
        nics_.list(id);
        return;
    }
    const std::uint32_t number = flow.reduction;
    nics_.finish_part(flow.message);
    nics_.retire(id);
    if (--reductions_[number].left == 0) {
        nics_.retire(reductions_[number].anchor);
        reductions_[number] = Reduction();
        reductions_.give(number);
    }
}

}  // namespace orrery::network::packet
