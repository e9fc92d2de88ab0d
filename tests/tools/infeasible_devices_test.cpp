// What a device, its banks or the tiers of a node cannot hold or do ends with exit code 3 and the numbers.

#include "tests/support/command.hpp"

#include <doctest/doctest.h>

using namespace orrery;

namespace {

test::Outcome run_training(const std::string& node, const std::string& plan) {
    const test::Folder folder;
    const std::string file = folder.file("scenario.yaml", fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 1, node: {}}}
model: {{layers: 4, hidden: 1024, heads: 16, vocabulary: 1000}}
plan: {{data: 8, global_batch: 8{}}}
)",
                                                                      node, plan));
    return test::orrery_command("run " + file);
}

void refused(const test::Outcome& outcome, std::initializer_list<const char*> said) {
    CHECK(outcome.code == 3);
    for (const char* text : said) {
        CHECK_MESSAGE(outcome.text.find(text) != std::string::npos, outcome.text);
    }
}

}  // namespace

TEST_CASE("devices: a mapping that exceeds a bank, with the bytes of both") {
    refused(test::orrery_command("price attention_decode batch=1 keys=900000000 heads=32 kv_heads=32 head_dim=128 "
                                 "--device neupims"),
            {"900000000 tokens put 439453.12 MiB", "32 banks hold 953.67 MiB"});
    refused(test::orrery_command("price gemm m=1 n=900000 k=90000 --device cent"),
            {"900000 x 90000 weights (150.87 GiB)", "hold 14.90 GiB"});
}

TEST_CASE("devices: training on a device that has no unit for a backward pass") {
    refused(run_training("{preset: dgx-a100-80g, gpu: cent}", ""), {"0 of kind systolic", "training needs arrays"});
}

TEST_CASE("tiers: an offload plan without its tier, and one whose tier is too small") {
    const char* plan = ", zero: 2, offload: {optimizer: {tier: dram}}";
    refused(run_training("dgx-a100-80g", plan), {"keeps optimizer in 'dram'", "0 tiers"});
    refused(run_training("{preset: dgx-a100-80g, host: {tiers: [{name: dram, capacity: 100 MB, read: 200 GB/s, write: "
                         "200 GB/s}]}}",
                         plan),
            {"the 8 ranks of a node place", "in its tier 'dram', which holds 95.37 MiB"});
}
