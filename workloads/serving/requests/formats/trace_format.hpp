#pragma once
// Formats of request traces: one file and one row each (CSV formats, which differ in the names of their columns alone, share
// one file). `requests.trace` reads them as they are; `orrery list formats` and errors name them from the table.

#include "workloads/serving/requests/request.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::serving {

/// A request as its line states it.
struct TracedRequest {
    double at_s = 0;  ///< since any moment
    double prompt = 0;
    double output = 0;
    double session = 0;
    std::vector<std::uint64_t> keys;  ///< of what the prompt contains, from 1 on; none: nothing is known of it
    std::uint32_t key_tokens = 512;   ///< that each stands for
};

/// What is wrong with a line; who reads the file knows which one it is.
struct BadLine {
    std::string problem;
};

/// Reads the lines of one file.
class RequestLines {
  public:
    virtual ~RequestLines() = default;
    /// Throws BadLine.
    virtual void read(std::string_view line, TracedRequest& request) = 0;
    /// Seconds of the stamp in a line; nothing where it is damaged.
    [[nodiscard]] virtual std::optional<double> stamp(std::string_view line) const = 0;
};

/// One row of the table.
struct TraceFormat {
    const char* name;
    const char* description;
    const char* looks;  ///< what its first line looks like
    bool header;        ///< the first line is no request
    /// A reader of the lines of a file whose first line is `first`; null: it is of another format. `asked`: the user named this
    /// one. Throws BadLine.
    std::unique_ptr<RequestLines> (*open)(std::string_view first, bool asked);
};
[[nodiscard]] const std::vector<const TraceFormat*>& trace_format_table();

// What several formats share.

/// Throws BadLine unless `text` is a number from 0 to `most`.
[[nodiscard]] double traced_number(std::string_view text, std::string_view what, double most);
/// Throws BadLine unless `text` is a whole number from 0 to `most`.
[[nodiscard]] double traced_count(std::string_view text, std::string_view what, double most);

inline constexpr double kLatestStampMs = 1e13;

}  // namespace orrery::serving
