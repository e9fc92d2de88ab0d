#pragma once
// Requests from a list, services with affine prices, and iterations as text.

#include "sim/base/random.hpp"
#include "workloads/serving/cluster/service.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace orrery::test {

class ListSource final : public RequestSource {
  public:
    explicit ListSource(std::vector<Request> requests) : requests_(std::move(requests)) {}
    bool next(Request& request) override {
        if (at_ == requests_.size()) {
            return false;
        }
        request = requests_[at_++];
        return true;
    }

  private:
    std::vector<Request> requests_;
    std::size_t at_ = 0;
};

inline Request request(double arrival_s, std::uint32_t prompt, std::uint32_t output, std::uint32_t session = 0) {
    return Request{SimTime::from_seconds(arrival_s), prompt, output, session, {}};
}

/// A scheduler as a scenario says it: "{kind: fastserve, levels: 3}".
inline SchedulerSpec scheduler(const std::string& text) {
    SchedulerSpec spec;
    std::vector<Diagnostic> errors;
    read_fields(parse_yaml(text, "scheduler"), DataDirectory(ORRERY_SOURCE_DIR), errors,
                [&](Fields& fields) { describe(fields, spec); });
    if (!errors.empty()) {
        throw ConfigError(errors);
    }
    return spec;
}

/// All policies of a table but those that somebody outside decides.
template <class Base>
std::vector<std::string> built_in(const PolicyTable<Base>& table) {
    std::vector<std::string> out = names_of(table);
    std::erase(out, "outside");
    return out;
}

/// Any of the policies.
template <class Base>
std::string any_of(const PolicyTable<Base>& table, RandomStream& random) {
    const std::vector<std::string> names = built_in(table);
    return names[random.below(names.size())];
}

inline ServiceSpec spec_of(const std::string& kind, std::uint32_t budget, std::uint32_t sequences, std::uint64_t blocks,
                           std::uint32_t block = 4) {
    PoolSpec pool;
    pool.scheduler.policy.choose(kind);
    pool.limits.token_budget = budget;
    pool.limits.max_sequences = sequences;
    pool.limits.blocks = blocks;
    pool.limits.block = block;
    pool.limits.watermark = 0;
    ServiceSpec spec;
    spec.pools = {pool};
    return spec;
}

/// A fault of the node that a replica has for itself, which is repaired and starts after so long.
inline TimedFault loss(std::uint32_t replica, double at_s, double down_s) {
    return {at_s, {FaultKind::preemption, {Place::What::node, replica, 0}, 1, down_s}};
}

/// Nodes as large as the replicas of the first pool, numbered from its first GPU on.
inline JobShape nodes_of(const ServiceSpec& spec) {
    JobShape shape;
    shape.gpus_per_node = spec.pools[0].gpus;
    shape.nics_per_node = 1;
    shape.nodes = 0;
    for (const PoolSpec& pool : spec.pools) {
        shape.replicas += static_cast<std::uint32_t>(pool.replicas);
        const auto replicas = static_cast<std::uint32_t>(pool.replicas);
        shape.nodes = std::max(shape.nodes, (pool.first_gpu + replicas * pool.gpus) / shape.gpus_per_node);
    }
    return shape;
}

inline ServiceResult serve_with(ServiceSpec spec, RequestSource& source, StepCost& cost) {
    for (PoolSpec& pool : spec.pools) {
        pool.cost.assign(pool.limits.batches, &cost);
        pool.starts = true;
    }
    spec.faults.shape = nodes_of(spec);
    return serve(spec, source);
}

// Iterations as text: "0:4 1:1" is four new tokens of request 0 and one of request 1; "+1" a padded place.
inline std::vector<std::string> iterations(ServiceSpec spec, std::vector<Request> requests) {
    ListSource source(std::move(requests));
    AffineStep cost(1, 0, 0);
    std::vector<std::string> out;
    ServiceHooks hooks;
    hooks.iteration = [&](std::uint32_t, const Batch& batch, const EngineState& state) {
        std::string line;
        for (const BatchItem& item : batch.items) {
            line += fmt::format("{}{}:{}", line.empty() ? "" : " ", state.sequence(item.sequence).id, item.tokens);
        }
        out.push_back(line + (batch.padded > 0 ? fmt::format(" +{}", batch.padded) : ""));
    };
    spec.pools[0].cost.assign(spec.pools[0].limits.batches, &cost);
    (void)serve(spec, source, hooks);
    return out;
}

using Lines = std::vector<std::string>;

}  // namespace orrery::test
