#pragma once
// Policies from outside by what a scenario names: a shared object, a class in Python, a process at a socket, or a recording.

#include "include/orrery/policy.hpp"
#include "sim/config/fields.hpp"
#include "workloads/outside/decisions.hpp"

#include <functional>
#include <map>
#include <memory>
#include <string>

namespace orrery::outside {

/// What a scenario says of a policy.
struct PolicySource {
    std::string from;        ///< a path that ends in .so, .py or .jsonl, or "socket"
    std::string class_name;  ///< of Python; empty: the only one in the file
    std::string parameters;  ///< text for the policy

    void describe(Fields& fields);
    /// The path; null: there is none.
    [[nodiscard]] std::string* file() { return from == "socket" ? nullptr : &from; }
};

/// What a serving scenario says of policies that no part of its engine names: the section `policies`.
struct ServicePolicies {
    bool scales = false;  ///< `autoscaler` was given,
    bool admits = false;  ///< and `admission` was
    PolicySource autoscaler, admission;

    void describe(Fields& fields);
    [[nodiscard]] bool given() const { return scales || admits; }
};

class Connection;

/// The policies of one run.
class Policies {
  public:
    /// `file`: where a path of the scenario lies.
    explicit Policies(std::function<std::string(const std::string&)> file, ServicePolicies service = {});
    ~Policies();
    /// Both throw ConfigError where there is no such policy, or its code may not be loaded. `number`: of the router.
    [[nodiscard]] std::unique_ptr<policy::Scheduler> scheduler(const PolicySource& source);
    [[nodiscard]] std::unique_ptr<policy::Router> router(const PolicySource& source, std::uint32_t number);
    /// Those of the service; null: there is none.
    [[nodiscard]] std::unique_ptr<policy::Autoscaler> autoscaler();
    [[nodiscard]] std::unique_ptr<policy::Admission> admission();
    [[nodiscard]] const ServicePolicies& service() const { return service_; }

    std::uint64_t turned_away = 0;  ///< requests that the admission did not take

  private:
    /// The policy of this kind: `asked` makes one that asks a process, `recorded` one that reads a recording.
    template <class Base, class Asked, class Recorded>
    [[nodiscard]] std::unique_ptr<Base> made(const PolicySource& source, const char* kind, const Asked& asked,
                                             const Recorded& recorded);
    [[nodiscard]] std::shared_ptr<Connection> connection(const PolicySource& source, const char* decides);
    [[nodiscard]] std::shared_ptr<Recording> recording(const std::string& path);

    std::function<std::string(const std::string&)> file_;
    ServicePolicies service_;
    std::map<std::string, std::shared_ptr<Connection>> connections_;  ///< by file and class
    std::map<std::string, std::shared_ptr<Recording>> recordings_;
};

/// Policies whose decisions a process sends, and those that a recording has.
[[nodiscard]] std::unique_ptr<policy::Scheduler> remote_scheduler(std::shared_ptr<Connection> connection,
                                                                  std::string parameters);
[[nodiscard]] std::unique_ptr<policy::Router> remote_router(std::shared_ptr<Connection> connection,
                                                            std::string parameters, std::uint32_t number);
[[nodiscard]] std::unique_ptr<policy::Scheduler> recorded_scheduler(std::shared_ptr<Recording> recording);
[[nodiscard]] std::unique_ptr<policy::Router> recorded_router(std::shared_ptr<Recording> recording,
                                                              std::uint32_t number);
[[nodiscard]] std::unique_ptr<policy::Autoscaler> remote_autoscaler(std::shared_ptr<Connection> connection,
                                                                    std::string parameters);
[[nodiscard]] std::unique_ptr<policy::Autoscaler> recorded_autoscaler(std::shared_ptr<Recording> recording);
[[nodiscard]] std::unique_ptr<policy::Admission> remote_admission(std::shared_ptr<Connection> connection,
                                                                  std::string parameters);
[[nodiscard]] std::unique_ptr<policy::Admission> recorded_admission(std::shared_ptr<Recording> recording);

}  // namespace orrery::outside
