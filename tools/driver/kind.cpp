#include "tools/driver/kind.hpp"

#include <algorithm>

namespace orrery::driver {

const std::vector<std::string>& scenario_kind_names() {
    static const std::vector<std::string> kNames = [] {
        std::vector<std::string> names;
        for (const KindRow* row : scenario_kinds()) {
            names.emplace_back(row->name);
        }
        return names;
    }();
    return kNames;
}

const KindRow* find_kind(const std::string& name) {
    const std::vector<const KindRow*>& all = scenario_kinds();
    const auto found = std::find_if(all.begin(), all.end(), [&](const KindRow* row) { return row->name == name; });
    return found == all.end() ? nullptr : *found;
}

void describe_kind(Fields& fields, const Field& field, OwnSpec& own) {
    const std::vector<const KindRow*>& all = scenario_kinds();
    const KindRow* was = &own->row();
    auto index = static_cast<std::size_t>(std::find(all.begin(), all.end(), was) - all.begin());
    fields.enumeration(field, scenario_kind_names(), index);
    if (all.at(index) != was) {
        own = OwnSpec(all[index]->make());
    }
}

// Both ask without a change.
static KindSpec& asked(const Scenario& scenario) {
    return const_cast<KindSpec&>(*scenario.own);
}

const FaultsSpec& faults_of(const Scenario& scenario) {
    static const FaultsSpec kNone;
    const FaultsSpec* own = asked(scenario).cluster_faults();
    return own != nullptr ? *own : kNone;
}

RunCost expected_cost(const Scenario& scenario) {
    return scenario.own->cost(scenario);
}

std::vector<const JobSpec*> jobs_of(const Scenario& scenario) {
    const std::vector<JobSpec*> jobs = asked(scenario).own_jobs();
    return {jobs.begin(), jobs.end()};
}

void KindSpec::run_on_simgrid(const Scenario&, const RunOptions&, const Fabric&, RunOutput&) const {
    ORRERY_ASSERT(row().network.simgrid);
    throw InternalError("a kind that goes on SimGrid does not say how");
}

OwnSpec::OwnSpec() = default;
OwnSpec::OwnSpec(std::unique_ptr<KindSpec> spec) : spec_(std::move(spec)) {}
OwnSpec::OwnSpec(const OwnSpec& other) : spec_(other.spec_ != nullptr ? other.spec_->copy() : nullptr) {}
OwnSpec::OwnSpec(OwnSpec&& other) noexcept = default;
OwnSpec& OwnSpec::operator=(OwnSpec other) noexcept {
    spec_ = std::move(other.spec_);
    return *this;
}
OwnSpec::~OwnSpec() = default;

KindSpec& OwnSpec::operator*() {
    ORRERY_ASSERT(spec_ != nullptr);
    return *spec_;
}
const KindSpec& OwnSpec::operator*() const {
    ORRERY_ASSERT(spec_ != nullptr);
    return *spec_;
}

const KindRow& Scenario::kind() const {
    return own->row();
}

JobSpec::JobSpec() : scenario(scenario_of(*scenario_kinds().front())) {}

Scenario scenario_of(const KindRow& kind) {
    Scenario out;
    out.own = OwnSpec(kind.make());
    return out;
}

}  // namespace orrery::driver
