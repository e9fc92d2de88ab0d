#include "workloads/serving/cluster/lifecycle.hpp"

namespace orrery::inline serving {

namespace {

constexpr std::uint32_t kDrawn = 0xFFFFFF;  ///< instead of the place of a given failure
constexpr double kLatest = 9e6;             ///< s: nothing runs longer

}  // namespace

void Lifecycle::begin(Dispatcher& dispatcher, std::uint32_t replicas) {
    dispatcher_ = &dispatcher;
    for (std::uint32_t i = 0; i < replicas; ++i) {
        units_.push_back({RandomStream(spec_.seed, "serving/failures/" + std::to_string(i)), 0});
        expect_failure(i);
    }
    for (std::uint32_t i = 0; i < spec_.failures.size(); ++i) {
        wait(spec_.failures[i].at_s, {ServiceTask::failure, spec_.failures[i].replica, i});
    }
}

void Lifecycle::wait(double seconds, const Token& token) {
    if (dispatcher_->now().seconds() + seconds < kLatest) {
        dispatcher_->delay(SimTime::from_seconds(seconds), token.index + 1, token.pack(), Phase::fault);
    }
}

void Lifecycle::expect_failure(std::uint32_t replica) {
    if (spec_.failure_process.mean_between_s > 0) {
        wait(units_[replica].random.exponential(spec_.failure_process.mean_between_s),
             {ServiceTask::failure, replica, kDrawn});
    }
}

void Lifecycle::on_task(const Token& token) {
    Unit& unit = units_[token.index];
    if (token.task == ServiceTask::failure) {
        if (listener_.all_served()) {
            return;
        }
        const bool drawn = token.entry == kDrawn;
        const double down =
            drawn ? unit.random.exponential(spec_.failure_process.mean_repair_s) : spec_.failures[token.entry].down_s;
        if (unit.down++ == 0) {
            listener_.replica_fails(token.index);
        }
        wait(down, {ServiceTask::repair, token.index, token.entry});
        return;
    }
    if (--unit.down == 0) {
        listener_.replica_returns(token.index);
    }
    if (token.entry == kDrawn) {
        expect_failure(token.index);
    }
}

}  // namespace orrery::inline serving
