#include "tools/sweep/sweep_spec.hpp"

#include "sim/base/math.hpp"
#include "sim/base/random.hpp"
#include "sim/config/units.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <numeric>
#include <set>

namespace orrery {

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

class SweepReader {
  public:
    SweepReader(const YamlNode& root, std::string folder, SweepSpec& sweep)
        : root_(root), folder_(std::move(folder)), sweep_(sweep) {}

    void read(const std::vector<std::string>& overrides, const DataDirectory& data) {
        if (root_.kind != YamlNode::Kind::map) {
            throw ConfigError({root_.mark.error("a sweep is a map that starts with 'orrery: 1'")});
        }
        check_keys();
        read_base(overrides, data);
        read_axes();
        read_zip();
        read_sample();
        read_seeds();
        read_derived();
        read_where();
        read_keep();
        read_timeout();
        check_names();
        if (errors_.empty()) {
            check_size();
        }
        if (!errors_.empty()) {
            throw ConfigError(errors_);
        }
    }

  private:
    void fail(const YamlNode& node, const std::string& text) { errors_.push_back(node.mark.error(text)); }

    void check_keys() {
        static const std::vector<std::string> kKeys = {"orrery", "kind",   "base",  "set",   "axes", "zip",
                                                       "sample", "derive", "where", "seeds", "keep", "timeout"};
        unknown_keys(root_, kKeys);
        const YamlNode* version = root_.find("orrery");
        if (version == nullptr || version->scalar != "1") {
            fail(version != nullptr ? *version : root_, "'orrery' must be 1, the version of the scenario language");
        }
        const YamlNode* kind = root_.find("kind");
        if (kind == nullptr || kind->scalar != "sweep") {
            fail(kind != nullptr ? *kind : root_, "'kind' must be sweep here; other kinds go to 'orrery run'");
        }
    }

    void unknown_keys(const YamlNode& node, const std::vector<std::string>& known) {
        for (const YamlNode::Entry& entry : node.entries) {
            if (std::find(known.begin(), known.end(), entry.key) == known.end()) {
                const std::string nearest = nearest_name(entry.key, known);
                errors_.push_back(entry.key_mark.error(
                    fmt::format("unknown key '{}'{}", entry.key,
                                nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest))));
            }
        }
    }

    const YamlNode* map_at(const char* key) {
        const YamlNode* node = root_.find(key);
        if (node != nullptr && node->kind != YamlNode::Kind::map) {
            fail(*node, fmt::format("'{}' must be a map", key));
            return nullptr;
        }
        return node;
    }

    void read_base(const std::vector<std::string>& overrides, const DataDirectory& data) {
        const YamlNode* base = root_.find("base");
        if (base == nullptr || base->kind != YamlNode::Kind::scalar) {
            fail(base != nullptr ? *base : root_, "'base' must be the path of a scenario, relative to this file");
            return;
        }
        try {
            const std::filesystem::path path = std::filesystem::path(folder_) / base->scalar;
            sweep_.base_name = path.filename().string();
            if (!std::filesystem::is_regular_file(path)) {
                fail(*base, fmt::format("base scenario '{}' cannot be read: no such file", path.string()));
                return;
            }
            sweep_.base = load_yaml(path.string());
            if (const YamlNode* set = map_at("set")) {
                for (const YamlNode::Entry& entry : set->entries) {
                    if (scalar_of(entry.value, entry.key)) {
                        apply_override(sweep_.base, entry.key + "=" + entry.value.scalar);
                    }
                }
            }
            for (const std::string& assignment : overrides) {
                apply_override(sweep_.base, assignment);
            }
            read_constants(read_scenario(sweep_.base, sweep_.base_name, data));
        } catch (const ConfigError& error) {
            errors_.insert(errors_.end(), error.diagnostics().begin(), error.diagnostics().end());
        }
    }

    void read_constants(const Scenario& base) { flatten(nlohmann::json::parse(resolved_json(base)), ""); }

    void flatten(const nlohmann::json& json, const std::string& path) {
        if (json.is_object() && !json.contains("how")) {
            for (const auto& [key, value] : json.items()) {
                flatten(value, path.empty() ? key : fmt::format("{}.{}", path, key));
            }
        } else {
            const nlohmann::json& value = json.is_object() ? json["value"] : json;
            sweep_.constants[path] = value_of_text(value.is_string() ? value.get<std::string>() : value.dump());
        }
    }

    bool scalar_of(const YamlNode& node, const std::string& key) {
        if (node.kind == YamlNode::Kind::scalar && !node.scalar.empty()) {
            return true;
        }
        fail(node, fmt::format("'{}' must be a single value", key));
        return false;
    }

    void claim(const std::string& key, const Mark& mark) {
        if (!claimed_.insert(key).second) {
            errors_.push_back(mark.error(fmt::format("'{}' is set twice", key)));
        }
        if (key.empty() || key.find_first_of(",= \n") != std::string::npos) {
            errors_.push_back(mark.error(fmt::format("'{}' is not the path of a value, such as plan.tensor", key)));
        }
        if (key == "kind" || key == "orrery") {
            errors_.push_back(mark.error(fmt::format("'{}' cannot be swept", key)));
        }
    }

    bool whole(const YamlNode& node, const char* what, double least, double most, double& value) {
        if (node.kind == YamlNode::Kind::scalar && parse_number(node.scalar, value) && value == std::floor(value) &&
            value >= least && value <= most) {
            return true;
        }
        fail(node, fmt::format("'{}' must be a whole number between {:.0f} and {:.0f}", what, least, most));
        return false;
    }

    // Two ends in one unit.
    bool ends_of(const YamlNode& node, const std::string& key, bool positive, NumberWithUnit& low,
                 NumberWithUnit& high) {
        if (node.kind != YamlNode::Kind::sequence || node.items.size() != 2 || !split_unit(node.items[0].scalar, low) ||
            !split_unit(node.items[1].scalar, high)) {
            fail(node, fmt::format("the ends of '{}' are two numbers: [low, high]", key));
        } else if (low.unit != high.unit) {
            fail(node, fmt::format("write both ends of '{}' in one unit, not '{}' and '{}'", key, low.unit, high.unit));
        } else if (low.number > high.number) {
            fail(node, fmt::format("the ends of '{}' are the wrong way round", key));
        } else if (positive && low.number <= 0) {
            fail(node, fmt::format("a logarithmic range of '{}' needs ends above 0", key));
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
                if (scalar_of(item, key)) {
                    values.push_back(item.scalar);
                }
            }
            if (node.items.empty()) {
                fail(node, fmt::format("'{}' has no values", key));
            }
            return values;
        }
        if (node.kind == YamlNode::Kind::scalar) {
            return {node.scalar};
        }
        const YamlNode* linear = node.find("linear");
        const YamlNode* log = node.find("log");
        if (linear != nullptr || log != nullptr) {
            unknown_keys(node, {linear != nullptr ? "linear" : "log", "count"});
            return spaced(node, key, linear != nullptr ? *linear : *log, log != nullptr);
        }
        if (node.kind == YamlNode::Kind::map && node.find("from") != nullptr && node.find("to") != nullptr) {
            unknown_keys(node, {"from", "to", "step"});
            return stepped(node, key);
        }
        fail(node, fmt::format("'{}' must be a list, {{from, to, step}}, {{linear: [a, b], count}} or "
                               "{{log: [a, b], count}}",
                               key));
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
            fail(node, fmt::format("from, to and step of '{}' must be numbers in one unit", key));
            return {};
        }
        if (!(step.number > 0) || from.number > to.number) {
            fail(node, fmt::format("'{}' must go up from 'from' to 'to' by a positive step", key));
            return {};
        }
        const double count = std::floor((to.number - from.number) / step.number * (1 + 1e-12)) + 1;
        if (!(count <= static_cast<double>(kMostRows))) {
            fail(node, fmt::format("'{}' has {:.3g} values; one axis has at most {}", key, count, kMostRows));
            return {};
        }
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
        if (!whole(given != nullptr ? *given : node, "count", 2, static_cast<double>(kMostRows), count) ||
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
        if (share <= 0 || share >= 1) {
            return share <= 0 ? low : high;
        }
        return logarithmic ? low * pow_pinned(high / low, share) : low + (high - low) * share;
    }

    void read_axes() {
        const YamlNode* axes = map_at("axes");
        if (axes == nullptr) {
            return;
        }
        for (const YamlNode::Entry& entry : axes->entries) {
            claim(entry.key, entry.key_mark);
            SweepAxis axis{{entry.key}, {}};
            for (std::string& value : values_of(entry.value, entry.key)) {
                axis.rows.push_back({std::move(value)});
            }
            sweep_.axes.push_back(std::move(axis));
        }
    }

    void read_zip() {
        const YamlNode* zip = root_.find("zip");
        if (zip == nullptr) {
            return;
        }
        const std::vector<YamlNode> groups =
            zip->kind == YamlNode::Kind::sequence ? zip->items : std::vector<YamlNode>{*zip};
        for (const YamlNode& group : groups) {
            if (group.kind != YamlNode::Kind::map || group.entries.empty()) {
                fail(group, "a zip group is a map of keys whose lists advance together");
                continue;
            }
            SweepAxis axis;
            for (const YamlNode::Entry& entry : group.entries) {
                claim(entry.key, entry.key_mark);
                axis.keys.push_back(entry.key);
                const std::vector<std::string> values = values_of(entry.value, entry.key);
                if (axis.keys.size() == 1) {
                    axis.rows.resize(values.size());
                } else if (values.size() != axis.rows.size()) {
                    fail(entry.value, fmt::format("'{}' has {} values, but '{}' in the same zip group has {}",
                                                  entry.key, values.size(), axis.keys[0], axis.rows.size()));
                    continue;
                }
                for (std::size_t i = 0; i < values.size(); ++i) {
                    axis.rows[i].push_back(values[i]);
                }
            }
            sweep_.axes.push_back(std::move(axis));
        }
    }

    // Values of one sampled key at the given shares in [0, 1).
    std::vector<std::string> sampled(const YamlNode& node, const std::string& key, const std::vector<double>& shares) {
        std::vector<std::string> values;
        const YamlNode* choice = node.find("choice");
        const YamlNode* integer = node.find("integer");
        const YamlNode* log = node.find("log");
        if (choice != nullptr) {
            unknown_keys(node, {"choice"});
            const std::vector<std::string> names = values_of(*choice, key);
            for (const double share : shares) {
                if (!names.empty()) {
                    values.push_back(names[static_cast<std::size_t>(share * static_cast<double>(names.size()))]);
                }
            }
            return values;
        }
        NumberWithUnit low;
        NumberWithUnit high;
        unknown_keys(node, {integer != nullptr ? "integer" : "log"});
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
        const YamlNode* sample = map_at("sample");
        if (sample == nullptr) {
            return;
        }
        unknown_keys(*sample, {"method", "count", "seed", "values"});
        const YamlNode* method = sample->find("method");
        const bool hypercube = method != nullptr && method->scalar == "latin-hypercube";
        if (method == nullptr || (!hypercube && method->scalar != "random")) {
            fail(method != nullptr ? *method : *sample, "'method' must be random or latin-hypercube");
        }
        double count = 0;
        const YamlNode* given = sample->find("count");
        const bool counted =
            whole(given != nullptr ? *given : *sample, "count", 1, static_cast<double>(kMostRows), count);
        double seed = 1;
        if (const YamlNode* node = sample->find("seed")) {
            (void)whole(*node, "seed", 0, 9e15, seed);
        }
        const YamlNode* values = sample->find("values");
        if (values == nullptr || values->kind != YamlNode::Kind::map || values->entries.empty()) {
            fail(values != nullptr ? *values : *sample,
                 "'values' must be a map of keys to [low, high], {log: [low, high]}, "
                 "{integer: [low, high]} or {choice: [...]}");
            return;
        }
        if (!counted) {
            return;
        }
        const auto rows = static_cast<std::size_t>(count);
        SweepAxis axis;
        axis.rows.resize(rows);
        for (const YamlNode::Entry& entry : values->entries) {
            claim(entry.key, entry.key_mark);
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
        sweep_.axes.push_back(std::move(axis));
    }

    void read_seeds() {
        const YamlNode* seeds = root_.find("seeds");
        if (seeds == nullptr) {
            return;
        }
        claim("seed", seeds->mark);
        SweepAxis axis{{"seed"}, {}};
        if (seeds->kind == YamlNode::Kind::sequence) {
            for (std::string& value : values_of(*seeds, "seed")) {
                axis.rows.push_back({std::move(value)});
            }
        } else {
            double count = 0;
            (void)whole(*seeds, "seeds", 1, static_cast<double>(kMostRows), count);
            for (double i = 1; i <= count; ++i) {
                axis.rows.push_back({fmt::format("{:.0f}", i)});
            }
        }
        sweep_.axes.push_back(std::move(axis));
    }

    std::optional<Expression> expression_of(const YamlNode& node) {
        if (node.kind != YamlNode::Kind::scalar) {
            fail(node, "an expression must be a single value");
            return std::nullopt;
        }
        try {
            return Expression(node.scalar, node.mark);
        } catch (const ConfigError& error) {
            errors_.insert(errors_.end(), error.diagnostics().begin(), error.diagnostics().end());
            return std::nullopt;
        }
    }

    void read_derived() {
        const YamlNode* derive = map_at("derive");
        if (derive == nullptr) {
            return;
        }
        for (const YamlNode::Entry& entry : derive->entries) {
            claim(entry.key, entry.key_mark);
            if (std::optional<Expression> expression = expression_of(entry.value)) {
                sweep_.derived.emplace_back(entry.key, std::move(*expression));
            }
        }
    }

    void read_where() {
        const YamlNode* where = root_.find("where");
        if (where == nullptr) {
            return;
        }
        const std::vector<YamlNode> list =
            where->kind == YamlNode::Kind::sequence ? where->items : std::vector<YamlNode>{*where};
        for (const YamlNode& node : list) {
            if (std::optional<Expression> expression = expression_of(node)) {
                sweep_.where.push_back(std::move(*expression));
            }
        }
    }

    void read_keep() {
        const YamlNode* keep = root_.find("keep");
        if (keep == nullptr) {
            return;
        }
        if (keep->kind != YamlNode::Kind::sequence || keep->items.empty()) {
            fail(*keep, "'keep' must be a list of metrics, such as [iteration_time_s, mfu]");
            return;
        }
        for (const YamlNode& item : keep->items) {
            if (scalar_of(item, "keep")) {
                sweep_.keep.emplace_back(item.scalar, item.mark);
            }
        }
    }

    void read_timeout() {
        const YamlNode* timeout = root_.find("timeout");
        std::string problem;
        if (timeout != nullptr && (!parse_quantity(timeout->scalar, Dimension::time, sweep_.timeout, problem) ||
                                   sweep_.timeout <= 0 || sweep_.timeout > 1e7)) {
            fail(*timeout, fmt::format("'timeout': {}", problem.empty() ? "must be between 0 s and 1e7 s" : problem));
        }
    }

    // Each name of an expression must be an axis, derived before, or a value of the base scenario that no axis replaces.
    void check_names() {
        std::set<std::string> known;
        for (const SweepAxis& axis : sweep_.axes) {
            known.insert(axis.keys.begin(), axis.keys.end());
        }
        const auto check = [&](const Expression& expression) {
            for (const std::string& name : expression.names()) {
                if (known.contains(name)) {
                    continue;
                }
                for (const std::string& key : known) {
                    if (name.rfind(key + ".", 0) == 0) {
                        errors_.push_back(expression.mark().error(
                            fmt::format("'{}' depends on the axis '{}' and has no single value here", name, key)));
                    }
                }
                if (!sweep_.constants.contains(name) && !sweep_.constants.empty()) {
                    std::vector<std::string> names(known.begin(), known.end());
                    for (const auto& [key, value] : sweep_.constants) {
                        names.push_back(key);
                    }
                    const std::string nearest = nearest_name(name, names);
                    errors_.push_back(expression.mark().error(
                        fmt::format("unknown name '{}'{}; known are the axes, what was derived before, and the base "
                                    "scenario's values",
                                    name, nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest))));
                }
            }
        };
        for (const auto& [key, expression] : sweep_.derived) {
            check(expression);
            known.insert(key);
        }
        for (const Expression& expression : sweep_.where) {
            check(expression);
        }
    }

    void check_size() {
        double size = 1;
        std::string factors;
        for (const SweepAxis& axis : sweep_.axes) {
            size *= static_cast<double>(axis.rows.size());
            factors +=
                fmt::format("{}{} ({})", factors.empty() ? "" : " x ", axis.rows.size(), fmt::join(axis.keys, ", "));
        }
        if (size > static_cast<double>(kMostPoints)) {
            fail(root_, fmt::format("the axes span {:.4g} points, the limit is {}: {}", size, kMostPoints, factors));
        }
    }

    const YamlNode& root_;
    std::string folder_;
    SweepSpec& sweep_;
    std::vector<Diagnostic> errors_;
    std::set<std::string> claimed_;
};

}  // namespace

std::uint64_t SweepSpec::size() const {
    std::uint64_t size = 1;
    for (const SweepAxis& axis : axes) {
        size *= axis.rows.size();
    }
    return size;
}

std::optional<SweepPoint> SweepSpec::point(std::uint64_t id) const {
    SweepPoint point;
    point.id = id;
    std::vector<std::size_t> chosen(axes.size());
    for (std::size_t i = axes.size(); i-- > 0;) {
        chosen[i] = static_cast<std::size_t>(id % axes[i].rows.size());
        id /= axes[i].rows.size();
    }
    std::map<std::string, ExpressionValue> values;
    const auto add = [&](const std::string& key, const std::string& text) {
        values[key] = value_of_text(text);
        point.parameters.emplace_back(key, text);
    };
    for (std::size_t i = 0; i < axes.size(); ++i) {
        for (std::size_t k = 0; k < axes[i].keys.size(); ++k) {
            add(axes[i].keys[k], axes[i].rows[chosen[i]][k]);
        }
    }
    const Expression::Lookup lookup = [&](const std::string& wanted) -> ExpressionValue {
        const auto own = values.find(wanted);
        if (own != values.end()) {
            return own->second;
        }
        return constants.at(wanted);
    };
    for (const auto& [key, expression] : derived) {
        add(key, text_of_value(expression.evaluate(lookup)));
    }
    for (const Expression& condition : where) {
        if (!condition.is_true(lookup)) {
            return std::nullopt;
        }
    }
    return point;
}

std::vector<std::string> SweepSpec::keys() const {
    std::vector<std::string> keys;
    for (const SweepAxis& axis : axes) {
        keys.insert(keys.end(), axis.keys.begin(), axis.keys.end());
    }
    for (const auto& [key, expression] : derived) {
        keys.push_back(key);
    }
    return keys;
}

std::string SweepSpec::identity() const {
    nlohmann::ordered_json out;
    out["base"] = canonical_text(base);
    for (const SweepAxis& axis : axes) {
        out["axes"].push_back({{"keys", axis.keys}, {"rows", axis.rows}});
    }
    for (const auto& [key, expression] : derived) {
        out["derive"].push_back({key, expression.text()});
    }
    for (const Expression& expression : where) {
        out["where"].push_back(expression.text());
    }
    for (const auto& metric : keep) {
        out["keep"].push_back(metric.first);
    }
    return out.dump();
}

SweepSpec load_sweep(const std::string& path, const std::vector<std::string>& overrides, const DataDirectory& data) {
    SweepSpec sweep;
    sweep.name = path == "-" ? "stdin" : std::filesystem::path(path).filename().string();
    YamlNode root;
    if (path == "-") {
        const std::string text((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
        root = parse_yaml(text, "standard input");
    } else {
        root = load_yaml(path);
    }
    const std::string folder = path == "-" ? "." : std::filesystem::path(path).parent_path().string();
    SweepReader(root, folder, sweep).read(overrides, data);
    return sweep;
}

Scenario scenario_of(const SweepSpec& sweep, const SweepPoint& point, const DataDirectory& data) {
    YamlNode tree = sweep.base;
    for (const auto& [key, value] : point.parameters) {
        apply_override(tree, key + "=" + value);
    }
    return read_scenario(tree, sweep.base_name, data);
}

std::string sweep_schema() {
    using Json = nlohmann::ordered_json;
    const Json list = {{"type", "array"}, {"items", {{"type", Json::array({"string", "number", "boolean"})}}}};
    const Json values = {{"description", "a list, {from, to, step}, {linear: [a, b], count} or {log: [a, b], count}"},
                         {"type", Json::array({"array", "object", "string", "number", "boolean"})}};
    const Json map_of_values = {{"type", "object"}, {"additionalProperties", values}};
    const Json text_map = {{"type", "object"},
                           {"additionalProperties", {{"type", Json::array({"string", "number", "boolean"})}}}};
    const Json texts = {{"type", "array"}, {"items", {{"type", "string"}}}};
    const auto described = [](Json schema, const char* text) {
        schema["description"] = text;
        return schema;
    };
    Json properties;
    properties["orrery"] = {{"const", 1}, {"description", "version of the scenario language"}};
    properties["kind"] = {{"const", "sweep"}};
    properties["base"] = {{"type", "string"}, {"description", "the scenario to start from, relative to this file"}};
    properties["set"] = described(text_map, "values of the base scenario to change in every point");
    properties["axes"] = described(map_of_values, "keys of the scenario and their values; points are the product");
    properties["zip"] = {{"description", "groups of keys whose values advance together"},
                         {"anyOf", Json::array({map_of_values, Json{{"type", "array"}, {"items", map_of_values}}})}};
    properties["sample"] = {{"type", "object"},
                            {"description", "keys drawn at random"},
                            {"properties",
                             {{"method", {{"enum", Json::array({"random", "latin-hypercube"})}}},
                              {"count", {{"type", "integer"}, {"minimum", 1}}},
                              {"seed", {{"type", "integer"}, {"minimum", 0}}},
                              {"values", map_of_values}}},
                            {"required", Json::array({"method", "count", "values"})},
                            {"additionalProperties", false}};
    properties["derive"] = described(text_map, "values that follow from others, as expressions, in order");
    properties["where"] = described(texts, "conditions that a point must meet");
    properties["seeds"] = {{"description", "replicas: a number of seeds or a list"},
                           {"anyOf", Json::array({Json{{"type", "integer"}}, list})}};
    properties["keep"] = described(texts, "metrics to keep; all when absent");
    properties["timeout"] = {{"type", "string"}, {"description", "wall time a point may take; 600 s when absent"}};
    return Json{{"type", "object"},
                {"properties", properties},
                {"required", Json::array({"orrery", "kind", "base"})},
                {"additionalProperties", false}}
        .dump(2);
}

}  // namespace orrery
