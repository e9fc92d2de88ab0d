#include "sim/base/text.hpp"
#include "workloads/faults/traces/format.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::faults {

namespace {

constexpr std::string_view kColumns = "time_s,kind,where,factor,lasts_s";

void take_fault(FaultLines& lines, int at, const std::string& line, const JobShape& shape, std::size_t columns,
                std::vector<TimedFault>& all) {
    const auto fail = [&](const std::string& text) { lines.fail(at, text); };
    const auto number = [&](std::string_view text, const char* name, double& value) {
        return lines.number(at, text, name, value);
    };
    const auto cells = split(line, ',');
    if (cells.size() < 3 || cells.size() > columns) {
        return fail(
            fmt::format("{} cells: time_s,kind,where and then perhaps the others of the {} that the header names",
                        cells.size(), columns));
    }
    TimedFault out;
    const auto& names = fault_kind_names();
    const auto kind = std::find(names.begin(), names.end(), cells[1]);
    if (kind == names.end()) {
        return fail(fmt::format("'{}' is no kind of fault; nearest is '{}'", printable(cells[1], 100),
                                nearest_name(cells[1], names)));
    }
    out.fault.kind = static_cast<FaultKind>(kind - names.begin());
    std::string problem;
    if (!number(cells[0], "time in seconds", out.at_s)) {
        return;
    }
    if (!parse_place(std::string(cells[2]), shape, out.fault.place, problem)) {
        return fail(printable(problem, 300));
    }
    if (!suits(out.fault.kind, out.fault.place)) {
        return fail(fmt::format("'{}' cannot happen to '{}'", *kind, cells[2]));
    }
    if (cells.size() > 3 && !cells[3].empty() && !number(cells[3], "share", out.fault.factor)) {
        return;
    }
    if (cells.size() > 4 && !cells[4].empty() && !number(cells[4], "time in seconds", out.fault.lasts_s)) {
        return;
    }
    const KindTraits traits = traits_of(out.fault.kind);
    if (traits.factor != (out.fault.factor < 1) || out.fault.factor > 1 || (traits.factor && out.fault.factor <= 0)) {
        return fail(fmt::format("'{}' {}", *kind, traits.factor ? "needs a factor between 0 and 1" : "has no factor"));
    }
    if ((traits.must_end && out.fault.lasts_s <= 0) || (!traits.lasts && out.fault.lasts_s > 0)) {
        return fail(fmt::format("'{}' {}", *kind, traits.lasts ? "needs lasts_s" : "does not end by itself"));
    }
    all.push_back(out);
}

std::vector<TimedFault> read_faults(FaultLines& lines, const JobShape& shape) {
    std::vector<TimedFault> out;
    const auto& [head, header] = lines.lines()[0];
    if (header != kColumns && header != kColumns.substr(0, header.size())) {
        lines.fail(head, fmt::format("the columns are {}, in this order; the last two may be missing", kColumns));
        return out;
    }
    const std::size_t columns = split(header, ',').size();
    for (const auto& [at, line] : lines.rows()) {
        take_fault(lines, at, line, shape, columns, out);
    }
    return out;
}

}  // namespace

extern const FaultTraceFormat kFaultsFormat = {
    "faults", "time_s,kind,where,factor,lasts_s: every fault with its place",
    [](std::string_view line) { return line.rfind("time_s,kind,where", 0) == 0; }, read_faults};

}  // namespace orrery::faults
