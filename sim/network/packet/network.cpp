#include "sim/network/packet/network.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::packet {

namespace {

constexpr std::int64_t kMostPs = std::int64_t{1} << 62;

std::int64_t to_ps(double seconds) {
    return SimTime::from_seconds(seconds).ps();
}

}  // namespace

Network::Network(const Fabric& fabric, const PacketSpec& spec, std::uint64_t seed, bool links_change)
    : fabric_(fabric),
      spec_(spec),
      mtu_(static_cast<std::uint32_t>(spec.mtu)),
      header_(static_cast<std::uint32_t>(spec.header)),
      full_(mtu_ + header_),
      paths_(spec.paths.policy.make()),
      transport_(spec.transport.policy.make()),
      path_needs_(paths_->needs()),
      marks_(seed, "packet/marks"),
      errors_(seed, "packet/errors") {
    const std::vector<std::string> problems = problems_of(spec);
    if (!problems.empty()) {
        throw ConfigError(problems.front());
    }
    const FabricShape& shape = fabric.shape();
    const std::uint32_t nics = shape.nodes * shape.nics_per_node;
    if (spec.nic.rails > std::max(1U, shape.nics_per_node)) {
        throw ConfigError("nic.rails is " + std::to_string(spec.nic.rails) + ", but a node has " +
                          std::to_string(shape.nics_per_node) + " NICs");
    }
    spines_ = shape.spines;
    tree_ = shape.kind == FabricKind::fat_tree;
    cores_ = tree_ ? shape.cores_per_spine : 1;
    const TransportNeeds needs = transport_->needs();
    acknowledged_ = needs.acknowledged;
    notifies_ = needs.notification_gap >= 0;
    notification_gap_ = to_ps(std::max(0.0, needs.notification_gap));
    counts_bytes_ = needs.counts_bytes;
    credited_ = needs.credits;
    go_back_ = spec.transport.recovery == Recovery::go_back_n ||
               (spec.transport.recovery == Recovery::automatic && needs.go_back_n);
    noisy_ = spec.bit_error_rate > 0;
    served_ =
        spec.queues.trim || spec.queues.pfc || spec.queues.shared > 0 || !spec.link_events.empty() || links_change;

    // A NIC's own latency is halved between its way out and its way in.
    const double nic_latency = shape.link_latency + shape.nic_latency / 2;
    add_ports(PortKind::nic_out, nics, shape.nic_bandwidth, nic_latency);
    add_ports(PortKind::nic_in, nics, shape.nic_bandwidth, nic_latency);
    const std::uint32_t leaf_links = fabric.leaves() * spines_;
    add_ports(PortKind::leaf_up, leaf_links, fabric.leaf_link_rate(), shape.link_latency);
    add_ports(PortKind::leaf_down, leaf_links, fabric.leaf_link_rate(), shape.link_latency);
    const std::uint32_t core_links = tree_ ? fabric.spines() * cores_ : 0;
    add_ports(PortKind::spine_up, core_links, fabric.core_link_rate(), shape.link_latency);
    add_ports(PortKind::spine_down, core_links, fabric.core_link_rate(), shape.link_latency);
    base_[kPortKinds] = static_cast<std::uint32_t>(ports_.size());

    nics_.resize(nics);
    index_ports();
    path_set_ = {fabric.leaves(), spines_, cores_};
    paths_->begin(path_set_);
    sample_every_ = to_ps(spec.queue_samples);
    served_ports_.resize(served_ ? ports_.size() : 0);
    error_rates_.resize(noisy_ ? ports_.size() : 0, spec.bit_error_rate);
    switch_used_.assign(fabric.leaves() + fabric.spines() + fabric.cores(), 0);
    set_limits();

    const std::int64_t longest = set_windows();
    // Entities: links by port, NICs, served ports.
    wheel_ = Wheel(2 * static_cast<std::uint32_t>(ports_.size()) + nics, longest + longest / 4);
}

// Where each port is, for routing by arithmetic.
void Network::index_ports() {
    for (std::uint32_t nic = 0; nic < nics_.size(); ++nic) {
        leaf_of_nic_.push_back(fabric_.leaf_of_nic(nic));
        ports_[base_[0] + nic].where = leaf_of_nic_[nic];
        ports_[base_[1] + nic].where = nic;
    }
    for (std::uint32_t leaf = 0; leaf < fabric_.leaves(); ++leaf) {
        pod_of_leaf_.push_back(fabric_.pod_of_leaf(leaf));
        for (std::uint32_t lane = 0; lane < spines_; ++lane) {
            for (const std::size_t kind : {std::size_t{2}, std::size_t{3}}) {
                Port& port = ports_[base_[kind] + leaf * spines_ + lane];
                port.where = leaf;
                port.lane = static_cast<std::uint16_t>(lane);
            }
        }
    }
    for (std::uint32_t i = 0; i < base_[5] - base_[4]; ++i) {
        for (const std::size_t kind : {std::size_t{4}, std::size_t{5}}) {
            Port& port = ports_[base_[kind] + i];
            port.where = i / cores_;
            port.lane = static_cast<std::uint16_t>(port.where % spines_);
            port.core = static_cast<std::uint16_t>(i % cores_);
        }
    }
}

// Round trip, windows and timeouts. Returns how far ahead of its departure a packet's arrival can lie, ps.
std::int64_t Network::set_windows() {
    const PacketSpec& spec = spec_;
    // The longest path there and back, store and forward, without load.
    std::int64_t round_trip = 0;
    std::int64_t longest = 1;
    double fastest = 0;
    for (std::size_t kind = 0; kind < kPortKinds; ++kind) {
        if (base_[kind + 1] == base_[kind] || (kind > 1 && fabric_.leaves() < 2)) {
            continue;
        }
        const Port& port = ports_[base_[kind]];
        round_trip += 2 * port.latency + port.full_time + send_time(port, header_);
        longest = std::max(longest, port.latency + port.full_time);
        fastest = std::max(fastest, queue_bytes(port, 2 * port.latency));
    }
    // A link can still bring, after its receiver has asked for a pause: what is on it, what leaves until the request
    // arrives, and the packet then being sent.
    QueueSpec& queues = spec_.queues;
    queues.pause_at = queues.pause_at > 0 ? queues.pause_at : fastest + 2 * full_;
    queues.resume_at = queues.resume_at > 0 ? queues.resume_at : queues.pause_at / 2;
    queues.headroom = queues.headroom > 0 ? queues.headroom : fastest + 2 * full_ + 2 * header_;
    congestion_settings_.packet = full_;
    congestion_settings_.line_rate = fabric_.shape().nic_bandwidth;
    congestion_settings_.base_rtt = static_cast<double>(round_trip);
    const double product = fabric_.shape().nic_bandwidth * static_cast<double>(round_trip) * 1e-12;
    // Loss-based congestion control needs room for the queue they fill.
    const TransportNeeds needs = transport_->needs();
    congestion_settings_.max_window = spec.transport.window > 0 ? std::max<double>(spec.transport.window, full_)
                                      : needs.fills_queues      ? 4 * product + spec.queues.size
                                                                : 1.5 * product;
    congestion_settings_.max_window = std::max<double>(congestion_settings_.max_window, full_);
    transport_->begin(congestion_settings_);
    timeout_ = spec.transport.timeout > 0 ? to_ps(spec.transport.timeout) : 8 * round_trip;
    reorder_ = spec.transport.reorder > 0 ? static_cast<std::uint32_t>(spec.transport.reorder)
               : path_needs_.one_path     ? 3
                                          : 0;
    // Many paths keep the sender busy through a late acknowledgement; reordering on one path, control by delay and choices
    // that learn want to hear of every packet.
    const bool batches = needs.rare_news && !path_needs_.learns;
    tell_every_ = spec.nic.acknowledge_every > 0 ? static_cast<std::uint32_t>(spec.nic.acknowledge_every)
                  : batches                      ? std::max(1U, 16384 / full_)
                                                 : 1;
    const double packets = congestion_settings_.max_window / full_;
    if (packets > 1e7) {
        throw InfeasibleError("a window of more than 10^7 packets: raise network.mtu or set network.transport.window");
    }
    // Beyond the window itself there is room for what arrives while a gap is mended.
    capacity_ = std::max(256U, std::bit_ceil(4 * static_cast<std::uint32_t>(packets) + 64));
    return longest;
}

void Network::add_ports(PortKind kind, std::uint32_t count, double rate, double latency_s) {
    base_[static_cast<std::size_t>(kind)] = static_cast<std::uint32_t>(ports_.size());
    if (count == 0) {
        return;
    }
    if (ports_.size() + count > (1U << (kTimerShift - 2))) {
        throw InfeasibleError("more than 2^26 ports: too many for fidelity packet");
    }
    Port port;
    port.kind = kind;
    port.latency = to_ps(latency_s);
    if (rate > 0) {
        const double ps_per_byte = 1e12 / rate * 4294967296.0;
        if (ps_per_byte > 9e18) {
            throw InfeasibleError("a link of less than 10 kb/s is too slow for fidelity packet");
        }
        port.ps_per_byte = static_cast<std::uint64_t>(std::llround(ps_per_byte));
    } else {
        port.down = true;
    }
    port.full_time = send_time(port, full_);
    nominal_[static_cast<std::size_t>(kind)] = port.ps_per_byte;
    ports_.insert(ports_.end(), count, port);
}

double Network::queue_bytes(const Port& port, std::int64_t backlog_ps) const {
    return port.ps_per_byte > 0 ? static_cast<double>(backlog_ps) * 4294967296.0 / static_cast<double>(port.ps_per_byte)
                                : 0;
}

void Network::set_limits() {
    // A NIC's own port never drops: it sends when the port is free.
    for (std::size_t kind = 1; kind < kPortKinds; ++kind) {
        if (base_[kind + 1] == base_[kind]) {
            continue;
        }
        const Port& port = ports_[base_[kind]];
        const auto time = [&](double bytes) {
            return bytes > 0 ? send_time(port, static_cast<std::uint32_t>(std::min(bytes, 4e9))) : kMostPs;
        };
        limits_[kind].drop = time(spec_.queues.size);
        if (spec_.queues.mark_high > 0) {
            limits_[kind].mark_low = time(std::max(1.0, spec_.queues.mark_low));
            limits_[kind].mark_high = time(spec_.queues.mark_high);
        }
    }
}

void Network::advance(std::int64_t now_ps) {
    ORRERY_ASSERT(now_ps >= now_);
    now_ = now_ps;
}

std::uint32_t Network::new_message() {
    std::uint32_t id = 0;
    if (free_messages_.empty()) {
        id = static_cast<std::uint32_t>(messages_.size());
        messages_.emplace_back();
    } else {
        id = free_messages_.back();
        free_messages_.pop_back();
    }
    messages_[id] = Message();
    messages_[id].live = true;
    ++live_messages_;
    if (sample_every_ > 0 && !sampling_) {
        sampling_ = true;
        schedule(Timer::sample, 0, now_);
    }
    return id;
}

void Network::send(const Request& request) {
    ORRERY_ASSERT(request.bytes > 0 && fabric_.node_of(request.from) != fabric_.node_of(request.to));
    const std::uint32_t id = new_message();
    Message& message = messages_[id];
    message.token = request.token;
    message.from = request.from;
    message.to = request.to;
    message.bytes = request.bytes;
    message.rate_limit = request.rate_limit;
    message.weight = request.weight;
    message.share = request.share;
    // The pair decides the hash, so that all levels of detail place a hashed flow on the same spine.
    message.hash = mix64((static_cast<std::uint64_t>(request.from.value()) << 32) | request.to.value());
    if (path_needs_.plans) {
        unplanned_.push_back(id);
    } else {
        begin_message(id, static_cast<std::uint32_t>(spec_.paths.subflows * spec_.nic.rails), {});
    }
}

// Messages that start at this instant get their paths together.
void Network::plan_batch() {
    const std::vector<std::uint32_t> batch = std::move(unplanned_);
    unplanned_.clear();
    std::vector<std::uint32_t> crossing;
    std::vector<PlannedMessage> planned;
    for (const std::uint32_t m : batch) {
        const std::uint32_t from = leaf_of_nic_[fabric_.nic_of(messages_[m].from)];
        const std::uint32_t to = leaf_of_nic_[fabric_.nic_of(messages_[m].to)];
        if (from == to) {
            begin_message(m, 1, {});
        } else {
            crossing.push_back(m);
            planned.push_back({from, to, (messages_[m].bytes + mtu_ - 1) / mtu_});
        }
    }
    if (crossing.empty()) {
        return;
    }
    const auto paths = paths_->plan(planned, static_cast<std::uint32_t>(spec_.paths.subflows));
    for (std::size_t i = 0; i < crossing.size(); ++i) {
        begin_message(crossing[i], static_cast<std::uint32_t>(paths[i].size()), paths[i]);
    }
}

std::int64_t Network::next_time() const {
    return unplanned_.empty() ? wheel_.next_time() : now_;
}

void Network::require_finished() const {
    if (live_messages_ == 0) {
        return;
    }
    check_deadlock();
    fail_all("its packets were lost, and the transport does not send them again");
}

// Names the first message that is not finished.
void Network::fail_all(const std::string& why) const {
    const auto message = std::find_if(messages_.begin(), messages_.end(), [](const Message& m) { return m.live; });
    ORRERY_ASSERT(message != messages_.end());
    throw InfeasibleError("the message of " + std::to_string(message->bytes) + " bytes from GPU " +
                          std::to_string(message->from.value()) + " to GPU " + std::to_string(message->to.value()) +
                          " can never finish: " + why);
}

std::size_t Network::memory() const {
    return slab_.peak() * sizeof(Packet) + flows_.capacity() * sizeof(Flow) + bitmaps_.capacity() * 8 +
           messages_.capacity() * sizeof(Message) + ports_.capacity() * sizeof(Port) +
           served_ports_.capacity() * sizeof(ServedPort) + nics_.capacity() * sizeof(Nic) + wheel_.bytes();
}

}  // namespace orrery::packet
