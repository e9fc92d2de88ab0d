// orrery emulate: tokens by their rule, and the clients of emulate_test.py.

#include "tests/support/clients.hpp"
#include "tools/emulate/tokens.hpp"

#include <algorithm>

using namespace orrery;
using namespace orrery::test;

namespace {

void run_emulate_test(const char* part) {
    run_clients("emulate_test.py", part, "orrery-emulate");
}

std::vector<std::uint64_t> keys_of(const std::string& text, std::uint32_t adapter = 0) {
    emulate::Prompt prompt(4, adapter);
    prompt.add_text(text);
    return prompt.keys();
}

}  // namespace

TEST_CASE("emulate: prompts have a token for every four bytes, and share the blocks of a common beginning") {
    emulate::Prompt prompt(0);
    prompt.add_text("abcdefghi");
    CHECK(prompt.tokens() == 3);
    CHECK(prompt.keys().empty());
    const std::string begin(64, 'x');  // four blocks
    const auto one = keys_of(begin + "one and something more");
    const auto two = keys_of(begin + "two and something more");
    REQUIRE(one.size() == 5);
    CHECK(std::equal(one.begin(), one.begin() + 4, two.begin()));
    CHECK(one[4] != two[4]);
    // What comes before a block is part of its key, and so is the adapter.
    CHECK(keys_of("y" + begin.substr(1))[3] != one[3]);
    CHECK(keys_of(begin, 1)[0] != one[0]);
    CHECK(keys_of(begin, 1) == keys_of(begin, 1));
}

TEST_CASE("emulate: an answer that comes back in the next prompt has the blocks under which it was generated") {
    emulate::Prompt first(4);
    first.open_message("user");
    first.add_text("What is that up there?");
    first.close_message();
    first.open_message("assistant");
    const std::uint64_t asked = first.tokens();
    first.add_answer(40);
    CHECK(first.tokens() == asked);
    emulate::Prompt second(4);
    second.open_message("user");
    second.add_text("What is that up there?");
    second.close_message();
    second.open_message("assistant");
    second.add_text(emulate::answer_text(0, 40));
    second.close_message();
    CHECK(emulate::answer_text(0, 40).size() == 160);
    CHECK(emulate::answer_text(0, 7) + emulate::answer_text(7, 40) == emulate::answer_text(0, 40));
    REQUIRE(first.keys().size() == (asked + 40) / 4);
    CHECK(std::equal(first.keys().begin(), first.keys().end(), second.keys().begin()));
}

TEST_CASE("The emulator answers completions and chats, and says what it serves") {
    run_emulate_test("answers");
}
TEST_CASE("The emulator streams tokens one by one at the pace of the simulation") {
    run_emulate_test("streams");
    run_emulate_test("scale");
}
TEST_CASE("The emulator refuses in OpenAI's form what it cannot answer, and clients beyond its limit") {
    run_emulate_test("errors");
}
TEST_CASE("The emulator's metrics are vLLM's, and count what its clients saw") {
    run_emulate_test("metrics");
    run_emulate_test("summary");
}
TEST_CASE("A conversation with the emulator finds its earlier turns in the prefix cache") {
    run_emulate_test("conversation");
}
TEST_CASE("The emulator breaks off the share of the answers that it was told to") {
    run_emulate_test("faults");
}
TEST_CASE("The emulator listens beyond this machine with a token alone, and says what of a command line is wrong") {
    run_emulate_test("token");
}
TEST_CASE("The emulator stays up and small under 200 streams, killed, silent and slow clients among them") {
    run_emulate_test("load");
}
TEST_CASE("curl reads the emulator's streams") {
    run_emulate_test("curl");
}
TEST_CASE("OpenAI's own client reads the emulator's answers, streams and errors") {
    run_emulate_test("openai");
}
TEST_CASE("wrk loads the emulator without an error") {
    run_emulate_test("wrk");
}
