// Published systems: the rules of their scoring, and that what their files call predicted is what the scenarios print.

#include "tools/reference/papers.hpp"
#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/plan/capacity.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

using namespace orrery;
using namespace orrery::test;

namespace {

struct Range {
    double low = 0;
    double high = 0;
};

// Runs, and searches of capacities, that several figures read are made once.
class Runs {
  public:
    [[nodiscard]] static const Summary& summary(const std::string& file, const std::vector<std::string>& set,
                                                std::int64_t seed) {
        static std::map<std::string, Summary> known;
        const std::string key = fmt::format("{} {} {}", file, fmt::join(set, " "), seed);
        const auto found = known.find(key);
        if (found != known.end()) {
            return found->second;
        }
        Scenario s = load_scenario(file, set, data());
        if (seed > 0) {
            s.seed = static_cast<std::uint64_t>(seed);
        }
        return known.emplace(key, run_scenario(s, model_cache(), {}).summary).first->second;
    }
    [[nodiscard]] static const Capacity& capacity(const std::string& file, const std::vector<std::string>& set,
                                                  const CapacityOptions& options) {
        static std::map<std::string, Capacity> known;
        const std::string key = fmt::format("{} {} {} {} {}", file, fmt::join(set, " "), options.percentile,
                                            options.attainment, options.seeds);
        const auto found = known.find(key);
        return found != known.end()
                   ? found->second
                   : known.emplace(key, find_capacity(load_scenario(file, set, data()), model_cache(), options))
                         .first->second;
    }
};

// What the scenarios of a figure print.
class Prediction {
  public:
    Prediction(const PaperFigure& figure, const std::string& folder) : figure_(figure), folder_(folder) {}

    [[nodiscard]] Range value() const {
        if (figure_.metric == "price") {
            const double rate = figure_.work / seconds_of_line();
            return {rate, rate};
        }
        if (!figure_.readings.empty()) {
            Range out{1e300, 0};
            for (const std::vector<std::string>& reading : figure_.readings) {
                const double one = metric(figure_.scenario, reading);
                out = {std::min(out.low, one), std::max(out.high, one)};
            }
            return out;
        }
        const double from = figure_.increases() ? one(figure_.from, figure_.from_set) : 0;
        double value = one(figure_.scenario, figure_.set) - from;
        if (figure_.over_baseline()) {
            value /= one(figure_.over.empty() ? figure_.scenario : figure_.over, figure_.over_set) - from;
        }
        return {value, value};
    }

  private:
    [[nodiscard]] double one(const std::string& file, const std::vector<std::string>& set) const {
        if (figure_.metric != "capacity") {
            return metric(file, set);
        }
        if (figure_.limits.empty()) {
            return capacity(file, set, figure_.percentile);
        }
        double least = 0;
        for (const PaperLimit& limit : figure_.limits) {
            std::vector<std::string> all = set;
            all.insert(all.end(), limit.set.begin(), limit.set.end());
            const double rate = capacity(file, all, limit.percentile);
            least = least == 0 ? rate : std::min(least, rate);
        }
        return least;
    }
    [[nodiscard]] double metric(const std::string& file, const std::vector<std::string>& set) const {
        const std::int64_t seeds = std::max<std::int64_t>(figure_.seeds, 1);
        double sum = 0;
        for (std::int64_t seed = 1; seed <= seeds; ++seed) {
            const Metric* found =
                Runs::summary(folder_ + "/" + file, set, figure_.seeds > 0 ? seed : 0).find(figure_.metric);
            REQUIRE_MESSAGE(found != nullptr, figure_.metric);
            sum += found->value;
        }
        return sum / static_cast<double>(seeds);
    }
    [[nodiscard]] double capacity(const std::string& file, const std::vector<std::string>& set,
                                  double percentile) const {
        CapacityOptions options;
        options.percentile = percentile;
        options.attainment = figure_.attainment;
        options.seeds = static_cast<int>(figure_.seeds > 0 ? figure_.seeds : 2);
        options.tolerance = 0.05;
        const Capacity& found = Runs::capacity(folder_ + "/" + file, set, options);
        return figure_.per_gpu ? found.rate / static_cast<double>(found.gpus) : found.rate;
    }
    [[nodiscard]] double seconds_of_line() const {
        const Outcome out = orrery_command("price --table " + folder_ + "/" + figure_.scenario + " --quiet --json -");
        REQUIRE_MESSAGE(out.code == 0, out.text);
        return nlohmann::json::parse(out.text).at(static_cast<std::size_t>(figure_.line - 1))["seconds"].get<double>();
    }

    const PaperFigure& figure_;
    std::string folder_;
};

std::string name_of(const Paper& paper, const PaperFigure& figure) {
    std::string out = fmt::format("{}/{}", paper.name, figure.scenario);
    out += figure.set.empty() ? "" : fmt::format(" {}", fmt::join(figure.set, " "));
    out += figure.over_baseline() ? fmt::format(" over {} {}", figure.over, fmt::join(figure.over_set, " ")) : "";
    return fmt::format("{}: {}", out, figure.metric);
}

// Rewrites the predictions of a file where they stand: numbers by line and column.
void rewrite(const std::string& file, const std::map<int, std::pair<int, std::string>>& changes) {
    std::istringstream in(read(file));
    std::string out;
    int number = 0;
    for (std::string line; std::getline(in, line);) {
        const auto found = changes.find(++number);
        if (found != changes.end()) {
            const auto at = static_cast<std::size_t>(found->second.first - 1);
            const std::size_t end = line[at] == '[' ? line.find(']', at) + 1 : line.find_first_of(",} ", at);
            line.replace(at, end == std::string::npos ? std::string::npos : end - at, found->second.second);
        }
        out += line + "\n";
    }
    std::ofstream(file) << out;
}

// Predictions of figures that `wanted` chooses are what the scenarios print, within 1 %, and so are verdicts. With
// ORRERY_UPDATE_EXPECTED the files are brought up to date; what is short then still has to be said by hand.
template <class Wanted>
std::size_t check_predictions(const Wanted& wanted) {
    const bool update = std::getenv("ORRERY_UPDATE_EXPECTED") != nullptr;
    std::size_t count = 0;
    for (const Paper& paper : read_papers(data())) {
        std::map<int, std::pair<int, std::string>> changes;
        for (const PaperFigure& figure : paper.figures) {
            if (!wanted(figure)) {
                continue;
            }
            const Range now = Prediction(figure, paper.folder).value();
            const std::string text = fmt::format("{} {:.4g} {:.4g}", name_of(paper, figure), now.low, now.high);
            const bool same =
                std::abs(now.low / figure.low - 1) <= 0.01 && std::abs(now.high / figure.high - 1) <= 0.01;
            CHECK_MESSAGE(figure.inside(now.low, now.high) == figure.inside(), text);
            if (update) {
                changes[figure.predicted_mark.line] = {figure.predicted_mark.column,
                                                       figure.readings.empty()
                                                           ? fmt::format("{:.4g}", now.low)
                                                           : fmt::format("[{:.4g}, {:.4g}]", now.low, now.high)};
            } else {
                CHECK_MESSAGE(same, text);
            }
            ++count;
        }
        if (!changes.empty()) {
            rewrite(paper.folder + "/expected.yaml", changes);
        }
    }
    return count;
}

// The errors of a folder with this expected.yaml beside a small scenario; empty: there are none.
std::string errors_of(const std::string& expected) {
    const Folder folder;
    (void)folder.file("a.yaml", kSmallTraining);
    (void)folder.file("r.yaml", "orrery: 1\nkind: replay\n");
    const std::string file = folder.file("expected.yaml", expected);
    try {
        (void)read_paper(std::filesystem::path(file).parent_path().string());
    } catch (const ConfigError& error) {
        std::string out;
        for (const Diagnostic& one : error.diagnostics()) {
            out += fmt::format("{}: {}\n", one.line, one.text);
        }
        return out;
    }
    return "";
}

PaperFigure gain(double published, double band) {
    PaperFigure out;
    out.over = "base.yaml";
    out.published = published;
    out.band = band;
    return out;
}

}  // namespace

TEST_CASE("papers: a band is on the gain over a baseline, on the ratio of a share, and on a value by itself") {
    CHECK(gain(1.2, 0.2).inside(1.16, 1.16));
    CHECK(!gain(1.2, 0.2).inside(1.15, 1.15));
    CHECK(!gain(1.2, 0.2).inside(1.0, 1.0));
    CHECK(gain(0.9, 0.25).inside(0.88, 0.88));  // a loss of 10 %, within a quarter of that
    CHECK(!gain(0.9, 0.25).inside(0.97, 0.97));
    PaperFigure share = gain(0.9, 0.1);
    share.share = true;
    CHECK(share.inside(0.97, 0.97));
    PaperFigure half = gain(1.4, 0);
    half.half = true;
    CHECK(half.inside(1.2, 1.2));
    CHECK(half.inside(2, 2));
    CHECK(!half.inside(1.19, 1.19));
    PaperFigure value = gain(10, 0.1);
    value.over.clear();
    CHECK(value.inside(9, 9));
    CHECK(!value.inside(8.9, 8.9));
    value.readings = {{}, {}};
    CHECK(value.inside(5, 9.1));
    CHECK(!value.inside(11.2, 20));
    PaperFigure sign = gain(0, 0);
    sign.published.reset();
    sign.sign = true;
    CHECK(sign.inside(1.001, 1.001));
    CHECK(!sign.inside(1, 1));
}

TEST_CASE("papers: what breaks the rules of scoring is refused, all of it at once with its line") {
    CHECK(errors_of("claim: c\nfigures:\n"
                    "  - {scenario: a.yaml, metric: mfu, published: 2, band: 0.1, headline: true, predicted: 2}\n") ==
          "");
    const std::string all = errors_of(
        "clam: c\nfigures:\n"
        "  - {scenario: a.yaml, metric: mfu, published: 2, band: 0.1, predicted: 3}\n"
        "  - {scenario: b.yaml, metric: mfu, published: 2, band: 0.1, predicted: 2}\n"
        "  - {scenario: a.yaml, over: a.yaml, metric: mfu, predicted: 2}\n"
        "  - {scenario: a.yaml, over: a.yaml, metric: mfu, sign: true, headline: true, predicted: 2}\n"
        "  - {scenario: a.yaml, over: a.yaml, metric: mfu, published: 2, band: half, predicted: 2, status: 'short: "
        "w'}\n"
        "  - {scenario: a.yaml, metric: mfu, published: 2, predicted: two}\n"
        "  - {scenario: a.yaml, metric: mfu, published: 2, band: 0.1, predicted: 2, input: true, headline: true}\n");
    for (const char* said :
         {"1: unknown key 'clam' (did you mean 'claim'?)", "1: the 'claim' of the publication is needed",
          "3: it is outside of its band: say 'status", "4: 'b.yaml' is not in this folder",
          "5: a figure has a 'published' value, or is a 'sign: true'", "6: the headline is neither a sign nor an input",
          "7: it is said to be short and lies within its band", "8: 'two' is no number",
          "9: the headline is neither a sign nor an input", "1: one figure is the 'headline'",
          "1: say in 'baseline' what gains are over"}) {
        CHECK_MESSAGE(all.find(said) != std::string::npos, said << "\n" << all);
    }
}

TEST_CASE("papers: the grade is that of the headline and of every figure that counts") {
    Paper paper;
    paper.figures = {gain(2, 0.1)};
    paper.figures[0].low = paper.figures[0].high = 2;
    CHECK(paper.grade() == PaperGrade::partial);
    paper.figures[0].headline = true;
    CHECK(paper.grade() == PaperGrade::in_band);
    paper.figures.push_back(gain(2, 0.1));
    paper.figures[1].low = paper.figures[1].high = 3;
    CHECK(paper.grade() == PaperGrade::is_short);
    paper.figures[1].input = true;
    CHECK(paper.grade() == PaperGrade::in_band);
    paper.figures[0].replay = true;
    CHECK(paper.grade() == PaperGrade::demonstration);
}

TEST_CASE("papers: what is predicted of runs and prices is what they print, within 1 %") {
    CHECK(check_predictions([](const PaperFigure& figure) { return figure.metric != "capacity"; }) > 150);
}

TEST_CASE("papers: what is predicted of capacities is what their searches print, within 1 %") {
    CHECK(check_predictions([](const PaperFigure& figure) { return figure.metric == "capacity"; }) > 5);
}

TEST_CASE("papers: orrery list papers has a row for each system, its totals add up, and --json has every figure") {
    const std::vector<Paper> papers = read_papers(data());
    const Outcome text = orrery_command("list papers");
    REQUIRE(text.code == 0);
    CHECK(text.text.find(fmt::format("{} systems: ", papers.size())) != std::string::npos);
    const Outcome out = orrery_command("list papers --json -");
    REQUIRE(out.code == 0);
    const auto json = nlohmann::json::parse(out.text);
    REQUIRE(json.size() == papers.size());
    std::map<std::string, std::size_t> grades;
    std::size_t counted = 0;
    std::size_t inside = 0;
    for (std::size_t i = 0; i < papers.size(); ++i) {
        CHECK(json[i]["system"] == papers[i].name);
        CHECK(text.text.find("  " + papers[i].name + " ") != std::string::npos);
        CHECK(json[i]["figures"].size() == papers[i].figures.size());
        ++grades[json[i]["grade"].get<std::string>()];
        for (const auto& figure : json[i]["figures"]) {
            counted += figure["counted"] ? 1 : 0;
            inside += figure["counted"] && figure["in_band"] ? 1 : 0;
        }
    }
    for (const auto& [grade, number] : grades) {
        CHECK_MESSAGE(text.text.find(fmt::format("{} {}", number, grade)) != std::string::npos, text.text);
    }
    CHECK_MESSAGE(text.text.find(fmt::format("figures: {} of {} in band", inside, counted)) != std::string::npos,
                  text.text);
    CHECK(orrery_command("list --json -").code == 2);
    CHECK(nlohmann::json::parse(orrery_command("list metrics --json -").text).at(0).contains("unit"));
}
