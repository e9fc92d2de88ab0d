#pragma once
// A static task graph: what happens, what it waits for, and on which in-order stream it runs.
//
// Compact on purpose: a 12,288-GPU training iteration with every rank has about ten million tasks.

#include "sim/base/id.hpp"
#include "sim/base/time.hpp"
#include "sim/engine/resource_model.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace orrery::inline engine {

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
    std::uint32_t activity = kNoActivity;  ///< index in the graph's activities
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

    /// Adds a task of fixed duration.
    TaskId add(Task task);
    /// Adds a task that shares resources after `task.duration` of latency.
    TaskId add_activity(Task task, std::uint32_t demand_set, double amount);
    /// `after` starts when `before` has finished.
    void add_edge(TaskId before, TaskId after);
    /// What starts after the first of a pair starts after the second too.
    void add_companions(const std::vector<std::pair<TaskId, TaskId>>& pairs);

    [[nodiscard]] std::size_t size() const { return tasks_.size(); }
    [[nodiscard]] const Task& task(TaskId id) const { return tasks_[id.value()]; }
    [[nodiscard]] const std::string& name_of(TaskId id) const { return names_[tasks_[id.value()].name]; }
    [[nodiscard]] const Activity& activity(std::uint32_t index) const { return activities_[index]; }
    [[nodiscard]] std::size_t demand_set_count() const { return demand_sets_.size(); }
    [[nodiscard]] std::span<const Demand> demands(std::uint32_t set) const { return demand_sets_[set].demands; }
    [[nodiscard]] std::span<const RoutedFlow> flows(std::uint32_t set) const { return demand_sets_[set].flows; }
    [[nodiscard]] double bound(std::uint32_t set) const { return demand_sets_[set].bound; }

    /// Indexes the edges. Call once, after the last edge; from then on the graph is immutable.
    void freeze();
    [[nodiscard]] std::span<const std::uint32_t> successors(TaskId id) const {
        return {successors_.data() + first_[id.value()], successors_.data() + first_[id.value() + 1]};
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
    std::vector<Task> tasks_;
    std::vector<Activity> activities_;
    std::vector<DemandSet> demand_sets_;
    std::vector<std::string> names_;
    std::vector<Edge> edges_;
    std::vector<std::uint32_t> first_;
    std::vector<std::uint32_t> successors_;
};

}  // namespace orrery::inline engine
