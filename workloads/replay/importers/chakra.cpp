// Chakra execution traces: a stream of length-prefixed protobuf messages, a head and then nodes, one file a rank.
//
// Messages are read field by field and not by a schema: attributes carry integers in any of protobuf's encodings, and files of
// several versions of the format are around.
// Source: MLCommons Chakra, schema/protobuf/et_def.proto.

#include "workloads/replay/importers/chakra.hpp"
#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"
#include "sim/config/units.hpp"
#include "sim/record/json_text.hpp"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/unknown_field_set.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <filesystem>
#include <unordered_map>

namespace orrery::replay {

namespace {

using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;
using Json = nlohmann::json;

constexpr int kMostMessage = 64 << 20;
constexpr std::size_t kMostNodes = 20'000'000;

// Field numbers of et_def.proto.
enum NodeField {
    kId = 1,
    kName,
    kType,
    kControlDependencies,
    kDataDependencies,
    kStart,
    kDuration,
    kInputs,
    kOutputs,
    kAttributes
};
enum NodeType : std::uint64_t { kMetadata = 1, kLoad, kStore, kCompute, kSend, kReceive, kCollective };
// By CollectiveCommType: all-reduce, reduce, all-gather, gather, scatter, broadcast, all-to-all, reduce-scatter, its block
// form, barrier. One-to-all and all-to-one operations move at most what the matching all-to-all ones do.
constexpr std::array<CollectiveOp, 10> kCollectives = {
    CollectiveOp::all_reduce,     CollectiveOp::reduce_scatter, CollectiveOp::all_gather, CollectiveOp::all_gather,
    CollectiveOp::all_gather,     CollectiveOp::all_gather,     CollectiveOp::all_to_all, CollectiveOp::reduce_scatter,
    CollectiveOp::reduce_scatter, CollectiveOp::all_reduce};

constexpr double kBarrier = 9;

double zigzag(std::uint64_t value) {
    return static_cast<double>(static_cast<std::int64_t>(value >> 1U) ^ -static_cast<std::int64_t>(value & 1U));
}

// The value of an attribute as a number, whatever its encoding (oneof fields 3 to 27); 0 for other kinds.
double number_of(const UnknownField& field) {
    switch (field.type()) {
        case UnknownField::TYPE_VARINT: {
            const bool sint = field.number() == 15 || field.number() == 17;
            const bool is_signed = field.number() == 7 || field.number() == 9;
            return sint        ? zigzag(field.varint())
                   : is_signed ? static_cast<double>(static_cast<std::int64_t>(field.varint()))
                               : static_cast<double>(field.varint());
        }
        case UnknownField::TYPE_FIXED32:
            return field.number() == 5    ? static_cast<double>(std::bit_cast<float>(field.fixed32()))
                   : field.number() == 23 ? static_cast<double>(static_cast<std::int32_t>(field.fixed32()))
                                          : static_cast<double>(field.fixed32());
        case UnknownField::TYPE_FIXED64:
            return field.number() == 3    ? std::bit_cast<double>(field.fixed64())
                   : field.number() == 25 ? static_cast<double>(static_cast<std::int64_t>(field.fixed64()))
                                          : static_cast<double>(field.fixed64());
        default:
            return 0;
    }
}

struct Node {
    std::uint64_t id = 0;
    std::uint64_t type = 0;
    std::string name;
    std::string input_values;
    std::uint64_t duration_us = 0;
    std::vector<std::uint64_t> after;
    std::map<std::string, double> numbers;
    std::map<std::string, std::string> texts;

    [[nodiscard]] double number(const char* key, double otherwise = 0) const {
        const auto found = numbers.find(key);
        return found == numbers.end() ? otherwise : found->second;
    }
};

class RankReader {
  public:
    RankReader(const std::string& bytes, const std::string& name, std::uint32_t rank,
               std::map<std::string, std::vector<std::uint32_t>> groups, const ChakraOptions& options,
               ReplayTrace& trace, ImportNotes& notes)
        : bytes_(bytes),
          file_(name),
          rank_(rank),
          groups_(std::move(groups)),
          options_(options),
          trace_(trace),
          notes_(notes) {}

    void run() {
        read_messages();
        place();
    }

  private:
    [[noreturn]] void fail(std::size_t at, const std::string& text) const {
        // The head is record 1, and nodes follow it.
        const auto nodes = std::count_if(places_.begin(), places_.end(), [&](std::size_t place) { return place < at; });
        throw ConfigError(
            {Diagnostic{file_, 0, 0, fmt::format("record {} (byte {}): {}", nodes + (at > 0 ? 2 : 1), at, text),
                        ErrorCode::malformed_trace}});
    }

    void read_messages() {
        std::size_t at = 0;
        bool head = true;
        while (at < bytes_.size()) {
            google::protobuf::io::CodedInputStream in(reinterpret_cast<const std::uint8_t*>(bytes_.data()) + at,
                                                      static_cast<int>(std::min<std::size_t>(bytes_.size() - at, 16)));
            std::uint32_t length = 0;
            if (!in.ReadVarint32(&length)) {
                fail(at, "the length of a message is cut off");
            }
            const std::size_t start = at + static_cast<std::size_t>(in.CurrentPosition());
            if (length > kMostMessage || length > bytes_.size() - start) {
                fail(at, fmt::format("a message of {} bytes, but {} are left: the file is cut off or no Chakra trace",
                                     length, bytes_.size() - start));
            }
            UnknownFieldSet message;
            if (!message.ParseFromArray(bytes_.data() + start, static_cast<int>(length))) {
                fail(start, "this is no protobuf message");
            }
            // The first message is the head: a version and attributes.
            if (!head) {
                if (nodes_.size() == kMostNodes) {
                    fail(at, fmt::format("more than {} nodes", kMostNodes));
                }
                read_node(message, start);
            }
            head = false;
            at = start + length;
        }
        if (nodes_.empty()) {
            fail(0, bytes_.empty()
                        ? "expected a Chakra execution trace (protobuf messages, each behind its length), and the "
                          "file is empty"
                        : "expected nodes behind the head of a Chakra execution trace, and found none");
        }
    }

    static void read_integers(const UnknownField& field, std::vector<std::uint64_t>& out) {
        if (field.type() == UnknownField::TYPE_VARINT) {
            out.push_back(field.varint());
        } else if (field.type() == UnknownField::TYPE_LENGTH_DELIMITED) {  // packed
            const std::string& bytes = field.length_delimited();
            google::protobuf::io::CodedInputStream in(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                                      static_cast<int>(bytes.size()));
            std::uint64_t value = 0;
            while (in.ReadVarint64(&value)) {
                out.push_back(value);
            }
        }
    }

    void read_attribute(const std::string& bytes, Node& node) const {
        UnknownFieldSet message;
        if (!message.ParseFromString(bytes)) {
            return;
        }
        std::string key;
        for (int i = 0; i < message.field_count(); ++i) {
            const UnknownField& field = message.field(i);
            if (field.number() == 1 && field.type() == UnknownField::TYPE_LENGTH_DELIMITED) {
                key = field.length_delimited();
            }
        }
        for (int i = 0; i < message.field_count(); ++i) {
            const UnknownField& field = message.field(i);
            if (field.number() == 29 && field.type() == UnknownField::TYPE_LENGTH_DELIMITED) {
                node.texts[key] = field.length_delimited();
            } else if (field.number() >= 3 && field.type() != UnknownField::TYPE_LENGTH_DELIMITED) {
                node.numbers[key] = number_of(field);
            }
        }
    }

    void read_node(const UnknownFieldSet& message, std::size_t at) {
        Node node;
        for (int i = 0; i < message.field_count(); ++i) {
            const UnknownField& field = message.field(i);
            const bool text = field.type() == UnknownField::TYPE_LENGTH_DELIMITED;
            const bool integer = field.type() == UnknownField::TYPE_VARINT;
            if (field.number() == kId && integer) {
                node.id = field.varint();
            } else if (field.number() == kName && text) {
                node.name = field.length_delimited();
            } else if (field.number() == kType && integer) {
                node.type = field.varint();
            } else if (field.number() == kControlDependencies || field.number() == kDataDependencies) {
                read_integers(field, node.after);
            } else if (field.number() == kDuration && integer) {
                node.duration_us = field.varint();
            } else if (field.number() == kInputs && text) {
                UnknownFieldSet inputs;
                if (inputs.ParseFromString(field.length_delimited()) && inputs.field_count() > 0 &&
                    inputs.field(0).number() == 1 && inputs.field(0).type() == UnknownField::TYPE_LENGTH_DELIMITED) {
                    node.input_values = inputs.field(0).length_delimited();
                }
            } else if (field.number() == kAttributes && text) {
                read_attribute(field.length_delimited(), node);
            }
        }
        if (node.name.find("process_group:init") != std::string::npos) {
            read_process_groups(node.input_values);
        }
        if (!index_.emplace(node.id, nodes_.size()).second) {
            fail(at, fmt::format("node {} comes twice", node.id));
        }
        nodes_.push_back(std::move(node));
        places_.push_back(at);
    }

    // A JSON list of groups with name and ranks; an empty list of ranks is all of them.
    void read_process_groups(const std::string& text) {
        if (!json_depth_problem(text).empty()) {
            return;
        }
        const Json json = Json::parse(text, nullptr, false);
        if (!json.is_array()) {
            return;
        }
        for (const Json& entry : json) {
            const Json* name = entry.is_object() && entry.contains("pg_name") ? &entry["pg_name"] : nullptr;
            if (name == nullptr || !entry.contains("ranks") || !entry["ranks"].is_array()) {
                continue;
            }
            std::vector<std::uint32_t> members;
            for (const Json& member : entry["ranks"]) {
                if (member.is_number_unsigned() && member.get<std::uint64_t>() < trace_.ranks) {
                    members.push_back(member.get<std::uint32_t>());
                }
            }
            groups_[name->is_string() ? name->get<std::string>() : name->dump()] = std::move(members);
        }
    }

    [[nodiscard]] std::uint32_t group_of(const Node& node, std::size_t at) {
        const auto named = node.texts.find("pg_name");
        const double number = node.number("pg_name", -1);  // some writers keep it as a number
        const std::string name = named != node.texts.end() ? named->second
                                 : number >= 0             ? fmt::format("{:.0f}", number)
                                                           : std::string();
        // Made once for each name: a group may have as many members as the job has ranks.
        if (const auto known = numbers_.find(name); known != numbers_.end()) {
            return known->second;
        }
        ReplayGroup group;
        if (!name.empty()) {
            const auto found = groups_.find(name);
            if (found == groups_.end()) {
                fail(at, fmt::format(
                             "process group '{}' of node {} is nowhere described: expected it in the trace itself, or "
                             "beside it in NAME.json or comm_group.json, such as {{\"{}\": [0, 1]}}",
                             name, node.id, name));
            }
            group.members = found->second;
        }
        if (group.members.empty()) {
            for (std::uint32_t r = 0; r < trace_.ranks; ++r) {
                group.members.push_back(r);
            }
        }
        group.size = static_cast<std::uint32_t>(group.members.size());
        ORRERY_ASSERT(group.size >= 1);  // a job has ranks
        return numbers_[name] = trace_.group(group);
    }

    void note_unknown_size(bool barrier) {
        if (barrier) {
            notes_.assumed("barriers as all-reduces of 1 B");
        } else if (options_.assume_bytes > 0) {
            notes_.assumed(fmt::format("collectives of unknown size, {} each",
                                       pretty_quantity(options_.assume_bytes, Dimension::bytes)));
        } else {
            notes_.left_out("sizes of collectives, which replay as recorded alone (or --assume-bytes)");
        }
    }

    ReplayOp op_of(const Node& node, std::size_t at) {
        ReplayOp op;
        op.rank = rank_;
        op.name = trace_.name(node.name);
        const double duration = static_cast<double>(node.duration_us) * 1e-6;
        op.duration_s = node.duration_us > 0 ? duration : ReplayOp::kUnknown;
        const auto sized = [&](const char* key) {
            const double value = node.number(key);
            if (!(value >= 0)) {
                fail(at, fmt::format("node {} has a {} {}: {:g}", node.id, value < 0 ? "negative" : "meaningless", key,
                                     value));
            }
            return std::min(value, 1e18);
        };
        switch (node.type) {
            case kCompute:
                op.kind = node.number("is_cpu_op") != 0 ? ReplayKind::host : ReplayKind::kernel;
                op.flops = std::min(sized("num_ops"), 1e24);
                op.bytes = sized("tensor_size");
                break;
            case kLoad:
            case kStore:
                op.kind = ReplayKind::copy;
                op.bytes = sized("tensor_size");
                break;
            case kSend:
            case kReceive: {
                op.kind = node.type == kSend ? ReplayKind::send : ReplayKind::recv;
                op.bytes = sized("comm_size");
                const double peer = node.number(node.type == kSend ? "comm_dst" : "comm_src");
                if (!(peer >= 0 && peer < trace_.ranks)) {
                    fail(at, fmt::format("node {} names peer {:g} of {} ranks", node.id, peer, trace_.ranks));
                }
                op.peer = static_cast<std::uint32_t>(peer);
                op.tag = static_cast<std::uint32_t>(std::clamp(node.number("comm_tag"), 0.0, 4e9));
                break;
            }
            case kCollective: {
                op.kind = ReplayKind::collective;
                op.bytes = sized("comm_size");
                op.group = group_of(node, at);
                const double type = node.number("comm_type", -1);
                if (!(type >= 0 && type < static_cast<double>(kCollectives.size()))) {
                    fail(at, fmt::format("node {} has no collective type that is known here", node.id));
                }
                op.collective = kCollectives[static_cast<std::size_t>(type)];
                if (op.bytes == 0) {
                    op.bytes = type == kBarrier ? 1 : options_.assume_bytes;
                    note_unknown_size(type == kBarrier);
                }
                break;
            }
            default:  // metadata and what later versions add take no time
                op.kind = ReplayKind::host;
                op.duration_s = 0;
        }
        op.lane = trace_.lane(op.kind == ReplayKind::host     ? "host"
                              : op.kind == ReplayKind::kernel ? "compute"
                              : op.kind == ReplayKind::copy   ? "memory"
                                                              : "network");
        return op;
    }

    // Nodes in an order in which both kinds of dependencies come first.
    void place() {
        std::vector<std::uint32_t> missing(nodes_.size(), 0);
        std::vector<std::vector<std::uint32_t>> later(nodes_.size());
        for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
            for (const std::uint64_t before : nodes_[i].after) {
                const auto found = index_.find(before);
                if (found == index_.end()) {
                    if (!options_.allow_missing) {
                        fail(places_[i], fmt::format("node {} waits for node {}, which is not there; --allow-missing "
                                                     "takes it for done",
                                                     nodes_[i].id, before));
                    }
                    notes_.left_out("waits for nodes that are not in the file");
                    continue;
                }
                later[found->second].push_back(i);
                ++missing[i];
            }
        }
        std::vector<std::uint32_t> ready;
        for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
            if (missing[i] == 0) {
                ready.push_back(i);
            }
        }
        std::vector<std::uint32_t> placed(nodes_.size(), 0);
        for (std::size_t next = 0; next < ready.size(); ++next) {
            const std::uint32_t i = ready[next];
            std::vector<std::uint32_t> waits;
            for (const std::uint64_t before : nodes_[i].after) {
                const auto found = index_.find(before);
                if (found != index_.end()) {
                    waits.push_back(placed[found->second]);
                }
            }
            ORRERY_ASSERT(missing[i] == 0);  // what it waits for is in the trace
            placed[i] = trace_.add(op_of(nodes_[i], places_[i]), std::move(waits));
            for (const std::uint32_t waiting : later[i]) {
                if (--missing[waiting] == 0) {
                    ready.push_back(waiting);
                }
            }
        }
        notes_.read("nodes", nodes_.size());
        ORRERY_ASSERT(ready.size() <= nodes_.size() && places_.size() == nodes_.size());
        if (ready.size() < nodes_.size()) {
            fail(0, fmt::format("{} nodes wait for each other in a circle", nodes_.size() - ready.size()));
        }
    }

    const std::string& bytes_;
    const std::string& file_;
    std::uint32_t rank_;
    std::map<std::string, std::vector<std::uint32_t>> groups_;
    std::map<std::string, std::uint32_t> numbers_;  ///< of groups in the trace, by name
    ChakraOptions options_;
    ReplayTrace& trace_;
    ImportNotes& notes_;
    std::vector<Node> nodes_;
    std::vector<std::size_t> places_;  ///< byte of each node
    std::unordered_map<std::uint64_t, std::uint32_t> index_;
};

// Groups of ASTRA-sim's file beside the traces: {"1": [0, 1], ...}.
std::map<std::string, std::vector<std::uint32_t>> groups_beside(const std::string& path) {
    std::map<std::string, std::vector<std::uint32_t>> groups;
    if (!std::filesystem::exists(path)) {
        return groups;
    }
    const std::string text = read_input(path);
    Json json;
    require_shallow_json(text, path);
    try {
        json = Json::parse(text);
    } catch (const Json::exception& problem) {
        throw ConfigError({json_problem(path, problem)});
    }
    if (!json.is_object()) {
        throw ConfigError(
            {Diagnostic{path, 1, 1, "is no JSON map from groups to lists of ranks", ErrorCode::malformed_trace}});
    }
    for (const auto& [name, members] : json.items()) {
        for (const Json& member : members.is_array() ? members : Json::array()) {
            if (!member.is_number_unsigned() || member.get<std::uint64_t>() > 1U << 20U) {
                throw ConfigError({diagnostic_at(path, text, std::min(text.find('"' + name + '"'), text.size()),
                                                 fmt::format("group '{}' is no list of ranks", name))});
            }
            groups[name].push_back(member.get<std::uint32_t>());
        }
    }
    return groups;
}

// A file that is missing would make all that come behind it no ranks of the job.
void require_no_later_rank(const std::string& path, const std::filesystem::path& folder, const std::string& base,
                           const std::string& extension, std::size_t ranks) {
    std::error_code ignored;
    const std::filesystem::path here = folder.empty() ? std::filesystem::path(".") : folder;
    for (const auto& entry : std::filesystem::directory_iterator(here, ignored)) {
        const std::string name = entry.path().filename().string();
        const std::string start = base + ".";
        if (name.size() <= start.size() + extension.size() || !name.starts_with(start) || !name.ends_with(extension)) {
            continue;
        }
        double rank = 0;
        if (parse_number(name.substr(start.size(), name.size() - start.size() - extension.size()), rank) &&
            rank >= static_cast<double>(ranks)) {
            throw ConfigError({Diagnostic{path, 0, 0,
                                          fmt::format("there is a trace of rank {:.0f} beside it, but none of rank {}: "
                                                      "{}.{}{} is missing",
                                                      rank, ranks, base, ranks, extension),
                                          ErrorCode::malformed_trace}});
        }
    }
}

Imported import_chakra(const ImportInput& input) {
    const std::string& path = input.path();
    const ChakraOptions options{input.has("allow-missing"), input.bytes_option("assume-bytes")};
    ImportNotes notes;
    ReplayTrace trace;
    trace.same_program = false;
    trace.meta["source"] = "chakra";
    // NAME.3.et: all ranks lie beside it. Any other name is a trace of one rank.
    const std::string stem = std::filesystem::path(unpacked_name(path)).stem().string();
    const std::size_t dot = stem.rfind('.');
    const bool numbered = dot != std::string::npos && dot + 1 < stem.size() &&
                          std::all_of(stem.begin() + static_cast<std::ptrdiff_t>(dot) + 1, stem.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
    if (!numbered || input.in_memory()) {
        import_chakra_rank(input.bytes(), path, 0, {}, options, trace, notes);
        return imported_program(trace, std::move(notes));
    }
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    const std::string base = stem.substr(0, dot);
    const std::string extension =
        std::filesystem::path(unpacked_name(path)).extension().string() + path.substr(unpacked_name(path).size());
    std::vector<std::string> files;
    for (std::uint32_t rank = 0;; ++rank) {
        const std::string file = (folder / fmt::format("{}.{}{}", base, rank, extension)).string();
        if (!std::filesystem::exists(file)) {
            break;
        }
        files.push_back(file);
    }
    if (files.empty()) {
        throw ConfigError(
            {Diagnostic{path, 0, 0, "there is no trace of rank 0 beside it", ErrorCode::malformed_trace}});
    }
    require_no_later_rank(path, folder, base, extension, files.size());
    trace.ranks = static_cast<std::uint32_t>(files.size());
    // ASTRA-sim takes the file by its command line; these are the names that its examples and Chakra's tools give it.
    const std::string named = (folder / (base + ".json")).string();
    const std::string common = (folder / "comm_group.json").string();
    const auto groups = groups_beside(std::filesystem::exists(named) ? named : common);
    for (std::uint32_t rank = 0; rank < files.size(); ++rank) {
        import_chakra_rank(read_input(files[rank]), files[rank], rank, groups, options, trace, notes);
    }
    for (const ReplayGroup& group : trace.groups) {
        for (const std::uint32_t member : group.members) {
            if (member >= trace.ranks) {
                throw ConfigError({Diagnostic{
                    path, 0, 0, fmt::format("a process group names rank {} of {} ranks", member, trace.ranks),
                    ErrorCode::malformed_trace}});
            }
        }
    }
    return imported_program(trace, std::move(notes));
}

}  // namespace

void import_chakra_rank(const std::string& bytes, const std::string& name, std::uint32_t rank,
                        std::map<std::string, std::vector<std::uint32_t>> groups, const ChakraOptions& options,
                        ReplayTrace& trace, ImportNotes& notes) {
    RankReader(bytes, name, rank, std::move(groups), options, trace, notes).run();
}

extern const Importer kChakraImporter = {
    "chakra",
    "Chakra execution traces, NAME.0.et, NAME.1.et, ..., with groups in NAME.json or comm_group.json",
    {{"allow-missing", "", "nodes may wait for nodes that are not in the file; they count as done"}, kAssumeBytes},
    import_chakra};

}  // namespace orrery::replay
