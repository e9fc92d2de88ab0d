#include "workloads/imports/shell_script.hpp"

#include "sim/base/error.hpp"
#include "workloads/imports/importer.hpp"
#include "workloads/imports/shell_expansion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <utility>

namespace orrery::imports {

namespace {

using Kind = ShellToken::Kind;
using Words = std::vector<CommandWord>;

constexpr std::size_t kDeepestCondition = 64;  // conditions inside each other
constexpr std::size_t kDeepestScript = 8;      // scripts inside of commands inside of each other

void append(Words& to, Words words) {
    to.insert(to.end(), std::make_move_iterator(words.begin()), std::make_move_iterator(words.end()));
}

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
        : text_(text),
          name_(name),
          words_([this](std::size_t at, const std::string& problem) { fail(at, problem); },
                 [this](std::size_t at, const std::string& script) { run_inner(script, at); }) {
        for (const auto& [variable, value] : given) {
            words_.variables[variable] = {{{value, 0, ""}}, 0, true};
        }
    }

    CommandList run() {
        run_text(text_);
        for (const auto& [name, variable] : words_.variables) {
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
        const bool blank = std::exchange(words_.blank, false);
        const std::optional<std::size_t> inner = std::exchange(inner_, at);
        run_text(text);
        inner_ = inner;
        words_.blank = blank;
        joint_ = joint;
        frames_ = std::move(frames);
        tokens_ = std::move(tokens);
        --scripts_;
    }

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
        const ShellVariable* before = adds ? words_.find(name) : nullptr;
        ShellVariable value;
        value.at = token.at;
        if (array) {
            value.items = before == nullptr ? Words() : before->items;
            for (++i; i < tokens_.size() && tokens_[i].kind != Kind::close; ++i) {
                append(value.items, tokens_[i].kind == Kind::word ? words_.expand(tokens_[i]) : Words());
            }
            i = std::min(i + 1, tokens_.size());
        } else {
            CommandWord whole = words_.scalar(token);
            if (!whole.unset.empty() && token.segments.size() < 3 && whole.text == token.segments.back().text &&
                words_.variables.contains(name)) {
                return i;  // a variable that only the environment sets leaves the earlier value as it is
            }
            if (before != nullptr && !before->items.empty()) {
                whole.text.insert(0, before->items[0].text);
                whole.unset = before->items[0].unset.empty() ? whole.unset : before->items[0].unset;
                words_.spend(whole.text.size(), token.at);
            }
            value.items = {whole};
        }
        if (exports && value.items.size() == 1) {
            add_export(name, {name + "=" + value.items[0].text, token.at, value.items[0].unset});
        }
        words_.variables[name] = std::move(value);
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

    // The last value of a name is the one that counts.
    void add_export(const std::string& name, CommandWord word) {
        const auto [found, added] = places_.try_emplace(name, exported_.size());
        if (added) {
            exported_.push_back(std::move(word));
        } else {
            exported_[found->second] = std::move(word);
        }
    }

    // export, declare and the like from i on; gives the end of the command.
    std::size_t declare(std::size_t i) {
        const bool exports = tokens_[i].is("export") || tokens_[i].is("set");
        for (++i; i < tokens_.size() && !tokens_[i].ends();) {
            if (assigned_name(tokens_[i]) == 0) {
                const std::string name = tokens_[i].segments.size() == 1 ? tokens_[i].segments[0].text : "";
                const auto found = words_.variables.find(name);
                if (exports && active() && found != words_.variables.end() && found->second.items.size() == 1) {
                    const CommandWord& value = found->second.items[0];
                    add_export(name, {name + "=" + value.text, tokens_[i].at, value.unset});
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
        if (const std::size_t body = function_body(i); body > i) {
            return body;
        }
        CommandCall call;
        const bool deciding = !frames_.empty() && frames_.back().deciding;
        words_.blank = deciding;
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
                    call.environment.push_back(words_.scalar(token));
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
                    append(call.words, words_.expand(token));
                }
                ++i;
            }
        }
        words_.blank = false;
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

    // The start of the body of a function that is defined at i, whose parameters are then those of its first call; i
    // for anything else.
    std::size_t function_body(std::size_t i) {
        if (i + 1 >= tokens_.size() || tokens_[i].kind != Kind::word || tokens_[i].segments.size() != 1) {
            return i;
        }
        const bool brackets =
            i + 2 < tokens_.size() && tokens_[i + 1].kind == Kind::open && tokens_[i + 2].kind == Kind::close;
        std::size_t body = brackets ? i + 3 : i + 1;
        if (!brackets && (i == 0 || !tokens_[i - 1].is("function"))) {
            return i;
        }
        while (body < tokens_.size() && tokens_[body].kind == Kind::end) {
            ++body;
        }
        if (body >= tokens_.size() || !tokens_[body].is("{")) {
            return i;
        }
        if (braces_ == 0 && active()) {
            set_parameters(tokens_[i].segments[0].text, body);
            braces_ = 1;
        }
        joint_ = Kind::end;
        return body + 1;
    }

    void set_parameters(const std::string& name, std::size_t from) {
        std::size_t calls = 0;
        for (std::size_t k = from + 1; k < tokens_.size(); ++k) {
            const bool first = tokens_[k - 1].ends() || tokens_[k - 1].is("do") || tokens_[k - 1].is("then");
            const bool defines = k + 1 < tokens_.size() && tokens_[k + 1].kind == Kind::open;
            if (!first || defines || !tokens_[k].is(name.c_str()) || ++calls > 1) {
                continue;
            }
            constexpr std::size_t kMost = 9;
            for (std::size_t n = 1; n <= kMost && k + n < tokens_.size() && tokens_[k + n].kind == Kind::word; ++n) {
                const Words words = words_.expand(tokens_[k + n]);
                if (words.size() == 1) {
                    const std::string parameter = std::to_string(n);
                    const auto outside = words_.variables.find(parameter);
                    parameters_[parameter] =
                        outside == words_.variables.end() ? std::nullopt : std::optional(outside->second);
                    words_.variables[parameter] = {words, tokens_[k].at, true};
                }
            }
        }
        if (calls > 1) {
            out_.loops.push_back(fmt::format("the first of {} calls of {}", calls, name));
        }
    }

    // Text of here-documents, to the file of a redirection or to that of tee, also behind a pipe.
    void write_files(const std::vector<std::size_t>& redirections, const Words& words) {
        std::string file = words.size() > 1 ? words.back().text : "";
        const std::optional<std::string> piped = std::exchange(piped_, std::nullopt);
        if (joint_ == Kind::pipe && piped) {
            out_.files[file] = *piped;
        }
        for (const std::size_t i : redirections) {
            file = tokens_[i].kind == Kind::redirect ? words_.scalar(tokens_[i]).text : file;
        }
        for (const std::size_t i : redirections) {
            if (tokens_[i].kind == Kind::here) {
                piped_ = words_.scalar(tokens_[i]).text;
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
                    words_.spend(word.text.size(), at);
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
        if (frames_.size() > kDeepestCondition) {
            fail(at, fmt::format("conditions nest deeper than {} levels", kDeepestCondition));
        }
        frames_.push_back(std::move(frame));
    }

    // The token after a keyword at i, or i itself.
    std::size_t keyword(std::size_t i) {
        const ShellToken& token = tokens_[i];
        if (braces_ > 0 && (token.is("{") || token.is("}"))) {
            braces_ += token.is("{") ? 1 : -1;
            if (braces_ == 0) {  // behind the body of a function
                for (const auto& [name, outside] : parameters_) {
                    words_.variables.erase(name);
                    if (outside) {
                        words_.variables[name] = *outside;
                    }
                }
                parameters_.clear();
            }
        }
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
            const Words subject = word ? words_.expand(tokens_[i + 1]) : Words();
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
            append(words, active() ? words_.expand(tokens_[i]) : Words());
        }
        if (!words.empty()) {
            words_.variables[name.segments[0].text] = {{words[0]}, name.at, true};
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
            const Words words = words_.expand(tokens_[i]);
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
    ShellExpansion words_;
    Words exported_;
    std::map<std::string, std::size_t> places_;  ///< in exported_, by name
    std::vector<Frame> frames_;
    Kind joint_ = Kind::end;
    std::optional<std::string> piped_;  ///< text of a here-document that the command before the pipe had
    std::optional<std::size_t> inner_;  ///< where the script stands that is read inside of a command
    std::size_t scripts_ = 0;           ///< how deep it is in others
    int braces_ = 0;                    ///< that are open in the body of a function
    std::map<std::string, std::optional<ShellVariable>> parameters_;  ///< that its call sets
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

}  // namespace orrery::imports
