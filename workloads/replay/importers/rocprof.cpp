// Kernel and copy traces of AMD's rocprof in CSV: *_kernel_trace.csv and *_memory_copy_trace.csv of rocprofv3, results.csv of rocprof.
//
// Claims: the kernels and copies of the device that was busy longest, each on its stream (where the file has none, its queue), at the
// times recorded. Limits: the files have no host calls, so that starts that nothing else explains stay as lags.
// Sources: ROCm documentation of rocprofv3 (output files) and of rocprof (results.csv).

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "sim/record/table_reader.hpp"
#include "workloads/replay/activities.hpp"
#include "workloads/replay/importers/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace orrery::replay {

namespace {

// The cells of a line, of which those in quotes may hold commas and doubled quotes.
std::vector<std::string> cells_of(std::string_view line) {
    std::vector<std::string> out(1);
    line.remove_suffix(line.ends_with('\r') ? 1 : 0);
    bool quoted = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
        if (line[i] == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
            out.back() += line[++i];
        } else if (line[i] == '"') {
            quoted = !quoted;
        } else if (line[i] == ',' && !quoted) {
            out.emplace_back();
        } else {
            out.back() += line[i];
        }
    }
    return out;
}

class RocprofReader {
  public:
    explicit RocprofReader(const ImportInput& input)
        : file_(input.path()), text_(input.bytes()), lines_(text_, file_) {}

    ReplayTrace run() {
        read_header();
        for (std::string_view line; lines_.next_line(line);) {
            if (line.find_first_not_of(" \r") != std::string_view::npos) {
                read_row(cells_of(line));
            }
        }
        lines_.finish();
        if (devices_.empty()) {
            throw ConfigError(
                {Diagnostic{file_, 1, 1, "holds a header and no kernel or copy", ErrorCode::malformed_trace}});
        }
        const auto busy = std::max_element(devices_.begin(), devices_.end(), [](const auto& a, const auto& b) {
            return a.second.seconds < b.second.seconds;
        });
        for (const auto& [which, recorded] : devices_) {
            if (which != busy->first) {
                notes_.left_out(
                    fmt::format("kernels and copies of device {}, which was busy for less time", printable(which, 60)),
                    recorded.activities.size());
            }
        }
        std::vector<RecordedActivity> activities = std::move(busy->second.activities);
        std::sort(activities.begin(), activities.end(),
                  [](const RecordedActivity& a, const RecordedActivity& b) { return a.start_s < b.start_s; });
        for (const RecordedActivity& one : activities) {
            if (collective_of_kernel(one.name)) {
                notes_.left_out("groups and sizes of communication kernels, which replay as recorded");
            }
        }
        ReplayTrace trace = from_activities({}, std::move(activities), {}, 1, "rocprof", file_, notes_);
        trace.meta["device"] = busy->first;
        return trace;
    }
    [[nodiscard]] ImportNotes notes() const { return notes_; }

  private:
    enum Column { name, start, end, device, stream, correlation, kind, kColumns };

    void read_header() {
        std::string_view line;
        if (!lines_.next_line(line) || line.find_first_not_of(" \r\xEF\xBB\xBF") == std::string_view::npos) {
            refuse("the file is empty");
        }
        const std::vector<std::string> cells = cells_of(line);
        const std::array<std::vector<std::string_view>, kColumns> known = {{
            {"kernel_name", "kernelname", "name", "direction"},
            {"start_timestamp", "beginns"},
            {"end_timestamp", "endns"},
            {"agent_id", "gpu-id", "destination_agent_id"},
            {"stream_id", "queue_id", "queue-id"},
            {"correlation_id"},
            {"kind"},
        }};
        places_.fill(SIZE_MAX);
        for (std::size_t column = 0; column < known.size(); ++column) {
            for (const std::string_view wanted : known[column]) {
                for (std::size_t i = 0; i < cells.size(); ++i) {
                    std::string cell = cells[i].substr(cells[i].rfind("\xEF\xBB\xBF", 0) == 0 ? 3 : 0);
                    std::transform(cell.begin(), cell.end(), cell.begin(),
                                   [](unsigned char c) { return std::tolower(c); });
                    cell.erase(cell.find_last_not_of(" \r") + 1);
                    if (places_[column] == SIZE_MAX && cell == wanted) {
                        places_[column] = i;
                    }
                }
            }
        }
        if (places_[name] == SIZE_MAX || places_[start] == SIZE_MAX || places_[end] == SIZE_MAX) {
            refuse(fmt::format("the first line is '{}'", printable(std::string(line), 60)));
        }
        columns_ = cells.size();
    }

    [[noreturn]] void refuse(const std::string& found) const {
        throw ConfigError(
            {Diagnostic{file_, 1, 1,
                        "expected a header with Kernel_Name, Start_Timestamp and End_Timestamp (rocprofv3) or "
                        "KernelName, BeginNs and EndNs (rocprof), and " +
                            found,
                        ErrorCode::malformed_trace}});
    }

    void read_row(const std::vector<std::string>& cells) {
        if (cells.size() != columns_) {
            lines_.fail(fmt::format("{} cells, but the header names {} columns", cells.size(), columns_));
            return;
        }
        const auto cell = [&](Column column) {
            return places_[column] == SIZE_MAX ? std::string() : cells[places_[column]];
        };
        std::array<std::int64_t, 2> times{};
        for (const auto& [column, at] : {std::pair{start, 0U}, {end, 1U}}) {
            const std::string text = cell(column);
            const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), times[at]);
            if (problem != std::errc() || rest != text.data() + text.size() || times[at] < 0) {
                lines_.fail(fmt::format("a time is a whole number of nanoseconds, not '{}'", printable(text, 40)));
                return;
            }
        }
        if (times[1] < times[0]) {
            lines_.fail(fmt::format("'{}' ends before it starts", printable(cell(name), 60)));
            return;
        }
        origin_ = origin_ < 0 ? times[0] : origin_;
        RecordedActivity one;
        one.start_s = static_cast<double>(times[0] - origin_) * 1e-9;
        one.end_s = static_cast<double>(times[1] - origin_) * 1e-9;
        double number = 0;
        one.correlation = parse_number(cell(correlation), number) && number >= 0 && number < 1e18
                              ? static_cast<std::uint64_t>(number)
                              : 0;
        one.stream = streams_.emplace(cell(stream), static_cast<std::int64_t>(streams_.size())).first->second;
        one.copy = cell(kind).find("MEMORY_COPY") != std::string::npos;
        one.name = cell(name);
        Device& of = devices_[cell(device)];
        of.seconds += one.end_s - one.start_s;
        of.activities.push_back(std::move(one));
    }

    struct Device {
        double seconds = 0;
        std::vector<RecordedActivity> activities;
    };

    const std::string& file_;
    std::string text_;
    TextLines lines_;
    ImportNotes notes_;
    std::array<std::size_t, kColumns> places_{};
    std::size_t columns_ = 0;
    std::int64_t origin_ = -1;  ///< first stamp, taken off before doubles would lose nanoseconds of it
    std::map<std::string, std::int64_t> streams_;
    std::map<std::string, Device> devices_;
};

Imported import_rocprof(const ImportInput& input) {
    RocprofReader reader(input);
    const ReplayTrace trace = reader.run();
    return imported_program(trace, reader.notes());
}

}  // namespace

extern const Importer kRocprofImporter = {
    "rocprof", "kernels in CSV of AMD's rocprof and rocprofv3 (*_kernel_trace.csv, results.csv)", {}, import_rocprof};

}  // namespace orrery::replay
