#pragma once
// Spraying over hashed entropies, without a look at the network.

#include "sim/network/path/path.hpp"

namespace orrery::network::packet {

class Oblivious : public PathChooser {
  public:
    struct Parameters {
        std::int64_t entropies = 0;  ///< distinct header values of a flow; 0: a fresh one for each packet
        void describe(Fields& fields) {
            fields.integer({"entropies", "header values a flow sprays over; 0: a fresh one each packet", false, 0, 1e9},
                           entropies);
        }
    };
    explicit Oblivious(const Parameters& own) : entropies_(static_cast<std::uint32_t>(own.entropies)) {}

    [[nodiscard]] std::uint32_t pick(std::uint32_t, FlowPath& path, std::int64_t) override {
        const std::uint32_t value = entropies_ > 0 ? path.sprayed++ % entropies_ : path.sprayed++;
        return static_cast<std::uint32_t>(mix64(path.hash + value) >> 32);
    }

  private:
    std::uint32_t entropies_;
};

}  // namespace orrery::network::packet
