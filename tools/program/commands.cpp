#include "tools/program/commands.hpp"
#include "tools/driver/kind.hpp"

#include "tools/check/baseline.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "tools/driver/kinds/training_faults.hpp"
#include "tools/driver/scenario.hpp"
#include "tools/program/command_line.hpp"
#include "tools/program/error_codes.hpp"
#include "tools/program/memory_limit.hpp"
#include "tools/program/outputs.hpp"
#include "tools/program/print_summary.hpp"
#include "tools/program/watch.hpp"
#include "tools/reference/reference.hpp"
#include "tools/reference/schema.hpp"
#include "tools/reference/summary_schema.hpp"
#include "tools/report/report.hpp"
#include "tools/report/topology_svg.hpp"
#include "tools/sweep/sweep_spec.hpp"
#include "tools/terminal/terminal.hpp"
#include "topologies/graph.hpp"
#include "workloads/outside/decisions.hpp"
#include "workloads/outside/session.hpp"

#include <fmt/format.h>
#include <sqlite3.h>
#include <boost/version.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>

namespace orrery::program {

namespace {

// Messages and requests one by one: a report leaves the timeline out where it would be a wall of lines.
bool can_be_drawn(const Scenario& scenario) {
    const TimelineDrawing drawing = scenario.kind().drawing;
    constexpr std::int64_t kMostRequests = 100'000;  // whose parts are kept for charts over time
    if (const auto* serving = scenario.find<ServingKind>()) {
        return serving->requests.count <= kMostRequests;
    }
    if (drawing != TimelineDrawing::few_streams) {
        return drawing != TimelineDrawing::none;
    }
    const bool timed = scenario.network.fidelity == Fidelity::fluid || scenario.network.fidelity == Fidelity::analytic;
    return timed && Fabric(shape_of(scenario.cluster, scenario.cluster_mark)).gpus() <= 128;
}

// Says before a long or large run what it will take.
void say_cost(const Scenario& scenario, const CommandLine& line) {
    constexpr double kLongSeconds = 2;
    constexpr double kLargeBytes = 1024.0 * 1024 * 1024;
    const RunCost cost = expected_cost(scenario);
    const double limit = memory_limit();
    const bool too_much = limit > 0 && cost.bytes > limit;
    if (line.quiet() || !std::isfinite(cost.seconds) || !std::isfinite(cost.bytes) ||
        (cost.seconds < kLongSeconds && cost.bytes < kLargeBytes && !too_much)) {
        return;
    }
    const auto size = [](double bytes) { return pretty_quantity(bytes, Dimension::bytes); };
    fmt::print(stderr, "about {} and {} of memory for {}{}\n", duration_text(cost.seconds), size(cost.bytes), cost.what,
               too_much ? ", more than the --memory-limit of " + size(limit) : "");
}

void write_resolved(const Scenario& scenario, const CommandLine& line) {
    const std::string file = line.text("resolved");
    const std::string folder = file == "-" ? "" : std::filesystem::path(file).parent_path().string();
    write_output(line, "resolved", resolved_json(seen_from(folder.empty() ? "." : folder, scenario)) + "\n");
}

// What a run would take, instead of the run.
int say_dry_run(const Scenario& scenario, const CommandLine& line) {
    for (const char* output :
         {"json", "trace", "requests", "flows", "flow-samples", "ports", "queues", "report", "junit", "host"}) {
        if (line.has(output)) {
            throw ConfigError(fmt::format("--{} has no effect with --dry-run, which runs nothing", output),
                              ErrorCode::command_line);
        }
    }
    if (line.has("resolved")) {
        write_resolved(scenario, line);
    }
    const RunCost cost = expected_cost(scenario);
    if (!line.quiet()) {
        say("{} is valid; a run takes about {} and {} of memory\n", line.arguments[0], duration_text(cost.seconds),
            pretty_quantity(cost.bytes, Dimension::bytes));
    }
    return 0;
}

// Failed expectations as errors at their lines where nothing else shows them, or as annotations; the exit code.
int report_failed(const Scenario& scenario, const Summary& summary, OutputFormat format, bool shown) {
    for (std::size_t i = 0; i < summary.expectations.size(); ++i) {
        const ExpectationOutcome& one = summary.expectations[i];
        if (one.met) {
            continue;
        }
        const Diagnostic failed = scenario.expect[i].mark.error(expectation_text(one));
        if (format == OutputFormat::github) {
            say(stderr, "{}\n", github_annotation(failed, "expectation"));
        } else if (format == OutputFormat::json) {
            say(stderr, "{}\n", diagnostic_json(failed, "", "expectation"));
        } else if (!shown) {
            say(stderr, "{}\n", failed.to_string());
        }
    }
    return summary.failed() > 0 ? 1 : 0;
}

// The expectations of a run as `orrery check` writes those of baselines. `error`: why there was no run.
void write_junit(const CommandLine& line, const std::vector<ExpectationOutcome>& expectations,
                 const std::string& error = {}) {
    BaselineOutcome outcome;
    outcome.baseline.path = line.arguments[0];
    outcome.expectations = expectations;
    outcome.error = error;
    write_output(line, "junit", junit_xml({outcome}, "run"));
}

double seconds_of(const CommandLine& line, const char* option, double otherwise) {
    if (!line.has(option)) {
        return otherwise;
    }
    constexpr double kDay = 86400;
    double value = 0;
    std::string problem;
    if (!parse_quantity(line.text(option), Dimension::time, value, problem) || value <= 0 || value > kDay) {
        throw ConfigError(fmt::format("--{} is a time up to a day, such as \"30 s\"", option), ErrorCode::command_line);
    }
    return value;
}

// What the command line says of policies from outside, before a run of theirs.
void prepare_policies(const CommandLine& line) {
    outside::Session& session = outside::session();
    session.records = line.has("record-decisions");
    session.record = session.records ? outside::kRecordingHead : "";
    session.decisions = 0;
    session.deciding = {};
    session.timeout = seconds_of(line, "policy-timeout", session.timeout);
    if (line.command == "serve-clock") {
        const std::string path = line.text("socket");
        if (path.empty()) {
            throw ConfigError("'orrery serve-clock' needs --socket PATH", ErrorCode::command_line);
        }
        if (!line.quiet()) {
            fmt::print(stderr, "waiting at {}\n", path);
        }
        session.clock = outside::wait_at(path, seconds_of(line, "wait", 60), session.timeout);
    }
}

void say_decisions(const CommandLine& line) {
    const outside::Session& session = outside::session();
    if (session.clock != nullptr && !session.clock->used()) {
        throw ConfigError("no policy of this scenario is decided over the socket ('kind: outside' with 'from: socket')",
                          ErrorCode::command_line);
    }
    if (session.decisions > 0 && !line.quiet()) {
        const double each =
            std::chrono::duration<double>(session.deciding).count() / static_cast<double>(session.decisions);
        fmt::print(stderr, "{} decisions from outside, {} each\n", session.decisions,
                   pretty_quantity(each, Dimension::time));
    }
    if (session.records) {
        if (session.decisions == 0) {
            throw ConfigError("--record-decisions: this scenario has no policy from outside ('kind: outside')",
                              ErrorCode::command_line);
        }
        write_output(line, "record-decisions", session.record);
    }
}

// Returns the exit code, and in `files` what the scenario reads.
int run_once(const CommandLine& line, const DataDirectory& data, std::vector<std::string>& files) {
    const Scenario scenario = load_scenario(line.arguments[0], line.overrides(), data);
    files = files_of(scenario);
    check_outputs(line, files);
    const Terminal terminal = line.terminal();
    ModelCache models(data);
    RunOptions options;
    options.timeline = line.has("trace") || (line.has("report") && can_be_drawn(scenario));
    options.requests = line.has("requests");
    if (options.requests && scenario.find<ServingKind>() == nullptr) {
        throw ConfigError("--requests lists what a serving scenario served; this is another kind",
                          ErrorCode::command_line);
    }
    if (line.has("junit") && scenario.expect.empty()) {
        throw ConfigError("--junit writes what became of 'expect', which this scenario does not have",
                          ErrorCode::command_line);
    }
    options.messages = line.has("flows");
    if (options.messages && !scenario.kind().network.flows) {
        throw ConfigError(
            "--flows lists the messages of a network, collective or training scenario; this is another kind",
            ErrorCode::command_line);
    }
    for (const char* table : {"flows", "flow-samples"}) {
        if (line.has(table)) {
            (void)table_format_of(line.text(table));
        }
    }
    if (line.has("flow-samples") && !(scenario.network.by_packet() && scenario.network.packets.flow_samples > 0)) {
        throw ConfigError(
            "--flow-samples writes what network.flow_samples records at fidelity packet; this scenario has none",
            ErrorCode::command_line);
    }
    if (line.has("dry-run")) {
        return say_dry_run(scenario, line);
    }
    say_cost(scenario, line);
    prepare_policies(line);
    Progress progress(terminal, "simulating");
    options.progress = [&](double fraction) { progress.update(fraction); };
    const RunOutput out = [&] {
        try {
            return run_scenario(scenario, models, options);
        } catch (const InfeasibleError& error) {
            if (line.has("junit")) {
                write_junit(line, {}, error.what());
            }
            throw;
        }
    }();
    progress.finish();
    say_decisions(line);
    if (line.has("junit")) {
        write_junit(line, out.summary.expectations);
    }
    if (options.requests) {
        write_output(line, "requests",
                     requests_csv(out.requests, scenario.as<ServingKind>().requests.names_adapters()));
    }
    if (options.messages) {
        if (!out.messages) {
            throw ConfigError("--flows lists up to 2 million messages that are simulated one by one; this run has more",
                              ErrorCode::command_line);
        }
        write_output(line, "flows", table_file(line.text("flows"), flow_table(scenario, out)));
    }
    if (line.has("resolved")) {
        write_resolved(scenario, line);
    }
    if ((line.has("ports") || line.has("queues")) && out.packets.ports.empty()) {
        throw ConfigError("--ports and --queues report what network.fidelity packet simulates; this run has another",
                          ErrorCode::command_line);
    }
    if (line.has("ports")) {
        write_output(line, "ports", ports_csv(out.packets));
    }
    if (line.has("queues")) {
        write_output(line, "queues", queues_csv(out.packets));
    }
    if (line.has("flow-samples")) {
        write_output(line, "flow-samples", table_file(line.text("flow-samples"), flow_sample_table(out.packets)));
    }
    if (line.has("trace")) {
        write_output(line, "trace", to_chrome_trace(with_campaign(out)));
    }
    if (line.has("report")) {
        write_output(line, "report", run_report(scenario, out, explain_scenario(scenario, models)));
    }
    // The host's time and memory go to the terminal; a file stays byte-identical between runs unless they are asked
    // for.
    if (line.has("json")) {
        write_output(line, "json", to_json(out.summary, line.has("host")));
    }
    const bool shown = !line.quiet() && line.text("json") != "-";
    if (shown) {
        print_expectations(out.summary);
        print_summary(terminal, out.summary);
    }
    return report_failed(scenario, out.summary, output_format(line.text("output-format")), shown);
}

int command_run(const CommandLine& line, const DataDirectory& data) {
    if (line.has("watch")) {
        if (line.arguments[0] == "-") {
            throw ConfigError("--watch waits for a file to change; the standard input is read once",
                              ErrorCode::command_line);
        }
        watch(
            line.arguments[0],
            [&] {
                std::vector<std::string> files;
                (void)run_once(line, data, files);
                return files;
            },
            output_format(line.text("output-format")), line.quiet());
    }
    std::vector<std::string> files;
    return run_once(line, data, files);
}

int command_topology(const CommandLine& line, const DataDirectory& data) {
    const Scenario scenario = load_scenario(line.arguments[0], line.overrides(), data);
    const Terminal terminal = line.terminal();
    const Fabric fabric(shape_of(scenario.cluster, scenario.cluster_mark));
    const GraphReport report = inspect(fabric);
    const FabricShape& shape = fabric.shape();
    terminal.heading("fabric");
    const auto rate = [](double value) { return pretty_quantity(value, Dimension::rate); };
    terminal.table({}, {{"nodes", std::to_string(shape.nodes)},
                        {"GPUs", std::to_string(fabric.gpus())},
                        {"NICs", fmt::format("{} at {}", shape.nodes * shape.nics_per_node, rate(shape.nic_bandwidth))},
                        {"inside a node", rate(shape.intra_bandwidth)},
                        {"between nodes", fabric.topology().summary()},
                        {"switches", std::to_string(fabric.topology().switches())},
                        {"full bisection", fabric.full_bisection() ? "yes" : "no"},
                        {"links (one direction)", std::to_string(report.links)},
                        {"reachable from GPU 0", fmt::format("{} of {} GPUs", report.reachable_gpus, fabric.gpus())},
                        {"longest shortest path", fmt::format("{} links", report.diameter_from_first)}});
    if (fabric.gpus() > 1) {
        const GpuId last(fabric.gpus() - 1);
        const Route route = fabric.route(GpuId(0), last, scenario.network.path_choice(), 0);
        terminal.heading(fmt::format("path from GPU 0 to GPU {}: {} without load", last.value(),
                                     pretty_quantity(route.latency, Dimension::time)));
        std::vector<std::vector<std::string>> rows;
        for (const ResourceId link : route.resources()) {
            rows.push_back({fabric.resource_name(link), rate(fabric.capacity(link))});
        }
        terminal.table({}, rows);
    }
    if (line.has("svg")) {
        const ChartStyle style;
        write_output(line, "svg",
                     fabric.as_tree() == nullptr ? topology_svg(fabric, {}, style)
                                                 : fabric_svg(fabric_layers(scenario, {}), style));
    }
    return 0;
}

int command_schema(const CommandLine& line, const DataDirectory& data) {
    if (line.arguments.empty()) {
        fmt::print("{}", schema_of_all_kinds(data));
        return 0;
    }
    const std::string& wanted = line.arguments[0];
    if (wanted == "sweep") {
        fmt::print("{}\n", sweep_schema());
        return 0;
    }
    if (wanted == "baseline") {
        fmt::print("{}\n", baseline_schema());
        return 0;
    }
    if (wanted == "summary") {
        fmt::print("{}", summary_schema());
        return 0;
    }
    const KindRow* kind = find_kind(wanted);
    if (kind == nullptr) {
        throw ConfigError(fmt::format("unknown kind '{}'; it is one of {}, sweep, baseline, summary", wanted,
                                      fmt::join(scenario_kind_names(), ", ")),
                          ErrorCode::unknown_name);
    }
    fmt::print("{}\n", scenario_schema(*kind, data));
    return 0;
}

int command_completion(const CommandLine& line, const DataDirectory&) {
    const std::string& shell = line.arguments[0];
    if (shell != "bash" && shell != "zsh") {
        throw ConfigError(fmt::format("completion is for bash or zsh, not '{}'", shell), ErrorCode::unknown_name);
    }
    fmt::print("{}", completion_script(shell));
    return 0;
}

int command_manual(const CommandLine& line, const DataDirectory& data) {
    const std::string section = line.arguments.empty() ? "1" : line.arguments[0];
    if (section != "1" && section != "5") {
        throw ConfigError(fmt::format("there is no section '{}' of the manual; it is 1 or 5", section),
                          ErrorCode::unknown_name);
    }
    fmt::print("{}", section == "1" ? manual_page(program_version()) : reference_manual(data, program_version()));
    return 0;
}

int command_version(const CommandLine&, const DataDirectory& data) {
    fmt::print("orrery {}\nlibraries: Boost {}.{}.{}, fmt {}.{}.{}, SQLite {}\ndata: {}\n", program_version(),
               BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000, BOOST_VERSION % 100, FMT_VERSION / 10000,
               FMT_VERSION / 100 % 100, FMT_VERSION % 100, sqlite3_libversion(), data.root());
    return 0;
}

using CommandFunction = int (*)(const CommandLine&, const DataDirectory&);

const std::map<std::string, CommandFunction>& command_functions() {
    static const std::map<std::string, CommandFunction> kFunctions = {
        {"calibrate", command_calibrate}, {"capacity", command_capacity},
        {"check", command_check},         {"help", command_help},
        {"init", command_init},           {"import", command_import},
        {"plot", command_plot},           {"diff", command_diff},
        {"plan", command_plan},           {"run", command_run},
        {"explain", command_explain},     {"sweep", command_sweep},
        {"table", command_table_of},      {"merge", command_merge},
        {"topology", command_topology},   {"validate", command_validate},
        {"list", command_list},           {"schema", command_schema},
        {"version", command_version},     {"completion", command_completion},
        {"manual", command_manual},       {"price", command_price},
        {"compare", command_compare},     {"mcp", command_mcp},
        {"export", command_export},       {"serve-clock", command_run},
        {"serve", command_serve},         {"recommend", command_recommend},
        {"emulate", command_emulate}};
    return kFunctions;
}

// Options belong to commands: `orrery table --trace x` would otherwise be silently without a trace.
void check_options(const CommandLine& line, const CommandSpec& command) {
    std::vector<std::string> known;
    for (const auto* options : {&command.options, &common_options()}) {
        for (const OptionSpec& option : *options) {
            const std::string name = option.name;
            known.push_back(name.substr(0, name.find(',')));
        }
    }
    for (const auto& [name, values] : line.options) {
        if (std::find(known.begin(), known.end(), name) == known.end()) {
            throw ConfigError(
                fmt::format("'orrery {0}' has no option --{1}; see 'orrery help {0}'", command.name, name),
                ErrorCode::command_line);
        }
        const bool repeats = std::any_of(command.options.begin(), command.options.end(),
                                         [&, &key = name](const OptionSpec& o) { return o.repeats && key == o.name; });
        if (std::find(values.begin(), values.end(), "") != values.end()) {
            throw ConfigError(fmt::format("--{} is given an empty value", name), ErrorCode::command_line);
        }
        if (values.size() > 1 && !repeats) {
            throw ConfigError(fmt::format("--{} is given {} times", name, values.size()), ErrorCode::command_line);
        }
    }
}

// Whether --data names presets of the user's own, and not public profiles to fit.
bool names_own_data(const CommandLine& line) {
    const bool profiles = (line.command == "calibrate" && line.arguments.empty()) ||
                          (line.command == "validate" && !line.has("trace") && !line.has("log"));
    return line.has("data") && !profiles;
}

}  // namespace

Terminal CommandLine::terminal() const {
    std::string progress = text("progress");
    if (const char* set = std::getenv("ORRERY_PROGRESS"); progress.empty() && set != nullptr) {
        progress = set;
    }
    if (output_format(text("output-format")) != OutputFormat::text && !has("progress")) {
        progress = "none";  // a program reads the errors
    }
    return {has("color") ? text("color") : "auto", quiet(), progress.empty() ? "auto" : progress};
}

std::string CommandLine::text(const std::string& name) const {
    const auto found = options.find(name);
    return found == options.end() || found->second.empty() ? std::string() : found->second.back();
}

std::vector<std::string> CommandLine::values(const std::string& name) const {
    const auto found = options.find(name);
    return found == options.end() ? std::vector<std::string>() : found->second;
}

std::vector<std::string> CommandLine::list(const std::string& name) const {
    std::vector<std::string> out;
    for (const std::string& value : values(name)) {
        for (std::size_t start = 0; start <= value.size();) {
            const std::size_t end = std::min(value.find(',', start), value.size());
            if (end > start) {
                out.push_back(value.substr(start, end - start));
            }
            start = end + 1;
        }
    }
    return out;
}

std::uint64_t CommandLine::whole(const std::string& name, std::uint64_t otherwise, std::uint64_t least,
                                 std::uint64_t most) const {
    if (!has(name)) {
        return otherwise;
    }
    double number = 0;
    if (!parse_number(text(name), number) || number != std::floor(number) || number < static_cast<double>(least) ||
        number > static_cast<double>(most)) {
        throw ConfigError(
            fmt::format("--{} must be a whole number between {} and {}, not '{}'", name, least, most, text(name)),
            ErrorCode::command_line);
    }
    return static_cast<std::uint64_t>(number);
}

std::vector<std::string> CommandLine::overrides() const {
    std::vector<std::string> out = values("set");
    if (has("seed")) {
        out.push_back("seed=" + text("seed"));
    }
    return out;
}

int run_command(const CommandLine& line) {
    for (const CommandSpec& command : command_table()) {
        if (line.command != command.name) {
            continue;
        }
        if (line.arguments.size() < command.min_arguments || line.arguments.size() > command.max_arguments) {
            throw ConfigError(
                fmt::format("'orrery {0}' takes {1}; see 'orrery help {0}'", command.name,
                            command.max_arguments == 0 ? "no argument"
                            : line.arguments.size() > command.max_arguments && command.max_arguments > 1
                                ? fmt::format("at most {} arguments", command.max_arguments)
                            : command.max_arguments > 1  ? fmt::format("at least {} arguments", command.min_arguments)
                            : command.min_arguments == 0 ? "at most one argument"
                                                         : "one argument"),
                ErrorCode::command_line);
        }
        check_options(line, command);
        check_outputs(line);
        (void)set_memory_limit(line.text("memory-limit"));
        outside::session().allows_code = line.has("allow-policies");
        const DataDirectory data = find_data_directory(line.program);
        return command_functions().at(command.name)(line,
                                                    names_own_data(line) ? data.with_own(line.text("data")) : data);
    }
    throw unknown_command(line.command);
}

}  // namespace orrery::program
