#include "workloads/outside/connection.hpp"
#include "workloads/outside/policies.hpp"
#include "workloads/outside/session.hpp"
#include "workloads/serving/routers/outside_view.hpp"

#include <fmt/format.h>

namespace orrery::serving {

namespace {

/// A policy of the user's own (include/orrery/policy.hpp).
class Outside final : public Router {
  public:
    using Parameters = outside::PolicySource;
    explicit Outside(const Parameters& own) : source_(own) {}
    [[nodiscard]] RouterNeeds needs() const override { return {.outside = true}; }
    void attach(outside::Policies& policies, std::uint32_t number) override {
        policy_ = policies.router(source_, number);
        number_ = number;
    }

    std::uint32_t choose(const EngineStates& engines, const std::vector<std::uint32_t>& among,
                         const RoutedRequest& request) override {
        ORRERY_ASSERT(policy_ != nullptr);
        const double now = request.now.seconds();
        const std::size_t chosen = [&] {
            const outside::Decision counted;
            return policy_->choose(OutsideView(engines, among, request),
                                   {request.request, now, request.session, request.prompt});
        }();
        if (chosen >= among.size()) {
            outside::policy_failed(source_.from, fmt::format("it sends request {} to replica {} of {} ({} s)",
                                                             request.request, chosen, among.size(), now));
        }
        if (outside::session().records) {
            outside::session().record += outside::recorded_choice(number_, now, request.request, chosen);
        }
        return among[chosen];
    }

  private:
    outside::PolicySource source_;
    std::unique_ptr<policy::Router> policy_;
    std::uint32_t number_ = 0;
};

}  // namespace

extern const PolicyRow<Router> kOutsideRouter =
    policy_row<Router, Outside>("outside", "a policy of your own: C++, Python, a process at a socket, or a recording");

}  // namespace orrery::serving
