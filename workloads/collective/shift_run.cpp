// Messages that all start at once, without a stored schedule: one of each class where they go alike, otherwise each.

#include "workloads/collective/alike.hpp"
#include "workloads/collective/message_path.hpp"

#include <set>

namespace orrery::collective {

namespace {

constexpr std::uint64_t kShiftProgress = 1U << 18;

class ShiftRun final : public MessageRun, public TaskSource {
  public:
    ShiftRun(Simulation& simulation, const Placement& placement, const Shifts& shifts, std::uint32_t ranks,
             const MessageRunOptions& options, SimTime start)
        : simulation_(simulation),
          fabric_(*simulation.fabric()),
          placement_(placement),
          shifts_(shifts),
          ranks_(ranks),
          options_(options),
          resources_(simulation.resources()),
          dispatcher_(simulation.add(static_cast<TaskSource&>(*this), start)) {}

    MessageRunResult result() override {
        MessageRunResult result;
        result.messages = done_;
        result.bytes = static_cast<double>(done_) * shifts_.bytes;
        result.seconds = last_.seconds();
        result.classes = classes_.size();
        return result;
    }

    void begin(Dispatcher&) override {
        // Other jobs on these links would tell the messages apart.
        if (options_.fold && options_.run.fidelity == Fidelity::fluid && simulation_.jobs() == 1) {
            if (auto alike = alike_messages(fabric_, placement_, stream(), options_.paths)) {
                classes_ = std::move(*alike);
            }
        }
        for (std::uint32_t c = 0; c < classes_.size(); ++c) {
            const MessageClass& one = classes_[c];
            const ClassId id = resources_.hold(one.demands, one.bound);
            held_.push_back(id);
            dispatcher_.share(id, shifts_.bytes, SimTime::from_seconds(one.latency), 0, c);
        }
        if (!classes_.empty()) {
            return;
        }
        require_schedule_size(static_cast<double>(total()));
        arrived_.resize(total());
        for_each([&](std::uint64_t, GpuId, GpuId, const Route&, SimTime latency) { latencies_.insert(latency); });
        // One event for all that start at one instant.
        std::uint64_t place = 0;
        for (const SimTime latency : latencies_) {
            dispatcher_.delay(latency, 0, total() + place++);
        }
    }

    void on_done(std::uint64_t token, Dispatcher&) override {
        if (classes_.empty() && token >= total()) {
            start(*std::next(latencies_.begin(), static_cast<std::ptrdiff_t>(token - total())));
            return;
        }
        last_ = dispatcher_.now();
        ORRERY_ASSERT(done_ < total());
        const std::uint64_t before = done_;
        if (!classes_.empty()) {
            ORRERY_ASSERT(token < held_.size());
            resources_.release(held_[token]);
            done_ += classes_[token].count;
        } else {
            ORRERY_ASSERT(!arrived_[token]);
            arrived_[token] = true;
            ++done_;
        }
        if (options_.progress && done_ / kShiftProgress != before / kShiftProgress) {
            options_.progress(static_cast<double>(done_) / static_cast<double>(total()));
        }
    }

    void end(Dispatcher&) override {
        if (done_ == total()) {
            return;
        }
        resources_.require_finished();
        std::uint64_t left = 0;
        while (left < arrived_.size() && arrived_[left]) {
            ++left;
        }
        const std::string which = left < arrived_.size() ? " from " + std::to_string(left % ranks_) + " to " +
                                                               std::to_string((left + left / ranks_ + 1) % ranks_)
                                                         : "";
        throw InfeasibleError("message" + which + " can never finish: a link on its path has no capacity",
                              ErrorCode::no_route);
    }

  private:
    [[nodiscard]] std::uint64_t total() const { return std::uint64_t{ranks_} * shifts_.count; }

    [[nodiscard]] MessageStream stream() const {
        MessageStream out;
        out.size = total();
        out.bytes = shifts_.bytes;
        out.for_each = [this](const MessageStream::Visit& visit) {
            std::uint64_t number = 0;
            for (std::uint32_t k = 1; k <= shifts_.count; ++k) {
                for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
                    visit(number++, rank, (rank + k) % ranks_);
                }
            }
        };
        return out;
    }

    // In turns: the first message of every rank, then the second of each.
    template <class Visit>
    void for_each(const Visit& visit) const {
        std::uint64_t number = 0;
        for (std::uint32_t k = 1; k <= shifts_.count; ++k) {
            for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
                const GpuId from = placement_.gpu(rank);
                const GpuId to = placement_.gpu((rank + k) % ranks_);
                const Route route = fabric_.route(from, to, options_.paths, hash_of(from, to.value()));
                const double latency = route.latency + slow_start_of(fabric_, from, to, shifts_.bytes);
                visit(number++, from, to, route, SimTime::from_seconds(latency));
            }
        }
    }

    void start(SimTime wanted) {
        MessagePath path;
        for_each([&](std::uint64_t number, GpuId from, GpuId to, const Route& route, SimTime latency) {
            if (latency == wanted) {
                path.take(fabric_, from, to, route);
                const ClassId id = resources_.hold(path.demands, bound_of(route));
                dispatcher_.share(id, shifts_.bytes, SimTime(), 0, number);
                resources_.release(id);
            }
        });
    }

    Simulation& simulation_;
    const Fabric& fabric_;
    Placement placement_;
    Shifts shifts_;
    std::uint32_t ranks_;
    MessageRunOptions options_;
    ResourceModel& resources_;
    Dispatcher& dispatcher_;
    std::vector<MessageClass> classes_;  ///< empty: every message is simulated
    std::vector<ClassId> held_;          ///< by class
    std::set<SimTime> latencies_;
    std::vector<bool> arrived_;  ///< by message
    std::uint64_t done_ = 0;
    SimTime last_;
};

}  // namespace

std::unique_ptr<MessageRun> add_shifts(Simulation& simulation, const Placement& placement, const Shifts& shifts,
                                       std::uint32_t ranks, const MessageRunOptions& options, SimTime start) {
    ORRERY_ASSERT(shifts.count > 0 && shifts.count < ranks);
    ORRERY_ASSERT(options.run.fidelity == Fidelity::fluid || options.run.fidelity == Fidelity::analytic);
    return std::make_unique<ShiftRun>(simulation, placement, shifts, ranks, options, start);
}

MessageRunResult run_shifts(const Fabric& fabric, const Shifts& shifts, std::uint32_t ranks,
                            const MessageRunOptions& options) {
    Simulation simulation(fabric, options.run);
    return finish(simulation, *add_shifts(simulation, Placement(fabric), shifts, ranks, options));
}

}  // namespace orrery::collective
