#pragma once
// What a batch gives when it leaves the last stage of a replica: tokens, accepted drafts, and sequences that are done there.

#include "sim/base/random.hpp"
#include "workloads/serving/cluster/mixing.hpp"
#include "workloads/serving/front_end/accounts.hpp"
#include "workloads/serving/transfer/transfers.hpp"

namespace orrery::serving {

class Generation {
  public:
    /// All arguments outlive this.
    Generation(const ServiceSpec& spec, Fleet& fleet, Transfers& transfers, Mixing& mixing, Accounts& accounts,
               RequestTimeline& timeline, ServiceResult& result)
        : speculation_(spec.speculation),
          fleet_(fleet),
          transfers_(transfers),
          mixing_(mixing),
          accounts_(accounts),
          timeline_(timeline),
          result_(result),
          drafts_(spec.seed, "serving/drafts") {}
    /// The sequences of the batch are among the running ones again. The replica is woken afterwards.
    void batch_ends(std::uint32_t replica, const Batch& batch, SimTime now);

  private:
    [[nodiscard]] std::uint32_t accept(std::uint32_t drafted, Sequence& sequence);
    void retire(std::uint32_t replica);

    const SpeculationSpec& speculation_;
    Fleet& fleet_;
    Transfers& transfers_;
    Mixing& mixing_;
    Accounts& accounts_;
    RequestTimeline& timeline_;
    ServiceResult& result_;
    RandomStream drafts_;
};

}  // namespace orrery::serving
