#include "workloads/training/programs/pass_program.hpp"

#include "sim/base/error.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace orrery::training {

double Price::total() const {
    double sum = 0;
    for (const double s : seconds) {
        sum += s;
    }
    return sum;
}

Price& Price::operator+=(const Price& other) {
    for (std::size_t i = 0; i < seconds.size(); ++i) {
        seconds[i] += other.seconds[i];
    }
    flops += other.flops;
    launches += other.launches;
    memory_bound += other.memory_bound;
    memory += other.memory;
    return *this;
}

Price operator*(Price price, double k) {
    for (double& s : price.seconds) {
        s *= k;
    }
    price.flops *= k;
    price.launches *= k;
    price.memory_bound *= k;
    price.memory *= k;
    return price;
}

namespace {

bool bound_by_memory(double memory) {
    return memory > 0.5;
}

}  // namespace

double speed_on(double units, double memory) {
    constexpr double kLeast = 0.1;  // of the units stays with the kernels
    const double left = std::max(kLeast, units);
    return bound_by_memory(memory) ? std::sqrt(left) : left;
}

const char* pass_stream_name(PassStream stream) {
    constexpr std::array<const char*, kPassStreams> kNames = {
        "kernels", "tensor-parallel communication", "context-parallel communication", "expert-parallel communication",
        "copies to and from the host"};
    return kNames[static_cast<std::size_t>(stream)];
}

PassProgram::Id PassProgram::add(const PassOperation& operation) {
    const auto id = static_cast<Id>(operations_.size());
    ORRERY_ASSERT(std::all_of(operation.after.begin(), operation.after.end(), [&](Id before) { return before < id; }));
    operations_.push_back(operation);
    last_[static_cast<std::size_t>(operation.stream)] = id;
    return id;
}

void PassProgram::append(const PassProgram& other, double share) {
    const auto first = static_cast<Id>(operations_.size());
    if (first > 0) {
        // A place on the compute stream at which the others have ended, but for exchanges of experts that nothing here waits for.
        add({"", Category::other, PassStream::compute, 0, 0, {last(PassStream::tensor), last(PassStream::context)}});
    }
    const Id join = first > 0 ? first : kNone;
    const Id offset = first > 0 ? first + 1 : 0;
    for (PassOperation operation : other.operations_) {
        for (Id& id : operation.after) {
            id = id == kNone ? kNone : id + offset;
        }
        if (operation.stream != PassStream::compute && operation.after[1] == kNone) {
            operation.after[1] = join;
        }
        operation.seconds *= share;
        operation.launches *= share;
        add(operation);
    }
    flops_ += share * other.flops_;
}

void PassProgram::book_kernels(Category category) {
    for (PassOperation& operation : operations_) {
        if (operation.stream == PassStream::compute) {
            operation.category = category;
        }
    }
}

// All streams advance together to the next end of an operation; kernels run at the share of units that is left to them, and all at
// their share of the memory.
std::vector<PlayedOperation> PassProgram::play() const {
    std::vector<PlayedOperation> out(operations_.size());
    std::array<std::vector<std::size_t>, kPassStreams> queues;
    for (std::size_t i = 0; i < operations_.size(); ++i) {
        queues[static_cast<std::size_t>(operations_[i].stream)].push_back(i);
    }
    std::vector<bool> done(operations_.size(), false);
    std::array<std::size_t, kPassStreams> next{};
    std::array<double, kPassStreams> left{};
    std::array<bool, kPassStreams> running{};
    double now = 0;
    for (std::size_t ended = 0; ended < operations_.size();) {
        double taken = 0;
        for (std::size_t s = 0; s < kPassStreams; ++s) {
            if (!running[s] && next[s] < queues[s].size()) {
                const PassOperation& head = operations_[queues[s][next[s]]];
                if (std::all_of(head.after.begin(), head.after.end(),
                                [&](Id id) { return id == kNone || done[static_cast<std::size_t>(id)]; })) {
                    running[s] = true;
                    left[s] = head.seconds;
                    out[queues[s][next[s]]].start = now;
                }
            }
            taken += running[s] ? operations_[queues[s][next[s]]].units : 0;
        }
        std::array<double, kPassStreams> speeds{};
        double asked = 0;
        for (std::size_t s = 0; s < kPassStreams; ++s) {
            if (running[s]) {
                const double memory = operations_[queues[s][next[s]]].memory;
                speeds[s] = s == static_cast<std::size_t>(PassStream::compute) ? speed_on(1 - taken, memory) : 1.0;
                asked += speeds[s] * memory;
            }
        }
        const auto speed = [&](std::size_t s) {
            return operations_[queues[s][next[s]]].memory > 0 ? speeds[s] / std::max(1.0, asked) : speeds[s];
        };
        double step = std::numeric_limits<double>::infinity();
        for (std::size_t s = 0; s < kPassStreams; ++s) {
            step = running[s] ? std::min(step, left[s] / speed(s)) : step;
        }
        ORRERY_ASSERT(step < std::numeric_limits<double>::infinity());
        now += step;
        for (std::size_t s = 0; s < kPassStreams; ++s) {
            if (!running[s]) {
                continue;
            }
            const bool ends = left[s] / speed(s) <= step;
            left[s] -= step * speed(s);
            if (ends) {
                const std::size_t id = queues[s][next[s]++];
                out[id].end = now;
                done[id] = true;
                running[s] = false;
                ++ended;
            }
        }
    }
    return out;
}

Price PassProgram::price() const {
    const std::vector<PlayedOperation> played = play();
    Price price;
    price.flops = flops_;
    double at = 0;  // the compute stream is booked up to here
    double end = 0;
    Category last = Category::other;
    for (std::size_t i = 0; i < operations_.size(); ++i) {
        const PassOperation& operation = operations_[i];
        price.launches += operation.launches;
        if (played[i].end > end) {
            end = played[i].end;
            last = operation.category;
        }
        if (operation.stream != PassStream::compute) {
            continue;
        }
        if (bound_by_memory(operation.memory)) {
            price.memory_bound += operation.seconds;
            price.memory += operation.seconds * operation.memory;
        }
        Category cause = Category::other;
        double until = at;
        for (const Id before : operation.after) {
            if (before != kNone && played[static_cast<std::size_t>(before)].end > until) {
                until = played[static_cast<std::size_t>(before)].end;
                cause = operations_[static_cast<std::size_t>(before)].category;
            }
        }
        price[cause] += played[i].start - at;
        price[operation.category] += played[i].end - played[i].start;
        at = played[i].end;
    }
    price[last] += end - at;
    return price;
}

}  // namespace orrery::training
