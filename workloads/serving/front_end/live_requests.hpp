#pragma once
// Requests that clients send while the service runs, at times of a clock that somebody else keeps.
//
// Claims: a request comes at the time of the clock at which it was sent, and what becomes of it is what becomes of the same
// request in a run that knew it beforehand. The simulation stays behind the clock: it waits until the clock is a step ahead,
// knows then every request that came before, and simulates up to that time. A client learns of a token at most a step and the
// simulation's own work after its time.
// Limits: a client that leaves is noticed at the next step. Where the simulation is slower than the clock, tokens come later than
// their times say; the times stay those of the service. The clock may run for 9e6 s, after which nobody else is let in.
// Sources: a conservative step with a lower bound on what may still come: Chandy and Misra, CACM 24(4), 1981.
// Validated by tests/workloads/serving_live_test.cpp.

#include "workloads/serving/metrics/outcome.hpp"
#include "workloads/serving/requests/request.hpp"

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace orrery::serving {

struct Sequence;

/// What the sender of a request is told, by the thread of the simulation.
class LiveClient {
  public:
    virtual ~LiveClient() = default;
    /// The first call, by the thread that sends.
    virtual void sent(SimTime at) = 0;
    /// It has so many tokens in all from a time on, which may lie a little ahead.
    virtual void tokens(std::uint32_t count, SimTime at) = 0;
    /// The last call, once.
    virtual void ended(Ending how, SimTime at) = 0;
};

/// Never goes back. All calls are under one lock.
class LiveClock {
  public:
    virtual ~LiveClock() = default;
    [[nodiscard]] virtual SimTime now() = 0;
    /// Returns when it is so late, when `woken` is notified, or earlier.
    virtual void wait(std::unique_lock<std::mutex>& lock, std::condition_variable& woken, SimTime until) = 0;
};

/// How the replicas stand.
struct LiveLoad {
    SimTime at;
    std::uint64_t running = 0;
    std::uint64_t waiting = 0;  ///< for their first iteration, again after a preemption, or for what they need
    std::uint64_t used_blocks = 0;
    std::uint64_t blocks = 0;
    std::uint64_t preemptions = 0;
    std::uint64_t prefix_queries = 0;  ///< tokens of admitted prompts, where prefixes are cached,
    std::uint64_t prefix_hits = 0;     ///< and those of them that were
    std::uint32_t replicas_up = 0;
    double behind_s = 0;  ///< that the clock was ahead of the simulation at most
    // As they are built; 0 until the service has begun.
    std::uint64_t context = 0;  ///< tokens of the longest request
    std::uint32_t block = 0;    ///< tokens of a block
    bool prefix_cache = false;
};

class LiveRequests final : public RequestSource {
  public:
    /// `clock` outlives this. `step`: how far the simulation stays behind it.
    LiveRequests(LiveClock& clock, SimTime step) : clock_(clock), step_(step) {}

    // Of any thread.
    /// The number by which it can be cancelled; nothing: no more are let in. Its arrival and turn are set here.
    std::optional<std::uint32_t> send(Request request, std::shared_ptr<LiveClient> client);
    /// Its client has gone. Without effect after its end.
    void cancel(std::uint32_t ticket);
    /// No more are let in. What is under way goes on to its end without waiting for the clock.
    void close();
    [[nodiscard]] LiveLoad load() const;

    // Of the thread of the simulation.
    /// False: none is known now. Those that are given are in order of arrival.
    bool next(Request& request) override;
    [[nodiscard]] bool closed() const { return known_closed_; }
    /// Waits until the clock is a step past `now`, or, where the service is idle, longer but for a client; returns a later time
    /// before which every request is known.
    [[nodiscard]] SimTime await(SimTime now, bool idle);
    /// What has been cancelled and came to the engines, by their numbers for it.
    [[nodiscard]] std::vector<std::uint64_t> take_left();
    /// A request came to the engines, as number `id`.
    void entered(std::uint32_t ticket, std::uint64_t id) { clients_.at(ticket).id = id; }
    /// A sequence has been given a token. `gathered` at a time; `held`: the first one comes with the second.
    void token(const Sequence& sequence, SimTime at, std::int64_t gathered, bool held);
    void ended(std::uint32_t ticket, std::uint32_t generated, Ending how, SimTime at);
    void set_load(const LiveLoad& load);
    /// The service has ended for a reason of its own: nobody will be answered any more.
    void abandon();

  private:
    struct Sent {
        Request request;
        std::shared_ptr<LiveClient> client;
    };
    struct Client {
        std::shared_ptr<LiveClient> client;
        std::optional<std::uint64_t> id;
        std::uint32_t told = 0;  ///< tokens
    };

    LiveClock& clock_;
    SimTime step_;
    mutable std::mutex mutex_;  ///< of what follows, up to the next group
    std::condition_variable woken_;
    std::deque<Sent> sent_;
    std::vector<std::uint32_t> cancelled_;
    std::uint32_t tickets_ = 0;
    bool closed_ = false;
    LiveLoad load_;
    double behind_s_ = 0;

    // Of the simulation's thread alone.
    std::deque<Request> known_;
    std::unordered_map<std::uint32_t, Client> clients_;  ///< by ticket; in no order that matters
    std::vector<std::uint32_t> leaving_;                 ///< cancelled, and not at the engines yet
    bool known_closed_ = false;
};

}  // namespace orrery::serving
