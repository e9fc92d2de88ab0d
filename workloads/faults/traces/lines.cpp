#include "sim/base/calendar.hpp"
#include "sim/base/text.hpp"
#include "sim/record/table_reader.hpp"
#include "workloads/faults/traces/format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>

namespace orrery::faults {

FaultLines::FaultLines(std::string path) : path_(std::move(path)) {
    InputLines file(path_);
    for (std::string line; file.next(line);) {
        if (!line.empty()) {
            lines_.emplace_back(file.number(), line);
        }
    }
    if (lines_.empty()) {
        throw ConfigError({Diagnostic{path_, 0, 1, "the file is empty", ErrorCode::malformed_trace}});
    }
}

bool FaultLines::number(int line, std::string_view text, const char* name, double& out) {
    if (!parse_number(text, out) || out < 0) {
        fail(line, fmt::format("'{}' is no {}", printable(text, 100), name));
        return false;
    }
    return true;
}

bool FaultLines::whole(int line, std::string_view text, const char* name, double& out) {
    if (!parse_number(text, out) || out < 0 || out != std::floor(out)) {
        fail(line, fmt::format("'{}' is no {}, which is a whole number", printable(text, 100), name));
        return false;
    }
    return true;
}

void FaultLines::fail(int line, const std::string& text) {
    constexpr std::size_t kMostErrors = 50;
    if (errors_.size() < kMostErrors) {
        errors_.push_back({path_, line, 1, text, ErrorCode::malformed_trace});
    }
}

void FaultLines::finish() const {
    throw_if_any(errors_);
}

std::vector<TimedFault> faults_of_counts(const std::vector<MachineCount>& counts, const JobShape& shape) {
    std::vector<TimedFault> out;
    std::vector<std::size_t> away;
    std::uint32_t present = shape.nodes;
    for (const MachineCount& count : counts) {
        const auto there = static_cast<std::uint32_t>(std::min(count.machines, static_cast<double>(shape.nodes)));
        for (; present > there; --present) {
            away.push_back(out.size());
            out.push_back({count.at_s, {FaultKind::preemption, {Place::What::node, present - 1, 0}, 1, 0}});
        }
        for (; present < there; ++present) {
            // One that is away for no time at all was never missed. Machines that are away at the end of the file stay away.
            out[away.back()].fault.lasts_s = std::max(count.at_s - out[away.back()].at_s, 1e-9);
            away.pop_back();
        }
    }
    return out;
}

std::vector<TimedFault> faults_of_absences(std::vector<Absence> absences, const JobShape& shape) {
    std::map<std::string, std::uint32_t> places;
    for (const Absence& one : absences) {
        places.emplace(one.machine, 0);
    }
    std::uint32_t next = 0;
    for (auto& [machine, place] : places) {
        place = next++;
    }
    std::stable_sort(absences.begin(), absences.end(),
                     [](const Absence& a, const Absence& b) { return a.from_s < b.from_s; });
    std::vector<TimedFault> out;
    for (const Absence& one : absences) {
        const std::uint32_t place = places.at(one.machine);
        if (place < shape.nodes) {
            const double lasts = std::isinf(one.to_s) ? 0 : std::max(one.to_s - one.from_s, 1e-9);
            out.push_back({one.from_s, {FaultKind::preemption, {Place::What::node, place, 0}, 1, lasts}});
        }
    }
    return out;
}

bool parse_instant(std::string_view text, double& seconds) {
    const auto whole = [&](std::size_t from, std::size_t count, int& out) {
        if (from + count > text.size()) {
            return false;
        }
        const char* begin = text.data() + from;
        const auto [end, error] = std::from_chars(begin, begin + count, out);
        return error == std::errc() && end == begin + count;
    };
    int year = 0;
    int month = 0;
    int day = 0;
    if (!whole(0, 4, year) || !whole(5, 2, month) || !whole(8, 2, day) || text[4] != '-' || text[7] != '-') {
        return false;
    }
    std::size_t at = 10;
    while (at < text.size() && (text[at] == ',' || text[at] == ' ' || text[at] == 'T')) {
        ++at;
    }
    int hour = 0;
    int minute = 0;
    int second = 0;
    if (at == 10 || !whole(at, 2, hour) || !whole(at + 3, 2, minute) || !whole(at + 6, 2, second) ||
        text[at + 2] != ':' || text[at + 5] != ':') {
        return false;
    }
    const std::string_view rest = text.substr(at + 8);
    const std::optional<int> days = days_since_1970(year, month, day);
    const std::optional<int> time = seconds_of_day(hour, minute, second);
    if ((!rest.empty() && rest != "Z") || !days || !time) {
        return false;
    }
    seconds = 86400.0 * *days + *time;
    return true;
}

}  // namespace orrery::faults
