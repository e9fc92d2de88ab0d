// Input that is wrong in a way that was once accepted, took for ever, or reached the terminal.

#include "tests/support/command.hpp"
#include "tests/support/support.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <chrono>

using namespace orrery;
using namespace orrery::test;

namespace {

void check_refused(const std::string& arguments, const std::string& expected, int code = 2) {
    const Outcome out = orrery_command(arguments);
    CHECK_MESSAGE(out.code == code, arguments << "\n" << out.text);
    CHECK_MESSAGE(out.text.find(expected) != std::string::npos, arguments << "\n" << out.text);
}

std::size_t lines_of(const std::string& text) {
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

TEST_CASE("replay: ranks that wait for each other are named with the lines of the circle") {
    const Folder folder;
    const std::string head = "# orrery-replay: 1\n# source: test\n# ranks: 2\n# program: each\nlane,main\ngroup,0 1\n";
    const std::string scenario = folder.file("s.yaml",
                                             "orrery: 1\nkind: replay\ncluster: {nodes: 1, node: dgx-a100-80g}\n"
                                             "compute: {model: replay, trace: t.replay}\n");
    // Each rank receives before it sends: neither message is ever sent.
    (void)folder.file("t.replay", head +
                                      "op,0,0,recv,wait,10,,,8,,,1,,\nop,0,0,send,give,10,,,8,,,1,,-1\n"
                                      "op,1,0,recv,wait,10,,,8,,,0,,\nop,1,0,send,give,10,,,8,,,0,,-1\n");
    const Outcome circle = orrery_command("run " + scenario);
    CHECK_MESSAGE(circle.code == 2, circle.text);
    for (const char* expected : {"ranks 0, 1 wait for each other in a circle", "'give' of rank 0 (line 8)",
                                 "'wait' of rank 0 (line 7)", "'give' of rank 1 (line 10)", "t.replay:"}) {
        CHECK_MESSAGE(circle.text.find(expected) != std::string::npos, circle.text);
    }
    // Two collectives in opposite orders.
    (void)folder.file("t.replay", head + "group,0 1\n" +
                                      "op,0,0,collective,a,10,,,8,all-reduce,0,,,\n"
                                      "op,0,0,collective,b,10,,,8,all-reduce,1,,,-1\n"
                                      "op,1,0,collective,b,10,,,8,all-reduce,1,,,\n"
                                      "op,1,0,collective,a,10,,,8,all-reduce,0,,,-1\n");
    const Outcome crossed = orrery_command("run " + scenario);
    CHECK_MESSAGE(crossed.code == 2, crossed.text);
    for (const char* expected : {"ranks 0, 1 wait", "'b' of rank 0 (line 9) waits for 'a' of rank 0 (line 8)",
                                 "'a' of rank 1 (line 11) waits for 'b' of rank 1 (line 10)"}) {
        CHECK_MESSAGE(crossed.text.find(expected) != std::string::npos, crossed.text);
    }
    // In the same order they run.
    (void)folder.file("t.replay", head +
                                      "op,0,0,send,give,10,,,8,,,1,,\nop,0,0,recv,wait,10,,,8,,,1,,-1\n"
                                      "op,1,0,recv,wait,10,,,8,,,0,,\nop,1,0,send,give,10,,,8,,,0,,-1\n");
    CHECK_MESSAGE(orrery_command("run " + scenario).code == 0, orrery_command("run " + scenario).text);
}
