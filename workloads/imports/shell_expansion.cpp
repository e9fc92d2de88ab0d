#include "workloads/imports/shell_expansion.hpp"

#include "workloads/imports/shell_arithmetic.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::imports {

namespace {

using Words = std::vector<CommandWord>;

constexpr std::size_t kMostExpanded = 1U << 24U;  // bytes of all words together: variables may hold others many times
constexpr std::size_t kDeepestExpansion = 64;     // expansions inside each other

// The first variable without a value in a piece of a text that has some, which stand in it as written.
std::string unset_in(const std::string& piece, const std::string& unset) {
    if (unset.empty() || piece.find(unset) != std::string::npos) {
        return unset;
    }
    const std::size_t at = piece.find('$');
    if (at == std::string::npos) {
        return "";
    }
    std::string name = piece.substr(at + 1, end_of_expansion(piece, at) - at - 1);
    std::erase_if(name, [](char c) { return c == '{' || c == '}'; });
    return name;
}

// Words as they come out of one word: expansions outside of quotes are split at spaces, unless quotes inside them hold them together.
struct SplitWords {
    Words done;
    CommandWord now;
    bool any = false;

    void add(std::string_view text, std::size_t at, const std::string& unset) {
        now.text += text;
        now.at = at;
        any = true;
        now.unset = now.unset.empty() ? unset : now.unset;
    }
    void next() {
        if (any && now.text != "\\") {
            done.push_back(now);
        }
        now = CommandWord();
        any = false;
    }
    // A quote inside of a word is part of it: JSON has them.
    void split(const CommandWord& from, std::size_t at) {
        const std::string& text = from.text;
        std::string piece;
        bool started = false;
        char quote = 0;
        const auto flush = [&] {
            if (started) {
                add(piece, at, unset_in(piece, from.unset));
            }
            piece.clear();
            started = false;
        };
        for (std::size_t i = 0; i < text.size(); ++i) {
            const char c = text[i];
            const bool opens = quote == 0 && (c == '"' || c == '\'') && text.find(c, i + 1) != std::string::npos &&
                               (piece.empty() ? now.text.empty() : piece.back() == '=');
            if (quote != 0 ? c == quote : opens) {
                quote = quote != 0 ? '\0' : c;
                started = true;
            } else if (quote == 0 && is_shell_space(c)) {
                flush();
                next();
            } else {
                piece += c;
                started = true;
            }
        }
        flush();
    }
};

}  // namespace

void ShellExpansion::spend(std::size_t bytes, std::size_t at) {
    spent_ += bytes;
    if (spent_ > kMostExpanded) {
        fail_(at, fmt::format("the variables of the script expand to more than {} MiB", kMostExpanded >> 20U));
    }
}

// What a variable holds; null where the script does not set it.
ShellVariable* ShellExpansion::find(const std::string& name) {
    const auto found = variables.find(name);
    if (found == variables.end()) {
        return nullptr;
    }
    found->second.used = true;
    return &found->second;
}

std::optional<std::int64_t> ShellExpansion::arithmetic(const std::string& text) {
    return shell_arithmetic(text, [&](const std::string& name) -> const std::string* {
        const ShellVariable* variable = find(name);
        return variable == nullptr || variable->items.empty() ? nullptr : &variable->items[0].text;
    });
}

Words ShellExpansion::without_value(const std::string& written, const std::string& name, std::size_t at) const {
    return {{blank ? "" : written, at, name}};
}

// What stands behind a `$`, in braces or without; several words for ${NAME[@]}.
Words ShellExpansion::variable_at(const std::string& written, const std::string& inside, std::size_t at,
                                  std::size_t depth) {
    const bool length = inside.size() > 1 && inside[0] == '#';
    std::size_t end = length ? 1 : 0;
    const std::size_t start = end;
    while (end < inside.size() && is_shell_name(inside[end])) {
        ++end;
    }
    const std::string name = inside.substr(start, end - start);
    std::string rest = inside.substr(end);
    std::string index;
    if (!rest.empty() && rest[0] == '[') {
        const std::size_t close = std::min(rest.find(']'), rest.size() - 1);
        index = rest.substr(1, close - 1);
        rest.erase(0, close + 1);
    }
    if (name.empty()) {
        return without_value(written, inside, at);
    }
    const ShellVariable* variable = find(name);
    if (length) {
        return {{std::to_string(variable == nullptr ? 0 : variable->items.size()), at, ""}};
    }
    const bool colon = !rest.empty() && rest[0] == ':';
    const char how = rest.size() > (colon ? 1U : 0U) ? rest[colon ? 1 : 0] : '\0';
    const bool set = variable != nullptr && (!colon || (!variable->items.empty() && !variable->items[0].text.empty()));
    const auto value = [&]() -> Words {
        if (variable == nullptr) {
            return without_value(written, name, at);
        }
        if (index == "@" || index == "*" || index.empty()) {
            const bool all = !index.empty() || variable->items.empty();
            return all ? variable->items : Words{variable->items[0]};
        }
        const std::optional<std::int64_t> number = arithmetic(joined(index, at, depth + 1).text);
        const bool within = number && *number >= 0 && static_cast<std::size_t>(*number) < variable->items.size();
        return within ? Words{variable->items[static_cast<std::size_t>(*number)]} : without_value(written, name, at);
    };
    if (how == '-' || how == '=') {
        if (set) {
            return value();
        }
        CommandWord other = joined(rest.substr(colon ? 2 : 1), at, depth + 1);
        if (how == '=') {
            variables[name] = {{other}, at, true};
        }
        return {other};
    }
    if (how == '+') {
        return set ? Words{joined(rest.substr(colon ? 2 : 1), at, depth + 1)} : Words();
    }
    return value();
}

// Adds what expands at `i` to a text, several words with spaces between them, and moves `i` behind it.
void ShellExpansion::join(CommandWord& out, const std::string& text, std::size_t& i, std::size_t depth) {
    const Words found = expand_at(text, i, out.at, depth);
    for (std::size_t k = 0; k < found.size(); ++k) {
        spend(found[k].text.size(), out.at);
        out.text += (k > 0 ? " " : "") + found[k].text;
        out.unset = out.unset.empty() ? found[k].unset : out.unset;
    }
}

// A text with its expansions, as one word; quotes are taken off.
CommandWord ShellExpansion::joined(const std::string& text, std::size_t at, std::size_t depth) {
    CommandWord out{"", at, ""};
    for (std::size_t i = 0; i < text.size();) {
        if (text[i] == '$' || text[i] == '`') {
            join(out, text, i, depth);
        } else {
            out.text += text[i] == '"' || text[i] == '\'' ? "" : std::string(1, text[i]);
            ++i;
        }
    }
    return out;
}

// The words of the expansion at `i`, which moves behind it.
Words ShellExpansion::expand_at(const std::string& text, std::size_t& i, std::size_t at, std::size_t depth) {
    if (depth > kDeepestExpansion) {
        fail_(at, fmt::format("expansions nest deeper than {} levels", kDeepestExpansion));
    }
    const std::size_t start = i;
    const bool ticks = text[start] == '`';
    i = ticks ? std::min(text.find('`', start + 1), text.size() - 1) + 1
              : std::max(end_of_expansion(text, start), start + 1);
    const std::string whole = text.substr(start, i - start);
    const auto inside = [&](std::size_t open, std::size_t close) {
        return whole.substr(open, whole.size() > open + close - 1 ? whole.size() - open - close : 0);
    };
    if (whole.rfind("$((", 0) == 0) {
        const std::optional<std::int64_t> value = arithmetic(joined(inside(3, 2), at, depth + 1).text);
        return value ? Words{{std::to_string(*value), at, ""}} : without_value(whole, whole, at);
    }
    if (ticks || whole.rfind("$(", 0) == 0) {
        run_(at, inside(ticks ? 1 : 2, 1));
        return without_value(whole, whole, at);
    }
    if (whole.rfind("${", 0) == 0) {
        return variable_at(whole, inside(2, 1), at, depth);
    }
    return whole.size() > 1 ? variable_at(whole, whole.substr(1), at, depth) : Words{{"$", at, ""}};
}

Words ShellExpansion::expand(const ShellToken& token) {
    SplitWords words;
    for (const ShellSegment& segment : token.segments) {
        const std::string& text = segment.text;
        if (segment.quote == '\'' || segment.quote == '<' || (segment.quote == '"' && text.empty())) {
            words.add(text, token.at, segment.quote == '<' ? text : "");
            continue;
        }
        for (std::size_t i = 0; i < text.size();) {
            if (text[i] != '$' && text[i] != '`') {
                words.add(std::string_view(&text[i], 1), token.at, "");
                ++i;
                continue;
            }
            const std::size_t start = i;
            const Words found = expand_at(text, i, token.at, 0);
            // An array in the middle of a script for bash -c: its words go on.
            const bool inside = segment.quote == '"' && (start > 0 || i < text.size());
            for (std::size_t k = 0; k < found.size(); ++k) {
                if (k > 0 && inside) {
                    words.add(" ", token.at, "");
                } else if (k > 0) {
                    words.next();
                }
                spend(found[k].text.size(), token.at);
                const bool command =
                    found[k].text[0] == '`' || (found[k].text.rfind("$(", 0) == 0 && found[k].text.back() == ')');
                if (segment.quote == '"' || command || (blank && !found[k].unset.empty())) {
                    words.add(found[k].text, token.at, found[k].unset);
                } else {
                    words.split(found[k], token.at);
                }
            }
        }
    }
    words.next();
    for (const CommandWord& word : words.done) {
        spend(word.text.size(), token.at);
    }
    return std::move(words.done);
}

// The text of a token as one word, without splitting.
CommandWord ShellExpansion::scalar(const ShellToken& token) {
    CommandWord out{"", token.at, ""};
    for (const ShellSegment& segment : token.segments) {
        if (segment.quote == '\'' || segment.quote == '<') {
            out.text += segment.text;
            out.unset = out.unset.empty() && segment.quote == '<' ? segment.text : out.unset;
            continue;
        }
        for (std::size_t i = 0; i < segment.text.size();) {
            if (segment.text[i] == '$' || segment.text[i] == '`') {
                join(out, segment.text, i, 0);
            } else {
                out.text += segment.text[i++];
            }
        }
    }
    return out;
}

std::vector<CommandWord> split_words(const CommandWord& text) {
    SplitWords words;
    words.split(text, text.at);
    words.next();
    return std::move(words.done);
}

}  // namespace orrery::imports
