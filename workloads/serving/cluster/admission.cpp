#include "workloads/serving/cluster/admission.hpp"

#include "sim/base/error.hpp"
#include "workloads/outside/policies.hpp"
#include "workloads/outside/session.hpp"
#include "workloads/serving/routers/outside_view.hpp"

#include <algorithm>

namespace orrery::serving {

Admission::Admission(const ServiceSpec& spec, Fleet& fleet, Routing& routing, Transfers& transfers, Mixing& mixing,
                     Autoscaler& autoscaler, Frontend& frontend, RequestPlaces& places, Accounts& accounts,
                     ClientTimeouts& timeouts, ServiceResult& result)
    : spec_(spec),
      fleet_(fleet),
      routing_(routing),
      transfers_(transfers),
      mixing_(mixing),
      autoscaler_(autoscaler),
      frontend_(frontend),
      places_(places),
      accounts_(accounts),
      timeouts_(timeouts),
      result_(result),
      policy_(spec.policies != nullptr ? spec.policies->admission() : nullptr) {
    frontend.when_arrived([this](const Request& request, std::uint64_t id) { arrives(request, id); });
}

void Admission::arrives(const Request& request, std::uint64_t id) {
    accounts_.arrived(request);
    if (!admits(request, id)) {
        return accounts_.refuse(request, id);
    }
    const std::uint32_t first = routing_.entries.choose(id, request.session, request.content, request.prompt);
    const std::uint32_t chosen = mixing_.for_prompt(first, request);
    result_.mixed_prompts += chosen != first ? 1 : 0;
    Replica& replica = fleet_[chosen];
    Request here = request;
    if (replica.pool.role == Role::prefill) {
        here.output = 1;
    }
    if (!replica.state.accepts(here) || (replica.pool.role == Role::prefill && !can_decode(request))) {
        return accounts_.refuse(request, id);
    }
    const std::uint32_t index = replica.state.add(here, id);
    ORRERY_ASSERT(replica.state.sequence(index).id == id && here.output <= request.output);
    replica.state.sequence(index).then = request.output - here.output;
    if (replica.pool.role == Role::decode) {
        replica.state.mark_foreign(index);
    }
    timeouts_.start(id);
    ++replica.arrived;
    enter(chosen, index);
}

// Whether a policy from outside takes it, where there is one.
bool Admission::admits(const Request& request, std::uint64_t id) const {
    if (policy_ == nullptr) {
        return true;
    }
    const Routes& entries = routing_.entries;
    const RoutedRequest routed{id, fleet_.now(), request.session, request.content, request.prompt};
    const bool taken = [&] {
        const outside::Decision counted;
        return policy_->admits(OutsideView(fleet_.engines(), entries.among(), routed),
                               {id, routed.now.seconds(), request.session, request.prompt});
    }();
    if (outside::session().records) {
        outside::session().record += outside::recorded_admit(routed.now.seconds(), id, taken);
    }
    spec_.policies->turned_away += taken ? 0 : 1;
    return taken;
}

// Decode replicas are equal within a pool; one that accepts is enough.
bool Admission::can_decode(const Request& request) const {
    const auto& decoders = routing_.decoders.replicas();
    return std::any_of(decoders.begin(), decoders.end(),
                       [&](std::uint32_t i) { return fleet_[i].state.accepts(request); });
}

void Admission::enter(std::uint32_t replica, std::uint32_t sequence) {
    places_.follow(fleet_[replica].state.sequence(sequence).id, replica, sequence);
    autoscaler_.wanted(replica);
    transfers_.adapters.enter(replica, sequence);
}

// Whether all requests together may start anew once more.
bool Admission::within_budget() const {
    const std::optional<double>& budget = spec_.faults.retry_budget;
    return !budget || static_cast<double>(result_.retried + 1) <= *budget * static_cast<double>(frontend_.arrived());
}

void Admission::retry(Sequence sequence) {
    const std::uint32_t total = sequence.output + sequence.then;
    ORRERY_ASSERT(sequence.generated <= total);
    const bool copied = spec_.faults.restores && sequence.cached > 0;
    Routes& routes = copied && sequence.decoding() && !routing_.decoders.empty() ? routing_.decoders : routing_.entries;
    const std::uint32_t chosen = routes.choose(sequence.id, sequence.session, sequence.content, sequence.needed());
    Replica& replica = fleet_[chosen];
    const bool restored = copied && replica.up && replica.power == Power::on;
    sequence.output = replica.pool.role == Role::prefill ? std::min(total, sequence.generated + 1) : total;
    sequence.then = total - sequence.output;
    Request again;
    again.prompt = sequence.prompt;
    again.output = sequence.output;
    const bool spent = !within_budget();
    if (sequence.retries >= spec_.faults.retries || spent || !replica.state.accepts(again)) {
        result_.over_budget += spent ? 1 : 0;
        return accounts_.give_up(chosen, sequence, Ending::failed);
    }
    ++sequence.retries;
    ++result_.retried;
    if (restored) {
        if (const std::optional<std::uint32_t> here = transfers_.restores.start(chosen, sequence); here) {
            places_.follow(sequence.id, chosen, *here);
            autoscaler_.wanted(chosen);
            return;
        }
    }
    result_.lost_tokens += sequence.cached;
    if (&routes != &routing_.entries) {
        // No room for the copy: its prompt is computed anew where prompts are.
        const std::uint32_t anew =
            routing_.entries.choose(sequence.id, sequence.session, sequence.content, sequence.needed());
        sequence.output = fleet_[anew].pool.role == Role::prefill ? std::min(total, sequence.generated + 1) : total;
        sequence.then = total - sequence.output;
        enter(anew, fleet_[anew].state.readmit(sequence));
        return;
    }
    enter(chosen, replica.state.readmit(sequence));
}

}  // namespace orrery::serving
