#pragma once
// Some 700 hostile inputs of every kind, made from good ones: scenarios, traces, sweeps, presets, baselines, graphs, command lines.
//
// Each is a folder of files and a command on them. What must hold of all: it ends within 20 s, with exit code 0, 1, 2 or 3, by no
// signal, with every file as it was; and what is surely wrong is refused, where it stands in a file with the line.

#include "sim/base/namespaces.hpp"

#include <map>
#include <string>
#include <vector>

namespace orrery::test {

enum class Verdict {
    any,      ///< it may be good
    refused,  ///< exit code 2
    located,  ///< exit code 2 with FILE:LINE of the attacked file
};

struct Attack {
    std::string name;
    std::string command;                       ///< of the program; it runs in the folder
    std::map<std::string, std::string> files;  ///< of the folder: name and bytes
    std::string attacked;                      ///< the file that is wrong; empty: the command line is
    Verdict verdict = Verdict::any;
};

/// Those of the newer sections of scenarios (sections.cpp).
void attack_sections(std::vector<Attack>& out);

/// The corpus, always the same. `root`: where the repository's good inputs are read.
[[nodiscard]] std::vector<Attack> attacks(const std::string& root);

}  // namespace orrery::test
