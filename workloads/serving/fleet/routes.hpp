#pragma once
// The replicas among which a router chooses.

#include "workloads/serving/fleet/fleet.hpp"

namespace orrery::serving {

/// Routes among replicas that are up, with a router of its own. While none is up requests queue at those that will be.
class Routes {
  public:
    Routes(Fleet& fleet, const RouterChoice& router) : fleet_(fleet), router_(router.make()) {}
    /// Takes effect with the next update.
    void add(std::uint32_t replica);
    /// Routes anew after replicas have gone or come.
    void update();
    [[nodiscard]] bool empty() const { return all_.empty(); }
    [[nodiscard]] const std::vector<std::uint32_t>& replicas() const { return all_; }
    /// Those of them that may be chosen now.
    [[nodiscard]] const std::vector<std::uint32_t>& among() const { return among_; }
    /// Precondition: not empty.
    [[nodiscard]] std::uint32_t choose(std::uint64_t request, std::uint32_t session, const PromptContent& content,
                                       std::uint32_t prompt) {
        return router_->choose(fleet_.engines(), among_, {request, fleet_.now(), session, content, prompt});
    }
    /// Before the first choice.
    void attach(outside::Policies& policies, std::uint32_t number) { router_->attach(policies, number); }

  private:
    Fleet& fleet_;
    std::unique_ptr<Router> router_;
    std::vector<std::uint32_t> all_;
    std::vector<std::uint32_t> among_;
};

/// How requests come to replicas: to those that take them, and from there to those that decode.
struct Routing {
    Routing(Fleet& fleet, const RouterChoice& router);
    /// Some replica takes requests now that did not, or the other way round.
    void update() {
        entries.update();
        decoders.update();
    }

    Routes entries;   ///< replicas that take requests
    Routes decoders;  ///< replicas that take KV transfers
};

}  // namespace orrery::serving
