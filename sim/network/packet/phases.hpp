#pragma once
// Beginnings of flow groups that were seen before: when they become steady, and at which rates.
//
// Claims: flows that begin at one instant on ports that nobody else uses do the same as flows that began so before on other ports
// of the same kinds, shared in the same way. So once one such group has been observed, the next is known to be steady as long after
// its beginning, at the same rates. The size of its messages does not matter until they end.
// Limits: random choices (sprayed paths, marks) are taken to come out alike.
// Source: memoised phases are the idea of arXiv:2602.10615; the key is our own.
// Validated by tests/sim/network/packet_steady_test.cpp.

#include "sim/network/packet/sharing.hpp"

#include <map>

namespace orrery::network::packet {

class Phases {
  public:
    struct Rate {
        double rate = 0;    ///< bytes per ps
        double spread = 0;  ///< as of Steady
        double trend = 0;
        double doubt = 0;
    };
    struct Known {
        std::int64_t after = 0;   ///< ps from the beginning
        double answers = 0;       ///< packets that receivers send for each of data
        std::vector<Rate> rates;  ///< by flow, in the order in which they were posted
    };
    /// What a flow's behaviour depends on: its ways, and the rate that it is given.
    struct Begun {
        const Sharing::Ways* ways = nullptr;
        double rate_limit = 0;
    };

    explicit Phases(const Ports& ports) : ports_(ports) {}

    /// Equal for groups that differ in the names of their ports alone; never 0.
    [[nodiscard]] std::uint64_t key_of(const std::vector<Begun>& flows, const Sharing& sharing) const;
    /// Null: never seen, or never steady.
    [[nodiscard]] const Known* find(std::uint64_t key) const {
        const auto found = known_.find(key);
        return found == known_.end() ? nullptr : &found->second;
    }
    /// Of two observations the one that became steady sooner is kept.
    void keep(std::uint64_t key, Known known);

  private:
    const Ports& ports_;
    std::map<std::uint64_t, Known> known_;
};

}  // namespace orrery::network::packet
