#include "workloads/training/plan/spec.hpp"

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "workloads/training/plan/encoder.hpp"
#include "workloads/training/plan/name_list.hpp"
#include "workloads/training/plan/state_space.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace orrery::training {

static void describe(Fields& fields, ExpertPlan& experts) {
    fields.integer({"expert", "ranks of a stage that a layer's experts are divided over", false, 1, 100'000},
                   experts.expert);
    fields.integer({"expert_tensor", "ranks that each expert is cut over; 0: as tensor", false, 0, 1024},
                   experts.tensor);
    fields.enumeration(
        {"dispatch", "tokens to experts: a copy for each choice, all to all ranks, or one to each node first"},
        {"all-to-all", "all-gather", "hierarchical"}, experts.dispatch);
    fields.enumeration({"dispatch_precision", "precision of tokens on their way to experts; fp8 with its scales"},
                       training_precision_names(), experts.dispatch_precision);
    fields.enumeration({"combine_precision", "precision of what experts send back; gradients go in 16 bits both ways"},
                       training_precision_names(), experts.combine_precision);
    fields.number({"capacity", "rows that an expert takes at most, over the mean of all; 0: all", false, 0, 1000},
                  experts.capacity);
    fields.boolean({"pad", "experts compute as many rows as their capacity"}, experts.pad);
    fields.integer({"shadowed",
                    "most wanted experts, whose weights every rank gathers, and whose gradients all sum, in place of "
                    "exchanging their tokens (FasterMoE, Hecate)",
                    false, 0, 100'000},
                   experts.shadowed);
    fields.integer({"expert_pieces",
                    "parts of a micro-batch's tokens, so that exchanges of one hide behind the products of another "
                    "(Tutel, FSMoE)",
                    false, 1, 64},
                   experts.pieces);
    fields.number(
        {"router_exponent", "exponent of Zipf's law of how often experts are chosen; 0: all alike", false, 0, 10},
        experts.exponent);
    fields.items({"router_loads", "frequency with which each expert is chosen; none: by the law"}, experts.loads,
                 [](Fields& inner, double& load) {
                     inner.number({"load", "load of this expert, in any unit", true, 0, 1e15}, load);
                 });
}

const std::vector<std::string>& context_exchange_names() {
    static const std::vector<std::string> kNames = {"ring",       "gathered-ring", "all-gather",
                                                    "all-to-all", "two-way",       "hierarchical"};
    return kNames;
}

// A word, or a map with what the schedule takes.
static void describe_schedule(Fields& fields, PlanSpec& plan) {
    const auto& schedules = schedule_table();
    std::vector<std::string> names;
    for (const PipelineSchedule* row : schedules) {
        names.emplace_back(row->name);
    }
    auto index =
        static_cast<std::size_t>(std::find(schedules.begin(), schedules.end(), plan.schedule) - schedules.begin());
    bool searches = schedules[index]->search != nullptr;
    fields.variant({"schedule", "pipeline schedule"}, names, index, searches, [&](Fields& inner) {
        const auto limits = [&](Fields& own) {
            own.integer({"held",
                         "micro-batches whose activations a stage may hold; 0: as many as stages, which is what 1f1b's "
                         "first stage holds",
                         false, 0, 1'000'000},
                        plan.search.held);
            own.quantity({"activations", "memory that a stage's activations may take; 0: as held says", false, 0, 1e15},
                         Dimension::bytes, plan.search.activations);
            own.integer({"tries",
                         "nodes of an integer program that are looked at, and ten times as many orders; 0: rules alone",
                         false, 0, 20'000},
                        plan.search.tries);
        };
        const PipelineSchedule& chosen = *schedules[index];
        if (inner.names_all()) {
            inner.alternative("search", schedule_named("search").description, limits);
        } else if (chosen.search != nullptr) {
            limits(inner);
        }
    });
    plan.schedule = schedules[index];
}

void describe(Fields& fields, PlanSpec& plan) {
    // Ranks that hold the same weights, of experts or of the rest; layers that are offloaded move by the same keys.
    const bool cut = plan.tensor > 1 || plan.expert_tensor() > 1;
    const bool replicated = std::max(plan.data * plan.context, plan.expert_data()) > plan.islands() || plan.by_layer();
    constexpr const char* kCut = "tensor parallelism (plan.tensor above 1)";
    constexpr const char* kReplicated =
        "ranks that hold the same weights (plan.data above 1, and above plan.outer.workers)";
    constexpr const char* kGradients =
        "gradients that are summed over ranks (plan.data above 1, and above plan.outer.workers; zeroth_order has none "
        "but under zero: 3)";
    constexpr const char* kGathered = "weights that are gathered once per step (zero: 1 or 2, and plan.data above 1)";
    fields.integer({"tensor", "tensor-parallel degree", false, 1, 1024}, plan.tensor);
    fields.integer({"pipeline", "pipeline stages", false, 1, 10000}, plan.pipeline);
    fields.integer({"data", "data-parallel degree", false, 1, 1'000'000}, plan.data);
    fields.integer({"context", "context-parallel degree", false, 1, 1024}, plan.context);
    fields.enumeration({"context_exchange",
                        "exchange among the ranks of a sequence: keys and values in a ring, gathered behind the first "
                        "piece, or gathered before one kernel; tokens for heads; queries one way and results another; "
                        "tokens for heads among neighbours, and a ring over these"},
                       context_exchange_names(), plan.context_exchange);
    fields.integer(
        {"context_inner", "context_exchange: hierarchical: neighbours that exchange tokens for heads", false, 0, 1024},
        plan.context_inner);
    fields.integer({"micro_batch", "sequences in a micro-batch", false, 1, 1'000'000}, plan.micro_batch);
    fields.integer({"global_batch", "sequences in a step, over all ranks", true, 1, 1'000'000'000}, plan.global_batch);
    fields.text({"groups", "groups of the cluster in the order in which ranks fill them, by commas: those named first"},
                plan.groups);
    fields.when(
        plan.pipeline > 1 && plan.data > 1, "replicas of several stages (plan.pipeline and plan.data above 1)",
        [&](Fields& same) {
            same.enumeration(
                {"spread", "ranks fill nodes stage after stage, or replica after replica with all its stages"},
                {"stages", "replicas"}, plan.spread);
        },
        Unmet::noted);
    describe_schedule(fields, plan);
    fields.integer({"chunks", "model chunks a stage, where the schedule takes several", false, 1, 1000}, plan.chunks);
    fields.items({"stages", "layers of each part of the model, in order; none: as even as can be"}, plan.stages,
                 [](Fields& inner, std::int64_t& layers) {
                     inner.integer(
                         {"layers", "layers of this part; only the first and the last may have none", true, 0, 100'000},
                         layers);
                 });
    fields.enumeration(
        {"vocabulary_parallel",
         "embedding and output layer: on the ends, or cut over all stages, which meet in so many barriers"},
        {"none", "two-barriers", "one-barrier"}, plan.vocabulary);
    fields.when(
        plan.recompute != Recompute::selective || plan.attention == AttentionKernel::unfused,
        "attention: unfused, as fused attention recomputes its scores by itself",
        [&](Fields& same) {
            same.enumeration({"recompute", "activation recomputation"},
                             {"none", "selective", "half", "full", "experts", "modules"}, plan.recompute);
        },
        Unmet::noted);
    fields.integer({"recompute_layers", "recompute: full: layers of each stage or chunk that it covers; 0: all", false,
                    0, 100'000},
                   plan.recompute_layers);
    fields.text({"recompute_modules", "recompute: modules: of norm, activation, attention and ffn, by commas"},
                plan.recompute_modules);
    fields.when(
        cut, kCut,
        [&](Fields& same) {
            same.boolean({"sequence_parallel", "shard norms and dropout over the tensor-parallel group"},
                         plan.sequence_parallel);
        },
        Unmet::noted);
    fields.when(
        replicated || plan.zero != 1, kReplicated,
        [&](Fields& same) {
            same.integer({"zero", "ZeRO stage (3: FSDP)", false, 0, 3}, plan.zero);
        },
        Unmet::noted);
    fields.integer({"shard", "ranks that share weights under ZeRO-3; 0: all", false, 0, 1'000'000}, plan.shard);
    fields.enumeration({"precision", "precision of matrix products; fp4: NVFP4"}, training_precision_names(),
                       plan.precision);
    fields.when(plan.precision == Precision::fp8, "precision: fp8", [&](Fields& same) {
        same.enumeration(
            {"fp8_scaling",
             "scales of fp8 operands: a tensor's of earlier steps, or of this one, a row's, or a block's (MXFP8)"},
            {"delayed", "current", "row", "block"}, plan.fp8_scaling);
    });
    fields.enumeration({"attention", "attention kernel; software: what the software runs"},
                       {"unfused", "flash", "flash2", "flash1", "software"}, plan.asked_attention);
    fields.enumeration({"fusion", "elementwise kernels: fused, or one an operation"}, {"fused", "eager"}, plan.fusion);
    fields.enumeration(
        {"loss",
         "kernels of the loss: one for each step, compiled together, one for each pass, or fused over 16-bit logits"},
        {"separate", "compiled", "online", "fused", "software"}, plan.loss);
    fields.enumeration(
        {"gradient_precision", "precision of gradients on the wire, and of their sums over micro-batches"},
        training_precision_names(), plan.gradient_precision);
    fields.enumeration(
        {"gather_precision",
         "precision of what tensor-parallel ranks gather (sequence_parallel); fp8: products take it as it comes"},
        training_precision_names(), "software", plan.gather_precision);
    describe(fields, plan.experts);
    plan.features.describe(fields);
    fields.section({"overlap", "communication that hides behind computation"}, [&](Fields& inner) {
        inner.when(
            cut, kCut,
            [&](Fields& same) {
                same.enumeration(
                    {"tensor",
                     "none; backward: behind weight gradients; full: also chunked into GEMMs; tiles: a product's "
                     "tiles start the reduction after it"},
                    {"none", "backward", "full", "tiles"}, plan.overlap_tensor);
            },
            Unmet::noted);
        inner.boolean({"near_memory", "with tensor: tiles: memory adds arriving values to those that it holds"},
                      plan.near_memory_sums);
        inner.when(
            plan.pipeline > 1, "pipeline stages (plan.pipeline above 1)",
            [&](Fields& same) {
                same.boolean({"pipeline", "stages do not wait for their sends"}, plan.overlap_pipeline);
            },
            Unmet::noted);
        inner.boolean({"context", "pieces of a ring are attended to while the next ones are on their way"},
                      plan.overlap_context);
        inner.when(
            replicated && (plan.sums_gradients() || plan.zero == 3), kGradients,
            [&](Fields& same) {
                same.boolean({"data", "gradient reduction starts as soon as a chunk's gradients are final"},
                             plan.overlap_data);
            },
            Unmet::noted);
        inner.when(
            plan.zero >= 1 && plan.zero < 3 && replicated, kGathered,
            [&](Fields& same) {
                same.boolean({"parameters", "weights of ZeRO-1 are gathered behind the first forward passes"},
                             plan.overlap_parameters);
            },
            Unmet::noted);
        inner.enumeration({"experts", "tokens' exchanges: none; behind shared experts; behind all kernels of a pass"},
                          {"none", "shared", "batches"}, plan.experts.overlap);
    });
}

void describe(Fields& fields, SoftwareSpec& software) {
    fields.text({"name", "name of the generation"}, software.name);
    fields.sourced({"kernel_slowdown", "kernel time in a training step over that in a microbenchmark", true, 0.5, 3},
                   Dimension::fraction, software.kernel_slowdown);
    fields.sourced(
        {"launch", "time of the host per kernel or collective of a pass, which long kernels hide", true, 0, 1e-2},
        Dimension::time, software.launch);
    fields.enumeration({"graphs",
                        "parts that are replayed as CUDA graphs: none; layers, except exchanges and products of "
                        "experts; all passes of an iteration"},
                       {"none", "layers", "iteration"}, software.graphs);
    fields.sourced({"expert_wait",
                    "time per forward pass of a layer of experts in which the device waits for the host, which needs "
                    "the tokens of "
                    "each expert; none with graphs or with a padded capacity",
                    false, 0, 1},
                   Dimension::time, software.expert_wait);
    fields.boolean(
        {"pipeline_sync", "the host waits for the device where a stage has sent or received, unless overlap.pipeline"},
        software.pipeline_sync);
    fields.boolean(
        {"blocking_launches",
         "the host launches a kernel or collective when the one before it has ended (CUDA_LAUNCH_BLOCKING=1), so "
         "that none of its time hides"},
        software.blocking_launches);
    fields.boolean(
        {"waits_at_ends", "with overlap.pipeline, a stage waits for its sends while the pipeline fills and drains"},
        software.waits_at_ends);
    fields.sourced({"step_overhead", "time per iteration beyond its passes", true, 0, 60}, Dimension::time,
                   software.step_overhead);
    fields.sourced(
        {"update_bytes",
         "bytes that the optimizer's kernels move per updated weight, beside 6 that widen a gradient of 16 bits "
         "(0: 42 in all: one kernel of Adam, and a pass each to unscale, to take the norm and to zero)",
         false, 0, 1000},
        Dimension::number, software.update_bytes);
    fields.sourced({"gradient_sweeps",
                    "times per step that all gradients of a rank are read or written beside their reduction: to zero, "
                    "check, scale or copy them",
                    false, 0, 100},
                   Dimension::number, software.gradient_sweeps);
    fields.boolean(
        {"keeps_gradients",
         "gradients of 16 bits stay beside sums of 32 bits, unless these are part of their products: 26 bytes move per "
         "weight and micro-batch, not 10, and 2 more are held"},
        software.keeps_gradients);
    fields.boolean({"fused_norms", "a norm is one kernel, with plan.fusion: eager too"}, software.fused_norms);
    fields.enumeration({"loss", "kernels of the loss, where the plan names none"},
                       {"separate", "compiled", "online", "fused"}, software.loss);
    fields.enumeration({"attention", "attention kernel, where the plan names none"},
                       {"unfused", "flash", "flash2", "flash1"}, software.attention);
    fields.boolean({"fused_casts", "casts to fp8 by known scales are part of the norm before a product"},
                   software.fused_casts);
    fields.boolean(
        {"fused_activation_casts",
         "casts to fp8 by known scales are part of the activation function before a product, and of its backward pass"},
        software.fused_activation_casts);
    fields.sourced({"column_casts",
                    "share of the memory's rate that casts with scales of rows reach in the backward pass, where they "
                    "reduce over columns (0: all)",
                    false, 0, 1},
                   Dimension::fraction, software.column_casts);
    fields.boolean({"cuts_only",
                    "overlap.tensor: full hides what it cuts into one product, and neither sums of several products' "
                    "gradients nor inputs that are gathered again"},
                   software.cuts_only);
    fields.boolean({"whole_row_gathers",
                    "overlap.tensor: full does not cut gathers before products in 8 bits with scales of rows"},
                   software.whole_row_gathers);
    fields.sourced({"scan_efficiency",
                    "share of the vector units' 32-bit rate that kernels of a state-space scan reach at most; 0: as "
                    "measured for mamba_ssm",
                    false, 0, 1},
                   Dimension::fraction, software.scan_efficiency);
    fields.boolean(
        {"rescales_products", "the result of a backward product with scales of rows is scaled by a kernel of its own"},
        software.rescales_products);
    fields.sourced(
        {"communication_units", "SMs or CUs that a collective takes from the kernels beside it", false, 0, 1000},
        Dimension::number, software.communication_units);
    fields.sourced(
        {"tensor_communication_units", "the same of collectives that overlap.tensor: full cuts", false, 0, 1000},
        Dimension::number, software.tensor_communication_units);
    fields.sourced({"gradient_bucket", "weights whose gradients travel together (0: 40 million)", false, 0, 1e12},
                   Dimension::number, software.gradient_bucket);
    fields.sourced({"gradient_bucket_per_rank", "the same per data-parallel rank, where that is more", false, 0, 1e9},
                   Dimension::number, software.gradient_bucket_per_rank);
    fields.boolean({"fused_gradient_accumulation", "weight gradients are added in the GEMM's epilogue"},
                   software.fused_gradient_accumulation);
    fields.boolean({"fused_biases", "biases are added, and their gradients summed, by the kernels of products"},
                   software.fused_biases);
    fields.boolean({"repeats_keys", "grouped keys and values are copied for every query head before attention"},
                   software.repeats_keys);
    fields.boolean(
        {"copies_sequences",
         "under sequence parallelism what was gathered, or is to be summed, is copied, as the sequence is not "
         "the outermost dimension; not where overlap.tensor cuts it"},
        software.copies_sequences);
    fields.boolean({"splits_heads",
                    "queries, keys and values are copied apart before fused attention, and their gradients together"},
                   software.splits_heads);
    fields.boolean({"scatter_gather_pipeline", "each tensor-parallel rank sends its share between stages"},
                   software.scatter_gather_pipeline);
    fields.integer({"gathers_per_layer", "collectives that ZeRO-3 gathers a layer's weights with", false, 1, 1000},
                   software.gathers_per_layer);
    fields.integer({"reductions_per_layer", "collectives that ZeRO-3 reduces a layer's gradients with", false, 1, 1000},
                   software.reductions_per_layer);
    fields.boolean({"unpacks_gathers", "ZeRO-3 copies gathered weights out of the buffer of the collective"},
                   software.unpacks_gathers);
    fields.boolean({"packs_gradients", "ZeRO-2 and 3 copy gradients into the buffer of the collective"},
                   software.packs_gradients);
    fields.boolean({"regathers", "full recomputation gathers weights that its backward pass gathers again"},
                   software.regathers);
    fields.sourced(
        {"piece_time", "host time for each rank's piece of a collective over a list of tensors", false, 0, 1e-3},
        Dimension::time, software.piece_time);
    fields.sourced({"interval",
                    "half-width of the 90 % interval of an iteration time that the software leaves (0: of all presets)",
                    false, 0, 2},
                   Dimension::fraction, software.interval);
    fields.sourced({"reserved_memory", "memory a GPU for context and library buffers", true, 0, 1e12}, Dimension::bytes,
                   software.reserved_memory);
}

bool PlanSpec::overlaps() const {
    const bool ring = context > 1 && context_exchange != ContextExchange::all_gather &&
                      context_exchange != ContextExchange::all_to_all;
    return overlap_tensor != TensorOverlap::none || overlap_pipeline || (ring && overlap_context) || overlap_data ||
           overlap_parameters || experts.overlap != ExpertOverlap::none || experts.pieces > 1 ||
           features.any([](const PlanFeature& one) { return one.overlaps(); });
}

LossKernels loss_kernels(const PlanSpec& plan, const SoftwareSpec& software) {
    if (plan.loss != LossKernels::software) {
        return plan.loss;
    }
    return plan.fusion == Fusion::eager ? LossKernels::separate : software.loss;
}

double SoftwareSpec::bucket_weights(double ranks) const {
    constexpr double kMegatronCore = 40e6;  // DistributedDataParallelConfig.bucket_size: max(40e6, 1e6 * ranks)
    const double least = gradient_bucket.value > 0 ? gradient_bucket.value : kMegatronCore;
    return std::max(least, gradient_bucket_per_rank.value * ranks);
}

LayerMix mix_of(const ModelSpec& model, std::int64_t first, std::int64_t count, bool front) {
    LayerMix mix;
    if (front && model.encoder.given()) {
        mix.encoder = static_cast<double>(model.encoder.layers);
        mix.projector = 1;
    }
    for (std::int64_t layer = first; layer < first + count; ++layer) {
        const LayerKind kind = model.kind_of(layer);
        double& of = kind.part == LayerPart::attention      ? mix.attention
                     : kind.part == LayerPart::feed_forward ? mix.feed_forward
                     : kind.part == LayerPart::state_space  ? mix.state_space
                     : kind.experts                         ? mix.experts
                                                            : mix.dense;
        of += 1;
    }
    return mix;
}

std::vector<std::uint32_t> split_layers(std::int64_t layers, std::int64_t chunks) {
    const bool ends_count = layers % chunks != 0 && (layers + 2) % chunks == 0 && chunks > 1;
    const std::int64_t total = ends_count ? layers + 2 : layers;
    std::vector<std::uint32_t> out(static_cast<std::size_t>(chunks), static_cast<std::uint32_t>(total / chunks));
    for (std::int64_t i = 0; i < total % chunks; ++i) {
        ++out[static_cast<std::size_t>(i)];
    }
    if (ends_count) {
        --out.front();
        --out.back();
    }
    return out;
}

std::vector<std::uint32_t> layers_of_parts(const ModelSpec& model, const PlanSpec& plan) {
    if (plan.stages.empty()) {
        return split_layers(model.layers, plan.parts());
    }
    return {plan.stages.begin(), plan.stages.end()};
}

RankWeights weights_of(const ModelSpec& model, const PlanSpec& plan, const LayerMix& layers, double tables) {
    std::optional<RankWeights> own;
    plan.features.each([&](const PlanFeature& one) { own = own ? own : one.own_weights(model, plan, layers, tables); });
    if (own) {
        return *own;
    }
    const double beside =
        model.attention_parameters() + model.unrouted_parameters() + 4 * static_cast<double>(model.hidden);
    double parts = 0;  // of a hybrid
    if (model.hybrid()) {
        parts = layers.attention * model.parameters_of(LayerPart::attention) +
                layers.feed_forward * model.parameters_of(LayerPart::feed_forward) +
                layers.state_space * model.parameters_of(LayerPart::state_space);
    }
    RankWeights out = {
        (layers.dense * model.layer_parameters() + layers.experts * beside + parts +
         tables * model.embedding_parameters()) /
            static_cast<double>(plan.tensor),
        layers.experts * model.routed_parameters() / static_cast<double>(plan.experts.expert * plan.expert_tensor())};
    return model.encoder.given() ? out += encoder_weights(model, plan, layers) : out;
}

double updated_weights(const PlanSpec& plan, const RankWeights& weights) {
    if (plan.zero == 0) {
        return weights.total();
    }
    return weights.dense / static_cast<double>(degrees_of(plan).optimizer) +
           weights.experts / static_cast<double>(plan.expert_data() * plan.copies());
}

// Of an iteration: lists of more would fill the memory before the tasks made of them are counted.
constexpr double kMostPasses = 1e8;

namespace {

/// All that is wrong with a plan: what can never be right, and what does not divide.
struct Problems {
    std::vector<Diagnostic> errors;
    std::vector<std::string> unfit;
    const Mark& mark;

    void refuse(bool wrong, const std::string& text) {
        if (wrong) {
            errors.push_back(mark.error(text));
        }
    }
    void require(bool fits, const std::string& text) {
        if (!fits) {
            unfit.push_back(text);
        }
    }
    void raise() const {
        if (!errors.empty()) {
            throw ConfigError(errors);
        }
        if (!unfit.empty()) {
            throw InfeasibleError(fmt::format("the plan does not divide: {}", fmt::join(unfit, "; ")),
                                  ErrorCode::does_not_divide);
        }
    }
};

void check_experts(const ModelSpec& model, const PlanSpec& plan, Problems& problems) {
    const ExpertsSpec& experts = model.experts;
    const ExpertPlan& own = plan.experts;
    if (experts.count == 0) {
        problems.refuse(own.spread() || plan.recompute == Recompute::experts,
                        "the plan says how experts are spread, and this model has none");
        return;
    }
    problems.refuse(
        experts.topk < 1 || experts.topk > experts.count || experts.ffn < 1,
        fmt::format("a token goes to {} of {} experts of width {}: 1 to all of them, and a width, are needed",
                    experts.topk, experts.count, experts.ffn));
    problems.refuse(model.expert_layers() < 1,
                    fmt::format("dense_layers {} and every {} leave none of the {} layers for experts",
                                experts.dense_layers, experts.every, model.layers));
    problems.refuse(experts.group_topk > experts.groups,
                    fmt::format("group_topk {} is more than the {} groups", experts.group_topk, experts.groups));
    problems.refuse(experts.groups > 0 && experts.count % experts.groups != 0,
                    fmt::format("groups {} must divide the {} experts", experts.groups, experts.count));
    problems.refuse(model.parallel_block, "parallel_block with experts is not modelled");
    problems.refuse(plan.tensor > 1 && !plan.sequence_parallel,
                    "experts with tensor above 1 need sequence_parallel: true: ranks route tokens of their own");
    problems.refuse(own.pad && own.capacity <= 0, "pad needs a capacity");
    problems.refuse(own.exponent > 0 && !own.loads.empty(), "router_exponent and router_loads say the same: give one");
    problems.refuse(!own.loads.empty() && own.loads.size() != static_cast<std::size_t>(experts.count),
                    fmt::format("router_loads has {} entries for {} experts", own.loads.size(), experts.count));
    problems.refuse(
        !own.loads.empty() && std::all_of(own.loads.begin(), own.loads.end(), [](double load) { return load <= 0; }),
        "router_loads: some expert must be chosen");
    problems.refuse(own.shadowed > experts.count,
                    fmt::format("shadowed {} is more than the {} experts", own.shadowed, experts.count));
    problems.refuse(
        own.shadowed > 0 && (own.pad || own.dispatch == TokenDispatch::all_gather || own.expert < 2),
        "shadowed experts need expert of at least 2, and a dispatch of tokens by their choices: all-to-all or "
        "hierarchical, without pad");
    problems.refuse((own.shadowed > 0 || own.pieces > 1) && own.overlap == ExpertOverlap::batches,
                    "overlap.experts: batches hides all exchanges already: without shadowed and expert_pieces");
    problems.refuse(own.overlap == ExpertOverlap::shared && experts.shared == 0,
                    "overlap.experts: shared needs shared experts");
    problems.refuse(plan.shard > 0, "shard with experts is not modelled: use zero: 3 over all ranks");
    problems.require(experts.count % own.expert == 0,
                     fmt::format("expert {} must divide the {} experts", own.expert, experts.count));
    const std::int64_t spread = own.expert * plan.expert_tensor();
    problems.require(
        plan.stage_ranks() % spread == 0,
        fmt::format("expert {} x expert_tensor {} must divide the {} ranks of a stage (tensor x context x data)",
                    own.expert, plan.expert_tensor(), plan.stage_ranks()));
    problems.require(
        experts.ffn % plan.expert_tensor() == 0,
        fmt::format("expert_tensor {} must divide the width {} of an expert", plan.expert_tensor(), experts.ffn));
    problems.require(
        experts.shared % plan.tensor == 0,
        fmt::format("tensor {} must divide the width {} of the shared experts", plan.tensor, experts.shared));
}

}  // namespace

std::int64_t PlanSpec::islands() const {
    std::int64_t out = 1;
    features.each([&](const PlanFeature& one) { out *= one.islands(); });
    return std::max<std::int64_t>(1, out);
}

std::int64_t PlanSpec::sharers() const {
    std::int64_t out = 1;
    features.each([&](const PlanFeature& one) { out *= one.sharers(); });
    return out;
}

bool PlanSpec::sums_gradients() const {
    return !features.any([](const PlanFeature& one) { return !one.sums_gradients(); });
}

bool PlanSpec::frozen() const {
    return features.any([](const PlanFeature& one) { return one.freezes(); });
}

bool PlanSpec::by_layer() const {
    return (pipeline == 1 && zero >= 2) || features.any([&](const PlanFeature& one) { return one.by_layer(*this); });
}

PlanProblems feature_problems(const ModelSpec& model, const PlanSpec& plan) {
    PlanProblems out;
    plan.features.each([&](const PlanFeature& one) { one.check(model, plan, out); });
    return out;
}

std::vector<std::string> resolve_features(PlanSpec& plan) {
    std::vector<std::string> out;
    const FeatureSet given = plan.features;
    given.each([&](const PlanFeature& one) {
        const std::vector<std::string> problems = one.resolve(plan);
        out.insert(out.end(), problems.begin(), problems.end());
    });
    return out;
}

ShardDegrees degrees_of(const PlanSpec& plan) {
    const std::int64_t all = plan.alike();
    const std::int64_t shard = plan.shard > 0 ? plan.shard : all;
    ShardDegrees out = {plan.zero >= 3 ? shard : 1, plan.zero >= 2 ? shard : 1,
                        plan.zero >= 3   ? shard
                        : plan.zero >= 1 ? all
                                         : 1,
                        0};
    plan.features.each([&](const PlanFeature& one) { one.share(plan, out); });
    return out;
}

double flops_per_token(const ModelSpec& model, const PlanSpec& plan) {
    std::optional<double> own;
    plan.features.each([&](const PlanFeature& one) { own = own ? own : one.flops_per_token(model, plan); });
    return own ? *own : model.flops_per_token();
}

static const std::vector<std::string>& module_names() {
    static const std::vector<std::string> kNames = {"norm", "activation", "attention", "ffn"};
    return kNames;
}

double PlanSpec::operand_bytes() const {
    constexpr double kBlockScale = 1.0 / 32;  // MXFP8: 1 byte for 32 values; of Hopper: 4 for 128
    constexpr double kFp4Scale = 1.0 / 16;    // NVFP4: 1 byte for 16 values
    switch (precision) {
        case Precision::fp8:
            return 1 + (fp8_scaling == Fp8Scaling::block ? kBlockScale : 0);
        case Precision::fp4:
            return 0.5 + kFp4Scale;
        default:
            return 2;
    }
}

RecomputeModules PlanSpec::modules() const {
    RecomputeModules out;
    if (recompute != Recompute::modules) {
        return out;
    }
    const std::vector<std::string> given = names_in(recompute_modules);
    bool* const members[] = {&out.norm, &out.activation, &out.attention, &out.ffn};
    for (std::size_t i = 0; i < module_names().size(); ++i) {
        *members[i] = std::find(given.begin(), given.end(), module_names()[i]) != given.end();
    }
    return out;
}

static void check_recomputation(const PlanSpec& plan, Problems& problems) {
    problems.refuse(plan.recompute_layers > 0 && plan.recompute != Recompute::full,
                    "recompute_layers needs recompute: full");
    problems.refuse(plan.recompute_layers > 0 && !plan.stages.empty(),
                    "recompute_layers with stages of given lengths is not modelled");
    const std::vector<std::string> given = names_in(plan.recompute_modules);
    problems.refuse(given.empty() != (plan.recompute != Recompute::modules),
                    "recompute: modules and recompute_modules belong together");
    for (const std::string& name : given) {
        const auto& names = module_names();
        const std::string nearest = nearest_name(name, names);
        problems.refuse(std::find(names.begin(), names.end(), name) == names.end(),
                        fmt::format("recompute_modules names '{}'; there are {}{}", name, fmt::join(names, ", "),
                                    nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest)));
    }
    problems.refuse(plan.modules().ffn && plan.modules().activation,
                    "recompute_modules: ffn holds the activation function already");
}

static void check_pipeline(const ModelSpec& model, const PlanSpec& plan, Problems& problems) {
    if (plan.zero == 3 && plan.pipeline > 1) {
        problems.refuse(plan.copies() > 1,
                        fmt::format("zero: 3 with schedule: {} is not modelled", plan.schedule->name));
        problems.refuse(plan.vocabulary != VocabularyParallel::none,
                        "zero: 3 with vocabulary_parallel is not modelled");
    }
    const auto parts = static_cast<std::size_t>(plan.parts());
    if (!plan.stages.empty()) {
        std::int64_t layers = 0;
        for (std::size_t i = 0; i < plan.stages.size(); ++i) {
            layers += plan.stages[i];
            problems.refuse(plan.stages[i] == 0 && i > 0 && i + 1 < plan.stages.size(),
                            fmt::format("stages: part {} has no layer, which only the first and the last may", i));
        }
        problems.refuse(plan.stages.size() != parts,
                        fmt::format("stages lists {} parts, and {} on {} stages makes {} of the model",
                                    plan.stages.size(), plan.schedule->name, plan.pipeline, parts));
        problems.refuse(layers != model.layers,
                        fmt::format("stages hold {} layers in all, and the model has {}", layers, model.layers));
    }
    if (plan.vocabulary != VocabularyParallel::none) {
        std::vector<std::string> able;
        for (const PipelineSchedule* row : schedule_table()) {
            if (row->cuts_vocabulary) {
                able.emplace_back(row->name);
            }
        }
        problems.refuse(!plan.schedule->cuts_vocabulary,
                        fmt::format("vocabulary_parallel needs schedule: {}", fmt::join(able, " or ")));
        problems.refuse(plan.pipeline < 2,
                        "vocabulary_parallel cuts the vocabulary over stages: pipeline of at least 2");
        problems.refuse(plan.sequence_parallel && plan.tensor > 1,
                        "vocabulary_parallel with sequence_parallel is not modelled");
    }
}

static void check_context(const ModelSpec& model, const PlanSpec& plan, Problems& problems) {
    const std::int64_t c = plan.context;
    problems.require(model.sequence % c == 0, fmt::format("context {} must divide the sequence {}", c, model.sequence));
    problems.refuse(model.latent.kv_rank > 0 && (plan.attention == AttentionKernel::unfused || c > 1),
                    "latent attention is trained with attention: flash, and without context parallelism");
    // Unfused attention computes all scores, and the kernels of a ring see no window.
    problems.refuse(model.attention.name() != "standard" && (plan.attention == AttentionKernel::unfused || c > 1),
                    fmt::format("model.attention: {} is trained with a fused kernel (plan.attention other than "
                                "unfused), and without context parallelism",
                                model.attention.name()));
    const bool ring = plan.context_exchange == ContextExchange::ring;
    if (c == 1) {
        problems.refuse(!ring || plan.context_inner > 0, "context_exchange and context_inner need context above 1");
        problems.refuse(!plan.overlap_context, "overlap.context: false needs context above 1");
        return;
    }
    const bool whole =
        plan.context_exchange == ContextExchange::all_gather || plan.context_exchange == ContextExchange::all_to_all;
    const bool hierarchical = plan.context_exchange == ContextExchange::hierarchical;
    problems.refuse(!plan.overlap_context && whole,
                    "overlap.context: false needs a ring, whose pieces exchanges hide behind: context_exchange: ring, "
                    "gathered-ring, two-way or hierarchical");
    problems.refuse(plan.attention == AttentionKernel::unfused && !whole,
                    "attention: unfused over several context ranks needs context_exchange: all-gather or all-to-all");
    problems.refuse(plan.context_inner > 0 && !hierarchical, "context_inner needs context_exchange: hierarchical");
    problems.refuse(hierarchical && plan.context_inner < 2,
                    "context_exchange: hierarchical needs context_inner of at least 2");
    const std::int64_t inner = plan.head_ranks();
    problems.require(inner < 1 || c % inner == 0, fmt::format("context_inner {} must divide context {}", inner, c));
    problems.require(
        inner < 1 || model.kv_heads % (plan.tensor * inner) == 0,
        fmt::format("tensor {} x {} ranks that exchange tokens for heads must divide the {} heads of keys and values",
                    plan.tensor, inner, model.kv_heads));
}

void check_spec(const ModelSpec& model, const PlanSpec& plan, std::uint32_t gpus, const Mark& mark) {
    Problems problems{{}, {}, mark};
    const auto require = [&](bool fits, const std::string& text) { problems.require(fits, text); };
    problems.refuse(model.heads % model.kv_heads != 0,
                    fmt::format("kv_heads ({}) must divide heads ({})", model.kv_heads, model.heads));
    check_context(model, plan, problems);
    check_experts(model, plan, problems);
    require(plan.ranks() == gpus,
            fmt::format("tensor {} x pipeline {} x data {} x context {} = {} ranks, but the cluster "
                        "has {} GPUs",
                        plan.tensor, plan.pipeline, plan.data, plan.context, plan.ranks(), gpus));
    require(model.layers_with(LayerPart::attention) == 0 || model.heads % plan.tensor == 0,
            fmt::format("tensor {} must divide the {} heads", plan.tensor, model.heads));
    require(model.layers_with(LayerPart::feed_forward) == 0 || model.ffn % plan.tensor == 0,
            fmt::format("tensor {} must divide the feed-forward width {}", plan.tensor, model.ffn));
    require(plan.global_batch * plan.sharers() % (plan.micro_batch * plan.data) == 0,
            fmt::format("micro_batch {} x data {} must divide global_batch {}", plan.micro_batch, plan.data,
                        plan.global_batch));
    const std::int64_t chunks = plan.schedule->chunked ? plan.chunks : 1;
    require((plan.copies() == 1 ? plan.pipeline * chunks : plan.pipeline) <= model.layers + 2,
            fmt::format("pipeline {} x chunks {} is more than the {} layers", plan.pipeline, chunks, model.layers));
    check_pipeline(model, plan, problems);
    check_recomputation(plan, problems);
    problems.refuse(
        plan.gather_precision &&
            (!plan.sequence_parallel ||
             (bytes_of(*plan.gather_precision) < 2 && bytes_of(plan.precision) > bytes_of(*plan.gather_precision))),
        "gather_precision needs sequence_parallel: true, and products that take what is gathered: precision: fp8");
    problems.refuse(plan.near_memory_sums && plan.overlap_tensor != TensorOverlap::tiles,
                    "overlap.near_memory needs overlap.tensor: tiles, whose reductions it sums");
    problems.refuse(plan.shard > 0 && plan.zero != 3, "shard needs zero: 3: only there weights are cut over ranks");
    if (plan.chunks != chunks) {
        std::vector<std::string> chunked;
        for (const PipelineSchedule* row : schedule_table()) {
            if (row->chunked) {
                chunked.emplace_back(row->name);
            }
        }
        problems.refuse(true, fmt::format("'chunks' above 1 needs schedule: {}", fmt::join(chunked, " or ")));
    } else if (problems.errors.empty() && plan.micro_batches() > 0) {
        const std::string problem = plan.schedule->problem(plan.shape());
        require(problem.empty(), problem);
    }
    for (const std::string& problem : combination_problems(model, plan)) {
        problems.refuse(true, problem);
    }
    for (const PlanProblems& found :
         {feature_problems(model, plan), state_space_problems(model, plan), encoder_problems(model, plan)}) {
        for (const std::string& text : found.refused) {
            problems.refuse(true, text);
        }
        for (const std::string& text : found.unfit) {
            require(false, text);
        }
    }
    const std::int64_t alike = plan.data * plan.context / plan.islands();
    const std::int64_t shard = plan.shard > 0 ? plan.shard : std::max<std::int64_t>(1, alike);
    require(alike % shard == 0, fmt::format("shard {} must divide data x context {}{}", shard, alike,
                                            plan.islands() > 1 ? " of a worker" : ""));
    problems.raise();
    const double passes = 2.0 * static_cast<double>(plan.micro_batches()) * static_cast<double>(plan.pipeline) *
                          static_cast<double>(plan.chunks);
    if (passes > kMostPasses) {
        throw InfeasibleError(
            fmt::format("{} micro-batches through {} stages are {:.3g} passes, and at most {:.3g} are simulated: raise "
                        "micro_batch or "
                        "data, or lower global_batch",
                        plan.micro_batches(), plan.pipeline, passes, kMostPasses));
    }
}

}  // namespace orrery::training
