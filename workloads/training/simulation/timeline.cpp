#include "workloads/training/simulation/timeline.hpp"

#include "sim/network/resource_kind.hpp"
#include "workloads/training/features/offload.hpp"
#include "workloads/training/lowering/lowering.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

namespace orrery::training {

namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;

double us(SimTime time) {
    return static_cast<double>(time.ps()) * 1e-6;
}

// Changes of a value over time as the points of a counter.
class Changes {
  public:
    void add(double at_us, double by) { by_[at_us] += by; }
    void add_to(Timeline& timeline, const std::string& name, std::uint32_t process, double scale, double base) const {
        double now = 0;
        double drawn = -1;
        for (const auto& [at, by] : by_) {
            now += by;
            // Sums of rates end at a rounding of zero.
            const double value = base + std::max(0.0, std::round(now * scale * 1e6) / 1e6);
            if (value != drawn) {
                timeline.counters.push_back(CounterPoint{name, process, at, value});
                drawn = value;
            }
        }
    }
    [[nodiscard]] double most() const {
        double now = 0;
        double most = 0;
        for (const auto& [at, by] : by_) {
            now += by;
            most = std::max(most, now);
        }
        return most;
    }

  private:
    std::map<double, double> by_;
};

class IterationDrawing {
  public:
    IterationDrawing(const TrainingInput& input, const TrainingGraph& lowered, const Executor& executor,
                     const std::vector<MemoryUse>& memory, std::uint32_t ranks)
        : in_(input), lowered_(lowered), executor_(executor), memory_(memory), left_(lowered.stages) {
        const std::uint32_t per_stage = lowered.ranks_per_stage;
        // As many ranks of each stage as fit, so that every stage is seen.
        const std::uint32_t shown = std::max(1U, std::min(per_stage, ranks / std::max(1U, lowered.stages)));
        for (std::uint32_t i = 0; i < lowered.ranks.size(); ++i) {
            const std::uint32_t rank = lowered.ranks[i];
            if (i % per_stage < shown) {
                drawn_[rank] = {i / per_stage, i % per_stage == 0};
                out_.processes.emplace_back(rank, fmt::format("rank {} (stage {})", rank, i / per_stage));
                find_ends(lowered.stream(i));
            }
        }
        out_.threads = {{0, "compute"}, {1, "send"}, {2, "gather"}, {3, "reduce"}, {4, "host"}};
        std::fill(left_.begin(), left_.end(), kMostExchanges / lowered.stages);
    }

    Timeline draw() {
        for (std::uint32_t i = 0; i < lowered_.graph.size(); ++i) {
            const TaskId id(i);
            const auto rank = drawn_.find(lowered_.graph.task(id).rank);
            if (rank != drawn_.end() && executor_.end_of(id) > executor_.start_of(id)) {
                add_task(id, rank->second);
            }
        }
        add_memory();
        add_links();
        return std::move(out_);
    }

  private:
    struct Drawn {
        std::uint32_t stage = 0;
        bool first = false;  ///< of its stage
    };

    // A pass whose exchanges are activities has ended where a task of no length behind it says so.
    void find_ends(const std::vector<TaskId>& stream) {
        TaskId pass;
        for (const TaskId id : stream) {
            const Task task = lowered_.graph.task(id);
            const Price& price = lowered_.prices[lowered_.price_of(id)];
            const bool mark = task.category != Category::overhead && price.total() == 0 && price.launches == 0;
            if (!mark) {
                pass = id;
            } else if (task.category != Category::other && pass.valid()) {
                ends_[pass.value()] = executor_.end_of(id);
            }
        }
    }
    [[nodiscard]] SimTime end_of(TaskId pass) const {
        const auto found = ends_.find(pass.value());
        return found == ends_.end() ? executor_.end_of(pass) : found->second;
    }

    void add_task(TaskId id, const Drawn& rank) {
        const Task task = lowered_.graph.task(id);
        if (task.stream >= kStreamCount) {
            return;  // exchanges are drawn as parts of their passes
        }
        const TaskLabel& label = lowered_.labels[task.label];
        Span span{lowered_.graph.name_of(id),
                  category_name(task.category),
                  task.rank,
                  task.stream,
                  us(executor_.start_of(id)),
                  us(end_of(id) - executor_.start_of(id)),
                  {{"stage", rank.stage}}};
        const auto add = [&](const char* name, std::int64_t value, bool known) {
            if (known) {
                span.arguments.emplace_back(name, static_cast<double>(value));
            }
        };
        const bool pass = label.pass && task.stream == kComputeStream && task.category != Category::data_communication;
        add("micro-batch", label.micro_batch, label.micro_batch >= 0);
        add("chunk", label.chunk, label.chunk >= 0);
        add("first layer", label.layer, label.layers > 0);
        add("layers", label.layers, label.layers > 0);
        add("layers of the encoder", label.encoder, label.encoder > 0);
        add("tokens", in_.plan.micro_batch * in_.model.sequence / in_.plan.context, pass);
        if (task.activity != Task::kNoActivity) {
            span.arguments.emplace_back("bytes", lowered_.graph.activity(id).amount);
        }
        out_.spans.push_back(std::move(span));
        name_stream(task.stream);
        if (pass) {
            hold(id, label);
            if (rank.first && (label.layers > 0 || label.encoder > 0 || label.projector)) {
                add_parts(id, label, rank.stage);
            }
        }
        if (task.category == Category::pipeline_communication) {
            add_arrows(id);
        }
    }

    void add_thread(std::uint32_t stream, const char* name) {
        const auto known = [&](const auto& thread) { return thread.first == stream; };
        if (std::none_of(out_.threads.begin(), out_.threads.end(), known)) {
            out_.threads.emplace_back(stream, name);
        }
    }
    void name_stream(std::uint8_t stream) {
        for (const auto& [known, name] : {std::pair<std::uint8_t, const char*>{kVocabularyStream, "vocabulary"},
                                          {kFetchStream, "fetch"},
                                          {kStoreStream, "store"},
                                          {kLoadStream, "drives to DRAM"},
                                          {kWriteBackStream, "DRAM to drives"},
                                          {kStateLoadStream, "states to DRAM"},
                                          {kUpdateStream, "update on host"},
                                          {kStateWriteBackStream, "states to drives"},
                                          {kUploadStream, "weights to device"}}) {
            if (known == stream) {
                add_thread(known, name);
            }
        }
    }

    void add_arrows(TaskId id) {
        const Task task = lowered_.graph.task(id);
        lowered_.graph.for_successors(id, [&](std::uint32_t next) {
            const Task receiver = lowered_.graph.task(TaskId(next));
            if (receiver.rank != task.rank && drawn_.count(receiver.rank) > 0) {
                out_.arrows.push_back(FlowArrow{task.rank, task.stream, us(executor_.start_of(id)), receiver.rank,
                                                receiver.stream, us(executor_.start_of(TaskId(next)))});
            }
        });
    }

    /// What a layer's program exchanges and computes in a pass, and how long it takes.
    struct Parts {
        std::vector<std::pair<PassOperation, PlayedOperation>> exchanges, kernels;
        double seconds = 0;
    };
    /// A stretch of a pass that is drawn.
    struct Stretch {
        const Parts* parts;
        double layer;         ///< of the model or its encoder; -1: none
        const char* of = "";  ///< what is before the names of its operations
    };
    const Parts& parts_of(LayerKind kind, PassWork work) {
        return parts_of(kind.index(), cost().program(kind, work), work);
    }
    const Parts& parts_of(EncoderPart part, PassWork work) {
        return parts_of(LayerKind::kCount + static_cast<std::size_t>(part), cost().encoder_program(part, work), work);
    }
    const Parts& parts_of(std::size_t index, const PassProgram& program, PassWork work) {
        const auto [found, added] = parts_.try_emplace({index, work});
        if (added) {
            const std::vector<PlayedOperation> played = program.play();
            for (std::size_t i = 0; i < played.size(); ++i) {
                const PassOperation& operation = program.operations()[i];
                found->second.seconds = std::max(found->second.seconds, played[i].end);
                if (played[i].end > played[i].start) {
                    (operation.stream == PassStream::compute ? found->second.kernels : found->second.exchanges)
                        .emplace_back(operation, played[i]);
                }
            }
        }
        return found->second;
    }

    // Layer by layer between what stands at the ends of the pass. All micro-batches run the same kernels: those of the first are
    // drawn.
    void add_parts(TaskId id, const TaskLabel& label, std::uint32_t stage) {
        const bool backward = label.work != PassWork::forward;
        const bool kernels = label.micro_batch == 0;
        std::vector<Stretch> layers;
        for (std::uint32_t i = 0; i < label.layers; ++i) {
            const std::uint32_t layer = static_cast<std::uint32_t>(label.layer) + (backward ? label.layers - 1 - i : i);
            layers.push_back({&parts_of(in_.model.kind_of(layer), label.work), static_cast<double>(layer)});
        }
        const std::vector<Stretch> encoder = encoder_of(label);
        // The first of the layers, behind which or before which the tables are.
        const std::size_t first = backward ? 0 : encoder.size();
        const std::size_t last = first + layers.size();
        layers.insert(backward ? layers.end() : layers.begin(), encoder.begin(), encoder.end());
        double whole = 0;
        std::size_t count = 0;
        for (const Stretch& stretch : layers) {
            whole += stretch.parts->seconds;
            count += stretch.parts->exchanges.size() + (kernels ? stretch.parts->kernels.size() : 0);
        }
        if (count == 0 || count > left_[stage]) {
            left_[stage] = count == 0 ? left_[stage] : 0;  // no later pass either: what is drawn has no holes
            return;
        }
        left_[stage] -= count;
        const auto [before, after] = ends_of(label);
        const double took = (end_of(id) - executor_.start_of(id)).seconds();
        // The device waits for its host before the first of them.
        const std::uint32_t price = lowered_.price_of(id);
        const double priced = ends_.count(id.value()) > 0        ? took
                              : price == TrainingGraph::kNoPrice ? 0
                                                                 : lowered_.prices[price].total();
        const double idle = std::max(0.0, priced - before - whole - after);
        const double stretch = std::max(0.0, took - idle - before - after) / whole;
        double at = executor_.start_of(id).seconds() + std::min(idle + (first > 0 ? 0 : before), took);
        const Task task = lowered_.graph.task(id);
        for (std::size_t i = 0; i < layers.size(); ++i) {
            at += (i == first && first > 0 ? before : 0) + (i == last ? after : 0);
            const double layer = layers[i].layer;
            const auto draw = [&](const PassOperation& operation, const PlayedOperation& played) {
                const auto stream =
                    static_cast<std::uint32_t>(kStreamCount) + static_cast<std::uint32_t>(operation.stream);
                add_thread(stream, pass_stream_name(operation.stream));
                Span span{std::string(layers[i].of) + operation.name,
                          operation.stream == PassStream::compute ? kKernelCategory : category_name(operation.category),
                          task.rank,
                          stream,
                          (at + played.start * stretch) * 1e6,
                          (played.end - played.start) * stretch * 1e6,
                          {{"stage", stage}, {"micro-batch", static_cast<double>(label.micro_batch)}}};
                if (layer >= 0) {
                    span.arguments.emplace_back("layer", layer);
                }
                out_.spans.push_back(std::move(span));
            };
            const Parts& parts = *layers[i].parts;
            for (const auto& [operation, played] : parts.exchanges) {
                draw(operation, played);
            }
            for (std::size_t k = 0; kernels && k < parts.kernels.size(); ++k) {
                draw(parts.kernels[k].first, parts.kernels[k].second);
            }
            at += parts.seconds * stretch;
        }
    }

    // What a pass runs of the encoder, in order.
    [[nodiscard]] std::vector<Stretch> encoder_of(const TaskLabel& label) {
        std::vector<Stretch> out;
        const char* of = "encoder: ";
        if (label.projector) {
            out.push_back({&parts_of(EncoderPart::patches, label.work), -1, of});
        }
        for (std::uint32_t i = 0; i < label.encoder; ++i) {
            out.push_back({&parts_of(EncoderPart::layer, label.work), static_cast<double>(i), of});
        }
        if (label.projector) {
            out.push_back({&parts_of(EncoderPart::projector, label.work), -1, of});
        }
        if (label.work != PassWork::forward) {
            std::reverse(out.begin(), out.end());
        }
        return out;
    }

    // Seconds of a pass before its first layer and after its last one: tables, and the gather at the boundary.
    [[nodiscard]] std::pair<double, double> ends_of(const TaskLabel& label) {
        const PassCost& cost = this->cost();
        const double boundary = label.boundary ? cost.boundary_gather() : 0;
        const double embedding = !label.embedding                         ? 0
                                 : label.work == PassWork::forward        ? cost.embedding_forward().total()
                                 : label.work == PassWork::input_gradient ? 0
                                                                          : cost.embedding_backward().total();
        const double head = !label.head                               ? 0
                            : label.work == PassWork::forward         ? cost.head_forward().total()
                            : label.work == PassWork::input_gradient  ? cost.head_input_gradient().total()
                            : label.work == PassWork::weight_gradient ? cost.head_weight_gradient().total()
                                                                      : cost.head_backward().total();
        return label.work == PassWork::forward ? std::pair{embedding + boundary, head}
                                               : std::pair{head + boundary, embedding};
    }

    // Of one kind of rank: where others have other devices their passes stretch it.
    const PassCost& cost() {
        if (!cost_) {
            if (in_.groups.empty()) {
                cost_.emplace(in_.model, in_.plan, in_.software, in_.device, in_.gpu, in_.fabric, in_.collectives,
                              in_.paths, in_.priced());
            } else {
                const GpuId first = in_.first_gpu(0, 0);
                const GroupDevice& group = in_.groups[in_.fabric.group_of(first)];
                cost_.emplace(in_.model, in_.plan, in_.software, *group.device, *group.gpu, in_.fabric,
                              *group.collectives, in_.paths, in_.priced());
            }
        }
        return *cost_;
    }

    // Activations of a pass are there from its start until the gradients of its weights are.
    void hold(TaskId id, const TaskLabel& label) {
        const bool ends = label.work == PassWork::backward || label.work == PassWork::weight_gradient;
        const double layers = label.layers + (in_.model.encoder.trained ? label.encoder : 0);
        if (layers > 0 && (ends || label.work == PassWork::forward)) {
            held_[lowered_.graph.task(id).rank].add(us(ends ? end_of(id) : executor_.start_of(id)),
                                                    ends ? -layers : layers);
        }
    }

    void add_memory() {
        if (in_.plan.has<OffloadPlan>()) {
            return;  // activations leave for other memories in between
        }
        for (const auto& [rank, place] : drawn_) {
            const MemoryUse& use = memory_[place.stage];
            const Changes& held = held_[rank];
            const double most = held.most();
            out_.counters.push_back(CounterPoint{"memory, GiB", rank, 0, (use.total() - use.activations) / kGib});
            if (most > 0) {
                held.add_to(out_, "memory, GiB", rank, use.activations / most / kGib,
                            (use.total() - use.activations) / kGib);
            }
        }
    }

    // The busiest link of each kind.
    void add_links() {
        std::map<ResourceId, double> carried;
        const auto each = [&](const auto& one) {
            for (std::uint32_t i = 0; i < lowered_.graph.size(); ++i) {
                const Task task = lowered_.graph.task(TaskId(i));
                if (task.activity == Task::kNoActivity || task.category == Category::other) {
                    continue;  // or between memories of a node
                }
                const TaskGraph::Activity activity = lowered_.graph.activity(TaskId(i));
                for (const Demand& demand : lowered_.graph.demands(activity.demand_set)) {
                    one(TaskId(i), demand.resource, activity.amount * demand.weight);
                }
            }
        };
        each([&](TaskId, ResourceId link, double bytes) { carried[link] += bytes; });
        std::map<std::string, ResourceId> busiest;
        for (const auto& [link, bytes] : carried) {
            const auto [found, added] = busiest.try_emplace(kind_of_resource(in_.fabric.resource_name(link)), link);
            if (!added && bytes > carried[found->second]) {
                found->second = link;
            }
        }
        if (busiest.empty()) {
            return;
        }
        std::map<ResourceId, Changes> rates;
        for (const auto& [kind, link] : busiest) {
            rates[link];
        }
        each([&](TaskId id, ResourceId link, double bytes) {
            const auto found = rates.find(link);
            const double from =
                us(std::min(executor_.start_of(id) + lowered_.graph.task(id).duration, executor_.end_of(id)));
            const double to = us(executor_.end_of(id));
            if (found != rates.end() && to > from) {
                const double rate = bytes * 8e-9 / ((to - from) * 1e-6);
                found->second.add(from, rate);
                found->second.add(to, -rate);
            }
        });
        std::uint32_t process = 0;
        for (const std::uint32_t rank : lowered_.ranks) {
            process = std::max(process, rank + 1);
        }
        out_.processes.emplace_back(process, "busiest links");
        for (const auto& [kind, link] : busiest) {
            rates[link].add_to(out_, in_.fabric.resource_name(link) + ", Gb/s", process, 1, 0);
        }
    }

    const TrainingInput& in_;
    const TrainingGraph& lowered_;
    const Executor& executor_;
    const std::vector<MemoryUse>& memory_;
    std::map<std::uint32_t, Drawn> drawn_;   ///< by rank
    std::map<std::uint32_t, SimTime> ends_;  ///< of passes with exchanges
    std::vector<std::size_t> left_;          ///< by stage: exchanges that may still be drawn
    std::map<std::pair<std::size_t, PassWork>, Parts> parts_;
    std::map<std::uint32_t, Changes> held_;  ///< by rank: layers whose activations are held
    std::optional<PassCost> cost_;
    Timeline out_;
};

}  // namespace

Timeline draw_iteration(const TrainingInput& input, const TrainingGraph& lowered, const Executor& executor,
                        const std::vector<MemoryUse>& memory, std::uint32_t ranks) {
    return IterationDrawing(input, lowered, executor, memory, ranks).draw();
}

}  // namespace orrery::training
