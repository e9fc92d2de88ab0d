#pragma once
// When replicas can be used: failures and repairs, as given or drawn.
//
// Claims: a replica that fails loses its caches and all it was computing; what it had goes to other replicas or is given up.
// It takes requests again when its time of repair (new process, weights loaded) is over.
// Limits: transfers under way to or from a failed replica still use their links until they would have ended.

#include "sim/base/random.hpp"
#include "workloads/serving/cluster/fleet.hpp"

namespace orrery::inline serving {

class LifecycleListener {
  public:
    virtual ~LifecycleListener() = default;
    virtual void replica_fails(std::uint32_t replica) = 0;
    virtual void replica_returns(std::uint32_t replica) = 0;
    /// Some replica takes requests now that did not, or the other way round.
    virtual void routes_change() = 0;
    /// Nothing is left to be served, and nothing will come.
    [[nodiscard]] virtual bool all_served() const = 0;
};

class Lifecycle {
  public:
    Lifecycle(const ServiceSpec& spec, LifecycleListener& listener) : spec_(spec), listener_(listener) {}
    void begin(Dispatcher& dispatcher, std::uint32_t replicas);
    void on_task(const Token& token);

  private:
    struct Unit {
        RandomStream random;
        std::uint32_t down = 0;  ///< failures that are not repaired
    };
    void expect_failure(std::uint32_t replica);
    void wait(double seconds, const Token& token);

    const ServiceSpec& spec_;
    LifecycleListener& listener_;
    Dispatcher* dispatcher_ = nullptr;
    std::vector<Unit> units_;
};

}  // namespace orrery::inline serving
