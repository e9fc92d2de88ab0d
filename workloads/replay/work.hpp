#pragma once
// What a recorded kernel computes, where its record says it: text in the file of a program, an operation for cost models.
//
//   product m=4096 n=8192 k=4096 batch=1 type=bf16     a matrix product
//   attention heads=64 queries=4096 keys=4096 dim=128 group=8 type=bf16   (heads: of all sequences; causal)
//   streaming bytes=33554432                           anything else: bytes read and written
//   memory tier=dram by=copy bytes=33554432            bytes of a memory of the node (node.host) to the device, by its copy engine
//   memory tier=dram by=host bytes=33554432 row=512    rows that lie anywhere in it, side by side into DRAM by the host's cores
//   memory tier=dram by=device bytes=33554432 row=512  such rows to the device, whose kernels read them over PCIe; by=unaligned:
//                                                      in requests that do not begin with the lines of the memory
//   dpu preset=upmem cores=2048 bytes=524288           the host's copy of so much to or from the banks of each of so many small cores
//   dpu preset=upmem cores=64 threads=16 instructions=1e6 reads=100 writes=10 access=2048
//                                                      a launch on them: what each thread does (sim/device/dpu.hpp)
//
// What moves between memories is an activity on them and on PCIe, which all ranks of a node share; such an operation has no duration.
// Validated by tests/workloads/replay_work_test.cpp.

#include "sim/device/dpu.hpp"
#include "sim/device/operation.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace orrery::replay {

[[nodiscard]] std::string format_work(const Gemm& product);
[[nodiscard]] std::string format_work(const Attention& attention);
[[nodiscard]] std::string format_work(const Streaming& streaming);

/// Who moves bytes of a memory.
enum class MemoryMover { copy, host, device, unaligned };
struct MemoryWork {
    std::string tier;
    MemoryMover by = MemoryMover::copy;
    double bytes = 0;
    double row = 0;
};
[[nodiscard]] bool is_memory_work(std::string_view text);
[[nodiscard]] std::optional<MemoryWork> parse_memory_work(std::string_view text, std::string& problem);

/// A copy where there are no threads, else a launch.
struct CoreWork {
    std::string preset;
    double cores = 0;
    double bytes = 0;
    double threads = 0;
    DpuThread thread;
};
[[nodiscard]] bool is_core_work(std::string_view text);
[[nodiscard]] std::optional<CoreWork> parse_core_work(std::string_view text, std::string& problem);

/// The operation, or nothing and in `problem` why not.
[[nodiscard]] std::optional<Operation> parse_work(std::string_view text, std::string& problem);

}  // namespace orrery::replay
