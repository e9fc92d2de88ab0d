#pragma once
// Binary heaps, least entry first, whose entries may move up and down, and whose owner may follow where each of them is.

#include "sim/base/namespaces.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace orrery::engine {

/// Moves the entry at `position` up or down to where it belongs; `place(entry, position)` is told of each move.
template <class Entry, class Place>
void sift(std::span<Entry> heap, std::size_t position, const Place& place) {
    const Entry entry = heap[position];
    const auto put = [&](std::size_t at, const Entry& one) {
        heap[at] = one;
        place(one, static_cast<std::uint32_t>(at));
    };
    while (position > 0 && entry < heap[(position - 1) / 2]) {
        put(position, heap[(position - 1) / 2]);
        position = (position - 1) / 2;
    }
    for (;;) {
        std::size_t child = 2 * position + 1;
        if (child >= heap.size()) {
            break;
        }
        if (child + 1 < heap.size() && heap[child + 1] < heap[child]) {
            ++child;
        }
        if (!(heap[child] < entry)) {
            break;
        }
        put(position, heap[child]);
        position = child;
    }
    put(position, entry);
}

/// Takes out the entry at `position`, whose own place the caller forgets, and leaves the last place free.
template <class Entry, class Place>
void take_out(std::span<Entry> heap, std::size_t position, const Place& place) {
    const std::span<Entry> rest = heap.first(heap.size() - 1);
    if (position < rest.size()) {
        rest[position] = heap.back();
        sift(rest, position, place);
    }
}

}  // namespace orrery::engine
