// kind: cluster. Several jobs of any kinds on one cluster, each on nodes of its own, with one network between all of them.

#include "sim/base/text.hpp"
#include "tools/driver/kind.hpp"
#include "tools/driver/scenario_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

namespace orrery::inline driver {

namespace {

class ClusterScenario final : public ScenarioRun {
  public:
    explicit ClusterScenario(const RunContext& context) : jobs_(context.scenario.jobs) {
        const Scenario& scenario = context.scenario;
        for (JobSpec& job : jobs_) {
            job.scenario.cluster = scenario.cluster;
            job.scenario.network = scenario.network;
            job.scenario.network.fold = scenario.network.fold && !scenario.faults.given;  // ranks may differ
            job.scenario.seed += scenario.seed - 1;
            job.scenario.directory = scenario.directory;  // reading made its files relative to that
            placements_.push_back(std::make_unique<Placement>(context.fabric, job.placed));
            starts_.push_back(SimTime::from_seconds(job.start));
            runs_.push_back(row_of(job.scenario.kind)
                                .prepare({job.scenario, context.models, context.options, context.fabric,
                                          *placements_.back(), context.simulation, starts_.back(), context.faults}));
        }
    }

    void summarise(RunOutput& out) override {
        std::uint32_t processes = 0;
        for (std::size_t i = 0; i < runs_.size(); ++i) {
            const JobSpec& job = jobs_[i];
            RunOutput own;
            runs_[i]->summarise(own);
            out.seconds = std::max(out.seconds, job.start + own.seconds);
            own.summary.scenario = job.name;
            own.summary.kind = row_of(job.scenario.kind).name;
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

void describe_cluster(Fields& fields, Scenario& s) {
    describe_given(fields, s.faults);
    fields.items(
        {"jobs", "scenarios that run side by side on this cluster", true}, s.jobs, [](Fields& inner, JobSpec& job) {
            inner.text({"name", "what its metrics are prefixed with", true}, job.name);
            inner.text({"nodes", "a count (the next free ones), or numbers and ranges: 0-3,8", true}, job.nodes);
            inner.quantity({"start", "when it begins", false, 0, 2.6e6}, Dimension::time, job.start);
            describe_job_source(inner, job);
        });
}

// Gives every job its nodes: those that name them first, then counts in the order of the jobs.
void place_jobs(const YamlNode& list, Scenario& scenario, std::uint32_t nodes, std::vector<Diagnostic>& errors) {
    std::vector<std::string> owner(nodes);
    const auto mark_of = [&](std::size_t i) {
        const YamlNode* node = list.items[i].find("nodes");
        return node != nullptr ? node->mark : list.items[i].mark;
    };
    const auto is_count = [](const std::string& text) {
        return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
    };
    for (std::size_t i = 0; i < scenario.jobs.size(); ++i) {
        JobSpec& job = scenario.jobs[i];
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
    for (std::size_t i = 0; i < scenario.jobs.size(); ++i) {
        JobSpec& job = scenario.jobs[i];
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

void check_cluster(const YamlNode& root, const DataDirectory& data, Scenario& scenario,
                   std::vector<Diagnostic>& errors) {
    const YamlNode* list = root.find("jobs");
    if (list == nullptr || list->kind != YamlNode::Kind::sequence) {
        return;
    }
    if (scenario.jobs.empty()) {
        errors.push_back(list->mark.error("'jobs' has no job"));
        return;
    }
    std::set<std::string> names;
    for (std::size_t i = 0; i < scenario.jobs.size(); ++i) {
        JobSpec& job = scenario.jobs[i];
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
        (void)read_job_source(item, data, scenario, job, errors);
    }
    if (errors.empty()) {
        place_jobs(*list, scenario, shape_of(scenario.cluster, scenario.cluster_mark).nodes, errors);
    }
}

}  // namespace

void refuse_shared_of_jobs(YamlNode& root, std::vector<Diagnostic>& errors) {
    YamlNode* list = root.find("jobs");
    for (std::size_t i = 0; list != nullptr && i < list->items.size(); ++i) {
        if (YamlNode* own = list->items[i].find("scenario")) {
            refuse_shared_sections(*own, errors);
        }
    }
}

void describe_job_source(Fields& fields, JobSpec& job) {
    std::string file;  // what it held is written out in full
    fields.text({"file", "scenario without cluster and network; relative paths start here"}, file);
    job.file = file.empty() ? job.file : file;
    if (file.empty()) {
        fields.section({"scenario", "what the job asks, in place"}, [&](Fields& own) {
            own.defaults([&](Fields& usual) {
                Scenario plain;
                plain.kind = job.scenario.kind;
                describe_job(usual, plain);
            });
            describe_job(own, job.scenario);
        });
    }
}

bool parse_nodes(const std::string& text, std::vector<std::uint32_t>& out) {
    std::size_t at = 0;
    const auto number = [&](std::uint64_t& value) {
        const std::size_t first = at;
        value = 0;
        while (at < text.size() && text[at] >= '0' && text[at] <= '9' && at < first + 7) {
            value = 10 * value + static_cast<std::uint64_t>(text[at++] - '0');
        }
        return at > first;
    };
    for (;;) {
        std::uint64_t low = 0;
        if (!number(low)) {
            return false;
        }
        std::uint64_t high = low;
        if (at < text.size() && text[at] == '-') {
            ++at;
            if (!number(high) || high < low) {
                return false;
            }
        }
        for (std::uint64_t node = low; node <= high; ++node) {
            out.push_back(static_cast<std::uint32_t>(node));
        }
        if (at == text.size()) {
            return true;
        }
        if (text[at++] != ',') {
            return false;
        }
    }
}

bool read_job_source(const YamlNode& item, const DataDirectory& data, const Scenario& whole, JobSpec& job,
                     std::vector<Diagnostic>& errors) {
    constexpr const char* kFurtherJobs = "job '{}' cannot be a cluster of further jobs";
    job.scenario.name = job.name;
    job.scenario.cluster = whole.cluster;
    job.scenario.cluster_mark = whole.cluster_mark;
    job.scenario.network = whole.network;
    job.scenario.network_mark = whole.network_mark;
    const YamlNode* own = item.find("scenario");
    if (job.file.empty() == (own == nullptr)) {
        errors.push_back(item.mark.error(fmt::format("job '{}' has either a 'file' or a 'scenario'", job.name)));
        return false;
    }
    if (own != nullptr) {
        complete_job(*own, data, job.scenario, errors);
    } else {
        namespace fs = std::filesystem;
        const fs::path here = item.mark.file ? fs::path(*item.mark.file).parent_path() : fs::path();
        const fs::path file = fs::path(job.file).is_absolute() ? fs::path(job.file) : here / job.file;
        const YamlNode* named = item.find("file");
        if (!check_file(named != nullptr ? named->mark : item.mark, job.file, here.string(), errors)) {
            return false;
        }
        try {
            YamlNode tree = load_yaml(file.string());
            // Before its jobs are read: it may be one of them.
            const YamlNode* kind = tree.find("kind");
            const std::vector<std::string>& kinds = scenario_kind_names();
            const auto found = std::find(kinds.begin(), kinds.end(), kind != nullptr ? kind->scalar : "");
            if (found != kinds.end() && row_of(static_cast<ScenarioKind>(found - kinds.begin())).jobs) {
                errors.push_back(item.mark.error(fmt::format(kFurtherJobs, job.name)));
                return false;
            }
            refuse_shared_sections(tree, errors);
            read_job(tree, data, job.scenario, errors);
            check_files(tree, file.parent_path().string(), errors);
        } catch (const ConfigError& error) {
            errors.insert(errors.end(), error.diagnostics().begin(), error.diagnostics().end());
            return false;
        }
        job.scenario.directory = file.parent_path().string();
        job.scenario = seen_from(here.string(), std::move(job.scenario));
    }
    if (row_of(job.scenario.kind).jobs) {
        errors.push_back(item.mark.error(fmt::format(kFurtherJobs, job.name)));
        return false;
    }
    return true;
}

static constexpr const char* kClusterCards[] = {"makespan_s"};

const KindRow kClusterKind = {
    .name = "cluster",
    .headline = "makespan_s",
    .cards = kClusterCards,
    .nodes = false,
    .messages = false,
    .kernels = true,
    .requests = false,
    .jobs = true,
    .drawing = TimelineDrawing::few_streams,
    .network = {.library = true, .folds = true, .collectives = true, .sends = true},
    .cost = cost_of_jobs,
    .describe = describe_cluster,
    .check = check_cluster,
    .prepare = [](const RunContext& context) -> std::unique_ptr<ScenarioRun> {
        return std::make_unique<ClusterScenario>(context);
    },
    .tidy = refuse_shared_of_jobs,
};

}  // namespace orrery::inline driver
