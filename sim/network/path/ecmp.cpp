#include "sim/network/path/path.hpp"

namespace orrery::inline network::packet {

namespace {

/// One path per flow, by a hash of its ends.
class Ecmp final : public PathChooser {
  public:
    using Parameters = NoParameters;
    explicit Ecmp(const Parameters&) {}

    [[nodiscard]] PathNeeds needs() const override {
        PathNeeds out;
        out.hashed = out.one_path = true;
        return out;
    }
};

}  // namespace

extern const PolicyRow<PathChooser> kEcmp = policy_row<PathChooser, Ecmp>("ecmp", "a hash picks one path per flow");

}  // namespace orrery::inline network::packet
