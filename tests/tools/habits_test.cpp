// What users of other command lines expect: help, completion, a manual page, schemas, versions.

#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/kinds/cluster.hpp"
#include "tools/reference/reference.hpp"
#include "tools/reference/schema.hpp"
#include "tools/sweep/sweep_spec.hpp"
#include "workloads/imports/importer.hpp"
#include "workloads/serving/requests/formats/trace_format.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <map>
#include <set>

using namespace orrery;
using namespace orrery::test;

namespace {

// Names in the first column of the list of commands.
std::set<std::string> commands() {
    std::set<std::string> out;
    std::istringstream help(orrery_command("--help").text);
    bool listing = false;
    for (std::string line; std::getline(help, line);) {
        listing = line.rfind("usage: ", 0) == 0 || (listing && line.find("common options") == std::string::npos);
        if (listing && line.rfind("  ", 0) == 0) {
            out.insert(line.substr(2, line.find(' ', 2) - 2));
        }
    }
    return out;
}

}  // namespace

TEST_CASE("every command has a help with usage and options, and options of other commands are refused") {
    const std::set<std::string> names = commands();
    CHECK(names.size() >= 16);
    for (const std::string& name : names) {
        const Outcome help = orrery_command("help " + name);
        CHECK(help.code == 0);
        CHECK_MESSAGE(help.text.rfind("usage: orrery " + name, 0) == 0, help.text);
        CHECK(orrery_command(name + " --help").text == help.text);
    }
    const Outcome foreign = orrery_command("table x.sqlite --trace y.json");
    CHECK(foreign.code == 2);
    CHECK(foreign.text.find("'orrery table' has no option --trace") != std::string::npos);
    CHECK(orrery_command("run a.yaml --json x --json y").text.find("--json is given 2 times") != std::string::npos);
    CHECK(orrery_command("help runn").text.find("did you mean 'run'?") != std::string::npos);
}

TEST_CASE("completion completes commands and options; the manual page is one") {
    const Folder folder;
    for (const char* shell : {"bash", "zsh"}) {
        CHECK(orrery_command(std::string("completion ") + shell).code == 0);
    }
    CHECK(orrery_command("completion fish").code == 2);
    const std::string script = folder.file("orrery.bash", orrery_command("completion bash").text);
    const auto completed = [&](const std::string& words, int at) {
        return shell_command(
                   fmt::format("bash -c 'source {}; COMP_WORDS=({}); COMP_CWORD={}; _orrery; echo ${{COMPREPLY[@]}}'",
                               script, words, at))
            .text;
    };
    CHECK(completed("orrery swe", 1) == "sweep\n");
    CHECK(completed("orrery sweep --sh", 2) == "--shard\n");
    CHECK(completed("orrery help pl", 2) == "plan plot\n");
    CHECK(completed("orrery plot h", 2) == "heat\n");
    CHECK(completed("orrery list eng", 2) == "engines\n");
    CHECK(completed("orrery init ser", 2) == "serving\n");
    CHECK(completed("orrery help coll", 2) == "collective\n");
    // Presets and keys are those of the program that is there.
    const std::string path =
        "export PATH=" + std::filesystem::path(orrery_program()).parent_path().string() + ":$PATH; ";
    const auto asked = [&](const std::string& words, int at) {
        return shell_command(
                   fmt::format("{}bash -c 'source {}; COMP_WORDS=({}); COMP_CWORD={}; _orrery; echo ${{COMPREPLY[@]}}'",
                               path, script, words, at))
            .text;
    };
    CHECK(asked("orrery init training --model llama-3-", 4) == "llama-3-405b llama-3-70b llama-3-8b\n");
    CHECK(asked("orrery help training plan.ten", 3) == "plan.tensor\n");
    CHECK(asked("orrery run x.yaml --set plan.ten", 4) == "plan.tensor\n");
    for (const char* listed : {"vllm-0.11", "interleaved", "least-requests", "timely", "oblivious"}) {
        CHECK_MESSAGE(orrery_command("list").text.find(listed) != std::string::npos, listed);
    }
    // Formats come from the table of importers, files after them.
    for (const Importer* row : importer_table()) {
        CHECK(completed(fmt::format("orrery import {}", row->name), 2).find(row->name) == 0);
        CHECK(orrery_command("help import").text.find(fmt::format("  {} ", row->name)) != std::string::npos);
        CHECK(orrery_command("list formats").text.find(row->description) != std::string::npos);
        for (const ImportOption& option : row->options) {
            CHECK(completed(fmt::format("orrery import --{}", option.name), 2).find(option.name) != std::string::npos);
        }
    }
    for (const TraceFormat* row : trace_format_table()) {
        CHECK(orrery_command("list formats").text.find(row->description) != std::string::npos);
    }
    const std::string manual = orrery_command("manual").text;
    CHECK(manual.rfind(".TH ORRERY 1", 0) == 0);
    for (const std::string& name : commands()) {
        CHECK_MESSAGE(manual.find(".B " + name) != std::string::npos, name);
    }
    // Section 5 has every key of every kind.
    const std::string language = orrery_command("manual 5").text;
    CHECK(language.rfind(".TH ORRERY 5", 0) == 0);
    for (const std::string& kind : reference_kinds()) {
        for (const KeyReference& row : reference_of_kind(kind, data())) {
            const std::string key = roff(row.path.substr(row.path.rfind('.') + 1));
            CHECK_MESSAGE(language.find(".B " + key + "\n") != std::string::npos, row.path);
        }
    }
    CHECK(orrery_command("manual 4").code == 2);
    const Folder pages;
    for (const auto& [name, page] : {std::pair{"orrery.1", manual}, {"orrery.5", language}}) {
        const std::string file = pages.file(name, page);
        if (shell_command("command -v man").code == 0) {
            const Outcome read = shell_command("MANWIDTH=80 man --warnings -l " + file + " > /dev/null");
            CHECK_MESSAGE((read.code == 0 && read.text.empty()), read.text.substr(0, 500));
        }
    }
}

TEST_CASE("an installation has the program, its data, schemas, completions and manual pages, and runs where it lies") {
    const Folder folder;
    const std::string root = folder.file("installed");
    const std::string build = std::filesystem::path(orrery_program()).parent_path().string();
    if (!std::filesystem::exists(build + "/cmake_install.cmake")) {
        MESSAGE("skipped: the program under test lies in no build folder to install from");
        return;
    }
    const Outcome installed = shell_command(fmt::format("cmake --install {} --prefix {}", build, root));
    REQUIRE_MESSAGE(installed.code == 0, installed.text);
    for (const char* file : {"bin/orrery", "share/man/man1/orrery.1", "share/man/man5/orrery.5",
                             "share/bash-completion/completions/orrery", "share/zsh/vendor-completions/_orrery",
                             "share/orrery/schemas/scenario.json", "share/orrery/models/data/devices/h100-sxm.yaml"}) {
        CHECK_MESSAGE((std::filesystem::exists(root + "/" + file) && std::filesystem::file_size(root + "/" + file) > 0),
                      file);
    }
    CHECK(read(root + "/share/man/man5/orrery.5") == orrery_command("manual 5").text);
    const Outcome version = shell_command(root + "/bin/orrery --version");
    CHECK(version.text.find("data: " + std::filesystem::canonical(root).string() + "/share/orrery") !=
          std::string::npos);
    const std::string file = folder.file("scenario.yaml", kSmallTraining);
    CHECK(shell_command(root + "/bin/orrery run --json - " + file).text == orrery_command("run --json - " + file).text);
    const Outcome validated = shell_command(root + "/bin/orrery validate energy");
    CHECK_MESSAGE(validated.code == 0, validated.text);
    if (std::filesystem::exists(build + "/orrery-service")) {
        CHECK(std::filesystem::exists(root + "/bin/orrery-service"));
    }
}

TEST_CASE("the version names a commit and the libraries") {
    const std::string text = orrery_command("--version").text;
    CHECK(text.rfind("orrery 0.", 0) == 0);
    CHECK(text.find(" (") != std::string::npos);
    for (const char* library : {"Boost ", "fmt ", "SQLite "}) {
        CHECK(text.find(library) != std::string::npos);
    }
}

TEST_CASE("output goes to files and not to terminals: quiet is quiet, and colours come only when asked for") {
    const Folder folder;
    const std::string file = folder.file("scenario.yaml", kSmallTraining);
    CHECK(orrery_command("run " + file + " --quiet").text.empty());
    CHECK(orrery_command("run " + file).text.find('\033') == std::string::npos);
    CHECK(orrery_command("run " + file + " --color always").text.find('\033') != std::string::npos);
    // Locale, time zone and terminal change nothing.
    const std::string plain = orrery_command("run --json - " + file).text;
    CHECK(shell_command("LC_ALL=de_DE.UTF-8 TZ=Asia/Tokyo TERM=dumb COLUMNS=40 NO_COLOR=1 " + orrery_program() +
                        " run --json - " + file)
              .text == plain);
}

TEST_CASE("the schema of a cluster lets a job of each kind say what that kind may, and no job hold jobs") {
    const auto schema = nlohmann::json::parse(scenario_schema(ClusterKind::kRow, data()));
    std::map<std::string, nlohmann::json> jobs;
    for (const auto& job : schema["properties"]["jobs"]["items"]["properties"]["scenario"]["anyOf"]) {
        jobs[job["properties"]["kind"]["enum"][0]] = job["properties"];
    }
    CHECK(jobs.size() == scenario_kind_names().size() - 2);
    CHECK(jobs.count("cluster") == 0);
    CHECK(jobs.count("rl") == 0);
    CHECK(jobs["training"].contains("plan"));
    CHECK(jobs["serving"].contains("engine"));
    CHECK(!jobs["serving"].contains("plan"));
    CHECK(jobs["network"].contains("traffic"));
    CHECK(!jobs["network"].contains("cluster"));  // it is the whole's
}

namespace {

// With each reference replaced by what it stands for.
nlohmann::ordered_json expanded(const nlohmann::ordered_json& value, const nlohmann::ordered_json& definitions) {
    if (value.is_object() && value.contains("$ref")) {
        CHECK(value.size() == 1);
        return expanded(definitions.at(value["$ref"].get<std::string>().substr(std::string("#/$defs/").size())),
                        definitions);
    }
    nlohmann::ordered_json out = value;
    if (out.is_structured()) {
        for (auto& part : out) {
            part = expanded(part, definitions);
        }
    }
    return out;
}

}  // namespace

TEST_CASE("the schema of all kinds stands for the schema of each") {
    const auto all = nlohmann::ordered_json::parse(schema_of_all_kinds(data()));
    const std::vector<std::string>& kinds = scenario_kind_names();
    REQUIRE(all["allOf"].size() == kinds.size());
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        CHECK(all["allOf"][i]["if"]["properties"]["kind"]["const"] == kinds[i]);
        auto one = nlohmann::ordered_json::parse(scenario_schema(*scenario_kinds()[i], data()));
        one.erase("$schema");
        CHECK_MESSAGE(expanded(all["allOf"][i]["then"], all["$defs"]) == one, kinds[i]);
    }
}

TEST_CASE("schemas for editors are those of this version, and scenarios that name one name one that is there") {
    const std::string root = ORRERY_SOURCE_DIR;
    const bool update = std::getenv("ORRERY_UPDATE_EXPECTED") != nullptr;
    for (const auto& [name, kind] :
         {std::pair("scenario", ""), {"sweep", "sweep"}, {"baseline", "baseline"}, {"summary", "summary"}}) {
        const std::string path = root + "/schemas/" + name + ".json";
        const std::string schema = orrery_command(std::string("schema ") + kind).text;
        if (update) {
            std::ofstream(path) << schema;
        }
        CHECK_MESSAGE(read(path) == schema, name);
    }
    std::size_t named = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root + "/scenarios")) {
        const std::string text = entry.is_regular_file() ? read(entry.path().string()) : "";
        const std::string key = "yaml-language-server: $schema=";
        if (const auto at = text.find(key); at != std::string::npos) {
            const std::string schema = text.substr(at + key.size(), text.find('\n', at) - at - key.size());
            CHECK_MESSAGE(std::filesystem::exists(entry.path().parent_path() / schema), entry.path().string());
            ++named;
        }
    }
    CHECK(named >= 20);
}

TEST_CASE("the sweeps that the project ships are valid") {
    for (const auto& entry :
         std::filesystem::directory_iterator(std::string(ORRERY_SOURCE_DIR) + "/scenarios/sweeps")) {
        const SweepSpec sweep = load_sweep(entry.path().string(), {}, data());
        std::size_t points = 0;
        for (std::uint64_t id = 0; id < sweep.size(); ++id) {
            points += sweep.point(id).has_value() ? 1 : 0;
        }
        CHECK_MESSAGE(points > 0, entry.path().string());
    }
}
