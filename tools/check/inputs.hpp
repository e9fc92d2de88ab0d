#pragma once
// Everything that went into a run, leaf by leaf, so that two runs can be compared by their causes.

#include "tools/driver/scenario.hpp"

#include <map>
#include <string>
#include <vector>

namespace orrery::check {

/// Values of the resolved scenario by path ("plan.tensor": "8"), as JSON scalars; without names and sources, which
/// change no result. Tables that the scenario reads are there too, by path with their hash ("table models/data/...").
[[nodiscard]] std::map<std::string, std::string> inputs_of(const Scenario& scenario, const DataDirectory& data);

struct ChangedInput {
    std::string path;
    std::string before, after;  ///< JSON scalars; empty: absent
};
[[nodiscard]] std::vector<ChangedInput> changes_between(const std::map<std::string, std::string>& before,
                                                        const std::map<std::string, std::string>& after);

/// Whether a change is only that a table is not read any more, which is still there: it changes nothing.
[[nodiscard]] bool is_read_no_more(const ChangedInput& change, const DataDirectory& data);

/// The scenario with one changed input put back to `before`; nothing when that is not possible (a table, a value that
/// was absent).
[[nodiscard]] std::optional<Scenario> with_reverted(const Scenario& scenario, const ChangedInput& change,
                                                    const DataDirectory& data);

/// A JSON scalar for people: without quotes, quantities in readable units.
[[nodiscard]] std::string pretty_input(const std::string& json);

}  // namespace orrery::check
