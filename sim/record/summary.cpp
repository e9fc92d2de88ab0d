#include "sim/record/summary.hpp"

#include "sim/base/error.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace orrery::inline record {

namespace {

// Twelve significant digits: more than any figure deserves, fewer than the noise of a different order of additions.
double rounded(double value) {
    return std::stod(fmt::format("{:.12g}", value));
}

}  // namespace

const Metric* Summary::find(const std::string& name) const {
    for (const Metric& metric : metrics) {
        if (metric.name == name) {
            return &metric;
        }
    }
    return nullptr;
}

std::size_t Summary::failed() const {
    return static_cast<std::size_t>(
        std::count_if(expectations.begin(), expectations.end(), [](const auto& one) { return !one.met; }));
}

std::string to_json(const Summary& summary, bool with_host) {
    using Json = nlohmann::ordered_json;
    Json out;
    out["schema"] = "orrery-summary-1";
    out["scenario"] = summary.scenario;
    out["kind"] = summary.kind;
    out["hash"] = summary.hash;
    out["seed"] = summary.seed;
    out["metrics"] = Json::object();
    for (const Metric& metric : summary.metrics) {
        Json entry = {{"value", metric.measured() ? Json(rounded(metric.value)) : Json()}, {"unit", metric.unit}};
        entry["low"] = metric.low ? Json(rounded(*metric.low)) : Json();
        entry["high"] = metric.high ? Json(rounded(*metric.high)) : Json();
        // "fct_s.mean" is the mean of fct_s.
        const auto dot = metric.name.find('.');
        if (dot == std::string::npos) {
            out["metrics"][metric.name] = std::move(entry);
        } else {
            out["metrics"][metric.name.substr(0, dot)][metric.name.substr(dot + 1)] = std::move(entry);
        }
    }
    out["metrics"]["events"] = {{"value", summary.events}, {"unit", "1"}, {"low", nullptr}, {"high", nullptr}};
    out["breakdown"] = Json::object();
    for (const auto& [name, seconds] : summary.breakdown) {
        out["breakdown"][name] = rounded(seconds);
    }
    for (const ExpectationOutcome& one : summary.expectations) {
        const Metric& metric = one.metric;
        out["expectations"].push_back({{"metric", metric.name},
                                       {"expected", one.expected},
                                       {"value", metric.measured() ? Json(rounded(metric.value)) : Json()},
                                       {"unit", metric.unit},
                                       {"met", one.met}});
    }
    out["notes"] = summary.notes;
    if (with_host) {
        out["host"] = {{"wall_time_s", rounded(summary.wall_time_s)}, {"peak_rss_mib", rounded(summary.peak_rss_mib)}};
    }
    return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_chrome_trace(const Timeline& timeline) {
    std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    const auto quoted = [](const std::string& text) {
        return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    };
    for (const auto& [id, name] : timeline.processes) {
        out += fmt::format("{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"args\":{{\"name\":{}}}}},\n", id,
                           quoted(name));
        for (const auto& [thread, label] : timeline.threads) {
            out += fmt::format(
                "{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":{}}}}},\n", id,
                thread, quoted(label));
        }
    }
    for (const Span& span : timeline.spans) {
        out += fmt::format("{{\"ph\":\"X\",\"name\":{},\"cat\":{},\"pid\":{},\"tid\":{},\"ts\":{:.6f},\"dur\":{:.6f}",
                           quoted(span.name), quoted(span.category), span.process, span.thread, span.start_us,
                           span.duration_us);
        const char* before = ",\"args\":{";
        for (const auto& [name, value] : span.arguments) {
            out += fmt::format("{}\"{}\":{}", before, name, value);
            before = ",";
        }
        out += span.arguments.empty() ? "},\n" : "}},\n";
    }
    for (const Lifeline& line : timeline.lifelines) {
        for (const auto& [letter, at] : {std::pair{'b', line.start_us}, {'e', line.start_us + line.duration_us}}) {
            out +=
                fmt::format("{{\"ph\":\"{}\",\"name\":{},\"cat\":{},\"id\":{},\"pid\":{},\"tid\":0,\"ts\":{:.6f}}},\n",
                            letter, quoted(line.phase), quoted(line.name), line.id, line.process, at);
        }
    }
    for (const CounterPoint& point : timeline.counters) {
        out += fmt::format("{{\"ph\":\"C\",\"name\":{},\"pid\":{},\"ts\":{:.6f},\"args\":{{\"value\":{}}}}},\n",
                           quoted(point.name), point.process, point.at_us, point.value);
    }
    for (std::size_t i = 0; i < timeline.arrows.size(); ++i) {
        const FlowArrow& arrow = timeline.arrows[i];
        out += fmt::format(
            "{{\"ph\":\"s\",\"name\":\"send\",\"cat\":\"send\",\"id\":{},\"pid\":{},\"tid\":{},\"ts\":{:.6f}}},\n", i,
            arrow.from_process, arrow.from_thread, arrow.from_us);
        out += fmt::format(
            "{{\"ph\":\"f\",\"bp\":\"e\",\"name\":\"send\",\"cat\":\"send\",\"id\":{},\"pid\":{},\"tid\":{},\"ts\":{:."
            "6f}}},\n",
            i, arrow.to_process, arrow.to_thread, arrow.to_us);
    }
    if (out.size() >= 2 && out[out.size() - 2] == ',') {
        out.erase(out.size() - 2, 1);
    }
    return out + "]}\n";
}

std::string free_name_beside(const std::string& path) {
    for (int i = 0;; ++i) {
        std::string name = fmt::format("{}.part{}", path, i == 0 ? "" : std::to_string(i));
        std::error_code unknown;
        if (!std::filesystem::exists(std::filesystem::symlink_status(name, unknown))) {
            return name;
        }
    }
}

void write_file(const std::string& path, const std::string& text) {
    if (path == "-") {
        if (std::fwrite(text.data(), 1, text.size(), stdout) < text.size()) {
            throw ConfigError({Diagnostic{"standard output", 0, 0, "cannot be written"}});
        }
        return;
    }
    // A device or a pipe is written to, never replaced.
    std::error_code unknown;
    const std::filesystem::file_status status = std::filesystem::status(path, unknown);
    const bool in_place = std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
    const std::string beside = in_place ? path : free_name_beside(path);
    {
        std::ofstream stream(beside, std::ios::binary | std::ios::trunc);
        stream << text;
        stream.close();
        if (!stream) {
            std::error_code ignored;
            if (!in_place) {
                std::filesystem::remove(beside, ignored);
            }
            throw ConfigError({Diagnostic{path, 0, 0, "cannot be written"}});
        }
    }
    if (in_place) {
        return;
    }
    std::error_code failed;
    std::filesystem::rename(beside, path, failed);
    if (failed) {
        throw ConfigError({Diagnostic{path, 0, 0, "cannot be written: " + failed.message()}});
    }
}

}  // namespace orrery::inline record
