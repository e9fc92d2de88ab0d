#include "models/calibration/points.hpp"

#include <algorithm>
#include <map>

namespace orrery {

namespace {

struct Format {
    Precision precision = Precision::bf16;
    bool weight_only = false;
    Precision weights = Precision::int4;
    Scaling scaling = Scaling::tensor;
};

std::optional<Precision> precision_of(const std::string& dtype) {
    const std::string base = dtype.substr(0, dtype.find('-'));
    const auto& names = precision_names();
    const auto found = std::find(names.begin(), names.end(), base);
    if (found == names.end()) {
        return std::nullopt;
    }
    return static_cast<Precision>(found - names.begin());
}

std::optional<Format> format_of(const std::string& dtype) {
    Format format;
    const std::size_t colon = dtype.find(':');
    const auto activations = precision_of(dtype.substr(0, colon));
    if (!activations) {
        return std::nullopt;
    }
    format.precision = *activations;
    format.scaling = dtype.find("-block") != std::string::npos ? Scaling::block : Scaling::tensor;
    if (colon != std::string::npos) {
        const auto weights = precision_of(dtype.substr(colon + 1));
        if (!weights) {
            return std::nullopt;
        }
        format.weight_only = true;
        format.weights = *weights;
    }
    return format;
}

Operation streaming(const TraceRow& row, StreamingKind kind, double bytes_a_value) {
    return Streaming{row.dim("tokens") * row.dim("hidden") * bytes_a_value, 1, kind};
}

}  // namespace

std::optional<Operation> operation_of(const TraceRow& row) {
    const std::optional<Format> format = format_of(row.dtype);
    if (!format || row.phase != TracePhase::forward || !row.beside.empty()) {
        return std::nullopt;
    }
    const Precision cache =
        row.kv_dtype.empty() ? Precision::bf16 : precision_of(row.kv_dtype).value_or(Precision::bf16);
    if (row.op == "gemm") {
        return Gemm{row.dim("m"),        row.dim("n"),    row.dim("k"),   row.dim("batch", 1), format->precision, 0,
                    format->weight_only, format->weights, format->scaling};
    }
    if (row.op == "moe") {
        const double parallel = row.dim("expert_parallel", 1);
        FusedExperts experts;
        experts.tokens = row.dim("tokens");
        experts.experts = std::max(1.0, row.dim("experts") / parallel);
        // Of a token's choices, those that fall on this device.
        experts.topk = row.dim("topk") / parallel;
        experts.hidden = row.dim("hidden");
        experts.ffn = row.dim("ffn") / row.dim("tensor", 1);
        experts.topk_elsewhere = row.dim("topk") - experts.topk;
        experts.in_turn = row.dim("in_turn") > 0;
        experts.skewed = row.dim("skew") > 0;
        experts.gated = row.dim("gated", 1) > 0;
        experts.precision = format->precision;
        experts.weight_only = format->weight_only;
        experts.weights = format->weights;
        experts.scaling = format->scaling;
        return experts;
    }
    if (row.op == "attention_prefill" || row.op == "attention_decode") {
        Attention attention;
        attention.batch_heads = row.dim("batch") * row.dim("heads");
        attention.queries = row.dim("queries", 1);
        attention.keys = row.dim("keys");
        attention.head_dim = row.dim("head_dim");
        attention.causal = row.dim("causal", 1) > 0;
        attention.window = row.dim("window");
        attention.group = std::max(1.0, row.dim("heads") / row.dim("kv_heads"));
        attention.cache = cache;
        attention.block = row.dim("block");
        return attention;
    }
    if (row.op == "mla_prefill" || row.op == "mla_decode") {
        LatentAttention attention;
        attention.batch = row.dim("batch");
        attention.queries = row.dim("queries", 1);
        attention.keys = row.dim("keys");
        attention.heads = row.dim("heads");
        attention.latent = row.dim("latent", attention.latent);
        attention.rotary = row.dim("rotary", attention.rotary);
        attention.cache = cache;
        return attention;
    }
    // Bytes a value in 16 bits: what each kernel reads and writes once.
    const std::pair<const char*, std::pair<StreamingKind, double>> kStreaming[] = {
        {"rms_norm", {StreamingKind::norm, 4}},       {"layer_norm", {StreamingKind::norm, 4}},
        {"add_norm", {StreamingKind::norm, 8}},       {"gelu", {StreamingKind::activation, 4}},
        {"silu_mul", {StreamingKind::activation, 6}}, {"add", {StreamingKind::add, 6}},
        {"rotary", {StreamingKind::rotary, 4}},       {"embedding", {StreamingKind::embedding, 4}}};
    for (const auto& [op, kind] : kStreaming) {
        if (row.op == op) {
            return streaming(row, kind.first, kind.second);
        }
    }
    return std::nullopt;
}

std::vector<PointSet> point_sets(const Trace& trace, const DeviceSpec& device, const std::string& name) {
    constexpr std::size_t kMostNamed = 100;
    using Key = std::pair<std::size_t, std::size_t>;
    std::map<Key, PointSet> sets;
    std::map<Key, std::map<std::pair<std::array<double, 4>, double>, std::vector<MeasuredPoint>>> merged;
    // A fit is of one library's kernels. Products are left to their library's own choice by shape.
    std::map<std::string, std::map<std::string, std::size_t>> libraries;
    const auto group_of = [](const TraceRow& row) { return row.op + " " + row.dtype + " " + row.kv_dtype; };
    for (const TraceRow& row : trace.rows) {
        // Skewed rows are compared with even ones of the same library.
        libraries[group_of(row)][row.library] += row.dim("skew") > 0 ? 0 : 1;
    }
    std::map<std::string, std::string> most;
    for (const auto& [group, counts] : libraries) {
        most[group] = std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
                          return a.second < b.second;
                      })->first;
    }
    for (const TraceRow& row : trace.rows) {
        if (row.op != "gemm" && row.library != most[group_of(row)]) {
            continue;
        }
        const std::optional<Operation> operation = operation_of(row);
        const std::optional<KernelPoint> point = operation ? kernel_point(*operation) : std::nullopt;
        if (!point || row.split == "holdout" || row.split == "repeat") {
            continue;
        }
        if (row.dim("window") > 0) {
            continue;  // windows move along the axis of full attention: their own rows would blur it
        }
        const KernelRates rates = kernel_rates(device, point->precision);
        MeasuredPoint measured{*point, row.median_ns * 1e-9, row.line, row.power_w};
        if (row.kernels == 2 && point->kind == KernelKind::gemm) {
            const double quantise = 3 * point->rows * point->depth / (rates.bandwidth * device.memory_efficiency.value);
            measured.seconds = std::max(measured.seconds - quantise, 0.25 * measured.seconds);
        }
        const Key key = {static_cast<std::size_t>(point->kind), static_cast<std::size_t>(point->format)};
        PointSet& set = sets.try_emplace(key, PointSet{point->kind, point->format, {}, {}, 0, {}}).first->second;
        const std::string problem = beats_peak(measured, rates);
        if (!problem.empty()) {
            ++set.refused_rows;
            if (set.refused.size() < kMostNamed) {
                set.refused.push_back(Diagnostic{name, row.line, 1, row.op + ": " + problem});
            }
            continue;
        }
        if (!row.library.empty() &&
            std::find(set.libraries.begin(), set.libraries.end(), row.library) == set.libraries.end()) {
            set.libraries.push_back(row.library);
        }
        merged[key][{point->sizes, point->flops}].push_back(measured);
    }
    std::vector<PointSet> out;
    for (auto& [key, set] : sets) {
        for (auto& [sizes, group] : merged[key]) {
            std::nth_element(group.begin(), group.begin() + static_cast<std::ptrdiff_t>(group.size() / 2), group.end(),
                             [](const MeasuredPoint& a, const MeasuredPoint& b) { return a.seconds < b.seconds; });
            set.points.push_back(group[group.size() / 2]);
        }
        out.push_back(std::move(set));
    }
    return out;
}

}  // namespace orrery
