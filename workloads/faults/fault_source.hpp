#pragma once
// The faults of a run, whatever the run is: those that are given and those that processes draw, each source by itself.
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
    explicit FaultSource(std::vector<TimedFault> given);
    /// `strikes` and `lasts` name the random streams that times of faults, and how long they last, are drawn from. The
    /// specification outlives this.
    FaultSource(const ProcessSpec& spec, const JobShape& shape, std::uint64_t seed, const std::string& strikes,
                const std::string& lasts);

    [[nodiscard]] bool is_given() const { return spec_ == nullptr; }
    /// Its exposure is the time that the job trains; otherwise that of the run.
    [[nodiscard]] bool while_running() const { return spec_ != nullptr && spec_->while_running; }
    /// Whether its components are those of the job's machines; otherwise each counts as a machine.
    [[nodiscard]] bool of_machines() const { return of_machines_; }
    [[nodiscard]] std::uint32_t machines() const { return machines_; }
    void set_bad(std::uint32_t machine, bool bad) { exposed_.set_bad(machine, bad); }

    /// Draws the first strike, at 0 s of exposure.
    void begin();
    /// Seconds of exposure at which the next strike falls; infinity: none does.
    [[nodiscard]] double next() const {
        return process_                  ? process_->next()
               : struck_ < given_.size() ? given_[struck_].at_s
                                         : std::numeric_limits<double>::infinity();
    }
    /// Adds the faults that begin with that strike, each so long after it as its `at_s` says; and draws the strike after it.
    void strike(std::vector<TimedFault>& out);
    /// Another machine has taken a place.
    void replaced(std::uint32_t machine, double now_s) { process_->changed(exposed_, machine, now_s, random_); }

  private:
    std::vector<TimedFault> given_;  ///< by time
    std::size_t struck_ = 0;         ///< of those
    const ProcessSpec* spec_ = nullptr;
    JobShape shape_;
    bool of_machines_ = false;
    std::uint32_t machines_ = 0;
    Exposed exposed_{0, 1, 0, 1};
    std::unique_ptr<FaultProcess> process_;
    RandomStream random_{0, ""};
    RandomStream lasts_{0, ""};
};

/// A source for each process, and then one of those that are given. The names of random streams go on with the number of the process.
[[nodiscard]] std::vector<FaultSource> fault_sources(const std::vector<ProcessSpec>& processes,
                                                     const std::vector<TimedFault>& given, const JobShape& shape,
                                                     std::uint64_t seed, const std::string& strikes,
                                                     const std::string& lasts);

}  // namespace orrery::faults
