#include "workloads/faults/fault_source.hpp"

#include <algorithm>

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

FaultSource::FaultSource(std::vector<TimedFault> given) : given_(std::move(given)) {
    std::stable_sort(given_.begin(), given_.end(),
                     [](const TimedFault& a, const TimedFault& b) { return a.at_s < b.at_s; });
}

FaultSource::FaultSource(const ProcessSpec& spec, const JobShape& shape, std::uint64_t seed, const std::string& strikes,
                         const std::string& lasts)
    : spec_(&spec),
      shape_(shape),
      of_machines_(is_of_machines(spec.component)),
      machines_(of_machines_ ? shape.nodes : shape.count(spec.component)),
      exposed_(machines_, of_machines_ ? shape.count(spec.component) / machines_ : 1, spec.mtbf_s, spec.bad_factor),
      process_(spec.law.make()),
      random_(seed, strikes),
      lasts_(seed, lasts) {}

void FaultSource::begin() {
    if (process_) {
        process_->begin(exposed_, random_);
    }
}

void FaultSource::strike(std::vector<TimedFault>& out) {
    if (is_given()) {
        out.push_back({0, given_[struck_++].fault});
        return;
    }
    std::vector<Strike> strikes;
    process_->strike(exposed_, random_, strikes);
    for (const Strike& one : strikes) {
        const double lasts_s = spec_->lasts_s > 0 ? lasts_.exponential(spec_->lasts_s) : 0;
        out.push_back(
            {one.after_s, {spec_->kind, place_of(spec_->component, one.component, shape_), spec_->factor, lasts_s}});
    }
}

std::vector<FaultSource> fault_sources(const std::vector<ProcessSpec>& processes, const std::vector<TimedFault>& given,
                                       const JobShape& shape, std::uint64_t seed, const std::string& strikes,
                                       const std::string& lasts) {
    std::vector<FaultSource> out;
    for (std::size_t i = 0; i < processes.size(); ++i) {
        const std::string number = std::to_string(i);
        out.emplace_back(processes[i], shape, seed, strikes + number, lasts + number);
    }
    out.emplace_back(given);
    return out;
}

}  // namespace orrery::faults
