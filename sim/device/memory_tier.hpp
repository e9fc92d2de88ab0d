#pragma once
// Memories of a node beside those of its devices: DRAM, CXL expanders, NVMe drives; the host's cores and the PCIe tree between.
//
// Claims: a tier is equal units (memory controllers of a socket, cards, drives) over which data are striped. Reads and writes share
// its medium, each at a rate of its own, so that a mix of them takes the sum of their times; a link of its own (CXL, NVMe) carries
// each direction apart. A unit that takes so many requests of its granularity at a time serves at most requests x granularity /
// latency (Little's law). A core streams at a rate that falls with the latency of the tier, as it keeps the same number of
// requests under way.
// PCIe: lanes x GT/s x 128/130 x 0.919 for acknowledgements and flow control, x payload / (payload + 24 B) for headers, with
// payloads of 256 B: Neugebauer et al., "Understanding PCIe performance for end host networking", SIGCOMM 2018, section 3.
// Lines and sectors of a GPU's reads: Min et al., "EMOGI", VLDB 2021.
// Limits: latency does not rise with load; no write amplification; striping is perfect.
// Validated by tests/sim/device/memory_tier_test.cpp and `orrery validate devices` (tiers).

#include "sim/config/fields.hpp"

#include <string>
#include <vector>

namespace orrery::device {

enum class TierMedium { dram, cxl, nvme };

struct PcieLink {
    std::int64_t generation = 0;  ///< 0: no PCIe link
    std::int64_t lanes = 16;
    /// B/s of data, a direction; 0 without a link.
    [[nodiscard]] double rate() const;
    /// What a row of a table takes of the link over what as many bytes of a long copy take, where a device reads it by itself: in
    /// requests of a line of 128 B each, of which sectors of 32 B travel. Rows lie one behind the other. `aligned`: a request is of
    /// one line; otherwise each is split where a row does not begin with a line.
    [[nodiscard]] static double row_weight(double row, bool aligned);
};

struct MemoryTier {
    std::string name;
    TierMedium medium = TierMedium::dram;
    std::int64_t units = 1;     ///< that data are striped over
    Sourced<double> capacity;   ///< B of a unit
    Sourced<double> read;       ///< B/s of a unit
    Sourced<double> write;      ///< B/s of a unit; 0: as read
    Sourced<double> latency;    ///< s of an access
    double granularity = 64;    ///< B of an access, of which transfers are multiples
    std::int64_t requests = 0;  ///< accesses that a unit takes at a time; 0: as many as its rate needs
    PcieLink link{0, 4};        ///< of a unit; generation 0: on the memory bus
    bool direct = false;        ///< devices reach drives without a copy in DRAM

    /// Of all units together.
    [[nodiscard]] double bytes() const { return static_cast<double>(units) * capacity.value; }
    [[nodiscard]] double read_rate() const { return rate(read.value); }
    [[nodiscard]] double write_rate() const { return rate(write.value > 0 ? write.value : read.value); }
    /// `bytes` rounded up to whole accesses.
    [[nodiscard]] double whole(double bytes) const;
    /// B/s of the links of its units, a direction; 0: none.
    [[nodiscard]] double link_rate() const { return static_cast<double>(units) * link.rate(); }
    /// The processor addresses it: anything but drives.
    [[nodiscard]] bool addressed() const { return medium != TierMedium::nvme; }
    /// Devices copy from and to it in one step.
    [[nodiscard]] bool reached() const { return addressed() || direct; }

  private:
    [[nodiscard]] double rate(double of_unit) const;
};

/// What a node has beside its devices and NICs.
struct NodeHost {
    std::string name;
    std::int64_t cores = 0;               ///< that optimizers on the host may use
    Sourced<double> core_bandwidth;       ///< B/s that a core streams from and to DRAM
    PcieLink pcie;                        ///< of each device
    std::int64_t devices_per_switch = 0;  ///< that share one such link to the host; 0: each has its own
    std::vector<MemoryTier> tiers;

    /// Its place among `tiers`; their number where there is none of this name.
    [[nodiscard]] std::size_t find(const std::string& tier) const;
    /// The first tier of DRAM; their number where there is none.
    [[nodiscard]] std::size_t dram() const;
};

inline constexpr PresetKind kHostPresets{"host", "topologies/data/hosts"};

void describe(Fields& fields, NodeHost& host);

/// What is wrong with it beyond single fields: tiers of one name, none of DRAM for drives that devices do not reach.
[[nodiscard]] std::vector<std::string> problems_of(const NodeHost& host);

}  // namespace orrery::device
