// What a command writes is none of what it reads.

#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"

#include <doctest/doctest.h>

using namespace orrery;
using namespace orrery::test;

namespace {

constexpr const char* kServing =
    "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-2-7b\nslo: {ttft: 1 s}\n"
    "requests: {trace: trace.csv}\n";
constexpr const char* kTrace = "arrival_s,prompt,output\n0,10,2\n1,10,2\n";

}  // namespace

TEST_CASE("an output that is an input, a file that an input names, or another output is refused before anything runs") {
    const Folder folder;
    const std::string scenario = folder.file("s.yaml", kServing);
    const std::string trace = folder.file("trace.csv", kTrace);
    const std::string training = folder.file("base.yaml", kSmallTraining);
    const std::string sweep =
        folder.file("sweep.yaml", "orrery: 1\nkind: sweep\nbase: base.yaml\naxes: {plan.zero: [0, 1]}\n");
    const std::string link = folder.file("link.yaml");
    const std::string hard = folder.file("hard.yaml");
    std::filesystem::create_symlink(scenario, link);
    std::filesystem::create_hard_link(scenario, hard);
    const std::string db = folder.file("db");
    REQUIRE(orrery_command(fmt::format("sweep {} --db {}", sweep, db)).code == 0);
    const std::string baseline = folder.file("b.yaml");
    REQUIRE(orrery_command(fmt::format("check {} --update --scenario {} --reason first", baseline, training)).code ==
            0);
    const std::string goal = folder.file("step.goal", "num_ranks 1\nrank 0 {\na: calc 10\n}\n");
    const std::string own = folder.file("x.replay", read(goal));
    const std::string same = folder.file("new.json");

    std::vector<std::string> refused = {
        fmt::format("run {0} --json {0}", scenario),
        fmt::format("run {0} --trace {0}", scenario),
        fmt::format("run {0} --report {0}", scenario),
        fmt::format("run {0} --resolved {0}", scenario),
        fmt::format("run {} --requests {}", scenario, trace),
        fmt::format("run {} --json {}", link, scenario),
        fmt::format("run {} --json {}", scenario, link),
        fmt::format("run {} --json {}", scenario, hard),
        fmt::format("run {} --json {}/../{}", scenario, std::filesystem::path(scenario).parent_path().string(),
                    std::filesystem::path(scenario).parent_path().filename().string() + "/s.yaml"),
        fmt::format("run {0} --json {1} --trace {1}", scenario, same),
        fmt::format("run {0} --json {1} --trace {2}/./new.json", scenario, same,
                    std::filesystem::path(same).parent_path().string()),
        fmt::format("run {} --json - --trace -", scenario),
        fmt::format("plan {0} --json {0}", training),
        fmt::format("capacity {} --json {}", scenario, trace),
        fmt::format("plot timeline {0} -o {0}", training),
        fmt::format("plot heat {0} --x plan.zero --y plan.zero --value mfu -o {0}", db),
        fmt::format("table {0} --format csv -o {0}", db),
        fmt::format("sweep {0} --db {0}", sweep),
        fmt::format("sweep {} --db {} --report {}", sweep, folder.file("other"), training),
        fmt::format("merge {0} {0}", db),
        fmt::format("check {0} --junit {0}", baseline),
        fmt::format("check {} --summary {}", baseline, training),
        fmt::format("check {0} --update --scenario {0} --reason x", training),
        fmt::format("import goal {0} -o {0}", goal),
        fmt::format("calibrate {0} -o {0}", trace),
    };
    for (const std::string& arguments : refused) {
        const auto files = [&] {
            std::map<std::string, std::string> out;
            for (const auto& entry :
                 std::filesystem::directory_iterator(std::filesystem::path(scenario).parent_path())) {
                out[entry.path().string()] = read(entry.path().string());
            }
            return out;
        };
        const auto before = files();
        const Outcome out = orrery_command(arguments);
        CHECK_MESSAGE(out.code == 2, arguments << "\n" << out.text);
        const bool named = out.text.find("name another file") != std::string::npos ||
                           out.text.find("name two files") != std::string::npos;
        CHECK_MESSAGE(named, arguments << "\n" << out.text);
        CHECK_MESSAGE(files() == before, arguments);
    }
    // The name that import chooses by itself may be that of its input.
    const std::string in_folder = fmt::format("cd {} && ", std::filesystem::path(own).parent_path().string());
    const Outcome out = shell_command(in_folder + orrery_program() + " import goal x.replay");
    CHECK(out.code == 2);
    CHECK(read(own) == read(goal));
}

TEST_CASE(
    "what a run depends on has no line numbers: lines above an inline device change neither hash nor resolved text") {
    const std::string text =
        "orrery: 1\nkind: collective\ncluster:\n  nodes: 1\n  node:\n    preset: dgx-a100-80g\n"
        "    gpu: {preset: a100-sxm-80g, memory_bandwidth: 1.9 TB/s}\n    intra_latency: 2 us\ncollective: {size: 1 "
        "MiB}\n";
    const Scenario one = scenario(text);
    const Scenario other = scenario("# what it asks\n\n" + text);
    CHECK(one.cluster.node.gpu.memory_bandwidth.source != other.cluster.node.gpu.memory_bandwidth.source);
    const std::string resolved = resolved_json(one);
    CHECK(resolved == resolved_json(other));
    CHECK(resolved == resolved_json(scenario(resolved)));
    CHECK(run_scenario(one, model_cache(), {}).summary.hash == run_scenario(other, model_cache(), {}).summary.hash);
    const Scenario faster = scenario(std::string(text).replace(text.find("1.9 TB/s"), 3, "1.8"));
    CHECK(run_scenario(one, model_cache(), {}).summary.hash != run_scenario(faster, model_cache(), {}).summary.hash);
}

TEST_CASE("a resolved scenario in another folder finds its files, from wherever it is run") {
    const Folder folder;
    std::filesystem::create_directories(folder.file("in/files"));
    std::filesystem::create_directories(folder.file("out"));
    (void)folder.file("in/files/trace.csv", kTrace);
    (void)folder.file("in/files/flows.csv", "src,dst,bytes,start\n0,1,1000000,0\n1,2,1000000,0\n");
    (void)folder.file("in/files/step.replay", read(ORRERY_SOURCE_DIR "/scenarios/replay/two-layer-step.replay"));
    const std::vector<std::string> bodies = {
        std::string(kServing).replace(std::string(kServing).find("trace.csv"), 9, "files/trace.csv"),
        "orrery: 1\nkind: network\ncluster: {hosts: 4, fabric: {kind: leaf-spine, hosts_per_leaf: 2, spines: 1, "
        "link: 100 Gbps}}\ntraffic: {flows: files/flows.csv}\n",
        "orrery: 1\nkind: replay\ncluster: {nodes: 2, node: dgx-a100-80g}\ncompute: {model: replay, trace: "
        "files/step.replay}\n"};
    for (const std::string& body : bodies) {
        const std::string file = folder.file("in/s.yaml", body);
        const auto json = [&](const std::string& of, const std::string& options) {
            const Outcome out = orrery_command(fmt::format("run {} --quiet --json - {}", of, options));
            REQUIRE_MESSAGE(out.code == 0, out.text);
            return out.text.substr(out.text.find("\"metrics\""));
        };
        const std::string own = json(file, "--resolved " + folder.file("out/r.yaml"));
        CHECK(json(folder.file("out/r.yaml"), "") == own);
        // Written to stdout it is meant for where the command runs.
        const Outcome here = shell_command(
            fmt::format("cd {} && {} run in/s.yaml --quiet --resolved - > r.yaml", folder.file("."), orrery_program()));
        REQUIRE_MESSAGE(here.code == 0, here.text);
        CHECK(json(folder.file("r.yaml"), "") == own);
    }
}

TEST_CASE("what loses nothing is written, and a file that is in the way of writing is left alone") {
    const Folder folder;
    const std::string scenario = folder.file("a.json.part", kSmallTraining);
    const std::string json = folder.file("a.json");
    CHECK(orrery_command(fmt::format("run {} --quiet --json /dev/null --trace /dev/null", scenario)).code == 0);
    CHECK(orrery_command(fmt::format("run {} --quiet --json {}", scenario, json)).code == 0);
    CHECK(read(scenario) == kSmallTraining);
    CHECK(read(json).rfind("{", 0) == 0);
    CHECK(orrery_command(fmt::format("run {} --quiet --json {}", scenario, json)).code == 0);  // over an old output
    // What cannot be written is known before the run.
    const Outcome nowhere = orrery_command(fmt::format("run {} --json {}/no/x.json", scenario, folder.file("")));
    CHECK(nowhere.code == 2);
    CHECK_MESSAGE(nowhere.text.find("there is no folder") != std::string::npos, nowhere.text);
    CHECK(orrery_command(fmt::format("run {} --json ''", scenario)).text.find("--json is given an empty value") !=
          std::string::npos);
}

TEST_CASE("what a run reads on its way is not written over: own presets, files of one import, standard input") {
    const Folder folder;
    namespace fs = std::filesystem;
    fs::create_directories(folder.file("mine/models/data/devices"));
    const std::string device = folder.file("mine/models/data/devices/my-gpu.yaml",
                                           read(ORRERY_SOURCE_DIR "/models/data/devices/a100-sxm-80g.yaml"));
    const std::string with_own =
        folder.file("own.yaml",
                    "orrery: 1\nkind: collective\ncluster: {nodes: 1, node: {preset: dgx-a100-80g, gpu: my-gpu}}\n"
                    "collective: {size: 1 MiB}\n");
    const std::string plain = folder.file(
        "plain.yaml",
        "orrery: 1\nkind: collective\ncluster: {nodes: 1, node: dgx-a100-80g}\ncollective: {size: 1 MiB}\n");
    const std::string resolved = folder.file("resolved.yaml");
    REQUIRE(orrery_command(fmt::format("run {} --quiet --resolved {}", plain, resolved)).code == 0);
    const std::string link = folder.file("link");
    fs::create_symlink(device, link);
    const std::string step = read(ORRERY_SOURCE_DIR "/scenarios/replay/two-layer-step.replay");
    const std::string replay = folder.file("step.replay", step);
    const std::string replayed =
        folder.file("replay.yaml",
                    "orrery: 1\nkind: replay\ncluster: {nodes: 2, node: dgx-a100-80g}\ncompute: {model: replay, "
                    "trace: step.replay}\n");
    const std::vector<std::pair<std::string, std::string>> refused = {
        {fmt::format("run {} --data {} --json {}", with_own, folder.file("mine"), device), device},
        {fmt::format("run {} --data {} --json {}", with_own, folder.file("mine"), link), device},
        {fmt::format("plot fabric {} --data {} -o {}", with_own, folder.file("mine"), device), device},
        {fmt::format("topology {} --svg {}", replayed, replay), replay},
        {fmt::format("run - --resolved {0} < {0}", resolved), resolved},
        {fmt::format("run - --json {0} < {0}", plain), plain},
        {fmt::format("run {0} --resolved {0}", resolved), resolved},
    };
    for (const auto& [arguments, kept] : refused) {
        const std::string before = read(kept);
        const Outcome out = orrery_command(arguments);
        CHECK_MESSAGE(out.code == 2, arguments << "\n" << out.text);
        CHECK_MESSAGE(out.text.find("--force overwrites it") != std::string::npos, arguments << "\n" << out.text);
        CHECK_MESSAGE(read(kept) == before, arguments);
    }
    CHECK(fs::is_symlink(link));
    CHECK(orrery_command(fmt::format("run - --quiet --json {0} --force < {0}", plain)).code == 0);
    CHECK(read(plain).rfind("{", 0) == 0);
}

TEST_CASE("an output goes over an earlier output of its kind, and over no other file without --force") {
    const Folder folder;
    const std::string network = folder.file(
        "n.yaml",
        "orrery: 1\nkind: network\ncluster: {hosts: 4, fabric: {hosts_per_leaf: 2, spines: 1, link: 100 Gbps}}\n"
        "traffic: {pattern: permutation, size: 64 KiB}\nnetwork: {fidelity: packet, queue_samples: 1 us, flow_samples: "
        "{every: 1 us}}\n"
        "expect: {fct_s.max: \"< 1 s\"}\n");
    const std::string training = folder.file("base.yaml", kSmallTraining);
    const std::string serving = folder.file("s.yaml", kServing);
    (void)folder.file("trace.csv", kTrace);
    const std::string sweep =
        folder.file("sweep.yaml", "orrery: 1\nkind: sweep\nbase: base.yaml\naxes: {plan.zero: [0, 1]}\n");
    const std::string db = folder.file("db");
    REQUIRE(orrery_command(fmt::format("sweep {} --db {}", sweep, db)).code == 0);
    const std::string json = folder.file("summary.json");
    REQUIRE(orrery_command(fmt::format("run {} --quiet --json {}", training, json)).code == 0);
    const std::string baseline = folder.file("b.yaml");
    REQUIRE(orrery_command(fmt::format("check {} --update --scenario {} --reason first", baseline, training)).code ==
            0);
    const std::string goal = folder.file("step.goal", "num_ranks 1\nrank 0 {\na: calc 10\n}\n");
    const std::vector<std::string> commands = {
        "run " + network + " --quiet --json",
        "run " + network + " --quiet --trace",
        "run " + network + " --quiet --report",
        "run " + network + " --quiet --resolved",
        "run " + network + " --quiet --junit",
        "run " + network + " --quiet --ports",
        "run " + network + " --quiet --queues",
        "run " + network + " --quiet --flows",
        "run " + network + " --quiet --flow-samples",
        "run " + serving + " --quiet --requests",
        "plan " + training + " --quiet --simulate 1 --json",
        "compare " + json + " " + json + " --quiet --export-json",
        "compare " + json + " " + json + " --quiet --export-csv",
        "compare " + json + " " + json + " --quiet --export-markdown",
        "compare " + json + " " + json + " --quiet --export-svg",
        "table " + db + " --format csv -o",
        "table " + db + " --format json -o",
        "table " + db + " --report",
        "plot breakdown " + training + " -o",
        "topology " + training + " --svg",
        "check " + baseline + " --quiet --junit",
        "check " + baseline + " --quiet --summary",
        "check " + baseline + " --quiet --report",
        "import goal " + goal + " --quiet -o",
        "price gemm m=4096 n=4096 k=4096 --device h100-sxm --quiet --json",
        "price gemm m=4096 n=4096 k=4096 --device h100-sxm --quiet -o",
    };
    for (const std::string& command : commands) {
        std::filesystem::remove_all(folder.file("out"));
        std::filesystem::create_directories(folder.file("out"));
        const std::string file = folder.file("out/o.csv");
        const auto write = [&](const std::string& more) { return orrery_command(command + " " + file + more); };
        Outcome out = write("");
        CHECK_MESSAGE(out.code == 0, command << "\n" << out.text);
        out = write("");
        CHECK_MESSAGE(out.code == 0, "again: " << command << "\n" << out.text);
        for (const char* foreign :
             {"my notes\n", "time,what\n1,2\n", "{\"mine\": 1}\n", "orrery: 1\nkind: training\n"}) {
            (void)folder.file("out/o.csv", foreign);
            out = write("");
            CHECK_MESSAGE(out.code == 2, command << "\n" << out.text);
            CHECK_MESSAGE(out.text.find("--force overwrites it") != std::string::npos, command << "\n" << out.text);
            CHECK_MESSAGE(read(file) == foreign, command);
        }
        CHECK_MESSAGE(write(" --force").code == 0, command);
        CHECK_MESSAGE(write("").code == 0, command);
        std::ofstream(file).close();  // as mktemp leaves it
        CHECK_MESSAGE(write("").code == 0, command);
    }
    // Columns named after runs are others when the runs are.
    const std::string other = folder.file("other.json");
    const std::string compared = folder.file("compared.csv");
    REQUIRE(orrery_command(fmt::format("run {} --quiet --json {}", training, other)).code == 0);
    CHECK(orrery_command(fmt::format("compare {0} {0} --quiet --export-csv {1}", json, compared)).code == 0);
    CHECK(orrery_command(fmt::format("compare {} {} --quiet --export-csv {}", json, other, compared)).code == 0);
    // Results of a sweep are lost to nothing else that this program writes.
    const std::string before = read(db);
    CHECK(orrery_command(fmt::format("run {} --quiet --json {}", training, db)).code == 2);
    CHECK(read(db) == before);
    // The default name of an import.
    (void)folder.file("step.replay", "my notes\n");
    const std::string in_folder = fmt::format("cd {} && {} ", folder.file(""), orrery_program());
    CHECK(shell_command(in_folder + "import goal step.goal").code == 2);
    CHECK(read(folder.file("step.replay")) == "my notes\n");
}

TEST_CASE("init never writes over a file, which may have been edited, without --force") {
    const Folder folder;
    const std::string file = folder.file("train.yaml");
    const std::string init = "init training --gpus 8 --device h100-sxm --model llama-3-8b -o " + file;
    REQUIRE(orrery_command(init).code == 0);
    const std::string edited = read(file) + "# mine\n";
    (void)folder.file("train.yaml", edited);
    const Outcome again = orrery_command(init);
    CHECK(again.code == 2);
    CHECK_MESSAGE(again.text.find("exists") != std::string::npos, again.text);
    CHECK(read(file) == edited);
    CHECK(orrery_command(init + " --force").code == 0);
    CHECK(read(file) != edited);
}

TEST_CASE("an importer says that its scenario runs as it is where a run has shown it, and else why not") {
    const Folder folder;
    const auto imported = [&](const char* layers) {
        const std::string script = folder.file("train.sh", fmt::format("torchrun pretrain_gpt.py --num-layers {} "
                                                                       "--hidden-size 8192 --num-attention-heads 64 "
                                                                       "--seq-length 2048 --micro-batch-size 1 "
                                                                       "--global-batch-size 8 --bf16 "
                                                                       "--tensor-model-parallel-size 8\n",
                                                                       layers));
        return orrery_command(fmt::format("import megatron-args {} -o {} --force", script, folder.file("t.yaml")));
    };
    const Outcome fits = imported("4");
    CHECK(fits.code == 0);
    CHECK_MESSAGE(fits.text.find("'orrery run' as it is") != std::string::npos, fits.text);
    const Outcome larger = imported("400");
    CHECK_MESSAGE(larger.text.find("'orrery run' when this is mended: ") != std::string::npos, larger.text);
    CHECK_MESSAGE(larger.text.find("as it is") == std::string::npos, larger.text);
}
