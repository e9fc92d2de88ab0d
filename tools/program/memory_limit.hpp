#pragma once
// How much memory the program may take: what goes beyond ends it with exit code 3 instead of filling the machine.
//
// The limit is that of the kernel on a process's own memory (RLIMIT_DATA, Linux 4.7 and later). Programs built with the address
// sanitizer have none: its shadow memory counts as their own.

#include "sim/base/namespaces.hpp"

#include <string>

namespace orrery::program {

/// B that are free for this process now: of the machine (MemAvailable) and of its control group. 0 where that is not known.
[[nodiscard]] double free_memory();

/// Sets the limit of --memory-limit: a size such as "8 GiB", or "none"; empty: 90 % of what is free. Returns it in B, 0 for
/// none. Throws ConfigError for what is no size.
double set_memory_limit(const std::string& text);

/// The limit in force in B; 0 for none.
[[nodiscard]] double memory_limit();

/// What to say when memory has run out.
[[nodiscard]] std::string out_of_memory_text();

}  // namespace orrery::program
