#include "workloads/replay/memory_moves.hpp"

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "workloads/replay/work.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace orrery::replay {

static std::string problem_of(const MemoryWork& work, const NodeHost& host) {
    const std::size_t tier = host.find(work.tier);
    if (tier == host.tiers.size()) {
        std::vector<std::string> names;
        for (const MemoryTier& one : host.tiers) {
            names.push_back(one.name);
        }
        return fmt::format("the node has no tier '{}'; it has {}", work.tier, fmt::join(names, ", "));
    }
    if (work.by != MemoryMover::copy && !host.tiers[tier].addressed()) {
        return fmt::format("rows of '{}' cannot be read one by one: drives are copied (by=copy)", work.tier);
    }
    if (work.by == MemoryMover::host && host.dram() == host.tiers.size()) {
        return "the host gathers rows into DRAM, and the node has none: add a tier with medium: dram";
    }
    return "";
}

std::unique_ptr<NodeMemory> memory_of(const ReplayTrace& trace, const ReplaySpec& spec, const NodeHost* host,
                                      Simulation& simulation) {
    bool needed = false;
    std::vector<Diagnostic> errors;
    for (const std::string& text : trace.works) {
        if (!is_memory_work(text)) {
            continue;
        }
        needed = true;
        std::string problem;
        const MemoryWork work = *parse_memory_work(text, problem);
        if (host == nullptr || host->tiers.empty()) {
            throw InfeasibleError(
                fmt::format("{} moves {:.4g} bytes of '{}', and a node has 0 memories beside those of its devices: "
                            "describe node.host.tiers",
                            spec.trace, work.bytes, work.tier));
        }
        problem = problem_of(work, *host);
        if (!problem.empty()) {
            errors.push_back(Diagnostic{spec.trace, 0, 0, problem, ErrorCode::malformed_trace});
        }
    }
    throw_if_any(errors);
    const Fabric& fabric = *simulation.fabric();
    return needed ? std::make_unique<NodeMemory>(*host, fabric, fabric.shape().pcie_bandwidth, simulation.resources())
                  : nullptr;
}

MemoryMove move_of(const NodeMemory& memory, GpuId gpu, const std::string& text) {
    std::string problem;
    const MemoryWork work = *parse_memory_work(text, problem);
    const std::size_t tier = memory.host().find(work.tier);
    ORRERY_ASSERT(tier < memory.host().tiers.size());  // `memory_of` refused others
    switch (work.by) {
        case MemoryMover::host:
            return {memory.gather(gpu, tier, work.row), work.bytes};
        case MemoryMover::device:
        case MemoryMover::unaligned:
            return {memory.read_rows(gpu, tier, work.row, work.by == MemoryMover::device), work.bytes};
        case MemoryMover::copy:
            break;
    }
    return {memory.stream({gpu}, tier), work.bytes};
}

std::vector<double> core_seconds(const ReplayTrace& trace, const ReplayDevices& devices) {
    std::vector<double> out;
    for (const std::string& text : trace.works) {
        std::string problem;
        const std::optional<CoreWork> work = is_core_work(text) ? parse_core_work(text, problem) : std::nullopt;
        if (!work) {
            out.push_back(-1);
            continue;
        }
        const DpuSpec dpu = devices.dpu(work->preset);
        ORRERY_ASSERT(work->cores >= 1);
        out.push_back(work->bytes > 0 ? copy_seconds(dpu, work->cores, work->bytes)
                                      : launch_seconds(dpu, work->cores, work->threads, work->thread));
    }
    return out;
}

}  // namespace orrery::replay
