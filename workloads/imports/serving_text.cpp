#include "workloads/imports/serving_text.hpp"

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "sim/config/yaml_tree.hpp"
#include "workloads/imports/container_commands.hpp"
#include "workloads/imports/python_engine.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <tuple>

namespace orrery::imports {

namespace {

std::string lower_case(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
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

// The place behind an image of a family that a container is started from, whose arguments are flags of its program; 0
// where there is none: "podman run -p 8000:8000 registry/vllm-cuda:3 --model M", "kubectl run NAME
// --image=registry/vllm:1 -- --model M".
std::size_t behind_image(const CommandCall& command, const std::string& family) {
    const auto& words = command.words;
    const auto starts = [&](const char* name) {
        return std::any_of(words.begin(), words.end(), [&](const CommandWord& word) { return word.text == name; });
    };
    if (!starts("run") || words.size() < 3) {
        return 0;
    }
    const bool pod = starts("kubectl") || starts("oc");
    if (!pod && !is_image_command(command)) {
        return 0;
    }
    bool image = false;
    for (std::size_t i = 1; i < words.size(); ++i) {
        const std::string& word = words[i].text;
        const bool named = word.find(family) != std::string::npos;
        if (pod) {
            image = image || (named && (word.rfind("--image=", 0) == 0 || words[i - 1].text == "--image"));
            if (image && word == "--") {
                return i + 1;
            }
            continue;
        }
        const std::string& before = words[i - 1].text;
        const bool value = before.rfind("--", 0) == 0 || (before.size() == 2 && before[0] == '-');  // of an option
        const bool tagged = word.find('/') != std::string::npos || word.find(':') != std::string::npos;
        const bool flags = i + 1 < words.size() && words[i + 1].text[0] == '-';
        if (named && tagged && flags && word[0] != '-' && word[0] != '/' && word[0] != '~' && word[0] != '$' &&
            !(value && (word.find(":/") != std::string::npos || word.find('=') != std::string::npos))) {
            return i + 1;
        }
    }
    return 0;
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

std::string first_words(const CommandCall& command) {
    std::string out;
    for (std::size_t i = 0; i < std::min<std::size_t>(3, command.words.size()); ++i) {
        out += (i > 0 ? " " : "") + command.words[i].text;
    }
    return printable(out, 60);
}

// Editors of Windows begin a file with a mark of its encoding: blanks keep the places behind it.
std::string without_mark(std::string text) {
    const std::string_view mark = "\xEF\xBB\xBF";
    return text.rfind(mark, 0) == 0 ? text.replace(0, mark.size(), "   ") : text;
}

CommandList script_of(const std::string& text, const std::string& name) {
    std::optional<CommandList> containers = read_containers(text, name);
    return containers ? std::move(*containers) : read_shell(text, name);
}

bool has_phase(const ServingProgram& server) {
    const GivenFlags& flags = server.flags;
    return !server.phase.empty() || flags.given("phase") || flags.given("prefill_worker") ||
           flags.given("decode_worker") || flags.given("disaggregation");
}

// The model as the command names it.
std::string name_of(const ServingProgram& found) {
    for (auto flag = found.flags.flags().rbegin(); flag != found.flags.flags().rend(); ++flag) {
        if (flag->row != nullptr && flag->row->key == "model") {
            return flag->value;
        }
    }
    return found.flags.words().empty() ? "" : found.flags.words()[0].text;
}

}  // namespace

ServingText::ServingText(const ImportInput& input, const ServingEngine& engine)
    : input_(input),
      engine_(engine),
      text_(without_mark(input.bytes())),
      script_(script_of(text_, input.path())),
      server_table_({engine.table}, input.data()),
      offline_table_({engine.table, engine.offline_table}, input.data()),
      worker_table_({"dynamo", engine.table}, input.data()) {
    for (const LoadClient& client : load_clients()) {
        client_tables_.emplace_back(std::vector<std::string>{client.table}, input.data());
    }
    find();
}

int ServingText::line_of(const ServingProgram& program) const {
    const std::size_t at = std::min(program.flags.place(), text_.size());
    return 1 + static_cast<int>(std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

void ServingText::note_rest(ImportNotes& notes) const {
    for (const std::string& loop : script_.loops) {
        notes.assumed(loop);
    }
    for (const std::string& skipped : skipped_) {
        notes.left_out(skipped);
    }
}

void ServingText::find() {
    const CommandCall* phases = nullptr;
    std::size_t phases_at = 0;
    for (const CommandCall& command : script_.commands) {
        std::size_t first = behind(command, engine_.offline);
        const bool offline = first > 0;
        const std::size_t worker = behind(command, {engine_.worker});
        first = offline ? first : worker > 0 ? worker : behind(command, engine_.servers);
        first = first > 0 ? first : behind_image(command, family());
        if (const std::size_t data = offline_data(command); data > 0) {
            made_data_.emplace_back(offline_table_, command, data, input_.path(), text_);
            continue;
        }
        if (first > 0 && first < command.words.size() && command.words[first].text.rfind("disaggregated", 0) == 0) {
            phases = &command;
            phases_at = first;
            continue;
        }
        if (first == command.words.size() && is_image_command(command)) {
            continue;  // docker pull
        }
        const bool bare = first == 0 && command.words[0].text[0] == '-';  // the flags without their program
        if (first > 0 || (bare && script_.commands.size() == 1)) {
            const FlagTable& table = offline ? offline_table_ : worker > 0 ? worker_table_ : server_table_;
            servers_.push_back({GivenFlags(table, command, first, input_.path(), text_), &table, &command, offline,
                                worker > 0, offline ? offline_client(command) : nullptr});
            continue;
        }
        constexpr std::array<std::string_view, 9> kUnread = {
            "k6", "locust", "inference-perf", "genai-bench", "hey", "wrk", "vegeta", "fmperf", "inference-benchmarker"};
        const std::string_view word = command.words[0].text;
        const std::string_view tool = word.substr(word.rfind('/') + 1);
        if (std::find(kUnread.begin(), kUnread.end(), tool) != kUnread.end()) {
            skipped_.push_back(fmt::format("the load of '{}', which is not read (requests)", tool));
        }
        for (std::size_t i = 0; i < load_clients().size(); ++i) {
            const LoadClient& client = load_clients()[i];
            if (const std::size_t start = behind(command, client.programs); start > 0) {
                clients_.push_back({GivenFlags(client_tables_[i], command, start, input_.path(), text_),
                                    &client_tables_[i], &command, false, false, &client});
            }
        }
    }
    if (servers_.empty() && phases == nullptr) {
        find_written();
        if (servers_.empty()) {
            refuse_foreign();
        }
    }
    for (ServingProgram& server : servers_) {
        if (server.offline && !made_data_.empty() && !server.flags.given("input.any")) {
            server.flags.add_before(made_data_.back());
        }
    }
    if (phases != nullptr) {
        read_phases(*phases, phases_at);
    }
}

std::string ServingText::family() const {
    return std::string(engine_.table).substr(0, std::string(engine_.table).find('-'));
}

// The lengths of bench_offline_throughput are drawn as those of SGLang's client.
const LoadClient* ServingText::offline_client(const CommandCall& command) const {
    return behind(command, {"sglang.bench_offline_throughput"}) > 0 ? &load_clients()[1] : &load_clients()[0];
}

// The place behind TensorRT-LLM's program that writes the requests which its benchmark takes from a file; 0 where there
// is none.
std::size_t ServingText::offline_data(const CommandCall& command) const {
    return family() == "trtllm" ? behind(command, {"prepare_dataset.py", "prepare-dataset"}) : 0;
}

void ServingText::find_written() {
    const std::size_t program = split(std::string_view(engine_.servers[0]), ' ').size();
    CommandCall& call = written_[0];
    const auto add = [&](bool offline) {
        const FlagTable& table = offline ? offline_table_ : server_table_;
        servers_.push_back({GivenFlags(table, call, program, input_.path(), text_), &table, &call, offline, false,
                            offline ? offline_client(call) : nullptr});
    };
    for (const bool offline : {true, false}) {  // classes whose generate() takes all prompts at once, and others
        std::vector<const char*> names;
        for (const char* name : engine_.python) {
            if ((std::string_view(name) == "LLM" || std::string_view(name) == "Engine") == offline) {
                names.push_back(name);
            }
        }
        std::optional<CommandCall> found = read_python_engine(text_, input_.path(), names, engine_.servers[0]);
        if (!found) {
            continue;
        }
        call = std::move(*found);
        if (offline) {
            add_batch(call);
        }
        add(offline);
        return;
    }
    // The file of --config, on its own.
    const bool map = text_.rfind("model:", 0) == 0 || text_.find("\nmodel:") != std::string::npos ||
                     text_.rfind("model-path:", 0) == 0 || text_.find("\nmodel-path:") != std::string::npos;
    if (map && script_.files.empty()) {
        for (const std::string_view word : split(std::string_view(engine_.servers[0]), ' ')) {
            call.words.push_back({std::string(word), 0, ""});
        }
        add(false);
        servers_.back().flags.add_file(server_table_, text_, input_.path(), 0);
    }
}

// The requests of a script: as many as it makes by repetition, with the longest answers that it allows.
void ServingText::add_batch(CommandCall& call) {
    const auto add = [&](const char* key, std::int64_t value) {
        for (const FlagRow& row : offline_table_.rows()) {
            if (value > 0 && row.key == key) {
                call.words.push_back({"--" + row.names[0], call.words[0].at, ""});
                call.words.push_back({std::to_string(value), call.words[0].at, ""});
                return;
            }
        }
    };
    add("count", python_repetition(text_));
    add("output.any", std::max(python_number(text_, "max_tokens"), python_number(text_, "max_new_tokens")));
    script_.loops.push_back(
        "all requests at once, as generate() takes them: what a script reads or makes its prompts of is not read "
        "(requests.count, requests.prompt)");
}

// The file has no server of this engine: says what it has.
void ServingText::refuse_foreign() const {
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
    for (const CommandCall& command : script_.commands) {
        for (const auto& [program, name] :
             {std::pair("text-generation-launcher", "Text Generation Inference"), std::pair("lmdeploy", "LMDeploy"),
              std::pair("ollama", "Ollama"), std::pair("llama-server", "llama.cpp")}) {
            if (instead.empty() && behind(command, {program}) > 0) {
                shown = &command;
                instead = fmt::format(
                    " of {}, which no importer reads: describe its server by hand (orrery init "
                    "serving)",
                    name);
            }
        }
    }
    if (instead.empty() && !clients_.empty()) {
        shown = clients_[0].command;
        instead = ", a load generator without its server";
    }
    throw ConfigError({diagnostic_at(
        input_.path(), text_, shown == nullptr ? 0 : shown->words[0].at,
        fmt::format("holds no command of {} such as '{}', but {}{}", engine_.name, engine_.example,
                    shown == nullptr ? "no command at all" : fmt::format("'{}'", first_words(*shown)), instead))});
}

std::optional<std::string> ServingText::file_text(const std::string& name) const {
    auto written = script_.files.find(name);
    if (written == script_.files.end()) {  // mounted from a manifest's map
        written = script_.files.find(std::filesystem::path(name).filename().string());
    }
    if (written != script_.files.end()) {
        return written->second;
    }
    std::ifstream file(std::filesystem::path(input_.path()).parent_path() / name);
    return !input_.in_memory() && file ? std::optional(std::string(std::istreambuf_iterator<char>(file), {}))
                                       : std::nullopt;
}

void ServingText::read_phases(const CommandCall& command, std::size_t first) {
    std::string name;
    for (std::size_t i = first; i + 1 < command.words.size(); ++i) {
        const std::string& flag = command.words[i].text;
        name = flag == "-c" || flag == "--config" || flag == "--config_file" ? command.words[i + 1].text : name;
    }
    const std::optional<std::string> text = file_text(name);
    if (!text) {
        throw ConfigError({diagnostic_at(input_.path(), text_, command.words[0].at,
                                         fmt::format("expected the file of phases (-c FILE, with context_servers and "
                                                     "generation_servers) beside this one, and found no '{}'",
                                                     printable(name, 100)))});
    }
    const YamlNode root = parse_yaml(*text, name);
    const bool inside = servers_.empty();  // the file says all of its servers
    std::size_t part = 0;
    for (const auto& [key, phase] :
         {std::pair("context_servers", "prefill"), std::pair("generation_servers", "decode")}) {
        const YamlNode* servers = root.find(key);
        const YamlNode* urls = servers == nullptr ? nullptr : servers->find("urls");
        const YamlNode* number = servers == nullptr ? nullptr : servers->find("num_instances");
        double instances = urls == nullptr ? 0 : static_cast<double>(urls->items.size());
        if (number != nullptr && instances == 0) {
            instances = parse_number(number->scalar, instances) ? instances : 0;
        }
        if (instances < 1 || instances > 65536 || (!inside && (urls == nullptr || urls->items.empty()))) {
            throw ConfigError({(servers == nullptr ? root : *servers)
                                   .mark.error(fmt::format("expected '{}' with the 'urls' of its servers", key))});
        }
        if (inside) {
            add_phase(root, *servers, name, written_.at(part++), command);
            servers_.back().phase = phase;
            servers_.back().instances = static_cast<std::int64_t>(instances);
            continue;
        }
        for (const YamlNode& url : urls->items) {
            const std::string port = url.scalar.substr(url.scalar.rfind(':') + 1);
            for (ServingProgram& server : servers_) {
                for (const GivenFlag& flag : server.flags.flags()) {
                    if (flag.written == "--port" && flag.value == port) {
                        server.phase = phase;
                        server.instances = static_cast<std::int64_t>(urls->items.size());
                    }
                }
            }
        }
    }
}

void ServingText::add_phase(const YamlNode& root, const YamlNode& section, const std::string& name, CommandCall& call,
                            const CommandCall& command) {
    constexpr std::array<std::string_view, 8> kNoFlags = {
        "context_servers", "generation_servers",       "urls", "hostname", "num_instances", "port",
        "router",          "conditional_disagg_config"};
    const auto flags_of = [&](YamlNode map) {
        std::erase_if(map.entries, [&](const YamlNode::Entry& entry) {
            return std::find(kNoFlags.begin(), kNoFlags.end(), entry.key) != kNoFlags.end();
        });
        return canonical_text(map);
    };
    call = command;
    call.words.resize(1);
    GivenFlags flags(server_table_, call, 1, input_.path(), text_);
    for (const YamlNode* map : {&section, &root}) {  // a section's go before those of all
        flags.add_file(server_table_, flags_of(*map), name, command.words[0].at);
    }
    servers_.push_back({std::move(flags), &server_table_, &call, false, false, nullptr});
}

void ServingText::add_file(ServingProgram& found) const {
    if (!found.flags.given(engine_.file)) {
        return;
    }
    const std::string name = found.flags.text(engine_.file);
    const std::optional<std::string> text = file_text(name);
    if (!text) {
        throw ConfigError({found.flags.error(
            engine_.file, fmt::format("'{}' is not beside this file, and what it says is not known: put it there or "
                                      "take the flag out",
                                      printable(name, 100)))});
    }
    found.flags.add_file(*found.table, *text, name, found.flags.place());
}

// Commands whose effects are the same start one deployment, each on its nodes.
std::vector<ServingProgram*> ServingText::chosen_servers() {
    std::vector<ServingProgram*> distinct;
    std::set<std::tuple<std::string, std::string, std::size_t, std::string>> seen;
    for (ServingProgram& server : servers_) {
        if (seen.emplace(server.flags.signature(), server.phase, server.flags.words().size(), name_of(server)).second) {
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
        constexpr std::size_t kNamed = 20;
        std::vector<int> lines;
        for (std::size_t i = 0; i < std::min(kNamed, distinct.size()); ++i) {
            lines.push_back(line_of(*distinct[i]));
        }
        throw ConfigError({diagnostic_at(
            input_.path(), text_, distinct[1]->flags.place(),
            fmt::format("is a second server, and a scenario has one deployment: the file has them at lines {}{} "
                        "(--server N takes the Nth)",
                        fmt::join(lines, ", "),
                        distinct.size() > kNamed ? fmt::format(" and {} more", distinct.size() - kNamed) : ""))});
    }
    return distinct;
}

ServingProgram* ServingText::chosen_client(ServingProgram& server) {
    if (server.offline) {
        return &server;
    }
    std::vector<ServingProgram*> fitting;
    const std::string served = lower_case(name_of(server));
    const std::string called = lower_case(server.flags.text("served_name"));
    for (ServingProgram& client : clients_) {
        const std::string wanted = lower_case(client.flags.text("model"));
        const bool unset = served.find('$') != std::string::npos;
        if (wanted.empty() || wanted == served || wanted == called || unset || servers_.size() == 1) {
            fitting.push_back(&client);
        } else {
            skipped_.push_back(fmt::format("the load at line {}, which is of another model", line_of(client)));
        }
    }
    const std::uint32_t number = input_.whole_option("client");
    if (number > fitting.size()) {
        throw ConfigError(fmt::format("--client {}: the file has {} of this server", number, fitting.size()),
                          ErrorCode::command_line);
    }
    const std::size_t taken = std::max(1U, number) - 1;
    constexpr std::size_t kNamed = 20;
    if (fitting.size() > kNamed) {
        skipped_.push_back(fmt::format("{} loads (--client N takes the Nth)", fitting.size() - 1));
    }
    for (std::size_t i = 0; i < fitting.size() && fitting.size() <= kNamed; ++i) {
        if (i != taken) {
            skipped_.push_back(fmt::format("the load at line {} (--client {} takes it)", line_of(*fitting[i]), i + 1));
        }
    }
    return fitting.empty() ? nullptr : fitting[taken];
}

std::string ServingText::version_of(const ServingProgram& server) const {
    constexpr std::array<std::string_view, 3> kOtherImages = {"dynamo", "llm-d", "lmcache"};
    std::string out;
    const auto look = [&](const std::vector<CommandWord>& words, bool image) {
        for (const CommandWord& word : words) {
            // sglang[all]==0.4.6, and TensorRT-LLM by its package's name
            std::size_t at = word.text.find("==");
            std::string package = lower_case(word.text.substr(0, std::min(at, word.text.find('['))));
            package = package == "tensorrt_llm" || package == "tensorrt-llm" ? "trtllm" : package;
            at = at == std::string::npos || package != family() ? std::string::npos : at + 2;
            // Dynamo's, llm-d's and LMCache's images have versions of their own.
            const bool foreign = std::any_of(kOtherImages.begin(), kOtherImages.end(), [&](std::string_view name) {
                return lower_case(word.text).find(name) != std::string::npos;
            });
            // rocm/vllm:rocm6.4.1_vllm_0.10.0_20250812
            const std::size_t inside = word.text.find(family() + "_0.");
            if (image && at == std::string::npos && inside != std::string::npos) {
                at = inside + family().size() + 1;
            } else if (image && !foreign && at == std::string::npos && word.text.find('/') != std::string::npos) {
                const std::size_t colon = word.text.rfind(':');
                at = colon == std::string::npos ? colon : colon + 1 + (word.text.substr(colon + 1, 1) == "v" ? 1 : 0);
            }
            if (at != std::string::npos && at < word.text.size() &&
                std::isdigit(static_cast<unsigned char>(word.text[at])) != 0) {
                const std::size_t end = word.text.find_first_not_of("0123456789.", at);
                const std::string found = word.text.substr(at, end == std::string::npos ? end : end - at);
                // Numbers of other images, as those of distributions and of months, are not the engine's.
                const bool own = family() == "trtllm" ? found.size() > 1 && found[1] == '.' : found.rfind("0.", 0) == 0;
                out = own ? found : out;
            }
        }
    };
    for (const CommandCall& command : script_.commands) {
        for (const std::vector<CommandWord>* words : {&command.outer, &command.words}) {
            const std::string program = words->empty() ? "" : words->front().text;
            look(*words, &command == server.command &&
                             (program == "docker" || program == "podman" || program == "sudo" || program == "nerdctl" ||
                              program == "kubectl" || program == "oc" || program.find(':') != std::string::npos));
        }
    }
    return out;
}

}  // namespace orrery::imports
