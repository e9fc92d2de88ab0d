// Topologies of SimAI, as its generator writes them: a header, a line of switches, a line for each link.
//
// Claims: GPUs are hosts, each with its NIC, and the switches behind them a graph. Links to the switches inside of servers (NVLink) are
// left out, as a node's own. Limits: a GPU on two switches is refused, which a graph does not know.
// Sources: aliyun/SimAI, docs/Tutorial.md ("topo setting") and gen_Topo_Template.py.

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "workloads/imports/graph_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::imports {

namespace {

std::vector<std::string> words_of(std::string_view line) {
    std::vector<std::string> out;
    std::string word;
    for (const char c : std::string(line) + ' ') {
        if (c != ' ' && c != '\t' && c != '\r') {
            word += c;
        } else if (!word.empty()) {
            out.push_back(std::exchange(word, ""));
        }
    }
    return out;
}

Imported read_simai(const ImportInput& input) {
    const std::string text = input.bytes();
    std::vector<std::pair<int, std::vector<std::string>>> lines;
    int number = 0;
    for (const std::string_view line : split(text, '\n')) {
        ++number;
        if (std::vector<std::string> words = words_of(line); !words.empty()) {
            lines.emplace_back(number, std::move(words));
        }
    }
    const auto refuse = [&](int line, const std::string& problem) {
        throw ConfigError({Diagnostic{input.path(), line, 1, problem, ErrorCode::malformed_trace}});
    };
    constexpr const char* kHeader = "nodes, GPUs of a server, switches inside of servers, other switches, links, GPU";
    if (lines.empty()) {
        refuse(1, fmt::format("expected a topology of SimAI, whose first line has {}: the file is empty", kHeader));
    }
    std::array<std::size_t, 5> header{};
    bool whole = lines[0].second.size() == 6;
    for (std::size_t i = 0; whole && i < header.size(); ++i) {
        double value = 0;
        whole = parse_number(lines[0].second[i], value) && value >= 0 && value <= 1e6 && value == std::floor(value);
        header[i] = whole ? static_cast<std::size_t>(value) : 0;
    }
    const auto [nodes, in_server, inside, outside, links] = header;
    if (!whole || in_server == 0 || inside + outside >= nodes) {
        refuse(lines[0].first, fmt::format("expected a topology of SimAI, whose first line has {}, and found '{}'",
                                           kHeader, printable(text.substr(0, text.find('\n')), 60)));
    }
    if (lines.size() < 3 || lines[1].second.size() != inside + outside) {
        refuse(lines.size() < 2 ? lines[0].first : lines[1].first,
               fmt::format("expected the numbers of {} switches and then links: the file ends or says otherwise",
                           inside + outside));
    }
    const std::size_t gpus = nodes - inside - outside;
    ImportNotes notes;
    GraphText graph(input.path());
    const auto kind = [&](std::size_t of) { return of < gpus ? 0 : of < gpus + inside ? 1 : 2; };
    std::size_t read = 0;
    for (std::size_t i = 2; i < lines.size(); ++i) {
        const auto& [line, words] = lines[i];
        graph.at(line);
        std::array<double, 2> ends{};
        bool known = words.size() == 5;
        for (std::size_t k = 0; known && k < 2; ++k) {
            known = parse_number(words[k], ends[k]) && ends[k] >= 0 && ends[k] < static_cast<double>(nodes) &&
                    ends[k] == std::floor(ends[k]);
        }
        if (!known) {
            graph.error(fmt::format("expected a link: two nodes below {}, a rate, a latency and an error rate", nodes));
            continue;
        }
        ++read;
        const std::array<std::size_t, 2> at = {static_cast<std::size_t>(ends[0]), static_cast<std::size_t>(ends[1])};
        if (kind(at[0]) == 1 || kind(at[1]) == 1 || (kind(at[0]) == 0 && kind(at[1]) == 0)) {
            notes.left_out("links inside of servers: the preset of a node has them");
            continue;
        }
        std::array<std::string, 2> names;
        for (std::size_t k = 0; k < 2; ++k) {
            names[k] = fmt::format("{}{}", at[k] < gpus ? "gpu" : "switch", at[k]);
            if (at[k] < gpus) {
                graph.add_vertex(names[k], GraphText::Kind::host);
            }
        }
        graph.add_link(names[0], names[1], graph.rate(words[2]), graph.latency(words[3]));
        if (words[4] != "0") {
            notes.left_out("error rates of links");
        }
    }
    if (read < links) {
        graph.at(lines[0].first);
        graph.error(fmt::format("the first line says {} links, and the file has {}", links, read));
    } else if (read > links) {
        notes.assumed(fmt::format("all {} links of the file, whose first line says {}", read, links));
    }
    notes.assumed(fmt::format("a host for each of the {} GPUs ({} a server)", gpus, in_server));
    return graph.as_scenario(input, "simai-topology", std::move(notes));
}

}  // namespace

extern const Importer kSimaiTopologyImporter = {
    "simai-topology", "topology of SimAI (its generator's file), as a fabric", graph_options(), read_simai, "yaml"};

}  // namespace orrery::imports
