#include "tools/report/page.hpp"

#include "sim/base/error.hpp"
#include "sim/config/units.hpp"
#include "tools/report/resources.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

namespace orrery::report {

namespace {

void replace(std::string& text, const std::string& mark, std::string_view by) {
    const auto at = text.find(mark);
    ORRERY_ASSERT(at != std::string::npos);
    text.replace(at, mark.size(), by);
}

// From `least` on with k, M, G, T or P, before which `space` stands: "445.1k", "273.4 k".
std::string with_prefix(double value, double least, const char* space) {
    constexpr std::pair<double, char> kPrefixes[] = {{1e15, 'P'}, {1e12, 'T'}, {1e9, 'G'}, {1e6, 'M'}, {1e3, 'k'}};
    for (const auto& [factor, prefix] : kPrefixes) {
        if (std::abs(value) >= std::max(least, factor) && std::isfinite(value)) {
            return fmt::format("{:.4g}{}{}", value / factor, space, prefix);
        }
    }
    return fmt::format("{:.5g}{}", value, space);
}

}  // namespace

std::string page_of(const std::string& title, const std::string& subtitle, const std::string& verdict,
                    const std::string& blocks) {
    const nlohmann::ordered_json head = {{"title", title}, {"subtitle", subtitle}, {"verdict", verdict}};
    std::string data = head.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
    data.pop_back();
    data += ",\"blocks\":" + blocks + "}";
    // A text may hold anything, also the end of a script.
    std::string json;
    for (const char c : data) {
        json += c == '<' ? std::string("\\u003c") : std::string(1, c);
    }
    std::string escaped;
    for (const char c : title) {
        escaped += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
    }
    std::string out(report_page());
    replace(out, "{{TITLE}}", escaped);
    replace(out, "{{STYLE}}", report_style());
    replace(out, "{{CHART}}", chart_script());
    replace(out, "{{SCRIPT}}", report_script());
    replace(out, "{{DATA}}", json);
    return out;
}

double rounded(double value) {
    return std::stod(fmt::format("{:.12g}", value));
}

std::string seconds_text(double seconds) {
    // Less than half a picosecond is the rounding of a sum: nothing simulated is as short.
    return pretty_quantity(std::abs(seconds) < 0.5e-12 ? 0 : seconds, Dimension::time);
}

std::string value_text(double value, const std::string& unit) {
    if (std::isnan(value)) {
        return "not measured";
    }
    if (unit == "s") {
        return seconds_text(value);
    }
    if (unit == "B") {
        return pretty_quantity(value, Dimension::bytes);
    }
    if (unit == "1" && value >= 0 && value <= 1) {
        return fmt::format("{:.4g} %", 100 * value);
    }
    if (unit == "W" || unit == "J") {
        return with_prefix(value, 1e4, " ") + unit;
    }
    if (unit == "1/s") {
        return with_prefix(value, 1e5, "") + "/s";
    }
    for (const char* measured : {"GiB", "TFLOP/s", "Gb/s", "kWh", "USD", "per week", "1/J"}) {
        if (unit == measured) {
            return fmt::format("{:.5g} {}", value, unit);
        }
    }
    const bool whole = value == std::floor(value) && std::abs(value) < 1e6;
    const std::string count = whole ? fmt::format("{:.0f}", value) : with_prefix(value, 1e6, "");
    // Some counts say in their names what they count.
    const bool named = unit == "1" || unit == "requests" || unit == "iterations" || unit == "preemptions" ||
                       unit == "packets" || unit == "interruptions";
    return named ? count : count + " " + unit;
}

}  // namespace orrery::report
