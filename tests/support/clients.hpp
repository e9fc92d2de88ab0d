#pragma once
// Programs in Python that talk to a server of this project as its clients do.

#include "tests/support/command.hpp"

namespace orrery::test {

/// Runs a part of tests/tools/SCRIPT. Skips it where Python is missing, where `beside`, the server's program, was not built, and where
/// the script says so.
inline void run_clients(const char* script, const char* part, const char* beside) {
    constexpr int kSkipped = 77;
    if (shell_command("python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))'").code != 0) {
        MESSAGE("skipped: no python3 here");
        return;
    }
    if (!std::filesystem::exists(std::filesystem::absolute(orrery_program()).parent_path() / beside)) {
        MESSAGE("skipped: ", beside, " was not built (libcpp-httplib-dev)");
        return;
    }
    const Outcome outcome =
        shell_command(fmt::format("PYTHONDONTWRITEBYTECODE=1 timeout 150 python3 {}/tests/tools/{} {} {}",
                                  ORRERY_SOURCE_DIR, script, orrery_program(), part));
    if (outcome.code == kSkipped) {
        MESSAGE("skipped: ", outcome.text);
        return;
    }
    INFO(outcome.text);
    CHECK(outcome.code == 0);
}

}  // namespace orrery::test
