// Spans of a serving engine as requests: OTLP JSON, as the OpenTelemetry collector's file exporter writes it (one JSON map per
// line) or as one document.
//
// A span is a request when it tells the tokens of its prompt and of its output: gen_ai.usage.prompt_tokens and
// completion_tokens (vLLM's `llm_request`, SGLang's request spans), or input_tokens and output_tokens (the convention of
// OpenTelemetry). Its start is the arrival. Where such spans are inside each other (a gateway around an engine) the innermost one
// counts. Logged latencies go along as columns, which a simulation does not read.
// Limits: a request of several samples counts as one with all their tokens; what a prompt shares with others is not logged.
// Sources: OpenTelemetry, opentelemetry-proto (trace.proto; JSON encoding: 64-bit integers are strings) and semantic
// conventions of generative AI; attribute names of vLLM (vllm/tracing) and SGLang (srt/tracing/trace.py).

#include "sim/base/error.hpp"
#include "sim/config/units.hpp"
#include "sim/record/json_text.hpp"
#include "workloads/imports/importer.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>
#include <unordered_map>

namespace orrery::imports {

namespace {

using Json = nlohmann::json;

constexpr double kMostTokens = 1 << 24;
constexpr std::uint64_t kMostNanoseconds = 1ULL << 62U;

struct Span {
    std::uint64_t start_ns = 0;
    std::uint64_t end_ns = 0;
    std::string id;  ///< of its trace and itself
    std::string parent;
    double prompt = 0;
    double output = 0;
    double ttft_s = -1;  ///< below 0: not logged
    double e2e_s = -1;
    std::string conversation;
    bool holds_another = false;
};

class OtlpReader {
  public:
    explicit OtlpReader(const ImportInput& input) : input_(input), file_(input.path()) {}

    Imported run() {
        read_documents();
        if (spans_.empty()) {
            fail(1,
                 "holds no span of a request: none has gen_ai.usage.prompt_tokens and completion_tokens, or "
                 "input_tokens and "
                 "output_tokens");
        }
        leave_outer_spans();
        return write();
    }

  private:
    [[noreturn]] void fail(int line, const std::string& text) const {
        throw ConfigError({Diagnostic{file_, line, line > 0 ? 1 : 0, text, ErrorCode::malformed_trace}});
    }

    // JSON values one after another: lines of the file exporter, or one document over many lines.
    void read_documents() {
        const std::string text = input_.bytes();
        require_shallow_json(text, file_);
        std::istringstream in(text);
        std::size_t at = 0;
        while (in >> std::ws && in.peek() != std::char_traits<char>::eof()) {
            const auto start = static_cast<std::size_t>(in.tellg());
            line_ += static_cast<int>(std::count(text.begin() + static_cast<std::ptrdiff_t>(at),
                                                 text.begin() + static_cast<std::ptrdiff_t>(start), '\n'));
            at = start;
            Json document;
            try {
                in >> document;
            } catch (const Json::exception& problem) {
                throw ConfigError({json_problem(file_, problem, line_ - 1)});
            }
            if (document.is_array()) {
                for (const Json& one : document) {
                    read_document(one);
                }
            } else {
                read_document(document);
            }
        }
    }

    // An empty list where the member is missing.
    const Json& list(const Json& map, const char* key) const {
        static const Json kNone = Json::array();
        const auto found = map.is_object() ? map.find(key) : map.end();
        if (!map.is_object() || (found != map.end() && !found->is_array())) {
            fail(line_, fmt::format("is no OTLP JSON: '{}' is a list in a map", key));
        }
        return found == map.end() ? kNone : *found;
    }

    void read_document(const Json& document) {
        if (!document.is_object() || !(document.contains("resourceSpans") || document.contains("resourceLogs") ||
                                       document.contains("resourceMetrics"))) {
            fail(line_, "is no OTLP JSON: a map with 'resourceSpans'");
        }
        notes_.left_out("logs of resources", list(document, "resourceLogs").size());
        notes_.left_out("metrics of resources", list(document, "resourceMetrics").size());
        for (const Json& resource : list(document, "resourceSpans")) {
            // Collectors of before 2022 call scopes libraries.
            for (const char* scopes : {"scopeSpans", "instrumentationLibrarySpans"}) {
                for (const Json& scope : list(resource, scopes)) {
                    for (const Json& span : list(scope, "spans")) {
                        read_span(span);
                    }
                }
            }
        }
    }

    static std::string text(const Json& map, const char* key) {
        const auto found = map.find(key);
        return found != map.end() && found->is_string() ? found->get<std::string>() : std::string();
    }

    // 64-bit integers are strings in protobuf's JSON; some writers give numbers.
    [[nodiscard]] std::uint64_t nanoseconds(const Json& span, const char* key) const {
        const auto found = span.find(key);
        std::uint64_t value = 0;
        bool good = false;
        if (found != span.end() && found->is_string()) {
            const std::string& digits = found->get_ref<const std::string&>();
            const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
            good = error == std::errc() && end == digits.data() + digits.size();
        } else if (found != span.end() && found->is_number_unsigned()) {
            value = found->get<std::uint64_t>();
            good = true;
        }
        if (!good || value == 0 || value > kMostNanoseconds) {
            fail(line_, fmt::format("span '{}' has no '{}': nanoseconds since 1970", text(span, "spanId"), key));
        }
        return value;
    }

    // A number however it is encoded; nothing for other kinds.
    static std::optional<double> number(const Json& value) {
        for (const char* kind : {"intValue", "doubleValue", "stringValue"}) {
            const auto found = value.find(kind);
            double out = 0;
            if (found != value.end() && found->is_number()) {
                return found->get<double>();
            }
            if (found != value.end() && found->is_string() && parse_number(found->get_ref<const std::string&>(), out)) {
                return out;
            }
        }
        return std::nullopt;
    }

    struct Attributes {
        std::map<std::string, double> numbers;
        std::map<std::string, std::string> texts;

        [[nodiscard]] std::optional<double> first(std::initializer_list<const char*> keys) const {
            for (const char* key : keys) {
                if (const auto found = numbers.find(key); found != numbers.end()) {
                    return found->second;
                }
            }
            return std::nullopt;
        }
        [[nodiscard]] std::string text(const char* key) const {
            const auto found = texts.find(key);
            return found == texts.end() ? std::string() : found->second;
        }
    };

    [[nodiscard]] Attributes attributes_of(const Json& span) const {
        Attributes out;
        for (const Json& attribute : list(span, "attributes")) {
            const auto value = attribute.is_object() ? attribute.find("value") : attribute.end();
            if (!attribute.is_object() || value == attribute.end() || !value->is_object()) {
                continue;
            }
            const std::string key = text(attribute, "key");
            out.texts[key] = text(*value, "stringValue");
            if (const auto of = number(*value)) {
                out.numbers[key] = *of;
            }
        }
        return out;
    }

    static bool failed(const Json& span) {
        const auto status = span.find("status");
        if (status == span.end() || !status->is_object()) {
            return false;
        }
        const auto code = status->find("code");
        return code != status->end() && (*code == 2 || *code == "STATUS_CODE_ERROR");
    }

    void read_span(const Json& json) {
        const Attributes attributes = attributes_of(json);
        const auto prompt = attributes.first({"gen_ai.usage.prompt_tokens", "gen_ai.usage.input_tokens"});
        const auto output = attributes.first({"gen_ai.usage.completion_tokens", "gen_ai.usage.output_tokens"});
        Span span;
        span.id = text(json, "traceId") + " " + text(json, "spanId");
        span.parent = text(json, "traceId") + " " + text(json, "parentSpanId");
        parents_[span.id] = span.parent;
        if (!prompt || !output) {
            notes_.left_out(fmt::format("spans '{}' without tokens of a request", text(json, "name").substr(0, 40)));
            return;
        }
        for (const double tokens : {*prompt, *output}) {
            if (!(tokens >= 0 && tokens <= kMostTokens) || tokens != std::floor(tokens)) {
                fail(line_, fmt::format("span '{}' has {:g} tokens; whole numbers from 0 to {:.0f} can be",
                                        text(json, "spanId"), tokens, kMostTokens));
            }
        }
        span.start_ns = nanoseconds(json, "startTimeUnixNano");
        span.end_ns = nanoseconds(json, "endTimeUnixNano");
        if (span.end_ns < span.start_ns) {
            fail(line_, fmt::format("span '{}' ends before it starts", text(json, "spanId")));
        }
        std::string model = attributes.text("gen_ai.response.model");
        if (model.empty()) {
            model = attributes.text("gen_ai.request.model");
        }
        if (input_.has("model") && model != input_.option("model")) {
            notes_.left_out(fmt::format("requests to model '{}'", model));
            return;
        }
        if (failed(json)) {
            notes_.left_out("requests that ended with an error");
            return;
        }
        if (*output == 0) {
            notes_.left_out("requests that gave no token");
            return;
        }
        if (attributes.first({"gen_ai.usage.num_sequences", "gen_ai.request.n"}).value_or(1) > 1) {
            notes_.assumed("requests of several samples are one with all their tokens");
        }
        span.prompt = *prompt;
        span.output = *output;
        span.ttft_s = attributes.first({"gen_ai.latency.time_to_first_token"}).value_or(-1);
        span.e2e_s = attributes.first({"gen_ai.latency.e2e", "gen_ai.latency.time_in_request"})
                         .value_or(static_cast<double>(span.end_ns - span.start_ns) * 1e-9);
        span.conversation = attributes.text("gen_ai.conversation.id");
        ++models_[model.empty() ? "(not named)" : model];
        spans_.push_back(std::move(span));
    }

    void leave_outer_spans() {
        std::unordered_map<std::string, std::size_t> requests;
        for (std::size_t i = 0; i < spans_.size(); ++i) {
            if (!requests.emplace(spans_[i].id, i).second) {
                fail(0, fmt::format("span '{}' comes twice", spans_[i].id));
            }
        }
        // A span that was above another one has been gone up from: chains share their upper ends.
        std::unordered_map<std::string, std::size_t> above_of;
        for (std::size_t i = 0; i < spans_.size(); ++i) {
            std::string above = spans_[i].parent;
            for (auto parent = parents_.find(above); parent != parents_.end(); parent = parents_.find(above)) {
                const auto [seen, fresh] = above_of.try_emplace(above, i);
                if (!fresh && seen->second == i) {
                    fail(0, fmt::format("the parents of span '{}' go in a circle", spans_[i].id));
                }
                if (!fresh) {
                    break;
                }
                if (const auto found = requests.find(above); found != requests.end()) {
                    spans_[found->second].holds_another = true;
                }
                above = parent->second;
            }
        }
        const auto outer = std::erase_if(spans_, [](const Span& span) { return span.holds_another; });
        notes_.left_out("spans around other spans of a request", outer);
    }

    Imported write() {
        std::stable_sort(spans_.begin(), spans_.end(),
                         [](const Span& a, const Span& b) { return a.start_ns < b.start_ns; });
        const bool sessions =
            std::any_of(spans_.begin(), spans_.end(), [](const Span& span) { return !span.conversation.empty(); });
        std::map<std::string, std::size_t> session_of;
        fmt::memory_buffer out;
        const auto to = std::back_inserter(out);
        fmt::format_to(to, "arrival_s,prompt,output{},ttft_s,e2e_s\n", sessions ? ",session" : "");
        const auto logged = [](double seconds) {
            return seconds >= 0 ? fmt::format("{:.9g}", seconds) : std::string();
        };
        for (const Span& span : spans_) {
            fmt::format_to(to, "{:.9f},{:.0f},{:.0f}", static_cast<double>(span.start_ns - spans_[0].start_ns) * 1e-9,
                           span.prompt, span.output);
            if (sessions) {
                // Requests of no conversation are alone.
                const std::string key = span.conversation.empty() ? span.id : span.conversation;
                fmt::format_to(to, ",{}", session_of.emplace(key, session_of.size()).first->second);
            }
            fmt::format_to(to, ",{},{}\n", logged(span.ttft_s), logged(span.e2e_s));
        }
        Imported imported;
        imported.text = fmt::to_string(out);
        imported.use = "'kind: serving' and 'requests: {trace: FILE}'";
        for (const auto& [model, count] : models_) {
            imported.facts.push_back({"model", fmt::format("{} ({} spans)", model, count)});
        }
        notes_.read("requests", spans_.size());
        imported.notes = std::move(notes_);
        return imported;
    }

    const ImportInput& input_;
    const std::string& file_;
    int line_ = 1;
    std::vector<Span> spans_;
    std::unordered_map<std::string, std::string> parents_;  ///< of all spans
    std::map<std::string, std::size_t> models_;
    ImportNotes notes_;
};

}  // namespace

extern const Importer kOtlpImporter = {"otlp",
                                       "OpenTelemetry spans (OTLP JSON) of vLLM, SGLang and others, as requests",
                                       {{"model", "NAME", "requests to this model alone"}},
                                       [](const ImportInput& input) { return OtlpReader(input).run(); },
                                       "csv"};

}  // namespace orrery::imports
