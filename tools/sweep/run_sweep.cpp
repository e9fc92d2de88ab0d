#include "tools/sweep/run_sweep.hpp"

#include "sim/base/input_file.hpp"
#include "sim/base/random.hpp"
#include "tools/driver/kind.hpp"
#include "tools/driver/run.hpp"
#include "tools/sweep/worker_pool.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>

namespace orrery::sweep {

namespace {

using Json = nlohmann::json;

// Both ends of a conversation with a worker. It is first asked to resolve a point, so that the parent can skip what
// another point has computed or another shard will, then to run what it resolved last.
constexpr const char* kRun = "run";

std::string hash_text(const std::string& text) {
    return fmt::format("{:016x}", mix64(hash64(text)));
}

// The same on every machine and in every folder that runs a shard.
std::string seen_from_base(const SweepSpec& sweep, const std::string& path) {
    return sweep.directory.empty() ? path : std::filesystem::path(path).lexically_proximate(sweep.directory).string();
}

Json metric_json(const Metric& metric) {
    Json out = {{"name", metric.name}, {"value", metric.value}, {"unit", metric.unit}};
    if (metric.low) {
        out["low"] = *metric.low;
    }
    if (metric.high) {
        out["high"] = *metric.high;
    }
    return out;
}

Metric metric_from(const Json& json) {
    // JSON has no NaN: what was not measured comes as null.
    Metric metric{json["name"], json["value"].is_null() ? kNotMeasured : json["value"].get<double>(), json["unit"],
                  std::nullopt, std::nullopt};
    if (json.contains("low")) {
        metric.low = json["low"].get<double>();
    }
    if (json.contains("high")) {
        metric.high = json["high"].get<double>();
    }
    return metric;
}

class PointWorker {
  public:
    PointWorker(const SweepSpec& sweep, const DataDirectory& data) : sweep_(sweep), models_(data) {}

    std::string answer(const std::string& request) {
        return (request == kRun ? run_resolved() : resolve(std::stoull(request))).dump();
    }

  private:
    Json resolve(std::uint64_t id) {
        try {
            const SweepPoint point = sweep_.point(id).value();
            scenario_ = scenario_of(sweep_, point, models_.data());
            // What a file holds is as much of a point as its name.
            std::string text = resolved_json(*scenario_);
            Json files = Json::object();
            for (const std::string& path : files_of(*scenario_)) {
                std::string& hash = hashes_[path];
                hash = hash.empty() ? hash_text(bytes_of_input(path)) : hash;
                files[seen_from_base(sweep_, path)] = hash;
                text += hash;
            }
            return {{"hash", hash_text(text)}, {"files", files}};
        } catch (const ConfigError& error) {
            return {{"error", error.what()}};
        }
    }

    Json run_resolved() {
        ORRERY_ASSERT(scenario_.has_value());  // a point is run after it was resolved
        try {
            const RunOutput out = run_scenario(*scenario_, models_, {});
            Json metrics = Json::array();
            for (const Metric& metric : out.summary.metrics) {
                metrics.push_back(metric_json(metric));
            }
            for (const auto& [name, seconds] : out.summary.breakdown) {
                metrics.push_back(metric_json(Metric{"breakdown." + name, seconds, "s", std::nullopt, std::nullopt}));
            }
            if (!out.summary.expectations.empty()) {
                metrics.push_back(metric_json(Metric{"expectations_failed", static_cast<double>(out.summary.failed()),
                                                     "1", std::nullopt, std::nullopt}));
            }
            return {{"status", "done"}, {"metrics", metrics}};
        } catch (const InfeasibleError& error) {
            return {{"status", "infeasible"}, {"message", error.what()}};
        } catch (const ConfigError& error) {
            return {{"status", "invalid"}, {"message", error.what()}};
        } catch (const InternalError& error) {
            return {{"status", "failed"}, {"message", error.what()}};
        } catch (const std::bad_alloc&) {
            return {{"status", "failed"}, {"message", "needs more memory than a process of this sweep may take"}};
        }
    }

    const SweepSpec& sweep_;
    ModelCache models_;
    std::optional<Scenario> scenario_;
    std::map<std::string, std::string> hashes_;  ///< of files that points read
};

// The parent's side: hands out points, keeps the database.
class SweepRun {
  public:
    SweepRun(const SweepSpec& sweep, const DataDirectory& data, const SweepOptions& options)
        : sweep_(sweep),
          data_(data),
          options_(options),
          store_(options.database, options.resume ? ResultStore::Mode::resume : ResultStore::Mode::create) {}

    SweepCounts run() {
        Manifest manifest;
        manifest.sweep = sweep_.identity();
        manifest.keys = fmt::format("{}", fmt::join(sweep_.keys(), ","));
        for (const auto& metric : sweep_.keep) {
            manifest.keep += (manifest.keep.empty() ? "" : ",") + metric.first;
        }
        manifest.version = options_.version;
        manifest.data = hash_of_data(data_);
        manifest.points = std::to_string(sweep_.size());
        for (const auto& [path, hash] : store_.files()) {
            const std::string place = (std::filesystem::path(sweep_.directory) / path).string();
            manifest.files[path] = std::filesystem::exists(place) ? hash_text(bytes_of_input(place)) : "missing";
        }
        store_.set_manifest(manifest);
        for (const std::uint64_t id : store_.finished_points()) {
            finished_.insert(finished_.end(), id);
        }
        PointWorker worker(sweep_, data_);
        const double timeout = options_.timeout > 0 ? options_.timeout : sweep_.timeout;
        run_in_workers(
            options_.workers, timeout, [&](const std::string& request) { return worker.answer(request); },
            [&] {
                flush(false);
                return next();
            },
            [&](std::size_t id, const WorkReply& reply) { return take(id, reply); }, [&] { flush(false); });
        ORRERY_ASSERT(at_ == sweep_.size() && running_.empty());  // every point was given out, and none is under way
        flush(true);
        ORRERY_ASSERT(new_files_.empty() && new_points_.empty() && new_results_.empty());
        ORRERY_ASSERT(counts_.simulated <= in_flight_.size());  // each scenario once
        store_.finish_shard(options_.shard, options_.shards);
        count();
        return counts_;
    }

  private:
    std::optional<WorkRequest> next() {
        const std::uint64_t size = sweep_.size();
        while (at_ < size) {
            const std::uint64_t id = at_++;
            if (finished_.contains(id)) {
                ++counts_.resumed;
                continue;
            }
            ORRERY_ASSERT(!running_.contains(id));  // nobody else works on it
            if (sweep_.point(id)) {
                return WorkRequest{id, std::to_string(id)};
            }
        }
        return std::nullopt;
    }

    std::optional<std::string> take(std::uint64_t id, const WorkReply& reply) {
        ORRERY_ASSERT(id < at_);  // it was given out
        const auto running = running_.find(id);
        if (reply.end != WorkReply::End::answered) {
            const std::string hash = running != running_.end() ? running->second : hash_of_parameters(id);
            if (running == running_.end() && !mine(hash)) {
                return std::nullopt;
            }
            keep_point(id, hash);
            finish(id, hash, PointResult{reply.end == WorkReply::End::crashed ? "failed" : "timeout", reply.text, {}});
            return std::nullopt;
        }
        const Json answer = Json::parse(reply.text);
        if (running != running_.end()) {
            ORRERY_ASSERT(answer.contains("status"));
            PointResult result{answer["status"], answer.value("message", ""), {}};
            for (const Json& metric : answer.value("metrics", Json::array())) {
                result.metrics.push_back(metric_from(metric));
            }
            if (result.status == "done") {
                select_kept(result);
            }
            ++counts_.simulated;
            finish(id, std::string(running->second), result);
            return std::nullopt;
        }
        if (answer.contains("error")) {
            // What cannot be read has no resolved form: its own values are its identity.
            const std::string hash = hash_of_parameters(id);
            if (mine(hash)) {
                keep_point(id, hash);
                finish(id, hash, PointResult{"invalid", answer["error"], {}});
            }
            return std::nullopt;
        }
        ORRERY_ASSERT(answer.contains("hash") && answer.contains("files"));
        const std::string hash = answer["hash"];
        // Those of other shards' points too, so that any two shards of other files contradict each other.
        for (const auto& [path, content] : answer["files"].items()) {
            new_files_[path] = content;
        }
        if (!mine(hash)) {
            return std::nullopt;
        }
        keep_point(id, hash);
        const std::optional<PointResult> known = store_.result_of(hash);
        if ((known && known->is_final()) || !in_flight_.insert(hash).second) {
            return std::nullopt;
        }
        ORRERY_ASSERT(!running_.contains(id));
        running_[id] = hash;
        return kRun;
    }

    [[nodiscard]] bool mine(const std::string& hash) const { return hash64(hash) % options_.shards == options_.shard; }

    [[nodiscard]] std::string hash_of_parameters(std::uint64_t id) const {
        std::string text;
        const SweepPoint point = sweep_.point(id).value();
        for (const auto& [key, value] : point.parameters) {
            text += fmt::format("{}={}\n", key, value);
        }
        return hash_text(text);
    }

    void keep_point(std::uint64_t id, const std::string& hash) {
        ORRERY_ASSERT(sweep_.point(id).has_value());  // others are not given out
        new_points_.push_back(StoredPoint{id, hash, sweep_.point(id)->parameters});
    }

    void finish(std::uint64_t id, const std::string& hash, const PointResult& result) {
        ORRERY_ASSERT(id < at_ && !hash.empty());
        new_results_.emplace_back(hash, result);
        running_.erase(id);
        if (options_.progress) {
            options_.progress(static_cast<double>(at_) / static_cast<double>(sweep_.size()));
        }
    }

    // Often enough that a kill loses little, seldom enough that the disk does not set the pace; the lock is held only
    // while writing, so that another writer gets its turn.
    void flush(bool now_in_any_case) {
        const auto now = std::chrono::steady_clock::now();
        if ((new_files_.empty() && new_points_.empty() && new_results_.empty()) ||
            (!now_in_any_case && now - flushed_ < std::chrono::milliseconds(200))) {
            return;
        }
        flushed_ = now;
        store_.begin();
        store_.add_files(new_files_);
        for (const StoredPoint& point : new_points_) {
            store_.add_point(point);
        }
        for (const auto& [hash, result] : new_results_) {
            store_.add_result(hash, result);
        }
        store_.commit();
        new_files_.clear();
        new_points_.clear();
        new_results_.clear();
    }

    void select_kept(PointResult& result) {
        if (sweep_.keep.empty()) {
            return;
        }
        std::vector<std::string> names;
        std::vector<Metric> kept;
        for (const Metric& metric : result.metrics) {
            names.push_back(metric.name);
        }
        std::vector<Diagnostic> errors;
        for (const auto& [name, mark] : sweep_.keep) {
            const auto found = std::find(names.begin(), names.end(), name);
            if (found != names.end()) {
                kept.push_back(result.metrics[static_cast<std::size_t>(found - names.begin())]);
            } else if (name.rfind("breakdown.", 0) != 0) {  // a part of the time may be absent where it is zero
                const std::string nearest = nearest_name(name, names);
                errors.push_back(
                    mark.error(fmt::format("no metric '{}'{}", name,
                                           nearest.empty() ? fmt::format("; there are {}", fmt::join(names, ", "))
                                                           : fmt::format(" (did you mean '{}'?)", nearest)),
                               ErrorCode::unknown_metric));
            }
        }
        throw_if_any(errors);
        result.metrics = std::move(kept);
    }

    void count() {
        store_.each([&](const StoredPoint&, const PointResult& result) {
            ++counts_.points;
            counts_.done += result.status == "done" ? 1 : 0;
            counts_.infeasible += result.status == "infeasible" ? 1 : 0;
            counts_.failed += result.status == "failed" ? 1 : 0;
            counts_.timed_out += result.status == "timeout" ? 1 : 0;
            if (result.status == "invalid" && counts_.invalid++ == 0) {
                counts_.first_invalid = result.message;
            }
        });
    }

    const SweepSpec& sweep_;
    const DataDirectory& data_;
    const SweepOptions& options_;
    ResultStore store_;
    SweepCounts counts_;
    std::uint64_t at_ = 0;
    std::set<std::uint64_t> finished_;
    std::map<std::uint64_t, std::string> running_;  ///< hash of the points that are being simulated
    std::set<std::string> in_flight_;               ///< hashes that were given out in this run
    std::map<std::string, std::string> new_files_;  ///< that points read; as the next two, not yet in the database
    std::vector<StoredPoint> new_points_;
    std::vector<std::pair<std::string, PointResult>> new_results_;
    std::chrono::steady_clock::time_point flushed_ = std::chrono::steady_clock::now();
};

}  // namespace

namespace {

void remove_database(const std::string& path) {
    for (const char* end : {"", "-wal", "-shm"}) {
        std::error_code ignored;
        std::filesystem::remove(path + end, ignored);
    }
}

// Whether a file is a database of a sweep that computed nothing: such a one is only in the way of the next try.
bool holds_nothing(const std::string& path) {
    if (std::filesystem::exists(path + "-wal")) {
        return false;  // another process has it open: what it computes is still to come
    }
    try {
        return !ResultStore(path, ResultStore::Mode::look).has_results();
    } catch (const ConfigError&) {
        return false;  // something else, which is not ours to judge
    }
}

}  // namespace

SweepCounts run_sweep(const SweepSpec& sweep, const DataDirectory& files, const SweepOptions& options) {
    const DataDirectory data = files.read_once();
    check_points(sweep);
    check_values(sweep, data);
    if (!options.resume && std::filesystem::is_regular_file(options.database) && holds_nothing(options.database)) {
        remove_database(options.database);
    }
    std::optional<SweepRun> run;
    const auto leave_nothing_empty = [&] {
        const bool made_here = run && !options.resume;
        run.reset();
        if (made_here && holds_nothing(options.database)) {
            remove_database(options.database);
        }
    };
    try {
        run.emplace(sweep, data, options);
        const SweepCounts counts = run->run();
        // A shard without points is one that is done: merging counts it.
        if (options.shards == 1 && counts.invalid == counts.points) {
            leave_nothing_empty();
        }
        return counts;
    } catch (...) {
        leave_nothing_empty();
        throw;
    }
}

std::string hash_of_data(const DataDirectory& data) {
    std::vector<std::pair<std::filesystem::path, std::string>> files;  // each with the directory it is in
    for (const std::string& root : {data.root(), data.own()}) {
        for (const char* folder : {"models/data", "topologies/data", "workloads/data"}) {
            const std::filesystem::path path = std::filesystem::path(root) / folder;
            if (root.empty() || !std::filesystem::is_directory(path)) {
                continue;
            }
            for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
                if (entry.is_regular_file()) {
                    files.emplace_back(entry.path(), root);
                }
            }
        }
    }
    std::sort(files.begin(), files.end());
    std::uint64_t hash = 0;
    for (const auto& [file, root] : files) {
        hash = mix64(hash ^ hash64(std::filesystem::relative(file, root).string() + "\n" + bytes_of_input(file)));
    }
    return fmt::format("{:016x}", hash);
}

}  // namespace orrery::sweep
