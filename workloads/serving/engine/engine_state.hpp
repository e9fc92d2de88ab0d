#pragma once
// The state of an engine replica that schedulers decide on.
//
// Claims: the state of an iteration-level engine: a queue of waiting sequences, those that hold cache blocks, and the paged
// key-value cache counted in blocks. Schedulers change it through the functions here, which keep its invariants: blocks in use
// never exceed the cache, and a sequence computes only tokens that it has room for.
// Limits: blocks are counted, not placed; a swapped sequence keeps its blocks in host memory, which is counted as well.
// Sources: Kwon et al., "PagedAttention", SOSP 2023 (blocks, preemption by recomputation and swapping).
// Validated by tests/workloads/serving_test.cpp.

#include "workloads/serving/engine/adapters.hpp"
#include "workloads/serving/engine/sequence.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace orrery::serving {

/// Tiers of a prefix cache. A block is named by a key that stands for its tokens and all before it.
inline constexpr std::size_t kOnDevice = 0, kInHostMemory = 1, kOnNvme = 2;

/// Who reads a prefix that several decoding sequences have: each of them, or all together as one matrix product.
enum class PrefixReads : std::uint8_t { each, once };

/// What a scenario says of a cache, and an engine takes as it is.
struct CacheRules {
    bool swaps_in_behind = false;  ///< what comes back from host memory does not hold up the others
    bool keeps_copies = false;     ///< of swapped blocks that are back: only what is new is swapped out again
    bool prefix_cache = false;     ///< blocks stay when their sequence ends, and are found by later ones
    PrefixReads prefix_reads = PrefixReads::each;
    Eviction prefix_eviction = Eviction::lru;
};

struct EngineLimits : CacheRules {
    std::uint32_t max_sequences = 256;
    std::uint32_t token_budget = 8192;  ///< new tokens of an iteration
    std::uint32_t batches = 1;          ///< that may be under way at a time: one a pipeline stage
    std::uint32_t block = 16;           ///< tokens a block
    std::uint64_t blocks = 0;           ///< of the cache
    std::uint64_t host_blocks = 0;      ///< of swap space
    double watermark = 0.01;            ///< share of the blocks that admission leaves free
    std::uint32_t draft_tokens = 0;     ///< that a decoding sequence has verified in an iteration
    std::uint32_t max_context = 0;      ///< tokens of prompt and output; 0: whatever fits into the cache
    double block_bytes = 0;             ///< of a block over all layers, for swapping
    std::uint32_t copy_blocks = 1;      ///< that lie beside each other, and are swapped at once
    std::uint64_t seed = 1;             ///< of what a scheduler draws
    std::uint64_t host_cache = 0;       ///< blocks of the prefix cache in host memory, below the device's
    std::uint64_t nvme_cache = 0;       ///< and on NVMe
    std::uint32_t adapter_slots = 0;    ///< 0: adapters that requests name are no concern of this engine
    double adapter_bytes = 0;           ///< of an adapter, over all ranks
    Eviction adapter_eviction = Eviction::lru;
    std::uint32_t ahead = 0;  ///< tokens beyond a prompt that must have room when it is done, if they will come
};

/// What becomes of a prefix cache. cleared: of all its blocks at once, whatever their key.
enum class CacheChange : std::uint8_t { stored, evicted, cleared };
using CacheWatcher = std::function<void(CacheChange change, std::uint64_t key)>;

class EngineState {
  public:
    explicit EngineState(const EngineLimits& limits);
    EngineState(const EngineState&) = delete;
    EngineState& operator=(const EngineState&) = delete;
    /// From now on the blocks of both are of one cache, that of `other`. Precondition: equal numbers of blocks, none used.
    void share_blocks_with(EngineState& other);

    [[nodiscard]] const EngineLimits& limits() const { return limits_; }
    [[nodiscard]] Sequence& sequence(std::uint32_t index) { return sequences_[index]; }
    [[nodiscard]] const Sequence& sequence(std::uint32_t index) const { return sequences_[index]; }
    [[nodiscard]] std::uint64_t free_blocks() const { return limits_.blocks - *used_blocks_; }
    [[nodiscard]] std::uint64_t used_blocks() const { return *used_blocks_; }
    [[nodiscard]] std::size_t outstanding() const {
        return waiting.size() + running.size() + swapped.size() + in_flight_;
    }
    /// Those, and what waits for an adapter or for room for a cache that comes from another replica.
    [[nodiscard]] std::size_t all_outstanding() const { return outstanding() + aside_ + without_room.size(); }
    /// Sequences that are set aside until their adapter is here.
    [[nodiscard]] std::size_t aside() const { return aside_; }
    /// Sequences here that are work of the other phase.
    [[nodiscard]] std::size_t foreign() const { return foreign_; }
    void mark_foreign(std::uint32_t index);
    /// How many more sequences may run.
    [[nodiscard]] std::size_t places() const { return limits_.max_sequences - running.size() - in_flight_; }
    [[nodiscard]] std::size_t in_flight() const { return in_flight_; }
    [[nodiscard]] bool has_place() const { return places() > 0; }
    /// Sequences that one of the batches under way may have ...
    [[nodiscard]] std::size_t batch_places() const {
        return std::max(1U, limits_.max_sequences / std::max(1U, limits_.batches));
    }
    /// ... and has, where all that are here are shared out among them.
    [[nodiscard]] std::size_t batch_share() const {
        const std::size_t even = (outstanding() + limits_.batches - 1) / std::max(1U, limits_.batches);
        return std::clamp<std::size_t>(even, 1, batch_places());
    }
    [[nodiscard]] std::uint32_t blocks_for(std::uint64_t tokens) const {
        return static_cast<std::uint32_t>((tokens + limits_.block - 1) / limits_.block);
    }

    /// Counts what has joined the waiting queue, so that a policy sees when to sort it again.
    [[nodiscard]] std::uint64_t enqueued() const { return enqueued_; }

    /// Whether a request can ever run here.
    [[nodiscard]] bool accepts(const Request& request) const;
    /// Takes a request into the waiting queue; returns its index, good until it finishes.
    std::uint32_t add(const Request& request, std::uint64_t id);
    /// Takes a sequence from another replica, whose `cached` tokens are on their way here; it holds no block yet.
    std::uint32_t adopt(const Sequence& sequence);
    /// The cache of an adopted sequence is here: it may run. It waits before all that hold no blocks, so that there is always
    /// one that can go on.
    void arrived(std::uint32_t index);

    /// Lets a waiting sequence have the blocks of its prompt that are cached already, all but those of its last token, until
    /// it is admitted or `forget_prefix`; returns the tokens left to compute.
    std::uint32_t claim_prefix(std::uint32_t index);
    void forget_prefix(std::uint32_t index);
    /// Tokens of a prompt that are cached here, in whatever tier.
    [[nodiscard]] std::uint32_t cached_prefix(const PromptContent& content, std::uint32_t prompt) const;
    /// Takes what has joined the queue since the last call out of it, and lets it in again after a batch was put together.
    [[nodiscard]] std::vector<std::uint32_t> hold_newcomers();
    void let_in(const std::vector<std::uint32_t>& newcomers);
    /// `watcher` is told of each block that is new to the prefix cache, or that its last tier drops. Nothing happens without one.
    void watch_cache(CacheWatcher watcher);
    /// An iteration has computed what a sequence has now: its full blocks get their names.
    void name_blocks(std::uint32_t index);
    /// What comes from lower tiers for a sequence that has just been added, in B.
    struct Fetch {
        double host = 0;
        double nvme = 0;
        double elsewhere = 0;
        [[nodiscard]] double all() const { return host + nvme + elsewhere; }
    };
    /// Takes a waiting sequence without blocks aside while its prefix comes from lower tiers, and `elsewhere` blocks behind it from
    /// outside, with room for `room` tokens; nothing happens (and 0 comes back) when none is there or no room is.
    [[nodiscard]] Fetch begin_fetch(std::uint32_t index, std::uint64_t room, std::uint32_t elsewhere = 0);
    void end_fetch(std::uint32_t index);
    /// Takes the blocks of a sequence of another engine with the same cache over, with the sequence; returns its index here.
    std::uint32_t take_over(EngineState& from, std::uint32_t index);

    /// Gives a sequence the slot of its adapter, if one can be had, until it finishes.
    [[nodiscard]] AdapterSlots::Answer pin_adapter(std::uint32_t index);
    void adapter_loaded(std::uint32_t adapter) { adapters_->loaded(adapter); }
    [[nodiscard]] bool has_adapter_slot() const { return adapters_->has_slot(); }
    [[nodiscard]] std::size_t adapters_held() const { return adapters_ ? adapters_->held() : 0; }
    /// Takes the newest waiting sequence out of the queue until it joins it again, or is dropped.
    void set_aside(std::uint32_t index);
    void join(std::uint32_t index);
    void drop_aside(std::uint32_t index);

    /// Null: there is none.
    [[nodiscard]] const TierCache* prefix_cache() const { return cache_ ? &*cache_ : nullptr; }
    [[nodiscard]] std::uint64_t prompt_tokens() const { return prompt_tokens_; }
    [[nodiscard]] std::uint64_t prefix_tokens() const { return prefix_tokens_; }
    /// Of them those brought from host memory, from NVMe, and from outside.
    [[nodiscard]] const std::array<std::uint64_t, 3>& brought_tokens() const { return brought_tokens_; }

    /// Makes room for `tokens` in all; false (and no change) when the blocks that `spare` leaves do not suffice.
    [[nodiscard]] bool reserve(std::uint32_t index, std::uint64_t tokens, std::uint64_t spare = 0);
    /// Draft tokens that a sequence has verified in its next iteration: none beyond what it may still give.
    [[nodiscard]] std::uint32_t drafts(const Sequence& sequence) const {
        return sequence.decoding() ? std::min(limits_.draft_tokens, sequence.output - sequence.generated - 1) : 0;
    }
    /// Tokens beyond those of the iteration that ends its prompt that must have room with it.
    [[nodiscard]] std::uint32_t beyond(const Sequence& sequence) const {
        return limits_.ahead > 0 ? std::min(limits_.ahead, sequence.then) : 0;
    }
    /// Tokens of an iteration's budget that `tokens` of a sequence take, its draft included.
    [[nodiscard]] std::uint32_t budget_for(std::uint32_t index, std::uint32_t tokens) const {
        return tokens + drafts(sequences_[index]);
    }
    /// Lets a sequence compute `tokens` tokens in this iteration: reserves room and adds it to the batch.
    [[nodiscard]] bool schedule(std::uint32_t index, std::uint32_t tokens, Batch& batch, std::uint64_t spare = 0);
    /// Moves the front of the waiting queue to the running ones.
    void admit_front();
    /// Sequences whose cache has come from another replica run from now on, as far as there are places: they only decode.
    void admit_arrived();
    /// Takes the blocks of a running sequence; it starts anew at the front of the waiting queue, behind those that hold blocks.
    void recompute_later(std::size_t place);
    /// Moves a running sequence's blocks to host memory; false when that is full.
    [[nodiscard]] bool swap_out(std::size_t place, Batch& batch);
    /// Brings the first swapped sequence back; false when its blocks do not fit beside `spare`.
    [[nodiscard]] bool swap_in(std::uint64_t spare, Batch& batch);
    /// The same beside the iterations: its blocks are taken, and it may run when they are there (`arrived`).
    struct Return {
        std::uint32_t sequence;
        double bytes;
        std::uint64_t copies;
    };
    [[nodiscard]] bool swap_in_behind(std::uint64_t spare);
    /// Those that such calls have taken since this was called last.
    [[nodiscard]] std::vector<Return> take_returning() { return std::exchange(returning_, {}); }
    [[nodiscard]] std::uint64_t used_host_blocks() const { return used_host_blocks_; }
    [[nodiscard]] std::uint64_t reused_blocks() const { return reused_blocks_; }
    /// Takes the sequences of a batch from the running ones while they are on the stages of a pipeline: no other batch may
    /// have them, and none of them can be preempted.
    void depart(const Batch& batch);
    /// They are back, in order of admission among the running ones.
    void land(const Batch& batch);
    /// Takes a sequence that is not in a batch out of its queue and frees it.
    void withdraw(std::uint32_t index);
    /// Takes a sequence that another replica lost: it computes anew what was cached.
    std::uint32_t readmit(const Sequence& sequence);
    /// Sequences that are here in whatever stage, in order of their requests.
    [[nodiscard]] std::vector<std::uint32_t> all() const;
    /// All are lost, and what was cached; counts stay.
    void reset();
    /// Frees a sequence at its end; the caller takes it from the running ones.
    void finish(std::uint32_t index);

    std::deque<std::uint32_t> waiting;
    std::vector<std::uint32_t> running;  ///< in order of admission; without those in entry
    std::deque<std::uint32_t> swapped;
    std::deque<std::uint32_t> without_room;  ///< KV transfers that wait for blocks here
    std::uint64_t preemptions = 0;
    std::uint64_t lone_prompts = 0;  ///< beyond the token budget, that had to wait until nothing else ran

  private:
    /// Counts a decoding sequence among those of the batch that have its first blocks.
    void share_prefix(std::uint32_t index, Batch& batch) const;
    void empty_caches();
    void tell_watchers();
    [[nodiscard]] std::uint32_t place();
    void start_running(std::uint32_t index);
    /// Puts a sequence into the waiting queue, behind those that hold blocks.
    void wait_behind_holders(std::uint32_t index);
    void take(std::uint64_t blocks);
    void release(Sequence& sequence);
    [[nodiscard]] std::uint64_t copies_of(std::uint64_t blocks) const {
        return (blocks + limits_.copy_blocks - 1) / limits_.copy_blocks;
    }
    /// Of a sequence that is not swapped: what host memory has of it goes.
    void drop_copy(Sequence& sequence);
    [[nodiscard]] bool make_host_room(std::uint64_t blocks, std::uint32_t keep);
    void back_from_host(Sequence& sequence);
    /// Blocks that a sequence may find in the cache: all full ones but that of the last token.
    [[nodiscard]] std::uint64_t findable(const Sequence& sequence) const {
        return (sequence.needed() - 1) / limits_.block;
    }

    EngineLimits limits_;
    std::vector<Sequence> sequences_;
    std::vector<std::uint32_t> free_;
    std::uint64_t own_blocks_ = 0;
    std::uint64_t* used_blocks_ = &own_blocks_;  ///< by sequences; the cache's idle blocks count as free
    std::optional<TierCache> cache_;
    std::vector<CacheWatcher> watchers_;
    std::optional<AdapterSlots> adapters_;
    std::size_t aside_ = 0;
    std::size_t foreign_ = 0;
    std::uint64_t prompt_tokens_ = 0;  ///< of all prompts admitted
    std::array<std::uint64_t, 3> brought_tokens_{};
    std::uint64_t prefix_tokens_ = 0;     ///< of them found in the cache
    std::uint64_t used_host_blocks_ = 0;  ///< all of what is swapped, and copies of what is back
    std::uint64_t reused_blocks_ = 0;     ///< that were not copied out, as their copy was there
    std::vector<Return> returning_;
    std::uint64_t admissions_ = 0;
    std::uint64_t enqueued_ = 0;
    std::size_t in_flight_ = 0;
};

}  // namespace orrery::serving
