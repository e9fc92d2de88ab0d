// Topologies of nodes and of ASTRA-sim's networks.

#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/scenario.hpp"
#include "workloads/imports/importer.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;
using namespace orrery::test;

namespace {

Imported import_text(const std::string& format, const std::string& text,
                     std::map<std::string, std::string> options = {}) {
    return import_file(format, ImportInput::of_bytes("topology", text, std::move(options)));
}

std::string scenario_of(const std::string& format, const std::string& text,
                        std::map<std::string, std::string> options = {}) {
    const Imported out = import_text(format, text, std::move(options));
    (void)read_scenario(parse_yaml(out.text, "imported.yaml"), "imported", data());
    return out.text;
}

bool says(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

std::string problem_of(const std::string& format, const std::string& text,
                       std::map<std::string, std::string> options = {}) {
    return problems_when([&] { return import_text(format, text, std::move(options)); });
}

// The matrix of GPUs that are all joined by `way`, with one NIC.
std::string matrix(std::size_t gpus, const std::string& way) {
    std::string text = "\t\x1b[4mGPU0\t";
    for (std::size_t i = 1; i < gpus; ++i) {
        text += fmt::format("GPU{}\t", i);
    }
    text += "NIC0\tCPU Affinity\tNUMA Affinity\x1b[0m\n";
    for (std::size_t i = 0; i < gpus; ++i) {
        text += fmt::format("GPU{}", i);
        for (std::size_t j = 0; j < gpus; ++j) {
            text += "\t" + (i == j ? " X " : way);
        }
        text += "\tPIX\t0-47\t0\n";
    }
    text += "NIC0";
    for (std::size_t i = 0; i < gpus; ++i) {
        text += "\tPIX";
    }
    return text +
           "\t X \n\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n\nNIC "
           "Legend:\n\n  NIC0: mlx5_0\n";
}

constexpr const char* kNccl = R"(<system version="1">
  <cpu numaid="0" affinity="ffff" arch="x86_64" vendor="GenuineIntel">
    <pci busid="0000:17:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:1a:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1"><nvlink target="0000:05:00.0" count="9" tclass="0x068000"/><nvlink target="0000:06:00.0" count="9" tclass="0x068000"/></gpu>
      </pci>
      <pci busid="0000:18:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic><net name="mlx5_0" dev="0" speed="400000" port="1" gdr="1"/></nic>
      </pci>
    </pci>
    <pci busid="0000:1b:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
      <gpu dev="1" sm="90" rank="1" gdr="1"><nvlink target="0000:05:00.0" count="18" tclass="0x068000"/></gpu>
    </pci>
    <nic><net name="eth0" dev="1" speed="10000" port="0"/></nic>
  </cpu>
</system>
)";

}  // namespace

TEST_CASE("a network file of ASTRA-sim becomes a product of its dimensions") {
    const std::string text =
        scenario_of("astra-network",
                    "topology: [ Ring, Switch ]\nnpus_count: [ 4, 8 ]\nbandwidth: [ 200.0, 50 ]  # GB/s\n"
                    "latency: [ 50, 936.25 ]  # ns\n");
    CHECK(says(text, "hosts: 32\n"));
    CHECK(says(text, "{kind: ring, size: 4, link: 204800 MiB/s, latency: 50 ns}"));
    CHECK(says(text, "{kind: switch, size: 8, link: 51200 MiB/s, latency: 936.25 ns}"));
    CHECK(problem_of("astra-network", "").find("topology:1:1: error: expected 'topology', 'npus_count'") == 0);
    CHECK(problem_of("astra-network", "topology: [Ring]\nnpus_count: 4\n")
              .find("topology:2:13: error: expected the list 'npus_count'") == 0);
    CHECK(problem_of("astra-network", "topology: [Mesh]\nnpus_count: [4]\nbandwidth: [1]\nlatency: [1]\n")
              .find("topology:1:12: error: expected a topology Ring, FullyConnected or Switch, and found 'Mesh'") == 0);
    CHECK(problem_of("astra-network", "topology: [Ring]\nnpus_count: [4]\nbandwidth: [fast]\nlatency: [1]\n")
              .find("topology:3:13: error: expected a number from 1e-06 to 1e+06, and found 'fast'") == 0);
    CHECK(problem_of("astra-network", "topology: [Ring]\nnpus_count: [4, 4]\nbandwidth: [1]\nlatency: [1]\n")
              .find("topology:2:13") == 0);
}

TEST_CASE("the matrix of nvidia-smi becomes a node") {
    const std::string text = scenario_of("nvidia-topo", matrix(8, "NV18"));
    for (const char* part : {"gpus: 8\n", "gpu: h100-sxm\n", "intra: nvswitch\n", "value: 450 GB/s", "nics: 1\n",
                             "collectives: nvlink4\n"}) {
        CHECK_MESSAGE(says(text, part), part);
    }
    CHECK(says(scenario_of("nvidia-topo", matrix(8, "NV18"), {{"device", "b200-sxm"}}), "value: 900 GB/s"));
    CHECK(says(scenario_of("nvidia-topo", matrix(8, "NV12")), "gpu: a100-sxm-80g"));
    CHECK(says(scenario_of("nvidia-topo", matrix(4, "SYS"), {{"device", "l40s"}}), "intra: pcie"));
    CHECK(problem_of("nvidia-topo", matrix(4, "PHB")).find("does not say what its GPUs are: --device NAME") !=
          std::string::npos);
    CHECK(problem_of("nvidia-topo", "").find("topology:1:1: error: expected the matrix of 'nvidia-smi topo -m'") == 0);
    std::string mixed = matrix(4, "NV4");
    mixed.replace(mixed.find("NV4"), 3, "SYS");
    CHECK(problem_of("nvidia-topo", mixed).find("pairs of GPUs are joined in several ways (NV4, PCIe)") !=
          std::string::npos);
    std::string odd = matrix(4, "NV12");
    odd.replace(odd.find("NV12"), 4, "LAN9");
    CHECK(problem_of("nvidia-topo", odd).find("topology:2:") == 0);
    const std::string whole = matrix(4, "NV12");
    CHECK(problem_of("nvidia-topo", whole.substr(0, whole.find("GPU3\tNV12")))
              .find("expected a row for each of 4 GPUs, and found 3") != std::string::npos);
}

TEST_CASE("a topology of NCCL becomes a node") {
    const std::string text = scenario_of("nccl-topology", kNccl);
    for (const char* part : {"gpus: 2\n", "gpu: h100-sxm\n", "value: 450 GB/s", "nics: 1\n", "nic_bandwidth: 400 Gbps",
                             "pcie_bandwidth: 51.2 GB/s"}) {
        CHECK_MESSAGE(says(text, part), part << "\n" << text);
    }
    CHECK(says(scenario_of("nccl-topology", kNccl, {{"device", "h200-sxm"}}), "gpu: h200-sxm\n"));
    CHECK(
        problem_of("nccl-topology", "<graphs version=\"1\"></graphs>").find("topology:1:1: error: expected <system>") ==
        0);
    CHECK(problem_of("nccl-topology", "<system version=\"1\"></system>").find("expected GPUs in NCCL's topology") !=
          std::string::npos);
    CHECK(!problem_of("nccl-topology", "").empty());
    CHECK(!problem_of("nccl-topology", std::string(kNccl).substr(0, 400)).empty());
    std::string uneven = kNccl;
    uneven.replace(uneven.find("count=\"18\""), 10, "count=\"12\"");
    CHECK(problem_of("nccl-topology", uneven).find("different numbers of NVLinks") != std::string::npos);
}

TEST_CASE("a matrix of nvidia-smi counts NICs by their columns, and four GPUs may be a mesh") {
    std::string storage = matrix(8, "NV18");
    storage.replace(storage.find("NIC0\tCPU"), 4, "NIC0\tNIC1");
    for (std::size_t at = storage.find("\tPIX\t0-47"); at != std::string::npos;
         at = storage.find("\tPIX\t0-47", at + 1)) {
        storage.replace(at, 4, "\tPIX\tSYS");
    }
    storage.erase(storage.find("\nNIC0\tPIX"));  // rows of NICs, which are often cut off
    const Imported out = import_text("nvidia-topo", storage);
    CHECK_MESSAGE(says(out.text, "nics: 1\n"), out.text);
    CHECK(out.notes.left_out().begin()->first.find("share no PCIe switch") != std::string::npos);
    const std::string mesh = scenario_of("nvidia-topo", matrix(4, "NV4"));
    CHECK_MESSAGE(says(mesh, "gpu: a100-sxm-80g\n    intra: mesh\n    intra_bandwidth: {value: 100 GB/s"), mesh);
    CHECK(says(scenario_of("nvidia-topo", matrix(4, "NV6")), "gpu: h100-sxm\n    intra: mesh"));
    CHECK(says(scenario_of("nvidia-topo", matrix(16, "NV6")), "intra: nvswitch"));
    CHECK(says(problem_of("nvidia-topo", matrix(8, "NV1")), "expected all NVLinks of a GPU"));
}
