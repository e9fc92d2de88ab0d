// InfraGraph (Keysight; https://infragraph.dev, schema of openapi.yaml): devices, instances of them and the links between
// instances, in YAML or JSON, as a fabric.
//
// Claims: what joins instances. Instances of a device with a component of type npu, xpu, gpu or cpu are hosts, the others switches;
// what is inside a device is left out. Both forms of links: `edges` (two end points in slice notation and a scheme) and
// `connections` ("server.0.nic.1.eth.leaf.0.port.3") of earlier versions. Names may stand with or without underscores.

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "sim/config/yaml_tree.hpp"
#include "workloads/imports/config_text.hpp"
#include "workloads/imports/graph_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace orrery::imports {

namespace {

constexpr std::uint32_t kMostOfAKind = 1U << 20U;
constexpr std::size_t kMostJoined = 1U << 21U;  // end points and pairs of them, of the whole file

std::string scalar(const YamlNode& node, const char* key) {
    const YamlNode* found = node.find(key);
    return found != nullptr && found->kind == YamlNode::Kind::scalar ? found->scalar : "";
}

const std::vector<YamlNode>& list(const YamlNode& node, const char* key) {
    static const std::vector<YamlNode> kNone;
    const YamlNode* found = node.find(key);
    return found != nullptr && found->kind == YamlNode::Kind::sequence ? found->items : kNone;
}

std::string without_underscores(std::string text) {
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    return text;
}

struct LinkKind {
    double rate = -1;
    double latency = -1;
};

struct Device {
    bool computes = false;
    std::map<std::string, std::uint32_t> components;  ///< how many of each
};

struct Instance {
    std::uint32_t count = 1;
    const Device* device = nullptr;
};

// A name with a slice of Python behind it: "nic[0:2]", "leaf[3]", "port[:]", "asic".
struct Slice {
    std::string name;
    std::uint32_t first = 0;
    std::uint32_t last = 0;  // one beyond
};

class InfragraphReader {
  public:
    explicit InfragraphReader(const ImportInput& input)
        : input_(input),
          graph_(input.path()),
          root_(expected_yaml(input.bytes(), input.path(),
                              "'infrastructure' or the instances and edges of an InfraGraph description")) {}

    Imported read() {
        const YamlNode* inside = root_.find("infrastructure");
        const YamlNode& top = inside != nullptr ? *inside : root_;
        if (top.kind != YamlNode::Kind::map) {
            throw ConfigError({root_.mark.error("is no map with 'instances' and 'edges'", ErrorCode::malformed_trace)});
        }
        read_links(top);
        read_instances(top);
        for (const YamlNode& edge : list(top, "edges")) {
            add_edge(edge);
        }
        for (const YamlNode& connection : list(top, "connections")) {
            add_connection(connection);
        }
        notes_.left_out("what is inside devices", list(top, "devices").size());
        notes_.left_out("annotations", list(top, "annotations").size());
        for (const auto& [ends, joined] : between_) {
            graph_.add_link(ends.first, ends.second, joined.first.rate, joined.first.latency, joined.second);
        }
        return graph_.as_scenario(input_, "infragraph", std::move(notes_));
    }

  private:
    static std::string names_of(const std::vector<std::pair<const char*, double>>& units) {
        std::string out;
        for (const auto& [name, factor] : units) {
            out += (out.empty() ? "" : ", ") + std::string(name);
        }
        return out;
    }

    // The number under the first key that, without underscores, is one of these; times its factor.
    double physical(const YamlNode* of, double least, const std::vector<std::pair<const char*, double>>& units) {
        if (of == nullptr) {
            return -1;
        }
        for (const YamlNode::Entry& entry : of->entries) {
            for (const auto& [name, factor] : units) {
                double number = 0;
                if (without_underscores(entry.key) != name) {
                    continue;
                }
                if (!parse_number(entry.value.scalar, number) || number < least) {
                    error(entry.value,
                          fmt::format("'{}' must be a number {}, not '{}'", printable(entry.key, 60),
                                      least > 0 ? "above 0" : "from 0", printable(entry.value.scalar, 60)));
                    return std::numeric_limits<double>::quiet_NaN();
                }
                return number * factor;
            }
        }
        error(*of, fmt::format("none of the units that are read here: {}", names_of(units)));
        return std::numeric_limits<double>::quiet_NaN();
    }

    void read_links(const YamlNode& top) {
        for (const YamlNode& link : list(top, "links")) {
            const YamlNode* inside = link.find("physical");
            const YamlNode& at = inside != nullptr ? *inside : link;
            LinkKind kind;
            kind.rate = physical(at.find("bandwidth"), 1e-9,
                                 {{"gigabitspersecond", 1e9 / 8},
                                  {"gbitspersecond", 1e9 / 8},
                                  {"gigabytespersecond", 1e9},
                                  {"gbytespersecond", 1e9}});
            kind.latency = physical(at.find("latency"), 0, {{"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}});
            if (!links_.emplace(scalar(link, "name"), kind).second) {
                error(link, fmt::format("link '{}' comes twice", printable(scalar(link, "name"), 60)));
            }
        }
    }

    std::uint32_t count_in(const YamlNode& node) {
        const std::string text = scalar(node, "count");
        double count = 1;
        if (!text.empty() &&
            (!parse_number(text, count) || count != std::floor(count) || count < 1 || count > kMostOfAKind)) {
            error(node, fmt::format("'count' must be a whole number from 1 to {}, not '{}'", kMostOfAKind,
                                    printable(text, 60)));
            return 1;
        }
        return static_cast<std::uint32_t>(count);
    }

    void add_instance(const YamlNode& node, const Device* device) {
        const std::string name = scalar(node, "name");
        if (!instances_.emplace(name, Instance{count_in(node), device}).second) {
            error(node, fmt::format("instance '{}' comes twice", printable(name, 60)));
        }
    }

    void read_device(const YamlNode& node) {
        const std::string name = scalar(node, "name");
        const auto [device, fresh] = devices_.try_emplace(name);
        if (!fresh) {
            error(node, fmt::format("device '{}' comes twice", printable(name, 60)));
        }
        static const std::set<std::string> kComputes = {"npu", "xpu", "gpu", "cpu", "accelerator"};
        for (const YamlNode& component : list(node, "components")) {
            const YamlNode* choice = component.find("choice");
            device->second.computes = device->second.computes || kComputes.contains(scalar(component, "type")) ||
                                      (choice != nullptr && kComputes.contains(choice->scalar));
            if (!device->second.components.emplace(scalar(component, "name"), count_in(component)).second) {
                error(component, fmt::format("component '{}' comes twice", printable(scalar(component, "name"), 60)));
            }
        }
        for (const YamlNode& instance : list(node, "instances")) {  // earlier versions
            add_instance(instance, &device->second);
        }
    }

    void read_instances(const YamlNode& top) {
        for (const YamlNode& device : list(top, "devices")) {
            read_device(device);
        }
        for (const YamlNode& instance : list(top, "instances")) {
            const std::string device = scalar(instance, "device");
            const auto found = devices_.find(device);
            if (found == devices_.end()) {
                error(instance, fmt::format("device '{}' is not among 'devices'", printable(device, 60)));
            }
            add_instance(instance, found == devices_.end() ? nullptr : &found->second);
        }
        if (instances_.empty()) {
            throw ConfigError({top.mark.error("has no 'instances'", ErrorCode::malformed_trace)});
        }
    }

    std::optional<Slice> slice(const YamlNode& node, const std::string& text, std::uint32_t count) {
        Slice out;
        const std::size_t open = text.find('[');
        out.name = text.substr(0, open);
        out.last = count;
        if (open == std::string::npos) {
            return out;
        }
        const std::string inside = text.substr(open + 1, text.find(']', open) - open - 1);
        const std::size_t colon = inside.find(':');
        const auto whole = [&](const std::string& digits, std::uint32_t otherwise) -> std::optional<std::uint32_t> {
            double number = 0;
            if (digits.empty()) {
                return otherwise;
            }
            if (!parse_number(digits, number) || number != std::floor(number) || number < 0 || number > count) {
                return std::nullopt;
            }
            return static_cast<std::uint32_t>(number);
        };
        const auto first = whole(inside.substr(0, colon), 0);
        const auto last = colon == std::string::npos ? whole(inside, 0) : whole(inside.substr(colon + 1), count);
        if (text.back() != ']' || !first || !last ||
            (colon == std::string::npos && (inside.empty() || *last >= count))) {
            error(node, fmt::format("'{}' is no slice within {}, such as name[0:2]", printable(text, 60), count));
            return std::nullopt;
        }
        out.first = *first;
        out.last = colon == std::string::npos ? *last + 1 : *last;
        return out;
    }

    // The vertex of every end point, one for each component of each instance.
    std::vector<std::string> ends(const YamlNode* end) {
        std::vector<std::string> out;
        if (end == nullptr) {
            return out;
        }
        const std::string text = scalar(*end, "instance");
        const std::string name = text.substr(0, text.find('['));
        const auto found = instances_.find(name);
        if (found == instances_.end()) {
            unknown_instance(*end, name);
            return out;
        }
        const auto instances = slice(*end, text, found->second.count);
        const std::string component = scalar(*end, "component");
        const auto count = count_of(*end, found->second, component.substr(0, component.find('[')));
        const auto components = count ? slice(*end, component, *count) : std::nullopt;
        if (!instances || !components) {
            return out;
        }
        use(*end, std::uint64_t{instances->last - instances->first} * (components->last - components->first));
        for (std::uint32_t i = instances->first; i < instances->last; ++i) {
            out.insert(out.end(), components->last - components->first, vertex(name, found->second, i));
        }
        return out;
    }

    // What edges cost beyond the size of the file.
    void use(const YamlNode& node, std::uint64_t joined) {
        joined_ += joined;
        if (joined_ > kMostJoined) {
            throw ConfigError({node.mark.error(
                fmt::format("the edges up to this one have more than {} end points and pairs of them", kMostJoined),
                ErrorCode::malformed_trace)});
        }
    }

    // How many of a component the device has; nothing, with an error, where it has none.
    std::optional<std::uint32_t> count_of(const YamlNode& node, const Instance& instance,
                                          const std::string& component) {
        if (instance.device == nullptr || component.empty()) {
            return 1;
        }
        const auto found = instance.device->components.find(component);
        if (found == instance.device->components.end()) {
            std::vector<std::string> names;
            for (const auto& [one, count] : instance.device->components) {
                names.push_back(one);
            }
            const std::string guess = nearest_name(component, names);
            error(node, fmt::format("component '{}' is not among those of the device{}", printable(component, 60),
                                    guess.empty() ? "" : fmt::format(" (did you mean '{}'?)", printable(guess, 60))));
            return std::nullopt;
        }
        return found->second;
    }

    std::string vertex(const std::string& name, const Instance& instance, std::uint32_t number) {
        const std::string full = fmt::format("{}.{}", name, number);
        if (made_.insert(full).second) {
            graph_.add_vertex(full, instance.device != nullptr && instance.device->computes
                                        ? GraphText::Kind::host
                                        : GraphText::Kind::nodes_on_switch);
        }
        return full;
    }

    void join(const YamlNode& node, const std::string& from, const std::string& to, const std::string& link) {
        const auto kind = links_.find(link);
        if (kind == links_.end()) {
            error(node, fmt::format("link '{}' is not among 'links'", printable(link, 60)));
            return;
        }
        auto& joined = between_[from < to ? std::pair(from, to) : std::pair(to, from)];
        if (joined.second > 0 && (joined.first.rate != kind->second.rate)) {
            error(node, fmt::format("'{}' and '{}' are joined at two rates", from, to));
        }
        joined.first = kind->second;
        ++joined.second;
    }

    void add_edge(const YamlNode& edge) {
        const std::vector<std::string> from = ends(edge.find("ep1"));
        const std::vector<std::string> to = ends(edge.find("ep2"));
        const std::string scheme = without_underscores(scalar(edge, "scheme"));
        const bool all = scheme == "many2many" || scheme == "manytomany" || scalar(edge, "many2many") == "true";
        const std::string link = scalar(edge, "link");
        if (!scheme.empty() && !all && scheme != "one2one" && scheme != "onetoone") {
            error(edge, fmt::format("scheme '{}' is not read; one2one and many2many are", printable(scheme, 60)));
        } else if (!all && from.size() != to.size()) {
            error(edge, fmt::format("joins {} end points with {} one by one", from.size(), to.size()));
        } else {
            use(edge, all ? std::uint64_t{from.size()} * to.size() : from.size());
            for (std::size_t i = 0; i < from.size(); ++i) {
                for (std::size_t j = all ? 0 : i; j < (all ? to.size() : i + 1); ++j) {
                    join(edge, from[i], to[j], link);
                }
            }
        }
    }

    // instance.index.component.index.link.instance.index.component.index
    void add_connection(const YamlNode& connection) {
        const std::vector<std::string_view> parts = split(connection.scalar, '.');
        if (parts.size() != 9) {
            error(connection, fmt::format("'{}' is not instance.0.component.0.link.instance.0.component.0",
                                          printable(connection.scalar, 100)));
            return;
        }
        const auto end = [&](std::size_t at) -> std::string {
            const std::string name(parts[at]);
            const auto found = instances_.find(name);
            double number = 0;
            if (found == instances_.end()) {
                unknown_instance(connection, name);
                return "";
            }
            if (!parse_number(std::string(parts[at + 1]), number) || number != std::floor(number) || number < 0 ||
                number >= kMostOfAKind) {
                error(connection, fmt::format("'{}' is no number of an instance", printable(parts[at + 1], 60)));
                return "";
            }
            return vertex(name, found->second, static_cast<std::uint32_t>(number));
        };
        const std::string from = end(0);
        const std::string to = end(5);
        if (!from.empty() && !to.empty()) {
            join(connection, from, to, std::string(parts[4]));
        }
    }

    void unknown_instance(const YamlNode& node, const std::string& name) {
        std::vector<std::string> names;
        for (const auto& [one, instance] : instances_) {
            names.push_back(one);
        }
        const std::string guess = nearest_name(name, names);
        error(node, fmt::format("instance '{}' is not among 'instances'{}", printable(name, 60),
                                guess.empty() ? "" : fmt::format(" (did you mean '{}'?)", guess)));
    }

    void error(const YamlNode& node, const std::string& text) {
        graph_.at(node.mark.line);
        graph_.error(node.mark.error(text, ErrorCode::malformed_trace));
    }

    const ImportInput& input_;
    GraphText graph_;
    YamlNode root_;
    ImportNotes notes_;
    std::map<std::string, LinkKind> links_;
    std::map<std::string, Device> devices_;
    std::map<std::string, Instance> instances_;
    std::uint64_t joined_ = 0;
    std::set<std::string> made_;
    /// How two vertices are joined, and by how many links.
    std::map<std::pair<std::string, std::string>, std::pair<LinkKind, std::uint32_t>> between_;
};

Imported read_infragraph(const ImportInput& input) {
    return InfragraphReader(input).read();
}

}  // namespace

extern const Importer kInfraGraphImporter = {"infragraph", "an InfraGraph description (YAML or JSON), as a fabric",
                                             graph_options(), read_infragraph, "yaml"};

}  // namespace orrery::imports
