// CSV with a header: formats that differ in the names of their columns alone. Other columns are allowed.
// Sources: Patel et al., "Splitwise", ISCA 2024 (Azure's traces of 2023 and 2024); Wang et al., "BurstGPT", arXiv:2401.17644.

#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "workloads/serving/requests/formats/trace_format.hpp"
#include "workloads/serving/requests/request_sources.hpp"

#include <fmt/format.h>

#include <cmath>

namespace orrery::inline serving {

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

// Seconds of a stamp, a number or a date; nothing when it is neither.
std::optional<double> seconds_of(std::string_view text) {
    double value = seconds_of_date(text);
    if (value >= 0 || (parse_number(text, value) && value >= 0 && value <= 1e12)) {
        return value;
    }
    return std::nullopt;
}

struct Columns {
    const char* time;
    const char* prompt;
    const char* output;
};

class CsvLines final : public TraceLines {
  public:
    /// Null where the header names not all columns.
    static std::unique_ptr<CsvLines> open(std::string_view header, const Columns& names) {
        auto lines = std::unique_ptr<CsvLines>(new CsvLines());
        const std::vector<std::string_view> cells = split(header, ',');
        for (std::size_t i = 0; i < cells.size(); ++i) {
            std::size_t* column = cells[i] == names.time     ? &lines->time_
                                  : cells[i] == names.prompt ? &lines->prompt_
                                  : cells[i] == names.output ? &lines->output_
                                  : cells[i] == "session"    ? &lines->session_
                                                             : nullptr;
            if (column != nullptr) {
                *column = i;
            }
        }
        const bool all = lines->time_ != kNone && lines->prompt_ != kNone && lines->output_ != kNone;
        return all ? std::move(lines) : nullptr;
    }

    void read(std::string_view line, TracedRequest& request) override {
        const std::vector<std::string_view> cells = split(line, ',');
        const auto cell = [&](std::size_t column) {
            if (column >= cells.size()) {
                throw BadLine{fmt::format("{} cells, but column {} is needed", cells.size(), column + 1)};
            }
            return cells[column];
        };
        const std::optional<double> seconds = seconds_of(cell(time_));
        if (!seconds) {
            throw BadLine{
                fmt::format("'{}' is no time: seconds, or a date such as 2023-11-16 18:17:03.97", cell(time_))};
        }
        request.at_s = *seconds;
        request.prompt = traced_number(cell(prompt_), "prompt tokens", kMostTokens);
        request.output = traced_number(cell(output_), "output tokens", kMostTokens);
        request.session = session_ != kNone ? traced_number(cell(session_), "session", kMostTokens) : 0;
    }

    std::optional<double> stamp(std::string_view line) const override {
        const std::vector<std::string_view> cells = split(line, ',');
        return time_ < cells.size() ? seconds_of(cells[time_]) : std::nullopt;
    }

  private:
    static constexpr std::size_t kNone = 1000;
    CsvLines() = default;
    std::size_t time_ = kNone, prompt_ = kNone, output_ = kNone, session_ = kNone;
};

}  // namespace

extern const TraceFormat kAzureFormat = {
    "azure", "Azure's traces of 2023 and 2024", "TIMESTAMP,ContextTokens,GeneratedTokens", true,
    [](std::string_view first) -> std::unique_ptr<TraceLines> {
        return CsvLines::open(first, {"TIMESTAMP", "ContextTokens", "GeneratedTokens"});
    }};

extern const TraceFormat kBurstGptFormat = {
    "burstgpt", "BurstGPT's traces", "Timestamp,...,Request tokens,Response tokens", true,
    [](std::string_view first) -> std::unique_ptr<TraceLines> {
        return CsvLines::open(first, {"Timestamp", "Request tokens", "Response tokens"});
    }};

extern const TraceFormat kPlainFormat = {"plain", "CSV of Orrery's own", "arrival_s,prompt,output[,session]", true,
                                         [](std::string_view first) -> std::unique_ptr<TraceLines> {
                                             return CsvLines::open(first, {"arrival_s", "prompt", "output"});
                                         }};

}  // namespace orrery::inline serving
