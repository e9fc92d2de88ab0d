#pragma once
// Swapped sequences that come back from host memory beside the iterations of the others.
//
// Claims: blocks pass the link from host memory while batches run; the sequence takes part again when the last one is there. Each run
// of blocks that lie beside each other takes a call for the keys and one for the values of every layer, one after another, so that
// small runs leave the link waiting: n calls of c s for b bytes at B take the longer of n c + b / (n B) and c + b / B.
// Limits: blocks are counted, not placed: runs are all of `copy_blocks` blocks but the last; ranks copy side by side.
// Source: Shen et al., "FastSwitch", arXiv:2411.18424 (dispatch of copies as the bottleneck, block groups, asynchronous swap-in).
// Validated by tests/workloads/serving_swap_test.cpp.

#include "workloads/serving/transfer/sequence_loads.hpp"

namespace orrery::serving {

class SwapIns final : public SequenceLoads {
  public:
    /// All arguments outlive this.
    SwapIns(const ServiceSpec& spec, Fleet& fleet, ServiceResult& result)
        : SequenceLoads(spec, fleet, result, &EngineState::arrived) {}
    /// Starts what the scheduler of a replica has just called back.
    void start(std::uint32_t replica);
};

}  // namespace orrery::serving
