#pragma once
// NICs as senders: messages become flows, and flows packets, when windows, rates and the NIC let them; what comes back from
// receivers moves windows and rates.

#include "sim/network/packet/marks.hpp"
#include "sim/network/packet/message.hpp"
#include "sim/network/packet/port.hpp"
#include "sim/network/packet/under_way.hpp"

#include <functional>
#include <map>
#include <utility>
#include <vector>

namespace orrery::network::packet {

class Nics {
  public:
    Nics(const Setup& setup, const Border& border, Clock& clock, Slab& slab, Flows& flows, Messages& messages,
         Ports& ports, const Transport& transport, PathChooser& chooser)
        : setup_(setup),
          border_(border),
          clock_(clock),
          slab_(slab),
          flows_(flows),
          messages_(messages),
          ports_(ports),
          transport_(transport),
          chooser_(chooser),
          nics_(setup.nics),
          rings_(setup.laned ? setup.nics * setup.classes.size() : 0, kNone),
          turns_(setup.classes, setup.full, setup.laned ? setup.nics : 0) {}

    /// Cuts a message into at most so many flows and posts them. `paths`: entropies, one for each; empty: by the hash.
    void begin_message(std::uint32_t message, std::uint32_t parts, const std::vector<std::uint32_t>& paths);
    [[nodiscard]] std::uint32_t new_flow(std::uint32_t message, std::uint64_t bytes, std::uint64_t hash,
                                         std::uint32_t part);
    /// Gives a flow to its NIC: at once, or when its queue pair has sent what came before. `first`: of its message.
    void post(std::uint32_t flow, bool first);
    /// Stops what is left of a message. Returns the bytes missing at its receiver.
    double cancel(std::uint32_t message);
    /// Sender and receiver are done with a flow.
    void retire(std::uint32_t flow);
    /// A flow of a message has ended now.
    void finish_part(std::uint32_t message) { ended_.push_back({clock_.now, message}); }
    /// Flows that have ended, in the order of time, until whoever reads it empties it.
    [[nodiscard]] std::vector<Ended>& ended() { return ended_; }
    /// As Network::set_shares.
    void set_shares(const std::vector<double>& rates);

    /// Calls `tell` before a flow is posted, its paths being known, and before one that was posted is changed from outside.
    void watch(std::function<void(std::uint32_t flow, bool posted)> tell) { tell_ = std::move(tell); }
    /// Whether a flow waits for others of its queue pair.
    [[nodiscard]] bool waits_in_pair(std::uint32_t flow) {
        return setup_.spec.nic.queue_pairs > 0 && flows_[flow].reduction == kNone && !flows_[flow].started &&
               pair_of(flows_[flow]).first != flow;
    }
    /// A NIC, or the sender's part of a flow, goes on later.
    void shift_nic(std::uint32_t nic, std::int64_t time) {
        nics_[nic].free_at += time;
        nics_[nic].host_time += time;
    }
    void shift_flow(std::uint32_t flow, const Shift& by);
    [[nodiscard]] std::int64_t free_at(std::uint32_t nic) const { return nics_[nic].free_at; }

    /// A flow starts to send, or sends again what came too early.
    void start(std::uint32_t flow);
    /// Puts a flow among those that its NIC serves in turn, if it has something to send and may.
    void list(std::uint32_t flow);
    /// A NIC may be able to send.
    void kick(std::uint32_t nic_id) {
        Nic& nic = nics_[nic_id];
        if (nic.sending == kNone || nic.to_wake) {
            return;
        }
        // A NIC that cannot send right now is woken when its last packet has left.
        if (nic.free_at > clock_.now) {
            nic.to_wake = true;
            clock_.wheel.insert(setup_.ports() + nic_id, nic.free_at);
        } else {
            commit(nic_id);
        }
    }
    /// The event that kick() left: a NIC's last packet has left.
    void wake(std::uint32_t nic) {
        nics_[nic].to_wake = false;
        commit(nic);
    }
    // Fetch from memory what that needs, in this order and with time between them.
    void fetch_nic(std::uint32_t nic) const { __builtin_prefetch(&nics_[nic]); }
    void fetch_turn(std::uint32_t nic) const {
        if (nics_[nic].sending != kNone) {
            flows_.fetch_sender(nics_[nic].sending);
        }
    }
    /// A flow's pacing lets it send again.
    void on_pace(std::uint32_t flow);

    // feedback.cpp: what comes back to senders
    void on_acknowledgement(const Packet& p);
    /// A report of loss: the gap of go-back-N, or a trimmed packet.
    void on_report(const Packet& p);
    void on_notification(std::uint32_t flow);
    void on_congestion_timer(std::uint32_t flow);
    void on_credit(const Packet& p);
    /// Whether the timeout that comes now finds a flow that has heard nothing.
    [[nodiscard]] bool silent(std::uint32_t flow) const;
    void on_timeout(std::uint32_t flow);
    /// One packet is known to have arrived: it is no longer in flight, nor to be sent again. Adds its bytes to `newly`.
    void acknowledge(Flow& flow, std::uint32_t sequence, double& newly);
    [[nodiscard]] double acknowledge_all(Flow& flow, const Packet& p);
    [[nodiscard]] std::int64_t timeout_of(const Flow& flow) const;

    [[nodiscard]] std::size_t memory() const {
        return nics_.capacity() * sizeof(Nic) + marks_.capacity() * sizeof(SendMarks);
    }

  private:
    void commit(std::uint32_t nic);
    void commit_by_class(std::uint32_t nic);
    using Bits = Flows::Bits;
    struct Nic {
        std::int64_t free_at = 0;       ///< ps, when the last data packet will have left
        std::int64_t next_message = 0;  ///< ps, when it can start another message
        std::int64_t last_message = 0;  ///< ps, when it starts the last one posted
        std::int64_t host_time = 0;     ///< ps by which the host has fed what was sent
        std::uint32_t sending = kNone;  ///< last of the ring of flows that may send; of any, with classes
        bool to_wake = false;           ///< its event is pending
    };
    struct QueuePair {
        std::uint32_t first = kNone;  ///< flow that is being sent; the others follow by `next_in_pair`
        std::uint32_t last = kNone;
        CongestionState congestion;  ///< as the last message left it
        bool used = false;
    };
    struct Probe {
        std::int64_t at = 0;    ///< ps, when the last one was sent
        std::uint32_t end = 0;  ///< packets before this had been sent then
    };
    struct Early {
        std::int64_t at = 0;  ///< ps, when it is sent again
        std::uint32_t sequence = 0;
    };
    struct Peers {                     ///< two NICs, one way
        std::vector<QueuePair> pairs;  ///< as many as have been used
        std::uint64_t turn = 0;
    };

    [[gnu::always_inline]] inline bool send_next(Nic& nic, std::uint32_t nic_id, std::uint32_t& ring);
    [[nodiscard]] std::int64_t posted_at(std::uint32_t nic, bool first);
    void pass_on(std::uint32_t flow);
    [[nodiscard]] QueuePair& pair_of(const Flow& flow) {
        return peers_[{flow.source, flow.destination}].pairs[flow.queue_pair];
    }
    void cancel_flow(std::uint32_t flow);
    void leave_plan(const Flow& flow);
    [[nodiscard]] std::uint32_t nic_on_rail(std::uint32_t own, std::uint32_t rail) const;
    [[nodiscard]] bool may_send(const Flow& flow) const;
    /// True when the flow may send another packet at once.
    [[gnu::always_inline]] inline bool send_packet(std::uint32_t flow);
    void adopt(Flow& flow);
    [[nodiscard]] std::uint64_t credit_wanted(const Flow& flow) const;
    void stop_speculating(Flow& flow);
    void request_credit(std::uint32_t flow);
    void limit(std::uint32_t flow, double rate);
    [[nodiscard]] double limit_of(const MessageState& message) const;
    /// What only some transports are told with an acknowledgement. `before`: packets before it were acknowledged.
    void hear_more(std::uint32_t flow, const Packet& p, std::uint32_t before, Acknowledged& ack);
    void tell_more(std::uint32_t flow, const Packet& p, const Acknowledged& ack);
    void clock(std::uint32_t flow, std::uint32_t entropy, std::int64_t packets);
    void leave_path(std::uint32_t flow, std::uint32_t sequence);
    [[nodiscard]] std::uint32_t choose_path(std::uint32_t flow, std::uint32_t sequence);
    [[nodiscard]] std::int64_t wait_of_operation(const Flow& flow) const;
    void hold_back(std::uint32_t flow);
    void send_again(std::uint32_t flow);
    [[nodiscard]] bool probes(const Flow& flow) const;
    void probe(std::uint32_t flow);
    void judge_gaps(std::uint32_t flow);
    void judge_late(std::uint32_t flow, std::int64_t sent);
    void arm_congestion(std::uint32_t flow);
    void touch_deadline(std::uint32_t flow);
    void lose(std::uint32_t flow, std::uint32_t sequence);
    /// What the transport is told of `bytes` that are lost and no longer in flight.
    [[nodiscard]] Lost lost(const Flow& flow, std::int64_t bytes) const;

    const Setup& setup_;
    const Border& border_;
    Clock& clock_;
    Slab& slab_;
    Flows& flows_;
    Messages& messages_;
    Ports& ports_;
    const Transport& transport_;
    PathChooser& chooser_;
    std::function<void(std::uint32_t, bool)> tell_;
    HugeVector<Nic> nics_;
    std::vector<std::uint32_t> rings_;  ///< with classes: of those of the first NIC, of the second...; as Nic::sending
    Turns turns_;
    std::vector<Ended> ended_;
    std::vector<SendMarks> marks_;                                    ///< by flow, where time proves losses
    UnderWay under_way_;                                              ///< where flows have a window for each path
    std::vector<Probe> probes_;                                       ///< by flow, where flows probe
    std::vector<std::vector<Early>> early_;                           ///< by flow, where operations synchronise
    std::map<std::pair<std::uint32_t, std::uint32_t>, Peers> peers_;  ///< by source, destination
};

}  // namespace orrery::network::packet
