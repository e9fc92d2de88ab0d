#pragma once
// A sweep as a Kubernetes Indexed Job: each pod runs one shard, a second job merges what they leave on a shared volume.
//
// The manifest carries the sweep and the scenarios it names, so that it needs an image, a volume claim and nothing else. A pod that
// is evicted starts again and resumes its shard. Source: kubernetes.io, "Indexed Job for Parallel Processing".

#include "sim/base/namespaces.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::sweep {

struct KubernetesOptions {
    std::string name;                        ///< of the sweep; the jobs and the database are called after it
    std::string sweep;                       ///< its file
    std::vector<std::string> files;          ///< all that it reads, itself included
    std::string image;                       ///< with orrery on its path
    std::string claim;                       ///< volume claim for results, writable by many nodes
    unsigned pods = 1;                       ///< shards
    unsigned cores = 1;                      ///< of each pod
    std::vector<std::string> sweep_options;  ///< passed on to each shard: --set, --timeout
};

/// The manifest, for `kubectl apply -f`. Throws ConfigError where the files are more than a manifest holds.
[[nodiscard]] std::string kubernetes_manifest(const KubernetesOptions& options);

}  // namespace orrery::sweep
