#pragma once
// Which ports the packets of a flow may use, and which flows therefore share some: what happens to one flow reaches another over
// ports alone.
//
// Claims: a flow's ways hold every port that its packets and their answers use. Where a flow keeps to one path they are that
// path's; where packets choose, all parallel ports of a switch (of a pod, of a fabric that is no tree) count as one, a bundle,
// which is named by its first port.
// Limits: routing that knows of dead links takes ways that are not here; who skips does not simulate such links.
// Validated by tests/sim/network/packet_steady_test.cpp.

#include "sim/network/packet/routing.hpp"

#include <vector>

namespace orrery::network::packet {

class Sharing {
  public:
    Sharing(const Setup& setup, Ports& ports, Routing& routing);

    /// Bundles that a flow's data use, and those that what comes back does.
    struct Ways {
        std::vector<std::uint32_t> there;
        std::vector<std::uint32_t> back;
    };
    [[nodiscard]] Ways ways_of(const Flow& flow);
    /// Ports of a bundle: those from its number on.
    [[nodiscard]] std::uint32_t width(std::uint32_t bundle) const { return width_[bundle]; }

    /// Starts anew: no two bundles belong together.
    void part();
    /// All bundles of these ways belong together.
    void join(const Ways& ways);
    /// The bundle that stands for all that belong together with this one.
    [[nodiscard]] std::uint32_t group_of(std::uint32_t bundle);

  private:
    void bundle(std::uint32_t first, std::uint32_t width) { width_[first] = width; }
    [[nodiscard]] std::vector<std::uint32_t> way(std::uint32_t from, std::uint32_t to, std::uint32_t entropy);
    [[nodiscard]] std::vector<std::uint32_t> bundles(std::uint32_t from, std::uint32_t to) const;

    const Setup& setup_;
    Ports& ports_;
    Routing& routing_;
    bool one_path_;
    std::vector<std::uint32_t> width_;   ///< by port
    std::vector<std::uint32_t> parent_;  ///< by port: towards the one that stands for its group
    std::vector<std::uint32_t> joined_;  ///< bundles that belong together with others since `part`
};

}  // namespace orrery::network::packet
