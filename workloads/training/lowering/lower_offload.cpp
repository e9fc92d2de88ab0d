#include "workloads/training/lowering/lower_offload.hpp"
#include "sim/base/error.hpp"
#include "workloads/training/features/offload.hpp"

#include <algorithm>

namespace orrery::training {

namespace {
constexpr double kStateBytes = 12;  // fp32 weight and both moments of Adam
constexpr double kWeightBytes = 2;  // of the weight in 16 bits
}  // namespace

OffloadLowering::OffloadLowering(const TrainingInput& input, const NodeMemories* memory, RankCopies ranks)
    : UnitLowering(input, ranks),
      memory_(input.plan.has<OffloadPlan>() ? memory : nullptr),
      fetched_(rank_count()),
      kept_(rank_count()),
      updates_(rank_count()),
      ends_(rank_count()) {
    ORRERY_ASSERT(!input.plan.has<OffloadPlan>() || (memory != nullptr && input.host != nullptr));
}

std::size_t OffloadLowering::gradient_home(std::uint32_t rank) const {
    const OffloadPlan& plan = in_.plan.feature<OffloadPlan>();
    if (plan.gradients.given) {
        return home(rank, host(rank).find(plan.gradients.tier));
    }
    return host(rank).dram() < host(rank).tiers.size() ? host(rank).dram()
                                                       : home(rank, host(rank).find(plan.optimizer.tier));
}

OffloadLowering::Step OffloadLowering::step_of(std::uint32_t rank, std::size_t tier, std::uint8_t stream) {
    const auto [found, added] = steps_.try_emplace({rank, tier, stream});
    if (added) {
        const NodeMemory::Hop hop = [&] {
            switch (stream) {
                case kLoadStream:
                case kStateLoadStream:
                    return tiers_of(rank).load(gpu(rank), tier);
                case kWriteBackStream:
                case kStateWriteBackStream:
                    return tiers_of(rank).write_back(gpu(rank), tier);
                case kStoreStream:
                    return tiers_of(rank).store(gpu(rank), tier).front();
                default:
                    return tiers_of(rank).fetch(gpu(rank), tier).back();
            }
        }();
        found->second = {out_.graph.add_demands(hop.demands), hop.latency};
    }
    return found->second;
}

TaskId OffloadLowering::copy(std::uint32_t rank, std::size_t tier, std::uint8_t stream, const char* name, double bytes,
                             const Tasks& after) {
    const Step step = step_of(rank, tier, stream);
    const TaskId id = transfer(rank, stream, out_.graph.name(name), Category::other, step.latency, step.demands,
                               host(rank).tiers[tier].whole(bytes));
    in_order(rank, stream, id);
    for (const TaskId task : after) {
        out_.graph.add_edge(task, id);
    }
    return id;
}

TaskId OffloadLowering::bring(std::uint32_t rank, std::size_t tier, const char* name, double bytes,
                              const Tasks& after) {
    if (host(rank).tiers[tier].reached()) {
        return copy(rank, tier, kFetchStream, name, bytes, after);
    }
    const TaskId loaded = copy(rank, tier, kLoadStream, "read from drives", bytes, after);
    return copy(rank, tier, kFetchStream, name, bytes, {loaded});
}

TaskId OffloadLowering::take(std::uint32_t rank, std::size_t tier, const char* name, double bytes, const Tasks& after) {
    const TaskId stored = copy(rank, tier, kStoreStream, name, bytes, after);
    return host(rank).tiers[tier].reached() ? stored
                                            : copy(rank, tier, kWriteBackStream, "write to drives", bytes, {stored});
}

OffloadLowering::Tasks OffloadLowering::window(std::uint32_t rank) const {
    const Tasks& passes = out_.compute[rank];
    const auto ahead = static_cast<std::size_t>(in_.plan.feature<OffloadPlan>().prefetch) + 1;
    return passes.size() >= ahead ? Tasks{passes[passes.size() - ahead]} : Tasks();
}

void OffloadLowering::begin_offload(std::vector<double> shares) {
    if (memory_ == nullptr) {
        return;
    }
    shares_ = std::move(shares);
    arrived_.assign(rank_count(), std::vector<Tasks>(shares_.size()));
    for (Tasks& kept : kept_) {
        kept.assign(shares_.size(), TaskId());
    }
    if (in_.plan.feature<OffloadPlan>().optimizer.away() > 0) {
        for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
            update_demands_.push_back(out_.graph.add_demands(tiers_of(rank).update(gpu(rank), update_traffic(rank))));
        }
    }
    if (in_.plan.feature<OffloadPlan>().step == OptimizerStep::delayed) {
        add_updates();
    }
}

void OffloadLowering::fetch_parameters(std::uint32_t unit, TaskLists& inputs) {
    if (memory_ == nullptr) {
        return;
    }
    ORRERY_ASSERT(unit < shares_.size());
    const double bytes = kWeightBytes * shares_[unit];
    for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
        fetched_[rank].clear();
        in_.plan.feature<OffloadPlan>().parameters.each([&](const std::string& tier, double share) {
            if (bytes > 0) {
                fetched_[rank].push_back(
                    bring(rank, host(rank).find(tier), "fetch weights", share * bytes, window(rank)));
            }
        });
        inputs[rank].insert(inputs[rank].end(), fetched_[rank].begin(), fetched_[rank].end());
    }
}

// Layers alone keep activations; the first and the last unit are tables.
void OffloadLowering::store_activations(std::uint32_t unit) {
    if (memory_ == nullptr || unit == 0 || unit + 1 == shares_.size()) {
        return;
    }
    const double bytes = layer_activations(in_.model, in_.plan, in_.software);
    for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
        in_.plan.feature<OffloadPlan>().activations.each([&](const std::string& tier, double share) {
            kept_[rank][unit] =
                take(rank, host(rank).find(tier), "store activations", share * bytes, {out_.compute[rank].back()});
            ends_[rank].push_back(kept_[rank][unit]);
        });
    }
}

void OffloadLowering::store_parameters(std::uint32_t unit) {
    if (memory_ == nullptr || shares_[unit] <= 0) {
        return;
    }
    for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
        in_.plan.feature<OffloadPlan>().parameters.each([&](const std::string& tier, double share) {
            ends_[rank].push_back(take(rank, host(rank).find(tier), "store weights",
                                       share * kWeightBytes * shares_[unit], {out_.compute[rank].back()}));
        });
    }
}

void OffloadLowering::fetch_activations(std::uint32_t unit, TaskLists& inputs) {
    if (memory_ == nullptr || unit == 0 || unit + 1 == shares_.size()) {
        return;
    }
    const double bytes = layer_activations(in_.model, in_.plan, in_.software);
    for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
        in_.plan.feature<OffloadPlan>().activations.each([&](const std::string& tier, double share) {
            Tasks after = window(rank);
            ORRERY_ASSERT(kept_[rank][unit].valid());
            after.push_back(kept_[rank][unit]);
            inputs[rank].push_back(bring(rank, host(rank).find(tier), "fetch activations", share * bytes, after));
        });
    }
}

// The sum so far is read, the new gradients are added, and it is written.
TaskId OffloadLowering::accumulate(std::uint32_t rank, std::size_t tier, double bytes, TaskId stored) {
    Tasks after = {stored};
    const bool drives = !host(rank).tiers[tier].addressed();
    if (drives) {
        after.push_back(copy(rank, tier, kLoadStream, "read from drives", bytes, {}));
    }
    const std::uint32_t demands = out_.graph.add_demands(tiers_of(rank).update(gpu(rank), {{home(rank, tier), 2, 1}}));
    const TaskId sum =
        transfer(rank, kUpdateStream, out_.graph.name("add gradients"), Category::other, 0, demands, bytes);
    in_order(rank, kUpdateStream, sum);
    for (const TaskId task : after) {
        out_.graph.add_edge(task, sum);
    }
    return drives ? copy(rank, tier, kWriteBackStream, "write to drives", bytes, {sum}) : sum;
}

void OffloadLowering::store_gradients(std::uint32_t unit, std::uint32_t micro_batch, TaskLists& scattered) {
    if (memory_ == nullptr || in_.plan.feature<OffloadPlan>().optimizer.away() <= 0) {
        return;
    }
    const OffloadPlan& plan = in_.plan.feature<OffloadPlan>();
    const double bytes = bytes_of(in_.plan.gradient_precision) * shares_[unit];
    const bool last = micro_batch + 1 == micro_batches_;
    for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
        const Tasks after =
            width() == 1 || scattered[rank].empty() ? Tasks{out_.compute[rank].back()} : scattered[rank];
        Tasks stored;
        plan.gradients.each([&](const std::string& name, double share) {
            const std::size_t tier = host(rank).find(name);
            if (micro_batch == 0) {
                stored.push_back(take(rank, tier, "store gradients", share * bytes, after));
                return;
            }
            const TaskId there = copy(rank, home(rank, tier), kStoreStream, "store gradients", share * bytes, after);
            stored.push_back(accumulate(rank, tier, share * bytes, there));
        });
        // What the device keeps until the last micro-batch goes to the host then.
        const double left = last ? plan.optimizer.away() - plan.gradients.away() : 0;
        if (left > 0) {
            stored.push_back(take(rank, gradient_home(rank), "store gradients", left * bytes, after));
        }
        if (!in_.plan.overlap_data && !stored.empty()) {
            scattered[rank] = stored;
        }
        if (last) {
            arrived_[rank][unit] = stored;
        }
        ends_[rank].insert(ends_[rank].end(), stored.begin(), stored.end());
    }
}

// Per weight that the host updates.
std::vector<NodeMemory::Traffic> OffloadLowering::update_traffic(std::uint32_t rank) const {
    const OffloadPlan& plan = in_.plan.feature<OffloadPlan>();
    std::vector<NodeMemory::Traffic> out;
    const double away = plan.optimizer.away();
    plan.optimizer.each([&](const std::string& tier, double share) {
        out.push_back({home(rank, host(rank).find(tier)), kStateBytes * share / away, kStateBytes * share / away});
    });
    const double gradient = bytes_of(in_.plan.gradient_precision);
    double placed = 0;
    plan.gradients.each([&](const std::string& tier, double share) {
        out.push_back({home(rank, host(rank).find(tier)), gradient * share, 0});
        placed += share;
    });
    if (placed < 1) {
        out.push_back({gradient_home(rank), gradient * (1 - placed), 0});
    }
    placed = 0;
    plan.parameters.each([&](const std::string& tier, double share) {
        out.push_back({home(rank, host(rank).find(tier)), 0, kWeightBytes * share});
        placed += share;
    });
    if (placed < 1) {
        out.push_back({gradient_home(rank), 0, kWeightBytes * (1 - placed)});
    }
    return out;
}

void OffloadLowering::update(std::uint32_t rank, std::uint32_t unit, double weights) {
    const OffloadPlan& plan = in_.plan.feature<OffloadPlan>();
    const double away = plan.optimizer.away();
    ORRERY_ASSERT(away > 0 && weights > 0);
    Tasks gate;
    if (plan.step == OptimizerStep::synchronous) {
        gate = {norm_};
    } else if (plan.step == OptimizerStep::pipelined) {
        gate = arrived_[rank][unit];
    }
    const auto ahead = static_cast<std::size_t>(plan.prefetch) + 1;
    Tasks ready = gate;
    Tasks room = plan.step == OptimizerStep::synchronous ? gate : Tasks();
    if (updates_[rank].size() >= ahead) {
        room.push_back(updates_[rank][updates_[rank].size() - ahead]);
    }
    const auto drives = [&](const OffloadPlace& place, double bytes, const auto& use) {
        place.each([&](const std::string& name, double share) {
            const std::size_t tier = host(rank).find(name);
            if (!host(rank).tiers[tier].addressed()) {
                use(tier, share * bytes);
            }
        });
    };
    drives(plan.optimizer, kStateBytes * weights / away, [&](std::size_t tier, double bytes) {
        ready.push_back(copy(rank, tier, kStateLoadStream, "read states", bytes, room));
    });
    drives(plan.gradients, bytes_of(in_.plan.gradient_precision) * weights, [&](std::size_t tier, double bytes) {
        Tasks after = room;
        after.insert(after.end(), gate.begin(), gate.end());
        ready.push_back(copy(rank, tier, kStateLoadStream, "read gradients", bytes, after));
    });
    const TaskId step = transfer(rank, kUpdateStream, out_.graph.name("update on host"), Category::other, 0,
                                 update_demands_[rank], weights);
    in_order(rank, kUpdateStream, step);
    for (const TaskId task : ready) {
        out_.graph.add_edge(task, step);
    }
    updates_[rank].push_back(step);
    ends_[rank].push_back(step);
    const auto write_states = [&](std::size_t tier, double bytes) {
        ends_[rank].push_back(copy(rank, tier, kStateWriteBackStream, "write states", bytes, {step}));
    };
    drives(plan.optimizer, kStateBytes * weights / away, write_states);
    drives(plan.parameters, kWeightBytes * weights, write_states);
    if (const double device = 1 - plan.parameters.away(); device > 0) {
        ends_[rank].push_back(copy(rank, gradient_home(rank), kUploadStream, "copy weights to device",
                                   device * kWeightBytes * weights, {step}));
    }
}

// In the order in which gradients come.
void OffloadLowering::add_updates() {
    const double away = in_.plan.feature<OffloadPlan>().optimizer.away();
    for (std::uint32_t rank = 0; away > 0 && rank < rank_count(); ++rank) {
        for (std::size_t unit = shares_.size(); unit-- > 0;) {
            if (shares_[unit] > 0) {
                update(rank, static_cast<std::uint32_t>(unit), away * shares_[unit]);
            }
        }
    }
}

void OffloadLowering::finish_offloaded(const TaskLists& reduced, double updated) {
    Task barrier;
    barrier.name = out_.graph.name("norm of gradients");
    barrier.category = Category::other;
    barrier.rank = out_.ranks[0];
    norm_ = out_.graph.add(barrier);
    for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
        out_.graph.add_edge(out_.compute[rank].back(), norm_);
        for (const TaskId id : reduced[rank]) {
            out_.graph.add_edge(id, norm_);
        }
        for (const Tasks& arrived : arrived_[rank]) {
            for (const TaskId id : arrived) {
                out_.graph.add_edge(id, norm_);
            }
        }
    }
    if (in_.plan.feature<OffloadPlan>().step != OptimizerStep::delayed) {
        add_updates();
    }
    const double own = 1 - in_.plan.feature<OffloadPlan>().optimizer.away();
    if (own > 0) {
        const std::uint32_t price = add_prices([&] { return cost().optimizer(own * updated, own * updated); });
        for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
            out_.graph.add_edge(norm_, compute(rank, out_.graph.name("optimizer"), Category::optimizer, price));
        }
    }
    end_step(TaskLists(rank_count(), {norm_}));
}

void OffloadLowering::end_step(const TaskLists& after) {
    const std::uint32_t nothing = add_prices([] { return Price(); });
    for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
        const TaskId end = compute(rank, out_.graph.name("end of step"), Category::overhead, nothing);
        for (const Tasks& tasks : {after[rank], ends_[rank]}) {
            for (const TaskId id : tasks) {
                out_.graph.add_edge(id, end);
            }
        }
    }
}

}  // namespace orrery::training
