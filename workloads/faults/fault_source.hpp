#pragma once
// A fault process at work in a run, whatever the run is: when it strikes next, and which faults that are.
//
// The clock, what becomes of a fault and how what it broke comes back are the run's own: campaigns of training
// (campaign_run.hpp) and serving (workloads/serving/cluster/lifecycle.hpp).

#include "workloads/faults/fault.hpp"
#include "workloads/faults/spec.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace orrery::faults {

/// The machine that a place is on; nothing: it is not on one.
[[nodiscard]] std::optional<std::uint32_t> machine_of(const Place& place, const JobShape& shape);

class FaultSource {
  public:
    /// `strikes` and `lasts` name the random streams that times of faults, and how long they last, are drawn from. The
    /// specification outlives this.
    FaultSource(const ProcessSpec& spec, const JobShape& shape, std::uint64_t seed, const std::string& strikes,
                const std::string& lasts);

    [[nodiscard]] const ProcessSpec& spec() const { return *spec_; }
    /// Whether its components are those of the job's machines; otherwise each counts as a machine.
    [[nodiscard]] bool of_machines() const { return of_machines_; }
    [[nodiscard]] std::uint32_t machines() const { return machines_; }
    void set_bad(std::uint32_t machine, bool bad) { exposed_.set_bad(machine, bad); }

    /// Draws the first strike, at 0 s of exposure.
    void begin() { process_->begin(exposed_, random_); }
    /// Seconds of exposure at which the next strike falls.
    [[nodiscard]] double next() const { return process_->next(); }
    /// Adds who is struck then; and draws the strike after it.
    void strike(std::vector<Strike>& out) { process_->strike(exposed_, random_, out); }
    /// What a component suffers that was struck: draws how long it lasts.
    [[nodiscard]] Fault fault(std::uint32_t component, const JobShape& shape);
    /// Another machine has taken a place.
    void replaced(std::uint32_t machine, double now_s) { process_->changed(exposed_, machine, now_s, random_); }

  private:
    const ProcessSpec* spec_;
    bool of_machines_;
    std::uint32_t machines_;
    Exposed exposed_;
    std::unique_ptr<FaultProcess> process_;
    RandomStream random_;
    RandomStream lasts_;
};

}  // namespace orrery::faults
