#include "tools/program/watch.hpp"

#include "tools/driver/kind.hpp"
#include "tools/terminal/terminal.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <thread>
#include <tuple>

namespace orrery::program {

namespace {

// What tells one state of a file from the next: an editor may write it in place or put another in its place.
using State = std::tuple<bool, ino_t, off_t, time_t, long>;

State state_of(const std::string& path) {
    struct stat found {};
    if (stat(path.c_str(), &found) != 0) {
        return {};
    }
    return {true, found.st_ino, found.st_size, found.st_mtim.tv_sec, found.st_mtim.tv_nsec};
}

using Files = std::map<std::string, State>;

bool changed(const Files& files) {
    return std::any_of(files.begin(), files.end(), [](const auto& one) { return state_of(one.first) != one.second; });
}

void print(const Error& error, OutputFormat format) {
    say(stderr, "{}\n", error_text(error, format));
}

}  // namespace

void watch(const std::string& scenario, const std::function<std::vector<std::string>()>& once, OutputFormat format,
           bool quiet) {
    Files files = {{scenario, {}}};
    for (;;) {
        // What changes while it runs counts as a change: states are from before.
        for (auto& [file, state] : files) {
            state = state_of(file);
        }
        try {
            Files read = {{scenario, files[scenario]}};
            for (const std::string& file : once()) {
                const auto known = files.find(file);
                read.emplace(file, known == files.end() ? state_of(file) : known->second);
            }
            files = std::move(read);
        } catch (const ConfigError& error) {
            print(error, format);
            for (const Diagnostic& one : error.diagnostics()) {
                if (!one.file.empty()) {
                    files.emplace(one.file, state_of(one.file));
                }
            }
        } catch (const Error& error) {
            print(error, format);
        }
        (void)std::fflush(stdout);
        if (!quiet) {
            say(stderr, "watching {} file{}; Ctrl-C ends\n", files.size(), files.size() > 1 ? "s" : "");
        }
        while (!changed(files)) {
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
        }
        // Who writes a file has time to end.
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
}

}  // namespace orrery::program
