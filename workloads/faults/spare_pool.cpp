#include "workloads/faults/spare_pool.hpp"

#include <algorithm>

namespace orrery::faults {

SparePool::SparePool(const SpareSpec& spec, std::uint32_t first, std::uint64_t seed, const std::string& repairs,
                     const std::string& draws)
    : spec_(spec), repairs_(seed, repairs), draws_(seed, draws) {
    for (const auto& [tier, count] : {std::pair{standby, spec.standbys}, {pool, spec.pool}, {spare, spec.spares}}) {
        for (std::int64_t i = 0; i < count; ++i) {
            free_[tier].push_back(first++);
        }
    }
    failed_at_.resize(spec.retire_after > 0 ? first : 0);
}

std::uint32_t SparePool::kind_of(std::uint32_t machine) const {
    std::uint32_t kind = 0;
    while (kind + 1 < kinds_.size() && machine >= kinds_[kind]) {
        machine -= kinds_[kind++];
    }
    return kind;
}

std::uint32_t SparePool::take(Tier from, std::uint32_t kind) {
    std::vector<std::uint32_t>& list = free_[from];
    const auto last =
        std::find_if(list.rbegin(), list.rend(), [&](std::uint32_t machine) { return kind_of(machine) == kind; });
    if (last == list.rend()) {
        return kNone;
    }
    const std::uint32_t machine = *last;
    list.erase(std::next(last).base());
    return machine;
}

SparePool::Taken SparePool::take(std::uint32_t kind) {
    Taken out{take(standby, kind), 0};
    if (out.machine == kNone) {
        out = {take(pool, kind), spec_.join_s};
        counts_.pool_joins += out.machine != kNone ? 1 : 0;
    }
    if (out.machine == kNone) {
        out = {take(spare, kind), spec_.borrow_s};
        counts_.borrowed += out.machine != kNone ? 1 : 0;
    }
    return out;
}

SparePool::Repair SparePool::repair(std::uint32_t machine, double now_s) {
    Repair out;
    if (spec_.retire_after > 0) {
        std::vector<double>& failures = failed_at_[machine];
        failures.push_back(now_s);
        std::erase_if(failures, [&](double at) { return at < now_s - spec_.retire_window_s; });
        if (failures.size() >= static_cast<std::size_t>(spec_.retire_after)) {
            ++counts_.retired;
            out.retired = true;
            return out;
        }
    }
    const RepairStage* last = &spec_.automatic;
    out.seconds = repair_s(spec_.automatic.mean_s);
    ++counts_.automatic_repairs;
    if (spec_.to_manual > 0 && repairs_.uniform() < spec_.to_manual) {
        last = &spec_.manual;
        out.seconds += repair_s(spec_.manual.mean_s);
        ++counts_.manual_repairs;
    }
    ORRERY_ASSERT(out.seconds >= 0);
    out.works = last->fails <= 0 || repairs_.uniform() >= last->fails;
    counts_.failed_repairs += out.works ? 0 : 1;
    return out;
}

void SparePool::give_back(std::uint32_t machine) {
    free_[pool].push_back(machine);
    top_up();
}

void SparePool::top_up() {
    std::vector<std::uint32_t>& from = free_[pool];
    while (free_[standby].size() < static_cast<std::size_t>(spec_.standbys) && !from.empty()) {
        std::swap(from[draws_.below(from.size())], from.back());
        free_[standby].push_back(from.back());
        from.pop_back();
    }
}

}  // namespace orrery::faults
