#pragma once
// Lanes of ports: where a network has several classes of traffic, or links with credits, each port holds a queue for each class, or
// two of them where packets change lanes on their way round a ring.
//
// Claims: a lane is paused, marked, dropped and given room by the settings of its class alone. With credits a packet leaves when
// the far end of its link has room for it in its lane, so nothing is ever dropped; room is given back, one flow-control packet of a
// header's length later, when the packet begins to leave the switch, or has reached its NIC. Room is counted in blocks of 64
// bytes. Acknowledgements and their like have a queue of their own beside all lanes, without pauses and without credits.
// With a dateline packets begin each ring of a torus in the first lane of their class and go on in its second one after the link
// between its last place and its first: Dally and Seitz, "Deadlock-free message routing in multiprocessor interconnection
// networks", IEEE Trans. Computers C-36(5), 1987. So no circle of lanes that wait for each other can close.
// Limits: InfiniBand's updates are per lane and at set intervals, here one a packet that leaves. Its credits are absolute, so none
// is ever lost; here links lose nothing. A switch's room is that of its links alone.
// Sources: InfiniBand Architecture Specification, volume 1, 7.9 (credits of 64 bytes by lane); IEEE 802.1Q, 8.6.8 (selection).
// Validated by tests/sim/network/packet_classes_test.cpp and packet_credits_test.cpp.

#include "sim/network/packet/ring.hpp"

#include <cstdint>

namespace orrery::network::packet {

/// A unit of room at the far end of a link, bytes.
inline constexpr std::int64_t kCreditBlock = 64;

/// One queue of a port, and what is known of the same lane at the far end of its link.
struct Lane {
    Ring data;
    Ring returning;          ///< room that is on its way back: its time and bytes
    std::int64_t bytes = 0;  ///< waiting
    std::int64_t ingress_bytes =
        0;                          ///< waiting in the switch at the end of this link, having come over it in this lane
    std::int64_t room = 0;          ///< bytes that may still be sent, with credits
    std::int64_t paused_since = 0;  ///< ps, of the present pause
    bool paused = false;            ///< data may not leave
    bool pause_sent = false;        ///< by the switch at the end of this link
    bool discards = false;          ///< data, as it has been paused for too long
    bool armed = false;             ///< a return of room is pending

    [[nodiscard]] static std::int64_t blocks(std::uint32_t size) {
        return (size + kCreditBlock - 1) / kCreditBlock * kCreditBlock;
    }
};

}  // namespace orrery::network::packet
