#pragma once
// Results of sweeps in SQLite. Safe against kill -9 (write-ahead log) and several writers.
//
// Schema, version 1 (PRAGMA user_version; PRAGMA application_id is 0x4F525259, "ORRY"):
//   manifest(key, value)                      what made the results: sweep, version, commit, data, files; see Manifest
//   points(id, hash)                          a point of the sweep and the hash of its resolved scenario
//   parameters(point, position, key, value)   the values that a point sets, in the order of the sweep file
//   results(hash, status, message)            done, infeasible, invalid, failed or timeout; one row a distinct scenario
//   metrics(hash, position, name, value, unit, low, high)
//   shards(shard, shards)                     which parts of the sweep have been run to their end
// A point's metrics are those of its hash, so identical points share one result.

#include "sim/record/summary.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace orrery::sweep {

/// Results are comparable when all of these agree.
struct Manifest {
    std::string sweep;    ///< canonical text of the sweep and its base scenario
    std::string keys;     ///< keys that points set, joined by commas, in order
    std::string keep;     ///< metrics to keep, joined by commas; empty: all
    std::string version;  ///< of the program, with its commit
    std::string data;     ///< hash of the presets and tables
    std::string points;   ///< number of points before `where`
    /// Hashes of the files that scenarios name (traces, flows, matrices), by path: those that points have read so far.
    std::map<std::string, std::string> files;

    [[nodiscard]] std::vector<std::pair<std::string, std::string>> entries() const;
};

struct PointResult {
    std::string status;   ///< done, infeasible, invalid, failed or timeout
    std::string message;  ///< why not done
    std::vector<Metric> metrics;

    /// Whether the same scenario would give the same again: a crash or a time-out may not.
    [[nodiscard]] bool is_final() const { return status != "failed" && status != "timeout"; }
    friend bool operator==(const PointResult&, const PointResult&) = default;
};

struct StoredPoint {
    std::uint64_t id = 0;
    std::string hash;
    std::vector<std::pair<std::string, std::string>> parameters;
};

class ResultStore {
  public:
    enum class Mode { create, resume, append, read, look };
    /// `create` refuses a file that exists, `append`, `read` and `look` one that does not, `resume` neither. All refuse what is no database
    /// of sweep results, or has another schema version. `read` checks that the whole file is sound; `look`, for a question about its state,
    /// reads no more than the answer takes. Throws ConfigError.
    ResultStore(const std::string& path, Mode mode);
    ~ResultStore();
    ResultStore(const ResultStore&) = delete;
    ResultStore& operator=(const ResultStore&) = delete;

    /// Writes the manifest, or checks it against what is there: throws ConfigError that names what differs.
    void set_manifest(const Manifest& manifest);
    [[nodiscard]] std::map<std::string, std::string> manifest() const;
    /// Files of the manifest that is there.
    [[nodiscard]] std::map<std::string, std::string> files() const;
    /// Adds files to it, beside points that read them; keeps what is there.
    void add_files(const std::map<std::string, std::string>& files);

    /// Ids of points whose result is final.
    [[nodiscard]] std::vector<std::uint64_t> finished_points() const;
    /// Result of a distinct scenario; nothing when it has none.
    [[nodiscard]] std::optional<PointResult> result_of(const std::string& hash) const;

    void add_point(const StoredPoint& point);
    /// Keeps what is there when that is final.
    void add_result(const std::string& hash, const PointResult& result);
    void finish_shard(unsigned shard, unsigned shards);
    /// Whether a point was computed: one that is done, or found infeasible.
    [[nodiscard]] bool has_results() const;
    /// Shards that have been run to their end.
    [[nodiscard]] std::uint64_t shard_count() const;
    /// Whether that is every one of them.
    [[nodiscard]] bool complete() const;

    /// Changes between these two become visible together; they commit without it one by one.
    void begin();
    void commit();

    /// Calls for each point in the order of ids.
    void each(const std::function<void(const StoredPoint&, const PointResult&)>& visit) const;

    /// Adds everything from another database of the same manifest, or nothing: throws ConfigError that lists what
    /// contradicts what is here. Of files that only one of them names, nothing is asked.
    void merge(const ResultStore& other);

  private:
    class Database;
    std::unique_ptr<Database> database_;
};

}  // namespace orrery::sweep
