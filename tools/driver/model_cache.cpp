#include "tools/driver/model_cache.hpp"

#include "models/calibrated.hpp"
#include "models/collective_library.hpp"
#include "models/power_capped.hpp"
#include "sim/device/power.hpp"

namespace orrery::driver {

void describe_compute(Fields& fields, ComputeKind& compute) {
    fields.section({"compute", "source of kernel times"}, [&](Fields& inner) {
        inner.enumeration({"model", "calibrated on measured kernels, or a roofline"}, {"calibrated", "roofline"},
                          compute);
    });
}

const CostModel& ModelCache::device(const DeviceSpec& device, ComputeKind kind, const KernelSets& kernels) {
    DeviceSpec copy = device;
    const std::string key = write_fields([&](Fields& fields) { orrery::describe(fields, copy); }) +
                            (kind == ComputeKind::roofline ? "roofline" : "calibrated") + kernels.text();
    std::unique_ptr<CostModel>& slot = devices_[key];
    if (!slot) {
        if (kind == ComputeKind::roofline) {
            slot = std::make_unique<Roofline>(device);
        } else {
            slot = make_calibrated_model(device, data_, kernels);
        }
        if (board_limit(device) < device.tdp.value) {
            slot = std::make_unique<PowerCapped>(std::move(slot), device);
        }
        if (wrap_) {
            slot = wrap_(std::move(slot), device);
        }
    }
    return *slot;
}

const CollectiveModel& ModelCache::collectives(const NodeSpec& node, LibraryKind kind) {
    const std::string& name = library_names()[static_cast<std::size_t>(kind)];
    std::unique_ptr<CollectiveModel>& slot =
        libraries_[kind == LibraryKind::ideal ? "ideal" : name + " " + node.collectives + " " + node.between];
    if (!slot) {
        if (kind == LibraryKind::ideal) {
            slot = std::make_unique<IdealCollectives>();
        } else {
            slot = make_collectives(node.collectives, name, data_, node.between);
        }
    }
    return *slot;
}

}  // namespace orrery::driver
