#pragma once
// What every kind of measurement shares: checked CUDA calls, device memory that rotates, timing, clocks and power.
//
// Protocol: CUDA events around a graph of enough executions for 200 us; operands rotate over more than three times the L2
// cache, so that they come from memory; five warm-ups; 7 to 100 repetitions for about 20 ms; random normal data, because power
// and clocks depend on it. Clocks are left alone. A held point runs for seconds: its second half gives the sustained rate.

#include "tools/cudabench/points.hpp"

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <stdexcept>

namespace orrery::cudabench {

/// A CUDA, cuBLAS or driver call that failed.
struct DeviceError : std::runtime_error {
    using std::runtime_error::runtime_error;
};
/// The point does not fit into the memory of this device, or the library has no kernel for it: it is left out.
struct NotMeasurable : std::runtime_error {
    using std::runtime_error::runtime_error;
};

void check_spec(cudaError_t status, const char* what);

/// What set-ups ask of a device.
struct DeviceFigures {
    int multiprocessors = 0;
    double l2_bytes = 0;
    std::size_t memory = 0;  ///< bytes to hand out

    /// Of the first device: four fifths of its free memory.
    static DeviceFigures measured();
    /// Of an H200, for walking through set-ups without one.
    static DeviceFigures h200() { return {132, 50 * 1048576.0, std::size_t{110} << 30U}; }
};

/// Device memory that is handed out from the start for every point and filled with random data.
class Arena {
  public:
    /// `dry`: addresses without memory behind them, for a walk through the set-ups on a host without a device.
    explicit Arena(const DeviceFigures& device, bool dry = false);
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    void reset() { used_ = 0; }
    [[nodiscard]] const DeviceFigures& device() const { return device_; }
    [[nodiscard]] bool dry() const { return dry_; }
    [[nodiscard]] std::size_t used() const { return used_; }
    /// Copies of operands of this size that are more than the L2 cache holds three times (at most 2,000).
    [[nodiscard]] int copies_for(double operand_bytes) const;
    /// Blocks of `threads` for this many items: at most eight a multiprocessor.
    [[nodiscard]] int blocks_for(double items, int threads) const;
    /// Uninitialised memory, aligned to 256 B. Throws NotMeasurable when the device is too small.
    void* take(double bytes);
    /// Standard normal values, scaled.
    template <typename T>
    T* normal(double count, float scale = 1.0F);
    /// Uniform integers below `limit`.
    int* indices(double count, int limit);

  private:
    DeviceFigures device_;
    bool dry_;
    char* base_ = nullptr;
    std::size_t used_ = 0;
    unsigned seed_ = 1;
};

/// One point ready to run: executions use the operands of copy 0, 1, ... in turn.
struct Prepared {
    std::function<void(int copy, cudaStream_t stream)> launch;
    int copies = 1;
    double operand_bytes = 0;  ///< of one copy
    bool warm = false;         ///< operands are in the L2 cache when an execution starts
    bool capturable = true;    ///< false: timed on a stream, not in a graph
    std::string library = "orrery-kernels";
    std::string note;
    std::shared_ptr<void> keep;  ///< descriptors that live as long as the launches
};

[[nodiscard]] Prepared prepare_memory(const Point& point, Arena& arena);
[[nodiscard]] Prepared prepare_cache(const Point& point, Arena& arena);
[[nodiscard]] Prepared prepare_gemm(const Point& point, Arena& arena);
[[nodiscard]] Prepared prepare_grouped_gemm(const Point& point, Arena& arena);
[[nodiscard]] Prepared prepare_attention(const Point& point, Arena& arena);
[[nodiscard]] Prepared prepare_elementwise(const Point& point, Arena& arena);
[[nodiscard]] Prepared prepare_moe_route(const Point& point, Arena& arena);
/// Any point that runs kernels or copies.
[[nodiscard]] Prepared prepare(const Point& point, Arena& arena);

/// Copies until `stop` becomes non-zero, on as many whole multiprocessors as `blocks`. `stop` and `copied` are mapped host
/// memory; `copied` becomes non-zero once the kernel runs and is the count of bytes at its end.
void launch_persistent_copy(void* to, const void* from, std::size_t bytes, int blocks, const int* stop,
                            unsigned long long* copied, cudaStream_t stream);
void launch_empty(cudaStream_t stream);

/// The driver's management library, found at run time; every reading is 0 or empty without it.
class Monitor {
  public:
    struct Sample {
        double power_w = 0, sm_clock_mhz = 0, memory_clock_mhz = 0, temperature_c = 0;
        unsigned long long throttle = 0;
    };
    Monitor();
    ~Monitor();
    Monitor(const Monitor&) = delete;
    Monitor& operator=(const Monitor&) = delete;

    [[nodiscard]] Sample sample() const;
    [[nodiscard]] std::vector<std::pair<std::string, std::string>> meta() const;

  private:
    struct Library;
    std::unique_ptr<Library> library_;
};

/// Waits for what fills operands, and for nothing else that runs on the device.
void finish_operands();

/// A prepared point after its warm-up, captured: running it makes no call that waits for more than its own stream.
class Timed {
  public:
    /// `held_s` above 0: to run for that long. `prepared` outlives this.
    Timed(const Prepared& prepared, double held_s, cudaStream_t stream);
    ~Timed();
    [[nodiscard]] Measured run(const Monitor& monitor);

  private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

/// Times a prepared point; `held_s` above 0 runs it for that long.
[[nodiscard]] Measured measure(const Prepared& prepared, double held_s, const Monitor& monitor, cudaStream_t stream);
/// A copy between host and device, or both ways at once.
[[nodiscard]] Prepared prepare_host_copy(const Point& point, Arena& arena);
/// Points that are no kernel: launches, idling.
[[nodiscard]] Measured measure_launch(const Point& point, cudaStream_t stream);
[[nodiscard]] Measured measure_idle(double held_s, const Monitor& monitor);
/// What a point of the overlap group takes from the arena.
void walk_beside(const Point& point, Arena& arena);
/// A point of the overlap group: `beside` runs on a stream of its own meanwhile; its rate goes into the note.
[[nodiscard]] Measured measure_beside(const Point& point, Arena& arena, const Monitor& monitor, cudaStream_t stream);

}  // namespace orrery::cudabench
