// kind: rl. Steps of reinforcement-learning post-training, whose parts are scenarios of serving and training.

#include "tools/driver/kinds/rl.hpp"

#include "tools/driver/kinds/cluster.hpp"
#include "tools/driver/kinds/pool_place.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "tools/driver/kinds/training.hpp"
#include "tools/driver/kinds/training_input.hpp"

#include "sim/base/text.hpp"
#include "workloads/rl/reshard.hpp"
#include "workloads/rl/rows.hpp"
#include "workloads/rl/steps.hpp"
#include "workloads/training/features/documents.hpp"
#include "workloads/training/features/offload.hpp"
#include "workloads/training/features/sharding.hpp"
#include "workloads/training/features/zeroth_order.hpp"
#include "workloads/training/simulation/forward.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace orrery::driver {

namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

bool judges_only(PartRole role) {
    return role == PartRole::reference || role == PartRole::reward;
}

// What the batch of a step is, by draw.
struct StepBatch {
    std::vector<double> tokens;  ///< of prompts and answers
    std::vector<double> answers;
    std::vector<std::vector<std::int64_t>> lengths;  ///< of samples that were seen, prompt and answer,
    std::vector<double> times;                       ///< each this often
    std::int64_t longest = 0;                        ///< of all draws
};

class RlRun final : public ScenarioRun {
  public:
    explicit RlRun(const RunContext& context)
        : context_(context),
          scenario_(context.scenario),
          spec_(context.scenario.as<RlKind>().rl),
          jobs_(context.scenario.as<RlKind>().jobs) {
        part_options_.check_memory = context.options.check_memory;
        for (RlPart& job : jobs_) {
            take_shared(scenario_, job.scenario);
            placements_.emplace_back(context.fabric, job.placed);
        }
        outputs_.resize(jobs_.size());
        check_memory();
        input_.staleness = spec_.asynchronous ? spec_.staleness : 0;
        input_.draws = spec_.draws;
        // In the order of a step, whatever that of the file.
        for (const PartRole role :
             {PartRole::generator, PartRole::reference, PartRole::reward, PartRole::critic, PartRole::actor}) {
            for (std::size_t i = 0; i < jobs_.size(); ++i) {
                if (jobs_[i].role != role) {
                    continue;
                }
                try {
                    add_part(i);
                } catch (const InfeasibleError& error) {
                    throw InfeasibleError(fmt::format("'{}': {}", jobs_[i].name, error.what()), error.code());
                }
            }
        }
        if (spec_.rules) {
            const std::int64_t rounds = (spec_.generated() + spec_.rule_workers - 1) / spec_.rule_workers;
            add("rules", StepPhase::preparation, {static_cast<double>(rounds) * spec_.rule_time}, {});
        }
        add("weights", StepPhase::synchronisation, {synchronisation()}, job(PartRole::generator).placed);
        steps_ = std::make_unique<RlSteps>(input_, context.fabric.shape().nodes, context.simulation, context.start);
    }

    void summarise(RunOutput& out) override {
        const StepsResult result = steps_->result();
        ORRERY_ASSERT(result.step_s > 0 && outputs_.size() == jobs_.size());
        out.seconds = result.step_s;
        const auto mean = [](const std::vector<double>& values) {
            double sum = 0;
            for (const double value : values) {
                sum += value;
            }
            return sum / static_cast<double>(values.size());
        };
        Summary& summary = out.summary;
        summary.add("iteration_time_s", result.step_s, "s");
        summary.add("tokens_per_s", mean(batch_.tokens) / result.step_s, "1/s");
        summary.add("samples_per_s", static_cast<double>(spec_.sequences()) / result.step_s, "1/s");
        for (std::size_t i = 0; i < kStepPhases; ++i) {
            summary.add(step_phase_names()[i] + "_s", result.phase_s[i], "s");
            summary.breakdown.emplace_back(step_phase_names()[i], result.limiting[i]);
        }
        summary.add("batch_tokens", mean(batch_.tokens), "tokens");
        summary.add("batch_output_tokens", mean(batch_.answers), "tokens");
        summary.add("longest_sample", static_cast<double>(batch_.longest), "tokens");
        summary.add("updates_per_step", updates_, "updates");
        summary.add("weights_moved_bytes", moved_, "B");
        for (const auto& [nodes, names] : pools()) {
            double busy = 0;
            for (const std::uint32_t node : nodes) {
                busy += result.busy[node] / static_cast<double>(nodes.size());
            }
            ORRERY_ASSERT(busy <= 1 + 1e-6);
            summary.add("idle_fraction." + names, std::max(0.0, 1 - busy), "1");
        }
        for (std::size_t i = 0; i < jobs_.size(); ++i) {
            for (Metric metric : outputs_[i].summary.metrics) {
                if (jobs_[i].role == PartRole::generator && metric.name == "offered_rps") {
                    continue;  // nothing arrives at a rate
                }
                metric.name = jobs_[i].name + "." + metric.name;
                summary.metrics.push_back(metric);
            }
            for (const std::string& note : outputs_[i].summary.notes) {
                summary.notes.push_back(jobs_[i].name + ": " + note);
            }
        }
        if (spec_.update > 0) {
            summary.notes.push_back(fmt::format(
                "an update has {} samples (batch.update), whatever plan.global_batch of its job says", spec_.update));
        }
        summary.notes.emplace_back(
            "steps and their phases have no intervals: too few kinds of them were measured to state the model's "
            "errors");
        out.timeline = context_.options.timeline ? result.timeline : Timeline();
        out.jobs = std::move(outputs_);
    }

  private:
    [[nodiscard]] std::size_t index_of(PartRole role) const {
        const auto found =
            std::find_if(jobs_.begin(), jobs_.end(), [&](const RlPart& one) { return one.role == role; });
        ORRERY_ASSERT(found != jobs_.end());  // reading asked for one
        return static_cast<std::size_t>(found - jobs_.begin());
    }
    [[nodiscard]] const RlPart& job(PartRole role) const { return jobs_[index_of(role)]; }

    // The different sets of nodes and the names of who is on them, in the order of the file.
    [[nodiscard]] std::vector<std::pair<std::vector<std::uint32_t>, std::string>> pools() const {
        std::vector<std::pair<std::vector<std::uint32_t>, std::string>> out;
        for (const RlPart& one : jobs_) {
            const auto found =
                std::find_if(out.begin(), out.end(), [&](const auto& pool) { return pool.first == one.placed; });
            if (found == out.end()) {
                out.emplace_back(one.placed, one.name);
            } else {
                found->second += "+" + one.name;
            }
        }
        return out;
    }

    void add(const std::string& name, StepPhase phase, std::vector<double> seconds, std::vector<std::uint32_t> nodes) {
        input_.parts.push_back({name, phase, std::move(seconds), std::move(nodes)});
    }

    static constexpr std::int64_t kTurns = 3;  ///< batches of a generator that goes on over their ends

    // Time of all these samples at the rate at which tokens come while the second of three turns ends, when as many samples are under
    // way as ever. Which samples end then says little of their lengths: the longest end last.
    [[nodiscard]] static double steady_seconds(const std::vector<RequestRow>& rows) {
        const auto end = [](const RequestRow& row) { return row.arrival + row.e2e; };
        std::vector<double> ends;
        double tokens = 0;
        for (const RequestRow& row : rows) {
            ends.push_back(end(row));
            tokens += row.output;
        }
        std::sort(ends.begin(), ends.end());
        const std::size_t turn = rows.size() / kTurns;
        if (turn == 0 || !(ends[2 * turn - 1] > ends[turn - 1])) {
            return ends.empty() ? 0 : ends.back();
        }
        const double from = ends[turn - 1];
        const double to = ends[2 * turn - 1];
        double made = 0;
        for (const RequestRow& row : rows) {
            const double first = row.arrival + row.ttft;
            const double lasts = end(row) - first;
            const double within = std::min(end(row), to) - std::max(first, from);
            made += lasts > 0                     ? row.output * std::max(0.0, within) / lasts
                    : first >= from && first < to ? row.output
                                                  : 0;
        }
        return made > 0 ? tokens * (to - from) / made : ends.back();
    }

    // A part by itself, on its own nodes of the cluster.
    [[nodiscard]] RunOutput run_part(const Scenario& scenario, const Placement& placement) const {
        RunOutput out;
        Simulation simulation(context_.fabric, run_settings(scenario));
        const auto part = scenario.own->prepare(
            {scenario, context_.models, part_options_, context_.fabric, placement, simulation, SimTime(), nullptr});
        simulation.run();
        part->summarise(out);
        return out;
    }

    void add_part(std::size_t i) {
        switch (jobs_[i].role) {
            case PartRole::generator:
                generate(i);
                return;
            case PartRole::reward:
                add(jobs_[i].name, StepPhase::preparation, forward(i, spec_.generated()), jobs_[i].placed);
                return;
            case PartRole::reference:
                add(jobs_[i].name, StepPhase::preparation, forward(i, spec_.sequences()), jobs_[i].placed);
                return;
            case PartRole::critic:
                add("values of critic", StepPhase::preparation, forward(i, spec_.sequences()), jobs_[i].placed);
                train(i);
                return;
            case PartRole::actor:
                if (spec_.log_probabilities == LogProbabilities::recomputed) {
                    // It stays for the updates that follow, which bring it from host memory.
                    add("log-probabilities of actor", StepPhase::preparation, forward(i, spec_.sequences(), false),
                        jobs_[i].placed);
                }
                train(i);
                return;
        }
    }

    void generate(std::size_t i) {
        std::vector<double> seconds;
        part_options_.requests = true;
        for (std::int64_t draw = 0; draw < spec_.draws; ++draw) {
            Scenario one = jobs_[i].scenario;
            one.seed += draw;
            one.as<ServingKind>().requests.samples = spec_.answers();
            if (spec_.partial) {  // a sample that ends makes room for the next, of whatever batch
                one.as<ServingKind>().requests.arrivals = ArrivalKind::closed;
                one.as<ServingKind>().requests.clients = spec_.generated();
                one.as<ServingKind>().requests.count = kTurns * spec_.generated();
            } else {
                one.as<ServingKind>().requests.arrivals = ArrivalKind::at_once;
                one.as<ServingKind>().requests.count = spec_.generated();
            }
            RunOutput out = run_part(one, placements_[i]);
            const double own = spec_.partial ? steady_seconds(out.requests) : out.seconds;
            std::sort(out.requests.begin(), out.requests.end(),
                      [](const RequestRow& a, const RequestRow& b) { return a.id < b.id; });
            double tokens = 0;
            double answers = 0;
            batch_.lengths.emplace_back();
            for (const RequestRow& row : out.requests) {
                batch_.lengths.back().push_back(std::int64_t{row.prompt} + row.output);
                tokens += static_cast<double>(row.prompt) + row.output;
                answers += row.output;
                batch_.longest = std::max(batch_.longest, std::int64_t{row.prompt} + row.output);
            }
            const double of_batch = static_cast<double>(spec_.generated()) /
                                    static_cast<double>(std::max<std::size_t>(1, out.requests.size()));
            ORRERY_ASSERT(answers <= tokens);
            batch_.times.push_back(of_batch);
            batch_.tokens.push_back(tokens * of_batch);
            batch_.answers.push_back(answers * of_batch);
            seconds.push_back(spec_.partial ? own * of_batch : own);
            if (draw == 0) {
                out.requests.clear();
                outputs_[i] = std::move(out);
            }
        }
        part_options_.requests = false;
        ORRERY_ASSERT(batch_.tokens.size() == static_cast<std::size_t>(spec_.draws));
        add(jobs_[i].name, StepPhase::generation, seconds, jobs_[i].placed);
    }

    // A part's sequences: of each draw how many, and what they hold in the mean of all.
    struct Filled {
        std::vector<double> counts;
        double mean = 0;
        Rows rows;
        std::vector<double> update,
            pass;           ///< by draw: the busiest replica over their mean, in an update and in a pass over all
        Scenario scenario;  ///< of the part, with such sequences
    };

    // Of so many of the answers that were generated.
    [[nodiscard]] Filled filled(std::size_t i, std::int64_t answers) const {
        const double share = static_cast<double>(answers) / static_cast<double>(spec_.generated());
        Filled out;
        out.scenario = jobs_[i].scenario;
        auto& training = out.scenario.as<TrainingKind>();
        const std::int64_t sequence = training.model.sequence;
        if (batch_.longest > sequence) {
            throw InfeasibleError(
                fmt::format("a sample has {} tokens and the model's sequences have {}: a longer "
                            "model.sequence, or a smaller 'most' or 'longest' of requests",
                            batch_.longest, sequence));
        }
        ORRERY_ASSERT(!batch_.lengths.empty());  // the generator comes first
        const PlanSpec& plan = training.plan;
        const std::int64_t unit =
            (plan.context > 1 ? 2 * plan.context : 1) * (plan.sequence_parallel ? plan.tensor : 1);
        const auto rows = [&](const std::vector<std::int64_t>& lengths) {
            return rows_of(lengths, spec_.rows, sequence, plan.pipeline > 1, unit);
        };
        std::vector<std::int64_t> all;
        for (const std::vector<std::int64_t>& draw : batch_.lengths) {
            all.insert(all.end(), draw.begin(), draw.end());
        }
        out.rows = rows(all);
        for (std::size_t draw = 0; draw < batch_.lengths.size(); ++draw) {
            const Rows own = rows(batch_.lengths[draw]);
            const double tokens = own.count * static_cast<double>(own.tokens) * batch_.times[draw] * share;
            out.counts.push_back(tokens / static_cast<double>(out.rows.tokens));
            out.mean += out.counts.back() / static_cast<double>(batch_.lengths.size());
        }
        training.model.sequence = out.rows.tokens;
        if (out.rows.tokens > out.rows.sample && out.rows.sample > 0) {
            const PlanSpec whole = training.plan;
            DocumentsPlan documents;
            documents.given = true;
            documents.lengths = {{out.rows.sample, 1}};
            training.plan.feature<DocumentsPlan>() = documents;
            PlanProblems problems;
            documents.check(training.model, training.plan, problems);
            // Where samples in one sequence cannot be kept apart, it is priced as one sample of that length.
            if (!problems.refused.empty() || !combination_problems(training.model, training.plan).empty()) {
                training.plan = whole;
            }
        }
        if (spec_.update > 0) {
            const double each = out.mean * static_cast<double>(spec_.update) / static_cast<double>(spec_.sequences());
            const std::int64_t round = training.plan.data * training.plan.micro_batch;
            training.plan.global_batch =
                round *
                std::max(std::int64_t{1}, static_cast<std::int64_t>(std::ceil(each / static_cast<double>(round))));
        }
        for (const std::vector<std::int64_t>& draw : batch_.lengths) {
            // Sequences of equal length are dealt out evenly, and so are packed ones.
            const bool single = spec_.rows == RowLayout::single;
            const std::int64_t update = spec_.update > 0 ? spec_.update : training.plan.global_batch;
            const auto whole = static_cast<std::int64_t>(draw.size());
            out.update.push_back(single ? busiest_replica(draw, update, training.plan.data) : 1);
            out.pass.push_back(single && whole > 0 ? busiest_replica(draw, whole, training.plan.data) : 1);
        }
        return out;
    }

    // `comes`: from host memory, where it rests there.
    [[nodiscard]] std::vector<double> forward(std::size_t i, std::int64_t answers, bool comes = true) {
        const Filled of = filled(i, answers);
        const TrainingInput input = training_input(of.scenario, context_.models, context_.fabric, placements_[i]);
        const auto batch = static_cast<double>(of.scenario.as<TrainingKind>().plan.global_batch);
        std::vector<double> seconds;
        double mean = 0;
        for (std::size_t draw = 0; draw < of.counts.size(); ++draw) {
            const double count = of.counts[draw];
            const double own =
                of.pass[draw] * (spec_.update > 0 ? forward_seconds(input, count)
                                                  : std::ceil(count / batch) * forward_seconds(input, batch));
            mean += own / static_cast<double>(of.counts.size());
            seconds.push_back(own + (comes ? moves(i) : 0));
        }
        outputs_[i].summary.add("forward_s", mean, "s");
        return seconds;
    }

    void train(std::size_t i) {
        const Filled of = filled(i, spec_.sequences());
        RunOutput out = run_part(of.scenario, placements_[i]);
        const auto batch = static_cast<double>(of.scenario.as<TrainingKind>().plan.global_batch);
        const auto epochs = static_cast<double>(spec_.epochs);
        std::vector<double> seconds;
        double updates = 0;
        for (std::size_t draw = 0; draw < of.counts.size(); ++draw) {
            // An update has so many samples, however many sequences they fill; or so many sequences.
            const double count = of.counts[draw];
            const double own =
                spec_.update > 0
                    ? std::ceil(static_cast<double>(spec_.sequences()) * epochs / static_cast<double>(spec_.update))
                    : std::ceil(count * epochs / batch);
            updates += own / static_cast<double>(of.counts.size());
            const double share = spec_.update > 0 ? count / of.mean : 1;
            seconds.push_back(own * out.seconds * share * of.update[draw] + moves(i));
        }
        if (jobs_[i].role == PartRole::actor) {
            updates_ = updates;
        }
        out.summary.metrics.insert(out.summary.metrics.end(), outputs_[i].summary.metrics.begin(),
                                   outputs_[i].summary.metrics.end());
        out.summary.breakdown.clear();
        outputs_[i] = std::move(out);
        add(jobs_[i].name, StepPhase::training, seconds, jobs_[i].placed);
    }

    /// What a GPU holds of a part.
    struct Held {
        double resting;  ///< while others run
        double running;
    };

    [[nodiscard]] Held held(const RlPart& one) const {
        const Scenario& part = one.scenario;
        const double memory = scenario_.cluster.node.gpu.memory.value;
        if (one.role == PartRole::generator) {
            return {0, part.as<ServingKind>().engine.memory_fraction * memory};  // its weights come with every step
        }
        Held out{0, 0};
        const auto& training = part.as<TrainingKind>();
        for (const MemoryUse& stage : memory_by_stage(training.model, training.plan, training.software)) {
            const bool judges = judges_only(one.role);
            out.resting =
                std::max(out.resting, judges ? stage.weights : stage.weights + stage.gradients + stage.optimizer);
            out.running = std::max(out.running, judges ? stage.weights + stage.buffers : stage.total());
        }
        return out;
    }

    // Every part has room beside what the others on its nodes keep there.
    void check_memory() const {
        if (!context_.options.check_memory) {
            return;
        }
        const double memory = scenario_.cluster.node.gpu.memory.value;
        std::string wrong;
        for (const RlPart& running : jobs_) {
            double kept = 0;
            std::string who;
            for (const RlPart& other : jobs_) {
                const bool beside =
                    &other != &running && !other.offload &&
                    std::any_of(other.placed.begin(), other.placed.end(), [&](std::uint32_t node) {
                        return std::find(running.placed.begin(), running.placed.end(), node) != running.placed.end();
                    });
                if (const double bytes = beside ? held(other).resting : 0; bytes > 0) {
                    kept += bytes;
                    who += fmt::format("{}{:.1f} GiB of '{}'", who.empty() ? "" : " and ", bytes / kGiB, other.name);
                }
            }
            const double own = held(running).running;
            if (kept > 0 && kept + own > memory) {
                wrong += fmt::format("{}'{}' needs {:.1f} of the {:.1f} GiB of a GPU beside {}",
                                     wrong.empty() ? "" : "; ", running.name, own / kGiB, memory / kGiB, who);
            }
        }
        if (!wrong.empty()) {
            throw InfeasibleError(wrong + ": other nodes, a smaller engine.kv.memory, or 'offload' of parts that wait",
                                  ErrorCode::out_of_memory);
        }
    }

    // A part in host memory comes before it runs, and goes behind it where it has changed.
    [[nodiscard]] double moves(std::size_t i) const {
        const RlPart& one = jobs_[i];
        if (!one.offload) {
            return 0;
        }
        const NodeSpec& node = scenario_.cluster.node;
        const auto gpus = static_cast<double>(node.gpus);
        const double ways = judges_only(one.role) ? 1 : 2;
        const double rate = node.host_rate(gpus);  // 0: nothing limits it
        return rate > 0 ? ways * held(one).resting * gpus / rate : 0;
    }

    /// Weights that lie on ranks in one way: all but routed experts, or these.
    struct Weights {
        double bytes;  ///< of the whole model
        WeightHolders from;
        std::vector<WeightHolders> to;  ///< pools of the generator that hold weights of their own
    };

    // Ranks of the actor: stage after stage, tensor ranks beside each other, then expert ranks.
    [[nodiscard]] WeightHolders senders(const TrainingInput& actor, bool experts) const {
        const PlanSpec& plan = actor.plan;
        WeightHolders out{plan.tensor, plan.pipeline, plan.data * plan.context,
                          {},          false,         plan.zero == 3 || plan.has<ShardingPlan>()};
        if (experts) {
            out.tensor = plan.expert_tensor();
            out.expert = plan.experts.expert;
            out.replicas = plan.expert_data();
        }
        for (std::int64_t rank = 0; rank < plan.ranks(); ++rank) {
            out.gpus.push_back(actor.placement.gpu(static_cast<std::uint32_t>(rank)));
        }
        ORRERY_ASSERT(out.gpus.size() == static_cast<std::size_t>(out.shards() * out.pipeline * out.replicas));
        return out;
    }

    // Replica after replica.
    [[nodiscard]] std::vector<WeightHolders> receivers(bool experts) const {
        const std::size_t i = index_of(PartRole::generator);
        const EngineSpec& engine = jobs_[i].scenario.as<ServingKind>().engine;
        std::vector<const PhaseSpec*> phases = {&engine.mixed};
        if (engine.split) {
            phases = engine.same_devices ? std::vector{&engine.prefill} : std::vector{&engine.prefill, &engine.decode};
        }
        std::vector<WeightHolders> out;
        const std::uint32_t per_node = context_.fabric.shape().gpus_per_node;
        std::uint32_t next = 0;
        for (const PhaseSpec* phase : phases) {
            next = pool_begin(*phase, next, per_node);
            // Experts are on `expert` groups of ranks, each cut over those of a group.
            const std::int64_t groups = experts ? phase->expert : 1;
            WeightHolders pool{experts ? phase->stage_ranks() / phase->expert : phase->stage_ranks(),
                               phase->pipeline,
                               phase->replicas,
                               {},
                               true,
                               false,
                               groups};
            for (std::int64_t rank = 0; rank < phase->replicas * phase->ranks(); ++rank) {
                pool.gpus.push_back(placements_[i].gpu(next++));
            }
            ORRERY_ASSERT(next <= placements_[i].gpus());
            out.push_back(std::move(pool));
        }
        return out;
    }

    double synchronisation() {
        const auto& generator = job(PartRole::generator).scenario.as<ServingKind>();
        const ModelSpec& model = generator.model;
        const double routed = static_cast<double>(model.expert_layers()) * model.routed_parameters();
        const double experts = routed * bytes_of(generator.engine.experts.value_or(generator.engine.weights));
        const double others = (model.parameters() - routed) * bytes_of(generator.engine.weights);
        if (spec_.weights == WeightPath::server) {
            for (const WeightHolders& pool : receivers(false)) {
                moved_ += (experts + others) * static_cast<double>(pool.replicas);
            }
            moved_ += experts + others;  // to the server
            return moved_ / spec_.bandwidth;
        }
        const std::size_t i = index_of(PartRole::actor);
        const TrainingInput actor = training_input(jobs_[i].scenario, context_.models, context_.fabric, placements_[i]);
        std::vector<Weights> weights = {{others, senders(actor, false), receivers(false)}};
        if (experts > 0) {
            weights.push_back({experts, senders(actor, true), receivers(true)});
        }
        return spec_.weights == WeightPath::gathered ? gathered(actor, weights)
                                                     : transfer_time(actor, moves_of(weights));
    }

    [[nodiscard]] std::vector<WeightMove> moves_of(const std::vector<Weights>& weights) const {
        std::vector<WeightMove> out;
        for (const Weights& one : weights) {
            for (const WeightHolders& pool : one.to) {
                const std::vector<WeightMove> moves = reshard(context_.fabric, one.from, pool, one.bytes);
                out.insert(out.end(), moves.begin(), moves.end());
            }
        }
        return out;
    }

    // One GPU of training gathers all, piece by piece, and then each piece passes from GPU to GPU of the generator: as long as its slowest
    // hop takes for all of them. The gathering of a piece and its way on do not overlap.
    double gathered(const TrainingInput& actor, std::vector<Weights> weights) {
        const GpuId hub = weights[0].from.at(0, 0, 0);
        double bytes = 0;
        std::vector<GpuId> chain = {hub};
        for (const WeightHolders& pool : weights[0].to) {
            chain.insert(chain.end(), pool.gpus.begin(), pool.gpus.end());
        }
        for (Weights& one : weights) {
            bytes += one.bytes;
            one.to = {WeightHolders{1, 1, 1, {hub}, true, false, 1}};
        }
        const double gathering = transfer_time(actor, moves_of(weights));
        double hop = 0;
        for (std::size_t i = 1; i < chain.size(); ++i) {
            if (chain[i] != chain[i - 1]) {
                moved_ += bytes;
                hop = std::max(
                    hop, seconds_alone(context_.fabric, make_send(context_.fabric, actor.collectives, chain[i - 1],
                                                                  chain[i], Bytes(bytes), actor.paths, i))
                             .value());
            }
        }
        return gathering + hop;
    }

    // All at once.
    double transfer_time(const TrainingInput& actor, const std::vector<WeightMove>& moves) {
        Simulation simulation(context_.fabric, run_settings(job(PartRole::actor).scenario));
        TaskGraph graph;
        const std::uint16_t name = graph.name("weights");
        for (const WeightMove& move : moves) {
            ORRERY_ASSERT(move.from != move.to && move.bytes > 0);
            moved_ += move.bytes;
            const std::uint64_t hash = (std::uint64_t{move.from.value()} << 32U) | move.to.value();
            GroupTransfer sent =
                make_send(context_.fabric, actor.collectives, move.from, move.to, Bytes(move.bytes), actor.paths, hash);
            Task task;
            task.name = name;
            task.rank = move.from.value();
            task.duration = SimTime::from_seconds(sent.latency_before(simulation.resources().routes_flows()).value());
            const std::uint32_t set =
                graph.add_demands(std::move(sent.demands), ResourceModel::kUnbounded, std::move(sent.flows));
            (void)graph.add_activity(task, set, move.bytes);
        }
        graph.freeze();
        if (graph.size() == 0) {
            return 0;
        }
        const Executor& executor = simulation.add(graph);
        simulation.run();
        return executor.finished_at().seconds();
    }

    const RunContext context_;
    const Scenario& scenario_;
    const RlSpec& spec_;
    std::vector<RlPart> jobs_;  ///< with the cluster and network as they are in this run
    std::vector<Placement> placements_;
    std::vector<RunOutput> outputs_;  ///< by job
    RunOptions part_options_;
    StepBatch batch_;
    StepsInput input_;
    double updates_ = 0;
    double moved_ = 0;  ///< B of a synchronisation
    std::unique_ptr<RlSteps> steps_;
};

}  // namespace

void RlKind::describe(Fields& fields, const Scenario&) {
    orrery::describe(fields, rl);
    fields.items({"jobs", "jobs that make up a step", true}, jobs, [](Fields& inner, RlPart& job) {
        inner.enumeration(
            {"role", "task of the role in a step; the generator is of kind serving, all others of training", true},
            part_role_names(), job.role);
        inner.text(
            {"nodes", "nodes of the job: a count (the next that no earlier job has), or numbers and ranges (0-3,8)",
             true},
            job.nodes);
        inner.boolean({"offload", "keep the role's weights and states in host memory while others run"}, job.offload);
        describe_job_source(inner, job);
    });
}

namespace {

// Parts may have nodes in common.
void place_parts(const YamlNode& list, std::vector<RlPart>& jobs, std::uint32_t nodes,
                 std::vector<Diagnostic>& errors) {
    std::set<std::uint32_t> taken;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        RlPart& job = jobs[i];
        const YamlNode* node = list.items[i].find("nodes");
        const Mark& mark = node != nullptr ? node->mark : list.items[i].mark;
        if (!is_count(job.nodes)) {
            std::vector<std::uint32_t> named;
            if (!parse_nodes(job.nodes, named)) {
                errors.push_back(mark.error(
                    fmt::format("'nodes' is a count (4) or numbers and ranges (0-3,8), not '{}'", job.nodes)));
                continue;
            }
            for (const std::uint32_t one : named) {
                if (one >= nodes) {
                    errors.push_back(mark.error(
                        fmt::format("node {} of '{}': the cluster has nodes 0 to {}", one, job.name, nodes - 1)));
                    break;
                }
                if (std::find(job.placed.begin(), job.placed.end(), one) != job.placed.end()) {
                    errors.push_back(mark.error(fmt::format("'{}' names node {} twice", job.name, one)));
                    break;
                }
                job.placed.push_back(one);
            }
        } else {
            const std::uint64_t wanted = job.nodes.size() > 7 ? 10'000'000 : std::stoull(job.nodes);
            for (std::uint32_t one = 0; one < nodes && job.placed.size() < wanted; ++one) {
                if (taken.count(one) == 0) {
                    job.placed.push_back(one);
                }
            }
            if (wanted == 0 || job.placed.size() < wanted) {
                errors.push_back(mark.error(fmt::format("'{}' wants {} nodes, and {} of {} are no other job's",
                                                        job.name, job.nodes, job.placed.size(), nodes)));
            }
        }
        taken.insert(job.placed.begin(), job.placed.end());
    }
}

// What the batch and the steps say already, or what they cannot honour.
void check_part(const RlSpec& rl, const RlPart& job, const Mark& mark, std::vector<Diagnostic>& errors) {
    const Scenario& part = job.scenario;
    const auto refuse = [&](bool wrong, const std::string& text) {
        if (wrong) {
            errors.push_back(mark.error(fmt::format("'{}' {}", job.name, text)));
        }
    };
    const bool generator = job.role == PartRole::generator;
    const KindRow& wanted = generator ? ServingKind::kRow : TrainingKind::kRow;
    if (&part.kind() != &wanted) {
        refuse(true, fmt::format("is of kind {}, not {}", wanted.name, part.kind().name));
        return;
    }
    if (generator) {
        const auto& serving = part.as<ServingKind>();
        const RequestsSpec& requests = serving.requests;
        const RequestsSpec usual;
        refuse(!requests.trace.empty() || !requests.mix.empty() || requests.turns > 0 || requests.conversations ||
                   requests.common > 0 || requests.sessions > 1,
               "generates from single prompts of its 'prompt' and 'output' lengths: no trace, mix, turns, "
               "conversations, sessions or common tokens");
        refuse(requests.count != 0 || requests.samples != 1, "generates what 'batch' says: no 'count', no 'samples'");
        refuse(requests.arrivals != usual.arrivals || requests.clients > 0,
               "gets a step's prompts at once: no 'arrivals', no 'clients'");
        refuse(requests.sample != 1 || requests.rate != usual.rate || requests.swing > 0,
               "has all of a step's prompts, and at once: no 'sample', no 'rate', no 'swing'");
        refuse(!requests.stages.empty() || requests.questions > 0 || requests.concurrency > 0,
               "has a step's prompts under way at once, each another: no 'stages', no 'questions', no 'concurrency'");
        refuse(requests.timeout > 0 || serving.measure.from > 0 || serving.measure.to > 0,
               "answers all prompts, and all of it is measured: no 'timeout', no 'measure'");
        refuse(serving.engine.mixed.scales || serving.engine.prefill.scales || serving.engine.decode.scales,
               "keeps its replicas: no 'autoscale'");
        refuse(serving.engine.faults.given, "has no 'faults': the steps of a campaign are not simulated");
        refuse(job.offload, "gets new weights in every step and keeps none: no 'offload'");
        return;
    }
    const auto& training = part.as<TrainingKind>();
    const PlanSpec& plan = training.plan;
    refuse(plan.has<DocumentsPlan>(), "has rows as 'batch' says: no 'documents'");
    refuse(training.model.encoder.given(), "has rows of text: no 'encoder' of the model");
    refuse(plan.has<ZerothOrderPlan>() || plan.islands() > 1,
           "makes an update after each global batch: no 'zeroth_order', no 'outer' steps");
    if (job.role != PartRole::actor || rl.log_probabilities == LogProbabilities::recomputed) {
        refuse(plan.zero == 3 || plan.has<ShardingPlan>() || plan.has<OffloadPlan>() ||
                   plan.vocabulary != VocabularyParallel::none,
               "has forward passes with its weights where they are used: no zero: 3, 'sharding', 'offload' of the "
               "plan or cut vocabulary");
    }
}

void check_weights(const RlSpec& rl, const std::vector<RlPart>& jobs, const Mark& mark,
                   std::vector<Diagnostic>& errors) {
    const RlPart* generator = nullptr;
    const RlPart* actor = nullptr;
    for (const RlPart& job : jobs) {
        generator = job.role == PartRole::generator ? &job : generator;
        actor = job.role == PartRole::actor ? &job : actor;
    }
    if (generator == nullptr || actor == nullptr) {
        return;  // said already
    }
    const double own = generator->scenario.as<ServingKind>().model.parameters();
    if (const double trained = actor->scenario.as<TrainingKind>().model.parameters(); own != trained) {
        errors.push_back(mark.error(
            fmt::format("generator and actor have the same weights, not {:.4g} and {:.4g} of them", own, trained)));
    }
    const EngineSpec& engine = generator->scenario.as<ServingKind>().engine;
    const auto attends_apart = [](const PhaseSpec& phase) { return phase.groups > 1; };
    if (rl.weights != WeightPath::server &&
        (attends_apart(engine.mixed) ||
         (engine.split && (attends_apart(engine.prefill) || attends_apart(engine.decode))))) {
        errors.push_back(mark.error(
            "groups of the generator hold copies of attention, whose transfer over the fabric is not simulated: "
            "synchronisation through a server, or no 'groups'"));
    }
    const auto shares = [&](const RlPart& job) {
        return std::any_of(job.placed.begin(), job.placed.end(), [&](std::uint32_t node) {
            return std::find(generator->placed.begin(), generator->placed.end(), node) != generator->placed.end();
        });
    };
    for (const RlPart& job : jobs) {
        const bool trains = job.role == PartRole::actor || job.role == PartRole::critic;
        if (rl.asynchronous && rl.staleness > 0 && trains && shares(job)) {
            errors.push_back(mark.error(fmt::format(
                "'{}' shares nodes with the generator: asynchronous steps have nodes for each, synchronous ones may "
                "take turns",
                job.name)));
        }
    }
}

// Keys that a model without training has no use for.
std::vector<std::string> without_effect_forward(const PlanSpec& plan) {
    std::vector<std::string> keys;
    for (const auto& [given, key] : {std::pair{plan.recompute != Recompute::none, "recompute"},
                                     {plan.zero > 0, "zero"},
                                     {plan.overlap_data, "overlap.data"},
                                     {plan.overlap_parameters, "overlap.parameters"}}) {
        if (given) {
            keys.emplace_back(key);
        }
    }
    // Of the features, all but those of weights and of their layout.
    for (const std::string& key : plan.features.keys()) {
        if (key != "adapters" && key != "signatures") {
            keys.push_back(key);
        }
    }
    for (std::string& key : keys) {
        key = fmt::format("'plan.{}' has no effect: this model is not trained, it runs forward alone", key);
    }
    return keys;
}

}  // namespace

void RlKind::check(const YamlNode& root, const DataDirectory& data, Scenario& whole, std::vector<Diagnostic>& errors) {
    const YamlNode* list = root.find("jobs");
    if (list == nullptr || list->kind != YamlNode::Kind::sequence) {
        return;
    }
    std::vector<PartRole> roles;
    bool known = true;  // all of them
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        RlPart& job = jobs[i];
        const YamlNode& item = list->items[i];
        if (item.kind != YamlNode::Kind::map) {
            continue;  // said already
        }
        const YamlNode* role = item.find("role");
        const std::vector<std::string>& names = part_role_names();
        if (role == nullptr || std::find(names.begin(), names.end(), role->scalar) == names.end()) {
            known = false;  // said already
            continue;
        }
        roles.push_back(job.role);
        job.name = part_role_names()[static_cast<std::size_t>(job.role)];
        if (read_job_source(item, data, whole, job, errors)) {
            check_part(rl, job, item.mark, errors);
            if (const auto* training = job.scenario.find<TrainingKind>();
                training != nullptr && judges_only(job.role)) {
                job.scenario.without_effect = without_effect_forward(training->plan);
            }
        }
    }
    std::vector<std::string> problems = problems_of(rl);
    if (known) {
        const std::vector<std::string> of_parts = problems_of(rl, roles);
        problems.insert(problems.end(), of_parts.begin(), of_parts.end());
    }
    for (const std::string& problem : problems) {
        errors.push_back(list->mark.error(problem));
    }
    if (whole.cluster.mixed) {
        errors.push_back(whole.cluster_mark.error(
            "the parts of a step on a cluster of groups are not simulated: give it nodes of one kind"));
    }
    if (errors.empty()) {
        place_parts(*list, jobs, shape_of(whole.cluster, whole.cluster_mark).nodes, errors);
        check_weights(rl, jobs, list->mark, errors);
    }
}

RunCost RlKind::cost(const Scenario&) const {
    std::vector<RlPart> parts = jobs;
    std::vector<const JobSpec*> all;
    for (RlPart& part : parts) {
        if (part.role == PartRole::generator) {
            part.scenario.as<ServingKind>().requests.count = rl.generated() * rl.draws;
        }
        all.push_back(&part);
    }
    return cost_of_jobs(all);
}

std::unique_ptr<ScenarioRun> RlKind::prepare(const RunContext& context) const {
    return std::make_unique<RlRun>(context);
}

static constexpr const char* kRlCards[] = {"iteration_time_s", "tokens_per_s", "generation_s",
                                           "preparation_s",    "training_s",   "synchronisation_s"};

const KindRow RlKind::kRow = {
    .name = "rl",
    .headline = "iteration_time_s",
    .cards = kRlCards,
    .drawing = TimelineDrawing::few_streams,
    .network = {.library = true, .folds = true, .collectives = true, .sends = true},
    .make = make_kind<RlKind>,
};

}  // namespace orrery::driver
