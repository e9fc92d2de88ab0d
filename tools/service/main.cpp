// orrery-service SETTINGS: the program behind `orrery serve`, apart from it since it loads a web server's libraries. SETTINGS is
// JSON, as tools/program/serve_command.cpp writes it.

#include "sim/base/error.hpp"
#include "tools/service/http_api.hpp"
#include "tools/service/http_server.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>

namespace {

// A folder for runs that need none, gone at the end.
class Scratch {
  public:
    Scratch() {
        std::string name = (std::filesystem::temp_directory_path() / "orrery-service-XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) {
            throw orrery::ConfigError("no folder can be made for the runs of the service");
        }
        path_ = name;
    }
    ~Scratch() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    std::string path_;
};

}  // namespace

int main(int argc, char** argv) {
    const auto given = argc == 2 ? nlohmann::json::parse(argv[1], nullptr, false) : nlohmann::json();
    if (!given.is_object()) {
        std::fprintf(stderr, "orrery-service is started by 'orrery serve'; see 'orrery help serve'\n");
        return 2;
    }
    orrery::service::stop_by_signals();
    try {
        const Scratch scratch;
        orrery::service::ServiceSettings settings;
        settings.program = given.at("program");
        settings.version = given.at("version");
        settings.address = given.at("address");
        settings.port = given.at("port");
        settings.folder = given.at("folder");
        settings.data = given.at("data");
        settings.presets = given.at("presets");
        if (const std::string file = given.at("token_file"); !file.empty()) {
            settings.token = orrery::service::read_token(file);
        }
        settings.memory = given.at("memory");
        settings.seconds = given.at("seconds");
        settings.confined = given.at("confined");
        settings.jobs.running = given.at("jobs");
        settings.scratch = scratch.path();
        orrery::service::serve_http(
            settings,
            [&](int port) {
                fmt::print("serving at http://{}:{}/ (Ctrl-C ends it)\n", settings.address, port);
                (void)std::fflush(stdout);
            },
            orrery::service::told_to_stop);
        return 0;
    } catch (const orrery::ConfigError& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 2;
    } catch (const std::exception& error) {
        fmt::print(stderr, "internal error: {}\n", error.what());
        return 4;
    }
}
