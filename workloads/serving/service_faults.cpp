#include "workloads/serving/service_faults.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::serving {

bool ServiceFaults::meets(const std::function<bool(FaultKind, const std::string& where, Component)>& is) const {
    return !trace.empty() || std::any_of(events.begin(), events.end(), [&](const EventSpec& one) {
        return is(one.kind, one.where, Component::host);
    }) || std::any_of(processes.begin(), processes.end(), [&](const ProcessSpec& one) {
        return is(one.kind, "", one.component);
    });
}

bool ServiceFaults::meets(std::initializer_list<FaultKind> kinds) const {
    return meets([&](FaultKind kind, const std::string&, Component) {
        return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
    });
}

bool stops_replicas(const ServiceFaults& faults) {
    return faults.meets({FaultKind::fail_stop, FaultKind::hang, FaultKind::preemption, FaultKind::link_down,
                         FaultKind::link_flap, FaultKind::corruption});
}

namespace {

// Whether machines break: what strikes a replica or all of them is of their processes.
bool breaks_machines(const ServiceFaults& faults) {
    return faults.meets([](FaultKind kind, const std::string& where, Component component) {
        const bool process = where.rfind("replica", 0) == 0 || where == "job" || component == Component::replica ||
                             component == Component::software;
        return !process && (kind == FaultKind::fail_stop || kind == FaultKind::hang || kind == FaultKind::preemption ||
                            kind == FaultKind::corruption);
    });
}

constexpr double kLongest = 9e6;  // s: no run is longer

void describe_recovery(Fields& fields, ServiceRecovery& recovery, const ServiceFaults& faults) {
    const bool machines = breaks_machines(faults);
    fields.when(faults.meets({FaultKind::fail_stop, FaultKind::preemption}), "faults that stop replicas",
                [&](Fields& same) {
                    same.quantity({"detection", "time until the router knows that a replica is gone", false, 0, 1e6},
                                  Dimension::time, recovery.detection_s);
                });
    fields.when(faults.meets({FaultKind::hang, FaultKind::link_down, FaultKind::link_flap}),
                "faults that let replicas hang", [&](Fields& same) {
                    same.quantity({"timeout", "time until the router knows that a replica hangs", false, 0, 1e6},
                                  Dimension::time, recovery.timeout_s);
                });
    fields.when(faults.meets({FaultKind::corruption}), "a corruption", [&](Fields& same) {
        same.quantity({"corruption",
                       "time until silent data corruption is detected; answers of the replica until then are wrong, "
                       "and its work restarts",
                       false, 0, kLongest},
                      Dimension::time, recovery.corruption_s);
    });
    fields.when(faults.meets({FaultKind::preemption}), "a preemption", [&](Fields& same) {
        same.quantity({"notice",
                       "notice before a preemption, in which the replica takes no new requests and goes on with those "
                       "that it has",
                       false, 0, 1e6},
                      Dimension::time, recovery.notice_s);
    });
    fields.when(machines || faults.meets({FaultKind::link_down}), "machines or links that break", [&](Fields& same) {
        same.quantity(
            {"repair", "mean time to repair a machine or link, after which the replica starts", false, 0, kLongest},
            Dimension::time, recovery.repair_s);
    });
    fields.when(recovery.repair_s > 0, "a repair", [&](Fields& same) {
        same.boolean({"exponential", "repair times are exponential; otherwise each takes the mean"},
                     recovery.exponential);
    });
    fields.when(machines, "machines that break", [&](Fields& same) {
        same.integer(
            {"spares", "machines that take the place of broken ones; a repaired one is a spare", false, 0, 1 << 20},
            recovery.spares);
    });
}

void describe_retries(Fields& fields, ServiceFaults& faults) {
    fields.quantity(
        {"retry_budget", "retries of all requests, over the requests that have come; none: no limit", false, 0, 1},
        Dimension::fraction, faults.retry_budget);
    std::size_t kv = faults.restores ? 1 : 0;
    bool copied = faults.restores;
    fields.variant({"kv", "KV caches of a failed replica: recomputed, or restored from a copy"}, {"lost", "restored"},
                   kv, copied, [&](Fields& inner) {
                       inner.when(kv == 1, "kind: restored", [&](Fields& same) {
                           same.quantity({"rate", "rate at which a replica reads copies", false, 1e3, 1e15},
                                         Dimension::rate, faults.restore_rate);
                       });
                   });
    faults.restores = kv == 1;
}

void describe_given(Fields& fields, ServiceFaults& faults) {
    describe_faults(fields, faults.processes, faults.events, faults.trace);
    fields.when(stops_replicas(faults), "faults that stop replicas", [&](Fields& same) {
        same.integer({"retries", "restarts of a request whose replica fails, at most", false, 0, 100}, faults.retries);
    });
    fields.when(stops_replicas(faults) && faults.retries > 0, "retries of requests whose replica stopped",
                [&](Fields& same) { describe_retries(same, faults); });
    fields.section({"recovery", "steps from a fault to taking requests again"},
                   [&](Fields& inner) { describe_recovery(inner, faults.recovery, faults); });
}

bool simulated(FaultKind kind) {
    return kind != FaultKind::switch_loss;
}

}  // namespace

void describe(Fields& fields, ServiceFaults& faults) {
    std::size_t index = faults.given ? 1 : 0;
    fields.variant({"faults", "faults while requests are served"}, {"none", "some"}, index, faults.given,
                   [&](Fields& inner) { describe_given(inner, faults); });
    faults.given = index == 1 || faults.given;  // a map needs no `kind`
}

void check_spec(const YamlNode& node, const ServiceFaults& faults, const JobShape& shape,
                std::vector<Diagnostic>& errors) {
    if (!faults.given) {
        return;
    }
    if (const YamlNode* kind = node.find("kind"); kind != nullptr && kind->scalar == "none") {
        errors.push_back(kind->mark.error("'none' has no parameters: leave 'kind' out, or all of the others"));
    }
    if (!faults.any()) {
        errors.push_back(node.mark.error("'faults' names none: it needs 'processes', 'events' or a 'trace'"));
    }
    check_faults(node, faults.processes, faults.events, shape, errors);
    const auto entry = [&](const char* list, std::size_t i) -> const Mark& {
        const YamlNode* found = node.find(list);
        return found != nullptr && i < found->items.size() ? found->items[i].mark : node.mark;
    };
    const auto check_kind = [&](const Mark& mark, FaultKind kind, double lasts_s) {
        const std::string& name = fault_kind_names()[static_cast<std::size_t>(kind)];
        if (!simulated(kind)) {
            errors.push_back(mark.error(fmt::format("'{}' is not simulated in serving", name)));
        }
        if (kind == FaultKind::link_down && lasts_s <= 0 && faults.recovery.repair_s <= 0) {
            errors.push_back(mark.error("'link-down' needs 'lasts', or a 'repair' in 'recovery': no time passes"));
        }
    };
    for (std::size_t i = 0; i < faults.events.size(); ++i) {
        check_kind(entry("events", i), faults.events[i].kind, faults.events[i].lasts_s);
    }
    for (std::size_t i = 0; i < faults.processes.size(); ++i) {
        const ProcessSpec& process = faults.processes[i];
        check_kind(entry("processes", i), process.kind, process.lasts_s);
        if (process.mtbf_s < 1) {
            errors.push_back(entry("processes", i).error("'mtbf' of faults in serving is at least 1 s"));
        }
        if (process.while_running) {
            errors.push_back(
                entry("processes", i)
                    .error("'while_running' means nothing in serving: it always runs", ErrorCode::no_effect));
        }
    }
}

}  // namespace orrery::serving
