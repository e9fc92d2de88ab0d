#include "tools/explain/explain.hpp"

#include "sim/config/units.hpp"
#include "tools/driver/kind.hpp"
#include "tools/driver/kinds/cluster.hpp"
#include "tools/driver/kinds/training.hpp"
#include "tools/explain/fault_what_ifs.hpp"
#include "tools/explain/paths.hpp"
#include "tools/explain/what_ifs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

namespace orrery::explain {

namespace {

constexpr double kWorthSaying = 0.001;  // of the headline

std::string without_lower(const std::string& what_if) {
    return what_if.rfind("lower ", 0) == 0 ? what_if.substr(6) : what_if;
}

// The job that ends last: how long it takes alone, and what the others add to that.
void explain_jobs(const Scenario& scenario, ModelCache& models, const RunOutput& base, Explanation& out) {
    std::size_t last = 0;
    const std::vector<JobSpec>& jobs = scenario.as<ClusterKind>().jobs;
    for (std::size_t i = 1; i < base.jobs.size(); ++i) {
        const auto end = [&](std::size_t job) { return jobs[job].start + base.jobs[job].seconds; };
        last = end(i) > end(last) ? i : last;
    }
    out.path_meaning = "the job that ended last: alone, and what the others add to that";
    ORRERY_ASSERT(base.jobs.size() == jobs.size() && last < jobs.size());
    const JobSpec& job = jobs[last];
    Scenario alone = scenario;
    alone.as<ClusterKind>().jobs = {job};
    RunOptions options;
    options.check_memory = false;
    const double seconds = run_scenario(alone, models, options).jobs.front().seconds;
    ORRERY_ASSERT(seconds >= 0);
    out.critical_path = {{"job " + job.name + " as if alone", "its own nodes and links", seconds}};
    if (job.start > 0) {
        out.critical_path.push_back({"until job " + job.name + " starts", "given", job.start});
    }
    if (const double rest = base.jobs[last].seconds - seconds; rest > 0) {
        out.critical_path.push_back({"job " + job.name + " slowed by the others", "links shared with them", rest});
    }
    std::stable_sort(out.critical_path.begin(), out.critical_path.end(),
                     [](const BlameRow& a, const BlameRow& b) { return a.seconds > b.seconds; });
}

// What the steps wait for, phase by phase.
void explain_steps(const RunOutput& base, Explanation& out) {
    out.path_meaning = "what bounds a step in the steady state; phases that others hide are not in it";
    for (const auto& [phase, seconds] : base.summary.breakdown) {
        if (seconds > 0) {
            out.critical_path.push_back({phase, "the nodes of its parts", seconds});
        }
    }
    std::stable_sort(out.critical_path.begin(), out.critical_path.end(),
                     [](const BlameRow& a, const BlameRow& b) { return a.seconds > b.seconds; });
}

// The what-ifs that count, first the one that limits the run.
std::string what_if_verdict(const Explanation& e) {
    if (e.what_ifs.empty() || !e.what_ifs[0].certain() || e.what_ifs[0].gain_s <= 0) {
        return e.replicas > 1 ? "none of the what-ifs tried shortens this run by more than its noise"
                              : "none of the what-ifs tried shortens this run";
    }
    const Elasticity& first = e.what_ifs[0];
    const std::string name = without_lower(first.what_if);
    std::string out = fmt::format("{} limits this run: 10 % {} makes it {:.1f} % faster", name,
                                  name == first.what_if ? "more" : "less", 100 * first.gain_s / e.seconds);
    if (e.what_ifs.size() > 1 && e.what_ifs[1].certain() && e.what_ifs[1].gain_s > kWorthSaying * e.seconds) {
        out += fmt::format("; next is {} with {:.1f} %", without_lower(e.what_ifs[1].what_if),
                           100 * e.what_ifs[1].gain_s / e.seconds);
    }
    return out;
}

std::string message_verdict(const Explanation& e, const Scenario& scenario) {
    std::string out = what_if_verdict(e);
    if (!e.last) {
        return out;
    }
    const LastMessage& last = *e.last;
    ORRERY_ASSERT(last.links.empty() || last.bottleneck < last.links.size());
    const auto share = [&](double part) { return fmt::format("{:.0f} %", 100 * part / last.seconds); };
    out += fmt::format("; the {} message ({} to {}, {}) spends {} on propagation, {} on serialisation and {} {}",
                       last.slowest ? "slowest" : "last", last.from, last.to,
                       pretty_quantity(last.bytes, Dimension::bytes), share(last.propagation_s),
                       share(last.serialisation_s), share(last.contention_s),
                       scenario.network.fidelity == Fidelity::packet ? "in queues and congestion control"
                                                                     : "on sharing its links with others");
    if (!last.links.empty() && last.links[last.bottleneck].flows > 1 && last.contention_s > 0.01 * last.seconds) {
        const LinkShare& link = last.links[last.bottleneck];
        out += fmt::format(": {} carried {} messages meanwhile at {:.0f} % of its rate", link.link, link.flows,
                           100 * link.use);
    }
    return out;
}

std::string request_verdict(const Explanation& e, const Scenario&) {
    double total = 0;
    double queue = 0;
    const RequestPart* most = nullptr;
    for (const RequestPart& part : e.requests) {
        total += part.e2e.mean;
        queue += part.part.rfind("queue", 0) == 0 ? part.e2e.mean : 0;
        most = most == nullptr || part.e2e.mean > most->e2e.mean ? &part : most;
    }
    ORRERY_ASSERT(queue <= total * (1 + 1e-9));
    if (most == nullptr || total <= 0) {
        return what_if_verdict(e);
    }
    return fmt::format("{}; a request spends most of its time, {:.0f} %, in: {}{}", what_if_verdict(e),
                       100 * most->e2e.mean / total, most->part,
                       queue > 0.02 * total && most->part.rfind("queue", 0) != 0
                           ? fmt::format(" ({:.0f} % in the queue)", 100 * queue / total)
                           : "");
}

std::string training_verdict(const Explanation& e, const Scenario&) {
    std::string out = what_if_verdict(e);
    for (const PhaseBound& phase : e.phases) {
        if (phase.phase == "bubble" && phase.seconds > 0.05 * e.seconds) {
            out += fmt::format("; {:.1f} % is pipeline bubble, which another plan may shrink",
                               100 * phase.seconds / e.seconds);
        }
    }
    return out;
}

std::string campaign_verdict(const Explanation& e) {
    if (!e.campaign) {
        return "";
    }
    ORRERY_ASSERT(!e.campaign->levers.empty());
    const CampaignLever& best = e.campaign->levers.front();
    std::string out = fmt::format("; {:.1f} % of the campaign is useful", 100 * e.campaign->own);
    if (e.campaign->runs > 1 && std::abs(e.campaign->goodput - e.campaign->own) > 0.0005) {
        out += fmt::format(" ({:.1f} % in the mean of {} runs)", 100 * e.campaign->goodput, e.campaign->runs);
    }
    if (best.change > best.noise && best.change > kWorthSaying) {
        out += fmt::format(", and {} adds {:.1f} points", best.what_if, 100 * best.change);
    }
    return out;
}

std::string replay_verdict(const Explanation& e, const Scenario&) {
    std::string out = what_if_verdict(e);
    if (!e.critical_path.empty()) {
        out += fmt::format("; {:.0f} % of the critical path is {} on {}", 100 * e.critical_path[0].seconds / e.seconds,
                           e.critical_path[0].operation, e.critical_path[0].resource);
    }
    return out;
}

std::string jobs_verdict(const Explanation& e, const Scenario&) {
    return e.critical_path.empty()
               ? what_if_verdict(e)
               : fmt::format("{}; most of the time is: {}", what_if_verdict(e), e.critical_path.front().operation);
}

// How runs of a kind are explained.
struct Explainer {
    void (*parts)(const Scenario& scenario, ModelCache& models, const RunOutput& base, Explanation& out);
    std::string (*verdict)(const Explanation& e, const Scenario& scenario);
};

const Explainer& explainer_of(const KindRow& kind) {
    static const std::map<std::string, Explainer> kExplainers = {
        {"training", {explain_training, training_verdict}},
        {"serving",
         {[](const Scenario& s, ModelCache& models, const RunOutput& base, Explanation& out) {
              explain_requests(s, models, base.summary, out);
          },
          request_verdict}},
        {"replay",
         {[](const Scenario&, ModelCache&, const RunOutput& base, Explanation& out) { explain_replay(base, out); },
          replay_verdict}},
        {"collective",
         {[](const Scenario& s, ModelCache&, const RunOutput& base, Explanation& out) {
              explain_collective(s, base, out);
          },
          message_verdict}},
        {"network",
         {[](const Scenario& s, ModelCache&, const RunOutput& base, Explanation& out) {
              explain_traffic(s, base, out);
          },
          message_verdict}},
        {"cluster", {explain_jobs, jobs_verdict}},
        {"rl",
         {[](const Scenario&, ModelCache&, const RunOutput& base, Explanation& out) { explain_steps(base, out); },
          jobs_verdict}}};
    // A kind without a row is explained by what would shorten its runs.
    static const Explainer kPlain = {[](const Scenario&, ModelCache&, const RunOutput&, Explanation&) {}, jobs_verdict};
    const auto found = kExplainers.find(kind.name);
    return found == kExplainers.end() ? kPlain : found->second;
}

}  // namespace

std::string headline_metric(const KindRow& kind) {
    return kind.headline;
}

Explanation explain_scenario(const Scenario& given, ModelCache& models) {
    Explanation out;
    Scenario scenario = given;
    // The critical path of a training run is found among activities that share links, which packets are not.
    const bool by_packet = given.find<TrainingKind>() != nullptr && given.network.fidelity == Fidelity::packet;
    if (by_packet) {
        scenario.network.fidelity = Fidelity::fluid;
    }
    const Explainer& explainer = explainer_of(scenario.kind());
    RunOptions options;
    options.messages = scenario.kind().network.simgrid;
    options.campaigns = fault_variants(scenario);
    const RunOutput base = run_scenario(scenario, models, options);
    out.seconds = base.summary.find(headline_metric(scenario.kind()))->value;
    explainer.parts(scenario, models, base, out);
    ORRERY_ASSERT(base.campaigns.size() == options.campaigns.size());
    out.campaign = fault_levers(options.campaigns, base.campaigns);
    if (const Metric* goodput = base.summary.find("goodput_fraction"); out.campaign && goodput != nullptr) {
        out.campaign->own = goodput->value;
    }
    ORRERY_ASSERT(std::is_sorted(out.critical_path.begin(), out.critical_path.end(),
                                 [](const BlameRow& a, const BlameRow& b) { return a.seconds > b.seconds; }));
    try_what_ifs(scenario, models, base.summary, out);
    out.verdict = explainer.verdict(out, scenario) + campaign_verdict(out) + ".";
    out.verdict[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(out.verdict[0])));
    if (by_packet) {
        out.verdict = "Of the same run with fidelity fluid: " + out.verdict;
    }
    return out;
}

}  // namespace orrery::explain
