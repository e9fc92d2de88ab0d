#pragma once
// What tests of every layer share: it includes no layer above sim/config.

#include "sim/base/error.hpp"
#include "sim/config/data_directory.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace orrery::test {

/// Multiplies the number of random cases: 1 in CI, 20 in the soak run.
inline int scale() {
    const char* text = std::getenv("ORRERY_TEST_SCALE");
    return text != nullptr ? std::max(1, std::atoi(text)) : 1;
}

inline DataDirectory data() {
    return DataDirectory(ORRERY_SOURCE_DIR);
}

/// The problems that something throws, a line each; empty when it throws none.
template <class Tried>
std::string problems_when(const Tried& tried) {
    std::string out;
    try {
        static_cast<void>(tried());
    } catch (const ConfigError& error) {
        for (const Diagnostic& problem : error.diagnostics()) {
            out += problem.to_string() + "\n";
        }
    }
    return out;
}

/// A file that goes with its scope.
class File {
  public:
    File(const std::string& name, const std::string& text)
        : path_((std::filesystem::temp_directory_path() / ("orrery-" + std::to_string(::getpid()) + "-" + name))
                    .string()) {
        std::ofstream(path_) << text;
    }
    ~File() { std::filesystem::remove(path_); }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    std::string path_;
};

}  // namespace orrery::test
