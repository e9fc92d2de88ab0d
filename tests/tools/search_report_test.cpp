// Reports of plan, capacity, recommend and compare: the answer first, then a chart and the table behind it.

#include "tests/support/command.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

using namespace orrery;
using namespace orrery::test;

namespace {

constexpr const char* kServing = R"(orrery: 1
kind: serving
cluster: {nodes: 1, node: dgx-h100}
model: llama-3-8b
engine: {tensor: 1}
requests: {count: 200, rate: 5, prompt: {mean: 500}, output: {mean: 50}}
slo: {ttft: 1 s, tpot: 50 ms}
)";

constexpr const char* kTraining = R"(orrery: 1
kind: training
cluster: {nodes: 1, node: dgx-h100}
model: {layers: 8, hidden: 2048, heads: 16, vocabulary: 32000, sequence: 2048}
plan: {data: 8, global_batch: 64, micro_batch: 1}
)";

// The data that the page draws.
nlohmann::json data_of(const std::string& page) {
    const std::string html = read(page);
    CHECK(html.find("http://") == std::string::npos);
    const std::string begin = "<script>const report = ";
    const std::size_t from = html.find(begin);
    REQUIRE(from != std::string::npos);
    const std::size_t end = html.find(";</script>", from);
    return nlohmann::json::parse(html.substr(from + begin.size(), end - from - begin.size()));
}

std::string fact(const nlohmann::json& report, const std::string& name) {
    const auto& story = report["blocks"][0];
    REQUIRE(story["kind"] == "story");
    for (const auto& one : story["facts"]) {
        if (one["name"] == name) {
            return one["text"];
        }
    }
    return "";
}

const nlohmann::json* block(const nlohmann::json& report, const std::string& kind) {
    for (const auto& one : report["blocks"]) {
        if (one["kind"] == kind) {
            return &one;
        }
    }
    return nullptr;
}

}  // namespace

TEST_CASE("a report of plans names the best plan and draws those that were simulated") {
    const Folder folder;
    const std::string page = folder.file("plan.html");
    const Outcome out = orrery_command(fmt::format("plan {} --simulate 6 --quiet --report {} --json {}",
                                                   folder.file("t.yaml", kTraining), page, folder.file("plan.json")));
    REQUIRE_MESSAGE(out.code == 0, out.text);
    const auto report = data_of(page);
    CHECK(fact(report, "Hardware").find("8 GPUs") != std::string::npos);
    CHECK(fact(report, "Cost").find("USD per billion tokens") != std::string::npos);
    CHECK(report["blocks"][0]["findings"].size() >= 1);
    const auto best = nlohmann::json::parse(read(folder.file("plan.json")))["plans"][0];
    const auto* table = block(report, "table");
    REQUIRE(table != nullptr);
    CHECK((*table)["rows"][0][1].get<double>() == doctest::Approx(best["iteration_time_s"].get<double>()));
    const auto* chart = block(report, "named");
    REQUIRE(chart != nullptr);
    std::size_t points = 0;
    std::size_t front = 0;
    for (const auto& group : (*chart)["groups"]) {
        for (const auto& point : group["points"]) {
            ++points;
            front += point[3].get<bool>() ? 1 : 0;
        }
    }
    CHECK(points == (*table)["rows"].size());
    CHECK(front >= 1);
}

TEST_CASE("a report of a capacity has the rate with its interval, what tokens cost, and the rates tried") {
    const Folder folder;
    const std::string page = folder.file("capacity.html");
    const Outcome out =
        orrery_command(fmt::format("capacity {} --seeds 2 --tolerance 0.2 --quiet --report {} --json {}",
                                   folder.file("s.yaml", kServing), page, folder.file("capacity.json")));
    REQUIRE_MESSAGE(out.code == 0, out.text);
    const auto report = data_of(page);
    const auto capacity = nlohmann::json::parse(read(folder.file("capacity.json")));
    CHECK(fact(report, "Answer")
              .rfind(fmt::format("{:.4g} requests/s", capacity["capacity_rps"]["value"].get<double>()), 0) == 0);
    CHECK(fact(report, "Cost").find("per million input tokens") != std::string::npos);
    CHECK(capacity["cost_per_million_input_tokens_usd"].get<double>() > 0);
    CHECK(capacity["cost_per_million_blended_tokens_usd"].get<double>() <
          capacity["cost_per_million_tokens_usd"].get<double>());
    CHECK((*block(report, "table"))["rows"].size() == capacity["trials"].size());
}

TEST_CASE("a report of a recommendation has the cheapest arrangement, and one of a comparison what changed") {
    const Folder folder;
    const std::string page = folder.file("recommend.html");
    const std::string serving = folder.file("s.yaml", kServing);
    const Outcome out =
        orrery_command(fmt::format("recommend {} --gpus h100-sxm --weights bf16 --pools mixed --judged 2 --pricing "
                                   "spot --quiet --report {} --json {}",
                                   serving, page, folder.file("recommend.json")));
    REQUIRE_MESSAGE(out.code == 0, out.text);
    const auto found = nlohmann::json::parse(read(folder.file("recommend.json")))["arrangements"][0];
    CHECK(found["cost_usd_per_hour"].get<double>() ==
          doctest::Approx(1.25 * found["gpus"].get<double>()).epsilon(1e-6));
    CHECK(fact(data_of(page), "Cost").find("USD per hour") != std::string::npos);
    const std::string compared = folder.file("compare.html");
    const Outcome both = orrery_command(fmt::format(
        "compare {} {} --quiet --report {}", serving,
        folder.file("other.yaml", std::string(kServing).replace(std::string(kServing).find("rate: 5"), 7, "rate: 9")),
        compared));
    REQUIRE_MESSAGE(both.code == 0, both.text);
    const auto report = data_of(compared);
    CHECK(report["blocks"][0]["findings"].size() == 3);
    CHECK(block(report, "table") != nullptr);
}
