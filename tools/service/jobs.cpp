#include "tools/service/jobs.hpp"

#include "sim/base/error.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>

namespace orrery::service {

namespace {

using Clock = std::chrono::steady_clock;

std::string new_identifier() {
    std::array<unsigned char, 16> bytes{};
    if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
        throw ConfigError(fmt::format("no random identifier for a job: {}", std::strerror(errno)));
    }
    return fmt::format("{:02x}", fmt::join(bytes, ""));
}

}  // namespace

const char* name_of(JobState state) {
    switch (state) {
        case JobState::queued:
            return "queued";
        case JobState::running:
            return "running";
        case JobState::done:
            return "done";
        case JobState::failed:
            return "failed";
        case JobState::cancelled:
            return "cancelled";
    }
    return "";
}

Jobs::Jobs(const JobLimits& limits, Work work) : limits_(limits), work_(std::move(work)) {
    for (unsigned i = 0; i < limits_.running; ++i) {
        threads_.emplace_back([this] { run(); });
    }
}

Jobs::~Jobs() {
    {
        const std::lock_guard lock(mutex_);
        closing_ = true;
        for (const auto& [id, job] : jobs_) {
            job->cancelled = true;
        }
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) {
        thread.join();
    }
}

std::optional<std::string> Jobs::add(const std::string& command, const std::string& arguments) {
    const std::lock_guard lock(mutex_);
    drop_old();
    if (queue_.size() >= limits_.waiting || closing_) {
        return std::nullopt;
    }
    auto job = std::make_shared<Job>();
    job->seen.id = new_identifier();
    job->seen.command = command;
    job->arguments = arguments;
    jobs_[job->seen.id] = job;
    queue_.push_back(job);
    changed_.notify_all();
    return job->seen.id;
}

JobView Jobs::seen(const Job& job, bool with_result) const {
    JobView out = job.seen;
    if (!with_result) {
        out.result.clear();
    }
    if (job.seen.state != JobState::queued && job.began != Clock::time_point()) {
        out.seconds = std::chrono::duration<double>((job.seen.ended() ? job.ended : Clock::now()) - job.began).count();
    }
    return out;
}

std::optional<JobView> Jobs::view(const std::string& id, bool with_result) {
    const std::lock_guard lock(mutex_);
    drop_old();
    const auto found = jobs_.find(id);
    return found == jobs_.end() ? std::nullopt : std::optional(seen(*found->second, with_result));
}

std::optional<JobView> Jobs::wait(const std::string& id, std::uint64_t after, std::chrono::milliseconds most) {
    std::unique_lock lock(mutex_);
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) {
        return std::nullopt;
    }
    const std::shared_ptr<Job> job = found->second;
    changed_.wait_for(lock, most, [&] { return job->seen.version > after || job->seen.ended() || closing_; });
    return seen(*job, false);
}

bool Jobs::cancel(const std::string& id) {
    const std::lock_guard lock(mutex_);
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) {
        return false;
    }
    const std::shared_ptr<Job> job = found->second;
    job->cancelled = true;
    if (job->seen.state == JobState::queued) {
        ORRERY_ASSERT(std::find(queue_.begin(), queue_.end(), job) != queue_.end());
        queue_.erase(std::find(queue_.begin(), queue_.end(), job));
        change(*job, JobState::cancelled);
    } else if (job->seen.ended()) {
        ORRERY_ASSERT(std::find(ended_.begin(), ended_.end(), id) != ended_.end());
        ended_.erase(std::find(ended_.begin(), ended_.end(), id));
        jobs_.erase(found);
        return false;
    }
    return true;
}

std::pair<std::size_t, std::size_t> Jobs::load() {
    const std::lock_guard lock(mutex_);
    return {queue_.size(), running_};
}

void Jobs::change(Job& job, JobState state) {
    job.seen.state = state;
    ++job.seen.version;
    if (job.seen.ended()) {
        job.ended = Clock::now();
        job.arguments.clear();
        ended_.push_back(job.seen.id);
        drop_old();
    }
    changed_.notify_all();
}

void Jobs::drop_old() {
    std::size_t bytes = 0;
    for (const std::string& id : ended_) {
        bytes += jobs_.at(id)->seen.result.size();
    }
    const auto oldest = Clock::now() - std::chrono::duration<double>(limits_.kept_seconds);
    while (!ended_.empty()) {
        const Job& first = *jobs_.at(ended_.front());
        if (ended_.size() <= limits_.kept && bytes <= limits_.kept_bytes && first.ended > oldest) {
            break;
        }
        bytes -= first.seen.result.size();
        jobs_.erase(ended_.front());
        ended_.pop_front();
    }
}

void Jobs::run() {
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
        if (closing_) {
            return;
        }
        const std::shared_ptr<Job> job = queue_.front();
        queue_.pop_front();
        job->began = Clock::now();
        ++running_;
        change(*job, JobState::running);
        const std::string command = job->seen.command;
        const std::string arguments = job->arguments;
        lock.unlock();
        std::optional<std::string> result;
        std::string problem;
        try {
            result = work_(
                command, arguments,
                [&](const std::string& line) {
                    const std::lock_guard inside(mutex_);
                    job->seen.progress = line;
                    ++job->seen.version;
                    changed_.notify_all();
                },
                [&] {
                    const std::lock_guard inside(mutex_);
                    return job->cancelled;
                });
        } catch (const std::exception& error) {
            problem = error.what();
        }
        lock.lock();
        --running_;
        job->seen.result = result.value_or(problem);
        change(*job, result ? JobState::done : problem.empty() ? JobState::cancelled : JobState::failed);
    }
}

}  // namespace orrery::service
