#pragma once
// Keys of a Hugging Face config.json that no dimension follows from: no effect on time and memory, or one that is not modelled.
// Source: PretrainedConfig of transformers and the configurations of the models in workloads/data/models.

#include "workloads/imports/command_text.hpp"

#include <vector>

namespace orrery::imports {

[[nodiscard]] const std::vector<FlagGroup>& hf_key_groups();

}  // namespace orrery::imports
