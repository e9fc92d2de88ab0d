#include "workloads/imports/container_commands.hpp"

#include "sim/config/units.hpp"
#include "sim/config/yaml_tree.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>
#include <vector>

namespace orrery::imports {

namespace {

bool is_shell(const std::string& word) {
    const std::string program = word.substr(word.rfind('/') + 1);
    return program == "sh" || program == "bash" || program == "-c" || program == "-lc" || program == "-ec";
}

// $(NAME) of a manifest, where it sets the variable.
std::string with_variables(std::string text, const std::map<std::string, std::string>& set) {
    for (const auto& [name, value] : set) {
        const std::string written = "$(" + name + ")";
        for (std::size_t at = text.find(written); at != std::string::npos; at = text.find(written, at + value.size())) {
            text.replace(at, written.size(), value);
        }
    }
    return text;
}

class ContainerReader {
  public:
    ContainerReader(const std::string& text, const std::string& name) : text_(text), name_(name) {}

    CommandList read() {
        // Documents one after another: each is parsed where it stands, so that lines are those of the file.
        std::size_t start = 0;
        std::size_t lines = 0;
        while (start < text_.size()) {
            std::size_t end = start;
            std::size_t next = text_.size();
            while (end < text_.size()) {
                const std::size_t line_end = std::min(text_.find('\n', end), text_.size());
                if (text_.compare(end, 3, "---") == 0) {
                    next = std::min(line_end + 1, text_.size());
                    break;
                }
                end = std::min(line_end + 1, text_.size());
            }
            const std::string document = text_.substr(start, end - start);
            if (document.find_first_not_of(" \t\r\n") != std::string::npos) {
                walk(parse_yaml(std::string(lines, '\n') + document, name_), 1);
            }
            lines += static_cast<std::size_t>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(start),
                                                         text_.begin() + static_cast<std::ptrdiff_t>(next), '\n'));
            start = next;
        }
        return std::move(out_);
    }

  private:
    void walk(const YamlNode& node, std::int64_t copies) {
        for (const YamlNode& item : node.items) {
            walk(item, copies);
        }
        if (node.kind != YamlNode::Kind::map) {
            return;
        }
        double number = 0;
        if (const YamlNode* replicas = node.find("replicas");
            replicas != nullptr && replicas->kind == YamlNode::Kind::scalar && parse_number(replicas->scalar, number) &&
            number >= 1 && number <= 65536) {
            copies = static_cast<std::int64_t>(number);
        }
        if (const YamlNode* run = node.find("run"); run != nullptr && run->kind == YamlNode::Kind::scalar) {
            add_task(node);
            return;
        }
        if (const YamlNode* served = node.find("llm_configs"); served != nullptr) {
            for (const YamlNode& one : served->items) {
                add_application(one);
            }
            return;
        }
        const YamlNode* kind = node.find("kind");
        const YamlNode* data = node.find("data");
        if (kind != nullptr && kind->scalar == "ConfigMap" && data != nullptr) {
            for (const YamlNode::Entry& entry : data->entries) {
                out_.files[entry.key] = entry.value.scalar;
            }
        }
        const YamlNode* command = node.find("command");
        const YamlNode* arguments = node.find("args");
        const auto words = [](const YamlNode* of) {
            return of != nullptr && (of->kind == YamlNode::Kind::sequence || of->kind == YamlNode::Kind::scalar);
        };
        if (words(command) || words(arguments)) {
            add(node, command, arguments, copies);
        }
        if (const YamlNode* artifacts = node.find("modelArtifacts"); artifacts != nullptr) {
            add_service(node, *artifacts);
            return;
        }
        if (const YamlNode* model = node.find("modelURL"); model != nullptr && model->kind == YamlNode::Kind::scalar) {
            add_values(node, *model, copies);
            return;
        }
        for (const YamlNode::Entry& entry : node.entries) {
            walk(entry.value, copies);
        }
    }

    // The values of llm-d's chart of a model service: servers for decode and for prefill, whose degrees stand beside
    // their flags.
    void add_service(const YamlNode& node, const YamlNode& artifacts) {
        const YamlNode* uri = artifacts.find("uri");
        const YamlNode* named = artifacts.find("name");
        const auto word = [&](CommandCall& call, const std::string& text, const YamlNode& of) {
            call.words.push_back({text, place(of.mark), ""});
        };
        for (const auto& [key, role] : {std::pair("decode", "kv_consumer"), std::pair("prefill", "kv_producer")}) {
            const YamlNode* servers = node.find(key);
            const YamlNode* made = servers == nullptr ? nullptr : servers->find("create");
            const YamlNode* containers = servers == nullptr ? nullptr : servers->find("containers");
            const YamlNode* model = uri == nullptr ? named : uri;
            if (containers == nullptr || model == nullptr || (made != nullptr && made->scalar == "false")) {
                continue;
            }
            CommandCall out;
            double number = 0;
            if (const YamlNode* replicas = servers->find("replicas");
                replicas != nullptr && parse_number(replicas->scalar, number) && number >= 1 && number <= 65536) {
                out.copies = static_cast<std::int64_t>(number);
            }
            word(out, "vllm", *servers);
            word(out, "serve", *servers);
            word(out, "--model", *model);
            const std::size_t scheme = model->scalar.find("://");
            const bool stored = scheme != std::string::npos && model->scalar.rfind("hf", 0) != 0;  // a volume
            word(out,
                 stored && named != nullptr    ? named->scalar
                 : scheme == std::string::npos ? model->scalar
                                               : model->scalar.substr(scheme + 3),
                 *model);
            const YamlNode* degrees = servers->find("parallelism");
            for (const auto& [name, flag] :
                 {std::pair("tensor", "--tensor-parallel-size"), std::pair("data", "--data-parallel-size"),
                  std::pair("pipeline", "--pipeline-parallel-size")}) {
                if (const YamlNode* degree = degrees == nullptr ? nullptr : degrees->find(name); degree != nullptr) {
                    word(out, flag, *degree);
                    word(out, degree->scalar, *degree);
                }
            }
            for (const YamlNode& container : containers->items) {
                const YamlNode* arguments = container.find("args");
                for (const YamlNode& item : arguments == nullptr ? std::vector<YamlNode>() : arguments->items) {
                    word(out, item.scalar, item);
                }
            }
            const YamlNode* other = node.find(role[3] == 'c' ? "prefill" : "decode");
            const YamlNode* both = other == nullptr ? nullptr : other->find("create");
            if (other != nullptr && (both == nullptr || both->scalar != "false")) {
                word(out, "--kv-transfer-config", *servers);
                word(out, std::string("{\"kv_role\": \"") + role + "\"}", *servers);
            }
            out_.commands.push_back(std::move(out));
        }
    }

    // A task of SkyPilot: its scripts, with the variables that it and SkyPilot set.
    void add_task(const YamlNode& node) {
        std::map<std::string, std::string> set;
        if (const YamlNode* given = node.find("envs"); given != nullptr) {
            for (const YamlNode::Entry& entry : given->entries) {
                set[entry.key] = entry.value.scalar;
            }
        }
        const YamlNode* nodes = node.find("num_nodes");
        set["SKYPILOT_NUM_NODES"] = nodes == nullptr ? "1" : nodes->scalar;
        const YamlNode* resources = node.find("resources");
        if (const YamlNode* gpus = resources == nullptr ? nullptr : resources->find("accelerators"); gpus != nullptr) {
            const YamlNode& first = gpus->items.empty() ? *gpus : gpus->items[0];
            const std::size_t colon = first.scalar.find(':');
            set["SKYPILOT_NUM_GPUS_PER_NODE"] = !first.entries.empty()       ? first.entries[0].value.scalar
                                                : colon == std::string::npos ? "1"
                                                                             : first.scalar.substr(colon + 1);
        }
        for (const char* key : {"setup", "run"}) {
            const YamlNode* script = node.find(key);
            CommandCall none;
            std::vector<CommandCall> commands;
            if (script != nullptr && script->kind == YamlNode::Kind::scalar) {
                add_line(*script, none, commands, set);
            }
            out_.commands.insert(out_.commands.end(), std::make_move_iterator(commands.begin()),
                                 std::make_move_iterator(commands.end()));
        }
    }

    // A model of a Ray Serve application: its engine_kwargs are vLLM's flags.
    void add_application(const YamlNode& node) {
        const YamlNode* loaded = node.find("model_loading_config");
        const YamlNode* source = loaded == nullptr ? nullptr : loaded->find("model_source");
        const YamlNode* model = source != nullptr && source->kind == YamlNode::Kind::scalar ? source
                                : loaded == nullptr                                         ? nullptr
                                                                                            : loaded->find("model_id");
        if (model == nullptr) {
            return;
        }
        CommandCall out;
        const auto word = [&](const std::string& text, const YamlNode& of) {
            out.words.push_back({text, place(of.mark), ""});
        };
        double number = 0;
        const YamlNode* deployed = node.find("deployment_config");
        const YamlNode* scaled = deployed == nullptr ? nullptr : deployed->find("autoscaling_config");
        for (const YamlNode* count : {scaled == nullptr ? nullptr : scaled->find("min_replicas"),
                                      deployed == nullptr ? nullptr : deployed->find("num_replicas")}) {
            if (count != nullptr && parse_number(count->scalar, number) && number >= 1 && number <= 65536) {
                out.copies = static_cast<std::int64_t>(number);
            }
        }
        word("vllm", node);
        word("serve", node);
        word("--model", *model);
        word(model->scalar, *model);
        const YamlNode* arguments = node.find("engine_kwargs");
        for (const YamlNode::Entry& entry :
             arguments == nullptr ? std::vector<YamlNode::Entry>() : arguments->entries) {
            const YamlNode& value = entry.value;
            word((value.scalar == "false" ? "--no-" : "--") + entry.key, value);
            if (value.scalar != "true" && value.scalar != "false") {
                word(value.kind == YamlNode::Kind::scalar ? value.scalar : canonical_text(value), value);
            }
        }
        out_.commands.push_back(std::move(out));
    }

    // A model of the values of vLLM's Helm chart (production-stack): its vllmConfig holds flags in camel case.
    void add_values(const YamlNode& node, const YamlNode& model, std::int64_t copies) {
        CommandCall out;
        out.copies = copies;
        double number = 0;
        if (const YamlNode* replicas = node.find("replicaCount");
            replicas != nullptr && parse_number(replicas->scalar, number) && number >= 1 && number <= 65536) {
            out.copies = static_cast<std::int64_t>(number);
        }
        const YamlNode* repository = node.find("repository");
        const YamlNode* tag = node.find("tag");
        out.words.push_back({(repository == nullptr ? "vllm/vllm-openai" : repository->scalar) +
                                 (tag == nullptr ? "" : ":" + tag->scalar),
                             place(node.mark), ""});
        out.words.push_back({"--model", place(model.mark), ""});
        out.words.push_back({model.scalar, place(model.mark), ""});
        const YamlNode* config = node.find("vllmConfig");
        for (const YamlNode::Entry& entry : config == nullptr ? std::vector<YamlNode::Entry>() : config->entries) {
            const std::size_t at = place(entry.value.mark);
            if (entry.key == "extraArgs") {
                for (const YamlNode& item : entry.value.items) {
                    out.words.push_back({item.scalar, place(item.mark), ""});
                }
                continue;
            }
            std::string flag;
            for (const char c : entry.key) {
                flag += std::isupper(static_cast<unsigned char>(c)) != 0
                            ? std::string("-") + static_cast<char>(std::tolower(static_cast<unsigned char>(c)))
                            : std::string(1, c);
            }
            const std::string& value = entry.value.scalar;
            out.words.push_back({(value == "false" ? "--no-" : "--") + flag, at, ""});
            if (value != "true" && value != "false") {
                out.words.push_back({value, at, ""});
            }
        }
        out_.commands.push_back(std::move(out));
    }

    void add(const YamlNode& node, const YamlNode* command, const YamlNode* arguments, std::int64_t copies) {
        CommandCall out;
        out.copies = copies;
        if (const YamlNode* image = node.find("image"); image != nullptr && image->kind == YamlNode::Kind::scalar) {
            out.words.push_back({image->scalar, place(image->mark), ""});
        }
        if (const YamlNode* environment = node.find("env"); environment != nullptr) {
            for (const YamlNode& entry : environment->items) {
                const YamlNode* key = entry.find("name");
                const YamlNode* value = entry.find("value");
                if (key != nullptr && value != nullptr) {
                    out.environment.push_back({key->scalar + "=" + value->scalar, place(key->mark), ""});
                }
            }
        }
        std::map<std::string, std::string> set;
        for (const CommandWord& word : out.environment) {
            const std::size_t equals = word.text.find('=');
            set[word.text.substr(0, equals)] = word.text.substr(equals + 1);
        }
        std::vector<CommandCall> scripts;
        for (const YamlNode* part : {command, arguments}) {
            if (part == nullptr) {
                continue;
            }
            if (part->kind == YamlNode::Kind::scalar) {  // Compose: a line as in a shell
                add_line(*part, out, scripts, set);
            }
            for (const YamlNode& item : part->items) {
                const bool script = item.scalar.find_first_of(" \n") != std::string::npos && !out.words.empty() &&
                                    is_shell(out.words.back().text);
                if (script) {
                    add_line(item, out, scripts, set);
                } else {
                    out.words.push_back({with_variables(item.scalar, set), place(item.mark), ""});
                }
            }
        }
        if (scripts.empty() && !out.words.empty()) {
            out_.commands.push_back(out);
        }
        for (CommandCall& one : scripts) {
            one.environment.insert(one.environment.begin(), out.environment.begin(), out.environment.end());
            one.copies = copies;
            out_.commands.push_back(std::move(one));
        }
    }

    // The words of a line go on those before it; a script of several commands stands for itself.
    void add_line(const YamlNode& node, CommandCall& out, std::vector<CommandCall>& scripts,
                  const std::map<std::string, std::string>& set) {
        CommandList script = read_shell(with_variables(node.scalar, set), name_, set);
        for (CommandCall& one : script.commands) {
            for (auto* words : {&one.words, &one.environment}) {
                for (CommandWord& word : *words) {
                    word.at = place(node.mark);
                }
            }
        }
        if (script.commands.size() == 1 && !(out.words.empty() || is_shell(out.words.back().text))) {
            auto& words = script.commands[0].words;
            out.words.insert(out.words.end(), words.begin(), words.end());
            return;
        }
        out_.files.merge(script.files);
        scripts.insert(scripts.end(), std::make_move_iterator(script.commands.begin()),
                       std::make_move_iterator(script.commands.end()));
    }

    // Bytes before a place of the file.
    [[nodiscard]] std::size_t place(const Mark& mark) const {
        std::size_t at = 0;
        for (int line = 1; line < mark.line && at < text_.size(); ++line) {
            at = std::min(text_.find('\n', at), text_.size() - 1) + 1;
        }
        return std::min(at + static_cast<std::size_t>(std::max(mark.column, 1)) - 1, text_.size());
    }

    const std::string& text_;
    const std::string& name_;
    CommandList out_;
};

}  // namespace

std::optional<CommandList> read_containers(const std::string& text, const std::string& name) {
    bool yaml = false;
    for (std::size_t start = 0; start < text.size() && !yaml;) {
        for (const char* key : {"apiVersion:", "kind:", "services:", "spec:", "containers:", "servingEngineSpec:",
                                "modelArtifacts:", "applications:", "llm_configs:", "resources:", "run: |"}) {
            yaml = yaml || text.compare(start, std::string(key).size(), key) == 0;
        }
        start = std::min(text.find('\n', start), text.size() - 1) + 1;
    }
    if (!yaml || text.find("\n```") != std::string::npos) {  // a page of Markdown may show manifests
        return std::nullopt;
    }
    return ContainerReader(text, name).read();
}

}  // namespace orrery::imports
