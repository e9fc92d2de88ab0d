#include "tools/sweep/worker_pool.hpp"

#include "sim/base/error.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace orrery::sweep {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kKept =
    256 << 20;  // B of memory given back that a worker keeps for its next points, and that one of them takes at once

bool write_all(int file, const void* data, std::size_t size) {
    const char* at = static_cast<const char*>(data);
    while (size > 0) {
        const ssize_t n = write(file, at, size);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        at += n;
        size -= static_cast<std::size_t>(n);
    }
    return true;
}

bool read_all(int file, void* data, std::size_t size) {
    char* at = static_cast<char*>(data);
    while (size > 0) {
        const ssize_t n = read(file, at, size);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        at += n;
        size -= static_cast<std::size_t>(n);
    }
    return true;
}

bool send_text(int file, const std::string& text) {
    const std::uint64_t size = text.size();
    return write_all(file, &size, sizeof size) && write_all(file, text.data(), text.size());
}

bool receive_text(int file, std::string& text) {
    std::uint64_t size = 0;
    if (!read_all(file, &size, sizeof size)) {
        return false;
    }
    text.resize(size);
    return read_all(file, text.data(), size);
}

// Serves requests until the parent closes the pipe.
[[noreturn]] void serve(int requests, int answers, const Work& work, std::size_t workers) {
    // A limit of this process's memory is one of all of them together.
    if (rlimit limit{}; getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        limit.rlim_cur /= workers;
        (void)setrlimit(RLIMIT_DATA, &limit);
    }
    // When memory runs out the kernel shall take a worker and not the process that holds the results.
    if (std::FILE* file = std::fopen("/proc/self/oom_score_adj", "w")) {
        std::fputs("1000", file);
        std::fclose(file);
    }
#ifdef __GLIBC__
    // One point after another takes and gives back as much memory: it stays with the process.
    mallopt(M_MMAP_THRESHOLD, kKept);
    mallopt(M_TRIM_THRESHOLD, kKept);
#endif
    std::string text;
    while (receive_text(requests, text)) {
        std::string answer;
        try {
            answer = work(text);
        } catch (const std::exception& error) {
            fmt::print(stderr, "worker: {}\n", error.what());
            _exit(70);
        }
        if (!send_text(answers, answer)) {
            break;
        }
    }
    _exit(0);
}

class Pool {
  public:
    Pool(double timeout_s, const Work& work) : timeout_s_(timeout_s), work_(work) {
        before_ = std::signal(SIGPIPE, SIG_IGN);
    }
    ~Pool() {
        for (Worker& worker : workers_) {
            end(worker);
        }
        std::signal(SIGPIPE, before_);
    }
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    void run(unsigned count, const NextRequest& next, const TakeReply& take, const std::function<void()>& idle) {
        workers_.resize(count);
        bool more = true;
        for (;;) {
            bool busy = false;
            for (Worker& worker : workers_) {
                while (!worker.busy && more) {
                    std::optional<WorkRequest> request = next();
                    more = request.has_value();
                    if (request) {
                        worker.id = request->id;
                        give(worker, request->text, take);
                    }
                }
                busy = busy || worker.busy;
            }
            if (!busy) {
                ORRERY_ASSERT(!more);  // a free worker would have been given the next request
                return;
            }
            wait(take);
            if (idle) {
                idle();
            }
        }
    }

  private:
    struct Worker {
        pid_t process = 0;
        int requests = -1;
        int answers = -1;
        bool busy = false;
        std::size_t id = 0;
        Clock::time_point deadline;
    };

    void start(Worker& worker) {
        ORRERY_ASSERT(worker.process == 0 && !worker.busy);
        int requests[2];
        int answers[2];
        if (pipe2(requests, O_CLOEXEC) != 0) {
            throw ConfigError(fmt::format("no worker process can be made: {}", std::strerror(errno)));
        }
        if (pipe2(answers, O_CLOEXEC) != 0) {
            close(requests[0]);
            close(requests[1]);
            throw ConfigError(fmt::format("no worker process can be made: {}", std::strerror(errno)));
        }
        std::fflush(nullptr);
        const pid_t parent = getpid();
        worker.process = fork();
        if (worker.process == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent) {
                _exit(0);
            }
            // The other workers' pipes: one that stays open here would keep them from seeing the parent's end.
            for (const Worker& other : workers_) {
                if (&other != &worker && other.process > 0) {
                    close(other.requests);
                    close(other.answers);
                }
            }
            close(requests[1]);
            close(answers[0]);
            serve(requests[0], answers[1], work_, workers_.size());
        }
        close(requests[0]);
        close(answers[1]);
        worker.requests = requests[1];
        worker.answers = answers[0];
        if (worker.process < 0) {
            worker.process = 0;
            close(worker.requests);
            close(worker.answers);
            throw ConfigError(fmt::format("no worker process can be made: {}", std::strerror(errno)));
        }
    }

    // Ends a worker's process and says how it ended.
    std::string end(Worker& worker) {
        if (worker.process == 0) {
            return "";
        }
        close(worker.requests);
        close(worker.answers);
        int status = 0;
        if (waitpid(worker.process, &status, WNOHANG) == 0) {
            kill(worker.process, SIGKILL);
            waitpid(worker.process, &status, 0);
        }
        worker.process = 0;
        worker.busy = false;
        if (WIFSIGNALED(status)) {
            const int signal = WTERMSIG(status);
            return fmt::format("ended by signal {} ({})", signal, strsignal(signal));
        }
        return fmt::format("ended with exit code {}", WEXITSTATUS(status));
    }

    // The dead worker's answer pipe closes a moment before it can be waited for.
    std::string reap(Worker& worker) {
        ORRERY_ASSERT(worker.process > 0);
        siginfo_t info{};
        waitid(P_PID, static_cast<id_t>(worker.process), &info, WEXITED | WNOWAIT);
        return end(worker);
    }

    void give(Worker& worker, const std::string& text, const TakeReply& take) {
        if (worker.process == 0) {
            start(worker);
        }
        ORRERY_ASSERT(!worker.busy && worker.process > 0);  // one request at a time, or answers would be mixed up
        worker.busy = true;
        worker.deadline =
            Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s_));
        if (!send_text(worker.requests, text)) {
            (void)take(worker.id, WorkReply{WorkReply::End::crashed, reap(worker)});
        }
    }

    void wait(const TakeReply& take) {
        std::vector<pollfd> files;
        std::vector<Worker*> owners;
        Clock::time_point soonest = Clock::time_point::max();
        for (Worker& worker : workers_) {
            if (worker.busy) {
                files.push_back(pollfd{worker.answers, POLLIN, 0});
                owners.push_back(&worker);
                soonest = std::min(soonest, worker.deadline);
            }
        }
        ORRERY_ASSERT(!files.empty());
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(soonest - Clock::now()).count() + 1;
        poll(files.data(), files.size(), static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000)));
        for (std::size_t i = 0; i < files.size(); ++i) {
            Worker& worker = *owners[i];
            ORRERY_ASSERT(worker.process > 0);
            if (files[i].revents != 0) {
                std::string answer;
                if (receive_text(worker.answers, answer)) {
                    worker.busy = false;
                    if (const auto more = take(worker.id, WorkReply{WorkReply::End::answered, std::move(answer)})) {
                        give(worker, *more, take);
                    }
                } else {
                    (void)take(worker.id, WorkReply{WorkReply::End::crashed, reap(worker)});
                }
            } else if (Clock::now() >= worker.deadline) {
                kill(worker.process, SIGKILL);
                (void)reap(worker);
                (void)take(worker.id,
                           WorkReply{WorkReply::End::timed_out, fmt::format("took longer than {} s", timeout_s_)});
            }
        }
    }

    double timeout_s_;
    const Work& work_;
    std::vector<Worker> workers_;
    void (*before_)(int) = nullptr;
};

}  // namespace

void run_in_workers(unsigned workers, double timeout_s, const Work& work, const NextRequest& next,
                    const TakeReply& take, const std::function<void()>& idle) {
    Pool(timeout_s, work).run(std::max(1U, workers), next, take, idle);
}

unsigned available_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        return 1;
    }
    return static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
}

}  // namespace orrery::sweep
