#pragma once
// A packet under way, and the slab of all of them. Indices are 32 bits wide.

#include "sim/base/error.hpp"
#include "sim/base/huge_pages.hpp"
#include "sim/network/packet/telemetry.hpp"

#include <cstdint>
#include <vector>

namespace orrery::network::packet {

inline constexpr std::uint32_t kNone = 0xFFFFFFFFU;

enum class PacketKind : std::uint8_t { data, trimmed, ack, nack, notification, credit, request };

/// Bits of Packet::flags.
inline constexpr std::uint8_t kMarked = 1;      ///< congestion experienced
inline constexpr std::uint8_t kReduces = 2;     ///< of an all-reduce in the switches: a contribution, or a sum
inline constexpr std::uint8_t kDestroyed = 4;   ///< was on a link that went down
inline constexpr std::uint8_t kAsks = 8;        ///< the sender waits: acknowledge at once
inline constexpr std::uint8_t kDetour = 16;     ///< one way round a dead link; two bits count them
inline constexpr std::uint8_t kDetours = 48;    ///< both bits: no more are taken
inline constexpr std::uint8_t kRepeated = 128;  ///< acknowledgement: of a packet that had come before
inline constexpr std::uint8_t kEarly = 128;     ///< report of loss: of a packet that was to come after those before it
inline constexpr std::uint8_t kLastHop = 64;    ///< trimmed at the port to its receiver

inline constexpr std::uint8_t kNoRoom = 128;  ///< report of loss: the buffer of the receiver's NIC was full
inline constexpr std::uint32_t kFull = 31;    ///< of Packet::filled: all of the buffer is

/// A packet under way, or queued.
struct alignas(64) Packet {
    std::int64_t sent;  ///< ps, when its data packet left the sender; acknowledgements echo it
    std::uint64_t
        selected;  ///< acknowledgement: bit i: packet `sequence` + i has arrived; credit, and where data and requests
                   ///< ask for it: bytes in all
    std::uint32_t next;  ///< in the free list
    std::uint32_t flow;
    std::uint32_t sequence;     ///< number of the data packet
    std::uint32_t cumulative;   ///< acknowledgement: all packets before this one have arrived
    std::uint32_t size;         ///< bytes on the wire
    std::uint32_t destination;  ///< NIC
    std::uint32_t path;         ///< entropy: scaled to the number of ports where a choice is
    std::uint32_t ingress;      ///< port whose link brought it into the present switch
    PacketKind kind;
    std::uint8_t flags;
    std::uint8_t lane;         ///< in which it leaves, where ports have lanes
    std::uint8_t came;         ///< lane in which it came into the present switch
    std::uint32_t held : 27;   ///< acknowledgement, where NICs write at a rate: ns that its packet waited for that
    std::uint32_t filled : 5;  ///< and how full its receiver's buffer is, of kFull
    std::uint64_t way;         ///< ports that it has passed, where the run has a FlowLog
};
static_assert(sizeof(Packet) == 64);

/// All packets of a run. A reference is good until the next `take`.
class Slab {
  public:
    [[nodiscard]] Packet& operator[](std::uint32_t id) { return packets_[id]; }
    [[nodiscard]] const Packet& operator[](std::uint32_t id) const { return packets_[id]; }

    /// So many packets are likely to be under way. What is not used of their memory stays with the system.
    void expect(std::size_t packets) { packets_.reserve(packets); }
    void fetch(std::uint32_t id) const { __builtin_prefetch(&packets_[id]); }
    [[nodiscard]] std::uint32_t take() {
        ++in_use_;
        if (free_ != kNone) {
            const std::uint32_t id = free_;
            free_ = packets_[id].next;
            return id;
        }
        if (packets_.size() >= kMost) {
            throw InfeasibleError("more than 100 million packets under way: a transport with a window needs less");
        }
        packets_.emplace_back();
        return static_cast<std::uint32_t>(packets_.size() - 1);
    }
    void give(std::uint32_t id) {
        --in_use_;
        packets_[id].next = free_;
        free_ = id;
    }
    [[nodiscard]] std::size_t in_use() const { return in_use_; }
    [[nodiscard]] std::size_t peak() const { return packets_.size(); }

    Telemetry telemetry;  ///< what packets carry of it, where the transport wants it

  private:
    static constexpr std::size_t kMost = 100'000'000;  // 6 GiB
    HugeVector<Packet> packets_;
    std::uint32_t free_ = kNone;
    std::size_t in_use_ = 0;
};

}  // namespace orrery::network::packet
