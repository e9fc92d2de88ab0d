#pragma once
// What a sender remembers of when its packets left, where they may overtake each other: a few times for all packets in place of
// one for each.

#include "sim/base/namespaces.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace orrery::network::packet {

class SendMarks {
  public:
    /// Now all packets below `end` that are not acknowledged are under way, none sent later.
    void add(std::int64_t now, std::uint32_t end, std::int64_t apart) {
        if (count_ < kMost && now >= next_) {
            marks_[(first_ + count_) % kMost] = {now, end};
            ++count_;
            next_ = now + apart;
        }
    }
    /// A packet is sent again: no mark holds any longer.
    void clear() { count_ = 0; }
    /// A packet was sent again that had not been lost: from now on they may be twice as late.
    void allow_more() { doublings_ = std::min(doublings_ + 1, kMostDoublings); }
    [[nodiscard]] std::int64_t allowed(std::int64_t round_trip) const { return round_trip << doublings_; }
    /// Packets below this left at `sent` or before.
    [[nodiscard]] std::uint32_t overtaken(std::int64_t sent) {
        while (count_ > 0 && marks_[first_].time <= sent) {
            end_ = marks_[first_].end;
            first_ = (first_ + 1) % kMost;
            --count_;
        }
        return std::exchange(end_, 0);
    }

    /// The flow goes on so much later, with later packets.
    void shift(std::int64_t time, std::uint32_t packets) {
        for (Mark& mark : marks_) {
            mark.time += time;
            mark.end += packets;
        }
        end_ += end_ > 0 ? packets : 0;
        next_ += time;
    }

  private:
    static constexpr std::uint32_t kMost = 8;
    static constexpr int kMostDoublings = 3;  // then timeouts are as soon
    struct Mark {
        std::int64_t time = 0;  ///< ps
        std::uint32_t end = 0;
    };
    std::array<Mark, kMost> marks_{};
    std::uint32_t first_ = 0;
    std::uint32_t count_ = 0;
    std::uint32_t end_ = 0;
    int doublings_ = 0;
    std::int64_t next_ = 0;  ///< ps, no mark before
};

}  // namespace orrery::network::packet
