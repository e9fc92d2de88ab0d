#include "workloads/serving/routers/prefix_index.hpp"

#include "sim/base/error.hpp"

#include <algorithm>

namespace orrery::serving {

namespace {

// Tokens of the first of `most` blocks of a prompt that are known.
template <class Keys>
std::uint32_t known_tokens(const Keys& keys, const PromptContent& content, std::uint32_t block, std::uint32_t most) {
    std::uint32_t found = 0;
    while (found < most) {
        const std::uint64_t key = content.key(found, block);
        if (key == 0 || !keys.contains(key)) {
            break;
        }
        ++found;
    }
    return found * block;
}

}  // namespace

void describe_index_delay(Fields& fields, PrefixIndexSpec& spec) {
    fields.quantity(
        {"index_delay", "time until the router learns that a replica has stored or evicted a block", false, 0, 1e6},
        Dimension::time, spec.delay_s);
}

void describe_index(Fields& fields, PrefixIndexSpec& spec) {
    fields.boolean({"approximate",
                    "estimate cached prefixes from the prompts sent to each replica, without an index of its cache"},
                   spec.of_traffic);
    fields.when(!spec.of_traffic, "an index of the replicas' caches (approximate: false)",
                [&](Fields& same) { describe_index_delay(same, spec); });
}

void PrefixIndex::watch(std::uint32_t replica, EngineState& engine, const std::function<SimTime()>& now) {
    if (of_traffic_ || delay_ == SimTime()) {
        return;
    }
    reported_.resize(std::max<std::size_t>(reported_.size(), replica + 1));
    engine.watch_cache([this, replica, now](CacheChange change, std::uint64_t key) {
        reported_[replica].events.push_back({now() + delay_, change, key});
    });
}

const std::unordered_set<std::uint64_t>& PrefixIndex::reported(std::uint32_t replica, SimTime now) {
    Reported& of = reported_.at(replica);
    for (; !of.events.empty() && of.events.front().known <= now; of.events.pop_front()) {
        const Event& event = of.events.front();
        if (event.change == CacheChange::stored) {
            of.keys.insert(event.key);
        } else if (event.change == CacheChange::evicted) {
            of.keys.erase(event.key);
        } else {
            of.keys.clear();
        }
    }
    return of.keys;
}

std::uint32_t PrefixIndex::cached(const EngineStates& engines, std::uint32_t replica, const RoutedRequest& request) {
    const std::uint32_t block = engines[replica]->limits().block;
    if (of_traffic_) {
        return replica < known_.size()
                   ? known_tokens(known_[replica].at, request.content, block, request.prompt / block)
                   : 0;
    }
    if (delay_ == SimTime()) {
        return engines[replica]->cached_prefix(request.content, request.prompt);
    }
    return known_tokens(reported(replica, request.now), request.content, block, (request.prompt - 1) / block);
}

void PrefixIndex::sent(const EngineStates& engines, std::uint32_t replica, const RoutedRequest& request) {
    if (!of_traffic_) {
        return;
    }
    known_.resize(std::max<std::size_t>(known_.size(), replica + 1));
    Known& known = known_[replica];
    const EngineLimits& limits = engines[replica]->limits();
    for (std::uint32_t i = 0; i < request.prompt / limits.block; ++i) {
        std::uint64_t key = request.content.key(i, limits.block);
        // What nobody else has takes its place all the same.
        key = key == 0 ? mix64(mix64(~request.request) + i) & ~std::uint64_t{1} : key;
        if (const auto found = known.at.find(key); found != known.at.end()) {
            known.order.splice(known.order.begin(), known.order, found->second);
            continue;
        }
        known.order.push_front(key);
        known.at.emplace(key, known.order.begin());
        ORRERY_ASSERT(known.order.size() == known.at.size());
        if (known.order.size() > limits.blocks) {
            known.at.erase(known.order.back());
            known.order.pop_back();
        }
    }
}

}  // namespace orrery::serving
