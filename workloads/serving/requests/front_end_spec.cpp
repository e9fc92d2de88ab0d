#include "workloads/serving/requests/front_end_spec.hpp"

namespace orrery::serving {

void describe(Fields& fields, FrontEndSpec& spec) {
    fields.integer({"cores", "cores of hosts that work on requests and tokens of all replicas", false, 1, 1 << 16},
                   spec.cores);
    fields.quantity({"request", "core time per request: HTTP, checks", false, 0, 10}, Dimension::time, spec.request_s);
    fields.quantity({"prompt_token", "core time per token of a prompt: tokenisation", false, 0, 1}, Dimension::time,
                    spec.prompt_token_s);
    fields.quantity({"token", "core time per token of an answer: detokenisation, streaming", false, 0, 1},
                    Dimension::time, spec.token_s);
    fields.number({"rate", "requests per second that are let in, evenly; 0: as they come", false, 0, 1e7}, spec.rate);
    fields.integer({"streams", "maximum of concurrent requests; 0: unlimited", false, 0, 1 << 24}, spec.streams);
}

std::vector<std::string> problems_of(const FrontEndSpec& spec) {
    std::vector<std::string> problems;
    if (spec.given && spec.request_s + spec.prompt_token_s + spec.token_s <= 0 && spec.cores != FrontEndSpec().cores) {
        problems.emplace_back(
            "'front_end.cores' changes nothing: they have no work of a 'request', 'prompt_token' or 'token'");
    }
    return problems;
}

}  // namespace orrery::serving
