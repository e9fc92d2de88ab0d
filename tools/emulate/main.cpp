// orrery-emulate SETTINGS: the program behind `orrery emulate`, apart from it since it loads a web server's libraries. SETTINGS is
// JSON, as tools/program/emulate_command.cpp writes it.

#include "sim/base/error.hpp"
#include "sim/record/output_file.hpp"
#include "tools/emulate/api.hpp"
#include "tools/service/http_server.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <exception>

namespace {

using namespace orrery;

// That of one model is as `orrery run` writes it, those of several are members of one object.
void write_summaries(const std::vector<std::unique_ptr<emulate::EmulatedModel>>& models, const std::string& file) {
    std::string out;
    for (const auto& model : models) {
        const std::string summary = model->finish();
        out += models.size() == 1
                   ? summary
                   : fmt::format("{}{}: {}", out.empty() ? "{" : ",", nlohmann::json(model->name()).dump(), summary);
    }
    out += models.size() == 1 ? "\n" : "}\n";
    if (file == "-") {
        fmt::print("{}", out);
    } else if (!file.empty()) {
        record::PartFile target(file);
        target.write(out);
        target.keep();
    }
}

int emulate_models(const nlohmann::json& given) {
    emulate::EmulateSettings settings;
    settings.version = given.at("version");
    settings.address = given.at("address");
    settings.port = given.at("port");
    settings.fails = given.at("fail");
    settings.seed = given.at("seed");
    settings.most_answers = given.at("most_answers");
    if (const std::string file = given.at("token_file"); !file.empty()) {
        settings.token = service::read_token(file);
    }
    const DataDirectory data(given.at("presets").get<std::string>(), given.at("data").get<std::string>());
    const double seconds = given.at("seconds");
    emulate::ScaledClock clock(given.at("scale").get<double>());
    std::vector<std::unique_ptr<emulate::EmulatedModel>> models;
    for (const auto& one : given.at("models")) {
        models.push_back(std::make_unique<emulate::EmulatedModel>(
            one.at("name"), driver::load_scenario(one.at("file"), given.at("overrides"), data), data, clock));
        models.back()->start();
    }
    emulate::serve_models(
        settings, models,
        [&](int port) {
            fmt::print(stderr, "emulating at http://{}:{}/v1 (Ctrl-C ends it)\n", settings.address, port);
        },
        [&] { return service::told_to_stop() || (seconds > 0 && clock.now().seconds() >= seconds * clock.scale()); });
    write_summaries(models, given.at("json"));
    for (const auto& model : models) {
        constexpr double kNoticed = 0.05;
        const double behind = model->load().behind_s / clock.scale();
        if (behind > kNoticed) {
            fmt::print(
                stderr,
                "warning: the simulation of {} was up to {:.2f} s behind the clock, and its tokens were as late: "
                "this machine is too slow for this load at --scale {}\n",
                model->name(), behind, clock.scale());
        }
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const auto given = argc == 2 ? nlohmann::json::parse(argv[1], nullptr, false) : nlohmann::json();
    if (!given.is_object()) {
        std::fprintf(stderr, "orrery-emulate is started by 'orrery emulate'; see 'orrery help emulate'\n");
        return 2;
    }
    service::stop_by_signals();
    try {
        return emulate_models(given);
    } catch (const ConfigError& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 2;
    } catch (const InfeasibleError& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 3;
    } catch (const std::exception& error) {
        fmt::print(stderr, "internal error: {}\n", error.what());
        return 4;
    }
}
