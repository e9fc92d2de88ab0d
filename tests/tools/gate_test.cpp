#include "validation/gate.hpp"

#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"

#include <doctest/doctest.h>

namespace orrery {

namespace {

bool kept(const std::string& limits, std::vector<Score> scores) {
    const test::Folder folder;
    Comparison suite;
    suite.suite = "training";
    suite.scores = std::move(scores);
    return within_limits({suite}, folder.file("limits.yaml", limits), Terminal("never", true));
}

std::string refusal(const std::string& limits) {
    try {
        (void)kept(limits, {{"points", 10, ""}, {"error_over_points", 5, "%"}});
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("the gate: a score on the wrong side of its limit fails, and what names nothing is refused") {
    const std::string limits = "training: {points: \">= 10\", error_over_points: \"<= 5.5 %\"}\n";
    CHECK(kept(limits, {{"points", 10, ""}, {"error_over_points", 5.4, "%"}}));
    CHECK(!kept(limits, {{"points", 9, ""}, {"error_over_points", 5.4, "%"}}));
    CHECK(!kept(limits, {{"points", 10, ""}, {"error_over_points", 5.6, "%"}}));
    CHECK(refusal("trainig: {}\n").find("did you mean 'training'") != std::string::npos);
    CHECK(refusal("training: {point: \">= 10\"}\n").find("did you mean 'points'") != std::string::npos);
    CHECK(refusal("training: {points: 10}\n").find("a limit is") != std::string::npos);
    CHECK(refusal("training: {points: \">= 10\", error_over_points: \"<= 5\"}\n").find("is in %") != std::string::npos);
    CHECK(refusal("training: {points: \">= 10\"}\n").find("'error_over_points' has no limit") != std::string::npos);
    CHECK(refusal("serving: {}\n").find("'training' has no limits") != std::string::npos);
}

namespace {

void check_suite(const std::string& suite) {
    const test::Outcome out = test::orrery_command("validate " + suite);
    const std::size_t limits = out.text.find("\nlimits (");
    CHECK_MESSAGE(out.code == 0, suite, ": ", out.text.substr(limits == std::string::npos ? 0 : limits));
}

}  // namespace

TEST_CASE("accuracy: the suite training keeps the limits of validation/thresholds.yaml") {
    check_suite("training");
}

TEST_CASE("accuracy: the suite serving keeps the limits of validation/thresholds.yaml") {
    check_suite("serving");
}

TEST_CASE("accuracy: the suite collectives keeps the limits of validation/thresholds.yaml") {
    check_suite("collectives");
}

TEST_CASE("accuracy: the suite faults keeps the limits of validation/thresholds.yaml") {
    check_suite("faults");
}

TEST_CASE("accuracy: the suite engine-memory keeps the limits of validation/thresholds.yaml") {
    check_suite("engine-memory");
}

TEST_CASE("accuracy: the suite training-memory keeps the limits of validation/thresholds.yaml") {
    check_suite("training-memory");
}

TEST_CASE("accuracy: the suite serving-reports keeps the limits of validation/thresholds.yaml") {
    check_suite("serving-reports");
}

TEST_CASE("accuracy: the suite fleets keeps the limits of validation/thresholds.yaml") {
    check_suite("fleets");
}

TEST_CASE("accuracy: the suite mlperf keeps the limits of validation/thresholds.yaml") {
    check_suite("mlperf");
}

TEST_CASE("accuracy: the suite rl keeps the limits of validation/thresholds.yaml") {
    check_suite("rl");
}

TEST_CASE("accuracy: the suite energy keeps the limits of validation/thresholds.yaml") {
    check_suite("energy");
}

TEST_CASE("accuracy: the suite compute keeps the limits of validation/thresholds.yaml") {
    check_suite("compute");
}

TEST_CASE("accuracy: the suite devices keeps the limits of validation/thresholds.yaml") {
    check_suite("devices");
}

}  // namespace orrery
