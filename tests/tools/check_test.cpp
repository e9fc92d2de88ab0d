// Baselines: the project's own hold, a slower device is found and named.

#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/check/baseline.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

using namespace orrery;
using namespace orrery::test;

namespace {

// An installation of its own, whose tables can be changed.
class Installation {
  public:
    explicit Installation(const Folder& folder) : root_(folder.file("installation")) {
        namespace fs = std::filesystem;
        fs::create_directories(root_ + "/bin");
        fs::copy_file(orrery_program(), root_ + "/bin/orrery");
        for (const char* part : {"models/data", "topologies/data", "workloads/data"}) {
            fs::create_directories(fs::path(data_path(part)).parent_path());
            fs::copy(std::string(ORRERY_SOURCE_DIR) + "/" + part, data_path(part), fs::copy_options::recursive);
        }
    }
    [[nodiscard]] std::string data_path(const std::string& relative) const {
        return root_ + "/share/orrery/" + relative;
    }
    [[nodiscard]] Outcome run(const std::string& arguments) const {
        return shell_command(root_ + "/bin/orrery " + arguments);
    }
    void replace(const std::string& file, const std::string& before, const std::string& after) const {
        std::string text = read(data_path(file));
        const auto at = text.find(before);
        REQUIRE(at != std::string::npos);
        std::ofstream(data_path(file)) << text.replace(at, before.size(), after);
    }

  private:
    std::string root_;
};

}  // namespace

TEST_CASE("the project's own baselines hold") {
    const Outcome out = orrery_command(std::string("check ") + ORRERY_SOURCE_DIR + "/baselines/*.yaml");
    CHECK_MESSAGE(out.code == 0, out.text);
}

TEST_CASE("check: a device 5 % slower is a regression with its cause, a table too; an update needs a reason") {
    const Folder folder;
    const Installation installation(folder);
    (void)folder.file("base.yaml",
                      read(std::string(ORRERY_SOURCE_DIR) + "/scenarios/training/gpt3-175b-1024xA100.yaml"));
    const std::string scenario = folder.file("base.yaml");
    const std::string baseline = folder.file("baseline.yaml");
    const std::string make =
        fmt::format("check {} --update --set compute.model=roofline --scenario {}", baseline, scenario);
    CHECK(installation.run(make).text.find("--update needs --reason") != std::string::npos);
    REQUIRE(installation.run(make + " --reason first").code == 0);
    CHECK(installation.run("check " + baseline).code == 0);
    CHECK(load_baseline(baseline).reason == "first");

    // 5 % slower arithmetic and an input without effect.
    installation.replace("models/data/devices/a100-sxm-80g.yaml", "312 TFLOP/s", "296.4 TFLOP/s");
    installation.replace("models/data/devices/a100-sxm-80g.yaml", "host_bandwidth: {value: 26.3",
                         "host_bandwidth: {value: 27.3");
    const std::string junit = folder.file("junit.xml");
    const std::string summary = folder.file("summary.md");
    const Outcome slower = installation.run(fmt::format("check {} --junit {} --summary {}", baseline, junit, summary));
    CHECK_MESSAGE(slower.code == 1, slower.text);
    CHECK_MESSAGE(slower.text.find("REGRESSED") != std::string::npos, slower.text);
    CHECK_MESSAGE(
        slower.text.find("cluster.node.gpu.flops_bf16.value: 312 TFLOP/s -> 296.4 TFLOP/s, makes iteration_time_s +") !=
            std::string::npos,
        slower.text);
    CHECK_MESSAGE(slower.text.find("host_bandwidth.value: 26.3 GB/s -> 27.3 GB/s, without effect") != std::string::npos,
                  slower.text);
    CHECK(read(junit).find("<failure message=\"iteration_time_s: expected") != std::string::npos);
    CHECK(read(summary).find(":x: REGRESSED") != std::string::npos);
    if (shell_command("python3 -c ''").code == 0) {
        CHECK(shell_command("python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' " + junit).code == 0);
    }

    // A measured table that changed is named by its file.
    installation.replace("models/data/devices/a100-sxm-80g.yaml", "296.4 TFLOP/s", "312 TFLOP/s");
    installation.replace("models/data/collectives/nvlink3.fit", "bandwidth_GBps 300", "bandwidth_GBps 301");
    const Outcome table = installation.run("check " + baseline);
    CHECK_MESSAGE(table.text.find("table models/data/collectives/nvlink3.fit: ") != std::string::npos, table.text);
}

TEST_CASE("check: tolerance and direction decide what is a regression") {
    const Folder folder;
    const std::string scenario = folder.file("scenario.yaml", kSmallTraining);
    const double time =
        run_scenario(test::scenario(kSmallTraining), model_cache(), {}).summary.find("iteration_time_s")->value;
    const auto verdict = [&](double expected, const std::string& rest) {
        const std::string path = folder.file(
            "b.yaml", fmt::format("orrery-baseline: 1\nscenario: scenario.yaml\nmetrics: {{iteration_time_s: "
                                  "{{value: {:.12g}{}}}}}\n",
                                  expected, rest));
        const BaselineOutcome out = check_baseline(load_baseline(path), model_cache());
        REQUIRE(out.metrics.size() == 1);
        CHECK(out.passed() == (out.metrics[0].verdict != Verdict::regressed));
        return out.metrics[0].verdict;
    };
    CHECK(verdict(time, "") == Verdict::same);
    CHECK(verdict(time * 1.0099, ", tolerance: 1 %") == Verdict::moved);
    // A time is better when lower, unless the baseline says something else.
    CHECK(verdict(time * 1.02, ", tolerance: 1 %") == Verdict::improved);
    CHECK(verdict(time * 0.98, ", tolerance: 1 %") == Verdict::regressed);
    CHECK(verdict(time * 1.02, ", tolerance: 1 %, better: neither") == Verdict::regressed);
    CHECK(verdict(time * 1.02, ", tolerance: 1 %, better: lower") == Verdict::improved);
    CHECK(verdict(time * 0.98, ", tolerance: 1 %, better: lower") == Verdict::regressed);
    CHECK(verdict(time * 1.02, ", tolerance: 1 %, better: higher") == Verdict::regressed);

    const auto refused = [&](const std::string& text) {
        return orrery_command("check " + folder.file("bad.yaml", text));
    };
    const Outcome many = refused("orrery-baseline: 1\nmetrics: {mfu: {valu: 1, tolerance: x}}\nreson: y\n");
    CHECK(many.code == 2);
    for (const char* expected : {"'scenario' is missing", "unknown key 'reson' (did you mean 'reason'?)",
                                 "'mfu' needs a number", "'tolerance' must be like 1 %"}) {
        CHECK_MESSAGE(many.text.find(expected) != std::string::npos, many.text);
    }
    CHECK(refused("a: 1\n").text.find("starts with 'orrery-baseline: 1'") != std::string::npos);
    const Outcome missing = refused("orrery-baseline: 1\nscenario: scenario.yaml\nmetrics: {nonsense: {value: 1}}\n");
    CHECK(missing.code == 1);
    CHECK(missing.text.find("MISSING") != std::string::npos);
    // A scenario that no longer fits is a regression and not an error of the check.
    const Outcome infeasible =
        refused("orrery-baseline: 1\nscenario: scenario.yaml\nset: [plan.tensor=4]\nmetrics: {mfu: {value: 1}}\n");
    CHECK(infeasible.code == 1);
    CHECK(infeasible.text.find("does not divide") != std::string::npos);
}

TEST_CASE("check: only tables that the scenario reads are its inputs") {
    const auto tables = [](const std::string& text) {
        std::vector<std::string> out;
        for (const auto& [path, value] : inputs_of(test::scenario(text), data())) {
            if (path.rfind("table ", 0) == 0) {
                out.push_back(path.substr(6));
            }
        }
        return out;
    };
    const std::string training = kSmallTraining;
    const std::vector<std::string> read = tables(training);
    const auto all_in = [&](const std::vector<std::string>& folders) {
        return std::all_of(read.begin(), read.end(), [&](const std::string& path) {
            return std::any_of(folders.begin(), folders.end(),
                               [&](const std::string& folder) { return path.rfind("models/data/" + folder, 0) == 0; });
        });
    };
    CHECK(read.size() > 2);
    CHECK(all_in({"kernels/a100-sxm-80g/", "collectives/nvlink3.fit", "collectives/between/infiniband.yaml"}));
    CHECK(tables(training + "compute: {model: roofline}\n").size() == 2);
    CHECK(tables(training + "compute: {model: roofline}\nnetwork: {collectives: ideal}\n").empty());
    CHECK(tables("orrery: 1\nkind: network\ncluster: {hosts: 4, fabric: {link: 1 Gbps}}\ntraffic: {size: 1 MB}\n")
              .empty());

    // A baseline of an older version lists tables that nothing reads: they changed nothing.
    const Folder folder;
    const Installation installation(folder);
    (void)folder.file("base.yaml", training);
    const std::string baseline = folder.file("b.yaml");
    REQUIRE(installation
                .run(fmt::format("check {} --update --scenario {} --reason first", baseline, folder.file("base.yaml")))
                .code == 0);
    std::ofstream(baseline, std::ios::app) << "  table models/data/collectives/nvlink5.fit: \"0000000000000000\"\n";
    const Outcome same = installation.run("check " + baseline);
    CHECK(same.code == 0);
    CHECK_MESSAGE(same.text.find("nvlink5") == std::string::npos, same.text);
    installation.replace("models/data/collectives/nvlink5.fit", "bandwidth_GBps 900", "bandwidth_GBps 901");
    CHECK(installation.run("check " + baseline).text.find("nvlink5") == std::string::npos);
}

TEST_CASE("check: a baseline reads the inputs that an update wrote, whatever a scenario says") {
    const Folder folder;
    std::size_t lists = 0;
    for (const auto& file : std::filesystem::directory_iterator(ORRERY_SOURCE_DIR "/tests/data/fields")) {
        const std::string path = file.path().string();
        if (!path.ends_with(".yaml") || path.ends_with("without-effect.yaml")) {
            continue;
        }
        Baseline written;
        written.scenario = path;
        written.reason = "first: \"it\" holds # so far";
        written.metrics = {{"mfu", 0.5, 0.01, ""}};
        written.inputs = inputs_of(load_scenario(path, {}, data()), data());
        lists += static_cast<std::size_t>(std::count_if(written.inputs.begin(), written.inputs.end(),
                                                        [](const auto& one) { return one.second.front() == '['; }));
        const Baseline again = load_baseline(folder.file("b.yaml", baseline_text(written)));
        CHECK_MESSAGE(changes_between(written.inputs, again.inputs).empty(), path);
        CHECK(again.reason == written.reason);
    }
    CHECK(lists > 10);

    Baseline odd;
    odd.scenario = folder.file("of: my #1.yaml", kSmallTraining);
    odd.metrics = {{"jobs: a.mfu", 0.5, 0.01, ""}};
    odd.inputs = {{"a: b", "[]"}, {"- #c", "[[1,\"x, y\"],{\"k\":[true,null]}]"}, {"null", "\"\\u0007 \\\"\""}};
    const Baseline again = load_baseline(folder.file("odd.yaml", baseline_text(odd)));
    CHECK(again.inputs == odd.inputs);
    CHECK(again.scenario == odd.scenario);
    CHECK(again.metrics.front().name == odd.metrics.front().name);
}

TEST_CASE("check: a list that changed is a cause of what moved") {
    const Folder folder;
    const auto network = [](const char* ecn) {
        return fmt::format(
            "orrery: 1\nkind: network\ncluster: {{hosts: 16, fabric: {{hosts_per_leaf: 4, spines: 2, link: 100 "
            "Gbps}}}}\n"
            "traffic: {{pattern: permutation, size: 256 KiB}}\nnetwork: {{fidelity: packet, transport: {{kind: "
            "multipath}}, queues: {{size: 60 kB, trim: true, ecn: {}}}}}\n",
            ecn);
    };
    const std::string scenario = folder.file("s.yaml", network("[10 kB, 40 kB]"));
    const std::string baseline = folder.file("b.yaml");
    REQUIRE(orrery_command(fmt::format("check {} --update --scenario {} --reason first", baseline, scenario)).code ==
            0);
    const Outcome same = orrery_command("check " + baseline);
    CHECK_MESSAGE(same.code == 0, same.text);
    (void)folder.file("s.yaml", network("[4 kB, 6 kB]"));
    const Outcome moved = orrery_command("check " + baseline);
    CHECK_MESSAGE(moved.text.find("network.queues.ecn: [\"10000 B\",\"40000 B\"] -> [\"4000 B\",\"6000 B\"], makes") !=
                      std::string::npos,
                  moved.text);
}
