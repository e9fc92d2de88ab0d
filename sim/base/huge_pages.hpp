#pragma once
// Memory for large tables that are looked up in no order: in huge pages where the system has them, so that few addresses need a walk
// through the page tables.
//
// Claims: a table of half a huge page or more has pages of its own, smaller ones share some. Their memory serves the next tables:
// fresh pages cost more than what is done with them in a short run. Of the former, all but some MiB go back to the system.
// Limits: tables of less than 16 KiB lie where all else does. Only Linux is asked for huge pages, and may refuse.
// Source: madvise(2), MADV_HUGEPAGE.
// Validated by tests/sim/base/base_test.cpp.

#include "sim/base/namespaces.hpp"

#include <cstddef>
#include <vector>

namespace orrery::base {

/// Memory aligned to cache lines; `bytes` as when it was taken.
[[nodiscard]] void* take_table(std::size_t bytes);
void give_table(void* table, std::size_t bytes);

/// Allocator of such tables.
template <class T>
struct HugePages {
    using value_type = T;
    HugePages() = default;
    template <class U>
    HugePages(const HugePages<U>&) {}
    [[nodiscard]] T* allocate(std::size_t count) { return static_cast<T*>(take_table(count * sizeof(T))); }
    void deallocate(T* table, std::size_t count) { give_table(table, count * sizeof(T)); }
    friend bool operator==(const HugePages&, const HugePages&) { return true; }
};

template <class T>
using HugeVector = std::vector<T, HugePages<T>>;

}  // namespace orrery::base
