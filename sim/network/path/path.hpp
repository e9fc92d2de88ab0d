#pragma once
// Path choices: over which of the parallel paths a packet goes. One file and one row of the table each; a choice owns its
// parameters.
//
// A packet carries an entropy of 32 bits, which switches scale to the number of ports where there is a choice. A path choice
// gives it to the packet at its sender, or lets leaves pick the port when the packet comes, or plans the paths of messages that
// start together. One object serves a run.
// Validated by tests/sim/network/packet_paths_test.cpp.

#include "sim/base/random.hpp"
#include "sim/base/time.hpp"
#include "sim/config/policy.hpp"

#include <cstdint>
#include <vector>

namespace orrery::network::packet {

/// The parallel paths of a fabric: one per spine, and per core switch of each.
struct PathSet {
    std::uint32_t leaves = 1;
    std::uint32_t spines = 1;  ///< of a leaf
    std::uint32_t cores = 1;   ///< of a spine; 1 without them
    bool spread = false;       ///< hashed entropies lie anywhere in their path's range, and not in its middle

    /// Scales back to the spine, and what that leaves to the core switch.
    [[nodiscard]] std::uint32_t entropy(std::uint32_t lane, std::uint32_t core, double within = 0.5) const {
        const double point = (lane + (core + within) / cores) / spines;
        return static_cast<std::uint32_t>(point * 4294967296.0);
    }
    /// The path that a hash names.
    [[nodiscard]] std::uint32_t hashed(std::uint64_t hash) const {
        const double within = spread ? static_cast<double>(mix64(hash) >> 40) / 16777216.0 : 0.5;
        return entropy(static_cast<std::uint32_t>(hash % spines), static_cast<std::uint32_t>((hash >> 32) % cores),
                       within);
    }
    [[nodiscard]] std::uint32_t lane(std::uint32_t entropy) const {
        return static_cast<std::uint32_t>((static_cast<std::uint64_t>(entropy) * spines) >> 32);
    }
};

/// Of the paths of a flow with a window for each (PathNeeds::windows): an entropy holds the number of its path in low bits, which
/// choose no port; the lowest is left to topologies that detour.
inline constexpr std::uint32_t kMostPaths = 4;
[[nodiscard]] inline std::uint32_t with_number(std::uint32_t entropy, std::uint32_t path) {
    return (entropy & ~((kMostPaths - 1) << 1U)) | (path % kMostPaths) << 1U;
}
[[nodiscard]] inline std::uint32_t numbered_path(std::uint32_t entropy) {
    return (entropy >> 1U) % kMostPaths;
}

/// What one flow's paths come from.
struct FlowPath {
    std::uint64_t hash = 0;
    std::uint32_t entropy = 0;   ///< of its own path
    std::uint32_t sprayed = 0;   ///< counts packets, to walk through the entropies
    std::int64_t last_sent = 0;  ///< ps
};

struct Port;
struct ServedPort;

/// What a leaf knows of its ports to the spines.
struct LeafPorts {
    const Port* up = nullptr;
    const ServedPort* queues = nullptr;  ///< none: departures are known on arrival
    std::uint32_t packet = 0;            ///< bytes of a full one
    std::int64_t now = 0;                ///< ps

    /// ps, when this port will be free; never, when routing knows that its link is dead. sim/network/packet/port.cpp has it.
    [[nodiscard]] std::int64_t free_at(std::uint32_t lane) const;
};

/// A message between two leaves.
struct PlannedMessage {
    std::uint32_t from_leaf = 0;
    std::uint32_t to_leaf = 0;
    std::uint64_t packets = 0;
};

/// What became of a packet on the path of an entropy.
enum class PathNews : std::uint8_t {
    good,          ///< it met no congestion
    marked,        ///< it was marked
    trimmed,       ///< it was trimmed within the network
    trimmed_last,  ///< it was trimmed at the port to its receiver, which no other path avoids
    timed_out,     ///< nothing was heard of it; its entropy is not known
};

struct PathNeeds {
    bool hashed = false;         ///< levels without packets know it as one hashed path per flow
    bool one_path = false;       ///< packets of a flow stay in order
    bool per_message = false;    ///< each message has a hash of its own, and not each pair of GPUs
    bool weighted = false;       ///< leaves divide entropies by the rates of the links that they lead over
    bool leaves_choose = false;  ///< choose_lane is called
    bool even = false;     ///< switches of a graph spread packets evenly over their next links, whatever the entropy
    bool learns = false;   ///< heard is called
    bool each = false;     ///< heard is called for each packet: acknowledgements do not wait for more of them
    bool clocked = false;  ///< clock is, in place of heard, where a packet was acknowledged and not late
    std::uint32_t windows = 0;  ///< paths of a flow among which its transport chooses: pick hashes FlowPath::sprayed
    bool plans = false;         ///< plan is called before messages start, and left when a flow has ended
};

class PathChooser {
  public:
    virtual ~PathChooser() = default;
    [[nodiscard]] virtual PathNeeds needs() const { return {}; }
    /// Before the first flow.
    virtual void begin(const PathSet& paths) { paths_ = paths; }
    /// A new flow takes this number.
    virtual void start(std::uint32_t /*flow*/) {}
    /// The entropy of the flow's next packet.
    [[nodiscard]] virtual std::uint32_t pick(std::uint32_t /*flow*/, FlowPath& path, std::int64_t /*now*/) {
        return path.entropy;
    }
    /// The spine that a leaf sends a packet to.
    [[nodiscard]] virtual std::uint32_t choose_lane(std::uint32_t /*leaf*/, const LeafPorts&) { return 0; }
    /// An acknowledgement or a report of loss tells of a packet with this entropy.
    virtual void heard(std::uint32_t /*flow*/, std::uint32_t /*entropy*/, PathNews, std::int64_t /*now*/) {}
    /// The same, and it tells of so many packets, of none where others overtook it. The window has room for so many now.
    virtual void clock(std::uint32_t /*flow*/, std::uint32_t /*entropy*/, std::int64_t /*packets*/,
                       std::int64_t /*room*/) {}
    /// Entropies of the parts of each message, of which there are at most `subflows` times what the plan needs.
    [[nodiscard]] virtual std::vector<std::vector<std::uint32_t>> plan(const std::vector<PlannedMessage>&,
                                                                       std::uint32_t /*subflows*/) {
        return {};
    }
    /// A flow goes on so many ps later.
    virtual void shift(std::uint32_t /*flow*/, std::int64_t /*time*/) {}
    virtual void left(std::uint32_t /*from_leaf*/, std::uint32_t /*to_leaf*/, std::uint32_t /*entropy*/) {}

  protected:
    PathSet paths_;
};

/// All path choices, the default among them.
[[nodiscard]] const PolicyTable<PathChooser>& path_table();

}  // namespace orrery::network::packet
