#pragma once
// The replicas of a service, their links to host memory and drives, and the paths between them.

#include "workloads/serving/fleet/replica.hpp"
#include "workloads/serving/metrics/outcome.hpp"
#include "workloads/serving/part.hpp"
#include "workloads/serving/routers/router.hpp"

#include <functional>
#include <map>
#include <memory>

namespace orrery::serving {

class Fleet final : public Part {
  public:
    using Part::now;
    /// Both arguments outlive the fleet.
    Fleet(const ServiceSpec& spec, ServiceResult& result);
    /// What a replica does that was woken, once all of that instant has happened. Before the run.
    void when_woken(std::function<void(std::uint32_t replica)> plan) { plan_ = std::move(plan); }

    /// Adds the resources that replicas have beside the fabric.
    void begin(Dispatcher& dispatcher) override;
    void on_done(std::uint64_t replica, Dispatcher& dispatcher) override;
    void end(Dispatcher& dispatcher) override;
    [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(replicas_.size()); }
    [[nodiscard]] Replica& operator[](std::uint32_t index) { return *replicas_[index]; }
    [[nodiscard]] const Replica& operator[](std::uint32_t index) const { return *replicas_[index]; }
    [[nodiscard]] const EngineStates& engines() const { return engines_; }
    /// Where decisions from outside come from; null: there are none.
    [[nodiscard]] outside::Policies* policies() const { return spec_.policies; }

    /// Something may have changed for a replica: it plans as many batches as it can take.
    void wake(std::uint32_t index);
    [[nodiscard]] GpuId gpu(std::uint32_t rank) const {
        return spec_.placement ? spec_.placement->gpu(rank) : GpuId(rank);
    }
    /// On the same devices: the replica of the other role beside this one.
    [[nodiscard]] std::uint32_t partner(std::uint32_t index) const { return (index + size() / 2) % size(); }

    /// Transfers between two ranges of GPUs: as many equal flows as the wider range has GPUs, each between GPUs at
    /// proportional places, as one activity. Between a GPU and itself nothing flows; where nothing does there are no resources.
    /// Precondition: a fabric.
    struct Path {
        ClassId resources;
        double latency = 0;
        double rate = 0;  ///< B/s that a transfer has for itself; 0: without bound
    };
    struct GpuRange {
        std::uint32_t first = 0;
        std::uint32_t count = 1;
        friend auto operator<=>(const GpuRange&, const GpuRange&) = default;
    };
    [[nodiscard]] const Path& path(GpuRange from, GpuRange to);

  private:
    const ServiceSpec& spec_;
    std::function<void(std::uint32_t)> plan_;
    std::vector<std::unique_ptr<Replica>> replicas_;
    EngineStates engines_;
    std::vector<std::unique_ptr<Device>> shared_;  ///< devices under two replicas
    std::map<std::pair<GpuRange, GpuRange>, Path> paths_;
};

/// A part that works on the replicas. What it is made of outlives it.
class FleetPart : public Part {
  protected:
    FleetPart(const ServiceSpec& spec, Fleet& fleet, ServiceResult& result)
        : spec_(spec), fleet_(fleet), result_(result) {}

    const ServiceSpec& spec_;
    Fleet& fleet_;
    ServiceResult& result_;
};

}  // namespace orrery::serving
