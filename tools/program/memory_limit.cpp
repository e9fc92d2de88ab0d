#include "tools/program/memory_limit.hpp"

#include "sim/base/error.hpp"
#include "sim/config/units.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

namespace orrery::program {

namespace {

constexpr double kShareOfFree = 0.9;
constexpr double kLeast = 64.0 * 1024 * 1024;  // below, the program does not even start

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

// The number in a file of the kernel; nothing for "max" or where there is no such file.
std::optional<double> number_in(const std::string& path) {
    std::ifstream in(path);
    double value = 0;
    return in >> value ? std::optional(value) : std::nullopt;
}

// The number behind a word at the start of a line, such as "MemAvailable:"; 0 where there is none.
double number_behind(const std::string& path, const std::string& word) {
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) {
        std::istringstream words(line);
        std::string first;
        double value = 0;
        if (words >> first >> value && first == word) {
            return value;
        }
    }
    return 0;
}

// Where the kernel keeps the limit of a control group, what it uses, and how much of that is cache, which gives way.
struct ControlGroup {
    const char* limit;
    const char* used;
    const char* statistics;
    const char* cache;
};
constexpr ControlGroup kGroups[] = {
    {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat", "file"},
    {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes",
     "/sys/fs/cgroup/memory/memory.stat", "total_cache"}};

}  // namespace

double free_memory() {
    double most = 1024 * number_behind("/proc/meminfo", "MemAvailable:");
    for (const ControlGroup& group : kGroups) {
        const std::optional<double> all = number_in(group.limit);
        if (all && most > 0) {
            const double used = number_in(group.used).value_or(0) - number_behind(group.statistics, group.cache);
            most = std::min(most, std::max(0.0, *all - std::max(0.0, used)));
        }
    }
    return most;
}

double set_memory_limit(const std::string& text) {
    double bytes = 0;
    std::string problem;
    if (text == "none") {
        return 0;
    }
    if (text.empty()) {
        const double free = free_memory();
        if (free <= 0) {
            return 0;  // not known
        }
        bytes = std::max(kShareOfFree * free, kLeast);
    } else if (!parse_quantity(text, Dimension::bytes, bytes, problem) || bytes < kLeast) {
        throw ConfigError(fmt::format("--memory-limit is a size from {} on, such as 8 GiB, or none: {}",
                                      pretty_quantity(kLeast, Dimension::bytes),
                                      problem.empty() ? fmt::format("'{}' is less", text) : problem),
                          ErrorCode::command_line);
    }
    rlimit limit{};
    if (kSanitized || getrlimit(RLIMIT_DATA, &limit) != 0) {
        return 0;
    }
    limit.rlim_cur = limit.rlim_max == RLIM_INFINITY ? static_cast<rlim_t>(bytes)
                                                     : std::min(static_cast<rlim_t>(bytes), limit.rlim_max);
    return setrlimit(RLIMIT_DATA, &limit) == 0 ? static_cast<double>(limit.rlim_cur) : 0;
}

double memory_limit() {
    rlimit limit{};
    return getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY ? static_cast<double>(limit.rlim_cur)
                                                                                  : 0;
}

std::string out_of_memory_text() {
    const double limit = memory_limit();
    return limit > 0 ? fmt::format(
                           "this needs more than {} of memory, which --memory-limit sets (by default "
                           "{:.0f} % of what is free)",
                           pretty_quantity(limit, Dimension::bytes), 100 * kShareOfFree)
                     : "not enough memory on this machine for a simulation of this size";
}

}  // namespace orrery::program
