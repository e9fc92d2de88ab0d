// The test program: doctest, with a line for each file as it passes and the skipped tests by reason at the end.
//
// A test that cannot run here says MESSAGE("skipped: why") and returns; it counts as skipped, not as passed.

// doctest::Approx allows epsilon x (1 + the larger value), so that times of milliseconds within epsilon seconds of each other are equal and
// a test asserts nothing. Here it is epsilon x the larger value: its constructor, which this file alone compiles, gets a scale next to 0.
#define m_scale(one) m_scale(1e-300 * (one))
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
#undef m_scale

#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace {

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
            ++failed_;
            ++failed_here_;
        } else if (!reason_.empty()) {
            skipped_[reason_].push_back(name_);
            ++skipped_here_;
        } else {
            ++passed_;
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
        std::size_t skipped = 0;
        for (const auto& [reason, names] : skipped_) {
            for (const std::string& name : names) {
                std::printf("skipped: %s (%s)\n", name.c_str(), reason.c_str());
            }
            skipped += names.size();
        }
        std::printf("[orrery] %zu passed, %zu failed, %zu skipped\n", passed_, failed_, skipped);
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
    std::size_t passed_ = 0;
    std::size_t failed_ = 0;
    std::size_t passed_here_ = 0;
    std::size_t failed_here_ = 0;
    std::size_t skipped_here_ = 0;
    std::map<std::string, std::vector<std::string>> skipped_;  ///< tests by reason
};

REGISTER_LISTENER("files", 1, Files);

}  // namespace
