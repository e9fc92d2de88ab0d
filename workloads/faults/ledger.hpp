#pragma once
// Where the time of a campaign goes: every nanosecond is booked to exactly one cause.

#include "sim/base/error.hpp"
#include "workloads/faults/campaign_time.hpp"

#include <array>
#include <cstddef>

namespace orrery::faults {

enum class Cause {
    useful,              ///< training whose result is kept, at the speed without faults
    stragglers,          ///< what slow devices add to it
    network,             ///< what degraded, lost or silent links add to it
    power,               ///< what capped clocks add to it
    fewer_nodes,         ///< what missing replicas add to it
    checkpoint_traffic,  ///< what checkpoints on the fabric add to it
    checkpoint,          ///< training stands still for a checkpoint
    storage,             ///< a checkpoint or a load waits for the store
    lost_work,           ///< training since the checkpoint that the job went back to
    detection,
    diagnosis,
    hardware,  ///< waiting for machines or for the scheduler
    restart,
    load,
    reshard  ///< restart and load for another plan, or for a machine that is replaced in time
};
inline constexpr std::size_t kCauses = 15;
/// As metrics name it.
[[nodiscard]] const char* cause_name(Cause cause);

/// Nanoseconds by cause.
class Tally {
  public:
    [[nodiscard]] std::int64_t& operator[](Cause cause) { return ns_[static_cast<std::size_t>(cause)]; }
    [[nodiscard]] std::int64_t operator[](Cause cause) const { return ns_[static_cast<std::size_t>(cause)]; }
    [[nodiscard]] std::int64_t total() const {
        std::int64_t sum = 0;
        for (const std::int64_t one : ns_) {
            sum += one;
        }
        return sum;
    }
    /// Training since `then` is lost: all of it is booked to lost_work.
    void lose_since(const Tally& then) {
        for (std::size_t i = 0; i <= static_cast<std::size_t>(Cause::checkpoint_traffic); ++i) {
            ORRERY_ASSERT(ns_[i] >= then.ns_[i]);  // nothing is booked twice
            (*this)[Cause::lost_work] += ns_[i] - then.ns_[i];
            ns_[i] = then.ns_[i];
        }
    }

  private:
    std::array<std::int64_t, kCauses> ns_{};
};

}  // namespace orrery::faults
