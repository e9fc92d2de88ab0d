#pragma once
// In-band telemetry: what ports write into data packets as they leave, and what senders make of it when it comes back.
//
// Each port of a switch adds its time, the bytes that it has sent, those that wait and its rate: Li et al., "HPCC: high precision
// congestion control", SIGCOMM 2019, figure 7. Records lie beside the packets' own, so that runs without telemetry do not pay.

#include "sim/network/transport/transport.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace orrery::network::packet {

/// Links of a path that a packet can tell of, those of the last five levels of a fat tree and some more.
inline constexpr std::uint32_t kMostTold = 8;

class Telemetry {
  public:
    /// A packet has been made: it has met no port.
    void clear(std::uint32_t packet) {
        if (packet >= told_.size()) {
            told_.resize(std::size_t{packet} + 1);
        }
        told_[packet].count = 0;
    }
    /// A packet leaves a port. `sent`, `waiting`: bytes; `rate`: B/s.
    void stamp(std::uint32_t packet, std::uint32_t port, std::int64_t now, std::uint64_t sent, double waiting,
               double rate);
    /// An acknowledgement takes along what its data packet has met.
    void carry(std::uint32_t data, std::uint32_t acknowledgement);
    /// What the links of a flow's path did since the acknowledgement before; nothing for the first one, or if the path is
    /// another. Good until the next call.
    [[nodiscard]] std::span<const LinkLoad> since_last(std::uint32_t flow, std::uint32_t acknowledgement);
    /// A new flow takes this number.
    void forget(std::uint32_t flow) {
        if (flow >= last_.size()) {
            last_.resize(std::size_t{flow} + 1);
        }
        last_[flow].count = 0;
    }

    /// What a packet, or the last acknowledgement of a flow, tells of was so much later. `bytes(port)`: that it has sent meanwhile.
    template <class Bytes>
    void shift_packet(std::uint32_t packet, std::int64_t time, const Bytes& bytes) {
        shift(told_[packet], time, bytes);
    }
    template <class Bytes>
    void shift_flow(std::uint32_t flow, std::int64_t time, const Bytes& bytes) {
        shift(last_[flow], time, bytes);
    }

    std::uint32_t arriving = 0;  ///< packet that a NIC receives just now

    struct Hop {
        std::int64_t time = 0;  ///< ps
        std::uint64_t sent = 0;
        double waiting = 0;
        double rate = 0;
        std::uint32_t port = 0;
    };
    struct Path {
        std::uint32_t count = 0;
        std::array<Hop, kMostTold> hops;
    };
    /// What a packet tells, and a packet that tells it from now on.
    [[nodiscard]] const Path& told(std::uint32_t packet) const { return told_[packet]; }
    void tell(std::uint32_t packet, const Path& path) {
        clear(packet);
        told_[packet] = path;
    }

    [[nodiscard]] std::size_t memory() const { return (told_.capacity() + last_.capacity()) * sizeof(Path); }

  private:
    template <class Bytes>
    static void shift(Path& path, std::int64_t time, const Bytes& bytes) {
        for (std::uint32_t i = 0; i < path.count; ++i) {
            path.hops[i].time += time;
            path.hops[i].sent += bytes(path.hops[i].port);
        }
    }

    std::vector<Path> told_;  ///< by packet
    std::vector<Path> last_;  ///< by flow
    std::array<LinkLoad, kMostTold> loads_{};
};

}  // namespace orrery::network::packet
