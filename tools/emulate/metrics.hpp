#pragma once
// What an emulated model counts, under the names of vLLM's engine 1.
//
// Times are simulated ones: at a scale of 1 those of the service itself, without the way through HTTP.
// Source of names, labels and limits of bins: vLLM, vllm/v1/metrics/loggers.py (0.10; `inter_token_latency_seconds` and
// `request_time_per_output_token_seconds` as in later versions).
// Limits: no series of what is not known of a request (time in queue, of prompts, of iterations); `engine` is "0", the replicas together.
// Validated by tests/tools/emulate_test.py (a scrape against what its clients saw).

#include "workloads/serving/front_end/live_requests.hpp"

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace orrery::emulate {

/// Why an answer ended.
enum class Finish : std::uint8_t { stop, length, abort };
inline constexpr std::array<const char*, 3> kFinishNames = {"stop", "length", "abort"};

/// Counts of values up to each limit, as Prometheus has them.
class Histogram {
  public:
    /// `limits` rise and outlive this.
    explicit Histogram(const std::vector<double>& limits) : limits_(&limits), counts_(limits.size() + 1) {}
    void add(double value);
    /// Lines of the exposition format; `labels` without braces.
    void print(const std::string& name, const std::string& labels, std::string& out) const;

  private:
    const std::vector<double>* limits_;
    std::vector<std::uint64_t> counts_;
    double sum_ = 0;
};

/// Of one model, from any thread.
class ModelMetrics {
  public:
    ModelMetrics();
    void first(double ttft_s, std::uint64_t prompt_tokens);
    void tokens(std::uint64_t count) { add(generation_tokens_, count); }
    void gap(double seconds);
    /// `tpot_s` negative: it had one token at most.
    void ended(Finish how, double e2e_s, double tpot_s, std::uint64_t prompt_tokens, std::uint64_t tokens);

    friend std::string exposition(
        const std::vector<std::tuple<std::string, const ModelMetrics*, serving::LiveLoad>>& models);

  private:
    void add(std::uint64_t& counter, std::uint64_t more) {
        const std::lock_guard<std::mutex> lock(mutex_);
        counter += more;
    }

    mutable std::mutex mutex_;
    std::uint64_t prompt_tokens_ = 0;
    std::uint64_t generation_tokens_ = 0;
    std::array<std::uint64_t, 3> success_{};
    Histogram ttft_, itl_, tpot_, e2e_, prompt_, output_;
};

/// The answer to a scrape: every model by name, with how it stands.
[[nodiscard]] std::string exposition(
    const std::vector<std::tuple<std::string, const ModelMetrics*, serving::LiveLoad>>& models);

}  // namespace orrery::emulate
