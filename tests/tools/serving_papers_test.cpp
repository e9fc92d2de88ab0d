// Papers: gains over their baselines and values against what is published, and a trace of the published format replayed whole.

#include "sim/base/random.hpp"
#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/calibration/collections.hpp"
#include "tools/plan/capacity.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

using namespace orrery;
using namespace orrery::test;

namespace {

const std::string kPapers = std::string(ORRERY_SOURCE_DIR) + "/scenarios/papers";

// Items of a list; none where there is no such key.
const std::vector<YamlNode>& items_of(const YamlNode& parent, const char* key) {
    static const std::vector<YamlNode> kNone;
    const YamlNode* found = parent.find(key);
    return found != nullptr ? found->items : kNone;
}

// Published systems, in the order of their names.
std::vector<std::string> folders() {
    std::vector<std::string> all;
    for (const auto& folder : std::filesystem::directory_iterator(kPapers)) {
        all.push_back(folder.path().filename().string());
    }
    std::sort(all.begin(), all.end());
    return all;
}

// A row of an expected.yaml.
class Row {
  public:
    Row(const YamlNode& row, std::string folder) : row_(row), folder_(std::move(folder)) {}

    /// Of the scenario over its baseline, in capacity or in a metric of a run; without a baseline the scenario's own.
    [[nodiscard]] double ratio() const {
        const std::string scenario = text("scenario");
        const std::string over = text("over");
        const double own = value(scenario, assignments(row_, "set"));
        const std::vector<std::string> over_set = assignments(row_, "over_set");
        return over.empty() && over_set.empty() ? own : own / value(over.empty() ? scenario : over, over_set);
    }
    /// Share of requests in time at a rate, mean over seeds.
    [[nodiscard]] double attainment(const std::string& rate) const {
        const int seeds = static_cast<int>(number("seeds").value_or(1));
        double sum = 0;
        for (int seed = 1; seed <= seeds; ++seed) {
            Scenario s = load("requests.rate=" + rate);
            s.seed = seed;
            sum += run_scenario(s, model_cache(), {}).summary.find("slo_attainment")->value;
        }
        return sum / seeds;
    }
    [[nodiscard]] std::optional<double> number(const char* key) const {
        double found = 0;
        const std::string scalar = text(key);
        return !scalar.empty() && parse_number(scalar, found) ? std::optional<double>(found) : std::nullopt;
    }
    [[nodiscard]] std::vector<std::string> list(const char* key) const { return assignments(row_, key); }
    [[nodiscard]] std::string text(const char* key) const {
        const YamlNode* found = row_.find(key);
        return found != nullptr ? found->scalar : "";
    }
    [[nodiscard]] std::string name() const {
        std::string all = folder_ + "/" + text("scenario");
        for (const std::string& assignment : assignments(row_, "set")) {
            all += " " + assignment;
        }
        const std::vector<std::string> over_set = assignments(row_, "over_set");
        all += text("over").empty() && over_set.empty() ? "" : " over";
        all += text("over").empty() ? "" : " " + text("over");
        for (const std::string& assignment : over_set) {
            all += " " + assignment;
        }
        return all;
    }

  private:
    [[nodiscard]] static std::vector<std::string> assignments(const YamlNode& of, const char* key) {
        std::vector<std::string> all;
        for (const YamlNode& assignment : items_of(of, key)) {
            all.push_back(assignment.scalar);
        }
        return all;
    }
    [[nodiscard]] Scenario load(const std::string& assignment) const {
        return load_scenario(kPapers + "/" + folder_ + "/" + text("scenario"), {assignment}, data());
    }
    [[nodiscard]] double value(const std::string& file, const std::vector<std::string>& overrides) const {
        if (!text("metric").empty()) {
            const Scenario s = load_scenario(kPapers + "/" + folder_ + "/" + file, overrides, data());
            return run_scenario(s, model_cache(), {}).summary.find(text("metric"))->value;
        }
        // Limits at several percentiles: all must hold.
        const std::vector<YamlNode>& limits = items_of(row_, "limits");
        if (limits.empty()) {
            return capacity(file, overrides, number("capacity_percentile").value_or(0));
        }
        double least = 0;
        for (const YamlNode& limit : limits) {
            std::vector<std::string> all = overrides;
            for (const std::string& assignment : assignments(limit, "set")) {
                all.push_back(assignment);
            }
            const double rate = capacity(file, all, Row(limit, folder_).number("percentile").value());
            least = least == 0 ? rate : std::min(least, rate);
        }
        return least;
    }
    [[nodiscard]] double capacity(const std::string& file, const std::vector<std::string>& overrides,
                                  double percentile) const {
        CapacityOptions options;
        options.percentile = percentile;
        options.attainment = number("attainment").value_or(0.9);
        options.seeds = static_cast<int>(number("seeds").value_or(2));
        options.tolerance = 0.05;
        const Scenario s = load_scenario(kPapers + "/" + folder_ + "/" + file, overrides, data());
        const Capacity found = find_capacity(s, model_cache(), options);
        return text("per_gpu").empty() ? found.rate : found.rate / static_cast<double>(found.gpus);
    }

    const YamlNode& row_;
    std::string folder_;
};

// Time of all requests at once, s.
double whole(const char* file, const std::vector<std::string>& overrides) {
    return run_scenario(load_scenario(kPapers + "/sarathi/" + file, overrides, data()), model_cache(), {})
        .summary.find("e2e_s.max")
        ->value;
}

// How many times less a decoded token costs that rides on prompts: what decodes add to the time of the prompts alone.
double decode_gain(const char* file) {
    const std::string static_batches = "engine.scheduler.kind=static";
    const std::string prompts_alone = "requests.output.mean=1";
    return (whole(file, {static_batches}) - whole(file, {static_batches, prompts_alone})) /
           (whole(file, {}) - whole(file, {prompts_alone}));
}

}  // namespace

TEST_CASE("papers: gains and values are within their bands, or expected.yaml says that they fall short and why") {
    std::size_t count = 0;
    for (const std::string& folder : folders()) {
        const YamlNode expected = load_yaml(kPapers + "/" + folder + "/expected.yaml");
        for (const YamlNode& row : items_of(expected, "gains")) {
            const Row gain(row, folder);
            const double ratio = gain.ratio();
            const std::optional<double> published = gain.number("published");
            // "At least half of the gain" has no upper end.
            const bool inside = published ? std::abs(ratio / *published - 1) <= gain.number("band").value()
                                          : ratio >= gain.number("at_least").value_or(1) && ratio > 1;
            const bool said_short = gain.text("status").rfind("short", 0) == 0;
            const std::string text = fmt::format("{}: {:.3f}", gain.name(), ratio);
            MESSAGE(std::string(text + (inside ? "" : " SHORT")));
            CHECK_MESSAGE(inside != said_short, text);
            // Few seeds and a coarse search: the figure of the scenario's head comes from more.
            CHECK_MESSAGE(std::abs(ratio / gain.number("predicted").value() - 1) <= 0.2, text);
            ++count;
        }
    }
    CHECK(count >= 21);
}

TEST_CASE("papers of devices: prices are within their bands of what was measured, or expected.yaml says why not") {
    std::size_t count = 0;
    for (const std::string& folder : folders()) {
        const YamlNode expected = load_yaml(kPapers + "/" + folder + "/expected.yaml");
        const std::vector<YamlNode>& rows = items_of(expected, "prices");
        if (rows.empty()) {
            continue;
        }
        const std::string table = kPapers + "/" + folder + "/" + expected.find("table")->scalar;
        const Outcome out = orrery_command("price --table " + table + " --quiet --json -");
        REQUIRE_MESSAGE(out.code == 0, out.text);
        const auto prices = nlohmann::json::parse(out.text);
        REQUIRE(prices.size() == rows.size());
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const Row row(rows[i], folder);
            const double rate = row.number("work").value() / prices[i]["seconds"].get<double>();
            const double published = row.number("published").value();
            const bool inside = std::abs(rate / published - 1) <= row.number("band").value();
            const std::string text = fmt::format("{} {} {}: {:.4g} of {:.4g} a second", prices[i]["device"].dump(),
                                                 prices[i]["dtype"].dump(), prices[i]["shape"].dump(), rate, published);
            MESSAGE(std::string(text + (inside ? "" : " SHORT")));
            CHECK_MESSAGE(inside != (row.text("status").rfind("short", 0) == 0), text);
            ++count;
        }
    }
    CHECK(count >= 4);
}

TEST_CASE("DistServe: the share of requests in time at each rate is within its band of what was measured") {
    const YamlNode expected = load_yaml(kPapers + "/distserve/expected.yaml");
    std::size_t count = 0;
    for (const YamlNode& node : items_of(expected, "attainments")) {
        const Row row(node, "distserve");
        const std::vector<std::string> rates = row.list("rates");
        const std::vector<std::string> published = row.list("published_percent");
        REQUIRE(rates.size() == published.size());
        std::string all = row.name() + ":";
        for (std::size_t i = 0; i < rates.size(); ++i) {
            const double share = row.attainment(rates[i]);
            double measured = 0;
            REQUIRE(parse_number(published[i], measured));
            all += fmt::format(" {:.1f} ({} %)", 100 * share, published[i]);
            CHECK_MESSAGE(std::abs(100 * share - measured) <= row.number("band_points").value(), all);
            ++count;
        }
        MESSAGE(all);
    }
    CHECK(count >= 8);
}

TEST_CASE("SARATHI: a decoded token that rides on prompts costs a fraction of one decoded alone") {
    // Published: up to 4.25 times less for LLaMA-33B on an A100, band 20 %. Short by two points at 3.32: static batches of ten
    // decode 200 requests in exactly twenty batches here, so none decodes for few sequences.
    const double large = decode_gain("llama-33b.yaml");
    MESSAGE(large);
    CHECK(large > 3.2);
    CHECK(large < 3.4);
    // Published: up to ten times for LLaMA-13B on an A6000. Short with 1,024 tokens: each decode still reads its cache, 0.8 MB a
    // token at 747 GB/s, which is most of what it adds.
    const double small = decode_gain("llama-13b.yaml");
    CHECK(small > 4);
    CHECK(small < 8);
}

TEST_CASE("BurstGPT: a generated file of the published format is replayed whole at the times it gives") {
    const Folder folder;
    RandomStream random(1, "test/burstgpt");
    std::string rows = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n";
    double time = 0;
    double outputs = 0;
    const int count = 20'000;
    for (int i = 0; i < count; ++i) {
        time += random.exponential(1.785);
        const int prompt = 1 + static_cast<int>(1200 * random.uniform());
        const int output = 1 + static_cast<int>(20 * random.uniform());
        outputs += output;
        rows += fmt::format("{:.3f},{},{},{},{},Conversation log\n", time, i % 5 == 0 ? "GPT-4" : "ChatGPT", prompt,
                            output, prompt + output);
    }
    const Summary summary =
        run_scenario(load_scenario(kPapers + "/burstgpt/gamma.yaml",
                                   {"requests.trace=" + folder.file("trace.csv", rows), "requests.count=0"}, data()),
                     model_cache(), {})
            .summary;
    const auto value = [&](const char* metric) { return summary.find(metric)->value; };
    CHECK(value("requests") == count);
    CHECK(value("requests_refused") == 0);
    CHECK(value("offered_rps") == doctest::Approx(count / time).epsilon(0.01));
    CHECK(value("output_tokens_per_s") / value("requests_per_s") == doctest::Approx(outputs / count).epsilon(1e-6));
}

TEST_CASE("MARLIN: products with 4-bit weights gain nearly four times up to batches of 32, and less at 128") {
    // A layer so wide that launches do not count.
    const auto gain = [](const char* device, double batch) {
        const CostModel& model = model_cache().device(read_device(device, data()), ComputeKind::calibrated);
        Gemm wide{batch, 73728, 18432};
        const double whole = model.seconds(wide).value();
        wide.weight_only = true;
        return whole / model.seconds(wide).value();
    };
    for (const char* device : {"a10", "a6000", "rtx-3090", "a100-sxm-80g"}) {
        CAPTURE(device);
        MESSAGE(fmt::format("{}: {:.2f} at batch 1, {:.2f} at 16, {:.2f} at 32, {:.2f} at 64, {:.2f} at 128", device,
                            gain(device, 1), gain(device, 16), gain(device, 32), gain(device, 64), gain(device, 128)));
        // Published: close to 4, band 15 %.
        CHECK(std::abs(gain(device, 1) / 4 - 1) <= 0.15);
        CHECK(gain(device, 128) > 1);
        CHECK(gain(device, 128) < 0.75 * gain(device, 1));
    }
    for (const double batch : {16.0, 32.0}) {
        CHECK(std::abs(gain("a10", batch) / 4 - 1) <= 0.15);
        CHECK(std::abs(gain("a100-sxm-80g", batch) / 4 - 1) <= 0.15);
        // Short: products of 16 rows come out dearer on this board by its few measured small ones.
        CHECK(gain("a6000", batch) > 2.9);
    }
}
