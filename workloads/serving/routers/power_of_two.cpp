#include "workloads/serving/routers/load.hpp"

namespace orrery::serving {

namespace {

/// Two replicas are drawn, and the one with fewer requests takes the request (Mitzenmacher, "The power of two choices in randomized
/// load balancing", IEEE TPDS 2001; `power_of_two` of SGLang's router).
class PowerOfTwo final : public Router {
  public:
    using Parameters = NoParameters;
    explicit PowerOfTwo(const Parameters&) {}

    std::uint32_t choose(const EngineStates& engines, const std::vector<std::uint32_t>& among,
                         const RoutedRequest& request) override {
        if (among.size() == 1) {
            return among.front();
        }
        RandomStream random = draw_for(engines, request);
        const std::size_t first = random.below(among.size());
        const std::size_t other = random.below(among.size() - 1);
        return least(engines, {among[first], among[other + (other >= first ? 1 : 0)]}, outstanding_requests);
    }
};

}  // namespace

extern const PolicyRow<Router> kPowerOfTwo = policy_row<Router, PowerOfTwo>(
    "power-of-two", "the less loaded of two replicas drawn at random, by outstanding requests");

}  // namespace orrery::serving
