#include "sim/run/network_spec.hpp"

#include <algorithm>

namespace orrery::run {

const std::vector<std::string>& library_names() {
    static const std::vector<std::string> kNames = {"nccl", "vllm", "sglang", "trtllm", "ideal"};
    return kNames;
}

PathChoice NetworkSpec::path_choice() const {
    return packets.paths.needs().hashed ? PathChoice::ecmp : PathChoice::spray;
}

std::vector<std::string> NetworkSpec::class_names() const {
    std::vector<std::string> out;
    for (const ClassSpec& one : by_packet() ? packets.classes : std::vector<ClassSpec>()) {
        out.push_back(one.name);
    }
    return out;
}

std::uint8_t NetworkSpec::class_number(const std::string& name) const {
    const std::vector<std::string> names = class_names();
    const auto found = std::find(names.begin(), names.end(), name);
    return static_cast<std::uint8_t>(found == names.end() ? 0 : found - names.begin());
}

static constexpr const char* kByPacket = "network.fidelity: packet";

void describe(Fields& fields, NetworkSpec& network, const NetworkUse& use) {
    fields.enumeration(
        {"fidelity",
         "analytic: alpha-beta with reservations; fluid: max-min fair sharing; simgrid: SimGrid's; packet: by packet"},
        fidelity_names(), network.fidelity);
    network.packets.paths.policy.describe_variant(
        fields, {"paths", "spray: evenly over parallel paths; ecmp: a hash picks one; the others by packet"},
        [&](Fields& inner) {
            inner.when(
                network.by_packet(), kByPacket, [&](Fields& same) { describe(same, network.packets.paths); },
                Unmet::noted);
        });
    if (use.library) {
        fields.enumeration(
            {"collectives", "library as measured (serving engines bring an all-reduce of their own), or ideal links"},
            library_names(), network.collectives);
    }
    fields.when(network.fidelity == Fidelity::fluid, "network.fidelity: fluid", [&](Fields& same) {
        same.quantity({"batch", "completions within this window are handled together; 0 s: exact", false, 0, 1},
                      Dimension::time, network.batch);
    });
    if (use.folds) {
        fields.boolean({"fold", "provably identical parts are simulated once"}, network.fold);
    }
    fields.when(
        network.by_packet(), kByPacket,
        [&](Fields& same) {
            describe(same, network.packets, {use.collectives, use.sends});
        },
        Unmet::noted);
    if (use.flows) {
        fields.when(network.by_packet(), kByPacket,
                    [&](Fields& same) { describe_flow_samples(same, network.packets); });
    }
    if (use.threads) {
        fields.integer({"threads",
                        "threads that share the packets of the run by leaves, pods or switches (fidelity packet); any "
                        "number gives the same results",
                        false, 1, 256},
                       network.threads);
    }
}

std::vector<std::string> problems_of(const NetworkSpec& network) {
    std::vector<std::string> out;
    if (network.by_packet()) {
        out = problems_of(network.packets);
        const auto& classes = network.packets.classes;
        if (!network.packets.transport.needs().acknowledged &&
            std::any_of(classes.begin(), classes.end(),
                        [](const auto& own) { return own.strict || own.weight != 1; })) {
            out.emplace_back(
                "network.classes: transport ideal paces flows at their max-min fair rates, whatever their class: leave "
                "strict and weight out, or choose another transport");
        }
    }
    return out;
}

RunSettings run_settings(const NetworkSpec& network, std::vector<TimedFault> link_events, std::uint64_t seed) {
    RunSettings out;
    out.fidelity = network.fidelity;
    out.window = SimTime::from_seconds(network.fidelity == Fidelity::fluid ? network.batch : 0);
    if (network.by_packet()) {
        out.packets = network.packets;
        out.link_events = std::move(link_events);
        out.threads = static_cast<std::uint32_t>(network.threads);
    }
    out.seed = seed;
    return out;
}

}  // namespace orrery::run
