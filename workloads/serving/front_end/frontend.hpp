#pragma once
// Requests on their way from clients to the engines.
//
// Claims: a request passes a gateway, whose time does not grow with the load, and a front end, which works on one at a time, longer on longer prompts (or as front_end_host.hpp
// says), and then takes its way to an engine's queue. Each replica that takes prompts brings a front end (vllm serve, a server of
// SGLang or TensorRT-LLM), and the first that is free takes the next request; or one is before all of them (Dynamo). The source is read as time goes, never held in memory. Clients of a
// closed loop send a request whenever they have none under way; what a conversation asks next comes when its client has
// thought about the answer. A request of a later stage of the load waits until all before it is accounted for, and a pause more; one beyond
// what a client may have under way waits with the client.
// Limits: a follow-up does not queue at the serial front end, as its time there is known only when it comes. No request overtakes
// another on its way through front ends, and which of them a request takes has nothing to do with its router.
// Validated by tests/workloads/serving_clients_test.cpp and serving_turns_test.cpp.

#include "workloads/serving/front_end/front_end_host.hpp"
#include "workloads/serving/front_end/live_requests.hpp"
#include "workloads/serving/metrics/hooks.hpp"
#include "workloads/serving/service_spec.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <optional>
#include <queue>

namespace orrery::serving {

class Frontend final : public Part {
  public:
    /// All arguments outlive this.
    Frontend(const ServiceSpec& spec, RequestSource& requests, const ServiceHooks& hooks, ServiceResult& result)
        : spec_(spec), requests_(requests), hooks_(hooks), live_(dynamic_cast<LiveRequests*>(&requests)) {
        std::size_t front_ends = 0;
        for (const PoolSpec& pool : spec.pools) {
            front_ends += pool.role != Role::decode ? pool.replicas : 0;
        }
        free_ = decltype(free_)(
            {}, std::vector<SimTime>(spec.software.shared_front_end ? 1 : std::max<std::size_t>(1, front_ends)));
        if (spec.front_end.given) {
            host_.emplace(
                spec.front_end, spec.software.request.value, [this](const Request& request) { pass_on(request); },
                result);
        }
    }
    /// Who gets a request that has come to the engines; they are numbered as they come. Before the run.
    void when_arrived(std::function<void(const Request&, std::uint64_t id)> arrives) { arrives_ = std::move(arrives); }
    void begin(Dispatcher& dispatcher) override;
    /// The next request of the source has come, or what a client asks next.
    void on_done(std::uint64_t token, Dispatcher& dispatcher) override;
    /// Null: its host is not simulated.
    [[nodiscard]] FrontEndHost* host() { return host_ ? &*host_ : nullptr; }
    /// Called before a stage of the load begins, with its start. Before the run.
    void when_stage(std::function<void(SimTime start)> begins) { begins_ = std::move(begins); }
    /// A request is accounted for, once: its client may send another.
    void settle(std::uint32_t turn, bool served);
    /// No more requests are wanted: what is on its way still comes.
    void close() { closed_ = all_sent_ = true; }
    /// Nothing is left, and nothing will come.
    [[nodiscard]] bool all_settled() const { return all_sent_ && idle(); }
    /// Nothing is under way, but something may come.
    [[nodiscard]] bool idle() const { return on_way() == 0 && returning_.taken() == 0 && settled_ == arrived_; }
    /// Null: all requests are known beforehand.
    [[nodiscard]] LiveRequests* live() const { return live_; }
    /// The source may know more requests now, or that none will come.
    void resume() { await_next(); }
    /// Requests that have come to the engines.
    [[nodiscard]] std::uint64_t arrived() const { return arrived_; }
    /// When the last request was accounted for.
    [[nodiscard]] SimTime last() const { return last_; }

  private:
    static constexpr std::uint64_t kNext = ~std::uint64_t{0};  ///< the next of the source; else a slot of `returning_`
    void await_next();
    /// The next request of the source, or the one that was held back; false: none now.
    [[nodiscard]] bool take_next(Request& request);
    [[nodiscard]] std::uint64_t under_way() const { return arrived_ + on_way() + returning_.taken() - settled_; }
    [[nodiscard]] bool past_load(SimTime at) const;
    /// Before the front ends.
    [[nodiscard]] SimTime gateway(const Request& request) const;
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
    LiveRequests* live_;
    std::function<void(const Request&, std::uint64_t)> arrives_;
    std::optional<FrontEndHost> host_;
    std::function<void(SimTime)> begins_;
    std::optional<Request> held_;  ///< read, and not sent: it is of a stage to come, or too many are under way
    std::uint32_t stage_ = 0;
    SimTime stage_start_;
    std::deque<Request> coming_;  ///< sent, and not at an engine (or at the host of the front end) yet
    Slots<Request> returning_;    ///< what clients ask after an answer, while they think
    std::priority_queue<SimTime, std::vector<SimTime>, std::greater<>> free_;  ///< when each front end is
    bool all_sent_ = false;
    bool closed_ = false;
    std::uint64_t arrived_ = 0;
    std::uint64_t settled_ = 0;
    SimTime last_;
};

}  // namespace orrery::serving
