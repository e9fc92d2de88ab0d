#include "tools/terminal/terminal.hpp"

#include "sim/base/error.hpp"
#include "sim/base/signals.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <utility>

namespace orrery::terminal {

namespace {

// Columns a UTF-8 text takes: continuation bytes take none.
std::size_t width(const std::string& text) {
    return static_cast<std::size_t>(std::count_if(
        text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

bool is_number(const std::string& text) {
    return text == "-" || (!text.empty() && (text[0] == '-' || text[0] == '+' || (text[0] >= '0' && text[0] <= '9')));
}

constexpr std::size_t kLongestText = 1000;

// Cells hold what stands in files.
std::vector<std::string> printable_cells(const std::vector<std::string>& cells) {
    std::vector<std::string> out;
    for (const std::string& cell : cells) {
        out.push_back(printable(cell, kLongestText));
    }
    return out;
}

constexpr std::size_t kNarrowest = 30;  // characters of a column that wraps

// The text in lines of so many characters at most, cut at spaces where there are any; at least one line.
std::vector<std::string> wrapped(const std::string& text, std::size_t limit) {
    std::vector<std::string> out(1);
    std::size_t used = 0;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find(' ', at), text.size());
        const std::string word = text.substr(at, end - at);
        if (used > 0 && used + 1 + width(word) > limit) {
            out.emplace_back();
            used = 0;
        }
        if (used > 0 || (at > 0 && out.size() == 1 && out[0].empty())) {
            out.back() += ' ';
            ++used;
        }
        for (const char c : word) {
            const bool starts = (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
            if (starts && used == limit) {
                out.emplace_back();
                used = 0;
            }
            out.back() += c;
            used += starts ? 1 : 0;
        }
        at = end + 1;
    }
    return out;
}

}  // namespace

Terminal::Terminal(const std::string& color, bool quiet, const std::string& progress)
    : color_(color == "always"), quiet_(quiet), progress_(ProgressStyle::none) {
    if (color == "auto") {
        color_ = isatty(STDOUT_FILENO) != 0;
    } else if (color != "always" && color != "never") {
        throw ConfigError("--color is auto, always or never, not '" + color + "'", ErrorCode::command_line);
    }
    if (progress != "auto" && progress != "plain" && progress != "none") {
        throw ConfigError("--progress is auto, plain or none, not '" + progress + "'", ErrorCode::command_line);
    }
    if (!quiet && progress != "none") {
        progress_ = progress == "auto" && isatty(STDERR_FILENO) != 0 ? ProgressStyle::in_place : ProgressStyle::plain;
    }
    double given = 0;
    winsize size{};
    if (const char* text = std::getenv("COLUMNS"); text != nullptr && parse_number(text, given) && given >= 20) {
        columns_ = static_cast<std::size_t>(std::min(given, 1e6));
    } else if (isatty(STDOUT_FILENO) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
        columns_ = size.ws_col;
    }
}

void Terminal::heading(const std::string& text) const {
    fmt::print("\n{}{}{}\n", color_ ? "\033[1m" : "", printable(text, kLongestText), color_ ? "\033[0m" : "");
}

void Terminal::table(const std::vector<std::string>& given_header,
                     const std::vector<std::vector<std::string>>& given_rows) const {
    const std::vector<std::string> header = printable_cells(given_header);
    std::vector<std::vector<std::string>> rows;
    std::transform(given_rows.begin(), given_rows.end(), std::back_inserter(rows), printable_cells);
    std::vector<std::size_t> widths;
    const auto measure = [&](const std::vector<std::string>& row) {
        widths.resize(std::max(widths.size(), row.size()), 0);
        for (std::size_t i = 0; i < row.size(); ++i) {
            widths[i] = std::max(widths[i], width(row[i]));
        }
    };
    measure(header);
    for (const auto& row : rows) {
        measure(row);
    }
    // A column of numbers is aligned to the right, its header with it.
    std::vector<bool> right(widths.size(), !rows.empty());
    for (std::size_t i = 0; i < widths.size(); ++i) {
        for (const auto& row : rows) {
            right[i] = right[i] && (i >= row.size() || row[i].empty() || is_number(row[i]));
        }
    }
    const auto print = [&](const std::vector<std::string>& row, bool strong) {
        std::string line = " ";
        for (std::size_t i = 0; i < row.size(); ++i) {
            const std::string padding(widths[i] - width(row[i]), ' ');
            line += " " + (right[i] ? padding + row[i] : row[i] + padding) + " ";
        }
        line.erase(line.find_last_not_of(' ') + 1);
        fmt::print("{}{}{}\n", strong && color_ ? "\033[2m" : "", line, strong && color_ ? "\033[0m" : "");
    };
    if (!header.empty()) {
        print(header, true);
    }
    for (const auto& row : rows) {
        print(row, false);
    }
}

void Terminal::fitted_table(const std::vector<std::string>& header,
                            const std::vector<std::vector<std::string>>& given_rows, const std::vector<ColumnFit>& fit,
                            bool all) const {
    ORRERY_ASSERT(fit.size() == header.size());
    if (all || columns_ == 0) {
        table(header, given_rows);
        return;
    }
    std::vector<std::vector<std::string>> rows;
    std::transform(given_rows.begin(), given_rows.end(), std::back_inserter(rows), printable_cells);
    std::vector<std::size_t> widths;
    std::vector<std::size_t> kept;
    for (std::size_t i = 0; i < header.size(); ++i) {
        widths.push_back(width(header[i]));
        for (const auto& row : rows) {
            widths[i] = std::max(widths[i], i < row.size() ? width(row[i]) : 0);
        }
        kept.push_back(i);
    }
    // What a line takes with the columns that are left, each two characters apart and those that wrap at their narrowest.
    const auto least = [&](std::size_t i) { return fit[i].wraps ? std::min(widths[i], kNarrowest) : widths[i]; };
    const auto line = [&] {
        return std::accumulate(kept.begin(), kept.end(), std::size_t{0},
                               [&](std::size_t sum, std::size_t i) { return sum + least(i) + 2; });
    };
    std::vector<bool> left_out(header.size(), false);
    while (line() + 1 > columns_) {
        const auto worst = std::max_element(kept.begin(), kept.end(), [&](std::size_t a, std::size_t b) {
            return fit[a].importance < fit[b].importance;
        });
        if (fit[*worst].importance == 0) {
            break;
        }
        left_out[*worst] = true;
        kept.erase(worst);
    }
    // What is left of the line goes to the columns that wrap, from the left.
    std::size_t spare = columns_ - std::min(columns_, line() + 1);
    std::vector<std::string> shown_header;
    std::vector<std::size_t> limits;
    for (const std::size_t i : kept) {
        const std::size_t more = std::min(spare, widths[i] - least(i));
        spare -= more;
        limits.push_back(least(i) + more);
        shown_header.push_back(wrapped(header[i], limits.back()).front());
    }
    std::vector<std::vector<std::string>> shown;
    for (const auto& row : rows) {
        const std::size_t first = shown.size();
        for (std::size_t k = 0; k < kept.size(); ++k) {
            const std::vector<std::string> lines = wrapped(kept[k] < row.size() ? row[kept[k]] : "", limits[k]);
            shown.resize(std::max(shown.size(), first + lines.size()), std::vector<std::string>(kept.size()));
            for (std::size_t l = 0; l < lines.size(); ++l) {
                shown[first + l][k] = lines[l];
            }
        }
    }
    table(shown_header, shown);
    std::string names;
    for (std::size_t i = 0; i < header.size(); ++i) {
        names += left_out[i] ? (names.empty() ? "" : ", ") + printable(header[i], kLongestText) : "";
    }
    if (!names.empty()) {
        for (const std::string& text : wrapped("not shown: " + names + "; --all shows every column", columns_ - 2)) {
            fmt::print("  {}\n", text);
        }
    }
}

std::string Terminal::bar(double share) const {
    std::string out;
    const auto blocks = std::lround(share * 30);
    for (long i = 0; i < blocks; ++i) {
        out += "\u2588";
    }
    return out;
}

void say_lines(std::FILE* to, const std::string& lines) {
    std::string out;
    for (const std::string_view line : split(lines, '\n')) {
        out += (out.empty() && line.data() == lines.data() ? "" : "\n") + printable(line);
    }
    (void)std::fputs(out.c_str(), to);  // main() looks whether it was taken
}

std::string duration_text(double seconds) {
    return !std::isfinite(seconds) ? "an unknown time"
           : seconds < 100         ? fmt::format("{:.0f} s", seconds)
           : seconds < 6000        ? fmt::format("{:.0f} min", seconds / 60)
                                   : fmt::format("{:.2g} h", seconds / 3600);
}

Progress::Progress(const Terminal& terminal, std::string label)
    : style_(terminal.progress()), label_(std::move(label)) {
    if (style_ != ProgressStyle::none) {
        prepare_for_interrupt();
        thread_ = std::thread([this] { show_until_finished(); });
    }
}

void Progress::update(double fraction) {
    if (style_ != ProgressStyle::none) {
        const std::lock_guard lock(mutex_);
        fraction_ = std::max(fraction_, std::min(fraction, 1.0));
    }
}

void Progress::note(const std::string& text) {
    const std::lock_guard lock(mutex_);
    note_ = text;
    prepare_for_interrupt();
}

void Progress::resume_with(const std::string& text) {
    const std::lock_guard lock(mutex_);
    resume_ = text;
    prepare_for_interrupt();
}

void Progress::prepare_for_interrupt() const {
    if (style_ != ProgressStyle::none && !finished_) {
        say_at_interrupt(fmt::format("\norrery: interrupted: {}\norrery: {}\n", printable(text(), kLongestText),
                                     resume_.empty() ? "no output was written" : printable(resume_, kLongestText)));
    }
}

void Progress::finish() {
    if (!thread_.joinable()) {
        return;
    }
    {
        const std::lock_guard lock(mutex_);
        finished_ = true;
    }
    ends_.notify_one();
    thread_.join();
    say_at_interrupt("");
    if (shown_ && style_ == ProgressStyle::in_place) {
        fmt::print(stderr, "\r{:78}\r", "");
    }
}

void Progress::show_until_finished() {
    using std::chrono::milliseconds;
    milliseconds wait(2000);
    std::unique_lock lock(mutex_);
    while (!ends_.wait_for(lock, wait, [this] { return finished_; })) {
        show();
        prepare_for_interrupt();
        const auto passed = std::chrono::duration_cast<milliseconds>(Clock::now() - started_);
        wait = style_ == ProgressStyle::in_place ? milliseconds(500) : std::min(passed, milliseconds(60'000));
    }
}

std::string Progress::text() const {
    const double passed = std::chrono::duration<double>(Clock::now() - started_).count();
    std::string out = fmt::format("{}: {:.0f} s", label_, passed);
    if (fraction_ > 0) {
        out += fmt::format(", {:.0f} % done, about {} left", 100 * fraction_,
                           duration_text(passed / fraction_ * (1 - fraction_)));
    }
    return note_.empty() ? out : out + "; " + note_;
}

// Written at once and past stdio: a process that is forked meanwhile must not inherit its lock.
void Progress::show() {
    constexpr std::size_t kWidth = 78;  // of most terminals: a line that wraps cannot be written over
    std::string line = text();
    if (style_ == ProgressStyle::in_place) {
        line = fmt::format("\r{:<{}.{}}", line, kWidth, kWidth);
    } else {
        line += "\n";
    }
    shown_ = true;
    if (write(STDERR_FILENO, line.data(), line.size()) < 0) {
        finished_ = true;  // nobody reads it
    }
}

}  // namespace orrery::terminal
