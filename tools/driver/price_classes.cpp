#include "tools/driver/price_classes.hpp"

#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "topologies/cluster_spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace orrery::driver {

namespace {

constexpr const char* kTable = "models/data/prices.yaml";
constexpr double kHoursOfYear = 8760;
constexpr double kHoursOfMonth = kHoursOfYear / 12;

std::string text_of(const YamlNode* node) {
    return node != nullptr && node->kind == YamlNode::Kind::scalar ? node->scalar : "";
}

// "h100-sxm" of `h100-sxm` and of `{preset: h100-sxm, ...}`.
std::string preset_of(const YamlNode* node) {
    return node != nullptr && node->kind == YamlNode::Kind::map ? text_of(node->find("preset")) : text_of(node);
}

struct FoundPrice {
    double value;
    std::string how, source;
};

class PriceTable {
  public:
    explicit PriceTable(const DataDirectory& data) : data_(data), table_(load_yaml(data.path(kTable))) {}

    // Of an instance where the table has it, else of the device.
    [[nodiscard]] std::optional<FoundPrice> find(const std::string& node, const std::string& device,
                                                 const std::string& kind) const {
        if (const YamlNode* row = row_of("nodes", node, topologies::kNodePresets, kind); row != nullptr) {
            return of_class(*row, kind, device);
        }
        const YamlNode* row = row_of("devices", device, topologies::kDevicePresets, kind);
        return row != nullptr ? of_class(*row, kind, device) : std::nullopt;
    }

  private:
    // A preset that starts from another has the other's price.
    [[nodiscard]] const YamlNode* row_of(const char* section, std::string preset, const PresetKind& kind,
                                         const std::string& price) const {
        const std::vector<std::string> names = data_.names(kind);
        const YamlNode* rows = table_.find(section);
        while (rows != nullptr && std::find(names.begin(), names.end(), preset) != names.end()) {
            const YamlNode* row = rows->find(preset);
            if (row != nullptr && (price != "owned" || row->find("purchase") != nullptr)) {
                return row;
            }
            preset = text_of(data_.preset(kind, preset)->find("preset"));
        }
        return nullptr;
    }

    [[nodiscard]] std::optional<FoundPrice> read(const YamlNode* entry) const {
        double value = 0;
        if (entry == nullptr || !parse_number(text_of(entry->find("value")), value)) {
            return std::nullopt;
        }
        return FoundPrice{value, text_of(entry->find("how")), text_of(entry->find("source"))};
    }

    [[nodiscard]] double number(const char* section, const char* key) const {
        const YamlNode* rows = table_.find(section);
        const auto found = read(rows != nullptr ? rows->find(key) : nullptr);
        if (!found) {
            throw ConfigError({table_.mark.error(fmt::format("'{}' needs '{}: {{value, how, source}}'", section, key),
                                                 ErrorCode::missing_key)});
        }
        return found->value;
    }

    [[nodiscard]] std::optional<FoundPrice> of_class(const YamlNode& row, const std::string& kind,
                                                     const std::string& device) const {
        if (kind == "owned") {
            const auto purchase = read(row.find("purchase"));
            const double watts = purchase ? power(device) : 0;
            return watts > 0 ? std::optional(owned(*purchase, watts)) : std::nullopt;
        }
        if (auto listed = read(row.find(kind)); listed || kind == "on-demand") {
            return listed;
        }
        const auto full = read(row.find("on-demand"));
        if (!full) {
            return std::nullopt;
        }
        const double part = number("discounts", kind.c_str());
        return FoundPrice{full->value * part, "assumed",
                          fmt::format("{:g} of the {:g} on demand ({}: discounts)", part, full->value, kTable)};
    }

    // W of the board; 0: not known.
    [[nodiscard]] double power(std::string device) const {
        const std::vector<std::string> names = data_.names(topologies::kDevicePresets);
        while (std::find(names.begin(), names.end(), device) != names.end()) {
            const auto preset = data_.preset(topologies::kDevicePresets, device);
            double watts = 0;
            std::string problem;
            if (const YamlNode* tdp = preset->find("tdp"); tdp != nullptr) {
                const std::string text = tdp->kind == YamlNode::Kind::map ? text_of(tdp->find("value")) : tdp->scalar;
                return parse_quantity(text, Dimension::power, watts, problem) ? watts : 0;
            }
            device = text_of(preset->find("preset"));
        }
        return 0;
    }

    [[nodiscard]] FoundPrice owned(const FoundPrice& purchase, double watts) const {
        const auto of = [&](const char* key) { return number("owned", key); };
        const double capital = purchase.value * (1 + of("server")) * (1 + of("network"));
        const double years = std::max(of("years"), 1e-3);
        const double kilowatts = watts / 1000 * of("power");
        const double written_off = capital * (1 - of("residual")) / (years * kHoursOfYear);
        const double electricity = kilowatts * of("pue") * of("electricity");
        const double hosting = kilowatts * of("hosting") / kHoursOfMonth;
        return {written_off + electricity + hosting, "derived",
                fmt::format("{:.3g} written off over {:g} years, {:.2g} electricity, {:.2g} hosting ({}: owned)",
                            written_off, years, electricity, hosting, kTable)};
    }

    const DataDirectory& data_;
    YamlNode table_;
};

YamlNode scalar(const std::string& text, const Mark& mark) {
    YamlNode out;
    out.kind = YamlNode::Kind::scalar;
    out.scalar = text;
    out.mark = mark;
    return out;
}

class Resolver {
  public:
    Resolver(const DataDirectory& data, std::vector<Diagnostic>& errors) : data_(data), errors_(errors) {}

    // `holder`: the map that `at` is a value of.
    void walk(YamlNode& at, const YamlNode* holder) {
        for (YamlNode& item : at.items) {
            walk(item, nullptr);
        }
        for (YamlNode::Entry& entry : at.entries) {
            if (entry.key == "price" && entry.value.kind == YamlNode::Kind::scalar) {
                resolve(entry.value, at, holder);
            } else {
                walk(entry.value, &at);
            }
        }
    }

  private:
    void resolve(YamlNode& price, const YamlNode& device, const YamlNode* node) {
        const auto& classes = price_classes();
        const std::string kind = price.scalar;
        double number = 0;
        if (parse_number(kind, number)) {
            return;
        }
        if (std::find(classes.begin(), classes.end(), kind) == classes.end()) {
            const std::string near = nearest_name(kind, classes);
            errors_.push_back(price.mark.error(
                fmt::format("'price' cannot be '{}'{}; it is USD per GPU hour, or one of {}", kind,
                            near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near), fmt::join(classes, ", ")),
                ErrorCode::unknown_name));
            price.scalar = "0";
            return;
        }
        std::string name = preset_of(&device);
        const std::string node_name = node != nullptr ? preset_of(node) : "";
        if (name.empty() && !node_name.empty()) {
            name = device_of(node_name);
        }
        const auto found = PriceTable(data_).find(node_name, name, kind);
        if (!found) {
            errors_.push_back(price.mark.error(
                fmt::format(
                    "no price of class '{}' is known for {}: give USD per GPU hour, or a table with --data ({})", kind,
                    name.empty() ? "a device without a preset" : fmt::format("'{}'", name), kTable),
                ErrorCode::unknown_name));
            price.scalar = "0";
            return;
        }
        const Mark mark = price.mark;
        price = YamlNode();
        price.kind = YamlNode::Kind::map;
        price.mark = mark;
        price.entries = {{"value", mark, scalar(fmt::format("{:.6g}", found->value), mark)},
                         {"how", mark, scalar(found->how, mark)},
                         {"source", mark, scalar(fmt::format("{}: {}", kind, found->source), mark)}};
    }

    [[nodiscard]] std::string device_of(std::string node) const {
        const std::vector<std::string> names = data_.names(topologies::kNodePresets);
        while (std::find(names.begin(), names.end(), node) != names.end()) {
            const auto preset = data_.preset(topologies::kNodePresets, node);
            if (std::string device = preset_of(preset->find("gpu")); !device.empty()) {
                return device;
            }
            node = text_of(preset->find("preset"));
        }
        return "";
    }

    const DataDirectory& data_;
    std::vector<Diagnostic>& errors_;
};

}  // namespace

const std::vector<std::string>& price_classes() {
    static const std::vector<std::string> kClasses = {"on-demand", "reserved", "spot", "owned"};
    return kClasses;
}

void resolve_prices(YamlNode& root, const DataDirectory& data, std::vector<Diagnostic>& errors) {
    Resolver(data, errors).walk(root, nullptr);
}

}  // namespace orrery::driver
