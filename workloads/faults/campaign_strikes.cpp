#include "workloads/faults/campaign_run.hpp"

#include <algorithm>

namespace orrery::faults::running {

void Campaign::add_sources(std::uint64_t seed) {
    sources_ = fault_sources(spec_.processes, plan_.given, plan_.shape, seed, "faults/process/", "faults/lasts/");
    for (std::size_t i = 0; i < sources_.size(); ++i) {
        FaultSource& source = sources_[i];
        for (std::uint32_t place = 0; source.of_machines() && place < fleet_.places().size(); ++place) {
            source.set_bad(place, fleet_.bad(fleet_.machine_at(place), i));
        }
        source.begin();
        due_.push_back(CampaignTime::from_seconds(source.next()));
    }
}

void Campaign::take_event() {
    for (std::size_t i = 0; i < sources_.size(); ++i) {
        if (FaultSource& source = sources_[i]; arrival(i) <= now_) {
            strikes_.clear();
            source.strike(strikes_);
            due_[i] = CampaignTime::from_seconds(source.next());
            for (const TimedFault& one : strikes_) {
                push(in(one.at_s), Happens::strike, static_cast<std::uint32_t>(struck_.size()), source.is_given());
                struck_.push_back(one.fault);
            }
            return;
        }
    }
    ORRERY_ASSERT(!queue_.empty());
    const Event event = queue_.pop();
    ORRERY_ASSERT(event.time_ps == now_.ns());
    switch (const auto what = static_cast<Happens>(event.handler); what) {
        case Happens::strike:
            return strike(struck_[event.datum]);
        case Happens::end:
            impairments_.end(event.datum);
            priced_ = false;
            return;
        case Happens::back:
        case Happens::mended:
            if (what == Happens::mended) {
                impairments_.end_of(event.datum);
            }
            fleet_.give_back(event.datum, what == Happens::mended);
            if (step_ == Step::waiting) {
                acquire();
            }
            return;
        case Happens::found:
            return find_corruption(event.datum);
        case Happens::noticed:
            if (const Impairments::Active* one = impairments_.find(event.datum); one != nullptr) {
                draining_.push_back(one->machine);
            }
            return;
    }
}

void Campaign::strike(const Fault& fault) {
    if (free_ && step_ == Step::training) {
        save_for_free();
    }
    ++out_.faults;
    ORRERY_ASSERT(static_cast<std::size_t>(fault.kind) < out_.by_kind.size());
    ++out_.by_kind[static_cast<std::size_t>(fault.kind)];
    if (keeps_timeline_) {
        out_.struck.push_back({now_, fault});
    }
    const std::uint32_t place = machine_of(fault.place, plan_.shape).value_or(Machines::kNone);
    const std::uint32_t machine = place == Machines::kNone ? Machines::kNone : fleet_.machine_at(place);
    if (fault.kind == FaultKind::preemption && machine == Machines::kNone) {
        return preempt_standby(fault, place);
    }
    if (place != Machines::kNone && machine == Machines::kNone) {
        return;  // nobody is there
    }
    switch (fault.kind) {
        case FaultKind::fail_stop:
            if (place != Machines::kNone) {
                lose(place, 0);
            }
            return interrupt(chance(recovery_.heartbeat_misses) ? recovery_.timeout_s : recovery_.heartbeat_s);
        case FaultKind::preemption:
            lose(place, fault.lasts_s > 0 ? fault.lasts_s : kNeverBack);
            return interrupt(recovery_.heartbeat_s);
        case FaultKind::hang: {
            const bool noticed = recovery_.watches && !chance(recovery_.anomaly_misses);
            return interrupt(noticed ? std::min(recovery_.anomaly_s, recovery_.timeout_s) : recovery_.timeout_s);
        }
        case FaultKind::corruption:
            corruptions_.push_back({next_corruption_, now_, machine});
            return push(in(recovery_.corruption_s), Happens::found, next_corruption_++);
        case FaultKind::link_down:
        case FaultKind::link_flap:
            return strike_link(fault, place, machine);
        case FaultKind::switch_loss:
            if (fault.place.what == Place::What::leaf) {
                return lose_leaf(fault);
            }
            break;
        default:
            break;
    }
    impair(fault, machine);
}

void Campaign::preempt_standby(const Fault& fault, std::uint32_t place) {
    const std::uint32_t machine = fleet_.take_standby(place);
    if (machine != Machines::kNone && fault.lasts_s > 0) {
        push(in(fault.lasts_s), Happens::back, machine);
    }
}

void Campaign::strike_link(const Fault& fault, std::uint32_t place, std::uint32_t machine) {
    const bool uplink = fault.place.what == Place::What::leaf_spine;
    const bool endures = uplink ? plan_.shape.spines > 1
                                : fault.kind == FaultKind::link_flap && fault.lasts_s <= recovery_.retry_limit_s;
    if (endures) {
        return impair(fault, machine);
    }
    if (uplink) {  // the only way out of its leaf
        return lose_leaf({FaultKind::switch_loss, {Place::What::leaf, fault.place.index, 0}, 1, fault.lasts_s});
    }
    lose(place, fault.lasts_s);
    interrupt(recovery_.retry_limit_s);
}

void Campaign::lose_leaf(const Fault& fault) {
    const std::uint32_t first = fault.place.index / plan_.shape.rails * plan_.shape.nodes_per_leaf;
    bool any = false;
    for (std::uint32_t place = first; place < first + plan_.shape.nodes_per_leaf; ++place) {
        any = any || fleet_.machine_at(place) != Machines::kNone;
        lose(place, fault.lasts_s);
    }
    if (any) {
        interrupt(recovery_.retry_limit_s);
    }
}

void Campaign::impair(const Fault& fault, std::uint32_t machine) {
    const std::uint32_t id = impairments_.add(fault, machine);
    priced_ = false;
    if (fault.lasts_s > 0) {
        push(in(fault.lasts_s), Happens::end, id);
    }
    const bool of_machine = machine != Machines::kNone && fault.kind != FaultKind::power_cap;
    if (of_machine && recovery_.watches && !chance(recovery_.anomaly_misses)) {
        push(in(recovery_.anomaly_s), Happens::noticed, id);
    }
}

}  // namespace orrery::faults::running
