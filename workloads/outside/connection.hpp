#pragma once
// Lines of text to and from a process that decides.

#include "sim/base/namespaces.hpp"

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>

namespace orrery::outside {

/// The error for what a policy from outside did wrong.
[[noreturn]] void policy_failed(const std::string& name, const std::string& problem);

class Connection {
  public:
    /// Takes a connected stream socket, and a child process to end with it (0: none). `name` says in errors who is at the other end,
    /// `timeout` how many seconds it may take to answer.
    Connection(int socket, pid_t child, std::string name, double timeout);
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;
    ~Connection();
    [[nodiscard]] const std::string& name() const { return name_; }

    /// Exchanges versions. `decides`: one of kDeciders; throws ConfigError when the other end does not decide that. The first call
    /// greets.
    void require(const std::string& decides);
    /// Whether anything was required.
    [[nodiscard]] bool used() const { return !decides_.empty(); }
    /// Sends a line. Throws ConfigError when the other end has gone, or does not read for longer than the timeout.
    void send(std::string_view line);
    /// The next line from there, good until the next call. Throws ConfigError when none comes in time, or it is too long.
    [[nodiscard]] std::string_view receive();

  private:
    void greet();

    int socket_;
    pid_t child_;
    std::string name_;
    double timeout_;
    std::string buffer_;
    std::size_t begin_ = 0;  ///< of what has not been given yet
    std::string decides_;    ///< what the other end said, with a blank around each word; empty: not greeted yet
};

/// Starts Python with the policy in `file`, of class `name` (empty: the only one there). Throws ConfigError when it does not start.
[[nodiscard]] std::unique_ptr<Connection> start_python(const std::string& file, const std::string& name,
                                                       double timeout);
/// Waits at a Unix socket for a process that decides. Throws ConfigError when the path is taken or nobody comes in time.
[[nodiscard]] std::unique_ptr<Connection> wait_at(const std::string& path, double wait, double timeout);

}  // namespace orrery::outside
