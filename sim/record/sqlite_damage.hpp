#pragma once
// SQLite files that were cut off or overwritten: they may still answer, with less than they held.

#include "sim/base/namespaces.hpp"

#include <string>

struct sqlite3;

namespace orrery::record {

/// What is wrong with an open database whose file is at `path`; empty where nothing is found. Reads the whole file once.
[[nodiscard]] std::string sqlite_damage(sqlite3* database, const std::string& path);

}  // namespace orrery::record
