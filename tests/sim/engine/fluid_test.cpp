#include "sim/engine/fluid.hpp"
#include "sim/base/random.hpp"
#include "sim/engine/executor.hpp"
#include "sim/engine/task_source.hpp"
#include "sim/network/analytic.hpp"
#include "sim/run/simulation.hpp"
#include "tests/support/max_min.hpp"
#include "tests/support/support.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <map>

using namespace orrery;

namespace {

// Starts activities at given times and notes when each finishes.
class Script final : public EventHandler, public ActivityListener {
  public:
    Script(Engine& engine, ResourceModel& sharing)
        : engine_(engine), sharing_(sharing), id_(engine.add_handler(*this)), listener_(sharing.add_listener(*this)) {}
    void at(double seconds, std::vector<Demand> demands, double amount, double bound = ResourceModel::kUnbounded) {
        plan_.push_back({std::move(demands), bound, amount});
        done.push_back(-1);
        const auto index = static_cast<std::uint32_t>(plan_.size() - 1);
        engine_.schedule(SimTime::from_seconds(seconds), event_order(Phase::device, 0, index), id_, index);
    }
    void on_event(std::uint32_t i) override {
        sharing_.start(sharing_.hold(plan_[i].demands, plan_[i].bound), plan_[i].amount, listener_, i);
    }
    void on_activity_done(std::uint64_t token) override { done[token] = engine_.now().seconds(); }

    std::vector<double> done;

  private:
    Engine& engine_;
    ResourceModel& sharing_;
    std::uint32_t id_;
    ListenerId listener_;
    struct Start {
        std::vector<Demand> demands;
        double bound;
        double amount;
    };
    std::vector<Start> plan_;
};

}  // namespace

TEST_CASE("one activity alone runs at the tightest of its resources") {
    Engine engine;
    FluidModel fluid(engine);
    const ResourceId wide = fluid.add_resource(100);
    const ResourceId narrow = fluid.add_resource(10);
    Script script(engine, fluid);
    script.at(0, {{wide, 1}, {narrow, 1}}, 50);
    script.at(10, {{wide, 4}}, 50);
    engine.run();
    CHECK(script.done[0] == 5);
    CHECK(script.done[1] == 12);
}

TEST_CASE("two equal activities share a resource, and the one that is left speeds up") {
    Engine engine;
    FluidModel fluid(engine);
    const ResourceId link = fluid.add_resource(10);
    Script script(engine, fluid);
    script.at(0, {{link, 1}}, 50);
    script.at(0, {{link, 1}}, 100);
    script.at(2, {{link, 1}}, 30, 1.0);  // bounded: takes 1, the others share 9
    engine.run();
    // 0..2 at 5 each: 40 and 90 left; then 4.5 each: 40/4.5 = 8.889 s; then 9 for the second.
    CHECK(script.done[0] == doctest::Approx(2 + 40 / 4.5).epsilon(1e-12));
    CHECK(script.done[1] == doctest::Approx(2 + 40 / 4.5 + 50 / 9.0).epsilon(1e-12));
    CHECK(script.done[2] == 32);
}

TEST_CASE("the classic three-link example of max-min fairness") {
    Engine engine;
    FluidModel fluid(engine);
    const ResourceId a = fluid.add_resource(10);
    const ResourceId b = fluid.add_resource(4);
    const ClassId both = fluid.hold(std::vector<Demand>{{a, 1}, {b, 1}});
    const ClassId only_a = fluid.hold(std::vector<Demand>{{a, 1}});
    const ClassId only_b = fluid.hold(std::vector<Demand>{{b, 1}});
    fluid.start(both, 1e6, ListenerId(0), 0);
    fluid.start(only_a, 1e6, ListenerId(0), 1);
    fluid.start(only_b, 1e6, ListenerId(0), 2);
    fluid.settle();
    CHECK(fluid.rate(both) == 2);
    CHECK(fluid.rate(only_b) == 2);
    CHECK(fluid.rate(only_a) == 8);
    CHECK(fluid.load(a) == 10);
}

TEST_CASE("random allocations equal brute-force progressive filling, however they came about") {
    for (int round = 0; round < 3000 * test::scale(); ++round) {
        RandomStream random(static_cast<std::uint64_t>(round), "maxmin");
        test::Case c = test::random_case(random);
        Engine engine;
        FluidModel fluid(engine);
        for (const double capacity : c.capacities) {
            fluid.add_resource(capacity);
        }
        // One by one, so that every arrival is an incremental solve on what was there.
        std::vector<ClassId> ids;
        for (std::size_t f = 0; f < c.flows.size(); ++f) {
            ids.push_back(fluid.hold(c.flows[f], c.bounds[f]));
            fluid.start(ids.back(), 1e4, ListenerId(0), f);
            if (random.below(2) == 0) {
                fluid.settle();
            }
        }
        fluid.settle();
        const std::vector<double> expected = test::brute_force(c);
        for (std::size_t f = 0; f < ids.size(); ++f) {
            REQUIRE(fluid.rate(ids[f]) == doctest::Approx(expected[f]).epsilon(1e-9));
        }
        for (std::uint32_t r = 0; r < c.capacities.size(); ++r) {
            REQUIRE(fluid.load(ResourceId(r)) <= c.capacities[r] * (1 + 1e-12));
        }
    }
}

// Completions by brute force: all rates anew at each arrival, departure and change of the first capacity.
static std::vector<double> completions_by_brute_force(test::Case c, const std::vector<double>& starts,
                                                      std::vector<double> left, double change_at, double capacity) {
    std::vector<double> done(starts.size(), -1);
    double now = 0;
    for (;;) {
        test::Case active{c.capacities, {}, {}};
        std::vector<std::size_t> who;
        double next = now < change_at ? change_at : 1e300;
        for (std::size_t f = 0; f < starts.size(); ++f) {
            if (starts[f] > now) {
                next = std::min(next, starts[f]);
            } else if (done[f] < 0) {
                who.push_back(f);
                active.flows.push_back(c.flows[f]);
                active.bounds.push_back(c.bounds[f]);
            }
        }
        const std::vector<double> rates = test::brute_force(active);
        std::size_t first = starts.size();
        for (std::size_t i = 0; i < who.size(); ++i) {
            if (now + left[who[i]] / rates[i] < next) {
                next = now + left[who[i]] / rates[i];
                first = who[i];
            }
        }
        if (next > 1e299) {
            return done;
        }
        for (std::size_t i = 0; i < who.size(); ++i) {
            left[who[i]] -= rates[i] * (next - now);
        }
        now = next;
        if (first < starts.size()) {
            done[first] = now;
        } else if (now == change_at) {
            c.capacities[0] = capacity;
        }
    }
}

TEST_CASE("activities that come and go while a capacity changes finish when brute force says") {
    for (int round = 0; round < 1000 * test::scale(); ++round) {
        RandomStream random(static_cast<std::uint64_t>(round), "come and go");
        const test::Case c = test::random_case(random);
        Engine engine;
        FluidModel fluid(engine);
        for (const double capacity : c.capacities) {
            fluid.add_resource(capacity);
        }
        Script script(engine, fluid);
        std::vector<double> starts;
        std::vector<double> amounts;
        for (std::size_t f = 0; f < c.flows.size(); ++f) {
            starts.push_back(SimTime::from_seconds(2 * random.uniform()).seconds());
            amounts.push_back(1 + 10 * random.uniform());
            script.at(starts.back(), c.flows[f], amounts.back(), c.bounds[f]);
        }
        const double change_at = SimTime::from_seconds(2 * random.uniform()).seconds();
        const double capacity = c.capacities[0] * (0.2 + 2 * random.uniform());
        struct Change final : EventHandler {
            FluidModel& fluid;
            double capacity;
            Change(FluidModel& model, double units) : fluid(model), capacity(units) {}
            void on_event(std::uint32_t) override { fluid.set_capacity(ResourceId(0), capacity); }
        } change(fluid, capacity);
        engine.schedule(SimTime::from_seconds(change_at), event_order(Phase::device, 1, 0), engine.add_handler(change),
                        0);
        engine.run();
        const std::vector<double> expected = completions_by_brute_force(c, starts, amounts, change_at, capacity);
        for (std::size_t f = 0; f < starts.size(); ++f) {
            REQUIRE(script.done[f] == doctest::Approx(expected[f]).epsilon(1e-9));
        }
    }
}

TEST_CASE("whom one link frees stays at the level at which another has just saturated") {
    Engine engine;
    FluidModel fluid(engine);
    for (const double capacity : {9, 13, 17, 5, 20, 32}) {
        fluid.add_resource(capacity);
    }
    const auto over = [&](std::initializer_list<std::uint32_t> links) {
        std::vector<Demand> demands;
        for (const std::uint32_t link : links) {
            demands.push_back({ResourceId(link), 1});
        }
        return fluid.hold(demands);
    };
    const ClassId flows[] = {over({0, 1, 2, 4}), over({0, 2, 3, 4}), over({1, 2}),
                             over({2, 5}),       over({0, 1}),       over({1, 2, 3, 4, 5})};
    for (std::uint64_t f = 0; f < 6; ++f) {
        fluid.start(flows[f], 1e4, ListenerId(0), f);
    }
    fluid.settle();
    CHECK(fluid.rate(flows[2]) == 4);
    CHECK(fluid.rate(flows[3]) == 4.75);
    // Link 2 now saturates at 4, where link 1 held flow 2 back until now.
    (void)fluid.cancel({flows[4], ListenerId(0), 4});
    fluid.settle();
    const double expected[] = {4, 2.5, 4, 4, 0, 2.5};
    for (std::size_t f = 0; f < 6; ++f) {
        CHECK(fluid.rate(flows[f]) == expected[f]);
    }
}

TEST_CASE("among small whole capacities, where most levels tie, rates equal brute force as flows come and go") {
    for (int round = 0; round < 1000 * test::scale(); ++round) {
        RandomStream random(static_cast<std::uint64_t>(round), "ties");
        Engine engine;
        FluidModel fluid(engine);
        test::Case all{{}, {}, {}};
        const std::size_t links = 2 + random.below(6);
        for (std::size_t i = 0; i < links; ++i) {
            all.capacities.push_back(1 + static_cast<double>(random.below(12)));
            fluid.add_resource(all.capacities.back());
        }
        std::vector<ClassId> ids;
        for (std::size_t f = 0; f < 12; ++f) {
            all.flows.push_back({{ResourceId(random.below(links)), 1}});
            for (std::uint32_t r = 0; r < links; ++r) {
                if (random.below(3) == 0 && all.flows[f][0].resource != ResourceId(r)) {
                    all.flows[f].push_back({ResourceId(r), 1});
                }
            }
            ids.push_back(fluid.hold(all.flows[f]));
        }
        std::vector<bool> live(ids.size(), false);
        for (int step = 0; step < 40; ++step) {
            const std::size_t f = random.below(ids.size());
            if (live[f]) {
                (void)fluid.cancel({ids[f], ListenerId(0), f});
            } else {
                fluid.start(ids[f], 1e4, ListenerId(0), f);
            }
            live[f] = !live[f];
            fluid.settle();
            test::Case now{all.capacities, {}, {}};
            for (std::size_t i = 0; i < ids.size(); ++i) {
                if (live[i]) {
                    now.flows.push_back(all.flows[i]);
                    now.bounds.push_back(ResourceModel::kUnbounded);
                }
            }
            const std::vector<double> expected = test::brute_force(now);
            std::size_t next = 0;
            for (std::size_t i = 0; i < ids.size(); ++i) {
                if (live[i]) {
                    REQUIRE(fluid.rate(ids[i]) == doctest::Approx(expected[next++]).epsilon(1e-12));
                }
            }
        }
    }
}

TEST_CASE("what one link holds back finishes in the order of its amounts, however often the level changes") {
    // Each flow has a demand of its own beside the link, so that each is a class.
    constexpr int kFlows = 40;
    Engine engine;
    FluidModel fluid(engine);
    const ResourceId link = fluid.add_resource(kFlows);
    Script script(engine, fluid);
    for (int i = 0; i < kFlows; ++i) {
        script.at(0, {{link, 1}, {fluid.add_resource(1000), 1}}, 10 + i);
    }
    engine.run();
    // While n are left each is served kFlows / n: the last unit of flow i takes (kFlows - i) / kFlows.
    double at = 10;
    for (int i = 0; i < kFlows; ++i) {
        CHECK(script.done[static_cast<std::size_t>(i)] == doctest::Approx(at).epsilon(1e-12));
        at += static_cast<double>(kFlows - i - 1) / kFlows;
    }
    CHECK(fluid.solves() == kFlows + 1);
}

TEST_CASE("scaling all capacities by k divides all times by k") {
    for (int round = 0; round < 100; ++round) {
        std::vector<double> times[2];
        for (const int k : {1, 4}) {
            RandomStream random(static_cast<std::uint64_t>(round), "scaling");
            const test::Case c = test::random_case(random);
            Engine engine;
            FluidModel fluid(engine);
            for (const double capacity : c.capacities) {
                fluid.add_resource(capacity * k);
            }
            Script script(engine, fluid);
            for (std::size_t f = 0; f < c.flows.size(); ++f) {
                script.at(random.uniform() / k, c.flows[f], 1 + 10 * random.uniform(), c.bounds[f] * k);
            }
            engine.run();
            times[k == 1 ? 0 : 1] = script.done;
        }
        for (std::size_t f = 0; f < times[0].size(); ++f) {
            REQUIRE(times[1][f] * 4 == doctest::Approx(times[0][f]).epsilon(1e-9));
        }
    }
}

TEST_CASE("what passes a resource is what was sent, and never more than it can carry") {
    for (int round = 0; round < 200; ++round) {
        RandomStream random(static_cast<std::uint64_t>(round), "conservation");
        const test::Case c = test::random_case(random);
        Engine engine;
        FluidModel fluid(engine);
        for (const double capacity : c.capacities) {
            fluid.add_resource(capacity);
        }
        Script script(engine, fluid);
        std::vector<double> sent(c.capacities.size(), 0);
        for (std::size_t f = 0; f < c.flows.size(); ++f) {
            const double amount = 1 + 10 * random.uniform();
            script.at(3 * random.uniform(), c.flows[f], amount, c.bounds[f]);
            for (const Demand& d : c.flows[f]) {
                sent[d.resource.value()] += d.weight * amount;
            }
        }
        engine.run();
        for (std::uint32_t r = 0; r < sent.size(); ++r) {
            REQUIRE(fluid.carried(ResourceId(r)) == doctest::Approx(sent[r]).epsilon(1e-9));
            REQUIRE(sent[r] <= c.capacities[r] * engine.now().seconds() * (1 + 1e-9));
        }
    }
}

TEST_CASE("a completion window never completes early, and delays by at most a window for each completion so far") {
    for (int round = 0; round < 50; ++round) {
        std::vector<double> exact;
        std::vector<double> windowed;
        for (const double window : {0.0, 0.01}) {
            RandomStream random(static_cast<std::uint64_t>(round), "window");
            Engine engine;
            FluidModel fluid(engine, SimTime::from_seconds(window));
            const ResourceId link = fluid.add_resource(10);
            Script script(engine, fluid);
            for (int i = 0; i < 20; ++i) {
                script.at(0, {{link, 1}}, 1 + random.uniform());
            }
            engine.run();
            (window == 0 ? exact : windowed) = script.done;
        }
        for (std::size_t i = 0; i < exact.size(); ++i) {
            CHECK(windowed[i] >= exact[i] - 1e-12);
            CHECK(windowed[i] <= exact[i] + 20 * 0.01);
        }
    }
}

TEST_CASE("analytic sharing equals fluid without contention and serialises with it") {
    Engine engine;
    AnalyticModel analytic(engine);
    const ResourceId a = analytic.add_resource(10);
    const ResourceId b = analytic.add_resource(20);
    Script script(engine, analytic);
    script.at(0, {{a, 1}, {b, 1}}, 50);
    script.at(1, {{a, 1}}, 50);       // waits for the first: no link carries more than it can
    script.at(20, {{b, 1}}, 40, 10);  // its own bound
    engine.run();
    CHECK(script.done[0] == 5);
    CHECK(script.done[1] == 10);
    CHECK(script.done[2] == 24);
}

TEST_CASE("the executor runs dependencies in order and names what can never finish") {
    TaskGraph graph;
    Task task;
    task.name = graph.name("work");
    task.duration = SimTime::from_seconds(1);
    const TaskId first = graph.add(task);
    const TaskId second = graph.add(task);
    const std::uint32_t set = graph.add_demands({Demand{ResourceId(0), 1}});
    task.name = graph.name("move");
    const TaskId move = graph.add_activity(task, set, 30);
    graph.add_edge(first, second);
    graph.add_edge(second, move);
    graph.freeze();
    for (const double capacity : {10.0, 0.0}) {
        Simulation simulation;
        (void)simulation.resources().add_resource(capacity);
        const Executor& executor = simulation.add(graph);
        if (capacity > 0) {
            simulation.run();
            CHECK(executor.finished_at().seconds() == 6);  // 1 + 1 + latency 1 + 30 / 10
            CHECK(executor.start_of(move).seconds() == 2);
            CHECK(executor.released_by(move) == second);
        } else {
            CHECK_THROWS_WITH_AS(simulation.run(), doctest::Contains("'move'"), InfeasibleError);
        }
    }
}

namespace {
// Two compute steps, then a transfer; a third step is decided by what the first brought.
class Reactive final : public TaskSource {
  public:
    void begin(Dispatcher& d) override {
        const Demand whole{d.resources().add_resource(10), 1};
        link_ = d.keep(std::span(&whole, 1));
        d.delay(SimTime::from_seconds(1), 0, 1);
        d.delay(SimTime::from_seconds(2), 0, 2);
    }
    void on_done(std::uint64_t token, Dispatcher& d) override {
        log.push_back({token, d.now().seconds()});
        if (token == 1) {
            d.share(link_, 30, SimTime::from_seconds(0.5), 0, 3);
        } else if (token == 3) {
            d.delay(SimTime(), 0, 4);
        }
    }
    std::vector<std::pair<std::uint64_t, double>> log;

  private:
    ClassId link_;
};
}  // namespace

TEST_CASE("a reactive source starts work as other work finishes") {
    Simulation simulation;
    Reactive source;
    (void)simulation.add(source);
    simulation.run();
    const std::vector<std::pair<std::uint64_t, double>> expected = {{1, 1}, {2, 2}, {3, 4.5}, {4, 4.5}};
    CHECK(source.log == expected);
}

TEST_CASE("a task graph with a cycle is an error") {
    TaskGraph graph;
    const TaskId a = graph.add(Task{});
    const TaskId b = graph.add(Task{});
    graph.add_edge(a, b);
    graph.add_edge(b, a);
    graph.freeze();
    Simulation simulation;
    (void)simulation.add(graph);
    CHECK_THROWS_WITH_AS(simulation.run(), doctest::Contains("cycle"), InternalError);
}

TEST_CASE(
    "all that send to all over hashed links are filled few times each, though no two of them share the same links") {
    constexpr std::uint32_t kHosts = 48;
    constexpr std::uint32_t kSpines = 6;
    Engine engine;
    FluidModel fluid(engine);
    std::vector<ResourceId> links;
    for (std::uint32_t i = 0; i < 2 * kHosts + 2 * kSpines; ++i) {
        links.push_back(fluid.add_resource(i < 2 * kHosts ? 1 : kHosts / 2.0 / kSpines));
    }
    Script script(engine, fluid);
    for (std::uint32_t i = 0; i < kHosts; ++i) {
        for (std::uint32_t k = 1; k < kHosts; ++k) {
            const std::uint32_t to = (i + k) % kHosts;
            const bool crosses = i / (kHosts / 2) != to / (kHosts / 2);
            const auto spine = static_cast<std::uint32_t>(mix64(std::uint64_t{i} * kHosts + to) % kSpines);
            std::vector<Demand> demands = {{links[i], 1}};
            if (crosses) {
                demands.push_back({links[2 * kHosts + i / (kHosts / 2) * kSpines + spine], 1});
            }
            demands.push_back({links[kHosts + to], 1});
            script.at(crosses ? 0.01 : 0, demands, 1);
        }
    }
    engine.run();
    // The last to come are those through the fullest of the hashed links, which never idles.
    CHECK(*std::max_element(script.done.begin(), script.done.end()) > kHosts - 1);
    MESSAGE("filled ", fluid.classes_filled(), " times in ", fluid.solves(), " solves");
    CHECK(fluid.classes_filled() < 3 * kHosts * (kHosts - 1));
}
