#pragma once
// Faults that slow the job and do not stop it, while they last.

#include "workloads/faults/fleet.hpp"
#include "workloads/faults/ledger.hpp"

namespace orrery::faults {

/// What is slower than it should be, by place of the job.
struct Impairment {
    FaultKind kind = FaultKind::slow;  ///< slow, degraded, link_flap, switch_loss or power_cap
    Place place;
    double factor = 1;  ///< share of the speed or rate that is left
    friend bool operator==(const Impairment&, const Impairment&) = default;
};

class Impairments {
  public:
    struct Active {
        std::uint32_t id;
        Fault fault;
        std::uint32_t machine;  ///< that has it, or Machines::kNone
    };

    /// Returns the number by which it can be named.
    std::uint32_t add(const Fault& fault, std::uint32_t machine) {
        active_.push_back({next_, fault, machine});
        return next_++;
    }
    void end(std::uint32_t id) {
        std::erase_if(active_, [&](const Active& one) { return one.id == id; });
    }
    /// A machine was mended: what it had is over.
    void end_of(std::uint32_t machine) {
        std::erase_if(active_, [&](const Active& one) { return one.machine == machine; });
    }
    template <class Over>
    void end_where(const Over& over) {
        std::erase_if(active_, [&](const Active& one) { return over(one.fault); });
    }
    [[nodiscard]] const Active* find(std::uint32_t id) const;
    [[nodiscard]] const std::vector<Active>& active() const { return active_; }

    /// Share of the store's bandwidth that is left; 0 in an outage.
    [[nodiscard]] double store_factor() const;
    /// True while a link that the job cannot do without is silent.
    [[nodiscard]] bool stalls(const Machines& fleet, const JobShape& shape) const;
    /// What slows an iteration, in order and by the places of now.
    [[nodiscard]] std::vector<Impairment> of_job(const Machines& fleet, const JobShape& shape) const;
    /// What the time that they add is booked to: the cause of the one that is there longest.
    [[nodiscard]] Cause cause(const Machines& fleet) const;

  private:
    std::vector<Active> active_;  ///< in the order of their start
    std::uint32_t next_ = 0;
};

}  // namespace orrery::faults
