#pragma once
// Swapped sequences that come back from host memory beside the iterations of the others.
//
// Claims: blocks pass the link from host memory while batches run; the sequence takes part again when the last one is there. Each run
// of blocks that lie beside each other takes a call for the keys and one for the values of every layer, one after another, so that
// small runs leave the link waiting: n calls of c s for b bytes at B take the longer of n c + b / (n B) and c + b / B.
// Limits: blocks are counted, not placed: runs are all of `copy_blocks` blocks but the last; ranks copy side by side.
// Source: Shen et al., "FastSwitch", arXiv:2411.18424 (dispatch of copies as the bottleneck, block groups, asynchronous swap-in).
// Validated by tests/workloads/serving_swap_test.cpp.

#include "sim/network/slots.hpp"
#include "workloads/serving/fleet/fleet.hpp"

namespace orrery::serving {

class SwapIns final : public Part {
  public:
    /// All arguments outlive this.
    SwapIns(Fleet& fleet, ServiceResult& result) : fleet_(fleet), result_(result) {}
    /// Starts what the scheduler of a replica has just called back.
    void start(std::uint32_t replica);
    void on_done(std::uint64_t id, Dispatcher& dispatcher) override;
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
    Slots<One> all_;
};

}  // namespace orrery::serving
