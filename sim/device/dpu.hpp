#pragma once
// Small cores beside the banks of memory modules (UPMEM's DPUs): copies from the host, and launches.
//
// Claims: a core issues an instruction per cycle, of one thread at most every `pipeline` cycles, so that fewer threads than that leave
// cycles idle. A thread that reads or writes its bank waits for a DMA of so many cycles and so many per byte. Copies of the host
// go to whole ranks of cores: a fixed time, one per rank, and then the bytes at the rate of a core, of a rank, or of all ranks
// together, whichever takes longest. A launch has a fixed time and one per rank.
// Scope: MRAM; equal shares of the data on every core.
// Limits: copies into the cores' own SRAM (two orders of magnitude slower) are not modelled; threads' DMAs do not queue.
// Sources: Gomez-Luna et al., "Benchmarking a new paradigm", IEEE Access 10, 2022 (PrIM); models/data/dpus.
// Validated by tests/sim/device/dpu_test.cpp and `orrery validate devices` (upmem).

#include "sim/config/fields.hpp"

namespace orrery::device {

struct DpuSpec {
    std::string name;
    std::int64_t per_rank = 64;
    std::int64_t pipeline = 11;           ///< cycles between two instructions of a thread
    Sourced<double> clock;                ///< Hz
    Sourced<double> core_rate;            ///< B/s of copies between the host and one core
    Sourced<double> rank_rate;            ///< and a rank,
    Sourced<double> total_rate;           ///< and all ranks
    Sourced<double> copy;                 ///< s of a copy before its bytes,
    Sourced<double> copy_per_rank;        ///< and for each rank
    Sourced<double> launch;               ///< s of a launch and waiting for it,
    Sourced<double> launch_per_rank;      ///< and for each rank
    Sourced<double> dma_read, dma_write;  ///< cycles of an access to the bank,
    Sourced<double> dma_byte;             ///< and for each byte
};

inline constexpr PresetKind kDpuPresets{"dpu", "models/data/dpus"};
void describe(Fields& fields, DpuSpec& dpu);

/// s of a copy of so many bytes to each of `cores` at once.
[[nodiscard]] double copy_seconds(const DpuSpec& dpu, double cores, double bytes);

/// What each of a core's threads does.
struct DpuThread {
    double instructions = 0;
    double reads = 0, writes = 0;  ///< accesses to the bank,
    double access = 8;             ///< B of each
};
/// s of a launch on `cores` whose `threads` all do the same.
[[nodiscard]] double launch_seconds(const DpuSpec& dpu, double cores, double threads, const DpuThread& work);

}  // namespace orrery::device
