// SQLite exports of Nsight Systems: kernels, copies, runtime calls, synchronisation and event records of one device.

#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"
#include "sim/base/text.hpp"
#include "sim/record/sqlite_damage.hpp"
#include "workloads/replay/activities.hpp"
#include "workloads/replay/importers/program.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sqlite3.h>

#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

namespace orrery::replay {

namespace {

constexpr std::size_t kMostRows = 20'000'000;
// CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_*
constexpr std::int64_t kStreamWaitsEvent = 2;
constexpr std::int64_t kStreamSynchronize = 3;

constexpr const char* kRead[] = {"CUPTI_ACTIVITY_KIND_KERNEL",     "CUPTI_ACTIVITY_KIND_MEMCPY",
                                 "CUPTI_ACTIVITY_KIND_MEMSET",     "CUPTI_ACTIVITY_KIND_RUNTIME",
                                 "CUPTI_ACTIVITY_KIND_CUDA_EVENT", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"};
constexpr std::span<const char* const> kDeviceTables(kRead, 3);

class Database {
  public:
    explicit Database(const std::string& path) : path_(path) {
        require_input_file(path);  // SQLite would wait for a pipe
        sqlite3* handle = nullptr;
        const int status = sqlite3_open_v2(path.c_str(), &handle, SQLITE_OPEN_READONLY, nullptr);
        handle_.reset(handle);
        if (status != SQLITE_OK) {
            fail(sqlite3_errmsg(handle));
        }
        const std::string damage = sqlite_damage(handle, path);
        if (!damage.empty() && sqlite3_errcode(handle) != SQLITE_NOTADB) {
            fail("is damaged or cut off: " + damage + "; export it again");
        }
        std::set<std::string> found;
        each("SELECT name FROM sqlite_master WHERE type = 'table'",
             [&](sqlite3_stmt* row) { found.insert(text(row, 0)); });
        tables_ = std::move(found);
    }

    [[noreturn]] void fail(const std::string& problem) const {
        throw ConfigError({Diagnostic{path_, 0, 0, problem, ErrorCode::malformed_trace}});
    }
    [[nodiscard]] bool has(const std::string& table) const { return tables_.contains(table); }
    [[nodiscard]] const std::set<std::string>& tables() const { return tables_; }

    template <typename Visit>
    void each(const std::string& query, const Visit& visit) const {
        sqlite3_stmt* raw = nullptr;
        if (sqlite3_prepare_v2(handle_.get(), query.c_str(), -1, &raw, nullptr) != SQLITE_OK) {
            fail(fmt::format("is no export of Nsight Systems that is known here: {}", sqlite3_errmsg(handle_.get())));
        }
        const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(raw, sqlite3_finalize);
        std::size_t rows = 0;
        int status = SQLITE_ROW;
        while ((status = sqlite3_step(raw)) == SQLITE_ROW) {
            if (++rows > kMostRows) {
                fail(fmt::format("holds more than {} rows in one table", kMostRows));
            }
            visit(raw);
        }
        if (status != SQLITE_DONE) {
            fail(fmt::format("row {}: {}", rows + 1, sqlite3_errmsg(handle_.get())));
        }
    }

    static std::string text(sqlite3_stmt* row, int column) {
        const unsigned char* value = sqlite3_column_text(row, column);
        return value == nullptr ? std::string() : reinterpret_cast<const char*>(value);
    }

  private:
    const std::string& path_;
    std::unique_ptr<sqlite3, int (*)(sqlite3*)> handle_{nullptr, sqlite3_close};
    std::set<std::string> tables_;
};

struct EventRecord {
    std::int64_t stream;
    std::int64_t event;
    std::uint64_t correlation;
};

class NsysReader {
  public:
    explicit NsysReader(const std::string& path) : path_(path), data_(path) {}

    ReplayTrace run() {
        if (!data_.has("StringIds")) {
            data_.fail(
                fmt::format("is no export of Nsight Systems (nsys export --type sqlite): expected the table "
                            "'StringIds', and found {}",
                            data_.tables().empty() ? "no table" : named_tables()));
        }
        if (std::none_of(std::begin(kDeviceTables), std::end(kDeviceTables),
                         [&](const char* table) { return data_.has(table); })) {
            data_.fail(
                fmt::format("holds no kernel or copy of a device: profile with 'nsys profile -t cuda' (expected one of "
                            "the tables {}, and found {})",
                            fmt::join(kDeviceTables, ", "), named_tables()));
        }
        choose_device();
        read_device_operations();
        if (data_.has("CUPTI_ACTIVITY_KIND_RUNTIME")) {
            read_calls();
        }
        if (data_.has("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION")) {
            read_synchronisations();
        }
        note_other_tables();
        ReplayTrace trace =
            from_activities(std::move(calls_), std::move(activities_), waits_, 1, "nsys", path_, notes_);
        trace.meta["device"] = std::to_string(device_);
        set_recorded_on(trace, device_name());
        return trace;
    }
    [[nodiscard]] const ImportNotes& notes() const { return notes_; }

  private:
    // The first tables of the file.
    [[nodiscard]] std::string named_tables() const {
        constexpr std::size_t kFew = 6;
        std::vector<std::string> some;
        for (const std::string& table : data_.tables()) {
            if (some.size() < kFew) {
                some.push_back("'" + printable(table, 60) + "'");
            }
        }
        return fmt::format("{}{}", fmt::join(some, ", "), data_.tables().size() > kFew ? " and others" : "");
    }

    static double seconds(sqlite3_stmt* row, int column) {
        return static_cast<double>(sqlite3_column_int64(row, column)) * 1e-9;
    }

    // A record of several processes or devices: the device that was busy longest is replayed.
    void choose_device() {
        std::map<std::int64_t, std::pair<double, std::uint64_t>> devices;  // time and operations
        for (const char* table : kDeviceTables) {
            if (data_.has(table)) {
                data_.each(fmt::format("SELECT deviceId, SUM(end - start), COUNT(*) FROM {} GROUP BY deviceId", table),
                           [&](sqlite3_stmt* row) {
                               auto& [busy, count] = devices[sqlite3_column_int64(row, 0)];
                               busy += sqlite3_column_double(row, 1);
                               count += static_cast<std::uint64_t>(sqlite3_column_int64(row, 2));
                           });
            }
        }
        double most = -1;
        for (const auto& [device, work] : devices) {
            if (work.first > most) {
                most = work.first;
                device_ = device;
            }
        }
        for (const auto& [device, work] : devices) {
            if (device != device_) {
                notes_.left_out(fmt::format("kernels and copies of device {}, which was busy for less time", device),
                                work.second);
            }
        }
    }

    // Empty where the export does not tell it.
    std::string device_name() const {
        std::string name;
        if (data_.has("TARGET_INFO_GPU")) {
            data_.each(fmt::format("SELECT name FROM TARGET_INFO_GPU WHERE id = {}", device_),
                       [&](sqlite3_stmt* row) { name = Database::text(row, 0); });
        }
        return name;
    }

    void note_other_tables() {
        for (const std::string& table : data_.tables()) {
            const bool events = table.starts_with("CUPTI_ACTIVITY_KIND_") || table.starts_with("NVTX_EVENTS") ||
                                table.starts_with("OSRT_API") || table.starts_with("COMPOSITE_EVENTS");
            if (events && std::find(std::begin(kRead), std::end(kRead), table) == std::end(kRead)) {
                data_.each(fmt::format("SELECT COUNT(*) FROM \"{}\"", table), [&](sqlite3_stmt* row) {
                    notes_.left_out("rows of table " + table, static_cast<std::uint64_t>(sqlite3_column_int64(row, 0)));
                });
            }
        }
    }

    void add(sqlite3_stmt* row, bool copy, const std::string& name) {
        RecordedActivity activity;
        activity.start_s = seconds(row, 0);
        activity.end_s = seconds(row, 1);
        if (activity.end_s < activity.start_s) {
            data_.fail(fmt::format("{} '{}' at {} ns ends before it starts", copy ? "copy" : "kernel", name,
                                   sqlite3_column_int64(row, 0)));
        }
        activity.correlation = static_cast<std::uint64_t>(sqlite3_column_int64(row, 2));
        activity.stream = sqlite3_column_int64(row, 3);
        activity.copy = copy;
        activity.name = name;
        // The export names the kernel of a collective and not its size: it replays as recorded.
        activity.collective = std::nullopt;
        if (collective_of_kernel(name)) {
            notes_.left_out("groups and sizes of communication kernels, which replay as recorded");
        }
        correlations_.insert(activity.correlation);
        activities_.push_back(std::move(activity));
    }

    void read_device_operations() {
        if (data_.has(kDeviceTables[0])) {
            data_.each(fmt::format("SELECT k.start, k.end, k.correlationId, k.streamId, s.value FROM "
                                   "CUPTI_ACTIVITY_KIND_KERNEL k LEFT JOIN StringIds s ON s.id = k.shortName WHERE "
                                   "k.deviceId = {} ORDER BY k.start",
                                   device_),
                       [&](sqlite3_stmt* row) { add(row, false, Database::text(row, 4)); });
        }
        for (const auto& [table, name] :
             {std::pair{kDeviceTables[1], "memcpy"}, std::pair{kDeviceTables[2], "memset"}}) {
            if (data_.has(table)) {
                data_.each(fmt::format("SELECT start, end, correlationId, streamId FROM {} WHERE deviceId = {} "
                                       "ORDER BY start",
                                       table, device_),
                           [&, word = name](sqlite3_stmt* row) { add(row, true, word); });
            }
        }
    }

    void read_calls() {
        // Threads that launch on this device belong to its process; calls of others are not its host's work.
        std::set<std::uint64_t> threads;
        std::vector<HostCall> all;
        data_.each(
            "SELECT r.start, r.end, r.correlationId, r.globalTid, s.value FROM CUPTI_ACTIVITY_KIND_RUNTIME r "
            "LEFT JOIN StringIds s ON s.id = r.nameId ORDER BY r.start",
            [&](sqlite3_stmt* row) {
                HostCall call;
                call.start_s = seconds(row, 0);
                call.end_s = seconds(row, 1);
                if (call.end_s < call.start_s) {
                    data_.fail(fmt::format("a call at {} ns ends before it starts", sqlite3_column_int64(row, 0)));
                }
                call.correlation = static_cast<std::uint64_t>(sqlite3_column_int64(row, 2));
                call.thread = static_cast<std::uint64_t>(sqlite3_column_int64(row, 3));
                call.name = Database::text(row, 4);
                if (call.name.find("Synchronize") != std::string::npos) {
                    call.kind = HostCall::Kind::sync_device;
                }
                if (correlations_.contains(call.correlation)) {
                    threads.insert(call.thread);
                }
                all.push_back(std::move(call));
            });
        for (HostCall& call : all) {
            if (threads.contains(call.thread)) {
                call_index_.emplace(call.correlation, calls_.size());
                calls_.push_back(std::move(call));
            } else {
                notes_.left_out("calls of threads that launch nothing on this device");
            }
        }
    }

    void read_synchronisations() {
        // Events by their last record before a wait: event numbers are used again.
        std::map<std::int64_t, std::vector<EventRecord>> records;
        if (data_.has("CUPTI_ACTIVITY_KIND_CUDA_EVENT")) {
            data_.each(
                "SELECT streamId, eventId, correlationId FROM CUPTI_ACTIVITY_KIND_CUDA_EVENT ORDER BY "
                "correlationId",
                [&](sqlite3_stmt* row) {
                    const EventRecord record{sqlite3_column_int64(row, 0), sqlite3_column_int64(row, 1),
                                             static_cast<std::uint64_t>(sqlite3_column_int64(row, 2))};
                    records[record.event].push_back(record);
                });
        }
        data_.each(
            "SELECT syncType, streamId, eventId, correlationId FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION ORDER BY "
            "start",
            [&](sqlite3_stmt* row) {
                const std::int64_t type = sqlite3_column_int64(row, 0);
                const auto call = call_index_.find(static_cast<std::uint64_t>(sqlite3_column_int64(row, 3)));
                if (call == call_index_.end()) {
                    return;
                }
                if (type == kStreamSynchronize) {
                    calls_[call->second].kind = HostCall::Kind::sync_stream;
                    calls_[call->second].stream = sqlite3_column_int64(row, 1);
                } else if (type == kStreamWaitsEvent) {
                    add_wait(calls_[call->second], sqlite3_column_int64(row, 1), records[sqlite3_column_int64(row, 2)]);
                }
            });
    }

    void add_wait(const HostCall& call, std::int64_t stream, const std::vector<EventRecord>& records) {
        // They are in the order of their correlation.
        const auto later = std::partition_point(records.begin(), records.end(), [&](const EventRecord& record) {
            return record.correlation < call.correlation;
        });
        if (later == records.begin()) {
            return;
        }
        const EventRecord& last = *(later - 1);
        const auto recorded = call_index_.find(last.correlation);
        if (recorded != call_index_.end()) {
            waits_.push_back(StreamWait{stream, call.start_s, last.stream, calls_[recorded->second].start_s});
        }
    }

    const std::string& path_;
    Database data_;
    ImportNotes notes_;
    std::int64_t device_ = 0;
    std::vector<HostCall> calls_;
    std::vector<RecordedActivity> activities_;
    std::vector<StreamWait> waits_;
    std::set<std::uint64_t> correlations_;
    std::unordered_map<std::uint64_t, std::size_t> call_index_;
};

Imported import_nsys(const ImportInput& input) {
    NsysReader reader(input.path());
    const ReplayTrace trace = reader.run();
    return imported_program(trace, reader.notes());
}

}  // namespace

extern const Importer kNsysImporter = {"nsys", "SQLite export of Nsight Systems", {}, import_nsys};

}  // namespace orrery::replay
