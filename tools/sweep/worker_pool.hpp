#pragma once
// Work in forked processes: a crash, a time-out or an out-of-memory kill costs one request and never the others.
//
// The parent gives one request at a time to whoever is idle, so uneven work balances itself. Workers are forked from a
// single-threaded parent and keep what they load (models) between requests; they die with the parent.

#include "sim/base/namespaces.hpp"

#include <functional>
#include <optional>
#include <string>

namespace orrery::sweep {

struct WorkReply {
    enum class End { answered, crashed, timed_out };
    End end = End::answered;
    std::string text;  ///< the answer, or how the worker ended
};

struct WorkRequest {
    std::size_t id = 0;
    std::string text;
};

/// Runs in the worker; an exception that escapes ends the worker and counts as a crash.
using Work = std::function<std::string(const std::string& request)>;
/// The next request, or nothing when there are no more.
using NextRequest = std::function<std::optional<WorkRequest>()>;
/// Takes an answer; may return one more request for the same worker (same id), which then is next.
using TakeReply = std::function<std::optional<std::string>(std::size_t id, const WorkReply& reply)>;

/// Serves every request of `next` on `workers` processes; `take` is called in the order of the answers. `timeout_s`:
/// wall time a request may take; `idle`, if given, is called at least once a second. Throws ConfigError when processes cannot be made; workers are ended in any case.
void run_in_workers(unsigned workers, double timeout_s, const Work& work, const NextRequest& next,
                    const TakeReply& take, const std::function<void()>& idle = {});

/// Cores this process may use, at least 1.
[[nodiscard]] unsigned available_cores();

}  // namespace orrery::sweep
