// The orrery command line.

#include "tools/program/commands.hpp"

#include <fmt/format.h>
#include <boost/program_options.hpp>

#include <cstdio>
#include <exception>
#include <iostream>

namespace po = boost::program_options;

namespace {

constexpr const char* kUsage = R"(Orrery: a discrete-event simulator of AI clusters.

usage: orrery COMMAND [ARGUMENTS]

  run FILE        simulate a scenario ("-": standard input)
      --set key.path=value   change a value (repeatable)    --seed N
      --json FILE            write the summary ("-": standard output)   --host  with this machine's time and memory
      --trace FILE           write a timeline for ui.perfetto.dev
      --resolved FILE        write the scenario with all presets expanded
  explain FILE    each value with its source, and where the time goes
  topology FILE   the cluster of a scenario: links, capacities, paths
  validate [SUITE]  predictions against measured runs: training, collectives
      --points       print every point          --fit  fit the software constants on the declared half
      --svg FILE     predicted against measured as a picture
  import FORMAT FILE  a trace of another tool as a program to replay: pytorch-profiler, nsys, chakra, goal, aicb
      -o FILE        where to write it (default: NAME.replay)
  list [KIND]     presets: models, nodes, devices, softwares, scenarios, fields
  schema [KIND]   JSON Schema of scenarios, for editors
  version

common options: --quiet, --color auto|always|never, --help

examples:
  orrery run scenarios/training/gpt3-175b-1024xA100.yaml
  orrery run scenarios/training/gpt3-175b-1024xA100.yaml --set plan.tensor=4 --set plan.pipeline=32 --json -
  orrery explain scenarios/training/gpt3-175b-1024xA100.yaml

exit codes: 0 fine, 1 a check failed, 2 bad input, 3 infeasible, 4 internal error
)";

int dispatch(int argc, char** argv) {
    po::options_description options("options");
    options.add_options()("command", po::value<std::string>())("arguments", po::value<std::vector<std::string>>())(
        "set", po::value<std::vector<std::string>>()->composing())("seed", po::value<std::int64_t>())(
        "json", po::value<std::string>())("trace", po::value<std::string>())("resolved", po::value<std::string>())(
        "svg", po::value<std::string>())("output,o", po::value<std::string>())("quiet", po::bool_switch())(
        "color", po::value<std::string>()->default_value("auto"))("help,h", po::bool_switch())(
        "version", po::bool_switch())("points", po::bool_switch())("fit", po::bool_switch())("host", po::bool_switch());
    po::positional_options_description positional;
    positional.add("command", 1).add("arguments", -1);
    po::variables_map values;
    const auto parsed = po::command_line_parser(argc, argv).options(options).positional(positional).run();
    po::store(parsed, values);
    po::notify(values);

    orrery::CommandLine line;
    line.program = argv[0];
    if (values.count("command") != 0) {
        line.command = values["command"].as<std::string>();
    }
    if (values.count("arguments") != 0) {
        line.arguments = values["arguments"].as<std::vector<std::string>>();
    }
    if (values.count("set") != 0) {
        line.overrides = values["set"].as<std::vector<std::string>>();
    }
    if (values.count("seed") != 0) {
        line.overrides.push_back("seed=" + std::to_string(values["seed"].as<std::int64_t>()));
    }
    const auto text = [&](const char* name) { return values.count(name) != 0 ? values[name].as<std::string>() : ""; };
    line.json = text("json");
    line.trace = text("trace");
    line.resolved = text("resolved");
    line.svg = text("svg");
    line.output = text("output");
    line.color = text("color");
    line.host = values["host"].as<bool>();
    line.quiet = values["quiet"].as<bool>();
    line.points = values["points"].as<bool>();
    line.fit = values["fit"].as<bool>();
    if (values["version"].as<bool>()) {
        line.command = "version";
    }
    if (values["help"].as<bool>() || line.command.empty() || line.command == "help") {
        fmt::print("{}", kUsage);
        return line.command.empty() && !values["help"].as<bool>() ? 2 : 0;
    }
    return orrery::run_command(line);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return dispatch(argc, argv);
    } catch (const po::error& error) {
        fmt::print(stderr, "error: {}; see 'orrery --help'\n", error.what());
        return 2;
    } catch (const orrery::Error& error) {
        const std::string text = error.what();
        fmt::print(stderr, "{}{}\n",
                   error.exit_code() == 2   ? ""
                   : error.exit_code() == 3 ? "infeasible: "
                                            : "internal error: ",
                   text);
        return error.exit_code();
    } catch (const std::bad_alloc&) {
        fmt::print(stderr, "infeasible: not enough memory on this machine for a simulation of this size\n");
        return 3;
    } catch (const std::exception& error) {
        fmt::print(stderr, "internal error: {}\n", error.what());
        return 4;
    }
}
