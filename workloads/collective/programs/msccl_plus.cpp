// Programs as MSCCL++'s execution plans (JSON): puts and gets of one rank in the memory of another, with signals and waits.
//
// A plan's one-sided operations become sends and receives: a put is a send in a block of its own at the writer and a receive in one at
// the owner of the memory. A wait depends on what the signal's thread block had put before it; a get, and a put into memory that its
// owner has used, depend on what the owner had done before the last signal that the thread block waited for.
// Limits: signals take no time of their own; operations on packets (LL), switches, semaphores and loops are refused.
// Source: microsoft/mscclpp, docs/design/mscclpp-dsl-json-file.md and python/mscclpp/language.

#include "sim/base/error.hpp"
#include "sim/record/json_text.hpp"
#include "workloads/collective/programs/program.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace orrery::collective {

namespace {

using Json = nlohmann::json;

const std::map<std::string, CollectiveOp>& collectives() {
    static const std::map<std::string, CollectiveOp> kNames = {{"allreduce", CollectiveOp::all_reduce},
                                                               {"allgather", CollectiveOp::all_gather},
                                                               {"reducescatter", CollectiveOp::reduce_scatter},
                                                               {"alltoall", CollectiveOp::all_to_all}};
    return kNames;
}

/// Chunks of a rank's buffer.
struct Chunks {
    std::uint32_t rank = 0;
    ProgramSlot slot;
    std::uint32_t count = 1;
};

class PlanReader {
  public:
    PlanReader(const std::string& text, const std::string& file) {
        program_.file = file;
        require_shallow_json(text, file);
        try {
            plan_ = Json::parse(text);
        } catch (const Json::exception& problem) {
            throw ConfigError({json_problem(file, problem)});
        }
        // Operations have the key "name" once each: their lines are those of the keys behind "gpus".
        int line = 1;
        const std::size_t first = text.find("\"gpus\"");
        for (std::size_t at = 0; at < text.size(); ++at) {
            line += text[at] == '\n' ? 1 : 0;
            if (at > first && text.compare(at, 6, "\"name\"") == 0) {
                lines_.push_back(line);
            }
        }
    }

    CollectiveProgram read() {
        try {
            read_plan();
        } catch (const Json::exception& problem) {
            fail(fmt::format("{}: a value has another type than in a plan ({})", what_, problem.what()));
        }
        for (std::uint32_t rank = 0; rank < program_.ranks.size(); ++rank) {
            follow_signals(rank);
        }
        for (const auto& [ends, all] : signals_) {
            for (const Signal& one : all) {
                if (!one.taken) {
                    fail_at(one.line,
                            fmt::format("{}: nothing waits for its signal to gpu {}", one.place, std::get<1>(ends)));
                }
            }
        }
        return one_dependency_a_step();
    }

  private:
    void read_plan() {
        head();
        const Json& gpus = list(plan_, "gpus", "the plan");
        for (const Json& gpu : gpus) {
            rank_head(gpu);
        }
        for (rank_ = 0; rank_ < gpus.size(); ++rank_) {
            const Json& blocks = list(gpus[rank_], "threadblocks", where());
            for (block_ = 0; block_ < blocks.size(); ++block_) {
                const Json& ops = list(blocks[block_], "ops", where());
                for (op_ = 0; op_ < ops.size(); ++op_) {
                    operation(ops[op_]);
                }
            }
        }
    }

    /// What a thread block does that depends on other ranks or thread blocks, in order.
    struct Event {
        enum class Kind { wait, access, barrier } kind;
        StepId step;                 ///< of a wait or a barrier in this rank; of an access at its owner
        std::uint32_t peer = 0;      ///< of a wait: who signals; of an access: whose memory it is
        std::uint32_t channel = 0;   ///< of a wait: which of those between the two; of a barrier: its number
        std::uint32_t parties = 0;   ///< of a barrier
        std::optional<StepId> last;  ///< of a barrier: the step before it
        std::string place;
        int line = 0;
    };
    struct Signal {
        std::uint32_t block;          ///< who signals
        std::optional<StepId> done;   ///< its last step before
        std::vector<StepId> arrived;  ///< at the other end: the receives of what it had put
        std::string place;
        int line = 0;
        bool taken = false;
    };
    using Seen = std::map<std::pair<std::uint32_t, std::uint32_t>, StepId>;  ///< by rank and block: what it has done

    [[nodiscard]] std::string where() const { return fmt::format("gpu {}, threadblock {}", rank_, block_); }
    [[nodiscard]] int line() const { return seen_ops_ > 0 && seen_ops_ <= lines_.size() ? lines_[seen_ops_ - 1] : 0; }
    [[noreturn]] void fail_at(int line, const std::string& problem) const {
        throw ConfigError({Diagnostic{program_.file, line, line > 0 ? 1 : 0, problem, ErrorCode::malformed_trace}});
    }
    [[noreturn]] void fail(const std::string& problem) const { fail_at(line(), problem); }

    const Json& list(const Json& in, const char* key, const std::string& what) const {
        if (!in.is_object() || !in.contains(key) || !in[key].is_array()) {
            fail(fmt::format("{} has no list '{}'", what, key));
        }
        return in[key];
    }
    std::uint32_t number(const Json& in, const char* key, std::int64_t most, const std::string& what) const {
        const Json* value = in.is_object() && in.contains(key) ? &in[key] : nullptr;
        if (value == nullptr || !value->is_number_unsigned() || value->get<std::uint64_t>() > std::uint64_t(most)) {
            fail(fmt::format("{} must have '{}', a whole number up to {}", what, key, most));
        }
        return value->get<std::uint32_t>();
    }
    std::string word(const Json& in, const char* key, const std::string& what) const {
        if (!in.is_object() || !in.contains(key) || !in[key].is_string()) {
            fail(fmt::format("{} must have '{}', a word", what, key));
        }
        return in[key].get<std::string>();
    }

    void head() {
        const std::string name = word(plan_, "collective", "the plan");
        const auto row = collectives().find(name);
        if (row == collectives().end()) {
            fail(
                fmt::format("'collective' is '{}'; programs are checked for allreduce, allgather, reducescatter and "
                            "alltoall",
                            name));
        }
        program_.op = row->second;
        program_.name = plan_.contains("name") && plan_["name"].is_string() ? plan_["name"].get<std::string>() : name;
        program_.in_place = plan_.contains("inplace") && plan_["inplace"] == true;
        if (const std::string protocol = plan_.contains("protocol") ? word(plan_, "protocol", "the plan") : "Simple";
            protocol != "Simple") {
            fail(fmt::format("'protocol' is '{}'; plans of protocol Simple are read", protocol));
        }
    }

    void rank_head(const Json& gpu) {
        const std::string what = fmt::format("gpu {}", program_.ranks.size());
        if (number(gpu, "id", kMostRanks, what) != program_.ranks.size()) {
            fail(fmt::format("the next gpu is {}", program_.ranks.size()));
        }
        ProgramRank rank;
        const char* const names[] = {"input_chunks", "output_chunks", "scratch_chunks"};
        for (std::size_t i = 0; i < 3; ++i) {
            rank.chunks[i] = number(gpu, names[i], kMostChunks, what);
        }
        if (rank.chunks[1] == 0 && program_.in_place) {
            rank.chunks[1] = rank.chunks[0];
        }
        rank.blocks.resize(list(gpu, "threadblocks", what).size());
        events_.emplace_back(rank.blocks.size());
        program_.ranks.push_back(std::move(rank));
    }

    // The entry that a thread block's own number stands for: its channels and buffers are lists of places in those of its gpu.
    const Json& own_entry(const char* of_block, const char* type_key, const char* ids, const std::string& type,
                          std::uint32_t number, std::uint32_t& place) const {
        const Json& block = plan_["gpus"][rank_]["threadblocks"][block_];
        for (const Json& one : block.contains(of_block) ? block[of_block] : Json::array()) {
            if (one.is_object() && one.value(type_key, "") == type && one.contains(ids) && one[ids].is_array() &&
                number < one[ids].size() && one[ids][number].is_number_unsigned()) {
                place = one[ids][number].get<std::uint32_t>();
                return one;
            }
        }
        fail(fmt::format("{}: its '{}' have no number {} of type {}", what_, of_block, number, type));
    }

    // The rank at the other end of a channel of this thread block, and which of the channels between the two it is.
    std::pair<std::uint32_t, std::uint32_t> channel(const Json& op, std::uint32_t number) const {
        const std::string type = word(op, "channel_type", what_);
        std::uint32_t place = 0;
        (void)own_entry("channels", "channel_type", "channel_ids", type, number, place);
        const Json& gpu = plan_["gpus"][rank_];
        for (const Json& one : list(gpu, "channels", where())) {
            const std::string own = one.is_object() ? one.value("channel_type", one.value("type", "")) : "";
            if (own == type && one.contains("connected_to") && place < one["connected_to"].size()) {
                const Json& peers = one["connected_to"];
                const auto peer = peers[place];
                if (!peer.is_number_unsigned() || peer.get<std::uint64_t>() >= program_.ranks.size() ||
                    peer.get<std::uint64_t>() == rank_) {
                    fail(fmt::format("{}: channel {} is connected to {}, which is no other gpu", what_, place,
                                     peer.dump()));
                }
                const auto before = std::count(peers.begin(), peers.begin() + place, peer);
                const auto nth = static_cast<std::uint32_t>(2 * before + (type == "port" ? 1 : 0));
                return {peer.get<std::uint32_t>(), nth};
            }
        }
        fail(fmt::format("{}: the gpu has no channel {} of type {}", what_, place, type));
    }

    // What an entry of src_buff or dst_buff names.
    Chunks chunks(const Json& op, const Json& one) const {
        Chunks out;
        out.slot.offset = number(one, "index", kMostChunks, what_ + ": each buffer");
        out.count = number(one, "size", kMostChunks, what_ + ": each buffer");
        std::string name;
        if (one.contains("buffer_id")) {
            std::uint32_t place = 0;
            (void)own_entry("remote_buffer_refs", "access_channel_type", "remote_buffer_ids",
                            word(op, "channel_type", what_), number(one, "buffer_id", kMostChunks, what_), place);
            const Json& buffers = list(plan_["gpus"][rank_], "remote_buffers", where());
            if (place >= buffers.size()) {
                fail(fmt::format("{}: the gpu has no remote buffer {}", what_, place));
            }
            out.rank = number(buffers[place], "rank", kMostRanks, what_ + ": a remote buffer");
            name = word(buffers[place], "type", what_ + ": a remote buffer");
            if (out.rank >= program_.ranks.size() || out.rank == rank_) {
                fail(fmt::format("{}: remote buffer {} is of gpu {}, which is no other one", what_, place, out.rank));
            }
        } else {
            out.rank = rank_;
            name = word(one, "type", what_ + ": each buffer");
        }
        const auto* row = std::find(kBufferNames.begin(), kBufferNames.end(), name);
        if (row == kBufferNames.end() || out.count == 0) {
            fail(fmt::format("{}: a buffer has a type i, o or s and a size from 1 on", what_));
        }
        out.slot.buffer = static_cast<Buffer>(row - kBufferNames.begin());
        return out;
    }
    std::vector<Chunks> buffers(const Json& op, const char* key) const {
        std::vector<Chunks> out;
        for (const Json& one : list(op, key, what_)) {
            out.push_back(chunks(op, one));
        }
        if (out.empty()) {
            fail(fmt::format("{}: '{}' is empty", what_, key));
        }
        return out;
    }

    [[nodiscard]] std::vector<ProgramStep>& steps(std::uint32_t rank, std::uint32_t block) {
        return program_.ranks[rank].blocks[block].steps;
    }
    StepId add(std::uint32_t rank, std::uint32_t block, ProgramStep step) {
        step.line = line();
        steps(rank, block).push_back(std::move(step));
        return {block, static_cast<std::uint32_t>(steps(rank, block).size() - 1)};
    }
    [[nodiscard]] std::optional<StepId> last() const {
        const auto& own = program_.ranks[rank_].blocks[block_].steps;
        return own.empty() ? std::nullopt : std::optional(StepId{block_, static_cast<std::uint32_t>(own.size() - 1)});
    }
    [[nodiscard]] std::vector<StepId> after_last() const {
        const std::optional<StepId> one = last();
        return one ? std::vector{*one} : std::vector<StepId>();
    }
    StepId add_wait(std::vector<StepId> after) {
        return add(rank_, block_, {StepKind::wait, {}, {}, 1, std::move(after), 0});
    }
    void note(Event event) {
        event.place = what_;
        event.line = line();
        events_[rank_][block_].push_back(std::move(event));
    }

    // The block of a rank that moves what a thread block puts or gets.
    std::uint32_t mover(std::uint32_t at, std::uint32_t from, std::uint32_t to) {
        const bool sends = at == from;
        const auto [found, fresh] = movers_.try_emplace({at, rank_, block_, from, to},
                                                        static_cast<std::uint32_t>(program_.ranks[at].blocks.size()));
        if (fresh) {
            ProgramBlock block;
            (sends ? block.send_to : block.receive_from) = sends ? to : from;
            block.channel =
                channels_.try_emplace({rank_, block_}, static_cast<std::uint32_t>(channels_.size())).first->second;
            program_.ranks[at].blocks.push_back(std::move(block));
        }
        return found->second;
    }

    void put(const Chunks& from, const Chunks& to, bool waits) {
        same_size(from, to);
        if (from.rank != rank_ || to.rank == rank_) {
            fail(fmt::format("{}: it puts from a buffer of its own into a remote one", what_));
        }
        const StepId sent = add(rank_, mover(rank_, rank_, to.rank),
                                {StepKind::send, from.slot, from.slot, from.count, after_last(), 0});
        const StepId received =
            add(to.rank, mover(to.rank, rank_, to.rank), {StepKind::receive, to.slot, to.slot, to.count, {}, 0});
        note({Event::Kind::access, received, to.rank, 0, 0, std::nullopt, "", 0});
        arrived_[{rank_, block_, to.rank}] = received;
        if (waits) {
            (void)add_wait({sent});
        } else {
            pending_[{rank_, block_}].push_back(sent);
        }
    }

    // What comes is kept, or added to `source` and kept.
    void get(StepKind kind, const Chunks& from, ProgramSlot source, const Chunks& to) {
        same_size(from, to);
        if (from.rank == rank_ || to.rank != rank_) {
            fail(fmt::format("{}: it reads a remote buffer into one of its own", what_));
        }
        const StepId sent = add(from.rank, mover(from.rank, from.rank, rank_),
                                {StepKind::send, from.slot, from.slot, from.count, {}, 0});
        note({Event::Kind::access, sent, from.rank, 0, 0, std::nullopt, "", 0});
        const StepId received =
            add(rank_, mover(rank_, from.rank, rank_), {kind, source, to.slot, to.count, after_last(), 0});
        (void)add_wait({received});
    }

    void same_size(const Chunks& a, const Chunks& b) const {
        if (a.count != b.count) {
            fail(fmt::format("{}: its buffers have {} and {} chunks", what_, a.count, b.count));
        }
    }

    static bool same(const Chunks& a, const Chunks& b) {
        return a.rank == b.rank && a.slot.buffer == b.slot.buffer && a.slot.offset == b.slot.offset;
    }

    void local(StepKind kind, const Chunks& from, const Chunks& to) {
        same_size(from, to);
        if (from.rank != rank_ || to.rank != rank_) {
            fail(fmt::format("{}: it works on buffers of its own", what_));
        }
        (void)add(rank_, block_, {kind, from.slot, to.slot, to.count, {}, 0});
    }

    // re, rre, res and rres: the sum of all sources, in the first target and then in the remote ones.
    void reduce(const Json& op, bool reads, bool sends) {
        std::vector<Chunks> from = buffers(op, "src_buff");
        const std::vector<Chunks> to = buffers(op, "dst_buff");
        // The target comes first where it is a source too: what it holds is not written over.
        const auto own = std::find_if(from.begin(), from.end(), [&](const Chunks& one) { return same(one, to[0]); });
        std::rotate(from.begin(), own != from.end() ? own : from.begin(), own != from.end() ? own + 1 : from.begin());
        if (from.size() < 2 || from[0].rank != rank_ || (!sends && to.size() > 1)) {
            fail(fmt::format("{}: it adds one or more buffers to one of its own, into one of its own", what_));
        }
        bool kept = same(from[0], to[0]);
        for (std::size_t i = 1; i < from.size(); ++i) {
            if (reads && from[i].rank != rank_) {
                get(StepKind::receive_add, from[i], kept ? to[0].slot : from[0].slot, to[0]);
            } else {
                if (!kept) {
                    local(StepKind::copy, from[0], to[0]);
                }
                local(StepKind::add, from[i], to[0]);
            }
            kept = true;
        }
        for (std::size_t i = 1; i < to.size(); ++i) {
            put(to[0], to[i], true);
        }
    }

    void signal(const Json& op) {
        for (const Json& id : list(op, "channel_ids", what_)) {
            const auto [peer, nth] = channel(op, id.is_number_unsigned() ? id.get<std::uint32_t>() : 0);
            Signal one{block_, last(), {}, what_, line(), false};
            if (const auto put = arrived_.find({rank_, block_, peer}); put != arrived_.end()) {
                one.arrived.push_back(put->second);
            }
            signals_[{rank_, peer, nth}].push_back(std::move(one));
        }
    }

    void wait(const Json& op) {
        for (const Json& id : list(op, "channel_ids", what_)) {
            const auto [peer, nth] = channel(op, id.is_number_unsigned() ? id.get<std::uint32_t>() : 0);
            note({Event::Kind::wait, add_wait({}), peer, nth, 0, std::nullopt, "", 0});
        }
    }

    void operation(const Json& op) {
        ++seen_ops_;
        what_ = fmt::format("{}, op {}", where(), op_);
        const std::string name = word(op, "name", what_);
        what_ += fmt::format(" ({})", name);
        if (name == "nop") {
            return;
        }
        if (name == "signal" || name == "rlxsignal") {
            signal(op);
        } else if (name == "wait" || name == "rlxwait") {
            wait(op);
        } else if (name == "flush") {
            (void)add_wait(std::exchange(pending_[{rank_, block_}], {}));
        } else if (name == "put" || name == "pws" || name == "pwsf") {
            const std::vector<Chunks> from = buffers(op, "src_buff");
            const std::vector<Chunks> to = buffers(op, "dst_buff");
            for (std::size_t i = 0; i < to.size(); ++i) {
                put(from[std::min(i, from.size() - 1)], to[i], word(op, "channel_type", what_) != "port");
            }
            if (name != "put") {
                signal(op);
            }
            if (name == "pwsf") {
                (void)add_wait(std::exchange(pending_[{rank_, block_}], {}));
            }
        } else if (name == "get" || name == "copy") {
            const std::vector<Chunks> from = buffers(op, "src_buff");
            const std::vector<Chunks> to = buffers(op, "dst_buff");
            for (std::size_t i = 0; i < to.size(); ++i) {
                const Chunks& source = from[std::min(i, from.size() - 1)];
                name == "get" ? get(StepKind::receive, source, to[i].slot, to[i])
                              : local(StepKind::copy, source, to[i]);
            }
        } else if (name == "re" || name == "res" || name == "rre" || name == "rres") {
            reduce(op, name[1] == 'r', name.back() == 's');
        } else if (name == "barrier") {
            const std::optional<StepId> before = last();
            note({Event::Kind::barrier, add_wait({}), 0, number(op, "barrier_id", kMostChunks, what_),
                  number(op, "num_threadblocks", kMostChunks, what_), before, "", 0});
        } else {
            fail(fmt::format(
                "{}: it is not read here; signal, wait, put, pws, pwsf, get, flush, copy, re, res, rre, rres, "
                "barrier and nop are",
                what_));
        }
    }

    // All thread blocks of a rank together: what each has seen of other ranks by waits, and what depends on it.
    void follow_signals(std::uint32_t rank) {
        std::vector<std::vector<Event>>& blocks = events_[rank];
        std::vector<std::size_t> at(blocks.size(), 0);
        std::vector<Seen> seen(blocks.size());
        for (bool moved = true; moved;) {
            moved = false;
            for (std::uint32_t b = 0; b < blocks.size(); ++b) {
                for (; at[b] < blocks[b].size() && blocks[b][at[b]].kind != Event::Kind::barrier; ++at[b]) {
                    follow(rank, blocks[b][at[b]], seen[b]);
                    moved = true;
                }
            }
            moved = pass_barrier(rank, at, seen) || moved;
        }
        for (std::uint32_t b = 0; b < blocks.size(); ++b) {
            if (at[b] < blocks[b].size()) {
                const Event& event = blocks[b][at[b]];
                fail_at(event.line, fmt::format("{}: it waits for ever: other thread blocks never come to the barrier",
                                                event.place));
            }
        }
    }

    void follow(std::uint32_t rank, const Event& event, Seen& seen) {
        if (event.kind == Event::Kind::wait) {
            std::vector<Signal>& all = signals_[{event.peer, rank, event.channel}];
            const auto next = std::find_if(all.begin(), all.end(), [](const Signal& one) { return !one.taken; });
            if (next == all.end()) {
                fail_at(event.line, fmt::format("{}: it waits for ever: gpu {} sends no more signals over that channel",
                                                event.place, event.peer));
            }
            next->taken = true;
            std::vector<StepId>& after = steps(rank, event.step.block)[event.step.step].after;
            after.insert(after.end(), next->arrived.begin(), next->arrived.end());
            if (next->done) {
                seen[{event.peer, next->block}] = *next->done;
            }
            return;
        }
        for (const auto& [who, done] : seen) {
            if (who.first == event.peer) {
                steps(event.peer, event.step.block)[event.step.step].after.push_back(done);
            }
        }
    }

    // The thread blocks that all stand at one barrier go on.
    bool pass_barrier(std::uint32_t rank, std::vector<std::size_t>& at, std::vector<Seen>& seen) {
        std::vector<std::vector<Event>>& blocks = events_[rank];
        std::map<std::uint32_t, std::vector<std::uint32_t>> there;
        for (std::uint32_t b = 0; b < blocks.size(); ++b) {
            if (at[b] < blocks[b].size()) {
                there[blocks[b][at[b]].channel].push_back(b);
            }
        }
        bool passed = false;
        for (const auto& [number, all] : there) {
            if (all.size() < blocks[all[0]][at[all[0]]].parties) {
                continue;
            }
            Seen together;
            for (const std::uint32_t b : all) {
                for (const auto& [who, done] : seen[b]) {
                    const auto known = together.try_emplace(who, done).first;
                    known->second = known->second.step < done.step ? done : known->second;
                }
            }
            for (const std::uint32_t b : all) {
                const StepId own = blocks[b][at[b]].step;
                for (const std::uint32_t other : all) {
                    if (const auto& before = blocks[other][at[other]].last; other != b && before) {
                        steps(rank, own.block)[own.step].after.push_back(*before);
                    }
                }
            }
            for (const std::uint32_t b : all) {
                seen[b] = together;
                ++at[b];
            }
            passed = true;
        }
        return passed;
    }

    // As MSCCL has it: what a step depends on beside one other stands in steps without work before it.
    CollectiveProgram one_dependency_a_step() {
        for (ProgramRank& rank : program_.ranks) {
            std::vector<std::vector<std::uint32_t>> places;
            for (ProgramBlock& block : rank.blocks) {
                places.emplace_back();
                std::vector<ProgramStep> all;
                for (ProgramStep& step : block.steps) {
                    for (; step.after.size() > 1; step.after.pop_back()) {
                        all.push_back({StepKind::wait, {}, {}, 1, {step.after.back()}, step.line});
                    }
                    places.back().push_back(static_cast<std::uint32_t>(all.size()));
                    all.push_back(std::move(step));
                }
                block.steps = std::move(all);
            }
            for (ProgramBlock& block : rank.blocks) {
                for (ProgramStep& step : block.steps) {
                    for (StepId& other : step.after) {
                        other.step = places[other.block][other.step];
                    }
                }
            }
        }
        return std::move(program_);
    }

    Json plan_;
    std::vector<int> lines_;
    CollectiveProgram program_;
    std::uint32_t rank_ = 0, block_ = 0, op_ = 0;
    std::size_t seen_ops_ = 0;
    std::string what_;
    std::vector<std::vector<std::vector<Event>>> events_;  ///< by rank and thread block
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::vector<Signal>>
        signals_;  ///< from, to, channel
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, StepId>
        arrived_;  ///< the last put by rank, block, to
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<StepId>> pending_;  ///< puts that no flush waited for
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>, std::uint32_t>
        movers_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t>
        channels_;  ///< of movers, by rank and thread block
};

}  // namespace

CollectiveProgram read_msccl_plus(const std::string& text, const std::string& file) {
    return PlanReader(text, file).read();
}

}  // namespace orrery::collective
