#pragma once
// NICs as receivers: what has arrived, and what is sent back for it.

#include "sim/network/packet/nic.hpp"

#include <deque>
#include <vector>

namespace orrery::network::packet {

class Receivers {
  public:
    Receivers(const Setup& setup, Clock& clock, Slab& slab, Flows& flows, Ports& ports, Nics& nics)
        : setup_(setup),
          clock_(clock),
          slab_(slab),
          flows_(flows),
          ports_(ports),
          nics_(nics),
          granting_(setup.nics),
          writing_(setup.spec.nic.write_rate > 0 ? setup.nics : 0) {}

    /// A packet has reached its NIC.
    void deliver(std::uint32_t packet);
    /// A NIC may grant its next credit.
    void grant(std::uint32_t nic);
    /// A NIC has written the packet whose turn it was.
    void write(std::uint32_t nic);
    /// A NIC's grants go on so much later.
    void shift_nic(std::uint32_t nic, std::int64_t time) { granting_[nic].next += time; }

  private:
    using Bits = Flows::Bits;
    struct Granting {
        std::uint32_t flows = kNone;  ///< last of the ring of flows that want credits
        std::int64_t next = 0;        ///< ps
        bool armed = false;
    };
    struct Writing {
        struct Waiting {
            std::int64_t at = 0;    ///< ps, when it will have been written
            std::int64_t came = 0;  ///< ps
            std::uint32_t packet = 0;
        };
        std::deque<Waiting> waiting;
        std::int64_t bytes = 0;  ///< of them
        std::int64_t held = 0;   ///< ps that the last one written has waited for that
    };
    [[nodiscard]] bool wait_for_host(std::uint32_t packet);
    void tell_buffer(std::uint32_t nic, Packet& answer) const;
    [[gnu::always_inline]] inline void receive_data(const Packet& p);
    [[nodiscard]] bool in_order(Flow& flow, const Packet& p);
    [[nodiscard]] inline bool unseen(Flow& flow, const Packet& p);
    inline void tell(Flow& flow, const Packet& p, bool fresh, bool complete);
    void notify(const Packet& p);
    void reply(PacketKind kind, const Packet& data, std::uint8_t flags, std::uint64_t selected = 0);
    void acknowledge_untold(const Packet& p);
    void flow_received(std::uint32_t flow);
    void hear_backlog(const Packet& p);
    void want_credit(std::uint32_t flow, std::uint64_t total);

    const Setup& setup_;
    Clock& clock_;
    Slab& slab_;
    Flows& flows_;
    Ports& ports_;
    Nics& nics_;
    std::vector<Granting> granting_;  ///< by NIC
    std::vector<Writing> writing_;    ///< by NIC; none: they write what comes
};

}  // namespace orrery::network::packet
