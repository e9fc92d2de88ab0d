#pragma once
// The servers and load generators in a text: a command line, a script, a page or a manifest of containers.

#include "sim/config/yaml_tree.hpp"
#include "workloads/imports/serving_command.hpp"
#include "workloads/imports/serving_load.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace orrery::imports {

/// A command that starts an engine or loads one.
struct ServingProgram {
    GivenFlags flags;
    const FlagTable* table;
    const CommandCall* command;
    bool offline = false;                ///< an engine that loads itself
    bool worker = false;                 ///< one of Dynamo's
    const LoadClient* client = nullptr;  ///< of a client, and of a program that is both
    std::string phase = {};              ///< that a file of phases gives it by its port: prefill or decode
    std::int64_t instances = 1;          ///< that this file has of its phase
};

class ServingText {
  public:
    /// Throws ConfigError where there is no server of this engine, and says what there is.
    ServingText(const ImportInput& input, const ServingEngine& engine);

    [[nodiscard]] const std::string& text() const { return text_; }
    [[nodiscard]] int line_of(const ServingProgram& program) const;
    /// The servers of one deployment, or the pair for prefill and for decode.
    [[nodiscard]] std::vector<ServingProgram*> chosen_servers();
    /// The load of a server; null where there is none. The others count as skipped.
    [[nodiscard]] ServingProgram* chosen_client(ServingProgram& server);
    /// Adds flags of the file that a flag names: one that the script writes, or one beside it.
    void add_file(ServingProgram& found) const;
    /// A version in words such as vllm/vllm-openai:v0.11.0 or vllm==0.10.2.
    [[nodiscard]] std::string version_of(const ServingProgram& server) const;
    /// Notes the loops that were read once, and the loads that were skipped.
    void note_rest(ImportNotes& notes) const;

  private:
    void find();
    /// A server that is written as a file of its flags or in Python, not as a command.
    void find_written();
    [[noreturn]] void refuse_foreign() const;
    void add_batch(CommandCall& call);
    /// The word that names of the engine's images and packages have: vllm.
    [[nodiscard]] std::string family() const;
    [[nodiscard]] const LoadClient* offline_client(const CommandCall& command) const;
    [[nodiscard]] std::size_t offline_data(const CommandCall& command) const;
    /// The text of a file that the script writes or that lies beside it.
    [[nodiscard]] std::optional<std::string> file_text(const std::string& name) const;
    /// Gives servers their phases: `trtllm-serve disaggregated -c FILE` names context_servers and generation_servers by their ports.
    /// Without such servers the sections have their settings.
    void read_phases(const CommandCall& command, std::size_t first);
    /// Adds a server that a section of this file describes, beside what the file says of all.
    void add_phase(const YamlNode& root, const YamlNode& section, const std::string& name, CommandCall& call,
                   const CommandCall& command);

    const ImportInput& input_;
    const ServingEngine& engine_;
    std::string text_;
    CommandList script_;
    std::array<CommandCall, 2> written_;  ///< of servers that are no commands
    FlagTable server_table_, offline_table_, worker_table_;
    std::vector<FlagTable> client_tables_;
    std::vector<ServingProgram> servers_, clients_;
    std::vector<GivenFlags> made_data_;  ///< of programs that write the requests of an offline one
    std::vector<std::string> skipped_;
};

}  // namespace orrery::imports
