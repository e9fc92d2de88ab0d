#pragma once
// Which replica takes a request: by turns, least outstanding requests, least cache in use, or by session.

#include "workloads/serving/fleet.hpp"

namespace orrery {

/// Routes among a fixed set of replicas, with turns of its own.
class Routes {
  public:
    Routes(const Fleet& fleet, Router router) : fleet_(fleet), router_(router) {}
    void add(std::uint32_t replica) { among_.push_back(replica); }
    [[nodiscard]] bool empty() const { return among_.empty(); }
    [[nodiscard]] const std::vector<std::uint32_t>& replicas() const { return among_; }
    /// Precondition: not empty.
    [[nodiscard]] std::uint32_t choose(std::uint32_t session);

  private:
    const Fleet& fleet_;
    Router router_;
    std::vector<std::uint32_t> among_;
    std::uint64_t turn_ = 0;
};

}  // namespace orrery
