#pragma once
// Tables that are read: lines of a file, and rows by the names of their columns. Quotes are not special.
//
// What is wrong with a file is collected, the first hundred problems, each with its line.

#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::record {

/// The lines of a file that may be larger than memory, one after another.
class InputLines {
  public:
    /// Throws ConfigError when the file cannot be read.
    explicit InputLines(const std::string& path) : path_(path), stream_(path) {}
    /// The next line without its end ("\n" or "\r\n"); false at the end of the file. Throws ConfigError for one of more than 1 MiB: what is
    /// no text may have a line that fills the memory.
    bool next(std::string& line);
    /// Of the last line, from 1 on.
    [[nodiscard]] int number() const { return number_; }
    [[nodiscard]] double share_read() const { return stream_.share_read(); }
    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    std::string path_;
    InputFile stream_;
    std::vector<char> buffer_;
    int number_ = 0;
};

/// The lines of a text in memory, with what is wrong with them: the first hundred problems.
class TextLines {
  public:
    /// `text` outlives it; `name` is what errors call it.
    TextLines(std::string_view text, std::string name) : text_(text), name_(std::move(name)) {}
    /// The next line without its end ("\n" or "\r\n"); false at the end of the text, or after a hundred problems.
    bool next_line(std::string_view& line);
    /// The number of the last line, from 1 on.
    [[nodiscard]] int line() const { return line_; }
    void fail(const std::string& what) { fail_at(line_, what); }
    void fail_at(int line, const std::string& what);
    [[nodiscard]] std::size_t problems() const { return problems_.size(); }
    /// Whether further problems are left out.
    [[nodiscard]] bool hopeless() const;
    /// Throws ConfigError with what was wrong, if anything was.
    void finish() const;

  private:
    std::string_view text_;
    std::string name_;
    std::size_t at_ = 0;
    int line_ = 0;
    std::vector<Diagnostic> problems_;
};

struct TableStyle {
    char separator = ',';
    bool facts = false;  ///< lines after '#' are comments, and the last column may hold separators
};

/// Rows by the names of the columns, which the first line has.
class TableReader : public TextLines {
  public:
    /// `text` outlives it; `name` is what errors call it.
    TableReader(std::string_view text, std::string name, TableStyle style = {});
    [[nodiscard]] bool has(std::string_view column) const;
    [[nodiscard]] const std::vector<std::string_view>& columns() const { return header_; }
    /// Goes to the next row; false at the end.
    bool next();
    [[nodiscard]] const std::vector<std::string_view>& cells() const { return cells_; }
    [[nodiscard]] std::string_view text(std::string_view column);
    /// A number of at least `least`; reports others and gives `least`.
    [[nodiscard]] double number(std::string_view column, double least = 0);
    /// Whether every number since the last call was fine.
    [[nodiscard]] bool good();

  private:
    bool next_cells(std::vector<std::string_view>& cells);

    TableStyle style_;
    bool good_ = true;
    std::vector<std::string_view> header_, cells_;
    std::vector<std::string> missing_;
};

}  // namespace orrery::record
