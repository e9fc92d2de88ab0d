// orrery import: what other tools write, as files that scenarios take.

#include "tools/program/commands.hpp"
#include "tools/program/outputs.hpp"

#include "sim/record/summary.hpp"
#include "tools/driver/model_cache.hpp"
#include "tools/driver/scenario_trial.hpp"
#include "tools/terminal/terminal.hpp"
#include "workloads/imports/importer.hpp"

#include <fmt/format.h>

namespace orrery::program {

int command_import(const CommandLine& line, const DataDirectory& data) {
    const std::string& file = line.arguments[1];
    std::map<std::string, std::string> options;
    for (const auto& [name, values] : line.options) {
        options[name] = values.empty() ? std::string() : values.back();
    }
    ModelCache models(data.read_once());
    const ImportInput input(file, std::move(options));
    const Imported imported =
        import_file(line.arguments[0],
                    input.with(models.data(), [&](const std::string& text) { return trial_problem(text, models); }));
    const std::string out = line.has("output") ? line.text("output") : importer(line.arguments[0]).default_output(file);
    write_output(line, line.has("output") ? "--output" : "the default name", out, imported.text);
    if (line.quiet()) {
        return 0;
    }
    std::string use = imported.use;
    if (imported.scenario) {
        const TrialResult trial = out == "-" ? TrialResult{Trial::too_long, ""} : try_scenario(out, models);
        if (trial.outcome == Trial::fails) {
            use = fmt::format("'orrery run' when this is mended: {}", trial.problem);
        } else if (trial.outcome == Trial::too_long) {
            use = "'orrery run', which checks it";
        }
    }
    std::vector<std::vector<std::string>> rows = imported.facts;
    const auto add = [&](const char* how, const ImportNotes::Counts& counts) {
        for (const auto& [what, count] : counts) {
            // What is assumed once is a sentence and no count.
            const bool sentence = count == 1 && std::string_view(how) == "assumed";
            rows.push_back({how, sentence ? what : fmt::format("{} {}", count, what)});
        }
    };
    add("read", imported.notes.read());
    add("left out", imported.notes.left_out());
    add("assumed", imported.notes.assumed());
    const Terminal terminal = line.terminal();
    terminal.heading(out);
    terminal.table({}, rows);
    say("a scenario takes it with {}\n", use);
    return 0;
}

}  // namespace orrery::program
