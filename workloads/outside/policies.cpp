#include "workloads/outside/policies.hpp"

#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"
#include "workloads/outside/session.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <utility>

namespace orrery::outside {

namespace {

// Calls orrery_KIND of a shared object, which stays loaded as long as the program: its policies have their code there.
void* made_in(const std::string& path, const std::string& kind, const std::string& parameters) {
    const std::string symbol = "orrery_" + kind;
    void* object = dlopen(std::filesystem::absolute(path).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (object == nullptr) {
        const char* reason = dlerror();
        policy_failed(path, fmt::format("it cannot be loaded: {}", reason != nullptr ? reason : "no reason is given"));
    }
    const auto version = reinterpret_cast<int (*)()>(dlsym(object, (symbol + "_version").c_str()));
    const auto make = reinterpret_cast<void* (*)(const char*)>(dlsym(object, symbol.c_str()));
    if (version == nullptr || make == nullptr) {
        policy_failed(path, fmt::format("it has no {}: orrery/policy.hpp says how a class becomes one", kind));
    }
    if (version() != ORRERY_POLICY_VERSION) {
        policy_failed(path,
                      fmt::format("it was built for version {} of orrery/policy.hpp, and this program has {}: build it "
                                  "anew",
                                  version(), ORRERY_POLICY_VERSION));
    }
    return make(parameters.c_str());
}

void require_allowed(const std::string& path) {
    require_input_file(path);
    if (!session().allows_code) {
        policy_failed(path, "the scenario names code, which is loaded only with --allow-policies");
    }
}

std::string extension_of(const std::string& from) {
    return std::filesystem::path(from).extension().string();
}

[[noreturn]] void no_such_source(const std::string& from) {
    policy_failed(from, "'from' is a shared object (.so), Python (.py), a recording (.jsonl), or socket");
}

}  // namespace

void PolicySource::describe(Fields& fields) {
    fields.text({"from",
                 "a shared object (.so), Python (.py), a recording of decisions (.jsonl), or socket; code needs "
                 "--allow-policies",
                 true},
                from);
    const std::string extension = extension_of(from);
    fields.when(extension == ".py", "a policy in Python ('from' ends in .py)", [&](Fields& same) {
        same.text({"class", "name of the class in Python, where the file has several"}, class_name);
    });
    fields.when(extension != ".jsonl", "a policy that decides ('from' is no recording)", [&](Fields& same) {
        same.text({"parameters", "text that the policy is made with"}, parameters);
    });
}

void ServicePolicies::describe(Fields& fields) {
    fields.optional({"autoscaler", "your own rule for the number of running replicas, in place of autoscale.rule"},
                    scales, [&](Fields& inner) { autoscaler.describe(inner); });
    fields.optional({"admission", "your own rule that turns requests away as they come"}, admits,
                    [&](Fields& inner) { admission.describe(inner); });
}

Policies::Policies(std::function<std::string(const std::string&)> file, ServicePolicies service)
    : file_(std::move(file)), service_(std::move(service)) {}
Policies::~Policies() = default;

std::shared_ptr<Connection> Policies::connection(const PolicySource& source, const char* decides) {
    std::shared_ptr<Connection> out = session().clock;
    if (source.from != "socket") {
        const std::string path = file_(source.from);
        require_allowed(path);
        std::shared_ptr<Connection>& one = connections_[path + ":" + source.class_name];
        if (one == nullptr) {
            one = start_python(path, source.class_name, session().timeout);
        }
        out = one;
    } else if (out == nullptr) {
        policy_failed("socket", "nobody decides: 'orrery serve-clock' waits for the process that does");
    }
    out->require(decides);
    return out;
}

std::shared_ptr<Recording> Policies::recording(const std::string& path) {
    std::shared_ptr<Recording>& one = recordings_[path];
    if (one == nullptr) {
        one = std::make_shared<Recording>(path);
    }
    return one;
}

template <class Base, class Asked, class Recorded>
std::unique_ptr<Base> Policies::made(const PolicySource& source, const char* kind, const Asked& asked,
                                     const Recorded& recorded) {
    const std::string extension = extension_of(source.from);
    if (source.from == "socket" || extension == ".py") {
        return asked(connection(source, kind), source.parameters);
    }
    const std::string path = file_(source.from);
    if (extension == ".jsonl") {
        return recorded(recording(path));
    }
    if (extension != ".so") {
        no_such_source(source.from);
    }
    require_allowed(path);
    return std::unique_ptr<Base>(static_cast<Base*>(made_in(path, kind, source.parameters)));
}

std::unique_ptr<policy::Scheduler> Policies::scheduler(const PolicySource& source) {
    return made<policy::Scheduler>(source, "scheduler", remote_scheduler, recorded_scheduler);
}

std::unique_ptr<policy::Router> Policies::router(const PolicySource& source, std::uint32_t number) {
    return made<policy::Router>(
        source, "router",
        [&](std::shared_ptr<Connection> connection, const std::string& parameters) {
            return remote_router(std::move(connection), parameters, number);
        },
        [&](std::shared_ptr<Recording> recording) { return recorded_router(std::move(recording), number); });
}

std::unique_ptr<policy::Autoscaler> Policies::autoscaler() {
    return service_.scales
               ? made<policy::Autoscaler>(service_.autoscaler, "autoscaler", remote_autoscaler, recorded_autoscaler)
               : nullptr;
}

std::unique_ptr<policy::Admission> Policies::admission() {
    return service_.admits
               ? made<policy::Admission>(service_.admission, "admission", remote_admission, recorded_admission)
               : nullptr;
}

}  // namespace orrery::outside
