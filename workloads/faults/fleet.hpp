#pragma once
// The machines of a campaign: those in the job, the pool that replaces them, and which of them fail more often than others.

#include "workloads/faults/spare_pool.hpp"

namespace orrery::faults {

class Machines : public SparePool {
  public:
    /// `kinds`: how many places are of each kind, in order. With several no machine comes from outside of the job.
    Machines(const FaultsSpec& spec, std::uint32_t nodes, std::vector<std::uint32_t> kinds, std::uint64_t seed);

    [[nodiscard]] const std::vector<std::uint32_t>& places() const { return places_; }
    [[nodiscard]] std::uint32_t machine_at(std::uint32_t place) const {
        return place < places_.size() ? places_[place] : kNone;
    }
    /// kNone: not in the job.
    [[nodiscard]] std::uint32_t place_of(std::uint32_t machine) const { return place_of_[machine]; }
    [[nodiscard]] bool bad(std::uint32_t machine, std::size_t process) const { return bad_[process][machine]; }

    /// Takes a machine out of the job. The place stays empty.
    void remove(std::uint32_t place);
    /// Where nobody is at a place: a machine that stands by, or kNone.
    [[nodiscard]] std::uint32_t take_standby(std::uint32_t place) { return take(standby, kind_of(place)); }
    /// A machine comes back to the pool, good in every way if it was mended.
    void give_back(std::uint32_t machine, bool mended);

    [[nodiscard]] std::uint32_t present() const { return present_; }
    /// Of each kind: machines in the job, and with those that would fill its empty places.
    [[nodiscard]] std::vector<std::uint32_t> present_of() const;
    [[nodiscard]] std::vector<std::uint32_t> most_of() const;
    /// Fills empty places; returns the seconds until the last machine is there.
    double fill();
    /// Places that were filled.
    [[nodiscard]] std::uint64_t replaced() const { return replaced_; }
    /// The job uses the first machines of each kind from now on, in its first places; the others stand by. Precondition: so many are
    /// present.
    void compact(const std::vector<std::uint32_t>& nodes);

  private:
    std::vector<std::uint32_t> places_;    ///< machine, or kNone
    std::vector<std::uint32_t> place_of_;  ///< by machine
    std::vector<std::vector<bool>> bad_;   ///< by process, machine
    std::uint32_t present_ = 0;
    std::uint64_t replaced_ = 0;
};

}  // namespace orrery::faults
