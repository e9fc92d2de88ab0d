// Profiles of JAX in the Chrome trace that XLA's profiler writes (*.trace.json.gz, perfetto_trace.json.gz).
//
// Claims: the kernels and copies of the device that was busy longest: of a GPU those on its streams, of a TPU its "XLA Ops". Limits:
// calls of the host are not matched, so that starts that nothing else explains stay as lags; of a job it is one rank.
// Sources: openxla/xla, xla/tsl/profiler/convert/trace_events_to_json.cc; JAX documentation, "Profiling computation".

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/record/json_text.hpp"
#include "workloads/replay/activities.hpp"
#include "workloads/replay/importers/program.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace orrery::replay {

namespace {

using Json = nlohmann::json;

double number_of(const Json& map, const char* key) {
    const auto found = map.find(key);
    return found != map.end() && found->is_number() ? found->get<double>() : 0;
}

// A number that names something, of which one too large for its type names nothing.
std::int64_t id_of(const Json& map, const char* key) {
    const double id = number_of(map, key);
    return id >= 0 && id < 1e18 ? static_cast<std::int64_t>(id) : 0;
}

std::string text_of(const Json& map, const char* key) {
    const auto found = map.find(key);
    return found != map.end() && found->is_string() ? found->get<std::string>() : "";
}

Imported import_jax(const ImportInput& input) {
    const std::string& file = input.path();
    const std::string text = input.bytes();
    const auto refuse = [&](const std::string& problem) {
        throw ConfigError({Diagnostic{file, 1, 1, problem, ErrorCode::malformed_trace}});
    };
    constexpr const char* kExpected =
        "expected the Chrome trace of a JAX profile (*.trace.json.gz beside *.xplane.pb) with 'traceEvents' of "
        "processes such as /device:GPU:0 or /device:TPU:0";
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    if (first == std::string::npos || text[first] != '{') {
        refuse(fmt::format("{}, and the file is {}", kExpected, first == std::string::npos ? "empty" : "no JSON"));
    }
    require_shallow_json(text, file);
    Json root;
    try {
        root = Json::parse(text);
    } catch (const Json::exception& problem) {
        throw ConfigError({json_problem(file, problem)});
    }
    if (!root.is_object() || !root.contains("traceEvents") || !root["traceEvents"].is_array()) {
        refuse(fmt::format("{}, and found no 'traceEvents'", kExpected));
    }
    using Thread = std::pair<std::int64_t, std::int64_t>;
    std::map<std::int64_t, std::string> processes;
    std::map<Thread, std::string> threads;
    const auto thread_of = [](const Json& event) { return Thread(id_of(event, "pid"), id_of(event, "tid")); };
    for (const Json& event : root["traceEvents"]) {
        if (event.is_object() && text_of(event, "ph") == "M" && event.contains("args") && event["args"].is_object()) {
            const std::string name = text_of(event["args"], "name");
            if (text_of(event, "name") == "process_name") {
                processes[thread_of(event).first] = name;
            } else if (text_of(event, "name") == "thread_name") {
                threads[thread_of(event)] = name;
            }
        }
    }
    ImportNotes notes;
    std::map<std::int64_t, std::pair<double, std::vector<RecordedActivity>>> devices;
    double origin = -1;
    std::size_t number = 0;
    for (const Json& event : root["traceEvents"]) {
        ++number;
        if (!event.is_object() || text_of(event, "ph") != "X") {
            continue;
        }
        const Thread thread = thread_of(event);
        const auto process = processes.find(thread.first);
        if (process == processes.end() || process->second.find("/device:") == std::string::npos) {
            continue;
        }
        const std::string& line = threads[thread];
        if (line.rfind("Stream", 0) != 0 && line.find("XLA Ops") == std::string::npos) {
            continue;  // the same time again, by module, step or name scope
        }
        const double start = number_of(event, "ts");
        const double length = number_of(event, "dur");
        if (!(start >= 0) || !(length >= 0)) {
            throw ConfigError({Diagnostic{
                file, 1, 1,
                fmt::format("event {} ('{}') has a time below zero", number, printable(text_of(event, "name"), 60)),
                ErrorCode::malformed_trace}});
        }
        origin = origin < 0 ? start : origin;
        RecordedActivity one;
        one.start_s = (start - origin) * 1e-6;
        one.end_s = one.start_s + length * 1e-6;
        one.stream = thread.second;
        one.name = text_of(event, "name");
        one.copy = line.find("Memcpy") != std::string::npos || line.find("Memset") != std::string::npos ||
                   one.name.rfind("Memcpy", 0) == 0;
        if (event.contains("args") && event["args"].is_object()) {
            one.correlation = static_cast<std::uint64_t>(id_of(event["args"], "correlation_id"));
        }
        auto& [seconds, activities] = devices[thread.first];
        seconds += length;
        activities.push_back(std::move(one));
    }
    if (devices.empty()) {
        refuse(fmt::format("{}, and found no operation of one among {} events", kExpected, number));
    }
    const auto busy = std::max_element(devices.begin(), devices.end(),
                                       [](const auto& a, const auto& b) { return a.second.first < b.second.first; });
    for (const auto& [device, work] : devices) {
        if (device != busy->first) {
            notes.left_out(
                fmt::format("operations of {}, which was busy for less time", printable(processes[device], 60)),
                work.second.size());
        }
    }
    std::vector<RecordedActivity> activities = std::move(busy->second.second);
    std::sort(activities.begin(), activities.end(),
              [](const RecordedActivity& a, const RecordedActivity& b) { return a.start_s < b.start_s; });
    for (const RecordedActivity& one : activities) {
        if (collective_of_kernel(one.name)) {
            notes.left_out("groups and sizes of communication kernels, which replay as recorded");
        }
    }
    ReplayTrace trace = from_activities({}, std::move(activities), {}, 1, "jax-profile", file, notes);
    trace.meta["device"] = processes[busy->first];
    return imported_program(trace, std::move(notes));
}

}  // namespace

extern const Importer kJaxImporter = {
    "jax-profile", "Chrome trace of JAX's profiler (*.trace.json.gz), its busiest device", {}, import_jax};

}  // namespace orrery::replay
