#pragma once
// Spraying over numbered entropies, with penalties for those that were congested.

#include "sim/network/path/path.hpp"

#include <algorithm>
#include <bit>

namespace orrery::network::packet {

/// All entropies in turn, but not those with a penalty: it rises by 1 for a mark and by 4 for a packet that was trimmed within
/// the network, to 15 at most, and falls by 1 when a packet passes over it, for the first of several in a row alone. Rule and
/// settings are those of the Ultra Ethernet Consortium's public simulator (uec_mp.cpp, "bitmap"), but that a timeout, which
/// does not tell its entropy, gives no penalty.
class Bitmap : public PathChooser {
  public:
    struct Parameters {
        std::int64_t paths = 64;
        void describe(Fields& fields) {
            fields.integer(
                {"bitmap_paths", "bitmap and mixed: entropies of a flow, each with its penalty", false, 1, 65536},
                paths);
        }
    };
    explicit Bitmap(const Parameters& own)
        : count_(static_cast<std::uint32_t>(own.paths)), number_(std::bit_ceil(count_) - 1) {}

    [[nodiscard]] PathNeeds needs() const override { return {.learns = true}; }
    void start(std::uint32_t flow) override {
        if (flow >= flows_.size()) {
            flows_.resize(std::size_t{flow} + 1);
        }
        flows_[flow].penalties.assign(count_, 0);
        flows_[flow].index = 0;
        flows_[flow].pass = 0;
    }
    [[nodiscard]] std::uint32_t pick(std::uint32_t flow, FlowPath& path, std::int64_t) override {
        State& state = flows_[flow];
        std::uint32_t at = next(state, path);
        if (state.penalties[at] > 0) {
            --state.penalties[at];  // for the first alone
            std::uint32_t passed = 0;
            do {
                at = next(state, path);
            } while (state.penalties[at] > 0 && ++passed < count_);
        }
        // The number takes the place of low bits, which choose no port; the lowest is left to topologies that detour.
        const auto hashed = static_cast<std::uint32_t>(mix64(path.hash + at) >> 32);
        return (hashed & ~(number_ << 1U)) | (at << 1U);
    }
    void heard(std::uint32_t flow, std::uint32_t entropy, PathNews news, std::int64_t) override {
        std::uint8_t& penalty = flows_[flow].penalties[std::min((entropy >> 1U) & number_, count_ - 1)];
        const int more = news == PathNews::marked ? 1 : news == PathNews::trimmed ? 4 : 0;
        penalty = static_cast<std::uint8_t>(std::min(penalty + more, kMost));
    }

  private:
    static constexpr int kMost = 15;
    struct State {
        std::vector<std::uint8_t> penalties;  ///< by number
        std::uint32_t index = 0;
        std::uint32_t pass = 0;  ///< through all numbers, each from another one on
    };
    [[nodiscard]] std::uint32_t next(State& state, const FlowPath& path) const {
        const auto from = static_cast<std::uint32_t>(mix64(~path.hash + state.pass) % count_);
        const std::uint32_t at = (from + state.index) % count_;
        if (++state.index == count_) {
            state.index = 0;
            ++state.pass;
        }
        return at;
    }

    std::uint32_t count_;
    std::uint32_t number_;  ///< bits that hold an entropy's number
    std::vector<State> flows_;
};

}  // namespace orrery::network::packet
