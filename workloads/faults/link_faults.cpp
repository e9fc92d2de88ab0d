#include "workloads/faults/link_faults.hpp"

#include "sim/network/topology/tree.hpp"

#include <algorithm>

namespace orrery::faults {

namespace {

void add_nic(std::uint32_t nic, const Fabric& fabric, std::vector<ResourceId>& out) {
    out.push_back(fabric.nic_out(nic));
    out.push_back(fabric.nic_in(nic));
}

// Of a leaf and a spine; `leaf` kAny: of all leaves.
constexpr std::uint32_t kAny = 0xFFFFFFFFU;
void add_spine(std::uint32_t leaf, std::uint32_t spine, const Fabric& fabric, std::vector<ResourceId>& out) {
    const std::vector<SwitchLink> links = fabric.as_tree()->links();
    const std::uint32_t upper = fabric.leaves() + spine;
    for (std::uint32_t i = 0; i < links.size(); ++i) {
        for (const auto& [from, to] : {std::pair{links[i].from, links[i].to}, {links[i].to, links[i].from}}) {
            if (links[i].from != links[i].to && from == upper && (leaf == kAny || to == leaf)) {
                out.emplace_back(fabric.first_switch_link() + i);
            }
        }
    }
}

}  // namespace

std::vector<ResourceId> links_of(const Fault& fault, const Fabric& fabric) {
    std::vector<ResourceId> out;
    switch (fault.place.what) {
        case Place::What::nic:
            add_nic(fault.place.index, fabric, out);
            break;
        case Place::What::leaf:
            for (std::uint32_t nic = 0; nic < fabric.shape().nics(); ++nic) {
                if (fabric.as_tree()->leaf_of_nic(nic) == fault.place.index) {
                    add_nic(nic, fabric, out);
                }
            }
            break;
        case Place::What::spine:
            add_spine(kAny, fault.place.index, fabric, out);
            break;
        case Place::What::leaf_spine:
            add_spine(fault.place.index, fault.place.upper, fabric, out);
            break;
        default:
            break;
    }
    return out;
}

double left_of(const Fault& fault) {
    return fault.kind == FaultKind::degraded ? fault.factor : 0;
}

LinkFaults::LinkFaults(const Fabric& fabric, std::vector<TimedFault> faults)
    : fabric_(fabric), faults_(std::move(faults)), active_(faults_.size(), false) {}

void LinkFaults::begin(Dispatcher& dispatcher) {
    for (std::uint32_t i = 0; i < faults_.size(); ++i) {
        dispatcher.delay(SimTime::from_seconds(faults_[i].at_s), i, i, Phase::fault);
    }
}

void LinkFaults::on_done(std::uint64_t token, Dispatcher& dispatcher) {
    const std::size_t index = token % faults_.size();
    ORRERY_ASSERT(token < 2 * faults_.size());  // its begin, or its end
    active_[index] = token < faults_.size();
    if (const double lasts = faults_[index].fault.lasts_s; active_[index] && lasts > 0) {
        dispatcher.delay(SimTime::from_seconds(lasts), static_cast<std::uint32_t>(index), token + faults_.size(),
                         Phase::fault);
    }
    apply(index, dispatcher);
}

void LinkFaults::apply(std::size_t index, Dispatcher& dispatcher) const {
    for (const ResourceId link : links_of(faults_[index].fault, fabric_)) {
        double left = 1;
        for (std::size_t i = 0; i < faults_.size(); ++i) {
            const std::vector<ResourceId> links =
                active_[i] ? links_of(faults_[i].fault, fabric_) : std::vector<ResourceId>();
            if (std::find(links.begin(), links.end(), link) != links.end()) {
                left = std::min(left, left_of(faults_[i].fault));
            }
        }
        ORRERY_ASSERT(left >= 0 && left <= 1);
        dispatcher.resources().set_capacity(link, left * fabric_.capacity(link));
    }
}

}  // namespace orrery::faults
