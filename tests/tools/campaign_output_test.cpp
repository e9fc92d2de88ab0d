// What explain, reports and plan say of campaigns.

#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/kinds/training.hpp"
#include "tools/explain/explain.hpp"
#include "tools/plan/search.hpp"
#include "tools/report/report.hpp"

#include <doctest/doctest.h>

#include <algorithm>

namespace orrery {

namespace {

Scenario scenario_file(const std::string& name, const std::vector<std::string>& overrides = {}) {
    return load_scenario(std::string(ORRERY_SOURCE_DIR "/scenarios/faults/") + name + ".yaml", overrides, test::data());
}

const CampaignLever& lever(const Explanation& why, const std::string& words) {
    const auto& levers = why.campaign->levers;
    const auto found = std::find_if(levers.begin(), levers.end(), [&](const CampaignLever& one) {
        return one.what_if.find(words) != std::string::npos;
    });
    REQUIRE_MESSAGE(found != levers.end(), words);
    return *found;
}

}  // namespace

TEST_CASE("explain says what a given fault would have cost with faster recovery, to the second") {
    const Explanation why = explain_scenario(scenario_file("gpu-fail-stop"), test::model_cache());
    REQUIRE(why.campaign);
    constexpr double kLength = 36000;
    // 30 s of heartbeat, 300 s of diagnosis and 120 s of restart, each halved; useful time is what they give back, less what the
    // checkpoints of 60 s take of it.
    CHECK(lever(why, "detection").change * kLength == doctest::Approx(15).epsilon(0.1));
    CHECK(lever(why, "diagnosis").change * kLength == doctest::Approx(150).epsilon(0.1));
    CHECK(lever(why, "restart").change * kLength == doctest::Approx(60).epsilon(0.1));
    // 32 checkpoints and a load in half the time, and 120 s more since the fourth checkpoint.
    CHECK(lever(why, "storage").change * kLength == doctest::Approx(32 * 30 + 30 - 120).epsilon(0.05));
    CHECK(lever(why, "spares").change == 0);
    CHECK(lever(why, "rates").change == 0);
    CHECK(why.campaign->levers.front().change >= why.campaign->levers.back().change);
    CHECK(why.verdict.find("of the campaign is useful") != std::string::npos);
    CHECK(!explain_scenario(test::scenario(test::kSmallTraining), test::model_cache()).campaign);
}

TEST_CASE("what-ifs of drawn faults have an interval over pairs of runs with equal seeds") {
    Scenario scenario = scenario_file("gpu-fail-stop");
    scenario.as<TrainingKind>().faults.events.clear();
    ProcessSpec process;
    process.component = Component::host;
    process.mtbf_s = 16 * 7200;
    scenario.as<TrainingKind>().faults.processes = {process};
    const Explanation why = explain_scenario(scenario, test::model_cache());
    REQUIRE(why.campaign);
    CHECK(why.campaign->runs == 16);
    CHECK(lever(why, "rates").change > lever(why, "rates").noise);
    CHECK(lever(why, "restart").noise > 0);
    // The what-ifs of the iteration do not run campaigns.
    CHECK(!why.what_ifs.empty());
}

TEST_CASE("the report draws the campaign by cause, and what would change its goodput") {
    const Scenario scenario = scenario_file("gpu-fail-stop");
    const RunOutput out = run_scenario(scenario, test::model_cache(), {});
    const std::string page = run_report(scenario, out, explain_scenario(scenario, test::model_cache()));
    for (const char* words :
         {"Where the time of the campaign goes", "What would change goodput", "lost_work", "diagnosis"}) {
        CHECK_MESSAGE(page.find(words) != std::string::npos, words);
    }
    const Scenario plain = test::scenario(test::kSmallTraining);
    const std::string other =
        run_report(plain, run_scenario(plain, test::model_cache(), {}), explain_scenario(plain, test::model_cache()));
    CHECK(other.find("Where the time of the campaign goes") == std::string::npos);
}

TEST_CASE("plan finds the interval and standbys that a job under faults needs, and none where nothing fails") {
    Scenario scenario = scenario_file(
        "gpu-fail-stop", {"cluster.nodes=4", "plan.data=4", "faults.duration=10 d", "faults.events.0.where=gpu1"});
    scenario.as<TrainingKind>().faults.events.clear();
    PlanOptions options;
    options.simulate = 1;
    const PlanSearch calm = search_plans(scenario, test::data(), options);
    REQUIRE(!calm.recovery.empty());
    CHECK(calm.recovery.front().standbys == 0);
    // The less often it saves the better.
    CHECK(calm.recovery.front().interval_s == doctest::Approx(4000).epsilon(1e-3));
    ProcessSpec process;
    process.component = Component::host;
    process.mtbf_s = 4 * 36000;
    scenario.as<TrainingKind>().faults.processes = {process};
    scenario.as<TrainingKind>().faults.recovery.automatic.mean_s = 86400;
    const PlanSearch hard = search_plans(scenario, test::data(), options);
    CHECK(hard.recovery.front().standbys > 0);
    // Young: sqrt(2 x 60 s x 36000 s) = 2078 s.
    CHECK(hard.recovery.front().interval_s > 900);
    CHECK(hard.recovery.front().interval_s < 4100);
    for (std::size_t i = 1; i < hard.recovery.size(); ++i) {
        CHECK(hard.recovery[i].per_machine <= hard.recovery[i - 1].per_machine);
    }
}

}  // namespace orrery
