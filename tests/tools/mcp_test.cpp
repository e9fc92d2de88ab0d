// orrery mcp, driven over its pipes as a client does.

#include "tests/support/command.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <sstream>
#include <vector>

using namespace orrery;
using namespace orrery::test;

namespace {

using Json = nlohmann::json;

// The answers of a server to lines, after which its input ends; it must end by itself, with exit code 0.
std::vector<Json> answers_to(const std::string& lines) {
    const Folder folder;
    const std::string input = folder.file("input", lines);
    const Outcome outcome = shell_command(orrery_program() + " mcp < " + input);
    INFO(outcome.text.substr(0, 2000));
    CHECK(outcome.code == 0);
    std::vector<Json> out;
    std::istringstream stream(outcome.text);
    for (std::string line; std::getline(stream, line);) {
        out.push_back(Json::parse(line));
        CHECK((out.back().is_array() || out.back()["jsonrpc"] == "2.0"));
    }
    return out;
}

std::string call(int id, const char* tool, const Json& arguments) {
    return Json{{"jsonrpc", "2.0"},
                {"id", id},
                {"method", "tools/call"},
                {"params", {{"name", tool}, {"arguments", arguments}}}}
               .dump() +
           "\n";
}

// The result of one call of a tool.
Json result_of(const char* tool, const Json& arguments) {
    const std::vector<Json> answers = answers_to(call(1, tool, arguments));
    REQUIRE(answers.size() == 1);
    INFO(answers[0].dump());
    REQUIRE(answers[0].contains("result"));
    return answers[0]["result"];
}

const char* const kCollective = R"(orrery: 1
kind: collective
cluster:
  nodes: 2
  node: dgx-a100-80g
  fabric: {kind: leaf-spine, nodes_per_leaf: 2, link: 200 Gbps, latency: 500 ns}
collective: {op: all-reduce, algorithm: ring, size: 1 MiB}
)";

}  // namespace

TEST_CASE("An MCP server answers the handshake in the revision of the client") {
    for (const auto& [wanted, given] : {std::pair("2024-11-05", "2024-11-05"),
                                        {"2025-03-26", "2025-03-26"},
                                        {"2025-06-18", "2025-06-18"},
                                        {"2031-01-01", "2025-06-18"}}) {
        const auto answers = answers_to(fmt::format(
            R"({{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{}","capabilities":{{}},"clientInfo":{{"name":"t","version":"1"}}}}}}
{{"jsonrpc":"2.0","method":"notifications/initialized"}}
{{"jsonrpc":"2.0","id":"a","method":"tools/list"}}
)",
            wanted));
        REQUIRE(answers.size() == 2);
        CHECK(answers[0]["id"] == 0);
        CHECK(answers[0]["result"]["protocolVersion"] == given);
        CHECK(answers[0]["result"]["serverInfo"]["name"] == "orrery");
        CHECK(answers[1]["id"] == "a");
        std::vector<std::string> names;
        for (const Json& tool : answers[1]["result"]["tools"]) {
            names.push_back(tool["name"]);
            CHECK(tool["inputSchema"]["type"] == "object");
            CHECK(tool["description"].get<std::string>().size() > 20);
        }
        CHECK(names == std::vector<std::string>{"run", "plan", "explain", "price", "validate", "help", "capacity",
                                                "recommend", "init"});
    }
}

TEST_CASE("An agent writes a first scenario and asks how many requests it bears") {
    const Json first =
        result_of("init", {{"kind", "serving"}, {"gpus", 1}, {"device", "h100-sxm"}, {"model", "llama-3-8b"}});
    REQUIRE(first["isError"] == false);
    const std::string scenario = first["content"][0]["text"];
    const Json found =
        result_of("capacity", {{"scenario", scenario}, {"seeds", 1}, {"set", {{"requests.count", 300}}}});
    INFO(found.dump());
    REQUIRE(found["isError"] == false);
    CHECK(found["structuredContent"]["capacity_rps"]["value"].get<double>() > 1);
    const Json cheapest = result_of(
        "recommend",
        {{"scenario", scenario}, {"gpus", "h100-sxm"}, {"weights", "bf16"}, {"set", {{"requests.count", 300}}}});
    INFO(cheapest.dump());
    REQUIRE(cheapest["isError"] == false);
    CHECK(cheapest["structuredContent"]["arrangements"][0]["gpus"] == 1);
    CHECK(result_of("init", {{"kind", "serving"}, {"gpus", 1}, {"model", "no-such-model"}})["isError"] == true);
}

TEST_CASE("An MCP tool runs a scenario given as text, as an object or as a file, with overrides") {
    const Json text = result_of("run", {{"scenario", kCollective}});
    CHECK(text["isError"] == false);
    const double ring = text["structuredContent"]["metrics"]["collective_time_s"]["value"];
    CHECK(ring > 0);
    CHECK(Json::parse(text["content"][0]["text"].get<std::string>()) == text["structuredContent"]);
    const Json twice = result_of("run", {{"scenario", kCollective}, {"set", {{"collective.size", "2 MiB"}}}});
    CHECK(twice["structuredContent"]["metrics"]["collective_time_s"]["value"] > ring);
    const Folder folder;
    const Json file = result_of("run", {{"path", folder.file("ring.yaml", kCollective)}});
    CHECK(file["structuredContent"]["metrics"] == text["structuredContent"]["metrics"]);
    const Json object = {
        {"orrery", 1},
        {"kind", "collective"},
        {"cluster",
         {{"nodes", 2},
          {"node", "dgx-a100-80g"},
          {"fabric", {{"kind", "leaf-spine"}, {"nodes_per_leaf", 2}, {"link", "200 Gbps"}, {"latency", "500 ns"}}}}},
        {"collective", {{"op", "all-reduce"}, {"algorithm", "ring"}, {"size", "1 MiB"}}}};
    CHECK(result_of("run", {{"scenario", object}})["structuredContent"]["metrics"] ==
          text["structuredContent"]["metrics"]);
    CHECK(result_of("run", {{"scenario", kCollective}, {"detail", "full"}})["structuredContent"]["schema"] ==
          "orrery-summary-1");
}

TEST_CASE("MCP tools explain, price, check and help in few words") {
    const Json why = result_of("explain", {{"scenario", kCollective}});
    CHECK(!why["structuredContent"]["verdict"].get<std::string>().empty());
    CHECK(why["structuredContent"]["what_ifs"].size() <= 5);
    CHECK(why["content"][0]["text"].get<std::string>().size() < 8000);
    const Json price = result_of(
        "price", {{"operation", "gemm"}, {"shape", {{"m", 4096}, {"n", 4096}, {"k", 4096}}}, {"device", "h100-sxm"}});
    CHECK(price["structuredContent"]["seconds"].get<double>() == doctest::Approx(2e-4).epsilon(0.5));
    CHECK(result_of("validate", {{"scenario", kCollective}})["structuredContent"]["valid"] == true);
    const Json help = result_of("help", {{"topic", "training"}, {"key", "plan.tensor"}});
    CHECK(help["content"][0]["text"].get<std::string>().find("tensor-parallel") != std::string::npos);
    const Json plans = result_of(
        "plan",
        {{"path", ORRERY_SOURCE_DIR "/scenarios/training/gpt3-175b-1024xA100.yaml"}, {"top", 2}, {"simulate", 2}});
    CHECK(plans["structuredContent"]["plans"].size() == 2);
}

TEST_CASE("Errors of a scenario reach the client of an MCP server with their places") {
    for (const char* tool : {"run", "validate", "explain"}) {
        const Json wrong = result_of(tool, {{"scenario", "orrery: 1\nkind: colective\n"}});
        CHECK(wrong["isError"] == true);
        const Json& first = wrong["structuredContent"]["errors"][0];
        CHECK(first["line"] == 2);
        CHECK(first["column"] == 7);
        CHECK(first["code"] == "E207");
        CHECK(first["suggestion"] == "collective");
    }
    const Json missing = result_of("run", {{"path", "/no/such/file.yaml"}});
    CHECK(missing["isError"] == true);
    CHECK(missing["structuredContent"]["errors"][0]["code"] == "E210");
    // A path is no option, whatever it is called.
    CHECK(result_of("run", {{"path", "--help"}})["isError"] == true);
}

TEST_CASE("Malformed requests are answered by their errors, and notifications not at all") {
    const auto code_of = [](const std::string& line) {
        const auto answers = answers_to(line + "\n");
        REQUIRE(answers.size() == 1);
        return answers[0]["error"]["code"].get<int>();
    };
    CHECK(code_of("{") == -32700);
    CHECK(code_of("\"\xff\"") == -32700);
    CHECK(code_of(std::string(100, '[')) == -32700);
    CHECK(code_of("[]") == -32600);
    CHECK(code_of("17") == -32600);
    CHECK(code_of(R"({"id":1,"method":"ping"})") == -32600);
    CHECK(code_of(R"({"jsonrpc":"2.0","id":1})") == -32600);
    CHECK(code_of(R"({"jsonrpc":"2.0","id":{},"method":"ping"})") == -32600);
    CHECK(code_of(R"({"jsonrpc":"2.0","id":1,"method":7})") == -32600);
    CHECK(code_of(R"({"jsonrpc":"2.0","id":1,"method":"tools/burn"})") == -32601);
    CHECK(code_of(R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]})") == -32602);
    CHECK(code_of(R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rum"}})") == -32602);
    CHECK(code_of(R"({"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///etc/passwd"}})") ==
          -32002);
    CHECK(code_of(call(1, "run", {{"scenari", "x"}})) == -32602);
    CHECK(code_of(call(1, "run", Json::object())) == -32602);
    CHECK(code_of(call(1, "run", {{"path", 7}})) == -32602);
    CHECK(code_of(call(1, "run", {{"path", "-"}})) == -32602);
    CHECK(code_of(call(1, "run", {{"scenario", kCollective}, {"timeout_s", -1}})) == -32602);
    CHECK(answers_to(R"({"jsonrpc":"2.0","method":"no/such/notification"})"
                     "\n\n   \n"
                     R"({"jsonrpc":"2.0","id":4,"result":{}})")
              .empty());
}

TEST_CASE("A batch is answered by one line, and a line beyond the limit does not end the server") {
    const auto batch = answers_to(
        R"([{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"x"},{"jsonrpc":"2.0","id":2,"method":"x"},5])"
        "\n");
    REQUIRE(batch.size() == 1);
    REQUIRE(batch[0].size() == 3);
    CHECK(batch[0][0]["result"] == Json::object());
    CHECK(batch[0][1]["error"]["code"] == -32601);
    CHECK(batch[0][2]["error"]["code"] == -32600);
    const auto huge =
        answers_to(std::string((16U << 20U) + 1, 'x') + "\n" + R"({"jsonrpc":"2.0","id":9,"method":"ping"})");
    REQUIRE(huge.size() == 2);
    CHECK(huge[0]["error"]["code"] == -32600);
    CHECK(huge[1]["id"] == 9);
}

TEST_CASE("A call over an MCP server can be cancelled, runs out of its time, and answers pings meanwhile") {
    const Json slow = {{"path", ORRERY_SOURCE_DIR "/scenarios/training/gpt-13b-128xA100-packets.yaml"}};
    const auto start = std::chrono::steady_clock::now();
    Json limited = slow;
    limited["timeout_s"] = 0.2;
    const Json late = result_of("run", limited);
    CHECK(late["isError"] == true);
    CHECK(late["content"][0]["text"].get<std::string>().find("limit of 0.2 s") != std::string::npos);
    const auto answers =
        answers_to(call(1, "run", slow) + R"({"jsonrpc":"2.0","id":2,"method":"ping"})" + "\n" +
                   R"({"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}})" + "\n");
    REQUIRE(answers.size() == 1);
    CHECK(answers[0]["id"] == 2);
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(8));
}

TEST_CASE("The resources of an MCP server are the schemas and the reference") {
    const auto answers = answers_to(R"({"jsonrpc":"2.0","id":1,"method":"resources/list"})"
                                    "\n"
                                    R"({"jsonrpc":"2.0","id":2,"method":"resources/templates/list"})"
                                    "\n");
    REQUIRE(answers.size() == 2);
    std::string lines;
    for (const Json& resource : answers[0]["result"]["resources"]) {
        lines += Json{{"jsonrpc", "2.0"},
                      {"id", resource["uri"]},
                      {"method", "resources/read"},
                      {"params", {{"uri", resource["uri"]}}}}
                     .dump() +
                 "\n";
    }
    const auto contents = answers_to(lines);
    CHECK(contents.size() == answers[0]["result"]["resources"].size());
    for (const Json& one : contents) {
        const Json& content = one["result"]["contents"][0];
        CHECK(content["uri"] == one["id"]);
        const std::string text = content["text"];
        CHECK((content["mimeType"] == "text/markdown" ? text.size() > 10'000 : Json::parse(text).is_object()));
    }
}
