#pragma once
// Tables, headings, bars and progress on a terminal; plain text when the output is not one.

#include "sim/base/namespaces.hpp"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace orrery::terminal {

/// How a column of a table behaves where the terminal is too narrow for all.
struct ColumnFit {
    int importance = 0;  ///< columns with the highest number are left out first; 0: never
    bool wraps = false;  ///< its texts may go on in a next line
};

/// How progress is shown: not at all, as lines of their own, or as one line that is written over.
enum class ProgressStyle { none, plain, in_place };

class Terminal {
  public:
    /// `color`: auto, always or never. `progress`: auto (in place on a terminal, lines elsewhere), plain or none. Throws ConfigError
    /// for anything else.
    Terminal(const std::string& color, bool quiet, const std::string& progress = "auto");
    void heading(const std::string& text) const;
    /// Aligned columns; numbers to the right. `header` may be empty.
    void table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows) const;
    /// The same within the width of the terminal, that COLUMNS gives or that it has; a file or a pipe has none, and COLUMNS
    /// alone says so. One `fit` a column; a last line names the columns left out. `all`: as table() does.
    void fitted_table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows,
                      const std::vector<ColumnFit>& fit, bool all) const;
    /// A bar of up to 30 blocks for a share of 1.
    [[nodiscard]] std::string bar(double share) const;
    [[nodiscard]] bool quiet() const { return quiet_; }
    [[nodiscard]] ProgressStyle progress() const { return progress_; }

  private:
    bool color_;
    bool quiet_;
    ProgressStyle progress_;
    std::size_t columns_ = 0;  ///< characters a line holds; 0: any number
};

/// Prints lines that hold what stands in files or names of files, escaped as printable() does.
void say_lines(std::FILE* to, const std::string& lines);
template <class... Args>
void say(std::FILE* to, fmt::format_string<Args...> text, Args&&... args) {
    say_lines(to, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void say(fmt::format_string<Args...> text, Args&&... args) {
    say_lines(stdout, fmt::format(text, std::forward<Args>(args)...));
}

/// "40 s", "12 min" or "3.1 h"; "an unknown time" for what is no number.
[[nodiscard]] std::string duration_text(double seconds);

/// Progress on standard error of work that takes two seconds or more, under a label that says which work it is: what share is done and
/// how long the rest takes, or how long it has taken where the share is not known. Lines come at 2, 4, 8, ... s and then each minute. Ctrl-C prints the last state and that nothing else was written.
class Progress {
  public:
    Progress(const Terminal& terminal, std::string label);
    ~Progress() { finish(); }
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    /// `fraction`: of the work, from 0 to 1. From any thread.
    void update(double fraction);
    /// The best result so far, say, which is shown beside the rest.
    void note(const std::string& text);
    /// How what is done can be continued: printed after Ctrl-C.
    void resume_with(const std::string& text);
    /// Clears the line; nothing is shown afterwards.
    void finish();

  private:
    using Clock = std::chrono::steady_clock;
    void show_until_finished();
    void show();
    [[nodiscard]] std::string text() const;
    void prepare_for_interrupt() const;

    ProgressStyle style_;
    std::string label_;
    Clock::time_point started_ = Clock::now();
    bool shown_ = false;
    std::mutex mutex_;
    std::condition_variable ends_;
    double fraction_ = 0;
    std::string note_;
    std::string resume_;
    bool finished_ = false;
    std::thread thread_;  ///< last: it reads the others
};

}  // namespace orrery::terminal
