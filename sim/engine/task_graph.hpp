#pragma once
// A static task graph: what happens, what it waits for, and on which in-order stream it runs.
//
// Compact on purpose: a 12,288-GPU training iteration with every rank has about ten million tasks. Members that do the same, such as
// the ranks of a pipeline stage, share one description: a graph with copies is built for one member, and each of its tasks and edges
// is stored once. A task then has a copy for every member, or for every cell of a partition of the members where those of a cell act
// together. An edge leads from a copy to the copies of the other task that have members in common with it, once for each of these
// where the two tasks have unlike partitions.

#include "sim/base/id.hpp"
#include "sim/base/time.hpp"
#include "sim/engine/resource_model.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace orrery::engine {

/// What a task's time is booked under. Every interval of a stream is attributed to one of these.
enum class Category : std::uint8_t {
    forward,
    backward,
    recompute,
    optimizer,
    tensor_communication,
    pipeline_communication,
    data_communication,
    context_communication,
    expert_communication,
    overhead,
    other
};
[[nodiscard]] const char* category_name(Category category);
inline constexpr int kCategoryCount = 11;

struct Task {
    SimTime duration;                      ///< of a fixed task; of an activity, its latency before it starts to share
    std::uint32_t activity = kNoActivity;  ///< kNoActivity: a fixed task; else see TaskGraph::activity
    std::uint32_t rank = 0;                ///< who it belongs to, for order and records
    std::uint16_t name = 0;                ///< index in the graph's names
    std::uint8_t stream = 0;               ///< stream of the rank
    Category category = Category::other;
    std::uint32_t label = 0;  ///< index in what its owner says of tasks, such as micro-batches; 0: nothing

    static constexpr std::uint32_t kNoActivity = 0xFFFFFFFFU;
};

class TaskGraph {
  public:
    struct Activity {
        std::uint32_t demand_set;
        double amount;
    };

    /// Index of a name for tasks; equal names share one index. At most 65,536 names.
    [[nodiscard]] std::uint16_t name(const std::string& text);
    /// A set of demands that tasks can refer to. `bound`: limit of the rate.
    /// `flows`: the part of it that runs between nodes, for models that route flows themselves.
    std::uint32_t add_demands(std::vector<Demand> demands, double bound = ResourceModel::kUnbounded,
                              std::vector<RoutedFlow> flows = {});
    /// Other demands for a set that tasks may refer to already. Its flows are dropped.
    void replace_demands(std::uint32_t set, std::vector<Demand> demands);

    /// The graph is built for one of so many members. Member i's copy of a task is of rank `task.rank + i` and, where it is an
    /// activity, demands set `demand_set + i`; in a partition i is the cell, and its first member gives the rank. Call before the
    /// first task.
    void set_copies(std::uint32_t members);
    [[nodiscard]] std::uint32_t copies() const {
        return partitions_.empty() ? 1 : static_cast<std::uint32_t>(partitions_[kEach].cell_of.size());
    }
    /// Members that act together, by cell of each member, cells numbered from 0 by their first members. Equal ones have one index.
    [[nodiscard]] std::uint16_t add_partition(const std::vector<std::uint32_t>& cell_of);
    /// The copies of a task are those of a partition, and not of each member. Before freeze().
    void set_partition(TaskId id, std::uint16_t partition);
    static constexpr std::uint16_t kEach = 0;      ///< partition: each member by itself
    static constexpr std::uint16_t kTogether = 1;  ///< all members as one

    // Until freeze() a task's id is that of all its copies.

    /// Adds a task of fixed duration.
    TaskId add(Task task);
    /// Adds a task that shares resources after `task.duration` of latency.
    TaskId add_activity(Task task, std::uint32_t demand_set, double amount);
    /// `after` starts when `before` has finished.
    void add_edge(TaskId before, TaskId after);
    /// What starts after the first of a pair starts after the second too.
    void add_companions(const std::vector<std::pair<TaskId, TaskId>>& pairs);

    /// Tasks; once frozen with all copies.
    [[nodiscard]] std::size_t size() const { return first_copy_.empty() ? tasks_.size() : first_copy_.back(); }
    [[nodiscard]] Task task(TaskId id) const {
        const Copy copy = locate(id.value());
        Task out = tasks_[copy.task];
        if (copy.number > 0) {
            const Partition& of = partitions_[partition_of_[copy.task]];
            out.rank += of.members[of.first[copy.number]];
        }
        return out;
    }
    [[nodiscard]] const std::string& name_of(TaskId id) const { return names_[tasks_[locate(id.value()).task].name]; }
    /// Of a task that is one.
    [[nodiscard]] Activity activity(TaskId id) const {
        const Copy copy = locate(id.value());
        Activity out = activities_[tasks_[copy.task].activity];
        out.demand_set += copy.number;
        return out;
    }
    [[nodiscard]] std::size_t demand_set_count() const { return demand_sets_.size(); }
    [[nodiscard]] std::span<const Demand> demands(std::uint32_t set) const { return demand_sets_[set].demands; }
    [[nodiscard]] std::span<const RoutedFlow> flows(std::uint32_t set) const { return demand_sets_[set].flows; }
    [[nodiscard]] double bound(std::uint32_t set) const { return demand_sets_[set].bound; }

    /// Indexes the edges and numbers the copies. Call once, after the last edge; from then on the graph is immutable.
    void freeze();
    /// The id that this task had before freeze().
    [[nodiscard]] TaskId original(TaskId id) const { return TaskId(locate(id.value()).task); }
    /// The task that member `member` has of the one that had this id before freeze(), perhaps with others.
    [[nodiscard]] TaskId copy_of(TaskId original, std::uint32_t member) const {
        return first_copy_.empty()
                   ? original
                   : TaskId(first_copy_[original.value()] + partition(original.value()).cell_of[member]);
    }
    /// Calls `each(id)` for what waits for a task, as often as it does.
    template <class Each>
    void for_successors(TaskId id, const Each& each) const {
        const Copy copy = locate(id.value());
        const std::uint32_t end = first_[copy.task + 1];
        if (first_copy_.empty()) {
            for (std::uint32_t i = first_[copy.task]; i < end; ++i) {
                each(successors_[i]);
            }
            return;
        }
        const std::uint16_t own = partition_of_[copy.task];
        for (std::uint32_t i = first_[copy.task]; i < end; ++i) {
            const std::uint32_t next = successors_[i];
            const std::uint32_t base = first_copy_[next];
            if (partition_of_[next] == own) {
                each(base + copy.number);
                continue;
            }
            const std::vector<std::uint32_t>& cell_of = partition(next).cell_of;
            const Partition& here = partitions_[own];
            for (std::uint32_t k = here.first[copy.number]; k < here.first[copy.number + 1]; ++k) {
                each(base + cell_of[here.members[k]]);
            }
        }
    }
    /// Number of tasks that must finish before each task, in task order.
    [[nodiscard]] std::vector<std::uint32_t> predecessor_counts() const;

  private:
    struct DemandSet {
        std::vector<Demand> demands;
        double bound;
        std::vector<RoutedFlow> flows;
    };
    struct Edge {
        std::uint32_t before;
        std::uint32_t after;
    };
    struct Partition {
        std::vector<std::uint32_t> cell_of;  ///< by member
        std::vector<std::uint32_t> first;    ///< by cell: index in `members`; one more at the end
        std::vector<std::uint32_t> members;  ///< by cell
    };
    struct Copy {
        std::uint32_t task;    ///< index in tasks_
        std::uint32_t number;  ///< cell of its partition
    };
    [[nodiscard]] const Partition& partition(std::uint32_t task) const { return partitions_[partition_of_[task]]; }
    [[nodiscard]] Copy locate(std::uint32_t id) const {
        if (first_copy_.empty()) {
            return {id, 0};
        }
        std::uint32_t task = task_at_[id / kBlock];
        while (first_copy_[task + 1] <= id) {
            ++task;
        }
        return {task, id - first_copy_[task]};
    }

    std::vector<Task> tasks_;
    std::vector<Activity> activities_;
    std::vector<DemandSet> demand_sets_;
    std::vector<std::string> names_;
    std::vector<Edge> edges_;
    std::vector<std::uint32_t> first_;
    std::vector<std::uint32_t> successors_;
    // Of a graph with copies, which numbers those of a task one after another:
    static constexpr std::uint32_t kBlock = 64;
    std::vector<Partition> partitions_;
    std::vector<std::uint16_t> partition_of_;  ///< by task
    std::vector<std::uint32_t> first_copy_;    ///< by task: id of its first copy; one more at the end
    std::vector<std::uint32_t> task_at_;       ///< by block of ids: the task of the first one
};

}  // namespace orrery::engine
