#pragma once
// Command lines of serving engines and of the clients that load them, as one serving scenario.
//
// Claims: the arrangement, precision, limits and load that the flags say, with the engine's own defaults where they differ from those
// of scenarios. The model is found by its name (workloads/model/model_names.hpp) or described by its config.json. Without a node
// named the first of a list on which the scenario runs is taken, and that is said. Scope: one deployment; a pair of servers for
// prefill and decode is one. Limits: what flags do that no key says is listed, and so is every flag that is in no table.

#include "sim/config/data_directory.hpp"
#include "workloads/imports/flag_table.hpp"
#include "workloads/imports/scenario_keys.hpp"
#include "workloads/imports/serving_nodes.hpp"
#include "workloads/model/model_names.hpp"

#include <string>
#include <utility>
#include <vector>

namespace orrery::imports {

/// The model that is served.
struct ServedModel {
    std::string name;         ///< as the scenario says it
    std::string description;  ///< the section of a scenario, where it came from a config.json
    NamedCheckpoint checkpoint;
    bool experts = false;
    bool linear = false;        ///< has layers of linear attention,
    bool indexer = false;       ///< or attention with an indexer
    std::int64_t sequence = 0;  ///< tokens that it was made for
    double layer = 0;           ///< parameters of a layer that a token uses, in the mean; 0: not known
};

/// How the ranks of one phase are arranged.
struct ServingRanks {
    std::int64_t tensor = 1;
    std::int64_t pipeline = 1;
    std::int64_t groups = 1;
    std::int64_t replicas = 1;
    std::int64_t expert = 0;  ///< degree; 0: the model has no experts

    [[nodiscard]] std::int64_t gpus() const { return tensor * pipeline * groups * replicas; }
};

/// What an engine's flags say beside what all engines share.
struct ServingChoices {
    ServingRanks ranks;
    std::string scheduler;           ///< its kind
    std::int64_t token_budget = 0;   ///< of a rank of attention; 0: the scenario's default
    std::int64_t max_sequences = 0;  ///< the same
    std::string phase;               ///< prefill or decode; empty: both
    std::string software;            ///< preset of the engine's host costs
    bool eager = false;              ///< no graphs, nothing compiled
    bool decode_graphs_alone = false;
    bool serial_host = false;          ///< plans an iteration only after the one before
    std::int64_t graph_sequences = 0;  ///< 0: the preset's
    bool prefix_cache = false;
    double host_cache = 0;     ///< B of a replica's cache in host memory
    std::string kv_precision;  ///< of the cache, where the engine has a default of its own for the model
    std::int64_t draft_tokens = 0;
    bool own_drafts = false;    ///< by a layer like the model's own: multi-token prediction, EAGLE
    std::string draft_model;    ///< by a smaller model
    double memory = 0;          ///< share of a device's memory
    bool of_free = false;       ///< of what weights leave
    bool stored_cache = false;  ///< "auto" is the precision of keys and values that the checkpoint names
};

/// What an engine's choices are made from.
struct ServingLine {
    GivenFlags& flags;
    const ServedModel& model;
    const ServingNode& node;
    std::string version;   ///< of the engine, where an image or a requirement says it
    bool offline = false;  ///< a program that loads its own engine
    const DataDirectory& data;
    ImportNotes& notes;
};

/// The share of a device's memory that the flags give. Throws ConfigError for one that no engine takes.
[[nodiscard]] double memory_share(ServingLine& line, double otherwise);

/// B that the flags give a replica of `ranks` for its cache in host memory, in units of `unit` B where they say no unit; 0: none.
[[nodiscard]] double host_cache(ServingLine& line, std::int64_t ranks, double unit);

/// Says which limits of a batch are the engine's own; 0: the flags say it.
void note_batches(ServingLine& line, std::int64_t tokens, std::int64_t sequences);

/// One engine.
struct ServingEngine {
    const char* name;      ///< for people
    const char* importer;  ///< of its command lines
    const char* example;   ///< of a command
    const char* collectives;
    std::vector<const char*> servers;  ///< words that start one; one that ends with * is a part of an image's name
    std::vector<const char*> offline;  ///< the same of programs that load an engine of their own
    const char* worker;                ///< Dynamo's program of the engine
    const char* worker_software;       ///< preset of its host costs
    const char* table;                 ///< of the flags of both
    const char* offline_table;         ///< of flags of the latter alone
    const char* file;                  ///< key of the flag that names a file of flags
    ServingChoices (*choose)(ServingLine& line);
    std::vector<const char*> python;  ///< classes that a Python script makes one with
    bool whole_context = false;       ///< starts only where its cache holds a sequence of the whole context
};

/// Sets the keys of `engine`. `servers`: one, or those for prefill and for decode; `chosen_software`: a preset that the user names.
void set_engine(const std::vector<GivenFlags*>& servers, const ServedModel& model,
                const std::vector<ServingChoices>& choices, const std::string& chosen_software,
                const DataDirectory& data, ScenarioKeys& keys, ImportNotes& notes);

/// Parameters of a layer that a token uses, in the mean.
[[nodiscard]] double layer_parameters(const ModelSpec& model);

/// The preset of `workloads/data/engines` that starts with `family` and is of the last version up to this one; the first where all are
/// later, and `otherwise` without a version.
[[nodiscard]] std::string engine_preset(const std::string& family, const std::string& version,
                                        const std::string& otherwise, const DataDirectory& data);

/// Whether a version is known and before this one: ("0.4.6", {0, 4, 8}).
[[nodiscard]] bool version_before(const std::string& version, const std::vector<int>& than);

/// Throws ConfigError for a text without a command of this engine, and InfeasibleError where no node that may be taken runs it.
[[nodiscard]] Imported read_serving_commands(const ImportInput& input, const ServingEngine& engine);

/// Options of every importer of this kind.
[[nodiscard]] std::vector<ImportOption> serving_options();

}  // namespace orrery::imports
