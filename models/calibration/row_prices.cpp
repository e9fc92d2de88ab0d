#include "models/calibration/row_prices.hpp"

#include "models/calibration/points.hpp"
#include "sim/base/error.hpp"
#include "sim/base/math.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery::models {

namespace {

constexpr double kNineOfTen = 1.645;  // standard deviations
constexpr double kBytes = 2;          // of a 16-bit value

// Elementwise kernels of PyTorch, in values read and written a value of the tensor.
constexpr double kRmsNorm = 7;    // square, mean, product with the root, product with the weight
constexpr double kLayerNorm = 2;  // one kernel
constexpr double kRotary = 9;     // on halves: four products, a sum, a difference, and both halves put together
constexpr double kSwiGlu = 5;     // SiLU, product
constexpr double kGelu = 2;
constexpr double kAdd = 3;
constexpr double kRmsNormKernels = 6, kRotaryKernels = 7;
// AdamW on fp32: parameters, gradients and moments. Autocast reads fp32 weights and writes 16 bits in each forward pass.
constexpr double kAdamW = 28, kCast = 6;
// Logits in 16 bits to fp32, log-softmax, its gradient, and back to 16 bits: B a value.
constexpr double kLoss = 28;

/// Equal sequences that go through the layers together.
struct Sequences {
    double batch, queries, keys;
};

// Lists the kernels of layers and steps of one row.
class Kernels {
  public:
    explicit Kernels(const TraceRow& row)
        : row_(row),
          hidden_(row.dim("hidden")),
          ffn_(row.dim("ffn")),
          vocabulary_(row.dim("vocabulary")),
          q_(row.dim("heads") * row.dim("head_dim")),
          kv_(row.dim("kv_heads") * row.dim("head_dim")),
          gated_(row.dim("gated") > 0),
          training_(row.dim("training") > 0),
          backward_(training_ || row.phase == TracePhase::backward) {}

    void layers(const Sequences& of, double times) {
        const double tokens = of.batch * of.queries;
        product(tokens, q_ + 2 * kv_, hidden_, times);
        product(tokens, hidden_, q_, times);
        product(tokens, gated_ ? 2 * ffn_ : ffn_, hidden_, times);
        product(tokens, hidden_, ffn_, times);
        Attention attention{of.batch * row_.dim("heads"), of.queries, of.keys, row_.dim("head_dim")};
        attention.group = std::max(1.0, row_.dim("heads") / row_.dim("kv_heads"));
        attention.trains = of.queries > 1 && of.queries == of.keys;  // PyTorch's keys are contiguous
        out_.emplace_back(attention, times);
        if (backward_) {
            attention.trains = false;
            attention.backward = true;
            out_.emplace_back(attention, times);
        }
        streaming(tokens * hidden_ * (gated_ ? kRmsNorm : kLayerNorm), 2 * times, gated_ ? kRmsNormKernels : 1);
        streaming(tokens * hidden_ * kAdd, 2 * times, 1);
        streaming(tokens * ffn_ * (gated_ ? kSwiGlu : kGelu), times, gated_ ? 2 : 1);
        if (gated_) {
            streaming(tokens * (q_ + kv_) * kRotary, times, 2 * kRotaryKernels);
        }
    }
    void step(const Sequences& of) {
        layers(of, row_.dim("layers"));
        // A step of serving has logits of the last token of each sequence.
        const double logits = training_ ? of.batch * of.queries : of.batch;
        product(logits, vocabulary_, hidden_, 1);
        if (training_) {
            const double layer = hidden_ * (2 * q_ + 2 * kv_) + hidden_ * ffn_ * (gated_ ? 3 : 2);
            const double parameters = row_.dim("layers") * layer + vocabulary_ * hidden_;
            streaming(of.batch * of.queries * hidden_ * 2, 1, 1);  // gather of the embedding
            out_.emplace_back(Streaming{logits * vocabulary_ * kLoss, 4, StreamingKind::any}, 1);
            out_.emplace_back(Streaming{parameters * (kAdamW + kCast), 2, StreamingKind::any}, 1);
        }
    }
    std::vector<Repeated> take() { return std::move(out_); }

  private:
    void product(double rows, double n, double k, double times) {
        out_.emplace_back(Gemm{rows, n, k}, times);
        if (backward_) {
            out_.emplace_back(Gemm{rows, k, n}, times);
            out_.emplace_back(Gemm{n, k, rows}, times);
        }
    }
    // A backward kernel reads what the forward one read and the gradient besides.
    void streaming(double values, double times, double kernels) {
        out_.emplace_back(Streaming{values * kBytes, kernels, StreamingKind::any}, times);
        if (backward_) {
            out_.emplace_back(Streaming{1.5 * values * kBytes, kernels, StreamingKind::any}, times);
        }
    }

    const TraceRow& row_;
    double hidden_, ffn_, vocabulary_, q_, kv_;
    bool gated_, training_, backward_;
    std::vector<Repeated> out_;
};

std::string binding(double start, double arithmetic, double memory) {
    return start > std::max(arithmetic, memory) ? "start-up" : arithmetic > memory ? "arithmetic" : "memory";
}

}  // namespace

std::vector<Repeated> operations_in(const TraceRow& row) {
    if (row.op == "layer" || row.op == "step") {
        if (row.dim("experts") > 0) {
            return {};
        }
        Kernels kernels(row);
        const Sequences all{row.dim("batch"), row.dim("queries"), row.dim("keys", row.dim("queries"))};
        if (row.op == "layer") {
            kernels.layers(all, 1);
            return kernels.take();
        }
        kernels.step(all);
        if (row.dim("decode_batch") > 0) {  // after the prompts, in a pass of their own
            kernels.step({row.dim("decode_batch"), 1, row.dim("decode_keys")});
        }
        return kernels.take();
    }
    const std::optional<Operation> operation = operation_of(row);
    return operation ? std::vector<Repeated>{{*operation, 1.0}} : std::vector<Repeated>();
}

RowPricer::RowPricer(const DeviceSpec& device, const DataDirectory& data, const KernelSets& kernels, double duty)
    : device_(device), roofline_(device) {
    if (!device.kernels.empty()) {
        calibrated_.emplace(device, data, duty, kernels);
    }
}

RowPrice RowPricer::price(const Operation& operation) const {
    const CostModel& model = calibrated_ ? static_cast<const CostModel&>(*calibrated_) : roofline_;
    const Cost cost = model.cost(operation);
    RowPrice out;
    out.seconds = cost.seconds.value();
    const double spread = std::hypot(cost.spread, cost.systematic);
    out.low = out.seconds * exp_pinned(-kNineOfTen * spread);
    out.high = out.seconds * exp_pinned(kNineOfTen * spread);
    ORRERY_ASSERT(out.low <= out.seconds && out.seconds <= out.high);
    const Precision precision = precision_of(operation);
    const KernelRates rates = kernel_rates(device_, precision);
    const std::string emulated = device_.matrix_flops(precision) > 0
                                     ? ""
                                     : fmt::format("; the device has no {} arithmetic, so it is that of 16 bits",
                                                   precision_names()[static_cast<std::size_t>(precision)]);
    out.of_peak = cost.flops / out.seconds / rates.flops;
    out.of_memory = cost.bytes / out.seconds / rates.bandwidth;
    std::optional<KernelPoint> point = kernel_point(operation);
    const KernelFit* fit = point && calibrated_ ? calibrated_->fit(point->kind, point->format) : nullptr;
    bool by_prompts = false;
    if (const auto* attention = std::get_if<Attention>(&operation);
        fit == nullptr && calibrated_ && attention != nullptr && (attention->trains || attention->backward)) {
        Attention prompt = *attention;
        prompt.trains = false;
        prompt.backward = false;
        point = kernel_point(prompt);
        fit = calibrated_->fit(point->kind, point->format);
        by_prompts = fit != nullptr;
    }
    if (fit == nullptr) {
        const double memory = device_.memory_efficiency.value;
        out.binds = binding(device_.launch.value, cost.flops / rates.flops, cost.bytes / (rates.bandwidth * memory));
        out.source = (device_.kernels.empty() ? "roofline: no kernels of this device were measured"
                                              : "roofline: no kernel of this kind was measured on the device") +
                     emulated;
        return out;
    }
    out.binds = binding(fit->start, cost.flops / (rates.flops * fit->compute_efficiency),
                        cost.bytes / (rates.bandwidth * fit->memory_efficiency));
    const auto meta = [&](const char* key) {
        const auto found = fit->meta.find(key);
        return found == fit->meta.end() ? std::string() : found->second;
    };
    out.source = meta("source");
    if (!meta("library").empty()) {
        out.source += ", " + meta("library");
    }
    if (!meta("device").empty()) {
        out.source += ", on " + meta("device");
    }
    if (by_prompts) {
        out.source += ", from prompts";
    }
    if (fit->format != point->format) {
        out.source += ", of " + kernel_format_names()[static_cast<std::size_t>(fit->format)];
    }
    // Within the grid the spread is the fit's own.
    if (cost.spread > fit->spread) {
        out.source += ", beyond the sizes measured";
    }
    out.source += emulated;
    return out;
}

std::optional<RowPrice> RowPricer::price(const TraceRow& row) const {
    const std::vector<Repeated> operations = operations_in(row);
    if (operations.empty()) {
        return std::nullopt;
    }
    if (operations.size() == 1) {
        return price(operations.front().first);
    }
    RowPrice sum;
    std::vector<std::pair<double, std::string>> parts = {{0, "arithmetic"}, {0, "memory"}, {0, "start-up"}};
    for (const auto& [operation, times] : operations) {
        const RowPrice one = price(operation);
        sum.seconds += times * one.seconds;
        sum.low += times * one.low;
        sum.high += times * one.high;
        sum.of_peak += times * one.seconds * one.of_peak;
        sum.of_memory += times * one.seconds * one.of_memory;
        for (auto& [seconds, name] : parts) {
            seconds += name == one.binds ? times * one.seconds : 0;
        }
    }
    ORRERY_ASSERT(sum.seconds > 0);
    sum.of_peak /= sum.seconds;
    sum.of_memory /= sum.seconds;
    sum.binds = std::max_element(parts.begin(), parts.end())->second;
    sum.source = fmt::format("the sum of {} kinds of kernels", operations.size());
    return sum;
}

}  // namespace orrery::models
