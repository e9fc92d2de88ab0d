// Caches in fewer bits: bytes, room, and what attention and new tokens take.

#include "tests/support/fabrics.hpp"
#include "tests/support/scenarios.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "workloads/serving/spec.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;

namespace {

Scenario with(const std::string& compression) {
    return test::scenario(
        fmt::format("orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: dgx-a100-80g}}\n"
                    "model: llama-2-7b\nengine: {{tensor: 1, scheduler: {{max_sequences: 64}}, kv: {{{}}}}}\n",
                    compression));
}

std::uint64_t blocks(const Scenario& s) {
    const auto& serving = s.as<ServingKind>();
    return limits_of(serving.engine, serving.engine.mixed, serving.model, s.cluster.node.gpu).blocks;
}

ModelStep step_of(const Scenario& s, const Fabric& fabric, const CollectiveModel& collectives,
                  const DeviceSpec* device = nullptr) {
    return ModelStep(ServingModel{.model = s.as<ServingKind>().model,
                                  .device = test::model_cache().device(s.cluster.node.gpu, ComputeKind::roofline),
                                  .fabric = fabric,
                                  .collectives = collectives,
                                  .gpus = {GpuId(0)},
                                  .spec = device != nullptr ? device : &s.cluster.node.gpu,
                                  .compression = s.as<ServingKind>().engine.compression});
}

}  // namespace

TEST_CASE("compression: a token takes its bits, scales, values kept whole and rows of factors") {
    const Scenario s = with("compression: {key_bits: 4, value_bits: 2, group: 64, sparse: 2 %, rank: 4}");
    // 32 layers of 4,096 keys and as many values; heads of 128.
    const double each = 4.0 / 64 + 0.02 * 6 + 4.0 * 2 / 128;
    const double bytes = 32 * 4096 * (0.5 + 0.25 + 2 * each);
    CHECK(cache_bytes_per_token(s.as<ServingKind>().model, s.as<ServingKind>().engine.cache,
                                s.as<ServingKind>().engine.compression) == doctest::Approx(bytes));
}

TEST_CASE("compression: the room of a cache holds as many more tokens, less what sequences keep in 16 bits") {
    const Scenario usual = with("block: 16");
    const Scenario packed = with("compression: {group: 64}");
    const double whole = cache_bytes_per_token(usual.as<ServingKind>().model, Precision::bf16);
    const double token = cache_bytes_per_token(packed.as<ServingKind>().model, Precision::bf16,
                                               packed.as<ServingKind>().engine.compression);
    CHECK(token == doctest::Approx(whole * (4.0 + 32.0 / 64) / 16));
    const double room = static_cast<double>(blocks(usual)) * 16 * whole;
    CHECK(static_cast<double>(blocks(packed)) == doctest::Approx(room / (16 * token)).epsilon(1e-3));
    const Scenario buffered = with("compression: {group: 64, rank: 8, recent: 20}");
    const double wider = cache_bytes_per_token(packed.as<ServingKind>().model, Precision::bf16,
                                               buffered.as<ServingKind>().engine.compression);
    CHECK(static_cast<double>(blocks(buffered)) ==
          doctest::Approx((room - 64 * 28 * whole) / (16 * wider)).epsilon(1e-3));
}

TEST_CASE("compression: attention in the kernel moves as much less, before it more, and new tokens are packed") {
    const Fabric fabric(test::rail_nodes(1));
    const IdealCollectives collectives;
    const Scenario usual = with("block: 16");
    const Scenario inside = with("compression: {group: 64}");
    const Scenario before = with("compression: {group: 64, rebuild: before}");
    const Scenario repaired = with("compression: {group: 64, rank: 8}");
    ModelStep plain = step_of(usual, fabric, collectives);
    ModelStep packed = step_of(inside, fabric, collectives);
    const double whole = plain.attention_seconds(64, 1, 4000);
    CHECK(packed.attention_seconds(64, 1, 4000) == doctest::Approx(whole * 4.5 / 16).epsilon(0.02));
    CHECK(step_of(before, fabric, collectives).attention_seconds(64, 1, 4000) > 2 * whole);
    // Vector units so slow that they take longer than the memory: four operations per key and value, four per head and rank.
    DeviceSpec slow = usual.cluster.node.gpu;
    slow.flops_fp32.value = 1e11;
    const double operations = 32 * 64 * 4000.0 * (4 * 4096 + 4 * 8 * 32);
    CHECK(step_of(repaired, fabric, collectives, &slow).attention_seconds(64, 1, 4000) ==
          doctest::Approx(operations / 1e11).epsilon(0.01));
    // A prompt's own tokens are in 16 bits; packing them reads them twice and writes them.
    CHECK(packed.attention_seconds(1, 1000, 1000) == plain.attention_seconds(1, 1000, 1000));
    Batch prompt;
    prompt.items.push_back({0, 1000, 1000});
    CHECK(packed.kernel_seconds(prompt) > plain.kernel_seconds(prompt));
    CHECK(step_of(with("compression: {group: 64, rank: 4}"), fabric, collectives).kernel_seconds(prompt) >
          packed.kernel_seconds(prompt));
}
