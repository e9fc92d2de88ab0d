#pragma once
// What a recorded kernel computes, where its record says it: text in the file of a program, an operation for cost models.
//
//   product m=4096 n=8192 k=4096 batch=1 type=bf16     a matrix product
//   attention heads=64 queries=4096 keys=4096 dim=128 group=8 type=bf16   (heads: of all sequences; causal)
//   streaming bytes=33554432                           anything else: bytes read and written
//
// Validated by tests/workloads/replay_work_test.cpp.

#include "sim/device/operation.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace orrery::inline replay {

[[nodiscard]] std::string format_work(const Gemm& product);
[[nodiscard]] std::string format_work(const Attention& attention);
[[nodiscard]] std::string format_work(const Streaming& streaming);

/// The operation, or nothing and in `problem` why not.
[[nodiscard]] std::optional<Operation> parse_work(std::string_view text, std::string& problem);

}  // namespace orrery::inline replay
