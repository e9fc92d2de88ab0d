#include "workloads/faults/spec.hpp"

#include "sim/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::faults {

namespace {

constexpr double kLongest = 9e9;  // s

void describe_process(Fields& fields, ProcessSpec& process) {
    fields.enumeration({"component", "component that fails", true}, component_names(), process.component);
    fields.enumeration({"kind", "effect of the fault", true}, fault_kind_names(), process.kind);
    fields.quantity({"mtbf", "mean time between failures of one component", true, 1e-3, 1e15}, Dimension::time,
                    process.mtbf_s);
    process.law.describe(fields, {"process", "distribution of the times between failures"});
    fields.quantity({"factor", "share of speed or rate that is left, of kinds that slow", false, 0, 1},
                    Dimension::fraction, process.factor);
    fields.quantity(
        {"lasts", "mean duration of the fault, exponential; 0 s: until repaired or replaced", false, 0, kLongest},
        Dimension::time, process.lasts_s);
    fields.when(process.bad_factor > 1, "a bad_factor above 1", [&](Fields& same) {
        same.quantity({"bad_share", "share of machines that fail more often until they are repaired", false, 0, 1},
                      Dimension::fraction, process.bad_share);
    });
    fields.when(process.bad_share > 0, "a bad_share above 0 %", [&](Fields& same) {
        same.number({"bad_factor", "times the rate of other machines", false, 1, 1e6}, process.bad_factor);
    });
    fields.boolean({"while_running", "limit the fault to times when the job trains"}, process.while_running);
}

void describe_event(Fields& fields, EventSpec& event) {
    fields.quantity({"at", "time at which the fault strikes", true, 0, kLongest}, Dimension::time, event.at_s);
    fields.enumeration({"kind", "kind of the fault", true}, fault_kind_names(), event.kind);
    fields.text(
        {"where",
         "gpu0, nic0 (with its link), node0, leaf0, spine0, leaf0-spine0, storage or job; replica0 of a service", true},
        event.where);
    fields.quantity({"factor", "share of speed or rate that is left, of kinds that slow", false, 0, 1},
                    Dimension::fraction, event.factor);
    fields.quantity({"lasts", "duration of the fault; 0 s: until repaired or replaced", false, 0, kLongest},
                    Dimension::time, event.lasts_s);
}

// What faults of a campaign may strike; those of a trace are not known here, and may be of any kind.
struct Strikes {
    bool stops, links, preempts, corrupts, hangs, notices;

    explicit Strikes(const FaultsSpec& faults) {
        const auto any_of = [&](std::initializer_list<FaultKind> kinds) {
            const auto among = [&](const auto& fault) {
                return std::find(kinds.begin(), kinds.end(), fault.kind) != kinds.end();
            };
            return !faults.trace.empty() || std::any_of(faults.events.begin(), faults.events.end(), among) ||
                   std::any_of(faults.processes.begin(), faults.processes.end(), among);
        };
        stops = any_of({FaultKind::fail_stop});
        links = any_of({FaultKind::link_down, FaultKind::link_flap, FaultKind::switch_loss});
        preempts = any_of({FaultKind::preemption});
        corrupts = any_of({FaultKind::corruption});
        hangs = any_of({FaultKind::hang});
        notices = faults.recovery.watches && any_of({FaultKind::slow, FaultKind::degraded, FaultKind::link_flap});
    }
    [[nodiscard]] bool interrupts() const { return stops || links || preempts || corrupts || hangs || notices; }
};

// Keys that are read only where such faults may strike: where they are given in vain, the run notes it.
template <class Describe>
void noted(Fields& fields, bool met, const char* what, const Describe& describe) {
    fields.when(met, what, describe, Unmet::noted);
}

constexpr const char* kInterrupts = "faults that stop the job";

void describe_detection(Fields& fields, RecoverySpec& recovery, const Strikes& strikes) {
    fields.section(
        {"heartbeat", "interval of the heartbeat of every rank, which finds ranks that have stopped"},
        [&](Fields& inner) {
            noted(inner, strikes.stops || strikes.preempts, "a fail-stop or a preemption", [&](Fields& same) {
                same.quantity({"delay", "time until the fault is noticed", false, 0, 1e6}, Dimension::time,
                              recovery.heartbeat_s);
            });
            noted(inner, strikes.stops, "a fail-stop", [&](Fields& same) {
                same.quantity(
                    {"misses", "share of failures that heartbeats miss and only the timeout finds", false, 0, 1},
                    Dimension::fraction, recovery.heartbeat_misses);
            });
        });
    noted(fields, strikes.hangs || (strikes.stops && recovery.heartbeat_misses > 0),
          "a hang, or heartbeats that miss a fail-stop", [&](Fields& same) {
              same.quantity(
                  {"timeout", "timeout of a collective, which finds hangs and whatever else was missed", false, 0, 1e6},
                  Dimension::time, recovery.timeout_s);
          });
    noted(fields, strikes.hangs || strikes.notices, "faults that slow machines, or a hang", [&](Fields& same) {
        same.optional({"anomaly",
                       "monitoring of collective times: finds hangs and slow machines, which are replaced at the next "
                       "checkpoint"},
                      recovery.watches, [&](Fields& inner) {
                          inner.quantity({"delay", "time until the fault is noticed", false, 0, 1e6}, Dimension::time,
                                         recovery.anomaly_s);
                          inner.quantity({"misses", "share of faults that are not noticed", false, 0, 1},
                                         Dimension::fraction, recovery.anomaly_misses);
                      });
    });
    noted(fields, strikes.corrupts, "a corruption", [&](Fields& same) {
        same.quantity({"corruption", "time until silent data corruption is found", false, 0, kLongest}, Dimension::time,
                      recovery.corruption_s);
    });
    noted(fields, strikes.links, "links or switches that fail", [&](Fields& same) {
        same.quantity({"retry_limit",
                       "time for which connections retry before the job fails; a link that is down for less stalls it",
                       false, 0, 1e6},
                      Dimension::time, recovery.retry_limit_s);
    });
    noted(fields, strikes.interrupts(), kInterrupts, [&](Fields& same) {
        same.section({"diagnosis", "finding the machine to replace"}, [&](Fields& inner) {
            inner.quantity({"time", "fixed time of a diagnosis", false, 0, 1e6}, Dimension::time, recovery.diagnosis_s);
            inner.quantity(
                {"bisection", "time of each run of a binary search over the nodes; 0 s: none", false, 0, 1e6},
                Dimension::time, recovery.bisection_s);
        });
    });
}

void describe_repair(Fields& fields, RecoverySpec& recovery, const Strikes& strikes) {
    const auto stage = [](Fields& inner, RepairStage& one) {
        inner.quantity({"mean", "mean time of this repair", false, 0, kLongest}, Dimension::time, one.mean_s);
        inner.quantity({"fails", "share of repairs that leave the machine as bad as before", false, 0, 1},
                       Dimension::fraction, one.fails);
    };
    noted(fields, strikes.interrupts(), kInterrupts, [&](Fields& all) {
        all.section(
            {"repair", "time to repair machines that were replaced, which then join the pool"}, [&](Fields& inner) {
                inner.section({"automatic", "automatic repair, which every machine gets first"},
                              [&](Fields& same) { stage(same, recovery.automatic); });
                noted(inner, recovery.to_manual > 0, "machines that need it (to_manual)", [&](Fields& own) {
                    own.section({"manual", "manual repair, which some machines need afterwards"},
                                [&](Fields& same) { stage(same, recovery.manual); });
                });
                inner.quantity({"to_manual", "share of machines that also need a manual repair", false, 0, 1},
                               Dimension::fraction, recovery.to_manual);
                inner.boolean({"exponential", "repair times are exponential; otherwise each takes the mean"},
                              recovery.exponential_repair);
                inner.integer({"retire_after", "failures of a machine within the window; 0: never", false, 0, 1 << 20},
                              recovery.retire_after);
                inner.when(recovery.retire_after > 0, "a retire_after", [&](Fields& same) {
                    same.quantity({"retire_window", "period over which retire_after counts", false, 0, kLongest},
                                  Dimension::time, recovery.retire_window_s);
                });
            });
    });
}

void describe_recovery(Fields& fields, RecoverySpec& recovery, const Strikes& strikes) {
    describe_detection(fields, recovery, strikes);
    noted(fields, strikes.interrupts(), kInterrupts, [&](Fields& all) {
        all.quantity({"restart", "time to start the job's processes, without loading", false, 0, 1e6}, Dimension::time,
                     recovery.restart_s);
        all.quantity({"queue", "time in the scheduler's queue before every restart", false, 0, 1e6}, Dimension::time,
                     recovery.queue_s);
        all.integer({"standbys",
                     "warm standby machines in addition to the cluster's: they replace failed ones at once and are "
                     "refilled from the pool",
                     false, 0, 1 << 22},
                    recovery.standbys);
        all.integer({"pool", "number of free machines that replace failed ones after the standbys", false, 0, 1 << 22},
                    recovery.pool);
        all.quantity({"join", "time until a machine of the pool can be used", false, 0, 1e6}, Dimension::time,
                     recovery.join_s);
        all.integer({"spares", "machines of other jobs, taken last", false, 0, 1 << 22}, recovery.spares);
        all.when(recovery.spares > 0, "spares", [&](Fields& same) {
            same.quantity({"borrow", "time until a borrowed machine can be used", false, 0, 1e6}, Dimension::time,
                          recovery.borrow_s);
        });
        all.boolean(
            {"shrinks",
             "continue with fewer data-parallel replicas (elastic training); otherwise the job waits for machines"},
            recovery.shrinks);
    });
    describe_repair(fields, recovery, strikes);
}

void describe_checkpoint(Fields& fields, CheckpointSpec& checkpoint, const Strikes& strikes) {
    checkpoint.method.describe(fields, {"method", "method by which a checkpoint is taken"});
    checkpoint.interval.describe(fields, {"interval", "training time between two checkpoints"});
    fields.quantity(
        {"size", "size of a checkpoint, all parts together; 0 B: weights and optimizer of the model", false, 0, 1e18},
        Dimension::bytes, checkpoint.size);
    fields.section({"storage", "storage that checkpoints go to"}, [&](Fields& inner) {
        StorageSpec& storage = checkpoint.storage;
        inner.quantity({"write", "bandwidth of the store", false, 1, 1e18}, Dimension::rate, storage.write);
        inner.quantity({"read", "bandwidth of the store", false, 1, 1e18}, Dimension::rate, storage.read);
        inner.quantity({"per_node", "bandwidth of a node to the store; 0 B/s: not limiting", false, 0, 1e18},
                       Dimension::rate, storage.per_node);
        inner.quantity({"latency", "fixed latency of a save or load, in addition to its transfer time", false, 0, 1e6},
                       Dimension::time, storage.latency);
        inner.quantity({"capacity", "capacity of the store; 0 B: unlimited", false, 0, 1e21}, Dimension::bytes,
                       storage.capacity);
        noted(inner, strikes.corrupts || storage.capacity > 0,
              "a corruption, which older checkpoints are free of, or a capacity", [&](Fields& same) {
                  same.integer({"keep", "number of checkpoints kept; the oldest is deleted first", false, 1, 1 << 20},
                               storage.keep);
              });
        inner.boolean({"broadcast", "load a checkpoint on one node and broadcast it to the others"}, storage.broadcast);
    });
}

}  // namespace

void describe_faults(Fields& fields, std::vector<ProcessSpec>& processes, std::vector<EventSpec>& events,
                     std::string& trace) {
    fields.items({"processes", "faults that are drawn"}, processes, describe_process);
    fields.items({"events", "faults that are given"}, events, describe_event);
    fields.text({"trace", "file of faults or of machines that come and go; its first line tells the format"}, trace);
}

void describe_campaign(Fields& fields, FaultsSpec& faults) {
    fields.quantity({"duration", "length of the campaign", false, 1, kLongest}, Dimension::time, faults.duration_s);
    fields.quantity(
        {"work", "training without faults after which the job is done; 0 s: it trains on", false, 0, kLongest},
        Dimension::time, faults.work_s);
    fields.integer({"runs", "number of runs with different seeds", false, 1, 1'000'000}, faults.runs);
    describe_faults(fields, faults.processes, faults.events, faults.trace);
    describe(fields, faults.stragglers);
    describe(fields, faults.coding);
    fields.section({"recovery", "steps from detection to training again"},
                   [&](Fields& inner) { describe_recovery(inner, faults.recovery, Strikes(faults)); });
    fields.section({"checkpoint", "checkpoints: content and interval"},
                   [&](Fields& inner) { describe_checkpoint(inner, faults.checkpoint, Strikes(faults)); });
}

void describe(Fields& fields, FaultsSpec& faults) {
    std::size_t index = faults.campaign ? 1 : 0;
    fields.variant({"faults", "failures during the run: a campaign is a map"}, {"none", "campaign"}, index,
                   faults.campaign, [&](Fields& inner) { describe_campaign(inner, faults); });
    faults.campaign = index == 1 || faults.campaign;  // a map needs no `kind`
}

void describe_given(Fields& fields, FaultsSpec& faults) {
    std::size_t index = faults.given ? 1 : 0;
    fields.variant({"faults", "faults during the run, given one by one"}, {"none", "given"}, index, faults.given,
                   [&](Fields& inner) {
                       inner.items({"events", "faults that are given"}, faults.events, describe_event);
                       inner.text({"trace", "file of faults; its first line tells the format"}, faults.trace);
                   });
    faults.given = index == 1 || faults.given;  // a map needs no `kind`
}

namespace {

bool stops_job(FaultKind kind) {
    switch (kind) {
        case FaultKind::fail_stop:
        case FaultKind::link_down:
        case FaultKind::hang:
        case FaultKind::corruption:
        case FaultKind::preemption:
            return true;
        default:
            return false;
    }
}

// Whether there is an error where this stands: what follows from it is no error of its own.
bool is_wrong(const std::vector<Diagnostic>& errors, const YamlNode* node) {
    return node == nullptr || std::any_of(errors.begin(), errors.end(), [&](const Diagnostic& error) {
               return error.line == node->mark.line && error.column == node->mark.column &&
                      (!node->mark.file || error.file == *node->mark.file);
           });
}

// Whether a fault of this kind is described by what only other kinds have. `at`: of the entry in the file.
void check_fields(const YamlNode& at, FaultKind kind, double factor, double lasts_s, std::vector<Diagnostic>& errors) {
    const KindTraits traits = traits_of(kind);
    const std::string& name = fault_kind_names()[static_cast<std::size_t>(kind)];
    const auto mark = [&](const char* key) { return at.find(key) != nullptr ? at.find(key)->mark : at.mark; };
    const auto is_read = [&](const char* key) { return at.find(key) == nullptr || !is_wrong(errors, at.find(key)); };
    if (is_wrong(errors, at.find("kind")) || !is_read("factor") || !is_read("lasts")) {
        return;
    }
    if (traits.factor && (factor <= 0 || factor >= 1)) {
        errors.push_back(mark("factor").error(
            fmt::format("'{}' needs a 'factor' between 0 and 1: what is left of the speed or rate", name)));
    }
    if (!traits.factor && factor != 1) {
        errors.push_back(
            mark("factor").error(fmt::format("'factor' means nothing for '{}'", name), ErrorCode::no_effect));
    }
    if (traits.must_end && lasts_s <= 0) {
        errors.push_back(mark("lasts").error(fmt::format("'{}' needs 'lasts': it ends by itself", name)));
    }
    if (!traits.lasts && lasts_s > 0) {
        errors.push_back(mark("lasts").error(
            fmt::format("'lasts' means nothing for '{}': recovery and repair decide", name), ErrorCode::no_effect));
    }
}

const YamlNode& entry_of(const YamlNode& node, const char* list, std::size_t index) {
    const YamlNode* found = node.find(list);
    return found != nullptr && index < found->items.size() ? found->items[index] : node;
}

void check_processes(const YamlNode& node, const std::vector<ProcessSpec>& processes, const JobShape& shape,
                     std::vector<Diagnostic>& errors) {
    for (std::size_t i = 0; i < processes.size(); ++i) {
        const ProcessSpec& process = processes[i];
        const YamlNode& at = entry_of(node, "processes", i);
        const std::vector<FaultKind> kinds = kinds_of(process.component);
        const std::string& component = component_names()[static_cast<std::size_t>(process.component)];
        if (is_wrong(errors, at.find("component"))) {
            continue;
        }
        if (!is_wrong(errors, at.find("kind")) && std::find(kinds.begin(), kinds.end(), process.kind) == kinds.end()) {
            std::string names;
            for (const FaultKind kind : kinds) {
                names += (names.empty() ? "" : ", ") + fault_kind_names()[static_cast<std::size_t>(kind)];
            }
            errors.push_back(at.mark.error(fmt::format("component '{}' has the kinds {}", component, names)));
        }
        check_fields(at, process.kind, process.factor, process.lasts_s, errors);
        if (shape.count(process.component) == 0) {
            errors.push_back(at.mark.error(fmt::format("the cluster has no component '{}'", component)));
        }
        const bool shared = process.component == Component::switches || process.component == Component::storage ||
                            process.component == Component::software;
        if (shared && process.bad_share > 0) {
            errors.push_back(at.mark.error(fmt::format("'bad_share' is of machines, and '{}' is of none", component)));
        }
    }
}

}  // namespace

void check_faults(const YamlNode& node, const std::vector<ProcessSpec>& processes, const std::vector<EventSpec>& events,
                  const JobShape& shape, std::vector<Diagnostic>& errors) {
    check_processes(node, processes, shape, errors);
    for (std::size_t i = 0; i < events.size(); ++i) {
        const EventSpec& event = events[i];
        const YamlNode& at = entry_of(node, "events", i);
        const YamlNode* where = at.find("where");
        const Mark& mark = where != nullptr ? where->mark : at.mark;
        Place place;
        std::string problem;
        if (is_wrong(errors, where)) {
            continue;
        }
        if (!parse_place(event.where, shape, place, problem)) {
            errors.push_back(mark.error(problem));
        } else if (!is_wrong(errors, at.find("kind")) && !suits(event.kind, place)) {
            errors.push_back(mark.error(fmt::format(
                "'{}' cannot happen to '{}'", fault_kind_names()[static_cast<std::size_t>(event.kind)], event.where)));
        }
        check_fields(at, event.kind, event.factor, event.lasts_s, errors);
    }
}

void check_spec(const YamlNode& node, const FaultsSpec& faults, const JobShape& shape,
                std::vector<Diagnostic>& errors) {
    check_faults(node, faults.processes, faults.events, shape, errors);
    const auto section_error = [&](const char* section, const std::string& text) {
        const YamlNode* found = node.find(section);
        errors.push_back((found != nullptr ? found->mark : node.mark).error(text));
    };
    if (const std::string problem = faults.checkpoint.method.make()->problem(); !problem.empty()) {
        section_error("checkpoint", problem);
    }
    const bool given =
        !faults.trace.empty() || std::any_of(faults.events.begin(), faults.events.end(), [&](const EventSpec& event) {
            return stops_job(event.kind) || event.kind == FaultKind::switch_loss ||
                   (event.kind == FaultKind::link_flap && event.lasts_s > faults.recovery.retry_limit_s);
        });
    if (given && faults.checkpoint.interval.make()->needs_mtbf() && interruption_rate(faults, shape) == 0) {
        section_error("checkpoint",
                      fmt::format("interval '{}' follows from the job's MTBF, and no process interrupts the job: take "
                                  "{{kind: fixed, every: 30 min}}",
                                  faults.checkpoint.interval.name()));
    }
}

std::vector<TimedFault> timed_faults(const std::vector<EventSpec>& events, const JobShape& shape) {
    std::vector<TimedFault> out;
    for (const EventSpec& event : events) {
        TimedFault one{event.at_s, {event.kind, {}, event.factor, event.lasts_s}};
        std::string problem;
        ORRERY_ASSERT(parse_place(event.where, shape, one.fault.place, problem));  // `check_faults` has refused others
        out.push_back(one);
    }
    return out;
}

double interruption_rate(const FaultsSpec& faults, const JobShape& shape) {
    double rate = 0;
    for (const ProcessSpec& process : faults.processes) {
        const bool leaf = process.kind == FaultKind::switch_loss && shape.leaves > 0;
        const bool flap = process.kind == FaultKind::link_flap && process.lasts_s > faults.recovery.retry_limit_s;
        if (stops_job(process.kind) || leaf || flap) {
            const double count = leaf ? shape.leaves : shape.count(process.component);
            rate += count / process.mtbf_s * (1 + process.bad_share * (process.bad_factor - 1));
        }
    }
    return rate;
}

}  // namespace orrery::faults
