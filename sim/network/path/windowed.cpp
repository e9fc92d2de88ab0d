#include "sim/network/path/path.hpp"

namespace orrery::network::packet {

namespace {

/// A few hashed paths of a flow, among which its transport, which has a window for each, chooses for every packet.
class Windowed final : public PathChooser {
  public:
    struct Parameters {
        std::int64_t paths = 4;
        void describe(Fields& fields) {
            fields.integer({"windowed_paths", "paths of a flow, each with a window of its own", false, 1, kMostPaths},
                           paths);
        }
    };
    explicit Windowed(const Parameters& own) : paths_(static_cast<std::uint32_t>(own.paths)) {}

    [[nodiscard]] PathNeeds needs() const override { return {.each = true, .windows = paths_}; }
    [[nodiscard]] std::uint32_t pick(std::uint32_t, FlowPath& path, std::int64_t) override {
        return with_number(static_cast<std::uint32_t>(mix64(path.hash + path.sprayed) >> 32), path.sprayed);
    }

  private:
    std::uint32_t paths_;
};

}  // namespace

extern const PolicyRow<PathChooser> kWindowed = policy_row<PathChooser, Windowed>(
    "windowed", "subflow windows: each packet takes the path, of a few, with the most open window");

}  // namespace orrery::network::packet
