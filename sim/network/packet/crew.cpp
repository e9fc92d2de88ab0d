#include "sim/network/packet/crew.hpp"

#include "sim/base/error.hpp"
#include "sim/base/processors.hpp"

#include <algorithm>

namespace orrery::network::packet {

namespace {

constexpr std::uint64_t kWatchInterval = 1U << 20;  // events
constexpr int kSpins = 128;                         // before a thread lets others run
constexpr int kYields = 4096;                       // before it sleeps
constexpr std::int64_t kFewSteps = 3;               // latencies, are not worth waking others
constexpr std::int64_t kRound = 16;                 // latencies

void pause_a_little() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

// Waits until `value` is no longer `old`. Where threads are more than processors, the one that is waited for must run.
void wait_for_change(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
    for (int i = 0; i < kSpins; ++i) {
        if (value.load(std::memory_order_acquire) != old) {
            return;
        }
        pause_a_little();
    }
    for (int i = 0; i < kYields; ++i) {
        if (value.load(std::memory_order_acquire) != old) {
            return;
        }
        std::this_thread::yield();
    }
    value.wait(old, std::memory_order_acquire);
}

}  // namespace

Crew::Crew(const Setup& setup, Team& parts, const Parts& division, Watcher& watcher)
    : setup_(setup),
      parts_(parts),
      lookahead_(division.lookahead),
      watcher_(watcher),
      told_(parts.size()),
      progress_(parts.size()),
      failures_(parts.size()),
      watch_next_(kWatchInterval) {
    // Packets of one flow come a full packet's time apart at a NIC's rate, but for its last one, which may be short.
    ORRERY_ASSERT(parts.size() > 1 && lookahead_ > 0);
    const std::int64_t apart = std::max<std::int64_t>(1, setup.links[1].full_time);
    for (const std::unique_ptr<Partition>& part : parts_) {
        part->flows.close_at = static_cast<std::uint32_t>(std::min<std::int64_t>(lookahead_ / apart + 2, kNone - 1));
    }
}

Crew::~Crew() {
    over_ = true;
    ++started_;
    started_.notify_all();
    for (std::thread& thread : threads_) {
        thread.join();
    }
}

std::int64_t Crew::next_time() const {
    std::int64_t next = Wheel::kNever;
    for (const std::unique_ptr<Partition>& part : parts_) {
        next = std::min(next, part->clock.wheel.next_time());
    }
    return next;
}

std::int64_t Crew::first(std::uint32_t turn) const {
    std::int64_t out = Wheel::kNever;
    for (const std::array<Told, 2>& told : told_) {
        out = std::min(out, told[turn].next);
    }
    return out;
}

bool Crew::any(std::uint32_t turn, bool Told::*what) const {
    return std::any_of(told_.begin(), told_.end(), [&](const std::array<Told, 2>& told) { return told[turn].*what; });
}

// Of all parts by one thread; not included. Limits are below Wheel::kNever.
std::int64_t Crew::end_of_step(std::int64_t begin) const {
    return begin > limit_ - lookahead_ ? limit_ + 1 : begin + lookahead_;
}

void Crew::tell(std::uint32_t index, std::uint32_t turn) {
    Partition& part = *parts_[index];
    ORRERY_ASSERT(ahead_ || part.nics.ended().empty());
    Told& told = told_[index][turn];
    told.next = std::min(part.clock.wheel.next_time(), part.border.earliest());
    told.events = part.events;
    told.delivered = part.flows.counts.delivered;
    told.payload = part.flows.counts.payload;
    // Where messages end with an acknowledgement, one of those may tell of many packets.
    told.close = part.flows.close > 0 || setup_.spec.nic.done_at_sender;
    told.failed = failures_[index] != nullptr;
}

// A part's events before `end`.
void Crew::step(std::uint32_t index, std::int64_t end) {
    try {
        if (failures_[index] == nullptr) {
            parts_[index]->run(end - 1, false);
        }
    } catch (...) {
        failures_[index] = std::current_exception();
    }
}

// A part ends a stride: it sends what leaves it before `end`, and the others may go on.
void Crew::leave(std::uint32_t index, std::int64_t end) {
    Partition& part = *parts_[index];
    try {
        if (failures_[index] == nullptr) {
            part.ports.close(end);
        }
    } catch (...) {
        failures_[index] = std::current_exception();
    }
    std::atomic<std::uint32_t>& ended = progress_[index].ended;
    const std::uint32_t strides = ended.load(std::memory_order_relaxed) + 1;
    part.border.fill(strides);
    ended.store(strides, std::memory_order_release);
    ended.notify_all();
}

// A part takes what others sent to it in so many strides. Precondition: they have ended them.
void Crew::enter(std::uint32_t index, std::uint32_t strides) {
    try {
        for (std::uint32_t& stride = progress_[index].emptied; stride != strides; ++stride) {
            for (std::uint32_t from = 0; from < parts_.size(); ++from) {
                if (from != index) {
                    parts_[index]->ports.receive(parts_[from]->border.box(index, stride));
                }
            }
        }
    } catch (...) {
        failures_[index] = std::current_exception();
    }
}

// A stride of all parts by this thread alone.
void Crew::in_turn(std::int64_t end) {
    for (std::uint32_t part = 0; part < parts_.size(); ++part) {
        parts_[part]->border.note_from(end);
        step(part, end);
        leave(part, end);
    }
    meet_alone();
}

// What all parts have sent is with the others, and they are told of it.
void Crew::meet_alone() {
    turn_ ^= 1U;
    for (std::uint32_t part = 0; part < parts_.size(); ++part) {
        tell(part, turn_);
    }
    for (std::uint32_t part = 0; part < parts_.size(); ++part) {
        enter(part, progress_[part].ended.load(std::memory_order_relaxed));
    }
}

// A stride of all parts in the order of time, to the end of the first instant at which messages complete; true: some have.
bool Crew::one_by_one(std::int64_t end) {
    bool completed = false;
    for (const std::unique_ptr<Partition>& part : parts_) {
        part->border.note_from(0);
    }
    for (;;) {
        // The part with the first event goes on to the first event of the others.
        std::uint32_t first = 0;
        std::int64_t at = Wheel::kNever;
        std::int64_t then = end - 1;
        for (std::uint32_t part = 0; part < parts_.size(); ++part) {
            const std::int64_t next = parts_[part]->clock.wheel.next_time();
            if (next < at) {
                then = std::min(then, at);
                at = next;
                first = part;
            } else {
                then = std::min(then, next);
            }
        }
        if (at >= end) {
            break;
        }
        parts_[first]->run(then, true);
        if (hand_over()) {
            completed = true;
            end = std::min(end, parts_[first]->clock.now + 1);
        }
    }
    for (std::uint32_t part = 0; part < parts_.size(); ++part) {
        leave(part, end);
    }
    meet_alone();
    return completed;
}

// Tells the messages of flows that have ended, in the order of time; true: a message has completed.
bool Crew::hand_over() {
    std::vector<Ended> ended;
    for (const std::unique_ptr<Partition>& part : parts_) {
        ended.insert(ended.end(), part->nics.ended().begin(), part->nics.ended().end());
        part->nics.ended().clear();
    }
    std::stable_sort(ended.begin(), ended.end(), [](const Ended& a, const Ended& b) { return a.at < b.at; });
    Messages& messages = parts_[0]->messages;
    for (const Ended& one : ended) {
        messages.finish_part(one.message, one.at);
    }
    return messages.any_completed();
}

// The thread of a part: rounds until the limit, or until parts cannot go on side by side. All threads decide alike.
void Crew::together(std::uint32_t part) {
    std::uint32_t turn = turn_;
    const std::uint32_t before = progress_[part].ended.load(std::memory_order_relaxed);
    for (;;) {
        const std::int64_t begin = first(turn);
        if (begin > limit_ || any(turn, &Told::failed) || (!ahead_ && any(turn, &Told::close))) {
            break;
        }
        spread(part);
        round(part, begin);
        turn ^= 1U;
        tell(part, turn);
        meet();
        enter(part, progress_[part].ended.load(std::memory_order_relaxed));
        if (part == 0) {
            look(turn);
        }
    }
    // Nobody goes on to what comes after this before all have seen it.
    meet();
    if (part == 0) {
        turn_ = turn;
        side_by_side_ += progress_[part].ended.load(std::memory_order_relaxed) - before;
    }
}

// A thread leaves a processor that the thread of a part before its own is on.
void Crew::spread(std::uint32_t part) {
    std::atomic<int>& own = progress_[part].processor;
    own.store(present_processor(), std::memory_order_relaxed);
    std::vector<int> taken;
    bool shared = false;
    for (std::uint32_t other = 0; other < parts_.size(); ++other) {
        const int processor = progress_[other].processor.load(std::memory_order_relaxed);
        if (other != part && processor >= 0) {
            taken.push_back(processor);
            shared = shared || (other < part && processor == own.load(std::memory_order_relaxed));
        }
    }
    if (shared) {
        move_to_other_processor(taken);
        own.store(present_processor(), std::memory_order_relaxed);
    }
}

// Strides of a part from `begin` on. Where messages that end may bring others, one of a whole latency.
void Crew::round(std::uint32_t part, std::int64_t begin) {
    const std::int64_t ahead = ahead_ ? std::min<std::int64_t>(Border::kAhead, lookahead_) : 1;
    const std::int64_t stride = lookahead_ / ahead;
    ORRERY_ASSERT(stride > 0 && begin <= limit_);
    const std::int64_t strides = ahead_ ? std::min(kRound * ahead, (limit_ - begin) / stride + 1) : 1;
    const std::uint32_t before = progress_[part].ended.load(std::memory_order_relaxed);
    const auto end = [&](std::int64_t i) {
        return begin > limit_ - stride * (i + 1) ? limit_ + 1 : begin + stride * (i + 1);
    };
    parts_[part]->border.note_from(end(strides - 1));
    for (std::int64_t i = 0; i < strides; ++i) {
        if (i >= ahead) {
            const std::uint32_t needed = before + static_cast<std::uint32_t>(i - ahead) + 1;
            wait_for_others(part, needed);
            enter(part, needed);
        }
        step(part, end(i));
        leave(part, end(i));
    }
}

// Waits until all others have ended so many strides.
void Crew::wait_for_others(std::uint32_t part, std::uint32_t strides) const {
    for (std::uint32_t other = 0; other < parts_.size(); ++other) {
        const std::atomic<std::uint32_t>& ended = progress_[other].ended;
        for (std::uint32_t now = ended.load(std::memory_order_acquire);
             other != part && static_cast<std::int32_t>(now - strides) < 0;
             now = ended.load(std::memory_order_acquire)) {
            wait_for_change(ended, now);
        }
    }
}

void Crew::meet() {
    const std::uint32_t met = met_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == parts_.size()) {
        arrived_.store(0, std::memory_order_relaxed);
        met_.store(met + 1, std::memory_order_release);
        met_.notify_all();
    } else {
        wait_for_change(met_, met);
    }
}

// The other threads begin.
void Crew::start() {
    ++started_;
    started_.notify_all();
    for (auto part = static_cast<std::uint32_t>(threads_.size() + 1); part < parts_.size(); ++part) {
        threads_.emplace_back([this, part] { work(part); });
    }
}

void Crew::work(std::uint32_t part) {
    for (std::uint32_t seen = 0;; ++seen) {
        wait_for_change(started_, seen);
        if (over_) {
            return;
        }
        together(part);
    }
}

void Crew::look(std::uint32_t turn) {
    std::uint64_t events = 0;
    std::uint64_t delivered = 0;
    double payload = 0;
    for (const std::array<Told, 2>& told : told_) {
        events += told[turn].events;
        delivered += told[turn].delivered;
        payload += told[turn].payload;
    }
    if (events >= watch_next_) {
        watch_next_ = events + kWatchInterval;
        try {
            watcher_.watch(delivered, payload, parts_[0]->clock.now);
        } catch (...) {
            failures_[0] = std::current_exception();
        }
    }
}

void Crew::rethrow() {
    std::exception_ptr failure;
    std::int64_t at = Wheel::kNever;
    for (std::uint32_t part = 0; part < parts_.size(); ++part) {
        if (failures_[part] != nullptr && parts_[part]->clock.now < at) {
            at = parts_[part]->clock.now;
            failure = failures_[part];
        }
    }
    if (failure != nullptr) {
        std::rethrow_exception(failure);
    }
}

void Crew::run(std::int64_t limit, bool ahead) {
    limit_ = limit;
    ahead_ = ahead;
    for (std::uint32_t part = 0; part < parts_.size(); ++part) {
        parts_[part]->border.note_from(0);
        tell(part, turn_);
    }
    for (;;) {
        const std::int64_t begin = first(turn_);
        if (begin > limit_) {
            break;
        }
        if (!ahead && any(turn_, &Told::close)) {
            if (one_by_one(end_of_step(begin))) {
                break;
            }
        } else if ((limit - begin) / kFewSteps < lookahead_) {
            in_turn(end_of_step(begin));
        } else {
            start();
            together(0);
        }
        look(turn_);
        rethrow();
    }
    (void)hand_over();
}

}  // namespace orrery::network::packet
