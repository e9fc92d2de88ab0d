#pragma once
// What clients ask for: requests with arrival time, prompt and output lengths, streamed one after another.

#include "sim/base/time.hpp"

#include <cstdint>
#include <vector>

namespace orrery {

struct Request {
    SimTime arrival;
    std::uint32_t prompt = 1;   ///< tokens
    std::uint32_t output = 1;   ///< tokens, the first one included
    std::uint32_t session = 0;  ///< requests of one session stick together where a router wants it
};

/// Requests in order of arrival.
class RequestSource {
  public:
    virtual ~RequestSource() = default;
    /// The next request; false at the end. Throws ConfigError where a trace is malformed or goes back in time.
    [[nodiscard]] virtual bool next(Request& request) = 0;
    /// Fraction of the requests that have been given, as far as it is known.
    [[nodiscard]] virtual double progress() const { return 0; }
};

}  // namespace orrery
