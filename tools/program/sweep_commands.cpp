// orrery sweep, table and merge.

#include "sim/record/metric_table.hpp"
#include "sim/record/output_file.hpp"
#include "sim/record/summary.hpp"
#include "tools/program/commands.hpp"
#include "tools/program/outputs.hpp"
#include "tools/report/report.hpp"
#include "tools/sweep/kubernetes.hpp"
#include "tools/sweep/run_sweep.hpp"
#include "tools/sweep/slurm.hpp"
#include "tools/sweep/table.hpp"
#include "tools/sweep/worker_pool.hpp"
#include "tools/terminal/terminal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <optional>

namespace orrery::program {

namespace {

void read_shard(const std::string& text, SweepOptions& options) {
    const auto slash = text.find('/');
    double part = 0;
    double parts = 0;
    if (slash == std::string::npos || !parse_number(text.substr(0, slash), part) ||
        !parse_number(text.substr(slash + 1), parts) || part != std::floor(part) || parts != std::floor(parts) ||
        part < 0 || part >= parts || parts > 100'000) {
        throw ConfigError(fmt::format("--shard is I/N with I from 0 to N - 1, such as 0/4; not '{}'", text),
                          ErrorCode::command_line);
    }
    options.shard = static_cast<unsigned>(part);
    options.shards = static_cast<unsigned>(parts);
}

int dry_run(const SweepSpec& sweep, const Terminal& terminal) {
    constexpr std::size_t kShown = 10;
    std::uint64_t count = 0;
    std::vector<std::vector<std::string>> rows;
    for (std::uint64_t id = 0; id < sweep.size(); ++id) {
        const std::optional<SweepPoint> point = sweep.point(id);
        if (!point) {
            continue;
        }
        if (count++ < kShown) {
            std::vector<std::string> row = {std::to_string(id)};
            for (const auto& [key, value] : point->parameters) {
                row.push_back(value);
            }
            rows.push_back(std::move(row));
        }
    }
    std::vector<std::string> header = sweep.keys();
    header.insert(header.begin(), "point");
    terminal.heading(fmt::format("{}: {} of {} points meet the conditions", sweep.name, count, sweep.size()));
    terminal.table(header, rows);
    return 0;
}

std::string merge_into(const std::string& target, const std::vector<std::string>& parts) {
    // A new target is written beside and renamed: a merge that fails leaves none behind.
    std::optional<PartFile> part;
    if (!std::filesystem::exists(target)) {
        part.emplace(target, std::vector<std::string>{"-wal", "-shm", "-journal"});
    }
    std::size_t points = 0;
    bool complete = false;
    {
        ResultStore store(part ? part->path() : target, part ? ResultStore::Mode::resume : ResultStore::Mode::append);
        for (const std::string& one : parts) {
            store.merge(ResultStore(one, ResultStore::Mode::read));
        }
        store.each([&](const StoredPoint&, const PointResult&) { ++points; });
        complete = store.complete();
    }
    if (part) {
        part->keep();
    }
    return fmt::format("{}: {} points from {} databases{}", target, points, parts.size(),
                       complete ? "" : "; the sweep is not complete");
}

void write_report(const CommandLine& line, const std::string& name, const std::string& database) {
    const ResultStore store(database, ResultStore::Mode::read);
    const ResultTable table = read_table(store);
    // Columns: the point, what was varied, the status, what was measured, the message.
    const auto status = static_cast<std::ptrdiff_t>(table.column("status"));
    write_output(line, "report",
                 sweep_report(name, table, {table.columns.begin() + 1, table.columns.begin() + status},
                              {table.columns.begin() + status + 1, table.columns.end() - 1}));
}

// Columns that say the same in every row give way first, then those on the right; what happened to a point stays.
std::vector<ColumnFit> fit_of(const ResultTable& table) {
    std::vector<ColumnFit> fit(table.columns.size());
    for (std::size_t c = 0; c < fit.size(); ++c) {
        const bool same =
            table.rows.size() > 1 && std::all_of(table.rows.begin(), table.rows.end(),
                                                 [&](const auto& row) { return row[c] == table.rows.front()[c]; });
        const bool tells = table.columns[c] == "status" || table.columns[c] == "message";
        fit[c].importance = same ? 1'000'000 + static_cast<int>(c) : tells || c == 0 ? 1 : 2 + static_cast<int>(c);
        fit[c].wraps = std::any_of(table.rows.begin(), table.rows.end(),
                                   [&](const auto& row) { return std::holds_alternative<std::string>(row[c]); });
    }
    return fit;
}

int sweep_on_slurm(const CommandLine& line) {
    SlurmOptions slurm;
    slurm.program = std::filesystem::read_symlink("/proc/self/exe").string();
    slurm.sweep = line.arguments[0];
    if (slurm.sweep == "-") {
        throw ConfigError("--slurm needs a sweep file: its tasks cannot read this standard input",
                          ErrorCode::command_line);
    }
    slurm.database = line.text("db");
    slurm.tasks = static_cast<unsigned>(line.whole("slurm", 1, 1, 100'000));
    slurm.sbatch_options = line.values("sbatch");
    for (const std::string& assignment : line.overrides()) {
        slurm.sweep_options.push_back("--set=" + assignment);
    }
    for (const char* name : {"jobs", "timeout", "data"}) {
        if (line.has(name)) {
            slurm.sweep_options.push_back(fmt::format("--{}={}", name, line.text(name)));
        }
    }
    slurm.say = [&](const std::string& text) {
        if (!line.quiet()) {
            say("{}\n", text);
            std::fflush(stdout);
        }
    };
    slurm.say(merge_into(slurm.database, run_on_slurm(slurm)));
    if (line.has("report")) {
        write_report(line, slurm.sweep, slurm.database);
    }
    return 0;
}

int write_kubernetes(const CommandLine& line, const SweepSpec& sweep) {
    KubernetesOptions options;
    options.name = sweep.name;
    options.sweep = line.arguments[0];
    if (options.sweep == "-") {
        throw ConfigError("--kubernetes needs a sweep file: its pods cannot read this standard input",
                          ErrorCode::command_line);
    }
    for (const char* refused : {"db", "resume", "shard", "report", "slurm", "data", "allow-policies"}) {
        if (line.has(refused)) {
            throw ConfigError(fmt::format("--{} has no effect with --kubernetes, whose pods run the sweep", refused),
                              ErrorCode::command_line);
        }
    }
    options.files = sweep.files;
    options.files.push_back(options.sweep);
    options.pods = static_cast<unsigned>(line.whole("kubernetes", 1, 1, 100'000));
    options.cores = static_cast<unsigned>(line.whole("jobs", 1, 1, 1024));
    options.image = line.has("image") ? line.text("image") : "orrery";
    options.claim = line.has("claim") ? line.text("claim") : "orrery-results";
    for (const std::string& assignment : line.overrides()) {
        options.sweep_options.push_back("--set=" + assignment);
    }
    if (line.has("timeout")) {
        options.sweep_options.push_back("--timeout=" + line.text("timeout"));
    }
    write_output(line, "output", kubernetes_manifest(options));
    return 0;
}

}  // namespace

int command_sweep(const CommandLine& line, const DataDirectory& data) {
    const Terminal terminal = line.terminal();
    const SweepSpec sweep = load_sweep(line.arguments[0], line.overrides(), data);
    check_outputs(line, sweep.files);
    if (line.has("dry-run")) {
        if (line.has("shard")) {
            throw ConfigError(
                "--dry-run lists the points of all shards: which one computes a point is known when it is resolved",
                ErrorCode::command_line);
        }
        return dry_run(sweep, terminal);
    }
    if (line.has("kubernetes")) {
        return write_kubernetes(line, sweep);
    }
    for (const char* of_kubernetes : {"image", "claim", "output"}) {
        if (line.has(of_kubernetes)) {
            throw ConfigError(fmt::format("--{} belongs to --kubernetes", of_kubernetes), ErrorCode::command_line);
        }
    }
    SweepOptions options;
    options.database = line.text("db");
    if (options.database.empty()) {
        throw ConfigError("'orrery sweep' needs --db FILE for its results", ErrorCode::command_line);
    }
    if (line.has("slurm")) {
        return sweep_on_slurm(line);
    }
    options.resume = line.has("resume");
    options.workers = static_cast<unsigned>(line.whole("jobs", available_cores(), 1, 1024));
    options.version = program_version();
    if (line.has("shard")) {
        read_shard(line.text("shard"), options);
    }
    std::string problem;
    if (line.has("timeout") &&
        (!parse_quantity(line.text("timeout"), Dimension::time, options.timeout, problem) || options.timeout <= 0)) {
        throw ConfigError(fmt::format("--timeout: {}", problem.empty() ? "must be above 0 s" : problem),
                          ErrorCode::command_line);
    }
    Progress progress(terminal, "simulating points");
    progress.resume_with(
        fmt::format("finished points are kept in {}; the same command with --resume continues", options.database));
    options.progress = [&](double fraction) { progress.update(fraction); };
    const SweepCounts counts = run_sweep(sweep, data, options);
    progress.finish();
    if (line.has("report")) {
        write_report(line, sweep.name, options.database);
    }
    if (!line.quiet()) {
        say("{}: {} points: {} done, {} infeasible, {} invalid, {} failed, {} timed out\n", sweep.name, counts.points,
            counts.done, counts.infeasible, counts.invalid, counts.failed, counts.timed_out);
        // A sweep without a valid point leaves no database behind.
        const bool kept = std::filesystem::exists(options.database);
        say("{} scenarios simulated now, {} points resumed{}\n", counts.simulated, counts.resumed,
            kept ? "; results in " + options.database : "");
    }
    if (counts.invalid > 0 && counts.invalid == counts.points) {
        say(stderr, "{}\n", counts.first_invalid);
        throw ConfigError("no point is valid; what is wrong with the first one stands above");
    }
    if (counts.failed + counts.timed_out > 0) {
        say(stderr, "{} points failed or timed out; --resume tries them again\n", counts.failed + counts.timed_out);
        return 1;
    }
    return 0;
}

int command_table_of(const CommandLine& line, const DataDirectory&) {
    const ResultStore store(line.arguments[0], ResultStore::Mode::read);
    if (line.has("report")) {
        write_report(line, std::filesystem::path(line.arguments[0]).filename().string(), line.arguments[0]);
        return 0;
    }
    TableOptions options;
    options.where = line.text("where");
    options.group = line.list("group");
    options.aggregate = line.has("aggregate") ? line.text("aggregate") : "mean";
    options.pivot = line.list("pivot");
    options.columns = line.list("columns");
    options.sort = line.list("sort");
    options.limit = line.whole("limit", 0, 1, 1'000'000'000);
    const ResultTable table = select(read_table(store, line.has("intervals")), options);
    const std::string format = line.has("format") ? line.text("format") : "text";
    const std::string output = line.has("output") ? line.text("output") : "-";
    if (format == "csv") {
        write_output(line, "output", to_csv(table));
    } else if (format == "json") {
        write_output(line, "output", to_json(table));
    } else if (format == "text" && output == "-") {
        const Terminal terminal = line.terminal();
        std::vector<std::vector<std::string>> rows;
        for (const auto& row : table.rows) {
            std::vector<std::string> texts;
            for (const Cell& cell : row) {
                const double* number = std::get_if<double>(&cell);
                texts.push_back(number != nullptr ? fmt::format("{:.6g}", *number) : cell_text(cell));
            }
            rows.push_back(std::move(texts));
        }
        std::vector<std::string> header;
        std::transform(table.columns.begin(), table.columns.end(), std::back_inserter(header), with_arrow);
        terminal.fitted_table(header, rows, fit_of(table), line.has("all") || line.has("columns"));
    } else {
        throw ConfigError(format == "text" ? "--output needs --format csv or json"
                                           : fmt::format("--format is text, csv or json, not '{}'", format),
                          ErrorCode::command_line);
    }
    if (!store.complete() && !line.quiet()) {
        say(stderr, "note: the sweep has not been run to its end; --resume continues it\n");
    }
    return 0;
}

int command_merge(const CommandLine& line, const DataDirectory&) {
    const std::string text = merge_into(line.arguments[0], {line.arguments.begin() + 1, line.arguments.end()});
    if (!line.quiet()) {
        say("{}\n", text);
    }
    return 0;
}

}  // namespace orrery::program
