#pragma once
// Hyper-connections (Zhu et al., arXiv:2409.19606; as DeepSeek-V4 has them, arXiv:2606.19348): a token has several
// residual streams, which each
// block sums to its input and to which it gives its output, by weights that a small product makes of all of them.
//
// Claims: before a block its streams are read twice (for the weights of the sums, in 32 bits, and for the sums); after it they are read and
// written once. ai-dynamo/aiconfigurator@095f58a, mhc_module_perf: such bytes pass at 78 to 88 % of the memory's rate
// on H200 and 70 to 85 %
// on B200 from 8,192 tokens on, for widths of 4,096 and 7,168. Up to 16 tokens both take as long as 5.5 and 2.6 starts
// of a kernel, medians of
// 16 tables of it (eight devices, three libraries; the half of the rows with the smaller SHA-1 of their sizes): 4.4 to 6.7 and 2.0 to 3.3.
// Limits: the iterations that normalise the weights are in the starts; engines that fuse both sides are not told apart.

#include "workloads/model/layer_program.hpp"

namespace orrery::model {

/// Weights of a block's sums: of each stream what the input takes and the output gives, and of each pair what stays.
[[nodiscard]] double stream_weights(double streams, double hidden);
/// Kernels before `blocks` blocks of a layer, and those behind them. Empty with one stream.
[[nodiscard]] LayerOperations before_blocks(const LayerContext& at, double streams, double blocks);
[[nodiscard]] LayerOperations behind_blocks(const LayerContext& at, double streams, double blocks);

}  // namespace orrery::model
