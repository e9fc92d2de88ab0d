#pragma once
// Swapped sequences that come back from host memory beside the iterations of the others.
//
// Claims: blocks pass the link from host memory while batches run; the sequence takes part again when the last one is there. Each run
// of blocks that lie beside each other takes a call for the keys and one for the values of every layer, one after another, so that
// small runs leave the link waiting: n calls of c s for b bytes at B take the longer of n c + b / (n B) and c + b / B.
// Limits: blocks are counted, not placed: runs are all of `copy_blocks` blocks but the last; ranks copy side by side.
// Source: Shen et al., "FastSwitch", arXiv:2411.18424 (dispatch of copies as the bottleneck, block groups, asynchronous swap-in).
// Validated by tests/workloads/serving_swap_test.cpp.

#include "sim/engine/task_source.hpp"

#include <vector>

namespace orrery::serving {

class Fleet;
struct Replica;
struct ServiceResult;

/// How long the calls of so many copies take, and their last copy after them.
[[nodiscard]] SimTime calls_time(const Replica& replica, std::uint64_t copies, double bytes);

class SwapIns {
  public:
    /// All arguments outlive this.
    SwapIns(Fleet& fleet, ServiceResult& result) : fleet_(fleet), result_(result) {}
    void begin(Dispatcher& dispatcher) { dispatcher_ = &dispatcher; }
    /// Starts what the scheduler of a replica has just called back.
    void start(std::uint32_t replica);
    void on_task(std::uint32_t id);
    /// A replica fails: what comes for it is of no use.
    void fail(std::uint32_t replica);

  private:
    struct One {
        std::uint32_t replica = 0;
        std::uint32_t sequence = 0;
        std::uint32_t pending = 0;
        bool lost = false;
    };
    Fleet& fleet_;
    ServiceResult& result_;
    Dispatcher* dispatcher_ = nullptr;
    std::vector<One> all_;
    std::vector<std::uint32_t> free_;
};

}  // namespace orrery::serving
