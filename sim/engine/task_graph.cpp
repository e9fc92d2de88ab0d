#include "sim/engine/task_graph.hpp"

#include <algorithm>

namespace orrery::inline engine {

const char* category_name(Category category) {
    static constexpr const char* kNames[kCategoryCount] = {"forward",
                                                           "backward",
                                                           "recompute",
                                                           "optimizer",
                                                           "tensor communication",
                                                           "pipeline communication",
                                                           "data communication",
                                                           "context communication",
                                                           "expert communication",
                                                           "overhead",
                                                           "other"};
    return kNames[static_cast<std::size_t>(category)];
}

std::uint16_t TaskGraph::name(const std::string& text) {
    const auto found = std::find(names_.begin(), names_.end(), text);
    if (found != names_.end()) {
        return static_cast<std::uint16_t>(found - names_.begin());
    }
    ORRERY_ASSERT(names_.size() < 65536);
    names_.push_back(text);
    return static_cast<std::uint16_t>(names_.size() - 1);
}

std::uint32_t TaskGraph::add_demands(std::vector<Demand> demands, double bound, std::vector<RoutedFlow> flows) {
    demand_sets_.push_back(DemandSet{std::move(demands), bound, std::move(flows)});
    return static_cast<std::uint32_t>(demand_sets_.size() - 1);
}

void TaskGraph::replace_demands(std::uint32_t set, std::vector<Demand> demands) {
    ORRERY_ASSERT(set < demand_sets_.size());
    demand_sets_[set].demands = std::move(demands);
    demand_sets_[set].flows.clear();
}

TaskId TaskGraph::add(Task task) {
    ORRERY_ASSERT(first_.empty() && task.duration >= SimTime());
    tasks_.push_back(task);
    return TaskId(tasks_.size() - 1);
}

TaskId TaskGraph::add_activity(Task task, std::uint32_t demand_set, double amount) {
    ORRERY_ASSERT(demand_set < demand_sets_.size() && amount >= 0);
    task.activity = static_cast<std::uint32_t>(activities_.size());
    activities_.push_back(Activity{demand_set, amount});
    return add(task);
}

void TaskGraph::add_companions(const std::vector<std::pair<TaskId, TaskId>>& pairs) {
    constexpr std::uint32_t kNone = 0xFFFFFFFFU;
    std::vector<std::uint32_t> companion(tasks_.size(), kNone);
    for (const auto& [task, other] : pairs) {
        companion[task.value()] = other.value();
    }
    for (std::size_t i = 0, count = edges_.size(); i < count; ++i) {
        if (const std::uint32_t other = companion[edges_[i].before]; other != kNone) {
            edges_.push_back(Edge{other, edges_[i].after});
        }
    }
}

void TaskGraph::add_edge(TaskId before, TaskId after) {
    ORRERY_ASSERT(before.value() < tasks_.size() && after.value() < tasks_.size() && before != after);
    edges_.push_back(Edge{before.value(), after.value()});
}

void TaskGraph::freeze() {
    first_.assign(tasks_.size() + 1, 0);
    for (const Edge& edge : edges_) {
        ++first_[edge.before + 1];
    }
    for (std::size_t i = 1; i < first_.size(); ++i) {
        first_[i] += first_[i - 1];
    }
    successors_.resize(edges_.size());
    std::vector<std::uint32_t> next(first_.begin(), first_.end() - 1);
    for (const Edge& edge : edges_) {
        successors_[next[edge.before]++] = edge.after;
    }
    edges_.clear();
    edges_.shrink_to_fit();
}

std::vector<std::uint32_t> TaskGraph::predecessor_counts() const {
    std::vector<std::uint32_t> counts(tasks_.size(), 0);
    for (const std::uint32_t successor : successors_) {
        ++counts[successor];
    }
    return counts;
}

}  // namespace orrery::inline engine
