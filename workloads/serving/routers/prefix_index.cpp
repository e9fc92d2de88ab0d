#include "workloads/serving/routers/prefix_index.hpp"

namespace orrery::serving {

std::uint32_t PrefixIndex::cached(const EngineStates& engines, std::uint32_t replica,
                                  const RoutedRequest& request) const {
    if (!of_traffic_) {
        return engines[replica]->cached_prefix(request.content, request.prompt);
    }
    if (replica >= known_.size()) {
        return 0;
    }
    const std::uint32_t block = engines[replica]->limits().block;
    std::uint32_t found = 0;
    while (found < request.prompt / block) {
        const std::uint64_t key = request.content.key(found, block);
        if (key == 0 || !known_[replica].at.contains(key)) {
            break;
        }
        ++found;
    }
    return found * block;
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
        if (known.order.size() > limits.blocks) {
            known.at.erase(known.order.back());
            known.order.pop_back();
        }
    }
}

}  // namespace orrery::serving
