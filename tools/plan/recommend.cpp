#include "tools/plan/recommend.hpp"

#include "sim/base/error.hpp"
#include "sim/config/units.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "tools/driver/model_cache.hpp"
#include "tools/driver/run.hpp"
#include "tools/sweep/worker_pool.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

namespace orrery::plan {

namespace {

using Json = nlohmann::json;

constexpr double kTimeout = 600;          // s of a request to a worker
constexpr std::size_t kJudgedAtOnce = 8;  // arrangements between two looks at the best, whatever the workers
constexpr double kDearest = 2;            // times the best cost: beyond, an arrangement is not searched
constexpr double kDearestAtFirst = 4;     // times the best cost for a part of the load
constexpr double kNever = std::numeric_limits<double>::infinity();

double value_of(const Summary& summary, const std::string& name) {
    const Metric* metric = summary.find(name);
    return metric == nullptr || !metric->measured() ? 0 : metric->value;
}

// What a run said of the limits.
struct Verdict {
    bool within = true;
    std::vector<double> values;
    std::string exceeded;
    double output_tokens = 0;
    double median_tpot = 0, ttft = 0, tpot = 0;  ///< s
};

// How many requests are run, from short parts of the load to all of it (0).
std::vector<std::int64_t> lengths_of(const Scenario& scenario, bool exhaustive) {
    const auto& serving = scenario.as<ServingKind>();
    const RequestsSpec& requests = serving.requests;
    constexpr std::int64_t kOfSteady = 6400;
    constexpr std::int64_t kFewest = 300;
    const bool bounded = serving.measure.from > 0 || serving.measure.to > 0 || requests.swing > 0;
    if (exhaustive || bounded) {
        return {0};
    }
    const std::int64_t whole = requests.count > 0 ? requests.count : kOfSteady;
    const std::int64_t eighth = std::max(kFewest, whole / 8);
    if (eighth >= whole) {
        return {0};
    }
    return whole / 3 > eighth ? std::vector<std::int64_t>{eighth, whole / 3, 0} : std::vector<std::int64_t>{eighth, 0};
}

// The smallest value of a percentile of what was measured; requests that were not served take for ever.
double percentile_of(const std::vector<RequestRow>& rows, const MeasureSpec& measure, const LatencyLimit& limit) {
    std::vector<double> values;
    for (const RequestRow& row : rows) {
        const bool counts = row.arrival >= measure.from && (measure.to <= 0 || row.arrival < measure.to);
        if (!counts || (limit.metric == "tpot" && row.ending == Ending::finished && row.output < 2)) {
            continue;
        }
        values.push_back(row.ending != Ending::finished ? kNever
                         : limit.metric == "ttft"       ? row.ttft
                         : limit.metric == "tpot"       ? row.tpot
                                                        : row.e2e);
    }
    if (values.empty()) {
        return 0;
    }
    const double rank = std::ceil(limit.percentile / 100 * static_cast<double>(values.size()));
    const auto at =
        values.begin() + static_cast<std::ptrdiff_t>(std::clamp(rank, 1.0, static_cast<double>(values.size()))) - 1;
    std::nth_element(values.begin(), at, values.end());
    return *at;
}

class Judge {
  public:
    Judge(const std::vector<Arrangement>& arrangements, const std::vector<std::int64_t>& lengths,
          const DataDirectory& data, const RecommendOptions& options)
        : arrangements_(arrangements), lengths_(lengths), models_(data), options_(options) {}

    // Reads the tables of kernels that an arrangement needs, for all workers.
    void load(std::size_t arrangement) {
        Scenario scenario = plan::scenario_of(arrangements_[arrangement], {1, 1});
        scenario.as<ServingKind>().requests.count = 1;
        (void)run_scenario(scenario, models_, {});
    }

    // {"arrangement", "rung", "start": [first, second], "most_usd"} -> what was found, or why nothing was.
    std::string answer(const std::string& request) {
        const Json asked = Json::parse(request);
        one_ = &arrangements_[asked["arrangement"]];
        rung_ = asked["rung"];
        most_usd_ = asked["most_usd"].is_null() ? kNever : asked["most_usd"].get<double>();
        known_.clear();
        runs_ = 0;
        last_exceeded_.clear();
        const ReplicaCounts start{asked["start"][0], asked["start"][1]};
        Json out;
        try {
            const std::optional<ReplicaCounts> found = options_.exhaustive ? try_all()
                                                       : one_->split       ? search_split(start)
                                                                           : search_mixed(start.first);
            out =
                found
                    ? found_json(*found)
                    : Json{{"misses", last_exceeded_.empty() ? "one replica is more than is allowed" : last_exceeded_},
                           {"tried", runs_ > 0}};
        } catch (const InfeasibleError& error) {
            out = {{"infeasible", error.code() == ErrorCode::out_of_memory ? "memory" : "divide"}};
        }
        out["runs"] = runs_;
        return out.dump();
    }

  private:
    [[nodiscard]] bool allowed(ReplicaCounts counts) const {
        const double usd = cost_of(*one_, counts, options_.whole_nodes);
        return gpus_of(*one_, counts) <= options_.most_gpus && (options_.budget <= 0 || usd <= options_.budget) &&
               usd <= most_usd_;
    }

    [[nodiscard]] bool is_last() const { return rung_ + 1 == lengths_.size(); }

    const Verdict& run(ReplicaCounts counts) {
        std::optional<Verdict>& known = known_[counts];
        if (!known) {
            known = simulate(counts);
        }
        return *known;
    }

    Verdict simulate(ReplicaCounts counts) {
        ++runs_;
        Scenario scenario = plan::scenario_of(*one_, counts);
        auto& serving = scenario.as<ServingKind>();
        if (lengths_[rung_] > 0) {
            serving.requests.count = lengths_[rung_];
        }
        RunOptions options;
        options.requests = true;
        const RunOutput out = run_scenario(scenario, models_, options);
        Verdict verdict;
        const auto exceeds = [&](const std::string& what) {
            verdict.within = false;
            verdict.exceeded += (verdict.exceeded.empty() ? "" : ", ") + what;
        };
        for (const LatencyLimit& limit : options_.limits) {
            const double value = limit.metric == "tbt"
                                     ? value_of(out.summary, fmt::format("tbt_s.p{:g}", limit.percentile))
                                     : percentile_of(out.requests, serving.measure, limit);
            verdict.values.push_back(value);
            if (value > limit.seconds) {
                exceeds(fmt::format(
                    "{} p{:g} {}", limit.metric, limit.percentile,
                    std::isfinite(value) ? pretty_quantity(value, Dimension::time) : "of requests not served"));
            }
        }
        if (options_.limits.empty()) {
            const double attained = value_of(out.summary, "slo_attainment");
            verdict.values.push_back(attained);
            if (attained < options_.attainment) {
                exceeds(fmt::format("{:.1f} % in time", 100 * attained));
            }
        }
        if (value_of(out.summary, "overloaded") > 0) {
            exceeds("the queue grows without bound");
        }
        verdict.output_tokens = value_of(out.summary, "output_tokens_per_s");
        verdict.ttft = percentile_of(out.requests, serving.measure, {"ttft", 95, 0});
        verdict.tpot = percentile_of(out.requests, serving.measure, {"tpot", 95, 0});
        verdict.median_tpot = percentile_of(out.requests, serving.measure, {"tpot", 50, 0});
        return verdict;
    }

    // With the spare replicas lost, of either pool: the worse of the two. Null: there would be none left.
    const Verdict* with_losses(ReplicaCounts counts) {
        const std::int64_t spare = options_.spare;
        if (counts.first <= spare || (one_->split && counts.second <= spare)) {
            last_exceeded_ = spare > 0 ? "no replica is left" : "it is the only replica";
            return nullptr;
        }
        const Verdict* verdict = &run({counts.first - spare, counts.second});
        if (verdict->within && one_->split && spare > 0) {
            verdict = &run({counts.first, counts.second - spare});
        }
        if (!verdict->within) {
            last_exceeded_ = verdict->exceeded;
        }
        return verdict;
    }

    bool holds(ReplicaCounts counts) {
        const Verdict* verdict = with_losses(counts);
        return verdict != nullptr && verdict->within;
    }

    // The least of these counts that holds, all of them being in `at` with the number put in its place.
    template <class Put>
    std::optional<std::int64_t> least(std::int64_t low, std::int64_t start, const Put& put) {
        std::int64_t good = 0;
        std::int64_t bad = low - 1;
        std::int64_t at = std::max(low, start);
        while (at > low && !allowed(put(at))) {
            --at;
        }
        for (std::int64_t step = 1;; step *= 2) {
            if (!allowed(put(at))) {
                return std::nullopt;
            }
            if (holds(put(at))) {
                good = at;
                break;
            }
            bad = at;
            at += step;
            while (at > bad + 1 && !allowed(put(at))) {
                --at;
            }
        }
        for (std::int64_t step = 1; good - 1 > bad; step *= 2) {  // down from where it began
            const std::int64_t next = std::max(bad + 1, good - step);
            if (!holds(put(next))) {
                bad = next;
                break;
            }
            good = next;
        }
        while (good - 1 > bad) {
            const std::int64_t middle = bad + (good - bad) / 2;
            (holds(put(middle)) ? good : bad) = middle;
        }
        ORRERY_ASSERT(good == bad + 1);
        return good;
    }

    std::optional<ReplicaCounts> search_mixed(std::int64_t start) {
        const auto found = least(one_->least + options_.spare, start, [](std::int64_t n) {
            return ReplicaCounts{n, 0};
        });
        return found ? std::optional<ReplicaCounts>({*found, 0}) : std::nullopt;
    }

    // Each pool with the other one ample, then both, and what both lack together by the cheapest steps.
    std::optional<ReplicaCounts> search_split(ReplicaCounts start) {
        const std::int64_t spare = options_.spare;
        constexpr std::int64_t kAmple = 4;
        std::int64_t ample = std::max<std::int64_t>(kAmple, 2 * start.second) + spare;
        std::optional<std::int64_t> first;
        for (;; ample *= 2) {
            while (ample > 1 + spare && !allowed({one_->least + spare, ample})) {
                --ample;
            }
            first = least(one_->least + spare, start.first, [&](std::int64_t n) { return ReplicaCounts{n, ample}; });
            if (first || !allowed({one_->least + spare, ample + 1})) {
                break;
            }
        }
        if (!first) {
            return std::nullopt;
        }
        const auto second = least(1 + spare, start.second, [&](std::int64_t n) { return ReplicaCounts{*first, n}; });
        if (!second) {
            return std::nullopt;
        }
        // More of the first may do with fewer of the second.
        ReplicaCounts best{*first, *second};
        const auto cost = [&](ReplicaCounts counts) {
            return std::pair(cost_of(*one_, counts, options_.whole_nodes), gpus_of(*one_, counts));
        };
        for (std::int64_t more = 1, misses = 0; misses < 2; ++more) {
            ReplicaCounts next{*first + more, best.second};
            while (next.second > 1 + spare && cost({next.first, next.second}) >= cost(best)) {
                --next.second;
            }
            if (cost(next) >= cost(best)) {
                break;
            }
            if (!holds(next)) {
                ++misses;
                continue;
            }
            while (next.second > 1 + spare && holds({next.first, next.second - 1})) {
                --next.second;
            }
            best = next;
        }
        return best;
    }

    std::optional<ReplicaCounts> try_all() {
        std::vector<ReplicaCounts> all;
        for (std::int64_t first = 1 + options_.spare; gpus_of(*one_, {first, 0}) <= options_.most_gpus; ++first) {
            for (std::int64_t second = one_->split ? 1 + options_.spare : 0; allowed({first, second}); ++second) {
                all.push_back({first, second});
                if (!one_->split) {
                    break;
                }
            }
        }
        std::stable_sort(all.begin(), all.end(), [&](ReplicaCounts a, ReplicaCounts b) {
            return std::pair(cost_of(*one_, a, options_.whole_nodes), gpus_of(*one_, a)) <
                   std::pair(cost_of(*one_, b, options_.whole_nodes), gpus_of(*one_, b));
        });
        const auto found = std::find_if(all.begin(), all.end(), [&](ReplicaCounts counts) { return holds(counts); });
        return found == all.end() ? std::nullopt : std::optional<ReplicaCounts>(*found);
    }

    // What gives out with a replica less of each pool.
    std::string fewer(ReplicaCounts counts) {
        const auto less = [&](ReplicaCounts with) {
            last_exceeded_.clear();
            return holds(with) ? std::string("the limits hold too, by chance") : last_exceeded_;
        };
        if (!one_->split) {
            return less({counts.first - 1, 0});
        }
        const std::string prefill = less({counts.first - 1, counts.second});
        const std::string decode = less({counts.first, counts.second - 1});
        return prefill == decode ? prefill : fmt::format("prefill: {}; decode: {}", prefill, decode);
    }

    Json found_json(ReplicaCounts counts) {
        Json out = {{"replicas", {counts.first, counts.second}}};
        if (!is_last()) {
            return out;
        }
        const Verdict& whole = run(counts);
        out["values"] = whole.values;
        out["tokens"] = whole.output_tokens;
        out["median_tpot"] = whole.median_tpot;
        out["ttft"] = whole.ttft;
        out["tpot"] = whole.tpot;
        if (options_.spare > 0) {
            std::vector<double> worse = run({counts.first - options_.spare, counts.second}).values;
            if (one_->split) {
                const std::vector<double>& other = run({counts.first, counts.second - options_.spare}).values;
                for (std::size_t i = 0; i < worse.size(); ++i) {
                    worse[i] = options_.limits.empty() ? std::min(worse[i], other[i]) : std::max(worse[i], other[i]);
                }
            }
            out["lost"] = worse;
        }
        out["fewer"] = fewer(counts);
        return out;
    }

    const std::vector<Arrangement>& arrangements_;
    const std::vector<std::int64_t>& lengths_;
    ModelCache models_;
    const RecommendOptions& options_;
    const Arrangement* one_ = nullptr;
    std::size_t rung_ = 0;
    double most_usd_ = kNever;
    std::map<ReplicaCounts, std::optional<Verdict>> known_;
    std::uint64_t runs_ = 0;
    std::string last_exceeded_;
};

class Recommender {
  public:
    Recommender(ArrangementList list, const Scenario& base, const DataDirectory& data, const RecommendOptions& options)
        : data_(data), options_(options), lengths_(lengths_of(base, options.exhaustive)) {
        out_.list = std::move(list);
        for (std::size_t i = 0; i < out_.list.open.size(); ++i) {
            const Arrangement& one = out_.list.open[i];
            ReplicaCounts counts{one.least + options.spare, one.split ? 1 + options.spare : 0};
            states_.push_back({0, cost_of(one, counts, options.whole_nodes), counts});
            order_.push_back(i);
        }
    }

    RecommendSearch search() {
        judge_.emplace(out_.list.open, lengths_, data_, options_);
        std::set<std::string> loaded;
        for (std::size_t i = 0; i < out_.list.open.size(); ++i) {
            const Arrangement& one = out_.list.open[i];
            const std::string kernels = fmt::format("{} {}", one.scenario.cluster.node.gpu.name, one.engine);
            if (!one.split && loaded.insert(kernels).second) {
                judge_->load(i);
            }
        }
        for (;;) {
            const std::vector<std::size_t> batch = next_batch();
            if (batch.empty()) {
                break;
            }
            judge(batch);
        }
        if (out_.ranked.empty()) {
            const ArrangementList& list = out_.list;
            throw InfeasibleError(
                fmt::format(
                    "none of {} arrangements holds the limits with up to {} GPUs{}: {} do not divide, {} do not fit "
                    "into memory, {} read their weights too slowly, {} miss the limits{}{}",
                    list.listed, options_.most_gpus,
                    options_.budget > 0 ? fmt::format(" and {:g} USD an hour", options_.budget) : "",
                    list.do_not_divide, list.do_not_fit, list.too_slow, out_.miss_limits,
                    first_miss_.empty() ? "" : fmt::format(" (such as {})", first_miss_),
                    list.why_refused.empty()
                        ? ""
                        : fmt::format("; the scenario refuses {}: {}", list.refused, list.why_refused)),
                ErrorCode::limits_not_met);
        }
        rank();
        for (const State& state : states_) {
            out_.dearer += state.open && state.rung < lengths_.size() ? 1 : 0;
        }
        return std::move(out_);
    }

  private:
    struct State {
        std::size_t rung;      ///< of the next run
        double cost;           ///< as far as is known: a bound, or by a part of the load
        ReplicaCounts counts;  ///< the same
        bool open = true;
    };

    // The cheapest that are open, if they look cheaper than the best or too few are judged.
    std::vector<std::size_t> next_batch() {
        std::vector<std::size_t> out;
        const std::size_t wanted = std::max<std::size_t>(1, options_.judged);
        std::size_t others = out_.ranked.size() < wanted ? wanted - out_.ranked.size() : 0;
        std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
            return std::tuple(states_[a].cost, a) < std::tuple(states_[b].cost, b);
        });
        for (const std::size_t i : order_) {
            const State& state = states_[i];
            if (!state.open || state.rung == lengths_.size()) {
                continue;
            }
            const bool cheaper = state.cost < best_ || options_.exhaustive;
            if ((!cheaper && (others == 0 || state.cost > kDearest * best_)) || out.size() == kJudgedAtOnce) {
                break;
            }
            others -= !cheaper ? 1 : 0;
            out.push_back(i);
        }
        return out;
    }

    void judge(const std::vector<std::size_t>& batch) {
        std::map<std::size_t, WorkReply> replies;
        std::size_t at = 0;
        double& most = asked_most_;
        most = kNever;
        for (const State& state : states_) {  // with few requests all look cheap
            most = state.rung > 0 && !options_.exhaustive ? std::min(most, kDearestAtFirst * state.cost) : most;
        }
        most = options_.exhaustive ? kNever : std::min(most, kDearest * best_);
        run_in_workers(
            options_.workers, kTimeout, [&](const std::string& request) { return judge_->answer(request); },
            [&]() -> std::optional<WorkRequest> {
                if (at == batch.size()) {
                    return std::nullopt;
                }
                const std::size_t i = batch[at++];
                tell(i);
                Json asked = {{"arrangement", i},
                              {"rung", states_[i].rung},
                              {"start", {states_[i].counts.first, states_[i].counts.second}},
                              {"most_usd", nullptr}};
                if (std::isfinite(most)) {
                    asked["most_usd"] = most;
                }
                return WorkRequest{i, asked.dump()};
            },
            [&](std::size_t i, const WorkReply& reply) -> std::optional<std::string> {
                replies[i] = reply;
                return std::nullopt;
            });
        for (const std::size_t i : batch) {  // in their order, whichever was first
            take(i, replies.at(i));
        }
    }

    void tell(std::size_t i) {
        if (options_.found) {
            options_.found(
                fmt::format("{}; {}", best_words_.empty() ? "none yet" : best_words_, out_.list.open[i].words));
        }
    }

    void take(std::size_t i, const WorkReply& reply) {
        const Arrangement& one = out_.list.open[i];
        State& state = states_[i];
        ORRERY_ASSERT(state.open && state.rung < lengths_.size());
        if (reply.end != WorkReply::End::answered) {
            throw InternalError(fmt::format("the search of {} ended: {}", one.words, reply.text));
        }
        const Json answer = Json::parse(reply.text);
        out_.runs += answer["runs"].get<std::uint64_t>();
        if (answer.contains("infeasible")) {
            state.open = false;
            ++(answer["infeasible"] == "memory" ? out_.list.do_not_fit : out_.list.do_not_divide);
            return;
        }
        if (answer.contains("misses")) {
            state.open = false;
            ++(std::isfinite(asked_most_) ? out_.dearer : out_.miss_limits);
            if (first_miss_.empty() && answer["tried"].get<bool>()) {
                first_miss_ = fmt::format("{}: {}", one.words, answer["misses"].get<std::string>());
            }
            return;
        }
        state.counts = {answer["replicas"][0], answer["replicas"][1]};
        state.cost = cost_of(one, state.counts, options_.whole_nodes);
        if (++state.rung < lengths_.size()) {
            return;
        }
        Recommendation found;
        found.arrangement = i;
        found.replicas = state.counts;
        found.gpus = gpus_of(one, state.counts);
        found.usd_per_hour = state.cost;
        found.output_tokens = answer["tokens"];
        found.tokens_per_gpu = found.output_tokens / static_cast<double>(found.gpus);
        const double median = answer["median_tpot"];
        found.tokens_per_user = median > 0 ? 1 / median : 0;
        found.ttft = number_of(answer["ttft"]);
        found.tpot = number_of(answer["tpot"]);
        for (const Json& value : answer["values"]) {
            found.values.push_back(number_of(value));
        }
        for (const Json& value : answer.value("lost", Json::array())) {
            found.lost.push_back(number_of(value));
        }
        found.fewer = answer["fewer"];
        if (state.cost < best_) {
            best_ = state.cost;
            best_words_ = fmt::format("best so far {:.4g} USD/h with {} of {}", best_,
                                      replicas_text(one, found.replicas), one.words);
        }
        out_.ranked.push_back(std::move(found));
    }

    // JSON has no infinity.
    static double number_of(const Json& value) { return value.is_null() ? kNever : value.get<double>(); }

    static std::string replicas_text(const Arrangement& one, ReplicaCounts counts) {
        return one.split ? fmt::format("{} + {}", counts.first, counts.second) : std::to_string(counts.first);
    }

    // Of equal cost: fewer GPUs, then faster for users, then the order of the list.
    void rank() {
        std::sort(out_.ranked.begin(), out_.ranked.end(), [](const Recommendation& a, const Recommendation& b) {
            return std::tuple(a.usd_per_hour, a.gpus, -a.tokens_per_user, a.arrangement) <
                   std::tuple(b.usd_per_hour, b.gpus, -b.tokens_per_user, b.arrangement);
        });
        const auto dominates = [](const Recommendation& a, const Recommendation& b) {
            const bool no_worse = a.usd_per_hour <= b.usd_per_hour && a.tokens_per_gpu >= b.tokens_per_gpu &&
                                  a.tokens_per_user >= b.tokens_per_user;
            return no_worse && (a.usd_per_hour < b.usd_per_hour || a.tokens_per_gpu > b.tokens_per_gpu ||
                                a.tokens_per_user > b.tokens_per_user);
        };
        for (Recommendation& one : out_.ranked) {
            one.pareto = std::none_of(out_.ranked.begin(), out_.ranked.end(),
                                      [&](const Recommendation& other) { return dominates(other, one); });
        }
        ORRERY_ASSERT(std::any_of(out_.ranked.begin(), out_.ranked.end(), [](const auto& one) { return one.pareto; }));
    }

    const DataDirectory& data_;
    const RecommendOptions& options_;
    std::vector<std::int64_t> lengths_;
    std::vector<State> states_;
    std::vector<std::size_t> order_;
    RecommendSearch out_;
    std::optional<Judge> judge_;
    double best_ = kNever;        ///< USD per hour, on the whole load
    double asked_most_ = kNever;  ///< USD per hour that the last batch might cost
    std::string best_words_, first_miss_;
};

}  // namespace

RecommendSearch recommend(const YamlNode& root, const Scenario& base, const DataDirectory& data,
                          const RecommendOptions& options) {
    const DataDirectory once = data.read_once();
    return Recommender(list_arrangements(root, base, once, options), base, once, options).search();
}

}  // namespace orrery::plan
