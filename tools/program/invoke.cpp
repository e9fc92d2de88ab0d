#include "tools/program/invoke.hpp"

#include "tools/program/entry.hpp"
#include "tools/program/forked.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

namespace orrery::program {

namespace {

// The child's process: never returns.
[[noreturn]] void serve(const std::vector<std::string>& words, int input, int output, int errors, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || dup2(input, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 ||
        dup2(errors, STDERR_FILENO) < 0) {
        _exit(4);
    }
    for (const int number : {SIGINT, SIGTERM, SIGPIPE, SIGCHLD, SIGHUP, SIGALRM}) {
        (void)std::signal(number, SIG_DFL);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    std::vector<std::string> copies = words;
    std::vector<char*> arguments;
    for (std::string& word : copies) {
        arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    int code = 4;
    try {
        code = run_program(static_cast<int>(words.size()), arguments.data());
    } catch (...) {
        code = 4;
    }
    (void)std::fflush(nullptr);
    // Past the destructors and handlers of the process that was copied.
    _exit(code);
}

}  // namespace

std::optional<Invocation> invoke(const std::vector<std::string>& words, const std::string& input,
                                 const std::function<bool()>& stop) {
    // What is still in the buffers of this process is not the child's to write.
    (void)std::fflush(nullptr);
    const pid_t parent = getpid();
    return run_forked(
        input, [&](const ForkedEnds& ends) { serve(words, ends.input, ends.output, ends.errors, parent); },
        [&](const Invocation&) { return stop && stop(); });
}

}  // namespace orrery::program
