#include "workloads/faults/campaign_run.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::faults::running {

CampaignTime Campaign::arrival(std::size_t source) const {
    const CampaignTime due = due_[source];
    if (!sources_[source].while_running()) {
        return std::max(now_, due);
    }
    return step_ != Step::training || due.is_never()
               ? CampaignTime::never()
               : now_ + CampaignTime::from_ns(std::max<std::int64_t>(0, due.ns() - trained_));
}

CampaignTime Campaign::next_event() const {
    CampaignTime first = queue_.empty() ? CampaignTime::never() : CampaignTime::from_ns(queue_.earliest());
    for (std::size_t i = 0; i < sources_.size(); ++i) {
        first = std::min(first, arrival(i));
    }
    return first;
}

std::int64_t Campaign::iteration() {
    if (!priced_) {
        priced_ = true;
        const bool stalls = impairments_.stalls(fleet_, plan_.shape);
        ClusterState state{fleet_.present(), impairments_.of_job(fleet_, plan_.shape), 0};
        if (has_kinds_ && state.nodes < plan_.shape.nodes) {
            state.by_kind = fleet_.present_of();
        }
        if (std::any_of(background_.begin(), background_.end(),
                        [&](const Background& one) { return in_the_way(one); })) {
            state.nic_share = plan_.cost.nic_share;
        }
        const bool healthy = state.nodes == plan_.shape.nodes && state.impairments.empty() && state.nic_share == 0;
        const double seconds = stalls    ? std::numeric_limits<double>::infinity()
                               : healthy ? plan_.straggling_s
                                         : job_.iteration_s(state);
        iteration_ = std::isinf(seconds) ? 0 : std::max(healthy_, CampaignTime::from_seconds(seconds).ns());
        slowed_by_ = state.nodes < plan_.shape.nodes        ? Cause::fewer_nodes
                     : stalls || !state.impairments.empty() ? impairments_.cause(fleet_)
                     : healthy                              ? Cause::stragglers
                                                            : Cause::checkpoint_traffic;
    }
    return iteration_;
}

CampaignTime Campaign::store_end(std::int64_t left, bool to_store) const {
    const double factor = to_store ? impairments_.store_factor() : 1;
    if (left == 0 || factor == 1) {
        return now_ + CampaignTime::from_ns(left);
    }
    return factor > 0
               ? now_ + CampaignTime::from_ns(static_cast<std::int64_t>(std::ceil(static_cast<double>(left) / factor)))
               : CampaignTime::never();
}

std::int64_t Campaign::store_progress(std::int64_t left, std::int64_t ns, bool to_store) const {
    const double factor = to_store ? impairments_.store_factor() : 1;
    return std::min(left, factor == 1 ? ns : static_cast<std::int64_t>(std::ceil(static_cast<double>(ns) * factor)));
}

CampaignTime Campaign::background_end() const {
    CampaignTime first = CampaignTime::never();
    for (const Background& one : background_) {
        first = std::min(first, store_end(one.left, one.to_store));
    }
    return first;
}

CampaignTime Campaign::step_end() {
    switch (step_) {
        case Step::training: {
            const std::int64_t pace = iteration();
            return pace == 0 || target() == std::numeric_limits<std::int64_t>::max()
                       ? CampaignTime::never()
                       : now_ + CampaignTime::from_ns(scaled_up(target() - work_, pace, healthy_));
        }
        case Step::saving:
            return waits_for_background() ? CampaignTime::never() : store_end(left_, at_store_);
        case Step::loading:
            return store_end(left_, at_store_);
        default:
            return end_;
    }
}

bool Campaign::waits_for_background() const {
    return left_ > 0 && !at_store_ &&
           std::any_of(background_.begin(), background_.end(), [&](const Background& one) { return in_the_way(one); });
}

void Campaign::pass(CampaignTime until) {
    const std::int64_t ns = (until - now_).ns();
    if (ns == 0) {
        return;
    }
    const Cause cause = book(ns);
    if (keeps_timeline_) {
        if (!out_.timeline.empty() && out_.timeline.back().cause == cause && out_.timeline.back().end == now_) {
            out_.timeline.back().end = until;
        } else {
            out_.timeline.push_back({cause, now_, until});
        }
    }
    for (Background& one : background_) {
        one.left -= store_progress(one.left, ns, one.to_store);
        ORRERY_ASSERT(one.left >= 0);
    }
    now_ = until;
}

Cause Campaign::book(std::int64_t ns) {
    if (step_ == Step::training) {
        const std::int64_t pace = iteration();
        const std::int64_t done = pace == 0 ? 0 : std::min(target() - work_, scaled_down(ns, healthy_, pace));
        ORRERY_ASSERT(done >= 0 && done <= ns);  // at most what the healthy job does
        work_ += done;
        trained_ += ns;
        tally_[Cause::useful] += done;
        tally_[pace == healthy_ ? Cause::useful : slowed_by_] += ns - done;
        return Cause::useful;
    }
    Cause cause = Cause::hardware;
    const bool outage = impairments_.store_factor() == 0;
    switch (step_) {
        case Step::saving:
            if (waits_for_background()) {
                cause = outage && !plan_.cost.in_memory ? Cause::storage : Cause::checkpoint;
            } else {
                cause = at_store_ && outage ? Cause::storage : Cause::checkpoint;
                left_ -= store_progress(left_, ns, at_store_);
            }
            break;
        case Step::detecting:
            cause = Cause::detection;
            break;
        case Step::diagnosing:
            cause = Cause::diagnosis;
            break;
        case Step::restarting:
            cause = planned_ ? Cause::reshard : Cause::restart;
            break;
        case Step::loading:
            cause = at_store_ && outage ? Cause::storage : planned_ ? Cause::reshard : Cause::load;
            left_ -= store_progress(left_, ns, at_store_);
            break;
        default:
            break;
    }
    ORRERY_ASSERT(left_ >= 0);
    tally_[cause] += ns;
    return cause;
}

}  // namespace orrery::faults::running
