#pragma once
// Requests on their way from clients to the engines.
//
// Claims: a request passes a front end, which works on one at a time, longer on longer prompts (or as front_end_host.hpp
// says), and then takes its way to an engine's queue. Each replica that takes prompts brings a front end (vllm serve, a server of
// SGLang or TensorRT-LLM), and the first that is free takes the next request; or one is before all of them (Dynamo). The source is read as time goes, never held in memory. Clients of a
// closed loop send a request whenever they have none under way; what a conversation asks next comes when its client has
// thought about the answer.
// Limits: a follow-up does not queue at the serial front end, as its time there is known only when it comes. No request overtakes
// another on its way through front ends, and which of them a request takes has nothing to do with its router.
// Validated by tests/workloads/serving_clients_test.cpp and serving_turns_test.cpp.

#include "sim/engine/task_source.hpp"
#include "workloads/serving/cluster/service.hpp"
#include "workloads/serving/front_end/front_end_host.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <queue>

namespace orrery::serving {

class FrontendListener {
  public:
    virtual ~FrontendListener() = default;
    /// A request has come to the engines; requests are numbered as they come.
    virtual void request_arrives(const Request& request, std::uint64_t id) = 0;
};

class Frontend {
  public:
    /// All arguments outlive this.
    Frontend(const ServiceSpec& spec, RequestSource& requests, const ServiceHooks& hooks, FrontendListener& listener,
             ServiceResult& result)
        : spec_(spec), requests_(requests), hooks_(hooks), listener_(listener) {
        std::size_t front_ends = 0;
        for (const PoolSpec& pool : spec.pools) {
            front_ends += pool.role != Role::decode ? pool.replicas : 0;
        }
        free_ =
            decltype(free_)({}, std::vector<SimTime>(spec.shared_front_end ? 1 : std::max<std::size_t>(1, front_ends)));
        if (spec.front_end.given) {
            host_.emplace(spec.front_end, spec.request_overhead, result);
        }
    }
    void begin(Dispatcher& dispatcher);
    /// The next request of the source, or what a client asks next, has come.
    void on_arrival();
    void on_follow_up(std::uint32_t slot);
    void on_host(std::uint32_t slot);
    /// Null: its host is not simulated.
    [[nodiscard]] FrontEndHost* host() { return host_ ? &*host_ : nullptr; }
    /// A request is accounted for, once: its client may send another.
    void settle(std::uint32_t turn, bool served);
    /// No more requests are wanted: what is on its way still comes.
    void close() { closed_ = all_sent_ = true; }
    /// Nothing is left, and nothing will come.
    [[nodiscard]] bool all_settled() const {
        return all_sent_ && on_way() == 0 && returning_.size() == free_returning_.size() && settled_ == arrived_;
    }
    /// When the last request was accounted for.
    [[nodiscard]] SimTime last() const { return last_; }

  private:
    void await_next();
    [[nodiscard]] bool past_load(SimTime at) const;
    /// Of the serial front end.
    [[nodiscard]] SimTime work_on(const Request& request) const;
    void expect(Request request);
    void send(Request request);
    /// Requests that are read, and not at an engine yet.
    [[nodiscard]] std::size_t on_way() const { return coming_.size() + (host_ ? host_->on_way() : 0); }
    void pass_on(const Request& request);

    const ServiceSpec& spec_;
    RequestSource& requests_;
    const ServiceHooks& hooks_;
    FrontendListener& listener_;
    std::optional<FrontEndHost> host_;
    Dispatcher* dispatcher_ = nullptr;
    std::deque<Request> coming_;      ///< sent, and not at an engine (or at the host of the front end) yet
    std::vector<Request> returning_;  ///< what clients ask after an answer, while they think
    std::vector<std::uint32_t> free_returning_;
    std::priority_queue<SimTime, std::vector<SimTime>, std::greater<>> free_;  ///< when each front end is
    bool all_sent_ = false;
    bool closed_ = false;
    std::uint64_t arrived_ = 0;
    std::uint64_t settled_ = 0;
    SimTime last_;
};

}  // namespace orrery::serving
