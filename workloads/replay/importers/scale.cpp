// A recorded program of one rank as that of a job with another number of data-parallel ranks (`import --scale`).
//
// The plan says how the recorded job's ranks were laid out, innermost first, and which degree changes: "tensor=2,data=4:32". A group
// of the record is the ranks along one or several neighbouring degrees; its size and stride tell which, and it becomes the same
// degrees of the new plan. Sizes of buffers stay: those of gradients, parameters and activations of a rank do not depend on how many
// others compute other samples. Collectives whose group changes lose their recorded time, so that the network prices them; kernels
// and the host's calls stay as recorded.
// Limits: more tensor- or context-parallel ranks would change the sizes of kernels, more stages the program of a rank: these degrees
// are what they were in the record. Sharded optimizers update smaller shards on more ranks, which this does not see.
// Source of the idea: Liang et al., "Lumos: Efficient Performance Modeling and Estimation for Large-scale LLM Training",
// arXiv:2504.09307, section 3.5 (data parallelism by changing communication alone).

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "workloads/replay/importers/program.hpp"

#include <fmt/format.h>

#include <cmath>

namespace orrery::replay {

namespace {

struct Degree {
    std::string name;
    std::uint32_t before = 1, after = 1;
};

[[noreturn]] void refuse(const std::string& problem) {
    throw ConfigError("--scale: " + problem, ErrorCode::command_line);
}

std::uint32_t degree_of(std::string_view text, const std::string& name) {
    double value = 0;
    if (!parse_number(text, value) || value != std::floor(value) || value < 1 || value > kMostRanks) {
        refuse(fmt::format("'{}' is a whole number from 1 to {}, not '{}'", name, kMostRanks, text));
    }
    return static_cast<std::uint32_t>(value);
}

// "tensor=2,data=4:32"
std::vector<Degree> read_plan(const std::string& text) {
    std::vector<Degree> out;
    for (const std::string_view part : split(text, ',')) {
        const std::size_t equals = part.find('=');
        if (equals == std::string_view::npos || equals == 0) {
            refuse(fmt::format("takes degrees from the innermost on, such as 'tensor=2,data=4:32', not '{}'", text));
        }
        Degree degree{std::string(part.substr(0, equals))};
        const std::string_view sizes = part.substr(equals + 1);
        const std::size_t colon = sizes.find(':');
        degree.before = degree_of(sizes.substr(0, colon), degree.name);
        degree.after =
            colon == std::string_view::npos ? degree.before : degree_of(sizes.substr(colon + 1), degree.name);
        if (degree.after != degree.before && degree.name != "data") {
            refuse(
                fmt::format("'{}' cannot change: kernels of another size, or another program, would have to be "
                            "recorded; 'data' can",
                            degree.name));
        }
        out.push_back(std::move(degree));
    }
    return out;
}

// The same neighbouring degrees in the new plan.
ReplayGroup scaled_group(const ReplayGroup& group, const std::vector<Degree>& plan) {
    std::uint64_t stride = 1;
    ReplayGroup out;
    for (std::size_t first = 0; first < plan.size(); ++first) {
        std::uint64_t size = 1;
        out.size = 1;
        for (std::size_t last = first; last < plan.size(); ++last) {
            size *= plan[last].before;
            out.size *= plan[last].after;
            if (stride == group.stride && size == group.size) {
                return out;
            }
        }
        stride *= plan[first].before;
        out.stride *= plan[first].after;
    }
    refuse(fmt::format("no degrees of the plan make the recorded group of {} ranks at a distance of {}", group.size,
                       group.stride));
}

}  // namespace

void scale_program(ReplayTrace& trace, const ImportInput& input, ImportNotes& notes) {
    if (!input.has(kScaleOption.name)) {
        return;
    }
    const std::vector<Degree> plan = read_plan(input.option(kScaleOption.name));
    std::uint64_t before = 1;
    std::uint64_t after = 1;
    for (const Degree& degree : plan) {
        before *= degree.before;
        after *= degree.after;
        if (before > kMostRanks || after > kMostRanks) {
            refuse(fmt::format("a job of more than {} ranks", kMostRanks));
        }
    }
    if (!trace.same_program) {
        refuse("takes the record of one rank, whose program all ranks share");
    }
    if (before != trace.ranks) {
        refuse(fmt::format("the plan has {} ranks, and the recorded job {}", before, trace.ranks));
    }
    std::vector<bool> changed;
    for (ReplayGroup& group : trace.groups) {
        const ReplayGroup scaled = group.size > 1 ? scaled_group(group, plan) : group;
        ORRERY_ASSERT(std::uint64_t{scaled.size} * scaled.stride <= std::max(after, before));
        changed.push_back(!(scaled == group));
        group = scaled;
    }
    for (ReplayOp& op : trace.ops) {
        if (op.kind == ReplayKind::send || op.kind == ReplayKind::recv) {
            refuse("the record has messages between ranks, whose peers in another job it does not say");
        }
        if (op.kind == ReplayKind::collective && changed[op.group]) {
            if (op.bytes <= 0) {
                refuse(fmt::format("'{}' has no size, so that the network cannot price it; --assume-bytes gives it one",
                                   trace.names[op.name].substr(0, 60)));
            }
            op.duration_s = ReplayOp::kUnknown;
            notes.assumed("collectives of the new group sizes, priced by the network");
        }
    }
    if (before != after) {
        trace.recorded_s = ReplayOp::kUnknown;
    }
    ORRERY_ASSERT(changed.size() == trace.groups.size());
    trace.ranks = static_cast<std::uint32_t>(after);
    trace.meta["scaled"] = input.option(kScaleOption.name);
}

}  // namespace orrery::replay
