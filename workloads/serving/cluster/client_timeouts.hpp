#pragma once
// Clients that give up a while after they came.
//
// All wait equally long, so the first to come is the first to go: one deadline is under way at a time.
// Validated by tests/workloads/serving_clients_test.cpp.

#include "workloads/serving/fleet/fleet.hpp"

#include <unordered_map>

namespace orrery::serving {

class ClientTimeoutListener {
  public:
    virtual ~ClientTimeoutListener() = default;
    /// The client of a sequence has gone.
    virtual void client_leaves(std::uint32_t replica, std::uint32_t sequence) = 0;
};

class ClientTimeouts {
  public:
    /// `seconds` that a client waits; 0: for ever. The listener outlives this.
    ClientTimeouts(double seconds, ClientTimeoutListener& listener) : seconds_(seconds), listener_(listener) {}
    void begin(Dispatcher& dispatcher) { dispatcher_ = &dispatcher; }

    /// A request has come: its client waits from now on.
    void start(std::uint64_t request);
    /// Where a request is now.
    void follow(std::uint64_t request, std::uint32_t replica, std::uint32_t sequence) {
        if (seconds_ > 0) {
            live_[request] = {replica, sequence};
        }
    }
    /// It has been answered or has failed.
    void end(std::uint64_t request) { live_.erase(request); }
    void on_deadline();

  private:
    double seconds_;
    ClientTimeoutListener& listener_;
    Dispatcher* dispatcher_ = nullptr;
    std::deque<std::pair<SimTime, std::uint64_t>> deadlines_;  ///< by request
    /// Replica and sequence of the requests whose clients wait. Only looked up.
    std::unordered_map<std::uint64_t, std::pair<std::uint32_t, std::uint32_t>> live_;
};

}  // namespace orrery::serving
