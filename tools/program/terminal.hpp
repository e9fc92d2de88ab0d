#pragma once
// Tables, headings, bars and progress on a terminal; plain text when the output is not one.

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace orrery::inline program {

/// How a column of a table behaves where the terminal is too narrow for all.
struct ColumnFit {
    int importance = 0;  ///< columns with the highest number are left out first; 0: never
    bool wraps = false;  ///< its texts may go on in a next line
};

class Terminal {
  public:
    /// `color`: auto, always or never. Throws ConfigError for anything else.
    Terminal(const std::string& color, bool quiet);
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

  private:
    bool color_;
    bool quiet_;
    std::size_t columns_ = 0;  ///< characters a line holds; 0: any number
};

/// "40 s", "12 min" or "3.1 h".
[[nodiscard]] std::string duration_text(double seconds);

/// Progress on standard error, only on a terminal and only for work over a second, with an estimate of what is left.
class Progress {
  public:
    explicit Progress(bool quiet);
    void update(double fraction);
    void finish();

  private:
    bool enabled_;
    bool shown_ = false;
    std::chrono::steady_clock::time_point started_;
    std::chrono::steady_clock::time_point last_;
};

}  // namespace orrery::inline program
