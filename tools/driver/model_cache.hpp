#pragma once
// Where the times of kernels and collectives come from.

#include "sim/config/data_directory.hpp"
#include "sim/device/cost_model.hpp"
#include "sim/device/kernel_sets.hpp"
#include "sim/network/collective.hpp"
#include "sim/run/network_spec.hpp"
#include "topologies/cluster_spec.hpp"

#include <functional>
#include <map>
#include <memory>

namespace orrery::driver {

enum class ComputeKind { calibrated, roofline };

/// Names the `compute` section of kinds that price kernels.
void describe_compute(Fields& fields, ComputeKind& compute);

/// Models built for scenarios, kept between runs: reading kernel tables costs more than simulating.
class ModelCache {
  public:
    /// Puts another cost model around a device's own, for asking what if.
    using DeviceWrap = std::function<std::unique_ptr<CostModel>(std::unique_ptr<CostModel>, const DeviceSpec&)>;
    explicit ModelCache(DataDirectory data, DeviceWrap wrap = {}) : data_(std::move(data)), wrap_(std::move(wrap)) {}
    [[nodiscard]] const DataDirectory& data() const { return data_; }
    /// `kernels`: set of kernels that the software runs where the device has one of this name.
    [[nodiscard]] const CostModel& device(const DeviceSpec& device, ComputeKind kind, const KernelSets& kernels = {});
    [[nodiscard]] const CollectiveModel& collectives(const NodeSpec& node, LibraryKind kind);

  private:
    DataDirectory data_;
    DeviceWrap wrap_;
    std::map<std::string, std::unique_ptr<CostModel>> devices_;
    std::map<std::string, std::unique_ptr<CollectiveModel>> libraries_;
};

}  // namespace orrery::driver
