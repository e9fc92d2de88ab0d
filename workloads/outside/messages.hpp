#pragma once
// What is said to processes that decide. README.md has the messages.

#include "include/orrery/policy.hpp"
#include "sim/base/namespaces.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <utility>

namespace orrery::outside {

using Text = fmt::memory_buffer;

template <class... Values>
void add(Text& text, fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(text), format, std::forward<Values>(values)...);
}

/// The first line to a policy that is told no more of what it decides for.
[[nodiscard]] std::string opening(const char* kind, std::uint32_t number, const std::string& parameters);
/// A request and the replicas that could take it, after the words that ask, to the end of the line.
void add_request(Text& text, const policy::Replicas& replicas, const policy::Request& request);

}  // namespace orrery::outside
