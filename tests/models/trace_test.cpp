#include "models/calibration/trace.hpp"
#include "sim/base/input_file.hpp"
#include "sim/base/random.hpp"
#include "tests/support/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace orrery;

namespace {

const std::string kHead = "# orrery-trace: 1\n# device: h200-sxm\n# source: test\n# date: 2026-11-21\n";
const std::string kColumns = "op,dtype,shape,median_ns\n";

/// Messages of the errors of a text, "line: text" each.
std::vector<std::string> errors_of(const std::string& text) {
    try {
        (void)parse_trace(text, "t.csv");
    } catch (const ConfigError& error) {
        std::vector<std::string> out;
        for (const Diagnostic& one : error.diagnostics()) {
            out.push_back(std::to_string(one.line) + ": " + one.text);
        }
        return out;
    }
    return {};
}

}  // namespace

TEST_CASE("a trace gives its head and its rows") {
    const Trace trace = read_trace(test::data().path("tests/data/microbenchmark.csv"));
    REQUIRE(trace.rows.size() == 6);
    CHECK(trace.device() == "h200-sxm");
    CHECK(trace.meta.at("driver") == "570.86.15");
    CHECK(trace.rows[0].dim("k") == 8192);
    CHECK(trace.rows[1].phase == TracePhase::weight_gradient);
    CHECK(trace.rows[2].kv_dtype == "fp8");
    CHECK(trace.rows[0].kernels == 1);
}

TEST_CASE("every error of a trace comes at once, each with its line and the nearest name") {
    const std::string text = kHead + kColumns +
                             "gem,bf16,m=1 n=1 k=1,5\n"
                             "gemm,bf17,m=1 n=1 k=1,5\n"
                             "gemm,bf16,m=1 n=1,5\n"
                             "gemm,bf16,m=1 n=1 k=1 q=3,5\n"
                             "gemm,bf16,m=1 n=x k=1,5\n"
                             "gemm,bf16,m=1 n=1 k=1,0\n"
                             "gemm,bf16,m=1 n=1 k=1\n"
                             "gemm,bf16,m=1 m=1 n=1 k=1,7\n";
    const std::vector<std::string> errors = errors_of(text);
    const auto mentions = [&](const std::string& what) {
        return std::any_of(errors.begin(), errors.end(),
                           [&](const std::string& one) { return one.find(what) != one.npos; });
    };
    CHECK(mentions("6: unknown operation 'gem'; did you mean 'gemm'?"));
    CHECK(mentions("7: unknown dtype 'bf17'"));
    CHECK(mentions("8: gemm needs a positive 'k'"));
    CHECK(mentions("9: gemm has no dimension 'q'"));
    CHECK(mentions("10: a dimension is name=number"));
    CHECK(mentions("11: median_ns must be above 0"));
    CHECK(mentions("12: 3 cells, but the header names 4 columns"));
    CHECK(mentions("13: dimension 'm' is given twice"));
}

TEST_CASE("a trace without its head, its columns or its rows is refused") {
    CHECK(errors_of("").size() == 4);
    CHECK(errors_of(kColumns + "gemm,bf16,m=1 n=1 k=1,5\n").front().rfind("1: a trace starts with", 0) == 0);
    CHECK(errors_of(kHead + kColumns).front() == "5: holds no rows");
    CHECK(errors_of(kHead + "op,dtype,shape\n").front() == "5: the header lacks the column 'median_ns'");
    CHECK(errors_of(kHead + "op,dtype,shape,median_ns,layot\n").front().find("did you mean 'layout'?") !=
          std::string::npos);
    CHECK(errors_of(kHead + kColumns + "gemm,bf16,m=1 n=1 k=1," + std::string(5000, '1') + "\n")
              .front()
              .find("longest") != std::string::npos);
}

TEST_CASE("damaged traces give errors and never anything else") {
    const std::string good = read_input(test::data().path("tests/data/microbenchmark.csv"));
    RandomStream random(7, "trace-fuzz");
    const std::string alphabet = "0123456789,=.\n #:-xgemb\0\xff";
    for (int i = 0; i < 3000 * test::scale(); ++i) {
        std::string text = good.substr(0, random.below(good.size() + 1));
        for (std::uint64_t edits = random.below(6); edits > 0 && !text.empty(); --edits) {
            text[random.below(text.size())] = alphabet[random.below(alphabet.size())];
        }
        try {
            const Trace trace = parse_trace(text, "fuzz");
            REQUIRE(!trace.rows.empty());
        } catch (const ConfigError& error) {
            REQUIRE(!error.diagnostics().empty());
            REQUIRE(error.diagnostics().size() <= 101);
        }
    }
}

TEST_CASE("traces packed as xz are read") {
    CHECK(read_trace(test::data().path("tests/data/microbenchmark.csv.xz")).rows.size() == 6);
    CHECK_THROWS_WITH_AS((void)read_trace("/nonexistent.csv"), doctest::Contains("cannot be read"), ConfigError);
}
