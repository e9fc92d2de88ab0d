// Source of the formats: Hoefler et al., "LogGOPSim", LSAP 2010 (GOAL); MLCommons Chakra, schema/protobuf/et_def.proto.

#include "workloads/replay/program_export.hpp"

#include "sim/base/error.hpp"
#include "workloads/trace/flow_export.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>

namespace orrery::replay {

namespace {

using google::protobuf::UnknownFieldSet;

constexpr double kLargest = 9e15;  // that doubles count in ones

// The operations of a rank, as their place in the program: its own, or all where every rank runs the same.
std::vector<std::vector<std::uint32_t>> by_rank(const ReplayTrace& trace) {
    std::vector<std::vector<std::uint32_t>> out(trace.ranks);
    for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
        if (!trace.same_program) {
            out.at(trace.ops[i].rank).push_back(i);
        } else {
            for (std::vector<std::uint32_t>& rank : out) {
                rank.push_back(i);
            }
        }
    }
    return out;
}

std::span<const std::uint32_t> waits_of(const ReplayTrace& trace, const ReplayOp& op) {
    return std::span(trace.after).subspan(op.first_after, op.after_count);
}

// Errors name an operation as a reader finds it.
[[noreturn]] void refuse(const ReplayTrace& trace, const ReplayOp& op, const std::string& problem) {
    throw InfeasibleError(fmt::format("operation '{}' (number {}) of rank {} {}", trace.names.at(op.name),
                                      &op - trace.ops.data(), op.rank, problem));
}

// A time in whole units of a format.
std::uint64_t whole(const ReplayTrace& trace, const ReplayOp& op, double seconds, double unit, const char* format) {
    const double count = seconds / unit;
    const double rounded = std::round(count);
    if (!(std::abs(count - rounded) <= 1e-9 * std::max(1.0, count)) || rounded > kLargest) {
        refuse(trace, op, fmt::format("takes or waits {} s, which {} cannot say", seconds, format));
    }
    return static_cast<std::uint64_t>(rounded);
}

std::uint64_t whole_bytes(const ReplayTrace& trace, const ReplayOp& op) {
    if (op.bytes != std::floor(op.bytes) || op.bytes > kLargest) {
        refuse(trace, op, fmt::format("has {} bytes, and the format has whole ones", op.bytes));
    }
    return static_cast<std::uint64_t>(op.bytes);
}

std::string goal_line(const ReplayTrace& trace, const ReplayOp& op) {
    switch (op.kind) {
        case ReplayKind::send:
            return fmt::format("send {}b to {} tag {}", whole_bytes(trace, op), op.peer, op.tag);
        case ReplayKind::recv:
            return fmt::format("recv {}b from {} tag {}", whole_bytes(trace, op), op.peer, op.tag);
        case ReplayKind::collective:
            refuse(trace, op,
                   "is a collective, which GOAL does not have: 'orrery export goal' of a collective "
                   "scenario writes its messages");
        default:
            if (op.duration_s == ReplayOp::kUnknown) {
                refuse(trace, op, "has no time, and GOAL needs one");
            }
            return fmt::format("calc {} cpu {}", whole(trace, op, op.duration_s, 1e-9, "GOAL (whole nanoseconds)"),
                               op.lane);
    }
}

// Chakra's numbers.
enum NodeField { kId = 1, kName = 2, kType = 3, kDataDependencies = 5, kDuration = 7, kAttributes = 10 };
enum NodeType : std::uint64_t { kMetadata = 1, kLoad = 2, kCompute = 4, kSend = 5, kReceive = 6, kCollective = 7 };
enum AttributeField { kAttributeName = 1, kInt32 = 7, kInt64 = 9, kUint64 = 13, kBool = 27, kString = 29 };
const std::map<CollectiveOp, std::uint64_t>& collective_types() {
    static const std::map<CollectiveOp, std::uint64_t> kTypes = {{CollectiveOp::all_reduce, 0},
                                                                 {CollectiveOp::all_gather, 2},
                                                                 {CollectiveOp::all_to_all, 6},
                                                                 {CollectiveOp::reduce_scatter, 7}};
    return kTypes;
}

// Messages of one rank, each behind its length.
class ChakraRank {
  public:
    ChakraRank(const ReplayTrace& trace, std::uint32_t rank) : trace_(trace), rank_(rank) {
        UnknownFieldSet head;
        head.AddLengthDelimited(1, "0.0.4");
        put(head);
    }

    void add(std::uint32_t index) {
        const ReplayOp& op = trace_.ops[index];
        std::vector<std::uint64_t> after;
        for (const std::uint32_t before : waits_of(trace_, op)) {
            after.push_back(ids_.at(before));
        }
        if (op.lag_s > 0) {
            UnknownFieldSet wait;
            begin(wait, "wait", kCompute, after);
            wait.AddVarint(kDuration, micros(op, op.lag_s));
            attribute(wait, "is_cpu_op", kBool, 1);
            after = {next_++};
            put(wait);
        }
        UnknownFieldSet out;
        begin(out, trace_.names.at(op.name), type_of(op), after);
        if (op.duration_s > 0) {
            out.AddVarint(kDuration, micros(op, op.duration_s));
        } else if (op.duration_s == 0 && op.kind != ReplayKind::host) {
            refuse(trace_, op, "takes no time, which Chakra writes as a time that is not known");
        }
        describe(out, op);
        ids_[index] = next_++;
        put(out);
    }
    [[nodiscard]] std::string bytes() && { return std::move(bytes_); }
    [[nodiscard]] const std::map<std::uint32_t, std::vector<std::uint32_t>>& groups() const { return groups_; }

  private:
    [[nodiscard]] std::uint64_t micros(const ReplayOp& op, double seconds) const {
        return whole(trace_, op, seconds, 1e-6, "Chakra (whole microseconds)");
    }

    void begin(UnknownFieldSet& out, const std::string& name, NodeType type,
               const std::vector<std::uint64_t>& after) const {
        out.AddVarint(kId, next_);
        out.AddLengthDelimited(kName, name);
        out.AddVarint(kType, type);
        for (const std::uint64_t before : after) {
            out.AddVarint(kDataDependencies, before);
        }
    }

    static NodeType type_of(const ReplayOp& op) {
        switch (op.kind) {
            case ReplayKind::send:
                return kSend;
            case ReplayKind::recv:
                return kReceive;
            case ReplayKind::collective:
                return kCollective;
            case ReplayKind::copy:
                return kLoad;
            default:  // only metadata takes no time
                return op.duration_s == 0 ? kMetadata : kCompute;
        }
    }

    void describe(UnknownFieldSet& out, const ReplayOp& op) {
        switch (op.kind) {
            case ReplayKind::send:
            case ReplayKind::recv: {
                const bool sends = op.kind == ReplayKind::send;
                attribute(out, "comm_size", kInt64, whole_bytes(trace_, op));
                attribute(out, "comm_src", kInt32, sends ? rank_ : op.peer);
                attribute(out, "comm_dst", kInt32, sends ? op.peer : rank_);
                attribute(out, "comm_tag", kInt32, op.tag);
                break;
            }
            case ReplayKind::collective: {
                const auto type = collective_types().find(op.collective);
                if (type == collective_types().end()) {
                    refuse(trace_, op, "is a collective that Chakra does not have");
                }
                attribute(out, "comm_type", kInt64, type->second);
                attribute(out, "comm_size", kInt64, whole_bytes(trace_, op));
                UnknownFieldSet own;
                own.AddLengthDelimited(kAttributeName, "pg_name");
                own.AddLengthDelimited(kString, group_of(op));
                append(out, own);
                break;
            }
            case ReplayKind::copy:
                attribute(out, "tensor_size", kUint64, whole_bytes(trace_, op));
                break;
            default:
                attribute(out, "is_cpu_op", kBool, op.kind == ReplayKind::host ? 1 : 0);
                if (op.flops > 0 || op.bytes > 0) {
                    attribute(out, "num_ops", kInt64, static_cast<std::uint64_t>(std::min(op.flops, kLargest)));
                    attribute(out, "tensor_size", kUint64, whole_bytes(trace_, op));
                }
        }
    }

    // The name of the group that this rank's collective has: its first rank and number make it one of its own.
    std::string group_of(const ReplayOp& op) {
        const ReplayGroup& group = trace_.groups.at(op.group);
        std::vector<std::uint32_t> members = group.members;
        if (members.empty()) {
            const std::uint32_t block = group.size * group.stride;
            const std::uint32_t first = rank_ / block * block + rank_ % group.stride;
            for (std::uint32_t i = 0; i < group.size; ++i) {
                members.push_back(first + i * group.stride);
            }
        }
        const auto name = op.group * trace_.ranks + members.front();
        groups_[name] = std::move(members);
        return std::to_string(name);
    }

    static void append(UnknownFieldSet& out, const UnknownFieldSet& attribute) {
        std::string bytes;
        attribute.SerializeToString(&bytes);
        out.AddLengthDelimited(kAttributes, bytes);
    }
    static void attribute(UnknownFieldSet& out, const char* name, AttributeField field, std::uint64_t value) {
        UnknownFieldSet own;
        own.AddLengthDelimited(kAttributeName, name);
        own.AddVarint(field, value);
        append(out, own);
    }

    void put(const UnknownFieldSet& message) {
        std::string bytes;
        message.SerializeToString(&bytes);
        google::protobuf::io::StringOutputStream stream(&bytes_);
        google::protobuf::io::CodedOutputStream out(&stream);
        out.WriteVarint32(static_cast<std::uint32_t>(bytes.size()));
        out.WriteString(bytes);
    }

    const ReplayTrace& trace_;
    std::uint32_t rank_;
    std::uint64_t next_ = 0;
    std::map<std::uint32_t, std::uint64_t> ids_;  ///< of nodes, by operation
    std::map<std::uint32_t, std::vector<std::uint32_t>> groups_;
    std::string bytes_;
};

}  // namespace

ReplayTrace program_of(const Schedule& schedule, std::uint32_t ranks) {
    const trace::OrderedFlows flows = trace::ordered_flows(schedule);
    ReplayTrace out;
    out.meta["source"] = "orrery";
    out.ranks = ranks;
    out.same_program = false;
    const std::uint32_t lane = out.lane("network");
    struct Ends {
        std::uint32_t send, receive;
    };
    std::vector<Ends> ends;
    for (std::uint32_t row = 0; row < flows.order.size(); ++row) {
        const Message& message = schedule.messages[flows.order[row]];
        std::vector<std::uint32_t> waits;
        for (const std::uint32_t before : flows.after[row]) {
            const Message& other = schedule.messages[flows.order[before]];
            if (other.to != message.from && other.from != message.from) {
                throw InfeasibleError(fmt::format(
                    "the message of rank {} to {} waits for one of rank {} to {}, which its sender does not "
                    "see; 'orrery export flows' can say that",
                    message.from, message.to, other.from, other.to));
            }
            waits.push_back(other.to == message.from ? ends[before].receive : ends[before].send);
        }
        ReplayOp op;
        op.kind = ReplayKind::send;
        op.rank = message.from;
        op.peer = message.to;
        op.lane = lane;
        op.name = out.name("send");
        op.bytes = message.bytes;
        op.lag_s = message.delay;
        op.tag = row;
        const std::uint32_t send = out.add(op, std::move(waits));
        op.kind = ReplayKind::recv;
        std::swap(op.rank, op.peer);
        op.name = out.name("recv");
        op.lag_s = 0;
        ends.push_back({send, out.add(op, {})});
    }
    return out;
}

std::string goal_text(const ReplayTrace& trace) {
    std::string out = fmt::format("num_ranks {}\n", trace.ranks);
    const std::vector<std::vector<std::uint32_t>> ranks = by_rank(trace);
    for (std::uint32_t rank = 0; rank < trace.ranks; ++rank) {
        out += fmt::format("rank {} {{\n", rank);
        for (const std::uint32_t index : ranks[rank]) {
            const ReplayOp& op = trace.ops[index];
            // A lag before an operation is a calculation, which then waits in its place.
            const std::string own = fmt::format("l{}", index);
            const std::string first = op.lag_s > 0 ? fmt::format("w{}", index) : own;
            if (op.lag_s > 0) {
                out +=
                    fmt::format("{}: calc {}\n", first, whole(trace, op, op.lag_s, 1e-9, "GOAL (whole nanoseconds)"));
            }
            out += fmt::format("{}: {}\n", own, goal_line(trace, op));
            if (op.lag_s > 0) {
                out += fmt::format("{} requires {}\n", own, first);
            }
            for (const std::uint32_t before : waits_of(trace, op)) {
                out += fmt::format("{} requires l{}\n", first, before);
            }
        }
        out += "}\n";
    }
    return out;
}

ChakraFiles chakra_files(const ReplayTrace& trace) {
    ChakraFiles out;
    std::map<std::uint32_t, std::vector<std::uint32_t>> groups;
    const std::vector<std::vector<std::uint32_t>> ranks = by_rank(trace);
    for (std::uint32_t rank = 0; rank < trace.ranks; ++rank) {
        ChakraRank file(trace, rank);
        for (const std::uint32_t index : ranks[rank]) {
            file.add(index);
        }
        groups.insert(file.groups().begin(), file.groups().end());
        out.ranks.push_back(std::move(file).bytes());
    }
    for (const auto& [name, members] : groups) {
        out.groups += fmt::format("{}\"{}\": [{}]", out.groups.empty() ? "{" : ",\n ", name, fmt::join(members, ", "));
    }
    out.groups += out.groups.empty() ? "" : "}\n";
    return out;
}

}  // namespace orrery::replay
