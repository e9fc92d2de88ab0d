#include "tools/sweep/result_store.hpp"

#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"
#include "sim/record/sqlite_damage.hpp"
#include "tools/driver/kind.hpp"
#include "tools/driver/scenario.hpp"

#include <fmt/format.h>
#include <sqlite3.h>

#include <filesystem>

namespace orrery::sweep {

namespace {

constexpr int kApplication = 0x4F525259;
constexpr int kSchemaVersion = 1;
constexpr int kWaitMs = 60'000;  // for another writer

constexpr const char* kSchema = R"(
CREATE TABLE IF NOT EXISTS manifest(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS points(id INTEGER PRIMARY KEY, hash TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS parameters(point INTEGER NOT NULL, position INTEGER NOT NULL, key TEXT NOT NULL,
                                      value TEXT NOT NULL, PRIMARY KEY(point, position)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS results(hash TEXT PRIMARY KEY, status TEXT NOT NULL, message TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS metrics(hash TEXT NOT NULL, position INTEGER NOT NULL, name TEXT NOT NULL, value REAL NOT NULL,
                                   unit TEXT NOT NULL, low REAL, high REAL, PRIMARY KEY(hash, position)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS shards(shard INTEGER NOT NULL, shards INTEGER NOT NULL, PRIMARY KEY(shard, shards))
    WITHOUT ROWID;
)";

}  // namespace

// A connection; statements are prepared once and kept.
class ResultStore::Database {
  public:
    class Statement {
      public:
        Statement(const Database& database, const char* sql) : database_(database) {
            database_.check(sqlite3_prepare_v2(database_.handle_, sql, -1, &statement_, nullptr));
        }
        ~Statement() { sqlite3_finalize(statement_); }
        Statement(const Statement&) = delete;
        Statement& operator=(const Statement&) = delete;

        Statement& bind(const std::string& text) {
            database_.check(
                sqlite3_bind_text(statement_, ++bound_, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT));
            return *this;
        }
        Statement& bind(std::int64_t value) {
            database_.check(sqlite3_bind_int64(statement_, ++bound_, value));
            return *this;
        }
        Statement& bind(double value) {
            database_.check(sqlite3_bind_double(statement_, ++bound_, value));
            return *this;
        }
        Statement& bind(const std::optional<double>& value) {
            database_.check(value ? sqlite3_bind_double(statement_, ++bound_, *value)
                                  : sqlite3_bind_null(statement_, ++bound_));
            return *this;
        }
        /// One step; true while there is a row.
        bool step() {
            const int code = sqlite3_step(statement_);
            if (code != SQLITE_ROW && code != SQLITE_DONE) {
                database_.check(code);
            }
            return code == SQLITE_ROW;
        }
        void reset() {
            sqlite3_reset(statement_);
            bound_ = 0;
        }
        [[nodiscard]] std::string text(int column) const {
            require(column, sqlite3_column_type(statement_, column) == SQLITE_TEXT, "text");
            const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
            return {bytes, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
        }
        [[nodiscard]] std::int64_t integer(int column) const {
            require(column, sqlite3_column_type(statement_, column) == SQLITE_INTEGER, "whole number");
            return sqlite3_column_int64(statement_, column);
        }
        [[nodiscard]] double number(int column) const {
            const int type = sqlite3_column_type(statement_, column);
            require(column, type == SQLITE_FLOAT || type == SQLITE_INTEGER, "number");
            return sqlite3_column_double(statement_, column);
        }
        [[nodiscard]] std::optional<double> optional(int column) const {
            return sqlite3_column_type(statement_, column) == SQLITE_NULL ? std::nullopt
                                                                          : std::optional<double>(number(column));
        }

      private:
        // Any cell of a SQLite file may hold any type, whatever its column says.
        void require(int column, bool good, const char* type) const {
            if (!good) {
                database_.fail(fmt::format("is damaged: '{}' is no {} in what answers '{}'",
                                           sqlite3_column_name(statement_, column), type, sqlite3_sql(statement_)));
            }
        }

        const Database& database_;
        sqlite3_stmt* statement_ = nullptr;
        int bound_ = 0;
    };

    Database(const std::string& path, Mode mode) : path_(path) {
        const bool exists = std::filesystem::exists(path);
        if (mode == Mode::create && exists) {
            fail("exists already; --resume continues it, or choose another name", ErrorCode::unwritable_file);
        }
        const bool reads = mode == Mode::read || mode == Mode::look;
        if ((mode == Mode::append || reads) && !exists) {
            fail("no such database", ErrorCode::unreadable_file);
        }
        if (exists) {
            require_input_file(path);  // SQLite would wait for a pipe
        }
        const int flags = reads ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
        const int code = sqlite3_open_v2(path.c_str(), &handle_, flags, nullptr);
        try {
            check(code);
            sqlite3_busy_timeout(handle_, kWaitMs);
            prepare(mode, reads);
        } catch (...) {
            sqlite3_close(handle_);
            throw;
        }
    }
    ~Database() {
        if (writes_) {
            // The last writer leaves one file: readers of a write-ahead log would leave its two others behind. Where somebody else has the
            // database open this fails at once, and he does it.
            (void)sqlite3_busy_timeout(handle_, 0);
            (void)sqlite3_exec(handle_, "PRAGMA journal_mode = DELETE", nullptr, nullptr, nullptr);
        }
        sqlite3_close(handle_);
    }
    Database(const Database&) = delete;
    Database& operator=(const Database&) = delete;

    void check(int code) const {
        if (code == SQLITE_OK) {
            return;
        }
        switch (code & 0xFF) {
            case SQLITE_NOTADB:
                fail("is not a SQLite database", ErrorCode::unreadable_file);
            case SQLITE_CORRUPT:
                fail("is damaged: " + message() + "; 'sqlite3 FILE .recover' may save what is left",
                     ErrorCode::unreadable_file);
            case SQLITE_FULL:
            case SQLITE_IOERR:
                fail("cannot be written: " + message() + "; what was committed is safe, --resume continues from there",
                     ErrorCode::unwritable_file);
            case SQLITE_READONLY:
            case SQLITE_CANTOPEN:
            case SQLITE_PERM:
                fail("cannot be opened or written: " + message(), ErrorCode::unwritable_file);
            case SQLITE_BUSY:
                fail("another program has held it locked for a minute", ErrorCode::unwritable_file);
            default:
                fail(message());
        }
    }

    void run(const char* sql) const { check(sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr)); }

    [[noreturn]] void fail(const std::string& why, ErrorCode code = ErrorCode::unreadable_file) const {
        throw ConfigError({Diagnostic{path_, 0, 0, why, code}});
    }

    [[nodiscard]] std::int64_t integer(const char* sql) const {
        Statement statement(*this, sql);
        return statement.step() ? statement.integer(0) : 0;
    }

    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    [[nodiscard]] std::string message() const { return sqlite3_errmsg(handle_); }

    void prepare(Mode mode, bool reads) {
        // In this order: another writer may create the schema in between, all of it at once.
        const bool empty = integer("SELECT count(*) FROM sqlite_master") == 0;
        const std::int64_t application = integer("PRAGMA application_id");
        const std::int64_t version = integer("PRAGMA user_version");
        if (application != kApplication && (!empty || reads)) {
            fail("is a SQLite database, but not one of sweep results");
        }
        if (empty && mode == Mode::append) {
            fail("is empty: no database of sweep results");
        }
        if (application == kApplication && version != kSchemaVersion) {
            fail(fmt::format("has schema version {}, this program reads version {}", version, kSchemaVersion));
        }
        if (mode == Mode::read) {
            require_whole();
        }
        if (reads) {
            return;
        }
        use_write_ahead_log();
        writes_ = true;
        run("PRAGMA synchronous = NORMAL");
        run("BEGIN IMMEDIATE");
        run(kSchema);
        run(fmt::format("PRAGMA application_id = {}", kApplication).c_str());
        run(fmt::format("PRAGMA user_version = {}", kSchemaVersion).c_str());
        run("COMMIT");
    }

    void require_whole() const {
        if (const std::string problem = sqlite_damage(handle_, path_); !problem.empty()) {
            fail("is damaged: " + problem + "; 'sqlite3 FILE .recover' may save what is left");
        }
    }

    // The switch needs the file alone and does not wait for it by itself.
    void use_write_ahead_log() const {
        for (int waited = 0;; waited += 10) {
            const int code = sqlite3_exec(handle_, "PRAGMA journal_mode = WAL", nullptr, nullptr, nullptr);
            if ((code & 0xFF) != SQLITE_BUSY || waited >= kWaitMs) {
                return check(code);
            }
            sqlite3_sleep(10);
        }
    }

    std::string path_;
    sqlite3* handle_ = nullptr;
    bool writes_ = false;
};

namespace {

constexpr std::string_view kFile = "file ";  // before the path of a file that points read

bool is_file(const std::string& key) {
    return key.rfind(kFile, 0) == 0;
}

std::string shortened(const std::string& text) {
    return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> Manifest::entries() const {
    std::vector<std::pair<std::string, std::string>> out = {
        {"schema", "orrery-sweep-1"}, {"sweep", sweep}, {"keys", keys},    {"keep", keep},
        {"version", version},         {"data", data},   {"points", points}};
    for (const auto& [path, hash] : files) {
        out.emplace_back(std::string(kFile) + path, hash);
    }
    return out;
}

ResultStore::ResultStore(const std::string& path, Mode mode) : database_(std::make_unique<Database>(path, mode)) {}
ResultStore::~ResultStore() = default;

void ResultStore::set_manifest(const Manifest& manifest) {
    begin();
    const std::map<std::string, std::string> there = this->manifest();
    std::vector<Diagnostic> differences;
    Database::Statement insert(*database_, "INSERT OR IGNORE INTO manifest VALUES(?, ?)");
    for (const auto& [key, value] : manifest.entries()) {
        const auto found = there.find(key);
        if (found != there.end() && found->second != value) {
            differences.push_back(
                {database_->path(), 0, 0,
                 fmt::format("{}: there '{}', now '{}'", key, shortened(found->second), shortened(value))});
        }
        insert.bind(key).bind(value).step();
        insert.reset();
    }
    if (!differences.empty()) {
        database_->run("ROLLBACK");
        differences.insert(differences.begin(),
                           {database_->path(), 0, 0,
                            "holds results of something else, which are never mixed: give another --db, or remove it"});
        throw ConfigError(differences);
    }
    commit();
}

std::map<std::string, std::string> ResultStore::manifest() const {
    std::map<std::string, std::string> out;
    Database::Statement select(*database_, "SELECT key, value FROM manifest");
    while (select.step()) {
        out[select.text(0)] = select.text(1);
    }
    return out;
}

std::map<std::string, std::string> ResultStore::files() const {
    std::map<std::string, std::string> out;
    for (const auto& [key, value] : manifest()) {
        if (is_file(key)) {
            out[key.substr(kFile.size())] = value;
        }
    }
    return out;
}

void ResultStore::add_files(const std::map<std::string, std::string>& files) {
    Database::Statement insert(*database_, "INSERT OR IGNORE INTO manifest VALUES(?, ?)");
    for (const auto& [path, hash] : files) {
        insert.bind(std::string(kFile) + path).bind(hash).step();
        insert.reset();
    }
}

std::vector<std::uint64_t> ResultStore::finished_points() const {
    std::vector<std::uint64_t> out;
    Database::Statement select(*database_,
                               "SELECT id FROM points JOIN results USING(hash) "
                               "WHERE status NOT IN ('failed', 'timeout') ORDER BY id");
    while (select.step()) {
        out.push_back(static_cast<std::uint64_t>(select.integer(0)));
    }
    return out;
}

void ResultStore::add_point(const StoredPoint& point) {
    Database::Statement insert(*database_, "INSERT OR REPLACE INTO points VALUES(?, ?)");
    insert.bind(static_cast<std::int64_t>(point.id)).bind(point.hash).step();
    Database::Statement parameter(*database_, "INSERT OR REPLACE INTO parameters VALUES(?, ?, ?, ?)");
    std::int64_t position = 0;
    for (const auto& [key, value] : point.parameters) {
        parameter.bind(static_cast<std::int64_t>(point.id)).bind(position++).bind(key).bind(value).step();
        parameter.reset();
    }
}

void ResultStore::add_result(const std::string& hash, const PointResult& result) {
    const std::optional<PointResult> there = result_of(hash);
    if (there && there->is_final()) {
        return;
    }
    Database::Statement insert(*database_, "INSERT OR REPLACE INTO results VALUES(?, ?, ?)");
    insert.bind(hash).bind(result.status).bind(result.message).step();
    Database::Statement metric(*database_, "INSERT OR REPLACE INTO metrics VALUES(?, ?, ?, ?, ?, ?, ?)");
    std::int64_t position = 0;
    for (const Metric& m : result.metrics) {
        if (!m.measured()) {
            continue;  // an absent row, so that every reader sees an empty cell
        }
        metric.bind(hash).bind(position++).bind(m.name).bind(m.value).bind(m.unit).bind(m.low).bind(m.high).step();
        metric.reset();
    }
}

void ResultStore::finish_shard(unsigned shard, unsigned shards) {
    Database::Statement insert(*database_, "INSERT OR IGNORE INTO shards VALUES(?, ?)");
    insert.bind(static_cast<std::int64_t>(shard)).bind(static_cast<std::int64_t>(shards)).step();
}

bool ResultStore::has_results() const {
    return database_->integer("SELECT EXISTS(SELECT 1 FROM results WHERE status IN ('done', 'infeasible'))") != 0;
}

std::uint64_t ResultStore::shard_count() const {
    return static_cast<std::uint64_t>(database_->integer("SELECT count(*) FROM shards"));
}

bool ResultStore::complete() const {
    return database_->integer("SELECT EXISTS(SELECT 1 FROM shards GROUP BY shards HAVING count(*) = shards)") != 0;
}

void ResultStore::begin() {
    database_->run("BEGIN IMMEDIATE");
}

void ResultStore::commit() {
    database_->run("COMMIT");
}

void ResultStore::each(const std::function<void(const StoredPoint&, const PointResult&)>& visit) const {
    Database::Statement points(*database_, "SELECT id, hash FROM points JOIN results USING(hash) ORDER BY id");
    Database::Statement parameters(*database_, "SELECT key, value FROM parameters WHERE point = ? ORDER BY position");
    while (points.step()) {
        StoredPoint point;
        point.id = static_cast<std::uint64_t>(points.integer(0));
        point.hash = points.text(1);
        for (parameters.bind(points.integer(0)); parameters.step();) {
            point.parameters.emplace_back(parameters.text(0), parameters.text(1));
        }
        parameters.reset();
        const std::optional<PointResult> result = result_of(point.hash);
        if (!result) {
            database_->fail(fmt::format("is damaged: point {} has no result", point.id));
        }
        visit(point, *result);
    }
}

std::optional<PointResult> ResultStore::result_of(const std::string& hash) const {
    Database::Statement select(*database_, "SELECT status, message FROM results WHERE hash = ?");
    if (!select.bind(hash).step()) {
        return std::nullopt;
    }
    PointResult result{select.text(0), select.text(1), {}};
    Database::Statement metrics(*database_,
                                "SELECT name, value, unit, low, high FROM metrics WHERE hash = ? ORDER BY position");
    for (metrics.bind(hash); metrics.step();) {
        result.metrics.push_back(
            Metric{metrics.text(0), metrics.number(1), metrics.text(2), metrics.optional(3), metrics.optional(4)});
    }
    return result;
}

void ResultStore::merge(const ResultStore& other) {
    const std::map<std::string, std::string> theirs = other.manifest();
    const std::map<std::string, std::string> ours = manifest();
    std::vector<Diagnostic> conflicts;
    const auto conflict = [&](const std::string& text) {
        conflicts.push_back(Diagnostic{other.database_->path(), 0, 0, text});
    };
    for (const auto& [key, value] : theirs) {
        const auto found = ours.find(key);
        const bool fresh = found == ours.end() && (ours.empty() || is_file(key));
        if (!fresh && (found == ours.end() || found->second != value)) {
            conflict(fmt::format("holds results of something else: '{}' is '{}', in the target '{}'", key,
                                 shortened(value), found == ours.end() ? "missing" : shortened(found->second)));
        }
    }
    throw_if_any(conflicts);
    begin();
    Database::Statement entry(*database_, "INSERT OR IGNORE INTO manifest VALUES(?, ?)");
    for (const auto& [key, value] : theirs) {
        entry.bind(key).bind(value).step();
        entry.reset();
    }
    Database::Statement hash_of(*database_, "SELECT hash FROM points WHERE id = ?");
    other.each([&](const StoredPoint& point, const PointResult& result) {
        const bool there = hash_of.bind(static_cast<std::int64_t>(point.id)).step();
        if (there && hash_of.text(0) != point.hash) {
            conflict(fmt::format("point {} is scenario {}, in the target {}", point.id, point.hash, hash_of.text(0)));
        }
        hash_of.reset();
        const std::optional<PointResult> known = result_of(point.hash);
        if (known && known->is_final() && result.is_final() && !(*known == result)) {
            conflict(fmt::format("point {} has another result than in the target ({} and {})", point.id, result.status,
                                 known->status));
        }
        add_point(point);
        add_result(point.hash, result);
    });
    Database::Statement shards(*other.database_, "SELECT shard, shards FROM shards");
    while (shards.step()) {
        finish_shard(static_cast<unsigned>(shards.integer(0)), static_cast<unsigned>(shards.integer(1)));
    }
    if (!conflicts.empty()) {
        database_->run("ROLLBACK");
        throw ConfigError(conflicts);
    }
    commit();
}

}  // namespace orrery::sweep
