#include "tools/cudabench/points.hpp"

#include <algorithm>
#include <cstdio>

namespace orrery::cudabench {

namespace {

using Shape = std::vector<std::pair<std::string, double>>;

constexpr double kMiB = 1024.0 * 1024.0;

std::string number(double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.10g", value);
    return text;
}

Point point(const char* group, const char* op, const char* dtype, Shape shape) {
    Point p;
    p.group = group;
    p.op = op;
    p.dtype = dtype;
    p.shape = std::move(shape);
    return p;
}

Point gemm(const char* group, const char* dtype, const char* layout, double m, double n, double k) {
    Point p = point(group, "gemm", dtype, {{"m", m}, {"n", n}, {"k", k}});
    p.layout = layout;
    return p;
}

// Projections (outputs, inputs) of Llama-3 8B, Llama 70B on eight GPUs, GPT-2 and GPT 1.3B: QKV, up, down, head, ...
constexpr std::pair<double, double> kProjections[] = {
    {6144, 4096}, {28672, 4096}, {4096, 14336}, {128256, 4096}, {1280, 8192}, {8192, 1024}, {7168, 8192},
    {8192, 3584}, {2304, 768},   {3072, 768},   {768, 3072},    {50304, 768}, {6144, 2048}};

void add_memory(std::vector<Point>& out) {
    for (const char* op : {"copy", "triad", "read", "fill"}) {
        for (double bytes = kMiB / 16; bytes <= 4096 * kMiB; bytes *= 2) {
            out.push_back(point("memory", op, "fp32", {{"bytes", bytes}}));
        }
    }
    for (const char* op : {"h2d", "d2h"}) {
        for (double bytes = 4096; bytes <= 1024 * kMiB; bytes *= 4) {
            out.push_back(point("copies", op, "", {{"bytes", bytes}}));
        }
    }
    for (double bytes = 65536; bytes <= 1024 * kMiB; bytes *= 16) {
        out.push_back(point("copies", "both_ways", "", {{"bytes", bytes}}));
    }
    for (double bytes = 16384; bytes <= 4096 * kMiB; bytes *= 4) {
        out.push_back(point("memory", "pointer_chase", "fp32", {{"bytes", bytes}, {"loads", 4096}}));
    }
    for (double bytes = kMiB; bytes <= 32 * kMiB; bytes *= 2) {
        out.push_back(point("memory", "l2_read", "fp32", {{"bytes", bytes}, {"loads", 16}}));
    }
    for (const double bytes : {16384, 49152}) {
        out.push_back(point("memory", "shared_read", "fp32", {{"bytes", bytes}, {"loads", 1000}}));
    }
    for (const char* mode : {"stream", "graph", "sync"}) {
        Point p = point("launch", "launch", "", {{"count", 2000}});
        p.mode = mode;
        out.push_back(p);
    }
}

void add_gemm(std::vector<Point>& out) {
    constexpr double kRows[] = {1,   2,   4,   8,    16,   32,   48,   64,   96,   128,  192,  256,
                                384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 16384};
    std::vector<std::pair<double, double>> sizes;
    for (const double n : {512, 1024, 2048, 4096, 8192, 16384}) {
        for (const double k : {512, 2048, 4096, 8192, 16384}) {
            sizes.emplace_back(n, k);
        }
    }
    sizes.insert(sizes.end(), std::begin(kProjections), std::end(kProjections));
    for (const auto& [n, k] : sizes) {
        for (const double m : kRows) {
            out.push_back(gemm("gemm", "bf16", "nt", m, n, k));
        }
    }
    std::vector<std::pair<double, double>> trained(std::begin(kProjections), std::end(kProjections));
    trained.insert(trained.end(), {{8192, 2048}, {2048, 8192}});
    for (const auto& [n, k] : trained) {
        for (const double tokens : {1024, 2048, 4096, 8192, 16384}) {
            Point data = gemm("gemm", "bf16", "nn", tokens, k, n);
            data.phase = "data_gradient";
            Point weight = gemm("gemm", "bf16", "tn", n, k, tokens);
            weight.phase = "weight_gradient";
            out.push_back(data);
            out.push_back(weight);
        }
    }
    // One row more than a power of two: where a tile and a wave begin.
    for (double m = 32; m <= 4096; m *= 2) {
        for (const auto& [n, k] : {std::pair{4096., 4096.}, {28672., 4096.}, {4096., 14336.}}) {
            out.push_back(gemm("gemm", "bf16", "nt", m + 1, n, k));
        }
    }
}

void add_low_precision(std::vector<Point>& out) {
    constexpr std::pair<double, double> kSizes[] = {{6144, 4096}, {28672, 4096}, {4096, 14336}, {128256, 4096},
                                                    {1280, 8192}, {8192, 1024},  {7168, 8192},  {8192, 3584},
                                                    {4096, 4096}, {8192, 8192},  {16384, 8192}, {2048, 2048}};
    for (const auto& [n, k] : kSizes) {
        for (const double m : {16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}) {
            out.push_back(gemm("low_precision", "fp8", "nt", m, n, k));
        }
    }
    for (const auto& [n, k] : {std::pair{4096., 4096.}, {28672., 4096.}, {4096., 14336.}, {8192., 8192.}}) {
        for (const double m : {16, 256, 2048, 8192}) {
            for (const char* dtype : {"int8", "tf32", "fp16"}) {
                out.push_back(gemm("low_precision", dtype, "nt", m, n, k));
            }
        }
    }
    for (const double hidden : {2048, 4096, 8192, 14336}) {
        for (const double tokens : {1, 16, 64, 256, 1024, 4096, 16384}) {
            out.push_back(point("low_precision", "quantize", "fp8", {{"tokens", tokens}, {"hidden", hidden}}));
        }
    }
}

// Products of training: 8-bit ones with fast accumulation and with a split accumulator, and gradients of weights that are
// summed in 32 or 16 bits. Projections of Llama-3 8B, 70B on four and 405B on eight GPUs, and squares.
void add_gradients(std::vector<Point>& out) {
    constexpr std::pair<double, double> kSizes[] = {{6144, 4096},  {28672, 4096},  {4096, 14336}, {4096, 4096},
                                                    {2560, 8192},  {14336, 8192},  {8192, 7168},  {8192, 2048},
                                                    {2304, 16384}, {13312, 16384}, {16384, 6656}, {8192, 8192}};
    const auto add = [&](const char* phase, Point p, bool split, double accumulate) {
        p.phase = phase;
        if (p.dtype == "fp8") {
            p.shape.emplace_back("split_accumulator", split ? 1 : 0);
        }
        if (accumulate > 0) {
            p.shape.emplace_back("accumulate", accumulate);
        }
        out.push_back(p);
    };
    for (const auto& [n, k] : kSizes) {
        for (const double tokens : {2048, 8192, 16384}) {
            for (const bool split : {false, true}) {
                add("", gemm("gradients", "fp8", "nt", tokens, n, k), split, 0);
                add("data_gradient", gemm("gradients", "fp8", "nt", tokens, k, n), split, 0);
                add("weight_gradient", gemm("gradients", "fp8", "nt", n, k, tokens), split, 0);
            }
            add("weight_gradient", gemm("gradients", "fp8", "nt", n, k, tokens), true, 1);
            add("", gemm("gradients", "bf16", "nt", tokens, n, k), false, 0);
        }
        for (const double tokens : {1024, 2048, 4096, 8192, 16384}) {
            for (const double accumulate : {0, 1, 16}) {
                add("weight_gradient", gemm("gradients", "bf16", "tn", n, k, tokens), false, accumulate);
            }
        }
    }
}

void add_attention(std::vector<Point>& out) {
    struct Heads {
        double heads, kv_heads, head_dim;
    };
    const auto prefill = [&](double batch, double queries, double keys, const Heads& h) {
        out.push_back(point("attention", "attention_prefill", "bf16",
                            {{"batch", batch},
                             {"queries", queries},
                             {"keys", keys},
                             {"heads", h.heads},
                             {"kv_heads", h.kv_heads},
                             {"head_dim", h.head_dim},
                             {"causal", 1}}));
    };
    for (const Heads& h : {Heads{32, 8, 128}, Heads{8, 1, 128}, Heads{16, 16, 64}}) {
        for (const double batch : {1, 2, 4, 8, 16}) {
            for (double length = 128; length <= 16384 && batch * length <= 32768; length *= 2) {
                prefill(batch, length, length, h);
            }
        }
    }
    for (const double queries : {256, 512, 1024, 2048}) {
        for (const double before : {1024, 4096, 16384, 32768}) {
            prefill(1, queries, before + queries, {32, 8, 128});
        }
    }
    for (const Heads& h : {Heads{32, 8, 128}, Heads{8, 1, 128}}) {
        for (double batch = 1; batch <= 256; batch *= 2) {
            for (double keys = 128; keys <= 32768; keys *= 4) {
                out.push_back(point("attention", "attention_decode", "bf16",
                                    {{"batch", batch},
                                     {"keys", keys},
                                     {"heads", h.heads},
                                     {"kv_heads", h.kv_heads},
                                     {"head_dim", h.head_dim}}));
            }
        }
    }
}

void add_elementwise(std::vector<Point>& out) {
    const auto wide = [&](const char* op, const char* phase) {
        for (const double hidden : {2048, 4096, 8192}) {
            for (const double tokens : {1, 16, 128, 1024, 4096, 16384}) {
                out.push_back(point("elementwise", op, "bf16", {{"tokens", tokens}, {"hidden", hidden}}));
                out.back().phase = phase;
            }
        }
    };
    for (const char* op : {"rms_norm", "layer_norm", "silu_mul", "gelu", "add", "rotary", "softmax", "dropout_add"}) {
        wide(op, "");
    }
    wide("layer_norm", "backward");
    wide("gelu", "backward");
    for (const double tokens : {128, 1024, 4096, 16384}) {
        for (const double vocabulary : {50304, 128256}) {
            out.push_back(
                point("elementwise", "cross_entropy", "bf16", {{"tokens", tokens}, {"vocabulary", vocabulary}}));
            out.back().phase = "backward";
        }
        out.push_back(
            point("elementwise", "embedding", "bf16", {{"tokens", tokens}, {"hidden", 4096}, {"vocabulary", 128256}}));
    }
    for (const double params : {1e6, 1e7, 1e8, 5e8, 1.3e9}) {
        out.push_back(point("elementwise", "adamw", "fp32", {{"params", params}}));
        out.push_back(point("elementwise", "grad_norm", "fp32", {{"params", params}}));
    }
}

void add_moe(std::vector<Point>& out) {
    struct Experts {
        double count, topk, hidden, ffn;
    };
    // Mixtral 8x7B, DeepSeek-V2-Lite, Qwen3-30B-A3B.
    for (const Experts& e : {Experts{8, 2, 4096, 14336}, Experts{64, 6, 2048, 1408}, Experts{128, 8, 2048, 768}}) {
        for (const double tokens : {16, 128, 512, 2048, 8192}) {
            const Shape base = {{"tokens", tokens}, {"experts", e.count}, {"topk", e.topk}};
            Shape up = base;
            up.insert(up.end(), {{"n", 2 * e.ffn}, {"k", e.hidden}});
            Shape down = base;
            down.insert(down.end(), {{"n", e.hidden}, {"k", e.ffn}});
            Shape route = base;
            route.emplace_back("hidden", e.hidden);
            out.push_back(point("moe", "grouped_gemm", "bf16", up));
            out.push_back(point("moe", "grouped_gemm", "bf16", down));
            out.push_back(point("moe", "moe_route", "bf16", route));
        }
    }
}

void add_overlap(std::vector<Point>& out) {
    const Point kinds[] = {gemm("overlap", "bf16", "nt", 8192, 8192, 8192),
                           point("overlap", "attention_prefill", "bf16",
                                 {{"batch", 4},
                                  {"queries", 4096},
                                  {"keys", 4096},
                                  {"heads", 32},
                                  {"kv_heads", 8},
                                  {"head_dim", 128},
                                  {"causal", 1}}),
                           point("overlap", "rms_norm", "bf16", {{"tokens", 16384}, {"hidden", 8192}})};
    for (const Point& kind : kinds) {
        for (const char* beside :
             {"none", "h2d", "d2h", "copy sms=4", "copy sms=8", "copy sms=16", "copy sms=32", "gemm", "rms_norm"}) {
            out.push_back(kind);
            out.back().beside = beside;
        }
    }
}

void add_power(std::vector<Point>& out) {
    const Point kinds[] = {point("power", "idle", "", {{"count", 1}}),
                           point("power", "triad", "fp32", {{"bytes", 1024 * kMiB}}),
                           gemm("power", "bf16", "nt", 8192, 8192, 8192),
                           gemm("power", "fp8", "nt", 8192, 8192, 8192),
                           point("power", "attention_prefill", "bf16",
                                 {{"batch", 4},
                                  {"queries", 4096},
                                  {"keys", 4096},
                                  {"heads", 32},
                                  {"kv_heads", 8},
                                  {"head_dim", 128},
                                  {"causal", 1}}),
                           gemm("power", "bf16", "nt", 1, 16384, 16384),
                           point("power", "silu_mul", "bf16", {{"tokens", 16384}, {"hidden", 8192}})};
    for (const Point& kind : kinds) {
        out.push_back(kind);
        out.back().held_s = 3;
    }
}

}  // namespace

double Point::dim(const std::string& name, double otherwise) const {
    for (const auto& [key, value] : shape) {
        if (key == name) {
            return value;
        }
    }
    return otherwise;
}

std::string Point::shape_text() const {
    std::string text;
    for (const auto& [key, value] : shape) {
        text += (text.empty() ? "" : " ") + key + "=" + number(value);
    }
    return text;
}

std::string Point::id() const {
    std::string text = group + "/" + op;
    for (const std::string* part : {&phase, &dtype, &layout, &mode, &beside}) {
        if (!part->empty()) {
            text += "/" + *part;
        }
    }
    return text + "/" + shape_text();
}

std::vector<Point> all_points() {
    std::vector<Point> out;
    add_memory(out);
    add_gemm(out);
    add_low_precision(out);
    add_gradients(out);
    add_attention(out);
    add_elementwise(out);
    add_moe(out);
    add_overlap(out);
    add_power(out);
    return out;
}

std::string trace_head(const std::vector<std::pair<std::string, std::string>>& meta) {
    std::string text = "# orrery-trace: 1\n";
    for (const auto& [key, value] : meta) {
        text += "# " + key + ": " + value + "\n";
    }
    return text +
           "op,phase,dtype,layout,shape,library,mode,cache,beside,split,point,median_ns,min_ns,p10_ns,p90_ns,mean_ns,"
           "reps,sm_clock_mhz,memory_clock_mhz,power_w,temperature_c,throttle,held_s,note\n";
}

std::string trace_row(const Point& p, const Measured& m, bool repeat) {
    const auto known = [](double value) { return value > 0 ? number(value) : std::string(); };
    // "none" is the undisturbed run of a group that measures disturbance: in the file, nothing ran beside it.
    const std::string beside = p.beside == "none" ? "" : p.beside;
    std::string text;
    for (const std::string& cell : {p.op,
                                    p.phase,
                                    p.dtype,
                                    p.layout,
                                    p.shape_text(),
                                    m.library,
                                    p.mode.empty() ? m.mode : p.mode,
                                    std::string(m.warm ? "warm" : ""),
                                    beside,
                                    std::string(repeat ? "repeat" : ""),
                                    p.id(),
                                    number(m.median_ns),
                                    known(m.min_ns),
                                    known(m.p10_ns),
                                    known(m.p90_ns),
                                    known(m.mean_ns),
                                    number(m.reps),
                                    known(m.sm_clock_mhz),
                                    known(m.memory_clock_mhz),
                                    known(m.power_w),
                                    known(m.temperature_c),
                                    m.throttle,
                                    known(p.held_s)}) {
        text += cell + ",";
    }
    std::string note = m.note;
    std::replace(note.begin(), note.end(), ',', ';');  // the format has no quotes
    return text + note;
}

std::vector<std::string> measured_points(const std::string& text) {
    constexpr int kPointColumn = 10;
    std::vector<std::string> out;
    for (std::size_t start = 0;;) {
        const std::size_t end = text.find('\n', start);
        if (end == std::string::npos) {
            return out;  // what follows was cut off
        }
        std::size_t from = start;
        for (int column = 0; column < kPointColumn && from < end; ++column) {
            const std::size_t comma = text.find(',', from);
            from = comma == std::string::npos ? end : comma + 1;
        }
        if (text[start] != '#' && from < end) {
            out.push_back(text.substr(from, text.find(',', from) - from));
        }
        start = end + 1;
    }
}

}  // namespace orrery::cudabench
