#include "workloads/imports/shell_script.hpp"

#include "sim/base/error.hpp"
#include "workloads/imports/importer.hpp"
#include "workloads/imports/shell_arithmetic.hpp"
#include "workloads/imports/shell_lexer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

namespace orrery::imports {

namespace {

using Kind = ShellToken::Kind;
using Words = std::vector<CommandWord>;

constexpr std::size_t kMostExpanded = 1U << 24U;  // bytes of all words together: variables may hold others many times
constexpr std::size_t kDeepest = 64;              // expansions and conditions inside each other
constexpr std::size_t kDeepestScript = 8;         // scripts inside of commands inside of each other

void append(Words& to, Words words) {
    to.insert(to.end(), std::make_move_iterator(words.begin()), std::make_move_iterator(words.end()));
}

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

struct Variable {
    Words items;
    std::size_t at = 0;
    bool used = false;
};

// What a test says of words, of which only comparisons are understood.
std::optional<bool> outcome_of(const std::vector<std::string>& parts, bool known) {
    if (parts.size() == 2 && (parts[0] == "-n" || parts[0] == "-z")) {
        return parts[1].empty() == (parts[0] == "-z");
    }
    if (parts.size() == 1 && (parts[0] == "-n" || parts[0] == "-z")) {
        return parts[0] == "-z";  // an empty word without quotes leaves nothing
    }
    if (parts.size() == 1 && known && (parts[0] == "true" || parts[0] == "false")) {
        return parts[0] == "true";
    }
    if (parts.size() != 3) {
        return std::nullopt;
    }
    const std::string& how = parts[1];
    if (how == "=" || how == "==") {
        return parts[0] == parts[2];
    }
    if (how == "!=") {
        return parts[0] != parts[2];
    }
    const auto number = [](const std::string& text) -> std::optional<long> {
        const bool digits = !text.empty() && text.size() < 18 &&
                            std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
        return digits ? std::optional(std::stol(text)) : std::nullopt;
    };
    const auto left = number(parts[0]);
    const auto right = number(parts[2]);
    if (!left || !right) {
        return std::nullopt;
    }
    return how == "-eq" || how == "-ne" ? std::optional((*left == *right) == (how == "-eq"))
           : how == "-gt"               ? std::optional(*left > *right)
           : how == "-ge"               ? std::optional(*left >= *right)
           : how == "-lt"               ? std::optional(*left < *right)
           : how == "-le"               ? std::optional(*left <= *right)
                                        : std::nullopt;
}

// Where the script of a command stands that gives one to a shell, as in bash -c 'vllm serve ...'; 0 where there is none.
std::size_t script_in(const Words& words) {
    for (std::size_t i = 2; i < words.size(); ++i) {
        const std::string shell = words[i - 2].text.substr(words[i - 2].text.rfind('/') + 1);
        const std::string& option = words[i - 1].text;
        if ((shell == "sh" || shell == "bash" || shell == "zsh") && option.size() > 1 && option.size() < 5 &&
            option[0] == '-' && option.back() == 'c' && words[i].text.find_first_of(" \n") != std::string::npos) {
            return i;
        }
    }
    return 0;
}

class Shell {
  public:
    Shell(const std::string& text, const std::string& name, const std::map<std::string, std::string>& given)
        : text_(text), name_(name) {
        for (const auto& [variable, value] : given) {
            variables_[variable] = {{{value, 0, ""}}, 0, true};
        }
    }

    CommandList run() {
        run_text(text_);
        for (const auto& [name, variable] : variables_) {
            for (const CommandWord& item : variable.items) {
                if (!variable.used && item.text.find("--") != std::string::npos) {
                    append(out_.unused, split_words({item.text, variable.at, item.unset}));
                }
            }
        }
        return std::move(out_);
    }

  private:
    [[noreturn]] void fail(std::size_t at, const std::string& problem) const {
        throw ConfigError({diagnostic_at(name_, text_, at, problem)});
    }

    void run_text(const std::string& text) {
        tokens_ = shell_tokens(text, out_.directives,
                               [&](std::size_t at, const std::string& problem) { fail(inner_.value_or(at), problem); });
        if (inner_) {
            for (ShellToken& token : tokens_) {
                token.at = *inner_;
            }
        }
        for (std::size_t i = 0; i < tokens_.size();) {
            i = command(i);
        }
    }

    // The commands of a script that stands in a word, with the variables of this one.
    void run_inner(const std::string& text, std::size_t at) {
        if (scripts_ == kDeepestScript) {
            return;
        }
        ++scripts_;
        auto tokens = std::exchange(tokens_, {});
        auto frames = std::exchange(frames_, {});
        const Kind joint = std::exchange(joint_, Kind::end);
        const bool blank = std::exchange(blank_, false);
        const std::optional<std::size_t> inner = std::exchange(inner_, at);
        run_text(text);
        inner_ = inner;
        blank_ = blank;
        joint_ = joint;
        frames_ = std::move(frames);
        tokens_ = std::move(tokens);
        --scripts_;
    }

    void spend(std::size_t bytes, std::size_t at) {
        spent_ += bytes;
        if (spent_ > kMostExpanded) {
            fail(at, fmt::format("the variables of the script expand to more than {} MiB", kMostExpanded >> 20U));
        }
    }

    // ---- expansion ----

    // What a variable holds; null where the script does not set it.
    Variable* find(const std::string& name) {
        const auto found = variables_.find(name);
        if (found == variables_.end()) {
            return nullptr;
        }
        found->second.used = true;
        return &found->second;
    }

    std::optional<std::int64_t> arithmetic(const std::string& text) {
        return shell_arithmetic(text, [&](const std::string& name) -> const std::string* {
            const Variable* variable = find(name);
            return variable == nullptr || variable->items.empty() ? nullptr : &variable->items[0].text;
        });
    }

    [[nodiscard]] Words without_value(const std::string& written, const std::string& name, std::size_t at) const {
        return {{blank_ ? "" : written, at, name}};
    }

    // What stands behind a `$`, in braces or without; several words for ${NAME[@]}.
    Words variable_at(const std::string& written, const std::string& inside, std::size_t at, std::size_t depth) {
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
        const Variable* variable = find(name);
        if (length) {
            return {{std::to_string(variable == nullptr ? 0 : variable->items.size()), at, ""}};
        }
        const bool colon = !rest.empty() && rest[0] == ':';
        const char how = rest.size() > (colon ? 1U : 0U) ? rest[colon ? 1 : 0] : '\0';
        const bool set =
            variable != nullptr && (!colon || (!variable->items.empty() && !variable->items[0].text.empty()));
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
            return within ? Words{variable->items[static_cast<std::size_t>(*number)]}
                          : without_value(written, name, at);
        };
        if (how == '-' || how == '=') {
            if (set) {
                return value();
            }
            CommandWord other = joined(rest.substr(colon ? 2 : 1), at, depth + 1);
            if (how == '=') {
                variables_[name] = {{other}, at, true};
            }
            return {other};
        }
        if (how == '+') {
            return set ? Words{joined(rest.substr(colon ? 2 : 1), at, depth + 1)} : Words();
        }
        return value();
    }

    // Adds what expands at `i` to a text, several words with spaces between them, and moves `i` behind it.
    void join(CommandWord& out, const std::string& text, std::size_t& i, std::size_t depth) {
        const Words found = expand_at(text, i, out.at, depth);
        for (std::size_t k = 0; k < found.size(); ++k) {
            spend(found[k].text.size(), out.at);
            out.text += (k > 0 ? " " : "") + found[k].text;
            out.unset = out.unset.empty() ? found[k].unset : out.unset;
        }
    }

    // A text with its expansions, as one word; quotes are taken off.
    CommandWord joined(const std::string& text, std::size_t at, std::size_t depth) {
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
    Words expand_at(const std::string& text, std::size_t& i, std::size_t at, std::size_t depth) {
        if (depth > kDeepest) {
            fail(at, fmt::format("expansions nest deeper than {} levels", kDeepest));
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
            run_inner(inside(ticks ? 1 : 2, 1), at);
            return without_value(whole, whole, at);
        }
        if (whole.rfind("${", 0) == 0) {
            return variable_at(whole, inside(2, 1), at, depth);
        }
        return whole.size() > 1 ? variable_at(whole, whole.substr(1), at, depth) : Words{{"$", at, ""}};
    }

    Words expand(const ShellToken& token) {
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
                    if (segment.quote == '"' || command || (blank_ && !found[k].unset.empty())) {
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
    CommandWord scalar(const ShellToken& token) {
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

    // ---- commands ----

    struct Frame {
        enum class Of : std::uint8_t { condition, choice } kind = Of::condition;
        bool active = true;
        bool taken = false;
        bool deciding = false;  ///< between `if` and `then`, or between `;;` and `)`
        bool outcome = false;   ///< of what has been decided so far
        std::string subject;    ///< of a case
    };

    [[nodiscard]] bool active() const {
        return std::all_of(frames_.begin(), frames_.end(), [](const Frame& f) { return f.active; });
    }
    [[nodiscard]] bool choosing() const {
        return !frames_.empty() && frames_.back().kind == Frame::Of::choice && frames_.back().deciding;
    }

    // `NAME=`, `NAME+=`: the length of the name, or 0.
    static std::size_t assigned_name(const ShellToken& token) {
        if (token.kind != Kind::word || token.segments.empty() || token.segments[0].quote != 0) {
            return 0;
        }
        const std::string& text = token.segments[0].text;
        std::size_t end = 0;
        while (end < text.size() && is_shell_name(text[end])) {
            ++end;
        }
        const bool plain = end > 0 && end < text.size() && std::isdigit(static_cast<unsigned char>(text[0])) == 0;
        return plain && (text[end] == '=' || text.compare(end, 2, "+=") == 0) ? end : 0;
    }

    [[nodiscard]] bool is_array(std::size_t i) const {
        return i + 1 < tokens_.size() && tokens_[i + 1].kind == Kind::open && tokens_[i].segments.size() == 1 &&
               tokens_[i].segments[0].text.back() == '=';
    }

    // An assignment at token i; gives the token after it.
    std::size_t assign(std::size_t i, bool exports) {
        const bool array = is_array(i);
        ShellToken token = tokens_[i++];
        const std::size_t length = assigned_name(token);
        std::string& text = token.segments[0].text;
        const std::string name = text.substr(0, length);
        const bool adds = text[length] == '+';
        text.erase(0, length + (adds ? 2 : 1));
        const Variable* before = adds ? find(name) : nullptr;
        Variable value;
        value.at = token.at;
        if (array) {
            value.items = before == nullptr ? Words() : before->items;
            for (++i; i < tokens_.size() && tokens_[i].kind != Kind::close; ++i) {
                append(value.items, tokens_[i].kind == Kind::word ? expand(tokens_[i]) : Words());
            }
            i = std::min(i + 1, tokens_.size());
        } else {
            CommandWord whole = scalar(token);
            if (!whole.unset.empty() && token.segments.size() < 3 && whole.text == token.segments.back().text &&
                variables_.contains(name)) {
                return i;  // a variable that only the environment sets leaves the earlier value as it is
            }
            if (before != nullptr && !before->items.empty()) {
                whole.text.insert(0, before->items[0].text);
                whole.unset = before->items[0].unset.empty() ? whole.unset : before->items[0].unset;
                spend(whole.text.size(), token.at);
            }
            value.items = {whole};
        }
        if (exports && value.items.size() == 1) {
            exported_.push_back({name + "=" + value.items[0].text, token.at, value.items[0].unset});
        }
        variables_[name] = std::move(value);
        return i;
    }

    // Whether the assignments from i on are all of a command; else they are the environment of the command behind them.
    [[nodiscard]] bool assigns_alone(std::size_t i) const {
        while (i < tokens_.size() && assigned_name(tokens_[i]) > 0) {
            if (is_array(i)) {
                return true;
            }
            ++i;
        }
        return i >= tokens_.size() || tokens_[i].kind != Kind::word;
    }

    // export, declare and the like from i on; gives the end of the command.
    std::size_t declare(std::size_t i) {
        const bool exports = tokens_[i].is("export") || tokens_[i].is("set");
        for (++i; i < tokens_.size() && !tokens_[i].ends();) {
            if (assigned_name(tokens_[i]) == 0) {
                const std::string name = tokens_[i].segments.size() == 1 ? tokens_[i].segments[0].text : "";
                const auto found = variables_.find(name);
                if (exports && active() && found != variables_.end() && found->second.items.size() == 1) {
                    const CommandWord& value = found->second.items[0];
                    exported_.push_back({name + "=" + value.text, tokens_[i].at, value.unset});
                }
                ++i;
            } else {
                i = active() ? assign(i, exports) : is_array(i) ? past_close(i + 1) : i + 1;
            }
        }
        return i;
    }

    // Reads tokens from i to the end of one simple command, with what keywords before it say.
    std::size_t command(std::size_t i) {
        if (choosing()) {
            return pattern(i);
        }
        while (i < tokens_.size() && !tokens_[i].ends()) {
            const std::size_t after = keyword(i);
            if (after == i) {
                break;
            }
            i = after;
            if (choosing()) {
                return i;
            }
        }
        CommandCall call;
        const bool deciding = !frames_.empty() && frames_.back().deciding;
        blank_ = deciding;
        const std::size_t start = i;
        bool command = false;  // a word of the command itself has come
        std::vector<std::size_t> redirections;
        while (i < tokens_.size() && !tokens_[i].ends()) {
            const ShellToken& token = tokens_[i];
            if (!command && (token.is("$") || token.is("%"))) {
                ++i;  // the prompt of a shell
            } else if (!command && assigned_name(token) > 0) {
                if (!active()) {
                    i = is_array(i) ? past_close(i + 1) : i + 1;
                } else if (assigns_alone(i)) {
                    i = assign(i, false);
                } else {
                    call.environment.push_back(scalar(token));
                    ++i;
                }
            } else if (!command && (token.is("export") || token.is("declare") || token.is("local") || token.is("set") ||
                                    token.is("readonly") || token.is("typeset"))) {
                i = declare(i);
            } else if (token.kind != Kind::word) {
                redirections.push_back(i++);
            } else {
                command = true;
                if (active() || deciding) {
                    append(call.words, expand(token));
                }
                ++i;
            }
        }
        blank_ = false;
        if (deciding) {
            decide(call.words, start);
        } else if (active()) {
            write_files(redirections, call.words);
            if (!call.words.empty()) {
                add(std::move(call));
            }
        }
        if (i < tokens_.size()) {
            joint_ = tokens_[i].kind;
            if (joint_ == Kind::next_case && !frames_.empty() && frames_.back().kind == Frame::Of::choice) {
                frames_.back().deciding = true;
                frames_.back().active = false;
                frames_.back().outcome = false;
            }
            ++i;
        }
        return i;
    }

    // Text of here-documents, to the file of a redirection or to that of tee, also behind a pipe.
    void write_files(const std::vector<std::size_t>& redirections, const Words& words) {
        std::string file = words.size() > 1 ? words.back().text : "";
        const std::optional<std::string> piped = std::exchange(piped_, std::nullopt);
        if (joint_ == Kind::pipe && piped) {
            out_.files[file] = *piped;
        }
        for (const std::size_t i : redirections) {
            file = tokens_[i].kind == Kind::redirect ? scalar(tokens_[i]).text : file;
        }
        for (const std::size_t i : redirections) {
            if (tokens_[i].kind == Kind::here) {
                piped_ = scalar(tokens_[i]).text;
                out_.files[file] = *piped_;
            }
        }
    }

    void add(CommandCall call) {
        Words& words = call.words;
        // A line that starts with a flag goes on with the command before it, whose backslash somebody forgot.
        if (words[0].text.rfind("--", 0) == 0 && !out_.commands.empty() && joint_ == Kind::end) {
            append(out_.commands.back().words, std::move(words));
            return;
        }
        std::string script;
        const std::size_t before = script_in(words);
        const std::size_t at = words[before].at;
        if (before > 0) {
            script = words[before].text;
        } else if (words[0].text == "eval") {
            for (std::size_t i = 1; i < words.size(); ++i) {
                script += (i > 1 ? " " : "") + words[i].text;
            }
        }
        if (script.empty() || scripts_ == kDeepestScript) {
            call.environment.insert(call.environment.begin(), exported_.begin(), exported_.end());
            out_.commands.push_back(std::move(call));
            return;
        }
        const std::size_t first = out_.commands.size();
        run_inner(script, at);
        words.resize(before > 2 ? before - 2 : 0);  // without the shell and its option
        for (std::size_t i = first; i < out_.commands.size(); ++i) {
            CommandCall& inner = out_.commands[i];
            for (const Words* more : {&words, &call.environment}) {
                for (const CommandWord& word : *more) {
                    spend(word.text.size(), at);
                }
            }
            inner.outer.insert(inner.outer.begin(), words.begin(), words.end());
            inner.environment.insert(inner.environment.begin(), call.environment.begin(), call.environment.end());
        }
    }

    [[nodiscard]] std::size_t past_close(std::size_t i) const {
        while (i < tokens_.size() && tokens_[i].kind != Kind::close) {
            ++i;
        }
        return std::min(i + 1, tokens_.size());
    }

    // Whether the end of a condition or choice comes behind i: prose may start with the same words.
    [[nodiscard]] bool is_closed(std::size_t i, const char* end) const {
        return std::any_of(tokens_.begin() + static_cast<std::ptrdiff_t>(i), tokens_.end(),
                           [&](const ShellToken& token) { return token.is(end); });
    }

    void open_frame(std::size_t at, Frame frame) {
        if (frames_.size() > kDeepest) {
            fail(at, fmt::format("conditions nest deeper than {} levels", kDeepest));
        }
        frames_.push_back(std::move(frame));
    }

    // The token after a keyword at i, or i itself.
    std::size_t keyword(std::size_t i) {
        const ShellToken& token = tokens_[i];
        for (const char* plain : {"do", "done", "while", "until", "time", "{", "}", "exec", "!", "function"}) {
            if (token.is(plain)) {
                return i + 1;
            }
        }
        if (token.is("if") && is_closed(i, "fi")) {
            open_frame(token.at, {Frame::Of::condition, active(), false, true, false, ""});
            joint_ = Kind::end;
            return i + 1;
        }
        if (token.is("case") && is_closed(i, "esac")) {
            const bool word = i + 1 < tokens_.size() && tokens_[i + 1].kind == Kind::word;
            const Words subject = word ? expand(tokens_[i + 1]) : Words();
            open_frame(token.at,
                       {Frame::Of::choice, false, false, true, false, subject.empty() ? "" : subject[0].text});
            for (i += 2; i < tokens_.size() && (tokens_[i].is("in") || tokens_[i].kind == Kind::end); ++i) {
            }
            return std::min(i, tokens_.size());
        }
        if (token.is("for")) {
            return loop(i);
        }
        if (frames_.empty() || frames_.back().kind != Frame::Of::condition) {
            const bool closes = !frames_.empty() && token.is("esac");
            if (closes) {
                frames_.pop_back();
            }
            return closes ? i + 1 : i;
        }
        Frame& frame = frames_.back();
        if (token.is("then")) {
            frame.active = frame.outcome && !frame.taken;
            frame.taken = frame.taken || frame.active;
            frame.deciding = false;
        } else if (token.is("elif")) {
            frame.active = true;  // for its condition
            frame.deciding = true;
            frame.outcome = false;
            joint_ = Kind::end;
        } else if (token.is("else")) {
            frame.active = !frame.taken;
        } else if (token.is("fi")) {
            frames_.pop_back();
        } else {
            return i;
        }
        return i + 1;
    }

    // `for NAME in first ...`: the body is read once, with the first of them.
    std::size_t loop(std::size_t i) {
        const bool listed = i + 3 < tokens_.size() && tokens_[i + 1].kind == Kind::word && tokens_[i + 2].is("in") &&
                            !tokens_[i + 3].ends();
        if (!listed) {
            return i + 3 < tokens_.size() && tokens_[i + 1].kind == Kind::open ? past_close(i) : i;
        }
        const ShellToken& name = tokens_[i + 1];
        Words words;
        for (i += 3; i < tokens_.size() && !tokens_[i].ends(); ++i) {
            append(words, active() ? expand(tokens_[i]) : Words());
        }
        if (!words.empty()) {
            variables_[name.segments[0].text] = {{words[0]}, name.at, true};
            if (words[0].unset.empty()) {
                out_.loops.push_back(fmt::format("{}={}, the first of {} in a loop", name.segments[0].text,
                                                 words[0].text, words.size()));
            }
        }
        return i;
    }

    // One pattern of a case, or its `esac`.
    std::size_t pattern(std::size_t i) {
        Frame& frame = frames_.back();
        if (tokens_[i].kind == Kind::word) {
            if (tokens_[i].is("esac")) {
                frames_.pop_back();
                return i + 1;
            }
            const Words words = expand(tokens_[i]);
            const std::string text = words.empty() ? "" : words[0].text;
            const bool open = !text.empty() && text.back() == '*';
            frame.outcome = frame.outcome || text == frame.subject ||
                            (open && frame.subject.rfind(text.substr(0, text.size() - 1), 0) == 0);
        } else if (tokens_[i].kind == Kind::close) {
            frame.active = frame.outcome && !frame.taken;
            frame.taken = frame.taken || frame.active;
            frame.deciding = false;
        }
        return i + 1;
    }

    // One simple command of a condition.
    void decide(const Words& words, std::size_t token) {
        Frame& frame = frames_.back();
        std::vector<std::string> parts;
        bool known = true;
        for (const CommandWord& word : words) {
            parts.push_back(word.text);
            known = known && word.unset.empty();
        }
        if (parts.empty()) {
            return;
        }
        bool negated = token > 0 && tokens_[token - 1].is("!");
        while (!parts.empty() && (parts[0] == "[" || parts[0] == "[[" || parts[0] == "test" || parts[0] == "!")) {
            negated = negated != (parts[0] == "!");
            parts.erase(parts.begin());
        }
        while (!parts.empty() && (parts.back() == "]" || parts.back() == "]]")) {
            parts.pop_back();
        }
        std::optional<bool> holds = outcome_of(parts, known);
        if (!holds) {
            const Diagnostic where = diagnostic_at(name_, text_, tokens_[std::min(token, tokens_.size() - 1)].at, "");
            out_.unsure.push_back(fmt::format("the condition of line {} as false", where.line));
            holds = false;
        } else {
            holds = *holds != negated;
        }
        frame.outcome = joint_ == Kind::both     ? frame.outcome && *holds
                        : joint_ == Kind::either ? frame.outcome || *holds
                                                 : *holds;
    }

    const std::string& text_;
    const std::string& name_;
    std::vector<ShellToken> tokens_;
    std::map<std::string, Variable> variables_;
    Words exported_;
    std::vector<Frame> frames_;
    Kind joint_ = Kind::end;
    std::optional<std::string> piped_;  ///< text of a here-document that the command before the pipe had
    bool blank_ = false;                ///< in tests, where a variable without a value is an empty word
    std::optional<std::size_t> inner_;  ///< where the script stands that is read inside of a command
    std::size_t scripts_ = 0;           ///< how deep it is in others
    std::size_t spent_ = 0;
    CommandList out_;
};

// Of a page in Markdown its blocks of shell commands; blanks stand for the rest, so that places are those of the page.
std::string without_prose(const std::string& text) {
    std::string out = text;
    bool fenced = false;
    bool kept = false;
    bool page = false;
    for (std::size_t start = 0; start < text.size();) {
        const std::size_t end = std::min(text.find('\n', start), text.size());
        const std::size_t first = std::min(text.find_first_not_of(" \t", start), end);
        const bool fence = text.compare(first, 3, "```") == 0;
        if (fence) {
            const std::string language = text.substr(first + 3, text.find_first_of(" \t\r\n{", first + 3) - first - 3);
            fenced = !fenced;
            page = true;
            kept = fenced && (language.empty() || language == "bash" || language == "sh" || language == "shell" ||
                              language == "console" || language == "zsh");
        }
        if (fence || !kept) {
            std::fill(out.begin() + static_cast<std::ptrdiff_t>(start), out.begin() + static_cast<std::ptrdiff_t>(end),
                      ' ');
        }
        start = end + 1;
    }
    return page ? out : text;
}

}  // namespace

CommandList read_shell(const std::string& text, const std::string& name,
                       const std::map<std::string, std::string>& given) {
    return Shell(without_prose(text), name, given).run();
}

std::vector<CommandWord> split_words(const CommandWord& text) {
    SplitWords words;
    words.split(text, text.at);
    words.next();
    return std::move(words.done);
}

}  // namespace orrery::imports
