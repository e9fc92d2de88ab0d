#pragma once
// What cudabench measures: every point of the microbenchmark plan, as plain data (no CUDA here, so that tests see it).
//
// Claims: about 1,960 points in ten groups, 83 seconds on an H200. GEMM sizes form a grid of factors of two
// (calibration) with the projections of Llama-3 8B, 70B split eight ways, GPT-2 and a 1.3B GPT beside it.
// Limits: backward attention and end-to-end steps are measured by tools/torchbench, through the kernels that training
// frameworks run.

#include "sim/base/namespaces.hpp"

#include <string>
#include <utility>
#include <vector>

namespace orrery::cudabench {

struct Point {
    std::string group;   ///< memory, copies, launch, gemm, low_precision, attention, elementwise, moe, overlap, power
    std::string op;      ///< an operation of the trace format
    std::string phase;   ///< empty: forward
    std::string dtype;   ///< of the operands
    std::string layout;  ///< gemm: nt, nn, tn
    std::string mode;    ///< launch: graph, stream, sync; empty: graph
    std::string beside;  ///< what runs meanwhile: h2d, d2h, "copy sms=16"
    double held_s = 0;   ///< run for that long, for power and sustained rates; 0: a burst
    std::vector<std::pair<std::string, double>> shape;

    [[nodiscard]] double dim(const std::string& name, double otherwise = 0) const;
    /// "m=4096 n=4096 k=8192"
    [[nodiscard]] std::string shape_text() const;
    /// Unique name, by which an interrupted run is resumed.
    [[nodiscard]] std::string id() const;
};

/// All points, in the order in which they are measured.
[[nodiscard]] std::vector<Point> all_points();

/// Head of a trace file: the version line and `key: value` comments, then the names of the columns.
[[nodiscard]] std::string trace_head(const std::vector<std::pair<std::string, std::string>>& meta);

/// What a measurement adds to a point. Times in ns of one execution; clocks, power and temperature are 0 where unknown.
struct Measured {
    std::string library;
    std::string mode;  ///< how executions were launched: graph, stream
    std::string note;
    double median_ns = 0, min_ns = 0, p10_ns = 0, p90_ns = 0, mean_ns = 0;
    int reps = 0;
    bool warm = false;
    double sm_clock_mhz = 0, memory_clock_mhz = 0, power_w = 0, temperature_c = 0;
    std::string throttle;
};
/// A row of a trace file, without the line break.
[[nodiscard]] std::string trace_row(const Point& point, const Measured& measured, bool repeat);
/// Names of the points that a trace file holds already, from its complete lines.
[[nodiscard]] std::vector<std::string> measured_points(const std::string& text);

}  // namespace orrery::cudabench
