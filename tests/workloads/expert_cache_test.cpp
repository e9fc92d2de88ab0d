// Experts that live in the host's memories: what is found, what is brought, and what layers wait for.

#include "tests/support/fabrics.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/workloads/serving_support.hpp"

#include <doctest/doctest.h>

#include <cmath>

using namespace orrery;
using namespace orrery::test;

namespace {

ExpertCacheSpec keeping(std::int64_t experts) {
    ExpertCacheSpec spec;
    spec.experts = experts;
    return spec;
}

double hit_fraction(const ExpertCacheSpec& spec, const ExpertCache::Shape& shape) {
    ExpertCache cache(spec, shape, 3, "experts");
    for (int i = 0; i < 100'000; ++i) {
        (void)cache.step(1);
    }
    return static_cast<double>(cache.hits()) / static_cast<double>(cache.used());
}

// A host whose DRAM and PCIe give 10 B/s, and a drive of 5 B/s.
NodeHost slow_host() {
    NodeHost host;
    MemoryTier dram;
    dram.name = "dram";
    dram.capacity.value = 1e3;
    dram.read.value = 1e6;
    dram.granularity = 1;
    MemoryTier drive = dram;
    drive.name = "nvme";
    drive.medium = TierMedium::nvme;
    drive.read.value = 5;
    host.tiers = {dram, drive};
    return host;
}

// Iterations of a second of two layers with two experts of 5 B each, which every token needs both; one stays on the device.
struct TwoLayers {
    TwoLayers() : host(slow_host()), fabric(rail_nodes(1)) {
        spec = spec_of("chunked-prefill", 100, 8, 1000);
        spec.fabric = &fabric;
        spec.host = &host;
        spec.device_link = 10;
        spec.pools[0].experts = ExpertPool{keeping(1), {2, 2, 2, 0}, 5};
    }
    [[nodiscard]] ServiceResult run(std::uint32_t tokens) const {
        ListSource source({request(0, 4, tokens)});
        AffineStep cost(1, 0, 0);
        return serve_with(spec, source, cost);
    }
    NodeHost host;
    Fabric fabric;
    ServiceSpec spec;
};

const char* const kMixtral = R"(
orrery: 1
kind: serving
cluster:
  nodes: 1
  node:
    gpus: 1
    gpu: a40
    intra: pcie
    intra_bandwidth: 26 GB/s
    intra_latency: 2 us
    nics: 0
    host: {host}
model: mixtral-8x7b
engine: {{expert_cache: {{{cache}}}}}
requests: {{arrivals: closed, clients: 1, count: 4, prompt: {{kind: fixed, mean: 8}}, output: {{kind: fixed, mean: 32}}}}
)";

Summary mixtral(const std::string& cache, const std::string& host = "azure-nc96-a100") {
    return orrery::run_scenario(
               scenario(fmt::format(fmt::runtime(kMixtral), fmt::arg("host", host), fmt::arg("cache", cache))),
               model_cache(), {})
        .summary;
}

}  // namespace

TEST_CASE("expert cache: single tokens find their one expert as often as Che's approximation says, in every layer") {
    ExpertCacheSpec spec = keeping(16);
    // Alike: what is there is a share of all.
    CHECK(hit_fraction(spec, {3, 64, 1, 0}) == doctest::Approx(0.25).epsilon(0.01));
    // Zipf of exponent 1: T from sum(1 - exp(-p T)) = 16.
    spec.skew = 1;
    double sum = 0;
    for (int k = 1; k <= 64; ++k) {
        sum += 1.0 / k;
    }
    double t = 0;
    double hits = 0;
    for (double held = 0; held < 16; t += 0.01) {
        held = hits = 0;
        for (int k = 1; k <= 64; ++k) {
            const double p = 1 / (k * sum);
            held += 1 - std::exp(-p * t);
            hits += p * (1 - std::exp(-p * t));
        }
    }
    CHECK(hit_fraction(spec, {3, 64, 1, 0}) == doctest::Approx(hits).epsilon(0.01));
    spec.pinned = 15;  // the most popular, and the last one missed
    double most = 0;
    for (int k = 1; k <= 15; ++k) {
        most += 1 / (k * sum);
    }
    CHECK(hit_fraction(spec, {3, 64, 1, 0}) ==
          doctest::Approx(most).epsilon(0.012));  // the last one is hit, too, at times
}

TEST_CASE("expert cache: what all tokens of a layer need is found before it goes, and the rest passes through") {
    ExpertCache cache(keeping(3), {1, 8, 8, 0}, 1, "experts");
    CHECK(cache.step(2)[0].demanded.home == 8);
    CHECK(cache.step(5)[0].demanded.home == 5);
    CHECK(cache.used() == 16);
    CHECK(cache.hits() == 3);
    // Of drives DRAM keeps what came last: all but four of the eight, whatever is on the device.
    ExpertCache drives(keeping(1), {1, 8, 8, 8}, 1, "experts");
    CHECK(drives.step(1)[0].demanded.home == 8);
    const LayerLoads second = drives.step(1)[0];
    CHECK(second.demanded.home == 0);
    CHECK(second.demanded.dram == 7);
}

TEST_CASE("expert cache: a prediction names its share of the missing experts, and others for nothing") {
    ExpertCacheSpec spec = keeping(4);
    spec.prefetches = true;
    spec.hit_rate = 0.7;
    const ExpertCache::Shape shape{2, 32, 2, 0};
    ExpertCache cache(spec, shape, 1, "experts");
    double ahead = 0;
    double demanded = 0;
    for (int i = 0; i < 20'000; ++i) {
        for (const LayerLoads& loads : cache.step(1)) {
            ahead += loads.predicted.all();
            demanded += loads.demanded.all();
        }
    }
    const auto missing = static_cast<double>(cache.used() - cache.hits());
    CHECK(demanded == doctest::Approx(0.3 * missing).epsilon(0.02));
    CHECK(ahead == static_cast<double>(cache.predicted() + cache.in_vain()));
    CHECK(static_cast<double>(cache.predicted()) == doctest::Approx(0.7 * missing).epsilon(0.02));
    // One of the 30 or so that are not needed; four of all are there already.
    CHECK(static_cast<double>(cache.in_vain()) == doctest::Approx(0.3 * missing * 27 / 30).epsilon(0.05));
    // An engine that brings whole layers needs no choice, and names what it brings.
    spec.hit_rate = 1;
    spec.brings = Brings::layer;
    ExpertCache whole(spec, shape, 1, "experts");
    (void)whole.step(1);
    CHECK(whole.step(1)[1].predicted.home == 28);
    CHECK(whole.in_vain() == 0);
}

TEST_CASE("expert cache: layers wait for what comes over the link, by hand") {
    TwoLayers two;
    // The first iteration brings both experts of each layer (2 x 10 B at 10 B/s), the others one of each (2 x 0.5 s).
    ServiceResult result = two.run(3);
    CHECK(result.end_s == doctest::Approx(3 * 1 + 2 + 2 * 1));
    CHECK(result.expert_wait_s == doctest::Approx(4));
    CHECK(result.expert_bytes == doctest::Approx(20 + 2 * 10));
    CHECK(result.experts_used == 12);
    CHECK(result.expert_hits == 4);
    // From the drive at 5 B/s, as a stream through DRAM.
    two.spec.pools[0].experts->spec.tier = "nvme";
    CHECK(two.run(1).end_s == doctest::Approx(1 + 4));
    // DRAM keeps all four from the second iteration on.
    two.spec.pools[0].experts->shape.host_experts = 4;
    CHECK(two.run(3).end_s == doctest::Approx(3 * 1 + 4 + 2 * 1));
}

TEST_CASE("expert cache: predicted experts come while layers before them compute") {
    TwoLayers two;
    ExpertPool& experts = *two.spec.pools[0].experts;
    experts.spec.prefetches = true;
    // First: 1 s for each layer's two experts, the second's while the first computes for 0.5 s. Then 0.5 s each, wholly behind it.
    CHECK(two.run(1).end_s == doctest::Approx(1 + 0.5 + 0.5 + 0.5));
    CHECK(two.run(2).end_s == doctest::Approx(2.5 + 0.5 + 0.5 + 0.5));
    // All on the device: nothing waits, and an iteration is one task.
    experts.spec.experts = 2;
    const ServiceResult all = two.run(4);
    CHECK(all.end_s == doctest::Approx(2.5 + 3));
    CHECK(all.expert_bytes == doctest::Approx(20));
    // A rank's part of an expert comes over its own link, while the memory is shared.
    TwoLayers pair;
    pair.spec.pools[0].gpus = 2;
    pair.spec.pools[0].experts->rank_bytes = 2;
    CHECK(pair.run(1).end_s == doctest::Approx(1 + 0.8));
    pair.host.tiers[0].read.value = 10;
    CHECK(pair.run(1).end_s == doctest::Approx(1 + 1.6));
}

TEST_CASE(
    "expert cache: a token takes its experts' bytes over the link, and the cache leaves its memory to keys and "
    "values") {
    // Alike and two of eight by token: with three there, 3/8 of them are found whatever goes. An expert is 3 x 4096 x 14336 in 16 bits.
    const Summary three = mixtral("experts: 3");
    CHECK(three.find("expert_hit_fraction")->value == doctest::Approx(0.375).epsilon(0.1));
    const double wait = three.find("expert_wait_s.mean")->value * three.find("iterations")->value;
    const double rate = three.find("expert_bytes")->value / wait;
    CHECK(rate > 20e9);
    CHECK(rate < 27e9);
    const Summary two = mixtral("experts: 2");
    CHECK(two.find("cache_peak_fraction")->value < three.find("cache_peak_fraction")->value);
    CHECK(two.find("tpot_s.mean")->value > three.find("tpot_s.mean")->value);
    // Every prediction right and all of a layer behind another's copies: never slower.
    CHECK(mixtral("experts: 3, prefetch: {hit_rate: 1}").find("tpot_s.mean")->value < three.find("tpot_s.mean")->value);
    CHECK(mixtral("experts: 3, skew: 1").find("expert_hit_fraction")->value > 0.45);
    CHECK(mixtral("experts: 3, brings: layer").find("tpot_s.mean")->value > 2 * three.find("tpot_s.mean")->value);
}

TEST_CASE("expert cache: without a tier, or one that is too small, the numbers are told") {
    const auto told = [](const std::string& cache, const std::string& host) {
        try {
            (void)mixtral(cache, host);
        } catch (const InfeasibleError& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    const std::string small =
        "{pcie_generation: 4, tiers: [{name: dram, medium: dram, capacity: 64 GiB, read: 300 GB/s, latency: 100 ns}]}";
    CHECK(told("experts: 3", small) == "8 experts of 32 layers are 84.0 GiB: more than the 64.0 GiB of 'dram'");
    CHECK(told("experts: 6", "azure-nc96-a100").find("the model does not fit: 66.0 GiB of weights") == 0);
    CHECK(told("experts: 3, host: 64 GiB", "azure-nc96-a100").find("which is memory") != std::string::npos);
    CHECK(told("experts: 3, tier: nvme, host: 2 TiB", "azure-nc96-a100").find("more than the") != std::string::npos);
    CHECK_THROWS_WITH_AS((void)mixtral("experts: 3, tier: drum", "azure-nc96-a100"),
                         doctest::Contains("did you mean 'dram'?"), ConfigError);
    CHECK_THROWS_WITH_AS((void)mixtral("experts: 9, pinned: 10", "azure-nc96-a100"),
                         doctest::Contains("keeps 9 experts of a layer, which has 8"), ConfigError);
}
