#include "tools/report/topology_svg.hpp"

#include "sim/base/error.hpp"
#include "sim/base/math.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "sim/network/topology/product.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>

namespace orrery::report {

namespace {

constexpr double kWide = 720;
constexpr std::uint32_t kMostInRow = 16;      // of a dimension, nodes or rails; more are said in words
constexpr std::uint32_t kMostInCircle = 128;  // switches
constexpr std::uint32_t kMostNamed = 24;

struct Point {
    double x = 0;
    double y = 0;
};

// Wider and redder the more a link is used; grey where there was no run.
struct Stroke {
    std::string colour;
    double width = 1;
};

class Picture {
  public:
    Picture(const Fabric& fabric, const std::vector<double>& loads, const ChartStyle& style)
        : fabric_(fabric), loads_(loads), style_(style), links_(fabric.topology().links()) {}

    std::string draw() {
        const auto* product = dynamic_cast<const ProductTopology*>(&fabric_.topology());
        const bool grid = product != nullptr && product->dimensions().size() <= 3 &&
                          std::all_of(product->dimensions().begin(), product->dimensions().end(), [](const auto& one) {
                              return one.kind == DimensionKind::ring || one.kind == DimensionKind::line;
                          });
        if (grid) {
            draw_grid(*product);
        } else if (links_.empty()) {
            draw_rails();
        } else if (const std::vector<std::uint32_t> levels = levels_of_switches(); !levels.empty()) {
            draw_levels(levels);
        } else {
            draw_circle();
        }
        return finish();
    }

  private:
    [[nodiscard]] double load(std::uint32_t resource) const { return resource < loads_.size() ? loads_[resource] : 0; }
    [[nodiscard]] Stroke stroke(double used) const {
        if (loads_.empty()) {
            return {style_.grid, 1};
        }
        const double part = std::clamp(used, 0.0, 1.0);
        return {fmt::format("#{:02x}{:02x}40", static_cast<int>(80 + 170 * part), static_cast<int>(160 - 110 * part)),
                0.7 + 2.5 * part};
    }
    void line(Point a, Point b, const Stroke& how, bool dashed = false) {
        high_ = std::max({high_, a.y, b.y});
        body_ += fmt::format(
            "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"{:.1f}\"{}/>\n",
            a.x, a.y, b.x, b.y, how.colour, how.width, dashed ? " stroke-dasharray=\"3 2\"" : "");
    }
    void dot(Point at, double size, const std::string& hint) {
        high_ = std::max(high_, at.y + size);
        dots_ +=
            fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" fill=\"{}\"><title>{}</title></circle>\n",
                        at.x, at.y, size, colour_of(std::size_t{0}), escaped(hint));
    }
    void text(Point at, const std::string& words, const char* anchor, int size = 11) {
        high_ = std::max(high_, at.y);
        dots_ +=
            fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\" fill=\"{}\">{}</text>\n",
                        at.x, at.y, anchor, size, style_.ink, escaped(words));
    }
    static std::string escaped(const std::string& given) {
        std::string out;
        for (const char c : printable(given)) {
            out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
        }
        return out;
    }

    // The larger of the loads of the two directions of each pair of switches, over all their links.
    [[nodiscard]] std::map<std::pair<std::uint32_t, std::uint32_t>, double> pairs() const {
        std::map<std::pair<std::uint32_t, std::uint32_t>, double> out;
        for (std::uint32_t i = 0; i < links_.size(); ++i) {
            const auto [a, b] = std::minmax(links_[i].from, links_[i].to);
            double& most = out[{a, b}];
            most = std::max(most, load(fabric_.first_switch_link() + i));
        }
        return out;
    }

    // A plane of the first two dimensions for each place in the third, each a little to the right and up.
    void draw_grid(const ProductTopology& torus) {
        std::uint32_t size[3] = {1, 1, 1};
        std::uint32_t shown[3] = {1, 1, 1};
        for (std::size_t d = 0; d < torus.dimensions().size(); ++d) {
            size[d] = torus.dimensions()[d].size;
            shown[d] = std::min(size[d], kMostInRow);
        }
        const double step = std::min(40.0, (kWide - 80) / (shown[0] + 0.45 * shown[2]));
        const double aside = 0.45 * step;
        const double left = (kWide - step * (shown[0] - 1) - aside * (shown[2] - 1)) / 2;
        const auto place = [&](std::uint32_t node) {
            return std::array<std::uint32_t, 3>{node % size[0], node / size[0] % size[1], node / size[0] / size[1]};
        };
        const auto at = [&](const std::array<std::uint32_t, 3>& p) {
            return Point{left + step * p[0] + aside * p[2], 50 + step * p[1] + 0.6 * aside * (shown[2] - 1 - p[2])};
        };
        const auto drawn = [&](const std::array<std::uint32_t, 3>& p) {
            return p[0] < shown[0] && p[1] < shown[1] && p[2] < shown[2];
        };
        for (const auto& [ends, used] : pairs()) {
            const auto a = place(ends.first);
            const auto b = place(ends.second);
            if (!drawn(a) || !drawn(b)) {
                continue;
            }
            const std::size_t d = a[0] != b[0] ? 0 : a[1] != b[1] ? 1 : 2;
            ORRERY_ASSERT(a[d] < b[d]);
            if (b[d] == a[d] + 1) {
                line(at(a), at(b), stroke(used));
                continue;
            }
            // Wrapped: a stub at each end.
            const Point toward[3] = {{0.4 * step, 0}, {0, 0.4 * step}, {0.4 * aside, -0.24 * aside}};
            line(at(a), {at(a).x - toward[d].x, at(a).y - toward[d].y}, stroke(used), true);
            line(at(b), {at(b).x + toward[d].x, at(b).y + toward[d].y}, stroke(used), true);
        }
        std::uint32_t count = 0;
        for (std::uint32_t node = 0; node < torus.edge_switches(); ++node) {
            if (drawn(place(node))) {
                dot(at(place(node)), std::max(1.5, (shown[2] > 1 ? 0.07 : 0.12) * step), torus.switch_name(node));
                ++count;
            }
        }
        if (count < torus.edge_switches()) {
            note_ = fmt::format("; drawn: a corner of {} x {} x {}", shown[0], shown[1], shown[2]);
        }
    }

    void draw_rails() {
        const FabricShape& shape = fabric_.shape();
        const std::uint32_t nodes = std::min(shape.nodes, kMostInRow);
        const std::uint32_t rails = std::min(fabric_.topology().switches(), kMostInRow);
        const auto x_of = [](std::uint32_t i, std::uint32_t count) { return 60 + (kWide - 120) * (i + 0.5) / count; };
        for (std::uint32_t node = 0; node < nodes; ++node) {
            std::map<std::uint32_t, double> used;  // by rail
            for (std::uint32_t i = 0; i < shape.nics_per_node; ++i) {
                const std::uint32_t nic = node * shape.nics_per_node + i;
                double& most = used[fabric_.topology().switch_of(nic)];
                most = std::max({most, load(fabric_.nic_out(nic).value()), load(fabric_.nic_in(nic).value())});
            }
            for (const auto& [rail, most] : used) {
                if (rail < rails) {
                    line({x_of(node, nodes), 190}, {x_of(rail, rails), 70}, stroke(most));
                }
            }
            dot({x_of(node, nodes), 190}, 8, fmt::format("node {}", node));
            text({x_of(node, nodes), 214}, std::to_string(node), "middle");
        }
        for (std::uint32_t rail = 0; rail < rails; ++rail) {
            dot({x_of(rail, rails), 70}, 8, fabric_.topology().switch_name(rail));
            text({x_of(rail, rails), 54}, fabric_.topology().switch_name(rail), "middle", rails > 8 ? 8 : 11);
        }
        if (nodes < shape.nodes || rails < fabric_.topology().switches()) {
            note_ = fmt::format("; drawn: {} of {} nodes, {} of {} switches", nodes, shape.nodes, rails,
                                fabric_.topology().switches());
        }
    }

    // How many links each switch is from the nearest with nodes, where links join neighbouring levels alone; else none.
    [[nodiscard]] std::vector<std::uint32_t> levels_of_switches() const {
        constexpr std::uint32_t kUnknown = std::numeric_limits<std::uint32_t>::max();
        std::vector<std::uint32_t> level(fabric_.topology().switches(), kUnknown);
        for (std::uint32_t nic = 0; nic < fabric_.shape().nics(); ++nic) {
            level[fabric_.topology().switch_of(nic)] = 0;
        }
        std::uint32_t found = 0;
        for (std::uint32_t at = 0; at <= found; ++at) {
            for (const SwitchLink& link : links_) {
                if (level[link.from] == at && level[link.to] == kUnknown) {
                    level[link.to] = found = at + 1;
                }
            }
        }
        const bool layered = found > 0 && std::none_of(links_.begin(), links_.end(), [&](const SwitchLink& link) {
                                 return level[link.from] == level[link.to];
                             });
        const bool few = std::all_of(level.begin(), level.end(), [&](std::uint32_t one) {
            return one != kUnknown && std::count(level.begin(), level.end(), one) <= kMostInCircle;
        });
        return layered && few ? level : std::vector<std::uint32_t>();
    }

    // A row for each level, the switches with nodes at the bottom.
    void draw_levels(const std::vector<std::uint32_t>& level) {
        constexpr double kRow = 130;
        constexpr std::uint32_t kNamedInRow = 64;
        ORRERY_ASSERT(level.size() == fabric_.topology().switches());
        const std::uint32_t top = *std::max_element(level.begin(), level.end());
        std::vector<std::uint32_t> count(top + 1, 0);
        std::vector<std::uint32_t> place;
        for (const std::uint32_t one : level) {
            place.push_back(count[one]++);
        }
        const auto at = [&](std::uint32_t i) {
            return Point{30 + (kWide - 60) * (place[i] + 0.5) / count[level[i]], 110 + kRow * (top - level[i])};
        };
        for (const auto& [ends, used] : pairs()) {
            line(at(ends.first), at(ends.second), stroke(used));
        }
        for (std::uint32_t i = 0; i < level.size(); ++i) {
            const std::uint32_t row = count[level[i]];
            const std::string name = fabric_.topology().switch_name(i);
            dot(at(i), row > 32 ? 3 : 6, name);
            if (row > kNamedInRow) {
                continue;
            }
            // Above its row, and below the lowest; upright where there is no room beside each other.
            const double y = at(i).y + (level[i] == 0 ? 20 : -12);
            const bool upright = 6.5 * static_cast<double>(name.size() + 1) > (kWide - 60) / row;
            if (upright) {
                tilted({at(i).x + 3, y}, name, level[i] == 0 ? "end" : "start", row > 32 ? 8 : 10);
            } else {
                // Links pass behind it.
                dots_ += fmt::format(
                    "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" font-size=\"10\" fill=\"{}\" stroke=\"{}\" "
                    "stroke-width=\"3\" paint-order=\"stroke\">{}</text>\n",
                    at(i).x, y, style_.ink, style_.background == "none" ? "var(--back)" : style_.background,
                    escaped(name));
            }
        }
        high_ += 40;
    }

    void tilted(Point at, const std::string& words, const char* anchor, int size) {
        dots_ += fmt::format(
            "<text transform=\"translate({:.1f} {:.1f}) rotate(-90)\" text-anchor=\"{}\" font-size=\"{}\" "
            "fill=\"{}\">{}</text>\n",
            at.x, at.y, anchor, size, style_.ink, escaped(words));
    }

    void draw_circle() {
        const std::uint32_t all = fabric_.topology().switches();
        const std::uint32_t count = std::min(all, kMostInCircle);
        constexpr double kRadius = 200;
        const auto at = [&](std::uint32_t i, double radius) {
            const double angle = 2 * std::numbers::pi * i / count - std::numbers::pi / 2;
            return Point{kWide / 2 + radius * std::cos(angle), 270 + radius * std::sin(angle)};
        };
        for (const auto& [ends, used] : pairs()) {
            if (ends.second < count) {
                line(at(ends.first, kRadius), at(ends.second, kRadius), stroke(used));
            }
        }
        for (std::uint32_t i = 0; i < count; ++i) {
            dot(at(i, kRadius), count > 64 ? 3 : 6, fabric_.topology().switch_name(i));
            if (count <= kMostNamed) {
                const Point where = at(i, kRadius + 14);
                text({where.x, where.y + 4}, fabric_.topology().switch_name(i),
                     std::abs(where.x - kWide / 2) < 20 ? "middle"
                     : where.x > kWide / 2              ? "start"
                                                        : "end",
                     10);
            }
        }
        if (count < all) {
            note_ = fmt::format("; drawn: {} of {} switches", count, all);
        }
    }

    // The title last: it says what was left out. Links of least and most use as a key.
    std::string finish() {
        const double most = loads_.empty() ? 0 : *std::max_element(loads_.begin(), loads_.end());
        if (!loads_.empty()) {
            const double y = high_ + 30;
            line({40, y}, {80, y}, stroke(0));
            text({86, y + 4}, "unused", "start");
            line({160, y}, {200, y}, stroke(1));
            text({206, y + 4}, fmt::format("always in use; the busiest of all: {:.0f} %", 100 * most), "start");
        }
        const std::string title = fabric_.topology().summary() + note_;
        std::string out = fmt::format(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" style=\"max-width:{0:.0f}px\" "
            "font-family=\"sans-serif\" font-size=\"12\" role=\"img\" aria-label=\"{2}\">\n",
            kWide, high_ + 24, escaped(title));
        if (style_.background != "none") {
            out += dark_mode(style_);
        }
        text({kWide / 2, 20}, title, "middle", 14);
        return out + body_ + dots_ + "</svg>\n";
    }

    const Fabric& fabric_;
    const std::vector<double>& loads_;
    const ChartStyle& style_;
    std::vector<SwitchLink> links_;
    std::string body_;
    std::string dots_;
    std::string note_;
    double high_ = 60;
};

}  // namespace

std::string topology_svg(const Fabric& fabric, const std::vector<double>& loads, const ChartStyle& style) {
    return Picture(fabric, loads, style).draw();
}

}  // namespace orrery::report
