#pragma once
// Time of a campaign: integer nanoseconds with checked arithmetic, which last 292 years.
//
// A month of training does not fit SimTime's picoseconds with room to spare. Iterations are simulated in picoseconds and enter a
// campaign as a duration rounded here, at most 1 ns off.

#include "sim/base/time.hpp"

namespace orrery::faults {

class CampaignTime {
  public:
    constexpr CampaignTime() = default;
    [[nodiscard]] static constexpr CampaignTime from_ns(std::int64_t ns) { return CampaignTime(ns); }
    [[nodiscard]] static constexpr CampaignTime never() {
        return CampaignTime(std::numeric_limits<std::int64_t>::max());
    }
    /// Rounds to the nearest nanosecond; never() from some 290 years on. Precondition: not NaN.
    [[nodiscard]] static constexpr CampaignTime from_seconds(double seconds) {
        const double ns = seconds * 1e9;
        ORRERY_ASSERT(ns == ns && ns > -9.2e18);
        return ns >= 9.2e18 ? never() : CampaignTime(static_cast<std::int64_t>(ns < 0 ? ns - 0.5 : ns + 0.5));
    }
    [[nodiscard]] constexpr std::int64_t ns() const { return ns_; }
    [[nodiscard]] constexpr double seconds() const { return static_cast<double>(ns_) * 1e-9; }
    [[nodiscard]] constexpr bool is_never() const { return *this == never(); }

    friend constexpr auto operator<=>(CampaignTime, CampaignTime) = default;
    /// never() absorbs what is added to it. Throws InfeasibleError beyond 292 years.
    friend CampaignTime operator+(CampaignTime a, CampaignTime b) {
        if (a.is_never() || b.is_never()) {
            return never();
        }
        std::int64_t sum = 0;
        if (__builtin_add_overflow(a.ns_, b.ns_, &sum)) {
            throw InfeasibleError("simulated time overflow: more than 292 years in one campaign");
        }
        return CampaignTime(sum);
    }
    /// Precondition: neither is never().
    friend constexpr CampaignTime operator-(CampaignTime a, CampaignTime b) { return CampaignTime(a.ns_ - b.ns_); }
    CampaignTime& operator+=(CampaignTime other) { return *this = *this + other; }

  private:
    explicit constexpr CampaignTime(std::int64_t ns) : ns_(ns) {}
    std::int64_t ns_ = 0;
};

/// a * b / c, rounded down or up, without overflow in between. Precondition: not negative, c > 0, the result fits.
[[nodiscard]] inline std::int64_t scaled_down(std::int64_t a, std::int64_t b, std::int64_t c) {
    __extension__ using Wide = __int128;
    return static_cast<std::int64_t>(static_cast<Wide>(a) * b / c);
}
[[nodiscard]] inline std::int64_t scaled_up(std::int64_t a, std::int64_t b, std::int64_t c) {
    __extension__ using Wide = __int128;
    return static_cast<std::int64_t>((static_cast<Wide>(a) * b + c - 1) / c);
}

}  // namespace orrery::faults
