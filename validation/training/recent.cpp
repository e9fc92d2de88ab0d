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
#include <utility>
#include <vector>

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

// The parts of an id that name a dispatch library.
bool names_library(std::string_view part) {
    constexpr std::array<std::string_view, 8> kNames = {"nccl", "uccl", "nvshmem", "v1",
                                                        "gin",  "a2a",  "deepep",  "hybridep"};
    return std::find(kNames.begin(), kNames.end(), part) != kNames.end();
}

// An id without them; equal ones differ in nothing but the library and, in a few notes, in graphs. Empty: it names none.
std::string without_library(const std::string& id) {
    std::string out;
    bool named = false;
    for (std::size_t at = 0; at < id.size();) {
        const std::size_t end = std::min(id.find('-', at), id.size());
        const std::string part = id.substr(at, end - at);
        const bool library = names_library(part);
        named = named || library;
        out += library ? "" : part + "-";
        at = end + 1;
    }
    return named ? out : "";
}

// Of runs that differ in the dispatch library alone, pairs whose times differ by more than 5 %: how many come out in order.
std::pair<std::size_t, std::size_t> libraries_in_order(const std::vector<TrainingPoint>& points,
                                                       const Terminal& terminal) {
    constexpr double kApart = 1.05;
    std::map<std::string, std::vector<const TrainingPoint*>> families;
    for (const TrainingPoint& point : points) {
        const std::string family = without_library(point.id);
        if (point.scored() && point.low > 0 && !family.empty()) {
            families[fmt::format("{}{}", family, static_cast<int>(point.software().graphs))].push_back(&point);
        }
    }
    std::size_t right = 0;
    std::size_t pairs = 0;
    std::vector<std::vector<std::string>> wrong;
    for (const auto& [family, runs] : families) {
        for (std::size_t i = 0; i < runs.size(); ++i) {
            for (std::size_t j = 0; j < runs.size(); ++j) {
                if (runs[j]->measured <= kApart * runs[i]->measured) {
                    continue;
                }
                ++pairs;
                if (runs[j]->low > runs[i]->low) {
                    ++right;
                } else {
                    wrong.push_back({runs[i]->id, runs[j]->id,
                                     fmt::format("{:.2f}", runs[j]->measured / runs[i]->measured),
                                     fmt::format("{:.2f}", runs[j]->low / runs[i]->low)});
                }
            }
        }
    }
    terminal.heading("ranking of dispatch libraries, pairs out of order");
    terminal.table({"faster run", "slower run", "measured ratio", "predicted ratio"}, wrong);
    terminal.table(
        {}, {{"pairs of libraries that differ by more than 5 %, in order", fmt::format("{} of {}", right, pairs)}});
    return {right, pairs};
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
    if (const auto [right, pairs] = libraries_in_order(points, terminal); pairs > 0) {
        out.push_back(
            {"recent_libraries_in_order", 100.0 * static_cast<double>(right) / static_cast<double>(pairs), "%"});
    }
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
