#pragma once
// Many short lists in one vector, for models that keep a list per entity: no allocation for each list, and none at all once
// the lists have reached their usual lengths.
//
// A list lies in one block of a power of two entries and moves to a block of twice the size when that is full; the block
// that it leaves serves other lists. Lists keep their blocks when they become empty.

#include "sim/base/kept_tables.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace orrery::engine {

template <class Entry>
class ListPool {
    static_assert(std::is_trivially_copyable_v<Entry>);

  public:
    /// A handle: copying it does not copy the list.
    struct List {
        std::uint32_t first = 0;
        std::uint32_t size = 0;
        std::uint32_t room = 0;  ///< entries of its block: zero or a power of two
        [[nodiscard]] bool empty() const { return size == 0; }
    };

    /// Valid until the next `push` to any list of this pool.
    [[nodiscard]] std::span<Entry> of(const List& list) { return {entries_.data() + list.first, list.size}; }
    [[nodiscard]] std::span<const Entry> of(const List& list) const {
        return {entries_.data() + list.first, list.size};
    }
    [[nodiscard]] Entry& at(const List& list, std::uint32_t position) { return entries_[list.first + position]; }
    [[nodiscard]] const Entry& at(const List& list, std::uint32_t position) const {
        return entries_[list.first + position];
    }

    void push(List& list, Entry entry) {
        if (list.size == list.room) {
            grow(list);
        }
        entries_[list.first + list.size++] = entry;
    }
    /// Precondition: not empty.
    static void pop(List& list) { --list.size; }

  private:
    void grow(List& list) {
        const std::uint32_t room = list.room == 0 ? 1 : 2 * list.room;
        std::vector<std::uint32_t>& free = free_[static_cast<std::size_t>(std::countr_zero(room))];
        std::uint32_t first = static_cast<std::uint32_t>(entries_.size());
        if (free.empty()) {
            entries_.resize(entries_.size() + room);
        } else {
            first = free.back();
            free.pop_back();
        }
        std::copy_n(entries_.begin() + list.first, list.size, entries_.begin() + first);
        if (list.room > 0) {
            free_[static_cast<std::size_t>(std::countr_zero(list.room))].push_back(list.first);
        }
        list.first = first;
        list.room = room;
    }

    KeptVector<Entry> entries_;
    std::vector<std::uint32_t> free_[32];  ///< blocks, by the logarithm of their size
};

}  // namespace orrery::engine
