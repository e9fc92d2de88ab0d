#include "workloads/serving/metrics/metrics.hpp"

#include "sim/base/error.hpp"

namespace orrery::serving {

void ServingMetrics::answered(const Sequence& sequence, SimTime now) {
    result_.finished += measured(now) ? 1 : 0;
    if (!measured(sequence.arrival)) {
        if (hooks_.served) {
            hooks_.served(sequence, nullptr);
        }
        return;
    }
    ORRERY_ASSERT(sequence.arrival <= sequence.first_token && sequence.first_token <= now);
    RequestOutcome outcome;
    outcome.arrival = sequence.arrival;
    const double ttft = (sequence.first_token - sequence.arrival).seconds();
    const double tpot = sequence.generated > 1
                            ? (now - sequence.first_token).seconds() / static_cast<double>(sequence.generated - 1)
                            : 0;
    outcome.ttft = static_cast<float>(ttft);
    outcome.tpot = static_cast<float>(tpot);
    outcome.e2e = static_cast<float>((now - sequence.arrival).seconds());
    outcome.in_time = !sequence.late && (spec_.slo.ttft <= 0 || ttft <= spec_.slo.ttft) &&
                      (spec_.slo.tpot <= 0 || tpot <= spec_.slo.tpot);
    result_.requests.push_back(outcome);
    if (steady_ != nullptr) {
        steady_->answered(outcome);
    }
    if (hooks_.served) {
        hooks_.served(sequence, &outcome);
    }
}

}  // namespace orrery::serving
