// Graphs that other tools wrote as fabrics.

#include "sim/network/fabric.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/scenario.hpp"
#include "workloads/imports/importer.hpp"

#include <doctest/doctest.h>

using namespace orrery;
using namespace orrery::test;

namespace {

Imported imported(const std::string& format, const std::string& text, std::map<std::string, std::string> options = {}) {
    return import_file(format, ImportInput::of_bytes("input", text, std::move(options)));
}

Fabric fabric_of(const Imported& imported) {
    const Scenario s = read_scenario(parse_yaml(imported.text, "imported.yaml"), "imported", data());
    return Fabric(shape_of(s.cluster, s.cluster_mark));
}

std::string refused(const std::string& format, const std::string& text,
                    std::map<std::string, std::string> options = {}) {
    return problems_when([&] { return imported(format, text, options); });
}

constexpr const char* kTable = R"(# two leaves, two spines
from,to,rate,latency,count
h0,leaf0,100 Gbps,1 us,
h1,leaf0,100 Gbps,1 us,
h2,leaf1,100 Gbps,1 us,
leaf0,spine0,200 Gbps,2 us,2
leaf1,spine0,200 Gbps,2 us,2
leaf0,spine1,200 Gbps,2 us,
leaf1,spine1,200 Gbps,2 us,
)";

constexpr const char* kGraphMl = R"(<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key attr.name="label" attr.type="string" for="node" id="d0" />
  <key attr.name="type" attr.type="string" for="node" id="d1" />
  <key attr.name="LinkSpeedRaw" attr.type="double" for="edge" id="d2" />
  <key attr.name="Longitude" attr.type="double" for="node" id="d3" />
  <graph edgedefault="EDGES">
    <node id="0"><data key="d0">a</data><data key="d1">switch</data><data key="d3">8.5</data></node>
    <node id="1"><data key="d0">b</data><data key="d1">switch</data></node>
    <node id="2"><data key="d0">x</data><data key="d1">host</data></node>
    <node id="3"><data key="d0">x</data><data key="d1">host</data></node>
    <edge source="0" target="1"><data key="d2">10000000000.0</data></edge>
    <edge source="2" target="0"><data key="d2">40000000000.0</data></edge>
    <edge source="3" target="1"><data key="d2">40000000000.0</data></edge>
  </graph>
</graphml>
)";

constexpr const char* kInfra = R"(infrastructure:
  name: two tiers
  devices:
    - {name: server, components: [{name: xpu, choice: xpu, count: 4}, {name: nic, choice: nic, count: 2}]}
    - {name: switch, components: [{name: asic, choice: switch, count: 1}, {name: port, choice: port, count: 8}]}
  links:
    - {name: eth, physical: {bandwidth: {gigabits_per_second: 200}, latency: {us: 1}}}
    - {name: up, physical: {bandwidth: {gigabits_per_second: 400}, latency: {ns: 700}}}
  instances:
    - {name: host, device: server, count: 4}
    - {name: leaf, device: switch, count: 2}
    - {name: spine, device: switch, count: 2}
  edges:
    - {ep1: {instance: "host[0:2]", component: "nic[0]"}, ep2: {instance: "leaf[0]", component: "port[0:2]"}, scheme: one2one, link: eth}
    - {ep1: {instance: "host[2:4]", component: "nic[0]"}, ep2: {instance: "leaf[1]", component: "port[0:2]"}, scheme: one2one, link: eth}
    - {ep1: {instance: "leaf", component: "asic"}, ep2: {instance: "spine", component: "asic"}, scheme: many2many, link: up}
)";

std::string replaced(std::string text, const std::string& what, const std::string& with) {
    text.replace(text.find(what), what.size(), with);
    return text;
}

}  // namespace

TEST_CASE("a table of links becomes a fabric: vertices with one link are its hosts") {
    const Imported out = imported("graph-csv", kTable);
    const Fabric fabric = fabric_of(out);
    CHECK(fabric.gpus() == 3);
    CHECK(fabric.topology().switches() == 4);
    CHECK(fabric.topology().links().size() == 2 * (2 + 2 + 1 + 1));
    CHECK(fabric.topology().links()[0].rate == doctest::Approx(25e9));
    // Host to host over one spine: two links of hosts, two between switches.
    CHECK(fabric.route(GpuId(0), GpuId(2), PathChoice::spray, 0).latency == doctest::Approx(2 * 1e-6 + 2 * 2e-6));
    CHECK(out.notes.assumed().size() == 1);
    CHECK(refused("graph-csv", "from,to\na,b\n").find("has no rate (--rate") != std::string::npos);
    CHECK(fabric_of(imported("graph-csv", "from,to\na,s\nb,s\n", {{"rate", "10 GB/s"}})).gpus() == 2);
    CHECK(refused("graph-csv", "from;to\na;b\n").find("no column 'from'") != std::string::npos);
    const std::string all =
        refused("graph-csv", "from,to,gbps,latency_us\na,s,10,1\nb,s,20,1\nc,c,10,1\nd,s,fast,1\ne,s,10,9e9\n");
    CAPTURE(all);
    CHECK(all.find("input:3") != std::string::npos);
    CHECK(all.find("joins 'c' with itself") != std::string::npos);
    CHECK(all.find("'fast' is no rate") != std::string::npos);
    CHECK(all.find("latency '9e9' is out of range") != std::string::npos);
    // Holes in rows, counts that are none, parts without a path, links without a rate: all of it at once, with its lines.
    const std::string holes =
        refused("graph-csv", "from,to,gbps,count\na,s,10,1\nb,s,10\nc,s,10,half\nd,t,10,1\ne,t,,1\n");
    CAPTURE(holes);
    CHECK(holes.find("input:3:1: error: 3 values where the header names 4 columns") != std::string::npos);
    CHECK(holes.find("input:4:1: error: 'count' must be a whole number") != std::string::npos);
    CHECK(holes.find("input:5:1: error: no path from 'a' to 'd'") != std::string::npos);
    CHECK(holes.find("input:6:1: error: the link from 'e' to 't' has no rate") != std::string::npos);
    CHECK(holes.find("is not like those before it") == std::string::npos);
    const std::string columns = refused("graph-csv", "rate\n1 GB/s\n");
    CHECK(columns.find("no column 'from'") != std::string::npos);
    CHECK(columns.find("no column 'to'") != std::string::npos);
}

TEST_CASE("GraphML becomes the same fabric, directed or not") {
    for (const char* direction : {"directed", "undirected"}) {
        CAPTURE(direction);
        const Imported out = imported("graphml", replaced(kGraphMl, "EDGES", direction));
        const Fabric fabric = fabric_of(out);
        CHECK(fabric.gpus() == 2);
        CHECK(fabric.topology().switches() == 2);
        CHECK(fabric.topology().links().size() == 2);
        CHECK(fabric.topology().links()[0].rate == doctest::Approx(10e9 / 8));
        CHECK(out.text.find("link: 5000000000 B/s") != std::string::npos);
        CHECK(out.notes.left_out().contains("attribute longitude of vertices"));
    }
    CHECK(refused("graphml", "<graphml>\n<graph>").find("input:2:1: error: is no XML: ") != std::string::npos);
    CHECK(refused("graphml", "from,to\n").find("input:1:1: error: is no XML: ") != std::string::npos);
    std::string deep = "<graphml>";
    for (int i = 0; i < 100000; ++i) {
        deep += "<a>";
    }
    CHECK(refused("graphml", deep).find("nest deeper") != std::string::npos);
}

TEST_CASE(
    "vertices of GraphML without a label are called by their ids, and edges to nothing are told with their lines") {
    const char* const kLinks =
        "<graphml><key id=\"r\" for=\"edge\" attr.name=\"rate\" attr.type=\"string\"/><graph "
        "edgedefault=\"undirected\">\n<!-- <node id=\"old\"/> -->\n<node id=\"left\"/><node id='right'/>\n<node "
        "id=\"core\"/>\n<edge source=\"left\" target=\"core\"><data key=\"r\">RATE</data></edge>\n<edge "
        "source=\"END\" target=\"core\"><data key=\"r\">10 Gbps</data></edge>\n</graph></graphml>\n";
    const std::string whole = replaced(replaced(kLinks, "RATE", "10 Gbps"), "END", "right");
    CHECK(imported("graphml", whole).text.find("core") != std::string::npos);
    const std::string holes = refused("graphml", replaced(replaced(kLinks, "RATE", "10 Gbps"), "END", "rihgt"));
    CHECK(holes.find(":6:1: error: an edge ends at 'rihgt', which is not among the nodes (did you mean 'right'?)") !=
          std::string::npos);
    const std::string bare = replaced(kLinks, "<data key=\"r\">RATE</data>", "");
    CHECK(refused("graphml", replaced(bare, "END", "right")).find("the link from 'left' to 'core' has no rate") !=
          std::string::npos);
}

TEST_CASE("InfraGraph becomes a fabric: instances that compute are hosts, the others switches") {
    const Imported out = imported("infragraph", kInfra);
    const Fabric fabric = fabric_of(out);
    CHECK(fabric.gpus() == 4);
    CHECK(fabric.topology().switches() == 4);
    CHECK(fabric.topology().links().size() == 2 * 4);
    CHECK(fabric.topology().links()[0].rate == doctest::Approx(50e9));
    CHECK(fabric.route(GpuId(0), GpuId(3), PathChoice::spray, 0).latency == doctest::Approx(2e-6 + 2 * 0.7e-6));
    CHECK(out.text.find("latency: 700 ns}") != std::string::npos);  // as people write it
    CHECK(refused("infragraph", replaced(kInfra, "instance: \"leaf\"", "instance: \"laef\""))
              .find("did you mean 'leaf'?") != std::string::npos);
    CHECK(refused("infragraph", replaced(kInfra, "host[2:4]", "host[2:9]")).find("no slice within 4") !=
          std::string::npos);
    CHECK(refused("infragraph", replaced(kInfra, "nic[0]", "nic[0:2]")).find("joins 4 end points with 2") !=
          std::string::npos);
    CHECK(refused("infragraph", replaced(kInfra, "link: up", "link: dwon")).find("link 'dwon' is not among") !=
          std::string::npos);
}

TEST_CASE("connections of earlier InfraGraph versions say the same; each link of a host is a host") {
    const Imported out = imported("infragraph", R"(infrastructure:
  devices:
    - name: server
      components: [{name: npu, type: npu, count: 2}, {name: nic, type: nic, count: 2}]
      instances: [{name: server, count: 2}]
    - name: switch
      components: [{name: port, type: nic, count: 16}]
      instances: [{name: leaf, count: 2}]
  links: [{name: eth, bandwidth: {giga_bytes_per_second: 100}}]
  connections:
    - server.0.nic.0.eth.leaf.0.port.0
    - server.0.nic.1.eth.leaf.0.port.1
    - server.1.nic.0.eth.leaf.1.port.0
    - server.1.nic.1.eth.leaf.1.port.1
    - leaf.0.port.2.eth.leaf.1.port.2
)");
    const Fabric fabric = fabric_of(out);
    CHECK(fabric.gpus() == 4);
    CHECK(fabric.topology().links()[0].rate == doctest::Approx(100e9));
    CHECK(out.notes.assumed().contains("hosts: one for each link of a host that has several"));
}

TEST_CASE("GraphML is read in one pass: what stands in comments, CDATA and quotes opens no element") {
    const std::string half = "<!--" + std::string(40000, '<') + "-->";
    std::string closings;
    std::string openings;
    for (int i = 0; i < 40000; ++i) {
        closings += "</a>";
        openings += "<a>";
    }
    // What closes inside a comment closes nothing outside it.
    CHECK(refused("graphml", "<graphml><!--" + closings + "-->" + openings + closings + "</graphml>")
              .find("elements nest deeper than 64") != std::string::npos);
    CHECK(refused("graphml", "<graphml x=\"" + closings + "\">" + openings).find("elements nest deeper than 64") !=
          std::string::npos);
    std::string ends = "<graphml>";
    for (int i = 0; i < 1000000; ++i) {
        ends += "</<";
    }
    CHECK(refused("graphml", ends).find("a name is missing in a tag") != std::string::npos);
    const std::string whole = replaced(kGraphMl, "EDGES", "directed");
    const std::string text = imported("graphml", whole).text;
    CHECK(
        imported("graphml", replaced(whole, "<graph ", half + "<![CDATA[<node id=\"9\"/>]]><?x <node?><graph ")).text ==
        text);
    CHECK(imported("graphml", replaced(whole, ">a<", "><![CDATA[a]]><")).text == text);
    CHECK(imported("graphml", replaced(whole, ">a<", ">&#97;<")).text == text);
    CHECK(imported("graphml", replaced(whole, ">a<", ">&lt;&#xe9;<")).text.find("'<\xc3\xa9'") != std::string::npos);
    CHECK(refused("graphml", replaced(whole, ">a<", ">&b;<"))
              .find("input:8:1: error: is no XML: '&b;' is no character") == 0);
    CHECK(refused("graphml", replaced(whole, "</node>", "</edge>")).find("'edge' ends inside 'node'") !=
          std::string::npos);
}

TEST_CASE("GraphML that says a thing twice or about nothing is refused with its line") {
    const std::string whole = replaced(kGraphMl, "EDGES", "undirected");
    CHECK(refused("graphml", replaced(whole, "<node id=\"1\">", "<node id=\"0\">"))
              .find("input:9:1: error: node '0' comes twice") != std::string::npos);
    CHECK(refused("graphml", replaced(whole, "<data key=\"d3\">", "<data key=\"d9\">"))
              .find("input:8:1: error: key 'd9' of this data is not among the keys") != std::string::npos);
    CHECK(refused("graphml", replaced(whole, "<data key=\"d3\">", "<data key=\"d0\">"))
              .find("input:8:1: error: attribute 'label' comes twice") != std::string::npos);
    CHECK(refused("graphml", replaced(whole, "for=\"edge\" id=\"d2\"", "for=\"edge\" id=\"d1\""))
              .find("input:5:1: error: key 'd1' comes twice") != std::string::npos);
    CHECK(refused("graphml", "<graphml/>").find("it has no 'graph'") != std::string::npos);
    // Defaults count where an element does not say it.
    const Imported out = imported(
        "graphml", replaced(whole, "for=\"edge\" id=\"d2\" />", "for=\"edge\" id=\"d2\"><default>8e9</default></key>"));
    CHECK(out.text.find("link: 5000000000 B/s") != std::string::npos);
}

TEST_CASE("edges of InfraGraph are counted over the whole file, and components must be there") {
    std::string many = replaced(replaced(kInfra, "device: switch, count: 2", "device: switch, count: 1000"),
                                "device: switch, count: 2", "device: switch, count: 1000");
    const std::string edge = many.substr(many.rfind("    - {ep1"));
    for (int i = 0; i < 200; ++i) {
        many += edge;
    }
    CHECK(refused("infragraph", many).find("end points and pairs of them") != std::string::npos);
    CHECK(refused("infragraph", replaced(kInfra, "component: \"asic\"", "component: \"acis\""))
              .find("component 'acis' is not among those of the device (did you mean 'asic'?)") != std::string::npos);
    CHECK(refused("infragraph", replaced(kInfra, "name: spine, device", "name: leaf, device"))
              .find("instance 'leaf' comes twice") != std::string::npos);
    // Errors end after a hundred, however many names each would be compared with.
    std::string wrong = kInfra;
    for (int i = 0; i < 20000; ++i) {
        wrong += "    - {ep1: {instance: laef, component: asic}, ep2: {instance: spine, component: asic}, link: up}\n";
    }
    CHECK(refused("infragraph", wrong).find("and 50 more errors") != std::string::npos);
}

TEST_CASE("links that say a thing twice, in no unit or below zero are refused with their line") {
    CHECK(refused("infragraph", replaced(kInfra, "latency: {us: 1}", "latency: {us: -1}"))
              .find("error: 'us' must be a number from 0, not '-1'") != std::string::npos);
    CHECK(refused("infragraph", replaced(kInfra, "gigabits_per_second: 200", "gigabits_per_second: 0"))
              .find("must be a number above 0, not '0'") != std::string::npos);
    CHECK(refused("infragraph", replaced(kInfra, "gigabits_per_second: 200", "parsecs: 2"))
              .find("none of the units that are read here: gigabitspersecond") != std::string::npos);
    CHECK(refused("infragraph", replaced(kInfra, "name: up,", "name: eth,")).find("link 'eth' comes twice") !=
          std::string::npos);
    CHECK(refused("graph-csv", "from,to,gbps,gbps\na,s,1,2\nb,s,1,2\n")
              .find("input:1:1: error: column 'gbps' comes twice") != std::string::npos);
    CHECK(refused("graph-csv", "from,to,gbps,latency\na,s,1,-1 us\nb,s,1,1 us\n").find("input:2:1: error: ") !=
          std::string::npos);
}

TEST_CASE("a topology of SimAI becomes a graph of its GPUs and switches") {
    const auto read = [](const std::string& text) {
        return import_file("simai-topology", ImportInput::of_bytes("topo", text)).text;
    };
    const std::string head = "7 2 2 1 8 A100\n4 5 6\n";
    const std::string inside =
        "0 4 2400Gbps 0.000025ms 0\n1 4 2400Gbps 0.000025ms 0\n2 5 2400Gbps 0.000025ms 0\n"
        "3 5 2400Gbps 0.000025ms 0\n";
    std::string nics;
    for (int gpu = 0; gpu < 4; ++gpu) {
        nics += std::to_string(gpu) + " 6 400Gbps 0.0005ms 0\n";
    }
    const std::string text = read(head + inside + nics);
    for (const char* part : {"hosts: 4", "link: 50000000000 B/s", "nodes: 4}"}) {
        CHECK_MESSAGE(text.find(part) != std::string::npos, text);
    }
    const auto problem = [&](const std::string& bytes) { return problems_when([&] { (void)read(bytes); }); };
    CHECK(problem("").find("topo:1:1: error: expected a topology of SimAI") == 0);
    CHECK(problem("from,to\na,b\n").find("and found 'from,to'") != std::string::npos);
    CHECK(problem(head).find("topo:2:1: error: expected the numbers of 3 switches") == 0);
    CHECK(problem(head + inside).find("says 8 links, and the file has 4") != std::string::npos);
    CHECK(problem(head + inside + nics + "0 9 400Gbps 0.0005ms 0\n").find("topo:11:1: error: expected a link") == 0);
    CHECK(problem(head + inside + nics + "0 6 fast 0.0005ms 0\n").find("topo:11:1") == 0);
}
