#include "tools/program/explanation_json.hpp"

#include "tools/driver/kind.hpp"

#include <nlohmann/json.hpp>

namespace orrery::program {

namespace {

using Json = nlohmann::ordered_json;

template <typename Rows, typename Row>
Json list_of(const Rows& rows, const Row& row) {
    Json out = Json::array();
    for (const auto& one : rows) {
        out.push_back(row(one));
    }
    return out;
}

Json blame(const std::vector<BlameRow>& rows) {
    return list_of(rows, [](const BlameRow& row) {
        return Json{{"operation", row.operation}, {"bound_by", row.resource}, {"seconds", row.seconds}};
    });
}

Json last_message(const LastMessage& last) {
    return {{"from", last.from},
            {"to", last.to},
            {"bytes", last.bytes},
            {"start_s", last.start_s},
            {"seconds", last.seconds},
            {"propagation_s", last.propagation_s},
            {"serialisation_s", last.serialisation_s},
            {"contention_s", last.contention_s},
            {"links", list_of(last.links, [](const LinkShare& link) {
                 return Json{{"link", link.link},
                             {"bytes_per_s", link.capacity},
                             {"use", link.use},
                             {"own", link.own},
                             {"messages", link.flows}};
             })}};
}

Json split(const RequestPart::Split& split) {
    return {{"mean_s", split.mean}, {"tail_s", split.tail}};
}

Json values_of(Scenario scenario) {
    Json out = Json::array();
    for (const Explained& value : explain_fields([&](Fields& fields) { describe(fields, scenario); })) {
        const auto origin = scenario.origins.find(value.path);
        Json row = {{"path", value.path},
                    {"value", value.value},
                    {"place", origin != scenario.origins.end() ? origin->second : "default"}};
        if (!value.how.empty()) {
            row["how"] = value.how;
            row["source"] = value.source;
        }
        out.push_back(row);
    }
    return out;
}

Json shares_of(const std::vector<std::pair<std::string, double>>& shares) {
    return list_of(shares, [](const std::pair<std::string, double>& one) {
        return Json{{"operation", one.first}, {"share", one.second}};
    });
}

}  // namespace

std::string explanation_json(const Scenario& scenario, const Explanation& why) {
    Json out = {{"verdict", why.verdict},
                {"metric", headline_metric(scenario.kind())},
                {"seconds", why.seconds},
                {"critical_path", blame(why.critical_path)}};
    out["bounds"] = list_of(why.phases, [](const PhaseBound& phase) {
        return Json{
            {"part", phase.phase}, {"seconds", phase.seconds}, {"bound_by", phase.bound}, {"share", phase.share}};
    });
    out["what_ifs"] = list_of(why.what_ifs, [&](const Elasticity& what_if) {
        return Json{{"change", what_if.what_if},
                    {"saves_s", what_if.gain_s},
                    {"saves_share", why.seconds > 0 ? what_if.gain_s / why.seconds : 0},
                    {"noise_s", what_if.noise_s},
                    {"certain", what_if.certain()}};
    });
    if (!why.longest.empty()) {
        out["longest"] = blame(why.longest);
    }
    if (!why.kernels.empty()) {
        out["kernels"] = list_of(why.kernels, [](const KernelRow& row) {
            return Json{{"name", row.name},
                        {"pass", row.pass},
                        {"stream", row.stream},
                        {"count", row.count},
                        {"seconds", row.seconds}};
        });
    }
    if (!why.hidden.empty()) {
        out["transfers"] = list_of(why.hidden, [](const HiddenRow& row) {
            return Json{{"kind", row.kind}, {"busy_s", row.busy_s}, {"exposed_s", row.exposed_s}};
        });
    }
    if (why.last) {
        out["last_message"] = last_message(*why.last);
    }
    if (!why.requests.empty()) {
        out["requests"] = list_of(why.requests, [](const RequestPart& part) {
            return Json{
                {"part", part.part}, {"ttft", split(part.ttft)}, {"tpot", split(part.tpot)}, {"e2e", split(part.e2e)}};
        });
    }
    if (!why.iterations.empty()) {
        out["iterations"] = list_of(why.iterations, [](const IterationMix& mix) {
            return Json{{"kind", mix.kind},       {"iterations", mix.iterations},
                        {"seconds", mix.seconds}, {"sequences", mix.sequences},
                        {"tokens", mix.tokens},   {"operations", shares_of(mix.operations)}};
        });
    }
    if (why.campaign) {
        out["goodput"] = {{"fraction", why.campaign->goodput},
                          {"runs", why.campaign->runs},
                          {"levers", list_of(why.campaign->levers, [](const CampaignLever& lever) {
                               return Json{{"change", lever.what_if}, {"points", lever.change}, {"noise", lever.noise}};
                           })}};
    }
    out["values"] = values_of(scenario);
    return out.dump(1) + "\n";
}

}  // namespace orrery::program
