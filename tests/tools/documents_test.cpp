// Every command of the documents, run as they say it.
//
// A block of "console" holds commands after "$ " (a line that ends in a backslash goes on) and below each the lines of its
// output that the document shows: they must come in this order. A command that fails says so with "(exit code N)". A block of
// "yaml" or "bash" whose first line is "# NAME.yaml..." or "# NAME.sh..." is that file. All of a document is one shell session
// in a folder of its own, with a copy of the data that commands may change. With ORRERY_UPDATE_EXPECTED a shown line that is no more is replaced by the
// line of the output that begins with the same word.

#include "tests/support/command.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <regex>

using namespace orrery;
using namespace orrery::test;

namespace {

struct Command {
    std::string text;
    std::vector<std::size_t> shown;  ///< lines of the document
};

struct Document {
    std::vector<std::string> lines;
    std::vector<Command> commands;
};

Document parse(const std::string& path) {
    Document out;
    std::istringstream stream(read(path));
    std::string block;
    std::string file;
    std::string text;
    bool goes_on = false;
    for (std::string line; std::getline(stream, line);) {
        const std::size_t number = out.lines.size();
        out.lines.push_back(line);
        if (line.rfind("```", 0) == 0) {
            if (!file.empty()) {
                out.commands.push_back({fmt::format("cat > {} <<'END_OF_FILE'\n{}END_OF_FILE", file, text), {}});
            }
            block = block.empty() ? line.substr(3) + " " : "";
            file.clear();
            text.clear();
            goes_on = false;
        } else if (block == "yaml " || block == "bash ") {
            std::smatch named;
            if (text.empty() && std::regex_search(line, named, std::regex("^# ([a-z0-9-]+\\.(yaml|sh))"))) {
                file = named[1];
            }
            text += line + "\n";
        } else if (block == "console ") {
            if (goes_on) {
                out.commands.back().text += "\n" + line;
            } else if (line.rfind("$ ", 0) == 0) {
                out.commands.push_back({line.substr(2), {}});
            } else if (!line.empty() && !out.commands.empty()) {
                out.commands.back().shown.push_back(number);
                continue;
            }
            goes_on = !line.empty() && line.back() == '\\';
        }
    }
    return out;
}

// The first word of a line, and what a table's columns are apart from.
std::string key_of(const std::string& line) {
    const std::size_t start = std::min(line.size(), line.find_first_not_of(' '));
    return line.substr(start, line.find("  ", start) - start);
}

std::string plain(std::string line) {
    while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) {
        line.pop_back();
    }
    return line;
}

// A tree as a clone has it after its build, but that commands may change.
void make_tree(const Folder& folder) {
    namespace fs = std::filesystem;
    const fs::path root = ORRERY_SOURCE_DIR;
    const fs::path tree = folder.file("tree");
    fs::create_directories(tree / "tools");
    for (const char* part :
         {"models/data", "topologies/data", "workloads/data", "scenarios", "baselines", "validation", "tests/data"}) {
        fs::create_directories(tree / "share/orrery" / fs::path(part).parent_path());
        fs::copy(root / part, tree / "share/orrery" / part, fs::copy_options::recursive);
        fs::create_directories((tree / part).parent_path());
        fs::create_directory_symlink(tree / "share/orrery" / part, tree / part);
    }
    fs::create_directories(tree / "bin");
    for (const char* program : {"orrery", "orrery-simgrid"}) {
        const fs::path from = fs::path(orrery_program()).parent_path() / program;
        if (fs::exists(from)) {
            fs::copy_file(from, tree / "bin" / program);
        }
    }
    std::ofstream(tree / "tools/orrery") << "#!/bin/sh\nexec \"$(dirname \"$0\")/../bin/orrery\" \"$@\"\n";
    std::ofstream(tree / "tools/test") << "#!/bin/sh\necho '0 passed, 0 failed'\n";  // this is what runs us
    for (const char* script : {"tools/orrery", "tools/test"}) {
        fs::permissions(tree / script, fs::perms::owner_all);
    }
}

void run_document(const std::string& name) {
    const std::string path = std::string(ORRERY_SOURCE_DIR) + "/" + name;
    Document document = parse(path);
    REQUIRE(document.commands.size() > 1);
    const Folder folder;
    make_tree(folder);
    const std::string mark = "=== end of command ";
    std::string script =
        fmt::format("export HOME={} COLUMNS=120 LC_ALL=C\ncd {} || exit\n", folder.file("home"), folder.file("tree"));
    for (const Command& command : document.commands) {
        script +=
            fmt::format("{}\ncode=$?; [ $code -eq 0 ] || echo \"(exit code $code)\"; echo '{}'\n", command.text, mark);
    }
    std::filesystem::create_directories(folder.file("home"));
    const Outcome out = shell_command("bash " + folder.file("script.sh", script) + " < /dev/null");
    std::size_t at = 0;
    bool changed = false;
    for (const Command& command : document.commands) {
        const std::size_t end = out.text.find(mark, at);
        REQUIRE_MESSAGE(end != std::string::npos, command.text);
        std::vector<std::string> printed;
        std::istringstream lines(out.text.substr(at, end - at));
        for (std::string line; std::getline(lines, line);) {
            printed.push_back(plain(line));
        }
        at = end + mark.size() + 1;
        std::size_t from = 0;
        bool failed_as_shown = false;
        for (const std::size_t number : command.shown) {
            std::string& shown = document.lines[number];
            const auto begin = printed.begin() + static_cast<std::ptrdiff_t>(from);
            auto found = std::find(begin, printed.end(), plain(shown));
            if (found == printed.end() && std::getenv("ORRERY_UPDATE_EXPECTED") != nullptr) {
                found = std::find_if(begin, printed.end(),
                                     [&](const std::string& line) { return key_of(line) == key_of(shown); });
                if (found != printed.end()) {
                    shown = *found;
                    changed = true;
                }
            }
            CHECK_MESSAGE(found != printed.end(), name << ":" << number + 1 << ": not printed by '" << command.text
                                                       << "': " << shown << "\n"
                                                       << fmt::format("{}", fmt::join(printed, "\n")));
            failed_as_shown = failed_as_shown || shown.rfind("(exit code ", 0) == 0;
            from = found == printed.end() ? from : static_cast<std::size_t>(found - printed.begin()) + 1;
        }
        const bool failed = !printed.empty() && printed.back().rfind("(exit code ", 0) == 0;
        CHECK_MESSAGE(failed == failed_as_shown, name << ": '" << command.text << "'\n"
                                                      << fmt::format("{}", fmt::join(printed, "\n")));
    }
    if (changed) {
        std::ofstream stream(path);
        for (const std::string& line : document.lines) {
            stream << line << "\n";
        }
    }
}

}  // namespace

TEST_CASE("the tutorial's commands run, and print what it shows") {
    run_document("scenarios/README.md");
}

TEST_CASE("the README's commands run, and leave nothing in the checkout") {
    run_document("README.md");
}

TEST_CASE("the cookbook's commands run, and print what it shows") {
    run_document("docs/cookbook.md");
}

TEST_CASE("the tutorials' commands run, and print what they show") {
    std::size_t tutorials = 0;
    for (const auto& entry : std::filesystem::directory_iterator(std::string(ORRERY_SOURCE_DIR) + "/docs/tutorials")) {
        run_document("docs/tutorials/" + entry.path().filename().string());
        ++tutorials;
    }
    CHECK(tutorials >= 5);
}
