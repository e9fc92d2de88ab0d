#pragma once
// Runs a lowered training iteration and books every second of it.

#include "sim/record/summary.hpp"
#include "sim/run/simulation.hpp"
#include "workloads/training/lowering/node_memories.hpp"
#include "workloads/training/simulation/outer.hpp"

#include <optional>

namespace orrery::training {

/// What a step makes of documents of unlike lengths.
struct DocumentUse {
    double tokens = 0;     ///< of documents
    double padding = 0;    ///< share of what is computed that is none of them
    double imbalance = 1;  ///< time that the passes of the busiest rank take, over the mean
    double flops = 0;      ///< of forward and backward passes over the documents
};

struct TrainingResult {
    double iteration_s = 0;
    /// Mean over the ranks of the time of each category on the compute stream, in seconds; with `bubble` it adds up to
    /// iteration_s.
    std::array<double, kCategoryCount> booked{};
    double bubble_s = 0;
    double exposed_communication_s = 0;
    double exposed_copies_s = 0;  ///< waits for copies from and to tiers, mean over the ranks
    double exposed_update_s = 0;  ///< waits for updates by the host
    std::vector<std::pair<std::string, double>> tier_bytes;  ///< placed in each tier of a node
    double model_flops = 0;                                  ///< of the whole job, one iteration
    double hardware_flops = 0;                               ///< with recomputation
    double memory_bytes = 0;                                 ///< of the fullest stage
    double memory_odds = 0;                                  ///< of running out of memory, of the stage nearest to it
    std::vector<MemoryUse> memory;
    std::optional<OuterTimes>
        outer;  ///< of a plan with outer steps, whose means iteration_s and what is booked then are
    std::optional<DocumentUse> documents;
    double gradient_bytes = 0;  ///< payload of a rank's exchanges of gradients, of compressed ones
    std::uint64_t tasks = 0;
    std::uint32_t simulated_ranks = 0;
    std::uint32_t folded_into_one = 1;
    Timeline timeline;
};

/// One training iteration as a job of a simulation.
class TrainingRun {
  public:
    /// Lowers the iteration and adds it. Both references outlive this. Throws InfeasibleError when a stage is not
    /// likely to fit into `memory_capacity` bytes (require_fits; infinity: no check).
    TrainingRun(const TrainingInput& input, double memory_capacity, Simulation& simulation, SimTime start = SimTime());

    void set_progress(std::function<void(double)> progress) { executor_.set_progress(std::move(progress)); }
    /// After the run. `timeline_ranks`: at most so many ranks are drawn; 0: no timeline.
    [[nodiscard]] TrainingResult result(std::uint32_t timeline_ranks = 0) const;
    [[nodiscard]] const TrainingGraph& lowered() const { return lowered_; }
    [[nodiscard]] const Executor& executor() const { return executor_; }

  private:
    const TrainingInput& input_;
    double memory_odds_ = 0;  // memory_ sets it
    std::vector<MemoryUse> memory_;
    std::unique_ptr<NodeMemories> tiers_;
    TrainingGraph lowered_;
    Executor& executor_;
    std::unique_ptr<TaskClock> clock_;  ///< where ranks are slow for a while
};

}  // namespace orrery::training
