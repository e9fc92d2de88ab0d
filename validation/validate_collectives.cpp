#include "models/calibration/collectives.hpp"
#include "sim/base/input_file.hpp"
#include "sim/record/facts_table.hpp"
#include "tools/calibration/collections.hpp"
#include "tools/driver/model_cache.hpp"
#include "validation/statistics.hpp"
#include "validation/validate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <tuple>

namespace orrery::validation {

namespace {

struct Row {
    std::string system, node, op;
    double gpus, nodes, bytes, microseconds;
    bool one_process;  ///< launches for all GPUs
};

// system;node preset;op;gpus;nodes;bytes;us;source;launches - semicolons, because names of systems hold commas.
std::vector<Row> load_rows(const std::string& path) {
    std::vector<Row> rows;
    for (const FactsRow& row : read_facts_table(path, ';')) {
        rows.push_back({row.text("system"), row.text("node"), row.text("op"), row.number("gpus"), row.number("nodes"),
                        row.number("bytes"), row.number("us"),
                        row.cells.count("launches") != 0 && row.text("launches") == "one process"});
    }
    return rows;
}

// What the committed fits say of themselves, by fabric, library and operation.
void print_fits(ModelCache& models, const Terminal& terminal, Comparison& out) {
    std::vector<std::vector<std::string>> table;
    const std::string folder = models.data().path("models/data/collectives");
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().extension() == ".fit") {
            files.push_back(entry.path().string());
        }
    }
    std::sort(files.begin(), files.end());
    for (const std::string& file : files) {
        const CollectiveFit fit = parse_collective_fit(read_input(file), file);
        struct Sums {
            std::int64_t points = 0, pieces = 0;
            double error = 0, held_back = 0;
            std::string ranks;
        };
        std::map<std::pair<std::string, CollectiveOp>, Sums> groups;
        for (const CollectiveCurve& curve : fit.curves) {
            Sums& sums = groups[{curve.library, curve.op}];
            sums.points += curve.points;
            sums.pieces += static_cast<std::int64_t>(curve.pieces.size());
            sums.error += curve.error * static_cast<double>(curve.points);
            sums.held_back += curve.held_back * static_cast<double>(curve.points);
            sums.ranks += fmt::format("{}{}", sums.ranks.empty() ? "" : " ", curve.ranks);
        }
        for (const auto& [key, sums] : groups) {
            const auto count = static_cast<double>(sums.points);
            table.push_back({std::filesystem::path(file).stem().string(), key.first,
                             collective_op_names()[static_cast<std::size_t>(key.second)], sums.ranks,
                             std::to_string(sums.points), std::to_string(sums.pieces),
                             fmt::format("{:.1f} %", 100 * sums.error / count),
                             fmt::format("{:.1f} %", 100 * sums.held_back / count)});
        }
    }
    out.tables.push_back(
        {"Fits inside a node: mean error on all sizes, and on every second size when fitted on the others",
         {"fabric", "library", "operation", "ranks", "sizes", "pieces", "error", "held back"},
         std::move(table)});
    terminal.heading(out.tables.back().title);
    terminal.table(out.tables.back().columns, out.tables.back().rows);
}

// Other collections of the same fabrics, which no fit has seen.
void compare_collections(ModelCache& models, const Terminal& terminal, const std::string& directory) {
    require_profiles(directory);
    std::vector<std::vector<std::string>> table;
    for (const PublicCollectives& other : public_collectives()) {
        if (other.fitted) {
            continue;
        }
        if (!std::filesystem::exists(directory + "/" + other.profile.path)) {
            fmt::print(stderr, "skipped: {} is not in the data directory\n", other.profile.path);
            continue;
        }
        const std::string file = models.data().path(std::string("models/data/collectives/") + other.fabric + ".fit");
        const CollectiveFit fit = parse_collective_fit(read_input(file), file);
        std::vector<double> errors;
        const Trace trace = read_profile(other.profile, directory);
        for (const TraceRow& row : trace.rows) {
            std::string name = row.op;
            std::replace(name.begin(), name.end(), '_', '-');
            const auto& names = collective_op_names();
            const auto op = static_cast<CollectiveOp>(std::find(names.begin(), names.end(), name) - names.begin());
            const std::string library = row.library.substr(0, row.library.find('-'));
            if (fit.has(library, op)) {
                errors.push_back(fit.seconds(library, op, row.dim("ranks"), row.dim("bytes"), other.bandwidth) /
                                     (row.median_ns * 1e-9) -
                                 1);
            }
        }
        const ErrorStatistics s = statistics_of(errors);
        table.push_back({other.fabric, other.profile.device, other.profile.source, std::to_string(s.count),
                         fmt::format("{:.1f} %", s.mape), fmt::format("{:+.1f} %", s.median_bias)});
    }
    terminal.heading("other collections of the same fabrics");
    terminal.table({"fabric", "device", "source", "sizes", "error", "median bias"}, table);
}

// What the model says of a row.
double predicted_seconds(ModelCache& models, const Row& row) {
    const YamlNode scenario = parse_yaml(
        fmt::format("orrery: 1\nkind: collective\ncluster: {{nodes: {}, node: {}, fabric: {{nodes_per_leaf: 16}}}}\n"
                    "collective: {{size: {} B}}\n",
                    row.nodes, row.node, row.bytes),
        "measured.csv");
    const Scenario parsed = read_scenario(scenario, "point", models.data());
    const Fabric fabric(shape_of(parsed.cluster, parsed.cluster_mark));
    std::vector<GpuId> group;
    const auto per_node = static_cast<std::uint32_t>(row.gpus / row.nodes);
    for (std::uint32_t node = 0; node < static_cast<std::uint32_t>(row.nodes); ++node) {
        for (std::uint32_t i = 0; i < per_node; ++i) {
            group.emplace_back(node * fabric.shape().gpus_per_node + i);
        }
    }
    const auto& names = collective_op_names();
    const auto op = static_cast<CollectiveOp>(std::find(names.begin(), names.end(), row.op) - names.begin());
    const CollectiveModel& model = models.collectives(parsed.cluster.node, LibraryKind::nccl);
    const double seconds =
        seconds_alone(fabric, make_transfer(fabric, model, op, group, Bytes(row.bytes), PathChoice::spray)).value();
    // Eight launches of one thread take some 40 us, partly behind what runs: fitted on eight sizes of MI300X (tools/calibration/without_launches.py).
    constexpr double kLaunches = 40e-6;
    constexpr double kBehind = 1.3;  // 1: one after the other; without limit: all of the shorter behind the longer
    return row.one_process ? std::pow(std::pow(seconds, kBehind) + std::pow(kLaunches, kBehind), 1 / kBehind) : seconds;
}

// The further systems: each row that another measurement of the same size contradicts by a tenth counts as disturbed.
void compare_further(ModelCache& models, const Terminal& terminal, bool print_points, Comparison& out) {
    constexpr double kMiB = 1024 * 1024;
    constexpr double kAgree = 1.1;
    const std::vector<Row> rows = load_rows(models.data().path("validation/collectives/more.csv"));
    using Series = std::tuple<std::string, std::string, double, double>;
    std::map<Series, std::pair<double, double>> repeats;  // least and most
    for (const Row& row : rows) {
        auto [at, first] = repeats.try_emplace({row.system, row.op, row.gpus, row.bytes}, row.microseconds, 0);
        at->second.first = std::min(at->second.first, row.microseconds);
        at->second.second = std::max(at->second.second, row.microseconds);
    }
    struct Sums {
        std::vector<double> all, reduce, agreeing, large;
    };
    std::map<std::string, Sums> systems;
    std::vector<std::vector<std::string>> listed;
    for (const Row& row : rows) {
        if (row.bytes < kMiB) {
            continue;
        }
        const double predicted = predicted_seconds(models, row);
        const double error = predicted / (row.microseconds * 1e-6) - 1;
        Sums& sums = systems[row.system];
        sums.all.push_back(error);
        if (row.op == "all-reduce") {
            sums.reduce.push_back(error);
        }
        if (const auto& [least, most] = repeats.at({row.system, row.op, row.gpus, row.bytes}); most <= kAgree * least) {
            sums.agreeing.push_back(error);
        }
        if (row.bytes >= 64 * kMiB) {
            sums.large.push_back(error);
        }
        listed.push_back({row.system, row.op, fmt::format("{:.0f}", row.gpus), fmt::format("{:.0f}", row.bytes),
                          fmt::format("{:.1f} us", row.microseconds), fmt::format("{:.1f} us", predicted * 1e6),
                          fmt::format("{:+.1f} %", 100 * error)});
    }
    if (print_points) {
        terminal.heading("measured collectives of further systems");
        terminal.table({"system", "op", "GPUs", "bytes", "measured", "predicted", "error"}, listed);
    }
    const auto mape = [](const std::vector<double>& errors) {
        return errors.empty() ? std::string("-") : fmt::format("{:.1f} %", statistics_of(errors).mape);
    };
    std::vector<std::vector<std::string>> table;
    double sum = 0;
    double within = 0;
    for (const auto& [name, sums] : systems) {
        const ErrorStatistics s = statistics_of(sums.all);
        sum += s.mape;
        within += s.mape <= 10 ? 1 : 0;
        table.push_back({name, std::to_string(s.count), fmt::format("{:.1f} %", s.mape),
                         fmt::format("{:+.1f} %", s.median_bias), mape(sums.reduce), mape(sums.agreeing),
                         mape(sums.large)});
    }
    out.tables.push_back(
        {"Further systems, from 1 MiB on",
         {"system", "points", "MAPE", "median bias", "all-reduce", "repeats within 10 %", "from 64 MiB"},
         std::move(table)});
    terminal.heading(out.tables.back().title);
    terminal.table(out.tables.back().columns, out.tables.back().rows);
    const auto count = static_cast<double>(systems.size());
    out.scores.insert(out.scores.end(), {{"further_points", static_cast<double>(listed.size()), ""},
                                         {"further_systems", count, ""},
                                         {"further_systems_within_10", within, ""},
                                         {"further_error_mean_of_systems", sum / std::max(1.0, count), "%"}});
}

}  // namespace

Comparison validate_collectives(ModelCache& models, const Terminal& terminal, bool print_points,
                                const std::string& data) {
    const std::vector<Row> rows = load_rows(models.data().path("validation/collectives/measured.csv"));
    std::map<std::string, std::vector<double>> groups;
    std::map<std::string, std::vector<double>> large;
    std::vector<std::vector<std::string>> listed;
    Comparison out{"collectives", "collectives", "", "", {"operation", "system", "size"}, {}, {}};
    for (const Row& row : rows) {
        const double predicted = predicted_seconds(models, row);
        const double error = predicted / (row.microseconds * 1e-6) - 1;
        groups[row.system].push_back(error);
        if (row.bytes >= 64.0 * 1024 * 1024) {
            large[row.system].push_back(error);
        }
        constexpr double kMiB = 1024 * 1024;
        out.points.push_back({row.microseconds * 1e-6,
                              predicted,
                              row.op,
                              fmt::format("{}, {:.0f} GPUs, {}: {:+.1f} %", row.op, row.gpus,
                                          pretty_quantity(row.bytes, Dimension::bytes), 100 * error),
                              {row.system, row.bytes >= 64 * kMiB ? "from 64 MiB"
                                           : row.bytes >= kMiB    ? "1 to 64 MiB"
                                                                  : "below 1 MiB"}});
        listed.push_back({row.system, row.op, fmt::format("{:.0f}", row.gpus), fmt::format("{:.0f}", row.bytes),
                          fmt::format("{:.1f} us", row.microseconds), fmt::format("{:.1f} us", predicted * 1e6),
                          fmt::format("{:+.1f} %", 100 * error)});
    }
    if (print_points) {
        terminal.heading("measured collectives");
        terminal.table({"system", "op", "GPUs", "bytes", "measured", "predicted", "error"}, listed);
    }
    terminal.heading("collectives by system");
    std::vector<std::vector<std::string>> table;
    double systems = 0;
    double large_systems = 0;
    double sum = 0;
    double large_sum = 0;
    for (const auto& [name, errors] : groups) {
        const ErrorStatistics s = statistics_of(errors);
        const ErrorStatistics big = statistics_of(large[name]);
        ++systems;
        sum += s.mape;
        large_systems += big.count > 0 ? 1 : 0;
        large_sum += big.mape;
        table.push_back({name, std::to_string(s.count), fmt::format("{:.1f} %", s.mape),
                         fmt::format("{:+.1f} %", s.median_bias), fmt::format("{:.1f} %", s.worst),
                         big.count > 0 ? fmt::format("{:.1f} %", big.mape) : "-"});
    }
    terminal.table({"system", "points", "MAPE", "median bias", "worst", "MAPE from 64 MiB"}, table);
    print_fits(models, terminal, out);
    out.scores = {{"points", static_cast<double>(out.points.size()), ""},
                  {"systems", systems, ""},
                  {"error_mean_of_systems", sum / std::max(1.0, systems), "%"},
                  {"error_from_64_mib", large_sum / std::max(1.0, large_systems), "%"}};
    compare_further(models, terminal, print_points, out);
    validate_dispatch(models, terminal, print_points, out);
    if (!data.empty()) {
        compare_collections(models, terminal, data);
    }
    return out;
}

}  // namespace orrery::validation
