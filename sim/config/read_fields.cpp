#include "sim/config/fields.hpp"

#include "sim/config/given.hpp"
#include "sim/config/synonyms.hpp"
#include "sim/config/yaml_tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <set>

namespace orrery::config {

namespace {

// "file.yaml:12", without folders: a scenario resolves to the same wherever it lies; the text of a --set as it is.
std::string place_of(const Mark& mark) {
    if (!mark.file) {
        return {};
    }
    const std::string& file = *mark.file;
    return mark.line > 0 && file.rfind("--set", 0) != 0
               ? fmt::format("{}:{}", file.substr(file.find_last_of('/') + 1), mark.line)
               : file;
}

// Of any quantity in its base unit: a thousandth of a picosecond, and nothing else that is simulated is smaller.
constexpr double kSmallest = 1e-15;

std::string limits_text(const Field& field) {
    if (std::isfinite(field.min) && std::isfinite(field.max)) {
        return fmt::format("between {} and {}", field.min, field.max);
    }
    return std::isfinite(field.min) ? fmt::format("at least {}", field.min) : fmt::format("at most {}", field.max);
}

using Maps = std::vector<const YamlNode*>;

// Reads one map. Fields ask for their keys; what nobody asked for is an unknown key.
class Reader final : public Fields {
  public:
    /// `later`: maps that are read over this one.
    Reader(const YamlNode& node, const DataDirectory& data, std::vector<Diagnostic>& errors, bool partial,
           Origins* origins, std::string prefix, Maps later = {})
        : node_(node),
          data_(data),
          errors_(errors),
          partial_(partial),
          origins_(origins),
          prefix_(std::move(prefix)),
          later_(std::move(later)) {}

    void integer(const Field& field, std::int64_t& value) override {
        const YamlNode* node = scalar(field);
        if (node == nullptr) {
            return;
        }
        double number = 0;
        constexpr double kMostExact = 9e15;  // whole numbers up to here keep every digit, in JSON too
        const bool whole = parse_number(node->scalar, number) && number == std::floor(number);
        if (whole && std::abs(number) > kMostExact) {
            return fail(
                *node,
                fmt::format("'{}' must be at most 9e15 for every digit to count, not {}", field.key, node->scalar),
                ErrorCode::out_of_range);
        }
        if (!whole) {
            return fail(*node,
                        fmt::format("'{}' must be a whole number, not '{}'{}", field.key, node->scalar,
                                    number_hint(node->scalar)),
                        ErrorCode::wrong_type);
        }
        if (in_limits(field, *node, number)) {
            value = static_cast<std::int64_t>(number);
        }
    }

    void number(const Field& field, double& value) override {
        const YamlNode* node = scalar(field);
        if (node == nullptr) {
            return;
        }
        double number = 0;
        if (!parse_number(node->scalar, number)) {
            return fail(
                *node,
                fmt::format("'{}' must be a number, not '{}'{}", field.key, node->scalar, number_hint(node->scalar)),
                ErrorCode::wrong_type);
        }
        if (in_limits(field, *node, number)) {
            value = number;
        }
    }

    void boolean(const Field& field, bool& value) override {
        const YamlNode* node = scalar(field);
        if (node == nullptr) {
            return;
        }
        if (node->scalar != "true" && node->scalar != "false") {
            return fail(*node, fmt::format("'{}' must be true or false, not '{}'", field.key, node->scalar),
                        ErrorCode::wrong_type);
        }
        value = node->scalar == "true";
    }

    void text(const Field& field, std::string& value) override {
        if (const YamlNode* node = scalar(field)) {
            value = node->scalar;
        }
    }

    void table(const Field& field, const TableKind& kind, std::string& value) override {
        const YamlNode* node = scalar(field);
        if (node == nullptr) {
            return;
        }
        const std::vector<std::string> names = data_.names(kind);
        if (std::find(names.begin(), names.end(), node->scalar) == names.end()) {
            return fail(*node,
                        fmt::format("'{}': {} has no '{}'{}", field.key, kind.directory, node->scalar,
                                    did_you_mean(node->scalar, names)),
                        ErrorCode::unknown_name);
        }
        value = node->scalar;
    }

    void quantity(const Field& field, Dimension dimension, double& value) override {
        if (const YamlNode* node = scalar(field)) {
            read_quantity(field, *node, dimension, value);
        }
    }

    void sourced(const Field& field, Dimension dimension, Sourced<double>& value) override {
        const YamlNode* node = take(field);
        if (node == nullptr) {
            return;
        }
        if (node->kind == YamlNode::Kind::scalar) {
            if (read_quantity(field, *node, dimension, value.value)) {
                value.how = kGivenInScenario;
                value.source = place_of(node->mark);
            }
            return;
        }
        if (node->kind != YamlNode::Kind::map) {
            return fail(*node, fmt::format("'{}' must be a quantity or {{value, how, source}}", field.key),
                        ErrorCode::wrong_type);
        }
        Reader inner(*node, data_, errors_, false, nullptr, {});
        inner.quantity(Field{"value", "", true, field.min, field.max}, dimension, value.value);
        inner.text(Field{"how", "", true}, value.how);
        if (const YamlNode* how = node->find("how"); how != nullptr && how->kind == YamlNode::Kind::scalar) {
            static const std::vector<std::string> kHow = {"spec",    "measured",  "fitted",   "derived",
                                                          "assumed", "estimated", "recalled", kGivenInScenario};
            if (std::find(kHow.begin(), kHow.end(), how->scalar) == kHow.end()) {
                fail(*how,
                     fmt::format("'how' cannot be '{}'{}; it is one of {}", how->scalar,
                                 did_you_mean(how->scalar, kHow), fmt::join(kHow, ", ")),
                     ErrorCode::unknown_name);
            }
        }
        inner.text(Field{"source", "", true}, value.source);
        inner.finish();
    }

    void choice(const Field& field, const std::vector<std::string>& names, std::size_t& index) override {
        const YamlNode* node = scalar(field);
        if (node == nullptr) {
            return;
        }
        const auto found = std::find(names.begin(), names.end(), node->scalar);
        if (found == names.end()) {
            kind_unknown_ = kind_unknown_ || std::string_view(field.key) == "kind";
            return fail(*node,
                        fmt::format("'{}' cannot be '{}'{}; it is one of {}", field.key, node->scalar,
                                    did_you_mean(node->scalar, names), fmt::join(names, ", ")),
                        ErrorCode::unknown_name);
        }
        index = static_cast<std::size_t>(found - names.begin());
    }

    void nested(const Field& field, const PresetKind* preset, bool* present,
                const std::function<void(Fields&)>& describe) override {
        const YamlNode* node = take(field);
        if (node == nullptr) {
            return;
        }
        // `none` says that what the section turns on is off, also where the file or a preset has the section.
        const bool can_be_off = present != nullptr && preset == nullptr && field.alone == nullptr;
        if (can_be_off && node->kind == YamlNode::Kind::scalar && node->scalar == "none") {
            *present = false;
            return;
        }
        if (present != nullptr) {
            *present = true;
        }
        // A preset begins anew: what an earlier one said of the section must not show through where the later is silent.
        if (preset != nullptr && begins_anew(field.key)) {
            return;
        }
        if (node->kind == YamlNode::Kind::scalar && preset != nullptr) {
            read_preset(*preset, *node, false, describe, field.key, later_at(field.key));
            return;
        }
        YamlNode of_one;
        if (node->kind == YamlNode::Kind::scalar && field.alone != nullptr) {
            of_one = map_of(*node, field.alone);
            node = &of_one;
        }
        if (preset == nullptr && field.alone != nullptr && node->kind == YamlNode::Kind::map) {
            of_one = name_as(*node, field.alone);
            node = &of_one;
        }
        if (node->kind != YamlNode::Kind::map) {
            return fail(*node,
                        fmt::format("'{}' must be a map{}", field.key,
                                    preset != nullptr        ? fmt::format(" or the name of a {} preset", preset->what)
                                    : field.alone != nullptr ? fmt::format(" or its '{}' alone", field.alone)
                                    : can_be_off             ? ", or 'none'"
                                                             : ""),
                        ErrorCode::wrong_type);
        }
        bool based = false;
        Maps later = later_at(field.key);
        if (const YamlNode* name = preset != nullptr ? node->find("preset") : nullptr) {
            later.push_back(node);
            read_preset(*preset, *name, true, describe, field.key, later);
            later.pop_back();
            based = true;
        }
        Reader inner(*node, data_, errors_, based || partial_, origins_, prefix_ + field.key + ".", std::move(later));
        if (preset != nullptr) {
            inner.known_.insert("preset");
        }
        describe(inner);
        inner.finish();
    }

    void range(const Field& field, Dimension dimension, double& low, double& high) override {
        const YamlNode* node = take(field);
        if (node == nullptr) {
            return;
        }
        if (node->kind != YamlNode::Kind::sequence || node->items.size() != 2 ||
            node->items[0].kind != YamlNode::Kind::scalar || node->items[1].kind != YamlNode::Kind::scalar) {
            return fail(*node, fmt::format("'{}' must be a list of two quantities", field.key), ErrorCode::wrong_type);
        }
        double found[2] = {low, high};
        if (!read_quantity(field, node->items[0], dimension, found[0]) ||
            !read_quantity(field, node->items[1], dimension, found[1])) {
            return;
        }
        if (found[0] > found[1]) {
            return fail(*node, fmt::format("'{}' must not fall from its first to its second value", field.key),
                        ErrorCode::out_of_range);
        }
        low = found[0];
        high = found[1];
    }

    void variant(const Field& field, const std::vector<std::string>& names, std::size_t& index, bool& parameters,
                 const std::function<void(Fields&)>& describe) override {
        const YamlNode* node = node_.find(field.key);
        if (node == nullptr || node->kind != YamlNode::Kind::map) {
            return choice(field, names, index);
        }
        (void)take(field);
        parameters = true;
        const YamlNode named = name_as(*node, "kind");
        Reader inner(named, data_, errors_, partial_, origins_, prefix_ + field.key + ".");
        inner.choice(Field{"kind", field.doc}, names, index);
        describe(inner);
        inner.finish();
    }

    void list(const Field& field, std::size_t& count,
              const std::function<void(Fields&, std::size_t)>& describe) override {
        const YamlNode* node = take(field);
        if (node == nullptr) {
            return;
        }
        if (node->kind != YamlNode::Kind::sequence) {
            return fail(*node, fmt::format("'{}' must be a list of maps", field.key), ErrorCode::wrong_type);
        }
        count = node->items.size();
        for (std::size_t i = 0; i < count; ++i) {
            const YamlNode* item = &node->items[i];
            YamlNode of_one;
            if (item->kind == YamlNode::Kind::scalar && field.alone != nullptr) {
                of_one = map_of(*item, field.alone);
                item = &of_one;
            }
            if (item->kind != YamlNode::Kind::map) {
                fail(*item, fmt::format("an entry of '{}' must be a map", field.key), ErrorCode::wrong_type);
                continue;
            }
            Reader inner(*item, data_, errors_, partial_, origins_, fmt::format("{}{}.{}.", prefix_, field.key, i));
            describe(inner, i);
            inner.finish();
        }
    }

    void know(const std::string& key) { known_.insert(key); }

    /// Reports the keys that nobody asked for; of a kind that there is none of, nobody knows the keys.
    void finish() {
        if (kind_unknown_) {
            return;
        }
        constexpr std::size_t kGuessed = 50;  // guessing takes time, and more errors than that are not shown
        for (const YamlNode::Entry& entry : node_.entries) {
            if (!known_.contains(entry.key)) {
                errors_.push_back(entry.key_mark.error(
                    fmt::format("unknown key '{}'{}", entry.key, errors_.size() < kGuessed ? guess(entry.key) : ""),
                    ErrorCode::unknown_key));
            }
        }
    }

  private:
    // What an unknown key may have been meant for: a key of this level or below by another tool's word for it, one of this
    // level by its spelling, one elsewhere, or any of this level.
    [[nodiscard]] std::string guess(const std::string& word) {
        const std::vector<const char*> meant = keys_meant(word);
        for (const std::string key : meant) {
            for (std::size_t start = 0; start <= prefix_.size(); ++start) {
                const bool begins = start == 0 || prefix_[start - 1] == '.';
                const std::string level = prefix_.substr(start);
                if (begins && key.rfind(level, 0) == 0 &&
                    known_.contains(key.substr(level.size(), key.find('.', level.size()) - level.size()))) {
                    return fmt::format(" (did you mean '{}'?)", key.substr(level.size()));
                }
            }
        }
        const std::vector<std::string> names(known_.begin(), known_.end());
        if (std::string near = did_you_mean(word, names); !near.empty()) {
            return near;
        }
        if (!meant.empty()) {
            return fmt::format(" (its place is {})", fmt::join(meant, " or "));
        }
        if (listed_) {
            return "";  // the keys of this level stand beside its first such key
        }
        listed_ = true;
        constexpr std::size_t kListed = 40;
        const std::vector<std::string> listed(
            names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(kListed, names.size())));
        return listed.empty()
                   ? ""
                   : fmt::format("; the keys here are {}{}", fmt::join(listed, ", "),
                                 names.size() > kListed ? fmt::format(" and {} more", names.size() - kListed) : "");
    }

    static std::string did_you_mean(const std::string& word, const std::vector<std::string>& names) {
        const std::string nearest = nearest_name(word, names);
        return nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest);
    }

    // The map that a value stands for alone.
    static YamlNode map_of(const YamlNode& value, const char* key) {
        YamlNode out;
        out.kind = YamlNode::Kind::map;
        out.mark = value.mark;
        out.entries.push_back({key, value.mark, value});
        return out;
    }

    /// What to write instead of a text that is nearly a number: 010, 4:1, 0.5/s, 5 %, 32k.
    static std::string number_hint(const std::string& text) {
        if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0123456789") == std::string::npos) {
            return "; leading zeros look octal, write it without";
        }
        const std::size_t end = std::min(text.find_first_not_of("+-.0123456789eE"), text.size());
        double number = 0;
        if (end == text.size() || !parse_number(text.substr(0, end), number)) {
            return "";
        }
        const std::string rest = text.substr(std::min(text.find_first_not_of(' ', end), text.size()));
        if (rest == "%") {
            return fmt::format("; write {:.12g}", number / 100);
        }
        if (rest == "k" || rest == "K") {
            return fmt::format("; write {:.12g} or {:.12g}", number * 1000, number * 1024);
        }
        return fmt::format("; write {} alone, without '{}'", text.substr(0, end), rest);
    }

    void fail(const YamlNode& node, const std::string& text, ErrorCode code) {
        errors_.push_back(node.mark.error(text, code));
    }

    const YamlNode* take(const Field& field) {
        known_.insert(field.key);
        const YamlNode* node = node_.find(field.key);
        if (node == nullptr || node->kind == YamlNode::Kind::null) {
            if (field.required && !partial_) {
                errors_.push_back(
                    node_.mark.error(fmt::format("'{}' is missing: {}", field.key, field.doc), ErrorCode::missing_key));
            }
            return nullptr;
        }
        if (origins_ != nullptr && node->kind == YamlNode::Kind::scalar && node->mark.file) {
            (*origins_)[prefix_ + field.key] = place_of(node->mark);
        }
        return node;
    }

    const YamlNode* scalar(const Field& field) {
        const YamlNode* node = take(field);
        if (node != nullptr && node->kind != YamlNode::Kind::scalar) {
            fail(*node, fmt::format("'{}' must be a single value", field.key), ErrorCode::wrong_type);
            return nullptr;
        }
        return node;
    }

    bool in_limits(const Field& field, const YamlNode& node, double number) {
        if (number >= field.min && number <= field.max) {
            return true;
        }
        fail(node, fmt::format("'{}' must be {}, not {}", field.key, limits_text(field), node.scalar),
             ErrorCode::out_of_range);
        return false;
    }

    bool read_quantity(const Field& field, const YamlNode& node, Dimension dimension, double& value) {
        std::string problem;
        ErrorCode code = ErrorCode::wrong_unit;
        double number = 0;
        if (!parse_quantity(node.scalar, dimension, number, problem, &code)) {
            fail(node, fmt::format("'{}': {}", field.key, problem), code);
            return false;
        }
        if (number != 0 && std::abs(number) < kSmallest) {
            fail(node,
                 fmt::format("'{}' of {} is too small to be meant: write 0, or a value from {:g} {} on", field.key,
                             node.scalar, kSmallest, base_unit(dimension)),
                 ErrorCode::out_of_range);
            return false;
        }
        if (number < field.min || number > field.max) {
            fail(node,
                 fmt::format("'{}' must be between {} and {}, not {}", field.key, pretty_quantity(field.min, dimension),
                             pretty_quantity(field.max, dimension), node.scalar),
                 ErrorCode::out_of_range);
            return false;
        }
        value = number;
        return true;
    }

    // What the maps that are read later say under a key.
    [[nodiscard]] Maps later_at(const char* key) const {
        Maps found;
        for (const YamlNode* map : later_) {
            if (const YamlNode* at = map->find(key); at != nullptr && at->kind != YamlNode::Kind::null) {
                found.push_back(at);
            }
        }
        return found;
    }

    [[nodiscard]] bool begins_anew(const char* key) const {
        const Maps later = later_at(key);
        return std::any_of(later.begin(), later.end(), [](const YamlNode* at) {
            return at->kind == YamlNode::Kind::scalar || at->find("preset") != nullptr;
        });
    }

    // Of a file that 'orrery import' wrote: a scenario with this part in its cluster, or this part alone under its name. Null: neither.
    static const YamlNode* part_of(const YamlNode& file, const PresetKind& kind) {
        const YamlNode* inside = file.find(kind.what);
        if (const YamlNode* cluster = file.find("cluster"); inside == nullptr && cluster != nullptr) {
            inside = cluster->find(kind.what);
        }
        const bool whole = file.find("orrery") != nullptr || file.entries.size() == 1;
        return inside != nullptr && whole && inside->kind == YamlNode::Kind::map ? inside : nullptr;
    }

    // A preset by its name, or a file of the user's own, which lies beside the one that names it; null after an error.
    std::shared_ptr<const YamlNode> find_preset(const PresetKind& kind, const YamlNode& name) {
        if (name.scalar.ends_with(".yaml")) {
            const std::string from = name.mark.file && name.mark.file->rfind("--", 0) != 0 ? *name.mark.file : "";
            const std::filesystem::path path = std::filesystem::path(from).parent_path() / name.scalar;
            std::error_code ignored;
            if (!std::filesystem::is_regular_file(path, ignored)) {
                fail(name, fmt::format("no file '{}' describes a {}", path.string(), kind.what),
                     ErrorCode::unreadable_file);
                return nullptr;
            }
            try {
                auto file = std::make_shared<const YamlNode>(load_yaml(path.string()));
                if (const YamlNode* inside = part_of(*file, kind); inside != nullptr) {
                    return std::make_shared<const YamlNode>(*inside);
                }
                if (file->kind == YamlNode::Kind::map) {
                    return file;
                }
                fail(name, fmt::format("'{}' is no map of a {}", name.scalar, kind.what), ErrorCode::wrong_type);
            } catch (const ConfigError& error) {
                errors_.insert(errors_.end(), error.diagnostics().begin(), error.diagnostics().end());
            }
            return nullptr;
        }
        const std::vector<std::string> names = data_.names(kind);
        if (std::find(names.begin(), names.end(), name.scalar) == names.end()) {
            std::string hint = did_you_mean(name.scalar, names);
            if (kind.part != nullptr) {
                const std::vector<std::string> parts = data_.names(PresetKind{kind.part, kind.part_directory});
                if (std::find(parts.begin(), parts.end(), name.scalar) != parts.end()) {
                    hint = fmt::format(", which is what a {} may have: {}: {{{}: {}, ...}}", kind.what, kind.what,
                                       kind.part, name.scalar);
                }
            }
            std::string more;
            if (const std::size_t slash = name.scalar.rfind('/'); slash != std::string::npos && hint.empty()) {
                // "Qwen/Qwen3-32B", as models are called elsewhere
                std::string last = name.scalar.substr(slash + 1);
                std::transform(last.begin(), last.end(), last.begin(),
                               [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
                hint = did_you_mean(last, names);
            }
            if (std::string_view(kind.what) == "model") {
                more = ", and 'orrery import hf-config config.json' describes one of Hugging Face";
            }
            fail(name,
                 fmt::format("unknown {} preset '{}'{}; 'orrery list {}s' shows them all{}", kind.what, name.scalar,
                             hint, kind.what, more),
                 ErrorCode::unknown_name);
            return nullptr;
        }
        return data_.preset(kind, name.scalar);
    }

    // An override below a name has made a map of it that starts from a preset of this name (apply_override): where there are no
    // presets, the name is that of `key`.
    static YamlNode name_as(YamlNode node, const char* key) {
        for (YamlNode::Entry& entry : node.entries) {
            const Mark& own = entry.value.mark;
            const bool made =
                entry.key == "preset" && entry.key_mark.line == own.line && entry.key_mark.column == own.column;
            if (made && node.find(key) == nullptr) {
                entry.key = key;
            }
        }
        return node;
    }

    // A preset may start from another of its kind, and that from none.
    bool read_preset(const PresetKind& kind, const YamlNode& name, bool partial,
                     const std::function<void(Fields&)>& describe, const char* key, Maps later, bool is_base = false) {
        const std::shared_ptr<const YamlNode> read = find_preset(kind, name);
        if (read == nullptr) {
            return false;
        }
        const YamlNode& file = *read;
        const YamlNode* base = file.find("preset");
        if (base != nullptr && is_base) {
            fail(*base, fmt::format("'{}' starts from a preset and cannot be what another starts from", name.scalar),
                 ErrorCode::contradiction);
            return false;
        }
        if (base != nullptr) {
            Maps after_base = later;
            after_base.push_back(&file);
            if (!read_preset(kind, *base, partial, describe, key, std::move(after_base), true)) {
                return false;
            }
        }
        Reader inner(file, data_, errors_, partial || base != nullptr, origins_, prefix_ + key + ".", std::move(later));
        inner.known_.insert("preset");
        describe(inner);
        inner.finish();
        return true;
    }

    const YamlNode& node_;
    const DataDirectory& data_;
    std::vector<Diagnostic>& errors_;
    bool partial_;
    Origins* origins_;
    std::string prefix_;
    bool listed_ = false;  ///< an error has named the keys of this level
    bool kind_unknown_ = false;
    Maps later_;
    std::set<std::string> known_;
};

}  // namespace

void read_fields(const YamlNode& node, const DataDirectory& data, std::vector<Diagnostic>& errors,
                 const std::function<void(Fields&)>& describe, Origins* origins, const char* besides) {
    if (node.kind != YamlNode::Kind::map) {
        errors.push_back(node.mark.error("expected a map of keys and values", ErrorCode::wrong_type));
        return;
    }
    Reader reader(node, data, errors, false, origins, {});
    describe(reader);
    if (besides != nullptr) {
        reader.know(besides);
    }
    reader.finish();
}

}  // namespace orrery::config
