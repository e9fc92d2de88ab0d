// Papers of serving: what no metric of one run says, and a trace of the published format replayed whole.

#include "sim/base/random.hpp"
#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/calibration/collections.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

using namespace orrery;
using namespace orrery::test;

namespace {

const std::string kPapers = std::string(ORRERY_SOURCE_DIR) + "/scenarios/papers";

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
