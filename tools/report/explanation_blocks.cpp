#include "tools/report/explanation_blocks.hpp"

#include "sim/config/units.hpp"
#include "tools/report/svg.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace orrery::report {

using Json = nlohmann::ordered_json;

namespace {

constexpr double kMostGain = 1 - 1 / 1.1;  // of 10 % more of what alone binds a run
constexpr double kWorthDrawing = 0.0005;   // of the headline

std::string share_text(double part, double whole) {
    return fmt::format("{:.1f} %", whole > 0 ? 100 * part / whole : 0);
}

Json lever_bars(const Explanation& why) {
    Json items = Json::array();
    for (const Elasticity& what_if : why.what_ifs) {
        const double change = 100 * what_if.gain_s / why.seconds;
        items.push_back({{"name", what_if.what_if},
                         {"value", what_if.certain() ? rounded(what_if.gain_s) : 0},
                         {"text", what_if.gain_s == 0 ? "no effect"
                                  : !what_if.certain()
                                      ? fmt::format("within its noise of {:.2f} %", 100 * what_if.noise_s / why.seconds)
                                  : std::abs(change) < 0.005 ? "less than 0.01 %"
                                  : change > 0               ? fmt::format("{:.2f} % faster", change)
                                                             : fmt::format("{:.2f} % slower", -change)},
                         {"colour", what_if.gain_s < 0 ? "#d55e00" : "#009e73"}});
    }
    return {{"kind", "bars"},
            {"title", "What would help"},
            {"note",
             "Simulated again with 10 % more of each; of latency, overhead and load 10 % less. The full width is what "
             "the run would gain if it were bound by that alone: 9.1 %." +
                 (why.replicas > 1 ? fmt::format(" Mean of {} pairs of runs with equal seeds.", why.replicas)
                                   : std::string())},
            {"most", rounded(kMostGain * why.seconds)},
            {"items", items}};
}

Json campaign_bars(const CampaignLevers& campaign) {
    Json items = Json::array();
    for (const CampaignLever& lever : campaign.levers) {
        items.push_back(
            {{"name", lever.what_if},
             {"value", rounded(lever.change)},
             {"text", lever.change == 0
                          ? "no effect"
                          : fmt::format("{:+.3f} points{}", 100 * lever.change,
                                        lever.noise > 0 ? fmt::format(" +-{:.3f}", 100 * lever.noise) : "")},
             {"colour", lever.change < 0 ? "#d55e00" : "#009e73"}});
    }
    return {
        {"kind", "bars"},
        {"title", "What would change goodput"},
        {"note",
         fmt::format(
             "The campaign again with one change: points of its {:.2f} %, mean of {} run{} of equal seed{}. The full "
             "width is all that is lost.",
             100 * campaign.goodput, campaign.runs, campaign.runs == 1 ? "" : "s", campaign.runs == 1 ? "" : "s")},
        {"most", rounded(1 - campaign.goodput)},
        {"items", items}};
}

Json path_bars(const std::vector<BlameRow>& path, double seconds, const std::string& title, const std::string& note) {
    Json items = Json::array();
    for (const BlameRow& row : path) {
        if (row.seconds > kWorthDrawing * seconds) {
            items.push_back(
                {{"name", row.operation + " (" + row.resource + ")"},
                 {"value", rounded(row.seconds)},
                 {"text", fmt::format("{} ({})", seconds_text(row.seconds), share_text(row.seconds, seconds))},
                 {"colour", colour_of(row.operation)}});
        }
    }
    return {{"kind", "bars"}, {"title", title}, {"note", note}, {"items", items}};
}

Json phase_table(const Explanation& why) {
    Json rows = Json::array();
    for (const PhaseBound& phase : why.phases) {
        rows.push_back({phase.phase, rounded(phase.seconds), phase.bound,
                        phase.share > 0 ? Json(std::round(1000 * phase.share) / 10) : Json()});
    }
    return {{"kind", "table"},
            {"title", "What bounds each part"},
            {"columns", {"part", "seconds", "bound by", "of it that scales, %"}},
            {"rows", rows}};
}

void add_last(const LastMessage& last, Json& blocks) {
    const std::vector<std::pair<std::string, double>> parts = {
        {"propagation", last.propagation_s},
        {"serialisation", last.serialisation_s},
        {"sharing, queues, congestion control", last.contention_s}};
    Json items = Json::array();
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const auto& [name, seconds] = parts[i];
        items.push_back({{"name", name},
                         {"value", rounded(seconds)},
                         {"text", fmt::format("{} ({})", seconds_text(seconds), share_text(seconds, last.seconds))},
                         {"colour", colour_of(i)}});
    }
    blocks.push_back(
        {{"kind", "bars"},
         {"title", last.slowest ? "The slowest message" : "The last message"},
         {"note",
          fmt::format("{} from {} to {}, started at {}: serialisation is what it takes longer than its "
                      "propagation on the empty network.",
                      pretty_quantity(last.bytes, Dimension::bytes), last.from, last.to, seconds_text(last.start_s))},
         {"items", items}});
    Json rows = Json::array();
    for (std::size_t i = 0; i < last.links.size(); ++i) {
        const LinkShare& link = last.links[i];
        rows.push_back({link.link, rounded(link.capacity * 8e-9), std::round(1000 * link.use) / 10,
                        std::round(1000 * link.own) / 10, link.flows, i == last.bottleneck ? "busiest" : ""});
    }
    blocks.push_back({{"kind", "table"},
                      {"title", "Its path, while it was under way"},
                      {"columns", {"link", "Gb/s", "used, %", "by it, %", "messages", ""}},
                      {"rows", rows}});
}

Json request_stacks(const Explanation& why) {
    using Pick = double (*)(const RequestPart&);
    constexpr std::pair<const char*, Pick> kRows[] = {
        {"TTFT, mean", [](const RequestPart& p) { return p.ttft.mean; }},
        {"TTFT from P99 up", [](const RequestPart& p) { return p.ttft.tail; }},
        {"time per output token, mean", [](const RequestPart& p) { return p.tpot.mean; }},
        {"time per output token from P99 up", [](const RequestPart& p) { return p.tpot.tail; }},
        {"end to end, mean", [](const RequestPart& p) { return p.e2e.mean; }},
        {"end to end from P99 up", [](const RequestPart& p) { return p.e2e.tail; }}};
    Json rows = Json::array();
    for (const auto& [name, pick] : kRows) {
        double whole = 0;
        for (const RequestPart& part : why.requests) {
            whole += pick(part);
        }
        Json parts = Json::array();
        for (std::size_t i = 0; i < why.requests.size(); ++i) {
            const double seconds = pick(why.requests[i]);
            if (seconds > kWorthDrawing * whole) {
                parts.push_back({{"name", why.requests[i].part},
                                 {"value", rounded(seconds)},
                                 {"text", fmt::format("{} ({})", seconds_text(seconds), share_text(seconds, whole))},
                                 {"colour", colour_of(i)}});
            }
        }
        rows.push_back({{"name", name}, {"text", seconds_text(whole)}, {"parts", parts}});
    }
    return {{"kind", "stacks"},
            {"title", "Where a request's time goes"},
            {"note", "Means over requests, and over those from the 99th percentile of that latency up."},
            {"rows", rows}};
}

Json iteration_table(const Explanation& why) {
    double whole = 0;
    for (const IterationMix& mix : why.iterations) {
        whole += mix.seconds;
    }
    Json rows = Json::array();
    for (const IterationMix& mix : why.iterations) {
        std::string shares;
        for (const auto& [name, share] : mix.shares) {
            if (share > 0.005) {
                shares += fmt::format("{}{} {:.0f} %", shares.empty() ? "" : ", ", name, 100 * share);
            }
        }
        rows.push_back({mix.kind, mix.iterations, std::round(1000 * mix.seconds / whole) / 10,
                        std::round(10 * mix.sequences) / 10, std::round(10 * mix.tokens) / 10, shares});
    }
    return {{"kind", "table"},
            {"title", "Iterations, and what they consist of"},
            {"columns", {"iterations of", "count", "of the time, %", "sequences", "new tokens", "consist of"}},
            {"rows", rows}};
}

Json latency_block(const LatencyCurve& curve) {
    Json points = Json::array({Json::array({curve.points.empty() ? 0 : rounded(curve.points.front().first), 0})});
    for (const auto& [seconds, share] : curve.points) {
        points.push_back({rounded(seconds), rounded(share)});
    }
    Json series = Json::array({{{"name", curve.name}, {"points", points}, {"colour", "#0072b2"}}});
    std::string note;
    for (const auto& [share, seconds] : curve.quantiles) {
        if (share == 0.5 || share == 0.9 || share == 0.99) {
            note += fmt::format("{}P{:.0f} {}", note.empty() ? "" : ", ", 100 * share, seconds_text(seconds));
        }
    }
    if (curve.limit > 0) {
        series.push_back({{"name", fmt::format("limit {}", seconds_text(curve.limit))},
                          {"points", Json::array({{rounded(curve.limit), 0}, {rounded(curve.limit), 1}})},
                          {"colour", "#d55e00"},
                          {"dashed", true}});
        note += fmt::format("; {:.1f} % keep the limit of {}", 100 * curve.within, seconds_text(curve.limit));
    }
    return {{"kind", "lines"}, {"title", curve.name},      {"note", note + "."},
            {"x", "seconds"},  {"y", "share of requests"}, {"max", 1},
            {"log", true},     {"series", series}};
}

std::string sentence(std::string text) {
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
    return text + ".";
}

}  // namespace

std::string explanation_blocks(const Explanation& why) {
    Json blocks = Json::array();
    blocks.push_back(lever_bars(why));
    if (why.campaign) {
        blocks.push_back(campaign_bars(*why.campaign));
    }
    if (!why.requests.empty()) {
        blocks.push_back(request_stacks(why));
        Json curves = Json::array();
        for (const LatencyCurve& curve : why.latencies) {
            if (!curve.points.empty()) {
                curves.push_back(latency_block(curve));
            }
        }
        blocks.push_back({{"kind", "grid"}, {"title", "How latencies are distributed"}, {"blocks", curves}});
        blocks.push_back(iteration_table(why));
    }
    if (!why.critical_path.empty() && !why.path_meaning.empty()) {
        blocks.push_back(path_bars(why.critical_path, why.seconds, "Critical path", sentence(why.path_meaning)));
    }
    if (!why.longest.empty()) {
        blocks.push_back(path_bars(why.longest, why.seconds, "Operations with most time on the critical path",
                                   "With the stream or thread that they ran on."));
    }
    if (why.last) {
        add_last(*why.last, blocks);
    }
    if (!why.phases.empty()) {
        blocks.push_back(phase_table(why));
    }
    return blocks.dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace orrery::report
