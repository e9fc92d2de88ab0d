// The shell around the flags of launch scripts.

#include "workloads/imports/shell_script.hpp"
#include "sim/base/error.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace orrery;

namespace {

std::string words_of(const std::string& script, const std::map<std::string, std::string>& given = {}) {
    std::string out;
    for (const CommandCall& command : read_shell(script, "script", given).commands) {
        for (const CommandWord& word : command.words) {
            out += word.text + "|";
        }
        out += "\n";
    }
    return out;
}

}  // namespace

TEST_CASE("a shell script gives the words of its commands") {
    CHECK(words_of("A=1; B=\"$A 2\"\nrun $B \"$B\" '$B'") == "run|1|2|1 2|$B|\n");
    CHECK(words_of("A=(x \"--y 1\"); A+=(z)\nrun ${A[@]} ${#A[@]} ${A[1]}") == "run|x|--y|1|z|3|--y|1|\n");
    CHECK(words_of("A=\"-a\"; A=\"$A -b\"; A+=' -c'; run $A") == "run|-a|-b|-c|\n");
    CHECK(words_of("N=${NODES:-4} G=8\nexport W=$((N * (G + 2) / 2 - 1))\nrun $W $((W % 4))") == "run|19|3|\n");
    CHECK(words_of("O=\" \\\n  --a 1 \\\n  --b 2 \\\n\"\nrun \\\n  $O  # words\n") == "run|--a|1|--b|2|\n");
    CHECK(words_of("run --l '([0]*3+[1]*2)' ([1]*2)") == "run|--l|([0]*3+[1]*2)|([1]*2)|\n");
    CHECK(words_of("A=\"--l '([0] * 3)'\"; run $A") == "run|--l|([0] * 3)|\n");
    CHECK(words_of("run --x $UNSET $(date) end") == "date|\nrun|--x|$UNSET|$(date)|end|\n");
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
    CHECK(read_shell("if [ -f x ]; then A=3; fi", "s").unsure.size() == 1);
    CHECK(words_of("for i in 4 8; do\n run $i\ndone") == "run|4|\n");
}

TEST_CASE("scripts inside of commands are read with the variables around them") {
    CHECK(words_of("M=q; docker run -e A=1 img bash -lc \"pip install x && serve $M --y '{\\\"a\\\": 1}'\"") ==
          "pip|install|x|\nserve|q|--y|{\"a\": 1}|\n");
    CHECK(words_of("C='run --a 1'\neval \"$C --b 'x y'\"") == "run|--a|1|--b|x y|\n");
    CHECK(words_of("A=(\"--a 1\" --b); srun -l bash -c \"run ${A[@]} --c\"") == "run|--a|1|--b|--c|\n");
    CHECK(words_of("OUT=$(bench --n 3 | tee x)") == "bench|--n|3|\ntee|x|\n");
    const CommandList list = read_shell("docker run -e A=1 img sh -c 'serve --p 1'", "s");
    REQUIRE(list.commands.size() == 1);
    CHECK(list.commands[0].outer.size() == 5);
    CHECK(list.commands[0].words[0].at == 28);
}

TEST_CASE("bodies of functions are read with the arguments of their first call") {
    CHECK(words_of("serve() {\n  local m=$1\n  run --model $m --tp ${2:-1}\n}\nserve q 4\nrun $1") ==
          "run|--model|q|--tp|4|\nserve|q|4|\nrun|$1|\n");
    CHECK(words_of("function go {\n  run \"$1\" $2\n}\nfor i in 1; do go a; done") == "run|a|$2|\ngo|a|\n");
    CHECK(words_of("f() { { run $1; }; run2 $1; }\nf x; f y") == "run|x|\nrun2|x|\nf|x|\nf|y|\n");
    CHECK(read_shell("f() { run $1; }\nf x; f y", "s").loops == std::vector<std::string>{"the first of 2 calls of f"});
    CHECK(words_of("f() { run $1; }") == "run|$1|\n");
}

TEST_CASE("redirections, here-documents and the environment of commands are no words of them") {
    CHECK(words_of("run --a 2>&1 > log.txt &\nwait <in >>out; next |& tee $L") == "run|--a|\nwait|\nnext|\ntee|$L|\n");
    const CommandList list =
        read_shell("N=2\ncat > c$N.yaml <<EOF\ntp: $N\nEOF\ncat <<'EOF' | tee d.yaml\n$N\nEOF\nrun <name> x", "s");
    CHECK(list.files.at("c2.yaml") == "tp: 2\n");
    CHECK(list.files.at("d.yaml") == "$N\n");
    CHECK(list.commands.back().words[1].unset == "<name>");
    const CommandList set = read_shell("export A=1; B=2\nexport B\nC=3 run $C --d='{\"x\": \"y\"}' \"$J\"", "s");
    REQUIRE(set.commands.size() == 1);
    REQUIRE(set.commands[0].environment.size() == 3);
    CHECK(set.commands[0].environment[1].text == "B=2");
    CHECK(set.commands[0].environment[2].text == "C=3");
    CHECK(set.commands[0].words[1].unset == "C");
    CHECK(set.commands[0].words[2].text == "--d={\"x\": \"y\"}");
}

TEST_CASE("words of a script keep quotes inside of them, and say which variables have no value") {
    CHECK(words_of("J='{\"m\":\"mtp\",\"n\":1}'\nrun --j $J") == "run|--j|{\"m\":\"mtp\",\"n\":1}|\n");
    const CommandList list = read_shell("A=\"--tp $TP --n 4 --pp ${PP}\"\nrun $A", "s");
    const auto& words = list.commands[0].words;
    REQUIRE(words.size() == 7);
    CHECK(words[2].unset == "TP");
    CHECK(words[4].unset.empty());
    CHECK(words[6].unset == "PP");
    CHECK(words_of("$ run --a  # of a page\n% run --b\nif you like, run") == "run|--a|\nrun|--b|\nif|you|like,|run|\n");
    CHECK(words_of("[ x$A = x ] && B=1\nif [ \"x$A\" = x ]; then run; fi") == "[|x$A|=|x|]|\nrun|\n");
}

TEST_CASE("a shell script that expands without end is refused") {
    std::string bomb = "A=aaaaaaaaaaaaaaaa\n";
    for (int i = 0; i < 40; ++i) {
        bomb += "A=$A$A\n";
    }
    CHECK_THROWS_AS((void)read_shell(bomb, "s"), ConfigError);
    CHECK_THROWS_AS(
        (void)read_shell("run " + std::string(300, '$') + "{A:-" + std::string(10, '$'), "s").commands.at(9),
        std::out_of_range);
    std::string deep = "x";
    for (int i = 0; i < 200; ++i) {
        deep = "${A:-" + deep + "}";
    }
    CHECK_THROWS_AS((void)read_shell("run " + deep, "s"), ConfigError);
}
