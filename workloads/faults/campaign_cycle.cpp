#include "workloads/faults/campaign_run.hpp"

#include <algorithm>
#include <bit>

namespace orrery::faults::running {

bool Campaign::saves_are_free() const {
    const auto matters = [](FaultKind kind, bool store) { return kind == FaultKind::corruption || store; };
    bool plain = !recovery_.watches && !recovery_.shrinks;
    for (const ProcessSpec& one : spec_.processes) {
        plain = plain && !matters(one.kind, one.component == Component::storage);
    }
    for (const TimedFault& one : plan_.given) {
        plain = plain && !matters(one.fault.kind, one.fault.place.what == Place::What::storage);
    }
    const CheckpointCost& cost = plan_.cost;
    return plain && cost.stall_s == 0 && cost.background_s == 0 && !cost.in_memory;
}

void Campaign::save_for_free() {
    const std::int64_t begun = stored_.empty() ? 0 : stored_.back().work;
    ORRERY_ASSERT(interval_ > 0 && work_ >= begun);
    const std::int64_t kept = (work_ - begun) / interval_ * interval_;
    if (kept == 0) {
        return;
    }
    const std::int64_t lost = work_ - begun - kept;
    ORRERY_ASSERT(lost >= 0 && lost < interval_);
    Saved saved{begun + kept, tally_, now_};
    saved.tally[Cause::useful] -= lost;
    if (const std::int64_t pace = iteration(); pace > healthy_) {
        const std::int64_t slow = std::min(tally_[slowed_by_], scaled_down(lost, pace - healthy_, healthy_));
        saved.tally[slowed_by_] -= slow;
    }
    stored_ = {saved};
    out_.checkpoints += static_cast<std::uint64_t>(kept / interval_);
    fruitless_ = 0;
}

void Campaign::begin(Step step, double seconds) {
    step_ = step;
    end_ = in(seconds);
}

void Campaign::finish_step() {
    switch (step_) {
        case Step::training:
            if (work_ >= goal_) {
                out_.finished = true;
                step_ = Step::done;
                return;
            }
            return save();
        case Step::saving:
            return saved();
        case Step::detecting: {
            double seconds = recovery_.diagnosis_s;
            if (recovery_.bisection_s > 0) {
                // Each run halves the nodes that are suspected.
                seconds += recovery_.bisection_s * std::bit_width(std::max(1U, plan_.shape.nodes) - 1U);
            }
            return begin(Step::diagnosing, seconds);
        }
        case Step::diagnosing:
            return acquire();
        case Step::joining:
            return begin(Step::queueing, recovery_.queue_s);
        case Step::queueing:
            return begin(Step::restarting, recovery_.restart_s);
        case Step::restarting:
            return load();
        case Step::loading:
            return train();
        default:
            break;
    }
}

void Campaign::save() {
    step_ = Step::saving;
    const bool background = plan_.cost.background_s > 0 || plan_.cost.in_memory;
    at_store_ = !background;
    left_ = CampaignTime::from_seconds(plan_.cost.stall_s).ns();
    if (background && left_ == 0) {
        left_ = 1;  // a copy that takes no time still waits for room
    }
}

void Campaign::saved() {
    const Saved now{work_, tally_, now_};
    next_save_ = after(interval_);
    step_ = Step::training;
    const CheckpointCost& cost = plan_.cost;
    if (!cost.in_memory && cost.background_s <= 0) {
        return commit(now, true);
    }
    background_.push_back({now, CampaignTime::from_seconds(cost.background_s).ns(), !cost.in_memory});
    priced_ = false;
}

void Campaign::finish_background() {
    const auto done =
        std::find_if(background_.begin(), background_.end(), [](const Background& one) { return one.left == 0; });
    ORRERY_ASSERT(done != background_.end());
    const Background one = *done;
    background_.erase(done);
    priced_ = false;
    commit(one.saved, one.to_store);
}

void Campaign::commit(const Saved& saved, bool in_store) {
    ++out_.checkpoints;
    fruitless_ = 0;
    if (!in_store) {
        memory_ = saved;
        const bool busy =
            std::any_of(background_.begin(), background_.end(), [](const Background& one) { return one.to_store; });
        if (++copies_ % plan_.cost.persist_every == 0 && !busy) {
            background_.push_back({saved, CampaignTime::from_seconds(plan_.cost.persist_s).ns(), true});
            priced_ = false;
        }
    } else {
        ORRERY_ASSERT(stored_.empty() || stored_.back().taken <= saved.taken);
        stored_.push_back(saved);
        if (stored_.size() > static_cast<std::size_t>(spec_.checkpoint.storage.keep)) {
            stored_.pop_front();
        }
    }
    if (step_ == Step::training) {
        replace_in_time();
    }
}

void Campaign::replace_in_time() {
    bool leaves = false;
    for (const std::uint32_t machine : draining_) {
        const std::uint32_t place = fleet_.place_of(machine);
        if (place != Machines::kNone && fleet_.available() > 0) {
            fleet_.remove(place);
            seen_[place] = Machines::kNone;
            to_repair(machine);
            leaves = true;
        }
    }
    draining_.clear();
    const std::uint32_t used = fleet_.present();
    if (!leaves && !(used < plan_.shape.nodes && could_use() > used)) {
        return;
    }
    planned_ = true;
    recovery_start_ = now_;
    acquire();
}

void Campaign::train() {
    step_ = Step::training;
    next_save_ = free_ ? goal_ : after(interval_);
    lost_places_.clear();
    ++out_.recoveries;
    ORRERY_ASSERT(now_ >= recovery_start_);
    out_.recovering += now_ - recovery_start_;
    planned_ = false;
    priced_ = false;
}

}  // namespace orrery::faults::running
