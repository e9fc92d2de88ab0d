#include "workloads/serving/requests/request.hpp"

#include "sim/base/random.hpp"

namespace orrery::serving {

std::uint64_t PromptContent::key(std::uint64_t index, std::uint64_t block) const {
    constexpr std::uint64_t kGroups = 1ULL << 62U;  // apart from conversations and keys of traces
    constexpr std::uint64_t kKeys = 1ULL << 63U;
    const std::uint64_t end = (index + 1) * block;
    std::uint64_t source = 0;
    if (!keys.empty()) {
        // The key of the last token's part stands for all before it.
        const std::uint64_t part = (end - 1) / key_tokens;
        source = part < keys.size() ? kKeys + keys[part] : 0;
    } else if (end <= common) {
        source = kGroups + group;
    } else if (branch != 0 && end > forked) {
        source = mix64(conversation ^ mix64(branch));
    } else {
        source = conversation;
    }
    return source == 0 ? 0 : mix64(mix64(source) + index) | 1U;
}

}  // namespace orrery::serving
