#pragma once
// A sweep file: a base scenario and the points to run around it.
//
// Keys: base, set, axes, zip, sample, derive, where, seeds, keep, timeout. Points are the product of all axes, zip
// groups, samples and seeds, in the order of the file with the last one fastest; `derive` adds values that follow from
// the others and `where` drops points. Nothing is expanded in memory: points are made as they are needed.

#include "tools/driver/scenario.hpp"
#include "tools/sweep/expression.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace orrery::sweep {

/// Keys that change together, and their values (YAML scalars): rows[i][k] belongs to keys[k].
struct SweepAxis {
    std::vector<std::string> keys;
    std::vector<std::vector<std::string>> rows;
};

/// One point: the values of all axes and derived keys, in the order of the file.
struct SweepPoint {
    std::uint64_t id = 0;  ///< position in the full product, whether or not `where` dropped others
    std::vector<std::pair<std::string, std::string>> parameters;
};

struct SweepSpec {
    std::string name;
    YamlNode base;          ///< the base scenario as a tree, with `set` and the command line's overrides applied
    std::string base_name;  ///< file name of the base scenario
    std::string directory;  ///< of the base scenario, which the paths in it and in axes are relative to
    std::vector<std::string> files;  ///< that it reads: the base scenario and what that names
    std::vector<SweepAxis> axes;
    std::vector<std::pair<std::string, Expression>> derived;
    std::vector<Expression> where;
    std::vector<std::pair<std::string, Mark>> keep;    ///< names of metrics; empty: all
    double timeout = 600;                              ///< s of wall time a point
    std::map<std::string, Mark> marks;                 ///< where each key of the points is set
    std::map<std::string, ExpressionValue> constants;  ///< values of the base scenario that expressions name

    /// Points of the full product, before `where`.
    [[nodiscard]] std::uint64_t size() const;
    /// The point at a position, or nothing when `where` drops it. Throws ConfigError for a bad expression.
    [[nodiscard]] std::optional<SweepPoint> point(std::uint64_t id) const;
    /// Everything that decides the points and what is kept, as canonical text.
    [[nodiscard]] std::string identity() const;
    /// Every key that a point sets, in order.
    [[nodiscard]] std::vector<std::string> keys() const;
};

/// Reads a sweep file ("-": standard input); `overrides` change the base scenario. Throws ConfigError with every error
/// found.
[[nodiscard]] SweepSpec load_sweep(const std::string& path, const std::vector<std::string>& overrides,
                                   const DataDirectory& data);
/// The same of a tree that was read; relative paths are of `folder`.
[[nodiscard]] SweepSpec read_sweep(const YamlNode& root, const std::string& name, const std::string& folder,
                                   const std::vector<std::string>& overrides, const DataDirectory& data);

/// Looks at every point of a sweep of up to 200,000 and at the first ones of a larger one. Throws ConfigError when an
/// expression cannot be evaluated for one of them, or when the conditions of a sweep leave none.
void check_points(const SweepSpec& sweep);

/// Throws ConfigError for values of axes that no point of theirs can have: an unknown key, a value that is none.
void check_values(const SweepSpec& sweep, const DataDirectory& data);

/// The scenario of a point. Throws ConfigError when a value does not fit its key, at the place where the key is set.
[[nodiscard]] Scenario scenario_of(const SweepSpec& sweep, const SweepPoint& point, const DataDirectory& data);

/// JSON Schema of sweep files.
[[nodiscard]] std::string sweep_schema();

}  // namespace orrery::sweep
