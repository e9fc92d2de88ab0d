// `orrery recommend`: the cheapest arrangement for a load.

#include "sim/base/input_file.hpp"
#include "sim/config/units.hpp"
#include "sim/config/yaml_tree.hpp"
#include "tools/driver/price_classes.hpp"
#include "tools/plan/deployment.hpp"
#include "tools/plan/recommend.hpp"
#include "tools/program/best_scenario.hpp"
#include "tools/program/outputs.hpp"
#include "tools/program/search_reports.hpp"
#include "tools/report/page.hpp"
#include "tools/sweep/worker_pool.hpp"
#include "tools/terminal/terminal.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

namespace orrery::program {

namespace {

using Json = nlohmann::ordered_json;

Json rounded(double value) {
    return std::isfinite(value) ? Json(std::stod(fmt::format("{:.12g}", value))) : Json(nullptr);
}

// Of output tokens.
double usd_per_million(const Recommendation& one) {
    return one.output_tokens > 0 ? one.usd_per_hour / 3600 / one.output_tokens * 1e6 : 0;
}

Json all_rounded(const std::vector<double>& values) {
    Json out = Json::array();
    for (const double value : values) {
        out.push_back(rounded(value));
    }
    return out;
}

// What a command line says wrongly is told all at once.
class Options {
  public:
    Options(const CommandLine& line, const DataDirectory& data) : line_(line), data_(data) {}

    RecommendOptions read() {
        for (const std::string& text : line_.list("slo")) {
            out_.limits.push_back(read_limit(text, errors_));
        }
        for (const std::string& name : line_.list("gpus")) {
            out_.devices.push_back(device_choice(name, data_, errors_));
        }
        read_prices();
        for (const std::string& name : line_.list("weights")) {
            const auto& names = precision_names();
            const auto at = std::find(names.begin(), names.end(), name);
            if (at == names.end()) {
                unknown("weights", name, names);
            } else {
                out_.weights.push_back(static_cast<Precision>(at - names.begin()));
            }
        }
        out_.engines = names_of_table("engines", data_.names(PresetKind{"engine", "workloads/data/engines"}));
        out_.routers = names_of_table("routers", names_of(router_table()));
        if (const std::string pools = line_.text("pools"); !pools.empty()) {
            const std::vector<std::string> given = line_.list("pools");
            for (const std::string& name : given) {
                if (name != "mixed" && name != "split") {
                    unknown("pools", name, {"mixed", "split"});
                }
            }
            out_.mixed = std::find(given.begin(), given.end(), "mixed") != given.end();
            out_.split = std::find(given.begin(), given.end(), "split") != given.end();
        }
        collect([&] { out_.most_gpus = static_cast<std::int64_t>(line_.whole("max-gpus", 256, 1, 65536)); });
        collect([&] { out_.spare = static_cast<std::int64_t>(line_.whole("spare", 0, 0, 64)); });
        collect([&] { out_.judged = line_.whole("judged", 12, 1, 10'000); });
        collect([&] { out_.workers = static_cast<unsigned>(line_.whole("jobs", available_cores(), 1, 1024)); });
        number("budget", out_.budget, 1e-6, 1e9, "USD an hour");
        number("attainment", out_.attainment, 0.01, 1, "the share of requests that must be in time");
        if (line_.has("attainment") && line_.has("slo")) {
            bad("--attainment is of the scenario's 'slo', which --slo replaces: give one");
        }
        out_.whole_nodes = line_.has("whole-nodes");
        out_.exhaustive = line_.has("exhaustive");
        if (out_.exhaustive && line_.has("judged")) {
            bad("--judged has no effect with --exhaustive, which judges all");
        }
        throw_if_any(errors_);
        return out_;
    }

  private:
    void bad(const std::string& text) { errors_.push_back({"", 0, 0, text, ErrorCode::command_line}); }

    void unknown(const char* option, const std::string& name, const std::vector<std::string>& known) {
        const std::string near = nearest_name(name, known);
        errors_.push_back({"", 0, 0,
                           fmt::format("--{}: unknown name '{}'{}", option, name,
                                       near.empty() ? fmt::format("; it is one of {}", fmt::join(known, ", "))
                                                    : fmt::format("; did you mean '{}'?", near)),
                           ErrorCode::unknown_name});
    }

    std::vector<std::string> names_of_table(const char* option, const std::vector<std::string>& known) {
        std::vector<std::string> out = line_.list(option);
        for (const std::string& name : out) {
            if (std::find(known.begin(), known.end(), name) == known.end()) {
                unknown(option, name, known);
            }
        }
        return out;
    }

    template <class Read>
    void collect(const Read& read) {
        try {
            read();
        } catch (const ConfigError& error) {
            errors_.insert(errors_.end(), error.diagnostics().begin(), error.diagnostics().end());
        }
    }

    void number(const char* name, double& value, double least, double most, const char* what) {
        if (line_.has(name) && (!parse_number(line_.text(name), value) || !(value >= least && value <= most))) {
            bad(fmt::format("--{} is {}, from {:g} to {:g}, not '{}'", name, what, least, most, line_.text(name)));
        }
    }

    void read_prices() {
        for (const std::string& text : line_.list("price")) {
            const std::size_t equals = text.find('=');
            const std::string name = text.substr(0, equals);
            double usd = 0;
            if (equals == std::string::npos || !parse_number(text.substr(equals + 1), usd) || !(usd > 0 && usd < 1e6)) {
                bad(fmt::format("--price {}: expected NAME=USD of a GPU hour, such as h100-sxm=2.2", text));
                continue;
            }
            bool used = false;
            std::vector<std::string> names;
            for (DeviceChoice& device : out_.devices) {
                names.push_back(device.name);
                device.price = device.name == name ? usd : device.price;
                used = used || device.name == name;
            }
            if (!used) {
                bad(names.empty()
                        ? fmt::format("--price {}: --gpus names no device", text)
                        : fmt::format("--price {}: '{}' is none of --gpus ({})", text, name, fmt::join(names, ", ")));
            }
        }
        if (line_.has("pricing")) {
            out_.pricing = line_.text("pricing");
            const auto& known = driver::price_classes();
            if (std::find(known.begin(), known.end(), out_.pricing) == known.end()) {
                unknown("pricing", out_.pricing, known);
            }
        }
    }

    const CommandLine& line_;
    const DataDirectory& data_;
    std::vector<Diagnostic> errors_;
    RecommendOptions out_;
};

std::string replicas_text(const Arrangement& one, ReplicaCounts counts) {
    return one.split ? fmt::format("{} + {}", counts.first, counts.second) : std::to_string(counts.first);
}

std::string rule(const RecommendOptions& options) {
    if (options.limits.empty()) {
        return fmt::format("{:g} % of the requests meet the scenario's 'slo'", 100 * options.attainment);
    }
    std::vector<std::string> texts;
    for (const LatencyLimit& limit : options.limits) {
        texts.push_back(limit_text(limit));
    }
    return fmt::format("{}", fmt::join(texts, ", "));
}

std::string recommendation_json(const RecommendSearch& search, const RecommendOptions& options,
                                const Scenario& scenario) {
    Json out = {{"schema", "orrery-recommendation-1"},
                {"scenario", scenario.name},
                {"limits", Json::array()},
                {"spare", options.spare},
                {"listed", search.list.listed},
                {"do_not_divide", search.list.do_not_divide},
                {"do_not_fit", search.list.do_not_fit},
                {"too_slow", search.list.too_slow},
                {"refused", search.list.refused},
                {"miss_limits", search.miss_limits},
                {"dearer", search.dearer},
                {"runs", search.runs},
                {"arrangements", Json::array()}};
    for (const LatencyLimit& limit : options.limits) {
        out["limits"].push_back(
            {{"metric", limit.metric}, {"percentile", limit.percentile}, {"seconds", rounded(limit.seconds)}});
    }
    for (const Recommendation& one : search.ranked) {
        const Arrangement& arrangement = search.list.open[one.arrangement];
        Json row = {
            {"device", arrangement.device},
            {"set", assignments_of(arrangement, one.replicas)},
            {"arrangement", arrangement.words},
            {"replicas", arrangement.split ? Json{one.replicas.first, one.replicas.second} : Json{one.replicas.first}},
            {"gpus", one.gpus},
            {"cost_usd_per_hour", rounded(one.usd_per_hour)},
            {"cost_per_million_tokens_usd", rounded(usd_per_million(one))},
            {"output_tokens_per_s", rounded(one.output_tokens)},
            {"tokens_per_s_per_gpu", rounded(one.tokens_per_gpu)},
            {"tokens_per_s_per_user", rounded(one.tokens_per_user)},
            {"ttft_p95_s", rounded(one.ttft)},
            {"tpot_p95_s", rounded(one.tpot)},
            {"values", all_rounded(one.values)},
            {"one_replica_fewer", one.fewer},
            {"pareto", one.pareto}};
        if (!one.lost.empty()) {
            row["values_with_losses"] = all_rounded(one.lost);
        }
        out["arrangements"].push_back(row);
    }
    return out.dump(1) + "\n";
}

std::vector<std::string> row_of(const RecommendSearch& search, const Recommendation& one, std::size_t rank) {
    const Arrangement& arrangement = search.list.open[one.arrangement];
    return {std::to_string(rank),
            fmt::format("{:.2f}", one.usd_per_hour),
            fmt::format("{:.3g}", usd_per_million(one)),
            std::to_string(one.gpus),
            replicas_text(arrangement, one.replicas),
            arrangement.words,
            fmt::format("{:.0f}", one.output_tokens),
            report::seconds_text(one.ttft),
            report::seconds_text(one.tpot),
            fmt::format("{:.0f}", one.tokens_per_gpu),
            fmt::format("{:.0f}", one.tokens_per_user),
            one.pareto ? "yes" : "",
            one.fewer};
}

// Why not fewer GPUs, or narrower weights, than the cheapest.
void say_why(const RecommendSearch& search, const RecommendOptions& options) {
    const Recommendation& best = search.ranked.front();
    const auto text = [&](const Recommendation& one, ReplicaCounts counts) {
        const Arrangement& arrangement = search.list.open[one.arrangement];
        return fmt::format("{} of {}", replicas_text(arrangement, counts), arrangement.words);
    };
    say("\nWhy not one replica fewer{}: {}\n", options.spare > 0 ? fmt::format(", with {} lost", options.spare) : "",
        best.fewer);
    // What was tried just below another arrangement, and has fewer GPUs than the best.
    const Recommendation* nearest = nullptr;
    std::int64_t most = 0;
    for (const Recommendation& one : search.ranked) {
        const Arrangement& arrangement = search.list.open[one.arrangement];
        const std::int64_t gpus = gpus_of(arrangement, {one.replicas.first - 1, 0});
        if (!arrangement.split && one.replicas.first > 1 && gpus < best.gpus && gpus > most) {
            nearest = &one;
            most = gpus;
        }
    }
    if (nearest != nullptr) {
        say("The nearest with fewer than {} GPUs, {}: {}\n", best.gpus,
            text(*nearest, {nearest->replicas.first - 1, 0}), nearest->fewer);
    }
    const auto smallest =
        std::min_element(search.ranked.begin(), search.ranked.end(),
                         [](const Recommendation& a, const Recommendation& b) { return a.gpus < b.gpus; });
    if (smallest->gpus < best.gpus) {
        say("{} GPUs are enough for {:.2f} USD an hour: {}\n", smallest->gpus, smallest->usd_per_hour,
            text(*smallest, smallest->replicas));
    }
    const auto set = assignments_of(search.list.open[best.arrangement], best.replicas);
    if (std::any_of(set.begin(), set.end(),
                    [](const std::string& one) { return one.rfind("engine.weights=", 0) == 0; })) {
        say("note: weights of another precision than the scenario's change what the model answers; --weights names "
            "those "
            "that may be used\n");
    }
}

// Names what a preset or checkpoint is called in a scenario; empty for a description in place.
std::string named(const YamlNode* node) {
    const YamlNode* name = node != nullptr && node->kind == YamlNode::Kind::map ? node->find("preset") : node;
    return name != nullptr && name->kind == YamlNode::Kind::scalar ? name->scalar : "";
}

// The files of a deployment, and what a search would find too late: a folder that cannot be, or files of somebody else.
class DeploymentFolder {
  public:
    DeploymentFolder(const CommandLine& line, const YamlNode& root) : line_(line), model_(named(root.find("model"))) {
        const YamlNode* cluster = root.find("cluster");
        node_ = named(cluster == nullptr ? nullptr : cluster->find("node"));
        if (!line.has("deploy")) {
            return;
        }
        if (model_.empty()) {
            throw ConfigError("--deploy needs a model with a name, which engines download it by",
                              ErrorCode::command_line);
        }
        std::error_code unknown;
        if (std::filesystem::exists(line.text("deploy"), unknown) &&
            !std::filesystem::is_directory(line.text("deploy"), unknown)) {
            throw ConfigError(fmt::format("--deploy {}: is no folder", line.text("deploy")),
                              ErrorCode::unwritable_file);
        }
        std::vector<Diagnostic> errors;
        for (const std::string& name : deployment_names()) {
            std::ifstream file(path(name));
            std::string first;
            if (!line.has("force") && std::getline(file, first) && first != deployment_mark(name)) {
                errors.push_back({path(name), 0, 0,
                                  "exists, and is not an earlier output of this kind (--deploy): name another folder "
                                  "(--force overwrites it)",
                                  ErrorCode::unwritable_file});
            }
        }
        throw_if_any(errors);
    }

    void write(const Arrangement& arrangement, ReplicaCounts replicas, const DataDirectory& data) const {
        std::string node = node_;
        for (const std::string& assignment : arrangement.assignments) {
            constexpr std::string_view kNode = "cluster.node=";
            node = assignment.rfind(kNode, 0) == 0 ? assignment.substr(kNode.size()) : node;
        }
        std::filesystem::create_directories(line_.text("deploy"));
        const bool quiet = line_.quiet() || line_.text("json") == "-" || line_.text("output") == "-";
        for (const DeploymentFile& file :
             deployment_files(plan::scenario_of(arrangement, replicas), model_, node, data)) {
            write_output(line_, "--deploy", path(file.name), file.text);
            if (!quiet && !file.left_out.empty()) {
                say("{} leaves out {}\n", path(file.name), fmt::join(file.left_out, "; "));
            }
        }
    }

  private:
    [[nodiscard]] std::string path(const std::string& name) const {
        return (std::filesystem::path(line_.text("deploy")) / name).string();
    }

    const CommandLine& line_;
    std::string model_, node_;
};

}  // namespace

int command_recommend(const CommandLine& line, const DataDirectory& data) {
    const Terminal terminal = line.terminal();
    RecommendOptions options = Options(line, data).read();
    const std::size_t shown = line.whole("top", 10, 1, 100'000);
    const std::string& file = line.arguments[0];
    YamlNode root = file == "-" ? parse_yaml(read_standard_input(), "standard input") : load_yaml(file);
    for (const std::string& own : line.overrides()) {
        apply_override(root, own);
    }
    const Scenario scenario = load_scenario(line.arguments[0], line.overrides(), data);
    check_best_scenario(line, files_of(scenario));
    check_outputs(line, files_of(scenario));
    const DeploymentFolder folder(line, root);
    Progress progress(terminal, "searching the cheapest arrangement");
    options.found = [&](const std::string& text) { progress.note(text); };
    const RecommendSearch search = recommend(root, scenario, data, options);
    progress.finish();
    if (line.has("json")) {
        write_output(line, "json", recommendation_json(search, options, scenario));
    }
    if (line.has("report")) {
        write_output(line, "report", recommend_report(search, scenario, rule(options)));
    }
    const Recommendation& best = search.ranked.front();
    const Arrangement& arrangement = search.list.open[best.arrangement];
    if (line.has("output")) {
        write_best_scenario(line, data, search.list.without, assignments_of(arrangement, best.replicas),
                            fmt::format("{} with the cheapest of {} arrangements: {} GPUs at {:.4g} USD an hour.",
                                        line.arguments[0], search.list.listed, best.gpus, best.usd_per_hour));
    }
    if (line.has("deploy")) {
        folder.write(arrangement, best.replicas, data);
    }
    if (line.quiet() || line.text("json") == "-" || line.text("output") == "-") {
        return 0;
    }
    const ArrangementList& list = search.list;
    say("{} arrangements: {} do not divide, {} do not fit into memory, {} are too slow to read their weights, {} miss "
        "the "
        "limits, {} look dearer; {} are judged on the whole load, in {} runs\n",
        list.listed, list.do_not_divide + list.refused, list.do_not_fit, list.too_slow, search.miss_limits,
        search.dearer, search.ranked.size(), search.runs);
    const std::vector<std::string> header = {
        "rank",     "USD/h",    "USD / 10^6 tokens", "GPUs",          "replicas", "arrangement",   "tokens/s",
        "ttft p95", "tpot p95", "tokens/s/GPU",      "tokens/s/user", "Pareto",   "with one fewer"};
    const std::vector<ColumnFit> fit = {{}, {}, {5}, {}, {}, {0, true}, {5}, {3}, {3}, {4}, {4}, {2}, {1, true}};
    std::vector<std::vector<std::string>> rows;
    std::vector<std::vector<std::string>> front;
    for (std::size_t i = 0; i < search.ranked.size(); ++i) {
        if (i < shown) {
            rows.push_back(row_of(search, search.ranked[i], i + 1));
        } else if (search.ranked[i].pareto) {
            front.push_back(row_of(search, search.ranked[i], i + 1));
        }
    }
    terminal.heading(fmt::format("cheapest arrangements: {}{}", rule(options),
                                 options.spare > 0 ? fmt::format(", with {} lost", options.spare) : ""));
    terminal.fitted_table(header, rows, fit, line.has("all"));
    if (!front.empty()) {
        terminal.heading("more of the Pareto front: cost, tokens/s/GPU, tokens/s/user");
        terminal.fitted_table(header, front, fit, line.has("all"));
    }
    say_why(search, options);
    if (line.has("output")) {
        say("\nTo run it: orrery run {}\n", line.text("output"));
    } else {
        say("\nTo keep it: give -o best.yaml\n");
    }
    return 0;
}

}  // namespace orrery::program
