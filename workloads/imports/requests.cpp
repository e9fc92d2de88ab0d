// `orrery import requests`: recorded requests as a table that scenarios read.

#include "workloads/imports/importer.hpp"
#include "workloads/serving/requests/recorded/recorded.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::imports {

namespace {

Imported read_requests(const ImportInput& input) {
    const Recorded recorded = read_recorded(input.bytes(), input.path());
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
