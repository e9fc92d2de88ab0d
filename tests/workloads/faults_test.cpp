#include "tests/workloads/faults_support.hpp"
#include "workloads/faults/fault_source.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

namespace orrery {

using test::SteadyJob;

namespace {

ProcessSpec process(Component component, FaultKind kind, double mtbf_s) {
    ProcessSpec out;
    out.component = component;
    out.kind = kind;
    out.mtbf_s = mtbf_s;
    return out;
}

EventSpec event(double at_s, FaultKind kind, const std::string& where, double factor = 1, double lasts_s = 0) {
    EventSpec out;
    out.at_s = at_s;
    out.kind = kind;
    out.where = where;
    out.factor = factor;
    out.lasts_s = lasts_s;
    return out;
}

double fraction(const CampaignResult& run, Cause cause) {
    return static_cast<double>(run.tally[cause]) / static_cast<double>(run.length.ns());
}

double seconds(const CampaignResult& run, Cause cause) {
    return static_cast<double>(run.tally[cause]) * 1e-9;
}

CampaignResult one_run(const FaultsSpec& faults, const JobShape& shape, SteadyJob& job) {
    return run_campaign(plan_campaign(faults, shape, job, {}), job, 1, true);
}

std::vector<double> samples(const std::vector<CampaignResult>& runs, Cause cause) {
    std::vector<double> out;
    for (const CampaignResult& run : runs) {
        out.push_back(fraction(run, cause));
    }
    return out;
}

}  // namespace

TEST_CASE("exponential failures: goodput is that of the closed form of periodic checkpoints") {
    // Daly, FGCS 2006, equation 13, with detection and restart: tau / (M exp((D + R) / M) (exp((tau + C) / M) - 1)).
    struct Set {
        double mtbf, every, stall, detect, restart;
    };
    for (const Set& set : {Set{11135.1, 1156, 60, 120, 300}, Set{11135.1, 4800, 60, 120, 300},
                           Set{50000, 600, 20, 30, 90}, Set{3000, 300, 10, 10, 60}}) {
        CAPTURE(set.mtbf);
        CAPTURE(set.every);
        FaultsSpec faults;
        faults.duration_s = 100 * 86400.0;
        faults.processes = {process(Component::software, FaultKind::fail_stop, set.mtbf)};
        SteadyJob job(4, 1);
        test::set_cycle(faults, job, set.every, set.stall, set.detect, set.restart);
        const CampaignPlan plan = plan_campaign(faults, test::nodes_of_eight(4), job, {});
        const auto runs = run_campaigns(plan, job, 1, 40, 2);
        const MeanInterval found = mean_interval(samples(runs, Cause::useful), 0.95);
        const double expected = set.every / (set.mtbf * std::exp((set.detect + set.restart) / set.mtbf) *
                                             (std::exp((set.every + set.stall) / set.mtbf) - 1));
        CHECK(std::abs(found.mean - expected) < found.half_width);
        CHECK(found.half_width < 0.003);
    }
}

TEST_CASE("the intervals of Young and Daly are those of their papers") {
    const auto seconds_of = [](const char* name, double cost, double mtbf) {
        return CheckpointIntervalChoice(checkpoint_interval_table(), name).make()->seconds(cost, mtbf);
    };
    CHECK(seconds_of("young", 60, 11135.1) == doctest::Approx(1155.9).epsilon(1e-4));
    CHECK(seconds_of("daly", 60, 11135.1) == doctest::Approx(1116.3).epsilon(1e-4));
    CHECK(seconds_of("daly", 100, 40) == 40);
}

TEST_CASE("time between failures is that of a component over their number, whatever the process") {
    for (const char* law : {"exponential", "weibull", "burst"}) {
        CAPTURE(law);
        FaultsSpec faults;
        faults.duration_s = 400 * 86400.0;
        ProcessSpec one = process(Component::gpu, FaultKind::slow, 20 * 86400.0);
        one.law.choose(law);
        one.factor = 0.9;
        one.lasts_s = 10;
        faults.processes = {one};
        SteadyJob job(4, 10);
        test::set_cycle(faults, job, 1e6, 0, 0, 0);
        const CampaignResult run = one_run(faults, test::nodes_of_eight(4), job);
        const double expected = 400.0 / 20 * 32;
        // Weibull of shape 0.7 starts with more failures than its long-run rate: (cv^2 - 1) / 2 = 0.57 a component.
        const double early = std::string(law) == "weibull" ? 0.57 * 32 : 0;
        const double spread = std::string(law) == "exponential" ? 1 : 2.3;  // sd over that of a Poisson process
        CHECK(std::abs(static_cast<double>(run.faults) - expected - early) < 3 * spread * std::sqrt(expected));
    }
}

TEST_CASE(
    "a source of faults counts the components of a job's machines, or each replica as one, and says what they suffer") {
    JobShape shape;
    shape.nodes = 4;
    shape.gpus_per_node = 8;
    shape.replicas = 3;
    ProcessSpec gpus = process(Component::gpu, FaultKind::slow, 3200);
    gpus.factor = 0.5;
    gpus.lasts_s = 60;
    ProcessSpec replicas = process(Component::replica, FaultKind::hang, 3200);
    replicas.bad_factor = 1000;
    FaultSource of_gpus(gpus, shape, 1, "strikes", "lasts");
    FaultSource of_replicas(replicas, shape, 1, "strikes", "lasts");
    CHECK((of_gpus.of_machines() && of_gpus.machines() == 4));
    CHECK((!of_replicas.of_machines() && of_replicas.machines() == 3));
    of_replicas.set_bad(2, true);
    of_gpus.begin();
    of_replicas.begin();
    constexpr int kStrikes = 4000;
    std::vector<TimedFault> struck;
    double lasts = 0;
    int bad = 0;
    for (int i = 0; i < kStrikes; ++i) {
        struck.clear();
        of_gpus.strike(struck);
        const Fault fault = struck.front().fault;
        CHECK((fault.kind == FaultKind::slow && fault.factor == 0.5 && fault.place.what == Place::What::gpu));
        CHECK(fault.place.index < 32);
        lasts += fault.lasts_s / kStrikes;
        struck.clear();
        of_replicas.strike(struck);
        const Fault hang = struck.front().fault;
        CHECK((hang.place.what == Place::What::replica && hang.lasts_s == 0));
        bad += hang.place.index == 2 ? 1 : 0;
    }
    // 32 GPUs; 1,002 times the rate of one replica, nearly all of it of the bad one.
    CHECK(of_gpus.next() / (kStrikes + 1) == doctest::Approx(100).epsilon(0.05));
    CHECK(of_replicas.next() / (kStrikes + 1) == doctest::Approx(3200.0 / 1002).epsilon(0.05));
    CHECK(lasts == doctest::Approx(60).epsilon(0.05));
    CHECK(bad > 0.99 * kStrikes);
    // A machine that takes the place of the bad one is as the others.
    of_replicas.set_bad(2, false);
    const double now = of_replicas.next();
    of_replicas.replaced(2, now);
    CHECK(of_replicas.next() > now);
}

TEST_CASE(
    "a source of given faults strikes with each at its time, those of one time in their order, and then no more") {
    const auto slow = [](double at_s, std::uint32_t gpu) {
        return TimedFault{at_s, {FaultKind::slow, {Place::What::gpu, gpu}, 0.5, 60}};
    };
    FaultSource source({slow(20, 0), slow(10, 1), slow(20, 2)});
    source.begin();
    CHECK((source.is_given() && !source.of_machines() && !source.while_running()));
    std::vector<TimedFault> struck;
    for (const double at_s : {10, 20, 20}) {
        CHECK(source.next() == at_s);
        source.strike(struck);
    }
    CHECK(std::isinf(source.next()));
    REQUIRE(struck.size() == 3);
    for (const auto& [i, gpu] : {std::pair{0U, 1U}, {1U, 0U}, {2U, 2U}}) {
        CHECK(struck[i].fault.place.index == gpu);
        CHECK((struck[i].at_s == 0 && struck[i].fault.lasts_s == 60));
    }
}

TEST_CASE("a pool gives standbys first, then its own machines and spares, and refills standbys with repaired ones") {
    SpareSpec spec;
    spec.standbys = 1;
    spec.pool = 1;
    spec.spares = 1;
    spec.exponential_repair = false;
    spec.automatic = {100, 0};
    spec.manual = {1000, 1};
    SparePool pool(spec, 8, 1, "repairs", "draws");
    for (const auto& [machine, after_s] : {std::pair{8U, 0.0}, {9U, spec.join_s}, {10U, spec.borrow_s}}) {
        CHECK(pool.available() == 11 - machine);
        const SparePool::Taken taken = pool.take();
        CHECK((taken.machine == machine && taken.after_s == after_s));
    }
    CHECK(pool.take().machine == SparePool::kNone);
    CHECK((pool.counts().pool_joins == 1 && pool.counts().borrowed == 1));
    const SparePool::Repair repair = pool.repair(3, 0);
    CHECK((repair.works && !repair.retired && repair.seconds == 100));
    pool.give_back(3);
    CHECK(pool.take().after_s == 0);  // it stood by
    spec.to_manual = 1;
    spec.retire_after = 2;
    spec.retire_window_s = 50;
    SparePool wary(spec, 8, 1, "repairs", "draws");
    const SparePool::Repair both = wary.repair(3, 0);
    CHECK((!both.works && both.seconds == 1100));
    CHECK(!wary.repair(3, 60).retired);
    CHECK(wary.repair(3, 90).retired);
    CHECK((wary.counts().manual_repairs == 2 && wary.counts().failed_repairs == 2 && wary.counts().retired == 1));
}

TEST_CASE("a machine that is bad fails as many times as often, until it is mended") {
    FaultsSpec faults;
    faults.duration_s = 300 * 86400.0;
    ProcessSpec one = process(Component::gpu, FaultKind::slow, 30 * 86400.0);
    one.factor = 0.9;
    one.lasts_s = 1;
    one.bad_share = 1;
    one.bad_factor = 6;
    faults.processes = {one};
    SteadyJob job(4, 10);
    test::set_cycle(faults, job, 1e6, 0, 0, 0);
    const double expected = 6 * 300.0 / 30 * 32;
    CHECK(static_cast<double>(one_run(faults, test::nodes_of_eight(4), job).faults) ==
          doctest::Approx(expected).epsilon(3 / std::sqrt(expected)));
    // The first failure of each of the 4 machines is at six times the rate; repair mends it.
    faults.processes[0].kind = FaultKind::fail_stop;
    faults.processes[0].factor = 1;
    faults.processes[0].lasts_s = 0;
    faults.recovery.automatic = {60, 0};
    const double once_bad = 300.0 / 30 * 32;
    CHECK(static_cast<double>(one_run(faults, test::nodes_of_eight(4), job).faults) ==
          doctest::Approx(once_bad).epsilon(3.5 / std::sqrt(once_bad)));
}

TEST_CASE("availability of k of n machines with repair is that of the Markov chain") {
    // States by machines in repair; those in the job fail, those that stand by do not; every repair goes on by itself.
    const std::uint32_t k = 8;
    const double fails = 1.0 / (3 * 86400);
    const double repaired = 1.0 / 40000;
    for (const std::uint32_t spares : {0U, 1U, 3U}) {
        CAPTURE(spares);
        std::vector<double> weight = {1};
        for (std::uint32_t j = 0; j < k + spares; ++j) {
            const double rate = (j <= spares ? k : k + spares - j) * fails;
            weight.push_back(weight.back() * rate / ((j + 1) * repaired));
        }
        const double all = std::accumulate(weight.begin(), weight.end(), 0.0);
        const double up = std::accumulate(weight.begin(), weight.begin() + spares + 1, 0.0) / all;
        FaultsSpec faults;
        faults.duration_s = 100 * 86400.0;
        faults.processes = {process(Component::host, FaultKind::fail_stop, 1 / fails)};
        faults.recovery.standbys = spares;
        faults.recovery.automatic = {1 / repaired, 0};
        SteadyJob job(k, 3600);
        test::set_cycle(faults, job, 3600, 0, 0, 0);
        const CampaignPlan plan = plan_campaign(faults, test::nodes_of_eight(k), job, {});
        const auto runs = run_campaigns(plan, job, 1, 400, 2);
        const MeanInterval waiting = mean_interval(samples(runs, Cause::hardware), 0.95);
        CHECK(std::abs(waiting.mean - (1 - up)) < waiting.half_width);
    }
}

TEST_CASE("checkpoints in memory survive exactly the losses that their code allows") {
    struct Code {
        std::uint32_t groups, group, parity;
    };
    const auto choose = [](std::uint64_t n, std::uint64_t r) {
        std::uint64_t out = 1;
        for (std::uint64_t i = 0; i < r; ++i) {
            out = out * (n - i) / (i + 1);
        }
        return out;
    };
    for (const Code& code : {Code{4, 2, 1}, Code{2, 4, 1}, Code{3, 4, 2}, Code{1, 10, 3}}) {
        const std::uint32_t nodes = code.groups * code.group;
        // Survivors among all choices of lost nodes: coefficients of (sum of C(g, i) x^i for i <= parity)^groups.
        std::vector<std::uint64_t> good(nodes + 1);
        good[0] = 1;
        for (std::uint32_t g = 0; g < code.groups; ++g) {
            std::vector<std::uint64_t> next(nodes + 1);
            for (std::uint32_t a = 0; a <= nodes; ++a) {
                for (std::uint32_t i = 0; i <= code.parity && a + i <= nodes; ++i) {
                    next[a + i] += good[a] * choose(code.group, i);
                }
            }
            good = next;
        }
        std::vector<std::uint64_t> found(nodes + 1);
        for (std::uint32_t subset = 0; subset < 1U << nodes; ++subset) {
            std::vector<std::uint32_t> lost;
            for (std::uint32_t node = 0; node < nodes; ++node) {
                if ((subset >> node & 1U) != 0) {
                    lost.push_back(node);
                }
            }
            found[lost.size()] += survives(lost, code.group, code.parity) ? 1 : 0;
        }
        CHECK(found == good);
    }
}

TEST_CASE("one failure costs the work since the checkpoint, detection and restart, to the nanosecond") {
    FaultsSpec faults;
    faults.duration_s = 20000;
    faults.recovery.standbys = 1;
    faults.events = {event(5000, FaultKind::fail_stop, "gpu3")};
    SteadyJob job(4, 1);
    test::set_cycle(faults, job, 1000, 60, 120, 300);
    const CampaignResult run = one_run(faults, test::nodes_of_eight(4), job);
    // Checkpoints start at 1000, 2060, 3120, 4180 s and end 60 s later; at 5000 s training has gone on for 760 s.
    CHECK(run.tally[Cause::lost_work] == 760'000'000'000);
    CHECK(run.tally[Cause::detection] == 120'000'000'000);
    CHECK(run.tally[Cause::restart] == 240'000'000'000);
    CHECK(run.tally[Cause::load] == 60'000'000'000);
    CHECK(run.interruptions == 1);
    CHECK(run.recovering == CampaignTime::from_seconds(420));
    CHECK(run.tally.total() == 20'000'000'000'000);
}

TEST_CASE("without faults everything but the stall of checkpoints is useful") {
    FaultsSpec faults;
    faults.duration_s = 86400;
    SteadyJob job(4, 7);
    const CampaignResult plain = one_run(faults, test::nodes_of_eight(4), job);
    CHECK(plain.tally[Cause::useful] == plain.length.ns());
    test::set_cycle(faults, job, 700, 20, 0, 20);
    const CampaignResult saves = one_run(faults, test::nodes_of_eight(4), job);
    CHECK(saves.tally[Cause::checkpoint] == 120 * 20'000'000'000);  // one in 720 s
    CHECK(saves.tally[Cause::useful] + saves.tally[Cause::checkpoint] == saves.length.ns());
}

TEST_CASE("checkpoints that take no time cost the same whether they are simulated one by one or not") {
    FaultsSpec faults;
    faults.duration_s = 30 * 86400.0;
    faults.recovery.standbys = 4;
    faults.processes = {process(Component::host, FaultKind::fail_stop, 2 * 86400.0),
                        process(Component::gpu, FaultKind::power_cap, 3 * 86400.0)};
    faults.processes[1].component = Component::host;
    faults.processes[1].factor = 0.7;
    faults.processes[1].lasts_s = 3000;
    SteadyJob job(4, 7);
    test::set_cycle(faults, job, 700, 0, 30, 90);
    const CampaignResult at_once = one_run(faults, test::nodes_of_eight(4), job);
    faults.recovery.shrinks = true;  // may then act at any checkpoint, and never has to
    job.least = 5;
    const CampaignResult each = one_run(faults, test::nodes_of_eight(4), job);
    CHECK(at_once.checkpoints == each.checkpoints);
    CHECK(at_once.events < each.events / 10);
    CHECK(seconds(at_once, Cause::lost_work) == doctest::Approx(seconds(each, Cause::lost_work)).epsilon(0.01));
    CHECK(fraction(at_once, Cause::useful) == doctest::Approx(fraction(each, Cause::useful)).epsilon(1e-3));
}

TEST_CASE("an outage of the store holds up a blocking checkpoint and no asynchronous one") {
    FaultsSpec faults;
    faults.duration_s = 20000;
    faults.events = {event(10000, FaultKind::outage, "storage", 1, 3600)};
    SteadyJob job(4, 1);
    test::set_cycle(faults, job, 1156, 60, 0, 60);
    const CampaignResult blocking = one_run(faults, test::nodes_of_eight(4), job);
    // The ninth checkpoint would start at 10884 s and waits until 13600 s.
    CHECK(blocking.tally[Cause::storage] == 2716'000'000'000);
    faults.checkpoint.method.choose("asynchronous");
    const CampaignResult copies = one_run(faults, test::nodes_of_eight(4), job);
    // The one that started at 10404 s is on its way until 13600 s; the next waits from 11560 s on.
    CHECK(seconds(copies, Cause::storage) == doctest::Approx(13600 - 11560));
}

TEST_CASE("a checkpoint that is still being written when the job goes back behind it is never there") {
    FaultsSpec faults;
    faults.duration_s = 2000;
    faults.events = {event(1100, FaultKind::fail_stop, "job"), event(1400, FaultKind::fail_stop, "job")};
    faults.checkpoint.method.choose("asynchronous");
    SteadyJob job(4, 1);
    test::set_cycle(faults, job, 1000, 300, 10, 310);
    const CampaignResult run = one_run(faults, test::nodes_of_eight(4), job);
    // The write from 1000 s on would end at 1300 s. From 1120 s on the job repeats all; so it does from 1420 s on.
    CHECK(run.checkpoints == 0);
    CHECK(seconds(run, Cause::lost_work) == doctest::Approx(1100 + 280));
    CHECK(seconds(run, Cause::useful) == doctest::Approx(580));
}

TEST_CASE("a store at half its bandwidth takes twice as long") {
    FaultsSpec faults;
    faults.duration_s = 10000;
    faults.events = {event(0, FaultKind::degraded, "storage", 0.5)};
    SteadyJob job(4, 1);
    test::set_cycle(faults, job, 1000, 60, 0, 60);
    // The ninth begins at 9960 s.
    CHECK(one_run(faults, test::nodes_of_eight(4), job).tally[Cause::checkpoint] == (8 * 120 + 40) * 1'000'000'000LL);
}

TEST_CASE("what slows the job is booked to what slows it, from its instant on") {
    FaultsSpec faults;
    faults.duration_s = 10000;
    faults.events = {event(1000.5, FaultKind::slow, "gpu9", 0.5, 2000)};
    SteadyJob job(4, 10);
    const CampaignResult run = one_run(faults, test::nodes_of_eight(4), job);
    CHECK(run.tally[Cause::stragglers] == 1000'000'000'000);
    CHECK(run.tally[Cause::useful] == 9000'000'000'000);
    faults.events = {event(100, FaultKind::link_flap, "nic2", 1, 3)};
    const CampaignResult flap = one_run(faults, test::nodes_of_eight(4), job);
    CHECK(flap.tally[Cause::network] == 3'000'000'000);
    CHECK(flap.interruptions == 0);
    faults.events = {event(100, FaultKind::power_cap, "job", 0.8, 1000)};
    CHECK(one_run(faults, test::nodes_of_eight(4), job).tally[Cause::power] == 200'000'000'000);
}

TEST_CASE("a link that is down for longer than connections try fails the job") {
    FaultsSpec faults;
    faults.duration_s = 10000;
    faults.recovery.standbys = 1;
    faults.events = {event(100, FaultKind::link_flap, "nic2", 1, 31)};
    SteadyJob job(4, 10);
    test::set_cycle(faults, job, 1000, 0, 5, 100);
    const CampaignResult run = one_run(faults, test::nodes_of_eight(4), job);
    CHECK(run.interruptions == 1);
    CHECK(run.tally[Cause::detection] == 30'000'000'000);
    CHECK(run.replaced == 1);
}

TEST_CASE("hangs are found by the time-out, or by watching collectives") {
    FaultsSpec faults;
    faults.duration_s = 10000;
    faults.events = {event(1000, FaultKind::hang, "gpu0")};
    SteadyJob job(4, 10);
    CHECK(one_run(faults, test::nodes_of_eight(4), job).tally[Cause::detection] == 600'000'000'000);
    faults.recovery.watches = true;
    faults.recovery.anomaly_s = 15;
    CHECK(one_run(faults, test::nodes_of_eight(4), job).tally[Cause::detection] == 15'000'000'000);
    faults.recovery.anomaly_misses = 1;
    CHECK(one_run(faults, test::nodes_of_eight(4), job).tally[Cause::detection] == 600'000'000'000);
}

TEST_CASE("silent corruption takes the job back to a checkpoint from before it") {
    FaultsSpec faults;
    faults.duration_s = 10000;
    faults.recovery.standbys = 1;
    faults.recovery.corruption_s = 2500;
    faults.checkpoint.storage.keep = 10;
    faults.events = {event(3500, FaultKind::corruption, "gpu0")};
    SteadyJob job(4, 10);
    test::set_cycle(faults, job, 1000, 0, 0, 0);
    // Found at 6000 s; the checkpoint of 3000 s is clean.
    CHECK(seconds(one_run(faults, test::nodes_of_eight(4), job), Cause::lost_work) == doctest::Approx(3000));
    job.setting.storage.keep = 2;
    faults.checkpoint.storage.keep = 2;  // those of 5000 s and 6000 s only
    CHECK(seconds(one_run(faults, test::nodes_of_eight(4), job), Cause::lost_work) == doctest::Approx(6000));
}

TEST_CASE("slow machines are replaced after the next checkpoint where collectives are watched") {
    FaultsSpec faults;
    faults.duration_s = 10000;
    faults.recovery.standbys = 1;
    faults.recovery.watches = true;
    faults.events = {event(500, FaultKind::slow, "node1", 0.5)};
    SteadyJob job(4, 10);
    test::set_cycle(faults, job, 1000, 0, 0, 100);
    const CampaignResult run = one_run(faults, test::nodes_of_eight(4), job);
    CHECK(seconds(run, Cause::stragglers) == doctest::Approx(500));
    CHECK(seconds(run, Cause::reshard) == doctest::Approx(100));
    CHECK(run.tally[Cause::lost_work] == 0);
    CHECK(run.interruptions == 0);
}

TEST_CASE("more failures than spares: the job waits for repair, or goes on with fewer nodes") {
    FaultsSpec faults;
    faults.duration_s = 100000;
    faults.recovery.automatic = {7200, 0};
    faults.recovery.exponential_repair = false;
    faults.events = {event(1000, FaultKind::fail_stop, "node0"), event(1000, FaultKind::fail_stop, "node1")};
    SteadyJob job(4, 10);
    test::set_cycle(faults, job, 1000, 0, 0, 100);
    const CampaignResult waits = one_run(faults, test::nodes_of_eight(4), job);
    CHECK(seconds(waits, Cause::hardware) == doctest::Approx(7200));
    CHECK(waits.interruptions == 2);
    faults.recovery.shrinks = true;
    job.least = 2;
    const CampaignResult shrinks = one_run(faults, test::nodes_of_eight(4), job);
    CHECK(shrinks.tally[Cause::hardware] == 0);
    CHECK(seconds(shrinks, Cause::fewer_nodes) > 3000);  // half the speed until both are back
    CHECK(seconds(shrinks, Cause::reshard) == doctest::Approx(100));
    CHECK(shrinks.tally[Cause::useful] > waits.tally[Cause::useful]);
}

TEST_CASE("a failure during recovery starts recovery anew") {
    FaultsSpec faults;
    faults.duration_s = 10000;
    faults.recovery.standbys = 2;
    faults.events = {event(1500, FaultKind::fail_stop, "node0"), event(1650, FaultKind::fail_stop, "node1")};
    SteadyJob job(4, 10);
    test::set_cycle(faults, job, 1000, 0, 100, 200);
    const CampaignResult run = one_run(faults, test::nodes_of_eight(4), job);
    CHECK(seconds(run, Cause::detection) == doctest::Approx(200));
    CHECK(seconds(run, Cause::restart) == doctest::Approx(50 + 200));
    CHECK(run.recovering == CampaignTime::from_seconds(450));
    CHECK(run.recoveries == 1);
}

TEST_CASE("the loss of both holders of a checkpoint in memory falls back to the store") {
    FaultsSpec faults;
    faults.duration_s = 40000;
    faults.recovery.standbys = 4;
    faults.checkpoint.method.choose("memory");
    SteadyJob job(4, 10);
    test::set_cycle(faults, job, 1000, 0, 10, 0);
    job.setting.nodes = 4;
    // Every tenth goes to the store: that of 10,000 s. Nodes 0 and 1 hold each other's part, 1 and 2 do not.
    faults.events = {event(15500, FaultKind::fail_stop, "node1"), event(15500, FaultKind::fail_stop, "node2")};
    CHECK(seconds(one_run(faults, test::nodes_of_eight(4), job), Cause::lost_work) ==
          doctest::Approx(500).epsilon(1e-6));
    faults.events = {event(15500, FaultKind::fail_stop, "node0"), event(15500, FaultKind::fail_stop, "node1")};
    CHECK(seconds(one_run(faults, test::nodes_of_eight(4), job), Cause::lost_work) ==
          doctest::Approx(5500).epsilon(1e-6));
}

TEST_CASE("a lost leaf switch takes its nodes, a lost spine slows the job") {
    FaultsSpec faults;
    faults.duration_s = 100000;
    faults.events = {event(1000, FaultKind::switch_loss, "leaf1", 1, 5000)};
    SteadyJob job(32, 10);
    test::set_cycle(faults, job, 1000, 0, 0, 0);
    const CampaignResult leaf = one_run(faults, test::nodes_of_eight(32), job);
    CHECK(leaf.interruptions == 1);
    CHECK(seconds(leaf, Cause::hardware) == doctest::Approx(5000 - 30));
    faults.events = {event(1000, FaultKind::switch_loss, "spine1", 1, 5000)};
    CHECK(one_run(faults, test::nodes_of_eight(32), job).interruptions == 0);
}

TEST_CASE("a derived checkpoint interval is never shorter than a write, nor too short for the kept copies") {
    FaultsSpec faults;
    faults.duration_s = 30 * 86400.0;
    faults.processes = {process(Component::software, FaultKind::fail_stop, 20000)};
    faults.checkpoint.storage.keep = 10;
    SteadyJob job(4, 10);
    job.setting.nodes = 4;
    job.setting.bytes = 28e12;  // 28 s to a store of 1 TB/s, and hardly a stall: Daly's rule wants 63 s less the stall
    job.setting.pcie = 8.75e12;
    job.setting.storage.write = 1e12;
    faults.checkpoint.method.choose("asynchronous");
    const auto plan_of = [&] { return plan_campaign(faults, test::nodes_of_eight(4), job, {}); };
    CHECK(plan_of().rule_s == doctest::Approx(std::sqrt(2 * 0.1 * 20000)).epsilon(0.01));
    CHECK(plan_of().interval_s == 60);
    job.setting.storage.write = 0.2e12;
    CHECK(plan_of().interval_s == 140);
    // Corruption is found after an hour: nine checkpoints may hold it, and the tenth is from before it.
    faults.processes.push_back(process(Component::gpu, FaultKind::corruption, 1e8));
    faults.recovery.corruption_s = 3600;
    CHECK(plan_of().shortest.keep_s == doctest::Approx(400 - 0.1));
    CHECK(plan_of().interval_s == 400);
    // A fixed interval stands as it is.
    faults.checkpoint.interval.choose("fixed");
    CHECK(plan_of().interval_s == 1800);
    // With one checkpoint kept, no interval helps.
    faults.checkpoint.storage.keep = 1;
    CHECK(std::isinf(plan_of().shortest.keep_s));
}

TEST_CASE("kept checkpoints that outlast detection keep the work that shorter intervals lose to corruption") {
    FaultsSpec faults;
    faults.duration_s = 200000;
    faults.recovery.corruption_s = 3600;
    faults.checkpoint.storage.keep = 10;
    faults.events = {event(150000, FaultKind::corruption, "gpu0")};
    SteadyJob job(4, 10);
    const auto lost = [&](double every) {
        test::set_cycle(faults, job, every, 0.1, 0, 1);
        return seconds(one_run(faults, test::nodes_of_eight(4), job), Cause::lost_work);
    };
    const double least = plan_campaign(faults, test::nodes_of_eight(4), job, {}).shortest.keep_s;
    CHECK(lost(std::ceil(least / 10) * 10) < 3600 + 2 * 400);
    CHECK(lost(380) > 150000);
}

TEST_CASE("an interval above the time between failures is livelock: said, and not simulated for ever") {
    FaultsSpec faults;
    faults.duration_s = 9e9;
    faults.processes = {process(Component::software, FaultKind::fail_stop, 100)};
    SteadyJob job(4, 1);
    test::set_cycle(faults, job, 100000, 60, 10, 100);
    const CampaignResult run = one_run(faults, test::nodes_of_eight(4), job);
    CHECK(run.livelock);
    CHECK(run.tally[Cause::useful] == 0);
    CHECK(run.length.seconds() < 1e7);
}

TEST_CASE("campaigns are the same on any number of threads") {
    FaultsSpec faults;
    faults.duration_s = 30 * 86400.0;
    faults.recovery.standbys = 2;
    faults.recovery.shrinks = true;
    faults.processes = {process(Component::gpu, FaultKind::fail_stop, 40 * 86400.0),
                        process(Component::nic, FaultKind::link_flap, 10 * 86400.0),
                        process(Component::storage, FaultKind::outage, 5 * 86400.0)};
    faults.processes[1].lasts_s = 10;
    faults.processes[2].lasts_s = 3600;
    SteadyJob job(8, 5);
    test::set_cycle(faults, job, 1800, 30, 30, 300);
    const CampaignPlan plan = plan_campaign(faults, test::nodes_of_eight(8), job, {});
    const auto alone = run_campaigns(plan, job, 7, 12, 1);
    const auto many = run_campaigns(plan, job, 7, 12, 5);
    for (std::size_t i = 0; i < alone.size(); ++i) {
        for (std::size_t cause = 0; cause < kCauses; ++cause) {
            CHECK(alone[i].tally[static_cast<Cause>(cause)] == many[i].tally[static_cast<Cause>(cause)]);
        }
        CHECK(alone[i].events == many[i].events);
    }
    CHECK(alone[0].tally[Cause::useful] != alone[1].tally[Cause::useful]);
}

TEST_CASE("repair fails as often as it says, and machines that fail too often retire") {
    FaultsSpec faults;
    faults.duration_s = 200 * 86400.0;
    faults.processes = {process(Component::host, FaultKind::fail_stop, 4 * 86400.0)};
    faults.recovery.standbys = 10;
    faults.recovery.automatic = {7200, 0.4};
    faults.recovery.manual = {36000, 0.2};
    faults.recovery.to_manual = 0.8;
    SteadyJob job(8, 60);
    test::set_cycle(faults, job, 600, 0, 0, 60);
    const CampaignResult run = one_run(faults, test::nodes_of_eight(8), job);
    const auto all = static_cast<double>(run.automatic_repairs);
    CHECK(all > 300);
    CHECK(static_cast<double>(run.manual_repairs) / all == doctest::Approx(0.8).epsilon(0.1));
    CHECK(static_cast<double>(run.failed_repairs) / all == doctest::Approx(0.24).epsilon(0.2));
    faults.recovery.retire_after = 3;
    faults.recovery.retire_window_s = 1e9;
    const CampaignResult retires = one_run(faults, test::nodes_of_eight(8), job);
    CHECK(retires.retired >= 11);  // until fewer than the eight that the job needs are left
    CHECK(fraction(retires, Cause::hardware) > 0.3);
}

TEST_CASE("a trace of machines that are there becomes preemptions and returns") {
    const std::string file =
        (std::filesystem::temp_directory_path() / ("orrery_nodes_" + std::to_string(::getpid()) + ".csv")).string();
    std::ofstream(file) << "time_s,nodes\n0,4\n1000,2\n5000,3\n9000,4\n";
    const auto faults = read_fault_trace(file, test::nodes_of_eight(4));
    REQUIRE(faults.size() == 2);
    CHECK(faults[0].fault.place.index == 3);
    CHECK(faults[0].fault.lasts_s == 8000);
    CHECK(faults[1].fault.lasts_s == 4000);
    FaultsSpec spec;
    spec.duration_s = 20000;
    spec.recovery.shrinks = true;
    SteadyJob job(4, 10);
    test::set_cycle(spec, job, 500, 0, 0, 0);
    const CampaignResult run = run_campaign(plan_campaign(spec, test::nodes_of_eight(4), job, faults), job, 1, false);
    // Half the nodes for 4000 s and three quarters for 4000 s, but for what checkpoints cost until the job grows again.
    CHECK(seconds(run, Cause::fewer_nodes) == doctest::Approx(2000 + 1000).epsilon(0.2));
    std::ofstream(file) << "time_s,kind,where,factor,lasts_s\n5,slow,gpu1,0.5,\n6,slow,gpu99,0.5,7\n7,melt,gpu1\n";
    try {
        (void)read_fault_trace(file, test::nodes_of_eight(4));
        FAIL("a wrong trace was taken");
    } catch (const ConfigError& error) {
        CHECK(error.diagnostics().size() == 2);
        CHECK(error.diagnostics()[0].line == 3);
    }
    std::remove(file.c_str());
}

}  // namespace orrery
