#pragma once
// The model that arguments of Megatron-LM describe.

#include "workloads/imports/command_text.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace orrery::imports {

/// The keys of `model:`. Throws ConfigError where a size is missing or a list of layers cannot be described, at the flag.
[[nodiscard]] YamlLines megatron_model(CommandText& flags, std::int64_t tensor, ImportNotes& notes);

}  // namespace orrery::imports
