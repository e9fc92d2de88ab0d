#pragma once
// Keeps a service beside the clock of its clients (front_end/live_requests.hpp): lets in what they send, takes out what they left.

#include "workloads/serving/cluster/client_timeouts.hpp"
#include "workloads/serving/front_end/live_requests.hpp"

namespace orrery::serving {

class LiveFeed final : public Part {
  public:
    /// `live`: null where all requests are known beforehand. All arguments outlive this.
    LiveFeed(LiveRequests* live, const Fleet& fleet, Frontend& frontend, ClientTimeouts& timeouts)
        : live_(live), fleet_(fleet), frontend_(frontend), timeouts_(timeouts) {}
    void begin(Dispatcher& dispatcher) override;
    void on_done(std::uint64_t token, Dispatcher& dispatcher) override;

  private:
    void step();
    void report();

    LiveRequests* live_;
    const Fleet& fleet_;
    Frontend& frontend_;
    ClientTimeouts& timeouts_;
};

}  // namespace orrery::serving
