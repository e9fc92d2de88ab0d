#include "workloads/imports/shell_lexer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace orrery::imports {

namespace {

class Lexer {
  public:
    using Fail = std::function<void(std::size_t, const std::string&)>;
    Lexer(const std::string& text, std::vector<CommandWord>& directives, const Fail& fail)
        : text_(text), directives_(directives), fail_(fail) {}

    std::vector<ShellToken> tokens() {
        while (i_ < text_.size()) {
            step();
        }
        finish();
        push(ShellToken::Kind::end);
        return std::move(out_);
    }

  private:
    void push(ShellToken::Kind kind) { out_.push_back({kind, {}, i_}); }
    void finish() {
        if (in_word_) {
            word_.kind = next_word_;
            if (next_word_ == ShellToken::Kind::here) {
                here_.push_back(out_.size());
            }
            out_.push_back(std::move(word_));
            next_word_ = ShellToken::Kind::word;
        }
        word_ = ShellToken();
        in_word_ = false;
    }
    void add(std::string_view text, char quote) {
        if (!in_word_) {
            word_ = ShellToken{ShellToken::Kind::word, {}, i_};
            in_word_ = true;
        }
        if (word_.segments.empty() || word_.segments.back().quote != quote) {
            word_.segments.push_back({"", quote});
        }
        word_.segments.back().text += text;
    }
    [[nodiscard]] bool next_is(char c) const { return i_ + 1 < text_.size() && text_[i_ + 1] == c; }
    void separate(ShellToken::Kind kind, std::size_t length) {
        finish();
        next_word_ = ShellToken::Kind::word;
        push(kind);
        i_ += length;
    }
    void expansion(char quote) {
        const std::size_t end =
            text_[i_] == '`' ? std::min(text_.find('`', i_ + 1), text_.size() - 1) + 1 : end_of_expansion(text_, i_);
        add(std::string_view(text_).substr(i_, end - i_), quote);
        i_ = end;
    }

    void single_quoted() {
        const std::size_t end = text_.find('\'', i_ + 1);
        if (end == std::string::npos) {
            fail_(i_, "the quote ' does not end");
        }
        add(std::string_view(text_).substr(i_ + 1, end - i_ - 1), '\'');
        i_ = end + 1;
    }

    void double_quoted() {
        const std::size_t start = i_;
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
        if (i_ >= text_.size()) {
            fail_(start, "the quote \" does not end");
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

    void escape() {
        // Spaces behind the backslash are a slip that scripts have all the same.
        const std::size_t end = text_.find_first_not_of(" \t\r", i_ + 1);
        const bool goes_on = end == std::string::npos || text_[end] == '\n';
        if (!goes_on) {
            add(std::string_view(&text_[i_ + 1], 1), '\'');
            i_ += 2;
            return;
        }
        if (end != i_ + 1) {
            finish();
        }
        i_ = end == std::string::npos ? text_.size() : end + 1;
    }

    void redirection() {
        const std::size_t end = text_.find('>', i_);
        if (text_[i_] == '<' && end != std::string::npos && end > i_ + 1 &&
            std::all_of(text_.begin() + static_cast<std::ptrdiff_t>(i_) + 1,
                        text_.begin() + static_cast<std::ptrdiff_t>(end),
                        [](char c) { return is_shell_name(c) || c == '-' || c == '.' || c == '/'; })) {
            add(std::string_view(text_).substr(i_, end + 1 - i_), '<');
            i_ = end + 1;
            return;
        }
        const bool number = in_word_ && word_.segments.size() == 1 && word_.segments[0].quote == 0 &&
                            word_.segments[0].text.size() == 1 &&
                            std::isdigit(static_cast<unsigned char>(word_.segments[0].text[0])) != 0;
        in_word_ = in_word_ && !number;  // 2>
        finish();
        const bool here = text_.compare(i_, 2, "<<") == 0 && text_.compare(i_, 3, "<<<") != 0;
        while (i_ < text_.size() && (text_[i_] == '<' || text_[i_] == '>' || text_[i_] == '&')) {
            ++i_;
        }
        i_ += here && i_ < text_.size() && text_[i_] == '-' ? 1 : 0;
        next_word_ = here ? ShellToken::Kind::here : ShellToken::Kind::redirect;
    }

    // The texts of here-documents, which start on the line behind their command. Their delimiters stand in the tokens so far.
    void here_documents() {
        for (const std::size_t token : here_) {
            std::string delimiter;
            bool quoted = false;
            for (const ShellSegment& segment : out_[token].segments) {
                delimiter += segment.text;
                quoted = quoted || segment.quote != 0;
            }
            std::string body;
            while (i_ < text_.size()) {
                const std::size_t end = std::min(text_.find('\n', i_), text_.size());
                const std::string line = text_.substr(i_, end - i_);
                i_ = std::min(end + 1, text_.size());
                const std::size_t first = std::min(line.find_first_not_of(" \t"), line.size());
                if (line.substr(first, line.find_last_not_of('\r') + 1 - first) == delimiter) {
                    break;
                }
                body += line + "\n";
            }
            out_[token].segments = {{body, quoted ? '\'' : '"'}};
        }
        here_.clear();
    }

    // Parentheses that belong to a word: those of an array, whose words stand between an open and a close token of its own.
    void step() {
        const char c = text_[i_];
        if (c == '"') {
            double_quoted();
        } else if (c == '\'') {
            single_quoted();
        } else if (c == '\\') {
            escape();
        } else if (c == '$' || c == '`') {
            expansion(0);
        } else if (c == '#' && !in_word_) {
            comment();
        } else if (c == '\n') {
            separate(ShellToken::Kind::end, 1);
            here_documents();
        } else if (is_shell_space(c)) {
            finish();
            ++i_;
        } else if (c == '<' || c == '>' || (c == '&' && next_is('>'))) {
            redirection();
        } else if (c == ';') {
            separate(next_is(';') ? ShellToken::Kind::next_case : ShellToken::Kind::end, next_is(';') ? 2 : 1);
        } else if (c == '&' && next_is('&')) {
            separate(ShellToken::Kind::both, 2);
        } else if (c == '|' && next_is('|')) {
            separate(ShellToken::Kind::either, 2);
        } else if (c == '|') {
            separate(ShellToken::Kind::pipe, 1);
        } else if (c == '&') {
            separate(ShellToken::Kind::end, 1);
        } else if (c == '(' && next_is('[')) {  // a list such as ([0]*3+[1]*58), without the quotes that a shell wants
            const std::size_t end = std::min(text_.find(')', i_), text_.size() - 1) + 1;
            add(std::string_view(text_).substr(i_, end - i_), '\'');
            i_ = end;
        } else if (c == '(') {
            separate(ShellToken::Kind::open, 1);
        } else if (c == ')') {
            separate(ShellToken::Kind::close, 1);
        } else {
            add(std::string_view(&text_[i_], 1), 0);
            ++i_;
        }
    }

    const std::string& text_;
    std::vector<CommandWord>& directives_;
    const Fail& fail_;
    std::vector<ShellToken> out_;
    ShellToken word_;
    bool in_word_ = false;
    ShellToken::Kind next_word_ = ShellToken::Kind::word;  ///< what the next word is, by the operator before it
    std::vector<std::size_t> here_;                        ///< tokens of here-documents whose text comes
    std::size_t i_ = 0;
};

}  // namespace

bool is_shell_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool is_shell_name(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

std::size_t end_of_expansion(const std::string& text, std::size_t i) {
    if (i + 1 >= text.size() || (text[i + 1] != '{' && text[i + 1] != '(')) {
        std::size_t end = i + 1;
        if (end < text.size() && std::string_view("@*#?$!").find(text[end]) != std::string_view::npos) {
            return end + 1;
        }
        while (end < text.size() && is_shell_name(text[end])) {
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

std::vector<ShellToken> shell_tokens(const std::string& text, std::vector<CommandWord>& directives,
                                     const std::function<void(std::size_t, const std::string&)>& fail) {
    return Lexer(text, directives, fail).tokens();
}

}  // namespace orrery::imports
