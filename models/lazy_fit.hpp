#pragma once
// A fitted kernel whose numbers are read at their first use: a device has fits of many kernels, and a run asks for few.
//
// Claims: `get` is the same object for every caller and thread. A malformed file says what is wrong when it is first asked for.

#include "models/kernel_fit.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

namespace orrery::models {

class LazyFit {
  public:
    /// Reads which kernel the file is of. Throws ConfigError when it does not say.
    explicit LazyFit(std::string path);

    [[nodiscard]] KernelKind kind() const { return kind_; }
    [[nodiscard]] KernelFormat format() const { return format_; }
    /// Throws ConfigError with every problem of the file.
    [[nodiscard]] const KernelFit& get() const {
        const KernelFit* fit = ready_.load(std::memory_order_acquire);
        return fit != nullptr ? *fit : load();
    }

  private:
    [[nodiscard]] const KernelFit& load() const;

    std::string path_;
    KernelKind kind_{};
    KernelFormat format_{};
    mutable std::mutex lock_;
    mutable std::unique_ptr<const KernelFit> fit_;
    mutable std::atomic<const KernelFit*> ready_ = nullptr;
};

}  // namespace orrery::models
