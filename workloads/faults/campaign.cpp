#include "workloads/faults/campaign.hpp"

#include "workloads/faults/impairments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <optional>
#include <queue>

namespace orrery::inline faults {

const char* cause_name(Cause cause) {
    constexpr const char* kNames[kCauses] = {
        "useful",     "stragglers", "network",   "power",     "fewer_nodes", "checkpoint_traffic",
        "checkpoint", "storage",    "lost_work", "detection", "diagnosis",   "hardware",
        "restart",    "load",       "reshard"};
    return kNames[static_cast<std::size_t>(cause)];
}

namespace {

constexpr CampaignTime kAtStart = CampaignTime::from_ns(-1);  // before anything could be struck
constexpr std::uint64_t kLivelock = 5000;                     // interruptions without a checkpoint in between

/// A fault process at work in one campaign.
struct Source {
    const ProcessSpec* spec;
    Exposed exposed;
    std::unique_ptr<FaultProcess> process;
    RandomStream random;
    RandomStream marks;  ///< how long faults last
    bool machines;       ///< the components are those of machines
};

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
    Campaign(const CampaignPlan& plan, JobModel& job, std::uint64_t seed, bool timeline)
        : plan_(plan),
          spec_(plan.spec),
          recovery_(plan.spec.recovery),
          job_(job),
          fleet_(plan.spec, plan.shape.nodes, seed),
          random_(seed, "faults/detection"),
          keeps_timeline_(timeline),
          horizon_(CampaignTime::from_seconds(plan.spec.duration_s)),
          healthy_(std::max<std::int64_t>(1, CampaignTime::from_seconds(plan.iteration_s).ns())),
          interval_(CampaignTime::from_seconds(plan.interval_s).ns()),
          goal_(plan.spec.work_s > 0 ? CampaignTime::from_seconds(plan.spec.work_s).ns()
                                     : std::numeric_limits<std::int64_t>::max()),
          seen_(fleet_.places()) {
        add_sources(seed);
        for (std::uint32_t i = 0; i < plan.given.size(); ++i) {
            push(CampaignTime::from_seconds(plan.given[i].at_s), Event::Kind::given, i);
        }
        free_ = saves_are_free();
        next_save_ = free_ ? goal_ : after(interval_);
    }

    CampaignResult run() {
        while (step_ != Step::done) {
            const CampaignTime end = step_end();
            const CampaignTime behind = background_end();
            const CampaignTime event = next_event();
            const CampaignTime until = std::min({horizon_, end, behind, event});
            pass(until);
            if (end == until) {
                finish_step();
            } else if (behind == until) {
                finish_background();
            } else if (event == until) {
                take_event();
            } else {
                break;  // the horizon
            }
            ++out_.events;
            if (fruitless_ > kLivelock) {
                out_.livelock = true;
                break;
            }
        }
        if (step_ != Step::training && step_ != Step::saving && step_ != Step::loading && step_ != Step::done) {
            go_back();  // what nobody will come back to is lost
        }
        if (free_ && step_ == Step::training) {
            save_for_free();
        }
        out_.length = now_;
        out_.tally = tally_;
        ORRERY_ASSERT(tally_.total() == now_.ns());
        return std::move(out_);
    }

  private:
    struct Event {
        enum class Kind { given, strike, end, back, mended, found, noticed };
        CampaignTime at;
        std::uint64_t sequence;
        Kind kind;
        std::uint32_t what;
        std::uint32_t source;  ///< of strike
        bool operator>(const Event& other) const { return at != other.at ? at > other.at : sequence > other.sequence; }
    };

    void push(CampaignTime at, Event::Kind kind, std::uint32_t what, std::uint32_t source = 0) {
        queue_.push({at, sequence_++, kind, what, source});
    }
    [[nodiscard]] CampaignTime in(double seconds) const { return now_ + CampaignTime::from_seconds(seconds); }
    [[nodiscard]] std::int64_t after(std::int64_t work) const {
        return work_ > std::numeric_limits<std::int64_t>::max() - work ? std::numeric_limits<std::int64_t>::max()
                                                                       : work_ + work;
    }

    // Checkpoints that take no time, wait for nothing and start nothing are not simulated one by one: only the last one before an
    // interruption counts.
    [[nodiscard]] bool saves_are_free() const {
        const auto matters = [](FaultKind kind, bool store) { return kind == FaultKind::corruption || store; };
        bool plain = !recovery_.watches && !recovery_.shrinks;
        for (const ProcessSpec& one : spec_.processes) {
            plain = plain && !matters(one.kind, one.component == Component::storage);
        }
        for (const TimedFault& one : plan_.given) {
            plain = plain && !matters(one.fault.kind, one.fault.place.what == Place::What::storage);
        }
        const CheckpointCost& cost = plan_.cost;
        return plain && cost.stall_s == 0 && cost.background_s == 0 && !cost.in_memory;
    }
    // What free checkpoints have kept since the last start.
    void save_for_free() {
        const std::int64_t begun = stored_.empty() ? 0 : stored_.back().work;
        const std::int64_t kept = (work_ - begun) / interval_ * interval_;
        if (kept == 0) {
            return;
        }
        const std::int64_t lost = work_ - begun - kept;
        Saved saved{begun + kept, tally_, now_};
        saved.tally[Cause::useful] -= lost;
        if (const std::int64_t pace = iteration(); pace > healthy_) {
            const std::int64_t slow = std::min(tally_[slowed_by_], scaled_down(lost, pace - healthy_, healthy_));
            saved.tally[slowed_by_] -= slow;
        }
        stored_ = {saved};
        out_.checkpoints += static_cast<std::uint64_t>(kept / interval_);
        fruitless_ = 0;
    }

    void add_sources(std::uint64_t seed) {
        for (std::size_t i = 0; i < spec_.processes.size(); ++i) {
            const ProcessSpec& one = spec_.processes[i];
            const std::uint32_t count = plan_.shape.count(one.component);
            const bool machines = one.component != Component::switches && one.component != Component::storage &&
                                  one.component != Component::software;
            const std::uint32_t per_machine = machines ? count / plan_.shape.nodes : 1;
            const std::string name = std::to_string(i);
            Source source{&one,
                          Exposed(machines ? plan_.shape.nodes : count, per_machine, one.mtbf_s, one.bad_factor),
                          one.law.make(),
                          RandomStream(seed, "faults/process/" + name),
                          RandomStream(seed, "faults/lasts/" + name),
                          machines};
            for (std::uint32_t place = 0; machines && place < fleet_.places().size(); ++place) {
                source.exposed.set_bad(place, fleet_.bad(fleet_.machine_at(place), i));
            }
            source.process->begin(source.exposed, source.random);
            sources_.push_back(std::move(source));
        }
    }

    // --- time -------------------------------------------------------------------------------------------------------

    [[nodiscard]] std::int64_t exposure(const Source& source) const {
        return source.spec->while_running ? trained_ : now_.ns();
    }
    [[nodiscard]] CampaignTime arrival(const Source& source) const {
        if (source.spec->while_running && step_ != Step::training) {
            return CampaignTime::never();
        }
        const CampaignTime at = CampaignTime::from_seconds(source.process->next());
        return at.is_never() ? at : now_ + CampaignTime::from_ns(std::max<std::int64_t>(0, at.ns() - exposure(source)));
    }
    [[nodiscard]] CampaignTime next_event() const {
        CampaignTime first = queue_.empty() ? CampaignTime::never() : queue_.top().at;
        for (const Source& source : sources_) {
            first = std::min(first, arrival(source));
        }
        return first;
    }

    // Nanoseconds of an iteration now; 0: it stands still.
    std::int64_t iteration() {
        if (!priced_) {
            priced_ = true;
            const bool stalls = impairments_.stalls(fleet_, plan_.shape);
            ClusterState state{used_nodes(), impairments_.of_job(fleet_, plan_.shape), 0};
            if (std::any_of(background_.begin(), background_.end(),
                            [&](const Background& one) { return in_the_way(one); })) {
                state.nic_share = plan_.cost.nic_share;
            }
            const bool healthy = state.nodes == plan_.shape.nodes && state.impairments.empty() && state.nic_share == 0;
            const double seconds = stalls    ? std::numeric_limits<double>::infinity()
                                   : healthy ? plan_.iteration_s
                                             : job_.iteration_s(state);
            iteration_ = std::isinf(seconds) ? 0 : std::max(healthy_, CampaignTime::from_seconds(seconds).ns());
            slowed_by_ = state.nodes < plan_.shape.nodes        ? Cause::fewer_nodes
                         : stalls || !state.impairments.empty() ? impairments_.cause(fleet_)
                                                                : Cause::checkpoint_traffic;
        }
        return iteration_;
    }
    [[nodiscard]] std::uint32_t used_nodes() const { return static_cast<std::uint32_t>(fleet_.places().size()); }

    // When work at the store that takes `left` at full speed is done.
    [[nodiscard]] CampaignTime store_end(std::int64_t left, bool to_store) const {
        const double factor = to_store ? impairments_.store_factor() : 1;
        if (left == 0 || factor == 1) {
            return now_ + CampaignTime::from_ns(left);
        }
        return factor > 0
                   ? now_ +
                         CampaignTime::from_ns(static_cast<std::int64_t>(std::ceil(static_cast<double>(left) / factor)))
                   : CampaignTime::never();
    }
    [[nodiscard]] std::int64_t store_progress(std::int64_t left, std::int64_t ns, bool to_store) const {
        const double factor = to_store ? impairments_.store_factor() : 1;
        return std::min(left,
                        factor == 1 ? ns : static_cast<std::int64_t>(std::ceil(static_cast<double>(ns) * factor)));
    }
    [[nodiscard]] CampaignTime background_end() const {
        CampaignTime first = CampaignTime::never();
        for (const Background& one : background_) {
            first = std::min(first, store_end(one.left, one.to_store));
        }
        return first;
    }
    [[nodiscard]] CampaignTime step_end() {
        switch (step_) {
            case Step::training: {
                const std::int64_t pace = iteration();
                return pace == 0 || target() == std::numeric_limits<std::int64_t>::max()
                           ? CampaignTime::never()
                           : now_ + CampaignTime::from_ns(scaled_up(target() - work_, pace, healthy_));
            }
            case Step::saving:
                return waits_for_background() ? CampaignTime::never() : store_end(left_, at_store_);
            case Step::loading:
                return store_end(left_, at_store_);
            default:
                return end_;
        }
    }
    [[nodiscard]] std::int64_t target() const { return std::min(next_save_, goal_); }
    // A checkpoint on the way that the next one has to wait for: the one before it, by the same way.
    [[nodiscard]] bool in_the_way(const Background& one) const { return one.to_store != plan_.cost.in_memory; }
    [[nodiscard]] bool waits_for_background() const {
        return left_ > 0 && !at_store_ &&
               std::any_of(background_.begin(), background_.end(),
                           [&](const Background& one) { return in_the_way(one); });
    }

    void pass(CampaignTime until) {
        const std::int64_t ns = (until - now_).ns();
        if (ns == 0) {
            return;
        }
        const Cause cause = book(ns);
        if (keeps_timeline_) {
            if (!out_.timeline.empty() && out_.timeline.back().cause == cause && out_.timeline.back().end == now_) {
                out_.timeline.back().end = until;
            } else {
                out_.timeline.push_back({cause, now_, until});
            }
        }
        for (Background& one : background_) {
            one.left -= store_progress(one.left, ns, one.to_store);
        }
        now_ = until;
    }

    Cause book(std::int64_t ns) {
        if (step_ == Step::training) {
            const std::int64_t pace = iteration();
            const std::int64_t done = pace == 0 ? 0 : std::min(target() - work_, scaled_down(ns, healthy_, pace));
            work_ += done;
            trained_ += ns;
            tally_[Cause::useful] += done;
            tally_[pace == healthy_ ? Cause::useful : slowed_by_] += ns - done;
            return Cause::useful;
        }
        Cause cause = Cause::hardware;
        const bool outage = impairments_.store_factor() == 0;
        switch (step_) {
            case Step::saving:
                if (waits_for_background()) {
                    cause = outage && !plan_.cost.in_memory ? Cause::storage : Cause::checkpoint;
                } else {
                    cause = at_store_ && outage ? Cause::storage : Cause::checkpoint;
                    left_ -= store_progress(left_, ns, at_store_);
                }
                break;
            case Step::detecting:
                cause = Cause::detection;
                break;
            case Step::diagnosing:
                cause = Cause::diagnosis;
                break;
            case Step::restarting:
                cause = planned_ ? Cause::reshard : Cause::restart;
                break;
            case Step::loading:
                cause = at_store_ && outage ? Cause::storage : planned_ ? Cause::reshard : Cause::load;
                left_ -= store_progress(left_, ns, at_store_);
                break;
            default:
                break;
        }
        tally_[cause] += ns;
        return cause;
    }

    // --- the cycle of training and checkpoints ----------------------------------------------------------------------

    void begin(Step step, double seconds) {
        step_ = step;
        end_ = in(seconds);
    }

    void finish_step() {
        switch (step_) {
            case Step::training:
                if (work_ >= goal_) {
                    out_.finished = true;
                    step_ = Step::done;
                    return;
                }
                return save();
            case Step::saving:
                return saved();
            case Step::detecting: {
                double seconds = recovery_.diagnosis_s;
                if (recovery_.bisection_s > 0) {
                    // Each run halves the nodes that are suspected.
                    seconds += recovery_.bisection_s * std::bit_width(std::max(1U, plan_.shape.nodes) - 1U);
                }
                return begin(Step::diagnosing, seconds);
            }
            case Step::diagnosing:
                return acquire();
            case Step::joining:
                return begin(Step::queueing, recovery_.queue_s);
            case Step::queueing:
                return begin(Step::restarting, recovery_.restart_s);
            case Step::restarting:
                return load();
            case Step::loading:
                return train();
            default:
                break;
        }
    }

    void save() {
        step_ = Step::saving;
        const bool background = plan_.cost.background_s > 0 || plan_.cost.in_memory;
        at_store_ = !background;
        left_ = CampaignTime::from_seconds(plan_.cost.stall_s).ns();
        if (background && left_ == 0) {
            left_ = 1;  // a copy that takes no time still waits for room
        }
    }

    void saved() {
        const Saved now{work_, tally_, now_};
        next_save_ = after(interval_);
        step_ = Step::training;
        const CheckpointCost& cost = plan_.cost;
        if (!cost.in_memory && cost.background_s <= 0) {
            return commit(now, true);
        }
        background_.push_back({now, CampaignTime::from_seconds(cost.background_s).ns(), !cost.in_memory});
        priced_ = false;
    }

    void finish_background() {
        const auto done =
            std::find_if(background_.begin(), background_.end(), [](const Background& one) { return one.left == 0; });
        ORRERY_ASSERT(done != background_.end());
        const Background one = *done;
        background_.erase(done);
        priced_ = false;
        commit(one.saved, one.to_store);
    }

    void commit(const Saved& saved, bool in_store) {
        ++out_.checkpoints;
        fruitless_ = 0;
        if (!in_store) {
            memory_ = saved;
            const bool busy =
                std::any_of(background_.begin(), background_.end(), [](const Background& one) { return one.to_store; });
            if (++copies_ % plan_.cost.persist_every == 0 && !busy) {
                background_.push_back({saved, CampaignTime::from_seconds(plan_.cost.persist_s).ns(), true});
                priced_ = false;
            }
        } else {
            stored_.push_back(saved);
            if (stored_.size() > static_cast<std::size_t>(spec_.checkpoint.storage.keep)) {
                stored_.pop_front();
            }
        }
        if (step_ == Step::training) {
            replace_in_time();
        }
    }

    // Right after a checkpoint little is lost: machines that were found slow leave, and a job that has shrunk grows.
    void replace_in_time() {
        bool leaves = false;
        for (const std::uint32_t machine : draining_) {
            const std::uint32_t place = fleet_.place_of(machine);
            if (place != Fleet::kNone && fleet_.available() > 0) {
                fleet_.remove(place);
                seen_[place] = Fleet::kNone;
                to_repair(machine);
                leaves = true;
            }
        }
        draining_.clear();
        const auto most = static_cast<std::uint32_t>(
            std::min<std::uint64_t>(plan_.shape.nodes, fleet_.present() + fleet_.available()));
        if (!leaves && !(used_nodes() < plan_.shape.nodes && job_.nodes_used(most) > used_nodes())) {
            return;
        }
        planned_ = true;
        recovery_start_ = now_;
        acquire();
    }

    void train() {
        step_ = Step::training;
        next_save_ = free_ ? goal_ : after(interval_);
        lost_places_.clear();
        ++out_.recoveries;
        out_.recovering += now_ - recovery_start_;
        planned_ = false;
        priced_ = false;
    }

    // --- recovery ---------------------------------------------------------------------------------------------------

    void interrupt(double delay_s) {
        ++out_.interruptions;
        ++fruitless_;
        if (step_ == Step::training || step_ == Step::saving) {
            recovery_start_ = now_;
        }
        planned_ = false;
        if (step_ != Step::waiting) {  // a job that waits for machines has nothing to notice
            begin(Step::detecting, delay_s);
        }
    }

    // A machine leaves the job, with what it holds of checkpoints.
    void lose(std::uint32_t place, double back_after_s) {
        const std::uint32_t machine = fleet_.machine_at(place);
        if (machine == Fleet::kNone) {
            return;
        }
        fleet_.remove(place);
        seen_[place] = Fleet::kNone;
        lost_places_.push_back(place);
        background_.clear();
        priced_ = false;
        if (back_after_s > 0) {
            push(in(back_after_s), Event::Kind::back, machine);
        } else if (back_after_s == 0) {
            to_repair(machine);
        }
    }
    static constexpr double kNeverBack = -1;

    void to_repair(std::uint32_t machine) {
        const Fleet::Repair repair = fleet_.repair(machine, now_.seconds(), out_);
        if (!repair.retired) {
            push(in(repair.seconds), repair.works ? Event::Kind::mended : Event::Kind::back, machine);
        }
    }

    void acquire() {
        fleet_.widen(plan_.shape.nodes);
        const double seconds = fleet_.fill(out_);
        const std::uint32_t present = fleet_.present();
        const std::uint32_t used = present == plan_.shape.nodes ? present
                                   : recovery_.shrinks          ? job_.nodes_used(present)
                                                                : 0;
        if (used == 0) {
            step_ = Step::waiting;
            end_ = CampaignTime::never();
            return;
        }
        if (used < plan_.shape.nodes) {
            fleet_.compact(used);
        }
        tell_sources();
        priced_ = false;
        begin(Step::joining, seconds);
    }

    // Machines that took a place fail at their own rate.
    void tell_sources() {
        const std::vector<std::uint32_t>& places = fleet_.places();
        seen_.resize(plan_.shape.nodes, Fleet::kNone);
        for (std::uint32_t place = 0; place < places.size(); ++place) {
            if (seen_[place] == places[place] || places[place] == Fleet::kNone) {
                continue;
            }
            seen_[place] = places[place];
            for (std::size_t i = 0; i < sources_.size(); ++i) {
                Source& source = sources_[i];
                if (source.machines) {
                    source.exposed.set_bad(place, fleet_.bad(places[place], i));
                    source.process->changed(source.exposed, place, static_cast<double>(exposure(source)) * 1e-9,
                                            source.random);
                }
            }
        }
    }

    // The job has the state of the last checkpoint that can be had. Returns whether it lies in the memory of hosts.
    bool go_back() {
        std::sort(lost_places_.begin(), lost_places_.end());
        lost_places_.erase(std::unique(lost_places_.begin(), lost_places_.end()), lost_places_.end());
        if (memory_ && !survives(lost_places_, plan_.cost.group, plan_.cost.parity)) {
            memory_.reset();
        }
        const Saved* best = stored_.empty() ? &start_ : &stored_.back();
        const bool from_memory = memory_ && memory_->work >= best->work;
        best = from_memory ? &*memory_ : best;
        work_ = best->work;
        tally_.lose_since(best->tally);
        const CampaignTime taken = best->taken;
        std::erase_if(corruptions_, [&](const Corruption& one) { return one.at >= taken; });
        from_start_ = best == &start_;
        return from_memory;
    }

    void load() {
        const bool from_memory = go_back();
        step_ = Step::loading;
        const CheckpointCost& cost = plan_.cost;
        const double seconds = from_start_ ? 0 : cost.in_memory && !from_memory ? cost.persisted_load_s : cost.load_s;
        left_ = CampaignTime::from_seconds(seconds).ns();
        at_store_ = !from_memory;
    }

    // --- faults -----------------------------------------------------------------------------------------------------

    void take_event() {
        for (std::uint32_t i = 0; i < sources_.size(); ++i) {
            Source& source = sources_[i];
            if (arrival(source) <= now_) {
                strikes_.clear();
                source.process->strike(source.exposed, source.random, strikes_);
                for (const Strike& one : strikes_) {
                    push(in(one.after_s), Event::Kind::strike, one.component, i);
                }
                return;
            }
        }
        const Event event = queue_.top();
        queue_.pop();
        switch (event.kind) {
            case Event::Kind::given:
                return strike(plan_.given[event.what].fault);
            case Event::Kind::strike: {
                Source& source = sources_[event.source];
                const ProcessSpec& spec = *source.spec;
                const double lasts = spec.lasts_s > 0 ? source.marks.exponential(spec.lasts_s) : 0;
                return strike({spec.kind, place_of(spec.component, event.what, plan_.shape), spec.factor, lasts});
            }
            case Event::Kind::end:
                impairments_.end(event.what);
                priced_ = false;
                return;
            case Event::Kind::back:
            case Event::Kind::mended:
                if (event.kind == Event::Kind::mended) {
                    impairments_.end_of(event.what);
                }
                fleet_.give_back(event.what, event.kind == Event::Kind::mended);
                if (step_ == Step::waiting) {
                    acquire();
                }
                return;
            case Event::Kind::found:
                return find_corruption(event.what);
            case Event::Kind::noticed:
                if (const Impairments::Active* one = impairments_.find(event.what); one != nullptr) {
                    draining_.push_back(one->machine);
                }
                return;
        }
    }

    // The machine that a place of a fault is on; kNone: none, or there is nobody.
    [[nodiscard]] std::uint32_t place_on(const Place& place) const {
        switch (place.what) {
            case Place::What::gpu:
                return place.index / plan_.shape.gpus_per_node;
            case Place::What::nic:
                return place.index / plan_.shape.nics_per_node;
            case Place::What::node:
                return place.index;
            default:
                return Fleet::kNone;
        }
    }

    [[nodiscard]] bool chance(double share) { return share > 0 && random_.uniform() < share; }

    void strike(const Fault& fault) {
        if (free_ && step_ == Step::training) {
            save_for_free();
        }
        ++out_.faults;
        ++out_.by_kind[static_cast<std::size_t>(fault.kind)];
        if (keeps_timeline_) {
            out_.struck.push_back({now_, fault});
        }
        const std::uint32_t place = place_on(fault.place);
        const std::uint32_t machine = place == Fleet::kNone ? Fleet::kNone : fleet_.machine_at(place);
        if (fault.kind == FaultKind::preemption && machine == Fleet::kNone) {
            return preempt_standby(fault);
        }
        if (place != Fleet::kNone && machine == Fleet::kNone) {
            return;  // nobody is there
        }
        switch (fault.kind) {
            case FaultKind::fail_stop:
                if (place != Fleet::kNone) {
                    lose(place, 0);
                }
                return interrupt(chance(recovery_.heartbeat_misses) ? recovery_.timeout_s : recovery_.heartbeat_s);
            case FaultKind::preemption:
                lose(place, fault.lasts_s > 0 ? fault.lasts_s : kNeverBack);
                return interrupt(recovery_.heartbeat_s);
            case FaultKind::hang: {
                const bool noticed = recovery_.watches && !chance(recovery_.anomaly_misses);
                return interrupt(noticed ? std::min(recovery_.anomaly_s, recovery_.timeout_s) : recovery_.timeout_s);
            }
            case FaultKind::corruption:
                corruptions_.push_back({next_corruption_, now_, machine});
                return push(in(recovery_.corruption_s), Event::Kind::found, next_corruption_++);
            case FaultKind::link_down:
            case FaultKind::link_flap:
                return strike_link(fault, place, machine);
            case FaultKind::switch_loss:
                if (fault.place.what == Place::What::leaf) {
                    return lose_leaf(fault);
                }
                break;
            default:
                break;
        }
        impair(fault, machine);
    }

    void preempt_standby(const Fault& fault) {
        const std::uint32_t machine = fleet_.take_standby();
        if (machine != Fleet::kNone && fault.lasts_s > 0) {
            push(in(fault.lasts_s), Event::Kind::back, machine);
        }
    }

    void strike_link(const Fault& fault, std::uint32_t place, std::uint32_t machine) {
        const bool uplink = fault.place.what == Place::What::leaf_spine;
        const bool endures = uplink ? plan_.shape.spines > 1
                                    : fault.kind == FaultKind::link_flap && fault.lasts_s <= recovery_.retry_limit_s;
        if (endures) {
            return impair(fault, machine);
        }
        if (uplink) {  // the only way out of its leaf
            return lose_leaf({FaultKind::switch_loss, {Place::What::leaf, fault.place.index, 0}, 1, fault.lasts_s});
        }
        lose(place, fault.lasts_s);
        interrupt(recovery_.retry_limit_s);
    }

    void lose_leaf(const Fault& fault) {
        const std::uint32_t first = fault.place.index / plan_.shape.rails * plan_.shape.nodes_per_leaf;
        bool any = false;
        for (std::uint32_t place = first; place < first + plan_.shape.nodes_per_leaf; ++place) {
            any = any || fleet_.machine_at(place) != Fleet::kNone;
            lose(place, fault.lasts_s);
        }
        if (any) {
            interrupt(recovery_.retry_limit_s);
        }
    }

    void impair(const Fault& fault, std::uint32_t machine) {
        const std::uint32_t id = impairments_.add(fault, machine);
        priced_ = false;
        if (fault.lasts_s > 0) {
            push(in(fault.lasts_s), Event::Kind::end, id);
        }
        const bool of_machine = machine != Fleet::kNone && fault.kind != FaultKind::power_cap;
        if (of_machine && recovery_.watches && !chance(recovery_.anomaly_misses)) {
            push(in(recovery_.anomaly_s), Event::Kind::noticed, id);
        }
    }

    // What was saved since the corruption is worth nothing.
    void find_corruption(std::uint32_t id) {
        const auto found =
            std::find_if(corruptions_.begin(), corruptions_.end(), [&](const Corruption& one) { return one.id == id; });
        if (found == corruptions_.end()) {
            return;  // the job has gone back behind it already
        }
        const Corruption corruption = *found;
        corruptions_.erase(found);
        std::erase_if(stored_, [&](const Saved& one) { return one.taken >= corruption.at; });
        std::erase_if(background_, [&](const Background& one) { return one.saved.taken >= corruption.at; });
        if (memory_ && memory_->taken >= corruption.at) {
            memory_.reset();
        }
        if (const std::uint32_t place = fleet_.place_of(corruption.machine); place != Fleet::kNone) {
            lose(place, 0);
        }
        interrupt(0);
    }

    const CampaignPlan& plan_;
    const FaultsSpec& spec_;
    const RecoverySpec& recovery_;
    JobModel& job_;
    Fleet fleet_;
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

    std::vector<Source> sources_;
    std::vector<Strike> strikes_;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
    std::uint64_t sequence_ = 0;
    CampaignResult out_;
};

}  // namespace

CampaignPlan plan_campaign(const FaultsSpec& spec, const JobShape& shape, JobModel& job,
                           std::vector<TimedFault> trace) {
    CampaignPlan plan{spec, shape, std::move(trace), job.iteration_s({shape.nodes, {}, 0}), {}, 0};
    for (const EventSpec& event : spec.events) {
        TimedFault one{event.at_s, {event.kind, {}, event.factor, event.lasts_s}};
        std::string problem;
        ORRERY_ASSERT(parse_place(event.where, shape, one.fault.place, problem));
        plan.given.push_back(one);
    }
    std::stable_sort(plan.given.begin(), plan.given.end(),
                     [](const TimedFault& a, const TimedFault& b) { return a.at_s < b.at_s; });
    const CheckpointSetting setting = job.checkpoint();
    const StorageSpec& storage = setting.storage;
    if (storage.capacity > 0 && setting.bytes * static_cast<double>(storage.keep) > storage.capacity) {
        throw InfeasibleError(
            fmt::format("{} checkpoint{} of {} {} not fit a store of {}", storage.keep, storage.keep == 1 ? "" : "s",
                        pretty_quantity(setting.bytes, Dimension::bytes), storage.keep == 1 ? "does" : "do",
                        pretty_quantity(storage.capacity, Dimension::bytes)));
    }
    plan.cost = spec.checkpoint.method.make()->cost(setting);
    const double rate = interruption_rate(spec, shape);
    const double mtbf = rate > 0 ? 1 / rate : std::numeric_limits<double>::infinity();
    const auto interval = spec.checkpoint.interval.make();
    double wanted = interval->seconds(plan.cost.stall_s, mtbf);
    if (std::isnan(wanted)) {
        wanted = 0;  // nothing to stall for, never interrupted
    }
    plan.interval_s =
        std::isinf(wanted) ? 1e10 : plan.iteration_s * std::max(1.0, std::floor(wanted / plan.iteration_s + 0.5));
    return plan;
}

CampaignResult run_campaign(const CampaignPlan& plan, JobModel& job, std::uint64_t seed, bool timeline) {
    return Campaign(plan, job, seed, timeline).run();
}

}  // namespace orrery::inline faults
