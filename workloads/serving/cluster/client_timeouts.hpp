#pragma once
// Clients that give up a while after they came.
//
// All wait equally long, so the first to come is the first to go: one deadline is under way at a time.
// Validated by tests/workloads/serving_clients_test.cpp.

#include "workloads/serving/front_end/accounts.hpp"
#include "workloads/serving/transfer/transfers.hpp"

namespace orrery::serving {

class ClientTimeouts final : public Part {
  public:
    /// `seconds` that a client waits; 0: for ever. All other arguments outlive this.
    ClientTimeouts(double seconds, Fleet& fleet, Transfers& transfers, RequestPlaces& places, Accounts& accounts)
        : seconds_(seconds), fleet_(fleet), transfers_(transfers), places_(places), accounts_(accounts) {}

    /// A request has come: its client waits from now on.
    void start(std::uint64_t request);
    /// A client leaves before its request is accounted for. Without effect after that.
    void cancel(std::uint64_t request);
    void on_done(std::uint64_t token, Dispatcher& dispatcher) override;

  private:
    void leave(std::uint32_t replica, std::uint32_t sequence);

    double seconds_;
    Fleet& fleet_;
    Transfers& transfers_;
    RequestPlaces& places_;
    Accounts& accounts_;
    std::deque<std::pair<SimTime, std::uint64_t>> deadlines_;  ///< by request
};

}  // namespace orrery::serving
