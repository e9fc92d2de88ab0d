// orrery init: a commented scenario to start from.

#include "sim/record/summary.hpp"
#include "tools/init/starter.hpp"
#include "tools/program/commands.hpp"
#include "tools/program/outputs.hpp"
#include "tools/terminal/terminal.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::program {

int command_init(const CommandLine& line, const DataDirectory& data) {
    StarterFacts facts;
    const std::string& kind = line.arguments[0];
    facts.gpus = static_cast<std::int64_t>(line.whole("gpus", 0, 1, 1'000'000));
    facts.device = line.text("device");
    facts.model = line.text("model");
    facts.base = line.text("base");
    facts.trace = line.text("trace");
    facts.command = "orrery init " + kind;
    for (const StarterRow& row : starter_table()) {
        for (const char* option : {"gpus", "device", "model", "base", "trace"}) {
            const bool taken = std::find(row.facts.begin(), row.facts.end(), std::string(option)) != row.facts.end();
            if (kind == row.kind && line.has(option) && !taken) {
                throw ConfigError(fmt::format("a scenario of kind {} takes no --{}; it takes --{}", kind, option,
                                              fmt::join(row.facts, ", --")),
                                  ErrorCode::command_line);
            }
            if (kind == row.kind && line.has(option)) {
                facts.command += fmt::format(" --{} {}", option, line.text(option));
            }
        }
    }
    if (line.has("output")) {
        require_new(line, "--output", line.text("output"));  // what it wrote once has been edited since
    }
    const std::string text = write_starter(kind, facts, data);
    write_output(line, "output", text);
    if (line.has("output") && line.text("output") != "-" && !line.quiet()) {
        say("{} is written; next: orrery {} {}\n", line.text("output"), kind == "sweep" ? "sweep" : "run",
            line.text("output") + (kind == "sweep" ? " --db results.sqlite" : ""));
    }
    return 0;
}

}  // namespace orrery::program
