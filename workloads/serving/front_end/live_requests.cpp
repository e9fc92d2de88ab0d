#include "workloads/serving/front_end/live_requests.hpp"

#include "sim/base/error.hpp"
#include "workloads/serving/engine/sequence.hpp"

#include <algorithm>
#include <utility>

namespace orrery::serving {

namespace {

constexpr double kLatest = 9e6;              // s: 64-bit picoseconds end after 9.22e6
constexpr std::int64_t kStepsWhenIdle = 64;  // in which nobody looks whether the clock went on

}  // namespace

std::optional<std::uint32_t> LiveRequests::send(Request request, std::shared_ptr<LiveClient> client) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) {
        return std::nullopt;
    }
    request.arrival = clock_.now();
    tickets_ = tickets_ == ~0U ? 1 : tickets_ + 1;
    request.turn = tickets_;
    client->sent(request.arrival);
    sent_.push_back({std::move(request), std::move(client)});
    woken_.notify_one();
    return tickets_;
}

void LiveRequests::cancel(std::uint32_t ticket) {
    const std::lock_guard<std::mutex> lock(mutex_);
    cancelled_.push_back(ticket);
}

void LiveRequests::close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    woken_.notify_one();
}

LiveLoad LiveRequests::load() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return load_;
}

void LiveRequests::set_load(const LiveLoad& load) {
    const std::lock_guard<std::mutex> lock(mutex_);
    load_ = load;
    load_.behind_s = behind_s_;
}

void LiveRequests::abandon() {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    for (const Sent& one : sent_) {
        one.client->ended(Ending::failed, clock_.now());
    }
    sent_.clear();
    for (const auto& [ticket, one] : clients_) {
        one.client->ended(Ending::failed, clock_.now());
    }
    clients_.clear();
}

bool LiveRequests::next(Request& request) {
    if (known_.empty()) {
        return false;
    }
    request = std::move(known_.front());
    known_.pop_front();
    return true;
}

SimTime LiveRequests::await(SimTime now, bool idle) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (now > SimTime() && clock_.now() > now) {
        behind_s_ = std::max(behind_s_, (clock_.now() - now).seconds());
    }
    const SimTime until = now + step_ * (idle ? kStepsWhenIdle : 1);
    while (!closed_ && clock_.now() < until && !(idle && !sent_.empty())) {
        clock_.wait(lock, woken_, until);
    }
    closed_ = closed_ || now.seconds() > kLatest;
    const SimTime reached = closed_ ? until : clock_.now();
    for (Sent& one : sent_) {
        clients_.emplace(one.request.turn, Client{std::move(one.client), std::nullopt, 0});
        known_.push_back(std::move(one.request));
    }
    sent_.clear();
    leaving_.insert(leaving_.end(), cancelled_.begin(), cancelled_.end());
    cancelled_.clear();
    known_closed_ = closed_;
    return std::max(reached, now + SimTime::from_ps(1));
}

std::vector<std::uint64_t> LiveRequests::take_left() {
    std::vector<std::uint64_t> out;
    std::erase_if(leaving_, [&](std::uint32_t ticket) {
        const auto found = clients_.find(ticket);
        if (found == clients_.end()) {
            return true;
        }
        if (found->second.id) {
            out.push_back(*found->second.id);
        }
        return found->second.id.has_value();
    });
    return out;
}

void LiveRequests::token(const Sequence& sequence, SimTime at, std::int64_t gathered, bool held) {
    Client& client = clients_.at(sequence.turn);
    if (sequence.generated % gathered == 0 && !(held && sequence.generated == 1 && sequence.then > 0)) {
        client.told = sequence.generated;
        client.client->tokens(client.told, at);
    }
}

void LiveRequests::ended(std::uint32_t ticket, std::uint32_t generated, Ending how, SimTime at) {
    const auto found = clients_.find(ticket);
    ORRERY_ASSERT(found != clients_.end());
    const Client client = std::move(found->second);
    clients_.erase(found);
    if (generated > client.told) {
        client.client->tokens(generated, at);
    }
    client.client->ended(how, at);
}

}  // namespace orrery::serving
