#include "workloads/serving/front_end/frontend.hpp"

#include "workloads/serving/fleet/fleet.hpp"

#include <algorithm>

namespace orrery::serving {

namespace {

constexpr std::uint64_t kProgressEvery = 4096;

}  // namespace

void Frontend::begin(Dispatcher& dispatcher) {
    dispatcher_ = &dispatcher;
    if (host_) {
        host_->begin(dispatcher);
    }
    await_next();
}

void Frontend::await_next() {
    const SimTime way = host_ ? SimTime() : SimTime::from_seconds(spec_.request_overhead);
    const std::uint64_t clients = requests_.clients();
    while (!all_sent_ && (clients == 0 ? coming_.empty() : arrived_ + on_way() - settled_ < clients)) {
        Request request;
        if (!requests_.next(request) || past_load(clients > 0 ? dispatcher_->now() : request.arrival)) {
            all_sent_ = true;
            return;
        }
        if (clients > 0) {
            request.arrival = dispatcher_->now();
        }
        const SimTime done = std::max(free_.top(), request.arrival) + work_on(request);
        free_.pop();
        free_.push(done);
        dispatcher_->delay(std::max(SimTime(), done + way - dispatcher_->now()), 0, Token{}.pack());
        coming_.push_back(std::move(request));
    }
}

SimTime Frontend::work_on(const Request& request) const {
    return host_ ? SimTime() : SimTime::from_seconds(spec_.frontend + spec_.prompt_token * request.prompt);
}

bool Frontend::past_load(SimTime at) const {
    return spec_.load_to > 0 && at.seconds() >= spec_.load_to;
}

void Frontend::on_arrival() {
    const Request request = std::move(coming_.front());
    coming_.pop_front();
    send(request);
    await_next();
}

void Frontend::on_follow_up(std::uint32_t slot) {
    const Request request = std::move(returning_[slot]);
    free_returning_.push_back(slot);
    send(request);
}

void Frontend::send(Request request) {
    if (host_) {
        host_->take(std::move(request));
    } else {
        pass_on(request);
    }
}

void Frontend::on_host(std::uint32_t slot) {
    if (Request request; host_->on_task(slot, request)) {
        pass_on(request);
    }
}

void Frontend::pass_on(const Request& request) {
    const std::uint64_t id = arrived_++;
    listener_.request_arrives(request, id);
    if (hooks_.progress && !spec_.steady.wanted && arrived_ % kProgressEvery == 0) {
        const double now = dispatcher_->now().seconds();
        hooks_.progress(spec_.load_to > 0 ? now / spec_.load_to : requests_.progress());
    }
}

void Frontend::settle(std::uint32_t turn, bool served) {
    ++settled_;
    last_ = dispatcher_->now();
    if (host_) {
        host_->settled();
    }
    // A client of a closed loop takes another conversation when its own is over.
    if (Request next;
        turn > 0 && requests_.follow_up(turn, last_, served && !closed_, next) && !past_load(next.arrival)) {
        expect(std::move(next));
    } else if (requests_.clients() > 0) {
        await_next();
    }
}

void Frontend::expect(Request request) {
    if (free_returning_.empty()) {
        free_returning_.push_back(static_cast<std::uint32_t>(returning_.size()));
        returning_.emplace_back();
    }
    const std::uint32_t slot = free_returning_.back();
    free_returning_.pop_back();
    const SimTime way = host_ ? SimTime() : SimTime::from_seconds(spec_.request_overhead) + work_on(request);
    dispatcher_->delay(request.arrival + way - dispatcher_->now(), 0, Token{ServiceTask::follow_up, slot, 0}.pack());
    returning_[slot] = std::move(request);
}

}  // namespace orrery::serving
