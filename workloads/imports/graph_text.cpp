#include "workloads/imports/graph_text.hpp"

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace orrery::imports {

namespace {

constexpr std::size_t kMostVertices = 1U << 21U;
constexpr std::size_t kMostLinks = 1U << 22U;
constexpr std::size_t kMostName = 200;
constexpr std::size_t kMostErrors = 100;
constexpr double kFastest = 1e14;  // B/s

// A name as YAML reads it back, whatever it holds.
std::string yaml_name(const std::string& name) {
    std::string out = "'";
    for (const char c : name) {
        out += c == '\'' ? "''" : std::string(1, c);
    }
    return out + "'";
}

std::string rate_text(double rate) {
    return fmt::format("{} B/s", rate);
}

// Exact to the picosecond, in which runs count.
std::string latency_text(double latency) {
    return fmt::format("{} ns", static_cast<double>(std::llround(latency * 1e12)) / 1e3);
}

}  // namespace

std::vector<ImportOption> graph_options() {
    return {{"rate", "RATE", "rate of links where the file does not say it, such as '400 Gbps'"},
            {"latency", "TIME", "latency of links where the file does not say it (500 ns)"}};
}

void GraphText::error(const std::string& text) {
    error(Diagnostic{file_, line_, line_ > 0 ? 1 : 0, text, ErrorCode::malformed_trace});
}

void GraphText::error(const Diagnostic& diagnostic) {
    errors_.push_back(diagnostic);
    if (errors_.size() == kMostErrors) {  // each may have looked for the nearest of many names
        throw ConfigError(errors_);
    }
}

std::size_t GraphText::number_of(const std::string& name) {
    const auto [found, fresh] = numbers_.emplace(name, vertices_.size());
    if (fresh) {
        if (vertices_.size() == kMostVertices) {
            throw ConfigError(
                {Diagnostic{file_, line_, line_ > 0 ? 1 : 0, fmt::format("more than {} vertices", kMostVertices),
                            ErrorCode::malformed_trace}});
        }
        const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) { return c >= ' ' && c != 127; });
        if (name.empty() || name.size() > kMostName || !plain) {
            error(fmt::format("'{}' is no name of a vertex: 1 to {} bytes without control characters",
                              printable(name, 60), kMostName));
        }
        vertices_.push_back({name, Kind::unknown, 0, 0, line_});
    }
    return found->second;
}

void GraphText::add_vertex(const std::string& name, Kind kind, std::uint32_t nodes) {
    Vertex& vertex = vertices_[number_of(name)];
    vertex.kind = kind;
    vertex.nodes = nodes;
}

void GraphText::add_link(const std::string& from, const std::string& to, double rate, double latency,
                         std::uint32_t count) {
    const std::size_t a = number_of(from);
    const std::size_t b = number_of(to);
    if (a == b) {
        error(fmt::format("a link joins '{}' with itself", printable(from, 60)));
        return;
    }
    if (links_.size() == kMostLinks) {
        throw ConfigError({Diagnostic{file_, line_, line_ > 0 ? 1 : 0, fmt::format("more than {} links", kMostLinks),
                                      ErrorCode::malformed_trace}});
    }
    vertices_[a].links += count;
    vertices_[b].links += count;
    links_.push_back({a, b, rate, latency, count, line_});
}

double GraphText::value_of(const std::string& text, double unit, Dimension dimension, const char* what) {
    if (text.empty()) {
        return -1;
    }
    double value = 0;
    std::string problem;
    if (unit > 0 && parse_number(text, value)) {
        value *= unit;
    } else if (!parse_quantity(text, dimension, value, problem)) {
        error(fmt::format("'{}' is no {}{}", printable(text, 60), what, problem.empty() ? "" : ": " + problem));
        return std::numeric_limits<double>::quiet_NaN();
    }
    const bool is_rate = dimension == Dimension::rate;
    if (!(is_rate ? value >= 1 && value <= kFastest : value >= 0 && value <= 1)) {
        error(fmt::format("{} '{}' is out of range: {}", what, printable(text, 60),
                          is_rate ? "1 B/s to 100 TB/s" : "0 s to 1 s"));
        return std::numeric_limits<double>::quiet_NaN();
    }
    return value;
}

double GraphText::rate(const std::string& text, double unit) {
    return value_of(text, unit, Dimension::rate, "rate");
}

double GraphText::latency(const std::string& text, double unit) {
    return value_of(text, unit, Dimension::time, "latency");
}

// Says of every vertex of unknown kind what it is.
void GraphText::tell_hosts(ImportNotes& notes) {
    const bool told = std::any_of(vertices_.begin(), vertices_.end(),
                                  [](const Vertex& vertex) { return vertex.kind == Kind::host || vertex.nodes > 0; });
    for (Vertex& vertex : vertices_) {
        if (vertex.kind != Kind::unknown) {
            continue;
        }
        const bool host = !told && vertex.links == 1;
        vertex.kind = host ? Kind::host : Kind::nodes_on_switch;
        if (host) {
            notes.assumed("hosts: vertices with one link, as the file does not name its hosts");
        }
    }
}

void GraphText::take_defaults(const ImportInput& input, ImportNotes& notes) {
    constexpr double kLatency = 500e-9;
    const double rate_given = rate(input.option("rate"));
    const double latency_given = latency(input.option("latency"));
    for (Link& link : links_) {
        line_ = link.line;
        if (link.rate < 0 && rate_given < 0) {
            error(fmt::format("the link from '{}' to '{}' has no rate (--rate gives one to all that have none)",
                              printable(vertices_[link.from].name, 60), printable(vertices_[link.to].name, 60)));
            link.rate = std::numeric_limits<double>::quiet_NaN();
        } else if (link.rate < 0) {
            link.rate = rate_given;
            notes.assumed("rates of links: those of --rate");
        }
        if (link.latency < 0) {
            link.latency = latency_given < 0 ? kLatency : latency_given;
            notes.assumed(latency_given < 0 ? "latencies of links: 500 ns" : "latencies of links: those of --latency");
        }
    }
}

// Every vertex that no path joins with the first is told, of each part one.
void GraphText::require_paths() {
    std::vector<std::size_t> part(vertices_.size());
    std::iota(part.begin(), part.end(), std::size_t{0});
    const auto root = [&](std::size_t i) {
        while (part[i] != i) {
            i = part[i] = part[part[i]];
        }
        return i;
    };
    for (const Link& link : links_) {
        const std::size_t a = root(link.from);
        const std::size_t b = root(link.to);
        part[std::max(a, b)] = std::min(a, b);
    }
    for (std::size_t i = 1; i < vertices_.size(); ++i) {
        if (root(i) == i && vertices_[i].links > 0) {
            line_ = vertices_[i].line;
            error(fmt::format("no path from '{}' to '{}'", printable(vertices_[0].name, 60),
                              printable(vertices_[i].name, 60)));
        }
    }
}

Imported GraphText::as_scenario(const ImportInput& input, const char* format, ImportNotes notes) {
    line_ = 0;
    tell_hosts(notes);
    take_defaults(input, notes);
    require_paths();
    // Hosts hang on the one switch that their links name; equal links of all of them are the fabric's.
    constexpr std::size_t kNone = SIZE_MAX;
    std::vector<std::size_t> switch_of(vertices_.size(), kNone);
    double host_rate = -1;
    double host_latency = -1;
    std::string lines;
    for (const Link& link : links_) {
        line_ = link.line;
        const bool from_host = vertices_[link.from].kind == Kind::host;
        const bool to_host = vertices_[link.to].kind == Kind::host;
        if (!from_host && !to_host) {
            lines += fmt::format("      - {{from: {}, to: {}, link: {}, latency: {}{}}}\n",
                                 yaml_name(vertices_[link.from].name), yaml_name(vertices_[link.to].name),
                                 rate_text(link.rate), latency_text(link.latency),
                                 link.count > 1 ? fmt::format(", count: {}", link.count) : "");
            continue;
        }
        const std::size_t host = from_host ? link.from : link.to;
        const std::size_t other = from_host ? link.to : link.from;
        const std::string name = printable(vertices_[host].name, 60);
        if (from_host && to_host) {
            error(fmt::format("hosts '{}' and '{}' are joined without a switch", name,
                              printable(vertices_[other].name, 60)));
        } else if (switch_of[host] != kNone && switch_of[host] != other) {
            error(
                fmt::format("host '{}' hangs on two switches: in 'kind: graph' a host has one ('kind: rail-only' and "
                            "'leaf-spine' with 'rails' know several)",
                            name));
        } else if (std::isnan(link.rate) || std::isnan(link.latency)) {
            // said already
        } else if (host_rate >= 0 && (link.rate != host_rate || link.latency != host_latency)) {
            error(fmt::format(
                "the link of host '{}' ({}, {}) is not like those before it ({}, {}): all hosts have "
                "equal links",
                name, pretty_quantity(link.rate, Dimension::rate), pretty_quantity(link.latency, Dimension::time),
                pretty_quantity(host_rate, Dimension::rate), pretty_quantity(host_latency, Dimension::time)));
        } else {
            host_rate = link.rate;
            host_latency = link.latency;
            vertices_[other].nodes += link.count;
            if (switch_of[host] == other || link.count > 1) {
                notes.assumed("hosts: one for each link of a host that has several");
            }
        }
        switch_of[host] = other;
    }
    std::uint64_t hosts = 0;
    std::uint64_t switches = 0;
    std::string switch_lines;
    for (std::size_t i = 0; i < vertices_.size(); ++i) {
        const Vertex& vertex = vertices_[i];
        line_ = vertex.line;
        if (vertex.kind == Kind::host) {
            if (switch_of[i] == kNone) {
                error(fmt::format("host '{}' has no link", printable(vertex.name, 60)));
            }
            continue;
        }
        ++switches;
        hosts += vertex.nodes;
        switch_lines += vertex.nodes > 0
                            ? fmt::format("      - {{name: {}, nodes: {}}}\n", yaml_name(vertex.name), vertex.nodes)
                            : fmt::format("      - {{name: {}}}\n", yaml_name(vertex.name));
    }
    line_ = 0;
    if (host_rate < 0) {
        host_rate = rate(input.option("rate"));
        if (host_rate < 0 && hosts > 0) {
            error("hosts have no links of their own in the file: --rate gives theirs");
        }
    }
    if (hosts < 2 && errors_.empty()) {
        error(fmt::format("{} hosts: traffic needs two", hosts));
    }
    if (!errors_.empty()) {
        throw ConfigError(errors_);
    }
    Imported out;
    out.text = fmt::format(
        "# How long does it take until every host has sent 16 MiB to another one? Written by 'orrery import {}'.\n"
        "orrery: 1\nkind: network\ncluster:\n  hosts: {}\n  fabric:\n    kind: graph\n    link: {}\n{}    "
        "switches:\n{}",
        format, hosts, rate_text(host_rate),
        host_latency >= 0 ? fmt::format("    latency: {}\n", latency_text(host_latency)) : "", switch_lines);
    out.text += (lines.empty() ? "" : "    links:\n" + lines) + "traffic: {pattern: permutation, size: 16 MiB}\n";
    out.scenario = true;
    out.use = "'orrery run' as it is, or its 'cluster:' in another scenario";
    out.facts = {{"hosts", std::to_string(hosts)}, {"switches", std::to_string(switches)}};
    notes.read("vertices", vertices_.size());
    notes.read("links", links_.size());
    out.notes = std::move(notes);
    return out;
}

}  // namespace orrery::imports
