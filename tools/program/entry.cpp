#include "tools/program/entry.hpp"

#include "sim/base/text.hpp"
#include "tools/program/command_line.hpp"
#include "tools/program/commands.hpp"
#include "tools/program/error_codes.hpp"
#include "tools/program/memory_limit.hpp"

#include <fmt/format.h>
#include <boost/program_options.hpp>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <set>
#include <system_error>
#include <utility>

namespace po = boost::program_options;

namespace orrery::program {

namespace {

po::options_description all_options() {
    po::options_description options("options");
    options.add_options()("command", po::value<std::string>())("arguments", po::value<std::vector<std::string>>());
    std::set<std::string> known;
    const auto add = [&](const OptionSpec& option) {
        if (known.insert(option.name).second) {
            if (*option.argument == '\0') {
                options.add_options()(option.name, po::bool_switch());
            } else {
                options.add_options()(option.name, po::value<std::vector<std::string>>()->composing());
            }
        }
    };
    for (const OptionSpec& option : common_options()) {
        add(option);
    }
    for (const CommandSpec& command : command_table()) {
        std::for_each(command.options.begin(), command.options.end(), add);
    }
    return options;
}

constexpr const char* kExportFormats[] = {"markdown", "csv", "json", "svg"};

// "--export csv FILE" names a format and a file: it is the option --export-csv.
std::vector<std::string> words_of(int argc, char** argv) {
    std::vector<std::string> words(argv + 1, argv + argc);
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
        if (words[i] == "--export") {
            if (std::find(std::begin(kExportFormats), std::end(kExportFormats), words[i + 1]) ==
                std::end(kExportFormats)) {
                throw ConfigError(
                    fmt::format("--export takes a format and a file, and '{}' is no format; it is one of {}",
                                words[i + 1], fmt::join(kExportFormats, ", ")),
                    ErrorCode::command_line);
            }
            words[i] += "-" + words[i + 1];
            words.erase(words.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
    }
    return words;
}

int dispatch(int argc, char** argv) {
    const po::options_description options = all_options();
    po::positional_options_description positional;
    positional.add("command", 1).add("arguments", -1);
    po::variables_map values;
    // Without guessing: "--gpu h100-sxm" is no abbreviation of --gpus.
    constexpr int kStyle = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    try {
        po::store(
            po::command_line_parser(words_of(argc, argv)).options(options).positional(positional).style(kStyle).run(),
            values);
    } catch (const po::unknown_option& unknown) {
        std::vector<std::string> names;
        for (const auto& option : options.options()) {
            names.push_back("--" + option->long_name());
        }
        const std::string near = nearest_name(unknown.get_option_name(), names);
        throw ConfigError(fmt::format("unrecognised option '{}'{}", unknown.get_option_name(),
                                      near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near)),
                          ErrorCode::command_line);
    }
    po::notify(values);

    CommandLine line;
    line.program = argv[0];
    for (const auto& [name, value] : values) {
        if (name == "command") {
            line.command = value.as<std::string>();
        } else if (name == "arguments") {
            line.arguments = value.as<std::vector<std::string>>();
        } else if (value.value().type() == typeid(bool)) {
            if (value.as<bool>()) {
                line.options[name] = {};
            }
        } else {
            line.options[name] = value.as<std::vector<std::string>>();
        }
    }
    (void)output_format(line.text("output-format"));
    if (line.has("version")) {
        line.command = "version";
    }
    if (line.has("help") || line.command.empty()) {
        fmt::print("{}", help_text(line.command));
        return line.has("help") ? 0 : 2;
    }
    return run_command(line);
}

// A standard error that is closed or full must not hide the exit code. Lines are ours, what is in them may be of files.
int fail(int code, const std::string& text) {
    std::string out;
    for (const std::string_view line : split(text, '\n')) {
        out += line.empty() ? "" : printable(line) + "\n";
    }
    (void)std::fputs(out.c_str(), stderr);
    return code;
}

// How errors are to be printed, also those of a command line that cannot be read.
OutputFormat wanted_format(int argc, char** argv) {
    const std::string option = "--output-format";
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        for (const auto& [name, format] :
             {std::pair("github", OutputFormat::github), std::pair("json", OutputFormat::json)}) {
            if (word == option + "=" + name || (word == name && argv[i - 1] == option)) {
                return format;
            }
        }
    }
    return OutputFormat::text;
}

int fail(const Error& error, int argc, char** argv) {
    const OutputFormat format = wanted_format(argc, argv);
    if (format == OutputFormat::json) {  // it has no bytes that a terminal takes for commands, and is not to be cut
        (void)std::fputs(error_text(error, format).c_str(), stderr);
        return error.exit_code();
    }
    return fail(error.exit_code(), error_text(error, format));
}

constexpr const char* kLost = "standard output: error: cannot be written";

}  // namespace

int run_program(int argc, char** argv) {
    // A file that grows beyond the limit of its size is an error of the write, which names the file.
    (void)std::signal(SIGXFSZ, SIG_IGN);
    try {
        const int code = dispatch(argc, argv);
        // What a full disk or a closed device did not take would be lost without a word.
        return std::fflush(stdout) != 0 || std::ferror(stdout) != 0 ? fail(2, kLost) : code;
    } catch (const po::error& error) {
        return fail(ConfigError(fmt::format("{}; see 'orrery --help'", error.what()), ErrorCode::command_line), argc,
                    argv);
    } catch (const Error& error) {
        return fail(error, argc, argv);
    } catch (const std::bad_alloc&) {
        return fail(InfeasibleError(out_of_memory_text(), ErrorCode::out_of_memory), argc, argv);
    } catch (const std::length_error&) {  // more than any memory has
        return fail(InfeasibleError(out_of_memory_text(), ErrorCode::out_of_memory), argc, argv);
    } catch (const std::system_error& error) {
        // Descriptors, threads and files are the machine's to give: this is no bug of the program.
        const bool files =
            error.code() == std::errc::too_many_files_open || error.code() == std::errc::too_many_files_open_in_system;
        return fail(2, fmt::format("error: the operating system refused: {}{}", error.what(),
                                   files ? " (raise the limit of open files: ulimit -n 1024)" : ""));
    } catch (const std::exception& error) {
        return std::ferror(stdout) != 0 ? fail(2, kLost) : fail(InternalError(error.what()), argc, argv);
    }
}

}  // namespace orrery::program
