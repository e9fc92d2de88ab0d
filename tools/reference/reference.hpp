#pragma once
// The reference of the scenario language, for the terminal and as Markdown. Everything in it comes from the descriptions of
// fields and the tables of policies; examples come from the scenarios that the project ships, where one has the key.

#include "sim/config/reference.hpp"
#include "tools/driver/scenario.hpp"

#include <string>
#include <vector>

namespace orrery::reference {

/// Kinds that have a reference: those of scenarios, and sweep.
[[nodiscard]] std::vector<std::string> reference_kinds();
/// Every key of a kind. Precondition: one of reference_kinds(). Examples are of shipped scenarios where there is one.
[[nodiscard]] std::vector<KeyReference> reference_of_kind(const std::string& kind, const DataDirectory& data);
/// What `orrery help KIND [KEY]` says; an empty key: its sections and keys. Throws ConfigError for keys that there are not,
/// with the nearest that is.
[[nodiscard]] std::string help_of_key(const std::string& kind, const std::string& key, const DataDirectory& data);
/// scenarios/REFERENCE.md: every kind and key.
[[nodiscard]] std::string reference_markdown(const DataDirectory& data);
/// The same as a manual page of section 5, in roff.
[[nodiscard]] std::string reference_manual(const DataDirectory& data, const std::string& version);
/// Text for roff: backslashes, hyphens, and dots and quotes at the start mean something there.
[[nodiscard]] std::string roff(const std::string& text);

}  // namespace orrery::reference
