#include "sim/config/units.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <tuple>

namespace orrery::config {

namespace {

struct Unit {
    Dimension dimension;
    const char* name;
    double factor;
};

constexpr double kKibi = 1024.0;
constexpr Unit kUnits[] = {
    {Dimension::time, "ps", 1e-12},
    {Dimension::time, "ns", 1e-9},
    {Dimension::time, "us", 1e-6},
    {Dimension::time, "ms", 1e-3},
    {Dimension::time, "s", 1},
    {Dimension::time, "min", 60},
    {Dimension::time, "h", 3600},
    {Dimension::time, "d", 86400},
    {Dimension::bytes, "B", 1},
    {Dimension::bytes, "kB", 1e3},
    {Dimension::bytes, "MB", 1e6},
    {Dimension::bytes, "GB", 1e9},
    {Dimension::bytes, "TB", 1e12},
    {Dimension::bytes, "KiB", kKibi},
    {Dimension::bytes, "MiB", kKibi* kKibi},
    {Dimension::bytes, "GiB", kKibi* kKibi* kKibi},
    {Dimension::bytes, "TiB", kKibi* kKibi* kKibi* kKibi},
    {Dimension::rate, "bps", 0.125},
    {Dimension::rate, "kbps", 0.125e3},
    {Dimension::rate, "Mbps", 0.125e6},
    {Dimension::rate, "Gbps", 0.125e9},
    {Dimension::rate, "Tbps", 0.125e12},
    {Dimension::rate, "B/s", 1},
    {Dimension::rate, "kB/s", 1e3},
    {Dimension::rate, "MB/s", 1e6},
    {Dimension::rate, "GB/s", 1e9},
    {Dimension::rate, "TB/s", 1e12},
    {Dimension::rate, "MiB/s", kKibi* kKibi},
    {Dimension::rate, "GiB/s", kKibi* kKibi* kKibi},
    {Dimension::flops, "GFLOP/s", 1e9},
    {Dimension::flops, "TFLOP/s", 1e12},
    {Dimension::flops, "PFLOP/s", 1e15},
    {Dimension::flops, "FLOP/s", 1},
    {Dimension::frequency, "Hz", 1},
    {Dimension::frequency, "kHz", 1e3},
    {Dimension::frequency, "MHz", 1e6},
    {Dimension::frequency, "GHz", 1e9},
    {Dimension::power, "W", 1},
    {Dimension::power, "kW", 1e3},
    {Dimension::power, "MW", 1e6},
    {Dimension::fraction, "%", 0.01},
};

std::string join_units(Dimension dimension) {
    std::string out;
    for (const std::string& name : unit_names(dimension)) {
        out += (out.empty() ? "" : ", ") + name;
    }
    return out;
}

const char* dimension_name(Dimension dimension) {
    switch (dimension) {
        case Dimension::time:
            return "a time";
        case Dimension::bytes:
            return "a size in bytes";
        case Dimension::rate:
            return "a data rate";
        case Dimension::flops:
            return "a compute rate";
        case Dimension::frequency:
            return "a frequency";
        case Dimension::power:
            return "a power";
        case Dimension::fraction:
            return "a fraction";
        case Dimension::number:
            return "a number";
    }
    return "a quantity";
}

}  // namespace

const char* base_unit(Dimension dimension) {
    switch (dimension) {
        case Dimension::time:
            return "s";
        case Dimension::bytes:
            return "B";
        case Dimension::rate:
            return "B/s";
        case Dimension::flops:
            return "FLOP/s";
        case Dimension::frequency:
            return "Hz";
        case Dimension::power:
            return "W";
        case Dimension::fraction:
        case Dimension::number:
            return "";
    }
    return "";
}

std::vector<std::string> unit_names(Dimension dimension) {
    std::vector<std::string> names;
    for (const Unit& unit : kUnits) {
        if (unit.dimension == dimension) {
            names.emplace_back(unit.name);
        }
    }
    return names;
}

bool parse_number(std::string_view text, double& value) {
    if (text.empty() || text.size() > 64) {
        return false;
    }
    std::string_view digits = text;
    if (digits.front() == '-' || digits.front() == '+') {
        digits.remove_prefix(1);
    }
    // from_chars would take "inf" and "nan"; a leading zero before another digit looks octal.
    if (digits.empty() || ((digits[0] < '0' || digits[0] > '9') && digits[0] != '.') ||
        (digits.size() > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9')) {
        return false;
    }
    const char* begin = text.data() + (text.front() == '+' ? 1 : 0);
    const char* end = text.data() + text.size();
    const auto result = std::from_chars(begin, end, value);
    return result.ec == std::errc() && result.ptr == end && std::isfinite(value);
}

bool parse_quantity(std::string_view text, Dimension dimension, double& value, std::string& problem, ErrorCode* code) {
    const auto fail = [&](ErrorCode kind, std::string why) {
        problem = std::move(why);
        if (code != nullptr) {
            *code = kind;
        }
        return false;
    };
    std::size_t split = 0;
    while (split < text.size() && (std::isdigit(static_cast<unsigned char>(text[split])) != 0 || text[split] == '.' ||
                                   text[split] == '-' || text[split] == '+' ||
                                   ((text[split] == 'e' || text[split] == 'E') && split + 1 < text.size() &&
                                    (std::isdigit(static_cast<unsigned char>(text[split + 1])) != 0 ||
                                     text[split + 1] == '-' || text[split + 1] == '+')))) {
        ++split;
    }
    std::string_view unit = text.substr(split);
    while (!unit.empty() && unit.front() == ' ') {
        unit.remove_prefix(1);
    }
    // The micro sign and the Greek letter, as people and other programs write them.
    std::string plain;
    for (const std::string_view micro : {"\u00b5", "\u03bc"}) {
        if (unit.starts_with(micro)) {
            plain = "u" + std::string(unit.substr(micro.size()));
            unit = plain;
        }
    }
    double number = 0;
    if (!parse_number(text.substr(0, split), number)) {
        return dimension == Dimension::number
                   ? fail(ErrorCode::wrong_type, fmt::format("'{}' is not a number", text))
                   : fail(ErrorCode::wrong_unit, fmt::format("'{}' is not {}; write a number and a unit ({})", text,
                                                             dimension_name(dimension), join_units(dimension)));
    }
    if (unit.empty()) {
        if (*base_unit(dimension) == '\0' || number == 0) {
            value = number;
            return true;
        }
        return fail(ErrorCode::wrong_unit, fmt::format("'{}' has no unit; {} is written with one of {}", text,
                                                       dimension_name(dimension), join_units(dimension)));
    }
    if (dimension == Dimension::number) {
        return fail(ErrorCode::wrong_unit, fmt::format("'{}' has a unit; expected a plain number", text));
    }
    for (const Unit& candidate : kUnits) {
        if (unit == candidate.name) {
            if (candidate.dimension != dimension) {
                return fail(ErrorCode::wrong_unit, fmt::format("'{}' has the wrong kind of unit; expected {} ({})",
                                                               text, dimension_name(dimension), join_units(dimension)));
            }
            value = number * candidate.factor;
            if (!std::isfinite(value)) {
                return fail(ErrorCode::out_of_range, fmt::format("'{}' is too large", text));
            }
            return true;
        }
    }
    const std::string nearest = nearest_name(unit, unit_names(dimension));
    return fail(ErrorCode::wrong_unit, fmt::format("unknown unit '{}'{}; {} is written with one of {}", unit,
                                                   nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest),
                                                   dimension_name(dimension), join_units(dimension)));
}

std::string format_quantity(double value, Dimension dimension) {
    const char* unit = base_unit(dimension);
    return *unit == '\0' ? fmt::format("{}", value) : fmt::format("{} {}", value, unit);
}

std::string pretty_quantity(double value, Dimension dimension) {
    if (std::isnan(value)) {
        return "not known";
    }
    if (dimension == Dimension::fraction) {
        return fmt::format("{:.4g} %", value * 100);
    }
    if (dimension == Dimension::time) {
        // From where a number of the smaller unit is harder to grasp: 600 s are 10 min, 5,400 s are 90 min. Bounds of keys, such as
        // 1e9 s, stay as they are said.
        constexpr std::tuple<double, double, const char*> kLong[] = {
            {259'200, 86'400, "d"}, {10'800, 3600, "h"}, {600, 60, "min"}};
        const bool bound = std::abs(value) >= 1e6 && std::stod(fmt::format("{:.1g}", value)) == value;
        for (const auto& [from, factor, name] : kLong) {
            if (std::abs(value) >= from && std::isfinite(value) && !bound) {
                return fmt::format("{:.4g} {}", value / factor, name);
            }
        }
    }
    const Unit* best = nullptr;
    for (const Unit& unit : kUnits) {
        const bool binary = std::string_view(unit.name).find('i') != std::string_view::npos &&
                            (dimension == Dimension::bytes || dimension == Dimension::rate);
        const bool bits =
            dimension == Dimension::rate && std::string_view(unit.name).find("bps") != std::string_view::npos;
        const bool wanted = dimension == Dimension::bytes ? binary || unit.factor == 1 : !binary && !bits;
        if (unit.dimension == dimension && wanted && std::abs(value) >= unit.factor * 0.9999 &&
            (best == nullptr || unit.factor > best->factor) && unit.factor <= 1e15 &&
            (dimension != Dimension::time || unit.factor <= 1)) {
            best = &unit;
        }
    }
    return best == nullptr ? fmt::format("{:.4g} {}", value, base_unit(dimension))
                           : fmt::format("{:.4g} {}", value / best->factor, best->name);
}

}  // namespace orrery::config
