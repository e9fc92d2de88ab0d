// Whether runs of no given length say what longer ones would: capacities and their 95 % intervals against ten times longer
// searches, and default runs of five scenarios against runs twenty times longer.
//
// orrery_bench_steady [CASES [NAME]]: searches per scenario, each from a seed of its own, 100 by default; scenarios whose names hold NAME.

#include "tools/driver/run.hpp"
#include "tools/plan/capacity.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <ctime>
#include <vector>

namespace {

struct Case {
    const char* name;
    const char* engine;
    const char* requests;
    const char* slo;
};

const std::vector<Case>& cases() {
    static const std::vector<Case> kCases = {
        {"one GPU, equal requests", "{}", "{rate: 20, prompt: {mean: 512}, output: {mean: 128}}",
         "{ttft: 500 ms, tpot: 50 ms}"},
        {"one GPU, uneven lengths", "{}",
         "{rate: 20, prompt: {kind: lognormal, mean: 256, spread: 0.6, most: 2048}, output: {kind: lognormal, mean: "
         "128, "
         "spread: 0.5, most: 512}}",
         "{ttft: 500 ms, tpot: 50 ms}"},
        {"one GPU, bursts", "{}", "{arrivals: gamma, burstiness: 2, rate: 20, prompt: {mean: 256}, output: {mean: 64}}",
         "{ttft: 1 s, tbt: 100 ms}"},
        {"two replicas", "{replicas: 2, router: least-requests}",
         "{rate: 20, prompt: {kind: lognormal, mean: 256, spread: 0.6, most: 2048}, output: {mean: 64}}",
         "{ttft: 300 ms}"},
        {"one request at a time", "{scheduler: {kind: static, max_sequences: 1}}",
         "{rate: 8, prompt: {mean: 1024}, output: {mean: 1}}", "{ttft: 200 ms}"}};
    return kCases;
}

orrery::Scenario scenario_of(const Case& one, const orrery::ModelCache& models) {
    const std::string text = fmt::format(
        "orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: dgx-h100}}\nmodel: llama-3-8b\n"
        "engine: {}\nrequests: {}\nslo: {}\n",
        one.engine, one.requests, one.slo);
    return orrery::driver::read_scenario(orrery::parse_yaml(text, one.name), one.name, models.data());
}

void print_coverage(const Case& one, orrery::ModelCache& models, int searches) {
    orrery::Scenario scenario = scenario_of(one, models);
    orrery::CapacityOptions options;
    options.seeds = 5;  // as `orrery capacity`
    orrery::CapacityOptions longer = options;
    longer.requests *= 10;
    scenario.seed = 1'000'000;
    const double truth = find_capacity(scenario, models, longer).rate;
    int covered = 0;
    const std::clock_t start = std::clock();
    double error = 0;
    double width = 0;
    for (int i = 0; i < searches; ++i) {
        scenario.seed = 10 * i;
        const orrery::Capacity found = find_capacity(scenario, models, options);
        covered += found.low <= truth && truth <= found.high ? 1 : 0;
        error += (found.rate / truth - 1) / searches;
        width += (found.high - found.low) / truth / searches;
    }
    fmt::print(
        "{:<28} {:>4} of {:>4} intervals hold {:>8.5g} /s   mean error {:>+6.2f} %   mean width {:>5.2f} %   {:.1f} s "
        "each\n",
        one.name, covered, searches, truth, 100 * error, 100 * width,
        static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC / searches);
    std::fflush(stdout);
}

void print_ratios(const Case& one, orrery::ModelCache& models) {
    const orrery::Scenario scenario = scenario_of(one, models);
    orrery::RunOptions longer;
    longer.steady.batch *= 20;
    longer.steady.most *= 20;
    const orrery::Summary own = run_scenario(scenario, models, {}).summary;
    const orrery::Summary far = run_scenario(scenario, models, longer).summary;
    orrery::CapacityOptions options;
    options.seeds = 5;
    orrery::CapacityOptions twenty = options;
    twenty.requests *= 20;
    twenty.seeds = 1;
    const double capacity = find_capacity(scenario, models, options).rate;
    const double truth = find_capacity(scenario, models, twenty).rate;
    const auto ratio = [&](const char* name) { return 100 * (own.find(name)->value / far.find(name)->value - 1); };
    fmt::print(
        "{:<28} throughput {:>+6.2f} %   cost {:>+6.2f} %   capacity {:>+6.2f} %   ({:.0f} and {:.0f} requests)\n",
        one.name, ratio("output_tokens_per_s"), ratio("cost_per_million_tokens_usd"), 100 * (capacity / truth - 1),
        own.find("requests")->value, far.find("requests")->value);
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    const int searches = argc > 1 ? std::atoi(argv[1]) : 100;
    const std::string wanted = argc > 2 ? argv[2] : "";
    const auto chosen = [&](const Case& one) { return std::string(one.name).find(wanted) != std::string::npos; };
    orrery::ModelCache models(orrery::DataDirectory(ORRERY_SOURCE_DIR));
    fmt::print("default runs against runs twenty times longer\n");
    for (const Case& one : cases()) {
        if (chosen(one)) {
            print_ratios(one, models);
        }
    }
    fmt::print("95 % intervals of capacities against searches ten times longer\n");
    for (const Case& one : cases()) {
        if (chosen(one)) {
            print_coverage(one, models, searches);
        }
    }
    return 0;
}
