#pragma once
// A sweep as a Slurm job array: each task runs one shard, the submitting process follows and merges.
//
// A task that is killed and requeued runs `orrery sweep --resume` on its own database and goes on where it was. The
// databases must lie on storage that all nodes share.

#include "sim/base/namespaces.hpp"

#include <functional>
#include <string>
#include <vector>

namespace orrery::sweep {

struct SlurmOptions {
    std::string program;   ///< this program
    std::string sweep;     ///< the sweep file
    std::string database;  ///< of the merged results; shards lie in DATABASE.shards/
    unsigned tasks = 1;
    std::vector<std::string> sweep_options;   ///< passed on to each shard: --set, --timeout, -j
    std::vector<std::string> sbatch_options;  ///< such as --partition=long
    std::function<void(const std::string&)> say;
};

/// Writes the job script, submits it, waits until no task is left and every shard is complete. Returns the databases of
/// the shards. Throws ConfigError when Slurm refuses the job or a shard is not complete; what was computed stays.
[[nodiscard]] std::vector<std::string> run_on_slurm(const SlurmOptions& options);

/// The job script: one shard a task of the array.
[[nodiscard]] std::string slurm_script(const SlurmOptions& options);
/// A word as a shell takes it, whatever is in it.
[[nodiscard]] std::string shell_quoted(const std::string& text);

}  // namespace orrery::sweep
