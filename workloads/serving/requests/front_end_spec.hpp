#pragma once
// What a scenario says of the host under a service's front end (front_end/front_end_host.hpp).

#include "sim/config/fields.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::serving {

struct FrontEndSpec {
    bool given = false;
    std::int64_t cores = 1;
    double request_s = 0;       ///< of a core on each request
    double prompt_token_s = 0;  ///< of a core on each token of its prompt
    double token_s = 0;         ///< of a core on each token of its answer
    double rate = 0;            ///< requests per second that it lets in, evenly; 0: as they come
    std::int64_t streams = 0;   ///< requests that it lets be under way; 0: any number
};
void describe(Fields& fields, FrontEndSpec& spec);
/// What changes nothing as it is; empty: fine.
[[nodiscard]] std::vector<std::string> problems_of(const FrontEndSpec& spec);

}  // namespace orrery::serving
