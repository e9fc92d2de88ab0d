#include "sim/base/huge_pages.hpp"

#include "sim/base/error.hpp"
#include "sim/base/kept_tables.hpp"

#include <array>
#include <bit>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <new>
#include <utility>
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace orrery::base {

namespace {

constexpr std::size_t kPage = std::size_t{2} << 20;
constexpr std::size_t kOwn = kLargeTable;  // bytes of a table that has pages of its own
static_assert(kOwn == kPage / 2);
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kShared =
    std::numeric_limits<std::size_t>::max();  // so that the sanitizer knows where tables end
#else
constexpr std::size_t kShared = std::size_t{16} << 10;  // bytes of one that shares them
#endif
constexpr std::size_t kKept = std::size_t{16} << 20;  // bytes of whole pages that may wait for the next tables
constexpr std::align_val_t kLine{64};

void* whole_pages(std::size_t bytes) {
    void* const out = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
    if (out == nullptr) {
        throw std::bad_alloc();
    }
    return out;
}

// Huge pages for as many of them as are used by half at least: the rest of a table is not worth a whole one.
void* in_huge_pages(void* table, std::size_t bytes) {
#if defined(__linux__)
    (void)madvise(table, (bytes + kPage / 2) / kPage * kPage, MADV_HUGEPAGE);  // a wish: nothing depends on it
#endif
    return table;
}

// Blocks of powers of two bytes: small ones within pages that many tables share, large ones of whole pages.
class Blocks {
  public:
    void* take(std::size_t bytes) {
        const std::scoped_lock lock(mutex_);
        if (Free*& first = of(bytes); first != nullptr) {
            ORRERY_ASSERT(bytes < kOwn || kept_ >= bytes);
            kept_ -= bytes < kOwn ? 0 : bytes;
            return std::exchange(first, first->next);
        }
        if (bytes >= kOwn) {
            return whole_pages(bytes);
        }
        if (left_ < bytes) {
            page_ = static_cast<std::byte*>(in_huge_pages(whole_pages(kPage), kPage));
            left_ = kPage;
        }
        left_ -= bytes;
        return page_ + left_;
    }
    void give(void* table, std::size_t bytes) {
        const std::scoped_lock lock(mutex_);
        if (bytes >= kOwn) {
            if (kept_ + bytes > kKept) {
                std::free(table);
                return;
            }
            kept_ += bytes;
        }
        Free*& first = of(bytes);
        first = new (table) Free{first};
    }

  private:
    struct Free {
        Free* next;
    };
    Free*& of(std::size_t bytes) { return free_[static_cast<std::size_t>(std::countr_zero(bytes))]; }

    std::mutex mutex_;
    std::array<Free*, std::numeric_limits<std::size_t>::digits> free_{};
    std::byte* page_ = nullptr;
    std::size_t left_ = 0;
    std::size_t kept_ = 0;  // bytes of whole pages that no table has
};

// Lives for ever: tables with static storage may come back after everything else.
Blocks& blocks() {
    static Blocks* const all = new Blocks();
    return *all;
}

}  // namespace

void* take_table(std::size_t bytes) {
    if (bytes < kShared) {
        return operator new(bytes, kLine);
    }
    if (bytes < kOwn) {
        return blocks().take(std::bit_ceil(bytes));
    }
    return in_huge_pages(bytes <= kKept ? blocks().take(std::bit_ceil(bytes)) : whole_pages(bytes), bytes);
}

void give_table(void* table, std::size_t bytes) {
    if (bytes < kShared) {
        operator delete(table, kLine);
    } else if (bytes <= kKept) {
        blocks().give(table, std::bit_ceil(bytes));
    } else {
        std::free(table);
    }
}

}  // namespace orrery::base
