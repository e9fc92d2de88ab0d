#include "tests/fuzz/attacks.hpp"

#include "sim/base/random.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace orrery::test {

namespace {

namespace fs = std::filesystem;
using Files = std::map<std::string, std::string>;

std::string bytes_of(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    if (!stream) {
        throw std::runtime_error("no such good input: " + path.string());
    }
    return std::string(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
    const auto at = text.find(what);
    if (at == std::string::npos) {
        throw std::runtime_error("the good input does not say " + what);
    }
    return text.replace(at, what.size(), by);
}

// A good input and the command that takes it.
struct Seed {
    std::string name;
    std::string command;
    Files files;
    std::string attacked;
};

struct Value {
    std::size_t at;
    std::size_t size;
    bool free;  ///< a name or a source, which may be any text
};

// Where the plain values of a YAML text stand: behind "key: ", up to a comma, bracket or comment.
std::vector<Value> values_of(const std::string& text) {
    std::vector<Value> out;
    bool comment = false;
    for (std::size_t i = 0; i + 1 < text.size(); ++i) {
        comment = text[i] == '\n' ? false : comment || text[i] == '#';
        if (comment || text[i] != ':' || text[i + 1] != ' ') {
            continue;
        }
        const std::size_t end = std::min(text.find_first_of(",{}[]#\n", i + 2), text.size());
        if (end > i + 2) {
            const std::size_t key = text.find_last_of(" {\n", i) + 1;
            const std::string_view word = std::string_view(text).substr(key, i - key);
            out.push_back({i + 2, end - i - 2, word == "name" || word == "source"});
        }
    }
    return out;
}

struct Hostile {
    const char* text;
    Verdict verdict;
};

// Values no key takes, and values that some do.
constexpr std::array<Hostile, 22> kValues = {{
    {"nan", Verdict::located},
    {"-1e400", Verdict::located},
    {"{a: {b: [1, 2]}}", Verdict::located},
    {"[[[]]]", Verdict::located},
    {"12 parsec", Verdict::located},
    {"\"\"", Verdict::located},
    {"\"\\e[2J\\a\\r\"", Verdict::located},
    {"*nobody", Verdict::located},
    {"\"no such thing\"", Verdict::located},
    {"2020-01-01", Verdict::located},
    {"-7", Verdict::any},
    {"0", Verdict::any},
    {"1e300", Verdict::any},
    {"99999999999999999999", Verdict::any},
    {"9007199254740993", Verdict::any},
    {"1000000", Verdict::any},
    {"0.3333", Verdict::any},
    {"1e-300 s", Verdict::any},
    {"1e12 GiB", Verdict::any},
    {"true", Verdict::any},
    {"inf", Verdict::any},
    {"~", Verdict::any},
}};

using Attacks = std::vector<Attack>;

void attack_values(const Seed& seed, std::size_t each, RandomStream& random, Attacks& out) {
    const std::string& good = seed.files.at(seed.attacked);
    const std::vector<Value> values = values_of(good);
    for (std::size_t k = 0; k < each; ++k) {
        const Value& value = values[(k * 7 + random.below(7)) % values.size()];
        const Hostile& hostile = kValues[random.below(kValues.size())];
        Attack attack{fmt::format("{}: {} for {}", seed.name, hostile.text, good.substr(value.at, value.size)),
                      seed.command, seed.files, seed.attacked, value.free ? Verdict::any : hostile.verdict};
        attack.files[seed.attacked].replace(value.at, value.size, hostile.text);
        out.push_back(std::move(attack));
    }
}

// What any text may suffer.
void attack_text(const Seed& seed, std::size_t each, RandomStream& random, Attacks& out) {
    const std::string& good = seed.files.at(seed.attacked);
    const auto add = [&](const std::string& how, std::string bytes, Verdict verdict = Verdict::any) {
        Attack attack{seed.name + ": " + how, seed.command, seed.files, seed.attacked, verdict};
        attack.files[seed.attacked] = std::move(bytes);
        out.push_back(std::move(attack));
    };
    add("nothing", "", Verdict::refused);
    add("a line break", "\n", Verdict::refused);
    add("zeros", std::string(4096, '\0'), Verdict::refused);
    add("a picture", "\x89PNG\r\n\x1a\n" + std::string(100, '\xff'), Verdict::refused);
    add("half of gzip", "\x1f\x8b\x08" + std::string(20, 'x'), Verdict::refused);
    add("one long line", std::string(3'000'000, 'x'), Verdict::refused);
    add("carriage returns", [&] {
        std::string text;
        for (const char c : good) {
            text += c == '\n' ? std::string("\r\n") : std::string(1, c);
        }
        return text;
    }());
    add("twice", good + good);
    for (std::size_t k = 0; k < each; ++k) {
        std::string text = good;
        const std::size_t at = random.below(text.size());
        switch (k % 5) {
            case 0:
                add(fmt::format("cut at {}", at), text.substr(0, at));
                break;
            case 1:
                for (int i = 0; i < 8; ++i) {
                    text[random.below(text.size())] = static_cast<char>(random.below(256));
                }
                add("eight bytes of noise", std::move(text));
                break;
            case 2:
                add(fmt::format("a zero at {}", at), text.insert(at, 1, '\0'));
                break;
            case 3: {
                const std::size_t line = text.rfind('\n', at) == std::string::npos ? 0 : text.rfind('\n', at) + 1;
                const std::size_t end = std::min(text.find('\n', line), text.size() - 1) + 1;
                add(fmt::format("without the line at {}", at), text.erase(line, end - line));
                break;
            }
            default: {
                // A number grows, loses its sign or its sense.
                auto digit = std::find_if(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(),
                                          [](unsigned char c) { return std::isdigit(c) != 0; });
                const char* const numbers[] = {"-", "99999999999999999999", "1e999", "0x", "1.5.", "\xff"};
                const std::size_t place = static_cast<std::size_t>(digit - text.begin());
                const char* number = numbers[random.below(std::size(numbers))];
                add(fmt::format("{} before the digit at {}", number[0] == '\xff' ? "\\xff" : number, place),
                    text.insert(place, number));
            }
        }
    }
}

// What only YAML may suffer; the first line of each good input is a comment.
void attack_yaml(const Seed& seed, Attacks& out) {
    const std::string& good = seed.files.at(seed.attacked);
    const auto add = [&](const std::string& how, std::string bytes, Verdict verdict = Verdict::located) {
        Attack attack{seed.name + ": " + how, seed.command, seed.files, seed.attacked, verdict};
        attack.files[seed.attacked] = std::move(bytes);
        out.push_back(std::move(attack));
    };
    const std::string end = good.ends_with('\n') ? "" : "\n";
    std::string nested = good + end + "deep: ";
    for (int i = 0; i < 5000; ++i) {
        nested += "[";
    }
    std::string laughs = good + end + "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
    for (int i = 1; i < 12; ++i) {
        laughs += fmt::format("a{}: &a{} [*a{}, *a{}, *a{}, *a{}, *a{}, *a{}, *a{}, *a{}, *a{}]\n", i, i, i - 1, i - 1,
                              i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1);
    }
    add("an unknown key", good + end + "surely_unknown: 1\n");
    add("a key twice", good + end + good.substr(good.find('\n') + 1));
    add("deep brackets", nested);
    add("aliases of aliases", laughs);
    add("a circle of aliases", good + end + "loop: &loop [*loop]\n");
    add("a tab", replaced(good, "\n", "\n\tx: 1\n"));
    add("a second document", good + end + "---\nkind: network\n");
    add("a tag", good + end + "x: !!python/object/apply:os.system [ls]\n");
    add("a list instead", "- 1\n- 2\n");
    add("a word instead", "hello\n");
    add("the terminal's escapes as a key", good + end + "\"\\e]0;title\\a\": 1\n");
    add("a key of a megabyte", good + end + "? " + std::string(1'000'000, 'k') + "\n: 1\n");
    add("an open quote", good + end + "x: \"never closed\n");
    add("a version of the future", replaced(good, "orrery: 1", "orrery: 2"));
    add(
        "text of two bytes a letter",
        [&] {
            std::string text = "\xff\xfe";
            for (const char c : good) {
                text += c;
                text += '\0';
            }
            return text;
        }(),
        Verdict::any);
    add("the mark of UTF-8", "\xEF\xBB\xBF" + good, Verdict::any);
}

// Scenarios of every kind, with what they name.
std::vector<Seed> scenario_seeds(const fs::path& root) {
    const fs::path fields = root / "tests/data/fields";
    std::vector<Seed> out;
    for (const char* name : {"training", "training-sharded", "serving", "serving-split", "serving-fair", "network",
                             "network-roce", "network-planned", "collective", "collective-tree", "cluster"}) {
        Files files = {{"a.yaml", bytes_of(fields / fmt::format("{}.yaml", name))}};
        if (files["a.yaml"].find("requests.csv") != std::string::npos) {
            files["requests.csv"] = bytes_of(fields / "requests.csv");
        }
        if (files["a.yaml"].find("flows.csv") != std::string::npos) {
            files["flows.csv"] = bytes_of(fields / "flows.csv");
        }
        out.push_back({name, "run a.yaml --json out.json", files, "a.yaml"});
    }
    const Files replay = {
        {"a.yaml", replaced(bytes_of(fields / "replay.yaml"), "../../../scenarios/replay/two-layer-step", "step")},
        {"step.replay", bytes_of(root / "scenarios/replay/two-layer-step.replay")}};
    out.push_back({"replay", "run a.yaml --json out.json", replay, "a.yaml"});
    return out;
}

constexpr const char* kBase =
    "# Good.\norrery: 1\nkind: training\ncluster: {nodes: 1, node: dgx-a100-80g}\nmodel: {layers: 4, hidden: 1024, "
    "heads: "
    "16, vocabulary: 1000}\nplan: {tensor: 2, data: 4, global_batch: 8}\nsoftware: megatron-lm-2021\n";
constexpr const char* kSweep =
    "# Good.\norrery: 1\nkind: sweep\nbase: base.yaml\naxes:\n  plan.tensor: [1, 2, 4]\n  plan.micro_batch: [1, 2]\n"
    "derive: {plan.data: \"8 / plan.tensor\"}\nwhere: [\"plan.data >= 2\"]\nkeep: [iteration_time_s, mfu]\n";
constexpr const char* kBaseline =
    "# Good.\norrery-baseline: 1\nscenario: base.yaml\nreason: \"first\"\nmetrics:\n  mfu: {value: 0.1, tolerance: 1 "
    "%}\n"
    "  iteration_time_s: {value: 1, tolerance: 1 %}\ninputs:\n  cluster.nodes: 1\n";

// Other files that are read: presets of one's own, traces, graphs, sweeps and baselines.
std::vector<Seed> yaml_seeds(const fs::path& root) {
    const std::string model = "# Good.\n" + bytes_of(root / "workloads/data/models/llama-2-7b.yaml");
    const std::string device = "# Good.\n" + bytes_of(root / "models/data/devices/a100-sxm-80g.yaml");
    const std::string on_model = replaced(kBase, "{layers: 4, hidden: 1024, heads: 16, vocabulary: 1000}", "mine");
    return {
        {"model preset",
         "run base.yaml --data d",
         {{"base.yaml", on_model}, {"d/workloads/data/models/mine.yaml", model}},
         "d/workloads/data/models/mine.yaml"},
        {"device preset",
         "price gemm m=4096 n=4096 k=4096 --device mine --data d",
         {{"d/models/data/devices/mine.yaml", device}},
         "d/models/data/devices/mine.yaml"},
    };
}

std::vector<Seed> trace_seeds(const fs::path& root) {
    const fs::path fields = root / "tests/data/fields";
    const fs::path replay = root / "tests/data/replay";
    const std::string serving = replaced(bytes_of(fields / "serving-fair.yaml"), "requests.csv", "r.csv");
    const std::string network = replaced(bytes_of(fields / "network-flows.yaml"), "flows.csv", "f.csv");
    const std::string matrix =
        "Nodes 4\nConnections 2\n0->1 id 1 start 0 size 4096 send_done_trigger 1\n1->2 id 2 trigger 1 size 8192\n"
        "trigger id 1 oneshot\n";
    return {
        {"request trace",
         "run s.yaml --json out.json",
         {{"s.yaml", serving}, {"r.csv", bytes_of(fields / "requests.csv")}},
         "r.csv"},
        {"flows",
         "run n.yaml --json out.json",
         {{"n.yaml", network}, {"f.csv", bytes_of(fields / "flows.csv")}},
         "f.csv"},
        {"matrix",
         "run n.yaml --set traffic.flows=f.cm --json out.json",
         {{"n.yaml", network}, {"f.cm", matrix}},
         "f.cm"},
        {"replay program",
         "run r.yaml --json out.json",
         {{"r.yaml", replaced(bytes_of(fields / "replay.yaml"), "../../../scenarios/replay/two-layer-step", "step")},
          {"step.replay", bytes_of(root / "scenarios/replay/two-layer-step.replay")}},
         "step.replay"},
        {"Kineto",
         "import pytorch-profiler t.json -o out.replay",
         {{"t.json", bytes_of(replay / "step.json")}},
         "t.json"},
        {"GOAL", "import goal t.goal -o out.replay", {{"t.goal", bytes_of(replay / "pingpong.goal")}}, "t.goal"},
        {"AICB", "import aicb t.txt -o out.replay", {{"t.txt", bytes_of(replay / "two-layers.aicb.txt")}}, "t.txt"},
        {"Chakra", "import chakra t.et -o out.replay", {{"t.et", bytes_of(replay / "pair.0.et")}}, "t.et"},
        {"microbenchmarks",
         "calibrate t.csv -o out",
         {{"t.csv", bytes_of(root / "tests/data/microbenchmark.csv")}},
         "t.csv"},
    };
}

// Command lines on a good scenario, sweep, database and baseline. `%` stands for the scenario.
void attack_command_lines(Attacks& out) {
    const Files files = {
        {"base.yaml", kBase}, {"sweep.yaml", kSweep}, {"check.yaml", kBaseline}, {"no.sqlite", "SQLite"}};
    const auto add = [&](const std::string& command, Verdict verdict) {
        out.push_back({"command line: " + command.substr(0, 80), command, files, "", verdict});
    };
    for (const char* command : {"",
                                "runn base.yaml",
                                "run",
                                "run base.yaml base.yaml",
                                "run nowhere.yaml",
                                "run .",
                                "run /dev/null",
                                "run base.yaml --nope",
                                "run base.yaml --json",
                                "run base.yaml --set",
                                "run base.yaml --set plan",
                                "run base.yaml --set =1",
                                "run base.yaml --set plan.=1",
                                "run base.yaml --set plan..tensor=1",
                                "run base.yaml --set .=1",
                                "run base.yaml --set plan.tensor=",
                                "run base.yaml --set plan.tensor=[",
                                "run base.yaml --set plan.tensor={a:",
                                "run base.yaml --set plan=1",
                                "run base.yaml --set plan.tensor.x=1",
                                "run base.yaml --seed -1",
                                "run base.yaml --seed 1.5",
                                "run base.yaml --seed x",
                                "run base.yaml --seed 99999999999999999999",
                                "run base.yaml --json base.yaml",
                                "run base.yaml --trace base.yaml",
                                "run base.yaml --report ./base.yaml",
                                "run base.yaml --resolved base.yaml",
                                "run base.yaml --json x --trace x",
                                "run base.yaml --json /nowhere/x.json",
                                "run base.yaml --json .",
                                "run base.yaml --requests r.csv",
                                "run base.yaml --ports p.csv",
                                "run base.yaml --memory-limit 1",
                                "run base.yaml --memory-limit -1GiB",
                                "run base.yaml --memory-limit lots",
                                "run base.yaml --color mauve",
                                "run base.yaml --output-format xml",
                                "run base.yaml --data nowhere",
                                "run base.yaml --data base.yaml",
                                "run '' ",
                                "run base.yaml --json ''",
                                "explain nowhere.yaml",
                                "explain base.yaml --set plan.tensor=three",
                                "diff base.yaml nowhere.yaml",
                                "compare base.yaml",
                                "compare base.yaml nowhere.json",
                                "compare base.yaml base.yaml --metrics nope",
                                "compare base.yaml base.yaml --export-csv base.yaml",
                                "plan base.yaml -j 0",
                                "plan base.yaml -j x",
                                "plan base.yaml --headroom 2",
                                "plan base.yaml --headroom -1",
                                "plan base.yaml --nodes 0",
                                "plan base.yaml --nodes 1,,2x",
                                "plan base.yaml --price nan",
                                "plan base.yaml --top 0",
                                "plan base.yaml --simulate -3",
                                "plan base.yaml --json base.yaml",
                                "capacity base.yaml",
                                "capacity nowhere.yaml",
                                "sweep sweep.yaml",
                                "sweep base.yaml --db x",
                                "sweep sweep.yaml --db sweep.yaml",
                                "sweep sweep.yaml --db base.yaml",
                                "sweep sweep.yaml --db x --shard 4/4",
                                "sweep sweep.yaml --db x --shard -1/2",
                                "sweep sweep.yaml --db x --shard 1",
                                "sweep sweep.yaml --db x --timeout 0 s",
                                "sweep sweep.yaml --db x --timeout -5",
                                "sweep sweep.yaml --db x -j 0",
                                "sweep sweep.yaml --db /nowhere/x",
                                "sweep nowhere.yaml --db x",
                                "table nowhere.sqlite",
                                "table no.sqlite",
                                "table base.yaml",
                                "table no.sqlite --where '('",
                                "table no.sqlite --limit -1",
                                "merge no.sqlite",
                                "merge out.sqlite no.sqlite",
                                "merge out.sqlite nowhere.sqlite",
                                "merge no.sqlite no.sqlite",
                                "plot breakdown nowhere.yaml",
                                "plot nope base.yaml",
                                "plot curves no.sqlite",
                                "plot breakdown base.yaml -o base.yaml",
                                "plot heat base.yaml",
                                "check base.yaml",
                                "check nowhere.yaml",
                                "check check.yaml --junit check.yaml",
                                "check check.yaml --update",
                                "check check.yaml --summary base.yaml",
                                "import nope base.yaml",
                                "import pytorch-profiler base.yaml",
                                "import goal base.yaml",
                                "import chakra base.yaml",
                                "import nsys base.yaml",
                                "import nsys no.sqlite",
                                "import pytorch-profiler nowhere.json",
                                "import aicb base.yaml",
                                "import pytorch-profiler base.yaml -o base.yaml",
                                "init",
                                "init nope",
                                "init training --gpus 0",
                                "init training --gpus x",
                                "init training --gpus -8",
                                "init training --device nope",
                                "init training --model nope",
                                "init training --gpus 1e99",
                                "init sweep --base nowhere.yaml",
                                "init training -o base.yaml/x",
                                "topology nowhere.yaml",
                                "topology sweep.yaml",
                                "validate nope",
                                "validate compute --trace nowhere.csv",
                                "validate compute --trace base.yaml",
                                "validate training --log base.yaml",
                                "calibrate nowhere.csv",
                                "calibrate base.yaml",
                                "calibrate base.yaml -o base.yaml",
                                "calibrate",
                                "price nope --device h100-sxm",
                                "price gemm --device h100-sxm",
                                "price gemm m=1 n=1 --device h100-sxm",
                                "price gemm m=0 n=1 k=1 --device h100-sxm",
                                "price gemm m=-1 n=1 k=1 --device h100-sxm",
                                "price gemm m=nan n=1 k=1 --device h100-sxm",
                                "price gemm m=1e300 n=1e300 k=1e300 --device h100-sxm",
                                "price gemm m=1 n=1 k=1 q=1 --device h100-sxm",
                                "price gemm m=1 n=1 k=1 --device nope",
                                "price gemm m=1 n=1 k=1 --device h100-sxm --dtype fp99",
                                "price all_reduce bytes=-1 ranks=8 --node dgx-h100",
                                "price all_reduce bytes=1 ranks=0 --node dgx-h100",
                                "price all_reduce bytes=1 ranks=2.5 --node dgx-h100",
                                "price all_reduce bytes=1e30 ranks=8 --node nope",
                                "price --table base.yaml",
                                "price --table nowhere.csv",
                                "list nope",
                                "schema nope",
                                "completion fish",
                                "help nope",
                                "help training nope",
                                "help E999",
                                "help training plan.tensro",
                                "version x",
                                "manual x"}) {
        add(command, Verdict::refused);
    }
    add("run base.yaml --set plan.tensor=" + std::string(100'000, '1'), Verdict::refused);
    add("run " + std::string(5000, 'a') + ".yaml", Verdict::refused);
    add("run base.yaml --set '" + std::string(2000, 'k') + "=1'", Verdict::refused);
    add("run base.yaml --set \"plan.tensor=$(printf '\\033[2J')\"", Verdict::refused);
}

// Sweeps and baselines whose parts do not fit together.
void attack_by_hand(Attacks& out) {
    const auto sweep = [&](const std::string& what, const std::string& by, Verdict verdict) {
        out.push_back({"sweep: " + by.substr(0, 60),
                       "sweep sweep.yaml --db out.sqlite -j 1",
                       {{"base.yaml", kBase}, {"sweep.yaml", replaced(kSweep, what, by)}},
                       "sweep.yaml",
                       verdict});
    };
    for (const char* expression : {"\"8 /\"", "\"8 / plan.tensr\"", "\"(((((8\"", "\"8 / 0\"", "\"1e999\"",
                                   "\"8 ** 99999\"", "\"'a' + 1\"", "\"\\0\"", "\"8 / plan.tensor; rm\""}) {
        sweep("\"8 / plan.tensor\"", expression, Verdict::refused);
    }
    for (const char* axis : {"[]", "{from: 1}", "{from: 1, to: 1e9, step: 1e-9}", "{from: 5, to: 1, step: 1}",
                             "[1, [2]]", "[nan]", "[-1]", "{from: 1, to: 2, step: 0}"}) {
        sweep("[1, 2, 4]", axis, Verdict::refused);
    }
    sweep("plan.tensor:", "plan.tensr:", Verdict::located);
    sweep("base: base.yaml", "base: sweep.yaml", Verdict::refused);
    sweep("base: base.yaml", "base: nowhere.yaml", Verdict::located);
    sweep("base: base.yaml", "base: .", Verdict::refused);
    sweep("keep: [iteration_time_s, mfu]", "keep: [nope]", Verdict::located);
    sweep("where: [\"plan.data >= 2\"]", "where: [\"plan.data > 99\"]", Verdict::any);
    sweep("where: [\"plan.data >= 2\"]", "where: [\"" + std::string(20000, '(') + "\"]", Verdict::refused);
    const auto baseline = [&](const std::string& what, const std::string& by, Verdict verdict) {
        out.push_back({"baseline: " + by.substr(0, 60),
                       "check check.yaml",
                       {{"base.yaml", kBase}, {"check.yaml", replaced(kBaseline, what, by)}},
                       "check.yaml",
                       verdict});
    };
    baseline("scenario: base.yaml", "scenario: nowhere.yaml", Verdict::located);
    baseline("scenario: base.yaml", "scenario: check.yaml", Verdict::refused);
    baseline("scenario: base.yaml", "scenario: .", Verdict::located);
    baseline("cluster.nodes: 1", "cluster.nodes: 0x1", Verdict::located);
    baseline("tolerance: 1 %", "tolerance: -1 %", Verdict::located);
    baseline("tolerance: 1 %", "tolerance: nan", Verdict::located);
    baseline("value: 0.1", "value: nan", Verdict::located);
    baseline("value: 0.1", "value: [1]", Verdict::located);
    baseline("orrery-baseline: 1", "orrery-baseline: 9", Verdict::located);
    baseline("metrics:", "metric:", Verdict::located);
}

}  // namespace

std::vector<Attack> attacks(const std::string& root) {
    RandomStream random(11, "attacks");
    Attacks out;
    for (const Seed& seed : scenario_seeds(root)) {
        attack_values(seed, 22, random, out);
        attack_text(seed, 2, random, out);
    }
    attack_yaml(scenario_seeds(root).front(), out);
    for (const Seed& seed : yaml_seeds(root)) {
        attack_values(seed, 12, random, out);
        attack_text(seed, 5, random, out);
    }
    for (const Seed& seed : trace_seeds(root)) {
        attack_text(seed, 15, random, out);
    }
    const Seed sweep = {
        "sweep", "sweep sweep.yaml --db out.sqlite -j 1", {{"base.yaml", kBase}, {"sweep.yaml", kSweep}}, "sweep.yaml"};
    const Seed baseline = {
        "baseline", "check check.yaml", {{"base.yaml", kBase}, {"check.yaml", kBaseline}}, "check.yaml"};
    for (const Seed& seed : {sweep, baseline}) {
        attack_text(seed, 10, random, out);
    }
    attack_yaml(sweep, out);
    attack_by_hand(out);
    attack_command_lines(out);
    attack_sections(out);
    return out;
}

}  // namespace orrery::test
