#pragma once
// From what a profiler of a GPU process sees (host calls, device operations, waits) to a recorded program.
//
// Claims: a device operation starts after its launch, after the operation before it on its stream, and after what its stream
// was told to wait for; a host call comes after the call before it on its thread, and a synchronising one after the device
// operations it waited for. What is left of a start time that none of these explains is kept as a lag, so that an unchanged
// replay gives the recorded times back.
// Limits: where the profiler did not record the waits between streams they are inferred: an operation that could have started
// more than 5 us earlier waits for the operation of another stream that ended last before it, when that was in its last 10 us.
// Sources: CUPTI documentation (correlation ids, synchronisation records); the inference is that of Zhu et al., "Daydream",
// USENIX ATC 2020, section 4.2.

#include "workloads/replay/replay_trace.hpp"

#include <optional>

namespace orrery::imports {
class ImportNotes;
}

namespace orrery::replay {

struct HostCall {
    enum class Kind { launch, sync_device, sync_stream, other };
    Kind kind = Kind::other;
    double start_s = 0;
    double end_s = 0;
    std::uint64_t correlation = 0;
    std::uint64_t thread = 0;
    std::int64_t stream = 0;  ///< of sync_stream
    std::string name;
};

struct RecordedActivity {
    double start_s = 0;
    double end_s = 0;
    std::uint64_t correlation = 0;
    std::int64_t stream = 0;
    bool copy = false;
    std::string name;
    std::string work;  ///< what a kernel computes (work.hpp); empty: not said
    // Of a communication kernel, as far as the record says:
    std::optional<CollectiveOp> collective;
    double bytes = 0;
    ReplayGroup group;
};

/// The next operation on `stream` that is launched after `at_s` waits for those launched on `other` before `recorded_s`.
struct StreamWait {
    std::int64_t stream = 0;
    double at_s = 0;
    std::int64_t other = 0;
    double recorded_s = 0;
};

/// One process on one device. `ranks`: of its job. Counts in `notes` what was read, and calls that are left out. Throws ConfigError (naming `file`) when there is no device operation.
[[nodiscard]] ReplayTrace from_activities(std::vector<HostCall> calls, std::vector<RecordedActivity> activities,
                                          const std::vector<StreamWait>& waits, std::uint32_t ranks,
                                          const std::string& source, const std::string& file, ImportNotes& notes);

/// The collective that a communication library's kernel carries out, by its name; none for other kernels.
[[nodiscard]] std::optional<CollectiveOp> collective_of_kernel(const std::string& name);

}  // namespace orrery::replay
