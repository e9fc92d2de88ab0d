// Topology files of htsim (.topo), the packet simulator that the Ultra Ethernet Consortium's is built on, as a fabric.
//
// The format is what its reader takes (sim/datacenter/fat_tree_topology.cpp of github.com/Broadcom/csg-htsim, "load" and
// "set_custom_params"): a line is a key and a number, keys know no case, # begins a comment. Nodes, Tiers (2 or 3) and Podsize come first;
// then `Tier n` for each, from the switches of the hosts up, with the rate and latency of its links downwards, its ports up and down, how
// many links of a bundle join it with the same switch below, and what a packet waits inside a switch.
// Where all links are alike and single, the fabric is leaf-spine or a fat tree; else it is a graph with the same links. Half of a switch's
// latency is given to each of the two links that a packet passes it between, so that every path has the file's latency.

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "workloads/imports/graph_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <span>
#include <sstream>

namespace orrery::imports {

namespace {

constexpr std::size_t kMostTiers = 3;
constexpr double kMostPorts = 65536;
constexpr double kMostHosts = 1e6;

struct Number {
    double value = 0;
    int line = 0;  // 0: not given
};

// One key of the header or of a tier.
struct Key {
    const char* name;
    double least;
    double most;
    bool whole;
};
constexpr std::array<Key, 3> kHeader = {
    {{"Nodes", 2, kMostHosts, true}, {"Tiers", 2, kMostTiers, true}, {"Podsize", 1, kMostHosts, true}}};
enum class Of : std::size_t { speed, down, up, latency, waits, bundle, oversubscribed, queue_up, queue_down };
constexpr std::array<Key, 9> kTier = {{{"Downlink_speed_Gbps", 1e-6, 8e5, false},
                                       {"Radix_Down", 1, kMostPorts, true},
                                       {"Radix_Up", 1, kMostPorts, true},
                                       {"Downlink_Latency_ns", 0, 1e9, false},
                                       {"Switch_Latency_ns", 0, 1e9, false},
                                       {"Bundle", 1, kMostPorts, true},
                                       {"Oversubscribed", 1, 1000, true},
                                       {"Queue_Up", 1, 4e9, true},
                                       {"Queue_Down", 1, 4e9, true}}};

struct Tier {
    int line = 0;  // of "Tier n"; 0: not there
    std::array<Number, kTier.size()> values;

    [[nodiscard]] const Number& operator[](Of key) const { return values[static_cast<std::size_t>(key)]; }
    [[nodiscard]] double get(Of key, double otherwise = 0) const {
        return (*this)[key].line > 0 ? (*this)[key].value : otherwise;
    }
};

bool same_word(const std::string& a, const std::string& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

class TopologyFile {
  public:
    explicit TopologyFile(const ImportInput& input) : file_(input.path()) {
        std::istringstream text(input.bytes());
        for (std::string line; std::getline(text, line);) {
            ++line_;
            read_line(line);
        }
        line_ = 0;
        for (std::size_t i = 0; i < kHeader.size(); ++i) {
            if (header_[i].line == 0) {
                error(0, fmt::format("'{}' is missing", kHeader[i].name));
            }
        }
        stop_if_wrong();
        for (std::size_t tier = 0; tier < tiers(); ++tier) {
            require(tier);
        }
        for (std::size_t tier = tiers(); tier < kMostTiers; ++tier) {
            if (tiers_[tier].line > 0) {
                error(tiers_[tier].line,
                      fmt::format("'Tier {}': the file has {} tiers, counted from 0", tier, tiers()));
            }
        }
        stop_if_wrong();
        fit();
        stop_if_wrong();
    }

    [[nodiscard]] std::size_t tiers() const { return static_cast<std::size_t>(header_[1].value); }
    [[nodiscard]] const Tier& tier(std::size_t number) const { return tiers_[number]; }
    [[nodiscard]] double hosts() const { return header_[0].value; }
    [[nodiscard]] double pods() const { return header_[0].value / header_[2].value; }
    /// Of a pod.
    [[nodiscard]] double tors() const { return header_[2].value / tiers_[0].get(Of::down); }
    [[nodiscard]] double aggregations() const { return tiers_[0].get(Of::up) / bundle(1); }
    /// Of an aggregation switch.
    [[nodiscard]] double cores() const { return tiers_[1].get(Of::up) / bundle(2); }
    [[nodiscard]] double bundle(std::size_t tier) const { return tiers_[tier].get(Of::bundle, 1); }
    /// ns, of the links below a tier, with the switches' halves.
    [[nodiscard]] double latency(std::size_t tier) const {
        const double below = tier > 0 ? tiers_[tier - 1].get(Of::waits) / 2 : 0;
        return tiers_[tier].get(Of::latency) + below + tiers_[tier].get(Of::waits) / 2;
    }
    [[nodiscard]] bool alike() const {
        for (std::size_t i = 1; i < tiers(); ++i) {
            if (bundle(i) > 1 || latency(i) != latency(0)) {
                return false;
            }
        }
        return true;
    }
    /// Host or lower links' rate over that of the links further up, of a switch.
    [[nodiscard]] double oversubscription(std::size_t tier) const {
        return tiers_[tier].get(Of::down) * tiers_[tier].get(Of::speed) /
               (tiers_[tier].get(Of::up) * tiers_[tier + 1].get(Of::speed));
    }

  private:
    void error(int line, const std::string& text) {
        errors_.push_back(Diagnostic{file_, std::max(1, line), 1, text, ErrorCode::malformed_trace});
    }
    void stop_if_wrong() const {
        if (!errors_.empty()) {
            throw ConfigError(errors_);
        }
    }

    void read_line(const std::string& line) {
        std::istringstream in(line);
        std::vector<std::string> words;
        for (std::string word; in >> word && word[0] != '#';) {
            words.push_back(word);
        }
        if (words.empty()) {
            return;
        }
        if (words.size() != 2) {
            error(line_, fmt::format("a line is a key and a number, not {} words", words.size()));
            return;
        }
        if (same_word(words[0], "Tier")) {
            begin_tier(words[1]);
            return;
        }
        const bool in_tier = tier_ != nullptr;
        const std::span<const Key> keys = in_tier ? std::span<const Key>(kTier) : std::span<const Key>(kHeader);
        for (std::size_t i = 0; i < keys.size(); ++i) {
            if (same_word(words[0], keys[i].name)) {
                take(keys[i], words[1], in_tier ? tier_->values[i] : header_[i]);
                return;
            }
        }
        unknown(words[0], keys);
    }

    void unknown(const std::string& word, std::span<const Key> keys) {
        std::vector<std::string> names = {"Tier"};
        for (const Key& key : keys) {
            names.emplace_back(key.name);
        }
        const std::string near = nearest_name(word, names);
        error(line_, fmt::format("unknown key '{}'{}; {} there are {}", printable(word, 60),
                                 near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near),
                                 tier_ != nullptr ? "in a tier" : "before the first tier", fmt::join(names, ", ")));
    }

    void begin_tier(const std::string& word) {
        Number number;
        take({"Tier", 0, kMostTiers - 1, true}, word, number);
        if (number.line == 0) {
            spare_ = Tier();
            tier_ = &spare_;
            return;
        }
        tier_ = &tiers_[static_cast<std::size_t>(number.value)];
        if (tier_->line > 0) {
            error(line_, fmt::format("'Tier {}' is there already, in line {}", number.value, tier_->line));
        }
        tier_->line = line_;
    }

    void take(const Key& key, const std::string& word, Number& into) {
        double value = 0;
        const char* kind = key.whole ? "whole number" : "number";
        if (!parse_number(word, value) || (key.whole && value != std::floor(value)) || value < key.least ||
            value > key.most) {
            error(line_, fmt::format("'{}' must be a {} from {} to {:.15g}, not '{}'", key.name, kind, key.least,
                                     key.most, printable(word, 60)));
            return;
        }
        if (into.line > 0) {
            error(line_, fmt::format("'{}' is there already, in line {}", key.name, into.line));
            return;
        }
        into = {value, line_};
    }

    void require(std::size_t number) {
        const Tier& tier = tiers_[number];
        if (tier.line == 0) {
            error(0, fmt::format("'Tier {}' is missing", number));
            return;
        }
        const bool top = number + 1 == tiers();
        std::vector<Of> needed = {Of::speed, Of::down, Of::latency};
        if (!top) {
            needed.push_back(Of::up);
        }
        for (const Of key : needed) {
            if (tier[key].line == 0) {
                error(tier.line, fmt::format("tier {} has no '{}'", number, kTier[static_cast<std::size_t>(key)].name));
            }
        }
        for (const Of key : {Of::up, Of::queue_up, Of::oversubscribed}) {
            if (top && tier[key].line > 0) {
                error(tier[key].line,
                      fmt::format("'{}': nothing is above the top tier", kTier[static_cast<std::size_t>(key)].name));
            }
        }
    }

    // Whether the ports of each tier are those that the tiers beside it need.
    void fit() {
        const auto divides = [&](const Number& whole, const char* name, double part, const char* by) {
            if (std::fmod(whole.value, part) != 0) {
                error(whole.line, fmt::format("{} {} is no multiple of {} {}", name, whole.value, by, part));
            }
        };
        divides(header_[0], "Nodes", header_[2].value, "Podsize");
        divides(header_[2], "Podsize", tiers_[0].get(Of::down), "Radix_Down of tier 0");
        if (bundle(0) > 1) {
            error(tiers_[0][Of::bundle].line, "'Bundle' of tier 0: a host has one link");
        }
        if (tiers() == 2 && pods() != 1) {
            error(header_[2].line, fmt::format("two tiers are one pod: Podsize is Nodes, {}", header_[0].value));
        }
        for (std::size_t i = 0; i + 1 < tiers(); ++i) {
            divides(tiers_[i][Of::up], "Radix_Up", bundle(i + 1), "the bundle of the tier above,");
        }
        stop_if_wrong();
        for (std::size_t i = 1; i < tiers(); ++i) {
            const double below = (i == 1 ? tors() : pods()) * bundle(i);
            if (tiers_[i].get(Of::down) != below) {
                error(tiers_[i][Of::down].line,
                      fmt::format("Radix_Down of tier {} is {}, but {} links lead to each of its switches: {} below, "
                                  "bundles of {}",
                                  i, tiers_[i].get(Of::down), below, i == 1 ? tors() : pods(), bundle(i)));
            }
        }
        for (std::size_t i = 0; i + 1 < tiers(); ++i) {
            const Number& said = tiers_[i][Of::oversubscribed];
            if (said.line > 0 && said.value != oversubscription(i)) {
                error(said.line, fmt::format("Oversubscribed is {}, but rates and ports of tier {} make it {}",
                                             said.value, i, oversubscription(i)));
            }
        }
    }

    std::string file_;
    int line_ = 0;
    std::array<Number, kHeader.size()> header_;
    std::array<Tier, kMostTiers> tiers_;
    Tier spare_;  // what an unknown tier says goes nowhere
    Tier* tier_ = nullptr;
    std::vector<Diagnostic> errors_;
};

std::string gbps(double rate) {
    return fmt::format("{} Gbps", rate);
}

Imported as_tree(const TopologyFile& topo) {
    std::string shape = fmt::format("kind: leaf-spine, hosts_per_leaf: {}, spines: {}, oversubscription: {}",
                                    topo.tier(0).get(Of::down), topo.aggregations(), topo.oversubscription(0));
    double switches = topo.pods() * (topo.tors() + topo.aggregations());
    if (topo.tiers() == 3) {
        shape = fmt::format(
            "kind: fat-tree, hosts_per_leaf: {}, leaf_groups_per_pod: {}, spines: {}, cores_per_spine: {}, "
            "oversubscription: {}, core_oversubscription: {}",
            topo.tier(0).get(Of::down), topo.tors(), topo.aggregations(), topo.cores(), topo.oversubscription(0),
            topo.oversubscription(1));
        switches += topo.aggregations() * topo.cores();
    }
    Imported out;
    out.text = fmt::format(
        "# How long does it take until every host has sent 16 MiB to another one? Written by 'orrery import htsim'.\n"
        "orrery: 1\nkind: network\ncluster:\n  hosts: {}\n  fabric: {{{}, link: {}, latency: {} ns}}\n"
        "traffic: {{pattern: permutation, size: 16 MiB}}\n",
        topo.hosts(), shape, gbps(topo.tier(0).get(Of::speed)), topo.latency(0));
    out.scenario = true;
    out.use = "'orrery run' as it is, or its 'cluster:' in another scenario";
    out.facts = {{"hosts", fmt::format("{}", topo.hosts())}, {"switches", fmt::format("{}", switches)}};
    return out;
}

Imported as_graph(const TopologyFile& topo, const ImportInput& input) {
    constexpr double kGbps = 1e9 / 8;
    GraphText graph(input.path());
    const auto join = [&](const std::string& below, const std::string& above, std::size_t tier) {
        graph.add_link(below, above, topo.tier(tier).get(Of::speed) * kGbps, topo.latency(tier) * 1e-9,
                       static_cast<std::uint32_t>(topo.bundle(tier)));
    };
    const auto whole = [](double number) { return static_cast<std::uint32_t>(number); };
    std::uint32_t host = 0;
    for (std::uint32_t pod = 0; pod < whole(topo.pods()); ++pod) {
        for (std::uint32_t i = 0; i < whole(topo.tors()); ++i) {
            const std::string tor = fmt::format("tor{}", pod * whole(topo.tors()) + i);
            graph.add_vertex(tor, GraphText::Kind::nodes_on_switch, 0);
            for (std::uint32_t port = 0; port < whole(topo.tier(0).get(Of::down)); ++port) {
                const std::string name = fmt::format("host{}", host++);
                graph.add_vertex(name, GraphText::Kind::host, 0);
                join(name, tor, 0);
            }
        }
        for (std::uint32_t i = 0; i < whole(topo.aggregations()); ++i) {
            const std::string above = fmt::format("agg{}", pod * whole(topo.aggregations()) + i);
            graph.add_vertex(above, GraphText::Kind::nodes_on_switch, 0);
            for (std::uint32_t k = 0; k < whole(topo.tors()); ++k) {
                join(fmt::format("tor{}", pod * whole(topo.tors()) + k), above, 1);
            }
            // Aggregation switches at the same place of their pods reach the same core switches.
            for (std::uint32_t k = 0; topo.tiers() == 3 && k < whole(topo.cores()); ++k) {
                const std::string core = fmt::format("core{}", i + whole(topo.aggregations()) * k);
                graph.add_vertex(core, GraphText::Kind::nodes_on_switch, 0);
                join(above, core, 2);
            }
        }
    }
    ORRERY_ASSERT(host == whole(topo.hosts()));
    return graph.as_scenario(ImportInput(input.path()), "htsim", ImportNotes());
}

// Queues are of one size in a scenario.
void add_queues(const TopologyFile& topo, Imported& out) {
    double size = 0;
    bool one = true;
    for (std::size_t i = 0; i < topo.tiers(); ++i) {
        for (const Of key : {Of::queue_down, Of::queue_up}) {
            if (const double own = topo.tier(i).get(key); own > 0) {
                one = one && (size == 0 || size == own);
                size = own;
            }
        }
    }
    if (size > 0 && one) {
        out.text += fmt::format("network: {{fidelity: packet, queues: {{size: {} B}}}}\n", size);
    } else if (size > 0) {
        out.notes.left_out("sizes of queues: they differ, and a scenario has one for all ports");
    }
}

Imported read_topology(const ImportInput& input) {
    const TopologyFile topo(input);
    Imported out = topo.alike() ? as_tree(topo) : as_graph(topo, input);
    for (std::size_t i = 0; i < topo.tiers(); ++i) {
        out.notes.read("tiers");
        if (topo.tier(i).get(Of::waits) > 0) {
            out.notes.assumed("latencies of switches: half on each of the links beside them");
        }
    }
    add_queues(topo, out);
    return out;
}

}  // namespace

extern const Importer kHtsimImporter = {
    "htsim", "a topology file of htsim (.topo, two or three tiers), as a fabric", {}, read_topology, "yaml"};

}  // namespace orrery::imports
