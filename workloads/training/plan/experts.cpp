#include "workloads/training/plan/experts.hpp"

#include "sim/base/math.hpp"
#include "workloads/training/plan/expert_placement.hpp"

#include <algorithm>
#include <numeric>

namespace orrery::training {

namespace {

// How often each expert is chosen over the mean, the most wanted first where a law says it.
std::vector<double> relative_loads(const ExpertsSpec& experts, const ExpertPlan& plan) {
    std::vector<double> loads = plan.loads;
    if (loads.empty()) {
        for (std::int64_t i = 0; i < experts.count; ++i) {
            loads.push_back(plan.exponent > 0 ? pow_pinned(static_cast<double>(i + 1), -plan.exponent) : 1);
        }
    }
    double sum = 0;
    for (const double load : loads) {
        sum += load;
    }
    // Nobody chooses an expert twice for a token.
    const double most = static_cast<double>(experts.count) / static_cast<double>(experts.topk);
    for (double& load : loads) {
        load = std::min(most, load / sum * static_cast<double>(experts.count));
    }
    return loads;
}

// The first of equals.
std::vector<bool> most_wanted(const std::vector<double>& loads, std::size_t count) {
    std::vector<std::size_t> order(loads.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return loads[a] > loads[b]; });
    std::vector<bool> out(loads.size(), false);
    for (std::size_t i = 0; i < count; ++i) {
        out[order[i]] = true;
    }
    return out;
}

}  // namespace

ExpertLoad load_of(const ExpertsSpec& experts, const PlanSpec& plan) {
    const ExpertPlan& own = plan.experts;
    if (own.pad) {
        return {own.capacity, own.capacity};
    }
    if (own.exponent <= 0 && own.loads.empty() && own.shadowed == 0) {
        const double kept = own.capacity > 0 ? std::min(1.0, own.capacity) : 1;
        return {kept, kept};
    }
    const std::vector<double> loads = relative_loads(experts, own);
    const std::vector<bool> shadowed = most_wanted(loads, static_cast<std::size_t>(own.shadowed));
    std::vector<double> ranks(static_cast<std::size_t>(own.expert), 0);
    double sum = 0;
    double stays = 0;
    const std::size_t together = loads.size() / ranks.size();
    const bool placed = plan.has<ExpertPlacement>();
    const std::vector<std::size_t> places =
        placed ? plan.feature<ExpertPlacement>().place(loads, ranks.size()) : std::vector<std::size_t>();
    for (std::size_t i = 0; i < loads.size(); ++i) {
        const double kept = own.capacity > 0 ? std::min(loads[i], own.capacity) : loads[i];
        if (shadowed[i]) {
            stays += kept;
            continue;
        }
        // Without a placement a list names experts as they lie, and a law's are dealt out.
        ranks[placed ? places[i] : own.loads.empty() ? i % ranks.size() : i / together] += kept;
        sum += kept;
    }
    const double hottest = *std::max_element(ranks.begin(), ranks.end());
    const auto all = static_cast<double>(loads.size());
    return {hottest / static_cast<double>(together) + stays / all, sum / all};
}

double expert_rows(const ExpertsSpec& experts, const PlanSpec& plan, double tokens, const ExpertLoad& load) {
    return tokens * static_cast<double>(plan.expert_tensor()) * static_cast<double>(experts.topk) * load.hottest;
}

ExpertExchange::ExpertExchange(const ModelSpec& model, const PlanSpec& plan, const CollectiveModel& collectives,
                               const RankGroups& ranks)
    : model_(model), plan_(plan), collectives_(collectives), load_(load_of(model.experts, plan)) {
    add_groups(ranks);
}

void ExpertExchange::add_groups(const RankGroups& ranks) {
    const auto tensor = static_cast<std::uint32_t>(plan_.expert_tensor());
    const auto expert = static_cast<std::uint32_t>(plan_.experts.expert);
    const auto all = static_cast<std::uint32_t>(plan_.stage_ranks());
    const std::uint32_t start = ranks.first_in_stage() - ranks.first_in_stage() % (tensor * expert);
    std::vector<RankGroups::Members> whole;
    std::vector<RankGroups::Members> experts;
    std::vector<RankGroups::Members> cut;
    for (std::uint32_t from = start; from < start + all; from += tensor * expert) {
        RankGroups::Members& own = whole.emplace_back();
        for (std::uint32_t i = 0; i < tensor * expert; ++i) {
            own.push_back((from + i) % all);
        }
        for (std::uint32_t t = 0; t < tensor; ++t) {
            RankGroups::Members& group = experts.emplace_back();
            for (std::uint32_t e = 0; e < expert; ++e) {
                group.push_back(own[e * tensor + t]);
            }
        }
        for (std::uint32_t e = 0; e < expert; ++e) {
            RankGroups::Members& group = cut.emplace_back();
            for (std::uint32_t t = 0; t < tensor; ++t) {
                group.push_back(own[e * tensor + t]);
            }
        }
    }
    whole_groups_ = ranks.of_stage(whole);
    expert_groups_ = ranks.of_stage(experts);
    tensor_groups_ = ranks.of_stage(cut);
    if (plan_.experts.dispatch == TokenDispatch::hierarchical) {
        rails_ = expert_groups_.rails();
        nodes_ = expert_groups_.node_parts();
    }
}

// Of a token's values, with their scales.
double ExpertExchange::token_bytes(Precision precision) const {
    constexpr double kScale = 1.0 / 32;  // B a value
    const double value = bytes_of(precision);
    return static_cast<double>(model_.hidden) * (value > 1 ? value : value + kScale);
}

ExpertExchange::Sent ExpertExchange::bytes_sent(double tokens, Precision precision) const {
    const double token = token_bytes(precision);
    const auto ranks = static_cast<std::uint32_t>(plan_.experts.expert);
    switch (plan_.experts.dispatch) {
        case TokenDispatch::all_to_all:
            return {wire_bytes(CollectiveOp::all_to_all, ranks,
                               Bytes(tokens * token * static_cast<double>(model_.experts.topk) * load_.kept))
                        .value(),
                    0};
        case TokenDispatch::all_gather: {
            const auto all = static_cast<std::uint32_t>(whole_groups_.size());
            return {wire_bytes(CollectiveOp::all_gather, all, Bytes(tokens * token * all)).value(), 0};
        }
        case TokenDispatch::hierarchical:
            break;
    }
    const auto nodes = static_cast<std::uint32_t>(rails_.size());
    const auto per_node = static_cast<std::uint32_t>(nodes_.size());
    return {wire_bytes(CollectiveOp::all_to_all, nodes,
                       Bytes(tokens * token * load_.kept * holders_reached(model_.experts, nodes)))
                .value(),
            wire_bytes(CollectiveOp::all_to_all, per_node,
                       Bytes(tokens * token * load_.kept * holders_reached(model_.experts, ranks)))
                .value()};
}

double ExpertExchange::exchange(double tokens, Precision precision, bool back) const {
    const double token = token_bytes(precision);
    const double ranks = static_cast<double>(plan_.experts.expert);
    // What the busiest rank receives, over what a rank sends, is what its links carry.
    const double load = std::max(load_.hottest, load_.kept);
    // Of an expert that is cut over ranks, each takes in the rows of all of them.
    const double cut = static_cast<double>(plan_.expert_tensor());
    const double rows = tokens * static_cast<double>(model_.experts.topk) * load * token;
    const CollectiveOp joins = back ? CollectiveOp::reduce_scatter : CollectiveOp::all_gather;
    switch (plan_.experts.dispatch) {
        case TokenDispatch::all_to_all:
            return seconds(CollectiveOp::all_to_all, expert_groups_, rows) + seconds(joins, tensor_groups_, rows * cut);
        case TokenDispatch::all_gather:
            return seconds(joins, whole_groups_, tokens * ranks * cut * token);
        case TokenDispatch::hierarchical:
            break;
    }
    const double nodes = static_cast<double>(rails_.size());
    const double across =
        seconds(CollectiveOp::all_to_all, rails_, tokens * token * load * holders_reached(model_.experts, nodes));
    const double inside =
        seconds(CollectiveOp::all_to_all, nodes_, tokens * token * load * holders_reached(model_.experts, ranks));
    return std::max(across, inside) + seconds(joins, tensor_groups_, rows * cut);
}

double ExpertExchange::dispatch(double tokens, Precision precision) const {
    return exchange(tokens, precision, false);
}

double ExpertExchange::combine(double tokens, Precision precision) const {
    return exchange(tokens, precision, true);
}

}  // namespace orrery::training
