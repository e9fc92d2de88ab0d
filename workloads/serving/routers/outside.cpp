#include "workloads/outside/connection.hpp"
#include "workloads/outside/policies.hpp"
#include "workloads/outside/session.hpp"
#include "workloads/serving/routers/load.hpp"

#include <fmt/format.h>

namespace orrery::serving {

namespace {

/// Replicas as include/orrery/policy.hpp shows them.
class View final : public policy::Replicas {
  public:
    View(const EngineStates& engines, const std::vector<std::uint32_t>& among, const RoutedRequest& request)
        : engines_(engines), among_(among), request_(request) {}
    [[nodiscard]] std::size_t size() const override { return among_.size(); }
    [[nodiscard]] std::uint32_t number(std::size_t i) const override { return among_[i]; }
    [[nodiscard]] std::size_t requests(std::size_t i) const override { return outstanding_requests(at(i)); }
    [[nodiscard]] std::uint64_t used_blocks(std::size_t i) const override { return at(i).used_blocks(); }
    [[nodiscard]] std::uint64_t blocks(std::size_t i) const override { return at(i).limits().blocks; }
    [[nodiscard]] std::uint32_t cached(std::size_t i) const override {
        return at(i).cached_prefix(request_.content, request_.prompt);
    }

  private:
    [[nodiscard]] const EngineState& at(std::size_t i) const { return *engines_[among_[i]]; }

    const EngineStates& engines_;
    const std::vector<std::uint32_t>& among_;
    const RoutedRequest& request_;
};

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
            return policy_->choose(View(engines, among, request),
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
