#include "tools/report/page.hpp"
#include "tools/report/report.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>

namespace orrery::report {

using namespace report;
using Json = nlohmann::ordered_json;

std::string check_report(const std::vector<BaselineOutcome>& outcomes) {
    const auto passed =
        static_cast<double>(std::count_if(outcomes.begin(), outcomes.end(), [](const auto& o) { return o.passed(); }));
    const double all = static_cast<double>(outcomes.size());
    Json rows = Json::array();
    std::vector<std::string> metrics;
    Json moves = Json::array();
    Json causes = Json::array();
    std::string worst;
    std::string without_cause;
    for (const BaselineOutcome& outcome : outcomes) {
        const std::string name = std::filesystem::path(outcome.baseline.path).stem().string();
        if (!outcome.error.empty()) {
            rows.push_back({name, "run", nullptr, nullptr, nullptr, nullptr, "FAILED: " + outcome.error});
        }
        for (const MetricOutcome& m : outcome.metrics) {
            metrics.push_back(m.expected.name);
            const auto known = [&](double value) { return m.known() ? Json(rounded(value)) : Json(); };
            rows.push_back({name, m.expected.name, rounded(m.expected.value), known(m.now), known(100 * m.change),
                            rounded(100 * m.expected.tolerance), verdict_name(m.verdict)});
            if (m.change != 0) {
                moves.push_back({{"name", name + ": " + m.expected.name},
                                 {"value", rounded(100 * m.change)},
                                 {"text", fmt::format("{:+.3g} % ({})", 100 * m.change, verdict_name(m.verdict))},
                                 {"colour", m.verdict == Verdict::regressed ? "#d55e00" : "#009e73"}});
            }
        }
        for (const ExpectationOutcome& one : outcome.expectations) {
            if (!one.met) {
                const Metric& now = one.metric;
                metrics.push_back(now.name);
                rows.push_back({name, now.name, nullptr, now.measured() ? Json(rounded(now.value)) : Json(), nullptr,
                                nullptr, "NOT AS EXPECTED: " + one.expected});
            }
        }
        if (without_cause.empty()) {
            without_cause = why_without_cause(outcome);
        }
        for (const ChangeCause& cause : outcome.causes) {
            causes.push_back(name + ": " + cause_text(cause));
            if (worst.empty() && !outcome.passed()) {
                worst = cause_text(cause);
            }
        }
    }
    Json blocks = Json::array();
    blocks.push_back({{"kind", "tiles"},
                      {"items",
                       {Tile{"baselines that hold", passed, fmt::format("{:.0f} of {:.0f}", passed, all)},
                        Tile{"metrics that moved", static_cast<double>(moves.size()), std::to_string(moves.size())}}}});
    if (!moves.empty()) {
        blocks.push_back({{"kind", "bars"}, {"title", "What moved"}, {"items", moves}});
    }
    if (!causes.empty()) {
        blocks.push_back({{"kind", "text"}, {"title", "Inputs that changed"}, {"lines", causes}});
    }
    blocks.push_back({{"kind", "table"},
                      {"title", "Metrics"},
                      {"columns", {"baseline", "metric", "expected", "now", "change, %", "tolerance, %", "verdict"}},
                      {"meanings", meanings_of<Json>(metrics)},
                      {"rows", rows}});
    const std::string verdict = passed == all
                                    ? "Every baseline holds."
                                    : fmt::format("{:.0f} of {:.0f} baselines do not hold{}.", all - passed, all,
                                                  worst.empty() ? "; " + without_cause : "; first cause: " + worst);
    return page("Baselines", "orrery check", verdict, blocks);
}

}  // namespace orrery::report
