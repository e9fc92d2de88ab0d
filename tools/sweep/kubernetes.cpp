#include "tools/sweep/kubernetes.hpp"

#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"
#include "tools/sweep/slurm.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>

namespace orrery::sweep {

namespace {

using Ordered = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = 900'000;  // a ConfigMap holds 1 MiB, with its names and their quotes
constexpr std::size_t kLongestName = 40;     // of 63, with what follows it

// A name as Kubernetes takes it: lower-case letters, digits and dashes.
std::string object_name(const std::string& text) {
    std::string out;
    for (const char c : text) {
        const auto u = static_cast<unsigned char>(c);
        if (std::isalnum(u) != 0 && u < 128) {
            out += static_cast<char>(std::tolower(u));
        } else if (!out.empty() && out.back() != '-') {
            out += '-';
        }
    }
    out.resize(std::min(out.size(), kLongestName));
    out.resize(out.find_last_not_of('-') + 1);
    return "orrery-" + (out.empty() ? "sweep" : out);
}

// The deepest folder that holds all files.
fs::path folder_of_all(const std::vector<fs::path>& files) {
    fs::path folder = files.front().parent_path();
    for (const fs::path& file : files) {
        while (file.lexically_relative(folder).native().rfind("..", 0) == 0) {
            folder = folder.parent_path();
        }
    }
    return folder;
}

Ordered pod(const KubernetesOptions& options, const std::string& script, const Ordered& items) {
    const std::string name = object_name(options.name);
    const std::string cores = std::to_string(options.cores);
    return {{"restartPolicy", "OnFailure"},
            {"containers",
             Ordered::array({{{"name", "orrery"},
                              {"image", options.image},
                              {"command", {"sh", "-c", script}},
                              {"env", Ordered::array({{{"name", "SWEEP"}, {"value", "/sweep"}},
                                                      {{"name", "RESULTS"}, {"value", "/results"}}})},
                              {"resources", {{"requests", {{"cpu", cores}}}}},
                              {"volumeMounts", Ordered::array({{{"name", "sweep"}, {"mountPath", "/sweep"}},
                                                               {{"name", "results"}, {"mountPath", "/results"}}})}}})},
            {"volumes",
             Ordered::array({{{"name", "sweep"}, {"configMap", {{"name", name}, {"items", items}}}},
                             {{"name", "results"}, {"persistentVolumeClaim", {{"claimName", options.claim}}}}})}};
}

}  // namespace

std::string kubernetes_manifest(const KubernetesOptions& options) {
    const std::string name = object_name(options.name);
    std::vector<fs::path> files;
    for (const std::string& file : options.files) {
        files.push_back(fs::canonical(file));
    }
    std::sort(files.begin(), files.end());
    files.erase(std::unique(files.begin(), files.end()), files.end());
    const fs::path folder = folder_of_all(files);
    Ordered data = Ordered::object();
    Ordered items = Ordered::array();
    std::size_t bytes = 0;
    for (const fs::path& file : files) {
        const std::string key = fmt::format("file-{}", items.size());
        const std::string text = bytes_of_input(file.string());
        bytes += text.size();
        for (const fs::path& other : files) {
            if (text.find(other.string()) != std::string::npos) {
                throw ConfigError(
                    {Diagnostic{file.string(), 0, 0,
                                fmt::format("names '{}' by a path that pods do not have; name it relative "
                                            "to this file",
                                            other.string())}});
            }
        }
        data[key] = text;
        items.push_back({{"key", key}, {"path", file.lexically_relative(folder).string()}});
    }
    if (bytes > kMostBytes) {
        throw ConfigError(
            fmt::format("the sweep reads {} files of {} kB in all, and a manifest holds {} kB; put them on "
                        "the volume and run '--shard \"$JOB_COMPLETION_INDEX/{}\"' there",
                        files.size(), bytes / 1000, kMostBytes / 1000, options.pods));
    }
    std::string arguments;
    for (const std::string& option : options.sweep_options) {
        arguments += " " + shell_quoted(option);
    }
    const std::string parts = "\"$RESULTS\"/" + name;
    const std::string shard = fmt::format(
        "set -e; mkdir -p {0}; orrery sweep \"$SWEEP\"/{1} --quiet --progress plain --resume --jobs {2} --shard "
        "\"$JOB_COMPLETION_INDEX/{3}\" --db {0}/shard-$JOB_COMPLETION_INDEX.sqlite{4}; touch "
        "{0}/done-$JOB_COMPLETION_INDEX",
        parts, shell_quoted(fs::canonical(options.sweep).lexically_relative(folder).string()), options.cores,
        options.pods, arguments);
    const std::string merge = fmt::format(
        "until [ \"$(ls {0}/done-* 2>/dev/null | wc -l)\" -eq {1} ]; do sleep 5; done; exec orrery merge "
        "{0}.sqlite {0}/shard-*.sqlite",
        parts, options.pods);
    const auto job = [&](const std::string& job_name, const Ordered& spec) {
        return Ordered{{"apiVersion", "batch/v1"}, {"kind", "Job"}, {"metadata", {{"name", job_name}}}, {"spec", spec}};
    };
    const Ordered objects[] = {
        {{"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", {{"name", name}}}, {"data", data}},
        job(name, {{"completionMode", "Indexed"},
                   {"completions", options.pods},
                   {"parallelism", options.pods},
                   {"backoffLimit", 6 * options.pods},
                   {"template", {{"spec", pod(options, shard, items)}}}}),
        job(name + "-merge", {{"template", {{"spec", pod(options, merge, items)}}}})};
    std::string out = fmt::format(
        "# Written by 'orrery sweep --kubernetes': kubectl apply -f FILE. Results: {}.sqlite on claim {}.\n", name,
        options.claim);
    for (const Ordered& object : objects) {
        out += "---\n" + object.dump(1) + "\n";  // JSON is YAML
    }
    return out;
}

}  // namespace orrery::sweep
