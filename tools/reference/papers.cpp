#include "tools/reference/papers.hpp"

#include "sim/config/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <set>

namespace orrery::reference {

namespace {

namespace fs = std::filesystem;

// Reads the keys of one map, each once; those that nobody asked for are unknown.
class Keys {
  public:
    Keys(const YamlNode& node, std::vector<Diagnostic>& errors) : node_(node), errors_(errors) {
        if (node.kind != YamlNode::Kind::map) {
            error(node.mark, "a map of keys is needed here");
        }
    }
    void error(const Mark& mark, const std::string& text) { errors_.push_back(mark.error(text)); }

    const YamlNode* find(const char* key) {
        known_.emplace_back(key);
        return node_.find(key);
    }
    std::string text(const char* key) {
        const YamlNode* found = find(key);
        if (found != nullptr && (found->kind != YamlNode::Kind::scalar || found->scalar.empty())) {
            error(found->mark, fmt::format("'{}' is a text", key));
        }
        return found != nullptr ? found->scalar : "";
    }
    std::optional<double> number(const char* key) {
        const YamlNode* found = find(key);
        return found != nullptr ? number_of(*found) : std::nullopt;
    }
    double number(const char* key, double otherwise) { return number(key).value_or(otherwise); }
    std::optional<double> number_of(const YamlNode& node) {
        double value = 0;
        if (node.kind != YamlNode::Kind::scalar || !parse_number(node.scalar, value)) {
            error(node.mark, fmt::format("'{}' is no number", node.scalar));
            return std::nullopt;
        }
        return value;
    }
    bool flag(const char* key) {
        const YamlNode* found = find(key);
        if (found != nullptr && found->scalar != "true") {
            error(found->mark, fmt::format("'{}' is true or left out", key));
        }
        return found != nullptr;
    }
    std::vector<std::string> texts(const char* key) {
        const YamlNode* found = find(key);
        return found != nullptr ? texts_of(*found) : std::vector<std::string>();
    }
    std::vector<std::string> texts_of(const YamlNode& node) {
        std::vector<std::string> all;
        if (node.kind != YamlNode::Kind::sequence) {
            error(node.mark, "a list of assignments is needed here, such as [plan.tensor=2]");
        }
        for (const YamlNode& item : node.items) {
            all.push_back(item.scalar);
        }
        return all;
    }
    const std::vector<YamlNode>& items(const char* key) {
        static const std::vector<YamlNode> kNone;
        const YamlNode* found = find(key);
        if (found != nullptr && found->kind != YamlNode::Kind::sequence) {
            error(found->mark, fmt::format("'{}' is a list", key));
        }
        return found != nullptr ? found->items : kNone;
    }
    void end() {
        for (const YamlNode::Entry& entry : node_.entries) {
            if (std::find(known_.begin(), known_.end(), entry.key) == known_.end()) {
                const std::string near = nearest_name(entry.key, known_);
                errors_.push_back(
                    entry.key_mark.error(fmt::format("unknown key '{}'{}", entry.key,
                                                     near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near)),
                                         ErrorCode::unknown_name));
            }
        }
    }

  private:
    const YamlNode& node_;
    std::vector<Diagnostic>& errors_;
    std::vector<std::string> known_;
};

// Files of scenarios are looked at once each.
bool is_replay(const std::string& file) {
    const YamlNode root = load_yaml(file);
    const YamlNode* kind = root.find("kind");
    return kind != nullptr && kind->scalar == "replay";
}

void read_predicted(Keys& keys, PaperFigure& out) {
    const YamlNode* found = keys.find("predicted");
    if (found == nullptr) {
        keys.error(out.mark, "a figure needs 'predicted': what its scenario prints");
        return;
    }
    out.predicted_mark = found->mark;
    const bool range = found->kind == YamlNode::Kind::sequence;
    if (range != !out.readings.empty() || (range && found->items.size() != 2)) {
        keys.error(found->mark, "'predicted' is [least, greatest] of readings, and one number otherwise");
        return;
    }
    out.low = keys.number_of(range ? found->items[0] : *found).value_or(0);
    out.high = range ? keys.number_of(found->items[1]).value_or(0) : out.low;
}

// What the rules of scoring ask of a figure by itself.
void check_rules(Keys& keys, const PaperFigure& out, bool has_band) {
    const auto wrong = [&](bool holds, const char* text) {
        if (holds) {
            keys.error(out.mark, text);
        }
    };
    wrong(out.published.has_value() == out.sign, "a figure has a 'published' value, or is a 'sign: true'");
    wrong(out.published && !has_band, "a published value needs its 'band'");
    wrong(out.sign && has_band, "a sign has no 'band'");
    wrong(out.sign && !out.over_baseline(), "a sign needs a baseline: 'over' or 'over_set'");
    wrong(out.share && !out.over_baseline(), "a 'share' needs a baseline: 'over' or 'over_set'");
    wrong(out.increases() && !out.over_baseline(), "an increase 'from' a scenario is held against that of a baseline");
    wrong(!out.from_set.empty() && !out.increases(), "'from_set' is of the scenario 'from'");
    wrong(out.share && out.published.value_or(1) > 1, "what is published above 1 is a gain, and no 'share'");
    wrong(out.over_baseline() && !out.share && out.published == 1, "a gain of 1 is none: equal times are a 'share'");
    wrong(out.half && (!out.over_baseline() || out.share), "band 'half' is of a gain over a baseline");
    wrong(out.headline && (out.sign || out.input), "the headline is neither a sign nor an input");
    wrong(out.metric.empty(), "a figure needs its 'metric': of a run, or 'capacity' or 'price'");
    wrong((out.metric == "price") != (out.line > 0 && out.work > 0),
          "a price has the 'line' of its table and its 'work'");
    wrong(!out.readings.empty() && (out.over_baseline() || !out.set.empty()),
          "readings stand for 'set', without baseline");
    const bool capacity = out.percentile != 0 || out.attainment != 0.9 || out.per_gpu || !out.limits.empty();
    wrong(capacity && out.metric != "capacity", "only a capacity has percentile, attainment, per_gpu and limits");
    const bool said = out.status.rfind("short: ", 0) == 0;
    wrong(!out.status.empty() && !said, "a status starts with 'short: ' and says why");
    wrong(!out.inside() && !said, "it is outside of its band: say 'status: \"short: ...\"' and why");
    wrong(out.inside() && said, "it is said to be short and lies within its band");
}

PaperFigure read_figure(const YamlNode& node, const std::string& folder, std::vector<Diagnostic>& errors) {
    Keys keys(node, errors);
    PaperFigure out;
    out.mark = node.mark;
    const auto file = [&](const char* key, std::string& name) {
        name = keys.text(key);
        if (!name.empty() && !fs::is_regular_file(fs::path(folder) / name)) {
            keys.error(node.find(key)->mark, fmt::format("'{}' is not in this folder", name));
            name.clear();
        }
    };
    file("scenario", out.scenario);
    if (node.find("scenario") == nullptr) {
        keys.error(node.mark, "a figure needs its 'scenario'");
    }
    file("over", out.over);
    out.set = keys.texts("set");
    out.over_set = keys.texts("over_set");
    file("from", out.from);
    out.from_set = keys.texts("from_set");
    out.metric = keys.text("metric");
    out.seeds = static_cast<std::int64_t>(keys.number("seeds", 0));
    out.percentile = keys.number("percentile", 0);
    out.attainment = keys.number("attainment", 0.9);
    out.per_gpu = keys.flag("per_gpu");
    for (const YamlNode& item : keys.items("limits")) {
        Keys limit(item, errors);
        out.limits.push_back({limit.number("percentile", 0), limit.texts("set")});
        limit.end();
    }
    out.line = static_cast<std::int64_t>(keys.number("line", 0));
    out.work = keys.number("work", 0);
    for (const YamlNode& item : keys.items("readings")) {
        out.readings.push_back(keys.texts_of(item));
    }
    out.published = keys.number("published");
    const YamlNode* band = keys.find("band");
    out.half = band != nullptr && band->scalar == "half";
    out.band = band != nullptr && !out.half ? keys.number_of(*band).value_or(0) : 0;
    out.share = keys.flag("share");
    out.sign = keys.flag("sign");
    out.input = keys.flag("input");
    out.headline = keys.flag("headline");
    out.status = keys.text("status");
    out.replay =
        !out.scenario.empty() && out.metric != "price" && is_replay((fs::path(folder) / out.scenario).string());
    const std::size_t before = errors.size();
    read_predicted(keys, out);
    keys.end();
    if (errors.size() == before) {
        check_rules(keys, out, band != nullptr);
    }
    return out;
}

}  // namespace

bool PaperFigure::inside(double least, double greatest) const {
    if (sign) {
        return least > 1;
    }
    const double value = published.value_or(0);
    if (!readings.empty()) {
        return value >= least * (1 - band) && value <= greatest * (1 + band);
    }
    const bool gain = over_baseline() && !share;
    const double of = gain ? (least - 1) / (value - 1) : least / value;
    return half ? of >= 0.5 : std::abs(of - 1) <= band + 1e-12;
}

const char* grade_name(PaperGrade grade) {
    constexpr std::array kNames = {"native, in band", "native, short", "partial", "demonstration"};
    return kNames.at(static_cast<std::size_t>(grade));
}

const PaperFigure* Paper::headline() const {
    const auto found =
        std::find_if(figures.begin(), figures.end(), [](const PaperFigure& one) { return one.headline; });
    return found == figures.end() ? nullptr : &*found;
}

PaperGrade Paper::grade() const {
    const PaperFigure* first = headline();
    const bool replays = std::all_of(figures.begin(), figures.end(), [](const PaperFigure& one) { return one.replay; });
    if (replays || (first != nullptr && first->replay)) {
        return PaperGrade::demonstration;
    }
    if (first == nullptr) {
        return PaperGrade::partial;
    }
    const bool all = std::all_of(figures.begin(), figures.end(),
                                 [](const PaperFigure& one) { return !one.counted() || one.inside(); });
    return all ? PaperGrade::in_band : PaperGrade::is_short;
}

Paper read_paper(const std::string& folder) {
    const std::string file = folder + "/expected.yaml";
    const YamlNode root = load_yaml(file);
    std::vector<Diagnostic> errors;
    Keys keys(root, errors);
    Paper out;
    out.name = fs::path(folder).filename().string();
    out.folder = folder;
    out.claim = keys.text("claim");
    out.baseline = keys.text("baseline");
    out.partial = keys.text("partial");
    for (const YamlNode& item : keys.items("figures")) {
        out.figures.push_back(read_figure(item, folder, errors));
    }
    const auto headlines =
        std::count_if(out.figures.begin(), out.figures.end(), [](const PaperFigure& one) { return one.headline; });
    if (out.claim.empty()) {
        keys.error(root.mark, "the 'claim' of the publication is needed");
    }
    if (out.figures.empty()) {
        keys.error(root.mark, "there are no 'figures'");
    }
    if (headlines > 1 || (headlines == 0) == out.partial.empty()) {
        keys.error(root.mark, "one figure is the 'headline', or 'partial' says why none is");
    }
    if (out.baseline.empty() && std::any_of(out.figures.begin(), out.figures.end(), [](const PaperFigure& one) {
            return one.published && one.over_baseline();
        })) {
        keys.error(root.mark, "say in 'baseline' what gains are over: engine, version, limits");
    }
    keys.end();
    throw_if_any(errors);
    return out;
}

std::vector<Paper> read_papers(const DataDirectory& data) {
    std::set<std::string> folders;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(data.path("scenarios/papers"), ignored)) {
        if (entry.is_directory()) {
            folders.insert(entry.path().string());
        }
    }
    std::vector<Paper> out;
    std::vector<Diagnostic> errors;
    for (const std::string& folder : folders) {
        try {
            out.push_back(read_paper(folder));
        } catch (const ConfigError& error) {
            errors.insert(errors.end(), error.diagnostics().begin(), error.diagnostics().end());
        }
    }
    throw_if_any(errors);
    return out;
}

}  // namespace orrery::reference
