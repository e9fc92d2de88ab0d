// orrery mcp: the Model Context Protocol over standard input and output.

#include "tools/program/commands.hpp"
#include "tools/program/mcp_server.hpp"

#include "sim/base/error.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <deque>

namespace orrery::program {

namespace {

constexpr std::size_t kLongestLine = 16U << 20U;  // as much as a scenario may have

// Lines of a descriptor, of which those beyond the limit are passed over and counted as nothing but their being too long.
class Lines {
  public:
    struct Line {
        std::string text;
        bool too_long = false;
    };

    // Reads what is there, waiting up to `milliseconds` (-1: for ever) for it.
    void read(int milliseconds) {
        pollfd wait{STDIN_FILENO, POLLIN, 0};
        if (ended_ || poll(&wait, 1, milliseconds) <= 0) {
            return;
        }
        std::array<char, 65536> buffer{};
        const ssize_t n = ::read(STDIN_FILENO, buffer.data(), buffer.size());
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
            return;
        }
        if (n <= 0) {
            ended_ = true;
            if (!current_.text.empty() || current_.too_long) {
                take();
            }
            return;
        }
        for (const char c : std::string_view(buffer.data(), static_cast<std::size_t>(n))) {
            if (c == '\n') {
                take();
            } else if (current_.text.size() < kLongestLine) {
                current_.text += c;
            } else {
                current_.too_long = true;
            }
        }
    }
    [[nodiscard]] bool ended() const { return ended_; }
    std::deque<Line> waiting;

  private:
    void take() {
        if (current_.too_long) {
            current_.text.clear();
        }
        waiting.push_back(std::move(current_));
        current_ = Line();
    }

    Line current_;
    bool ended_ = false;
};

// Whether the line could be written: a client that is gone reads no more.
bool write_line(std::string text) {
    text += '\n';
    for (std::size_t written = 0; written < text.size();) {
        const ssize_t n = ::write(STDOUT_FILENO, text.data() + written, text.size() - written);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        written += static_cast<std::size_t>(n);
    }
    return true;
}

bool client_gone() {
    pollfd output{STDOUT_FILENO, 0, 0};
    return poll(&output, 1, 0) > 0 && (output.revents & (POLLERR | POLLNVAL)) != 0;
}

}  // namespace

int command_mcp(const CommandLine& line, const DataDirectory& /*data*/) {
    (void)std::signal(SIGPIPE, SIG_IGN);
    constexpr std::size_t kMostWaiting = 1000;
    Lines lines;
    bool gone = false;
    std::vector<std::string> common = {"--output-format=json", "--progress=none"};
    for (const char* option : {"memory-limit", "data"}) {
        if (line.has(option)) {
            common.push_back(fmt::format("--{}={}", option, line.text(option)));
        }
    }
    const McpServer server([&](const std::string& id, const std::vector<std::string>& command, const std::string& input,
                               double limit_s) -> std::optional<Invocation> {
        std::vector<std::string> words = {line.program, command[0]};
        for (const std::string& option : common) {
            // Commands that read no presets have no --data; validate's are measured runs.
            const bool of_presets = command[0] != "help" && command[0] != "schema" && command[0] != "validate";
            if (of_presets || option.rfind("--data", 0) != 0) {
                words.push_back(option);
            }
        }
        words.insert(words.end(), command.begin() + 1, command.end());
        using Clock = std::chrono::steady_clock;
        const auto end = Clock::now() + std::chrono::duration<double>(limit_s);
        bool late = false;
        bool cancelled = false;
        std::size_t looked_at = 0;  // of the lines that wait: which of them cancel this call, or are pings
        std::optional<Invocation> ended = invoke(words, input, [&] {
            if (lines.waiting.size() < kMostWaiting) {
                lines.read(0);
            }
            for (; looked_at < lines.waiting.size(); ++looked_at) {
                const std::string& text = lines.waiting[looked_at].text;
                cancelled = cancelled || McpServer::cancels(text, id);
                if (const std::optional<std::string> pong = McpServer::pong(text)) {
                    gone = gone || !write_line(*pong);
                    lines.waiting.erase(lines.waiting.begin() + static_cast<std::ptrdiff_t>(looked_at--));
                }
            }
            gone = gone || client_gone();
            late = Clock::now() > end;
            return cancelled || late || gone;
        });
        if (!ended && late) {
            return Invocation{
                3, "",
                fmt::format("the call took more than its limit of {:g} s (timeout_s) and was given up\n", limit_s)};
        }
        return ended;
    });
    while (!gone) {
        if (lines.waiting.empty()) {
            if (lines.ended()) {
                return 0;
            }
            lines.read(-1);
            continue;
        }
        const Lines::Line next = std::move(lines.waiting.front());
        lines.waiting.pop_front();
        const std::optional<std::string> answer =
            next.too_long ? McpServer::too_long(kLongestLine) : server.answer(next.text);
        gone = gone || (answer && !write_line(*answer));
    }
    return 0;
}

}  // namespace orrery::program
