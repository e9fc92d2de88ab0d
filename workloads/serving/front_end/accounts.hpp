#pragma once
// The tokens that clients get, and the end of each request: it is accounted for once, as answered, refused, given up or failed.
//
// Where the cores of a front end are simulated a client has a token when one of them has sent it, and an answer with its last token.

#include "workloads/serving/front_end/frontend.hpp"
#include "workloads/serving/front_end/request_places.hpp"
#include "workloads/serving/metrics/metrics.hpp"
#include "workloads/serving/metrics/request_timeline.hpp"
#include "workloads/serving/metrics/steady_state.hpp"

#include <map>

namespace orrery::serving {

class Accounts final : public Part {
  public:
    /// All arguments outlive this. `closed`: requests come when others are answered. `conversations`: those of a session are accounted
    /// for together as well.
    Accounts(const ServiceSpec& spec, bool closed, bool conversations, const ServiceHooks& hooks, Frontend& frontend,
             RequestPlaces& places, RequestTimeline& timeline, ServiceResult& result);
    /// A client has an answer.
    void on_done(std::uint64_t slot, Dispatcher& dispatcher) override;

    /// A request has come to the engines.
    void arrived(const Request& request);
    /// An engine gives the next token of a sequence.
    void token(Sequence& sequence) {
        FrontEndHost* const host = frontend_.host();
        const SimTime at = host == nullptr ? now() : host->stream();
        metrics_.token(sequence, at);
        if (frontend_.live() != nullptr) {
            tell(sequence, at);
        }
    }
    /// It has given all of them.
    void answer(std::uint32_t replica, const Sequence& sequence);
    /// A request could never run.
    void refuse(const Request& request, std::uint64_t id);
    /// A request that was on a replica will not be answered.
    void give_up(std::uint32_t replica, const Sequence& sequence, Ending how);
    /// After the run.
    void finish();

  private:
    struct Delivery {
        std::uint32_t replica = 0;
        Sequence sequence;
    };
    void tell(const Sequence& sequence, SimTime at);
    void answered(std::uint32_t replica, const Sequence& sequence);
    void note(std::uint32_t replica, const Sequence& sequence, Ending how);
    void say_end(const Sequence& sequence, Ending how);
    void leave_unserved(const Sequence& sequence);
    void settle(const Sequence& sequence, bool served);
    void stop_if_enough();

    const ServiceSpec& spec_;
    const ServiceHooks& hooks_;
    Frontend& frontend_;
    RequestPlaces& places_;
    RequestTimeline& timeline_;
    ServiceResult& result_;
    std::optional<SteadyState> steady_;
    ServingMetrics metrics_;
    bool conversations_;
    std::map<std::uint32_t, SessionOutcome> sessions_;
    Slots<Delivery> deliveries_;  ///< last tokens that a core has yet to send
};

}  // namespace orrery::serving
