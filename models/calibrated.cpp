#include "models/calibrated.hpp"

#include "models/borrowed.hpp"
#include "models/unit_model.hpp"
#include "sim/base/error.hpp"
#include "sim/base/math.hpp"
#include "sim/config/fields.hpp"
#include "sim/config/yaml_tree.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace orrery::models {

namespace {

// Backward over forward efficiency of fused attention, see the header.
constexpr double kBackwardEfficiency = 63.0 / 73.0;
constexpr double kBackwardWork = 2.5;
// Dynamic power of streaming kernels over that of the limit: H200, (578 - 80) of (700 - 80) W (te42kyfo/gpu-benches).
constexpr double kMemoryPower = 0.8;
// Rows of queries that a compute unit attends to at a time, chosen on 24 rows without a causal mask beside those with one, on an H100
// and an H200 (validation/measured/*-2026-11-27c).
constexpr double kQueriesOfUnit = 192;
// Two collections of the same device differ by 3.8 to 7.1 % (H200, three versions of one library): what no fit on one of
// them can know.
constexpr double kBetweenCollections = 0.05;

KernelFormat fallback(KernelFormat format) {
    return format == KernelFormat::fp8_block ? KernelFormat::fp8 : KernelFormat::bf16;
}

const std::string kKernels = "models/data/kernels/";

struct KernelFolder {
    std::string path;
    std::string device;    ///< that they were measured on
    bool attention;        ///< its fits of attention are taken
    bool experts;          ///< and those of mixtures of experts
    bool products = true;  ///< and those of everything else

    [[nodiscard]] bool has(KernelKind kind) const {
        return is_attention(kind) ? attention : is_experts(kind) ? experts : products;
    }
};

// In the order in which they are read: what a later one has goes before.
std::vector<KernelFolder> kernel_folders(const DeviceSpec& device, const DataDirectory& data,
                                         const KernelSets& kernels) {
    const bool elsewhere = !device.attention_kernels.empty() && device.attention_kernels != device.kernels;
    std::vector<KernelFolder> out;
    if (!device.sibling_kernels.empty()) {
        out.push_back({data.path(kKernels + device.sibling_kernels), device.sibling_kernels, !elsewhere, true});
    }
    out.push_back({data.path(kKernels + device.kernels), device.kernels, !elsewhere, true});
    if (elsewhere) {
        out.push_back({data.path(kKernels + device.attention_kernels), device.attention_kernels, true, false, false});
    }
    const auto add = [&](const std::string& name, bool attention, bool experts, bool products) {
        const std::string own = data.path(kKernels + device.kernels + "/" + name);
        if (!name.empty() && std::filesystem::is_directory(own)) {
            out.push_back({own, device.kernels, attention && !elsewhere, experts, products});
        }
    };
    add(kernels.all, true, true, true);
    add(kernels.attention, true, false, false);
    add(kernels.experts, false, true, false);
    return out;
}

// The units of the device, where the folder of its kernels describes them.
std::string units_file(const DeviceSpec& device, const DataDirectory& data) {
    const std::string file = data.path(kKernels + device.kernels + "/units.yaml");
    return std::filesystem::exists(file) ? file : "";
}

// What prices operations that no kernel was measured for.
std::unique_ptr<CostModel> model_without_kernels(const DeviceSpec& device, const DataDirectory& data) {
    if (const std::string file = units_file(device, data); !file.empty()) {
        return std::make_unique<UnitModel>(device, read_parts(file, device, data));
    }
    return std::make_unique<Roofline>(device);
}

// Null for a roofline.
const SeparateUnits* units_of(const CostModel& without) {
    return dynamic_cast<const SeparateUnits*>(&without);
}

Precision precision_of(KernelFormat format) {
    switch (format) {
        case KernelFormat::fp8:
        case KernelFormat::fp8_block:
            return Precision::fp8;
        case KernelFormat::fp4:
            return Precision::fp4;
        case KernelFormat::int8:
            return Precision::int8;
        case KernelFormat::tf32:
            return Precision::tf32;
        case KernelFormat::fp32:
            return Precision::fp32;
        default:
            return Precision::bf16;
    }
}

// Fits carry over to siblings whose arithmetic and memory are in much the same proportion; beyond twice it (H20 by H200: 5.6) bounds
// by their parts count as well.
constexpr double kOtherBalance = 2;

// The device that the kernels of a folder were measured on, where it is a preset.
std::optional<DeviceSpec> measured_device(const std::string& preset, const DataDirectory& data) {
    const std::string file = data.path("models/data/devices/" + preset + ".yaml");
    if (!std::filesystem::exists(file)) {
        return std::nullopt;
    }
    DeviceSpec other;
    std::vector<Diagnostic> errors;
    read_fields(load_yaml(file), data, errors, [&](Fields& fields) { describe(fields, other); });
    throw_if_any(errors);
    return other;
}

// Whether it has far more arithmetic for each byte of its memory than this one.
bool faster_arithmetic(const DeviceSpec& other, const DeviceSpec& device) {
    const auto balance = [](const DeviceSpec& of) { return of.flops_bf16.value / of.memory_bandwidth.value; };
    return balance(other) > kOtherBalance * balance(device);
}

// s of a kernel that takes `measured` where it was measured: no more than with the memory of this device, and what its arithmetic
// takes longer, as far above the peaks as there. Tiles that few rows fill in part are more of a time where arithmetic is slow, and
// no fit has seen such.
double most_seconds(double measured, const KernelPoint& point, const KernelFit& fit, const KernelRates& from,
                    const KernelRates& to) {
    const double work = point.flops / fit.compute_efficiency;
    const double peaks = work / from.flops + point.bytes / (from.bandwidth * fit.memory_efficiency);
    const double longer = std::max(0.0, work / to.flops - work / from.flops);
    return measured * std::max(1.0, from.bandwidth / to.bandwidth) + std::max(1.0, measured / peaks) * longer;
}

// Attention of as much work over a square, with the mask that fits of training have.
Attention masked_of(Attention attention) {
    attention.queries = std::sqrt(attention.queries * attention.keys);
    attention.keys = attention.queries;
    attention.causal = true;
    return attention;
}

// How many times as long attention takes without the causal mask: with one, the time of the longest row of queries where all rows have
// a unit of their own at once, and of the mean one where many share it.
double without_mask(const Attention& causal, double units) {
    const double rounds = causal.batch_heads * causal.queries / (kQueriesOfUnit * std::max(1.0, units));
    return 1 / (causal.density() + (1 - causal.density()) / std::max(1.0, rounds));
}

// The fits in a folder, sorted. Throws ConfigError when it cannot be read.
std::vector<std::string> fits_in(const std::string& folder) {
    std::vector<std::string> files;
    std::error_code failed;
    for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
        if (entry.path().extension() == ".fit") {
            files.push_back(entry.path().string());
        }
    }
    if (failed) {
        throw ConfigError(
            {Diagnostic{folder, 0, 0, "cannot be read: no fitted kernels of this name", ErrorCode::unreadable_file}});
    }
    std::sort(files.begin(), files.end());
    return files;
}

}  // namespace

std::vector<std::string> kernel_files(const DeviceSpec& device, const DataDirectory& data, const KernelSets& kernels) {
    std::vector<std::string> out;
    if (!device.kernels.empty()) {
        for (const KernelFolder& folder : kernel_folders(device, data, kernels)) {
            const std::vector<std::string> files = fits_in(folder.path);
            out.insert(out.end(), files.begin(), files.end());
        }
        if (const std::string file = units_file(device, data); !file.empty()) {
            out.push_back(file);
        }
    }
    return out;
}

Calibrated::Calibrated(const DeviceSpec& device, const DataDirectory& data, double duty, const KernelSets& kernels)
    : device_(device), roofline_(device), without_(model_without_kernels(device, data)), duty_(duty) {
    for (const KernelFolder& folder : kernel_folders(device, data, kernels)) {
        const std::optional<DeviceSpec> there = measured_device(folder.device, data);
        std::shared_ptr<const std::string> lender;
        if (there && there->name != device.name) {
            lender = std::make_shared<const std::string>(there->name);
        }
        for (const std::string& path : fits_in(folder.path)) {
            auto fit = std::make_shared<const LazyFit>(path);
            if (folder.has(fit->kind())) {
                Entry& entry = entries_[static_cast<std::size_t>(fit->kind())][static_cast<std::size_t>(fit->format())];
                entry.measured = {};
                if (there && faster_arithmetic(*there, device)) {
                    entry.measured = kernel_rates(*there, precision_of(fit->format()));
                }
                entry.lender = lender;
                entry.fit = std::move(fit);
            }
        }
    }
    for (const auto& [own, like] : {std::pair{KernelKind::kimi_prefill, KernelKind::delta_prefill},
                                    std::pair{KernelKind::kimi_decode, KernelKind::delta_decode}}) {
        auto& formats = entries_[static_cast<std::size_t>(own)];
        if (std::none_of(formats.begin(), formats.end(), [](const Entry& entry) { return entry.fit != nullptr; })) {
            formats = entries_[static_cast<std::size_t>(like)];
        }
    }
    for (std::size_t kind = 0; kind < kKernelKinds; ++kind) {
        auto& formats = entries_[kind];
        // Units that have no such format get its values as 16 bits.
        for (const auto& [format, precision] :
             {std::pair{KernelFormat::fp8, Precision::fp8}, std::pair{KernelFormat::fp4, Precision::fp4}}) {
            Entry& own = formats[static_cast<std::size_t>(format)];
            if (!own.fit && device.matrix_flops(precision) <= 0) {
                own.fit = formats[static_cast<std::size_t>(KernelFormat::bf16)].fit;
                own.lender = formats[static_cast<std::size_t>(KernelFormat::bf16)].lender;
            }
        }
        for (std::size_t f = 0; f < kKernelFormats; ++f) {
            const auto format = static_cast<KernelFormat>(f);
            const bool narrows = format == KernelFormat::fp8_block || format == KernelFormat::bf16_kv8 ||
                                 format == KernelFormat::bf16_int4 || format == KernelFormat::bf16_fp4;
            if (!formats[f].fit && narrows && kind != static_cast<std::size_t>(KernelKind::experts_skewed)) {
                formats[f].fit = formats[static_cast<std::size_t>(fallback(format))].fit;
                formats[f].lender = formats[static_cast<std::size_t>(fallback(format))].lender;
            }
        }
        for (std::size_t f = 0; f < kKernelFormats; ++f) {
            // Training attends in 8 bits where kernels of it were measured, as no prompt does.
            const bool trains = kind == static_cast<std::size_t>(KernelKind::attention_forward) ||
                                kind == static_cast<std::size_t>(KernelKind::attention_backward);
            const bool narrow = trains && formats[f].fit && formats[f].fit->format() == KernelFormat::bf16_kv8;
            formats[f].rates =
                kernel_rates(device, narrow ? Precision::fp8 : precision_of(static_cast<KernelFormat>(f)));
        }
    }
}

const KernelFit* Calibrated::fit(KernelKind kind, KernelFormat format) const {
    const auto& fit = entries_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(format)].fit;
    return fit ? &fit->get() : nullptr;
}

double governed_seconds(const DeviceSpec& device, double duty, double seconds, double flops, double bytes,
                        double peak) {
    const double knee = device.power_knee.value * peak;
    if (duty <= 0 || knee <= 0) {
        return seconds;
    }
    // Dynamic power at full clock over what the limit leaves for it: of this product, and of the kernels between.
    const double budget = device.tdp.value - device.idle_power.value;
    const double between = device.memory_power.value > 0
                               ? (device.memory_power.value - device.idle_power.value) / std::max(1.0, budget)
                               : kMemoryPower;
    const double demand = duty * flops / seconds / knee + (1 - duty) * between;
    if (demand <= 1) {
        return seconds;
    }
    // Cube root by Newton's method, exact to the last bits between 1 and 8 after four steps.
    double slow = (demand + 2) / 3;
    for (int step = 0; step < 4; ++step) {
        slow -= (slow - demand / (slow * slow)) / 3;
    }
    ORRERY_ASSERT(slow >= 1);  // the cube root of more than 1
    const double known = device.power_delay.value > 0 ? 1 / (1 + seconds / device.power_delay.value) : 1;
    // The clock of the memory stays: what it bounds does not slow down.
    const double memory = bytes / (device.memory_bandwidth.value * device.memory_efficiency.value);
    return std::max(memory, seconds * (1 + (slow - 1) * known));
}

double burst_seconds(const DeviceSpec& device, double held, double flops, double bytes, double peak) {
    constexpr double kMostSlow = 2;  // more than any limit slows a kernel down
    double low = held / kMostSlow;
    double high = held;
    for (int step = 0; step < 50; ++step) {
        const double middle = (low + high) / 2;
        (governed_seconds(device, kHeld, middle, flops, bytes, peak) < held ? low : high) = middle;
    }
    return high;
}

// As many times the price of even choices as the nearest format whose skewed rows were measured has it.
Cost Calibrated::cost_of_skewed(const FusedExperts& experts) const {
    FusedExperts even = experts;
    even.skewed = false;
    Cost cost = this->cost(even);
    FusedExperts like = even;
    KernelFormat format = kernel_point(like)->format;
    while (!has(KernelKind::experts_skewed, format)) {
        if (format == KernelFormat::bf16) {
            return cost;
        }
        format = fallback(format);
        like.weight_only = false;
        like.scaling = Scaling::tensor;
        like.precision = format == KernelFormat::fp8 ? Precision::fp8 : Precision::bf16;
    }
    const double choices = experts.tokens * experts.topk / experts.experts;
    like.experts *= experts.devices;
    like.topk *= experts.devices;
    like.topk_elsewhere = 0;
    like.devices = 1;
    like.tokens = std::max(like.tokens, experts.experts / experts.topk);
    const Entry& even_entry = entries_[static_cast<std::size_t>(KernelKind::experts)][static_cast<std::size_t>(format)];
    const Entry& law = entries_[static_cast<std::size_t>(KernelKind::experts_skewed)][static_cast<std::size_t>(format)];
    ORRERY_ASSERT(even_entry.fit && law.fit);  // a law is over the even rows of its format
    const double evenly = even_entry.fit->get().seconds(*kernel_point(like), even_entry.rates);
    like.skewed = true;
    ORRERY_ASSERT(evenly > 0);
    const double ratio = law.fit->get().seconds(*kernel_point(like), law.rates) / evenly;
    cost.seconds = cost.seconds * (1 + (ratio - 1) * std::min(1.0, choices));
    return cost;
}

// Attention of training where no kernel of it was measured.
Cost Calibrated::cost_from_prompt(const Attention& attention) const {
    (void)without_->cost(attention);  // units that do no backward pass say so
    Attention forward = attention;
    forward.trains = false;
    forward.backward = false;
    forward.fused = FusedAttention::newest;
    Cost cost = this->cost(forward);
    cost.seconds = cost.seconds * earlier_attention(device_, attention);
    if (attention.backward) {
        cost.seconds = cost.seconds * (kBackwardWork / kBackwardEfficiency);
        cost.flops = attention.flops();
        cost.bytes = attention.bytes();
    }
    return cost;
}

// As many times the forward scan as it has arithmetic: both are the same kind of products in chunks.
Cost Calibrated::cost_of_backward(const DeltaScan& scan) const {
    DeltaScan forward = scan;
    forward.backward = false;
    forward.trains = true;
    Cost cost = this->cost(forward);
    cost.seconds = cost.seconds * (scan.flops() / forward.flops());
    cost.flops = scan.flops();
    cost.bytes = scan.bytes();
    return cost;
}

Cost Calibrated::cost(const Operation& operation) const {
    if (const auto* scan = std::get_if<DeltaScan>(&operation); scan != nullptr && scan->backward) {
        return cost_of_backward(*scan);
    }
    if (const auto* experts = std::get_if<FusedExperts>(&operation); experts != nullptr && experts->skewed) {
        return cost_of_skewed(*experts);
    }
    const auto* attention = std::get_if<Attention>(&operation);
    const std::optional<KernelPoint> point = kernel_point(operation);
    if (attention != nullptr && (attention->trains || attention->backward) && !has(point->kind, point->format)) {
        return cost_from_prompt(*attention);
    }
    const Entry* entry = nullptr;
    if (point) {
        entry = &entries_[static_cast<std::size_t>(point->kind)][static_cast<std::size_t>(point->format)];
    }
    if (entry == nullptr || !entry->fit) {
        if (point && units_of(*without_) == nullptr) {
            BorrowedKernels::note(device_.name, "", point->kind);
        }
        return without_->cost(operation);
    }
    const KernelFit& fit = entry->fit->get();
    if (entry->lender) {
        BorrowedKernels::note(device_.name, *entry->lender, point->kind);
    }
    const bool unmasked = attention != nullptr && !attention->causal && attention->window == 0 &&
                          (attention->trains || attention->backward);
    const Attention causal = unmasked ? masked_of(*attention) : Attention();
    const KernelPoint measured = unmasked ? *kernel_point(causal) : *point;
    const double longer = unmasked ? without_mask(causal, entry->rates.units) : 1;
    const KernelFit::Estimate estimate = fit.estimate(measured, entry->rates);
    double burst = estimate.seconds * longer;
    if (entry->measured) {
        burst = std::min(burst, longer * most_seconds(fit.seconds(measured, *entry->measured), measured, fit,
                                                      *entry->measured, entry->rates));
    }
    const auto* gemm = std::get_if<Gemm>(&operation);
    if (gemm != nullptr && point->flops / entry->rates.flops > point->bytes / roofline_.memory_rate()) {
        burst *= split_accumulator(device_, *gemm);
    }
    double seconds = governed_seconds(device_, duty_, burst, point->flops, point->bytes, entry->rates.flops);
    if (attention != nullptr) {
        seconds *= earlier_attention(device_, *attention);
    } else if (gemm != nullptr) {
        seconds += gemm->extra_bytes / roofline_.memory_rate();
        if (gemm->quantises) {
            const double bytes = kQuantisedBytes * gemm->batch * gemm->m * gemm->k;
            seconds += std::max(
                0.0, fit.quantisation.seconds(gemm->batch * gemm->m, gemm->k) - bytes / roofline_.memory_rate());
        }
    } else if (const auto* streaming = std::get_if<Streaming>(&operation)) {
        seconds *= std::max(1.0, streaming->kernels);
    }
    Cost cost;
    ORRERY_ASSERT(seconds >= 0);
    cost.seconds = Seconds(seconds);
    cost.spread = estimate.spread;
    cost.systematic = std::sqrt(fit.systematic * fit.systematic + kBetweenCollections * kBetweenCollections);
    cost.flops = point->flops;
    cost.bytes = point->bytes;
    if (gemm != nullptr) {
        cost.bytes += gemm->extra_bytes;
    } else if (const auto* streaming = std::get_if<Streaming>(&operation)) {
        cost.bytes = streaming->bytes;
    }
    return cost;
}

bool Calibrated::runs_beside(const Operation& operation) const {
    const std::optional<KernelPoint> point = kernel_point(operation);
    const SeparateUnits* units = units_of(*without_);
    if (point && has(point->kind, point->format)) {
        return false;  // measured on the units
    }
    return units != nullptr && units->runs_beside(operation);
}

namespace {

// A device without kernels, which says what its roofline prices.
class Unmeasured final : public CostModel {
  public:
    explicit Unmeasured(const DeviceSpec& device) : name_(device.name), roofline_(device) {}
    [[nodiscard]] Cost cost(const Operation& operation) const override {
        if (const std::optional<KernelPoint> point = kernel_point(operation)) {
            BorrowedKernels::note(name_, "", point->kind);
        }
        return roofline_.cost(operation);
    }

  private:
    std::string name_;
    Roofline roofline_;
};

}  // namespace

std::unique_ptr<CostModel> make_calibrated_model(const DeviceSpec& device, const DataDirectory& data,
                                                 const KernelSets& kernels) {
    if (device.kernels.empty()) {
        return std::make_unique<Unmeasured>(device);
    }
    return std::make_unique<Calibrated>(device, data, kTransformer, kernels);
}

}  // namespace orrery::models
