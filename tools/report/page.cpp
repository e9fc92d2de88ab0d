#include "tools/report/page.hpp"

#include "sim/base/error.hpp"
#include "sim/config/units.hpp"
#include "tools/report/resources.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <tuple>

namespace orrery::report {

namespace {

void replace(std::string& text, const std::string& mark, std::string_view by) {
    const auto at = text.find(mark);
    ORRERY_ASSERT(at != std::string::npos);
    text.replace(at, mark.size(), by);
}

// 101140 as "101,140".
std::string grouped(double value) {
    std::string digits = fmt::format("{:.0f}", value);
    for (std::size_t at = digits.size(); at > 3 && digits[at - 4] != '-';) {
        at -= 3;
        digits.insert(at, ",");
    }
    return digits;
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
    // Campaigns take days.
    constexpr double kHour = 3600;
    for (const auto& [unit, size, from] : {std::tuple{"d", 24 * kHour, 72 * kHour}, {"h", kHour, 3 * kHour}}) {
        if (std::abs(seconds) >= from) {
            return fmt::format("{:.4g} {}", seconds / size, unit);
        }
    }
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
    const std::string number = std::abs(value) >= 1e5 || (std::abs(value) >= 1e4 && value == std::floor(value))
                                   ? grouped(value)
                                   : fmt::format("{:.5g}", value);
    // Counts say in their names what they count.
    const bool counted = unit == "requests" || unit == "iterations" || unit == "preemptions" || unit == "packets";
    return fmt::format("{}{}", number, unit == "1" || counted ? "" : unit == "1/s" ? " /s" : " " + unit);
}

}  // namespace orrery::report
