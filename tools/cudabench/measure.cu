#include "tools/cudabench/bench.cuh"

#include <dlfcn.h>

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
    Event() { check(cudaEventCreate(&event_), "cudaEventCreate"); }
    ~Event() { cudaEventDestroy(event_); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
    [[nodiscard]] double since(const Event& start) const {
        float ms = 0;
        check(cudaEventElapsedTime(&ms, start.event_, event_), "cudaEventElapsedTime");
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
        check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin of capture");
        issue(stream);
        check(cudaStreamEndCapture(stream, &graph), "end of capture");
        const cudaError_t status = cudaGraphInstantiate(&graph_, graph, 0);
        cudaGraphDestroy(graph);
        check(status, "cudaGraphInstantiate");
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
            check(cudaGraphLaunch(graph_, stream), "cudaGraphLaunch");
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
    out.note = prepared.note;
    return out;
}

}  // namespace

void check(cudaError_t status, const char* what) {
    if (status != cudaSuccess) {
        throw DeviceError(std::string(what) + ": " + cudaGetErrorString(status));
    }
}

Arena::Arena(std::size_t bytes) : size_(bytes) {
    check(cudaMalloc(reinterpret_cast<void**>(&base_), bytes), "cudaMalloc of the arena");
}

Arena::~Arena() {
    cudaFree(base_);
}

void* Arena::take(double bytes) {
    const auto rounded = (static_cast<std::size_t>(std::ceil(bytes)) + 255) / 256 * 256;
    if (rounded > size_ - used_) {
        throw NotMeasurable("needs more memory than this device has");
    }
    void* out = base_ + used_;
    used_ += rounded;
    return out;
}

template <typename T>
T* Arena::normal(double count, float scale) {
    T* out = static_cast<T*>(take(count * sizeof(T)));
    fill_normal<T><<<2048, 256>>>(out, static_cast<std::size_t>(count), scale, seed_++ * 2654435761U);
    check(cudaGetLastError(), "fill with random values");
    return out;
}

int* Arena::indices(double count, int limit) {
    int* out = static_cast<int*>(take(count * sizeof(int)));
    fill_indices<<<1024, 256>>>(out, static_cast<std::size_t>(count), limit, seed_++ * 2654435761U);
    check(cudaGetLastError(), "fill with random indices");
    return out;
}

double l2_bytes() {
    int device = 0;
    int bytes = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device), "size of the L2 cache");
    return bytes;
}

int copies_for(double operand_bytes) {
    return static_cast<int>(std::clamp(std::ceil(3 * l2_bytes() / std::max(1.0, operand_bytes)), 1.0, 256.0));
}

Prepared prepare(const Point& point, Arena& arena) {
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
    return prepare_elementwise(point, arena);
}

Measured measure(const Prepared& prepared, double held_s, const Monitor& monitor, cudaStream_t stream) {
    Measured out = of_prepared(prepared);
    check(cudaDeviceSynchronize(), "random operands");
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
    check(cudaStreamSynchronize(stream), "warm-up");
    const double once = std::max(1e-6, end.since(start) / 3);
    const int count = std::clamp(static_cast<int>(std::ceil(kGraphSeconds / once)), std::min(4, prepared.copies), 2000);
    out.warm = std::min(count, prepared.copies) * prepared.operand_bytes < 2.0 * l2_bytes();
    const Batch batch(prepared, count, stream);
    batch.run(stream);
    check(cudaStreamSynchronize(stream), "first graph");

    std::vector<double> seconds;
    if (held_s > 0) {
        Sampler sampler(monitor);
        const auto begin = Clock::now();
        while (seconds_since(begin) < held_s) {
            // A few graphs in flight, so that the device never waits for the host.
            const int burst = std::max(1, static_cast<int>(kPointSeconds / (once * count)));
            start.record(stream);
            for (int i = 0; i < burst; ++i) {
                batch.run(stream);
            }
            end.record(stream);
            check(cudaStreamSynchronize(stream), "held run");
            seconds.push_back(end.since(start) / (static_cast<double>(burst) * count));
        }
        seconds.erase(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2));
        sampler.finish(out);
    } else {
        const int reps = static_cast<int>(std::clamp(kPointSeconds / (once * count), 7.0, 100.0));
        std::vector<Event> marks(static_cast<std::size_t>(reps) * 2);
        for (int i = 0; i < reps; ++i) {
            marks[2 * i].record(stream);
            batch.run(stream);
            marks[2 * i + 1].record(stream);
        }
        check(cudaStreamSynchronize(stream), "repetitions");
        for (int i = 0; i < reps; ++i) {
            seconds.push_back(marks[2 * i + 1].since(marks[2 * i]) / count);
        }
    }
    fill_times(seconds, out);
    return out;
}

Measured measure_launch(const Point& point, cudaStream_t stream) {
    Prepared empty;
    empty.launch = [](int, cudaStream_t s) { launch_empty(s); };
    empty.capturable = point.mode == "graph";
    Measured out = of_prepared(empty);
    const int count = static_cast<int>(point.dim("count"));
    const Batch batch(empty, count, stream);
    batch.run(stream);
    check(cudaStreamSynchronize(stream), "warm-up");
    std::vector<double> seconds;
    for (int rep = 0; rep < 20; ++rep) {
        const auto begin = Clock::now();
        if (point.mode == "sync") {
            for (int i = 0; i < count / 10; ++i) {
                launch_empty(stream);
                check(cudaStreamSynchronize(stream), "launch and wait");
            }
            seconds.push_back(seconds_since(begin) / (count / 10));
        } else {
            batch.run(stream);
            check(cudaStreamSynchronize(stream), "launches");
            seconds.push_back(seconds_since(begin) / count);
        }
    }
    fill_times(seconds, out);
    return out;
}

Measured measure_host_copy(const Point& point, Arena& arena, cudaStream_t stream) {
    const auto bytes = static_cast<std::size_t>(point.dim("bytes"));
    void* host = nullptr;
    check(cudaMallocHost(&host, bytes), "pinned host memory");
    const std::shared_ptr<void> pinned(host, [](void* p) { cudaFreeHost(p); });
    std::memset(host, 1, bytes);
    char* device = static_cast<char*>(arena.take(point.dim("bytes")));
    const bool up = point.op == "h2d";
    Prepared copy;
    copy.launch = [=](int, cudaStream_t s) {
        check(up ? cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, s)
                 : cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, s),
              "copy");
    };
    copy.operand_bytes = static_cast<double>(bytes);
    copy.capturable = false;
    copy.library = "cuda-runtime";
    Monitor monitor;
    return measure(copy, 0, monitor, stream);
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

Measured measure_beside(const Point& point, Arena& arena, const Monitor& monitor, cudaStream_t stream) {
    constexpr std::size_t kBytes = 256U << 20U;
    const Prepared front = prepare(point, arena);
    if (point.beside == "none") {
        return measure(front, 0, monitor, stream);
    }
    cudaStream_t side = nullptr;
    check(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking), "second stream");
    const std::shared_ptr<void> side_guard(side, [](void* s) { cudaStreamDestroy(static_cast<cudaStream_t>(s)); });

    std::atomic<bool> stop{false};
    double rate = 0;  // of what runs beside: bytes or executions a second
    const char* unit = "GB/s";
    Measured out;
    if (point.beside.rfind("copy sms=", 0) == 0) {
        void* host = nullptr;
        check(cudaMallocHost(&host, 64), "flag");
        const std::shared_ptr<void> flag_guard(host, [](void* p) { cudaFreeHost(p); });
        std::memset(host, 0, 64);
        auto* flag = static_cast<volatile int*>(host);
        auto* copied = reinterpret_cast<unsigned long long*>(static_cast<char*>(host) + 32);
        const int blocks = std::stoi(point.beside.substr(9));
        launch_persistent_copy(arena.take(kBytes), arena.take(kBytes), kBytes, blocks, static_cast<const int*>(host),
                               copied, side);
        const auto begin = Clock::now();
        std::exception_ptr failed;
        try {
            out = measure(front, 0, monitor, stream);
        } catch (...) {
            failed = std::current_exception();
        }
        const double seconds = seconds_since(begin);
        *flag = 1;  // the kernel must end even when the measurement failed
        check(cudaStreamSynchronize(side), "persistent copy");
        if (failed) {
            std::rethrow_exception(failed);
        }
        rate = static_cast<double>(*copied) / seconds / 1e9;
    } else {
        void* host = nullptr;
        check(cudaMallocHost(&host, kBytes), "pinned host memory");
        const std::shared_ptr<void> pinned(host, [](void* p) { cudaFreeHost(p); });
        void* device = arena.take(kBytes);
        Prepared other;
        if (point.beside == "gemm" || point.beside == "rms_norm") {
            Point back;
            back.op = point.beside;
            back.dtype = "bf16";
            back.layout = "nt";
            back.shape = point.beside == "gemm"
                             ? std::vector<std::pair<std::string, double>>{{"m", 4096}, {"n", 4096}, {"k", 4096}}
                             : std::vector<std::pair<std::string, double>>{{"tokens", 16384}, {"hidden", 8192}};
            other = prepare(back, arena);
            unit = "executions/s";
        } else {
            const bool up = point.beside == "h2d";
            other.launch = [=](int, cudaStream_t s) {
                check(up ? cudaMemcpyAsync(device, host, kBytes, cudaMemcpyHostToDevice, s)
                         : cudaMemcpyAsync(host, device, kBytes, cudaMemcpyDeviceToHost, s),
                      "copy beside");
            };
        }
        std::atomic<long> done{0};
        int device_id = 0;
        check(cudaGetDevice(&device_id), "cudaGetDevice");
        std::exception_ptr side_failed;
        std::thread thread([&] {
            try {
                check(cudaSetDevice(device_id), "cudaSetDevice");
                for (int i = 0; !stop; ++i) {
                    for (int j = 0; j < 2; ++j) {
                        other.launch((2 * i + j) % other.copies, side);
                    }
                    check(cudaStreamSynchronize(side), "work beside");
                    done += 2;
                }
            } catch (...) {
                side_failed = std::current_exception();
            }
        });
        while (done == 0 && !side_failed) {
            std::this_thread::yield();
        }
        const long before = done;
        const auto begin = Clock::now();
        std::exception_ptr failed;
        try {
            out = measure(front, 0, monitor, stream);
        } catch (...) {
            failed = std::current_exception();
        }
        rate = static_cast<double>(done - before) / seconds_since(begin);
        rate *= *unit == 'G' ? kBytes / 1e9 : 1;
        stop = true;
        thread.join();
        for (const std::exception_ptr& error : {side_failed, failed}) {
            if (error) {
                std::rethrow_exception(error);
            }
        }
    }
    char text[80];
    std::snprintf(text, sizeof text, "beside ran at %.4g %s (host clock)", rate, unit);
    out.note = text;
    return out;
}

// The management library's stable C interface, loaded by name so that neither build nor run needs it.
struct Monitor::Library {
    void* handle = nullptr;
    void* device = nullptr;

    template <typename... Arguments>
    bool call(const char* name, Arguments... arguments) const {
        const auto function =
            reinterpret_cast<int (*)(Arguments...)>(handle == nullptr ? nullptr : dlsym(handle, name));
        return function != nullptr && function(arguments...) == 0;
    }
};

Monitor::Monitor() : library_(std::make_unique<Library>()) {
    library_->handle = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    char bus[32] = {};
    int device = 0;
    const bool ready =
        library_->call("nvmlInit_v2") && cudaGetDevice(&device) == cudaSuccess &&
        cudaDeviceGetPCIBusId(bus, sizeof bus, device) == cudaSuccess &&
        library_->call("nvmlDeviceGetHandleByPciBusId_v2", static_cast<const char*>(bus), &library_->device);
    if (!ready) {
        library_->device = nullptr;
    }
}

Monitor::~Monitor() {
    if (library_->handle != nullptr) {
        library_->call("nvmlShutdown");
        dlclose(library_->handle);
    }
}

Monitor::Sample Monitor::sample() const {
    constexpr int kSmClock = 1;
    constexpr int kMemoryClock = 2;
    constexpr int kGpuTemperature = 0;
    Sample out;
    if (library_->device == nullptr) {
        return out;
    }
    unsigned value = 0;
    if (library_->call("nvmlDeviceGetPowerUsage", library_->device, &value)) {
        out.power_w = value * 1e-3;
    }
    if (library_->call("nvmlDeviceGetClockInfo", library_->device, kSmClock, &value)) {
        out.sm_clock_mhz = value;
    }
    if (library_->call("nvmlDeviceGetClockInfo", library_->device, kMemoryClock, &value)) {
        out.memory_clock_mhz = value;
    }
    if (library_->call("nvmlDeviceGetTemperature", library_->device, kGpuTemperature, &value)) {
        out.temperature_c = value;
    }
    library_->call("nvmlDeviceGetCurrentClocksThrottleReasons", library_->device, &out.throttle);
    out.throttle &= ~1ULL;  // idle is no limit
    return out;
}

std::vector<std::pair<std::string, std::string>> Monitor::meta() const {
    std::vector<std::pair<std::string, std::string>> out;
    if (library_->device == nullptr) {
        return out;
    }
    char text[96] = {};
    unsigned value = 0;
    constexpr unsigned kLength = sizeof text;
    if (library_->call("nvmlSystemGetDriverVersion", static_cast<char*>(text), kLength)) {
        out.emplace_back("driver", text);
    }
    if (library_->call("nvmlDeviceGetVbiosVersion", library_->device, static_cast<char*>(text), kLength)) {
        out.emplace_back("vbios", text);
    }
    if (library_->call("nvmlDeviceGetPowerManagementLimit", library_->device, &value)) {
        out.emplace_back("power_limit_w", std::to_string(value / 1000));
    }
    if (library_->call("nvmlDeviceGetMaxClockInfo", library_->device, 1, &value)) {
        out.emplace_back("sm_clock_max_mhz", std::to_string(value));
    }
    if (library_->call("nvmlDeviceGetMaxClockInfo", library_->device, 2, &value)) {
        out.emplace_back("memory_clock_max_mhz", std::to_string(value));
    }
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
