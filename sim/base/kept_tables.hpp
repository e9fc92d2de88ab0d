#pragma once
// Memory for tables that grow and are made anew in each run: small ones lie beside each other and serve the next run, since fresh pages
// cost more than what is done with them there.
//
// Claims: a table of less than half a huge page lies as those of huge_pages.hpp do. Larger ones lie where all else does, as half of a
// table that has just grown is not used yet, and a huge page would be there as a whole.
// Validated by tests/sim/engine/fluid_test.cpp, whose tables these are.

#include "sim/base/huge_pages.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace orrery::base {

/// Bytes of a table that has huge pages of its own.
inline constexpr std::size_t kLargeTable = std::size_t{1} << 20;

/// Allocator of such tables.
template <class T>
struct KeptTables {
    using value_type = T;
    KeptTables() = default;
    template <class U>
    KeptTables(const KeptTables<U>&) {}
    [[nodiscard]] T* allocate(std::size_t count) {
        return count * sizeof(T) < kLargeTable ? HugePages<T>().allocate(count) : std::allocator<T>().allocate(count);
    }
    void deallocate(T* table, std::size_t count) {
        if (count * sizeof(T) < kLargeTable) {
            HugePages<T>().deallocate(table, count);
        } else {
            std::allocator<T>().deallocate(table, count);
        }
    }
    friend bool operator==(const KeptTables&, const KeptTables&) { return true; }
};

template <class T>
using KeptVector = std::vector<T, KeptTables<T>>;

}  // namespace orrery::base
