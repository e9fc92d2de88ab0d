#include "tools/explain/what_ifs.hpp"

#include "models/scaled_device.hpp"
#include "tools/driver/kind.hpp"
#include "tools/driver/kinds/replay.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "tools/driver/kinds/training.hpp"
#include "tools/explain/field_walk.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::explain {

namespace {

constexpr double kMore = 1.1;  // rates times this, latencies over it
constexpr double kMost = 1 - 1 / kMore;

using Parts = std::vector<std::pair<std::string, double>>;

struct Outcome {
    double seconds;
    Parts parts;
};

Outcome outcome_of(const Summary& summary) {
    const Metric* first = summary.find("ttft_s.mean");
    const Metric* all = summary.find("e2e_s.mean");
    if (first != nullptr && all != nullptr) {
        return {all->value,
                {{"to the first token", first->value}, {"after the first token", all->value - first->value}}};
    }
    const KindRow* kind = find_kind(summary.kind);
    ORRERY_ASSERT(kind != nullptr);
    return {summary.find(headline_metric(*kind))->value, summary.breakdown};
}

Outcome run_again(const Scenario& scenario, ModelCache& models) {
    RunOptions options;
    options.check_memory = false;
    return outcome_of(run_scenario(scenario, models, options).summary);
}

// The same run on devices whose arithmetic or memory is faster.
Outcome run_scaled(const Scenario& scenario, const DataDirectory& data, double arithmetic, double memory) {
    ModelCache models(data, [&](std::unique_ptr<CostModel> base, const DeviceSpec& device) {
        return std::make_unique<ScaledDevice>(std::move(base), device, arithmetic, memory);
    });
    return run_again(scenario, models);
}

double part(const Parts& parts, const std::string& name) {
    for (const auto& [key, seconds] : parts) {
        if (key == name) {
            return seconds;
        }
    }
    return 0;
}

// The links of every fabric, whatever its topology calls them: all its quantities of one dimension.
class FabricScale final : public FieldWalk {
  public:
    FabricScale(Dimension dimension, double factor) : dimension_(dimension), factor_(factor) {}

    void quantity(const Field& field, Dimension dimension, double& value) override {
        const bool of_fabric = prefix().starts_with("fabric.") || prefix().find(".fabric.") != std::string::npos;
        if (of_fabric && dimension == dimension_) {
            value = std::clamp(value * factor_, field.min, field.max);
        }
    }

  private:
    Dimension dimension_;
    double factor_;
};

void scale_fabrics(ClusterSpec& cluster, Dimension dimension, double factor) {
    FabricScale scale(dimension, factor);
    describe(scale, cluster);
}

struct WhatIf {
    const char* name;
    void (*change)(Scenario&, double more);
};

// Everything that is not the device's own rates; what a scenario does not use changes nothing and is left out.
constexpr WhatIf kWhatIfs[] = {
    {"bandwidth inside the node",
     [](Scenario& s, double more) {
         for_each_node(s.cluster, [&](NodeSpec& node) { node.intra_bandwidth.value *= more; });
     }},
    {"bandwidth between nodes",
     [](Scenario& s, double more) {
         for_each_node(s.cluster, [&](NodeSpec& node) { node.nic_bandwidth.value *= more; });
         scale_fabrics(s.cluster, Dimension::rate, more);
     }},
    {"PCIe bandwidth",
     [](Scenario& s, double more) {
         for_each_node(s.cluster, [&](NodeSpec& node) {
             const double rate = node.pcie_rate();
             node.pcie_bandwidth.value = rate * more;
             node.host.pcie.generation = 0;
         });
     }},
    {"bandwidth of the node's memories",
     [](Scenario& s, double more) {
         for_each_node(s.cluster, [&](NodeSpec& node) {
             for (MemoryTier& tier : node.host.tiers) {
                 tier.read.value *= more;
                 tier.write.value *= more;
             }
         });
     }},
    {"cores of the host",
     [](Scenario& s, double more) {
         for_each_node(s.cluster, [&](NodeSpec& node) { node.host.core_bandwidth.value *= more; });
     }},
    {"lower network latency",
     [](Scenario& s, double more) {
         for_each_node(s.cluster, [&](NodeSpec& node) {
             node.intra_latency.value /= more;
             node.nic_latency.value /= more;
         });
         scale_fabrics(s.cluster, Dimension::time, 1 / more);
     }},
    {"lower host overhead",
     [](Scenario& s, double more) {
         if (auto* training = s.find<TrainingKind>()) {
             training->software.launch.value /= more;
             training->software.expert_wait.value /= more;
             training->software.step_overhead.value /= more;
         }
         if (auto* serving = s.find<ServingKind>()) {
             EngineSpec& engine = serving->engine;
             HostSpec& host = engine.software;
             for (double* seconds : {&host.step.value, &host.sequence.value, &host.request.value, &host.frontend.value,
                                     &host.prompt_token.value, &host.layer_launch.value, &host.latent_launch.value,
                                     &host.experts_launch.value, &engine.step_overhead, &engine.sequence_overhead}) {
                 *seconds /= more;
             }
         }
     }},
    {"lower load",
     [](Scenario& s, double more) {
         if (auto* serving = s.find<ServingKind>()) {
             serving->requests.rate /= more;
             serving->requests.time_scale *= more;
         }
     }},
    {"kernel speed",
     [](Scenario& s, double more) {
         if (auto* own = s.find<RecordKind>()) {
             own->replay.kernel_speed *= more;
         }
     }},
    {"host speed",
     [](Scenario& s, double more) {
         if (auto* own = s.find<RecordKind>()) {
             own->replay.host_speed *= more;
         }
     }},
};

Elasticity elasticity(const std::string& name, const Outcome& before, const Outcome& after) {
    Elasticity out{
        name, before.seconds - after.seconds, (before.seconds - after.seconds) / before.seconds / kMost, 0, {}};
    for (const auto& [phase, seconds] : before.parts) {
        out.by_phase.emplace_back(phase, seconds - part(after.parts, phase));
    }
    return out;
}

// Numbers of runs of a what-if, with Student's t at 97.5 % for one degree of freedom less.
constexpr std::pair<int, double> kTrials[] = {{33, 2.037}, {17, 2.120}, {9, 2.306}, {5, 2.776}, {3, 4.303}};
constexpr double kHops = 1e7;  // that all runs of a what-if may take together, if that gives three of them

std::pair<int, double> trials_of(const Summary& base) {
    const Metric* hops = base.find("packet_hops");
    for (const auto& trials : kTrials) {
        if (hops == nullptr || trials.first * hops->value <= kHops) {
            return trials;
        }
    }
    return *std::rbegin(kTrials);
}

// The n-th run of a what-if has seed + n and a factor of its own: 1.1, 1.09, 1.11, 1.08, 1.12 and again.
double factor_of(std::size_t trial) {
    constexpr double kSteps[] = {0, -0.01, 0.01, -0.02, 0.02};
    return kMore + kSteps[trial % std::size(kSteps)];
}

Elasticity repeated(const WhatIf& what_if, const Scenario& scenario, ModelCache& models, const Outcome& before,
                    const std::vector<Outcome>& bases, double student) {
    std::vector<double> gains;  // relative, as of a factor kMore
    for (std::size_t i = 0; i < bases.size(); ++i) {
        Scenario changed = scenario;
        changed.seed += static_cast<std::int64_t>(i);
        ORRERY_ASSERT(factor_of(i) > 1);
        what_if.change(changed, factor_of(i));
        const double after = run_again(changed, models).seconds;
        gains.push_back((1 - after / bases[i].seconds) * kMost / (1 - 1 / factor_of(i)));
    }
    ORRERY_ASSERT(gains.size() >= 2);  // else they have no spread
    const auto n = static_cast<double>(gains.size());
    double mean = 0;
    for (const double gain : gains) {
        mean += gain / n;
    }
    double squares = 0;
    for (const double gain : gains) {
        squares += (gain - mean) * (gain - mean);
    }
    const double noise = student * std::sqrt(squares / (n - 1) / n);
    return Elasticity{what_if.name, mean * before.seconds, mean / kMost, noise * before.seconds, {}};
}

std::vector<PhaseBound> bounds_of(const Outcome& base, const std::vector<Elasticity>& what_ifs) {
    std::vector<PhaseBound> out;
    for (const auto& [phase, seconds] : base.parts) {
        if (seconds <= 0) {
            continue;
        }
        PhaseBound bound{phase, seconds, "the schedule", 0};
        // The bubble shrinks with whatever makes passes shorter: its cause is the schedule all the same.
        for (const Elasticity& what_if : what_ifs) {
            const double share = part(what_if.by_phase, phase) / seconds / kMost;
            if (phase != "bubble" && share > std::max(0.02, bound.share)) {
                bound.bound = what_if.what_if;
                bound.share = share;
            } else if (phase != "bubble" && bound.share == 0) {
                bound.bound = "what the software fixes";
            }
        }
        ORRERY_ASSERT(bound.share >= 0);
        out.push_back(std::move(bound));
    }
    return out;
}

}  // namespace

void try_what_ifs(const Scenario& asked, ModelCache& models, const Summary& base, Explanation& out) {
    Scenario scenario = asked;
    if (FaultsSpec* faults = scenario.own->cluster_faults()) {
        *faults = FaultsSpec();  // the headline is that of one iteration without them
    }
    Outcome before = outcome_of(base);
    // A run that ends by itself ends elsewhere at other rates: equal loads are compared.
    auto* serving = scenario.find<ServingKind>();
    if (serving != nullptr && load_end(serving->engine, serving->requests, serving->measure) == LoadEnd::steady) {
        ORRERY_ASSERT(base.find("requests") != nullptr);
        serving->requests.count = static_cast<std::int64_t>(base.find("requests")->value);
        before = run_again(scenario, models);
    }
    const bool upset = scenario.network.fidelity == Fidelity::packet;
    std::vector<Outcome> bases = {before};
    const auto [trials, student] = trials_of(base);
    if (upset) {
        out.replicas = trials;
        for (int i = 1; i < out.replicas; ++i) {
            Scenario again = scenario;
            again.seed += i;
            bases.push_back(run_again(again, models));
        }
    }
    if (scenario.own->prices_kernels()) {
        const DataDirectory& data = models.data();
        out.what_ifs.push_back(elasticity("arithmetic rate", before, run_scaled(scenario, data, kMore, 1)));
        out.what_ifs.push_back(elasticity("memory bandwidth", before, run_scaled(scenario, data, 1, kMore)));
    }
    ORRERY_ASSERT(!upset || bases.size() == static_cast<std::size_t>(out.replicas));
    const std::string resolved = resolved_json(scenario);
    for (const WhatIf& what_if : kWhatIfs) {
        Scenario changed = scenario;
        what_if.change(changed, kMore);
        if (resolved_json(changed) != resolved) {
            out.what_ifs.push_back(upset ? repeated(what_if, scenario, models, before, bases, student)
                                         : elasticity(what_if.name, before, run_again(changed, models)));
        }
    }
    std::stable_sort(out.what_ifs.begin(), out.what_ifs.end(), [](const Elasticity& a, const Elasticity& b) {
        return std::pair(a.certain(), a.gain_s) > std::pair(b.certain(), b.gain_s);
    });
    out.phases = bounds_of(before, out.what_ifs);
    ORRERY_ASSERT(out.phases.size() <= before.parts.size());
}

}  // namespace orrery::explain
