#include "workloads/collective/programs/program.hpp"

#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"
#include "workloads/collective/algorithms/algorithm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <tuple>

namespace orrery::collective {

namespace {

bool receives(StepKind kind) {
    return kind == StepKind::receive || kind == StepKind::receive_add || kind == StepKind::receive_send ||
           kind == StepKind::receive_add_send_only || kind == StepKind::receive_add_send;
}

bool sends(StepKind kind) {
    return kind == StepKind::send || kind == StepKind::receive_send || kind == StepKind::receive_add_send_only ||
           kind == StepKind::receive_add_send;
}

// Whether what the step gives is the sum with what its source holds.
bool adds(StepKind kind) {
    return kind == StepKind::receive_add || kind == StepKind::receive_add_send_only ||
           kind == StepKind::receive_add_send || kind == StepKind::add;
}

bool keeps(StepKind kind) {
    return kind != StepKind::send && kind != StepKind::receive_add_send_only && kind != StepKind::wait;
}

constexpr std::uint32_t kNone = 0xFFFFFFFFU;

// The steps of all ranks in one list, and what each waits for.
struct StepGraph {
    struct Node {
        std::uint32_t rank, block, step;
        std::uint32_t sender = kNone;    ///< of a receive: the step that sends to it
        std::uint32_t receiver = kNone;  ///< of a send
        std::vector<std::uint32_t> before;
    };

    explicit StepGraph(const CollectiveProgram& whole) : program(whole) {
        std::vector<std::vector<std::uint32_t>> first(whole.ranks.size());
        for (std::uint32_t rank = 0; rank < whole.ranks.size(); ++rank) {
            for (std::uint32_t block = 0; block < whole.ranks[rank].blocks.size(); ++block) {
                first[rank].push_back(static_cast<std::uint32_t>(nodes.size()));
                for (std::uint32_t step = 0; step < whole.ranks[rank].blocks[block].steps.size(); ++step) {
                    nodes.push_back({rank, block, step, kNone, kNone, {}});
                }
            }
        }
        for (std::uint32_t id = 0; id < nodes.size(); ++id) {
            Node& node = nodes[id];
            if (node.step > 0) {
                node.before.push_back(id - 1);
            }
            for (const StepId& other : step_of(id).after) {
                const auto& blocks = whole.ranks[node.rank].blocks;
                if (other.block >= blocks.size() || other.step >= blocks[other.block].steps.size()) {
                    fail(id, fmt::format("it depends on step {} of block {}, which the rank does not have", other.step,
                                         other.block));
                }
                node.before.push_back(first[node.rank][other.block] + other.step);
            }
        }
        match();
        sort();
    }

    [[nodiscard]] const ProgramBlock& block_of(std::uint32_t id) const {
        return program.ranks[nodes[id].rank].blocks[nodes[id].block];
    }
    [[nodiscard]] const ProgramStep& step_of(std::uint32_t id) const { return block_of(id).steps[nodes[id].step]; }

    [[nodiscard]] std::string place(std::uint32_t id) const {
        return fmt::format("rank {}, block {}, step {} ({})", nodes[id].rank, nodes[id].block, nodes[id].step,
                           kStepNames[static_cast<std::size_t>(step_of(id).kind)]);
    }
    [[noreturn]] void fail(std::uint32_t id, const std::string& problem) const {
        throw ConfigError({Diagnostic{program.file, step_of(id).line, step_of(id).line > 0 ? 1 : 0,
                                      place(id) + ": " + problem, ErrorCode::malformed_trace}});
    }

    const CollectiveProgram& program;
    std::vector<Node> nodes;
    std::vector<std::uint32_t> order;  ///< each after all that it waits for

  private:
    // The n-th send from a rank to another over a channel is what the n-th receive there takes.
    void match() {
        using Link = std::tuple<std::int64_t, std::int64_t, std::uint32_t>;
        struct Ends {
            std::vector<std::uint32_t> sends, receives;
        };
        std::map<Link, Ends> links;
        for (std::uint32_t id = 0; id < nodes.size(); ++id) {
            const ProgramBlock& block = block_of(id);
            const StepKind kind = step_of(id).kind;
            const auto peer = [&](std::int64_t rank, const char* what) {
                if (rank < 0 || rank >= static_cast<std::int64_t>(program.ranks.size()) || rank == nodes[id].rank) {
                    fail(id, fmt::format("its block {} rank {}, which is no other rank", what, rank));
                }
                return rank;
            };
            if (receives(kind)) {
                links[{peer(block.receive_from, "receives from"), nodes[id].rank, block.channel}].receives.push_back(
                    id);
            }
            if (sends(kind)) {
                links[{nodes[id].rank, peer(block.send_to, "sends to"), block.channel}].sends.push_back(id);
            }
        }
        for (const auto& [link, ends] : links) {
            const std::size_t both = std::min(ends.sends.size(), ends.receives.size());
            const auto of = fmt::format("rank {} to rank {} over channel {}", std::get<0>(link), std::get<1>(link),
                                        std::get<2>(link));
            if (ends.sends.size() > both) {
                fail(ends.sends[both], fmt::format("nothing receives what it sends from {}: deadlock", of));
            }
            if (ends.receives.size() > both) {
                fail(ends.receives[both], fmt::format("it waits for ever: nothing more is sent from {}", of));
            }
            for (std::size_t i = 0; i < both; ++i) {
                const std::uint32_t from = ends.sends[i];
                const std::uint32_t to = ends.receives[i];
                if (step_of(from).count != step_of(to).count) {
                    fail(to, fmt::format("it takes {} chunks, and {} sends {}", step_of(to).count, place(from),
                                         step_of(from).count));
                }
                nodes[from].receiver = to;
                nodes[to].sender = from;
                nodes[to].before.push_back(from);
            }
        }
    }

    void sort() {
        std::vector<std::uint32_t> left(nodes.size(), 0);
        std::vector<std::vector<std::uint32_t>> next(nodes.size());
        for (std::uint32_t id = 0; id < nodes.size(); ++id) {
            left[id] = static_cast<std::uint32_t>(nodes[id].before.size());
            for (const std::uint32_t before : nodes[id].before) {
                next[before].push_back(id);
            }
        }
        std::deque<std::uint32_t> ready;
        for (std::uint32_t id = 0; id < nodes.size(); ++id) {
            if (left[id] == 0) {
                ready.push_back(id);
            }
        }
        while (!ready.empty()) {
            const std::uint32_t id = ready.front();
            ready.pop_front();
            order.push_back(id);
            for (const std::uint32_t other : next[id]) {
                if (--left[other] == 0) {
                    ready.push_back(other);
                }
            }
        }
        if (order.size() < nodes.size()) {
            say_cycle(left);
        }
    }

    // Back from a step that never starts, always to one that never does, until one comes again.
    [[noreturn]] void say_cycle(const std::vector<std::uint32_t>& left) const {
        auto id = static_cast<std::uint32_t>(std::find_if(left.begin(), left.end(), [](auto n) { return n > 0; }) -
                                             left.begin());
        std::vector<std::uint32_t> path;
        while (std::find(path.begin(), path.end(), id) == path.end()) {
            path.push_back(id);
            const std::vector<std::uint32_t>& before = nodes[id].before;
            id = *std::find_if(before.begin(), before.end(), [&](std::uint32_t other) { return left[other] > 0; });
        }
        path.erase(path.begin(), std::find(path.begin(), path.end(), id));
        std::string text = "deadlock: it waits for ";
        constexpr std::size_t kMostShown = 6;
        for (std::size_t i = 1; i < std::min(path.size(), kMostShown); ++i) {
            text += place(path[i]) + ", that for ";
        }
        fail(path.front(), text + (path.size() > kMostShown ? "others, and those for it" : "it"));
    }
};

// What a chunk of a buffer holds: the sum of one logical chunk over some ranks.
struct Value {
    std::uint64_t chunk = 0;           ///< of the operation; of all-to-all with its first rank
    std::vector<std::uint64_t> ranks;  ///< a bit for each that is in the sum
};
using ValueRef = std::shared_ptr<const Value>;

// The buffers of all ranks while the steps are carried out one after another.
class Execution {
  public:
    explicit Execution(const StepGraph& graph) : graph_(graph), program_(graph.program) {
        const auto n = static_cast<std::uint32_t>(program_.ranks.size());
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            const auto& chunks = program_.ranks[rank].chunks;
            require_sizes(rank);
            const std::size_t payload = std::max(chunks[0], chunks[1]);
            // In place the two share the larger one.
            start_.push_back({0, program_.in_place ? 0 : chunks[0], 0});
            start_.back()[2] = program_.in_place ? payload : std::size_t{chunks[0]} + chunks[1];
            memory_.emplace_back(start_.back()[2] + chunks[2]);
            for (std::uint32_t i = 0; i < chunks[0]; ++i) {
                memory_[rank][at(rank, {Buffer::input, i})] = initial(rank, i);
            }
        }
    }

    void run() {
        for (const std::uint32_t id : graph_.order) {
            step(id);
        }
        for (std::uint32_t rank = 0; rank < program_.ranks.size(); ++rank) {
            for (std::uint32_t i = 0; i < program_.ranks[rank].chunks[1]; ++i) {
                require_final(rank, i);
            }
        }
    }

  private:
    [[nodiscard]] std::uint32_t ranks() const { return static_cast<std::uint32_t>(program_.ranks.size()); }

    // Buffers as the operation has them.
    void require_sizes(std::uint32_t rank) const {
        const auto& chunks = program_.ranks[rank].chunks;
        const auto& first = program_.ranks[0].chunks;
        const std::uint32_t n = ranks();
        bool right = chunks[0] == first[0] && chunks[1] == first[1] && chunks[0] > 0;
        switch (program_.op) {
            case CollectiveOp::all_gather:
                right = right && chunks[1] == n * chunks[0];
                break;
            case CollectiveOp::reduce_scatter:
                right = right && chunks[0] == n * chunks[1];
                break;
            case CollectiveOp::all_to_all:
                right = right && chunks[0] == chunks[1] && chunks[0] % n == 0;
                break;
            default:
                right = right && chunks[0] == chunks[1];
        }
        if (!right) {
            throw ConfigError({Diagnostic{
                program_.file, 0, 0,
                fmt::format("rank {} has {} chunks of input and {} of output, which is no {} over {} ranks", rank,
                            chunks[0], chunks[1], collective_op_names()[static_cast<std::size_t>(program_.op)], n),
                ErrorCode::malformed_trace}});
        }
    }

    // In place the smaller buffer is the rank's part of the larger one.
    [[nodiscard]] std::size_t at(std::uint32_t rank, const ProgramSlot& slot) const {
        const auto& chunks = program_.ranks[rank].chunks;
        const auto buffer = static_cast<std::size_t>(slot.buffer);
        const bool part = program_.in_place && buffer < 2 && chunks[buffer] < chunks[1 - buffer];
        return start_[rank][buffer] + slot.offset + (part ? std::size_t{rank} * chunks[buffer] : 0);
    }

    [[nodiscard]] ValueRef initial(std::uint32_t rank, std::uint32_t i) const {
        auto value = std::make_shared<Value>();
        const std::uint64_t own = program_.ranks[rank].chunks[0];
        const bool of_rank = program_.op == CollectiveOp::all_gather || program_.op == CollectiveOp::all_to_all;
        value->chunk = of_rank ? rank * own + i : i;
        value->ranks.resize((ranks() + 63) / 64);
        value->ranks[rank / 64] |= std::uint64_t{1} << (rank % 64);
        return value;
    }

    // What chunk i of a rank's output must be: which chunk, and the only rank in it or all.
    void require_final(std::uint32_t rank, std::uint32_t i) const {
        const ValueRef& value = memory_[rank][at(rank, {Buffer::output, i})];
        const auto& chunks = program_.ranks[rank].chunks;
        const bool sums = program_.op == CollectiveOp::all_reduce || program_.op == CollectiveOp::reduce_scatter;
        std::uint64_t chunk = i;
        std::uint32_t only = 0;
        if (program_.op == CollectiveOp::all_gather) {
            only = i / chunks[0];
        } else if (program_.op == CollectiveOp::reduce_scatter) {
            chunk = std::uint64_t{rank} * chunks[1] + i;
        } else if (program_.op == CollectiveOp::all_to_all) {
            const std::uint32_t each = chunks[0] / ranks();
            only = i / each;
            chunk = std::uint64_t{only} * chunks[0] + std::uint64_t{rank} * each + i % each;
        }
        std::string problem;
        if (value == nullptr) {
            problem = "nothing arrives there";
        } else if (value->chunk != chunk) {
            problem = fmt::format("it holds chunk {} instead of {}", value->chunk, chunk);
        } else {
            for (std::uint32_t r = 0; r < ranks() && problem.empty(); ++r) {
                const bool there = (value->ranks[r / 64] >> (r % 64) & 1U) != 0;
                const bool wanted = sums || r == only;
                problem = there == wanted ? ""
                          : wanted        ? fmt::format("the contribution of rank {} is missing", r)
                                          : fmt::format("it has a contribution of rank {}", r);
            }
        }
        if (!problem.empty()) {
            throw ConfigError({Diagnostic{
                program_.file, 0, 0,
                fmt::format("the program ends with a wrong chunk {} of rank {}'s output: {}", i, rank, problem),
                ErrorCode::malformed_trace}});
        }
    }

    ValueRef& slot(std::uint32_t id, const ProgramSlot& where, std::uint32_t i) {
        const std::uint32_t rank = graph_.nodes[id].rank;
        const std::uint32_t size = program_.ranks[rank].chunks[static_cast<std::size_t>(where.buffer)];
        if (where.offset >= size || size - where.offset <= i) {
            graph_.fail(id, fmt::format("chunk {} is outside its buffer {}, which has {}", where.offset + i,
                                        kBufferNames[static_cast<std::size_t>(where.buffer)], size));
        }
        return memory_[rank][at(rank, {where.buffer, where.offset + i})];
    }

    const ValueRef& read(std::uint32_t id, const ProgramSlot& where, std::uint32_t i) {
        const ValueRef& value = slot(id, where, i);
        if (value == nullptr) {
            graph_.fail(id, fmt::format("it reads chunk {} of buffer {}, which nothing has written", where.offset + i,
                                        kBufferNames[static_cast<std::size_t>(where.buffer)]));
        }
        return value;
    }

    ValueRef sum(std::uint32_t id, const Value& a, const Value& b) const {
        if (a.chunk != b.chunk) {
            graph_.fail(id, fmt::format("it adds chunk {} to chunk {}", a.chunk, b.chunk));
        }
        auto out = std::make_shared<Value>(a);
        for (std::size_t word = 0; word < out->ranks.size(); ++word) {
            if (const std::uint64_t both = a.ranks[word] & b.ranks[word]; both != 0) {
                graph_.fail(id, fmt::format("it adds the contribution of rank {} to chunk {} a second time",
                                            64 * word + static_cast<std::size_t>(__builtin_ctzll(both)), a.chunk));
            }
            out->ranks[word] |= b.ranks[word];
        }
        return out;
    }

    void step(std::uint32_t id) {
        const ProgramStep& step = graph_.step_of(id);
        const StepGraph::Node& node = graph_.nodes[id];
        if (step.kind == StepKind::wait) {
            return;
        }
        std::vector<ValueRef> given(step.count);
        for (std::uint32_t i = 0; i < step.count; ++i) {
            // What comes is added to what the source holds; "re" adds its source to its target.
            given[i] = receives(step.kind) ? in_flight_[node.sender][i] : read(id, step.source, i);
            if (adds(step.kind)) {
                given[i] = sum(id, *given[i], *read(id, step.kind == StepKind::add ? step.target : step.source, i));
            }
        }
        if (receives(step.kind)) {
            in_flight_.erase(node.sender);
        }
        for (std::uint32_t i = 0; i < step.count && keeps(step.kind); ++i) {
            slot(id, step.target, i) = given[i];
        }
        if (sends(step.kind)) {
            in_flight_[id] = std::move(given);
        }
    }

    const StepGraph& graph_;
    const CollectiveProgram& program_;
    std::vector<std::array<std::size_t, 3>> start_;  ///< of each buffer in the memory of a rank
    std::vector<std::vector<ValueRef>> memory_;
    std::map<std::uint32_t, std::vector<ValueRef>> in_flight_;  ///< by the step that sent it
};

}  // namespace

std::uint32_t CollectiveProgram::chunks() const {
    return ranks.empty() ? 0 : std::max(ranks[0].chunks[0], ranks[0].chunks[1]);
}

std::uint64_t CollectiveProgram::messages() const {
    std::uint64_t count = 0;
    for (const ProgramRank& rank : ranks) {
        for (const ProgramBlock& block : rank.blocks) {
            count += static_cast<std::uint64_t>(std::count_if(
                block.steps.begin(), block.steps.end(), [](const ProgramStep& step) { return sends(step.kind); }));
        }
    }
    return count;
}

void check_program(const CollectiveProgram& program) {
    const StepGraph graph(program);
    Execution(graph).run();
}

void add_program(ScheduleBuilder& builder, const CollectiveProgram& program, double bytes) {
    const StepGraph graph(program);
    const double chunk_bytes = bytes / program.chunks();
    std::vector<std::uint32_t> message(graph.nodes.size(), kNone);     // that a step sends
    std::vector<std::vector<std::uint32_t>> done(graph.nodes.size());  // messages that have arrived when a step is done
    std::map<std::uint32_t, std::vector<std::uint32_t>> waits_of;      // of a message
    for (const std::uint32_t id : graph.order) {
        const StepGraph::Node& node = graph.nodes[id];
        const ProgramStep& step = graph.step_of(id);
        std::vector<std::uint32_t> waits;
        for (const std::uint32_t before : node.before) {
            if (before != node.sender) {
                waits.insert(waits.end(), done[before].begin(), done[before].end());
            }
        }
        if (node.sender != kNone) {
            waits.push_back(message[node.sender]);
        }
        std::sort(waits.begin(), waits.end());
        waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
        // What one of them has waited for has arrived.
        std::vector<std::uint32_t> implied;
        for (const std::uint32_t other : waits) {
            implied.insert(implied.end(), waits_of[other].begin(), waits_of[other].end());
        }
        std::sort(implied.begin(), implied.end());
        std::erase_if(waits,
                      [&](std::uint32_t other) { return std::binary_search(implied.begin(), implied.end(), other); });
        if (!sends(step.kind)) {
            done[id] = std::move(waits);
            continue;
        }
        builder.set_reducing(adds(graph.step_of(node.receiver).kind));
        message[id] = builder.add(node.rank, graph.nodes[node.receiver].rank, chunk_bytes * step.count);
        for (const std::uint32_t other : waits) {
            builder.after(other, message[id]);
        }
        done[id] = {message[id]};
        waits_of[message[id]] = std::move(waits);
    }
    builder.set_reducing(false);
}

CollectiveProgram read_program(const std::string& path, CollectiveOp op, std::uint32_t ranks) {
    const std::string name = unpacked_name(path);
    const std::string extension = std::filesystem::path(name).extension().string();
    if (extension != ".xml" && extension != ".json" && extension != ".csv") {
        throw ConfigError(
            {Diagnostic{path, 0, 0,
                        "the ending of a program's file says what it is: .xml (MSCCL), .json (MSCCL++) or "
                        ".csv (sends in order)",
                        ErrorCode::unknown_name}});
    }
    const std::string text = read_input(path);
    CollectiveProgram program = extension == ".xml"    ? read_msccl(text, path)
                                : extension == ".json" ? read_msccl_plus(text, path)
                                                       : read_sends(text, path, op, ranks);
    const auto fail = [&](const std::string& problem) {
        throw ConfigError({Diagnostic{path, 0, 0, problem, ErrorCode::contradiction}});
    };
    if (program.op != op) {
        fail(fmt::format("the program is of {}, and collective.op is {}",
                         collective_op_names()[static_cast<std::size_t>(program.op)],
                         collective_op_names()[static_cast<std::size_t>(op)]));
    }
    if (program.ranks.size() != ranks) {
        fail(fmt::format("the program is for {} ranks, and {} take part (collective.ranks)", program.ranks.size(),
                         ranks));
    }
    check_program(program);
    return program;
}

}  // namespace orrery::collective
