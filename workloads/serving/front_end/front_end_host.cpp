#include "workloads/serving/front_end/front_end_host.hpp"

#include "workloads/serving/fleet/fleet.hpp"

#include <algorithm>
#include <functional>

namespace orrery::serving {

SimTime HostCores::work(SimTime now, SimTime takes) {
    if (takes == SimTime()) {
        return now;  // there is no job
    }
    std::pop_heap(free_.begin(), free_.end(), std::greater<>());
    const SimTime done = std::max(now, free_.back()) + takes;
    free_.back() = done;
    std::push_heap(free_.begin(), free_.end(), std::greater<>());
    busy_ += takes;
    return done;
}

void FrontEndHost::take(Request request) {
    if (spec_.streams > 0 && under_way_ >= spec_.streams) {
        waiting_.emplace_back(std::move(request), dispatcher_->now());
        return;
    }
    let_in(std::move(request), dispatcher_->now());
}

void FrontEndHost::let_in(Request request, SimTime sent) {
    ++under_way_;
    if (free_slots_.empty()) {
        free_slots_.push_back(static_cast<std::uint32_t>(slots_.size()));
        slots_.emplace_back();
    }
    const std::uint32_t slot = free_slots_.back();
    free_slots_.pop_back();
    slots_[slot] = {std::move(request), sent, false};
    const SimTime now = dispatcher_->now();
    const SimTime turn = std::max(now, next_);
    if (spec_.rate > 0) {
        next_ = turn + SimTime::from_seconds(1 / spec_.rate);
    }
    if (turn > now) {
        dispatcher_->delay(turn - now, 0, Token{ServiceTask::front_end, slot, 0}.pack());
    } else {
        tokenise(slot);
    }
}

void FrontEndHost::tokenise(std::uint32_t slot) {
    Slot& one = slots_[slot];
    one.tokenised = true;
    const SimTime now = dispatcher_->now();
    const SimTime takes = SimTime::from_seconds(spec_.request_s + spec_.prompt_token_s * one.request.prompt);
    const SimTime done = cores_.work(now, takes);
    result_.front_end_request_wait_s += (done - takes - one.sent).seconds();
    ++result_.front_end_requests;
    result_.front_end_busy_s = cores_.busy_s();
    dispatcher_->delay(done + way_ - now, 0, Token{ServiceTask::front_end, slot, 0}.pack());
}

bool FrontEndHost::on_task(std::uint32_t slot, Request& request) {
    if (!slots_[slot].tokenised) {
        tokenise(slot);
        return false;
    }
    request = std::move(slots_[slot].request);
    free_slots_.push_back(slot);
    return true;
}

void FrontEndHost::settled() {
    --under_way_;
    if (!waiting_.empty()) {
        auto [request, sent] = std::move(waiting_.front());
        waiting_.pop_front();
        let_in(std::move(request), sent);
    }
}

SimTime FrontEndHost::stream() {
    const SimTime now = dispatcher_->now();
    const SimTime takes = SimTime::from_seconds(spec_.token_s);
    const SimTime done = cores_.work(now, takes);
    result_.front_end_token_wait_s += (done - takes - now).seconds();
    ++result_.front_end_tokens;
    result_.front_end_busy_s = cores_.busy_s();
    return done;
}

void FrontEndHost::deliver(std::uint32_t replica, const Sequence& sequence) {
    if (free_deliveries_.empty()) {
        free_deliveries_.push_back(static_cast<std::uint32_t>(deliveries_.size()));
        deliveries_.emplace_back();
    }
    const std::uint32_t slot = free_deliveries_.back();
    free_deliveries_.pop_back();
    deliveries_[slot] = {replica, sequence};
    dispatcher_->delay(sequence.last_token - dispatcher_->now(), 0, Token{ServiceTask::delivery, slot, 0}.pack());
}

FrontEndHost::Delivery FrontEndHost::delivered(std::uint32_t slot) {
    free_deliveries_.push_back(slot);
    return std::move(deliveries_[slot]);
}

}  // namespace orrery::serving
