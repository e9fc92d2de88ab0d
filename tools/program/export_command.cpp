// orrery export: a scenario's work, or what a run measured, in the formats of other tools.

#include "sim/base/error.hpp"
#include "sim/record/metric_table.hpp"
#include "tools/driver/kinds/messages.hpp"
#include "tools/driver/kinds/replay.hpp"
#include "tools/driver/run.hpp"
#include "tools/driver/scenario.hpp"
#include "tools/program/commands.hpp"
#include "tools/program/export_formats.hpp"
#include "tools/program/export_megatron.hpp"
#include "tools/program/outputs.hpp"
#include "tools/terminal/terminal.hpp"
#include "workloads/collective/algorithms/algorithm.hpp"
#include "workloads/collective/choose.hpp"
#include "workloads/collective/programs/program.hpp"
#include "workloads/replay/program_export.hpp"
#include "workloads/trace/flow_export.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

namespace orrery::program {

namespace {

// A run of the scenario's messages, one by one.
MessageRecord messages_of(const Scenario& scenario, ModelCache& models) {
    if (scenario.find<CollectiveKind>() == nullptr && scenario.find<NetworkKind>() == nullptr) {
        throw ConfigError(fmt::format("messages are written of scenarios of kind collective and network, not {}",
                                      scenario.kind().name),
                          ErrorCode::command_line);
    }
    RunOptions options;
    options.messages = true;
    RunOutput out = run_scenario(scenario, models, options);
    if (!out.messages) {
        throw InfeasibleError(
            fmt::format("the scenario has more than {} messages, or one stands for many", kMostListed));
    }
    return *std::move(out.messages);
}

// The program of a replay as recorded, or what sends and receives the messages of a run.
ReplayTrace program_of_scenario(const Scenario& scenario, ModelCache& models) {
    if (const auto* own = scenario.find<RecordKind>(); own != nullptr) {
        return replay::read_replay(scenario.file(own->replay.trace));
    }
    return replay::program_of(messages_of(scenario, models).schedule, fabric_of(scenario).gpus());
}

// A file for each rank, and one of groups, by the name that --output gives.
void write_chakra(const CommandLine& line, const Scenario& scenario, ModelCache& models) {
    const std::string name = line.has("output") ? line.text("output") : "-";
    if (name == "-") {
        throw ConfigError("'orrery export chakra' writes a file for each rank: give --output NAME for NAME.0.et, ...",
                          ErrorCode::command_line);
    }
    const replay::ChakraFiles files = replay::chakra_files(program_of_scenario(scenario, models));
    for (std::size_t rank = 0; rank < files.ranks.size(); ++rank) {
        write_output(line, "the trace", fmt::format("{}.{}.et", name, rank), files.ranks[rank]);
    }
    if (!files.groups.empty()) {
        write_output(line, "the groups", name + ".json", files.groups);
    }
    if (!line.quiet()) {
        say("{0}.0.et to {0}.{1}.et written\n", name, files.ranks.size() - 1);
    }
}

std::string write_program(const Scenario& scenario) {
    const auto* own = scenario.find<CollectiveKind>();
    if (own == nullptr) {
        throw ConfigError(
            fmt::format("programs are written of scenarios of kind collective, not {}", scenario.kind().name),
            ErrorCode::command_line);
    }
    CollectiveSpec spec = own->collective_of(scenario);
    const Fabric fabric = fabric_of(scenario);
    const auto ranks = spec.ranks > 0 ? static_cast<std::uint32_t>(spec.ranks) : fabric.gpus();
    if (ranks > fabric.gpus() || ranks < 2) {
        throw InfeasibleError(fmt::format("{} ranks, but the cluster has {} GPUs", ranks, fabric.gpus()),
                              ErrorCode::too_few_gpus);
    }
    spec = resolved(spec, fabric, Placement(fabric), scenario.network.path_choice(), ranks);
    const std::string name = spec.algorithm->name;
    require_schedule_size(spec.algorithm->messages(spec, ranks, fabric.gpus_per_domain()));
    if (name == "ring") {
        return write_msccl(ring_program(spec.op, ranks));
    }
    if (name == "tree") {
        return write_msccl(tree_program(spec.op, ranks, static_cast<std::uint32_t>(spec.pipeline)));
    }
    if (name == "program") {
        return write_msccl(read_program(spec.program, spec.op, ranks));
    }
    throw InfeasibleError(
        fmt::format("algorithm {} is no program; ring, tree and program are: set collective.algorithm", name));
}

std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
        out += c == '\\' ? "\\\\" : c == '"' ? "\\\"" : c == '\n' ? "\\n" : std::string(1, c);
    }
    return out;
}

// A family has one name; jobs and quantiles are labels.
struct OpenMetric {
    std::string family;
    std::string labels;
};

OpenMetric open_metric(const Summary& summary, const std::string& name) {
    std::vector<std::string> parts;
    for (std::size_t start = 0; start <= name.size();) {
        const std::size_t end = std::min(name.find('.', start), name.size());
        parts.push_back(name.substr(start, end - start));
        start = end + 1;
    }
    OpenMetric out;
    out.labels = fmt::format("scenario=\"{}\",seed=\"{}\"", escaped(summary.scenario), summary.seed);
    static const std::vector<std::string> kStatistics = {"mean", "p50", "p90", "p95", "p99", "p999", "max", "min"};
    if (parts.size() > 1 && std::find(kStatistics.begin(), kStatistics.end(), parts.back()) != kStatistics.end()) {
        out.labels += fmt::format(",statistic=\"{}\"", parts.back());
        parts.pop_back();
    }
    out.family = "orrery_" + parts.back();
    parts.pop_back();
    if (!parts.empty()) {
        out.labels += fmt::format(",job=\"{}\"", escaped(fmt::format("{}", fmt::join(parts, "."))));
    }
    for (char& c : out.family) {
        c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
    }
    return out;
}

std::string open_metrics(const Summary& summary) {
    struct Family {
        std::string help;
        std::string samples;
    };
    std::vector<std::string> order;
    std::map<std::string, Family> families;
    const auto add = [&](const std::string& family, const std::string& help, const std::string& labels, double value) {
        if (!families.contains(family)) {
            order.push_back(family);
            families[family].help = help;
        }
        families[family].samples += fmt::format("{}{{{}}} {}\n", family, labels, value);
    };
    for (const Metric& metric : summary.metrics) {
        if (!metric.measured()) {
            continue;
        }
        const OpenMetric name = open_metric(summary, metric.name);
        const MetricRow* row = row_of_metric(metric.name);
        const std::string meaning = row != nullptr ? row->meaning : metric.name;
        const std::string unit = metric.unit == "1" ? "" : fmt::format(" ({})", metric.unit);
        add(name.family, meaning + unit, name.labels, metric.value);
        if (metric.low && metric.high) {
            add(name.family + "_low", "lower end of the 90 % interval of " + name.family, name.labels, *metric.low);
            add(name.family + "_high", "upper end of the 90 % interval of " + name.family, name.labels, *metric.high);
        }
    }
    std::string out;
    for (const std::string& family : order) {
        out += fmt::format("# TYPE {0} gauge\n# HELP {0} {1}\n{2}", family, escaped(families[family].help),
                           families[family].samples);
    }
    return out + "# EOF\n";
}

std::string exported(const std::string& format, const Scenario& scenario, ModelCache& models) {
    if (format == "msccl") {
        return write_program(scenario);
    }
    if (format == "megatron") {
        return megatron_script(scenario, models.data());
    }
    if (format == "openmetrics") {
        return open_metrics(run_scenario(scenario, models, {}).summary);
    }
    if (format == "goal") {
        return replay::goal_text(program_of_scenario(scenario, models));
    }
    const Schedule schedule = messages_of(scenario, models).schedule;
    return format == "flows" ? flows_csv(schedule) : htsim_matrix(schedule, fabric_of(scenario).gpus());
}

}  // namespace

const std::vector<ChoiceSpec>& export_formats() {
    static const std::vector<ChoiceSpec> kFormats = {
        {"flows", "messages of a collective or network scenario as CSV, which traffic.flows reads"},
        {"htsim", "the same as a connection matrix of htsim (.cm)"},
        {"goal", "messages of a collective or network scenario, or the program of a replay, as GOAL of LogGOPSim"},
        {"chakra",
         "the same as Chakra's execution traces of ASTRA-sim: NAME.0.et, NAME.1.et, ..., and NAME.json of groups"},
        {"msccl", "a collective by ring, tree or program as MSCCL's XML, which collective.program reads"},
        {"megatron", "a training scenario as the command line of Megatron-LM, which import megatron-args reads back"},
        {"openmetrics", "metrics of a run, for Prometheus and others"}};
    return kFormats;
}

int command_export(const CommandLine& line, const DataDirectory& data) {
    const std::string& format = line.arguments[0];
    const auto& formats = export_formats();
    if (std::none_of(formats.begin(), formats.end(), [&](const ChoiceSpec& one) { return format == one.name; })) {
        std::vector<std::string> names;
        for (const ChoiceSpec& one : formats) {
            names.emplace_back(one.name);
        }
        const std::string near = nearest_name(format, names);
        throw ConfigError(
            fmt::format("unknown format '{}'{}; it is one of {}", format,
                        near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near), fmt::join(names, ", ")),
            ErrorCode::unknown_name);
    }
    const Scenario scenario = load_scenario(line.arguments[1], line.overrides(), data);
    check_outputs(line, files_of(scenario));
    ModelCache models(data);
    if (format == "chakra") {
        write_chakra(line, scenario, models);
        return 0;
    }
    const std::string text = exported(format, scenario, models);
    const std::string out = line.has("output") ? line.text("output") : "-";
    write_output(line, "--output", out, text);
    if (out != "-" && !line.quiet()) {
        say("{} written\n", out);
    }
    return 0;
}

}  // namespace orrery::program
