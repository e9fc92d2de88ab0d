// orrery validate: the suites, their report and their limits.

#include "tools/driver/model_cache.hpp"
#include "tools/program/commands.hpp"
#include "tools/program/outputs.hpp"
#include "tools/terminal/terminal.hpp"
#include "validation/gate.hpp"
#include "validation/validate.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace orrery::validation {

int command_validate(const CommandLine& line, const DataDirectory& data) {
    const Terminal terminal = line.terminal();
    const std::string suite = line.arguments.empty() ? "all" : line.arguments[0];
    if (const auto& names = suite_names();
        suite != "all" && std::find(names.begin(), names.end(), suite) == names.end()) {
        const std::string near = nearest_name(suite, names);
        throw ConfigError(
            fmt::format("unknown suite '{}'{}; it is one of {}", suite,
                        near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near), fmt::join(names, ", ")),
            ErrorCode::unknown_name);
    }
    const std::vector<std::pair<const char*, std::vector<std::string>>> uses = {
        {"data", {"compute", "collectives", "faults", "serving"}},
        {"fit", {"training", "serving", "energy"}},
        {"engine", {"serving"}},
        {"svg", {"training"}},
        {"runs", {"training"}},
        {"without", {"training"}},
        {"trace", {"compute"}},
        {"kernels", {"compute"}},
        {"log", {"serving"}}};
    for (const auto& [option, suites] : uses) {
        if (line.has(option) && suite != "all" && std::find(suites.begin(), suites.end(), suite) == suites.end()) {
            throw ConfigError(fmt::format("--{} belongs to the suite{} {}, not to {}", option,
                                          suites.size() > 1 ? "s" : "", fmt::join(suites, " and "), suite),
                              ErrorCode::command_line);
        }
    }
    if (line.has("kernels") && !line.has("trace")) {
        throw ConfigError("--kernels belongs to --trace: the profiles are of a trace's layers and steps",
                          ErrorCode::command_line);
    }
    if (suite == "serving" && line.has("data") && !line.has("log")) {
        throw ConfigError("--data belongs to the suite serving with --log alone", ErrorCode::command_line);
    }
    if (line.has("trace")) {
        if (suite == "all") {
            throw ConfigError("--trace belongs to the suite compute: 'orrery validate compute --trace FILE'",
                              ErrorCode::command_line);
        }
        for (const char* other : {"fit", "engine", "svg", "report"}) {
            if (line.has(other)) {
                throw ConfigError(fmt::format("--{} and --trace: a trace is priced, and nothing else", other),
                                  ErrorCode::command_line);
            }
        }
        validate_trace(data, terminal, line.text("trace"), line.has("kernels") ? line.text("kernels") : "",
                       line.has("points"));
        return 0;
    }
    ModelCache models(data);
    std::vector<Comparison> compared;
    if (line.has("log")) {
        if (suite == "all" || line.has("fit") || line.has("engine") || line.has("points")) {
            throw ConfigError(
                "--log belongs to 'orrery validate serving --log FILE', which takes --data and --report besides",
                ErrorCode::command_line);
        }
        compared.push_back(validate_logged(models, terminal, line.text("log")));
        if (line.has("report")) {
            write_output(line, "report", validation_report(compared));
        }
        return 0;
    }
    if (suite == "all" || suite == "compute") {
        compared.push_back(validate_compute(data, terminal, line.text("data"), line.has("points")));
    }
    if (suite == "all" || suite == "collectives") {
        compared.push_back(validate_collectives(models, terminal, line.has("points"), line.text("data")));
    }
    if (suite == "all" || suite == "devices") {
        compared.push_back(validate_devices(models, terminal, line.has("points")));
    }
    if (suite == "all" || suite == "serving") {
        compared.push_back(validate_serving(data, terminal, line.has("points"), line.has("fit"), line.text("engine")));
    }
    if (suite == "all" || suite == "serving-reports") {
        compared.push_back(validate_serving_reports(data, terminal, line.has("points")));
    }
    if (suite == "all" || suite == "disaggregated") {
        compared.push_back(validate_disaggregated(data, terminal, line.has("points")));
    }
    if (suite == "all" || suite == "fleets") {
        compared.push_back(validate_fleets(data, terminal, line.has("points")));
    }
    if (suite == "all" || suite == "mlperf") {
        compared.push_back(validate_mlperf(data, terminal, line.has("points")));
    }
    if (suite == "all" || suite == "engine-memory") {
        compared.push_back(validate_engine_memory(data, terminal, line.has("points")));
    }
    if (suite == "all" || suite == "training") {
        compared.push_back(validate_training(
            models, terminal,
            {line.has("points"), line.has("fit"), line.text("runs"), line.text("svg"), line.values("without")}));
    }
    if (suite == "all" || suite == "training-memory") {
        compared.push_back(validate_training_memory(data, terminal, line.has("points")));
    }
    if (suite == "all" || suite == "faults") {
        compared.push_back(validate_faults(data, terminal, line.text("data")));
    }
    if (suite == "all" || suite == "rl") {
        compared.push_back(validate_rl(data, terminal, line.has("points")));
    }
    if (suite == "energy" && line.has("fit")) {
        fit_power(data, terminal);
        return 0;
    }
    if (suite == "all" || suite == "energy") {
        compared.push_back(validate_energy(data, terminal, line.has("points")));
    }
    if (line.has("report")) {
        write_output(line, "report", validation_report(compared));
    }
    // Refits, other data, other models and one engine alone are not what the limits are of.
    if (line.has("fit") || line.has("data") || line.has("engine") || line.has("runs") || line.has("without")) {
        return 0;
    }
    const std::string limits = line.has("limits") ? line.text("limits") : limits_file(data);
    return within_limits(compared, limits, terminal) ? 0 : 1;
}

}  // namespace orrery::validation
