#include "tools/report/over_time.hpp"

#include "tools/report/page.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <vector>

namespace orrery {

using namespace report;
using Json = nlohmann::ordered_json;

namespace {

constexpr std::size_t kBins = 120;
constexpr const char* kSent = "KV sent, Gb/s";
constexpr const char* kRequests = "requests";  // beside them a timeline has KV transfers

// Means over equal parts of a time.
class Bins {
  public:
    explicit Bins(double end_us) : width_(end_us / static_cast<double>(kBins)), sums_(kBins, 0) {}

    /// `value` from one time to another.
    void hold(double from, double to, double value) {
        for (std::size_t i = index(from); i < kBins && static_cast<double>(i) * width_ < to; ++i) {
            const double start = std::max(from, static_cast<double>(i) * width_);
            const double stop = std::min(to, static_cast<double>(i + 1) * width_);
            sums_[i] += value * std::max(0.0, stop - start) / width_;
        }
    }
    /// One event; the points are then events per second.
    void count(double at) { sums_[index(at)] += 1e6 / width_; }
    [[nodiscard]] Json points() const {
        Json out = Json::array();
        for (std::size_t i = 0; i < kBins; ++i) {
            out.push_back(
                {rounded((static_cast<double>(i) + 0.5) * width_ * 1e-6), std::stod(fmt::format("{:.5g}", sums_[i]))});
        }
        return out;
    }

  private:
    [[nodiscard]] std::size_t index(double at) const {
        return std::min(kBins - 1, static_cast<std::size_t>(std::max(0.0, at / width_)));
    }

    double width_;
    std::vector<double> sums_;
};

Json chart(const char* title, const char* note, const char* y, double end_us,
           const std::vector<std::pair<const char*, Bins>>& series) {
    Json lines = Json::array();
    for (const auto& [name, bins] : series) {
        lines.push_back({{"name", name}, {"points", bins.points()}});
    }
    return {{"kind", "lines"}, {"title", title}, {"note", note},
            {"x", "seconds"},  {"y", y},         {"end", rounded(end_us * 1e-6)},
            {"series", lines}};
}

}  // namespace

std::string over_time_block(const Timeline& timeline) {
    double end = 0;
    std::map<std::uint64_t, double> finished;  // requests by number, and their last instant
    for (const Lifeline& part : timeline.lifelines) {
        end = std::max(end, part.start_us + part.duration_us);
        if (part.name != kRequests) {
            continue;
        }
        double& last = finished[part.id];
        last = std::max(last, part.start_us + part.duration_us);
    }
    if (end <= 0) {
        return "";
    }
    Bins waiting(end);
    Bins running(end);
    Bins rate(end);
    Bins cache(end);
    for (const Lifeline& part : timeline.lifelines) {
        if (part.name != kRequests) {
            continue;
        }
        const bool runs = part.phase == "prefill" || part.phase == "decode";
        (runs ? running : waiting).hold(part.start_us, part.start_us + part.duration_us, 1);
    }
    for (const auto& [request, at] : finished) {
        rate.count(at);
    }
    std::map<std::uint32_t, std::pair<double, double>> held;  // of each replica: since when, how many
    std::map<std::uint32_t, std::pair<double, double>> sent;
    Bins sending(end);
    for (const CounterPoint& point : timeline.counters) {
        if (point.name == "cache blocks") {
            auto& [since, blocks] = held[point.process];
            cache.hold(since, point.at_us, blocks);
            since = point.at_us;
            blocks = point.value;
        } else if (point.name == kSent) {
            auto& [since, gbps] = sent[point.process];
            sending.hold(since, point.at_us, gbps);
            since = point.at_us;
            gbps = point.value;
        }
    }
    Json blocks = Json::array();
    blocks.push_back(chart("Queue and batch", "Requests that wait, and those in the batch of a replica.", "requests",
                           end, {{"waiting", waiting}, {"in a batch", running}}));
    blocks.push_back(chart("Cache", "Blocks in use, over all replicas.", "blocks", end, {{"cache blocks", cache}}));
    blocks.push_back(chart("Rate", "Requests that ended.", "requests per second", end, {{"finished", rate}}));
    if (!sent.empty()) {
        blocks.push_back(
            chart("KV transfers", "Keys and values on their way to other replicas.", "Gb/s", end, {{"sent", sending}}));
    }
    return Json{{"kind", "grid"}, {"title", "Over time"}, {"blocks", blocks}}.dump(-1, ' ', false,
                                                                                   Json::error_handler_t::replace);
}

}  // namespace orrery
