#include "validation/scatter.hpp"

#include "sim/base/math.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

namespace orrery::validation {

namespace {

constexpr double kSize = 480;  // of the square plot, in pixels
constexpr double kLeft = 60;
constexpr double kTop = 40;
// Okabe and Ito's palette, which colour-blind readers can tell apart, and two greys.
constexpr const char* kColors[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00",
                                   "#56B4E9", "#000000", "#8C8C8C", "#7B5E3B"};

}  // namespace

std::string scatter_svg(const std::string& title, const std::vector<ScatterPoint>& points) {
    double low = 1e300;
    double high = 0;
    std::map<std::string, const char*> colors;
    for (const ScatterPoint& point : points) {
        low = std::min({low, point.measured, point.predicted});
        high = std::max({high, point.measured, point.predicted});
        colors.try_emplace(point.group, kColors[colors.size() % std::size(kColors)]);
    }
    const double from = log_pinned(low / 1.3);
    const double to = log_pinned(high * 1.3);
    const auto place = [&](double value) { return (log_pinned(value) - from) / (to - from) * kSize; };
    const auto x = [&](double value) { return kLeft + place(value); };
    const auto y = [&](double value) { return kTop + kSize - place(value); };
    std::string out = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" "
        "font-size=\"12\">\n"
        "<style>@media (prefers-color-scheme: dark) {{ svg text {{ fill: #e8e8ea; }} svg > rect.back {{ fill: #16181c; "
        "}} "
        "svg polygon {{ fill: #263041; }} svg .frame {{ stroke: #a0a4ab; }} svg [fill=\"#000000\"] {{ fill: #ffffff; "
        "}} "
        "}}</style>\n"
        "<rect class=\"back\" width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n<text x=\"{2}\" y=\"22\" "
        "font-size=\"15\">{3}</text>\n",
        kLeft + kSize + 190, kTop + kSize + 50, kLeft, title);
    const double a = low / 1.3;
    const double b = high * 1.3;
    out += fmt::format("<clipPath id=\"plot\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/></clipPath>\n", kLeft,
                       kTop, kSize, kSize);
    out += fmt::format(
        "<g clip-path=\"url(#plot)\"><polygon points=\"{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}\" "
        "fill=\"#e8eef5\"/>\n<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#888\"/>\n",
        x(a), y(a * 0.9), x(b), y(b * 0.9), x(b), y(b * 1.1), x(a), y(a * 1.1), x(a), y(a), x(b), y(b));
    for (const ScatterPoint& point : points) {
        out += fmt::format(
            "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\" fill-opacity=\"0.7\"><title>{}</title></circle>\n",
            x(point.measured), y(point.predicted), colors[point.group], point.label);
    }
    out += fmt::format(
        "</g><rect class=\"frame\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#444\"/>\n",
        kLeft, kTop, kSize, kSize);
    for (const double tick : {0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0}) {
        if (tick > a && tick < b) {
            out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:g} s</text>\n", x(tick),
                               kTop + kSize + 18, tick);
            out += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:g} s</text>\n", kLeft - 6,
                               y(tick) + 4, tick);
        }
    }
    out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">measured iteration time</text>\n",
                       kLeft + kSize / 2, kTop + kSize + 40);
    out += fmt::format(
        "<text x=\"16\" y=\"{0}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {0})\">predicted iteration "
        "time</text>\n",
        kTop + kSize / 2);
    double row = kTop + 14;
    for (const auto& [group, color] : colors) {
        out += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"4\" fill=\"{}\"/><text x=\"{}\" y=\"{}\">{}</text>\n",
                           kLeft + kSize + 18, row - 4, color, kLeft + kSize + 28, row, group);
        row += 20;
    }
    return out + "</svg>\n";
}

}  // namespace orrery::validation
