#include "tools/report/svg.hpp"

#include "sim/base/math.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "tools/report/page.hpp"
#include "workloads/training/simulation/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>

namespace orrery::report {

namespace {

// Okabe and Ito's palette.
constexpr const char* kPalette[] = {"#0072b2", "#e69f00", "#009e73", "#cc79a7",
                                    "#56b4e9", "#d55e00", "#8a7a00", "#777777"};

std::string escaped(const std::string& given) {
    const std::string text = printable(given);  // XML has no control characters
    std::string out;
    for (const char c : text) {
        out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
    }
    return out;
}

class Canvas {
  public:
    Canvas(double width, double height, const std::string& title, const ChartStyle& style) : style_(style) {
        out_ = fmt::format(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" style=\"max-width:{0:.0f}px\" "
            "font-family=\"sans-serif\" "
            "font-size=\"12\" role=\"img\" aria-label=\"{2}\">\n",
            width, height, escaped(title));
        if (style.background != "none") {
            out_ += dark_mode(style);
        }
        if (style.titled) {
            text(width / 2, 18, title, "middle", 14);
        }
    }
    void text(double x, double y, const std::string& words, const char* anchor, int size = 12,
              const std::string& fill = "") {
        out_ +=
            fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\" fill=\"{}\">{}</text>\n",
                        x, y, anchor, size, fill.empty() ? style_.ink : fill, escaped(words));
    }
    void box(double x, double y, double w, double h, const std::string& fill, const std::string& hint = "") {
        out_ += fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"", x, y, w,
                            h, fill);
        out_ += hint.empty() ? "/>\n" : fmt::format("><title>{}</title></rect>\n", escaped(hint));
    }
    void line(double x1, double y1, double x2, double y2, const std::string& stroke, double width = 1) {
        out_ += fmt::format(
            "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"{:.1f}\"/>\n",
            x1, y1, x2, y2, stroke, width);
    }
    void dot(double x, double y, const std::string& fill, const std::string& hint) {
        out_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"><title>{}</title></circle>\n", x,
                            y, fill, escaped(hint));
    }
    void raw(const std::string& text) { out_ += text; }
    void vertical(double x, double y, const std::string& words) {
        out_ += fmt::format(
            "<text transform=\"translate({:.1f} {:.1f}) rotate(-90)\" text-anchor=\"middle\" fill=\"{}\">{}</text>\n",
            x, y, style_.ink, escaped(words));
    }
    [[nodiscard]] std::string finish() { return out_ + "</svg>\n"; }
    [[nodiscard]] const ChartStyle& style() const { return style_; }

  private:
    const ChartStyle& style_;
    std::string out_;
};

// About five round steps between two values.
std::vector<double> ticks(double low, double high) {
    const double raw = (high - low) / 5;
    if (!(raw > 0)) {
        return {low};
    }
    const double power = pow_pinned(10, std::floor(log_pinned(raw) / log_pinned(10)));
    double step = power;
    for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
        step = power * factor;
        if (step >= raw) {
            break;
        }
    }
    std::vector<double> out;
    ORRERY_ASSERT(step > 0 && step >= raw * (1 - 1e-9));
    for (double at = std::ceil(low / step) * step; at <= high + step * 1e-9; at += step) {
        out.push_back(std::abs(at) < step * 1e-9 ? 0 : at);
    }
    return out;
}

}  // namespace

// Colours of others stay as they are written, as papers need them.
std::string dark_mode(const ChartStyle& style) {
    return fmt::format(
        "<style>@media (prefers-color-scheme: dark) {{ svg text[fill=\"{0}\"] {{ fill: #e8e8ea; }} "
        "svg text[stroke] {{ stroke: #16181c; }} "
        "svg line[stroke=\"{1}\"] {{ stroke: #4a505a; }} svg > rect.back {{ fill: #16181c; }} }}</style>\n"
        "<rect class=\"back\" width=\"100%\" height=\"100%\" fill=\"{2}\"/>\n",
        style.ink, style.grid, style.background);
}

std::string colour_of(std::size_t series) {
    return kPalette[series % std::size(kPalette)];
}

std::string colour_of(const std::string& category) {
    static const std::map<std::string, std::string> kColours = {{"forward", "#56b4e9"},
                                                                {"backward", "#0072b2"},
                                                                {"recompute", "#8fb8d8"},
                                                                {"optimizer", "#8a7a00"},
                                                                {"overhead", "#777777"},
                                                                {"bubble", "#c8c8c8"},
                                                                {"message", "#009e73"},
                                                                {"kernel", "#0072b2"},
                                                                {"device", "#0072b2"},
                                                                {"copy", "#56b4e9"},
                                                                {"collective", "#d55e00"},
                                                                {"exposed communication", "#d55e00"},
                                                                {"send", "#e69f00"},
                                                                {"recv", "#cc79a7"},
                                                                {"host", "#777777"},
                                                                {"idle", "#c8c8c8"},
                                                                {"lag", "#c8c8c8"},
                                                                {"prefill", "#e69f00"},
                                                                {"decode", "#0072b2"},
                                                                {"tensor communication", "#e69f00"},
                                                                {"pipeline communication", "#cc79a7"},
                                                                {"data communication", "#d55e00"},
                                                                {"context communication", "#009e73"},
                                                                {"expert communication", "#882255"},
                                                                {"training", "#0072b2"},
                                                                {"checkpoint", "#e69f00"},
                                                                {"storage", "#8a7a00"},
                                                                {"lost_work", "#d55e00"},
                                                                {"detection", "#cc79a7"},
                                                                {"restart", "#009e73"},
                                                                {"load", "#56b4e9"},
                                                                {"fault", "#d55e00"}};
    // A job's part is "NAME: part".
    const std::size_t job = category.rfind(": ");
    const auto found = kColours.find(job == std::string::npos ? category : category.substr(job + 2));
    return found == kColours.end() ? "#777777" : found->second;
}

std::string bars_svg(const std::string& title, const std::vector<std::pair<std::string, double>>& parts,
                     const ChartStyle& style) {
    constexpr double kRow = 24;
    constexpr double kLeft = 170;
    constexpr double kWide = 420;
    const double top = style.titled ? 34 : 8;
    Canvas canvas(720, top + kRow * static_cast<double>(parts.size()) + 8, title, style);
    double total = 0;
    double most = 0;
    for (const auto& [name, seconds] : parts) {
        total += seconds;
        most = std::max(most, seconds);
    }
    double y = top;
    for (const auto& [name, seconds] : parts) {
        const double width = most > 0 ? kWide * seconds / most : 0;
        canvas.text(kLeft - 8, y + 16, name, "end");
        canvas.box(kLeft, y + 3, width, kRow - 6, colour_of(name));
        canvas.text(kLeft + width + 6, y + 16,
                    fmt::format("{} ({:.1f} %)", report::seconds_text(seconds), total > 0 ? 100 * seconds / total : 0),
                    "start");
        y += kRow;
    }
    return canvas.finish();
}

std::string groups_svg(const std::string& title, const std::vector<std::string>& groups,
                       const std::vector<std::string>& series,
                       const std::vector<std::vector<std::optional<double>>>& values, const ChartStyle& style) {
    constexpr double kBar = 18;
    constexpr double kGap = 12;
    constexpr double kWide = 380;
    constexpr double kLetter = 6.6;  // of the sans-serif at 12 px, on average
    std::size_t longest = 0;
    for (const std::string& group : groups) {
        longest = std::max(longest, group.size());
    }
    const double left = std::clamp(16 + kLetter * static_cast<double>(longest), 60.0, 260.0);
    const bool named = series.size() > 1;
    const double group_height = kBar * static_cast<double>(series.size()) + kGap;
    const double top = (style.titled ? 34 : 8) + (named ? 22 : 0);
    Canvas canvas(left + kWide + 90, top + group_height * static_cast<double>(groups.size()) + 8, title, style);
    ORRERY_ASSERT(values.size() == groups.size());
    double most = 0;
    for (const auto& row : values) {
        for (const auto& value : row) {
            most = std::max(most, value.value_or(0));
        }
    }
    double at = left;
    for (std::size_t s = 0; named && s < series.size(); ++s) {
        canvas.box(at, top - 18, 10, 10, colour_of(s));
        canvas.text(at + 14, top - 9, series[s], "start");
        at += 30 + kLetter * static_cast<double>(series[s].size());
    }
    for (std::size_t g = 0; g < groups.size(); ++g) {
        const double y = top + group_height * static_cast<double>(g);
        canvas.text(left - 8, y + (group_height - kGap) / 2 + 4, groups[g], "end");
        for (std::size_t s = 0; s < series.size(); ++s) {
            ORRERY_ASSERT(values[g].size() == series.size());
            if (const std::optional<double> value = values[g][s]) {
                const double width = most > 0 ? kWide * std::max(0.0, *value) / most : 0;
                const double bar = y + kBar * static_cast<double>(s);
                canvas.box(left, bar + 2, width, kBar - 4, colour_of(s));
                canvas.text(left + width + 6, bar + 13, axis_number(title, *value), "start");
            }
        }
    }
    return canvas.finish();
}

namespace {

using RowKey = std::pair<std::uint32_t, std::uint32_t>;  // process and stream; of whole processes stream 0

// The rows of a timeline with their names.
std::vector<std::pair<RowKey, std::string>> rows_of(const Timeline& timeline, TimelineRows kind, std::size_t rows) {
    std::vector<std::pair<RowKey, std::string>> out;
    if (kind == TimelineRows::processes) {
        std::set<std::uint32_t> busy;  // others have counters alone
        for (const Span& span : timeline.spans) {
            busy.insert(span.process);
        }
        const std::size_t step = std::max<std::size_t>(1, (busy.size() + rows - 1) / std::max<std::size_t>(1, rows));
        std::size_t seen = 0;
        for (const auto& [process, name] : timeline.processes) {
            if (busy.count(process) > 0 && seen++ % step == 0) {
                out.push_back({{process, 0}, name});
            }
        }
        return out;
    }
    const std::map<std::uint32_t, std::string> processes(timeline.processes.begin(), timeline.processes.end());
    const std::map<std::uint32_t, std::string> threads(timeline.threads.begin(), timeline.threads.end());
    std::map<RowKey, std::string> used;
    for (const Span& span : timeline.spans) {
        std::string& name = used[{span.process, span.thread}];
        if (name.empty()) {
            const auto thread = threads.find(span.thread);
            const auto process = processes.find(span.process);
            const std::string own = process == processes.end() ? std::to_string(span.process) : process->second;
            name = thread == threads.end() ? own : processes.size() > 1 ? own + ", " + thread->second : thread->second;
        }
    }
    for (const auto& [key, name] : used) {
        if (out.size() < rows) {
            out.emplace_back(key, name);
        }
    }
    return out;
}

// What is exchanged inside passes has a line of its own.
bool inside_pass(const Span& span) {
    return span.category == "tensor communication" || span.category == "context communication" ||
           span.category == "expert communication";
}

// A line of spans that may be far narrower than a pixel: each pixel is the more opaque the more of it is covered.
class ThinLine {
  public:
    explicit ThinLine(double wide) : covered_(static_cast<std::size_t>(wide) + 1, 0) {}
    void add(double from, double width) {
        for (auto i = static_cast<std::size_t>(from); i < covered_.size() && static_cast<double>(i) < from + width;
             ++i) {
            const auto left = static_cast<double>(i);
            covered_[i] += std::min(from + width, left + 1) - std::max(from, left);
        }
    }
    /// Runs of equal opacity, in tenths: where they start, how long they are.
    template <class One>
    void each(const One& one) const {
        for (std::size_t i = 0; i < covered_.size();) {
            const auto tenths = [&](std::size_t at) {
                return std::min(10, static_cast<int>(std::ceil(10 * covered_[at] - 1e-9)));
            };
            std::size_t end = i + 1;
            while (end < covered_.size() && tenths(end) == tenths(i)) {
                ++end;
            }
            if (tenths(i) > 0) {
                one(static_cast<double>(i), static_cast<double>(end - i), tenths(i));
            }
            i = end;
        }
    }

  private:
    std::vector<double> covered_;
};

}  // namespace

std::string timeline_svg(const std::string& title, const Timeline& timeline, TimelineRows kind, std::size_t rows,
                         const ChartStyle& style) {
    constexpr double kRow = 22;
    constexpr double kLetter = 6.2;  // of the sans-serif at 11 px, on average
    const double top = style.titled ? 30 : 4;
    const std::vector<std::pair<RowKey, std::string>> shown = rows_of(timeline, kind, rows);
    std::size_t longest = 0;
    for (const auto& [row, label] : shown) {
        longest = std::max(longest, label.size());
    }
    const double left = std::clamp(12 + kLetter * static_cast<double>(longest), 60.0, 360.0);
    const double wide = 1170 - left;
    double end = 0;
    for (const Span& span : timeline.spans) {
        end = std::max(end, span.start_us + span.duration_us);
    }
    Canvas canvas(1200, top + kRow * static_cast<double>(shown.size()) + 48, title, style);
    // One path a category: thousands of spans stay small.
    std::map<std::string, std::string> paths;
    std::map<std::pair<RowKey, std::string>, ThinLine> thin_lines;
    const bool whole = kind == TimelineRows::processes;
    const bool exchanges = whole && std::any_of(timeline.spans.begin(), timeline.spans.end(), inside_pass);
    std::map<RowKey, double> row_of;
    for (std::size_t i = 0; i < shown.size(); ++i) {
        row_of[shown[i].first] = top + kRow * static_cast<double>(i);
        canvas.text(left - 6, row_of[shown[i].first] + 14, shown[i].second, "end", 11);
    }
    for (const Span& span : timeline.spans) {
        const auto row = row_of.find({span.process, whole ? 0 : span.thread});
        if (row == row_of.end() || end <= 0 || (whole && span.category == kKernelCategory)) {
            continue;
        }
        // The compute stream fills its row; below it are a thin line of what its passes exchange and one of transfers.
        if (whole && inside_pass(span)) {
            paths[span.category];  // its place in the legend
            thin_lines.try_emplace({{span.process, 0}, span.category}, wide)
                .first->second.add(wide * span.start_us / end, wide * span.duration_us / end);
            continue;
        }
        const bool thin = whole && span.thread > 0;
        const int high = thin ? 3 : exchanges ? 11 : 14;
        // What takes no time, such as a fault, is seen all the same.
        const double width = span.duration_us > 0 ? std::max(0.1, wide * span.duration_us / end) : 2;
        paths[span.category] += fmt::format("M{:.2f} {:.0f}h{:.2f}v{}h-{:.2f}z", left + wide * span.start_us / end,
                                            row->second + (thin ? (exchanges ? 18 : 17) : 2), width, high, width);
    }
    for (const auto& [category, path] : paths) {
        canvas.raw(fmt::format("<path d=\"{}\" fill=\"{}\"/>\n", path, colour_of(category)));
    }
    for (const auto& [key, line] : thin_lines) {
        const double y = row_of[key.first] + 14;
        const std::string colour = colour_of(key.second);
        line.each([&](double from, double width, int tenths) {
            canvas.raw(
                fmt::format("<rect x=\"{:.2f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"3\" fill=\"{}\" "
                            "fill-opacity=\"{:.1f}\"/>\n",
                            left + from, y, width, colour, 0.3 + 0.07 * tenths));
        });
    }
    const double bottom = top + kRow * static_cast<double>(shown.size());
    // Round steps in the unit that the labels have.
    const double seconds = end * 1e-6;
    const double unit = seconds >= 72 * 3600 ? 86400 : seconds >= 3 * 3600 ? 3600 : 1;
    for (const double step : ticks(0, seconds / unit)) {
        const double tick = step * unit;
        const double x = left + wide * tick / seconds;
        canvas.line(x, top, x, bottom + 4, style.grid, 0.5);
        canvas.text(x, bottom + 16,
                    tick == 0   ? "0"
                    : unit == 1 ? report::seconds_text(tick)
                                : fmt::format("{:.4g} {}", step, unit > 3600 ? "d" : "h"),
                    "middle", 11);
    }
    double x = left;
    for (const auto& [category, path] : paths) {
        canvas.box(x, bottom + 28, 10, 10, colour_of(category));
        canvas.text(x + 14, bottom + 37, category, "start", 11);
        x += 40 + 7 * static_cast<double>(category.size());
    }
    return canvas.finish();
}

namespace {

bool in_seconds(const std::string& metric) {
    const std::string name = metric.substr(0, metric.find('.'));
    return name.ends_with("_s") && !name.ends_with("_per_s");
}

}  // namespace

std::string axis_name(const std::string& metric) {
    constexpr std::pair<const char*, const char*> kUnits[] = {{"_gib", "GiB"}, {"_gbps", "Gb/s"}, {"_usd", "USD"},
                                                              {"_bytes", "B"}, {"_w", "W"},       {"_j", "J"}};
    const std::size_t dot = std::min(metric.find('.'), metric.size());
    std::string name = metric.substr(0, dot);
    std::string unit;
    for (const auto& [suffix, own] : kUnits) {
        if (name.ends_with(suffix)) {
            name.resize(name.size() - std::string(suffix).size());
            unit = std::string(", ") + own;
            break;
        }
    }
    if (in_seconds(name)) {
        name.resize(name.size() - 2);
    } else if (unit.empty() && name.find('_') == std::string::npos) {
        return metric;  // a key such as plan.tensor stays as it is written
    }
    std::replace(name.begin(), name.end(), '_', ' ');
    for (const std::string acronym : {"gpu", "ttft", "tpot", "tbt", "slo"}) {
        if (const std::size_t at = name.find(acronym); at != std::string::npos) {
            std::transform(acronym.begin(), acronym.end(), name.begin() + static_cast<std::ptrdiff_t>(at),
                           [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
        }
    }
    return name + (dot < metric.size() ? ", " + metric.substr(dot + 1) : "") + unit;
}

std::string axis_number(const std::string& metric, double value) {
    if (in_seconds(metric)) {
        return value == 0 ? "0" : report::seconds_text(value);
    }
    if (std::abs(value) < 1e4 || std::abs(value) >= 1e15) {
        return fmt::format("{:.4g}", value);
    }
    std::string digits = fmt::format("{:.0f}", std::abs(value));
    for (std::size_t at = digits.size(); at > 3; at -= 3) {
        digits.insert(at - 3, ",");
    }
    return (value < 0 ? "-" : "") + digits;
}

std::string curves_svg(const std::string& title, const std::string& x_label, const std::string& y_label,
                       const std::vector<CurveSeries>& series, const ChartStyle& style) {
    constexpr double kLeft = 96;
    constexpr double kTop = 34;
    constexpr double kWide = 520;
    constexpr double kHigh = 340;
    double x_low = 1e300;
    double x_high = -1e300;
    double y_high = -1e300;
    double y_low = 1e300;
    for (const CurveSeries& s : series) {
        for (const auto& [x, y] : s.points) {
            x_low = std::min(x_low, x);
            x_high = std::max(x_high, x);
            y_low = std::min(y_low, y);
            y_high = std::max(y_high, y);
        }
    }
    if (x_low > x_high) {
        x_low = y_low = 0;
        x_high = y_high = 1;
    }
    y_low = std::min(0.0, y_low);
    const auto widen = [](double& low, double& high) {
        if (high <= low) {
            high = low + 1;
        }
    };
    widen(x_low, x_high);
    widen(y_low, y_high);
    // Room for what stands at the edge.
    const double margin = 0.04 * (x_high - x_low);
    x_low -= margin;
    x_high += margin;
    y_high += 0.04 * (y_high - y_low);
    std::size_t longest = 0;
    for (const CurveSeries& s : series) {
        longest = std::max(longest, s.name.size());
    }
    Canvas canvas(kLeft + kWide + 44 + std::max(100.0, 6.5 * static_cast<double>(longest)), kTop + kHigh + 50, title,
                  style);
    const auto px = [&](double x) { return kLeft + kWide * (x - x_low) / (x_high - x_low); };
    const auto py = [&](double y) { return kTop + kHigh * (1 - (y - y_low) / (y_high - y_low)); };
    for (const double tick : ticks(x_low, x_high)) {
        canvas.line(px(tick), kTop, px(tick), kTop + kHigh, style.grid, 0.5);
        canvas.text(px(tick), kTop + kHigh + 16, axis_number(x_label, tick), "middle");
    }
    for (const double tick : ticks(y_low, y_high)) {
        canvas.line(kLeft, py(tick), kLeft + kWide, py(tick), style.grid, 0.5);
        canvas.text(kLeft - 6, py(tick) + 4, axis_number(y_label, tick), "end");
    }
    canvas.text(kLeft + kWide / 2, kTop + kHigh + 36, axis_name(x_label), "middle");
    canvas.vertical(18, kTop + kHigh / 2, axis_name(y_label));
    for (std::size_t i = 0; i < series.size(); ++i) {
        std::string path;
        for (const auto& [x, y] : series[i].points) {
            path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", px(x), py(y));
        }
        if (series[i].joined && series[i].points.size() > 1) {
            canvas.raw(
                fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>\n", path, colour_of(i)));
        }
        for (std::size_t k = 0; k < series[i].points.size(); ++k) {
            const auto& [x, y] = series[i].points[k];
            canvas.dot(px(x), py(y), colour_of(i),
                       fmt::format("{}: {}, {}", series[i].name, axis_number(x_label, x), axis_number(y_label, y)));
            if (k < series[i].labels.size()) {
                const bool left = px(x) > kLeft + kWide / 2;
                canvas.text(px(x) + (left ? -6 : 6), py(y) - 6, series[i].labels[k], left ? "end" : "start", 10);
            }
        }
        if (i < 16) {
            const double y = kTop + 8 + 18 * static_cast<double>(i);
            canvas.box(kLeft + kWide + 14, y - 8, 10, 10, colour_of(i));
            canvas.text(kLeft + kWide + 28, y + 1, series[i].name, "start", 11);
        }
    }
    return canvas.finish();
}

std::string heat_svg(const std::string& title, const std::string& x, const std::string& y,
                     const std::vector<std::string>& columns, const std::vector<std::string>& rows,
                     const std::vector<std::vector<std::optional<double>>>& cells, const ChartStyle& style) {
    constexpr double kCellWide = 74;
    constexpr double kCellHigh = 30;
    constexpr double kLeft = 110;
    constexpr double kTop = 60;
    Canvas canvas(kLeft + kCellWide * static_cast<double>(columns.size()) + 20,
                  kTop + kCellHigh * static_cast<double>(rows.size()) + 20, title, style);
    double low = 1e300;
    double high = -1e300;
    for (const auto& row : cells) {
        for (const auto& cell : row) {
            if (cell) {
                low = std::min(low, *cell);
                high = std::max(high, *cell);
            }
        }
    }
    canvas.text(kLeft + kCellWide * static_cast<double>(columns.size()) / 2, 38, x, "middle");
    canvas.vertical(16, kTop + kCellHigh * static_cast<double>(rows.size()) / 2, y);
    for (std::size_t c = 0; c < columns.size(); ++c) {
        canvas.text(kLeft + kCellWide * (static_cast<double>(c) + 0.5), kTop - 6, columns[c], "middle", 11);
    }
    for (std::size_t r = 0; r < rows.size(); ++r) {
        const double top = kTop + kCellHigh * static_cast<double>(r);
        canvas.text(kLeft - 6, top + 19, rows[r], "end", 11);
        for (std::size_t c = 0; c < columns.size(); ++c) {
            const double left = kLeft + kCellWide * static_cast<double>(c);
            if (!cells[r][c]) {
                canvas.text(left + kCellWide / 2, top + 19, "-", "middle", 11);
                continue;
            }
            // From dark blue (low) to pale yellow (high).
            const double f = high > low ? (*cells[r][c] - low) / (high - low) : 0;
            const auto mix = [&](double from, double to) { return static_cast<int>(from + (to - from) * f); };
            canvas.box(left + 1, top + 1, kCellWide - 2, kCellHigh - 2,
                       fmt::format("#{:02x}{:02x}{:02x}", mix(20, 253), mix(60, 231), mix(120, 140)));
            canvas.text(left + kCellWide / 2, top + 19, fmt::format("{:.4g}", *cells[r][c]), "middle", 11,
                        f < 0.35 ? "#ffffff" : "#111111");
        }
    }
    return canvas.finish();
}

std::string fabric_svg(const std::vector<FabricLayer>& layers, const ChartStyle& style) {
    constexpr double kLayer = 70;
    constexpr double kLeft = 150;
    constexpr double kWide = 360;
    constexpr std::size_t kDrawn = 12;            // boxes a layer; more are counted in words
    const double first = style.titled ? 36 : 20;  // y of the topmost boxes
    Canvas canvas(720, kLayer * static_cast<double>(layers.size()) + first - 10, "fabric", style);
    const auto x_of = [&](std::size_t i, std::size_t count) {
        return kLeft + kWide * (static_cast<double>(i) + 0.5) / static_cast<double>(count);
    };
    for (std::size_t l = 0; l < layers.size(); ++l) {
        const FabricLayer& layer = layers[l];
        const double y = first + kLayer * static_cast<double>(layers.size() - 1 - l);
        const std::size_t count = std::clamp<std::size_t>(static_cast<std::size_t>(layer.count), 1, kDrawn);
        if (l + 1 < layers.size()) {
            const std::size_t above = std::clamp<std::size_t>(static_cast<std::size_t>(layers[l + 1].count), 1, kDrawn);
            // Wider and redder the more the busiest link of this layer is used.
            const double used = std::clamp(layer.utilisation.value_or(0), 0.0, 1.0);
            const std::string stroke = layer.utilisation
                                           ? fmt::format("#{:02x}{:02x}40", static_cast<int>(80 + 170 * used),
                                                         static_cast<int>(160 - 110 * used))
                                           : style.grid;
            const auto group_of = [&](std::size_t box, std::size_t of) {
                return static_cast<std::size_t>(static_cast<double>(box) * layer.groups / static_cast<double>(of));
            };
            for (std::size_t i = 0; i < count; ++i) {
                for (std::size_t j = 0; j < above; ++j) {
                    if (group_of(i, count) == group_of(j, above)) {
                        canvas.line(x_of(i, count), y, x_of(j, above), y - kLayer + 22, stroke, 0.7 + 2.5 * used);
                    }
                }
            }
            canvas.text(kLeft + kWide + 12, y - 18,
                        fmt::format("{}, {}", layer.link, pretty_quantity(layer.capacity, Dimension::rate)), "start",
                        11);
            if (layer.utilisation) {
                canvas.text(kLeft + kWide + 12, y - 4, fmt::format("busiest used {:.1f} %", 100 * *layer.utilisation),
                            "start", 11);
            }
        }
        for (std::size_t i = 0; i < count; ++i) {
            canvas.box(x_of(i, count) - 9, y, 18, 22, colour_of(l));
        }
        canvas.text(kLeft - 10, y + 15, fmt::format("{:.0f} {}", layer.count, layer.name), "end");
    }
    return canvas.finish();
}

}  // namespace orrery::report
