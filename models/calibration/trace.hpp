#pragma once
// The microbenchmark trace: measured times of operations on one device (or one group of devices).
//
// One text file a run, CSV with a head of metadata; `.xz` is read too. Writers flush each row as measured: a file that
// ends in the middle of a row reads up to there with an error for that line only.
//
//   # orrery-trace: 1                       first line, the version of this layout
//   # device: h200-sxm                      preset of models/data/devices (required)
//   # source: tools/cudabench at 0a1b2c3    what measured it (required); public data: repository@commit, file
//   # date: 2026-11-21                      when it was measured, ISO 8601 (required; "unknown" where nobody wrote it down)
//   # licence: Apache-2.0                   of public data
//   # driver: 570.86.15    # cuda: 12.8     any further `key: value`, one a line (lower-case key, [a-z0-9_.-]); usual:
//                                           driver, cuda, torch, cublas, cudnn, nccl, flash_attn, vbios, device_name,
//                                           sms, l2_bytes, memory_bytes, power_limit_w, sm_clock_max_mhz,
//                                           memory_clock_max_mhz, ecc, mig, persistence, host_cpu, pcie, numa, os, timer,
//                                           warm_up, repetitions, l2_flush, seed, nodes, gpus_per_node, fabric, nic,
//                                           link_gbps (GB/s of a GPU's links one way; traces of collectives need it),
//                                           sustained (each row ran for that long without a pause: the power limit slowed
//                                           it down, and fits are of bursts, so that the governor's law is taken off)
//   # a line without a colon is a comment
//   op,dtype,shape,median_ns,...            header: names of columns in any order, the four named here required
//   gemm,bf16,m=4096 n=4096 k=8192,412345.0
//
// Columns (an empty cell is "not known"; a text holds no comma, quote or line break):
//   op           an operation of `trace_operations()`
//   phase        forward (when empty) | backward | data_gradient | weight_gradient
//   dtype        of the operands: fp32 tf32 fp16 bf16 fp8 int8 fp4 int4; `bf16:int4` is activations:weights (weight-only);
//                scaling granularity after a dash: `fp8-block` (128 x 128 blocks), `fp4-nv` (16-value blocks)
//   kv_dtype     of cached keys and values, where it differs
//   layout       gemm: nt | nn | tn | tt (A is m x k, B is k x n; n: row-major, t: transposed; y = x W^T is nt)
//   shape        `name=number` separated by blanks, the dimensions of the operation, see `trace_operations()`
//   library      what ran it, with its version: cublaslt-12.8, vllm-0.24.0/flash_attn; `/flash` at its end: FlashAttention-2
//   kernel       names the profiler saw, joined by `;`
//   algorithm    collectives: ring | tree | nvls | ..., with protocol and channels: ring/simple/16
//   kernels      number of kernels timed together (1 when empty)
//   mode         graph (when empty) | stream | eager | sync: graph and stream hide launches, eager and sync show them
//   cache        cold (when empty: operands not in L2) | warm
//   beside       what else ran on the device meanwhile: `h2d`, `d2h`, `copy sms=16`, `rms_norm`, ...
//   split        calibration (when empty) | holdout | repeat (of an earlier point, to show drift)
//   point        name of the point in the plan
//   median_ns, min_ns, p10_ns, p90_ns, mean_ns    of one execution, decimal, > 0; what is fitted is the median
//   reps         executions timed
//   flops, bytes_read, bytes_written    of the algorithm (each operand once); computed from the shape when empty
//   sm_clock_mhz, memory_clock_mhz, power_w, temperature_c, throttle    means while the point ran
//   held_s       how long the point was held, for power and sustained rates: >= 1 s means sustained
//   note         anything
//
// Limits: 4 KiB a line, 20 million rows, 1 GiB of text; only files of this layout (readers of public profiles are in
// models/calibration/profiles.hpp).
// Validated by tests/models/trace_test.cpp and the fuzzer tests/fuzz/trace_fuzz.cpp.

#include "sim/base/error.hpp"
#include "sim/base/namespaces.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace orrery::models {

/// An operation of the format: which dimensions a row must and may give.
struct TraceOperation {
    const char* name;
    const char* doc;
    std::vector<std::string> required;
    std::vector<std::string> optional;
};

/// Every operation of the format, in a fixed order.
[[nodiscard]] const std::vector<TraceOperation>& trace_operations();
/// The operation, or nullptr.
[[nodiscard]] const TraceOperation* find_trace_operation(const std::string& name);
/// Number formats of the format: "fp32", "bf16", "fp8-block", ...
[[nodiscard]] const std::vector<std::string>& trace_dtypes();

enum class TracePhase { forward, backward, data_gradient, weight_gradient };
[[nodiscard]] const std::vector<std::string>& trace_phase_names();

struct TraceRow {
    int line = 0;  ///< of the file it came from; 0 for rows made in memory
    std::string op;
    TracePhase phase = TracePhase::forward;
    std::string dtype;
    std::string kv_dtype;
    std::string layout;
    std::vector<std::pair<std::string, double>> shape;  ///< in the order of the file
    std::string library, kernel, algorithm, mode, cache, beside, split, point, throttle, note;
    double median_ns = 0;
    double min_ns = 0, p10_ns = 0, p90_ns = 0, mean_ns = 0;  ///< 0: not known
    double kernels = 1;
    double reps = 0;
    double flops = 0, bytes_read = 0, bytes_written = 0;  ///< 0: from the shape
    double sm_clock_mhz = 0, memory_clock_mhz = 0, power_w = 0, temperature_c = 0, held_s = 0;

    /// A dimension, or `otherwise` when the row does not give it.
    [[nodiscard]] double dim(const char* name, double otherwise = 0) const;
};

struct Trace {
    std::map<std::string, std::string> meta;  ///< without the version; holds at least device, source, date
    std::vector<TraceRow> rows;

    [[nodiscard]] const std::string& device() const { return meta.at("device"); }
};

/// Reads a trace file. Throws ConfigError with every problem found (the first hundred), each with its line.
[[nodiscard]] Trace read_trace(const std::string& path);
/// Reads the text of a trace; `name` is what errors call it.
[[nodiscard]] Trace parse_trace(const std::string& text, const std::string& name);

}  // namespace orrery::models
