#include "tools/driver/kinds/replay.hpp"
#include "sim/base/random.hpp"
#include "tests/support/command.hpp"
#include "tests/support/fabrics.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "workloads/replay/importers/chakra.hpp"
#include "workloads/replay/recorded_device.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

using namespace orrery;

namespace {

std::string sample(const char* name) {
    return std::string(ORRERY_SOURCE_DIR) + "/tests/data/replay/" + name;
}

ReplayTrace import_trace(const std::string& format, const std::string& path) {
    return parse_replay(import_file(format, ImportInput(path)).text, path);
}

using Options = std::map<std::string, std::string>;

ReplayTrace import_bytes(const std::string& format, const std::string& bytes, const Options& options = {}) {
    return parse_replay(import_file(format, ImportInput::of_bytes("bad", bytes, options)).text, "bad");
}

ImportNotes notes_of(const std::string& format, const std::string& bytes, const Options& options = {}) {
    return import_file(format, ImportInput::of_bytes("bad", bytes, options)).notes;
}

std::string text_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Eight GPUs on a switch, and a library that costs nothing.
FabricShape one_node() {
    FabricShape shape = test::rail_nodes(1);
    shape.intra_latency = 1e-6;
    return shape;
}

ReplayResult run_trace(const ReplayTrace& trace, ReplaySpec spec = {}) {
    const Fabric fabric(one_node());
    DeviceSpec device;
    device.flops_bf16.value = 1e14;
    device.memory_bandwidth.value = 1e12;
    const Placement placement(fabric);
    const IdealCollectives library;
    Simulation simulation(fabric, RunSettings());
    const ReplayRun run(trace, spec, {{&device, &library}}, placement, PathChoice::spray, simulation);
    simulation.run();
    return run.result(false);
}

// The export that tests/data/replay/step.nsys.sql describes, as a data base in a file.
std::string nsys_sample() {
    const std::string path =
        (std::filesystem::temp_directory_path() / fmt::format("orrery-nsys-{}.sqlite", getpid())).string();
    std::filesystem::remove(path);
    sqlite3* handle = nullptr;
    REQUIRE(sqlite3_open(path.c_str(), &handle) == SQLITE_OK);
    REQUIRE(sqlite3_exec(handle, text_of(sample("step.nsys.sql")).c_str(), nullptr, nullptr, nullptr) == SQLITE_OK);
    sqlite3_close(handle);
    return path;
}

// Microseconds: doctest's tolerance is relative to one more than the value, useless for seconds.
double us(double seconds) {
    return seconds * 1e6;
}

std::string problem_of(const std::function<void()>& work) {
    try {
        work();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("replay: an unchanged profiler trace takes the recorded time") {
    const ReplayTrace trace = import_trace("pytorch-profiler", sample("step.json"));
    CHECK(trace.ranks == 8);
    CHECK(trace.same_program);
    const ReplayResult result = run_trace(trace);
    CHECK(result.unchanged);
    CHECK(us(result.seconds) == doctest::Approx(us(trace.recorded_s)).epsilon(1e-6));
    CHECK(us(result.device_s + result.exposed_communication_s + result.host_s + result.idle_s) ==
          doctest::Approx(us(result.seconds)).epsilon(1e-9));
    // The record's own sums: kernels 120 + 30 + 150 + 20 + 240 + 300 + 90 + 15 us and a copy of 2 us.
    CHECK(us(result.device_s) == doctest::Approx(us(967e-6)).epsilon(1e-6));
    // The second all-reduce ends 182 us after the last backward kernel; nothing hides it.
    CHECK(us(result.exposed_communication_s) == doctest::Approx(us(180e-6)).epsilon(1e-6));
}

TEST_CASE("replay: waits between streams that were not recorded are found, recorded ones are kept") {
    const ReplayTrace trace = import_trace("pytorch-profiler", sample("step.json"));
    CHECK(trace.meta.at("recorded_waits") == "1");
    CHECK(trace.meta.at("inferred_waits") == "2");  // the first reduction on its gradients, the optimizer on the last
    // Twice as fast kernels: the optimizer still comes after the reductions, which take what they took.
    ReplaySpec fast;
    fast.kernel_speed = 2;
    const ReplayResult result = run_trace(trace, fast);
    CHECK_FALSE(result.unchanged);
    CHECK(result.seconds < trace.recorded_s);
    CHECK(us(result.device_s) == doctest::Approx(us(967e-6 / 2)).epsilon(1e-6));
    CHECK(result.exposed_communication_s > 180e-6);
}

TEST_CASE("replay: collectives of a trace on another network take what that network gives") {
    const ReplayTrace trace = import_trace("pytorch-profiler", sample("step.json"));
    ReplaySpec spec;
    spec.communication = ReplayCommunication::simulated;
    const ReplayResult result = run_trace(trace, spec);
    CHECK(result.ranks == 8);
    // 48 MiB over eight ranks at 450 GB/s: 2 x 7/8 of it on each wire, alone.
    const double each = 2.0 * 7 / 8 * 50331648.0 / 450e9;
    CHECK(us(result.exposed_communication_s) == doctest::Approx(us(each)).epsilon(0.02));
    CHECK(us(result.seconds) == doctest::Approx(us(trace.recorded_s - 180e-6 + each)).epsilon(0.01));
}

TEST_CASE("replay: a program of eight ranks runs on more, and its groups over the whole job grow with it") {
    const ReplayTrace trace = import_trace("pytorch-profiler", sample("step.json"));
    Scenario s = load_scenario(std::string(ORRERY_SOURCE_DIR) + "/scenarios/replay/two-layer-step.yaml",
                               {"replay.communication=simulated", "replay.ranks=64", "cluster.nodes=8"}, test::data());
    const RunOutput wide = run_scenario(s, test::model_cache(), {});
    s.as<RecordKind>().replay.ranks = 8;
    s.cluster.nodes = 1;
    const RunOutput narrow = run_scenario(s, test::model_cache(), {});
    CHECK(wide.summary.find("replay_time_s")->value > narrow.summary.find("replay_time_s")->value);
    s.cluster.nodes = 1;
    s.as<RecordKind>().replay.ranks = 64;
    CHECK(problem_of([&] {
              (void)run_scenario(s, test::model_cache(), {});
          }).find("64 ranks, but the cluster has 8 GPUs") != std::string::npos);
    CHECK(trace.groups.size() == 1);
}

TEST_CASE("replay: on equal groups it is a replay on their nodes, on unlike ones the slowest decides") {
    const auto seconds = [](const std::string& first, const std::string& second, const char* communication) {
        const Scenario s = load_scenario(
            std::string(ORRERY_SOURCE_DIR) + "/scenarios/replay/two-layer-step.yaml",
            {fmt::format("replay.communication={}", communication), "replay.ranks=16",
             "replay.recorded_on=a100-sxm-80g",
             fmt::format(
                 "cluster={}",
                 second.empty()
                     ? fmt::format("{{nodes: 2, node: {}}}", first)
                     : fmt::format("{{groups: [{{name: a, nodes: 1, node: {}}}, {{name: b, nodes: 1, node: {}}}]}}",
                                   first, second))},
            test::data());
        return run_scenario(s, test::model_cache(), {}).summary.find("replay_time_s")->value;
    };
    for (const char* communication : {"recorded", "simulated"}) {
        CAPTURE(communication);
        const double fast = seconds("dgx-h100", "", communication);
        const double slow = seconds("dgx-a100-80g", "", communication);
        CHECK(seconds("dgx-h100", "dgx-h100", communication) == fast);
        const double mixed = seconds("dgx-h100", "dgx-a100-80g", communication);
        CHECK(mixed > 1.05 * fast);
        CHECK(mixed == doctest::Approx(slow).epsilon(0.05));
    }
}

TEST_CASE("replay: the committed trace is what the importer makes of its sample, and reads back to itself") {
    const std::string text = format_replay(import_trace("pytorch-profiler", sample("step.json")));
    CHECK(text == text_of(std::string(ORRERY_SOURCE_DIR) + "/scenarios/replay/two-layer-step.replay"));
    CHECK(format_replay(parse_replay(text, "again")) == text);
    for (const auto& [format, file] : {std::pair{"goal", "pingpong.goal"}, std::pair{"chakra", "pair.0.et"},
                                       std::pair{"aicb", "two-layers.aicb.txt"}}) {
        const std::string once = format_replay(import_trace(format, sample(file)));
        CHECK(format_replay(parse_replay(once, file)) == once);
    }
}

TEST_CASE("replay: the same step from Nsight Systems takes the same time") {
    const std::string path = nsys_sample();
    const ReplayTrace trace = import_trace("nsys", path);
    CHECK(trace.meta.at("recorded_waits") == "1");
    CHECK(us(run_trace(trace).seconds) == doctest::Approx(us(1185e-6)).epsilon(1e-6));
    CHECK(us(trace.recorded_s) == doctest::Approx(us(1185e-6)).epsilon(1e-6));
    std::filesystem::remove(path);
}

TEST_CASE("replay: GOAL computations and messages add up, whatever the order of the lines") {
    const ReplayResult result = run_trace(import_trace("goal", sample("pingpong.goal")));
    // 1 us, 1 MB at 450 GB/s, 2.5 us, 0.5 MB back, and the latency of the switch each way.
    const double wire = (1e6 + 0.5e6) / 450e9 + 2e-6;
    CHECK(us(result.seconds) == doctest::Approx(us(3.5e-6 + wire)).epsilon(1e-6));
}

TEST_CASE("replay: Chakra honours data and control dependencies and integers of every encoding") {
    const ReplayTrace trace = import_trace("chakra", sample("pair.1.et"));
    CHECK(trace.ranks == 2);
    for (const ReplayOp& op : trace.ops) {
        if (op.kind == ReplayKind::collective || op.kind == ReplayKind::send || op.kind == ReplayKind::recv) {
            CHECK(op.bytes == 1 << 20);
        }
        if (op.kind == ReplayKind::collective) {
            CHECK(op.after_count == 2);
        }
    }
    // The all-reduce waits for the slower product (140 us); then 2 GFLOP at 100 TFLOP/s; then a message.
    const double reduce = static_cast<double>(1 << 20) / 450e9 + 1e-6;
    const double message = reduce;
    CHECK(us(run_trace(trace).seconds) == doctest::Approx(us(140e-6 + reduce + 20e-6 + message)).epsilon(1e-6));
}

TEST_CASE("replay: each row of a SimAI workload runs once, and gradients overlap what follows") {
    const ReplayTrace trace = import_trace("aicb", sample("two-layers.aicb.txt"));
    CHECK(trace.ranks == 8);
    const ReplayResult result = run_trace(trace);
    const double compute = 2 * (10 + 30 + 20 + 60 + 5 + 15) * 1e-6 + 400e-9;
    CHECK(us(result.device_s) == doctest::Approx(us(compute)).epsilon(1e-6));
    // Tensor-parallel groups of four; the gradients of the first layer over pairs, with nothing left to hide them.
    const double reduce = 1.5 * 1048576 / 450e9 + 1e-6;
    const double gather = 0.75 * 2097152 / 450e9 + 1e-6;
    const double gradients = 4194304 / 450e9 + 1e-6;
    CHECK(us(result.exposed_communication_s) == doctest::Approx(us(4 * reduce + 4 * gather + gradients)).epsilon(1e-6));
}

TEST_CASE("replay: what does not match is refused with its name") {
    ReplayTrace alone = import_trace("goal", sample("pingpong.goal"));
    alone.ops.back().tag = 9;
    CHECK(problem_of([&] { (void)run_trace(alone); }).find("has no message") != std::string::npos);

    ReplayTrace lonely = import_trace("chakra", sample("pair.0.et"));
    for (ReplayOp& op : lonely.ops) {
        if (op.kind == ReplayKind::collective && op.rank == 1) {
            op.kind = ReplayKind::kernel;
        }
    }
    CHECK(problem_of([&] { (void)run_trace(lonely); }).find("1 of 2 ranks never come to 'all_reduce'") !=
          std::string::npos);
}

TEST_CASE("replay: malformed traces are refused with the line or the byte") {
    const auto refused = [](const std::string& text, const char* format) {
        return problem_of([&] { (void)import_bytes(format, text); });
    };
    const auto refused_replay = [](const std::string& text) {
        return problem_of([&] { (void)parse_replay(text, "bad"); });
    };
    CHECK(refused("num_ranks 2\nrank 0 {\ncalc ten\n}\n", "goal").find("bad:3:1") != std::string::npos);
    CHECK(refused("num_ranks 1\nrank 0 {\na: calc 1\nb: calc 1\na requires b\nb requires a\n}\n", "goal")
              .find("in a circle") != std::string::npos);
    CHECK(refused("num_ranks 1\nrank 0 {\ncalc 1\n", "goal").find("ends inside") != std::string::npos);
    CHECK(refused("{\"traceEvents\": [{\"ph\": \"X\", ", "pytorch-profiler").find("bad:1:30: error: is no JSON") !=
          std::string::npos);
    CHECK(refused("{\"traceEvents\": []}", "pytorch-profiler").find("no kernel") != std::string::npos);
    const std::string aicb = text_of(sample("two-layers.aicb.txt"));
    CHECK(refused(aicb.substr(0, aicb.find("mlp")), "aicb").find("cut off") != std::string::npos);
    CHECK(refused(std::string(aicb).replace(aicb.find("ALLREDUCE"), 9, "ALLREDUKE"), "aicb").find("bad:3:1") !=
          std::string::npos);
    CHECK(refused_replay("# orrery-replay: 1\n# ranks: 1\n# source: x\nlane,a\nop,0,0,kernel,k,1,,,,,,,,-1\n")
              .find("bad:5:1") != std::string::npos);
    CHECK(refused_replay("something").find("starts with") != std::string::npos);
    CHECK(problem_of([] { (void)import_trace("nsys", sample("step.json")); }).find("not a database") !=
          std::string::npos);
    CHECK(problem_of([] { (void)importer("gaol"); }).find("did you mean 'goal'?") != std::string::npos);
    CHECK(problem_of([] {
              (void)import_file("goal", ImportInput("x", {{"allow-missing", ""}}));
          }).find("--allow-missing is an option of format chakra, not of goal") != std::string::npos);
}

// A step of one kernel and one collective, as Kineto writes it.
static std::string kineto(const std::string& collective_arguments, const std::string& after = "",
                          const std::string& kernel = "kernel", const std::string& duration = "20") {
    return fmt::format(R"({{"schemaVersion": 1, "traceEvents": [
{{"ph": "X", "cat": "{}", "name": "gemm", "ts": 100, "dur": {}, "args": {{"stream": 7, "device": 0, "correlation": 1}}}},
{{"ph": "X", "cat": "{}", "name": "ncclKernel_AllReduce_RING_LL_Sum_float", "ts": 130, "dur": 50,
  "args": {{"stream": 7, "device": 0, "correlation": 2{}}}}},
{{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 90, "dur": 5}}]{}}})",
                       kernel, duration, kernel, collective_arguments, after);
}

TEST_CASE("import: gzip is unpacked, and what is cut off or damaged is refused") {
    const test::Folder folder;
    const std::string plain = text_of(sample("step.json"));
    const std::string packed = folder.file("step.json.gz", "");
    REQUIRE(test::shell_command("gzip -c " + sample("step.json") + " > " + packed).code == 0);
    const auto text = [](const std::string& path) { return import_file("pytorch-profiler", ImportInput(path)).text; };
    CHECK(text(packed) == text(sample("step.json")));
    const std::string bytes = text_of(packed);
    const std::string half = plain.substr(0, plain.size() / 2);
    REQUIRE(test::shell_command(fmt::format("head -c {} {} | gzip -c > {}; tail -c +{} {} | gzip -c >> {}", half.size(),
                                            sample("step.json"), packed, half.size() + 1, sample("step.json"), packed))
                .code == 0);
    CHECK(text(packed) == text(sample("step.json")));  // two members
    CHECK(problem_of([&] {
              (void)text(folder.file("cut.gz", bytes.substr(0, bytes.size() / 2)));
          }).find("gzip is cut off") != std::string::npos);
    CHECK(problem_of([&] {
              (void)text(folder.file("tail.gz", bytes.substr(0, bytes.size() - 4)));
          }).find("gzip is cut off") != std::string::npos);
    std::string damaged = bytes;
    damaged[bytes.size() / 2] = static_cast<char>(damaged[bytes.size() / 2] + 1);
    CHECK(problem_of([&] { (void)text(folder.file("damaged.gz", damaged)); }).find("gzip is ") != std::string::npos);
}

TEST_CASE("import: a Kineto collective without a group is one of the whole job, and without a size not free") {
    const std::string world = R"(, "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 8})";
    const ReplayTrace trace = import_bytes("pytorch-profiler", kineto("", world));
    CHECK(trace.ranks == 8);
    REQUIRE(trace.groups.size() == 1);
    CHECK(trace.groups[0].size == 8);
    const ImportNotes notes = notes_of("pytorch-profiler", kineto("", world));
    CHECK(notes.assumed().at("all-reduce without a group, of all 8 ranks") == 1);
    CHECK(notes.left_out().at("sizes of all-reduce, which replay as recorded alone (or --assume-bytes)") == 1);
    CHECK(notes.left_out().at("events of category cpu_op") == 1);
    CHECK(notes.read().at("kernels and copies") == 2);
    // As recorded it takes the recorded time; on a network its size is needed.
    CHECK(us(run_trace(trace).seconds) == doctest::Approx(80).epsilon(1e-6));
    ReplaySpec simulated;
    simulated.communication = ReplayCommunication::simulated;
    CHECK(problem_of([&] { (void)run_trace(trace, simulated); }).find("--assume-bytes") != std::string::npos);
    const Options options = {{"assume-bytes", "48 MiB"}};
    const ReplayResult sized = run_trace(import_bytes("pytorch-profiler", kineto("", world), options), simulated);
    const double ring = 2.0 * 7 / 8 * 50331648.0 / 450e9;
    CHECK(us(sized.exposed_communication_s) == doctest::Approx(us(ring)).epsilon(0.02));
    // A size that is there is kept, zero elements are a barrier's one.
    const std::string known =
        R"(, "Collective name": "allreduce", "In msg nelems": 1024, "Group size": 4, "dtype": "Float")";
    const ReplayTrace kept = import_bytes("pytorch-profiler", kineto(known, world), options);
    CHECK(kept.groups[0].size == 4);
    CHECK(kept.ops.back().bytes == 4096);
    const std::string none = R"(, "Collective name": "barrier", "In msg nelems": 0, "Group size": 4, "dtype": "Float")";
    CHECK(notes_of("pytorch-profiler", kineto(none, world)).left_out().size() == 2);
    const std::string less =
        R"(, "Collective name": "allreduce", "In msg nelems": -5, "Group size": 4, "dtype": "Float")";
    CHECK(problem_of([&] { (void)import_bytes("pytorch-profiler", kineto(less, world)); }).find("moves -5 elements") !=
          std::string::npos);
    // Nobody says how many ranks there are.
    CHECK(problem_of([&] { (void)import_bytes("pytorch-profiler", kineto("")); }).find("--ranks N does") !=
          std::string::npos);
    CHECK(import_bytes("pytorch-profiler", kineto(""), {{"ranks", "16"}}).groups[0].size == 16);
    CHECK(problem_of([&] {
              (void)import_bytes("pytorch-profiler", kineto("", world), {{"ranks", "16"}});
          }).find("says that the job has 8 ranks, and --ranks 16") != std::string::npos);
    for (const Options& bad : {Options{{"assume-bytes", "much"}}, Options{{"ranks", "0"}}, Options{{"ranks", "2.5"}}}) {
        CHECK_THROWS_AS((void)import_bytes("pytorch-profiler", kineto("", world), bad), const ConfigError&);
    }
    // Categories of older versions; clocks that run back.
    CHECK(import_bytes("pytorch-profiler", kineto(known, "", "Kernel")).ops.size() == 2);
    CHECK(problem_of([&] {
              (void)import_bytes("pytorch-profiler", kineto(known, "", "kernel", "-3"));
          }).find("'gemm' at 100.000 us ends before it starts") != std::string::npos);
}

TEST_CASE("import: AICB files without ranks, of several stages, of micro tests, with collectives of no bytes") {
    const std::string row = "a\t-1\t1000\tBROADCAST\t16384\t2000\tREDUCESCATTER\t0\t500\tALLREDUCE\t4096\t100\n";
    const auto file = [&](const std::string& head) { return head + "\n1\n" + row; };
    const std::string plan = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2";
    const auto refused = [&](const std::string& head, const Options& options = {}) {
        return problem_of([&] { (void)import_bytes("aicb", file(head), options); });
    };
    CHECK(refused(plan).find("--ranks N does") != std::string::npos);
    const ReplayTrace trace = import_bytes("aicb", file(plan), {{"ranks", "8"}});
    CHECK(trace.ranks == 8);
    std::vector<std::uint32_t> sizes;
    for (const ReplayOp& op : trace.ops) {
        if (op.kind == ReplayKind::collective) {
            sizes.push_back(trace.groups[op.group].size);
        }
    }
    CHECK(sizes == std::vector<std::uint32_t>{2, 4});  // the broadcast, the gradients; nothing of no bytes
    const ImportNotes notes = notes_of("aicb", file(plan), {{"ranks", "8"}});
    CHECK(notes.left_out().at("collectives of 0 bytes (hidden by their software)") == 1);
    CHECK(notes.read().at("layers") == 1);
    CHECK(refused(plan + " all_gpus: 4", {{"ranks", "8"}}).find("all_gpus is 4, and --ranks 8") != std::string::npos);
    CHECK(refused(plan, {{"ranks", "9"}}).find("do not divide") != std::string::npos);

    const std::string stages = plan + " pp: 4 ga: 3 all_gpus: 32";
    CHECK(refused(stages).find("--one-stage takes it alone") != std::string::npos);
    CHECK(import_bytes("aicb", file(stages), {{"one-stage", ""}}).ranks == 8);
    CHECK(notes_of("aicb", file(stages), {{"one-stage", ""}}).left_out().size() == 2);

    const ReplayTrace micro = import_bytes("aicb", file("MICRO"), {{"ranks", "8"}});
    CHECK(micro.groups[micro.ops.rbegin()[1].group].size == 8);
    CHECK(refused("MACRO").find("starts with HYBRID_TRANSFORMER or MICRO") != std::string::npos);
    std::string negative = file(plan + " all_gpus: 4");
    negative.replace(negative.find("4096"), 4, "-409");
    CHECK(problem_of([&] {
              (void)import_bytes("aicb", negative);
          }).find("bad:3:1: error: the size of a collective is") != std::string::npos);
}

// Protobuf by hand: numbers and bytes of a field.
static std::string varint(std::uint64_t value) {
    std::string out;
    for (; value >= 128; value >>= 7U) {
        out += static_cast<char>(value | 128U);
    }
    return out + static_cast<char>(value);
}
static std::string field(std::uint32_t number, std::uint64_t value) {
    return varint(number << 3U) + varint(value);
}
static std::string field(std::uint32_t number, const std::string& bytes) {
    return varint(number << 3U | 2U) + varint(bytes.size()) + bytes;
}
static std::string message(const std::string& body) {
    return varint(body.size()) + body;
}

TEST_CASE("import: Chakra nodes may wait for absent ones only when that is allowed, and no size is negative") {
    const std::string head = message(field(1, std::string("0.0.4")));
    const auto number = [](const std::string& key, std::int64_t value) {
        return field(10, field(1, key) + field(9, static_cast<std::uint64_t>(value)));  // int64_val
    };
    const std::string work =
        message(field(1, 5) + field(2, std::string("gemm")) + field(3, 4) + field(5, 2) + field(7, 10));
    const auto reduce = [&](std::int64_t bytes) {
        return message(field(1, 6) + field(2, std::string("reduce")) + field(3, 7) + field(5, 5) +
                       number("comm_type", 0) + (bytes == 0 ? "" : number("comm_size", bytes)));
    };
    const std::string file = head + work + reduce(1024);
    CHECK(problem_of([&] {
              (void)import_bytes("chakra", file);
          }).find("node 5 waits for node 2, which is not there; --allow-missing") != std::string::npos);
    const Options allowed = {{"allow-missing", ""}};
    CHECK(import_bytes("chakra", file, allowed).ops.size() == 2);
    CHECK(notes_of("chakra", file, allowed).left_out().at("waits for nodes that are not in the file") == 1);
    CHECK(problem_of([&] {
              (void)import_bytes("chakra", head + work + reduce(-7), allowed);
          }).find("node 6 has a negative comm_size: -7") != std::string::npos);
    CHECK(notes_of("chakra", head + work + reduce(0), allowed).left_out().size() == 2);
    const Options assumed = {{"allow-missing", ""}, {"assume-bytes", "2 KiB"}};
    CHECK(import_bytes("chakra", head + work + reduce(0), assumed).ops.back().bytes == 2048);
    const std::string circle =
        head + message(field(1, 5) + field(3, 4) + field(5, 6)) + message(field(1, 6) + field(3, 4) + field(5, 5));
    CHECK(problem_of([&] { (void)import_bytes("chakra", circle); }).find("in a circle") != std::string::npos);
}

TEST_CASE("import: groups of Chakra traces stand beside them in NAME.json or comm_group.json") {
    const std::string head = message(field(1, std::string("0.0.4")));
    const auto number = [](const std::string& key, std::int64_t value) {
        return field(10, field(1, key) + field(9, static_cast<std::uint64_t>(value)));  // int64_val
    };
    const std::string reduce =
        message(field(1, 6) + field(2, std::string("reduce")) + field(3, 7) + number("comm_type", 0) +
                number("comm_size", 1024) + field(10, field(1, std::string("pg_name")) + field(29, std::string("7"))));
    const test::Folder folder;
    const std::string first = folder.file("w.0.et", head + reduce);
    (void)folder.file("w.1.et", head + reduce);
    CHECK(problem_of([&] {
              (void)import_trace("chakra", first);
          }).find("in NAME.json or comm_group.json, such as {\"7\": [0, 1]}") != std::string::npos);
    (void)folder.file("comm_group.json", "{\"7\": [0, 1]}");
    CHECK(import_trace("chakra", first).groups.size() == 1);
    (void)folder.file("w.json", "{\"8\": [0, 1]}");
    CHECK(problem_of([&] { (void)import_trace("chakra", first); }).find("process group '7'") != std::string::npos);
}

TEST_CASE("import: records that name a thing twice, miss a rank or hold words that are not read are refused") {
    const std::string goal = "num_ranks 2\nrank 0 {\nsend 10b to 1 tag 5 LAST\n}\nrank 1 {\nrecv 10b from 0 tag 5\n}\n";
    const auto with = [&](const std::string& last) {
        std::string text = goal;
        text.replace(text.find(" LAST"), 5, last);
        return problem_of([&] { (void)import_bytes("goal", text); });
    };
    CHECK(with(" cpu 0 nic 1").empty());
    CHECK(with(" rank 3").find("'rank' is not read here") != std::string::npos);
    CHECK(with(" cpu").find("'cpu' is not read here") != std::string::npos);
    const std::string record = text_of(std::string(ORRERY_SOURCE_DIR) + "/scenarios/replay/two-layer-step.replay");
    std::string twice = record;
    twice.insert(twice.find("# program"), "# ranks: 4\n");
    CHECK(problem_of([&] { (void)parse_replay(twice, "twice"); }).find("'ranks' is given twice") != std::string::npos);
    // A rank whose file is not there does not end the job.
    const test::Folder folder;
    const std::string bytes = text_of(sample("pair.0.et"));
    const std::string first = folder.file("job.0.et", bytes);
    (void)folder.file("job.2.et", bytes);
    CHECK(problem_of([&] { (void)import_trace("chakra", first); }).find("none of rank 1: job.1.et is missing") !=
          std::string::npos);
}

TEST_CASE("import: profiles name the device that they were recorded on, which a replay elsewhere notes") {
    CHECK(device_preset_of("NVIDIA A100-SXM4-80GB") == "a100-sxm-80g");
    CHECK(device_preset_of("NVIDIA H100 80GB HBM3") == "h100-sxm");
    CHECK(device_preset_of("NVIDIA H200") == "h200-sxm");
    CHECK(device_preset_of("AMD Instinct MI300X") == "mi300x");
    CHECK(device_preset_of("NVIDIA H100 NVL") == "h100-nvl-94g");
    CHECK(device_preset_of("NVIDIA H800 PCIe").empty());
    CHECK(device_preset_of("").empty());
    CHECK(import_trace("pytorch-profiler", sample("step.json")).meta.at("recorded_on") == "NVIDIA A100-SXM4-80GB");
    const test::Folder folder;
    const std::string nsys = folder.file("export.sqlite", text_of(nsys_sample()));
    CHECK_FALSE(import_trace("nsys", nsys).meta.contains("recorded_on"));
    sqlite3* handle = nullptr;
    REQUIRE(sqlite3_open(nsys.c_str(), &handle) == SQLITE_OK);
    REQUIRE(sqlite3_exec(handle,
                         "CREATE TABLE TARGET_INFO_GPU(id INTEGER, name TEXT); INSERT INTO TARGET_INFO_GPU VALUES(0, "
                         "'NVIDIA H100 80GB HBM3'), (1, 'other')",
                         nullptr, nullptr, nullptr) == SQLITE_OK);
    sqlite3_close(handle);
    CHECK(import_trace("nsys", nsys).meta.at("recorded_on") == "NVIDIA H100 80GB HBM3");
    const auto note = [&](const std::string& set) {
        return test::orrery_command("run " ORRERY_SOURCE_DIR "/scenarios/replay/two-layer-step.yaml " + set)
                   .text.find("and not as on NVIDIA H200") != std::string::npos;
    };
    CHECK_FALSE(note(""));
    CHECK(note("--set cluster.node=dgx-h200"));
    CHECK_FALSE(note("--set cluster.node=dgx-h200 --set replay.recorded_on=a100-sxm-80g"));
    const std::string starter = test::orrery_command("init replay --gpus 8 --device h200-sxm").text;
    CHECK_MESSAGE(starter.find("  recorded_on: a100-sxm-80g ") != std::string::npos, starter);
}

TEST_CASE("import: an Nsight export that is cut off or overwritten is refused, though what is left answers") {
    const std::string path = nsys_sample();
    const std::string whole = text_of(path);
    const test::Folder folder;
    const auto refused = [&](const std::string& bytes) {
        const std::string file = folder.file("damaged.sqlite", bytes);
        return problem_of([&] { (void)import_trace("nsys", file); });
    };
    CHECK(refused(whole).empty());
    constexpr std::size_t kPage = 4096;
    REQUIRE(whole.size() > 3 * kPage);
    for (const std::size_t missing : {std::size_t{1}, kPage / 2, kPage - 512}) {
        // As a copy that stopped in the middle of its last page, the rest of it empty or not there.
        const std::string cut = whole.substr(0, whole.size() - missing);
        CHECK_FALSE(refused(cut).empty());
        CHECK_FALSE(refused(whole.substr(0, whole.size() - kPage) + std::string(missing, '\0')).empty());
    }
    std::string overwritten = whole;
    overwritten.replace(whole.size() - kPage, kPage, std::string(kPage, 'x'));
    CHECK(refused(overwritten).find("is damaged or cut off") != std::string::npos);
}

TEST_CASE("import: Nsight exports of copies alone, without a device's work, and with clocks that run back") {
    const test::Folder folder;
    const auto exported = [&](const std::string& sql) {
        const std::string path = folder.file("export.sqlite", "");
        std::filesystem::remove(path);
        sqlite3* handle = nullptr;
        REQUIRE(sqlite3_open(path.c_str(), &handle) == SQLITE_OK);
        REQUIRE(sqlite3_exec(handle, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK);
        sqlite3_close(handle);
        return import_file("nsys", ImportInput(path));
    };
    const std::string strings = "CREATE TABLE StringIds (id INTEGER, value TEXT);";
    const std::string copies =
        "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, correlationId INTEGER, "
        "streamId INTEGER);";
    CHECK(problem_of([&] {
              (void)exported("CREATE TABLE other (x INTEGER);");
          }).find("expected the table 'StringIds', and found 'other'") != std::string::npos);
    CHECK(problem_of([&] {
              (void)exported(strings + "CREATE TABLE OSRT_API (start INTEGER);");
          }).find("profile with 'nsys profile -t cuda'") != std::string::npos);
    CHECK(problem_of([&] { (void)exported(strings + copies); }).find("no kernel or copy") != std::string::npos);
    const Imported alone = exported(
        strings + copies +
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (100, 350, 1, 1, 7), (400, 900, 0, 2, 7), (950, 960, 0, 3, 7);"
        "CREATE TABLE NVTX_EVENTS (start INTEGER); INSERT INTO NVTX_EVENTS VALUES (1), (2);");
    CHECK(parse_replay(alone.text, "alone").ops.size() == 2);
    CHECK(alone.notes.left_out() ==
          ImportNotes::Counts{{"kernels and copies of device 1, which was busy for less time", 1},
                              {"rows of table NVTX_EVENTS", 2}});
    CHECK(problem_of([&] {
              (void)exported(strings + copies + "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (100, 50, 0, 1, 7);");
          }).find("copy 'memcpy' at 100 ns ends before it starts") != std::string::npos);
}

TEST_CASE("import: what is wrong with a record is told with its place") {
    const auto problem = [](const char* format, const std::string& bytes) {
        return problem_of([&] { (void)import_file(format, ImportInput::of_bytes("trace.0.et", bytes)); });
    };
    CHECK(problem("goal", "").find("trace.0.et:1:1: error: expected 'num_ranks N'") == 0);
    CHECK(problem("goal", "// a comment\n").find(":1:1: error: expected 'num_ranks N' before the blocks") !=
          std::string::npos);
    CHECK(problem("chakra", "").find("record 1 (byte 0): expected a Chakra execution trace") != std::string::npos);
    const std::string chakra = text_of(sample("pair.0.et"));
    const std::string cut = problem("chakra", chakra.substr(0, chakra.size() - 3));
    CHECK_MESSAGE(cut.find("record ") != std::string::npos, cut);
    CHECK_MESSAGE(cut.find("record 1 ") == std::string::npos, cut);
}

TEST_CASE("import: kernels of rocprof and rocprofv3 in CSV, of the device that was busy longest") {
    const std::string header =
        "\"Kind\",\"Agent_Id\",\"Queue_Id\",\"Stream_Id\",\"Kernel_Name\",\"Correlation_Id\",\"Start_Timestamp\","
        "\"End_Timestamp\"\r\n";
    std::string rows;
    for (const auto& [agent, stream, start, end] : {std::array{4, 1, 100, 800}, {4, 2, 900, 1000}, {5, 1, 100, 200}}) {
        rows += fmt::format(R"row("KERNEL_DISPATCH","Agent {}",1,{},"void f<int, 3>(""x"")",{},17900000000000{:05},)row"
                            "17900000000000{:05}\r\n",
                            agent, stream, start, start, end);
    }
    const auto imported = [](const std::string& bytes) {
        return import_file("rocprof", ImportInput::of_bytes("k.csv", bytes)).text;
    };
    const std::string text = imported(header + rows);
    CHECK_MESSAGE(text.find("# recorded_ns: 900\n") != std::string::npos, text);
    CHECK(text.find("# device: Agent 4\n") != std::string::npos);
    CHECK(text.find("lane,stream 1\n") != std::string::npos);
    CHECK(text.find("void f<int  3>(\"x\"),700,") != std::string::npos);
    const std::string old = "\"Index\",\"KernelName\",\"gpu-id\",\"queue-id\",\"BeginNs\",\"EndNs\"\n";
    CHECK(imported(old + "0,\"a\",1,0,100,200\n1,\"b\",1,0,250,300\n").find("recorded_ns: 200\n") != std::string::npos);
    const auto problem = [&](const std::string& bytes) { return problem_of([&] { (void)imported(bytes); }); };
    CHECK(problem("").find("k.csv:1:1: error: expected a header with Kernel_Name") == 0);
    CHECK(problem("a,b\n").find("the first line is 'a,b'") != std::string::npos);
    CHECK(problem(header).find("holds a header and no kernel") != std::string::npos);
    CHECK(problem(header + rows.substr(0, rows.size() - 30)).find("k.csv:4:1") == 0);
    CHECK(problem(old + "0,a,1,0,100,soon\n").find("k.csv:2:1: error: a time is a whole number") == 0);
    CHECK(problem(old + "0,a,1,0,100,50\n").find("'a' ends before it starts") != std::string::npos);
}

TEST_CASE("import: operations of a JAX profile, not the modules and host calls that hold them again") {
    const std::string head =
        R"({"traceEvents": [{"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
{"ph": "M", "pid": 1, "tid": 13, "name": "thread_name", "args": {"name": "Stream #13"}},
{"ph": "M", "pid": 1, "tid": 2, "name": "thread_name", "args": {"name": "XLA Modules"}},
{"ph": "X", "pid": 1, "tid": 2, "ts": 100, "dur": 60, "name": "jit_step"}, {},
{"ph": "X", "pid": 701, "tid": 1, "ts": 1, "dur": 2, "name": "host"})";
    const auto imported = [](const std::string& bytes) {
        return import_file("jax-profile", ImportInput::of_bytes("t.json", bytes)).text;
    };
    const std::string text = imported(head + R"(,
{"ph": "X", "pid": 1, "tid": 13, "ts": 100.5, "dur": 8.5, "name": "fusion.1", "args": {"correlation_id": 1}},
{"ph": "X", "pid": 1, "tid": 13, "ts": 110.5, "dur": 2, "name": "fusion.2", "args": {"correlation_id": 1e300}}]})");
    CHECK_MESSAGE(text.find("# recorded_ns: 12000\n") != std::string::npos, text);
    CHECK(text.find("fusion.2") != std::string::npos);
    CHECK(text.find("jit_step") == std::string::npos);
    const auto problem = [&](const std::string& bytes) { return problem_of([&] { (void)imported(bytes); }); };
    CHECK(problem("").find("and the file is empty") != std::string::npos);
    CHECK(problem("\n\x0a").find("t.json:1:1: error: expected the Chrome trace of a JAX profile") == 0);
    CHECK(problem("{}").find("found no 'traceEvents'") != std::string::npos);
    CHECK(problem(head + "]}").find("found no operation of one among 6 events") != std::string::npos);
    CHECK(problem(head).find("is no JSON") != std::string::npos);
    CHECK(problem(head + R"(, {"ph": "X", "pid": 1, "tid": 13, "ts": 5, "dur": -1, "name": "f"}]})")
              .find("event 7 ('f') has a time below zero") != std::string::npos);
}

// Flips, drops and doubles bytes of valid files: a trace or a ConfigError, never anything else.
TEST_CASE("replay: damaged traces never crash a reader") {
    RandomStream random(7, "damage");
    const std::string pytorch = text_of(sample("step.json"));
    const std::string goal = text_of(sample("pingpong.goal"));
    const std::string aicb = text_of(sample("two-layers.aicb.txt"));
    const std::string chakra = text_of(sample("pair.0.et"));
    const std::string own = import_file("aicb", ImportInput::of_bytes("own", aicb)).text;
    const int rounds = 300 * test::scale();
    int read = 0;
    for (int round = 0; round < rounds; ++round) {
        for (int kind = 0; kind < 5; ++kind) {
            std::string text = kind == 0 ? pytorch : kind == 1 ? goal : kind == 2 ? aicb : kind == 3 ? chakra : own;
            for (std::uint64_t edits = 1 + random.below(4); edits > 0 && !text.empty(); --edits) {
                const std::size_t at = random.below(text.size());
                switch (random.below(4)) {
                    case 0:
                        text[at] = static_cast<char>(random.below(256));
                        break;
                    case 1:
                        text.erase(at, 1 + random.below(20));
                        break;
                    case 2:
                        text.insert(at, text.substr(random.below(text.size()), random.below(20)));
                        break;
                    default:
                        text.resize(at + 1);
                        break;
                }
            }
            try {
                ReplayTrace trace;
                ImportNotes notes;
                trace.ranks = 2;
                trace.same_program = false;
                switch (kind) {
                    case 0:
                        trace = import_bytes("pytorch-profiler", text);
                        break;
                    case 1:
                        trace = import_bytes("goal", text);
                        break;
                    case 2:
                        trace = import_bytes("aicb", text);
                        break;
                    case 3:
                        import_chakra_rank(text, "damaged", 0, {}, {round % 2 == 0, 0}, trace, notes);
                        break;
                    default:
                        trace = parse_replay(text, "damaged");
                        break;
                }
                (void)run_trace(trace);
                ++read;
            } catch (const Error& error) {
                CHECK_MESSAGE(error.exit_code() != 0, error.what());
            }
        }
    }
    CHECK(read > 0);
}
