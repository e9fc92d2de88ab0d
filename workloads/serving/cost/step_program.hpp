#pragma once
// An iteration as a list of operations by name.
//
// Claims: what an iteration takes is the sum of what its operations take, each so many times one after another. Runs keep the
// sums of what recurs (step_cost.hpp); the list is for those who ask what they are made of.

#include "sim/base/namespaces.hpp"

#include <cstdint>
#include <vector>

namespace orrery::serving {

/// What an iteration takes, and what it does on each device of its stage.
struct StepWork {
    double seconds = 0;
    double kernels = 0;  ///< s of them with kernels under way
    double flops = 0;    ///< of products and attention, as many as the units do in 16 bits in the same time
    double bytes = 0;    ///< through the main memory
    double done = 0;     ///< FLOPs of products and attention in their own formats

    StepWork& operator+=(const StepWork& other) {
        seconds += other.seconds;
        kernels += other.kernels;
        flops += other.flops;
        bytes += other.bytes;
        done += other.done;
        return *this;
    }
    friend StepWork operator+(StepWork a, const StepWork& b) { return a += b; }
    friend StepWork operator*(double times, const StepWork& work) {
        return {times * work.seconds, times * work.kernels, times * work.flops, times * work.bytes, times * work.done};
    }
};

/// What an operation is of: dense products, routed experts, attention, small kernels, communication, the host, or what the scenario
/// gives as the time of iterations.
enum class StepClass : std::uint8_t { product, experts, attention, small, collective, host, given };

struct StepOperation {
    const char* name;
    StepClass kind;
    double times;   ///< one after another
    StepWork work;  ///< of one
};

class StepProgram {
  public:
    void add(const char* name, StepClass kind, const StepWork& work, double times = 1) {
        if (work.seconds != 0 || work.bytes > 0) {
            operations_.push_back({name, kind, times, work});
        }
    }
    /// All of another program, so many times.
    void add(const StepProgram& other, double times = 1) {
        operations_.reserve(operations_.size() + other.operations_.size());
        for (const StepOperation& one : other.operations_) {
            operations_.push_back({one.name, one.kind, times * one.times, one.work});
        }
    }
    [[nodiscard]] const std::vector<StepOperation>& operations() const { return operations_; }
    [[nodiscard]] StepWork total() const {
        StepWork sum;
        for (const StepOperation& one : operations_) {
            sum += one.times * one.work;
        }
        return sum;
    }

  private:
    std::vector<StepOperation> operations_;
};

}  // namespace orrery::serving
