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
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>

namespace orrery::imports {

namespace {

// Nodes that a command line without one is tried on, in this order: by default, for weights in NVIDIA's 4 bits, and for AMD's kernels.
using Nodes = std::vector<std::string>;
const Nodes kUsualNodes = {"dgx-h100", "dgx-h200", "dgx-b200", "dgx-b300"};
const Nodes kBlackwellNodes = {"dgx-b200", "dgx-b300", "dgx-h100", "dgx-h200"};
const Nodes kAmdNodes = {"mi300x-8", "mi325x-8", "mi355x-8"};

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
bool is_image_command(const ShellCommand& command) {
    return std::any_of(command.words.begin(), command.words.end(), [](const ShellWord& word) {
        return word.text == "docker" || word.text == "podman" || word.text == "nerdctl" || word.text == "crictl";
    });
}

// The place behind the last of these programs in a command; 0 where there is none.
std::size_t behind(const ShellCommand& command, const std::vector<const char*>& programs) {
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
    const ShellCommand* command;
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

std::string first_words(const ShellCommand& command) {
    std::string out;
    for (std::size_t i = 0; i < std::min<std::size_t>(3, command.words.size()); ++i) {
        out += (i > 0 ? " " : "") + command.words[i].text;
    }
    return printable(out, 60);
}

// The text of a value, or of what has its source beside it; empty for anything else.
std::string value_of(const YamlNode* node) {
    if (node != nullptr && node->kind == YamlNode::Kind::map) {
        node = node->find("value");
    }
    return node != nullptr && node->kind == YamlNode::Kind::scalar ? node->scalar : "";
}

double bytes_of(const std::string& text) {
    double value = 0;
    std::string problem;
    return parse_quantity(text, Dimension::bytes, value, problem) ? value : 0;
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
        std::vector<ServedModel> models;
        for (Found* server : servers) {
            models.push_back(model_of(*server, client));
        }
        std::string named = input_.option("node");
        const bool told = named.empty();  // that a node was taken
        named = named.empty() ? node_in_comments() : named;
        const Nodes nodes = named.empty() ? nodes_for(*servers.back(), models.back()) : std::vector<std::string>{named};
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
    static ShellScript script_of(const std::string& text, const std::string& name) {
        std::optional<ShellScript> containers = read_containers(text, name);
        return containers ? std::move(*containers) : read_shell(text, name);
    }

    void find() {
        for (const ShellCommand& command : script_.commands) {
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
                found_.servers.push_back({GivenFlags(table, command, first, input_.path(), text_), &command, offline,
                                          worker > 0, offline ? &load_clients()[0] : nullptr});
                add_file(found_.servers.back(), table);
                continue;
            }
            for (std::size_t i = 0; i < load_clients().size(); ++i) {
                const LoadClient& client = load_clients()[i];
                if (const std::size_t start = behind(command, client.programs); start > 0) {
                    found_.clients.push_back({GivenFlags(client_tables_[i], command, start, input_.path(), text_),
                                              &command, false, false, &client});
                }
            }
        }
        if (found_.servers.empty()) {
            refuse_foreign();
        }
    }

    // The file has no server of this engine: says what it has.
    [[noreturn]] void refuse_foreign() const {
        const ShellCommand* shown = script_.commands.empty() ? nullptr : &script_.commands[0];
        std::string instead;
        const std::pair<const char*, std::vector<const char*>> engines[] = {
            {"vllm-args", {"vllm serve", "vllm.entrypoints.openai.api_server", "vllm-openai*"}},
            {"sglang-args", {"sglang.launch_server", "sglang serve"}},
            {"trtllm-args", {"trtllm-serve", "trtllm-bench"}}};
        for (const ShellCommand& command : script_.commands) {
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
                          const Nodes& nodes) {
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

    // The node of the one device that comments, a page's prose or the selector of a manifest name; empty where there are none or several.
    [[nodiscard]] std::string node_in_comments() const {
        constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kDevices = {{{"h100", "dgx-h100"},
                                                                                             {"h200", "dgx-h200"},
                                                                                             {"b200", "dgx-b200"},
                                                                                             {"b300", "dgx-b300"},
                                                                                             {"a100", "dgx-a100-80g"},
                                                                                             {"h20", "hgx-h20"},
                                                                                             {"h800", "hgx-h800"},
                                                                                             {"gb200", "gb200-nvl72"},
                                                                                             {"gb300", "gb300-nvl72"},
                                                                                             {"mi300x", "mi300x-8"},
                                                                                             {"mi325x", "mi325x-8"},
                                                                                             {"mi355x", "mi355x-8"},
                                                                                             {"l40s", "l40s-4"}}};
        std::string found;
        const bool page = text_.find("```") != std::string::npos;
        bool prose = page;
        for (const std::string_view line : split(std::string_view(text_), '\n')) {
            prose = line.find("```") == std::string_view::npos ? prose : !prose;
            const std::size_t comment = line.find('#');
            const std::size_t behind_words = line.find(" #");
            const bool whole = prose || line.find("gpu.product") != std::string_view::npos ||
                               (comment != std::string_view::npos && line.find_first_not_of(" \t") == comment);
            const std::string said =
                lower_case(std::string(whole                                    ? line
                                       : behind_words != std::string_view::npos ? line.substr(behind_words)
                                                                                : ""));
            for (std::size_t start = 0; start < said.size();) {
                std::size_t end = start;
                while (end < said.size() && std::isalnum(static_cast<unsigned char>(said[end])) != 0) {
                    ++end;
                }
                std::string_view word = std::string_view(said).substr(start, end - start);
                const std::size_t times = word.find('x');  // 8xH200
                if (times != std::string_view::npos && times > 0 && word.find_first_not_of("0123456789") == times) {
                    word.remove_prefix(times + 1);
                }
                for (const auto& [device, node] : kDevices) {
                    if (word == device && !found.empty() && found != node) {
                        return "";
                    }
                    found = word == device ? std::string(node) : found;
                }
                start = end + 1;
            }
        }
        return found;
    }

    [[nodiscard]] static Nodes nodes_for(const Found& server, const ServedModel& model) {
        const auto says = [&](const std::string& text) {
            const std::string word = lower_case(text);
            return word.find("rocm") != std::string::npos || word.find("aiter") != std::string::npos;
        };
        const auto& flags = server.flags.flags();
        const auto& words = server.command->words;
        if (std::any_of(flags.begin(), flags.end(),
                        [&](const GivenFlag& flag) { return says(flag.written) || says(flag.value); }) ||
            std::any_of(words.begin(), words.end(), [&](const ShellWord& word) { return says(word.text); })) {
            return kAmdNodes;
        }
        const std::string name = lower_case(model.name);
        const bool four = name.find("nvfp4") != std::string::npos || name.ends_with("-fp4");
        return four ? kBlackwellNodes : kUsualNodes;
    }

    // Flags of the file that a flag names: one that the script writes, or one beside it.
    void add_file(Found& found, const FlagTable& table) {
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
            found.flags.add_file(table, written->second, name, found.flags.place());
        } else if (std::ifstream file(beside); !input_.in_memory() && file) {
            found.flags.add_file(table, std::string(std::istreambuf_iterator<char>(file), {}), beside.string(),
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
            throw ConfigError({model_error(
                server,
                fmt::format("no model is known by the name '{}': give its config.json of Hugging Face (--config FILE), "
                            "or name one of 'orrery list models'",
                            word))});
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

    [[nodiscard]] ServingNode node_of(const std::string& name) const {
        const PresetKind nodes{"node", "topologies/data/nodes"};
        const PresetKind devices{"device", "models/data/devices"};
        ServingNode out;
        out.name = name;
        const std::vector<std::string> known = data_.names(nodes);
        if (std::find(known.begin(), known.end(), name) == known.end()) {
            const std::string near = nearest_name(name, known);
            throw ConfigError(fmt::format("unknown node '{}'{}; 'orrery list nodes' shows them all", name,
                                          near.empty() ? "" : fmt::format("; did you mean '{}'?", near)),
                              ErrorCode::unknown_name);
        }
        const auto node = data_.preset(nodes, name);
        double number = 0;
        if (parse_number(value_of(node->find("gpus")), number) && number >= 1) {
            out.gpus = static_cast<std::int64_t>(number);
        }
        const YamlNode* device = node->find("gpu");
        if (device != nullptr && device->kind == YamlNode::Kind::map && device->find("memory") != nullptr) {
            out.device = value_of(device->find("name"));
            out.memory = bytes_of(value_of(device->find("memory")));
            return out;
        }
        out.device =
            value_of(device != nullptr && device->kind == YamlNode::Kind::map ? device->find("preset") : device);
        if (const std::vector<std::string> presets = data_.names(devices);
            std::find(presets.begin(), presets.end(), out.device) != presets.end()) {
            out.memory = bytes_of(value_of(data_.preset(devices, out.device)->find("memory")));
        }
        return out;
    }

    // A version in words such as vllm/vllm-openai:v0.11.0 or vllm==0.10.2.
    [[nodiscard]] std::string version_of(const Found& server) const {
        const std::string requirement =
            fmt::format("{}==", engine_.table)
                .replace(0, std::string(engine_.table).size(),
                         std::string(engine_.table).substr(0, std::string(engine_.table).find('-')));
        std::string out;
        const auto look = [&](const ShellCommand& command, bool image) {
            for (const ShellWord& word : command.words) {
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
        for (const ShellCommand& command : script_.commands) {
            const std::string& program = command.words[0].text;
            const bool starts =
                &command == server.command && (program == "docker" || program == "podman" || program == "sudo" ||
                                               program == "nerdctl" || program.find(':') != std::string::npos);
            look(command, starts);
        }
        return out;
    }

    Imported written(std::vector<Found*>& servers, const std::vector<ServedModel>& models, Found* client,
                     const std::string& node_name) {
        Imported out;
        const ServingNode node = node_of(node_name);
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
        set_engine(servers, models.back(), choices, keys, out);
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

    void set_ranks(const ServingChoices& c, const std::string& before, ScenarioKeys& keys) const {
        const auto more = [](std::int64_t value) { return value > 1 ? std::to_string(value) : std::string(); };
        keys.set(before + "replicas", std::to_string(c.ranks.replicas));
        keys.set(before + "tensor", std::to_string(c.ranks.tensor));
        keys.set(before + "pipeline", more(c.ranks.pipeline));
        keys.set(before + "groups", more(c.ranks.groups));
        keys.set(before + "expert", more(c.ranks.expert));
        keys.set(before + "scheduler.kind", c.scheduler);
        const auto all = [&](std::int64_t each) {
            return each > 0 ? std::to_string(std::min<std::int64_t>(each * c.ranks.groups, 1 << 20)) : std::string();
        };
        keys.set(before + "scheduler.token_budget", all(c.token_budget));
        keys.set(before + "scheduler.max_sequences", all(c.max_sequences));
    }

    static std::int64_t redundant_experts(GivenFlags& flags) {
        const std::int64_t given = flags.whole("redundant_experts", 1 << 20, true).value_or(0);
        double number = 0;
        return parse_number(flags.part("expert_balance", "num_redundant_experts"), number) && number >= 0 &&
                       number < 1e6
                   ? static_cast<std::int64_t>(number)
                   : given;
    }

    void set_engine(std::vector<Found*>& servers, const ServedModel& model, const std::vector<ServingChoices>& choices,
                    ScenarioKeys& keys, Imported& out) {
        for (std::size_t i = 0; i < choices.size(); ++i) {
            const std::string before =
                choices.size() == 1 ? std::string("engine.") : fmt::format("engine.{}.", choices[i].phase);
            set_ranks(choices[i], before, keys);
            const std::int64_t copies = redundant_experts(servers[i]->flags);
            keys.set(before + "redundant_experts",
                     copies > 0 && choices[i].ranks.expert > 1 ? std::to_string(copies) : "");
        }
        const ServingChoices& c = choices.back();
        Found& server = *servers.back();
        if (c.ranks.groups > 1 && c.ranks.expert > 0) {
            const std::string how = lower_case(server.flags.text("dispatch"));
            keys.set("engine.dispatch", how.empty() || how.find("gather") != std::string::npos || how == "naive" ||
                                                how == "none" || how == "auto"
                                            ? ""
                                        : how.find("high") != std::string::npos || how == "deepep" ? "hierarchical"
                                                                                                   : "all-to-all");
        }
        set_precision(server, model, keys, out);
        keys.set("engine.kv.memory", fmt::format("{:g}", std::round(c.memory * 1000) / 1000));
        keys.set("engine.kv.of_free", c.of_free ? "true" : "");
        keys.set("engine.kv.prefix", c.prefix_cache ? "{}" : "");
        if (c.draft_tokens > 0) {
            keys.set("engine.speculation.tokens", std::to_string(c.draft_tokens));
            out.notes.assumed("80 % of draft tokens accepted, and drafts that take no time (engine.speculation)");
        }
        for (const auto& [key, value] : server.flags.plain_keys()) {
            if (key.rfind("engine.lora.", 0) != 0) {
                keys.set(key, value);
            }
        }
        if (server.flags.on("lora")) {
            keys.set("engine.lora.rank", std::to_string(server.flags.whole("engine.lora.rank").value_or(16)));
            keys.set("engine.lora.slots", std::to_string(server.flags.whole("engine.lora.slots").value_or(1)));
        }
        const std::string software = input_.has("software") ? input_.option("software") : c.software;
        const bool changed = c.eager || c.decode_graphs_alone || c.serial_host || c.graph_sequences > 0;
        keys.set(changed ? "engine.software.preset" : "engine.software", software);
        keys.set("engine.software.overlap", c.serial_host ? "false" : "");
        keys.set("engine.software.compiled", c.eager ? "false" : "");
        keys.set("engine.software.graph_sequences", c.eager                 ? "0"
                                                    : c.graph_sequences > 0 ? std::to_string(c.graph_sequences)
                                                                            : "");
        keys.set("engine.software.graph_tokens", c.eager || c.decode_graphs_alone ? "0" : "");
        if (!input_.has("software")) {
            out.notes.assumed(
                fmt::format("host costs of {} (engine.software; --software NAME; orrery list engines)", software));
        }
    }

    // The precision that a method of quantisation gives weights without one; empty for methods that name none.
    static std::string precision_of_method(const std::string& how) {
        const auto is = [&](const char* part) { return how.find(part) != std::string::npos; };
        return is("fp4")                               ? "fp4"
               : is("fp8") || how == "modelopt"        ? "fp8"
               : is("int8") || is("8bit") || is("8wo") ? "int8"
               : is("awq") || is("gptq") || is("bitsandbytes") || is("int4") || is("4bit") || is("wna16") ||
                       is("qoq") || is("auto-round") || is("marlin")
                   ? "int4"
                   : "";
    }

    // What flags say goes before the checkpoint, unless it is the checkpoint's own format.
    void set_precision(Found& server, const ServedModel& model, ScenarioKeys& keys, Imported& out) const {
        const std::string how = lower_case(server.flags.text("quantization"));
        const std::string type = lower_case(server.flags.text("dtype"));
        const NamedCheckpoint& stored = model.checkpoint;
        const std::string method = precision_of_method(how);
        const auto family = [](const std::string& precision) {
            return precision.substr(0, 3) == "int" ? "int" : precision;
        };
        const bool own = stored.quantised() && (how == "modelopt" || family(method) == family(stored.weights) ||
                                                family(method) == family(stored.experts));
        std::string weights;
        std::string experts;
        if (!method.empty() && !own) {
            const bool alone = model.experts && (method == "fp4" || how == "experts_int8");  // of experts
            weights = alone ? "bf16" : method;
            experts = alone ? method : "";
        } else if (!how.empty() && method.empty() && !stored.quantised() && how != "none" && how != "auto") {
            out.notes.left_out(
                fmt::format("the precision of --quantization {}: the name of the checkpoint says none "
                            "(engine.weights)",
                            printable(how, 60)));
        } else if (how.empty() && !stored.quantised() && (type == "float32" || type == "float")) {
            weights = "fp32";
            keys.set("engine.kv.precision", "fp32");
        } else if (how.empty() && !stored.quantised() && (type == "half" || type == "float16")) {
            weights = "fp16";
            keys.set("engine.kv.precision", "fp16");
        }
        const bool described = !model.description.empty();
        keys.set("engine.weights", weights.empty() && described ? model.checkpoint.weights : weights);
        keys.set("engine.experts", weights.empty() && described && model.experts ? model.checkpoint.experts : experts);
        keys.set("engine.scaling", weights.empty() && described && model.experts ? model.checkpoint.scaling : "");
        const std::string cache = lower_case(server.flags.text("kv_precision"));
        const auto cache_is = [&](const char* part) { return cache.find(part) != std::string::npos; };
        const std::string precision = cache_is("fp4")                         ? "fp4"
                                      : cache_is("fp8")                       ? "fp8"
                                      : cache_is("int8")                      ? "int8"
                                      : cache == "float16" || cache == "half" ? "fp16"
                                                                              : "";
        keys.set("engine.kv.precision", precision);
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
    ShellScript script_;
    FlagTable server_table_, offline_table_, worker_table_;
    std::vector<FlagTable> client_tables_;
    FoundCommands found_;
    std::vector<std::string> skipped_;
    std::int64_t context_ = 0;  ///< tokens of a sequence that the cache must have room for; 0: any
    std::int64_t tensor_ = 0;   ///< tried in place of the flags' degree; 0: none is
};

}  // namespace

void ScenarioKeys::set(const std::string& path, const std::string& value) {
    if (value.empty()) {
        return;
    }
    std::vector<Node>* level = &sections_;
    Node* node = nullptr;
    for (const std::string_view name : split(path, '.')) {
        auto found = std::find_if(level->begin(), level->end(), [&](const Node& one) { return one.name == name; });
        if (found == level->end()) {
            found = level->insert(level->end(), {std::string(name), "", {}});
        }
        node = &*found;
        level = &node->children;
    }
    node->value = value;
}

std::string ScenarioKeys::flow(const Node& node) {
    if (node.children.empty()) {
        return node.value;
    }
    std::string out;
    for (const Node& child : node.children) {
        out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", child.name, flow(child));
    }
    return "{" + out + "}";
}

std::string ScenarioKeys::yaml() const {
    std::string out;
    for (const Node& section : sections_) {
        out += section.name + ":\n";
        for (const Node& key : section.children) {
            out += fmt::format("  {}: {}\n", key.name, flow(key));
        }
    }
    return out;
}

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
