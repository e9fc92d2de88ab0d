#include "workloads/serving/routers/router.hpp"

namespace orrery::serving {

namespace {

class RoundRobin final : public Router {
  public:
    using Parameters = NoParameters;
    explicit RoundRobin(const Parameters&) {}

    std::uint32_t choose(const EngineStates&, const std::vector<std::uint32_t>& among, const RoutedRequest&) override {
        return among[turn_++ % among.size()];
    }

  private:
    std::uint64_t turn_ = 0;
};

}  // namespace

extern const PolicyRow<Router> kRoundRobin =
    policy_row<Router, RoundRobin>("round-robin", "rotation over all replicas");

}  // namespace orrery::serving
