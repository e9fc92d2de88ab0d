#include "workloads/imports/python_engine.hpp"

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "workloads/imports/importer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

namespace orrery::imports {

namespace {

bool in_name(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

std::string_view trimmed(std::string_view text) {
    const std::size_t first = text.find_first_not_of(" \t\r\n\\");
    const std::size_t last = text.find_last_not_of(" \t\r\n\\");
    return first == std::string_view::npos ? std::string_view() : text.substr(first, last + 1 - first);
}

// Behind the text or comment that starts at `i`, or `i` where none does.
std::size_t behind_quiet(const std::string& text, std::size_t i) {
    if (text[i] == '#') {
        return std::min(text.find('\n', i), text.size());
    }
    if (text[i] != '"' && text[i] != '\'') {
        return i;
    }
    const std::string quote =
        text.compare(i, 3, std::string(3, text[i])) == 0 ? std::string(3, text[i]) : text.substr(i, 1);
    for (std::size_t k = i + quote.size(); k < text.size(); ++k) {
        if (text[k] == '\\') {
            ++k;
        } else if (text.compare(k, quote.size(), quote) == 0) {
            return k + quote.size();
        }
    }
    return text.size();
}

// The arguments of a call whose parenthesis opens at `open`, with their places; none where it does not close.
std::optional<std::vector<std::pair<std::string_view, std::size_t>>> arguments_of(const std::string& text,
                                                                                  std::size_t open) {
    std::vector<std::pair<std::string_view, std::size_t>> out;
    int depth = 1;
    std::size_t start = open + 1;
    for (std::size_t i = open + 1; i < text.size();) {
        if (const std::size_t next = behind_quiet(text, i); next > i) {
            start = text[i] == '#' && trimmed(std::string_view(text).substr(start, i - start)).empty() ? next : start;
            i = next;
            continue;
        }
        const char c = text[i];
        depth += c == '(' || c == '[' || c == '{' ? 1 : c == ')' || c == ']' || c == '}' ? -1 : 0;
        if (depth == 0 || (depth == 1 && c == ',')) {
            const std::string_view argument = trimmed(std::string_view(text).substr(start, i - start));
            if (!argument.empty()) {
                out.emplace_back(argument, static_cast<std::size_t>(argument.data() - text.data()));
            }
            start = i + 1;
        }
        if (depth == 0) {
            return out;
        }
        ++i;
    }
    return std::nullopt;
}

// Python's maps and lists as JSON.
std::string as_json(std::string_view value) {
    const std::string text(value);
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
        if (const std::size_t next = behind_quiet(text, i); next > i) {
            out += text[i] == '#' ? "" : '"' + text.substr(i + 1, next - i - 2) + '"';
            i = next;
        } else if (in_name(text[i])) {
            std::size_t end = i;
            while (end < text.size() && (in_name(text[end]) || text[end] == '.')) {
                ++end;
            }
            const std::string word = text.substr(i, end - i);
            const bool number = std::isdigit(static_cast<unsigned char>(word[0])) != 0;
            out += word == "True"    ? "true"
                   : word == "False" ? "false"
                   : word == "None"  ? "null"
                   : number          ? word
                                     : '"' + word + '"';
            i = end;
        } else {
            out += text[i++];
        }
    }
    return out;
}

// What a name stands for: the last plain assignment of it before this place.
std::string_view assigned(const std::string& text, std::string_view name, std::size_t before) {
    std::string_view out;
    for (std::size_t line = 0; line < before;) {
        const std::size_t end = std::min(text.find('\n', line), text.size());
        const std::string_view one = trimmed(std::string_view(text).substr(line, end - line));
        if (one.substr(0, name.size()) == name) {
            const std::string_view rest = trimmed(one.substr(name.size()));
            if (rest.size() > 1 && rest[0] == '=' && rest[1] != '=') {
                const std::string_view value = trimmed(rest.substr(1));
                const bool quoted = value[0] == '"' || value[0] == '\'';
                const std::size_t end_quote = quoted ? value.find(value[0], 1) : std::string_view::npos;
                out = trimmed(value.substr(0, quoted ? std::min(end_quote, value.size() - 1) + 1 : value.find('#')));
            }
        }
        line = end + 1;
    }
    return out;
}

bool is_name(std::string_view text) {
    return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
           std::all_of(text.begin(), text.end(), [](char c) { return in_name(c) || c == '.'; });
}

// Adds the arguments of a call as flags: those of a call in it have names with dots.
void add_arguments(const std::string& text, const std::vector<std::pair<std::string_view, std::size_t>>& arguments,
                   std::size_t before, const std::string& outer, CommandCall& out) {
    for (const auto& [argument, place] : arguments) {
        std::size_t equals = 0;
        while (equals < argument.size() && in_name(argument[equals])) {
            ++equals;
        }
        const std::string_view behind = trimmed(argument.substr(equals));
        const bool keyword = equals > 0 && behind.size() > 1 && behind[0] == '=' && behind[1] != '=';
        if (!keyword && (!outer.empty() || &argument != &arguments.front().first)) {
            continue;  // **kwargs
        }
        const std::string name = keyword ? std::string(argument.substr(0, equals)) : "model";
        std::string_view value = keyword ? trimmed(behind.substr(1)) : argument;
        if (is_name(value) && value != "True" && value != "False" && value != "None") {
            const std::string_view known = assigned(text, value, before);
            if (known.empty()) {
                out.words.push_back({"--" + outer + name, place, ""});
                out.words.push_back({"$" + std::string(value), place, std::string(value)});
                continue;
            }
            value = known;
        }
        if (value == "None") {
            continue;
        }
        if (value == "True" || value == "False") {
            out.words.push_back({(value == "True" ? "--" : "--no-") + outer + name, place, ""});
            continue;
        }
        const std::size_t open = value.find('(');
        if (open != std::string_view::npos && open > 0 && value.back() == ')' && is_name(value.substr(0, open))) {
            const std::size_t at = static_cast<std::size_t>(value.data() - text.data()) + open;
            if (const auto inner = arguments_of(text, at)) {
                add_arguments(text, *inner, before, outer + name + ".", out);
                continue;
            }
        }
        const bool quoted = value.size() > 1 && (value[0] == '"' || value[0] == '\'');
        const bool map = value[0] == '{' || value[0] == '[';
        out.words.push_back({"--" + outer + name, place, ""});
        out.words.push_back({quoted ? std::string(value.substr(1, value.size() - 2))
                             : map  ? as_json(value)
                                    : std::string(value),
                             place, ""});
    }
}

// The whole number that starts here behind blanks, up to 10^9; 0: none does.
std::int64_t number_at(const std::string& text, std::size_t i) {
    constexpr std::int64_t kMost = 1'000'000'000;
    std::int64_t out = 0;
    for (i = text.find_first_not_of(' ', i); i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0;
         ++i) {
        out = std::min(kMost, out * 10 + (text[i] - '0'));
    }
    return out;
}

}  // namespace

std::int64_t python_number(const std::string& text, const std::string& name) {
    std::int64_t out = 0;
    for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + name.size())) {
        std::size_t i = at + name.size();
        if (at > 0 && in_name(text[at - 1])) {
            continue;
        }
        i = text.compare(i, 1, "\"") == 0 || text.compare(i, 1, "'") == 0 ? i + 1 : i;
        i = text.find_first_not_of(' ', i);
        if (i < text.size() && (text[i] == '=' || text[i] == ':')) {
            out = std::max(out, number_at(text, i + 1));
        }
    }
    return out;
}

std::int64_t python_repetition(const std::string& text) {
    std::int64_t out = 0;
    for (std::size_t at = text.find(']'); at != std::string::npos; at = text.find(']', at + 1)) {
        const std::size_t times = text.find_first_not_of(' ', at + 1);
        out = times < text.size() && text[times] == '*' ? std::max(out, number_at(text, times + 1)) : out;
    }
    return out;
}

std::optional<CommandCall> read_python_engine(const std::string& text, const std::string& file,
                                              const std::vector<const char*>& names, const std::string& program) {
    std::size_t at = std::string::npos;
    std::size_t open = 0;
    for (std::size_t i = 0; i < text.size() && at == std::string::npos;) {
        if (const std::size_t next = behind_quiet(text, i); next > i) {
            i = next;
            continue;
        }
        const bool starts = i == 0 || !in_name(text[i - 1]);
        for (const char* name : names) {
            const std::size_t size = std::string_view(name).size();
            if (starts && text.compare(i, size, name) == 0 && text.compare(i + size, 1, "(") == 0) {
                at = i;
                open = i + size;
            }
        }
        ++i;
    }
    if (at == std::string::npos) {
        return std::nullopt;
    }
    const auto arguments = arguments_of(text, open);
    if (!arguments) {
        throw ConfigError({diagnostic_at(file, text, open, "this call does not end: expected ')'")});
    }
    CommandCall out;
    for (const std::string_view word : split(std::string_view(program), ' ')) {
        out.words.push_back({std::string(word), at, ""});
    }
    add_arguments(text, *arguments, at, "", out);
    return out;
}

}  // namespace orrery::imports
