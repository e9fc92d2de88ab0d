#include "tools/driver/kinds/training_messages.hpp"

#include "sim/base/error.hpp"
#include "sim/base/random.hpp"
#include "tools/driver/run.hpp"
#include "workloads/training/simulation/simulate.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::driver {

namespace {

void add(MessageRecord& record, Message message, double start, double end) {
    record.schedule.messages.push_back(message);
    record.starts.push_back(start);
    record.completions.push_back(end);
    ORRERY_ASSERT(record.completions.size() == record.schedule.messages.size());
}

struct TrainingTransfer {
    SimTime start;  ///< of sharing
    TaskId task;
};

}  // namespace

MessageRecord messages_of(const std::vector<FlowTime>& times, std::uint32_t owner, double start) {
    MessageRecord out;
    for (const FlowTime& time : times) {
        if (time.owner == owner) {
            ORRERY_ASSERT(!std::isnan(time.end));  // iterations cancel nothing
            ORRERY_ASSERT(time.end >= time.start && time.bytes >= 0);
            add(out, Message{time.from, time.to, time.bytes}, time.start - start, time.end - start);
        }
    }
    return out;
}

std::optional<MessageRecord> messages_of(const TrainingInput& input, const TrainingRun& run, std::size_t most) {
    const TaskGraph& graph = run.lowered().graph;
    std::vector<TrainingTransfer> transfers;
    std::size_t count = 0;
    for (std::uint32_t i = 0; i < graph.size(); ++i) {
        const Task task = graph.task(TaskId(i));
        if (task.activity == Task::kNoActivity) {
            continue;
        }
        const std::size_t flows = graph.flows(graph.activity(TaskId(i)).demand_set).size();
        count += flows;
        if (flows > 0) {
            transfers.push_back({run.executor().start_of(TaskId(i)) + task.duration, TaskId(i)});
        }
        if (count > most) {
            return std::nullopt;
        }
    }
    std::stable_sort(transfers.begin(), transfers.end(),
                     [](const TrainingTransfer& a, const TrainingTransfer& b) { return a.start < b.start; });
    MessageRecord out;
    for (const TrainingTransfer& transfer : transfers) {
        const TaskGraph::Activity activity = graph.activity(transfer.task);
        const double earliest = run.executor().start_of(transfer.task).seconds();
        ORRERY_ASSERT(run.executor().end_of(transfer.task) >= run.executor().start_of(transfer.task));
        for (const RoutedFlow& flow : graph.flows(activity.demand_set)) {
            const std::uint64_t hash = mix64((std::uint64_t{flow.from.value()} << 32U) | flow.to.value());
            const double path = input.fabric.route(flow.from, flow.to, input.paths, hash).latency;
            add(out, Message{flow.from.value(), flow.to.value(), activity.amount * flow.weight},
                std::max(earliest, transfer.start.seconds() - path), run.executor().end_of(transfer.task).seconds());
        }
    }
    return out;
}

}  // namespace orrery::driver
