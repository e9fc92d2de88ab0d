#include "sim/network/packet/message.hpp"

#include "sim/base/error.hpp"
#include "sim/network/packet/packet.hpp"

#include <algorithm>

namespace orrery::network::packet {

std::uint32_t Messages::add(const SendRequest& request, std::int64_t at) {
    MessageState message;
    message.token = request.token;
    message.from = request.from;
    message.to = request.to;
    message.bytes = request.bytes;
    message.rate_limit = request.rate_limit;
    message.weight = request.weight;
    message.share = request.share;
    message.traffic_class = request.traffic_class;
    message.live = true;
    message.sampled = request.sampled;
    message.number = added_++;
    if (keeps_spans_) {
        spans_.push_back({at});
    }
    ++live_;
    return messages_.take(message);
}

void Messages::release(std::uint32_t id, std::int64_t at) {
    ORRERY_ASSERT(messages_[id].live && live_ > 0);
    messages_[id].live = false;
    finished_at_ = at;
    --live_;
    messages_.give(id);
}

void Messages::finish_part(std::uint32_t id, std::int64_t at) {
    ORRERY_ASSERT(messages_[id].parts > 0);
    if (--messages_[id].parts == 0) {
        completed_.push_back({at, messages_[id].token});
        if (keeps_spans_) {
            spans_[messages_[id].number].end = at;
        }
        release(id, at);
    }
}

void Messages::cancel(std::uint32_t id, std::int64_t at) {
    release(id, at);
}

void Messages::sort_completed() {
    std::sort(completed_.begin(), completed_.end(), [](const Completion& a, const Completion& b) {
        return a.at < b.at || (a.at == b.at && a.token < b.token);
    });
}

void Messages::fail(std::uint32_t id, const std::string& why) const {
    const MessageState& message = messages_[id];
    throw InfeasibleError("the message of " + std::to_string(message.bytes) + " bytes from GPU " +
                          std::to_string(message.from.value()) + " to GPU " + std::to_string(message.to.value()) +
                          " can never finish: " + why);
}

void Messages::fail_first(const std::string& why) const {
    std::uint32_t first = kNone;  // by token, as slots are taken in no order that says anything
    for (std::uint32_t id = 0; id < messages_.size(); ++id) {
        if (messages_[id].live && (first == kNone || messages_[id].token < messages_[first].token)) {
            first = id;
        }
    }
    ORRERY_ASSERT(first != kNone);
    fail(first, why);
}

}  // namespace orrery::network::packet
