// Units in the banks of memory: NeuPIMs layer by layer, AttAcc's attention by stack.

#include "models/unit_model.hpp"
#include "sim/base/error.hpp"
#include "sim/record/facts_table.hpp"
#include "tools/calibration/collections.hpp"
#include "validation/devices/devices.hpp"
#include "validation/statistics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery::validation {

namespace {

DeviceParts parts_of(const std::string& name, const DataDirectory& data) {
    return read_parts(data.path("models/data/kernels/" + name + "/units.yaml"), read_device(name, data), data);
}

// A layer of GPT-3 7B with a quarter of its heads: 4,096 wide, 8 heads of 128, a feed-forward of 4,096, in cycles of 1 GHz.
class NeuPims {
  public:
    explicit NeuPims(const DataDirectory& data)
        : parts_(parts_of("neupims", data)), model_(read_device("neupims", data), parts_) {}

    [[nodiscard]] double part(const std::string& name, double batch, double keys) const {
        const double gigahertz = 1e9;
        const auto product = [&](double n, double k) { return model_.seconds(Gemm{batch, n, k}).value() * gigahertz; };
        const PimAttention banks = attention_cycles(
            parts_.pim, kHeads * std::ceil(batch / static_cast<double>(parts_.pim.channels)), keys, kHeadDim, 2);
        Attention attention;
        attention.batch_heads = kHeads * batch;
        attention.keys = keys;
        attention.head_dim = kHeadDim;
        const double both = model_.seconds(attention).value() * gigahertz;
        if (name == "attend") {
            return banks.values;
        }
        if (name == "logits") {
            return both - banks.values;  // the softmax goes with the logits
        }
        if (name == "qkv") {
            return product(3 * kHeads * kHeadDim, kHidden);
        }
        if (name == "projection") {
            return product(kHidden, kHeads * kHeadDim);
        }
        if (name == "up" || name == "down") {
            return name == "up" ? product(kFfn, kHidden) : product(kHidden, kFfn);
        }
        const double products = part("qkv", batch, keys) + part("projection", batch, keys) + part("up", batch, keys) +
                                part("down", batch, keys);
        if (name == "layer") {
            return products + both;
        }
        ORRERY_ASSERT(name == "interleaved");
        double half = 0;
        for (const char* one : {"qkv", "projection", "up", "down"}) {
            half += part(one, batch / 2, keys);
        }
        return 2 * std::max(half, part("logits", batch / 2, keys) + part("attend", batch / 2, keys));
    }

  private:
    static constexpr double kHidden = 4096, kHeads = 8, kHeadDim = 128, kFfn = 4096;
    DeviceParts parts_;
    UnitModel model_;
};

void compare_neupims(const DataDirectory& data, const Terminal& terminal, DeviceScores& out) {
    const NeuPims neupims(data);
    std::vector<std::vector<std::string>> table;
    for (const FactsRow& row : read_facts_table(data.path("validation/devices/neupims.csv"))) {
        const double measured = row.number("cycles");
        const double predicted = neupims.part(row.text("part"), row.number("batch"), row.number("sequence"));
        out.score("neupims",
                  fmt::format("{}, batch {}, {} tokens", row.text("part"), row.text("batch"), row.text("sequence")),
                  measured, predicted);
        table.push_back({row.text("part"), row.text("batch"), row.text("sequence"), fmt::format("{:.0f}", measured),
                         fmt::format("{:.0f}", predicted), fmt::format("{:+.1f} %", 100 * (predicted / measured - 1))});
    }
    out.table(terminal, "NeuPIMs (its simulator), cycles",
              {"part", "batch", "tokens", "simulated", "predicted", "error"}, std::move(table));
}

void compare_attacc(const DataDirectory& data, const Terminal& terminal, DeviceScores& out) {
    const PimSpec limited = parts_of("attacc", data).pim;
    PimSpec free = limited;
    free.column.value = 4 / limited.clock.value;  // nCCDAB of HBM3_5.2Gbps_NPC
    std::map<std::string, std::vector<double>> groups;
    for (const FactsRow& row : read_facts_table(data.path("validation/devices/attacc.csv"))) {
        // A stack has 16 of the device's channels, and its heads are dealt to them in turn.
        const PimSpec& pim = row.number("power") > 0 ? limited : free;
        const double heads = std::ceil(row.number("heads") / 16);
        const PimAttention cycles =
            attention_cycles(pim, heads, row.number("tokens"), row.number("head_dim"), row.number("bytes"));
        const double predicted = cycles.logits + cycles.values;
        const double error = predicted / row.number("cycles") - 1;
        const bool scored = row.text("level") == "bank" && row.number("head_dim") == 128;
        if (scored) {
            out.score("attacc", fmt::format("{} heads, {} tokens", row.text("heads"), row.text("tokens")),
                      row.number("cycles"), predicted);
        }
        groups[fmt::format("{}, heads of {}, {} bytes, {}{}", row.text("level"), row.text("head_dim"),
                           row.text("bytes"), row.number("power") > 0 ? "power limit" : "no power limit",
                           scored ? "" : " (not scored)")]
            .push_back(error);
    }
    std::vector<std::vector<std::string>> table;
    for (const auto& [name, errors] : groups) {
        const ErrorStatistics s = statistics_of(errors);
        table.push_back({name, std::to_string(s.count), fmt::format("{:.1f} %", s.mape),
                         fmt::format("{:+.1f} %", s.median_bias), fmt::format("{:.1f} %", s.worst)});
    }
    out.table(terminal, "attention in the banks of a stack (AttAcc on Ramulator 2)",
              {"units at", "points", "MAPE", "median bias", "worst"}, std::move(table));
}

// A vector times 4,096 x 4,096 weights in the banks, over reading the weights through the pins. Nobody prints times of these parts: the
// published figures are a test's threshold and gains that were only recalled, so that nothing is scored.
void print_gains(const DataDirectory& data, const Terminal& terminal, DeviceScores& out) {
    constexpr double kWidth = 4096;
    std::vector<std::vector<std::string>> table;
    for (const auto& [name, published] :
         {std::pair{"hbm-pim", "at least 2 (test of PIMSimulator); up to 11.2 (recalled)"},
          std::pair{"gddr6-aim", "up to 16 (recalled)"}}) {
        const DeviceSpec device = read_device(name, data);
        const PimSpec pim = parts_of(name, data).pim;
        const double banks = product_cycles(pim, 1, kWidth, kWidth, 2) / pim.clock.value;
        const double pins = 2 * kWidth * kWidth / (device.memory_bandwidth.value * device.memory_efficiency.value);
        table.push_back({name, fmt::format("{:.2f} us", 1e6 * banks), fmt::format("{:.2f} us", 1e6 * pins),
                         fmt::format("{:.2f}", pins / banks), published});
    }
    out.table(terminal, "a vector times 4,096 x 4,096 weights in the banks (not scored)",
              {"device", "in the banks", "through the pins", "gain", "published"}, std::move(table));
}

}  // namespace

void compare_pim(const DataDirectory& data, const Terminal& terminal, DeviceScores& out) {
    compare_neupims(data, terminal, out);
    compare_attacc(data, terminal, out);
    print_gains(data, terminal, out);
}

}  // namespace orrery::validation
