#pragma once
// A recorded program: what ran on each rank, for how long, after what. Importers make it, replays run it.
//
// One text file, CSV with a head:
//
//   # orrery-replay: 1                   first line, the version of this layout
//   # source: pytorch-profiler step.json where it came from (required)
//   # ranks: 8                           ranks of the recorded job (required)
//   # program: same                      same: one program that every rank runs; each: rows name their rank
//   # recorded_ns: 123456.5              time from first start to last end, where the record has times
//   # any further `key: value`           notes of the importer
//   lane,kernels 7                       streams and threads, in the order of their numbers
//   group,size=8 stride=1                groups of a collective, in the order of their numbers: the ranks r with equal
//   group,0 4 8 12                       r / (size * stride) and r % stride (program: same), or a list (program: each)
//   work,product m=4096 n=8192 k=4096 batch=1 type=bf16    what kernels compute, in the order of their numbers (work.hpp)
//   op,rank,lane,kind,name,duration_ns,lag_ns,flops,bytes,collective,group,peer,tag,after,work
//   op,0,0,kernel,gemm,1500,20,0,0,,,,,-1 -3,0
//
// `op` rows: kind is kernel, host, copy, collective, send or recv. `after` lists what an operation waits for, as places
// before its own row (-1: the row before). It starts `lag_ns` after the last of them ends and takes `duration_ns`; an empty
// duration is not known: kernels then follow from flops and bytes, communication from the network. `bytes` of a collective are
// the larger of a rank's input and output buffer; `peer` and `tag` belong to sends and receives. The last column may be missing.
//
// Limits: 50 million operations, 4 GiB of text; what an operation waits for comes before it in the file.
// Validated by tests/workloads/replay_test.cpp and the fuzzer tests/fuzz/replay_fuzz.cpp.

#include "sim/network/collective.hpp"

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace orrery::replay {

enum class ReplayKind : std::uint8_t { kernel, host, copy, collective, send, recv };
[[nodiscard]] const std::vector<std::string>& replay_kind_names();

/// Ranks of a collective: `members` when given, else those with equal r / (size * stride) and r % stride.
struct ReplayGroup {
    std::vector<std::uint32_t> members;
    std::uint32_t size = 1;
    std::uint32_t stride = 1;
    bool operator==(const ReplayGroup&) const = default;
};

struct ReplayOp {
    static constexpr double kUnknown = -1;
    static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

    std::uint32_t rank = 0;
    std::uint32_t lane = 0;
    std::uint32_t name = 0;
    ReplayKind kind = ReplayKind::kernel;
    CollectiveOp collective = CollectiveOp::all_reduce;
    double duration_s = kUnknown;
    double lag_s = 0;
    double flops = 0;
    double bytes = 0;
    std::uint32_t group = kNone;
    std::uint32_t peer = kNone;
    std::uint32_t tag = 0;
    std::uint32_t work = kNone;     ///< of a kernel: what it computes, in `ReplayTrace::works`
    std::uint32_t first_after = 0;  ///< in `ReplayTrace::after`
    std::uint32_t after_count = 0;
};

struct ReplayTrace {
    std::map<std::string, std::string> meta;  ///< notes of the importer; holds at least `source`
    std::uint32_t ranks = 1;
    bool same_program = true;
    double recorded_s = ReplayOp::kUnknown;
    std::vector<std::string> lanes;
    std::vector<ReplayGroup> groups;
    std::vector<std::string> works;
    std::vector<std::string> names;
    std::vector<ReplayOp> ops;
    std::vector<std::uint32_t> after;  ///< operations waited for, by op
    std::vector<std::uint32_t> lines;  ///< of the file, by op; empty where it was not read from one

    /// Index of a name; equal names share one.
    [[nodiscard]] std::uint32_t name(const std::string& text);
    [[nodiscard]] std::uint32_t lane(const std::string& text);
    [[nodiscard]] std::uint32_t work(const std::string& text);
    [[nodiscard]] std::uint32_t group(const ReplayGroup& group);
    /// Adds an operation that waits for `waits` (earlier operations; duplicates are dropped). Returns its index.
    std::uint32_t add(ReplayOp op, std::vector<std::uint32_t> waits);

  private:
    std::map<std::string, std::uint32_t> name_index_;
    std::map<std::string, std::uint32_t> lane_index_;
    std::map<std::string, std::uint32_t> work_index_;
    std::map<std::vector<std::uint32_t>, std::uint32_t> group_index_;  ///< by size, stride and members
};

/// Reads a file of the layout above. Throws ConfigError with every problem found (the first hundred), each with its line.
[[nodiscard]] ReplayTrace read_replay(const std::string& path);
[[nodiscard]] ReplayTrace parse_replay(const std::string& text, const std::string& name);
/// Text that reads back to the same trace.
[[nodiscard]] std::string format_replay(const ReplayTrace& trace);

}  // namespace orrery::replay
