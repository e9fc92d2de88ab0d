#pragma once
// Sequences that wait on their replica until what comes for them is there: prefixes, copies and swapped blocks.

#include "sim/network/slots.hpp"
#include "workloads/serving/fleet/fleet.hpp"

namespace orrery::serving {

class SequenceLoads : public FleetPart {
  public:
    void on_done(std::uint64_t id, Dispatcher& dispatcher) override;
    /// A replica fails: what comes for it is of no use.
    void fail(std::uint32_t replica);

  protected:
    /// `here`: what becomes of a sequence that has got everything. The other arguments outlive this.
    SequenceLoads(const ServiceSpec& spec, Fleet& fleet, ServiceResult& result,
                  void (EngineState::*here)(std::uint32_t sequence))
        : FleetPart(spec, fleet, result), here_(here) {}
    [[nodiscard]] std::uint32_t add(std::uint32_t replica, std::uint32_t sequence) {
        return loads_.take({replica, sequence, 0, false});
    }
    /// It waits for so long, too ...
    void wait(std::uint32_t id, SimTime time);
    /// ... or for so many B over a link; without one they are there at once.
    void load(std::uint32_t id, ClassId link, double bytes, SimTime latency = SimTime());

  private:
    struct Load {
        std::uint32_t replica = 0;
        std::uint32_t sequence = 0;
        std::uint32_t pending = 0;
        bool lost = false;
    };
    void (EngineState::*here_)(std::uint32_t);
    Slots<Load> loads_;
};

}  // namespace orrery::serving
