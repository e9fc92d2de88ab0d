#include "tools/report/over_time.hpp"

#include "tools/report/page.hpp"
#include "workloads/serving/metrics/outcome.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <vector>

namespace orrery::report {

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
        ORRERY_ASSERT(width_ > 0);
        for (std::size_t i = index(from); i < kBins && static_cast<double>(i) * width_ < to; ++i) {
            const double start = std::max(from, static_cast<double>(i) * width_);
            const double stop = std::min(to, static_cast<double>(i + 1) * width_);
            sums_[i] += value * std::max(0.0, stop - start) / width_;
        }
    }
    /// One event; the points are then events per second.
    void count(double at) { sums_[index(at)] += 1e6 / width_; }
    /// Whole parts up to `cut`, behind which nothing was recorded.
    [[nodiscard]] Json points(double cut) const {
        Json out = Json::array();
        for (std::size_t i = 0; i < kBins && static_cast<double>(i + 1) * width_ <= cut * (1 + 1e-9); ++i) {
            out.push_back(
                {rounded((static_cast<double>(i) + 0.5) * width_ * 1e-6), std::stod(fmt::format("{:.5g}", sums_[i]))});
        }
        return out;
    }
    [[nodiscard]] double most() const { return *std::max_element(sums_.begin(), sums_.end()); }

  private:
    [[nodiscard]] std::size_t index(double at) const {
        return std::min(kBins - 1, static_cast<std::size_t>(std::max(0.0, at / width_)));
    }

    double width_;
    std::vector<double> sums_;
};

// How much of a run records cover: the first `most`, up to the last of them.
struct Recorded {
    std::size_t most;
    const char* records;
    std::size_t count = 0;
    double last_us = 0;

    void add(double at_us) {
        ++count;
        last_us = std::max(last_us, at_us);
    }
    [[nodiscard]] bool cut() const { return count >= most; }
};

// Where the records end, the lines end, at a mark: what came later is not zero.
Json chart(const char* title, std::string note, const char* y, double end_us, const Recorded& recorded,
           const std::vector<std::pair<const char*, Bins>>& series) {
    const double cut = recorded.cut() ? std::min(recorded.last_us, end_us) : end_us;
    ORRERY_ASSERT(cut >= 0 && cut <= end_us);
    Json lines = Json::array();
    double most = 0;
    for (const auto& [name, bins] : series) {
        lines.push_back({{"name", name}, {"points", bins.points(cut)}});
        most = std::max(most, bins.most());
    }
    if (cut < end_us) {
        const double at = rounded(cut * 1e-6);
        lines.push_back({{"name", "end of the records"},
                         {"points", Json::array({{at, 0}, {at, rounded(most)}})},
                         {"colour", "#d55e00"},
                         {"dashed", true}});
    }
    if (recorded.cut()) {
        note += fmt::format(" The timeline holds the first {} {} and ends at {}; the run goes on.", recorded.most,
                            recorded.records, seconds_text(cut * 1e-6));
    }
    return {{"kind", "lines"}, {"title", title}, {"note", note},
            {"x", "seconds"},  {"y", y},         {"end", rounded(end_us * 1e-6)},
            {"series", lines}};
}

}  // namespace

std::string over_time_block(const Timeline& timeline) {
    double end = 0;
    Recorded lives{kMostLifeRecords, "parts of requests"};
    Recorded iterations{kMostIterationRecords, "iterations"};
    Recorded transfers{kMostTransferRecords, "KV transfers"};
    std::map<std::uint64_t, double> finished;  // requests by number, and their last instant
    for (const Lifeline& part : timeline.lifelines) {
        end = std::max(end, part.start_us + part.duration_us);
        if (part.name != kRequests) {
            continue;
        }
        lives.add(part.start_us + part.duration_us);
        ORRERY_ASSERT(part.duration_us >= 0);
        double& last = finished[part.id];
        last = std::max(last, part.start_us + part.duration_us);
    }
    for (const Span& span : timeline.spans) {
        end = std::max(end, span.start_us + span.duration_us);
    }
    if (timeline.lifelines.empty() || end <= 0) {
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
            iterations.add(point.at_us);
            auto& [since, blocks] = held[point.process];
            cache.hold(since, point.at_us, blocks);
            since = point.at_us;
            blocks = point.value;
        } else if (point.name == kSent) {
            transfers.add(point.at_us);
            auto& [since, gbps] = sent[point.process];
            sending.hold(since, point.at_us, gbps);
            since = point.at_us;
            gbps = point.value;
        }
    }
    Json blocks = Json::array();
    blocks.push_back(chart("Queue and batch", "Requests that wait, and those in the batch of a replica.", "requests",
                           end, lives, {{"waiting", waiting}, {"in a batch", running}}));
    blocks.push_back(
        chart("Cache", "Blocks in use, over all replicas.", "blocks", end, iterations, {{"cache blocks", cache}}));
    blocks.push_back(chart("Rate", "Requests that ended.", "requests per second", end, lives, {{"finished", rate}}));
    if (!sent.empty()) {
        blocks.push_back(chart("KV transfers", "Keys and values on their way to other replicas.", "Gb/s", end,
                               transfers, {{"sent", sending}}));
    }
    return Json{{"kind", "grid"}, {"title", "Over time"}, {"blocks", blocks}}.dump(-1, ' ', false,
                                                                                   Json::error_handler_t::replace);
}

}  // namespace orrery::report
