#include "sim/device/memory_tier.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace orrery::device {

namespace {
// B of a packet's data and of its headers.
constexpr double kPayload = 256;
constexpr double kHeader = 24;
}  // namespace

double PcieLink::rate() const {
    // GT/s of a lane by generation, from the third on: those with 128 bits in 130.
    constexpr double kTransfers[] = {8e9, 16e9, 32e9, 64e9};
    constexpr double kLinkLayer = 57.88 / 62.96;  // Gb/s left of eight lanes of generation 3, as in the source
    if (generation < 3) {
        return 0;
    }
    return static_cast<double>(lanes) * kTransfers[generation - 3] / 8 * 128 / 130 * kLinkLayer * kPayload /
           (kPayload + kHeader);
}

// A row begins at any multiple of what its length and a line have in common, so that it touches (row + line - common) / line lines.
double PcieLink::row_weight(double row, bool aligned) {
    constexpr double kLine = 128;
    constexpr double kSector = 32;
    const auto touched = [&](double piece) {
        const auto common =
            static_cast<double>(std::gcd(static_cast<std::int64_t>(std::ceil(row)), static_cast<std::int64_t>(piece)));
        return (row + piece - common) / piece;
    };
    const double lines = touched(kLine);
    const double requests = aligned || std::fmod(row, kLine) == 0 ? lines : 2 * lines;
    const double wire = kSector * touched(kSector) + kHeader * requests;
    return wire / row * kPayload / (kPayload + kHeader);
}

double MemoryTier::rate(double of_unit) const {
    if (requests > 0 && latency.value > 0) {
        of_unit = std::min(of_unit, static_cast<double>(requests) * granularity / latency.value);
    }
    return static_cast<double>(units) * of_unit;
}

double MemoryTier::whole(double bytes) const {
    return std::ceil(bytes / granularity) * granularity;
}

std::size_t NodeHost::find(const std::string& tier) const {
    const auto found =
        std::find_if(tiers.begin(), tiers.end(), [&](const MemoryTier& one) { return one.name == tier; });
    return static_cast<std::size_t>(found - tiers.begin());
}

std::size_t NodeHost::dram() const {
    const auto found =
        std::find_if(tiers.begin(), tiers.end(), [](const MemoryTier& one) { return one.medium == TierMedium::dram; });
    return static_cast<std::size_t>(found - tiers.begin());
}

static void describe(Fields& fields, MemoryTier& tier) {
    fields.text({"name", "name of the tier in plans", true}, tier.name);
    fields.enumeration({"medium", "memory of the processor, memory behind CXL, or drives"}, {"dram", "cxl", "nvme"},
                       tier.medium);
    fields.integer({"units", "memory controllers, cards or drives that data are striped over", false, 1, 10'000},
                   tier.units);
    fields.sourced({"capacity", "capacity of a unit", true, 1, 1e18}, Dimension::bytes, tier.capacity);
    fields.sourced({"read", "rate of a unit when all is read", true, 1, 1e15}, Dimension::rate, tier.read);
    fields.sourced({"write", "rate of a unit when all is written (0: as read)", false, 0, 1e15}, Dimension::rate,
                   tier.write);
    fields.sourced({"latency", "latency of an access", false, 0, 1}, Dimension::time, tier.latency);
    fields.quantity({"granularity", "size of an access; transfers are rounded up to a multiple", false, 1, 1e9},
                    Dimension::bytes, tier.granularity);
    fields.integer({"requests", "accesses that a unit takes at a time (0: as many as its rate needs)", false, 0, 1e9},
                   tier.requests);
    fields.integer({"link_generation", "generation of the PCIe link of a unit (0: on the memory bus)", false, 0, 6},
                   tier.link.generation);
    fields.integer({"link_lanes", "lanes of that link", false, 1, 32}, tier.link.lanes);
    fields.boolean({"direct", "devices reach drives without a copy in DRAM"}, tier.direct);
}

void describe(Fields& fields, NodeHost& host) {
    fields.text({"name", "name of the host"}, host.name);
    fields.integer({"cores", "cores of the node that optimizers on it may use", false, 0, 100'000}, host.cores);
    fields.sourced(
        {"core_bandwidth", "rate at which a core streams from and to DRAM (0: not limiting)", false, 0, 1e13},
        Dimension::rate, host.core_bandwidth);
    fields.integer({"pcie_generation", "generation of each device's PCIe link (0: node.pcie_bandwidth says its rate)",
                    false, 0, 6},
                   host.pcie.generation);
    fields.integer({"pcie_lanes", "lanes of that link", false, 1, 32}, host.pcie.lanes);
    fields.integer(
        {"devices_per_switch", "devices that share one such link to the host (0: each has its own)", false, 0, 1024},
        host.devices_per_switch);
    fields.items({"tiers", "memories that states and activations may be kept in"}, host.tiers,
                 [](Fields& inner, MemoryTier& tier) { describe(inner, tier); });
}

std::vector<std::string> problems_of(const NodeHost& host) {
    std::vector<std::string> out;
    std::set<std::string> names;
    if (host.pcie.generation == 1 || host.pcie.generation == 2) {
        out.emplace_back("PCIe of generations 1 and 2 is not modelled: say its rate by node.pcie_bandwidth");
    }
    for (const MemoryTier& tier : host.tiers) {
        if (!names.insert(tier.name).second) {
            out.push_back("tier '" + tier.name + "' is there twice");
        }
        if (tier.link.generation == 1 || tier.link.generation == 2) {
            out.push_back("tier '" + tier.name + "': PCIe of generations 1 and 2 is not modelled");
        }
        if (tier.link.generation > 0 && tier.medium == TierMedium::dram) {
            out.push_back("tier '" + tier.name + "' is DRAM, which has no PCIe link: medium: cxl has one");
        }
        if (!tier.reached() && host.dram() == host.tiers.size()) {
            out.push_back("tier '" + tier.name +
                          "' is copied through DRAM, and the host has none: add a tier with "
                          "medium: dram, or direct: true");
        }
    }
    return out;
}

}  // namespace orrery::device
