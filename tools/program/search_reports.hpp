#pragma once
// What searches found, as reports: plan, capacity and recommend.

#include "tools/plan/capacity.hpp"
#include "tools/plan/recommend.hpp"
#include "tools/plan/search.hpp"
#include "tools/plan/serving_search.hpp"

#include <string>

namespace orrery::program {

/// `price`: USD per GPU hour; 0: not known.
[[nodiscard]] std::string plan_report(const PlanSearch& search, const Scenario& scenario, double price);
/// `rule`: what must hold, in words.
[[nodiscard]] std::string serving_plan_report(const ServingSearch& search, const Scenario& scenario,
                                              const std::string& rule);
[[nodiscard]] std::string capacity_report(const Capacity& capacity, const Scenario& scenario, const std::string& rule);
[[nodiscard]] std::string recommend_report(const RecommendSearch& search, const Scenario& scenario,
                                           const std::string& rule);

}  // namespace orrery::program
