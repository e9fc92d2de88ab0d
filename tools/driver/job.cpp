// Scenarios that are jobs of another.

#include "tools/driver/job.hpp"

#include "tools/driver/expect_key.hpp"
#include "tools/driver/kind.hpp"
#include "tools/driver/named_model.hpp"
#include "tools/driver/reading.hpp"
#include "tools/driver/scenario.hpp"
#include "tools/driver/scenario_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace orrery::driver {

void describe_job(Fields& fields, Scenario& s) {
    describe_kind(fields, {"kind", "kind of the job", true}, s.own);
    fields.integer(
        {"seed", "seed of the job's random streams; that of the whole scenario, less 1, is added", false, 0, 9e15},
        s.seed);
    s.own->describe(fields, s);
}

// Sections that only a whole scenario has, taken out of a job with an error for each.
static void refuse_shared_sections(YamlNode& job, std::vector<Diagnostic>& errors) {
    if (const YamlNode* found = job.find(kExpect)) {
        errors.push_back(
            found->mark.error("a job has no 'expect' of its own: expect NAME.metric of the whole scenario"));
    }
    for (const char* key : {"cluster", "network"}) {
        if (const YamlNode* found = job.find(key)) {
            errors.push_back(found->mark.error(
                fmt::format("a job has no '{}' of its own: it runs on that of the whole scenario", key)));
        }
    }
    std::erase_if(job.entries, [](const YamlNode::Entry& entry) {
        return entry.key == "cluster" || entry.key == "network" || entry.key == kExpect;
    });
}

// What reading a scenario does after its fields.
static void complete_job(const YamlNode& node, const DataDirectory& data, Scenario& scenario,
                         std::vector<Diagnostic>& errors) {
    const Mark cluster_mark = scenario.cluster_mark;
    const Mark network_mark = scenario.network_mark;
    keep_marks(node, scenario);
    scenario.cluster_mark = cluster_mark;
    scenario.network_mark = network_mark;
    const KindRow& kind = scenario.kind();
    if (scenario.own->needs_nodes() && scenario.cluster.nodes == 0) {
        errors.push_back(cluster_mark.error(fmt::format("{} needs 'nodes' with GPUs, not bare hosts", kind.name)));
    }
    if (const YamlNode* faults = node.find("faults"); faults != nullptr && faults_of(scenario).given) {
        errors.push_back(faults->mark.error("links and nodes are the cluster's: give 'faults' beside 'jobs'"));
    }
    if (const YamlNode* faults = node.find("faults"); faults != nullptr && faults_of(scenario).campaign) {
        errors.push_back(faults->mark.error(
            "a job beside others has no 'faults': the states of the cluster are priced for a job that runs alone"));
    }
    const std::size_t before = errors.size();
    check_power_limit(scenario, mark_of(node, "engine"), errors);
    scenario.own->check(node, data, scenario, errors);
    Scenario plain = scenario_of(kind);
    keep_without_effect(
        node, scenario, [&](Fields& fields) { describe_job(fields, scenario); },
        [&](Fields& fields) { describe_job(fields, plain); }, errors);
    if (ModelSpec* model = scenario.own->own_model()) {
        add_model_limits(model->name, data, scenario.without_effect);
        if (errors.size() == before) {
            complete(*model);
        }
    }
}

// A job from a file's tree. `scenario` has the cluster and the network of the whole already.
static void read_job(const YamlNode& node, const DataDirectory& data, Scenario& scenario,
                     std::vector<Diagnostic>& errors) {
    if (const KindRow* kind = kind_of(node)) {
        scenario.own = OwnSpec(kind->make());
    }
    const std::size_t before = errors.size();
    read_fields(
        node, data, errors,
        [&](Fields& fields) {
            describe_version(fields, false);
            describe_job(fields, scenario);
        },
        &scenario.origins);
    if (errors.size() == before) {
        complete_job(node, data, scenario, errors);
    }
}

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
        fields.section({"scenario", "scenario of the job, written inline"}, [&](Fields& own) {
            own.defaults([&](Fields& usual) {
                Scenario plain = scenario_of(job.scenario.kind());
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
            const KindRow* kind = kind_of(tree);
            if (kind != nullptr && kind->make()->holds_jobs()) {
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
    if (job.scenario.own->holds_jobs()) {
        errors.push_back(item.mark.error(fmt::format(kFurtherJobs, job.name)));
        return false;
    }
    return true;
}

void take_shared(const Scenario& whole, Scenario& job) {
    job.cluster = whole.cluster;
    job.network = whole.network;
    job.seed += whole.seed - 1;
    job.directory = whole.directory;  // reading made its files relative to that
}

bool is_count(const std::string& text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace orrery::driver
