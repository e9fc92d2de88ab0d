#include "sim/network/packet/message.hpp"

#include "sim/base/error.hpp"

#include <algorithm>

namespace orrery::inline network::packet {

std::uint32_t Messages::add(const Request& request) {
    Message message;
    message.token = request.token;
    message.from = request.from;
    message.to = request.to;
    message.bytes = request.bytes;
    message.rate_limit = request.rate_limit;
    message.weight = request.weight;
    message.share = request.share;
    message.live = true;
    ++live_;
    return messages_.take(message);
}

void Messages::release(std::uint32_t id) {
    messages_[id].live = false;
    finished_at_ = clock_.now;
    --live_;
    messages_.give(id);
}

void Messages::finish_part(std::uint32_t id) {
    if (--messages_[id].parts == 0) {
        completed_.push_back(messages_[id].token);
        release(id);
    }
}

void Messages::cancel(std::uint32_t id) {
    release(id);
}

void Messages::sort_completed() {
    std::sort(completed_.begin(), completed_.end());
}

void Messages::fail(std::uint32_t id, const std::string& why) const {
    const Message& message = messages_[id];
    throw InfeasibleError("the message of " + std::to_string(message.bytes) + " bytes from GPU " +
                          std::to_string(message.from.value()) + " to GPU " + std::to_string(message.to.value()) +
                          " can never finish: " + why);
}

void Messages::fail_first(const std::string& why) const {
    const auto message = std::find_if(messages_.begin(), messages_.end(), [](const Message& m) { return m.live; });
    ORRERY_ASSERT(message != messages_.end());
    fail(static_cast<std::uint32_t>(message - messages_.begin()), why);
}

}  // namespace orrery::inline network::packet
