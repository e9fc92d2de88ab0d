#include "workloads/faults/fault_source.hpp"

namespace orrery::faults {

namespace {

bool is_of_machines(Component component) {
    return component != Component::switches && component != Component::storage && component != Component::software &&
           component != Component::replica;
}

}  // namespace

std::optional<std::uint32_t> machine_of(const Place& place, const JobShape& shape) {
    switch (place.what) {
        case Place::What::gpu:
            return place.index / shape.gpus_per_node;
        case Place::What::nic:
            return place.index / shape.nics_per_node;
        case Place::What::node:
            return place.index;
        default:
            return std::nullopt;
    }
}

FaultSource::FaultSource(const ProcessSpec& spec, const JobShape& shape, std::uint64_t seed, const std::string& strikes,
                         const std::string& lasts)
    : spec_(&spec),
      of_machines_(is_of_machines(spec.component)),
      machines_(of_machines_ ? shape.nodes : shape.count(spec.component)),
      exposed_(machines_, of_machines_ ? shape.count(spec.component) / machines_ : 1, spec.mtbf_s, spec.bad_factor),
      process_(spec.law.make()),
      random_(seed, strikes),
      lasts_(seed, lasts) {}

Fault FaultSource::fault(std::uint32_t component, const JobShape& shape) {
    const double lasts_s = spec_->lasts_s > 0 ? lasts_.exponential(spec_->lasts_s) : 0;
    return {spec_->kind, place_of(spec_->component, component, shape), spec_->factor, lasts_s};
}

}  // namespace orrery::faults
