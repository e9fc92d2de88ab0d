#include "sim/config/yaml_tree.hpp"

#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"
#include "sim/base/text.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

namespace orrery::config {

namespace {

constexpr const char* kMerge = "<<";
constexpr std::size_t kMaxBytes = 16U << 20;
constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kMaxNodes = 1'000'000;  // after aliases are expanded
constexpr std::size_t kMaxText = 64U << 20;   // bytes of words, after aliases are expanded

struct Size {
    std::size_t nodes = 0;
    std::size_t text = 0;
};

void add_size(const YamlNode& node, Size& size) {
    ++size.nodes;
    size.text += node.scalar.size();
    for (const YamlNode& item : node.items) {
        add_size(item, size);
    }
    for (const YamlNode::Entry& entry : node.entries) {
        size.text += entry.key.size();
        add_size(entry.value, size);
    }
}

// Builds the tree from yaml-cpp's events, which keep positions, duplicates and aliases apart.
class TreeBuilder final : public YAML::EventHandler {
  public:
    TreeBuilder(const std::string& text, std::shared_ptr<const std::string> file)
        : text_(text), file_(std::move(file)) {}

    void OnDocumentStart(const YAML::Mark&) override {}
    void OnDocumentEnd() override {}
    void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { finish(make(mark), anchor); }

    void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
        const auto found = anchors_.find(anchor);
        if (found == anchors_.end()) {
            fail(mark, "an alias cannot refer to the value it is part of");
        }
        size_.nodes += found->second.second.nodes;
        size_.text += found->second.second.text;
        check_size(mark);
        finish(YamlNode(found->second.first), 0);
    }

    void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  const std::string& value) override {
        YamlNode node = make(mark);
        node.quoted = tag == "!";
        node.kind = !node.quoted && (value.empty() || value == "~" || value == "null") ? YamlNode::Kind::null
                                                                                       : YamlNode::Kind::scalar;
        node.scalar = value;
        if (node.quoted) {
            check_quote(mark);
        } else if (tag != "?" && !tag.empty()) {
            fail(mark, "tags such as '" + tag + "' are not used here");
        }
        finish(std::move(node), anchor);
    }

    void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                         YAML::EmitterStyle::value) override {
        open(mark, YamlNode::Kind::sequence, anchor);
    }
    void OnSequenceEnd() override { close(); }
    void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                    YAML::EmitterStyle::value) override {
        open(mark, YamlNode::Kind::map, anchor);
    }
    void OnMapEnd() override { close(); }

    std::vector<Diagnostic> errors;
    YamlNode root;

  private:
    struct Open {
        YamlNode node;
        YAML::anchor_t anchor;
        bool has_key = false;
        std::string key;
        Mark key_mark;
        std::unordered_map<std::string, int> lines;  ///< of the keys so far
    };

    [[nodiscard]] Mark mark_at(const YAML::Mark& mark) const { return Mark{file_, mark.line + 1, mark.column + 1}; }

    [[noreturn]] void fail(const YAML::Mark& mark, const std::string& text) {
        errors.push_back(mark_at(mark).error(text, ErrorCode::invalid_yaml));
        throw ConfigError(errors);
    }

    YamlNode make(const YAML::Mark& mark) {
        YamlNode node;
        node.mark = mark_at(mark);
        ++size_.nodes;
        check_size(mark);
        return node;
    }

    void check_size(const YAML::Mark& mark) {
        if (size_.nodes > kMaxNodes) {
            fail(mark, "the file expands to more than " + std::to_string(kMaxNodes) + " values (aliases of aliases?)");
        }
        if (size_.text > kMaxText) {
            fail(mark,
                 "the file expands to more than " + std::to_string(kMaxText >> 20U) + " MiB (aliases of long texts?)");
        }
    }

    // yaml-cpp accepts a quote that never closes: look for the closing one in the text.
    void check_quote(const YAML::Mark& mark) {
        const auto start = static_cast<std::size_t>(mark.pos);
        if (start >= text_.size() || (text_[start] != '"' && text_[start] != '\'')) {
            return;
        }
        const char quote = text_[start];
        for (std::size_t i = start + 1; i < text_.size(); ++i) {
            if (quote == '"' && text_[i] == '\\') {
                ++i;
            } else if (text_[i] == quote) {
                if (quote == '\'' && i + 1 < text_.size() && text_[i + 1] == '\'') {
                    ++i;
                    continue;
                }
                return;
            }
        }
        fail(mark, "this quote is never closed");
    }

    void open(const YAML::Mark& mark, YamlNode::Kind kind, YAML::anchor_t anchor) {
        if (stack_.size() >= kMaxDepth) {
            fail(mark, "nested deeper than " + std::to_string(kMaxDepth) + " levels");
        }
        YamlNode node = make(mark);
        node.kind = kind;
        stack_.push_back(Open{std::move(node), anchor, false, {}, {}, {}});
    }

    void close() {
        ORRERY_ASSERT(!stack_.empty() && !stack_.back().has_key);
        Open done = std::move(stack_.back());
        stack_.pop_back();
        if (done.lines.contains(kMerge)) {
            merge(done.node);
        }
        finish(std::move(done.node), done.anchor);
    }

    // `<<: *base` or `<<: [*one, *other]`: what a map has of other maps where it says nothing itself, the first of them first.
    void merge(YamlNode& map) {
        const auto key = std::find_if(map.entries.begin(), map.entries.end(),
                                      [](const YamlNode::Entry& entry) { return entry.key == kMerge; });
        ORRERY_ASSERT(key != map.entries.end());
        const YamlNode::Entry merged = std::move(*key);
        map.entries.erase(key);
        std::unordered_set<std::string> own;
        for (const YamlNode::Entry& entry : map.entries) {
            own.insert(entry.key);
        }
        const bool several = merged.value.kind == YamlNode::Kind::sequence;
        for (const YamlNode& other : several ? merged.value.items : std::vector<YamlNode>{merged.value}) {
            if (other.kind != YamlNode::Kind::map) {
                errors.push_back(merged.key_mark.error("'<<' takes a map, or a list of maps, such as '<<: *base'",
                                                       ErrorCode::wrong_type));
                return;
            }
            for (const YamlNode::Entry& entry : other.entries) {
                if (own.insert(entry.key).second) {
                    map.entries.push_back(entry);
                }
            }
        }
    }

    void finish(YamlNode node, YAML::anchor_t anchor) {
        if (anchor != 0) {
            Size size;
            add_size(node, size);
            anchors_[anchor] = {node, size};
        }
        if (stack_.empty()) {
            root = std::move(node);
            return;
        }
        Open& parent = stack_.back();
        if (parent.node.kind == YamlNode::Kind::sequence) {
            parent.node.items.push_back(std::move(node));
        } else if (!parent.has_key) {
            parent.has_key = true;
            parent.key_mark = node.mark;
            if (node.kind == YamlNode::Kind::sequence || node.kind == YamlNode::Kind::map) {
                errors.push_back(node.mark.error("a key must be a plain word", ErrorCode::wrong_type));
            }
            parent.key = node.scalar;
        } else {
            parent.has_key = false;
            const auto [first, fresh] = parent.lines.try_emplace(parent.key, node.mark.line);
            if (!fresh) {
                errors.push_back(parent.key_mark.error(
                    "duplicate key '" + parent.key + "' (first at line " + std::to_string(first->second) + ")",
                    ErrorCode::duplicate_key));
                return;
            }
            parent.node.entries.push_back(YamlNode::Entry{parent.key, parent.key_mark, std::move(node)});
        }
    }

    const std::string& text_;
    std::shared_ptr<const std::string> file_;
    std::vector<Open> stack_;
    std::map<YAML::anchor_t, std::pair<YamlNode, Size>> anchors_;
    Size size_;
};

// A tab in the indentation of the line where reading failed or of the one before, which YAML does not take for blanks.
std::optional<Diagnostic> tab_before(const std::string& text, const std::string& name, int failed) {
    int line = 0;
    for (const std::string_view one : split(text, '\n')) {
        const std::string_view indentation = one.substr(0, std::min(one.find_first_not_of(" \t"), one.size()));
        const std::size_t tab = indentation.find('\t');
        if (line >= failed - 1 && tab != std::string_view::npos && indentation.size() < one.size()) {
            return Diagnostic{name, line + 1, static_cast<int>(tab) + 1,
                              "YAML does not allow tabs for indentation: write spaces", ErrorCode::invalid_yaml};
        }
        if (++line > failed) {
            break;
        }
    }
    return std::nullopt;
}

void append_json_string(std::string& out, const std::string& text) {
    out += '"';
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            out += '\\';
        }
        out += c;
    }
    out += '"';
}

void append_canonical(std::string& out, const YamlNode& node) {
    switch (node.kind) {
        case YamlNode::Kind::null:
            out += "null";
            break;
        case YamlNode::Kind::scalar:
            append_json_string(out, node.scalar);
            break;
        case YamlNode::Kind::sequence:
            out += '[';
            for (const YamlNode& item : node.items) {
                append_canonical(out, item);
                out += ',';
            }
            out += ']';
            break;
        case YamlNode::Kind::map:
            out += '{';
            for (const YamlNode::Entry& entry : node.entries) {
                append_json_string(out, entry.key);
                out += ':';
                append_canonical(out, entry.value);
                out += ',';
            }
            out += '}';
            break;
    }
}

}  // namespace

const YamlNode* YamlNode::find(const std::string& key) const {
    for (const Entry& entry : entries) {
        if (entry.key == key) {
            return &entry.value;
        }
    }
    return nullptr;
}

YamlNode* YamlNode::find(const std::string& key) {
    return const_cast<YamlNode*>(std::as_const(*this).find(key));
}

YamlNode parse_yaml(const std::string& text, const std::string& name) {
    const auto file = std::make_shared<const std::string>(name);
    if (text.size() > kMaxBytes) {
        throw ConfigError(
            {Diagnostic{name, 0, 0, "larger than 16 MiB: not a configuration file", ErrorCode::invalid_yaml}});
    }
    if (text.find('\0') != std::string::npos) {
        throw ConfigError({Diagnostic{name, 0, 0, "contains a zero byte: not a text file", ErrorCode::invalid_yaml}});
    }
    TreeBuilder builder(text, file);
    try {
        std::istringstream stream(text);
        YAML::Parser parser(stream);
        if (!parser.HandleNextDocument(builder)) {
            throw ConfigError({Diagnostic{name, 1, 1, "the file is empty", ErrorCode::invalid_yaml}});
        }
        TreeBuilder rest(text, file);
        if (parser.HandleNextDocument(rest)) {
            builder.errors.push_back(
                rest.root.mark.error("a file holds one document; remove the '---'", ErrorCode::invalid_yaml));
        }
    } catch (const YAML::Exception& error) {
        builder.errors.push_back(tab_before(text, name, error.mark.line)
                                     .value_or(Diagnostic{name, error.mark.line + 1, error.mark.column + 1, error.msg,
                                                          ErrorCode::invalid_yaml}));
    }
    throw_if_any(builder.errors);
    if (builder.root.kind == YamlNode::Kind::null) {
        throw ConfigError({Diagnostic{name, 1, 1, "the file is empty", ErrorCode::invalid_yaml}});
    }
    return std::move(builder.root);
}

YamlNode load_yaml(const std::string& path) {
    // One byte more than may be: parse_yaml then says that it is too large, however large it is.
    return parse_yaml(start_of_input(path, kMaxBytes + 1), path);
}

// An entry of a list by its `name`, or by its number from 0 on; nullptr when there is none.
static YamlNode* find_item(YamlNode& list, const std::string& key) {
    for (std::size_t i = 0; i < list.items.size(); ++i) {
        const YamlNode* name = list.items[i].find("name");
        if ((name != nullptr && name->scalar == key) || std::to_string(i) == key) {
            return &list.items[i];
        }
    }
    return nullptr;
}

void apply_override(YamlNode& root, const std::string& assignment) {
    const auto equals = assignment.find('=');
    const auto bad = [&](const std::string& why) {
        throw ConfigError({Diagnostic{"--set " + assignment, 0, 0, why, ErrorCode::command_line}});
    };
    if (equals == std::string::npos || equals == 0) {
        bad("expected key.path=value");
    }
    YamlNode* at = &root;
    std::string path = assignment.substr(0, equals);
    const auto file = std::make_shared<const std::string>("--set " + assignment);
    for (std::size_t start = 0;;) {
        const auto dot = path.find('.', start);
        const std::string key = path.substr(start, dot == std::string::npos ? dot : dot - start);
        if (key.empty()) {
            bad("empty key in '" + path + "'");
        }
        if (at->kind == YamlNode::Kind::scalar) {
            // A preset name becomes a map that starts from this preset.
            YamlNode name = *at;
            at->kind = YamlNode::Kind::map;
            at->entries = {YamlNode::Entry{"preset", name.mark, name}};
            at->scalar.clear();
        } else if (at->kind == YamlNode::Kind::null) {
            at->kind = YamlNode::Kind::map;
        }
        YamlNode* next = at->kind == YamlNode::Kind::sequence ? find_item(*at, key) : at->find(key);
        if (next == nullptr && at->kind == YamlNode::Kind::sequence) {
            bad("the list of " + std::to_string(at->items.size()) + " has no entry of the name or number '" + key +
                "'");
        }
        if (next == nullptr) {
            YamlNode fresh;
            fresh.mark = Mark{file, 0, 0};
            at->entries.push_back(YamlNode::Entry{key, Mark{file, 0, 0}, fresh});
            next = &at->entries.back().value;
        }
        at = next;
        if (dot == std::string::npos) {
            break;
        }
        start = dot + 1;
    }
    const std::string value = assignment.substr(equals + 1);
    if (value.empty()) {
        bad("the value is missing");
    }
    *at = parse_yaml(value, "--set " + assignment);
}

std::string canonical_text(const YamlNode& node) {
    std::string out;
    append_canonical(out, node);
    return out;
}

}  // namespace orrery::config
