#pragma once
// Which class of traffic sends next: strict ones first, in their order, the others in turns in proportion to their weights.
//
// Claims: as long as the same classes have something to send, their shares of bytes are their weights, to within a turn; a class
// with nothing to send leaves its share to the others.
// Source: surplus round robin: Adiseshu, Parulkar, Varghese, "A reliable and scalable striping protocol", SIGCOMM 1996, section
// 3; what a packet takes beyond its turn is taken off the next one. Strict priorities beside shares are those of IEEE 802.1Qaz.
// Validated by tests/sim/network/packet_classes_test.cpp.

#include "sim/network/packet/spec.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace orrery::network::packet {

class Turns {
  public:
    /// For so many places that send, each by itself. `full`: bytes of the longest packet.
    Turns(const std::vector<ClassSpec>& classes, std::uint32_t full, std::size_t places) {
        double least = kNoLimit;
        for (const ClassSpec& one : classes) {
            least = one.strict ? least : std::min(least, one.weight);
        }
        for (std::uint32_t i = 0; i < classes.size(); ++i) {
            strict_ |= classes[i].strict ? 1U << i : 0U;
            // No turn is shorter than a packet.
            quanta_.push_back(classes[i].strict
                                  ? 0
                                  : static_cast<std::int64_t>(classes[i].weight / least * static_cast<double>(full)));
        }
        at_.resize(places, 0);
        left_.resize(places * classes.size(), 0);
    }
    /// A class of those that are `ready`, one bit each. Precondition: there is one.
    [[nodiscard]] std::uint32_t pick(std::size_t place, std::uint32_t ready) {
        if (const std::uint32_t first = ready & strict_; first != 0) {
            return static_cast<std::uint32_t>(std::countr_zero(first));
        }
        std::int64_t* const left = &left_[place * quanta_.size()];
        std::uint32_t at = at_[place];
        while ((ready >> at & 1U) == 0 || left[at] <= 0) {
            left[at] = (ready >> at & 1U) == 0 ? std::min<std::int64_t>(left[at], 0) : left[at];
            at = at + 1 < quanta_.size() ? at + 1 : 0;
            left[at] += (ready >> at & 1U) != 0 ? quanta_[at] : 0;
        }
        at_[place] = static_cast<std::uint8_t>(at);
        return at;
    }
    /// What it picked has sent so many bytes.
    void charge(std::size_t place, std::uint32_t of, std::uint32_t bytes) {
        left_[place * quanta_.size() + of] -= quanta_[of] > 0 ? bytes : 0;
    }

  private:
    std::uint32_t strict_ = 0;
    std::vector<std::int64_t> quanta_;  ///< bytes of a turn; 0: strict
    std::vector<std::uint8_t> at_;      ///< whose turn it is
    std::vector<std::int64_t> left_;    ///< bytes of its turn
};

}  // namespace orrery::network::packet
