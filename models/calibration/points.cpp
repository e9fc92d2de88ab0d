#include "models/calibration/points.hpp"

#include "models/calibrated.hpp"
#include "models/calibration/quantisation.hpp"
#include "sim/base/error.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>

namespace orrery::models {

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

/// A kernel bound by memory: which measured one prices it, and the bytes of a value of its shape that it must move, in 16 bits
/// (the optimizer in 32: parameters, gradients and both moments).
struct StreamingRow {
    const char* op;
    StreamingKind kind;
    double forward, backward;  ///< B a value; 0: there is no such pass
};
constexpr StreamingRow kStreaming[] = {{"rms_norm", StreamingKind::norm, 4, 6},
                                       {"layer_norm", StreamingKind::norm, 4, 6},
                                       {"add_norm", StreamingKind::norm, 8, 0},
                                       {"gelu", StreamingKind::activation, 4, 6},
                                       {"silu_mul", StreamingKind::activation, 6, 10},
                                       {"add", StreamingKind::add, 6, 0},
                                       {"dropout_add", StreamingKind::any, 7, 0},
                                       {"rotary", StreamingKind::rotary, 4, 4},
                                       {"softmax", StreamingKind::softmax, 4, 6},
                                       {"embedding", StreamingKind::embedding, 4, 0},
                                       {"convolution", StreamingKind::convolution, 4, 6},
                                       {"convolution_update", StreamingKind::convolution_update, 16, 0},
                                       {"quantize", StreamingKind::quantize, 3, 0},
                                       {"cross_entropy", StreamingKind::loss, 2, 4},
                                       {"sampling", StreamingKind::sampling, 2, 0},
                                       {"adamw", StreamingKind::optimizer, 28, 0},
                                       {"grad_norm", StreamingKind::optimizer, 12, 0},
                                       {"fill", StreamingKind::any, 1, 0},
                                       {"read", StreamingKind::any, 1, 0},
                                       {"triad", StreamingKind::any, 3, 0}};

std::optional<Operation> streaming_of(const TraceRow& row) {
    for (const StreamingRow& one : kStreaming) {
        const double bytes = row.phase == TracePhase::forward ? one.forward : one.backward;
        if (row.op == one.op && bytes > 0) {
            const double values =
                row.dim("params", row.dim("bytes", row.dim("tokens") * row.dim("hidden", row.dim("vocabulary"))));
            return Streaming{values * bytes, 1, one.kind};
        }
    }
    return std::nullopt;
}

// Copies and launches, which have no number format.
std::optional<Operation> moved_by(const TraceRow& row) {
    if (row.op == "copy" || row.op == "h2d" || row.op == "d2h") {
        return Copy{row.dim("bytes"), row.op == "copy"  ? CopyDirection::on_device
                                      : row.op == "h2d" ? CopyDirection::host_to_device
                                                        : CopyDirection::device_to_host};
    }
    if (row.op == "launch" && row.mode != "sync") {
        return Launch{1, row.mode.empty() || row.mode == "graph"};
    }
    return std::nullopt;
}

// PyTorch's own FlashAttention-2, as tools/torchbench names it.
bool by_flash2(const TraceRow& row) {
    constexpr std::string_view kName = "/flash";
    const std::string_view library = row.library;
    return library.size() > kName.size() && library.substr(library.size() - kName.size()) == kName;
}

}  // namespace

std::optional<Operation> operation_of(const TraceRow& row) {
    if (const auto moved = moved_by(row)) {
        return moved;
    }
    const std::optional<Format> format = format_of(row.dtype);
    const bool backward = row.phase == TracePhase::backward;
    if (!format || (backward && (row.op == "gemm" || row.op == "grouped_gemm" || row.op.rfind("m", 0) == 0))) {
        return std::nullopt;
    }
    const Precision cache =
        row.kv_dtype.empty() ? Precision::bf16 : precision_of(row.kv_dtype).value_or(Precision::bf16);
    if (row.op == "gemm") {
        Gemm gemm{row.dim("m"),        row.dim("n"),    row.dim("k"),   row.dim("batch", 1), format->precision, 0,
                  format->weight_only, format->weights, format->scaling};
        gemm.split_accumulator = row.dim("split_accumulator") > 0;
        if (row.dim("accumulate") > 0) {
            const double moved = row.dim("accumulate") == 16 ? kNarrowSumBytes : kSumBytes;
            gemm.extra_bytes = moved * kSumsBesideProduct * gemm.m * gemm.n * gemm.batch;
        }
        if (row.kernels == 2) {
            gemm.quantises = true;
            gemm.extra_bytes += kQuantisedBytes * gemm.m * gemm.k * gemm.batch;
        }
        return gemm;
    }
    if (row.op == "grouped_gemm") {
        return GroupedGemm{row.dim("tokens"), row.dim("experts"),  row.dim("topk"), row.dim("n"),   row.dim("k"),
                           format->precision, format->weight_only, format->weights, format->scaling};
    }
    if (row.op == "moe_route") {
        return ExpertRouting{row.dim("tokens"), row.dim("experts"), row.dim("topk"), row.dim("hidden")};
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
    if (row.op == "attention_prefill" || row.op == "attention_decode" || row.op == "attention_training") {
        Attention attention;
        attention.trains = row.op == "attention_training" && !backward;
        attention.batch_heads = row.dim("batch") * row.dim("heads");
        attention.queries = row.dim("queries", 1);
        attention.keys = row.dim("keys");
        attention.head_dim = row.dim("head_dim");
        attention.causal = row.dim("causal", 1) > 0;
        attention.window = row.dim("window");
        attention.backward = backward;
        attention.fused = by_flash2(row) ? FusedAttention::flash2 : FusedAttention::newest;
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
    if (row.op == "mla_sparse") {
        LatentAttention attention;
        attention.batch = row.dim("batch");
        attention.queries = row.dim("queries");
        attention.keys = row.dim("keys");
        attention.heads = row.dim("heads");
        attention.chosen = row.dim("chosen");
        attention.cache = cache;
        return attention;
    }
    if (row.op == "index_scores") {
        IndexScores scores{row.dim("batch"), row.dim("queries"), row.dim("keys"), row.dim("heads"),
                           row.dim("dim", 128)};
        scores.precision = format->precision;
        return scores;
    }
    if (row.op == "top_choice") {
        return TopChoice{row.dim("rows"), row.dim("keys"), row.dim("chosen")};
    }
    if (row.op == "delta_scan" || row.op == "delta_update") {
        DeltaScan scan;
        scan.batch = row.dim("batch");
        scan.queries = row.dim("queries", 1);
        scan.key_heads = row.dim("key_heads");
        scan.value_heads = row.dim("heads");
        scan.key_dim = row.dim("key_dim", 128);
        scan.value_dim = row.dim("value_dim", 128);
        scan.channels = row.dim("channels") > 0;
        return scan;
    }
    return streaming_of(row);
}

namespace {

// Whether operands that were in the cache when the kernel began could have made it faster.
bool warmth_matters(const KernelPoint& point, const DeviceSpec& device) {
    constexpr double kCaches = 4;  // a stream through that much leaves little of a warm cache to the next execution
    constexpr double kHidden = 2;  // times as long as the reading: that is hidden either way
    const KernelRates rates = kernel_rates(device, point.precision);
    const bool streams = rates.cache > 0 && point.bytes >= kCaches * rates.cache;
    return !streams && point.flops / rates.flops < kHidden * point.bytes / rates.bandwidth;
}

using Shape = std::vector<std::pair<std::string, double>>;

// The library that each row's set is of: its own, or one for all where libraries share out the sizes of a product.
class Libraries {
  public:
    explicit Libraries(const std::vector<const TraceRow*>& rows) {
        std::map<std::string, std::map<Shape, std::string>> first;
        std::map<std::string, std::map<std::string, std::size_t>> counts;
        for (const TraceRow* row : rows) {
            const std::string group = group_of(*row);
            // Skewed rows are compared with even ones of the same library.
            counts[group][row->library] += row->dim("skew") > 0 ? 0 : 1;
            const auto found = first[group].emplace(row->shape, row->library).first;
            rivals_[group] = rivals_[group] || row->op != "gemm" || found->second != row->library;
        }
        for (const auto& [group, of] : counts) {
            main_[group] = std::max_element(of.begin(), of.end(), [](const auto& a, const auto& b) {
                               return a.second < b.second;
                           })->first;
        }
    }
    /// Empty for the most frequent one.
    [[nodiscard]] std::string kernel_set(const TraceRow& row) const {
        const std::string group = group_of(row);
        return !rivals_.at(group) || row.library == main_.at(group) ? std::string() : kernel_set_name(row.library);
    }

  private:
    static std::string group_of(const TraceRow& row) { return row.op + " " + row.dtype + " " + row.kv_dtype; }
    std::map<std::string, std::string> main_;
    std::map<std::string, bool> rivals_;  ///< libraries timed the same sizes, so that they are alternatives
};

// One row of a product takes what two take, but for noise. Where all widths of a table have it otherwise, what was timed with the one
// row is no kernel's time (vLLM 0.24 on GB200 in 8 bits: 17 us more at every width), and these rows leave.
void drop_single_rows(std::vector<MeasuredPoint>& points) {
    constexpr double kMost = 1.5;
    constexpr std::size_t kLeastWidths = 20;
    std::map<std::array<double, 4>, std::map<double, double>> widths;  // seconds by rows
    for (const MeasuredPoint& one : points) {
        std::array<double, 4> width = one.point.sizes;
        width[0] = 0;
        widths[width][one.point.sizes[0]] = one.seconds;
    }
    std::vector<double> ratios;
    for (const auto& [width, seconds] : widths) {
        if (seconds.contains(1) && seconds.contains(2)) {
            ratios.push_back(seconds.at(1) / seconds.at(2));
        }
    }
    if (ratios.size() < kLeastWidths) {
        return;
    }
    const auto middle = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2);
    std::nth_element(ratios.begin(), middle, ratios.end());
    if (*middle > kMost) {
        std::erase_if(points, [](const MeasuredPoint& one) { return one.point.sizes[0] == 1; });
    }
}

}  // namespace

std::string kernel_set_name(const std::string& library) {
    std::string out;
    for (std::size_t at = 0; at < library.size(); ++at) {
        const bool version =
            library[at] == '-' && at + 1 < library.size() && library[at + 1] >= '0' && library[at + 1] <= '9';
        if (version) {
            at = std::min(library.find('/', at), library.size());
        }
        if (at < library.size()) {
            const char c = library[at];
            const bool plain =
                (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
            out += plain ? c : '-';
        }
    }
    return out;
}

std::string why_not_fitted(const TraceRow& row, const DeviceSpec& device) {
    constexpr double kSustained = 1;  // s, as the format has it
    if (row.split == "holdout") {
        return "held back, for 'validate compute --trace'";
    }
    if (row.split == "repeat") {
        return "repeats an earlier row, to show drift";
    }
    if (row.phase != TracePhase::forward && row.op != "attention_training") {
        return "no fit is of a backward pass: it is priced from the forward kernel";
    }
    if (!row.beside.empty()) {
        return "something else ran beside it";
    }
    const std::optional<Operation> operation = operation_of(row);
    const std::optional<KernelPoint> point = operation ? kernel_point(*operation) : std::nullopt;
    if (!point) {
        return "no fit is of such operations";
    }
    if (by_flash2(row)) {
        return "FlashAttention-2 is priced as a share of the newest kernels";
    }
    if (row.dim("split_accumulator") > 0 || row.dim("accumulate") > 0) {
        return "fits are of products with fast accumulation that write their result";
    }
    if (row.dim("window") > 0) {
        return "windows move along the axis of full attention";
    }
    // Of equal sizes and other work, they would pull at the same nodes: a causal mask leaves tiles half empty.
    if (row.op == "attention_training" && row.dim("causal", 1) == 0) {
        return "fits of training are of causal masks";
    }
    // A framework's backward pass cannot be captured; long ones hide the host.
    constexpr double kHostShows = 300e3;  // ns
    if ((row.mode == "eager" && (row.op != "attention_training" || row.median_ns < kHostShows)) || row.mode == "sync") {
        return "its time has the host's launches in it";
    }
    if (row.held_s >= kSustained) {
        return "held until the power limit acts, and fits are of bursts";
    }
    // Training's queries, keys and values were written by the kernel before, as where a row's operands are warm.
    if (row.cache == "warm" && row.op != "attention_training" && warmth_matters(*point, device)) {
        return "its operands were in the cache, and fits are of operands in memory";
    }
    return {};
}

std::vector<PointSet> point_sets(const Trace& trace, const DeviceSpec& device, const std::string& name) {
    constexpr std::size_t kMostNamed = 100;
    constexpr double kMostBefore = 0.6;
    using Key = std::tuple<std::size_t, std::size_t, std::string>;
    std::map<Key, PointSet> sets;
    std::map<Key, std::map<std::pair<std::array<double, 4>, double>, std::vector<MeasuredPoint>>> merged;
    std::vector<const TraceRow*> rows;
    for (const TraceRow& row : trace.rows) {
        if (why_not_fitted(row, device).empty()) {
            rows.push_back(&row);
        }
    }
    const Libraries libraries(rows);
    const Quantisations quantisations(rows, device);
    for (const TraceRow* fitted : rows) {
        const TraceRow& row = *fitted;
        const std::optional<KernelPoint> point = kernel_point(*operation_of(row));
        ORRERY_ASSERT(point.has_value());
        const KernelRates rates = kernel_rates(device, point->precision);
        MeasuredPoint measured{*point, row.median_ns * 1e-9, row.line, row.power_w};
        measured.before = quantisations.seconds(row) / measured.seconds;
        ORRERY_ASSERT(measured.before >= 0);
        if (measured.before > kMostBefore) {
            continue;  // it says more about the kernel before
        }
        measured.seconds *= 1 - measured.before;
        if (trace.meta.contains("sustained")) {
            measured.seconds = burst_seconds(device, measured.seconds, point->flops, point->bytes, rates.flops);
        }
        const std::string own = libraries.kernel_set(row);
        const Key key = {static_cast<std::size_t>(point->kind), static_cast<std::size_t>(point->format), own};
        PointSet& set = sets.try_emplace(key, PointSet{point->kind, point->format, {}, {}, 0, {}, own}).first->second;
        if (const auto law = quantisations.laws().find(row.dtype);
            row.kernels == 2 && law != quantisations.laws().end()) {
            set.quantisation = law->second;
        }
        const std::string problem = beats_peak(measured, rates);
        if (!problem.empty()) {
            ++set.refused_rows;
            if (set.refused.size() < kMostNamed) {
                set.refused.push_back(
                    Diagnostic{name, row.line, 1, row.op + ": " + problem, ErrorCode::malformed_trace});
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
        if (set.kind == KernelKind::gemm) {
            drop_single_rows(set.points);
        }
        out.push_back(std::move(set));
    }
    return out;
}

}  // namespace orrery::models
