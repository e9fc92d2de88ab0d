#pragma once
// A network in parts that run side by side: which part a switch and its NICs belong to, and packets on their way between parts.
//
// Claims: a part holds whole leaves (whole pods of a fat tree, whole switches elsewhere) with their NICs. A port that leads up
// belongs to the part of its leaf or pod, one that leads down to the part that it leads to: so spines and core switches, whose
// ports share nothing, are in every part. Then the one thing that goes from part to part is a packet that has left a port, and it
// arrives a link's latency later at the earliest. So parts may run so long without a look at each other, and as each handles its
// events in the order (time, entity), results do not depend on how many parts there are.
// Scope: messages between NICs, those that other messages have released among them (crew.hpp says what that costs), over trees and
// over switches that forward by themselves, with any transport and any paths that look no further than the switch they leave.
// Limits: what has an effect sooner than a link's latency on what is far away is not for parts: `problems_of_parts` names it; nor
// are links that change and sums inside switches. A link that leads from part to part needs a latency, and the shorter it is, the
// more often parts wait for each other: they pay where many packets arrive within it. Messages that end tell one thread. Parts are even,
// so threads end with the slowest processor.
// Source: Chandy and Misra, "Distributed simulation: a case study in design and verification of distributed programs", IEEE
// TSE 1979 (conservative lookahead); here in strides of the same length for all.
// Validated by tests/sim/network/packet_parts_test.cpp: the same results for 1, 2, 3 and 4 parts.

#include "sim/network/packet/packet.hpp"
#include "sim/network/packet/setup.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace orrery::network::packet {

/// Asks for a line of the cache that is written soon. What compilers make of __builtin_prefetch for writing asks for one to read, which
/// another core may keep.
inline void fetch_to_write(const void* at) {
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*static_cast<const char*>(at)));
#else
    __builtin_prefetch(at, 1);
#endif
}

struct Parts {
    std::uint32_t count = 1;
    std::vector<std::uint32_t> of_leaf;  ///< by the switches that NICs hang on; empty: all in one
    std::int64_t lookahead = kNoTimer;   ///< ps: what leaves a part arrives later than this
    /// Kinds of ports from which packets leave a part; the first is after the last: none.
    std::uint8_t first_kind = 255;
    std::uint8_t last_kind = 254;

    Parts() = default;
    /// Throws InfeasibleError when the fabric has fewer leaves or pods.
    Parts(const Setup& setup, std::uint32_t count);
};

/// The part whose port this is. Precondition: there are several.
[[nodiscard]] std::uint32_t part_of_port(const Setup& setup, const Parts& parts, std::uint32_t port);

/// Why a network cannot run in parts.
struct PartsProblem {
    std::string field;  ///< of the specification
    std::string reason;
    [[nodiscard]] std::string text() const { return "threads cannot share a network with " + field + ": " + reason; }
};
/// Empty: it can.
[[nodiscard]] std::vector<PartsProblem> problems_of_parts(const PacketSpec& spec);

/// What one part sends to the others.
class Border {
  public:
    Border(const Setup& setup, const Parts& parts, std::uint32_t own) : setup_(setup), parts_(parts), own_(own) {
        for (auto& boxes : boxes_) {
            boxes.resize(parts.count);
        }
    }
    Border(const Border&) = delete;
    Border& operator=(const Border&) = delete;
    [[nodiscard]] bool whole() const { return parts_.count == 1; }
    [[nodiscard]] std::uint32_t own() const { return own_; }
    [[nodiscard]] bool owns(std::uint32_t nic) const {
        return whole() || parts_.of_leaf[setup_.leaf_of_nic[nic]] == own_;
    }
    [[nodiscard]] const Parts& parts() const { return parts_; }
    /// The part that a packet is in once it has passed a link which may lead out. `end`: the switch at the link's end.
    [[nodiscard]] std::uint32_t part_behind(std::uint32_t end, const Packet& p) const {
        return parts_.of_leaf[setup_.routed != nullptr ? end : setup_.leaf_of_nic[p.destination]];
    }

    /// Packets on links to another part, side by side so that few lines of the cache go from thread to thread.
    struct Box {
        HugeVector<Packet> packets;         ///< each with the port whose link it is on as `ingress`
        HugeVector<std::int64_t> arrivals;  ///< ps
        std::vector<Telemetry::Path> told;  ///< of each, with telemetry

        void put(const Packet& packet, std::uint32_t port, std::int64_t arrival) {
            packets.push_back(packet);
            packets.back().ingress = port;
            arrivals.push_back(arrival);
            ask(kAheadInBox);
        }
        /// A box that has been read is with the thread that read it: stores would wait for each of its lines.
        void ask_first() const {
            for (std::size_t i = 0; i < kAheadInBox; ++i) {
                ask(i);
            }
        }
        void clear() {
            packets.clear();
            arrivals.clear();
            told.clear();
        }

      private:
        void ask(std::size_t ahead) const {
            if (packets.size() + ahead < std::min(packets.capacity(), arrivals.capacity())) {
                fetch_to_write(packets.data() + packets.size() + ahead);
                fetch_to_write(arrivals.data() + arrivals.size() + ahead);
            }
        }
        static constexpr std::size_t kAheadInBox = 8;
    };
    /// How many strides of the simulation a part may be ahead of another. Each stride has boxes of its own, and those that the slowest
    /// part may still have to empty are not filled.
    static constexpr std::uint32_t kAhead = 4;
    /// The box of the present stride.
    [[nodiscard]] Box& box(std::uint32_t to) { return (*filling_)[to]; }
    [[nodiscard]] Box& box(std::uint32_t to, std::uint32_t stride) { return boxes_[stride % boxes_.size()][to]; }
    void fill(std::uint32_t stride) {
        filling_ = &boxes_[stride % boxes_.size()];
        for (const Box& box : *filling_) {
            box.ask_first();
        }
    }
    void note(std::int64_t arrival) {
        if (arrival >= noted_from_) {
            earliest_ = std::min(earliest_, arrival);
        }
    }
    /// From now on what arrives from `from` on, ps, is noted.
    void note_from(std::int64_t from) {
        noted_from_ = from;
        earliest_ = kNoTimer;
    }
    /// ps, the first arrival that was noted.
    [[nodiscard]] std::int64_t earliest() const { return earliest_; }

  private:
    const Setup& setup_;
    const Parts& parts_;
    std::uint32_t own_;
    std::int64_t noted_from_ = 0;
    std::int64_t earliest_ = kNoTimer;
    std::array<std::vector<Box>, std::size_t{2} * kAhead> boxes_;
    std::vector<Box>* filling_ = boxes_.data();
};

}  // namespace orrery::network::packet
