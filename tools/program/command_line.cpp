#include "tools/program/command_line.hpp"

#include "tools/driver/kind.hpp"
#include "tools/init/starter.hpp"
#include "tools/program/error_codes.hpp"
#include "tools/program/export_formats.hpp"
#include "tools/reference/reference.hpp"
#include "workloads/imports/importer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace orrery::program {

namespace {

const OptionSpec kSet = {"set", "key.path=value", "change a value of the scenario", true, false, "fields"};
const OptionSpec kSeed = {"seed", "N", "seed of all random streams"};
constexpr OptionSpec writes(const char* name, const char* argument, const char* help) {
    return {name, argument, help, false, true};
}
const OptionSpec kReport = writes("report", "FILE.html", "write a report: one file, no network needed to read it");
const OptionSpec kData = {"data", "DIR",
                          "presets and kernels of your own, such as models/data/devices/my-gpu.yaml in it"};
const OptionSpec kAll = {"all", "",
                         "every column in full; without it they fit the terminal, or COLUMNS characters where that is "
                         "set (a pipe or a file without it: all)"};
const OptionSpec kAllowPolicies = {"allow-policies", "",
                                   "load the code of policies that the scenario names (kind: outside); read it first"};
const OptionSpec kPolicyTimeout = {"policy-timeout", "TIME",
                                   "longest time for a decision of a policy's process; 30 s by default"};
const OptionSpec kRecordDecisions = writes("record-decisions", "FILE.jsonl",
                                           "write the decisions of external policies, to replay the run without them");
const OptionSpec kJobs = {"jobs,j", "N", "processes; default: all cores"};

std::string long_name(const OptionSpec& option) {
    const std::string name = option.name;
    return name.substr(0, name.find(','));
}

std::string shown(const OptionSpec& option) {
    const std::string name = option.name;
    const auto comma = name.find(',');
    return fmt::format("{}--{}{}{}", comma == std::string::npos ? "" : "-" + name.substr(comma + 1) + ", ",
                       long_name(option), *option.argument == '\0' ? "" : " ", option.argument);
}

std::string option_lines(const std::vector<OptionSpec>& options) {
    std::string out;
    for (const OptionSpec& option : options) {
        out += fmt::format("  {:<28} {}{}\n", shown(option), option.help, option.repeats ? " (repeatable)" : "");
    }
    return out;
}

// What importers take and are called comes from their table.
std::vector<OptionSpec> import_options() {
    std::vector<OptionSpec> out = {writes("output,o", "FILE", "file to write; NAME with an extension by default")};
    for (const Importer* row : importer_table()) {
        for (const ImportOption& option : row->options) {
            const auto same = std::find_if(out.begin(), out.end(),
                                           [&](const OptionSpec& one) { return std::string(one.name) == option.name; });
            if (same == out.end()) {
                out.push_back({option.name, option.argument, fmt::format("{}: {}", row->name, option.description)});
            } else {
                same->help = fmt::format("{}, {}", row->name, same->help);
            }
        }
    }
    return out;
}

std::vector<ChoiceSpec> import_formats() {
    std::vector<ChoiceSpec> out;
    for (const Importer* row : importer_table()) {
        out.push_back({row->name, row->description});
    }
    return out;
}

std::vector<ChoiceSpec> starter_kinds() {
    std::vector<ChoiceSpec> out;
    for (const StarterRow& row : starter_table()) {
        out.push_back({row.kind, row.asks});
    }
    return out;
}

std::string choice_lines(const CommandSpec& spec) {
    std::string out;
    for (const ChoiceSpec& choice : spec.choices) {
        out += *choice.help == '\0' ? "" : fmt::format("  {:<28} {}\n", choice.name, choice.help);
    }
    const std::string arguments = spec.arguments;
    return out.empty() ? out : fmt::format("{}:\n{}\n", arguments.substr(0, arguments.find(' ')), out);
}

constexpr const char* kExitCodes = "exit codes: 0 fine, 1 a check failed, 2 bad input, 3 infeasible, 4 internal error";

// Of a command line's completions alone: `orrery list` and `orrery help` say what each is.
std::vector<ChoiceSpec> list_topics() {
    std::vector<ChoiceSpec> out;
    for (const char* topic :
         {"models", "nodes", "hosts", "devices", "softwares", "engines", "schedules", "schedulers", "routers",
          "algorithms", "transports", "paths", "metrics", "scenarios", "papers", "formats", "fields"}) {
        out.push_back({topic, ""});
    }
    return out;
}

std::vector<ChoiceSpec> schema_kinds() {
    std::vector<ChoiceSpec> out;
    for (const std::string& kind : scenario_kind_names()) {  // they last as long as the program
        out.push_back({kind.c_str(), ""});
    }
    out.push_back({"sweep", ""});
    out.push_back({"baseline", ""});
    out.push_back({"summary", ""});
    return out;
}

}  // namespace

const std::vector<ChoiceSpec>& plot_kinds() {
    static const std::vector<ChoiceSpec> kKinds = {
        {"breakdown", "breakdown of a scenario's time"},
        {"timeline", "timeline of a scenario: what runs when"},
        {"fabric", "switches and links of a scenario"},
        {"curves", "curve of a metric along a column of a database; bars where the column holds names"},
        {"heat", "heat map of a metric over two columns of a database"},
        {"pareto", "Pareto front of two metrics of a database"}};
    return kKinds;
}

const std::vector<CommandSpec>& command_table() {
    static const std::vector<CommandSpec> kCommands = {
        {"run",
         "FILE",
         1,
         1,
         "simulate a scenario (\"-\": standard input)",
         {kSet,
          kSeed,
          kData,
          writes("json", "FILE", "write the summary (\"-\": standard output)"),
          {"host", "", "include this machine's wall time and peak memory in the summary"},
          {"dry-run", "", "check the scenario, say what a run will take, and run nothing"},
          writes("trace", "FILE", "write a timeline for ui.perfetto.dev"),
          writes("requests", "FILE.csv", "serving: write the outcome and times of each request"),
          writes("flows", "FILE.csv",
                 "network, collective, training: each message's start, end and slowdown over being alone (of training "
                 "those between nodes); packet fidelity: its paths, losses and marks too (.sqlite: as a database)"),
          writes("flow-samples", "FILE.csv",
                 "packet fidelity: window, rate and marks of messages over time, every network.flow_samples (.sqlite: "
                 "as a database)"),
          writes("ports", "FILE.csv", "packet fidelity: bytes, queues, marks, drops, pauses of every port"),
          writes("queues", "FILE.csv", "packet fidelity: queues over time, every network.queue_samples"),
          kReport,
          writes("resolved", "FILE", "write the scenario with all presets expanded"),
          writes("junit", "FILE", "write the outcome of the scenario's 'expect' as JUnit XML"),
          kAllowPolicies,
          kPolicyTimeout,
          kRecordDecisions,
          {"watch", "", "run again whenever the scenario or a file that it reads changes, until Ctrl-C"}},
         {"orrery run scenarios/training/gpt3-175b-1024xA100.yaml",
          "orrery run scenarios/training/gpt3-175b-1024xA100.yaml --set plan.tensor=4 --set plan.pipeline=32 --json -",
          "orrery run - --quiet --json summary.json < scenario.yaml"}},
        {"serve-clock",
         "FILE",
         1,
         1,
         "run a scenario whose policies a process of yours decides over a Unix socket, while Orrery keeps the clock",
         {{"socket", "PATH", "path of the socket to create for the process"},
          {"wait", "TIME", "longest time to wait for the process; 60 s by default"},
          kPolicyTimeout,
          kRecordDecisions,
          kAllowPolicies,
          kSet,
          kSeed,
          kData,
          writes("json", "FILE", "write the summary (\"-\": standard output)"),
          writes("trace", "FILE", "write a timeline for ui.perfetto.dev"),
          writes("requests", "FILE.csv", "serving: write the outcome and times of each request"),
          kReport},
         {"orrery serve-clock scenarios/policies/socket.yaml --socket decide.sock"}},
        {"explain",
         "FILE",
         1,
         1,
         "explain a run: sources of all values, critical path, bottlenecks and what would help",
         {kSet,
          kSeed,
          kData,
          kAllowPolicies,
          {"sensitivity", "", "print the effect of 20 % more or less of each assumed or recalled constant"},
          writes("json", "FILE", "write the explanation (\"-\": standard output)")},
         {"orrery explain scenarios/training/gpt3-175b-1024xA100.yaml",
          "orrery explain scenarios/training/gpt3-175b-1024xA100.yaml --sensitivity"}},
        {"diff",
         "FIRST [SECOND]",
         1,
         2,
         "compare two scenarios: the effect of each differing input, where time moved, the first event that differs",
         {{"set", "key.path=value", "change a value of the second; with one file, of its copy", true},
          kSeed,
          kAllowPolicies,
          kData},
         {"orrery diff scenarios/training/gpt3-175b-1024xA100.yaml --set plan.micro_batch=2",
          "orrery diff before.yaml after.yaml"}},
        {"compare",
         "FILE...",
         2,
         100,
         "compare scenarios or JSON summaries side by side: each metric and its change against the first",
         {kSet,
          kSeed,
          kAllowPolicies,
          {"metrics", "NAMES", "metrics to show, such as ttft_s,mfu; a name alone stands for all its quantiles", true},
          {"all", "", "include metrics that are equal everywhere"},
          writes("export-markdown", "FILE",
                 "write the table (\"-\": standard output); --export markdown FILE is the same"),
          writes("export-csv", "FILE", "write the table as CSV"),
          writes("export-json", "FILE", "write the table as JSON"),
          writes("export-svg", "FILE", "write a bar chart of the differences against the first"),
          kReport},
         {"orrery compare scenarios/training/gpt3-175b-1024xA100.yaml other.yaml",
          "orrery compare before.json after.json --metrics iteration_time_s,mfu --export markdown comparison.md"}},
        {"plan",
         "FILE",
         1,
         1,
         "search for the best parallel plans of a training scenario, or the best replicas of a serving one",
         {kSet,
          kJobs,
          kData,
          {"simulate", "N", "plans to simulate in full, best estimates first; 50 by default (serving: 20)"},
          {"top", "N", "rows to show; 10 by default"},
          kAll,
          {"headroom", "SHARE", "training: share of GPU memory that a plan keeps free; 5 % by default"},
          {"engine", "NAME", "training: plans that this software runs alone: megatron, torchtitan, deepspeed or fsdp"},
          {"nodes", "LIST", "sizes of cluster to search, such as 64,128"},
          {"price", "NUMBER", "USD per GPU hour, in place of the scenario's price"},
          {"attainment", "SHARE", "serving: share of requests that must meet all limits; 0.9 by default"},
          {"percentile", "P",
           "serving: percentile (50, 90 or 99) that must meet each limit, instead of a share of requests"},
          {"tolerance", "X", "serving: relative width at which a search for the highest rate ends; 0.02 by default"},
          writes("output,o", "FILE", "write the scenario with the best plan (\"-\": standard output)"),
          writes("json", "FILE", "write every feasible plan (\"-\": standard output)"),
          kReport},
         {"orrery plan scenarios/training/gpt3-175b-1024xA100.yaml -o best.yaml",
          "orrery plan scenarios/serving/llama-2-70b-conversations.yaml",
          "orrery plan scenarios/training/gpt3-175b-1024xA100.yaml --nodes 64,128,192 --price 2.5 --top 20"}},
        {"capacity",
         "FILE",
         1,
         1,
         "find the highest request rate that a serving scenario sustains within its SLO",
         {kAllowPolicies,
          kSet,
          kSeed,
          kData,
          {"attainment", "SHARE", "share of requests that must meet all limits; 0.9 by default"},
          {"percentile", "P", "percentile (50, 90 or 99) that must meet each limit, instead of a share of requests"},
          {"seeds", "N", "number of seeds to search with, for the confidence interval; 5 by default"},
          {"tolerance", "X", "relative width at which a search ends; 0.02 by default"},
          writes("json", "FILE", "write the capacity and every rate tried (\"-\": standard output)"),
          kReport},
         {"orrery capacity scenarios/serving/llama-2-70b-conversations.yaml",
          "orrery capacity scenarios/serving/llama-2-70b-conversations.yaml --percentile 99"}},
        {"recommend",
         "FILE",
         1,
         1,
         "find the cheapest devices, replicas and number of GPUs for a serving load within its SLO",
         {kSet,
          kSeed,
          kJobs,
          kData,
          {"gpus", "LIST", "devices or nodes to choose from, such as h100-sxm,p5en-h200; the scenario's own by default",
           true},
          {"slo", "LIST",
           "limits on percentiles of ttft, tpot, tbt or e2e, such as ttft_p95=2s,tpot_p95=50ms; the scenario's 'slo' "
           "by "
           "default",
           true},
          {"attainment", "SHARE",
           "share of requests that must meet all limits of the scenario's 'slo'; 0.9 by default"},
          {"max-gpus", "N", "largest number of GPUs to use; 256 by default"},
          {"budget", "USD", "largest cost per hour"},
          {"spare", "N", "replicas of each pool that may be lost while the limits hold; 0 by default"},
          {"pricing", "KIND", "class of prices: on-demand, reserved, spot or owned (models/data/prices.yaml)"},
          {"price", "LIST", "prices of a GPU hour, such as h100-sxm=2.2,b200-sxm=4.1", true},
          {"whole-nodes", "", "pay for whole nodes, with all their GPUs"},
          {"weights", "LIST", "precisions of the weights; the scenario's and the narrower ones of a device by default",
           true},
          {"engines", "LIST", "versions of inference engines; the scenario's own by default", true, false, "engines"},
          {"routers", "LIST", "routers to try; the scenario's own by default", true, false, "routers"},
          {"pools", "LIST", "pools to try: mixed, split (separate prefill and decode) or both; both by default", true},
          {"judged", "N", "least number of arrangements to judge on the whole load; 12 by default"},
          {"exhaustive", "", "try every number of replicas of every arrangement on the whole load"},
          {"top", "N", "rows to show; 10 by default"},
          kAll,
          {"deploy", "DIR",
           "write files that start the cheapest arrangement in vLLM, SGLang, TensorRT-LLM, Dynamo and llm-d"},
          writes("output,o", "FILE", "write the scenario with the cheapest arrangement (\"-\": standard output)"),
          writes("json", "FILE", "write every arrangement that was judged (\"-\": standard output)"),
          kReport},
         {"orrery recommend scenarios/serving/llama-2-70b-conversations.yaml --gpus h100-sxm,h200-sxm,b200-sxm -o "
          "best.yaml",
          "orrery recommend scenarios/serving/llama-2-70b-conversations.yaml --set requests.rate=20 --slo "
          "ttft_p95=2s,tpot_p95=50ms --spare 1"}},
        {"sweep",
         "FILE",
         1,
         1,
         "run every point of a sweep into a database",
         {kSet,
          kJobs,
          kData,
          kAllowPolicies,
          writes("db", "FILE", "the database of results"),
          {"resume", "", "continue a database; points with results are not run again"},
          {"shard", "I/N", "run part I of N (I from 0)"},
          {"timeout", "TIME", "wall time a point may take, such as \"60 s\""},
          {"slurm", "N", "run as a Slurm job array of N tasks: submit, follow, merge"},
          {"sbatch", "OPTION", "option to pass on to Slurm, such as --partition=long", true},
          {"kubernetes", "N", "write the manifest of a Kubernetes Indexed Job of N pods, with the files it needs"},
          {"image", "NAME", "kubernetes: container image with orrery; \"orrery\" by default"},
          {"claim", "NAME", "kubernetes: volume claim for results; \"orrery-results\" by default"},
          writes("output,o", "FILE", "kubernetes: where to write the manifest (\"-\": standard output, the default)"),
          kReport,
          {"dry-run", "", "count the points and show the first ones"}},
         {"orrery sweep scenarios/sweeps/gpt3-175b-plans.yaml -j 2 --db results.sqlite",
          "orrery sweep scenarios/sweeps/gpt3-175b-plans.yaml --db results.sqlite --resume",
          "orrery sweep scenarios/sweeps/gpt3-175b-plans.yaml --shard 0/4 --db part-0.sqlite",
          "orrery sweep scenarios/sweeps/gpt3-175b-plans.yaml --kubernetes 8 -o sweep-job.yaml"}},
        {"table",
         "DATABASE",
         1,
         1,
         "filter, group, pivot and export the results of a sweep",
         {{"where", "EXPRESSION", "rows to keep, such as 'status == \"done\" and mfu > 0.4'"},
          {"group", "COLUMNS", "one row for equal values of these columns"},
          {"aggregate", "HOW", "aggregate of a group: mean (default), min, max, median, sum or count"},
          {"pivot", "ROW,COLUMN,VALUE", "values of one column across those of another"},
          {"columns", "COLUMNS", "columns to show, in this order"},
          {"intervals", "", "the ends of 90 % intervals, as columns NAME.low and NAME.high"},
          {"sort", "COLUMNS", "\"-name\" sorts downwards"},
          {"limit", "N", "largest number of rows to show"},
          kAll,
          {"format", "FORMAT", "text (default), csv or json"},
          writes("output,o", "FILE", "file to write instead of standard output"),
          kReport},
         {"orrery table results.sqlite --where 'status == \"done\"' --sort iteration_time_s --limit 10",
          "orrery table results.sqlite --pivot plan.tensor,plan.pipeline,mfu",
          "orrery table results.sqlite --intervals --columns point,mfu,mfu.low,mfu.high",
          "orrery table results.sqlite --format csv --output results.csv"}},
        {"merge",
         "TARGET PART...",
         2,
         100'000,
         "put the databases of shards into one",
         {},
         {"orrery merge results.sqlite part-*.sqlite"}},
        {"plot",
         "KIND FILE",
         2,
         2,
         "draw an SVG chart of a scenario (breakdown, timeline, fabric) or of sweep results (curves, heat, pareto)",
         {kSet,
          kSeed,
          kData,
          writes("output,o", "FILE.svg", "file to write (\"-\": standard output, the default)"),
          {"x", "COLUMN", "curves, heat: along the x axis; pareto: what is compared, memory by default"},
          {"y", "COLUMN", "curves, pareto: the metric; heat: along the y axis"},
          {"by", "COLUMN", "curves: one line for each of its values"},
          {"value", "COLUMN", "heat: the metric"},
          {"where", "EXPRESSION", "rows of the database to use"},
          {"lower", "COLUMNS", "pareto: columns to minimise, where they are not metrics", true},
          {"higher", "COLUMNS", "pareto: columns to maximise", true}},
         {"orrery plot timeline scenarios/training/gpt3-175b-1024xA100.yaml --output timeline.svg",
          "orrery plot heat results.sqlite --x plan.tensor --y plan.pipeline --value mfu --output heat.svg"},
         plot_kinds()},
        {"check",
         "BASELINE...",
         1,
         10'000,
         "check pinned scenarios against their baselines; exit code 1 when one regressed",
         {writes("junit", "FILE", "write the outcome as JUnit XML"),
          writes("summary", "FILE", "write the outcome as Markdown, for the summary of a CI job"),
          kReport,
          {"update", "", "rewrite the baselines with the values of this version"},
          {"reason", "TEXT", "reason for the new values (needed by --update)"},
          {"scenario", "FILE", "scenario to make a new baseline of, with --update"},
          kSet},
         {"orrery check baselines/*.yaml --junit check.xml",
          "orrery check baselines/gpt3-175b.yaml --update --reason 'kernel tables measured anew'",
          "orrery check baselines/new.yaml --update --scenario scenario.yaml --reason 'first'"}},
        {"import",
         "FORMAT FILE",
         2,
         2,
         "convert recordings and configurations of other tools to scenarios, programs or requests",
         import_options(),
         {"orrery import pytorch-profiler step.json -o step.replay", "orrery import nsys report.sqlite",
          "orrery import chakra traces/gpt.0.et"},
         import_formats()},
        {"export",
         "FORMAT FILE",
         2,
         2,
         "write a scenario's messages, collective, plan or metrics in the formats of other tools",
         {kSet, kSeed, kData, kAllowPolicies,
          writes("output,o", "FILE", "file to write (\"-\": standard output, the default)")},
         {"orrery export htsim scenarios/network/packet-permutation-128.yaml -o permutation.cm",
          "orrery export msccl scenarios/collective/ring-degraded-link.yaml -o ring.xml"},
         export_formats()},
        {"init",
         "KIND",
         1,
         1,
         "write a commented scenario that runs, from a few facts",
         {{"gpus", "N", "GPUs of the cluster (network: hosts)"},
          {"device", "NAME", "device or node that has them (orrery list devices, orrery list nodes)", false, false,
           "devices"},
          {"model", "NAME", "training, serving: the model (orrery list models)", false, false, "models"},
          {"base", "FILE", "sweep: the scenario to vary"},
          {"trace", "FILE", "replay: file that 'orrery import' wrote"},
          writes("output,o", "FILE", "file to write (\"-\": standard output, the default)")},
         {"orrery init training --gpus 512 --device h100-sxm --model llama-3-70b -o train.yaml",
          "orrery init serving --gpus 1 --device h100-sxm --model llama-3-8b -o serve.yaml",
          "orrery init sweep --base train.yaml -o sweep.yaml"},
         starter_kinds()},
        {"topology",
         "FILE",
         1,
         1,
         "print the cluster of a scenario: links, capacities, paths",
         {kSet, kData, writes("svg", "FILE", "picture of the cluster as SVG; plot fabric draws it with link loads")},
         {}},
        {"validate",
         "[SUITE]",
         0,
         1,
         "predictions against measured runs: compute, training, collectives, devices, serving, serving-reports, "
         "disaggregated, fleets, mlperf, engine-memory, training-memory, faults, energy, rl",
         {{"points", "", "print every point"},
          {"data", "DIR",
           "compute: refit the public profiles in DIR; collectives: compare other collections; faults: jobs on logged "
           "spot machines; with --trace: presets and kernels of your own"},
          {"log", "FILE", "serving: scenario to compare with the latencies that its request trace logged"},
          {"trace", "FILE", "compute: price the rows of a trace of microbenchmarks, first of all those held back"},
          {"kernels", "FILE", "kernels of the layers and steps of --trace, as tools/torchbench --profile wrote them"},
          {"fit", "", "fit the software constants on the training half of the data"},
          {"engine", "NAME", "serving: engine software to score alone", false, false, "engines"},
          {"runs", "FILE", "training: measured runs of your own, written as those of validation/training"},
          {"without", "MECHANISM",
           "training: switch a mechanism off (launches, expert-wait, slowest-device, contention, fused-casts, "
           "split-accumulator, buckets, biases, split-heads, waits-at-ends, row-casts, cuts-only, row-gathers, "
           "copied-sequences, repeated-keys, counted-updates)",
           true},
          writes("svg", "FILE", "predicted against measured as a picture"),
          {"limits", "FILE", "file of limits for the scores; validation/thresholds.yaml by default"},
          kReport},
         {"orrery validate training --points", "orrery validate compute"}},
        {"calibrate",
         "[TRACE]",
         0,
         1,
         "fit kernels and collectives on a trace of microbenchmarks, or on the public profiles of a directory",
         {{"data", "DIR",
           "the public profiles (CONTRIBUTING.md, Raw data); with a trace: presets and kernels of your own"},
          {"without", "TEXT", "leave out rows whose operation, dtype, library, kernel or point holds it", true},
          writes("output,o", "DIR", "folder to write the fits to")},
         {"orrery calibrate trace.csv -o models/data/kernels/my-device",
          "orrery calibrate trace.csv --data mine -o mine/models/data/kernels/my-gpu"}},
        {"price",
         "[OPERATION] [NAME=NUMBER...]",
         0,
         20,
         "predict the time of one kernel or collective, a table of them, or a model's layers (layer MODEL), with "
         "spread and source",
         {{"device", "NAME", "device that kernels run on"},
          {"node", "NAME", "node that collectives run on; kernels run on its GPU"},
          {"dtype", "FORMAT", "number format of the operands; bf16 by default"},
          {"kv-dtype", "FORMAT", "number format of cached keys and values; bf16 by default"},
          {"kernels", "SET", "kernels of a library, where the device has a set of its own for it"},
          {"library", "NAME", "library of collectives: nccl (default), vllm, sglang or trtllm"},
          {"table", "FILE",
           "CSV with the columns op and shape, and where they differ by row phase, dtype, kv_dtype, device, node, "
           "kernels, library"},
          kData,
          writes("json", "FILE", "write the prices (\"-\": standard output)"),
          writes("output,o", "FILE.csv", "write the prices as a table")},
         {"orrery price gemm m=4096 n=14336 k=4096 --device h100-sxm",
          "orrery price attention_decode batch=64 keys=4096 heads=32 kv_heads=8 head_dim=128 --device h200-sxm",
          "orrery price all_reduce bytes=16777216 ranks=8 --node dgx-h100 --library vllm",
          "orrery price layer qwen3-32b sequences=64 keys=4096 tensor=2 --device h100-sxm"}},
        {"list",
         "[KIND]",
         0,
         1,
         "names of presets, policies, scenarios, published systems, formats, metrics and fields; with --quiet the "
         "names alone",
         {kData, writes("json", "FILE", "write one list (\"-\": standard output)")},
         {"orrery list models", "orrery list engines --quiet", "orrery list papers"},
         list_topics()},
        {"schema",
         "[KIND]",
         0,
         1,
         "JSON Schema: of scenarios of all kinds, for editors, or of the KIND of file named; summary: of what run "
         "--json writes",
         {},
         {"orrery schema > scenario.schema.json", "orrery schema sweep > sweep.schema.json",
          "orrery schema summary > summary.schema.json"},
         schema_kinds()},
        {"mcp",
         "",
         0,
         0,
         "tools for agents: a Model Context Protocol server on standard input and output",
         {kData},
         {"orrery mcp"}},
        {"serve",
         "",
         0,
         0,
         "an HTTP service on this machine: a page to try scenarios on, and every command as a JSON API "
         "(/v1/openapi.json)",
         {kData,
          {"port", "N", "port it listens at; 8321 by default, 0: any free one"},
          {"folder", "DIR", "folder whose files scenarios may name; without it they name none"},
          {"jobs,j", "N", "runs at once; default: all cores"},
          {"timeout", "TIME", "wall time a run may take; \"300 s\" by default"},
          {"listen", "ADDRESS", "address it listens at instead of 127.0.0.1; needs --token-file"},
          {"token-file", "FILE", "file with the token that clients must send"},
          {"unconfined", "", "serve on a kernel without Landlock, where a scenario may name any file"}},
         {"orrery serve", "orrery serve --port 0 --folder scenarios"}},
        {"emulate",
         "FILE...",
         1,
         16,
         "an engine to talk to: OpenAI's completions and chat with streaming, and vLLM's metrics, at the pace of a "
         "serving "
         "scenario under the load of your clients (gateways, autoscalers, load generators); NAME=FILE names a model",
         {{"port", "N", "port it listens at; 8000 by default, 0: any free one"},
          {"scale", "X", "simulated time goes X times as fast as that of the wall; 1 by default"},
          {"duration", "TIME", "end after so long; without it at Ctrl-C"},
          {"fail", "SHARE", "share of the answers that fail: with status 500, or within a stream"},
          {"most-answers", "N", "largest number of answers in flight; further clients get status 503; 1024 by default"},
          {"listen", "ADDRESS", "address it listens at instead of 127.0.0.1; needs --token-file"},
          {"token-file", "FILE", "file with the token that clients must send"},
          writes("json", "FILE", "write what the simulations measured at the end (\"-\": standard output)"),
          kSet,
          kSeed,
          kData},
         {"orrery emulate scenarios/serving/llama-2-70b-conversations.yaml",
          "orrery emulate large=a.yaml small=b.yaml --port 0 --scale 10"}},
        {"completion",
         "SHELL",
         1,
         1,
         "a completion script for bash or zsh",
         {},
         {"orrery completion bash > ~/.local/share/bash-completion/completions/orrery"}},
        {"manual",
         "[SECTION]",
         0,
         1,
         "a manual page, for man -l",
         {},
         {"orrery manual | man -l -", "orrery manual 5 | man -l -"},
         {{"1", "this program (the default)"}, {"5", "the scenario language"}}},
        {"help",
         "[TOPIC [KEY]]",
         0,
         2,
         "what a command does (TOPIC: its name), what a scenario may say (its kind), what a metric or an error means "
         "(its name or code), or the whole reference of the scenario language (reference)",
         {},
         {"orrery help plan", "orrery help training", "orrery help training plan.tensor", "orrery help ttft_s",
          "orrery help E204"},
         {},
         "fields"},
        {"version", "", 0, 0, "version, commit and libraries", {}, {}},
    };
    return kCommands;
}

const std::vector<OptionSpec>& common_options() {
    static const std::vector<OptionSpec> kOptions = {
        {"quiet", "", "print nothing but errors and what was asked for"},
        {"color", "WHEN", "auto (default), always or never"},
        {"progress", "STYLE",
         "progress on standard error: auto (in place on a terminal, lines elsewhere), plain or none; "
         "default: $ORRERY_PROGRESS, or auto"},
        {"output-format", "FORMAT",
         "format of errors and failed checks: text (default), github (annotations) or json (one object per line)"},
        {"force", "", "write over inputs, edited files and files of other programs, which are kept without it"},
        {"memory-limit", "SIZE",
         "memory that this program may use, such as \"8 GiB\", or none; by default 90 % of free memory"},
        {"help,h", "", "print this text, or that of a command"},
        {"version", "", "version, commit and libraries"},
    };
    return kOptions;
}

ConfigError unknown_command(const std::string& name) {
    std::vector<std::string> names;
    for (const CommandSpec& command : command_table()) {
        names.emplace_back(command.name);
    }
    const std::string nearest = nearest_name(name, names);
    return ConfigError(fmt::format("unknown command '{}'{}; see 'orrery --help'", name,
                                   nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest)),
                       ErrorCode::command_line);
}

bool is_command(const std::string& name) {
    return std::any_of(command_table().begin(), command_table().end(),
                       [&](const CommandSpec& command) { return name == command.name; });
}

std::string help_text(const std::string& command) {
    for (const CommandSpec& spec : command_table()) {
        if (command != spec.name) {
            continue;
        }
        std::string out =
            fmt::format("usage: orrery {} {} [OPTIONS]\n\n{}\n\n{}options:\n{}{}", spec.name, spec.arguments, spec.help,
                        choice_lines(spec), option_lines(spec.options), option_lines(common_options()));
        if (!spec.examples.empty()) {
            out += "\nexamples:\n";
            for (const char* example : spec.examples) {
                out += fmt::format("  {}\n", example);
            }
        }
        return out + "\n" + kExitCodes + "\n";
    }
    if (const std::string text = error_help(command); !text.empty()) {
        return text;
    }
    if (!command.empty()) {
        throw unknown_command(command);
    }
    std::string out =
        "Orrery: a discrete-event simulator of AI clusters.\n\nusage: orrery COMMAND [ARGUMENTS] [OPTIONS]\n\n";
    for (const CommandSpec& spec : command_table()) {
        out += fmt::format("  {:<26} {}\n", fmt::format("{} {}", spec.name, spec.arguments), spec.help);
    }
    out += "\ncommon options:\n" + option_lines(common_options());
    out +=
        "\n'orrery help COMMAND' shows its options, 'orrery help training plan.tensor' what a scenario may say. "
        "Examples:\n";
    for (const char* name : {"run", "explain", "sweep"}) {
        for (const CommandSpec& spec : command_table()) {
            if (std::string(name) == spec.name && !spec.examples.empty()) {
                out += fmt::format("  {}\n", spec.examples[0]);
            }
        }
    }
    return out + "\n" + kExitCodes + "\n";
}

std::string completion_script(const std::string& shell) {
    std::string names;
    std::string cases;
    std::string choices;
    std::string seconds;
    std::string common;
    std::map<std::string, std::string> values;  // of options that are called the same everywhere
    for (const OptionSpec& option : common_options()) {
        common += " --" + long_name(option);
    }
    for (const CommandSpec& spec : command_table()) {
        names += (names.empty() ? "" : " ") + std::string(spec.name);
        std::string options;
        for (const OptionSpec& option : spec.options) {
            options += " --" + long_name(option);
            if (*option.names != '\0') {
                values[long_name(option)] = option.names;
            }
        }
        cases += fmt::format("        {}) options=\"{}{}\" ;;\n", spec.name,
                             options.empty() ? "" : options.substr(1) + " ", common.substr(1));
        std::string words;
        for (const ChoiceSpec& choice : spec.choices) {
            words += (words.empty() ? "" : " ") + std::string(choice.name);
        }
        if (!words.empty()) {
            choices += fmt::format("            {}) choices=\"{}\" ;;\n", spec.name, words);
        }
        if (*spec.second != '\0') {
            seconds += fmt::format("            {}) choices=$(orrery list {} --quiet 2>/dev/null) ;;\n", spec.name,
                                   spec.second);
        }
    }
    std::string topics = names + " reference";
    for (const std::string& kind : reference_kinds()) {
        topics += is_command(kind) ? "" : " " + kind;
    }
    choices += fmt::format("            help) choices=\"{}\" ;;\n", topics);
    std::string of_options;
    for (const auto& [option, topic] : values) {
        of_options += fmt::format(
            "        --{}) COMPREPLY=($(compgen -W \"$(orrery list {} --quiet 2>/dev/null)\" -- \"$word\")); return "
            ";;\n",
            option, topic);
    }
    // zsh runs bash's completions through bashcompinit, so one script serves both.
    const std::string head = shell == "zsh" ? "#compdef orrery\nautoload -U +X bashcompinit && bashcompinit\n" : "";
    return head + fmt::format(R"(# Completion of orrery for {}: written by 'orrery completion {}'.
_orrery() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" command="${{COMP_WORDS[1]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" options="" choices=""
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{}" -- "$word"))
        return
    fi
    case "$command" in
{}    esac
    case "$before" in
{}    esac
    if [ "$COMP_CWORD" -eq 2 ]; then
        case "$command" in
{}        esac
    elif [ "$COMP_CWORD" -eq 3 ]; then
        case "$command" in
{}        esac
    fi
    case "$word" in
        -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;
        *) if [ -n "$choices" ]; then
               COMPREPLY=($(compgen -W "$choices" -- "$word"))
           else
               COMPREPLY=($(compgen -f -- "$word"))
           fi ;;
    esac
}}
complete -o filenames -F _orrery orrery
)",
                              shell, shell, names, cases, of_options, choices, seconds);
}

std::string manual_page(const std::string& version) {
    std::string out = fmt::format(".TH ORRERY 1 \"\" \"orrery {}\" \"User Commands\"\n", roff(version));
    out += ".SH NAME\norrery \\- discrete\\-event simulator of AI clusters\n";
    out += ".SH SYNOPSIS\n.B orrery\nCOMMAND [ARGUMENTS] [OPTIONS]\n";
    out +=
        ".SH DESCRIPTION\nPredicts how fast a model trains on a cluster with a plan, why, and what would help. "
        "Scenarios "
        "are YAML files with units; equal input and seed give byte\\-identical output.\n.SH COMMANDS\n";
    const auto list = [&](const std::vector<OptionSpec>& options) {
        for (const OptionSpec& option : options) {
            out += fmt::format(".RS\n.TP\n.B {}\n{}\n.RE\n", roff(shown(option)), roff(option.help));
        }
    };
    for (const CommandSpec& spec : command_table()) {
        out += fmt::format(".TP\n.B {} {}\n{}\n", spec.name, roff(spec.arguments), roff(spec.help));
        for (const ChoiceSpec& choice : spec.choices) {
            out += *choice.help == '\0'
                       ? ""
                       : fmt::format(".RS\n.TP\n.I {}\n{}\n.RE\n", roff(choice.name), roff(choice.help));
        }
        list(spec.options);
    }
    out += ".SH OPTIONS\n";
    for (const OptionSpec& option : common_options()) {
        out += fmt::format(".TP\n.B {}\n{}\n", roff(shown(option)), roff(option.help));
    }
    out += ".SH EXAMPLES\n.nf\n";
    for (const CommandSpec& spec : command_table()) {
        for (const char* example : spec.examples) {
            out += roff(example) + "\n";
        }
    }
    out += ".fi\n.SH EXIT STATUS\n0 fine, 1 a check failed, 2 bad input, 3 infeasible, 4 internal error\n";
    out += ".SH SEE ALSO\n.BR orrery (5),\nthe scenario language.\n";
    return out;
}

}  // namespace orrery::program
