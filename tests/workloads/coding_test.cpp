// Codes of gradients against a master and workers that play every task of theirs, and rounds against closed forms.

#include "tests/workloads/faults_support.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery {

namespace {

CodingSpec coding(const std::string& text) {
    CodingSpec out;
    std::vector<Diagnostic> errors;
    read_fields(parse_yaml("coding: " + text, "test"), DataDirectory(""), errors,
                [&](Fields& fields) { describe(fields, out); });
    REQUIRE(errors.empty());
    return out;
}

StragglerSpec slow(double share, double delay_s, double spread_s = 0) {
    StragglerSpec out;
    out.given = true;
    out.share = share;
    out.delay_s = delay_s;
    out.spread_s = spread_s;
    out.rounds = 20000;
    return out;
}

struct Pattern {
    std::int64_t workers, burst, window, late;
};

// Who is late in each round: the code bears each of them after those before.
std::vector<LateWorkers> borne(const GradientCode& code, std::int64_t workers, std::size_t rounds,
                               RandomStream& random) {
    std::vector<LateWorkers> out;
    std::deque<LateWorkers> past;
    for (std::size_t round = 0; round < rounds; ++round) {
        LateWorkers late(static_cast<std::size_t>(workers));
        const double share = random.uniform();
        for (std::size_t i = 0; i < late.size(); ++i) {
            late[i] = random.uniform() < share;
        }
        if (!code.bears(late, past)) {
            late.assign(late.size(), false);
        }
        out.push_back(late);
        past.push_front(late);
    }
    return out;
}

// M-SGC: in round r a worker has task m of job r - m. Returns whether every job is decoded in time.
bool multiplexed_decodes(const Pattern& p, const std::vector<LateWorkers>& late) {
    const auto tasks = static_cast<std::size_t>(p.window - 1 + p.burst);
    const auto own = static_cast<std::size_t>(p.window - 1);
    const std::size_t rounds = late.size();
    // By job: parts of its own that a worker has finished, and how many workers have of each shared group.
    std::vector<std::vector<std::size_t>> finished(rounds, std::vector<std::size_t>(late[0].size()));
    std::vector<std::vector<std::int64_t>> shared(rounds, std::vector<std::int64_t>(tasks - own));
    for (std::size_t round = 0; round < rounds; ++round) {
        for (std::size_t m = 0; m < tasks && m <= round; ++m) {
            for (std::size_t worker = 0; worker < late[0].size(); ++worker) {
                if (late[round][worker]) {
                    continue;
                }
                const std::size_t job = round - m;
                if (m < own || finished[job][worker] < own) {
                    ++finished[job][worker];
                } else {
                    ++shared[job][m - own];
                }
            }
        }
        if (round + 1 < tasks) {
            continue;
        }
        const std::size_t job = round + 1 - tasks;
        for (const std::size_t parts : finished[job]) {
            if (parts < own) {
                return false;
            }
        }
        for (const std::int64_t have : shared[job]) {
            if (have < p.workers - p.late) {
                return false;
            }
        }
    }
    return true;
}

// SR-SGC: late workers of a round do its task again `burst` rounds later, as many as gradient coding cannot do without.
bool repeated_decodes(const Pattern& p, const std::vector<LateWorkers>& late) {
    const std::int64_t spare =
        (p.burst * p.late + p.window - 1 + p.burst - 1) / (p.window - 1 + p.burst);  // workers that a job can lack
    std::vector<std::vector<bool>> did(late.size(), std::vector<bool>(late[0].size()));
    for (std::size_t round = 0; round < late.size(); ++round) {
        std::int64_t again = 0;
        const bool due = static_cast<std::int64_t>(round) >= p.burst;
        const std::size_t job = due ? round - static_cast<std::size_t>(p.burst) : 0;
        if (due) {
            again = std::max<std::int64_t>(0, std::count(did[job].begin(), did[job].end(), false) - spare);
        }
        for (std::size_t worker = 0; worker < late[0].size(); ++worker) {
            const bool repeats = again > 0 && !did[job][worker];
            again -= repeats ? 1 : 0;
            if (!late[round][worker]) {
                did[repeats ? job : round][worker] = true;
            }
        }
        if (due && std::count(did[job].begin(), did[job].end(), false) > spare) {
            return false;
        }
    }
    return true;
}

}  // namespace

TEST_CASE("codes of gradients: loads, delays and what a worker sends are those of the publications") {
    constexpr std::int64_t kWorkers = 256;
    const auto load = [](const std::string& text) { return coding(text).code.make()->load(kWorkers); };
    CHECK(load("none") == 1.0 / 256);
    CHECK(load("{kind: gradient, late: 15}") == 16.0 / 256);
    CHECK(load("{kind: selective-repeat, burst: 2, window: 3, workers: 23}") == 13.0 / 256);
    // The authors' program prints 0.007543 for n = 256, B = 1, W = 2, lambda = 27.
    CHECK(load("{kind: multiplexed, burst: 1, window: 2, workers: 27}") == doctest::Approx(56.0 / (256 * 29)));
    // All may be late: each part once more in `burst` of W - 1 + B rounds; and of none, no work twice.
    CHECK(load("{kind: multiplexed, burst: 2, window: 5, workers: 256}") == doctest::Approx(6.0 / 4 / 256));
    CHECK(load("{kind: multiplexed, burst: 2, window: 5, workers: 0}") == doctest::Approx(1.0 / 256));
    const auto multiplexed = coding("{kind: multiplexed, burst: 2, window: 5, workers: 9}").code.make();
    CHECK(multiplexed->delay() == 5);
    CHECK(multiplexed->results() == 6);
    const auto repeat = coding("{kind: selective-repeat, burst: 2, window: 5, workers: 9}").code.make();
    CHECK(repeat->delay() == 2);
    CHECK(repeat->results() == 1);
}

TEST_CASE("codes of gradients: whatever pattern they bear, every gradient is decoded in time") {
    RandomStream random(7, "test/coding");
    for (const Pattern& p :
         {Pattern{8, 1, 2, 3}, Pattern{8, 2, 3, 4}, Pattern{12, 2, 5, 6}, Pattern{6, 3, 4, 6}, Pattern{9, 1, 4, 0}}) {
        const std::string numbers = fmt::format("burst: {}, window: {}, workers: {}}}", p.burst, p.window, p.late);
        const auto multiplexed = coding("{kind: multiplexed, " + numbers).code.make();
        for (int i = 0; i < 20; ++i) {
            CHECK(multiplexed_decodes(p, borne(*multiplexed, p.workers, 200, random)));
        }
        const auto repeat = coding("{kind: selective-repeat, " + numbers).code.make();
        if (repeat->problem(p.workers).empty()) {
            for (int i = 0; i < 20; ++i) {
                CHECK(repeated_decodes(p, borne(*repeat, p.workers, 200, random)));
            }
        }
    }
    // Late in two rounds that follow each other is a burst of two: it is not borne, and would not be decoded.
    const Pattern single{4, 1, 2, 2};
    const auto code = coding("{kind: multiplexed, burst: 1, window: 2, workers: 2}").code.make();
    const LateWorkers first = {true, false, false, false};
    CHECK(code->bears(first, {}));
    CHECK_FALSE(code->bears(first, {first}));
    CHECK_FALSE(code->bears({true, true, true, false}, {}));
    CHECK_FALSE(code->bears({false, false, true, true}, {first}));
    CHECK_FALSE(multiplexed_decodes(single, {first, first, LateWorkers(4)}));
}

TEST_CASE("rounds without stragglers take the load of a worker, and as many exchanges as it sends gradients") {
    const RoundParts parts{2, 0.5, 0.25};
    const auto round = [&](const std::string& text) { return play_rounds({}, coding(text), 16, parts, 1).round_s; };
    CHECK(round("none") == doctest::Approx(2.75));
    CHECK(round("{kind: gradient, late: 3}") == doctest::Approx(4 * 2 + 0.5 + 0.25));
    CHECK(round("{kind: multiplexed, burst: 1, window: 3, workers: 16}") ==
          doctest::Approx(3.0 / 2 * 2 + 3 * 0.5 + 0.25));
}

TEST_CASE("rounds with stragglers: waiting for all, and gradient coding, as the binomial law has it") {
    const RoundParts parts{1, 0, 0};
    constexpr std::int64_t kWorkers = 32;
    constexpr double kShare = 0.05;
    const double nobody = std::pow(1 - kShare, kWorkers);
    for (const double burst : {0.0, 3.0}) {  // how long states last changes no mean over rounds
        StragglerSpec slow_ones = slow(kShare, 10);
        slow_ones.burst = burst;
        CHECK(play_rounds(slow_ones, coding("none"), kWorkers, parts, 3).round_s ==
              doctest::Approx(1 + 10 * (1 - nobody)).epsilon(0.02));
        // With one or two late the round ends at 1.5 times the fastest, with more when the slow ones are there.
        double few = 0;
        double choose = 1;
        for (int k = 1; k <= 2; ++k) {
            choose *= static_cast<double>(kWorkers - k + 1) / k;
            few += choose * std::pow(kShare, k) * std::pow(1 - kShare, kWorkers - k);
        }
        const RoundsPlayed coded =
            play_rounds(slow_ones, coding("{kind: gradient, late: 2, patience: 0.5}"), kWorkers, parts, 3);
        CHECK(coded.round_s == doctest::Approx(3 * nobody + 4.5 * few + 13 * (1 - nobody - few)).epsilon(0.02));
        CHECK(coded.waited == doctest::Approx(1 - nobody - few).epsilon(0.05));
    }
    // A slow worker at half its speed computes for twice as long.
    StragglerSpec half = slow(kShare, 0);
    half.factor = 0.5;
    CHECK(play_rounds(half, coding("none"), kWorkers, parts, 3).round_s == doctest::Approx(2 - nobody).epsilon(0.02));
}

TEST_CASE("rounds that a code does not bear end when enough have answered, or all") {
    const RoundParts parts{1, 0, 0};
    const StragglerSpec tail = slow(0.3, 5, 10);
    const RoundsPlayed enough = play_rounds(tail, coding("{kind: gradient, late: 4}"), 16, parts, 5);
    const RoundsPlayed all = play_rounds(tail, coding("{kind: gradient, late: 4, waits: all}"), 16, parts, 5);
    CHECK(enough.waited == all.waited);
    CHECK(enough.round_s < 0.8 * all.round_s);
    // Bursts of two are not borne by a code for single rounds.
    StragglerSpec bursts = slow(0.02, 5);
    const CodingSpec singles = coding("{kind: multiplexed, burst: 1, window: 2, workers: 12, models: 2}");
    const double memoryless = play_rounds(bursts, singles, 16, parts, 5).waited;
    bursts.burst = 4;
    CHECK(play_rounds(bursts, singles, 16, parts, 5).waited > 5 * memoryless);
}

TEST_CASE("campaigns: what rounds with stragglers take longer is lost to stragglers") {
    class StragglingJob final : public JobModel {
      public:
        double iteration_s(const ClusterState&) override { return 2; }
        double straggling_s() override { return 2.5; }
        std::vector<std::uint32_t> nodes_used(const std::vector<std::uint32_t>& nodes) const override { return nodes; }
        CheckpointSetting checkpoint() const override { return {}; }
    };
    FaultsSpec faults;
    faults.duration_s = 1000;
    StragglingJob job;
    const CampaignPlan plan = plan_campaign(faults, test::nodes_of_eight(4), job, {});
    const CampaignResult run = run_campaign(plan, job, 1, false);
    CHECK(run.tally[Cause::useful] == doctest::Approx(800e9));
    CHECK(run.tally[Cause::stragglers] == doctest::Approx(200e9));
}

}  // namespace orrery
