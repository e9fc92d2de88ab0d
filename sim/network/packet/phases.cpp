#include "sim/network/packet/phases.hpp"

#include <bit>

namespace orrery::network::packet {

std::uint64_t Phases::key_of(const std::vector<Begun>& flows, const Sharing& sharing) const {
    std::map<std::uint32_t, std::uint64_t> numbers;  // bundles in the order in which they are met
    std::uint64_t key = mix64(flows.size());
    const auto add = [&](std::uint64_t value) { key = mix64(key ^ value) + value; };
    for (const Begun& flow : flows) {
        add(std::bit_cast<std::uint64_t>(flow.rate_limit));
        for (const std::vector<std::uint32_t>* way : {&flow.ways->there, &flow.ways->back}) {
            add(way->size());
            for (const std::uint32_t bundle : *way) {
                add(numbers.try_emplace(bundle, numbers.size()).first->second);
                add(ports_[bundle].rates);
                add(sharing.width(bundle));
            }
        }
    }
    return key | 1;
}

void Phases::keep(std::uint64_t key, Known known) {
    const auto [found, fresh] = known_.try_emplace(key, std::move(known));
    if (!fresh && known.after < found->second.after) {
        found->second = std::move(known);
    }
}

}  // namespace orrery::network::packet
