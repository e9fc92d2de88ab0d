#include "sim/network/simgrid_job.hpp"

#include "sim/base/error.hpp"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace orrery::network {

std::string write_job(const SimgridJob& job) {
    std::string out = fmt::format("{} {} {} {}\n", job.tightened ? 1 : 0, job.capacities.size(), job.messages.size(),
                                  job.changes.size());
    for (const double capacity : job.capacities) {
        out += fmt::format("{:a}\n", capacity);
    }
    for (const SimgridJob::Message& message : job.messages) {
        out += fmt::format("{} {:a} {} {} {}", message.bytes, message.delay, message.waits_for, message.links.size(),
                           message.releases.size());
        for (const std::uint32_t link : message.links) {
            out += fmt::format(" {}", link);
        }
        for (const std::uint32_t release : message.releases) {
            out += fmt::format(" {}", release);
        }
        out += '\n';
    }
    for (const SimgridJob::Change& change : job.changes) {
        out +=
            fmt::format("{:a} {} {} {:a}\n", change.time, static_cast<int>(change.what), change.index, change.capacity);
    }
    return out;
}

SimgridJob read_job(const std::string& text) {
    const char* at = text.c_str();
    const auto number = [&at]() {
        char* end = nullptr;
        const double value = std::strtod(at, &end);
        if (end == at) {
            throw InternalError("malformed SimGrid job");
        }
        at = end;
        return value;
    };
    const auto index = [&]() { return static_cast<std::uint32_t>(number()); };
    SimgridJob job;
    job.tightened = index() != 0;
    const std::uint32_t links = index();
    const std::uint32_t messages = index();
    const std::uint32_t changes = index();
    for (std::uint32_t i = 0; i < links; ++i) {
        job.capacities.push_back(number());
    }
    for (std::uint32_t i = 0; i < messages; ++i) {
        SimgridJob::Message message;
        message.bytes = static_cast<std::uint64_t>(number());
        message.delay = number();
        message.waits_for = index();
        const std::uint32_t path = index();
        const std::uint32_t releases = index();
        for (std::uint32_t k = 0; k < path; ++k) {
            message.links.push_back(index());
        }
        for (std::uint32_t k = 0; k < releases; ++k) {
            message.releases.push_back(index());
        }
        job.messages.push_back(std::move(message));
    }
    for (std::uint32_t i = 0; i < changes; ++i) {
        SimgridJob::Change change;
        change.time = number();
        change.what = static_cast<SimgridJob::Change::What>(index());
        change.index = index();
        change.capacity = number();
        job.changes.push_back(change);
    }
    return job;
}

namespace {

// A file that goes with its scope.
class TemporaryFile {
  public:
    TemporaryFile() {
        std::string pattern = (std::filesystem::temp_directory_path() / "orrery-XXXXXX").string();
        const int descriptor = mkstemp(pattern.data());
        if (descriptor < 0) {
            throw InfeasibleError(fmt::format("cannot create a temporary file for SimGrid: {}", std::strerror(errno)));
        }
        close(descriptor);
        path_ = pattern;
    }
    ~TemporaryFile() {
        std::error_code ignored;
        std::filesystem::remove(path_, ignored);
    }
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;
    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    std::string path_;
};

}  // namespace

static std::string simgrid_program() {
    std::error_code failed;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failed);
    const std::string program = (self.parent_path() / "orrery-simgrid").string();
    return failed || !std::filesystem::exists(program) ? "" : program;
}

bool has_simgrid() {
    return !simgrid_program().empty();
}

void require_finished(int status) {
    if (WIFSIGNALED(status)) {
        const int signal = WTERMSIG(status);
        throw InfeasibleError(
            fmt::format("the SimGrid process was ended by signal {} ({}){}", signal, strsignal(signal),
                        signal == SIGKILL ? "; the kernel ends processes so when memory runs out" : ""),
            signal == SIGKILL ? ErrorCode::out_of_memory : ErrorCode::infeasible);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        throw InternalError(fmt::format("the SimGrid process failed with exit code {}", WEXITSTATUS(status)));
    }
}

SimgridResult run_simgrid(const SimgridJob& job) {
    const std::string program = simgrid_program();
    ORRERY_ASSERT(!program.empty());
    const TemporaryFile input;
    const TemporaryFile output;
    {
        std::ofstream stream(input.path(), std::ios::binary);
        stream << write_job(job);
    }
    const pid_t child = fork();
    if (child < 0) {
        throw InfeasibleError(fmt::format("cannot start a child process for SimGrid: {}", std::strerror(errno)));
    }
    if (child == 0) {
        execl(program.c_str(), program.c_str(), input.path().c_str(), output.path().c_str(), nullptr);
        _exit(127);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    require_finished(status);
    std::ifstream stream(output.path());
    SimgridResult result;
    std::string word;
    stream >> word;
    result.wall_seconds = std::strtod(word.c_str(), nullptr);
    while (stream >> word) {
        result.completions.push_back(std::strtod(word.c_str(), nullptr));
    }
    const auto finished = static_cast<std::size_t>(
        std::count_if(result.completions.begin(), result.completions.end(), [](double at) { return at >= 0; }));
    const bool cancels = std::any_of(job.changes.begin(), job.changes.end(), [](const SimgridJob::Change& change) {
        return change.what == SimgridJob::Change::What::cancel;
    });
    if (finished != job.messages.size() && !cancels) {
        throw InternalError(fmt::format("SimGrid finished {} of {} messages: one is on a link without capacity",
                                        finished, job.messages.size()));
    }
    return result;
}

}  // namespace orrery::network
