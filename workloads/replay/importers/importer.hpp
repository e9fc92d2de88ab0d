#pragma once
// Readers of other tools' traces: each gives a recorded program (replay_trace.hpp).
//
// All of them throw ConfigError for a malformed, truncated or too large file, with the line or the byte where it is.

#include "workloads/replay/replay_trace.hpp"

namespace orrery {

/// Formats that `import_trace` knows, with a line on each.
struct ImportFormat {
    const char* name;
    const char* doc;
};
[[nodiscard]] const std::vector<ImportFormat>& import_formats();

/// Reads `path` as `format`. Throws ConfigError for an unknown format too.
[[nodiscard]] ReplayTrace import_trace(const std::string& format, const std::string& path);

/// Chrome trace of PyTorch's profiler (Kineto): kernels, copies and runtime calls of one process.
[[nodiscard]] ReplayTrace import_pytorch(const std::string& text, const std::string& name);
/// Export of Nsight Systems (`nsys export --type sqlite`).
[[nodiscard]] ReplayTrace import_nsys(const std::string& path);
/// One Chakra execution trace a rank: `path` is one of NAME.0.et, NAME.1.et, ...; groups from NAME.json or the trace.
[[nodiscard]] ReplayTrace import_chakra(const std::string& path);
/// A Chakra trace of one rank from its bytes, added to `trace`; `groups` maps names of process groups to their ranks.
void import_chakra_rank(const std::string& bytes, const std::string& name, std::uint32_t rank,
                        std::map<std::string, std::vector<std::uint32_t>> groups, ReplayTrace& trace);
/// GOAL text of LogGOPSim: computations in ns, sends and receives in bytes.
[[nodiscard]] ReplayTrace import_goal(const std::string& text, const std::string& name);
/// A SimAI (AICB) workload file: layers with forward, input-gradient and weight-gradient computation and collectives.
[[nodiscard]] ReplayTrace import_aicb(const std::string& text, const std::string& name);

}  // namespace orrery
