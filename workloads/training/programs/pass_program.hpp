#pragma once
// A pass as a program: kernels and collectives on in-order streams of a rank, and what each waits for.
//
// Claims: an operation starts when the one before it on its stream and all that it waits for have ended; a pass ends when all
// its streams have. The compute stream's gaps belong to what ended them.
// Scope: what one rank does for one layer or table, while all ranks of its groups do the same. Played once per distinct pass:
// its duration and composition become the stage's task.
// A kernel beside collectives runs at the share of compute units that they leave it, or at the root of that share where the main
// memory binds it; what they ask of the memory together beyond its rate makes both slower alike.
// Sources: efeslab/Nanoflow@d1bbe27, autosearch/trace/gemv_interference.csv (A100): a kernel bound by memory keeps 0.4 of its speed on
// 0.2 of the device, 0.7 on 0.5, 0.9 on 0.8: the root within 0.05.
// Validated by tests/workloads/pass_program_test.cpp: closed forms of hidden, chunked and ring communication.

#include "sim/engine/task_graph.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace orrery::training {

/// What kernels or a collective take alone: seconds, and bytes of the main memory that they read and write meanwhile.
struct Alone {
    double seconds = 0;
    double bytes = 0;

    Alone& operator+=(const Alone& other) {
        seconds += other.seconds;
        bytes += other.bytes;
        return *this;
    }
    friend Alone operator+(Alone a, const Alone& b) { return a += b; }
    friend Alone operator*(double k, const Alone& a) { return {k * a.seconds, k * a.bytes}; }
    /// Share of a memory of this rate, B/s, that they take.
    [[nodiscard]] double share_of(double rate) const {
        return seconds > 0 && rate > 0 ? std::min(1.0, bytes / (seconds * rate)) : 0;
    }
};

/// Seconds by category.
struct Price {
    std::array<double, kCategoryCount> seconds{};
    double flops = 0;         ///< of matrix products and attention, recomputation included
    double launches = 0;      ///< kernels and collectives that the host launches
    double memory_bound = 0;  ///< seconds of kernels that the main memory binds
    double memory = 0;        ///< of these seconds, what the memory alone would take

    double& operator[](Category category) { return seconds[static_cast<std::size_t>(category)]; }
    [[nodiscard]] double operator[](Category category) const { return seconds[static_cast<std::size_t>(category)]; }
    [[nodiscard]] double total() const;
    Price& operator+=(const Price& other);
    friend Price operator*(Price price, double k);
};

/// Streams of a rank in a pass: kernels, one per communicator, and copies between the device and its host.
enum class PassStream : std::uint8_t { compute, tensor, context, expert, copy };
inline constexpr std::size_t kPassStreams = 5;
[[nodiscard]] const char* pass_stream_name(PassStream stream);

struct PassOperation {
    const char* name;
    Category category;
    PassStream stream;
    double seconds;                             ///< alone on its stream
    double launches;                            ///< by the host; 0: part of the one before it
    std::array<std::int32_t, 2> after{-1, -1};  ///< earlier operations it waits for; -1: none
    double units = 0;                           ///< share of the compute units that it takes from kernels beside it
    double memory = 0;                          ///< share of the main memory's rate that it takes alone
};

/// Speed of a kernel that takes this share of the main memory alone, on this share of the compute units.
[[nodiscard]] double speed_on(double units, double memory);

/// When an operation ran, in seconds from the start of its pass.
struct PlayedOperation {
    double start = 0;
    double end = 0;
};

class PassProgram {
  public:
    using Id = std::int32_t;
    static constexpr Id kNone = -1;

    /// Appends an operation. Those it waits for are earlier ones, or kNone.
    Id add(const PassOperation& operation);
    /// The last operation of a stream; kNone before the first.
    [[nodiscard]] Id last(PassStream stream) const { return last_[static_cast<std::size_t>(stream)]; }
    void add_flops(double flops) { flops_ += flops; }
    /// All operations of another program once those of this one have ended (of exchanges of experts: once they have been waited
    /// for), `share` of their time and launches each.
    void append(const PassProgram& other, double share = 1);
    /// Books all kernels under this category.
    void book_kernels(Category category);

    [[nodiscard]] const std::vector<PassOperation>& operations() const { return operations_; }
    [[nodiscard]] std::vector<PlayedOperation> play() const;
    /// Composition of the pass as the compute stream sees it: its sum is the duration.
    [[nodiscard]] Price price() const;

  private:
    std::vector<PassOperation> operations_;
    std::array<Id, kPassStreams> last_{kNone, kNone, kNone, kNone, kNone};
    double flops_ = 0;
};

}  // namespace orrery::training
