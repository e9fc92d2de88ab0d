#pragma once
// What importers of recorded programs share.

#include "workloads/imports/importer.hpp"
#include "workloads/replay/replay_trace.hpp"

namespace orrery::replay {

inline constexpr ImportOption kAssumeBytes = {"assume-bytes", "SIZE",
                                              "what a collective moves where the file does not say it"};
inline constexpr ImportOption kScaleOption = {
    "scale", "PLAN",
    "the job with more or fewer data-parallel ranks, such as tensor=2,data=4:32 (innermost degree first)"};
inline constexpr ImportOption kRanksOption = {"ranks", "N", "ranks of the job, where the file does not say it"};

/// Makes the program that of the job that --scale names, if it is given. Throws ConfigError where the record does not tell it.
void scale_program(ReplayTrace& trace, const ImportInput& input, ImportNotes& notes);

/// Says in the head which device, by the name that its driver gives it, made the record.
void set_recorded_on(ReplayTrace& trace, const std::string& name);

/// A program to replay.
[[nodiscard]] Imported imported_program(const ReplayTrace& trace, ImportNotes notes);

}  // namespace orrery::replay
