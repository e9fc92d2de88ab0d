#include "workloads/replay/activities.hpp"

#include "sim/base/error.hpp"
#include "workloads/imports/importer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <unordered_map>

namespace orrery::replay {

namespace {

constexpr double kUnexplained = 5e-6;  ///< s of lag from which a hidden wait is looked for
constexpr double kLaunch =
    5e-6;  ///< s, about what a launch takes (models/data/devices: 2 to 3 us of them on the device)
constexpr double kCloseBefore = 10e-6;  ///< s before a start in which what it waited for must have ended

class Builder {
  public:
    Builder(std::vector<HostCall> calls, std::vector<RecordedActivity> activities, const std::vector<StreamWait>& waits,
            ReplayTrace& trace)
        : calls_(std::move(calls)), activities_(std::move(activities)), waits_(waits), trace_(trace) {}

    void run() {
        sort();
        link_launches();
        make_events();
        for (const Event& event : events_) {
            if (event.device) {
                add_device(event.index);
            } else if (event.synchronises) {
                add_synchronising(event.index);
            } else {
                add_call(event.index);
            }
        }
    }

    double begin_s() const { return begin_s_; }
    double end_s() const { return *std::max_element(ends_.begin(), ends_.end()); }
    std::size_t inferred() const { return inferred_; }
    std::size_t unused() const { return unused_; }

  private:
    // Operations enter the trace in the order in which they end, so that everything waited for is there already.
    struct Event {
        double end_s;
        bool device;
        bool synchronises;
        std::size_t index;
    };
    struct Done {
        std::uint32_t op;
        double end_s;
        double launched_s;
    };

    void sort() {
        std::stable_sort(calls_.begin(), calls_.end(),
                         [](const HostCall& a, const HostCall& b) { return a.start_s < b.start_s; });
        std::stable_sort(activities_.begin(), activities_.end(),
                         [](const RecordedActivity& a, const RecordedActivity& b) { return a.start_s < b.start_s; });
        begin_s_ = activities_.front().start_s;
        end_s_ = activities_.front().end_s;
        for (const RecordedActivity& activity : activities_) {
            end_s_ = std::max(end_s_, activity.end_s);
        }
        ORRERY_ASSERT(begin_s_ <= end_s_);
    }

    void link_launches() {
        std::unordered_map<std::uint64_t, std::size_t> by_correlation;
        for (std::size_t i = 0; i < calls_.size(); ++i) {
            by_correlation.emplace(calls_[i].correlation, i);
        }
        launched_by_.assign(activities_.size(), calls_.size());
        first_activity_.assign(calls_.size(), activities_.size());
        for (std::size_t i = 0; i < activities_.size(); ++i) {
            const auto found = by_correlation.find(activities_[i].correlation);
            // A record whose clocks disagree by more than a launch takes is no launch of this operation.
            if (found != by_correlation.end() && calls_[found->second].start_s <= activities_[i].start_s) {
                launched_by_[i] = found->second;
                first_activity_[found->second] = std::min(first_activity_[found->second], i);
                begin_s_ = std::min(begin_s_, calls_[found->second].start_s);
            }
        }
    }

    [[nodiscard]] double launched_s(std::size_t activity) const {
        const std::size_t call = launched_by_[activity];
        return call < calls_.size() ? calls_[call].start_s : activities_[activity].start_s;
    }

    // A call that copies and returns after its copy has ended waited for it, whatever its name says.
    [[nodiscard]] bool waits_for_own(std::size_t call) const {
        const std::size_t activity = first_activity_[call];
        return activity < activities_.size() && activities_[activity].copy &&
               calls_[call].end_s >= activities_[activity].end_s;
    }

    // Its operation may begin before a call returns: from then on it is host time like any other. A call that waits for
    // its operation has launched it at once, whenever the device came to it.
    [[nodiscard]] double launch_end(std::size_t call) const {
        const HostCall& c = calls_[call];
        const double end = std::max(c.start_s, std::min(c.end_s, activities_[first_activity_[call]].start_s));
        return waits_for_own(call) ? std::min(end, c.start_s + kLaunch) : end;
    }

    void make_events() {
        for (std::size_t i = 0; i < activities_.size(); ++i) {
            events_.push_back({activities_[i].end_s, true, false, i});
        }
        for (std::size_t i = 0; i < calls_.size(); ++i) {
            const HostCall& call = calls_[i];
            const std::size_t activity = first_activity_[i];
            if (activity < activities_.size()) {
                events_.push_back({launch_end(i), false, false, i});
            }
            const bool waits = call.kind == HostCall::Kind::sync_device || call.kind == HostCall::Kind::sync_stream;
            if ((waits && call.end_s > begin_s_ && call.start_s < end_s_) || waits_for_own(i)) {
                events_.push_back({call.end_s, false, true, i});
            } else if (activity == activities_.size()) {
                ++unused_;
            }
        }
        std::stable_sort(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
            // At equal ends: launches, then what they launch, then who waits.
            const auto order = [](const Event& e) { return e.synchronises ? 2 : e.device ? 1 : 0; };
            return a.end_s != b.end_s ? a.end_s < b.end_s : order(a) < order(b);
        });
    }

    // Adds an operation that ran from `start` to `end` after `waits`; what they leave of its start is its lag.
    std::uint32_t add(ReplayOp op, std::vector<std::uint32_t> waits, double start, double end) {
        double free_s = begin_s_;
        for (const std::uint32_t id : waits) {
            free_s = std::max(free_s, ends_[id]);
        }
        ORRERY_ASSERT(start <= end);
        op.lag_s = std::max(0.0, start - free_s);
        // Clocks of host and device differ by a little: an overlap shortens the operation, its end stays.
        op.duration_s = std::max(0.0, end - std::max(start, free_s));
        ends_.push_back(std::max(end, free_s));
        ORRERY_ASSERT(ends_.size() == trace_.ops.size() + 1);  // the end of this one is there, it itself is not yet
        return trace_.add(op, std::move(waits));
    }

    [[nodiscard]] std::uint32_t host_lane(const HostCall& call) {
        return trace_.lane(fmt::format("host thread {}", call.thread));
    }

    std::vector<std::uint32_t> after_thread(const HostCall& call) {
        const auto found = last_of_thread_.find(call.thread);
        return found == last_of_thread_.end() ? std::vector<std::uint32_t>() : std::vector{found->second};
    }

    void add_call(std::size_t index) {
        const HostCall& call = calls_[index];
        ReplayOp op;
        op.kind = ReplayKind::host;
        op.name = trace_.name(call.name);
        op.lane = host_lane(call);
        const std::uint32_t id = add(op, after_thread(call), call.start_s, launch_end(index));
        last_of_thread_[call.thread] = id;
        ORRERY_ASSERT(!op_of_call_.contains(index));  // a call launches once
        op_of_call_[index] = id;
    }

    void add_synchronising(std::size_t index) {
        const HostCall& call = calls_[index];
        ReplayOp op;
        op.kind = ReplayKind::host;
        op.name = trace_.name(call.name);
        op.lane = host_lane(call);
        std::vector<std::uint32_t> waits = after_thread(call);
        double waited_s = call.start_s;
        for (const auto& [stream, done] : streams_) {
            const bool own = waits_for_own(index) && stream == activities_[first_activity_[index]].stream;
            if (own || call.kind == HostCall::Kind::sync_device ||
                (call.kind == HostCall::Kind::sync_stream && stream == call.stream)) {
                for (auto it = done.rbegin(); it != done.rend(); ++it) {
                    if (it->launched_s <= call.start_s) {
                        waits.push_back(it->op);
                        waited_s = std::max(waited_s, it->end_s);
                        break;
                    }
                }
            }
        }
        last_of_thread_[call.thread] = add(op, std::move(waits), std::min(waited_s, call.end_s), call.end_s);
    }

    void add_device(std::size_t index) {
        const RecordedActivity& activity = activities_[index];
        ReplayOp op;
        op.kind = activity.collective ? ReplayKind::collective : activity.copy ? ReplayKind::copy : ReplayKind::kernel;
        op.name = trace_.name(activity.name);
        op.lane = trace_.lane(fmt::format("stream {}", activity.stream));
        op.bytes = activity.bytes;
        if (!activity.work.empty()) {
            op.work = trace_.work(activity.work);
        }
        if (activity.collective) {
            op.collective = *activity.collective;
            op.group = trace_.group(activity.group);
        }
        std::vector<std::uint32_t> waits;
        const double launched = launched_s(index);
        const auto call = op_of_call_.find(launched_by_[index]);
        if (call != op_of_call_.end()) {
            waits.push_back(call->second);
        }
        std::vector<Done>& stream = streams_[activity.stream];
        if (!stream.empty()) {
            waits.push_back(stream.back().op);
        }
        add_recorded_waits(activity, launched, waits);
        double free_s = begin_s_;
        for (const std::uint32_t id : waits) {
            free_s = std::max(free_s, ends_[id]);
        }
        if (activity.start_s - free_s > kUnexplained) {
            infer_wait(activity, launched, waits);
        }
        const std::uint32_t id = add(op, std::move(waits), activity.start_s, activity.end_s);
        ORRERY_ASSERT(launched <= activity.start_s);
        stream.push_back(Done{id, activity.end_s, launched});
    }

    void add_recorded_waits(const RecordedActivity& activity, double launched, std::vector<std::uint32_t>& waits) {
        std::vector<std::size_t>& pending = pending_waits_[activity.stream];
        if (!indexed_waits_) {
            for (std::size_t i = 0; i < waits_.size(); ++i) {
                pending_waits_[waits_[i].stream].push_back(i);
            }
            indexed_waits_ = true;
        }
        std::erase_if(pending, [&](std::size_t i) {
            const StreamWait& wait = waits_[i];
            if (wait.at_s > launched) {
                return false;
            }
            const std::vector<Done>& other = streams_[wait.other];
            for (auto it = other.rbegin(); it != other.rend(); ++it) {
                if (it->launched_s <= wait.recorded_s) {
                    waits.push_back(it->op);
                    break;
                }
            }
            return true;
        });
    }

    void infer_wait(const RecordedActivity& activity, double launched, std::vector<std::uint32_t>& waits) {
        const Done* latest = nullptr;
        for (const auto& [stream, done] : streams_) {
            if (stream == activity.stream) {
                continue;
            }
            for (auto it = done.rbegin(); it != done.rend() && it->end_s >= activity.start_s - kCloseBefore; ++it) {
                if (it->end_s <= activity.start_s && it->launched_s <= launched &&
                    (latest == nullptr || it->end_s > latest->end_s)) {
                    latest = &*it;
                }
            }
        }
        if (latest != nullptr) {
            waits.push_back(latest->op);
            ORRERY_ASSERT(latest->end_s <= activity.start_s && latest->launched_s <= launched);
            ++inferred_;
        }
    }

    std::vector<HostCall> calls_;
    std::vector<RecordedActivity> activities_;
    const std::vector<StreamWait>& waits_;
    ReplayTrace& trace_;
    double begin_s_ = 0;
    double end_s_ = 0;
    std::size_t inferred_ = 0;
    std::size_t unused_ = 0;  ///< calls
    std::vector<Event> events_;
    std::vector<std::size_t> launched_by_;     ///< call, by device activity
    std::vector<std::size_t> first_activity_;  ///< device activity, by call
    std::vector<double> ends_;                 ///< by operation of the trace
    std::map<std::int64_t, std::vector<Done>> streams_;
    std::map<std::uint64_t, std::uint32_t> last_of_thread_;
    std::unordered_map<std::size_t, std::uint32_t> op_of_call_;
    std::map<std::int64_t, std::vector<std::size_t>> pending_waits_;
    bool indexed_waits_ = false;
};

}  // namespace

ReplayTrace from_activities(std::vector<HostCall> calls, std::vector<RecordedActivity> activities,
                            const std::vector<StreamWait>& waits, std::uint32_t ranks, const std::string& source,
                            const std::string& file, ImportNotes& notes) {
    notes.read("kernels and copies", activities.size());
    notes.read("host calls", calls.size());
    if (activities.empty()) {
        throw ConfigError({Diagnostic{file, 0, 0, "holds no kernel or copy of a device", ErrorCode::malformed_trace}});
    }
    ReplayTrace trace;
    trace.ranks = ranks;
    Builder builder(std::move(calls), std::move(activities), waits, trace);
    builder.run();
    notes.left_out("host calls that neither launch nor wait, whose time is a lag", builder.unused());
    trace.recorded_s = builder.end_s() - builder.begin_s();
    ORRERY_ASSERT(trace.recorded_s >= 0);
    trace.meta["source"] = source;
    trace.meta["recorded_waits"] = std::to_string(waits.size());
    trace.meta["inferred_waits"] = std::to_string(builder.inferred());
    return trace;
}

std::optional<CollectiveOp> collective_of_kernel(const std::string& name) {
    std::string lower = name;
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    lower.erase(std::remove(lower.begin(), lower.end(), '_'), lower.end());
    if (lower.find("nccl") == std::string::npos && lower.find("rccl") == std::string::npos) {
        return std::nullopt;
    }
    const std::pair<const char*, CollectiveOp> kinds[] = {
        {"allreduce", CollectiveOp::all_reduce},         {"allgather", CollectiveOp::all_gather},
        {"reducescatter", CollectiveOp::reduce_scatter}, {"alltoall", CollectiveOp::all_to_all},
        {"broadcast", CollectiveOp::all_gather},         {"sendrecv", CollectiveOp::send_recv}};
    for (const auto& [word, op] : kinds) {
        if (lower.find(word) != std::string::npos) {
            return op;
        }
    }
    return std::nullopt;
}

}  // namespace orrery::replay
