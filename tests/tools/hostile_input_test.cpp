// Input that is wrong in a way that was once accepted, took for ever, or reached the terminal.

#include "sim/base/text.hpp"
#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"
#include "tools/driver/kind.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <chrono>

using namespace orrery;
using namespace orrery::test;

namespace {

void check_refused(const std::string& arguments, const std::string& expected, int code = 2) {
    const Outcome out = orrery_command(arguments);
    CHECK_MESSAGE(out.code == code, arguments << "\n" << out.text);
    CHECK_MESSAGE(out.text.find(expected) != std::string::npos, arguments << "\n" << out.text);
}

std::size_t lines_of(const std::string& text) {
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

TEST_CASE("what means nothing is refused and not passed over") {
    const Folder folder;
    const std::string good = folder.file("good.yaml", kSmallTraining);
    const std::string network = folder.file("network.yaml",
                                            "orrery: 1\nkind: network\ncluster: {hosts: 4, fabric: {link: 1 Gbps}}\n"
                                            "traffic: {flows: m.cm}\n");
    const std::string head = "Nodes 4\nConnections 1\n0->1 id 1 start 0 size 4096 recv_done_trigger 1\n";
    const std::vector<std::pair<std::string, std::string>> matrices = {
        {head + "trigger id 1 sometimes\n", "m.cm:4:1: error: a trigger is declared as"},
        {head + "trigger 1 oneshot\n", "a trigger is declared as"},
        {head + "trigger id x oneshot\n", "'id' must be a whole number"},
        {head + "trigger id 1 oneshot twice\n", "unknown word 'twice'"},
        {"Nodes 4 x\n" + head, "unknown word 'x'"},
        {"Connections many\n" + head, "'Connections' must be a whole number"},
    };
    for (const auto& [text, expected] : matrices) {
        (void)folder.file("m.cm", text);
        check_refused("run " + network, expected);
    }
    (void)folder.file("m.cm", head + "1->2 trigger 1 size 10\ntrigger id 1 oneshot\n");
    CHECK(orrery_command("run " + network).code == 0);

    const std::string sparse = folder.file("sparse.yaml",
                                           "orrery: 1\nkind: training\ncluster: {nodes: 1, node: dgx-h100}\n"
                                           "model: {preset: llama-3-8b, attention: block-sparse}\n"
                                           "plan: {tensor: 8, global_batch: 8}\n");
    CHECK(orrery_command("run " + sparse).code == 0);
    for (const char* ignores : {"plan.attention=unfused", "plan.tensor=4 --set plan.context=2"}) {
        check_refused(fmt::format("run {} --set {}", sparse, ignores),
                      "model.attention: block-sparse is trained with a fused kernel");
    }

    const std::string serving = folder.file("serving.yaml",
                                            "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\n"
                                            "model: llama-2-7b\nslo: {ttft: 1e-300 s}\n");
    check_refused("run " + serving, "serving.yaml:5:13: error: 'ttft' of 1e-300 s is too small to be meant");
    check_refused("run " ORRERY_SOURCE_DIR
                  "/scenarios/training/llama-3-8b-long-64xH100.yaml --set cluster.node.gpu.power_limit='50 W'",
                  "power_limit 50 W is no more than the board takes when idle");
    check_refused("run " + good + " --set plan.shard=2", "shard needs zero: 3");
    check_refused("plan " + good + " --attainment 0.5", "--attainment is for serving scenarios");
    check_refused("plan " ORRERY_SOURCE_DIR "/scenarios/serving/llama-2-70b-conversations.yaml --headroom 0.1",
                  "--headroom is for training scenarios");
    check_refused("help training plan.tensor plan.zero", "'orrery help' takes at most 2 arguments");
    check_refused("validate serving --engine nope", "no engine is called 'nope'; there are");
    check_refused("validate training --engine vllm-0.11", "--engine belongs to the suite serving");
    const std::string empty = folder.file("empty");
    std::filesystem::create_directory(empty);
    for (const char* command : {"calibrate", "validate compute", "validate collectives"}) {
        check_refused(fmt::format("{} --data {}", command, empty), "holds none of the public profiles");
        check_refused(fmt::format("{} --data {}/x", command, empty), "no such folder");
        check_refused(fmt::format("{} --data ''", command), "--data is given an empty value");
    }
    // A complete software map is what it says, with or without a name.
    const std::string text = kSmallTraining;
    const std::string body =
        "  kernel_slowdown: {value: 1.9, how: assumed, source: test}\n"
        "  launch: {value: 9 ms, how: assumed, source: test}\n"
        "  step_overhead: {value: 1 s, how: assumed, source: test}\n"
        "  reserved_memory: {value: 1 GiB, how: assumed, source: test}\n";
    const std::string before = text.substr(0, text.find("software:")) + "software:\n";
    const auto seconds = [](const std::string& yaml) {
        return run_scenario(scenario(yaml), model_cache(), {}).summary.find("iteration_time_s")->value;
    };
    CHECK(seconds(before + body) == seconds(before + "  name: mine\n" + body));
    CHECK(seconds(before + body) > 1);
    CHECK(refusal(before + "  launch: 9 ms\n").find("'kernel_slowdown' is missing") != std::string::npos);
}

TEST_CASE("a value that nothing of its scenario reads is refused at its line, and its default is not") {
    const std::string head = "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\n";
    const auto said = [&](const std::string& rest) { return refusal(head + rest); };
    const std::string dense = "model: llama-3-8b\n";
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"requests:\n  rate: 2\n  burstiness: 3\n",
         ":7:15: error: 'requests.burstiness' has no effect without arrivals"},
        {"requests: {arrivals: at-once, count: 5, rate: 2}\n", "'requests.rate' has no effect without"},
        {"requests: {arrivals: at-once, mix: [{share: 1}]}\n", "'requests.arrivals' has no effect without"},
        {"requests: {arrivals: fixed, trace: requests.csv}\n", "'requests.arrivals' has no effect without"},
        {"engine: {same_devices: true, transfer: layers, prefill: {units: 50 %}, decode: {units: 50 %}}\n",
         "'engine.transfer' has no effect without prefill and decode replicas on devices of their own"},
        {"engine: {same_devices: true, units: 50 %, prefill: {units: 50 %}, decode: {units: 50 %}}\n",
         "'engine.units' has no effect without replicas that are all alike"},
        {"requests: {rate: 2, clients: 4}\n", "'requests.clients' has no effect without arrivals: closed"},
        {"requests: {arrivals: closed, count: 4}\n", "need 'clients'"},
        {"requests: {rate: 2, period: 60 s}\n", "no effect without a swing"},
        {"requests: {prompt: {mean: 5, spread: 0.5}}\n", "'requests.prompt.spread' has no effect without"},
        {"requests: {prompt: {mean: 5}, mix: [{share: 1}]}\n", "'requests.prompt' has no effect without"},
        {"engine: {experts: fp8, dispatch: all-to-all, expert_load: 2}\n",
         "'engine.expert_load' has no effect without"},
        {"engine: {replicas: 2, router: prefix}\n", "no effect without a prefix cache"},
        {"engine: {replicas: 2, router: session}\n", "no effect without requests of several sessions"},
        {"engine: {transfer: layers}\n", "no effect without prefill and decode replicas"},
        {"engine: {redundant_experts: 4}\n", "'engine.redundant_experts' has no effect without a model with experts"},
        {"engine: {tensor: 2, prefill: {replicas: 1}, decode: {replicas: 1}}\n",
         "'engine.tensor' has no effect without replicas that are all alike"},
        {"engine: {scheduler: {token_budget: 16}, prefill: {replicas: 1}, decode: {replicas: 1}}\n",
         "'engine.scheduler' has no effect without"},
        {"engine: {handover: 5 ms}\n", "no effect without prefill and decode replicas"},
        {"engine: {first_token: decode}\n", "no effect without prefill and decode replicas"},
        {"engine: {kv: {host_memory: 1 GiB}}\n", "no effect without a scheduler that swaps"},
        {"engine: {failures: {at: 5 s}}\n", "unknown key 'failures' (its place is faults)"},
        {"engine: {autoscale: {target: 2, provision: 5 s}}\n", "(its place is engine.start.provision)"},
        {"engine: {start: {warm_up: 5 s}}\n", "'engine.start' has no effect without replicas that start"},
        {"faults: {retries: 5}\n", "'faults' names none"},
        {"faults: {events: [{at: 1 s, kind: fail-stop, where: replica1}]}\n", "the service has replica0 to replica0"},
        {"faults: {events: [{at: 1 s, kind: slow, where: gpu0, factor: 50 %}], recovery: {corruption: 1 h}}\n",
         "without a corruption"},
        {"faults: {events: [{at: 1 s, kind: slow, where: gpu0}]}\n", "needs a 'factor' between 0 and 1"},
        {"faults: {events: [{at: 1 s, kind: slow, where: gpu0, factor: 0.5}], recovery: {spares: 1}}\n",
         "'faults.recovery.spares' has no effect without"},
        {"faults: {events: [{at: 1 s, kind: degraded, where: nic0, factor: 0.5}]}\n",
         "no effect without traffic between nodes"},
        {"faults: {processes: [{component: replica, kind: fail-stop, mtbf: 1 ms}]}\n", "is at least 1 s"},
        {"engine: {replicas: 2, autoscale: {target: 5, least: 9}}\n", "runs at least 9 replicas, and there are 2"}};
    for (const auto& [rest, expected] : cases) {
        const std::string text = dense + rest;
        CHECK_MESSAGE(said(text).find(expected) != std::string::npos, text << said(text));
    }
    CHECK(said("model: {preset: llama-3-8b, full_every: 2}\n").find("no effect without a window") != std::string::npos);
    CHECK(said("model: {preset: deepseek-v3, window: 128}\n").find("'model.window' has no effect without") !=
          std::string::npos);
    CHECK(said("model: {preset: deepseek-v3, kv_heads: 8}\n")
              .find("no effect without attention with keys and values of each head") != std::string::npos);
    // DeepSeek's attention has a part with position, which `rotary: true` agrees with.
    CHECK(said("model: {preset: deepseek-v3, rotary: false}\n").find("'model.rotary' has no effect without") !=
          std::string::npos);
    CHECK(said("model: {preset: deepseek-v3, latent: {rotary: 0}, rotary: true}\n").find("'model.rotary'") !=
          std::string::npos);
    CHECK(said("model: {preset: deepseek-v3, rotary: true}\nengine: {tensor: 8}\n").empty());
    const std::string mixtral = "model: {preset: mixtral-8x7b, experts: ";
    CHECK(said(mixtral + "{group_topk: 2}}\n").find("no effect without groups of experts") != std::string::npos);
    CHECK(said(mixtral + "{groups: 4}}\n").find("no effect without group_topk") != std::string::npos);
    CHECK(
        said("model: mixtral-8x7b\nengine: {scaling: block}\n").find("no effect without a model with experts in fp8") !=
        std::string::npos);
    CHECK(said("model: mixtral-8x7b\nengine: {scaling: block, experts: fp8}\n").empty());
    CHECK(said("model: {preset: llama-3-8b, experts: {topk: 2}}\n").find("experts (count above 0)") !=
          std::string::npos);
    CHECK(said("model: {preset: llama-3-8b, latent: {value_dim: 64}}\n").find("latent attention") != std::string::npos);
    for (const char* heads : {"hidden: 64, heads: 96", "hidden: 1024, heads: 3"}) {
        const std::string uneven = fmt::format("model: {{layers: 2, {}, vocabulary: 1024}}\n", heads);
        CHECK_MESSAGE(said(uneven).find("must divide hidden") != std::string::npos, uneven << said(uneven));
    }
    CHECK(
        said("model: qwen3-30b-a3b\nengine: {tensor: 2, dispatch: hierarchical}\n").find("attention groups (groups)") !=
        std::string::npos);
    CHECK(said(dense + "requests: {burstiness: 1, period: 1 d, prompt: {spread: 1}}\nengine: {transfer: whole}\n")
              .empty());
    const std::string training =
        "orrery: 1\nkind: training\ncluster: {nodes: 2, node: dgx-h100}\nmodel: llama-2-7b\n"
        "plan: {tensor: 8, data: 2, global_batch: 16}\nfaults:\n  duration: 1 d\n  processes:\n"
        "    - {component: gpu, kind: fail-stop, mtbf: 1000 h, bad_factor: 5}\n  recovery: {borrow: 5 s}\n";
    const std::string spine =
        "orrery: 1\nkind: network\ncluster: {hosts: 8, fabric: {core_oversubscription: 4}}\n"
        "traffic: {pattern: permutation, size: 1 MiB}\n";
    CHECK(refusal(spine).find("is of pods, which kind: fat-tree has") != std::string::npos);
    // Bare hosts have no kernels, as nodes in a scenario of messages have none.
    for (const char* machines : {"hosts: 8, fabric: {link: 1 Gbps}", "nodes: 1, node: dgx-h100"}) {
        const std::string budget = fmt::format(
            "orrery: 1\nkind: network\ncluster: {{{}, power: {{cluster: 1 kW}}}}\n"
            "traffic: {{pattern: permutation, size: 1 MiB}}\n",
            machines);
        CHECK_MESSAGE(refusal(budget).find("'power' changes nothing in kind network") != std::string::npos, budget);
    }
    const std::string leaves =
        "orrery: 1\nkind: network\ncluster: {hosts: 8, fabric: {link: 1 Gbps, hosts_per_leaf: 4, nodes_per_leaf: 2}}\n"
        "traffic: {pattern: permutation, size: 1 MiB}\n";
    CHECK_MESSAGE(
        refusal(leaves).find(":3:79: error: 'fabric.nodes_per_leaf' and 'fabric.hosts_per_leaf' say the same") !=
            std::string::npos,
        refusal(leaves));
    const std::string queues =
        "orrery: 1\nkind: network\ncluster: {hosts: 8}\ntraffic: {pattern: permutation, size: 1 MiB}\n"
        "network: {fidelity: packet, queues: {alpha: 8, pause_at: 1 MB, ecn_probability: 0.5}}\n";
    for (const char* needed : {"queues.shared", "(pfc)", "queues.ecn"}) {
        CHECK_MESSAGE(refusal(queues).find(needed) != std::string::npos, refusal(queues));
    }
    const std::string both = refusal(training);
    CHECK_MESSAGE(both.find(":9:67: error: 'faults.processes.0.bad_factor' has no effect without") != std::string::npos,
                  both);
    CHECK(both.find("'faults.recovery.borrow' has no effect without spares") != std::string::npos);
}

TEST_CASE("what sweeps pass through to no effect is a note of the run at every fidelity") {
    const auto noted = [](const std::string& text, const std::string& note) {
        const RunOutput out = run_scenario(scenario(text), model_cache(), {});
        const auto& notes = out.summary.notes;
        return std::count_if(notes.begin(), notes.end(),
                             [&](const std::string& one) { return one.find(note) != std::string::npos; });
    };
    const std::string training =
        "orrery: 1\nkind: training\ncluster: {nodes: 1, node: dgx-h100}\nmodel: {preset: llama-2-7b, layers: 4}\n"
        "plan: {tensor: 2, data: 4, global_batch: 8, ";
    for (const char* fidelity : {"analytic", "fluid", "packet"}) {
        const std::string rest = fmt::format("}}\nnetwork: {{fidelity: {}}}\n", fidelity);
        const char* parameters =
            "'plan.overlap.parameters' has no effect without weights that are gathered once per step";
        CHECK(noted(training + "zero: 0, overlap: {parameters: true}" + rest, parameters) == 1);
        CHECK(noted(training + "zero: 1, overlap: {parameters: true}" + rest, parameters) == 0);
        CHECK(noted(training + "zero: 0, overlap: {parameters: false}" + rest, parameters) == 0);
        const std::string lone =
            training.substr(0, training.find("tensor: 2")) + "tensor: 1, data: 8, global_batch: 8, ";
        CHECK(noted(lone + "sequence_parallel: true, overlap: {tensor: full, pipeline: true}" + rest,
                    "has no effect without") == 3);
        const std::string cut =
            training.substr(0, training.find("tensor: 2")) + "tensor: 8, data: 1, global_batch: 8, ";
        CHECK(noted(cut + "zero: 1, sequence_parallel: true, overlap: {data: true, parameters: true}" + rest,
                    "has no effect without") == 3);
        const char* selective = "'plan.recompute' has no effect without attention: unfused";
        CHECK(noted(training + "recompute: selective" + rest, selective) == 1);
        CHECK(noted(training + "recompute: selective, attention: unfused" + rest, selective) == 0);
    }
    const std::string collective =
        "orrery: 1\nkind: collective\ncluster: {hosts: 4, fabric: {link: 400 Gbps}}\n"
        "collective: {algorithm: ring, size: 1 MiB, slow_factor: 0.5";
    const char* factor = "'collective.slow_factor' has no effect without a slow_rank";
    CHECK(noted(collective + "}\n", factor) == 1);
    CHECK(noted(collective + ", slow_rank: -1}\n", factor) == 1);
    CHECK(noted(collective + ", slow_rank: 1}\n", factor) == 0);
    const auto transport = [&](const std::string& settings, const std::string& note) {
        return noted(
            "orrery: 1\nkind: network\ncluster: {hosts: 4, fabric: {link: 100 Gbps}}\n"
            "traffic: {pattern: shift, shift: 1, size: 64 KiB}\n"
            "network: {fidelity: packet, paths: ecmp, " +
                settings + "}\n",
            note);
    };
    for (const char* kind : {"roce", "hpcc", "timely", "infiniband", "ideal"}) {
        CHECK_MESSAGE(
            transport(fmt::format("transport: {{kind: {}, window: 20 kB}}", kind),
                      "'network.transport.window' has no effect without a transport that keeps to a window") == 1,
            kind);
    }
    CHECK(transport("transport: {kind: swift, window: 20 kB}", "has no effect") == 0);
    CHECK(transport("transport: {kind: ideal, retries: 3, timeout: 1 ms}, nic: {done_at_sender: true}",
                    "has no effect without a transport that acknowledges packets") == 3);
}

TEST_CASE("keys of plans, schedulers, NICs and recoveries that nothing reads are notes of the run") {
    const auto notes = [](const std::string& text) {
        std::string out;
        for (const std::string& one : run_scenario(scenario(text), model_cache(), {}).summary.notes) {
            out += one.find("has no effect") != std::string::npos ? one + "\n" : "";
        }
        return out;
    };
    const std::string head = "orrery: 1\nkind: training\ncluster: {nodes: 1, node: ";
    const std::string model = "}\nmodel: {preset: llama-2-7b, layers: 4}\nplan: {global_batch: 8, ";
    for (const char* plan : {"data: 8", "tensor: 4, pipeline: 2"}) {
        const std::string text = head + "dgx-h100" + model + plan + ", spread: ";
        CHECK(notes(text + "replicas}\n") ==
              "'plan.spread' has no effect without replicas of several stages (plan.pipeline and plan.data above 1)\n");
        CHECK(notes(text + "stages}\n").empty());
    }
    CHECK(notes(head + "dgx-h100" + model + "data: 4, pipeline: 2, spread: replicas}\n").empty());

    // Steps without gradients exchange weights at most.
    const std::string zeroth = head + "dgx-h100" + model.substr(0, model.find("global_batch")) +
                               "data: 8, micro_batch: 1, global_batch: 8, zeroth_order: {perturbation: 1}, overlap: "
                               "{data: true}, zero: ";
    CHECK(notes(zeroth + "0}\n").find("'plan.overlap.data' has no effect without gradients that are summed") !=
          std::string::npos);
    CHECK(notes(zeroth + "3}\n").empty());

    // The link of a fabric is the rate of NICs, too.
    const std::string nic = head + "{preset: dgx-h100, nic_bandwidth: 100 Gbps}, fabric: {";
    const std::string plan = "}" + model + "data: 8}\n";
    CHECK(notes(nic + "link: 400 Gbps" + plan) ==
          "'cluster.node.nic_bandwidth' has no effect without a fabric without link, which is the rate of the "
          "NICs\n");
    CHECK(notes(nic + "link: 100 Gbps" + plan).empty());
    CHECK(notes(nic + "spines: 2" + plan).empty());

    // Messages of a GPU leave over one NIC, unless packets of theirs are spread over several.
    const std::string nics =
        "orrery: 1\nkind: collective\ncluster: {nodes: 2, node: {preset: dgx-h100, gpus: 4}}\n"
        "collective: {size: 64 KiB, algorithm: ring}\nnetwork: {fidelity: ";
    const auto all_notes = [](const std::string& text) {
        return fmt::format("{}", fmt::join(run_scenario(scenario(text), model_cache(), {}).summary.notes, "\n"));
    };
    const char* unused = "of the 8 NICs of a node ('cluster.node.nics') 4 send messages";
    CHECK(all_notes(nics + "fluid}\n").find(unused) != std::string::npos);
    CHECK(all_notes(nics + "packet}\n").find(unused) != std::string::npos);
    CHECK(all_notes(nics + "packet, nic: {rails: 2}}\n").find(unused) == std::string::npos);
    CHECK(notes(nics + "packet, queues: {reduction_slots: 8}}\n") ==
          "'network.queues.reduction_slots' has no effect without an all-reduce inside switches (algorithm: "
          "in-switch)\n");

    const std::string serving =
        "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-2-7b\nengine: {scheduler: {kind: ";
    const std::string few = "}}\nrequests: {count: 8, rate: 4, prompt: 100, output: 4, sessions: ";
    for (const char* kind : {"static", "orca"}) {
        CHECK(notes(serving + kind + ", token_budget: 512" + few + "1}\n") ==
              "'engine.scheduler.token_budget' has no effect without a scheduler that counts tokens\n");
        CHECK(notes(serving + kind + few + "1}\n").empty());
    }
    CHECK(notes(serving + "sarathi, token_budget: 512" + few + "1}\n").empty());
    CHECK(notes(serving + "sarathi" + few + "3}\n") ==
          "'requests.sessions' has no effect without conversations, or a router or scheduler that goes by sessions "
          "(router: session, scheduler: fair)\n");
    CHECK(notes(serving + "fair" + few + "3}\n").empty());
    CHECK(notes(serving + "sarathi" + few + "3, conversations: true}\n").empty());
    const std::string given =
        "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-2-7b\n"
        "requests: {count: 8, rate: 4}\ncompute: {model: roofline}\nengine: {tensor: 1";
    CHECK(notes(given + ", step_cost: {fixed: 5 ms}}\n") ==
          "'compute.model' has no effect without prices of kernels in place of engine.step_cost\n");
    CHECK(notes(given + "}\n").empty());
    for (const char* replicas : {"1", "2"}) {
        const std::string routed =
            notes(fmt::format("orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: dgx-h100}}\nmodel: llama-2-7b\n"
                              "engine: {{replicas: {}, router: least-requests}}\nrequests: {{count: 8, rate: 4}}\n",
                              replicas));
        CHECK((routed == "'engine.router' has no effect without several replicas to choose from\n") ==
              (replicas == std::string("1")));
    }

    // A whole description of a recovery serves faults of many kinds: what no fault of this campaign asks for is told.
    const std::string campaign = head + "dgx-h100" + model +
                                 "data: 8}\nfaults:\n  duration: 4 h\n  checkpoint: {interval: {kind: fixed, every: 1 "
                                 "h}}\n  recovery: {timeout: 60 s, retry_limit: 5 s, corruption: 1 h, queue: 1 s,"
                                 " repair: {manual: {mean: 1 h}}}\n  events: [{at: 1 h, where: gpu1, kind: ";
    CHECK(notes(campaign + "fail-stop}]\n") ==
          "'faults.recovery.timeout' has no effect without a hang, or heartbeats that miss a fail-stop\n"
          "'faults.recovery.retry_limit' has no effect without links or switches that fail\n"
          "'faults.recovery.repair.manual' has no effect without machines that need it (to_manual)\n");
    CHECK(notes(campaign + "hang}]\n").find("timeout") == std::string::npos);
    const std::string calm = head + "dgx-h100" + model +
                             "data: 8}\nfaults:\n  duration: 1 h\n  checkpoint: {interval: {kind: fixed, every: 1 h}, "
                             "storage: {keep: 3}}\n  recovery: {standbys: 1, anomaly: {delay: 1 min}}\n"
                             "  events: [{at: 1 min, where: node0, lasts: 1 min, ";
    CHECK(notes(calm + "kind: power-cap, factor: 0.5}]\n") ==
          "'faults.recovery.anomaly' has no effect without faults that slow machines, or a hang\n"
          "'faults.recovery.standbys' has no effect without faults that stop the job\n"
          "'faults.checkpoint.storage.keep' has no effect without a corruption, which older checkpoints are free of, "
          "or a capacity\n");
    CHECK(notes(calm + "kind: slow, factor: 0.5}]\n").find("recovery") == std::string::npos);
    CHECK(notes(campaign + "slow, factor: 0.5, lasts: 1 h}]\n").find("'faults.recovery.queue'") != std::string::npos);
}

TEST_CASE("jobs that are the cluster which lists them are refused") {
    const Folder folder;
    const std::string file =
        folder.file("self.yaml",
                    "orrery: 1\nkind: cluster\ncluster: {nodes: 2, node: dgx-h100, fabric: {kind: single-switch}}\n"
                    "jobs: [{name: a, file: self.yaml, nodes: 2}]\n");
    check_refused("run " + file, "self.yaml:4:8: error: job 'a' cannot be a cluster of further jobs");
}

TEST_CASE("a merge takes no empty file for a database") {
    const Folder folder;
    (void)folder.file("base.yaml", kSmallTraining);
    const std::string sweep =
        folder.file("sweep.yaml", "orrery: 1\nkind: sweep\nbase: base.yaml\naxes: {plan.zero: [0, 1]}\n");
    const std::string db = folder.file("db");
    REQUIRE(orrery_command(fmt::format("sweep {} --db {}", sweep, db)).code == 0);
    const std::string empty = folder.file("empty");
    REQUIRE(shell_command(": > " + empty).code == 0);
    check_refused(fmt::format("merge {} {}", folder.file("all"), empty), "no");
    check_refused(fmt::format("merge {} {}", empty, db), "is empty");
    CHECK(std::filesystem::file_size(empty) == 0);
    CHECK(!std::filesystem::exists(folder.file("all")));
}

TEST_CASE("replay: ranks that wait for each other are named with the lines of the circle") {
    const Folder folder;
    const std::string head = "# orrery-replay: 1\n# source: test\n# ranks: 2\n# program: each\nlane,main\ngroup,0 1\n";
    const std::string scenario = folder.file("s.yaml",
                                             "orrery: 1\nkind: replay\ncluster: {nodes: 1, node: dgx-a100-80g}\n"
                                             "compute: {model: replay, trace: t.replay}\n");
    // Each rank receives before it sends: neither message is ever sent.
    (void)folder.file("t.replay", head +
                                      "op,0,0,recv,wait,10,,,8,,,1,,\nop,0,0,send,give,10,,,8,,,1,,-1\n"
                                      "op,1,0,recv,wait,10,,,8,,,0,,\nop,1,0,send,give,10,,,8,,,0,,-1\n");
    const Outcome circle = orrery_command("run " + scenario);
    CHECK_MESSAGE(circle.code == 2, circle.text);
    for (const char* expected : {"ranks 0, 1 wait for each other in a circle", "'give' of rank 0 (line 8)",
                                 "'wait' of rank 0 (line 7)", "'give' of rank 1 (line 10)", "t.replay:"}) {
        CHECK_MESSAGE(circle.text.find(expected) != std::string::npos, circle.text);
    }
    // Two collectives in opposite orders.
    (void)folder.file("t.replay", head + "group,0 1\n" +
                                      "op,0,0,collective,a,10,,,8,all-reduce,0,,,\n"
                                      "op,0,0,collective,b,10,,,8,all-reduce,1,,,-1\n"
                                      "op,1,0,collective,b,10,,,8,all-reduce,1,,,\n"
                                      "op,1,0,collective,a,10,,,8,all-reduce,0,,,-1\n");
    const Outcome crossed = orrery_command("run " + scenario);
    CHECK_MESSAGE(crossed.code == 2, crossed.text);
    for (const char* expected : {"ranks 0, 1 wait", "'b' of rank 0 (line 9) waits for 'a' of rank 0 (line 8)",
                                 "'a' of rank 1 (line 11) waits for 'b' of rank 1 (line 10)"}) {
        CHECK_MESSAGE(crossed.text.find(expected) != std::string::npos, crossed.text);
    }
    // In the same order they run.
    (void)folder.file("t.replay", head +
                                      "op,0,0,send,give,10,,,8,,,1,,\nop,0,0,recv,wait,10,,,8,,,1,,-1\n"
                                      "op,1,0,recv,wait,10,,,8,,,0,,\nop,1,0,send,give,10,,,8,,,0,,-1\n");
    CHECK_MESSAGE(orrery_command("run " + scenario).code == 0, orrery_command("run " + scenario).text);
}

TEST_CASE("two hundred thousand unknown keys are told in a moment, the first fifty of them") {
    const Folder folder;
    std::string text = kSmallTraining;
    for (int i = 0; i < 200'000; ++i) {
        text += fmt::format("key_{}: 1\n", i);
    }
    const auto started = std::chrono::steady_clock::now();
    const Outcome out = orrery_command("run " + folder.file("many.yaml", text));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    CHECK(out.code == 2);
    CHECK_MESSAGE(seconds < 20, seconds);      // 39 s before, and some 2 now
    CHECK(lines_of(out.text) == 51 + 2 * 10);  // the first ten with their lines
    CHECK_MESSAGE(out.text.find("many.yaml: error: and 199950 more errors") != std::string::npos,
                  out.text.substr(out.text.size() - std::min<std::size_t>(out.text.size(), 200)));
}

TEST_CASE("what is no file of text is refused before it is read") {
    const Folder folder;
    const std::string big = folder.file("big.yaml");
    const std::string pipe = folder.file("pipe");
    REQUIRE(shell_command("truncate -s 8G " + big).code == 0);
    REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
    const std::string text = kSmallTraining;
    const std::string good = folder.file("good.yaml", text);
    const auto with = [&](const std::string& name, const std::string& rest) { return folder.file(name, rest); };
    const std::string serving = "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-2-7b\n";
    const std::string network = "orrery: 1\nkind: network\ncluster: {hosts: 4, fabric: {link: 1 Gbps}}\n";
    const std::string replay = "orrery: 1\nkind: replay\ncluster: {nodes: 1, node: dgx-a100-80g}\n";
    check_refused("run " + big, "big.yaml: error: larger than 16 MiB");
    check_refused("sweep " + big + " --db x", "larger than 16 MiB");
    check_refused("check " + big, "larger than 16 MiB");
    check_refused("run " + with("f.yaml", network + "traffic: {flows: big.yaml}\n"), "a line is longer than 1 MiB");
    check_refused("run " + with("t.yaml", serving + "requests: {trace: big.yaml}\n"), "a line is longer than 1 MiB");
    check_refused("run " + with("r.yaml", replay + "compute: {model: replay, trace: big.yaml}\n"), "larger than 4 GiB");
    check_refused("calibrate " + big, "is larger than");
    check_refused("import goal " + big + " -o " + folder.file("o"), "larger than 4 GiB");
    for (const std::string& arguments :
         {"run " + pipe, "plan " + pipe, "sweep " + pipe + " --db x", "check " + pipe, "calibrate " + pipe,
          "import goal " + pipe + " -o " + folder.file("o"), "topology " + pipe,
          "import nsys " + pipe + " -o " + folder.file("o"), "table " + pipe,
          "merge " + folder.file("all") + " " + pipe, "plot pareto " + pipe,
          "run " + with("f.yaml", network + "traffic: {flows: pipe}\n"),
          "run " + with("t.yaml", serving + "requests: {trace: pipe}\n"),
          "run " + with("r.yaml", replay + "compute: {model: replay, trace: pipe}\n")}) {
        const Outcome out = shell_command("timeout 20 " + orrery_program() + " " + arguments);
        CHECK_MESSAGE(out.code == 2, arguments << "\n" << out.text);
        CHECK_MESSAGE(out.text.find("a pipe or a device and not a file") != std::string::npos, arguments << out.text);
    }
    CHECK(shell_command("timeout 60 " + orrery_program() + " run - --quiet < " + good).code == 0);
}

TEST_CASE("more memory than --memory-limit ends with 3, and a long run says so before it starts") {
    const Folder folder;
    const std::string traffic = folder.file("traffic.yaml",
                                            "orrery: 1\nkind: network\ncluster: {hosts: 3000, fabric: {link: 1 Gbps}}\n"
                                            "traffic: {pattern: all-to-all, size: 1 MB}\n");
    const std::string small_limit = "run " + traffic + " --memory-limit '64 MiB'";
#if !defined(__SANITIZE_ADDRESS__)  // which reserves more addresses than any limit
    check_refused(small_limit, "about 36 s and 4.191 GiB of memory for 9e+06 messages, more than", 3);
    check_refused(small_limit, "infeasible: this needs more than 64 MiB of memory", 3);
#endif
    check_refused("run " + traffic + " --memory-limit 3", "--memory-limit is a size", 2);
    const std::string good = folder.file("good.yaml", kSmallTraining);
    CHECK(orrery_command("run " + good + " --memory-limit '2 GiB'").code == 0);
    CHECK(orrery_command("run " + good + " --memory-limit none").code == 0);
    check_refused("run " + good + " --set plan.global_batch=400000000", "100000000 micro-batches", 3);

    const std::string small = kSmallTraining;
    const RunCost little = expected_cost(scenario(small));
    CHECK(little.seconds < 1);
    CHECK(little.bytes < 10e6);
    const RunCost much = expected_cost(
        scenario("orrery: 1\nkind: collective\ncluster: {nodes: 128, node: dgx-h100}\ncollective: {size: 16 GiB}\n"
                 "network: {fidelity: packet}\n"));
    // Each of 1,024 ranks sends twice the size in packets of 4 KiB; an eighth leaves its node, over four links.
    CHECK(much.what == "4.3e+09 packet-hops");
    CHECK(much.seconds > 60);
    // Whoever waits for a slow memory has timeouts all along.
    const auto memory = [](const char* rate) {
        return expected_cost(scenario(
            fmt::format("orrery: 1\nkind: network\ncluster: {{hosts: 16, fabric: {{hosts_per_leaf: 4, spines: 2, "
                        "link: 100 Gbps}}}}\ntraffic: {{pattern: permutation, size: 1 MiB}}\nnetwork: "
                        "{{fidelity: packet, transport: {{kind: dctcp}}, nic: {{host_memory: {}}}}}\n",
                        rate)));
    };
    CHECK(memory("100 GB/s").seconds < 1);
    CHECK(memory("1000 B/s").seconds > 20);
    // A sequence of a million tokens fills most of the cache, so that few share an iteration.
    const auto answers = [](const char* tokens) {
        return expected_cost(
            scenario(fmt::format("orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: dgx-h100}}\n"
                                 "model: llama-2-70b\nengine: {{tensor: 8}}\n"
                                 "requests: {{rate: 5, count: 3000, output: {}}}\n",
                                 tokens)));
    };
    CHECK(answers("211").what == "3e+03 requests");
    CHECK(answers("211").seconds < 1);
    CHECK(answers("1e6").what == "3e+03 requests of 1e+06 output tokens each");
    CHECK(answers("1e6").seconds > 200);
    // Bad machines of a campaign fail as often as their factor says.
    const auto campaign = [](const char* factor) {
        return expected_cost(scenario(
            fmt::format("orrery: 1\nkind: training\ncluster: {{nodes: 2, node: dgx-h100}}\nmodel: llama-2-7b\n"
                        "plan: {{tensor: 8, data: 2, global_batch: 16}}\nfaults:\n  duration: 30 d\n  processes:\n"
                        "    - {{component: gpu, kind: fail-stop, mtbf: 1000 h, bad_share: 50 %, bad_factor: {}}}\n",
                        factor)));
    };
    CHECK(campaign("2").seconds < 1);
    CHECK(campaign("1e6").seconds > 1);
    // KV transfers of half a MiB a token, in packets of 64 bytes.
    const RunCost moved = expected_cost(
        scenario("orrery: 1\nkind: serving\ncluster: {nodes: 2, node: dgx-h100}\nmodel: llama-2-7b\n"
                 "engine: {prefill: {tensor: 8}, decode: {tensor: 8}}\nnetwork: {fidelity: packet, mtu: 64 B}\n"
                 "requests: {rate: 5, count: 1000, prompt: 1000}\n"));
    CHECK(moved.seconds > 600);
    CHECK(moved.what.find("packet-hops") != std::string::npos);
    // Alike messages are neither stored nor simulated one by one; hashed paths make each a case of its own.
    const auto all_to_all = [](const char* paths) {
        return expected_cost(scenario(
            std::string(
                "orrery: 1\nkind: collective\ncluster: {nodes: 128, node: dgx-h100}\n"
                "collective: {op: all-to-all, algorithm: direct, size: 64 MiB}\nnetwork: {fidelity: fluid, paths: ") +
            paths + "}\n"));
    };
    CHECK(all_to_all("spray").seconds < 5);
    CHECK(all_to_all("spray").bytes == 0);
    CHECK(all_to_all("ecmp").seconds > 60);
    CHECK(all_to_all("ecmp").what.find("network.batch") != std::string::npos);
    const Outcome said =
        shell_command("timeout -s INT 5 " + orrery_program() + " run " +
                      folder.file("long.yaml",
                                  "orrery: 1\nkind: collective\ncluster: {nodes: 128, node: dgx-h100}\n"
                                  "collective: {size: 64 GiB}\nnetwork: {fidelity: packet}\n"));
    CHECK_MESSAGE(said.text.find("of memory for ") != std::string::npos, said.text);
    CHECK_MESSAGE(said.text.find("\nsimulating: ") != std::string::npos, said.text);
    CHECK_MESSAGE(said.text.find("\norrery: interrupted: simulating: ") != std::string::npos, said.text);
    CHECK_MESSAGE(said.text.find("no output was written") != std::string::npos, said.text);
}

TEST_CASE("text of files reaches the terminal spelt out and cut") {
    CHECK(printable("a\x1b[31mb\n\tc\x7f") == "a\\x1b[31mb\\n\\tc\\x7f");
    CHECK(printable("\xc2\x9b"
                    "31m \xff \xc3") == "\\u009b31m \\xff \\xc3");
    CHECK(printable("gr\xc3\xbc\xc3\x9f \xe2\x86\x93 \xf0\x9f\x98\x80") ==
          "gr\xc3\xbc\xc3\x9f \xe2\x86\x93 \xf0\x9f\x98\x80");
    CHECK(printable("\xe2\x80\xae"
                    "abc") == "\\u202eabc");
    const std::string cut = printable(std::string(3'000'000, 'x'));
    CHECK(cut.size() < 4100);
    CHECK(cut.find("... (3000000 bytes in all) ...") != std::string::npos);

    const Folder folder;
    const std::string evil = "\"\\e]0;pwned\\a\\e[2Jx\\ny\"";
    const std::string text = kSmallTraining;
    const auto no_control = [](const std::string& out) {
        return std::none_of(out.begin(), out.end(),
                            [](char c) { return (static_cast<unsigned char>(c) < 32 && c != '\n') || c == 127; });
    };
    const std::vector<std::string> scenarios = {
        text + evil + ": 1\n",                         // a key
        text + "network: {fidelity: " + evil + "}\n",  // a value
        text.substr(0, text.find("model:")) + "model: " + evil + text.substr(text.find("\nplan:")),
        text + "\"" + std::string(3'000'000, 'k') + "\": 1\n",
        text + "faults: \"" + std::string(3'000'000, 'v') + "\"\n",
    };
    for (const std::string& one : scenarios) {
        const Outcome out = orrery_command("run " + folder.file("evil.yaml", one));
        CHECK(out.code == 2);
        CHECK_MESSAGE(no_control(out.text), out.text.substr(0, 2000));
        CHECK_MESSAGE(lines_of(out.text) <= 3, out.text.substr(0, 2000));  // and a part of the line, with a mark
        CHECK(out.text.size() < 10'000);
    }
    // A name that is shown where all is well: of the model, of the file.
    const std::string named =
        text.substr(0, text.find("{layers")) + "{name: " + evil + ", layers" + text.substr(text.find("{layers") + 7);
    const std::string path = folder.file("we\x1b[31mird \xff.yaml", named);
    for (const char* command : {"run", "explain", "topology"}) {
        const Outcome out = orrery_command(fmt::format("{} '{}'", command, path));
        CHECK_MESSAGE(out.code == 0, out.text);
        CHECK_MESSAGE(no_control(out.text), command);
    }
    CHECK(orrery_command(fmt::format("run '{}' --quiet --json -", path)).code == 0);
}

TEST_CASE("a wrong --set is told once, and not as a part of the cluster that is missing") {
    const Folder folder;
    const std::string good = folder.file("good.yaml",
                                         "orrery: 1\nkind: training\ncluster: {nodes: 1, node: dgx-h100}\n"
                                         "model: llama-2-7b\nplan: {tensor: 8, global_batch: 8}\n");
    check_refused(fmt::format("run {} --set model=[1]", good), "'model' must be a map");
    check_refused(fmt::format("run {} --set plan=[1]", good), "'plan' must be a map");
    const std::string ring = folder.file("ring.yaml",
                                         "orrery: 1\nkind: collective\ncluster: {hosts: 4, fabric: {link: 1 Gbps}}\n"
                                         "collective: [1]\n");
    check_refused("run " + ring, "ring.yaml:4:13: error: 'collective' must be a map");
    const std::vector<std::pair<std::string, std::string>> wrong = {
        {"cluster.node.gpu=h100", "--set cluster.node.gpu=h100:1:1: error: unknown device preset 'h100'"},
        {"cluster.node=dgx", "unknown node preset 'dgx'"},
        {"cluster.fabric.kind=leafspine", "'leafspine'"},
        {"kind=trainng", "'kind' cannot be 'trainng'"},
        {"cluster.nodes=.nan", "'nodes' must be a whole number, not '.nan'"},
        {"model=\"''\"", "unknown model preset ''; 'orrery list models'"},
    };
    for (const auto& [value, expected] : wrong) {
        const Outcome out = orrery_command(fmt::format("run {} --set {}", good, value));
        CHECK_MESSAGE(out.code == 2, out.text);
        CHECK_MESSAGE(out.text.find(expected) != std::string::npos, out.text);
        CHECK_MESSAGE(lines_of(out.text) == 1, out.text);
    }
}

TEST_CASE("files that are not there and a missing SimGrid are told at the lines that ask for them, all at once") {
    const Folder folder;
    const std::string training = folder.file("training.yaml",
                                             "orrery: 1\nkind: training\ncluster: {nodes: 1, node: dgx-h100}\n"
                                             "model: llama-2-7b\nplan:\n  tensor: 8\n  global_batch: 8\n"
                                             "  documents: {trace: lengths.csv}\nfaults: {trace: none.csv, checkpoint: "
                                             "{interval: {kind: fixed, every: 30 min}}}\n");
    check_refused("run " + training, "training.yaml:8:22: error: 'lengths.csv' cannot be read: no such file");
    check_refused("run " + training, "training.yaml:9:17: error: 'none.csv' cannot be read: no such file");
    const std::string jobs =
        folder.file("jobs.yaml",
                    "orrery: 1\nkind: cluster\ncluster: {nodes: 2, node: dgx-h100, fabric: {link: 400 Gbps}}\njobs:\n"
                    "  - {name: a, nodes: 0, file: absent.yaml}\n"
                    "  - name: b\n    nodes: 1\n    scenario:\n      kind: serving\n      model: llama-2-7b\n"
                    "      requests: {trace: gone.csv}\n");
    check_refused("run " + jobs, "jobs.yaml:5:31: error: 'absent.yaml' cannot be read: no such file");
    (void)folder.file("absent.yaml", "kind: serving\nmodel: llama-2-7b\nrequests:\n  trace: away.csv\n");
    check_refused("run " + jobs, "absent.yaml:4:10: error: 'away.csv' cannot be read: no such file");

    // The program without its neighbour.
    const std::string alone = folder.file("alone");
    std::filesystem::copy_file(orrery_program(), alone);
    const std::string network = folder.file("simgrid.yaml",
                                            "orrery: 1\nkind: network\ncluster: {hosts: 4, fabric: {link: 1 Gbps}}\n"
                                            "traffic: {pattern: shift, shift: 1, size: 1 MiB}\n"
                                            "network: {fidelity: simgrid}\n");
    const Outcome out = shell_command(fmt::format("{} run {}", alone, network));
    CHECK(out.code == 2);
    CHECK_MESSAGE(out.text.find("simgrid.yaml:5:10: error: fidelity simgrid needs the program") != std::string::npos,
                  out.text);
}
