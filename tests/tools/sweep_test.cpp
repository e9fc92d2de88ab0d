// Sweeps: expressions, points, workers, the database, and the promise that nothing is lost.

#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/kinds/training.hpp"
#include "tools/sweep/expression.hpp"
#include "tools/sweep/sweep_spec.hpp"
#include "tools/sweep/table.hpp"
#include "tools/sweep/worker_pool.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <csignal>
#include <set>
#include <thread>

using namespace orrery;
using namespace orrery::test;

namespace {

double number_of(const std::string& text) {
    const Expression expression(text, Mark{});
    return std::get<double>(expression.evaluate([](const std::string& name) -> ExpressionValue {
        return name == "a.b" ? ExpressionValue(3.0) : ExpressionValue(std::string("word"));
    }));
}

std::string problem_of(const std::string& text) {
    try {
        (void)number_of(text);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

constexpr const char* kSmallSweep = R"(orrery: 1
kind: sweep
base: base.yaml
axes: {plan.tensor: [1, 2, 4, 8], plan.micro_batch: [1, 2, 4], model.layers: {from: 2, to: 11}}
derive: {plan.data: "8 / plan.tensor"}
where: ["8 % (plan.micro_batch * plan.data) == 0"]
keep: [iteration_time_s, memory_per_gpu_gib]
)";

// Loads a sweep whose base scenario is the small one.
SweepSpec sweep_of(const Folder& folder, const std::string& text) {
    (void)folder.file("base.yaml", kSmallTraining);
    return load_sweep(folder.file("sweep.yaml", text), {}, data());
}

std::vector<std::string> column_of(const SweepSpec& sweep, const std::string& key) {
    std::vector<std::string> out;
    for (std::uint64_t id = 0; id < sweep.size(); ++id) {
        if (const auto point = sweep.point(id)) {
            for (const auto& [name, value] : point->parameters) {
                if (name == key) {
                    out.push_back(value);
                }
            }
        }
    }
    return out;
}

const std::string kHead = "orrery: 1\nkind: sweep\nbase: base.yaml\n";

}  // namespace

TEST_CASE("expressions bind as in arithmetic, compare texts, and name what is wrong with them") {
    CHECK(number_of("1 + 2 * 3 - 8 / 4") == 5);
    CHECK(number_of("-(2 + a.b) * 2") == -10);
    CHECK(number_of("7 % 4 == 3 and not (1 > 2)") == 1);
    CHECK(number_of("1 > 2 or 2 >= 2 && 1 != 1") == 0);
    CHECK(number_of("min(4, max(1, 2)) + floor(2.9) + ceil(0.1) + round(1.4) + log2(8)") == 9);
    CHECK(number_of("if(a.b == 3, 10, 1 / 0)") == 10);
    CHECK(number_of("word == 'word' and word != \"other\"") == 1);
    CHECK(number_of("1e3 + 1.5e-1") == doctest::Approx(1000.15));
    CHECK(problem_of("1 +").find("character 4: a value was expected") != std::string::npos);
    CHECK(problem_of("(1").find("')' was expected") != std::string::npos);
    CHECK(problem_of("1 2").find("was not expected") != std::string::npos);
    CHECK(problem_of("1 / (3 - a.b)").find("division by zero") != std::string::npos);
    CHECK(problem_of("word * 2").find("is a text where a number is needed") != std::string::npos);
    CHECK(problem_of("system('x')").find("unknown function 'system'") != std::string::npos);
    CHECK(problem_of("min(1)").find("takes 2 values") != std::string::npos);
    CHECK(problem_of(std::string(200, '(') + "1").find("nested deeper") != std::string::npos);
    CHECK(problem_of(std::string(200, '-') + "1").find("nested deeper") != std::string::npos);
    CHECK(problem_of("012").find("is not a number") != std::string::npos);
    // Quantities count in base units, whatever unit they are written in.
    CHECK(value_of_text("8 Gbps") == ExpressionValue(1e9));
    CHECK(value_of_text("leaf-spine") == ExpressionValue(std::string("leaf-spine")));
    CHECK(text_of_value(ExpressionValue(128.0)) == "128");
}

TEST_CASE("axes: lists, steps, linear and logarithmic ranges with units, zip, seeds; the last axis is fastest") {
    const Folder folder;
    const SweepSpec sweep = sweep_of(folder, kHead + R"(axes:
  plan.tensor: [1, 2]
  cluster.fabric.latency: {log: [100 ns, 10000 ns], count: 3}
zip: {plan.zero: [0, 1], plan.micro_batch: [1, 2]}
seeds: 2
)");
    CHECK(sweep.size() == 2 * 3 * 2 * 2);
    CHECK(column_of(sweep, "seed") == std::vector<std::string>{"1", "2", "1", "2", "1", "2", "1", "2",
                                                               "1", "2", "1", "2", "1", "2", "1", "2",
                                                               "1", "2", "1", "2", "1", "2", "1", "2"});
    const auto first = sweep.point(0)->parameters;
    const auto other = sweep.point(2)->parameters;
    CHECK(first[1].second == "100 ns");
    CHECK(sweep.point(4)->parameters[1].second == "1000 ns");
    CHECK(sweep.point(8)->parameters[1].second == "10000 ns");
    CHECK((other[2].second == "1" && other[3].second == "2"));  // the zip group advances together
    const SweepSpec steps = sweep_of(folder, kHead + "axes: {model.layers: {from: 2, to: 8, step: 3}}\n");
    CHECK(column_of(steps, "model.layers") == std::vector<std::string>{"2", "5", "8"});
    const SweepSpec linear = sweep_of(folder, kHead + "axes: {network.batch: {linear: [0 us, 1 us], count: 5}}\n");
    CHECK(column_of(linear, "network.batch") ==
          std::vector<std::string>{"0 us", "0.25 us", "0.5 us", "0.75 us", "1 us"});
}

TEST_CASE("a Latin hypercube has one sample in each stratum of every key; samples depend on the seed alone") {
    const Folder folder;
    const auto text = [](const char* method, int seed) {
        return kHead + fmt::format(
                           "sample: {{method: {}, count: 50, seed: {}, values: {{a.x: [0, 50], "
                           "a.y: {{log: [1, 1024]}}, a.z: {{integer: [1, 50]}}, a.c: {{choice: [u, v]}}}}}}\n",
                           method, seed);
    };
    const SweepSpec sweep = sweep_of(folder, text("latin-hypercube", 3));
    std::set<int> strata;
    for (const std::string& value : column_of(sweep, "a.x")) {
        strata.insert(static_cast<int>(std::stod(value)));
    }
    CHECK(strata.size() == 50);
    std::set<std::string> integers;
    for (const std::string& value : column_of(sweep, "a.z")) {
        integers.insert(value);
    }
    CHECK(integers.size() == 50);
    std::size_t us = 0;
    for (const std::string& value : column_of(sweep, "a.c")) {
        us += value == "u" ? 1 : 0;
    }
    CHECK(us == 25);
    for (const std::string& value : column_of(sweep, "a.y")) {
        CHECK((std::stod(value) >= 1 && std::stod(value) <= 1024));
    }
    CHECK(column_of(sweep_of(folder, text("random", 3)), "a.x") ==
          column_of(sweep_of(folder, text("random", 3)), "a.x"));
    CHECK(column_of(sweep_of(folder, text("random", 3)), "a.x") !=
          column_of(sweep_of(folder, text("random", 4)), "a.x"));
}

TEST_CASE("derived values and conditions see axes, earlier derived values and the base scenario") {
    const Folder folder;
    const SweepSpec sweep = sweep_of(folder, kHead + R"(axes: {plan.tensor: [1, 2, 4, 8]}
derive:
  plan.data: "cluster.nodes * cluster.node.gpus / plan.tensor"
  plan.global_batch: "plan.data * 4"
where: [plan.tensor <= model.heads / 4, plan.data > 1]
)");
    CHECK(column_of(sweep, "plan.tensor") == std::vector<std::string>{"1", "2", "4"});
    CHECK(column_of(sweep, "plan.global_batch") == std::vector<std::string>{"32", "16", "8"});
    CHECK(scenario_of(sweep, *sweep.point(2), data()).as<TrainingKind>().plan.data == 2);
}

TEST_CASE("a malformed sweep exits with 2 and lists every error with its place") {
    const Folder folder;
    (void)folder.file("base.yaml", kSmallTraining);
    const auto refused = [&](const std::string& text) {
        return orrery_command("sweep " + folder.file("bad.yaml", text) + " --db " + folder.file("never.sqlite"));
    };
    const Outcome many =
        refused(kHead +
                "axis: {plan.tensor: [1]}\naxes: {plan.tensor: [], plan.data: {log: [0, 10], count: 3}}\n"
                "where: ['plan.tensr > 1']\nseeds: none\ntimeout: 5\n");
    CHECK(many.code == 2);
    for (const char* expected : {"bad.yaml:4:1: error: unknown key 'axis' (did you mean 'axes'?)",
                                 "'plan.tensor' has no values", "a logarithmic range of 'plan.data' needs ends above 0",
                                 "unknown name 'plan.tensr' (did you mean 'plan.tensor'?)",
                                 "'seeds' must be a whole number", "'timeout': '5' has no unit"}) {
        CHECK_MESSAGE(many.text.find(expected) != std::string::npos, many.text);
    }
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"orrery: 1\nkind: sweep\nbase: nowhere.yaml\n", "bad.yaml:3:7: error: base scenario"},
        {kHead + "axes: {a: {from: 1, to: 1000000000}, b: [1]}\n",
         "'a' has 1e+09 values; one axis has at most 1000000"},
        {kHead + "axes: {a: {from: 1, to: 100000}, b: {from: 1, to: 10000}}\n",
         "the axes span 1e+09 points, the limit is 10000000: 100000 (a) x 10000 (b)"},
        {kHead + "axes: {a: [1, 2]}\nzip: {a: [1, 2]}\n", "'a' is set twice"},
        {kHead + "zip: {a: [1, 2], b: [1, 2, 3]}\n", "'b' has 3 values, but 'a' in the same zip group has 2"},
        {kHead + "axes: {a: {linear: [1 ms, 1 s], count: 3}}\n", "write both ends of 'a' in one unit"},
        {kHead + "axes: {kind: [training]}\n", "'kind' cannot be swept"},
        {kHead + "axes: {plan..zero: [1]}\n", "bad.yaml:4:8: error: 'plan..zero' is not the path of a value"},
        {kHead + "axes: {a: [1]}\nderive: {plan.: 1}\n", "bad.yaml:5:10: error: 'plan.' is not the path of a value"},
        {kHead + "axes: {model: [gpt3-175b]}\nwhere: [model.layers > 1]\n",
         "'model.layers' depends on the axis 'model'"},
        {kHead + "axes: {plan.tensor: [2]}\nkeep: [mfo]\n", "no metric 'mfo' (did you mean 'mfu'?)"},
        {kHead + "set: {plan.tensor: 2}\naxes: {plan.tensor: [1, 2]}\n", "'plan.tensor' is set twice"},
        {kHead + "set: {plan.tensr: 2}\naxes: {plan.zero: [1]}\n", "bad.yaml:4:7: error: unknown key 'tensr'"},
        {kHead + "axes: {plan.tensr: [1, 2]}\n", "bad.yaml:4:8: error: plan.tensr=1: unknown key 'tensr'"},
        {kHead + "axes: {plan.tensor: [1]}\nderive: {plan.zero: 1 / 0}\n", "division by zero"},
        {kHead + "axes: {plan.tensor: [1, 2]}\nderive: {plan.zero: 1 / (plan.tensor - 2)}\n", "division by zero"},
        {kHead + "axes: {plan.tensor: [1, 2]}\nwhere: [plan.tensor > 2]\n",
         "bad.yaml:5:9: error: none of the 2 points meets the conditions"},
        {kHead + "axes: {plan.tensor: [1]}\nseeds: 1000000000\n",
         "'seeds' must be a whole number between 1 and 1000000"},
        // Read no further than the limit: a billion billion points take no memory.
        {kHead + "axes: {a: {from: 1, to: 1000000}, b: {from: 1, to: 1000000}, c: {from: 1, to: 1000000}}\n",
         "the axes span 1e+12 points, the limit is 10000000: 1000000 (a) x 1000000 (b) [E206]\n"},
    };
    for (const auto& row : cases) {
        const Outcome out = refused(row.first);
        CHECK_MESSAGE(out.code == 2, row.first << out.text);
        CHECK_MESSAGE(out.text.find(row.second) != std::string::npos, row.first << out.text);
        // A database without results would be in the way of the next try.
        CHECK_MESSAGE(!std::filesystem::exists(folder.file("never.sqlite")), row.first);
        std::filesystem::remove(folder.file("never.sqlite"));
    }
    const std::string axis = folder.file("axis.yaml", kHead + "axes: {plan.tensor: [1, 2]}\n");
    CHECK(orrery_command("sweep " + axis + " --dry-run --set plan.tensor=4")
              .text.find("--set plan.tensor=4 would change nothing") != std::string::npos);
    CHECK(orrery_command("sweep " + axis + " --dry-run --shard 0/2").code == 2);
    CHECK(orrery_command("sweep " + folder.file("empty.yaml", "\n") + " --db " + folder.file("never.sqlite")).code ==
          2);
    std::ofstream(folder.file("empty.yaml")).close();
    CHECK(orrery_command("run " + folder.file("empty.yaml")).text.find("1:1: error: the file is empty") !=
          std::string::npos);
    CHECK(orrery_command("run " + folder.file("bad.yaml", kHead)).text.find("'orrery sweep'") != std::string::npos);
}

TEST_CASE("a mistyped sweep leaves nothing that blocks the corrected one") {
    const Folder folder;
    (void)folder.file("base.yaml", kSmallTraining);
    const std::string db = folder.file("db");
    const auto sweep = [&](const std::string& text) {
        return orrery_command(fmt::format("sweep {} --db {}", folder.file("sweep.yaml", kHead + text), db));
    };
    const std::vector<std::pair<std::string, std::string>> mistyped = {
        {"axes: {plan.tensr: [1, 2]}\n", "sweep.yaml:4:8: error: plan.tensr=1: unknown key 'tensr' (did you mean"},
        {"axes: {plan.recompute: [none, fulll]}\n", "plan.recompute=fulll: 'recompute' cannot be 'fulll'"},
        {"axes: {plan.zero: [0, 1]}\nkeep: [iteration_time]\n", "no metric 'iteration_time'"},
        {"axes: {plan.zero: [0, 1], plan.tensor: [4, 2]}\nkeep: [iteration_time]\n", "no metric 'iteration_time'"},
    };
    for (const auto& [axes, expected] : mistyped) {
        const std::string text = axes;
        const Outcome out = sweep(text);
        CHECK_MESSAGE(out.code == 2, text << out.text);
        CHECK_MESSAGE(out.text.find(expected) != std::string::npos, text << out.text);
        CHECK_MESSAGE(!std::filesystem::exists(db), text);
    }
    const Outcome right = sweep("axes: {plan.zero: [0, 1]}\nkeep: [iteration_time_s]\n");
    CHECK_MESSAGE(right.code == 0, right.text);
    // What is right is kept.
    CHECK(sweep("axes: {plan.zero: [0, 1]}\n").text.find("exists already") != std::string::npos);
    // A shard without a point has been run all the same.
    const std::string shard = folder.file("shard");
    const std::string one = folder.file("one.yaml", kHead + "axes: {plan.zero: [0]}\n");
    for (int i = 0; i < 3; ++i) {
        REQUIRE(orrery_command(fmt::format("sweep {} --db {}-{} --shard {}/3", one, shard, i, i)).code == 0);
        CHECK(std::filesystem::exists(fmt::format("{}-{}", shard, i)));
    }
    CHECK(orrery_command(fmt::format("merge {0} {0}-0 {0}-1 {0}-2", shard)).text.find("not complete") ==
          std::string::npos);
    // A value that only some points cannot have is theirs.
    REQUIRE(std::filesystem::remove(db));
    const Outcome some = sweep("axes: {plan.schedule: [1f1b, interleaved], plan.chunks: [1, 2]}\n");
    CHECK_MESSAGE(some.text.find("4 points") != std::string::npos, some.text);
    CHECK(std::filesystem::exists(db));
}

TEST_CASE("a worker that crashes or hangs costs its own request and no other") {
    constexpr std::size_t kRequests = 40;
    std::size_t at = 0;
    std::map<std::size_t, WorkReply> replies;
    run_in_workers(
        2, 0.3,
        [](const std::string& request) -> std::string {
            if (request == "7") {
                std::raise(SIGKILL);
            }
            if (request == "9") {
                std::this_thread::sleep_for(std::chrono::seconds(60));
            }
            if (request == "11") {
                throw std::runtime_error("escapes");
            }
            return "answer to " + request;
        },
        [&]() -> std::optional<WorkRequest> {
            return at < kRequests ? std::optional<WorkRequest>(WorkRequest{at, std::to_string(at++)}) : std::nullopt;
        },
        [&](std::size_t id, const WorkReply& reply) -> std::optional<std::string> {
            // One request in ten has a second round.
            const bool again = id % 10 == 0 && !replies.contains(id) && reply.text.find("more") == std::string::npos;
            if (again) {
                return "more of " + std::to_string(id);
            }
            replies[id] = reply;
            return std::nullopt;
        });
    REQUIRE(replies.size() == kRequests);
    for (const auto& [id, reply] : replies) {
        if (id == 7 || id == 11) {
            CHECK(reply.end == WorkReply::End::crashed);
        } else if (id == 9) {
            CHECK(reply.end == WorkReply::End::timed_out);
        } else {
            CHECK(reply.text == (id % 10 == 0 ? "answer to more of " : "answer to ") + std::to_string(id));
        }
    }
    CHECK(replies[7].text.find("signal 9") != std::string::npos);
    CHECK(replies[11].text == "ended with exit code 70");
}

TEST_CASE("a sweep gives the same table on one or two processes, killed and resumed at any moment, or in shards") {
    const Folder folder;
    (void)folder.file("base.yaml", kSmallTraining);
    const std::string sweep = folder.file("sweep.yaml", kSmallSweep);
    const auto table = [&](const std::string& db) {
        const Outcome out = orrery_command("table " + folder.file(db) + " --format csv");
        CHECK(out.code == 0);
        return out.text;
    };
    const auto run = [&](const std::string& db, const std::string& options) {
        return orrery_command(fmt::format("sweep {} --db {} {}", sweep, folder.file(db), options));
    };
    REQUIRE(run("one", "-j 1").code == 0);
    const Outcome two = run("two", "-j 2");
    REQUIRE(two.code == 0);
    CHECK(two.text.find("90 points: 90 done") != std::string::npos);
    const std::string expected = table("one");
    CHECK(expected.rfind("point,plan.tensor,plan.micro_batch,model.layers,plan.data,status,iteration_time_s,", 0) == 0);
    CHECK(std::count(expected.begin(), expected.end(), '\n') == 91);
    CHECK(table("two") == expected);
    // Killed after 5 ms, 15 ms, 25 ms...: some before the database exists, some in the middle, some after the end.
    for (int kill = 0; kill < 12 * scale(); ++kill) {
        const std::string db = fmt::format("killed-{}", kill);
        (void)shell_command(
            fmt::format("timeout -s KILL {:.3f} {} sweep {} --db {} -j 2 > /dev/null 2>&1; "
                        "timeout -s KILL {:.3f} {} sweep {} --db {} -j 2 --resume",
                        0.005 + 0.01 * (kill % 30), orrery_program(), sweep, folder.file(db), 0.02 + 0.01 * (kill % 7),
                        orrery_program(), sweep, folder.file(db)));
        const Outcome resumed = run(db, "-j 2 --resume");
        CHECK_MESSAGE(resumed.code == 0, resumed.text);
        CHECK(table(db) == expected);
    }
    for (const char* shard : {"0", "1", "2"}) {
        REQUIRE(run(std::string("shard-") + shard, fmt::format("--shard {}/3", shard)).code == 0);
    }
    const auto merge = [&](const std::string& parts) {
        return orrery_command(fmt::format("merge {} {}", folder.file("merged"), parts));
    };
    const std::string all = folder.file("shard-0") + " " + folder.file("shard-2") + " " + folder.file("shard-1");
    CHECK(merge(folder.file("shard-1")).text.find("not complete") != std::string::npos);
    CHECK(table("merged") != expected);
    CHECK(merge(all).code == 0);
    CHECK(table("merged") == expected);
    CHECK(merge(all).code == 0);
    CHECK(table("merged") == expected);
}

TEST_CASE("two sweeps may write one database at the same time, and may make it at the same time") {
    const Folder folder;
    (void)folder.file("base.yaml", kSmallTraining);
    const std::string sweep = folder.file("sweep.yaml", kSmallSweep);
    REQUIRE(orrery_command(fmt::format("sweep {} --db {}", sweep, folder.file("alone"))).code == 0);
    const std::string expected = orrery_command("table --format csv " + folder.file("alone")).text;
    for (int round = 0; round < 5 * scale(); ++round) {
        const std::string db = folder.file(fmt::format("both-{}", round));
        const std::string command = fmt::format("{} sweep {} --db {} --resume -j 1", orrery_program(), sweep, db);
        const Outcome out = shell_command(fmt::format("{0} & first=$!; {0} && wait $first", command));
        CHECK_MESSAGE(out.code == 0, out.text);
        CHECK(orrery_command("table --format csv " + db).text == expected);
    }
}

TEST_CASE("points that resolve to the same scenario are computed once, infeasible ones are results") {
    const Folder folder;
    (void)folder.file("base.yaml", kSmallTraining);
    // 1 us and 1.0 us are the same; tensor 16 does not divide the cluster.
    const std::string sweep = folder.file("sweep.yaml", kHead +
                                                            "axes: {cluster.fabric.latency: [1 us, 1.0 us], "
                                                            "plan.tensor: [2, 16]}\n");
    const Outcome out = orrery_command(fmt::format("sweep {} --db {} -j 2", sweep, folder.file("db")));
    CHECK(out.code == 0);
    CHECK(out.text.find("4 points: 2 done, 2 infeasible") != std::string::npos);
    CHECK(out.text.find("2 scenarios simulated now") != std::string::npos);
    const auto rows = nlohmann::json::parse(orrery_command("table --format json " + folder.file("db")).text);
    CHECK(rows[0]["iteration_time_s"] == rows[2]["iteration_time_s"]);
    CHECK(rows[0]["iteration_time_s"].get<double>() ==
          doctest::Approx(run_scenario(scenario(std::string(kSmallTraining)), model_cache(), {})
                              .summary.find("iteration_time_s")
                              ->value));
    CHECK(rows[1]["message"].get<std::string>().find("does not divide") != std::string::npos);
    CHECK(rows[1]["iteration_time_s"].is_null());
    CHECK(!rows[0].contains("iteration_time_s.low"));
    // With their 90 % intervals, in the order of the metrics.
    const auto wide =
        nlohmann::json::parse(orrery_command("table --intervals --format json " + folder.file("db")).text);
    CHECK(wide[0]["iteration_time_s.low"].get<double>() < rows[0]["iteration_time_s"].get<double>());
    CHECK(wide[0]["iteration_time_s.high"].get<double>() > rows[0]["iteration_time_s"].get<double>());
    CHECK(wide[1]["iteration_time_s.low"].is_null());
}

TEST_CASE("a database is one file, after its sweep and after it was read") {
    const Folder folder;
    (void)folder.file("base.yaml", kSmallTraining);
    const std::string sweep =
        folder.file("sweep.yaml", "orrery: 1\nkind: sweep\nbase: base.yaml\naxes: {plan.zero: [0, 1]}\n");
    const std::string db = folder.file("one.sqlite");
    REQUIRE(orrery_command(fmt::format("sweep {} --db {} -j 2", sweep, db)).code == 0);
    REQUIRE(orrery_command("table " + db).code == 0);
    CHECK(!std::filesystem::exists(db + "-wal"));
    CHECK(!std::filesystem::exists(db + "-shm"));
}

TEST_CASE("results of files that changed since are never mixed: neither resumed nor merged") {
    const Folder folder;
    std::filesystem::create_directories(folder.file("in"));
    const std::string traces[] = {"arrival_s,prompt,output\n0,10,2\n1,10,2\n",
                                  "arrival_s,prompt,output\n0,10,9\n1,10,2\n"};
    const auto trace = [&](const std::string& name, int which) { (void)folder.file("in/" + name, traces[which]); };
    (void)folder.file("in/base.yaml",
                      "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: "
                      "llama-2-7b\nrequests: {trace: a.csv}\n");
    const std::string sweep = folder.file("in/sweep.yaml",
                                          "orrery: 1\nkind: sweep\nbase: base.yaml\naxes: "
                                          "{requests.trace: [a.csv, b.csv], seed: [1, 2]}\n");
    trace("a.csv", 0);
    trace("b.csv", 1);
    // From any folder: paths are of the base scenario.
    const auto run = [&](const std::string& db, const std::string& options) {
        return orrery_command(fmt::format("sweep {} -j 1 --db {} {}", sweep, folder.file(db), options));
    };
    const Outcome first = run("db", "");
    REQUIRE_MESSAGE(first.text.find("4 done") != std::string::npos, first.text);
    CHECK(run("db", "--resume").text.find("4 points resumed") != std::string::npos);
    REQUIRE(run("shard-0", "--shard 0/2").code == 0);
    for (const char* name : {"a.csv", "b.csv"}) {
        trace("a.csv", 0);
        trace("b.csv", 1);
        trace(name, name[0] == 'a' ? 1 : 0);
        const Outcome resumed = run("db", "--resume");
        CHECK(resumed.code == 2);
        CHECK_MESSAGE(resumed.text.find(fmt::format("file {}: there '", name)) != std::string::npos, resumed.text);
    }
    trace("a.csv", 1);
    trace("b.csv", 0);
    REQUIRE(run("shard-1", "--shard 1/2").code == 0);
    const Outcome merged = orrery_command(
        fmt::format("merge {} {} {}", folder.file("merged"), folder.file("shard-0"), folder.file("shard-1")));
    CHECK_MESSAGE(merged.code == 2, merged.text);
    trace("a.csv", 0);
    trace("b.csv", 1);
    REQUIRE(run("shard-1b", "--shard 1/2").code == 0);
    CHECK(orrery_command(
              fmt::format("merge {} {} {}", folder.file("merged"), folder.file("shard-0"), folder.file("shard-1b")))
              .code == 0);
    const auto table = [&](const std::string& db) {
        return orrery_command("table --format csv " + folder.file(db)).text;
    };
    CHECK(table("merged") == table("db"));
    std::filesystem::remove(folder.file("in/b.csv"));
    CHECK(run("db", "--resume").code == 2);
}

TEST_CASE("a sweep without a valid point names no database, which is not there") {
    const Folder folder;
    (void)folder.file("base.yaml", kSmallTraining);
    const std::string sweep =
        folder.file("sweep.yaml", kHead + "axes: {plan.schedule: [interleaved]}\nset: {plan.chunks: 1}\n");
    const std::string db = folder.file("x.db");
    const Outcome out = orrery_command(fmt::format("sweep {} --db {}", sweep, db));
    CHECK(std::filesystem::exists(db) == (out.text.find("results in " + db) != std::string::npos));
}

TEST_CASE("tables filter, group, pivot and sort") {
    ResultTable table;
    table.columns = {"point", "a", "b", "mfu", "message"};
    for (int i = 0; i < 6; ++i) {
        table.rows.push_back({static_cast<double>(i), static_cast<double>(i / 3),
                              std::string(i % 3 == 0   ? "900 ns"
                                          : i % 3 == 1 ? "1 us"
                                                       : "10 us"),
                              i == 5 ? Cell() : Cell(0.1 * i), Cell()});
    }
    TableOptions options;
    options.where = "mfu > 0.15";
    CHECK(select(table, options).rows.size() == 3);  // a row without the value does not meet a condition on it
    options = {};
    options.group = {"a"};
    ResultTable out = select(table, options);
    CHECK(out.columns == std::vector<std::string>{"a", "points", "mfu"});
    CHECK(std::get<double>(out.rows[0][2]) == doctest::Approx(0.1));
    CHECK(std::get<double>(out.rows[1][2]) == doctest::Approx(0.35));
    options.aggregate = "max";
    CHECK(std::get<double>(select(table, options).rows[1][2]) == doctest::Approx(0.4));
    options = {};
    options.pivot = {"b", "a", "mfu"};
    out = select(table, options);
    CHECK(out.columns == std::vector<std::string>{"b", "a=0", "a=1"});
    CHECK(std::get<std::string>(out.rows[0][0]) == "900 ns");
    CHECK(std::get<std::string>(out.rows[1][0]) == "1 us");
    CHECK(std::get<double>(out.rows[1][1]) == doctest::Approx(0.1));
    CHECK(std::holds_alternative<std::monostate>(out.rows[2][2]));
    options = {};
    options.sort = {"-mfu"};
    options.columns = {"point"};
    options.limit = 2;
    CHECK(to_csv(select(table, options)) == "point\n4\n3\n");
    options.columns = {"pint"};
    CHECK_THROWS_AS((void)select(table, options), ConfigError);
    table.rows[0][4] = std::string("a \"b\", c");
    options = {};
    options.limit = 1;
    CHECK(to_csv(select(table, options)) == "point,a,b,mfu,message\n0,0,900 ns,0,\"a \"\"b\"\", c\"\n");
}

TEST_CASE("databases that cannot be used are refused, and nothing is lost") {
    const Folder folder;
    (void)folder.file("base.yaml", kSmallTraining);
    const std::string sweep = folder.file("sweep.yaml", kSmallSweep);
    const std::string db = folder.file("db");
    REQUIRE(orrery_command(fmt::format("sweep {} --db {}", sweep, db)).code == 0);
    const std::string before = orrery_command("table --format csv " + db).text;
    const auto sqlite = [&](const std::string& file, const std::string& sql) {
        return fmt::format(
            "python3 -c 'import sqlite3,sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); "
            "c.commit()' {} \"{}\"",
            file, sql);
    };
    (void)folder.file("text.db", "this is no database, but a text that is long enough to have a page's header\n");
    std::filesystem::copy_file(db, folder.file("newer"));
    std::filesystem::copy_file(db, folder.file("other-result"));
    const bool python = shell_command("python3 -c 'import sqlite3'").code == 0;
    if (python) {
        REQUIRE(shell_command(sqlite(folder.file("newer"), "PRAGMA user_version = 99")).code == 0);
        REQUIRE(shell_command(sqlite(folder.file("foreign"), "CREATE TABLE t(x)")).code == 0);
        REQUIRE(shell_command(sqlite(folder.file("other-result"), "UPDATE metrics SET value = value * 2")).code == 0);
    } else {
        MESSAGE("skipped: foreign and newer databases need python3 to be made");
    }
    std::filesystem::copy_file(db, folder.file("damaged"));
    {
        std::fstream file(folder.file("damaged"), std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(4096);
        file << std::string(12000, 'x');
    }
    // A question about the state of a database reads no more than its answer takes: here not the cut end of the file.
    std::filesystem::copy_file(db, folder.file("cut"));
    std::filesystem::resize_file(folder.file("cut"), std::filesystem::file_size(db) - 100);
    CHECK_THROWS_AS(ResultStore(folder.file("cut"), ResultStore::Mode::read), ConfigError);
    CHECK(ResultStore(folder.file("cut"), ResultStore::Mode::look).has_results());
    std::vector<std::pair<std::string, std::string>> cases = {
        {fmt::format("sweep {} --db {}", sweep, db), "exists already; --resume continues it"},
        {fmt::format("sweep {} --db {} --resume --set model.hidden=2048", sweep, db),
         "holds results of something else"},
        {fmt::format("sweep {} --db /nowhere/x.sqlite", sweep), "there is no folder"},
        {fmt::format("sweep {}", sweep), "needs --db FILE"},
        {fmt::format("sweep {} --db {} --shard 4/4", sweep, folder.file("s")), "--shard is I/N"},
        {fmt::format("sweep {} --db {} --resume", sweep, folder.file("text.db")), "is not a SQLite database"},
        {"table " + folder.file("text.db"), "is not a SQLite database"},
        {"table " + folder.file("missing"), "no such database"},
        {"table " + folder.file("damaged"), "is damaged"},
        {"table " + db + " --where 'mfo > 1'", "no column 'mfo'"},
        {"table " + db + " --format xml", "--format is text, csv or json"},
    };
    if (python) {
        cases.emplace_back("table " + folder.file("newer"), "has schema version 99, this program reads version 1");
        cases.emplace_back("table " + folder.file("foreign"), "not one of sweep results");
        cases.emplace_back(fmt::format("merge {} {}", db, folder.file("other-result")),
                           "has another result than in the target");
    }
    for (const auto& row : cases) {
        const Outcome out = orrery_command(row.first);
        CHECK_MESSAGE(out.code == 2, row.first << "\n" << out.text);
        CHECK_MESSAGE(out.text.find(row.second) != std::string::npos, row.first << "\n" << out.text);
    }
    CHECK(orrery_command("table --format csv " + db).text == before);
    // A disk that is full after 48 KiB: what was committed stays, and the sweep goes on where there is room again.
    const std::string full = folder.file("full");
    const Outcome out = shell_command(
        fmt::format("bash -c \"ulimit -f 48; trap '' XFSZ; {} sweep {} --db {}\"", orrery_program(), sweep, full));
    CHECK_MESSAGE(out.code == 2, out.text);
    CHECK_MESSAGE(out.text.find("--resume continues from there") != std::string::npos, out.text);
    CHECK(orrery_command(fmt::format("sweep {} --db {} --resume", sweep, full)).code == 0);
    CHECK(orrery_command("table --format csv " + full).text == before);
    // A device that takes nothing: an error each time, and the device is still one.
    CHECK(shell_command(fmt::format("{} table {} --format csv > /dev/full", orrery_program(), db)).code == 2);
    CHECK(shell_command(fmt::format("{} table {} > /dev/full", orrery_program(), db)).code == 2);
    CHECK(orrery_command(fmt::format("table {} --format csv --output /dev/full", db)).code == 2);
    CHECK(std::filesystem::is_character_file("/dev/full"));
    CHECK(orrery_command(fmt::format("table {} --format csv --output /dev/stdout", db)).text == before);
}

TEST_CASE("a sweep as a Slurm job array: tasks killed and requeued lose nothing and duplicate nothing") {
    const Folder folder;
    const std::string base = std::string(ORRERY_SOURCE_DIR) + "/scenarios/training/gpt3-175b-1024xA100.yaml";
    const std::string sweep = folder.file("sweep.yaml", fmt::format(R"(orrery: 1
kind: sweep
base: {}
axes: {{plan.pipeline: [8, 16, 32], plan.micro_batch: [1, 2], plan.zero: [0, 1], plan.recompute: [selective, full],
       cluster.fabric.latency: {{linear: [100 ns, 2000 ns], count: 8}}}}
derive: {{plan.data: 1024 / (plan.tensor * plan.pipeline)}}
)",
                                                                    base));
    REQUIRE(orrery_command(fmt::format("sweep {} --db {} -j 2", sweep, folder.file("local"))).code == 0);
    // Requeues the first two tasks that are seen running, each twice.
    const std::string script = folder.file("script.sh", R"(
"$1" sweep "$2" --db "$3" --slurm 4 -j 1 & sweep=$!
for round in 1 2; do
    for try in $(seq 100); do
        running=$(squeue --noheader --array --states=running --format=%A | head -n 2)
        [ -n "$running" ] && break
        sleep 0.05
    done
    sleep 0.4
    for job in $running; do scontrol requeue "$job" && echo "requeued $job"; done
    sleep 1
    # Slurm would wait two minutes before it starts them again.
    for job in $running; do scontrol update "JobId=$job" StartTime=now; done
done
wait "$sweep"
)");
    const Outcome out = shell_command(fmt::format("{}/tests/tools/slurm.sh bash {} {} {} {}", ORRERY_SOURCE_DIR, script,
                                                  orrery_program(), sweep, folder.file("slurm")));
    if (out.code == 77) {
        MESSAGE(out.text);
        return;
    }
    CHECK_MESSAGE(out.code == 0, out.text);
    CHECK_MESSAGE(out.text.find("requeued") != std::string::npos, out.text);
    CHECK_MESSAGE(out.text.find("192 points from 4 databases") != std::string::npos, out.text);
    const auto table = [&](const char* name) { return orrery_command("table --format csv " + folder.file(name)).text; };
    CHECK(table("slurm") == table("local"));
}

TEST_CASE("a sweep as a Kubernetes Indexed Job: its pods, one of them evicted, give the results of one machine") {
    const Folder folder;
    std::filesystem::create_directories(folder.file("work/sweeps"));
    (void)folder.file("work/base.yaml", kSmallTraining);
    const std::string sweep = folder.file("work/sweeps/s.yaml", R"(orrery: 1
kind: sweep
base: ../base.yaml
axes: {plan.micro_batch: [1, 2, 4], plan.zero: [0, 1], cluster.fabric.latency: {linear: [100 ns, 2000 ns], count: 8}}
)");
    REQUIRE(
        orrery_command(fmt::format("sweep {} --db {} --set plan.recompute=full", sweep, folder.file("local"))).code ==
        0);
    const std::string manifest = folder.file("job.yaml");
    const Outcome written = orrery_command(
        fmt::format("sweep {} --kubernetes 3 --claim my-claim --set plan.recompute=full -o {}", sweep, manifest));
    REQUIRE_MESSAGE(written.code == 0, written.text);
    std::ifstream file(manifest);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    std::vector<nlohmann::json> objects;
    for (std::size_t at = text.find("---\n"); at != std::string::npos; at = text.find("---\n", at + 1)) {
        objects.push_back(nlohmann::json::parse(text.substr(at + 4, text.find("---\n", at + 1) - at - 4)));
    }
    REQUIRE(objects.size() == 3);
    CHECK(objects[1]["spec"]["completionMode"] == "Indexed");
    CHECK(objects[1]["spec"]["completions"] == 3);
    // As a kubelet does: the files of the ConfigMap at their paths, then the command of each pod.
    const auto& spec = objects[1]["spec"]["template"]["spec"];
    for (const auto& item : spec["volumes"][0]["configMap"]["items"]) {
        const std::string path = folder.file("mounted/" + item["path"].get<std::string>());
        std::filesystem::create_directories(std::filesystem::path(path).parent_path());
        std::ofstream(path) << objects[0]["data"][item["key"].get<std::string>()].get<std::string>();
    }
    const std::string program = std::filesystem::absolute(orrery_program()).parent_path().string();
    const auto pod = [&](const nlohmann::json& job, int index, const char* limit) {
        const std::string script =
            folder.file("pod.sh", job["spec"]["template"]["spec"]["containers"][0]["command"][2]);
        return shell_command(
            fmt::format("PATH={}:$PATH SWEEP={} RESULTS={} JOB_COMPLETION_INDEX={} timeout -s KILL {} sh {}", program,
                        folder.file("mounted"), folder.file("results"), index, limit, script));
    };
    CHECK(pod(objects[1], 1, "0.1").code != 0);
    for (const int index : {0, 1, 2}) {
        const Outcome out = pod(objects[1], index, "60");
        CHECK_MESSAGE(out.code == 0, out.text);
    }
    const Outcome merged = pod(objects[2], 0, "60");
    CHECK_MESSAGE(merged.code == 0, merged.text);
    const auto table = [&](const std::string& name) {
        return orrery_command("table --format csv " + folder.file(name)).text;
    };
    CHECK(table("results/" + objects[0]["metadata"]["name"].get<std::string>() + ".sqlite") == table("local"));
    // What its pods could not see or do is refused.
    CHECK(orrery_command(fmt::format("sweep {} --kubernetes 3 --db x", sweep)).code == 2);
    CHECK(orrery_command(fmt::format("sweep {} --db {} --image x", sweep, folder.file("x"))).code == 2);
    const std::string absolute = folder.file(
        "work/a.yaml",
        fmt::format("orrery: 1\nkind: sweep\nbase: {}\naxes: {{plan.zero: [0, 1]}}\n", folder.file("work/base.yaml")));
    const Outcome refused = orrery_command(fmt::format("sweep {} --kubernetes 3", absolute));
    CHECK(refused.code == 2);
    CHECK_MESSAGE(refused.text.find("relative") != std::string::npos, refused.text);
}

TEST_CASE("--slurm without Slurm, or with options that it refuses, says so") {
    const Folder folder;
    (void)folder.file("base.yaml", kSmallTraining);
    const std::string sweep = folder.file("sweep.yaml", kSmallSweep);
    const Outcome out = shell_command(
        fmt::format("PATH=/nowhere {} sweep {} --db {} --slurm 2", orrery_program(), sweep, folder.file("db")));
    CHECK(out.code == 2);
    CHECK_MESSAGE(out.text.find("there is no sbatch on this machine") != std::string::npos, out.text);
}

TEST_CASE("a database of results that is cut off, or holds values of wrong types, is refused by every reader") {
    const Folder folder;
    (void)folder.file("base.yaml", kSmallTraining);
    const std::string sweep = folder.file("sweep.yaml", kSmallSweep);
    const std::string good = folder.file("good.sqlite");
    REQUIRE(orrery_command(fmt::format("sweep {} --db {} -j 1 --quiet", sweep, good)).code == 0);
    const auto damaged = [&](const std::string& sql) {
        const std::string path = folder.file("damaged.sqlite");
        std::filesystem::copy_file(good, path, std::filesystem::copy_options::overwrite_existing);
        sqlite3* handle = nullptr;
        REQUIRE(sqlite3_open(path.c_str(), &handle) == SQLITE_OK);
        REQUIRE(sqlite3_exec(handle, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK);
        sqlite3_close(handle);
        return path;
    };
    const auto refused = [&](const std::string& path) {
        for (const std::string& command :
             {"table " + path, fmt::format("merge {} {}", folder.file("all.sqlite"), path)}) {
            const Outcome out = orrery_command(command);
            CHECK_MESSAGE(out.code == 2, command << "\n" << out.text);
            CHECK_MESSAGE(out.text.find("is damaged") != std::string::npos, command << "\n" << out.text);
            std::filesystem::remove(folder.file("all.sqlite"));
        }
    };
    refused(damaged("UPDATE metrics SET value = 'fast'"));
    refused(damaged("UPDATE results SET status = x'00'"));
    refused(damaged("UPDATE points SET hash = x'00'; INSERT INTO results VALUES(x'00', 'done', '')"));
    const std::string bytes = read(good);
    refused(folder.file("cut.sqlite", bytes.substr(0, bytes.size() - 2048)));
}
