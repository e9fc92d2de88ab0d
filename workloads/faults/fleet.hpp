#pragma once
// The machines of a campaign: in the job, standing by, in repair, gone; and which of them fail more often than others.

#include "workloads/faults/campaign.hpp"

namespace orrery::faults {

class Machines {
  public:
    static constexpr std::uint32_t kNone = 0xFFFFFFFFU;

    /// `kinds`: how many places are of each kind, in order; empty: any machine fills any place. With kinds no machine comes from
    /// outside of the job.
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
    [[nodiscard]] std::uint32_t take_standby(std::uint32_t place);

    /// How a repair goes.
    struct Repair {
        bool retired = false;
        double seconds = 0;
        bool works = false;
    };
    /// Sends a machine to repair.
    [[nodiscard]] Repair repair(std::uint32_t machine, double now_s, CampaignResult& counts);
    /// A machine comes back to the pool, good in every way if it was mended.
    void give_back(std::uint32_t machine, bool mended);

    /// Machines that could fill empty places.
    [[nodiscard]] std::uint64_t available() const { return standbys_.size() + pool_.size() + spares_.size(); }
    [[nodiscard]] std::uint32_t present() const;
    /// Of each kind: machines in the job, and with those that could fill its empty places.
    [[nodiscard]] std::vector<std::uint32_t> present_of() const;
    [[nodiscard]] std::vector<std::uint32_t> most_of() const;
    /// Fills empty places; returns the seconds until the last machine is there.
    double fill(CampaignResult& counts);
    /// The job uses its first `nodes` machines from now on, the others stand by. Precondition: so many are present.
    void compact(std::uint32_t nodes);
    /// The same of each kind, whose places stay where they are.
    void compact(const std::vector<std::uint32_t>& nodes);
    /// Makes room for `nodes` places.
    void widen(std::uint32_t nodes);

  private:
    void top_up();
    /// Of a place, and of the machine that was first there.
    [[nodiscard]] std::uint32_t kind_of(std::uint32_t place) const;
    /// Takes the last machine of a list that may fill a place; kNone: none may.
    [[nodiscard]] std::uint32_t take(std::vector<std::uint32_t>& from, std::uint32_t place) const;

    const RecoverySpec& recovery_;
    std::vector<std::uint32_t> kinds_;
    RandomStream random_;
    RandomStream draws_;
    std::vector<std::uint32_t> places_;    ///< machine, or kNone
    std::vector<std::uint32_t> place_of_;  ///< by machine
    std::vector<std::vector<bool>> bad_;   ///< by process, machine
    std::vector<std::vector<double>> failed_at_;
    std::vector<std::uint32_t> standbys_, pool_, spares_;  ///< taken from the back
};

}  // namespace orrery::faults
