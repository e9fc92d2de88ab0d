#include "tools/cudabench/bench.cuh"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

namespace orrery::cudabench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kGraphSeconds = 200e-6;
constexpr double kPointSeconds = 20e-3;
constexpr int kWarmUps = 5;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

class Event {
  public:
    Event() { check_spec(cudaEventCreate(&event_), "cudaEventCreate"); }
    ~Event() { cudaEventDestroy(event_); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    void record(cudaStream_t stream) { check_spec(cudaEventRecord(event_, stream), "cudaEventRecord"); }
    [[nodiscard]] double since(const Event& start) const {
        float ms = 0;
        check_spec(cudaEventElapsedTime(&ms, start.event_, event_), "cudaEventElapsedTime");
        return ms * 1e-3;
    }

  private:
    cudaEvent_t event_ = nullptr;
};

// `count` executions that can be replayed; on a stream where the library does not allow capture.
class Batch {
  public:
    Batch(const Prepared& prepared, int count, cudaStream_t stream) : prepared_(prepared), count_(count) {
        if (!prepared.capturable) {
            return;
        }
        cudaGraph_t graph = nullptr;
        check_spec(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin of capture");
        issue(stream);
        check_spec(cudaStreamEndCapture(stream, &graph), "end of capture");
        const cudaError_t status = cudaGraphInstantiate(&graph_, graph, 0);
        cudaGraphDestroy(graph);
        check_spec(status, "cudaGraphInstantiate");
    }
    ~Batch() {
        if (graph_ != nullptr) {
            cudaGraphExecDestroy(graph_);
        }
    }
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;

    void run(cudaStream_t stream) const {
        if (graph_ != nullptr) {
            check_spec(cudaGraphLaunch(graph_, stream), "cudaGraphLaunch");
        } else {
            issue(stream);
        }
    }

  private:
    void issue(cudaStream_t stream) const {
        for (int i = 0; i < count_; ++i) {
            prepared_.launch(i % prepared_.copies, stream);
        }
    }
    const Prepared& prepared_;
    int count_;
    cudaGraphExec_t graph_ = nullptr;
};

void fill_times(std::vector<double> seconds, Measured& out) {
    std::sort(seconds.begin(), seconds.end());
    const auto quantile = [&](double q) {
        const double place = q * static_cast<double>(seconds.size() - 1);
        const auto low = static_cast<std::size_t>(place);
        const std::size_t high = std::min(low + 1, seconds.size() - 1);
        return 1e9 * (seconds[low] + (place - static_cast<double>(low)) * (seconds[high] - seconds[low]));
    };
    double sum = 0;
    for (const double s : seconds) {
        sum += s;
    }
    out.median_ns = quantile(0.5);
    out.min_ns = 1e9 * seconds.front();
    out.p10_ns = quantile(0.1);
    out.p90_ns = quantile(0.9);
    out.mean_ns = 1e9 * sum / static_cast<double>(seconds.size());
    out.reps = static_cast<int>(seconds.size());
}

// Samples clocks and power 20 times a second until it goes out of scope.
class Sampler {
  public:
    explicit Sampler(const Monitor& monitor)
        : thread_([this, &monitor] {
              while (!stop_) {
                  samples_.push_back(monitor.sample());
                  std::this_thread::sleep_for(std::chrono::milliseconds(50));
              }
          }) {}
    ~Sampler() { join(); }
    Sampler(const Sampler&) = delete;
    Sampler& operator=(const Sampler&) = delete;

    // Means over the second half, when clocks and temperature have settled.
    void finish(Measured& out) {
        join();
        const std::size_t first = samples_.size() / 2;
        const double count = static_cast<double>(samples_.size() - first);
        unsigned long long throttle = 0;
        for (std::size_t i = first; i < samples_.size(); ++i) {
            out.power_w += samples_[i].power_w / count;
            out.sm_clock_mhz += samples_[i].sm_clock_mhz / count;
            out.memory_clock_mhz += samples_[i].memory_clock_mhz / count;
            out.temperature_c += samples_[i].temperature_c / count;
            throttle |= samples_[i].throttle;
        }
        if (throttle != 0) {
            char text[24];
            std::snprintf(text, sizeof text, "0x%llx", throttle);
            out.throttle = text;
        }
    }

  private:
    void join() {
        stop_ = true;
        if (thread_.joinable()) {
            thread_.join();
        }
    }
    std::atomic<bool> stop_{false};
    std::vector<Monitor::Sample> samples_;
    std::thread thread_;
};

template <typename T>
__device__ T from_float(float value) {
    return static_cast<T>(value);
}

__device__ unsigned hash(unsigned x) {
    x ^= x >> 16;
    x *= 0x7feb352dU;
    x ^= x >> 15;
    x *= 0x846ca68bU;
    return x ^ (x >> 16);
}

template <typename T>
__global__ void fill_normal(T* out, std::size_t count, float scale, unsigned seed) {
    const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
        const auto key = static_cast<unsigned>(i * 2 + (i >> 31));
        const float u = (static_cast<float>(hash(key ^ seed)) + 1.0F) * 2.3283064e-10F;
        const float v = static_cast<float>(hash((key + 1) ^ (seed * 7919U))) * 2.3283064e-10F;
        out[i] = from_float<T>(scale * sqrtf(-2.0F * logf(u)) * cospif(2.0F * v));
    }
}

__global__ void fill_indices(int* out, std::size_t count, int limit, unsigned seed) {
    const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
        out[i] = static_cast<int>(hash(static_cast<unsigned>(i) ^ seed) % static_cast<unsigned>(limit));
    }
}

Measured of_prepared(const Prepared& prepared) {
    Measured out;
    out.library = prepared.library;
    out.mode = prepared.capturable ? "graph" : "stream";
    out.note = prepared.note;
    return out;
}

}  // namespace

void check_spec(cudaError_t status, const char* what) {
    if (status != cudaSuccess) {
        throw DeviceError(std::string(what) + ": " + cudaGetErrorString(status));
    }
}

DeviceFigures DeviceFigures::measured() {
    DeviceFigures out;
    int device = 0;
    int l2 = 0;
    std::size_t free = 0;
    std::size_t total = 0;
    check_spec(cudaGetDevice(&device), "cudaGetDevice");
    check_spec(cudaDeviceGetAttribute(&out.multiprocessors, cudaDevAttrMultiProcessorCount, device),
          "number of multiprocessors");
    check_spec(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, device), "size of the L2 cache");
    check_spec(cudaMemGetInfo(&free, &total), "free memory");
    out.l2_bytes = l2;
    out.memory = free / 10 * 8;
    return out;
}

Arena::Arena(const DeviceFigures& device, bool dry) : device_(device), dry_(dry) {
    if (!dry) {
        check_spec(cudaMalloc(reinterpret_cast<void**>(&base_), device.memory), "cudaMalloc of the arena");
    }
}

Arena::~Arena() {
    if (!dry_) {
        cudaFree(base_);
    }
}

int Arena::copies_for(double operand_bytes) const {
    return static_cast<int>(std::clamp(std::ceil(3 * device_.l2_bytes / std::max(1.0, operand_bytes)), 1.0, 2000.0));
}

int Arena::blocks_for(double items, int threads) const {
    return static_cast<int>(std::clamp(std::ceil(items / threads), 1.0, 8.0 * device_.multiprocessors));
}

void* Arena::take(double bytes) {
    const auto rounded = (static_cast<std::size_t>(std::ceil(bytes)) + 255) / 256 * 256;
    if (rounded > device_.memory - used_) {
        throw NotMeasurable("needs more memory than this device has");
    }
    void* out = base_ + used_;
    used_ += rounded;
    return out;
}

template <typename T>
T* Arena::normal(double count, float scale) {
    T* out = static_cast<T*>(take(count * sizeof(T)));
    if (dry_) {
        return out;
    }
    fill_normal<T><<<2048, 256>>>(out, static_cast<std::size_t>(count), scale, seed_++ * 2654435761U);
    check_spec(cudaGetLastError(), "fill with random values");
    return out;
}

int* Arena::indices(double count, int limit) {
    int* out = static_cast<int*>(take(count * sizeof(int)));
    if (dry_) {
        return out;
    }
    fill_indices<<<1024, 256>>>(out, static_cast<std::size_t>(count), limit, seed_++ * 2654435761U);
    check_spec(cudaGetLastError(), "fill with random indices");
    return out;
}

namespace {

Prepared prepare_by_kind(const Point& point, Arena& arena) {
    if (point.op == "gemm") {
        return prepare_gemm(point, arena);
    }
    if (point.op == "grouped_gemm") {
        return prepare_grouped_gemm(point, arena);
    }
    if (point.op == "moe_route") {
        return prepare_moe_route(point, arena);
    }
    if (point.op == "attention_prefill" || point.op == "attention_decode") {
        return prepare_attention(point, arena);
    }
    if (point.op == "copy" || point.op == "triad" || point.op == "read" || point.op == "fill") {
        return prepare_memory(point, arena);
    }
    if (point.op == "pointer_chase" || point.op == "l2_read" || point.op == "shared_read") {
        return prepare_cache(point, arena);
    }
    if (point.op == "h2d" || point.op == "d2h" || point.op == "both_ways") {
        return prepare_host_copy(point, arena);
    }
    return prepare_elementwise(point, arena);
}

}  // namespace

Prepared prepare(const Point& point, Arena& arena) {
    Prepared out = prepare_by_kind(point, arena);
    out.warm = out.warm || out.copies * out.operand_bytes < 2 * arena.device().l2_bytes;
    return out;
}

void finish_operands() {
    // Operands are filled on the default stream. Waiting for the device would wait for what runs beside, too.
    check_spec(cudaStreamSynchronize(cudaStreamLegacy), "random operands");
}

struct Timed::Parts {
    const Prepared& prepared;
    cudaStream_t stream;
    double held_s;
    double once = 0;  ///< s of an execution
    int count = 1;    ///< executions in a batch
    std::unique_ptr<Batch> batch;
    std::vector<Event> marks;  ///< start and end of each repetition

    Parts(const Prepared& p, cudaStream_t s, double held) : prepared(p), stream(s), held_s(held) {}
};

Timed::Timed(const Prepared& prepared, double held_s, cudaStream_t stream)
    : parts_(std::make_unique<Parts>(prepared, stream, held_s)) {
    Parts& p = *parts_;
    finish_operands();
    Event start;
    Event end;
    for (int i = 0; i < kWarmUps; ++i) {
        prepared.launch(i % prepared.copies, stream);
    }
    start.record(stream);
    for (int i = 0; i < 3; ++i) {
        prepared.launch(i % prepared.copies, stream);
    }
    end.record(stream);
    check_spec(cudaStreamSynchronize(stream), "warm-up");
    p.once = std::max(1e-6, end.since(start) / 3);
    // At least once through all copies of the operands, or few executions would find theirs in the cache.
    p.count = std::clamp(static_cast<int>(std::ceil(kGraphSeconds / p.once)), prepared.copies, 2000);
    p.batch = std::make_unique<Batch>(prepared, p.count, stream);
    p.batch->run(stream);
    check_spec(cudaStreamSynchronize(stream), "first graph");
    const int reps = held_s > 0 ? 1 : static_cast<int>(std::clamp(kPointSeconds / (p.once * p.count), 7.0, 100.0));
    p.marks = std::vector<Event>(static_cast<std::size_t>(reps) * 2);
}

Timed::~Timed() = default;

Measured Timed::run(const Monitor& monitor) {
    Parts& p = *parts_;
    Measured out = of_prepared(p.prepared);
    out.warm = p.prepared.warm;
    std::vector<double> seconds;
    if (p.held_s > 0) {
        Sampler sampler(monitor);
        const auto begin = Clock::now();
        while (seconds_since(begin) < p.held_s) {
            // A few graphs in flight, so that the device never waits for the host.
            const int burst = std::max(1, static_cast<int>(kPointSeconds / (p.once * p.count)));
            p.marks[0].record(p.stream);
            for (int i = 0; i < burst; ++i) {
                p.batch->run(p.stream);
            }
            p.marks[1].record(p.stream);
            check_spec(cudaStreamSynchronize(p.stream), "held run");
            seconds.push_back(p.marks[1].since(p.marks[0]) / (static_cast<double>(burst) * p.count));
        }
        seconds.erase(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2));
        sampler.finish(out);
    } else {
        for (std::size_t i = 0; i < p.marks.size(); i += 2) {
            p.marks[i].record(p.stream);
            p.batch->run(p.stream);
            p.marks[i + 1].record(p.stream);
        }
        check_spec(cudaStreamSynchronize(p.stream), "repetitions");
        for (std::size_t i = 0; i < p.marks.size(); i += 2) {
            seconds.push_back(p.marks[i + 1].since(p.marks[i]) / p.count);
        }
    }
    fill_times(seconds, out);
    return out;
}

Measured measure(const Prepared& prepared, double held_s, const Monitor& monitor, cudaStream_t stream) {
    return Timed(prepared, held_s, stream).run(monitor);
}

Measured measure_launch(const Point& point, cudaStream_t stream) {
    Prepared empty;
    empty.launch = [](int, cudaStream_t s) { launch_empty(s); };
    empty.capturable = point.mode == "graph";
    Measured out = of_prepared(empty);
    const int count = static_cast<int>(point.dim("count"));
    const Batch batch(empty, count, stream);
    batch.run(stream);
    check_spec(cudaStreamSynchronize(stream), "warm-up");
    std::vector<double> seconds;
    for (int rep = 0; rep < 20; ++rep) {
        const auto begin = Clock::now();
        if (point.mode == "sync") {
            for (int i = 0; i < count / 10; ++i) {
                launch_empty(stream);
                check_spec(cudaStreamSynchronize(stream), "launch and wait");
            }
            seconds.push_back(seconds_since(begin) / (count / 10));
        } else {
            batch.run(stream);
            check_spec(cudaStreamSynchronize(stream), "launches");
            seconds.push_back(seconds_since(begin) / count);
        }
    }
    fill_times(seconds, out);
    return out;
}

Measured measure_idle(double held_s, const Monitor& monitor) {
    Measured out;
    out.library = "none";
    Sampler sampler(monitor);
    std::this_thread::sleep_for(std::chrono::duration<double>(held_s));
    sampler.finish(out);
    fill_times({held_s}, out);
    return out;
}

}  // namespace orrery::cudabench

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
template __nv_bfloat16* orrery::cudabench::Arena::normal(double, float);
template __half* orrery::cudabench::Arena::normal(double, float);
template __nv_fp8_e4m3* orrery::cudabench::Arena::normal(double, float);
template float* orrery::cudabench::Arena::normal(double, float);
template signed char* orrery::cudabench::Arena::normal(double, float);
