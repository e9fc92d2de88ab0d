#pragma once
// Words of other tools for keys of a scenario, so that who knows those tools is led to ours.

#include "sim/base/namespaces.hpp"

#include <string_view>
#include <vector>

namespace orrery::config {

/// The keys (as paths such as "plan.tensor") that a word of common usage, a flag of vLLM or Megatron-LM, or a key of a
/// Hugging Face config.json means, most likely first; none where the word is unknown. Case, leading dashes, and dashes for
/// underscores do not matter.
[[nodiscard]] std::vector<const char*> keys_meant(std::string_view word);

struct Synonym {
    const char* word;  ///< in lower case with underscores
    std::vector<const char*> keys;
};
[[nodiscard]] const std::vector<Synonym>& synonym_table();

}  // namespace orrery::config
