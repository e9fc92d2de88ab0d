#pragma once
// When components fail: one process per file, one row each. A process owns its parameters.
//
// A process draws the faults of all components of one kind in a job, on a clock that runs while they are exposed. MTBF is the mean
// time of one component; that of the job follows.

#include "sim/base/random.hpp"
#include "sim/config/policy.hpp"

#include <cstdint>
#include <vector>

namespace orrery::faults {

/// The components that a process strikes: some wear out faster by a factor.
class Exposed {
  public:
    /// `per_machine` components on each of `machines`; `mean_s`: MTBF of an ordinary one.
    Exposed(std::uint32_t machines, std::uint32_t per_machine, double mean_s, double factor)
        : per_machine_(per_machine), mean_s_(mean_s), factor_(factor), place_(machines, kOrdinary) {}

    [[nodiscard]] std::uint32_t count() const { return static_cast<std::uint32_t>(place_.size()) * per_machine_; }
    [[nodiscard]] double mean_s() const { return mean_s_; }
    /// Times the ordinary rate.
    [[nodiscard]] double rate(std::uint32_t component) const {
        return place_[component / per_machine_] == kOrdinary ? 1 : factor_;
    }
    /// Of all components, times the ordinary rate of one.
    [[nodiscard]] double total_rate() const {
        const auto bad = static_cast<double>(bad_.size());
        return per_machine_ * (static_cast<double>(place_.size()) - bad + factor_ * bad);
    }
    /// A component, each as likely as its rate says.
    [[nodiscard]] std::uint32_t draw(RandomStream& random) const;
    void set_bad(std::uint32_t machine, bool bad);
    /// Components of machine `machine`, from the first.
    [[nodiscard]] std::uint32_t first_of(std::uint32_t machine) const { return machine * per_machine_; }
    [[nodiscard]] std::uint32_t per_machine() const { return per_machine_; }
    /// Machines become fewer or more at the end. New ones are ordinary.
    void resize(std::uint32_t machines);

  private:
    static constexpr std::uint32_t kOrdinary = 0xFFFFFFFFU;
    std::uint32_t per_machine_;
    double mean_s_;
    double factor_;
    std::vector<std::uint32_t> place_;  ///< by machine: index in bad_, or kOrdinary
    std::vector<std::uint32_t> bad_;
};

/// A component that fails, so many seconds after the first of its burst.
struct Strike {
    std::uint32_t component;
    double after_s;
};

class FaultProcess {
  public:
    virtual ~FaultProcess() = default;
    /// Before the first draw, at 0 s of exposure.
    virtual void begin(const Exposed& exposed, RandomStream& random) = 0;
    /// Seconds of exposure at which the next strike falls.
    [[nodiscard]] virtual double next() const = 0;
    /// Who is struck then, the first at once; and draws the strike after it.
    virtual void strike(const Exposed& exposed, RandomStream& random, std::vector<Strike>& out) = 0;
    /// Another machine has taken a place, or became better or worse, or the number of places changed.
    virtual void changed(const Exposed& exposed, std::uint32_t machine, double now_s, RandomStream& random) = 0;
};

[[nodiscard]] const PolicyTable<FaultProcess>& fault_process_table();
using FaultProcessChoice = PolicyChoice<FaultProcess>;

}  // namespace orrery::faults
