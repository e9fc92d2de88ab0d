#include "workloads/imports/serving_command.hpp"

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "sim/config/yaml_tree.hpp"
#include "workloads/imports/container_commands.hpp"
#include "workloads/imports/serving_load.hpp"
#include "workloads/model/model_spec.hpp"
#include "workloads/serving/cost/host_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

namespace orrery::imports {

namespace {

std::string lower_case(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

// The name as it stands, as a YAML word: scenarios find presets by the names of checkpoints. Empty where it is none, such as "...".
std::string model_word(const std::string& name) {
    const auto plain = [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_' || c == '/';
    };
    const bool named = std::any_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
    return named && std::all_of(name.begin(), name.end(), plain) ? name.substr(0, 200) : "";
}

// Whether a word of a command is that of a program, or its path, or for NAME* an image.
bool is_program(const std::string& word, std::string_view program) {
    if (program.ends_with('*')) {
        program.remove_suffix(1);
        return word[0] != '-' && word.find(program) != std::string::npos;
    }
    return word == program || (word.ends_with(program) && word[word.size() - program.size() - 1] == '/');
}

// Whether a command handles images of containers, and does so without arguments of theirs where an image is its last word.
bool is_image_command(const CommandCall& command) {
    return std::any_of(command.words.begin(), command.words.end(), [](const CommandWord& word) {
        return word.text == "docker" || word.text == "podman" || word.text == "nerdctl" || word.text == "crictl";
    });
}

// The place behind the last of these programs in a command; 0 where there is none.
std::size_t behind(const CommandCall& command, const std::vector<const char*>& programs) {
    std::size_t out = 0;
    for (const char* program : programs) {
        const std::vector<std::string_view> parts = split(std::string_view(program), ' ');
        for (std::size_t i = 0; i + parts.size() <= command.words.size(); ++i) {
            bool same = true;
            for (std::size_t k = 0; same && k < parts.size(); ++k) {
                same = is_program(command.words[i + k].text, parts[k]);
            }
            out = same ? std::max(out, i + parts.size()) : out;
        }
    }
    return out;
}

/// A command that starts an engine or loads one.
struct Found {
    GivenFlags flags;
    const FlagTable* table;
    const CommandCall* command;
    bool offline = false;                ///< an engine that loads itself
    bool worker = false;                 ///< one of Dynamo's
    const LoadClient* client = nullptr;  ///< of a client, and of a program that is both
};

struct FoundCommands {
    std::vector<Found> servers, clients;
};

int line_of(const std::string& text, std::size_t at) {
    return 1 + static_cast<int>(std::count(
                   text.begin(), text.begin() + static_cast<std::ptrdiff_t>(std::min(at, text.size())), '\n'));
}

std::string first_words(const CommandCall& command) {
    std::string out;
    for (std::size_t i = 0; i < std::min<std::size_t>(3, command.words.size()); ++i) {
        out += (i > 0 ? " " : "") + command.words[i].text;
    }
    return printable(out, 60);
}

class Importing {
  public:
    Importing(const ImportInput& input, const ServingEngine& engine)
        : input_(input),
          engine_(engine),
          data_(input.data()),
          text_(input.bytes()),
          script_(script_of(text_, input.path())),
          server_table_({engine.table}, data_),
          offline_table_({engine.table, engine.offline_table}, data_),
          worker_table_({"dynamo", engine.table}, data_) {
        for (const LoadClient& client : load_clients()) {
            client_tables_.emplace_back(std::vector<std::string>{client.table}, data_);
        }
        find();
    }

    Imported read() {
        std::vector<Found*> servers = chosen_servers();
        Found* client = chosen_client(*servers.back());
        if (client != nullptr) {
            client->flags.check_values();
        }
        std::vector<ServedModel> models;
        for (Found* server : servers) {
            server->flags.check_values();
            add_file(*server);
            models.push_back(model_of(*server, client));
        }
        std::string named = input_.option("node");
        const bool told = named.empty();  // that a node was taken
        named = named.empty() ? node_in_text(text_) : named;
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
                                          line_of(text_, servers.back()->flags.place()),
                                          nodes.size() > 1 ? "any of " : "", fmt::join(nodes, ", "), problem,
                                          what_runs(servers, models, client, nodes)));
    }

  private:
    static CommandList script_of(const std::string& text, const std::string& name) {
        std::optional<CommandList> containers = read_containers(text, name);
        return containers ? std::move(*containers) : read_shell(text, name);
    }

    void find() {
        for (const CommandCall& command : script_.commands) {
            std::size_t first = behind(command, engine_.offline);
            const bool offline = first > 0;
            const std::size_t worker = behind(command, {engine_.worker});
            first = offline ? first : worker > 0 ? worker : behind(command, engine_.servers);
            if (first == command.words.size() && is_image_command(command)) {
                continue;  // docker pull
            }
            const bool bare = first == 0 && command.words[0].text[0] == '-';  // the flags without their program
            if (first > 0 || (bare && script_.commands.size() == 1)) {
                const FlagTable& table = offline ? offline_table_ : worker > 0 ? worker_table_ : server_table_;
                found_.servers.push_back({GivenFlags(table, command, first, input_.path(), text_), &table, &command,
                                          offline, worker > 0, offline ? &load_clients()[0] : nullptr});
                continue;
            }
            for (std::size_t i = 0; i < load_clients().size(); ++i) {
                const LoadClient& client = load_clients()[i];
                if (const std::size_t start = behind(command, client.programs); start > 0) {
                    found_.clients.push_back({GivenFlags(client_tables_[i], command, start, input_.path(), text_),
                                              &client_tables_[i], &command, false, false, &client});
                }
            }
        }
        if (found_.servers.empty()) {
            refuse_foreign();
        }
    }

    // The file has no server of this engine: says what it has.
    [[noreturn]] void refuse_foreign() const {
        const CommandCall* shown = script_.commands.empty() ? nullptr : &script_.commands[0];
        std::string instead;
        const std::pair<const char*, std::vector<const char*>> engines[] = {
            {"vllm-args", {"vllm serve", "vllm.entrypoints.openai.api_server", "vllm-openai*"}},
            {"sglang-args", {"sglang.launch_server", "sglang serve"}},
            {"trtllm-args", {"trtllm-serve", "trtllm-bench"}}};
        for (const CommandCall& command : script_.commands) {
            for (const auto& [importer, programs] : engines) {
                if (instead.empty() && behind(command, programs) > 0) {
                    shown = &command;
                    instead = fmt::format(", which 'orrery import {}' reads", importer);
                }
            }
        }
        if (instead.empty() && !found_.clients.empty()) {
            shown = found_.clients[0].command;
            instead = ", a load generator without its server";
        }
        throw ConfigError({diagnostic_at(
            input_.path(), text_, shown == nullptr ? 0 : shown->words[0].at,
            fmt::format("holds no command of {} such as '{}', but {}{}", engine_.name, engine_.example,
                        shown == nullptr ? "no command at all" : fmt::format("'{}'", first_words(*shown)), instead))});
    }

    [[nodiscard]] std::string problem_of(const Found& server, const std::string& scenario) const {
        try {
            return input_.problem(scenario);
        } catch (const ConfigError& error) {
            throw ConfigError(
                {diagnostic_at(input_.path(), text_, server.flags.place(),
                               fmt::format("makes a scenario that is refused: {}",
                                           error.diagnostics().empty() ? "" : error.diagnostics()[0].text))});
        }
    }

    // The least tensor-parallel degree that runs; empty where none of the usual ones does.
    std::string what_runs(std::vector<Found*>& servers, const std::vector<ServedModel>& models, Found* client,
                          const std::vector<std::string>& nodes) {
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
        return scenario.substr(0, scenario.find("\nrequests:") + 1) +
               fmt::format(
                   "requests: {{count: 1, prompt: {{kind: fixed, mean: {}}}, output: {{kind: fixed, mean: 1}}}}\n",
                   context_ - 1);
    }

    // All that is said of a server, to tell whose software it runs.
    [[nodiscard]] static std::vector<std::string> words_of(const Found& server) {
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

    // Flags of the file that a flag names: one that the script writes, or one beside it.
    void add_file(Found& found) {
        if (!found.flags.given(engine_.file)) {
            return;
        }
        const std::string name = found.flags.text(engine_.file);
        auto written = script_.files.find(name);
        if (written == script_.files.end()) {  // mounted from a manifest's map
            written = script_.files.find(std::filesystem::path(name).filename().string());
        }
        const std::filesystem::path beside = std::filesystem::path(input_.path()).parent_path() / name;
        if (written != script_.files.end()) {
            found.flags.add_file(*found.table, written->second, name, found.flags.place());
        } else if (std::ifstream file(beside); !input_.in_memory() && file) {
            found.flags.add_file(*found.table, std::string(std::istreambuf_iterator<char>(file), {}), beside.string(),
                                 found.flags.place());
        } else {
            throw ConfigError({found.flags.error(
                engine_.file,
                fmt::format("'{}' is not beside this file, and what it says is not known: put it there or "
                            "take the flag out",
                            printable(name, 100)))});
        }
    }

    static bool has_phase(const Found& server) {
        const GivenFlags& flags = server.flags;
        return flags.given("phase") || flags.given("prefill_worker") || flags.given("decode_worker") ||
               flags.given("disaggregation");
    }

    // Commands whose effects are the same start one deployment, each on its nodes.
    std::vector<Found*> chosen_servers() {
        std::vector<Found*> distinct;
        for (Found& server : found_.servers) {
            if (std::none_of(distinct.begin(), distinct.end(), [&](const Found* other) {
                    return other->flags.signature() == server.flags.signature() &&
                           other->flags.words().size() == server.flags.words().size() &&
                           name_of(*other) == name_of(server);
                })) {
                distinct.push_back(&server);
            }
        }
        if (const std::uint32_t number = input_.whole_option("server"); number > 0) {
            if (number > distinct.size()) {
                throw ConfigError(fmt::format("--server {}: the file has {}", number, distinct.size()),
                                  ErrorCode::command_line);
            }
            return {distinct[number - 1]};
        }
        if (distinct.size() == 2 && (has_phase(*distinct[0]) || has_phase(*distinct[1]))) {
            return distinct;
        }
        if (distinct.size() > 1) {
            std::vector<int> lines;
            lines.reserve(distinct.size());
            for (const Found* server : distinct) {
                lines.push_back(line_of(text_, server->flags.place()));
            }
            throw ConfigError({diagnostic_at(
                input_.path(), text_, distinct[1]->flags.place(),
                fmt::format("is a second server, and a scenario has one deployment: the file has them at lines {} "
                            "(--server N takes the Nth)",
                            fmt::join(lines, ", ")))});
        }
        return distinct;
    }

    // The model as the command names it.
    [[nodiscard]] static std::string name_of(const Found& found) {
        for (auto flag = found.flags.flags().rbegin(); flag != found.flags.flags().rend(); ++flag) {
            if (flag->row != nullptr && flag->row->key == "model") {
                return flag->value;
            }
        }
        return found.flags.words().empty() ? "" : found.flags.words()[0].text;
    }

    Found* chosen_client(Found& server) {
        if (server.offline) {
            return &server;
        }
        std::vector<Found*> fitting;
        const std::string served = lower_case(name_of(server));
        const std::string called = lower_case(server.flags.text("served_name"));
        for (Found& client : found_.clients) {
            const std::string wanted = lower_case(client.flags.text("model"));
            const bool unset = served.find('$') != std::string::npos;
            if (wanted.empty() || wanted == served || wanted == called || unset || found_.servers.size() == 1) {
                fitting.push_back(&client);
            } else {
                skipped_.push_back(fmt::format("the load at line {}, which is of another model",
                                               line_of(text_, client.flags.place())));
            }
        }
        const std::uint32_t number = input_.whole_option("client");
        if (number > fitting.size()) {
            throw ConfigError(fmt::format("--client {}: the file has {} of this server", number, fitting.size()),
                              ErrorCode::command_line);
        }
        const std::size_t taken = std::max(1U, number) - 1;
        for (std::size_t i = 0; i < fitting.size(); ++i) {
            if (i != taken) {
                skipped_.push_back(fmt::format("the load at line {} (--client {} takes it)",
                                               line_of(text_, fitting[i]->flags.place()), i + 1));
            }
        }
        return fitting.empty() ? nullptr : fitting[taken];
    }

    [[nodiscard]] Diagnostic model_error(const Found& server, const std::string& problem) const {
        const auto& words = server.flags.words();
        return server.flags.given("model") || words.empty() ? server.flags.error("model", problem)
                                                            : diagnostic_at(input_.path(), text_, words[0].at, problem);
    }

    ServedModel model_of(Found& server, Found* client) {
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
        out.sequence = spec.sequence;
        return out;
    }

    // By a config.json.
    void describe(ServedModel& out) const {
        const Imported config = import_file("hf-config", ImportInput(input_.option("config"), {{"name", out.name}}));
        out.description = config.text.substr(config.text.find("model:"));
        const YamlNode root = parse_yaml(out.description, input_.option("config"));
        const YamlNode& model = *root.find("model");
        out.experts = model.find("experts") != nullptr;
        if (const YamlNode* sequence = model.find("sequence"); sequence != nullptr) {
            out.sequence = std::stoll(sequence->scalar);
        }
        for (const auto& [key, value] : config.engine) {
            (key == "weights"   ? out.checkpoint.weights
             : key == "experts" ? out.checkpoint.experts
                                : out.checkpoint.scaling) = value;
        }
    }

    // A version in words such as vllm/vllm-openai:v0.11.0 or vllm==0.10.2.
    [[nodiscard]] std::string version_of(const Found& server) const {
        const std::string requirement =
            fmt::format("{}==", engine_.table)
                .replace(0, std::string(engine_.table).size(),
                         std::string(engine_.table).substr(0, std::string(engine_.table).find('-')));
        std::string out;
        const auto look = [&](const std::vector<CommandWord>& words, bool image) {
            for (const CommandWord& word : words) {
                std::size_t at = word.text.find(requirement);
                at = at == std::string::npos ? at : at + requirement.size();
                if (image && at == std::string::npos && word.text.find('/') != std::string::npos) {
                    const std::size_t colon = word.text.rfind(':');
                    at = colon == std::string::npos ? colon
                                                    : colon + 1 + (word.text.substr(colon + 1, 1) == "v" ? 1 : 0);
                }
                if (at != std::string::npos && at < word.text.size() &&
                    std::isdigit(static_cast<unsigned char>(word.text[at])) != 0) {
                    const std::size_t end = word.text.find_first_not_of("0123456789.", at);
                    out = word.text.substr(at, end == std::string::npos ? end : end - at);
                }
            }
        };
        for (const CommandCall& command : script_.commands) {
            for (const std::vector<CommandWord>* words : {&command.outer, &command.words}) {
                const std::string program = words->empty() ? "" : words->front().text;
                look(*words,
                     &command == server.command && (program == "docker" || program == "podman" || program == "sudo" ||
                                                    program == "nerdctl" || program.find(':') != std::string::npos));
            }
        }
        return out;
    }

    Imported written(std::vector<Found*>& servers, const std::vector<ServedModel>& models, Found* client,
                     const std::string& node_name) {
        Imported out;
        const ServingNode node = serving_node(node_name, data_);
        std::vector<ServingChoices> choices;
        std::int64_t gpus = 0;
        for (std::size_t i = 0; i < servers.size(); ++i) {
            ServingLine line{servers[i]->flags,   models[i], node,     version_of(*servers[i]),
                             servers[i]->offline, data_,     out.notes};
            choices.push_back(engine_.choose(line));
            ServingChoices& chosen = choices.back();
            chosen.ranks.replicas *= servers[i]->command->copies;
            chosen.software = servers[i]->worker ? engine_.worker_software : chosen.software;
            const std::string mode = line.flags.text("disaggregation");
            chosen.phase = line.flags.on("prefill_worker")         ? "prefill"
                           : line.flags.on("decode_worker")        ? "decode"
                           : mode == "prefill" || mode == "decode" ? mode
                                                                   : chosen.phase;
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
        for (Found* server : servers) {
            flags.push_back(&server->flags);
        }
        set_engine(flags, models.back(), choices, input_.option("software"), keys, out.notes);
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
    static void order_phases(std::vector<Found*>& servers, std::vector<ServingChoices>& choices) {
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

    void check_phases(const std::vector<Found*>& servers, const std::vector<ServingChoices>& choices) const {
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

    void add_facts(const std::vector<Found*>& servers, const ServedModel& model, Found* client, std::int64_t gpus,
                   Imported& out) const {
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
        for (const Found* server : servers) {
            server->flags.report(out);
        }
        if (client != nullptr && client != servers.back()) {
            client->flags.report(out);
        }
        for (const std::string& loop : script_.loops) {
            out.notes.assumed(loop);
        }
        for (const std::string& skipped : skipped_) {
            out.notes.left_out(skipped);
        }
    }

    const ImportInput& input_;
    const ServingEngine& engine_;
    const DataDirectory& data_;
    std::string text_;
    CommandList script_;
    FlagTable server_table_, offline_table_, worker_table_;
    std::vector<FlagTable> client_tables_;
    FoundCommands found_;
    std::vector<std::string> skipped_;
    std::int64_t context_ = 0;  ///< tokens of a sequence that the cache must have room for; 0: any
    std::int64_t tensor_ = 0;   ///< tried in place of the flags' degree; 0: none is
};

}  // namespace

std::string engine_preset(const std::string& family, const std::string& version, const std::string& otherwise,
                          const DataDirectory& data) {
    const auto numbers = [](std::string_view text) {
        std::vector<int> out;
        for (const std::string_view part : split(text, '.')) {
            double number = 0;
            out.push_back(parse_number(part, number) ? static_cast<int>(std::min(number, 1e6)) : 0);
        }
        return out;
    };
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
        const std::vector<int> own = numbers(std::string_view(name).substr(family.size() + 1));
        if (own <= numbers(version) && (best.empty() || own > best_version)) {
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
    return {{"node", "NAME", "what a node is (orrery list nodes); without it the first usual one that has room"},
            {"config", "FILE", "config.json of a model that is not known by its name"},
            {"server", "N", "which server of a file with several"},
            {"client", "N", "which load generator of a file with several"},
            {"software", "NAME", "the engine's host costs (orrery list engines)"}};
}

}  // namespace orrery::imports
