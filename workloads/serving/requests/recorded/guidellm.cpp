// guidellm: benchmarks.json, with the requests of each benchmark by how they ended.
// Source: vllm-project/guidellm, src/guidellm/benchmark (fields of its releases 0.2 to 0.5).

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "workloads/serving/requests/recorded/json_records.hpp"

namespace orrery::serving {

namespace {

using Json = nlohmann::json;

void read_guidellm(const JsonRecords& records, Recorded& out) {
    const Json& benchmarks = records.maps.front()["benchmarks"];
    if (!benchmarks.is_array() || benchmarks.size() != 1) {
        throw BadRecord{
            fmt::format(
                "expected one benchmark, and found {}: keep one in \"benchmarks\", as each has a load of its own",
                benchmarks.is_array() ? benchmarks.size() : 0),
            "benchmarks"};
    }
    const Json& one = benchmarks.front();
    if (!one.is_object() || !one.contains("requests") || !one["requests"].is_object() ||
        !one["requests"].contains("successful") || !one["requests"]["successful"].is_array()) {
        throw BadRecord{"the benchmark has no \"requests\": {\"successful\": [...]}", "benchmarks"};
    }
    for (const char* kind : {"errored", "incomplete"}) {
        const auto found = one["requests"].find(kind);
        out.failed += found != one["requests"].end() && found->is_array() ? found->size() : 0;
    }
    const Json& requests = one["requests"]["successful"];
    for (std::size_t i = 0; i < requests.size(); ++i) {
        const Json& request = requests[i];
        RecordedRequest record;
        record.at_s = needed_number(request, {"request_start_time", "start_time"}, i);
        record.prompt = needed_number(request, {"prompt_tokens"}, i);
        record.output = needed_number(request, {"output_tokens"}, i);
        const std::optional<double> first = number_of(request, {"time_to_first_token_ms"});
        record.ttft_s = first ? 1e-3 * *first : -1;
        const std::optional<double> stamp = number_of(request, {"first_token_time"});
        record.ttft_s = !first && stamp ? *stamp - record.at_s : record.ttft_s;
        const std::optional<double> end = number_of(request, {"request_end_time", "end_time"});
        record.e2e_s = number_of(request, {"request_latency"}).value_or(end ? *end - record.at_s : -1);
        out.requests.push_back(std::move(record));
    }
}

}  // namespace

extern const RecordFormat kGuidellmFormat = {"guidellm", "results of guidellm (benchmarks.json)",
                                             "\"benchmarks\": [{\"requests\": {\"successful\": [...]}}]",
                                             [](const JsonRecords& records) {
                                                 const Json& first = records.maps.front();
                                                 return first.is_object() && first.contains("benchmarks");
                                             },
                                             read_guidellm};

}  // namespace orrery::serving
