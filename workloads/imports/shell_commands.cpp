#include "workloads/imports/shell_commands.hpp"

#include "sim/base/error.hpp"
#include "sim/config/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>

namespace orrery::imports {

namespace {

constexpr std::size_t kMostExpanded = 1U << 24U;  // bytes of all words together: variables may hold others many times

bool is_name_character(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// Bytes of the name of a variable that a word sets; 0 where it sets none.
std::size_t assigned_name(const std::string& word) {
    const std::size_t equals = word.find('=');
    const bool named = equals != std::string::npos && equals > 0 &&
                       std::isdigit(static_cast<unsigned char>(word[0])) == 0 &&
                       std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals), is_name_character);
    return named ? equals : 0;
}

using ShellVariables = std::map<std::string, std::vector<CommandWord>>;

// A sum of whole numbers and variables, as in $((2 * N + 1)).
class Arithmetic {
  public:
    Arithmetic(const std::string& text, const ShellVariables& variables) : text_(text), variables_(variables) {}

    // None for anything else, and for numbers beyond 1e15.
    std::optional<std::int64_t> value() {
        const double out = sum(0);
        skip();
        return good_ && at_ == text_.size() && std::abs(out) < 1e15 ? std::optional(static_cast<std::int64_t>(out))
                                                                    : std::nullopt;
    }

  private:
    void skip() { at_ = std::min(text_.find_first_not_of(" \t\n", at_), text_.size()); }
    bool take(char c) {
        skip();
        const bool found = at_ < text_.size() && text_[at_] == c;
        at_ += found ? 1 : 0;
        return found;
    }
    double sum(int depth) {
        double out = product(depth);
        while (good_) {
            if (take('+')) {
                out += product(depth);
            } else if (take('-')) {
                out -= product(depth);
            } else {
                break;
            }
        }
        return out;
    }
    double product(int depth) {
        double out = factor(depth);
        while (good_) {
            if (take('*')) {
                out *= factor(depth);
            } else if (take('/') || (at_ < text_.size() && text_[at_] == '%')) {
                const bool rest = text_[at_ - 1] != '/';
                at_ += rest ? 1 : 0;
                const double by = factor(depth);
                good_ = good_ && by != 0;
                out = !good_ ? 0 : rest ? std::fmod(out, by) : std::trunc(out / by);
            } else {
                break;
            }
        }
        return out;
    }
    double factor(int depth) {
        good_ = good_ && depth < 64;
        if (good_ && take('(')) {
            const double out = sum(depth + 1);
            good_ = take(')') && good_;
            return out;
        }
        skip();
        while (at_ < text_.size() && (text_[at_] == '$' || text_[at_] == '{')) {
            ++at_;
        }
        const std::size_t start = at_;
        while (at_ < text_.size() && is_name_character(text_[at_])) {
            ++at_;
        }
        std::string word = text_.substr(start, at_ - start);
        at_ += at_ < text_.size() && text_[at_] == '}' ? 1 : 0;
        if (const auto found = variables_.find(word); found != variables_.end() && found->second.size() == 1) {
            word = found->second[0].text;
        }
        double out = 0;
        good_ = good_ && parse_number(word, out) && out == std::floor(out);
        return out;
    }

    const std::string& text_;
    const ShellVariables& variables_;
    std::size_t at_ = 0;
    bool good_ = true;
};

class ShellReader {
  public:
    ShellReader(const std::string& text, const std::string& name) : text_(text), name_(name) {}

    CommandList read() {
        while (at_ < text_.size()) {
            step();
        }
        finish_command();
        return std::move(out_);
    }

  private:
    void step() {
        const char c = text_[at_];
        if (!in_word_) {
            word_.at = at_;
        }
        if (c == '\'') {
            in_word_ = true;
            const std::size_t end = closing(c);
            append(text_.substr(at_ + 1, end - at_ - 1));
            at_ = end + 1;
        } else if (c == '"') {
            in_word_ = true;
            read_quoted();
        } else if (c == '\\') {
            read_escape();
        } else if (c == '#' && !in_word_) {
            at_ = std::min(text_.find('\n', at_), text_.size());
        } else if (c == '$') {
            read_variable(false);
        } else if (c == ' ' || c == '\t' || c == '\r') {
            finish_word();
            ++at_;
        } else if (c == '<' || c == '>') {
            read_redirection();
        } else if (c == '\n' || c == ';' || c == '&' || c == '|' || c == '`') {
            finish_word();
            if (c == '\n' && array_.empty()) {
                finish_command();
                ++at_;
                read_here_documents();
                return;
            }
            if (array_.empty()) {
                finish_command();
            }
            ++at_;
        } else if (c == '(' || c == ')') {
            read_parenthesis(c);
        } else {
            in_word_ = true;
            append(std::string(1, c));
            ++at_;
        }
    }

    [[nodiscard]] std::size_t closing(char quote) const {
        const std::size_t end = text_.find(quote, at_ + 1);
        if (end == std::string::npos) {
            throw ConfigError({diagnostic_at(name_, text_, at_, fmt::format("the quote {} does not end", quote))});
        }
        return end;
    }

    void read_quoted() {
        const std::size_t start = at_++;
        while (at_ < text_.size() && text_[at_] != '"') {
            if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
                const char next = text_[at_ + 1];
                const bool escapes = next == '"' || next == '\\' || next == '$' || next == '`';
                append(next == '\n' ? "" : escapes ? std::string(1, next) : std::string{'\\', next});
                at_ += 2;
            } else if (text_[at_] == '$') {
                read_variable(true);
            } else {
                append(std::string(1, text_[at_++]));
            }
        }
        if (at_ == text_.size()) {
            throw ConfigError({diagnostic_at(name_, text_, start, "the quote \" does not end")});
        }
        ++at_;
    }

    void read_escape() {
        std::size_t next = at_ + 1;
        while (next < text_.size() && (text_[next] == '\r' || text_[next] == ' ' || text_[next] == '\t')) {
            ++next;
        }
        if (next == text_.size() || text_[next] == '\n') {  // the line goes on, also behind blanks that a page left
            finish_word();
            at_ = std::min(next + 1, text_.size());
        } else {
            in_word_ = true;
            append(std::string(1, text_[at_ + 1]));
            at_ += 2;
        }
    }

    // $NAME, ${NAME...} or $(...).
    void read_variable(bool quoted) {
        const std::size_t start = at_++;
        in_word_ = in_word_ || !quoted;
        if (text_.compare(at_, 2, "((") == 0) {
            const std::size_t end = text_.find("))", at_);
            const std::string sum = end == std::string::npos ? "" : text_.substr(at_ + 2, end - at_ - 2);
            if (const std::optional<std::int64_t> value = Arithmetic(sum, variables_).value()) {
                append(std::to_string(*value));
                at_ = end + 2;
                return;
            }
        }
        if (at_ < text_.size() && text_[at_] == '(') {
            int depth = 0;
            do {
                depth += text_[at_] == '(' ? 1 : text_[at_] == ')' ? -1 : 0;
                ++at_;
            } while (at_ < text_.size() && depth > 0);
            leave(text_.substr(start, at_ - start), "$(...)");
            return;
        }
        const bool braces = at_ < text_.size() && text_[at_] == '{';
        at_ += braces ? 1 : 0;
        const std::size_t name_start = at_;
        while (at_ < text_.size() && is_name_character(text_[at_])) {
            ++at_;
        }
        const std::string name = text_.substr(name_start, at_ - name_start);
        std::string rest;
        if (braces) {
            const std::size_t end = std::min(text_.find('}', at_), text_.size());
            rest = text_.substr(at_, end - at_);
            at_ = std::min(end + 1, text_.size());
        }
        const auto found = variables_.find(name);
        if (found != variables_.end()) {
            insert(found->second, quoted, rest.rfind("[@]", 0) == 0);
        } else if (rest.rfind(":-", 0) == 0 || (rest.size() > 1 && rest[0] == '-')) {
            append(rest.substr(rest[0] == ':' ? 2 : 1));
        } else if (name.empty()) {
            append(text_.substr(start, at_ - start));
        } else {
            leave(text_.substr(start, at_ - start), name);
        }
    }

    // Of a quoted variable one word, unless it is all words of an array.
    void insert(const std::vector<CommandWord>& values, bool quoted, bool all) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (i > 0 && quoted && !all) {
                append(" ");
            } else if (i > 0) {
                finish_word();
                in_word_ = true;
            }
            if (quoted) {
                append(values[i].text);
            } else {
                for (const char c : values[i].text) {
                    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
                        finish_word();
                    } else {
                        in_word_ = true;
                        append(std::string(1, c));
                    }
                }
            }
            word_.unset = word_.unset.empty() ? values[i].unset : word_.unset;
        }
        if (!quoted && values.size() == 1 && values[0].text.empty() && word_.text.empty()) {
            in_word_ = false;
        }
    }

    void leave(const std::string& text, const std::string& name) {
        in_word_ = true;
        append(text);
        word_.unset = word_.unset.empty() ? name : word_.unset;
    }

    void read_redirection() {
        // <name> is a place to fill in, as pages write it.
        const std::size_t end = text_.find('>', at_);
        if (text_[at_] == '<' && end != std::string::npos && end > at_ + 1 &&
            std::all_of(text_.begin() + static_cast<std::ptrdiff_t>(at_) + 1,
                        text_.begin() + static_cast<std::ptrdiff_t>(end),
                        [](char c) { return is_name_character(c) || c == '-' || c == '.' || c == '/'; })) {
            leave(text_.substr(at_, end + 1 - at_), text_.substr(at_, end + 1 - at_));
            at_ = end + 1;
            return;
        }
        if (word_.text.size() == 1 && std::isdigit(static_cast<unsigned char>(word_.text[0])) != 0) {
            word_ = {};  // 2>
            in_word_ = false;
        }
        finish_word();
        const bool here = text_.compare(at_, 2, "<<") == 0 && text_.compare(at_, 3, "<<<") != 0;
        while (at_ < text_.size() && (text_[at_] == '<' || text_[at_] == '>' || text_[at_] == '&')) {
            ++at_;
        }
        if (here && at_ < text_.size() && text_[at_] == '-') {
            ++at_;
        }
        redirects_ = here ? Redirect::here : Redirect::file;
    }

    void read_parenthesis(char c) {
        if (c == '(' && in_word_ && assigned_name(word_.text) + 1 == word_.text.size() && word_.text.size() > 1) {
            array_ = word_.text.substr(0, word_.text.size() - 1);
            variables_[array_].clear();
            word_ = {};
            in_word_ = false;
        } else {
            finish_word();
            if (array_.empty()) {
                finish_command();
            }
            array_.clear();
        }
        ++at_;
    }

    void append(const std::string& text) {
        word_.text += text;
        expanded_ += text.size();
        if (expanded_ > kMostExpanded) {
            throw ConfigError({diagnostic_at(
                name_, text_, at_,
                fmt::format("the variables of the script expand to more than {} MiB", kMostExpanded >> 20U))});
        }
    }

    void finish_word() {
        if (in_word_) {
            if (redirects_ == Redirect::file) {
                target_ = word_.text;
            } else if (redirects_ == Redirect::here) {
                delimiter_ = word_.text;
            } else if (!array_.empty()) {
                variables_[array_].push_back(word_);
            } else {
                command_.words.push_back(word_);
            }
            redirects_ = Redirect::none;
        }
        word_ = {};
        word_.at = at_;
        in_word_ = false;
    }

    void finish_command() {
        finish_word();
        std::vector<CommandWord>& words = command_.words;
        if (words.size() > 3 && words[0].text == "for" && words[2].text == "in" && words[3].unset.empty()) {
            variables_[words[1].text] = {words[3]};
            out_.loops.push_back(
                fmt::format("{}={}, the first of {} in a loop", words[1].text, words[3].text, words.size() - 3));
            words.clear();
        }
        const bool exports = !words.empty() && (words[0].text == "export" || words[0].text == "set");
        if (exports) {
            words.erase(words.begin());
        }
        const auto command = std::find_if(words.begin(), words.end(),
                                          [](const CommandWord& word) { return assigned_name(word.text) == 0; });
        const bool sets = command == words.end() || exports;
        std::vector<CommandWord> environment = exported_;
        for (auto word = words.begin(); word != command; ++word) {
            if (sets) {
                const std::size_t equals = assigned_name(word->text);
                variables_[word->text.substr(0, equals)] = {{word->text.substr(equals + 1), word->at, word->unset}};
            }
            (exports ? exported_ : environment).push_back(*word);
        }
        words.erase(words.begin(), command);
        while (!words.empty() && (words[0].text == "$" || words[0].text == "%")) {
            words.erase(words.begin());  // the prompt of a shell
        }
        if (!sets && !words.empty()) {
            command_.environment = std::move(environment);
            out_.commands.push_back(std::move(command_));
        }
        command_ = {};
    }

    void read_here_documents() {
        if (delimiter_.empty()) {
            target_.clear();
            return;
        }
        std::string body;
        while (at_ < text_.size()) {
            const std::size_t end = std::min(text_.find('\n', at_), text_.size());
            std::string line = text_.substr(at_, end - at_);
            at_ = std::min(end + 1, text_.size());
            if (line.substr(std::min(line.find_first_not_of(" \t"), line.size())) == delimiter_) {
                break;
            }
            body += line + "\n";
        }
        if (target_.empty() && !out_.commands.empty()) {  // tee FILE <<EOF
            target_ = out_.commands.back().words.back().text;
        }
        out_.files[target_] = body;
        delimiter_.clear();
        target_.clear();
    }

    enum class Redirect { none, file, here };

    const std::string& text_;
    const std::string& name_;
    std::size_t at_ = 0;
    CommandWord word_;
    bool in_word_ = false;
    Redirect redirects_ = Redirect::none;
    std::string array_;  ///< the array whose words are read; empty: none
    std::string target_, delimiter_;
    std::size_t expanded_ = 0;
    CommandCall command_;
    std::vector<CommandWord> exported_;
    ShellVariables variables_;
    CommandList out_;
};

// The script that a command gives a shell, as in bash -c 'vllm serve ...'; null where there is none.
const CommandWord* script_in(const CommandCall& command) {
    for (std::size_t i = 1; i + 1 < command.words.size(); ++i) {
        const std::string shell = command.words[i - 1].text.substr(command.words[i - 1].text.rfind('/') + 1);
        const std::string& option = command.words[i].text;
        if ((shell == "sh" || shell == "bash" || shell == "zsh") && option.size() < 5 && option[0] == '-' &&
            option.back() == 'c' && command.words[i + 1].text.find_first_of(" \n") != std::string::npos) {
            return &command.words[i + 1];
        }
    }
    return nullptr;
}

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

CommandList read_shell(const std::string& text, const std::string& name) {
    const std::string commands = without_prose(text);
    CommandList out = ShellReader(commands, name).read();
    const std::vector<CommandCall> outer = std::move(out.commands);
    out.commands.clear();
    for (const CommandCall& command : outer) {
        const CommandWord* script = script_in(command);
        if (script == nullptr) {
            out.commands.push_back(command);
            continue;
        }
        for (CommandCall& inner : ShellReader(script->text, name).read().commands) {
            for (auto* words : {&inner.words, &inner.environment}) {
                for (CommandWord& word : *words) {
                    word.at = script->at;
                }
            }
            inner.environment.insert(inner.environment.begin(), command.environment.begin(), command.environment.end());
            out.commands.push_back(std::move(inner));
        }
    }
    return out;
}

}  // namespace orrery::imports
