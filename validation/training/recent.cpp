#include "validation/training/recent.hpp"

#include "sim/record/facts_table.hpp"
#include "validation/statistics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace orrery::validation {

namespace {

constexpr std::string_view kPrefix = "recent-";

std::string recent_kind(const TrainingPoint& point) {
    return point.subset.substr(kPrefix.size());
}

// A generation of devices, or the maker where one generation has few runs.
std::string generation_of(const TrainingPoint& point) {
    constexpr std::array<std::pair<const char*, const char*>, 7> kGenerations = {{{"MI3", "AMD"},
                                                                                  {"GB300", "GB300"},
                                                                                  {"GB200", "GB200"},
                                                                                  {"B300", "B300"},
                                                                                  {"B200", "B200"},
                                                                                  {"H100", "Hopper"},
                                                                                  {"H200", "Hopper"}}};
    for (const auto& [part, generation] : kGenerations) {
        if (point.hardware.find(part) != std::string::npos) {
            return generation;
        }
    }
    return point.hardware;
}

struct Group {
    std::vector<double> errors, held_back;
    std::size_t covered = 0;
};

using Key = std::function<std::string(const TrainingPoint&)>;

std::map<std::string, Group> groups_of(const std::vector<TrainingPoint>& points, const Key& key) {
    std::map<std::string, Group> out;
    for (const TrainingPoint& point : points) {
        if (!point.scored() || point.low <= 0) {
            continue;
        }
        Group& group = out[key(point)];
        group.errors.push_back(point.error());
        if (!point.fitted_half) {
            group.held_back.push_back(point.error());
        }
        group.covered += point.measured >= point.interval_low && point.measured <= point.interval_high ? 1 : 0;
    }
    return out;
}

void print(const Terminal& terminal, const std::string& title, const std::map<std::string, Group>& groups) {
    std::vector<std::vector<std::string>> rows;
    for (const auto& [name, group] : groups) {
        const ErrorStatistics s = statistics_of(group.errors);
        rows.push_back({name, std::to_string(s.count), fmt::format("{:.1f} %", s.mape),
                        fmt::format("{:+.1f} %", s.median_bias), fmt::format("{:.1f} %", s.worst),
                        fmt::format("{:.1f} %", statistics_of(group.held_back).mape),
                        fmt::format("{} of {}", group.covered, s.count)});
    }
    terminal.heading(title);
    terminal.table({"group", "points", "MAPE", "median bias", "worst", "held back: MAPE", "inside the 90 % interval"},
                   rows);
}

std::string model_of(const TrainingPoint& point) {
    const ModelSpec& model = point.variants[0].as<TrainingKind>().model;
    return model.experts.count > 0
               ? fmt::format("{} of {} experts, hidden {}", model.experts.topk, model.experts.count, model.hidden)
               : fmt::format("{} layers, hidden {}", model.layers, model.hidden);
}

std::string format_of(const TrainingPoint& point) {
    const PlanSpec& plan = point.variants[0].as<TrainingKind>().plan;
    const std::string& format = precision_names()[static_cast<std::size_t>(plan.precision)];
    return plan.precision != Precision::fp8          ? format
           : plan.fp8_scaling == Fp8Scaling::block   ? format + ", scales of blocks"
           : plan.fp8_scaling == Fp8Scaling::current ? format + ", current scales"
                                                     : format + ", delayed scales";
}

void print_left_out(const Terminal& terminal, const DataDirectory& data) {
    std::vector<std::vector<std::string>> rows;
    for (const record::FactsRow& row :
         record::read_facts_table(data.path("validation/training/recent/left-out.csv"), ';')) {
        rows.push_back({row.text("rows"), row.text("reason")});
    }
    terminal.heading("runs of 2025 and 2026 that are not scored");
    terminal.table({"runs", "reason"}, rows);
}

}  // namespace

bool is_recent(const TrainingPoint& point) {
    return point.subset.rfind(kPrefix, 0) == 0;
}

std::vector<Score> score_recent(const std::vector<TrainingPoint>& points, const DataDirectory& data,
                                const Terminal& terminal) {
    constexpr const char* kAll = "all";
    const auto by_kind = groups_of(points, recent_kind);
    const auto all = groups_of(points, [&](const TrainingPoint&) { return std::string(kAll); });
    print(terminal, "runs of 2025 and 2026, by source",
          groups_of(points, [](const TrainingPoint& p) { return p.source; }));
    print(terminal, "runs of 2025 and 2026, by kind and hardware",
          groups_of(points, [](const TrainingPoint& p) { return recent_kind(p) + ", " + generation_of(p); }));
    print(terminal, "runs of 2025 and 2026, by kind and format",
          groups_of(points, [](const TrainingPoint& p) { return recent_kind(p) + ", " + format_of(p); }));
    print(terminal, "runs of 2025 and 2026, by kind and model",
          groups_of(points, [](const TrainingPoint& p) { return recent_kind(p) + ", " + model_of(p); }));
    print_left_out(terminal, data);
    print(terminal, "runs of 2025 and 2026, by kind", by_kind);
    print(terminal, "runs of 2025 and 2026", all);
    const auto lost = std::count_if(points.begin(), points.end(), [](const TrainingPoint& p) { return p.low <= 0; });
    terminal.table({}, {{"runs of these that cannot be predicted", std::to_string(lost)}});
    std::vector<Score> out;
    for (const auto& [name, group] : all) {
        const ErrorStatistics s = statistics_of(group.errors);
        out.push_back({"recent_points", static_cast<double>(s.count), ""});
        out.push_back({"recent_error_over_points", s.mape, "%"});
        out.push_back({"recent_error_held_back", statistics_of(group.held_back).mape, "%"});
        out.push_back(
            {"recent_coverage", 100.0 * static_cast<double>(group.covered) / static_cast<double>(s.count), "%"});
    }
    for (const auto& [name, group] : by_kind) {
        out.push_back({fmt::format("recent_{}_error", name), statistics_of(group.errors).mape, "%"});
    }
    return out;
}

}  // namespace orrery::validation
