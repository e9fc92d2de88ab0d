// Results of the benchmark clients of vLLM (`vllm bench serve --save-result --save-detailed`) and SGLang (`bench_serving --output-file
// --output-details`): lists of the lengths and latencies of all requests, in the order in which they were sent.
// Sources: vllm/benchmarks/serve.py and sglang/bench_serving.py.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "workloads/serving/requests/recorded/json_records.hpp"

namespace orrery::serving {

namespace {

using Json = nlohmann::json;

// The list of a key, as long as that of prompt lengths; null where there is none.
const Json* list_of(const Json& map, const char* key, std::size_t size) {
    const auto found = map.find(key);
    if (found == map.end() || !found->is_array()) {
        return nullptr;
    }
    if (found->size() != size) {
        throw BadRecord{fmt::format("\"{}\" has {} entries, and \"input_lens\" has {}", key, found->size(), size), key};
    }
    return &*found;
}

void read_bench(const JsonRecords& records, Recorded& out) {
    if (records.maps.size() != 1) {
        throw BadRecord{fmt::format("holds the results of {} runs: keep the line of one of them", records.maps.size()),
                        ""};
    }
    const Json& run = records.maps.front();
    const auto inputs = run.find("input_lens");
    if (inputs == run.end() || !inputs->is_array()) {
        throw BadRecord{
            "is a summary without the requests: run 'vllm bench serve' with --save-detailed, or SGLang's bench_serving "
            "with "
            "--output-details",
            "num_prompts"};
    }
    const std::size_t count = inputs->size();
    const Json* outputs = list_of(run, "output_lens", count);
    if (outputs == nullptr) {
        throw BadRecord{"has no list \"output_lens\" beside \"input_lens\"", "input_lens"};
    }
    const Json* ttfts = list_of(run, "ttfts", count);
    const Json* itls = list_of(run, "itls", count);
    const Json* errors = list_of(run, "errors", count);
    const Json* starts = list_of(run, "start_times", count);
    const double rate = number_of(run, {"request_rate"}).value_or(0);
    out.clients = static_cast<std::uint64_t>(std::max(0.0, number_of(run, {"max_concurrency"}).value_or(0)));
    if (starts == nullptr) {
        out.assumed.push_back(rate > 0 && rate < 1e9
                                  ? fmt::format("arrivals 1 / {:g} s apart: the file has the rate and no times", rate)
                                  : std::string("arrivals all at once, as at a rate of inf"));
    }
    if (out.clients > 0) {
        out.assumed.push_back(fmt::format(
            "the client kept {} requests in flight at most: 'requests: {{arrivals: closed, clients: {}}}' does so",
            out.clients, out.clients));
    }
    for (std::size_t i = 0; i < count; ++i) {
        const auto entry = [&](const Json& list, const char* key) {
            if (!list[i].is_number()) {
                throw BadRecord{fmt::format("entry {} of \"{}\" is no number", i + 1, key), key};
            }
            return list[i].get<double>();
        };
        const bool failed =
            errors != nullptr && (*errors)[i].is_string() && !(*errors)[i].get_ref<const std::string&>().empty();
        RecordedRequest one;
        one.prompt = entry(*inputs, "input_lens");
        one.output = entry(*outputs, "output_lens");
        if (failed || one.output == 0) {
            ++out.failed;
            continue;
        }
        one.at_s = starts != nullptr        ? entry(*starts, "start_times")
                   : rate > 0 && rate < 1e9 ? static_cast<double>(i) / rate
                                            : 0;
        one.ttft_s = ttfts != nullptr ? entry(*ttfts, "ttfts") : -1;
        if (ttfts != nullptr && itls != nullptr && (*itls)[i].is_array()) {
            one.e2e_s = one.ttft_s;
            for (const Json& gap : (*itls)[i]) {
                if (!gap.is_number()) {
                    throw BadRecord{fmt::format("entry {} of \"itls\" holds what is no number", i + 1), "itls"};
                }
                one.e2e_s += gap.get<double>();
            }
        }
        out.requests.push_back(std::move(one));
    }
}

}  // namespace

extern const RecordFormat kBenchFormat = {
    "bench", "results of vLLM's and SGLang's benchmark clients, with details",
    "\"input_lens\", \"output_lens\", \"ttfts\"",
    [](const JsonRecords& records) {
        const Json& first = records.maps.front();
        return first.is_object() &&
               (first.contains("input_lens") || (first.contains("mean_ttft_ms") && first.contains("request_rate")));
    },
    read_bench};

}  // namespace orrery::serving
