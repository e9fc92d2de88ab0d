#include "sim/base/error.hpp"
#include "sim/network/topology/topology.hpp"

namespace orrery::network {

void Route::add_further(std::uint32_t resource, double share) {
    if (count_ == few_.size()) {
        many_.assign(few_.begin(), few_.end());
    }
    if (count_ < few_.size()) {
        few_[count_] = ResourceId(resource);
    } else {
        many_.emplace_back(resource);
    }
    ++count_;
    ORRERY_ASSERT(count_ <= few_.size() || many_.size() == count_);
    if (share != 1 || !shares_.empty()) {
        shares_.resize(count_ - 1, 1.0);
        shares_.push_back(share);
    }
}

}  // namespace orrery::network
