// Resources and activities that change while work is under way, in every model.

#include "sim/engine/fluid.hpp"
#include "sim/network/analytic.hpp"
#include "sim/network/packet/packet_model.hpp"
#include "sim/network/simgrid_job.hpp"
#include "tests/support/fabrics.hpp"
#include "tests/support/max_min.hpp"
#include "tests/support/packets.hpp"
#include "tests/support/support.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <set>

using namespace orrery;

namespace {

using What = SimgridJob::Change::What;

// Runs given actions at given times; notes when each activity finishes.
class History final : public EventHandler, public ActivityListener {
  public:
    History(Engine& engine, ResourceModel& model)
        : engine_(engine), model_(model), handler_(engine.add_handler(*this)), listener_(model.add_listener(*this)) {}

    void at(double seconds, std::function<void()> action) {
        const auto index = static_cast<std::uint32_t>(actions_.size());
        actions_.push_back(std::move(action));
        engine_.schedule(SimTime::from_seconds(seconds), event_order(Phase::device, 0, index), handler_, index);
    }
    ActivityHandle start(ClassId of, double amount, std::uint64_t token) {
        done.resize(std::max<std::size_t>(done.size(), token + 1), -1);
        model_.start(of, amount, listener_, token);
        return {of, listener_, token};
    }
    void on_event(std::uint32_t index) override { actions_[index](); }
    void on_activity_done(std::uint64_t token) override { done[token] = engine_.now().seconds(); }

    std::vector<double> done;

  private:
    Engine& engine_;
    ResourceModel& model_;
    std::uint32_t handler_;
    ListenerId listener_;
    std::vector<std::function<void()>> actions_;
};

std::vector<Demand> on(ResourceId resource) {
    return {Demand{resource, 1}};
}

}  // namespace

TEST_CASE("analytic: what does not use a link goes on as it is when that changes") {
    Engine engine;
    AnalyticModel model(engine);
    const ResourceId bundle = model.add_resource(4);
    const ResourceId one = model.add_resource(1);
    const ResourceId two = model.add_resource(1);
    const ResourceId other = model.add_resource(1);
    const std::vector<Demand> first = {{bundle, 1}, {one, 1}};
    const std::vector<Demand> second = {{bundle, 1}, {two, 1}};
    History history(engine, model);
    history.at(0, [&] {
        history.start(model.hold(first), 4, 0);
        history.start(model.hold(second), 4, 1);
    });
    history.at(2, [&] { model.set_capacity(other, 0.5); });
    engine.run();
    CHECK(history.done[0] == doctest::Approx(4));
    CHECK(history.done[1] == doctest::Approx(4));  // the bundle is done with both after two seconds
}

TEST_CASE("analytic: transfers that start together end when their most loaded resource is done, whatever their order") {
    // Every sender to every receiver over one narrow link between the halves: as in an all-to-all that leaves a leaf.
    for (const double narrow : {1.0, 4.0, 100.0}) {
        CAPTURE(narrow);
        Engine engine;
        AnalyticModel model(engine);
        const ResourceId up = model.add_resource(narrow);
        std::vector<ResourceId> out;
        std::vector<ResourceId> in;
        for (int i = 0; i < 4; ++i) {
            out.push_back(model.add_resource(2));
            in.push_back(model.add_resource(2));
        }
        History history(engine, model);
        history.at(0, [&] {
            for (std::size_t from = 0; from < 4; ++from) {
                for (std::size_t to = 0; to < 4; ++to) {
                    const std::vector<Demand> path = {{out[from], 1}, {up, 1}, {in[to], 1}};
                    (void)history.start(model.hold(path), 1, 4 * from + to);
                }
            }
        });
        engine.run();
        double last = 0;
        for (std::size_t i = 0; i < 16; ++i) {
            last = std::max(last, history.done[i]);
        }
        CHECK(last == doctest::Approx(std::max(4 / 2.0, 16 / narrow)));
    }
}

TEST_CASE("a link beside a narrower one that all its flows use binds once one comes without it, or the other widens") {
    Engine engine;
    FluidModel fluid(engine);
    const ResourceId narrow = fluid.add_resource(5);
    const ResourceId wide = fluid.add_resource(6);
    const ResourceId left = fluid.add_resource(100);
    const ResourceId right = fluid.add_resource(100);
    const std::vector<Demand> over_left = {{wide, 1}, {narrow, 1}, {left, 1}};
    const std::vector<Demand> over_right = {{wide, 1}, {narrow, 1}, {right, 1}};
    History history(engine, fluid);
    history.at(0, [&] {
        history.start(fluid.hold(over_left), 12, 0);
        history.start(fluid.hold(over_right), 12, 1);
    });
    history.at(1, [&] { history.start(fluid.hold(on(wide)), 17, 2); });
    history.at(2, [&] { fluid.set_capacity(narrow, 3); });
    history.at(4, [&] { fluid.set_capacity(narrow, 100); });
    engine.run();
    // 2.5 each for a second, 2 each of three for a second, 1.5 and 3 for two seconds, then 2 each: 4.5 and 9 are left.
    CHECK(history.done[0] == doctest::Approx(6.25).epsilon(1e-12));
    CHECK(history.done[1] == doctest::Approx(6.25).epsilon(1e-12));
    CHECK(history.done[2] == doctest::Approx(6.25 + 4.5 / 6).epsilon(1e-12));
}

TEST_CASE("a capacity that changes, a suspension and a bound: by hand, fluid and analytic") {
    for (const bool analytic : {false, true}) {
        CAPTURE(analytic);
        Engine engine;
        std::unique_ptr<ResourceModel> model;
        if (analytic) {
            model = std::make_unique<AnalyticModel>(engine);
        } else {
            model = std::make_unique<FluidModel>(engine);
        }
        const ResourceId link = model->add_resource(10);
        const ClassId over = model->hold(on(link));
        History history(engine, *model);
        ActivityHandle one;
        history.at(0, [&] { one = history.start(over, 100, 0); });
        history.at(2, [&] { model->set_capacity(link, 5); });  // 20 done, 80 left
        history.at(4, [&] { model->suspend(one); });           // 70 left
        history.at(7, [&] { model->resume(one); });
        history.at(8, [&] { one = model->set_bound(one, 2.5); });  // 65 left
        history.at(10, [&] { model->set_capacity(link, 0); });     // 60 left
        history.at(20, [&] { model->set_capacity(link, 100); });
        engine.run();
        CHECK(history.done[0] == doctest::Approx(20 + 60 / 2.5).epsilon(1e-12));
        model->release(over);
        model->require_conserved();
    }
}

TEST_CASE("what is cancelled gives back the rest, and the others go on with its share") {
    Engine engine;
    FluidModel fluid(engine);
    const ResourceId link = fluid.add_resource(10);
    const ClassId over = fluid.hold(on(link));
    History history(engine, fluid);
    double left = 0;
    ActivityHandle one;
    history.at(0, [&] {
        one = history.start(over, 100, 0);
        (void)history.start(over, 100, 1);
    });
    history.at(4, [&] { left = fluid.cancel(one); });
    engine.run();
    CHECK(left == doctest::Approx(80));
    CHECK(history.done[0] == -1);
    CHECK(history.done[1] == doctest::Approx(12));
    CHECK(fluid.report(1).max_link_utilisation == doctest::Approx(1));
}

TEST_CASE("analytic: those behind a cancelled transfer move up, and no resource carries more than it can") {
    Engine engine;
    AnalyticModel model(engine);
    const ResourceId link = model.add_resource(10);
    const ClassId over = model.hold(on(link));
    History history(engine, model);
    std::vector<ActivityHandle> all;
    history.at(0, [&] {
        for (std::uint64_t i = 0; i < 3; ++i) {
            all.push_back(history.start(over, 100, i));
        }
    });
    history.at(5, [&] { CHECK(model.cancel(all[0]) == doctest::Approx(50)); });
    engine.run();
    CHECK(history.done == std::vector<double>{-1, 15, 25});
    CHECK(model.report(1).max_link_utilisation == doctest::Approx(1));
}

TEST_CASE("two listeners of one class are each told of their own activities only") {
    Engine engine;
    FluidModel fluid(engine);
    const ClassId over = fluid.hold(on(fluid.add_resource(10)));
    History first(engine, fluid);
    History second(engine, fluid);
    first.at(0, [&] {
        (void)first.start(over, 10, 0);
        (void)second.start(over, 30, 0);
    });
    engine.run();
    CHECK(first.done == std::vector<double>{2});
    CHECK(second.done == std::vector<double>{4});
}

TEST_CASE("after every change of 1,000 random histories rates equal brute-force progressive filling") {
    std::size_t compared = 0;
    for (int round = 0; round < 1000 * test::scale(); ++round) {
        RandomStream random(static_cast<std::uint64_t>(round), "histories");
        test::Case c = test::random_case(random);
        Engine engine;
        FluidModel fluid(engine);
        for (const double capacity : c.capacities) {
            (void)fluid.add_resource(capacity);
        }
        std::vector<std::optional<ActivityHandle>> live(c.flows.size());
        std::set<std::size_t> asleep;
        for (int step = 0; step < 30; ++step) {
            for (std::uint64_t changes = 1 + random.below(3); changes > 0; --changes) {
                const std::size_t f = random.below(c.flows.size());
                switch (random.below(6)) {
                    case 0: {
                        const auto r = static_cast<std::uint32_t>(random.below(c.capacities.size()));
                        c.capacities[r] = static_cast<double>(random.below(20));
                        fluid.set_capacity(ResourceId(r), c.capacities[r]);
                        break;
                    }
                    case 1:
                        if (live[f] && !asleep.contains(f) && (!c.flows[f].empty() || c.bounds[f] < 1e300)) {
                            c.bounds[f] = 0.25 + 5 * random.uniform();
                            live[f] = fluid.set_bound(*live[f], c.bounds[f]);
                        }
                        break;
                    case 2:
                        if (live[f]) {
                            (void)fluid.cancel(*live[f]);
                            asleep.erase(f);
                            live[f].reset();
                        }
                        break;
                    case 3:
                        if (live[f] && asleep.insert(f).second) {
                            fluid.suspend(*live[f]);
                        } else if (live[f]) {
                            fluid.resume(*live[f]);
                            asleep.erase(f);
                        }
                        break;
                    default:
                        if (!live[f]) {
                            const ClassId of = fluid.hold(c.flows[f], c.bounds[f]);
                            fluid.start(of, 1e6, ListenerId(0), f);
                            fluid.release(of);
                            live[f] = ActivityHandle{of, ListenerId(0), f};
                        }
                }
            }
            fluid.settle();
            test::Case now{c.capacities, {}, {}};
            std::vector<std::size_t> flows;
            for (std::size_t f = 0; f < live.size(); ++f) {
                if (live[f] && !asleep.contains(f)) {
                    now.flows.push_back(c.flows[f]);
                    now.bounds.push_back(c.bounds[f]);
                    flows.push_back(f);
                }
            }
            const std::vector<double> expected = test::brute_force(now);
            for (std::size_t i = 0; i < flows.size(); ++i) {
                CAPTURE(round);
                CAPTURE(step);
                REQUIRE(fluid.rate(live[flows[i]]->of) == doctest::Approx(expected[i]).epsilon(1e-9));
                ++compared;
            }
            for (std::uint32_t r = 0; r < c.capacities.size(); ++r) {
                REQUIRE(fluid.load(ResourceId(r)) <= c.capacities[r] * (1 + 1e-12));
            }
        }
    }
    CHECK(compared > 50'000);
}

// SimGrid has no public way to change the bound of a communication that has begun: bounds are left to the test above.
TEST_CASE("1,000 random histories of changes end as SimGrid says, within 1e-9 or 10 ps") {
    const auto self = std::filesystem::read_symlink("/proc/self/exe");
    if (!std::filesystem::exists(self.parent_path() / "orrery-simgrid")) {
        MESSAGE("skipped: this build has no SimGrid");
        return;
    }
    constexpr int kTogether = 40;
    std::size_t compared = 0;
    std::size_t differing = 0;
    double worst = 0;
    for (int batch = 0; batch < 25 * test::scale(); ++batch) {
        SimgridJob job;
        std::vector<double> ours;
        for (int k = 0; k < kTogether; ++k) {
            RandomStream random(static_cast<std::uint64_t>(batch * kTogether + k), "simgrid changes");
            Engine engine;
            FluidModel fluid(engine);
            History history(engine, fluid);
            const auto first_link = static_cast<std::uint32_t>(job.capacities.size());
            const auto first_message = static_cast<std::uint32_t>(job.messages.size());
            const std::size_t links = 1 + random.below(6);
            for (std::size_t i = 0; i < links; ++i) {
                job.capacities.push_back(1e9 * (1 + static_cast<double>(random.below(40))));
                (void)fluid.add_resource(job.capacities.back());
            }
            const std::size_t messages = 1 + random.below(10);
            std::vector<ActivityHandle> handles(messages);
            std::vector<int> state(messages, 0);  // under way, asleep, cancelled
            history.done.assign(messages, -1);
            for (std::size_t m = 0; m < messages; ++m) {
                SimgridJob::Message message;
                message.bytes = 10'000 + random.below(10'000'000);
                message.delay = static_cast<double>(random.below(1000)) * 1e-6;
                std::vector<Demand> demands;
                for (std::uint32_t r = 0; r < links; ++r) {
                    if (random.below(2) == 0 || (demands.empty() && r + 1 == links)) {
                        demands.push_back({ResourceId(r), 1});
                        message.links.push_back(first_link + r);
                    }
                }
                const ClassId of = fluid.hold(demands);
                const auto bytes = static_cast<double>(message.bytes);
                history.at(message.delay, [&, m, of, bytes] { handles[m] = history.start(of, bytes, m); });
                job.messages.push_back(std::move(message));
            }
            std::set<std::size_t> suspended;
            // Beyond the last start, so that both sides change what has begun; at odd nanoseconds, so that nothing ties.
            for (std::uint64_t c = 0; c < 8; ++c) {
                SimgridJob::Change change;
                change.time = 1e-3 + static_cast<double>(1 + 2 * random.below(2'000'000)) * 1e-9;
                const std::uint64_t kind = random.below(4);
                if (kind < 2) {
                    const auto r = static_cast<std::uint32_t>(random.below(links));
                    change.what = What::capacity;
                    change.index = first_link + r;
                    // SimGrid bounds a flow by the capacities that its links had when it began, so none rises above that.
                    change.capacity = job.capacities[first_link + r] * (1 + static_cast<double>(random.below(20))) / 20;
                    history.at(change.time, [&, r, to = change.capacity] { fluid.set_capacity(ResourceId(r), to); });
                    job.changes.push_back(change);
                    continue;
                }
                const std::size_t m = random.below(messages);
                change.index = first_message + static_cast<std::uint32_t>(m);
                const bool cancels = kind == 2;
                if (!cancels && !suspended.insert(m).second) {
                    continue;  // SimGrid counts what is suspended twice as served
                }
                change.what = cancels ? What::cancel : What::suspend;
                history.at(change.time, [&, m, cancels] {
                    if (history.done[m] >= 0 || state[m] == 2) {
                        return;
                    }
                    if (cancels) {
                        (void)fluid.cancel(handles[m]);
                        state[m] = 2;
                    } else {
                        fluid.suspend(handles[m]);
                        state[m] = 1;
                    }
                });
                job.changes.push_back(change);
                if (change.what == What::suspend) {
                    change.what = What::resume;
                    change.time += 10e-3;  // after all other changes
                    history.at(change.time, [&, m] {
                        if (state[m] == 1) {
                            fluid.resume(handles[m]);
                            state[m] = 0;
                        }
                    });
                    job.changes.push_back(change);
                }
            }
            engine.run();
            ours.insert(ours.end(), history.done.begin(), history.done.end());
        }
        const SimgridResult theirs = run_simgrid(job);
        for (std::size_t i = 0; i < ours.size(); ++i) {
            const double difference = std::abs(ours[i] - theirs.completions[i]);
            ++compared;
            if (difference > 10e-12 && difference > 1e-9 * std::abs(theirs.completions[i])) {
                ++differing;
                worst = std::max(worst, difference);
            }
        }
    }
    INFO("compared " << compared << " completions, " << differing << " differ, worst " << worst << " s");
    CHECK(differing == 0);
    CHECK(compared >= 4'000);
}

TEST_CASE(
    "by packet: a rate that changes, a suspension and a cancellation take what the fluid model says, and conserve "
    "packets") {
    const Fabric fabric(test::hosts(4, 2, 2, 50e9, 500e-9));
    PacketSpec spec;
    spec.paths.policy.choose("ecmp");
    const double bytes = 64 * 1048576.0;
    const double alone = bytes * 4160 / 4096 / 50e9;
    for (const int change : {0, 1, 2, 3, 4}) {
        CAPTURE(change);
        Engine engine;
        PacketModel model(engine, fabric, spec, {}, 1, true);
        fabric.add_to(model);
        History history(engine, model);
        const auto flow = [&](std::uint32_t from, std::uint32_t to) {
            const RoutedFlow routed{GpuId(from), GpuId(to)};
            std::vector<Demand> demands;
            const Route route = fabric.route(GpuId(from), GpuId(to), PathChoice::ecmp, 0);
            for (const ResourceId link : route.resources()) {
                demands.push_back({link, 1});
            }
            return model.hold_flows(std::span(&routed, 1), demands);
        };
        const ClassId one = flow(0, 2);
        const ClassId two = flow(1, 2);
        ActivityHandle first;
        history.at(0, [&] {
            first = history.start(one, bytes, 0);
            if (change == 3) {
                (void)history.start(two, bytes, 1);
            }
        });
        double left = 0;
        history.at(alone / 2, [&] {
            if (change == 1) {
                model.set_capacity(fabric.nic_out(0), 25e9);
            } else if (change == 2) {
                model.suspend(first);
            } else if (change == 3) {
                left = model.cancel(first);
            } else if (change == 4) {
                first = model.set_bound(first, 10e9);
            }
        });
        history.at(alone, [&] {
            if (change == 2) {
                model.resume(first);
            }
        });
        engine.run();
        const double expected[] = {alone, 1.5 * alone, 1.5 * alone, 0, alone / 2 + bytes / 2 / 10e9};
        if (change == 3) {
            CHECK(left == doctest::Approx(0.75 * bytes).epsilon(0.03));  // both had half the link
            CHECK(history.done[0] == -1);
            CHECK(history.done[1] == doctest::Approx(1.25 * alone).epsilon(0.03));
        } else {
            CHECK(history.done[0] == doctest::Approx(expected[change]).epsilon(0.02));
        }
        model.release(one);
        model.release(two);
        model.require_conserved();
    }
}

TEST_CASE("by packet: resources beside the fabric are shared as fluids") {
    const Fabric fabric(test::hosts(4, 2, 2, 50e9, 500e-9));
    Simulation simulation(fabric, test::by_packet(PacketSpec()));
    const ResourceId disk = simulation.resources().add_resource(1e9);
    TaskGraph graph;
    const std::uint32_t demands = graph.add_demands({Demand{disk, 1}});
    (void)graph.add_activity(Task{}, demands, 1e9);
    (void)graph.add_activity(Task{}, demands, 1e9);
    graph.freeze();
    const Executor& executor = simulation.add(graph);
    simulation.run();
    CHECK(executor.finished_at().seconds() == 2);
}
