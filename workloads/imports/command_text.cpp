#include "workloads/imports/command_text.hpp"

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "workloads/imports/shell_script.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace orrery::imports {

namespace {

std::string plain(std::string flag) {
    std::replace(flag.begin(), flag.end(), '_', '-');
    return flag;
}

// "--flag" and "-tp", but not "-1".
bool is_flag(const std::string& word) {
    return word.size() > 1 && word[0] == '-' &&
           std::isalpha(static_cast<unsigned char>(word[word[1] == '-' && word.size() > 2 ? 2 : 1])) != 0;
}

}  // namespace

bool CommandText::has(const std::string& flag) {
    const auto found = flags_.find(plain(flag));
    if (found == flags_.end()) {
        return false;
    }
    used_.insert(found->first);
    return true;
}

std::string CommandText::text(const std::vector<std::string>& flags) {
    for (const std::string& flag : flags) {
        if (has(flag)) {
            return flags_.at(plain(flag));
        }
    }
    return "";
}

std::optional<std::int64_t> CommandText::whole(const std::vector<std::string>& flags, double most) {
    for (const std::string& flag : flags) {
        if (!has(flag)) {
            continue;
        }
        const std::string value = flags_.at(plain(flag));
        double number = 0;
        if (!parse_number(value, number) || number != std::floor(number) || number < 1 || number > most) {
            throw ConfigError(
                {error({flag}, fmt::format("--{} must be a whole number from 1 to {:.0f}, not '{}'{}", flag, most,
                                           printable(value, 100),
                                           value[0] == '$' ? ", which the script does not set (--variables)" : ""))});
        }
        return static_cast<std::int64_t>(number);
    }
    return std::nullopt;
}

std::int64_t CommandText::degree(const std::vector<std::string>& flags) {
    return whole(flags, 65536).value_or(1);
}

Diagnostic CommandText::error(const std::vector<std::string>& flags, const std::string& problem) const {
    for (const std::string& flag : flags) {
        if (const auto place = places_.find(plain(flag)); place != places_.end()) {
            return diagnostic_at(name_, text_, place->second, problem);
        }
    }
    return {name_, 1, 1, problem, ErrorCode::malformed_trace};
}

void CommandText::count(ImportNotes& notes) const {
    notes.read("flags", used_.size());
    constexpr std::size_t kNamed = 40;
    std::size_t named = 0;
    for (const auto& [flag, value] : flags_) {
        if (!used_.contains(flag)) {
            notes.left_out(named++ < kNamed ? "--" + printable(flag, 60) : std::string("further flags"));
        }
    }
}

CommandText CommandText::of_script(const std::string& text, std::string name, const std::string& given) {
    std::map<std::string, std::string> environment;
    for (const std::string_view one : split(std::string_view(given), ' ')) {
        const std::size_t equals = one.find('=');
        if (!one.empty() && (equals == std::string_view::npos || equals == 0)) {
            throw ConfigError(
                fmt::format("--variables takes NAME=VALUE, and 1=VALUE for $1, not '{}'", printable(one, 100)),
                ErrorCode::command_line);
        }
        if (!one.empty()) {
            environment[std::string(one.substr(0, equals))] = one.substr(equals + 1);
        }
    }
    CommandText out;
    out.name_ = std::move(name);
    out.text_ = text;
    CommandList script = read_shell(text, out.name_, environment);
    const auto flags_in = [](const std::vector<CommandWord>& command) {
        return std::count_if(command.begin(), command.end(),
                             [](const CommandWord& word) { return is_flag(word.text); });
    };
    // A script prepares data and starts other programs too; the run itself has the most flags. The last of several alike counts, as
    // what prints the command comes before it.
    std::vector<CommandWord> chosen;
    for (const CommandCall& command : script.commands) {
        std::vector<CommandWord> words;
        for (const std::vector<CommandWord>* more : {&command.outer, &command.words}) {
            for (const CommandWord& word : *more) {
                // A quoted pair ("--flag value"), as in arrays.
                const bool pair = word.text.rfind('-', 0) == 0 && word.text.find_first_of(" \t\n") != std::string::npos;
                const std::vector<CommandWord> parts = pair || word.text.find(" --") != std::string::npos
                                                           ? split_words(word)
                                                           : std::vector<CommandWord>{word};
                words.insert(words.end(), parts.begin(), parts.end());
            }
        }
        if (flags_in(words) > 0 && flags_in(words) >= flags_in(chosen)) {
            chosen = std::move(words);
        }
    }
    // Directives and variables that no command takes come first, so that the command has the last word.
    std::vector<CommandWord> words = std::move(script.directives);
    for (const std::vector<CommandWord>* more : {&script.unused, &chosen}) {
        words.insert(words.end(), more->begin(), more->end());
    }
    std::string flag;
    std::set<std::string> of_yaml;
    for (const CommandWord& word : words) {
        if (!is_flag(word.text)) {
            if (flag.empty()) {
                out.words_.push_back(word.text);
            } else {
                out.values_[flag].push_back(word.text);
            }
            continue;
        }
        const std::size_t equals = std::min(word.text.find('='), word.text.size());
        flag = plain(word.text.substr(0, equals));
        flag.erase(0, flag.find_first_not_of('-'));
        if (flag.back() == ':') {  // "--flag: value", as Megatron-LM's test cases have it in YAML
            flag.pop_back();
            of_yaml.insert(flag);
        }
        out.places_[flag] = word.at;
        out.values_[flag].clear();
        if (equals < word.text.size()) {
            out.values_[flag].push_back(word.text.substr(equals + 1));
        }
    }
    std::erase_if(out.values_, [&](const auto& entry) {
        return of_yaml.contains(entry.first) && entry.second == std::vector<std::string>{"false"};
    });
    for (const auto& [known, values] : out.values_) {
        out.flags_[known] = values.empty() ? "" : values.front();
    }
    if (out.flags_.empty()) {
        throw ConfigError({Diagnostic{
            out.name_, 1, 1, "expected a command with flags such as --tensor-model-parallel-size 8, and found none",
            ErrorCode::malformed_trace}});
    }
    out.unsure_ = std::move(script.unsure);
    out.unsure_.insert(out.unsure_.end(), script.loops.begin(), script.loops.end());
    return out;
}

CommandText CommandText::of_flags(const std::vector<Flag>& flags, const std::string& text, std::string name) {
    CommandText out;
    out.name_ = std::move(name);
    out.text_ = text;
    for (const Flag& flag : flags) {
        const std::string key = plain(flag.name);
        out.flags_[key] = flag.values.empty() ? "" : flag.values.front();
        out.values_[key] = flag.values;
        out.places_[key] = flag.at;
    }
    return out;
}

static std::vector<std::string_view> names_in(const FlagGroup& group) {
    return split(std::string_view(group.flags), ' ');
}

void CommandText::complete(const std::vector<FlagGroup>& groups) {
    std::vector<std::string> known;
    for (const FlagGroup& group : groups) {
        for (const std::string_view flag : names_in(group)) {
            known.emplace_back(flag);
        }
    }
    std::sort(known.begin(), known.end());
    known.erase(std::unique(known.begin(), known.end()), known.end());
    std::vector<std::pair<std::string, std::string>> renamed;
    for (const auto& given : flags_) {
        const std::string& flag = given.first;
        const auto first = std::lower_bound(known.begin(), known.end(), flag);
        const auto starts = [&](auto at) { return at != known.end() && at->rfind(flag, 0) == 0; };
        if (flag.size() > 2 && starts(first) && *first != flag && !starts(first + 1) && !flags_.contains(*first)) {
            renamed.emplace_back(flag, *first);
        }
    }
    for (const auto& [flag, whole] : renamed) {
        flags_[whole] = flags_[flag];
        values_[whole] = values_[flag];
        places_[whole] = places_[flag];
        flags_.erase(flag);
    }
}

std::vector<std::string> CommandText::values(const std::string& flag) {
    std::vector<std::string> out;
    if (!has(flag)) {
        return out;
    }
    for (const std::string& value : values_[plain(flag)]) {
        std::string part;
        if (value[0] == '$') {
            continue;  // a variable that only the environment sets, such as further flags
        }
        for (const char c : value + ",") {
            if (c != ',' && c != ' ') {
                part += c == '[' || c == ']' || c == '(' || c == ')' || c == '\'' || c == '"' ? "" : std::string(1, c);
            } else if (!part.empty()) {
                out.push_back(std::exchange(part, ""));
            }
        }
    }
    return out;
}

void name_left_out(ImportNotes& notes, const std::vector<FlagGroup>& groups,
                   const std::map<std::size_t, std::vector<std::string>>& by_group) {
    constexpr std::size_t kNamed = 40;
    for (const auto& [group, all_names] : by_group) {
        std::vector<std::string> names = all_names;
        const std::size_t count = names.size();
        if (count > kNamed) {
            names.resize(kNamed);
            names.emplace_back("...");
        }
        const std::string all = fmt::format("{}", fmt::join(names, ", "));
        const FlagGroup* of = group > 0 ? &groups[group - 1] : nullptr;
        notes.left_out(of == nullptr        ? fmt::format("not understood: {}", all)
                       : of->without_effect ? fmt::format("without effect on time or memory ({}): {}", of->why, all)
                                            : fmt::format("not modelled ({}): {}", of->why, all),
                       count);
    }
}

void CommandText::count(ImportNotes& notes, const std::vector<FlagGroup>& groups) const {
    std::map<std::string_view, std::size_t> known;  // from 1 on; 0: none of them
    for (std::size_t i = 0; i < groups.size(); ++i) {
        for (const std::string_view flag : names_in(groups[i])) {
            known.emplace(flag, i + 1);
        }
    }
    std::map<std::size_t, std::vector<std::string>> left;
    for (const auto& [flag, value] : flags_) {
        if (!used_.contains(flag)) {
            const auto found = known.find(flag);
            left[found == known.end() ? 0 : found->second].push_back("--" + printable(flag, 60));
        }
    }
    notes.read("flags", used_.size());
    name_left_out(notes, groups, left);
    for (const std::string& condition : unsure_) {
        notes.assumed(condition);
    }
}

std::string yaml_number(const std::optional<std::int64_t>& value) {
    return value ? std::to_string(*value) : "";
}

std::string yaml_section(const std::string& section, const YamlLines& lines) {
    std::string out = section + ":\n";
    for (const auto& [key, value] : lines) {
        if (!value.empty()) {
            out += fmt::format("  {}: {}\n", key, value);
        }
    }
    return out;
}

}  // namespace orrery::imports
