#include "sim/network/packet/watchdog.hpp"

#include "sim/base/error.hpp"
#include "sim/base/time.hpp"

namespace orrery::network::packet {

Watchdog::Watchdog(const Setup& setup, Clock& clock, Ports& ports)
    : setup_(setup),
      clock_(clock),
      ports_(ports),
      detection_(SimTime::from_seconds(setup.spec.queues.detection).ps()),
      restoration_(SimTime::from_seconds(setup.spec.queues.restoration).ps()),
      records_(setup.spec.queues.watchdog == StormAction::none ? 0 : std::size_t{setup.ports()} * setup.lanes) {}

bool Watchdog::set_paused(std::uint32_t lane, bool paused) {
    if (records_.empty() || ports_[lane / setup_.lanes].kind == PortKind::nic_out) {
        return ports_.set_paused(lane, paused) && !paused;
    }
    Record& record = records_[lane];
    if (record.asked == paused) {
        return false;
    }
    record.asked = paused;
    record.since = clock_.now;
    arm(lane, record);
    return !record.storming && ports_.set_paused(lane, paused) && !paused;
}

// A pause may turn into a storm, and the end of one into the end of a storm.
void Watchdog::arm(std::uint32_t lane, Record& record) {
    if (!record.armed && record.asked != record.storming) {
        record.armed = true;
        clock_.schedule(Timer::watchdog, lane, record.since + (record.storming ? restoration_ : detection_));
    }
}

void Watchdog::look(std::uint32_t lane) {
    Record& record = records_[lane];
    ORRERY_ASSERT(record.armed);
    record.armed = false;
    const std::int64_t time = record.storming ? restoration_ : detection_;
    if (record.asked == record.storming || clock_.now - record.since < time) {
        arm(lane, record);
        return;
    }
    record.storming = !record.storming;
    storms_ += record.storming ? 1 : 0;
    const bool drops = setup_.spec.queues.watchdog == StormAction::drop;
    if (drops) {
        ports_.set_discarding(lane, record.storming);
    }
    // Of a port that drops nothing leaves: it stays paused.
    (void)ports_.set_paused(lane, drops ? record.storming : record.asked && !record.storming);
}

}  // namespace orrery::network::packet
