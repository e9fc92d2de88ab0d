#include "tools/program/error_codes.hpp"

#include "sim/base/input_file.hpp"
#include "sim/base/text.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>

namespace orrery::program {

const std::vector<ErrorRow>& error_table() {
    static const std::vector<ErrorRow> kTable = {
        {ErrorCode::contradiction, "contradiction",
         "Values are right one by one and wrong together, or the input asks for what its kind does not do. The message "
         "says which values, "
         "and what to write instead."},
        {ErrorCode::unknown_key, "unknown key",
         "A map has a key that nobody reads. It is misspelt, belongs to another section, or to a choice that was not "
         "made: the parameters "
         "of a scheduler, a transport or a path are keys only where it is chosen. 'orrery list fields' names every "
         "key."},
        {ErrorCode::missing_key, "missing key",
         "A key that has no default is not there. The message says what it means; 'orrery schema KIND' and 'orrery "
         "list fields' name "
         "those that a kind of scenario needs."},
        {ErrorCode::duplicate_key, "duplicate key",
         "A map has one key twice, so that one of its values would be lost. Keep one of the two."},
        {ErrorCode::wrong_unit, "wrong unit",
         "A quantity has no unit, one that is not known, or one of another kind. Bits are not bytes (Gbps, GB/s), GiB "
         "is not GB, and a "
         "plain number is no time: write 2 s, 400 Gbps, 80 GiB, 40 %."},
        {ErrorCode::wrong_type, "wrong type",
         "A value is of another type than its key takes: a word for a number, a list for a map, a fraction for a whole "
         "number."},
        {ErrorCode::out_of_range, "out of range",
         "A value is of the right type and unit, but beyond what the key allows. The message gives the limits; 'orrery "
         "schema KIND' has "
         "all of them."},
        {ErrorCode::unknown_name, "unknown name",
         "A value must be one of a set of names, and is not: a preset, a policy, a format, a kind. The message gives "
         "the nearest name or "
         "all of them; 'orrery list' shows the presets."},
        {ErrorCode::unknown_metric, "unknown metric",
         "An expectation or a baseline names a metric that the run does not have. Latencies have quantiles "
         "(ttft_s.p99); a metric of a job "
         "has the name of the job in front (train.mfu). 'orrery run FILE --json -' shows all that a run has."},
        {ErrorCode::no_bound, "no bound",
         "An expectation is a comparison and a bound: \"< 2 s\", \"<= 0.5\", \"> 40 %\"."},
        {ErrorCode::unreadable_file, "file unreadable",
         "A file that is named does not exist, is a folder, a pipe or a device, or may not be read. Paths in a "
         "scenario are relative to the "
         "scenario's own file."},
        {ErrorCode::unwritable_file, "file cannot be written",
         "An output has no folder, no permission or no room, or would be written over an input, another output, "
         "or a file that this program did not write as an output of the same kind. --force writes over files."},
        {ErrorCode::invalid_yaml, "no valid YAML",
         "The text is not YAML as this program takes it: one document, no duplicate keys, quotes that end, at most 64 "
         "levels and 16 MiB."},
        {ErrorCode::malformed_trace, "trace malformed",
         "A recorded trace, a table or another file that is read beside the scenario does not fit its format, goes "
         "back "
         "in time, or ends too early. The place is that of the line."},
        {ErrorCode::command_line, "command line",
         "An option or an argument is unknown, given twice, given to another command, or has no value. 'orrery help "
         "COMMAND' lists what a "
         "command takes."},
        {ErrorCode::no_effect, "no effect",
         "A key is given and changes nothing, because the choice that it belongs to was not made. The message says "
         "what "
         "it needs: make that choice, or leave the key out."},
        {ErrorCode::outside_policy, "policy from outside",
         "A policy of your own (kind: outside) cannot be loaded, has ended, took too long, or gave an order that "
         "cannot be "
         "carried out. The message names the policy and, of an order, the request, the replica and the time. Code is "
         "loaded "
         "only with --allow-policies."},
        {ErrorCode::infeasible, "infeasible",
         "The scenario says what it means, and cannot be run. The message says why."},
        {ErrorCode::out_of_memory, "out of memory",
         "What is simulated does not fit into the memory of its devices, or the run not into that of this machine. Of "
         "a plan the message "
         "names the levers that help (sequence parallelism, ZeRO, recomputation, more tensor or pipeline ranks); of a "
         "run --memory-limit."},
        {ErrorCode::does_not_divide, "does not divide",
         "A degree of parallelism does not divide what it is to cut: GPUs, layers, heads, the global batch. The "
         "message gives both numbers."},
        {ErrorCode::too_few_gpus, "not enough GPUs",
         "Ranks or replicas need more GPUs than the cluster, or the nodes of the job, have."},
        {ErrorCode::no_route, "no route",
         "Two ends that must talk have no path between them: no NIC, no link inside the node, or a link without "
         "capacity."},
        {ErrorCode::limits_not_met, "limits not met",
         "A search found no rate or plan within the limits: an idle system misses them already, or all plans do."},
    };
    return kTable;
}

const ErrorRow& row_of(ErrorCode code) {
    const auto& table = error_table();
    const auto found = std::find_if(table.begin(), table.end(), [&](const ErrorRow& row) { return row.code == code; });
    ORRERY_ASSERT(found != table.end());
    return *found;
}

std::string ErrorRow::name() const {
    return fmt::format("E{}", static_cast<int>(code));
}

std::string error_help(const std::string& code) {
    for (const ErrorRow& row : error_table()) {
        const std::string own = row.name();
        const bool same = std::equal(own.begin(), own.end(), code.begin(), code.end(), [](char a, char b) {
            return a == static_cast<char>(std::toupper(static_cast<unsigned char>(b)));
        });
        if (same) {
            return fmt::format("{}: {} (exit code {})\n\n{}\n", own, row.title, own[1], row.explanation);
        }
    }
    return "";
}

OutputFormat output_format(const std::string& name) {
    static const std::map<std::string, OutputFormat> kFormats = {
        {"text", OutputFormat::text}, {"github", OutputFormat::github}, {"json", OutputFormat::json}};
    if (name.empty()) {
        return OutputFormat::text;
    }
    if (const auto found = kFormats.find(name); found != kFormats.end()) {
        return found->second;
    }
    const std::string nearest = nearest_name(name, {"text", "github", "json"});
    throw ConfigError(fmt::format("--output-format cannot be '{}'{}; it is one of text, github, json", name,
                                  nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest)),
                      ErrorCode::command_line);
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

std::string diagnostic_json(const Diagnostic& diagnostic, const std::string& code, const std::string& title) {
    nlohmann::ordered_json out;
    if (!code.empty()) {
        out["code"] = code;
    }
    out["title"] = title;
    if (!diagnostic.file.empty()) {
        out["file"] = diagnostic.file;
    }
    if (diagnostic.line > 0) {
        out["line"] = diagnostic.line;
        out["column"] = diagnostic.column;
    }
    out["message"] = diagnostic.text;
    constexpr std::string_view kBefore = "(did you mean '";
    const std::size_t start = diagnostic.text.find(kBefore);
    const std::size_t end = start == std::string::npos ? start : diagnostic.text.find("'?)", start);
    if (end != std::string::npos) {
        out["suggestion"] = diagnostic.text.substr(start + kBefore.size(), end - start - kBefore.size());
    }
    // A file may hold any bytes.
    return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string error_text(const Error& error, OutputFormat format) {
    const auto* input = dynamic_cast<const ConfigError*>(&error);
    const bool internal = error.exit_code() == 4;
    const char* kind = input != nullptr ? "" : internal ? "internal error: " : "infeasible: ";
    const auto line = [&](const Diagnostic& diagnostic, const std::string& text) {
        if (format == OutputFormat::json) {
            return internal
                       ? diagnostic_json(diagnostic, "", "internal error") + "\n"
                       : diagnostic_json(diagnostic, row_of(diagnostic.code).name(), row_of(diagnostic.code).title) +
                             "\n";
        }
        if (internal) {
            return format == OutputFormat::github ? github_annotation(diagnostic, "internal error") + "\n"
                                                  : kind + text + "\n";
        }
        const ErrorRow& row = row_of(diagnostic.code);
        return format == OutputFormat::github
                   ? github_annotation(diagnostic, fmt::format("{} {}", row.name(), row.title)) + "\n"
                   : fmt::format("{}{} [{}]\n", kind, text, row.name());
    };
    if (input == nullptr) {
        return line(Diagnostic{{}, 0, 0, error.what(), error.code()}, error.what());
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

}  // namespace orrery::program
