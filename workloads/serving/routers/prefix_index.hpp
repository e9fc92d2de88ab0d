#pragma once
// What a router knows of the prefixes that replicas have cached.
//
// Claims: either the replica's cache, or what the router has sent it: the blocks of each prompt, from when it was sent, as many as
// the cache has blocks, the least recently sent going first. Such an index knows nothing of blocks that the engine dropped for its answers'
// sake, and counts prompts that are still waiting to be computed.
// An index of caches learns that a block was stored or evicted `delay` after it happened (engines publish events in batches, brokers and
// indexers queue them); without a delay it is the cache itself. A replica that lost its cache is known to be empty after the delay, too.
// Source: llm-d/llm-d-router@8998b3a, dataproducer/approximateprefix (indexer.go; autoTune: block size and capacity of the engine). There a
// look-up does not count as use. Events: README.md of llm-d/llm-d-kv-cache-manager (an index of KVEvents that vLLM
// streams); Dynamo's documentation, "KV Events for Custom Engines" (BlockStored, BlockRemoved, AllBlocksCleared).
// Validated by tests/workloads/routers_test.cpp and prefix_index_test.cpp.

#include "sim/config/fields.hpp"
#include "workloads/serving/routers/load.hpp"

#include <deque>
#include <functional>
#include <list>
#include <unordered_map>
#include <unordered_set>

namespace orrery::serving {

/// What a scenario says of an index.
struct PrefixIndexSpec {
    bool of_traffic = false;  ///< goes by what was sent, not by caches
    double delay_s = 0;       ///< of events of caches
};
void describe_index_delay(Fields& fields, PrefixIndexSpec& spec);
/// The same for routers that may go by what they have sent instead.
void describe_index(Fields& fields, PrefixIndexSpec& spec);

class PrefixIndex {
  public:
    explicit PrefixIndex(const PrefixIndexSpec& spec)
        : of_traffic_(spec.of_traffic), delay_(SimTime::from_seconds(spec.delay_s)) {}
    /// Before the run, of each replica; needed where events have a delay.
    void watch(std::uint32_t replica, EngineState& engine, const std::function<SimTime()>& now);
    /// Tokens of a prompt that a replica has, as far as this knows.
    [[nodiscard]] std::uint32_t cached(const EngineStates& engines, std::uint32_t replica,
                                       const RoutedRequest& request);
    /// The same as a share of the prompt's full blocks.
    [[nodiscard]] double share(const EngineStates& engines, std::uint32_t replica, const RoutedRequest& request) {
        const std::uint32_t block = engines[replica]->limits().block;
        const std::uint32_t full = request.prompt / block * block;
        return full > 0 ? static_cast<double>(cached(engines, replica, request)) / full : 0;
    }
    /// A request goes there.
    void sent(const EngineStates& engines, std::uint32_t replica, const RoutedRequest& request);

  private:
    struct Known {
        std::list<std::uint64_t> order;  ///< keys, the one sent last in front
        std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> at;
    };
    struct Event {
        SimTime known;  ///< when it is
        CacheChange change;
        std::uint64_t key;
    };
    struct Reported {
        std::deque<Event> events;  ///< that are not known yet
        std::unordered_set<std::uint64_t> keys;
    };
    [[nodiscard]] const std::unordered_set<std::uint64_t>& reported(std::uint32_t replica, SimTime now);

    bool of_traffic_;
    SimTime delay_;
    std::vector<Known> known_;        ///< by replica, of what was sent,
    std::vector<Reported> reported_;  ///< and of what events said
};

}  // namespace orrery::serving
