// Services under faults: closed forms of what is lost, how long it is gone, and what a cold start is made of.

#include "tests/support/fabrics.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/workloads/serving_support.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

using namespace orrery;
using namespace orrery::test;

namespace {

TimedFault fault(double at_s, FaultKind kind, Place place, double factor = 1, double lasts_s = 0) {
    return {at_s, {kind, place, factor, lasts_s}};
}
Place replica(std::uint32_t index) {
    return {Place::What::replica, index, 0};
}
Place node(std::uint32_t index) {
    return {Place::What::node, index, 0};
}

// Replicas on a node each that take eight sequences at a time, a second an iteration.
ServiceSpec service(std::uint32_t replicas) {
    ServiceSpec spec = spec_of("chunked-prefill", 100, 8, 100);
    spec.pools[0].replicas = replicas;
    return spec;
}

ServiceResult served(const ServiceSpec& spec, std::vector<Request> requests) {
    ListSource source(std::move(requests));
    AffineStep cost(1, 0, 0);
    return serve_with(spec, source, cost);
}

std::vector<Request> every(double gap_s, int count, std::uint32_t output = 1) {
    std::vector<Request> out;
    for (int i = 0; i < count; ++i) {
        out.push_back(request(gap_s * i, 4, output));
    }
    return out;
}

double e2e(const ServiceResult& result, std::size_t i) {
    return static_cast<double>(result.requests.at(i).e2e);
}

}  // namespace

TEST_CASE("serving faults: one of two replicas is lost for a time under light load, and nobody notices") {
    // A request every ten seconds, a second each. Replica 0 is away from 50.5 s for 100 s: all go to the other.
    ServiceSpec spec = service(2);
    spec.faults.timed = {loss(0, 50.5, 100)};
    const ServiceResult result = served(spec, every(10, 100));
    CHECK(result.requests.size() == 100);
    CHECK(result.failures == 1);
    CHECK(result.retried == 0);
    CHECK(result.end_s == 991);
    CHECK(result.down_s == 100);
    CHECK(result.outage_s == 0);
    CHECK(result.recovery_s == 100);
    for (std::size_t i = 0; i < 100; ++i) {
        CHECK(e2e(result, i) == 1);
    }
}

TEST_CASE(
    "serving faults: what ends on a corrupt replica before that is found is wrong, what is under way starts anew") {
    // A request every ten seconds, a second each. Wrong from 50.5 s on, found at 150.5 s: those of 50 to 140 s have ended by then, that
    // of 150 s starts anew at 160.5 s, when the machine is mended.
    ServiceSpec spec = service(1);
    spec.faults.recovery.corruption_s = 100;
    spec.faults.recovery.repair_s = 10;
    spec.faults.timed = {fault(50.5, FaultKind::corruption, {Place::What::gpu, 0, 0})};
    ServiceResult result = served(spec, every(10, 30));
    CHECK(result.requests.size() == 30);
    CHECK(result.wrong == 10);
    CHECK(result.failures == 1);
    CHECK(result.retried == 1);
    CHECK(e2e(result, 14) == 1);
    CHECK(result.down_s == 10);
    // A failure before it is found brings another machine: nothing is left to find.
    spec.faults.timed.push_back(fault(95.5, FaultKind::fail_stop, {Place::What::gpu, 0, 0}));
    result = served(spec, every(10, 30));
    CHECK(result.wrong == 5);
    CHECK(result.failures == 1);
}

TEST_CASE("serving faults: a cache that is lost is computed anew, and one that is restored takes its transfer") {
    // Three of six tokens by 3 s, when 4 + 2 tokens are cached. Lost at 3.5: the other replica gives the other three by 6.5.
    ServiceSpec spec = service(2);
    spec.cache_token_bytes = 10;
    spec.faults.timed = {loss(0, 3.5, 100)};
    ServiceResult result = served(spec, {request(0, 4, 6)});
    CHECK(e2e(result, 0) == 6.5);
    CHECK(result.lost_tokens == 6);
    CHECK(result.restored_tokens == 0);
    // 60 B at 40 B/s take 1.5 s, and then it goes on.
    spec.faults.restores = true;
    spec.faults.restore_rate = 40;
    result = served(spec, {request(0, 4, 6)});
    CHECK(e2e(result, 0) == 8);
    CHECK(result.lost_tokens == 0);
    CHECK(result.restored_tokens == 6);
    CHECK(result.retried == 1);
    // Two that come at a time share the link. The short one on the other replica ends first.
    result = served(spec, {request(0, 4, 6), request(0, 4, 1), request(0, 4, 6)});
    CHECK(e2e(result, 0) == 1);
    CHECK(e2e(result, 1) == 9.5);
    CHECK(e2e(result, 2) == 9.5);
}

TEST_CASE("serving faults: until the router knows, requests go to the replica that is gone, and start anew then") {
    // Turns: requests 0, 2, 4 to replica 0, which hangs at 4.5 s; it is found at 14.5. Requests 2 (6 s) and 4 (12 s) wait until then.
    ServiceSpec spec = service(2);
    spec.faults.timed = {fault(4.5, FaultKind::hang, node(0))};
    spec.faults.recovery.timeout_s = 10;
    spec.faults.recovery.repair_s = 5;
    const ServiceResult result =
        served(spec, {request(0, 4, 1), request(3, 4, 1), request(6, 4, 1), request(9, 4, 1), request(12, 4, 1)});
    REQUIRE(result.requests.size() == 5);
    CHECK(e2e(result, 1) == 1);
    CHECK(e2e(result, 2) == 14.5 + 1 - 6);
    CHECK(e2e(result, 3) == 1);
    CHECK(e2e(result, 4) == 14.5 + 1 - 12);
    CHECK(result.retried == 2);
    CHECK(result.recovery_s == 15);
}

TEST_CASE("serving faults: retries have a budget for each request and one for all") {
    // Ten requests on one replica, lost at once.
    ServiceSpec spec = service(1);
    spec.pools[0].limits.max_sequences = 10;
    spec.faults.timed = {loss(0, 2.5, 1)};
    std::vector<Request> ten(10, request(0, 4, 5));
    CHECK(served(spec, ten).retried == 10);
    spec.faults.retry_budget = 0.3;
    ServiceResult result = served(spec, ten);
    CHECK(result.retried == 3);
    CHECK(result.failed == 7);
    CHECK(result.over_budget == 7);
    CHECK(result.requests.size() == 3);
    spec.faults.retry_budget.reset();
    spec.faults.retries = 0;
    result = served(spec, ten);
    CHECK(result.failed == 10);
    CHECK(result.over_budget == 0);
}

TEST_CASE("serving faults: exponential failures and repairs are available as their Markov chain says") {
    // Requests far apart keep the service going for 2,000,000 s.
    ProcessSpec process;
    process.component = Component::host;
    process.mtbf_s = 1000;
    ServiceSpec spec = service(1);
    spec.faults.processes = {process};
    spec.faults.recovery.repair_s = 250;
    spec.faults.recovery.exponential = true;
    ServiceResult result = served(spec, every(5000, 400));
    CHECK(1 - result.down_s / result.end_s == doctest::Approx(1000.0 / 1250).epsilon(0.02));
    CHECK(result.outage_s == doctest::Approx(result.down_s));
    // Two in use and one spare: k of three are broken. Failures at (2, 2, 1) / 1000 s, repairs at k / 250 s.
    spec = service(2);
    spec.faults.processes = {process};
    spec.faults.recovery = {0, 60, 0, 250, true, 1, {}};
    result = served(spec, every(5000, 400));
    const double a = 2 * 0.25;
    const double p[] = {1, a, a * a / 2, a * a / 2 * 0.25 / 3};
    const double all = p[0] + p[1] + p[2] + p[3];
    CHECK(1 - result.down_s / (2 * result.end_s) == doctest::Approx((p[0] + p[1] + p[2] / 2) / all).epsilon(0.01));
    CHECK(result.outage_s / result.end_s == doctest::Approx(p[3] / all).epsilon(0.2));
}

TEST_CASE("serving faults: faults that are far apart keep coming") {
    ProcessSpec process;
    process.component = Component::replica;
    process.mtbf_s = 50'000;
    ServiceSpec spec = service(1);
    spec.faults.processes = {process};
    // 100 are expected in 5,000,000 s.
    CHECK(std::abs(static_cast<double>(served(spec, every(10'000, 501)).failures) - 100) < 3 * 10);
}

TEST_CASE("serving faults: what fails by a Weibull law is as available as its means say") {
    ProcessSpec process;
    process.component = Component::gpu;
    process.mtbf_s = 1000;
    std::vector<Diagnostic> errors;
    read_fields(parse_yaml("process: {kind: weibull, shape: 3}", "law"), DataDirectory(ORRERY_SOURCE_DIR), errors,
                [&](Fields& fields) {
                    process.law.describe(fields, {"process", ""});
                });
    REQUIRE(errors.empty());
    ServiceSpec spec = service(1);
    spec.faults.processes = {process};
    spec.faults.recovery.repair_s = 500;
    const ServiceResult result = served(spec, every(5000, 200));
    // A renewal process: the replica is as new when it is back.
    CHECK(1 - result.down_s / result.end_s == doctest::Approx(1000.0 / 1500).epsilon(0.02));
}

TEST_CASE("serving faults: a cold start is the sum of its parts, and those that start share links") {
    ServiceSpec spec = service(3);
    spec.pools[0].start = {.provision_s = 10,
                           .image = 8,
                           .registry = 1,
                           .initialise_s = 5,
                           .weights = WeightsFrom::storage,
                           .weight_bytes = 300,
                           .storage = 100,
                           .warm_up_s = 1};
    // A process that failed starts where it was; a repaired machine has its image; a spare has nothing.
    spec.faults.timed = {fault(1, FaultKind::fail_stop, replica(0))};
    ServiceResult result = served(spec, every(10, 20));
    CHECK(result.recovery_s == 5 + 3 + 1);
    spec.faults.timed = {fault(1, FaultKind::fail_stop, node(0))};
    spec.faults.recovery.repair_s = 40;
    result = served(spec, every(10, 20));
    CHECK(result.recovery_s == 40 + 5 + 3 + 1);
    spec.faults.recovery.spares = 1;
    result = served(spec, every(10, 20));
    CHECK(result.recovery_s == 10 + 8 + 5 + 3 + 1);
    CHECK(result.start_s == std::array<double, 5>{10, 8, 5, 3, 1});
    // Two at a time: images and weights take twice as long.
    spec.faults.recovery.spares = 2;
    spec.faults.timed.push_back(fault(1, FaultKind::fail_stop, node(1)));
    result = served(spec, every(10, 20));
    CHECK(result.recovery_s == 2 * (10 + 16 + 5 + 6 + 1));
}

TEST_CASE("serving faults: weights come from the host after a crash, from storage after a repair, or from a peer") {
    const Fabric fabric(test::rail_nodes(2));
    ServiceSpec spec = service(2);
    spec.fabric = &fabric;
    spec.pools[0].gpus = 8;
    spec.pools[0].host_bandwidth = 400e9;
    spec.pools[0].start.weight_bytes = 800e9;
    spec.pools[0].start.storage = 10e9;
    spec.pools[0].start.weights = WeightsFrom::host;
    spec.faults.timed = {fault(1, FaultKind::fail_stop, replica(0))};
    CHECK(served(spec, every(100, 10)).recovery_s == doctest::Approx(2));
    spec.faults.timed = {fault(1, FaultKind::fail_stop, node(0))};
    CHECK(served(spec, every(100, 10)).recovery_s == doctest::Approx(80));
    // Eight flows of 50 GB/s between the nodes. Where both fail, the first gets them from the other, which goes on sending, and the
    // other from storage.
    spec.pools[0].start.weights = WeightsFrom::peer;
    CHECK(served(spec, every(100, 10)).recovery_s == doctest::Approx(2).epsilon(1e-4));
    spec.faults.timed.push_back(fault(0.5, FaultKind::fail_stop, node(1)));
    CHECK(served(spec, every(100, 10)).recovery_s == doctest::Approx(2 + 80).epsilon(1e-4));
}

TEST_CASE("serving faults: storage that is out delays those that load from it, and slow storage slows them") {
    ServiceSpec spec = service(2);
    spec.pools[0].start.weight_bytes = 300;
    spec.pools[0].start.storage = 100;
    const Place storage{Place::What::storage, 0, 0};
    spec.faults.timed = {fault(1, FaultKind::fail_stop, replica(0)), fault(2, FaultKind::outage, storage, 1, 50)};
    CHECK(served(spec, every(10, 20)).recovery_s == doctest::Approx(53));
    spec.faults.timed[1] = fault(2, FaultKind::degraded, storage, 0.25, 40);
    CHECK(served(spec, every(10, 20)).recovery_s == doctest::Approx(1 + 8));
}

TEST_CASE("serving faults: a slow device slows what starts from then on, until it is over or the machine is replaced") {
    ServiceSpec spec = service(1);
    const Place gpu{Place::What::gpu, 0, 0};
    spec.faults.timed = {fault(2.5, FaultKind::slow, gpu, 0.5, 3)};
    // Iterations end at 1, 2, 3, 5, 7 (begun at 5, before 5.5) and 8.
    CHECK(e2e(served(spec, {request(0, 4, 6)}), 0) == 8);
    spec.faults.timed = {fault(2.5, FaultKind::slow, gpu, 0.5)};
    CHECK(e2e(served(spec, {request(0, 4, 6)}), 0) == 9);
    // Replaced: 1, 2, 3, then a second of repair from 3.5 on, and the other three at full speed.
    spec.faults.timed.push_back(loss(0, 3.5, 1));
    CHECK(e2e(served(spec, {request(0, 4, 6)}), 0) == 7.5);
}

TEST_CASE(
    "serving faults: a machine that is to be preempted takes nothing new, and what it finishes in time is not lost") {
    ServiceSpec spec = service(2);
    spec.faults.timed = {loss(0, 0.5, 100)};
    spec.faults.recovery.notice_s = 4;
    // Of three that come first, two are there: one ends at 3 s, one is lost at 4.5 s with four tokens. What comes at 1 s goes to the
    // other replica, where one has ended after a second.
    const ServiceResult result =
        served(spec, {request(0, 4, 3), request(0, 4, 1), request(0, 4, 6), request(1, 4, 1), request(1, 4, 1)});
    REQUIRE(result.requests.size() == 5);
    CHECK(e2e(result, 0) == 1);
    CHECK(e2e(result, 1) == 3);
    CHECK(e2e(result, 2) == 6.5);
    CHECK(e2e(result, 3) == 1);
    CHECK(e2e(result, 4) == 1);
    CHECK(result.retried == 1);
    CHECK(result.failures == 1);
}

TEST_CASE("serving faults: what is down cannot fail again, and what does not run is spared") {
    ServiceSpec spec = service(1);
    spec.faults.timed = {loss(0, 1.5, 10), loss(0, 5, 10), fault(6, FaultKind::fail_stop, node(0))};
    const ServiceResult result = served(spec, {request(0, 4, 3)});
    CHECK(result.failures == 1);
    CHECK(result.without_effect == 2);
    CHECK(e2e(result, 0) == 11.5 + 2);
}

namespace {

Summary summary_of(const std::string& rest, const std::string& engine = "{replicas: 2, tensor: 8}") {
    return run_scenario(
               test::scenario(
                   fmt::format("orrery: 1\nkind: serving\ncluster: {{nodes: 3, node: dgx-h100}}\nmodel: "
                               "llama-2-70b\nengine: {}\nrequests: {{count: 60, rate: 2, arrivals: fixed}}\n{}",
                               engine, rest)
                       .c_str()),
               test::model_cache(), {})
        .summary;
}

}  // namespace

TEST_CASE("serving faults: a scenario without faults, and one whose fault comes too late, are plain serving") {
    const Summary plain = summary_of("");
    const Summary none = summary_of("faults: none\n");
    const Summary late = summary_of("faults: {events: [{at: 1 d, kind: fail-stop, where: node0}]}\n");
    CHECK(none.metrics.size() == plain.metrics.size());
    for (const Metric& metric : plain.metrics) {
        CHECK_MESSAGE(none.find(metric.name)->value == metric.value, metric.name);
        if (metric.name != "events") {
            CHECK_MESSAGE(late.find(metric.name)->value == metric.value, metric.name);
        }
    }
    CHECK(late.find("failures")->value == 0);
    CHECK(late.find("replica_availability")->value == 1);
}

TEST_CASE("serving faults: a slow NIC slows the caches that pass it, a capped clock prompts more than tokens") {
    const std::string split = "{prefill: {replicas: 1, tensor: 8}, decode: {replicas: 1, tensor: 8}}";
    const auto transfer = [&](const char* faults) {
        return summary_of(faults, split).find("kv_transfer_s.mean")->value;
    };
    std::string all;
    for (int nic = 0; nic < 8; ++nic) {
        all += fmt::format("{}{{at: 0 s, kind: degraded, where: nic{}, factor: 25 %}}", nic > 0 ? ", " : "", nic);
    }
    const double plain = transfer("");
    CHECK(transfer(fmt::format("faults: {{events: [{}]}}\n", all).c_str()) == doctest::Approx(4 * plain).epsilon(0.02));
    // Equal slices go over all NICs: one that is slow holds up the whole.
    CHECK(transfer("faults: {events: [{at: 0 s, kind: degraded, where: nic3, factor: 25 %}]}\n") ==
          doctest::Approx(4 * plain).epsilon(0.02));
    const Summary usual = summary_of("");
    const Summary capped = summary_of("faults: {events: [{at: 0 s, kind: power-cap, where: job, factor: 50 %}]}\n");
    const Summary slow = summary_of(
        "faults: {events: [{at: 0 s, kind: slow, where: gpu3, factor: 50 %}, {at: 0 s, kind: slow, where: node1, "
        "factor: "
        "50 %}]}\n");
    const auto ratio = [&](const Summary& a, const char* name) {
        return a.find(name)->value / usual.find(name)->value;
    };
    CHECK(ratio(capped, "tpot_s.mean") < 1.2);
    CHECK(ratio(capped, "ttft_s.mean") > 1.2);
    CHECK(ratio(slow, "tpot_s.mean") > 1.5);
    CHECK(ratio(slow, "tpot_s.mean") < 2.2);
}

TEST_CASE("serving faults: a stage over two nodes goes at the pace of a slow link, and hangs with a silent one") {
    const std::string wide = "{replicas: 1, tensor: 16}";
    const auto with = [&](const char* event) {
        return summary_of(fmt::format("faults: {{events: [{}], recovery: {{timeout: 5 s}}}}\n", event), wide);
    };
    const double plain = summary_of("", wide).find("tpot_s.mean")->value;
    const Summary slow = summary_of("faults: {events: [{at: 0 s, kind: degraded, where: nic0, factor: 25 %}]}\n", wide);
    CHECK(slow.find("tpot_s.mean")->value > 1.05 * plain);
    const Summary silent = with("{at: 10 s, kind: link-down, where: nic0, lasts: 8 s}");
    CHECK(silent.find("failures")->value == 1);
    CHECK(silent.find("mean_time_to_recover_s")->value == doctest::Approx(8));
    // Back before the time-out: nothing is lost, and one gap between tokens is as long.
    const Summary flap = with("{at: 10 s, kind: link-flap, where: nic0, lasts: 3 s}");
    CHECK(flap.find("failures")->value == 0);
    CHECK(flap.find("tbt_s.max")->value == doctest::Approx(3).epsilon(0.05));
}
