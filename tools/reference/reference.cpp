#include "tools/reference/reference.hpp"

#include "sim/config/synonyms.hpp"
#include "sim/record/metric_table.hpp"
#include "tools/driver/expect_key.hpp"
#include "tools/driver/kind.hpp"
#include "tools/sweep/sweep_spec.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

namespace orrery::reference {

namespace {

constexpr const char* kSweep = "sweep";

// The path of the section that a key stands in; empty for the top.
std::string section_of(const std::string& path) {
    const auto dot = path.rfind('.');
    return dot == std::string::npos ? "" : path.substr(0, dot);
}

std::string last_of(const std::string& path) {
    return path.substr(path.rfind('.') + 1);
}

using Examples = std::map<std::string, std::string>;

void collect(const YamlNode& node, const std::string& path, Examples& out) {
    if (node.kind == YamlNode::Kind::scalar) {
        out.emplace(path, node.quoted ? "\"" + node.scalar + "\"" : node.scalar);
    }
    for (const YamlNode::Entry& entry : node.entries) {
        collect(entry.value, path.empty() ? entry.key : path + "." + entry.key, out);
    }
    for (const YamlNode& item : node.items) {
        if (item.kind == YamlNode::Kind::map) {
            collect(item, path + "[]", out);
        }
    }
}

// What the shipped scenarios of a kind write for each key, in the order of their names.
Examples shipped_examples(const std::string& kind, const DataDirectory& data) {
    std::vector<std::filesystem::path> files;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(data.path("scenarios"), ignored)) {
        if (entry.path().extension() == ".yaml" && entry.path().filename() != "expected.yaml") {
            files.push_back(entry.path());
        }
    }
    std::sort(files.begin(), files.end());
    Examples out;
    for (const std::filesystem::path& file : files) {
        const YamlNode root = load_yaml(file.string());
        const YamlNode* found = root.find("kind");
        if (found != nullptr && found->scalar == kind) {
            collect(root, "", out);
        }
    }
    return out;
}

// Sweeps are described by their schema alone.
std::vector<KeyReference> sweep_reference() {
    const auto schema = nlohmann::ordered_json::parse(sweep_schema());
    std::vector<KeyReference> rows;
    for (const auto& [key, property] : schema["properties"].items()) {
        KeyReference row;
        row.path = key;
        row.doc = property.value("description", "type of the file");
        const auto type = property.find("type");
        row.type = type == property.end() ? "" : type->is_string() ? type->get<std::string>() : "";
        row.type = row.type == "object"   ? "keys"
                   : row.type == "array"  ? "list"
                   : row.type == "string" ? "text"
                                          : "value";
        row.example = property.contains("const") ? nlohmann::ordered_json(property["const"]).dump() : "";
        row.example.erase(std::remove(row.example.begin(), row.example.end(), '"'), row.example.end());
        const auto& required = schema["required"];
        row.required = std::find(required.begin(), required.end(), key) != required.end();
        rows.push_back(std::move(row));
    }
    return rows;
}

// `quote` stands around names.
std::string value_text(const KeyReference& row, const DataDirectory* data, const std::string& quote = "`") {
    std::vector<std::string> parts = {row.type};
    if (!row.choices.empty()) {
        std::vector<std::string> names;
        for (const auto& choice : row.choices) {
            names.push_back(data == nullptr ? quote + choice.first + quote : choice.first);
        }
        parts[0] += fmt::format(" {}", fmt::join(names, ", "));
    }
    if (!row.presets.empty() && data == nullptr) {
        parts[0] += fmt::format(" in {0}{1}{0}", quote, row.presets);
    }
    if (!row.range.empty()) {
        parts.push_back(row.range);
    }
    if (row.or_keys) {
        parts.emplace_back(row.presets.empty() ? "or keys with it as kind" : "or keys");
    }
    return fmt::format("{}", fmt::join(parts, ", "));
}

// Presets are YAML, tables are fits, and sets of tables are folders.
std::vector<std::string> preset_names(const KeyReference& row, const DataDirectory& data) {
    for (const char* extension : {".yaml", ".fit", ""}) {
        std::vector<std::string> names = data.names(TableKind{row.presets.c_str(), extension});
        if (!names.empty()) {
            return names;
        }
    }
    return {};
}

std::string wrapped(const std::string& head, const std::vector<std::string>& words) {
    constexpr std::size_t kWidth = 100;
    std::string out = head;
    std::size_t column = head.size();
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (column + words[i].size() + 2 > kWidth) {
            out += "\n" + std::string(head.size(), ' ');
            column = head.size();
        }
        out += words[i] + (i + 1 < words.size() ? ", " : "");
        column += words[i].size() + 2;
    }
    return out + "\n";
}

std::string described(const std::string& kind, const KeyReference& row, const DataDirectory& data) {
    std::string out =
        fmt::format("{} (kind: {}){}\n  {}\n\n", row.path, kind, row.required ? ", required" : "", row.doc);
    out += fmt::format("  value    {}\n", value_text(row, &data));
    if (!row.units.empty()) {
        out += wrapped("  units    ", row.units);
    }
    if (!row.presets.empty()) {
        out += wrapped("  presets  ", preset_names(row, data));
    }
    if (!row.otherwise.empty()) {
        out += fmt::format("  default  {}\n", row.otherwise);
    }
    if (!row.policy.empty()) {
        out += fmt::format("  only     with kind: {}\n", row.policy);
    }
    if (!row.needs.empty()) {
        out += fmt::format("  needs    {}\n", row.needs);
    }
    if (!row.example.empty()) {
        out += fmt::format("  example  {}: {}\n", last_of(row.path), row.example);
    }
    for (const auto& [name, help] : row.choices) {
        if (!help.empty()) {
            out += fmt::format("\n  {:<18} {}", name, help);
        }
    }
    return out.ends_with('\n') ? out : out + "\n";
}

std::string key_lines(const std::vector<KeyReference>& rows, const std::string& section) {
    std::string out;
    for (const KeyReference& row : rows) {
        if (section_of(row.path) == section) {
            out += fmt::format("  {:<22} {}{}{}\n", last_of(row.path) + (row.section ? ":" : ""), row.doc,
                               row.required ? " (required)" : "",
                               row.policy.empty() ? "" : fmt::format(" (kind: {})", row.policy));
        }
    }
    return out;
}

ConfigError no_such_key(const std::string& kind, const std::string& key, const std::vector<KeyReference>& rows) {
    std::vector<std::string> paths;
    for (const KeyReference& row : rows) {
        paths.push_back(row.path);
    }
    std::string hint;
    for (const std::string meant : keys_meant(key)) {
        if (hint.empty() && std::find(paths.begin(), paths.end(), meant) != paths.end()) {
            hint = fmt::format("; it is '{}' here", meant);
        }
    }
    std::vector<std::string> same;
    for (const std::string& path : paths) {
        if (last_of(path) == key && same.size() < 8) {
            same.push_back(path);
        }
    }
    if (hint.empty() && !same.empty()) {
        hint = fmt::format("; there is {}", fmt::join(same, ", "));
    }
    if (const std::string near = hint.empty() ? nearest_name(key, paths) : ""; !near.empty()) {
        hint = fmt::format(" (did you mean '{}'?)", near);
    }
    return ConfigError(fmt::format("kind {} has no key '{}'{}", kind, key,
                                   hint.empty() ? fmt::format("; 'orrery help {}' lists them", kind) : hint),
                       ErrorCode::unknown_name);
}

// Its keys are metrics, which `orrery run` names; fields describe all others.
KeyReference expect_reference(const KindRow& kind) {
    KeyReference row;
    row.path = kExpect;
    row.doc = kExpectDoc;
    row.type = "map of metrics to bounds";
    row.example = fmt::format("{{{}: \"< 10 s\"}}", kind.headline);  // the headline of every kind is a time
    return row;
}

}  // namespace

std::vector<std::string> reference_kinds() {
    std::vector<std::string> kinds = scenario_kind_names();
    kinds.emplace_back(kSweep);
    return kinds;
}

std::vector<KeyReference> reference_of_kind(const std::string& kind, const DataDirectory& data) {
    std::vector<KeyReference> rows;
    if (kind == kSweep) {
        rows = sweep_reference();
    } else {
        const KindRow* found = find_kind(kind);
        ORRERY_ASSERT(found != nullptr);
        Scenario scenario = scenario_of(*found);
        rows = reference_of([&](Fields& fields) { describe(fields, scenario); });
        // A job has the keys of its own kind, which have a reference of their own.
        std::erase_if(rows, [](const KeyReference& row) { return row.path.rfind("jobs[].scenario.", 0) == 0; });
        rows.push_back(expect_reference(*found));
    }
    const Examples examples = shipped_examples(kind, data);
    for (KeyReference& row : rows) {
        const auto own = examples.find(row.path);
        const auto inner = examples.find(row.path + ".kind");
        if (own != examples.end()) {
            row.example = own->second;
        } else if (row.section && inner != examples.end()) {
            row.example = fmt::format("{{kind: {}}}", inner->second);
        } else if (!row.presets.empty() && row.example.empty()) {
            const std::vector<std::string> names = preset_names(row, data);
            row.example = names.empty() ? "" : names.front();
        }
    }
    return rows;
}

std::string help_of_key(const std::string& kind, const std::string& key, const DataDirectory& data) {
    const std::vector<KeyReference> rows = reference_of_kind(kind, data);
    if (key.empty()) {
        return fmt::format(
            "kind: {}\n\n{}\n'orrery help {} KEY' tells more of one, such as {}; scenarios/REFERENCE.md has all.\n",
            kind, key_lines(rows, ""), kind, rows[rows.size() / 2].path);
    }
    const auto found = std::find_if(rows.begin(), rows.end(), [&](const KeyReference& row) { return row.path == key; });
    if (found == rows.end()) {
        throw no_such_key(kind, key, rows);
    }
    const std::string keys = key_lines(rows, key) + key_lines(rows, key + "[]");
    return described(kind, *found, data) + (keys.empty() ? "" : "\nkeys:\n" + keys);
}

namespace {

std::string cell(const std::string& text) {
    std::string out;
    for (const char c : text) {
        out += c == '|' ? "\\|" : std::string(1, c);
    }
    return out;
}

// What stands behind the meaning of a key: the choice that it belongs to, what it needs, and where it is.
std::string limits_text(const KeyReference& row, const std::string& kinds, const char* quote) {
    std::string out = row.required ? " (required)" : "";
    out += row.policy.empty() ? "" : fmt::format(" (with {0}kind: {1}{0})", quote, row.policy);
    out += row.needs.empty() ? "" : fmt::format("; no effect without {}", row.needs);
    return out + (kinds.empty() ? "" : fmt::format(" ({})", kinds));
}

std::string markdown_row(KeyReference row, const std::string& kinds) {
    const std::string value = value_text(row, nullptr);
    const std::string star = std::exchange(row.required, false) ? " *" : "";
    return fmt::format("| `{}`{} | {}{} | {} | {} | {} |\n", last_of(row.path), star, cell(row.doc),
                       cell(limits_text(row, kinds, "`")), cell(value),
                       row.otherwise.empty() ? "" : "`" + cell(row.otherwise) + "`",
                       row.example.empty() ? "" : "`" + cell(row.example) + "`");
}

std::string policies(const KeyReference& row) {
    std::string out;
    for (const auto& [name, help] : row.choices) {
        if (!help.empty()) {
            out += fmt::format("- `{}`: {}\n", name, help);
        }
    }
    return out.empty() ? out : fmt::format("\n`{}` is one of\n\n{}", last_of(row.path), out);
}

// A key with the kinds of scenario that have it.
struct KindsRow {
    KeyReference row;
    std::vector<std::string> kinds;
};

// The keys of one section in all kinds that have it.
struct Section {
    std::string path;  ///< empty: the top of a file
    std::string doc;
    std::vector<std::string> kinds;
    std::vector<KindsRow> rows;

    void add(const std::string& kind, const KeyReference& row) {
        const auto same = std::find_if(rows.begin(), rows.end(), [&](const KindsRow& one) {
            KeyReference other = row;
            other.example = one.row.example;
            return one.row == other;
        });
        if (same == rows.end()) {
            rows.push_back({row, {kind}});
        } else {
            same->kinds.push_back(kind);
        }
    }
    // Kinds of a key that not all kinds with this section have.
    [[nodiscard]] std::string kinds_of(const KindsRow& one) const {
        return one.kinds == kinds ? "" : fmt::format("kind {}", fmt::join(one.kinds, ", "));
    }
};

// The sections of some kinds, each once, in the order in which they first appear.
std::vector<Section> sections_of(const std::vector<std::string>& kinds, const DataDirectory& data) {
    std::vector<Section> sections;
    const auto section_at = [&](const std::string& path) -> Section& {
        const auto found =
            std::find_if(sections.begin(), sections.end(), [&](const Section& one) { return one.path == path; });
        return found != sections.end() ? *found : sections.emplace_back(Section{path, "", {}, {}});
    };
    for (const std::string& kind : kinds) {
        const std::vector<KeyReference> rows = reference_of_kind(kind, data);
        for (const KeyReference& row : rows) {
            Section& section = section_at(section_of(row.path));
            if (section.kinds.empty() || section.kinds.back() != kind) {
                section.kinds.push_back(kind);
            }
            section.add(kind, row);
        }
        for (const KeyReference& row : rows) {
            if (row.section) {
                Section& section = section_at(row.type == "list of maps" ? row.path + "[]" : row.path);
                section.doc = section.doc.empty() ? row.doc : section.doc;
            }
        }
    }
    std::erase_if(sections, [](const Section& one) { return one.rows.empty(); });
    return sections;
}

std::string markdown_table(const Section& section) {
    std::string table;
    std::string lists;
    for (const KindsRow& one : section.rows) {
        table += markdown_row(one.row, section.kinds_of(one));
        lists += policies(one.row);
    }
    return "| key | meaning | value | default | example |\n|---|---|---|---|---|\n" + table + lists;
}

// What the metrics of summaries mean, which `expect`, baselines and tables of sweeps name.
std::string metrics_table() {
    std::string out =
        "\n## Metrics\n\n"
        "Metrics of summaries, which `expect`, baselines and tables of sweeps name. Latencies have quantiles "
        "(`ttft_s.p99`); a metric of a job has its name in front (`train.mfu`). Unit 1 is a share or a count. `orrery "
        "help METRIC` explains one.\n\n"
        "| metric | unit | better | meaning |\n|---|---|---|---|\n";
    for (const MetricRow& row : metric_table()) {
        const char* better = row.better == Better::lower ? "lower" : row.better == Better::higher ? "higher" : "";
        out += fmt::format("| `{}` | {} | {} | {} |\n", row.name, row.unit, better, cell(row.meaning));
    }
    return out;
}

std::string units_table() {
    std::string out = "| value | units |\n|---|---|\n";
    for (const auto& [name, dimension] :
         {std::pair{"time", Dimension::time}, std::pair{"size", Dimension::bytes}, std::pair{"rate", Dimension::rate},
          std::pair{"FLOP rate", Dimension::flops}, std::pair{"frequency", Dimension::frequency},
          std::pair{"power", Dimension::power}, std::pair{"share", Dimension::fraction}}) {
        out += fmt::format("| {} | {} |\n", name, fmt::join(unit_names(dimension), ", "));
    }
    return out;
}

}  // namespace

std::string roff(const std::string& text) {
    std::string out;
    for (const char c : text) {
        out += c == '\\' ? std::string("\\e") : c == '-' ? std::string("\\-") : std::string(1, c);
    }
    return out.rfind('.', 0) == 0 || out.rfind('\'', 0) == 0 ? "\\&" + out : out;
}

namespace {

std::string roff_rows(const Section& section) {
    std::string out;
    for (const KindsRow& one : section.rows) {
        const KeyReference& row = one.row;
        out += fmt::format(".TP\n.B {}\n{}\n", roff(last_of(row.path)),
                           roff(row.doc + limits_text(row, section.kinds_of(one), "")));
        const auto add = [&](const char* name, const std::string& text) {
            out += text.empty() ? "" : fmt::format(".br\n{}\n", roff(fmt::format("{}: {}", name, text)));
        };
        add("value", value_text(row, nullptr, ""));
        add("units", fmt::format("{}", fmt::join(row.units, ", ")));
        add("default", row.otherwise);
        add("example", row.example.empty() ? "" : fmt::format("{}: {}", last_of(row.path), row.example));
        for (const auto& [name, help] : row.choices) {
            add(name.c_str(), help);
        }
    }
    return out;
}

}  // namespace

std::string reference_manual(const DataDirectory& data, const std::string& version) {
    std::string out = fmt::format(".TH ORRERY 5 \"\" \"orrery {}\" \"File Formats\"\n", roff(version));
    out += ".SH NAME\norrery \\- scenarios of the simulator of AI clusters\n.SH DESCRIPTION\n";
    out +=
        "A scenario is a YAML file; its key kind says which keys it has besides. A section with a preset is written as "
        "its name (model: llama\\-3\\-8b), as keys, or as preset: and the keys to change. Quantities have units, and "
        "bits are not bytes.\n";
    for (const auto& [title, kinds] :
         {std::pair{"SCENARIOS", scenario_kind_names()}, {"SWEEPS", std::vector<std::string>{kSweep}}}) {
        out += fmt::format(".SH {}\n", title);
        for (const Section& section : sections_of(kinds, data)) {
            const std::string in = kinds.size() > 1 && section.kinds != kinds
                                       ? fmt::format(" (kind {})", fmt::join(section.kinds, ", "))
                                       : "";
            out += section.path.empty()
                       ? roff_rows(section)
                       : fmt::format(".SS {}\n{}\n{}", roff(section.path), roff(section.doc + in), roff_rows(section));
        }
    }
    return out + ".SH SEE ALSO\n.BR orrery (1)\n";
}

std::string reference_markdown(const DataDirectory& data) {
    std::string out =
        "# Reference of the scenario language\n\n"
        "Written by `orrery help reference` from the descriptions that also read scenarios; `orrery help KIND KEY` "
        "shows one key.\n"
        "A key with * is required. A section stands here once, with the kinds of scenario that have it; a key that "
        "only "
        "some of these have names them. Examples are from the scenarios beside this file, where one has the key.\n"
        "A section with a preset is written as its name (`model: llama-3-8b`), as keys, or as `preset:` and the keys "
        "to change.\n\n"
        "Quantities have units, and bits are not bytes:\n\n" +
        units_table();
    for (const auto& [title, kinds] :
         {std::pair{"Scenarios", scenario_kind_names()}, {"Sweeps", std::vector<std::string>{kSweep}}}) {
        out += fmt::format("\n## {}\n", title);
        for (const Section& section : sections_of(kinds, data)) {
            if (!section.path.empty()) {
                out += fmt::format("\n### `{}`\n\n{}. In kind {}.\n", section.path, section.doc,
                                   fmt::join(section.kinds, ", "));
            }
            out += "\n" + markdown_table(section);
        }
    }
    return out + metrics_table();
}

}  // namespace orrery::reference
