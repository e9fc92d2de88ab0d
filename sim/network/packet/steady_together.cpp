// Groups of many flows, judged by their sums.
//
// Claims: the sums over a group of what receivers have got, and of what is on its way to them, must be as steady as those of a single flow.
// A flow's own rate is then its mean over the three stretches, drawn towards that of its NIC, and a NIC's towards that of the
// group: as far as the means differ no more than chance lets them, which the three stretches of each show. So flows that take turns
// get one rate, and flows that differ keep theirs.
// Where queues grew by a share of what was sent, rates are taken in the middle between sending and receiving, as either may be what lasts.
// Error: the variance that is left after this, the spread and trend of the sums, half of the share that queues took, and what chance
// would have added to a NIC's flows in the time skipped, as their means differ by now: a walk, which grows with the root of time.
// Limits: a port whose queue grows among thousands that are steady is not seen. Flows whose rates differ by chance end nearer to
// each other than without skipping. What begins as such a group did is observed anew.
// Source: Efron and Morris, "Stein's estimation rule and its competitors: an empirical Bayes approach", JASA 68 (1973).

#include "sim/base/error.hpp"
#include "sim/network/packet/steady.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace orrery::network::packet {

namespace {

constexpr std::size_t kMany = 128;      // flows: fewer say too little of chance
constexpr std::int64_t kLooks = 8;      // in the time that a large group has been observed
constexpr double kPacketsEach = 3;      // of every flow in the three stretches at least
constexpr double kLeastWindows = 2;     // to be skipped
constexpr double kWorstFlow = 4;        // times the tolerance, of single flows
constexpr std::size_t kLeastNics = 16;  // that show how much NICs differ

// A kind of estimate, many of it: how much of a difference from their mean is true.
struct Chance {
    double within = 0;   // variance of the estimates by chance, summed
    double between = 0;  // squares of their differences, summed
    double count = 0;
    double free = 0;  // differences that are independent

    [[nodiscard]] double noise() const { return count > 0 ? within / count : 0; }
    [[nodiscard]] double truth() const {
        const double all = free > 0 ? between / free : 0;
        return all > noise() ? 1 - noise() / all : 0;
    }
};

}  // namespace

// Large groups are looked at the less often the longer they last: each look takes them all in.
std::int64_t Steady::next_look(const Group& group) const {
    const Track& track = tracks_[group.flows.front()];
    if (group.flows.size() < kMany || track.past.empty()) {
        return window_;
    }
    return std::max(window_, (clock_.now - static_cast<std::int64_t>(track.past.front().at)) / kLooks);
}

std::int64_t Steady::judge_together(const Group& group) {
    const std::vector<Snapshot>& past = tracks_[group.flows.front()].past;
    const bool alike = std::all_of(group.flows.begin(), group.flows.end(), [&](std::uint32_t id) {
        const std::vector<Snapshot>& other = tracks_[id].past;
        return other.size() == past.size() && other.front().at == past.front().at;
    });
    if (group.flows.size() < kMany || !alike) {
        return 0;
    }
    Together best;
    const double now = past.back().at;
    for (double length = 2 * static_cast<double>(window_); now - 3 * length >= past.front().at - 1; length *= 2) {
        std::size_t ends[4] = {past.size() - 1};
        for (std::size_t k = 1; k < 4; ++k) {
            const auto later = std::upper_bound(past.begin(), past.end(), now - static_cast<double>(k) * length + 1,
                                                [](double at, const Snapshot& one) { return at < one.at; });
            ORRERY_ASSERT(later != past.begin());
            ends[k] = static_cast<std::size_t>(later - past.begin()) - 1;
        }
        if (ends[0] > ends[1] && ends[1] > ends[2] && ends[2] > ends[3]) {
            if (Together found = judge_together(group, ends); found.most > best.most) {
                best = std::move(found);
            }
        }
    }
    ORRERY_ASSERT(best.rates.empty() || best.rates.size() == group.flows.size());
    double most = best.most;
    for (std::size_t i = 0; i < best.rates.size(); ++i) {
        Track& track = tracks_[group.flows[i]];
        track.together = true;
        track.rate = best.rates[i];
        track.spread = best.spread + 2 * best.noise / track.rate;
        track.trend = best.trend;
        track.doubt = best.doubt;
        most = std::min(most, time_left(group.flows[i]));
    }
    if (most < kLeastWindows * static_cast<double>(window_)) {
        return 0;
    }
    // Whole packets of flows at the mean rate.
    ORRERY_ASSERT(best.mean > 0);
    const double packet = setup_.full / best.mean;
    most = most < packet ? most : std::ceil(std::floor(most / packet) * packet);
    // What chance adds to a NIC's flows in that time, they are held without: it grows with the root of time.
    const double chance = best.chance / std::sqrt(most);
    if (chance > best.spare) {
        return 0;
    }
    for (const std::uint32_t id : group.flows) {
        tracks_[id].spread += 2 * chance;
    }
    return static_cast<std::int64_t>(most);
}

Steady::Together Steady::judge_together(const Group& group, const std::size_t (&ends)[4]) const {
    struct Nic {
        double came[3] = {};  // bytes per ps in each stretch, all its flows
        double flows = 0;
        [[nodiscard]] double mean() const { return (came[0] + came[1] + came[2]) / 3 / flows; }
    };
    std::map<std::uint32_t, Nic> nics;
    Nic all;
    double under_way = 0;
    double bytes = 0;
    double lag = 0;
    const auto rate = [&](std::uint32_t id, std::size_t k) {
        const Snapshot& end = tracks_[id].past[ends[k]];
        const Snapshot& begin = tracks_[id].past[ends[k + 1]];
        return (end.came - begin.came) / (end.at - begin.at);
    };
    for (const std::uint32_t id : group.flows) {
        const Snapshot& end = tracks_[id].past[ends[0]];
        const Snapshot& begin = tracks_[id].past[ends[3]];
        if (end.came - begin.came < kPacketsEach * setup_.full) {
            return {};
        }
        bytes += end.came - begin.came;
        under_way += end.sent - end.came - (begin.sent - begin.came);
        lag = std::max(lag, std::abs(tracks_[id].lag));
        for (Nic* const sum : {&nics[flows_[id].source], &all}) {
            for (std::size_t k = 0; k < 3; ++k) {
                sum->came[k] += rate(id, k);
            }
            ++sum->flows;
        }
    }
    const double mean = all.mean();
    const auto [least, largest] = std::minmax_element(all.came, all.came + 3);
    Together out;
    out.mean = mean;
    out.spread = (*largest - *least) / mean / all.flows;
    const double whole = tracks_[group.flows.front()].past[ends[0]].at - tracks_[group.flows.front()].past[ends[3]].at;
    out.trend = (all.came[0] - all.came[2]) / mean / all.flows / (whole * 2 / 3);
    // What queues take in or give back is missing at, or more than, what receivers got.
    const double queued = under_way / bytes;
    if (!(out.spread < tolerance_) || std::abs(queued) > tolerance_) {
        return {};
    }
    out.doubt = std::abs(queued);
    Chance of_flows;
    Chance of_nics;
    const auto squares = [](const double(&parts)[3], double of) {  // variance of the mean of three parts
        double sum = 0;
        for (const double part : parts) {
            sum += (part - of) * (part - of);
        }
        return sum / 2 / 3;
    };
    for (const std::uint32_t id : group.flows) {
        const double parts[3] = {rate(id, 0), rate(id, 1), rate(id, 2)};
        const double own = (parts[0] + parts[1] + parts[2]) / 3;
        const double of_nic = nics[flows_[id].source].mean();
        of_flows.within += squares(parts, own);
        of_flows.between += (own - of_nic) * (own - of_nic);
        out.rates.push_back(own);
    }
    of_flows.count = all.flows;
    of_flows.free = all.flows - static_cast<double>(nics.size());
    for (auto& [id, nic] : nics) {
        const double parts[3] = {nic.came[0] / nic.flows, nic.came[1] / nic.flows, nic.came[2] / nic.flows};
        of_nics.within += squares(parts, nic.mean());
        of_nics.between += (nic.mean() - mean) * (nic.mean() - mean);
    }
    of_nics.count = static_cast<double>(nics.size());
    of_nics.free = of_nics.count - 1;
    const double flows_differ = of_flows.truth();
    const double nics_differ = nics.size() < kLeastNics ? 1 : of_nics.truth();
    double slowest = mean;
    for (std::size_t i = 0; i < group.flows.size(); ++i) {
        const double of_nic = nics[flows_[group.flows[i]].source].mean();
        out.rates[i] = mean + nics_differ * (of_nic - mean) + flows_differ * (out.rates[i] - of_nic);
        out.rates[i] *= 1 + queued / 2;
        slowest = std::min(slowest, out.rates[i]);
    }
    out.noise = std::sqrt(flows_differ * of_flows.noise() + nics_differ * of_nics.noise());
    const double spare = tolerance_ - out.spread / 2 - out.doubt / 2 - out.noise / mean - lag;
    out.spare = spare;
    out.chance = std::sqrt(of_nics.free > 0 ? of_nics.between / of_nics.free * whole : 0) / mean;
    if (slowest > 0 && out.noise / slowest < kWorstFlow * tolerance_ && spare > 0) {
        out.most = out.trend != 0 ? spare / std::abs(out.trend) : static_cast<double>(Wheel::kNever / 2);
    }
    return out;
}

}  // namespace orrery::network::packet
