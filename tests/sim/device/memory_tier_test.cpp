// Memories of a node: rates, what shares them, and what is wrong with a description.

#include "validation/devices/lone_node.hpp"

#include <doctest/doctest.h>

using namespace orrery;

namespace {

MemoryTier tier(const char* name, TierMedium medium, double read, double write) {
    MemoryTier out;
    out.name = name;
    out.medium = medium;
    out.capacity.value = 1e12;
    out.read.value = read;
    out.write.value = write;
    return out;
}

NodeHost host(std::vector<MemoryTier> tiers) {
    NodeHost out;
    out.tiers = std::move(tiers);
    return out;
}

}  // namespace

TEST_CASE("a PCIe link carries its lanes' bits without codes, acknowledgements and headers") {
    // 16 lanes x 16 GT/s x 128/130 x 57.88/62.96 x 256/280, in bytes.
    CHECK(PcieLink{4, 16}.rate() == doctest::Approx(26.484e9).epsilon(1e-4));
    CHECK(PcieLink{5, 16}.rate() == doctest::Approx(2 * PcieLink{4, 16}.rate()));
    CHECK(PcieLink{4, 4}.rate() == doctest::Approx(PcieLink{4, 16}.rate() / 4));
    CHECK(PcieLink{0, 16}.rate() == 0);
}

TEST_CASE("a tier is as fast as its units together, and as the requests that they take at a time") {
    MemoryTier drives = tier("nvme", TierMedium::nvme, 5e9, 2e9);
    drives.units = 4;
    CHECK(drives.read_rate() == 20e9);
    CHECK(drives.write_rate() == 8e9);
    CHECK(drives.bytes() == 4e12);
    drives.latency.value = 100e-6;
    drives.granularity = 4096;
    drives.requests = 64;  // 64 x 4096 B / 100 us = 2.62 GB/s a drive
    CHECK(drives.read_rate() == doctest::Approx(4 * 64 * 4096 / 100e-6));
    CHECK(drives.write_rate() == 8e9);
    CHECK(drives.whole(4097) == 8192);
}

TEST_CASE("a copy takes its latency and its bytes over the tightest of medium, link and PCIe") {
    MemoryTier cxl = tier("cxl", TierMedium::cxl, 20e9, 20e9);
    cxl.latency.value = 1e-3;
    LoneNode slow_medium(host({cxl}), 1, 50e9);
    CHECK(slow_medium.seconds({slow_medium.memory().fetch(GpuId(0), 0)}, 1e9) == doctest::Approx(1e-3 + 1e9 / 20e9));
    cxl.read.value = 200e9;
    LoneNode slow_pcie(host({cxl}), 1, 10e9);
    CHECK(slow_pcie.seconds({slow_pcie.memory().fetch(GpuId(0), 0)}, 1e9) == doctest::Approx(1e-3 + 1e9 / 10e9));
    cxl.link = {3, 4};
    LoneNode slow_link(host({cxl}), 1, 10e9);
    CHECK(slow_link.seconds({slow_link.memory().fetch(GpuId(0), 0)}, 1e9) ==
          doctest::Approx(1e-3 + 1e9 / PcieLink{3, 4}.rate()));
}

TEST_CASE("two devices behind one PCIe switch take twice as long as two with links of their own") {
    NodeHost described = host({tier("dram", TierMedium::dram, 200e9, 200e9)});
    LoneNode apart(described, 2, 25e9);
    described.devices_per_switch = 2;
    LoneNode shared(described, 2, 25e9);
    const auto both = [](LoneNode& node) {
        return node.seconds({node.memory().fetch(GpuId(0), 0), node.memory().fetch(GpuId(1), 0)}, 1e9);
    };
    CHECK(both(apart) == doctest::Approx(1e9 / 25e9));
    CHECK(both(shared) == doctest::Approx(2e9 / 25e9));
}

TEST_CASE("each direction of a PCIe link carries its rate, and a medium shares its own among both") {
    NodeHost described = host({tier("dram", TierMedium::dram, 30e9, 15e9)});
    LoneNode wide(described, 1, 10e9);
    // 10 GB/s read and 10 written would take 1/3 + 2/3 of the medium: just what it has.
    CHECK(wide.seconds({wide.memory().fetch(GpuId(0), 0), wide.memory().store(GpuId(0), 0)}, 1e9) ==
          doctest::Approx(0.1));
    LoneNode narrow(described, 1, 20e9);
    // Each at rate x: x/30 + x/15 = 1, so 10 GB/s again.
    CHECK(narrow.seconds({narrow.memory().fetch(GpuId(0), 0), narrow.memory().store(GpuId(0), 0)}, 1e9) ==
          doctest::Approx(0.1));
}

TEST_CASE("drives that devices do not reach are copied through DRAM, one step after the other") {
    MemoryTier drives = tier("nvme", TierMedium::nvme, 10e9, 5e9);
    NodeHost described = host({tier("dram", TierMedium::dram, 200e9, 200e9), drives});
    LoneNode through(described, 1, 25e9);
    CHECK(through.seconds({through.memory().fetch(GpuId(0), 1)}, 1e9) == doctest::Approx(1e9 / 10e9 + 1e9 / 25e9));
    LoneNode back(described, 1, 25e9);
    CHECK(back.seconds({back.memory().store(GpuId(0), 1)}, 1e9) == doctest::Approx(1e9 / 5e9 + 1e9 / 25e9));
    described.tiers[1].direct = true;
    LoneNode direct(described, 1, 25e9);
    CHECK(direct.seconds({direct.memory().fetch(GpuId(0), 1)}, 1e9) == doctest::Approx(1e9 / 10e9));
}

TEST_CASE("an update is bound by the memory that its bytes lie in, or by the cores that stream them") {
    MemoryTier dram = tier("dram", TierMedium::dram, 200e9, 200e9);
    MemoryTier cxl = tier("cxl", TierMedium::cxl, 50e9, 50e9);
    dram.latency.value = 100e-9;
    cxl.latency.value = 250e-9;
    NodeHost described = host({dram, cxl});
    const auto seconds = [&](const std::vector<NodeMemory::Traffic>& traffic) {
        LoneNode node(described, 1, 25e9);
        const std::vector<NodeMemory::Hop> chain = {NodeMemory::Hop{node.memory().update(GpuId(0), traffic), 0}};
        return node.seconds({chain}, 1e9);
    };
    CHECK(seconds({{0, 16, 14}}) == doctest::Approx(30e9 / 200e9));
    CHECK(seconds({{1, 16, 14}}) == doctest::Approx(30e9 / 50e9));  // four times as long
    // Pages dealt to both: half of the bytes at the rate of the slower one.
    CHECK(seconds({{0, 8, 7}, {1, 8, 7}}) == doctest::Approx(15e9 / 50e9));
    described.cores = 4;
    described.core_bandwidth.value = 10e9;
    CHECK(seconds({{0, 16, 14}}) == doctest::Approx(30e9 / 40e9));
    // As many lines under way at 2.5 times the latency.
    CHECK(seconds({{1, 16, 14}}) == doctest::Approx(2.5 * 30e9 / 40e9));
}

TEST_CASE("rows that a device reads itself take lines and sectors of the link, and their headers") {
    const double copy = (256.0 + 24) / 256;  // of a byte of a long copy, on the wire
    CHECK(PcieLink::row_weight(512, true) == doctest::Approx((512 + 4 * 24) / 512.0 / copy));
    CHECK(PcieLink::row_weight(512, false) == PcieLink::row_weight(512, true));  // rows begin with lines
    // Rows of 400 B begin at multiples of 16 B: they touch (400 + 128 - 16) / 128 = 4 lines and (400 + 32 - 16) / 32 = 13 sectors.
    CHECK(PcieLink::row_weight(400, true) == doctest::Approx((13 * 32 + 4 * 24) / 400.0 / copy));
    CHECK(PcieLink::row_weight(400, false) == doctest::Approx((13 * 32 + 8 * 24) / 400.0 / copy));
    LoneNode node(host({tier("dram", TierMedium::dram, 100e9, 100e9)}), 1, 10e9);
    CHECK(node.seconds({{node.memory().read_rows(GpuId(0), 0, 400, true)}}, 1e9) ==
          doctest::Approx(0.1 * PcieLink::row_weight(400, true)));
}

TEST_CASE("rows that the host gathers are waited for once each, then read and written") {
    MemoryTier dram = tier("dram", TierMedium::dram, 1e12, 1e12);
    dram.latency.value = 100e-9;
    NodeHost slow = host({dram});
    slow.cores = 2;
    slow.core_bandwidth.value = 10e9;
    LoneNode node(slow, 1, 10e9);
    // 512 B: 100 ns of waiting and twice 51.2 ns of streaming, on two cores.
    CHECK(node.seconds({{node.memory().gather(GpuId(0), 0, 512)}}, 1e9) == doctest::Approx(1e9 / 512 * 202.4e-9 / 2));
    dram.read.value = 4e9;
    LoneNode bound(host({dram}), 1, 10e9);
    // Whole lines of 64 B: eight of them a row; writes share the medium.
    CHECK(bound.seconds({{bound.memory().gather(GpuId(0), 0, 500)}}, 1e9) ==
          doctest::Approx(1e9 * 512 / 500 / 4e9 + 1e9 / 1e12));
}

TEST_CASE("a host with two tiers of a name, or drives without DRAM, is told so") {
    CHECK(problems_of(host({tier("a", TierMedium::dram, 1e9, 1e9), tier("a", TierMedium::cxl, 1e9, 1e9)})).size() == 1);
    CHECK(problems_of(host({tier("a", TierMedium::nvme, 1e9, 1e9)}))[0].find("copied through DRAM") !=
          std::string::npos);
    CHECK(problems_of(host({tier("a", TierMedium::dram, 1e9, 1e9), tier("b", TierMedium::nvme, 1e9, 1e9)})).empty());
}
