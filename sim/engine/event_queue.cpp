#include "sim/engine/event_queue.hpp"

#include <algorithm>
#include <bit>

namespace orrery::engine {

EventQueue::EventQueue() {
    instant_.reserve(64);
}

void EventQueue::file(const Event& event) {
    const int bucket = 63 - std::countl_zero(static_cast<std::uint64_t>(event.time_ps ^ last_));
    buckets_[static_cast<std::size_t>(bucket)].push_back(event);
    occupied_ |= std::uint64_t{1} << bucket;
}

void EventQueue::refill() {
    // The lowest occupied bucket holds the earliest events; moving its minimum to last_ sends the others strictly
    // lower, so each event moves at most 63 times.
    const auto first = static_cast<std::size_t>(std::countr_zero(occupied_));
    std::vector<Event>& bucket = buckets_[first];
    occupied_ &= occupied_ - 1;
    if (bucket.size() == 1) {
        last_ = bucket[0].time_ps;
        instant_.push_back(bucket[0]);
        bucket.clear();
        return;
    }
    scratch_.swap(bucket);
    std::int64_t earliest = scratch_[0].time_ps;
    for (const Event& event : scratch_) {
        earliest = std::min(earliest, event.time_ps);
    }
    last_ = earliest;
    for (const Event& event : scratch_) {
        if (event.time_ps == earliest) {
            instant_.push_back(event);
        } else {
            const int lower = 63 - std::countl_zero(static_cast<std::uint64_t>(event.time_ps ^ last_));
            buckets_[static_cast<std::size_t>(lower)].push_back(event);
            occupied_ |= std::uint64_t{1} << lower;
        }
    }
    scratch_.clear();
    if (instant_.size() > 1) {
        std::make_heap(instant_.begin(), instant_.end(), Later{});
    }
}

std::int64_t EventQueue::next_time() {
    ORRERY_ASSERT(size_ > 0);
    if (instant_.empty()) {
        refill();
    }
    return last_;
}

std::int64_t EventQueue::earliest() const {
    ORRERY_ASSERT(size_ > 0);
    if (!instant_.empty()) {
        return last_;
    }
    const std::vector<Event>& bucket = buckets_[static_cast<std::size_t>(std::countr_zero(occupied_))];
    const auto first = std::min_element(bucket.begin(), bucket.end(),
                                        [](const Event& a, const Event& b) { return a.time_ps < b.time_ps; });
    return first->time_ps;
}

}  // namespace orrery::engine
