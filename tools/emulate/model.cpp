#include "tools/emulate/model.hpp"

#include "sim/base/error.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "tools/driver/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery::emulate {

namespace {

constexpr double kStep = 0.5e-3;         // s of the wall that the simulation stays behind
constexpr std::size_t kMostSteps = 256;  // that a slow reader may be behind; further tokens come together
constexpr double kMeasured = 86400;      // s that a summary speaks of, so that what it keeps of requests has an end

}  // namespace

SimTime ScaledClock::now() {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
    return SimTime::from_seconds(passed.count() * scale_);
}

std::chrono::steady_clock::time_point ScaledClock::on_the_wall(SimTime at) const {
    const std::chrono::duration<double> after(at.seconds() / scale_);
    return start_ + std::chrono::duration_cast<std::chrono::steady_clock::duration>(after);
}

void ScaledClock::wait(std::unique_lock<std::mutex>& lock, std::condition_variable& woken, SimTime until) {
    woken.wait_until(lock, on_the_wall(until));
}

void Answer::sent(SimTime at) {
    sent_ = at;
}

void Answer::tokens(std::uint32_t count, SimTime at) {
    std::uint32_t more = 0;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        more = count - tokens_;
        tokens_ = count;
        if (streams_ && steps_.size() < kMostSteps) {
            steps_.push_back({count, at});
        } else if (streams_) {
            steps_.back() = {count, at};
        }
    }
    if (streams_) {
        changed_.notify_one();
    }
    metrics_.tokens(more);
    if (more == count) {
        first_ = at;
        metrics_.first((at - sent_).seconds(), prompt_tokens_);
    } else {
        metrics_.gap((at - last_).seconds());
    }
    last_ = at;
}

void Answer::ended(serving::Ending how, SimTime at) {
    std::uint32_t count = 0;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        count = tokens_;
        end_ = how;
    }
    changed_.notify_one();
    if (how != serving::Ending::refused) {
        metrics_.ended(how == serving::Ending::finished ? whole_ : Finish::abort, (at - sent_).seconds(),
                       count > 1 ? (at - first_).seconds() / (count - 1) : -1, prompt_tokens_, count);
    }
}

Answer::State Answer::wait(std::chrono::milliseconds patience) {
    const auto latest = std::chrono::steady_clock::now() + patience;
    std::unique_lock<std::mutex> lock(mutex_);
    State out;
    while (true) {
        const SimTime now = clock_.now();
        const auto later = std::find_if(steps_.begin(), steps_.end(), [&](const Step& one) { return one.at > now; });
        for (auto step = steps_.begin(); step != later; ++step) {
            out.steps.push_back(step->tokens);
        }
        steps_.erase(steps_.begin(), later);
        const bool ended = end_ && steps_.empty();
        if (ended || !out.steps.empty() || std::chrono::steady_clock::now() >= latest) {
            out.tokens = tokens_;
            out.end = ended ? end_ : std::nullopt;
            return out;
        }
        changed_.wait_until(lock, steps_.empty() ? latest : std::min(latest, clock_.on_the_wall(steps_.front().at)));
    }
}

EmulatedModel::EmulatedModel(std::string name, const Scenario& scenario, const DataDirectory& data, ScaledClock& clock)
    : name_(std::move(name)),
      scenario_(scenario),
      data_(data),
      clock_(clock),
      requests_(clock, SimTime::from_seconds(kStep * clock.scale())) {
    auto& serving = scenario_.as<driver::ServingKind>();
    serving.source = &requests_;
    serving.requests.timeout = 0;  // clients have patience of their own
    serving.measure = {0, kMeasured};
    adapters_ = static_cast<std::uint32_t>(serving.engine.names() ? serving.requests.adapters : 0);
    const double mean = std::min(serving.requests.output.mean, static_cast<double>(serving.requests.output.most));
    usual_answer_ = static_cast<std::uint32_t>(std::clamp(std::round(mean), 1.0, 1e6));
}

EmulatedModel::~EmulatedModel() {
    requests_.close();
    if (thread_.joinable()) {
        thread_.join();
    }
}

std::string EmulatedModel::adapter_name(std::uint32_t number) const {
    return fmt::format("{}/adapter-{}", name_, number);
}

void EmulatedModel::run() {
    try {
        driver::ModelCache models(data_);
        summary_ = to_json(driver::run_scenario(scenario_, models, {}).summary, true);
    } catch (...) {
        problem_ = std::current_exception();
    }
    requests_.abandon();
    ended_ = true;
}

void EmulatedModel::start() {
    thread_ = std::thread([this] { run(); });
    while (!ended_ && requests_.load().block == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (ended_) {
        (void)finish();
    }
}

std::string EmulatedModel::finish() {
    requests_.close();
    if (thread_.joinable()) {
        thread_.join();
    }
    if (problem_) {
        std::rethrow_exception(problem_);
    }
    return summary_;
}

}  // namespace orrery::emulate
