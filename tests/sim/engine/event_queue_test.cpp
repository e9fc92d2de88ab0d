#include "sim/base/random.hpp"
#include "sim/engine/engine.hpp"
#include "tests/support/support.hpp"

#include <doctest/doctest.h>

#include <queue>

using namespace orrery;

namespace {
struct Later {
    bool operator()(const Event& a, const Event& b) const {
        return a.time_ps != b.time_ps ? a.time_ps > b.time_ps : a.order > b.order;
    }
};
}  // namespace

TEST_CASE("the queue pops in the order of a reference heap under random holds") {
    for (int round = 0; round < 50 * test::scale(); ++round) {
        RandomStream random(static_cast<std::uint64_t>(round), "queue");
        EventQueue queue;
        std::priority_queue<Event, std::vector<Event>, Later> reference;
        std::int64_t now = 0;
        std::uint32_t sequence = 0;
        const auto push = [&] {
            // Many ties, short and very long delays.
            const std::uint64_t kind = random.below(4);
            const std::int64_t delay = kind == 0   ? 0
                                       : kind == 1 ? static_cast<std::int64_t>(random.below(4))
                                       : kind == 2 ? static_cast<std::int64_t>(random.below(100000))
                                                   : static_cast<std::int64_t>(random.below(1ULL << 50));
            const Event event{now + delay,
                              event_order(static_cast<Phase>(random.below(5)),
                                          static_cast<std::uint32_t>(random.below(5)), sequence++),
                              0, sequence};
            queue.push(event);
            reference.push(event);
        };
        for (int i = 0; i < 100; ++i) {
            push();
        }
        for (int i = 0; i < 1000; ++i) {
            const Event event = queue.pop();
            REQUIRE(event.time_ps == reference.top().time_ps);
            REQUIRE(event.datum == reference.top().datum);
            reference.pop();
            now = event.time_ps;
            if (random.below(100) < 99 || queue.empty()) {
                push();
            }
        }
        CHECK(queue.size() == reference.size());
    }
}

TEST_CASE("events of one instant run by phase, then entity, then sequence, whatever the order of insertion") {
    EventQueue queue;
    queue.push({5, event_order(Phase::scheduler, 0, 0), 0, 4});
    queue.push({5, event_order(Phase::network, 2, 0), 0, 2});
    queue.push({5, event_order(Phase::device, 0, 0), 0, 3});
    queue.push({5, event_order(Phase::network, 1, 1), 0, 1});
    queue.push({5, event_order(Phase::network, 1, 0), 0, 0});
    for (std::uint32_t i = 0; i < 5; ++i) {
        CHECK(queue.pop().datum == i);
    }
}

TEST_CASE("pushing into the past is a bug that is caught") {
    EventQueue queue;
    queue.push({10, 0, 0, 0});
    (void)queue.pop();
    CHECK_THROWS_AS(queue.push({9, 0, 0, 0}), InternalError);
}

namespace {
class Livelock final : public EventHandler {
  public:
    explicit Livelock(Engine& engine) : engine_(engine), id_(engine.add_handler(*this)) { on_event(0); }
    void on_event(std::uint32_t datum) override {
        engine_.schedule(engine_.now(), event_order(Phase::device, 0, datum), id_, datum + 1);
    }

  private:
    Engine& engine_;
    std::uint32_t id_;
};
}  // namespace

TEST_CASE("a zero-delay livelock is an error and not a hang") {
    Engine engine;
    Livelock livelock(engine);
    CHECK_THROWS_WITH_AS(engine.run(), doctest::Contains("livelock"), InternalError);
}
