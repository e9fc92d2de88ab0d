#include "tools/sweep/sweep_spec.hpp"

#include "sim/base/input_file.hpp"
#include "sim/config/units.hpp"
#include "tools/driver/kind.hpp"
#include "tools/sweep/sweep_axes.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>

namespace orrery::sweep {

namespace {

class SweepReader {
  public:
    SweepReader(const YamlNode& root, std::string folder, SweepSpec& sweep)
        : folder_(std::move(folder)), sweep_(sweep), tree_{root, {}, {}} {}

    void read(const std::vector<std::string>& overrides, const DataDirectory& data) {
        if (tree_.root.kind != YamlNode::Kind::map) {
            throw ConfigError(
                {tree_.root.mark.error("a sweep is a map that starts with 'orrery: 1'", ErrorCode::wrong_type)});
        }
        check_keys();
        read_base(overrides, data);
        read_sweep_axes(tree_, sweep_.axes);
        read_derived();
        read_where();
        read_keep();
        read_timeout();
        check_overrides(overrides);
        check_names();
        throw_if_any(tree_.errors);
        sweep_.marks = tree_.claimed;
    }

  private:
    void check_keys() {
        static const std::vector<std::string> kKeys = {"orrery", "kind",   "base",  "set",   "axes", "zip",
                                                       "sample", "derive", "where", "seeds", "keep", "timeout"};
        tree_.unknown_keys(tree_.root, kKeys);
        const YamlNode* version = tree_.root.find("orrery");
        if (version == nullptr || version->scalar != "1") {
            tree_.fail(version != nullptr ? *version : tree_.root,
                       "'orrery' must be 1, the version of the scenario language", ErrorCode::out_of_range);
        }
        const YamlNode* kind = tree_.root.find("kind");
        if (kind == nullptr || kind->scalar != "sweep") {
            tree_.fail(kind != nullptr ? *kind : tree_.root,
                       "'kind' must be sweep here; other kinds go to 'orrery run'", ErrorCode::unknown_name);
        }
    }

    void read_base(const std::vector<std::string>& overrides, const DataDirectory& data) {
        const YamlNode* base = tree_.root.find("base");
        if (base == nullptr || base->kind != YamlNode::Kind::scalar) {
            tree_.fail(base != nullptr ? *base : tree_.root,
                       "'base' must be the path of a scenario, relative to this file");
            return;
        }
        const YamlNode* set = nullptr;
        try {
            const std::filesystem::path path = std::filesystem::path(folder_) / base->scalar;
            sweep_.base_name = path.filename().string();
            if (!std::filesystem::is_regular_file(path)) {
                tree_.fail(*base, fmt::format("base scenario '{}' cannot be read: no such file", path.string()),
                           ErrorCode::unreadable_file);
                return;
            }
            sweep_.base = load_yaml(path.string());
            set = tree_.map_at("set");
            if (set != nullptr) {
                for (const YamlNode::Entry& entry : set->entries) {
                    if (tree_.scalar_of(entry.value, entry.key)) {
                        tree_.claim(entry.key, entry.key_mark);
                        apply_override(sweep_.base, entry.key + "=" + entry.value.scalar);
                    }
                }
            }
            for (const std::string& assignment : overrides) {
                apply_override(sweep_.base, assignment);
            }
            Scenario scenario = read_scenario(sweep_.base, sweep_.base_name, data);
            sweep_.directory = path.parent_path().string();
            scenario.directory = sweep_.directory;
            sweep_.files = files_of(scenario);
            sweep_.files.push_back(path.string());
            read_constants(scenario);
        } catch (const ConfigError& error) {
            for (const Diagnostic& one : error.diagnostics()) {
                tree_.errors.push_back(of_set(one, set));
            }
        }
    }

    // What `set` gives has its place in the sweep, and not on a command line that nobody wrote.
    static Diagnostic of_set(const Diagnostic& one, const YamlNode* set) {
        for (const YamlNode::Entry& entry : set != nullptr ? set->entries : std::vector<YamlNode::Entry>()) {
            if (one.file == fmt::format("--set {}={}", entry.key, entry.value.scalar)) {
                return entry.key_mark.error(one.text);
            }
        }
        return one;
    }

    // An axis has a value in every point, and leaves none to the command line.
    void check_overrides(const std::vector<std::string>& overrides) {
        for (const std::string& assignment : overrides) {
            const std::string key = assignment.substr(0, assignment.find('='));
            const auto axis = tree_.claimed.find(key);
            const YamlNode* set = tree_.map_at("set");
            if (axis != tree_.claimed.end() && (set == nullptr || set->find(key) == nullptr)) {
                tree_.errors.push_back(axis->second.error(
                    fmt::format("'{}' has its values here: --set {} would change nothing", key, assignment),
                    ErrorCode::no_effect));
            }
        }
    }

    void read_constants(const Scenario& base) { flatten(nlohmann::json::parse(complete_json(base)), ""); }

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

    std::optional<Expression> expression_of(const YamlNode& node) {
        if (node.kind != YamlNode::Kind::scalar) {
            tree_.fail(node, "an expression must be a single value", ErrorCode::wrong_type);
            return std::nullopt;
        }
        try {
            return Expression(node.scalar, node.mark);
        } catch (const ConfigError& error) {
            tree_.errors.insert(tree_.errors.end(), error.diagnostics().begin(), error.diagnostics().end());
            return std::nullopt;
        }
    }

    void read_derived() {
        const YamlNode* derive = tree_.map_at("derive");
        if (derive == nullptr) {
            return;
        }
        for (const YamlNode::Entry& entry : derive->entries) {
            tree_.claim(entry.key, entry.key_mark);
            if (std::optional<Expression> expression = expression_of(entry.value)) {
                sweep_.derived.emplace_back(entry.key, std::move(*expression));
            }
        }
    }

    void read_where() {
        const YamlNode* where = tree_.root.find("where");
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
        const YamlNode* keep = tree_.root.find("keep");
        if (keep == nullptr) {
            return;
        }
        if (keep->kind != YamlNode::Kind::sequence || keep->items.empty()) {
            tree_.fail(*keep, "'keep' must be a list of metrics, such as [iteration_time_s, mfu]",
                       ErrorCode::wrong_type);
            return;
        }
        for (const YamlNode& item : keep->items) {
            if (tree_.scalar_of(item, "keep")) {
                sweep_.keep.emplace_back(item.scalar, item.mark);
            }
        }
    }

    void read_timeout() {
        const YamlNode* timeout = tree_.root.find("timeout");
        std::string problem;
        if (timeout != nullptr && (!parse_quantity(timeout->scalar, Dimension::time, sweep_.timeout, problem) ||
                                   sweep_.timeout <= 0 || sweep_.timeout > 1e7)) {
            tree_.fail(*timeout,
                       fmt::format("'timeout': {}", problem.empty() ? "must be between 0 s and 1e7 s" : problem));
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
                        tree_.errors.push_back(expression.mark().error(
                            fmt::format("'{}' depends on the axis '{}' and has no single value here", name, key)));
                    }
                }
                if (!sweep_.constants.contains(name) && !sweep_.constants.empty()) {
                    std::vector<std::string> names(known.begin(), known.end());
                    for (const auto& [key, value] : sweep_.constants) {
                        names.push_back(key);
                    }
                    const std::string nearest = nearest_name(name, names);
                    tree_.errors.push_back(expression.mark().error(
                        fmt::format("unknown name '{}'{}; known are the axes, what was derived before, and the base "
                                    "scenario's values",
                                    name, nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest)),
                        ErrorCode::unknown_name));
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

    std::string folder_;
    SweepSpec& sweep_;
    SweepTree tree_;
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
        ORRERY_ASSERT(!axes[i].rows.empty());
        chosen[i] = static_cast<std::size_t>(id % axes[i].rows.size());
        id /= axes[i].rows.size();
    }
    ORRERY_ASSERT(id == 0);  // or two ids would be the same point
    std::map<std::string, ExpressionValue> values;
    const auto add = [&](const std::string& key, const std::string& text) {
        values[key] = value_of_text(text);
        point.parameters.emplace_back(key, text);
    };
    for (std::size_t i = 0; i < axes.size(); ++i) {
        ORRERY_ASSERT(axes[i].rows[chosen[i]].size() == axes[i].keys.size());
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
    if (path == "-") {
        return read_sweep(parse_yaml(read_standard_input(), "standard input"), "stdin", ".", overrides, data);
    }
    const std::filesystem::path file(path);
    return read_sweep(load_yaml(path), file.filename().string(), file.parent_path().string(), overrides, data);
}

SweepSpec read_sweep(const YamlNode& root, const std::string& name, const std::string& folder,
                     const std::vector<std::string>& overrides, const DataDirectory& data) {
    SweepSpec sweep;
    sweep.name = name;
    SweepReader(root, folder, sweep).read(overrides, data);
    return sweep;
}

void check_points(const SweepSpec& sweep) {
    constexpr std::uint64_t kMostLookedAt = 200'000;
    const std::uint64_t size = sweep.size();
    bool any = size > kMostLookedAt;
    for (std::uint64_t id = 0; id < std::min(size, kMostLookedAt); ++id) {
        any = sweep.point(id).has_value() || any;
    }
    if (!any) {
        throw ConfigError({(sweep.where.empty() ? sweep.base.mark : sweep.where.front().mark())
                               .error(fmt::format("none of the {} points meets the conditions of 'where'", size))});
    }
}

Scenario scenario_of(const SweepSpec& sweep, const SweepPoint& point, const DataDirectory& data) {
    YamlNode tree = sweep.base;
    for (const auto& [key, value] : point.parameters) {
        apply_override(tree, key + "=" + value);
    }
    try {
        Scenario scenario = read_scenario(tree, sweep.base_name, data);
        scenario.directory = sweep.directory;
        return scenario;
    } catch (const ConfigError& error) {
        // Values of points have no place in a file but that of their key.
        std::vector<Diagnostic> found;
        for (Diagnostic one : error.diagnostics()) {
            for (const auto& [key, value] : point.parameters) {
                const auto mark = sweep.marks.find(key);
                if (mark != sweep.marks.end() && one.file == fmt::format("--set {}={}", key, value)) {
                    one = mark->second.error(fmt::format("{}={}: {}", key, value, one.text));
                }
            }
            found.push_back(std::move(one));
        }
        throw ConfigError(found);
    }
}

namespace {

// What is wrong with a value of the sweep in one of its points; empty when the point is fine in this.
std::vector<Diagnostic> problems_of_value(const SweepSpec& sweep, const SweepPoint& point, const std::string& key,
                                          const std::string& value, const DataDirectory& data) {
    std::vector<Diagnostic> out;
    try {
        (void)scenario_of(sweep, point, data);
    } catch (const ConfigError& error) {
        const std::string own = fmt::format("{}={}: ", key, value);
        std::copy_if(error.diagnostics().begin(), error.diagnostics().end(), std::back_inserter(out),
                     [&](const Diagnostic& one) { return one.text.rfind(own, 0) == 0; });
    }
    return out;
}

}  // namespace

void check_values(const SweepSpec& sweep, const DataDirectory& data) {
    constexpr std::uint64_t kTries = 200;  // points of a value that are looked at before it counts as wrong in all
    std::vector<Diagnostic> errors;
    std::uint64_t behind = sweep.size();
    for (const SweepAxis& axis : sweep.axes) {
        behind /= axis.rows.size();
        const std::uint64_t others = sweep.size() / axis.rows.size();
        ORRERY_ASSERT(behind >= 1 && others % behind == 0);
        for (std::size_t row = 0; row < std::min<std::size_t>(axis.rows.size(), kTries); ++row) {
            for (std::size_t k = 0; k < axis.keys.size(); ++k) {
                std::vector<Diagnostic> found;
                const std::uint64_t step = others / kTries + 1;
                for (std::uint64_t other = 0; other < others; other += step) {
                    // The other axes, before and behind this one, as digits around its own.
                    const std::uint64_t id = (other / behind * axis.rows.size() + row) * behind + other % behind;
                    ORRERY_ASSERT(id < sweep.size());
                    const std::optional<SweepPoint> point = sweep.point(id);
                    if (!point) {
                        continue;
                    }
                    found = problems_of_value(sweep, *point, axis.keys[k], axis.rows[row][k], data);
                    if (found.empty()) {
                        break;
                    }
                }
                errors.insert(errors.end(), found.begin(), found.end());
            }
        }
    }
    throw_if_any(errors);
}

}  // namespace orrery::sweep
