#pragma once
// Which path each packet of a flow took, and how many are under way on each, where a transport has a window for each path.

#include "sim/network/path/path.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace orrery::network::packet {

class UnderWay {
  public:
    /// A new flow takes this number. `capacity`: packets, a power of two, that can be under way.
    void start(std::uint32_t flow, std::uint32_t paths, std::uint32_t capacity) {
        if (flow >= flows_.size()) {
            flows_.resize(std::size_t{flow} + 1);
        }
        flows_[flow].path.assign(capacity, 0);
        flows_[flow].packets.fill(0);
        paths_ = paths;
    }
    void take(std::uint32_t flow, std::uint32_t sequence, std::uint32_t path) {
        Own& own = flows_[flow];
        own.path[sequence % own.path.size()] = static_cast<std::uint8_t>(path);
        ++own.packets[path];
    }
    /// Precondition: the packet is under way.
    void leave(std::uint32_t flow, std::uint32_t sequence) {
        Own& own = flows_[flow];
        --own.packets[own.path[sequence % own.path.size()]];
    }
    /// Packets, by path.
    [[nodiscard]] std::span<const std::uint32_t> of(std::uint32_t flow) const {
        return {flows_[flow].packets.data(), paths_};
    }
    /// The flow goes on with packets that are so many later.
    void shift(std::uint32_t flow, std::uint32_t packets) {
        std::vector<std::uint8_t>& path = flows_[flow].path;
        std::vector<std::uint8_t> turned(path.size());
        for (std::size_t i = 0; i < path.size(); ++i) {
            turned[(i + packets) % path.size()] = path[i];
        }
        path.swap(turned);
    }

  private:
    struct Own {
        std::vector<std::uint8_t> path;  ///< by packet, those of its bitmaps
        std::array<std::uint32_t, kMostPaths> packets{};
    };
    std::vector<Own> flows_;
    std::uint32_t paths_ = 0;  ///< of each flow
};

}  // namespace orrery::network::packet
