#pragma once
// The host under a service's front end: cores that take requests in and stream answers out, and what it lets in.
//
// Claims: a request that its client sends waits until fewer than `streams` requests are under way and until its turn at `rate`
// has come, first come, first served; then a core works on it (tokenises it), and it takes its way to an engine. Each token
// that an engine gives is a job of its own (detokenised, sent), which the client has when a core has done it. All jobs wait in
// one queue, first come, first served, for the first of `cores` that is free: a G/G/c queue, so that requests wait behind
// tokens and tokens behind requests. A request ends when its client has its last token.
// Scope: one front end before all replicas, as an API server is; it replaces the serial `frontend` of an engine version.
// Limits: times of a job are fixed (no scheduling among processes); a token of a failed replica's work is streamed as any other;
// clients do not give up while only their tokens' way out is left.
// Sources: the split into processes for HTTP, tokenisation and detokenisation is that of vLLM 1 (`--api-server-count`) and of SGLang
// (tokenizer and detokenizer managers); what a job takes is the scenario's.
// Validated by tests/workloads/serving_front_end_test.cpp (D/D/c and M/D/1 in closed form).

#include "sim/network/slots.hpp"
#include "workloads/serving/metrics/outcome.hpp"
#include "workloads/serving/part.hpp"
#include "workloads/serving/requests/front_end_spec.hpp"
#include "workloads/serving/requests/request.hpp"

#include <deque>
#include <functional>
#include <vector>

namespace orrery::serving {

/// Equal cores that work on jobs in the order in which they come.
class HostCores {
  public:
    explicit HostCores(std::uint32_t cores) : free_(cores) {}
    /// A job that comes `now`, not before the last one; returns when it is done.
    SimTime work(SimTime now, SimTime takes);
    [[nodiscard]] double busy_s() const { return busy_.seconds(); }

  private:
    std::vector<SimTime> free_;  ///< when each core is, as a heap with the first one in front
    SimTime busy_;
};

class FrontEndHost final : public Part {
  public:
    /// `way_s`: from the front end to an engine's queue, where `arrives` gets a request. `result` outlives this.
    FrontEndHost(const FrontEndSpec& spec, double way_s, std::function<void(const Request&)> arrives,
                 ServiceResult& result)
        : spec_(spec),
          way_(SimTime::from_seconds(way_s)),
          arrives_(std::move(arrives)),
          result_(result),
          cores_(static_cast<std::uint32_t>(spec.cores)) {}

    /// A client has sent a request.
    void take(Request request);
    /// The turn of a request has come, or it is at an engine's queue.
    void on_done(std::uint64_t slot, Dispatcher& dispatcher) override;
    /// A request is accounted for: another may be let in.
    void settled();
    /// An engine gives a token; returns when its client has it.
    [[nodiscard]] SimTime stream();
    /// Requests that are sent, and not at an engine yet.
    [[nodiscard]] std::size_t on_way() const { return waiting_.size() + slots_.taken(); }

  private:
    struct Slot {
        Request request;
        SimTime sent;
        bool tokenised = false;
    };
    void let_in(Request request, SimTime sent);
    void tokenise(std::uint32_t slot);

    FrontEndSpec spec_;
    SimTime way_;
    std::function<void(const Request&)> arrives_;
    ServiceResult& result_;
    HostCores cores_;
    std::deque<std::pair<Request, SimTime>> waiting_;  ///< for one of the streams, with when they were sent
    Slots<Slot> slots_;
    SimTime next_;                ///< when the next request may be let in
    std::int64_t under_way_ = 0;  ///< requests that were let in
};

}  // namespace orrery::serving
