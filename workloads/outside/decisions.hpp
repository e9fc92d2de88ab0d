#pragma once
// Decisions as text: what a process answers, and what a recording holds.

#include "include/orrery/policy.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::outside {

/// Kinds of policies that may come from outside.
inline constexpr std::array kDeciders = {"scheduler", "router", "autoscaler", "admission"};

/// One order of a plan.
struct Order {
    std::uint64_t request = 0;
    std::uint32_t tokens = 0;
    policy::WhenFull when_full = policy::WhenFull::stop;
    bool preempts = false;
};
using Orders = std::vector<Order>;

/// A list of orders: `7` runs what remains of request 7, `[7, 128]` at most 128 tokens of it, `{"preempt": 7}` preempts it, and
/// `{"run": [7, 8], "tokens": 0, "when_full": "skip"}` runs several alike and says what happens when the cache is full.
[[nodiscard]] std::string text_of(const Orders& orders);

/// A line that answers a question about a plan: `{"orders": [...]}`. Throws ConfigError that names the policy.
void read_orders(std::string_view line, const std::string& policy, Orders& orders);
/// A line that answers where a request goes: `{"replica": i}`.
[[nodiscard]] std::size_t read_choice(std::string_view line, const std::string& policy);

/// Answers to how many replicas a pool should have, `{"replicas": n}`, and to whether a request is taken, `{"admit": true}`.
[[nodiscard]] std::uint32_t read_replicas(std::string_view line, const std::string& policy);
[[nodiscard]] bool read_admission(std::string_view line, const std::string& policy);

/// Lines of a recording for one policy, in their order.
struct Recorded {
    struct Line {
        double time;
        std::string text;
    };
    std::deque<Line> lines;
};

/// A recording: the first line is {"orrery_decisions": 1}, and each other one says who decided (`scheduler`, `router`, `autoscaler` or
/// `admission` with its number), when (`time`, s) and what.
class Recording {
  public:
    /// Throws ConfigError with file and line.
    explicit Recording(const std::string& file);
    [[nodiscard]] const std::string& file() const { return file_; }
    /// The next decision of the policy of this kind and number. Throws ConfigError where it was taken at another time, or is missing:
    /// the scenario is not the one that was recorded.
    [[nodiscard]] std::string next(const std::string& kind, std::uint32_t number, double time);

  private:
    std::string file_;
    std::vector<std::pair<std::string, Recorded>> all_;  ///< by kind and number, such as "scheduler 0"
};

/// The first line of a recording.
inline constexpr const char* kRecordingHead = "{\"orrery_decisions\": 1}\n";
/// Lines of a recording.
[[nodiscard]] std::string recorded_plan(std::uint32_t number, double time, const Orders& orders);
[[nodiscard]] std::string recorded_choice(std::uint32_t number, double time, std::uint64_t request, std::size_t choice);
[[nodiscard]] std::string recorded_scale(std::uint32_t pool, double time, std::uint32_t replicas);
[[nodiscard]] std::string recorded_admit(double time, std::uint64_t request, bool admits);

}  // namespace orrery::outside
