#include "workloads/faults/impairments.hpp"

#include <algorithm>
#include <tuple>

namespace orrery::faults {

const Impairments::Active* Impairments::find(std::uint32_t id) const {
    const auto found = std::find_if(active_.begin(), active_.end(), [&](const Active& one) { return one.id == id; });
    return found == active_.end() ? nullptr : &*found;
}

double Impairments::store_factor() const {
    double factor = 1;
    for (const Active& one : active_) {
        if (one.fault.place.what == Place::What::storage) {
            factor = std::min(factor, one.fault.kind == FaultKind::outage ? 0 : one.fault.factor);
        }
    }
    return factor;
}

namespace {

bool in_job(const Impairments::Active& one, const Machines& fleet) {
    return one.fault.place.what != Place::What::storage &&
           (one.machine == Machines::kNone || fleet.place_of(one.machine) != Machines::kNone);
}

}  // namespace

bool Impairments::stalls(const Machines& fleet, const JobShape& shape) const {
    return std::any_of(active_.begin(), active_.end(), [&](const Active& one) {
        if (one.fault.kind != FaultKind::link_flap || !in_job(one, fleet)) {
            return false;
        }
        return one.fault.place.what == Place::What::nic || shape.spines < 2;  // else other spines carry on
    });
}

std::vector<Impairment> Impairments::of_job(const Machines& fleet, const JobShape& shape) const {
    std::vector<Impairment> out;
    for (const Active& one : active_) {
        if (!in_job(one, fleet)) {
            continue;
        }
        Impairment impairment{one.fault.kind, one.fault.place, one.fault.factor};
        if (one.machine != Machines::kNone) {
            const std::uint32_t place = fleet.place_of(one.machine);
            const std::uint32_t per_node = one.fault.place.what == Place::What::gpu   ? shape.gpus_per_node
                                           : one.fault.place.what == Place::What::nic ? shape.nics_per_node
                                                                                      : 1;
            ORRERY_ASSERT(place < shape.nodes && per_node > 0);
            impairment.place.index = place * per_node + one.fault.place.index % per_node;
        }
        out.push_back(impairment);
    }
    const auto key = [](const Impairment& one) {
        return std::tuple(one.place.what, one.place.index, one.place.upper, one.kind, one.factor);
    };
    std::sort(out.begin(), out.end(), [&](const Impairment& a, const Impairment& b) { return key(a) < key(b); });
    return out;
}

Cause Impairments::cause(const Machines& fleet) const {
    for (const Active& one : active_) {
        if (in_job(one, fleet)) {
            return one.fault.kind == FaultKind::slow        ? Cause::stragglers
                   : one.fault.kind == FaultKind::power_cap ? Cause::power
                                                            : Cause::network;
        }
    }
    return Cause::network;
}

}  // namespace orrery::faults
