#include "workloads/serving/shared_cache_spec.hpp"

namespace orrery::serving {

void describe(Fields& fields, SharedCacheSpec& spec) {
    fields.quantity(
        {"capacity", "room of a store that all replicas write to and read from; 0 B: there is none", false, 0, 1e18},
        Dimension::bytes, spec.capacity);
    fields.when(spec.capacity > 0, "a store (capacity)", [&](Fields& store) {
        store.quantity(
            {"bandwidth", "bandwidth of the store in each direction, for all replicas together; 0 B/s: takes no time",
             false, 0, 1e15},
            Dimension::rate, spec.bandwidth);
        store.integer({"node",
                       "cluster node (from 0) that holds the store, so that blocks cross the fabric to other nodes; "
                       "-1: on a link of its own",
                       false, -1, 1 << 20},
                      spec.node);
        store.enumeration(
            {"write", "time at which blocks are written: when computed, or when their replica evicts them"},
            {"through", "back"}, spec.write);
        store.enumeration({"eviction", "block that leaves the store when it is full"}, {"lru", "lfu"}, spec.eviction);
    });
    fields.boolean({"peers", "fetch KV blocks from other replicas over the fabric"}, spec.peers);
    fields.quantity({"latency", "time before the first byte of a transfer: look-up, connection", false, 0, 1e3},
                    Dimension::time, spec.latency);
    fields.enumeration({"pull",
                        "blocks that a replica brings and does not compute: all that are elsewhere, those that come "
                        "sooner than they are computed, or none"},
                       {"always", "faster", "never"}, spec.pull);
}

std::vector<std::string> problems_of(const SharedCacheSpec& spec, std::int64_t replicas) {
    std::vector<std::string> problems;
    if (!spec.given) {
        return problems;
    }
    if (spec.capacity <= 0 && !spec.peers) {
        problems.emplace_back("'kv.prefix.shared' shares nothing: give it a store ('capacity') or 'peers: true'");
    }
    if (spec.peers && replicas < 2) {
        problems.emplace_back("'kv.prefix.shared.peers' are other replicas, and there is one");
    }
    if (spec.peers && spec.capacity <= 0 && spec.pull == PullRule::never) {
        problems.emplace_back("'kv.prefix.shared.peers' has no effect with 'pull: never'");
    }
    return problems;
}

}  // namespace orrery::serving
