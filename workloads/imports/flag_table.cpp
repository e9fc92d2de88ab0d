#include "workloads/imports/flag_table.hpp"

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "sim/config/yaml_tree.hpp"
#include "sim/record/json_text.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <map>

namespace orrery::imports {

namespace {

std::string flag_name(std::string name) {
    std::replace(name.begin(), name.end(), '_', '-');
    return name;
}

bool looks_like_flag(const std::string& word) {
    const std::size_t dashes = word.rfind("--", 0) == 0 ? 2 : 1;
    return word.size() > dashes && word[0] == '-' && std::isalpha(static_cast<unsigned char>(word[dashes])) != 0;
}

FlagRow row_of(const std::string& line, const Mark& mark) {
    const std::vector<std::string_view> cells = split(line, ',');
    if (cells.size() < 4) {
        throw ConfigError({mark.error("a row has four columns: names,value,key,meaning")});
    }
    FlagRow row;
    for (const std::string_view name : split(cells[0], ' ')) {
        row.names.push_back(std::isupper(static_cast<unsigned char>(name[0])) != 0 ? std::string(name)
                                                                                   : flag_name(std::string(name)));
    }
    constexpr std::array<std::string_view, 5> kValues = {"none", "boolean", "word", "words", "json"};
    const auto value = std::find(kValues.begin(), kValues.end(), cells[1]);
    if (value == kValues.end()) {
        throw ConfigError({mark.error(fmt::format("'{}' is none of {}", cells[1], fmt::join(kValues, ", ")))});
    }
    row.value = static_cast<FlagValue>(value - kValues.begin());
    row.effect = cells[2] == "-" ? FlagEffect::none : cells[2] == "!" ? FlagEffect::not_modelled : FlagEffect::key;
    row.key = row.effect == FlagEffect::key ? std::string(cells[2]) : "";
    row.meaning = line.substr(static_cast<std::size_t>(cells[3].data() - line.data()));
    if (row.effect != FlagEffect::key && row.meaning.empty()) {
        throw ConfigError({mark.error("a flag that sets no key says why")});
    }
    return row;
}

// A flag with an effect whose name is nearly this one; empty for short names, which are near to many.
std::string near_name(const std::string& name, const FlagTable& table) {
    constexpr std::size_t kShort = 6;
    std::vector<std::string> names;
    for (const FlagRow& row : table.rows()) {
        if (row.effect == FlagEffect::key && name.size() > kShort) {
            names.insert(names.end(), row.names.begin(), row.names.end());
        }
    }
    return nearest_name(name, names);
}

// A variable without a value; parameters of a script or a function by their sign.
std::string parameter_name(const std::string& unset) {
    const bool number = !unset.empty() && unset.find_first_not_of("0123456789") == std::string::npos;
    return (number ? "$" : "") + printable(unset, 60);
}

// "true" and "false" in the spellings of Python, YAML and shells; none for anything else.
std::optional<bool> truth_of(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text == "true" || text == "1" || text == "yes" || text == "on"    ? std::optional(true)
           : text == "false" || text == "0" || text == "no" || text == "off" ? std::optional(false)
                                                                             : std::nullopt;
}

}  // namespace

FlagTable::FlagTable(const std::vector<std::string>& names, const DataDirectory& data) {
    for (const std::string& name : names) {
        const std::string path = data.path(fmt::format("workloads/data/flags/{}.csv", name));
        std::ifstream file(path);
        if (!file) {
            throw ConfigError({Diagnostic{path, 0, 0, "cannot be read", ErrorCode::unreadable_file}});
        }
        const auto mark_name = std::make_shared<const std::string>(path);
        int number = 0;
        for (std::string line; std::getline(file, line);) {
            if (++number > 1 && !line.empty() && line[0] != '#') {
                rows_.push_back(row_of(line, Mark{mark_name, number, 1}));
            }
        }
    }
}

const FlagRow* FlagTable::find(const std::string& name, std::vector<std::string>& choices) const {
    const FlagRow* found = nullptr;
    for (const FlagRow& row : rows_) {
        bool begins = false;
        for (const std::string& known : row.names) {
            if (known == name) {
                choices.clear();
                return &row;
            }
            if (name.size() > 1 && known.rfind(name, 0) == 0) {
                begins = true;
                choices.push_back(known);
            }
        }
        found = begins ? &row : found;
    }
    const bool one = choices.size() == 1 ||
                     (found != nullptr && std::all_of(choices.begin(), choices.end(), [&](const std::string& choice) {
                          return std::find(found->names.begin(), found->names.end(), choice) != found->names.end();
                      }));
    if (one) {
        choices.clear();
        return found;
    }
    return nullptr;
}

GivenFlags::GivenFlags(const FlagTable& table, const CommandCall& command, std::size_t first, const std::string& file,
                       std::string_view text)
    : file_(file), text_(text), start_(command.words.empty() ? 0 : command.words[0].at) {
    std::vector<CommandWord> environment = command.environment;
    // docker run -e NAME=value
    std::vector<CommandWord> before = command.outer;
    before.insert(before.end(), command.words.begin(), command.words.begin() + static_cast<std::ptrdiff_t>(first));
    for (std::size_t i = 0; i + 1 < before.size(); ++i) {
        if (before[i].text == "-e" || before[i].text == "--env") {
            environment.push_back(before[i + 1]);
        }
        if (before[i].text.rfind("--env=", 0) == 0) {
            environment.push_back(before[i]);
            environment.back().text.erase(0, std::string_view("--env=").size());
        }
    }
    for (const CommandWord& word : environment) {
        GivenFlag flag;
        flag.written = word.text.substr(0, word.text.find('='));
        flag.value = word.text.substr(std::min(flag.written.size() + 1, word.text.size()));
        flag.unset = word.unset;
        flag.at = word.at;
        flag.variable = true;
        std::vector<std::string> choices;
        flag.row = table.find(flag.written, choices);
        flags_.push_back(std::move(flag));
    }
    for (std::size_t i = first; i < command.words.size();) {
        i = add(table, command.words, i);
    }
}

// Adds the word at `i`, with its values where it is a flag, and gives the place of the next.
std::size_t GivenFlags::add(const FlagTable& table, const std::vector<CommandWord>& words, std::size_t i) {
    const std::string& word = words[i].text;
    if (!looks_like_flag(word)) {
        // Pages on the web print two hyphens as one dash.
        for (const char* dash : {"\xE2\x80\x93", "\xE2\x80\x94", "\xE2\x88\x92"}) {
            if (word.rfind(dash, 0) == 0) {
                throw ConfigError(
                    {diagnostic_at(file_, text_, words[i].at,
                                   fmt::format("'{}' begins with a printed dash, where a flag begins with '--'",
                                               printable(word, 60)))});
            }
        }
        words_.push_back(words[i]);
        return i + 1;
    }
    GivenFlag flag;
    flag.at = words[i].at;
    flag.unset = words[i].unset;
    const std::size_t equals = std::min(word.find('='), word.size());
    flag.written = word.substr(0, equals);
    std::string name = flag.written.substr(word[1] == '-' ? 2 : 1);
    std::vector<std::string> choices;
    const std::size_t dot = std::min(name.find('.'), name.size());
    flag.row = dot < name.size() ? table.find(flag_name(name), choices) : nullptr;  // rows of parts
    if (flag.row == nullptr) {
        choices.clear();
        flag.part = name.substr(std::min(dot + 1, name.size()));
        name = flag_name(name.substr(0, dot));
        flag.row = table.find(name, choices);
    }
    bool negated = false;
    if (flag.row == nullptr && choices.empty() && name.rfind("no-", 0) == 0) {
        flag.row = table.find(name.substr(3), choices);
        negated = flag.row != nullptr && flag.row->value == FlagValue::boolean;
        flag.row = negated ? flag.row : nullptr;
        choices.clear();
    }
    if (flag.row == nullptr && name.size() == 2 && name[0] == 'O') {  // -O3
        flag.row = table.find("O", choices);
        flag.value = name.substr(1);
    }
    if (!choices.empty()) {
        throw ConfigError({diagnostic_at(
            file_, text_, flag.at,
            fmt::format("'{}' begins several flags: --{}", printable(flag.written, 60), fmt::join(choices, ", --")))});
    }
    if (flag.row == nullptr) {
        flag.near = near_name(name, table);
    }
    const FlagValue takes = flag.row == nullptr ? FlagValue::words : flag.row->value;
    std::size_t next = i + 1;
    const auto value_at = [&](std::size_t k) { return k < words.size() && !looks_like_flag(words[k].text); };
    const auto take = [&] {
        flag.value += (flag.value.empty() ? "" : " ") + words[next].text;
        flag.unset = flag.unset.empty() ? words[next].unset : flag.unset;
        ++next;
    };
    flag.negated = negated;
    if (negated) {
        flag.value = "false";
    } else if (equals < word.size()) {
        flag.value = word.substr(equals + 1);
    } else if (!flag.value.empty()) {
        // -O3 has its value
    } else if (takes == FlagValue::boolean) {
        if (value_at(next) && truth_of(words[next].text)) {
            take();
        }
    } else if (takes == FlagValue::words) {
        while (value_at(next) && (flag.row != nullptr || flag.value.empty())) {
            take();
        }
    } else if (takes != FlagValue::none) {
        if (!value_at(next)) {
            throw ConfigError({diagnostic_at(file_, text_, flag.at, fmt::format("{} needs a value", flag.written))});
        }
        take();
    }
    flags_.push_back(std::move(flag));
    return next;
}

// What has an effect needs its value.
void GivenFlags::check_values() const {
    std::vector<Diagnostic> errors;
    for (const GivenFlag& flag : flags_) {
        const bool matters = flag.row != nullptr && flag.row->effect == FlagEffect::key && flag.row->key != "model";
        if (matters && !flag.unset.empty()) {
            errors.push_back(diagnostic_at(
                file_, text_, flag.at,
                fmt::format("{} needs {}, which has no value: write it, or set the variable before the command",
                            flag.written, parameter_name(flag.unset))));
        }
    }
    if (!errors.empty()) {
        throw ConfigError(errors);
    }
}

void GivenFlags::add_file(const FlagTable& table, const std::string& yaml, const std::string& name, std::size_t at) {
    const YamlNode root = parse_yaml(yaml, name);
    const auto add_map = [&](const auto& self, const YamlNode& map, const std::string& before) -> void {
        for (const YamlNode::Entry& entry : map.entries) {
            GivenFlag flag;
            flag.written = before + entry.key;
            flag.at = at;
            std::vector<std::string> choices;
            flag.row = table.find(flag_name(flag.written), choices);
            flag.row = choices.empty() ? flag.row : nullptr;
            if (flag.row == nullptr && !before.empty()) {  // part of a value in JSON
                flag.row = table.find(flag_name(before.substr(0, before.find('.'))), choices);
                flag.part = flag.written.substr(before.find('.') + 1);
            }
            if (entry.value.kind == YamlNode::Kind::map) {
                self(self, entry.value, flag.written + ".");
                continue;
            }
            flag.value = entry.value.kind == YamlNode::Kind::scalar ? entry.value.scalar : canonical_text(entry.value);
            flags_.insert(flags_.begin(), flag);  // flags of the command go before those of the file
        }
    };
    if (root.kind != YamlNode::Kind::map) {
        throw ConfigError({root.mark.error("must be a map of flags and their values")});
    }
    add_map(add_map, root, "");
}

const GivenFlag* GivenFlags::last(const std::string& key) const {
    const auto found = std::find_if(flags_.rbegin(), flags_.rend(), [&](const GivenFlag& flag) {
        return flag.row != nullptr && flag.row->effect == FlagEffect::key && flag.row->key == key;
    });
    return found == flags_.rend() ? nullptr : &*found;
}

std::string GivenFlags::signature() const {
    std::map<std::string, std::string> all;  // of what is given several times the last
    for (const GivenFlag& flag : flags_) {
        if (flag.row != nullptr && flag.row->effect == FlagEffect::key) {
            all[flag.row->key + "." + flag.part] = flag.value;
        }
    }
    std::string out;
    for (const auto& [key, value] : all) {
        out += key + "=" + value + "\n";
    }
    return out;
}

const GivenFlag* GivenFlags::use(const std::string& key) {
    used_.insert(key);
    return last(key);
}

std::string GivenFlags::text(const std::string& key) {
    const GivenFlag* flag = use(key);
    return flag == nullptr ? "" : flag->value;
}

std::optional<std::int64_t> GivenFlags::whole(const std::string& key, std::int64_t most, bool zero) {
    const GivenFlag* flag = use(key);
    if (flag == nullptr || flag->value == "auto" || flag->value == "None" || flag->value == "none" ||
        flag->value == "null" || flag->value == "-1" || (zero && flag->value == "0")) {
        return std::nullopt;
    }
    std::string digits = flag->value;
    double factor = 1;
    constexpr std::array<std::pair<char, double>, 6> kFactors = {
        {{'k', 1e3}, {'K', 1024}, {'m', 1e6}, {'M', 1048576}, {'g', 1e9}, {'G', 1073741824}}};
    for (const auto& [letter, of] : kFactors) {
        if (!digits.empty() && digits.back() == letter) {
            digits.pop_back();
            factor = of;
            break;
        }
    }
    double number = 0;
    const bool read = parse_number(digits, number);
    number = std::round(number * factor * 1e6) / 1e6;
    if (!read || number != std::floor(number) || number < 1 || number > static_cast<double>(most)) {
        throw ConfigError({error(key, fmt::format("{} must be a whole number from 1 to {}, not '{}'", flag->written,
                                                  most, printable(flag->value, 100)))});
    }
    return static_cast<std::int64_t>(number);
}

std::optional<double> GivenFlags::number(const std::string& key) {
    const GivenFlag* flag = use(key);
    if (flag == nullptr || flag->value == "inf" || flag->value == "auto" || flag->value == "None") {
        return std::nullopt;
    }
    double number = 0;
    if (!parse_number(flag->value, number) || number < 0) {
        throw ConfigError({error(
            key, fmt::format("{} must be a number from 0, not '{}'", flag->written, printable(flag->value, 100)))});
    }
    return number;
}

std::string GivenFlags::keep_first(const std::string& key) {
    const GivenFlag* flag = last(key);
    const std::size_t end = flag == nullptr ? std::string::npos : flag->value.find_first_of(" ,");
    if (end == std::string::npos || end == 0) {
        return "";
    }
    GivenFlag& kept = flags_[static_cast<std::size_t>(flag - flags_.data())];
    const std::string all = printable(kept.value, 60);
    kept.value.erase(end);
    return fmt::format("{}, the first of {} {}", kept.value, kept.written, all);
}

bool GivenFlags::on(const std::string& key) {
    const GivenFlag* flag = use(key);
    return flag != nullptr && truth_of(flag->value).value_or(true);
}

bool GivenFlags::off(const std::string& key) {
    const GivenFlag* flag = use(key);
    return flag != nullptr && !truth_of(flag->value).value_or(true);
}

std::string GivenFlags::part(const std::string& key, const std::string& name) {
    std::string out;
    used_.insert(key);
    for (const GivenFlag& flag : flags_) {
        if (flag.row == nullptr || flag.row->effect != FlagEffect::key || flag.row->key != key) {
            continue;
        }
        if (!flag.part.empty()) {
            out = flag_name(flag.part) == flag_name(name) ? flag.value : out;
            continue;
        }
        // <name> is a place to fill in.
        std::string text = flag.value;
        for (std::size_t i = text.find(": <"); i != std::string::npos; i = text.find(": <", i + 1)) {
            const std::size_t end = text.find('>', i);
            if (end != std::string::npos) {
                text.replace(i, end + 1 - i, ": \"" + text.substr(i + 2, end - i - 1) + "\"");
            }
        }
        require_shallow_json(text, file_);
        nlohmann::json json;
        try {
            json = nlohmann::json::parse(text);
        } catch (const nlohmann::json::exception&) {
            throw ConfigError({diagnostic_at(file_, text_, flag.at,
                                             fmt::format("{} must be a map in JSON, in single quotes, not '{}'",
                                                         flag.written, printable(flag.value, 100)))});
        }
        if (json.is_object() && json.contains(name)) {
            out = json[name].is_string() ? json[name].get<std::string>() : json[name].dump();
        }
    }
    return out;
}

Diagnostic GivenFlags::error(const std::string& key, const std::string& problem) const {
    const GivenFlag* flag = last(key);
    return diagnostic_at(file_, text_, flag == nullptr ? start_ : flag->at, problem);
}

std::vector<std::pair<std::string, std::string>> GivenFlags::plain_keys() {
    std::vector<std::pair<std::string, std::string>> out;
    std::vector<std::string> keys;
    for (const GivenFlag& flag : flags_) {
        const bool plain_key = flag.row != nullptr && flag.row->effect == FlagEffect::key &&
                               flag.row->key.rfind("engine.", 0) == 0 &&
                               (!used_.contains(flag.row->key) || plain_.contains(flag.row->key));
        if (plain_key && std::find(keys.begin(), keys.end(), flag.row->key) == keys.end()) {
            keys.push_back(flag.row->key);
        }
    }
    for (const std::string& key : keys) {
        plain_.insert(key);
        if (const auto value = whole(key)) {
            out.emplace_back(key, std::to_string(*value));
        }
    }
    return out;
}

void GivenFlags::add_before(const GivenFlags& other) {
    flags_.insert(flags_.begin(), other.flags_.begin(), other.flags_.end());
}

void GivenFlags::report(Imported& out, bool variables) const {
    constexpr std::size_t kShown = 40;
    std::size_t understood = 0;
    for (const GivenFlag& flag : flags_) {
        const bool cut = flag.value.size() > kShown;
        const std::string value = printable(flag.value.substr(0, kShown)) + (cut ? "..." : "");
        const std::string shown =
            printable(flag.written, kShown) + (flag.value.empty() || flag.negated ? "" : " " + value);
        if (flag.row == nullptr) {
            const auto of_engine = [&](const char* prefix) { return flag.written.rfind(prefix, 0) == 0; };
            constexpr std::array<const char*, 6> kEngines = {"VLLM_", "SGLANG_", "SGL_", "TRTLLM_", "TLLM_", "NCCL_"};
            if (!flag.variable || (variables && std::any_of(kEngines.begin(), kEngines.end(), of_engine))) {
                out.notes.left_out(
                    fmt::format("{}, which is not understood{}", shown,
                                flag.near.empty() ? "" : fmt::format("; did you mean --{}?", flag.near)));
            }
            continue;
        }
        ++understood;
        const FlagRow& row = *flag.row;
        if (row.effect == FlagEffect::not_modelled) {
            out.notes.left_out(fmt::format("{}, which is not modelled: {}", shown, row.meaning));
        } else if (row.effect == FlagEffect::none) {
            out.facts.push_back({shown, "no effect: " + row.meaning});
        } else if (!used_.contains(row.key)) {
            out.facts.push_back({shown, "no effect here: " + (row.meaning.empty() ? row.key : row.meaning)});
        } else {
            out.facts.push_back({shown, row.meaning.empty() ? row.key : row.meaning});
        }
    }
    out.notes.read("flags", understood);
}

}  // namespace orrery::imports
