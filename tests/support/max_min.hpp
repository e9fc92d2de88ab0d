#pragma once
// Max-min fairness by brute force: the oracle of the fluid model.

#include "sim/base/random.hpp"
#include "sim/engine/resource_model.hpp"

#include <algorithm>
#include <vector>

namespace orrery::test {

struct Case {
    std::vector<double> capacities;
    std::vector<std::vector<Demand>> flows;
    std::vector<double> bounds;
};

// Textbook progressive filling: raise all rates together, freeze what saturates.
inline std::vector<double> brute_force(const Case& c) {
    std::vector<double> rate(c.flows.size(), -1);
    std::vector<double> left = c.capacities;
    for (;;) {
        double level = 1e300;
        for (std::size_t r = 0; r < left.size(); ++r) {
            double weight = 0;
            for (std::size_t f = 0; f < c.flows.size(); ++f) {
                for (const Demand& d : c.flows[f]) {
                    weight += rate[f] < 0 && d.resource.value() == r ? d.weight : 0;
                }
            }
            if (weight > 0) {
                level = std::min(level, left[r] / weight);
            }
        }
        for (std::size_t f = 0; f < c.flows.size(); ++f) {
            if (rate[f] < 0) {
                level = std::min(level, c.bounds[f]);
            }
        }
        if (level > 1e299) {
            return rate;
        }
        std::vector<std::size_t> frozen;
        for (std::size_t f = 0; f < c.flows.size(); ++f) {
            bool stop = rate[f] < 0 && c.bounds[f] <= level * (1 + 1e-12);
            for (const Demand& d : c.flows[f]) {
                double weight = 0;
                for (std::size_t g = 0; g < c.flows.size(); ++g) {
                    for (const Demand& e : c.flows[g]) {
                        weight += rate[g] < 0 && e.resource == d.resource ? e.weight : 0;
                    }
                }
                stop = stop || (rate[f] < 0 && left[d.resource.value()] / weight <= level * (1 + 1e-12));
            }
            if (stop) {
                frozen.push_back(f);
            }
        }
        for (const std::size_t f : frozen) {
            rate[f] = level;
            for (const Demand& d : c.flows[f]) {
                left[d.resource.value()] -= d.weight * level;
            }
        }
    }
}

inline Case random_case(RandomStream& random) {
    Case c;
    const std::size_t resources = 1 + random.below(8);
    for (std::size_t i = 0; i < resources; ++i) {
        c.capacities.push_back(1 + static_cast<double>(random.below(20)));
    }
    const std::size_t flows = 1 + random.below(14);
    for (std::size_t f = 0; f < flows; ++f) {
        std::vector<Demand> demands;
        for (std::uint32_t r = 0; r < resources; ++r) {
            if (random.below(3) == 0) {
                demands.push_back(Demand{ResourceId(r), random.below(2) == 0 ? 1.0 : 0.25 + random.uniform()});
            }
        }
        const double bound =
            random.below(4) == 0 || demands.empty() ? 0.5 + 5 * random.uniform() : ResourceModel::kUnbounded;
        c.flows.push_back(std::move(demands));
        c.bounds.push_back(bound);
    }
    return c;
}

}  // namespace orrery::test
