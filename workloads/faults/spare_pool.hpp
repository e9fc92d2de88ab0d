#pragma once
// Machines that can stand in for broken ones, of a campaign or a service, and how broken ones are repaired.

#include "sim/base/random.hpp"
#include "workloads/faults/spec.hpp"

#include <array>
#include <string>
#include <vector>

namespace orrery::faults {

/// What a pool has done.
struct SpareCounts {
    std::uint64_t pool_joins = 0, borrowed = 0, retired = 0;
    std::uint64_t automatic_repairs = 0, manual_repairs = 0, failed_repairs = 0;
};

class SparePool {
  public:
    static constexpr std::uint32_t kNone = 0xFFFFFFFFU;

    /// Its machines have the numbers from `first` on. The names are of the random streams of repairs, and of which machine of the pool
    /// becomes a standby.
    SparePool(const SpareSpec& spec, std::uint32_t first, std::uint64_t seed, const std::string& repairs,
              const std::string& draws);

    /// A machine that was free, and the seconds until it can be used; kNone: there is none.
    struct Taken {
        std::uint32_t machine = kNone;
        double after_s = 0;
    };
    /// A standby, one of the pool, or a spare of another job, in this order.
    [[nodiscard]] Taken take(std::uint32_t kind = 0);
    [[nodiscard]] std::uint64_t available() const { return free_[0].size() + free_[1].size() + free_[2].size(); }

    /// How a repair goes.
    struct Repair {
        bool retired = false;
        double seconds = 0;
        bool works = false;
    };
    /// Sends a machine to repair.
    [[nodiscard]] Repair repair(std::uint32_t machine, double now_s);
    /// Draws the time that a repair of this mean takes.
    [[nodiscard]] double repair_s(double mean_s) {
        return spec_.exponential_repair ? repairs_.exponential(mean_s) : mean_s;
    }
    /// A machine comes back to the pool.
    void give_back(std::uint32_t machine);
    [[nodiscard]] const SpareCounts& counts() const { return counts_; }

  protected:
    enum Tier : std::uint8_t { standby, pool, spare };
    /// The last machine of this kind; kNone: there is none.
    [[nodiscard]] std::uint32_t take(Tier from, std::uint32_t kind);
    /// Standbys are replaced from the pool behind the job's back: any of it is as good as another.
    void top_up();
    [[nodiscard]] std::uint32_t kind_of(std::uint32_t machine) const;

    std::array<std::vector<std::uint32_t>, 3> free_;  ///< by tier
    std::vector<std::uint32_t> kinds_;                ///< machines of each kind, in order; empty: all are of one

  private:
    SpareSpec spec_;
    RandomStream repairs_;
    RandomStream draws_;
    std::vector<std::vector<double>> failed_at_;
    SpareCounts counts_;
};

}  // namespace orrery::faults
