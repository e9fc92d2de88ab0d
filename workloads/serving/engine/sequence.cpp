#include "workloads/serving/engine/sequence.hpp"

#include <algorithm>

namespace orrery::serving {

void Batch::use_adapter(std::uint32_t adapter, std::uint32_t tokens) {
    const auto found =
        std::find_if(adapters.begin(), adapters.end(), [&](const auto& used) { return used.first == adapter; });
    if (found != adapters.end()) {
        found->second += tokens;
    } else {
        adapters.emplace_back(adapter, tokens);
    }
}

}  // namespace orrery::serving
