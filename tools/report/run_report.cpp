#include "sim/record/metric_table.hpp"
#include "tools/driver/kind.hpp"
#include "tools/driver/kinds/cluster.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "tools/report/explanation_blocks.hpp"
#include "tools/report/over_time.hpp"
#include "tools/report/report.hpp"
#include "tools/report/story.hpp"
#include "tools/report/topology_svg.hpp"
#include "workloads/training/simulation/timeline.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace orrery::report {

using namespace report;
using Json = nlohmann::ordered_json;

namespace {

constexpr std::size_t kTimelineRows = 16;
constexpr int kUtilisationBins = 120;  // of the utilisation over time

const ChartStyle kPage = {"currentColor", "var(--line)", "none", false};

constexpr const char* kQuantiles[] = {"mean", "p50", "p90", "p95", "p99", "max"};

// "ttft_s" of ttft_s.p99 where the summary has the mean and the largest as well; else empty.
std::string family_of(const Metric& metric, const Summary& summary) {
    const std::size_t dot = metric.name.rfind('.');
    const std::string family = dot == std::string::npos ? "" : metric.name.substr(0, dot);
    const bool whole =
        !family.empty() && summary.find(family + ".mean") != nullptr && summary.find(family + ".max") != nullptr;
    return whole ? family : "";
}

Json metric_item(const Metric& metric) {
    Json item = Tile{metric.name, metric.value, value_text(metric.value, metric.unit)};
    if (metric.low && metric.high) {
        item["low"] = value_text(*metric.low, metric.unit);
        item["high"] = value_text(*metric.high, metric.unit);
    }
    if (const MetricRow* row = row_of_metric(metric.name); row != nullptr) {
        item["title"] = row->meaning;
    }
    return item;
}

// Names of the cards of a scenario: those of its kind, and of each of its jobs.
std::vector<std::string> cards_of(const Scenario& scenario, const std::string& prefix = "") {
    std::vector<std::string> out;
    for (const char* card : scenario.kind().cards) {
        out.push_back(prefix + card);
    }
    for (const JobSpec* job : jobs_of(scenario)) {
        const std::vector<std::string> own = cards_of(job->scenario, prefix + job->name + ".");
        out.insert(out.end(), own.begin(), own.end());
    }
    return out;
}

// What the kind is judged by as cards; all other metrics behind a fold.
void add_metrics(const Scenario& scenario, const Summary& summary, Json& blocks) {
    const std::vector<std::string> cards = cards_of(scenario);
    Json shown = Json::array();
    Json others = Json::array();
    for (const std::string& card : cards) {
        if (const Metric* metric = summary.find(card); metric != nullptr) {
            shown.push_back(metric_item(*metric));
        }
    }
    for (const Metric& metric : summary.metrics) {
        if (family_of(metric, summary).empty() && std::find(cards.begin(), cards.end(), metric.name) == cards.end()) {
            others.push_back(metric_item(metric));
        }
    }
    const std::string lead = scenario.kind().headline;
    blocks.push_back({{"kind", "tiles"}, {"lead", lead}, {"items", shown}});
    if (!others.empty()) {
        const Json tiles = {{"kind", "tiles"}, {"lead", lead}, {"items", others}};
        blocks.push_back({{"kind", "details"}, {"title", "All other metrics"}, {"blocks", Json::array({tiles})}});
    }
}

// Means and percentiles as a row for each quantity; a quantile that none has takes no column.
Json metric_quantiles(const Summary& summary) {
    std::vector<std::string> families;
    for (const Metric& metric : summary.metrics) {
        const std::string family = family_of(metric, summary);
        if (!family.empty() && metric.name == family + ".mean") {
            families.push_back(family);
        }
    }
    Json columns = Json::array();
    std::vector<Json> cells(families.size(), Json::array());
    for (const std::string quantile : kQuantiles) {
        const auto metric = [&](const std::string& family) { return summary.find(family + "." + quantile); };
        if (std::none_of(families.begin(), families.end(), metric)) {
            continue;
        }
        columns.push_back(quantile);
        for (std::size_t i = 0; i < families.size(); ++i) {
            const Metric* one = metric(families[i]);
            cells[i].push_back(one != nullptr ? metric_item(*one) : Json());
        }
    }
    Json rows = Json::array();
    for (std::size_t i = 0; i < families.size(); ++i) {
        const MetricRow* row = row_of_metric(families[i]);
        rows.push_back({{"name", families[i]}, {"title", row != nullptr ? row->meaning : ""}, {"cells", cells[i]}});
    }
    return {{"kind", "quantiles"}, {"columns", columns}, {"rows", rows}};
}

Json breakdown_bars(const Summary& summary) {
    double total = 0;
    for (const auto& [name, seconds] : summary.breakdown) {
        total += seconds;
    }
    Json items = Json::array();
    for (const auto& [name, seconds] : summary.breakdown) {
        items.push_back({{"name", name},
                         {"value", rounded(seconds)},
                         {"text", fmt::format("{} ({:.1f} %)", seconds_text(seconds), 100 * seconds / total)},
                         {"colour", colour_of(name)}});
    }
    return {{"kind", "bars"},
            {"title", "Where the time goes"},
            {"note", "Mean over ranks; the parts add up to the whole time."},
            {"items", items}};
}

// Where the time of a campaign goes, useful training included.
Json campaign_bars(const Summary& summary) {
    const double whole = summary.find("campaign_s")->value;
    Json items = Json::array();
    const auto add = [&](const std::string& name, double seconds) {
        items.push_back({{"name", name},
                         {"value", rounded(seconds)},
                         {"text", fmt::format("{} ({:.2f} %)", seconds_text(seconds), 100 * seconds / whole)},
                         {"colour", colour_of(name == "useful" ? "training" : name)}});
    };
    add("useful", summary.find("goodput_fraction")->value * whole);
    constexpr std::string_view kLost = "lost_s.";
    for (const Metric& metric : summary.metrics) {
        if (metric.name.rfind(kLost, 0) == 0) {
            add(metric.name.substr(kLost.size()), metric.value);
        }
    }
    return {{"kind", "bars"},
            {"title", "Where the time of the campaign goes"},
            {"note", "Mean over its runs; the parts add up to its length."},
            {"items", items}};
}

// Share of the drawn ranks that compute, communicate on the compute stream's behalf, or wait, over time.
Json utilisation(const Timeline& timeline) {
    double end = 0;
    for (const Span& span : timeline.spans) {
        end = std::max(end, span.start_us + span.duration_us);
    }
    std::map<std::string, std::vector<double>> busy;
    for (const char* name : {"computing", "transfers only"}) {
        busy[name].assign(kUtilisationBins, 0);
    }
    std::vector<double> transfers(kUtilisationBins, 0);
    const double bin = end / kUtilisationBins;
    std::set<std::uint32_t> drawn;
    for (const Span& span : timeline.spans) {
        drawn.insert(span.process);
    }
    const auto ranks = static_cast<double>(drawn.size());
    const auto add = [&](std::vector<double>& bins, const Span& span) {
        const auto first = static_cast<int>(span.start_us / bin);
        for (int i = first; i < kUtilisationBins && i * bin < span.start_us + span.duration_us; ++i) {
            const double from = std::max(span.start_us, i * bin);
            const double to = std::min(span.start_us + span.duration_us, (i + 1) * bin);
            bins[static_cast<std::size_t>(i)] += std::max(0.0, to - from) / bin / ranks;
        }
    };
    for (const Span& span : timeline.spans) {
        if (span.category != "tensor communication" && span.category != "context communication" &&
            span.category != "expert communication" && span.category != kKernelCategory) {  // those are parts of passes
            add(span.thread == 0 ? busy["computing"] : transfers, span);
        }
    }
    Json series = Json::array();
    const auto points = [&](const std::vector<double>& bins) {
        Json out = Json::array();
        for (int i = 0; i < kUtilisationBins; ++i) {
            out.push_back({rounded((i + 0.5) * bin * 1e-6),
                           std::round(std::min(1.0, bins[static_cast<std::size_t>(i)]) * 1e6) / 1e6});
        }
        return out;
    };
    series.push_back({{"name", "compute stream busy"}, {"points", points(busy["computing"])}, {"colour", "#0072b2"}});
    series.push_back({{"name", "transfers under way"}, {"points", points(transfers)}, {"colour", "#d55e00"}});
    return {{"kind", "lines"},
            {"title", "Utilisation"},
            {"note", "Share of the drawn ranks, over the time of the iteration."},
            {"x", "seconds"},
            {"y", "share of ranks"},
            {"max", 1},
            {"end", rounded(end * 1e-6)},
            {"series", series}};
}

// What fills a GPU, by kind: a row for each stage, at most sixteen.
// The GPUs' memory where it is the least.
double memory_capacity(ClusterSpec cluster) {
    double least = std::numeric_limits<double>::infinity();
    for_each_node(cluster, [&](NodeSpec& node) { least = std::min(least, node.gpu.memory.value); });
    return least;
}

Json memory_stacks(const std::vector<MemoryUse>& stages, double capacity) {
    constexpr std::size_t kStages = 16;
    Json rows = Json::array();
    for (std::size_t i = 0; i < std::min(stages.size(), kStages); ++i) {
        const MemoryUse& use = stages[i];
        Json parts = Json::array();
        std::size_t colour = 0;
        for (const auto& [name, bytes] : {std::pair{"weights", use.weights},
                                          {"gradients", use.gradients},
                                          {"optimizer", use.optimizer},
                                          {"activations", use.activations},
                                          {"buffers", use.buffers}}) {
            parts.push_back({{"name", name},
                             {"value", rounded(bytes)},
                             {"text", value_text(bytes, "B")},
                             {"colour", colour_of(colour++)}});
        }
        rows.push_back({{"name", stages.size() > 1 ? fmt::format("stage {}", i) : "every GPU"},
                        {"parts", parts},
                        {"text", value_text(use.total(), "B")}});
    }
    return {
        {"kind", "stacks"},
        {"title", "Memory by kind"},
        {"note", stages.size() > kStages ? fmt::format("Of a GPU; the first {} of {} stages.", kStages, stages.size())
                                         : std::string("Of a GPU at its fullest.")},
        {"capacity", {{"value", rounded(capacity)}, {"text", "the GPU has " + value_text(capacity, "B")}}},
        {"rows", rows}};
}

Json resolved_table(Scenario scenario) {
    Json rows = Json::array();
    for (const Explained& value : explain_fields([&](Fields& fields) { describe(fields, scenario); })) {
        const auto origin = scenario.origins.find(value.path);
        const std::string place = origin != scenario.origins.end() ? origin->second : "default";
        rows.push_back({value.path, value.value, value.how.empty() ? place : value.how + ": " + value.source});
    }
    return {{"kind", "details"},
            {"title", "The scenario as resolved, with the source of each value"},
            {"blocks", Json::array({{{"kind", "table"}, {"columns", {"value", "is", "source"}}, {"rows", rows}}})}};
}

}  // namespace

// Where the topology is no tree: its switches, with the busiest of their links.
static void add_switches(std::vector<FabricLayer>& layers, const Fabric& fabric,
                         const std::map<std::string, double>& link_use) {
    std::optional<double> most;
    for (const auto& [kind, use] : link_use) {
        if (kind.rfind("link ", 0) == 0) {
            most = std::max(most.value_or(0), use);
        }
    }
    const std::vector<SwitchLink> links = fabric.topology().links();
    layers.push_back({"switches or routers", static_cast<double>(fabric.topology().switches()),
                      links.empty() ? "" : "a link between them", links.empty() ? 0 : links.front().rate, 1, most});
}

std::vector<FabricLayer> fabric_layers(const Scenario& scenario, const std::map<std::string, double>& link_use) {
    const Fabric fabric = fabric_of(scenario);
    const FabricShape& shape = fabric.shape();
    const auto use = [&](std::initializer_list<const char*> kinds) -> std::optional<double> {
        std::optional<double> most;
        for (const char* kind : kinds) {
            if (const auto found = link_use.find(kind); found != link_use.end()) {
                most = std::max(most.value_or(0), found->second);
            }
        }
        return most;
    };
    std::vector<FabricLayer> layers;
    if (shape.gpus_per_node > 1) {
        layers.push_back({"GPUs", static_cast<double>(fabric.gpus()), "inside the node", shape.intra_bandwidth,
                          static_cast<double>(shape.nodes),
                          use({"GPU to node switch", "node switch to GPU", "mesh link"})});
    }
    if (shape.nodes > 1 && shape.nics_per_node > 0) {
        const auto leaves = static_cast<double>(fabric.leaves());
        layers.push_back({shape.gpus_per_node > 1 ? "nodes" : "hosts", static_cast<double>(shape.nodes),
                          fmt::format("{} NIC{} each", shape.nics_per_node, shape.nics_per_node > 1 ? "s" : ""),
                          shape.nic_bandwidth,
                          // Elsewhere a node hangs on one switch or router.
                          fabric.as_tree() == nullptr ? std::max(1.0, static_cast<double>(fabric.topology().switches()))
                                                      : leaves / shape.rails,
                          use({"NIC out", "NIC in"})});
        if (fabric.as_tree() == nullptr) {
            add_switches(layers, fabric, link_use);
            return layers;
        }
        const double up = shape.nic_bandwidth * shape.nodes_per_leaf * shape.nics_per_node / shape.rails /
                          shape.leaf_oversubscription;
        const bool fat_tree = shape.kind == FabricKind::fat_tree;
        // A leaf reaches every spine, in a fat tree those of its pod.
        const double pods = fat_tree ? leaves / (shape.rails * static_cast<double>(shape.leaf_groups_per_pod)) : 1;
        layers.push_back({"leaf switches", leaves, "uplinks of a leaf", up, std::max(1.0, pods),
                          use({"uplinks of leaf", "downlinks of leaf", "leaf to spine", "spine to leaf"})});
        if (fabric.spines() > 0) {
            layers.push_back({"spine switches", static_cast<double>(fabric.spines()), "to the cores",
                              up / shape.spine_oversubscription, 1,
                              fat_tree ? use({"uplinks of pod", "downlinks of pod", "spine to core", "core to spine"})
                                       : std::nullopt});
        }
        if (fat_tree && fabric.cores() > 0) {
            layers.push_back({"core switches", static_cast<double>(fabric.cores()), "", 0, 1, std::nullopt});
        }
    }
    return layers;
}

std::string run_report(const Scenario& scenario, const RunOutput& out, const Explanation& why) {
    Json blocks = Json::array();
    blocks.push_back(Json::parse(story_block(scenario, out.summary, why)));
    if (Json quantiles = metric_quantiles(out.summary); !quantiles["rows"].empty()) {
        blocks.push_back(std::move(quantiles));
    }
    add_metrics(scenario, out.summary, blocks);
    if (!out.summary.breakdown.empty()) {
        blocks.push_back(breakdown_bars(out.summary));
    }
    for (Json& block : Json::parse(explanation_blocks(why))) {
        blocks.push_back(std::move(block));
    }
    if (out.training) {
        blocks.push_back(memory_stacks(out.training->memory, memory_capacity(scenario.cluster)));
    }
    if (const std::string over_time = scenario.find<ServingKind>() != nullptr ? over_time_block(out.timeline) : "";
        !over_time.empty()) {
        blocks.push_back(Json::parse(over_time));
    }
    if (!out.timeline.spans.empty() && scenario.kind().drawing != TimelineDrawing::none) {
        const bool ranks = scenario.kind().drawing == TimelineDrawing::ranks;
        blocks.push_back(
            {{"kind", "svg"},
             {"title", ranks ? "Schedule" : "Timeline"},
             {"note",
              ranks ? "One row per rank: compute, below it what its passes exchange (of the first rank of a stage, "
                      "fainter where a pixel is filled in part), at the bottom transfers between passes. At most 16 "
                      "ranks are drawn."
                    : "One row per stream; at most 16 are drawn."},
             {"svg", timeline_svg("timeline", out.timeline, ranks ? TimelineRows::processes : TimelineRows::streams,
                                  kTimelineRows, kPage)}});
        if (ranks) {
            blocks.push_back(utilisation(out.timeline));
        }
    }
    if (!out.campaign.spans.empty()) {
        blocks.push_back(campaign_bars(out.summary));
        blocks.push_back({{"kind", "svg"},
                          {"title", "Campaign"},
                          {"note", "The first run: what the job does, by cause, and when faults strike."},
                          {"svg", timeline_svg("campaign", out.campaign, TimelineRows::streams, 2, kPage)}});
    }
    if (const auto layers = fabric_layers(scenario, why.link_use); layers.size() > 1) {
        const Fabric fabric = fabric_of(scenario);
        if (fabric.as_tree() == nullptr) {
            blocks.push_back(
                {{"kind", "svg"},
                 {"title", "Topology"},
                 {"note", why.link_loads.empty() ? "What joins the nodes."
                                                 : "What joins the nodes, with the use of each link over the run."},
                 {"svg", topology_svg(fabric, why.link_loads, kPage)}});
        }
        blocks.push_back({{"kind", "svg"},
                          {"title", "Fabric"},
                          {"note", fmt::format("With the use of the busiest link of each kind over the whole run, {}.",
                                               why.link_users)},
                          {"svg", fabric_svg(layers, kPage)}});
    }
    if (!out.summary.notes.empty()) {
        blocks.push_back({{"kind", "text"}, {"title", "Notes"}, {"lines", out.summary.notes}});
    }
    blocks.push_back(resolved_table(scenario));
    return page(
        scenario.name,
        fmt::format("{} scenario, resolved as {}, seed {}", out.summary.kind, out.summary.hash, out.summary.seed), "",
        blocks);
}

}  // namespace orrery::report
