// Every serving scenario as a user meets it: written out resolved and read back, its requests one by one, its timeline, and
// what happens when it is damaged.

#include "sim/base/random.hpp"
#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/kinds/pool_place.hpp"
#include "workloads/outside/session.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

using namespace orrery;
using namespace orrery::test;

namespace {

// All serving scenarios of the tree, sorted.
std::vector<std::string> serving_scenarios() {
    std::vector<std::string> out;
    const std::string root = std::string(ORRERY_SOURCE_DIR) + "/scenarios";
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
        const std::string path = entry.path().string();
        if (entry.path().extension() == ".yaml" && read(path).find("\nkind: serving\n") != std::string::npos) {
            out.push_back(path);
        }
    }
    std::sort(out.begin(), out.end());
    REQUIRE(out.size() > 20);
    outside::session().allows_code = true;
    return out;
}

}  // namespace

TEST_CASE("serving: every scenario, written out resolved, reads back and runs to the same summary") {
    for (const std::string& path : serving_scenarios()) {
        const bool staged = read(path).find("\n  stages:") != std::string::npos;  // its stages say how many there are
        const Scenario first = load_scenario(
            path, staged ? std::vector<std::string>{} : std::vector<std::string>{"requests.count=40"}, test::data());
        const std::string resolved = resolved_json(first);
        Scenario second;
        CHECK_NOTHROW_MESSAGE(second = read_scenario(parse_yaml(resolved, "resolved"), first.name, test::data()), path);
        second.directory = first.directory;
        CHECK_MESSAGE(resolved_json(second) == resolved, path);
        CHECK_MESSAGE(to_json(run_scenario(second, test::model_cache(), {}).summary, false) ==
                          to_json(run_scenario(first, test::model_cache(), {}).summary, false),
                      path);
    }
}

TEST_CASE("serving: a resolved scenario in another folder finds its trace") {
    const Folder folder;
    std::filesystem::create_directories(folder.file("in"));
    std::filesystem::create_directories(folder.file("out"));
    (void)folder.file("in/requests.csv", "arrival_s,prompt,output\n0,100,5\n1,200,7\n");
    const std::string scenario = folder.file("in/s.yaml", R"(orrery: 1
kind: serving
cluster: {nodes: 1, node: dgx-h100}
model: llama-2-7b
requests: {trace: requests.csv}
)");
    const std::string resolved = folder.file("out/r.yaml");
    REQUIRE(orrery_command(fmt::format("run {} --quiet --json {} --resolved {}", scenario, folder.file("a"), resolved))
                .code == 0);
    CHECK(read(resolved).find("../in/requests.csv") != std::string::npos);
    const Outcome again = orrery_command(fmt::format("run {} --quiet --json {}", resolved, folder.file("b")));
    CHECK_MESSAGE(again.code == 0, again.text);
    const auto metrics = [&](const std::string& name) {
        const std::string text = read(folder.file(name));
        return text.substr(text.find("\"metrics\""));
    };
    CHECK(metrics("a") == metrics("b"));
}

TEST_CASE("serving: replicas for prompts alone are refused, and so are those for decoding alone") {
    const auto text = [](const char* engine) {
        return fmt::format(
            "orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: dgx-h100}}\nmodel: llama-2-7b\nengine: {}\n", engine);
    };
    CHECK(refusal(text("{decode: {tensor: 2}}")).find("test.yaml:5:9: error: 'prefill' and 'decode'") !=
          std::string::npos);
    CHECK(refusal(text("{prefill: {tensor: 2}}")).find("one of them is missing") != std::string::npos);
    CHECK(refusal(text("{prefill: {tensor: 2}, decode: {tensor: 2}}")).empty());
}

TEST_CASE("serving: parts of a trace are refused where there is none, not ignored") {
    const auto said = [](const char* requests) {
        return refusal(fmt::format(
            "orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: dgx-h100}}\nmodel: llama-2-7b\nrequests: {}\n",
            requests));
    };
    CHECK(said("{time_scale: 0.5}").find("test.yaml:5:11: error: 'time_scale', 'from' and 'to' are of a trace") !=
          std::string::npos);
    CHECK(said("{from: 10 s}").find("are of a trace") != std::string::npos);
    CHECK(said("{trace: t.csv, time_scale: 0.5, from: 10 s, to: 20 s}").empty());
    // What an override may have left without a meaning stays: a trace in place of a generator, another kind of arrivals.
    CHECK(said("{trace: t.csv, rate: 3}").find("'requests.rate' has no effect") != std::string::npos);
    const Folder folder;
    const std::string trace = folder.file("t.csv", "arrival_s,prompt,output\n0,100,5\n");
    const std::string file =
        folder.file("s.yaml",
                    "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: "
                    "llama-2-7b\nrequests: {rate: 3, swing: 0.5, arrivals: gamma, burstiness: 3}\n");
    CHECK_NOTHROW((void)load_scenario(file, {"requests.trace=" + trace}, test::data()));
    CHECK_THROWS_AS((void)load_scenario(file, {"requests.clients=3"}, test::data()), const ConfigError&);
}

TEST_CASE("serving: what would take for ever is refused: faults and looks at the load many times per second") {
    const auto said = [](const char* engine) {
        return refusal(
            fmt::format("orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: dgx-h100}}\nmodel: "
                        "llama-2-7b\nengine: {}\n",
                        engine));
    };
    const auto faults = [&](const char* mtbf) {
        return said(
            fmt::format("{{}}\nfaults: {{processes: [{{component: replica, kind: fail-stop, mtbf: {}}}]}}", mtbf)
                .c_str());
    };
    CHECK(faults("1 ms").find("test.yaml:6:22: error: 'mtbf' of faults in serving") != std::string::npos);
    CHECK(faults("1 s").empty());
    CHECK(said("{autoscale: {target: 1, interval: 1 ms}}").find("'interval' must be between 1 s") != std::string::npos);
    CHECK(said("{autoscale: {target: 1, interval: 1 s}}").empty());
}

TEST_CASE("serving: sixty-five thousand replicas are set up") {
    const Scenario s = test::scenario(
        "orrery: 1\nkind: serving\ncluster: {nodes: 8192, node: dgx-h100}\nmodel: llama-2-7b\n"
        "engine: {replicas: 65536}\nrequests: {count: 5}\n");
    CHECK(run_scenario(s, test::model_cache(), {}).summary.find("requests")->value == 5);
}

TEST_CASE(
    "serving: a pool begins at a node where its replicas fill some, and at a share of one where they fit into it") {
    PhaseSpec phase;
    phase.tensor = 8;
    CHECK(pool_begin(phase, 0, 8) == 0);
    CHECK(pool_begin(phase, 4, 8) == 8);
    phase.pipeline = 2;  // two nodes per replica
    CHECK(pool_begin(phase, 9, 8) == 16);
    phase = {};
    phase.tensor = 4;
    CHECK(pool_begin(phase, 5, 8) == 8);
    CHECK(pool_begin(phase, 1, 8) == 4);
    phase.pipeline = 3;  // twelve GPUs: its stages do not lie across nodes
    CHECK(pool_begin(phase, 2, 8) == 4);
    phase = {};
    phase.tensor = 6;  // no share of a node of eight: wherever the others end
    CHECK(pool_begin(phase, 5, 8) == 5);
}

TEST_CASE("serving: a replica that fits into a node does not lie across two behind a pool that leaves half of one") {
    const auto tpot = [](const char* prefill) {
        const std::string text = fmt::format(R"(orrery: 1
kind: serving
cluster: {{nodes: 2, node: dgx-h100}}
model: llama-3-70b
engine:
  prefill: {{replicas: 1, tensor: {}}}
  decode: {{replicas: 1, tensor: 8}}
requests: {{count: 8, rate: 1, prompt: {{mean: 512}}, output: {{mean: 64}}}}
)",
                                             prefill);
        const Scenario scenario = read_scenario(parse_yaml(text, "s.yaml"), "s", test::data());
        return run_scenario(scenario, test::model_cache(), {}).summary.find("tpot_s.mean")->value;
    };
    // The decode replica has a node of its own either way.
    CHECK(tpot("4") == doctest::Approx(tpot("8")).epsilon(0.01));
}

TEST_CASE("serving: a summary in which nothing was measured says so") {
    const RunOutput out =
        run_scenario(test::scenario("orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\n"
                                    "model: llama-2-7b\nrequests: {count: 5}\nmeasure: {from: 1000 s}\n"),
                     test::model_cache(), {});
    CHECK(out.summary.find("requests")->value == 0);
    CHECK(std::any_of(out.summary.notes.begin(), out.summary.notes.end(),
                      [](const std::string& note) { return note.rfind("warning: no request", 0) == 0; }));
}

TEST_CASE("serving: the table of requests has each of them once, and adds up to the summary") {
    const Scenario s = load_scenario(std::string(ORRERY_SOURCE_DIR) + "/scenarios/serving/failing-replica.yaml",
                                     {"measure.from=0 s", "engine.max_context=4096", "faults.retries=0"}, test::data());
    RunOptions options;
    options.requests = true;
    const RunOutput out = run_scenario(s, test::model_cache(), options);
    REQUIRE(out.requests.size() == 5000);
    std::map<Ending, double> endings;
    std::vector<bool> seen(5000);
    double ttft = 0;
    for (const RequestRow& row : out.requests) {
        ++endings[row.ending];
        CHECK(!seen.at(row.id));
        seen[row.id] = true;
        ttft += row.ending == Ending::finished ? row.ttft : 0;
        CHECK((row.ending != Ending::finished || (row.output > 0 && row.e2e <= 20)));
        CHECK((row.ending != Ending::timed_out || row.e2e == doctest::Approx(20)));
        CHECK((row.ending != Ending::refused || row.output == 0));
    }
    const auto value = [&](const char* name) { return out.summary.find(name)->value; };
    CHECK(endings[Ending::finished] == value("requests"));
    CHECK(endings[Ending::refused] == value("requests_refused"));
    CHECK(endings[Ending::timed_out] == value("requests_timed_out"));
    CHECK(endings[Ending::failed] == value("requests_failed"));
    for (const Ending ending : {Ending::finished, Ending::refused, Ending::timed_out, Ending::failed}) {
        CHECK(endings[ending] > 0);
    }
    CHECK(ttft / value("requests") == doctest::Approx(value("ttft_s.mean")).epsilon(1e-5));
    const std::string csv = requests_csv(out.requests, false);
    CHECK(std::count(csv.begin(), csv.end(), '\n') == 5001);
    CHECK(csv.rfind("request,arrival_s,ending,prompt,output,ttft_s,tpot_s,e2e_s,retries\n0,", 0) == 0);
}

TEST_CASE("serving: adapters show in the table of requests, in their lifelines and as counters of their replica") {
    const Folder folder;
    const std::string scenario = std::string(ORRERY_SOURCE_DIR) + "/scenarios/serving/adapters-7b.yaml";
    const Outcome ran = orrery_command(fmt::format("run {} --set requests.count=200 --quiet --requests {} --trace {}",
                                                   scenario, folder.file("r.csv"), folder.file("t.json")));
    REQUIRE_MESSAGE(ran.code == 0, ran.text);
    CHECK(read(folder.file("r.csv"))
              .rfind("request,arrival_s,ending,prompt,output,ttft_s,tpot_s,e2e_s,retries,adapter\n", 0) == 0);
    RunOptions options;
    options.timeline = options.requests = true;
    const RunOutput out =
        run_scenario(load_scenario(scenario, {"requests.count=200"}, test::data()), test::model_cache(), options);
    std::map<std::uint64_t, double> waited;  // us by request
    std::map<std::uint64_t, std::string> named;
    for (const Lifeline& part : out.timeline.lifelines) {
        if (part.phase.rfind("adapter ", 0) == 0) {
            waited[part.id] += part.duration_us;
            named[part.id] = part.phase;
        }
    }
    double sum = 0;
    for (const RequestRow& row : out.requests) {
        CHECK(row.adapter > 0);
        sum += waited[row.id];
        CHECK((named[row.id].empty() || named[row.id] == fmt::format("adapter {}", row.adapter)));
    }
    CHECK(sum * 1e-6 == doctest::Approx(200 * out.summary.find("adapter_wait_s.mean")->value));
    double most = 0;
    double loads = 0;
    double coming = 0;
    for (const CounterPoint& point : out.timeline.counters) {
        if (point.name == "adapters coming") {
            loads += std::max(0.0, point.value - coming);
            coming = point.value;
        } else if (point.name == "adapters here") {
            most = std::max(most, point.value);
        }
    }
    CHECK(most == 16);
    CHECK(coming == 0);
    CHECK(loads == out.summary.find("adapter_loads")->value);
}

TEST_CASE("serving: a damaged scenario runs, or is refused with its place or as infeasible") {
    const std::vector<std::string> paths = serving_scenarios();
    const std::vector<std::string> values = {
        "0",     "-1",      "1e300",  "nan", "",      "[]",    "{a: 1}", "1",    "0.5",    "0 s",    "1 ps",
        "9e6 s", "0 B",     "1 TB",   "0 %", "100 %", "0 B/s", "1 GB/s", "true", "closed", "static", "orca",
        "fair",  "session", "prefix", "fp8", "int4",  "gamma", "64",     "1000", "65536",  "1e-6"};
    RandomStream random(5, "damage");
    int ran = 0;
    for (int round = 0; round < 150 * test::scale(); ++round) {
        const std::string& path = paths[random.below(paths.size())];
        YamlNode tree = load_yaml(path);
        apply_override(tree, "requests.count=20");
        // A value somewhere in the tree becomes another.
        YamlNode* node = &tree;
        while (node->kind == YamlNode::Kind::map && !node->entries.empty()) {
            node = &node->entries[random.below(node->entries.size())].value;
        }
        node->kind = YamlNode::Kind::scalar;
        node->scalar = values[random.below(values.size())];
        try {
            const RunOutput out = run_scenario(read_scenario(tree, "damaged", test::data()), test::model_cache(), {});
            CHECK((out.summary.find("e2e_s.mean")->measured() || out.summary.find("requests")->value == 0));
            ++ran;
        } catch (const ConfigError& error) {
            const std::string said = error.what();
            CHECK_MESSAGE((said.find(".yaml:") != std::string::npos || said.find(":1:1: error") != std::string::npos),
                          said);
        } catch (const InfeasibleError&) {
        }
    }
    CHECK(ran >= 4 * test::scale());
}

TEST_CASE("serving: replicas are busy for no more than the whole time, though their last iteration goes on") {
    // Every request gives up within the first iteration.
    const Summary summary =
        run_scenario(
            scenario(
                "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: {preset: llama-2-7b, layers: "
                "4}\nengine: {tensor: 2, scheduler: {kind: chunked-prefill, token_budget: 2048, max_sequences: "
                "512}}\nrequests: {arrivals: at-once, count: 600, prompt: 300, output: 60, timeout: 0.001 s}\n"),
            model_cache(), {})
            .summary;
    CHECK(summary.find("busy_fraction")->value == doctest::Approx(1));
}
