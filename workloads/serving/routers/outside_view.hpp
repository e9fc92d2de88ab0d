#pragma once
// Replicas as policies from outside see them.

#include "include/orrery/policy.hpp"
#include "workloads/serving/routers/load.hpp"
#include "workloads/serving/routers/router.hpp"

namespace orrery::serving {

/// Replicas as include/orrery/policy.hpp shows them.
class OutsideView final : public policy::Replicas {
  public:
    OutsideView(const EngineStates& engines, const std::vector<std::uint32_t>& among, const RoutedRequest& request)
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

}  // namespace orrery::serving
