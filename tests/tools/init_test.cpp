// First scenarios: what `orrery init` writes runs.

#include "tests/support/command.hpp"
#include "tools/init/starter.hpp"
#include "tools/reference/reference.hpp"

#include <doctest/doctest.h>

using namespace orrery;
using namespace orrery::test;

TEST_CASE("init writes a scenario of every kind that runs as it is") {
    const Folder folder;
    std::vector<std::string> kinds = reference_kinds();
    kinds.insert(kinds.end(), {"faults", "disaggregated"});
    for (const std::string& kind : kinds) {
        const std::string file = folder.file(kind + ".yaml");
        const Outcome made = orrery_command(fmt::format("init {} -o {}", kind, file));
        REQUIRE_MESSAGE(made.code == 0, kind << "\n" << made.text);
        CHECK(read(file).rfind("# ", 0) == 0);
        const std::string run = kind == "sweep" ? "sweep " + file + " --dry-run" : "run " + file + " --quiet";
        const Outcome ran = orrery_command(run);
        CHECK_MESSAGE(ran.code == 0, kind << "\n" << ran.text);
    }
}

TEST_CASE("init makes of GPUs, device and model a scenario that fits, on every node and for models small and large") {
    for (const char* facts :
         {"training --gpus 512 --device h100-sxm --model llama-3-70b",
          "training --gpus 1024 --device a100 --model gpt3-175b", "training --gpus 8 --device rtx-4090 --model gpt-22b",
          "training --gpus 64 --device b200 --model llama-3-8b",
          "training --gpus 2048 --device h100 --model llama-3-405b",
          "training --gpus 1 --device mi300x --model llama-3-8b", "serving --gpus 1 --device h100 --model llama-3-8b",
          "serving --gpus 16 --device a100 --model llama-3-70b", "serving --gpus 8 --device h200 --model mixtral-8x22b",
          "serving --gpus 72 --device gb200 --model llama-3-70b",
          "disaggregated --gpus 32 --device h200 --model llama-3-70b", "rl --gpus 32 --device h100 --model qwen3-32b",
          "faults --gpus 256 --device a100 --model llama-3-70b",
          "training --gpus 4096 --device h100 --model qwen3-235b-a22b",
          "training --gpus 1152 --device gb200 --model deepseek-v3",
          "rl --gpus 64 --device h100 --model qwen3-30b-a3b"}) {
        const Folder folder;
        const std::string file = folder.file("made.yaml");
        const Outcome made = orrery_command(fmt::format("init {} -o {}", facts, file));
        if (std::string(facts).find("gpt-22b") != std::string::npos) {
            CHECK(made.code == 3);  // 22 billion parameters of 18 bytes on 8 x 24 GiB
            CHECK(made.text.find("does not fit on 8 GPUs") != std::string::npos);
            continue;
        }
        REQUIRE_MESSAGE(made.code == 0, facts << "\n" << made.text);
        const std::string count =
            read(file).find("kind: serving\n") == read(file).find("kind: ") ? " --set requests.count=50" : "";
        const Outcome ran = orrery_command("run " + file + " --quiet" + count);
        CHECK_MESSAGE(ran.code == 0, facts << "\n" << ran.text);
    }
}

TEST_CASE("init divides experts over ranks and trains in sequences of a few thousand tokens") {
    const Folder folder;
    const std::string file = folder.file("experts.yaml");
    REQUIRE(orrery_command("init training --gpus 256 --device h200 --model deepseek-v3 -o " + file).code == 0);
    CHECK(read(file).find("\n  expert: 8 ") != std::string::npos);
    // A plan of eight tensor ranks that cut every expert reaches 2 %.
    const Outcome ran = orrery_command("run " + file + " --quiet --set 'expect={mfu: \"> 20 %\"}'");
    CHECK_MESSAGE(ran.code == 0, ran.text);
    const Outcome long_context = orrery_command("init training --gpus 64 --device h100 --model qwen3-30b-a3b");
    CHECK(long_context.text.find("sequence: 4096}   # the model takes up to 32768 tokens") != std::string::npos);
    const Outcome short_context = orrery_command("init training --gpus 64 --device h100 --model llama-3-70b");
    CHECK(short_context.text.find("model: llama-3-70b ") != std::string::npos);
}

TEST_CASE("init refuses what it cannot use, with what it could") {
    const std::vector<std::pair<const char*, const char*>> cases = {
        {"init trainig", "did you mean 'training'?"},
        {"init training --device h10", "unknown device preset 'h10'"},
        {"init training --device gaudi-2", "no node preset has the device 'gaudi-2'"},
        {"init training --gpus 12 --device h100", "no multiple of the 8 GPUs"},
        {"init training --model llama-3-70", "did you mean 'llama-3-70b'?"},
        {"init network --model llama-3-8b", "takes no --model; it takes --gpus"},
        {"init network --gpus 1", "give --gpus of 2 or more"},
        {"init disaggregated --gpus 8 --model llama-3-405b --device h200", "need 16 GPUs or more"},
        {"init serving --gpus 8 --device gb200-tray --model llama-3-8b",
         "error: no scenario comes of these facts (--gpus 8): 2 nodes do not fill domains of 18"},
    };
    for (const auto& [arguments, expected] : cases) {
        const Outcome out = orrery_command(arguments);
        CHECK_MESSAGE(out.code == 2, arguments << "\n" << out.text);
        CHECK_MESSAGE(out.text.find(expected) != std::string::npos, out.text);
    }
    const Outcome large = orrery_command("init training --model deepseek-v3");
    CHECK_MESSAGE(large.code == 3, large.text);
    CHECK_MESSAGE(large.text.find("does not fit on 64 GPUs") != std::string::npos, large.text);
    // Weights alone would fit.
    const Outcome full = orrery_command("init serving --gpus 8 --device tpu-v5e --model llama-2-7b");
    CHECK_MESSAGE(full.code == 3, full.text);
    CHECK_MESSAGE(full.text.find("does not fit into 1 GPUs") != std::string::npos, full.text);
}
