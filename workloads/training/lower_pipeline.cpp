#include "workloads/training/lowering_units.hpp"
#include "workloads/training/schedules/search.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace orrery::inline training {

namespace {

// A micro-batch visits the parts of the model in order. Place chunk * stages + stage holds one; of the parts, each is in one place or,
// where micro-batches come from both ends, in two.
class PipelineLowering final : public UnitLowering {
  public:
    PipelineLowering(const TrainingInput& input, RankCopies ranks)
        : UnitLowering(input, ranks),
          map_(input.plan.schedule->map),
          shape_(input.plan.shape()),
          parts_(input.plan.parts()),
          places_(stages_ * chunks_) {
        std::uint32_t first = 0;
        for (const std::uint32_t count : layers_of_parts(input.model, input.plan)) {
            layers_.push_back(with_encoder({first, count}, layers_.empty()));
            first += count;
        }
        for (std::uint32_t place = 0; place < places_; ++place) {
            parts_of_places_.push_back(part_at(map_, shape_, {place % stages_, place / stages_}));
        }
        find_holders();
        const PipelineSchedule& schedule = *input.plan.schedule;
        schedules_ = schedule.search == nullptr ? schedule.order(shape_) : schedule.search(shape_, measure(layers_));
        if (schedule.search != nullptr) {
            const std::vector<std::uint32_t> peaks = peaks_of(schedules_);
            out_.held.assign(peaks.begin(), peaks.end());
        }
    }

  private:
    void add_tasks() override {
        price_passes();
        start_step();
        const bool gathers = in_.plan.zero >= 1 && !by_unit();
        if (gathers && in_.plan.overlap_parameters) {
            gather_early();
        }
        add_passes();
        if (by_unit()) {
            move_units();
        }
        add_sends();
        if (cuts_vocabulary()) {
            add_meetings();
        }
        if (!by_unit()) {
            reduce_gradients();
        }
        if (!in_.plan.ends_meet() && in_.model.tied_embeddings && !cuts_vocabulary() && !in_.plan.adapters.given) {
            reduce_embeddings();
        }
        if (in_.plan.compression.given) {
            add_up_gradients();
        }
        std::vector<RankWeights> totals;
        for (std::uint32_t stage = 0; stage < stages_; ++stage) {
            totals.push_back(stage_parameters(stage));
        }
        finish_step(reduced_, totals);
        if (gathers && !in_.plan.overlap_parameters) {
            gather_late();
        }
    }

    /// Layers of a chunk whose weights and gradients travel together.
    struct Bucket {
        std::uint32_t price;  ///< of their part of the pass
        RankWeights weights;
        TaskLabel label;
        std::uint32_t compress = TrainingGraph::kNoPrice;  ///< of choosing what is sent of their gradients
    };
    /// A layer of a chunk, with the tables beside it, under ZeRO-3: its part of a pass.
    struct UnitPass {
        std::uint32_t price;
        Unit unit;
        TaskLabel label;
    };

    /// Stages that hold the same parts, and who holds the same weights there.
    struct Holders {
        std::vector<std::uint32_t> stages;
        std::vector<std::uint32_t> parts;  ///< in the order in which their gradients are final
        std::vector<Group> groups;
        std::vector<Group> experts;
    };

    void find_holders() {
        const bool twice = map_ == StageMap::both_ways;
        for (std::uint32_t stage = 0; stage < (twice ? stages_ / 2 : stages_); ++stage) {
            Holders one{{stage}, {}, spans(stage, 1, width(), twice), expert_groups(stage, twice)};
            for (std::uint32_t chunk = chunks_; chunk-- > 0;) {
                one.parts.push_back(part_at(map_, shape_, {stage, chunk}));
            }
            if (twice) {
                one.stages.push_back(stages_ - 1 - stage);
                join(one.groups, spans(one.stages[1], 1, width(), true));
                join(one.experts, expert_groups(one.stages[1], true));
            }
            holders_.push_back(std::move(one));
        }
    }
    static void join(std::vector<Group>& groups, const std::vector<Group>& others) {
        for (std::size_t i = 0; i < groups.size(); ++i) {
            groups[i].members.insert(groups[i].members.end(), others[i].members.begin(), others[i].members.end());
            groups[i].gpus.insert(groups[i].gpus.end(), others[i].gpus.begin(), others[i].gpus.end());
            for (std::size_t k = 0; k < groups[i].alike.size(); ++k) {
                std::vector<GpuId>& gpus = groups[i].alike[k];
                gpus.insert(gpus.end(), others[i].alike[k].begin(), others[i].alike[k].end());
            }
        }
    }
    [[nodiscard]] const Holders& holders_of(std::uint32_t stage) const {
        return holders_[map_ == StageMap::both_ways ? std::min(stage, stages_ - 1 - stage) : stage];
    }
    [[nodiscard]] std::uint32_t copies() const { return static_cast<std::uint32_t>(in_.plan.copies()); }
    [[nodiscard]] bool cuts_vocabulary() const { return in_.plan.vocabulary != VocabularyParallel::none; }

    /// Index of what a pass does in prices_.
    [[nodiscard]] static std::size_t index_of(PassWork work) { return static_cast<std::size_t>(work); }
    [[nodiscard]] std::uint32_t part_of(std::uint32_t place) const { return parts_of_places_[place]; }
    /// The chunk of a stage that holds this part, which it does.
    [[nodiscard]] std::uint32_t chunk_of(std::uint32_t part, std::uint32_t stage) const {
        return map_ == StageMap::both_ways ? (part == stage ? 0 : 1) : place_of_part(map_, shape_, part, 0).chunk;
    }
    [[nodiscard]] std::size_t slot(std::uint32_t member, ChunkPlace place, std::uint32_t micro_batch) const {
        return (static_cast<std::size_t>(member) * places_ + place.chunk * stages_ + place.stage) * micro_batches_ +
               micro_batch;
    }
    // The part of a cut vocabulary that a stage holds goes with its last layers' weights.
    [[nodiscard]] RankWeights part_parameters(Layers layers, bool first, bool last, bool any_end = true) const {
        const double cut = cuts_vocabulary() && any_end ? (in_.model.tied_embeddings ? 1.0 : 2.0) / stages_ : 0;
        return parameters(layers, tables_of(first, last) + cut);
    }
    [[nodiscard]] RankWeights chunk_parameters(std::uint32_t stage, std::uint32_t chunk) const {
        const std::uint32_t v = part_of(chunk * stages_ + stage);
        return part_parameters(layers_[v], v == 0, v + 1 == parts_);
    }
    [[nodiscard]] RankWeights stage_parameters(std::uint32_t stage) const {
        RankWeights sum;
        for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
            sum += chunk_parameters(stage, chunk);
        }
        return sum;
    }

    // A chunk's layers, the tables at the ends of the model, and completing a scattered input.
    void price_passes() {
        std::array<bool, kPassWorks> used{};
        for (const Pass& pass : schedules_[0]) {
            used[index_of(pass.work)] = true;
        }
        // Whole backward passes and those in two are the same work.
        const bool splits = used[index_of(PassWork::input_gradient)];
        for (const PassWork work :
             {PassWork::forward, PassWork::backward, PassWork::input_gradient, PassWork::weight_gradient}) {
            for (std::uint32_t v = 0; used[index_of(work)] && v < parts_; ++v) {
                const std::uint32_t price = add_prices([&] { return pass_price(v, layers_[v], true, true, work); });
                out_.hardware_flops +=
                    splits && work == PassWork::backward ? 0 : mean_flops(price) * micro_batches_ / stages_;
                prices_[index_of(work)].push_back(price);
            }
        }
        for (const PassWork work : {PassWork::scores, PassWork::score_gradients}) {
            if (used[index_of(work)]) {
                const std::uint32_t price = add_prices([&] { return cost().vocabulary_pass(work); });
                out_.hardware_flops += mean_flops(price) * micro_batches_;
                prices_[index_of(work)].assign(parts_, price);
            }
        }
        last_works_.assign(places_, PassWork::backward);
        for (std::uint32_t stage = 0; stage < stages_; ++stage) {
            for (const Pass& pass : schedules_[stage]) {
                if (pass.ends_micro_batch()) {
                    last_works_[pass.chunk * stages_ + stage] = pass.work;
                }
            }
        }
        for (std::uint32_t place = 0; by_unit() && place < places_; ++place) {
            for (std::size_t work = 0; work < kPassWorks; ++work) {
                unit_passes_[work].push_back(used[work] ? units_of(place, static_cast<PassWork>(work))
                                                        : std::vector<UnitPass>());
            }
        }
        for (std::uint32_t place = 0; !by_unit() && place < places_; ++place) {
            buckets_[0].push_back(buckets_of(place, false));
            buckets_[1].push_back(buckets_of(place, true));
        }
    }

    // What a pass through some of the layers of a chunk works on; see pass_price.
    [[nodiscard]] TaskLabel label_of(std::uint32_t place, Layers layers, bool begins, bool ends, PassWork work) const {
        const std::uint32_t v = part_of(place);
        const bool backward = work != PassWork::forward;
        TaskLabel out = transfer_label(place, layers);
        out.pass = true;
        out.work = work;
        if (work == PassWork::scores || work == PassWork::score_gradients) {
            out.layers = 0;
            out.layer = -1;
            return out;
        }
        const bool first = v == 0;
        const bool last = v + 1 == parts_;
        out.boundary = begins && parts_ > 1 && work != PassWork::weight_gradient && !(backward ? last : first);
        out.embedding = first && (backward ? ends : begins) && !cuts_vocabulary();
        out.head = last && (backward ? begins : ends) && !cuts_vocabulary();
        out.encoder = layers.encoder;
        out.projector = layers.projector;
        return out;
    }
    // The same of what moves the weights or gradients of these layers.
    [[nodiscard]] TaskLabel transfer_label(std::uint32_t place, Layers layers) const {
        TaskLabel out;
        out.chunk = chunks_ > 1 ? static_cast<std::int32_t>(place / stages_) : -1;
        out.layer = layers.count > 0 ? static_cast<std::int32_t>(layers.first) : -1;
        out.layers = layers.count;
        return out;
    }

    // The first or the last pass of a chunk in the pieces whose weights travel together: gradients leave as soon as those of a bucket are final, and the
    // first forward pass waits for the weights of its next layers alone.
    [[nodiscard]] std::vector<Bucket> buckets_of(std::uint32_t place, bool backward) {
        const std::uint32_t v = part_of(place);
        const PassWork work = backward ? last_works_[place] : PassWork::forward;
        const bool first = v == 0;
        const bool last = v + 1 == parts_;
        const std::uint32_t alike = width() * copies();
        const RankWeights weights = part_parameters(layers_[v], first, last);
        const double least = std::ceil(weights.total() / in_.software.bucket_weights(static_cast<double>(alike)));
        const bool hidden = backward ? in_.plan.overlap_data : in_.plan.overlap_parameters && in_.plan.zero >= 1;
        const auto most = static_cast<double>(std::max(1U, layers_[v].count));
        const auto count = static_cast<std::uint32_t>(hidden && alike > 1 ? std::clamp(least, 1.0, most) : 1.0);
        std::vector<Bucket> out;
        for (std::uint32_t i = 0; i < count; ++i) {
            const std::uint32_t all = layers_[v].count;
            const std::uint32_t before = all * i / count;
            Layers layers{layers_[v].first + before, all * (i + 1) / count - before};
            if (backward) {
                layers.first = layers_[v].first + all - before - layers.count;
            }
            const bool begins = i == 0;
            const bool ends = i + 1 == count;
            layers = with_encoder(layers, first && (backward ? ends : begins));
            const RankWeights held =
                count == 1 ? weights
                           : part_parameters(layers, first && (backward ? ends : begins),
                                             last && (backward ? begins : ends), backward ? begins : ends);
            std::uint32_t price = prices_[index_of(work)][v];
            if (count > 1) {
                price = add_prices([&] {
                    Price part = pass_price(v, layers, begins, ends, work);
                    // Beside a piece of the backward pass the gradients of the one before travel, beside one of the
                    // forward pass the weights of the next.
                    if (backward ? !begins : !ends) {
                        part[backward ? Category::backward : Category::forward] +=
                            lost_to(bucket_alone(place % stages_, held, backward), part);
                    }
                    return part;
                });
            }
            out.push_back({price, held, label_of(place, layers, begins, ends, work)});
            if (backward && in_.plan.compression.given) {
                out.back().compress = add_prices([&] { return traffic(compress_traffic(in_.plan, held.total())); });
            }
        }
        return out;
    }

    // Layer by layer in the order of the pass.
    [[nodiscard]] std::vector<UnitPass> units_of(std::uint32_t place, PassWork work) {
        const std::uint32_t v = part_of(place);
        const bool backward = work != PassWork::forward;
        const std::uint32_t count = std::max(1U, layers_[v].count);
        std::vector<UnitPass> out;
        const auto add = [&](Layers layers, bool begins, bool ends, const Unit& unit) {
            const std::uint32_t price = add_prices([&] {
                Price part = pass_price(v, layers, begins, ends, work);
                add_costs(part, place % stages_, unit, backward, needs_weights(work), makes_gradients(work));
                return part;
            });
            out.push_back({price, unit, label_of(place, layers, begins, ends, work)});
        };
        // A layer of the encoder each, before the others and behind them on the way back; the rest of it goes with the embedding.
        const auto add_encoder = [&] {
            const bool passes = !backward || in_.model.encoder.trained;
            for (std::uint32_t i = 0; passes && i < layers_[v].encoder; ++i) {
                const Layers one{layers_[v].first, 0, 1, false};
                add(one, false, false, Unit{parameters(one, 0)});
            }
        };
        if (!backward) {
            add_encoder();
        }
        for (std::uint32_t i = 0; i < count; ++i) {
            const bool begins = i == 0;
            const bool ends = i + 1 == count;
            const std::uint32_t layer = layers_[v].first + (backward ? count - 1 - i : i);
            const bool front = v == 0 && (backward ? ends : begins);
            const Layers layers{layer, std::min(1U, layers_[v].count), 0, front && layers_[v].projector};
            add(layers, begins, ends,
                Unit{part_parameters(layers, front, v + 1 == parts_ && (backward ? begins : ends))});
        }
        if (backward) {
            add_encoder();
        }
        return out;
    }
    [[nodiscard]] static bool needs_weights(PassWork work) { return work != PassWork::weight_gradient; }
    [[nodiscard]] static bool makes_gradients(PassWork work) {
        return work == PassWork::backward || work == PassWork::weight_gradient;
    }

    // The weights of each unit before its part of every pass, its gradients behind it.
    void move_units() {
        TaskLists inputs(rank_count());
        TaskLists scattered(rank_count());
        for (std::uint32_t stage = 0; stage < stages_; ++stage) {
            const std::uint32_t first = stage * per_stage();
            const std::vector<UnitStep>& steps = unit_steps_[stage];
            for (std::size_t k = 0; k < steps.size(); ++k) {
                const UnitStep& step = steps[k];
                const auto done = [&](std::size_t back) {
                    return [&, back](const Group& group) {
                        std::vector<TaskId> out;
                        for (const std::uint32_t member : group.members) {
                            if (k >= back) {
                                out.push_back(unit_tasks_[member][k - back]);
                            }
                        }
                        return out;
                    };
                };
                const bool backward = step.work != PassWork::forward;
                label(step.label);
                for (std::uint32_t rank = first; rank < first + per_stage(); ++rank) {
                    inputs[rank] = in_.plan.overlap_data ? std::vector<TaskId>() : scattered[rank];
                }
                if (needs_weights(step.work)) {
                    gather(stage, *step.unit, backward, step.first, done(ahead()), inputs);
                }
                for (std::uint32_t rank = first; rank < first + per_stage(); ++rank) {
                    for (const TaskId input : inputs[rank]) {
                        out_.graph.add_edge(input, unit_tasks_[rank][k]);
                    }
                }
                if (makes_gradients(step.work)) {
                    reduce(stage, *step.unit, step.last, done(0), scattered);
                }
            }
        }
        label({});
    }

    // Kernels that only move bytes, for an exchange of gradients.
    [[nodiscard]] Price traffic(double bytes) const {
        Price price;
        price[Category::data_communication] = in_.software.kernel_slowdown.value * cost().memory_traffic(bytes);
        return price;
    }

    // Of what all ranks have sent.
    void add_up_gradients() {
        const std::uint16_t name = out_.graph.name("add up gradients");
        for (std::uint32_t stage = 0; stage < stages_; ++stage) {
            const std::uint32_t price = add_prices(
                [&] { return traffic(decompress_traffic(in_.plan, stage_parameters(stage).total(), width())); });
            for (std::uint32_t rank = stage * per_stage(); rank < (stage + 1) * per_stage(); ++rank) {
                const TaskId id = compute(rank, name, Category::data_communication, price);
                for (const TaskId exchanged : reduced_[rank]) {
                    out_.graph.add_edge(exchanged, id);
                }
            }
        }
    }

    [[nodiscard]] Alone bucket_alone(std::uint32_t stage, const RankWeights& weights, bool backward) const {
        const CollectiveOp op = !backward            ? CollectiveOp::all_gather
                                : in_.plan.zero >= 1 ? CollectiveOp::reduce_scatter
                                                     : CollectiveOp::all_reduce;
        const double bytes = backward ? bytes_of(in_.plan.gradient_precision) : 2;
        const auto of = [&](const std::vector<Group>& alike, double held) {
            return alike.empty() || held <= 0 ? Alone() : alone(op, alike[0], bytes * held);
        };
        return of(holders_of(stage).groups, weights.dense) + of(holders_of(stage).experts, weights.experts);
    }

    // Calls `one(group, weights)` for the groups that hold the same weights: of all layers, and of experts.
    template <class One>
    void for_groups(const Holders& holders, const RankWeights& weights, const One& one) const {
        for (const Group& group : holders.groups) {
            one(group, weights.dense);
        }
        for (const Group& group : holders.experts) {
            if (weights.experts > 0) {
                one(group, weights.experts);
            }
        }
    }

    // Weights of the step before are gathered behind the first forward passes, bucket by bucket.
    void gather_early() {
        const std::uint16_t name = out_.graph.name("gather weights");
        gathered_.assign(rank_count(), std::vector<std::vector<Gathered>>(chunks_));
        for (const Holders& holders : holders_) {
            for (auto part = holders.parts.rbegin(); part != holders.parts.rend(); ++part) {
                const std::uint32_t stage = holders.stages[0];
                const std::vector<Bucket>& buckets = buckets_[0][chunk_of(*part, stage) * stages_ + stage];
                for (std::uint32_t i = 0; i < buckets.size(); ++i) {
                    label(without_pass(buckets[i].label));
                    for_groups(holders, buckets[i].weights, [&](const Group& group, double weights) {
                        const TaskId id =
                            collective(group, kGatherStream, name, CollectiveOp::all_gather, 2 * weights, {});
                        for (const std::uint32_t member : group.members) {
                            gathered_[member][chunk_of(*part, member / per_stage())].push_back({i, id});
                        }
                    });
                }
            }
        }
        label({});
    }
    // Of a piece of a pass: the layers alone.
    [[nodiscard]] static TaskLabel without_pass(const TaskLabel& of) {
        TaskLabel out;
        out.chunk = of.chunk;
        out.layer = of.layer;
        out.layers = of.layers;
        return out;
    }

    void gather_late() {
        const std::uint16_t name = out_.graph.name("gather weights");
        for (const Holders& holders : holders_) {
            for_groups(holders, stage_parameters(holders.stages[0]), [&](const Group& group, double weights) {
                std::vector<TaskId> after;
                after.reserve(group.members.size());
                for (const std::uint32_t member : group.members) {
                    after.push_back(out_.compute[member].back());
                }
                collective(group, kGatherStream, name, CollectiveOp::all_gather, 2 * weights, after);
            });
        }
    }

    void add_passes() {
        constexpr std::array<const char*, kPassWorks> kNames = {
            "forward", "backward", "input gradients", "weight gradients", "output scores", "output gradients"};
        std::array<std::uint16_t, kPassWorks> names{};
        for (std::size_t work = 0; work < kPassWorks; ++work) {
            if (!prices_[work].empty()) {
                names[work] = out_.graph.name(kNames[work]);
            }
        }
        for (std::vector<TaskId>& tasks : pass_starts_) {
            tasks.resize(static_cast<std::size_t>(per_stage()) * places_ * micro_batches_);
        }
        for (std::vector<TaskId>& tasks : vocabulary_) {
            tasks.resize(cuts_vocabulary() ? std::size_t{rank_count()} * micro_batches_ : 0);
        }
        starts_.resize(rank_count());
        ends_.resize(rank_count());
        unit_tasks_.resize(by_unit() ? rank_count() : 0);
        unit_steps_.resize(stages_);
        if (in_.plan.compression.given) {
            chosen_ = out_.graph.name("choose gradients");
        }
        final_.assign(rank_count(), std::vector<std::vector<TaskId>>(chunks_));
        for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
            const std::uint32_t stage = rank / per_stage();
            // Whole passes but for the first forward pass of a chunk and its last backward pass.
            std::vector<std::size_t> first(chunks_, schedules_[stage].size());
            std::vector<std::size_t> last(chunks_, 0);
            for (std::size_t i = schedules_[stage].size(); i-- > 0;) {
                const Pass& pass = schedules_[stage][i];
                if (pass.ends_micro_batch()) {
                    last[pass.chunk] = std::max(last[pass.chunk], i);
                } else if (pass.work == PassWork::forward) {
                    first[pass.chunk] = i;
                }
            }
            for (std::size_t i = 0; i < schedules_[stage].size(); ++i) {
                const Pass& pass = schedules_[stage][i];
                const bool in_buckets = pass.work == PassWork::forward
                                            ? i == first[pass.chunk]
                                            : pass.ends_micro_batch() && i == last[pass.chunk];
                add_pass(rank, pass, names[index_of(pass.work)], in_buckets);
                if (pass.work == PassWork::forward || pass.gives_gradient()) {
                    // The second of two joined passes needs its input where the first begins.
                    const bool second = i > 0 && schedules_[stage][i - 1].joined;
                    pass_starts_[pass.work == PassWork::forward ? 0 : 1][slot(
                        rank % per_stage(), {stage, pass.chunk}, pass.micro_batch)] = starts_[rank][second ? i - 1 : i];
                } else if (pass.work != PassWork::weight_gradient) {
                    vocabulary_[pass.work == PassWork::scores ? 0 : 1]
                               [std::size_t{rank} * micro_batches_ + pass.micro_batch] = ends_[rank].back();
                }
            }
        }
        label({});
    }

    void add_pass(std::uint32_t rank, const Pass& pass, std::uint16_t name, bool in_buckets) {
        const std::uint32_t place = pass.chunk * stages_ + rank / per_stage();
        const bool backward = pass.work != PassWork::forward && pass.work != PassWork::scores;
        const Category category = backward ? Category::backward : Category::forward;
        const auto on = [&](TaskLabel piece) {
            piece.micro_batch = static_cast<std::int32_t>(pass.micro_batch);
            label(piece);
            return piece;
        };
        std::vector<TaskId> pieces;
        std::vector<TaskId> sent;  // what follows the pieces where gradients are compressed
        if (by_unit()) {
            for (const UnitPass& part : unit_passes_[index_of(pass.work)][place]) {
                TaskLabel moved = on(part.label);
                moved.pass = false;
                pieces.push_back(compute(rank, name, category, part.price));
                unit_tasks_[rank].push_back(pieces.back());
                if (rank % per_stage() == 0) {
                    unit_steps_[rank / per_stage()].push_back({&part.unit, pass.work, in_buckets, in_buckets, moved});
                }
            }
        } else if (in_buckets) {
            for (const Bucket& bucket : buckets_[backward ? 1 : 0][place]) {
                on(bucket.label);
                pieces.push_back(compute(rank, name, category, bucket.price));
                if (bucket.compress != TrainingGraph::kNoPrice) {
                    sent.push_back(compute(rank, chosen_, Category::data_communication, bucket.compress));
                }
            }
        } else {
            on(label_of(place, layers_[part_of(place)], true, true, pass.work));
            pieces.push_back(compute(rank, name, category, prices_[index_of(pass.work)][part_of(place)]));
        }
        starts_[rank].push_back(pieces.front());
        ends_[rank].push_back(pieces.back());
        if (in_buckets && backward) {
            final_[rank][pass.chunk] = sent.empty() ? std::move(pieces) : std::move(sent);
        } else if (in_buckets && !gathered_.empty()) {
            for (const Gathered& gathered : gathered_[rank][pass.chunk]) {
                out_.graph.add_edge(gathered.id, pieces[gathered.bucket]);
            }
        }
    }

    // Between neighbouring parts on different stages; the tasks of both ends exist by now.
    void add_sends() {
        const std::uint16_t names[2] = {out_.graph.name("send activations"), out_.graph.name("send gradients")};
        // Where the next part is in either direction, by place; itself at the ends of the model.
        std::array<std::vector<ChunkPlace>, 2> next;
        for (std::uint32_t place = 0; place < places_; ++place) {
            const ChunkPlace here{place % stages_, place / stages_};
            const std::uint32_t part = part_of(place);
            next[0].push_back(part + 1 < parts_ ? place_of_part(map_, shape_, part + 1, here.chunk) : here);
            next[1].push_back(part > 0 ? place_of_part(map_, shape_, part - 1, here.chunk) : here);
        }
        for (std::uint32_t rank = 0; stages_ > 1 && rank < rank_count(); ++rank) {
            const std::uint32_t stage = rank / per_stage();
            const std::uint32_t member = rank % per_stage();
            const auto free = sends_freely(stage);
            for (std::size_t i = 0; i < schedules_[stage].size(); ++i) {
                const Pass& pass = schedules_[stage][i];
                const std::size_t way = pass.work == PassWork::forward ? 0 : 1;
                const ChunkPlace to = next[way][pass.chunk * stages_ + stage];
                if (to.stage == stage || (way == 1 && !pass.gives_gradient())) {
                    continue;  // it is there, or there is nothing to send
                }
                const std::uint32_t place = pass.chunk * stages_ + stage;
                TaskLabel sent = transfer_label(place, {});
                sent.micro_batch = static_cast<std::int32_t>(pass.micro_batch);
                label(sent);
                const TaskId id = send(rank, to.stage * per_stage() + member, names[way]);
                const std::size_t end = pass.joined ? i + 1 : i;
                out_.graph.add_edge(ends_[rank][end], id);
                out_.graph.add_edge(id, pass_starts_[way][slot(member, to, pass.micro_batch)]);
                if ((i < free.first || i >= free.second) && end + 1 < starts_[rank].size()) {
                    out_.graph.add_edge(id, starts_[rank][end + 1]);
                }
            }
        }
        label({});
    }

    // Passes of a stage whose sends nothing waits for, from the first to before the second: where a forward and a backward pass take
    // turns, the pipeline neither fills nor drains.
    [[nodiscard]] std::pair<std::size_t, std::size_t> sends_freely(std::uint32_t stage) const {
        const std::vector<Pass>& passes = schedules_[stage];
        if (!in_.plan.overlap_pipeline) {
            return {0, 0};
        }
        if (!in_.software.waits_at_ends) {
            return {0, passes.size()};
        }
        const auto forward = [](const Pass& pass) { return pass.work == PassWork::forward; };
        const auto first_backward =
            static_cast<std::size_t>(std::find_if_not(passes.begin(), passes.end(), forward) - passes.begin());
        const auto after_forward =
            static_cast<std::size_t>(passes.rend() - std::find_if(passes.rbegin(), passes.rend(), forward));
        return {std::max<std::size_t>(first_backward, 1) - 1, after_forward + 1};
    }

    TaskId send(std::uint32_t from, std::uint32_t to, std::uint16_t name) {
        auto [entry, fresh] = sends_.try_emplace({from, to});
        auto& [set, planned] = entry->second;
        if (fresh) {
            planned = planned_send(from, to);
            set = demands_of_send(from, to, planned);
        }
        return transfer(from, kSendStream, name, Category::pipeline_communication,
                        planned.latency_before(in_.routes_flows).value(), set, planned.bytes.value());
    }

    // Among the stages of a pipeline, over the parts of a vocabulary cut over them: what the output layer needs of a micro-batch,
    // what its parts have to agree on, and the input and its gradient at the other end. They hide behind passes, on a communicator
    // of their own. Source: Yeung et al., arXiv:2411.05288, sections 4 and 5.
    void add_meetings() {
        const bool one_barrier = in_.plan.vocabulary == VocabularyParallel::one_barrier;
        const double hidden = cost().hidden_bytes();
        for (std::uint32_t member = 0; member < per_stage(); ++member) {
            std::vector<std::uint32_t> ranks;
            for (std::uint32_t stage = 0; stage < stages_; ++stage) {
                ranks.push_back(stage * per_stage() + member);
            }
            const Group group = across_stages(std::move(ranks));
            // A sum that one rank wants moves what a broadcast does.
            const Meeting spread{out_.graph.name("spread input"), plan_meeting(CollectiveOp::broadcast, group, hidden)};
            const Meeting sum{out_.graph.name("sum over vocabulary"), spread.planned};
            const Meeting agree{out_.graph.name("largest score and sum"),
                                plan_meeting(CollectiveOp::all_reduce, group, 2 * cost().token_bytes())};
            const auto all = [&](std::size_t kind, std::uint32_t m) {
                std::vector<TaskId> out;
                for (const std::uint32_t rank : group.members) {
                    out.push_back(vocabulary_[kind][std::size_t{rank} * micro_batches_ + m]);
                }
                return out;
            };
            const std::uint32_t ahead = 2 * stages_;
            for (std::uint32_t m = 0; m < micro_batches_; ++m) {
                TaskLabel of;
                of.micro_batch = static_cast<std::int32_t>(m);
                label(of);
                const auto pass = [&](bool backward, std::uint32_t stage) {
                    return pass_starts_[backward ? 1 : 0][slot(member, {stage, 0}, m)];
                };
                std::vector<TaskId> begun;
                if (m >= ahead) {
                    begun = all(0, m - ahead);
                } else {
                    for (const std::uint32_t rank : group.members) {
                        begun.push_back(out_.compute[rank].front());
                    }
                }
                meet(group, sum, begun, {pass(false, 0)});
                meet(group, spread, {end_of(group.members.back(), PassWork::forward, m)}, all(0, m));
                const TaskId agreed = meet(group, agree, all(0, m), all(1, m));
                meet(group, sum, one_barrier ? std::vector<TaskId>{agreed} : all(1, m), {pass(true, stages_ - 1)});
                const TaskId back = meet(group, spread, {end_of(group.members.front(), PassWork::backward, m)}, {});
                for (const std::uint32_t rank : group.members) {
                    reduced_[rank].push_back(back);
                }
            }
        }
        label({});
    }
    struct Meeting {
        std::uint16_t name;
        std::pair<std::uint32_t, GroupTransfer> planned;
    };
    [[nodiscard]] std::pair<std::uint32_t, GroupTransfer> plan_meeting(CollectiveOp op, const Group& group,
                                                                       double bytes) {
        const GroupTransfer planned = plan_transfer(op, group, bytes);
        return {demands_of(op, group, bytes, planned), planned};
    }
    TaskId meet(const Group& group, const Meeting& meeting, const std::vector<TaskId>& after,
                const std::vector<TaskId>& before) {
        const GroupTransfer& planned = meeting.planned.second;
        const TaskId id =
            transfer(group.members[0], kVocabularyStream, meeting.name, Category::pipeline_communication,
                     planned.latency_before(in_.routes_flows).value(), meeting.planned.first, planned.bytes.value());
        for (const TaskId task : after) {
            out_.graph.add_edge(task, id);
        }
        for (const TaskId task : before) {
            out_.graph.add_edge(id, task);
        }
        return id;
    }
    [[nodiscard]] TaskId end_of(std::uint32_t rank, PassWork work, std::uint32_t micro_batch) {
        const std::vector<Pass>& passes = schedules_[rank / per_stage()];
        std::size_t& at = searched_[{rank, work}];  // micro-batches come in order
        while (passes[at].work != work || passes[at].micro_batch != micro_batch) {
            ++at;
        }
        return ends_[rank][at];
    }

    // By bucket behind what remains of the passes, or all at the end.
    void reduce_gradients() {
        const std::uint16_t name = out_.graph.name("reduce gradients");
        const CollectiveOp op = in_.plan.zero >= 1 ? CollectiveOp::reduce_scatter : CollectiveOp::all_reduce;
        const double bytes = bytes_of(in_.plan.gradient_precision);
        const auto reduce = [&](const Group& group, const std::uint32_t* part, std::size_t bucket, double weights) {
            std::vector<TaskId> after;
            after.reserve(group.members.size());
            for (const std::uint32_t member : group.members) {
                const std::uint32_t stage = member / per_stage();
                after.push_back(final_[member][part == nullptr ? last_chunk(stage) : chunk_of(*part, stage)][bucket]);
            }
            const auto exchange = [&](CollectiveOp with, double payload) {
                if (payload <= 0) {
                    return;
                }
                const TaskId id = collective(group, kReduceStream, name, with, payload, after);
                for (const std::uint32_t member : group.members) {
                    reduced_[member].push_back(id);
                }
            };
            if (!in_.plan.compression.given) {
                exchange(op, bytes * weights);
                return;
            }
            const CompressedBytes sent = compressed_bytes(in_.plan, weights, static_cast<double>(group.gpus.size()));
            exchange(CollectiveOp::all_reduce, sent.dense);
            exchange(CollectiveOp::all_gather, sent.sparse);
        };
        for (const Holders& holders : holders_) {
            const std::uint32_t stage = holders.stages[0];
            if (!in_.plan.overlap_data) {
                for_groups(holders, stage_parameters(stage),
                           [&](const Group& group, double weights) { reduce(group, nullptr, 0, weights); });
                continue;
            }
            for (const std::uint32_t& part : holders.parts) {
                const std::vector<Bucket>& buckets = buckets_[1][chunk_of(part, stage) * stages_ + stage];
                for (std::size_t i = 0; i < buckets.size(); ++i) {
                    label(without_pass(buckets[i].label));
                    for_groups(holders, buckets[i].weights,
                               [&](const Group& group, double weights) { reduce(group, &part, i, weights); });
                }
            }
        }
        label({});
    }
    // The chunk whose gradients are final last.
    [[nodiscard]] std::uint32_t last_chunk(std::uint32_t stage) const {
        const std::vector<Pass>& passes = schedules_[stage];
        return std::find_if(passes.rbegin(), passes.rend(), [](const Pass& pass) { return pass.ends_micro_batch(); })
            ->chunk;
    }

    // The two ends of a pipeline keep their copies of a shared embedding equal.
    void reduce_embeddings() {
        const std::uint16_t name = out_.graph.name("reduce embedding gradients");
        const double shared = by_unit() ? static_cast<double>(degrees_of(in_.plan).gradients) : 1;
        const double bytes =
            bytes_of(in_.plan.gradient_precision) * in_.model.embedding_parameters() / tensor_ / shared;
        for (std::uint32_t first = 0; first < per_stage(); ++first) {
            const std::uint32_t last = (stages_ - 1) * per_stage() + first;
            const Group group = across_stages({first, last});
            std::vector<TaskId> after = {out_.compute[first].back(), out_.compute[last].back()};
            for (const std::uint32_t rank : group.members) {
                after.insert(after.end(), reduced_[rank].begin(), reduced_[rank].end());
            }
            const TaskId id = collective(group, kReduceStream, name, CollectiveOp::all_reduce, bytes, after);
            reduced_[first].push_back(id);
            reduced_[last].push_back(id);
        }
    }

    StageMap map_;
    PipelineShape shape_;
    std::uint32_t parts_, places_;
    std::vector<std::uint32_t> parts_of_places_;
    std::vector<Layers> layers_;  ///< by part
    PipelineOrder schedules_;
    std::vector<Holders> holders_;
    std::vector<std::uint32_t> prices_[kPassWorks];  ///< by part; empty: there are none
    std::vector<PassWork> last_works_;               ///< by place: of the pass that makes its gradients final
    std::vector<std::vector<Bucket>> buckets_[2];    ///< of the first forward pass and the last backward one: by place
    struct UnitStep {
        const Unit* unit;
        PassWork work;
        bool first;  ///< of the chunk's forward passes
        bool last;   ///< of those that make gradients
        TaskLabel label;
    };
    std::vector<std::vector<UnitPass>> unit_passes_[kPassWorks];  ///< under ZeRO-3: by place
    std::vector<std::vector<UnitStep>> unit_steps_;               ///< of a rank of each stage, in order
    TaskLists unit_tasks_;                                        ///< of these, by rank
    std::uint16_t chosen_ = 0;                                    ///< name of the kernels that compress gradients
    std::vector<TaskId> pass_starts_[2];                          ///< forward, backward: by slot()
    std::vector<TaskId> vocabulary_[2];  ///< scores and their gradients: by rank and micro-batch
    std::map<std::pair<std::uint32_t, PassWork>, std::size_t> searched_;
    TaskLists starts_, ends_;  ///< by rank, of each pass of its schedule
    struct Gathered {
        std::uint32_t bucket;
        TaskId id;
    };
    std::vector<std::vector<std::vector<Gathered>>> gathered_;  ///< by rank and chunk; empty without early gathers
    std::vector<TaskLists> final_;  ///< by rank and chunk: the pieces of the last backward pass
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<std::uint32_t, GroupTransfer>> sends_;
};

}  // namespace

std::optional<TrainingGraph> lower_pipeline(const TrainingInput& input, RankCopies ranks) {
    return PipelineLowering(input, ranks).build();
}

}  // namespace orrery::inline training
