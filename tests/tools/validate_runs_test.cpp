#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/kinds/interval.hpp"
#include "tools/driver/kinds/training.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

namespace orrery {

namespace {

std::string run_of(const std::string& id, const std::string& measured, const std::string& kind = "training") {
    return fmt::format(R"(  - id: {}
    {}
    scenario:
      orrery: 1
      kind: {}
      cluster: {{nodes: 1, node: dgx-h100}}
      model: llama-3-8b
      plan: {{tensor: 8, sequence_parallel: true, global_batch: 8}}
)",
                       id, measured, kind);
}

}  // namespace

TEST_CASE("validate --runs scores measured runs of one's own and needs no limits") {
    const test::Folder folder;
    const std::string file =
        folder.file("mine.yaml", "points:\n" + run_of("a", "measured: 1 s") + run_of("b", "measured: 900 ms"));
    const test::Outcome out = test::orrery_command("validate training --points --runs " + file);
    CHECK(out.code == 0);
    CHECK(out.text.find("scored points") != std::string::npos);
    CHECK(out.text.find("mine") != std::string::npos);
    CHECK(out.text.find("limits (") == std::string::npos);
}

TEST_CASE("validate --runs names all that is wrong in a file at once") {
    const test::Folder folder;
    const std::string file =
        folder.file("mine.yaml", "points:\n" + run_of("a", "measured: 5") + run_of("b", "note: fast") +
                                     run_of("c", "measured: 3 GB") + run_of("c", "measured: 1 s") +
                                     run_of("d", "measured: 1 s", "trainig"));
    const test::Outcome out = test::orrery_command("validate training --runs " + file);
    CHECK(out.code == 2);
    CHECK(out.text.find("mine.yaml:3:") != std::string::npos);  // a time without its unit
    CHECK(out.text.find("'measured' is missing") != std::string::npos);
    CHECK(out.text.find("3 GB") != std::string::npos);
    CHECK(out.text.find("did you mean 'training'") != std::string::npos);
    CHECK(test::orrery_command("validate training --runs " + folder.file("none.yaml", "points: []\n")).code == 2);
    CHECK(test::orrery_command("validate serving --runs " + file).code == 2);
    const test::Outcome unknown = test::orrery_command("validate training --without contentoin --runs " + file);
    CHECK(unknown.code == 2);
}

TEST_CASE("validate --without switches a mechanism off, and names those there are") {
    const test::Folder folder;
    const std::string file = folder.file("mine.yaml", "points:\n" + run_of("a", "measured: 1 s"));
    const std::string command = "validate training --points --runs " + file;
    CHECK(test::orrery_command(command).text != test::orrery_command(command + " --without slowest-device").text);
    const test::Outcome unknown = test::orrery_command(command + " --without contentoin");
    CHECK(unknown.code == 2);
    CHECK(unknown.text.find("did you mean 'contention'") != std::string::npos);
}

TEST_CASE("the interval of an iteration is as wide as its software's errors, and wider on a device without fits") {
    const auto width = [](const std::string& software, const std::string& compute) {
        ModelCache models(test::data());
        const Scenario s = test::scenario(fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 1, node: dgx-h100}}
model: llama-3-8b
plan: {{tensor: 8, sequence_parallel: true, global_batch: 8}}
software: {}
compute: {{model: {}}}
)",
                                                      software, compute));
        const Metric metric = *run_scenario(s, models, {}).summary.find("iteration_time_s");
        CHECK(metric.value / *metric.low == doctest::Approx(*metric.high / metric.value));
        return std::log(*metric.high / metric.value);
    };
    const double known = test::scenario(
                             "orrery: 1\nkind: training\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-3-8b\n"
                             "plan: {tensor: 8, global_batch: 8}\nsoftware: megatron-core-2024\n")
                             .as<TrainingKind>()
                             .software.interval.value;
    CHECK(width("megatron-core-2024", "calibrated") > known - 1e-9);
    CHECK(width("megatron-core-2024", "calibrated") < known + 0.05);
    CHECK(width("{preset: megatron-core-2024, interval: 0.2}", "calibrated") > 0.2 - 1e-9);
    CHECK(width("megatron-core-2024", "roofline") > width("megatron-core-2024", "calibrated"));
}

TEST_CASE("runs of experts, of new devices and of adapters on them have intervals as wide as such runs err") {
    const auto scenario_of = [](const std::string& node, const std::string& model, const std::string& plan) {
        return test::scenario(
            fmt::format("orrery: 1\nkind: training\ncluster: {{nodes: 1, node: {}}}\nmodel: {}\n"
                        "plan: {{tensor: 8, global_batch: 8{}}}\nsoftware: megatron-core-2024\n",
                        node, model, plan));
    };
    const Scenario dense = scenario_of("dgx-h100", "llama-3-8b", "");
    CHECK(driver::regime_of(dense) == nullptr);
    const Scenario experts = scenario_of("dgx-h100", "mixtral-8x7b", "");
    const Scenario recent = scenario_of("dgx-b200", "llama-3-8b", "");
    const Scenario adapters = scenario_of("dgx-b200", "llama-3-8b", ", adapters: {rank: 16, modules: \"qkv\"}");
    CHECK(driver::software_width(dense) < driver::software_width(recent));
    CHECK(driver::software_width(recent) < driver::software_width(adapters));
    CHECK(driver::software_width(adapters) < driver::software_width(experts));
}

}  // namespace orrery
