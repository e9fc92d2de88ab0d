#include "workloads/rl/steps.hpp"

#include "sim/base/error.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace orrery::rl {

namespace {

constexpr std::int64_t kLeastMeasured = 16;  // steps

}  // namespace

const std::vector<std::string>& step_phase_names() {
    static const std::vector<std::string> kNames = {"generation", "preparation", "training", "synchronisation"};
    return kNames;
}

RlSteps::RlSteps(const StepsInput& input, std::uint32_t nodes, Simulation& simulation, SimTime start)
    : input_(input), nodes_(nodes), last_on_(nodes) {
    // Whole turns of the batches drawn, after the first steps, which begin with nothing under way.
    const std::int64_t turns = (kLeastMeasured + input_.draws - 1) / input_.draws;
    measured_ = turns * input_.draws;
    warm_up_ = 2 * (input_.staleness + 2) + measured_;
    ORRERY_ASSERT(measured_ >= kLeastMeasured && warm_up_ > measured_);  // the mean starts at a step that was simulated
    build();
    ORRERY_ASSERT(placed_.size() <= graph_.size());
    executor_ = &simulation.add(graph_, start);
}

void RlSteps::build() {
    for (std::int64_t step = 0; step < warm_up_ + measured_; ++step) {
        add_step(step);
    }
    ORRERY_ASSERT(trained_.size() == static_cast<std::size_t>(warm_up_ + measured_));
    graph_.freeze();
}

TaskId RlSteps::add(const PartWork& work, std::int64_t step, const std::vector<TaskId>& after) {
    const std::size_t draw = work.seconds.size() == 1 ? 0 : static_cast<std::size_t>(step % input_.draws);
    Task task;
    task.duration = SimTime::from_seconds(work.seconds.at(draw));
    task.name = graph_.name(work.name);
    const TaskId id = graph_.add(task);
    ORRERY_ASSERT(draw < work.seconds.size());
    std::vector<TaskId> before = after;
    for (const std::uint32_t node : work.nodes) {
        ORRERY_ASSERT(node < last_on_.size());
        if (last_on_[node].valid()) {
            before.push_back(last_on_[node]);
        }
        last_on_[node] = id;
    }
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    ORRERY_ASSERT(before.empty() || before.back() < id);  // tasks wait for earlier ones only: no circle
    for (const TaskId one : before) {
        graph_.add_edge(one, id);
    }
    placed_.push_back({id, static_cast<std::uint32_t>(&work - input_.parts.data()), step});
    ORRERY_ASSERT(placed_.back().part < input_.parts.size());
    return id;
}

void RlSteps::add_step(std::int64_t step) {
    const auto run = [&](StepPhase phase, std::int64_t of_step, const std::vector<TaskId>& after) {
        std::vector<TaskId> out;
        for (const PartWork& work : input_.parts) {
            if (work.phase == phase) {
                out.push_back(add(work, of_step, after));
            }
        }
        return out.empty() ? after : out;
    };
    std::vector<TaskId> ready;
    if (const std::int64_t version = step - 1 - input_.staleness; version >= 0) {
        ORRERY_ASSERT(static_cast<std::size_t>(version) <
                      trained_.size());  // weights of a step that is trained by then
        ready = run(StepPhase::synchronisation, version, {trained_[static_cast<std::size_t>(version)]});
    }
    ready = run(StepPhase::generation, step, ready);
    ready = run(StepPhase::preparation, step, ready);
    ready = run(StepPhase::training, step, ready);
    Task end;
    end.name = graph_.name("end of training");
    const TaskId id = graph_.add(end);
    for (const TaskId one : ready) {
        graph_.add_edge(one, id);
    }
    ORRERY_ASSERT(trained_.size() == static_cast<std::size_t>(step));
    trained_.push_back(id);
}

SimTime RlSteps::trained(std::int64_t step) const {
    return executor_->end_of(trained_.at(static_cast<std::size_t>(step)));
}

StepsResult RlSteps::result() const {
    StepsResult out;
    const std::int64_t last = warm_up_ + measured_ - 1;
    const SimTime from = trained(last - measured_);
    const SimTime to = trained(last);
    ORRERY_ASSERT(to >= from);  // every part takes the steps in order
    const auto steps = static_cast<double>(measured_);
    out.step_s = (to - from).seconds() / steps;
    out.busy.assign(nodes_, 0);
    std::map<std::uint32_t, StepPhase> phase_of;                                        // by task
    std::map<std::pair<std::size_t, std::int64_t>, std::pair<SimTime, SimTime>> spans;  // by phase and step
    for (const Placed& task : placed_) {
        const PartWork& work = input_.parts[task.part];
        const SimTime start = executor_->start_of(task.id);
        const SimTime end = executor_->end_of(task.id);
        ORRERY_ASSERT(start <= end);
        phase_of.emplace(task.id.value(), work.phase);
        const SimTime inside =
            std::min(end, to) > std::max(start, from) ? std::min(end, to) - std::max(start, from) : SimTime();
        for (const std::uint32_t node : work.nodes) {
            out.busy[node] += inside.seconds() / (to - from).seconds();
        }
        if (end > from && start < to) {
            Span span;
            span.name = work.name;
            span.category = step_phase_names()[static_cast<std::size_t>(work.phase)];
            span.process = task.part;
            span.thread = 0;
            span.start_us = start.seconds() * 1e6;
            span.duration_us = (end - start).seconds() * 1e6;
            out.timeline.spans.push_back(span);
        }
        if (task.step > last - measured_ && task.step <= last) {
            auto [entry, fresh] = spans.try_emplace({static_cast<std::size_t>(work.phase), task.step}, start, end);
            if (!fresh) {
                entry->second = {std::min(entry->second.first, start), std::max(entry->second.second, end)};
            }
        }
    }
    std::array<double, kStepPhases> counted{};
    for (const auto& [key, span] : spans) {
        ORRERY_ASSERT(span.first <= span.second && key.first < kStepPhases);
        out.phase_s[key.first] += (span.second - span.first).seconds();
        counted[key.first] += 1;
    }
    for (std::size_t i = 0; i < kStepPhases; ++i) {
        out.phase_s[i] = counted[i] > 0 ? out.phase_s[i] / counted[i] : 0;
    }
    // Back from the end: each task began when the one that released it ended.
    for (TaskId at = trained_.at(static_cast<std::size_t>(last)); at.valid(); at = executor_->released_by(at)) {
        const SimTime end = executor_->end_of(at);
        if (end <= from) {
            break;
        }
        const SimTime start = std::max(executor_->start_of(at), from);
        ORRERY_ASSERT(start <= end);
        if (const auto found = phase_of.find(at.value()); found != phase_of.end()) {
            out.limiting[static_cast<std::size_t>(found->second)] += (end - start).seconds() / steps;
        }
    }
    constexpr double kRounding = 1e-6;
    // Parts on a node run one after another, and what limits a step lies within it.
    ORRERY_ASSERT(std::none_of(out.busy.begin(), out.busy.end(), [](double share) { return share > 1 + kRounding; }));
    ORRERY_ASSERT(std::accumulate(out.limiting.begin(), out.limiting.end(), 0.0) <= out.step_s * (1 + kRounding));
    for (std::uint32_t i = 0; i < input_.parts.size(); ++i) {
        out.timeline.processes.emplace_back(i, input_.parts[i].name);
    }
    return out;
}

}  // namespace orrery::rl
