// Reports and charts: the page draws itself in a browser, with the numbers of the JSON and nothing from a network.

#include "tests/support/command.hpp"
#include "tests/support/support.hpp"
#include "tools/report/svg.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <regex>

using namespace orrery;
using namespace orrery::test;

namespace {

const std::string kBase = std::string(ORRERY_SOURCE_DIR) + "/scenarios/training/gpt3-175b-1024xA100.yaml";

// The page after its scripts ran, with the console's lines; empty without a browser.
std::string drawn(const Folder& folder, const std::string& page) {
    if (shell_command("command -v chromium").code != 0) {
        MESSAGE("skipped: no chromium here to open reports with");
        return "";
    }
    const std::string options =
        "--headless --no-sandbox --disable-gpu --enable-logging=stderr --v=0 --virtual-time-budget=5000";
    const std::string dom = folder.file("dom.txt");
    const std::string log = folder.file("log.txt");
    (void)shell_command(fmt::format("timeout 60 chromium {} --user-data-dir={} --dump-dom file://{} > {} 2> {}",
                                    options, folder.file("browser"), page, dom, log));
    CHECK_MESSAGE(read(log).find("CONSOLE") == std::string::npos, read(log));
    const std::string text = read(dom);
    CHECK_MESSAGE(text.find("data-ready=\"yes\"") != std::string::npos, text.substr(0, 400));
    CHECK(text.find("data-errors=\"\"") != std::string::npos);
    return text;
}

// Values by name of what the page shows.
std::map<std::string, double> shown(const std::string& dom, const std::string& attribute) {
    std::map<std::string, double> out;
    const std::regex pattern("data-" + attribute + "=\"([^\"]*)\" data-value=\"([^\"]*)\"");
    for (auto it = std::sregex_iterator(dom.begin(), dom.end(), pattern); it != std::sregex_iterator(); ++it) {
        out[(*it)[1]] = std::stod((*it)[2]);
    }
    return out;
}

// The page in frames as wide as a phone, a tablet and a screen: nothing reaches beyond, but what scrolls by itself.
void check_fits(const Folder& folder, const std::string& page) {
    const std::string frames = folder.file("frames.html", fmt::format(R"(<!doctype html><body><script>
const found = {{}};
for (const width of [360, 768, 1440]) {{
    const frame = document.createElement("iframe");
    frame.width = width; frame.height = 2000; frame.src = "{}";
    frame.onload = () => setTimeout(() => {{
        found[width] = frame.contentDocument.documentElement.scrollWidth <= width;
        if (Object.keys(found).length === 3) document.body.dataset.fits = Object.values(found).join(" ");
    }}, 500);
    document.body.append(frame);
}}
</script>)",
                                                                      "file://" + page));
    const Outcome out = shell_command(
        fmt::format("timeout 60 chromium --headless --no-sandbox --disable-gpu --allow-file-access-from-files "
                    "--virtual-time-budget=30000 --user-data-dir={} --dump-dom file://{} 2>/dev/null",
                    folder.file("browser"), frames));
    CHECK_MESSAGE(out.text.find("data-fits=\"true true true\"") != std::string::npos, out.text.substr(0, 300));
}

void check_self_contained(const std::string& html) {
    CHECK(html.find("<script src") == std::string::npos);
    CHECK(html.find("<link rel=\"stylesheet\"") == std::string::npos);
    CHECK(html.find("default-src 'none'") != std::string::npos);
}

}  // namespace

TEST_CASE("a run's report shows the numbers of its JSON, says what limits the run, and draws without errors") {
    const Folder folder;
    const std::string page = folder.file("run.html");
    REQUIRE(orrery_command(fmt::format("run {} --quiet --report {} --json {}", kBase, page, folder.file("run.json")))
                .code == 0);
    const std::string html = read(page);
    check_self_contained(html);
    CHECK(html.find("limits this run") != std::string::npos);
    const std::string dom = drawn(folder, page);
    if (dom.empty()) {
        return;
    }
    const auto summary = nlohmann::json::parse(read(folder.file("run.json")));
    const auto tiles = shown(dom, "metric");
    std::size_t count = 0;
    for (const auto& [name, metric] : summary["metrics"].items()) {
        if (name != "events") {
            CHECK_MESSAGE(tiles.at(name) == metric["value"].get<double>(), name);
            ++count;
        }
    }
    CHECK(tiles.size() == count);
    const auto parts = shown(dom, "part");
    for (const auto& [name, seconds] : summary["breakdown"].items()) {
        CHECK_MESSAGE(parts.contains(name), name);
    }
    for (const char* block : {"tiles", "bars", "table", "svg", "lines", "details"}) {
        CHECK_MESSAGE(dom.find(fmt::format("data-block=\"{}\"", block)) != std::string::npos, block);
    }
    CHECK(dom.find("gpu-benches") != std::string::npos);  // a source
}

TEST_CASE("fabric: a node reaches one leaf of each rail of its group, and a leaf every spine") {
    const auto lines = [](const std::vector<FabricLayer>& layers) {
        const std::string svg = fabric_svg(layers, {});
        std::size_t count = 0;
        for (auto at = svg.find("<line"); at != std::string::npos; at = svg.find("<line", at + 1)) {
            ++count;
        }
        return count;
    };
    const FabricLayer spines = {"spine switches", 2, "", 0, 1, {}};
    // Two groups of two nodes and two rails: four leaves, two links a node.
    CHECK(lines({{"nodes", 4, "", 0, 2, {}}, {"leaf switches", 4, "", 0, 1, {}}}) == 8);
    CHECK(lines({{"nodes", 4, "", 0, 2, {}}, {"leaf switches", 4, "", 0, 1, {}}, spines}) == 16);
    // One rail: a node hangs on one leaf.
    CHECK(lines({{"hosts", 8, "", 0, 2, {}}, {"leaf switches", 2, "", 0, 1, {}}}) == 8);
}

TEST_CASE("reports of sweeps, baselines, validation and messages draw without errors") {
    const Folder folder;
    (void)folder.file("base.yaml", kSmallTraining);
    const std::string sweep = folder.file("sweep.yaml",
                                          "orrery: 1\nkind: sweep\nbase: base.yaml\naxes: {plan.tensor: [1, 2, 4, "
                                          "8], plan.zero: [0, 1]}\nderive: {plan.data: 8 / plan.tensor}\n");
    const std::string db = folder.file("db");
    REQUIRE(orrery_command(fmt::format("sweep {} --db {} --report {}", sweep, db, folder.file("sweep.html"))).code ==
            0);
    check_self_contained(read(folder.file("sweep.html")));
    const std::string dom = drawn(folder, folder.file("sweep.html"));
    if (dom.empty()) {
        return;
    }
    const auto rows = nlohmann::json::parse(orrery_command("table --format json " + db).text);
    double best = 1e300;
    for (const auto& row : rows) {
        best = std::min(best, row["iteration_time_s"].get<double>());
    }
    CHECK(shown(dom, "metric").at("best iteration_time_s") == best);
    CHECK(shown(dom, "metric").at("points") == 8);

    // A name that would end the script stays a name.
    const std::string odd = folder.file("odd.yaml", kSmallTraining);
    REQUIRE(orrery_command(
                fmt::format("run {} --set 'model.name=</script><b>' --quiet --report {}", odd, folder.file("odd.html")))
                .code == 0);
    CHECK(drawn(folder, folder.file("odd.html")).find(">&lt;/script&gt;&lt;b&gt;</td>") != std::string::npos);

    REQUIRE(orrery_command(fmt::format("check {}/baselines/*.yaml --quiet --report {}", ORRERY_SOURCE_DIR,
                                       folder.file("check.html")))
                .code == 0);
    CHECK(drawn(folder, folder.file("check.html")).find("Every baseline holds") != std::string::npos);
    // What fell is drawn to the left of what rose.
    const std::string moved = folder.file("moved.yaml",
                                          "orrery-baseline: 1\nscenario: base.yaml\nmetrics:\n"
                                          "  mfu: {value: 0.001, tolerance: 1 %}\n"
                                          "  iteration_time_s: {value: 1000, tolerance: 1 %}\n");
    CHECK(orrery_command(fmt::format("check {} --quiet --report {}", moved, folder.file("moved.html"))).code < 2);
    const std::string bars = drawn(folder, folder.file("moved.html"));
    const auto offset = [&](const std::string& part) {
        const auto at = bars.find("margin-left:", bars.find("data-part=\"moved: " + part));
        REQUIRE(at != std::string::npos);
        return std::stod(bars.substr(at + 12));
    };
    CHECK(offset("mfu") == 50);
    CHECK(offset("iteration_time_s") < 50);
    for (const auto& [suite, least] : {std::pair{"training", 200}, {"collectives", 200}, {"compute", 100}}) {
        REQUIRE(
            orrery_command(fmt::format("validate {} --quiet --report {}", suite, folder.file("validate.html"))).code ==
            0);
        check_self_contained(read(folder.file("validate.html")));
        const std::string validation = drawn(folder, folder.file("validate.html"));
        CHECK(shown(validation, "metric").at("points") > least);
        CHECK(validation.find("data-block=\"compare\"") != std::string::npos);
        CHECK(validation.find("median absolute error, %") != std::string::npos);
    }
    const std::string ring = folder.file("ring.yaml",
                                         "orrery: 1\nkind: collective\ncluster: {hosts: 16, fabric: {link: 100 Gbps}}\n"
                                         "collective: {op: all-reduce, size: 1 MiB, algorithm: ring}\n");
    REQUIRE(orrery_command(fmt::format("run {} --quiet --report {}", ring, folder.file("ring.html"))).code == 0);
    CHECK(drawn(folder, folder.file("ring.html")).find("data-block=\"svg\"") != std::string::npos);
}

TEST_CASE("reports of every kind of run say what limits it, with the numbers of the JSON") {
    const Folder folder;
    const std::string scenarios = std::string(ORRERY_SOURCE_DIR) + "/scenarios/";
    const std::map<std::string, std::vector<std::string>> wanted = {
        {"network/permutation-4096.yaml", {"The slowest message", "Its path, while it was under way"}},
        {"network/packet-incast-64.yaml", {"queues and congestion control", "pairs of runs with equal seeds"}},
        {"collective/ring-4096.yaml", {"steps of the slowest pair of neighbours"}},
        {"replay/two-layer-step.yaml", {"gemm_backward", "stream 7"}},
        {"training/gpt3-175b-1024xA100.yaml", {"Memory by kind", "activations"}},
        {"serving/llama-2-70b-conversations.yaml --set requests.count=300",
         {"queue before the first iteration", "How latencies are distributed", "limit 2 s", "decodes alone",
          "Queue and batch", "requests per second"}}};
    for (const auto& [arguments, texts] : wanted) {
        const std::string page = folder.file("run.html");
        const Outcome out = orrery_command(
            fmt::format("run {}{} --quiet --report {} --json {}", scenarios, arguments, page, folder.file("run.json")));
        REQUIRE_MESSAGE(out.code == 0, out.text);
        check_self_contained(read(page));
        const std::string html = read(page);
        CHECK_MESSAGE(html.find("limits this run") != std::string::npos, arguments);
        for (const std::string& text : texts) {
            CHECK_MESSAGE(html.find(text) != std::string::npos, arguments << ": " << text);
        }
        const std::string dom = drawn(folder, page);
        if (dom.empty()) {
            continue;
        }
        check_fits(folder, page);
        const auto summary = nlohmann::json::parse(read(folder.file("run.json")));
        const auto tiles = shown(dom, "metric");
        for (const auto& [name, metric] : summary["metrics"].items()) {
            if (metric.contains("value")) {
                CHECK_MESSAGE((name == "events" || tiles.at(name) == metric["value"].get<double>()), name);
                continue;
            }
            for (const auto& [quantile, one] : metric.items()) {
                CHECK_MESSAGE(tiles.at(name + "." + quantile) == one["value"].get<double>(), name);
            }
        }
    }
}

TEST_CASE("plot writes charts as SVG that are well-formed, and says what a chart needs") {
    const Folder folder;
    (void)folder.file("base.yaml", kSmallTraining);
    const std::string sweep = folder.file("sweep.yaml",
                                          "orrery: 1\nkind: sweep\nbase: base.yaml\naxes: {plan.tensor: [1, 2, 4, "
                                          "8], plan.zero: [0, 1]}\nderive: {plan.data: 8 / plan.tensor}\n");
    const std::string db = folder.file("db");
    REQUIRE(orrery_command(fmt::format("sweep {} --db {}", sweep, db)).code == 0);
    const bool python = shell_command("python3 -c ''").code == 0;
    for (const std::string& arguments :
         {"breakdown " + kBase, "timeline " + kBase, "fabric " + kBase, "pareto " + db,
          "curves " + db + " --x plan.tensor --y mfu --by plan.zero",
          "heat " + db + " --x plan.tensor --y plan.zero --value mfu --where 'plan.tensor > 1'"}) {
        const std::string svg = folder.file("chart.svg");
        const Outcome out = orrery_command(fmt::format("plot {} --output {}", arguments, svg));
        CHECK_MESSAGE(out.code == 0, arguments << out.text);
        CHECK(read(svg).rfind("<svg ", 0) == 0);
        CHECK((!python ||
               shell_command("python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' " + svg).code == 0));
    }
    CHECK(orrery_command("plot heat " + db).text.find("needs --x COLUMN") != std::string::npos);
    CHECK(orrery_command("plot pie " + db).text.find("unknown chart 'pie'") != std::string::npos);
    // An axis of words has no in-between: bars, each with its value.
    const Outcome bars = orrery_command("plot curves " + db + " --x status --y mfu --by plan.zero");
    CHECK(bars.code == 0);
    CHECK(bars.text.find(">done</text>") != std::string::npos);
}
