#include "workloads/replay/importers/importer.hpp"

#include "sim/base/error.hpp"
#include "workloads/replay/input_file.hpp"

#include <fmt/format.h>

namespace orrery {

const std::vector<ImportFormat>& import_formats() {
    static const std::vector<ImportFormat> kFormats = {
        {"pytorch-profiler", "Chrome trace of PyTorch's profiler (Kineto), one process with one device"},
        {"nsys", "SQLite export of Nsight Systems"},
        {"chakra", "Chakra execution traces, NAME.0.et, NAME.1.et, ..., with groups in NAME.json"},
        {"goal", "GOAL text of LogGOPSim"},
        {"aicb", "workload file of SimAI (AICB)"}};
    return kFormats;
}

ReplayTrace import_trace(const std::string& format, const std::string& path) {
    if (format == "pytorch-profiler") {
        return import_pytorch(read_input(path), path);
    }
    if (format == "nsys") {
        return import_nsys(path);
    }
    if (format == "chakra") {
        return import_chakra(path);
    }
    if (format == "goal") {
        return import_goal(read_input(path), path);
    }
    if (format == "aicb") {
        return import_aicb(read_input(path), path);
    }
    std::vector<std::string> names;
    for (const ImportFormat& known : import_formats()) {
        names.emplace_back(known.name);
    }
    const std::string near = nearest_name(format, names);
    throw ConfigError(fmt::format("unknown format '{}'{}; there are {}", format,
                                  near.empty() ? "" : fmt::format("; did you mean '{}'?", near),
                                  fmt::join(names, ", ")));
}

}  // namespace orrery
