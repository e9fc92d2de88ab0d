// Speed of serving: CPU time a request for a long conversation load on one replica, and for a million bursty requests on 64.
//
// The first load has the size and mean lengths of the Azure conversation trace of 2023 (19,366 requests); the trace itself
// is run by `orrery run` with --set requests.trace=FILE.

#include "tools/driver/run.hpp"
#include "tools/driver/scenario.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <ctime>

namespace {

double cpu_seconds() {
    return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

void measure(const char* name, const std::string& changes, orrery::ModelCache& models) {
    const std::string text = fmt::format(R"(orrery: 1
kind: serving
cluster: {{nodes: 64, node: dgx-h100}}
model: llama-2-70b
engine: {{tensor: 8, router: least-requests, {}
  prompt: {{kind: lognormal, mean: 1155, spread: 1}}
  output: {{kind: lognormal, mean: 211, spread: 0.8}}
)",
                                         changes);
    const orrery::Scenario scenario =
        orrery::driver::read_scenario(orrery::parse_yaml(text, name), name, models.data());
    const double start = cpu_seconds();
    const orrery::RunOutput out = run_scenario(scenario, models, {});
    const double seconds = cpu_seconds() - start;
    const double requests = out.summary.find("requests")->value;
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    fmt::print(
        "{:<44} {:>9.0f} requests  {:>7.2f} s CPU  {:>6.2f} us per request  {:>5.2f} us per iteration  {:>6.0f} MiB\n",
        name, requests, seconds, 1e6 * seconds / requests, 1e6 * seconds / out.summary.find("iterations")->value,
        static_cast<double>(usage.ru_maxrss) / 1024);
}

}  // namespace

int main() {
    orrery::ModelCache models(orrery::DataDirectory(ORRERY_SOURCE_DIR));
    for (const char* scheduler : {"chunked-prefill", "vllm-v0", "orca", "fair"}) {
        measure(fmt::format("conversations, 70B on 8 GPUs, {}", scheduler).c_str(),
                fmt::format("scheduler: {{kind: {}}}}}\nrequests:\n  rate: 5\n  count: 19366", scheduler), models);
    }
    measure("bursty (gamma, 3), 64 replicas",
            "replicas: 64}\nrequests:\n  arrivals: gamma\n  burstiness: 3\n  rate: 300\n  count: 1000000", models);
    return 0;
}
