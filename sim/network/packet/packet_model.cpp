#include "sim/network/packet/packet_model.hpp"

#include "sim/base/error.hpp"
#include "sim/network/topology/tree.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace orrery::network {

// Ports of a kind have one rate. Where nodes differ, those of slower NICs, and of the leaves that they hang on, have a share of it.
static std::vector<double> slower_ports(const Fabric& fabric) {
    std::vector<double> shares;
    if (fabric.shape().groups.empty()) {
        return shares;
    }
    const std::uint32_t first = fabric.nic_out(0).value();
    const std::uint32_t nics = 2 * fabric.shape().nics();
    const TreeTopology* tree = fabric.as_tree();
    const std::uint32_t leaf_links = tree != nullptr ? 2 * tree->leaves() * fabric.shape().spines : 0;
    for (std::uint32_t port = 0; port < nics + leaf_links; ++port) {
        const double rate = port < nics ? fabric.shape().nic_bandwidth : tree->leaf_link_rate();
        shares.push_back(fabric.capacity(ResourceId(first + port)) / rate);
    }
    return shares;
}

PacketModel::PacketModel(Engine& engine, const Fabric& fabric, const PacketSpec& spec,
                         const std::vector<TimedFault>& link_events, std::uint64_t seed, bool links_change,
                         std::uint32_t threads)
    : engine_(engine),
      fabric_(fabric),
      inside_(engine),
      from_inside_(inside_.add_listener(*this)),
      handler_(engine.add_handler(*this, true)),  // settles after the fluid part
      slower_(slower_ports(fabric)),
      ideal_(!spec.transport.needs().acknowledged),
      wire_((spec.mtu + spec.header) / spec.mtu),
      host_memory_(spec.nic.host_memory),
      network_(fabric, spec, seed, links_change || !slower_.empty(), threads),
      counts_flows_(spec.count_flows || spec.flow_samples > 0),
      sampled_(NumberRanges::read(spec.sampled_flows).value()) {
    for (std::size_t i = spec.classes.size(); i-- > 0;) {  // the first of each
        collectives_ = spec.classes[i].collectives ? static_cast<std::uint8_t>(i) : collectives_;
        sends_ = spec.classes[i].sends ? static_cast<std::uint8_t>(i) : sends_;
    }
    for (std::uint32_t port = 0; port < slower_.size(); ++port) {
        if (slower_[port] < 1) {
            network_.set_rate(port, slower_[port]);
        }
    }
    for (const TimedFault& event : link_events) {
        network_.add_link_event(event);
    }
}

ClassId PacketModel::hold_flows(std::span<const RoutedFlow> flows, std::span<const Demand> demands, double rate_bound) {
    Class c;
    c.flows.assign(flows.begin(), flows.end());
    c.rate_bound = rate_bound;
    c.users = 1;
    std::vector<Demand> inside;
    for (const Demand& demand : demands) {
        if (this->inside(demand.resource)) {
            inside.push_back(demand);
        } else if (ideal_) {
            inside.push_back({demand.resource, demand.weight * wire_});
        }
        if (ideal_ || this->inside(demand.resource)) {
            c.demands.push_back(demand);  // links that only packets use are theirs
        }
        ORRERY_ASSERT(!flows.empty() || this->inside(demand.resource));
    }
    if (host_memory_ > 0) {
        add_host_memory(flows, inside);
    }
    if (!inside.empty() || flows.empty()) {
        c.inside = inside_.hold(inside, rate_bound);
    }
    return ClassId(classes_.take(std::move(c)));
}

ClassId PacketModel::hold_bounded(ClassId id, double rate_bound) {
    const Class like = classes_[id.value()];
    return hold_flows(like.flows, like.demands, rate_bound);
}

void PacketModel::drop(ClassId id) {
    Class& c = classes_[id.value()];
    ORRERY_ASSERT(c.users > 0);
    if (--c.users > 0) {
        return;
    }
    if (c.inside.valid()) {
        inside_.release(c.inside);
    }
    c = Class();
    classes_.give(id.value());
}

void PacketModel::set_capacity(ResourceId resource, double capacity) {
    if (!inside(resource)) {
        const std::uint32_t port = resource.value() - fabric_.nic_out(0).value();
        const double share = port < slower_.size() ? slower_[port] : 1;
        network_.set_rate(port, share * capacity / fabric_.capacity(resource));
    }
    inside_.set_capacity(resource, capacity);
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

void PacketModel::start(ClassId id, double amount, ListenerId listener, std::uint64_t token) {
    Class& c = classes_[id.value()];
    ++started_;
    ++c.users;
    const bool shares = c.inside.valid();
    const auto parts = static_cast<std::uint32_t>(c.flows.size()) + (shares ? 1U : 0U);
    const std::uint32_t slot = activities_.take({token, listener, amount, id, c.inside, parts});
    rates_.resize(activities_.size());
    rates_[slot] = 0;
    if (!c.flows.empty()) {
        starting_.push_back(slot);
    }
    if (shares) {
        inside_.start(c.inside, amount, from_inside_, slot);
    }
}

void PacketModel::number_flows() {
    ORRERY_ASSERT(started_ == 0);
    numbers_flows_ = true;
    network_.keep_spans();
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
        const std::uint64_t name = numbers_flows_ ? sent_.size() : activity.token;
        if (numbers_flows_) {
            sent_.push_back({activity.listener.value(), flow.from, flow.to, bytes});
        }
        if (counts_flows_) {
            tokens_.push_back(name);
        }
        if (!flow.members.empty()) {
            network_.reduce(
                {flow.members, flow.tree, static_cast<std::uint64_t>(bytes), limit, slot, weight, rates_[slot]});
            continue;
        }
        network_.send({flow.from, flow.to, static_cast<std::uint64_t>(bytes), limit, slot, weight, rates_[slot],
                       class_of(flow), counts_flows_ && sampled_.has(name)});
    }
}

// The class that a workload names, or that carries flows of this part.
std::uint8_t PacketModel::class_of(const RoutedFlow& flow) const {
    return flow.part == RoutedFlow::Part::none         ? flow.traffic_class
           : flow.part == RoutedFlow::Part::collective ? collectives_
                                                       : sends_;
}

void PacketModel::finish_part(std::uint32_t slot) {
    Activity& activity = activities_[slot];
    ORRERY_ASSERT(activity.parts > 0);
    if (--activity.parts == 0) {
        activities_.give(slot);
        ++ended_;
        drop(activity.of);
        tell(activity.listener, activity.token);
    }
}

double PacketModel::withdraw(const ActivityHandle& handle) {
    const auto found = std::find_if(activities_.begin(), activities_.end(), [&](const Activity& one) {
        return one.parts > 0 && one.of == handle.of && one.listener == handle.listener && one.token == handle.token;
    });
    ORRERY_ASSERT(found != activities_.end());
    const auto slot = static_cast<std::uint32_t>(found - activities_.begin());
    double left = 0;  // of the amount
    if (found->inside.valid()) {
        left = inside_.cancel({found->inside, from_inside_, slot});
    }
    if (std::erase(starting_, slot) > 0) {
        left = found->amount;
    } else if (!classes_[handle.of.value()].flows.empty()) {
        left = std::max(left, found->amount * network_.cancel(slot));
        std::erase_if(arrived_, [&](const packet::Completion& one) { return one.token == slot; });
    }
    found->parts = 0;
    found->inside = ClassId();
    activities_.give(slot);
    ++ended_;
    drop(handle.of);
    return left;
}

void PacketModel::require_conserved() const {
    ResourceModel::require_conserved();
    inside_.require_conserved();
    if (!network_.conserved()) {
        throw InternalError("packets were sent that neither arrived nor were dropped");
    }
}

PacketReport PacketModel::packet_report() const {
    PacketReport out = network_.report();
    ORRERY_ASSERT(out.flows.size() <= tokens_.size());
    for (std::size_t i = 0; i < out.flows.size(); ++i) {
        out.flows[i].token = tokens_[i];
    }
    for (FlowSample& sample : out.flow_samples) {
        sample.token = tokens_[sample.token];
    }
    return out;
}

std::vector<FlowTime> PacketModel::flow_times() const {
    std::vector<FlowTime> out;
    ORRERY_ASSERT(sent_.size() <= network_.spans().size());
    for (std::size_t i = 0; i < sent_.size(); ++i) {
        const packet::MessageSpan& span = network_.spans()[i];
        const double end =
            span.end < 0 ? std::numeric_limits<double>::quiet_NaN() : SimTime::from_ps(span.end).seconds();
        out.push_back({sent_[i].owner, sent_[i].from.value(), sent_[i].to.value(), sent_[i].bytes,
                       SimTime::from_ps(span.start).seconds(), end});
    }
    return out;
}

ResourceReport PacketModel::report(std::size_t) const {
    const PacketStatistics statistics = network_.statistics();
    ResourceReport out;
    out.events = statistics.events;
    out.solves = inside_.solves();
    out.max_link_utilisation = statistics.max_link_utilisation;
    return out;
}

void PacketModel::on_event(std::uint32_t) {
    while (!arrived_.empty() && arrived_.front().at == engine_.now().ps()) {
        const auto slot = static_cast<std::uint32_t>(arrived_.front().token);
        arrived_.pop_front();
        finish_part(slot);
    }
    if (!arrived_.empty()) {
        hand_over_next();
    }
}

// Of what has arrived, the first; a network that runs ahead tells of several instants.
void PacketModel::hand_over_next() {
    engine_.schedule(SimTime::from_ps(arrived_.front().at), event_order(Phase::network, 2, 0), handler_, 0);
}

// All that happened at this instant is known, the fluid shares too: packets may run up to what happens next elsewhere,
// because nothing can start a flow before that.
void PacketModel::settle() {
    if (engine_.now().ps() >= network_.now()) {
        network_.advance(engine_.now().ps());
    }
    if (solves_ != inside_.solves()) {
        solves_ = inside_.solves();
        for (std::uint32_t slot = 0; slot < activities_.size(); ++slot) {
            if (activities_[slot].inside.valid()) {
                rates_[slot] = inside_.rate(activities_[slot].inside);
            }
        }
        network_.set_shares(rates_);
    }
    ORRERY_ASSERT(starting_.empty() || engine_.now().ps() >= network_.now());  // nobody answers what it ran ahead of
    for (const std::uint32_t slot : starting_) {
        rates_[slot] = activities_[slot].inside.valid() ? inside_.rate(activities_[slot].inside) : 0;
        send(slot);
    }
    starting_.clear();
    if (!arrived_.empty() || network_.next_time() == packet::Wheel::kNever) {
        return;
    }
    network_.run(std::min(engine_.next_time().ps(), packet::Wheel::kNever - 1));
    arrived_.assign(network_.completions().begin(), network_.completions().end());
    if (!arrived_.empty()) {
        hand_over_next();
    }
}

void PacketModel::set_progress(double total, const std::function<void(double)>& progress) {
    if (progress && total > 0) {
        network_.set_progress([total, progress](double delivered) { progress(delivered / total); });
    }
}

}  // namespace orrery::network
