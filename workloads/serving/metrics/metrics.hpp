#pragma once
// What is counted of requests in the measured window: tokens as they are given, latencies when they are answered.
//
// Latencies are those of requests that come within the window; rates count what happens within it. Where the steady state is
// looked for, the window is known only at the end (steady_state.hpp).

#include "workloads/serving/metrics/hooks.hpp"
#include "workloads/serving/metrics/steady_state.hpp"

namespace orrery::serving {

class ServingMetrics {
  public:
    /// All arguments outlive this. `steady`: null where it is not looked for.
    ServingMetrics(const ServiceSpec& spec, const ServiceHooks& hooks, SteadyState* steady, ServiceResult& result)
        : spec_(spec), hooks_(hooks), steady_(steady), result_(result) {}

    /// A sequence gives its next token.
    void token(Sequence& sequence, SimTime now) {
        const bool counts = measured(now);
        if (sequence.generated < spec_.stream_interval || sequence.held) {
            sequence.first_token = now;  // as the client sees it
        }
        if (sequence.generated > 0 && !sequence.held) {
            const double gap = (now - sequence.last_token).seconds();
            if (counts) {
                result_.tbt.add(gap);
            }
            sequence.late = sequence.late || (spec_.slo.tbt > 0 && gap > spec_.slo.tbt);
        }
        sequence.held = false;
        ++sequence.generated;
        sequence.last_token = now;
        result_.output_tokens += counts ? 1 : 0;
    }
    /// It has given all of them.
    void answered(const Sequence& sequence, SimTime now);
    /// A request that came at `arrival` will not be answered.
    void unserved(SimTime arrival) {
        result_.unserved += measured(arrival) ? 1 : 0;
        if (steady_ != nullptr) {
            steady_->unserved(arrival);
        }
    }

  private:
    [[nodiscard]] bool measured(SimTime at) const {
        const double seconds = at.seconds();
        return seconds >= spec_.measure.from && (spec_.measure.to <= 0 || seconds < spec_.measure.to);
    }

    const ServiceSpec& spec_;
    const ServiceHooks& hooks_;
    SteadyState* steady_;
    ServiceResult& result_;
};

}  // namespace orrery::serving
