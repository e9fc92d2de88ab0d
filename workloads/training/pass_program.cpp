#include "workloads/training/pass_program.hpp"

#include "sim/base/error.hpp"

#include <algorithm>

namespace orrery {

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
    return *this;
}

Price operator*(Price price, double k) {
    for (double& s : price.seconds) {
        s *= k;
    }
    price.flops *= k;
    price.launches *= k;
    return price;
}

const char* pass_stream_name(PassStream stream) {
    constexpr std::array<const char*, kPassStreams> kNames = {"kernels", "tensor-parallel communication",
                                                              "context-parallel communication"};
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
        // A place on the compute stream at which all streams have ended.
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

void PassProgram::slow_kernels(double factor) {
    for (PassOperation& operation : operations_) {
        const bool kernel = operation.stream == PassStream::compute && operation.category != Category::overhead;
        operation.seconds *= kernel ? factor : 1;
    }
}

std::vector<PlayedOperation> PassProgram::play() const {
    std::vector<PlayedOperation> out(operations_.size());
    std::array<double, kPassStreams> free{};
    for (std::size_t i = 0; i < operations_.size(); ++i) {
        const PassOperation& operation = operations_[i];
        double& stream = free[static_cast<std::size_t>(operation.stream)];
        double start = stream;
        for (const Id before : operation.after) {
            start = before == kNone ? start : std::max(start, out[static_cast<std::size_t>(before)].end);
        }
        stream = start + operation.seconds;
        out[i] = {start, stream};
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
        Category cause = Category::other;
        double until = at;
        for (const Id before : operation.after) {
            if (before != kNone && played[static_cast<std::size_t>(before)].end > until) {
                until = played[static_cast<std::size_t>(before)].end;
                cause = operations_[static_cast<std::size_t>(before)].category;
            }
        }
        price[cause] += played[i].start - at;
        price[operation.category] += operation.seconds;
        at = played[i].end;
    }
    price[last] += end - at;
    return price;
}

}  // namespace orrery
