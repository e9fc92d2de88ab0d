#include "tools/emulate/metrics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace orrery::emulate {

namespace {

const std::vector<double> kFirstToken = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
                                         1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
const std::vector<double> kNextToken = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
                                        0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
const std::vector<double> kRequest = {0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
                                      30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
// vLLM ends these at the longest context of the model.
const std::vector<double> kTokens = {1,    2,    5,     10,    20,    50,     100,    200,    500,    1000,
                                     2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000};

// The text of a label's value.
std::string quoted(const std::string& text) {
    std::string out;
    for (const char one : text) {
        if (one == '\\' || one == '"') {
            out += '\\';
        }
        out += one == '\n' ? ' ' : one;
    }
    return out;
}

}  // namespace

void Histogram::add(double value) {
    const auto found = std::lower_bound(limits_->begin(), limits_->end(), value);
    ++counts_[static_cast<std::size_t>(found - limits_->begin())];
    sum_ += value;
}

void Histogram::print(const std::string& name, const std::string& labels, std::string& out) const {
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < limits_->size(); ++i) {
        count += counts_[i];
        out += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, (*limits_)[i], count);
    }
    count += counts_.back();
    out += fmt::format("{0}_bucket{{{1},le=\"+Inf\"}} {2}\n{0}_count{{{1}}} {2}\n{0}_sum{{{1}}} {3}\n", name, labels,
                       count, sum_);
}

ModelMetrics::ModelMetrics()
    : ttft_(kFirstToken), itl_(kNextToken), tpot_(kNextToken), e2e_(kRequest), prompt_(kTokens), output_(kTokens) {}

void ModelMetrics::first(double ttft_s, std::uint64_t prompt_tokens) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ttft_.add(ttft_s);
    prompt_tokens_ += prompt_tokens;
}

void ModelMetrics::gap(double seconds) {
    const std::lock_guard<std::mutex> lock(mutex_);
    itl_.add(seconds);
}

void ModelMetrics::ended(Finish how, double e2e_s, double tpot_s, std::uint64_t prompt_tokens, std::uint64_t tokens) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++success_[static_cast<std::size_t>(how)];
    if (how == Finish::abort) {
        return;
    }
    e2e_.add(e2e_s);
    if (tpot_s >= 0) {
        tpot_.add(tpot_s);
    }
    prompt_.add(static_cast<double>(prompt_tokens));
    output_.add(static_cast<double>(tokens));
}

std::string exposition(const std::vector<std::tuple<std::string, const ModelMetrics*, serving::LiveLoad>>& models) {
    std::string out;
    const auto family =
        [&](const char* name, const char* type, const char* help,
            const std::function<void(const std::string& labels, const ModelMetrics&, const serving::LiveLoad&)>&
                print) {
            out += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
            for (const auto& [model, metrics, load] : models) {
                const std::lock_guard<std::mutex> lock(metrics->mutex_);
                print(fmt::format("engine=\"0\",model_name=\"{}\"", quoted(model)), *metrics, load);
            }
        };
    const auto value = [&](const char* name, const char* type, const char* help, const auto& get) {
        family(name, type, help, [&](const std::string& labels, const ModelMetrics& m, const serving::LiveLoad& load) {
            out += fmt::format("{}{{{}}} {}\n", name, labels, static_cast<double>(get(m, load)));
        });
    };
    const auto histogram = [&](const char* name, const char* help, const auto& get) {
        family(name, "histogram", help,
               [&](const std::string& labels, const ModelMetrics& m, const serving::LiveLoad&) {
                   get(m).print(name, labels, out);
               });
    };
    using M = ModelMetrics;
    using L = serving::LiveLoad;
    const auto used = [](const M&, const L& load) {
        return static_cast<double>(load.used_blocks) / static_cast<double>(std::max<std::uint64_t>(1, load.blocks));
    };
    value("vllm:num_requests_running", "gauge", "Number of requests in model execution batches.",
          [](const M&, const L& load) { return load.running; });
    value("vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed.",
          [](const M&, const L& load) { return load.waiting; });
    value("vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", used);
    value("vllm:gpu_cache_usage_perc", "gauge", "The name of vllm:kv_cache_usage_perc up to 0.9.", used);
    value("vllm:prefix_cache_queries_total", "counter", "Prefix cache queries, in tokens.",
          [](const M&, const L& load) { return load.prefix_queries; });
    value("vllm:prefix_cache_hits_total", "counter", "Prefix cache hits, in tokens.",
          [](const M&, const L& load) { return load.prefix_hits; });
    value("vllm:num_preemptions_total", "counter", "Cumulative number of preemptions.",
          [](const M&, const L& load) { return load.preemptions; });
    value("vllm:prompt_tokens_total", "counter", "Number of prefill tokens processed.",
          [](const M& m, const L&) { return m.prompt_tokens_; });
    value("vllm:generation_tokens_total", "counter", "Number of generation tokens processed.",
          [](const M& m, const L&) { return m.generation_tokens_; });
    family("vllm:request_success_total", "counter", "Count of successfully processed requests.",
           [&](const std::string& labels, const M& m, const L&) {
               for (std::size_t i = 0; i < kFinishNames.size(); ++i) {
                   out += fmt::format("vllm:request_success_total{{{},finished_reason=\"{}\"}} {}\n", labels,
                                      kFinishNames[i], static_cast<double>(m.success_[i]));
               }
           });
    value("orrery:behind_seconds", "gauge", "Simulated time by which the clock was ahead of the simulation at most.",
          [](const M&, const L& load) { return load.behind_s; });
    histogram("vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.",
              [](const M& m) -> const Histogram& { return m.ttft_; });
    histogram("vllm:time_per_output_token_seconds", "The name of vllm:inter_token_latency_seconds up to 0.10.",
              [](const M& m) -> const Histogram& { return m.itl_; });
    histogram("vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.",
              [](const M& m) -> const Histogram& { return m.itl_; });
    histogram("vllm:request_time_per_output_token_seconds",
              "Histogram of time per output token of a request in seconds.",
              [](const M& m) -> const Histogram& { return m.tpot_; });
    histogram("vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.",
              [](const M& m) -> const Histogram& { return m.e2e_; });
    histogram("vllm:request_prompt_tokens", "Number of prefill tokens of a request.",
              [](const M& m) -> const Histogram& { return m.prompt_; });
    histogram("vllm:request_generation_tokens", "Number of generation tokens of a request.",
              [](const M& m) -> const Histogram& { return m.output_; });
    return out;
}

}  // namespace orrery::emulate
