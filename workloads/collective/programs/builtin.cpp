// Built-in algorithms as programs.

#include "workloads/collective/algorithms/algorithm.hpp"
#include "workloads/collective/programs/program.hpp"

#include <fmt/format.h>

namespace orrery::collective {

namespace {

ProgramStep step_of(StepKind kind, Buffer buffer, std::uint32_t chunk) {
    ProgramStep step;
    step.kind = kind;
    step.source = step.target = {buffer, chunk};
    return step;
}

}  // namespace

CollectiveProgram ring_program(CollectiveOp op, std::uint32_t ranks) {
    if (!reduces_or_gathers(op)) {
        throw InfeasibleError("the ring is a program of all-reduce, all-gather and reduce-scatter");
    }
    CollectiveProgram program;
    program.name = fmt::format("ring_{}", ranks);
    program.op = op;
    const bool sums = op != CollectiveOp::all_gather;
    const bool gathers = op != CollectiveOp::reduce_scatter;
    const std::uint32_t n = ranks;
    // The larger of the two buffers, which holds all chunks.
    const Buffer buffer = gathers ? Buffer::output : Buffer::input;
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        ProgramRank own;
        own.chunks = {sums ? n : 1, gathers ? n : 1, 0};
        ProgramBlock block;
        block.send_to = (rank + 1) % n;
        block.receive_from = (rank + n - 1) % n;
        // The chunk that a rank ends the sums with is its own; it sends what its predecessor will have summed n - 1 steps later.
        std::uint32_t chunk = sums ? (rank + n - 1) % n : rank;
        block.steps.push_back(step_of(StepKind::send, buffer, chunk));
        const auto next = [&](StepKind kind) {
            chunk = (chunk + n - 1) % n;
            block.steps.push_back(step_of(kind, buffer, chunk));
        };
        for (std::uint32_t i = 0; sums && i + 2 < n; ++i) {
            next(StepKind::receive_add_send_only);
        }
        if (sums) {
            next(gathers ? StepKind::receive_add_send : StepKind::receive_add);
        }
        for (std::uint32_t i = 0; gathers && i + 2 < n; ++i) {
            next(StepKind::receive_send);
        }
        if (gathers) {
            next(StepKind::receive);
        }
        own.blocks.push_back(std::move(block));
        program.ranks.push_back(std::move(own));
    }
    return program;
}

CollectiveProgram tree_program(CollectiveOp op, std::uint32_t ranks, std::uint32_t pieces) {
    if (op != CollectiveOp::all_reduce) {
        throw InfeasibleError("the tree is a program of all-reduce only");
    }
    CollectiveProgram program;
    program.name = fmt::format("tree_{}", ranks);
    program.op = op;
    program.ranks.resize(ranks);
    const BinaryTree tree = binary_tree(ranks);
    constexpr std::uint32_t kUp = 0;  // channels
    constexpr std::uint32_t kDown = 1;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        ProgramRank& own = program.ranks[rank];
        own.chunks = {pieces, pieces, 0};
        const std::vector<std::uint32_t>& children = tree.children[rank];
        const bool root = rank == tree.root;
        const auto add_block = [&](std::int64_t send_to, std::int64_t receive_from, std::uint32_t channel) {
            ProgramBlock block;
            block.send_to = send_to;
            block.receive_from = receive_from;
            block.channel = channel;
            own.blocks.push_back(std::move(block));
        };
        // One block for each that is received from and each that is sent to: nothing waits for another's turn.
        for (const std::uint32_t child : children) {
            add_block(kNoPeer, child, kUp);
        }
        if (!root) {
            add_block(tree.parent[rank], kNoPeer, kUp);
            add_block(kNoPeer, tree.parent[rank], kDown);
        }
        for (const std::uint32_t child : children) {
            add_block(child, kNoPeer, kDown);
        }
        for (std::uint32_t piece = 0; piece < pieces; ++piece) {
            std::uint32_t block = 0;
            std::vector<StepId> before;  // the step that the next one waits for
            const auto add = [&](StepKind kind) {
                ProgramStep step = step_of(kind, Buffer::output, piece);
                step.after = before;
                own.blocks[block].steps.push_back(std::move(step));
                return std::vector<StepId>{{block++, piece}};
            };
            for (std::size_t c = 0; c < children.size(); ++c) {
                before = add(StepKind::receive_add);
            }
            if (!root) {
                before = add(StepKind::send);
                // What comes down is kept where what went up was.
                before = add(StepKind::receive);
            }
            for (std::size_t c = 0; c < children.size(); ++c) {
                (void)add(StepKind::send);
            }
        }
    }
    return program;
}

}  // namespace orrery::collective
