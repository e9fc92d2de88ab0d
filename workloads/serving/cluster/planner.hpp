#pragma once
// GPUs that move between the replicas for prompts and those that decode.
//
// Claims: each place of GPUs has a replica of either role, of which one runs. A place that moves takes no new requests; at the first
// look after its last request has left, its old role ends, and the new one takes requests a given time later. By a schedule a number of
// places computes prompts from a time on. By the load one place moves at a look, and none while another moves: to prompts when their
// replicas have more requests than `prompts` each, to decoding when more of its cache than `cache` is in use, and not when both
// hold. Of the places of a role the one with the fewest requests moves, then the last. One of each role stays.
// Source: ai-dynamo/dynamo, the load-based planner (thresholds of the prefill queue and of the decode cache, one change at a time).
// Limits: both roles have equal degrees and devices; weights stay where they are, and what a role's cache holds is lost.
// Validated by tests/workloads/serving_planner_test.cpp.

#include "workloads/serving/fleet/routes.hpp"
#include "workloads/serving/front_end/frontend.hpp"

namespace orrery::serving {

class Planner final : public FleetPart {
  public:
    /// All arguments outlive this. With a planner: switches off the replicas that the places do not have at first.
    Planner(const ServiceSpec& spec, Fleet& fleet, Routing& routing, const Frontend& frontend, ServiceResult& result);
    void begin(Dispatcher& dispatcher) override;
    void on_done(std::uint64_t event, Dispatcher& dispatcher) override;
    /// Mean number of places that computed prompts until `end`; of one that moves its old role counts until it has the new one.
    [[nodiscard]] double mean_prefill(SimTime end) const;

  private:
    static constexpr std::uint64_t kLook = ~std::uint64_t{0};
    struct Place {
        bool prompts = false;
        bool moving = false;
    };
    /// The replica of a place in one of its roles.
    [[nodiscard]] std::uint32_t replica(std::uint32_t place, bool prompts) const {
        return prompts ? place : static_cast<std::uint32_t>(places_.size()) + place;
    }
    void look();
    void end_roles();
    [[nodiscard]] std::int64_t wanted() const;
    [[nodiscard]] std::int64_t wanted_by_load(std::int64_t prompts) const;
    void move(bool to_prompts);
    void count();

    Routing& routing_;
    const Frontend& frontend_;
    std::vector<Place> places_;
    double prefill_s_ = 0;  ///< places that compute prompts, over time
    SimTime counted_;
};

}  // namespace orrery::serving
