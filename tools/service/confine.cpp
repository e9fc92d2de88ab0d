#include "tools/service/confine.hpp"

#include "sim/base/error.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace orrery::service {

namespace {

constexpr std::uint64_t kReadFile = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_EXECUTE;
constexpr std::uint64_t kRead = kReadFile | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr std::uint64_t kWrite = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG |
                                 LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR |
                                 LANDLOCK_ACCESS_FS_REMOVE_DIR;
// What the first version of the interface knows, all of which is refused where no rule allows it.
constexpr std::uint64_t kAll = kRead | kWrite | LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_SOCK |
                               LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK |
                               LANDLOCK_ACCESS_FS_MAKE_SYM;

void allow(int rules, const std::string& path, std::uint64_t access) {
    const int file = open(path.c_str(), O_PATH | O_CLOEXEC);
    if (file < 0) {
        return;  // what is not there cannot be read
    }
    struct stat status {};
    if (fstat(file, &status) == 0 && !S_ISDIR(status.st_mode)) {
        access &= kReadFile | LANDLOCK_ACCESS_FS_WRITE_FILE;
    }
    landlock_path_beneath_attr rule{};
    rule.allowed_access = access;
    rule.parent_fd = file;
    const long added = syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0U);
    const int problem = errno;
    close(file);
    if (added != 0) {
        throw ConfigError(fmt::format("'{}' cannot be opened to runs: {}", path, std::strerror(problem)));
    }
}

}  // namespace

bool can_confine() {
    return syscall(SYS_landlock_create_ruleset, nullptr, 0U, LANDLOCK_CREATE_RULESET_VERSION) > 0;
}

Confinement::Confinement(const std::vector<std::string>& readable, const std::vector<std::string>& writable) {
    landlock_ruleset_attr attributes{};
    attributes.handled_access_fs = kAll;
    rules_ = static_cast<int>(syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0U));
    if (rules_ < 0) {
        throw ConfigError(fmt::format("runs cannot be confined to their files: {}", std::strerror(errno)));
    }
    for (const std::string& path : readable) {
        allow(rules_, path, kRead);
    }
    for (const std::string& path : writable) {
        allow(rules_, path, kRead | kWrite);
    }
}

Confinement::~Confinement() {
    if (rules_ >= 0) {
        close(rules_);
    }
}

bool Confinement::enter() const {
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(SYS_landlock_restrict_self, rules_, 0U) == 0;
}

}  // namespace orrery::service
