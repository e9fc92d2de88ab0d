// Packet fidelity as a user meets it: scenarios of every kind, papers that compare two runs, files of flows.

#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

using namespace orrery;

namespace {

Summary summary_of(const Scenario& scenario) {
    return run_scenario(scenario, test::model_cache(), {}).summary;
}

double value(const Summary& summary, const std::string& metric) {
    const Metric* found = summary.find(metric);
    REQUIRE_MESSAGE(found != nullptr, metric);
    return found->value;
}

std::string network_for(const std::string& traffic, const std::string& settings, int hosts = 32) {
    return fmt::format(
        "orrery: 1\nkind: network\n"
        "cluster: {{hosts: {}, fabric: {{hosts_per_leaf: 8, spines: 8, link: 400 Gbps, latency: 500 ns}}}}\n"
        "traffic: {}\nnetwork: {{fidelity: packet{}}}\n",
        hosts, traffic, settings);
}

}  // namespace

TEST_CASE("a window that shrinks below what an acknowledgement tells of waits for no timeout") {
    // Fewer packets than a receiver tells of together may fill a window that has shrunk since they left.
    for (const int senders : {16, 31}) {
        for (const int every : {4, 8, 32}) {
            INFO(senders << " senders, an acknowledgement every " << every);
            const Summary summary = summary_of(test::scenario(network_for(
                fmt::format("{{pattern: incast, senders: {}, size: 1 MiB}}", senders),
                fmt::format(", paths: spray, nic: {{acknowledge_every: {}}}, queues: {{ecn: [54080 B, 212160 B]}}",
                            every))));
            CHECK(value(summary, "timeouts") == 0);
            const double link = senders * 1048576 * (1 + 64.0 / 4096) / 50e9;
            CHECK(value(summary, "makespan_s") < 1.1 * link + 20e-6);
        }
    }
}

TEST_CASE("the leaf-spine claim holds for random permutations and for all-to-all, not only for a shift") {
    const auto last = [&](const char* paths, const char* traffic) {
        return value(summary_of(test::scenario(network_for(traffic, fmt::format(", paths: {}", paths), 64))),
                     "fct_s.max");
    };
    for (const char* traffic : {"{pattern: permutation, size: 4 MiB}", "{pattern: all-to-all, size: 64 KiB}"}) {
        CAPTURE(traffic);
        const double sprayed = last("spray", traffic);
        CHECK(last("planned", traffic) < 1.05 * sprayed);
        CHECK(last("ecmp", traffic) > 1.05 * sprayed);  // many flows even out, few do not
    }
    CHECK(last("ecmp", "{pattern: permutation, size: 4 MiB}") >
          2 * last("planned", "{pattern: permutation, size: 4 MiB}"));
}

TEST_CASE("packet converges to fluid as packets shrink, under ideal transport") {
    for (const char* traffic :
         {"{pattern: incast, senders: 12, size: 16 MiB}", "{pattern: shift, shift: 8, size: 16 MiB}",
          "{pattern: permutation, size: 16 MiB, spread: 0.3}"}) {
        CAPTURE(traffic);
        const auto seconds = [&](const char* settings) {
            return value(summary_of(test::scenario(network_for(traffic, settings))), "fct_s.max");
        };
        Scenario fluid = test::scenario(network_for(traffic, ", paths: spray"));
        fluid.network.fidelity = Fidelity::fluid;
        const double exact = value(summary_of(fluid), "fct_s.max");
        double before = 1;
        for (const char* mtu : {"1 MiB", "256 KiB", "64 KiB", "16 KiB"}) {
            const double error = std::abs(
                seconds(fmt::format(", paths: spray, transport: {{kind: ideal}}, mtu: {}, header: 1 B", mtu).c_str()) /
                    exact -
                1);
            CHECK(error < before);
            before = error;
        }
        CHECK(before < 1e-2);
    }
}

TEST_CASE("collectives packet by packet: a ring takes its steps, and NVLink stays fluid") {
    const std::string text = R"(orrery: 1
kind: collective
cluster: {hosts: 16, fabric: {hosts_per_leaf: 16, spines: 1, link: 400 Gbps, latency: 500 ns}}
collective: {op: all-reduce, algorithm: ring, size: 16 MiB}
network: {fidelity: packet, transport: {kind: ideal}}
)";
    // 30 steps of 256 packets on two hops.
    const double step = (257 * 4160 * 20 + 2 * 500'000) * 1e-12;
    CHECK(value(summary_of(test::scenario(text)), "collective_time_s") == doctest::Approx(30 * step).epsilon(1e-9));
    const auto nodes = [&](const char* fidelity, const char* algorithm) {
        return value(summary_of(test::scenario(
                         fmt::format("orrery: 1\nkind: collective\n"
                                     "cluster: {{nodes: 4, node: dgx-h100, fabric: {{nodes_per_leaf: 2, rails: 8}}}}\n"
                                     "collective: {{algorithm: {}, size: 64 MiB}}\nnetwork: {{fidelity: {}}}\n",
                                     algorithm, fidelity))),
                     "collective_time_s");
    };
    for (const char* algorithm : {"ring", "hierarchical", "double-tree", "halving-doubling"}) {
        CAPTURE(algorithm);
        CHECK(nodes("packet", algorithm) == doctest::Approx(nodes("fluid", algorithm)).epsilon(0.08));
    }
}

TEST_CASE("a run that is not by packets says which paths it takes instead") {
    const auto notes = [](const char* paths, const char* fidelity) {
        const Summary summary = summary_of(test::scenario(
            fmt::format("orrery: 1\nkind: collective\n"
                        "cluster: {{hosts: 8, fabric: {{hosts_per_leaf: 4, spines: 2, link: 400 Gbps}}}}\n"
                        "collective: {{size: 1 MiB}}\nnetwork: {{fidelity: {}, paths: {}}}\n",
                        fidelity, paths)));
        return fmt::format("{}", fmt::join(summary.notes, "\n"));
    };
    CHECK(notes("flowlet", "fluid").find("this run is fluid and uses ecmp") != std::string::npos);
    CHECK(notes("oblivious", "analytic").find("this run is analytic and uses spray") != std::string::npos);
    CHECK(notes("ecmp", "fluid").find("this run is") == std::string::npos);
    CHECK(notes("flowlet", "packet").find("this run is") == std::string::npos);
}

TEST_CASE("training packet by packet comes close to fluid where nothing collides") {
    const auto seconds = [&](const char* fidelity) {
        return value(summary_of(test::scenario(
                         fmt::format("orrery: 1\nkind: training\n"
                                     "cluster: {{nodes: 4, node: dgx-a100-80g, fabric: {{nodes_per_leaf: 2}}}}\n"
                                     "model: {{layers: 8, hidden: 1024, heads: 16, vocabulary: 1000}}\n"
                                     "plan: {{tensor: 8, pipeline: 2, data: 2, global_batch: 8}}\n"
                                     "network: {{fidelity: {}}}\n",
                                     fidelity))),
                     "iteration_time_s");
    };
    CHECK(seconds("packet") == doctest::Approx(seconds("fluid")).epsilon(0.02));
}

TEST_CASE("settings of packets are read, written and refused with their place") {
    const Scenario s = test::scenario(network_for("{pattern: ring, size: 1 MiB}",
                                                  ", mtu: 2 KiB, paths: {kind: oblivious, entropies: 64}, transport: "
                                                  "{kind: dctcp}, queues: {ecn: [1 kB, 2 kB]}"));
    CHECK(s.network.packets.mtu == 2048);
    CHECK(s.network.packets.paths.policy.name() == "oblivious");
    CHECK(resolved_json(s).find("\"entropies\":64") != std::string::npos);
    CHECK(s.network.packets.queues.mark_high == 2000);
    Scenario nodes = test::scenario(
        "orrery: 1\nkind: network\ncluster: {nodes: 2, node: dgx-h100}\ntraffic: {size: 1 MiB}\nnetwork: {}\n");
    nodes.network = s.network;
    const Scenario again = read_scenario(parse_yaml(resolved_json(nodes), "again"), "again", test::data());
    CHECK(resolved_json(again) == resolved_json(nodes));
    const Scenario bare = read_scenario(parse_yaml(resolved_json(s), "bare"), "bare", test::data());
    CHECK(bare.cluster.hosts == 32);
    CHECK(resolved_json(bare) == resolved_json(s));
    const std::string ring = "{pattern: ring, size: 1 MiB}";
    const std::vector<std::pair<std::string, std::string>> refused = {
        {", transport: {kind: dctpc}", "cannot be 'dctpc' (did you mean 'dctcp'?)"},
        {", paths: {kind: oblivous}", "did you mean 'oblivious'?"},
        {", paths: {kind: oblivious, entropys: 3}", "unknown key 'entropys' (did you mean 'entropies'?)"},
        {", queues: {ecn: [2 kB, 1 kB]}", "'ecn' must not fall"},
        {", queues: {ecn: 2 kB}", "'ecn' must be a list of two quantities"},
        {", transport: {kind: ideal}, queues: {size: 1 MB}", "transport ideal does not send again"},
        {", transport: {kind: roce}", "go-back-n needs packets in order"},
        {", mtu: 0 B", "'mtu' must be between"},
        {", nic: {rails: 2}", "nic.rails is 2, but a node has 1 NICs"},
        {", nic: {rails: 2}, transport: {kind: ideal}", "nic.rails above 1 goes neither with"},
        {", transport: {kind: roce, receiver_credits: true}, paths: ecmp", "unknown key 'receiver_credits'"},
        {", transport: {kind: dctcp, swift_beta: 0.5}", "unknown key 'swift_beta'"},
        {", paths: {kind: ecmp, split: false}", "unknown key 'split'"},
        {", transport: {kind: infiniband, ccti_min: 9, ccti_limit: 8}, paths: ecmp, queues: {credits: 64 KiB}",
         "ccti_min 9 is above ccti_limit 8"},
    };
    for (const auto& [settings, expected] : refused) {
        const std::string text = test::refusal(network_for(ring, settings));
        CHECK_MESSAGE(text.find(expected) != std::string::npos, settings << "\n" << text);
        CHECK_MESSAGE(text.find("test.yaml:5:") != std::string::npos, text);
    }
    // Other levels accept the same file.
    Scenario fluid = s;
    fluid.network.fidelity = Fidelity::fluid;
    CHECK(value(summary_of(fluid), "fct_s.max") > 0);
}

TEST_CASE("skipping says what it skipped, and is refused where the network changes or is looked at") {
    const std::string ring = "{pattern: ring, size: 16 MiB}";
    const Summary exact = summary_of(test::scenario(network_for(ring, "")));
    const Summary skipped = summary_of(test::scenario(network_for(ring, ", skip: {error: 0.5 %}")));
    CHECK(exact.find("skipped_fraction") == nullptr);
    CHECK(value(skipped, "skipped_fraction") > 0.5);
    CHECK(value(skipped, "skip_error") <= 0.005);
    CHECK(value(skipped, "fct_s.p99") == doctest::Approx(value(exact, "fct_s.p99")).epsilon(0.005));
    for (const auto& [settings, expected] : std::vector<std::pair<std::string, std::string>>{
             {", skip: {error: 6 %}", "between 0 % and 5 %"},
             {", skip: {error: -1 %}", "between 0 % and 5 %"},
             {", skip: {error: 0.5 %}, queue_samples: 1 us", "bit_error_rate and queue_samples out, or skip"},
             {", skip: {error: 0.5 %}, bit_error_rate: 1e-9", "bit_error_rate and queue_samples out, or skip"},
             {", skip: {error: 0.5 %}, link_events: some.csv", "bit_error_rate and queue_samples out, or skip"}}) {
        CHECK_MESSAGE(test::refusal(network_for(ring, settings)).find(expected) != std::string::npos,
                      test::refusal(network_for(ring, settings)));
    }
    const std::string training = std::string(test::kSmallTraining) +
                                 "network: {fidelity: packet, skip: {error: 0.5 %}}\n"
                                 "faults: {duration: 1 h, events: [{at: 5000 s, kind: fail-stop, where: gpu3}]}\n";
    CHECK_MESSAGE(test::refusal(training).find("leave it out beside faults") != std::string::npos,
                  test::refusal(training));
}

TEST_CASE("ports and queues over time are reported") {
    const Scenario s =
        test::scenario(network_for("{pattern: incast, senders: 8, size: 1 MiB}",
                                   ", queue_samples: 10 us, transport: {kind: window, window: 1 GB}, paths: ecmp"));
    const PacketReport report = run_scenario(s, test::model_cache(), {}).packets;
    const auto receiver = std::find_if(report.ports.begin(), report.ports.end(),
                                       [](const PortReport& p) { return p.name == "leaf 0 to nic 0"; });
    REQUIRE(receiver != report.ports.end());
    CHECK(receiver->packets == 8 * 256);
    CHECK(receiver->bytes == 8 * 256 * 4160.0);
    CHECK(receiver->mean_queue_bytes < receiver->max_queue_bytes);
    // The queue rises by eight packets' time and falls by one: it is half its peak on average.
    CHECK(receiver->mean_queue_bytes == doctest::Approx(receiver->max_queue_bytes / 2).epsilon(0.1));
    double sampled = 0;
    for (const QueueSample& sample : report.samples) {
        sampled = report.ports[sample.port].name == receiver->name ? std::max(sampled, sample.bytes) : sampled;
    }
    CHECK(sampled == doctest::Approx(receiver->max_queue_bytes).epsilon(0.1));
    CHECK(ports_csv(report).find("leaf 0 to nic 0,8519680,2048,") != std::string::npos);
    CHECK(queues_csv(report).rfind("time_s,port,queue_bytes\n", 0) == 0);
}

TEST_CASE("flows from CSV files and connection matrices start when they say and wait for what they name") {
    const test::File csv("flows.csv",
                         "src,dst,bytes,start,after\n0,1,4096,0,\n1,2,4096,1e-5,1\n# a comment\n0,1,4096,2e-5,\n");
    const auto run_file = [&](const std::string& path) {
        return summary_of(
            test::scenario(network_for(fmt::format("{{flows: {}}}", path), ", transport: {kind: ideal}, paths: ecmp")));
    };
    const double hop = (4160 * 20 + 500'000) * 1e-12;
    const Summary flows = run_file(csv.path());
    CHECK(value(flows, "messages") == 3);
    CHECK(value(flows, "fct_s.max") == doctest::Approx(2 * hop).epsilon(1e-9));
    const test::File matrix("flows.cm",
                            "Nodes 8\nConnections 3\n0->1 id 1 start 0 size 4096 recv_done_trigger 1\n"
                            "1->2 id 2 trigger 1 size 4096 send_done_trigger 2\n2->3 id 3 trigger 2 size 4096\n"
                            "trigger id 1 oneshot\ntrigger id 2 oneshot\n");
    CHECK(value(run_file(matrix.path()), "messages") == 3);
    const std::vector<std::array<std::string, 3>> bad = {
        {"bad.csv", "src,dst,bytes\n", ":1:1: error: the first line must be"},
        {"bad.csv", "src,dst,bytes,start\n0,99,5,0\n", ":2:3: error: 'dst' must be a whole number from 0 to 31"},
        {"bad.csv", "src,dst,bytes,start\n0,1,x,0\n0,0,1,0\n", ":3:1: error: host 0 sends to itself"},
        {"bad.csv", "src,dst,bytes,start,after\n0,1,1,0,1\n", "flow 1 cannot wait for flow 1: 'after' names flows of"},
        {"bad.csv", "src,dst,bytes,start,after\n0,1,1,0,2\n1,2,1,0,1\n", ":2:9: error: flow 1 cannot wait for flow 2"},
        {"bad.csv", "src,dst,bytes,start,after\n0,1,1,0,\n1,2,1,0,1;x\n",
         ":3:11: error: 'after' must be a whole number"},
        {"bad.csv", "src,dst,bytes,start\n", "the file has no flows"},
        {"bad.cm", "0->1 id 1 trigger 7 size 5\n", "nothing fires trigger 7"},
        {"bad.cm", "0->1 id 1 trigger 1 size 5 recv_done_trigger 1\n", "triggers wait for each other"},
        {"bad.cm", "0-1 size 5\n", "a line is 'src->dst"},
        {"bad.cm",
         "0->1 id 1 size 5 recv_done_trigger 1\n1->2 id 2 size 5 recv_done_trigger 1\n2->3 id 3 trigger 1 size 5\n"
         "trigger id 1 oneshot\n",
         "trigger 1 is fired by 2 flows, but a oneshot is fired once"},
        {"bad.cm", "0->1 id 1 size 5\ntrigger id 1 sometimes\n", "a trigger is declared as"},
        {"bad.cm", "0->1 id 1 size 5\ntrigger id 1 oneshot barrier\n", "a trigger is declared as"},
        {"bad.cm", "0->1 size 5 recv_done_trigger 1\n1->2 trigger 1 size 5\ntrigger id 1 count 2 barrier\n",
         "trigger 1 counts 2, but 1 flows fire it"},
        {"bad.cm",
         "0->1 size 5 recv_done_trigger 1\n1->2 trigger 1 size 5\n2->3 trigger 1 size 5\ntrigger id 1 multishot\n",
         "trigger 1 is fired by 1 flows, one shot each, but 2 flows wait for it"},
    };
    for (const auto& [name, text, expected] : bad) {
        const test::File file(name, text);
        std::string said;
        try {
            (void)run_file(file.path());
        } catch (const ConfigError& error) {
            said = error.what();
        }
        CHECK_MESSAGE(said.find(expected) != std::string::npos, text << "\n" << said);
    }
}

TEST_CASE("each shot of a multishot trigger starts the next flow, whichever fired it; a barrier waits for all") {
    // Three flows that end one after the other; each that ends starts one of three, in the file's order.
    const std::string flows =
        "Nodes 16\nConnections 6\nTriggers 1\n0->1 id 1 start 0 size 3000000 recv_done_trigger 1\n"
        "2->3 id 2 start 0 size 1000000 recv_done_trigger 1\n4->5 id 3 start 0 size 2000000 recv_done_trigger 1\n"
        "6->7 id 4 trigger 1 size 4096\n8->9 id 5 trigger 1 size 4096\n10->11 id 6 trigger 1 size 4096\n";
    std::vector<Fidelity> fidelities = {Fidelity::fluid, Fidelity::packet};
    if (std::filesystem::exists(std::filesystem::read_symlink("/proc/self/exe").parent_path() / "orrery-simgrid")) {
        fidelities.push_back(Fidelity::simgrid);
    }
    for (const Fidelity fidelity : fidelities) {
        for (const bool barrier : {false, true}) {
            const test::File matrix("shots.cm",
                                    flows + (barrier ? "trigger id 1 count 3 barrier\n" : "trigger id 1 multishot\n"));
            Scenario scenario = test::scenario(
                network_for(fmt::format("{{flows: {}}}", matrix.path()), ", transport: {kind: ideal}, paths: ecmp"));
            scenario.network.fidelity = fidelity;
            RunOptions options;
            options.messages = true;
            const RunOutput out = run_scenario(scenario, test::model_cache(), options);
            REQUIRE(out.messages);
            const std::vector<double>& ends = out.messages->completions;
            const std::vector<double>& starts = out.messages->starts;
            CAPTURE(static_cast<int>(fidelity));
            CHECK(starts[3] == doctest::Approx(ends[barrier ? 0 : 1]).epsilon(1e-9));
            CHECK(starts[4] == doctest::Approx(ends[barrier ? 0 : 2]).epsilon(1e-9));
            CHECK(starts[5] == doctest::Approx(ends[0]).epsilon(1e-9));
        }
    }
}

TEST_CASE("a flow that waits for several starts when the last of them has arrived") {
    const test::File csv(
        "join.csv",
        "src,dst,bytes,start,after\n0,1,65536,0,\n2,3,4096,0,\n4,5,4096,0,1;2\n6,7,4096,0,2;1\n8,9,4096,0,2\n");
    Scenario scenario = test::scenario(network_for(fmt::format("{{flows: {}}}", csv.path()), ""));
    scenario.network.fidelity = Fidelity::fluid;
    RunOptions options;
    options.timeline = true;
    const RunOutput out = run_scenario(scenario, test::model_cache(), options);
    std::vector<double> starts;
    double end = 0;
    for (const auto& span : out.timeline.spans) {
        starts.push_back(span.start_us);
        end = std::max(end, span.start_us == 0 ? span.duration_us : 0);
    }
    std::sort(starts.begin(), starts.end());
    REQUIRE(starts.size() == 5);
    CHECK(starts[1] == 0);
    CHECK(starts[2] < end / 2);
    CHECK(starts[3] == doctest::Approx(end));
    CHECK(starts[4] == doctest::Approx(end));
}

TEST_CASE("a flow that starts later is drawn from its start on") {
    const test::File csv("later.csv", "src,dst,bytes,start,after\n0,1,4096,1e-5,\n1,2,4096,2e-5,1\n");
    Scenario scenario = test::scenario(network_for(fmt::format("{{flows: {}}}", csv.path()), ""));
    scenario.network.fidelity = Fidelity::fluid;
    RunOptions options;
    options.timeline = true;
    const RunOutput out = run_scenario(scenario, test::model_cache(), options);
    REQUIRE(out.timeline.spans.size() == 2);
    CHECK(out.timeline.spans[0].start_us == doctest::Approx(10));
    CHECK(out.timeline.spans[1].start_us > 30);
    CHECK(out.timeline.spans[1].start_us + out.timeline.spans[1].duration_us == doctest::Approx(out.seconds * 1e6));
}

TEST_CASE("under SimGrid a flow's completion time counts from its start, and links have carried what they have") {
    if (!std::filesystem::exists(std::filesystem::read_symlink("/proc/self/exe").parent_path() / "orrery-simgrid")) {
        MESSAGE("skipped: this build has no SimGrid");
        return;
    }
    const test::File csv("waits.csv", "src,dst,bytes,start,after\n0,1,1000000,1e-3,\n1,2,1000000,2e-3,1\n");
    Scenario scenario = test::scenario(network_for(fmt::format("{{flows: {}}}", csv.path()), ""));
    scenario.network.fidelity = Fidelity::fluid;
    const Summary ours = summary_of(scenario);
    scenario.network.fidelity = Fidelity::simgrid;
    const Summary theirs = summary_of(scenario);
    for (const char* metric : {"fct_s.mean", "fct_s.max", "max_link_utilisation"}) {
        CAPTURE(metric);
        CHECK(value(theirs, metric) == doctest::Approx(value(ours, metric)).epsilon(1e-6));
    }
    CHECK(value(theirs, "fct_s.max") < 1e-3);
}

TEST_CASE("a pause that would end before it begins is refused") {
    const auto with = [](const std::string& queues) {
        return test::scenario(network_for("{pattern: incast, size: 64 KiB}", ", queues: {pfc: true, " + queues + "}"));
    };
    CHECK_THROWS_WITH_AS(summary_of(with("pause_at: 20 kB, resume_at: 30 kB")), doctest::Contains("resume_at is 30000"),
                         ConfigError);
    CHECK_THROWS_AS(summary_of(with("resume_at: 1 GiB")), ConfigError);
    CHECK(value(summary_of(with("pause_at: 30 kB, resume_at: 30 kB")), "packets_delivered") > 0);
}

TEST_CASE("link events come from a file, and a flow that they cut off for good is named") {
    std::string cut = "time_s,link,event,factor\n";
    for (int spine = 0; spine < 8; ++spine) {
        cut += fmt::format("2e-5,leaf 0 spine {},down,1\n", spine);
    }
    const test::File down("down.csv", cut);
    const test::File late("late.csv", cut + "1e-3,leaf 0 spine 0,up,1\n");
    const auto scenario = [&](const test::File& file) {
        return test::scenario(network_for("{pattern: shift, shift: 8, size: 8 MiB}",
                                          fmt::format(", reroute_delay: 10 us, link_events: {}", file.path())));
    };
    CHECK_THROWS_WITH_AS(summary_of(scenario(down)), doctest::Contains("can never finish"), InfeasibleError);
    const Summary back = summary_of(scenario(late));
    CHECK(value(back, "fct_s.max") > 1e-3);
    CHECK(value(back, "drops") > 0);
    const std::vector<std::pair<std::string, std::string>> bad = {
        {"0,leaf 0 spine 99,down,1\n",
         ":2:3: error: 'leaf 0 spine 99' does not exist: the fabric has 'leaf 0 spine 0' to 'leaf 3 spine 7'; nearest "
         "is "
         "'leaf 0 spine 7'"},
        {"0,nic 32,down,1\n",
         ":2:3: error: 'nic 32' does not exist: the fabric has 'nic 0' to 'nic 31'; nearest is 'nic 31'"},
        {"0,leaf 0 spine 0,down,1\n1e-3,nic 40,up,1\n", ":3:6: error: 'nic 40' does not exist"},
        {"0,nic 3,pause,\n", ":2:3: error: a link event lets nic 3 pause its switch, which knows pauses with"},
        {"0,spine 0 core 0,down,1\n", ":2:3: error: 'spine 0 core 0': the fabric has no core"},
        {"0,leaf 0,down,1\n", ":2:3: error: link 'leaf 0' is not"},
        {"0,nic 0 1,down,1\n", ":2:3: error: link 'nic 0 1' is not"},
        {"0,nic 0,sideways,1\n", ":2:9: error: event 'sideways' is not one of"},
        {"0,nic 0,errors,0.5\n", "'factor' must be a number from 0 to 0.001"},
    };
    for (const auto& [row, expected] : bad) {
        const test::File wrong("wrong.csv", "time_s,link,event,factor\n" + row);
        std::string said;
        try {
            (void)summary_of(scenario(wrong));
        } catch (const ConfigError& error) {
            said = error.what();
        }
        CHECK_MESSAGE(said.find(expected) != std::string::npos, row << "\n" << said);
    }
}
