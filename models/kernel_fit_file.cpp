// Text of a fit: `key: value` lines, then the nodes in thousandths of log(measured / prior). One file a fit.

#include "models/kernel_fit.hpp"
#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"
#include "sim/config/units.hpp"
#include "sim/record/table_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace orrery::models {

namespace {

constexpr const char* kFitVersion = "# orrery-fit: 1";
constexpr std::size_t kMostNodes = 1'000'000;
constexpr double kStep = 1e-3;  ///< resolution of the nodes

const std::vector<std::string>& prior_names() {
    static const std::vector<std::string> kNames = {"roofline", "waves", "serial"};
    return kNames;
}

const std::vector<std::string>& surface_names() {
    static const std::vector<std::string> kNames = {"spline", "kriging", "kriging_by_cache"};
    return kNames;
}

const std::vector<std::string>& beyond_names() {
    static const std::vector<std::string> kNames = {"border", "fade", "shift", "slope"};
    return kNames;
}

class KernelFitParser : TextLines {
  public:
    using TextLines::TextLines;

    KernelFit run() {
        for (std::string_view line; next_line(line);) {
            read_line(line);
        }
        check();
        finish();
        fit_.prepare();
        return std::move(fit_);
    }

  private:
    void read_line(std::string_view line) {
        if (this->line() == 1) {
            if (line != kFitVersion) {
                fail(fmt::format("a fit starts with the line '{}'", kFitVersion));
            }
        } else if (line.empty() || line.front() == '#') {
        } else if (in_values_) {
            for (const double value : numbers(line, -20000, 20000)) {
                fit_.values.push_back(value * kStep);
            }
            if (fit_.values.size() > kMostNodes) {
                fail(fmt::format("more than {} nodes", kMostNodes));
                finish();
            }
        } else {
            read_key(line);
        }
    }

    void read_key(std::string_view line) {
        const std::size_t colon = line.find(':');
        const std::string key(line.substr(0, std::min(colon, line.size())));
        if (colon == std::string_view::npos || key.empty()) {
            fail("expected 'key: value'");
            return;
        }
        std::string_view value = line.substr(colon + 1);
        while (!value.empty() && value.front() == ' ') {
            value.remove_prefix(1);
        }
        if (key == "values") {
            in_values_ = true;
        } else if (key == "kernel") {
            has_kind_ = choose(value, kernel_kind_names(), fit_.kind);
        } else if (key == "format") {
            has_format_ = choose(value, kernel_format_names(), fit_.format);
        } else if (key == "prior") {
            choose(value, prior_names(), fit_.prior);
        } else if (key == "surface") {
            choose(value, surface_names(), fit_.surface);
        } else if (key == "beyond") {
            choose(value, beyond_names(), fit_.beyond);
        } else if (key == "axis") {
            fit_.axes.push_back(numbers(value, 1e-6, 1e18));
        } else if (key == "tile_weights") {
            const std::vector<double> all = numbers(value, -10, 10);
            if (all.size() == fit_.tile_weights.size()) {
                std::copy(all.begin(), all.end(), fit_.tile_weights.begin());
            } else {
                fail(fmt::format("{} tile weights instead of {}", all.size(), fit_.tile_weights.size()));
            }
        } else if (key == "quantisation") {
            const std::vector<double> all = numbers(value, 0, 1e6);
            if (all.size() == 2) {
                fit_.quantisation = {all[0] * 1e-9, all[1] * 1e-12};
            } else {
                fail("quantisation is two numbers: ns of a row and ps of a value");
            }
        } else if (key == "held_back") {
            read_held_back(value);
        } else if (!read_number(key, value)) {
            if (!fit_.meta.emplace(key, std::string(value)).second) {
                fail(fmt::format("'{}' is given twice", key));
            }
        }
    }

    bool read_number(const std::string& key, std::string_view value) {
        struct Limits {
            const char* key;
            double* value;
            double min, max;
        };
        double rounding = static_cast<double>(fit_.rounding);
        double powers = fit_.powers ? 1 : 0;
        double rows = static_cast<double>(fit_.rows);
        double refused = static_cast<double>(fit_.refused);
        const Limits limits[] = {{"start_us", &fit_.start, 0, 1e6},
                                 {"compute_efficiency", &fit_.compute_efficiency, 1e-6, 2},
                                 {"memory_efficiency", &fit_.memory_efficiency, 1e-6, 20},
                                 {"passing", &fit_.passing, 0, 1e3},
                                 {"ceiling", &fit_.ceiling, 1e-6, 1},
                                 {"smoothness", &fit_.smoothness, 0, 1e6},
                                 {"rounding", &rounding, 1, 4096},
                                 {"powers", &powers, 0, 1},
                                 {"spread", &fit_.spread, 0, 10},
                                 {"spread_larger", &fit_.spread_larger, 0, 10},
                                 {"systematic", &fit_.systematic, 0, 10},
                                 {"rows", &rows, 0, 1e9},
                                 {"refused", &refused, 0, 1e9}};
        for (const Limits& limit : limits) {
            if (key != limit.key) {
                continue;
            }
            const std::vector<double> one = numbers(value, limit.min, limit.max);
            if (one.size() != 1) {
                fail(fmt::format("{} is one number", key));
                return true;
            }
            *limit.value = key == "start_us" ? one[0] * 1e-6 : one[0];
            fit_.rounding = static_cast<std::int64_t>(rounding);
            fit_.powers = powers > 0;
            fit_.rows = static_cast<std::int64_t>(rows);
            fit_.refused = static_cast<std::int64_t>(refused);
            return true;
        }
        return false;
    }

    // "larger rows 812 mape 6.1 p95 20.3"
    void read_held_back(std::string_view value) {
        const std::size_t blank = std::min(value.find(' '), value.size());
        const std::vector<double> all = numbers(value.substr(blank), 0, 1e9);
        if (blank == 0 || all.size() != 3) {
            fail("held_back is 'split rows mape p95' with the errors in per cent");
            return;
        }
        fit_.held_back[std::string(value.substr(0, blank))] =
            HeldBack{static_cast<std::int64_t>(all[0]), all[1] / 100, all[2] / 100};
    }

    template <class Enum>
    bool choose(std::string_view word, const std::vector<std::string>& names, Enum& value) {
        const auto found = std::find(names.begin(), names.end(), word);
        if (found == names.end()) {
            fail(fmt::format("unknown '{}', expected one of {}", word, fmt::join(names, ", ")));
            return false;
        }
        value = static_cast<Enum>(found - names.begin());
        return true;
    }

    std::vector<double> numbers(std::string_view text, double min, double max) {
        std::vector<double> out;
        for (std::size_t start = 0; start < text.size();) {
            const std::size_t end = std::min(text.find(' ', start), text.size());
            const std::string_view word = text.substr(start, end - start);
            start = end + 1;
            double value = 0;
            if (word.empty()) {
                continue;
            }
            if (!parse_number(word, value) || !(value >= min) || !(value <= max)) {
                fail(fmt::format("expected a number from {} to {}, not '{}'", min, max, word));
                return out;
            }
            out.push_back(value);
        }
        return out;
    }

    void check() {
        if (!has_kind_ || !has_format_) {
            fail("'kernel' or 'format' is missing");
            return;
        }
        const std::size_t expected = kernel_axes(fit_.kind).size();
        if (fit_.axes.size() != expected) {
            fail(fmt::format("{} axes instead of {}", fit_.axes.size(), expected));
            return;
        }
        std::size_t nodes = 1;
        for (const std::vector<double>& axis : fit_.axes) {
            if (axis.empty() || std::adjacent_find(axis.begin(), axis.end(), std::greater_equal<>()) != axis.end()) {
                fail("the sizes of an axis ascend");
                return;
            }
            nodes = axis.size() > kMostNodes / nodes ? kMostNodes + 1 : nodes * axis.size();
        }
        if (fit_.values.size() != nodes) {
            fail(fmt::format("{} values, but the axes span {} nodes", fit_.values.size(), nodes));
        }
    }

    KernelFit fit_;
    bool in_values_ = false;
    bool has_kind_ = false;
    bool has_format_ = false;
};

}  // namespace

std::string format_fit(const KernelFit& fit) {
    std::string out = std::string(kFitVersion) + "\n";
    out += fmt::format("kernel: {}\nformat: {}\n", kernel_kind_names()[static_cast<std::size_t>(fit.kind)],
                       kernel_format_names()[static_cast<std::size_t>(fit.format)]);
    for (const auto& [key, value] : fit.meta) {
        out += fmt::format("{}: {}\n", key, value);
    }
    out += fmt::format("rows: {}\nrefused: {}\nspread: {:.4f}\nspread_larger: {:.4f}\nsystematic: {:.4f}\n", fit.rows,
                       fit.refused, fit.spread, fit.spread_larger, fit.systematic);
    for (const auto& [split, error] : fit.held_back) {
        out += fmt::format("held_back: {} {} {:.2f} {:.2f}\n", split, error.rows, 100 * error.mape, 100 * error.p95);
    }
    out += fmt::format(
        "prior: {}\nceiling: {:.4f}\nstart_us: {:.4g}\ncompute_efficiency: {:.4f}\nmemory_efficiency: {:.4f}\n",
        prior_names()[static_cast<std::size_t>(fit.prior)], fit.ceiling, fit.start * 1e6, fit.compute_efficiency,
        fit.memory_efficiency);
    if (is_experts(fit.kind)) {
        out += fmt::format("passing: {:.4f}\n", fit.passing);
    }
    if (fit.surface != KernelFit::Surface::spline) {
        out += fmt::format("surface: {}\n", surface_names()[static_cast<std::size_t>(fit.surface)]);
    }
    out += fmt::format("smoothness: {}\nrounding: {}\npowers: {}\nbeyond: {}\ntile_weights:", fit.smoothness,
                       fit.rounding, fit.powers ? 1 : 0, beyond_names()[static_cast<std::size_t>(fit.beyond)]);
    for (const double weight : fit.tile_weights) {
        out += fmt::format(" {:.4f}", weight);
    }
    out += "\n";
    if (fit.quantisation.row > 0 || fit.quantisation.value > 0) {
        out += fmt::format("quantisation: {:.4g} {:.4g}\n", fit.quantisation.row * 1e9, fit.quantisation.value * 1e12);
    }
    for (const std::vector<double>& axis : fit.axes) {
        out += fmt::format("axis: {}\n", fmt::join(axis, " "));
    }
    out += "values:\n";
    const std::size_t row = fit.axes.empty() ? 1 : std::max<std::size_t>(fit.axes.back().size(), 8);
    for (std::size_t i = 0; i < fit.values.size(); ++i) {
        out += fmt::format("{}{}", static_cast<std::int64_t>(std::llround(fit.values[i] / kStep)),
                           (i + 1) % row == 0 || i + 1 == fit.values.size() ? "\n" : " ");
    }
    return out;
}

KernelFit parse_fit(const std::string& text, const std::string& name) {
    return KernelFitParser(text, name).run();
}

KernelFit load_fit(const std::string& path) {
    return parse_fit(read_input(path), path);
}

}  // namespace orrery::models
