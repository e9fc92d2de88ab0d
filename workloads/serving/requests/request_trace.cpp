// Requests from trace files.

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "workloads/serving/requests/request_sources.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

namespace orrery {

namespace {

// Seconds since some fixed day of "2023-11-16 18:17:03.9799600"; below 0 when it is no such date.
double seconds_of_date(std::string_view text) {
    // Leading zeros are part of a date, not signs of an octal number.
    const auto part = [&](std::size_t from, std::size_t count) {
        double value = 0;
        for (const char c : text.substr(std::min(from, text.size()), count)) {
            if (c < '0' || c > '9') {
                return -1.0;
            }
            value = 10 * value + (c - '0');
        }
        return from + count <= text.size() ? value : -1.0;
    };
    if (text.size() < 19 || text[4] != '-' || text[7] != '-' || text[13] != ':' || text[16] != ':') {
        return -1;
    }
    const double year = part(0, 4);
    const double month = part(5, 2);
    const double day = part(8, 2);
    const double hour = part(11, 2);
    const double minute = part(14, 2);
    std::string_view fraction = text.substr(19);
    fraction = fraction.substr(0, fraction.find_first_of("+Z"));
    double below = 0;
    const bool whole =
        fraction.empty() || (fraction.front() == '.' && parse_number(fmt::format("0{}", fraction), below));
    const double second = part(17, 2);
    if (year < 0 || month < 1 || month > 12 || day < 1 || hour < 0 || minute < 0 || second < 0 || !whole) {
        return -1;
    }
    // Days since the first of March of the year 0 (proleptic Gregorian).
    const double y = month <= 2 ? year - 1 : year;
    const double m = month <= 2 ? month + 9 : month - 3;
    const double days = 365 * y + std::floor(y / 4) - std::floor(y / 100) + std::floor(y / 400) +
                        std::floor((153 * m + 2) / 5) + day - 1;
    return ((days * 24 + hour) * 60 + minute) * 60 + second + below;
}

// Without the mark of UTF-8 at its start, and without spaces and carriage returns at its end.
void trim(std::string& line) {
    if (line.rfind("\xEF\xBB\xBF", 0) == 0) {
        line.erase(0, 3);
    }
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) {
        line.pop_back();
    }
}

// The text of the number behind a key of a flat JSON line; nothing when the key is not there.
std::optional<std::string_view> text_behind(std::string_view line, std::string_view key) {
    const std::size_t at = line.find(fmt::format("\"{}\"", key));
    const std::size_t colon = at == std::string_view::npos ? at : line.find(':', at);
    if (colon == std::string_view::npos) {
        return std::nullopt;
    }
    const std::size_t start = std::min(line.find_first_not_of(' ', colon + 1), line.size());
    return line.substr(start, std::min(line.find_first_of(",} ", start), line.size()) - start);
}

// Seconds of a stamp, a number or a date; nothing when it is neither.
std::optional<double> seconds_of(std::string_view text) {
    double value = seconds_of_date(text);
    if (value >= 0 || (parse_number(text, value) && value >= 0 && value <= 1e12)) {
        return value;
    }
    return std::nullopt;
}

class TraceReader final : public RequestSource {
  public:
    TraceReader(const RequestsSpec& spec, const std::string& file, std::uint64_t seed)
        : spec_(spec), file_(file), in_(file), adapters_(spec.adapters, spec.adapter_skew, seed, "serving") {
        std::error_code failed;
        size_ = static_cast<double>(std::filesystem::file_size(file_, failed));
        if (!in_ || failed) {
            throw ConfigError({Diagnostic{file_, 0, 0, "cannot be read"}});
        }
    }

    std::uint64_t clients() const override { return clients_of(spec_); }

    double progress() const override { return size_ > 0 ? read_ / size_ : 1; }

    bool next(Request& request) override {
        if (spec_.count > 0 && given_ == spec_.count) {
            return false;
        }
        while (read_line()) {
            if (line_.empty() || !parse(request) || last_ - origin_ < spec_.from) {
                continue;
            }
            if (spec_.to > 0 && last_ - origin_ >= spec_.to) {
                return false;
            }
            ++given_;
            request.adapter = adapters_.draw();
            return true;
        }
        return false;
    }

  private:
    [[noreturn]] void fail(const std::string& problem) const {
        throw ConfigError({Diagnostic{file_, number_, 1, problem}});
    }

    // The next line into line_, which never holds more than the longest one that is taken.
    bool read_line() {
        in_.getline(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
        const auto taken = static_cast<std::size_t>(in_.gcount());
        if (in_.fail() && taken == 0) {
            return false;
        }
        ++number_;
        read_ += static_cast<double>(taken);
        if (in_.fail()) {
            fail("a line is longer than 1 MiB");
        }
        // The end of the line counts as taken, except at the end of a file without one.
        line_.assign(buffer_.data(), in_.eof() ? taken : taken - 1);
        trim(line_);
        return true;
    }

    bool parse(Request& request) {
        double at = 0;
        double prompt = 0;
        double output = 0;
        double session = 0;
        if (line_.front() == '{') {
            at = json_number("timestamp", kLatestStamp) * 1e-3;
            prompt = json_number("input_length", kMostTokens);
            output = json_number("output_length", kMostTokens);
            read_keys(request.content.keys);
        } else {
            cells_ = split(line_, ',');
            if (time_column_ == kNone) {
                read_header();
                return false;
            }
            at = time_of(cell(time_column_));
            prompt = number_of(cell(prompt_column_), "prompt tokens");
            output = number_of(cell(output_column_), "output tokens");
            session = session_column_ < kNone ? number_of(cell(session_column_), "session") : 0;
        }
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
        request.prompt = static_cast<std::uint32_t>(std::max(1.0, prompt));
        request.output = static_cast<std::uint32_t>(std::max(1.0, output));
        request.session = static_cast<std::uint32_t>(session);
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
        constexpr double kTail = 1 << 16;  ///< B that hold the last line, or it is not looked at
        std::ifstream end(file_);
        end.seekg(static_cast<std::streamoff>(std::max(0.0, size_ - kTail)));
        std::optional<double> last;
        for (std::string line; std::getline(end, line);) {
            trim(line);
            if (const auto at = stamp_in(line)) {
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

    // Seconds of the stamp in a line; nothing where it is damaged.
    [[nodiscard]] std::optional<double> stamp_in(std::string_view line) const {
        double ms = 0;
        if (!line.empty() && line.front() == '{') {
            const auto text = text_behind(line, "timestamp");
            return text && parse_number(*text, ms) ? std::optional(ms * 1e-3) : std::nullopt;
        }
        const std::vector<std::string_view> cells = split(line, ',');
        return time_column_ < cells.size() ? seconds_of(cells[time_column_]) : std::nullopt;
    }

    // "hash_ids": [46, 47]; none: nothing is known of the content.
    void read_keys(std::vector<std::uint64_t>& keys) const {
        keys.clear();
        std::size_t at = line_.find("\"hash_ids\"");
        at = at == std::string::npos ? at : line_.find('[', at);
        while (at != std::string::npos && line_[at] != ']') {
            const std::size_t end = std::min(line_.find_first_of(",]", at + 1), line_.size());
            const std::size_t start = std::min(line_.find_first_not_of(' ', at + 1), end);
            double value = 0;
            if (start < end && (!parse_number(std::string_view(line_).substr(start, end - start), value) ||
                                !(value >= 0 && value < kMostKeys))) {
                fail("\"hash_ids\" is a list of numbers from 0");
            }
            if (end == line_.size()) {
                fail("\"hash_ids\" has no end");
            }
            if (start < end) {
                keys.push_back(static_cast<std::uint64_t>(value) + 1);
            }
            at = end;
        }
    }

    void read_header() {
        const std::array<std::pair<const char*, std::size_t*>, 9> names = {{{"TIMESTAMP", &time_column_},
                                                                            {"Timestamp", &time_column_},
                                                                            {"arrival_s", &time_column_},
                                                                            {"ContextTokens", &prompt_column_},
                                                                            {"Request tokens", &prompt_column_},
                                                                            {"prompt", &prompt_column_},
                                                                            {"GeneratedTokens", &output_column_},
                                                                            {"Response tokens", &output_column_},
                                                                            {"output", &output_column_}}};
        for (std::size_t i = 0; i < cells_.size(); ++i) {
            for (const auto& [name, column] : names) {
                if (cells_[i] == name) {
                    *column = i;
                }
            }
            if (cells_[i] == "session") {
                session_column_ = i;
            }
        }
        if (time_column_ == kNone || prompt_column_ == kNone || output_column_ == kNone) {
            fail(
                "the header names no arrival, prompt and output: TIMESTAMP,ContextTokens,GeneratedTokens (Azure), "
                "Timestamp,...,Request tokens,Response tokens (BurstGPT) or arrival_s,prompt,output[,session]");
        }
    }

    [[nodiscard]] std::string_view cell(std::size_t column) const {
        if (column >= cells_.size()) {
            fail(fmt::format("{} cells, but column {} is needed", cells_.size(), column + 1));
        }
        return cells_[column];
    }

    [[nodiscard]] double time_of(std::string_view text) const {
        const std::optional<double> seconds = seconds_of(text);
        if (!seconds) {
            fail(fmt::format("'{}' is no time: seconds, or a date such as 2023-11-16 18:17:03.97", text));
        }
        return *seconds;
    }

    [[nodiscard]] double number_of(std::string_view text, const char* what) const {
        double value = 0;
        if (!parse_number(text, value) || !(value >= 0 && value <= kMostTokens)) {
            fail(fmt::format("{} is a number from 0 to {:.0f}, not '{}'", what, kMostTokens, text));
        }
        return value;
    }

    [[nodiscard]] double json_number(const char* key, double most) const {
        const auto text = text_behind(line_, key);
        if (!text) {
            fail(fmt::format("has no \"{}\"", key));
        }
        double value = 0;
        if (!parse_number(*text, value) || !(value >= 0 && value <= most)) {
            fail(fmt::format("\"{}\" is a number from 0 to {:.0f}, not '{}'", key, most, *text));
        }
        return value;
    }

    static constexpr double kDay = 86400;         ///< s
    static constexpr double kLatestStamp = 1e13;  ///< ms
    static constexpr double kMostKeys = 9e15;     ///< whole numbers up to here are exact
    static constexpr std::size_t kNone = 1000;
    RequestsSpec spec_;
    std::string file_;
    std::ifstream in_;
    Popularity adapters_;
    std::string line_;
    std::vector<char> buffer_ = std::vector<char>((1 << 20) + 1);
    std::vector<std::string_view> cells_;
    int number_ = 0;
    std::size_t time_column_ = kNone, prompt_column_ = kNone, output_column_ = kNone, session_column_ = kNone;
    std::int64_t given_ = 0;
    double size_ = 0;  ///< B
    double read_ = 0;
    bool first_ = true;
    double origin_ = 0;
    double last_ = 0;
};

}  // namespace

std::unique_ptr<RequestSource> make_trace_reader(const RequestsSpec& spec, const std::string& file,
                                                 std::uint64_t seed) {
    return std::make_unique<TraceReader>(spec, file, seed);
}

}  // namespace orrery
