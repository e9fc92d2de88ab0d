#pragma once
// Collective algorithms as data: what each thread block of each rank sends, receives, adds and copies, step by step.
//
// Claims: a program is checked by carrying out its steps on symbols: every send has its receive, no step waits for itself, no buffer
// is left, nothing unwritten is read, no contribution is added twice, and in the end every rank has what the operation says.
// Its messages then go over the fabric at any fidelity. A send starts when the steps before it in its block and those it depends on
// are done, and is done when it has arrived, as in the built-in algorithms; a receive takes its block's time until then.
// Limits: the whole payload goes in one pass of the program, in chunks of equal size (MSCCL repeats a program for payloads larger than
// its buffers); a send finds room at its receiver at once; local copies take no time; who reads what another block writes without
// a dependency is not found.
// Sources: Cai et al., "Synthesizing optimal collective algorithms", PPoPP 2021; Cowan et al., "MSCCLang", ASPLOS 2023; Won et al.,
// "TACOS", MICRO 2024.
// Validated by tests/workloads/collective_program_test.cpp: ring and tree as programs equal the built-in; broken programs.

#include "workloads/collective/message_run.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace orrery::collective {

class ScheduleBuilder;

inline constexpr std::int64_t kMostRanks = 65'536;       ///< that a file of a program may have
inline constexpr std::int64_t kMostChunks = 10'000'000;  ///< of a buffer, and of steps of a block

/// Steps as MSCCL calls them: s, r, rrc (receive and add), rcs (receive, copy and send on), rrs (receive, add and send on without
/// keeping), rrcs (and keeping), cpy, re (add to what is there), nop.
enum class StepKind {
    send,
    receive,
    receive_add,
    receive_send,
    receive_add_send_only,
    receive_add_send,
    copy,
    add,
    wait
};
inline constexpr std::array kStepNames = {"s", "r", "rrc", "rcs", "rrs", "rrcs", "cpy", "re", "nop"};

/// Of a rank: what it has at first, what it is to have, and a scratch of its own.
enum class Buffer { input, output, scratch };
inline constexpr std::array kBufferNames = {"i", "o", "s"};

struct ProgramSlot {
    Buffer buffer = Buffer::input;
    std::uint32_t offset = 0;  ///< chunks
};

/// A step that another waits for.
struct StepId {
    std::uint32_t block = 0;
    std::uint32_t step = 0;
};

struct ProgramStep {
    StepKind kind = StepKind::wait;
    ProgramSlot source;  ///< what is sent, copied or added to what comes
    ProgramSlot target;  ///< where what comes is kept
    std::uint32_t count = 1;
    std::vector<StepId> after;  ///< of the same rank
    int line = 0;               ///< in the file; 0: none
};

inline constexpr std::int64_t kNoPeer = -1;
struct ProgramBlock {
    std::int64_t send_to = kNoPeer;
    std::int64_t receive_from = kNoPeer;
    std::uint32_t channel = 0;
    std::vector<ProgramStep> steps;
};

struct ProgramRank {
    std::array<std::uint32_t, 3> chunks = {};  ///< of each buffer
    std::vector<ProgramBlock> blocks;
};

struct CollectiveProgram {
    std::string name;
    std::string file;  ///< what errors call it
    CollectiveOp op = CollectiveOp::all_reduce;
    bool in_place = true;  ///< input and output are one buffer
    std::vector<ProgramRank> ranks;

    /// Chunks of the larger buffer of a rank, which holds the payload.
    [[nodiscard]] std::uint32_t chunks() const;
    /// Messages that it sends.
    [[nodiscard]] std::uint64_t messages() const;
};

/// Throws ConfigError at the first step that cannot be right, with its rank, block and step; see above for what is checked.
void check_program(const CollectiveProgram& program);
/// Adds its messages for a payload. Precondition: it has passed the check.
void add_program(ScheduleBuilder& builder, const CollectiveProgram& program, double bytes);

/// Reads a program from a file, by its ending: .xml (MSCCL), .json (MSCCL++) or .csv (sends in order). `op` and `ranks` are what a list
/// of sends does not say, and must be what the others say. Throws ConfigError with the line, also for what does not pass the check.
[[nodiscard]] CollectiveProgram read_program(const std::string& path, CollectiveOp op, std::uint32_t ranks);

/// MSCCL's XML.
[[nodiscard]] CollectiveProgram read_msccl(const std::string& text, const std::string& file);
[[nodiscard]] std::string write_msccl(const CollectiveProgram& program);
/// MSCCL++'s execution plan (JSON), of protocol Simple; msccl_plus.cpp says how it becomes sends and receives.
[[nodiscard]] CollectiveProgram read_msccl_plus(const std::string& text, const std::string& file);
/// Sends in order: columns chunk, from, to and, where sums are made, reduce (0 or 1); others are not read. A send waits for what
/// brought its chunk and for the one before it on its link. Chunks belong to ranks in order, equally many to each.
[[nodiscard]] CollectiveProgram read_sends(const std::string& text, const std::string& file, CollectiveOp op,
                                           std::uint32_t ranks);

/// The built-in algorithms `ring` (all-reduce, all-gather, reduce-scatter) and `tree` (all-reduce in so many pieces) as programs.
/// Throws InfeasibleError for other operations.
[[nodiscard]] CollectiveProgram ring_program(CollectiveOp op, std::uint32_t ranks);
[[nodiscard]] CollectiveProgram tree_program(CollectiveOp op, std::uint32_t ranks, std::uint32_t pieces);

}  // namespace orrery::collective
