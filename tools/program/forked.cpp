#include "tools/program/forked.hpp"

#include "sim/base/error.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

namespace orrery::program {

namespace {

constexpr int kPollMilliseconds = 20;

ConfigError no_process(const char* what) {
    return ConfigError(fmt::format("{}: {}", what, std::strerror(errno)));
}

// A descriptor that closes with its scope.
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

struct Pipe {
    Descriptor read, write;
    Pipe() {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) {
            throw no_process("no pipe can be made");
        }
        read = Descriptor(ends[0]);
        write = Descriptor(ends[1]);
    }
};

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

// A child that is ended, with the processes it started, unless it ended by itself.
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
    // Its wait status.
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

// What a pipe holds is added to `text`; the pipe is closed at its end.
void take(Descriptor& from, std::string& text) {
    std::array<char, 65536> buffer{};
    const ssize_t n = ::read(from.number(), buffer.data(), buffer.size());
    if (n > 0) {
        text.append(buffer.data(), static_cast<std::size_t>(n));
    } else if (n == 0 || errno != EINTR) {
        from.close();
    }
}

}  // namespace

std::optional<Invocation> run_forked(const std::string& input, const std::function<void(const ForkedEnds&)>& become,
                                     const std::function<bool(const Invocation&)>& stop) {
    Descriptor given = input_file(input);
    Pipe output;
    Pipe errors;
    const pid_t process = fork();
    if (process == 0) {
        setpgid(0, 0);
        become({given.number(), output.write.number(), errors.write.number()});
        _exit(4);
    }
    if (process < 0) {
        throw no_process("no process can be made for a run");
    }
    setpgid(process, process);  // both sides set it, so that it is set before either needs it
    Child child(process);
    output.write.close();
    errors.write.close();
    Invocation result;
    while (output.read.open() || errors.read.open()) {
        std::array<pollfd, 2> waits = {
            {{output.read.number(), POLLIN, 0}, {errors.read.number(), POLLIN, 0}}};  // -1 is passed over
        const int ready = poll(waits.data(), waits.size(), kPollMilliseconds);
        if (ready > 0) {
            if (waits[0].revents != 0) {
                take(output.read, result.output);
            }
            if (waits[1].revents != 0) {
                take(errors.read, result.errors);
            }
        }
        if (stop(result)) {
            return std::nullopt;
        }
    }
    const int status = child.wait();
    if (WIFEXITED(status)) {
        result.code = WEXITSTATUS(status);
        return result;
    }
    const int signal = WTERMSIG(status);
    result.code = signal == SIGKILL ? 3 : 4;
    result.errors += fmt::format("{}the run was ended by signal {} ({}){}\n",
                                 signal == SIGKILL ? "" : "internal error: ", signal, strsignal(signal),
                                 signal == SIGKILL ? "; the kernel ends processes so when memory runs out [E301]" : "");
    return result;
}

}  // namespace orrery::program
