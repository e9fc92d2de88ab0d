// orrery explain and diff.

#include "sim/config/units.hpp"
#include "sim/record/metric_table.hpp"
#include "tools/driver/kind.hpp"
#include "tools/explain/diff.hpp"
#include "tools/explain/explain.hpp"
#include "tools/explain/sensitivity.hpp"
#include "tools/program/commands.hpp"
#include "tools/program/explanation_json.hpp"
#include "tools/program/outputs.hpp"
#include "tools/program/print_summary.hpp"
#include "workloads/training/simulation/simulate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery::program {

namespace {

std::string time_text(double seconds) {
    return pretty_quantity(seconds, Dimension::time);
}

std::string share_text(double part, double whole) {
    return fmt::format("{:5.1f} %", whole > 0 ? 100 * part / whole : 0);
}

void print_values(const Terminal& terminal, Scenario scenario) {
    terminal.heading("values and where they come from");
    std::vector<std::vector<std::string>> rows;
    for (const Explained& value : explain_fields([&](Fields& fields) { describe(fields, scenario); })) {
        const auto origin = scenario.origins.find(value.path);
        const std::string place = origin != scenario.origins.end() ? origin->second : "default";
        rows.push_back({value.path, value.value, value.how.empty() ? place : value.how + ": " + value.source});
    }
    terminal.table({"value", "", "source"}, rows);
}

void print_memory(const Terminal& terminal, const TrainingResult& training, const Scenario& scenario) {
    terminal.heading("memory of the fullest stage");
    const auto fullest = std::max_element(training.memory.begin(), training.memory.end(),
                                          [](const MemoryUse& a, const MemoryUse& b) { return a.total() < b.total(); });
    const auto show = [](double bytes) { return pretty_quantity(bytes, Dimension::bytes); };
    terminal.table({}, {{"weights", show(fullest->weights)},
                        {"gradients", show(fullest->gradients)},
                        {"optimizer", show(fullest->optimizer)},
                        {"activations", show(fullest->activations)},
                        {"buffers", show(fullest->buffers)},
                        {"total", show(fullest->total())},
                        {"device", show(scenario.cluster.node.gpu.memory.value)}});
}

void print_path(const Terminal& terminal, const Explanation& e, const std::vector<BlameRow>& path,
                const std::string& heading) {
    if (path.empty()) {
        return;
    }
    terminal.heading(heading);
    std::vector<std::vector<std::string>> rows;
    for (const BlameRow& row : path) {
        if (row.seconds > 0.0005 * e.seconds) {
            rows.push_back({row.operation, row.resource, time_text(row.seconds), share_text(row.seconds, e.seconds),
                            terminal.bar(row.seconds / e.seconds)});
        }
    }
    terminal.table({"operation", "bound by", "time", "", ""}, rows);
}

void print_last(const Terminal& terminal, const LastMessage& last) {
    terminal.heading(fmt::format("the {} message: {} from {} to {}, started at {}", last.slowest ? "slowest" : "last",
                                 pretty_quantity(last.bytes, Dimension::bytes), last.from, last.to,
                                 time_text(last.start_s)));
    std::vector<std::vector<std::string>> rows;
    for (const auto& [name, seconds] : {std::pair{"propagation", last.propagation_s},
                                        {"serialisation", last.serialisation_s},
                                        {"sharing, queues, congestion control", last.contention_s}}) {
        rows.push_back({name, time_text(seconds), share_text(seconds, last.seconds),
                        terminal.bar(last.seconds > 0 ? seconds / last.seconds : 0)});
    }
    terminal.table({"part", "time", "", ""}, rows);
    rows.clear();
    for (std::size_t i = 0; i < last.links.size(); ++i) {
        const LinkShare& link = last.links[i];
        rows.push_back({link.link, pretty_quantity(link.capacity, Dimension::rate), share_text(link.use, 1),
                        share_text(link.own, 1), std::to_string(link.flows), i == last.bottleneck ? "busiest" : ""});
    }
    terminal.table({"its path", "rate", "used meanwhile", "by it", "messages", ""}, rows);
}

void print_requests(const Terminal& terminal, const Explanation& e) {
    terminal.heading("where a request's time goes: mean, and mean of those from the 99th percentile up");
    std::vector<std::vector<std::string>> rows;
    RequestPart all{"all", {}, {}, {}};
    for (const RequestPart& part : e.requests) {
        const auto add = [](RequestPart::Split& sum, const RequestPart::Split& more) {
            sum.mean += more.mean;
            sum.tail += more.tail;
        };
        add(all.ttft, part.ttft);
        add(all.tpot, part.tpot);
        add(all.e2e, part.e2e);
    }
    const auto row = [&](const RequestPart& part) {
        std::vector<std::string> cells = {part.part};
        for (const auto& [own, whole] : {std::pair{part.ttft, all.ttft}, {part.tpot, all.tpot}, {part.e2e, all.e2e}}) {
            cells.push_back(own.mean > 0 ? time_text(own.mean) + "  " + share_text(own.mean, whole.mean) : "-");
            cells.push_back(own.tail > 0 ? time_text(own.tail) + "  " + share_text(own.tail, whole.tail) : "-");
        }
        rows.push_back(cells);
    };
    for (const RequestPart& part : e.requests) {
        if (part.e2e.mean > 0.0005 * all.e2e.mean || part.e2e.tail > 0.0005 * all.e2e.tail) {
            row(part);
        }
    }
    row(all);
    terminal.table({"part", "TTFT", "TTFT tail", "a token", "a token, tail", "end to end", "e2e tail"}, rows);
    terminal.heading("how latencies are distributed: share of requests that take at most so long");
    rows.clear();
    for (const LatencyCurve& curve : e.latencies) {
        std::vector<std::string> cells = {curve.name};
        for (const auto& [share, seconds] : curve.quantiles) {
            cells.push_back(time_text(seconds));
        }
        cells.push_back(curve.limit > 0 ? time_text(curve.limit) : "-");
        cells.push_back(curve.limit > 0 ? share_text(curve.within, 1) : "");
        rows.push_back(cells);
    }
    terminal.table({"", "10 %", "25 %", "50 %", "75 %", "90 %", "95 %", "99 %", "all", "limit", "keep it"}, rows);
    terminal.heading("iterations, and what they consist of");
    rows.clear();
    double whole = 0;
    for (const IterationMix& mix : e.iterations) {
        whole += mix.seconds;
    }
    for (const IterationMix& mix : e.iterations) {
        std::string shares;
        for (const auto& [name, share] : mix.shares) {
            if (share > 0.005) {
                shares += fmt::format("{}{} {:.0f} %", shares.empty() ? "" : ", ", name, 100 * share);
            }
        }
        rows.push_back({mix.kind, share_text(mix.seconds, whole), fmt::format("{:.1f}", mix.sequences),
                        fmt::format("{:.1f}", mix.tokens), shares});
    }
    terminal.table({"iterations of", "of the time", "sequences", "new tokens", ""}, rows);
    terminal.heading("operations of iterations");
    rows.clear();
    for (const IterationMix& mix : e.iterations) {
        for (const auto& [name, share] : mix.operations) {
            if (share > 0.005) {
                rows.push_back({mix.kind, name, fmt::format("{:.1f} %", 100 * share),
                                time_text(share * mix.seconds / static_cast<double>(mix.iterations))});
            }
        }
    }
    terminal.table({"iterations of", "operation", "of their time", "per iteration"}, rows);
}

void print_levers(const Terminal& terminal, const Explanation& e) {
    const bool noisy = e.replicas > 1;
    terminal.heading("what would help: simulated again with 10 % more (latency, overhead, load: 10 % less)" +
                     (noisy ? fmt::format("; mean of {} pairs of runs", e.replicas) : std::string()));
    std::vector<std::vector<std::string>> rows;
    for (const Elasticity& what_if : e.what_ifs) {
        std::vector<std::string> row = {what_if.what_if};
        if (what_if.gain_s == 0) {
            row.insert(row.end(), {"nothing", "", ""});
        } else if (what_if.certain()) {
            row.insert(row.end(),
                       {time_text(what_if.gain_s), fmt::format("{:+.2f} %", -100 * what_if.gain_s / e.seconds),
                        terminal.bar(std::clamp(what_if.share, 0.0, 1.0))});
        } else {
            row.insert(row.end(), {"within noise", fmt::format("+-{:.2f} %", 100 * what_if.noise_s / e.seconds), ""});
        }
        rows.push_back(row);
    }
    terminal.table({"10 % more", "saves", "time", "share of the run that it scales"}, rows);
    const auto harms = [](const Elasticity& what_if) { return what_if.certain() && what_if.gain_s < 0; };
    if (noisy && std::any_of(e.what_ifs.begin(), e.what_ifs.end(), harms)) {
        say("  Slower is no chance here: windows and targets that the scenario leaves open follow from rate and "
            "latency.\n");
    }
}

void print_campaign(const Terminal& terminal, const CampaignLevers& campaign) {
    terminal.heading(
        fmt::format("what would change the goodput of {:.2f} %: the campaign again, mean of {} pair{} of runs",
                    100 * campaign.goodput, campaign.runs, campaign.runs == 1 ? "" : "s"));
    std::vector<std::vector<std::string>> rows;
    for (const CampaignLever& lever : campaign.levers) {
        rows.push_back({lever.what_if,
                        lever.change == 0 ? "nothing" : fmt::format("{:+.3f} points", 100 * lever.change),
                        lever.noise > 0 ? fmt::format("+-{:.3f}", 100 * lever.noise) : ""});
    }
    terminal.table({"change", "goodput", "95 %"}, rows);
}

void print_sensitivity(const Terminal& terminal, const Sensitivity& s) {
    terminal.heading(fmt::format("constants without a published source: {} with each of them 20 % lower and higher",
                                 with_arrow(s.headline)));
    std::vector<std::vector<std::string>> rows;
    for (const ConstantEffect& effect : s.moving) {
        rows.push_back({effect.path, effect.value, effect.how, fmt::format("{:+.2f} %", 100 * effect.lower),
                        fmt::format("{:+.2f} %", 100 * effect.higher)});
    }
    terminal.table({"constant", "", "", "20 % lower", "20 % higher"}, rows);
    if (s.without_effect > 0) {
        say("  {} more {} nothing here\n", s.without_effect, s.without_effect == 1 ? "changes" : "change");
    }
}

// The longest, and what is left of them.
void print_kernels(const Terminal& terminal, const Explanation& e) {
    constexpr std::size_t kMost = 20;
    terminal.heading(
        "kernels and collectives of a rank's passes: an iteration's, streams beside each other (mean over ranks)");
    std::vector<std::vector<std::string>> rows;
    double rest = 0;
    for (std::size_t i = 0; i < e.kernels.size(); ++i) {
        const KernelRow& row = e.kernels[i];
        if (i >= kMost) {
            rest += row.seconds;
            continue;
        }
        rows.push_back({row.name, row.pass, row.stream, fmt::format("{:.0f}", row.count), time_text(row.seconds),
                        share_text(row.seconds, e.seconds)});
    }
    if (rest > 0) {
        rows.push_back({fmt::format("{} more", e.kernels.size() - kMost), "", "", "", time_text(rest),
                        share_text(rest, e.seconds)});
    }
    terminal.table({"operation", "pass", "stream", "times", "together", "of the iteration"}, rows);
}

void print_explanation(const Terminal& terminal, const Explanation& e) {
    if (!e.path_meaning.empty()) {
        print_path(terminal, e, e.critical_path, "critical path: " + e.path_meaning);
    }
    print_path(terminal, e, e.longest, "operations with most time on it");
    if (e.last) {
        print_last(terminal, *e.last);
    }
    if (!e.requests.empty()) {
        print_requests(terminal, e);
    }
    std::vector<std::vector<std::string>> rows;
    if (!e.hidden.empty()) {
        terminal.heading("transfers: under way, and of it exposed to the compute stream (mean over ranks)");
        for (const HiddenRow& row : e.hidden) {
            rows.push_back({row.kind, time_text(row.busy_s), time_text(row.exposed_s)});
        }
        terminal.table({"kind", "under way", "exposed"}, rows);
    }
    if (!e.kernels.empty()) {
        print_kernels(terminal, e);
    }
    if (!e.phases.empty()) {
        terminal.heading("what bounds each part");
        rows.clear();
        for (const PhaseBound& phase : e.phases) {
            rows.push_back({phase.phase, time_text(phase.seconds), phase.bound,
                            phase.share > 0 ? fmt::format("{:.0f} % of it scales", 100 * phase.share) : ""});
        }
        terminal.table({"part", "time", "bound by", ""}, rows);
    }
    print_levers(terminal, e);
    if (e.campaign) {
        print_campaign(terminal, *e.campaign);
    }
}

// "better" or "worse" for a move of a metric that has a better side.
std::string judged(const std::string& metric, double move) {
    const Better better = better_of(metric);
    return better == Better::neither || std::isnan(move) ? ""
           : (better == Better::lower) == (move < 0)     ? "better"
                                                         : "worse";
}

std::string number_text(const std::optional<double>& value) {
    return value && !std::isnan(*value) ? fmt::format("{:.6g}", *value) : "-";
}

void require_measured(double seconds) {
    if (std::isnan(seconds)) {
        throw ConfigError("nothing was measured, so there is nothing to explain: see the warning of 'orrery run'");
    }
}

}  // namespace

int command_explain(const CommandLine& line, const DataDirectory& data) {
    const Scenario scenario = load_scenario(line.arguments[0], line.overrides(), data);
    check_outputs(line, files_of(scenario));
    const Terminal terminal = line.terminal();
    ModelCache models(data);
    if (line.has("json") && line.has("sensitivity")) {
        throw ConfigError("--sensitivity prints a table, and is no part of --json", ErrorCode::command_line);
    }
    Progress progress(terminal, "explaining");
    const RunOutput out = run_scenario(scenario, models, {});
    require_measured(out.summary.find(headline_metric(scenario.kind()))->value);
    const Explanation why = explain_scenario(scenario, models);
    progress.finish();
    if (line.has("json")) {
        write_output(line, "json", explanation_json(scenario, why));
    }
    if (line.text("json") == "-") {
        return 0;
    }
    say("{}\n", why.verdict);
    print_summary(terminal, out.summary);
    if (out.training) {
        print_memory(terminal, *out.training, scenario);
    }
    print_explanation(terminal, why);
    if (line.has("sensitivity")) {
        Progress varying(terminal, "varying assumed constants");
        const auto sensitivity = sensitivity_of(scenario, data);
        varying.finish();
        print_sensitivity(terminal, sensitivity);
    }
    if (!line.quiet()) {
        print_values(terminal, scenario);
    }
    return 0;
}

int command_diff(const CommandLine& line, const DataDirectory& data) {
    const Terminal terminal = line.terminal();
    ModelCache models(data);
    // --set changes the second run: with one file, that is compared with itself, changed.
    const Scenario first = load_scenario(line.arguments[0], {}, data);
    const Scenario second = load_scenario(line.arguments.back(), line.overrides(), data);
    Progress progress(terminal, "simulating both runs");
    const RunDifference d = compare_runs(first, second, models);
    progress.finish();
    require_measured(d.first_s);
    require_measured(d.second_s);
    terminal.heading(fmt::format("{}: {} -> {} ({:+.2f} %)", d.metric, time_text(d.first_s), time_text(d.second_s),
                                 100 * (d.second_s / d.first_s - 1)));
    std::vector<std::vector<std::string>> rows;
    for (const InputEffect& effect : d.inputs) {
        rows.push_back({effect.input.path, pretty_input(effect.input.before), pretty_input(effect.input.after),
                        effect.seconds ? fmt::format("{:+.4g} s", *effect.seconds) : "not alone"});
    }
    terminal.heading("inputs that differ, and what each makes alone");
    terminal.table({"input", "first", "second", "makes"}, rows);
    rows.clear();
    for (const auto& [part, before, after] : d.breakdown) {
        rows.push_back({part, time_text(before), time_text(after), fmt::format("{:+.4g} s", after - before)});
    }
    if (!rows.empty()) {
        terminal.heading("where the time moved");
        terminal.table({"part", "first", "second", "difference"}, rows);
    }
    rows.clear();
    for (const auto& [name, before, after, unit] : d.metrics) {
        rows.push_back({with_arrow(name), number_text(before), number_text(after), unit,
                        before && after && *after != *before ? judged(name, *after - *before) : ""});
    }
    terminal.heading("metrics");
    terminal.table({"metric", "first", "second", "unit", ""}, rows);
    if (d.first_record.empty()) {
        say("\nall {} records are equal\n", d.equal_records);
    } else {
        say("\nfirst record that differs, after {} equal ones:\n  first:  {}\n  second: {}\n", d.equal_records,
            d.first_record, d.second_record);
    }
    return 0;
}

}  // namespace orrery::program
