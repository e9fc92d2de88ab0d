// Fields as JSON, whole or as what differs from their defaults; and what of them has no effect.

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/fields.hpp"
#include "sim/config/given.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace orrery::config {

namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string in_quotes(const std::string& value) {
    const bool plain =
        std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c < '\x7f' && c != '"' && c != '\\'; });
    return plain ? '"' + value + '"' : text_of(value);
}

// A condition that does not hold.
struct Missing {
    std::string needs;
    Unmet unmet = Unmet::refused;
};

struct Entry;
using Entries = std::vector<Entry>;

// One field with its value.
struct Entry {
    enum class Kind { value, map, list, variant };
    std::string key;
    Kind kind = Kind::value;
    std::string text;       ///< JSON of a value, or the word of a variant
    bool required = false;  ///< written though it is as by default
    bool switched = false;  ///< a map whose presence turns something on
    bool present = true;    ///< of such a map
    std::optional<Missing> lacks;
    Entries entries;  ///< of a map or variant; the items of a list, each a map
    Entries usual;    ///< defaults of `entries` that follow from choices made
};

const Entry* find(const Entries* entries, const std::string& key) {
    if (entries == nullptr) {
        return nullptr;
    }
    const auto found = std::find_if(entries->begin(), entries->end(), [&](const Entry& one) { return one.key == key; });
    return found == entries->end() ? nullptr : &*found;
}

// Notes each field with its value, those of maps that are not there too.
class Recorder final : public Fields {
  public:
    Entry root;

    Recorder() { root.kind = Entry::Kind::map; }

    void integer(const Field& field, std::int64_t& value) override { add(field, std::to_string(value)); }
    void number(const Field& field, double& value) override { add(field, text_of(value)); }
    void boolean(const Field& field, bool& value) override { add(field, value ? "true" : "false"); }
    void text(const Field& field, std::string& value) override {
        if (!value.empty()) {
            add(field, in_quotes(value));
        }
    }
    void quantity(const Field& field, Dimension dimension, double& value) override {
        if (!std::isnan(value)) {
            add(field, in_quotes(format_quantity(value, dimension)));
        }
    }
    void sourced(const Field& field, Dimension dimension, Sourced<double>& value) override {
        if (value.how == kGivenInScenario) {
            // The line it stands on is no part of the scenario: what a run depends on stays when lines are added above.
            add(field, in_quotes(format_quantity(value.value, dimension)));
        } else if (!value.how.empty()) {
            add(field, "{\"value\":" + in_quotes(format_quantity(value.value, dimension)) +
                           ",\"how\":" + in_quotes(value.how) + ",\"source\":" + in_quotes(value.source) + '}');
        }
    }
    void choice(const Field& field, const std::vector<std::string>& names, std::size_t& index) override {
        ORRERY_ASSERT(index < names.size());
        add(field, in_quotes(names[index]));
    }
    void nested(const Field& field, const PresetKind*, bool* present,
                const std::function<void(Fields&)>& describe) override {
        Entry& entry = add(field, "");
        entry.kind = Entry::Kind::map;
        entry.switched = present != nullptr;
        entry.present = present == nullptr || *present;
        within(entry, [&] { describe(*this); });
    }
    void range(const Field& field, Dimension dimension, double& low, double& high) override {
        add(field,
            '[' + in_quotes(format_quantity(low, dimension)) + ',' + in_quotes(format_quantity(high, dimension)) + ']');
    }
    void variant(const Field& field, const std::vector<std::string>& names, std::size_t& index, bool& parameters,
                 const std::function<void(Fields&)>& describe) override {
        Entry& entry = add(field, in_quotes(names[index]));
        entry.kind = Entry::Kind::variant;
        entry.present = parameters;
        within(entry, [&] { describe(*this); });
    }
    void list(const Field& field, std::size_t& count,
              const std::function<void(Fields&, std::size_t)>& describe) override {
        Entry& entry = add(field, "");
        entry.kind = Entry::Kind::list;
        entry.entries.resize(count);
        for (std::size_t i = 0; i < count; ++i) {
            entry.entries[i].key = std::to_string(i);
            entry.entries[i].kind = Entry::Kind::map;
            entry.entries[i].required = true;
            within(entry.entries[i], [&] { describe(*this, i); });
        }
    }
    void when(bool holds, const std::string& needs, const std::function<void(Fields&)>& describe,
              Unmet unmet) override {
        const std::optional<Missing> outer = lacks_;
        if (!holds && (!lacks_ || (lacks_->unmet == Unmet::noted && unmet == Unmet::refused))) {
            lacks_ = Missing{needs, unmet};
        }
        describe(*this);
        lacks_ = outer;
    }
    void needs(const std::string& path, bool holds, const std::string& needs, Unmet unmet) override {
        if (holds) {
            return;
        }
        Entry* at = at_;
        for (const std::string_view key : split(path, '.')) {
            at = const_cast<Entry*>(find(&at->entries, std::string(key)));
            if (at == nullptr) {
                return;
            }
        }
        at->lacks = at->lacks ? at->lacks : Missing{needs, unmet};
    }
    void defaults(const std::function<void(Fields&)>& describe) override {
        Recorder usual;
        describe(usual);
        std::move(usual.root.entries.begin(), usual.root.entries.end(), std::back_inserter(at_->usual));
    }

  private:
    Entry& add(const Field& field, std::string text) {
        Entry& entry = at_->entries.emplace_back();
        entry.key = field.key;
        entry.text = std::move(text);
        entry.required = field.required;
        entry.lacks = lacks_;
        return entry;
    }
    template <class Describe>
    void within(Entry& entry, const Describe& describe) {
        Entry* const outer = std::exchange(at_, &entry);
        const std::optional<Missing> lacks = std::exchange(lacks_, std::nullopt);
        describe();
        ORRERY_ASSERT(at_ == &entry);
        at_ = outer;
        lacks_ = lacks;
    }

    Entry* at_ = &root;
    std::optional<Missing> lacks_;
};

// What an entry's own entries are by default.
const Entry* usual_of(const Entry& within, const Entries* usual, const std::string& key) {
    const Entry* own = find(&within.usual, key);
    return own != nullptr ? own : find(usual, key);
}

const Entries* entries_of(const Entry* entry) {
    return entry == nullptr ? nullptr : &entry->entries;
}

bool differs(const Entry& entry, const Entry* usual);

bool any_differs(const Entry& entry, const Entry* usual) {
    return std::any_of(entry.entries.begin(), entry.entries.end(),
                       [&](const Entry& one) { return differs(one, usual_of(entry, entries_of(usual), one.key)); });
}

bool differs(const Entry& entry, const Entry* usual) {
    switch (entry.kind) {
        case Entry::Kind::value:
            return entry.required || usual == nullptr || usual->text != entry.text;
        case Entry::Kind::map:
            return entry.switched ? entry.present && (usual == nullptr || !usual->present || any_differs(entry, usual))
                                  : entry.required || any_differs(entry, usual);
        case Entry::Kind::list:
            return !entry.entries.empty() || (usual != nullptr && !usual->entries.empty());
        case Entry::Kind::variant:
            return entry.required || usual == nullptr || usual->text != entry.text ||
                   (entry.present && any_differs(entry, usual));
    }
    return true;
}

// Writes entries as text: all that are there, or those alone that differ from `usual` and have an effect.
class Writer {
  public:
    explicit Writer(bool whole) : whole_(whole) {}

    void map(const Entry& entry, const Entry* usual, std::string out = "") {
        out_ += '{' + out;
        for (const Entry& one : entry.entries) {
            const Entry* other = usual_of(entry, entries_of(usual), one.key);
            const bool refused = one.lacks && one.lacks->unmet == Unmet::refused;
            if (whole_ ? one.present || !one.switched : differs(one, other) && !refused) {
                comma();
                out_ += '"' + one.key + "\":";
                value(one, other);
            }
        }
        out_ += '}';
    }
    [[nodiscard]] std::string take() { return std::move(out_); }

  private:
    void comma() { out_ += out_.back() == '{' || out_.back() == '[' ? "" : ","; }
    void value(const Entry& entry, const Entry* usual) {
        switch (entry.kind) {
            case Entry::Kind::value:
                out_ += entry.text;
                break;
            case Entry::Kind::map:
                map(entry, usual);
                break;
            case Entry::Kind::list:
                out_ += '[';
                for (const Entry& item : entry.entries) {
                    comma();
                    map(item, nullptr);
                }
                out_ += ']';
                break;
            case Entry::Kind::variant:
                if (entry.present && (whole_ ? !entry.entries.empty() : any_differs(entry, usual))) {
                    map(entry, usual, "\"kind\":" + entry.text);
                } else {
                    out_ += entry.text;
                }
                break;
        }
    }

    std::string out_;
    bool whole_;
};

bool is_override(const YamlNode& node) {
    return node.mark.file && node.mark.file->rfind("--set", 0) == 0;
}

bool has_override(const YamlNode& node) {
    return is_override(node) || std::any_of(node.items.begin(), node.items.end(), has_override) ||
           std::any_of(node.entries.begin(), node.entries.end(),
                       [](const YamlNode::Entry& entry) { return has_override(entry.value); });
}

// Looks for what a file says to no effect; what a preset says does not stand in the file.
class Search {
  public:
    WithoutEffect found;

    explicit Search(const YamlNode& root) : overridden_(has_override(root)) {}

    void map(const YamlNode& node, const Entry& entry, const Entry* usual, const std::string& prefix) {
        for (const Entry& one : entry.entries) {
            const YamlNode* given = node.kind == YamlNode::Kind::map ? node.find(one.key) : nullptr;
            const Entry* other = usual_of(entry, entries_of(usual), one.key);
            if (given == nullptr || given->kind == YamlNode::Kind::null || !differs(one, other)) {
                continue;
            }
            const std::string path = prefix + one.key;
            if (one.lacks) {
                say(*given, path, *one.lacks);
            }
            if (one.lacks && (one.lacks->unmet == Unmet::refused || one.kind == Entry::Kind::value)) {
                continue;
            }
            const bool outer = std::exchange(errors_only_, errors_only_ || one.lacks);
            if (one.kind == Entry::Kind::list) {
                for (std::size_t i = 0; i < std::min(one.entries.size(), given->items.size()); ++i) {
                    map(given->items[i], one.entries[i], nullptr, fmt::format("{}.{}.", path, i));
                }
            } else if (one.kind != Entry::Kind::value) {
                map(*given, one, other, path + '.');
            }
            errors_only_ = outer;
        }
    }

  private:
    void say(const YamlNode& node, const std::string& path, const Missing& lacks) {
        const std::string text = fmt::format("'{}' has no effect without {}", path, lacks.needs);
        if (lacks.unmet == Unmet::noted) {
            if (!errors_only_) {
                found.notes.push_back(text);
            }
        } else if (!overridden_ || has_override(node)) {
            found.errors.push_back(node.mark.error(text, ErrorCode::no_effect));
        }
    }

    bool overridden_;
    bool errors_only_ = false;  ///< inside of what has a note already
};

}  // namespace

std::string write_fields(const std::function<void(Fields&)>& describe) {
    Recorder recorder;
    describe(recorder);
    Writer writer(true);
    writer.map(recorder.root, nullptr);
    return writer.take();
}

std::string write_differences(const std::function<void(Fields&)>& describe, const std::function<void(Fields&)>& usual) {
    Recorder recorder;
    Recorder other;
    describe(recorder);
    usual(other);
    Writer writer(false);
    writer.map(recorder.root, &other.root);
    return writer.take();
}

WithoutEffect without_effect(const YamlNode& node, const std::function<void(Fields&)>& describe,
                             const std::function<void(Fields&)>& usual) {
    Recorder recorder;
    Recorder other;
    describe(recorder);
    usual(other);
    Search search(node);
    search.map(node, recorder.root, &other.root, "");
    return std::move(search.found);
}

}  // namespace orrery::config
