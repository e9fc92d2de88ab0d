#include "sim/network/topology/product.hpp"

#include "sim/base/error.hpp"
#include "sim/network/topology/shape.hpp"

#include <algorithm>
#include <charconv>

namespace orrery::network {

namespace {

// Links that leave a node in a dimension.
std::uint32_t links_out(const ProductDimension& dimension) {
    switch (dimension.kind) {
        case DimensionKind::ring:
        case DimensionKind::line:
            return dimension.size > 2 ? 2 : dimension.size - 1;
        case DimensionKind::fully_connected:
            return dimension.size - 1;
        case DimensionKind::crossbar:
            return 1;
    }
    return 1;
}

}  // namespace

ProductTopology::ProductTopology(const FabricShape& shape, std::vector<ProductDimension> dimensions, std::string name)
    : RoutedTopology(0),
      dimensions_(std::move(dimensions)),
      name_(std::move(name)),
      nodes_(shape.nodes),
      nics_per_node_(std::max(1U, shape.nics_per_node)),
      switches_(shape.nodes) {
    double links = 0;
    for (ProductDimension& dimension : dimensions_) {
        links += static_cast<double>(nodes_) * links_out(dimension);
        // Both ways round a ring of two are the same link.
        if (dimension.kind == DimensionKind::ring && dimension.size == 2) {
            dimension.kind = DimensionKind::line;
        }
    }
    if (links > 2e8) {
        throw InfeasibleError("the fabric has more than 200 million links between nodes");
    }
    tables_.resize(dimensions_.size());
    std::uint32_t stride = 1;
    for (std::size_t d = 0; d < dimensions_.size(); ++d) {
        tables_[d].stride = stride;
        stride *= dimensions_[d].size;
        add_dimension(d);
    }
    ORRERY_ASSERT(stride == nodes_);
}

// A full mesh has millions of links: they are computed, and only their rates are stored.
void ProductTopology::add_dimension(std::size_t d) {
    const ProductDimension& dimension = dimensions_[d];
    Table& table = tables_[d];
    const std::uint32_t n = dimension.size;
    const std::uint32_t lines = nodes_ / n;
    ORRERY_ASSERT(lines * n == nodes_);
    const auto add = [&](std::uint32_t of_line) {
        const auto first = static_cast<std::uint32_t>(capacities_.size());
        capacities_.resize(capacities_.size() + static_cast<std::size_t>(lines) * of_line, dimension.rate);
        return first;
    };
    switch (dimension.kind) {
        case DimensionKind::ring:
        case DimensionKind::line: {
            const std::uint32_t links = dimension.kind == DimensionKind::ring ? n : n - 1;
            table.first_link = add(links);
            table.second_link = add(links);
            break;
        }
        case DimensionKind::fully_connected:
            table.first_link = add(n * (n - 1));
            break;
        case DimensionKind::crossbar:
            table.first_switch = switches_;
            switches_ += lines;
            table.first_link = add(n);
            table.second_link = add(n);
            break;
    }
}

SwitchLink ProductTopology::link(std::uint32_t number) const {
    std::size_t d = dimensions_.size() - 1;
    while (tables_[d].first_link > number) {
        ORRERY_ASSERT(d > 0);
        --d;
    }
    const ProductDimension& dimension = dimensions_[d];
    const Table& table = tables_[d];
    const std::uint32_t n = dimension.size;
    const bool second = dimension.kind != DimensionKind::fully_connected && number >= table.second_link;
    const std::uint32_t place = number - (second ? table.second_link : table.first_link);
    SwitchLink out{0, 0, dimension.rate, dimension.latency};
    switch (dimension.kind) {
        case DimensionKind::ring:
        case DimensionKind::line: {
            const std::uint32_t links = dimension.kind == DimensionKind::ring ? n : n - 1;
            out.from = node(d, place / links, place % links);
            out.to = node(d, place / links, (place % links + 1) % n);
            break;
        }
        case DimensionKind::fully_connected: {
            const std::uint32_t from = place / (n - 1);
            out.from = node(d, from / n, from % n);
            out.to = node(d, from / n, (from % n + place % (n - 1) + 1) % n);
            break;
        }
        case DimensionKind::crossbar:
            out.from = node(d, place / n, place % n);
            out.to = table.first_switch + place / n;
            break;
    }
    if (second) {
        std::swap(out.from, out.to);
    }
    return out;
}

LinkTurn ProductTopology::turn(std::uint32_t number) const {
    std::size_t d = dimensions_.size() - 1;
    while (tables_[d].first_link > number) {
        ORRERY_ASSERT(d > 0);
        --d;
    }
    LinkTurn out{static_cast<std::uint16_t>(d), false};
    if (dimensions_[d].kind == DimensionKind::ring) {
        const SwitchLink ends = link(number);
        const std::uint32_t last = dimensions_[d].size - 1;
        const std::uint32_t from = place(ends.from, d);
        const std::uint32_t to = place(ends.to, d);
        out.dateline = (from == last && to == 0) || (from == 0 && to == last);
    }
    return out;
}

bool ProductTopology::has_rings() const {
    return std::any_of(dimensions_.begin(), dimensions_.end(),
                       [](const ProductDimension& one) { return one.kind == DimensionKind::ring; });
}

std::vector<SwitchLink> ProductTopology::links() const {
    std::vector<SwitchLink> out;
    out.reserve(capacities_.size());
    for (std::uint32_t number = 0; number < capacities_.size(); ++number) {
        out.push_back(link(number));
    }
    return out;
}

LinkSet ProductTopology::next_links(std::uint32_t at, std::uint32_t to, std::uint32_t) const {
    LinkSet out;
    if (at >= nodes_) {  // a switch of the dimension in which the path now goes
        std::size_t d = 0;
        while (dimensions_[d].kind != DimensionKind::crossbar || at < tables_[d].first_switch ||
               at >= tables_[d].first_switch + nodes_ / dimensions_[d].size) {
            ORRERY_ASSERT(d + 1 < dimensions_.size());
            ++d;
        }
        out.add(tables_[d].second_link + (at - tables_[d].first_switch) * dimensions_[d].size + place(to, d));
        return out;
    }
    std::size_t d = 0;
    while (place(at, d) == place(to, d)) {
        ORRERY_ASSERT(d + 1 < dimensions_.size());
        ++d;
    }
    const ProductDimension& dimension = dimensions_[d];
    const Table& table = tables_[d];
    const std::uint32_t n = dimension.size;
    const std::uint32_t here = place(at, d);
    const std::uint32_t there = place(to, d);
    const std::uint32_t up = (there + n - here) % n;  // steps towards higher places
    switch (dimension.kind) {
        case DimensionKind::ring: {
            const std::uint32_t first = line(at, d) * n;
            if (2 * up <= n) {
                out.add(table.first_link + first + here);
            }
            if (2 * up >= n) {
                out.add(table.second_link + first + (here + n - 1) % n);
            }
            break;
        }
        case DimensionKind::line: {
            const std::uint32_t first = line(at, d) * (n - 1);
            out.add(here < there ? table.first_link + first + here : table.second_link + first + here - 1);
            break;
        }
        case DimensionKind::fully_connected:
            out.add(table.first_link + (line(at, d) * n + here) * (n - 1) + up - 1);
            break;
        case DimensionKind::crossbar:
            out.add(table.first_link + line(at, d) * n + here);
            break;
    }
    return out;
}

std::string ProductTopology::switch_name(std::uint32_t number) const {
    if (number >= nodes_) {
        std::size_t d = dimensions_.size() - 1;
        while (dimensions_[d].kind != DimensionKind::crossbar || number < tables_[d].first_switch) {
            --d;
        }
        return "switch " + std::to_string(number - tables_[d].first_switch) + " of dimension " + std::to_string(d);
    }
    std::string out = "(";
    for (std::size_t d = 0; d < dimensions_.size(); ++d) {
        out += (d > 0 ? " " : "") + std::to_string(place(number, d));
    }
    return out + ")";
}

std::string ProductTopology::summary() const {
    static const char* const kNames[] = {"ring", "line", "fully connected", "switch"};
    std::string out = name_ + ":";
    for (std::size_t d = 0; d < dimensions_.size(); ++d) {
        out += (d > 0 ? " x " : " ") + std::to_string(dimensions_[d].size) + " (" +
               kNames[static_cast<std::size_t>(dimensions_[d].kind)] + ")";
    }
    return out;
}

std::vector<std::uint32_t> parse_sizes(const std::string& text, std::vector<std::string>& problems) {
    std::vector<std::uint32_t> sizes;
    const char* at = text.data();
    const char* const end = at + text.size();
    for (bool more = !text.empty(); more;) {
        std::uint32_t size = 0;
        const auto [after, error] = std::from_chars(at, end, size);
        if (error != std::errc() || size == 0 || size > 1'000'000) {
            break;
        }
        sizes.push_back(size);
        if (after == end) {
            return sizes;
        }
        more = *after == 'x';
        at = after + 1;
    }
    problems.push_back("'fabric.shape' is '" + text + "'; it is sizes joined by x, such as 4x4x8");
    return {};
}

void complete_product(FabricShape& shape, std::vector<ProductDimension> dimensions, const std::string& name,
                      std::vector<std::string>& problems) {
    double places = 1;
    std::uint32_t links = 0;
    for (const ProductDimension& dimension : dimensions) {
        places *= dimension.size;
        links += links_out(dimension);
    }
    if (dimensions.empty()) {
        return;  // said before
    }
    if (places != shape.nodes) {
        std::string product;
        for (const ProductDimension& dimension : dimensions) {
            product += (product.empty() ? "" : " x ") + std::to_string(dimension.size);
        }
        problems.push_back(problem_at(
            "fabric.shape", name + " of " + product + " does not hold " + std::to_string(shape.nodes) + " nodes"));
    }
    const double node_rate = shape.nic_bandwidth * shape.nics_per_node;
    double sum = 0;
    for (std::size_t d = 0; d < dimensions.size(); ++d) {
        ProductDimension& dimension = dimensions[d];
        if (dimension.rate <= 0 && node_rate > 0 && links > 0) {
            dimension.rate = node_rate / links;
        }
        if (dimension.rate <= 0 && dimension.size > 1) {
            problems.push_back("links of dimension " + std::to_string(d) + " have no rate");
        }
        sum += dimension.rate * links_out(dimension);
    }
    // A node that is nothing but a router can inject at the rate of all its links.
    if (shape.nic_bandwidth <= 0 && shape.nics_per_node > 0) {
        shape.nic_bandwidth = sum / shape.nics_per_node;
    }
    shape.nodes_per_leaf = 1;
    shape.topology = [dimensions = std::move(dimensions), name](const FabricShape& s) {
        return std::make_shared<ProductTopology>(s, dimensions, name);
    };
}

}  // namespace orrery::network
