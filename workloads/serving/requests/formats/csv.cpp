// CSV with a header: formats that differ in the names of their columns alone. Other columns are allowed.
// Sources: Patel et al., "Splitwise", ISCA 2024 (Azure's traces of 2023 and 2024); Wang et al., "BurstGPT", arXiv:2401.17644.

#include "sim/base/calendar.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "workloads/serving/requests/formats/trace_format.hpp"
#include "workloads/serving/requests/request_sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::serving {

namespace {

// Seconds since 1970 of "2023-11-16 18:17:03.9799600", perhaps with a zone behind; nothing when it is no such date. All stamps of a
// file are taken as of one zone.
std::optional<double> seconds_of_date(std::string_view text) {
    // Leading zeros are part of a date, not signs of an octal number.
    const auto part = [&](std::size_t from, std::size_t count) {
        int value = 0;
        for (const char c : text.substr(from, count)) {
            if (c < '0' || c > '9') {
                return -1;
            }
            value = 10 * value + (c - '0');
        }
        return value;
    };
    if (text.size() < 19 || text[4] != '-' || text[7] != '-' || (text[10] != ' ' && text[10] != 'T') ||
        text[13] != ':' || text[16] != ':') {
        return std::nullopt;
    }
    std::string_view fraction = text.substr(19);
    const std::string_view zone = fraction.substr(std::min(fraction.find_first_of("+-Z"), fraction.size()));
    fraction.remove_suffix(zone.size());
    double below = 0;
    const bool offset =
        zone.size() == 6 && zone[3] == ':' && part(text.size() - 5, 2) >= 0 && part(text.size() - 2, 2) >= 0;
    if ((!fraction.empty() && (fraction.front() != '.' || !parse_number(fmt::format("0{}", fraction), below))) ||
        !(zone.empty() || zone == "Z" || (zone[0] != 'Z' && offset))) {
        return std::nullopt;
    }
    const std::optional<int> days = days_since_1970(part(0, 4), part(5, 2), part(8, 2));
    const std::optional<int> seconds = seconds_of_day(part(11, 2), part(14, 2), part(17, 2));
    return days && seconds ? std::optional(86400.0 * *days + *seconds + below) : std::nullopt;
}

// Seconds of a stamp, a number or a date; nothing when it is neither.
std::optional<double> seconds_of(std::string_view text) {
    double value = 0;
    return parse_number(text, value) && value >= 0 && value <= 1e12 ? std::optional(value) : seconds_of_date(text);
}

struct Columns {
    std::vector<std::string_view> time, prompt, output;
    double second = 1;  ///< units of the time in a second
    bool any_case = false;
    char separator = ',';
};

bool is_one(std::string_view cell, const std::vector<std::string_view>& names, bool any_case) {
    return std::any_of(names.begin(), names.end(), [&](std::string_view name) {
        return cell.size() == name.size() &&
               std::equal(cell.begin(), cell.end(), name.begin(), [&](char c, char wanted) {
                   return c == wanted || (any_case && std::tolower(static_cast<unsigned char>(c)) == wanted);
               });
    });
}

class CsvLines final : public RequestLines {
  public:
    /// Null where the header names not all columns. Throws BadLine where it names one twice.
    static std::unique_ptr<CsvLines> open(std::string_view header, const Columns& names) {
        auto lines = std::unique_ptr<CsvLines>(new CsvLines());
        const std::vector<std::string_view> cells = split(header, names.separator);
        for (std::size_t i = 0; i < cells.size(); ++i) {
            std::size_t* column = is_one(cells[i], names.time, names.any_case)     ? &lines->time_
                                  : is_one(cells[i], names.prompt, names.any_case) ? &lines->prompt_
                                  : is_one(cells[i], names.output, names.any_case) ? &lines->output_
                                  : cells[i] == "session"                          ? &lines->session_
                                                                                   : nullptr;
            if (column != nullptr && *column != kNone) {
                throw BadLine{fmt::format("column '{}' comes twice", cells[i])};
            }
            if (column != nullptr) {
                *column = i;
            }
        }
        lines->columns_ = cells.size();
        lines->second_ = names.second;
        lines->separator_ = names.separator;
        const bool all = lines->time_ != kNone && lines->prompt_ != kNone && lines->output_ != kNone;
        return all ? std::move(lines) : nullptr;
    }

    void read(std::string_view line, TracedRequest& request) override {
        const std::vector<std::string_view> cells = split(line, separator_);
        if (cells.size() != columns_) {
            throw BadLine{fmt::format("{} cells, but the header names {} columns", cells.size(), columns_)};
        }
        const std::optional<double> seconds = seconds_of(cells[time_]);
        if (!seconds) {
            throw BadLine{
                fmt::format("'{}' is no time: seconds, or a date such as 2023-11-16 18:17:03.97", cells[time_])};
        }
        request.at_s = *seconds / second_;
        request.prompt = traced_count(cells[prompt_], "prompt tokens", kMostTokens);
        request.output = traced_count(cells[output_], "output tokens", kMostTokens);
        request.session = session_ != kNone ? traced_count(cells[session_], "session", kMostTokens) : 0;
    }

    std::optional<double> stamp(std::string_view line) const override {
        const std::vector<std::string_view> cells = split(line, separator_);
        const std::optional<double> units = time_ < cells.size() ? seconds_of(cells[time_]) : std::nullopt;
        return units ? std::optional(*units / second_) : std::nullopt;
    }

  private:
    static constexpr std::size_t kNone = SIZE_MAX;
    CsvLines() = default;
    std::size_t time_ = kNone, prompt_ = kNone, output_ = kNone, session_ = kNone;
    std::size_t columns_ = 0;
    double second_ = 1;
    char separator_ = ',';
};

}  // namespace

extern const TraceFormat kAzureFormat = {
    "azure", "Azure's traces of 2023 and 2024", "TIMESTAMP,ContextTokens,GeneratedTokens", true,
    [](std::string_view first, bool) -> std::unique_ptr<RequestLines> {
        return CsvLines::open(first, {{"TIMESTAMP"}, {"ContextTokens"}, {"GeneratedTokens"}});
    }};

extern const TraceFormat kBurstGptFormat = {
    "burstgpt", "BurstGPT's traces", "Timestamp,...,Request tokens,Response tokens", true,
    [](std::string_view first, bool) -> std::unique_ptr<RequestLines> {
        return CsvLines::open(first, {{"Timestamp"}, {"Request tokens"}, {"Response tokens"}});
    }};

extern const TraceFormat kPlainFormat = {"plain", "CSV of Orrery's own", "arrival_s,prompt,output[,session]", true,
                                         [](std::string_view first, bool) -> std::unique_ptr<RequestLines> {
                                             return CsvLines::open(first, {{"arrival_s"}, {"prompt"}, {"output"}});
                                         }};

// Names of columns whose unit is in them or in what writes them (Vidur, splitwise-sim, LLMServingSim).
extern const TraceFormat kNamedFormat = {
    "named", "CSV or TSV whose header names times, prompts and outputs",
    "arrived_at,num_prefill_tokens,num_decode_tokens", true,
    [](std::string_view first, bool) -> std::unique_ptr<RequestLines> {
        Columns names;
        names.any_case = true;
        names.separator = first.find('\t') != std::string_view::npos  ? '\t'
                          : first.find(';') != std::string_view::npos ? ';'
                                                                      : ',';
        names.prompt = {"num_prefill_tokens", "prompt_size",       "prompt_len",   "prompt_length",
                        "input_len",          "input_length",      "input_tokens", "prompt_tokens",
                        "context_tokens",     "num_prompt_tokens", "input_toks",   "isl",
                        "prompt_token_count"};
        names.output = {"num_decode_tokens",
                        "token_size",
                        "output_len",
                        "output_length",
                        "output_tokens",
                        "decode_tokens",
                        "completion_tokens",
                        "generated_tokens",
                        "num_output_tokens",
                        "output_toks",
                        "osl",
                        "completion_token_count"};
        for (const auto& [second, time] : std::vector<std::pair<double, std::vector<std::string_view>>>{
                 {1, {"arrival_s", "arrived_at", "arrival_time", "arrival_timestamp", "arrival_time_s", "timestamp_s"}},
                 {1e3, {"arrival_ms", "arrival_time_ms", "timestamp_ms"}},
                 {1e6, {"arrival_us", "arrival_time_us", "timestamp_us"}},
                 {1e9, {"arrival_ns", "arrival_time_ns", "timestamp_ns"}}}) {
            names.second = second;
            names.time = time;
            if (auto lines = CsvLines::open(first, names)) {
                return lines;
            }
        }
        return nullptr;
    }};

}  // namespace orrery::serving
