// The test program: doctest, with a line for each file as it passes and the skipped tests by reason at the end.
// --workers=N shares the files of tests among N processes; other options are doctest's (-sf excludes --workers).
//
// A test that cannot run here says MESSAGE("skipped: why") and returns; it counts as skipped, not as passed.

// doctest::Approx allows epsilon x (1 + the larger value), so that times of milliseconds within epsilon seconds of each other are equal and
// a test asserts nothing. Here it is epsilon x the larger value: its constructor, which this file alone compiles, gets a scale next to 0.
#define m_scale(one) m_scale(1e-300 * (one))
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#undef m_scale

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <set>
#include <string>
#include <vector>

namespace {

/// Tests of a run without workers, or of all workers: then it is in memory that the processes share.
struct Counts {
    std::atomic<std::size_t> passed{0};
    std::atomic<std::size_t> failed{0};
    std::atomic<std::size_t> skipped{0};

    void print() const {
        std::printf("[orrery] %zu passed, %zu failed, %zu skipped\n", passed.load(), failed.load(), skipped.load());
        std::fflush(stdout);
    }
};

Counts own_counts;
Counts* counts = &own_counts;

class Files final : public doctest::IReporter {
  public:
    explicit Files(const doctest::ContextOptions& options) : options_(options) {}

    void test_case_start(const doctest::TestCaseData& test) override {
        const std::string file = test.m_file.c_str();
        if (file != file_) {
            finish_file();
            file_ = file;
            started_ = std::chrono::steady_clock::now();
        }
        name_ = test.m_name;
        reason_.clear();
    }
    void test_case_reenter(const doctest::TestCaseData&) override {}
    void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
        if (!stats.testCaseSuccess) {
            ++counts->failed;
            ++failed_here_;
        } else if (!reason_.empty()) {
            skipped_[reason_].push_back(name_);
            ++counts->skipped;
            ++skipped_here_;
        } else {
            ++counts->passed;
            ++passed_here_;
        }
    }
    void log_message(const doctest::MessageData& message) override {
        const std::string text = message.m_string.c_str();
        const std::string mark = "skipped: ";
        if (text.rfind(mark, 0) == 0) {
            reason_ = text.substr(mark.size());
        }
    }
    void test_run_end(const doctest::TestRunStats&) override {
        finish_file();
        if (options_.count || options_.list_test_cases) {
            return;
        }
        for (const auto& [reason, names] : skipped_) {
            for (const std::string& name : names) {
                std::printf("skipped: %s (%s)\n", name.c_str(), reason.c_str());
            }
        }
        if (counts == &own_counts) {
            counts->print();
        }
    }
    void report_query(const doctest::QueryData&) override {}
    void test_run_start() override {}
    void test_case_exception(const doctest::TestCaseException&) override {}
    void subcase_start(const doctest::SubcaseSignature&) override {}
    void subcase_end() override {}
    void log_assert(const doctest::AssertData&) override {}
    void test_case_skipped(const doctest::TestCaseData&) override {}

  private:
    void finish_file() {
        if (passed_here_ + failed_here_ + skipped_here_ > 0) {
            const std::chrono::duration<double> took = std::chrono::steady_clock::now() - started_;
            const auto at = file_.find("tests/");
            std::printf("%-6s %-52s %3zu tests %7.1f s\n", failed_here_ > 0 ? "FAILED" : "ok",
                        file_.substr(at == std::string::npos ? 0 : at).c_str(),
                        passed_here_ + failed_here_ + skipped_here_, took.count());
            std::fflush(stdout);
        }
        passed_here_ = failed_here_ = skipped_here_ = 0;
    }

    const doctest::ContextOptions& options_;
    std::string file_;
    std::string name_;
    std::string reason_;  ///< why the test that runs is skipped; empty: it is not
    std::chrono::steady_clock::time_point started_;
    std::size_t passed_here_ = 0;
    std::size_t failed_here_ = 0;
    std::size_t skipped_here_ = 0;
    std::map<std::string, std::vector<std::string>> skipped_;  ///< tests by reason
};

REGISTER_LISTENER("files", 1, Files);

/// Files of tests. Those that take longest come first, so that none of them is left to one worker at the end.
std::vector<std::string> files_of_tests() {
    constexpr std::array kLongest = {"every_field_test", "tools/papers_test", "gate_test", "report_test",
                                     "expected_test",    "program_test",      "plan_test", "serving_scenarios_test"};
    std::set<std::string> files;
    for (const doctest::detail::TestCase& test : doctest::detail::getRegisteredTests()) {
        files.insert(test.m_file.c_str());
    }
    std::vector<std::string> out(files.begin(), files.end());
    std::stable_partition(out.begin(), out.end(), [&](const std::string& file) {
        return std::any_of(kLongest.begin(), kLongest.end(),
                           [&](const char* name) { return file.find(name) != std::string::npos; });
    });
    return out;
}

/// Processes that take one file of tests after the other. A worker keeps what it has loaded from file to file; when a test ends the
/// worker, that file fails and another worker goes on.
class Workers {
  public:
    Workers(int argc, char** argv, std::size_t count)
        : argc_(argc), argv_(argv), files_(files_of_tests()), workers_(std::min({count, files_.size(), kMostWorkers})) {
        void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        lock_ = std::tmpfile();
        if (memory == MAP_FAILED || lock_ == nullptr) {
            fail("no memory or file to share");
        }
        shared_ = new (memory) Shared;
        counts = &shared_->counts;
    }

    int run() {
        for (Worker& worker : workers_) {
            start(worker);
        }
        for (std::size_t running = workers_.size(); running > 0;) {
            int status = 0;
            const pid_t ended = ::wait(&status);
            if (ended < 0 && errno == EINTR) {
                continue;
            }
            for (Worker& worker : workers_) {
                if (worker.process != ended) {
                    continue;
                }
                if (WIFEXITED(status) && WEXITSTATUS(status) == kDone) {
                    --running;
                } else {
                    ++counts->failed;
                    print(worker.output);
                    std::printf("FAILED %s ended its process: %s\n",
                                files_[shared_->at[&worker - workers_.data()]].c_str(),
                                WIFSIGNALED(status) ? ::strsignal(WTERMSIG(status)) : "it called exit");
                    std::fflush(stdout);
                    start(worker);
                }
            }
        }
        counts->print();
        return counts->failed > 0 ? 1 : 0;
    }

  private:
    static constexpr std::size_t kMostWorkers = 256;
    static constexpr unsigned kSecondsPerFile = 1200;
    static constexpr int kDone = 77;  ///< the status of a worker that found no further file; tests have others

    struct Worker {
        pid_t process = -1;
        std::FILE* output = nullptr;  ///< what the tests of its file print
    };
    struct Shared {
        Counts counts;
        std::atomic<std::size_t> next{0};            ///< file that no worker has taken
        std::array<std::size_t, kMostWorkers> at{};  ///< file of each worker
    };

    [[noreturn]] static void fail(const char* what) {
        std::perror(what);
        std::exit(1);
    }

    void start(Worker& worker) {
        if (worker.output == nullptr) {
            worker.output = std::tmpfile();
        }
        worker.process = worker.output != nullptr ? ::fork() : -1;
        if (worker.process < 0) {
            fail("cannot start a worker");
        }
        if (worker.process == 0) {
            work(worker.output, shared_->at[&worker - workers_.data()]);
        }
    }

    [[noreturn]] void work(std::FILE* output, std::size_t& at) {
        (void)::prctl(PR_SET_PDEATHSIG, SIGTERM);
        // Programs that a test starts and that outlive it must not hold this run's output: its reader would wait for them.
        const int terminal = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
        ::dup2(::fileno(output), STDOUT_FILENO);
        ::dup2(::fileno(output), STDERR_FILENO);
        while ((at = shared_->next++) < files_.size()) {
            ::alarm(kSecondsPerFile);  // SIGALRM ends a worker whose test hangs, and that file fails by name
            doctest::Context context(argc_, argv_);
            context.addFilter("source-file", files_[at].c_str());
            context.setOption("minimal", true);
            context.run();
            std::fflush(stdout);
            print(output, terminal);
        }
        std::_Exit(kDone);
    }

    /// Whole files, one after the other. The lock of a worker that ends goes with it.
    void print(std::FILE* output, int to = STDOUT_FILENO) const {
        const int from = ::fileno(output);
        ::lockf(::fileno(lock_), F_LOCK, 0);
        ::lseek(from, 0, SEEK_SET);
        std::array<char, 4096> buffer{};
        for (ssize_t n = 0; (n = ::read(from, buffer.data(), buffer.size())) > 0;) {
            for (ssize_t done = 0, wrote = 0; done < n; done += wrote) {
                if ((wrote = ::write(to, buffer.data() + done, static_cast<std::size_t>(n - done))) <= 0) {
                    break;
                }
            }
        }
        ::lockf(::fileno(lock_), F_ULOCK, 0);
        if (::ftruncate(from, 0) != 0 || ::lseek(from, 0, SEEK_SET) != 0) {
            fail("the output of a test file");
        }
    }

    int argc_;
    char** argv_;
    std::vector<std::string> files_;
    std::vector<Worker> workers_;
    Shared* shared_ = nullptr;
    std::FILE* lock_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
    std::vector<char*> options;
    std::size_t workers = 0;
    for (int i = 0; i < argc; ++i) {
        const std::string option = argv[i];
        const std::string mark = "--workers=";
        if (option.rfind(mark, 0) == 0) {
            workers = std::strtoul(option.c_str() + mark.size(), nullptr, 10);
        } else {
            options.push_back(argv[i]);
        }
    }
    const int count = static_cast<int>(options.size());
    if (workers > 0) {
        return Workers(count, options.data(), workers).run();
    }
    return doctest::Context(count, options.data()).run();
}
