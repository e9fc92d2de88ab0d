#pragma once
// What Megatron-LM's flags mean here beside those that set a key: no effect on time and memory, or one that is not modelled.
// Source: megatron/training/arguments.py of core_r0.5 to core_r0.15.

#include "workloads/imports/command_text.hpp"

namespace orrery::imports {

[[nodiscard]] const std::vector<FlagGroup>& megatron_flag_groups();
/// A training scenario of Megatron-Core's arguments, with the options gpus and node (megatron_args.cpp). `title`: its first comment.
[[nodiscard]] Imported megatron_scenario(CommandText& flags, const ImportInput& input, const std::string& title);

}  // namespace orrery::imports
