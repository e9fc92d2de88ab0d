#include "validation/training/points.hpp"

#include "tools/driver/kinds/interval.hpp"
#include "tools/driver/kinds/training.hpp"
#include "tools/driver/run.hpp"

#include "sim/config/units.hpp"
#include "workloads/training/memory/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

namespace orrery::validation {

namespace {

// Every combination of the values a source leaves open, as scenario trees.
std::vector<YamlNode> expand(const YamlNode& scenario, const YamlNode* unknown) {
    std::vector<YamlNode> out = {scenario};
    if (unknown == nullptr) {
        return out;
    }
    for (const YamlNode::Entry& entry : unknown->entries) {
        std::vector<YamlNode> next;
        for (const YamlNode& base : out) {
            for (const YamlNode& value : entry.value.items) {
                YamlNode copy = base;
                apply_override(copy, entry.key + "=" + value.scalar);
                next.push_back(std::move(copy));
            }
        }
        out = std::move(next);
    }
    return out;
}

/// Reads the points of one file and collects what is wrong.
class PointReader {
  public:
    PointReader(const DataDirectory& data, const std::string& file) : data_(data), file_(file) {}

    void read(std::vector<TrainingPoint>& points) {
        const YamlNode root = load_yaml(file_);
        const YamlNode* list = root.find("points");
        if (list == nullptr || list->kind != YamlNode::Kind::sequence || list->items.empty()) {
            throw ConfigError(
                {(list == nullptr ? root : *list).mark.error("'points' must be a list of measured runs")});
        }
        const YamlNode* subset = root.find("subset");
        for (const YamlNode& node : list->items) {
            try {
                points.push_back(point(node));
                points.back().subset = subset == nullptr ? "given" : subset->scalar;
            } catch (const ConfigError& error) {
                problems_.insert(problems_.end(), error.diagnostics().begin(), error.diagnostics().end());
            }
        }
        throw_if_any(problems_);
    }

  private:
    const YamlNode& need(const YamlNode& node, const char* key, YamlNode::Kind kind) {
        const YamlNode* value = node.find(key);
        if (value == nullptr || value->kind != kind) {
            throw ConfigError({node.mark.error(fmt::format("'{}' is missing", key), ErrorCode::missing_key)});
        }
        return *value;
    }

    TrainingPoint point(const YamlNode& node) {
        TrainingPoint out;
        out.id = need(node, "id", YamlNode::Kind::scalar).scalar;
        if (!ids_.insert(out.id).second) {
            throw ConfigError({node.mark.error(fmt::format("two points are called '{}'", out.id))});
        }
        out.source = std::filesystem::path(file_).stem().string();
        const YamlNode& measured = need(node, "measured", YamlNode::Kind::scalar);
        std::string problem;
        if (!parse_quantity(measured.scalar, Dimension::time, out.measured, problem)) {
            throw ConfigError({measured.mark.error("measured: " + problem)});
        }
        if (out.measured <= 0) {
            throw ConfigError({measured.mark.error("measured: a run takes longer than nothing")});
        }
        for (const auto& [key, bytes] : {std::pair{"memory", &out.memory}, {"reserved", &out.reserved}}) {
            if (const YamlNode* value = node.find(key);
                value != nullptr && !parse_quantity(value->scalar, Dimension::bytes, *bytes, problem)) {
                throw ConfigError({value->mark.error(fmt::format("{}: {}", key, problem))});
            }
        }
        const YamlNode* unknown = node.find("unknown");
        for (const YamlNode& variant : expand(need(node, "scenario", YamlNode::Kind::map), unknown)) {
            out.variants.push_back(read_scenario(variant, out.id, data_));
            if (out.variants.back().find<TrainingKind>() == nullptr) {
                throw ConfigError({variant.mark.error("the scenario of a measured run is of kind training")});
            }
        }
        if (unknown == nullptr) {
            out.fitted_half = scored_++ % 2 == 0;
        }
        const Scenario& first = out.variants[0];
        out.hardware = first.cluster.node.gpu.name;
        out.family = fmt::format("{} {}x{} {} GPUs, batch {}", out.source, first.as<TrainingKind>().model.layers,
                                 first.as<TrainingKind>().model.hidden, first.as<TrainingKind>().plan.ranks(),
                                 first.as<TrainingKind>().plan.global_batch);
        return out;
    }

    const DataDirectory& data_;
    std::string file_;
    std::set<std::string> ids_;
    std::size_t scored_ = 0;
    std::vector<Diagnostic> problems_;
};

}  // namespace

std::vector<TrainingPoint> load_training_points(const DataDirectory& data, const std::string& file) {
    std::vector<std::string> files = {file};
    if (file.empty()) {
        files.clear();
        for (const char* folder : {"validation/training", "validation/training/recent"}) {
            for (const auto& entry : std::filesystem::directory_iterator(data.path(folder))) {
                if (entry.path().extension() == ".yaml") {
                    files.push_back(entry.path().string());
                }
            }
        }
        std::sort(files.begin(), files.end());
    }
    std::vector<TrainingPoint> points;
    for (const std::string& each : files) {
        PointReader(data, each).read(points);
    }
    return points;
}

void predict(TrainingPoint& point, ModelCache& models) {
    point.low = 0;
    RunOptions options;
    options.check_memory = !point.scored();
    for (const bool insist : {options.check_memory, false}) {
        options.check_memory = insist;
        for (const Scenario& variant : point.variants) {
            try {
                const RunOutput out = run_scenario(variant, models, options);
                const Metric& metric = *out.summary.find("iteration_time_s");
                const double seconds = metric.value;
                point.interval_low = metric.low.value_or(seconds);
                point.interval_high = metric.high.value_or(seconds);
                point.parts_spread =
                    parts_spread(variant, *out.training,
                                 models.device(variant.cluster.node.gpu, variant.as<TrainingKind>().compute));
                point.allocated =
                    out.training->memory_bytes - variant.as<TrainingKind>().software.reserved_memory.value;
                point.refused_by_memory = false;
                for (const MemoryUse& stage : out.training->memory) {
                    const double odds = odds_of_running_out(stage, variant.cluster.node.gpu.memory.value,
                                                            variant.as<TrainingKind>().software);
                    point.refused_by_memory = point.refused_by_memory || odds > kRefusedOdds;
                }
                point.low = point.low == 0 ? seconds : std::min(point.low, seconds);
                point.high = std::max(point.high, seconds);
            } catch (const InfeasibleError&) {
                // Not every combination of what a source leaves open fits.
            }
        }
        if (point.low > 0) {
            break;
        }
    }
}

}  // namespace orrery::validation
