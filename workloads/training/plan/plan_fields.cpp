#include "workloads/training/plan/spec.hpp"

#include <algorithm>

namespace orrery::training {

namespace {

constexpr const char* kCut = "tensor parallelism (plan.tensor above 1)";
constexpr const char* kReplicated =
    "ranks that hold the same weights (plan.data above 1, and above plan.outer.workers)";
constexpr const char* kGradients =
    "gradients that are summed over ranks (plan.data above 1, and above plan.outer.workers; zeroth_order has none "
    "but under zero: 3)";
constexpr const char* kGathered = "weights that are gathered once per step (zero: 1 or 2, and plan.data above 1)";

// What keys depend on that stand far from them.
struct Shares {
    bool cut;  ///< ranks share the products of a layer
    /// Ranks hold the same weights, of experts or of the rest; layers that are offloaded move by the same keys.
    bool replicated;

    explicit Shares(const PlanSpec& plan)
        : cut(plan.tensor > 1 || plan.expert_tensor() > 1),
          replicated(std::max(plan.data * plan.context, plan.expert_data()) > plan.islands() || plan.by_layer()) {}
};

void describe(Fields& fields, ExpertPlan& experts) {
    fields.integer({"expert", "ranks of a stage that a layer's experts are divided over", false, 1, 100'000},
                   experts.expert);
    fields.integer({"expert_tensor", "ranks that each expert is cut over; 0: as tensor", false, 0, 1024},
                   experts.tensor);
    fields.enumeration(
        {"dispatch",
         "dispatch of tokens to experts: one copy per choice, all tokens to all ranks, or one copy per node first"},
        {"all-to-all", "all-gather", "hierarchical"}, experts.dispatch);
    fields.enumeration({"dispatch_precision", "precision of tokens on their way to experts; fp8 with its scales"},
                       training_precision_names(), experts.dispatch_precision);
    fields.enumeration({"combine_precision", "precision of what experts send back; gradients go in 16 bits both ways"},
                       training_precision_names(), experts.combine_precision);
    fields.number({"capacity", "rows that an expert takes at most, over the mean of all; 0: all", false, 0, 1000},
                  experts.capacity);
    fields.boolean({"pad", "experts compute padded rows up to their capacity"}, experts.pad);
    fields.integer(
        {"shadowed",
         "number of most wanted experts whose weights every rank gathers, instead of exchanging their tokens "
         "(FasterMoE, Hecate)",
         false, 0, 100'000},
        experts.shadowed);
    fields.integer({"expert_pieces",
                    "number of parts of a micro-batch's tokens; exchanges of one part hide behind products of another "
                    "(Tutel, FSMoE)",
                    false, 1, 64},
                   experts.pieces);
    fields.number({"router_exponent", "exponent of Zipf's law of expert popularity; 0: all experts are equally likely",
                   false, 0, 10},
                  experts.exponent);
    fields.items({"router_loads", "frequency with which each expert is chosen; none: by the law"}, experts.loads,
                 [](Fields& inner, double& load) {
                     inner.number({"load", "load of this expert, in any unit", true, 0, 1e15}, load);
                 });
}

// A word, or a map with what the schedule takes.
void describe_schedule(Fields& fields, PlanSpec& plan) {
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
            own.integer(
                {"tries", "search budget: nodes of the integer program, and ten times as many orders; 0: rules alone",
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

// Degrees, and how ranks that share a sequence exchange it.
void describe_degrees(Fields& fields, PlanSpec& plan) {
    fields.integer({"tensor", "tensor-parallel degree", false, 1, 1024}, plan.tensor);
    fields.integer({"pipeline", "pipeline stages", false, 1, 10000}, plan.pipeline);
    fields.integer({"data", "data-parallel degree", false, 1, 1'000'000}, plan.data);
    fields.integer({"context", "context-parallel degree", false, 1, 1024}, plan.context);
    fields.enumeration({"context_exchange",
                        "context-parallel exchange: keys and values in a ring or all-gathered, sequence-to-head "
                        "all-to-all (Ulysses), bidirectional ring (TokenRing), or both (USP)"},
                       context_exchange_names(), plan.context_exchange);
    fields.integer(
        {"context_inner", "context_exchange: hierarchical: neighbours that exchange tokens for heads", false, 0, 1024},
        plan.context_inner);
}

// The batch, and how ranks fill the cluster.
void describe_batch(Fields& fields, PlanSpec& plan) {
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
}

// The schedule, and the parts of the model that it cuts.
void describe_stages(Fields& fields, PlanSpec& plan) {
    describe_schedule(fields, plan);
    fields.integer({"chunks", "model chunks per stage, for schedules with several", false, 1, 1000}, plan.chunks);
    fields.items({"stages", "layers of each part of the model, in order; none: as even as can be"}, plan.stages,
                 [](Fields& inner, std::int64_t& layers) {
                     inner.integer(
                         {"layers", "layers of this part; only the first and the last may have none", true, 0, 100'000},
                         layers);
                 });
    fields.enumeration({"vocabulary_parallel",
                        "placement of the embedding and output layer: on the end stages, or cut over all stages with "
                        "this many barriers"},
                       {"none", "two-barriers", "one-barrier"}, plan.vocabulary);
}

// What is kept in memory, and what is cut over ranks or computed again.
void describe_memory(Fields& fields, PlanSpec& plan, const Shares& shares) {
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
        shares.cut, kCut,
        [&](Fields& same) {
            same.boolean({"sequence_parallel", "shard norms and dropout over the tensor-parallel group"},
                         plan.sequence_parallel);
        },
        Unmet::noted);
    fields.when(
        shares.replicated || plan.zero != 1, kReplicated,
        [&](Fields& same) {
            same.integer({"zero", "ZeRO stage (3: FSDP)", false, 0, 3}, plan.zero);
        },
        Unmet::noted);
    fields.integer({"shard", "ranks that share weights under ZeRO-3; 0: all", false, 0, 1'000'000}, plan.shard);
    fields.enumeration({"states",
                        "precision of weights, gradients and Adam states: mixed (16-bit with 32-bit states and master "
                        "weights), all 16-bit, all 32-bit, or the software's"},
                       {"mixed", "16-bit", "32-bit", "software"}, plan.states);
}

// Precisions and kernels.
void describe_kernels(Fields& fields, PlanSpec& plan) {
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
    fields.enumeration({"loss",
                        "loss kernels: unfused, compiled, one per pass, fused over 16-bit logits, or chunked together "
                        "with the output layer"},
                       {"separate", "compiled", "online", "fused", "chunked", "software"}, plan.loss);
    fields.enumeration(
        {"gradient_precision", "precision of gradients on the wire, and of their sums over micro-batches"},
        training_precision_names(), plan.gradient_precision);
    fields.enumeration(
        {"gather_precision",
         "precision of what tensor-parallel ranks gather (sequence_parallel); fp8: products take it as it comes"},
        training_precision_names(), "software", plan.gather_precision);
}

// What goes on behind kernels.
void describe_overlap(Fields& fields, PlanSpec& plan, const Shares& shares) {
    fields.section({"overlap", "communication that hides behind computation"}, [&](Fields& inner) {
        inner.when(
            shares.cut, kCut,
            [&](Fields& same) {
                same.enumeration({"tensor",
                                  "overlap of tensor-parallel collectives: backward hides them behind weight "
                                  "gradients, full also cuts products into chunks, tiles reduces each tile when it "
                                  "is done"},
                                 {"none", "backward", "full", "tiles"}, plan.overlap_tensor);
            },
            Unmet::noted);
        inner.boolean({"near_memory", "memory adds arriving values to those it holds (needs overlap.tensor: tiles)"},
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
            shares.replicated && (plan.sums_gradients() || plan.zero == 3), kGradients,
            [&](Fields& same) {
                same.boolean({"data", "overlap gradient reduction with the backward pass, chunk by chunk"},
                             plan.overlap_data);
            },
            Unmet::noted);
        inner.when(
            plan.zero >= 1 && plan.zero < 3 && shares.replicated, kGathered,
            [&](Fields& same) {
                same.boolean({"parameters", "overlap the weight gathering of ZeRO-1 with the first forward passes"},
                             plan.overlap_parameters);
            },
            Unmet::noted);
        inner.enumeration({"experts", "tokens' exchanges: none; behind shared experts; behind all kernels of a pass"},
                          {"none", "shared", "batches"}, plan.experts.overlap);
    });
}

}  // namespace

const std::vector<std::string>& context_exchange_names() {
    static const std::vector<std::string> kNames = {"ring",       "gathered-ring", "all-gather",
                                                    "all-to-all", "two-way",       "hierarchical"};
    return kNames;
}

void describe(Fields& fields, PlanSpec& plan) {
    const Shares shares(plan);
    describe_degrees(fields, plan);
    describe_batch(fields, plan);
    describe_stages(fields, plan);
    describe_memory(fields, plan, shares);
    describe_kernels(fields, plan);
    describe(fields, plan.experts);
    plan.features.describe(fields);
    describe_overlap(fields, plan, shares);
}

}  // namespace orrery::training
