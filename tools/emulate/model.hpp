#pragma once
// A model that answers: a serving scenario that runs in a thread beside a wall clock, and the answers under way.

#include "tools/driver/scenario.hpp"
#include "tools/emulate/metrics.hpp"
#include "workloads/serving/front_end/live_requests.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace orrery::emulate {

/// Simulated time goes `scale` times as fast as that of the wall.
class ScaledClock final : public serving::LiveClock {
  public:
    explicit ScaledClock(double scale) : scale_(scale) {}
    [[nodiscard]] double scale() const { return scale_; }
    [[nodiscard]] std::chrono::steady_clock::time_point on_the_wall(SimTime at) const;
    [[nodiscard]] SimTime now() override;
    void wait(std::unique_lock<std::mutex>& lock, std::condition_variable& woken, SimTime until) override;

  private:
    double scale_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// What a client has of its answer. The simulation writes it, one thread of the server reads it.
class Answer final : public serving::LiveClient {
  public:
    /// `clock` and `metrics` outlive this. `streams`: its reader waits for tokens, and not only for the end.
    Answer(ScaledClock& clock, ModelMetrics& metrics, std::uint32_t prompt_tokens, Finish whole, bool streams)
        : clock_(clock), metrics_(metrics), prompt_tokens_(prompt_tokens), whole_(whole), streams_(streams) {}
    void sent(SimTime at) override;
    void tokens(std::uint32_t count, SimTime at) override;
    void ended(serving::Ending how, SimTime at) override;

    struct State {
        std::uint32_t tokens = 0;
        std::optional<serving::Ending> end;
        std::vector<std::uint32_t> steps;  ///< tokens in all after each hand-over since the last call
    };
    /// Waits for the end, or where it streams for the time of more tokens, and not longer than `patience`.
    [[nodiscard]] State wait(std::chrono::milliseconds patience);

  private:
    struct Step {
        std::uint32_t tokens;
        SimTime at;
    };
    ScaledClock& clock_;
    ModelMetrics& metrics_;
    std::uint32_t prompt_tokens_;
    Finish whole_;  ///< how it finishes with its last token
    bool streams_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::uint32_t tokens_ = 0;
    std::optional<serving::Ending> end_;
    std::vector<Step> steps_;  ///< that the reader has not had; those that it is too far behind for as one
    SimTime sent_, first_, last_;
};

class EmulatedModel {
  public:
    /// Precondition: a scenario of kind serving. `clock` outlives this.
    EmulatedModel(std::string name, const Scenario& scenario, const DataDirectory& data, ScaledClock& clock);
    ~EmulatedModel();
    EmulatedModel(const EmulatedModel&) = delete;
    EmulatedModel& operator=(const EmulatedModel&) = delete;

    /// Waits until it answers. Throws what its scenario throws.
    void start();
    [[nodiscard]] const std::string& name() const { return name_; }
    /// Adapters that requests may name, by number from 1 on.
    [[nodiscard]] std::uint32_t adapters() const { return adapters_; }
    [[nodiscard]] std::string adapter_name(std::uint32_t number) const;
    [[nodiscard]] serving::LiveLoad load() const { return requests_.load(); }
    [[nodiscard]] ScaledClock& clock() { return clock_; }
    [[nodiscard]] ModelMetrics& metrics() { return metrics_; }
    /// Tokens of an answer whose client names no number.
    [[nodiscard]] std::uint32_t usual_answer() const { return usual_answer_; }
    /// False: its simulation has ended.
    [[nodiscard]] bool runs() const { return !ended_; }

    std::optional<std::uint32_t> send(serving::Request request, const std::shared_ptr<Answer>& answer) {
        return requests_.send(std::move(request), answer);
    }
    void cancel(std::uint32_t ticket) { requests_.cancel(ticket); }
    /// Lets nobody else in, and waits for the end. Throws what its scenario throws. Returns the summary as JSON.
    std::string finish();

  private:
    void run();

    std::string name_;
    Scenario scenario_;
    DataDirectory data_;
    ScaledClock& clock_;
    serving::LiveRequests requests_;
    ModelMetrics metrics_;
    std::uint32_t adapters_ = 0;
    std::uint32_t usual_answer_ = 0;
    std::atomic<bool> ended_ = false;
    std::exception_ptr problem_;  ///< of the thread, once it has ended
    std::string summary_;
    std::thread thread_;
};

}  // namespace orrery::emulate
