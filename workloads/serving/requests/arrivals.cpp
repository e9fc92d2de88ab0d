#include "workloads/serving/requests/arrivals.hpp"

#include "workloads/serving/requests/request_sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery::serving {

namespace {

// Some of another source's requests.
class Sample final : public RequestSource {
  public:
    Sample(std::unique_ptr<RequestSource> all, double share, std::uint64_t seed)
        : all_(std::move(all)), share_(share), random_(seed, "serving/sample") {}

    double progress() const override { return all_->progress(); }

    std::uint64_t clients() const override { return all_->clients(); }

    bool follow_up(std::uint32_t turn, SimTime now, bool served, Request& request) override {
        return all_->follow_up(turn, now, served, request);
    }
    bool another(Request& request) override { return all_->another(request); }
    bool has_conversations() const override { return all_->has_conversations(); }

    bool next(Request& request) override {
        while (all_->next(request)) {
            if (random_.uniform() < share_) {
                any_ = true;
                return true;
            }
            if (Request none; request.turn > 0) {
                (void)all_->follow_up(request.turn, request.arrival, false, none);
            }
        }
        if (!any_) {
            throw ConfigError(fmt::format("'requests.sample' of {:g} leaves no request", share_));
        }
        return false;
    }

  private:
    std::unique_ptr<RequestSource> all_;
    bool any_ = false;
    double share_;
    RandomStream random_;
};

void describe(Fields& fields, LengthSpec& spec) {
    fields.enumeration({"kind", "distribution of the number of tokens"}, {"fixed", "uniform", "lognormal"}, spec.kind);
    fields.number({"mean", "tokens", false, 1, kMostTokens}, spec.mean);
    fields.when(spec.kind != LengthKind::fixed, "kind: uniform or lognormal", [&](Fields& same) {
        same.number({"spread", "lognormal: sigma of the logarithm; uniform: half width over the mean", false, 0, 10},
                    spec.spread);
    });
    fields.integer({"most", "longer ones are cut to this", false, 1, 1 << 24}, spec.most);
}

void describe(Fields& fields, const char* key, const char* what, LengthSpec& spec) {
    Field field{key, what};
    field.alone = "mean";
    fields.section(field, [&](Fields& inner) { describe(inner, spec); });
}

void describe(Fields& fields, ClientSpec& client) {
    fields.number({"share", "share of the rate, relative to the sum of all shares", false, 1e-9, 1e9}, client.share);
    fields.number({"burstiness", "coefficient of variation of the gaps; 1 is Poisson", false, 0.01, 100},
                  client.burstiness);
    describe(fields, "prompt", "lengths of its prompts", client.prompt);
    describe(fields, "output", "lengths of its outputs", client.output);
    fields.integer({"adapter", "LoRA adapter of its requests, from 1 on; 0: none", false, 0, 1 << 20}, client.adapter);
}

void describe(Fields& fields, LoadStage& stage) {
    fields.number({"rate", "requests per second", true, 1e-6, 1e7}, stage.rate);
    fields.quantity({"duration", "time in which they are sent", true, 1e-3, 1e6}, Dimension::time, stage.duration);
}

}  // namespace

void describe(Fields& fields, RequestsSpec& spec) {
    const bool generated = spec.trace.empty();
    const bool closed = spec.arrivals == ArrivalKind::closed;
    const bool timed = generated && !closed && (!spec.mix.empty() || spec.arrivals != ArrivalKind::at_once);
    const bool staged = timed && !spec.stages.empty();
    fields.text({"trace", "file of requests, in a format of `orrery list formats`; none: generated"}, spec.trace);
    fields.when(!generated, "a trace", [&](Fields& same) {
        same.text({"trace_format", "format of the trace, where its content does not tell (orrery list formats)"},
                  spec.trace_format);
    });
    fields.when(closed || (generated && spec.mix.empty()),
                "generated requests of one kind (a trace says when its requests come, and clients of a mix have gaps "
                "of their own)",
                [&](Fields& same) {
                    same.enumeration(
                        {"arrivals", "arrival process of generated requests; closed also applies to those of a trace"},
                        {"poisson", "gamma", "fixed", "at-once", "closed"}, spec.arrivals);
                });
    fields.when(closed, "arrivals: closed", [&](Fields& same) {
        same.integer({"clients", "closed: each sends its next request when the last one is answered; 0: none", false, 0,
                      1 << 20},
                     spec.clients);
    });
    fields.when(timed && spec.mix.empty(), "generated requests of one kind that come at a rate", [&](Fields& same) {
        same.items({"stages", "rates one after another, each begun when all before is answered"}, spec.stages,
                   [](Fields& inner, LoadStage& stage) { describe(inner, stage); });
    });
    fields.when(spec.stages.size() > 1, "several stages", [&](Fields& same) {
        same.quantity({"pause", "time from the last answer of a stage to the start of the next", false, 0, 1e6},
                      Dimension::time, spec.pause);
    });
    fields.when(timed && !staged,
                "open-loop generated arrivals at one rate (a trace, a closed loop or a batch has none, and stages have "
                "rates of their own)",
                [&](Fields& same) {
                    same.number({"rate", "generated requests per second", false, 1e-6, 1e7}, spec.rate);
                });
    fields.when(timed && spec.mix.empty() && spec.arrivals == ArrivalKind::gamma,
                "arrivals: gamma (clients of a mix have their own burstiness)", [&](Fields& same) {
                    same.number(
                        {"burstiness", "gamma: coefficient of variation of the gaps; 1 is Poisson", false, 0.01, 100},
                        spec.burstiness);
                });
    fields.when(!staged, "a load of one stage (each of 'stages' has its own rate and duration)", [&](Fields& same) {
        same.integer({"count", "requests; 0: all of a trace, generated ones until the steady state is known", false, 0,
                      1'000'000'000},
                     spec.count);
    });
    fields.when(!closed, "requests that come by themselves (a closed loop has 'clients')", [&](Fields& same) {
        same.integer({"concurrency",
                      "limit on the client's requests in flight; latencies of delayed requests count from their "
                      "sending; 0: no limit",
                      false, 0, 1 << 24},
                     spec.concurrency);
    });
    fields.when(generated && spec.mix.empty(),
                "generated requests of one kind (a trace and the clients of a mix have lengths of their own)",
                [&](Fields& same) {
                    describe(same, "prompt", "lengths of generated prompts", spec.prompt);
                    describe(same, "output", "lengths of generated outputs", spec.output);
                });
    fields.when(generated, "generated requests", [&](Fields& same) {
        same.integer({"longest",
                      "maximum of prompt and output tokens together; longer generated requests are redrawn, as data "
                      "sets are filtered; 0: no limit",
                      false, 0, 1 << 25},
                     spec.longest);
    });
    fields.number({"time_scale", "gaps of a trace times this", false, 1e-6, 1e6}, spec.time_scale);
    fields.quantity({"from", "start of the part of a trace that is used", false, 0, 9e6}, Dimension::time, spec.from);
    fields.quantity({"to", "end of the part of a trace that is used; 0 s: the trace's end", false, 0, 9e6},
                    Dimension::time, spec.to);
    fields.quantity({"sample", "share of the requests that are kept", false, 1e-6, 1}, Dimension::fraction,
                    spec.sample);
    fields.when(timed && !staged, "generated requests that come at one rate", [&](Fields& same) {
        same.number({"swing", "generated: the rate swings by this share of itself", false, 0, 1}, spec.swing);
    });
    fields.when(spec.swing > 0, "a swing", [&](Fields& same) {
        same.quantity({"period", "period of the swing", false, 1, 9e6}, Dimension::time, spec.period);
    });
    fields.quantity({"timeout", "time after which a client gives up; 0 s: never", false, 0, 1e6}, Dimension::time,
                    spec.timeout);
    fields.integer({"sessions", "number of sessions that generated requests belong to", false, 1, 1 << 20},
                   spec.sessions);
    fields.boolean({"conversations", "include the earlier turns of a session in its prompts"}, spec.conversations);
    fields.when(generated, "generated requests", [&](Fields& same) {
        same.integer({"common", "tokens of a system prompt before each generated prompt", false, 0, 1 << 20},
                     spec.common);
    });
    fields.when(spec.common > 0, "common tokens", [&](Fields& same) {
        same.integer({"common_kinds", "different system prompts", false, 1, 1 << 20}, spec.common_kinds);
    });
    fields.when(generated && spec.mix.empty(), "generated requests of one kind", [&](Fields& same) {
        same.integer(
            {"questions", "distinct prompts per system prompt, repeated in the same order; 0: all prompts differ",
             false, 0, 1 << 20},
            spec.questions);
    });
    fields.integer({"samples", "answers to each generated prompt, which are requests of their own", false, 1, 1 << 16},
                   spec.samples);
    fields.number({"turns",
                   "mean questions of a conversation, each after the answer to the one before; arrivals are "
                   "then of conversations",
                   false, 0, 1e6},
                  spec.turns);
    fields.when(spec.turns > 0, "conversations of several turns (turns)", [&](Fields& same) {
        same.quantity({"think", "mean time from an answer to the next question", false, 0, 1e6}, Dimension::time,
                      spec.think);
        same.integer({"branches",
                      "parallel requests per question after the first, such as sub-agents; the next question waits for "
                      "all answers",
                      false, 1, 1 << 10},
                     spec.branches);
    });
    fields.integer({"adapters", "LoRA adapters that requests name", false, 0, 1 << 20}, spec.adapters);
    fields.when(spec.adapters > 0, "adapters", [&](Fields& same) {
        same.number({"adapter_skew",
                     "Zipf exponent of adapter popularity: the k-th adapter is requested 1 / k^skew times as often as "
                     "the first",
                     false, 0, 10},
                    spec.adapter_skew);
    });
    fields.items({"mix", "clients that share the rate, each with lengths and gaps of its own"}, spec.mix,
                 [](Fields& inner, ClientSpec& client) { describe(inner, client); });
}

std::int64_t RequestsSpec::in_stages() const {
    std::int64_t requests = 0;
    for (const LoadStage& stage : stages) {
        requests += stage.requests();
    }
    return requests;
}

bool RequestsSpec::names_adapters() const {
    return adapters > 0 ||
           std::any_of(mix.begin(), mix.end(), [](const ClientSpec& client) { return client.adapter > 0; });
}

// Tokens of the shortest request that a distribution gives.
static std::int64_t shortest(const LengthSpec& spec) {
    const double least = spec.kind == LengthKind::fixed     ? spec.mean
                         : spec.kind == LengthKind::uniform ? spec.mean * (1 - spec.spread)
                                                            : 1;
    return static_cast<std::int64_t>(std::clamp(std::round(least), 1.0, static_cast<double>(spec.most)));
}

std::vector<std::string> problems_of(const RequestsSpec& spec) {
    std::vector<std::string> problems;
    const bool closed = spec.arrivals == ArrivalKind::closed;
    if (closed && spec.clients == 0) {
        problems.emplace_back("arrivals in a closed loop need 'clients', each of which sends when it is answered");
    }
    if (spec.turns > 0 && (closed || !spec.trace.empty())) {
        problems.emplace_back("'turns' are of generated requests that come at a rate: no 'trace', no closed loop");
    }
    if (spec.trace.empty() && (spec.time_scale != 1 || spec.from > 0 || spec.to > 0)) {
        problems.emplace_back(
            "'time_scale', 'from' and 'to' are of a trace: generated requests have a 'rate' and a 'count'");
    }
    if (spec.turns <= 0 && spec.think > 0) {
        problems.emplace_back("'think' is the time between 'turns': say how many there are");
    }
    if (spec.turns > 0 && spec.conversations) {
        problems.emplace_back("'turns' make conversations of their own: leave out 'conversations'");
    }
    if (!spec.mix.empty() && (closed || !spec.trace.empty())) {
        problems.emplace_back("a 'mix' of clients is generated at a rate: no 'trace', no closed loop");
    }
    if (spec.samples > 1 && (!spec.trace.empty() || !spec.mix.empty() || spec.turns > 0 || spec.conversations ||
                             spec.common > 0 || spec.sessions > 1)) {
        problems.emplace_back(
            "'samples' are of single generated prompts: no 'trace', 'mix', 'turns', 'conversations', 'sessions' or "
            "'common' tokens");
    }
    for (const LoadStage& stage : spec.stages) {
        if (stage.requests() == 0) {
            problems.push_back(
                fmt::format("a stage of {:g} requests per second for {:g} s sends none: rate times "
                            "duration is below one",
                            stage.rate, stage.duration));
        }
    }
    if (!spec.stages.empty() && (spec.turns > 0 || spec.conversations)) {
        problems.emplace_back("'stages' are of single requests: no 'turns' and no 'conversations'");
    }
    if (spec.questions > 0 && (spec.turns > 0 || spec.conversations || spec.samples > 1)) {
        problems.emplace_back("'questions' are asked again as they are: no 'turns', 'conversations' or 'samples'");
    }
    const std::int64_t least = shortest(spec.prompt) + shortest(spec.output);
    if (spec.longest > 0 && spec.trace.empty() && spec.mix.empty() && least > spec.longest) {
        problems.push_back(
            fmt::format("no request has {} tokens or fewer ('longest'): the shortest prompt and output have {}",
                        spec.longest, least));
    }
    const bool timed = spec.arrivals != ArrivalKind::closed && spec.arrivals != ArrivalKind::at_once;
    const std::int64_t count = spec.count > 0 ? spec.count : kLeastWatched;
    double seconds = spec.stages.empty() ? static_cast<double>(count) / spec.rate : 0;
    for (const LoadStage& stage : spec.stages) {
        seconds += stage.duration + spec.pause;
    }
    if (spec.trace.empty() && (timed || !spec.mix.empty()) && seconds > kLatestArrival) {
        problems.push_back(
            spec.stages.empty()
                ? fmt::format("{} requests at {:.3g} a second take {:.1f} days, and simulated time ends after {:.0f}",
                              count, spec.rate, seconds / 86400, kLatestArrival / 86400)
                : fmt::format("{} stages take {:.1f} days, and simulated time ends after {:.0f}", spec.stages.size(),
                              seconds / 86400, kLatestArrival / 86400));
    }
    if (!spec.mix.empty() && spec.conversations) {
        problems.emplace_back("clients of a 'mix' have 'turns', not 'conversations' by session");
    }
    return problems;
}

std::unique_ptr<RequestSource> make_requests(const RequestsSpec& spec, const std::string& file, std::uint64_t seed) {
    auto source = file.empty() ? make_generator(spec, seed) : make_trace_reader(spec, file, seed);
    if (spec.sample < 1) {
        source = std::make_unique<Sample>(std::move(source), spec.sample, seed);
    }
    return source;
}

}  // namespace orrery::serving
