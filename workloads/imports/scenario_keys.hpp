#pragma once
// Keys of a scenario, from which an importer writes YAML.

#include "sim/base/namespaces.hpp"

#include <string>
#include <vector>

namespace orrery::imports {

/// Keys of a scenario with dots, and the YAML that they make, in the order in which sections and keys were first set.
class ScenarioKeys {
  public:
    /// An empty value sets nothing.
    void set(const std::string& path, const std::string& value);
    [[nodiscard]] std::string yaml() const;

  private:
    struct Node {
        std::string name, value;
        std::vector<Node> children;
    };
    static std::string flow(const Node& node);
    std::vector<Node> sections_;
};

}  // namespace orrery::imports
