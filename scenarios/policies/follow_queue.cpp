// An autoscaler of your own: as many replicas as the outstanding requests take at the target of each, like `rule: queue`.
//
//     c++ -std=c++20 -O2 -shared -fPIC -I<prefix>/include follow_queue.cpp -o follow_queue.so
//     orrery run own-autoscaler.yaml --set policies.autoscaler.from=follow_queue.so --allow-policies

#include <orrery/policy.hpp>

#include <algorithm>
#include <cmath>

namespace {

class FollowQueue final : public orrery::policy::Autoscaler {
  public:
    std::uint32_t scale(const orrery::policy::Pool& pool) override {
        const double wanted = std::ceil(static_cast<double>(pool.outstanding) / pool.target);
        return static_cast<std::uint32_t>(
            std::clamp(wanted, static_cast<double>(pool.least), static_cast<double>(pool.most)));
    }
};

}  // namespace

ORRERY_AUTOSCALER(FollowQueue)
