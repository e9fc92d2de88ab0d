#pragma once
// A serving system: requests routed over engine replicas that run iteration after iteration, as one job of several task sources.
//
// Claims: TTFT, time per output token and latency of every request follow from the order in which the scheduler lets
// sequences compute and from what each iteration costs; every request is accounted for as finished or refused.
// Scope: pools of equal replicas with an own cache each. Mixed replicas do everything; prefill replicas give the first token and
// hand the sequence over to a decode replica, whose cache makes room first and then gets the keys and values over the fabric,
// where transfers contend (whole after the prompt, or layer by layer while it computes). Routing at arrival and at KV transfer: by
// turns, least outstanding requests, least cache in use or by session. Mixing: with long queues decode replicas compute prompts
// too, or prefill replicas keep what they began; each is back in its role when it has finished what is not of it.
// On the same devices: prefill replica i and decode replica i share compute units, memory rate and cache; an iteration is an
// activity of its time on its part of the units, which takes its mean share of the memory's rate; the cache stays where it is.
// Limits: apart from KV transfers a request stays on its replica; the router itself takes no time; sent layer by layer, all but
// the last layer count as one transfer from the start of the iteration that ends the prompt.
// Sources: Zhong et al., "DistServe", OSDI 2024 (pull when there is room); Patel et al., "Splitwise", ISCA 2024 (by layer; the
// mixed pool); Hong et al., "semi-PD", arXiv:2504.19867 (phases on one device).
// Validated by tests/workloads/serving_test.cpp (tables of iterations by hand, closed forms).

#include "sim/run/simulation.hpp"
#include "workloads/serving/cost/step_cost.hpp"
#include "workloads/serving/metrics/hooks.hpp"
#include "workloads/serving/requests/request.hpp"
#include "workloads/serving/service_spec.hpp"

#include <memory>

namespace orrery::serving {

/// Serves all requests. Precondition: every pool has a price for each stage; prefill pools and decode pools come together;
/// these and pipelines have a fabric. Pools on the same devices: one of each role with equal replicas and caches, their devices
/// given, without failures, autoscaling and prefix caches.
[[nodiscard]] ServiceResult serve(const ServiceSpec& spec, RequestSource& requests, const ServiceHooks& hooks = {});

/// The same as a job of a simulation, whose fabric is that of the specification. All references outlive this.
class ServiceRun {
  public:
    ServiceRun(const ServiceSpec& spec, RequestSource& requests, const ServiceHooks& hooks, Simulation& simulation,
               SimTime start = SimTime());
    ~ServiceRun();
    /// After the run, once.
    [[nodiscard]] ServiceResult result();

  private:
    class Service;
    std::unique_ptr<Service> service_;
};

}  // namespace orrery::serving
