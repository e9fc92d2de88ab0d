#pragma once
// One rank of a Chakra trace, for readers that have its bytes and not its file.

#include "workloads/replay/importers/program.hpp"

namespace orrery::replay {

struct ChakraOptions {
    bool allow_missing = false;  ///< nodes may wait for nodes that are not there
    double assume_bytes = 0;     ///< of a collective whose size is not there; 0: it can be replayed as recorded alone
};

/// Adds the trace of `rank` to `trace`. `groups` maps names of process groups to their ranks. Throws ConfigError with the byte of
/// what is wrong.
void import_chakra_rank(const std::string& bytes, const std::string& name, std::uint32_t rank,
                        std::map<std::string, std::vector<std::uint32_t>> groups, const ChakraOptions& options,
                        ReplayTrace& trace, ImportNotes& notes);

}  // namespace orrery::replay
