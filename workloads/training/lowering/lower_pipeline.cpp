#include "sim/base/error.hpp"
#include "workloads/training/features/compression.hpp"
#include "workloads/training/lowering/lowering_pipeline.hpp"
#include "workloads/training/schedules/search.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace orrery::training {

PipelineLowering::PipelineLowering(const TrainingInput& input, RankCopies ranks)
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
    ORRERY_ASSERT(layers_.size() == parts_ && first == input.model.layers);
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

void PipelineLowering::add_tasks() {
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
    if (!in_.plan.ends_meet() && in_.model.tied_embeddings && !cuts_vocabulary() && !in_.plan.frozen()) {
        reduce_embeddings();
    }
    if (in_.plan.has<CompressionPlan>()) {
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

void PipelineLowering::find_holders() {
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

void PipelineLowering::join(std::vector<Group>& groups, const std::vector<Group>& others) {
    for (std::size_t i = 0; i < groups.size(); ++i) {
        groups[i].members.insert(groups[i].members.end(), others[i].members.begin(), others[i].members.end());
        groups[i].gpus.insert(groups[i].gpus.end(), others[i].gpus.begin(), others[i].gpus.end());
        for (std::size_t k = 0; k < groups[i].alike.size(); ++k) {
            std::vector<GpuId>& gpus = groups[i].alike[k];
            gpus.insert(gpus.end(), others[i].alike[k].begin(), others[i].alike[k].end());
        }
    }
}

RankWeights PipelineLowering::part_parameters(Layers layers, bool first, bool last, bool any_end) const {
    const double cut = cuts_vocabulary() && any_end ? (in_.model.tied_embeddings ? 1.0 : 2.0) / stages_ : 0;
    return parameters(layers, tables_of(first, last) + cut);
}

RankWeights PipelineLowering::chunk_parameters(std::uint32_t stage, std::uint32_t chunk) const {
    const std::uint32_t v = part_of(chunk * stages_ + stage);
    return part_parameters(layers_[v], v == 0, v + 1 == parts_);
}

RankWeights PipelineLowering::stage_parameters(std::uint32_t stage) const {
    RankWeights sum;
    for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
        sum += chunk_parameters(stage, chunk);
    }
    return sum;
}

void PipelineLowering::price_passes() {
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
            const std::uint32_t price = add_prices([&] { return launched(cost().vocabulary_pass(work)); });
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

TaskLabel PipelineLowering::label_of(std::uint32_t place, Layers layers, bool begins, bool ends, PassWork work) const {
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

TaskLabel PipelineLowering::transfer_label(std::uint32_t place, Layers layers) const {
    TaskLabel out;
    out.chunk = chunks_ > 1 ? static_cast<std::int32_t>(place / stages_) : -1;
    out.layer = layers.count > 0 ? static_cast<std::int32_t>(layers.first) : -1;
    out.layers = layers.count;
    return out;
}

std::vector<PipelineLowering::Bucket> PipelineLowering::buckets_of(std::uint32_t place, bool backward) {
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
        const RankWeights held = count == 1
                                     ? weights
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
        if (backward && in_.plan.has<CompressionPlan>()) {
            out.back().compress = add_prices([&] { return traffic(compress_traffic(in_.plan, held.total())); });
        }
    }
    return out;
}

std::vector<PipelineLowering::UnitPass> PipelineLowering::units_of(std::uint32_t place, PassWork work) {
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
        add(layers, begins, ends, Unit{part_parameters(layers, front, v + 1 == parts_ && (backward ? begins : ends))});
    }
    if (backward) {
        add_encoder();
    }
    return out;
}

void PipelineLowering::add_passes() {
    constexpr std::array<const char*, kPassWorks> kNames = {"forward",          "backward",      "input gradients",
                                                            "weight gradients", "output scores", "output gradients"};
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
    if (in_.plan.has<CompressionPlan>()) {
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
            const bool in_buckets = pass.work == PassWork::forward ? i == first[pass.chunk]
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

void PipelineLowering::add_pass(std::uint32_t rank, const Pass& pass, std::uint16_t name, bool in_buckets) {
    const std::uint32_t place = pass.chunk * stages_ + rank / per_stage();
    ORRERY_ASSERT(place < places_ && pass.micro_batch < micro_batches_);
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
    ORRERY_ASSERT(!pieces.empty());
    starts_[rank].push_back(begin_of(pieces.front()));
    ends_[rank].push_back(pieces.back());
    if (in_buckets && backward) {
        final_[rank][pass.chunk] = sent.empty() ? std::move(pieces) : std::move(sent);
    } else if (in_buckets && !gathered_.empty()) {
        for (const Gathered& gathered : gathered_[rank][pass.chunk]) {
            out_.graph.add_edge(gathered.id, begin_of(pieces[gathered.bucket]));
        }
    }
}

std::optional<TrainingGraph> lower_pipeline(const TrainingInput& input, RankCopies ranks) {
    return PipelineLowering(input, ranks).build();
}

}  // namespace orrery::training
