// GraphML (Brandes et al., "GraphML Progress Report", GD 2001; http://graphml.graphdrawing.org) as a fabric.
//
// Attributes, by attr.name and without regard to case. Of vertices: type (host or switch), nodes (that hang on it), label.
// Of edges: rate, bandwidth or capacity (with a unit), LinkSpeedRaw (bit/s, as the Internet Topology Zoo has it), latency,
// count. Others are left out. Edges go both ways.
// Limits: the first graph of a file, with the graphs nested in it; hyperedges, ports and entities of a document type are not read.

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "workloads/imports/graph_text.hpp"
#include "workloads/imports/xml_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

namespace orrery::imports {

namespace {

constexpr std::size_t kMostKeys = 1000;  // every vertex may take the defaults of all

using Attributes = std::map<std::string, std::string>;  // by lower-case name

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
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

void count_others(const Attributes& rest, const char* of, ImportNotes& notes) {
    for (const auto& [name, value] : rest) {
        notes.left_out(fmt::format("attribute {} of {}", printable(name, 40), of));
    }
}

class GraphmlReader {
  public:
    explicit GraphmlReader(const ImportInput& input)
        : input_(input), text_(input.bytes()), xml_(text_, input.path()), graph_(input.path()) {}

    Imported run() {
        while (xml_.next()) {
            if (xml_.kind() == XmlText::Kind::open) {
                open();
            } else {
                close();
            }
        }
        if (graphs_ == 0) {
            throw ConfigError(
                {Diagnostic{input_.path(), 1, 1, "is no GraphML: it has no 'graph'", ErrorCode::malformed_trace}});
        }
        notes_.left_out("graphs after the first", graphs_ - 1);
        for (std::size_t i = 0; i < vertices_.size(); ++i) {
            add_vertex(i);
        }
        for (Part& edge : edges_) {
            add_edge(edge);
        }
        return graph_.as_scenario(input_, "graphml", std::move(notes_));
    }

  private:
    enum class Domain { vertices, edges, others };
    struct Key {
        std::string name;  // lower-case
        Domain domain = Domain::others;
        bool all = false;
        std::optional<std::string> otherwise;
    };
    // A vertex or an edge.
    struct Part {
        int line = 0;
        std::string id;  // of a vertex; of an edge, of its two ends
        std::string target;
        Attributes own;
        std::string name;  // of a vertex in the scenario
    };
    // What `data` inside an element belongs to.
    struct Owner {
        Domain domain = Domain::others;
        std::size_t number = 0;
    };

    void error(int line, const std::string& text) {
        graph_.error(Diagnostic{input_.path(), line, 1, text, ErrorCode::malformed_trace});
    }

    void open() {
        const std::string_view name = xml_.name();
        Owner owner;
        if (xml_.depth() == 1 && name != "graphml") {
            throw ConfigError({Diagnostic{input_.path(), xml_.line(), 1, "is no GraphML: its root is no 'graphml'",
                                          ErrorCode::malformed_trace}});
        }
        if (name == "key") {
            open_key();
        } else if (name == "graph" && xml_.depth() == 2) {
            ++graphs_;
        } else if (name == "data") {
            data_key_ = xml_.attribute("key");
            data_line_ = xml_.line();
        } else if (graphs_ > 1) {
            // a graph after the first
        } else if (name == "node") {
            owner = {Domain::vertices, vertices_.size()};
            vertices_.push_back({xml_.line(), xml_.attribute("id"), {}, {}, {}});
            if (!numbers_.emplace(vertices_.back().id, owner.number).second) {
                error(xml_.line(), fmt::format("node '{}' comes twice", printable(vertices_.back().id, 60)));
            }
        } else if (name == "edge") {
            owner = {Domain::edges, edges_.size()};
            edges_.push_back({xml_.line(), xml_.attribute("source"), xml_.attribute("target"), {}, {}});
        } else if (name == "hyperedge") {
            notes_.left_out("hyperedges");
        }
        owners_.push_back(owner);
    }

    void open_key() {
        const std::string id = xml_.attribute("id");
        const std::string name = xml_.attribute("attr.name");
        const std::string domain = xml_.attribute("for");
        if (keys_.size() == kMostKeys) {
            throw ConfigError({Diagnostic{input_.path(), xml_.line(), 1, fmt::format("more than {} keys", kMostKeys),
                                          ErrorCode::malformed_trace}});
        }
        Key key;
        key.name = lower(name.empty() ? id : name);
        key.all = domain.empty() || domain == "all";
        key.domain = domain == "node" ? Domain::vertices : domain == "edge" ? Domain::edges : Domain::others;
        if (!keys_.emplace(id, std::move(key)).second) {
            error(xml_.line(), fmt::format("key '{}' comes twice", printable(id, 60)));
        }
        key_ = id;
    }

    void close() {
        const std::string_view name = xml_.name();
        ORRERY_ASSERT(!owners_.empty());
        owners_.pop_back();
        if (name == "default" && xml_.parent() == "key") {
            keys_[key_].otherwise = xml_.text();
        } else if (name == "data" && !owners_.empty()) {
            const Owner owner = owners_.back();
            if (owner.domain != Domain::others) {
                add_data(owner.domain == Domain::vertices ? vertices_[owner.number] : edges_[owner.number]);
            }
        }
    }

    void add_data(Part& part) {
        const auto key = keys_.find(data_key_);
        if (key == keys_.end()) {
            error(data_line_, fmt::format("key '{}' of this data is not among the keys", printable(data_key_, 60)));
        } else if (!part.own.emplace(key->second.name, xml_.text()).second) {
            error(data_line_, fmt::format("attribute '{}' comes twice", printable(key->second.name, 60)));
        }
    }

    void add_defaults(Part& part, Domain domain) {
        for (const auto& [id, key] : keys_) {
            if (key.otherwise && (key.all || key.domain == domain)) {
                part.own.emplace(key.name, *key.otherwise);
            }
        }
    }

    std::uint32_t whole(const std::string& text, const char* name, std::uint32_t otherwise) {
        double number = 0;
        if (text.empty()) {
            return otherwise;
        }
        if (!parse_number(text, number) || number != std::floor(number) || number < otherwise || number > 65536) {
            graph_.error(fmt::format("'{}' must be a whole number from {} to 65536, not '{}'", name, otherwise,
                                     printable(text, 60)));
            return otherwise;
        }
        return static_cast<std::uint32_t>(number);
    }

    void add_vertex(std::size_t number) {
        Part& vertex = vertices_[number];
        add_defaults(vertex, Domain::vertices);
        vertex.name = take(vertex.own, {"label", "name"});
        if (vertex.name.empty()) {
            vertex.name = vertex.id;
        }
        while (vertex.name.empty() || !names_.insert(vertex.name).second) {
            vertex.name = fmt::format("{}{}", vertex.name.empty() ? "n" : vertex.name + "-", number);
        }
        graph_.at(vertex.line);
        const std::string type = lower(take(vertex.own, {"type", "kind"}));
        const std::uint32_t nodes = whole(take(vertex.own, {"nodes", "hosts"}), "nodes", 0);
        GraphText::Kind kind = GraphText::Kind::unknown;
        if (type == "host" || type == "server" || type == "node" || type == "gpu") {
            kind = GraphText::Kind::host;
        } else if (type == "switch" || nodes > 0) {
            kind = GraphText::Kind::nodes_on_switch;
        }
        graph_.add_vertex(vertex.name, kind, nodes);
        count_others(vertex.own, "vertices", notes_);
    }

    // The name of the vertex with this id; empty, with an error, where there is none.
    std::string end_of(const Part& edge, const std::string& id) {
        if (const auto found = numbers_.find(id); found != numbers_.end()) {
            return vertices_[found->second].name;
        }
        std::vector<std::string> ids;
        for (const Part& vertex : vertices_) {
            ids.push_back(vertex.id);
        }
        const std::string nearest = nearest_name(id, ids);
        error(edge.line, fmt::format("an edge ends at '{}', which is not among the nodes{}", printable(id, 60),
                                     nearest.empty() ? "" : " (did you mean '" + printable(nearest, 60) + "'?)"));
        return "";
    }

    void add_edge(Part& edge) {
        graph_.at(edge.line);
        add_defaults(edge, Domain::edges);
        const std::string from = end_of(edge, edge.id);
        const std::string to = end_of(edge, edge.target);
        const std::string raw = take(edge.own, {"linkspeedraw"});
        double rate = graph_.rate(take(edge.own, {"rate", "bandwidth", "capacity"}));
        rate = rate < 0 ? graph_.rate(raw, 1.0 / 8) : rate;
        const double latency = graph_.latency(take(edge.own, {"latency", "delay"}));
        const std::uint32_t count = whole(take(edge.own, {"count"}), "count", 1);
        if (!from.empty() && !to.empty()) {
            graph_.add_link(from, to, rate, latency, count);
        }
        count_others(edge.own, "edges", notes_);
    }

    const ImportInput& input_;
    const std::string text_;
    XmlText xml_;
    GraphText graph_;
    ImportNotes notes_;
    std::uint64_t graphs_ = 0;
    std::map<std::string, Key> keys_;  ///< by id
    std::string key_;                  ///< id of the one that is open
    std::string data_key_;
    int data_line_ = 0;
    std::vector<Owner> owners_;  ///< of the elements that are open
    std::vector<Part> vertices_;
    std::vector<Part> edges_;
    std::unordered_map<std::string, std::size_t> numbers_;  ///< of vertices, by id
    std::unordered_set<std::string> names_;
};

}  // namespace

extern const Importer kGraphMlImporter = {"graphml", "a graph of switches and hosts in GraphML, as a fabric",
                                          graph_options(),
                                          [](const ImportInput& input) { return GraphmlReader(input).run(); }, "yaml"};

}  // namespace orrery::imports
