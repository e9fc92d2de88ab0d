// The messages of a run one by one, as a table.

#include "tools/driver/kinds/messages.hpp"
#include "tools/explain/explain.hpp"
#include "workloads/collective/lone_message.hpp"

#include <algorithm>
#include <limits>
#include <memory>

namespace orrery::explain {

namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr double kRoundedTime = 1e-9;  // s, of times that are sums

std::vector<Table::Column> columns(bool packets) {
    std::vector<Table::Column> out = {{"flow"},      {"source"},    {"destination"}, {"bytes"},      {"start_s", 12},
                                      {"end_s", 12}, {"fct_s", 12}, {"alone_s", 12}, {"slowdown", 4}};
    if (packets) {
        for (const char* name : {"paths", "packets_sent", "retransmissions", "needless_retransmissions", "trims",
                                 "drops", "ecn_marks", "timeouts"}) {
            out.push_back({name});
        }
    }
    return out;
}

}  // namespace

Table flow_table(const Scenario& scenario, const RunOutput& run) {
    struct State {
        explicit State(const Scenario& s) : fabric(fabric_of(s)), placement(fabric), options(message_options(s)) {}
        Fabric fabric;
        Placement placement;
        MessageRunOptions options;
        std::vector<const FlowCounts*> packets;  ///< by message; null: it was not sent as packets
    };
    const MessageRecord& record = *run.messages;
    const auto state = std::make_shared<State>(scenario);
    ORRERY_ASSERT(record.starts.size() == record.completions.size());
    ORRERY_ASSERT(record.schedule.messages.size() == record.completions.size());
    const bool packets = scenario.network.by_packet();
    state->packets.resize(record.completions.size());
    for (const FlowCounts& counts : run.packets.flows) {
        state->packets.at(counts.token) = &counts;
    }
    Table out;
    out.name = "flows";
    out.columns = columns(packets);
    out.rows = record.completions.size();
    out.fill = [state, &record, packets](std::size_t row, std::span<double> cells) {
        ORRERY_ASSERT(row < record.completions.size());
        const Message& message = record.schedule.messages[row];
        const double start = record.starts[row] + message.delay;
        const double seconds = record.completions[row] - start;
        ORRERY_ASSERT(seconds >= -kRoundedTime);  // it ends after it starts
        LoneMessages lone(state->fabric, state->placement, record.schedule, state->options);
        const double alone = lone.seconds(message);
        const double known[] = {static_cast<double>(row),
                                static_cast<double>(message.from),
                                static_cast<double>(message.to),
                                message.bytes,
                                start,
                                record.completions[row],
                                seconds,
                                alone,
                                slowdown_of(seconds, alone)};
        ORRERY_ASSERT(cells.size() >= std::size(known));
        std::copy(std::begin(known), std::end(known), cells.begin());
        if (!packets) {
            return;
        }
        const std::span<double> counted = cells.subspan(std::size(known));
        std::fill(counted.begin(), counted.end(), kUnknown);
        if (const FlowCounts* c = state->packets[row]; c != nullptr) {
            const std::uint64_t values[] = {c->paths, c->sent,  c->retransmissions, c->needless,
                                            c->trims, c->drops, c->marks,           c->timeouts};
            ORRERY_ASSERT(counted.size() == std::size(values));
            ORRERY_ASSERT(c->needless <= c->retransmissions && c->retransmissions <= c->sent);
            std::transform(std::begin(values), std::end(values), counted.begin(),
                           [](std::uint64_t value) { return static_cast<double>(value); });
            // Contributions that switches sum have no way of their own.
            counted[0] = message.group == Message::kNoGroup ? counted[0] : kUnknown;
        }
    };
    return out;
}

}  // namespace orrery::explain
