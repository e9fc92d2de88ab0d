// The shell around the flags of launch scripts.

#include "workloads/imports/shell_script.hpp"
#include "sim/base/error.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace orrery;

namespace {

std::string words_of(const std::string& script, const std::map<std::string, std::string>& given = {}) {
    std::string out;
    for (const ShellCommand& command : read_shell_script(script, "script", given).commands) {
        for (const ShellWord& word : command) {
            out += word.text + "|";
        }
        out += "\n";
    }
    return out;
}

}  // namespace

TEST_CASE("a shell script gives the words of its commands") {
    CHECK(words_of("A=1; B=\"$A 2\"\nrun $B \"$B\" '$B'") == "run|1|2|1 2|$B|\n");
    CHECK(words_of("A=(x \"--y 1\"); A+=(z)\nrun ${A[@]} ${#A[@]} ${A[1]}") == "run|x|--y|1|z|4|--y|\n");
    CHECK(words_of("A=\"-a\"; A=\"$A -b\"; A+=' -c'; run $A") == "run|-a|-b|-c|\n");
    CHECK(words_of("N=${NODES:-4} G=8\nexport W=$((N * (G + 2) / 2 - 1))\nrun $W $((W % 4))") == "run|19|3|\n");
    CHECK(words_of("O=\" \\\n  --a 1 \\\n  --b 2 \\\n\"\nrun \\\n  $O  # words\n") == "run|--a|1|--b|2|\n");
    CHECK(words_of("run --l '([0]*3+[1]*2)' ([1]*2)") == "run|--l|([0]*3+[1]*2)|([1]*2)|\n");
    CHECK(words_of("A=\"--l '([0] * 3)'\"; run $A") == "run|--l|([0] * 3)|\n");
    CHECK(words_of("run --x $UNSET $(date) end") == "run|--x|$UNSET|$(date)|end|\n");
    CHECK(words_of("TP=$2\nA=\" --tp ${TP} --pp $PP --x\"\nrun $A") == "run|--tp|$2|--pp|$PP|--x|\n");
}

TEST_CASE("a shell script takes what its environment and parameters are said to be") {
    CHECK(words_of("TP=${10}; if [ $1 = 7B ]; then L=32; fi\nrun $L $TP $N", {{"1", "7B"}, {"10", "4"}, {"N", "2"}}) ==
          "run|32|4|2|\n");
    CHECK(words_of("TP=4; O=$(( ($TP > 1) ? 1 : 0 )); run $O $((TP == 3)) $((TP >= 4 ? TP * 2 : 7))") ==
          "run|1|0|8|\n");
}

TEST_CASE("branches of a shell script are taken as their tests say") {
    const std::string script =
        "if [ $S = 7B ]; then L=32; elif [[ \"$S\" == 13B && 2 -gt 1 ]]; then L=40; else L=80; fi\nrun $L";
    CHECK(words_of("S=7B\n" + script) == "run|32|\n");
    CHECK(words_of("S=13B\n" + script) == "run|40|\n");
    CHECK(words_of("S=70B\n" + script) == "run|80|\n");
    CHECK(words_of("S=13B\ncase $S in\n 7B) L=32;;\n 13B|14B)\n L=40\n ;;\n *) L=80 ;;\nesac\nrun $L") == "run|40|\n");
    CHECK(words_of("case $S in 7B) L=32;; *) L=80 ;; esac\nrun $L") == "run|80|\n");
    CHECK(words_of("if [ -z \"$A\" ]; then A=2; fi; if [ -f x ]; then A=3; fi; if false; then run 0; fi; run $A") ==
          "run|2|\n");
    CHECK(read_shell_script("if [ -f x ]; then A=3; fi", "s").unsure.size() == 1);
    CHECK(words_of("for i in 4 8; do\n run $i\ndone") == "run|4|\n");
}

TEST_CASE("a shell script that expands without end is refused") {
    std::string bomb = "A=aaaaaaaaaaaaaaaa\n";
    for (int i = 0; i < 40; ++i) {
        bomb += "A=$A$A\n";
    }
    CHECK_THROWS_AS((void)read_shell_script(bomb, "s"), ConfigError);
    CHECK_THROWS_AS(
        (void)read_shell_script("run " + std::string(300, '$') + "{A:-" + std::string(10, '$'), "s").commands.at(9),
        std::out_of_range);
    std::string deep = "x";
    for (int i = 0; i < 200; ++i) {
        deep = "${A:-" + deep + "}";
    }
    CHECK_THROWS_AS((void)read_shell_script("run " + deep, "s"), ConfigError);
}
