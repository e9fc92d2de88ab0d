// What boards draw, and what a power limit does to kernels.

#include "sim/device/power.hpp"
#include "models/power_capped.hpp"
#include "tests/support/support.hpp"
#include "validation/compute/collections.hpp"

#include <doctest/doctest.h>

namespace orrery {

namespace {

// 100 W idle, 300 W active, 0.5 pJ a FLOP and 100 pJ a byte: products of 600 TFLOP/s and streams of 2 TB/s draw 600 and 500 W.
DeviceSpec board() {
    DeviceSpec spec = read_device("h100-sxm", test::data());
    spec.idle_power.value = 100;
    spec.active_power.value = 300;
    spec.energy_per_flop.value = 0.5;
    spec.energy_per_byte.value = 100;
    return spec;
}

class Fixed final : public CostModel {
  public:
    explicit Fixed(const Cost& cost) : cost_(cost) {}
    Cost cost(const Operation&) const override { return cost_; }

  private:
    Cost cost_;
};

Cost cost_of(double seconds, double flops, double bytes) {
    Cost cost;
    cost.seconds = Seconds(seconds);
    cost.flops = flops;
    cost.bytes = bytes;
    return cost;
}

PowerCapped capped(const Cost& cost, double limit) {
    DeviceSpec spec = board();
    spec.launch.value = 0;
    spec.power_limit.value = limit;
    return {std::make_unique<Fixed>(cost), spec};
}

}  // namespace

TEST_CASE("the law of power: active boards, and an energy for each FLOP and byte, up to the limit") {
    const DeviceSpec spec = board();
    CHECK(energy_of(spec, DeviceWork{10, 0, 0, 0}) == doctest::Approx(1000));
    CHECK(energy_of(spec, DeviceWork{10, 4, 0, 0}) == doctest::Approx(1000 + 4 * 200));
    CHECK(energy_of(spec, DeviceWork{10, 4, 2e14, 1e12}) == doctest::Approx(1000 + 800 + 100 + 100));
    CHECK(energy_of(spec, DeviceWork{10, 10, 1e18, 0}) == doctest::Approx(10 * spec.tdp.value));
    CHECK(power_of(spec, cost_of(1, 600e12, 0)) == doctest::Approx(600));
    CHECK(power_of(spec, cost_of(2, 0, 4e12)) == doctest::Approx(500));
    // Where bytes are not counted, what the products leave of the time streams.
    const double rate = spec.memory_bandwidth.value * spec.memory_efficiency.value;
    CHECK(energy_of(spec, DeviceWork{1, 1, 0}) == doctest::Approx(std::min(700.0, 300 + 100e-12 * rate)));
}

TEST_CASE("a device whose power nobody knows has none, and takes no limit") {
    DeviceSpec spec = board();
    CHECK(knows_power(spec));
    spec.active_power = spec.energy_per_flop = spec.energy_per_byte = {};
    CHECK(knows_power(spec));  // by its levels
    spec.matrix_power = spec.memory_power = {};
    CHECK(!knows_power(spec));
    const char* limited = R"(orrery: 1
kind: training
cluster: {nodes: 1, node: {preset: dgx-a100-80g, gpu: {preset: a40, power_limit: 100 W}}}
model: {layers: 4, hidden: 1024, heads: 16, vocabulary: 1000}
plan: {tensor: 2, data: 4, global_batch: 8}
)";
    CHECK(test::refusal(limited).find("power_limit needs the figures of a power law") != std::string::npos);
}

TEST_CASE("under a power limit products slow with the clock, and its cube is what is left for the units") {
    const DeviceSpec spec = board();
    const Cost product = cost_of(1, 600e12, 1e9);
    const Operation gemm = Gemm{8192, 8192, 8192};
    CHECK(capped(product, 650).cost(gemm).seconds.value() == 1);
    // 600 W are 100 W idle and 500 W of units (the 0.1 W of bytes aside): 162.5 W are left at half the clock.
    const PowerCapped half = capped(product, 100 + 500.0 / 8);
    CHECK(half.clock(gemm) == doctest::Approx(0.5).epsilon(1e-3));
    CHECK(half.cost(gemm).seconds.value() == doctest::Approx(2).epsilon(2e-3));
    // Streams keep their time: their bytes cost the same, and active units slow down without being missed.
    const Cost stream = cost_of(1, 0, 2.5e12);
    CHECK(capped(stream, 400).clock(Copy{1}) < 1);
    CHECK(capped(stream, 400).cost(Copy{1}).seconds.value() == 1);
    double last = 1;
    for (const double limit : {600.0, 500.0, 400.0, 300.0, 200.0}) {
        const double seconds = capped(product, limit).cost(gemm).seconds.value();
        CHECK(seconds >= last);
        last = seconds;
    }
    CHECK(spec.power_limit.value == 0);
}

TEST_CASE("a power limit slows training, less than the clock of its products, and lowers its energy") {
    const auto run_at = [](const char* limit) {
        return run(test::scenario(std::string(R"(orrery: 1
kind: training
cluster: {nodes: 1, node: {preset: dgx-h100, gpu: {preset: h100-sxm, power_limit: )") +
                                  limit + R"(}}}
model: {layers: 8, hidden: 4096, heads: 32, vocabulary: 32000, sequence: 4096}
plan: {tensor: 8, global_batch: 4}
)"),
                   test::models(), {})
            .summary;
    };
    const Summary full = run_at("0 W");
    const Summary held = run_at("400 W");
    const auto ratio = [&](const char* name) { return held.find(name)->value / full.find(name)->value; };
    CHECK(ratio("iteration_time_s") > 1.02);
    CHECK(ratio("iteration_time_s") < 1.8);
    CHECK(ratio("power_w") < 0.9);
    CHECK(held.find("power_w")->value <= 8 * 400.0 * (1 + 1e-9));
    CHECK(run_at("700 W").find("iteration_time_s")->value == full.find("iteration_time_s")->value);
    CHECK(full.find("energy_j")->value ==
          doctest::Approx(full.find("power_w")->value * full.find("iteration_time_s")->value));
    CHECK(full.find("tokens_per_j")->value * full.find("energy_per_token_j")->value == doctest::Approx(1));
}

}  // namespace orrery
