#include "workloads/serving/routers/load.hpp"

namespace orrery::serving {

namespace {

class LeastCache final : public Router {
  public:
    using Parameters = NoParameters;
    explicit LeastCache(const Parameters&) {}

    std::uint32_t choose(const EngineStates& engines, const std::vector<std::uint32_t>& among,
                         const RoutedRequest&) override {
        return least(engines, among, [](const EngineState& engine) { return engine.used_blocks(); });
    }
};

}  // namespace

extern const PolicyRow<Router> kLeastCache =
    policy_row<Router, LeastCache>("least-cache", "the replica with the fewest cache blocks in use");

}  // namespace orrery::serving
