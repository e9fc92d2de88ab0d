// Requests from trace files.

#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"
#include "sim/record/table_reader.hpp"
#include "workloads/serving/requests/formats/trace_format.hpp"
#include "workloads/serving/requests/recorded/recorded.hpp"
#include "workloads/serving/requests/request_sources.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string_view>

namespace orrery::serving {

namespace {

// Without the mark of UTF-8 at its start, and without spaces and carriage returns at its end.
void trim(std::string& line) {
    if (line.rfind("\xEF\xBB\xBF", 0) == 0) {
        line.erase(0, 3);
    }
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) {
        line.pop_back();
    }
}

class TraceReader final : public RequestSource {
  public:
    TraceReader(const RequestsSpec& spec, const std::string& file, std::uint64_t seed)
        : spec_(spec), file_(file), in_(file), adapters_(spec.adapters, spec.adapter_skew, seed, "serving") {}

    std::uint64_t clients() const override { return clients_of(spec_); }

    double progress() const override { return in_.share_read(); }

    bool next(Request& request) override {
        if (spec_.count > 0 && given_ == spec_.count) {
            return false;
        }
        while (read_line()) {
            if (line_.empty() || !parse(request) || last_ - origin_ < spec_.from) {
                continue;
            }
            if (spec_.to > 0 && last_ - origin_ >= spec_.to) {
                break;
            }
            ++given_;
            request.adapter = adapters_.draw();
            return true;
        }
        if (given_ == 0) {
            fail_empty();
        }
        return false;
    }

  private:
    [[noreturn]] void fail(const std::string& problem) const {
        throw ConfigError({Diagnostic{file_, in_.number(), 1, problem, ErrorCode::malformed_trace}});
    }

    [[noreturn]] void fail_empty() const {
        if (first_) {
            fail("has no request: a line each, behind a header in CSV");
        }
        fail(fmt::format(
            "has no request between 'requests.from' {:g} s and 'requests.to'{}: the last one read comes {:g} s "
            "after the first",
            spec_.from, spec_.to > 0 ? fmt::format(" {:g} s", spec_.to) : ", its end", last_ - origin_));
    }

    bool read_line() {
        if (!in_.next(line_)) {
            return false;
        }
        trim(line_);
        return true;
    }

    bool parse(Request& request) {
        if (!lines_ && open()) {
            return false;
        }
        traced_ = TracedRequest();
        traced_.keys.swap(request.content.keys);
        traced_.keys.clear();
        try {
            lines_->read(line_, traced_);
        } catch (const BadLine& bad) {
            fail(bad.problem);
        }
        request.content.keys.swap(traced_.keys);
        request.content.key_tokens = traced_.key_tokens;
        const double at = traced_.at_s;
        if (first_) {
            origin_ = last_ = at;
            first_ = false;
            check_length();
        }
        if (at < last_) {
            fail("goes back in time; sort the file by arrival");
        }
        last_ = at;
        request.arrival = clients() > 0 ? SimTime() : arrival_of(at);
        // Engines give at least one token; a request of none asks for its end-of-text token.
        request.prompt = static_cast<std::uint32_t>(std::max(1.0, traced_.prompt));
        request.output = static_cast<std::uint32_t>(std::max(1.0, traced_.output));
        request.session = static_cast<std::uint32_t>(traced_.session);
        request.content.conversation = spec_.conversations ? request.session + 1ULL : 0;
        return true;
    }

    // Simulated seconds from the start of what is read of the trace.
    [[nodiscard]] double scaled(double at) const { return std::max(0.0, at - origin_ - spec_.from) * spec_.time_scale; }

    [[nodiscard]] SimTime arrival_of(double at) const {
        const double seconds = scaled(at);
        if (seconds > kLatestArrival) {
            fail_too_long(at);
        }
        return SimTime::from_seconds(seconds);
    }

    [[noreturn]] void fail_too_long(double last) const {
        // Less than what rounding to three digits adds.
        const double fits = 0.995 * kLatestArrival / std::max(1.0, last - origin_ - spec_.from);
        fail(fmt::format(
            "the trace lasts {:.1f} days of simulated time, and time ends after {:.0f}: 'requests.time_scale' "
            "of at most {:.3g} fits, or 'requests.to'",
            scaled(last) / kDay, kLatestArrival / kDay, fits));
    }

    // Looks at the end of the file before anything runs: what is too long to be simulated is refused at once.
    void check_length() const {
        if (clients() > 0 || spec_.count > 0) {
            return;
        }
        constexpr std::size_t kTail = 1 << 16;  ///< B that hold the last line, or it is not looked at
        std::istringstream end(tail_of_input(file_, kTail));
        std::optional<double> last;
        for (std::string line; std::getline(end, line);) {
            trim(line);
            if (const auto at = line.empty() ? std::nullopt : lines_->stamp(line)) {
                last = at;
            }
        }
        if (last && spec_.to > 0) {
            last = std::min(*last, origin_ + spec_.to);
        }
        if (last && scaled(*last) > kLatestArrival) {
            fail_too_long(*last);
        }
    }

    // Finds the format by the first line; true when that was a header.
    bool open() {
        std::string looks;
        for (const TraceFormat* format : trace_format_table()) {
            const bool asked = spec_.trace_format == format->name;
            if (!spec_.trace_format.empty() && !asked) {
                continue;
            }
            try {
                lines_ = format->open(line_, asked);
            } catch (const BadLine& bad) {
                fail(bad.problem);
            }
            if (lines_) {
                return format->header;
            }
            looks += fmt::format("{}{} ({})", looks.empty() ? "" : " or ", format->looks, format->name);
        }
        fail("the header names no arrival, prompt and output: " + looks);
    }

    static constexpr double kDay = 86400;  ///< s
    RequestsSpec spec_;
    std::string file_;
    InputLines in_;
    Popularity adapters_;
    std::string line_;
    std::unique_ptr<RequestLines> lines_;
    TracedRequest traced_;
    std::int64_t given_ = 0;
    bool first_ = true;
    double origin_ = 0;
    double last_ = 0;
};

}  // namespace

std::unique_ptr<RequestSource> make_trace_reader(const RequestsSpec& spec, const std::string& file,
                                                 std::uint64_t seed) {
    std::vector<std::string> names;
    bool lines = false;
    for (const TraceFormat* format : trace_format_table()) {
        names.emplace_back(format->name);
        lines = lines || spec.trace_format == format->name;
    }
    for (const RecordFormat* format : record_format_table()) {
        names.emplace_back(format->name);
    }
    if (!spec.trace_format.empty() && std::find(names.begin(), names.end(), spec.trace_format) == names.end()) {
        throw ConfigError(fmt::format("'requests.trace_format': unknown format '{}'; there are {}", spec.trace_format,
                                      fmt::join(names, ", ")),
                          ErrorCode::unknown_name);
    }
    constexpr std::size_t kStart = 1 << 16;
    if (spec.trace_format.empty() ? may_be_recorded(start_of_input(file, kStart)) : !lines) {
        return make_recorded_requests(spec, file, seed);
    }
    return std::make_unique<TraceReader>(spec, file, seed);
}

}  // namespace orrery::serving
