#include "workloads/serving/front_end/front_end_host.hpp"

#include "sim/base/error.hpp"

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
        waiting_.emplace_back(std::move(request), now());
        return;
    }
    let_in(std::move(request), now());
}

void FrontEndHost::let_in(Request request, SimTime sent) {
    ++under_way_;
    ORRERY_ASSERT(spec_.streams == 0 || under_way_ <= spec_.streams);
    const std::uint32_t slot = slots_.take({std::move(request), sent, false});
    const SimTime turn = std::max(now(), next_);
    if (spec_.rate > 0) {
        next_ = turn + SimTime::from_seconds(1 / spec_.rate);
    }
    if (turn > now()) {
        dispatcher_->delay(turn - now(), 0, slot);
    } else {
        tokenise(slot);
    }
}

void FrontEndHost::tokenise(std::uint32_t slot) {
    Slot& one = slots_[slot];
    ORRERY_ASSERT(!one.tokenised);
    one.tokenised = true;
    const SimTime takes = SimTime::from_seconds(spec_.request_s + spec_.prompt_token_s * one.request.prompt);
    const SimTime done = cores_.work(now(), takes);
    result_.front_end_request_wait_s += (done - takes - one.sent).seconds();
    ++result_.front_end_requests;
    result_.front_end_busy_s = cores_.busy_s();
    dispatcher_->delay(done + way_ - now(), 0, slot);
}

void FrontEndHost::on_done(std::uint64_t token, Dispatcher&) {
    const auto slot = static_cast<std::uint32_t>(token);
    if (!slots_[slot].tokenised) {
        return tokenise(slot);
    }
    const Request request = std::move(slots_[slot].request);
    slots_.give(slot);
    arrives_(request);
}

void FrontEndHost::settled() {
    ORRERY_ASSERT(under_way_ > 0);
    --under_way_;
    if (!waiting_.empty()) {
        auto [request, sent] = std::move(waiting_.front());
        waiting_.pop_front();
        let_in(std::move(request), sent);
    }
}

SimTime FrontEndHost::stream() {
    const SimTime takes = SimTime::from_seconds(spec_.token_s);
    const SimTime done = cores_.work(now(), takes);
    result_.front_end_token_wait_s += (done - takes - now()).seconds();
    ++result_.front_end_tokens;
    result_.front_end_busy_s = cores_.busy_s();
    return done;
}

}  // namespace orrery::serving
