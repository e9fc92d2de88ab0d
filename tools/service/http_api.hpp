#pragma once
// The HTTP interface of `orrery serve`: every command that takes JSON as a path, jobs with progress, and the page.
//
// Claims: no file outside the given folder is read (child processes are confined by the kernel); no other site's page can call it
// (no cross-origin answers, and hosts and origins are checked); whatever a client sends or leaves undone, memory stays within the
// limits of jobs, bodies and connections.

#include "tools/service/jobs.hpp"

#include <functional>
#include <string>
#include <vector>

namespace orrery::service {

struct ServiceSettings {
    std::string program;                ///< path of orrery
    std::string version;                ///< of orrery
    std::string address = "127.0.0.1";  ///< it listens at
    int port = 8321;                    ///< 0: any free one
    std::string folder;                 ///< whose files scenarios may name; empty: none
    std::string scratch;                ///< where runs work without a folder
    std::string data;                   ///< presets of the user's own; empty: none
    std::string presets;                ///< folder of the program's own presets
    std::string token;                  ///< that clients must send; empty: none
    std::string memory;                 ///< of each run, as --memory-limit takes it
    double seconds = 300;               ///< s of wall time of each run, at most
    bool confined = true;               ///< runs read only what they may
    JobLimits jobs;
};

/// Serves until `stopping`, asked five times a second, says so. `ready`: told the port. Throws ConfigError where it cannot listen.
void serve_http(const ServiceSettings& settings, const std::function<void(int port)>& ready,
                const std::function<bool()>& stopping);

}  // namespace orrery::service
