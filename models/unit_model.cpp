#include "models/unit_model.hpp"

#include "models/roofline.hpp"
#include "sim/base/error.hpp"
#include "sim/config/fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery::models {

namespace {

// Vector operations of an element. Softmax of a score: maximum, difference, exponential (range reduction and a polynomial of degree
// five, Cody and Waite, "Software Manual for the Elementary Functions", 1980: eight), sum, scale. An activation function is an
// exponential, a sum and a quotient.
constexpr double kSoftmax = 12;
constexpr double kElementwise = 10;
constexpr double kRoutingKernels = 4;    // gate, top-k, sort and scatter, gather, as models/roofline.cpp has them
constexpr double kHostBandwidth = 25e9;  // B/s, where nobody measured pinned copies: 16 lanes of PCIe generation 4
// Error of a product beyond what is in its cycles: spread of the rows of `orrery validate devices`.
constexpr double kSpread = 0.1;

}  // namespace

std::vector<std::string> problems_of(const DeviceParts& parts, const DeviceSpec& device) {
    std::vector<std::string> out;
    double products = 0;
    double others = 0;
    for (const ComputeUnit& unit : parts.units) {
        (unit.kind == UnitKind::systolic ? products : others) += unit.peak();
    }
    const bool in_banks = parts.has_pim && parts.pim.present() && parts.pim.products;
    if ((products <= 0 && !in_banks) || others <= 0) {
        out.push_back(fmt::format("'units' needs at least one of kind {}{}: {} has none",
                                  others <= 0 ? "vector" : "systolic", others <= 0 ? "" : ", or 'pim' with 'products'",
                                  device.name));
    }
    if (products <= 0 && in_banks) {
        products = parts.pim.peak(2);
    }
    constexpr double kRounded = 0.03;  // vendors round clocks and peaks
    if (products > 0 && std::abs(products / device.flops_bf16.value - 1) > kRounded) {
        out.push_back(
            fmt::format("the units do {:.4g} TFLOP/s in products (2 x rows x columns x count x clock; in banks 2 x "
                        "channels x banks x access in 16 bits / column), but flops_bf16 of "
                        "{} is {:.4g} TFLOP/s",
                        products * 1e-12, device.name, device.flops_bf16.value * 1e-12));
    }
    return out;
}

DeviceParts read_parts(const std::string& file, const DeviceSpec& device, const DataDirectory& data) {
    DeviceParts parts;
    std::vector<Diagnostic> errors;
    const YamlNode root = load_yaml(file);
    read_fields(root, data, errors, [&](Fields& fields) { describe(fields, parts); });
    if (errors.empty()) {
        for (const std::string& problem : problems_of(parts, device)) {
            errors.push_back(root.mark.error(problem));
        }
    }
    throw_if_any(errors);
    return parts;
}

UnitModel::UnitModel(const DeviceSpec& device, const DeviceParts& parts)
    : device_(device),
      scratchpad_(parts.scratchpad.value),
      pim_(parts.pim),
      drive_(parts.drive),
      memory_(device.memory_bandwidth.value * device.memory_efficiency.value) {
    double best = 0;
    for (const ComputeUnit& unit : parts.units) {
        if (unit.kind == UnitKind::vector) {
            vector_ += unit.peak();
        } else if (unit.peak() > best) {
            best = unit.peak();
            arrays_ = unit;
        }
    }
    has_arrays_ = best > 0;
    ORRERY_ASSERT((has_arrays_ || pim_.products) && vector_ > 0 && memory_ > 0);
}

double UnitModel::products(double m, double n, double k, double batch, Precision precision, double density) const {
    if (!has_arrays_) {
        return seconds_in_banks(m, n, k, batch, precision);
    }
    const double efficiency = device_.matrix_efficiency.value > 0 ? device_.matrix_efficiency.value : 1;
    const double peak = device_.matrix_flops(precision);
    const double faster = peak > 0 ? peak / device_.flops_bf16.value : 1;  // other formats are expanded to 16 bits
    SystolicArrays arrays = arrays_.arrays();
    arrays.density = density;
    return systolic_cycles(arrays, m, n, k, batch) / (arrays_.clock.value * efficiency * faster);
}

// Operations of a product on units that do one at a time.
static double vector_operations(double m, double n, double k, double batch) {
    return 2 * m * n * k * batch;
}

double UnitModel::products_anywhere(double m, double n, double k, double batch, Precision precision,
                                    double density) const {
    return std::min(products(m, n, k, batch, precision, density),
                    vector_operations(m, n, density * k, batch) / vector_);
}

double UnitModel::buffered(double compute, double bytes, double m, double n, double k, double element) const {
    // The largest tile with sides in the proportion of the product's: two of its inputs and an output in 32 bits fit.
    double first = bytes;
    if (const double room = scratchpad_; room > 0 && bytes > 0) {
        double parts = 1;  // cuts of each dimension
        const auto tile = [&](double cuts) {
            return 2 * element * (m * k + k * n) / (cuts * cuts) + 4 * m * n / (cuts * cuts);
        };
        while (tile(parts) > room) {
            parts *= 2;
        }
        first = (element * (m * k + k * n) + 2 * m * n) / (parts * parts);
    }
    first = std::min(first, bytes);
    return first / memory_ + std::max(compute, (bytes - first) / memory_);
}

// Weights of several products of a batch lie apart: one after another.
double UnitModel::seconds_in_banks(double m, double n, double k, double batch, Precision precision) const {
    const double bytes = orrery::bytes_of(precision);
    if (n * k * batch * bytes > device_.memory.value) {
        throw InfeasibleError(
            fmt::format("a product of {:.0f} x {:.0f} weights ({:.2f} GiB) does not fit into the banks "
                        "of {}, which hold {:.2f} GiB",
                        n * batch, k, n * k * batch * bytes / 0x1p30, device_.name, device_.memory.value / 0x1p30),
            ErrorCode::out_of_memory);
    }
    return batch * product_cycles(pim_, m, n, k, bytes) / pim_.clock.value;
}

bool UnitModel::in_banks(const Gemm& gemm) const {
    if (!pim_.products) {
        return false;
    }
    return !has_arrays_ || seconds_in_banks(gemm.m, gemm.n, gemm.k, gemm.batch, gemm.precision) + device_.launch.value +
                                   gemm.extra_bytes / memory_ <
                               seconds_on_arrays(gemm);
}

double UnitModel::seconds_of(const Gemm& gemm) const {
    if (in_banks(gemm)) {
        return device_.launch.value + seconds_in_banks(gemm.m, gemm.n, gemm.k, gemm.batch, gemm.precision) +
               gemm.extra_bytes / memory_;
    }
    return seconds_on_arrays(gemm);
}

double UnitModel::seconds_on_arrays(const Gemm& gemm) const {
    const double density = gemm.batch > 1 ? 1 : arrays_.density;  // batches are products of two activations
    const double compute = split_accumulator(device_, gemm) *
                           products_anywhere(gemm.m, gemm.n, gemm.k, gemm.batch, gemm.precision, density);
    const double weights = orrery::bytes_of(gemm.weight_only ? gemm.weights : gemm.precision) * gemm.k * gemm.n;
    const double bytes = gemm.bytes() - gemm.extra_bytes - (1 - density) * weights;
    return device_.launch.value + buffered(compute, bytes, gemm.m, gemm.n, gemm.k, orrery::bytes_of(gemm.precision)) +
           gemm.extra_bytes / memory_;
}

double UnitModel::seconds_of(const GroupedGemm& gemm) const {
    const double active = std::max(1.0, gemm.active_experts());
    const double compute =
        has_arrays_ ? products_anywhere(gemm.rows() / active, gemm.n, gemm.k, active, gemm.precision, arrays_.density)
                    : products(gemm.rows() / active, gemm.n, gemm.k, active, gemm.precision);
    const double weights = orrery::bytes_of(gemm.weight_only ? gemm.weights : gemm.precision) * gemm.k * gemm.n;
    const double bytes = gemm.bytes() - (1 - arrays_.density) * active * weights;
    return device_.launch.value + (has_arrays_ ? std::max(compute, bytes / memory_) : compute);
}

double UnitModel::seconds_of(const FusedExperts& experts) const {
    return seconds_of(experts.up()) + seconds_of(experts.down()) +
           seconds_of(ExpertRouting{experts.tokens, experts.experts, experts.topk, experts.hidden});
}

double UnitModel::seconds_of(const ExpertRouting& routing) const {
    return kRoutingKernels * device_.launch.value + routing.bytes() / memory_;
}

bool UnitModel::in_banks(const Attention& attention) const {
    return pim_.present() && pim_.attends && (attention.decodes() || !has_arrays_);
}

// Keys that a query in the banks passes over, in the mean.
static double keys_seen(const Attention& attention) {
    return attention.decodes() ? attention.keys_read() : attention.keys * attention.density();
}

// Whole heads that share keys, dealt to the channels in turn: the channel with the most decides. Queries pass one after another.
double UnitModel::seconds_in_banks(const Attention& attention) const {
    if (attention.backward) {
        throw InfeasibleError(
            fmt::format("{} has units in the banks of its memory alone (0 of kind systolic), which do "
                        "no backward pass: training needs arrays",
                        device_.name));
    }
    const double shared = std::max(1.0, attention.group);
    const double heads = std::ceil(attention.batch_heads / shared / static_cast<double>(pim_.channels)) * shared;
    const double bytes = orrery::bytes_of(attention.cache);
    const double stored = heads / shared * 2 * attention.keys_read() * attention.head_dim * bytes;
    const double channel = device_.memory.value / static_cast<double>(pim_.channels);
    if (stored > channel) {
        throw InfeasibleError(fmt::format("{:.0f} heads of {:.0f} tokens put {:.2f} MiB of keys and values of a layer "
                                          "on one channel of {}, whose {} "
                                          "banks hold {:.2f} MiB",
                                          heads / shared, attention.keys_read(), stored / 0x1p20, device_.name,
                                          pim_.banks, channel / 0x1p20),
                              ErrorCode::out_of_memory);
    }
    const PimAttention parts = attention_cycles(pim_, heads, keys_seen(attention), attention.head_dim, bytes);
    return std::max(1.0, attention.queries) * (parts.logits + parts.values) / pim_.clock.value;
}

double UnitModel::bank_bytes(const Operation& operation) const {
    if (const auto* attention = std::get_if<Attention>(&operation); attention != nullptr && in_banks(*attention)) {
        return 2 * attention->batch_heads * attention->queries * keys_seen(*attention) * attention->head_dim *
               orrery::bytes_of(attention->cache);
    }
    if (const auto* gemm = std::get_if<Gemm>(&operation); gemm != nullptr && in_banks(*gemm)) {
        return gemm->m * gemm->n * gemm->k * gemm->batch * orrery::bytes_of(gemm->precision);
    }
    return 0;
}

double UnitModel::seconds_of(const Attention& attention) const {
    const double density = attention.density();
    const double scores = attention.batch_heads * attention.queries * attention.keys * density;
    if (in_banks(attention)) {
        return device_.launch.value + seconds_in_banks(attention) + kSoftmax * scores / vector_;
    }
    // Rows of a key head's queries pass together; two products forward, five backward.
    const double group = attention.decodes() ? std::max(1.0, attention.group) : 1;
    const double heads = attention.batch_heads / group;
    const double forward =
        products(attention.queries * group, attention.keys, attention.head_dim, heads, attention.cache) +
        products(attention.queries * group, attention.head_dim, attention.keys, heads, attention.cache);
    const double compute = forward * density * (attention.backward ? 2.5 : 1);
    const double softmax = kSoftmax * scores * (attention.backward ? 2 : 1) / vector_;
    const double units = earlier_attention(device_, attention) *
                         std::min(std::max(compute, softmax), attention.flops() / vector_ + softmax);
    const double seconds = device_.launch.value + std::max(units, attention.bytes() / memory_);
    return in_drive(attention) ? seconds_with_drive(attention, seconds) : seconds;
}

bool UnitModel::in_drive(const Attention& attention) const {
    return drive_.present() && !attention.backward;
}

double UnitModel::seconds_with_drive(const Attention& attention, double on_device) const {
    const double group = attention.decodes() ? std::max(1.0, attention.group) : attention.group;
    const DriveAttention work{attention.batch_heads, std::max(1.0, group),
                              attention.decodes() ? attention.keys_read() : attention.keys, attention.head_dim,
                              orrery::bytes_of(attention.cache)};
    if (const double layer = stored(drive_, work); layer > drive_.capacity.value) {
        throw InfeasibleError(
            fmt::format(
                "{:.0f} heads of {:.0f} tokens put {:.2f} GiB of keys and values of a layer on one drive of {}, which "
                "holds {:.2f} GiB",
                work.heads / work.group, work.keys, layer / 0x1p30, device_.name, drive_.capacity.value / 0x1p30),
            ErrorCode::out_of_memory);
    }
    if (!attention.decodes()) {
        return std::max(on_device, written(drive_, work, attention.queries));
    }
    return drive_.attends() ? attention_in_drive(drive_, work) : std::max(on_device, pages_over_link(drive_, work));
}

double UnitModel::longer(double flops, double bytes) const {
    const double efficiency = device_.matrix_efficiency.value > 0 ? device_.matrix_efficiency.value : 1;
    return device_.launch.value + std::max(flops / (device_.flops_bf16.value * efficiency), bytes / memory_);
}

double UnitModel::seconds_of(const LatentAttention& attention) const {
    return longer(attention.flops(), attention.bytes());
}

double UnitModel::seconds_of(const IndexScores& scores) const {
    return longer(scores.flops(), scores.bytes());
}

double UnitModel::seconds_of(const TopChoice& choice) const {
    return device_.launch.value + std::max(choice.bytes() / memory_, choice.rows * choice.keys / vector_);
}

double UnitModel::seconds_of(const DeltaScan& scan) const {
    return longer(scan.flops(), scan.bytes());
}

// Vector operations of a kernel over 16-bit values, by the bytes that it moves. A norm reads its input and the residual and writes both: for 8 B
// an addition, a mean, a squared difference and its sum, a product with what is left, one with a weight, and a bias, eight in all. Rotary positions
// are two products and a sum for a value read and written; an embedding is copied. Else half is read and half written.
static double vector_operations(const Streaming& streaming) {
    switch (streaming.kind) {
        case StreamingKind::norm:
            return streaming.bytes / 8 * 8;
        case StreamingKind::add:
            return streaming.bytes / 6;
        case StreamingKind::rotary:
            return streaming.bytes / 4 * 3;
        case StreamingKind::embedding:
            return 0;
        case StreamingKind::softmax:
            return streaming.bytes / 4 * kSoftmax;
        default:
            break;
    }
    return streaming.bytes / 4 * kElementwise;
}

double UnitModel::seconds_of(const Streaming& streaming) const {
    return streaming.kernels * device_.launch.value +
           std::max(streaming.bytes / memory_, vector_operations(streaming) / vector_);
}

double UnitModel::seconds_of(const Copy& copy) const {
    if (copy.direction == CopyDirection::on_device) {
        return device_.launch.value + 2 * copy.bytes / memory_;
    }
    const double rate = device_.host_bandwidth.value > 0 ? device_.host_bandwidth.value : kHostBandwidth;
    return device_.launch.value + copy.bytes / rate;
}

double UnitModel::seconds_of(const Launch& launch) const {
    const bool graph = launch.graph && device_.graph_launch.value > 0;
    return launch.kernels * (graph ? device_.graph_launch.value : device_.launch.value);
}

Cost UnitModel::cost(const Operation& operation) const {
    Cost cost;
    cost.seconds = Seconds(std::visit([this](const auto& one) { return seconds_of(one); }, operation));
    cost.flops = flops_of(operation);
    cost.bytes = orrery::bytes_of(operation);
    cost.spread = kSpread;
    cost.systematic = kSpread;
    if (const double banks = bank_bytes(operation); banks > 0) {
        // What lies in the banks stays there.
        const double byte = device_.energy_per_byte.value;
        cost.bytes = byte > 0 ? banks * pim_.energy.value / byte : 0;
    }
    return cost;
}

bool UnitModel::runs_beside(const Operation& operation) const {
    const auto* attention = std::get_if<Attention>(&operation);
    if (attention == nullptr) {
        return false;
    }
    return in_drive(*attention) ? attention->decodes() && !drive_.attends()
                                : in_banks(*attention) && pim_.row_buffers > 1;
}

}  // namespace orrery::models
