#include "workloads/outside/connection.hpp"

#include "sim/base/error.hpp"
#include "workloads/outside/decisions.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

namespace orrery::outside {

namespace {

constexpr int kProtocol = 1;
constexpr std::size_t kLongestLine = std::size_t{16} << 20U;

using Clock = std::chrono::steady_clock;

Clock::time_point end_of(double timeout) {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout));
}

// False when the time has passed.
bool wait_for(int socket, short events, Clock::time_point end) {
    while (true) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
        pollfd one{socket, events, 0};
        const int ready = poll(&one, 1, static_cast<int>(std::max<long long>(left, 0)));
        if (ready > 0) {
            return true;
        }
        if (ready == 0 || errno != EINTR) {
            return false;
        }
    }
}

}  // namespace

void policy_failed(const std::string& name, const std::string& problem) {
    throw ConfigError(fmt::format("policy '{}': {}", name, problem), ErrorCode::outside_policy);
}

Connection::Connection(int socket, pid_t child, std::string name, double timeout)
    : socket_(socket), child_(child), name_(std::move(name)), timeout_(timeout) {}

Connection::~Connection() {
    close(socket_);
    if (child_ > 0) {
        // It ends by itself when nothing more comes; one that does not is ended.
        for (int tries = 0; tries < 50; ++tries) {
            if (waitpid(child_, nullptr, WNOHANG) != 0) {
                return;
            }
            usleep(2000);
        }
        kill(child_, SIGKILL);
        waitpid(child_, nullptr, 0);
    }
}

void Connection::require(const std::string& decides) {
    if (decides_.empty()) {
        greet();
    }
    if (decides_.find(' ' + decides + ' ') == std::string::npos) {
        policy_failed(name_, fmt::format("it does not decide as {}: it decides{}", decides,
                                         decides_ == " " ? " nothing" : decides_.substr(0, decides_.size() - 1)));
    }
}

void Connection::greet() {
    send(fmt::format(R"({{"orrery":{},"decides":["{}"]}})", kProtocol, fmt::join(kDeciders, "\",\"")));
    const std::string answer(receive());
    const auto said = nlohmann::json::parse(answer, nullptr, false);
    const bool known = said.is_object() && said.contains("orrery");
    if (!known || said["orrery"] != kProtocol) {
        policy_failed(name_, fmt::format("it must greet with {{\"orrery\": {}, \"decides\": [...]}}, but said {}",
                                         kProtocol, answer.substr(0, 200)));
    }
    decides_ = " ";
    if (const auto list = said.find("decides"); list != said.end() && list->is_array()) {
        for (const auto& one : *list) {
            decides_ += (one.is_string() ? one.get<std::string>() : "?") + " ";
        }
    }
}

void Connection::send(std::string_view line) {
    const auto end = end_of(timeout_);
    std::string text(line);
    text += '\n';
    for (std::size_t sent = 0; sent < text.size();) {
        const ssize_t n = ::send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            sent += static_cast<std::size_t>(n);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!wait_for(socket_, POLLOUT, end)) {
                policy_failed(name_, fmt::format("it has not read for {} s", timeout_));
            }
        } else if (errno != EINTR) {
            policy_failed(name_, "it has ended");
        }
    }
}

std::string_view Connection::receive() {
    ORRERY_ASSERT(begin_ <= buffer_.size());
    buffer_.erase(0, begin_);
    begin_ = 0;
    const auto end = end_of(timeout_);
    std::size_t searched = 0;
    while (true) {
        const std::size_t newline = buffer_.find('\n', searched);
        if (newline != std::string::npos) {
            begin_ = newline + 1;
            return std::string_view(buffer_).substr(0, newline);
        }
        searched = buffer_.size();
        if (searched > kLongestLine) {
            policy_failed(name_, fmt::format("it sent a line of over {} MiB", kLongestLine >> 20U));
        }
        std::array<char, 65536> part;
        ssize_t n = recv(socket_, part.data(), part.size(), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (!wait_for(socket_, POLLIN, end)) {
                policy_failed(name_, fmt::format("it has not answered for {} s", timeout_));
            }
            continue;
        }
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            policy_failed(name_, "it has ended without an answer");
        }
        buffer_.append(part.data(), static_cast<std::size_t>(n));
    }
}

}  // namespace orrery::outside
