// cudabench: measures the points of points.hpp on the first GPU and writes a microbenchmark trace.
//
// Rows are flushed as measured. Run again with the same file, it goes on where it stopped. A run ends with twenty points
// from its start, marked as repeats, so that drift shows.

#include "tools/cudabench/bench.cuh"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <thread>

#ifndef CUDABENCH_SOURCE
#define CUDABENCH_SOURCE "tools/cudabench"
#endif

namespace {

using namespace orrery::cudabench;
using Clock = std::chrono::steady_clock;

constexpr const char* kHelp =
    "usage: cudabench --out FILE --device PRESET [--groups A,B] [--seconds N] [--list] [--check] [--dry-run]\n"
    "\n"
    "Measures operations on the first GPU and writes a microbenchmark trace (models/calibration/trace.hpp).\n"
    "  --out FILE       trace to write, or to go on with; FILE.skip names points that failed, which are passed over\n"
    "  --device PRESET  the device's name in models/data/devices, such as h200-sxm\n"
    "  --groups A,B     memory, copies, launch, gemm, low_precision, gradients, attention, elementwise, moe, overlap,\n"
    "                   power\n"
    "  --seconds N      stop after that long (default 480; all take 83 on an H200); what is left is measured by the "
    "next run\n"
    "  --list           print the points and end\n"
    "  --check          compare the attention kernels with a plain computation and end\n"
    "  --dry-run        walk through every point's set-up on the host, without a device, and end\n"
    "\n"
    "Exit codes: 0 all measured; 1 out of time, or an error of the device: run it again to go on (the point that "
    "failed is\n"
    "skipped then); 2 a mistake in the options; 3 no device.\n";

struct Options {
    std::string out, device;
    std::set<std::string> groups;
    double seconds = 480;
    bool list = false;
    bool check = false;
    bool dry_run = false;
};

struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

Options parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        const auto value = [&]() -> std::string {
            if (i + 1 == argc) {
                throw UsageError(name + " needs a value");
            }
            return argv[++i];
        };
        if (name == "--list") {
            options.list = true;
        } else if (name == "--check") {
            options.check = true;
        } else if (name == "--dry-run") {
            options.dry_run = true;
        } else if (name == "--out") {
            options.out = value();
        } else if (name == "--device") {
            options.device = value();
        } else if (name == "--seconds") {
            const std::string text = value();
            char* end = nullptr;
            options.seconds = std::strtod(text.c_str(), &end);
            if (*end != '\0' || !(options.seconds > 0)) {
                throw UsageError("--seconds needs a positive number, not '" + text + "'");
            }
        } else if (name == "--groups") {
            std::string text = value() + ",";
            for (std::size_t start = 0, comma = 0; (comma = text.find(',', start)) != std::string::npos;
                 start = comma + 1) {
                options.groups.insert(text.substr(start, comma - start));
            }
        } else if (name == "--help") {
            std::fputs(kHelp, stdout);
            std::exit(0);
        } else {
            throw UsageError("unknown option '" + name + "'");
        }
    }
    for (const std::string& group : options.groups) {
        const std::vector<Point> points = all_points();
        if (std::none_of(points.begin(), points.end(), [&](const Point& p) { return p.group == group; })) {
            throw UsageError("unknown group '" + group + "'");
        }
    }
    if (!options.list && !options.check && !options.dry_run && (options.out.empty() || options.device.empty())) {
        throw UsageError("--out and --device are needed");
    }
    return options;
}

std::vector<std::pair<std::string, std::string>> meta_of(const Options& options, const Monitor& monitor) {
    cudaDeviceProp device{};
    check_spec(cudaGetDeviceProperties(&device, 0), "device properties");
    int runtime = 0;
    cudaRuntimeGetVersion(&runtime);
    char date[16];
    const std::time_t now = std::time(nullptr);
    std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
    std::vector<std::pair<std::string, std::string>> meta = {
        {"device", options.device},
        {"source", CUDABENCH_SOURCE},
        {"date", date},
        {"device_name", device.name},
        {"sms", std::to_string(device.multiProcessorCount)},
        {"l2_bytes", std::to_string(device.l2CacheSize)},
        {"memory_bytes", std::to_string(device.totalGlobalMem)},
        {"ecc", device.ECCEnabled != 0 ? "on" : "off"},
        {"cuda", std::to_string(runtime / 1000) + "." + std::to_string(runtime % 1000 / 10)},
        {"timer", "CUDA events around graphs of at least 200 us"},
        {"warm_up", "5 executions and one graph"},
        {"repetitions", "7 to 100 in about 20 ms"},
        {"l2_flush", "operands rotate over three times the cache; rows with cache warm do not"},
        {"fp8_products", "scales per tensor; fast accumulation but where a row says split_accumulator"},
        {"seed", "1"}};
    for (const auto& entry : monitor.meta()) {
        meta.push_back(entry);
    }
    return meta;
}

Measured run_point(const Point& point, Arena& arena, const Monitor& monitor, cudaStream_t stream) {
    arena.reset();
    if (point.op == "launch") {
        return measure_launch(point, stream);
    }
    if (point.op == "idle") {
        return measure_idle(point.held_s, monitor);
    }
    if (!point.beside.empty()) {
        return measure_beside(point, arena, monitor, stream);
    }
    const Prepared prepared = prepare(point, arena);
    Measured measured = measure(prepared, point.held_s, monitor, stream);
    constexpr double kUnsteady = 1.3;
    if (point.held_s == 0 && measured.p90_ns > kUnsteady * measured.p10_ns) {
        measured = measure(prepared, 0, monitor, stream);
    }
    return measured;
}

// Largest difference between a fused kernel and sums in double precision on the host, over outputs of order one.
double attention_error(const Point& point, Arena& arena, cudaStream_t stream) {
    arena.reset();
    const Prepared prepared = prepare(point, arena);
    prepared.launch(0, stream);
    check_spec(cudaDeviceSynchronize(), "attention");
    const auto batch = static_cast<std::size_t>(point.dim("batch"));
    const auto queries = static_cast<std::size_t>(point.dim("queries", 1));
    const auto keys = static_cast<std::size_t>(point.dim("keys"));
    const auto heads = static_cast<std::size_t>(point.dim("heads"));
    const auto kv_heads = static_cast<std::size_t>(point.dim("kv_heads"));
    const auto d = static_cast<std::size_t>(point.dim("head_dim"));
    // The arena hands out q, k, v, out in order, each rounded up to 256 B.
    const auto rounded = [](std::size_t bytes) { return (bytes + 255) / 256 * 256; };
    const std::size_t q_bytes = rounded(2 * batch * queries * heads * d);
    const std::size_t kv_bytes = rounded(2 * batch * keys * kv_heads * d);
    std::vector<unsigned short> raw((2 * q_bytes + 2 * kv_bytes) / 2);
    arena.reset();
    check_spec(cudaMemcpy(raw.data(), arena.take(1), raw.size() * 2, cudaMemcpyDeviceToHost), "operands");
    const auto number = [&](std::size_t byte_offset, std::size_t index) {
        const unsigned bits = static_cast<unsigned>(raw[byte_offset / 2 + index]) << 16U;
        float out = 0;
        std::memcpy(&out, &bits, sizeof out);
        return static_cast<double>(out);
    };
    double worst = 0;
    for (std::size_t b = 0; b < batch; ++b) {
        for (std::size_t h = 0; h < heads; ++h) {
            const std::size_t g = h / (heads / kv_heads);
            for (std::size_t i = 0; i < queries; ++i) {
                const std::size_t q_at = ((b * queries + i) * heads + h) * d;
                const bool causal = point.dim("causal") > 0;
                const std::size_t seen = causal ? keys - queries + i + 1 : keys;
                std::vector<double> weight(seen);
                double sum = 0;
                for (std::size_t j = 0; j < seen; ++j) {
                    double score = 0;
                    for (std::size_t x = 0; x < d; ++x) {
                        score += number(0, q_at + x) * number(q_bytes, ((b * keys + j) * kv_heads + g) * d + x);
                    }
                    weight[j] = std::exp(score / std::sqrt(static_cast<double>(d)));
                    sum += weight[j];
                }
                for (std::size_t x = 0; x < d; ++x) {
                    double value = 0;
                    for (std::size_t j = 0; j < seen; ++j) {
                        value += weight[j] * number(q_bytes + kv_bytes, ((b * keys + j) * kv_heads + g) * d + x);
                    }
                    worst = std::max(worst, std::abs(value / sum - number(q_bytes + 2 * kv_bytes, q_at + x)));
                }
            }
        }
    }
    return worst;
}

int check_kernels(Arena& arena, cudaStream_t stream) {
    int failures = 0;
    for (const double width : {64.0, 128.0}) {
        for (const double queries : {1.0, 64.0, 100.0}) {
            Point p;
            p.op = "attention_prefill";
            p.shape = {{"batch", 2},    {"queries", queries}, {"keys", queries + 37}, {"heads", 4},
                       {"kv_heads", 2}, {"head_dim", width},  {"causal", 1}};
            const double error = attention_error(p, arena, stream);
            failures += error < 0.02 ? 0 : 1;
            std::printf("attention_prefill %s: largest error %.4f\n", p.shape_text().c_str(), error);
        }
    }
    for (const double keys : {1.0, 70.0, 1000.0}) {
        Point p;
        p.op = "attention_decode";
        p.shape = {{"batch", 3}, {"keys", keys}, {"heads", 8}, {"kv_heads", 2}, {"head_dim", 128}};
        const double error = attention_error(p, arena, stream);
        failures += error < 0.02 ? 0 : 1;
        std::printf("attention_decode %s: largest error %.4f\n", p.shape_text().c_str(), error);
    }
    std::printf("%d failed\n", failures);
    return failures == 0 ? 0 : 1;
}

/// Points that failed in this run or an earlier one: `name<TAB>reason` a line.
class SkipList {
  public:
    explicit SkipList(std::string path) : path_(std::move(path)) {
        std::ifstream in(path_);
        for (std::string line; std::getline(in, line);) {
            points_.insert(line.substr(0, line.find('\t')));
        }
    }
    [[nodiscard]] const std::set<std::string>& points() const { return points_; }
    void add(const std::string& point, const std::string& reason) {
        points_.insert(point);
        std::ofstream(path_, std::ios::app) << point << '\t' << reason << std::endl;
        std::fprintf(stderr, "skipped from now on: %s: %s\n", point.c_str(), reason.c_str());
    }

  private:
    std::string path_;
    std::set<std::string> points_;
};

/// Ends the process when a point takes a minute longer than it should: nothing else ends a kernel that hangs.
class Watch {
  public:
    Watch(SkipList& skipped, const Point& point)
        : thread_([this, &skipped, &point, limit = std::chrono::duration<double>(60 + 2 * point.held_s)] {
              std::unique_lock<std::mutex> lock(mutex_);
              if (!ended_.wait_for(lock, limit, [this] { return done_; })) {
                  skipped.add(point.id(), "did not end in time");
                  std::fprintf(stderr, "cudabench: run it again to go on\n");
                  std::_Exit(1);
              }
          }) {}
    ~Watch() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            done_ = true;
        }
        ended_.notify_one();
        thread_.join();
    }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

  private:
    std::mutex mutex_;
    std::condition_variable ended_;
    bool done_ = false;
    std::thread thread_;
};

// Every point's sizes, shapes and memory as on an H200; what needs a device (kernels, libraries) is not touched.
int walk(const std::vector<Point>& points) {
    Arena arena(DeviceFigures::h200(), true);
    std::size_t walked = 0;
    std::size_t most = 0;
    for (const Point& point : points) {
        arena.reset();
        try {
            if (!point.beside.empty()) {
                walk_beside(point, arena);
            } else if (point.op != "launch" && point.op != "idle") {
                (void)prepare(point, arena);
            }
            ++walked;
            most = std::max(most, arena.used());
        } catch (const NotMeasurable& reason) {
            std::printf("left out: %s: %s\n", point.id().c_str(), reason.what());
        }
    }
    std::printf("%zu of %zu points can be set up; the largest takes %.1f GB\n", walked, points.size(),
                static_cast<double>(most) / 1e9);
    return walked == points.size() ? 0 : 1;
}

int run(const Options& options) {
    const std::vector<Point> points = all_points();
    if (options.dry_run) {
        return walk(points);
    }
    if (options.list) {
        for (const Point& point : points) {
            std::printf("%s\n", point.id().c_str());
        }
        return 0;
    }
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::fprintf(stderr, "cudabench: no CUDA device here\n");
        return 3;
    }
    Arena arena(DeviceFigures::measured());
    cudaStream_t stream = nullptr;
    check_spec(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    if (options.check) {
        return check_kernels(arena, stream);
    }
    const Monitor monitor;

    std::string before;
    {
        std::ifstream in(options.out, std::ios::binary);
        before.assign(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
    before.resize(before.rfind('\n') == std::string::npos ? 0
                                                          : before.rfind('\n') + 1);  // a row cut off is measured again
    const std::vector<std::string> names = measured_points(before);
    std::set<std::string> done(names.begin(), names.end());
    SkipList skipped(options.out + ".skip");
    done.insert(skipped.points().begin(), skipped.points().end());
    std::ofstream out(options.out, std::ios::binary | std::ios::trunc);
    out << (before.empty() ? trace_head(meta_of(options, monitor)) : before) << std::flush;
    if (!out) {
        throw std::runtime_error("cannot write " + options.out);
    }

    // A second of matrix products brings clocks and temperature to where they stay.
    Point warm;
    warm.op = "gemm";
    warm.dtype = "bf16";
    warm.layout = "nt";
    warm.shape = {{"m", 4096}, {"n", 4096}, {"k", 4096}};
    arena.reset();
    (void)measure(prepare(warm, arena), 1, monitor, stream);

    const auto start = Clock::now();
    const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
    int measured = 0;
    int left_out = 0;
    const auto measure_one = [&](const Point& point, bool repeat) {
        const Watch watch(skipped, point);
        try {
            out << trace_row(point, run_point(point, arena, monitor, stream), repeat) << "\n" << std::flush;
            ++measured;
        } catch (const NotMeasurable& reason) {
            std::fprintf(stderr, "left out: %s: %s\n", point.id().c_str(), reason.what());
            ++left_out;
        } catch (const DeviceError& error) {
            // An error of the device ends its context: only another process can go on.
            skipped.add(point.id(), error.what());
            throw;
        }
    };
    for (std::size_t i = 0; i < points.size(); ++i) {
        const Point& point = points[i];
        if (done.count(point.id()) != 0 || (!options.groups.empty() && options.groups.count(point.group) == 0)) {
            continue;
        }
        if (elapsed() > options.seconds) {
            std::fprintf(stderr, "cudabench: out of time at point %zu of %zu; run it again to go on\n", i,
                         points.size());
            return 1;
        }
        measure_one(point, false);
        if (measured % 100 == 0) {
            std::fprintf(stderr, "%zu of %zu points, %.0f s\n", i + 1, points.size(), elapsed());
        }
    }
    constexpr std::size_t kRepeats = 20;
    if (options.groups.empty()) {
        std::size_t repeated = 0;
        for (std::size_t i = 0; i < points.size() && repeated < kRepeats; i += 7) {
            if (skipped.points().count(points[i].id()) == 0) {
                measure_one(points[i], true);
                ++repeated;
            }
        }
    }
    std::fprintf(stderr, "%d points measured, %d left out, %zu skipped (%s.skip), %.0f s\n", measured, left_out,
                 skipped.points().size(), options.out.c_str(), elapsed());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        // A kernel that is loaded at its first launch makes the driver wait for the device: for ever, beside an endless one.
        setenv("CUDA_MODULE_LOADING", "EAGER", 0);
        return run(parse(argc, argv));
    } catch (const UsageError& error) {
        std::fprintf(stderr, "cudabench: %s\n%s", error.what(), kHelp);
        return 2;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "cudabench: %s\n", error.what());
        return 1;
    }
}
