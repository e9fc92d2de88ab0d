#include "tools/program/outputs.hpp"

#include "workloads/replay/importers/importer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

namespace orrery::inline program {

namespace {

namespace fs = std::filesystem;

struct NamedFile {
    std::string what;  ///< "--json" or "the target"
    std::string path;
};

bool is_input(const std::string& word) {
    static const std::vector<std::string> kFiles = {"FILE", "FIRST", "SECOND", "DATABASE", "PART", "BASELINE", "TRACE"};
    return std::find(kFiles.begin(), kFiles.end(), word) != kFiles.end();
}

// Words of "KIND FILE" or "TARGET PART...": the last one stands for all that follow.
std::vector<std::string> words_of(const char* arguments) {
    std::istringstream text(arguments);
    std::vector<std::string> out;
    for (std::string word; text >> word;) {
        std::erase_if(word, [](char c) { return c == '[' || c == ']' || c == '.'; });
        out.push_back(word);
    }
    return out;
}

const CommandSpec& spec_of(const std::string& name) {
    const auto& table = command_table();
    const auto found = std::find_if(table.begin(), table.end(), [&](const CommandSpec& c) { return name == c.name; });
    ORRERY_ASSERT(found != table.end());
    return *found;
}

void collect(const CommandLine& line, std::vector<NamedFile>& inputs, std::vector<NamedFile>& outputs) {
    const CommandSpec& command = spec_of(line.command);
    const std::vector<std::string> words = words_of(command.arguments);
    for (std::size_t i = 0; i < line.arguments.size() && !words.empty(); ++i) {
        const std::string& word = words[std::min(i, words.size() - 1)];
        const bool updated = line.command == "check" && line.has("update");  // read and written anew, on purpose
        if (word == "TARGET" || updated) {
            outputs.push_back({updated ? "the baseline" : "the target", line.arguments[i]});
        } else if (is_input(word)) {
            inputs.push_back({"input", line.arguments[i]});
        }
    }
    for (const OptionSpec& option : command.options) {
        const std::string name = std::string(option.name).substr(0, std::string(option.name).find(','));
        for (const std::string& path : line.values(name)) {
            if (option.writes) {
                outputs.push_back({"--" + name, path});
            } else if (std::string(option.argument) == "FILE") {
                inputs.push_back({"--" + name, path});
            }
        }
    }
    if (line.command == "import" && !line.has("output")) {
        outputs.push_back({"the file that is made", importer(line.arguments[0]).default_output(line.arguments[1])});
    }
}

// Files that are not there yet are compared by where they will be.
bool same_file(const std::string& a, const std::string& b) {
    std::error_code failed;
    if (fs::equivalent(a, b, failed)) {
        return true;
    }
    const fs::path first = fs::weakly_canonical(fs::absolute(a, failed), failed);
    return !failed && first == fs::weakly_canonical(fs::absolute(b, failed), failed);
}

// A device or a pipe takes what it is given and loses nothing.
bool can_be_lost(const std::string& path) {
    std::error_code unknown;
    const fs::file_status status = fs::status(path, unknown);
    return path != "-" && (!fs::exists(status) || fs::is_regular_file(status) || fs::is_directory(status));
}

std::string place_problem(const std::string& path) {
    std::error_code unknown;
    const fs::path parent = fs::path(path).parent_path();
    if (!parent.empty() && !fs::is_directory(parent, unknown)) {
        return fmt::format("cannot be written: there is no folder {}", parent.string());
    }
    return fs::is_directory(path, unknown) ? "cannot be written: it is a folder" : "";
}

}  // namespace

void check_outputs(const CommandLine& line, const std::vector<std::string>& more_inputs) {
    std::vector<NamedFile> inputs;
    std::vector<NamedFile> outputs;
    collect(line, inputs, outputs);
    for (const std::string& path : more_inputs) {
        inputs.push_back({"a file that the input names", path});
    }
    std::vector<Diagnostic> errors;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        const NamedFile& out = outputs[i];
        const auto fail = [&](const std::string& why) { errors.push_back({out.path, 0, 0, why}); };
        const bool folder = line.command == "calibrate";
        if (const std::string problem = out.path == "-" || folder ? "" : place_problem(out.path); !problem.empty()) {
            fail(fmt::format("{} ({})", problem, out.what));
            continue;
        }
        for (std::size_t j = 0; j < i; ++j) {
            const bool both = out.path == "-" ? outputs[j].path == "-"
                                              : can_be_lost(out.path) && outputs[j].path != "-" &&
                                                    same_file(out.path, outputs[j].path);
            if (both) {
                fail(fmt::format("{} and {} would both be written here: name two files", outputs[j].what, out.what));
            }
        }
        for (const NamedFile& in : inputs) {
            if (in.path != "-" && can_be_lost(out.path) && same_file(in.path, out.path)) {
                fail(fmt::format("{} would be written over {}{}: name another file", out.what, in.what,
                                 in.path == out.path ? "" : " " + in.path));
            }
        }
    }
    if (!errors.empty()) {
        throw ConfigError(errors);
    }
}

}  // namespace orrery::inline program
