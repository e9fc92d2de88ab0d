#include "workloads/serving/routers/router.hpp"

#include "sim/base/random.hpp"

namespace orrery::serving {

namespace {

class Session final : public Router {
  public:
    using Parameters = NoParameters;
    explicit Session(const Parameters&) {}
    [[nodiscard]] RouterNeeds needs() const override { return {.sessions = true}; }

    std::uint32_t choose(const EngineStates&, const std::vector<std::uint32_t>& among,
                         const RoutedRequest& request) override {
        return among[mix64(request.session) % among.size()];
    }
};

}  // namespace

extern const PolicyRow<Router> kSession =
    policy_row<Router, Session>("session", "a fixed replica per session, chosen by a hash");

}  // namespace orrery::serving
