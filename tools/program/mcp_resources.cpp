#include "tools/program/mcp_resources.hpp"

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "tools/driver/kind.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace orrery::program {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kReadLimit = 300;  // s

struct McpResource {
    std::string uri, name, description, type;
    std::vector<std::string> command;
};

std::vector<McpResource> resource_table() {
    std::vector<McpResource> out = {{"orrery://schema/scenario",
                                     "scenario schema",
                                     "JSON Schema of scenarios of all kinds",
                                     "application/schema+json",
                                     {"schema"}},
                                    {"orrery://schema/sweep",
                                     "sweep schema",
                                     "JSON Schema of sweeps",
                                     "application/schema+json",
                                     {"schema", "sweep"}},
                                    {"orrery://schema/summary",
                                     "summary schema",
                                     "JSON Schema of what a run returns",
                                     "application/schema+json",
                                     {"schema", "summary"}},
                                    {"orrery://reference",
                                     "reference",
                                     "Reference of the scenario language",
                                     "text/markdown",
                                     {"help", "reference"}}};
    for (const std::string& kind : scenario_kind_names()) {
        out.push_back({"orrery://schema/" + kind,
                       kind + " schema",
                       "JSON Schema of scenarios of kind " + kind,
                       "application/schema+json",
                       {"schema", kind}});
    }
    return out;
}

// A command's output may hold any bytes of files.
std::string text_of(const Json& value) {
    return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string mcp_resources() {
    Json out = Json::array();
    for (const McpResource& one : resource_table()) {
        out.push_back({{"uri", one.uri}, {"name", one.name}, {"description", one.description}, {"mimeType", one.type}});
    }
    return text_of(out);
}

std::string read_mcp_resource(const std::string& uri, const RunCommand& run) {
    for (const McpResource& one : resource_table()) {
        if (one.uri == uri) {
            const Invocation ended = run(one.command, "", kReadLimit);
            ORRERY_ASSERT(ended.code == 0);
            return text_of(
                {{"contents", Json::array({Json{{"uri", uri}, {"mimeType", one.type}, {"text", ended.output}}})}});
        }
    }
    throw InvalidParams(fmt::format("unknown resource '{}'", printable(uri)));
}

}  // namespace orrery::program
