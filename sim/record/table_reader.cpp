#include "sim/record/table_reader.hpp"

#include "sim/base/error.hpp"
#include "sim/config/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace orrery::record {

namespace {

constexpr std::size_t kLongestLine = 1 << 20;
constexpr std::size_t kMostErrors = 100;
constexpr std::size_t kMostColumns = 512;

}  // namespace

bool InputLines::next(std::string& line) {
    buffer_.resize(kLongestLine + 1);
    stream_.getline(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    const auto taken = static_cast<std::size_t>(stream_.gcount());
    if (stream_.fail() && taken == 0) {
        return false;
    }
    ++number_;
    if (stream_.fail()) {
        throw ConfigError({Diagnostic{path_, number_, 1, "a line is longer than 1 MiB", ErrorCode::malformed_trace}});
    }
    // The end of the line counts as taken, except at the end of a file without one.
    line.assign(buffer_.data(), stream_.eof() ? taken : taken - 1);
    if (!line.empty() && line.back() == '\r') {
        line.pop_back();
    }
    return true;
}

bool TextLines::next_line(std::string_view& line) {
    if (at_ >= text_.size() || hopeless()) {
        return false;
    }
    const std::size_t end = std::min(text_.find('\n', at_), text_.size());
    line = text_.substr(at_, end - at_);
    at_ = end + 1;
    ++line_;
    if (!line.empty() && line.back() == '\r') {
        line.remove_suffix(1);  // as spreadsheets and Python's csv end lines
    }
    return true;
}

void TextLines::fail_at(int line, const std::string& what) {
    if (!hopeless()) {
        problems_.push_back(Diagnostic{name_, line, 1, what, ErrorCode::malformed_trace});
    }
}

bool TextLines::hopeless() const {
    return problems_.size() >= kMostErrors;
}

void TextLines::finish() const {
    throw_if_any(problems_);
}

TableReader::TableReader(std::string_view text, std::string name, TableStyle style)
    : TextLines(text, std::move(name)), style_(style) {
    next_cells(header_);
    if (header_.size() > kMostColumns) {
        fail(fmt::format("the first line names {} columns", header_.size()));
    }
}

bool TableReader::has(std::string_view column) const {
    return std::find(header_.begin(), header_.end(), column) != header_.end();
}

bool TableReader::next() {
    while (next_cells(cells_)) {
        if (cells_.size() == header_.size()) {
            return true;
        }
        if (cells_.size() > 1 || !cells_.front().empty()) {
            fail(fmt::format("{} cells, but the header names {} columns", cells_.size(), header_.size()));
        }
    }
    return false;
}

std::string_view TableReader::text(std::string_view column) {
    const auto found = std::find(header_.begin(), header_.end(), column);
    if (found == header_.end()) {
        if (std::find(missing_.begin(), missing_.end(), column) == missing_.end()) {
            missing_.emplace_back(column);
            fail(fmt::format("has no column '{}'", column));
        }
        return {};
    }
    ORRERY_ASSERT(cells_.size() == header_.size());
    return cells_[static_cast<std::size_t>(found - header_.begin())];
}

double TableReader::number(std::string_view column, double least) {
    const std::string_view cell = text(column);
    double value = 0;
    if (!parse_number(cell, value) || !(value >= least) || value > 1e15) {
        good_ = false;
        if (!cell.empty() || has(column)) {
            fail(fmt::format("{} is a number from {} to 1e15, not '{}'", column, least, cell));
        }
        return least;
    }
    return value;
}

bool TableReader::good() {
    return std::exchange(good_, true) && missing_.empty();
}

bool TableReader::next_cells(std::vector<std::string_view>& cells) {
    std::string_view line;
    do {
        if (!next_line(line)) {
            return false;
        }
    } while (style_.facts && (line.empty() || line.front() == '#'));
    cells.clear();
    for (std::size_t start = 0; start <= line.size() && cells.size() <= kMostColumns;) {
        const bool rest = style_.facts && !header_.empty() && cells.size() + 1 == header_.size();
        const std::size_t end = rest ? line.size() : std::min(line.find(style_.separator, start), line.size());
        cells.push_back(line.substr(start, end - start));
        start = end + 1;
    }
    return true;
}

}  // namespace orrery::record
