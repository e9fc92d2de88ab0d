// inference-perf: per_request_lifecycle_metrics.json, a list of requests with their times in seconds.
// Source: kubernetes-sigs/inference-perf, inference_perf/reportgen.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "workloads/serving/requests/recorded/json_records.hpp"

namespace orrery::serving {

namespace {

using Json = nlohmann::json;

void read_inference_perf(const JsonRecords& records, Recorded& out) {
    for (std::size_t i = 0; i < records.maps.size(); ++i) {
        const Json& request = records.maps[i];
        if (!request.is_object() || !request.contains("info") || !request["info"].is_object()) {
            throw BadRecord{fmt::format("request {} has no \"info\" with its tokens", i + 1), "info"};
        }
        if (request.contains("error") && !request["error"].is_null()) {
            ++out.failed;
            continue;
        }
        const Json& info = request["info"];
        RecordedRequest one;
        one.at_s = needed_number(request, {"start_time"}, i);
        one.prompt = needed_number(info, {"input_tokens"}, i);
        one.output = needed_number(info, {"output_tokens"}, i);
        const std::optional<double> end = number_of(request, {"end_time"});
        one.e2e_s = end ? *end - one.at_s : -1;
        const auto stamps = info.find("output_token_times");
        if (stamps != info.end() && stamps->is_array() && !stamps->empty() && stamps->front().is_number()) {
            one.ttft_s = stamps->front().get<double>() - one.at_s;
        }
        out.requests.push_back(std::move(one));
    }
}

}  // namespace

extern const RecordFormat kInferencePerfFormat = {
    "inference-perf", "results of inference-perf per request (per_request_lifecycle_metrics.json)",
    "[{\"start_time\", \"end_time\", \"info\": {\"input_tokens\", \"output_tokens\"}}]",
    [](const JsonRecords& records) {
        const Json& first = records.maps.front();
        return first.is_object() && first.contains("start_time") && first.contains("info");
    },
    read_inference_perf};

}  // namespace orrery::serving
