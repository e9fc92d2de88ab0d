#pragma once
// Where the requests are whose clients may give up.

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>

namespace orrery::serving {

class RequestPlaces {
  public:
    /// `wanted`: otherwise nobody asks, and nothing is kept.
    explicit RequestPlaces(bool wanted) : wanted_(wanted) {}
    /// A request is a sequence of a replica now.
    void follow(std::uint64_t request, std::uint32_t replica, std::uint32_t sequence) {
        if (wanted_) {
            places_[request] = {replica, sequence};
        }
    }
    [[nodiscard]] bool contains(std::uint64_t request) const { return places_.contains(request); }
    /// Replica and sequence of a request, which is not followed any longer; nothing: it was not.
    std::optional<std::pair<std::uint32_t, std::uint32_t>> end(std::uint64_t request) {
        const auto found = places_.find(request);
        if (found == places_.end()) {
            return std::nullopt;
        }
        const auto place = found->second;
        places_.erase(found);
        return place;
    }

  private:
    bool wanted_;
    std::unordered_map<std::uint64_t, std::pair<std::uint32_t, std::uint32_t>> places_;  ///< only looked up
};

}  // namespace orrery::serving
