#pragma once
// What several tests share.

#include "tools/driver/scenario.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace orrery::test {

/// Multiplies the number of random cases: 1 in CI, 20 in the soak run.
inline int scale() {
    const char* text = std::getenv("ORRERY_TEST_SCALE");
    return text != nullptr ? std::max(1, std::atoi(text)) : 1;
}

inline DataDirectory data() {
    return DataDirectory(ORRERY_SOURCE_DIR);
}

/// Models are slow to load and free of state: one cache serves all tests.
inline ModelCache& models() {
    static ModelCache cache(data());
    return cache;
}

/// Reads a scenario from text.
inline Scenario scenario(const std::string& text) {
    return read_scenario(parse_yaml(text, "test.yaml"), "test", data());
}

/// The error text of a scenario that must be refused; empty when it is accepted.
inline std::string refusal(const std::string& text) {
    try {
        (void)scenario(text);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

/// The problems that something throws, a line each; empty when it throws none.
template <class Tried>
std::string problems_when(const Tried& tried) {
    std::string out;
    try {
        static_cast<void>(tried());
    } catch (const ConfigError& error) {
        for (const Diagnostic& problem : error.diagnostics()) {
            out += problem.to_string() + "\n";
        }
    }
    return out;
}

/// A file that goes with its scope.
class File {
  public:
    File(const std::string& name, const std::string& text)
        : path_((std::filesystem::temp_directory_path() / ("orrery-" + std::to_string(::getpid()) + "-" + name))
                    .string()) {
        std::ofstream(path_) << text;
    }
    ~File() { std::filesystem::remove(path_); }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    std::string path_;
};

/// A small training scenario that runs; tests change parts of it.
inline constexpr const char* kSmallTraining = R"(orrery: 1
kind: training
cluster: {nodes: 1, node: dgx-a100-80g}
model: {layers: 4, hidden: 1024, heads: 16, vocabulary: 1000}
plan: {tensor: 2, data: 4, global_batch: 8}
software: megatron-lm-2021
)";

/// Nodes of eight GPUs with a rail of leaf switches a GPU: NVLink 4 and 400 Gb/s.
inline FabricShape rail_nodes(std::uint32_t nodes) {
    FabricShape shape;
    shape.nodes = nodes;
    shape.intra_bandwidth = 450e9;
    shape.pcie_bandwidth = 50e9;
    shape.nic_bandwidth = 50e9;
    shape.rails = 8;
    shape.spines = 16;
    return shape;
}

/// A run by packet.
inline RunSettings by_packet(const PacketSpec& packets) {
    RunSettings settings;
    settings.fidelity = Fidelity::packet;
    settings.packets = packets;
    return settings;
}

/// A fabric of bare hosts: `hosts` on leaves of `per_leaf` with `spines` spines, rates in B/s.
inline FabricShape hosts(std::uint32_t count, std::uint32_t per_leaf, std::uint32_t spines, double rate,
                         double latency = 0) {
    FabricShape shape;
    shape.nodes = count;
    shape.gpus_per_node = 1;
    shape.nics_per_node = 1;
    shape.nic_bandwidth = rate;
    shape.nodes_per_leaf = per_leaf;
    shape.spines = spines;
    shape.link_latency = latency;
    return shape;
}

}  // namespace orrery::test
