#include "workloads/faults/fleet.hpp"

#include <algorithm>

namespace orrery::faults {

Machines::Machines(const FaultsSpec& spec, std::uint32_t nodes, std::vector<std::uint32_t> kinds, std::uint64_t seed)
    : SparePool(spec.recovery, nodes, seed, "faults/repair", "faults/pool") {
    kinds_ = std::move(kinds);
    present_ = nodes;
    ORRERY_ASSERT(kinds_.size() == 1 || available() == 0);
    const auto machines = static_cast<std::uint32_t>(nodes + available());
    place_of_.assign(machines, kNone);
    for (std::uint32_t machine = 0; machine < nodes; ++machine) {
        place_of_[machine] = machine;
        places_.push_back(machine);
    }
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
    --present_;
}

void Machines::give_back(std::uint32_t machine, bool mended) {
    ORRERY_ASSERT(place_of_[machine] == kNone);  // it was away
    for (std::vector<bool>& bad : bad_) {
        bad[machine] = bad[machine] && !mended;
    }
    SparePool::give_back(machine);
}

double Machines::fill() {
    double longest = 0;
    for (std::uint32_t place = 0; place < places_.size(); ++place) {
        if (places_[place] != kNone) {
            continue;
        }
        const Taken taken = take(kind_of(place));
        if (taken.machine == kNone) {
            continue;
        }
        longest = std::max(longest, taken.after_s);
        places_[place] = taken.machine;
        place_of_[taken.machine] = place;
        ++replaced_;
        ++present_;
    }
    top_up();
    return longest;
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
    for (const std::vector<std::uint32_t>& tier : free_) {
        for (const std::uint32_t machine : tier) {
            const std::uint32_t kind = kind_of(machine);
            out[kind] = std::min(out[kind] + 1, kinds_[kind]);
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
                --present_;
                place_of_[machine] = kNone;
                free_[standby].push_back(machine);
            }
        }
        ORRERY_ASSERT(kept == nodes[kind]);
        first += kinds_[kind];
    }
}

}  // namespace orrery::faults
