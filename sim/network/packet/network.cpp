#include "sim/network/packet/network.hpp"

#include "sim/base/error.hpp"

#include <algorithm>

namespace orrery::network::packet {

namespace {

constexpr int kIdleIntervals = 8;           // looks in a row that found no new packet delivered,
constexpr std::int64_t kIdleTimeouts = 64;  // and so many timeouts of simulated time: nothing is just on a long way

}  // namespace

Network::Network(const Fabric& fabric, const PacketSpec& spec, std::uint64_t seed, bool links_change,
                 std::uint32_t threads)
    : transport_(spec.transport.policy.make()),
      setup_(fabric, spec, links_change, *transport_, *spec.paths.policy.make()),
      division_(setup_, threads),
      sampling_{
          {{SimTime::from_seconds(spec.queue_samples).ps(), 0}, {SimTime::from_seconds(spec.flow_samples).ps(), 0}}} {
    if (const std::vector<PartsProblem> problems = problems_of_parts(spec); threads > 1 && !problems.empty()) {
        throw ConfigError(problems.front().text());
    }
    transport_->begin(setup_.congestion);
    Watcher& watcher = *this;
    for (std::uint32_t part = 0; part < threads; ++part) {
        parts_.push_back(std::make_unique<Partition>(setup_, division_, part, messages_, *transport_, watcher, seed));
    }
    if (threads > 1) {
        crew_ = std::make_unique<Crew>(setup_, parts_, division_, watcher);
    }
}

void Network::advance(std::int64_t now_ps) {
    ORRERY_ASSERT(now_ps >= now_);
    now_ = now_ps;
    for (const std::unique_ptr<Partition>& part : parts_) {
        part->clock.now = now_ps;
        part->clock.before = now_ps + 1;
    }
}

void Network::send(const SendRequest& request) {
    ORRERY_ASSERT(request.bytes > 0 && setup_.fabric.node_of(request.from) != setup_.fabric.node_of(request.to));
    const std::uint32_t id = messages_.add(request, now_);
    start_samples();
    // The pair decides the hash, so that all levels of detail place a hashed flow on the same spine.
    const std::uint64_t pair = (static_cast<std::uint64_t>(request.from.value()) << 32) | request.to.value();
    messages_[id].hash = mix64(pair + setup_.fabric.shape().hash_salt);
    if (setup_.path_needs.per_message) {
        messages_[id].hash = mix64(messages_[id].hash + sent_between_[pair]++);
    }
    if (setup_.path_needs.plans) {
        unplanned_.push_back(id);
        return;
    }
    for (const std::unique_ptr<Partition>& part : parts_) {
        part->nics.begin_message(id, static_cast<std::uint32_t>(setup_.spec.paths.subflows * setup_.spec.nic.rails),
                                 {});
    }
}

void Network::reduce(const ReductionRequest& request) {
    if (crew_) {
        throw ConfigError("threads cannot share a network with all-reduces inside its switches");
    }
    if (setup_.laned) {
        throw ConfigError(
            "sums inside switches know ports with one queue: leave network.classes and queues.credits out");
    }
    parts_[0]->reductions.begin(request);
    start_samples();
}

void Network::set_rate(std::uint32_t port, double factor) {
    ORRERY_ASSERT(!crew_ || (now_ == 0 && factor > 0));
    for (const std::unique_ptr<Partition>& part : parts_) {
        if (part->steady) {
            part->steady->go_on_all();
        }
        part->faults.set_rate(port, factor);
        if (setup_.spec.failover) {
            part->routing.look();
        }
    }
}

void Network::set_shares(const std::vector<double>& rates) {
    for (const std::unique_ptr<Partition>& part : parts_) {
        part->nics.set_shares(rates);
    }
}

double Network::cancel(std::uint64_t token) {
    ORRERY_ASSERT(!crew_);
    double most = 0;
    for (std::uint32_t id = 0; id < messages_.size(); ++id) {
        if (!messages_[id].live || messages_[id].token != token) {
            continue;
        }
        const auto bytes = static_cast<double>(messages_[id].bytes);
        const double missing = std::erase(unplanned_, id) > 0 ? bytes : parts_[0]->nics.cancel(id);
        most = std::max(most, std::min(1.0, missing / bytes));
        messages_.cancel(id, now_);
    }
    return most;
}

// Messages that start at this instant get their paths together.
void Network::plan_batch() {
    const std::vector<std::uint32_t> batch = std::move(unplanned_);
    unplanned_.clear();
    std::vector<std::uint32_t> crossing;
    std::vector<PlannedMessage> planned;
    for (const std::uint32_t m : batch) {
        const std::uint32_t from = setup_.leaf_of_nic[setup_.fabric.nic_of(messages_[m].from)];
        const std::uint32_t to = setup_.leaf_of_nic[setup_.fabric.nic_of(messages_[m].to)];
        if (from == to) {
            parts_[0]->nics.begin_message(m, 1, {});
        } else {
            crossing.push_back(m);
            planned.push_back({from, to, (messages_[m].bytes + setup_.mtu - 1) / setup_.mtu});
        }
    }
    if (crossing.empty()) {
        return;
    }
    const auto paths = parts_[0]->chooser->plan(planned, static_cast<std::uint32_t>(setup_.spec.paths.subflows));
    ORRERY_ASSERT(paths.size() == crossing.size());
    for (std::size_t i = 0; i < crossing.size(); ++i) {
        parts_[0]->nics.begin_message(crossing[i], static_cast<std::uint32_t>(paths[i].size()), paths[i]);
    }
}

std::int64_t Network::next_time() const {
    return !unplanned_.empty() ? now_ : crew_ ? crew_->next_time() : parts_[0]->clock.wheel.next_time();
}

void Network::require_finished() const {
    if (messages_.live() > 0) {
        parts_[0]->faults.check_deadlock();
        messages_.fail_first("its packets were lost, and the transport does not send them again");
    }
}

bool Network::conserved() const {
    const PacketCounts all = counts();
    return all.sent == all.arrived + all.destroyed &&
           std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->slab.in_use() == 0; });
}

std::size_t Network::memory() const {
    std::size_t out = messages_.memory();
    for (const std::unique_ptr<Partition>& part : parts_) {
        out += part->memory();
    }
    return out;
}

// Reports progress; where millions of events and many round trips bring no packet home, none will come: retransmissions
// crowd out everything.
void Network::watch(std::uint64_t delivered, double payload, std::int64_t now) {
    if (progress_) {
        progress_(payload);
    }
    ORRERY_ASSERT(delivered >= watched_);
    if (delivered != watched_) {
        watched_ = delivered;
        watched_at_ = now;
        idle_intervals_ = 0;
    } else if (++idle_intervals_ >= kIdleIntervals && (now - watched_at_) / kIdleTimeouts > setup_.timeout &&
               now - watched_at_ > setup_.patience) {
        parts_[0]->faults.check_deadlock();
        messages_.fail_first(
            "8 million events have not brought a single new packet to its receiver (congestion collapse)");
    }
}

void Network::run(std::int64_t limit_ps) {
    messages_.forget_completed();
    if (!unplanned_.empty()) {
        plan_batch();
    }
    if (crew_) {
        crew_->run(limit_ps, ahead_);
        give_back_flows();
    } else {
        parts_[0]->run(limit_ps, false);
    }
    for (const std::unique_ptr<Partition>& part : parts_) {
        now_ = std::max(now_, part->clock.now);
    }
    for (const std::unique_ptr<Partition>& part : parts_) {
        part->clock.now = now_;
        part->clock.before = now_ + 1;
    }
    messages_.sort_completed();
    completed_.clear();
    for (const Completion& completion : messages_.completed()) {
        completed_.push_back(completion.token);
    }
}

// A flow's slot is free when no part names it.
void Network::give_back_flows() {
    for (const std::unique_ptr<Partition>& part : parts_) {
        const std::vector<std::uint32_t> retired = part->flows.retired();
        retired_.insert(retired_.end(), retired.begin(), retired.end());
    }
    std::erase_if(retired_, [&](std::uint32_t id) {
        std::uint32_t records = 0;  // a packet may be counted in one part and its end in another
        bool armed = false;
        for (const std::unique_ptr<Partition>& part : parts_) {
            const Flow& flow = part->flows[id];
            records += flow.records;
            armed = armed || flow.timer_armed || flow.congestion_armed;
        }
        if (records != 0 || armed) {
            return false;
        }
        for (const std::unique_ptr<Partition>& part : parts_) {
            part->flows[id].live = false;
            part->flows.release(id);
        }
        return true;
    });
}

}  // namespace orrery::network::packet
