// The table of fault processes: one row each.

#include "workloads/faults/processes/process.hpp"

namespace orrery::faults {

extern const PolicyRow<FaultProcess> kExponentialFaults;
extern const PolicyRow<FaultProcess> kWeibullFaults;
extern const PolicyRow<FaultProcess> kBurstFaults;

const PolicyTable<FaultProcess>& fault_process_table() {
    static const PolicyTable<FaultProcess> kTable = {&kExponentialFaults, &kWeibullFaults, &kBurstFaults};
    return kTable;
}

std::uint32_t Exposed::draw(RandomStream& random) const {
    const auto bad = static_cast<double>(bad_.size());
    const double ordinary = static_cast<double>(place_.size()) - bad;
    const auto member = static_cast<std::uint32_t>(random.below(per_machine_));
    if (!bad_.empty() && random.uniform() * (ordinary + factor_ * bad) < factor_ * bad) {
        return bad_[random.below(bad_.size())] * per_machine_ + member;
    }
    for (;;) {
        const auto machine = static_cast<std::uint32_t>(random.below(place_.size()));
        if (place_[machine] == kOrdinary || ordinary == 0) {
            return machine * per_machine_ + member;
        }
    }
}

void Exposed::set_bad(std::uint32_t machine, bool bad) {
    if (bad == (place_[machine] != kOrdinary)) {
        return;
    }
    if (bad) {
        place_[machine] = static_cast<std::uint32_t>(bad_.size());
        bad_.push_back(machine);
        return;
    }
    const std::uint32_t hole = place_[machine];
    place_[bad_.back()] = hole;
    bad_[hole] = bad_.back();
    bad_.pop_back();
    place_[machine] = kOrdinary;
}

void Exposed::resize(std::uint32_t machines) {
    for (std::uint32_t machine = machines; machine < place_.size(); ++machine) {
        set_bad(machine, false);
    }
    place_.resize(machines, kOrdinary);
}

}  // namespace orrery::faults
