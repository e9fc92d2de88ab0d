#pragma once
// One rank of a Chakra trace, for readers that have its bytes and not its file.

#include "workloads/replay/importers/importer.hpp"

namespace orrery {

/// Adds the trace of `rank` to `trace`. `groups` maps names of process groups to their ranks; nodes may wait for nodes that
/// are not there only with `allow_missing`. Throws ConfigError with the byte of what is wrong.
void import_chakra_rank(const std::string& bytes, const std::string& name, std::uint32_t rank,
                        std::map<std::string, std::vector<std::uint32_t>> groups, bool allow_missing,
                        ReplayTrace& trace, ImportNotes& notes);

}  // namespace orrery
