#include "tools/sweep/slurm.hpp"

#include "sim/base/error.hpp"
#include "sim/record/summary.hpp"
#include "tools/sweep/result_store.hpp"

#include <fmt/format.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

namespace orrery::sweep {

namespace {

struct Answer {
    int code;
    std::string text;
};

Answer shell(const std::string& command) {
    std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
    if (pipe == nullptr) {
        throw ConfigError("no process can be started");
    }
    Answer out{0, {}};
    std::array<char, 4096> buffer{};
    for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
        out.text.append(buffer.data(), n);
    }
    const int status = pclose(pipe);
    out.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    return out;
}

std::string folder_of(const SlurmOptions& options) {
    return std::filesystem::absolute(options.database).string() + ".shards";
}

std::string shard_path(const SlurmOptions& options, const std::string& index) {
    return fmt::format("{}/shard-{}.sqlite", folder_of(options), index);
}

bool is_complete(const std::string& path) {
    return std::filesystem::exists(path) && ResultStore(path, ResultStore::Mode::look).shard_count() > 0;
}

}  // namespace

std::string shell_quoted(const std::string& text) {
    std::string out = "'";
    for (const char c : text) {
        out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
    return out + "'";
}

std::string slurm_script(const SlurmOptions& options) {
    std::string out = "#!/bin/sh\n# Written by 'orrery sweep --slurm': one shard a task. A requeued task resumes.\n";
    out += fmt::format(
        "#SBATCH --job-name=orrery-sweep\n#SBATCH --array=0-{}\n#SBATCH --requeue\n#SBATCH --open-mode=append\n",
        options.tasks - 1);
    out += fmt::format("#SBATCH --output={}/log-%a.txt\n", folder_of(options));
    for (const std::string& option : options.sbatch_options) {
        out += fmt::format("#SBATCH {}\n", option);
    }
    std::string arguments;
    for (const std::string& option : options.sweep_options) {
        arguments += " " + shell_quoted(option);
    }
    out += fmt::format(
        "exec {} sweep {} --quiet --resume --shard \"$SLURM_ARRAY_TASK_ID/{}\" --db "
        "{}\"$SLURM_ARRAY_TASK_ID\".sqlite{}\n",
        shell_quoted(options.program), shell_quoted(std::filesystem::absolute(options.sweep).string()), options.tasks,
        shell_quoted(folder_of(options) + "/shard-"), arguments);
    return out;
}

std::vector<std::string> run_on_slurm(const SlurmOptions& options) {
    const std::string folder = folder_of(options);
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    const std::string script = folder + "/job.sh";
    write_file(script, slurm_script(options));
    const Answer submitted = shell("sbatch --parsable " + shell_quoted(script));
    const std::string job = submitted.text.substr(0, submitted.text.find_first_of(";\n"));
    if (submitted.code != 0 || job.empty() || job.find_first_not_of("0123456789") != std::string::npos) {
        throw ConfigError(submitted.code == 127
                              ? "there is no sbatch on this machine: --slurm needs Slurm's commands; "
                                "--shard I/N runs parts under any other scheduler"
                              : "sbatch refused the job: " +
                                    submitted.text.substr(0, submitted.text.find_last_not_of("\n") + 1));
    }
    options.say(fmt::format("submitted job {} with {} tasks; logs in {}", job, options.tasks, folder));
    // squeue forgets a job a while after its end; until then its tasks have a state. A controller that does not answer
    // for a while is no reason to give up.
    int silent = 0;
    for (;;) {
        const Answer left = shell("squeue --noheader --array --format=%T --jobs=" + job);
        const bool unknown = left.text.find("Invalid job id") != std::string::npos;
        if (left.code == 0 ? left.text.empty() : unknown) {
            break;
        }
        if (left.code != 0 && ++silent > 600) {
            throw ConfigError(
                fmt::format("squeue has not answered for ten minutes: {}job {} may still run; the same "
                            "command with --resume follows it up",
                            left.text, job));
        }
        silent = left.code != 0 ? silent : 0;
        std::this_thread::sleep_for(std::chrono::seconds(1));
    }
    std::vector<std::string> parts;
    std::string missing;
    for (unsigned i = 0; i < options.tasks; ++i) {
        parts.push_back(shard_path(options, std::to_string(i)));
        if (!is_complete(parts.back())) {
            missing += fmt::format("{}{}", missing.empty() ? "" : ", ", i);
        }
    }
    if (!missing.empty()) {
        throw ConfigError(
            fmt::format("job {} ended, but shards {} are not complete; the reasons are in {}/log-*.txt. What was "
                        "computed is kept: the same command continues",
                        job, missing, folder));
    }
    return parts;
}

}  // namespace orrery::sweep
