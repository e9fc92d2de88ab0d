#pragma once
// A campaign: months of a training job under faults, event by event.
//
// Claims: the job trains, stalls for checkpoints, is struck by faults, notices, is diagnosed, gets machines, restarts, loads and trains
// on; every nanosecond is booked to one cause. Faults fall at their exact instants. The speed between two events is that of the
// iteration in the cluster's state, which a JobModel simulates once for each distinct state. Progress inside an iteration is uniform:
// a change in the middle of one changes the speed of what is left of it. A link that is down stops the job until it is back.
// An interruption loses what the last usable checkpoint does not hold; a fault during recovery starts recovery anew.
// Scope: one job with standbys, a pool, spares of other jobs, repair and retirement.
// A job that shrinks on nodes of several kinds keeps its places: a machine fills those of its own kind alone.
// Limits: elsewhere any machine fills any place; the job's own iterations do not differ from each other; with fewer nodes it is never
// faster than with all.
// Sources: Daly, FGCS 2006 (the cycle of work, dump, restart); AIReSim, arXiv:2603.07041 (pools and repair).
// Validated by tests/workloads/faults_*_test.cpp (closed forms) and `orrery validate faults`.

#include "workloads/faults/impairments.hpp"
#include "workloads/faults/ledger.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

namespace orrery::faults {

/// All that the time of an iteration depends on.
struct ClusterState {
    std::uint32_t nodes = 0;  ///< that the job uses
    std::vector<Impairment> impairments;
    double nic_share = 0;  ///< of every NIC, taken by checkpoints
    /// Nodes in use of each kind, the first places of each; empty: all nodes are of one kind, or all are in use.
    std::vector<std::uint32_t> by_kind = {};
};

/// The job as a campaign sees it. Called from several threads.
class JobModel {
  public:
    virtual ~JobModel() = default;
    /// Seconds of an iteration in this state; infinity: it cannot go on.
    [[nodiscard]] virtual double iteration_s(const ClusterState& state) = 0;
    /// The mean of iterations on healthy machines where replicas are slow for single ones; 0: none is.
    [[nodiscard]] virtual double straggling_s() { return 0; }
    /// Nodes of each kind, in the order of places; empty: all are of one.
    [[nodiscard]] virtual std::vector<std::uint32_t> kinds() const { return {}; }
    /// The largest number of nodes of each kind, at most `nodes`, that the job can run on; all 0: none.
    [[nodiscard]] virtual std::vector<std::uint32_t> nodes_used(const std::vector<std::uint32_t>& nodes) const = 0;
    /// What a checkpoint moves and over what, for the whole job.
    [[nodiscard]] virtual CheckpointSetting checkpoint() const = 0;
};

/// A stretch of time booked to one cause; training is one stretch whatever slows it.
struct Stretch {
    Cause cause;
    CampaignTime start, end;
};
/// A fault as it struck.
struct StruckFault {
    CampaignTime at;
    Fault fault;
};

struct CampaignResult : SpareCounts {
    Tally tally;  ///< adds up to `length`
    CampaignTime length;
    bool finished = false;  ///< the job's work is done
    bool livelock = false;  ///< stopped, as nothing was kept of thousands of attempts
    std::uint64_t events = 0;
    std::uint64_t faults = 0;         ///< that struck, of all kinds
    std::uint64_t interruptions = 0;  ///< of these, that stopped the job
    std::uint64_t recoveries = 0;     ///< times that it trained again
    CampaignTime recovering;          ///< from the first fault of each recovery until then
    std::uint64_t checkpoints = 0;    ///< that could be used
    std::uint64_t replaced = 0;
    std::array<std::uint64_t, 11> by_kind{};  ///< faults, by FaultKind
    std::vector<Stretch> timeline;            ///< where it was asked for
    std::vector<StruckFault> struck;          ///< where the timeline was asked for
};

/// The shortest intervals between checkpoints that a method and its store can keep, s; 0: any.
struct IntervalBounds {
    double write_s = 0;  ///< the write in the background has ended before the next checkpoint begins
    double keep_s =
        0;  ///< one of the kept checkpoints is older than corruption that is only now found; infinity: none can be
    /// The longer of both where one helps against corruption.
    [[nodiscard]] double longest() const { return std::isinf(keep_s) ? write_s : std::max(write_s, keep_s); }
};
[[nodiscard]] IntervalBounds shortest_interval(const FaultsSpec& spec, const CheckpointCost& cost, bool corrupts);

/// What all runs of a campaign share.
struct CampaignPlan {
    const FaultsSpec& spec;
    JobShape shape;
    std::vector<TimedFault> given;  ///< of trace and events
    double iteration_s = 0;         ///< without faults
    double straggling_s = 0;        ///< of an iteration on healthy machines, on average
    CheckpointCost cost;
    double interval_s = 0;  ///< between checkpoints, whole iterations
    double rule_s = 0;      ///< what the rule of the interval asked for
    IntervalBounds shortest;
};
/// Resolves places, the cost of a checkpoint and its interval. A rule that derives the interval from the MTBF never goes below the
/// shortest one that works; a fixed interval is taken as it stands. `trace`: what the file of faults holds. Throws InfeasibleError
/// where checkpoints do not fit the store.
[[nodiscard]] CampaignPlan plan_campaign(const FaultsSpec& spec, const JobShape& shape, JobModel& job,
                                         std::vector<TimedFault> trace);

/// Draws one campaign.
[[nodiscard]] CampaignResult run_campaign(const CampaignPlan& plan, JobModel& job, std::uint64_t seed, bool timeline);

/// Runs of seeds `seed`, `seed` + 1, ... on so many threads; the same whatever their number. The first keeps its timeline.
[[nodiscard]] std::vector<CampaignResult> run_campaigns(const CampaignPlan& plan, JobModel& job, std::uint64_t seed,
                                                        std::uint64_t runs, unsigned threads);

/// Mean of samples and the half-width of its confidence interval by Student's t.
struct MeanInterval {
    double mean = 0;
    double sd = 0;
    double half_width = 0;  ///< 0 for fewer than two
};
/// `level`: 0.90 or 0.95.
[[nodiscard]] MeanInterval mean_interval(const std::vector<double>& samples, double level);

}  // namespace orrery::faults
