#pragma once
// The `network` section of a scenario: how what is shared is simulated, and by which library collectives run.

#include "sim/config/fields.hpp"
#include "sim/run/simulation.hpp"

#include <string>
#include <vector>

namespace orrery::run {

/// Libraries of collectives: as measured, with an engine's own all-reduce, or links without any cost of a library.
enum class LibraryKind { nccl, vllm, sglang, trtllm, ideal };
[[nodiscard]] const std::vector<std::string>& library_names();

struct NetworkSpec {
    Fidelity fidelity = Fidelity::fluid;
    LibraryKind collectives = LibraryKind::nccl;
    double batch = 0;  ///< s, window in which completions are grouped
    bool fold = true;
    PacketSpec packets;        ///< its `paths` are the field of all levels
    std::int64_t threads = 1;  ///< that share the packets; no part of what is simulated

    /// Paths as levels without packets know them: spread evenly, or one hashed path per flow.
    [[nodiscard]] PathChoice path_choice() const;
    /// Names of the classes of traffic that workloads can choose.
    [[nodiscard]] std::vector<std::string> class_names() const;
    /// The number of one of them; that of none: the first.
    [[nodiscard]] std::uint8_t class_number(const std::string& name) const;
    [[nodiscard]] bool by_packet() const { return fidelity == Fidelity::packet; }
};

/// Which fields of the section mean something to a kind of scenario; the others are unknown keys there.
struct NetworkUse {
    bool library = false;      ///< collectives are priced as a library runs them
    bool folds = false;        ///< equal ranks can be simulated once
    bool threads = false;      ///< several can share its packets
    bool collectives = false;  ///< those of its library meet packets
    bool sends = false;        ///< sends between two GPUs do
    bool flows = false;        ///< its messages have numbers
    bool simgrid = false;      ///< it is messages alone, which SimGrid can simulate
};
void describe(Fields& fields, NetworkSpec& network, const NetworkUse& use);

/// What single fields cannot see, one line per error. Empty: fine.
[[nodiscard]] std::vector<std::string> problems_of(const NetworkSpec& network);

/// What a run is built from. `link_events`: what the section's file of events holds.
[[nodiscard]] RunSettings run_settings(const NetworkSpec& network, std::vector<TimedFault> link_events,
                                       std::uint64_t seed);

}  // namespace orrery::run
