// `orrery import --scale`: one rank's record as the program of a larger job.

#include "tests/support/command.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

using namespace orrery::test;

namespace {

// A step of a rank of tensor=2, data=4: kernels, an all-reduce of activations between two ranks, one of gradients between four.
// Collectives take `tensor_us` and `data_us`.
std::string step(double tensor_us, double data_us, int data = 4) {
    nlohmann::json events = nlohmann::json::array();
    double at = 1000;
    int correlation = 1;
    const auto add = [&](const std::string& name, double us, nlohmann::json more) {
        events.push_back({{"ph", "X"},
                          {"cat", "cuda_runtime"},
                          {"name", "cudaLaunchKernel"},
                          {"pid", 1},
                          {"tid", 1},
                          {"ts", 900 + correlation},
                          {"dur", 0.5},
                          {"args", {{"correlation", correlation}}}});
        nlohmann::json arguments = {{"device", 0}, {"stream", 7}, {"correlation", correlation}};
        arguments.update(more);
        events.push_back({{"ph", "X"},
                          {"cat", "kernel"},
                          {"name", name},
                          {"pid", 0},
                          {"tid", 7},
                          {"ts", at},
                          {"dur", us},
                          {"args", arguments}});
        at += us;
        ++correlation;
    };
    const std::string nccl = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
    const auto collective = [&](double us, int size, const std::string& ranks, double elements) {
        add(nccl, us,
            {{"Collective name", "allreduce"},
             {"In msg nelems", elements},
             {"Out msg nelems", elements},
             {"dtype", "BFloat16"},
             {"Group size", size},
             {"Process Group Ranks", ranks}});
    };
    for (int layer = 0; layer < 4; ++layer) {
        add("gemm", 2000, nlohmann::json::object());
        collective(tensor_us, 2, "[0, 1]", 4194304);
    }
    collective(data_us, data, "[0, 2]", 134217728);
    return nlohmann::json({{"schemaVersion", 1},
                           {"distributedInfo", {{"backend", "nccl"}, {"rank", 0}, {"world_size", 2 * data}}},
                           {"traceEvents", events}})
        .dump();
}

double seconds(const Folder& folder, const std::string& replay, int nodes, const std::string& more = "") {
    const std::string scenario =
        folder.file("r.yaml", fmt::format("orrery: 1\nkind: replay\ncluster: {{nodes: {}, node: dgx-h100}}\n"
                                          "compute: {{model: replay, trace: {}}}\n{}",
                                          nodes, replay, more));
    const std::string json = folder.file("r.json");
    const Outcome out = orrery_command("run " + scenario + " --json " + json);
    REQUIRE_MESSAGE(out.code == 0, out.text);
    const auto metrics = nlohmann::json::parse(read(json))["metrics"];
    return metrics["replay_time_s"]["value"].get<double>();
}

}  // namespace

TEST_CASE("import --scale: the same job keeps its record, eight times the ranks are the job that was recorded so") {
    const Folder folder;
    const std::string four = folder.file("four.json", step(100, 900));
    const auto import = [&](const std::string& file, const std::string& plan, const char* to) {
        const Outcome out =
            orrery_command(fmt::format("import pytorch-profiler {} --scale {} -o {}", file, plan, folder.file(to)));
        REQUIRE_MESSAGE(out.code == 0, out.text);
        return folder.file(to);
    };
    const double same = seconds(folder, import(four, "tensor=2,data=4", "same.replay"), 1);
    CHECK(same == doctest::Approx(8000e-6 + 4 * 100e-6 + 900e-6).epsilon(0.012));

    // The recorded times of what does not change stay; a record of 64 ranks with its gradients priced by the network is the same job.
    const double scaled = seconds(folder, import(four, "tensor=2,data=4:32", "scaled.replay"), 8);
    const std::string large = folder.file("large.json", step(100, 1, 32));
    const double simulated =
        seconds(folder, import(large, "tensor=2,data=32", "large.replay"), 8, "replay: {communication: simulated}\n");
    const double tensor = seconds(folder, import(folder.file("t.json", step(1, 1)), "tensor=2,data=4", "t.replay"), 1,
                                  "replay: {communication: simulated}\n");
    CHECK(scaled > same);
    // Both are 8 ms of kernels and the gradients' all-reduce over 32; they differ by the tensor group's 4 x 100 us against the network's.
    CHECK(scaled == doctest::Approx(simulated).epsilon(0.03));
    CHECK(tensor > 0);
}

TEST_CASE("import --scale refuses what the record does not tell, with the reason") {
    const Folder folder;
    const std::string four = folder.file("four.json", step(100, 900));
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"tensor=2:4,data=4", "'tensor' cannot change"},
        {"tensor=2,data=8:64", "the plan has 16 ranks, and the recorded job 8"},
        {"data=4:8,tensor=2", "no degrees of the plan make the recorded group"},
        {"tensor=2,data=x", "is a whole number"},
        {"tensor", "takes degrees"},
    };
    for (const auto& [plan, why] : cases) {
        const Outcome out = orrery_command(
            fmt::format("import pytorch-profiler {} --scale {} -o {}", four, plan, folder.file("o.replay")));
        CHECK_MESSAGE(out.code == 2, out.text);
        CHECK_MESSAGE(out.text.find(why) != std::string::npos, plan << "\n" << out.text);
    }
    CHECK(orrery_command(fmt::format("import goal {} --scale data=1:2", four)).code == 2);
}
