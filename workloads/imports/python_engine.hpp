#pragma once
// Engines that a Python script makes, as command lines: LLM(model="...", tensor_parallel_size=2).

#include "workloads/imports/shell_script.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace orrery::imports {

/// The first call of one of these names in a Python text, as a command that starts with `program`: keyword arguments are flags, a first
/// positional one is the value of --model. None where there is no such call. Names that the script gives a text, a number or a truth
/// value are filled in; what else is no literal stays as a value that is not set. Throws ConfigError for a call that does not end.
[[nodiscard]] std::optional<CommandCall> read_python_engine(const std::string& text, const std::string& file,
                                                            const std::vector<const char*>& names,
                                                            const std::string& program);

/// The whole number that a keyword or the key of a map has in a Python text, as in max_tokens=64 and "max_tokens": 64: the largest of
/// several; 0: none.
[[nodiscard]] std::int64_t python_number(const std::string& text, const std::string& name);
/// How often a list is repeated, as in ["Hello"] * 256: the largest of several; 0: none is.
[[nodiscard]] std::int64_t python_repetition(const std::string& text);

}  // namespace orrery::imports
