#include "tools/program/terminal.hpp"

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>

namespace orrery {

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

}  // namespace

Terminal::Terminal(const std::string& color, bool quiet) : color_(color == "always"), quiet_(quiet) {
    if (color == "auto") {
        color_ = isatty(STDOUT_FILENO) != 0;
    } else if (color != "always" && color != "never") {
        throw ConfigError("--color is auto, always or never, not '" + color + "'");
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

std::string Terminal::bar(double share) const {
    std::string out;
    const auto blocks = std::lround(share * 30);
    for (long i = 0; i < blocks; ++i) {
        out += "\u2588";
    }
    return out;
}

std::string duration_text(double seconds) {
    return seconds < 100    ? fmt::format("{:.0f} s", seconds)
           : seconds < 6000 ? fmt::format("{:.0f} min", seconds / 60)
                            : fmt::format("{:.2g} h", seconds / 3600);
}

Progress::Progress(bool quiet)
    : enabled_(!quiet && isatty(STDERR_FILENO) != 0), started_(std::chrono::steady_clock::now()), last_(started_) {}

void Progress::update(double fraction) {
    const auto now = std::chrono::steady_clock::now();
    const double elapsed = std::chrono::duration<double>(now - started_).count();
    if (!enabled_ || elapsed < 1 || now - last_ < std::chrono::milliseconds(200) || fraction <= 0) {
        return;
    }
    last_ = now;
    shown_ = true;
    fmt::print(stderr, "\r{:5.1f} %  about {:.0f} s left   ", fraction * 100, elapsed / fraction * (1 - fraction));
    std::fflush(stderr);
}

void Progress::finish() {
    if (shown_) {
        fmt::print(stderr, "\r{:40}\r", "");
    }
}

}  // namespace orrery
