#include "workloads/serving/routers/load.hpp"

namespace orrery::serving {

namespace {

class LeastRequests final : public Router {
  public:
    using Parameters = NoParameters;
    explicit LeastRequests(const Parameters&) {}

    std::uint32_t choose(const EngineStates& engines, const std::vector<std::uint32_t>& among,
                         const RoutedRequest&) override {
        return least(engines, among, outstanding_requests);
    }
};

}  // namespace

extern const PolicyRow<Router> kLeastRequests =
    policy_row<Router, LeastRequests>("least-requests", "the replica with the fewest outstanding requests");

}  // namespace orrery::serving
