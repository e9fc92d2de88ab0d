#pragma once
// SharedCache: blocks of prompts that replicas have from a store beside them, or from each other.
//
// Claims: the store holds blocks of all replicas up to its capacity, and drops the one unused longest (or least often). Written through,
// a block goes there at the end of the batch that computes it; written back, when its replica drops it from its last tier. What is there
// already, or on its way, is not written again, and a block is found once all of it is there. Blocks of one instant go as one transfer: over the store's own
// pipe, each way shared by all replicas, and where the store is in a node's memory over the fabric as well, as a stream over both.
// A replica looks for the blocks that follow those it has itself: in the store, and in every tier of running replicas. The source with
// most of them wins, the store before a peer and of peers the one that has sent least often. What comes is a flow over the same links as
// everything else. `faster` brings blocks only when that takes less time than they save: latency and bytes at the rate that the path has
// for itself, against the price of the prompt with and without them, computed alone in chunks of the token budget (as schedulers that
// know caches compare them: Mooncake's FindBestPrefixMatch and transfer against recomputation).
// Limits: blocks are read and written by the GPUs' own NICs (GPUDirect), so that the links to hosts are left out; looking up takes
// `latency` and no bandwidth; a peer has a block from when it plans the batch that computes it, as engines count it, and a replica on the
// store's node reads what its own GPUs hold at once; with several batches under way the end of any of them writes; a block that is dropped, or a peer that fails, while it is being read is read to the end; pools of
// different degrees take each other's blocks without a copy to reorder them.
// Sources: Qin et al., "Mooncake", FAST 2025, sections 5 and 6 (a pool of caches, transfer against recomputation); Liu et al., "LMCache",
// arXiv:2510.09665 (stores behind engines, peers).
// Validated by tests/workloads/shared_cache_test.cpp (break-even, and the hit rate of LRU under Zipf by Che's approximation).

#include "sim/network/slots.hpp"
#include "workloads/serving/fleet/fleet.hpp"

#include <optional>
#include <unordered_set>
#include <vector>

namespace orrery::serving {

class SharedCache final : public FleetPart {
  public:
    /// All arguments outlive this.
    SharedCache(const ServiceSpec& spec, Fleet& fleet, ServiceResult& result);
    void begin(Dispatcher& dispatcher) override;
    void on_done(std::uint64_t token, Dispatcher& dispatcher) override;
    /// A batch of a replica has ended: what it computed is written through.
    void batch_ends(std::uint32_t replica);

    /// So many blocks behind those that a replica has; from the store, or from a peer.
    struct Source {
        std::uint32_t blocks = 0;
        std::optional<std::uint32_t> peer;
    };
    /// What a waiting sequence of a replica should have brought, if anything.
    [[nodiscard]] Source find(std::uint32_t replica, const Sequence& sequence);
    /// A link that all bytes of a transfer pass; invalid: time alone.
    struct Way {
        ClassId link;
        double latency = 0;
    };
    /// They are brought: over these ways at once.
    [[nodiscard]] std::vector<Way> bring(std::uint32_t replica, const Sequence& sequence, const Source& source);

  private:
    struct Write {
        std::vector<std::uint64_t> keys;
        std::uint32_t pending = 0;
    };
    [[nodiscard]] bool stored(std::uint64_t key) const { return store_.find(key) != TierCache::kNone; }
    void put(std::uint64_t key);
    void wanted(std::uint32_t replica, std::uint64_t key);
    void lose(std::uint32_t replica);
    void write(std::uint32_t replica);
    [[nodiscard]] std::uint32_t blocks_here(std::uint32_t replica, const Sequence& sequence) const;
    [[nodiscard]] bool pays(std::uint32_t replica, const Sequence& sequence, std::uint32_t here, const Source& source);
    [[nodiscard]] double prompt_seconds(std::uint32_t replica, std::uint32_t from, std::uint32_t to) const;
    /// Between the store's node and a replica; null where there is no such node, or the replica is on it.
    [[nodiscard]] const Fleet::Path* path(std::uint32_t replica, bool to_store);

    TierCache store_;
    double block_bytes_ = 0;
    std::uint64_t room_ = 0;                           ///< blocks
    ClassId in_, out_;                                 ///< the store's pipe
    std::vector<std::vector<std::uint64_t>> waiting_;  ///< keys that a replica will write
    std::unordered_set<std::uint64_t> coming_;         ///< those, and what is on its way
    Slots<Write> writes_;
    std::vector<std::uint64_t> sent_;  ///< times that a replica was a source
};

}  // namespace orrery::serving
