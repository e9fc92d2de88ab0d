#include "sim/base/error.hpp"
#include "sim/record/json_text.hpp"
#include "sim/record/table_reader.hpp"
#include "workloads/serving/requests/formats/trace_format.hpp"
#include "workloads/serving/requests/request_sources.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "workloads/serving/requests/recorded/json_records.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::serving {

using Json = nlohmann::json;

extern const RecordFormat kBenchFormat;
extern const RecordFormat kAgenticFormat;
extern const RecordFormat kAiperfFormat;
extern const RecordFormat kAiperfDataFormat;
extern const RecordFormat kGenaiPerfFormat;
extern const RecordFormat kGuidellmFormat;
extern const RecordFormat kInferencePerfFormat;
extern const RecordFormat kWekaFormat;
extern const RecordFormat kShareGptFormat;
extern const RecordFormat kLengthsFormat;

const std::vector<const RecordFormat*>& record_format_table() {
    static const std::vector<const RecordFormat*> kTable = {
        &kAgenticFormat,  &kBenchFormat,         &kAiperfFormat, &kAiperfDataFormat, &kGenaiPerfFormat,
        &kGuidellmFormat, &kInferencePerfFormat, &kWekaFormat,   &kShareGptFormat,   &kLengthsFormat,
    };
    return kTable;
}

std::optional<double> number_of(const Json& map, std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
        if (!map.is_object()) {
            return std::nullopt;
        }
        const auto found = map.find(key);
        if (found != map.end() && found->is_number()) {
            return found->get<double>();
        }
    }
    return std::nullopt;
}

double needed_number(const Json& map, std::initializer_list<const char*> keys, std::size_t index) {
    const std::optional<double> value = number_of(map, keys);
    if (!value || !std::isfinite(*value)) {
        throw BadRecord{fmt::format("request {} has no number \"{}\"", index + 1, *keys.begin()), *keys.begin()};
    }
    return *value;
}

double tokens_of_text(const Json& text) {
    constexpr double kCharacters = 4;  // of a token, in the mean of English text
    return text.is_string() ? std::ceil(static_cast<double>(text.get_ref<const std::string&>().size()) / kCharacters)
                            : 0;
}

bool may_be_recorded(std::string_view start) {
    const std::size_t first = start.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
    if (first == std::string_view::npos || (start[first] != '{' && start[first] != '[')) {
        return false;
    }
    // Lines with a stamp, two lengths and no session are traces (formats/): those may be larger than memory.
    const std::string_view line = start.substr(first, start.find('\n', first) - first);
    const auto has = [&](const char* part) { return line.find(part) != std::string_view::npos; };
    const bool other = has("\"session_id\"") || has("\"request_id\"") || has("\"wait_for\"") ||
                       has("\"experiments\"") || has("_len\"") || has("tokens\"") || has("\"prompt");
    return other || !has("\"timestamp\"");
}

namespace {

// Where a key first stands in the text; its start where it does not.
Diagnostic place(const std::string& file, const std::string& text, const BadRecord& bad) {
    const std::size_t at = bad.key.empty() ? std::string::npos : text.find(fmt::format("\"{}\"", bad.key));
    return diagnostic_at(file, text, at == std::string::npos ? 0 : at, bad.problem);
}

Json parsed(const std::string& text, const std::string& file, int line) {
    if (std::string problem = json_depth_problem(text); !problem.empty()) {
        throw ConfigError({Diagnostic{file, line + 1, 1, std::move(problem), ErrorCode::malformed_trace}});
    }
    try {
        return Json::parse(text);
    } catch (const Json::exception& problem) {
        throw ConfigError({json_problem(file, problem, line)});
    }
}

// One document; else a map a line.
JsonRecords records_of(const std::string& text, const std::string& file) {
    const std::size_t first = std::min(text.find_first_not_of(" \t\r\n\xEF\xBB\xBF"), text.size());
    const std::size_t end = std::min(text.find('\n', first), text.size());
    const std::string_view rest = std::string_view(text).substr(end);
    // A first line that is JSON by itself, and another map below it: lines.
    const std::string line = text.substr(first, end - first);
    const std::size_t more = rest.find_first_not_of(" \t\r\n");
    JsonRecords out;
    if (!line.empty() && line[0] == '{' && more != std::string_view::npos && rest[more] == '{' && Json::accept(line)) {
        out.lines = true;
        TextLines lines(text, file);
        for (std::string_view one; lines.next_line(one);) {
            if (one.find_first_not_of(" \t\r\xEF\xBB\xBF") != std::string_view::npos) {
                out.maps.push_back(parsed(lines.line() == 1 ? line : std::string(one), file, lines.line() - 1));
                if (!out.maps.back().is_object()) {
                    lines.fail("expected a JSON map, as the lines before it");
                    lines.finish();
                }
            }
        }
        return out;
    }
    Json whole =
        parsed(text.substr(first), file,
               static_cast<int>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(first), '\n')));
    if (whole.is_array()) {
        for (Json& one : whole) {
            out.maps.push_back(std::move(one));
        }
    } else {
        out.maps.push_back(std::move(whole));
    }
    return out;
}

void check(Recorded& out) {
    for (std::size_t i = 0; i < out.requests.size(); ++i) {
        RecordedRequest& one = out.requests[i];
        for (const auto& [what, value, most] : {std::tuple{"prompt tokens", one.prompt, kMostTokens},
                                                {"output tokens", one.output, kMostTokens},
                                                {"seconds of arrival", one.at_s, 1e12}}) {
            if (!(value >= 0 && value <= most)) {
                throw BadRecord{
                    fmt::format("request {} has {:g} {}, and 0 to {:g} are possible", i + 1, value, what, most), ""};
            }
        }
        one.prompt = std::max(1.0, std::round(one.prompt));
        one.output = std::max(1.0, std::round(one.output));
    }
    if (out.graph) {
        return;  // numbers of requests are those of the file
    }
    std::stable_sort(out.requests.begin(), out.requests.end(),
                     [](const RecordedRequest& a, const RecordedRequest& b) { return a.at_s < b.at_s; });
}

}  // namespace

Recorded read_recorded(const std::string& text, const std::string& file, const std::string& name) {
    const JsonRecords records = records_of(text, file);
    Recorded out;
    const RecordFormat* format = nullptr;
    std::string looks;
    for (const RecordFormat* row : record_format_table()) {
        looks += fmt::format("{}{} ({})", looks.empty() ? "" : "; ", row->looks, row->name);
        if (format == nullptr && !records.maps.empty() && row->is(records) && (name.empty() || name == row->name)) {
            format = row;
        }
    }
    for (const TraceFormat* row : trace_format_table()) {
        looks += row->header ? "" : fmt::format("; {} ({})", row->looks, row->name);
    }
    if (format == nullptr) {
        throw ConfigError({Diagnostic{file, 1, 1, "expected JSON with the keys of one of these formats: " + looks,
                                      ErrorCode::malformed_trace}});
    }
    try {
        out.format = format->name;
        format->read(records, out);
        check(out);
        if (out.requests.empty()) {
            throw BadRecord{fmt::format("holds no request that was answered ({})", format->description), ""};
        }
    } catch (const BadRecord& bad) {
        throw ConfigError({place(file, text, bad)});
    } catch (const Json::exception& problem) {  // a value of another type than every file of this format has
        const std::string what = problem.what();
        throw ConfigError({place(file, text,
                                 {fmt::format("expected {}, and found a value of another type ({})",
                                              format->description, what.substr(what.find("] ") + 2)),
                                  ""})});
    }
    return out;
}

std::string table_of(const Recorded& recorded) {
    const auto any = [&](auto of) { return std::any_of(recorded.requests.begin(), recorded.requests.end(), of); };
    const bool sessions = any([](const RecordedRequest& one) { return one.session > 0; });
    const bool ttft = any([](const RecordedRequest& one) { return one.ttft_s >= 0; });
    const bool e2e = any([](const RecordedRequest& one) { return one.e2e_s >= 0; });
    std::string out = fmt::format("arrival_s,prompt,output{}{}{}\n", sessions ? ",session" : "", ttft ? ",ttft_s" : "",
                                  e2e ? ",e2e_s" : "");
    std::vector<const RecordedRequest*> order;
    for (const RecordedRequest& one : recorded.requests) {
        order.push_back(&one);
    }
    // Requests of a graph stand as their file has them.
    std::stable_sort(order.begin(), order.end(),
                     [](const RecordedRequest* a, const RecordedRequest* b) { return a->at_s < b->at_s; });
    const double origin = order.empty() ? 0 : order.front()->at_s;
    for (const RecordedRequest* row : order) {
        const RecordedRequest& one = *row;
        out += fmt::format("{:.6f},{:.0f},{:.0f}", one.at_s - origin, one.prompt, one.output);
        out += sessions ? fmt::format(",{}", one.session) : "";
        const auto measured = [](double value) { return value >= 0 ? fmt::format(",{:.6f}", value) : ","; };
        out += (ttft ? measured(one.ttft_s) : "") + (e2e ? measured(one.e2e_s) : "") + "\n";
    }
    return out;
}

}  // namespace orrery::serving
