// kind: cluster. Several jobs of any kinds on one cluster, each on nodes of its own, with one network between all of them.

#include "tools/driver/kinds/cluster.hpp"
#include "sim/base/text.hpp"
#include "tools/driver/scenario_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

namespace orrery::driver {

namespace {

class ClusterRun final : public ScenarioRun {
  public:
    explicit ClusterRun(const RunContext& context) : jobs_(context.scenario.as<ClusterKind>().jobs) {
        const Scenario& scenario = context.scenario;
        for (JobSpec& job : jobs_) {
            take_shared(scenario, job.scenario);
            job.scenario.network.fold = scenario.network.fold && !faults_of(scenario).given;  // ranks may differ
            ORRERY_ASSERT(!job.placed.empty());                                               // reading gave it nodes
            placements_.push_back(std::make_unique<Placement>(context.fabric, job.placed));
            starts_.push_back(SimTime::from_seconds(job.start));
            runs_.push_back(
                job.scenario.own->prepare({job.scenario, context.models, context.options, context.fabric,
                                           *placements_.back(), context.simulation, starts_.back(), context.faults}));
        }
    }

    void summarise(RunOutput& out) override {
        std::uint32_t processes = 0;
        ORRERY_ASSERT(runs_.size() == jobs_.size() && placements_.size() == jobs_.size());
        for (std::size_t i = 0; i < runs_.size(); ++i) {
            const JobSpec& job = jobs_[i];
            RunOutput own;
            runs_[i]->summarise(own);
            ORRERY_ASSERT(own.seconds >= 0);
            out.seconds = std::max(out.seconds, job.start + own.seconds);
            own.summary.scenario = job.name;
            own.summary.kind = job.scenario.kind().name;
            own.summary.seed = static_cast<std::uint64_t>(job.scenario.seed);
            for (Metric metric : own.summary.metrics) {
                metric.name = job.name + "." + metric.name;
                out.summary.metrics.push_back(metric);
            }
            for (const auto& [part, seconds] : own.summary.breakdown) {
                out.summary.breakdown.emplace_back(job.name + ": " + part, seconds);
            }
            for (const std::string& note : own.summary.notes) {
                out.summary.notes.push_back(job.name + ": " + note);
            }
            processes = draw_beside(own.timeline, job, processes, out.timeline);
            ORRERY_ASSERT(out.jobs.size() == i);
            out.jobs.push_back(std::move(own));
        }
        out.summary.add("makespan_s", out.seconds, "s");
    }

  private:
    // Adds a job's timeline to that of the whole, with process numbers of its own; returns the next free one.
    static std::uint32_t draw_beside(const Timeline& own, const JobSpec& job, std::uint32_t first, Timeline& all) {
        const double shift = job.start * 1e6;
        std::uint32_t next = first;
        const auto number = [&](std::uint32_t process) {
            next = std::max(next, first + process + 1);
            return first + process;
        };
        for (const auto& [process, name] : own.processes) {
            all.processes.emplace_back(number(process), job.name + ": " + name);
        }
        for (const auto& thread : own.threads) {
            if (std::find(all.threads.begin(), all.threads.end(), thread) == all.threads.end()) {
                all.threads.push_back(thread);
            }
        }
        for (Span span : own.spans) {
            span.process = number(span.process);
            span.start_us += shift;
            all.spans.push_back(std::move(span));
        }
        for (FlowArrow arrow : own.arrows) {
            arrow.from_process = number(arrow.from_process);
            arrow.to_process = number(arrow.to_process);
            arrow.from_us += shift;
            arrow.to_us += shift;
            all.arrows.push_back(arrow);
        }
        for (Lifeline line : own.lifelines) {
            line.process = number(line.process);
            line.start_us += shift;
            all.lifelines.push_back(std::move(line));
        }
        for (CounterPoint point : own.counters) {
            point.process = number(point.process);
            point.at_us += shift;
            all.counters.push_back(std::move(point));
        }
        return next;
    }

    std::vector<JobSpec> jobs_;  ///< with the cluster and network as they are in this run
    std::vector<std::unique_ptr<Placement>> placements_;
    std::vector<SimTime> starts_;
    std::vector<std::unique_ptr<ScenarioRun>> runs_;
};

}  // namespace

void ClusterKind::describe(Fields& fields, const Scenario&) {
    describe_given(fields, faults);
    fields.items(
        {"jobs", "scenarios that run side by side on this cluster", true}, jobs, [](Fields& inner, JobSpec& job) {
            inner.text({"name", "prefix of the job's metrics", true}, job.name);
            inner.text({"nodes", "nodes of the job: a count (the next free ones), or numbers and ranges (0-3,8)", true},
                       job.nodes);
            inner.quantity({"start", "time at which the job begins", false, 0, 2.6e6}, Dimension::time, job.start);
            describe_job_source(inner, job);
        });
}

// Gives every job its nodes: those that name them first, then counts in the order of the jobs.
static void place_jobs(const YamlNode& list, std::vector<JobSpec>& jobs, std::uint32_t nodes,
                       std::vector<Diagnostic>& errors) {
    std::vector<std::string> owner(nodes);
    const auto mark_of = [&](std::size_t i) {
        const YamlNode* node = list.items[i].find("nodes");
        return node != nullptr ? node->mark : list.items[i].mark;
    };
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        JobSpec& job = jobs[i];
        if (is_count(job.nodes)) {
            continue;
        }
        std::vector<std::uint32_t> named;
        if (!parse_nodes(job.nodes, named)) {
            errors.push_back(mark_of(i).error(
                fmt::format("'nodes' is a count (4) or numbers and ranges (0-3,8), not '{}'", job.nodes)));
            continue;
        }
        for (const std::uint32_t node : named) {
            if (node >= nodes) {
                errors.push_back(mark_of(i).error(
                    fmt::format("node {} of job '{}': the cluster has nodes 0 to {}", node, job.name, nodes - 1)));
                break;
            }
            if (!owner[node].empty()) {
                errors.push_back(mark_of(i).error(
                    fmt::format("node {} of job '{}' belongs to job '{}' already", node, job.name, owner[node])));
                break;
            }
            owner[node] = job.name;
            job.placed.push_back(node);
        }
    }
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        JobSpec& job = jobs[i];
        if (!is_count(job.nodes)) {
            continue;
        }
        const std::uint64_t wanted = job.nodes.size() > 7 ? 10'000'000 : std::stoull(job.nodes);
        for (std::uint32_t node = 0; node < nodes && job.placed.size() < wanted; ++node) {
            if (owner[node].empty()) {
                owner[node] = job.name;
                job.placed.push_back(node);
            }
        }
        if (wanted == 0) {
            errors.push_back(mark_of(i).error(fmt::format("job '{}' needs at least one node", job.name)));
        } else if (job.placed.size() < wanted) {
            errors.push_back(mark_of(i).error(fmt::format("job '{}' wants {} nodes, but only {} of {} are free",
                                                          job.name, job.nodes, job.placed.size(), nodes)));
        }
    }
}

void ClusterKind::check(const YamlNode& root, const DataDirectory& data, Scenario& whole,
                        std::vector<Diagnostic>& errors) {
    const YamlNode* list = root.find("jobs");
    if (list == nullptr || list->kind != YamlNode::Kind::sequence) {
        return;
    }
    if (jobs.empty()) {
        errors.push_back(list->mark.error("'jobs' has no job"));
        return;
    }
    std::set<std::string> names;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        JobSpec& job = jobs[i];
        const YamlNode& item = list->items[i];
        if (item.kind != YamlNode::Kind::map) {
            continue;  // said already
        }
        if (job.name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") !=
            std::string::npos) {
            errors.push_back(item.mark.error(
                fmt::format("the name of a job has letters, digits, '-' and '_' only, not '{}'", job.name)));
        }
        if (!names.insert(job.name).second) {
            errors.push_back(item.mark.error(fmt::format("two jobs are called '{}'", job.name)));
        }
        (void)read_job_source(item, data, whole, job, errors);
    }
    if (errors.empty()) {
        place_jobs(*list, jobs, shape_of(whole.cluster, whole.cluster_mark).nodes, errors);
    }
}

bool ClusterKind::changes_links() const {
    return std::any_of(jobs.begin(), jobs.end(), [](const JobSpec& job) { return job.scenario.own->changes_links(); });
}

RunCost ClusterKind::cost(const Scenario& whole) const {
    return cost_of_jobs(jobs_of(whole));
}

std::unique_ptr<ScenarioRun> ClusterKind::prepare(const RunContext& context) const {
    return std::make_unique<ClusterRun>(context);
}

RunCost cost_of_jobs(const std::vector<const JobSpec*>& jobs) {
    RunCost all;
    for (const JobSpec* job : jobs) {
        const RunCost own = expected_cost(job->scenario);
        all.seconds += own.seconds;
        all.bytes += own.bytes;
        all.what += (all.what.empty() ? "" : ", ") + own.what;
    }
    return all;
}

static constexpr const char* kClusterCards[] = {"makespan_s"};

const KindRow ClusterKind::kRow = {
    .name = "cluster",
    .headline = "makespan_s",
    .cards = kClusterCards,
    .drawing = TimelineDrawing::few_streams,
    .network = {.library = true, .folds = true, .collectives = true, .sends = true},
    .make = make_kind<ClusterKind>,
};

}  // namespace orrery::driver
