#include "workloads/outside/messages.hpp"

#include <nlohmann/json.hpp>

namespace orrery::outside {

std::string opening(const char* kind, std::uint32_t number, const std::string& parameters) {
    return fmt::format(R"({{"open":"{}","number":{},"parameters":{}}})", kind, number,
                       nlohmann::json(parameters).dump());
}

void add_request(Text& text, const policy::Replicas& replicas, const policy::Request& request) {
    add(text, R"(,"time":{},"request":{},"session":{},"prompt":{},"replicas":[)", request.now, request.request,
        request.session, request.prompt);
    for (std::size_t i = 0; i < replicas.size(); ++i) {
        add(text, "{}[{},{},{},{},{}]", i > 0 ? "," : "", replicas.number(i), replicas.requests(i),
            replicas.used_blocks(i), replicas.blocks(i), replicas.cached(i));
    }
    add(text, "]}}");
}

}  // namespace orrery::outside
