// NCCL's topology (NCCL_TOPO_DUMP_FILE, XML) as a node: GPUs with their NVLinks and slots, and NICs with their speed.
//
// Source: NVIDIA/nccl, src/graph/xml.cc and topo.h: <gpu dev sm>, <nvlink target count tclass> (0x068000: a switch), <net speed> in
// Mb/s, <pci link_speed link_width>.

#include "sim/base/error.hpp"
#include "sim/config/units.hpp"
#include "workloads/imports/node_text.hpp"
#include "workloads/imports/xml_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace orrery::imports {

namespace {

struct Slot {
    double GTps = 0;
    double width = 0;
};

double number_in(const std::string& text) {
    double value = 0;
    const std::string first = text.substr(0, text.find(' '));
    return parse_number(first, value) ? value : 0;
}

// By compute capability, where one preset has it.
const char* device_of(const std::string& sm) {
    static const std::map<std::string, const char*> kDevices = {
        {"70", "v100-sxm-32g"}, {"80", "a100-sxm-80g"}, {"86", "a6000"},    {"89", "l40s"},
        {"90", "h100-sxm"},     {"100", "b200-sxm"},    {"103", "b300-sxm"}};
    const auto found = kDevices.find(sm);
    return found == kDevices.end() ? "" : found->second;
}

Imported read_topology_xml(const ImportInput& input) {
    const std::string text = input.bytes();
    XmlText xml(text, input.path());
    NodeFacts facts;
    facts.source = "NCCL topology";
    std::set<std::string> devices;
    std::set<std::string> nics;
    std::set<double> links;  // of each GPU
    std::vector<Slot> slots;
    double own = 0;
    double slot_GBps = 0;
    bool root = false;
    const auto fail = [&](int line, const std::string& problem) {
        throw ConfigError({Diagnostic{input.path(), line, 1, problem, ErrorCode::malformed_trace}});
    };
    while (xml.next()) {
        const bool opens = xml.kind() == XmlText::Kind::open;
        if (!root) {
            if (xml.name() != "system") {
                fail(xml.line(),
                     fmt::format("expected <system>, the root of NCCL's topology, and found <{}>", xml.name()));
            }
            root = true;
        }
        if (xml.name() == "pci") {
            if (opens) {
                slots.push_back({number_in(xml.attribute("link_speed")), number_in(xml.attribute("link_width"))});
            } else if (!slots.empty()) {
                slots.pop_back();
            }
        } else if (xml.name() == "gpu" && opens) {
            ++facts.gpus;
            own = 0;
            devices.insert(xml.attribute("sm"));
            if (!slots.empty() && slots.back().GTps > 0 && slots.back().width > 0) {
                // 128 of 130 bits, and what headers leave of them: 51 of 63 GB/s, as measured on x16 of generation 5.
                slot_GBps = slots.back().GTps * slots.back().width / 8 * 0.8;
            }
        } else if (xml.name() == "gpu") {
            links.insert(own);
        } else if (xml.name() == "nvlink" && opens) {
            own += number_in(xml.attribute("count"));
            facts.switched = facts.switched || xml.attribute("tclass") == "0x068000";
        } else if (xml.name() == "net" && opens) {
            const double speed = number_in(xml.attribute("speed")) / 1000;
            const bool real = xml.attribute("name").rfind("lo", 0) != 0 && speed >= 25;
            if (real && nics.insert(xml.attribute("name")).second) {
                facts.nic_gbps = std::max(facts.nic_gbps, speed);
            }
        }
    }
    if (facts.gpus == 0) {
        fail(1, root ? "expected GPUs in NCCL's topology, and found none"
                     : "expected NCCL's topology (<system>), and found no element");
    }
    if (devices.size() > 1) {
        fail(1, "the GPUs are of several kinds, and a node here has one: describe groups of nodes by hand");
    }
    if (links.size() > 1) {
        fail(1, "GPUs have different numbers of NVLinks, and a node here has one number for all");
    }
    facts.nics = nics.size();
    facts.links = links.empty() ? 0 : *links.begin();
    facts.gpu = device_of(*devices.begin());
    facts.pcie_GBps = slot_GBps;
    ImportNotes notes;
    notes.read("GPUs", facts.gpus);
    notes.read("NICs of 25 Gb/s and more", facts.nics);
    if (!facts.gpu.empty() && input.option("device").empty()) {
        notes.assumed(fmt::format("devices of {}, of compute capability {} (--device NAME; orrery list devices)",
                                  facts.gpu, *devices.begin()));
    }
    return node_scenario(input, facts, "nccl-topology", std::move(notes));
}

}  // namespace

extern const Importer kNcclTopologyImporter = {"nccl-topology",
                                               "a topology that NCCL wrote (NCCL_TOPO_DUMP_FILE, XML), as a node",
                                               node_options(), read_topology_xml, "yaml"};

}  // namespace orrery::imports
