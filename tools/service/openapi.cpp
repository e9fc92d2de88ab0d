#include "tools/service/openapi.hpp"

#include "tools/program/command_tools.hpp"

#include <nlohmann/json.hpp>

#include <string>

namespace orrery::service {

namespace {

using Json = nlohmann::ordered_json;

Json json_content(const Json& schema) {
    return {{"application/json", {{"schema", schema}}}};
}

Json answer(const char* description, const Json& schema) {
    return {{"description", description}, {"content", json_content(schema)}};
}

Json refers_to(const char* name) {
    return {{"$ref", std::string("#/components/schemas/") + name}};
}

// Of every path that runs something.
Json errors() {
    const Json error = refers_to("errors");
    return {{"400", answer("The request is malformed.", error)},
            {"401", answer("The token is missing or wrong.", error)},
            {"422", answer("The command refuses its input (exit code 2) or finds it infeasible (3).", error)},
            {"503", answer("Too many jobs wait; 'Retry-After' says when to try again.", error)}};
}

Json with_errors(Json answers) {
    answers.update(errors());
    return answers;
}

Json schemas() {
    Json job = {{"type", "object"},
                {"properties",
                 {{"id", {{"type", "string"}}},
                  {"command", {{"type", "string"}}},
                  {"state", {{"enum", {"queued", "running", "done", "failed", "cancelled"}}}},
                  {"progress", {{"type", "string"}, {"description", "Last line that the run said."}}},
                  {"seconds", {{"type", "number"}, {"description", "Wall time that it ran, in seconds."}}},
                  {"result", {{"description", "What the command answers, once the job is done or failed."}}}}}};
    Json problem = {{"type", "object"},
                    {"properties",
                     {{"exit_code", {{"type", "integer"}}},
                      {"errors",
                       {{"type", "array"},
                        {"items",
                         {{"type", "object"},
                          {"properties",
                           {{"message", {{"type", "string"}}},
                            {"code", {{"type", "string"}}},
                            {"line", {{"type", "integer"}}},
                            {"column", {{"type", "integer"}}}}}}}}},
                      {"text", {{"type", "string"}}}}}};
    return {{"job", job}, {"errors", problem}};
}

}  // namespace

std::string openapi(const std::string& version) {
    Json paths = Json::object();
    Json names = Json::array();
    for (const Json& tool : Json::parse(program::command_tools(program::Audience::programs))) {
        const std::string name = tool["name"].get<std::string>();
        names.push_back(name);
        const bool page = name == "report";
        Json ok = {{"description", "What the command answers."}};
        ok["content"] =
            page ? Json{{"text/html", {{"schema", {{"type", "string"}}}}}} : json_content({{"type", "object"}});
        paths["/v1/" + name]["post"] = {
            {"operationId", name},
            {"summary", tool["title"]},
            {"description", tool["description"]},
            {"requestBody", {{"required", true}, {"content", json_content(tool["inputSchema"])}}},
            {"responses", with_errors({{"200", ok}})}};
    }
    const Json id = {{"name", "id"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}};
    const Json job = refers_to("job");
    paths["/v1/jobs"]["post"] = {
        {"operationId", "add_job"},
        {"summary", "Run a command in the background"},
        {"requestBody",
         {{"required", true},
          {"content",
           json_content({{"type", "object"},
                         {"required", {"command"}},
                         {"properties", {{"command", {{"enum", names}}}, {"arguments", {{"type", "object"}}}}}})}}},
        {"responses", with_errors({{"202", answer("The job, whose path is in 'Location'.", job)}})}};
    const Json unknown = answer("There is no such job, or no longer.", refers_to("errors"));
    paths["/v1/jobs/{id}"] = {
        {"parameters", Json::array({id})},
        {"get",
         {{"operationId", "job"},
          {"summary", "A job and its result"},
          {"responses", {{"200", answer("The job.", job)}, {"404", unknown}}}}},
        {"delete",
         {{"operationId", "cancel_job"},
          {"summary", "Cancel a job, or drop its result"},
          {"responses", {{"204", {{"description", "It is cancelled or dropped."}}}, {"404", unknown}}}}}};
    paths["/v1/jobs/{id}/events"] = {{"parameters", Json::array({id})},
                                     {"get",
                                      {{"operationId", "job_events"},
                                       {"summary", "Changes of a job as server-sent events, until it ends"},
                                       {"responses",
                                        {{"200",
                                          {{"description", "Events 'job', each with a job without its result."},
                                           {"content", {{"text/event-stream", {{"schema", {{"type", "string"}}}}}}}}},
                                         {"404", unknown}}}}}};
    const auto named = [&](const char* operation, const char* summary, const char* parameter) {
        return Json{
            {"parameters",
             Json::array(
                 {{{"name", parameter}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}}})},
            {"get",
             {{"operationId", operation},
              {"summary", summary},
              {"responses",
               {{"200", answer("The answer.", {{"type", "object"}})},
                {"404", answer("There is no such name.", refers_to("errors"))}}}}}};
    };
    paths["/v1/schema/{kind}"] =
        named("schema", "JSON Schema of scenarios ('scenario'), of one kind, of sweeps or of summaries", "kind");
    paths["/v1/list/{topic}"] = named("list", "Names of models, devices, nodes, engines and the like", "topic");
    paths["/v1"]["get"] = {{"operationId", "service"},
                           {"summary", "Version, commands, limits and load"},
                           {"responses", {{"200", answer("The service.", {{"type", "object"}})}}}};
    const Json document = {
        {"openapi", "3.1.0"},
        {"info", {{"title", "Orrery"}, {"version", version}}},
        {"paths", paths},
        {"components",
         {{"schemas", schemas()}, {"securitySchemes", {{"token", {{"type", "http"}, {"scheme", "bearer"}}}}}}}};
    return document.dump(1) + "\n";
}

}  // namespace orrery::service
