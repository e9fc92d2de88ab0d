#include "workloads/training/lowering/rank_folding.hpp"

#include "sim/base/error.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace orrery::training {

void RankFolding::begin(std::uint32_t set, const GroupTransfer& first) {
    kinds_.push_back({set, first.latency.value(), first.propagation.value(), first.bytes.value(), {}});
    kinds_.back().transfers.push_back(first.demands);
}

void RankFolding::add(const GroupTransfer& transfer) {
    ORRERY_ASSERT(!kinds_.empty());
    Kind& kind = kinds_.back();
    alike_ = alike_ && transfer.latency.value() == kind.latency && transfer.propagation.value() == kind.propagation &&
             transfer.bytes.value() == kind.bytes;
    kind.transfers.push_back(transfer.demands);
}

std::optional<std::vector<RankFolding::Folded>> RankFolding::fold(const Fabric& fabric) const {
    if (!alike_) {
        return std::nullopt;
    }
    std::map<std::uint32_t, Loads> loads;  // by resource
    for (std::uint32_t i = 0; i < kinds_.size(); ++i) {
        for (const std::vector<Demand>& one : kinds_[i].transfers) {
            for (const Demand& demand : one) {
                Loads& here = loads[demand.resource.value()];
                if (here.empty() || here.back().first != i) {
                    here.emplace_back(i, 0.0);
                }
                here.back().second += demand.weight;
            }
        }
    }
    // The first resource of each class stands for it.
    std::map<std::pair<double, Loads>, std::uint32_t> classes;
    std::unordered_map<std::uint32_t, std::uint32_t> class_of;
    for (const auto& [resource, here] : loads) {
        class_of[resource] = classes.try_emplace({fabric.capacity(ResourceId(resource)), here}, resource).first->second;
    }
    std::vector<Folded> out;
    for (std::uint32_t i = 0; i < kinds_.size(); ++i) {
        std::vector<std::uint32_t> used;
        for (const std::vector<Demand>& one : kinds_[i].transfers) {
            std::vector<std::uint32_t> own;
            for (const Demand& demand : one) {
                own.push_back(class_of[demand.resource.value()]);
            }
            std::sort(own.begin(), own.end());
            own.erase(std::unique(own.begin(), own.end()), own.end());
            if (&one == &kinds_[i].transfers.front()) {
                used = std::move(own);
            } else if (own != used) {
                return std::nullopt;
            }
        }
        Folded folded{kinds_[i].set, {}};
        for (const std::uint32_t resource : used) {
            const Loads& here = loads[resource];
            const auto load = std::find_if(here.begin(), here.end(), [&](const auto& of) { return of.first == i; });
            ORRERY_ASSERT(load != here.end());
            folded.demands.push_back(Demand{ResourceId(resource), load->second});
        }
        out.push_back(std::move(folded));
    }
    return out;
}

}  // namespace orrery::training
