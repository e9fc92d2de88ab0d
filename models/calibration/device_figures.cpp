#include "models/calibration/device_figures.hpp"

#include "models/roofline.hpp"
#include "sim/base/error.hpp"
#include "sim/base/math.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

namespace orrery::models {

namespace {

constexpr double kBeyondCaches = 8;       // caches' worth of an array, so that nothing of it is left from before
constexpr double kLongCopy = 16 << 20;    // B, from which a link's latency does not show
constexpr double kSmallArray = 16 << 20;  // B, of which a kernel's start is an eighth or more
constexpr double kLongProduct = 100e-6;   // s, from which launches and last waves do not show
constexpr double kSustained = 1;          // s
constexpr double kThrottled = 1.02;       // held over burst: less is noise

bool is_collective(const TraceRow& row) {
    return row.op == "all_reduce" || row.op == "all_gather" || row.op == "reduce_scatter" || row.op == "all_to_all" ||
           row.op == "broadcast" || row.op == "send_recv";
}

bool is_product(const TraceRow& row) {
    return row.op == "gemm" && row.phase == TracePhase::forward && (row.dtype == "bf16" || row.dtype == "fp16");
}

double rate_of(const TraceRow& row) {
    return bytes_of(*operation_of(row)) / (row.median_ns * 1e-9);
}

// Of one field: the rows that say it, and what they say together.
struct FigureReader {
    const char* key;
    Dimension dimension;
    Sourced<double> DeviceSpec::*member;
    bool (*reads)(const TraceRow&, const DeviceSpec&);
    double (*value)(const std::vector<const TraceRow*>&, const DeviceSpec&);
    const char* from;
    double most;  ///< a value above it cannot be; 0: any
};

double best_rate(const std::vector<const TraceRow*>& rows) {
    double best = 0;
    for (const TraceRow* row : rows) {
        best = std::max(best, rate_of(*row));
    }
    return best;
}

bool alone_in_bursts(const TraceRow& row) {
    return row.beside.empty() && row.held_s < kSustained && row.split.empty() && row.mode != "eager" &&
           row.mode != "sync";
}

bool reads_memory(const TraceRow& row, const DeviceSpec& device) {
    return row.op == "triad" && alone_in_bursts(row) && row.cache != "warm" &&
           row.dim("bytes") >= kBeyondCaches * std::max(1.0, device.cache.value);
}
bool reads_start(const TraceRow& row, const DeviceSpec&) {
    return row.op == "triad" && alone_in_bursts(row) && row.cache != "warm" && row.dim("bytes") <= kSmallArray;
}
bool reads_links(const TraceRow& row, const DeviceSpec&) {
    return (row.op == "h2d" || row.op == "d2h") && alone_in_bursts(row) && row.dim("bytes") >= kLongCopy;
}
bool reads_launch(const TraceRow& row, const DeviceSpec&) {
    return row.op == "launch" && row.mode == "stream";
}
bool reads_graph(const TraceRow& row, const DeviceSpec&) {
    return row.op == "launch" && (row.mode == "graph" || row.mode.empty());
}
bool reads_idle(const TraceRow& row, const DeviceSpec&) {
    return row.op == "idle" && row.power_w > 0;
}
bool held_product(const TraceRow& row, const DeviceSpec&) {
    return row.op == "gemm" && row.held_s >= kSustained && row.beside.empty() && row.power_w > 0;
}
bool held_triad(const TraceRow& row, const DeviceSpec&) {
    return row.op == "triad" && row.held_s >= kSustained && row.beside.empty() && row.power_w > 0;
}

double slower_direction(const std::vector<const TraceRow*>& rows, const DeviceSpec&) {
    std::map<std::string, double> best;
    for (const TraceRow* row : rows) {
        best[row->op] = std::max(best[row->op], rate_of(*row));
    }
    double least = 1e300;
    for (const auto& [op, rate] : best) {
        least = std::min(least, rate);
    }
    return least;
}
double of_memory(const std::vector<const TraceRow*>& rows, const DeviceSpec& device) {
    return best_rate(rows) / device.memory_bandwidth.value;
}
double shortest(const std::vector<const TraceRow*>& rows, const DeviceSpec&) {
    double least = 1e300;
    for (const TraceRow* row : rows) {
        least = std::min(least, row->median_ns * 1e-9);
    }
    return least;
}
// The median of what small kernels take beside their bytes.
double beside_bytes(const std::vector<const TraceRow*>& rows, const DeviceSpec& device) {
    const double rate = device.memory_bandwidth.value * device.memory_efficiency.value;
    std::vector<double> starts;
    for (const TraceRow* row : rows) {
        starts.push_back(row->median_ns * 1e-9 - bytes_of(*operation_of(*row)) / rate);
    }
    std::sort(starts.begin(), starts.end());
    return std::max(0.0, starts[starts.size() / 2]);
}
double most_power(const std::vector<const TraceRow*>& rows, const DeviceSpec&) {
    double most = 0;
    for (const TraceRow* row : rows) {
        most = std::max(most, row->power_w);
    }
    return most;
}
double mean_power(const std::vector<const TraceRow*>& rows, const DeviceSpec&) {
    double sum = 0;
    for (const TraceRow* row : rows) {
        sum += row->power_w;
    }
    return sum / static_cast<double>(rows.size());
}

const FigureReader kFigureReaders[] = {
    {"memory_efficiency", Dimension::fraction, &DeviceSpec::memory_efficiency, reads_memory, of_memory,
     "triad beyond the cache", 1},
    {"host_bandwidth", Dimension::rate, &DeviceSpec::host_bandwidth, reads_links, slower_direction,
     "pinned copies, the slower direction", 0},
    {"launch", Dimension::time, &DeviceSpec::launch, reads_launch, shortest, "empty kernels on a stream", 1e-3},
    {"streaming_start", Dimension::time, &DeviceSpec::streaming_start, reads_start, beside_bytes,
     "small triads less their bytes", 1e-3},
    {"graph_launch", Dimension::time, &DeviceSpec::graph_launch, reads_graph, shortest, "empty kernels of a graph",
     1e-3},
    {"idle_power", Dimension::power, &DeviceSpec::idle_power, reads_idle, mean_power, "an idle device", 0},
    {"matrix_power", Dimension::power, &DeviceSpec::matrix_power, held_product, most_power, "products held", 0},
    {"memory_power", Dimension::power, &DeviceSpec::memory_power, held_triad, most_power, "triad held", 0},
};

bool long_product(const TraceRow& row, const DeviceSpec& device) {
    return is_product(row) && row.layout != "tn" && why_not_fitted(row, device).empty() &&
           flops_of(*operation_of(row)) / device.flops_bf16.value >= kLongProduct;
}

// The rate of a product over the peak at which the power limit begins to act; 0 where no product was held and in a burst.
double knee_of(const Trace& trace, const DeviceSpec& device) {
    double knee = 0;
    for (const TraceRow& held : trace.rows) {
        if (!is_product(held) || held.held_s < kSustained || !held.beside.empty()) {
            continue;
        }
        for (const TraceRow& burst : trace.rows) {
            const double slower = held.median_ns / burst.median_ns;
            if (is_product(burst) && burst.shape == held.shape && burst.dtype == held.dtype && alone_in_bursts(burst) &&
                slower > kThrottled) {
                const double rate = flops_of(*operation_of(burst)) / (burst.median_ns * 1e-9);
                knee = std::max(knee, rate / device.flops_bf16.value / (slower * slower * slower));
            }
        }
    }
    return knee;
}

// Figures that rows which are points of fits give as well.
void figures_of_points(const Trace& trace, const DeviceSpec& device, TraceUse& out) {
    double best = 0;
    std::int64_t rows = 0;
    for (const TraceRow& row : trace.rows) {
        if (long_product(row, device)) {
            best = std::max(best, flops_of(*operation_of(row)) / (row.median_ns * 1e-9) / device.flops_bf16.value);
            ++rows;
        }
    }
    if (best > 0 && best <= 1) {
        out.figures.push_back({"matrix_efficiency", Dimension::fraction, best, device.matrix_efficiency.value,
                               "the best 16-bit product", rows});
    }
    if (const double knee = knee_of(trace, device); knee > 0 && knee < 1) {
        out.figures.push_back({"power_knee", Dimension::fraction, knee, device.power_knee.value,
                               "a 16-bit product held and in a burst", 1});
    }
    const auto limit = trace.meta.find("power_limit_w");
    double watts = 0;
    if (limit != trace.meta.end() && parse_number(limit->second, watts) && watts > 0 && watts <= 1e5) {
        out.figures.push_back({"tdp", Dimension::power, watts, device.tdp.value, "the driver's power limit", 0});
    }
}

// Why nothing takes rows that a fit does not, by what they measured.
std::string reason_of(const TraceRow& row, const DeviceSpec& device) {
    static const std::map<std::string, const char*> kReasons = {
        {"copy", "streaming kernels go at the triad's rate"},
        {"fill", "streaming kernels go at the triad's rate"},
        {"read", "streaming kernels go at the triad's rate"},
        {"triad", "it is not beyond eight caches: fits of streaming kernels hold how rates rise with size"},
        {"h2d", "below 16 MiB: the device file has a rate, and no latency of copies"},
        {"d2h", "below 16 MiB: the device file has a rate, and no latency of copies"},
        {"both_ways", "the device file has one rate for each direction alone"},
        {"pointer_chase", "the device file has no latency of memory: kernels are fitted whole"},
        {"l2_read", "the device file has no rate of the cache: kernels are fitted whole"},
        {"shared_read", "the device file has no rate of shared memory: kernels are fitted whole"},
        {"launch", "the host waited for each kernel, which no simulated host does"},
        {"idle", "its power was not read"},
        {"layer", "end to end: for 'validate compute --trace'"},
        {"step", "end to end: for 'validate compute --trace'"},
        {"p2p", "links are the fabric's, not the device's"},
    };
    const std::string kernels = why_not_fitted(row, device);
    const bool usual =
        row.beside.empty() && row.split.empty() && row.held_s < kSustained && row.phase == TracePhase::forward;
    const auto found = kReasons.find(row.op);
    if (usual && found != kReasons.end()) {
        return found->second;
    }
    return usual && kernels == "no fit is of such operations" ? "no fit is of it: the roofline prices it" : kernels;
}

std::string shown(const TraceRow& row) {
    std::string out = row.op;
    if (row.phase != TracePhase::forward) {
        out += " " + trace_phase_names()[static_cast<std::size_t>(row.phase)];
    }
    if (!row.beside.empty()) {
        out += " beside " + row.beside.substr(0, row.beside.find(' '));
    }
    if (row.held_s >= kSustained) {
        out += ", held";
    }
    if (row.mode == "eager" || row.mode == "sync") {
        out += ", " + row.mode;
    }
    return out;
}

// What rows of one kind measured: the range of their rates, times a load, or times over the roofline's.
class Shows {
  public:
    void add(const TraceRow& row, const Roofline& roofline) {
        const double seconds = row.median_ns * 1e-9;
        const std::optional<Operation> operation = operation_of(row);
        if (row.op == "pointer_chase") {
            take(seconds / row.dim("loads") * 1e9, "ns a load");
        } else if (row.op == "l2_read" || row.op == "both_ways" || row.op == "shared_read" || row.op == "p2p") {
            const double times = row.op == "both_ways" ? 2 : row.dim("loads", 1);
            take(times * row.dim("bytes") / seconds * 1e-9,
                 row.op == "shared_read" ? "GB/s of one multiprocessor" : "GB/s");
        } else if (row.op == "launch" || row.op == "idle") {
            take(seconds * 1e6, "us");
        } else if (operation && flops_of(*operation) == 0) {
            take(rate_of(row) * 1e-9, "GB/s");
        } else if (operation) {
            take(seconds / roofline.seconds(*operation).value(), "times the roofline");
        }
    }
    [[nodiscard]] std::string text() const {
        return unit_ == nullptr ? std::string()
               : low_ == high_  ? fmt::format("{:.3g} {}", low_, unit_)
                                : fmt::format("{:.3g} to {:.3g} {}", low_, high_, unit_);
    }

  private:
    void take(double value, const char* unit) {
        low_ = unit_ == nullptr ? value : std::min(low_, value);
        high_ = unit_ == nullptr ? value : std::max(high_, value);
        unit_ = unit;
    }
    double low_ = 0, high_ = 0;
    const char* unit_ = nullptr;
};

}  // namespace

std::int64_t TraceUse::rows() const {
    std::int64_t sum = fitted + collectives + held_back;
    for (const DeviceFigure& figure : figures) {
        sum += figure.key == "matrix_efficiency" || figure.key == "power_knee" ? 0 : figure.rows;
    }
    for (const UnusedRows& one : unused) {
        sum += one.rows;
    }
    return sum;
}

TraceUse use_of(const Trace& trace, const DeviceSpec& device) {
    TraceUse out;
    const Roofline roofline(device);
    std::map<std::pair<std::string, std::string>, std::pair<std::int64_t, Shows>> unused;
    const auto leave = [&](const TraceRow& row, const std::string& why) {
        auto& [count, shows] = unused[{shown(row), why}];
        ++count;
        shows.add(row, roofline);
    };
    std::vector<std::vector<const TraceRow*>> read(std::size(kFigureReaders));
    for (const TraceRow& row : trace.rows) {
        const auto reader = std::find_if(std::begin(kFigureReaders), std::end(kFigureReaders),
                                         [&](const FigureReader& one) { return one.reads(row, device); });
        if (row.split == "holdout") {
            ++out.held_back;
        } else if (is_collective(row)) {
            ++out.collectives;
        } else if (row.split != "repeat" && reader != std::end(kFigureReaders)) {
            read[static_cast<std::size_t>(reader - std::begin(kFigureReaders))].push_back(&row);
        } else if (why_not_fitted(row, device).empty()) {
            ++out.fitted;
        } else {
            leave(row, reason_of(row, device));
        }
    }
    for (std::size_t i = 0; i < read.size(); ++i) {
        const FigureReader& reader = kFigureReaders[i];
        if (read[i].empty()) {
            continue;
        }
        const double value = reader.value(read[i], device);
        if (reader.most > 0 && value > reader.most) {
            for (const TraceRow* row : read[i]) {
                leave(*row, fmt::format("{} would be {:.3g}, which cannot be", reader.key, value));
            }
            continue;
        }
        out.figures.push_back({reader.key, reader.dimension, value, (device.*reader.member).value, reader.from,
                               static_cast<std::int64_t>(read[i].size())});
    }
    figures_of_points(trace, device, out);
    for (const auto& [key, rows] : unused) {
        out.unused.push_back({key.first, rows.first, rows.second.text(), key.second});
    }
    return out;
}

DeviceSpec with_figures(DeviceSpec device, const std::vector<DeviceFigure>& figures, const std::string& source) {
    const std::map<std::string, Sourced<double> DeviceSpec::*> more = {
        {"matrix_efficiency", &DeviceSpec::matrix_efficiency},
        {"power_knee", &DeviceSpec::power_knee},
        {"tdp", &DeviceSpec::tdp}};
    for (const DeviceFigure& figure : figures) {
        const auto reader = std::find_if(std::begin(kFigureReaders), std::end(kFigureReaders),
                                         [&](const FigureReader& one) { return figure.key == one.key; });
        const auto member = reader != std::end(kFigureReaders) ? reader->member : more.at(figure.key);
        device.*member = {figure.value, "measured", fmt::format("{}: {}", source, figure.from)};
    }
    return device;
}

std::string format_device(const DeviceSpec& device) {
    DeviceSpec copy = device;
    std::string out = fmt::format("# {}: written by 'orrery calibrate'; each value has its source.\n", device.name);
    const auto fields = nlohmann::ordered_json::parse(write_fields([&](Fields& all) { describe(all, copy); }));
    for (const auto& [key, value] : fields.items()) {
        out += fmt::format("{}: {}\n", key, value.dump());  // JSON is YAML too
    }
    return out;
}

}  // namespace orrery::models
