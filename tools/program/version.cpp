#include "tools/program/commands.hpp"

#include <orrery_commit.hpp>

namespace orrery::inline program {

std::string program_version() {
    return ORRERY_VERSION " (" ORRERY_COMMIT ")";
}

}  // namespace orrery::inline program
