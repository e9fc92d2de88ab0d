#pragma once
// A scenario: what all kinds have, read from YAML and resolved. What a kind adds is in a file of its own (tools/driver/kinds).
//
// The one library that the program, the tests and the validation link. It knows every kind of scenario and nothing of
// command lines.

#include "sim/base/error.hpp"
#include "sim/record/expectation.hpp"
#include "sim/run/network_spec.hpp"
#include "topologies/cluster_spec.hpp"

#include <memory>

namespace orrery::driver {

class KindSpec;
struct KindRow;

/// Holds what a kind adds to a scenario. Copies are deep.
class OwnSpec {
  public:
    OwnSpec();
    explicit OwnSpec(std::unique_ptr<KindSpec> spec);
    OwnSpec(const OwnSpec& other);
    OwnSpec(OwnSpec&& other) noexcept;
    OwnSpec& operator=(OwnSpec other) noexcept;
    ~OwnSpec();
    /// Precondition: there is one.
    [[nodiscard]] KindSpec& operator*();
    [[nodiscard]] const KindSpec& operator*() const;
    [[nodiscard]] KindSpec* operator->() { return &**this; }
    [[nodiscard]] const KindSpec* operator->() const { return &**this; }

  private:
    std::unique_ptr<KindSpec> spec_;
};

/// A scenario as read, with every preset expanded. Plain data: can be copied and changed before a run.
struct Scenario {
    std::string name;
    std::string directory;  ///< of the scenario's file: what it names is looked for there
    std::int64_t seed = 1;
    std::vector<std::string>
        without_effect;  ///< what it says that nothing of it reads and that may stay: notes of its runs
    Origins origins;     ///< where each given value stands, for explanations
    Mark cluster_mark;
    Mark network_mark;
    ClusterSpec cluster;
    NetworkSpec network;
    OwnSpec own;                      ///< what its kind adds
    std::vector<Expectation> expect;  ///< of metrics of the run; no part of the scenario's hash

    /// Its kind.
    [[nodiscard]] const KindRow& kind() const;
    /// What its kind adds, if it is of this kind; else null.
    template <class Kind>
    [[nodiscard]] const Kind* find() const {
        return dynamic_cast<const Kind*>(&*own);
    }
    template <class Kind>
    [[nodiscard]] Kind* find() {
        return dynamic_cast<Kind*>(&*own);
    }
    /// The same. Precondition: it is of this kind.
    template <class Kind>
    [[nodiscard]] const Kind& as() const {
        const Kind* found = find<Kind>();
        ORRERY_ASSERT(found != nullptr);
        return *found;
    }
    template <class Kind>
    [[nodiscard]] Kind& as() {
        Kind* found = find<Kind>();
        ORRERY_ASSERT(found != nullptr);
        return *found;
    }
    /// A file named in the scenario, looked for beside it.
    [[nodiscard]] std::string file(const std::string& path) const;
};

/// A scenario of this kind with its defaults.
[[nodiscard]] Scenario scenario_of(const KindRow& kind);

/// The files that a scenario names, those of its jobs too, where they are looked for.
[[nodiscard]] std::vector<std::string> files_of(const Scenario& scenario);

/// The same scenario for a file in another directory: what it names relative to its own is named relative to that one.
[[nodiscard]] Scenario seen_from(const std::string& directory, Scenario scenario);

/// Names every field of a scenario of its kind.
void describe(Fields& fields, Scenario& scenario);

/// Reads a scenario tree. Throws ConfigError with every error found.
[[nodiscard]] Scenario read_scenario(const YamlNode& root, const std::string& name, const DataDirectory& data);
/// Loads a file ("-": standard input) and applies `key.path=value` overrides.
[[nodiscard]] Scenario load_scenario(const std::string& path, const std::vector<std::string>& overrides,
                                     const DataDirectory& data);
/// The resolved scenario as JSON, without what is as by default or has no effect: reads back to the same scenario.
[[nodiscard]] std::string resolved_json(Scenario scenario);
/// The same with every default.
[[nodiscard]] std::string complete_json(Scenario scenario);
/// Sixteen hexadecimal digits of what the results of a scenario depend on.
[[nodiscard]] std::string hash_of(const Scenario& scenario);
/// JSON Schema of a scenario of one kind, with the names of the presets and tables in `data`.
[[nodiscard]] std::string scenario_schema(const KindRow& kind, const DataDirectory& data);

/// What the run of a scenario is built from. Reads its file of link events.
[[nodiscard]] RunSettings run_settings(const Scenario& scenario);
/// The scenario's fabric, whose hashes go by its seed. Throws as shape_of does.
[[nodiscard]] Fabric fabric_of(const Scenario& scenario);

/// The data directory of this installation: beside the program (../share/orrery), else the source tree it was built in.
[[nodiscard]] DataDirectory find_data_directory(const std::string& program);

}  // namespace orrery::driver
