#include "tools/service/http_server.hpp"

#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <atomic>
#include <cctype>
#include <chrono>
#include <csignal>
#include <thread>

namespace orrery::service {

namespace {

constexpr int kMostUnaccepted = 512;  // connections that wait for a thread
constexpr auto kTick = std::chrono::milliseconds(200);
constexpr std::size_t kLeastToken = 16;   // characters
constexpr std::size_t kMostToken = 4096;  // B of its file

std::atomic<bool> g_stopping = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void stop(int /*signal*/) {
    g_stopping = true;
}

// Equal times for all wrong tokens of one length.
bool same(const std::string& a, const std::string& b) {
    unsigned difference = a.size() == b.size() ? 0U : 1U;
    for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
        difference |= static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]));
    }
    return difference == 0;
}

}  // namespace

HttpServer::HttpServer(std::size_t most_body, int patience_s) {
    // The library would share a port with another service, which then takes half of the requests.
    set_socket_options([](socket_t socket) {
        const int yes = 1;
        (void)setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    set_payload_max_length(most_body);
    set_read_timeout(patience_s);
    set_write_timeout(patience_s);
    set_tcp_nodelay(true);
    set_default_headers({{"X-Content-Type-Options", "nosniff"},
                         {"Referrer-Policy", "no-referrer"},
                         {"Cross-Origin-Resource-Policy", "same-origin"}});
}

int HttpServer::listen_at(const std::string& address, int port) {
    if (port == 0) {
        port = bind_to_any_port(address);
    } else if (!bind_to_port(address, port)) {
        port = -1;
    }
    if (port < 0) {
        throw ConfigError(fmt::format("cannot listen at {}; another program may do so already (--port N)", address));
    }
    // The library lets five clients wait to be accepted, and the kernel drops those beyond.
    (void)::listen(svr_sock_, kMostUnaccepted);
    return port;
}

void HttpServer::serve(const std::function<bool()>& stopping) {
    std::thread watcher([&] {
        while (!stopping()) {
            std::this_thread::sleep_for(kTick);
        }
        stop();
    });
    (void)listen_after_bind();
    watcher.join();
}

std::optional<Refusal> refusal_of(const httplib::Request& request, const std::string& token, bool open) {
    const std::string host = request.get_header_value("Host");
    if (token.empty()) {
        const std::size_t colon = host.rfind(':');
        const std::string name = host.empty() || host.back() == ']' ? host : host.substr(0, colon);
        if (name != "127.0.0.1" && name != "localhost" && name != "[::1]") {
            // A page whose name was pointed at this address asks in its own name.
            return Refusal{403, "this service answers to 127.0.0.1 and localhost alone"};
        }
    }
    const std::string origin = request.get_header_value("Origin");
    if (!origin.empty() && origin != "http://" + host && origin != "https://" + host) {
        return Refusal{403, "pages of other sites may not call this service"};
    }
    if (!token.empty() && !open && !same(request.get_header_value("Authorization"), "Bearer " + token)) {
        return Refusal{401, "send the token of this service as 'Authorization: Bearer TOKEN'"};
    }
    if (request.has_header("Transfer-Encoding") || request.has_header("Content-Encoding")) {
        return Refusal{411, "send a body with its Content-Length, not packed or in pieces"};
    }
    const std::string type = request.get_header_value("Content-Type");
    if (request.method == "POST" && type.substr(0, type.find(';')) != "application/json") {
        return Refusal{415, "send JSON, as Content-Type: application/json"};
    }
    return std::nullopt;
}

std::string read_token(const std::string& file) {
    std::string token = read_input(file, kMostToken);
    while (!token.empty() && std::isspace(static_cast<unsigned char>(token.back())) != 0) {
        token.pop_back();
    }
    if (token.size() < kLeastToken) {
        throw ConfigError(fmt::format("the token in '{}' must have at least {} characters", file, kLeastToken));
    }
    return token;
}

void stop_by_signals() {
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
        struct sigaction action {};
        action.sa_handler = stop;
        sigaction(number, &action, nullptr);
    }
    (void)std::signal(SIGPIPE, SIG_IGN);
}

bool told_to_stop() {
    return g_stopping.load();
}

}  // namespace orrery::service
