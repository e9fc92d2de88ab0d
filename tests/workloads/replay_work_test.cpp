#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "topologies/device_preset.hpp"
#include "workloads/imports/importer.hpp"
#include "workloads/replay/work.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

using namespace orrery;

namespace {

// One rank: an operator with the sizes of its inputs, the call that launches its kernel, the kernel.
std::string kineto(const std::string& op, const std::string& dims, const std::string& kernel) {
    return fmt::format(
        R"({{"traceEvents":[
{{"ph":"X","cat":"cpu_op","name":"{}","ts":0,"dur":9,"tid":1,"args":{{"External id":7,"Input Dims":{},"Input type":["c10::BFloat16","c10::BFloat16"]}}}},
{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","ts":1,"dur":2,"tid":1,"args":{{"External id":7,"correlation":3}}}},
{{"ph":"X","cat":"kernel","name":"{}","ts":10,"dur":500,"args":{{"External id":7,"correlation":3,"stream":7,"device":0}}}}]}})",
        op, dims, kernel);
}

std::string works_of(const std::string& op, const std::string& dims) {
    const std::string text = import_file("pytorch-profiler", ImportInput::of_bytes("t", kineto(op, dims, "k"))).text;
    const ReplayTrace trace = parse_replay(text, "t");
    CHECK(format_replay(trace) == text);
    return trace.works.empty() ? "" : trace.works.front();
}

}  // namespace

TEST_CASE("kernels of a profile with shapes say what they compute") {
    CHECK(works_of("aten::mm", "[[4096,8192],[8192,1024]]") == "product m=4096 n=1024 k=8192 batch=1 type=bf16");
    CHECK(works_of("aten::addmm", "[[1024],[4096,8192],[8192,1024],[],[]]") ==
          "product m=4096 n=1024 k=8192 batch=1 type=bf16");
    CHECK(works_of("aten::bmm", "[[32,128,64],[32,64,256]]") == "product m=128 n=256 k=64 batch=32 type=bf16");
    CHECK(works_of("aten::_scaled_dot_product_flash_attention", "[[2,32,4096,128],[2,8,4096,128],[2,8,4096,128]]") ==
          "attention heads=64 queries=4096 keys=4096 dim=128 group=4 type=bf16");
    CHECK(works_of("aten::_flash_attention_forward", "[[2,4096,32,128],[2,4096,32,128],[2,4096,32,128]]") ==
          "attention heads=64 queries=4096 keys=4096 dim=128 group=1 type=bf16");
    // Two inputs read, one output as large as the larger.
    CHECK(works_of("aten::add", "[[1024,1024],[1024,1024]]") == "streaming bytes=6291456");
    CHECK(works_of("aten::mm", "[]").empty());
    CHECK(works_of("aten::empty", "[[],[]]").empty());
}

TEST_CASE("what a program moves between memories takes the memories' time, which ranks of a node share") {
    const auto seconds = [](const std::string& work, int ranks) {
        const std::string file =
            (std::filesystem::temp_directory_path() / fmt::format("orrery-moves-{}.replay", getpid())).string();
        std::ofstream(file)
            << "# orrery-replay: 1\n# source: test\n# ranks: " << ranks << "\n# program: same\nlane,a\nwork," << work
            << "\nop,rank,lane,kind,name,duration_ns,lag_ns,flops,bytes,collective,group,peer,tag,after,work\n"
               "op,0,0,copy,move,,,,,,,,,,0\n";
        const Scenario s = test::scenario(fmt::format(
            "orrery: 1\nkind: replay\n"
            "cluster: {{nodes: 1, node: {{gpus: 2, gpu: a6000, intra: pcie, intra_bandwidth: 20 GB/s, intra_latency: 1 "
            "us, "
            "nics: 0, pcie_bandwidth: 20 GB/s, host: {{tiers: [{{name: dram, capacity: 1 TB, read: 30 GB/s}}]}}}}}}\n"
            "compute: {{model: replay, trace: {}}}\n",
            file));
        const double out = run_scenario(s, test::model_cache(), {}).summary.find("replay_time_s")->value;
        std::filesystem::remove(file);
        return out;
    };
    CHECK(seconds("memory tier=dram by=copy bytes=2e9", 1) == doctest::Approx(0.1));
    CHECK(seconds("memory tier=dram by=copy bytes=2e9", 2) == doctest::Approx(4.0 / 30));
    CHECK(seconds("memory tier=dram by=device bytes=2e9 row=400", 1) ==
          doctest::Approx(0.1 * PcieLink::row_weight(400, true)));
    CHECK(seconds("memory tier=dram by=unaligned bytes=2e9 row=400", 1) ==
          doctest::Approx(0.1 * PcieLink::row_weight(400, false)));
    // Read and written at one rate: rows of 384 B are six lines.
    CHECK(seconds("memory tier=dram by=host bytes=3e9 row=384", 1) == doctest::Approx(0.2));
    CHECK_THROWS_AS((void)seconds("memory tier=cxl by=copy bytes=2e9", 1), ConfigError);
    // Copies and launches on small cores take what they take alone: one core, 330 MB/s.
    CHECK(seconds("dpu preset=upmem cores=1 bytes=3.3e8", 1) == doctest::Approx(1).epsilon(1e-3));
    CHECK(seconds("dpu preset=upmem cores=1 threads=11 instructions=3.5e8", 1) == doctest::Approx(11).epsilon(1e-3));
    CHECK_THROWS_AS((void)seconds("dpu preset=upmen cores=1 bytes=5", 1), ConfigError);
}

TEST_CASE("works read back, and wrong ones are refused with their lines") {
    std::string problem;
    const auto product = parse_work("product m=4 n=8 k=16 batch=2 type=fp8", problem);
    REQUIRE(product);
    CHECK(std::get<Gemm>(*product).flops() == 2.0 * 4 * 8 * 16 * 2);
    CHECK(std::get<Gemm>(*product).precision == Precision::fp8);
    for (const char* text : {"", "matmul m=4", "product m=4 n=8 k=16", "product m=4 n=8 k=0 batch=1",
                             "product m=4 n=8 k=nan batch=1", "streaming bytes=5 type=fp6", "streaming"}) {
        CAPTURE(text);
        CHECK(!parse_work(text, problem));
        CHECK(!problem.empty());
    }
    for (const char* text : {"dpu", "dpu preset=upmem cores=4", "dpu preset=upmem cores=4 bytes=5 threads=5",
                             "dpu preset=upmem cores=4 bytes=-5", "dpu cores=4 bytes=5"}) {
        CAPTURE(text);
        CHECK(!parse_core_work(text, problem));
    }
    for (const char* text : {"memory", "memory tier=dram by=copy", "memory tier=dram by=dma bytes=5",
                             "memory tier=dram by=host bytes=5", "memory tier=dram by=copy bytes=5 row=5"}) {
        CAPTURE(text);
        CHECK(!parse_memory_work(text, problem));
    }
    const std::string head = "# orrery-replay: 1\n# source: test\n# ranks: 1\nlane,a\n";
    const std::string columns =
        "op,rank,lane,kind,name,duration_ns,lag_ns,flops,bytes,collective,group,peer,tag,after,work\n";
    try {
        (void)parse_replay(head + "work,matmul\n" + columns + "op,0,0,kernel,k,1,,,,,,,,,1\n", "f");
        FAIL("accepted");
    } catch (const ConfigError& error) {
        const std::string what = error.what();
        CHECK(what.find("f:5:1: error: a work is product, attention, streaming, memory or dpu, not 'matmul'") !=
              std::string::npos);
        CHECK(what.find("f:7:1: error: work 1 is not listed") != std::string::npos);
    }
}

TEST_CASE("a record from another device takes what the two devices' models say") {
    const test::Folder folder;
    (void)folder.file("t.replay",
                      "# orrery-replay: 1\n# source: test\n# ranks: 1\n# recorded_ns: 2100000\nlane,a\n"
                      "work,product m=8192 n=8192 k=8192 batch=1 type=bf16\nwork,streaming bytes=1000000000\n"
                      "op,rank,lane,kind,name,duration_ns,lag_ns,flops,bytes,collective,group,peer,tag,after,work\n"
                      "op,0,0,kernel,first,1000000,,,,,,,,,0\nop,0,0,kernel,second,500000,,,,,,,,-1,1\n"
                      "op,0,0,kernel,sm80_xmma_gemm,300000,,,,,,,,-1,\nop,0,0,kernel,elementwise,200000,,,,,,,,-1,\n"
                      "op,0,0,copy,Memcpy,100000,,,,,,,,-1,\n");
    const auto seconds = [&](const std::string& device) {
        const std::string file = folder.file(
            "s.yaml",
            "orrery: 1\nkind: replay\ncluster: {nodes: 1, node: {preset: dgx-a100-80g, gpus: 1, nics: 1, gpu: " +
                device + "}}\ncompute: {model: replay, trace: t.replay}\nreplay: {recorded_on: a100-sxm-80g}\n");
        return run_scenario(load_scenario(file, {}, test::data()), test::model_cache(), {}).seconds;
    };
    CHECK(seconds("a100-sxm-80g") == doctest::Approx(2.1e-3).epsilon(1e-6));
    const auto cost = [](const char* device, const Operation& operation) {
        return test::model_cache()
            .device(read_device(device, test::model_cache().data()), ComputeKind::calibrated)
            .cost(operation)
            .seconds.value();
    };
    Streaming stream;
    stream.bytes = 1e9;
    const Gemm product{8192, 8192, 8192};
    const double of_product = cost("h100-sxm", product) / cost("a100-sxm-80g", product);
    const double of_stream = cost("h100-sxm", stream) / cost("a100-sxm-80g", stream);
    CHECK(of_product < 0.6);
    CHECK(of_stream < 0.8);
    CHECK(seconds("h100-sxm") == doctest::Approx(1.3e-3 * of_product + 0.7e-3 * of_stream + 0.1e-3).epsilon(1e-6));
    // A program without times has none that another device's could be.
    (void)folder.file("bare.replay",
                      "# orrery-replay: 1\n# source: test\n# ranks: 1\nlane,a\n"
                      "op,rank,lane,kind,name,duration_ns,lag_ns,flops,bytes,collective,group,peer,tag,after\n"
                      "op,0,0,kernel,k,,,1e12,,,,,,\n");
    const std::string bare =
        folder.file("bare.yaml",
                    "orrery: 1\nkind: replay\ncluster: {nodes: 1, node: dgx-a100-80g}\n"
                    "compute: {model: replay, trace: bare.replay}\nreplay: {recorded_on: h100-sxm}\n");
    CHECK_THROWS_AS((void)run_scenario(load_scenario(bare, {}, test::data()), test::model_cache(), {}), ConfigError);
}
