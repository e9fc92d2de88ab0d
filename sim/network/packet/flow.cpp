#include "sim/network/packet/flow.hpp"

#include "sim/base/error.hpp"

#include <algorithm>
#include <bit>
#include <functional>

namespace orrery::network::packet {

namespace {
constexpr std::uint32_t kMostFlows = 1U << 24;  // 8 GiB of records
}

std::uint32_t Flows::take() {
    if (free_.empty()) {
        if (flows_.size() >= kMostFlows) {
            throw InfeasibleError("more than 2^24 flows at once: too many for fidelity packet");
        }
        flows_.emplace_back();
        return static_cast<std::uint32_t>(flows_.size() - 1);
    }
    std::pop_heap(free_.begin(), free_.end(), std::greater<>());
    const std::uint32_t id = free_.back();
    free_.pop_back();
    ORRERY_ASSERT(!flows_[id].live);
    flows_[id] = Flow();
    return id;
}

void Flows::give_bitmaps(Flow& flow, std::uint32_t capacity) {
    take_back_bitmaps(flow);
    ORRERY_ASSERT(std::has_single_bit(capacity) && capacity >= 64);
    flow.capacity = flow.ahead = capacity;
    const auto size = static_cast<std::size_t>(std::countr_zero(flow.capacity));
    if (free_bitmaps_.size() <= size) {
        free_bitmaps_.resize(size + 1);
    }
    const std::uint32_t words = 3 * capacity / 64;
    if (free_bitmaps_[size].empty()) {
        flow.bitmap = static_cast<std::uint32_t>(bitmaps_.size());
        bitmaps_.resize(bitmaps_.size() + words);
    } else {
        flow.bitmap = free_bitmaps_[size].back();
        free_bitmaps_[size].pop_back();
    }
    std::fill_n(bitmaps_.begin() + flow.bitmap, words, 0);
}

void Flows::take_back_bitmaps(const Flow& flow) {
    if (flow.capacity > 0) {
        free_bitmaps_[static_cast<std::size_t>(std::countr_zero(flow.capacity))].push_back(flow.bitmap);
    }
}

void Flows::release(std::uint32_t id) {
    if (log) {
        log->end(id);
    }
    take_back_bitmaps(flows_[id]);
    ORRERY_ASSERT(!flows_[id].live);
    free_.push_back(id);
    std::push_heap(free_.begin(), free_.end(), std::greater<>());
}

void Flows::retire(std::uint32_t id) {
    flows_[id].live = false;
    if (!whole_) {
        retired_.push_back(id);
    }
    free_if_done(id);
}

void Flows::drop(std::uint32_t packet) {
    const PacketKind kind = slab_[packet].kind;
    const bool data = kind == PacketKind::data || kind == PacketKind::trimmed;
    counts.destroyed += data ? 1 : 0;
    if (log && data) {
        ++log->of(slab_[packet].flow).drops;
    }
    discard(packet);
}

void Flows::shift(std::uint32_t id, const Shift& by) {
    Flow& flow = flows_[id];
    for (std::int64_t* const time :
         {&flow.next_time, &flow.deadline, &flow.last_news, &flow.last_notification, &flow.path.last_sent}) {
        by.move(*time);
    }
    for (std::uint32_t* const number :
         {&flow.next_new, &flow.acked, &flow.highest, &flow.sent_high, &flow.scanned, &flow.overtaken, &flow.expected,
          &flow.received, &flow.untold_low, &flow.untold_high, &flow.path.sprayed}) {
        by.move(*number);
    }
    ORRERY_ASSERT(flow.next_new <= flow.packets && flow.received <= flow.packets);
    if (setup_.transport.credits) {
        for (std::uint64_t* const credit : {&flow.credited, &flow.asked, &flow.wanted, &flow.given}) {
            *credit += std::uint64_t{by.packets} * setup_.full;
        }
    }
    if (flow.congestion.timer != kNoTimer) {
        by.move(flow.congestion.timer);
    }
    for (const Bits kind : {Bits::acknowledged, Bits::lost, Bits::received}) {
        if (flow.capacity > 0) {
            turn(flow, kind, by.packets);
        }
    }
    if (log) {
        FlowCounts& own = log->of(id);
        own.sent += by.packets;
        own.arrived += by.packets;
        own.bytes += std::uint64_t{by.packets} * setup_.full;
    }
    counts.sent += by.packets;
    counts.arrived += by.packets;
    counts.delivered += by.packets;
    counts.payload += static_cast<double>(by.packets) * setup_.mtu;
}

// The bits of a bitmap mean packets so much later.
void Flows::turn(const Flow& flow, Bits kind, std::uint32_t packets) {
    const std::uint32_t words = flow.capacity / 64;
    const std::uint32_t first = (packets & (flow.capacity - 1)) / 64;
    const unsigned bits = packets & 63;
    std::vector<std::uint64_t> turned(words, 0);
    for (std::uint32_t i = 0; i < words; ++i) {
        const std::uint64_t old = word(flow, kind, i * 64);
        turned[(i + first) % words] |= old << bits;
        turned[(i + first + 1) % words] |= bits == 0 ? 0 : old >> (64 - bits);
    }
    for (std::uint32_t i = 0; i < words; ++i) {
        word(flow, kind, i * 64) = turned[i];
    }
}

std::uint32_t Flows::first_lost(const Flow& flow) const {
    // Bits of [acked, acked + capacity) in order of sequence.
    const std::uint32_t words = flow.capacity / 64;
    const std::uint64_t* bits = &bitmaps_[flow.bitmap + static_cast<std::uint32_t>(Bits::lost)];
    const std::uint32_t start = flow.acked & (flow.capacity - 1);
    for (std::uint32_t i = 0; i <= words; ++i) {
        const std::uint32_t at = (start / 64 + i) % words;
        std::uint64_t value = bits[std::size_t{3} * at];
        if (i == 0) {
            value &= ~0ULL << (start & 63);
        } else if (i == words) {
            value &= (1ULL << (start & 63)) - 1;
        }
        if (value != 0) {
            const std::uint32_t position = at * 64 + static_cast<std::uint32_t>(std::countr_zero(value));
            return flow.acked + ((position - start) & (flow.capacity - 1));
        }
    }
    ORRERY_ASSERT(false);
    return 0;
}

}  // namespace orrery::network::packet
