#include "tools/program/mcp_server.hpp"

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "tools/program/commands.hpp"
#include "tools/program/mcp_resources.hpp"
#include "tools/program/shallow_json.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

namespace orrery::program {

namespace {

using Json = nlohmann::ordered_json;

// Of JSON-RPC 2.0.
constexpr int kParseError = -32700;
constexpr int kInvalidRequest = -32600;
constexpr int kMethodNotFound = -32601;
constexpr int kInvalidParams = -32602;
constexpr int kInternalError = -32603;
constexpr int kResourceNotFound = -32002;  // of the Model Context Protocol

constexpr std::array kRevisions = {"2024-11-05", "2025-03-26", "2025-06-18"};
constexpr std::size_t kMostMessages = 100;  // in a batch

// A request without a method of this server, or before its arguments are looked at.
class MethodNotFound : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};
class Cancelled : public std::exception {};
class ResourceNotFound : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

std::string line_of(const Json& message) {
    return message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Json failure(const Json& id, int code, const std::string& message) {
    return {{"jsonrpc", "2.0"}, {"id", id}, {"error", {{"code", code}, {"message", message}}}};
}

Json parsed(const std::string& line) {
    return too_deep(line) ? Json(Json::value_t::discarded) : Json::parse(line, nullptr, false);
}

bool is_id(const Json& id) {
    return id.is_string() || id.is_number();
}

bool has_method(const Json& message, const char* method) {
    return message.is_object() && message.contains("method") && message["method"] == method;
}

std::string string_in(const Json& parameters, const char* name) {
    const auto found = parameters.find(name);
    if (found == parameters.end() || !found->is_string()) {
        throw InvalidParams(fmt::format("'{}' must be given, as a string", name));
    }
    return found->get<std::string>();
}

Json initialized(const Json& parameters) {
    const std::string wanted = string_in(parameters, "protocolVersion");
    const bool known = std::find(kRevisions.begin(), kRevisions.end(), wanted) != kRevisions.end();
    return {
        {"protocolVersion", known ? wanted : kRevisions.back()},
        {"capabilities", {{"tools", Json::object()}, {"resources", Json::object()}}},
        {"serverInfo", {{"name", "orrery"}, {"title", "Orrery"}, {"version", program_version()}}},
        {"instructions",
         "Orrery predicts how fast AI models train and are served on a cluster, and why. Start from 'help' (topic: a "
         "kind of scenario) or the schema resources, check a scenario with 'validate', then 'run' or 'explain' it; "
         "'plan' searches for better plans. Quantities carry units, such as 400 Gbps, 80 GiB, 1.5 us."}};
}

}  // namespace

std::string McpServer::too_long(std::size_t most) {
    return line_of(failure(nullptr, kInvalidRequest, fmt::format("a message may have at most {} bytes", most)));
}

bool McpServer::cancels(const std::string& line, const std::string& id) {
    const Json message = parsed(line);
    if (!has_method(message, "notifications/cancelled") || !message.contains("params")) {
        return false;
    }
    const Json& parameters = message["params"];
    return parameters.is_object() && parameters.contains("requestId") && line_of(parameters["requestId"]) == id;
}

std::optional<std::string> McpServer::pong(const std::string& line) {
    const Json message = parsed(line);
    return has_method(message, "ping") && message.contains("id")
               ? McpServer([](const auto&...) { return std::optional<Invocation>(); }).answer(line)
               : std::nullopt;
}

static Json result_of(const McpServer::Run& run_for, const Json& id, const std::string& method,
                      const Json& parameters) {
    const RunCommand run = [&](const std::vector<std::string>& words, const std::string& input, double limit_s) {
        std::optional<Invocation> ended = run_for(line_of(id), words, input, limit_s);
        if (!ended) {
            throw Cancelled();
        }
        return *std::move(ended);
    };
    if (method == "initialize") {
        return initialized(parameters);
    }
    if (method == "ping") {
        return Json::object();
    }
    if (method == "tools/list") {
        return {{"tools", Json::parse(command_tools(Audience::agents))}};
    }
    if (method == "tools/call") {
        const Json arguments = parameters.contains("arguments") ? parameters["arguments"] : Json::object();
        return Json::parse(call_command_tool(Audience::agents, string_in(parameters, "name"), arguments.dump(), run));
    }
    if (method == "resources/list") {
        return {{"resources", Json::parse(mcp_resources())}};
    }
    if (method == "resources/templates/list") {
        return {{"resourceTemplates", Json::array()}};
    }
    if (method == "resources/read") {
        const std::string uri = string_in(parameters, "uri");
        try {
            return Json::parse(read_mcp_resource(uri, run));
        } catch (const InvalidParams& unknown) {
            throw ResourceNotFound(unknown.what());
        }
    }
    throw MethodNotFound(fmt::format("there is no method '{}'", printable(method)));
}

static std::optional<Json> answer_to(const McpServer::Run& run, const Json& message) {
    if (!message.is_object()) {
        return failure(nullptr, kInvalidRequest, "a message must be a JSON object");
    }
    const auto id_at = message.find("id");
    const bool asks = id_at != message.end();
    const Json id = asks && is_id(*id_at) ? *id_at : Json(nullptr);
    if (message.value("jsonrpc", Json()) != "2.0") {
        return failure(id, kInvalidRequest, "'jsonrpc' must be \"2.0\"");
    }
    if (!message.contains("method")) {
        // An answer: this server asks nothing.
        const bool response = asks && (message.contains("result") || message.contains("error"));
        return response ? std::nullopt : std::optional(failure(id, kInvalidRequest, "'method' is missing"));
    }
    if (!message["method"].is_string()) {
        return failure(id, kInvalidRequest, "'method' must be a string");
    }
    if (!asks) {
        return std::nullopt;  // a notification
    }
    if (!is_id(*id_at)) {
        return failure(nullptr, kInvalidRequest, "'id' must be a string or a number");
    }
    const Json parameters = message.contains("params") ? message["params"] : Json::object();
    try {
        if (!parameters.is_object()) {
            throw InvalidParams("'params' must be an object");
        }
        return Json{{"jsonrpc", "2.0"},
                    {"id", id},
                    {"result", result_of(run, id, message["method"].get<std::string>(), parameters)}};
    } catch (const Cancelled&) {
        return std::nullopt;
    } catch (const MethodNotFound& error) {
        return failure(id, kMethodNotFound, error.what());
    } catch (const ResourceNotFound& error) {
        return failure(id, kResourceNotFound, error.what());
    } catch (const InvalidParams& error) {
        return failure(id, kInvalidParams, error.what());
    } catch (const std::exception& error) {
        return failure(id, kInternalError, error.what());
    }
}

std::optional<std::string> McpServer::answer(const std::string& line) const {
    if (line.find_first_not_of(" \t\r") == std::string::npos) {
        return std::nullopt;
    }
    if (too_deep(line)) {
        return line_of(
            failure(nullptr, kParseError, fmt::format("a message may have at most {} levels", kDeepestJson)));
    }
    const Json message = Json::parse(line, nullptr, false);
    if (message.is_discarded()) {
        return line_of(failure(nullptr, kParseError, "the line is not valid JSON in UTF-8"));
    }
    if (!message.is_array()) {
        const std::optional<Json> one = answer_to(run_, message);
        return one ? std::optional(line_of(*one)) : std::nullopt;
    }
    if (message.empty() || message.size() > kMostMessages) {
        return line_of(failure(nullptr, kInvalidRequest, fmt::format("a batch has 1 to {} messages", kMostMessages)));
    }
    Json answers = Json::array();
    for (const Json& each : message) {
        if (std::optional<Json> one = answer_to(run_, each)) {
            answers.push_back(*std::move(one));
        }
    }
    return answers.empty() ? std::nullopt : std::optional(line_of(answers));
}

}  // namespace orrery::program
