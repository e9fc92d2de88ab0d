#include "sim/network/packet/spec.hpp"

#include "sim/base/text.hpp"

#include <algorithm>
#include <charconv>

namespace orrery::network {

void describe(Fields& fields, PathSpec& spec) {
    spec.policy.describe_parameters(fields);
    fields.integer({"subflows", "parts of a message, each with its own path and window", false, 1, 4096},
                   spec.subflows);
}

void describe(Fields& fields, TransportSpec& t) {
    t.policy.describe_choice(fields, {"kind", "transport protocol"});
    const packet::TransportNeeds needs = t.needs();
    fields.when(
        needs.acknowledged, "a transport that acknowledges packets",
        [&](Fields& same) {
            same.enumeration({"recovery",
                              "retransmission after a loss: everything from the lost packet (go-back-n) or only "
                              "missing packets (selective); automatic: go-back-n for roce, hpcc, infiniband"},
                             {"automatic", "go-back-n", "selective"}, t.recovery);
            same.quantity(
                {"timeout", "time without progress after which packets count as lost; 0 s: 8 round trips of the path",
                 false, 0, 1e3},
                Dimension::time, t.timeout);
            same.integer({"retries", "timeouts in a row after which a flow has failed", false, 1, 200}, t.retries);
            same.integer(
                {"reorder", "packets beyond a gap that prove a loss; 0: 3 on one path, else by time", false, 0, 1e6},
                t.reorder);
            same.quantity({"reorder_time",
                           "reordering window with many paths before an overtaken packet counts as lost; 0 s: the "
                           "smoothed round trip (none with trimming)",
                           false, 0, 1},
                          Dimension::time, t.reorder_time);
        },
        Unmet::noted);
    fields.when(
        needs.window, "a transport that keeps to a window",
        [&](Fields& same) {
            same.quantity({"window", "bytes in flight; 0 B: 1.5 bandwidth-delay products", false, 0, 1e15},
                          Dimension::bytes, t.window);
        },
        Unmet::noted);
    t.policy.describe_parameters(fields);
}

// `pauses`: whether any queue pauses the sender of a link.
static void describe(Fields& fields, QueueSpec& q, bool pauses) {
    fields.quantity({"size", "size of an output port's queue; 0 B: without limit", false, 0, 4e9}, Dimension::bytes,
                    q.size);
    fields.range(
        {"ecn", "queue sizes for ECN marks: [none marked below, all marked above]; equal: a step", false, 0, 4e9},
        Dimension::bytes, q.mark_low, q.mark_high);
    fields.when(q.mark_high > 0, "marks (queues.ecn)", [&](Fields& same) {
        same.number({"ecn_probability", "probability of a mark just below the upper threshold", false, 0, 1},
                    q.mark_probability);
    });
    fields.boolean({"trim", "queues cut packets that do not fit to their headers, which are sent first"}, q.trim);
    fields.quantity({"shared", "memory of a switch that its ports share; 0 B: each has its own", false, 0, 1e12},
                    Dimension::bytes, q.shared);
    fields.when(q.shared > 0, "memory that ports share (queues.shared)", [&](Fields& same) {
        same.number({"alpha", "limit of a port's queue, as a multiple of the free shared memory", false, 1e-3, 1e3},
                    q.alpha);
    });
    fields.boolean({"pfc", "ports pause the sender of a link instead of dropping packets (PFC)"}, q.pfc);
    fields.when(pauses, "ports that pause (pfc)", [&](Fields& same) {
        same.quantity(
            {"pause_at", "queued bytes from one link at which its sender is paused; 0 B: two bandwidth-delay products",
             false, 0, 1e12},
            Dimension::bytes, q.pause_at);
        same.quantity({"resume_at", "queued bytes from one link at which its sender resumes; 0 B: half of pause_at",
                       false, 0, 1e12},
                      Dimension::bytes, q.resume_at);
    });
    fields.integer({"reduction_slots", "sums of an in-switch all-reduce that a switch can hold; 0: as many as it needs",
                    false, 0, 1e6},
                   q.reduction_slots);
    fields.when(pauses, "ports that pause (pfc)", [&](Fields& same) {
        same.quantity(
            {"headroom", "buffer per link beyond pause_at; 0 B: what a link can have in flight", false, 0, 1e12},
            Dimension::bytes, q.headroom);
    });
    fields.when(pauses, "ports that pause (pfc)", [&](Fields& same) {
        same.enumeration({"watchdog", "action of a switch's port on its data once it has been paused too long"},
                         {"none", "drop", "forward"}, q.watchdog);
    });
    fields.when(q.watchdog != StormAction::none, "a watchdog", [&](Fields& same) {
        same.quantity({"watchdog_detection", "uninterrupted pause after which the watchdog acts", false, 1e-6, 1e3},
                      Dimension::time, q.detection);
        same.quantity(
            {"watchdog_restoration", "time without a pause after which the port works as before", false, 1e-6, 1e3},
            Dimension::time, q.restoration);
    });
    fields.quantity({"credits",
                     "room that the far end of a link gives to each lane, in blocks of 64 B, as in InfiniBand; 0 B: "
                     "no credits",
                     false, 0, 4e9},
                    Dimension::bytes, q.credits);
    fields.when(q.credits > 0, "links with credits", [&](Fields& same) {
        same.boolean(
            {"dateline",
             "second lane for each class beyond the last place of a ring, which keeps credits free of deadlock"},
            q.dateline);
    });
}

static void describe(Fields& fields, NicSpec& nic, bool acknowledged) {
    fields.quantity({"doorbell", "time from posting a message to its first packet", false, 0, 1}, Dimension::time,
                    nic.doorbell);
    fields.quantity({"dma", "reading host memory before the first packet", false, 0, 1}, Dimension::time, nic.dma);
    fields.number({"message_rate", "messages per second that a NIC starts; 0: no limit", false, 0, 1e12},
                  nic.message_rate);
    fields.quantity({"host_rate", "rate at which the host feeds a NIC; 0 B/s: no limit", false, 0, 1e14},
                    Dimension::rate, nic.host_rate);
    fields.quantity(
        {"write_rate", "rate at which a NIC writes arrived data to its host; 0 B/s: as data arrive", false, 0, 1e14},
        Dimension::rate, nic.write_rate);
    fields.when(nic.write_rate > 0, "a write_rate", [&](Fields& same) {
        same.quantity({"buffer",
                       "NIC receive buffer for data that wait to be written to the host; data beyond it are dropped; 0 "
                       "B: unlimited",
                       false, 0, 4e9},
                      Dimension::bytes, nic.buffer);
    });
    fields.integer({"rails", "NICs of a node that a message is spread over, from that of its GPU on", false, 1, 1024},
                   nic.rails);
    fields.integer(
        {"queue_pairs", "queue pairs between two NICs, each of which delivers in order; 0: one for each message", false,
         0, 65536},
        nic.queue_pairs);
    fields.quantity(
        {"host_memory", "memory bandwidth of a node for what its NICs read and write; 0 B/s: no limit", false, 0, 1e15},
        Dimension::rate, nic.host_memory);
    fields.when(
        acknowledged, "a transport that acknowledges packets",
        [&](Fields& same) {
            same.integer(
                {"acknowledge_every",
                 "largest number of packets per acknowledgement; 0: 16 KiB for multipath and infiniband, else 1", false,
                 0, 64},
                nic.acknowledge_every);
            same.boolean({"done_at_sender", "messages end with their last acknowledgement, not their last byte"},
                         nic.done_at_sender);
        },
        Unmet::noted);
}

// What a class does not say is as the queues are.
static void describe_classes(Fields& fields, PacketSpec& spec, const CarriedParts& parts) {
    const auto describe_one = [&](Fields& inner, ClassSpec& own) {
        inner.text({"name", "name by which workloads choose the class", true}, own.name);
        inner.boolean({"strict", "this class sends before all classes listed after it"}, own.strict);
        inner.when(!own.strict, "turns that it shares with others (strict: false)", [&](Fields& same) {
            same.number({"weight", "weight of the class among those that are not strict (weighted round robin)", false,
                         1e-3, 1e3},
                        own.weight);
        });
        if (parts.collectives) {
            inner.boolean({"collectives",
                           "this class carries collectives between nodes (of training: of gradients and "
                           "parameters); else the first class does"},
                          own.collectives);
        }
        if (parts.sends) {
            inner.boolean({"sends",
                           "this class carries sends from GPU to GPU (between pipeline stages, KV caches); else "
                           "the first class does"},
                          own.sends);
        }
        inner.quantity({"size", "size of the class's queue at a port; 0 B: without limit", false, 0, 4e9},
                       Dimension::bytes, own.size);
        inner.range(
            {"ecn", "queue sizes for ECN marks: [none marked below, all marked above]; equal: a step", false, 0, 4e9},
            Dimension::bytes, own.mark_low, own.mark_high);
        inner.number({"alpha", "queue limit as a multiple of the free shared memory", false, 1e-3, 1e3}, own.alpha);
        inner.boolean({"pfc", "ports pause the sender of a link for this class alone (PFC)"}, own.pfc);
        inner.quantity(
            {"pause_at", "queued bytes from one link at which its sender is paused; 0 B: two bandwidth-delay products",
             false, 0, 1e12},
            Dimension::bytes, own.pause_at);
        inner.quantity({"resume_at", "queued bytes from one link at which its sender resumes; 0 B: half of pause_at",
                        false, 0, 1e12},
                       Dimension::bytes, own.resume_at);
        inner.quantity(
            {"headroom", "buffer per link beyond pause_at; 0 B: what a link can have in flight", false, 0, 1e12},
            Dimension::bytes, own.headroom);
    };
    fields.items(
        {"classes", "traffic classes, each with a queue of its own at every port; none: one class, as the queues say"},
        spec.classes, describe_one, ClassSpec(spec.queues));
}

void describe(Fields& fields, PacketSpec& spec, const CarriedParts& parts) {
    fields.quantity({"mtu", "payload of a full packet", false, 1, 16777216}, Dimension::bytes, spec.mtu);
    fields.quantity({"header", "header bytes of a packet; also the size of an acknowledgement", false, 1, 65536},
                    Dimension::bytes, spec.header);
    fields.section({"transport", "transport protocol"}, [&](Fields& inner) { describe(inner, spec.transport); });
    fields.section({"queues", "memory of the switches"},
                   [&](Fields& inner) { describe(inner, spec.queues, pauses(spec)); });
    describe_classes(fields, spec, parts);
    fields.section({"nic", "limits of NICs and hosts"},
                   [&](Fields& inner) { describe(inner, spec.nic, spec.transport.needs().acknowledged); });
    fields.number({"bit_error_rate", "bit error rate of every link", false, 0, 1e-3}, spec.bit_error_rate);
    fields.quantity({"reroute_delay", "time from a change of a link to its effect on routing", false, 0, 1e4},
                    Dimension::time, spec.reroute_delay);
    fields.boolean({"failover", "switches stop using a dead link of their own at once if another leads on"},
                   spec.failover);
    fields.boolean({"detour", "reroute packets locally around a dead link until routing has converged"}, spec.detour);
    fields.quantity({"queue_samples", "interval between records of all queues; 0 s: none", false, 0, 1e4},
                    Dimension::time, spec.queue_samples);
    fields.section(
        {"skip", "steady stretches are computed and not simulated; without it every packet is simulated"},
        [&](Fields& inner) {
            inner.quantity(
                {"error", "accepted error of rates, and so of completion times; 0: nothing is skipped", false, 0, 0.05},
                Dimension::fraction, spec.skip_error);
        });
    fields.text({"link_events", "file of changes of links: time_s,link,event,factor"}, spec.link_events);
}

bool pauses(const PacketSpec& spec) {
    return spec.classes.empty()
               ? spec.queues.pfc
               : std::any_of(spec.classes.begin(), spec.classes.end(), [](const ClassSpec& one) { return one.pfc; });
}

bool waits_for_room(const PacketSpec& spec) {
    return pauses(spec) || spec.queues.credits > 0;
}

static void add_problems_of_classes(const PacketSpec& spec, std::vector<std::string>& out) {
    constexpr std::size_t kMostClasses = 15;  // InfiniBand's data lanes
    constexpr std::size_t kMostPausing = 8;   // priorities of IEEE 802.1Q
    const QueueSpec& q = spec.queues;
    const packet::TransportNeeds transport = spec.transport.needs();
    if (spec.classes.size() > kMostClasses || (spec.classes.size() > kMostPausing && pauses(spec))) {
        out.push_back("network.classes: at most 15 classes, and 8 where PFC pauses them by priority");
    }
    for (std::size_t i = 0; i < spec.classes.size(); ++i) {
        const ClassSpec& own = spec.classes[i];
        const std::string named = "network.classes: '" + own.name + "'";
        if (std::any_of(spec.classes.begin(), spec.classes.begin() + static_cast<std::ptrdiff_t>(i),
                        [&](const ClassSpec& other) { return other.name == own.name; })) {
            out.push_back(named + " is there twice");
        }
        if (own.mark_high > 0 && own.mark_low > own.mark_high) {
            out.push_back(named + ": ecn must rise from its first to its second value");
        }
        if (own.pfc && q.trim) {
            out.push_back(named + ": pfc and queues.trim exclude each other");
        }
        if (!transport.acknowledged && own.size > 0 && !own.pfc) {
            out.push_back(named + " has a size, and transport ideal does not send again what is lost");
        }
    }
    const bool laned = spec.classes.size() > 1 || q.credits > 0;
    if (laned && (spec.skip_error > 0 || transport.telemetry)) {
        out.emplace_back(
            "skip and transport hpcc know ports with one queue: leave network.classes and queues.credits out");
    }
    if (q.credits > 0 && (q.credits < spec.mtu + spec.header)) {
        out.emplace_back("queues.credits is less than a full packet: nothing could ever be sent");
    }
    if (q.credits > 0 &&
        (pauses(spec) || q.trim || q.size > 0 || q.shared > 0 || spec.bit_error_rate > 0 || !spec.link_events.empty() ||
         std::any_of(spec.classes.begin(), spec.classes.end(), [](const ClassSpec& one) { return one.size > 0; }))) {
        out.emplace_back(
            "links with credits lose nothing and have the room that credits say: leave pfc, trim, size, shared, "
            "bit_error_rate and link_events out, or queues.credits");
    }
}

void describe_flow_samples(Fields& fields, PacketSpec& spec) {
    fields.section({"flow_samples", "records of single messages: window, rate and marks"}, [&](Fields& inner) {
        inner.quantity({"every", "interval between records; 0 s: none", false, 0, 1e4}, Dimension::time,
                       spec.flow_samples);
        inner.text({"flows", "messages to record, by their numbers in run --flows: \"0-7, 32\"; empty: all"},
                   spec.sampled_flows);
    });
}

std::optional<NumberRanges> NumberRanges::read(const std::string& text) {
    NumberRanges out;
    const auto number = [](std::string_view word, std::uint64_t& value) {
        const auto from = std::min(word.find_first_not_of(' '), word.size());
        word = word.substr(from, word.find_last_not_of(' ') + 1 - from);
        const auto [end, wrong] = std::from_chars(word.data(), word.data() + word.size(), value);
        return wrong == std::errc() && end == word.data() + word.size();
    };
    for (const std::string_view part : split(text, ',')) {
        if (text.empty()) {
            break;
        }
        const std::size_t dash = std::min(part.find('-'), part.size());
        std::uint64_t first = 0;
        std::uint64_t last = 0;
        if (!number(part.substr(0, dash), first) || !number(part.substr(dash == part.size() ? 0 : dash + 1), last) ||
            first > last) {
            return std::nullopt;
        }
        out.ranges_.emplace_back(first, last);
    }
    return out;
}

bool NumberRanges::has(std::uint64_t number) const {
    return ranges_.empty() || std::any_of(ranges_.begin(), ranges_.end(), [&](const auto& range) {
               return range.first <= number && number <= range.second;
           });
}

std::vector<std::string> notes_of(const PacketSpec& spec) {
    std::vector<std::string> out;
    if (spec.transport.needs().credit_links && spec.queues.credits <= 0) {
        out.push_back("transport " + spec.transport.policy.name() +
                      " over links without credits: they may lose packets, and each above the threshold is marked");
    }
    return out;
}

std::vector<std::string> problems_of(const PacketSpec& spec) {
    std::vector<std::string> out;
    const packet::TransportNeeds transport = spec.transport.needs();
    const packet::PathNeeds paths = spec.paths.needs();
    const QueueSpec& q = spec.queues;
    const bool loses = (q.size > 0 || q.shared > 0 || q.trim) && !q.pfc;
    add_problems_of_classes(spec, out);
    if (std::string problem = spec.transport.policy.make()->problem(); !problem.empty()) {
        out.push_back(std::move(problem));
    }
    if (!transport.acknowledged &&
        (loses || spec.bit_error_rate > 0 || q.watchdog == StormAction::drop || spec.nic.buffer > 0)) {
        out.emplace_back(
            "transport ideal does not send again what is lost: leave queues.size, queues.shared, queues.trim, "
            "queues.watchdog: drop, nic.buffer and bit_error_rate out, or choose another transport");
    }
    if (spec.nic.buffer > 0 && spec.nic.buffer < spec.mtu + spec.header) {
        out.emplace_back("nic.buffer is less than a full packet: nothing could ever be received");
    }
    if (spec.nic.write_rate > 0 && spec.skip_error > 0) {
        out.emplace_back("skip knows NICs that write what comes: leave nic.write_rate or skip out");
    }
    if (q.watchdog != StormAction::none && spec.skip_error > 0) {
        out.emplace_back("skip knows no watchdog: leave queues.watchdog or skip out");
    }
    const Recovery recovery = spec.transport.recovery;
    const bool go_back = recovery == Recovery::go_back_n || (recovery == Recovery::automatic && transport.go_back_n);
    if (go_back && !paths.one_path) {
        out.emplace_back("go-back-n needs packets in order: choose paths ecmp or planned, or recovery: selective");
    }
    if (transport.telemetry && !paths.one_path && !paths.hashed) {
        out.emplace_back("transport " + spec.transport.policy.name() +
                         " follows the links of one path: choose paths ecmp, flowlet or planned");
    }
    if (transport.telemetry && spec.detour) {
        out.emplace_back("transport " + spec.transport.policy.name() +
                         " reads the links of a path up to a number that detours exceed: leave detour out");
    }
    if (paths.windows > 0 && !transport.path_windows) {
        out.push_back("paths " + spec.paths.policy.name() +
                      " are of a transport with a window for each, falcon, and not of " + spec.transport.policy.name());
    }
    if (go_back && q.trim) {
        out.emplace_back("trimming serves selective recovery: choose recovery: selective");
    }
    if (go_back && (spec.transport.reorder > 0 || spec.transport.reorder_time > 0)) {
        out.emplace_back(
            "go-back-n takes the first packet out of order for a loss: leave reorder and reorder_time out");
    } else if (spec.transport.reorder_time > 0 && paths.one_path) {
        out.emplace_back("transport.reorder_time is for many paths; on one path transport.reorder counts packets");
    } else if (spec.transport.reorder_time > 0 && spec.transport.reorder > 0) {
        out.emplace_back("transport.reorder and transport.reorder_time exclude each other");
    }
    if (q.mark_high > 0 && q.mark_low > q.mark_high) {
        out.emplace_back("queues.ecn must rise from its first to its second value");
    }
    if (spec.nic.rails > 1 && (!transport.acknowledged || paths.plans)) {
        out.emplace_back(
            "nic.rails above 1 goes neither with transport ideal nor with planned paths, which know one NIC");
    }
    if (q.reduction_slots == 1) {
        out.emplace_back("queues.reduction_slots: a member's window is half of them, so there are at least 2");
    }
    if (spec.skip_error > 0 && (!spec.link_events.empty() || spec.bit_error_rate > 0 || spec.queue_samples > 0)) {
        out.emplace_back(
            "skip knows steady states of a network that stays as it is, and nobody looks at its queues meanwhile: "
            "leave "
            "link_events, bit_error_rate and queue_samples out, or skip");
    }
    if (spec.skip_error > 0 && transport.operation > 0) {
        out.emplace_back(
            "skip knows no packets that are written in order: leave transport.mp_rdma_operation or skip out");
    }
    if (transport.operation > 0 && go_back) {
        out.emplace_back("go-back-n writes all in order: leave transport.mp_rdma_operation out");
    }
    if (spec.skip_error > 0 && spec.flow_samples > 0) {
        out.emplace_back("flow_samples look at flows all the time: leave them or skip out");
    }
    if (!NumberRanges::read(spec.sampled_flows)) {
        out.emplace_back("flow_samples.flows: '" + spec.sampled_flows +
                         "' is no list of numbers of flows such as \"0-7, 32\"");
    } else if (!spec.sampled_flows.empty() && spec.flow_samples <= 0) {
        out.emplace_back("flow_samples.flows says which flows: flow_samples.every must say when");
    }
    if (q.pfc && q.trim) {
        out.emplace_back("queues.pfc and queues.trim exclude each other");
    }
    return out;
}

}  // namespace orrery::network
