#include "workloads/faults/campaign_run.hpp"

#include <algorithm>
#include <numeric>

namespace orrery::faults::running {

void Campaign::interrupt(double delay_s) {
    ++out_.interruptions;
    ++fruitless_;
    if (step_ == Step::training || step_ == Step::saving) {
        recovery_start_ = now_;
    }
    planned_ = false;
    if (step_ != Step::waiting) {  // a job that waits for machines has nothing to notice
        begin(Step::detecting, delay_s);
    }
}

void Campaign::lose(std::uint32_t place, double back_after_s) {
    const std::uint32_t machine = fleet_.machine_at(place);
    if (machine == Machines::kNone) {
        return;
    }
    fleet_.remove(place);
    seen_[place] = Machines::kNone;
    lost_places_.push_back(place);
    background_.clear();
    priced_ = false;
    if (back_after_s > 0) {
        push(in(back_after_s), Happens::back, machine);
    } else if (back_after_s == 0) {
        to_repair(machine);
    }
}

void Campaign::to_repair(std::uint32_t machine) {
    const Machines::Repair repair = fleet_.repair(machine, now_.seconds());
    if (!repair.retired) {
        push(in(repair.seconds), repair.works ? Happens::mended : Happens::back, machine);
    }
}

std::uint32_t Campaign::shrink() {
    const std::vector<std::uint32_t> used = job_.nodes_used(fleet_.present_of());
    const std::uint32_t all = std::accumulate(used.begin(), used.end(), 0U);
    if (all > 0) {
        fleet_.compact(used);
    }
    return all;
}

std::uint32_t Campaign::could_use() const {
    const std::vector<std::uint32_t> used = job_.nodes_used(fleet_.most_of());
    return std::accumulate(used.begin(), used.end(), 0U);
}

void Campaign::acquire() {
    const double seconds = fleet_.fill();
    const std::uint32_t present = fleet_.present();
    const std::uint32_t used = present == plan_.shape.nodes ? present : recovery_.shrinks ? shrink() : 0;
    if (used == 0) {
        step_ = Step::waiting;
        end_ = CampaignTime::never();
        return;
    }
    ORRERY_ASSERT(used <= present && present <= plan_.shape.nodes);
    tell_sources();
    priced_ = false;
    begin(Step::joining, seconds);
}

void Campaign::tell_sources() {
    const std::vector<std::uint32_t>& places = fleet_.places();
    for (std::uint32_t place = 0; place < places.size(); ++place) {
        if (seen_[place] == places[place] || places[place] == Machines::kNone) {
            continue;
        }
        seen_[place] = places[place];
        for (std::size_t i = 0; i < sources_.size(); ++i) {
            FaultSource& source = sources_[i];
            if (source.of_machines()) {
                source.set_bad(place, fleet_.bad(places[place], i));
                const std::int64_t exposed = source.while_running() ? trained_ : now_.ns();
                source.replaced(place, static_cast<double>(exposed) * 1e-9);
                due_[i] = CampaignTime::from_seconds(source.next());
            }
        }
    }
}

bool Campaign::go_back() {
    std::sort(lost_places_.begin(), lost_places_.end());
    lost_places_.erase(std::unique(lost_places_.begin(), lost_places_.end()), lost_places_.end());
    if (memory_ && !survives(lost_places_, plan_.cost.group, plan_.cost.parity)) {
        memory_.reset();
    }
    const Saved* best = stored_.empty() ? &start_ : &stored_.back();
    const bool from_memory = memory_ && memory_->work >= best->work;
    best = from_memory ? &*memory_ : best;
    ORRERY_ASSERT(best->work <= work_ && best->taken <= now_);  // a checkpoint is of the past
    work_ = best->work;
    tally_.lose_since(best->tally);
    const CampaignTime taken = best->taken;
    std::erase_if(corruptions_, [&](const Corruption& one) { return one.at >= taken; });
    // Whoever still writes a later checkpoint has stopped with the job.
    std::erase_if(background_, [&](const Background& one) { return one.saved.work > work_; });
    from_start_ = best == &start_;
    return from_memory;
}

void Campaign::load() {
    const bool from_memory = go_back();
    step_ = Step::loading;
    const CheckpointCost& cost = plan_.cost;
    const double seconds = from_start_ ? 0 : cost.in_memory && !from_memory ? cost.persisted_load_s : cost.load_s;
    left_ = CampaignTime::from_seconds(seconds).ns();
    at_store_ = !from_memory;
}

void Campaign::find_corruption(std::uint32_t id) {
    const auto found =
        std::find_if(corruptions_.begin(), corruptions_.end(), [&](const Corruption& one) { return one.id == id; });
    if (found == corruptions_.end()) {
        return;  // the job has gone back behind it already
    }
    const Corruption corruption = *found;
    ORRERY_ASSERT(corruption.at <= now_);
    corruptions_.erase(found);
    std::erase_if(stored_, [&](const Saved& one) { return one.taken >= corruption.at; });
    std::erase_if(background_, [&](const Background& one) { return one.saved.taken >= corruption.at; });
    if (memory_ && memory_->taken >= corruption.at) {
        memory_.reset();
    }
    if (const std::uint32_t place = fleet_.place_of(corruption.machine); place != Machines::kNone) {
        lose(place, 0);
    }
    interrupt(0);
}

}  // namespace orrery::faults::running
