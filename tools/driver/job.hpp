#pragma once
// Scenarios that are jobs of another: for kinds that hold scenarios of other kinds.

#include "tools/driver/kind.hpp"

namespace orrery::driver {

/// As `KindSpec::own_jobs` gives them.
template <class Job>
[[nodiscard]] std::vector<JobSpec*> pointers_to(std::vector<Job>& jobs) {
    std::vector<JobSpec*> out;
    for (Job& job : jobs) {
        out.push_back(&job);
    }
    return out;
}

/// Names the sections that a scenario has as a job of a cluster: `kind` and what belongs to it.
void describe_job(Fields& fields, Scenario& scenario);
/// Takes sections that only a whole scenario has out of every job that stands in it, with an error for each.
void refuse_shared_of_jobs(YamlNode& root, std::vector<Diagnostic>& errors);
/// Names what a job is: a file or a scenario in place.
void describe_job_source(Fields& fields, JobSpec& job);
/// Reads and checks the scenario of a job of `whole`, in place or from its file. False: it cannot be looked at further.
bool read_job_source(const YamlNode& item, const DataDirectory& data, const Scenario& whole, JobSpec& job,
                     std::vector<Diagnostic>& errors);
/// The scenario of a job as it runs on the cluster and network of `whole`.
void take_shared(const Scenario& whole, Scenario& job);
/// The nodes that a text names: "0-3,8". False: it is no such text.
bool parse_nodes(const std::string& text, std::vector<std::uint32_t>& out);
/// Whether a text is a count of nodes and not their numbers.
[[nodiscard]] bool is_count(const std::string& text);

}  // namespace orrery::driver
