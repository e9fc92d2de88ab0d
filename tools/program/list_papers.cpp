#include "tools/program/list_papers.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

namespace orrery::program {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kGrades = {PaperGrade::in_band, PaperGrade::is_short, PaperGrade::partial,
                                PaperGrade::demonstration};

struct Count {
    std::size_t inside = 0;
    std::size_t all = 0;

    void add(bool is_inside) {
        inside += is_inside ? 1 : 0;
        ++all;
    }
    [[nodiscard]] std::string text() const { return all > 0 ? fmt::format("{} of {}", inside, all) : ""; }
};

struct Counts {
    Count figures;
    Count signs;
    std::size_t inputs = 0;
    std::size_t replays = 0;

    void add(const Paper& paper) {
        for (const PaperFigure& one : paper.figures) {
            if (one.input) {
                ++inputs;
            } else if (one.replay) {
                ++replays;
            } else {
                (one.sign ? signs : figures).add(one.inside());
            }
        }
    }
};

std::string predicted_text(const PaperFigure& figure) {
    return figure.readings.empty() ? fmt::format("{:.4g}", figure.high)
                                   : fmt::format("{:.4g} to {:.4g}", figure.low, figure.high);
}

std::string band_text(const PaperFigure& figure) {
    const char* of = figure.over_baseline() && !figure.share ? " of the gain" : "";
    return figure.half ? "half of the gain" : fmt::format("{:.3g} %{}", 100 * figure.band, of);
}

Json figure_json(const PaperFigure& one) {
    Json out;
    out["scenario"] = one.scenario;
    out["set"] = one.set;
    if (one.over_baseline()) {
        out["over"] = one.over.empty() ? one.scenario : one.over;
        out["over_set"] = one.over_set;
    }
    if (!one.readings.empty()) {
        out["readings"] = one.readings;
    }
    out["metric"] = one.metric;
    out["predicted"] = one.readings.empty() ? Json(one.high) : Json({one.low, one.high});
    out["published"] = one.published ? Json(*one.published) : Json();
    out["band"] = one.sign ? "sign" : band_text(one);
    out["in_band"] = one.inside();
    out["counted"] = one.counted();
    out["headline"] = one.headline;
    out["input"] = one.input;
    out["replay"] = one.replay;
    out["status"] = one.status;
    return out;
}

}  // namespace

std::vector<std::string> paper_columns() {
    return {"system", "claim", "predicted", "published", "band", "figures in band", "grade"};
}

std::vector<std::vector<std::string>> paper_rows(const DataDirectory& data) {
    std::vector<std::vector<std::string>> rows;
    for (const Paper& paper : read_papers(data)) {
        const PaperFigure* headline = paper.headline();
        Counts counts;
        counts.add(paper);
        rows.push_back({paper.name, paper.claim, headline != nullptr ? predicted_text(*headline) : "",
                        headline != nullptr ? fmt::format("{:.4g}", headline->published.value_or(0)) : "",
                        headline != nullptr ? band_text(*headline) : "", counts.figures.text(),
                        grade_name(paper.grade())});
    }
    return rows;
}

std::string paper_totals(const std::vector<Paper>& papers) {
    Counts counts;
    std::vector<std::string> grades;
    for (const PaperGrade grade : kGrades) {
        const auto number =
            std::count_if(papers.begin(), papers.end(), [&](const Paper& paper) { return paper.grade() == grade; });
        grades.push_back(fmt::format("{} {}", number, grade_name(grade)));
    }
    for (const Paper& paper : papers) {
        counts.add(paper);
    }
    return fmt::format(
        "{} systems: {}\nfigures: {} in band; signs, which count apart: {}; not counted: {} that follow from inputs, "
        "{} of "
        "replays written by hand\n",
        papers.size(), fmt::join(grades, "; "), counts.figures.text(), counts.signs.text(), counts.inputs,
        counts.replays);
}

std::string papers_json(const std::vector<Paper>& papers) {
    Json out = Json::array();
    for (const Paper& paper : papers) {
        Json one;
        one["system"] = paper.name;
        one["claim"] = paper.claim;
        one["grade"] = grade_name(paper.grade());
        one["baseline"] = paper.baseline;
        one["partial"] = paper.partial;
        one["figures"] = Json::array();
        for (const PaperFigure& figure : paper.figures) {
            one["figures"].push_back(figure_json(figure));
        }
        out.push_back(one);
    }
    return out.dump(1) + "\n";
}

}  // namespace orrery::program
