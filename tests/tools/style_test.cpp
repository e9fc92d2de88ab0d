// House rules that a machine can check.

#include "tests/support/prose.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

template <class Visit>
void each_source(const std::vector<std::string>& folders, const Visit& visit) {
    const std::string root = ORRERY_SOURCE_DIR;
    for (const std::string& folder : folders) {
        for (const auto& entry : std::filesystem::recursive_directory_iterator(root + "/" + folder)) {
            const auto extension = entry.path().extension();
            if (extension == ".cpp" || extension == ".hpp") {
                std::ifstream stream(entry.path());
                const std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
                visit(std::filesystem::relative(entry.path(), root).string(), text);
            }
        }
    }
}

// Paths included with quotes.
std::vector<std::string> includes(const std::string& text) {
    std::vector<std::string> out;
    const std::string key = "#include \"";
    for (std::size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
        const std::size_t start = at + key.size();
        out.push_back(text.substr(start, text.find('"', start) - start));
    }
    return out;
}

// By folder or file: those that it includes, and where.
using Uses = std::map<std::string, std::map<std::string, std::string>>;

// The same with those that these include, and so on.
Uses all_reached(const Uses& uses) {
    Uses reached;
    for (const auto& [from, direct] : uses) {
        std::vector<std::string> open = {from};
        while (!open.empty()) {
            const auto found = uses.find(open.back());
            open.pop_back();
            if (found == uses.end()) {
                continue;
            }
            for (const auto& [next, where] : found->second) {
                if (reached[from].emplace(next, where).second) {
                    open.push_back(next);
                }
            }
        }
        reached.try_emplace(from);
    }
    for (const auto& [from, direct] : uses) {
        for (const auto& [next, where] : direct) {
            reached.try_emplace(next);
        }
    }
    return reached;
}

}  // namespace

TEST_CASE(
    "layers: sim knows nobody, models, topologies and workloads not each other, and tools not what validates them") {
    const std::vector<std::pair<std::string, std::set<std::string>>> allowed = {
        {"sim", {"sim"}},
        {"models", {"sim", "models"}},
        {"topologies", {"sim", "topologies"}},
        {"workloads", {"include", "sim", "workloads"}},  // include: what policies from outside are built against
        {"tools", {"sim", "models", "topologies", "workloads", "tools"}},
    };
    for (const auto& [folder, may] : allowed) {
        each_source({folder}, [&, &rule = may](const std::string& path, const std::string& text) {
            for (const std::string& include : includes(text)) {
                CHECK_MESSAGE(rule.contains(include.substr(0, include.find('/'))), path << " includes " << include);
            }
        });
    }
}

TEST_CASE("no folders include each other in a circle, headers and sources together") {
    Uses uses;  // by folder
    each_source({"sim", "models", "topologies", "workloads", "tools", "validation"},
                [&](const std::string& path, const std::string& text) {
                    const auto folder_of = [](const std::string& file) { return file.substr(0, file.rfind('/')); };
                    for (const std::string& include : includes(text)) {
                        if (folder_of(include) != folder_of(path)) {
                            uses[folder_of(path)].emplace(folder_of(include), path + " includes " + include);
                        }
                    }
                });
    const Uses reached = all_reached(uses);
    for (const auto& [folder, direct] : uses) {
        for (const auto& [next, where] : direct) {
            CHECK_MESSAGE(!reached.at(next).contains(folder), where << ", which leads back to " << folder);
        }
    }
}

TEST_CASE("folders of training and serving know those before them") {
    struct Rooms {
        std::string base;
        std::vector<std::string> order;  // "" are the files of the folder itself
    };
    // As workloads/serving/part.hpp and workloads/training/README.md say it.
    for (const Rooms& rooms :
         {Rooms{"workloads/serving/",
                {"requests", "engine", "schedulers", "routers", "cost", "", "metrics", "fleet", "front_end", "transfer",
                 "cluster"}},
          Rooms{"workloads/training/",
                {"programs", "schedules", "plan", "features", "passes", "memory", "lowering", "simulation"}}}) {
        const auto floor_of = [&](const std::string& file) {
            const std::string below = file.substr(rooms.base.size());
            const std::size_t slash = below.find('/');
            const std::string folder = slash == std::string::npos ? "" : below.substr(0, slash);
            const auto found = std::find(rooms.order.begin(), rooms.order.end(), folder);
            REQUIRE_MESSAGE(found != rooms.order.end(), file << " is in a folder that has no place in the order");
            return found - rooms.order.begin();
        };
        each_source({rooms.base.substr(0, rooms.base.size() - 1)}, [&](const std::string& path,
                                                                       const std::string& text) {
            for (const std::string& include : includes(text)) {
                if (include.starts_with(rooms.base)) {
                    CHECK_MESSAGE(floor_of(include) <= floor_of(path), path << " includes " << include << " above it");
                }
            }
        });
    }
}

TEST_CASE("no more than four files know each other, header and source together") {
    const auto file_of = [](const std::string& path) { return path.substr(0, path.rfind('.')); };
    Uses uses;
    each_source({"sim", "models", "topologies", "workloads", "tools", "validation"},
                [&](const std::string& path, const std::string& text) {
                    for (const std::string& include : includes(text)) {
                        if (file_of(include) != file_of(path)) {
                            uses[file_of(path)].emplace(file_of(include), path);
                        }
                    }
                });
    const Uses reached = all_reached(uses);
    for (const auto& [file, all] : reached) {
        const auto back = std::count_if(all.begin(), all.end(), [&, &own = file](const auto& other) {
            return reached.at(other.first).contains(own);
        });
        CHECK_MESSAGE(back <= 4, file << " is one of " << back << " files that know each other");
    }
}

TEST_CASE("what writes fmt:: includes it, itself or by a header: a precompiled header hides that it is missing") {
    std::map<std::string, std::string> texts;
    each_source({"sim", "models", "topologies", "workloads", "tools", "validation", "tests"},
                [&](const std::string& path, const std::string& text) { texts[path] = text; });
    for (const auto& [path, text] : texts) {
        std::set<std::string> reached = {path};
        std::vector<std::string> open = {path};
        bool found = text.find("fmt::") == std::string::npos;
        while (!found && !open.empty()) {
            const std::string& file = texts[open.back()];
            open.pop_back();
            found = file.find("#include <fmt/") != std::string::npos;
            for (const std::string& include : includes(file)) {
                if (reached.insert(include).second) {
                    open.push_back(include);
                }
            }
        }
        CHECK_MESSAGE(found, path << " uses fmt and includes it nowhere");
    }
}

TEST_CASE("heavy headers stay out of public headers, and every header is included once and from the root") {
    each_source({"sim", "models", "topologies", "workloads", "tools", "validation"},
                [](const std::string& path, const std::string& text) {
                    if (path.ends_with(".hpp")) {
                        CHECK_MESSAGE(text.rfind("#pragma once", 0) == 0, path);
                        for (const char* heavy : {"<yaml-cpp", "<boost/", "<Eigen", "<simgrid", "<nlohmann"}) {
                            CHECK_MESSAGE(text.find(std::string("#include ") + heavy) == std::string::npos,
                                          path << " includes " << heavy);
                        }
                    }
                    for (const std::string& include : includes(text)) {
                        CHECK_MESSAGE(include.find('/') != std::string::npos, path << " includes " << include);
                    }
                });
}

TEST_CASE("what a folder declares lies in the folder's own namespace, so that no two types can be one symbol") {
    const std::map<std::string, std::string> names = {{"sim/config", "config"},
                                                      {"sim/device", "device"},
                                                      {"sim/engine", "engine"},
                                                      {"sim/network", "network"},
                                                      {"sim/record", "record"},
                                                      {"sim/run", "run"},
                                                      {"workloads/collective", "collective"},
                                                      {"workloads/faults", "faults"},
                                                      {"workloads/imports", "imports"},
                                                      {"workloads/model", "model"},
                                                      {"workloads/replay", "replay"},
                                                      {"workloads/serving", "serving"},
                                                      {"workloads/trace", "trace"},
                                                      {"workloads/training", "training"},
                                                      {"models", "models"},
                                                      {"tools/calibration", "calibration"},
                                                      {"tools/check", "check"},
                                                      {"tools/driver", "driver"},
                                                      {"tools/explain", "explain"},
                                                      {"tools/init", "init"},
                                                      {"tools/plan", "plan"},
                                                      {"tools/program", "program"},
                                                      {"tools/reference", "reference"},
                                                      {"tools/simgrid", "simgrid"},
                                                      {"tools/sweep", "sweep"},
                                                      {"tools/terminal", "terminal"},
                                                      {"validation", "validation"}};
    for (const auto& [folder, name] : names) {
        each_source({folder}, [&, &own = name](const std::string& path, const std::string& text) {
            CHECK_MESSAGE(text.find("\nnamespace orrery {") == std::string::npos,
                          path << " belongs to orrery::" << own);
            const bool opens = text.find("\nnamespace orrery::" + own + " {") != std::string::npos ||
                               text.find("\nnamespace orrery::" + own + "::") != std::string::npos;
            CHECK_MESSAGE((opens || text.find("\nnamespace orrery") == std::string::npos), path);
        });
    }
}

TEST_CASE("no hidden state, foreign randomness or wall clock where results come from") {
    each_source({"sim", "models", "topologies", "workloads"}, [](const std::string& path, const std::string& text) {
        for (const char* word : {"std::random_device", "std::mt19937", "_distribution<", "system_clock", "steady_clock",
                                 "getenv(", "std::exp(", "std::log(", "std::pow(", "rand("}) {
            // A process outside has so long to answer, which no result depends on.
            if (std::string(word) == "steady_clock" && path.starts_with("workloads/outside/")) {
                continue;
            }
            CHECK_MESSAGE(text.find(word) == std::string::npos, path << " uses " << word);
        }
    });
}

TEST_CASE("the tests that a comment names are there") {
    const std::regex named(R"(tests/[a-z0-9_/*]+\.cpp)");
    const std::filesystem::path root = ORRERY_SOURCE_DIR;
    each_source({"sim", "models", "topologies", "workloads", "tools", "validation"}, [&](const std::string& path,
                                                                                         const std::string& text) {
        for (std::sregex_iterator at(text.begin(), text.end(), named), end; at != end; ++at) {
            const std::filesystem::path file = at->str();
            // packet_*_test.cpp stands for all whose name begins so.
            const std::string begins = file.filename().string().substr(0, file.filename().string().find('*'));
            bool found = false;
            for (const auto& entry : std::filesystem::directory_iterator(root / file.parent_path())) {
                found = found || entry.path().filename().string().starts_with(begins);
            }
            CHECK_MESSAGE(found, path << " names " << file.string());
        }
    });
}

TEST_CASE("a scenario asks one question in at most 60 lines and says so in its first comment") {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(std::string(ORRERY_SOURCE_DIR) + "/scenarios")) {
        if (entry.path().extension() == ".yaml" && entry.path().filename() != "expected.yaml") {
            std::ifstream stream(entry.path());
            std::string first;
            std::getline(stream, first);
            CHECK_MESSAGE(first.rfind("# ", 0) == 0, entry.path().string());
            CHECK_MESSAGE(first.find('?') != std::string::npos, entry.path().string());
            std::size_t lines = 1;
            for (std::string line; std::getline(stream, line);) {
                ++lines;
            }
            CHECK_MESSAGE(lines <= 60, entry.path().string());
        }
    }
}

namespace {

std::string document(const std::string& name) {
    std::ifstream stream(std::string(ORRERY_SOURCE_DIR) + "/" + name);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::size_t words_of(const std::string& text) {
    std::istringstream stream(text);
    return static_cast<std::size_t>(
        std::distance(std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()));
}

}  // namespace

TEST_CASE("README is read in two minutes: at most 120 lines, cells of 20 words and sentences of 35") {
    const std::string text = document("README.md");
    CHECK(std::count(text.begin(), text.end(), '\n') <= 120);
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
        if (line.rfind('|', 0) == 0) {
            std::istringstream cells(line);
            for (std::string cell; std::getline(cells, cell, '|');) {
                CHECK_MESSAGE(words_of(cell) <= 20, "a long cell: " << cell);
            }
        }
    }
    std::size_t sentences = 0;
    const std::regex end("[.:!?] ");
    for (const std::string& part : orrery::test::prose_of(text)) {
        for (std::sregex_token_iterator at(part.begin(), part.end(), end, -1); at != std::sregex_token_iterator();
             ++at) {
            CHECK_MESSAGE(words_of(*at) <= 35, "a long sentence: " << std::string(*at));
            ++sentences;
        }
    }
    CHECK(sentences > 20);
}

TEST_CASE("links of the documents lead to files") {
    const std::regex link("\\]\\(([^)#]+)(#[^)]*)?\\)");
    std::size_t links = 0;
    for (const std::string name : {"README.md", "CONTRIBUTING.md", "THIRD_PARTY.md", "AGENTS.md", "scenarios/README.md",
                                   "scenarios/CAPABILITIES.md", "validation/README.md"}) {
        const std::string text = document(name);
        CHECK_MESSAGE(!text.empty(), name);
        const auto folder = (std::filesystem::path(ORRERY_SOURCE_DIR) / name).parent_path();
        for (std::sregex_iterator at(text.begin(), text.end(), link); at != std::sregex_iterator(); ++at) {
            const std::string target = (*at)[1];
            CHECK_MESSAGE((target.rfind("http", 0) == 0 || std::filesystem::exists(folder / target)),
                          name << " links to " << target);
            ++links;
        }
    }
    CHECK(links > 20);
}
