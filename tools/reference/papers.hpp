#pragma once
// Published systems, scenarios/papers: what each claims, what the scenarios beside it predict, and how that is scored.
//
// A folder has an `expected.yaml` of a `claim` and a list of `figures`. The rules:
//   - A figure has a published value and a band, or is a `sign` (the scenario ahead of its baseline), which counts apart.
//   - Where a scenario is held against a baseline the band is on the gain, ratio - 1: 1.2 within 20 % is 1.16 to 1.24. A `share` of
//     what would be ideal (scaling efficiency, equal times) is no gain, and its band is on the ratio. Band `half`: the same winner and
//     at least half of the published gain.
//   - Where increases are compared (of time or memory, over a third scenario `from`) the ratio is that of the increases.
//   - What follows from an input of the scenario is an `input` and not counted.
//   - One figure is the `headline`, neither a sign nor an input, or the folder says why none is (`partial`).
//   - What the baseline is, its engine and version, and where it is not the publication's, is said in `baseline`.
//   - Replays of programs written by hand demonstrate a mechanism and are not counted.
//   - `predicted` is what the scenarios print, within 1 % (tests/tools/papers_test.cpp). Outside of its band a figure says why:
//     `status: "short: ..."`.

#include "sim/config/data_directory.hpp"
#include "sim/config/yaml_tree.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace orrery::reference {

/// Limits that a capacity keeps at one percentile.
struct PaperLimit {
    double percentile = 0;
    std::vector<std::string> set;
};

/// A figure of a publication. The value: a metric of a run (mean over `seeds`), `capacity` (requests per second within limits) or
/// `price` (work a second of line `line` of a table); of the scenario alone, or over that of its baseline.
struct PaperFigure {
    Mark mark;            ///< where it stands
    Mark predicted_mark;  ///< where its prediction stands
    std::string scenario;
    std::vector<std::string> set;
    std::string over;  ///< the baseline's file; empty: the scenario's own
    std::vector<std::string> over_set;
    std::string from;  ///< what both are increases over; empty, without from_set: they are none
    std::vector<std::string> from_set;
    std::string metric;
    std::int64_t seeds = 0;  ///< 0: one, and two of a capacity
    double percentile = 0;   ///< of a capacity; 0: its attainment
    double attainment = 0.9;
    bool per_gpu = false;
    std::vector<PaperLimit> limits;                  ///< of a capacity: all hold
    std::int64_t line = 0;                           ///< of a price
    double work = 0;                                 ///< of a price: FLOP or B
    std::vector<std::vector<std::string>> readings;  ///< what a source leaves open: the value is a range over them
    std::optional<double> published;
    double band = 0;
    bool half = false;
    bool share = false;
    bool sign = false;
    bool input = false;
    bool headline = false;
    bool replay = false;  ///< of a program written by hand
    double low = 0;       ///< predicted; of readings the least, otherwise as `high`
    double high = 0;
    std::string status;

    /// Increases are compared: what the scenario adds to `from`, over what its baseline adds to it.
    [[nodiscard]] bool increases() const { return !from.empty(); }
    [[nodiscard]] bool over_baseline() const { return !over.empty() || !over_set.empty(); }
    /// Counts towards the score.
    [[nodiscard]] bool counted() const { return published && !input && !replay; }
    [[nodiscard]] bool inside() const { return inside(low, high); }
    /// The same of other predictions.
    [[nodiscard]] bool inside(double low, double high) const;
};

enum class PaperGrade { in_band, is_short, partial, demonstration };
/// "native, in band", "native, short", "partial" and "demonstration".
[[nodiscard]] const char* grade_name(PaperGrade grade);

struct Paper {
    std::string name;    ///< of its folder
    std::string folder;  ///< its path
    std::string claim;
    std::string baseline;  ///< engine, version and limits of what figures are held against
    std::string partial;   ///< why no figure is the headline; empty: one is
    std::vector<PaperFigure> figures;

    /// The figure of the claim, or nullptr.
    [[nodiscard]] const PaperFigure* headline() const;
    [[nodiscard]] PaperGrade grade() const;
};

/// Reads the folder of a published system. Throws ConfigError with every error in its expected.yaml.
[[nodiscard]] Paper read_paper(const std::string& folder);
/// All of scenarios/papers by name, with the errors of all files at once.
[[nodiscard]] std::vector<Paper> read_papers(const DataDirectory& data);

}  // namespace orrery::reference
