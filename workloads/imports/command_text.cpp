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

// Words of a shell script, quotes and comments resolved; what stands alone in parentheses of an array is a word as well.
struct Word {
    std::string text;
    std::size_t at;  ///< bytes behind the start of the script
};

std::vector<Word> shell_words(const std::string& text) {
    std::vector<Word> out;
    std::string word;
    std::size_t start = 0;
    bool in_word = false;
    char quote = 0;
    const auto finish = [&] {
        if (in_word) {
            out.push_back({word, start});
        }
        word.clear();
        in_word = false;
    };
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        start = in_word ? start : i;
        if (quote != 0) {
            if (c == quote) {
                quote = 0;
            } else {
                word += c;
            }
        } else if (c == '"' || c == '\'') {
            quote = c;
            in_word = true;
        } else if (c == '\\' && i + 1 < text.size()) {
            ++i;
            if (text[i] != '\n') {
                word += text[i];
                in_word = true;
            }
        } else if (c == '#' && !in_word) {
            i = std::min(text.find('\n', i), text.size()) - 1;
        } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ')' || (c == '(' && !in_word)) {
            finish();
        } else if (c == '(') {  // NAME=( begins an array: its words are what counts
            word.clear();
            in_word = false;
        } else {
            word += c;
            in_word = true;
        }
    }
    finish();
    return out;
}

std::string plain(std::string flag) {
    std::replace(flag.begin(), flag.end(), '_', '-');
    return flag;
}

using Variables = std::map<std::string, std::string>;

constexpr std::size_t kMostSubstituted = 1U
                                         << 24U;  // bytes of all words together: variables may hold others many times

// Empty where the text grows beyond `most`.
std::optional<std::string> substituted(const std::string& word, const Variables& variables, std::size_t most) {
    std::string out;
    for (std::size_t i = 0; i < word.size();) {
        if (out.size() > most) {
            return std::nullopt;
        }
        if (word[i] != '$') {
            out += word[i++];
            continue;
        }
        const bool braces = i + 1 < word.size() && word[i + 1] == '{';
        std::size_t end = i + (braces ? 2 : 1);
        const std::size_t start = end;
        while (end < word.size() && (std::isalnum(static_cast<unsigned char>(word[end])) != 0 || word[end] == '_')) {
            ++end;
        }
        const std::string name = word.substr(start, end - start);
        std::string rest;
        if (braces) {
            const std::size_t close = std::min(word.find('}', end), word.size());
            rest = word.substr(end, close - end);
            end = std::min(close + 1, word.size());
        }
        const auto found = variables.find(name);
        // ${NAME:-value}
        const bool otherwise = rest.rfind(":-", 0) == 0;
        out += found != variables.end() ? found->second : otherwise ? rest.substr(2) : "";
        i = std::max(end, i + 1);
    }
    return out;
}

bool is_assignment(const std::string& word) {
    const std::size_t equals = word.find('=');
    return equals != std::string::npos && equals > 0 && word[0] != '-' &&
           std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals),
                       [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; });
}

// "--flag" and "-tp", but not "-1".
bool is_flag(const std::string& word) {
    return word.size() > 1 && word[0] == '-' &&
           std::isalpha(static_cast<unsigned char>(word[word[1] == '-' && word.size() > 2 ? 2 : 1])) != 0;
}

}  // namespace

CommandText::CommandText(const std::string& text, std::string name) : name_(std::move(name)), text_(text) {
    Variables variables;
    std::string flag;
    std::size_t left = kMostSubstituted;
    for (const auto& [raw, at] : shell_words(text)) {
        std::string word = raw;
        if (raw.find('$') != std::string::npos) {
            const std::optional<std::string> whole = substituted(raw, variables, left);
            if (!whole || whole->size() > left) {
                throw ConfigError({diagnostic_at(
                    name_, text_, at,
                    fmt::format("the variables of the script expand to more than {} MiB", kMostSubstituted >> 20U))});
            }
            word = *whole;
            left -= word.size();
        }
        if (is_assignment(raw)) {
            variables[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
            continue;
        }
        if (!is_flag(word)) {
            if (flag.empty()) {
                words_.push_back(word);
            } else if (!word.empty()) {
                flags_[flag] = word;
                flag.clear();
            }
            continue;
        }
        const std::size_t dashes = word[1] == '-' ? 2 : 1;
        const std::size_t equals = std::min(word.find('='), word.size());
        flag = plain(word.substr(dashes, equals - dashes));
        flags_[flag] = "";
        places_[flag] = at;
        if (equals < word.size()) {
            flags_[flag] = word.substr(equals + 1);
            flag.clear();
        }
    }
    if (flags_.empty() && std::find(words_.begin(), words_.end(), "serve") == words_.end()) {
        throw ConfigError(
            {Diagnostic{name_, 1, 1, "holds no flag such as --tensor-parallel-size 8", ErrorCode::malformed_trace}});
    }
}

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
    ShellScript script = read_shell_script(text, out.name_, environment);
    const auto flags_in = [](const ShellCommand& command) {
        return std::count_if(command.begin(), command.end(), [](const ShellWord& word) { return is_flag(word.text); });
    };
    // A script prepares data and starts other programs too; the run itself has the most flags. The last of several alike counts, as
    // what prints the command comes before it.
    ShellCommand chosen;
    for (ShellCommand& command : script.commands) {
        if (flags_in(command) > 0 && flags_in(command) >= flags_in(chosen)) {
            chosen = std::move(command);
        }
    }
    // Directives and variables that no command takes come first, so that the command has the last word.
    ShellCommand words = std::move(script.directives);
    for (ShellCommand* more : {&script.unused, &chosen}) {
        words.insert(words.end(), more->begin(), more->end());
    }
    std::string flag;
    std::set<std::string> of_yaml;
    for (const ShellWord& word : words) {
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
