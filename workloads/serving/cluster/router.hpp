#pragma once
// Which replica takes a request: by turns, least outstanding requests, least cache in use, by session, or by prefix.
//
// By prefix: the replica that has most of the prompt in its cache takes it, when that is more than half of the prompt;
// otherwise, and whenever the most loaded replica has both kImbalance requests and half as many again more than the least
// loaded, the least loaded takes it.
// Sources: the cache-aware policy of SGLang's router (balance_abs_threshold 64, balance_rel_threshold 1.5, cache_threshold
// 0.5), with each replica's cache itself instead of the router's approximation of it.

#include "workloads/serving/cluster/fleet.hpp"

namespace orrery {

/// Routes among replicas that are up, with turns of its own. While none is up requests queue at those that will be.
class Routes {
  public:
    Routes(const Fleet& fleet, Router router) : fleet_(fleet), router_(router) {}
    /// Takes effect with the next update.
    void add(std::uint32_t replica);
    /// Routes anew after replicas have gone or come.
    void update();
    [[nodiscard]] bool empty() const { return all_.empty(); }
    [[nodiscard]] const std::vector<std::uint32_t>& replicas() const { return all_; }
    /// Precondition: not empty.
    [[nodiscard]] std::uint32_t choose(std::uint32_t session, const PromptContent& content, std::uint32_t prompt);

  private:
    const Fleet& fleet_;
    Router router_;
    std::vector<std::uint32_t> all_;
    std::vector<std::uint32_t> among_;
    std::uint64_t turn_ = 0;
};

}  // namespace orrery
