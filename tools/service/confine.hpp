#pragma once
// What a child process may read and write, enforced by the kernel (Landlock, Linux 5.13 and later).
//
// A scenario names files: traces, topologies, presets. One that came over the network may name any. The kernel refuses what lies
// outside the given folders, whatever path, link or library leads there. Source: kernel.org, "Landlock: unprivileged access control".

#include <string>
#include <vector>

namespace orrery::service {

/// Whether this kernel can confine processes.
[[nodiscard]] bool can_confine();

/// A set of rules, opened by the parent so that a child between fork and exec makes two system calls and no allocation.
class Confinement {
  public:
    /// `readable`: folders or files whose contents may be read and run; those that do not exist are left out. `writable`: folders
    /// in which files may also be made. Throws ConfigError where the kernel refuses the rules.
    Confinement(const std::vector<std::string>& readable, const std::vector<std::string>& writable);
    ~Confinement();
    Confinement(const Confinement&) = delete;
    Confinement& operator=(const Confinement&) = delete;

    /// Confines the calling process for good. Safe between fork and exec. False where the kernel refuses.
    [[nodiscard]] bool enter() const;

  private:
    int rules_ = -1;
};

}  // namespace orrery::service
