#include "sim/base/error.hpp"

#include "sim/base/text.hpp"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace orrery::base {

std::string Diagnostic::to_string() const {
    std::string out;
    if (!file.empty()) {
        out += file + ":";
    }
    if (line > 0) {
        out += std::to_string(line) + ":" + std::to_string(column) + ":";
    }
    // Both hold what stands in files.
    return printable(out) + (out.empty() ? "error: " : " error: ") + printable(text);
}

// A file with many errors has one that matters and many that follow.
static std::vector<Diagnostic> capped(std::vector<Diagnostic> diagnostics) {
    constexpr std::size_t kMost = 50;
    if (diagnostics.size() > kMost) {
        const std::string rest = std::to_string(diagnostics.size() - kMost);
        diagnostics.resize(kMost);
        const Diagnostic& last = diagnostics.back();
        diagnostics.push_back(Diagnostic{last.file, 0, 0, "and " + rest + " more errors", last.code});
    }
    return diagnostics;
}

static std::string join(const std::vector<Diagnostic>& diagnostics) {
    std::string out;
    for (const Diagnostic& diagnostic : diagnostics) {
        out += (out.empty() ? "" : "\n") + diagnostic.to_string();
    }
    return out;
}

ConfigError::ConfigError(std::vector<Diagnostic> diagnostics)
    : Error(diagnostics.empty() ? ErrorCode::contradiction : diagnostics.front().code, join(capped(diagnostics))),
      diagnostics_(capped(std::move(diagnostics))) {}

void throw_if_any(const std::vector<Diagnostic>& errors) {
    if (!errors.empty()) {
        throw ConfigError(errors);
    }
}

void assertion_failed(const char* condition, const char* file, int line, const char* function) {
    std::string_view path(file);
    const auto slash = path.rfind('/');
    if (slash != std::string_view::npos) {
        path.remove_prefix(slash + 1);
    }
    throw InternalError("assertion failed: " + std::string(condition) + " in " + function + " (" + std::string(path) +
                        ":" + std::to_string(line) + ")");
}

static std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
        }
    }
    return row[b.size()];
}

std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates) {
    constexpr std::size_t kLongest = 100;  // of names: what is longer is a mistake of another kind, and costs time
    constexpr std::size_t kStart = 3;      // characters that say which name is meant though its end is missing
    std::string best;
    if (word.empty() || word.size() > kLongest) {
        return best;
    }
    std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
    for (const std::string& candidate : candidates) {
        const std::size_t distance = edit_distance(word, candidate);
        if (distance < best_distance) {
            best_distance = distance;
            best = candidate;
        }
    }
    // What differs in large and small letters alone, or begins with the word, is nearer than a name with two other letters.
    const auto begins = [&](const std::string& candidate) {
        return candidate.size() >= word.size() &&
               std::equal(word.begin(), word.end(), candidate.begin(),
                          [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); });
    };
    const auto like = [&](std::size_t length) {
        return std::find_if(candidates.begin(), candidates.end(), [&](const std::string& candidate) {
            return (length == 0 || candidate.size() == length) && begins(candidate);
        });
    };
    if (const auto same = like(word.size()); same != candidates.end()) {
        return *same;
    }
    if (auto longer = like(0); best_distance > 1 && word.size() >= kStart && longer != candidates.end()) {
        for (auto one = longer; one != candidates.end(); ++one) {
            if (one->size() < longer->size() && begins(*one)) {
                longer = one;
            }
        }
        return *longer;
    }
    return best;
}

}  // namespace orrery::base
