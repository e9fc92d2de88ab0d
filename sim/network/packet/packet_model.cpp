#include "sim/network/packet/packet_model.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace orrery {

PacketModel::PacketModel(Engine& engine, const Fabric& fabric, const PacketSpec& spec,
                             const std::vector<LinkEvent>& link_events, std::uint64_t seed)
    : engine_(engine),
      fabric_(fabric),
      inside_(engine),
      handler_(engine.add_handler(*this, true)),  // settles after the fluid part
      ideal_(spec.transport.kind == TransportKind::ideal),
      wire_((spec.mtu + spec.header) / spec.mtu),
      host_memory_(spec.nic.host_memory),
      network_(fabric, spec, seed) {
    inside_.set_listener(*this);
    for (const LinkEvent& event : link_events) {
        network_.add_link_event(event);
    }
}

ClassId PacketModel::hold_flows(std::span<const RoutedFlow> flows, std::span<const Demand> demands,
                                  double rate_bound) {
    Class c;
    c.flows.assign(flows.begin(), flows.end());
    c.rate_bound = rate_bound;
    std::vector<Demand> inside;
    for (const Demand& demand : demands) {
        if (fabric_.inside_node(demand.resource)) {
            inside.push_back(demand);
        } else if (ideal_) {
            inside.push_back({demand.resource, demand.weight * wire_});
        }
        ORRERY_ASSERT(!flows.empty() || fabric_.inside_node(demand.resource));
    }
    if (host_memory_ > 0) {
        add_host_memory(flows, inside);
    }
    if (!inside.empty() || flows.empty()) {
        c.inside = inside_.hold(inside, rate_bound);
    }
    if (free_classes_.empty()) {
        classes_.push_back(std::move(c));
        return ClassId(classes_.size() - 1);
    }
    const std::uint32_t id = free_classes_.back();
    free_classes_.pop_back();
    classes_[id] = std::move(c);
    return ClassId(id);
}

void PacketModel::release(ClassId id) {
    if (classes_[id.value()].inside.valid()) {
        inside_.release(classes_[id.value()].inside);
    }
    free_classes_.push_back(id.value());
}

// Data leave the memory of one host and enter that of another.
void PacketModel::add_host_memory(std::span<const RoutedFlow> flows, std::vector<Demand>& inside) {
    if (!first_host_memory_.valid()) {
        first_host_memory_ = inside_.add_resource(host_memory_);
        for (std::uint32_t node = 1; node < fabric_.shape().nodes; ++node) {
            (void)inside_.add_resource(host_memory_);
        }
    }
    std::map<std::uint32_t, double> weights;
    for (const RoutedFlow& flow : flows) {
        for (const GpuId member : flow.members) {
            weights[fabric_.node_of(member)] += 2 * flow.weight;
        }
        if (flow.members.empty()) {
            weights[fabric_.node_of(flow.from)] += flow.weight;
            weights[fabric_.node_of(flow.to)] += flow.weight;
        }
    }
    for (const auto& [node, weight] : weights) {
        inside.push_back({ResourceId(first_host_memory_.value() + node), weight});
    }
}

void PacketModel::start(ClassId id, double amount, std::uint64_t cookie) {
    const Class& c = classes_[id.value()];
    std::uint32_t slot = 0;
    if (free_activities_.empty()) {
        slot = static_cast<std::uint32_t>(activities_.size());
        activities_.emplace_back();
        rates_.push_back(0);
    } else {
        slot = free_activities_.back();
        free_activities_.pop_back();
    }
    const bool shares = c.inside.valid();
    activities_[slot] = {cookie, amount, id, c.inside, static_cast<std::uint32_t>(c.flows.size()) + (shares ? 1U : 0U)};
    rates_[slot] = 0;
    if (!c.flows.empty()) {
        starting_.push_back(slot);
    }
    if (shares) {
        inside_.start(c.inside, amount, slot);
    }
}

void PacketModel::send(std::uint32_t slot) {
    const Activity& activity = activities_[slot];
    const Class& c = classes_[activity.of.value()];
    for (const RoutedFlow& flow : c.flows) {
        const double bytes = std::max(1.0, std::ceil(activity.amount * flow.weight));
        if (!(bytes < 9e18)) {
            throw InfeasibleError("a message of " + std::to_string(bytes) + " bytes is too large for fidelity packet");
        }
        double limit = flow.rate_limit;
        if (c.rate_bound < kUnbounded) {
            const double bound = c.rate_bound * flow.weight;
            limit = limit > 0 ? std::min(limit, bound) : bound;
        }
        const double weight = activity.inside.valid() ? flow.weight : 0;
        if (!flow.members.empty()) {
            network_.reduce(
                {flow.members, flow.tree, static_cast<std::uint64_t>(bytes), limit, slot, weight, rates_[slot]});
            continue;
        }
        network_.send({flow.from, flow.to, static_cast<std::uint64_t>(bytes), limit, slot, weight, rates_[slot]});
    }
}

void PacketModel::finish_part(std::uint32_t slot) {
    Activity& activity = activities_[slot];
    if (--activity.parts == 0) {
        free_activities_.push_back(slot);
        listener_->on_activity_done(activity.cookie);
    }
}

void PacketModel::on_event(std::uint32_t) {
    const std::vector<std::uint64_t> arrived = std::move(arrived_);
    arrived_.clear();
    for (const std::uint64_t slot : arrived) {
        finish_part(static_cast<std::uint32_t>(slot));
    }
}

// All that happened at this instant is known, the fluid shares too: packets may run up to what happens next elsewhere,
// because nothing can start a flow before that.
void PacketModel::settle() {
    network_.advance(engine_.now().ps());
    if (solves_ != inside_.solves()) {
        solves_ = inside_.solves();
        for (std::size_t slot = 0; slot < activities_.size(); ++slot) {
            if (activities_[slot].inside.valid()) {
                rates_[slot] = inside_.rate(activities_[slot].inside);
            }
        }
        network_.set_shares(rates_);
    }
    for (const std::uint32_t slot : starting_) {
        rates_[slot] = activities_[slot].inside.valid() ? inside_.rate(activities_[slot].inside) : 0;
        send(slot);
    }
    starting_.clear();
    if (!arrived_.empty() || network_.next_time() == packet::Wheel::kNever) {
        return;
    }
    network_.run(std::min(engine_.next_time().ps(), packet::Wheel::kNever - 1));
    if (!network_.completed().empty()) {
        arrived_ = network_.completed();
        engine_.schedule(SimTime::from_ps(network_.now()), event_order(Phase::network, 2, 0), handler_, 0);
    }
}

void PacketModel::set_progress(double total, const std::function<void(double)>& progress) {
    if (progress && total > 0) {
        network_.set_progress([total, progress](double delivered) { progress(delivered / total); });
    }
}

}  // namespace orrery
