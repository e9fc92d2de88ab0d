// JSON lines (or a list) with the lengths of prompts and outputs, under any of the names in use, and perhaps times in seconds.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "workloads/serving/requests/recorded/json_records.hpp"

namespace orrery::serving {

namespace {

using Json = nlohmann::json;

constexpr std::initializer_list<const char*> kPrompt = {
    "prompt_len",    "prompt_length",     "input_len",      "input_length", "input_tokens",
    "prompt_tokens", "num_prompt_tokens", "context_tokens", "input_toks",   "isl"};
constexpr std::initializer_list<const char*> kOutput = {"output_len",
                                                        "output_length",
                                                        "output_tokens",
                                                        "completion_tokens",
                                                        "generated_tokens",
                                                        "response_len",
                                                        "num_output_tokens",
                                                        "expected_output_len",
                                                        "output_tokens_len",
                                                        "max_tokens",
                                                        "num_generated_tokens",
                                                        "output_toks",
                                                        "osl"};
constexpr std::initializer_list<const char*> kTime = {"arrival_s", "arrival_time_s", "arrival_time", "arrived_at"};

void read_lengths(const JsonRecords& records, Recorded& out) {
    bool texts = false;
    bool timed = true;
    bool hashed = false;
    for (std::size_t i = 0; i < records.maps.size(); ++i) {
        const Json& record = records.maps[i];
        if (number_of(record, {"timestamp", "ts", "time"})) {
            throw BadRecord{
                fmt::format("request {} has a time whose unit its name does not tell: call it \"arrival_s\" (seconds)",
                            i + 1),
                record.contains("timestamp") ? "timestamp"
                : record.contains("ts")      ? "ts"
                                             : "time"};
        }
        RecordedRequest one;
        const std::optional<double> prompt = number_of(record, kPrompt);
        const bool text = !prompt && record.is_object() && record.contains("prompt") && record["prompt"].is_string();
        const bool ids = !prompt && !text && record.is_object() && record.contains("input_ids") &&
                         record["input_ids"].is_array() && !record["input_ids"].empty();
        one.prompt = text  ? tokens_of_text(record["prompt"])
                     : ids ? static_cast<double>(record["input_ids"].size())
                           : needed_number(record, kPrompt, i);
        texts = texts || text;
        one.output = needed_number(record, kOutput, i);
        const std::optional<double> at = number_of(record, kTime);
        timed = timed && (at.has_value() || number_of(record, {"arrival_time_ns"}));
        one.at_s = at.value_or(0);
        if (const auto ns = number_of(record, {"arrival_time_ns"})) {
            one.at_s = 1e-9 * *ns;
        }
        // Stamps of an engine's own clock, as vLLM keeps them of a request.
        if (const auto queued = number_of(record, {"queued_ts"})) {
            const auto since = [&](const char* key) {
                const auto stamp = number_of(record, {key});
                return stamp ? *stamp - *queued : -1;
            };
            one.ttft_s = since("first_token_ts");
            one.e2e_s = since("last_token_ts");
        }
        hashed = hashed ||
                 (record.is_object() && (record.contains("hash_ids") || record.contains("prompt_block16_hash_ids")));
        out.requests.push_back(one);
    }
    if (texts) {
        out.assumed.emplace_back("a token for each four characters of a prompt: the file holds text");
    }
    if (hashed) {
        out.assumed.emplace_back(
            "prompts that share nothing: keys of blocks are read of Mooncake's, Bailian's and AIPerf's lines");
    }
    if (!timed) {
        out.assumed.emplace_back(
            "all requests at once: the file has no times ('requests: {arrivals: closed, clients: N}' keeps N in "
            "flight)");
    }
}

}  // namespace

extern const RecordFormat kLengthsFormat = {
    "lengths", "JSON lines with lengths of prompts and outputs",
    "\"prompt_len\" (input_length, prompt_tokens, prompt, input_ids, ...) and \"output_len\" (output_tokens, ...)",
    [](const JsonRecords& records) {
        const Json& first = records.maps.front();
        return (number_of(first, kPrompt) ||
                (first.is_object() && (first.contains("prompt") || first.contains("input_ids")))) &&
               number_of(first, kOutput).has_value();
    },
    read_lengths};

}  // namespace orrery::serving
