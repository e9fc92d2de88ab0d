#include "tools/sweep/sweep_axes.hpp"

#include "sim/base/math.hpp"
#include "sim/base/random.hpp"
#include "sim/config/units.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

namespace orrery::sweep {

namespace {

constexpr std::uint64_t kMostRows = 1'000'000;     // of one axis
constexpr std::uint64_t kMostPoints = 10'000'000;  // of the product

// A number with the text of its unit: "400 Gbps" is {400, "Gbps"}.
struct NumberWithUnit {
    double number = 0;
    std::string unit;
};

bool split_unit(const std::string& text, NumberWithUnit& out) {
    const auto blank = text.find(' ');
    out.unit = blank == std::string::npos ? "" : text.substr(blank + 1);
    return parse_number(text.substr(0, blank), out.number);
}

std::string with_unit(double number, const std::string& unit) {
    // Six digits: sampled and spaced values stay readable and are the same in every table.
    const std::string digits = fmt::format("{:.6g}", number);
    return unit.empty() ? digits : digits + " " + unit;
}

class AxisReader {
  public:
    AxisReader(SweepTree& tree, std::vector<SweepAxis>& axes) : tree_(tree), axes_(axes) {}

    void read() {
        read_axes();
        read_zip();
        if (!full()) {
            read_sample();
        }
        if (!full()) {
            read_seeds();
        }
        if (full()) {
            std::string factors;
            for (const SweepAxis& axis : axes_) {
                factors += fmt::format("{}{} ({})", factors.empty() ? "" : " x ", axis.rows.size(),
                                       fmt::join(axis.keys, ", "));
            }
            tree_.fail(tree_.root,
                       fmt::format("the axes span {:.4g} points, the limit is {}: {}", size_, kMostPoints, factors),
                       ErrorCode::out_of_range);
        }
    }

  private:
    // More points than a sweep may have: what follows is not read, so that it takes no memory.
    [[nodiscard]] bool full() const { return size_ > static_cast<double>(kMostPoints); }

    void add(SweepAxis axis) {
        size_ *= static_cast<double>(axis.rows.size());
        axes_.push_back(std::move(axis));
    }

    // Two ends in one unit.
    bool ends_of(const YamlNode& node, const std::string& key, bool positive, NumberWithUnit& low,
                 NumberWithUnit& high) {
        if (node.kind != YamlNode::Kind::sequence || node.items.size() != 2 || !split_unit(node.items[0].scalar, low) ||
            !split_unit(node.items[1].scalar, high)) {
            tree_.fail(node, fmt::format("the ends of '{}' are two numbers: [low, high]", key), ErrorCode::wrong_type);
        } else if (low.unit != high.unit) {
            tree_.fail(node,
                       fmt::format("write both ends of '{}' in one unit, not '{}' and '{}'", key, low.unit, high.unit),
                       ErrorCode::wrong_unit);
        } else if (low.number > high.number) {
            tree_.fail(node, fmt::format("the ends of '{}' are the wrong way round", key), ErrorCode::out_of_range);
        } else if (positive && low.number <= 0) {
            tree_.fail(node, fmt::format("a logarithmic range of '{}' needs ends above 0", key),
                       ErrorCode::out_of_range);
        } else {
            return true;
        }
        return false;
    }

    // Values of one key: a list, {from, to, step}, {linear: [a, b], count} or {log: [a, b], count}.
    std::vector<std::string> values_of(const YamlNode& node, const std::string& key) {
        std::vector<std::string> values;
        if (node.kind == YamlNode::Kind::sequence) {
            for (const YamlNode& item : node.items) {
                if (tree_.scalar_of(item, key)) {
                    values.push_back(item.scalar);
                }
            }
            if (node.items.empty()) {
                tree_.fail(node, fmt::format("'{}' has no values", key));
            }
            return values;
        }
        if (node.kind == YamlNode::Kind::scalar) {
            return {node.scalar};
        }
        const YamlNode* linear = node.find("linear");
        const YamlNode* log = node.find("log");
        if (linear != nullptr || log != nullptr) {
            tree_.unknown_keys(node, {linear != nullptr ? "linear" : "log", "count"});
            return spaced(node, key, linear != nullptr ? *linear : *log, log != nullptr);
        }
        if (node.kind == YamlNode::Kind::map && node.find("from") != nullptr && node.find("to") != nullptr) {
            tree_.unknown_keys(node, {"from", "to", "step"});
            return stepped(node, key);
        }
        tree_.fail(node,
                   fmt::format("'{}' must be a list, {{from, to, step}}, {{linear: [a, b], count}} or "
                               "{{log: [a, b], count}}",
                               key),
                   ErrorCode::wrong_type);
        return {};
    }

    std::vector<std::string> stepped(const YamlNode& node, const std::string& key) {
        NumberWithUnit from;
        NumberWithUnit to;
        NumberWithUnit step{1, ""};
        const YamlNode* by = node.find("step");
        if (!split_unit(node.find("from")->scalar, from) || !split_unit(node.find("to")->scalar, to) ||
            (by != nullptr && !split_unit(by->scalar, step)) || from.unit != to.unit ||
            (by != nullptr && step.unit != from.unit)) {
            tree_.fail(node, fmt::format("from, to and step of '{}' must be numbers in one unit", key),
                       ErrorCode::wrong_unit);
            return {};
        }
        if (!(step.number > 0) || from.number > to.number) {
            tree_.fail(node, fmt::format("'{}' must go up from 'from' to 'to' by a positive step", key),
                       ErrorCode::out_of_range);
            return {};
        }
        const double count = std::floor((to.number - from.number) / step.number * (1 + 1e-12)) + 1;
        if (!(count <= static_cast<double>(kMostRows))) {
            tree_.fail(node, fmt::format("'{}' has {:.3g} values; one axis has at most {}", key, count, kMostRows),
                       ErrorCode::out_of_range);
            return {};
        }
        ORRERY_ASSERT(count >= 1);
        std::vector<std::string> values;
        for (double i = 0; i < count; ++i) {
            const std::string digits = fmt::format("{:.12g}", from.number + i * step.number);
            values.push_back(from.unit.empty() ? digits : digits + " " + from.unit);
        }
        return values;
    }

    std::vector<std::string> spaced(const YamlNode& node, const std::string& key, const YamlNode& ends,
                                    bool logarithmic) {
        NumberWithUnit low;
        NumberWithUnit high;
        double count = 0;
        const YamlNode* given = node.find("count");
        if (!tree_.whole(given != nullptr ? *given : node, "count", 2, static_cast<double>(kMostRows), count) ||
            !ends_of(ends, key, logarithmic, low, high)) {
            return {};
        }
        std::vector<std::string> values;
        for (double i = 0; i < count; ++i) {
            values.push_back(with_unit(between(low.number, high.number, i / (count - 1), logarithmic), low.unit));
        }
        return values;
    }

    static double between(double low, double high, double share, bool logarithmic) {
        ORRERY_ASSERT(low <= high && (!logarithmic || low > 0));
        if (share <= 0 || share >= 1) {
            return share <= 0 ? low : high;
        }
        return logarithmic ? low * pow_pinned(high / low, share) : low + (high - low) * share;
    }

    void read_axes() {
        const YamlNode* axes = tree_.map_at("axes");
        if (axes == nullptr) {
            return;
        }
        for (const YamlNode::Entry& entry : axes->entries) {
            if (full()) {
                return;
            }
            tree_.claim(entry.key, entry.key_mark);
            SweepAxis axis{{entry.key}, {}};
            for (std::string& value : values_of(entry.value, entry.key)) {
                axis.rows.push_back({std::move(value)});
            }
            add(std::move(axis));
        }
    }

    void read_zip() {
        const YamlNode* zip = tree_.root.find("zip");
        if (zip == nullptr) {
            return;
        }
        const std::vector<YamlNode> groups =
            zip->kind == YamlNode::Kind::sequence ? zip->items : std::vector<YamlNode>{*zip};
        for (const YamlNode& group : groups) {
            if (full()) {
                return;
            }
            if (group.kind != YamlNode::Kind::map || group.entries.empty()) {
                tree_.fail(group, "a zip group is a map of keys whose lists advance together", ErrorCode::wrong_type);
                continue;
            }
            SweepAxis axis;
            for (const YamlNode::Entry& entry : group.entries) {
                tree_.claim(entry.key, entry.key_mark);
                axis.keys.push_back(entry.key);
                const std::vector<std::string> values = values_of(entry.value, entry.key);
                if (axis.keys.size() == 1) {
                    axis.rows.resize(values.size());
                } else if (values.size() != axis.rows.size()) {
                    tree_.fail(entry.value, fmt::format("'{}' has {} values, but '{}' in the same zip group has {}",
                                                        entry.key, values.size(), axis.keys[0], axis.rows.size()));
                    continue;
                }
                for (std::size_t i = 0; i < values.size(); ++i) {
                    axis.rows[i].push_back(values[i]);
                }
            }
            add(std::move(axis));
        }
    }

    // Values of one sampled key at the given shares in [0, 1).
    std::vector<std::string> sampled(const YamlNode& node, const std::string& key, const std::vector<double>& shares) {
        std::vector<std::string> values;
        const YamlNode* choice = node.find("choice");
        const YamlNode* integer = node.find("integer");
        const YamlNode* log = node.find("log");
        if (choice != nullptr) {
            tree_.unknown_keys(node, {"choice"});
            const std::vector<std::string> names = values_of(*choice, key);
            for (const double share : shares) {
                ORRERY_ASSERT(share >= 0 && share < 1);
                if (!names.empty()) {
                    values.push_back(names[static_cast<std::size_t>(share * static_cast<double>(names.size()))]);
                }
            }
            return values;
        }
        NumberWithUnit low;
        NumberWithUnit high;
        tree_.unknown_keys(node, {integer != nullptr ? "integer" : "log"});
        if (!ends_of(integer != nullptr ? *integer : log != nullptr ? *log : node, key, log != nullptr, low, high)) {
            return {};
        }
        for (const double share : shares) {
            values.push_back(integer != nullptr
                                 ? fmt::format("{:.0f}{}{}",
                                               std::floor(low.number + share * (high.number - low.number + 1)),
                                               low.unit.empty() ? "" : " ", low.unit)
                                 : with_unit(between(low.number, high.number, share, log != nullptr), low.unit));
        }
        return values;
    }

    void read_sample() {
        const YamlNode* sample = tree_.map_at("sample");
        if (sample == nullptr) {
            return;
        }
        tree_.unknown_keys(*sample, {"method", "count", "seed", "values"});
        const YamlNode* method = sample->find("method");
        const bool hypercube = method != nullptr && method->scalar == "latin-hypercube";
        if (method == nullptr || (!hypercube && method->scalar != "random")) {
            tree_.fail(method != nullptr ? *method : *sample, "'method' must be random or latin-hypercube",
                       ErrorCode::unknown_name);
        }
        double count = 0;
        const YamlNode* given = sample->find("count");
        const bool counted =
            tree_.whole(given != nullptr ? *given : *sample, "count", 1, static_cast<double>(kMostRows), count);
        double seed = 1;
        if (const YamlNode* node = sample->find("seed")) {
            (void)tree_.whole(*node, "seed", 0, 9e15, seed);
        }
        const YamlNode* values = sample->find("values");
        if (values == nullptr || values->kind != YamlNode::Kind::map || values->entries.empty()) {
            tree_.fail(values != nullptr ? *values : *sample,
                       "'values' must be a map of keys to [low, high], {log: [low, high]}, "
                       "{integer: [low, high]} or {choice: [...]}",
                       ErrorCode::wrong_type);
            return;
        }
        if (!counted) {
            return;
        }
        const auto rows = static_cast<std::size_t>(count);
        SweepAxis axis;
        axis.rows.resize(rows);
        for (const YamlNode::Entry& entry : values->entries) {
            tree_.claim(entry.key, entry.key_mark);
            axis.keys.push_back(entry.key);
            RandomStream random(static_cast<std::uint64_t>(seed), "sweep/" + entry.key);
            // A Latin hypercube draws once from each of `count` equal strata, in an order of its own for each key.
            std::vector<std::uint32_t> strata(rows);
            std::iota(strata.begin(), strata.end(), 0U);
            if (hypercube) {
                random.shuffle(strata);
            }
            std::vector<double> shares(rows);
            for (std::size_t i = 0; i < rows; ++i) {
                const double draw = random.uniform();
                shares[i] = hypercube ? (strata[i] + draw) / count : draw;
            }
            const std::vector<std::string> column = sampled(entry.value, entry.key, shares);
            for (std::size_t i = 0; i < column.size(); ++i) {
                axis.rows[i].push_back(column[i]);
            }
        }
        add(std::move(axis));
    }

    void read_seeds() {
        const YamlNode* seeds = tree_.root.find("seeds");
        if (seeds == nullptr) {
            return;
        }
        tree_.claim("seed", seeds->mark);
        SweepAxis axis{{"seed"}, {}};
        if (seeds->kind == YamlNode::Kind::sequence) {
            for (std::string& value : values_of(*seeds, "seed")) {
                axis.rows.push_back({std::move(value)});
            }
        } else {
            double count = 0;
            if (!tree_.whole(*seeds, "seeds", 1, static_cast<double>(kMostRows), count)) {
                return;
            }
            for (double i = 1; i <= count; ++i) {
                axis.rows.push_back({fmt::format("{:.0f}", i)});
            }
        }
        add(std::move(axis));
    }

    SweepTree& tree_;
    std::vector<SweepAxis>& axes_;
    double size_ = 1;  ///< points of the axes so far
};

}  // namespace

void read_sweep_axes(SweepTree& tree, std::vector<SweepAxis>& axes) {
    AxisReader(tree, axes).read();
}

}  // namespace orrery::sweep
