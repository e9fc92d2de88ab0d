#include "models/kernel_point.hpp"

#include <algorithm>

namespace orrery::models {

namespace {

KernelFormat format_of(Precision precision, bool weight_only, Precision weights, Scaling scaling) {
    if (weight_only) {
        return weights == Precision::fp4 ? KernelFormat::bf16_fp4 : KernelFormat::bf16_int4;
    }
    switch (precision) {
        case Precision::fp32:
            return KernelFormat::fp32;
        case Precision::tf32:
            return KernelFormat::tf32;
        case Precision::fp8:
            return scaling == Scaling::block ? KernelFormat::fp8_block : KernelFormat::fp8;
        case Precision::int8:
            return KernelFormat::int8;
        case Precision::fp4:
            return KernelFormat::fp4;
        case Precision::fp16:
        case Precision::bf16:
        case Precision::int4:
            return KernelFormat::bf16;
    }
    return KernelFormat::bf16;
}

std::optional<KernelPoint> point_of(const Gemm& gemm) {
    if (gemm.batch != 1) {
        return std::nullopt;
    }
    KernelPoint point;
    point.format = format_of(gemm.precision, gemm.weight_only, gemm.weights, gemm.scaling);
    point.precision = gemm.precision;
    point.flops = gemm.flops();
    point.bytes = gemm.bytes() - gemm.extra_bytes;
    point.sizes = {gemm.m, gemm.n, gemm.k, 1};
    point.rows = gemm.m;
    point.columns = gemm.n;
    point.depth = gemm.k;
    return point;
}

std::optional<KernelPoint> point_of(const FusedExperts& experts) {
    KernelPoint point;
    point.kind = experts.skewed ? KernelKind::experts_skewed : KernelKind::experts;
    point.format = format_of(experts.precision, experts.weight_only, experts.weights, experts.scaling);
    point.precision = experts.precision;
    const double active = std::max(1.0, experts.active_experts());
    const double rows = std::max(active, experts.tokens * experts.topk);
    point.flops = experts.flops();
    point.bytes = experts.bytes(active);
    if (experts.topk_elsewhere > 0) {
        point.passing = experts.bytes(0) * experts.topk_elsewhere / std::max(1e-9, experts.topk);
    }
    point.spread = !experts.in_turn && !experts.skewed;
    point.sizes = {rows / active, active, experts.ffn, experts.hidden};
    return point;
}

std::optional<KernelPoint> point_of(const Attention& attention) {
    KernelPoint point;
    point.kind = attention.backward    ? KernelKind::attention_backward
                 : attention.trains    ? KernelKind::attention_forward
                 : attention.decodes() ? KernelKind::decode
                                       : KernelKind::prefill;
    point.format = bytes_of(attention.cache) < 2 ? KernelFormat::bf16_kv8 : KernelFormat::bf16;
    if (point.format == KernelFormat::bf16_kv8 && (attention.trains || attention.backward)) {
        point.precision = Precision::fp8;  // queries and scores too
    }
    point.flops = attention.flops();
    point.bytes = attention.bytes();
    const double group = std::max(1.0, attention.group);
    if (attention.decodes()) {
        const double heads = attention.batch_heads / group;
        // By bytes rather than keys: whether the cache holds them and how far the memory is used depend on these.
        const double cached = heads * attention.keys_read() * attention.head_dim * 2 * bytes_of(attention.cache);
        point.sizes = {cached, heads, group, attention.head_dim};
    } else {
        // A window makes a long prompt behave like a short one; a cached prefix like a longer one.
        const double reach = attention.window > 0 ? std::min(attention.window, attention.keys) : attention.keys;
        point.sizes = {std::max(attention.queries, reach), attention.batch_heads, group, attention.head_dim};
    }
    return point;
}

// A query that attends to chosen keys takes as long to begin as so many of them do. Of seven tables of such attention
// behind DeepSeek-V4's window
// (dsv4_hca_attn of ai-dynamo/aiconfigurator@095f58a; five devices, SGLang and vLLM), the half of the rows with the
// smaller SHA-1 of their sizes, least
// squares of prompts of one sequence and of decoding with 256 and more: 235 to 351 and 180 to 275 keys, 270 in the median of all.
constexpr double kKeysToBegin = 270;
// Keys that a query chose where kernels were fitted.
constexpr double kFittedKeys = 2048;

double chosen_work(double chosen) {
    return (chosen + kKeysToBegin) / (kFittedKeys + kKeysToBegin) * (kFittedKeys / chosen);
}

std::optional<KernelPoint> point_of(const LatentAttention& attention) {
    KernelPoint point;
    const bool sparse = attention.sparse() && !attention.decodes();
    point.kind = sparse                ? KernelKind::sparse_prefill
                 : attention.decodes() ? KernelKind::latent_decode
                                       : KernelKind::latent_prefill;
    point.format = bytes_of(attention.cache) < 2 ? KernelFormat::bf16_kv8 : KernelFormat::bf16;
    point.flops = attention.flops();
    point.bytes = attention.bytes();
    if (attention.sparse()) {
        const double work = chosen_work(attention.chosen);
        point.flops *= work;
        point.bytes *= work;
    }
    if (sparse) {
        point.format = KernelFormat::bf16;  // kernels expand an 8-bit cache before
        point.sizes = {attention.batch * attention.queries, attention.heads, 1, 1};
        return point;
    }
    const double keys = attention.sparse() ? attention.chosen * chosen_work(attention.chosen) : attention.keys;
    point.sizes = attention.decodes() ? std::array<double, 4>{keys, attention.batch, attention.heads, 1}
                                      : std::array<double, 4>{attention.keys, attention.batch * attention.heads, 1, 1};
    return point;
}

std::optional<KernelPoint> point_of(const IndexScores& scores) {
    KernelPoint point;
    point.kind = scores.decodes() ? KernelKind::index_decode : KernelKind::index_prefill;
    point.format = format_of(scores.precision, false, Precision::int4, Scaling::tensor);
    point.precision = scores.precision;
    point.flops = scores.flops();
    point.bytes = scores.bytes();
    point.sizes = scores.decodes() ? std::array<double, 4>{scores.keys, scores.batch, 1, 1}
                                   : std::array<double, 4>{scores.queries, scores.keys, scores.batch, 1};
    return point;
}

std::optional<KernelPoint> point_of(const TopChoice& choice) {
    KernelPoint point;
    point.kind = KernelKind::choice;
    point.bytes = choice.bytes();
    // Where nearly all keys are chosen, the fitted kernel takes up to 20 times as long; of 512 and 1,024 no choice does
    // (dsv4_csa_topk_calib of the same source, top_last).
    constexpr double kClear = 2 * kFittedKeys;
    point.sizes = {choice.chosen < kFittedKeys ? std::max(choice.keys, kClear) : choice.keys, choice.rows, 1, 1};
    return point;
}

// Of training, the forward pass alone: its backward pass is priced by it.
std::optional<KernelPoint> point_of(const DeltaScan& scan) {
    KernelPoint point;
    const bool decodes = scan.decodes();
    point.kind = scan.channels ? (decodes ? KernelKind::kimi_decode : KernelKind::kimi_prefill)
                               : (decodes ? KernelKind::delta_decode : KernelKind::delta_prefill);
    point.flops = scan.flops();
    point.bytes = scan.bytes();
    const double heads = scan.batch * scan.value_heads;
    point.sizes = decodes ? std::array<double, 4>{heads, 1, 1, 1} : std::array<double, 4>{scan.queries, heads, 1, 1};
    return point;
}

std::optional<KernelPoint> point_of(const Streaming& streaming) {
    KernelPoint point;
    switch (streaming.kind) {
        case StreamingKind::norm:
            point.kind = KernelKind::norm;
            break;
        case StreamingKind::activation:
            point.kind = KernelKind::activation;
            break;
        case StreamingKind::add:
            point.kind = KernelKind::add;
            break;
        case StreamingKind::rotary:
            point.kind = KernelKind::rotary;
            break;
        case StreamingKind::embedding:
            point.kind = KernelKind::embedding;
            break;
        case StreamingKind::convolution:
            point.kind = KernelKind::convolution;
            break;
        case StreamingKind::convolution_update:
            point.kind = KernelKind::convolution_update;
            break;
        default:
            return std::nullopt;
    }
    // Several kernels of a kind share the bytes evenly; each is priced by itself.
    point.bytes = streaming.bytes / std::max(1.0, streaming.kernels);
    point.sizes = {point.bytes, 1, 1, 1};
    return point;
}

template <class Other>
std::optional<KernelPoint> point_of(const Other&) {
    return std::nullopt;
}

}  // namespace

const std::vector<std::string>& kernel_kind_names() {
    static const std::vector<std::string> kNames = {"gemm",
                                                    "experts",
                                                    "prefill",
                                                    "decode",
                                                    "latent_prefill",
                                                    "latent_decode",
                                                    "norm",
                                                    "activation",
                                                    "add",
                                                    "rotary",
                                                    "embedding",
                                                    "experts_skewed",
                                                    "attention_forward",
                                                    "attention_backward",
                                                    "convolution",
                                                    "convolution_update",
                                                    "delta_prefill",
                                                    "delta_decode",
                                                    "kimi_prefill",
                                                    "kimi_decode",
                                                    "index_prefill",
                                                    "index_decode",
                                                    "choice",
                                                    "sparse_prefill"};
    return kNames;
}

const std::vector<std::string>& kernel_axes(KernelKind kind) {
    static const std::vector<std::string> kBytes = {"bytes"};
    static const std::vector<std::string> kExperts = {"rows", "experts", "ffn", "hidden"};
    static const std::vector<std::string> kPrompt = {"queries", "heads", "group", "dim"};
    static const std::array<std::vector<std::string>, kKernelKinds> kAxes = {{{"m", "n", "k"},
                                                                              kExperts,
                                                                              kPrompt,
                                                                              {"bytes", "heads", "group", "dim"},
                                                                              {"queries", "heads"},
                                                                              {"keys", "batch", "heads"},
                                                                              kBytes,
                                                                              kBytes,
                                                                              kBytes,
                                                                              kBytes,
                                                                              kBytes,
                                                                              kExperts,
                                                                              kPrompt,
                                                                              kPrompt,
                                                                              kBytes,
                                                                              kBytes,
                                                                              {"queries", "heads"},
                                                                              {"heads"},
                                                                              {"queries", "heads"},
                                                                              {"heads"},
                                                                              {"queries", "keys", "batch"},
                                                                              {"keys", "batch"},
                                                                              {"keys", "rows"},
                                                                              {"queries", "heads"}}};
    return kAxes[static_cast<std::size_t>(kind)];
}

const std::vector<std::string>& kernel_format_names() {
    static const std::vector<std::string> kNames = {"bf16", "tf32", "fp32",      "fp8",      "fp8-block",
                                                    "int8", "fp4",  "bf16-int4", "bf16-fp4", "bf16-kv8"};
    return kNames;
}

std::optional<KernelPoint> kernel_point(const Operation& operation) {
    return std::visit([](const auto& one) { return point_of(one); }, operation);
}

}  // namespace orrery::models
