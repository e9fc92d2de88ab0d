#pragma once
// Jobs of the service: a queue of bounded length, a few that run at once, and results that are kept for a while.

#include "tools/service/child.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace orrery::service {

enum class JobState { queued, running, done, failed, cancelled };
[[nodiscard]] const char* name_of(JobState state);

/// What a client sees of a job.
struct JobView {
    std::string id;
    std::string command;
    JobState state = JobState::queued;
    std::string progress;       ///< last line that the run said
    std::string result;         ///< of `tools/call`, as JSON: done, or failed with the errors of the command
    double seconds = 0;         ///< s it ran, so far or in all
    std::uint64_t version = 0;  ///< grows with every change
    [[nodiscard]] bool ended() const { return state != JobState::queued && state != JobState::running; }
};

struct JobLimits {
    unsigned running = 2;                  ///< at once
    std::size_t waiting = 64;              ///< beyond these, further ones are refused
    std::size_t kept = 100;                ///< ended ones whose results stay
    std::size_t kept_bytes = 256U << 20U;  ///< B of all results that stay
    double kept_seconds = 900;             ///< s an ended one stays
};

class Jobs {
  public:
    /// Does a job: its result, or nothing where `stop` said so. `say` is told lines of progress.
    using Work = std::function<std::optional<std::string>(const std::string& command, const std::string& arguments,
                                                          const std::function<void(const std::string&)>& say,
                                                          const std::function<bool()>& stop)>;
    Jobs(const JobLimits& limits, Work work);
    /// Cancels what runs, and waits for it.
    ~Jobs();
    Jobs(const Jobs&) = delete;
    Jobs& operator=(const Jobs&) = delete;

    /// The identifier of a new job, which nobody guesses; nothing where too many wait.
    [[nodiscard]] std::optional<std::string> add(const std::string& command, const std::string& arguments);
    /// Nothing for one that is unknown or was dropped. `with_result`: or leave a long result out.
    [[nodiscard]] std::optional<JobView> view(const std::string& id, bool with_result = true);
    /// Waits until a job has a version above `after`, or for so long; then as view() without the result.
    [[nodiscard]] std::optional<JobView> wait(const std::string& id, std::uint64_t after,
                                              std::chrono::milliseconds most);
    /// Whether there was such a job that had not ended. One that ended is dropped.
    bool cancel(const std::string& id);
    /// How many wait and how many run.
    [[nodiscard]] std::pair<std::size_t, std::size_t> load();

  private:
    struct Job {
        JobView seen;
        std::string arguments;
        bool cancelled = false;
        std::chrono::steady_clock::time_point began, ended;
    };

    void run();
    void change(Job& job, JobState state);
    void drop_old();
    [[nodiscard]] JobView seen(const Job& job, bool with_result) const;

    JobLimits limits_;
    Work work_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::string, std::shared_ptr<Job>> jobs_;
    std::deque<std::shared_ptr<Job>> queue_;
    std::deque<std::string> ended_;  ///< oldest first
    std::size_t running_ = 0;
    bool closing_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace orrery::service
