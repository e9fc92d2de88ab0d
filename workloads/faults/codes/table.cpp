// The table of codes of gradients: one row each.

#include "workloads/faults/codes/code.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::faults {

extern const PolicyRow<GradientCode> kNoCode;
extern const PolicyRow<GradientCode> kGradientCode;
extern const PolicyRow<GradientCode> kSelectiveRepeatCode;
extern const PolicyRow<GradientCode> kMultiplexedCode;

const PolicyTable<GradientCode>& gradient_code_table() {
    static const PolicyTable<GradientCode> kTable = {&kNoCode, &kGradientCode, &kSelectiveRepeatCode,
                                                     &kMultiplexedCode};
    return kTable;
}

void BurstPattern::describe(Fields& fields) {
    fields.integer({"burst", "rounds within which a worker is late in a window (B)", false, 1, 1 << 16}, burst);
    fields.integer({"window", "rounds of a window (W)", false, 2, 1 << 16}, window);
    fields.integer({"workers", "workers that may be late in a window (lambda)", false, 0, 1 << 22}, workers);
}

bool BurstPattern::bears(const LateWorkers& late, const std::deque<LateWorkers>& past) const {
    std::int64_t ever = 0;
    for (std::size_t worker = 0; worker < late.size(); ++worker) {
        bool was = false;
        bool long_ago = false;
        for (std::int64_t ago = 1; ago < window && ago <= static_cast<std::int64_t>(past.size()); ++ago) {
            const bool then = past[static_cast<std::size_t>(ago - 1)][worker];
            was = was || then;
            long_ago = long_ago || (then && ago >= burst);
        }
        if (late[worker] && long_ago) {
            return false;
        }
        ever += late[worker] || was ? 1 : 0;
    }
    return ever <= workers;
}

std::string BurstPattern::problem(std::int64_t all) const {
    if (burst >= window) {
        return fmt::format("a 'burst' of {} rounds is no shorter than the 'window' of {}", burst, window);
    }
    return workers > all ? fmt::format("{} workers may be late, of {}", workers, all) : "";
}

}  // namespace orrery::faults
