#pragma once
// What may be asked of the run of a scenario, and what it gives.

#include "sim/network/packet/statistics.hpp"
#include "sim/record/summary.hpp"
#include "tools/driver/model_cache.hpp"
#include "tools/driver/request_table.hpp"
#include "tools/driver/scenario_spec.hpp"
#include "workloads/collective/message_run.hpp"
#include "workloads/faults/spec.hpp"
#include "workloads/replay/replay.hpp"
#include "workloads/serving/cluster/service.hpp"
#include "workloads/training/simulation/simulate.hpp"

#include <functional>
#include <optional>

namespace orrery::driver {

/// Sees a serving run from inside, for explanations.
struct ServingObserver {
    /// Every pipeline stage of every pool, in order, before the run; what it refers to lasts as long as the run.
    std::function<void(std::size_t pool, const ServingModel&)> stage;
    ServiceHooks hooks;
};

/// A campaign of training under other faults, recovery or checkpoints. Its states of the cluster are priced together with those of
/// the scenario's own.
struct CampaignVariant {
    std::string name;
    FaultsSpec faults;
    double interval = 1;  ///< factor on the interval between checkpoints
};
struct CampaignOutcome {
    std::vector<double> goodput;  ///< fraction, by seed
    double interval_s = 0;        ///< between checkpoints
};

/// Messages that a run keeps one by one.
inline constexpr std::uint64_t kMostListed = 2'000'000;

struct RunOptions {
    bool timeline = false;
    bool check_memory = true;  ///< refuse what does not fit
    bool messages = false;     ///< keep when each message went, of a kind that has them and up to kMostListed
    bool requests = false;     ///< keep what became of each request of a serving scenario, at 64 B each
    SteadySpec steady;         ///< when a serving run without an end of its own has said enough
    const ServingObserver* serving = nullptr;  ///< sees a serving run from inside
    std::vector<CampaignVariant> campaigns;    ///< of training with a campaign: run beside its own
    std::function<void(double)> progress;
};

/// The messages of a run and when each went; times are as in MessageRunResult.
struct MessageRecord {
    Schedule schedule;
    std::vector<double> starts;
    std::vector<double> completions;
};

struct RunOutput {
    Summary summary;
    double seconds = 0;  ///< until the last of it was done, from its start on
    Timeline timeline;
    std::optional<TrainingResult> training;
    Timeline campaign;                       ///< of training under faults: where the time of its first run went
    std::vector<CampaignOutcome> campaigns;  ///< of the variants asked for
    PacketReport packets;                    ///< of packet fidelity, else empty
    std::optional<MessageRecord> messages;
    std::vector<RequestRow> requests;
    std::vector<ReplayBlame> replay_path;  ///< what the end of a replay waited for
    std::vector<RunOutput> jobs;           ///< of kinds cluster and rl, in the order of their jobs
};

}  // namespace orrery::driver
