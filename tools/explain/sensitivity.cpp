#include "tools/explain/sensitivity.hpp"

#include "tools/driver/kind.hpp"
#include "tools/explain/explain.hpp"
#include "tools/explain/field_walk.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery::explain {

namespace {

constexpr double kChange = 0.2;

bool unsure(const Sourced<double>& value) {
    return value.value != 0 &&
           (value.how == "assumed" || value.how == "estimated" || value.source.find("recalled") != std::string::npos);
}

// Goes through the unsure constants of a description in its order; changes the `which`-th.
class Nudge final : public FieldWalk {
  public:
    static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

    explicit Nudge(std::size_t which = kNone, double factor = 1) : which_(which), factor_(factor) {}

    std::vector<ConstantEffect> found;

    void sourced(const Field& field, Dimension dimension, Sourced<double>& value) override {
        if (!unsure(value)) {
            return;
        }
        found.push_back({prefix() + field.key, pretty_quantity(value.value, dimension),
                         value.how == "spec" ? "recalled" : value.how});
        if (found.size() - 1 == which_) {
            ORRERY_ASSERT(field.min <= field.max);
            value.value = std::clamp(value.value * factor_, field.min, field.max);
        }
    }

  private:
    std::size_t which_;
    double factor_;
};

double headline_of(const Scenario& scenario, const DataDirectory& data) {
    ModelCache models(data);
    RunOptions options;
    options.check_memory = false;
    return run_scenario(scenario, models, options).summary.find(headline_metric(scenario.kind()))->value;
}

double strength(const ConstantEffect& effect) {
    return std::max(std::abs(effect.lower), std::abs(effect.higher));
}

}  // namespace

Sensitivity sensitivity_of(const Scenario& scenario, const DataDirectory& data) {
    Sensitivity out;
    out.headline = headline_metric(scenario.kind());
    out.seconds = headline_of(scenario, data);
    const auto changed = [&](std::size_t which, double factor) {
        Scenario other = scenario;
        Nudge nudge(which, factor);
        describe(nudge, other);
        ORRERY_ASSERT(which < nudge.found.size());  // the same constants in the same order
        return headline_of(other, data) / out.seconds - 1;
    };
    Scenario as_it_is = scenario;
    Nudge all;
    describe(all, as_it_is);
    for (std::size_t i = 0; i < all.found.size(); ++i) {
        ConstantEffect& effect = all.found[i];
        effect.lower = changed(i, 1 - kChange);
        effect.higher = changed(i, 1 + kChange);
        if (strength(effect) > 0) {
            out.moving.push_back(effect);
        } else {
            ++out.without_effect;
        }
    }
    ORRERY_ASSERT(out.moving.size() + out.without_effect == all.found.size());
    std::stable_sort(out.moving.begin(), out.moving.end(),
                     [](const ConstantEffect& a, const ConstantEffect& b) { return strength(a) > strength(b); });
    return out;
}

}  // namespace orrery::explain
