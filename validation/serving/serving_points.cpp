#include "validation/serving/serving_points.hpp"

#include "sim/base/text.hpp"
#include "sim/record/facts_table.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "tools/driver/run.hpp"
#include "validation/serving/in_threads.hpp"

#include <fmt/format.h>

#include <cmath>
#include <map>

namespace orrery::validation {

namespace {

constexpr int kRequestsAClient = 10;

std::string before(const std::string& text, char mark) {
    return text.substr(0, text.find(mark));
}

class Loader {
  public:
    explicit Loader(const DataDirectory& data) : data_(data) {}

    ServingPoint begin(const FactsRow& row, const std::vector<std::string>& changes) {
        const std::string setup = row.text("setup");
        const std::string file = data_.path("validation/serving/setups/" + setup + ".yaml");
        const auto [found, fresh] = trees_.try_emplace(setup);
        if (fresh) {
            found->second = load_yaml(file);
        }
        YamlNode tree = found->second;
        for (const std::string& change : changes) {
            apply_override(tree, change);
        }
        ServingPoint point;
        point.id = fmt::format("{}:{}", setup, row.line);
        point.source = before(setup, '-');
        point.scenario = read_scenario(tree, point.id, data_);
        point.scenario.directory = data_.path("validation/serving/setups");
        point.engine = point.scenario.as<ServingKind>().engine.software.name;
        point.device = point.scenario.cluster.node.gpu.name;
        point.model = point.scenario.as<ServingKind>().model.name;
        point.dense = point.scenario.as<ServingKind>().model.experts.count == 0;
        point.fitted_half = counts_[setup]++ % 2 == 0;
        return point;
    }

  private:
    const DataDirectory& data_;
    std::map<std::string, YamlNode> trees_;
    std::map<std::string, int> counts_;  ///< points so far of each setup
};

// Clients and lengths of a closed loop.
std::vector<std::string> load_of(const FactsRow& row) {
    const double ratio = row.number("ratio");
    std::vector<std::string> changes = {"requests.clients=" + row.text("clients"),
                                        fmt::format("requests.count={:.0f}", kRequestsAClient * row.number("clients"))};
    for (const char* length : {"prompt", "output"}) {
        changes.push_back(fmt::format("requests.{}.mean={}", length, row.number(length) * (1 + ratio) / 2));
        changes.push_back(fmt::format("requests.{}.spread={}", length, (1 - ratio) / (1 + ratio)));
    }
    return changes;
}

std::vector<std::string> changes_of(const FactsRow& row) {
    std::vector<std::string> changes = load_of(row);
    changes.push_back("engine.tensor=" + row.text("tensor"));
    for (const char* degree : {"groups", "expert"}) {
        if (row.text(degree) != "1") {
            changes.push_back(fmt::format("engine.{}={}", degree, row.text(degree)));
        }
    }
    for (const std::string_view change : split(row.text("set"), ';')) {
        if (!change.empty()) {
            changes.emplace_back(change);
        }
    }
    return changes;
}

// Replicas of their own for prompts and decoding. Limits stand in the table by attention group, in scenarios by replica.
std::vector<std::string> phase_changes_of(const FactsRow& row) {
    std::vector<std::string> changes = load_of(row);
    const auto limit = [&](const char* phase, const char* key, const char* column) {
        if (!row.text(column).empty()) {
            const double groups = row.number(fmt::format("{}_groups", phase));
            changes.push_back(fmt::format("engine.{}.scheduler.{}={:.0f}", phase, key, groups * row.number(column)));
        }
    };
    for (const char* phase : {"prefill", "decode"}) {
        for (const char* key : {"replicas", "tensor", "groups", "expert"}) {
            changes.push_back(
                fmt::format("engine.{0}.{1}={2}", phase, key, row.text(fmt::format("{}_{}", phase, key))));
        }
    }
    limit("prefill", "token_budget", "budget");
    limit("decode", "max_sequences", "sequences");
    if (!row.text("interval").empty()) {
        changes.push_back("engine.stream_interval=" + row.text("interval"));
    }
    return changes;
}

// The same with the number of nodes, and with drafts of the model's own layer, of whose tokens the table says how many are accepted.
std::vector<std::string> recipe_changes_of(const FactsRow& row) {
    std::vector<std::string> changes = phase_changes_of(row);
    changes.push_back("cluster.nodes=" + row.text("nodes"));
    for (const char* phase : {"prefill", "decode"}) {
        if (const std::string copies = row.text(fmt::format("{}_copies", phase)); !copies.empty()) {
            changes.push_back(fmt::format("engine.{}.redundant_experts={}", phase, copies));
        }
    }
    if (!row.text("drafts").empty()) {
        constexpr double kAccepted = 0.84;
        changes.push_back("engine.speculation.tokens=" + row.text("drafts"));
        changes.push_back(fmt::format("engine.speculation.acceptance={}", kAccepted));
        changes.emplace_back("engine.speculation.layers=1");
    }
    return changes;
}

constexpr double kMilli = 1e-3;

/// What a row changes in its setup.
using Changes = std::vector<std::string> (*)(const FactsRow&);

void add_closed_loops(const std::string& file, const DataDirectory& data, Loader& loader, Changes changes,
                      std::vector<ServingPoint>& points) {
    for (const FactsRow& row : read_facts_table(data.path(file))) {
        ServingPoint point = loader.begin(row, changes(row));
        point.ttft = kMilli * row.number("ttft_ms");
        point.tpot = kMilli * row.number("tpot_ms");
        point.e2e = point.ttft + point.tpot * (row.number("output") * (1 + row.number("ratio")) / 2 - 1);
        points.push_back(std::move(point));
    }
}

// Closed loops that no engine is fitted on.
std::vector<ServingPoint> loops_apart(const std::vector<std::string>& files, Changes changes,
                                      const DataDirectory& data) {
    std::vector<ServingPoint> points;
    Loader loader(data);
    for (const std::string& file : files) {
        add_closed_loops(fmt::format("validation/serving/{}.csv", file), data, loader, changes, points);
    }
    for (ServingPoint& point : points) {
        point.fitted_half = false;
    }
    return points;
}

}  // namespace

std::vector<ServingPoint> load_points_apart(const DataDirectory& data) {
    return loops_apart({"degrees", "latent", "borrowed", "linear"}, changes_of, data);
}

std::vector<ServingPoint> load_disaggregated_points(const DataDirectory& data) {
    return loops_apart({"disaggregated"}, phase_changes_of, data);
}

std::vector<ServingPoint> load_recipe_points(const DataDirectory& data) {
    return loops_apart({"recipes"}, recipe_changes_of, data);
}

std::vector<ServingPoint> load_serving_points(const DataDirectory& data) {
    std::vector<ServingPoint> points;
    Loader loader(data);
    add_closed_loops("validation/serving/closed_loop.csv", data, loader, changes_of, points);
    for (const FactsRow& row : read_facts_table(data.path("validation/serving/logs.csv"))) {
        ServingPoint point = loader.begin(
            row, {"engine.tensor=" + row.text("tensor"), "requests.trace=../requests/" + row.text("run") + ".csv"});
        point.id = row.text("run");
        point.per_token = row.text("tpot") == "token";
        point.fitted_half = point.fitted_half && point.per_token;
        for (const FactsRow& request :
             read_facts_table(data.path("validation/serving/requests/" + row.text("run") + ".csv"))) {
            point.output_tokens += request.number("output");
        }
        point.ttft = row.number("ttft_s");
        point.tpot = row.number("tpot_s");
        point.e2e = row.number("e2e_s");
        points.push_back(std::move(point));
    }
    for (const FactsRow& row : read_facts_table(data.path("validation/serving/batches.csv"))) {
        ServingPoint point = loader.begin(
            row, {"engine.tensor=" + row.text("tensor"), "requests.count=" + row.text("batch"),
                  "requests.prompt.mean=" + row.text("prompt"), "requests.output.mean=" + row.text("output")});
        point.tpot = kMilli * row.number("tpot_ms");
        if (!row.text("ttft_ms").empty()) {
            point.ttft = kMilli * row.number("ttft_ms");
            point.e2e = point.ttft + point.tpot * (row.number("output") - 1);
        }
        points.push_back(std::move(point));
    }
    return points;
}

std::vector<ServingPoint> load_offline_points(const DataDirectory& data) {
    std::vector<ServingPoint> points;
    Loader loader(data);
    for (const FactsRow& row : read_facts_table(data.path("validation/serving/offline.csv"))) {
        std::vector<std::string> changes = {
            "requests.count=" + row.text("requests"), "requests.prompt.mean=" + row.text("prompt"),
            "requests.output.mean=" + row.text("output"), "engine.scheduler.max_sequences=" + row.text("sequences"),
            "engine.scheduler.token_budget=" + row.text("tokens")};
        for (const char* degree : {"tensor", "pipeline", "groups", "expert"}) {
            if (row.text(degree) != "1") {
                changes.push_back(fmt::format("engine.{}={}", degree, row.text(degree)));
            }
        }
        ServingPoint point = loader.begin(row, changes);
        point.tokens_per_s = row.number("tokens_per_s");
        point.fitted_half = false;
        points.push_back(std::move(point));
    }
    return points;
}

void predict(ServingPoint& point, ModelCache& models) {
    point.problem.clear();
    try {
        const Summary summary = run_scenario(point.scenario, models, RunOptions()).summary;
        point.predicted_ttft = summary.find("ttft_s.mean")->value;
        point.predicted_tpot = summary.find("tpot_s.mean")->value;
        point.predicted_e2e = summary.find("e2e_s.mean")->value;
        point.predicted_tokens_per_s = summary.find("output_tokens_per_s")->value;
        const auto width = [&](const char* name) {
            const Metric* metric = summary.find(name);
            return metric->high ? std::log(*metric->high / metric->value) : 0;
        };
        point.ttft_width = width("ttft_s.mean");
        point.tpot_width = width("tpot_s.mean");
        point.e2e_width = width("e2e_s.mean");
        if (point.per_token && point.output_tokens > 0) {
            point.predicted_tpot =
                (point.predicted_e2e - point.predicted_ttft) * summary.find("requests")->value / point.output_tokens;
        }
        if (summary.find("requests_refused")->value > 0) {
            point.problem = "requests were refused";
        }
    } catch (const InfeasibleError& error) {
        point.problem = error.what();
    }
}

void predict_all(const std::vector<ServingPoint*>& points, const DataDirectory& data,
                 const std::function<void(double)>& progress) {
    in_threads(
        points.size(), data, [&](ModelCache& models, std::size_t i) { predict(*points[i], models); },
        [&](double share) {
            if (progress) {
                progress(share);
            }
        });
}

}  // namespace orrery::validation
