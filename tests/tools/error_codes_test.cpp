// Codes of errors and annotations.

#include "tools/program/error_codes.hpp"
#include "tests/support/command.hpp"

#include <doctest/doctest.h>

#include <set>

using namespace orrery;
using namespace orrery::test;

namespace {

const char* const kRing =
    "orrery: 1\nkind: collective\ncluster: {nodes: 1, node: dgx-h100}\ncollective: {size: 1 MiB}\n";

}  // namespace

TEST_CASE("error codes: each is explained, and every family has its own") {
    std::set<std::string> codes;
    for (const ErrorRow& row : error_table()) {
        CHECK(codes.empty() == (row.name() == "E200"));
        CHECK((codes.empty() || *codes.rbegin() < row.name()));
        codes.insert(row.name());
        const Outcome help = orrery_command("help " + row.name());
        CHECK(help.code == 0);
        CHECK_MESSAGE(help.text.find(row.title) != std::string::npos, help.text);
    }
    CHECK(orrery_command("help e204").text.rfind("E204: wrong unit", 0) == 0);
    CHECK(orrery_command("help E999").code == 2);
    const Folder folder;
    const std::string head = "orrery: 1\nkind: collective\ncluster: {nodes: 1, node: dgx-h100}\n";
    const std::vector<std::pair<const char*, std::string>> cases = {
        {"E201", head + "collective: {size: 1 MiB, sise: 2}\n"},
        {"E202", "orrery: 1\nkind: collective\ncollective: {size: 1 MiB}\n"},
        {"E203", head + "collective: {size: 1 MiB, size: 2 MiB}\n"},
        {"E204", head + "collective: {size: 5}\n"},
        {"E204", head + "collective: {size: 5 parsecs}\n"},
        {"E205", head + "collective: [1]\n"},
        {"E205", head + "collective: {size: 1 MiB, ranks: many}\n"},
        {"E206", head + "collective: {size: 1 MiB, ranks: -4}\n"},
        {"E207", head + "collective: {size: 1 MiB, op: all-redube}\n"},
        {"E207", "orrery: 1\nkind: collective\ncluster: {nodes: 1, node: dgx-h1000}\ncollective: {size: 1 MiB}\n"},
        {"E212", head + "collective: {size: \"1 MiB}\n"},
        {"E303", head + "collective: {size: 1 MiB, ranks: 64}\n"}};
    for (const auto& [code, text] : cases) {
        const Outcome out = orrery_command("run " + folder.file("s.yaml", text));
        CHECK_MESSAGE(out.text.find(std::string(" [") + code + "]\n") != std::string::npos, code, ": ", out.text);
    }
    CHECK(orrery_command("run " + folder.file("none.yaml")).text.find("[E210]") != std::string::npos);
    CHECK(orrery_command("run --json").text.find("[E214]") != std::string::npos);
    CHECK(orrery_command("runn").text.find("[E214]") != std::string::npos);
    const std::string lines = folder.file("requests.csv", "arrival_s,prompt,output\n1,x,1\n");
    const std::string traced =
        folder.file("traced.yaml",
                    "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-3-8b\n"
                    "requests: {trace: requests.csv}\n");
    CHECK(orrery_command("run " + traced).text.find("[E213]") != std::string::npos);
    // An override has the code of the same value in a file, dots in its name or not; so has a compressed scenario.
    const std::string ring = folder.file("ring.yaml", kRing);
    CHECK(orrery_command("run " + ring + " --set collective.ranks=many").text.find("[E205]") != std::string::npos);
    CHECK(shell_command("gzip -k " + folder.file("s.yaml", head + "collective: {size: 5}\n")).code == 0);
    CHECK(orrery_command("run " + folder.file("s.yaml.gz")).text.find("[E204]") != std::string::npos);
}

TEST_CASE("error codes: an error has the code of what is wrong, whatever words its message has") {
    const Folder folder;
    const std::string head = "orrery: 1\nkind: collective\ncluster: {nodes: 1, node: dgx-h100}\n";
    const std::string training =
        "orrery: 1\nkind: training\ncluster: {nodes: 1, node: dgx-a100-80g}\n"
        "model: {layers: 4, hidden: 1024, heads: 16, vocabulary: 1000}\n";
    const std::string serving =
        "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-3-8b\n"
        "requests: {rate: 1, count: 5}\n";
    const std::string sweep = "orrery: 1\nkind: sweep\nbase: ring.yaml\naxes: {collective.ranks: [2, 4]}\n";
    (void)folder.file("ring.yaml", kRing);
    (void)folder.file("nothing.csv", "\n");
    (void)folder.file("damaged.yaml.gz", "orrery: 1\n");
    const std::vector<std::pair<const char*, std::string>> runs = {
        // Words of the user's own are none of the message's.
        {"E207", head + "collective: {size: 1 MiB, op: has no unit;}\n"},
        {"E207", head + "collective: {size: 1 MiB, op: \"must be a list\"}\n"},
        // A tier that the nodes lack is no lack of memory.
        {"E300",
         training + "plan: {tensor: 2, data: 4, global_batch: 8, zero: 2, offload: {optimizer: {tier: dram}}}\n"},
        // A table without a line is no YAML.
        {"E213", training + "plan: {tensor: 2, data: 4, global_batch: 8}\nfaults: {trace: nothing.csv, checkpoint: "
                            "{interval: {kind: fixed, every: 30 min}}}\n"},
        // A job that brings sections of the whole scenario names no policy.
        {"E200",
         "orrery: 1\nkind: cluster\ncluster: {nodes: 2, node: dgx-h100}\njobs: [{name: a, nodes: 1, scenario: {kind: "
         "collective, network: {fidelity: fluid}, collective: {size: 1 MiB}}}]\n"},
        {"E206", head + "collective: {size: 1e300 TB}\n"},
        {"E215",
         "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-3-8b\nrequests: {arrivals: "
         "at-once, count: 5, rate: 2}\n"},
        {"E302", serving + "engine: {tensor: 5}\n"},
        {"E300",
         "orrery: 1\nkind: network\ncluster: {hosts: 4, fabric: {kind: leaf-spine, hosts_per_leaf: 2, spines: 2, link: "
         "100 Gbps}}\ntraffic: {pattern: shift, shift: 4, size: 1 MiB}\n"}};
    for (const auto& [code, text] : runs) {
        const Outcome out = orrery_command("run " + folder.file("s.yaml", text));
        CHECK_MESSAGE(out.text.find(std::string(" [") + code + "]\n") != std::string::npos, code, ": ", out.text);
    }
    const std::vector<std::pair<const char*, std::string>> commands = {
        {"E210", "run " + folder.file("damaged.yaml.gz")},
        {"E214", "run " + folder.file("ring.yaml") + " --set collective.ranks"},
        {"E207", "price gemm m=4096 n=4096 k=4096 --device h1000"},
        {"E214", "price gemm m=many n=4096 k=4096 --device h100-sxm"},
        {"E214", "run " + folder.file("ring.yaml") + " --jsom x"},
        // Expressions are no YAML, and have quotes and levels of their own.
        {"E200", "sweep " + folder.file("quote.yaml", sweep + "where: [\"'two == 2\"]\n") + " --dry-run"},
        // What was searched in vain is not what one plan lacked.
        {"E305", "plan " + folder.file("large.yaml",
                                       "orrery: 1\nkind: training\ncluster: {nodes: 1, node: dgx-a100-40g}\n"
                                       "model: gpt3-175b\nplan: {tensor: 8, global_batch: 8}\n")}};
    for (const auto& [code, command] : commands) {
        const Outcome out = orrery_command(command);
        CHECK_MESSAGE(out.text.find(std::string(" [") + code + "]\n") != std::string::npos, code, ": ", out.text);
    }
}

TEST_CASE("output format github: an annotation for each error, with its file and line") {
    const Folder folder;
    const std::string file = folder.file("s.yaml", std::string(kRing) + "seeed: 1\nfoo%bar: 2\n");
    const Outcome out = orrery_command("run " + file + " --output-format github");
    CHECK(out.code == 2);
    CHECK_MESSAGE(
        out.text.rfind("::error file=" + file + ",line=5,col=1,title=E201 unknown key::unknown key 'seeed'", 0) == 0,
        out.text);
    CHECK_MESSAGE(out.text.find("unknown key 'foo%25bar'") != std::string::npos, out.text);
    // A value of the command line is on no line of a file.
    const Outcome set = orrery_command("run " + file + " --set collective.ranks=many --output-format github");
    CHECK_MESSAGE(set.text.find("::error title=E205 wrong type::--set collective.ranks=many: ") != std::string::npos,
                  set.text);
    const Outcome wrong = orrery_command("run " + file + " --output-format githup");
    CHECK(wrong.code == 2);
    CHECK_MESSAGE(wrong.text.find("did you mean 'github'") != std::string::npos, wrong.text);
}
