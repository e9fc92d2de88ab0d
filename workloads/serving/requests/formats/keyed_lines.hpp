#pragma once
// JSON lines with a stamp, two lengths and keys of the prompt's blocks: what Mooncake's and Bailian's traces share.

#include "workloads/serving/requests/formats/trace_format.hpp"

namespace orrery::serving {

struct KeyedStyle {
    double unit_s = 1e-3;       ///< of a stamp
    std::uint32_t block = 512;  ///< tokens that a key stands for
    bool sure = false;          ///< else lines that fit another format better are asked about
};
[[nodiscard]] std::unique_ptr<RequestLines> make_keyed_lines(const KeyedStyle& style);

}  // namespace orrery::serving
