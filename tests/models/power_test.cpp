// What boards draw, and what a power limit does to kernels.

#include "sim/device/power.hpp"
#include "models/power_capped.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/calibration/collections.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

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

TEST_CASE("under a power limit products slow with the clock by the law of measured boards") {
    const DeviceSpec spec = board();
    const Cost product = cost_of(1, 600e12, 1e9);
    const Operation gemm = Gemm{8192, 8192, 8192};
    CHECK(capped(product, 650).cost(gemm).seconds.value() == 1);
    // Of 600 W 216 are fixed and 384 go with clock^2.54: 433.9 W at 0.8 of the clock.
    const PowerCapped slower = capped(product, 216 + 384 * std::pow(0.8, 2.54));
    CHECK(slower.clock(gemm) == doctest::Approx(0.8).epsilon(1e-3));
    CHECK(slower.cost(gemm).seconds.value() == doctest::Approx(1.25).epsilon(2e-3));
    // The line from 100 W idle touches that law at 0.527 of the clock and 291.3 W, so that half of that clock takes half of 191.3 W.
    CHECK(capped(product, 100 + 191.3 / 2).clock(gemm) == doctest::Approx(0.527 / 2).epsilon(2e-3));
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
        return run_scenario(test::scenario(std::string(R"(orrery: 1
kind: training
cluster: {nodes: 1, node: {preset: dgx-h100, gpu: {preset: h100-sxm, power_limit: )") +
                                           limit + R"(}}}
model: {layers: 8, hidden: 4096, heads: 32, vocabulary: 32000, sequence: 4096}
plan: {tensor: 8, global_batch: 4}
)"),
                            test::model_cache(), {})
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

TEST_CASE("a budget of a rack or of the cluster holds each GPU to its share, as a limit of its own would") {
    const auto run_with = [](const char* limit, const char* power) {
        return run_scenario(test::scenario(std::string(R"(orrery: 1
kind: training
cluster: {nodes: 2, node: {preset: dgx-h100, gpu: {preset: h100-sxm, power_limit: )") +
                                           limit + "}}" + power + R"(}
model: {layers: 8, hidden: 4096, heads: 32, vocabulary: 32000, sequence: 4096}
plan: {tensor: 8, data: 2, global_batch: 8}
)"),
                            test::model_cache(), {})
            .summary;
    };
    const Summary held = run_with("400 W", "");
    // Two nodes of 1.6 kW beside eight GPUs of 400 W.
    for (const char* power : {", power: {rack: 9.6 kW, nodes_per_rack: 2, beside: 1.6 kW}",
                              ", power: {rack: 4.8 kW, nodes_per_rack: 1, cluster: 20 kW, beside: 1.6 kW}",
                              ", power: {rack: 40 kW, cluster: 9.6 kW, beside: 1.6 kW}"}) {
        const Summary budget = run_with("0 W", power);
        for (const char* name : {"iteration_time_s", "energy_j", "power_w"}) {
            CHECK(budget.find(name)->value == doctest::Approx(held.find(name)->value).epsilon(1e-12));
        }
        CHECK(budget.find("power_peak_w")->value >= budget.find("power_w")->value);
        CHECK(budget.find("power_trough_w")->value <= budget.find("power_w")->value);
    }
    CHECK(held.find("power_peak_w") == nullptr);
    // A tighter limit of their own holds.
    CHECK(run_with("400 W", ", power: {cluster: 20 kW}").find("iteration_time_s")->value ==
          held.find("iteration_time_s")->value);
}

TEST_CASE(
    "synchronous training swings between full power and idle: data parallelism over a slow network, all at once") {
    const auto swing = [](const char* cluster, int replicas) {
        return run_scenario(test::scenario(fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: {1}, node: dgx-h100, power: {{cluster: 20 kW}}, {0}}}
model: {{layers: 8, hidden: 4096, heads: 32, vocabulary: 32000, sequence: 4096}}
plan: {{tensor: 8, data: {1}, global_batch: 16}}
software: {{preset: megatron-core-2024, step_overhead: 0 s}}
)",
                                                       cluster, replicas)
                                               .c_str()),
                            test::model_cache(), {})
            .summary;
    };
    const Summary slow = swing("fabric: {link: 5 Gbps}", 2);
    const DeviceSpec gpu = read_device("h100-sxm", test::data());
    CHECK(slow.find("power_trough_w")->value == doctest::Approx(16 * idle_power(gpu)).epsilon(1e-6));
    CHECK(slow.find("power_peak_w")->value > 1.5 * slow.find("power_w")->value);
    CHECK(slow.find("power_swing_fraction")->value ==
          doctest::Approx(1 - slow.find("power_trough_w")->value / slow.find("power_peak_w")->value));
    // Without gradients to wait for, layer follows on layer.
    CHECK(swing("fabric: {link: 400 Gbps}", 1).find("power_swing_fraction")->value < 0.3);
}

TEST_CASE("a budget of power that says nothing, or less than idle GPUs draw, is refused where it stands") {
    const auto said = [](const char* kind, const char* power) {
        return test::refusal(
            fmt::format("orrery: 1\nkind: {}\ncluster: {{nodes: 1, node: dgx-h100, power: {}}}\n", kind, power));
    };
    CHECK(said("training\nmodel: llama-2-7b\nplan: {tensor: 8, global_batch: 8}", "{beside: 1 kW}")
              .find("'power' is a budget: 'rack' or 'cluster' is needed") != std::string::npos);
    CHECK(said("serving\nmodel: llama-2-7b", "{rack: 500 W}").find("when idle") != std::string::npos);
    CHECK(said("serving\nmodel: llama-2-7b", "{cluster: 8 kW, nodes_per_rack: 2}").find("without a budget of a rack") !=
          std::string::npos);
    CHECK(said("collective\ncollective: {op: all-reduce, size: 1 MiB}", "{rack: 5 kW}")
              .find("changes nothing in kind collective") != std::string::npos);
}

}  // namespace orrery
