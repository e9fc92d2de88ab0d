#pragma once
// Messages: what the workload sends, in one flow or several, and which have arrived.

#include "sim/base/id.hpp"
#include "sim/network/packet/clock.hpp"
#include "sim/network/slots.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::network::packet {

/// A message to send from one NIC's GPU to another's.
struct SendRequest {
    GpuId from;
    GpuId to;
    std::uint64_t bytes = 0;
    double rate_limit = 0;  ///< B/s; 0: none
    std::uint64_t token = 0;
    double weight = 0;  ///< payload bytes per unit of the share that set_shares() tells of; 0: it has none
    double share = 0;   ///< units per second, until set_shares() says otherwise; 0: no limit
    std::uint8_t traffic_class = 0;
    bool sampled = false;  ///< what its flows do is recorded, where PacketSpec::flow_samples says when
};

struct MessageState {
    std::uint64_t token = 0;
    std::uint64_t hash = 0;
    GpuId from;
    GpuId to;
    std::uint64_t bytes = 0;
    double rate_limit = 0;
    double weight = 0;
    double share = 0;
    std::uint32_t number = 0;  ///< of all that were sent
    std::uint32_t parts = 0;   ///< flows that have not finished
    std::uint32_t of_all = 1;  ///< flows it began with
    std::uint8_t traffic_class = 0;
    bool live = false;
    bool sampled = false;
};

/// A message has arrived, by its token.
struct Completion {
    std::int64_t at = 0;  ///< ps
    std::uint64_t token = 0;
};

/// When a message was sent and when it was complete.
struct MessageSpan {
    std::int64_t start = 0;  ///< ps
    std::int64_t end = -1;   ///< ps; negative: it is not complete
};

/// A flow has ended.
struct Ended {
    std::int64_t at = 0;  ///< ps
    std::uint32_t message = 0;
};

/// All messages of a run.
class Messages {
  public:
    [[nodiscard]] MessageState& operator[](std::uint32_t id) { return messages_[id]; }
    [[nodiscard]] const MessageState& operator[](std::uint32_t id) const { return messages_[id]; }
    [[nodiscard]] std::uint32_t size() const { return messages_.size(); }

    /// Whoever starts a message, at this time, sets its hash and its parts.
    [[nodiscard]] std::uint32_t add(const SendRequest& request, std::int64_t at);
    /// One of its flows has ended at this time, ps; with the last it is complete. Calls come in the order of time.
    void finish_part(std::uint32_t id, std::int64_t at);
    /// It will not complete.
    void cancel(std::uint32_t id, std::int64_t at);

    [[nodiscard]] std::size_t live() const { return live_; }
    /// Those that have completed since the last `forget_completed`.
    [[nodiscard]] const std::vector<Completion>& completed() const { return completed_; }
    [[nodiscard]] bool any_completed() const { return !completed_.empty(); }
    void forget_completed() { completed_.clear(); }
    void sort_completed();
    /// From now on; before the first message.
    void keep_spans() { keeps_spans_ = true; }
    /// By number, where they are kept.
    [[nodiscard]] const std::vector<MessageSpan>& spans() const { return spans_; }
    /// ps that means are over: timers that run out after the last message are no traffic.
    [[nodiscard]] std::int64_t elapsed(std::int64_t now) const {
        return live_ == 0 && finished_at_ > 0 ? finished_at_ : now;
    }
    /// Throws InfeasibleError that says why this one can never finish; the first that is not finished.
    [[noreturn]] void fail(std::uint32_t id, const std::string& why) const;
    [[noreturn]] void fail_first(const std::string& why) const;
    [[nodiscard]] std::size_t memory() const { return messages_.memory() + spans_.capacity() * sizeof(MessageSpan); }

  private:
    void release(std::uint32_t id, std::int64_t at);

    Slots<MessageState> messages_;
    std::vector<Completion> completed_;
    bool keeps_spans_ = false;
    std::vector<MessageSpan> spans_;
    std::size_t live_ = 0;
    std::uint32_t added_ = 0;
    std::int64_t finished_at_ = 0;  ///< ps, when the last message so far completed
};

}  // namespace orrery::network::packet
