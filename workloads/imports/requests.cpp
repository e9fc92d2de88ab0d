// `orrery import requests`: recorded requests as a table that scenarios read.

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/record/table_reader.hpp"
#include "workloads/imports/importer.hpp"
#include "workloads/serving/requests/formats/trace_format.hpp"
#include "workloads/serving/requests/recorded/recorded.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace orrery::imports {

namespace {

// Without the mark of UTF-8 before it, and without spaces and a carriage return behind it.
std::string_view bare_line(std::string_view line) {
    line.remove_prefix(line.rfind("\xEF\xBB\xBF", 0) == 0 ? 3 : 0);
    const std::size_t last = line.find_last_not_of(" \r");
    return last == std::string_view::npos ? std::string_view() : line.substr(0, last + 1);
}

// A trace of a line each, as `requests.trace` reads it; nothing where its first line is of none of their formats.
std::optional<Recorded> read_trace(const std::string& text, const std::string& file) {
    if (may_be_recorded(std::string_view(text).substr(0, 4096))) {
        return std::nullopt;
    }
    TextLines lines(text, file);
    std::unique_ptr<RequestLines> reader;
    Recorded out;
    bool shares = false;
    for (std::string_view raw; lines.next_line(raw);) {
        const std::string_view line = bare_line(raw);
        if (line.empty()) {
            continue;
        }
        try {
            bool header = false;
            for (const TraceFormat* format : trace_format_table()) {
                if (reader == nullptr && out.format.empty()) {
                    reader = format->open(line, false);
                    out.format = reader == nullptr ? "" : format->name;
                    header = reader != nullptr && format->header;
                }
            }
            if (reader == nullptr) {
                return std::nullopt;
            }
            if (header) {
                continue;
            }
            TracedRequest request;
            reader->read(line, request);
            shares = shares || !request.keys.empty();
            RecordedRequest one;
            one.at_s = request.at_s;
            one.prompt = request.prompt;
            one.output = request.output;
            one.session = static_cast<decltype(one.session)>(request.session);
            out.requests.push_back(one);
        } catch (const BadLine& bad) {
            lines.fail(bad.problem);
            lines.finish();
        }
    }
    if (reader != nullptr && out.requests.empty()) {
        throw ConfigError({Diagnostic{file, 1, 1, "has no request: a line each, behind a header in CSV",
                                      ErrorCode::malformed_trace}});
    }
    std::stable_sort(out.requests.begin(), out.requests.end(),
                     [](const RecordedRequest& a, const RecordedRequest& b) { return a.at_s < b.at_s; });
    if (out.format == "mooncake") {
        out.assumed.emplace_back("times in milliseconds, as Mooncake's");
    }
    if (shares) {
        out.assumed.emplace_back(
            "prompts that share nothing: 'requests.trace' keeps blocks where it names the file itself");
    }
    return reader == nullptr ? std::nullopt : std::optional(std::move(out));
}

Imported read_requests(const ImportInput& input) {
    const std::string text = input.bytes();
    if (text.find_first_not_of(" \t\r\n\xEF\xBB\xBF") == std::string::npos) {
        throw ConfigError(
            {Diagnostic{input.path(), 1, 1,
                        "expected results of a load generator, JSON lines or a trace in CSV, and the file is "
                        "empty (orrery list formats)",
                        ErrorCode::malformed_trace}});
    }
    std::optional<Recorded> trace = read_trace(text, input.path());
    const std::size_t first = text.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
    if (!trace && text[first] != '{' && text[first] != '[') {
        std::string headers;
        for (const TraceFormat* format : trace_format_table()) {
            headers += fmt::format("{}{} ({})", headers.empty() ? "" : ", or ", format->looks, format->name);
        }
        const std::string line = text.substr(first, std::min(text.find('\n', first), text.size()) - first);
        throw ConfigError({diagnostic_at(
            input.path(), text, first,
            fmt::format("expected JSON or a first line such as {}, and found '{}'", headers, printable(line, 60)))});
    }
    const Recorded recorded = trace ? std::move(*trace) : read_recorded(text, input.path());
    Imported out;
    out.text = table_of(recorded);
    out.use = "'requests: {trace: FILE}'";
    out.facts.push_back({"format", recorded.format});
    out.notes.read("requests", recorded.requests.size());
    out.notes.left_out("requests that failed or are empty", recorded.failed);
    for (const std::string& assumed : recorded.assumed) {
        out.notes.assumed(assumed);
    }
    const auto count = [&](auto of) {
        return static_cast<std::uint64_t>(std::count_if(recorded.requests.begin(), recorded.requests.end(), of));
    };
    out.notes.left_out("delays after the answer before: 'requests.trace' keeps them where it names the file itself",
                       count([](const RecordedRequest& one) { return one.delay_s >= 0; }));
    if (const std::uint64_t measured =
            count([](const RecordedRequest& one) { return one.e2e_s >= 0 || one.ttft_s >= 0; })) {
        out.notes.read("requests with measured latencies (orrery validate serving --log SCENARIO)", measured);
    }
    return out;
}

}  // namespace

extern const Importer kRequestsImporter = {"requests",
                                           "results of vLLM's and SGLang's benchmark clients, AIPerf, genai-perf, "
                                           "guidellm and inference-perf, ShareGPT's JSON, or JSON "
                                           "lines of lengths, as requests",
                                           {},
                                           read_requests,
                                           "csv"};

}  // namespace orrery::imports
