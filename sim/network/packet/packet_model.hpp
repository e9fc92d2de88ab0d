#pragma once
// The packet model: activities inside a node share as fluids, their flows between nodes are packets.
//
// Claims: an activity has finished when its fluid part has and the last byte of each of its flows has arrived (or has been
// acknowledged, if the specification says so). Flows that start at one instant start together. Flows are paced at the
// fluid share that their activity has of what lies inside the nodes (NVLink, PCIe, host memory), at once when it changes.
// With transport `ideal` the fluid share takes in the links between nodes as well, so flows are paced at their max-min fair
// rates: packet by packet what fidelity fluid says, ever more so as packets get smaller.
// What is cancelled or suspended sends no more; packets of it that are under way still pass the links. What resumes
// starts anew with what is left of its slowest part.
// Limits: a flow that the network holds back below its share does not leave the rest of it to others. All-reduces inside
// the switches cannot be cancelled. Links between nodes change only in a model built for it, whose ports are slower.
// Validated by tests/sim/network/packet_model_test.cpp and tests/tools/packet_scenarios_test.cpp.

#include "sim/engine/fluid.hpp"
#include "sim/network/packet/network.hpp"
#include "sim/network/slots.hpp"

#include <deque>

namespace orrery::network {

class PacketModel final : public ResourceModel, public EventHandler, public ActivityListener {
  public:
    /// All arguments but `engine` and `fabric` are copied. `links_change`: capacities of links between nodes will change.
    PacketModel(Engine& engine, const Fabric& fabric, const PacketSpec& spec,
                const std::vector<TimedFault>& link_events, std::uint64_t seed, bool links_change = false,
                std::uint32_t threads = 1);
    /// As Network::run_ahead.
    void run_ahead() { network_.run_ahead(); }
    /// Before the first activity: messages go by their number in the order of sending and not by what their jobs name them, and when
    /// each went is kept. For jobs that send several in one activity.
    void number_flows();

    ResourceId add_resource(double capacity) override { return inside_.add_resource(capacity); }
    [[nodiscard]] double capacity(ResourceId resource) const override { return inside_.capacity(resource); }
    void set_capacity(ResourceId resource, double capacity) override;
    ClassId hold(std::span<const Demand> demands, double rate_bound = kUnbounded) override {
        return hold_flows({}, demands, rate_bound);
    }
    ClassId hold_flows(std::span<const RoutedFlow> flows, std::span<const Demand> demands,
                       double rate_bound = kUnbounded) override;
    void release(ClassId id) override { drop(id); }
    void start(ClassId id, double amount, ListenerId listener, std::uint64_t token) override;
    [[nodiscard]] bool routes_flows() const override { return true; }
    void set_progress(double total, const std::function<void(double)>& progress) override;
    [[nodiscard]] ResourceReport report(std::size_t links) const override;
    void require_finished() const override { network_.require_finished(); }
    void require_conserved() const override;

    void on_event(std::uint32_t datum) override;
    void settle() override;
    void on_activity_done(std::uint64_t slot) override {
        activities_[slot].inside = ClassId();
        finish_part(static_cast<std::uint32_t>(slot));
    }

    [[nodiscard]] const packet::Network& network() const { return network_; }
    /// As Network::report, with messages named as their jobs name them or numbered.
    [[nodiscard]] PacketReport packet_report() const;
    /// In the order of sending; empty unless flows are numbered.
    [[nodiscard]] std::vector<FlowTime> flow_times() const;

  private:
    struct Class {
        std::vector<RoutedFlow> flows;
        ClassId inside;
        std::vector<Demand> demands;
        double rate_bound = kUnbounded;
        std::uint32_t users = 0;  ///< holds, and activities under way
    };
    struct Sent {
        std::uint32_t owner;
        GpuId from;
        GpuId to;
        double bytes;
    };
    struct Activity {
        std::uint64_t token = 0;
        ListenerId listener;
        double amount = 0;
        ClassId of;
        ClassId inside;  ///< whose share paces the flows; invalid: none, or it is done
        std::uint32_t parts = 0;
    };
    void hold_again(ClassId id) override { ++classes_[id.value()].users; }
    double withdraw(const ActivityHandle& activity) override;
    ClassId hold_bounded(ClassId id, double rate_bound) override;
    [[nodiscard]] bool inside(ResourceId resource) const {
        return fabric_.inside_node(resource) || resource.value() >= fabric_.resource_count();
    }
    void drop(ClassId id);
    void finish_part(std::uint32_t slot);
    void add_host_memory(std::span<const RoutedFlow> flows, std::vector<Demand>& inside);
    void send(std::uint32_t slot);
    void hand_over_next();
    [[nodiscard]] std::uint8_t class_of(const RoutedFlow& flow) const;

    Engine& engine_;
    const Fabric& fabric_;
    FluidModel inside_;
    ListenerId from_inside_;
    std::uint32_t handler_;
    std::vector<double> slower_;    ///< by port from the first on: its rate over that of its kind; empty: all 1
    bool ideal_;                    ///< shares of the links between nodes count as well
    double wire_;                   ///< bytes on the wire a byte of payload
    double host_memory_;            ///< B/s per node; 0: no limit
    ResourceId first_host_memory_;  ///< of node 0; the others follow
    std::uint8_t collectives_ = 0;  ///< class of them
    std::uint8_t sends_ = 0;
    packet::Network network_;
    bool counts_flows_;
    NumberRanges sampled_;
    std::vector<std::uint64_t> tokens_;  ///< by number of the message in the network, where it counts by message
    bool numbers_flows_ = false;
    std::vector<Sent> sent_;  ///< by number of the message, where flows are numbered
    Slots<Class> classes_;
    Slots<Activity> activities_;
    std::deque<packet::Completion> arrived_;  ///< activities whose flows the next events hand over
    std::vector<std::uint32_t> starting_;  ///< activities whose flows start when the shares of this instant are known
    std::vector<double> rates_;            ///< by activity, units per second
    std::uint64_t solves_ = 0;             ///< of the fluid part that rates_ is from
};

}  // namespace orrery::network
