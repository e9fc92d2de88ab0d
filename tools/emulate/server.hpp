#pragma once
// The HTTP server of an emulated engine: a thread for each connection, as far as there are some, and clients that leave are noticed.
//
// cpp-httplib keeps a connection's socket to itself, so the loop over the requests of a connection is here.

#include "tools/service/http_server.hpp"

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace orrery::emulate {

/// Threads that are made when they are needed, up to a number; further connections wait for one.
class Threads final : public httplib::TaskQueue {
  public:
    explicit Threads(std::size_t most) : most_(most) {}
    void enqueue(std::function<void()> task) override;
    void shutdown() override;

  private:
    void work();

    std::size_t most_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> tasks_;
    std::size_t idle_ = 0;
    bool ends_ = false;
    std::vector<std::thread> threads_;
};

class Server final : public service::HttpServer {
  public:
    using HttpServer::HttpServer;
    /// Of the request that this thread works on: whether its client is still there.
    [[nodiscard]] static bool client_is_there();

  private:
    bool process_and_close_socket(socket_t socket) override;
};

}  // namespace orrery::emulate
