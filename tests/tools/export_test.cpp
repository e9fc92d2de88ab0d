// orrery export: what is written is what the run was; and programs of files at two fidelities.

#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <regex>
#include <set>
#include <sstream>

using namespace orrery;
using namespace orrery::test;

namespace {

constexpr const char* kScenarios = ORRERY_SOURCE_DIR "/scenarios/collective/";

double metric(const std::string& arguments, const std::string& name) {
    const Outcome outcome = orrery_command("run " + arguments + " --quiet --json -");
    INFO(outcome.text);
    REQUIRE(outcome.code == 0);
    const auto metrics = nlohmann::json::parse(outcome.text)["metrics"];
    REQUIRE(metrics.contains(name));
    return metrics[name]["value"];
}

void run_fine(const std::string& arguments) {
    const Outcome outcome = orrery_command(arguments);
    INFO(outcome.text);
    REQUIRE(outcome.code == 0);
}

std::string scenario_of(const std::string& collective, const std::string& network = "fluid") {
    return fmt::format(
        "orrery: 1\nkind: collective\ncluster: {{hosts: 8, fabric: {{kind: leaf-spine, hosts_per_leaf: 4, spines: 4, "
        "link: "
        "400 Gbps, latency: 500 ns}}}}\ncollective: {{{}}}\nnetwork: {{fidelity: {}}}\n",
        collective, network);
}

}  // namespace

TEST_CASE("Ring and tree written as MSCCL programs take as long as the built-in algorithms") {
    const Folder folder;
    for (const char* algorithm : {"ring", "tree, pipeline: 4"}) {
        for (const char* fidelity : {"fluid", "packet", "analytic"}) {
            CAPTURE(algorithm);
            CAPTURE(fidelity);
            const std::string size = "op: all-reduce, size: 1 MiB, ";
            const std::string built_in =
                folder.file("built-in.yaml", scenario_of(size + "algorithm: " + algorithm, fidelity));
            run_fine(fmt::format("export msccl {} -o {} --force", built_in, folder.file("program.xml")));
            const std::string own =
                folder.file("own.yaml", scenario_of(size + "algorithm: program, program: program.xml", fidelity));
            CHECK(metric(own, "collective_time_s") ==
                  doctest::Approx(metric(built_in, "collective_time_s")).epsilon(1e-9));
            CHECK(metric(own, "bytes_on_wire") == metric(built_in, "bytes_on_wire"));
        }
    }
}

TEST_CASE("A published program of MSCCL and a synthesized list of sends run at fluid and packet fidelity") {
    const std::string pairs = std::string(kScenarios) + "all-pairs-8-msccl.yaml";
    const std::string large = pairs + " --set collective.size='64 MiB'";
    CHECK(metric(large, "collective_time_s") ==
          doctest::Approx(metric(large + " --set network.fidelity=fluid", "collective_time_s")).epsilon(0.05));
    const double packet = metric(pairs, "collective_time_s");
    // Two steps stand for fourteen.
    const Folder folder;
    const std::string by_ring =
        folder.file("ring.yaml", scenario_of("op: all-reduce, size: 64 KiB, algorithm: ring", "packet"));
    CHECK(packet < 0.3 * metric(by_ring, "collective_time_s"));
    const std::string torus = std::string(kScenarios) + "all-gather-torus-16.yaml";
    const double list = metric(torus, "collective_time_s");
    CHECK(metric(torus + " --set network.fidelity=packet", "collective_time_s") == doctest::Approx(list).epsilon(0.2));
    // Five steps of a sixteenth of the payload each.
    CHECK(list == doctest::Approx(5 * (1 << 20) / 50e9).epsilon(0.3));
    CHECK(metric(torus, "messages") == 240);
}

TEST_CASE("Programs for other numbers of ranks, other operations and broken ones are refused with their file") {
    const Folder folder;
    const std::string pairs = std::string(kScenarios) + "all-pairs-8-msccl.yaml";
    Outcome outcome = orrery_command("run " + pairs + " --set cluster.hosts=4");
    CHECK(outcome.code == 2);
    CHECK(outcome.text.find("the program is for 8 ranks, and 4 take part") != std::string::npos);
    outcome = orrery_command("run " + pairs + " --set collective.op=all-gather --dry-run");
    CHECK(outcome.code == 2);
    CHECK(outcome.text.find("the program is of all-reduce, and collective.op is all-gather") != std::string::npos);
    std::string text = read(std::string(kScenarios) + "all-pairs-8.xml");
    const std::string sum = "type=\"re\" srcbuf=\"s\"";
    text.replace(text.find(sum), sum.size(), "type=\"re\" srcbuf=\"i\"");
    (void)folder.file("broken.xml", text);
    const std::string broken = folder.file(
        "broken.yaml", scenario_of("op: all-reduce, size: 64 KiB, algorithm: program, program: broken.xml"));
    outcome = orrery_command("run " + broken);
    CHECK(outcome.code == 2);
    CHECK(std::regex_search(
        outcome.text, std::regex("broken.xml:[0-9]+:1: error: rank 0, block 0, step 2 \\(re\\): it adds chunk ")));
    outcome = orrery_command("run " +
                             folder.file("none.yaml", scenario_of("op: all-reduce, size: 64 KiB, algorithm: program")));
    CHECK(outcome.code == 2);
    CHECK(outcome.text.find("'program' is missing") != std::string::npos);
    outcome = orrery_command(
        "run " +
        folder.file("txt.yaml", scenario_of("op: all-reduce, size: 64 KiB, algorithm: program, program: a.txt")));
    CHECK(outcome.code == 2);
}

TEST_CASE("Flows that are exported and read again take as long as the run they were of") {
    const Folder folder;
    struct Case {
        const char *format, *file, *algorithm;
    };
    for (const Case& one : {Case{"flows", "flows.csv", "ring"}, Case{"flows", "flows.csv", "double-tree, pipeline: 2"},
                            Case{"flows", "flows.csv", "halving-doubling"}, Case{"htsim", "flows.cm", "ring"},
                            Case{"htsim", "flows.cm", "halving-doubling"}}) {
        const std::string format = one.format;
        const std::string file = one.file;
        const std::string algorithm = one.algorithm;
        CAPTURE(format);
        CAPTURE(algorithm);
        const std::string scenario = folder.file(
            "collective.yaml", scenario_of(fmt::format("op: all-reduce, size: 1 MiB, algorithm: {}", algorithm)));
        run_fine(fmt::format("export {} {} -o {} --force", format, scenario, folder.file(file)));
        std::string text = scenario_of("");
        text = std::regex_replace(text, std::regex("kind: collective"), "kind: network");
        text = std::regex_replace(text, std::regex("collective: \\{\\}"), fmt::format("traffic: {{flows: {}}}", file));
        CHECK(metric(folder.file("again.yaml", text), "makespan_s") ==
              doctest::Approx(metric(scenario, "collective_time_s")).epsilon(1e-9));
    }
    const std::string network = ORRERY_SOURCE_DIR "/scenarios/network/packet-permutation-128.yaml";
    run_fine(fmt::format("export flows {} -o {}", network, folder.file("permutation.csv")));
    CHECK(read(folder.file("permutation.csv")).rfind("src,dst,bytes,start,after\n", 0) == 0);
}

TEST_CASE("What a format cannot say is refused, and so are unknown formats") {
    const Folder folder;
    const std::string thirds =
        folder.file("thirds.yaml", scenario_of("op: all-reduce, size: 1 MB, algorithm: ring, ranks: 3"));
    Outcome outcome = orrery_command("export flows " + thirds);
    CHECK(outcome.code == 3);
    CHECK(outcome.text.find("flows have whole ones: take a size that divides") != std::string::npos);
    outcome = orrery_command("export msccl " +
                             folder.file("d.yaml", scenario_of("op: all-to-all, size: 1 MiB, algorithm: direct")));
    CHECK(outcome.code == 3);
    CHECK(outcome.text.find("algorithm direct is no program") != std::string::npos);
    const std::string training = ORRERY_SOURCE_DIR "/scenarios/training/gpt3-175b-1024xA100.yaml";
    CHECK(orrery_command("export flows " + training).code == 2);
    CHECK(orrery_command("export msccl " + training).code == 2);
    outcome = orrery_command("export flow " + training);
    CHECK(outcome.code == 2);
    CHECK(outcome.text.find("did you mean 'flows'") != std::string::npos);
}

TEST_CASE("Metrics are exported in OpenMetrics' text, one family for each name") {
    const Outcome outcome =
        orrery_command("export openmetrics " ORRERY_SOURCE_DIR
                       "/scenarios/serving/llama-2-70b-conversations.yaml --set requests.count=200");
    REQUIRE(outcome.code == 0);
    CHECK(outcome.text.ends_with("# EOF\n"));
    CHECK(outcome.text.find("# TYPE orrery_ttft_s gauge\n") != std::string::npos);
    CHECK(
        outcome.text.find("orrery_ttft_s{scenario=\"llama-2-70b-conversations.yaml\",seed=\"1\",statistic=\"p99\"} ") !=
        std::string::npos);
    // A family stands in one piece: TYPE, HELP, samples.
    std::istringstream lines(outcome.text);
    std::set<std::string> seen;
    std::string family;
    for (std::string line; std::getline(lines, line) && line != "# EOF";) {
        if (line.rfind("# TYPE ", 0) == 0) {
            family = line.substr(7, line.find(' ', 7) - 7);
            CHECK_MESSAGE(seen.insert(family).second, family);
        } else if (line[0] != '#') {
            CHECK(line.rfind(family + "{", 0) == 0);
            CHECK(std::isfinite(std::stod(line.substr(line.rfind(' ')))));
        }
    }
}

TEST_CASE("training runs written as Megatron-LM's arguments read back as they were, and say what these cannot") {
    const Folder folder;
    const std::string large =
        "torchrun --nnodes 32 --nproc_per_node 8 pretrain_gpt.py --num-layers 61 --hidden-size 7168 --ffn-hidden-size "
        "18432 "
        "--num-attention-heads 128 --multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 "
        "--qk-pos-emb-head-dim 64 --v-head-dim 128 --num-experts 256 --moe-router-topk 8 --moe-ffn-hidden-size 2048 "
        "--moe-shared-expert-intermediate-size 2048 --moe-layer-freq '([0]*3+[1]*58)' --seq-length 4096 --swiglu "
        "--disable-bias-linear --hidden-dropout 0 --attention-dropout 0 --padded-vocab-size 129280 "
        "--untie-embeddings-and-output-weights --position-embedding-type rope --pipeline-model-parallel-size 8 "
        "--pipeline-model-parallel-layout 'Et*7|(t*8|)*6,t*6L' --expert-model-parallel-size 32 "
        "--moe-token-dispatcher-type "
        "flex --moe-enable-deepep --micro-batch-size 1 --global-batch-size 2048 --use-distributed-optimizer --bf16 "
        "--fp8-format hybrid --fp8-recipe blockwise --recompute-granularity selective --recompute-modules layernorm "
        "moe_act "
        "--overlap-grad-reduce --cross-entropy-loss-fusion --cross-entropy-fusion-impl te\n";
    const std::string small =
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 16 --hidden-size 2048 --num-attention-heads 16 "
        "--group-query-attention --num-query-groups 4 --seq-length 4096 --window-size 1024,0 --window-attn-skip-freq 4 "
        "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
        "--num-virtual-stages-per-pipeline-rank 2 --context-parallel-size 2 --cp-comm-type a2a --micro-batch-size 2 "
        "--global-batch-size 64 --fp16 --recompute-granularity full --recompute-method block --recompute-num-layers 2 "
        "--vocab-size 50257 --tp-comm-overlap --qk-layernorm --attention-backend unfused\n";
    for (const std::string& text : {large, small}) {
        const std::string given = folder.file("given.sh", text);
        run_fine(
            fmt::format("import megatron-args {} --node dgx-b300 -o {} --force", given, folder.file("given.yaml")));
        run_fine(fmt::format("export megatron {} -o {} --force", folder.file("given.yaml"), folder.file("written.sh")));
        CHECK_MESSAGE(read(folder.file("written.sh")).find("do not say") == std::string::npos,
                      read(folder.file("written.sh")));
        run_fine(fmt::format("import megatron-args {} --node dgx-b300 -o {} --force", folder.file("written.sh"),
                             folder.file("written.yaml")));
        CHECK(metric(folder.file("written.yaml"), "iteration_time_s") ==
              metric(folder.file("given.yaml"), "iteration_time_s"));
    }
    const std::string half = folder.file("half.yaml", std::string(kSmallTraining) + "seed: 3\n");
    const std::string text = orrery_command("export megatron " + half + " --set plan.recompute=half").text;
    CHECK_MESSAGE(text.find("#   plan.recompute: half here, not given as read back\n") != std::string::npos, text);
    CHECK(orrery_command("export megatron " + folder.file("ring.yaml", scenario_of("op: all-reduce, size: 1 MiB")))
              .code == 2);
}

TEST_CASE(
    "A collective written as GOAL and as Chakra and imported again takes as long as its run, message by message") {
    const Folder folder;
    for (const char* algorithm : {"ring", "tree, pipeline: 4", "halving-doubling"}) {
        for (const char* fidelity : {"fluid", "packet"}) {
            CAPTURE(algorithm);
            CAPTURE(fidelity);
            const std::string cluster = "orrery: 1\ncluster: {nodes: 2, node: dgx-h100}\n";
            const std::string original = folder.file(
                "original.yaml", cluster + fmt::format("kind: collective\ncollective: {{op: all-reduce, size: 1 MiB, "
                                                       "algorithm: {}}}\nnetwork: {{fidelity: {}}}\n",
                                                       algorithm, fidelity));
            const std::string again = folder.file(
                "again.yaml", cluster + fmt::format("kind: replay\ncompute: {{model: replay, trace: program.replay}}\n"
                                                    "network: {{fidelity: {}, collectives: ideal}}\n",
                                                    fidelity));
            const double expected = metric(original, "collective_time_s");
            run_fine(fmt::format("export goal {} -o {} --force", original, folder.file("program.goal")));
            run_fine(fmt::format("import goal {} -o {} --force", folder.file("program.goal"),
                                 folder.file("program.replay")));
            CHECK(metric(again, "replay_time_s") == doctest::Approx(expected).epsilon(1e-9));
            run_fine(fmt::format("export chakra {} -o {} --force", original, folder.file("program")));
            run_fine(fmt::format("import chakra {} -o {} --force", folder.file("program.0.et"),
                                 folder.file("program.replay")));
            CHECK(metric(again, "replay_time_s") == doctest::Approx(expected).epsilon(1e-9));
        }
    }
}

TEST_CASE("The program of a replay, with kernels, host calls, lags and collectives of groups, comes back from Chakra") {
    const Folder folder;
    const std::string program =
        "# orrery-replay: 1\n# source: test\n# ranks: 16\n# program: same\nlane,compute\nlane,host\nlane,network\n"
        "group,size=8 stride=1\ngroup,size=2 stride=8\n"
        "op,rank,lane,kind,name,duration_ns,lag_ns,flops,bytes,collective,group,peer,tag,after\n"
        "op,0,1,host,launch,5000,0,0,0,,,,,\n"
        "op,0,0,kernel,gemm,150000,2000,0,0,,,,,-1\n"
        "op,0,2,collective,sum,,0,0,1048576,all-reduce,0,,,-1\n"
        "op,0,2,collective,outer,,3000,0,2097152,all-gather,1,,,-1\n"
        "op,0,0,kernel,last,70000,0,0,0,,,,,-1 -3\n";
    (void)folder.file("first.replay", program);
    const std::string scenario =
        folder.file("s.yaml",
                    "orrery: 1\nkind: replay\ncluster: {nodes: 2, node: dgx-h100}\n"
                    "compute: {model: replay, trace: first.replay}\nreplay: {communication: simulated}\n");
    const double expected = metric(scenario, "replay_time_s");
    CHECK(expected > 230e-6);
    run_fine(fmt::format("export chakra {} -o {}", scenario, folder.file("out")));
    const auto groups = nlohmann::json::parse(read(folder.file("out.json")));
    CHECK(groups.size() == 2 + 8);
    run_fine(fmt::format("import chakra {} -o {}", folder.file("out.3.et"), folder.file("second.replay")));
    CHECK(metric(scenario + " --set compute.trace=second.replay", "replay_time_s") ==
          doctest::Approx(expected).epsilon(1e-9));
    const auto refused = [&](const std::string& arguments, const std::string& said) {
        const Outcome outcome = orrery_command("export " + arguments);
        CHECK_MESSAGE((outcome.code != 0 && outcome.text.find(said) != std::string::npos), outcome.text);
    };
    refused("goal " + scenario, "operation 'sum' (number 2) of rank 0 is a collective, which GOAL does not have");
    refused("chakra " + scenario, "a file for each rank");
    std::string odd = program;
    odd.replace(odd.find("150000"), 6, "150001");
    (void)folder.file("first.replay", odd);
    refused(fmt::format("chakra {} -o {}", scenario, folder.file("odd")),
            "which Chakra (whole microseconds) cannot say");
}
