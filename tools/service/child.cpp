#include "tools/service/child.hpp"

#include "sim/base/error.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

namespace orrery::service {

namespace {

constexpr int kPollMilliseconds = 20;
constexpr std::size_t kMostErrors = 1U << 20U;  // B of standard error

ConfigError no_process(const char* what) {
    return ConfigError(fmt::format("{}: {}", what, std::strerror(errno)));
}

class Descriptor {
  public:
    explicit Descriptor(int number = -1) : number_(number) {}
    Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~Descriptor() { close(); }
    void close() {
        if (number_ >= 0) {
            ::close(std::exchange(number_, -1));
        }
    }
    [[nodiscard]] int number() const { return number_; }
    [[nodiscard]] bool open() const { return number_ >= 0; }

  private:
    int number_;
};

std::pair<Descriptor, Descriptor> pipe_ends() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
        throw no_process("no pipe can be made for a run");
    }
    return {Descriptor(ends[0]), Descriptor(ends[1])};
}

// Standard input as a file in memory: a child that does not read it blocks nobody.
Descriptor input_file(const std::string& text) {
    Descriptor file(memfd_create("orrery-input", MFD_CLOEXEC));
    std::size_t written = 0;
    while (file.open() && written < text.size()) {
        const ssize_t n = ::write(file.number(), text.data() + written, text.size() - written);
        if (n < 0 && errno != EINTR) {
            break;
        }
        written += n > 0 ? static_cast<std::size_t>(n) : 0;
    }
    if (!file.open() || written < text.size() || lseek(file.number(), 0, SEEK_SET) != 0) {
        throw no_process("no room for the standard input of a run");
    }
    return file;
}

// All that a child does before the program: other threads may hold any lock, so nothing here takes one.
[[noreturn]] void become(char* const* arguments, const char* folder, int input, int output, int errors, pid_t parent,
                         const Confinement* confinement) {
    setpgid(0, 0);
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

// A child that is ended, with the processes it started, unless it has ended by itself.
class Child {
  public:
    explicit Child(pid_t process) : process_(process) {}
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    ~Child() {
        if (process_ > 0) {
            kill(-process_, SIGKILL);
            kill(process_, SIGKILL);
            (void)wait();
        }
    }
    int wait() {
        int status = 0;
        while (waitpid(process_, &status, 0) < 0 && errno == EINTR) {
        }
        process_ = 0;
        return status;
    }

  private:
    pid_t process_;
};

void take(Descriptor& from, std::string& text) {
    std::array<char, 65536> buffer{};
    const ssize_t n = ::read(from.number(), buffer.data(), buffer.size());
    if (n > 0) {
        text.append(buffer.data(), static_cast<std::size_t>(n));
    } else if (n == 0 || errno != EINTR) {
        from.close();
    }
}

program::Invocation over_limit(const std::string& what) {
    return {3, "", what + "\n"};
}

}  // namespace

std::optional<program::Invocation> run_child(const std::vector<std::string>& words, const std::string& folder,
                                             const std::string& input, const Confinement* confinement,
                                             const ChildLimits& limits,
                                             const std::function<void(const std::string&)>& line,
                                             const std::function<bool()>& stop) {
    Descriptor given = input_file(input);
    auto [output, output_end] = pipe_ends();
    auto [errors, errors_end] = pipe_ends();
    std::vector<std::string> copies = words;
    std::vector<char*> arguments;
    for (std::string& word : copies) {
        arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    const pid_t parent = getpid();
    const pid_t process = fork();
    if (process == 0) {
        become(arguments.data(), folder.c_str(), given.number(), output_end.number(), errors_end.number(), parent,
               confinement);
    }
    if (process < 0) {
        throw no_process("no process can be made for a run");
    }
    setpgid(process, process);
    Child child(process);
    output_end.close();
    errors_end.close();
    program::Invocation result;
    std::size_t told = 0;  // of the errors: up to the last line that was told
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::duration<double>(limits.seconds);
    while (output.open() || errors.open()) {
        std::array<pollfd, 2> waits = {{{output.number(), POLLIN, 0}, {errors.number(), POLLIN, 0}}};
        if (poll(waits.data(), waits.size(), kPollMilliseconds) > 0) {
            if (waits[0].revents != 0) {
                take(output, result.output);
            }
            if (waits[1].revents != 0) {
                take(errors, result.errors);
            }
        }
        for (std::size_t next = 0; (next = result.errors.find('\n', told)) != std::string::npos; told = next + 1) {
            line(result.errors.substr(told, next - told));
        }
        if (stop()) {
            return std::nullopt;
        }
        if (result.output.size() > limits.output || result.errors.size() > kMostErrors) {
            return over_limit(fmt::format("the answer is larger than the limit of {} MiB", limits.output >> 20U));
        }
        if (Clock::now() > end) {
            return over_limit(fmt::format("the run took more than its limit of {:g} s and was ended", limits.seconds));
        }
    }
    const int status = child.wait();
    if (WIFEXITED(status)) {
        result.code = WEXITSTATUS(status);
        return result;
    }
    result.code = WTERMSIG(status) == SIGKILL ? 3 : 4;
    result.errors +=
        fmt::format("the run was ended by signal {} ({})\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
    return result;
}

}  // namespace orrery::service
