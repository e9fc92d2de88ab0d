#pragma once
// Runs the program as a user would, in folders that go with their scope.

#include "sim/base/namespaces.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace orrery::test {

struct Outcome {
    int code;
    std::string text;
};

inline std::string orrery_program() {
    const char* program = std::getenv("ORRERY_PROGRAM");
    const auto self = std::filesystem::read_symlink("/proc/self/exe");
    return program != nullptr ? program : (self.parent_path() / "orrery").string();
}

/// Exit code and both outputs of a shell command.
inline Outcome shell_command(const std::string& command) {
    std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
    REQUIRE(pipe != nullptr);
    Outcome out{0, {}};
    std::array<char, 4096> buffer{};
    for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
        out.text.append(buffer.data(), n);
    }
    out.code = WEXITSTATUS(pclose(pipe));
    return out;
}

/// Without progress, which depends on how fast the machine is.
inline Outcome orrery_command(const std::string& arguments) {
    return shell_command("ORRERY_PROGRESS=none " + orrery_program() + " " + arguments);
}

// A folder that goes with its scope.
class Folder {
  public:
    Folder() : path_((std::filesystem::temp_directory_path() / fmt::format("orrery-test-{}", ::getpid())).string()) {
        std::filesystem::create_directories(path_);
    }
    ~Folder() { std::filesystem::remove_all(path_); }
    [[nodiscard]] std::string file(const std::string& name, const std::string& text = "") const {
        const std::string path = path_ + "/" + name;
        if (!text.empty()) {
            std::ofstream(path) << text;
        }
        return path;
    }

  private:
    std::string path_;
};

inline std::string read(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    std::ostringstream text;
    text << stream.rdbuf();
    return text.str();
}

}  // namespace orrery::test
