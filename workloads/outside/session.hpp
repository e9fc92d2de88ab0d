#pragma once
// What the command line says of policies from outside: whether their code may be loaded, who decides over a socket, what is recorded.
//
// One per process, as there is one command line.

#include "workloads/outside/connection.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace orrery::outside {

struct Session {
    bool allows_code = false;             ///< --allow-policies
    double timeout = 30;                  ///< s for an answer
    std::shared_ptr<Connection> clock;    ///< who decides what comes `from: socket`; null: nobody
    bool records = false;                 ///< whether decisions are kept
    std::string record;                   ///< those kept, a line each
    std::uint64_t decisions = 0;          ///< asked for
    std::chrono::nanoseconds deciding{};  ///< time until they were there
};
[[nodiscard]] Session& session();

/// Counts a decision and its time from here to the end of the scope.
class Decision {
  public:
    Decision();
    Decision(const Decision&) = delete;
    Decision& operator=(const Decision&) = delete;
    ~Decision();

  private:
    std::chrono::nanoseconds start_;
};

}  // namespace orrery::outside
