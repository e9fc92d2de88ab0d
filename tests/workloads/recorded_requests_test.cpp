// Requests from what load generators read and write.

#include "sim/base/error.hpp"
#include "tests/support/support.hpp"
#include "workloads/imports/importer.hpp"
#include "workloads/serving/requests/arrivals.hpp"
#include "workloads/serving/requests/recorded/recorded.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include <unistd.h>

using namespace orrery;
using namespace orrery::test;

namespace {

std::string problem_of(const std::string& text) {
    try {
        (void)read_recorded(text, "f.json");
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "none";
}

bool holds(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

// The source of requests of a file with this text.
class Trace {
  public:
    explicit Trace(const std::string& text, const RequestsSpec& spec = {}) : path_(make_path()) {
        std::ofstream(path_) << text;
        source_ = make_requests(spec, path_, 1);
    }
    ~Trace() { std::filesystem::remove(path_); }
    Trace(const Trace&) = delete;
    Trace& operator=(const Trace&) = delete;
    RequestSource& operator*() const { return *source_; }
    RequestSource* operator->() const { return source_.get(); }

  private:
    static std::string make_path() {
        static int count = 0;
        return (std::filesystem::temp_directory_path() / fmt::format("orrery-recorded-{}-{}.json", getpid(), ++count))
            .string();
    }
    std::string path_;
    std::unique_ptr<RequestSource> source_;
};

constexpr const char* kBench =
    R"({"backend": "vllm", "request_rate": "inf", "max_concurrency": 2, "input_lens": [100, 200, 300],
        "output_lens": [3, 2, 0], "ttfts": [0.5, 0.25, 0.0], "itls": [[0.125, 0.125], [0.25], []], "errors": ["", "", "timeout"]})";

}  // namespace

TEST_CASE("results of a benchmark client give requests and their latencies") {
    const Recorded out = read_recorded(kBench, "bench.json");
    CHECK(out.format == "bench");
    REQUIRE(out.requests.size() == 2);
    CHECK(out.failed == 1);
    CHECK(out.clients == 2);
    CHECK(out.requests[0].prompt == 100);
    CHECK(out.requests[0].output == 3);
    CHECK(out.requests[0].ttft_s == 0.5);
    CHECK(out.requests[0].e2e_s == 0.75);
    CHECK(table_of(out) ==
          "arrival_s,prompt,output,ttft_s,e2e_s\n0.000000,100,3,0.500000,0.750000\n0.000000,200,2,0.250000,0.500000\n");
    const Imported imported = import_file("requests", ImportInput::of_bytes("bench.json", kBench));
    CHECK(imported.text == table_of(out));
    CHECK(holds(problem_of(R"({"mean_ttft_ms": 3, "request_rate": 1, "num_prompts": 4})"), "--save-detailed"));
    CHECK(holds(problem_of("{\n\"input_lens\": [1, 2],\n\"output_lens\": [1]}"),
                "f.json:3:1: error: \"output_lens\" has 1"));
    CHECK(holds(problem_of(R"({"input_lens": [1], "output_lens": ["x"]})"), "entry 1 of \"output_lens\" is no number"));
}

TEST_CASE("results of other load generators give requests and their latencies") {
    struct Case {
        const char* format;
        const char* text;
    };
    for (
        const Case& c : {
            Case{"aiperf",
                 R"({"metadata": {"request_start_ns": 1000000000, "benchmark_phase": "warmup"}, "metrics": {}}
{"metadata": {"request_start_ns": 2000000000, "benchmark_phase": "profiling"}, "metrics": {"input_sequence_length": {"value": 64, "unit": "tokens"}, "output_sequence_length": {"value": 8, "unit": "tokens"}, "time_to_first_token": {"value": 250, "unit": "ms"}, "request_latency": {"value": 1.5, "unit": "s"}}, "error": null}
{"metadata": {"request_start_ns": 3000000000}, "metrics": {}, "error": {"code": 500}})"},
            Case{
                "genai-perf",
                R"({"experiments": [{"experiment": {"mode": "concurrency", "value": 4}, "requests": [{"timestamp": 2000000000,
                      "request_inputs": {"payload": "{\"messages\": [{\"content\": \"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345\"}]}"},
                      "response_timestamps": [2250000000, 2300000000, 2400000000, 2500000000, 2600000000, 2700000000, 2800000000, 3500000000]}]}]})"},
            Case{"guidellm",
                 R"({"benchmarks": [{"requests": {"successful": [{"request_start_time": 2.0, "request_end_time": 3.5,
                      "prompt_tokens": 64, "output_tokens": 8, "time_to_first_token_ms": 250.0}], "errored": [{}]}}]})"},
            Case{
                "inference-perf",
                R"([{"start_time": 2.0, "end_time": 3.5, "error": null, "info": {"input_tokens": 64, "output_tokens": 8,
                      "output_token_times": [2.25, 3.5]}}])"},
        }) {
        CAPTURE(c.format);
        const Recorded out = read_recorded(c.text, "f");
        CHECK(out.format == c.format);
        REQUIRE(out.requests.size() == 1);
        CHECK(out.requests[0].at_s == doctest::Approx(2));
        CHECK(out.requests[0].prompt == 64);
        CHECK(out.requests[0].output == 8);
        CHECK(out.requests[0].ttft_s == doctest::Approx(0.25));
        CHECK(out.requests[0].e2e_s == doctest::Approx(1.5));
    }
    const Recorded shared = read_recorded(
        R"([{"id": "a", "conversations": [{"from": "human", "value": "12345678"}, {"from": "gpt", "value": "1234"}]},
            {"id": "b", "conversations": []}])",
        "f");
    CHECK(shared.format == "sharegpt");
    REQUIRE(shared.requests.size() == 1);
    CHECK(shared.requests[0].prompt == 2);
    CHECK(shared.failed == 1);
    const Recorded lengths =
        read_recorded("{\"prompt_len\": 5, \"output_len\": 7}\n{\"prompt_len\": 6, \"output_len\": 8}\n", "f");
    CHECK(lengths.format == "lengths");
    REQUIRE(lengths.requests.size() == 2);
    CHECK(lengths.requests[1].output == 8);
    const Recorded engine = read_recorded(
        R"({"request_id": "a", "input_toks": 5, "output_toks": 7, "arrival_time": 10.5, "queued_ts": 2.0, "first_token_ts": 2.5, "last_token_ts": 4.0})",
        "f");
    CHECK(engine.requests[0].at_s == 10.5);
    CHECK(engine.requests[0].ttft_s == 0.5);
    CHECK(engine.requests[0].e2e_s == 2);
    CHECK(read_recorded(R"([{"input_tokens": 5, "output_tokens": 7, "arrival_s": 3}])", "f").requests[0].at_s == 3);
}

TEST_CASE("a session of a data set sends each turn a delay after the answer before, with all that was said") {
    const Trace trace(R"({"session_id":"a","timestamp":0,"input_length":1000,"output_length":100,"hash_ids":[1,2]}
{"session_id":"a","delay":500,"input_length":300,"output_length":50,"hash_ids":[3]}
{"session_id":"b","timestamp":1000,"input_length":1000,"output_length":100,"hash_ids":[1,2]}
)");
    Request first;
    REQUIRE(trace->next(first));
    CHECK(first.prompt == 1000);
    CHECK(first.turn == 1);
    Request other;
    REQUIRE(trace->next(other));
    CHECK(other.arrival.seconds() == doctest::Approx(1));
    CHECK(other.turn == 0);
    Request second;
    REQUIRE(trace->follow_up(first.turn, SimTime::from_seconds(3), true, second));
    CHECK(second.arrival.seconds() == doctest::Approx(3.5));
    CHECK(second.prompt == 1400);
    CHECK(second.turn == 0);
    // Both share their first 1,100 tokens, an answer included, and nothing after.
    CHECK(second.content.key(0, 16) == first.content.key(0, 16));
    CHECK(second.content.key(67, 16) == first.content.key(67, 16));
    CHECK(second.content.key(67, 16) != 0);
    CHECK(first.content.key(69, 16) == 0);
    CHECK(!trace->next(other));
    const Trace given_up(
        "{\"session_id\":\"a\",\"timestamp\":0,\"input_length\":9,\"output_length\":1}\n"
        "{\"session_id\":\"a\",\"delay\":5,\"input_length\":3,\"output_length\":5}\n");
    REQUIRE(given_up->next(first));
    CHECK(!given_up->follow_up(first.turn, SimTime(), false, second));
}

TEST_CASE("rows of sessions that hold whole prompts are taken as they are") {
    const Recorded whole =
        read_recorded(R"({"session_id":"a","timestamp":0,"input_length":1000,"output_length":100,"hash_ids":[1,2]}
{"session_id":"a","delay":500,"input_length":1400,"output_length":50,"hash_ids":[1,2,3]}
)",
                      "f");
    CHECK(whole.requests[1].prompt == 1400);
    CHECK(whole.assumed.empty());
}

TEST_CASE("a conversation of agents waits for its answers, and one client plays one at a time") {
    const std::string text =
        R"({"id":"x","block_size":64,"hash_id_scope":"local","requests":[{"t":0,"type":"n","in":128,"out":10,"think_time":0,"hash_ids":[1,2]},
            {"type":"subagent","requests":[{"t":0,"type":"n","in":70,"out":5,"hash_ids":[9,10]}]},
            {"t":5,"type":"s","in":200,"out":20,"think_time":3,"hash_ids":[1,2,3,4]},{"t":9,"type":"s","in":90,"out":2,"think_time":1,"hash_ids":[1,7]}]})";
    const Recorded out = read_recorded(text, "f");
    CHECK(out.format == "weka");
    REQUIRE(out.requests.size() == 4);
    CHECK(out.requests[0].delay_s == -1);
    CHECK(out.requests[1].context != out.requests[0].context);
    CHECK(out.requests[2].context == out.requests[0].context);
    CHECK(out.requests[2].delay_s == 3);
    CHECK(out.requests[2].after == std::vector<std::uint32_t>{1});
    RequestsSpec spec;
    spec.arrivals = ArrivalKind::closed;
    spec.clients = 1;
    const Trace trace(text, spec);
    Request first;
    REQUIRE(trace->next(first));
    Request none;
    CHECK(!trace->next(none));
    REQUIRE(trace->follow_up(first.turn, SimTime::from_seconds(2), true, none));
    CHECK(none.prompt == 70);
    CHECK(none.content.keys.size() == 2);
    REQUIRE(trace->follow_up(none.turn, SimTime::from_seconds(4), true, none));
    CHECK(none.arrival.seconds() == doctest::Approx(7));
    // Blocks of 64 tokens: two of the conversation's first prompt, and two more; the last prompt begins with one of them.
    CHECK(none.content.key_tokens == 64);
    REQUIRE(none.content.keys.size() == 4);
    REQUIRE(first.content.keys.size() == 2);
    CHECK(none.content.key(1, 64) == first.content.key(1, 64));
    const std::vector<std::uint64_t> before = none.content.keys;
    REQUIRE(trace->follow_up(none.turn, SimTime::from_seconds(9), true, none));
    REQUIRE(none.content.keys.size() == 2);
    CHECK(none.content.keys[0] == before[0]);
    CHECK(none.content.keys[1] != before[1]);
    CHECK(!trace->follow_up(none.turn, SimTime::from_seconds(11), true, none));
}

TEST_CASE(
    "sub-agents that follow each other in a conversation run side by side, and packed blocks are those that they stand "
    "for") {
    const std::string raw =
        R"({"block_size":64,"requests":[{"t":0,"in":100,"out":10,"hash_ids":[4,5]},
            {"type":"subagent","t":20,"requests":[{"in":70,"out":5,"hash_ids":[9]},{"in":80,"out":5,"think_time":1,"hash_ids":[9,10]}]},
            {"type":"subagent","t":26,"requests":[{"in":60,"out":5,"think_time":2,"hash_ids":[12]}]},
            {"t":40,"in":200,"out":20,"think_time":3,"hash_ids":[4,5,6,20]}]})";
    const std::string packed =
        R"({"block_size":64,"requests":[{"t":0,"in":100,"out":10,"keep":0,"new":[[4,2]],"blocks":2},
            {"type":"subagent","t":20,"requests":[{"in":70,"out":5,"keep":0,"new":[[9,1]],"blocks":1},{"in":80,"out":5,"think_time":1,"keep":1,"new":[[10,1]],"blocks":2}]},
            {"type":"subagent","t":26,"requests":[{"in":60,"out":5,"think_time":2,"keep":0,"new":[[12,1]],"blocks":1}]},
            {"t":40,"in":200,"out":20,"think_time":3,"keep":2,"new":[[6,1],[20,1]],"blocks":4}]})";
    std::vector<std::vector<std::uint64_t>> keys;
    for (const std::string& text : {raw, packed}) {
        const Trace trace(text);
        Request one;
        REQUIRE(trace->next(one));
        const std::uint32_t root = one.turn;
        keys.push_back(one.content.keys);
        Request left;
        REQUIRE(trace->follow_up(root, SimTime::from_seconds(5), true, left));
        Request right;
        REQUIRE(trace->another(right));
        Request none;
        CHECK(!trace->another(none));
        CHECK(left.prompt == 70);
        CHECK(left.arrival.seconds() == doctest::Approx(5));
        CHECK(right.prompt == 60);
        CHECK(right.arrival.seconds() == doctest::Approx(5 + 6 + 2));
        keys.push_back(left.content.keys);
        keys.push_back(right.content.keys);
        CHECK(!trace->follow_up(right.turn, SimTime::from_seconds(15), true, none));
        REQUIRE(trace->follow_up(left.turn, SimTime::from_seconds(16), true, left));
        CHECK(left.arrival.seconds() == doctest::Approx(17));
        keys.push_back(left.content.keys);
        REQUIRE(trace->follow_up(left.turn, SimTime::from_seconds(30), true, one));
        CHECK(one.prompt == 200);
        CHECK(one.arrival.seconds() == doctest::Approx(33));
        keys.push_back(one.content.keys);
    }
    REQUIRE(keys.size() == 10);
    for (std::size_t i = 0; i < 5; ++i) {
        CHECK(keys[i] == keys[i + 5]);
    }
    CHECK(keys[4][0] == keys[0][0]);
    CHECK(keys[4].size() == 4);
    CHECK(holds(problem_of(R"({"block_size":64,"requests":[{"in":1,"out":1,"new":[[1]]}]})"), "two numbers"));
}

TEST_CASE("a request of a graph comes when all that it waits for has ended") {
    // b and c wait for a, d for both; e begins at a time of its own.
    const std::string graph =
        "{\"request_id\": \"a\", \"session_id\": \"s\", \"timestamp\": 1000, \"input_length\": 600, \"output_length\": "
        "5, "
        "\"hash_ids\": [7, 8]}\n"
        "{\"request_id\": \"b\", \"session_id\": \"s\", \"wait_for\": [\"a\"], \"delay\": 500, \"input_length\": 700, "
        "\"output_length\": 5, \"hash_ids\": [7, 9]}\n"
        "{\"request_id\": \"c\", \"session_id\": \"s\", \"wait_for\": [\"a\"], \"tool_wait_ms\": 3000, "
        "\"input_length\": 800, "
        "\"output_length\": 5}\n"
        "{\"request_id\": \"d\", \"session_id\": \"s\", \"wait_for\": [\"b\", \"c\"], \"delay\": 1000, "
        "\"tool_wait_ms\": "
        "1000, \"input_length\": 900, \"output_length\": 5}\n"
        "{\"request_id\": \"e\", \"session_id\": \"t\", \"timestamp\": 4000, \"input_length\": 50, \"output_length\": "
        "5}\n";
    {
        const Trace trace(graph);
        Request a;
        Request e;
        Request one;
        REQUIRE(trace->next(a));
        REQUIRE(trace->next(e));
        CHECK(!trace->next(one));
        CHECK(a.prompt == 600);
        CHECK(a.content.keys.size() == 2);
        CHECK(e.arrival.seconds() == doctest::Approx(3));
        CHECK(e.session != a.session);
        Request b;
        Request c;
        REQUIRE(trace->follow_up(a.turn, SimTime::from_seconds(10), true, b));
        REQUIRE(trace->another(c));
        CHECK((b.prompt == 700 && c.prompt == 800));
        CHECK(b.arrival.seconds() == doctest::Approx(10.5));
        CHECK(c.arrival.seconds() == doctest::Approx(13));
        CHECK(b.content.key(0, 512) == a.content.key(0, 512));
        CHECK(!trace->follow_up(c.turn, SimTime::from_seconds(15), true, one));
        REQUIRE(trace->follow_up(b.turn, SimTime::from_seconds(20), true, one));
        CHECK(one.prompt == 900);
        CHECK(one.arrival.seconds() == doctest::Approx(22));
    }
    {
        // One that is not answered takes with it what waits for it.
        const Trace trace(graph);
        Request a;
        Request b;
        Request c;
        Request one;
        REQUIRE(trace->next(a));
        REQUIRE(trace->follow_up(a.turn, SimTime::from_seconds(10), true, b));
        REQUIRE(trace->another(c));
        CHECK(!trace->follow_up(c.turn, SimTime::from_seconds(15), false, one));
        CHECK(!trace->follow_up(b.turn, SimTime::from_seconds(20), true, one));
    }
    {
        // One client plays one session after the other.
        RequestsSpec spec;
        spec.arrivals = ArrivalKind::closed;
        spec.clients = 1;
        const Trace trace(graph, spec);
        Request a;
        Request b;
        Request c;
        Request one;
        REQUIRE(trace->next(a));
        CHECK(!trace->next(one));
        REQUIRE(trace->follow_up(a.turn, SimTime::from_seconds(10), true, b));
        REQUIRE(trace->another(c));
        CHECK(!trace->follow_up(c.turn, SimTime::from_seconds(15), true, one));
        REQUIRE(trace->follow_up(b.turn, SimTime::from_seconds(20), true, one));
        REQUIRE(trace->follow_up(one.turn, SimTime::from_seconds(30), true, one));
        CHECK(one.prompt == 50);
        CHECK(one.arrival.seconds() == doctest::Approx(30));
    }
    // As a table, which knows nothing of waiting: in order of arrival.
    CHECK(table_of(read_recorded(graph, "f")) ==
          "arrival_s,prompt,output,session\n0.000000,600,5,1\n0.000000,700,5,1\n0.000000,800,5,1\n0.000000,900,5,1\n"
          "3.000000,50,5,2\n");
    const std::string row = R"({"request_id": 1, "wait_for": [2], "input_length": 5, "output_length": 5})";
    CHECK(holds(problem_of(row), "there is no such request"));
    CHECK(holds(problem_of(row + "\n" + R"({"request_id": 2, "wait_for": [1], "input_length": 5, "output_length": 5})"),
                "waits for itself"));
    CHECK(
        holds(problem_of(R"({"request_id": 1, "wait_for": [], "timestamp": 0, "input_length": 5, "output_length": 5})"
                         "\n"
                         R"({"request_id": 1, "wait_for": [], "timestamp": 0, "input_length": 5, "output_length": 5})"),
              "two requests have"));
}

TEST_CASE("traces of Mooncake and Bailian are told apart by their content") {
    const std::string bailian =
        "{\"chat_id\": 0, \"parent_chat_id\": -1, \"timestamp\": 0.5, \"input_length\": 40, \"output_length\": 18, "
        "\"hash_ids\": [7, 8, "
        "9]}\n{\"chat_id\": 1, \"parent_chat_id\": 0, \"timestamp\": 2.5, \"input_length\": 16, \"output_length\": 1, "
        "\"hash_ids\": "
        "[7]}\n";
    const Trace trace(bailian);
    Request one;
    REQUIRE(trace->next(one));
    CHECK(one.content.key_tokens == 16);
    CHECK(one.content.keys.size() == 3);
    REQUIRE(trace->next(one));
    CHECK(one.arrival.seconds() == doctest::Approx(2));
    const Trace mooncake("{\"timestamp\": 1500, \"input_length\": 600, \"output_length\": 1, \"hash_ids\": [7, 8]}\n");
    REQUIRE(mooncake->next(one));
    CHECK(one.content.key_tokens == 512);
    const std::string unclear =
        "{\"timestamp\": 0.5, \"input_length\": 40, \"output_length\": 18, \"hash_ids\": [7, 8, 9]}\n";
    Request none;
    const Trace asked(unclear);
    CHECK_THROWS_WITH_AS((void)asked->next(none), doctest::Contains("'requests.trace_format: mooncake', or 'bailian'"),
                         ConfigError);
    RequestsSpec spec;
    spec.trace_format = "bailian";
    const Trace told(unclear, spec);
    REQUIRE(told->next(none));
    CHECK(none.content.key_tokens == 16);
    spec.trace_format = "bailiann";
    CHECK_THROWS_WITH_AS(Trace(unclear, spec), doctest::Contains("unknown format 'bailiann'"), ConfigError);
}

TEST_CASE("JSON of no known format, cut or empty files say what was expected") {
    CHECK(holds(problem_of("{\"a\": 1}"), "f.json:1:1: error: expected JSON with the keys of one of these formats"));
    CHECK(holds(problem_of("[]"), "f.json:1:1: error: expected JSON with the keys"));
    CHECK(holds(problem_of("{\"input_lens\": [1,"), "error: is no JSON"));
    CHECK(holds(problem_of("{\"prompt_len\": 5, \"output_len\": 7}\n{\"prompt_len\": 5,\n"), "f.json:2:"));
    CHECK(holds(problem_of("{\"prompt_len\": 5, \"output_len\": 7}\n{\"prompt_len\": 5}\n"),
                "request 2 has no number \"output_len\""));
    CHECK(holds(problem_of("{\"prompt_len\": 5, \"output_len\": 7, \"timestamp\": 3}"),
                "whose unit its name does not tell"));
    CHECK(holds(problem_of("{\"metadata\": {\"benchmark_phase\": 3}, \"metrics\": {}}"), "a value of another type"));
    CHECK(holds(problem_of("{\"prompt_len\": 1e12, \"output_len\": 7}"), "request 1 has 1e+12 prompt tokens"));
    CHECK(holds(problem_of(std::string(100'000, '[')), "nested deeper than"));
}

TEST_CASE("traces of a line each are imported as requests, whatever names and separators their columns have") {
    const auto import_text = [](const std::string& text) {
        return import_file("requests", ImportInput::of_bytes("trace", text)).text;
    };
    const std::string wanted = "arrival_s,prompt,output\n0.000000,100,20\n0.500000,200,30\n";
    for (const char* text :
         {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,100,20\n2023-11-16 18:15:47.0,200,30\n",
          "Timestamp,Model,Request tokens,Response tokens\n5,a,100,20\n5.5,a,200,30\n",
          "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,100,20\n0.5,200,30\n",
          "request_id,arrival_timestamp,prompt_size,token_size\n0,1.5,100,20\n1,2.0,200,30\n",
          "input_toks\toutput_toks\tarrival_time_ns\n100\t20\t1000000000\n200\t30\t1500000000\n",
          "Arrival_ms;Prompt_Len;Output_Len\r\n0;100;20\r\n500;200;30\r\n",
          "{\"timestamp\": 0, \"input_length\": 100, \"output_length\": 20, \"hash_ids\": [1]}\n"
          "{\"timestamp\": 500, \"input_length\": 200, \"output_length\": 30, \"hash_ids\": [2]}\n"}) {
        CHECK_MESSAGE(import_text(text) == wanted, text);
    }
    for (const auto& [text, said] : std::vector<std::pair<const char*, const char*>>{
             {"", "trace:1:1: error: expected results of a load generator, JSON lines or a trace in CSV, and the file"},
             {"when,what\n1,2\n", "trace:1:1: error: expected JSON or a first line such as TIMESTAMP,ContextTokens"},
             {"arrival_s,prompt,output\n1,2\n", "trace:2:1: error: 2 cells, but the header names 3 columns"},
             {"arrival_s,prompt,output\n", "has no request"}}) {
        const std::string problem = problems_when([&, given = text] { (void)import_text(given); });
        CHECK_MESSAGE(problem.find(said) != std::string::npos, problem);
    }
}
