// Chrome traces of PyTorch's profiler, read event by event: the file may be larger than memory would hold as a tree.

#include "sim/base/error.hpp"
#include "sim/config/units.hpp"
#include "sim/record/json_text.hpp"
#include "workloads/replay/activities.hpp"
#include "workloads/replay/importers/program.hpp"
#include "workloads/replay/work.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace orrery::replay {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostEvents = 20'000'000;
constexpr int kDeepestValue = 64;

double bytes_of_type(const std::string& type) {
    const std::pair<const char*, double> sizes[] = {{"BFloat16", 2}, {"Half", 2}, {"Float", 4}, {"Double", 8},
                                                    {"Int", 4},      {"Long", 8}, {"Short", 2}, {"Float8", 1}};
    for (const auto& [name, bytes] : sizes) {
        if (type.find(name) != std::string::npos) {
            return bytes;
        }
    }
    return 1;  // Byte, Char, Bool, ...
}

using Sizes = std::vector<double>;

// What an operator computes, from the sizes of its inputs; empty where they do not tell.
std::string work_of(const std::string& name, const std::vector<Sizes>& dims, const std::vector<std::string>& types) {
    const auto named = [&](std::initializer_list<const char*> names) {
        return std::any_of(names.begin(), names.end(), [&](const char* one) { return name == one; });
    };
    const double bytes = types.empty() ? 2 : bytes_of_type(types.front());
    const Precision precision = bytes >= 4 ? Precision::fp32 : bytes < 2 ? Precision::fp8 : Precision::bf16;
    // The bias of addmm and baddbmm comes first.
    const std::size_t first = named({"aten::addmm", "aten::baddbmm"}) ? 1 : 0;
    if (named({"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"}) && dims.size() > first + 1 &&
        dims[first].size() >= 2 && dims[first].size() == dims[first + 1].size()) {
        const Sizes& a = dims[first];
        const Sizes& b = dims[first + 1];
        Gemm product{a[a.size() - 2], b.back(), a.back(), a.size() > 2 ? a.front() : 1};
        product.precision = precision;
        return product.m >= 1 && product.n >= 1 && product.k >= 1 && product.batch >= 1 ? format_work(product) : "";
    }
    const bool heads_second = name.find("scaled_dot_product") != std::string::npos;
    if ((heads_second || name == "aten::_flash_attention_forward") && name.find("backward") == std::string::npos &&
        dims.size() > 2 && dims[0].size() == 4 && dims[1].size() == 4) {
        const std::size_t heads = heads_second ? 1 : 2;
        Attention attention;
        attention.batch_heads = dims[0][0] * dims[0][heads];
        attention.queries = dims[0][3 - heads];
        attention.keys = dims[1][3 - heads];
        attention.head_dim = dims[0][3];
        attention.group = dims[1][heads] >= 1 ? std::max(1.0, dims[0][heads] / dims[1][heads]) : 1;
        attention.cache = precision;
        return attention.flops() > 0 ? format_work(attention) : "";
    }
    // Anything else reads its inputs, and writes as much as the largest of them.
    Streaming streaming;
    double largest = 0;
    for (std::size_t i = 0; i < dims.size(); ++i) {
        double size = dims[i].empty() ? 0 : i < types.size() ? bytes_of_type(types[i]) : bytes;
        for (const double extent : dims[i]) {
            size *= std::max(0.0, extent);
        }
        streaming.bytes += size;
        largest = std::max(largest, size);
    }
    streaming.bytes += largest;
    return streaming.bytes >= 1 && streaming.bytes < 1e18 ? format_work(streaming) : "";
}

// Values of one event as they come: top-level members, and the members of "args" that matter.
struct Event {
    std::map<std::string, Json> members;
    std::map<std::string, Json> arguments;
    std::vector<std::vector<double>> dims;  ///< of the inputs of an operator
    std::vector<std::string> types;

    [[nodiscard]] const Json* find(const std::map<std::string, Json>& from, const char* key) const {
        const auto found = from.find(key);
        return found == from.end() ? nullptr : &found->second;
    }
    [[nodiscard]] std::string text(const char* key) const { return text_of(find(members, key)); }
    [[nodiscard]] std::string argument_text(const char* key) const { return text_of(find(arguments, key)); }
    [[nodiscard]] double number(const char* key) const { return number_of(find(members, key)); }
    [[nodiscard]] double argument(const char* key, double otherwise = 0) const {
        const Json* value = find(arguments, key);
        return value == nullptr ? otherwise : number_of(value);
    }

  private:
    static std::string text_of(const Json* value) {
        return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
    }
    // Numbers come as numbers or as text.
    static double number_of(const Json* value) {
        if (value == nullptr) {
            return 0;
        }
        if (value->is_number()) {
            return value->get<double>();
        }
        double number = 0;
        return value->is_string() && parse_number(value->get_ref<const std::string&>(), number) ? number : 0;
    }
};

class PytorchReader final : public nlohmann::json_sax<Json> {
  public:
    explicit PytorchReader(const ImportInput& input) : input_(input), file_(input.path()) {}

    std::vector<HostCall> calls;
    std::vector<RecordedActivity> activities;
    std::vector<StreamWait> waits;
    std::uint32_t ranks = 1;
    std::uint32_t world = 0;                      ///< ranks of the job, as the trace says; 0: it does not
    std::map<std::int64_t, std::size_t> devices;  ///< number of operations by device
    bool found_events = false;
    std::map<std::int64_t, std::string> device_names;  ///< by number, as the profiler lists them
    ImportNotes notes;

    bool null() override { return scalar(Json()); }
    bool boolean(bool value) override { return scalar(Json(value)); }
    bool number_integer(number_integer_t value) override { return scalar(Json(value)); }
    bool number_unsigned(number_unsigned_t value) override { return scalar(Json(value)); }
    bool number_float(number_float_t value, const string_t&) override { return scalar(Json(value)); }
    bool string(string_t& value) override { return scalar(Json(value)); }
    bool binary(binary_t&) override { return true; }
    bool key(string_t& value) override {
        key_ = value;
        return true;
    }
    bool start_object(std::size_t) override { return open(false); }
    bool end_object() override {
        if (in_events_ && depth_ == events_depth_ + 1) {
            finish_event();
            event_ = Event();
        }
        if (in_properties_ && depth_ == kPropertiesDepth + 1 && !property_name_.empty()) {
            device_names.insert_or_assign(property_id_, std::move(property_name_));
            property_name_.clear();
        }
        return close();
    }
    bool start_array(std::size_t) override {
        const bool events = depth_ <= 1 && (key_ == "traceEvents" || depth_ == 0);
        open(true);
        if (depth_ == kPropertiesDepth && key_ == "deviceProperties") {
            in_properties_ = true;
        }
        if (events && !in_events_) {
            in_events_ = true;
            found_events = true;
            events_depth_ = depth_;
        }
        return true;
    }
    bool end_array() override {
        if (in_events_ && depth_ == events_depth_) {
            in_events_ = false;
        }
        in_properties_ = in_properties_ && depth_ > kPropertiesDepth;
        return close();
    }
    bool parse_error(std::size_t, const std::string&, const Json::exception& problem) override {
        throw ConfigError({json_problem(file_, problem)});
    }

    // A collective of no known group is one of the whole job; one of no known size can be replayed as recorded alone.
    void resolve_collectives() {
        const double assumed = input_.bytes_option("assume-bytes");
        const std::uint32_t given = input_.whole_option("ranks");
        if (given > 0 && world > 0 && given != world) {
            fail(fmt::format("says that the job has {} ranks, and --ranks {}", world, given));
        }
        ranks = std::max(world > 0 ? world : given, 1U);
        for (RecordedActivity& activity : activities) {
            if (!activity.collective) {
                continue;
            }
            const std::string op = collective_op_names()[static_cast<std::size_t>(*activity.collective)];
            if (activity.group.size == 0) {
                if (world == 0 && given == 0) {
                    fail(fmt::format("says neither the group of '{}' nor how many ranks the job has: --ranks N does",
                                     activity.name));
                }
                activity.group.size = ranks;
                notes.assumed(fmt::format("{} without a group, of all {} ranks", op, ranks));
            }
            const std::uint64_t reach = std::uint64_t{activity.group.size} * activity.group.stride;
            ranks = std::max(ranks, static_cast<std::uint32_t>(std::min<std::uint64_t>(reach, kMostRanks)));
            if (activity.bytes == 0 && assumed > 0 && activity.collective != CollectiveOp::send_recv) {
                activity.bytes = assumed;
                notes.assumed(
                    fmt::format("{} of unknown size, {} each", op, pretty_quantity(assumed, Dimension::bytes)));
            } else if (activity.bytes == 0) {
                notes.left_out(
                    activity.collective == CollectiveOp::send_recv
                        ? "peers and sizes of sends and receives, which replay as recorded alone"
                        : fmt::format("sizes of {}, which replay as recorded alone (or --assume-bytes)", op));
            }
        }
    }

    // The operators that launched kernels say what these compute, where the profiler recorded shapes.
    void resolve_works() {
        for (std::size_t i = 0; i < activities.size(); ++i) {
            const auto found = works_.find(externals_[i]);
            RecordedActivity& activity = activities[i];
            if (found != works_.end() && !activity.copy && !activity.collective) {
                activity.work = found->second;
                notes.read("kernels whose sizes are known");
            }
        }
    }

    // Correlation of the call that recorded an event, to the stream and time of the record.
    void resolve_waits() {
        std::map<std::uint64_t, const HostCall*> by_correlation;
        for (const HostCall& call : calls) {
            by_correlation.emplace(call.correlation, &call);
        }
        for (const auto& [wait, own, record] : raw_waits_) {
            const auto waiting = by_correlation.find(own);
            const auto recorded = by_correlation.find(record);
            if (waiting != by_correlation.end() && recorded != by_correlation.end()) {
                waits.push_back(wait);
                waits.back().at_s = waiting->second->start_s;
                waits.back().recorded_s = recorded->second->start_s;
            }
        }
    }

  private:
    [[noreturn]] void fail(const std::string& problem) const {
        throw ConfigError({Diagnostic{file_, 0, 0, problem, ErrorCode::malformed_trace}});
    }

    bool open(bool array) {
        if (++depth_ > kDeepestValue) {
            throw ConfigError({Diagnostic{file_, 0, 0, fmt::format("is nested deeper than {} levels", kDeepestValue),
                                          ErrorCode::malformed_trace}});
        }
        if (in_events_ && depth_ == events_depth_ + 2 && key_ == "args" && !array) {
            in_arguments_ = true;
        }
        if (in_arguments_ && array && depth_ == events_depth_ + 3) {
            in_dims_ = key_ == "Input Dims";
            in_types_ = key_ == "Input type";
        } else if (in_dims_ && depth_ == events_depth_ + 4) {
            event_.dims.emplace_back();
        }
        return true;
    }
    bool close() {
        if (depth_ == events_depth_ + 3) {
            in_dims_ = in_types_ = false;
        }
        if (in_events_ && depth_ == events_depth_ + 2) {
            in_arguments_ = false;
        }
        --depth_;
        return true;
    }

    bool scalar(Json value) {
        if (!in_events_) {
            if (key_ == "world_size" && value.is_number_unsigned()) {
                world =
                    static_cast<std::uint32_t>(std::clamp<std::uint64_t>(value.get<std::uint64_t>(), 1, kMostRanks));
            }
            if (in_properties_ && depth_ == kPropertiesDepth + 1) {
                if (key_ == "id" && value.is_number_integer()) {
                    property_id_ = value.get<std::int64_t>();
                } else if (key_ == "name" && value.is_string()) {
                    property_name_ = value.get<std::string>();
                }
            }
            return true;
        }
        if (in_dims_ && depth_ == events_depth_ + 4 && value.is_number()) {
            event_.dims.back().push_back(value.get<double>());
        } else if (in_types_ && depth_ == events_depth_ + 3 && value.is_string()) {
            event_.types.push_back(value.get<std::string>());
        } else if (depth_ == events_depth_ + 1) {
            event_.members[key_] = std::move(value);
        } else if (in_arguments_ && depth_ == events_depth_ + 2) {
            event_.arguments[key_] = std::move(value);
        }
        return true;
    }

    void finish_event() {
        if (activities.size() + calls.size() > kMostEvents) {
            throw ConfigError({Diagnostic{file_, 0, 0, fmt::format("holds more than {} events", kMostEvents),
                                          ErrorCode::malformed_trace}});
        }
        const std::string written = event_.text("cat");
        // Older versions of PyTorch gave categories other names.
        static const std::map<std::string, std::string> kOld = {
            {"Kernel", "kernel"}, {"Memcpy", "gpu_memcpy"}, {"Memset", "gpu_memset"}, {"Runtime", "cuda_runtime"}};
        const auto old = kOld.find(written);
        const std::string& category = old == kOld.end() ? written : old->second;
        if (event_.text("ph") != "X") {
            notes.left_out("events that are no span (flows, counters, metadata)");
            return;
        }
        const double start = event_.number("ts") * 1e-6;
        const double end = start + event_.number("dur") * 1e-6;
        if (!(start > -1e12 && end < 1e12)) {
            notes.left_out("events with impossible times");
            return;
        }
        if (end < start) {
            fail(
                fmt::format("'{}' at {:.3f} us ends before it starts", event_.text("name").substr(0, 80), start * 1e6));
        }
        const auto correlation = static_cast<std::uint64_t>(std::clamp(event_.argument("correlation"), 0.0, 1e18));
        const auto whole = [](double value) { return static_cast<std::int64_t>(std::clamp(value, -1e15, 1e15)); };
        if (category == "kernel" || category == "gpu_memcpy" || category == "gpu_memset") {
            RecordedActivity activity;
            activity.start_s = start;
            activity.end_s = end;
            activity.correlation = correlation;
            activity.stream = whole(event_.argument("stream"));
            activity.copy = category != "kernel";
            activity.name = event_.text("name");
            add_collective(activity);
            ++devices[whole(event_.argument("device"))];
            activities.push_back(std::move(activity));
            externals_.push_back(external());
        } else if (category == "cuda_runtime" || category == "cuda_driver") {
            HostCall call;
            call.start_s = start;
            call.end_s = end;
            call.correlation = correlation;
            call.thread = static_cast<std::uint64_t>(whole(std::abs(event_.number("tid"))));
            call.name = event_.text("name");
            if (call.name.find("DeviceSynchronize") != std::string::npos ||
                call.name.find("EventSynchronize") != std::string::npos) {
                call.kind = HostCall::Kind::sync_device;
            } else if (call.name.find("StreamSynchronize") != std::string::npos) {
                // The record of the call does not name the stream: the whole device is what it can have waited for.
                call.kind = HostCall::Kind::sync_device;
            }
            calls.push_back(std::move(call));
        } else if (category == "cuda_sync" && event_.argument_text("cuda_sync_kind") == "Stream Wait Event") {
            const double record = event_.argument("wait_on_cuda_event_record_corr_id", -1);
            if (record >= 0) {
                StreamWait wait;
                wait.stream = whole(event_.argument("stream"));
                wait.other = whole(event_.argument("wait_on_stream"));
                raw_waits_.push_back({wait, correlation, static_cast<std::uint64_t>(std::min(record, 1e18))});
            }
        } else if (category == "cpu_op" && !event_.dims.empty() && external() > 0) {
            if (std::string work = work_of(event_.text("name"), event_.dims, event_.types); !work.empty()) {
                works_.insert_or_assign(external(), std::move(work));
            }
        } else {
            notes.left_out(fmt::format("events of category {}", category.empty() ? "(none)" : category));
        }
    }

    [[nodiscard]] std::uint64_t external() const {
        return static_cast<std::uint64_t>(std::clamp(event_.argument("External id"), 0.0, 1e18));
    }

    void add_collective(RecordedActivity& activity) {
        const std::string name = event_.argument_text("Collective name");
        activity.collective = collective_of_kernel(name.empty() ? activity.name : "nccl " + name);
        if (!activity.collective) {
            if (!name.empty()) {
                notes.left_out(fmt::format("groups and sizes of '{}', which replays as recorded", name.substr(0, 40)));
            }
            return;
        }
        const double in = event_.argument("In msg nelems");
        const double out = event_.argument("Out msg nelems");
        if (in < 0 || out < 0) {
            fail(fmt::format("'{}' moves {:g} elements", name, std::min(in, out)));
        }
        // No elements is not an unknown size: it takes about what one element takes.
        const bool said = event_.find(event_.arguments, "In msg nelems") != nullptr;
        activity.bytes =
            std::clamp(std::max(in, out), said ? 1.0 : 0.0, 1e15) * bytes_of_type(event_.argument_text("dtype"));
        activity.group.size = static_cast<std::uint32_t>(std::clamp(event_.argument("Group size"), 0.0, 1048576.0));
        // "[0, 8, 16]": ranks at equal distances, which every rank of one program has.
        const std::string members = event_.argument_text("Process Group Ranks");
        const std::size_t comma = members.find(',');
        if (!members.empty() && members[0] == '[' && comma != std::string::npos) {
            const double first = std::strtod(members.c_str() + 1, nullptr);
            const double second = std::strtod(members.c_str() + comma + 1, nullptr);
            activity.group.stride = static_cast<std::uint32_t>(std::clamp(second - first, 1.0, 1048576.0));
        }
    }

    struct RawWait {
        StreamWait wait;
        std::uint64_t own;
        std::uint64_t record;
    };
    const ImportInput& input_;
    const std::string& file_;
    std::string key_;
    int depth_ = 0;
    int events_depth_ = 0;
    bool in_events_ = false;
    bool in_arguments_ = false;
    Event event_;
    std::vector<RawWait> raw_waits_;
    bool in_dims_ = false, in_types_ = false;
    static constexpr int kPropertiesDepth = 2;  // of the list of devices, in the map of the whole trace
    bool in_properties_ = false;
    std::int64_t property_id_ = 0;
    std::string property_name_;
    std::vector<std::uint64_t> externals_;        ///< of the activities: the operator that launched them
    std::map<std::uint64_t, std::string> works_;  ///< of operators
};

Imported import_pytorch(const ImportInput& input) {
    const std::string& name = input.path();
    PytorchReader reader(input);
    Json::sax_parse(*input.stream(), &reader);
    if (!reader.found_events) {
        throw ConfigError(
            {Diagnostic{name, 1, 1, "is not a Chrome trace: it has no 'traceEvents'", ErrorCode::malformed_trace}});
    }
    if (reader.devices.size() > 1) {
        throw ConfigError({Diagnostic{
            name, 0, 0, fmt::format("holds {} devices; profile one process with one device", reader.devices.size()),
            ErrorCode::malformed_trace}});
    }
    reader.resolve_waits();
    reader.resolve_collectives();
    reader.resolve_works();
    ReplayTrace trace = from_activities(std::move(reader.calls), std::move(reader.activities), reader.waits,
                                        reader.ranks, "pytorch-profiler", name, reader.notes);
    scale_program(trace, input, reader.notes);
    if (!reader.devices.empty()) {
        if (const auto device = reader.device_names.find(reader.devices.begin()->first);
            device != reader.device_names.end()) {
            set_recorded_on(trace, device->second);
        }
    }
    return imported_program(trace, std::move(reader.notes));
}

}  // namespace

extern const Importer kPyTorchImporter = {"pytorch-profiler",
                                          "Chrome trace of PyTorch's profiler (Kineto), one process with one device",
                                          {kAssumeBytes, kRanksOption, kScaleOption},
                                          import_pytorch};

}  // namespace orrery::replay
