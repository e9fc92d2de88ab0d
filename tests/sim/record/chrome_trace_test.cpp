// Timelines as Chrome's trace events.

#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/kinds/training_faults.hpp"

#include <doctest/doctest.h>

#include <map>
#include <set>

using namespace orrery;

namespace {

/// A decimal number without its point: of times that all have equally many digits behind it.
std::int64_t digits_behind(const std::string& text, const std::string& key) {
    const std::size_t at = text.find(key);
    REQUIRE(at != std::string::npos);
    std::string digits;
    for (std::size_t i = at + key.size(); i < text.size() && (std::isdigit(text[i]) != 0 || text[i] == '.'); ++i) {
        digits += text[i] == '.' ? "" : std::string(1, text[i]);
    }
    return std::stoll(digits);
}

/// How many slices of a track overlap the one before, and how many there are.
std::pair<std::size_t, std::size_t> overlapping(const std::string& trace) {
    std::map<std::pair<std::int64_t, std::int64_t>, std::multiset<std::pair<std::int64_t, std::int64_t>>> tracks;
    std::istringstream lines(trace);
    std::size_t all = 0;
    for (std::string line; std::getline(lines, line);) {
        if (line.find("\"ph\":\"X\"") != std::string::npos) {
            const std::int64_t start = digits_behind(line, "\"ts\":");
            tracks[{digits_behind(line, "\"pid\":"), digits_behind(line, "\"tid\":")}].insert(
                {start, start + digits_behind(line, "\"dur\":")});
            ++all;
        }
    }
    std::size_t found = 0;
    for (const auto& [track, spans] : tracks) {
        std::int64_t end = 0;
        for (const auto& [from, to] : spans) {
            found += from < end ? 1 : 0;
            end = std::max(end, to);
        }
    }
    return {found, all};
}

RunOutput drawn(const std::string& scenario) {
    RunOptions options;
    options.timeline = true;
    return run_scenario(
        load_scenario(std::string(ORRERY_SOURCE_DIR) + "/scenarios/" + scenario + ".yaml", {}, test::data()),
        test::model_cache(), options);
}

}  // namespace

TEST_CASE("slices of a track never overlap in a trace, neither by rounding nor where faults last at a time") {
    for (const char* scenario : {"training/rack-power", "training/searched-order-8xA100", "faults/spot-preemptions"}) {
        const auto [overlaps, slices] = overlapping(to_chrome_trace(with_campaign(drawn(scenario))));
        CHECK_MESSAGE(slices > 500, scenario);
        CHECK_MESSAGE(overlaps == 0, scenario);
    }
}

TEST_CASE("a slice ends where the next one begins, however long the run, and one that really overlaps stays") {
    Timeline timeline;
    const double start = 30 * 86400e6;  // us: a double holds 0.5 ns there
    for (int i = 0; i < 1000; ++i) {
        const double from = start + i * 0.7;
        timeline.spans.push_back({"a", "a", 0, 0, from, start + (i + 1) * 0.7 - from});
    }
    CHECK(overlapping(to_chrome_trace(timeline)).first == 0);
    timeline.spans.push_back({"b", "b", 0, 0, start + 0.3, 0.7});
    CHECK(overlapping(to_chrome_trace(timeline)).first > 0);
    // 200 days have no picoseconds in 64 bits.
    const std::string longest = to_chrome_trace({{}, {}, {{"a", "a", 0, 0, 200 * 86400e6, 1.5}}, {}, {}, {}});
    CHECK(longest.find("\"ts\":17280000000000.000,\"dur\":1.500") != std::string::npos);
}
