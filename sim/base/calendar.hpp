#pragma once
// Days of the Gregorian calendar, for stamps in files.

#include "sim/base/namespaces.hpp"

#include <optional>

namespace orrery::base {

/// Days from 1970-01-01 to this day; nothing where there is no such day (month 13, 30 February).
/// Source: Hinnant, "chrono-Compatible Low-Level Date Algorithms", days_from_civil.
[[nodiscard]] constexpr std::optional<int> days_since_1970(int year, int month, int day) {
    constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (year < 0 || year > 9999 || month < 1 || month > 12 || day < 1 ||
        day > kDays[month - 1] + (month == 2 && leap ? 1 : 0)) {
        return std::nullopt;
    }
    const int shifted = month <= 2 ? year - 1 : year;
    const int era = (shifted >= 0 ? shifted : shifted - 399) / 400;
    const int of_era = shifted - era * 400;
    const int of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/// The time of a day in seconds; nothing where there is no such time (24:00:00). A minute may have a 61st second.
[[nodiscard]] constexpr std::optional<int> seconds_of_day(int hour, int minute, int second) {
    const bool there = hour >= 0 && hour < 24 && minute >= 0 && minute < 60 && second >= 0 && second <= 60;
    return there ? std::optional((hour * 60 + minute) * 60 + second) : std::nullopt;
}

}  // namespace orrery::base
