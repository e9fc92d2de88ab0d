#include "sim/record/summary.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace orrery::record {

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

namespace {

// When spans begin and end, in ps, or in ns where a run is too long for these. Starts and lengths that are rounded each by itself, and
// sums of doubles, would let spans that follow each other overlap: an end that meets the next start but for rounding is that start.
class SpanTimes {
  public:
    explicit SpanTimes(const std::vector<Span>& spans) {
        constexpr double kMostPicoseconds = 9e12;  // us
        constexpr double kRounding = 0x1p-51;      // of a sum of two times
        double longest = 0;
        for (const Span& span : spans) {
            longest = std::max(longest, span.start_us + span.duration_us);
        }
        digits_ = longest < kMostPicoseconds ? 6 : 3;
        per_us_ = digits_ == 6 ? 1'000'000 : 1'000;
        constexpr double kMost = 9e15;  // us
        const auto whole = [&](double us) -> std::int64_t {
            return std::llround(std::min(us, kMost) * static_cast<double>(per_us_));
        };
        for (const Span& span : spans) {
            starts_.push_back(whole(span.start_us));
            ends_.push_back(std::max(starts_.back(), whole(span.start_us + span.duration_us)));
        }
        std::vector<std::size_t> order(spans.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        const auto track = [&](std::size_t i) { return std::pair(spans[i].process, spans[i].thread); };
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            return std::pair(track(a), starts_[a]) < std::pair(track(b), starts_[b]);
        });
        for (std::size_t k = 0; k + 1 < order.size(); ++k) {
            const std::size_t next = order[k + 1];
            std::int64_t& end = ends_[order[k]];
            const auto slack = 1 + static_cast<std::int64_t>(static_cast<double>(end) * kRounding);
            if (track(order[k]) == track(next) && starts_[order[k]] < starts_[next] && end > starts_[next] &&
                end - starts_[next] <= slack) {
                end = starts_[next];
            }
        }
    }
    [[nodiscard]] std::string start(std::size_t span) const { return text(starts_[span]); }
    [[nodiscard]] std::string duration(std::size_t span) const { return text(ends_[span] - starts_[span]); }

  private:
    [[nodiscard]] std::string text(std::int64_t time) const {
        return fmt::format("{}.{:0{}}", time / per_us_, time % per_us_, digits_);
    }
    std::int64_t per_us_ = 1;
    int digits_ = 0;
    std::vector<std::int64_t> starts_;
    std::vector<std::int64_t> ends_;
};

}  // namespace

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
    const SpanTimes times(timeline.spans);
    for (std::size_t i = 0; i < timeline.spans.size(); ++i) {
        const Span& span = timeline.spans[i];
        out += fmt::format("{{\"ph\":\"X\",\"name\":{},\"cat\":{},\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{}",
                           quoted(span.name), quoted(span.category), span.process, span.thread, times.start(i),
                           times.duration(i));
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

}  // namespace orrery::record
