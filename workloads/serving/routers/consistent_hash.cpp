#include "sim/base/error.hpp"
#include "sim/base/random.hpp"
#include "workloads/serving/routers/router.hpp"

#include <algorithm>

namespace orrery::serving {

namespace {

/// The replica with the largest hash of session and replica takes the session (rendezvous hashing; Thaler and Ravishankar, IEEE/ACM
/// ToN 1998): when a replica goes, its sessions alone move, and when one comes, it takes an equal share from each other.
class ConsistentHash final : public Router {
  public:
    using Parameters = NoParameters;
    explicit ConsistentHash(const Parameters&) {}
    [[nodiscard]] RouterNeeds needs() const override { return {.sessions = true}; }

    std::uint32_t choose(const EngineStates&, const std::vector<std::uint32_t>& among,
                         const RoutedRequest& request) override {
        const std::uint64_t session = mix64(request.session);
        ORRERY_ASSERT(!among.empty());
        const auto weight = [&](std::uint32_t replica) { return mix64(session ^ mix64(~std::uint64_t{replica})); };
        return *std::max_element(among.begin(), among.end(),
                                 [&](std::uint32_t a, std::uint32_t b) { return weight(a) < weight(b); });
    }
};

}  // namespace

extern const PolicyRow<Router> kConsistentHash = policy_row<Router, ConsistentHash>(
    "consistent-hash", "a fixed replica per session by consistent hashing: few sessions move when replicas come or go");

}  // namespace orrery::serving
