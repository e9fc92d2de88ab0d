// genai-perf and perf_analyzer: profile_export.json, with times of all responses and texts. It counts no tokens.
// Source: triton-inference-server/perf_analyzer, genai-perf/genai_perf/profile_data_parser.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "workloads/serving/requests/recorded/json_records.hpp"

namespace orrery::serving {

namespace {

using Json = nlohmann::json;

// Characters of all texts in a payload of messages or a prompt, as tokens.
double prompt_tokens(const Json& request) {
    const auto inputs = request.find("request_inputs");
    if (inputs == request.end() || !inputs->is_object() || !inputs->contains("payload")) {
        return 0;
    }
    const Json& payload = (*inputs)["payload"];
    if (!payload.is_string()) {
        return 0;
    }
    const Json body = Json::parse(payload.get_ref<const std::string&>(), nullptr, false);
    if (!body.is_object()) {
        return tokens_of_text(payload);
    }
    double tokens = body.contains("prompt") ? tokens_of_text(body["prompt"]) : 0;
    if (body.contains("messages") && body["messages"].is_array()) {
        for (const Json& message : body["messages"]) {
            tokens += message.is_object() && message.contains("content") ? tokens_of_text(message["content"]) : 0;
        }
    }
    return tokens;
}

void read_genai_perf(const JsonRecords& records, Recorded& out) {
    const Json& experiments = records.maps.front()["experiments"];
    if (!experiments.is_array() || experiments.size() != 1) {
        throw BadRecord{
            fmt::format("expected one experiment, and found {}", experiments.is_array() ? experiments.size() : 0),
            "experiments"};
    }
    const Json& one = experiments.front();
    if (!one.is_object() || !one.contains("requests") || !one["requests"].is_array()) {
        throw BadRecord{"the experiment has no list of \"requests\": summaries and inputs.json hold none",
                        "experiments"};
    }
    if (one.contains("experiment") && one["experiment"].is_object() &&
        one["experiment"].value("mode", "") == std::string("concurrency")) {
        out.clients = static_cast<std::uint64_t>(std::max(0.0, number_of(one["experiment"], {"value"}).value_or(0)));
    }
    const Json& requests = one["requests"];
    for (std::size_t i = 0; i < requests.size(); ++i) {
        const Json& request = requests[i];
        const double start = 1e-9 * needed_number(request, {"timestamp"}, i);
        const auto stamps = request.find("response_timestamps");
        if (stamps == request.end() || !stamps->is_array() || stamps->empty() || !stamps->front().is_number() ||
            !stamps->back().is_number()) {
            ++out.failed;
            continue;
        }
        RecordedRequest record;
        record.at_s = start;
        record.prompt = prompt_tokens(request);
        record.output = static_cast<double>(stamps->size());
        record.ttft_s = 1e-9 * stamps->front().get<double>() - start;
        record.e2e_s = 1e-9 * stamps->back().get<double>() - start;
        out.requests.push_back(std::move(record));
    }
    out.assumed.emplace_back(
        "a token for each streamed response, and for each four characters of a prompt: the file counts none");
}

}  // namespace

extern const RecordFormat kGenaiPerfFormat = {
    "genai-perf", "results of genai-perf (profile_export.json)",
    "\"experiments\": [{\"requests\": [{\"timestamp\", \"response_timestamps\"}]}]",
    [](const JsonRecords& records) {
        const Json& first = records.maps.front();
        return first.is_object() && first.contains("experiments");
    },
    read_genai_perf};

}  // namespace orrery::serving
