#include "sim/device/dpu.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::device {

void describe(Fields& fields, DpuSpec& dpu) {
    fields.text({"name", "marketing name"}, dpu.name);
    fields.integer({"per_rank", "cores that a copy reaches together", false, 1, 4096}, dpu.per_rank);
    fields.integer({"pipeline", "cycles between two instructions of a thread", false, 1, 1000}, dpu.pipeline);
    fields.sourced({"clock", "clock of the cores", true, 1e6, 1e11}, Dimension::frequency, dpu.clock);
    fields.sourced({"core_rate", "copies between the host and one core", true, 1, 1e13}, Dimension::rate,
                   dpu.core_rate);
    fields.sourced({"rank_rate", "copies between the host and a rank", true, 1, 1e13}, Dimension::rate, dpu.rank_rate);
    fields.sourced({"total_rate", "copies between the host and all ranks", true, 1, 1e14}, Dimension::rate,
                   dpu.total_rate);
    const auto time = [&](const char* key, const char* doc, Sourced<double>& value) {
        fields.sourced({key, doc, false, 0, 1}, Dimension::time, value);
    };
    time("copy", "of a copy before its bytes", dpu.copy);
    time("copy_per_rank", "of a copy for each rank", dpu.copy_per_rank);
    time("launch", "of a launch and waiting for it", dpu.launch);
    time("launch_per_rank", "of a launch for each rank", dpu.launch_per_rank);
    const auto cycles = [&](const char* key, const char* doc, Sourced<double>& value) {
        fields.sourced({key, doc, false, 0, 1e6}, Dimension::number, value);
    };
    cycles("dma_read", "cycles of an access that reads the bank", dpu.dma_read);
    cycles("dma_write", "cycles of an access that writes it", dpu.dma_write);
    cycles("dma_byte", "cycles of an access for each byte", dpu.dma_byte);
}

static double ranks_of(const DpuSpec& dpu, double cores) {
    return std::ceil(cores / static_cast<double>(dpu.per_rank));
}

double copy_seconds(const DpuSpec& dpu, double cores, double bytes) {
    const double ranks = ranks_of(dpu, cores);
    const double slowest = std::max({bytes / dpu.core_rate.value, cores / ranks * bytes / dpu.rank_rate.value,
                                     cores * bytes / dpu.total_rate.value});
    return dpu.copy.value + ranks * dpu.copy_per_rank.value + slowest;
}

double launch_seconds(const DpuSpec& dpu, double cores, double threads, const DpuThread& work) {
    const double issue = std::max(threads, static_cast<double>(dpu.pipeline)) * work.instructions;
    const double waits = work.reads * (dpu.dma_read.value + dpu.dma_byte.value * work.access) +
                         work.writes * (dpu.dma_write.value + dpu.dma_byte.value * work.access);
    return dpu.launch.value + ranks_of(dpu, cores) * dpu.launch_per_rank.value + (issue + waits) / dpu.clock.value;
}

}  // namespace orrery::device
