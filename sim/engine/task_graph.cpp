#include "sim/engine/task_graph.hpp"

#include <algorithm>
#include <numeric>

namespace orrery::engine {

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

void TaskGraph::set_copies(std::uint32_t members) {
    ORRERY_ASSERT(tasks_.empty() && partitions_.empty() && members > 0);
    std::vector<std::uint32_t> cells(members);
    std::iota(cells.begin(), cells.end(), 0U);
    static_cast<void>(add_partition(cells));
    if (members == 1) {
        partitions_.push_back(partitions_[kEach]);
        return;
    }
    static_cast<void>(add_partition(std::vector<std::uint32_t>(members, 0)));
}

std::uint16_t TaskGraph::add_partition(const std::vector<std::uint32_t>& cell_of) {
    const auto found = std::find_if(partitions_.begin(), partitions_.end(),
                                    [&](const Partition& one) { return one.cell_of == cell_of; });
    const auto index = static_cast<std::uint16_t>(found - partitions_.begin());
    if (found != partitions_.end()) {
        return index;
    }
    ORRERY_ASSERT(partitions_.size() < 65535 && (partitions_.empty() || cell_of.size() == copies()));
    Partition made{cell_of, {0}, std::vector<std::uint32_t>(cell_of.size())};
    for (const std::uint32_t cell : cell_of) {
        ORRERY_ASSERT(cell < made.first.size());  // a next cell has its first member behind those of the ones before
        if (cell + 1 == made.first.size()) {
            made.first.push_back(0);
        }
        ++made.first[cell + 1];
    }
    std::partial_sum(made.first.begin(), made.first.end(), made.first.begin());
    std::vector<std::uint32_t> next(made.first.begin(), made.first.end() - 1);
    for (std::uint32_t member = 0; member < cell_of.size(); ++member) {
        made.members[next[cell_of[member]]++] = member;
    }
    partitions_.push_back(std::move(made));
    return index;
}

void TaskGraph::set_partition(TaskId id, std::uint16_t partition) {
    ORRERY_ASSERT(first_.empty() && partition < partitions_.size());
    partition_of_[id.value()] = partition;
}

TaskId TaskGraph::add(Task task) {
    ORRERY_ASSERT(first_.empty() && task.duration >= SimTime());
    tasks_.push_back(task);
    if (!partitions_.empty()) {
        partition_of_.push_back(kEach);
    }
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
    if (partitions_.empty()) {
        return;
    }
    std::uint64_t count = 0;
    first_copy_.reserve(tasks_.size() + 1);
    for (std::uint32_t task = 0; task < tasks_.size(); ++task) {
        first_copy_.push_back(static_cast<std::uint32_t>(count));
        count += partition(task).first.size() - 1;
        while (task_at_.size() * kBlock < count) {
            task_at_.push_back(task);
        }
    }
    ORRERY_ASSERT(count < TaskId().value());
    first_copy_.push_back(static_cast<std::uint32_t>(count));
}

std::vector<std::uint32_t> TaskGraph::predecessor_counts() const {
    std::vector<std::uint32_t> counts(size(), 0);
    for (std::uint32_t id = 0; id < counts.size(); ++id) {
        for_successors(TaskId(id), [&](std::uint32_t next) { ++counts[next]; });
    }
    return counts;
}

}  // namespace orrery::engine
