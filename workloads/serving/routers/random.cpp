#include "workloads/serving/routers/load.hpp"

namespace orrery::serving {

namespace {

class Random final : public Router {
  public:
    using Parameters = NoParameters;
    explicit Random(const Parameters&) {}

    std::uint32_t choose(const EngineStates& engines, const std::vector<std::uint32_t>& among,
                         const RoutedRequest& request) override {
        return among[draw_for(engines, request).below(among.size())];
    }
};

}  // namespace

extern const PolicyRow<Router> kRandom =
    policy_row<Router, Random>("random", "a replica drawn at random for each request");

}  // namespace orrery::serving
