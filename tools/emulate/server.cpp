#include "tools/emulate/server.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace orrery::emulate {

namespace {

constexpr int kSliceMs = 200;  // in which an idle connection looks whether the server ends

thread_local int t_socket = -1;

bool ready(int socket, short what, int timeout_ms) {
    pollfd one{socket, what, 0};
    int got = 0;
    do {
        got = ::poll(&one, 1, timeout_ms);
    } while (got < 0 && errno == EINTR);
    return got > 0;
}

void address_of(const sockaddr_storage& from, std::string& ip, int& port) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (from.ss_family == AF_INET) {
        sockaddr_in in{};
        std::memcpy(&in, &from, sizeof in);
        (void)inet_ntop(AF_INET, &in.sin_addr, text.data(), text.size());
        port = ntohs(in.sin_port);
    } else if (from.ss_family == AF_INET6) {
        sockaddr_in6 in{};
        std::memcpy(&in, &from, sizeof in);
        (void)inet_ntop(AF_INET6, &in.sin6_addr, text.data(), text.size());
        port = ntohs(in.sin6_port);
    }
    ip = text.data();
}

// A connection, with what has been received of it and not read yet.
class Connection final : public httplib::Stream {
  public:
    Connection(int socket, int patience_ms) : socket_(socket), patience_ms_(patience_ms) {}
    [[nodiscard]] bool holds_more() const { return begin_ < end_; }
    [[nodiscard]] bool is_readable() const override { return holds_more() || ready(socket_, POLLIN, patience_ms_); }
    [[nodiscard]] bool is_writable() const override { return ready(socket_, POLLOUT, patience_ms_); }
    ssize_t read(char* to, size_t size) override {
        if (!holds_more()) {
            if (!is_readable()) {
                return -1;
            }
            const ssize_t got = ::recv(socket_, buffer_.data(), buffer_.size(), 0);
            if (got <= 0) {
                return got;
            }
            begin_ = 0;
            end_ = static_cast<std::size_t>(got);
        }
        const std::size_t some = std::min(size, end_ - begin_);
        std::memcpy(to, buffer_.data() + begin_, some);
        begin_ += some;
        return static_cast<ssize_t>(some);
    }
    ssize_t write(const char* from, size_t size) override {
        // A send beyond the room that there is would block without an end.
        while (true) {
            const ssize_t sent = ::send(socket_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent >= 0 || (errno != EAGAIN && errno != EINTR)) {
                return sent;
            }
            if (errno == EAGAIN && !is_writable()) {
                return -1;
            }
        }
    }
    void get_remote_ip_and_port(std::string& ip, int& port) const override {
        sockaddr_storage from{};
        socklen_t size = sizeof from;
        if (getpeername(socket_, reinterpret_cast<sockaddr*>(&from), &size) == 0) {
            address_of(from, ip, port);
        }
    }
    void get_local_ip_and_port(std::string& ip, int& port) const override {
        sockaddr_storage from{};
        socklen_t size = sizeof from;
        if (getsockname(socket_, reinterpret_cast<sockaddr*>(&from), &size) == 0) {
            address_of(from, ip, port);
        }
    }
    [[nodiscard]] socket_t socket() const override { return socket_; }

  private:
    int socket_;
    int patience_ms_;
    std::array<char, 8192> buffer_{};
    std::size_t begin_ = 0, end_ = 0;
};

}  // namespace

void Threads::enqueue(std::function<void()> task) {
    const std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
    if (idle_ < tasks_.size() && threads_.size() < most_) {
        threads_.emplace_back([this] { work(); });
    }
    changed_.notify_one();
}

void Threads::work() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
        ++idle_;
        changed_.wait(lock, [&] { return ends_ || !tasks_.empty(); });
        --idle_;
        if (tasks_.empty()) {
            return;
        }
        const std::function<void()> task = std::move(tasks_.front());
        tasks_.pop_front();
        lock.unlock();
        task();
        lock.lock();
    }
}

void Threads::shutdown() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        ends_ = true;
    }
    changed_.notify_all();
    for (std::thread& one : threads_) {
        one.join();
    }
}

bool Server::client_is_there() {
    char next = 0;
    const ssize_t got = ::recv(t_socket, &next, 1, MSG_PEEK | MSG_DONTWAIT);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

bool Server::process_and_close_socket(socket_t socket) {
    constexpr int kMs = 1000;
    Connection connection(socket, static_cast<int>(read_timeout_sec_) * kMs);
    t_socket = socket;
    bool served = false;
    for (std::size_t left = keep_alive_max_count_; left > 0; --left) {
        int waits_ms = static_cast<int>(keep_alive_timeout_sec_) * kMs;
        while (!connection.holds_more() && !ready(socket, POLLIN, kSliceMs) && waits_ms > 0 &&
               svr_sock_ != INVALID_SOCKET) {
            waits_ms -= kSliceMs;
        }
        if (!connection.holds_more() && !ready(socket, POLLIN, 0)) {
            break;
        }
        bool closed = false;
        served = process_request(connection, left == 1, closed, nullptr);
        if (!served || closed) {
            break;
        }
    }
    t_socket = -1;
    (void)::shutdown(socket, SHUT_RDWR);
    (void)::close(socket);
    return served;
}

}  // namespace orrery::emulate
