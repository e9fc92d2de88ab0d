#pragma once
// Strong identifiers: indices that cannot be mistaken for one another.

#include "sim/base/namespaces.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>

namespace orrery::base {

/// A 32-bit index into one kind of table.
template <class Tag>
class Id {
  public:
    constexpr Id() = default;
    explicit constexpr Id(std::uint32_t value) : value_(value) {}
    explicit constexpr Id(std::size_t value) : value_(static_cast<std::uint32_t>(value)) {}
    explicit constexpr Id(int value) : value_(static_cast<std::uint32_t>(value)) {}
    [[nodiscard]] constexpr std::uint32_t value() const { return value_; }
    [[nodiscard]] constexpr bool valid() const { return value_ != kNone; }
    friend constexpr auto operator<=>(Id, Id) = default;

  private:
    static constexpr std::uint32_t kNone = 0xFFFFFFFFU;
    std::uint32_t value_ = kNone;
};

using ResourceId = Id<struct ResourceTag>;  ///< something with a capacity: a link, a copy engine, an HBM stack
using GpuId = Id<struct GpuTag>;            ///< a device of the cluster, numbered node by node
using TaskId = Id<struct TaskTag>;          ///< a node of a task graph
using StreamId = Id<struct StreamTag>;      ///< an in-order queue of a device

}  // namespace orrery::base
