// One run: several jobs on one clock, decisions after all else of their instant, and what is checked at the end.

#include "sim/run/simulation.hpp"

#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"

#include <doctest/doctest.h>

using namespace orrery;

namespace {

// Decides at given times and logs what it saw; a completion of no duration in the same instant comes before the decision.
class Decider final : public TaskSource {
  public:
    void begin(Dispatcher& d) override {
        const Demand whole{d.resources().add_resource(10), 1};
        link_ = d.keep(std::span(&whole, 1));
        d.delay(SimTime(), 0, kDecision, Phase::scheduler);
        d.delay(SimTime(), 1, kFault, Phase::fault);
        d.delay(SimTime(), 9, 1);
        d.share(link_, 0, SimTime(), 0, 2);  // nothing to move: it is done in this instant
    }
    void on_done(std::uint64_t token, Dispatcher& d) override {
        log.push_back(token);
        if (token == 2) {
            d.delay(SimTime(), 0, 3);
        } else if (token == kDecision && log.size() < 6) {
            d.delay(SimTime(), 0, 4);  // what it starts belongs to the same instant
            d.delay(SimTime(), 0, kDecision, Phase::scheduler);
        }
    }
    static constexpr std::uint64_t kDecision = 100;
    static constexpr std::uint64_t kFault = 50;
    std::vector<std::uint64_t> log;

  private:
    ClassId link_;
};

// Asks for tasks of no duration at given entities, and logs what is done beside the other parts of its job.
class Part final : public TaskSource {
  public:
    Part(std::vector<std::uint32_t> entities, std::vector<std::string>& log, std::string name)
        : entities_(std::move(entities)), log_(log), name_(std::move(name)) {}
    void begin(Dispatcher& d) override {
        log_.push_back(name_ + " begins");
        for (const std::uint32_t entity : entities_) {
            d.delay(SimTime(), entity, entity);
        }
    }
    void on_done(std::uint64_t token, Dispatcher& d) override {
        log_.push_back(name_ + std::to_string(token));
        if (token == 1) {
            d.delay(SimTime(), 2, 9);
        }
    }
    void end(Dispatcher&) override { log_.push_back(name_ + " ends"); }

  private:
    std::vector<std::uint32_t> entities_;
    std::vector<std::string>& log_;
    std::string name_;
};

// Forgets to give back what it holds.
class Forgetful final : public TaskSource {
  public:
    void begin(Dispatcher& d) override {
        const Demand whole{d.resources().add_resource(10), 1};
        (void)d.resources().hold(std::span(&whole, 1));
    }
    void on_done(std::uint64_t, Dispatcher&) override {}
};

}  // namespace

TEST_CASE("faults, then decisions come after all else of their instant, and see work that takes no time") {
    Simulation simulation;
    Decider source;
    (void)simulation.add(source);
    simulation.run();
    const std::vector<std::uint64_t> expected = {2, 3, 1, Decider::kFault, Decider::kDecision, 4, Decider::kDecision};
    CHECK(source.log == expected);
}

TEST_CASE("parts of a job begin and end in their order, and their events come by entity, then as they were asked for") {
    for (const double start_s : {0.0, 4.0}) {
        Simulation simulation;
        std::vector<std::string> log;
        Part a({2, 1, 3}, log, "a");
        Part b({1, 0, 2}, log, "b");
        const std::vector<TaskSource*> parts = {&a, &b};
        simulation.add(parts, SimTime::from_seconds(start_s));
        CHECK(simulation.jobs() == 1);
        simulation.run();
        const std::vector<std::string> expected = {"a begins", "b begins", "b0", "a1", "b1",     "a2",
                                                   "b2",       "a9",       "b9", "a3", "a ends", "b ends"};
        CHECK(log == expected);
    }
}

TEST_CASE("jobs of one run share its resources, start when they should, and count their own time") {
    TaskGraph graph;
    const std::uint32_t demands = graph.add_demands({Demand{ResourceId(0), 1}});
    (void)graph.add_activity(Task{}, demands, 100);
    graph.freeze();
    Simulation simulation;
    (void)simulation.resources().add_resource(10);
    const Executor& first = simulation.add(graph);
    const Executor& second = simulation.add(graph, SimTime::from_seconds(4));
    simulation.run();
    // Alone until 4 s, half each until the first has its 100 at 16 s; the second has 60 then, and 40 to go.
    CHECK(first.finished_at().seconds() == 16);
    CHECK(second.finished_at().seconds() == 16);
}

TEST_CASE("a run ends with what must hold: a class that nobody released is an error") {
    Simulation simulation;
    Forgetful source;
    (void)simulation.add(source);
    CHECK_THROWS_WITH_AS(simulation.run(), doctest::Contains("not released"), InternalError);
}

TEST_CASE("fields of the network that mean nothing to a kind, or to a fidelity, are refused with their line") {
    const auto refused = [](const std::string& kind, const std::string& network) {
        return test::refusal("orrery: 1\nkind: " + kind + "\nnetwork: {" + network + "}\n");
    };
    for (const char* kind : {"collective", "network"}) {
        CHECK(refused(kind, "collectives: nccl").find("test.yaml:3:11: error: unknown key 'collectives'") !=
              std::string::npos);
    }
    for (const char* kind : {"network", "serving", "replay"}) {
        CHECK(refused(kind, "fold: false").find("test.yaml:3:11: error: unknown key 'fold'") != std::string::npos);
    }
    for (const char* kind : {"training", "serving", "replay", "cluster"}) {
        CHECK(refused(kind, "fidelity: simgrid").find("test.yaml:3:10: error: fidelity simgrid serves collective") !=
              std::string::npos);
    }
    for (const char* fidelity : {"analytic", "packet", "simgrid"}) {
        CHECK(refused("network", std::string("fidelity: ") + fidelity + ", batch: 1 us")
                  .find("'network.batch' has no effect without network.fidelity: fluid") != std::string::npos);
    }
}

TEST_CASE("serving's KV transfers go over packets: the fluid time plus headers, unloaded") {
    const std::string file = std::string(ORRERY_SOURCE_DIR) + "/scenarios/serving/split-phases-70b.yaml";
    const auto transfer = [&](const char* fidelity) {
        const std::vector<std::string> changes = {std::string("network.fidelity=") + fidelity, "engine.transfer=whole",
                                                  "requests.count=60", "requests.rate=0.2"};
        const Summary summary =
            run_scenario(load_scenario(file, changes, test::data()), test::model_cache(), {}).summary;
        return summary.find("kv_transfer_s.mean")->value;
    };
    const double fluid = transfer("fluid");
    CHECK(transfer("analytic") == doctest::Approx(fluid).epsilon(1e-6));
    const double packets = transfer("packet");
    CHECK(packets > 1.01 * fluid);  // 64 bytes of header to 4,096 of payload
    CHECK(packets < 1.02 * fluid);
}
