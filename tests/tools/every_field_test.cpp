// Nothing is accepted and ignored: every field of every kind's schema, at every fidelity.
//
// Each field is changed to other legal values in the small scenarios of tests/data/fields. Then the result changes, or the
// field is refused, or tests/data/fields/without-effect.yaml says why it cannot matter.

#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"

#include "sim/config/units.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

namespace orrery {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFolder = ORRERY_SOURCE_DIR "/tests/data/fields";

/// A field of a schema: keys from the root, list entries by number.
struct SchemaField {
    std::vector<std::string> path;
    Json schema;

    [[nodiscard]] std::string name() const { return fmt::format("{}", fmt::join(path, ".")); }
};

void collect(const Json& object, const std::vector<std::string>& prefix, std::vector<SchemaField>& out) {
    for (const auto& [key, entry] : object.at("properties").items()) {
        std::vector<std::string> path = prefix;
        path.push_back(key);
        const auto nested = [&](const Json& inner, const std::vector<std::string>& under) {
            if (inner.is_object() && inner.contains("properties")) {
                collect(inner, under, out);
                return true;
            }
            return false;
        };
        const auto any_of = [&](const Json& of, const std::vector<std::string>& under) {
            bool deeper = nested(of, under);
            if (of.is_object() && of.contains("anyOf")) {
                for (const Json& form : of["anyOf"]) {
                    deeper = nested(form, under) || deeper;
                }
            }
            return deeper;
        };
        bool deeper = any_of(entry, path);
        if (entry.contains("items")) {
            std::vector<std::string> first = path;
            first.emplace_back("0");
            deeper = any_of(entry["items"], first) || deeper;
        }
        if (!deeper) {
            out.push_back({path, entry});
        }
    }
}

Json* find(Json& root, const std::vector<std::string>& path) {
    Json* at = &root;
    for (const std::string& key : path) {
        if (at->is_array()) {
            const auto index = static_cast<std::size_t>(std::stoul(key));
            if (index >= at->size()) {
                return nullptr;
            }
            at = &(*at)[index];
        } else if (at->is_object() && at->contains(key)) {
            at = &(*at)[key];
        } else if (at->is_string() && key == "kind") {
            continue;  // a policy without parameters is its name alone
        } else {
            return nullptr;
        }
    }
    return at;
}

/// Other values of a number within its limits.
std::vector<Json> other_numbers(const Json& schema, double value) {
    std::vector<Json> out;
    const double low = schema.value("minimum", -1e15);
    const double high = schema.value("maximum", 1e15);
    const bool whole = schema.at("type") == "integer";
    for (double one : {value * 2, value + 1, value / 2, value - 1, value * 8, 0.0, 1.0, 3.0, 8.0, 64.0}) {
        one = whole ? std::floor(one) : one;
        if (one >= low && one <= high && one != value) {
            Json number = whole ? Json(static_cast<std::int64_t>(one)) : Json(one);
            if (std::find(out.begin(), out.end(), number) == out.end()) {
                out.push_back(std::move(number));
            }
        }
    }
    return out;
}

/// Other values of a quantity such as "2.5e-06 s".
std::vector<Json> other_quantities(const std::string& text) {
    const std::size_t space = text.find(' ');
    double number = 0;
    if (!parse_number(text.substr(0, space), number)) {
        return {};
    }
    const std::string unit = space == std::string::npos ? "" : text.substr(space);
    std::vector<Json> out;
    for (const double one : number != 0
                                ? std::vector<double>{number / 2, number * 2, number / 30, number * 30, number * 0.9}
                                : std::vector<double>{1e-6, 1e-3, 0.5, 1, 1e3, 1e6, 1e9}) {
        out.emplace_back(fmt::format("{:.17g}{}", one, unit));
    }
    return out;
}

std::vector<Json> other_values(const Json& schema, const Json& now) {
    if (schema.contains("enum")) {
        std::vector<Json> out;
        for (const Json& name : schema["enum"]) {
            if (name != now) {
                out.push_back(name);
            }
        }
        return out;
    }
    if (now.is_boolean()) {
        return {Json(!now.get<bool>())};
    }
    if (now.is_number()) {
        return other_numbers(schema, now.get<double>());
    }
    if (now.is_array()) {  // a range
        std::vector<Json> out;
        for (const double factor : {0.5, 2.0}) {
            Json both = Json::array();
            for (const Json& end : now) {
                const std::vector<Json> others = other_quantities(end.get<std::string>());
                both.push_back(factor < 1 ? others[0] : others[1]);
            }
            out.push_back(std::move(both));
        }
        return out;
    }
    if (now.is_object()) {  // a sourced quantity
        return other_quantities(now.at("value").get<std::string>());
    }
    return other_quantities(now.get<std::string>());
}

/// What a run says, but for the count of events and what names the scenario; a plan that cannot be is an answer, too.
std::string result_of(const Json& tree, ModelCache& models) {
    Scenario scenario = read_scenario(parse_yaml(tree.dump(), "walk"), "walk", models.data());
    scenario.directory = kFolder;
    try {
        const RunOutput out = run_scenario(scenario, models, {});
        std::string text;
        for (const Metric& metric : out.summary.metrics) {
            text += fmt::format("{} {}\n", metric.name, metric.value);
        }
        for (const auto& [part, seconds] : out.summary.breakdown) {
            text += fmt::format("{} {}\n", part, seconds);
        }
        return text;
    } catch (const InfeasibleError& error) {
        return error.what();
    }
}

/// A scenario to change, at one fidelity.
struct Base {
    Json tree;
    std::string result;
};

struct Fate {
    bool reached = false;
    bool changed = false;
    bool accepted = false;  ///< in a value that changed nothing
};

/// A policy takes its own parameters alone: the tree with no more than its kind.
Json with_kind_alone(Json tree, const std::vector<std::string>& path) {
    Json* policy = find(tree, {path.begin(), path.end() - 1});
    if (policy != nullptr && policy->is_object()) {
        *policy = Json{{"kind", (*policy)["kind"]}};
    }
    return tree;
}

/// What becomes of changes of one field.
Fate change(const SchemaField& field, const std::vector<Base>& bases,
            const std::map<std::string, std::vector<std::string>>& given, ModelCache& models) {
    Fate fate;
    for (const Base& base : bases) {
        Json tree = base.tree;
        Json* place = find(tree, field.path);
        if (place == nullptr) {
            continue;
        }
        fate.reached = true;
        std::vector<Json> values = other_values(field.schema, *place);
        if (const auto others = given.find(field.name()); others != given.end()) {
            values.assign(others->second.begin(), others->second.end());
        }
        for (const Json& value : values) {
            *place = value;
            const bool policy = field.path.back() == "kind" && field.path.size() > 1;
            for (const bool alone : {false, true}) {
                try {
                    const bool same = alone ? result_of(with_kind_alone(tree, field.path), models) ==
                                                  result_of(with_kind_alone(base.tree, field.path), models)
                                            : result_of(tree, models) == base.result;
                    if (!same) {
                        fate.changed = true;
                        return fate;
                    }
                    fate.accepted = true;
                    break;
                } catch (const ConfigError&) {
                    if (!policy) {
                        break;
                    }
                }
            }
        }
    }
    return fate;
}

/// tests/data/fields/without-effect.yaml.
class Reasons {
  public:
    Reasons() {
        const YamlNode root = load_yaml(std::string(kFolder) + "/without-effect.yaml");
        for (const YamlNode::Entry& entry : root.find("values")->entries) {
            for (const YamlNode& value : entry.value.items) {
                values[entry.key].push_back(value.scalar);
            }
        }
        for (const YamlNode::Entry& entry : root.find("ignored")->entries) {
            patterns_.push_back(entry.key);
        }
        used_.resize(patterns_.size());
    }
    std::map<std::string, std::vector<std::string>> values;  ///< by path: what else a text can be

    [[nodiscard]] bool cover(const std::string& kind, const std::string& fidelity, const std::string& path) const {
        return find(kind, fidelity, path) < patterns_.size();
    }
    void use(const std::string& kind, const std::string& fidelity, const std::string& path) {
        if (const std::size_t at = find(kind, fidelity, path); at < patterns_.size()) {
            used_[at] = true;
        }
    }
    [[nodiscard]] std::vector<std::string> unused() const {
        std::vector<std::string> out;
        for (std::size_t i = 0; i < patterns_.size(); ++i) {
            if (!used_[i]) {
                out.push_back(patterns_[i]);
            }
        }
        return out;
    }

  private:
    // A pattern is "kind fidelity path"; each may be several, joined by |, and may end in *.
    static bool fits(const std::string& pattern, const std::string& word) {
        for (std::size_t from = 0; from <= pattern.size();) {
            const std::size_t to = std::min(pattern.find('|', from), pattern.size());
            const std::string one = pattern.substr(from, to - from);
            if (one == word || (one.ends_with("*") && word.starts_with(one.substr(0, one.size() - 1)))) {
                return true;
            }
            from = to + 1;
        }
        return false;
    }
    [[nodiscard]] std::size_t find(const std::string& kind, const std::string& fidelity,
                                   const std::string& path) const {
        for (std::size_t i = 0; i < patterns_.size(); ++i) {
            const std::size_t first = patterns_[i].find(' ');
            const std::size_t second = patterns_[i].find(' ', first + 1);
            if (fits(patterns_[i].substr(0, first), kind) &&
                fits(patterns_[i].substr(first + 1, second - first - 1), fidelity) &&
                fits(patterns_[i].substr(second + 1), path)) {
                return i;
            }
        }
        return patterns_.size();
    }
    std::vector<std::string> patterns_;
    std::vector<bool> used_;
};

/// All fields of one kind at one fidelity, and what became of each.
struct Walk {
    std::string kind, fidelity;
    std::vector<SchemaField> fields;
    std::map<std::string, Fate> fates;
    std::vector<std::size_t> accepted;  ///< scenarios of the kind that this fidelity can run
    std::string problem;
};

using Trees = std::map<std::string, std::vector<Json>>;  // by kind

std::vector<Base> bases_of(const std::vector<Json>& trees, Walk& walk, ModelCache& models) {
    std::vector<Base> bases;
    for (std::size_t i = 0; i < trees.size(); ++i) {
        Json tree = trees[i];
        tree["network"]["fidelity"] = walk.fidelity;
        try {
            std::string result = result_of(tree, models);
            bases.push_back({std::move(tree), std::move(result)});
            walk.accepted.push_back(i);
        } catch (const ConfigError&) {
            continue;  // says what this fidelity refuses
        }
    }
    return bases;
}

void take(Walk& walk, const Trees& trees, const Reasons& reasons, ModelCache& models) {
    const std::vector<Base> bases = bases_of(trees.at(walk.kind), walk, models);
    for (const SchemaField& field : walk.fields) {
        // What the list covers is walked in the soak run only, which tells entries that have become wrong.
        if (test::scale() > 1 || !reasons.cover(walk.kind, walk.fidelity, field.name())) {
            walk.fates[field.name()] = change(field, bases, reasons.values, models);
        }
    }
}

}  // namespace

TEST_CASE("every field of every kind changes the result at every fidelity, is refused, or is listed with a reason") {
    Trees trees;
    std::vector<std::string> files;
    for (const auto& file : std::filesystem::directory_iterator(kFolder)) {
        files.push_back(file.path().string());
    }
    std::sort(files.begin(), files.end());
    for (const std::string& file : files) {
        if (file.ends_with(".yaml") && !file.ends_with("without-effect.yaml")) {
            const Scenario scenario = load_scenario(file, {}, test::data());
            trees[scenario.kind().name].push_back(Json::parse(complete_json(scenario)));
        }
    }
    std::vector<Walk> walks;
    for (std::size_t kind = 0; kind < scenario_kind_names().size(); ++kind) {
        for (const char* fidelity : {"packet", "fluid", "analytic"}) {
            Walk walk{scenario_kind_names()[kind], fidelity, {}, {}, {}, {}};
            collect(Json::parse(scenario_schema(*scenario_kinds()[kind], test::data())), {}, walk.fields);
            walks.push_back(std::move(walk));
        }
    }
    Reasons reasons;
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
        ModelCache models(test::data());
        for (std::size_t i = next++; i < walks.size(); i = next++) {
            try {
                take(walks[i], trees, reasons, models);
            } catch (const std::exception& error) {
                walks[i].problem = error.what();
            }
        }
    };
    std::thread other(work);
    work();
    other.join();
    std::map<std::string, std::set<std::size_t>> run;
    for (const Walk& walk : walks) {
        run[walk.kind].insert(walk.accepted.begin(), walk.accepted.end());
    }
    for (const auto& [kind, scenarios] : trees) {
        CHECK_MESSAGE(run[kind].size() == scenarios.size(), kind,
                      ": a scenario of tests/data/fields runs at no fidelity");
    }
    for (const Walk& walk : walks) {
        CHECK_MESSAGE(walk.problem.empty(), walk.kind, " ", walk.fidelity, ": ", walk.problem);
        for (const auto& [name, fate] : walk.fates) {
            if (!fate.changed) {
                const std::string what = fate.accepted  ? "is accepted and changes nothing"
                                         : fate.reached ? "is refused whatever it says"
                                                        : "is in no scenario of tests/data/fields";
                CHECK_MESSAGE(reasons.cover(walk.kind, walk.fidelity, name), walk.kind, " ", walk.fidelity, " ", name,
                              " ", what);
                reasons.use(walk.kind, walk.fidelity, name);
            }
        }
    }
    if (test::scale() > 1) {
        for (const std::string& entry : reasons.unused()) {
            FAIL_CHECK("without-effect.yaml lists what has an effect now: ", entry);
        }
    }
}

}  // namespace orrery
