#include "workloads/serving/cluster/lifecycle.hpp"

#include "sim/base/error.hpp"

#include <algorithm>
#include <utility>

namespace orrery::serving {

namespace {

constexpr double kLatest = 9e6;                 ///< s: nothing runs longer
constexpr std::uint32_t kAfterAll = 1U << 23U;  ///< of an instant, faults come after what ends or comes back

// Of a link that nothing passes.
bool is_silent(const Fault& fault) {
    return fault.kind == FaultKind::link_down || fault.kind == FaultKind::link_flap;
}

}  // namespace

void Lifecycle::begin(Dispatcher& dispatcher) {
    Part::begin(dispatcher);
    const ServiceFaults& faults = spec_.faults;
    units_.resize(fleet_.size());
    sources_ = fault_sources(faults.processes, faults.timed, faults.shape, spec_.seed, "serving/faults/",
                             "serving/faults/lasts/");
    due_.resize(sources_.size());
    for (std::uint32_t i = 0; i < sources_.size(); ++i) {
        const double bad_share = i < faults.processes.size() ? faults.processes[i].bad_share : 0;
        RandomStream bad(spec_.seed, "serving/faults/bad/" + std::to_string(i));
        for (std::uint32_t machine = 0; machine < sources_[i].machines() && bad_share > 0; ++machine) {
            sources_[i].set_bad(machine, bad.uniform() < bad_share);
        }
        sources_[i].begin();
        expect(i);
    }
}

void Lifecycle::wait(double seconds, Step step, std::uint32_t index) {
    if (now().seconds() + seconds < kLatest) {
        dispatcher_->delay(SimTime::from_seconds(seconds), index + 1, pair_token(step, index), Phase::fault);
    }
}

void Lifecycle::expect(std::uint32_t source) {
    if (const double at = sources_[source].next(); at < kLatest) {
        due_[source] = std::max(now(), SimTime::from_seconds(at));
        dispatcher_->delay(due_[source] - now(), kAfterAll + source, pair_token(drawn, source), Phase::fault);
    }
}

void Lifecycle::on_done(std::uint64_t token, Dispatcher&) {
    const std::uint32_t index = low_of(token);
    switch (static_cast<Step>(high_of(token))) {
        case drawn:
            return draw(index);
        case struck:
            return frontend_.all_settled() ? void() : strike(later_[index]);
        case cut: {
            // Of those that had notice, the ones that still run.
            Breakage& one = breakages_[index];
            one.replicas = struck_by(one.fault);
            return frontend_.all_settled() ? void() : stop(index);
        }
        case found: {
            // Of those that were struck, the ones that run and have not been replaced since.
            Breakage& one = breakages_[index];
            const std::vector<std::uint32_t> running = struck_by(one.fault);
            std::erase_if(one.replicas, [&](std::uint32_t replica) {
                const bool gone = std::find(running.begin(), running.end(), replica) == running.end();
                return std::exchange(fleet_[replica].corrupt, false) ? gone : true;
            });
            return frontend_.all_settled() || one.replicas.empty() ? void() : stop(index);
        }
        case detected:
            return lose(index);
        case joined:
            return bring_back(index, Machine::same);
        case mended: {
            pool_.give_back(index);
            if (waiting_.empty()) {
                return;
            }
            (void)pool_.take();
            // Where machines stand in for each other, who waits longest has it.
            const std::uint32_t next = spec_.faults.recovery.spares > 0 ? waiting_.front() : index;
            std::erase(waiting_, next);
            return bring_back(next, next == index ? Machine::repaired : Machine::fresh);
        }
        case ended:
            impairments_.end(index);
            return apply();
    }
}

void Lifecycle::draw(std::uint32_t index) {
    if (frontend_.all_settled() || now() < due_[index]) {
        return;  // the next one was drawn anew meanwhile
    }
    std::vector<TimedFault> strikes;
    sources_[index].strike(strikes);
    expect(index);
    for (const auto& [after_s, fault, ends] : strikes) {
        if (after_s > 0) {
            later_.push_back(fault);
            wait(after_s, struck, static_cast<std::uint32_t>(later_.size() - 1));
        } else {
            strike(fault);
        }
    }
}

bool Lifecycle::touches(const Place& place, std::uint32_t first, std::uint32_t gpus) const {
    const JobShape& shape = spec_.faults.shape;
    const auto overlaps = [&](std::uint32_t from, std::uint32_t count) {
        return from < first + gpus && first < from + count;
    };
    if (place.what == Place::What::gpu) {
        return overlaps(place.index, 1);
    }
    const std::optional<std::uint32_t> node = machine_of(place, shape);
    return node ? overlaps(*node * shape.gpus_per_node, shape.gpus_per_node) : place.what == Place::What::job;
}

// A stage whose ranks are on several nodes goes over their NICs in every iteration.
bool Lifecycle::spans(const Replica& replica, std::uint32_t stage) const {
    const auto gpus = replica.pool.gpus / static_cast<std::uint32_t>(replica.stages.size());
    const std::uint32_t first = replica.first_gpu + stage * gpus;
    return first / spec_.faults.shape.gpus_per_node != (first + gpus - 1) / spec_.faults.shape.gpus_per_node;
}

std::vector<std::uint32_t> Lifecycle::struck_by(const Fault& fault) const {
    std::vector<std::uint32_t> out;
    for (std::uint32_t i = 0; i < fleet_.size(); ++i) {
        const Replica& replica = fleet_[i];
        const bool runs = !units_[i].down && (replica.power == Power::on || replica.power == Power::draining);
        bool hit = fault.place.what == Place::What::replica
                       ? fault.place.index == i
                       : touches(fault.place, replica.first_gpu, replica.pool.gpus);
        if (hit && is_silent(fault)) {
            hit = false;
            const auto gpus = replica.pool.gpus / static_cast<std::uint32_t>(replica.stages.size());
            for (std::uint32_t stage = 0; stage < replica.stages.size(); ++stage) {
                hit = hit || (spans(replica, stage) && touches(fault.place, replica.first_gpu + stage * gpus, gpus));
            }
        }
        if (runs && hit) {
            out.push_back(i);
        }
    }
    return out;
}

void Lifecycle::strike(const Fault& fault) {
    const bool silent = is_silent(fault);
    Fault here = fault;
    if (silent && here.lasts_s <= 0) {
        here.lasts_s = pool_.repair_s(spec_.faults.recovery.repair_s);
    }
    switch (fault.kind) {
        case FaultKind::slow:
        case FaultKind::power_cap:
        case FaultKind::degraded:
        case FaultKind::outage:
            return impair(here);
        case FaultKind::preemption:
            return preempt(here);
        case FaultKind::corruption:
            return spoil(here);
        case FaultKind::link_down:
        case FaultKind::link_flap:
            impair(here);
            if (here.lasts_s < spec_.faults.recovery.timeout_s) {
                return stall(here);
            }
            break;
        default:
            break;
    }
    const Place::What what = fault.place.what;
    if (const auto id =
            broken(here, struck_by(here), !silent && what != Place::What::replica && what != Place::What::job)) {
        stop(*id);
    }
}

std::optional<std::uint32_t> Lifecycle::broken(const Fault& fault, std::vector<std::uint32_t> replicas, bool machine) {
    if (replicas.empty()) {
        result_.without_effect += is_silent(fault) ? 0 : 1;
        return std::nullopt;
    }
    breakages_.push_back({fault, std::move(replicas), machine});
    return static_cast<std::uint32_t>(breakages_.size() - 1);
}

// Stages that go over a silent link wait for it.
void Lifecycle::stall(const Fault& fault) {
    const SimTime until = now() + SimTime::from_seconds(fault.lasts_s);
    for (const std::uint32_t replica : struck_by(fault)) {
        fleet_[replica].stalled_until = std::max(fleet_[replica].stalled_until, until);
    }
}

// Nobody notices before it is looked for; what is struck again meanwhile is found with the first.
void Lifecycle::spoil(const Fault& fault) {
    std::vector<std::uint32_t> replicas = struck_by(fault);
    std::erase_if(replicas, [&](std::uint32_t replica) { return std::exchange(fleet_[replica].corrupt, true); });
    if (const auto id = broken(fault, std::move(replicas), true)) {
        constexpr double kUnlessGiven = 3600;
        wait(spec_.faults.recovery.corruption_s.value_or(kUnlessGiven), found, *id);
    }
}

void Lifecycle::preempt(const Fault& fault) {
    const auto id = broken(fault, struck_by(fault), true);
    if (!id) {
        return;
    }
    if (spec_.faults.recovery.notice_s <= 0) {
        return stop(*id);
    }
    for (const std::uint32_t replica : breakages_[*id].replicas) {
        list(replica, false);
    }
    wait(spec_.faults.recovery.notice_s, cut, *id);
}

void Lifecycle::stop(std::uint32_t id) {
    const ServiceRecovery& recovery = spec_.faults.recovery;
    const FaultKind kind = breakages_[id].fault.kind;
    const bool hangs = kind == FaultKind::hang || is_silent(breakages_[id].fault);
    const double delay = hangs ? recovery.timeout_s : kind == FaultKind::corruption ? 0 : recovery.detection_s;
    for (const std::uint32_t replica : breakages_[id].replicas) {
        ORRERY_ASSERT(!units_[replica].down);
        units_[replica] = {true, now()};
        fleet_[replica].corrupt = false;
        ++result_.failures;
        fail(replica, delay > 0);
    }
    note();
    if (delay > 0) {
        return wait(delay, detected, id);
    }
    lose(id);
}

void Lifecycle::fail(std::uint32_t index, bool unnoticed) {
    fleet_[index].up = false;
    pipelines_.stop(index);
    if (unnoticed) {
        // Who sends to it, or was to get something from it, sees the connection break.
        retry(transfers_.fail(index));
    }
}

void Lifecycle::lose_replica(std::uint32_t index) {
    std::vector<Sequence> lost = transfers_.lose(index);
    EngineState& state = fleet_[index].state;
    for (const std::uint32_t i : state.all()) {
        lost.push_back(state.sequence(i));
    }
    state.reset();
    list(index, false);
    retry(lost);
    // What others held for it may let them go on.
    for (std::uint32_t i = 0; i < fleet_.size(); ++i) {
        transfers_.kv.make_room(i);
        fleet_.wake(i);
    }
}

void Lifecycle::retry(const std::vector<Sequence>& lost) {
    for (const Sequence& sequence : lost) {
        if (!sequence.abandoned) {
            admission_.retry(sequence);
        }
    }
}

void Lifecycle::list(std::uint32_t index, bool listed) {
    fleet_[index].listed = listed;
    routing_.update();
}

// The router knows; from now on somebody sees to what is broken.
void Lifecycle::lose(std::uint32_t id) {
    for (const std::uint32_t replica : breakages_[id].replicas) {
        lose_replica(replica);
    }
    const ServiceRecovery& recovery = spec_.faults.recovery;
    if (!breakages_[id].machine) {
        const Fault& fault = breakages_[id].fault;
        const double still =
            is_silent(fault) ? fault.lasts_s - recovery.timeout_s : 0;  // nobody joins over a silent link
        return still > 0 ? wait(still, joined, id) : bring_back(id, Machine::same);
    }
    const double given_s = breakages_[id].fault.lasts_s;  // a preempted machine comes back by itself
    const double seconds = given_s > 0 ? given_s : pool_.repair(id, now().seconds()).seconds;
    if (pool_.take().machine != SparePool::kNone) {
        bring_back(id, Machine::fresh);
    } else {
        waiting_.push_back(id);
    }
    wait(seconds, mended, id);
}

void Lifecycle::bring_back(std::uint32_t id, Machine machine) {
    if (machine != Machine::same) {
        renew(breakages_[id].fault.place);
    }
    for (const std::uint32_t replica : breakages_[id].replicas) {
        starter_.start(replica, machine, [this](std::uint32_t one) { started(one); });
    }
}

// Another machine, or a mended one, is at a place: what slowed it is over, and its parts are as new.
void Lifecycle::renew(const Place& place) {
    const JobShape& shape = spec_.faults.shape;
    const std::uint32_t node = machine_of(place, shape).value_or(place.index);
    impairments_.end_where([&](const Fault& fault) {
        return fault.lasts_s <= 0 && touches(fault.place, node * shape.gpus_per_node, shape.gpus_per_node) &&
               fault.place.what != Place::What::job;
    });
    apply();
    for (std::uint32_t i = 0; i < sources_.size(); ++i) {
        FaultSource& source = sources_[i];
        if (source.of_machines()) {
            source.replaced(node, now().seconds());
            if (SimTime::from_seconds(std::min(source.next(), kLatest)) != due_[i]) {
                expect(i);
            }
        }
    }
}

void Lifecycle::started(std::uint32_t replica) {
    Unit& unit = units_[replica];
    ORRERY_ASSERT(unit.down && unit.since <= now());
    unit.down = false;
    result_.downs.push_back({replica, unit.since, now()});
    ++result_.recoveries;
    result_.recovery_s += (now() - unit.since).seconds();
    fleet_[replica].up = true;
    list(replica, true);
    fleet_.wake(replica);
    note();
}

void Lifecycle::impair(const Fault& fault) {
    const std::uint32_t id = impairments_.add(fault, Machines::kNone);
    if (fault.lasts_s > 0) {
        wait(fault.lasts_s, ended, id);
    }
    apply();
}

void Lifecycle::apply() {
    std::map<std::uint32_t, double> nics;
    for (const Impairments::Active& one : impairments_.active()) {
        const Fault& fault = one.fault;
        if (fault.place.what == Place::What::nic) {
            const auto entry = nics.try_emplace(fault.place.index, 1.0).first;
            entry->second = std::min(entry->second, fault.kind == FaultKind::degraded ? fault.factor : 0);
        }
    }
    starter_.set_storage(impairments_.store_factor());
    for (const std::uint32_t nic : slow_nics_) {
        nics.try_emplace(nic, 1.0);
    }
    slow_nics_.clear();
    const JobShape& shape = spec_.faults.shape;
    for (const auto& [nic, factor] : nics) {
        if (spec_.fabric != nullptr) {
            const std::uint32_t rank = nic / shape.nics_per_node * shape.gpus_per_node;
            const std::uint32_t node =
                spec_.fabric->node_of(spec_.placement ? spec_.placement->gpu(rank) : GpuId(rank));
            const std::uint32_t place = node * shape.nics_per_node + nic % shape.nics_per_node;
            for (const ResourceId link : {spec_.fabric->nic_out(place), spec_.fabric->nic_in(place)}) {
                dispatcher_->resources().set_capacity(link, factor * spec_.fabric->capacity(link));
            }
        }
        if (factor < 1) {
            slow_nics_.push_back(nic);
        }
    }
    for (std::uint32_t i = 0; i < fleet_.size(); ++i) {
        apply(i);
    }
}

void Lifecycle::apply(std::uint32_t index) {
    Replica& replica = fleet_[index];
    const auto stages = static_cast<std::uint32_t>(replica.stages.size());
    const std::uint32_t gpus = replica.pool.gpus / stages;
    ORRERY_ASSERT(gpus * stages == replica.pool.gpus);
    std::vector<Replica::Impairment> impaired(stages);
    for (const Impairments::Active& one : impairments_.active()) {
        const Fault& fault = one.fault;
        const bool whole = fault.place.what == Place::What::replica && fault.place.index == index;
        for (std::uint32_t stage = 0; stage < stages; ++stage) {
            if (!whole && !touches(fault.place, replica.first_gpu + stage * gpus, gpus)) {
                continue;
            }
            Replica::Impairment& has = impaired[stage];
            if (fault.kind == FaultKind::slow) {
                has.speed = std::min(has.speed, fault.factor);
            } else if (fault.kind == FaultKind::power_cap) {
                has.clock = std::min(has.clock, fault.factor);
            } else if (fault.kind == FaultKind::degraded && spans(replica, stage)) {
                has.nic = std::min(has.nic, fault.factor);
            }
        }
    }
    const bool any = std::any_of(impaired.begin(), impaired.end(),
                                 [](const Replica::Impairment& one) { return one != Replica::Impairment(); });
    replica.impaired = any ? std::move(impaired) : std::vector<Replica::Impairment>();
}

// Whether the service can do its work at all.
void Lifecycle::note() {
    std::vector<bool> serves(spec_.pools.size());
    for (std::uint32_t i = 0; i < fleet_.size(); ++i) {
        const Replica& replica = fleet_[i];
        serves[replica.pool_number] = serves[replica.pool_number] || !units_[i].down;
    }
    const bool outage = std::find(serves.begin(), serves.end(), false) != serves.end();
    const bool was = !outages_.empty() && outages_.back().second == SimTime::max();
    if (outage && !was) {
        outages_.emplace_back(now(), SimTime::max());
    } else if (!outage && was) {
        outages_.back().second = now();
    }
}

void Lifecycle::finish(SimTime from, SimTime to) {
    const auto within = [&](SimTime start, SimTime end) {
        return std::max(0.0, (std::min(end, to) - std::max(start, from)).seconds());
    };
    for (std::uint32_t i = 0; i < units_.size(); ++i) {
        if (units_[i].down) {
            result_.downs.push_back({i, units_[i].since, std::max(units_[i].since, to)});
        }
    }
    for (const DownRecord& one : result_.downs) {
        ORRERY_ASSERT(one.start <= one.end);
        result_.down_s += within(one.start, one.end);
    }
    for (const auto& [start, end] : outages_) {
        result_.outage_s += within(start, end);
    }
}

}  // namespace orrery::serving
