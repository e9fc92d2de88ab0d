#include "workloads/imports/shell_script.hpp"

#include "sim/base/error.hpp"
#include "workloads/imports/importer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

namespace orrery::imports {

namespace {

constexpr std::size_t kMostExpanded = 1U << 24U;  // bytes of all words together: variables may hold others many times
constexpr int kDeepest = 64;                      // expansions and parentheses inside each other

bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool is_name_char(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// A part of a word under one kind of quotes; 0: none.
struct Segment {
    std::string text;
    char quote = 0;
};

struct Token {
    enum class Kind : std::uint8_t { word, end, pipe, both, either, open, close, next_case };
    Kind kind = Kind::end;
    std::vector<Segment> segments;
    std::size_t at = 0;

    [[nodiscard]] bool is(const char* literal) const {
        return kind == Kind::word && segments.size() == 1 && segments[0].quote == 0 && segments[0].text == literal;
    }
};

// Behind the `$` at `i`: the end of what it expands, with nested braces, parentheses and quotes.
std::size_t end_of_expansion(const std::string& text, std::size_t i) {
    if (i + 1 >= text.size() || (text[i + 1] != '{' && text[i + 1] != '(')) {
        std::size_t end = i + 1;
        if (end < text.size() && std::string_view("@*#?$!").find(text[end]) != std::string_view::npos) {
            return end + 1;
        }
        while (end < text.size() && is_name_char(text[end])) {
            ++end;
        }
        return end;
    }
    std::size_t depth = 0;
    for (std::size_t end = i + 1; end < text.size(); ++end) {
        const char c = text[end];
        depth += c == '{' || c == '(' ? 1 : 0;
        if ((c == '}' || c == ')') && --depth == 0) {
            return end + 1;
        }
    }
    return text.size();
}

class Lexer {
  public:
    Lexer(const std::string& text, ShellCommand& directives) : text_(text), directives_(directives) {}

    std::vector<Token> tokens() {
        while (i_ < text_.size()) {
            step();
        }
        finish();
        push(Token::Kind::end);
        return std::move(out_);
    }

  private:
    void push(Token::Kind kind) { out_.push_back({kind, {}, i_}); }
    void finish() {
        if (in_word_) {
            out_.push_back(std::move(word_));
        }
        word_ = Token();
        in_word_ = false;
    }
    void add(std::string_view text, char quote) {
        if (!in_word_) {
            word_ = Token{Token::Kind::word, {}, i_};
            in_word_ = true;
        }
        if (word_.segments.empty() || word_.segments.back().quote != quote) {
            word_.segments.push_back({"", quote});
        }
        word_.segments.back().text += text;
    }
    bool next_is(char c) const { return i_ + 1 < text_.size() && text_[i_ + 1] == c; }
    void separate(Token::Kind kind, std::size_t length) {
        finish();
        push(kind);
        i_ += length;
    }
    void expansion(char quote) {
        const std::size_t end =
            text_[i_] == '`' ? std::min(text_.find('`', i_ + 1), text_.size() - 1) + 1 : end_of_expansion(text_, i_);
        add(std::string_view(text_).substr(i_, end - i_), quote);
        i_ = end;
    }

    void double_quoted() {
        add("", '"');
        for (++i_; i_ < text_.size() && text_[i_] != '"';) {
            const char c = text_[i_];
            if (c == '\\' && i_ + 1 < text_.size()) {
                const char escaped = text_[i_ + 1];
                if (escaped == '$' || escaped == '`' || escaped == '"' || escaped == '\\') {
                    add(std::string_view(&text_[i_ + 1], 1), '\'');
                } else if (escaped != '\n') {
                    add(std::string_view(text_).substr(i_, 2), '"');
                }
                i_ += 2;
            } else if (c == '$' || c == '`') {
                expansion('"');
            } else {
                add(std::string_view(&text_[i_], 1), '"');
                ++i_;
            }
        }
        ++i_;
    }

    void comment() {
        const std::size_t end = std::min(text_.find('\n', i_), text_.size());
        if (text_.compare(i_, 7, "#SBATCH") == 0) {
            for (std::size_t at = i_ + 7; at < end;) {
                const std::size_t start = std::min(text_.find_first_not_of(" \t\r=", at), end);
                at = std::min(text_.find_first_of(" \t\r=\n", start), end);
                if (at > start) {
                    directives_.push_back({text_.substr(start, at - start), start, ""});
                }
            }
        }
        i_ = end;
    }

    // Parentheses that belong to a word: those of an array, whose words stand between an open and a close token of its own.
    void step() {
        const char c = text_[i_];
        if (c == '"') {
            double_quoted();
        } else if (c == '\'') {
            const std::size_t end = std::min(text_.find('\'', i_ + 1), text_.size());
            add(std::string_view(text_).substr(i_ + 1, end - i_ - 1), '\'');
            i_ = end + 1;
        } else if (c == '\\' && i_ + 1 < text_.size()) {
            // Spaces behind the backslash are a slip that scripts have all the same.
            const std::size_t end = text_.find_first_not_of(" \t\r", i_ + 1);
            const bool goes_on = end != std::string::npos && text_[end] == '\n';
            if (!goes_on) {
                add(std::string_view(&text_[i_ + 1], 1), '\'');
            } else if (end > i_ + 1) {
                finish();
            }
            i_ = goes_on ? end + 1 : i_ + 2;
        } else if (c == '$' || c == '`') {
            expansion(0);
        } else if (c == '#' && !in_word_) {
            comment();
        } else if (c == '\n') {
            separate(Token::Kind::end, 1);
        } else if (is_space(c)) {
            finish();
            ++i_;
        } else if (c == ';') {
            separate(next_is(';') ? Token::Kind::next_case : Token::Kind::end, next_is(';') ? 2 : 1);
        } else if (c == '&' && next_is('&')) {
            separate(Token::Kind::both, 2);
        } else if (c == '|' && next_is('|')) {
            separate(Token::Kind::either, 2);
        } else if (c == '|') {
            separate(Token::Kind::pipe, 1);
        } else if (c == '&' &&
                   !(in_word_ && !word_.segments.back().text.empty() && word_.segments.back().text.back() == '>') &&
                   !next_is('>')) {
            separate(Token::Kind::end, 1);
        } else if (c == '(' && next_is('[')) {  // a list such as ([0]*3+[1]*58), without the quotes that a shell wants
            const std::size_t end = std::min(text_.find(')', i_), text_.size() - 1) + 1;
            add(std::string_view(text_).substr(i_, end - i_), '\'');
            i_ = end;
        } else if (c == '(') {
            separate(Token::Kind::open, 1);
        } else if (c == ')') {
            separate(Token::Kind::close, 1);
        } else {
            add(std::string_view(&text_[i_], 1), 0);
            ++i_;
        }
    }

    const std::string& text_;
    ShellCommand& directives_;
    std::vector<Token> out_;
    Token word_;
    bool in_word_ = false;
    std::size_t i_ = 0;
};

struct Variable {
    std::vector<std::string> items;
    std::size_t at = 0;
    std::string unknown;
    bool used = false;
};

class Shell {
  public:
    Shell(const std::string& text, const std::string& name, const std::map<std::string, std::string>& given)
        : text_(text), name_(name) {
        for (const auto& [variable, value] : given) {
            variables_[variable] = {{value}, 0, "", true};
        }
    }

    ShellScript run() {
        tokens_ = Lexer(text_, out_.directives).tokens();
        for (std::size_t i = 0; i < tokens_.size();) {
            i = command(i);
        }
        for (const auto& [name, variable] : variables_) {
            for (const std::string& item : variable.items) {
                if (!variable.used && item.find("--") != std::string::npos) {
                    Fields fields;
                    fields.split(item, variable.at, variable.unknown);
                    append(out_.unused, fields.finish());
                }
            }
        }
        return std::move(out_);
    }

  private:
    // Words as they come out of one word: expansions outside quotes are split at spaces, unless quotes inside them hold them together.
    struct Fields {
        std::vector<ShellWord> done;
        ShellWord now;
        bool any = false;

        void add(std::string_view text, std::size_t at, const std::string& unknown) {
            now.text += text;
            now.at = at;
            any = true;
            now.unknown = now.unknown.empty() ? unknown : now.unknown;
        }
        void next() {
            if (any && now.text != "\\") {
                done.push_back(now);
            }
            now = ShellWord();
            any = false;
        }
        void split(std::string_view text, std::size_t at, const std::string& unknown) {
            now.unknown = now.unknown.empty() ? unknown : now.unknown;
            char quote = 0;
            for (std::size_t i = 0; i < text.size(); ++i) {
                const char c = text[i];
                if (quote != 0 ? c == quote
                               : (c == '"' || c == '\'') && text.find(c, i + 1) != std::string_view::npos) {
                    quote = quote != 0 ? 0 : c;
                } else if (quote == 0 && is_space(c)) {
                    next();
                } else {
                    add(std::string_view(&text[i], 1), at, unknown);
                }
            }
        }
        std::vector<ShellWord> finish() {
            if (!any && !now.unknown.empty()) {
                now.text = now.unknown;
                any = true;
            }
            next();
            return std::move(done);
        }
    };

    static void append(ShellCommand& to, std::vector<ShellWord> words) {
        to.insert(to.end(), std::make_move_iterator(words.begin()), std::make_move_iterator(words.end()));
    }

    [[noreturn]] void fail(std::size_t at, const std::string& problem) const {
        throw ConfigError({diagnostic_at(name_, text_, at, problem)});
    }

    void spend(std::size_t bytes, std::size_t at) {
        spent_ += bytes;
        if (spent_ > kMostExpanded) {
            fail(at, fmt::format("the variables of the script expand to more than {} MiB", kMostExpanded >> 20U));
        }
    }

    // What a variable holds; null where the script does not set it.
    Variable* find(const std::string& name) {
        const auto found = variables_.find(name);
        if (found == variables_.end()) {
            return nullptr;
        }
        found->second.used = true;
        return &found->second;
    }

    // What stands in braces, as items: several for ${NAME[@]}.
    struct Found {
        std::vector<std::string> items;
        std::string unknown;
    };

    Found in_braces(const std::string& inside, std::size_t at, int depth) {
        const bool length = inside.size() > 1 && inside[0] == '#';
        std::size_t end = length ? 1 : 0;
        const std::size_t start = end;
        while (end < inside.size() && is_name_char(inside[end])) {
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
            return {{}, "$" + inside};
        }
        const Variable* variable = find(name);
        if (length) {
            return {{std::to_string(variable == nullptr ? 0 : variable->items.size())}, ""};
        }
        const bool colon = !rest.empty() && rest[0] == ':';
        const char how = rest.size() > (colon ? 1U : 0U) ? rest[colon ? 1 : 0] : '\0';
        const bool set = variable != nullptr && (!colon || (!variable->items.empty() && !variable->items[0].empty()));
        const auto value = [&]() -> Found {
            if (variable == nullptr) {
                return {{}, "$" + name};
            }
            if (index == "@" || index == "*" || index.empty()) {
                const bool all = !index.empty() || variable->items.empty();
                return {all ? variable->items : std::vector<std::string>{variable->items[0]}, variable->unknown};
            }
            const std::optional<std::int64_t> number = arithmetic(index, at, depth + 1);
            const bool within = number && *number >= 0 && static_cast<std::size_t>(*number) < variable->items.size();
            return within ? Found{{variable->items[static_cast<std::size_t>(*number)]}, ""} : Found{{}, "$" + name};
        };
        if (how == '-' || how == '=') {
            if (set) {
                return value();
            }
            Found other = joined(rest.substr(colon ? 2 : 1), at, depth + 1);
            if (how == '=') {
                variables_[name] = {other.items, at, other.unknown, true};
            }
            return other;
        }
        if (how == '+') {
            return set ? joined(rest.substr(colon ? 2 : 1), at, depth + 1) : Found{{}, ""};
        }
        return value();
    }

    // A text with its expansions, as one item; quotes are taken off.
    Found joined(const std::string& text, std::size_t at, int depth) {
        std::string out;
        std::string unknown;
        for (std::size_t i = 0; i < text.size();) {
            if (text[i] == '$' || text[i] == '`') {
                std::size_t end = 0;
                const Found found = expand_at(text, i, end, at, depth);
                for (std::size_t k = 0; k < found.items.size(); ++k) {
                    spend(found.items[k].size(), at);
                    out += (k > 0 ? " " : "") + found.items[k];
                }
                unknown = unknown.empty() ? found.unknown : unknown;
                i = end;
            } else {
                if (text[i] != '"' && text[i] != '\'') {
                    out += text[i];
                }
                ++i;
            }
        }
        return {{out}, unknown};
    }

    Found expand_at(const std::string& text, std::size_t i, std::size_t& end, std::size_t at, int depth) {
        if (depth > kDeepest) {
            fail(at, fmt::format("expansions nest deeper than {} levels", kDeepest));
        }
        if (text[i] == '`') {
            end = std::min(text.find('`', i + 1), text.size() - 1) + 1;
            return {{}, text.substr(i, end - i)};
        }
        end = std::max(end_of_expansion(text, i), i + 1);
        const std::string whole = text.substr(i, end - i);
        if (whole.rfind("$((", 0) == 0) {
            const std::string inside = whole.substr(3, whole.size() > 4 ? whole.size() - 5 : 0);
            const std::optional<std::int64_t> value = arithmetic(joined(inside, at, depth + 1).items[0], at, depth + 1);
            return value ? Found{{std::to_string(*value)}, ""} : Found{{}, whole};
        }
        if (whole.rfind("$(", 0) == 0) {
            return {{}, whole};
        }
        if (whole.rfind("${", 0) == 0) {
            return in_braces(whole.substr(2, whole.size() > 2 ? whole.size() - 3 : 0), at, depth);
        }
        return whole.size() > 1 ? in_braces(whole.substr(1), at, depth) : Found{{"$"}, ""};
    }

    std::vector<ShellWord> expand(const Token& token) {
        Fields fields;
        for (const Segment& segment : token.segments) {
            if (segment.quote == '\'') {
                fields.add(segment.text, token.at, "");
                continue;
            }
            const std::string& text = segment.text;
            if (segment.quote == '"' && text.empty()) {
                fields.add("", token.at, "");
            }
            for (std::size_t i = 0; i < text.size();) {
                if (text[i] != '$' && text[i] != '`') {
                    fields.add(std::string_view(&text[i], 1), token.at, "");
                    ++i;
                    continue;
                }
                std::size_t end = 0;
                const Found found = expand_at(text, i, end, token.at, 0);
                i = end;
                for (std::size_t k = 0; k < found.items.size(); ++k) {
                    if (k > 0) {
                        fields.next();
                    }
                    spend(found.items[k].size(), token.at);
                    // A quoted item with flags inside is split all the same: arrays of "--flag value" are written for that.
                    if (segment.quote == '"' && found.items[k].find("--") == std::string::npos) {
                        fields.add(found.items[k], token.at, found.unknown);
                    } else {
                        fields.split(found.items[k], token.at, found.unknown);
                    }
                }
                if (fields.now.unknown.empty() && !found.unknown.empty()) {
                    fields.now.unknown = found.unknown;
                    fields.now.at = token.at;
                }
            }
        }
        std::vector<ShellWord> words = fields.finish();
        std::vector<ShellWord> out;
        for (ShellWord& word : words) {
            spend(word.text.size(), token.at);
            // A quoted pair ("--flag value"), or a command for bash -c.
            const bool pair = word.text.rfind('-', 0) == 0 && word.text.find_first_of(" \t\n") != std::string::npos;
            if (pair || word.text.find(" --") != std::string::npos) {
                Fields inner;
                inner.split(word.text, word.at, word.unknown);
                append(out, inner.finish());
            } else {
                out.push_back(std::move(word));
            }
        }
        return out;
    }

    // Sums and products of whole numbers and variables; nothing where the text is more than that.
    std::optional<std::int64_t> arithmetic(const std::string& text, std::size_t at, int depth) {
        std::size_t i = 0;
        const std::optional<std::int64_t> value = choice(text, i, at, depth);
        skip(text, i);
        return i == text.size() ? value : std::nullopt;
    }
    // `a > b ? c : d`, and comparisons alone.
    std::optional<std::int64_t> choice(const std::string& text, std::size_t& i, std::size_t at, int depth) {
        const std::optional<std::int64_t> condition = comparison(text, i, at, depth);
        skip(text, i);
        if (!condition || i >= text.size() || text[i] != '?') {
            return condition;
        }
        const std::optional<std::int64_t> yes = sum(text, ++i, at, depth + 1);
        skip(text, i);
        if (i >= text.size() || text[i] != ':') {
            return std::nullopt;
        }
        const std::optional<std::int64_t> no = sum(text, ++i, at, depth + 1);
        return *condition != 0 ? yes : no;
    }
    std::optional<std::int64_t> comparison(const std::string& text, std::size_t& i, std::size_t at, int depth) {
        const std::optional<std::int64_t> left = sum(text, i, at, depth);
        skip(text, i);
        const std::string two = text.substr(std::min(i, text.size()), 2);
        const bool with_equals = two == "<=" || two == ">=" || two == "==" || two == "!=";
        if (!left || (!with_equals && two.substr(0, 1) != "<" && two.substr(0, 1) != ">")) {
            return left;
        }
        i += with_equals ? 2 : 1;
        const std::optional<std::int64_t> right = sum(text, i, at, depth);
        if (!right) {
            return std::nullopt;
        }
        return two == "<="     ? *left <= *right
               : two == ">="   ? *left >= *right
               : two == "=="   ? *left == *right
               : two == "!="   ? *left != *right
               : two[0] == '<' ? *left < *right
                               : *left > *right;
    }
    static void skip(const std::string& text, std::size_t& i) {
        while (i < text.size() && is_space(text[i])) {
            ++i;
        }
    }
    std::optional<std::int64_t> sum(const std::string& text, std::size_t& i, std::size_t at, int depth) {
        std::optional<std::int64_t> left = product(text, i, at, depth);
        for (skip(text, i); left && i < text.size() && (text[i] == '+' || text[i] == '-'); skip(text, i)) {
            const char sign = text[i++];
            const std::optional<std::int64_t> right = product(text, i, at, depth);
            std::int64_t out = 0;
            if (!right || (sign == '+' ? __builtin_add_overflow(*left, *right, &out)
                                       : __builtin_sub_overflow(*left, *right, &out))) {
                return std::nullopt;
            }
            left = out;
        }
        return left;
    }
    std::optional<std::int64_t> product(const std::string& text, std::size_t& i, std::size_t at, int depth) {
        std::optional<std::int64_t> left = factor(text, i, at, depth);
        for (skip(text, i); left && i < text.size() && (text[i] == '*' || text[i] == '/' || text[i] == '%');
             skip(text, i)) {
            const char sign = text[i++];
            const std::optional<std::int64_t> right = factor(text, i, at, depth);
            std::int64_t out = 0;
            if (!right || (sign != '*' && (*right == 0 || *right == -1)) ||
                (sign == '*' && __builtin_mul_overflow(*left, *right, &out))) {
                return std::nullopt;
            }
            left = sign == '*' ? out : sign == '/' ? *left / *right : *left % *right;
        }
        return left;
    }
    std::optional<std::int64_t> factor(const std::string& text, std::size_t& i, std::size_t at, int depth) {
        skip(text, i);
        if (i >= text.size() || depth > kDeepest) {
            return std::nullopt;
        }
        if (text[i] == '-' || text[i] == '+') {
            const bool minus = text[i++] == '-';
            const std::optional<std::int64_t> value = factor(text, i, at, depth + 1);
            return value && minus && *value != INT64_MIN ? std::optional(-*value) : value;
        }
        if (text[i] == '(') {
            const std::optional<std::int64_t> value = choice(text, ++i, at, depth + 1);
            skip(text, i);
            if (i >= text.size() || text[i] != ')') {
                return std::nullopt;
            }
            ++i;
            return value;
        }
        const std::size_t start = i;
        while (i < text.size() && is_name_char(text[i])) {
            ++i;
        }
        const std::string word = text.substr(start, i - start);
        if (word.empty() || word.size() > 18) {
            return std::nullopt;
        }
        if (std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; })) {
            return std::stoll(word);
        }
        const Variable* variable = find(word);
        return variable != nullptr && !variable->items.empty() ? arithmetic(variable->items[0], at, depth + 1)
                                                               : std::nullopt;
    }

    // ---- commands ----

    struct Frame {
        enum class Kind : std::uint8_t { condition, choice } kind = Kind::condition;
        bool active = true;
        bool taken = false;
        bool deciding = false;  ///< between `if` and `then`, or between `;;` and `)`
        bool outcome = false;   ///< of what has been decided so far
        std::string subject;    ///< of a case
    };

    [[nodiscard]] bool active() const {
        return std::all_of(frames_.begin(), frames_.end(), [](const Frame& f) { return f.active; });
    }

    // `NAME=`, `NAME+=`, `NAME[3]=`: the length of the name, or 0.
    static std::size_t assigned_name(const Token& token) {
        if (token.kind != Token::Kind::word || token.segments.empty() || token.segments[0].quote != 0) {
            return 0;
        }
        const std::string& text = token.segments[0].text;
        std::size_t end = 0;
        while (end < text.size() && is_name_char(text[end])) {
            ++end;
        }
        const bool plain = end > 0 && end < text.size() && std::isdigit(static_cast<unsigned char>(text[0])) == 0;
        return plain && (text[end] == '=' || text.compare(end, 2, "+=") == 0) ? end : 0;
    }

    // An assignment at token i; gives the token after it.
    std::size_t assign(std::size_t i) {
        Token token = tokens_[i++];
        const std::size_t length = assigned_name(token);
        std::string& text = token.segments[0].text;
        const std::string name = text.substr(0, length);
        const bool adds = text[length] == '+';
        text.erase(0, length + (adds ? 2 : 1));
        Variable value;
        value.at = token.at;
        const bool empty = text.empty() && token.segments.size() == 1;
        if (empty && i < tokens_.size() && tokens_[i].kind == Token::Kind::open) {
            for (++i; i < tokens_.size() && tokens_[i].kind != Token::Kind::close; ++i) {
                for (const ShellWord& word :
                     tokens_[i].kind == Token::Kind::word ? expand(tokens_[i]) : ShellCommand()) {
                    value.items.push_back(word.text);
                }
            }
            i = std::min(i + 1, tokens_.size());
        } else {
            std::string whole;
            for (const Segment& segment : token.segments) {
                if (segment.quote == '\'') {
                    whole += segment.text;
                    continue;
                }
                for (std::size_t k = 0; k < segment.text.size();) {
                    if (segment.text[k] != '$' && segment.text[k] != '`') {
                        whole += segment.text[k++];
                        continue;
                    }
                    std::size_t end = 0;
                    const Found found = expand_at(segment.text, k, end, token.at, 0);
                    k = end;
                    for (std::size_t n = 0; n < found.items.size(); ++n) {
                        spend(found.items[n].size(), token.at);
                        whole += (n > 0 ? " " : "") + found.items[n];
                    }
                    whole += found.items.empty() ? found.unknown : "";
                    value.unknown = value.unknown.empty() ? found.unknown : value.unknown;
                }
            }
            if (adds) {
                if (const Variable* before = find(name); before != nullptr && !before->items.empty()) {
                    whole = before->items[0] + whole;
                    spend(whole.size(), token.at);
                }
            }
            value.items = {whole};
            if (whole == value.unknown && !whole.empty() && variables_.contains(name)) {
                return i;  // a variable that only the environment sets leaves the earlier value as it is
            }
            variables_[name] = std::move(value);
            return i;
        }
        if (adds) {
            if (const Variable* before = find(name)) {
                value.items.insert(value.items.begin(), before->items.begin(), before->items.end());
            }
        }
        variables_[name] = std::move(value);
        return i;
    }

    static bool ends(const Token& token) { return token.kind != Token::Kind::word; }

    // Reads tokens from i to the end of one simple command, with what keywords before it say.
    std::size_t command(std::size_t i) {
        if (!frames_.empty() && frames_.back().kind == Frame::Kind::choice && frames_.back().deciding) {
            return pattern(i);
        }
        while (i < tokens_.size() && !ends(tokens_[i])) {
            const std::size_t after = keyword(i);
            if (after == i) {
                break;
            }
            i = after;
            if (!frames_.empty() && frames_.back().kind == Frame::Kind::choice && frames_.back().deciding) {
                return i;
            }
        }
        ShellCommand words;
        const bool deciding = !frames_.empty() && frames_.back().deciding;
        const std::size_t start = i;
        bool only_assignments = true;
        while (i < tokens_.size() && !ends(tokens_[i])) {
            const bool array = i + 1 < tokens_.size() && tokens_[i + 1].kind == Token::Kind::open;
            if (only_assignments && assigned_name(tokens_[i]) > 0) {
                if (active()) {
                    i = assign(i);
                } else {
                    i = array ? past_close(i + 1) : i + 1;
                }
                continue;
            }
            const bool declares = tokens_[i].is("export") || tokens_[i].is("declare") || tokens_[i].is("local") ||
                                  tokens_[i].is("readonly") || tokens_[i].is("typeset");
            const bool option =
                i > start && only_assignments && tokens_[i].segments[0].text.rfind('-', 0) == 0 &&
                (tokens_[i].is("-a") || tokens_[i].is("-x") || tokens_[i].is("-r") || tokens_[i].is("-i"));
            if (only_assignments && (declares || option)) {
                ++i;
                continue;
            }
            only_assignments = false;
            if (active() || deciding) {
                append(words, expand(tokens_[i]));
            }
            ++i;
        }
        if (deciding) {
            decide(words, start);
        } else if (active() && !words.empty()) {
            // A line that starts with a flag goes on with the command before it, whose backslash somebody forgot.
            if (words[0].text.rfind("--", 0) == 0 && !out_.commands.empty() && joint_ == Token::Kind::end) {
                append(out_.commands.back(), std::move(words));
            } else {
                out_.commands.push_back(std::move(words));
            }
        }
        if (i < tokens_.size()) {
            joint_ = tokens_[i].kind;
            if (joint_ == Token::Kind::next_case && !frames_.empty() && frames_.back().kind == Frame::Kind::choice) {
                frames_.back().deciding = true;
                frames_.back().active = false;
                frames_.back().outcome = false;
            }
            ++i;
        }
        return i;
    }

    std::size_t past_close(std::size_t i) const {
        while (i < tokens_.size() && tokens_[i].kind != Token::Kind::close) {
            ++i;
        }
        return std::min(i + 1, tokens_.size());
    }

    // The token after a keyword at i, or i itself.
    std::size_t keyword(std::size_t i) {
        const Token& token = tokens_[i];
        for (const char* plain : {"do", "done", "while", "until", "time", "{", "}", "eval", "exec", "!", "function"}) {
            if (token.is(plain)) {
                return i + 1;
            }
        }
        if (token.is("if")) {
            if (frames_.size() > kDeepest) {
                fail(token.at, fmt::format("conditions nest deeper than {} levels", kDeepest));
            }
            frames_.push_back({Frame::Kind::condition, active(), false, true, false, ""});
            joint_ = Token::Kind::end;
            return i + 1;
        }
        if (token.is("case")) {
            if (frames_.size() > kDeepest) {
                fail(token.at, fmt::format("conditions nest deeper than {} levels", kDeepest));
            }
            const bool word = i + 1 < tokens_.size() && tokens_[i + 1].kind == Token::Kind::word;
            const ShellCommand subject = word ? expand(tokens_[i + 1]) : ShellCommand();
            frames_.push_back({Frame::Kind::choice, false, false, true, false, subject.empty() ? "" : subject[0].text});
            for (i += 2; i < tokens_.size() && (tokens_[i].is("in") || tokens_[i].kind == Token::Kind::end); ++i) {
            }
            return std::min(i, tokens_.size());
        }
        if (token.is("for")) {
            return loop(i);
        }
        if (frames_.empty() || frames_.back().kind != Frame::Kind::condition) {
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
            joint_ = Token::Kind::end;
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
        const Token* name = i + 1 < tokens_.size() ? &tokens_[i + 1] : nullptr;
        const bool listed = i + 3 < tokens_.size() && tokens_[i + 2].is("in") && !ends(tokens_[i + 3]);
        if (name != nullptr && !ends(*name) && listed && active()) {
            const ShellCommand first = expand(tokens_[i + 3]);
            if (!first.empty()) {
                variables_[name->segments[0].text] = {{first[0].text}, name->at, first[0].unknown, true};
            }
        }
        while (i < tokens_.size() && !ends(tokens_[i])) {
            ++i;
        }
        return i;
    }

    // One pattern of a case, or its `esac`.
    std::size_t pattern(std::size_t i) {
        Frame& frame = frames_.back();
        if (tokens_[i].kind == Token::Kind::word) {
            if (tokens_[i].is("esac")) {
                frames_.pop_back();
                return i + 1;
            }
            const ShellCommand words = expand(tokens_[i]);
            const std::string text = words.empty() ? "" : words[0].text;
            const bool open = !text.empty() && text.back() == '*';
            frame.outcome = frame.outcome || text == frame.subject ||
                            (open && frame.subject.rfind(text.substr(0, text.size() - 1), 0) == 0);
        } else if (tokens_[i].kind == Token::Kind::close) {
            frame.active = frame.outcome && !frame.taken;
            frame.taken = frame.taken || frame.active;
            frame.deciding = false;
        }
        return i + 1;
    }

    // One simple command of a condition: a test, of which only comparisons are understood.
    void decide(const ShellCommand& words, std::size_t token) {
        Frame& frame = frames_.back();
        std::vector<std::string> parts;
        bool known = true;
        for (const ShellWord& word : words) {
            parts.push_back(word.text == word.unknown ? "" : word.text);
            known = known && word.unknown.empty();
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
        frame.outcome = joint_ == Token::Kind::both     ? frame.outcome && *holds
                        : joint_ == Token::Kind::either ? frame.outcome || *holds
                                                        : *holds;
    }

    static std::optional<bool> outcome_of(const std::vector<std::string>& parts, bool known) {
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

    const std::string& text_;
    const std::string& name_;
    std::vector<Token> tokens_;
    std::map<std::string, Variable> variables_;
    std::vector<Frame> frames_;
    Token::Kind joint_ = Token::Kind::end;
    std::size_t spent_ = 0;
    ShellScript out_;
};

}  // namespace

ShellScript read_shell_script(const std::string& text, const std::string& name,
                              const std::map<std::string, std::string>& given) {
    return Shell(text, name, given).run();
}

}  // namespace orrery::imports
