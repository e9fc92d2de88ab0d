// orrery serve: hands over to orrery-service, beside this program, once the command line is found right.

#include "tools/driver/scenario.hpp"
#include "tools/program/commands.hpp"
#include "tools/program/memory_limit.hpp"

#include "sim/base/error.hpp"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <thread>

namespace orrery::program {

namespace {

constexpr double kShareOfFree = 0.8;  // of the free memory that all runs together may take
constexpr double kMib = 1024.0 * 1024;
constexpr double kLeastMemory = 256 * kMib;  // of one run

// The path of a folder that is there; empty where none is named.
std::string folder_named(const CommandLine& line, const char* option) {
    if (!line.has(option)) {
        return "";
    }
    std::error_code ignored;
    if (!std::filesystem::is_directory(line.text(option), ignored)) {
        throw ConfigError(fmt::format("--{}: there is no folder '{}'", option, line.text(option)),
                          ErrorCode::unreadable_file);
    }
    return std::filesystem::canonical(line.text(option)).string();
}

double seconds_given(const CommandLine& line) {
    constexpr double kDefault = 300;
    constexpr double kDay = 86400;
    double value = kDefault;
    std::string problem;
    if (line.has("timeout") &&
        (!parse_quantity(line.text("timeout"), Dimension::time, value, problem) || value <= 0 || value > kDay)) {
        throw ConfigError("--timeout is a time up to a day, such as \"30 s\"", ErrorCode::command_line);
    }
    return value;
}

// Whether this kernel can confine what a run reads. The number asks for the version of the interface, without including its header,
// which old systems lack.
bool kernel_confines() {
    constexpr unsigned kAskVersion = 1;
    constexpr long kCreateRuleset = 444;
    return syscall(kCreateRuleset, nullptr, 0U, kAskVersion) > 0;
}

}  // namespace

int command_serve(const CommandLine& line, const DataDirectory& /*data*/) {
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
    const std::string service = (self.parent_path() / "orrery-service").string();
    if (access(service.c_str(), X_OK) != 0) {
        throw ConfigError(
            "'orrery serve' needs the program orrery-service beside this one; this build has none, since "
            "cpp-httplib was not found (Debian: libcpp-httplib-dev)",
            ErrorCode::contradiction);
    }
    const auto port = line.whole("port", 8321, 0, 65535);
    const std::uint64_t cores = std::max(1U, std::thread::hardware_concurrency());
    const auto jobs = line.whole("jobs", cores, 1, 256);
    const std::string address = line.has("listen") ? line.text("listen") : "127.0.0.1";
    const bool local = address == "127.0.0.1" || address == "localhost" || address == "::1";
    if (!local && !line.has("token-file")) {
        throw ConfigError(
            fmt::format("--listen {}: whoever reaches that address could run anything; give clients a token "
                        "(--token-file FILE)",
                        address),
            ErrorCode::command_line);
    }
    const bool confined = !line.has("unconfined");
    if (confined && !kernel_confines()) {
        throw ConfigError(
            "this kernel has no Landlock (Linux 5.13), without which a scenario may name any file of this "
            "machine; where that does no harm, give --unconfined",
            ErrorCode::contradiction);
    }
    std::string memory = line.text("memory-limit");
    if (memory.empty()) {
        const double each = std::max(kLeastMemory, kShareOfFree * free_memory() / static_cast<double>(jobs));
        memory = fmt::format("{:.0f} MiB", std::floor(each / kMib));
    }
    const std::string settings = nlohmann::json{
        {"program", self.string()},
        {"version", program_version()},
        {"address", address},
        {"port", port},
        {"folder", folder_named(line, "folder")},
        {"data", folder_named(line, "data")},
        {"presets", find_data_directory(line.program).root()},
        {"token_file", line.text("token-file")},
        {"memory", memory},
        {"seconds", seconds_given(line)},
        {"confined", confined},
        {"jobs", jobs}}.dump();
    (void)std::fflush(nullptr);
    execl(service.c_str(), service.c_str(), settings.c_str(), nullptr);
    throw ConfigError(fmt::format("'{}' cannot be started: {}", service, std::strerror(errno)));
}

}  // namespace orrery::program
