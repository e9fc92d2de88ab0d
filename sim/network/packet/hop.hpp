#pragma once
// What every hop of a packet does at a port, in line: it is taken from a link, and queued, or put onto the next link.
//
// How it is fast: the loop over events (partition.cpp) has its own copy of all this for each way in which ports decide on
// departures, and what is rare is in port.cpp, out of line.

#include "sim/network/packet/port.hpp"

#include <algorithm>
#include <cstdint>

namespace orrery::network::packet {

// Puts a packet that leaves at `busy_until` onto the link.
void Ports::launch(std::uint32_t port, Port& out, const Rate& rate, std::uint32_t packet) {
    constexpr std::int64_t kEndOfTime = std::int64_t{1} << 62;  // ps: times from there on have this bit
    const std::int64_t arrival = out.busy_until + rate.link.latency;
    if ((arrival & kEndOfTime) != 0) [[unlikely]] {
        overflow();
    }
    if (rate.crosses && cross(port, out, packet, arrival)) [[unlikely]] {
        return;
    }
    if (out.link.empty()) [[unlikely]] {
        expect_arrival(port, arrival);
    }
    rings_.push(out.link, {arrival, packet, 0});
}

// Counts a packet that is sent after it has waited, and returns how long its sending takes. Only data fills a packet, and all
// else is a header long.
std::int64_t Ports::count(std::uint32_t port, Port& out, const Rate& rate, bool data, std::uint32_t size,
                          std::int64_t waited) {
    if (size == full_) [[likely]] {
        ++out.packets;
        out.waited += static_cast<double>(waited);
        return rate.link.full_time;
    }
    return data ? count_short(port, size, waited) : count_control(port, rate, waited);
}

// A served port sends a packet, from `at` on.
void Ports::transmit(std::uint32_t port, Port& out, const Queued& waited, bool data, std::int64_t at) {
    const Rate& rate = rates_[out.rates];
    if (data && telemetry_) [[unlikely]] {
        tell_load(port, out, waited.packet, at);
    }
    out.busy_until = at + count(port, out, rate, data, waited.size, at - waited.time);
    launch(port, out, rate, waited.packet);
}

void Ports::forward(std::uint32_t port, std::uint32_t packet, Packet& p, std::int64_t now) {
    Port& out = ports_[port];
    const Rate& rate = rates_[out.rates];
    const std::int64_t backlog = std::max<std::int64_t>(0, out.busy_until - now);
    if (backlog > rate.roomy && !has_room(out, p, backlog)) [[unlikely]] {
        lose(port, packet);
        return;
    }
    if (backlog > out.max_backlog) {
        out.max_backlog = backlog;
    }
    const bool data = p.kind == PacketKind::data;
    if (backlog >= rate.limits.mark_low && data &&
        mark(port, p, backlog, rate.limits.mark_low, rate.limits.mark_high)) {
        set_mark(port, p);
    }
    out.busy_until = now + backlog + count(port, out, rate, data, p.size, backlog);
    launch(port, out, rate, packet);
}

std::uint32_t Ports::take_arrival(std::uint32_t port) {
    Port& in = ports_[port];
    const std::uint32_t packet = rings_.pop(in.link).packet;
    if (!in.link.empty()) [[likely]] {
        clock_.wheel.insert(port, rings_.front(in.link).time);
    }
    return packet;
}

// Whether a data packet may wait at a port of its switch.
template <bool kLate>
bool Ports::fits(std::uint32_t port, const Port& out, const ServedPort& queue, const Packet& p) const {
    if (!kLate && pauses_) {
        return served_[p.ingress].ingress_bytes + p.size <= link_room_;
    }
    // What is left of the packet that is being sent is at most all of it: most often no more needs to be known.
    if ((kLate || !shares_) && out.rates < kPortKinds && queue.data_bytes + full_ + 1 + p.size <= size_) [[likely]] {
        return true;
    }
    return fits_exactly(port, p);
}

// Takes a data packet into the memory of a switch, marks it or cuts it down to its header; false: neither has room.
template <bool kLate>
bool Ports::admit(std::uint32_t port, Port& out, ServedPort& queue, Packet& p, std::int64_t now) {
    if (!kLate && queue.discards) [[unlikely]] {
        ++discarded_;
        return false;
    }
    if (!fits<kLate>(port, out, queue, p)) [[unlikely]] {
        return trim(port, p);
    }
    const Rate& rate = rates_[out.rates];
    const std::int64_t backlog = send_time(rate.link.ps_per_byte, static_cast<std::uint32_t>(queue.data_bytes)) +
                                 std::max<std::int64_t>(0, out.busy_until - now);
    out.max_backlog = std::max(out.max_backlog, backlog);
    const std::int64_t nominal = out.rates < kPortKinds ? backlog : at_nominal_rate(out, backlog);
    if (nominal >= rate.limits.mark_low && mark(port, p, nominal, rate.limits.mark_low, rate.limits.mark_high)) {
        set_mark(port, p);
    }
    return true;
}

// A packet that waits counts against the memory of its switch and the link that it came over.
void Ports::hold(std::uint32_t port, const Packet& p) {
    if (shares_) {
        switch_used_[switch_of(port)] += p.size;
    }
    ServedPort& in = served_[p.ingress];
    in.ingress_bytes += p.size;
    if (pauses_ && in.ingress_bytes > pause_above_ && !in.pause_sent) [[unlikely]] {
        in.pause_sent = true;
        pause(p.ingress, Timer::pause);
    }
}

// A packet that waited has left the switch's memory: gives back what it held, and lets its link send again.
void Ports::leave_switch(std::uint32_t port, std::uint32_t packet) {
    const Packet& p = slab_[packet];
    if (p.ingress == kNone) {
        return;
    }
    if (shares_) {
        switch_used_[switch_of(port)] -= p.size;
    }
    ServedPort& in = served_[p.ingress];
    in.ingress_bytes -= p.size;
    if (in.pause_sent && in.ingress_bytes <= resume_at_) [[unlikely]] {
        in.pause_sent = false;
        pause(p.ingress, Timer::resume);
    }
}

// Whether a port has something that may leave. Those that decide late never pause.
template <bool kLate>
bool Ports::has_waiting(const Port& out, const ServedPort& queue) {
    return !queue.control.empty() || (!queue.data.empty() && (kLate || !out.paused));
}

// Precondition: the port is free at this time, and something waits that may leave.
template <bool kLate>
void Ports::send_waiting(std::uint32_t port, Port& out, ServedPort& queue, std::int64_t at) {
    if (queue.control.empty()) [[likely]] {
        const Queued next = rings_.pop(queue.data);
        queue.control_run = 0;
        queue.data_bytes -= next.size;
        if (!kLate) {
            leave_switch(port, next.packet);
        }
        transmit(port, out, next, true, at);
        return;
    }
    // Ten control packets to one of data where both wait, or headers of trimmed packets could crowd out all data: Handley et
    // al., "Re-architecting datacenter networks and stacks for low latency and high performance", SIGCOMM 2017.
    const bool data_waits = !queue.data.empty() && !out.paused;
    const bool control = !queue.control.empty() && (!data_waits || queue.control_run < kControlRun);
    const Queued next = rings_.pop(control ? queue.control : queue.data);
    if (control) {
        ++queue.control_run;
        queue.control_bytes -= next.size;
    } else {
        queue.control_run = 0;
        queue.data_bytes -= next.size;
        if (!kLate) {
            leave_switch(port, next.packet);
        }
    }
    transmit(port, out, next, !control, at);
}

// Lets a port that decides late send what left it before Clock::before.
void Ports::catch_up(std::uint32_t port, Port& out, ServedPort& queue, std::int64_t before) {
    while (out.busy_until < before && has_waiting<true>(out, queue)) {
        send_waiting<true>(port, out, queue, out.busy_until);
    }
}

bool Ports::take_late_arrival(std::uint32_t port, std::int64_t now, std::uint32_t& packet) {
    Port& in = ports_[port];
    ServedPort& queue = served_[port];
    if (in.link.empty()) [[unlikely]] {
        packet = take_first_arrival(port);
        return packet != kNone;
    }
    catch_up(port, in, queue, now);
    if (rings_.front(in.link).time > now) [[unlikely]] {
        queue.armed = false;
        arm(port);
        return false;
    }
    packet = rings_.pop(in.link).packet;
    if (!in.link.empty()) [[likely]] {
        clock_.wheel.insert(port, rings_.front(in.link).time);
    } else {
        queue.armed = false;
        arm(port);
    }
    return true;
}

// A served port that does not decide late has an event when it may send what waits.
void Ports::arm_in_turn(std::uint32_t port, const Port& out, ServedPort& queue, std::int64_t now) {
    if (has_waiting<false>(out, queue)) {
        queue.armed = true;
        clock_.wheel.insert(setup_.ports() + setup_.nics + port, std::max(now, out.busy_until));
    }
}

void Ports::serve_in_turn(std::uint32_t port, std::int64_t now) {
    Port& out = ports_[port];
    ServedPort& queue = served_[port];
    queue.armed = false;
    if (out.busy_until <= now && has_waiting<false>(out, queue)) {
        send_waiting<false>(port, out, queue, now);
    }
    arm_in_turn(port, out, queue, now);
}

template <bool kLate>
void Ports::enqueue(std::uint32_t port, std::uint32_t packet, Packet& p, std::int64_t now, std::int64_t before) {
    Port& out = ports_[port];
    ServedPort& queue = served_[port];
    if (kLate) {
        catch_up(port, out, queue, before);
    }
    if (out.down) [[unlikely]] {
        lose(port, packet);
        return;
    }
    const bool is_data = p.kind == PacketKind::data;
    if (out.busy_until <= now && queue.control.empty() && (!is_data || (queue.data.empty() && !out.paused))) {
        transmit(port, out, {now, packet, p.size}, is_data, now);
        return;
    }
    // Sums wait in the slots of their switch, not in its packet memory.
    if (is_data && p.ingress != kNone && !admit<kLate>(port, out, queue, p, now)) [[unlikely]] {
        lose(port, packet);
        return;
    }
    const std::uint32_t size = p.size;
    if (p.kind != PacketKind::data) {
        rings_.push(queue.control, {now, packet, size});
        queue.control_bytes += size;
    } else {
        rings_.push(queue.data, {now, packet, size});
        queue.data_bytes += size;
        if (!kLate && p.ingress != kNone) {
            hold(port, p);
        }
    }
    if (!queue.armed) {
        if (kLate) {
            arm(port);
        } else {
            arm_in_turn(port, out, queue, now);
        }
    }
    if (divided_ && rates_[out.rates].crosses && !queue.to_settle) [[unlikely]] {
        queue.to_settle = true;
        to_settle_.push_back(port);
    }
}

}  // namespace orrery::network::packet
