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
// more often all parts wait for the slowest one: parts pay where many packets arrive within it. Messages that end tell one thread.
// Source: Chandy and Misra, "Distributed simulation: a case study in design and verification of distributed programs", IEEE
// TSE 1979 (conservative lookahead); here with one step for all.
// Validated by tests/sim/network/packet_parts_test.cpp: the same results for 1, 2, 3 and 4 parts.

#include "sim/network/packet/packet.hpp"
#include "sim/network/packet/setup.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace orrery::inline network::packet {

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

/// A packet on a link to another part.
struct Crossing {
    std::int64_t arrival = 0;  ///< ps
    std::uint32_t port = 0;    ///< whose link it is on
    Packet packet;
};

/// What one part sends to the others.
class Border {
  public:
    Border(const Setup& setup, const Parts& parts, std::uint32_t own) : setup_(setup), parts_(parts), own_(own) {
        for (auto& boxes : boxes_) {
            boxes.resize(parts.count);
        }
    }
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

    struct Box {
        HugeVector<Crossing> packets;
        std::vector<Telemetry::Path> told;  ///< of each, with telemetry
    };
    /// Two sets of boxes take turns, so that one is read while the other is filled.
    [[nodiscard]] Box& box(std::uint32_t to) { return boxes_[filling_][to]; }
    [[nodiscard]] Box& box(std::uint32_t to, std::uint32_t turn) { return boxes_[turn][to]; }
    void fill(std::uint32_t turn) {
        filling_ = turn;
        earliest_ = kNoTimer;
    }
    void note(std::int64_t arrival) { earliest_ = std::min(earliest_, arrival); }
    /// ps, the first arrival of what is in the boxes that are being filled.
    [[nodiscard]] std::int64_t earliest() const { return earliest_; }

  private:
    const Setup& setup_;
    const Parts& parts_;
    std::uint32_t own_;
    std::uint32_t filling_ = 1;
    std::int64_t earliest_ = kNoTimer;
    std::array<std::vector<Box>, 2> boxes_;
};

}  // namespace orrery::inline network::packet
