#pragma once
// Blocks of keys and values that outlive the sequence which computed them, found again by their content.
//
// Claims: a block is named by a key that stands for its tokens and all before it. In device memory, blocks that nobody uses
// stay until room is needed, the least recently used goes first; where there are lower tiers (host memory, NVMe) it moves
// down, and each tier drops its own least recently used. A block is in one tier at a time.
// Limits: two sequences that compute the same block at once keep a copy each, as engines do; of them one is found later.
// Sources: Kwon et al., "PagedAttention", SOSP 2023; automatic prefix caching of vLLM 1 (full blocks only, LRU); Qin et al.,
// "Mooncake", FAST 2025 (tiers).
// Validated by tests/workloads/serving_prefix_test.cpp (against a cache written down as a list).

#include "workloads/serving/requests/request.hpp"

#include <array>
#include <unordered_map>
#include <vector>

namespace orrery::inline serving {

enum class Tier : std::uint8_t { device, host, nvme };

class PrefixCache {
  public:
    static constexpr std::uint32_t kNone = 0xFFFFFFFFU;

    /// Blocks that the lower tiers hold; 0: no such tier.
    PrefixCache(std::uint64_t host_blocks, std::uint64_t nvme_blocks) : room_{0, host_blocks, nvme_blocks} {}

    /// The block with this key; kNone when it is in no tier.
    [[nodiscard]] std::uint32_t find(std::uint64_t key) const;
    [[nodiscard]] Tier tier(std::uint32_t block) const { return blocks_[block].tier; }

    /// One more sequence uses a block of the device tier; true when it was idle.
    [[nodiscard]] bool claim(std::uint32_t block);
    /// One less; true when it is idle now.
    [[nodiscard]] bool drop(std::uint32_t block);
    /// A sequence has a block with this content in device memory, which it uses: named from now on. kNone when another
    /// block of the device has that name already. A copy in a lower tier is given up.
    [[nodiscard]] std::uint32_t publish(std::uint64_t key);
    /// Idle blocks of the device beyond `most` leave it.
    void trim(std::uint64_t most);

    /// Blocks on the device that nobody uses.
    [[nodiscard]] std::uint64_t idle() const { return lists_[0].count; }
    /// Blocks that have moved down to host memory and to NVMe so far.
    [[nodiscard]] std::uint64_t to_host() const { return moved_[1]; }
    [[nodiscard]] std::uint64_t to_nvme() const { return moved_[2]; }

  private:
    struct Block {
        std::uint64_t key = 0;
        std::uint32_t users = 0;
        std::uint32_t before = kNone, after = kNone;  ///< in its list
        Tier tier = Tier::device;
    };
    struct List {  ///< from the least recently used on
        std::uint32_t first = kNone, last = kNone;
        std::uint64_t count = 0;
    };
    void append(std::uint32_t block, Tier tier);
    void unlink(std::uint32_t block);
    void move_down(std::uint32_t block);

    std::array<std::uint64_t, 3> room_;
    std::array<std::uint64_t, 3> moved_{};
    std::array<List, 3> lists_;
    std::vector<Block> blocks_;
    std::vector<std::uint32_t> free_;
    std::unordered_map<std::uint64_t, std::uint32_t> by_key_;  ///< only looked up, never walked
};

}  // namespace orrery::inline serving
