#pragma once
// Values in numbered slots: a slot that was given back is taken again before there are more.

#include "sim/base/namespaces.hpp"

#include <cstdint>
#include <utility>
#include <vector>

namespace orrery::network {

template <class T>
class Slots {
  public:
    [[nodiscard]] std::uint32_t take(T value) {
        if (free_.empty()) {
            values_.push_back(std::move(value));
            return size() - 1;
        }
        const std::uint32_t slot = free_.back();
        free_.pop_back();
        values_[slot] = std::move(value);
        return slot;
    }
    /// What it holds stays until the slot is taken again.
    void give(std::uint32_t slot) { free_.push_back(slot); }

    [[nodiscard]] T& operator[](std::uint32_t slot) { return values_[slot]; }
    [[nodiscard]] const T& operator[](std::uint32_t slot) const { return values_[slot]; }
    /// Slots taken so far, those given back among them.
    [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(values_.size()); }
    /// Those that were not given back.
    [[nodiscard]] std::size_t taken() const { return values_.size() - free_.size(); }
    [[nodiscard]] auto begin() { return values_.begin(); }
    [[nodiscard]] auto end() { return values_.end(); }
    [[nodiscard]] auto begin() const { return values_.begin(); }
    [[nodiscard]] auto end() const { return values_.end(); }
    [[nodiscard]] std::size_t memory() const { return values_.capacity() * sizeof(T); }

  private:
    std::vector<T> values_;
    std::vector<std::uint32_t> free_;
};

}  // namespace orrery::network
