// Policies that ask a process, or a recording, for each decision. README.md has the messages.

#include "sim/base/error.hpp"
#include "workloads/outside/connection.hpp"
#include "workloads/outside/messages.hpp"
#include "workloads/outside/policies.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

namespace orrery::outside {

namespace {

// What changes of a request while it is on an engine.
void add_state(Text& text, const policy::Sequence& one) {
    add(text, "{},{},{},{},{}]", one.request, one.generated, one.computed, one.blocks, one.remaining);
}

void carry_out(const Orders& orders, policy::Plan& plan) {
    for (const Order& order : orders) {
        if (order.preempts) {
            plan.preempt(order.request);
        } else {
            plan.run(order.request, order.tokens, order.when_full);
        }
    }
}

class RemoteScheduler final : public policy::Scheduler {
  public:
    RemoteScheduler(std::shared_ptr<Connection> connection, std::string parameters)
        : connection_(std::move(connection)), parameters_(std::move(parameters)) {}

    void plan(const policy::Engine& engine, policy::Plan& plan) override {
        if (!opened_) {
            open(engine);
        }
        ask(engine);
        connection_->send({text_.data(), text_.size()});
        read_orders(connection_->receive(), connection_->name(), orders_);
        carry_out(orders_, plan);
    }

  private:
    void open(const policy::Engine& engine) {
        connection_->send(fmt::format(
            R"({{"open":"scheduler","number":{},"token_budget":{},"block_tokens":{},"blocks":{},"parameters":{}}})",
            engine.number(), engine.token_budget(), engine.block_tokens(), engine.blocks(),
            nlohmann::json(parameters_).dump()));
        opened_ = true;
    }

    // Says what is new of a request, once.
    void introduce(const policy::Sequence& one) {
        if (known_.insert(one.request).second) {
            add(new_, "{}[{},{},{},{},{}]", new_.size() > 0 ? "," : "", one.request, one.arrival, one.session,
                one.prompt, one.output);
        }
    }

    // The question: what is different in what runs and in what waits.
    void ask(const policy::Engine& engine) {
        for (Text* part : {&text_, &new_, &stopped_, &started_, &changed_, &gone_, &come_}) {
            part->clear();
        }
        compare_running(engine);
        compare_queue(engine);
        add(text_, R"({{"plan":{},"time":{},"free_blocks":{},"places":{})", engine.number(), engine.now(),
            engine.free_blocks(), engine.places());
        for (const auto& [name, part] :
             {std::pair("new", &new_), std::pair("stopped", &stopped_), std::pair("started", &started_),
              std::pair("changed", &changed_), std::pair("gone", &gone_), std::pair("come", &come_)}) {
            add(text_, R"(,"{}":[)", name);
            text_.append(*part);
            text_.push_back(']');
        }
        text_.push_back('}');
    }

    // What has run before and computed one token is not named: the other end knows.
    void compare_running(const policy::Engine& engine) {
        next_.clear();
        for (std::size_t i = 0; i < engine.running(); ++i) {
            next_.push_back(engine.running(i));
        }
        std::size_t i = 0;
        for (const policy::Sequence& old : running_) {
            if (i == next_.size() || next_[i].request != old.request) {
                add(stopped_, "{}{}", stopped_.size() > 0 ? "," : "", old.request);
                continue;
            }
            const policy::Sequence& one = next_[i++];
            const std::uint32_t block = engine.block_tokens();
            const std::uint32_t blocks = std::max(old.blocks, (old.computed + block) / block);
            if (one.generated != old.generated + 1 || one.computed != old.computed + 1 || one.blocks != blocks ||
                one.remaining != 1) {
                name(changed_, one);
            }
        }
        for (; i < next_.size(); ++i) {
            introduce(next_[i]);
            name(started_, next_[i]);
        }
        std::swap(running_, next_);
        ORRERY_ASSERT(running_.size() == engine.running());
    }

    static void name(Text& text, const policy::Sequence& one) {
        add(text, "{}[", text.size() > 0 ? "," : "");
        add_state(text, one);
    }

    void compare_queue(const policy::Engine& engine) {
        queue_.clear();
        for (std::size_t i = 0; i < engine.waiting(); ++i) {
            queue_.push_back(engine.waiting(i).request);
        }
        if (queue_ == waiting_) {
            return;
        }
        const std::unordered_set<std::uint64_t> here(queue_.begin(), queue_.end());
        const auto leaves = [&](std::uint64_t request) { add(gone_, "{}{}", gone_.size() > 0 ? "," : "", request); };
        std::size_t old = 0;
        for (std::size_t i = 0; i < queue_.size(); ++i) {
            for (; old < waiting_.size() && waiting_[old] != queue_[i] && !here.contains(waiting_[old]); ++old) {
                leaves(waiting_[old]);
            }
            if (old < waiting_.size() && waiting_[old] == queue_[i]) {
                ++old;
                continue;
            }
            const policy::Sequence one = engine.waiting(i);
            introduce(one);
            add(come_, "{}[{},", come_.size() > 0 ? "," : "", i);
            add_state(come_, one);
        }
        ORRERY_ASSERT(old <= waiting_.size() && queue_.size() == engine.waiting());
        std::for_each(waiting_.begin() + static_cast<std::ptrdiff_t>(old), waiting_.end(), leaves);
        std::swap(waiting_, queue_);
    }

    std::shared_ptr<Connection> connection_;
    std::string parameters_;
    bool opened_ = false;
    std::unordered_set<std::uint64_t> known_;
    std::vector<std::uint64_t> waiting_;  ///< as the other end has the queue
    std::vector<std::uint64_t> queue_;
    std::vector<policy::Sequence> running_;  ///< as the other end has it
    std::vector<policy::Sequence> next_;
    Text text_, new_, stopped_, started_, changed_, gone_, come_;
    Orders orders_;
};

class RemoteRouter final : public policy::Router {
  public:
    RemoteRouter(std::shared_ptr<Connection> connection, std::string parameters, std::uint32_t number)
        : connection_(std::move(connection)), parameters_(std::move(parameters)), number_(number) {}

    std::size_t choose(const policy::Replicas& replicas, const policy::Request& request) override {
        if (!opened_) {
            connection_->send(opening("router", number_, parameters_));
            opened_ = true;
        }
        text_.clear();
        add(text_, R"({{"route":{})", number_);
        add_request(text_, replicas, request);
        connection_->send({text_.data(), text_.size()});
        return read_choice(connection_->receive(), connection_->name());
    }

  private:
    std::shared_ptr<Connection> connection_;
    std::string parameters_;
    std::uint32_t number_;
    bool opened_ = false;
    Text text_;
};

class RecordedScheduler final : public policy::Scheduler {
  public:
    explicit RecordedScheduler(std::shared_ptr<Recording> recording) : recording_(std::move(recording)) {}
    void plan(const policy::Engine& engine, policy::Plan& plan) override {
        read_orders(recording_->next("scheduler", engine.number(), engine.now()), recording_->file(), orders_);
        carry_out(orders_, plan);
    }

  private:
    std::shared_ptr<Recording> recording_;
    Orders orders_;
};

class RecordedRouter final : public policy::Router {
  public:
    RecordedRouter(std::shared_ptr<Recording> recording, std::uint32_t number)
        : recording_(std::move(recording)), number_(number) {}
    std::size_t choose(const policy::Replicas&, const policy::Request& request) override {
        return read_choice(recording_->next("router", number_, request.now), recording_->file());
    }

  private:
    std::shared_ptr<Recording> recording_;
    std::uint32_t number_;
};

}  // namespace

std::unique_ptr<policy::Scheduler> remote_scheduler(std::shared_ptr<Connection> connection, std::string parameters) {
    return std::make_unique<RemoteScheduler>(std::move(connection), std::move(parameters));
}

std::unique_ptr<policy::Router> remote_router(std::shared_ptr<Connection> connection, std::string parameters,
                                              std::uint32_t number) {
    return std::make_unique<RemoteRouter>(std::move(connection), std::move(parameters), number);
}

std::unique_ptr<policy::Scheduler> recorded_scheduler(std::shared_ptr<Recording> recording) {
    return std::make_unique<RecordedScheduler>(std::move(recording));
}

std::unique_ptr<policy::Router> recorded_router(std::shared_ptr<Recording> recording, std::uint32_t number) {
    return std::make_unique<RecordedRouter>(std::move(recording), number);
}

}  // namespace orrery::outside
