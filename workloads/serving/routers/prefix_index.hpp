#pragma once
// What a router knows of the prefixes that replicas have cached.
//
// Claims: either the replica's cache itself, or what the router has sent it: the blocks of each prompt, from when it was sent, as many as
// the cache has blocks, the least recently sent going first. Such an index knows nothing of blocks that the engine dropped for its answers'
// sake, and counts prompts that are still waiting to be computed.
// Source: llm-d/llm-d-router@8998b3a, dataproducer/approximateprefix (indexer.go; autoTune: block size and capacity of the engine). There a
// look-up does not count as use.
// Validated by tests/workloads/routers_test.cpp.

#include "workloads/serving/routers/load.hpp"

#include <list>
#include <unordered_map>

namespace orrery::serving {

class PrefixIndex {
  public:
    explicit PrefixIndex(bool of_traffic) : of_traffic_(of_traffic) {}
    /// Tokens of a prompt that a replica has, as far as this knows.
    [[nodiscard]] std::uint32_t cached(const EngineStates& engines, std::uint32_t replica,
                                       const RoutedRequest& request) const;
    /// The same as a share of the prompt's full blocks.
    [[nodiscard]] double share(const EngineStates& engines, std::uint32_t replica, const RoutedRequest& request) const {
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
    bool of_traffic_;
    std::vector<Known> known_;  ///< by replica
};

}  // namespace orrery::serving
