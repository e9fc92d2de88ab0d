#include "workloads/replay/replay.hpp"

#include "sim/base/error.hpp"
#include "workloads/replay/memory_moves.hpp"
#include "workloads/replay/work.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <set>

namespace orrery::replay {

namespace {

constexpr double kMostTasks = 1e8;
constexpr std::uint32_t kShownRanks = 64;
constexpr std::uint16_t kMostNames = 65'000;

[[noreturn]] void refuse(const ReplaySpec& spec, const std::string& problem,
                         ErrorCode code = ErrorCode::malformed_trace) {
    throw ConfigError({Diagnostic{spec.trace, 0, 0, problem, code}});
}

// Names that libraries give to kernels bound by matrix units.
bool names_product(const std::string& name) {
    std::string lower = name;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    constexpr const char* kWords[] = {"gemm",  "cutlass", "xmma",      "cublas", "nvjet",
                                      "flash", "fmha",    "attention", "conv"};
    return std::any_of(std::begin(kWords), std::end(kWords),
                       [&](const char* word) { return lower.find(word) != std::string::npos; });
}

}  // namespace

// Builds the graph of tasks: every operation of every rank, a collective or message once for all who take part.
class ReplayRun::Lowering {
  public:
    Lowering(const ReplayTrace& trace, const ReplaySpec& spec, std::vector<ReplayNode> nodes, const Fabric& fabric,
             const Placement& placement, PathChoice paths, bool routes_flows)
        : trace_(trace),
          spec_(spec),
          nodes_(std::move(nodes)),
          ratios_(nodes_.size()),
          fabric_(fabric),
          placement_(placement),
          paths_(paths),
          routes_flows_(routes_flows) {
        choose_ranks();
    }

    TaskGraph graph;
    std::uint32_t ranks = 1;  ///< simulated
    bool needs_network = false;
    std::vector<std::vector<TaskId>> tasks_of;       ///< by rank: the task of each of its operations
    std::vector<std::vector<std::uint32_t>> ops_of;  ///< by rank: its operations

    /// Whether the task of an operation begins with its lag; otherwise the lag is a task of its own.
    [[nodiscard]] bool includes_lag(const ReplayOp& op) const {
        return op.kind == ReplayKind::collective ? trace_.same_program && !simulated(op) && !unlike()
                                                 : op.kind != ReplayKind::send && op.kind != ReplayKind::recv;
    }

    double repriced = 0;  ///< share of the kernels' time

    [[nodiscard]] bool has_another_device() const { return !is_product_.empty(); }

    /// Before `run`: what operations on memories of a node demand, and what those on small cores take.
    void use(const NodeMemory* memory, std::vector<double> on_cores) {
        memory_ = memory;
        on_cores_ = std::move(on_cores);
    }

    /// Before `run`: kernels were recorded on another device.
    void reprice(const CostModel& recorded) {
        for (std::size_t i = 0; i < nodes_.size(); ++i) {
            const auto ratio = [&](const Operation& operation) {
                return nodes_[i].now->cost(operation).seconds.value() / recorded.cost(operation).seconds.value();
            };
            for (const std::string& work : trace_.works) {
                std::string problem;
                ratios_[i].of_work.push_back(
                    is_memory_work(work) || is_core_work(work) ? 1 : ratio(*parse_work(work, problem)));
            }
            ratios_[i].of_product = ratio(Gemm{8192, 8192, 8192});
            Streaming stream;
            stream.bytes = 1e9;
            ratios_[i].of_stream = ratio(stream);
        }
        for (const std::string& name : trace_.names) {
            is_product_.push_back(names_product(name));
        }
        double known = 0;
        double all = 0;
        for (const ReplayOp& op : trace_.ops) {
            const double seconds = op.kind == ReplayKind::kernel ? std::max(0.0, op.duration_s) : 0;
            all += seconds;
            known += op.work != ReplayOp::kNone ? seconds : 0;
        }
        if (all <= 0) {
            refuse(spec_, "has no kernel with a time, which recorded_on could price anew");
        }
        repriced = known / all;
        ORRERY_ASSERT(repriced >= 0 && repriced <= 1);
    }

    void run() {
        assign_operations();
        for (const std::string& name : trace_.names) {
            names_.push_back(names_.size() < kMostNames ? graph.name(name) : graph.name("others"));
        }
        lag_ = names_.size() < kMostNames ? graph.name("lag") : graph.name("others");
        tasks_of.resize(ranks);
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
            tasks_of[rank].reserve(ops_of[rank].size());
            for (const std::uint32_t i : ops_of[rank]) {
                local_[i] = static_cast<std::uint32_t>(tasks_of[rank].size());
                tasks_of[rank].push_back(lower(rank, trace_.ops[i]));
            }
            ORRERY_ASSERT(tasks_of[rank].size() == ops_of[rank].size());
        }
        require_matches();
        graph.freeze();
        require_order();
    }

  private:
    struct CollectiveCall {
        TaskId task;
        std::vector<bool> came;
        std::uint32_t missing = 0;
    };
    struct Channel {
        std::deque<TaskId> sends, receives;
    };

    struct Ratios {  ///< times on a device over those on the recorded one
        std::vector<double> of_work;
        double of_product = 1, of_stream = 1;
    };
    std::vector<bool> is_product_;  ///< by name, of kernels whose work is not known

    // Nodes of several groups may still be equal.
    [[nodiscard]] bool unlike() const {
        return std::any_of(nodes_.begin(), nodes_.end(), [&](const ReplayNode& node) {
            return node.now != nodes_[0].now || node.device->flops_bf16.value != nodes_[0].device->flops_bf16.value ||
                   node.device->memory_bandwidth.value != nodes_[0].device->memory_bandwidth.value;
        });
    }
    [[nodiscard]] std::uint32_t node_of(std::uint32_t rank) const { return fabric_.group_of(placement_.gpu(rank)); }

    [[nodiscard]] bool simulated(const ReplayOp& op) const {
        const bool network = op.kind == ReplayKind::collective || op.kind == ReplayKind::send;
        return network &&
               (spec_.communication == ReplayCommunication::simulated || op.duration_s == ReplayOp::kUnknown);
    }

    [[nodiscard]] bool moves_memory(const ReplayOp& op) const {
        return op.work != ReplayOp::kNone && is_memory_work(trace_.works[op.work]);
    }

    void choose_ranks() {
        needs_network = std::any_of(trace_.ops.begin(), trace_.ops.end(),
                                    [&](const ReplayOp& op) { return simulated(op) || moves_memory(op); });
        const auto wanted = static_cast<std::uint32_t>(spec_.ranks);
        if (!trace_.same_program && wanted != 0 && wanted != trace_.ranks) {
            refuse(spec_,
                   fmt::format("holds programs of {} ranks of their own; replay.ranks {} needs one that all share",
                               trace_.ranks, wanted),
                   ErrorCode::contradiction);
        }
        job_ = wanted != 0 ? wanted : trace_.ranks;
        ORRERY_ASSERT(job_ >= 1 && nodes_.size() == ratios_.size());
        // Equal programs that never meet take equally long: one stands for all.
        ranks = trace_.same_program && !needs_network && !unlike() ? 1 : job_;
        if (ranks > placement_.gpus()) {
            throw InfeasibleError(fmt::format("{} ranks, but the cluster has {} GPUs", ranks, placement_.gpus()),
                                  ErrorCode::too_few_gpus);
        }
        const double tasks = static_cast<double>(trace_.ops.size()) * (trace_.same_program ? ranks : 1);
        if (tasks > kMostTasks) {
            throw InfeasibleError(
                fmt::format("{:.3g} operations; the limit is {:.3g}: replay fewer ranks", tasks, kMostTasks));
        }
    }

    void assign_operations() {
        ops_of.resize(ranks);
        local_.resize(trace_.ops.size());
        for (std::uint32_t i = 0; i < trace_.ops.size(); ++i) {
            for (std::uint32_t rank = 0; rank < (trace_.same_program ? ranks : 0); ++rank) {
                ops_of[rank].push_back(i);
            }
            if (!trace_.same_program) {
                ORRERY_ASSERT(trace_.ops[i].rank < ranks);
                ops_of[trace_.ops[i].rank].push_back(i);
            }
        }
    }

    [[nodiscard]] Task task_of(std::uint32_t rank, const ReplayOp& op, Category category) const {
        Task task;
        task.rank = rank;
        task.name = names_[op.name];
        task.stream = static_cast<std::uint8_t>(std::min<std::uint32_t>(op.lane, 255));
        task.category = category;
        return task;
    }

    [[nodiscard]] double scaled(std::uint32_t rank, const ReplayOp& op) const {
        if (op.work != ReplayOp::kNone && on_cores_[op.work] >= 0) {
            return on_cores_[op.work];
        }
        if (op.kind == ReplayKind::host) {
            return std::max(0.0, op.duration_s) / spec_.host_speed;
        }
        const DeviceSpec& device = *nodes_[node_of(rank)].device;
        // Without a time, the device's roofline over what the record says of work and traffic.
        const double seconds = op.duration_s != ReplayOp::kUnknown ? op.duration_s
                                                                   : std::max(op.flops / device.flops_bf16.value,
                                                                              op.bytes / device.memory_bandwidth.value);
        const bool elsewhere = has_another_device() && op.kind == ReplayKind::kernel && op.duration_s >= 0;
        return seconds * (elsewhere ? times_as_long(ratios_[node_of(rank)], op) : 1) / spec_.kernel_speed;
    }

    [[nodiscard]] double times_as_long(const Ratios& ratios, const ReplayOp& op) const {
        ORRERY_ASSERT(op.work == ReplayOp::kNone || op.work < ratios.of_work.size());
        ORRERY_ASSERT(is_product_.size() == trace_.names.size());
        return op.work != ReplayOp::kNone ? ratios.of_work[op.work]
               : is_product_[op.name]     ? ratios.of_product
                                          : ratios.of_stream;
    }

    // What an operation of this rank waits for, with its lag as a task of its own where others have to wait too.
    void wait(std::uint32_t rank, const ReplayOp& op, TaskId task, bool own_lag) {
        TaskId before = task;
        if (own_lag && op.lag_s > 0) {
            Task lag = task_of(rank, op, Category::overhead);
            lag.name = lag_;
            lag.duration = SimTime::from_seconds(op.lag_s / spec_.host_speed);
            before = graph.add(lag);
            ORRERY_ASSERT(task < before);  // made after its operation, which others may wait for already
            graph.add_edge(before, task);
        }
        for (std::uint32_t k = 0; k < op.after_count; ++k) {
            graph.add_edge(tasks_of[rank][local_[trace_.after[op.first_after + k]]], before);
        }
    }

    TaskId move_bytes(std::uint32_t rank, const ReplayOp& op) {
        ORRERY_ASSERT(memory_ != nullptr);  // made where any operation moves memory
        const MemoryMove move = move_of(*memory_, placement_.gpu(rank), trace_.works[op.work]);
        Task task = task_of(rank, op, op.kind == ReplayKind::host ? Category::overhead : Category::forward);
        task.duration = SimTime::from_seconds(move.hop.latency + op.lag_s / spec_.host_speed);
        const TaskId id = graph.add_activity(task, graph.add_demands(move.hop.demands), move.bytes);
        wait(rank, op, id, false);
        return id;
    }

    TaskId lower(std::uint32_t rank, const ReplayOp& op) {
        if (moves_memory(op)) {
            return move_bytes(rank, op);
        }
        switch (op.kind) {
            case ReplayKind::collective:
                if (!includes_lag(op)) {
                    return join(rank, op);
                }
                break;
            case ReplayKind::send:
                return send(rank, op);
            case ReplayKind::recv:
                return receive(rank, op);
            default:
                break;
        }
        const Category category = op.kind == ReplayKind::host         ? Category::overhead
                                  : op.kind == ReplayKind::collective ? Category::data_communication
                                                                      : Category::forward;
        Task task = task_of(rank, op, category);
        const double seconds = op.kind == ReplayKind::collective ? op.duration_s : scaled(rank, op);
        task.duration = SimTime::from_seconds(seconds + op.lag_s / spec_.host_speed);
        const TaskId id = graph.add(task);
        wait(rank, op, id, false);
        return id;
    }

    [[nodiscard]] std::vector<std::uint32_t> members_of(std::uint32_t rank, const ReplayOp& op) const {
        const ReplayGroup& group = trace_.groups[op.group];
        if (!group.members.empty()) {
            return group.members;
        }
        const std::uint64_t recorded = static_cast<std::uint64_t>(group.size) * group.stride;
        // A group that spread over the whole recorded job spreads over the whole replayed one.
        const std::uint64_t size = recorded == trace_.ranks ? job_ / group.stride : group.size;
        const std::uint64_t block = size * group.stride;
        if (block == 0 || ranks % block != 0) {
            throw InfeasibleError(
                fmt::format("a group of {} ranks at distance {} does not divide {} ranks", size, group.stride, ranks),
                ErrorCode::does_not_divide);
        }
        std::vector<std::uint32_t> out;
        const std::uint64_t first = rank / block * block + rank % group.stride;
        ORRERY_ASSERT(rank >= first && rank - first < block && (rank - first) % group.stride == 0);  // a member itself
        for (std::uint64_t i = 0; i < size; ++i) {
            out.push_back(static_cast<std::uint32_t>(first + i * group.stride));
        }
        return out;
    }

    // The n-th collective that a rank has with a group is the n-th of the other members too.
    TaskId join(std::uint32_t rank, const ReplayOp& op) {
        const std::vector<std::uint32_t> members = members_of(rank, op);
        const std::pair<std::uint32_t, std::uint32_t> group{op.group, members.front()};
        const std::uint32_t turn = turns_[{group, rank}]++;
        auto [entry, fresh] = collective_calls_.try_emplace({group, turn});
        CollectiveCall& call = entry->second;
        if (fresh) {
            call.came.assign(members.size(), false);
            call.missing = static_cast<std::uint32_t>(members.size());
            call.task = simulated(op) ? simulate_collective(rank, op, members) : recorded_collective(rank, op);
        }
        ORRERY_ASSERT(call.came.size() == members.size() && call.missing <= members.size());
        const auto place = std::find(members.begin(), members.end(), rank);
        if (place == members.end()) {
            refuse(spec_, fmt::format("rank {} takes part in '{}' of a group that it does not belong to", rank,
                                      trace_.names[op.name]));
        }
        if (!call.came[static_cast<std::size_t>(place - members.begin())]) {
            call.came[static_cast<std::size_t>(place - members.begin())] = true;
            ORRERY_ASSERT(call.missing > 0);
            --call.missing;
        }
        wait(rank, op, call.task, true);
        return call.task;
    }

    TaskId recorded_collective(std::uint32_t rank, const ReplayOp& op) {
        Task task = task_of(rank, op, Category::data_communication);
        task.duration = SimTime::from_seconds(op.duration_s);
        return graph.add(task);
    }

    TaskId simulate_collective(std::uint32_t rank, const ReplayOp& op, const std::vector<std::uint32_t>& members) {
        if (op.bytes <= 0) {
            refuse(
                spec_,
                fmt::format("does not say how many bytes '{}' moves: it can only be replayed as recorded{}",
                            trace_.names[op.name],
                            op.collective == CollectiveOp::send_recv ? "" : ", or imported again with --assume-bytes"));
        }
        Task task = task_of(rank, op, Category::data_communication);
        if (members.size() < 2) {
            return graph.add(task);
        }
        std::vector<GpuId> gpus;
        for (const std::uint32_t member : members) {
            gpus.push_back(placement_.gpu(member));
        }
        GroupTransfer slowest;
        std::vector<const CollectiveModel*> tried;
        for (const std::uint32_t member : members) {
            const CollectiveModel* library = nodes_[node_of(member)].collectives;
            if (std::find(tried.begin(), tried.end(), library) != tried.end()) {
                continue;
            }
            tried.push_back(library);
            GroupTransfer one = make_transfer(fabric_, *library, op.collective, gpus, Bytes(op.bytes), paths_);
            if (tried.size() == 1 || seconds_alone(fabric_, slowest) < seconds_alone(fabric_, one)) {
                slowest = std::move(one);
            }
        }
        ORRERY_ASSERT(!tried.empty());
        return add_activity(task, slowest);
    }

    TaskId add_activity(Task task, const GroupTransfer& planned) {
        task.duration = SimTime::from_seconds(planned.latency_before(routes_flows_).value());
        const std::uint32_t demands = graph.add_demands(planned.demands, ResourceModel::kUnbounded, planned.flows);
        return graph.add_activity(task, demands, planned.bytes.value());
    }

    TaskId send(std::uint32_t rank, const ReplayOp& op) {
        if (trace_.same_program) {
            refuse(spec_, "sends and receives need a program for each rank");
        }
        Task task = task_of(rank, op, Category::pipeline_communication);
        TaskId id;
        if (simulated(op) && op.peer != rank) {
            id = add_activity(task, make_send(fabric_, *nodes_[node_of(rank)].collectives, placement_.gpu(rank),
                                              placement_.gpu(op.peer), Bytes(std::max(1.0, op.bytes)), paths_, op.tag));
        } else {
            task.duration = SimTime::from_seconds(std::max(0.0, op.duration_s));
            id = graph.add(task);
        }
        wait(rank, op, id, true);
        Channel& channel = channels_[{rank, op.peer, op.tag}];
        ORRERY_ASSERT(channel.sends.empty() || channel.receives.empty());  // or a pair would wait unmatched
        if (channel.receives.empty()) {
            channel.sends.push_back(id);
        } else {
            graph.add_edge(id, channel.receives.front());
            channel.receives.pop_front();
        }
        return id;
    }

    // A receive ends when its message is there and it has been posted.
    TaskId receive(std::uint32_t rank, const ReplayOp& op) {
        if (trace_.same_program) {
            refuse(spec_, "sends and receives need a program for each rank");
        }
        const TaskId id = graph.add(task_of(rank, op, Category::pipeline_communication));
        wait(rank, op, id, true);
        Channel& channel = channels_[{op.peer, rank, op.tag}];
        ORRERY_ASSERT(channel.sends.empty() || channel.receives.empty());
        if (channel.sends.empty()) {
            channel.receives.push_back(id);
        } else {
            graph.add_edge(channel.sends.front(), id);
            channel.sends.pop_front();
        }
        return id;
    }

    void require_matches() const {
        for (const auto& [key, call] : collective_calls_) {
            if (call.missing > 0) {
                refuse(spec_, fmt::format("{} of {} ranks never come to '{}' (group {}, turn {})", call.missing,
                                          call.came.size(), graph.name_of(call.task), key.first.first, key.second));
            }
        }
        for (const auto& [key, channel] : channels_) {
            const auto& [from, to, tag] = key;
            if (!channel.sends.empty() || !channel.receives.empty()) {
                refuse(spec_, fmt::format("{} from rank {} to rank {} with tag {} has no {}",
                                          channel.sends.empty() ? "a receive" : "a message", from, to, tag,
                                          channel.sends.empty() ? "message" : "receive"));
            }
        }
    }

    // Ranks that wait for each other would do so for ever.
    void require_order() const {
        std::vector<std::uint32_t> waits = graph.predecessor_counts();
        std::vector<std::uint32_t> ready;
        for (std::uint32_t id = 0; id < waits.size(); ++id) {
            if (waits[id] == 0) {
                ready.push_back(id);
            }
        }
        for (std::size_t i = 0; i < ready.size(); ++i) {
            graph.for_successors(TaskId(ready[i]), [&](std::uint32_t next) {
                if (--waits[next] == 0) {
                    ready.push_back(next);
                }
            });
        }
        ORRERY_ASSERT(ready.size() <= waits.size());  // no task comes free twice
        if (ready.size() < waits.size()) {
            fail_circle(circle_of(waits));
        }
    }

    // Some circle among the tasks that still wait, each after the one before it. Each of them waits for another of them, so
    // that going back ends in one.
    [[nodiscard]] std::vector<std::uint32_t> circle_of(const std::vector<std::uint32_t>& waits) const {
        std::vector<std::uint32_t> before(waits.size(), ReplayOp::kNone);
        std::uint32_t at = 0;
        for (std::uint32_t id = 0; id < waits.size(); ++id) {
            graph.for_successors(TaskId(id), [&](std::uint32_t next) {
                if (waits[id] > 0 && waits[next] > 0) {
                    before[next] = at = id;
                }
            });
        }
        std::vector<bool> seen(waits.size(), false);
        for (at = before[at]; !seen[at]; at = before[at]) {
            ORRERY_ASSERT(before[at] != ReplayOp::kNone);
            seen[at] = true;
        }
        std::vector<std::uint32_t> circle = {at};
        for (std::uint32_t id = before[at]; id != at; id = before[id]) {
            circle.push_back(id);
        }
        ORRERY_ASSERT(circle.size() <= waits.size());
        std::reverse(circle.begin(), circle.end());
        return circle;
    }

    struct Place {
        std::uint32_t rank;
        std::uint32_t op;
    };

    [[nodiscard]] std::string text_of(const Place& place) const {
        const std::string where = trace_.lines.empty() ? fmt::format("operation {}", place.op)
                                                       : fmt::format("line {}", trace_.lines[place.op]);
        return fmt::format("'{}' of rank {} ({})", trace_.names[trace_.ops[place.op].name], place.rank, where);
    }

    // Of two tasks of a circle, the operations of one rank that stand for them, or those that a message connects.
    [[nodiscard]] std::pair<Place, Place> link_of(const std::vector<Place>& first,
                                                  const std::vector<Place>& second) const {
        for (const Place& b : second) {
            const ReplayOp& op = trace_.ops[b.op];
            for (const Place& a : first) {
                const auto waits = trace_.after.begin() + op.first_after;
                if (a.rank == b.rank && std::find(waits, waits + op.after_count, a.op) != waits + op.after_count) {
                    return {a, b};
                }
            }
        }
        return {first.front(), second.front()};
    }

    [[noreturn]] void fail_circle(const std::vector<std::uint32_t>& circle) const {
        constexpr std::size_t kShown = 8;
        std::map<std::uint32_t, std::vector<Place>> places;
        for (const std::uint32_t id : circle) {
            places[id];
        }
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
            for (std::size_t i = 0; i < tasks_of[rank].size(); ++i) {
                if (const auto found = places.find(tasks_of[rank][i].value()); found != places.end()) {
                    found->second.push_back({rank, ops_of[rank][i]});
                }
            }
        }
        std::vector<const std::vector<Place>*> steps;  // without lags, which are no operations
        for (const std::uint32_t id : circle) {
            if (!places.at(id).empty()) {
                steps.push_back(&places.at(id));
            }
        }
        ORRERY_ASSERT(!steps.empty());  // lags alone wait for nothing
        std::set<std::uint32_t> waiting;
        std::string links;
        int line = 0;
        for (std::size_t i = 0; i < steps.size(); ++i) {
            const auto [before, after] = link_of(*steps[i], *steps[(i + 1) % steps.size()]);
            waiting.insert(after.rank);
            line = line == 0 && !trace_.lines.empty() ? static_cast<int>(trace_.lines[after.op]) : line;
            if (i < kShown) {
                links += fmt::format("{}{} waits for {}", i == 0 ? "" : "; ", text_of(after), text_of(before));
            }
        }
        links += steps.size() > kShown ? fmt::format("; and {} more", steps.size() - kShown) : "";
        throw ConfigError({Diagnostic{
            spec_.trace, line, line > 0 ? 1 : 0,
            fmt::format("{} in a circle: {}",
                        waiting.size() == 1 ? fmt::format("rank {} waits for itself", *waiting.begin())
                                            : fmt::format("ranks {} wait for each other", fmt::join(waiting, ", ")),
                        links),
            ErrorCode::malformed_trace}});
    }

    const ReplayTrace& trace_;
    const ReplaySpec& spec_;
    std::vector<ReplayNode> nodes_;  ///< by group of the fabric
    std::vector<Ratios> ratios_;     ///< the same
    const Fabric& fabric_;
    const Placement& placement_;
    PathChoice paths_;
    bool routes_flows_;
    const NodeMemory* memory_ = nullptr;
    std::vector<double> on_cores_;  ///< by work: s; -1: it runs elsewhere
    std::uint32_t job_ = 1;
    std::vector<std::uint16_t> names_;
    std::uint16_t lag_ = 0;
    std::vector<std::uint32_t> local_;  ///< place of an operation among those of the rank in work
    std::map<std::pair<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t>, std::uint32_t> turns_;
    std::map<std::pair<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t>, CollectiveCall> collective_calls_;
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, Channel> channels_;
};

namespace {

// Where a rank's time goes: of what runs at the same time, device work counts before communication before host calls.
template <class Lowering>
void book(const ReplayTrace& trace, const ReplaySpec& spec, const Lowering& lowered, const Executor& executor,
          SimTime end, ReplayResult& result) {
    struct Edge {
        SimTime at;
        int kind;  ///< 0 device, 1 communication, 2 host
        int step;
    };
    const std::uint32_t shown = std::min(lowered.ranks, kShownRanks);
    for (std::uint32_t rank = 0; rank < shown; ++rank) {
        std::vector<Edge> edges;
        for (std::size_t i = 0; i < lowered.ops_of[rank].size(); ++i) {
            const ReplayOp& op = trace.ops[lowered.ops_of[rank][i]];
            const TaskId id = lowered.tasks_of[rank][i];
            const bool device = op.kind == ReplayKind::kernel || op.kind == ReplayKind::copy;
            const int kind = device ? 0 : op.kind == ReplayKind::host ? 2 : 1;
            // The lag in front of an operation is waiting, not work.
            const SimTime lag =
                lowered.includes_lag(op) ? SimTime::from_seconds(op.lag_s / spec.host_speed) : SimTime();
            edges.push_back({std::min(executor.end_of(id), executor.start_of(id) + lag), kind, 1});
            edges.push_back({executor.end_of(id), kind, -1});
        }
        std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) { return a.at < b.at; });
        ORRERY_ASSERT(edges.size() == 2 * lowered.ops_of[rank].size());
        std::array<int, 3> running{};
        std::array<double*, 3> booked = {&result.device_s, &result.exposed_communication_s, &result.host_s};
        SimTime at;
        for (const Edge& edge : edges) {
            const double seconds = (edge.at - at).seconds();
            const auto busy = std::find_if(running.begin(), running.end(), [](int count) { return count > 0; });
            (busy == running.end() ? result.idle_s : *booked[static_cast<std::size_t>(busy - running.begin())]) +=
                seconds;
            running[static_cast<std::size_t>(edge.kind)] += edge.step;
            at = edge.at;
        }
        ORRERY_ASSERT(at <= end);  // the last operation ends the run
        ORRERY_ASSERT(std::all_of(running.begin(), running.end(), [](int count) { return count == 0; }));
        result.idle_s += (end - at).seconds();
    }
    for (double* seconds : {&result.device_s, &result.exposed_communication_s, &result.host_s, &result.idle_s}) {
        *seconds /= shown;
    }
    // Every instant of every rank is booked once.
    const double booked = result.device_s + result.exposed_communication_s + result.host_s + result.idle_s;
    ORRERY_ASSERT(std::abs(booked - end.seconds()) <= 1e-9 * end.seconds() + 1e-9);
}

template <class Lowering>
std::vector<ReplayBlame> blame(const ReplayTrace& trace, const ReplaySpec& spec, const Lowering& lowered,
                               const Executor& executor, SimTime end) {
    std::vector<std::uint32_t> op_of(lowered.graph.size(), ReplayOp::kNone);  // lags of their own have none
    TaskId at;
    for (std::uint32_t rank = 0; rank < lowered.ranks; ++rank) {
        for (std::size_t i = 0; i < lowered.ops_of[rank].size(); ++i) {
            const TaskId id = lowered.tasks_of[rank][i];
            op_of[id.value()] = lowered.ops_of[rank][i];
            if (!at.valid() && executor.end_of(id) == end) {
                at = id;
            }
        }
    }
    std::map<std::array<std::string, 3>, double> sums;
    while (at.valid()) {
        const std::uint32_t index = op_of[at.value()];
        const std::uint32_t place = index != ReplayOp::kNone ? trace.ops[index].lane : lowered.graph.task(at).stream;
        ORRERY_ASSERT(place < trace.lanes.size());
        const std::string& lane = trace.lanes[place];
        const double seconds = (executor.end_of(at) - executor.start_of(at)).seconds();
        double lag = seconds;
        if (index != ReplayOp::kNone) {
            const ReplayOp& op = trace.ops[index];
            lag = lowered.includes_lag(op) ? std::min(seconds, op.lag_s / spec.host_speed) : 0;
            sums[{replay_kind_names()[static_cast<std::size_t>(op.kind)], lane, trace.names[op.name]}] += seconds - lag;
        }
        ORRERY_ASSERT(lag >= 0 && lag <= seconds);
        sums[{"lag", lane, lowered.graph.name_of(at)}] += lag;
        const TaskId before = executor.released_by(at);
        const SimTime since = before.valid() ? executor.end_of(before) : SimTime();
        ORRERY_ASSERT(executor.start_of(at) >= since);  // it waited for the one before
        if (executor.start_of(at) > since) {
            sums[{"grouped completions", lane, ""}] += (executor.start_of(at) - since).seconds();
        }
        at = before;
    }
    std::vector<ReplayBlame> out;
    for (const auto& [key, seconds] : sums) {
        if (seconds > 0) {
            out.push_back({key[0], key[1], key[2], seconds});
        }
    }
    std::stable_sort(out.begin(), out.end(),
                     [](const ReplayBlame& a, const ReplayBlame& b) { return a.seconds > b.seconds; });
    return out;
}

template <class Lowering>
Timeline draw(const ReplayTrace& trace, const Lowering& lowered, const Executor& executor) {
    Timeline timeline;
    for (std::uint32_t lane = 0; lane < trace.lanes.size(); ++lane) {
        timeline.threads.emplace_back(lane, trace.lanes[lane]);
    }
    const auto us = [](SimTime time) { return static_cast<double>(time.ps()) * 1e-6; };
    for (std::uint32_t rank = 0; rank < std::min(lowered.ranks, kShownRanks); ++rank) {
        timeline.processes.emplace_back(rank, fmt::format("rank {}", rank));
        for (std::size_t i = 0; i < lowered.ops_of[rank].size(); ++i) {
            const ReplayOp& op = trace.ops[lowered.ops_of[rank][i]];
            const TaskId id = lowered.tasks_of[rank][i];
            timeline.spans.push_back(Span{trace.names[op.name], replay_kind_names()[static_cast<std::size_t>(op.kind)],
                                          rank, op.lane, us(executor.start_of(id)),
                                          us(executor.end_of(id) - executor.start_of(id))});
            if (op.bytes > 0) {
                timeline.spans.back().arguments.emplace_back("bytes", op.bytes);
            }
        }
    }
    return timeline;
}

}  // namespace

void describe(Fields& fields, ReplaySpec& spec) {
    fields.integer({"ranks", "ranks that run the recorded program; 0: as many as were recorded", false, 0, 1 << 20},
                   spec.ranks);
    fields.enumeration({"communication", "recorded: as long as it took; simulated: on this cluster's network"},
                       {"recorded", "simulated"}, spec.communication);
    fields.number({"kernel_speed", "kernels and copies run this many times as fast", false, 1e-3, 1e3},
                  spec.kernel_speed);
    fields.table(
        {"recorded_on", "device that the trace was recorded on; kernels are rescaled where the cluster has another"},
        {"models/data/devices", ".yaml"}, spec.recorded_on);
    fields.number({"host_speed", "host calls and gaps are this many times as fast", false, 1e-3, 1e3}, spec.host_speed);
}

ReplayRun::ReplayRun(const ReplayTrace& trace, const ReplaySpec& spec, std::vector<ReplayNode> nodes,
                     const Placement& placement, PathChoice paths, Simulation& simulation, SimTime start,
                     const ReplayDevices& devices)
    : trace_(trace), spec_(spec) {
    if (trace.ops.empty()) {
        refuse(spec, "holds no operation");
    }
    lowered_ = std::make_unique<Lowering>(trace, spec, std::move(nodes), *simulation.fabric(), placement, paths,
                                          simulation.by_packet());
    if (devices.recorded != nullptr) {
        lowered_->reprice(*devices.recorded);
    }
    memory_ = memory_of(trace, spec, devices.host, simulation);
    lowered_->use(memory_.get(), core_seconds(trace, devices));
    lowered_->run();
    ORRERY_ASSERT(lowered_->tasks_of.size() == lowered_->ranks && lowered_->ops_of.size() == lowered_->ranks);
    executor_ = &simulation.add(lowered_->graph, start);
}

ReplayRun::~ReplayRun() = default;

ReplayResult ReplayRun::result(bool timeline) const {
    const SimTime end = executor_->finished_at();
    ReplayResult result;
    result.seconds = end.seconds();
    result.recorded_s = trace_.recorded_s;
    result.ranks = lowered_->ranks;
    result.tasks = lowered_->graph.size();
    result.repriced = lowered_->repriced;
    result.unchanged =
        !lowered_->needs_network && spec_.kernel_speed == 1 && spec_.host_speed == 1 && !lowered_->has_another_device();
    book(trace_, spec_, *lowered_, *executor_, end, result);
    result.critical_path = blame(trace_, spec_, *lowered_, *executor_, end);
    if (timeline) {
        result.timeline = draw(trace_, *lowered_, *executor_);
    }
    return result;
}

}  // namespace orrery::replay
