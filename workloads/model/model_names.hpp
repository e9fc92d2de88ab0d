#pragma once
// Models by the names that people use: Hugging Face ids, in any case, and their short forms.
//
// A name says which preset describes the model and in which precision its checkpoint stores the weights. Both come from
// workloads/data/model_names.csv and, before it, from the same file in a data folder of the user's own: rows of names,
// and rules for what checkpoints of one model add to its name (-Instruct, -FP8, -AWQ, -0528). Scope: rules tell formats
// apart by their usual suffix; which modules a checkpoint leaves in 16 bits is known for those with a row of their own.
// What the description of a preset leaves out stands in workloads/data/model_sources.csv, beside its source and
// published parameters; how long a sequence and which precision of keys and values a checkpoint names stands in
// workloads/data/model_checkpoints.csv.

#include "sim/config/data_directory.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace orrery::model {

struct ModelSpec;

/// A checkpoint of a model. Empty precisions: the name says nothing of them.
struct NamedCheckpoint {
    std::string preset;
    std::string weights;       ///< of dense products; a name of precision_names()
    std::string experts;       ///< of routed experts, where they differ
    std::string scaling;       ///< of the experts: tensor or block
    std::string left_out;      ///< what it has beside what the preset describes, such as a vision encoder
    std::string cache;         ///< precision of keys and values; empty: that of the model
    std::int64_t context = 0;  ///< tokens of its longest sequence; 0: the preset's

    /// Parameters of what it has beside, in billions: the number in brackets of `left_out`; 0: not known.
    [[nodiscard]] double beside() const;
    /// Its weights are in fewer than 16 bits, all or those of experts.
    [[nodiscard]] bool quantised() const;
    /// Its precision in words: "fp8", or "bf16, experts in fp4".
    [[nodiscard]] std::string precision() const;
};

/// The checkpoint of a name; none where neither a row nor a rule leads to a preset. The name of a preset is that preset, in no
/// precision. Throws ConfigError for a table that is malformed or names no preset, with the line.
[[nodiscard]] std::optional<NamedCheckpoint> find_checkpoint(const std::string& name, const DataDirectory& data);

/// The id of a checkpoint in the path or address of its files: a trailing slash and s3:// go, a folder models--OWNER--NAME of Hugging
/// Face's cache is OWNER/NAME, and of GGUF files (NAME-GGUF:Q4_K_M, NAME.Q4_K_M.gguf) stays NAME.Q4_K_M.
[[nodiscard]] std::string checkpoint_id(std::string name);

/// Where a preset comes from, and what is published of it.
struct ModelSource {
    std::string preset;
    std::string source;
    double total = 0;          ///< parameters in billions, as published
    double active = 0;         ///< those that a token uses, in billions, as published; 0: not published
    double tolerance = 1;      ///< percent that the described total may differ
    std::string not_modelled;  ///< what the description leaves out; empty: nothing that matters
};

/// All rows of the table. Throws ConfigError for a malformed one.
[[nodiscard]] std::vector<ModelSource> model_sources(const DataDirectory& data);
/// What the description of a preset leaves out; empty for one without a row.
[[nodiscard]] std::string not_modelled(const std::string& preset, const DataDirectory& data);

/// Parameters that a token uses: all but those of the routed experts that it does not go to. With both tables.
[[nodiscard]] double active_parameters(const ModelSpec& model);

}  // namespace orrery::model
