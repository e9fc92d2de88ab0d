#pragma once
// The Model Context Protocol of `orrery mcp`, without its transport: lines of JSON-RPC 2.0 in, lines out.
//
// Claims: every request is answered exactly once, no notification is, and no line ends the server. Protocol revisions
// 2024-11-05, 2025-03-26 (with batches) and 2025-06-18. Source: modelcontextprotocol.io, specification.

#include "tools/program/command_tools.hpp"

#include <functional>
#include <optional>
#include <string>

namespace orrery::program {

class McpServer {
  public:
    /// Runs a command line for the request with this id, as JSON; nothing when the client cancelled it.
    using Run = std::function<std::optional<Invocation>(const std::string& id, const std::vector<std::string>& words,
                                                        const std::string& input, double limit_s)>;
    explicit McpServer(Run run) : run_(std::move(run)) {}

    /// The answer to a line, without its end; nothing where none is due.
    [[nodiscard]] std::optional<std::string> answer(const std::string& line) const;
    /// The answer to a line that is longer than what is read.
    [[nodiscard]] static std::string too_long(std::size_t most);
    /// While a request runs: whether a line cancels the request with this id.
    [[nodiscard]] static bool cancels(const std::string& line, const std::string& id);
    /// The answer to a ping, which is due at once also while a request runs; nothing for other lines.
    [[nodiscard]] static std::optional<std::string> pong(const std::string& line);

  private:
    Run run_;
};

}  // namespace orrery::program
