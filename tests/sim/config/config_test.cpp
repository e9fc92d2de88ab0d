#include "sim/base/text.hpp"
#include "sim/config/fields.hpp"
#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/calibration/collections.hpp"
#include "tools/driver/kinds/messages.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "tools/driver/kinds/training.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

using namespace orrery;

namespace {

std::string parse_error(const std::string& text) {
    try {
        (void)parse_yaml(text, "f.yaml");
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

double quantity(const std::string& text, Dimension dimension) {
    double value = -1;
    std::string problem;
    return parse_quantity(text, dimension, value, problem) ? value : -1;
}

std::string quantity_problem(const std::string& text, Dimension dimension) {
    double value = 0;
    std::string problem;
    return parse_quantity(text, dimension, value, problem) ? "" : problem;
}

std::string with(std::string from, const std::string& what, const std::string& to) {
    const auto at = from.find(what);
    REQUIRE(at != std::string::npos);
    return from.replace(at, what.size(), to);
}

}  // namespace

TEST_CASE("bits are not bytes, GiB is not GB") {
    CHECK(quantity("400 Gbps", Dimension::rate) == 50e9);
    CHECK(quantity("400 GB/s", Dimension::rate) == 400e9);
    CHECK(quantity("80 GiB", Dimension::bytes) == 80.0 * 1024 * 1024 * 1024);
    CHECK(quantity("80 GB", Dimension::bytes) == 80e9);
    CHECK(quantity("1.5 us", Dimension::time) == doctest::Approx(1.5e-6));
    CHECK(quantity("1.5e-3 s", Dimension::time) == doctest::Approx(1.5e-3));
    CHECK(quantity("90 %", Dimension::fraction) == doctest::Approx(0.9));
    CHECK(quantity("312 TFLOP/s", Dimension::flops) == 312e12);
}

TEST_CASE("a quantity without a unit, with a wrong or an unknown one is refused with the units that are right") {
    CHECK(quantity_problem("400", Dimension::rate).find("no unit") != std::string::npos);
    CHECK(quantity_problem("400 GB", Dimension::rate).find("wrong kind of unit") != std::string::npos);
    CHECK(quantity_problem("400 Gbs", Dimension::rate).find("did you mean 'Gbps'") != std::string::npos);
    CHECK(quantity_problem("many GB", Dimension::bytes).find("not a size in bytes") != std::string::npos);
    CHECK(quantity_problem("1e999 GB", Dimension::bytes) != "");
}

TEST_CASE("a number with a unit, a ratio or a suffix says what to write instead") {
    const auto refusal = [](const std::string& layers) {
        return test::refusal(with(test::kSmallTraining, "layers: 4", "layers: " + layers));
    };
    CHECK(refusal("4:1").find("must be a whole number, not '4:1'; write 4 alone, without ':1'") != std::string::npos);
    CHECK(refusal("0.5/s").find("; write 0.5 alone, without '/s'") != std::string::npos);
    CHECK(refusal("5 %").find("; write 0.05") != std::string::npos);
    CHECK(refusal("32k").find("; write 32000 or 32768") != std::string::npos);
    for (const char* plain : {"many", "4.5", "1e400", "-", "1.2.3"}) {
        CHECK(refusal(plain).find("write") == std::string::npos);
    }
}

TEST_CASE("numbers are decimal: octal-looking, hexadecimal and infinite ones are refused") {
    double value = 0;
    CHECK(parse_number("10", value));
    CHECK(parse_number("0.5", value));
    CHECK(parse_number("-3e2", value));
    for (const char* bad : {"010", "0x10", "inf", "nan", "1_000", "", "1e999", "--1", "1 2"}) {
        CHECK_MESSAGE(!parse_number(bad, value), bad);
    }
    CHECK(test::refusal(with(test::kSmallTraining, "layers: 4", "layers: 010")).find("leading zeros look octal") !=
          std::string::npos);
}

TEST_CASE("what yaml-cpp lets pass is refused: duplicates, open quotes, several documents, empty files") {
    CHECK(parse_error("a: 1\nb: 2\na: 3\n").find("f.yaml:3:1: error: duplicate key 'a'") != std::string::npos);
    CHECK(parse_error("a: \"open\nb: 2\n").find("never closed") != std::string::npos);
    CHECK(parse_error("a: 'it''s fine'\n").empty());
    CHECK(parse_error("a: 1\n---\nb: 2\n").find("one document") != std::string::npos);
    CHECK(parse_error("").find("empty") != std::string::npos);
    CHECK(parse_error("# only a comment\n").find("empty") != std::string::npos);
    CHECK(parse_error("a: [1, 2\n").find("f.yaml:") != std::string::npos);
    CHECK(parse_error(std::string("a: \0b", 5)).find("zero byte") != std::string::npos);
}

TEST_CASE("a map takes what it does not say from those that it merges, the first of them first") {
    const YamlNode root = parse_yaml(
        "one: &one {a: 1, b: 2}\nother: &other {b: 3, c: 4}\n"
        "both: {<<: [*one, *other], a: 5}\nsame: {b: 6, <<: *other}\n",
        "f.yaml");
    const auto value = [&](const char* map, const char* key) { return root.find(map)->find(key)->scalar; };
    CHECK(value("both", "a") == "5");
    CHECK(value("both", "b") == "2");
    CHECK(value("both", "c") == "4");
    CHECK(value("same", "b") == "6");
    CHECK(root.find("both")->entries.size() == 3);
    CHECK(root.find("same")->find("c")->mark.line == 2);
    CHECK(parse_error("a: {<<: 7}\n").find("f.yaml:1:5: error: '<<' takes a map") != std::string::npos);
}

TEST_CASE("aliases of a long word and merges of long maps are bounded by what they expand to") {
    std::string words = "a: &a \"" + std::string(1U << 20U, 'x') + "\"\nb: [*a";
    for (int i = 0; i < 100000; ++i) {
        words += ", *a";
    }
    CHECK(parse_error(words + "]\n").find("expands to more than 64 MiB") != std::string::npos);
    std::string map = "base: &base\n";
    for (int i = 0; i < 100000; ++i) {
        map += fmt::format("  k{}: 1\n", i);
    }
    const YamlNode merged = parse_yaml(map + "own:\n  k7: 2\n  <<: *base\n", "f.yaml");
    REQUIRE(merged.find("own")->entries.size() == 100000);
    CHECK(merged.find("own")->find("k7")->scalar == "2");
}

TEST_CASE("microseconds may be written with the micro sign or the Greek letter") {
    CHECK(quantity("5 \u00b5s", Dimension::time) == quantity("5 us", Dimension::time));
    CHECK(quantity("5\u03bcs", Dimension::time) == quantity("5 us", Dimension::time));
    CHECK(quantity_problem("5 \u00b5x", Dimension::time).find("unknown unit") != std::string::npos);
}

TEST_CASE("a tab in the indentation is said to be one, at its place") {
    CHECK(parse_error("cluster:\n\tnodes: 1\n\tnode: dgx-h100\nmodel: x\n")
              .find("f.yaml:2:1: error: YAML does not allow tabs for indentation") == 0);
    CHECK(parse_error("cluster:\n  nodes: 1\n  \tnode: dgx-h100\n")
              .find("f.yaml:3:3: error: YAML does not allow tabs for indentation") == 0);
    CHECK(parse_error("a: {b: 1}}\n").find("tabs") == std::string::npos);
}

TEST_CASE(
    "an unknown name of Hugging Face leads to the nearest preset and to the importer; files of importers are presets") {
    const std::string unknown = test::refusal(with(test::kSmallTraining, "model:", "model: Qwen/Qwen3-32C\nx:"));
    CHECK_MESSAGE(
        unknown.find("unknown model preset 'Qwen/Qwen3-32C' (did you mean 'qwen3-32b'?)") != std::string::npos,
        unknown);
    CHECK(unknown.find("'orrery import hf-config config.json'") != std::string::npos);
    const test::Folder folder;
    (void)folder.file("fabric.yaml",
                      "orrery: 1\nkind: network\ncluster:\n  hosts: 2\n  fabric:\n    kind: graph\n    link: 100 Gbps\n"
                      "    switches: [{name: a, nodes: 2}]\ntraffic: {pattern: permutation, size: 16 MiB}\n");
    (void)folder.file("model.yaml",
                      "model:\n  name: own\n  layers: 2\n  hidden: 1024\n  heads: 16\n  vocabulary: 1000\n"
                      "  sequence: 512\n");
    const std::string scenario = folder.file(
        "s.yaml",
        "orrery: 1\nkind: training\ncluster: {nodes: 2, node: dgx-h100, fabric: ./fabric.yaml}\nmodel: model.yaml\n"
        "plan: {tensor: 8, data: 2, micro_batch: 1, global_batch: 2}\n");
    const test::Outcome out = test::orrery_command("run " + scenario);
    CHECK_MESSAGE(out.code == 0, out.text);
}

TEST_CASE("errors of YAML files show the line with a mark under the column, of a long line what is around it") {
    const test::Folder folder;
    const std::string text = "orrery: 1\nkind: network\ncluster: {hosts: 4, fabric: {\u00e9: 1}}\n";
    const std::string shown = test::orrery_command("run " + folder.file("f.yaml", text)).text;
    CHECK_MESSAGE(
        shown.find("\n  3 | cluster: {hosts: 4, fabric: {\u00e9: 1}}\n    |                              ^\n") !=
            std::string::npos,
        shown);
    const std::string wide = "orrery: 1\nkind: network\nnote: {" + std::string(5000, ' ') + "hosts: 4}\n";
    const std::string cut = test::orrery_command("run " + folder.file("wide.yaml", wide)).text;
    for (const std::string_view line : split(cut, '\n')) {
        CHECK_MESSAGE(line.size() < 300, cut);
    }
    CHECK(test::orrery_command("run " + folder.file("f.yaml", text) + " --output-format github").text.find("^") ==
          std::string::npos);
}

TEST_CASE("aliases that explode and nesting without end are refused quickly") {
    std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
    for (int i = 1; i < 12; ++i) {
        bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
        for (int k = 0; k < 10; ++k) {
            bomb += "*a" + std::to_string(i - 1) + (k < 9 ? ", " : "]\n");
        }
    }
    CHECK(parse_error(bomb).find("expands to more than") != std::string::npos);
    CHECK(parse_error("a: " + std::string(200, '[') + std::string(200, ']')).find("nested deeper") !=
          std::string::npos);
    CHECK(parse_error("a: &x [*x]\n") != "");
}

TEST_CASE("all errors of a scenario come at once, each with its place and the nearest name") {
    std::string text = test::kSmallTraining;
    text = with(text, "tensor: 2", "tensr: 2");
    text = with(text, "hidden: 1024", "hidden: wide");
    text = with(text, "dgx-a100-80g", "dgx-a100-80");
    const std::string errors = test::refusal(text);
    CHECK(errors.find("test.yaml:5:8: error: unknown key 'tensr' (did you mean 'tensor'?)") != std::string::npos);
    CHECK(errors.find("test.yaml:4:28: error: 'hidden' must be a whole number, not 'wide'") != std::string::npos);
    CHECK(errors.find("unknown node preset 'dgx-a100-80' (did you mean 'dgx-a100-80g'?)") != std::string::npos);
}

TEST_CASE("keys of another kind of scenario, missing keys and wrong types are errors") {
    CHECK(test::refusal(with(test::kSmallTraining, "software:", "traffic: {size: 1 MB}\nsoftware:"))
              .find("unknown key 'traffic'") != std::string::npos);
    // Of a kind that there is none of nobody knows the keys.
    const std::string kind = test::refusal(
        "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\n"
        "model: llama-3-8b\nengine: {scheduler: {kind: vlm, chunk: 9}, tensr: 2}\n");
    CHECK(kind.find("'kind' cannot be 'vlm'") != std::string::npos);
    CHECK(kind.find("unknown key 'chunk'") == std::string::npos);
    CHECK(kind.find("did you mean 'tensor'?") != std::string::npos);
    CHECK(test::refusal(with(test::kSmallTraining, ", global_batch: 8", "")).find("'global_batch' is missing") !=
          std::string::npos);
    CHECK(test::refusal(with(test::kSmallTraining, "{tensor: 2, data: 4, global_batch: 8}", "fast"))
              .find("must be a map") != std::string::npos);
    CHECK(test::refusal(with(test::kSmallTraining, "tensor: 2", "tensor: [2]")).find("must be a single value") !=
          std::string::npos);
    CHECK(test::refusal(with(test::kSmallTraining, "tensor: 2", "tensor: 2000000")).find("between 1 and 1024") !=
          std::string::npos);
    CHECK(test::refusal(with(test::kSmallTraining, "tensor: 2", "tensor: 99999999999999999999999")).find("tensor") !=
          std::string::npos);
    CHECK(
        test::refusal(with(test::kSmallTraining, "kind: training", "kind: trainng")).find("did you mean 'training'") !=
        std::string::npos);
}

TEST_CASE("what is written is JSON, whatever a name has in it") {
    for (const char* name : {"plain", "a \\\" quote", "tab \\t and a line's end \\n", "\xC3\xA4 letter"}) {
        const std::string text =
            with(test::kSmallTraining, "{layers: 4", fmt::format("{{name: \"{}\", layers: 4", name));
        const auto written = nlohmann::json::parse(resolved_json(test::scenario(text)));
        CHECK(written["model"]["name"] == nlohmann::json::parse(fmt::format("\"{}\"", name)));
        CHECK(written["model"]["layers"] == 4);
        CHECK(written["plan"]["global_batch"] == 8);
    }
}

TEST_CASE("a single value stands for the key of a section that is mostly given alone") {
    const std::string serving =
        "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-3-8b\n"
        "requests: {count: 4, prompt: LENGTH}\n";
    const auto tokens = [&](const std::string& length) {
        return nlohmann::json::parse(
            resolved_json(test::scenario(with(serving, "LENGTH", length))))["requests"]["prompt"];
    };
    CHECK(tokens("300")["mean"] == 300);
    CHECK(tokens("300") == tokens("{mean: 300}"));
    // What a section turns on, `none` turns off.
    const std::string training =
        "orrery: 1\nkind: training\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-3-8b\n"
        "plan: {data: 8, global_batch: 8, micro_batch: 1, adapters: ADAPTERS}\n";
    CHECK(test::refusal(with(training, "ADAPTERS", "none")).empty());
    CHECK(test::refusal(with(training, "ADAPTERS", "off")).find("'adapters' must be a map, or 'none'") !=
          std::string::npos);
    CHECK(test::refusal(with(serving, "LENGTH", "[300]")).find("'prompt' must be a map or its 'mean' alone") !=
          std::string::npos);
    CHECK(test::refusal(with(serving, "LENGTH", "long")).find("test.yaml:5:30: error: 'mean' must be a number") !=
          std::string::npos);
}

TEST_CASE("tables that a scenario names must be there") {
    const std::string node =
        "node: {preset: dgx-a100-80g, collectives: nvlink33, gpu: {preset: a100-sxm-80g, kernels: a100}}";
    const std::string errors = test::refusal(with(test::kSmallTraining, "node: dgx-a100-80g", node));
    CHECK(errors.find("test.yaml:3:63: error: 'collectives': models/data/collectives has no 'nvlink33' (did you mean "
                      "'nvlink3'?)") != std::string::npos);
    CHECK(errors.find("test.yaml:3:110: error: 'kernels': models/data/kernels has no 'a100'") != std::string::npos);

    std::string serving = with(test::kSmallTraining, "training", "serving");
    serving = with(serving, "plan: {tensor: 2, data: 4, global_batch: 8}", "requests: {rate: 1}");
    serving = with(serving, "software: megatron-lm-2021", "engine: {software: {preset: vllm-0.19, kernels: tritn}}");
    // A set that some device has, whatever this one's are.
    CHECK(test::refusal(serving).find("has no 'tritn' (did you mean 'triton'?)") != std::string::npos);
    CHECK(test::scenario(with(serving, "tritn", "triton")).as<ServingKind>().engine.software.kernels.all == "triton");
}

TEST_CASE("a preset may start from another, and that from none") {
    const test::Folder folder;
    (void)folder.file("base.yaml", "first: 1\nsecond: 2\n");
    (void)folder.file("own.yaml", "preset: base\nsecond: 3\n");
    (void)folder.file("third.yaml", "preset: own\nsecond: 4\n");
    (void)folder.file("self.yaml", "preset: self\n");
    const auto read = [&](const std::string& text, std::vector<Diagnostic>& errors) {
        std::pair<std::int64_t, std::int64_t> out{0, 0};
        read_fields(parse_yaml(text, "f.yaml"), DataDirectory(folder.file("")), errors, [&](Fields& fields) {
            fields.section({"pair", "two numbers"}, PresetKind{"pair", "."}, [&](Fields& inner) {
                inner.integer({"first", "", true}, out.first);
                inner.integer({"second", "", true}, out.second);
            });
        });
        return out;
    };
    std::vector<Diagnostic> errors;
    CHECK(read("pair: own\n", errors) == std::pair<std::int64_t, std::int64_t>{1, 3});
    CHECK(read("pair: {preset: own, second: 5}\n", errors) == std::pair<std::int64_t, std::int64_t>{1, 5});
    CHECK(errors.empty());
    for (const char* circular : {"pair: third\n", "pair: self\n"}) {
        errors.clear();
        (void)read(circular, errors);
        REQUIRE(!errors.empty());
        CHECK(errors[0].to_string().find("starts from a preset and cannot be what another starts from") !=
              std::string::npos);
    }
}

TEST_CASE("presets are read anew by every reader, and once by those of one directory that is read once") {
    const test::Folder folder;
    (void)folder.file("one.yaml", "value: 1\n");
    const DataDirectory anew(folder.file(""));
    const DataDirectory once = anew.read_once();
    const PresetKind kind{"thing", "."};
    CHECK(once.preset(kind, "one")->find("value")->scalar == "1");
    CHECK(once.names(kind) == std::vector<std::string>{"one"});
    (void)folder.file("one.yaml", "value: 2\n");
    (void)folder.file("two.yaml", "value: 3\n");
    CHECK(DataDirectory(once).preset(kind, "one")->find("value")->scalar == "1");  // copies share what was read
    CHECK(once.names(kind) == std::vector<std::string>{"one"});
    CHECK(anew.preset(kind, "one")->find("value")->scalar == "2");
    CHECK(anew.names(kind) == std::vector<std::string>{"one", "two"});
    CHECK(anew.read_once().preset(kind, "two")->find("value")->scalar == "3");
    CHECK_THROWS_AS((void)once.preset(kind, "three"), ConfigError);
    (void)folder.file("three.yaml", "value: 4\n");
    CHECK(once.preset(kind, "three")->find("value")->scalar == "4");
}

TEST_CASE("a preset can be overridden in place, and a scenario override reaches into it") {
    const Scenario plain = test::scenario(test::kSmallTraining);
    const Scenario changed =
        test::scenario(with(test::kSmallTraining, "node: dgx-a100-80g", "node: {preset: dgx-a100-80g, nics: 4}"));
    CHECK(plain.cluster.node.nics == 8);
    CHECK(changed.cluster.node.nics == 4);
    CHECK(changed.cluster.node.gpu.memory.value == plain.cluster.node.gpu.memory.value);

    YamlNode tree = parse_yaml(test::kSmallTraining, "test.yaml");
    apply_override(tree, "cluster.node.gpu.memory=40 GiB");
    apply_override(tree, "plan.recompute=full");
    const Scenario overridden = read_scenario(tree, "test", test::data());
    CHECK(overridden.cluster.node.gpu.memory.value == 40.0 * 1024 * 1024 * 1024);
    CHECK(overridden.cluster.node.gpu.memory.how == "scenario");
    CHECK(overridden.as<TrainingKind>().plan.recompute == Recompute::full);
    CHECK_THROWS_AS(apply_override(tree, "no-equals-sign"), ConfigError);
    CHECK_THROWS_AS(apply_override(tree, "a..b=1"), ConfigError);
    apply_override(tree, "plan.tensr=4");
    CHECK_THROWS_WITH_AS((void)read_scenario(tree, "test", test::data()), doctest::Contains("did you mean 'tensor'"),
                         ConfigError);
}

TEST_CASE("a preset that replaces another in place begins anew: nothing of the earlier one shows through") {
    // The A100 has measured powers at idle and of its memory, the A10 has none.
    const DeviceSpec a10 = read_device("a10", test::data());
    for (const char* node :
         {"node: {preset: dgx-a100-80g, gpu: a10}", "node: {preset: dgx-a100-80g, gpu: {preset: a10}}"}) {
        CAPTURE(node);
        const Scenario replaced = test::scenario(with(test::kSmallTraining, "node: dgx-a100-80g", node));
        CHECK(replaced.cluster.node.gpu.name == a10.name);
        CHECK(replaced.cluster.node.gpu.idle_power.value == a10.idle_power.value);
        CHECK(replaced.cluster.node.gpu.memory_power.value == a10.memory_power.value);
        CHECK(replaced.cluster.node.gpu.idle_power.how == a10.idle_power.how);
        CHECK(replaced.cluster.node.nics == 8);
    }
    YamlNode tree = parse_yaml(test::kSmallTraining, "test.yaml");
    apply_override(tree, "cluster.node.gpu=a10");
    apply_override(tree, "cluster.node.gpu.memory=40 GiB");
    const Scenario overridden = read_scenario(tree, "test", test::data());
    CHECK(overridden.cluster.node.gpu.idle_power.value == a10.idle_power.value);
    CHECK(overridden.cluster.node.gpu.memory.value == 40.0 * 1024 * 1024 * 1024);
    // Without a preset of its own a map changes what the earlier preset says.
    const Scenario changed = test::scenario(
        with(test::kSmallTraining, "node: dgx-a100-80g", "node: {preset: dgx-a100-80g, gpu: {memory: 40 GiB}}"));
    CHECK(changed.cluster.node.gpu.idle_power.value > 0);
}

TEST_CASE("a resolved scenario reads back to itself") {
    const Scenario first = test::scenario(test::kSmallTraining);
    const std::string resolved = resolved_json(first);
    const Scenario second = read_scenario(parse_yaml(resolved, "resolved"), "test", test::data());
    CHECK(resolved_json(second) == resolved);
    const Scenario whole = read_scenario(parse_yaml(complete_json(first), "complete"), "test", test::data());
    CHECK(resolved_json(whole) == resolved);
}

TEST_CASE("every preset of every kind loads, with a source on every constant") {
    for (const std::string& name : test::data().names(kNodePresets)) {
        std::vector<Diagnostic> errors;
        NodeSpec node;
        read_fields(load_yaml(test::data().path(kNodePresets, name)), test::data(), errors,
                    [&](Fields& fields) { describe(fields, node); });
        CHECK_MESSAGE(errors.empty(), name);
        CHECK_MESSAGE(node.gpu.memory.source != "", name);
        CHECK_MESSAGE(node.gpu.flops_bf16.source != "", name);
        CHECK_NOTHROW((void)test::model_cache().device(node.gpu, ComputeKind::calibrated));
        CHECK_NOTHROW((void)test::model_cache().collectives(node, LibraryKind::nccl));
    }
    for (const std::string& name : test::data().names(kModelPresets)) {
        std::vector<Diagnostic> errors;
        ModelSpec model;
        read_fields(load_yaml(test::data().path(kModelPresets, name)), test::data(), errors,
                    [&](Fields& fields) { describe(fields, model); });
        CHECK_MESSAGE(errors.empty(), name);
    }
}

TEST_CASE("the JSON Schema is valid JSON and knows every key") {
    const auto schema = nlohmann::json::parse(scenario_schema(TrainingKind::kRow, test::data()));
    CHECK(schema["properties"]["plan"]["properties"].contains("tensor"));
    CHECK(schema["properties"]["plan"]["properties"]["recompute"]["enum"].size() == 6);
    CHECK(schema["additionalProperties"] == false);
    CHECK(schema["$schema"].get<std::string>().find("json-schema.org") != std::string::npos);
    // Presets are named where a plain word may stand, and where a map starts from one.
    const auto names = test::data().names(kModelPresets);
    const auto& model = schema["properties"]["model"]["anyOf"];
    CHECK(model[0]["enum"].get<std::vector<std::string>>() == names);
    CHECK(model[1]["properties"]["preset"]["enum"].get<std::vector<std::string>>() == names);
    CHECK(schema.dump().find("x-names-from") == std::string::npos);
    CHECK(schema["properties"]["kind"]["enum"] == nlohmann::json::array({"training"}));
}

TEST_CASE("the JSON Schema requires no more than reading does") {
    const auto schema = nlohmann::json::parse(scenario_schema(NetworkKind::kRow, test::data()));
    const auto& traffic = schema["properties"]["traffic"];
    CHECK(traffic["properties"].contains("size"));
    CHECK(!traffic.contains("required"));  // a file of flows says its sizes
}

TEST_CASE("a scenario resolves to the same text wherever its file lies") {
    const std::string text =
        "orrery: 1\nkind: collective\ncluster: {nodes: 2, node: {preset: dgx-h100, nic_bandwidth: 100 Gbps}}\n"
        "collective: {size: 1 MiB}\n";
    const auto resolved = [&](const std::string& folder) {
        return resolved_json(read_scenario(parse_yaml(text, folder + "/s.yaml"), "s.yaml", test::data()));
    };
    CHECK(resolved("/here") == resolved("there/and/there"));
    CHECK(resolved("/here").find("s.yaml") == std::string::npos);
}

TEST_CASE("an override reaches entries of lists by name or by number") {
    YamlNode root = parse_yaml("jobs: [{name: one, start: 0 s}, {name: two}]", "list.yaml");
    apply_override(root, "jobs.two.start=3 s");
    apply_override(root, "jobs.0.start=1 s");
    CHECK(root.find("jobs")->items[1].find("start")->scalar == "3 s");
    CHECK(root.find("jobs")->items[0].find("start")->scalar == "1 s");
    CHECK_THROWS_WITH_AS(apply_override(root, "jobs.three.start=1 s"), doctest::Contains("'three'"), ConfigError);
}
