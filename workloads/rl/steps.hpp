#pragma once
// The steps of reinforcement-learning post-training in time: generation, preparation, training and synchronisation of weights.
//
// Claims: what the parts of a step take is given; steps follow each other on a task graph. Generation comes first, then all that judges
// the samples (forward passes of reference, reward and critic, rules), then the updates of actor and critic, then the weights go to the
// generator. Parts on nodes in common run one after another, others side by side. The generator begins step i when it has the weights of
// step i - 1 - staleness; sending them holds up its own nodes and, as the trainers keep a copy, not theirs. Every part takes steps in order.
// Limits: parts do not slow each other on the fabric; a batch is generated whole before it is judged (`partial` is in what generation
// takes); what a part takes does not depend on the step but by the batch drawn.
// Sources: Sheng et al., "HybridFlow", arXiv:2409.19256 (the phases of a step); Wu et al., "LlamaRL", arXiv:2505.24034 (steps that overlap).
// Validated by tests/workloads/rl_test.cpp (closed forms).

#include "sim/record/summary.hpp"
#include "sim/run/simulation.hpp"
#include "workloads/rl/spec.hpp"

#include <array>

namespace orrery::rl {

enum class StepPhase { generation, preparation, training, synchronisation };
inline constexpr std::size_t kStepPhases = 4;
[[nodiscard]] const std::vector<std::string>& step_phase_names();

/// Work of one part in one phase of every step.
struct PartWork {
    std::string name;
    StepPhase phase = StepPhase::generation;
    std::vector<double> seconds;       ///< by batch drawn; one: of all
    std::vector<std::uint32_t> nodes;  ///< that it holds; none: not of the cluster
};

struct StepsInput {
    std::int64_t staleness = 0;
    std::int64_t draws = 1;
    std::vector<PartWork> parts;  ///< in the order in which those on the same nodes run
};

/// Means of a step in the steady state.
struct StepsResult {
    double step_s = 0;
    std::array<double, kStepPhases> phase_s{};  ///< from the first to the last of its tasks
    std::array<double, kStepPhases>
        limiting{};            ///< of the step's time, where it is bound by the phase; they add up to it
    std::vector<double> busy;  ///< by node: share of the time
    Timeline timeline;
};

class RlSteps {
  public:
    /// Adds the steps to a simulation. `nodes`: of the cluster.
    RlSteps(const StepsInput& input, std::uint32_t nodes, Simulation& simulation, SimTime start = SimTime());
    [[nodiscard]] StepsResult result() const;

  private:
    struct Placed {
        TaskId id;
        std::uint32_t part;  ///< of the input
        std::int64_t step;
    };
    void build();
    void add_step(std::int64_t step);
    TaskId add(const PartWork& work, std::int64_t step, const std::vector<TaskId>& after);
    [[nodiscard]] SimTime trained(std::int64_t step) const;

    StepsInput input_;
    std::uint32_t nodes_;
    std::int64_t warm_up_ = 0;
    std::int64_t measured_ = 0;
    TaskGraph graph_;
    std::vector<TaskId> last_on_;  ///< by node
    std::vector<TaskId> trained_;  ///< by step: when all updates are done
    std::vector<Placed> placed_;
    Executor* executor_ = nullptr;
};

}  // namespace orrery::rl
