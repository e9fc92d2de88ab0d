// orrery emulate: hands over to orrery-emulate, beside this program, once the command line and the scenarios are found right.

#include "tools/driver/kinds/serving.hpp"
#include "tools/driver/scenario.hpp"
#include "tools/program/commands.hpp"
#include "tools/program/outputs.hpp"

#include "sim/base/error.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

namespace orrery::program {

namespace {

double number_given(const CommandLine& line, const char* option, double otherwise, double least, double most) {
    double value = otherwise;
    std::string problem;
    if (line.has(option) &&
        (!parse_quantity(line.text(option), Dimension::number, value, problem) || !(value >= least && value <= most))) {
        throw ConfigError(fmt::format("--{} is a number from {} to {}", option, least, most), ErrorCode::command_line);
    }
    return value;
}

double seconds_given(const CommandLine& line) {
    constexpr double kMost = 9e6;
    double value = 0;
    std::string problem;
    if (line.has("duration") &&
        (!parse_quantity(line.text("duration"), Dimension::time, value, problem) || value <= 0 || value > kMost)) {
        throw ConfigError("--duration is a time such as \"10 min\", up to 100 days", ErrorCode::command_line);
    }
    return value;
}

/// A model as its clients name it, and its scenario.
struct Given {
    std::string name;
    std::string file;
};

Given given_model(const std::string& argument, const CommandLine& line, const DataDirectory& data) {
    Given out{"", argument};
    const std::size_t equals = argument.find('=');
    if (equals != std::string::npos && equals > 0 && !std::filesystem::exists(argument)) {
        out = {argument.substr(0, equals), argument.substr(equals + 1)};
    }
    if (out.file == "-") {
        throw ConfigError("'orrery emulate' reads its scenarios from files, not from standard input",
                          ErrorCode::command_line);
    }
    const Scenario scenario = load_scenario(out.file, line.overrides(), data);
    const auto* const serving = scenario.find<ServingKind>();
    if (serving == nullptr) {
        throw ConfigError(fmt::format("{}: 'orrery emulate' answers as engines do: it takes scenarios of kind serving, "
                                      "and this is of kind {}",
                                      out.file, scenario.kind().name),
                          ErrorCode::contradiction);
    }
    if (out.name.empty()) {
        out.name = serving->model.name.empty() ? std::filesystem::path(out.file).stem().string() : serving->model.name;
    }
    return out;
}

}  // namespace

int command_emulate(const CommandLine& line, const DataDirectory& data) {
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
    const std::string emulator = (self.parent_path() / "orrery-emulate").string();
    if (access(emulator.c_str(), X_OK) != 0) {
        throw ConfigError(
            "'orrery emulate' needs the program orrery-emulate beside this one; this build has none, since "
            "cpp-httplib was not found (Debian: libcpp-httplib-dev)",
            ErrorCode::contradiction);
    }
    const std::string address = line.has("listen") ? line.text("listen") : "127.0.0.1";
    const bool local = address == "127.0.0.1" || address == "localhost" || address == "::1";
    if (!local && !line.has("token-file")) {
        throw ConfigError(
            fmt::format("--listen {}: give clients a token (--token-file FILE), since whoever reaches that "
                        "address could keep the emulator busy",
                        address),
            ErrorCode::command_line);
    }
    nlohmann::json models = nlohmann::json::array();
    std::set<std::string> names;
    std::vector<std::string> files;
    for (const std::string& argument : line.arguments) {
        const Given model = given_model(argument, line, data);
        if (!names.insert(model.name).second) {
            throw ConfigError(fmt::format("two models are called '{}'; give names as NAME=FILE", model.name),
                              ErrorCode::command_line);
        }
        models.push_back({{"name", model.name}, {"file", model.file}});
        files.push_back(model.file);
    }
    check_outputs(line, files);
    nlohmann::json settings = {{"version", program_version()}, {"models", models}, {"overrides", line.overrides()}};
    settings["presets"] = data.root();
    settings["data"] = data.own();
    settings["address"] = address;
    settings["port"] = line.whole("port", 8000, 0, 65535);
    settings["token_file"] = line.text("token-file");
    settings["scale"] = number_given(line, "scale", 1, 1e-3, 1e3);
    settings["fail"] = number_given(line, "fail", 0, 0, 1);
    settings["seed"] = line.whole("seed", 1, 0, ~std::uint64_t{0});
    settings["seconds"] = seconds_given(line);
    settings["most_answers"] = line.whole("most-answers", 1024, 1, 2000);
    settings["json"] = line.text("json");
    const std::string text = settings.dump();
    (void)std::fflush(nullptr);
    execl(emulator.c_str(), emulator.c_str(), text.c_str(), nullptr);
    throw ConfigError(fmt::format("'{}' cannot be started: {}", emulator, std::strerror(errno)));
}

}  // namespace orrery::program
