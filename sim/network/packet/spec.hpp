#pragma once
// What can be said about a network that is simulated packet by packet: the packet part of a scenario's `network` section.

#include "sim/network/path/path.hpp"
#include "sim/network/transport/transport.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace orrery::network {

enum class Recovery { automatic, go_back_n, selective };
/// What a port does with data once it has been paused for too long.
enum class StormAction { none, drop, forward };

struct TransportSpec {
    PolicyChoice<packet::Transport> policy{packet::transport_table(), "multipath"};
    Recovery recovery = Recovery::automatic;  ///< automatic: go-back-N where the transport says so, else selective
    double window = 0;                        ///< bytes in flight; 0: 1.5 bandwidth-delay products of the longest path
    double timeout = 0;  ///< s without progress until packets count as lost; 0: 8 unloaded round trips of the path
    std::int64_t retries = 16;  ///< timeouts in a row after which a flow has failed
    std::int64_t reorder = 0;   ///< packets acknowledged beyond a gap that prove a loss; 0: 3 on one path, else by time
    double reorder_time = 0;    ///< s on sprayed paths; 0: a smoothed round trip, and not where packets are trimmed

    [[nodiscard]] packet::TransportNeeds needs() const { return policy.make()->needs(); }
};
void describe(Fields& fields, TransportSpec& spec);

struct PathSpec {
    PolicyChoice<packet::PathChooser> policy{packet::path_table(), "spray"};
    std::int64_t subflows = 1;  ///< parts of every message, each with its own path and window

    [[nodiscard]] packet::PathNeeds needs() const { return policy.make()->needs(); }
};

struct QueueSpec {
    double size = 0;              ///< bytes an output port; 0: without limit
    double mark_low = 0;          ///< bytes; no marks below
    double mark_high = 0;         ///< bytes; all marked above; 0: no marks at all
    double mark_probability = 1;  ///< just below mark_high, linear between
    bool trim = false;            ///< cut what does not fit down to its header and send that first
    double shared = 0;            ///< bytes of a switch that its ports share; 0: each has its own
    double alpha = 1;             ///< shared: a port may hold alpha times what is free
    bool pfc = false;             ///< pause the sender of the link instead of dropping
    double pause_at = 0;          ///< bytes from one link; 0: two bandwidth-delay products of the link
    double resume_at = 0;         ///< bytes; 0: half of pause_at
    std::int64_t reduction_slots =
        0;                ///< packets of one all-reduce that a switch can hold sums for; 0: as many as needed
    double headroom = 0;  ///< bytes above pause_at that a link may still fill; 0: as much as can be under way
    StormAction watchdog = StormAction::none;
    double detection = 0.2;    ///< s of pause without a break that are a storm
    double restoration = 0.2;  ///< s without pause that end it
    double credits = 0;        ///< bytes that the far end of a link has room for, in each lane; 0: no credits
    bool dateline = false;     ///< a second lane of each class from the last place of a ring on
};

/// A class of traffic: its share of every port, and a queue with settings of its own.
struct ClassSpec {
    std::string name;
    bool strict = false;  ///< before all classes after it
    double weight = 1;    ///< its share among those that are not strict
    double size = 0;      ///< these as in QueueSpec
    double mark_low = 0;
    double mark_high = 0;
    bool pfc = false;
    double pause_at = 0;
    double resume_at = 0;
    double headroom = 0;
    double alpha = 1;
    bool collectives = false;  ///< carries them, unless a workload names a class
    bool sends = false;

    ClassSpec() = default;
    explicit ClassSpec(const QueueSpec& q)
        : size(q.size),
          mark_low(q.mark_low),
          mark_high(q.mark_high),
          pfc(q.pfc),
          pause_at(q.pause_at),
          resume_at(q.resume_at),
          headroom(q.headroom),
          alpha(q.alpha) {}
};

struct NicSpec {
    double doorbell = 0;                 ///< s from posting a message to its first packet
    double dma = 0;                      ///< s of reading host memory before the first packet
    double message_rate = 0;             ///< messages a second that a NIC can start; 0: no limit
    double host_rate = 0;                ///< B/s that a host can feed to all flows of a NIC together; 0: no limit
    double write_rate = 0;               ///< B/s at which a NIC writes to its host what has come; 0: as it comes
    double buffer = 0;                   ///< bytes that may wait for that; 0: any number
    std::int64_t rails = 1;              ///< NICs of a node that a message is spread over, from that of its GPU on
    std::int64_t queue_pairs = 0;        ///< between two NICs, each with messages in order; 0: one a message
    double host_memory = 0;              ///< B/s of a node, shared by what its NICs read and write; 0: no limit
    std::int64_t acknowledge_every = 0;  ///< packets; 0: 16 KiB for multipath and infiniband, else each
    bool done_at_sender = false;         ///< a message ends with its last acknowledgement instead of its last byte
};

struct PacketSpec {
    double mtu = 4096;   ///< payload bytes of a full packet
    double header = 64;  ///< bytes added to each packet; the size of an acknowledgement
    PathSpec paths;
    TransportSpec transport;
    QueueSpec queues;
    std::vector<ClassSpec> classes;  ///< none: one, as the queues say
    NicSpec nic;
    double bit_error_rate = 0;
    double reroute_delay = 1e-3;  ///< s from a change of a link to its effect on routing
    bool failover = false;        ///< switches leave dead links of their own out at once, where others lead on
    bool detour = false;          ///< switches send round a dead link of their own until routing knows of it
    double queue_samples = 0;     ///< s between records of all queues; 0: none
    double flow_samples = 0;      ///< s between records of flows; 0: none
    std::string sampled_flows;    ///< numbers of messages, "0-7, 32"; empty: all
    bool count_flows = false;     ///< keep what becomes of each message's packets; of no effect on them
    double skip_error = 0;        ///< relative, of rates that a steady stretch is skipped at; 0: nothing is skipped
    std::string link_events;  ///< file of events: time_s, link, event (down, up, rate, errors, pause, resume), factor
};

/// What of a workload a class can be told to carry, beside what names its class itself.
struct CarriedParts {
    bool collectives = true;
    bool sends = true;
};
/// Names the packet fields of the `network` section (not `paths`, which other levels share).
void describe(Fields& fields, PacketSpec& spec, const CarriedParts& parts = {});
void describe(Fields& fields, PathSpec& spec);
/// What is recorded of single messages, where there are any.
void describe_flow_samples(Fields& fields, PacketSpec& spec);

/// A set of numbers, as "0-7, 32" says it.
class NumberRanges {
  public:
    /// Empty text: all numbers. Nothing where the text is no such set.
    [[nodiscard]] static std::optional<NumberRanges> read(const std::string& text);
    [[nodiscard]] bool has(std::uint64_t number) const;

  private:
    std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges_;  ///< first and last; none: all numbers
};
/// What single fields cannot see. Empty: fine. One line an error.
[[nodiscard]] std::vector<std::string> problems_of(const PacketSpec& spec);
/// What a reader of the results should know of what is unusual and allowed, a line each.
[[nodiscard]] std::vector<std::string> notes_of(const PacketSpec& spec);
/// Whether switches pause their links, or give them credits: what may stand still for ever.
[[nodiscard]] bool waits_for_room(const PacketSpec& spec);
/// Whether they pause any.
[[nodiscard]] bool pauses(const PacketSpec& spec);

}  // namespace orrery::network
