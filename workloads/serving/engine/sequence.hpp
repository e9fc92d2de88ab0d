#pragma once
// A request inside an engine replica, and the batches that it computes in.

#include "workloads/serving/requests/request.hpp"

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace orrery::serving {

/// leaving: its cache goes to another replica; arriving: it comes from there or from a lower tier.
enum class Stage : std::uint8_t { arriving, waiting, running, swapped, leaving, finished };

// What an iteration reads and writes of each of its sequences comes first and fills one line of a processor's cache.
struct alignas(64) Sequence {
    std::uint32_t prompt = 1;
    std::uint32_t output = 1;     ///< tokens to give here
    std::uint32_t then = 0;       ///< tokens that another replica gives after that
    std::uint32_t generated = 0;  ///< tokens given to the client
    std::uint32_t cached = 0;     ///< tokens whose keys and values are in the cache
    std::uint32_t blocks = 0;     ///< of the cache that it holds
    SimTime first_token;
    SimTime last_token;
    std::uint64_t admitted = 0;  ///< order in which sequences came to run
    std::uint32_t adapter = 0;   ///< that its request names; 0: none
    Stage stage = Stage::waiting;
    bool in_flight = false;  ///< part of a batch that is on some pipeline stage
    bool late = false;       ///< a token came later than the service allows
    bool abandoned = false;  ///< its client has gone

    std::uint64_t id = 0;  ///< of its request, in order of arrival
    SimTime arrival;
    std::uint32_t session = 0;
    std::uint32_t turn = 0;      ///< its request's, for what its conversation asks next; 0: nothing
    std::uint32_t group = 0;     ///< static batch that it belongs to
    std::uint8_t level = 0;      ///< queue of a multi-level scheduler
    std::uint8_t retries = 0;    ///< replicas that failed under it
    bool keeps_adapter = false;  ///< it keeps the slot of its adapter
    bool foreign = false;        ///< work of the other phase than its replica is there for
    bool newcomer = true;        ///< has come since the last batch was put together
    bool held = false;           ///< its first token reaches the client with the next, from the replica that decodes
    std::uint32_t copied = 0;    ///< of its first blocks, those of which host memory has a copy too
    bool claims = false;  ///< waits with what it found in the prefix cache, and gives it back when it has no room
    double service = 0;   ///< what a level or a fair share has counted
    double credit = 0;    ///< accepted draft tokens that are not whole yet (expected acceptance)
    PromptContent content;
    std::array<std::uint32_t, 3>
        brought{};                     ///< blocks of its prompt from host memory, NVMe, and a store or another replica
    std::vector<std::uint32_t> named;  ///< its first blocks in the prefix cache; kNone: a copy of its own

    /// Tokens that must be in the cache before the next token can be generated: the prompt, and after a recomputation what
    /// had been generated.
    [[nodiscard]] std::uint32_t needed() const { return prompt + generated; }
    /// A sequence decodes when all but its last token are cached; otherwise it (re)computes its prompt.
    [[nodiscard]] bool decoding() const { return generated > 0 && cached + 1 == needed(); }
    [[nodiscard]] std::uint32_t left_to_prefill() const { return needed() - cached; }
};

/// One sequence's part of an iteration: `tokens` new ones, after which `context` are in the cache.
struct BatchItem {
    std::uint32_t sequence;
    std::uint32_t tokens;
    std::uint32_t context;
};

/// Sequences of an iteration that decode behind the same first blocks of the prefix cache.
struct SharedPrefix {
    std::uint32_t first;   ///< block that they begin with
    std::uint32_t leader;  ///< the sequence that was scheduled first
    std::uint32_t blocks;  ///< that all of them have
    std::uint32_t sequences = 1;
};

struct Batch {
    std::vector<BatchItem> items;
    double swap_in = 0;            ///< B that come from host memory before the iteration
    double swap_out = 0;           ///< B that go there
    std::uint64_t copies_in = 0;   ///< runs of blocks that are copied at once,
    std::uint64_t copies_out = 0;  ///< each way
    std::uint32_t drafted = 0;     ///< tokens of a draft that are verified beside the one of each decoding sequence
    std::uint32_t padded = 0;      ///< sequences that have finished and still take a place (static batches)
    std::vector<std::pair<std::uint32_t, std::uint32_t>> adapters;  ///< that its sequences use, with the tokens of each
    std::vector<SharedPrefix> prefixes;                             ///< that are read once, where the engine does so
    [[nodiscard]] bool empty() const { return items.empty(); }
    void clear() {
        items.clear();
        swap_in = 0;
        swap_out = 0;
        copies_in = 0;
        copies_out = 0;
        drafted = 0;
        padded = 0;
        adapters.clear();
        prefixes.clear();
    }
    void use_adapter(std::uint32_t adapter, std::uint32_t tokens);
};

}  // namespace orrery::serving
