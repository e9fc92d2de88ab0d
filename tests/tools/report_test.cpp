// Reports and charts: the page draws itself in a browser, with the numbers of the JSON and nothing from a network.

#include "tools/report/report.hpp"
#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"
#include "tools/report/over_time.hpp"
#include "tools/report/svg.hpp"
#include "workloads/serving/metrics/outcome.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <regex>
#include <set>

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

// What runs in a browser at the widths of a phone, a tablet and a screen; `measure(document, width)` returns what is wrong, in words.
std::string measured(const Folder& folder, const std::string& page, const std::string& measure) {
    const std::string frames = folder.file("frames.html", fmt::format(R"(<!doctype html><body><script>
const measure = {};
const found = {{}};
for (const width of [360, 768, 1440]) {{
    const frame = document.createElement("iframe");
    frame.width = width; frame.height = 2000; frame.src = "{}";
    frame.onload = () => setTimeout(() => {{
        for (const one of frame.contentDocument.querySelectorAll("details")) one.open = true;
        setTimeout(() => {{
            found[width] = measure(frame.contentDocument, width).slice(0, 5).map((text) => width + ": " + text).join("; ");
            if (Object.keys(found).length === 3) document.body.dataset.wrong = "[" + Object.values(found).filter(Boolean).join("; ") + "]";
        }}, 500);
    }}, 500);
    document.body.append(frame);
}}
</script>)",
                                                                      measure, "file://" + page));
    const Outcome out = shell_command(
        fmt::format("timeout 60 chromium --headless --no-sandbox --disable-gpu --allow-file-access-from-files "
                    "--virtual-time-budget=30000 --user-data-dir={} --dump-dom file://{} 2>/dev/null",
                    folder.file("browser"), frames));
    const auto from = out.text.find("data-wrong=\"[");
    return from == std::string::npos ? "no answer: " + out.text.substr(0, 300)
                                     : out.text.substr(from + 13, out.text.find("]\"", from) - from - 13);
}

// Nothing of a report reaches beyond its page, but what scrolls by itself; tables with few columns need not, and no word is cut.
void check_fits(const Folder& folder, const std::string& page) {
    const std::string wrong = measured(folder, page, R"((document, width) => {
    const wrong = [];
    if (document.documentElement.scrollWidth > width) wrong.push("the page is " + document.documentElement.scrollWidth + " wide");
    for (const one of document.querySelectorAll("main *")) {
        const box = one.getBoundingClientRect();
        if (box.width > 0 && box.right > width + 1 && !one.closest(".wide, .scroll")) wrong.push(one.tagName + " " + one.className + " ends at " + box.right);
        if (one.children.length === 0 && one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0 && !one.matches(".clip, canvas, option, select, input") && getComputedStyle(one).display !== "inline")
            wrong.push("text is cut: " + one.textContent.slice(0, 40));
    }
    for (const one of document.querySelectorAll("table"))
        if (one.rows[0].cells.length <= (width < 600 ? 4 : 6) || one.matches(".quantiles")) {
            const host = one.parentElement;
            if (host.scrollWidth > host.clientWidth + 1 && !host.matches(".scroll") && !one.querySelector(".heat")) wrong.push("a table of " + one.rows[0].cells.length + " columns runs off: " + one.rows[0].textContent);
        }
    return wrong;
})");
    CHECK_MESSAGE(wrong.empty(), page << ": " << wrong);
}

// The texts of charts stand inside them and not on each other.
void check_charts(const Folder& folder, const std::vector<std::string>& charts) {
    if (shell_command("command -v chromium").code != 0) {
        return;
    }
    std::string body;
    for (const std::string& svg : charts) {
        body += "<div>" + svg + "</div>";
    }
    const std::string page = folder.file(
        "charts.html", "<!doctype html><meta charset='utf-8'><body style='margin:0'><main>" + body + "</main>");
    const std::string wrong = measured(folder, page, R"((document, width) => {
    const wrong = [];
    if (document.documentElement.scrollWidth > width) wrong.push("the page is " + document.documentElement.scrollWidth + " wide");
    for (const svg of document.querySelectorAll("svg")) {
        const all = svg.getBoundingClientRect(), name = svg.getAttribute("aria-label");
        const texts = [...svg.querySelectorAll("text")].map((one) => [one.getBoundingClientRect(), one.textContent]);
        for (const [box, text] of texts)
            if (box.left < all.left - 1 || box.right > all.right + 1 || box.top < all.top - 1 || box.bottom > all.bottom + 1) wrong.push(name + ": outside: " + text);
        for (let i = 0; i < texts.length && texts.length < 500; ++i)
            for (let j = 0; j < i; ++j) {
                const [a, b] = [texts[i][0], texts[j][0]];
                const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left), high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
                if (wide > 1 && high > a.height / 3) wrong.push(name + ": on each other: " + texts[i][1] + " and " + texts[j][1]);
            }
    }
    return wrong;
})");
    CHECK_MESSAGE(wrong.empty(), wrong);
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
    check_fits(folder, folder.file("sweep.html"));
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
    check_fits(folder, folder.file("check.html"));
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
        check_fits(folder, folder.file("validate.html"));
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
        {"cluster/training-beside-serving.yaml", {"What would help"}},
        {"faults/gpu-fail-stop.yaml", {"Where the time of the campaign goes", "What would change goodput"}},
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
    std::vector<std::string> charts;
    for (const std::string& arguments :
         {"breakdown " + kBase, "timeline " + kBase, "fabric " + kBase, "pareto " + db,
          "curves " + db + " --x plan.tensor --y mfu --by plan.zero",
          "curves " + db + " --x status --y mfu --by plan.zero",
          "timeline " + std::string(ORRERY_SOURCE_DIR) + "/scenarios/replay/two-layer-step.yaml",
          "fabric " + std::string(ORRERY_SOURCE_DIR) + "/scenarios/network/dragonfly-adaptive.yaml",
          "heat " + db + " --x plan.tensor --y plan.zero --value mfu --where 'plan.tensor > 1'"}) {
        const std::string svg = folder.file("chart.svg");
        const Outcome out = orrery_command(fmt::format("plot {} --output {}", arguments, svg));
        CHECK_MESSAGE(out.code == 0, arguments << out.text);
        CHECK(read(svg).rfind("<svg ", 0) == 0);
        // It follows the page or viewer into the dark; a report has colours of its own.
        CHECK(read(svg).find("prefers-color-scheme: dark") != std::string::npos);
        charts.push_back(read(svg));
        CHECK((!python ||
               shell_command("python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' " + svg).code == 0));
    }
    check_charts(folder, charts);
    CHECK(orrery_command("plot heat " + db).text.find("needs --x COLUMN") != std::string::npos);
    CHECK(orrery_command("plot pie " + db).text.find("unknown chart 'pie'") != std::string::npos);
    // An axis of words has no in-between: bars, each with its value.
    const Outcome bars = orrery_command("plot curves " + db + " --x status --y mfu --by plan.zero");
    CHECK(bars.code == 0);
    CHECK(bars.text.find(">done</text>") != std::string::npos);
}

TEST_CASE("a chart over time ends, with a mark and a sentence, where the timeline was cut") {
    // Requests last 100 s; iterations of 0.1 ms fill the records after 20 s.
    Timeline timeline;
    timeline.lifelines.push_back({"requests", "decode", 1, 0, 0, 100e6});
    for (std::size_t i = 1; i <= kMostIterationRecords; ++i) {
        timeline.counters.push_back({"cache blocks", 0, 100.0 * static_cast<double>(i), 50});
    }
    const auto grid = nlohmann::json::parse(over_time_block(timeline));
    const auto& cache = grid["blocks"][1];
    REQUIRE(cache["title"] == "Cache");
    REQUIRE(cache["series"].size() == 2);
    for (const auto& point : cache["series"][0]["points"]) {
        CHECK(point[0].get<double>() < 20);
        CHECK(point[1].get<double>() > 49);
    }
    CHECK(cache["series"][1]["points"][0][0].get<double>() == doctest::Approx(20));
    CHECK(cache["note"].get<std::string>().find("first 200000 iterations and ends at 20") != std::string::npos);
    const auto& queue = grid["blocks"][0];
    CHECK(queue["series"].size() == 2);
    CHECK(queue["series"][0]["points"].size() == 120);
}

TEST_CASE(
    "a sweep is judged by the headline of its kind, without its overloaded points, and says which have no results") {
    ResultTable table;
    table.columns = {"point", "requests.rate", "status", "ttft_s.mean", "e2e_s.mean", "overloaded", "message"};
    const auto done = [&](double point, double ttft, double e2e, double overloaded) {
        table.rows.push_back({point, point, std::string("done"), ttft, e2e, overloaded, Cell()});
    };
    done(0, 0.1, 3, 0);
    done(1, 0.2, 2, 0);
    done(2, 0.01, 0.5, 1);
    table.rows.push_back({3.0, 3.0, std::string("infeasible"), Cell(), Cell(), Cell(), std::string("out of memory")});
    const std::string page =
        sweep_report("sweep", table, {"requests.rate"}, {"ttft_s.mean", "e2e_s.mean", "overloaded"});
    CHECK(page.find("Best e2e_s.mean: 2 at point 1") != std::string::npos);
    CHECK(page.find("\"lead\":\"e2e_s.mean\"") != std::string::npos);
    CHECK(page.find("Points without results") != std::string::npos);
    // Heads of columns say what metrics mean.
    CHECK(page.find("\"ttft_s.mean\":\"Time to first token") != std::string::npos);
    const Folder folder;
    const std::string dom = drawn(folder, folder.file("sweep.html", page));
    CHECK((dom.empty() || dom.find(">overloaded</td>") != std::string::npos));
}

TEST_CASE(
    "bars of memory end at the GPU's capacity, and those of what would help at what one thing alone could bring") {
    const Folder folder;
    const std::string page = folder.file("report.html");
    REQUIRE(orrery_command("run " + folder.file("small.yaml", kSmallTraining) + " --quiet --report " + page).code == 0);
    const std::string text = read(page);
    CHECK(text.find("\"capacity\":{\"value\":") != std::string::npos);
    CHECK(text.find("bound by that alone: 9.1 %") != std::string::npos);
    const std::string dom = drawn(folder, page);
    CHECK((dom.empty() || dom.find("class=\"limit\"") != std::string::npos));
}

TEST_CASE("axes of charts have names and numbers for people") {
    CHECK(axis_name("iteration_time_s") == "iteration time");
    CHECK(axis_name("memory_per_gpu_gib") == "memory per GPU, GiB");
    CHECK(axis_name("ttft_s.p99") == "TTFT, p99");
    CHECK(axis_name("tokens_per_s") == "tokens per s");
    CHECK(axis_name("plan.tensor") == "plan.tensor");
    CHECK(axis_number("tokens_per_s", 598400) == "598,400");
    CHECK(axis_number("iteration_time_s", 0.0125) == "12.5 ms");
    CHECK(axis_number("mfu", 0.375) == "0.375");
}

TEST_CASE("a Clos given as a graph is drawn by level, with the names of its switches") {
    const Folder folder;
    const std::string file =
        folder.file("clos.yaml",
                    "orrery: 1\nkind: network\ncluster: {hosts: 4, fabric: {kind: graph, link: 10 GB/s, switches: "
                    "[{name: leaf-a, nodes: "
                    "2}, {name: leaf-b, nodes: 2}, {name: spine-a}, {name: spine-b}], links: [{from: leaf-a, to: "
                    "spine-a, link: 10 GB/s}, {from: leaf-a, to: spine-b, link: 10 GB/s}, {from: leaf-b, to: spine-a, "
                    "link: 10 GB/s}, {from: leaf-b, to: spine-b, link: 10 GB/s}]}}\ntraffic: {pattern: permutation, "
                    "size: 1 MB}\nnetwork: {fidelity: fluid}\n");
    const Outcome out = orrery_command("plot fabric " + file);
    REQUIRE(out.code == 0);
    std::map<std::string, std::set<std::string>> heights;  // of the switches, by level
    const std::regex circle("cy=\"([0-9.]+)\" r=\"6.0\" fill=\"[^\"]*\"><title>(leaf|spine)-");
    for (auto it = std::sregex_iterator(out.text.begin(), out.text.end(), circle); it != std::sregex_iterator(); ++it) {
        heights[(*it)[2]].insert((*it)[1]);
    }
    REQUIRE(heights["leaf"].size() == 1);
    REQUIRE(heights["spine"].size() == 1);
    CHECK(std::stod(*heights["spine"].begin()) < std::stod(*heights["leaf"].begin()));
    CHECK(out.text.find(">spine-b</text>") != std::string::npos);
}
