#include "tools/program/commands.hpp"

#include <orrery_commit.hpp>

namespace orrery::program {

std::string program_version() {
    return ORRERY_VERSION " (" ORRERY_COMMIT ")";
}

}  // namespace orrery::program
