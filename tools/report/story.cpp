#include "tools/report/story.hpp"

#include "sim/record/metric_table.hpp"
#include "tools/driver/kind.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "tools/driver/kinds/training.hpp"
#include "tools/plan/search.hpp"
#include "tools/plan/serving_search.hpp"
#include "tools/report/page.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <map>

namespace orrery::report {

using Json = nlohmann::ordered_json;

namespace {

constexpr std::size_t kFindings = 3;
constexpr double kGiB = 1024.0 * 1024 * 1024;

std::string plural(std::int64_t count, const char* what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string question_of(const std::string& kind) {
    static const std::map<std::string, std::string> kQuestions = {
        {"training", "How long does a training iteration take, and what limits it?"},
        {"serving", "Which latency and throughput does this deployment give its clients?"},
        {"collective", "How long does this collective take on this fabric?"},
        {"network", "How fast does this traffic complete on this fabric?"},
        {"replay", "How long does the recorded program take here?"},
        {"cluster", "How do these jobs slow each other down on one cluster?"},
        {"rl", "How long does a step of reinforcement learning take, and which role limits it?"}};
    const auto found = kQuestions.find(kind);
    return found != kQuestions.end() ? found->second : "";
}

std::string plan_of(const Scenario& scenario) {
    if (const auto* training = scenario.find<TrainingKind>(); training != nullptr) {
        return plan::describe_plan(training->plan);
    }
    const auto* serving = scenario.find<ServingKind>();
    return serving != nullptr ? "replicas: " + plan::describe_serving(serving->engine) : "";
}

std::string with_interval(const Metric& metric) {
    std::string out = value_text(metric.value, metric.unit);
    if (metric.low && metric.high) {
        out += fmt::format(" (90 %: {} to {})", value_text(*metric.low, metric.unit),
                           value_text(*metric.high, metric.unit));
    }
    return out;
}

// What people call a metric; its own name where it has no other.
std::string called(const std::string& metric) {
    static const std::map<std::string, std::string> kNames = {{"iteration_time_s", "iteration time"},
                                                              {"e2e_s.mean", "mean end-to-end latency"},
                                                              {"ttft_s.p99", "TTFT p99"},
                                                              {"tpot_s.mean", "mean TPOT"},
                                                              {"tokens_per_s", "tokens"},
                                                              {"output_tokens_per_s", "output tokens"},
                                                              {"goodput_fraction", "goodput"},
                                                              {"collective_time_s", "collective time"},
                                                              {"replay_time_s", "replayed time"},
                                                              {"makespan_s", "time until the last flow or job ends"}};
    const auto found = kNames.find(metric);
    return found != kNames.end() ? found->second : metric;
}

// The metric that the kind is judged by, with its interval, and what goes with it.
std::string headline_of(const Scenario& scenario, const Summary& summary) {
    std::string out;
    if (const Metric* metric = summary.find(scenario.kind().headline); metric != nullptr) {
        out = fmt::format("{} {}", called(metric->name), with_interval(*metric));
    }
    for (const char* more : {"ttft_s.p99", "tpot_s.mean", "tokens_per_s", "output_tokens_per_s", "goodput_fraction"}) {
        if (const Metric* metric = summary.find(more); metric != nullptr) {
            out += fmt::format("{}{} {}", out.empty() ? "" : "; ", called(metric->name),
                               value_text(metric->value, metric->unit));
        }
    }
    return out;
}

std::string join_metrics(const Summary& summary, const std::vector<std::pair<const char*, const char*>>& names) {
    std::string out;
    for (const auto& [name, words] : names) {
        if (const Metric* metric = summary.find(name); metric != nullptr && metric->measured()) {
            const std::string value = metric->unit != "USD" ? value_text(metric->value, metric->unit)
                                                            : fmt::format("{:.{}f} USD", metric->value,
                                                                          metric->value < 1     ? 3
                                                                          : metric->value < 100 ? 2
                                                                                                : 0);
            out += fmt::format("{}{} {}", out.empty() ? "" : ", ", value, words);
        }
    }
    return out;
}

std::string cost_of(const Summary& summary) {
    return join_metrics(summary, {{"campaign_cost_usd", "for the campaign"},
                                  {"cost_per_billion_tokens_usd", "per billion tokens"},
                                  {"cost_per_million_input_tokens_usd", "per million input tokens"},
                                  {"cost_per_million_output_tokens_usd", "per million output tokens"},
                                  {"cost_per_million_blended_tokens_usd", "per million tokens of both"}});
}

std::string energy_of(const Summary& summary) {
    return join_metrics(
        summary,
        {{"power_w", "of all GPUs"}, {"energy_per_token_j", "per token"}, {"campaign_energy_j", "for the campaign"}});
}

// Met or missed, each with its number: what the scenario expects, and the limits of its service.
void add_verdicts(const Scenario& scenario, const Summary& summary, Json& out) {
    for (const ExpectationOutcome& one : summary.expectations) {
        out.push_back({{"met", one.met},
                       {"text", fmt::format("{} {}: {}", one.metric.name, one.expected,
                                            value_text(one.metric.value, one.metric.unit))}});
    }
    const auto* serving = scenario.find<ServingKind>();
    const Metric* attained = summary.find("slo_attainment");
    if (serving == nullptr || attained == nullptr || !attained->measured()) {
        return;
    }
    std::vector<std::string> limits;
    for (const auto& [name, seconds] :
         {std::pair{"TTFT", serving->slo.ttft}, {"TPOT", serving->slo.tpot}, {"TBT", serving->slo.tbt}}) {
        if (seconds > 0) {
            limits.push_back(fmt::format("{} {}", name, seconds_text(seconds)));
        }
    }
    if (!limits.empty()) {
        constexpr double kAttained = 0.9;  // the share that `orrery capacity` asks for by default
        out.push_back({{"met", attained->value >= kAttained},
                       {"text", fmt::format("{:.4g} % of requests are within {}", 100 * attained->value,
                                            fmt::join(limits, " and "))}});
    }
}

std::string largest_part(const Summary& summary) {
    double whole = 0;
    for (const auto& [name, seconds] : summary.breakdown) {
        whole += seconds;
    }
    auto parts = summary.breakdown;
    std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    if (parts.size() < 2 || !(whole > 0)) {
        return "";
    }
    return fmt::format("Most of the time is {} ({:.3g} %), followed by {} ({:.3g} %).", parts[0].first,
                       100 * parts[0].second / whole, parts[1].first, 100 * parts[1].second / whole);
}

std::string room_left(const Scenario& scenario, const Summary& summary) {
    if (const Metric* overloaded = summary.find("overloaded"); overloaded != nullptr && overloaded->value > 0) {
        return "The deployment is overloaded: requests arrive faster than they are served, and the queue keeps "
               "growing.";
    }
    if (const Metric* memory = summary.find("memory_per_gpu_gib"); memory != nullptr) {
        double least = 0;
        ClusterSpec cluster = scenario.cluster;
        for_each_node(cluster, [&](NodeSpec& node) {
            least = least > 0 ? std::min(least, node.gpu.memory.value) : node.gpu.memory.value;
        });
        if (least > 0) {
            const double share = memory->value * kGiB / least;
            return fmt::format("The fullest GPU uses {:.3g} of {:.3g} GiB ({:.0f} %): {}.", memory->value, least / kGiB,
                               100 * share,
                               share > 0.9   ? "a small change of the plan may not fit"
                               : share < 0.6 ? "a larger micro-batch or less recomputation would fit"
                                             : "the plan fits with a margin");
        }
    }
    if (const Metric* cache = summary.find("cache_peak_fraction"); cache != nullptr && cache->measured()) {
        return fmt::format("The KV cache is at most {:.3g} % full: {}.", 100 * cache->value,
                           cache->value > 0.95  ? "memory limits the batch"
                           : cache->value < 0.5 ? "memory does not limit the batch"
                                                : "memory has some room for larger batches");
    }
    if (const Metric* link = summary.find("max_link_utilisation"); link != nullptr && link->measured()) {
        return fmt::format("The busiest link carries {:.3g} % of what it could.", 100 * link->value);
    }
    return "";
}

}  // namespace

std::string hardware_of(const ClusterSpec& cluster) {
    const auto nodes = [](std::int64_t count, const NodeSpec& node) {
        return fmt::format("{} of {} x {}", plural(count, "node"), node.gpus, node.gpu.name);
    };
    if (cluster.mixed) {
        std::vector<std::string> groups;
        for (const GroupSpec& group : cluster.groups) {
            groups.push_back(nodes(group.nodes, group.node));
        }
        return fmt::format("{}", fmt::join(groups, "; "));
    }
    if (cluster.hosts > 0) {
        return plural(cluster.hosts, "host");
    }
    return nodes(cluster.nodes, cluster.node) + fmt::format(" ({})", plural(cluster.nodes * cluster.node.gpus, "GPU"));
}

std::string model_of(const Scenario& scenario) {
    Scenario copy = scenario;
    const ModelSpec* model = copy.own->own_model();
    return model != nullptr ? model->name : "";
}

std::vector<std::string> findings_of(const Scenario& scenario, const Summary& summary, const Explanation& why) {
    std::vector<std::string> out;
    for (const std::string& finding : {why.verdict, room_left(scenario, summary), largest_part(summary)}) {
        if (!finding.empty() && out.size() < kFindings) {
            out.push_back(finding);
        }
    }
    return out;
}

std::string story_block(const Scenario& scenario, const Summary& summary, const Explanation& why) {
    Json facts = Json::array();
    for (const auto& [name, text] : {std::pair<const char*, std::string>{"Question", question_of(summary.kind)},
                                     {"Model", model_of(scenario)},
                                     {"Hardware", hardware_of(scenario.cluster)},
                                     {"Plan", plan_of(scenario)},
                                     {"Answer", headline_of(scenario, summary)},
                                     {"Cost", cost_of(summary)},
                                     {"Energy", energy_of(summary)}}) {
        if (!text.empty()) {
            facts.push_back({{"name", name}, {"text", text}});
        }
    }
    Json verdicts = Json::array();
    add_verdicts(scenario, summary, verdicts);
    return Json{
        {"kind", "story"}, {"facts", facts}, {"verdicts", verdicts}, {"findings", findings_of(scenario, summary, why)}}
        .dump();
}

}  // namespace orrery::report
