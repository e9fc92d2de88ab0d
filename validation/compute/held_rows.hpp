#pragma once
// Products that were held until the power limit acted, against bursts that a power governor slows down.

#include "sim/config/fields.hpp"
#include "tools/terminal/terminal.hpp"

#include <string>

namespace orrery::validation {

/// Prints, for each public profile of held products in `directory`, the error of the model with its governor and without.
void list_held(const DataDirectory& data, const Terminal& terminal, const std::string& directory);

}  // namespace orrery::validation
