#pragma once
// What the tests of the packet engine share.

#include "sim/network/packet/network.hpp"
#include "tests/support/support.hpp"

namespace orrery::test {

/// Without acknowledgements, queues without limit: what closed forms are about.
inline PacketSpec ideal(PathKind paths = PathKind::ecmp) {
    PacketSpec spec;
    spec.path_kind = paths;
    spec.transport.kind = TransportKind::ideal;
    return spec;
}

/// Runs to the end; returns when each token's message completed, ps.
inline std::vector<std::int64_t> finish(packet::Network& network, std::size_t messages) {
    std::vector<std::int64_t> done(messages, -1);
    while (network.next_time() != packet::Wheel::kNever) {
        network.run(network.now() + 10'000'000'000'000);
        if (network.now() > 10'000'000'000'000'000 && network.completed().empty()) {
            throw InternalError("nothing completes in hours of simulated time");
        }
        for (const std::uint64_t token : network.completed()) {
            done[token] = network.now();
        }
    }
    network.require_finished();
    return done;
}

}  // namespace orrery::test
