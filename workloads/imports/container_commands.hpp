#pragma once
// The commands of containers in manifests: Kubernetes, Dynamo's and llm-d's resources, Docker Compose.
//
// Every map of the YAML that has `command` or `args` is a container: its image, its command and its arguments are the words of one
// command, `env` its environment, and `replicas` around it how many there are. A shell's script in an argument (sh -c) is read as
// one. Not read: templates of Helm, values that another file gives.

#include "workloads/imports/shell_script.hpp"

#include <optional>
#include <string>

namespace orrery::imports {

/// The commands of a text that is YAML with containers; none for any other. Throws ConfigError for broken YAML, with the line.
[[nodiscard]] std::optional<CommandList> read_containers(const std::string& text, const std::string& name);

}  // namespace orrery::imports
