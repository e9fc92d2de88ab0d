#include "models/lazy_fit.hpp"

#include "sim/base/input_file.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::models {

namespace {

// The place among `names` of what stands behind `key` at the beginning of one of the first lines; the number of names: none.
std::size_t choice_of(std::string_view text, std::string_view key, const std::vector<std::string>& names) {
    constexpr std::size_t kHead = 1000;  // both keys stand in the first lines
    text = text.substr(0, kHead);
    const std::size_t at = text.find(key);
    if (at == std::string_view::npos) {
        return names.size();
    }
    std::string_view value = text.substr(at + key.size());
    value = value.substr(0, value.find('\n'));
    return static_cast<std::size_t>(std::find(names.begin(), names.end(), value) - names.begin());
}

}  // namespace

LazyFit::LazyFit(std::string path) : path_(std::move(path)) {
    const std::string text = read_input(path_);
    const std::size_t kind = choice_of(text, "\nkernel: ", kernel_kind_names());
    const std::size_t format = choice_of(text, "\nformat: ", kernel_format_names());
    if (kind < kernel_kind_names().size() && format < kernel_format_names().size()) {
        kind_ = static_cast<KernelKind>(kind);
        format_ = static_cast<KernelFormat>(format);
        return;
    }
    const KernelFit& all = load();
    kind_ = all.kind;
    format_ = all.format;
}

const KernelFit& LazyFit::load() const {
    const std::lock_guard<std::mutex> guard(lock_);
    if (fit_ == nullptr) {
        fit_ = std::make_unique<const KernelFit>(load_fit(path_));
        ready_.store(fit_.get(), std::memory_order_release);
    }
    return *fit_;
}

}  // namespace orrery::models
