#include "sim/device/device.hpp"
#include "sim/device/power.hpp"

#include "sim/engine/fluid.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/calibration/collections.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace orrery;

namespace {

struct Finish final : ActivityListener {
    explicit Finish(Engine& clock) : engine(clock) {}
    void on_activity_done(std::uint64_t token) override {
        times.resize(std::max<std::size_t>(times.size(), token + 1));
        times[token] = engine.now().seconds();
    }
    Engine& engine;
    std::vector<double> times;
};

/// When each of the operations ends if all start together on one device.
std::vector<double> together(const DeviceSpec& spec, const std::vector<Operation>& operations, double partition = 1) {
    Engine engine;
    FluidModel sharing(engine);
    Finish finish(engine);
    const ListenerId listener = sharing.add_listener(finish);
    const Device device(sharing, spec);
    const CostModel& model = test::model_cache().device(spec, ComputeKind::calibrated);
    for (std::size_t i = 0; i < operations.size(); ++i) {
        const DeviceActivity activity = device.kernel(operations[i], model.cost(operations[i]), partition);
        sharing.start(sharing.hold(activity.demands, activity.bound), activity.amount, listener, i);
    }
    engine.run();
    return finish.times;
}

}  // namespace

TEST_CASE("concurrent kernels share the compute units, the memory and the copy engines") {
    const DeviceSpec h200 = read_device("h200-sxm", test::data());
    const CostModel& model = test::model_cache().device(h200, ComputeKind::calibrated);
    const Gemm gemm{8192, 8192, 8192};
    const Streaming stream{4e9, 1, StreamingKind::norm};
    const Copy upload{5e8, CopyDirection::host_to_device};
    const double gemm_alone = model.seconds(gemm).value();
    const double stream_alone = model.seconds(stream).value();
    const double upload_alone = model.seconds(upload).value();
    CHECK(together(h200, {gemm})[0] == doctest::Approx(gemm_alone));
    // Two products take turns in effect: as long as one after the other, but for what one leaves idle.
    const double pair = together(h200, {gemm, gemm})[1];
    CHECK(pair > 1.5 * gemm_alone);
    CHECK(pair <= 2 * gemm_alone * 1.0001);
    // A memory-bound kernel hides behind a product in part.
    const auto mixed = together(h200, {gemm, stream});
    const double last = std::max(mixed[0], mixed[1]);
    CHECK(last >= std::max(gemm_alone, stream_alone));
    CHECK(last < gemm_alone + stream_alone);
    // A host copy hardly costs a product anything, and two in opposite directions do not meet.
    const auto copied = together(h200, {gemm, upload});
    CHECK(copied[1] == doctest::Approx(upload_alone).epsilon(0.02));
    CHECK(copied[0] < gemm_alone * 1.05);
    const auto both = together(h200, {upload, Copy{5e8, CopyDirection::device_to_host}});
    CHECK(both[0] == doctest::Approx(upload_alone));
    const auto same = together(h200, {upload, upload});
    CHECK(same[1] == doctest::Approx(2 * upload_alone).epsilon(0.01));
}

TEST_CASE("a partition of the units slows what needs them and leaves what does not") {
    const DeviceSpec h200 = read_device("h200-sxm", test::data());
    const CostModel& model = test::model_cache().device(h200, ComputeKind::calibrated);
    const Gemm gemm{8192, 8192, 8192};
    const double alone = model.seconds(gemm).value();
    const double quarter = together(h200, {gemm}, 0.25)[0];
    CHECK(quarter > 2.5 * alone);
    CHECK(quarter <= 4.0001 * alone);
    const Streaming stream{4e9, 1, StreamingKind::norm};
    CHECK(together(h200, {stream}, 0.25)[0] == doctest::Approx(model.seconds(stream).value()));
}

TEST_CASE("power lies between idle and the limit, and products draw most") {
    for (const std::string& name : test::data().names(kDevicePresets)) {
        const DeviceSpec spec = read_device(name, test::data());
        const CostModel& model = test::model_cache().device(spec, ComputeKind::calibrated);
        if (!knows_power(spec)) {
            continue;
        }
        const double product = power_of(spec, model.cost(Gemm{8192, 8192, 8192}));
        const double copy = power_of(spec, model.cost(Copy{4e9}));
        const double nothing = power_of(spec, Cost{});
        CHECK_MESSAGE(product <= spec.tdp.value, name);
        CHECK_MESSAGE(copy <= product * 1.2, name);  // CENT: its bus costs more than its banks
        CHECK_MESSAGE(nothing < copy, name);
        CHECK(energy_of(spec, model.cost(Copy{4e9})) > 0);
    }
}

// A device whose power is known by its levels.
static DeviceSpec by_levels() {
    DeviceSpec spec = read_device("h100-sxm", test::data());
    spec.active_power = spec.energy_per_flop = spec.energy_per_byte = {};
    return spec;
}

TEST_CASE("the energy of a run is idle time, streaming and products, each at its power") {
    const DeviceSpec spec = by_levels();
    const double idle = spec.idle_power.value;
    const auto joules = [&](double seconds, double busy, double flops) {
        return energy_of(spec, DeviceWork{seconds, busy, flops});
    };
    CHECK(joules(10, 0, 0) == doctest::Approx(10 * idle));
    const double streaming = joules(10, 10, 0);
    const double products = joules(10, 10, 1e30);
    CHECK(streaming > 10 * idle);
    CHECK(products >= streaming);
    CHECK(products <= 10 * spec.tdp.value * (1 + 1e-12));
    // Half of the time busy is half of what lies above idle; more work than time is as much as there is time.
    CHECK(joules(10, 5, 0) - 10 * idle == doctest::Approx((streaming - 10 * idle) / 2));
    CHECK(joules(10, 20, 0) == doctest::Approx(streaming));
    const double rate = 1e15;
    CHECK(joules(10, 10, rate) > streaming - 1e-9);
    CHECK(joules(10, 10, 2 * rate) - joules(10, 10, rate) == doctest::Approx(joules(10, 10, rate) - streaming));
}

TEST_CASE(
    "at another clock the energy of products follows the square of the voltage, between one that stays and one that "
    "falls") {
    const DeviceSpec spec = by_levels();
    const double idle = spec.idle_power.value;
    const double matrix = spec.matrix_power.value;
    const double streaming = spec.memory_power.value;
    const double flops =
        10 * spec.power_knee.value * spec.flops_bf16.value;  // ten seconds of products at the usual clock
    const Bounded usual = energy_of(spec, DeviceWork{20, 10, flops}, 1);
    CHECK(usual.low == usual.high);
    CHECK(usual.value == energy_of(spec, DeviceWork{20, 10, flops}));
    // At half the clock the same FLOPs take twenty seconds and as much energy above idle as the voltage says.
    const Bounded half = energy_of(spec, DeviceWork{20, 20, flops}, 0.5);
    CHECK(half.high - 20 * idle == doctest::Approx(10 * (matrix - idle)));
    CHECK(half.value - 20 * idle == doctest::Approx(10 * (matrix - idle) / 2));
    CHECK(half.low - 20 * idle == doctest::Approx(10 * (matrix - idle) / 4));
    // Streaming takes no longer: the same, if it is all the memory's, or an eighth.
    const Bounded stream = energy_of(spec, DeviceWork{20, 10, 0}, 0.5);
    CHECK(stream.high - 20 * idle == doctest::Approx(10 * (streaming - idle)));
    CHECK(stream.low - 20 * idle == doctest::Approx(10 * (streaming - idle) / 8));
    // A faster clock costs more, and never more than the board's limit.
    const Bounded fast = energy_of(spec, DeviceWork{10, 10, flops}, 1.5);
    CHECK(fast.low <= fast.value);
    CHECK(fast.value <= fast.high);
    CHECK(fast.high <= 10 * spec.tdp.value * (1 + 1e-12));
}
