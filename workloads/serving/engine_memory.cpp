#include "workloads/serving/engine_memory.hpp"

#include "sim/base/error.hpp"
#include "workloads/model/attention_form.hpp"
#include "workloads/serving/cost/step_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace orrery::serving {

namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
// What CUDA keeps of a board's memory: 0.46 GiB of H100 80 GB, L4 and A10, 0.59 of H200, 0.5 of L40S, 0.4 of RTX 4090 (torch's total against
// nvidia-smi's in public logs). ROCm shows all of MI300X (vllm issue 53961), of whose memory this is a four-hundredth.
constexpr double kHidden = 0.46 * kGiB;
constexpr double kNarrow = 2;  // B of a value in 16 bits
constexpr double kSglangLoaded =
    0.8 * kGiB;                        // free memory that loading takes beside weights (llm-ie-benchmarks, R1 on H200)
constexpr double kWindowTokens = 0.8;  // SGLang, server_args.py: swa_full_tokens_ratio
constexpr double kStateBytes = 0.9;    // the same: mamba_full_memory_ratio

double whole(std::int64_t value) {
    return static_cast<double>(value);
}

double rounded_up(double value, double to) {
    return std::ceil(value / to) * to;
}

// B of a weight with the factors of its format: 16 and 4 bits for each 128 of int4 (compressed-tensors, AWQ), 8 bits for each 16 of NVFP4 or 32 of
// MXFP4, in which experts alone are stored.
double stored_bytes(Precision precision, bool experts_alone) {
    constexpr double kGroup = 128;
    switch (precision) {
        case Precision::int4:
            return 0.5 + 2.5 / kGroup;
        case Precision::fp4:
            return 0.5 + 1.0 / (experts_alone ? 32 : 16);
        default:
            return bytes_of(precision);
    }
}

// Weights of a rank that tensor parallelism copies instead of dividing: the compressions of latent attention, routers, and keys and values of
// fewer heads than ranks. What weight_bytes() has divided.
double copied_values(const ModelSpec& model, double tensor) {
    const double hidden = whole(model.hidden);
    const double divided = 1 - 1 / tensor;
    if (model::other_layers(model) > 0 && !model.linear.given() && !model.hybrid()) {
        // What each rank has of a layer's attention, beyond its part of all weights.
        double copied = hidden * whole(model.experts.count) * divided * whole(model.expert_layers());
        for (const bool windowed : {false, true}) {
            const LayerKind kind{model.experts.count > 0, windowed};
            const model::LayerContext rank{
                model, kind, {tensor, cache_ranks(model, static_cast<std::int64_t>(tensor))}};
            const double own = model::all_weights(before_attention(rank)) + model::all_weights(after_attention(rank));
            copied += (own - model.attention_parameters(kind) / tensor) *
                      whole(windowed ? model.windowed_layers() : model.layers - model.windowed_layers());
        }
        return copied;
    }
    const LatentSpec& latent = model.latent;
    const IndexerSpec& indexer = model.indexer;
    const double q = whole(latent.q_rank > 0 ? latent.q_rank : model.hidden);
    const double chooses =
        indexer.given()
            ? (q * whole(indexer.heads * indexer.dim) + hidden * whole(indexer.heads + indexer.dim)) * divided
            : 0;
    const double keys =
        latent.kv_rank > 0
            ? hidden * whole(latent.q_rank + latent.kv_rank + latent.rotary) * divided
            : 2 * hidden * model.kv_width() * (1 / cache_ranks(model, static_cast<std::int64_t>(tensor)) - 1 / tensor);
    const std::int64_t attending =
        model.hybrid() ? model.layers_with(model::LayerPart::attention) : model.layers - model.linear_layers();
    return (keys + chooses) * whole(attending) +
           hidden * whole(model.experts.count) * divided * whole(model.expert_layers());
}

double stored_weights(const EngineSpec& engine, const PhaseSpec& phase, const ModelSpec& model,
                      const DeviceSpec& device, std::int64_t stage) {
    const Quantisation held = engine.quantisation(device);
    const double share = whole(stage_layers(model.layers, stage, phase.pipeline)) / whole(model.layers);
    const double tensor = whole(phase.tensor);
    const bool alone = held.weights != Precision::fp4;
    const double all = weight_bytes(model, held, phase, stage);
    const double routed = share * whole(model.expert_layers()) * model.routed_parameters() / whole(phase.stage_ranks());
    const double tables = 2 *
                          (phase.pipeline == 1 && !model.tied_embeddings ? 2
                           : stage == 0 || stage + 1 == phase.pipeline   ? 1
                                                                         : 0) *
                          model.embedding_parameters() / tensor;
    const double experts = routed * bytes_of(held.experts);
    const double dense = std::max(0.0, all - tables - experts);
    constexpr double kPadded = 256;
    const double padding = held.experts == Precision::fp4 && alone && model.experts.ffn > 0
                               ? rounded_up(whole(model.experts.ffn), kPadded) / whole(model.experts.ffn)
                               : 1;
    return tables + dense * stored_bytes(held.weights, alone) / bytes_of(held.weights) +
           experts * padding * stored_bytes(held.experts, alone) / bytes_of(held.experts) +
           share * copied_values(model, tensor) * bytes_of(held.weights) + engine.other_weights / whole(phase.ranks());
}

// B of a rank that a compressed cache has beside its blocks, over all layers.
double buffer_bytes(const EngineSpec& engine, const PhaseSpec& phase, const ModelSpec& model) {
    return kv_buffer_tokens(engine.compression) * cache_bytes_per_token(model, Precision::bf16, {}) /
           cache_ranks(model, phase.tensor) * whole(phase.scheduler.max_sequences) / whole(phase.groups);
}

// B at the peak of a profiling run.
double peak_bytes(const EngineSpec& engine, const PhaseSpec& phase, const ModelSpec& model, Precision experts) {
    const MemoryRules& rules = engine.software.memory;
    const double groups = whole(phase.groups);
    const double tokens = whole(phase.scheduler.token_budget) / groups;
    const double sequences = std::min(tokens, whole(phase.scheduler.max_sequences) / groups);
    const double hidden = whole(model.hidden);
    const ExpertsSpec& routed = model.experts;
    const bool all_dense = routed.count == 0;
    const double inner =
        all_dense ? whole(model.ffn) : std::max(whole(routed.shared), routed.dense_layers > 0 ? whole(model.ffn) : 0.0);
    const double gated = model.gated ? 1 : 2.0 / 3;  // two inner widths instead of three
    const double sampling = sequences * whole(model.vocabulary) * rules.logits.value +
                            kNarrow * tokens * hidden * rules.sampled_token.value;
    const double forward =
        kNarrow * tokens *
        (hidden * rules.forward_token.value + gated * inner / whole(phase.tensor) * rules.forward_inner.value);
    double buffers = 0;
    if (!all_dense && experts != Precision::fp4) {
        constexpr double kChunk = 32768;  // VLLM_FUSED_MOE_CHUNK_SIZE
        const double width = whole(routed.ffn) * whole(phase.expert) / whole(phase.stage_ranks());
        const double rows = std::min(kChunk, tokens * groups) * whole(routed.topk);
        buffers = kNarrow * rows * (std::max(2 * width, hidden) + width);
    }
    return buffers + std::max(sampling, forward);
}

RankMemory rank_memory(const EngineSpec& engine, const PhaseSpec& phase, const ModelSpec& model,
                       const DeviceSpec& device, std::int64_t stage) {
    const MemoryRules& rules = engine.software.memory;
    const double layers = whole(stage_layers(model.layers, stage, phase.pipeline));
    const double share = layers / whole(model.layers);
    const Quantisation held = engine.quantisation(device);
    RankMemory out;
    out.total = device.memory.value - kHidden;
    out.weights = stored_weights(engine, phase, model, device, stage);
    if (engine.caches_experts) {
        out.weights -= whole(model.expert_layers()) * whole(model.experts.count - engine.expert_cache.experts) *
                       model.routed_parameters() / whole(model.experts.count) * bytes_of(held.experts) /
                       whole(phase.stage_ranks());
    }
    out.slots = whole(engine.adapters.slots) *
                (engine.adapters.whole ? out.weights
                                       : adapter_bytes_per_rank(model, engine.adapters, phase.tensor,
                                                                stage_layers(model.layers, stage, phase.pipeline)));
    out.other = rules.context.value + (phase.ranks() > 1 ? rules.communicators.value : 0);
    out.peak = peak_bytes(engine, phase, model, held.experts);
    const double routed = share * whole(model.expert_layers());
    out.graphs = engine.software.graph_sequences == 0
                     ? 0
                     : (layers - routed) * rules.layer_graphs.value + routed * rules.expert_graphs.value;
    const bool apart = !rules.hybrid && rules.rule != MemoryRule::sglang;  // states are no pages of the cache
    out.buffers = share * (buffer_bytes(engine, phase, model) + (apart ? state_bytes_per_rank(model, phase) : 0));
    const double fraction = engine.memory_fraction;
    const double resident = out.weights + out.slots;
    const double graphs = rules.graphs_inside ? out.graphs : 0;
    if (engine.of_free || rules.rule == MemoryRule::tensorrt_llm) {
        out.pool = (out.total - resident - out.other - out.peak) * fraction;
    } else if (rules.rule == MemoryRule::sglang) {
        out.pool = (out.total - out.other) * fraction - resident - kSglangLoaded;
    } else {
        out.pool = out.total * fraction - resident - out.other - out.peak - graphs;
    }
    out.pool -= out.buffers;
    return out;
}

}  // namespace

double CachePages::of_sequence(double length) const {
    const double blocks = std::ceil(length / tokens);
    const double reached = std::ceil(std::min(length, window - 1 + batch) / tokens) + 1;
    return full * blocks + windowed * std::min(blocks, reached) + states * state_pages;
}

double CachePages::longest(double pages) const {
    double low = 0;
    double high = std::floor(pages) + 1;  // blocks
    while (high - low > 1) {
        const double middle = std::floor((low + high) / 2);
        (of_sequence(middle * tokens) <= pages ? low : high) = middle;
    }
    return low * tokens;
}

namespace {

// What a sequence keeps on a rank of each layer however long it is: states, or windows beside compressed keys. Not of linear attention.
double beside_tokens(const ModelSpec& model, Precision cache, std::int64_t tensor) {
    double bytes = 0;
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        const LayerKind kind = model.kind_of(layer);
        if (kind.part != model::LayerPart::feed_forward) {
            bytes += model::attention_form(model, kind).sequence_bytes(model, kind, cache, whole(tensor));
        }
    }
    return bytes;
}

}  // namespace

double state_bytes_per_rank(const ModelSpec& model, const PhaseSpec& phase) {
    const double sequences = std::ceil(whole(phase.scheduler.max_sequences) / whole(phase.groups));
    return model.linear.given()
               ? whole(model.linear_layers()) * model.linear.state_bytes() / whole(phase.tensor) * sequences
               : beside_tokens(model, Precision::bf16, phase.tensor) * sequences;
}

CachePages pages_of(const EngineSpec& engine, const PhaseSpec& phase, const ModelSpec& model, double share) {
    const double ranks = cache_ranks(model, phase.tensor);
    const double token = cache_bytes_per_token(model, engine.cache, engine.compression) / ranks;
    const auto windowed = whole(model.windowed_layers());
    CachePages out;
    out.tokens = whole(engine.block);
    out.batch = whole(phase.scheduler.token_budget);
    out.full = 1;
    out.bytes = share * token * out.tokens;
    const double full = whole(model.layers) - windowed;
    if (const double beside = share * beside_tokens(model, engine.cache, phase.tensor); beside > 0) {
        if (engine.software.memory.hybrid) {
            out.states = 1;
            out.state_pages = std::ceil(beside / out.bytes);
        }
        return out;
    }
    if (!engine.software.memory.hybrid || windowed == 0 || full == 0 || model.hybrid()) {
        return out;
    }
    // Layers of a group: those of the rarer kind, unless there are hardly more of the other.
    constexpr double kNearlyEqual = 1.25;
    const double least = std::min(full, windowed);
    const double most = std::max(full, windowed);
    const double layers = most < kNearlyEqual * least ? most : least;
    double layer_token = token / whole(model.layers - model.linear_layers());
    const bool keeps_states = model.window_state || model.linear.given();
    out.full = std::ceil(full / layers);
    (keeps_states ? out.states : out.windowed) = std::ceil(windowed / layers);
    if (!model.linear.given() && model::other_layers(model) > 0) {
        // Pages are as large as those of the wider kind; the other has more tokens in one.
        const auto of = [&](bool other) {
            const LayerKind kind{model.experts.count > 0, other};
            return model::attention_form(model, kind).cached_bytes(model, kind, engine.cache) / ranks;
        };
        layer_token = std::max(of(false), of(true));
        out.full *= of(false) / layer_token;
        out.windowed *= of(true) / layer_token;
    }
    out.window = whole(model.window);
    if (keeps_states) {
        constexpr double kMultiple = 16;
        // Every rank has its part of a state, which without `linear` is as large as the window's keys and values in 16 bits.
        const double all =
            model.linear.given()
                ? model.linear.state_bytes()
                : whole(model.window) * cache_bytes_per_token(model, Precision::bf16, {}) / whole(model.layers);
        const double state = all / whole(phase.tensor);
        out.tokens = std::max(out.tokens, rounded_up(state / layer_token, kMultiple));
        out.state_pages = (engine.prefix_cache ? 2 : 1) + static_cast<double>(engine.speculation.tokens);
    }
    out.bytes = share * layers * layer_token * out.tokens;
    return out;
}

EngineCache engine_cache(const EngineSpec& engine, const PhaseSpec& phase, const ModelSpec& model,
                         const DeviceSpec& device) {
    const MemoryRules& rules = engine.software.memory;
    ORRERY_ASSERT(engine.sized_by_engine());
    EngineCache out;
    out.context = whole(engine.max_context > 0 ? engine.max_context : model.sequence);
    double pages = std::numeric_limits<double>::infinity();
    CachePages page;
    for (std::int64_t stage = 0; stage < phase.pipeline; ++stage) {
        const double share = whole(stage_layers(model.layers, stage, phase.pipeline)) / whole(model.layers);
        const CachePages own = pages_of(engine, phase, model, share);
        const RankMemory rank = rank_memory(engine, phase, model, device, stage);
        const double room = std::floor(std::max(0.0, rank.pool) / own.bytes);
        if (room < pages) {
            pages = room;
            page = own;
            out.rank = rank;
        }
    }
    if (engine.blocks > 0 && pages >= 1) {  // given blocks make no room for weights
        pages = whole(engine.blocks);
    }
    const bool windows = beside_tokens(model, engine.cache, phase.tensor) > 0;  // pages that hold no tokens
    const double needed = page.of_sequence(out.context);
    out.blocks = pages;
    out.concurrency = pages / needed;
    out.capacity = page.groups() > 1 ? out.concurrency * out.context : pages * page.tokens;
    out.tokens = rules.counts_requests ? std::floor(out.concurrency * out.context)
                                       : std::floor(pages / (windows ? page.full : page.groups())) * page.tokens;
    if (rules.rule == MemoryRule::sglang && (model.windowed_layers() > 0 ? !windows : model.hybrid() && windows)) {
        const double part = whole(model.windowed_layers()) / whole(model.layers);
        const double cost = model.linear.given() || windows
                                ? 1 + kStateBytes  // such layers have no tokens in the pages
                            : model.window_state ? (1 - part) * (1 + kStateBytes)
                                                 : 1 - part + kWindowTokens * part;
        out.capacity = out.tokens = std::floor(pages * page.tokens / cost);
        out.concurrency = out.tokens / out.context;
    }
    const double longest = pages >= 1 ? page.longest(pages) : 0;
    if (rules.rule == MemoryRule::vllm && engine.max_context > 0 && pages >= 1 && needed > pages) {
        out.refusal = fmt::format(
            "{} does not start: a sequence of {} tokens (max_context) needs {:.2f} GiB of cache, and {:.2f} GiB are "
            "available; the longest that "
            "fits has {:.0f} tokens: lower max_context, or raise kv.memory",
            engine.software.name, engine.max_context, needed * page.bytes / kGiB, pages * page.bytes / kGiB, longest);
    }
    return out;
}

std::string log_line(const EngineSpec& engine, const EngineCache& cache) {
    const auto grouped = [](double value) {
        std::string digits = fmt::format("{:.0f}", value);
        for (std::size_t at = digits.size(); at > 3; at -= 3) {
            digits.insert(at - 3, ",");
        }
        return digits;
    };
    switch (engine.software.memory.rule) {
        case MemoryRule::sglang:
            return fmt::format("KV Cache is allocated. #tokens: {:.0f}, size: {:.2f} GB", cache.tokens,
                               std::max(0.0, cache.rank.pool) / kGiB);
        case MemoryRule::tensorrt_llm:
            return fmt::format("Allocated {:.2f} GiB for max tokens in paged KV cache ({:.0f})",
                               std::max(0.0, cache.rank.pool) / kGiB, cache.tokens);
        default:
            return fmt::format("GPU KV cache size: {} tokens; maximum concurrency for {} tokens per request: {:.2f}x{}",
                               grouped(cache.tokens), grouped(cache.context), cache.concurrency,
                               cache.concurrency >= 1
                                   ? ""
                                   : "; the engine itself does not start so: it wants room for the model's longest "
                                     "sequence, or a smaller max_context");
    }
}

}  // namespace orrery::serving
