#pragma once
// The state of one campaign as it runs, and what its parts do with it. Only campaign*.cpp include this.

#include "sim/engine/event_queue.hpp"
#include "workloads/faults/campaign.hpp"
#include "workloads/faults/fault_source.hpp"

#include <deque>
#include <optional>

namespace orrery::faults::running {

constexpr CampaignTime kAtStart = CampaignTime::from_ns(-1);  // before anything could be struck
constexpr std::uint64_t kLivelock = 5000;                     // interruptions without a checkpoint in between

/// State that can be gone back to.
struct Saved {
    std::int64_t work = 0;  ///< ns of training without faults
    Tally tally;
    CampaignTime taken = kAtStart;
};

/// A checkpoint on its way.
struct Background {
    Saved saved;
    std::int64_t left;  ///< ns at full speed
    bool to_store;
};

/// Silent corruption that nobody knows of yet.
struct Corruption {
    std::uint32_t id;
    CampaignTime at;
    std::uint32_t machine;
};

enum class Step { training, saving, detecting, diagnosing, joining, waiting, queueing, restarting, loading, done };

class Campaign {
  public:
    Campaign(const CampaignPlan& plan, JobModel& job, std::uint64_t seed, bool timeline);

    CampaignResult run();

  private:
    /// What happens at its time, to a fault, an impairment, a machine or a corruption.
    enum class Happens : std::uint32_t { strike, end, back, mended, found, noticed };

    /// At one instant faults that are given come first, and all else in the order in which it was asked for.
    void push(CampaignTime at, Happens what, std::uint32_t to, bool given = false) {
        queue_.push({at.ns(), (std::uint64_t{!given} << 63U) | sequence_++, static_cast<std::uint32_t>(what), to});
    }
    [[nodiscard]] CampaignTime in(double seconds) const { return now_ + CampaignTime::from_seconds(seconds); }
    [[nodiscard]] std::int64_t after(std::int64_t work) const {
        return work_ > std::numeric_limits<std::int64_t>::max() - work ? std::numeric_limits<std::int64_t>::max()
                                                                       : work_ + work;
    }

    // Checkpoints that take no time, wait for nothing and start nothing are not simulated one by one: only the last one before an
    // interruption counts.
    [[nodiscard]] bool saves_are_free() const;
    // What free checkpoints have kept since the last start.
    void save_for_free();
    void add_sources(std::uint64_t seed);

    // --- time -------------------------------------------------------------------------------------------------------
    // Of the next strike of a source.
    [[nodiscard]] CampaignTime arrival(std::size_t source) const;
    [[nodiscard]] CampaignTime next_event() const;
    // Nanoseconds of an iteration now; 0: it stands still.
    std::int64_t iteration();
    // When work at the store that takes `left` at full speed is done.
    [[nodiscard]] CampaignTime store_end(std::int64_t left, bool to_store) const;
    [[nodiscard]] std::int64_t store_progress(std::int64_t left, std::int64_t ns, bool to_store) const;
    [[nodiscard]] CampaignTime background_end() const;
    [[nodiscard]] CampaignTime step_end();
    [[nodiscard]] std::int64_t target() const { return std::min(next_save_, goal_); }
    // A checkpoint on the way that the next one has to wait for: the one before it, by the same way.
    [[nodiscard]] bool in_the_way(const Background& one) const { return one.to_store != plan_.cost.in_memory; }
    [[nodiscard]] bool waits_for_background() const;
    void pass(CampaignTime until);
    Cause book(std::int64_t ns);

    // --- the cycle of training and checkpoints ----------------------------------------------------------------------
    void begin(Step step, double seconds);
    void finish_step();
    void save();
    void saved();
    void finish_background();
    void commit(const Saved& saved, bool in_store);
    // Right after a checkpoint little is lost: machines that were found slow leave, and a job that has shrunk grows.
    void replace_in_time();
    void train();

    // --- recovery ---------------------------------------------------------------------------------------------------
    void interrupt(double delay_s);
    // A machine leaves the job, with what it holds of checkpoints.
    void lose(std::uint32_t place, double back_after_s);
    static constexpr double kNeverBack = -1;
    void to_repair(std::uint32_t machine);
    void acquire();
    // Takes the nodes that the job can run on into use; how many.
    std::uint32_t shrink();
    // Nodes that the job could use with those that could fill its empty places.
    [[nodiscard]] std::uint32_t could_use() const;
    // Machines that took a place fail at their own rate.
    void tell_sources();
    // The job has the state of the last checkpoint that can be had. Returns whether it lies in the memory of hosts.
    bool go_back();
    void load();

    // --- faults -----------------------------------------------------------------------------------------------------
    void take_event();
    [[nodiscard]] bool chance(double share) { return share > 0 && random_.uniform() < share; }
    void strike(const Fault& fault);
    void preempt_standby(const Fault& fault, std::uint32_t place);
    void strike_link(const Fault& fault, std::uint32_t place, std::uint32_t machine);
    void lose_leaf(const Fault& fault);
    void impair(const Fault& fault, std::uint32_t machine);
    // What was saved since the corruption is worth nothing.
    void find_corruption(std::uint32_t id);

    const CampaignPlan& plan_;
    const FaultsSpec& spec_;
    const RecoverySpec& recovery_;
    JobModel& job_;
    bool has_kinds_;  ///< a job that shrinks on machines of several kinds
    Machines fleet_;
    Impairments impairments_;
    RandomStream random_;
    bool keeps_timeline_;
    CampaignTime horizon_;
    std::int64_t healthy_;             ///< ns of an iteration without faults
    std::int64_t interval_;            ///< ns of training between checkpoints
    std::int64_t goal_;                ///< ns of training
    std::vector<std::uint32_t> seen_;  ///< machine at each place, as the processes know it

    CampaignTime now_;
    Step step_ = Step::training;
    CampaignTime end_ = CampaignTime::never();  ///< of a step of known length
    std::int64_t left_ = 0;                     ///< ns of a save or load at full speed
    bool at_store_ = false;
    std::int64_t work_ = 0, trained_ = 0, next_save_ = 0;
    Tally tally_;
    bool free_ = false;  ///< checkpoints take no time
    bool priced_ = false;
    std::int64_t iteration_ = 0;
    Cause slowed_by_ = Cause::network;

    const Saved start_;
    std::deque<Saved> stored_;
    std::optional<Saved> memory_;
    std::vector<Background> background_;
    std::uint64_t copies_ = 0;
    bool from_start_ = false;

    bool planned_ = false;
    CampaignTime recovery_start_;
    std::vector<std::uint32_t> lost_places_;
    std::vector<std::uint32_t> draining_;
    std::vector<Corruption> corruptions_;
    std::uint32_t next_corruption_ = 0;
    std::uint64_t fruitless_ = 0;

    std::vector<FaultSource> sources_;
    std::vector<CampaignTime> due_;  ///< by source: its exposure at the next strike
    std::vector<TimedFault> strikes_;
    std::vector<Fault> struck_;  ///< or about to be
    EventQueue queue_;           ///< of nanoseconds
    std::uint64_t sequence_ = 0;
    CampaignResult out_;
};

}  // namespace orrery::faults::running
