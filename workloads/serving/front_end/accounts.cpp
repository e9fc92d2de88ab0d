#include "workloads/serving/front_end/accounts.hpp"

#include "sim/base/error.hpp"

#include <algorithm>

namespace orrery::serving {

Accounts::Accounts(const ServiceSpec& spec, bool closed, bool conversations, const ServiceHooks& hooks,
                   Frontend& frontend, RequestPlaces& places, RequestTimeline& timeline, ServiceResult& result)
    : spec_(spec),
      hooks_(hooks),
      frontend_(frontend),
      places_(places),
      timeline_(timeline),
      result_(result),
      steady_(spec.steady.wanted ? std::make_optional<SteadyState>(spec, closed, hooks.progress, result)
                                 : std::nullopt),
      metrics_(spec, hooks, steady_ ? &*steady_ : nullptr, result),
      conversations_(conversations && !steady_) {}

void Accounts::arrived(const Request& request) {
    if (steady_) {
        steady_->arrived(request.arrival, now());
        stop_if_enough();
    }
}

void Accounts::answer(std::uint32_t replica, const Sequence& sequence) {
    (void)places_.end(sequence.id);
    if (sequence.last_token > now()) {
        dispatcher_->delay(sequence.last_token - now(), 0, deliveries_.take({replica, sequence}));
    } else {
        answered(replica, sequence);
    }
}

void Accounts::on_done(std::uint64_t token, Dispatcher&) {
    const auto slot = static_cast<std::uint32_t>(token);
    const Delivery done = std::move(deliveries_[slot]);
    ORRERY_ASSERT(done.sequence.last_token <= now());
    deliveries_.give(slot);
    answered(done.replica, done.sequence);
}

void Accounts::answered(std::uint32_t replica, const Sequence& sequence) {
    note(replica, sequence, Ending::finished);
    metrics_.answered(sequence, now());
    settle(sequence, true);
}

void Accounts::refuse(const Request& request, std::uint64_t id) {
    ++result_.refused;
    Sequence sequence;
    sequence.id = id;
    sequence.arrival = request.arrival;
    sequence.turn = request.turn;
    sequence.prompt = request.prompt;
    sequence.output = request.output;
    sequence.adapter = request.adapter;
    sequence.session = request.session;
    say_end(sequence, Ending::refused);
    leave_unserved(sequence);
}

void Accounts::give_up(std::uint32_t replica, const Sequence& sequence, Ending how) {
    (how == Ending::failed ? result_.failed : result_.timed_out) += 1;
    (void)places_.end(sequence.id);
    note(replica, sequence, how);
    leave_unserved(sequence);
}

// The timeline and whoever looks on are told.
void Accounts::note(std::uint32_t replica, const Sequence& sequence, Ending how) {
    timeline_.end(replica, sequence, now());
    say_end(sequence, how);
}

void Accounts::say_end(const Sequence& sequence, Ending how) {
    if (hooks_.ended) {
        hooks_.ended(sequence, how, now());
    }
    if (frontend_.live() != nullptr) {
        frontend_.live()->ended(sequence.turn, sequence.generated, how, now());
    }
}

void Accounts::tell(const Sequence& sequence, SimTime at) {
    frontend_.live()->token(sequence, at, spec_.stream_interval, spec_.first_token == FirstToken::decode);
}

void Accounts::leave_unserved(const Sequence& sequence) {
    metrics_.unserved(sequence.arrival);
    settle(sequence, false);
}

void Accounts::settle(const Sequence& sequence, bool served) {
    if (!result_.stages.empty()) {
        StageResult& stage = result_.stages.back();
        stage.first = stage.requests > 0 ? std::min(stage.first, sequence.arrival) : sequence.arrival;
        stage.last = now();
        ++stage.requests;
        stage.answered += served ? 1 : 0;
        stage.output_tokens += served ? sequence.generated : 0;
    }
    if (conversations_) {
        const auto [entry, fresh] = sessions_.try_emplace(sequence.session);
        SessionOutcome& session = entry->second;
        session.first = fresh ? sequence.arrival : std::min(session.first, sequence.arrival);
        session.last = now();
        ++session.requests;
        session.unserved += served ? 0 : 1;
    }
    if (steady_) {
        steady_->settled(sequence.id);
        stop_if_enough();
    }
    frontend_.settle(sequence.turn, served);
}

void Accounts::stop_if_enough() {
    if (steady_->over()) {
        frontend_.close();
    }
}

void Accounts::finish() {
    for (const auto& [number, session] : sessions_) {
        result_.sessions.push_back(session);
    }
    if (steady_) {
        steady_->finish();
    }
}

}  // namespace orrery::serving
