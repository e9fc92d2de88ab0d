#pragma once
// From rows of a trace that are no points of fits to figures of a device file.
//
// Claims: every row of a trace has one use. It is a point of a fit, a size of a collective, held back, behind a figure of the
// device file, or read and not used, and then this says what it shows and why nothing takes it.
//   memory_efficiency  the best triad of arrays beyond eight caches, over the vendor's bandwidth
//   matrix_efficiency  the best 16-bit product that takes 100 us or more, from memory, in a burst, over the peak
//   host_bandwidth     the slower direction's best copy of 16 MiB and more
//   streaming_start        small triads, less their bytes at the device's rate
//   launch, graph_launch   an empty kernel of many, launched on a stream or replayed from a graph
//   idle_power, matrix_power, memory_power   means while nothing, a product, a triad was held
//   power_knee         from a 16-bit product held and in a burst: the clock falls with the cube root of the demand for power
//                      (models/calibrated.hpp), so the knee is the burst's rate over (held time / burst time)^3
//   tdp                the limit that the driver named (`power_limit_w`)
// Limits: one figure each for the whole device; the file has none for latencies, rates of caches, both directions of the host's
// links at once and slowdowns beside other work, which are reported only.
// Validated by tests/models/device_figures_test.cpp: every point of tools/cudabench has its use.

#include "models/calibration/points.hpp"
#include "sim/base/namespaces.hpp"

namespace orrery::models {

/// A value of a device file, measured.
struct DeviceFigure {
    std::string key;  ///< name of the field
    Dimension dimension;
    double value;
    double before;          ///< what the device's file says; 0: nothing
    std::string from;       ///< which rows, for people and the value's source
    std::int64_t rows = 0;  ///< read for it
};

/// Rows of one kind that are read and not used.
struct UnusedRows {
    std::string what;
    std::int64_t rows = 0;
    std::string shows;  ///< what they measured; may be empty
    std::string why;    ///< nothing takes it
};

struct TraceUse {
    std::int64_t fitted = 0, collectives = 0, held_back = 0;
    std::vector<DeviceFigure> figures;
    std::vector<UnusedRows> unused;

    /// All rows.
    [[nodiscard]] std::int64_t rows() const;
};

/// What each row of a trace is for. Rows of figures that the device cannot have (faster than its vendor's peak) are not used.
[[nodiscard]] TraceUse use_of(const Trace& trace, const DeviceSpec& device);

/// The device with these figures in place of its own, each with `source` and the rows it came from.
[[nodiscard]] DeviceSpec with_figures(DeviceSpec device, const std::vector<DeviceFigure>& figures,
                                      const std::string& source);

/// The text of a device file that reads back to the same device.
[[nodiscard]] std::string format_device(const DeviceSpec& device);

}  // namespace orrery::models
