#pragma once
// What families of models leave unsaid in a config.json, and the files of Mistral and Meta that say the same in other words.

#include "workloads/imports/hf_values.hpp"
#include "workloads/imports/importer.hpp"

#include <string>

namespace orrery::imports {

// Json: nlohmann::json, for which both are instantiated.

/// Rewrites the keys of a params.json (Mistral, Meta) as those of a config.json, and lifts the maps that MPT and DBRX keep attention and
/// feed-forwards in.
template <class Json>
void use_config_keys(Json& root, ImportNotes& notes);

/// Adds the values that transformers takes for this type where neither map has the key.
template <class Json>
void add_class_defaults(const std::string& type, Json& language, const Json& outer, ImportNotes& notes);

/// Throws ConfigError for a model that is no decoder of transformer or hybrid layers, with what it is.
void refuse_other_models(HfValues& config, const std::string& type);

/// Whether the feed-forward has one product into it: no gate.
[[nodiscard]] bool is_plain(HfValues& config, const std::string& type);
/// Whether positions are learned or biases of scores, not rotary.
[[nodiscard]] bool has_other_positions(const std::string& type);
/// Whether the LM head has weights of its own where the file does not say.
[[nodiscard]] bool is_untied(const std::string& type);

}  // namespace orrery::imports
