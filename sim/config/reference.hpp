#pragma once
// The reference of a section: each key that could stand in it, from the one description of fields.

#include "sim/config/fields.hpp"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace orrery::config {

/// What may be written for one key.
struct KeyReference {
    std::string path;  ///< such as "plan.tensor"; entries of lists are "jobs[]"
    std::string doc;
    std::string type;                                          ///< for people: "whole number", "time", "one of"...
    std::vector<std::string> units;                            ///< that a quantity may have
    std::vector<std::pair<std::string, std::string>> choices;  ///< names, with what each is where it is a policy
    std::string presets;                                       ///< directory whose names may be written; empty: none
    std::string range;                                         ///< "1 to 1024", "at least 0"; empty: any
    std::string otherwise;                                     ///< the default; empty: none
    std::string example;                                       ///< a value within the range
    std::string policy;                                        ///< the choice of `kind` that it belongs to; empty: any
    std::string needs;                                         ///< without which the key has no effect; empty: nothing
    bool required = false;
    bool or_keys = false;  ///< a map of keys may stand in place of the value
    bool section = false;  ///< has keys of its own

    bool operator==(const KeyReference&) const = default;
};

/// All keys in the order of description, those of every choice and group too, a section before its keys.
[[nodiscard]] std::vector<KeyReference> reference_of(const std::function<void(Fields&)>& describe);

}  // namespace orrery::config
