#pragma once
// The way of a request to the replica that serves it, and again when that replica fails.

#include "include/orrery/policy.hpp"
#include "workloads/serving/cluster/autoscaler.hpp"
#include "workloads/serving/cluster/client_timeouts.hpp"
#include "workloads/serving/cluster/mixing.hpp"

#include <memory>

namespace orrery::serving {

class Admission {
  public:
    /// All arguments outlive this.
    Admission(const ServiceSpec& spec, Fleet& fleet, Routing& routing, Transfers& transfers, Mixing& mixing,
              Autoscaler& autoscaler, Frontend& frontend, RequestPlaces& places, Accounts& accounts,
              ClientTimeouts& timeouts, ServiceResult& result);
    /// A lost sequence goes to the replica of a new request, which computes its prompt and what it had given anew; where its cache
    /// is restored, to one that can go on with it. It fails when that happened too often, to it or to all, or when it has outgrown
    /// the cache of the replicas that compute prompts.
    void retry(Sequence sequence);

  private:
    void arrives(const Request& request, std::uint64_t id);
    void enter(std::uint32_t replica, std::uint32_t sequence);
    [[nodiscard]] bool admits(const Request& request, std::uint64_t id) const;
    [[nodiscard]] bool can_decode(const Request& request) const;
    [[nodiscard]] bool within_budget() const;

    const ServiceSpec& spec_;
    Fleet& fleet_;
    Routing& routing_;
    Transfers& transfers_;
    Mixing& mixing_;
    Autoscaler& autoscaler_;
    Frontend& frontend_;
    RequestPlaces& places_;
    Accounts& accounts_;
    ClientTimeouts& timeouts_;
    ServiceResult& result_;
    std::unique_ptr<policy::Admission> policy_;  ///< of the user's own; null: all are taken
};

}  // namespace orrery::serving
