#include "validation/scatter.hpp"
#include "validation/statistics.hpp"
#include "validation/training/points.hpp"
#include "validation/training/recent.hpp"
#include "validation/validate.hpp"

#include "sim/base/math.hpp"
#include "tools/driver/kinds/interval.hpp"
#include "tools/driver/kinds/training.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <set>

namespace orrery::validation {

namespace {

std::string percent(double value) {
    return fmt::format("{:+.1f} %", value);
}

constexpr const char* kVocabulary = "vocabulary";

using Key = std::function<std::string(const TrainingPoint&)>;

void print_groups(const Terminal& terminal, const std::string& title,
                  const std::vector<std::vector<TrainingPoint>*>& sets, const Key& key) {
    std::map<std::string, std::vector<double>> groups;
    for (const std::vector<TrainingPoint>* set : sets) {
        for (const TrainingPoint& point : *set) {
            if (point.scored() && point.low > 0) {
                groups[key(point)].push_back(point.error());
            }
        }
    }
    terminal.heading(title);
    std::vector<std::vector<std::string>> rows;
    for (const auto& [name, errors] : groups) {
        const ErrorStatistics s = statistics_of(errors);
        rows.push_back({name, std::to_string(s.count), fmt::format("{:.1f} %", s.mape), percent(s.median_bias),
                        fmt::format("{:.1f} %", s.worst)});
    }
    terminal.table({"group", "points", "MAPE", "median bias", "worst"}, rows);
}

void print_groups(const Terminal& terminal, const std::string& title, std::vector<TrainingPoint>& points,
                  const Key& key) {
    print_groups(terminal, title, std::vector<std::vector<TrainingPoint>*>{&points}, key);
}

// What is special about a run, over all sets: the first of these that it is.
std::string kind_of(const TrainingPoint& point) {
    const Scenario& run = point.variants[0];
    if (point.hardware.rfind("AMD", 0) == 0) {
        return "AMD";
    }
    if (run.as<TrainingKind>().model.experts.count > 0) {
        return "experts";
    }
    if (run.as<TrainingKind>().model.hybrid()) {
        return "state space";
    }
    if (point.subset == kVocabulary) {
        return "vocabulary";
    }
    if (point.source == "zero-bubble") {
        return "zero bubble";
    }
    constexpr std::int64_t kLong = 16384;
    if (run.as<TrainingKind>().model.sequence >= kLong || run.as<TrainingKind>().plan.context > 1) {
        return "long context";
    }
    const bool narrow = run.as<TrainingKind>().plan.precision == Precision::fp8 ||
                        run.as<TrainingKind>().plan.precision == Precision::fp4;
    return narrow ? "dense, fp8 and fp4" : "dense, 16 bits";
}

// Nine of ten errors of points of the declared half, and of one more so that a point not seen keeps it too, without what less
// certain kernels than usual add.
double width_left(const std::vector<const TrainingPoint*>& points) {
    std::vector<double> errors;
    double parts = 0;
    for (const TrainingPoint* point : points) {
        errors.push_back(std::abs(log_pinned(point->measured / point->low)));
        parts += square_beyond(point->parts_spread) / static_cast<double>(points.size());
    }
    std::sort(errors.begin(), errors.end());
    const double rank = std::ceil(0.9 * static_cast<double>(errors.size() + 1));
    const double width = errors[std::min(errors.size(), static_cast<std::size_t>(rank)) - 1];
    return std::sqrt(std::max(0.0, width * width - parts));
}

double mean_parts(const std::vector<TrainingPoint>& points) {
    double sum = 0;
    double count = 0;
    for (const TrainingPoint& point : points) {
        if (point.scored() && point.fitted_half && point.low > 0) {
            sum += point.parts_spread;
            count += 1;
        }
    }
    return count > 0 ? sum / count : 0;
}

std::vector<Score> print_intervals(const Terminal& terminal, const std::vector<std::vector<TrainingPoint>*>& sets) {
    constexpr std::size_t kFewest = 10;
    struct Regime {
        std::vector<const TrainingPoint*> declared;
        double in_use = 0;
        std::size_t held_back = 0;
        std::size_t covered = 0;
    };
    constexpr const char* kPresets = "all presets";
    std::map<std::string, Regime> regimes;
    for (const std::vector<TrainingPoint>* set : sets) {
        for (const TrainingPoint& point : *set) {
            if (!point.scored() || point.low <= 0) {
                continue;
            }
            const TrainingRegime* own = regime_of(point.variants[0]);
            for (const std::string& key : {own != nullptr ? own->name : point.software().name,
                                           std::string(own != nullptr ? "all regimes" : kPresets)}) {
                Regime& regime = regimes[key];
                regime.in_use = std::max(regime.in_use, software_width(point.variants[0]));
                if (point.fitted_half) {
                    regime.declared.push_back(&point);
                    continue;
                }
                ++regime.held_back;
                regime.covered += point.measured >= point.interval_low && point.measured <= point.interval_high ? 1 : 0;
            }
        }
    }
    std::vector<std::vector<std::string>> rows;
    double lowest = 100;
    for (const auto& [name, regime] : regimes) {
        const bool enough = regime.declared.size() >= kFewest;
        rows.push_back({name, std::to_string(regime.declared.size()),
                        enough ? fmt::format("{:.3f}", width_left(regime.declared)) : "too few points",
                        fmt::format("{:.3f}", name == kPresets ? kSoftwareWidth : regime.in_use),
                        fmt::format("{} of {}", regime.covered, regime.held_back)});
        if (regime.held_back >= 2 * kFewest) {
            lowest =
                std::min(lowest, 100.0 * static_cast<double>(regime.covered) / static_cast<double>(regime.held_back));
        }
    }
    terminal.heading("90 % intervals: half-width that software or a regime leaves, from the declared half of all runs");
    terminal.table({"software or regime", "points", "left", "in use", "held back inside"}, rows);
    return {{"coverage_held_back_lowest", lowest, "%"}};
}

double mean_of_sources(const std::vector<TrainingPoint>& points,
                       const std::function<bool(const TrainingPoint&)>& wanted) {
    std::map<std::string, std::vector<double>> groups;
    for (const TrainingPoint& point : points) {
        if (point.scored() && wanted(point) && point.low > 0) {
            groups[point.source].push_back(point.error());
        }
    }
    double sum = 0;
    for (const auto& [name, errors] : groups) {
        sum += statistics_of(errors).mape;
    }
    return groups.empty() ? 0 : sum / static_cast<double>(groups.size());
}

// Mean error with equal weight for each set-up: a job of one source on one hardware and its GPUs, however many plans it was run with.
struct SetUps {
    std::size_t count = 0;
    double error = 0;  ///< %
};

SetUps mean_of_set_ups(const std::vector<TrainingPoint>& points) {
    std::map<std::array<std::string, 3>, std::vector<double>> groups;
    for (const TrainingPoint& point : points) {
        if (point.scored() && point.low > 0) {
            groups[{point.source, point.hardware, point.family}].push_back(point.error());
        }
    }
    SetUps out{groups.size(), 0};
    for (const auto& [set_up, errors] : groups) {
        out.error += statistics_of(errors).mape / static_cast<double>(groups.size());
    }
    return out;
}

/// Means over the families of plans.
struct Ranking {
    double tau = 0;
    double regret = 0;  ///< %, of the plan predicted best
};

Ranking print_ranking(const Terminal& terminal, const std::vector<TrainingPoint>& points) {
    std::map<std::string, std::vector<const TrainingPoint*>> families;
    for (const TrainingPoint& point : points) {
        if (point.scored() && point.low > 0) {
            families[point.family].push_back(&point);
        }
    }
    std::vector<std::vector<std::string>> rows;
    Ranking mean;
    for (const auto& [name, members] : families) {
        if (members.size() < 5) {
            continue;
        }
        std::vector<double> predicted;
        std::vector<double> measured;
        for (const TrainingPoint* point : members) {
            predicted.push_back(point->low);
            measured.push_back(point->measured);
        }
        const auto chosen =
            static_cast<std::size_t>(std::min_element(predicted.begin(), predicted.end()) - predicted.begin());
        const double best = *std::min_element(measured.begin(), measured.end());
        const double tau = kendall_tau(predicted, measured);
        const double regret = 100 * (measured[chosen] / best - 1);
        mean.tau += tau;
        mean.regret += regret;
        rows.push_back(
            {name, std::to_string(members.size()), fmt::format("{:.2f}", tau), fmt::format("{:.1f} %", regret)});
    }
    if (!rows.empty()) {
        mean.tau /= static_cast<double>(rows.size());
        mean.regret /= static_cast<double>(rows.size());
    }
    terminal.heading("ranking of plans (families of five plans or more)");
    terminal.table({"family", "plans", "Kendall tau", "regret of the predicted best"}, rows);
    return mean;
}

void print_points(const Terminal& terminal, const std::vector<TrainingPoint>& points) {
    std::vector<std::vector<std::string>> rows;
    for (const TrainingPoint& point : points) {
        if (point.low <= 0) {
            rows.push_back({point.id, fmt::format("{:.4g} s", point.measured), "cannot run", "", "not scored"});
            continue;
        }
        const std::string predicted =
            point.scored() ? fmt::format("{:.4g}", point.low) : fmt::format("{:.4g} to {:.4g}", point.low, point.high);
        const bool inside = point.measured >= point.low && point.measured <= point.high;
        const double nearest = point.measured > point.high ? point.high : point.low;
        rows.push_back({point.id, fmt::format("{:.4g} s", point.measured), predicted,
                        point.scored() ? percent(100 * point.error())
                        : inside       ? "inside"
                                       : percent(100 * (nearest / point.measured - 1)),
                        !point.scored()     ? "not scored"
                        : point.fitted_half ? "fitted half"
                                            : "held back"});
    }
    terminal.heading("points");
    terminal.table({"point", "measured", "predicted", "error", ""}, rows);
}

// Mechanisms of the training model that can be switched off, for ablations.
void leave_out(std::vector<TrainingPoint>& points, const std::string& mechanism) {
    struct Row {
        const char* name;
        void (*apply)(SoftwareSpec& software, DeviceSpec& gpu);
    };
    static constexpr double kNothing = 1e-12;  // zero stands for a default
    static constexpr std::array<Row, 17> kMechanisms = {{
        {"launches", [](SoftwareSpec& software, DeviceSpec&) { software.launch.value = 0; }},
        {"expert-wait", [](SoftwareSpec& software, DeviceSpec&) { software.expert_wait.value = 0; }},
        {"slowest-device", [](SoftwareSpec&, DeviceSpec& gpu) { gpu.speed_spread.value = kNothing; }},
        {"contention",
         [](SoftwareSpec& software, DeviceSpec&) {
             software.communication_units.value = 0;
             software.tensor_communication_units.value = 0;
         }},
        {"fused-casts", [](SoftwareSpec& software, DeviceSpec&) { software.fused_casts = false; }},
        {"waits-at-ends", [](SoftwareSpec& software, DeviceSpec&) { software.waits_at_ends = false; }},
        {"split-accumulator", [](SoftwareSpec&, DeviceSpec& gpu) { gpu.split_accumulator.value = 0; }},
        {"buckets", [](SoftwareSpec& software, DeviceSpec&) { software.gradient_bucket.value = 1e15; }},
        {"biases", [](SoftwareSpec& software, DeviceSpec&) { software.fused_biases = true; }},
        {"split-heads", [](SoftwareSpec& software, DeviceSpec&) { software.splits_heads = false; }},
        {"row-casts",
         [](SoftwareSpec& software, DeviceSpec&) {
             software.column_casts.value = 0;
             software.rescales_products = false;
         }},
        {"cuts-only", [](SoftwareSpec& software, DeviceSpec&) { software.cuts_only = false; }},
        {"scan-efficiency", [](SoftwareSpec& software, DeviceSpec&) { software.scan_efficiency.value = 0; }},
        {"row-gathers", [](SoftwareSpec& software, DeviceSpec&) { software.whole_row_gathers = false; }},
        {"copied-sequences", [](SoftwareSpec& software, DeviceSpec&) { software.copies_sequences = false; }},
        {"repeated-keys", [](SoftwareSpec& software, DeviceSpec&) { software.repeats_keys = false; }},
        {"counted-updates",
         [](SoftwareSpec& software, DeviceSpec&) {
             software.update_bytes.value = 0;
             software.gradient_sweeps.value = 0;
         }},
    }};
    std::vector<std::string> names;
    for (const Row& row : kMechanisms) {
        names.emplace_back(row.name);
        if (mechanism == row.name) {
            for (TrainingPoint& point : points) {
                for (Scenario& variant : point.variants) {
                    row.apply(variant.as<TrainingKind>().software, variant.cluster.node.gpu);
                }
            }
            return;
        }
    }
    const std::string nearest = nearest_name(mechanism, names);
    throw ConfigError(
        fmt::format("--without knows no mechanism '{}'{}; there are {}", mechanism,
                    nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest), fmt::join(names, ", ")),
        ErrorCode::command_line);
}

/// Errors of a set of scored points.
struct SetScore {
    std::vector<double> errors;
    double sources = 0;            ///< %, mean of the sources' mean errors
    double sources_held_back = 0;  ///< the same of the half held back
};

SetScore score_of(const std::vector<TrainingPoint>& points, const std::function<bool(const TrainingPoint&)>& wanted) {
    SetScore out;
    for (const TrainingPoint& point : points) {
        if (point.scored() && point.low > 0 && wanted(point)) {
            out.errors.push_back(point.error());
        }
    }
    out.sources = mean_of_sources(points, wanted);
    out.sources_held_back =
        mean_of_sources(points, [&](const TrainingPoint& p) { return wanted(p) && !p.fitted_half; });
    return out;
}

void print_subsets(const Terminal& terminal, const std::vector<TrainingPoint>& points) {
    std::set<std::string> subsets;
    for (const TrainingPoint& point : points) {
        if (point.scored()) {
            subsets.insert(point.subset);
        }
    }
    std::vector<std::vector<std::string>> rows;
    for (const std::string& name : subsets) {
        const SetScore score = score_of(points, [&](const TrainingPoint& p) { return p.subset == name; });
        const ErrorStatistics s = statistics_of(score.errors);
        rows.push_back({name, std::to_string(s.count), fmt::format("{:.2f} %", s.mape),
                        fmt::format("{:.2f} %", score.sources), fmt::format("{:.2f} %", score.sources_held_back),
                        percent(s.median_bias)});
    }
    terminal.heading("by subset");
    terminal.table({"subset", "points", "MAPE over points", "mean of sources", "held back", "median bias"}, rows);
}

/// How the range of runs with something left open does, and how many scored ones the memory model would refuse.
struct Open {
    std::size_t count = 0;
    std::size_t inside = 0;
    std::vector<double> outside;
};

Open open_runs(const std::vector<TrainingPoint>& points) {
    Open out;
    for (const TrainingPoint& point : points) {
        if (point.scored() || point.low <= 0) {
            continue;
        }
        ++out.count;
        if (point.measured >= point.low && point.measured <= point.high) {
            ++out.inside;
        } else {
            out.outside.push_back((point.measured > point.high ? point.high : point.low) / point.measured - 1);
        }
    }
    return out;
}

/// Pairs of plans for one job, and how many of them are predicted in the order in which they were measured.
struct PairOrder {
    std::size_t pairs = 0;
    std::size_t right = 0;
    [[nodiscard]] double share() const {
        return pairs == 0 ? 0 : 100.0 * static_cast<double>(right) / static_cast<double>(pairs);
    }
};

// Pairs that differ by less than repeated runs do have no order.
PairOrder order_of_plans(const std::vector<TrainingPoint>& points,
                         const std::function<bool(const TrainingPoint&)>& wanted) {
    constexpr double kRunsDiffer = 0.01;
    PairOrder out;
    const auto job = [](const TrainingPoint& p) {
        const ModelSpec& model = p.variants[0].as<TrainingKind>().model;
        return fmt::format("{} {} {}", p.family, model.vocabulary, model.sequence);
    };
    for (std::size_t i = 0; i < points.size(); ++i) {
        for (std::size_t j = i + 1; j < points.size(); ++j) {
            const TrainingPoint& a = points[i];
            const TrainingPoint& b = points[j];
            if (!wanted(a) || !wanted(b) || !a.scored() || !b.scored() || a.low <= 0 || b.low <= 0 ||
                job(a) != job(b) || std::abs(log_pinned(a.measured / b.measured)) < kRunsDiffer) {
                continue;
            }
            ++out.pairs;
            out.right += (a.measured < b.measured) == (a.low < b.low) ? 1 : 0;
        }
    }
    return out;
}

// The vocabulary cut over the stages of a pipeline, and what it is compared with: scored apart, with constants fitted without them.
std::string way_of_vocabulary(const TrainingPoint& point) {
    const PlanSpec& plan = point.variants[0].as<TrainingKind>().plan;
    return plan.vocabulary == VocabularyParallel::two_barriers  ? "cut, two barriers"
           : plan.vocabulary == VocabularyParallel::one_barrier ? "cut, one barrier"
           : plan.stages.empty()                                ? "on the ends"
                                                                : "on the ends, layers redistributed";
}

std::vector<Score> score_vocabulary(std::vector<TrainingPoint>& points, const Terminal& terminal) {
    const auto any = [](const TrainingPoint&) { return true; };
    print_groups(terminal, "vocabulary, by plan", points, way_of_vocabulary);
    print_groups(terminal, "vocabulary, by job", points, [](const TrainingPoint& p) {
        const ModelSpec& model = p.variants[0].as<TrainingKind>().model;
        return fmt::format("sequence {}, vocabulary {}", model.sequence, model.vocabulary);
    });
    const ErrorStatistics s = statistics_of(score_of(points, any).errors);
    std::vector<double> memory;
    for (const TrainingPoint& point : points) {
        if (point.memory > 0 && point.low > 0) {
            memory.push_back(point.allocated / point.memory - 1);
        }
    }
    const ErrorStatistics m = statistics_of(memory);
    const PairOrder order = order_of_plans(points, any);
    terminal.heading("vocabulary over the stages of a pipeline");
    terminal.table({}, {{"scored points", std::to_string(s.count)},
                        {"MAPE over points", fmt::format("{:.2f} %", s.mape)},
                        {"median bias", percent(s.median_bias)},
                        {"worst", fmt::format("{:.1f} %", s.worst)},
                        {"pairs of plans in order", fmt::format("{} of {}", order.right, order.pairs)},
                        {"peak memory: MAPE", fmt::format("{:.2f} %", m.mape)},
                        {"  median bias", percent(m.median_bias)}});
    return {{"vocabulary_points", static_cast<double>(s.count), ""},
            {"vocabulary_error_over_points", s.mape, "%"},
            {"vocabulary_pairs_in_order", order.share(), "%"},
            {"vocabulary_memory_error", m.mape, "%"}};
}

// Runs that are scored apart from the whole, which their constants come from: beside its tables and limits, not in them.
struct Apart {
    const char* subset;  ///< and how its scores begin
    const char* title;
    const char* kind;  ///< what the last table is by
    std::string (*kind_of)(const TrainingPoint&);
};
constexpr std::array<Apart, 4> kApart = {{
    {"experts", "mixtures of experts", "model",
     [](const TrainingPoint& p) {
         const ModelSpec& model = p.variants[0].as<TrainingKind>().model;
         return fmt::format("{} of {} experts, hidden {}", model.experts.topk, model.experts.count, model.hidden);
     }},
    {"blackwell", "dense models on Blackwell", "format",
     [](const TrainingPoint& p) {
         const PlanSpec& plan = p.variants[0].as<TrainingKind>().plan;
         const char* format = precision_names()[static_cast<std::size_t>(plan.precision)].c_str();
         const bool blocks = plan.precision == Precision::fp8 && plan.fp8_scaling == Fp8Scaling::block;
         return fmt::format("{}{}", format, blocks ? ", scales of blocks" : "");
     }},
    {"hybrid", "models with state-space layers", "job",
     [](const TrainingPoint& p) { return fmt::format("{} GPUs", p.variants[0].as<TrainingKind>().plan.ranks()); }},
    {"amd", "models on AMD", "model",
     [](const TrainingPoint& p) {
         const ModelSpec& model = p.variants[0].as<TrainingKind>().model;
         return fmt::format("{}x{}{}", model.layers, model.hidden,
                            p.variants[0].as<TrainingKind>().plan.frozen() ? ", adapters" : "");
     }},
}};
constexpr std::size_t kExperts = 0;

std::vector<Score> score_apart(const Apart& set, std::vector<TrainingPoint>& points, const Terminal& terminal) {
    const SetScore all = score_of(points, [](const TrainingPoint&) { return true; });
    print_groups(terminal, fmt::format("{}, by source", set.title), points,
                 [](const TrainingPoint& p) { return p.source; });
    print_groups(terminal, fmt::format("{}, by hardware", set.title), points,
                 [](const TrainingPoint& p) { return p.hardware; });
    print_groups(terminal, fmt::format("{}, by {}", set.title, set.kind), points, set.kind_of);
    const ErrorStatistics s = statistics_of(all.errors);
    terminal.heading(set.title);
    terminal.table({}, {{"scored points", std::to_string(s.count)},
                        {"MAPE over points", fmt::format("{:.2f} %", s.mape)},
                        {"mean of the sources' MAPEs", fmt::format("{:.2f} %", all.sources)},
                        {"median bias", percent(s.median_bias)},
                        {"worst", fmt::format("{:.1f} %", s.worst)}});
    return {{fmt::format("{}_points", set.subset), static_cast<double>(s.count), ""},
            {fmt::format("{}_error_over_points", set.subset), s.mape, "%"},
            {fmt::format("{}_error_mean_of_sources", set.subset), all.sources, "%"}};
}

}  // namespace

Comparison validate_training(ModelCache& models, const Terminal& terminal, const TrainingValidation& options) {
    std::vector<TrainingPoint> points = load_training_points(models.data(), options.runs);
    for (const std::string& mechanism : options.without) {
        leave_out(points, mechanism);
    }
    const auto taken_apart = [&](const std::function<bool(const TrainingPoint&)>& wanted) {
        const auto first =
            std::stable_partition(points.begin(), points.end(), [&](const TrainingPoint& p) { return !wanted(p); });
        std::vector<TrainingPoint> out(std::make_move_iterator(first), std::make_move_iterator(points.end()));
        points.erase(first, points.end());
        return out;
    };
    std::array<std::vector<TrainingPoint>, kApart.size()> apart;
    std::vector<TrainingPoint> vocabulary;
    std::vector<TrainingPoint> recent;
    if (options.runs.empty()) {
        for (std::size_t i = 0; i < kApart.size(); ++i) {
            apart[i] = taken_apart([&](const TrainingPoint& p) { return p.subset == kApart[i].subset; });
        }
        vocabulary = taken_apart([](const TrainingPoint& p) { return p.subset == kVocabulary; });
        recent = taken_apart(is_recent);
    }
    if (options.fit) {
        fit_software(points, models, terminal);
        fit_expert_wait(apart[kExperts], models, terminal);
    }
    std::vector<std::vector<TrainingPoint>*> sets{&points};
    for (std::vector<TrainingPoint>& set : apart) {
        sets.push_back(&set);
    }
    sets.push_back(&vocabulary);
    sets.push_back(&recent);
    std::size_t count = 0;
    for (const std::vector<TrainingPoint>* set : sets) {
        count += set->size();
    }
    Progress progress(terminal, "predicting measured training runs");
    std::size_t done = 0;
    for (std::vector<TrainingPoint>* set : sets) {
        for (TrainingPoint& point : *set) {
            predict(point, models);
            progress.update(static_cast<double>(++done) / static_cast<double>(count));
        }
    }
    progress.finish();
    Comparison out{"training", "training iterations", "", "", {"source", "hardware", "model"}, {}, {}};
    std::size_t covered = 0;
    std::size_t held_back = 0;
    for (const TrainingPoint& point : points) {
        if (!point.scored() || point.low <= 0) {
            continue;
        }
        out.points.push_back(ScatterPoint{point.measured,
                                          point.low,
                                          point.source,
                                          fmt::format("{}: {:+.1f} %", point.id, 100 * point.error()),
                                          {point.hardware, point.family}});
        if (!point.fitted_half) {
            ++held_back;
            covered += point.measured >= point.interval_low && point.measured <= point.interval_high ? 1 : 0;
        }
    }
    if (!options.svg.empty()) {
        write_file(
            options.svg,
            scatter_svg(fmt::format("{} measured training iterations; band: 10 %", out.points.size()), out.points));
    }
    if (options.points) {
        for (const std::vector<TrainingPoint>* set : sets) {
            print_points(terminal, *set);
        }
    }
    if (options.runs.empty()) {
        const std::vector<std::vector<TrainingPoint>*> earlier(sets.begin(), sets.end() - 1);
        print_groups(terminal, "all scored points but those of 2025 and 2026, by kind", earlier, kind_of);
    }
    print_groups(terminal, "by source", points, [](const TrainingPoint& p) { return p.source; });
    print_groups(terminal, "by software", points, [](const TrainingPoint& p) { return p.software().name; });
    print_groups(terminal, "by hardware", points, [](const TrainingPoint& p) { return p.hardware; });
    print_groups(terminal, "by scale", points, [](const TrainingPoint& p) {
        const std::int64_t gpus = p.variants[0].as<TrainingKind>().plan.ranks();
        return std::string(gpus <= 8     ? "1: up to 8 GPUs"
                           : gpus <= 64  ? "2: 9 to 64 GPUs"
                           : gpus <= 512 ? "3: 65 to 512 GPUs"
                                         : "4: more");
    });
    print_subsets(terminal, points);
    const std::vector<Score> intervals = print_intervals(terminal, sets);
    const Ranking ranking = print_ranking(terminal, points);
    const Open open = open_runs(points);
    const auto refused = std::count_if(points.begin(), points.end(),
                                       [](const TrainingPoint& p) { return p.scored() && p.refused_by_memory; });
    const auto lost = std::count_if(points.begin(), points.end(), [](const TrainingPoint& p) { return p.low <= 0; });
    const SetScore all = score_of(points, [](const TrainingPoint&) { return true; });
    const auto zero_bubble = [](const TrainingPoint& p) { return p.source == "zero-bubble"; };
    const PairOrder schedules = order_of_plans(points, zero_bubble);
    const SetScore original = score_of(points, [](const TrainingPoint& p) { return p.subset == "original"; });
    const ErrorStatistics s = statistics_of(all.errors);
    const SetUps set_ups = mean_of_set_ups(points);
    terminal.heading("summary");
    terminal.table(
        {}, {{"scored points", std::to_string(s.count)},
             {fmt::format("mean of {} set-ups (source, hardware, model and GPUs)", set_ups.count),
              fmt::format("{:.2f} %", set_ups.error)},
             {"mean of the sources' MAPEs", fmt::format("{:.2f} %", all.sources)},
             {"  on the half held back", fmt::format("{:.2f} %", all.sources_held_back)},
             {"MAPE over points", fmt::format("{:.2f} %", s.mape)},
             {"median bias", percent(s.median_bias)},
             {"worst", fmt::format("{:.1f} %", s.worst)},
             {"inside the 90 % interval, of the half held back", fmt::format("{} of {}", covered, held_back)},
             {"  spread of kernels and collectives in the declared half",
              fmt::format("{:.3f} (in use: {:.3f})", mean_parts(points), kValidatedSpread)},
             {"runs that the memory model would refuse", std::to_string(refused)},
             {"runs that cannot be predicted", std::to_string(lost)},
             {"runs with something left open",
              fmt::format("{}, measured inside the predicted range: {}", open.count, open.inside)},
             {"pairs of schedules of Zero Bubble in order", fmt::format("{} of {}", schedules.right, schedules.pairs)},
             {"  MAPE to the range of those outside", fmt::format("{:.1f} %", statistics_of(open.outside).mape)}});
    out.scores = {{"points", static_cast<double>(s.count), ""},
                  {"error_over_points", s.mape, "%"},
                  {"error_mean_of_sources", all.sources, "%"},
                  {"error_held_back", all.sources_held_back, "%"},
                  {"original_error_over_points", statistics_of(original.errors).mape, "%"},
                  {"original_error_mean_of_sources", original.sources, "%"},
                  {"error_mean_of_set_ups", set_ups.error, "%"},
                  {"median_bias", std::abs(s.median_bias), "%"},
                  {"coverage_held_back",
                   held_back > 0 ? 100.0 * static_cast<double>(covered) / static_cast<double>(held_back) : 0, "%"},
                  {"open_inside", static_cast<double>(open.inside), ""},
                  {"kendall_tau", ranking.tau, ""},
                  {"regret", ranking.regret, "%"}};
    out.scores.insert(out.scores.end(), intervals.begin(), intervals.end());
    if (schedules.pairs > 0) {
        out.scores.push_back(
            {"zero_bubble_error_over_points", statistics_of(score_of(points, zero_bubble).errors).mape, "%"});
        out.scores.push_back({"zero_bubble_pairs_in_order", schedules.share(), "%"});
    }
    if (!vocabulary.empty()) {
        const std::vector<Score> scores = score_vocabulary(vocabulary, terminal);
        out.scores.insert(out.scores.end(), scores.begin(), scores.end());
    }
    for (std::size_t i = 0; i < kApart.size(); ++i) {
        if (!apart[i].empty()) {
            const std::vector<Score> scores = score_apart(kApart[i], apart[i], terminal);
            out.scores.insert(out.scores.end(), scores.begin(), scores.end());
        }
    }
    if (!recent.empty()) {
        const std::vector<Score> scores = score_recent(recent, models.data(), terminal);
        out.scores.insert(out.scores.end(), scores.begin(), scores.end());
    }
    return out;
}

}  // namespace orrery::validation
