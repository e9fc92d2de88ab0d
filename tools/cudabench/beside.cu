// Measurements while something else runs on the device.
//
// Whatever waits for the device or allocates on it (warm-ups, graphs, operands, pinned memory) is done before the other side
// starts: beside a kernel that runs until it is told to stop, such a call would never come back.

#include "tools/cudabench/bench.cuh"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <thread>

namespace orrery::cudabench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBytes = 256U << 20U;  // of each copy beside
constexpr double kStartSeconds = 5;          // until the other side must run

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

std::shared_ptr<void> pinned_host(std::size_t bytes) {
    void* host = nullptr;
    check_spec(cudaMallocHost(&host, bytes), "pinned host memory");
    std::memset(host, 0, bytes);
    return {host, [](void* p) { cudaFreeHost(p); }};
}

/// What runs meanwhile. A constructor makes it ready, `start` begins it, `stop` ends it and gives its rate.
class Other {
  public:
    virtual ~Other() = default;
    virtual void start() = 0;
    /// Its rate since `start`, in `unit()`.
    virtual double stop() = 0;
    [[nodiscard]] virtual const char* unit() const = 0;
};

/// A kernel on a few multiprocessors that copies until it is told to stop, as a communication library's does.
class KernelBeside final : public Other {
  public:
    KernelBeside(int blocks, Arena& arena, cudaStream_t stream)
        : stream_(stream),
          blocks_(blocks),
          to_(arena.take(kBytes)),
          from_(arena.take(kBytes)),
          control_(pinned_host(64)) {
        // Once with the flag already up: loading a kernel waits for the device.
        *flag() = 1;
        launch();
        check_spec(cudaStreamSynchronize(stream_), "first copy beside");
    }
    void start() override {
        *flag() = 0;
        *copied() = 0;
        begin_ = Clock::now();
        launch();
        while (*copied() == 0) {
            if (seconds_since(begin_) > kStartSeconds) {
                *flag() = 1;
                throw DeviceError("the copy beside does not start");
            }
            std::this_thread::yield();
        }
    }
    double stop() override {
        *flag() = 1;
        check_spec(cudaStreamSynchronize(stream_), "copy beside");
        return static_cast<double>(*copied()) / seconds_since(begin_) / 1e9;
    }
    [[nodiscard]] const char* unit() const override { return "GB/s"; }

  private:
    void launch() {
        launch_persistent_copy(to_, from_, kBytes, blocks_, const_cast<const int*>(flag()),
                               const_cast<unsigned long long*>(copied()), stream_);
    }
    [[nodiscard]] volatile int* flag() const { return static_cast<volatile int*>(control_.get()); }
    [[nodiscard]] volatile unsigned long long* copied() const {
        return reinterpret_cast<volatile unsigned long long*>(static_cast<char*>(control_.get()) + 32);
    }
    cudaStream_t stream_;
    int blocks_;
    void* to_;
    void* from_;
    std::shared_ptr<void> control_;
    Clock::time_point begin_;
};

/// Executions one after another, kept coming by a host thread.
class LaunchesBeside final : public Other {
  public:
    LaunchesBeside(Prepared prepared, double bytes, cudaStream_t stream)
        : prepared_(std::move(prepared)), bytes_(bytes), stream_(stream) {
        check_spec(cudaGetDevice(&device_), "cudaGetDevice");
        finish_operands();
        prepared_.launch(0, stream_);
        check_spec(cudaStreamSynchronize(stream_), "first execution beside");
    }
    ~LaunchesBeside() override { end(); }
    void start() override {
        thread_ = std::thread([this] {
            try {
                check_spec(cudaSetDevice(device_), "cudaSetDevice");
                for (int i = 0; !stop_; ++i) {
                    for (int j = 0; j < 2; ++j) {
                        prepared_.launch((2 * i + j) % prepared_.copies, stream_);
                    }
                    check_spec(cudaStreamSynchronize(stream_), "work beside");
                    done_ += 2;
                }
            } catch (...) {
                failed_ = std::current_exception();
                ended_ = true;
            }
        });
        while (done_ == 0 && !ended_) {
            std::this_thread::yield();
        }
        before_ = done_;
        begin_ = Clock::now();
    }
    double stop() override {
        const double rate = static_cast<double>(done_ - before_) / seconds_since(begin_);
        end();
        if (failed_) {
            std::rethrow_exception(failed_);
        }
        return bytes_ > 0 ? rate * bytes_ / 1e9 : rate;
    }
    [[nodiscard]] const char* unit() const override { return bytes_ > 0 ? "GB/s" : "executions/s"; }

  private:
    void end() {
        stop_ = true;
        if (thread_.joinable()) {
            thread_.join();
        }
    }
    Prepared prepared_;
    double bytes_;  ///< of an execution; 0: executions are counted
    cudaStream_t stream_;
    int device_ = 0;
    std::atomic<bool> stop_{false};
    std::atomic<bool> ended_{false};
    std::atomic<long> done_{0};
    long before_ = 0;
    Clock::time_point begin_;
    std::exception_ptr failed_;
    std::thread thread_;
};

std::unique_ptr<Other> make_other(const std::string& beside, Arena& arena, cudaStream_t stream) {
    constexpr const char* kKernel = "copy sms=";
    if (beside.rfind(kKernel, 0) == 0) {
        return std::make_unique<KernelBeside>(std::stoi(beside.substr(std::strlen(kKernel))), arena, stream);
    }
    if (beside == "gemm" || beside == "rms_norm") {
        Point back;
        back.op = beside;
        back.dtype = "bf16";
        back.layout = "nt";
        back.shape = beside == "gemm"
                         ? std::vector<std::pair<std::string, double>>{{"m", 4096}, {"n", 4096}, {"k", 4096}}
                         : std::vector<std::pair<std::string, double>>{{"tokens", 16384}, {"hidden", 8192}};
        return std::make_unique<LaunchesBeside>(prepare(back, arena), 0, stream);
    }
    const std::shared_ptr<void> host = pinned_host(kBytes);
    void* device = arena.take(kBytes);
    const bool up = beside == "h2d";
    Prepared copy;
    copy.launch = [=](int, cudaStream_t s) {
        check_spec(up ? cudaMemcpyAsync(device, host.get(), kBytes, cudaMemcpyHostToDevice, s)
                 : cudaMemcpyAsync(host.get(), device, kBytes, cudaMemcpyDeviceToHost, s),
              "copy beside");
    };
    return std::make_unique<LaunchesBeside>(std::move(copy), kBytes, stream);
}

}  // namespace

void walk_beside(const Point& point, Arena& arena) {
    (void)prepare(point, arena);
    if (point.beside != "none") {
        (void)arena.take(2 * static_cast<double>(kBytes));
    }
}

Measured measure_beside(const Point& point, Arena& arena, const Monitor& monitor, cudaStream_t stream) {
    const Prepared front = prepare(point, arena);
    Timed timed(front, 0, stream);
    if (point.beside == "none") {
        return timed.run(monitor);
    }
    cudaStream_t side = nullptr;
    check_spec(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking), "second stream");
    const std::shared_ptr<void> side_guard(side, [](void* s) { cudaStreamDestroy(static_cast<cudaStream_t>(s)); });
    const std::unique_ptr<Other> other = make_other(point.beside, arena, side);
    other->start();
    Measured out;
    std::exception_ptr failed;
    try {
        out = timed.run(monitor);
    } catch (...) {
        failed = std::current_exception();
    }
    const double rate = other->stop();  // it must end even when the measurement failed
    if (failed) {
        std::rethrow_exception(failed);
    }
    char text[80];
    std::snprintf(text, sizeof text, "beside ran at %.4g %s (host clock)", rate, other->unit());
    out.note = text;
    return out;
}

}  // namespace orrery::cudabench
