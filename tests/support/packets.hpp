#pragma once
// What the tests of the packet engine share.

#include "sim/network/packet/network.hpp"
#include "tests/support/fabrics.hpp"

namespace orrery::test {

/// Reads a section from text. Throws ConfigError with all that is wrong.
inline void read(const std::string& text, const std::function<void(Fields&)>& describe) {
    std::vector<Diagnostic> errors;
    read_fields(parse_yaml(text, "section"), DataDirectory(ORRERY_SOURCE_DIR), errors, describe);
    if (!errors.empty()) {
        throw ConfigError(errors);
    }
}

/// A transport as a scenario says it: "{kind: roce, dcqcn: false}".
inline TransportSpec transport(const std::string& text) {
    TransportSpec spec;
    read(text, [&](Fields& fields) { describe(fields, spec); });
    return spec;
}

/// Paths as a scenario says it: "{kind: oblivious, entropies: 64}".
inline PathSpec paths(const std::string& text) {
    PathSpec spec;
    read(text, [&](Fields& fields) {
        spec.policy.describe_choice(fields, {"kind", ""});
        describe(fields, spec);
    });
    return spec;
}

/// Without acknowledgements, queues without limit: what closed forms are about.
inline PacketSpec ideal(const std::string& paths = "ecmp") {
    PacketSpec spec;
    spec.paths.policy.choose(paths);
    spec.transport.policy.choose("ideal");
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
