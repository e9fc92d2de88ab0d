#include "workloads/replay/work.hpp"

#include "sim/base/text.hpp"
#include "sim/config/units.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace orrery::replay {

namespace {

constexpr double kMostSize = 1e18;

const std::map<std::string, Precision, std::less<>>& types() {
    static const std::map<std::string, Precision, std::less<>> kTypes = {
        {"bf16", Precision::bf16}, {"fp32", Precision::fp32}, {"fp8", Precision::fp8}, {"int8", Precision::int8}};
    return kTypes;
}

std::string name_of(Precision precision) {
    for (const auto& [name, type] : types()) {
        if (type == precision) {
            return name;
        }
    }
    return "bf16";
}

}  // namespace

std::string format_work(const Gemm& product) {
    return fmt::format("product m={:.0f} n={:.0f} k={:.0f} batch={:.0f} type={}", product.m, product.n, product.k,
                       product.batch, name_of(product.precision));
}

std::string format_work(const Attention& attention) {
    return fmt::format("attention heads={:.0f} queries={:.0f} keys={:.0f} dim={:.0f} group={:g} type={}",
                       attention.batch_heads, attention.queries, attention.keys, attention.head_dim, attention.group,
                       name_of(attention.cache));
}

std::string format_work(const Streaming& streaming) {
    return fmt::format("streaming bytes={:.0f}", streaming.bytes);
}

bool is_memory_work(std::string_view text) {
    return text.substr(0, text.find(' ')) == "memory";
}

std::optional<MemoryWork> parse_memory_work(std::string_view text, std::string& problem) {
    static const std::vector<std::string> kMovers = {"copy", "host", "device", "unaligned"};
    MemoryWork out;
    bool mover = false;
    const std::vector<std::string_view> words = split(text, ' ');
    for (std::size_t i = 1; i < words.size(); ++i) {
        const std::size_t equals = std::min(words[i].find('='), words[i].size());
        const std::string_view key = words[i].substr(0, equals);
        const std::string_view value = words[i].substr(std::min(equals + 1, words[i].size()));
        const auto by = std::find(kMovers.begin(), kMovers.end(), value);
        double* const number = key == "bytes" ? &out.bytes : key == "row" ? &out.row : nullptr;
        if (key == "tier" && !value.empty()) {
            out.tier = value;
        } else if (key == "by" && by != kMovers.end()) {
            out.by = static_cast<MemoryMover>(by - kMovers.begin());
            mover = true;
        } else if (number == nullptr || !parse_number(value, *number) || !(*number >= 1) || *number > kMostSize) {
            problem = fmt::format("a work of kind memory has a tier, by ({}), and bytes and row from 1 on, not '{}'",
                                  fmt::join(kMovers, ", "), words[i].substr(0, 40));
            return std::nullopt;
        }
    }
    if (out.tier.empty() || !mover || out.bytes <= 0 || (out.row > 0) == (out.by == MemoryMover::copy)) {
        problem = "a work of kind memory gives tier, by and bytes, and row unless by=copy";
        return std::nullopt;
    }
    return out;
}

bool is_core_work(std::string_view text) {
    return text.substr(0, text.find(' ')) == "dpu";
}

std::optional<CoreWork> parse_core_work(std::string_view text, std::string& problem) {
    CoreWork out;
    const std::pair<std::string_view, double*> numbers[] = {
        {"cores", &out.cores},         {"bytes", &out.bytes},
        {"threads", &out.threads},     {"instructions", &out.thread.instructions},
        {"reads", &out.thread.reads},  {"writes", &out.thread.writes},
        {"access", &out.thread.access}};
    const std::vector<std::string_view> words = split(text, ' ');
    for (std::size_t i = 1; i < words.size(); ++i) {
        const std::size_t equals = std::min(words[i].find('='), words[i].size());
        const std::string_view key = words[i].substr(0, equals);
        const std::string_view value = words[i].substr(std::min(equals + 1, words[i].size()));
        if (key == "preset" && !value.empty()) {
            out.preset = value;
            continue;
        }
        const auto number =
            std::find_if(std::begin(numbers), std::end(numbers), [&](const auto& one) { return one.first == key; });
        if (number == std::end(numbers) || !parse_number(value, *number->second) || !(*number->second >= 0) ||
            *number->second > kMostSize) {
            problem = fmt::format(
                "a work of kind dpu has preset, cores, and bytes, or threads, instructions, reads, writes and access, "
                "numbers from 0 on, not '{}'",
                words[i].substr(0, 40));
            return std::nullopt;
        }
    }
    if (out.preset.empty() || out.cores < 1 || (out.bytes > 0) == (out.threads > 0)) {
        problem = "a work of kind dpu gives preset, cores, and either bytes (a copy) or threads (a launch)";
        return std::nullopt;
    }
    return out;
}

std::optional<Operation> parse_work(std::string_view text, std::string& problem) {
    const std::vector<std::string_view> words = split(text, ' ');
    static const std::map<std::string, std::vector<std::string>, std::less<>> kSizes = {
        {"product", {"m", "n", "k", "batch"}},
        {"attention", {"heads", "queries", "keys", "dim", "group"}},
        {"streaming", {"bytes"}}};
    const auto kind = kSizes.find(words.front());
    if (kind == kSizes.end()) {
        problem = fmt::format("a work is product, attention, streaming, memory or dpu, not '{}'",
                              words.front().substr(0, 40));
        return std::nullopt;
    }
    std::map<std::string, double, std::less<>> sizes;
    Precision precision = Precision::bf16;
    for (std::size_t i = 1; i < words.size(); ++i) {
        const std::size_t equals = std::min(words[i].find('='), words[i].size());
        const std::string_view key = words[i].substr(0, equals);
        const std::string_view value = words[i].substr(std::min(equals + 1, words[i].size()));
        double size = 0;
        if (key == "type" && types().contains(value)) {
            precision = types().find(value)->second;
        } else if (std::find(kind->second.begin(), kind->second.end(), key) == kind->second.end() ||
                   !parse_number(value, size) || !(size >= 1) || size > kMostSize) {
            problem = fmt::format("a work of kind {} has {} from 1 on and a type of {}, not '{}'", kind->first,
                                  fmt::join(kind->second, ", "), "bf16, fp32, fp8 or int8", words[i].substr(0, 40));
            return std::nullopt;
        } else {
            sizes.emplace(key, size);
        }
    }
    if (sizes.size() != kind->second.size()) {
        problem = fmt::format("a work of kind {} gives {}", kind->first, fmt::join(kind->second, ", "));
        return std::nullopt;
    }
    if (kind->first == "product") {
        Gemm product{sizes["m"], sizes["n"], sizes["k"], sizes["batch"]};
        product.precision = precision;
        return product;
    }
    if (kind->first == "attention") {
        Attention attention;
        attention.batch_heads = sizes["heads"];
        attention.queries = sizes["queries"];
        attention.keys = sizes["keys"];
        attention.head_dim = sizes["dim"];
        attention.group = sizes["group"];
        attention.cache = precision;
        return attention;
    }
    Streaming streaming;
    streaming.bytes = sizes["bytes"];
    return streaming;
}

}  // namespace orrery::replay
