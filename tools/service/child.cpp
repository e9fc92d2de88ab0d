#include "tools/service/child.hpp"

#include "sim/base/error.hpp"
#include "tools/program/forked.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

namespace orrery::service {

namespace {

constexpr std::size_t kMostErrors = 1U << 20U;  // B of standard error

// All that a child does before the program: other threads may hold any lock, so nothing here takes one.
[[noreturn]] void become(char* const* arguments, const char* folder, int input, int output, int errors, pid_t parent,
                         const Confinement* confinement) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || chdir(folder) != 0 || dup2(input, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 ||
        dup2(errors, STDERR_FILENO) < 0) {
        _exit(4);
    }
    for (const int number : {SIGINT, SIGTERM, SIGPIPE, SIGHUP}) {
        (void)std::signal(number, SIG_DFL);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    if (confinement != nullptr && !confinement->enter()) {
        _exit(4);
    }
    // Nothing of the service's environment, which may hold secrets.
    static const char* const kEnvironment[] = {"LC_ALL=C.UTF-8", "PATH=/usr/bin:/bin", "TMPDIR=.", nullptr};
    execve(arguments[0], arguments, const_cast<char* const*>(kEnvironment));
    _exit(4);
}

}  // namespace

std::optional<program::Invocation> run_child(const std::vector<std::string>& words, const std::string& folder,
                                             const std::string& input, const Confinement* confinement,
                                             const ChildLimits& limits,
                                             const std::function<void(const std::string&)>& line,
                                             const std::function<bool()>& stop) {
    std::vector<std::string> copies = words;
    std::vector<char*> arguments;
    for (std::string& word : copies) {
        arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    const pid_t parent = getpid();
    std::size_t told = 0;  // of the errors: up to the last line that was told
    std::string beyond;    // which limit
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::duration<double>(limits.seconds);
    auto ended = program::run_forked(
        input,
        [&](const program::ForkedEnds& ends) {
            become(arguments.data(), folder.c_str(), ends.input, ends.output, ends.errors, parent, confinement);
        },
        [&](const program::Invocation& so_far) {
            for (std::size_t next = 0; (next = so_far.errors.find('\n', told)) != std::string::npos; told = next + 1) {
                line(so_far.errors.substr(told, next - told));
            }
            ORRERY_ASSERT(told <= so_far.errors.size());
            if (so_far.output.size() > limits.output || so_far.errors.size() > kMostErrors) {
                beyond = fmt::format("the answer is larger than the limit of {} MiB", limits.output >> 20U);
            } else if (Clock::now() > end) {
                beyond = fmt::format("the run took more than its limit of {:g} s and was ended", limits.seconds);
            }
            return !beyond.empty() || stop();
        });
    return beyond.empty() ? std::move(ended) : program::Invocation{3, "", beyond + "\n"};
}

}  // namespace orrery::service
