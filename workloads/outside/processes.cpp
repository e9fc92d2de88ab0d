// Processes that decide: Python with a policy's file, and whoever comes to a socket.

#include <policy_host.hpp>
#include "sim/base/error.hpp"
#include "workloads/outside/connection.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

namespace orrery::outside {

namespace {

// Only calls that are safe between fork and exec.
[[noreturn]] void become_python(int socket, const char* const* arguments) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(socket, STDIN_FILENO) < 0) {  // duplicates stay open over exec
        _exit(127);
    }
    execvp(arguments[0], const_cast<char* const*>(arguments));
    _exit(127);
}

}  // namespace

std::unique_ptr<Connection> start_python(const std::string& file, const std::string& name, double timeout) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        policy_failed(file, fmt::format("no socket can be made: {}", std::strerror(errno)));
    }
    const char* const arguments[] = {"python3", "-c", kPolicyHost, file.c_str(), name.c_str(), nullptr};
    const pid_t child = fork();
    if (child == 0) {
        become_python(ends[1], arguments);
    }
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        policy_failed(file, fmt::format("no process can be started: {}", std::strerror(errno)));
    }
    return std::make_unique<Connection>(ends[0], child, file, timeout);
}

std::unique_ptr<Connection> wait_at(const std::string& path, double wait, double timeout) {
    const auto failed = [&](const std::string& problem) {
        throw ConfigError(fmt::format("socket '{}': {}", path, problem), ErrorCode::unwritable_file);
    };
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof(address.sun_path)) {
        failed(
            fmt::format("its path is longer than the {} bytes that a socket's may have", sizeof(address.sun_path) - 1));
    }
    std::memcpy(address.sun_path, path.c_str(), path.size());
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const mode_t before = umask(0077);  // for this user alone
    const bool bound =
        listener >= 0 && bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    const int problem = errno;
    umask(before);
    if (!bound || listen(listener, 1) != 0) {
        close(listener);
        failed(problem == EADDRINUSE ? "a file of this name is there; another process may wait at it"
                                     : std::strerror(problem));
    }
    pollfd one{listener, POLLIN, 0};
    const int ready = poll(&one, 1, static_cast<int>(wait * 1000));
    const int client = ready > 0 ? accept4(listener, nullptr, nullptr, SOCK_CLOEXEC) : -1;
    close(listener);
    (void)unlink(path.c_str());
    if (client < 0) {
        failed(fmt::format("nobody has come for {} s", wait));
    }
    return std::make_unique<Connection>(client, 0, "socket " + path, timeout);
}

}  // namespace orrery::outside
