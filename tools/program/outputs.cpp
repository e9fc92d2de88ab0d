#include "tools/program/outputs.hpp"

#include "sim/base/input_file.hpp"
#include "sim/record/summary.hpp"
#include "workloads/imports/importer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace orrery::program {

namespace {

namespace fs = std::filesystem;

struct NamedFile {
    std::string what;  ///< "--json" or "the target"
    std::string path;
    bool own_rules =
        false;  ///< who writes it decides what may be there: databases of results, baselines, what is made at once
};

constexpr const char* kOtherFile = "name another file (--force overwrites it)";

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
            outputs.push_back({updated ? "the baseline" : "the target", line.arguments[i], true});
        } else if (is_input(word)) {
            inputs.push_back({"input", line.arguments[i]});
        }
    }
    for (const OptionSpec& option : command.options) {
        const std::string name = std::string(option.name).substr(0, std::string(option.name).find(','));
        for (const std::string& path : line.values(name)) {
            if (option.writes) {
                const bool text_known = line.command == "import" || line.command == "init";
                outputs.push_back({"--" + name, path, name == "db" || text_known});
            } else if (std::string(option.argument) == "FILE") {
                inputs.push_back({"--" + name, path});
            }
        }
    }
    if (line.command == "import" && !line.has("output")) {
        outputs.push_back(
            {"the file that is made", importer(line.arguments[0]).default_output(line.arguments[1]), true});
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

// The first bytes of a file, as many as every mark needs. It is not an input: InputFile would note it as read.
std::string start_of(const std::string& path, std::size_t most = 4096) {
    std::string text(most, '\0');
    std::ifstream stream(path, std::ios::binary);
    stream.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, stream.gcount())));
    return text;
}

// Whether a path is a file with something in it: an empty one, as mktemp makes, is there to be written.
bool has_text(const std::string& path) {
    std::error_code unknown;
    return fs::is_regular_file(path, unknown) && fs::file_size(path, unknown) > 0;
}

std::string foreign(const std::string& what) {
    return fmt::format("exists, and is not an earlier output of this kind ({}): {}", what, kOtherFile);
}

std::string over_input(const std::string& what) {
    return fmt::format("{} would be written over a file that was read: {}", what, kOtherFile);
}

// Whether a file starts as an output of the command does. What a run writes as tables is known by its columns before it runs.
bool is_output(const CommandLine& line, const std::string& start) {
    constexpr std::array kTables = {"request,arrival_s", "flow,source", "time_s,flow", "port,bytes", "time_s,port"};
    const std::string mark = mark_of_output(start);
    if (line.command != "run" || mark.find(',') == std::string::npos) {
        return !mark.empty();
    }
    return std::find(kTables.begin(), kTables.end(), mark) != kTables.end();
}

}  // namespace

std::string mark_of_output(std::string_view start) {
    const auto begins = [&](std::string_view text) { return start.substr(0, text.size()) == text; };
    const auto until = [&](std::string_view end) { return std::string(start.substr(0, start.find(end))); };
    const auto names = [&](std::string_view word) { return start.substr(0, 600).find(word) != std::string_view::npos; };
    constexpr std::string_view kDatabase("SQLite format 3");
    constexpr std::size_t kApplicationId = 68;  // where a database of SQLite has it
    if (begins(kDatabase)) {
        const std::string_view id = start.size() > kApplicationId + 4 ? start.substr(kApplicationId, 4) : "";
        return id == "ORRY" || id == "ORRT" ? std::string(id) : "";
    }
    if (begins("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n")) {
        return "timeline";
    }
    if (begins("{\"orrery\": 1") || begins("{\"orrery\":1")) {
        return "resolved scenario";
    }
    if (begins("{")) {  // {"schema": "orrery-summary-1", ...
        constexpr std::string_view kSchema = "\"schema\": \"orrery-";
        const std::size_t at = start.substr(0, 100).find(kSchema);
        const std::string_view rest = at == std::string_view::npos ? "" : start.substr(at + kSchema.size());
        return std::string(rest.substr(0, rest.find('"')));
    }
    if (begins("[")) {  // rows of objects: by their first key
        return until(":");
    }
    if (begins("<?xml")) {
        return names("<testsuites name=\"orrery ") ? "JUnit" : "";
    }
    if (begins("<svg ")) {
        return names("style=\"max-width:") && names("role=\"img\"") ? "chart" : "";
    }
    if (begins("<!doctype html>")) {
        return names("<meta name=\"generator\" content=\"orrery\">") ? "report" : "";
    }
    const std::string line = until("\n");
    if (begins("### Orrery: ")) {
        return "outcome of checks";
    }
    if (begins("#")) {  // texts by version, and descriptions of devices; scenarios are edited
        const bool own = begins("# orrery-") || line.find("written by 'orrery calibrate'") != std::string::npos;
        return own ? line : "";
    }
    // A table, by its first columns: later ones may be names of runs.
    const std::size_t comma = line.find(',');
    return begins("| ")                 ? line.substr(0, line.find('|', 1))
           : comma == std::string::npos ? ""
                                        : line.substr(0, line.find(',', comma + 1));
}

void check_outputs(const CommandLine& line, const std::vector<std::string>& more_inputs) {
    std::vector<NamedFile> inputs;
    std::vector<NamedFile> outputs;
    collect(line, inputs, outputs);
    for (const std::string& path : more_inputs) {
        inputs.push_back({"a file that the input names", path});
    }
    const bool force = line.has("force");
    std::vector<Diagnostic> errors;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        const NamedFile& out = outputs[i];
        const auto fail = [&](const std::string& why) {
            errors.push_back({out.path, 0, 0, why, ErrorCode::unwritable_file});
        };
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
        if (force || !can_be_lost(out.path)) {
            continue;
        }
        const auto in = std::find_if(inputs.begin(), inputs.end(), [&](const NamedFile& one) {
            return one.path != "-" && same_file(one.path, out.path);
        });
        if (in != inputs.end()) {
            fail(fmt::format("{} would be written over {}{}: {}", out.what, in->what,
                             in->path == out.path ? "" : " " + in->path, kOtherFile));
        } else if (!out.own_rules && was_read(out.path)) {
            fail(over_input(out.what));
        } else if (!out.own_rules && has_text(out.path) && !is_output(line, start_of(out.path))) {
            fail(foreign(out.what));
        }
    }
    throw_if_any(errors);
}

void write_output(const CommandLine& line, const std::string& what, const std::string& path, const std::string& text) {
    if (can_be_lost(path) && has_text(path) && !line.has("force")) {
        // A calibration reads the fits that a folder has, to choose the one that a new fit replaces.
        if (was_read(path) && line.command != "calibrate") {
            throw ConfigError({Diagnostic{path, 0, 0, over_input(what), ErrorCode::unwritable_file}});
        }
        const std::string mark = mark_of_output(start_of(path));
        if ((mark.empty() || mark != mark_of_output(text)) && start_of(path, text.size() + 1) != text) {
            throw ConfigError({Diagnostic{path, 0, 0, foreign(what), ErrorCode::unwritable_file}});
        }
    }
    write_file(path, text);
}

void write_output(const CommandLine& line, const std::string& option, const std::string& text) {
    write_output(line, "--" + option, line.has(option) ? line.text(option) : "-", text);
}

void require_new(const CommandLine& line, const std::string& what, const std::string& path) {
    if (can_be_lost(path) && has_text(path) && !line.has("force")) {
        throw ConfigError(
            {Diagnostic{path, 0, 0, fmt::format("exists ({}): {}", what, kOtherFile), ErrorCode::unwritable_file}});
    }
}

}  // namespace orrery::program
