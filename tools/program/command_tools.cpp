#include "tools/program/command_tools.hpp"

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace orrery::program {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostText = 16'000;  // characters of a small answer in words
constexpr std::size_t kMostRows = 5;       // of the lists of a small answer
constexpr double kDefaultLimit = 300;      // s
constexpr double kLongestLimit = 24 * 3600;

Json property(const char* type, const char* description) {
    return {{"type", type}, {"description", description}};
}

// Arguments of more than one tool.
Json scenario_properties() {
    return {{"path", property("string", "File of the scenario. Give this or 'scenario'.")},
            {"scenario",
             {{"type", {"string", "object"}},
              {"description",
               "The scenario itself: YAML text, or an object with the same keys. Paths in it are relative to the "
               "server's working directory."}}},
            {"set",
             {{"type", "object"},
              {"description", "Overrides of the scenario: dotted keys and values, such as {\"plan.tensor\": 4}."}}}};
}

Json limit_property() {
    return {{"type", "number"},
            {"exclusiveMinimum", 0},
            {"maximum", kLongestLimit},
            {"description", "Wall time after which the call is given up, in seconds; 300 by default."}};
}

Json detail_property() {
    return {{"type", "string"},
            {"enum", {"short", "full"}},
            {"description", "short (default): the essential figures; full: all that the command writes."}};
}

Json tool(const char* name, const char* title, const char* description, Json properties,
          const std::vector<std::string>& required) {
    Json schema = {{"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
    if (!required.empty()) {
        schema["required"] = required;
    }
    return {{"name", name},
            {"title", title},
            {"description", description},
            {"inputSchema", schema},
            {"annotations",
             {{"title", title}, {"readOnlyHint", true}, {"idempotentHint", true}, {"openWorldHint", false}}}};
}

Json with(Json properties, std::initializer_list<std::pair<const char*, Json>> more) {
    for (const auto& [name, value] : more) {
        properties[name] = value;
    }
    properties["detail"] = detail_property();
    properties["timeout_s"] = limit_property();
    return properties;
}

std::string scalar(const Json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
}

// The arguments of a call, checked against the tool's schema before anything runs.
class Arguments {
  public:
    Arguments(const Json& given, const Json& schema) : given_(given) {
        if (!given.is_object()) {
            throw InvalidParams("'arguments' must be an object");
        }
        const Json& properties = schema["properties"];
        for (const auto& [name, value] : given.items()) {
            const auto found = properties.find(name);
            if (found == properties.end()) {
                std::vector<std::string> names;
                for (const auto& [known, unused] : properties.items()) {
                    names.push_back(known);
                }
                const std::string near = nearest_name(name, names);
                throw InvalidParams(fmt::format("unknown argument '{}'{}", printable(name),
                                                near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near)));
            }
            check(name, value, *found);
        }
        for (const Json& name : schema.value("required", Json::array())) {
            if (!given.contains(name.get<std::string>())) {
                throw InvalidParams(fmt::format("the argument '{}' is missing", name.get<std::string>()));
            }
        }
    }

    [[nodiscard]] bool has(const char* name) const { return given_.contains(name); }
    [[nodiscard]] const Json& at(const char* name) const { return given_[name]; }
    [[nodiscard]] std::string text(const char* name) const { return has(name) ? scalar(at(name)) : ""; }
    [[nodiscard]] bool full() const { return text("detail") == "full"; }
    [[nodiscard]] double limit_s() const { return has("timeout_s") ? at("timeout_s").get<double>() : kDefaultLimit; }

  private:
    static bool is(const Json& value, const std::string& type) {
        return type == "string"    ? value.is_string()
               : type == "object"  ? value.is_object()
               : type == "array"   ? value.is_array()
               : type == "integer" ? value.is_number_integer()
               : type == "number"  ? value.is_number()
                                   : value.is_boolean();
    }
    static void check(const std::string& name, const Json& value, const Json& schema) {
        std::vector<std::string> types;
        if (schema["type"].is_array()) {
            types = schema["type"].get<std::vector<std::string>>();
        } else {
            types = {schema["type"].get<std::string>()};
        }
        if (std::none_of(types.begin(), types.end(), [&](const std::string& type) { return is(value, type); })) {
            throw InvalidParams(fmt::format("the argument '{}' must be of type {}", name, fmt::join(types, " or ")));
        }
        if (schema.contains("enum") &&
            std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end()) {
            throw InvalidParams(fmt::format("the argument '{}' must be one of {}", name, schema["enum"].dump()));
        }
        if (value.is_number()) {
            const double number = value.get<double>();
            if ((schema.contains("minimum") && number < schema["minimum"].get<double>()) ||
                (schema.contains("exclusiveMinimum") && number <= schema["exclusiveMinimum"].get<double>()) ||
                (schema.contains("maximum") && number > schema["maximum"].get<double>())) {
                throw InvalidParams(fmt::format("the argument '{}' is out of range", name));
            }
        }
    }

    const Json& given_;
};

// A command line that is being put together.
struct Words {
    std::vector<std::string> words;
    std::string input;

    // Not "--name value": a value may begin with a dash.
    void option(const char* name, const std::string& value) { words.push_back(fmt::format("--{}={}", name, value)); }
    // Each that is given, as the option of the same name.
    void options(const Arguments& arguments, std::initializer_list<const char*> names) {
        for (const char* name : names) {
            if (arguments.has(name)) {
                std::string option_name = name;
                std::replace(option_name.begin(), option_name.end(), '_', '-');
                option(option_name.c_str(), arguments.text(name));
            }
        }
    }
    // "--" ends the options: an argument may begin with a dash.
    void scenario(const Arguments& arguments) {
        if (arguments.has("path") == arguments.has("scenario")) {
            throw InvalidParams("give either 'path' or 'scenario'");
        }
        if (arguments.has("set")) {
            for (const auto& [key, value] : arguments.at("set").items()) {
                option("set", fmt::format("{}={}", key, scalar(value)));
            }
        }
        if (arguments.has("path")) {
            if (arguments.text("path") == "-") {
                throw InvalidParams("the server's standard input is the protocol's; give the scenario as 'scenario'");
            }
            words.insert(words.end(), {"--", arguments.text("path")});
        } else {
            const Json& given = arguments.at("scenario");
            input = given.is_string() ? given.get<std::string>() : given.dump(1);
            words.insert(words.end(), {"--", "-"});
        }
    }
};

Json text_result(const std::string& text, bool error) {
    Json out = {{"content", Json::array({Json{{"type", "text"}, {"text", text}}})}};
    out["isError"] = error;
    return out;
}

Json json_result(const Json& value) {
    Json out = text_result(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), false);
    out["structuredContent"] = value;
    return out;
}

// The errors of a command: the diagnostics as they are where it wrote some.
Json error_result(const Invocation& ended) {
    Json diagnostics = Json::array();
    std::string rest;
    for (const std::string_view line : split(ended.errors, '\n')) {
        Json one = Json::parse(line, nullptr, false);
        if (one.is_object()) {
            diagnostics.push_back(std::move(one));
        } else if (!line.empty()) {
            rest += std::string(line) + "\n";
        }
    }
    Json value = {{"exit_code", ended.code}, {"errors", std::move(diagnostics)}};
    if (!rest.empty()) {
        value["text"] = rest.substr(0, kMostText);
    }
    Json out = json_result(value);
    out["isError"] = true;
    return out;
}

// A long text cut at the end of a line.
std::string cut(const std::string& text) {
    if (text.size() <= kMostText) {
        return text;
    }
    const std::size_t end = text.rfind('\n', kMostText);
    return text.substr(0, end == std::string::npos ? kMostText : end) + "\n[cut; ask with detail: full, or for less]\n";
}

// Metrics by name with quantiles as "ttft_s.p99", each as {value, unit} and its interval where there is one.
void add_metrics(Json& out, const std::string& name, const Json& value) {
    if (!value.is_object()) {
        return;
    }
    if (!value.contains("value")) {
        for (const auto& [part, inner] : value.items()) {
            add_metrics(out, name.empty() ? part : name + "." + part, inner);
        }
        return;
    }
    if (value["value"].is_null()) {
        return;
    }
    Json one = {{"value", value["value"]}, {"unit", value["unit"]}};
    for (const char* side : {"low", "high"}) {
        if (value.contains(side) && !value[side].is_null()) {
            one[side] = value[side];
        }
    }
    out[name] = one;
}

void keep_first(Json& value, const char* list, std::size_t most) {
    if (value.contains(list) && value[list].size() > most) {
        value[list].erase(value[list].begin() + static_cast<std::ptrdiff_t>(most), value[list].end());
    }
}

Json small_summary(const Json& full) {
    Json metrics = Json::object();
    add_metrics(metrics, "", full["metrics"]);
    Json out = {{"scenario", full["scenario"]}, {"kind", full["kind"]}, {"metrics", metrics}};
    for (const char* part : {"breakdown", "expectations"}) {
        if (full.contains(part) && !full[part].empty()) {
            out[part] = full[part];
        }
    }
    if (full.contains("notes") && !full["notes"].empty()) {
        out["notes"] = full["notes"];
    }
    return out;
}

Json small_explanation(Json full) {
    for (const char* list : {"critical_path", "bounds", "what_ifs", "kernels", "transfers", "requests"}) {
        keep_first(full, list, kMostRows);
    }
    // Of the values only those that nobody measured or published: they are where a prediction may be wrong.
    Json assumed = Json::array();
    for (const Json& value : full["values"]) {
        if (value.contains("how") && value["how"] == "assumed") {
            assumed.push_back(value["path"]);
        }
    }
    full.erase("values");
    full.erase("iterations");
    full["assumed_values"] = assumed;
    keep_first(full, "assumed_values", 2 * kMostRows);
    return full;
}

Json run_tool(const Arguments& arguments, const RunCommand& run) {
    Words line{{"run", "--json=-"}, {}};
    line.options(arguments, {"seed"});
    line.scenario(arguments);
    const Invocation ended = run(line.words, line.input, arguments.limit_s());
    const Json full = Json::parse(ended.output, nullptr, false);
    if (!full.is_object() || ended.code > 1) {
        return error_result(ended);
    }
    Json out = json_result(arguments.full() ? full : small_summary(full));
    if (ended.code == 1) {  // the run is fine, and an expectation of the scenario is not met
        out["isError"] = true;
    }
    return out;
}

Json plan_tool(const Arguments& arguments, const RunCommand& run) {
    Words line{{"plan", "--json=-"}, {}};
    line.options(arguments, {"simulate", "nodes", "price"});
    line.scenario(arguments);
    const Invocation ended = run(line.words, line.input, arguments.limit_s());
    Json found = Json::parse(ended.output, nullptr, false);
    if (!found.is_object() || ended.code != 0) {
        return error_result(ended);
    }
    if (!arguments.full()) {
        keep_first(found, "plans",
                   arguments.has("top") ? arguments.at("top").get<std::size_t>() : std::size_t{kMostRows});
    }
    return json_result(found);
}

Json explain_tool(const Arguments& arguments, const RunCommand& run) {
    Words line{{"explain", "--json=-"}, {}};
    line.options(arguments, {"seed"});
    line.scenario(arguments);
    const Invocation ended = run(line.words, line.input, arguments.limit_s());
    const Json full = Json::parse(ended.output, nullptr, false);
    if (!full.is_object() || ended.code != 0) {
        return error_result(ended);
    }
    return json_result(arguments.full() ? full : small_explanation(full));
}

Json price_tool(const Arguments& arguments, const RunCommand& run) {
    Words line{{"price", "--json=-"}, {}};
    line.options(arguments, {"device", "node", "dtype", "kv_dtype", "kernels", "library"});
    line.words.insert(line.words.end(), {"--", arguments.text("operation")});
    if (arguments.has("shape")) {
        for (const auto& [name, value] : arguments.at("shape").items()) {
            line.words.push_back(fmt::format("{}={}", name, scalar(value)));
        }
    }
    const Invocation ended = run(line.words, line.input, arguments.limit_s());
    const Json rows = Json::parse(ended.output, nullptr, false);
    return rows.is_array() && rows.size() == 1 && ended.code == 0 ? json_result(rows[0]) : error_result(ended);
}

Json validate_tool(const Arguments& arguments, const RunCommand& run) {
    if (arguments.has("suite")) {
        for (const char* other : {"path", "scenario", "set"}) {
            if (arguments.has(other)) {
                throw InvalidParams(fmt::format("give either 'suite' or '{}'", other));
            }
        }
        const Invocation ended = run({"validate", "--", arguments.text("suite")}, "", arguments.limit_s());
        return ended.code > 1 ? error_result(ended)
                              : text_result(arguments.full() ? ended.output : cut(ended.output), ended.code == 1);
    }
    Words line{{"run", "--dry-run"}, {}};
    line.scenario(arguments);
    const Invocation ended = run(line.words, line.input, arguments.limit_s());
    return ended.code == 0 ? json_result({{"valid", true}, {"text", ended.output}}) : error_result(ended);
}

Json capacity_tool(const Arguments& arguments, const RunCommand& run) {
    Words line{{"capacity", "--json=-"}, {}};
    line.options(arguments, {"seed", "seeds", "attainment", "percentile"});
    line.scenario(arguments);
    const Invocation ended = run(line.words, line.input, arguments.limit_s());
    const Json found = Json::parse(ended.output, nullptr, false);
    return found.is_object() && ended.code == 0 ? json_result(found) : error_result(ended);
}

Json recommend_tool(const Arguments& arguments, const RunCommand& run) {
    Words line{{"recommend", "--json=-"}, {}};
    line.options(arguments, {"gpus", "slo", "max_gpus", "budget", "spare", "weights", "engines", "price"});
    line.scenario(arguments);
    const Invocation ended = run(line.words, line.input, arguments.limit_s());
    Json found = Json::parse(ended.output, nullptr, false);
    if (!found.is_object() || ended.code != 0) {
        return error_result(ended);
    }
    if (!arguments.full()) {
        keep_first(found, "arrangements", kMostRows);
    }
    return json_result(found);
}

Json init_tool(const Arguments& arguments, const RunCommand& run) {
    Words line{{"init"}, {}};
    line.options(arguments, {"gpus", "device", "model"});
    line.words.insert(line.words.end(), {"--", arguments.text("kind")});
    const Invocation ended = run(line.words, line.input, arguments.limit_s());
    return ended.code == 0 ? text_result(ended.output, false) : error_result(ended);
}

// The page that `run --report` writes.
Json report_tool(const Arguments& arguments, const RunCommand& run) {
    Words line{{"run", "--quiet", "--report=-"}, {}};
    line.options(arguments, {"seed"});
    line.scenario(arguments);
    const Invocation ended = run(line.words, line.input, arguments.limit_s());
    return ended.code <= 1 && !ended.output.empty() ? text_result(ended.output, false) : error_result(ended);
}

// The scenario with every key that it leaves out, as `run --resolved` writes it.
Json resolve_tool(const Arguments& arguments, const RunCommand& run) {
    Words line{{"run", "--quiet", "--dry-run", "--resolved=-"}, {}};
    line.scenario(arguments);
    const Invocation ended = run(line.words, line.input, arguments.limit_s());
    const Json full = Json::parse(ended.output, nullptr, false);
    return full.is_object() && ended.code == 0 ? json_result(full) : error_result(ended);
}

Json help_tool(const Arguments& arguments, const RunCommand& run) {
    std::vector<std::string> words = {"help", "--"};
    for (const char* name : {"topic", "key"}) {
        if (arguments.has(name)) {
            words.push_back(arguments.text(name));
        }
    }
    if (arguments.has("key") && !arguments.has("topic")) {
        throw InvalidParams("'key' is a key of the kind that 'topic' names");
    }
    if (words.size() == 2) {
        words.pop_back();
    }
    const Invocation ended = run(words, "", arguments.limit_s());
    return ended.code == 0 ? text_result(arguments.full() ? ended.output : cut(ended.output), false)
                           : error_result(ended);
}

struct CommandTool {
    Json description;
    Json (*call)(const Arguments&, const RunCommand&);
    bool for_agents = true;
};

const std::vector<CommandTool>& tool_table() {
    const auto integer = [](const char* description) {
        return Json{{"type", "integer"}, {"minimum", 1}, {"maximum", 100'000}, {"description", description}};
    };
    const Json seed = {{"type", "integer"}, {"minimum", 0}, {"description", "Seed of all random streams."}};
    static const std::vector<CommandTool> kTools = {
        {tool("run", "Simulate a scenario",
              "Simulates a scenario (training, serving, collective, network, replay, cluster or rl) and returns its "
              "metrics with units and, where calibrated, 90 % intervals, the breakdown of the time and notes.",
              with(scenario_properties(), {{"seed", seed}}), {}),
         run_tool},
        {tool(
             "plan", "Search for the best plan",
             "Finds the best parallel plans of a training scenario or the best replicas of a serving one. Each plan is "
             "a list of overrides to run with.",
             with(scenario_properties(),
                  {{"top", integer("Plans to return; 5 by default.")},
                   {"simulate",
                    integer("Plans to simulate in full, best estimates first; 50 by default (serving: 20).")},
                   {"nodes", property("string", "Cluster sizes to search, such as 64,128.")},
                   {"price", property("number", "Price of a GPU hour; adds the cost of 10^9 tokens.")}}),
             {}),
         plan_tool},
        {tool("explain", "Explain a run",
              "Says why a run takes as long as it does: verdict, critical path, what bounds each part, what 10 % more "
              "of "
              "each resource would save, and which inputs are assumed.",
              with(scenario_properties(), {{"seed", seed}}), {}),
         explain_tool},
        {tool("price", "Price a kernel or collective",
              "Predicts the time of one kernel on a device (gemm, attention_decode, ...) or one collective on a node "
              "(all_reduce, ...), with its spread, what binds it and the source.",
              with(Json::object(),
                   {{"operation", property("string", "Name of the operation, such as gemm.")},
                    {"shape",
                     property("object", "Sizes of the operation, such as {\"m\": 4096, \"n\": 14336, \"k\": 4096}.")},
                    {"device", property("string", "Device of a kernel, such as h100-sxm.")},
                    {"node", property("string", "Node of a collective, such as dgx-h100.")},
                    {"dtype", property("string", "Format of the operands; bf16 by default.")},
                    {"kv_dtype", property("string", "Format of cached keys and values of attention.")},
                    {"kernels", property("string", "Kernel set of a library.")},
                    {"library", property("string", "Library of collectives: nccl, vllm, sglang or trtllm.")}}),
              {"operation"}),
         price_tool},
        {tool("validate", "Check a scenario, or the simulator's accuracy",
              "With a scenario: checks it without running and returns every error with line, column and the nearest "
              "valid name. With 'suite': compares predictions with measured runs.",
              with(scenario_properties(),
                   {{"suite",
                     {{"type", "string"},
                      {"enum",
                       {"compute", "training", "collectives", "devices", "serving", "serving-reports", "disaggregated",
                        "fleets", "mlperf", "engine-memory", "training-memory", "faults", "energy", "rl"}},
                      {"description", "Suite of measured runs to compare with, instead of a scenario."}}}}),
              {}),
         validate_tool},
        {tool("help", "Look up a command, key, metric or error",
              "Explains a command (topic: plan), the keys of a kind of scenario (topic: training) or one of them (key: "
              "plan.tensor), a metric (topic: ttft_s) or an error code (topic: E204). Without a topic: all commands.",
              with(Json::object(), {{"topic", property("string", "What to explain.")},
                                    {"key", property("string", "A key of the kind named by 'topic'.")}}),
              {}),
         help_tool},
        {tool(
             "capacity", "Find the highest rate of requests",
             "Finds the highest request rate that a serving scenario sustains within its limits, with every rate "
             "tried.",
             with(scenario_properties(),
                  {{"seed", seed},
                   {"seeds", integer("Searches with so many seeds, for the confidence interval; 5 by default.")},
                   {"attainment", property("number", "Share of requests that must meet all limits; 0.9 by default.")},
                   {"percentile",
                    property("integer",
                             "Percentile (50, 90 or 99) that must meet each limit, instead of a share of requests.")}}),
             {}),
         capacity_tool},
        {tool(
             "recommend", "Find the cheapest GPUs for a load",
             "Finds which GPUs, in which replicas and how many, serve the load of a serving scenario within limits at "
             "the least cost, and why not fewer.",
             with(scenario_properties(),
                  {{"gpus", property("string", "Devices or nodes to choose from, such as h100-sxm,b200-sxm.")},
                   {"slo", property("string", "Limits, such as ttft_p95=2s,tpot_p95=50ms; the scenario's by default.")},
                   {"max_gpus", integer("The most to use; 256 by default.")},
                   {"budget", property("number", "Largest cost per hour, in USD.")},
                   {"spare", property("integer", "Replicas of each pool that may be lost; 0 by default.")},
                   {"weights", property("string", "Precisions of the weights that may be used, such as bf16,fp8.")},
                   {"engines", property("string", "Versions of inference engines to try.")},
                   {"price", property("string", "Prices of a GPU hour, such as h100-sxm=2.2.")}}),
             {}),
         recommend_tool},
        {tool("init", "Write a first scenario", "Writes a commented scenario that runs, from a few facts.",
              with(Json::object(),
                   {{"kind", property("string",
                                      "training, collective, network, serving, cluster, rl, faults or disaggregated.")},
                    {"gpus", integer("GPUs of the cluster (network: hosts).")},
                    {"device", property("string", "Device or node, such as h100-sxm.")},
                    {"model", property("string", "Model of training or serving, such as llama-3-8b.")}}),
              {"kind"}),
         init_tool},
        {tool("report", "Draw a run",
              "Simulates a scenario and returns the page of `run --report`: one HTML file that needs no network.",
              with(scenario_properties(), {{"seed", seed}}), {}),
         report_tool, false},
        {tool("resolve", "Resolve a scenario",
              "Checks a scenario without running it and returns it with every key that it leaves out.",
              with(scenario_properties(), {}), {}),
         resolve_tool, false}};
    return kTools;
}

// A command's output may hold any bytes of files.
std::string text_of(const Json& value) {
    return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string command_tools(Audience audience) {
    Json out = Json::array();
    for (const CommandTool& one : tool_table()) {
        if (one.for_agents || audience == Audience::programs) {
            out.push_back(one.description);
        }
    }
    return text_of(out);
}

std::string call_command_tool(Audience audience, const std::string& name, const std::string& arguments,
                              const RunCommand& run) {
    std::vector<std::string> names;
    for (const CommandTool& one : tool_table()) {
        if (!one.for_agents && audience == Audience::agents) {
            continue;
        }
        names.push_back(one.description["name"].get<std::string>());
        if (names.back() == name) {
            const Json given = Json::parse(arguments);
            return text_of(one.call(Arguments(given, one.description["inputSchema"]), run));
        }
    }
    throw InvalidParams(fmt::format("unknown tool '{}'; it is one of {}", printable(name), fmt::join(names, ", ")));
}

}  // namespace orrery::program
