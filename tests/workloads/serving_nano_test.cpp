// Nano-batches: parts of an iteration beside each other on one device.

#include "tests/support/fabrics.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "topologies/device_preset.hpp"
#include "workloads/serving/cost/step_cost.hpp"

#include <doctest/doctest.h>

using namespace orrery;

namespace {

Batch decodes(std::uint32_t sequences, std::uint32_t context, std::uint32_t prompt) {
    Batch batch;
    for (std::uint32_t i = 0; i < sequences; ++i) {
        batch.items.push_back({i, 1, context});
    }
    if (prompt > 0) {
        batch.items.push_back({sequences, prompt, prompt});
    }
    return batch;
}

}  // namespace

TEST_CASE("nano-batches: one part runs its operations in turn, whatever they keep busy") {
    const std::vector<LaneOperation> layer = {
        {KernelLane::products, 2, 1, 0.5}, {KernelLane::attention, 1, 0.2, 1}, {KernelLane::network, 0.5, 0.2, 0}};
    for (const std::size_t layers : {1, 3, 4, 7, 80}) {
        CHECK(co_schedule(layer, 1, layers) == doctest::Approx(3.5 * static_cast<double>(layers)));
    }
}

TEST_CASE("nano-batches: where nothing is short the longest lane is all the time, but for the last operation") {
    // Products of 2 s and attention of 1 s, two parts: products never pause.
    const std::vector<LaneOperation> layer = {{KernelLane::products, 2, 0.5, 0}, {KernelLane::attention, 1, 0.2, 1}};
    for (const std::size_t layers : {1, 2, 5, 40}) {
        CHECK(co_schedule(layer, 2, layers) == doctest::Approx(4 * static_cast<double>(layers) + 1));
    }
}

TEST_CASE("nano-batches: operations beside each other slow down by what both want of the units, or of the memory") {
    for (const bool memory : {false, true}) {
        const double p = memory ? 0.5 : 0.8;
        const double a = memory ? 0.2 : 0.4;
        const std::vector<LaneOperation> layer = {{KernelLane::products, 1, p, memory ? 0.6 : 0},
                                                  {KernelLane::attention, 1, a, memory ? 0.6 : 0}};
        for (const std::size_t layers : {1, 3, 12}) {
            CHECK(co_schedule(layer, 2, layers) ==
                  doctest::Approx(1 + 1.2 * (2 * static_cast<double>(layers) - 1) + 1));
        }
    }
    // Who wants all of the units gains nothing from company.
    const std::vector<LaneOperation> greedy = {{KernelLane::products, 1, 1, 0}, {KernelLane::attention, 1, 1, 0}};
    CHECK(co_schedule(greedy, 2, 6) == doctest::Approx(2 * 2 * 6));
}

TEST_CASE("nano-batches: an iteration is cut where that is faster, and takes no less than its slowest lane") {
    const DeviceSpec h200 = read_device("h200-sxm", test::data());
    const CostModel& device = test::model_cache().device(h200, ComputeKind::calibrated);
    const Fabric fabric(test::rail_nodes(1));
    const IdealCollectives collectives;
    const ModelSpec llama =
        test::scenario("orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-3-8b\n")
            .as<ServingKind>()
            .model;
    const auto step = [&](std::int64_t parts) {
        return ModelStep(ServingModel{.model = llama,
                                      .device = device,
                                      .fabric = fabric,
                                      .collectives = collectives,
                                      .gpus = {GpuId(0)},
                                      .spec = &h200,
                                      .nano_batches = parts});
    };
    ModelStep whole = step(1);
    ModelStep cut = step(2);
    // A few tokens: reading all weights twice is not worth it.
    const Batch few = decodes(8, 500, 0);
    CHECK(cut.kernel_seconds(few) == whole.kernel_seconds(few));
    // Many tokens and long contexts: attention hides beside the products of the other half.
    const Batch many = decodes(512, 4000, 1536);
    CHECK(cut.kernel_seconds(many) < 0.95 * whole.kernel_seconds(many));
    CHECK(cut.kernel_seconds(many) > whole.attention_seconds(512, 1, 4000));
    CHECK(cut.kernel_seconds(many) > whole.dense_seconds(2048));
}
