#include "validation/energy/limit_sweeps.hpp"

#include "sim/base/math.hpp"
#include "sim/record/facts_table.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace orrery::validation {

namespace {

using Constants = std::array<double, LimitLaw::kConstants>;

LimitLaw law_of(const Constants& c) {
    return {c[0], c[1], c[2], c[3], c[4]};
}

bool possible(const Constants& c) {
    return c[1] >= 20 && c[0] >= c[1] + 20 && c[2] >= 10 && c[2] <= 98 && c[3] >= 0.8 && c[3] <= 4 && c[4] > 0 &&
           c[4] <= 1;
}

double error_over(const LimitLaw& law, const std::vector<LimitPoint>& points) {
    double sum = 0;
    for (const LimitPoint& point : points) {
        const LimitLaw::Relative found = law.at(point.limit, point.unlimited);
        sum += std::abs(found.time / point.time - 1) + std::abs(found.energy / point.energy - 1);
    }
    return sum / static_cast<double>(points.size());
}

}  // namespace

LimitLaw::Relative LimitLaw::at(double limit, double unlimited) const {
    const double busy_w = std::max(busy, unlimited);
    const double share = std::clamp((unlimited - other) / (busy_w - other), 0.0, 1.0);
    const double held = std::min(limit, busy_w);
    const double clock = pow_pinned(std::max((held - fixed) / (busy_w - fixed), 5e-4), 1 / exponent);
    const double slower = bound / clock + 1 - bound;
    return {share * slower + 1 - share,
            (share * slower * held + (1 - share) * std::min({other, unlimited, limit})) / unlimited};
}

LimitLaw fit_limit_law(const std::vector<LimitPoint>& points, double highest) {
    Constants best{};
    double least = INFINITY;
    for (const Constants& start : {Constants{0.9 * highest, 70, 60, 2, 0.7}, Constants{0.8 * highest, 50, 40, 3, 1},
                                   Constants{0.95 * highest, 80, 80, 1.5, 0.5}}) {
        Constants at = start;
        Constants step = {20, 20, 15, 0.5, 0.2};
        double error = error_over(law_of(at), points);
        while (step[0] > 0.3) {
            bool better = false;
            for (std::size_t i = 0; i < at.size(); ++i) {
                for (const double sign : {1.0, -1.0}) {
                    Constants next = at;
                    next[i] += sign * step[i];
                    const double found = possible(next) ? error_over(law_of(next), points) : INFINITY;
                    if (found < error) {
                        error = found;
                        at = next;
                        better = true;
                    }
                }
            }
            if (!better) {
                for (double& one : step) {
                    one /= 2;
                }
            }
        }
        if (error < least) {
            least = error;
            best = at;
        }
    }
    return law_of(best);
}

std::vector<LimitSweep> read_limit_sweeps(const std::string& path) {
    struct Row {
        std::string gpu, network, key;
        double limit, seconds, watts;
    };
    std::vector<Row> rows;
    std::map<std::string, double> highest;
    for (const FactsRow& row : read_facts_table(path)) {
        const std::string gpu = row.text("gpu");
        rows.push_back({gpu, row.text("network"),
                        gpu + "/" + row.text("network") + "/" + row.text("dataset") + "/" + row.text("optimizer") +
                            "/" + row.text("batch"),
                        row.number("limit_w"), row.number("seconds"), row.number("watts")});
        highest[gpu] = std::max(highest[gpu], rows.back().limit);
    }
    std::map<std::string, const Row*> unlimited;
    for (const Row& row : rows) {
        if (row.limit == highest[row.gpu]) {
            unlimited[row.key] = &row;
        }
    }
    std::map<std::string, LimitSweep> sweeps;
    for (const Row& row : rows) {
        const auto found = unlimited.find(row.key);
        if (found == unlimited.end() || found->second == &row) {
            continue;
        }
        const Row& base = *found->second;
        LimitSweep& sweep = sweeps[row.gpu];
        sweep.gpu = row.gpu;
        sweep.highest = highest[row.gpu];
        const LimitPoint point{row.limit, base.watts, row.seconds / base.seconds,
                               row.seconds * row.watts / (base.seconds * base.watts)};
        (row.network.rfind("bert", 0) == 0 ? sweep.scored : sweep.fitted).push_back(point);
    }
    std::vector<LimitSweep> out;
    for (auto& [gpu, sweep] : sweeps) {
        out.push_back(std::move(sweep));
    }
    return out;
}

}  // namespace orrery::validation
