#include "workloads/serving/front_end/frontend.hpp"

#include "sim/base/error.hpp"

#include <algorithm>

namespace orrery::serving {

namespace {

constexpr std::uint64_t kProgressEvery = 4096;

}  // namespace

void Frontend::begin(Dispatcher& dispatcher) {
    Part::begin(dispatcher);
    await_next();
}

void Frontend::await_next() {
    const SimTime way = host_ ? SimTime() : SimTime::from_seconds(spec_.software.request.value);
    const std::uint64_t clients = requests_.clients();
    while (!all_sent_ && (clients == 0 ? coming_.empty() : under_way() < clients)) {
        Request request;
        if (!take_next(request)) {
            return;
        }
        if (clients > 0) {
            request.arrival = now();
        }
        const SimTime done = std::max(free_.top(), request.arrival + gateway(request)) + work_on(request);
        free_.pop();
        free_.push(done);
        dispatcher_->delay(std::max(SimTime(), done + way - now()), 0, kNext);
        coming_.push_back(std::move(request));
    }
}

bool Frontend::take_next(Request& request) {
    const bool waited = held_.has_value();
    if (waited) {
        request = std::move(*held_);
        held_.reset();
    } else if (requests_.next(request)) {
        request.arrival += request.stage == stage_ ? stage_start_ : SimTime();
    } else {
        all_sent_ = live_ == nullptr || live_->closed();
        return false;
    }
    const bool begins = request.stage != stage_;
    const auto most = static_cast<std::uint64_t>(spec_.concurrency);
    if (begins ? under_way() > 0 : most > 0 && under_way() >= most) {
        held_ = std::move(request);
        return false;
    }
    if (begins) {
        stage_start_ = stage_ == 0 ? now() : now() + SimTime::from_seconds(spec_.pause);
        stage_ = request.stage;
        request.arrival += stage_start_;
        begins_(stage_start_);
    } else if (waited) {
        request.arrival = std::max(request.arrival, now());
    }
    if (past_load(requests_.clients() > 0 ? now() : request.arrival)) {
        all_sent_ = live_ == nullptr || live_->closed();
        return false;
    }
    return true;
}

SimTime Frontend::work_on(const Request& request) const {
    return host_ ? SimTime()
                 : SimTime::from_seconds(spec_.software.frontend.value +
                                         spec_.software.prompt_token.value * request.prompt);
}

SimTime Frontend::gateway(const Request& request) const {
    return SimTime::from_seconds(spec_.gateway.latency + spec_.gateway.prompt_token_s * request.prompt);
}

bool Frontend::past_load(SimTime at) const {
    return spec_.load_to > 0 && at.seconds() >= spec_.load_to;
}

void Frontend::on_done(std::uint64_t token, Dispatcher&) {
    if (token == kNext) {
        ORRERY_ASSERT(!coming_.empty());
        Request request = std::move(coming_.front());
        coming_.pop_front();
        send(std::move(request));
        return await_next();
    }
    const auto slot = static_cast<std::uint32_t>(token);
    Request request = std::move(returning_[slot]);
    returning_.give(slot);
    send(std::move(request));
}

void Frontend::send(Request request) {
    if (host_) {
        host_->take(std::move(request));
    } else {
        pass_on(request);
    }
}

void Frontend::pass_on(const Request& request) {
    const std::uint64_t id = arrived_++;
    if (live_ != nullptr) {
        live_->entered(request.turn, id);
    }
    arrives_(request, id);
    if (hooks_.progress && !spec_.steady.wanted && arrived_ % kProgressEvery == 0) {
        const double at = now().seconds();
        hooks_.progress(spec_.load_to > 0 ? at / spec_.load_to : requests_.progress());
    }
}

void Frontend::settle(std::uint32_t turn, bool served) {
    ++settled_;
    ORRERY_ASSERT(settled_ <= arrived_);
    last_ = now();
    if (host_) {
        host_->settled();
    }
    // A client of a closed loop takes another conversation when its own is over.
    bool follows = false;
    Request next;
    for (bool more = turn > 0 && requests_.follow_up(turn, last_, served && !closed_, next); more;
         more = requests_.another(next)) {
        if (!past_load(next.arrival)) {
            expect(std::move(next));
            follows = true;
        }
    }
    if (!follows && (requests_.clients() > 0 || held_)) {
        await_next();
    }
}

void Frontend::expect(Request request) {
    const SimTime way = host_ ? SimTime() : SimTime::from_seconds(spec_.software.request.value) + work_on(request);
    const SimTime at = request.arrival + gateway(request) + way;
    dispatcher_->delay(at - now(), 0, returning_.take(std::move(request)));
}

}  // namespace orrery::serving
