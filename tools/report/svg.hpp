#pragma once
// Charts as SVG: for papers with fixed colours, for reports with those of the page.

#include "sim/record/summary.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace orrery::report {

struct ChartStyle {
    std::string ink = "#222222";
    std::string grid = "#d0d0d0";
    std::string background = "#ffffff";  ///< "none": what lies behind
    bool titled = true;
};

/// The ground of a chart that has one: its own, and a dark one where the page or viewer is dark.
[[nodiscard]] std::string dark_mode(const ChartStyle& style);

struct CurveSeries {
    std::string name;
    std::vector<std::pair<double, double>> points;  ///< in the order in which they are joined
    bool joined = true;
    std::vector<std::string> labels = {};  ///< of the points, written beside them; none: no label
};

/// A metric's name for people, with its unit where its values do not say it: "memory per GPU, GiB".
[[nodiscard]] std::string axis_name(const std::string& metric);
/// A value of it, with its unit where the name does not say it: "12.5 ms", "598,400".
[[nodiscard]] std::string axis_number(const std::string& metric, double value);

/// Horizontal bars of seconds with their shares.
[[nodiscard]] std::string bars_svg(const std::string& title, const std::vector<std::pair<std::string, double>>& parts,
                                   const ChartStyle& style);
/// What a row of a timeline is: a process, with its first stream above and the others as a thin line below, or each stream.
enum class TimelineRows { processes, streams };
/// Coloured by category; at most `rows`, of processes evenly chosen.
[[nodiscard]] std::string timeline_svg(const std::string& title, const Timeline& timeline, TimelineRows kind,
                                       std::size_t rows, const ChartStyle& style);
/// Lines or points over two linear axes.
[[nodiscard]] std::string curves_svg(const std::string& title, const std::string& x, const std::string& y,
                                     const std::vector<CurveSeries>& series, const ChartStyle& style);
/// Horizontal bars from 0, of each group one a series; nothing: no value, no bar. For axes that are words.
[[nodiscard]] std::string groups_svg(const std::string& title, const std::vector<std::string>& groups,
                                     const std::vector<std::string>& series,
                                     const std::vector<std::vector<std::optional<double>>>& values,
                                     const ChartStyle& style);
/// Cells [row][column]; nothing: no value. Dark is low.
[[nodiscard]] std::string heat_svg(const std::string& title, const std::string& x, const std::string& y,
                                   const std::vector<std::string>& columns, const std::vector<std::string>& rows,
                                   const std::vector<std::vector<std::optional<double>>>& cells,
                                   const ChartStyle& style);

/// A layer of the fabric's picture, from the GPUs upwards.
struct FabricLayer {
    std::string name;  ///< "GPUs", "leaf switches"
    double count = 0;
    std::string link;     ///< what joins it to the layer above
    double capacity = 0;  ///< B/s of such a link
    double groups = 1;    ///< into which it and the layer above fall: links join all of one group, and none of two
    std::optional<double> utilisation;  ///< of the busiest such link
};
[[nodiscard]] std::string fabric_svg(const std::vector<FabricLayer>& layers, const ChartStyle& style);

/// The colour of a category of work or the n-th series; distinct for people who see colours differently.
[[nodiscard]] std::string colour_of(const std::string& category);
[[nodiscard]] std::string colour_of(std::size_t series);

}  // namespace orrery::report
