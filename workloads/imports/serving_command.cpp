#include "workloads/imports/serving_command.hpp"

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "sim/config/yaml_tree.hpp"
#include "workloads/imports/serving_text.hpp"
#include "workloads/model/model_spec.hpp"
#include "workloads/serving/cost/host_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace orrery::imports {

namespace {

// The name as it stands, as a YAML word: scenarios find presets by the names of checkpoints. Empty where it is none, such as "...".
std::string model_word(const std::string& written) {
    const std::string name = checkpoint_id(written);
    const auto plain = [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_' || c == '/';
    };
    const bool named = std::any_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
    return named && std::all_of(name.begin(), name.end(), plain) ? name.substr(0, 200) : "";
}

class Importing {
  public:
    Importing(const ImportInput& input, const ServingEngine& engine)
        : input_(input), engine_(engine), data_(input.data()), commands_(input, engine) {}

    Imported read() {
        std::vector<ServingProgram*> servers = commands_.chosen_servers();
        ServingProgram* client = commands_.chosen_client(*servers.back());
        if (client != nullptr) {
            client->flags.check_values();
        }
        std::vector<ServedModel> models;
        for (ServingProgram* server : servers) {
            server->flags.check_values();
            commands_.add_file(*server);
            models.push_back(model_of(*server, client));
        }
        std::string named = input_.option("node");
        const bool told = named.empty();  // that a node was taken
        named = named.empty() ? node_in_text(commands_.text()) : named;
        const std::vector<std::string> nodes = named.empty()
                                                   ? usual_nodes(words_of(*servers.back()), models.back().name)
                                                   : std::vector<std::string>{named};
        std::string problem;
        std::optional<Imported> narrow;  // runs, and has too little cache for a sequence of the whole context
        for (const std::string& node : nodes) {
            Imported out = written(servers, models, client, node);
            problem = problem_of(*servers.back(), out.text);
            if (!problem.empty()) {
                continue;
            }
            if (told) {
                out.notes.assumed(fmt::format("nodes of {}{} (--node NAME; orrery list nodes)", node,
                                              named.empty() ? "" : ", which the text names"));
            }
            out.use = input_.checks() ? "'orrery run' as it is" : "'orrery run', which checks it";
            if (context_ == 0 || problem_of(*servers.back(), with_whole_context(out.text)).empty()) {
                return out;
            }
            if (!narrow) {
                out.notes.assumed(
                    fmt::format("a cache smaller than one sequence of {} tokens: {} starts only with a "
                                "smaller context (--max-model-len)",
                                context_, engine_.name));
                narrow = std::move(out);
            }
        }
        if (narrow) {
            return *narrow;
        }
        throw InfeasibleError(fmt::format("{}:{}: this does not run on {}{}: {}{}", input_.path(),
                                          commands_.line_of(*servers.back()), nodes.size() > 1 ? "any of " : "",
                                          fmt::join(nodes, ", "), problem, what_runs(servers, models, client, nodes)));
    }

  private:
    [[nodiscard]] std::string problem_of(const ServingProgram& server, const std::string& scenario) const {
        try {
            return input_.problem(scenario);
        } catch (const ConfigError& error) {
            throw ConfigError(
                {diagnostic_at(input_.path(), commands_.text(), server.flags.place(),
                               fmt::format("makes a scenario that is refused: {}",
                                           error.diagnostics().empty() ? "" : error.diagnostics()[0].text))});
        }
    }

    // The least tensor-parallel degree that runs; empty where none of the usual ones does.
    std::string what_runs(std::vector<ServingProgram*>& servers, const std::vector<ServedModel>& models,
                          ServingProgram* client, const std::vector<std::string>& nodes) {
        for (const std::int64_t degree : {2, 4, 8, 16}) {
            for (const std::string& node : nodes) {
                tensor_ = degree;
                const Imported tried = written(servers, models, client, node);
                if (tensor_ > 0 && problem_of(*servers.back(), tried.text).empty()) {
                    return fmt::format(". It runs with {} tensor-parallel ranks on {}", degree, node);
                }
            }
        }
        return nodes.size() > 1 ? " (--node NAME; orrery list nodes)" : "";
    }

    // The same engine with one request as long as its context.
    [[nodiscard]] std::string with_whole_context(const std::string& scenario) const {
        std::string engine = scenario.substr(0, scenario.find("\nrequests:") + 1);
        if (engine.find("\n  max_context:") ==
            std::string::npos) {  // with it the cache of one rank must hold a sequence
            const std::string section = "\nengine:\n";
            engine.insert(engine.find(section) + section.size(), fmt::format("  max_context: {}\n", context_));
        }
        return engine +
               fmt::format(
                   "requests: {{count: 1, prompt: {{kind: fixed, mean: {}}}, output: {{kind: fixed, mean: 1}}}}\n",
                   context_ - 1);
    }

    // All that is said of a server, to tell whose software it runs.
    [[nodiscard]] static std::vector<std::string> words_of(const ServingProgram& server) {
        std::vector<std::string> out;
        for (const GivenFlag& flag : server.flags.flags()) {
            out.push_back(flag.written);
            out.push_back(flag.value);
        }
        for (const CommandWord& word : server.command->words) {
            out.push_back(word.text);
        }
        return out;
    }

    [[nodiscard]] Diagnostic model_error(const ServingProgram& server, const std::string& problem) const {
        const auto& words = server.flags.words();
        return server.flags.given("model") || words.empty()
                   ? server.flags.error("model", problem)
                   : diagnostic_at(input_.path(), commands_.text(), words[0].at, problem);
    }

    ServedModel model_of(ServingProgram& server, ServingProgram* client) {
        std::string name = server.flags.text("model");
        const auto& words = server.flags.words();
        std::string unset;
        for (const GivenFlag& flag : server.flags.flags()) {
            unset = flag.row != nullptr && flag.row->key == "model" ? flag.unset : unset;
        }
        if (name.empty() && !words.empty()) {
            name = words[0].text;
            unset = words[0].unset;
        }
        for (const GivenFlag& flag : server.flags.flags()) {  // taken for the value of a flag that is not understood
            if (name.empty() && flag.row == nullptr && !flag.variable && flag.value.find('/') != std::string::npos &&
                find_checkpoint(flag.value, data_)) {
                name = flag.value;
            }
        }
        // Of a path below a folder that is not known here, the name stands behind the folder.
        const std::string below =
            name.rfind('$', 0) == 0 && name.find('/') != std::string::npos && name.find('$', 1) == std::string::npos
                ? name.substr(name.find('/'))
                : "";
        if (!below.empty() && find_checkpoint(below, data_)) {
            name = below;
            unset.clear();
        }
        if (!unset.empty()) {
            const std::string tested = client == nullptr ? "" : client->flags.text("model");
            if (tested.empty()) {
                throw ConfigError({model_error(
                    server,
                    fmt::format("the name of the model needs {}, which has no value: write it, or set the variable "
                                "before the command",
                                printable(unset, 60)))});
            }
            name = tested;
        }
        const std::string word = model_word(name);
        if (word.empty()) {
            throw ConfigError({model_error(server, fmt::format("names no model, as '{}' does", engine_.example))});
        }
        ServedModel out;
        out.name = word;
        if (input_.has("config")) {
            describe(out);
            return out;
        }
        std::optional<NamedCheckpoint> checkpoint = find_checkpoint(word, data_);
        if (const std::string served = model_word(server.flags.text("served_name")); !checkpoint && !served.empty()) {
            checkpoint = find_checkpoint(served, data_);  // of a folder that is called otherwise
            out.name = served;
        }
        if (const std::string outside = mounted(word); !checkpoint && !model_word(outside).empty()) {
            checkpoint = find_checkpoint(outside, data_);
            out.name = model_word(outside);
        }
        if (!checkpoint) {
            Diagnostic unknown = model_error(
                server,
                fmt::format("no model is known by the name '{}': give its config.json of Hugging Face (--config "
                            "FILE), or name one of 'orrery list models'",
                            word));
            unknown.code = ErrorCode::unknown_name;
            throw ConfigError({unknown});
        }
        out.checkpoint = *checkpoint;
        const auto preset = data_.preset(kModelPresets, checkpoint->preset);
        ModelSpec spec;
        std::vector<Diagnostic> errors;
        read_fields(*preset, data_, errors, [&](Fields& fields) { orrery::describe(fields, spec); });
        out.experts = spec.experts.count > 0;
        out.layer = layer_parameters(spec);
        out.sequence = checkpoint->context > 0 ? checkpoint->context : spec.sequence;
        out.linear = spec.linear.given();
        out.indexer = spec.indexer.given();
        return out;
    }

    // The path outside of a container of one inside, where the text mounts one above it: "-v /models/qwen3-8b:/model". Empty: none.
    [[nodiscard]] std::string mounted(const std::string& inside) const {
        const std::string& text = commands_.text();
        for (std::size_t end = inside.size(); end > 1 && inside[0] == '/'; end = inside.rfind('/', end - 1)) {
            const std::string folder = ":" + inside.substr(0, end);
            for (std::size_t at = text.find(folder); at != std::string::npos; at = text.find(folder, at + 1)) {
                const char behind = at + folder.size() < text.size() ? text[at + folder.size()] : ' ';
                const std::size_t start = text.find_last_of(" \t\n'\"=", at) + 1;
                if (start < at && std::string_view(" \t\r\n'\":").find(behind) != std::string_view::npos) {
                    return text.substr(start, at - start) + inside.substr(end);
                }
            }
        }
        return "";
    }

    // By a config.json.
    void describe(ServedModel& out) const {
        const Imported config = import_file("hf-config", ImportInput(input_.option("config"), {{"name", out.name}}));
        out.description = config.text.substr(config.text.find("model:"));
        const YamlNode root = parse_yaml(out.description, input_.option("config"));
        const YamlNode& model = *root.find("model");
        out.experts = model.find("experts") != nullptr;
        out.linear = model.find("linear") != nullptr;
        out.indexer = model.find("indexer") != nullptr;
        if (const YamlNode* sequence = model.find("sequence"); sequence != nullptr) {
            out.sequence = std::stoll(sequence->scalar);
        }
        for (const auto& [key, value] : config.engine) {
            (key == "weights"   ? out.checkpoint.weights
             : key == "experts" ? out.checkpoint.experts
             : key == "cache"   ? out.checkpoint.cache
                                : out.checkpoint.scaling) = value;
        }
    }

    Imported written(std::vector<ServingProgram*>& servers, const std::vector<ServedModel>& models,
                     ServingProgram* client, const std::string& node_name) {
        Imported out;
        const ServingNode node = serving_node(node_name, data_);
        std::vector<ServingChoices> choices;
        std::int64_t gpus = 0;
        for (std::size_t i = 0; i < servers.size(); ++i) {
            ServingLine line{servers[i]->flags,   models[i], node,     commands_.version_of(*servers[i]),
                             servers[i]->offline, data_,     out.notes};
            choices.push_back(engine_.choose(line));
            ServingChoices& chosen = choices.back();
            chosen.ranks.replicas *= servers[i]->command->copies * servers[i]->instances;
            chosen.software = servers[i]->worker ? engine_.worker_software : chosen.software;
            const std::string mode = line.flags.text("disaggregation");
            chosen.phase = line.flags.on("prefill_worker")         ? "prefill"
                           : line.flags.on("decode_worker")        ? "decode"
                           : mode == "prefill" || mode == "decode" ? mode
                                                                   : chosen.phase;
            chosen.phase = servers[i]->phase.empty() ? chosen.phase : servers[i]->phase;
            ServingRanks& ranks = choices.back().ranks;
            if (tensor_ > ranks.tensor && ranks.replicas * ranks.groups == 1) {
                ranks.expert = ranks.expert > 1 ? tensor_ : ranks.expert;
                ranks.tensor = tensor_;
            } else {
                tensor_ = 0;
            }
            gpus += choices.back().ranks.gpus();
        }
        if (choices.size() == 2) {
            order_phases(servers, choices);
        }
        check_phases(servers, choices);
        const std::int64_t nodes = (gpus + node.gpus - 1) / node.gpus;
        ScenarioKeys keys;
        keys.set("cluster.nodes", std::to_string(nodes));
        keys.set("cluster.node",
                 gpus < node.gpus ? fmt::format("{{preset: {}, gpus: {}}}", node.name, gpus) : node.name);
        keys.set("engine", "");
        std::vector<GivenFlags*> flags;
        flags.reserve(servers.size());
        for (ServingProgram* server : servers) {
            flags.push_back(&server->flags);
        }
        set_engine(flags, models.back(), choices, input_.option("software"), data_, keys, out.notes);
        std::int64_t longest = 0;
        if (servers.back()->flags.given("engine.max_context")) {
            longest = servers.back()->flags.whole("engine.max_context").value_or(0);
            keys.set("engine.max_context", longest > 0 ? std::to_string(longest) : "");
        }
        // vLLM starts only where the cache has room for one sequence of the whole context.
        const bool needs = engine_.whole_context && !servers.back()->offline;
        context_ = !needs ? 0 : servers.back()->flags.given("engine.max_context") ? longest : models.back().sequence;
        set_load(client == nullptr ? nullptr : &client->flags, client == nullptr ? nullptr : client->client, longest,
                 data_, keys, out.notes);
        keys.set("network.collectives", engine_.collectives);
        const ServedModel& model = models.back();
        out.text =
            fmt::format("# What do clients of this {} see? Written by 'orrery import {}'.\norrery: 1\nkind: serving\n",
                        engine_.name, engine_.importer) +
            (model.description.empty() ? fmt::format("model: {}\n", model.name) : model.description) + keys.yaml();
        add_facts(servers, model, client, gpus, out);
        return out;
    }

    // A server beside one for prefill or decode that says neither is its counterpart. Decode goes last.
    static void order_phases(std::vector<ServingProgram*>& servers, std::vector<ServingChoices>& choices) {
        for (std::size_t i = 0; i < 2; ++i) {
            if (choices[i].phase.empty()) {
                choices[i].phase = choices[1 - i].phase == "prefill" ? "decode" : "prefill";
            }
        }
        if (choices[0].phase == "decode") {
            std::swap(choices[0], choices[1]);
            std::swap(servers[0], servers[1]);
        }
    }

    void check_phases(const std::vector<ServingProgram*>& servers, const std::vector<ServingChoices>& choices) const {
        const auto has = [&](const char* phase) {
            return std::any_of(choices.begin(), choices.end(),
                               [&](const ServingChoices& c) { return c.phase == phase; });
        };
        if (choices.size() == 1 ? !choices[0].phase.empty() : !has("prefill") || !has("decode")) {
            throw ConfigError({servers.back()->flags.error(
                "phase",
                fmt::format("this server does {} alone: put the command of its counterpart for {} in the same file",
                            has("prefill") ? "prefill" : "decode", has("prefill") ? "decode" : "prefill"))});
        }
    }

    void add_facts(const std::vector<ServingProgram*>& servers, const ServedModel& model, ServingProgram* client,
                   std::int64_t gpus, Imported& out) const {
        const std::string precision = model.checkpoint.precision();
        out.facts.push_back(
            {"model", fmt::format("{}{}: {}", model.name,
                                  model.description.empty() ? fmt::format(" is {}", model.checkpoint.preset)
                                                            : " by its config.json",
                                  precision.empty() ? "bf16" : precision)});
        out.facts.push_back({"GPUs", std::to_string(gpus)});
        if (!model.checkpoint.left_out.empty()) {
            out.notes.left_out(
                fmt::format("the {} of the model, which its preset does not describe", model.checkpoint.left_out));
        }
        for (const ServingProgram* server : servers) {
            server->flags.report(out);
        }
        if (client != nullptr && client != servers.back()) {
            client->flags.report(out, false);
        }
        commands_.note_rest(out.notes);
    }

    const ImportInput& input_;
    const ServingEngine& engine_;
    const DataDirectory& data_;
    ServingText commands_;
    std::int64_t context_ = 0;  ///< tokens of a sequence that the cache must have room for; 0: any
    std::int64_t tensor_ = 0;   ///< tried in place of the flags' degree; 0: none is
};

}  // namespace

// Numbers of a version, with 0 for what is none.
static std::vector<int> version_numbers(std::string_view version) {
    std::vector<int> out;
    for (const std::string_view part : split(version, '.')) {
        double number = 0;
        out.push_back(parse_number(part, number) ? static_cast<int>(std::min(number, 1e6)) : 0);
    }
    return out;
}

bool version_before(const std::string& version, const std::vector<int>& than) {
    return !version.empty() && version_numbers(version) < than;
}

std::string engine_preset(const std::string& family, const std::string& version, const std::string& otherwise,
                          const DataDirectory& data) {
    if (version.empty()) {
        return otherwise;
    }
    std::string first;
    std::string best;
    std::vector<int> first_version;
    std::vector<int> best_version;
    for (const std::string& name : data.names(kEnginePresets)) {
        if (name.rfind(family + "-", 0) != 0 ||
            std::isdigit(static_cast<unsigned char>(name[family.size() + 1])) == 0) {
            continue;
        }
        const std::vector<int> own = version_numbers(std::string_view(name).substr(family.size() + 1));
        if (own <= version_numbers(version) && (best.empty() || own > best_version)) {
            best = name;
            best_version = own;
        }
        if (first.empty() || own < first_version) {
            first = name;
            first_version = own;
        }
    }
    return !best.empty() ? best : !first.empty() ? first : otherwise;
}

double memory_share(ServingLine& line, double otherwise) {
    const auto given = line.flags.number("memory");
    if (given && (*given <= 0 || *given > 1)) {
        throw ConfigError({line.flags.error(
            "memory", fmt::format("{:g} must be a share of the device's memory above 0 and up to 1", *given))});
    }
    return std::clamp(given.value_or(otherwise), 0.05, 1.0);
}

double host_cache(ServingLine& line, std::int64_t ranks, double unit) {
    constexpr double kMost = 1e15;
    double out = 0;
    for (const auto& [key, times] : {std::pair("host_cache", unit),
                                     {"host_cache_rank", unit * static_cast<double>(ranks)},
                                     {"host_cache_bytes", static_cast<double>(ranks)}}) {
        if (const auto given = line.flags.number(key)) {
            if (*given < 0 || *given * times > kMost) {
                throw ConfigError({line.flags.error(key, fmt::format("{:g} is no size of a cache", *given))});
            }
            out = *given * times;
        }
    }
    return out;
}

void note_batches(ServingLine& line, std::int64_t tokens, std::int64_t sequences) {
    if (tokens > 0 || sequences > 0) {
        const std::string what =
            fmt::format("batches of {}{}{}, the engine's defaults on {}",
                        tokens > 0 ? fmt::format("{} tokens", tokens) : "", tokens > 0 && sequences > 0 ? " and " : "",
                        sequences > 0 ? fmt::format("{} sequences", sequences) : "", line.node.device);
        if (!line.notes.assumed().contains(what)) {
            line.notes.assumed(what);
        }
    }
}

Imported read_serving_commands(const ImportInput& input, const ServingEngine& engine) {
    return Importing(input, engine).read();
}

std::vector<ImportOption> serving_options() {
    return {{"node", "NAME", "type of the nodes (orrery list nodes); without it the first usual one that has room"},
            {"config", "FILE", "config.json of a model that is not known by its name"},
            {"server", "N", "number of the server in a file with several"},
            {"client", "N", "number of the load generator in a file with several"},
            {"software", "NAME", "the engine's host costs (orrery list engines)"}};
}

}  // namespace orrery::imports
