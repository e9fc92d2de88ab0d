#pragma once
// What a scenario of any kind holds, once read and resolved. What a kind adds is in a file of its own (tools/driver/kinds).

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

}  // namespace orrery::driver
