// Programs as lists of sends in order, as synthesizers of collectives (TACOS and others) find them.

#include "sim/base/error.hpp"
#include "sim/record/table_reader.hpp"
#include "workloads/collective/algorithms/algorithm.hpp"
#include "workloads/collective/programs/program.hpp"

#include <fmt/format.h>

#include <cmath>
#include <map>

namespace orrery::collective {

namespace {

struct Send {
    std::uint32_t chunk, from, to;
    bool reduce;
    int line;
};

std::vector<Send> rows_of(const std::string& text, const std::string& file, std::uint32_t ranks) {
    constexpr double kLastChunk = 10'000'000;
    TableReader table(text, file);
    std::vector<Send> out;
    const bool sums = table.has("reduce");
    while (table.next()) {
        const double chunk = table.number("chunk");
        const double from = table.number("from");
        const double to = table.number("to");
        const double reduce = sums ? table.number("reduce") : 0;
        if (!table.good()) {
            continue;
        }
        const auto whole = [&](const char* name, double value, double most) {
            if (value != std::floor(value) || value > most) {
                table.fail(fmt::format("'{}' must be a whole number up to {:.0f}, not {:g}", name, most, value));
                return false;
            }
            return true;
        };
        const bool good = whole("chunk", chunk, kLastChunk) && whole("from", from, ranks - 1.0) &&
                          whole("to", to, ranks - 1.0) && whole("reduce", reduce, 1);
        if (good && from == to) {
            table.fail(fmt::format("rank {:.0f} sends to itself", from));
        } else if (good) {
            out.push_back({static_cast<std::uint32_t>(chunk), static_cast<std::uint32_t>(from),
                           static_cast<std::uint32_t>(to), reduce != 0, table.line()});
        }
    }
    table.finish();
    return out;
}

// Each link has a block at its sender and one at its receiver. What a step depends on beside the step before it stands in steps
// without work of their own, as MSCCL has them.
class SendsProgram {
  public:
    SendsProgram(std::uint32_t ranks, CollectiveProgram& program) : program_(program), last_(ranks) {}

    void add(const Send& send) {
        const ProgramSlot slot{Buffer::output, send.chunk};
        const std::uint32_t out = block(send.from, send.from, send.to);
        const std::uint32_t in = block(send.to, send.from, send.to);
        // A send takes what came last. What comes is kept when what was there has gone.
        Uses& from = last_[send.from][send.chunk];
        const StepId sent = step(send.from, out, {StepKind::send, slot, slot, 1, {}, send.line}, {from.written});
        from.read.push_back(sent);
        Uses& to = last_[send.to][send.chunk];
        std::vector<StepId> before = to.read;
        before.push_back(to.written);
        to.written =
            step(send.to, in, {send.reduce ? StepKind::receive_add : StepKind::receive, slot, slot, 1, {}, send.line},
                 before);
        to.read.clear();
    }

  private:
    static constexpr StepId kNever = {0xFFFFFFFFU, 0};
    struct Uses {
        StepId written = kNever;
        std::vector<StepId> read;  ///< since then
    };

    std::uint32_t block(std::uint32_t rank, std::uint32_t from, std::uint32_t to) {
        auto& blocks = program_.ranks[rank].blocks;
        const auto [found, fresh] = blocks_.try_emplace({rank, from, to}, static_cast<std::uint32_t>(blocks.size()));
        if (fresh) {
            ProgramBlock block;
            (rank == from ? block.send_to : block.receive_from) = rank == from ? to : from;
            blocks.push_back(std::move(block));
        }
        return found->second;
    }

    StepId step(std::uint32_t rank, std::uint32_t block, ProgramStep step, const std::vector<StepId>& before) {
        auto& steps = program_.ranks[rank].blocks[block].steps;
        std::vector<StepId> others;
        for (const StepId& one : before) {
            if (one.block != kNever.block && one.block != block) {
                others.push_back(one);
            }
        }
        for (std::size_t i = 0; i + 1 < others.size(); ++i) {
            ProgramStep wait;
            wait.line = step.line;
            wait.after = {others[i]};
            steps.push_back(std::move(wait));
        }
        if (!others.empty()) {
            step.after = {others.back()};
        }
        steps.push_back(std::move(step));
        return {block, static_cast<std::uint32_t>(steps.size() - 1)};
    }

    CollectiveProgram& program_;
    std::vector<std::map<std::uint32_t, Uses>> last_;  ///< by rank and chunk
    std::map<std::array<std::uint32_t, 3>, std::uint32_t> blocks_;
};

}  // namespace

CollectiveProgram read_sends(const std::string& text, const std::string& file, CollectiveOp op, std::uint32_t ranks) {
    const auto fail = [&](const std::string& problem) {
        throw ConfigError({Diagnostic{file, 0, 0, problem, ErrorCode::malformed_trace}});
    };
    if (!reduces_or_gathers(op)) {
        fail(fmt::format("a list of sends is an all-reduce, all-gather or reduce-scatter, not {}",
                         collective_op_names()[static_cast<std::size_t>(op)]));
    }
    const std::vector<Send> sends = rows_of(text, file, ranks);
    std::uint32_t chunks = 0;
    for (const Send& send : sends) {
        chunks = std::max(chunks, send.chunk + 1);
    }
    if (chunks == 0 || chunks % ranks != 0) {
        fail(fmt::format("its {} chunks cannot belong to {} ranks, equally many to each", chunks, ranks));
    }
    CollectiveProgram program;
    program.name = "sends";
    program.file = file;
    program.op = op;
    // All ranks have all chunks at the same place, in the larger buffer.
    const bool gathers = op == CollectiveOp::all_gather;
    const bool scatters = op == CollectiveOp::reduce_scatter;
    program.ranks.resize(ranks);
    for (ProgramRank& rank : program.ranks) {
        rank.chunks = {gathers ? chunks / ranks : chunks, scatters ? chunks / ranks : chunks, 0};
    }
    SendsProgram steps(ranks, program);
    for (const Send& send : sends) {
        steps.add(send);
    }
    if (scatters) {
        for (ProgramRank& rank : program.ranks) {
            for (ProgramBlock& block : rank.blocks) {
                for (ProgramStep& step : block.steps) {
                    step.source.buffer = step.target.buffer = Buffer::input;
                }
            }
        }
    }
    return program;
}

}  // namespace orrery::collective
