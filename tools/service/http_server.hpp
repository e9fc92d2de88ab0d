#pragma once
// What all programs that serve HTTP share: how they listen and end, and whom they admit.
//
// Claims: a request is looked at only if it names this host where no token is needed, sends the token where one is, and comes from no page
// of another site; a port is never shared with another process.

#include <httplib.h>

#include <functional>
#include <optional>
#include <string>

namespace orrery::service {

/// A server of cpp-httplib that waits for clients as a service should.
class HttpServer : public httplib::Server {
  public:
    /// `most_body`: B of a request. A client that sends nothing, or reads nothing, for `patience_s` is dropped.
    HttpServer(std::size_t most_body, int patience_s);
    /// Returns the port. `port` 0: any free one. Throws ConfigError where it cannot listen.
    int listen_at(const std::string& address, int port);
    /// Serves until `stopping`, asked five times a second, says so.
    void serve(const std::function<bool()>& stopping);
};

/// Why a request is not looked at.
struct Refusal {
    int status;
    std::string message;
};
/// `token`: empty where none is needed. `open`: what this request asks for needs none.
[[nodiscard]] std::optional<Refusal> refusal_of(const httplib::Request& request, const std::string& token, bool open);

/// The token in a file, without the white space at its end. Throws ConfigError where it is too short.
[[nodiscard]] std::string read_token(const std::string& file);

/// TERM, INT and HUP do not end the process from now on; `told_to_stop` says that one has come.
void stop_by_signals();
[[nodiscard]] bool told_to_stop();

}  // namespace orrery::service
