#include "tools/program/error_codes.hpp"

#include "sim/base/input_file.hpp"
#include "sim/base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>

namespace orrery::inline program {

namespace {

constexpr const char* kTrace = "E213";
constexpr const char* kCommandLine = "E214";

}  // namespace

const std::vector<ErrorCode>& error_table() {
    // The order matters: "unknown metric" is not "unknown", and E200 and E300 take what is left.
    static const std::vector<ErrorCode> kTable = {
        {"E201",
         "unknown key",
         "A map has a key that nobody reads. It is misspelt, belongs to another section, or to a choice that was not "
         "made: the parameters "
         "of a scheduler, a transport or a path are keys only where it is chosen. 'orrery list fields' names every "
         "key.",
         {"unknown key '"}},
        {"E202",
         "missing key",
         "A key that has no default is not there. The message says what it means; 'orrery schema KIND' and 'orrery "
         "list fields' name "
         "those that a kind of scenario needs.",
         {"' is missing: ", "must be a map of names to", "needs a number as its 'value'"}},
        {"E203",
         "duplicate key",
         "A map has one key twice, so that one of its values would be lost. Keep one of the two.",
         {"duplicate key '"}},
        {"E204",
         "wrong unit",
         "A quantity has no unit, one that is not known, or one of another kind. Bits are not bytes (Gbps, GB/s), GiB "
         "is not GB, and a "
         "plain number is no time: write 2 s, 400 Gbps, 80 GiB, 40 %.",
         {"has no unit;", "wrong kind of unit", "unknown unit '", "has a unit; expected", "write a number and a unit",
          "no share but in"}},
        {"E205",
         "wrong type",
         "A value is of another type than its key takes: a word for a number, a list for a map, a fraction for a whole "
         "number.",
         {"must be a whole number", "must be a number", "must be true or false", "must be a map", "must be a list",
          "must be a single value", "must be a quantity", "expected a map of", "a key must be a plain word",
          "is not a number", "a scenario is a map", "is a map of"}},
        {"E206",
         "out of range",
         "A value is of the right type and unit, but beyond what the key allows. The message gives the limits; 'orrery "
         "schema KIND' has "
         "all of them.",
         {"' must be between", "' must be at least", "' must be at most", "is too large", ", the limit is ",
          "is too small to be meant", "must not fall from", " must be a whole number between"}},
        {"E207",
         "unknown name",
         "A value must be one of a set of names, and is not: a preset, a policy, a format, a kind. The message gives "
         "the nearest name or "
         "all of them; 'orrery list' shows the presets.",
         {"cannot be '", " preset '", "has no '", "unknown format '", "unknown kind '", "unknown chart '",
          "no column '", "no engine is called"}},
        {"E208",
         "unknown metric",
         "An expectation or a baseline names a metric that the run does not have. Latencies have quantiles "
         "(ttft_s.p99); a metric of a job "
         "has the name of the job in front (train.mfu). 'orrery run FILE --json -' shows all that a run has.",
         {"unknown metric '"}},
        {"E209",
         "no bound",
         "An expectation is a comparison and a bound: \"< 2 s\", \"<= 0.5\", \"> 40 %\".",
         {"is expected to be '"}},
        {"E210",
         "file unreadable",
         "A file that is named does not exist, is a folder, a pipe or a device, or may not be read. Paths in a "
         "scenario are relative to the "
         "scenario's own file.",
         {"cannot be read", "no such file"}},
        {"E211",
         "file cannot be written",
         "An output has no folder, no permission or no room, or would be written over an input, another output, "
         "or a file that this program did not write as an output of the same kind. --force writes over files.",
         {"cannot be written", "would be written over", "would both be written", "name another file"}},
        {"E212",
         "no valid YAML",
         "The text is not YAML as this program takes it: one document, no duplicate keys, quotes that end, at most 64 "
         "levels and 16 MiB.",
         {"a file holds one document", "is never closed", "nested deeper than", "an alias cannot", "tags such as",
          "aliases of aliases", "not a configuration file", "zero byte", "the file is empty", "end of map",
          "end of sequence", "illegal map", "tabs for indentation", "bad conversion", "not valid YAML"}},
        {kTrace,
         "trace malformed",
         "A line of a recorded trace does not fit its format, goes back in time, or the file ends too early. The place "
         "is that of the line.",
         {}},
        {kCommandLine,
         "command line",
         "An option or an argument is unknown, given twice, given to another command, or has no value. 'orrery help "
         "COMMAND' lists what a "
         "command takes.",
         {"has no option --", "see 'orrery", "unknown command '"}},
        {"E200",
         "contradiction",
         "Values are right one by one and wrong together, or the input asks for what its kind does not do. The message "
         "says which values, "
         "and what to write instead.",
         {""}},
        {"E301",
         "out of memory",
         "What is simulated does not fit into the memory of its devices, or the run not into that of this machine. Of "
         "a plan the message "
         "names the levers that help (sequence parallelism, ZeRO, recomputation, more tensor or pipeline ranks); of a "
         "run --memory-limit.",
         {"does not fit", "memory"}},
        {"E302",
         "does not divide",
         "A degree of parallelism does not divide what it is to cut: GPUs, layers, heads, the global batch. The "
         "message gives both numbers.",
         {"does not divide", "do not divide", "power of two"}},
        {"E303",
         "not enough GPUs",
         "Ranks or replicas need more GPUs than the cluster, or the nodes of the job, have.",
         {"GPUs, but", "but the cluster has", "hosts"}},
        {"E304",
         "no route",
         "Two ends that must talk have no path between them: no NIC, no link inside the node, or a link without "
         "capacity.",
         {"no route", "no capacity"}},
        {"E305",
         "limits not met",
         "A search found no rate or plan within the limits: an idle system misses them already, or all plans do.",
         {"limits are", "is feasible"}},
        {"E300", "infeasible", "The scenario says what it means, and cannot be run. The message says why.", {""}},
    };
    return kTable;
}

const ErrorCode& code_of(int exit_code, const Diagnostic& diagnostic) {
    const char kind = exit_code == 3 ? '3' : '2';
    const std::string& text = diagnostic.text;
    std::filesystem::path file = diagnostic.file;
    if (file.extension() == ".gz" || file.extension() == ".xz" || file.extension() == ".zst") {
        file = file.stem();
    }
    const std::string extension = file.extension().string();
    const bool overridden = diagnostic.file.rfind("--", 0) == 0;  // a value of the command line: no file at all
    const bool in_trace = kind == '2' && diagnostic.line > 0 && !extension.empty() && extension != ".yaml" &&
                          extension != ".yml" && !overridden;
    const bool of_option = kind == '2' && diagnostic.file.empty() && text.rfind("--", 0) == 0;
    const char* own = in_trace ? kTrace : of_option ? kCommandLine : "";
    const auto& table = error_table();
    const auto found = std::find_if(table.begin(), table.end(), [&](const ErrorCode& row) {
        if (*own != '\0') {
            return std::string(own) == row.code;
        }
        return row.code[1] == kind && std::any_of(row.phrases.begin(), row.phrases.end(), [&](const char* phrase) {
                   return text.find(phrase) != std::string::npos;
               });
    });
    ORRERY_ASSERT(found != table.end());
    return *found;
}

std::string error_help(const std::string& code) {
    for (const ErrorCode& row : error_table()) {
        const std::string own = row.code;
        const bool same = std::equal(own.begin(), own.end(), code.begin(), code.end(), [](char a, char b) {
            return a == static_cast<char>(std::toupper(static_cast<unsigned char>(b)));
        });
        if (same) {
            return fmt::format("{}: {} (exit code {})\n\n{}\n", row.code, row.title, row.code[1], row.explanation);
        }
    }
    return "";
}

OutputFormat output_format(const std::string& name) {
    if (name.empty() || name == "text") {
        return OutputFormat::text;
    }
    if (name == "github") {
        return OutputFormat::github;
    }
    const std::string nearest = nearest_name(name, {"text", "github"});
    throw ConfigError(fmt::format("--output-format cannot be '{}'{}; it is one of text, github", name,
                                  nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest)));
}

namespace {

// As workflow commands want it: docs.github.com, "Workflow commands for GitHub Actions", and their toolkit's escaping.
std::string escaped(const std::string& text, bool property) {
    std::string out;
    for (const char c : text) {
        const bool mark = c == '%' || c == '\r' || c == '\n' || (property && (c == ':' || c == ','));
        out += mark ? fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c))) : std::string(1, c);
    }
    return out;
}

bool in_yaml(const Diagnostic& diagnostic) {
    const std::string extension = std::filesystem::path(diagnostic.file).extension().string();
    return diagnostic.line > 0 && diagnostic.column > 0 && diagnostic.file.rfind("--", 0) != 0 &&
           (extension == ".yaml" || extension == ".yml");
}

// The line that an error is in, with a mark below its column; of a long one what is around it. Empty where the file is no more there.
std::string source_line(const Diagnostic& diagnostic, std::map<std::string, std::string>& files) {
    constexpr std::size_t kMostBytes = 16U << 20U;
    constexpr std::size_t kBefore = 60;
    constexpr std::size_t kWidth = 100;
    if (!files.contains(diagnostic.file)) {
        try {
            files[diagnostic.file] = start_of_input(diagnostic.file, kMostBytes);
        } catch (const ConfigError&) {
            files[diagnostic.file].clear();
        }
    }
    const std::string& text = files[diagnostic.file];
    std::size_t start = 0;
    for (int line = 1; line < diagnostic.line && start < text.size(); ++line) {
        start = std::min(text.find('\n', start), text.size() - 1) + 1;
    }
    std::string_view line = std::string_view(text).substr(start, text.find('\n', start) - start);
    if (!line.empty() && line.back() == '\r') {
        line.remove_suffix(1);
    }
    std::size_t column = static_cast<std::size_t>(diagnostic.column) - 1;
    if (start >= text.size() || column > line.size()) {
        return "";
    }
    // Cut between characters, not inside one.
    const auto inside = [&](std::size_t at) {
        return at < line.size() && (static_cast<unsigned char>(line[at]) & 0xC0U) == 0x80U;
    };
    std::size_t from = column > kBefore ? column - kBefore : 0;
    while (inside(from)) {
        ++from;
    }
    std::size_t to = std::min(from + kWidth, line.size());
    while (inside(to)) {
        --to;
    }
    std::string shown =
        (from > 0 ? "..." : "") + std::string(line.substr(from, to - from)) + (to < line.size() ? "..." : "");
    std::replace(shown.begin(), shown.end(), '\t', ' ');
    const auto characters = std::count_if(line.begin() + static_cast<std::ptrdiff_t>(from),
                                          line.begin() + static_cast<std::ptrdiff_t>(std::max(column, from)),
                                          [](unsigned char c) { return (c & 0xC0U) != 0x80U; });
    const std::string number = std::to_string(diagnostic.line);
    return fmt::format("  {} | {}\n  {:{}} | {:{}}^\n", number, shown, "", number.size(), "",
                       static_cast<std::size_t>(characters) + (from > 0 ? 3 : 0));
}

}  // namespace

std::string github_annotation(const Diagnostic& diagnostic, const std::string& title) {
    std::string where;
    const auto add = [&](const char* name, const std::string& value) {
        where += fmt::format("{}{}={}", where.empty() ? " " : ",", name, escaped(printable(value), true));
    };
    // An override of the command line is the place of an error, and no file.
    const bool in_file = !diagnostic.file.empty() && diagnostic.file.rfind("--", 0) != 0;
    if (in_file) {
        add("file", diagnostic.file);
    }
    if (diagnostic.line > 0 && in_file) {
        add("line", std::to_string(diagnostic.line));
        add("col", std::to_string(diagnostic.column));
    }
    add("title", title);
    const std::string of = in_file || diagnostic.file.empty() ? "" : diagnostic.file + ": ";
    return fmt::format("::error{}::{}", where, escaped(printable(of + diagnostic.text), false));
}

std::string error_text(const Error& error, OutputFormat format) {
    const auto* input = dynamic_cast<const ConfigError*>(&error);
    const bool internal = error.exit_code() == 4;
    const char* kind = input != nullptr ? "" : internal ? "internal error: " : "infeasible: ";
    const auto line = [&](const Diagnostic& diagnostic, const std::string& text) {
        if (internal) {
            return format == OutputFormat::github ? github_annotation(diagnostic, "internal error") + "\n"
                                                  : kind + text + "\n";
        }
        const ErrorCode& code = code_of(error.exit_code(), diagnostic);
        return format == OutputFormat::github
                   ? github_annotation(diagnostic, fmt::format("{} {}", code.code, code.title)) + "\n"
                   : fmt::format("{}{} [{}]\n", kind, text, code.code);
    };
    if (input == nullptr) {
        return line(Diagnostic{{}, 0, 0, error.what()}, error.what());
    }
    std::string out;
    std::size_t shown = 0;
    std::map<std::string, std::string> files;
    for (const Diagnostic& diagnostic : input->diagnostics()) {
        out += line(diagnostic, diagnostic.to_string());
        constexpr std::size_t kMostShown = 10;
        if (format == OutputFormat::text && in_yaml(diagnostic) && ++shown <= kMostShown) {
            out += source_line(diagnostic, files);
        }
    }
    return out;
}

}  // namespace orrery::inline program
