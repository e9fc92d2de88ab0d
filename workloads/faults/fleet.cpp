#include "workloads/faults/fleet.hpp"

#include <algorithm>

namespace orrery::faults {

Machines::Machines(const FaultsSpec& spec, std::uint32_t nodes, std::vector<std::uint32_t> kinds, std::uint64_t seed)
    : recovery_(spec.recovery), kinds_(std::move(kinds)), random_(seed, "faults/repair"), draws_(seed, "faults/pool") {
    const RecoverySpec& r = spec.recovery;
    ORRERY_ASSERT(kinds_.empty() || r.standbys + r.pool + r.spares == 0);
    const auto machines = static_cast<std::uint32_t>(nodes + r.standbys + r.pool + r.spares);
    place_of_.assign(machines, kNone);
    failed_at_.resize(r.retire_after > 0 ? machines : 0);
    std::uint32_t machine = 0;
    for (; machine < nodes; ++machine) {
        place_of_[machine] = machine;
        places_.push_back(machine);
    }
    for (std::vector<std::uint32_t>* list : {&standbys_, &pool_, &spares_}) {
        const std::int64_t count = list == &standbys_ ? r.standbys : list == &pool_ ? r.pool : r.spares;
        for (std::int64_t i = 0; i < count; ++i) {
            list->push_back(machine++);
        }
    }
    ORRERY_ASSERT(machine == machines);  // each has one place, or is kept for one
    for (std::size_t process = 0; process < spec.processes.size(); ++process) {
        bad_.emplace_back(machines, false);
        if (spec.processes[process].bad_share <= 0) {
            continue;
        }
        RandomStream random(seed, "faults/bad/" + std::to_string(process));
        for (std::uint32_t i = 0; i < machines; ++i) {
            bad_.back()[i] = random.uniform() < spec.processes[process].bad_share;
        }
    }
}

void Machines::remove(std::uint32_t place) {
    ORRERY_ASSERT(machine_at(place) != kNone);
    place_of_[places_[place]] = kNone;
    places_[place] = kNone;
}

std::uint32_t Machines::kind_of(std::uint32_t place) const {
    std::uint32_t kind = 0;
    while (kind + 1 < kinds_.size() && place >= kinds_[kind]) {
        place -= kinds_[kind++];
    }
    return kind;
}

std::uint32_t Machines::take(std::vector<std::uint32_t>& from, std::uint32_t place) const {
    for (std::size_t i = from.size(); i-- > 0;) {
        if (kinds_.empty() || kind_of(from[i]) == kind_of(place)) {
            const std::uint32_t machine = from[i];
            from.erase(from.begin() + static_cast<std::ptrdiff_t>(i));
            return machine;
        }
    }
    return kNone;
}

std::uint32_t Machines::take_standby(std::uint32_t place) {
    return take(standbys_, place);
}

Machines::Repair Machines::repair(std::uint32_t machine, double now_s, CampaignResult& counts) {
    Repair out;
    if (recovery_.retire_after > 0) {
        std::vector<double>& failures = failed_at_[machine];
        failures.push_back(now_s);
        std::erase_if(failures, [&](double at) { return at < now_s - recovery_.retire_window_s; });
        if (failures.size() >= static_cast<std::size_t>(recovery_.retire_after)) {
            ++counts.retired;
            out.retired = true;
            return out;
        }
    }
    const auto time = [&](double mean) { return recovery_.exponential_repair ? random_.exponential(mean) : mean; };
    const RepairStage* last = &recovery_.automatic;
    out.seconds = time(recovery_.automatic.mean_s);
    ++counts.automatic_repairs;
    if (recovery_.to_manual > 0 && random_.uniform() < recovery_.to_manual) {
        last = &recovery_.manual;
        out.seconds += time(recovery_.manual.mean_s);
        ++counts.manual_repairs;
    }
    ORRERY_ASSERT(out.seconds >= 0);
    out.works = last->fails <= 0 || random_.uniform() >= last->fails;
    counts.failed_repairs += out.works ? 0 : 1;
    return out;
}

void Machines::give_back(std::uint32_t machine, bool mended) {
    ORRERY_ASSERT(place_of_[machine] == kNone);  // it was away
    for (std::vector<bool>& bad : bad_) {
        bad[machine] = bad[machine] && !mended;
    }
    pool_.push_back(machine);
    top_up();
}

// Standbys are replaced from the pool behind the job's back: any of it is as good as another.
void Machines::top_up() {
    while (standbys_.size() < static_cast<std::size_t>(recovery_.standbys) && !pool_.empty()) {
        std::swap(pool_[draws_.below(pool_.size())], pool_.back());
        standbys_.push_back(pool_.back());
        pool_.pop_back();
    }
}

std::uint32_t Machines::present() const {
    return static_cast<std::uint32_t>(
        std::count_if(places_.begin(), places_.end(), [](std::uint32_t machine) { return machine != kNone; }));
}

double Machines::fill(CampaignResult& counts) {
    double longest = 0;
    for (std::uint32_t place = 0; place < places_.size(); ++place) {
        if (places_[place] != kNone) {
            continue;
        }
        std::uint32_t machine = take(standbys_, place);
        if (machine == kNone) {
            machine = take(pool_, place);
            if (machine != kNone) {
                longest = std::max(longest, recovery_.join_s);
                ++counts.pool_joins;
            }
        }
        if (machine == kNone) {
            machine = take(spares_, place);
            if (machine != kNone) {
                longest = std::max(longest, recovery_.borrow_s);
                ++counts.borrowed;
            }
        }
        if (machine == kNone) {
            if (kinds_.empty()) {
                break;
            }
            continue;
        }
        places_[place] = machine;
        place_of_[machine] = place;
        ORRERY_ASSERT(places_[place] == machine && place_of_[machine] == place);
        ++counts.replaced;
    }
    top_up();
    return longest;
}

void Machines::compact(std::uint32_t nodes) {
    std::vector<std::uint32_t> kept;
    for (const std::uint32_t machine : places_) {
        if (machine == kNone) {
            continue;
        }
        if (kept.size() < nodes) {
            place_of_[machine] = static_cast<std::uint32_t>(kept.size());
            kept.push_back(machine);
        } else {
            place_of_[machine] = kNone;
            standbys_.push_back(machine);
        }
    }
    ORRERY_ASSERT(kept.size() == nodes);
    places_ = std::move(kept);
}

std::vector<std::uint32_t> Machines::present_of() const {
    std::vector<std::uint32_t> out(kinds_.size());
    for (std::uint32_t place = 0; place < places_.size(); ++place) {
        out[kind_of(place)] += places_[place] == kNone ? 0 : 1;
    }
    return out;
}

std::vector<std::uint32_t> Machines::most_of() const {
    std::vector<std::uint32_t> out = present_of();
    ORRERY_ASSERT(out.size() == kinds_.size());
    for (const std::vector<std::uint32_t>* list : {&standbys_, &pool_}) {
        for (const std::uint32_t machine : *list) {
            ++out[kind_of(machine)];
        }
    }
    return out;
}

void Machines::compact(const std::vector<std::uint32_t>& nodes) {
    std::uint32_t first = 0;
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
        std::uint32_t kept = 0;
        for (std::uint32_t place = first; place < first + kinds_[kind]; ++place) {
            const std::uint32_t machine = places_[place];
            if (machine == kNone) {
                continue;
            }
            places_[place] = kNone;
            if (kept < nodes[kind]) {
                places_[first + kept] = machine;
                place_of_[machine] = first + kept++;
            } else {
                place_of_[machine] = kNone;
                standbys_.push_back(machine);
            }
        }
        ORRERY_ASSERT(kept == nodes[kind]);
        first += kinds_[kind];
    }
}

void Machines::widen(std::uint32_t nodes) {
    places_.resize(std::max<std::size_t>(places_.size(), nodes), kNone);
}

}  // namespace orrery::faults
