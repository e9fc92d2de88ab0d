#include "sim/record/sqlite_damage.hpp"

#include "sim/base/text.hpp"

#include <fmt/format.h>
#include <sqlite3.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

namespace orrery::record {

namespace {

// The first value of what a statement answers; why there is none where it fails.
std::string answer(sqlite3* database, const char* sql) {
    sqlite3_stmt* raw = nullptr;
    if (sqlite3_prepare_v2(database, sql, -1, &raw, nullptr) != SQLITE_OK) {
        return sqlite3_errmsg(database);
    }
    const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(raw, sqlite3_finalize);
    if (sqlite3_step(raw) != SQLITE_ROW) {
        return sqlite3_errmsg(database);
    }
    const unsigned char* text = sqlite3_column_text(raw, 0);
    return text == nullptr ? std::string() : reinterpret_cast<const char*>(text);
}

}  // namespace

std::string sqlite_damage(sqlite3* database, const std::string& path) {
    constexpr std::size_t kMostText = 200;
    if (const std::string problem = answer(database, "PRAGMA quick_check(1)"); problem != "ok") {
        return printable(problem, kMostText);
    }
    const std::uintmax_t page = std::strtoull(answer(database, "PRAGMA page_size").c_str(), nullptr, 10);
    std::error_code unknown;
    const std::uintmax_t size = std::filesystem::file_size(path, unknown);
    if (!unknown && page > 0 && size % page != 0) {
        return fmt::format("its {} bytes are no whole pages of {}", size, page);
    }
    return "";
}

}  // namespace orrery::record
