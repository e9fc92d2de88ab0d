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

TEST_CASE("tiers: experts in a host that is not there, and in one that does not hold them") {
    const test::Folder folder;
    const auto served = [&](const std::string& host) {
        return test::orrery_command("run " + folder.file("scenario.yaml", fmt::format(R"(orrery: 1
kind: serving
cluster: {{nodes: 1, node: {{preset: dgx-a100-80g, gpu: a6000{}}}}}
model: mixtral-8x7b
engine: {{expert_cache: {{experts: 2}}}}
requests: {{arrivals: closed, clients: 1, count: 1, prompt: {{kind: fixed, mean: 64}}, output: {{kind: fixed, mean: 4}}}}
)",
                                                                                      host)));
    };
    refused(served(""), {"keeps experts in 'dram'", "no 'host' with memories"});
    refused(served(", host: {tiers: [{name: dram, capacity: 8 GB, read: 100 GB/s}]}"),
            {"8 experts of 32 layers are 84.0 GiB", "more than the 7.5 GiB of 'dram'"});
}

TEST_CASE("drives: keys and values of a layer that a drive does not hold") {
    const test::Folder folder;
    const std::string device = folder.file("drive.yaml", "preset: a6000\nkernels: instinfer\n");
    refused(test::orrery_command("price attention_decode batch=1 keys=2000000000 heads=32 kv_heads=32 head_dim=128 "
                                 "--device " +
                                 device),
            {"32 heads of 2000000000 tokens put", "on one drive of"});
}

TEST_CASE("groups: prompts on GPUs and decoding on units in the banks run, and what tiers cannot do is refused") {
    const test::Folder folder;
    const std::string groups = R"(orrery: 1
kind: serving
cluster:
  groups:
    - {name: gpus, nodes: 1, node: dgx-h100}
    - {name: pim, nodes: 1, node: {preset: neupims-4, gpus: 8}}
  fabric: {kind: leaf-spine, nodes_per_leaf: 4, rails: 1, link: 400 Gbps, latency: 1 us}
model: llama-2-7b
)";
    const std::string requests =
        "requests: {arrivals: closed, clients: 64, count: 64, prompt: {kind: fixed, mean: 512}, "
        "output: {kind: fixed, mean: 32}}\n";
    const auto split = test::orrery_command("run " + folder.file("split.yaml", groups + R"(engine:
  prefill: {replicas: 2, tensor: 4, group: gpus}
  decode: {replicas: 1, tensor: 4, group: pim, scheduler: {kind: orca, max_sequences: 64}}
)" + requests));
    CHECK_MESSAGE(split.code == 0, split.text);
    CHECK_MESSAGE(split.text.find("1 decode replica has 11102 cache blocks") != std::string::npos, split.text);
    const auto training = test::orrery_command("run " + folder.file("offload.yaml", R"(orrery: 1
kind: training
cluster:
  groups:
    - {name: a, nodes: 1, node: {preset: dgx-a100-80g, host: {tiers: [{name: dram, medium: dram, capacity: 1 TB, read: 100 GB/s}]}}}
    - {name: h, nodes: 1, node: {preset: dgx-h100, host: {tiers: [{name: dram, medium: dram, capacity: 9 GB, read: 100 GB/s}]}}}
  fabric: {kind: leaf-spine, nodes_per_leaf: 4, rails: 8, link: 400 Gbps, latency: 1 us}
model: llama-3-8b
plan: {data: 16, zero: 2, global_batch: 32, offload: {optimizer: {tier: dram}}}
)"));
    CHECK(training.code == 3);
    CHECK_MESSAGE(
        training.text.find("the 8 ranks of a node of 'h' place 44.87 GiB in its tier 'dram', which holds 8.382 "
                           "GiB") != std::string::npos,
        training.text);
}
