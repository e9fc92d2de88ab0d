// Request traces that are damaged, odd or too long.

#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "workloads/imports/importer.hpp"
#include "workloads/serving/requests/arrivals.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;
using namespace orrery::test;

namespace {

// All requests of a trace with this text.
std::vector<Request> read_all(const std::string& text, RequestsSpec spec = {}) {
    const Folder folder;
    const auto source = make_requests(spec, folder.file("trace", text), 1);
    std::vector<Request> out;
    for (Request one; source->next(one);) {
        out.push_back(one);
    }
    return out;
}

std::string refusal_of(const std::string& text, const RequestsSpec& spec = {}) {
    try {
        (void)read_all(text, spec);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

std::string row(double at, double prompt = 10, double output = 2) {
    return fmt::format("{},{},{}\n", at, prompt, output);
}

std::string line(double ms, double prompt = 10, double output = 2) {
    return fmt::format("{{\"timestamp\": {}, \"input_length\": {}, \"output_length\": {}}}\n", ms, prompt, output);
}

const std::string kHeader = "arrival_s,prompt,output\n";

}  // namespace

TEST_CASE("serving: a trace may have a byte order mark, carriage returns, blank lines and no end of its last line") {
    const std::vector<Request> plain = read_all(kHeader + "1,10,2\n3.5,20,4\n");
    REQUIRE(plain.size() == 2);
    CHECK(plain[1].arrival.seconds() == 2.5);
    for (const std::string& text : {"\xEF\xBB\xBF" + kHeader + "1,10,2\n3.5,20,4\n",
                                    std::string("arrival_s,prompt,output\r\n1,10,2\r\n3.5,20,4\r\n"),
                                    "\n\n" + kHeader + "\n1,10,2\n   \n3.5,20,4",
                                    std::string("prompt,x,output,arrival_s\n10,?,2,1\n20,,4,3.5\n")}) {
        const std::vector<Request> odd = read_all(text);
        REQUIRE_MESSAGE(odd.size() == 2, text);
        CHECK(odd[1].arrival == plain[1].arrival);
        CHECK(odd[1].prompt == plain[1].prompt);
        CHECK(odd[1].output == plain[1].output);
    }
    CHECK(refusal_of("\n").find(":1:1: error: has no request") != std::string::npos);
    CHECK(refusal_of(kHeader).find(":1:1: error: has no request") != std::string::npos);
}

TEST_CASE("serving: stamps of a trace may be dates with fractions and a zone") {
    for (const char* zone : {"", "Z", "+00:00", "-08:00"}) {
        const std::vector<Request> dated =
            read_all(fmt::format("{0}2024-02-28T23:59:59.5{1},10,2\n2024-02-29 00:00:01{1},10,2\n", kHeader, zone));
        REQUIRE(dated.size() == 2);
        CHECK(dated[1].arrival.seconds() == doctest::Approx(1.5));
    }
}

TEST_CASE("serving: a sample of a closed loop is a closed loop") {
    std::string text = kHeader;
    for (int i = 0; i < 200; ++i) {
        text += row(0);
    }
    const Folder folder;
    RequestsSpec spec;
    spec.arrivals = ArrivalKind::closed;
    spec.clients = 3;
    spec.sample = 0.5;
    const auto source = make_requests(spec, folder.file("trace", text), 1);
    CHECK(source->clients() == 3);
    int kept = 0;
    for (Request one; source->next(one);) {
        ++kept;
    }
    CHECK(kept > 60);
    CHECK(kept < 140);
}

TEST_CASE("serving: what is wrong in a trace is refused with its line") {
    const std::vector<std::pair<std::string, std::string>> cases = {
        {kHeader + row(5) + row(4), ":3:1: error: goes back in time"},
        {line(5000) + line(4000), ":2:1: error: goes back in time"},
        {kHeader + row(1, -3), ":2:1: error: prompt tokens is a number from 0"},
        {kHeader + row(1, 10, 1e12), ":2:1: error: output tokens is a number from 0"},
        {line(1, 1e12), ":1:1: error: \"input_length\" is a number from 0"},
        {line(1, 10, -1), ":1:1: error: \"output_length\" is a number from 0"},
        {kHeader + "1,nan,3\n", "not 'nan'"},
        {kHeader + "soon,10,3\n", "'soon' is no time"},
        {kHeader + "1,10\n", ":2:1: error: 2 cells, but the header names 3 columns"},
        {kHeader + "1,10,3,4\n", ":2:1: error: 4 cells, but the header names 3 columns"},
        {"arrival_s,prompt,output,prompt\n1,10,3,4\n", ":1:1: error: column 'prompt' comes twice"},
        {kHeader + row(1, 10.5), ":2:1: error: prompt tokens is a whole number, not '10.5'"},
        {line(1, 10, 2.5), ":1:1: error: \"output_length\" is a whole number, not '2.5'"},
        {"{\"timestamp\": 1, \"input_length\": 6, \"output_length\": 5, \"input_length\": 7}\n",
         "has two members \"input_length\""},
        {kHeader + "2023-02-30 18:17:03,10,3\n", "'2023-02-30 18:17:03' is no time"},
        {kHeader + "2023-11-16 24:17:03,10,3\n", "is no time"},
        {kHeader + "2023-11-16 18:60:03,10,3\n", "is no time"},
        {kHeader + "2023-11-16 18:17:03+soon,10,3\n", "is no time"},
        {"1,10,3\n", "the header names no arrival"},
        {"TIMESTAMP,prompt,output\n1,10,3\n", "arrival_s,prompt,output[,session] (plain)"},
        {std::string("\0\1\2\n", 4), "the header names no arrival"},
        {"{\"timestamp\": 1}\n", "has no \"input_length\""},
        {"{\"timestamp\": 1, \"input_length\": 6, \"output_length\": 5, \"hash_ids\": [1e300]}\n",
         "list of whole numbers"},
        {kHeader + "1,10," + std::string(2 << 20, '7'), "longer than 1 MiB"},
    };
    for (const auto& [text, problem] : cases) {
        const std::string said = refusal_of(text);
        const std::string start = text.substr(0, 200);
        CHECK_MESSAGE(said.find(problem) != std::string::npos, start << "\n" << said);
    }
}

TEST_CASE("serving: a trace that outlasts simulated time is refused before it runs, with the scale that fits") {
    std::string text = kHeader;
    for (int day = 0; day <= 213; ++day) {
        text += row(86400.0 * day);
    }
    const Folder folder;
    const std::string path = folder.file("long.csv", text);
    RequestsSpec spec;
    Request one;
    const auto refused = [&] {
        try {
            (void)make_requests(spec, path, 1)->next(one);
        } catch (const ConfigError& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    const std::string said = refused();
    CHECK_MESSAGE(said.find("lasts 213.0 days") != std::string::npos, said);
    const std::string before = "'requests.time_scale' of at most ";
    REQUIRE(said.find(before) != std::string::npos);
    const double fits = std::stod(said.substr(said.find(before) + before.size()));
    CHECK(fits * 213 * 86400 <= 9e6);
    CHECK(fits * 213 * 86400 > 0.98 * 9e6);
    spec.time_scale = fits;
    CHECK(refused().empty());
    CHECK(read_all(text, spec).size() == 214);
    spec = RequestsSpec();
    spec.to = 100 * 86400.0;
    CHECK(read_all(text, spec).size() == 100);
    // Of a few requests it is known only where they stop; a closed loop has no use for the stamps.
    spec = RequestsSpec();
    spec.count = 104;
    CHECK(read_all(text, spec).size() == 104);
    spec.count = 150;
    CHECK(refusal_of(text, spec).find(":107:1: error: the trace lasts 105.0 days") != std::string::npos);
    spec.count = 0;
    spec.arrivals = ArrivalKind::closed;
    CHECK(read_all(text, spec).size() == 214);
    std::string stamps;
    for (int day = 0; day <= 213; ++day) {
        stamps += line(86400.0e3 * day);
    }
    CHECK(refusal_of(stamps).find(":1:1: error: the trace lasts 213.0 days") != std::string::npos);
    // Generated requests say so too.
    CHECK(refusal("orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-2-7b\nrequests: {rate: "
                  "1e-4, count: 1000}\n")
              .find("1000 requests at 0.0001 a second take 115.7 days") != std::string::npos);
}

namespace {

// A span as the collector's file exporter writes it; attributes as key=value, integers as OTLP's JSON has them: in quotes.
std::string span(const std::string& id, const std::string& parent, double start_s, double end_s,
                 const std::vector<std::pair<std::string, std::string>>& attributes, const std::string& rest = "") {
    std::string list;
    for (const auto& [key, value] : attributes) {
        const std::string kind = value.find('.') != std::string::npos ? "\"doubleValue\":" + value
                                 : value.find_first_not_of("-0123456789") == std::string::npos
                                     ? "\"intValue\":\"" + value + "\""
                                     : "\"stringValue\":\"" + value + "\"";
        list += fmt::format("{}{{\"key\":\"{}\",\"value\":{{{}}}}}", list.empty() ? "" : ",", key, kind);
    }
    constexpr std::uint64_t kEpoch = 1'760'000'000'000'000'000;
    const auto ns = [](double seconds) { return kEpoch + static_cast<std::uint64_t>(seconds * 1e9 + 0.5); };
    return fmt::format(
        "{{\"traceId\":\"t\",\"spanId\":\"{}\",\"parentSpanId\":\"{}\",\"name\":\"llm_request\",\"kind\":2,"
        "\"startTimeUnixNano\":\"{}\",\"endTimeUnixNano\":\"{}\",\"attributes\":[{}]{}}}",
        id, parent, ns(start_s), ns(end_s), list, rest);
}

std::string batch(const std::string& spans) {
    return "{\"resourceSpans\":[{\"resource\":{},\"scopeSpans\":[{\"scope\":{\"name\":\"vllm.llm_engine\"},\"spans\":"
           "[" +
           spans + "]}]}]}\n";
}

Imported import_spans(const std::string& text, std::map<std::string, std::string> options = {}) {
    return import_file("otlp", ImportInput::of_bytes("spans", text, std::move(options)));
}

}  // namespace

TEST_CASE("import: spans of vLLM and SGLang become requests, each once, with their logged latencies") {
    const std::string text =
        // Batches come as they end: the later request first. SGLang tells no end-to-end time here: it is the span's.
        batch(span("b", "", 2.5, 4,
                   {{"gen_ai.usage.prompt_tokens", "300"},
                    {"gen_ai.usage.completion_tokens", "40"},
                    {"gen_ai.response.model", "llama"}})) +
        batch(
            // A gateway with the convention's names around vLLM's own span.
            span("g", "", 1, 3.1, {{"gen_ai.usage.input_tokens", "100"}, {"gen_ai.usage.output_tokens", "20"}}) + "," +
            span("h", "g", 1.05, 3.05, {{"http.route", "/v1/completions"}}) + "," +
            span("a", "h", 1.1, 3,
                 {{"gen_ai.usage.prompt_tokens", "100"},
                  {"gen_ai.usage.completion_tokens", "20"},
                  {"gen_ai.latency.time_to_first_token", "0.25"},
                  {"gen_ai.latency.e2e", "1.875"},
                  {"gen_ai.conversation.id", "c9"},
                  {"gen_ai.response.model", "llama"}})) +
        "\n" +
        batch(span("e", "", 3, 3.5, {{"gen_ai.usage.prompt_tokens", "9"}, {"gen_ai.usage.completion_tokens", "1"}},
                   ",\"status\":{\"code\":2}") +
              "," +
              span("z", "", 3, 3.5, {{"gen_ai.usage.prompt_tokens", "9"}, {"gen_ai.usage.completion_tokens", "0"}}) +
              "," +
              span("n", "", 5, 6,
                   {{"gen_ai.usage.prompt_tokens", "7"},
                    {"gen_ai.usage.completion_tokens", "8"},
                    {"gen_ai.request.n", "2"},
                    {"gen_ai.response.model", "other"}}));
    const Imported imported = import_spans(text);
    CHECK(imported.text ==
          "arrival_s,prompt,output,session,ttft_s,e2e_s\n"
          "0.000000000,100,20,0,0.25,1.875\n"
          "1.400000000,300,40,1,,1.5\n"
          "3.900000000,7,8,2,,1\n");
    CHECK(importer("otlp").default_output("logs/spans.json") == "spans.csv");
    CHECK(imported.notes.read() == ImportNotes::Counts{{"requests", 3}});
    CHECK(imported.notes.left_out() == ImportNotes::Counts{{"requests that ended with an error", 1},
                                                           {"requests that gave no token", 1},
                                                           {"spans 'llm_request' without tokens of a request", 1},
                                                           {"spans around other spans of a request", 1}});
    CHECK(imported.notes.assumed().size() == 1);
    const std::vector<Request> requests = read_all(imported.text);
    REQUIRE(requests.size() == 3);
    CHECK(requests[1].arrival.seconds() == doctest::Approx(1.4));
    CHECK(requests[1].prompt == 300);
    CHECK(requests[2].session == 2);
    // One model of several; without conversations there are no sessions.
    CHECK(import_spans(text, {{"model", "other"}}).text ==
          "arrival_s,prompt,output,ttft_s,e2e_s\n0.000000000,7,8,,1\n");
    // The same as one document over many lines.
    std::string pretty =
        batch(span("b", "", 2.5, 4, {{"gen_ai.usage.prompt_tokens", "300"}, {"gen_ai.usage.completion_tokens", "40"}}));
    std::replace(pretty.begin(), pretty.end(), ',', '\f');
    for (std::size_t at = 0; (at = pretty.find('\f', at)) != std::string::npos;) {
        pretty.replace(at, 1, ",\n  ");
    }
    CHECK(import_spans(pretty).text == "arrival_s,prompt,output,ttft_s,e2e_s\n0.000000000,300,40,,1.5\n");
}

TEST_CASE("import: a chain of spans inside each other is one request, however long it is") {
    const std::vector<std::pair<std::string, std::string>> tokens = {{"gen_ai.usage.prompt_tokens", "3"},
                                                                     {"gen_ai.usage.completion_tokens", "4"}};
    constexpr int kLong = 60000;
    std::string chain;
    for (int i = 0; i < kLong; ++i) {
        chain += (i > 0 ? "," : "") + span(std::to_string(i), i > 0 ? std::to_string(i - 1) : "", 1, 2, tokens);
    }
    const Imported imported = import_spans(batch(chain));
    CHECK(imported.notes.read() == ImportNotes::Counts{{"requests", 1}});
    CHECK(imported.notes.left_out().at("spans around other spans of a request") == kLong - 1);
}

TEST_CASE("import: spans that cannot be are refused with their line") {
    const std::vector<std::pair<std::string, std::string>> tokens = {{"gen_ai.usage.prompt_tokens", "3"},
                                                                     {"gen_ai.usage.completion_tokens", "4"}};
    const auto refused = [](const std::string& text) {
        try {
            (void)import_spans(text);
        } catch (const ConfigError& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    const std::string good = batch(span("a", "", 1, 2, tokens));
    CHECK(refused(good).empty());
    const std::vector<std::pair<std::string, const char*>> cases = {
        {"", "holds no span of a request"},
        {batch(span("a", "", 1, 2, {})), "holds no span of a request"},
        {good + good.substr(0, good.size() / 2), "spans:2:201: error: is no JSON: "},
        {good + "\n[1]\n", "spans:3:1: error: is no OTLP JSON"},
        {"{\"traceEvents\": []}", "is no OTLP JSON: a map with 'resourceSpans'"},
        {batch(span("a", "", 3, 2, tokens)), "span 'a' ends before it starts"},
        {batch(span("a", "", 1, 2, {{"gen_ai.usage.prompt_tokens", "-3"}, {"gen_ai.usage.completion_tokens", "4"}})),
         "span 'a' has -3 tokens"},
        {batch(span("a", "", 1, 2, {{"gen_ai.usage.prompt_tokens", "3.5"}, {"gen_ai.usage.completion_tokens", "4"}})),
         "span 'a' has 3.5 tokens; whole numbers"},
        {good + good, "comes twice"},
        {batch(span("a", "b", 1, 2, tokens) + "," + span("b", "c", 1, 2, {}) + "," + span("c", "b", 1, 2, {})),
         "go in a circle"},
        {"{\"resourceSpans\":7}", "'resourceSpans' is a list in a map"},
    };
    for (const auto& [text, problem] : cases) {
        const std::string said = refused(text);
        const std::string expected = problem;
        CHECK_MESSAGE(said.find(problem) != std::string::npos, expected << " / " << said);
    }
}
