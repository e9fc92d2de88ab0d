// GraphML (Brandes et al., "GraphML Progress Report", GD 2001; http://graphml.graphdrawing.org) as a fabric, as Boost.Graph reads
// it.
//
// Attributes, by attr.name and without regard to case. Of vertices: type (host or switch), nodes (that hang on it), label.
// Of edges: rate, bandwidth or capacity (with a unit), LinkSpeedRaw (bit/s, as the Internet Topology Zoo has it), latency,
// count. Others are left out. Edges go both ways.

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "workloads/replay/importers/graph_text.hpp"

#include <fmt/format.h>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/graphml.hpp>
#include <boost/make_shared.hpp>
#include <boost/property_tree/detail/xml_parser_error.hpp>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>
#include <sstream>

namespace orrery::inline replay {

namespace {

template <class Directed>
using Graph = boost::adjacency_list<boost::vecS, boost::vecS, Directed, boost::no_property,
                                    boost::property<boost::edge_index_t, std::size_t>>;
using Attributes = std::map<std::string, std::string>;  // by lower-case name

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

std::string text_of(const boost::any& value) {
    if (const auto* text = boost::any_cast<std::string>(&value)) {
        return *text;
    }
    const auto number = [&](auto like) -> std::optional<std::string> {
        const auto* is = boost::any_cast<decltype(like)>(&value);
        return is != nullptr ? std::optional(fmt::format("{}", *is)) : std::nullopt;
    };
    for (const auto& text : {number(int{}), number(long{}), number(float{}), number(double{}), number(bool{})}) {
        if (text) {
            return *text;
        }
    }
    return "";
}

// What a file says of vertices and edges, in its order.
template <class Directed>
struct Read {
    Graph<Directed> graph;
    std::map<typename Graph<Directed>::vertex_descriptor, Attributes> vertices;
    std::map<typename Graph<Directed>::edge_descriptor, Attributes> edges;
};

// An attribute of vertices or of edges: whatever type the file gives it, its value as text.
template <class Key>
class AttributeMap final : public boost::dynamic_property_map {
  public:
    AttributeMap(const std::string& name, std::map<Key, Attributes>& of) : name_(lower(name)), of_(of) {}
    boost::any get(const boost::any&) override { return std::string(); }
    std::string get_string(const boost::any&) override { return ""; }
    void put(const boost::any& key, const boost::any& value) override {
        of_[boost::any_cast<Key>(key)][name_] = text_of(value);
    }
    [[nodiscard]] const std::type_info& key() const override { return typeid(Key); }
    [[nodiscard]] const std::type_info& value() const override { return typeid(std::string); }

  private:
    std::string name_;
    std::map<Key, Attributes>& of_;
};

// The parser calls itself for each level of elements.
void require_shallow(const std::string& text, const std::string& file) {
    constexpr int kDeepest = 64;
    int depth = 0;
    int line = 1;
    for (std::size_t i = 0; i + 1 < text.size(); ++i) {
        line += text[i] == '\n' ? 1 : 0;
        if (text[i] == '<' && text[i + 1] == '/') {
            --depth;
        } else if (text[i] == '<' && text[i + 1] != '!' && text[i + 1] != '?') {
            const std::size_t end = text.find('>', i);
            depth += end != std::string::npos && text[end - 1] == '/' ? 0 : 1;
        }
        if (depth > kDeepest) {
            throw ConfigError({Diagnostic{file, line, 1, fmt::format("elements nest deeper than {}", kDeepest)}});
        }
    }
}

// What the library does not tell: the ids of vertices in the file's order, by which it numbers them, and ends of edges that are
// none of them, which it would make vertices.
struct Ids {
    std::vector<std::string> vertices;
    std::vector<int> lines;                                         ///< of vertices
    std::map<std::pair<std::string, std::string>, int> edge_lines;  ///< of the first edge between these
    std::vector<Diagnostic> errors;

    [[nodiscard]] int line_of(std::size_t vertex) const { return vertex < lines.size() ? lines[vertex] : 0; }
    [[nodiscard]] int line_of(std::size_t from, std::size_t to) const {
        if (std::max(from, to) >= vertices.size()) {
            return 0;
        }
        const auto found = edge_lines.find({vertices[from], vertices[to]});
        return found != edge_lines.end() ? found->second : 0;
    }
};

// The value of an XML attribute inside a tag.
std::string within(const std::string& tag, const std::string& name) {
    for (std::size_t at = tag.find(name + "="); at != std::string::npos; at = tag.find(name + "=", at + 1)) {
        const std::size_t from = at + name.size() + 2;
        if (std::isspace(static_cast<unsigned char>(tag[at - 1])) != 0 && from <= tag.size()) {
            return tag.substr(from, tag.find(tag[from - 1], from) - from);
        }
    }
    return "";
}

Ids ids_of(const std::string& text, const std::string& file) {
    Ids out;
    struct End {
        std::string id;
        int line;
    };
    std::vector<End> ends;
    std::set<std::string> known;
    int line = 1;
    for (std::size_t i = 0; i < text.size(); ++i) {
        line += text[i] == '\n' ? 1 : 0;
        if (text.compare(i, 4, "<!--") == 0) {
            const std::size_t end = std::min(text.find("-->", i), text.size());
            line += static_cast<int>(std::count(text.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                                text.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
            i = end;
            continue;
        }
        const bool vertex = text.compare(i, 5, "<node") == 0;
        if ((!vertex && text.compare(i, 5, "<edge") != 0) || i + 5 >= text.size() ||
            std::isspace(static_cast<unsigned char>(text[i + 5])) == 0) {
            continue;
        }
        const std::string tag = text.substr(i, text.find('>', i) - i);
        if (vertex) {
            out.vertices.push_back(within(tag, "id"));
            out.lines.push_back(line);
            known.insert(out.vertices.back());
        } else {
            ends.push_back({within(tag, "source"), line});
            ends.push_back({within(tag, "target"), line});
            out.edge_lines.emplace(std::pair(within(tag, "source"), within(tag, "target")), line);
        }
    }
    for (const End& end : ends) {
        if (!known.contains(end.id)) {
            const std::string nearest = nearest_name(end.id, out.vertices);
            out.errors.push_back(
                {file, end.line, 1,
                 fmt::format("an edge ends at '{}', which is not among the nodes{}", printable(end.id, 60),
                             nearest.empty() ? "" : " (did you mean '" + printable(nearest, 60) + "'?)")});
        }
    }
    return out;
}

// The value of the first of these attributes that is there; taken away, so that what stays was not read.
std::string take(Attributes& attributes, const std::vector<const char*>& names) {
    for (const char* name : names) {
        if (const auto found = attributes.find(name); found != attributes.end()) {
            std::string value = found->second;
            attributes.erase(found);
            return value;
        }
    }
    return "";
}

std::uint32_t whole(GraphText& graph, const std::string& text, const char* name, std::uint32_t otherwise) {
    double number = 0;
    if (text.empty()) {
        return otherwise;
    }
    if (!parse_number(text, number) || number != std::floor(number) || number < otherwise || number > 65536) {
        graph.error(fmt::format("'{}' must be a whole number from {} to 65536, not '{}'", name, otherwise,
                                printable(text, 60)));
        return otherwise;
    }
    return static_cast<std::uint32_t>(number);
}

void count_others(const Attributes& rest, const char* of, ImportNotes& notes) {
    for (const auto& [name, value] : rest) {
        notes.left_out(fmt::format("attribute {} of {}", printable(name, 40), of));
    }
}

// A map for each name of vertices or of edges, made when the reader meets it; what belongs to the whole graph goes nowhere.
template <class Directed>
boost::shared_ptr<boost::dynamic_property_map> map_for(Read<Directed>& read, const std::string& name,
                                                       const boost::any& key) {
    using Vertex = typename Graph<Directed>::vertex_descriptor;
    using Edge = typename Graph<Directed>::edge_descriptor;
    if (key.type() == typeid(Vertex)) {
        return boost::make_shared<AttributeMap<Vertex>>(name, read.vertices);
    }
    if (key.type() == typeid(Edge)) {
        return boost::make_shared<AttributeMap<Edge>>(name, read.edges);
    }
    return nullptr;
}

template <class Directed>
Imported read_as(const ImportInput& input, const std::string& text, const Ids& ids) {
    Read<Directed> read;
    boost::dynamic_properties attributes(
        [&](const std::string& name, const boost::any& key, const boost::any&) { return map_for(read, name, key); });
    try {
        std::istringstream stream(text);
        boost::read_graphml(stream, read.graph, attributes);
    } catch (const boost::property_tree::xml_parser::xml_parser_error& problem) {
        throw ConfigError({Diagnostic{input.path(), std::max(1, static_cast<int>(problem.line())), 1,
                                      "is no XML: " + printable(problem.message(), 200)}});
    } catch (const std::exception& problem) {
        throw ConfigError(
            {Diagnostic{input.path(), 1, 1, "is no GraphML that can be read: " + printable(problem.what(), 200)}});
    }
    if (!ids.errors.empty()) {
        throw ConfigError(ids.errors);
    }
    ImportNotes notes;
    GraphText graph(input.path());
    std::vector<std::string> names;
    std::map<std::string, int> seen;
    for (const auto vertex : boost::make_iterator_range(boost::vertices(read.graph))) {
        Attributes& own = read.vertices[vertex];
        std::string name = take(own, {"label", "name"});
        if (name.empty() && vertex < ids.vertices.size()) {
            name = ids.vertices[vertex];
        }
        if (name.empty() || ++seen[name] > 1) {
            name = fmt::format("{}{}", name.empty() ? "n" : name + "-", vertex);
        }
        names.push_back(name);
        graph.at(ids.line_of(vertex));
        const std::string type = lower(take(own, {"type", "kind"}));
        const std::uint32_t nodes = whole(graph, take(own, {"nodes", "hosts"}), "nodes", 0);
        GraphText::Kind kind = GraphText::Kind::unknown;
        if (type == "host" || type == "server" || type == "node" || type == "gpu") {
            kind = GraphText::Kind::host;
        } else if (type == "switch" || nodes > 0) {
            kind = GraphText::Kind::nodes_on_switch;
        }
        graph.add_vertex(name, kind, nodes);
        count_others(own, "vertices", notes);
    }
    for (const auto edge : boost::make_iterator_range(boost::edges(read.graph))) {
        Attributes& own = read.edges[edge];
        graph.at(ids.line_of(boost::source(edge, read.graph), boost::target(edge, read.graph)));
        const std::string raw = take(own, {"linkspeedraw"});
        double rate = graph.rate(take(own, {"rate", "bandwidth", "capacity"}));
        rate = rate < 0 ? graph.rate(raw, 1.0 / 8) : rate;
        const double latency = graph.latency(take(own, {"latency", "delay"}));
        const std::uint32_t count = whole(graph, take(own, {"count"}), "count", 1);
        graph.add_link(names[boost::source(edge, read.graph)], names[boost::target(edge, read.graph)], rate, latency,
                       count);
        count_others(own, "edges", notes);
    }
    return graph.as_scenario(input, "graphml", std::move(notes));
}

Imported read_graphml_file(const ImportInput& input) {
    const std::string text = input.bytes();
    require_shallow(text, input.path());
    const Ids ids = ids_of(text, input.path());
    // The library takes a graph of the kind that the file says, and no other.
    return text.find("edgedefault=\"undirected\"") == std::string::npos ? read_as<boost::directedS>(input, text, ids)
                                                                        : read_as<boost::undirectedS>(input, text, ids);
}

}  // namespace

extern const Importer kGraphMlImporter = {"graphml", "a graph of switches and hosts in GraphML, as a fabric",
                                          graph_options(), read_graphml_file, "yaml"};

}  // namespace orrery::inline replay
