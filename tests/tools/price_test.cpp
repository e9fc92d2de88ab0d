// `orrery price`, `validate compute --trace` and devices of the user's own.

#include "models/calibrated.hpp"
#include "models/calibration/row_prices.hpp"
#include "models/roofline.hpp"
#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/calibration/collections.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <set>

using namespace orrery;
using namespace orrery::test;

namespace {

nlohmann::json prices(const std::string& arguments) {
    const Outcome out = orrery_command("price " + arguments + " --json -");
    REQUIRE_MESSAGE(out.code == 0, out.text);
    return nlohmann::json::parse(out.text);
}

void check_refused(const std::string& arguments, const std::string& why) {
    const Outcome out = orrery_command(arguments);
    CHECK_MESSAGE(out.code == 2, arguments << "\n" << out.text);
    CHECK_MESSAGE(out.text.find(why) != std::string::npos, arguments << "\n" << out.text);
}

TraceRow row(const std::string& op, const std::string& shape, const std::string& phase = "") {
    const std::string text = fmt::format(
        "# orrery-trace: 1\n# device: h200-sxm\n# source: t\n# date: unknown\n"
        "op,phase,dtype,shape,median_ns\n{},{},bf16,{},1\n",
        op, phase, shape);
    return parse_trace(text, "row").rows.at(0);
}

double flops(const TraceRow& of) {
    double sum = 0;
    for (const auto& [operation, times] : operations_in(of)) {
        sum += times * flops_of(operation);
    }
    return sum;
}

}  // namespace

TEST_CASE(
    "price: a kernel costs what simulations pay for it, and says what binds it and whose measurement it follows") {
    const DeviceSpec device = read_device("h100-sxm", data());
    const auto one = prices("gemm m=4096 n=14336 k=4096 --device h100-sxm").at(0);
    const Cost cost = model_cache().device(device, ComputeKind::calibrated).cost(Gemm{4096, 14336, 4096});
    CHECK(one["seconds"].get<double>() == doctest::Approx(cost.seconds.value()).epsilon(1e-9));
    CHECK(one["low"].get<double>() < one["seconds"].get<double>());
    CHECK(one["binds"] == "arithmetic");
    CHECK(one["source"].get<std::string>().find("aiconfigurator@095f58a") != std::string::npos);
    CHECK(prices("gemm m=1 n=14336 k=4096 --device h100-sxm").at(0)["binds"] == "memory");
    CHECK(prices("gemm m=1 n=14336 k=4096 --node dgx-h100").at(0)["seconds"] ==
          prices("gemm m=1 n=14336 k=4096 --device h100-sxm").at(0)["seconds"]);
    CHECK(prices("gemm m=64 n=64 k=64 --device a10").at(0)["source"].get<std::string>().find(", on a40") !=
          std::string::npos);
    const auto unmeasured = prices("gemm m=64 n=64 k=64 --device mi250x-gcd").at(0);
    CHECK(unmeasured["source"] == "roofline: no kernels of this device were measured");
    CHECK(unmeasured["binds"] == "start-up");
    // What a device has no units for is said, and what it has is not.
    const auto source = [&](const char* dtype, const char* device_name) {
        return prices(fmt::format("gemm m=512 n=512 k=512 --dtype {} --device {}", dtype, device_name))
            .at(0)["source"]
            .get<std::string>();
    };
    for (const char* none : {"fp4", "fp4-nv", "fp8", "int8"}) {
        CHECK(source(none, "a100-sxm-80g")
                  .find("no " + std::string(none).substr(0, std::string(none).find('-')) + " arithmetic") !=
              std::string::npos);
    }
    CHECK(source("fp4", "h100-sxm").find("no fp4 arithmetic, so it is that of 16 bits") != std::string::npos);
    for (const char* has : {"bf16", "fp8", "int8", "int4"}) {
        CHECK(source(has, "h100-sxm").find("arithmetic") == std::string::npos);
    }
}

TEST_CASE("price: a collective over ideal links is its closed form, and a library's takes longer") {
    const std::string asked = "all_reduce bytes=1073741824 ranks=8 --node dgx-h100";
    const double ideal = prices(asked + " --library ideal").at(0)["seconds"];
    CHECK(ideal == doctest::Approx(2 * 7.0 / 8 * 1073741824 / 450e9).epsilon(0.01));
    const auto nccl = prices(asked).at(0);
    CHECK(nccl["seconds"].get<double>() > 0.5 * ideal);
    CHECK(nccl["binds"] == "links of the node");
    CHECK(prices("all-reduce bytes=1024 ranks=8 --node dgx-h100").at(0)["binds"] == "start-up");
    CHECK(prices("all_gather bytes=1073741824 ranks=32 --node dgx-h100").at(0)["binds"] == "links between nodes");
}

TEST_CASE("price: a table has its prices row by row, and its errors at their lines") {
    const Folder folder;
    const std::string good = folder.file("good.csv",
                                         "op,dtype,device,node,shape\n"
                                         "gemm,fp8,h200-sxm,,m=64 n=8192 k=8192\n"
                                         "all_reduce,,,dgx-h200,bytes=65536 ranks=4\n");
    const std::string out = folder.file("out.csv");
    CHECK(prices("--table " + good + " --kv-dtype fp8 -o " + out).size() == 2);
    CHECK(read(out).find("all_reduce,,,bytes=65536 ranks=4,,dgx-h200,") != std::string::npos);
    const std::string bad = folder.file("bad.csv",
                                        "op,device,shape\ngem,h200-sxm,m=1\ngemm,h200-sxm,m=1 n=1\n"
                                        "gemm,h201,m=1 n=1 k=1\n");
    const Outcome outcome = orrery_command("price --table " + bad);
    CHECK(outcome.code == 2);
    for (const char* error :
         {"bad.csv:2:1: error: unknown operation 'gem'; did you mean 'gemm'?",
          "bad.csv:3:1: error: gemm needs a positive 'k'", "bad.csv:4:1: error: unknown device 'h201'"}) {
        CHECK_MESSAGE(outcome.text.find(error) != std::string::npos, outcome.text);
    }
    check_refused("price --table " + folder.file("c.csv", "op,devise,shape\n"), "has no row");
    check_refused("price --table " + folder.file("d.csv", "op,devise,shape\ngemm,x,m=1\n"), "did you mean 'device'?");
    check_refused("price", "takes an operation");
    check_refused("price", "grouped_gemm, moe");
    check_refused("price experts tokens=1 --device h200-sxm", "unknown operation 'experts'; there are gemm");
    const std::string spreadsheet = folder.file("crlf.csv", "op,shape,device\r\ngemm,m=64 n=64 k=64,h200-sxm\r\n");
    CHECK(prices("--table " + spreadsheet).size() == 1);
    check_refused("price attention_decode batch=1 keys=64 heads=32 kv_heads=7 head_dim=128 --device h200-sxm",
                  "kv_heads (7) must divide heads (32)");
    const std::string back = folder.file("back.csv",
                                         "op,phase,device,shape\nattention_training,backward,a100-sxm-80g,batch=1 "
                                         "queries=64 keys=64 heads=8 kv_heads=8 head_dim=64\n");
    CHECK(prices("--table " + back + " -o " + out).size() == 1);
    CHECK(read(out).find("attention_training,backward,bf16,") != std::string::npos);
    CHECK(read(out).find("from prompts") != std::string::npos);
    check_refused("price gemm m=1 n=1 k=1", "name it with --device");
    check_refused("price gemm m=1 n=1 k=1 --device h200-sxm --kv-dtype fp8", "gemm reads no cached keys and values");
    check_refused("price --table " + folder.file("kv.csv", "op,kv_dtype,shape\ngemm,fp8,m=1 n=1 k=1\n"),
                  "kv.csv:2:1: error: gemm reads no cached keys");
    check_refused("price gemm m=1 n=1 k=1 --device h200-sxm --kernels none-such", "no device has a set of kernels");
    check_refused("price all_reduce bytes=1 ranks=2 --device h200-sxm", "neither device nor kernels");
    check_refused("price all_reduce bytes=1 ranks=2 --node dgx-h200 --dtype fp8", "it has neither dtype nor phase");
    check_refused(
        "price --table " + folder.file("dt.csv", "op,dtype,node,shape\nall_gather,fp8,dgx-h200,bytes=1 ranks=2\n"),
        "dt.csv:2:1: error: all_gather moves bytes");
    check_refused("price all_reduce bytes=1 ranks=12 --node dgx-h200 --library ncl", "no library of collectives");
    check_refused("price all_reduce bytes=1 ranks=9 --node dgx-h200", "as many on each node");
    check_refused("price gemm m=1 n=1 k=1 --device h200-sxm --library nccl", "is no collective");
    check_refused("price both_ways bytes=1 --device h200-sxm", "no model has an operation for both_ways");
}

// A fit of a kernel that nobody tuned would make a model slower for being quantised.
TEST_CASE("experts in 8 bits take no longer than those in 16") {
    for (const char* device : {"h100-sxm", "h200-sxm", "b200-sxm", "gb200"}) {
        for (const int tokens : {16, 256, 4096}) {
            for (const char* layer : {"hidden=7168 ffn=2048 tensor=8 experts=256 topk=8",
                                      "hidden=4096 ffn=1536 tensor=4 experts=128 topk=8",
                                      "hidden=4096 ffn=14336 tensor=2 experts=8 topk=2"}) {
                const std::string asked = fmt::format("moe tokens={} {} --device {} --dtype ", tokens, layer, device);
                const double eight = prices(asked + "fp8").at(0)["seconds"].get<double>();
                const double sixteen = prices(asked + "bf16").at(0)["seconds"].get<double>();
                CHECK_MESSAGE(eight < 1.05 * sixteen, asked);
            }
        }
    }
}

TEST_CASE("a layer and a step of torchbench are the sums of their kernels") {
    const std::string shape = "batch=4 queries=2048 hidden=4096 ffn=14336 heads=32 kv_heads=8 head_dim=128 gated=1";
    const double tokens = 4 * 2048;
    const double weights = 4096.0 * (4096 + 2 * 1024) + 4096.0 * 4096 + 3 * 4096.0 * 14336;
    const double attention = Attention{4 * 32, 2048, 2048, 128}.flops();
    CHECK(flops(row("layer", shape)) == doctest::Approx(2 * tokens * weights + attention));
    CHECK(flops(row("layer", shape, "backward")) == doctest::Approx(6 * tokens * weights + 3.5 * attention));
    const std::string step =
        "batch=4 queries=2048 hidden=4096 ffn=14336 heads=32 kv_heads=8 head_dim=128 layers=2 "
        "vocabulary=50304 gated=1";
    CHECK(flops(row("step", step)) == doctest::Approx(2 * (2 * tokens * weights + attention) + 2 * 4 * 4096.0 * 50304));
    CHECK(flops(row("step", step + " training=1")) ==
          doctest::Approx(2 * (6 * tokens * weights + 3.5 * attention) + 6 * tokens * 4096 * 50304));
    const std::string mixed =
        "batch=1 queries=512 hidden=4096 ffn=14336 heads=32 kv_heads=8 head_dim=128 layers=1 "
        "vocabulary=50304 gated=1 decode_batch=64 decode_keys=2048";
    CHECK(flops(row("step", mixed)) ==
          doctest::Approx(2 * (512 + 64) * weights + Attention{32, 512, 512, 128}.flops() +
                          Attention{64 * 32, 1, 2048, 128}.flops() + 2 * 65 * 4096.0 * 50304));
    const auto price = RowPricer(read_device("h200-sxm", data()), data(), "", kBurst).price(row("layer", shape));
    REQUIRE(price.has_value());
    CHECK(price->binds == "arithmetic");
    CHECK(price->of_peak < 1);
}

TEST_CASE("validate compute --trace prices held-back rows first and names what no model has") {
    const Folder folder;
    const RowPricer burst(read_device("h200-sxm", data()), data(), "", kBurst);
    std::string text =
        "# orrery-trace: 1\n# device: h200-sxm\n# source: t\n# date: unknown\nop,dtype,shape,split,median_ns\n";
    for (const double m : {512, 1024, 2048, 4096}) {
        const std::string shape = fmt::format("m={} n=8192 k=8192", m);
        const double seconds = burst.price(row("gemm", shape))->seconds;
        text += fmt::format("gemm,bf16,{},holdout,{}\ngemm,bf16,{},,{}\n", shape, seconds * 1e9 * 1.25, shape,
                            seconds * 1e9);
    }
    text += "both_ways,,bytes=1048576,,20000\n";
    const Outcome out = orrery_command("validate compute --trace " + folder.file("t.csv", text));
    CHECK_MESSAGE(out.code == 0, out.text);
    const auto held_back = out.text.find("yes");
    REQUIRE_MESSAGE(held_back != std::string::npos, out.text);
    CHECK_MESSAGE(out.text.find("20.0 %", held_back) < out.text.find("no ", held_back), out.text);  // 1 / 1.25 - 1
    CHECK_MESSAGE(out.text.find("both_ways: no model has such an operation") != std::string::npos, out.text);
    check_refused("validate --trace " + folder.file("t.csv"), "belongs to the suite compute");
    check_refused("validate compute --fit --trace " + folder.file("t.csv"), "belongs to the suite");
}

TEST_CASE("validate compute --kernels compares a profiled step by class of kernel") {
    const Folder folder;
    const std::string shape = "batch=4 queries=2048 hidden=4096 ffn=14336 heads=32 kv_heads=8 head_dim=128 gated=1";
    const std::string trace = folder.file("t.csv",
                                          "# orrery-trace: 1\n# device: h200-sxm\n# source: t\n# date: unknown\n"
                                          "op,dtype,shape,split,point,median_ns\nlayer,bf16," +
                                              shape + ",holdout,one,7000000\n");
    const RowPricer burst(read_device("h200-sxm", data()), data(), "", kBurst);
    double products = 0;
    for (const auto& [operation, times] : operations_in(row("layer", shape))) {
        products += std::holds_alternative<Gemm>(operation) ? times * burst.price(operation).seconds : 0;
    }
    const std::string kernels = folder.file(
        "k.csv", fmt::format("point,launches,us,kernel\none,4,{},nvjet_sm90_tst_256x128_64x4_1x2_h_bz\n"
                             "one,1,1,cudnn_generated_fort_native_sdpa_sm90_flash_fprop\none,9,1,void f<a, b>(int)\n",
                             products * 1e6 / 1.25));
    const Outcome out = orrery_command("validate compute --trace " + trace + " --kernels " + kernels);
    CHECK_MESSAGE(out.code == 0, out.text);
    CHECK_MESSAGE(out.text.find("+25.0 %") != std::string::npos, out.text);
    check_refused("validate compute --kernels " + kernels, "belongs to --trace");
    const std::string other = folder.file("o.csv", "point,launches,us,kernel\ntwo,1,1,gemm\n");
    check_refused("validate compute --trace " + trace + " --kernels " + other, "none of the layers and steps");
}

TEST_CASE("a device of the user's own, with its kernels, needs no change of the program's data") {
    const Folder folder;
    const std::string mine = folder.file("mine");
    std::filesystem::create_directories(mine + "/models/data/devices");
    std::filesystem::create_directories(mine + "/models/data/kernels/my-gpu");
    std::string device = read(std::string(ORRERY_SOURCE_DIR) + "/models/data/devices/h200-sxm.yaml");
    device.replace(device.find("kernels: h200-sxm"), 17, "kernels: my-gpu ");
    device.replace(device.find("sibling_kernels: h100-sxm"), 25, "");
    std::ofstream(mine + "/models/data/devices/my-gpu.yaml") << device;
    std::string fit = read(std::string(ORRERY_SOURCE_DIR) + "/models/data/kernels/h200-sxm/gemm-bf16.fit");
    fit.replace(fit.find("device: h200-sxm"), 16, "device: my-gpu");
    std::ofstream(mine + "/models/data/kernels/my-gpu/gemm-bf16.fit") << fit;
    const std::string gemm = "gemm m=512 n=8192 k=8192";
    const auto price = prices(gemm + " --device my-gpu --data " + mine).at(0);
    CHECK(price["seconds"] == prices(gemm + " --device h200-sxm").at(0)["seconds"]);
    const std::string scenario =
        folder.file("s.yaml",
                    "orrery: 1\nkind: training\n"
                    "cluster: {nodes: 1, node: {preset: dgx-h200, gpu: my-gpu}}\n"
                    "model: {layers: 4, hidden: 1024, heads: 16, vocabulary: 1000}\n"
                    "plan: {tensor: 2, data: 4, global_batch: 8}\nsoftware: megatron-lm-2021\n");
    const Outcome run = orrery_command("run " + scenario + " --data " + mine);
    CHECK_MESSAGE(run.code == 0, run.text);
    CHECK(orrery_command("list devices --data " + mine).text.find("my-gpu") != std::string::npos);
    check_refused("run " + scenario, "unknown device preset 'my-gpu'");
    // A file of the device beside the scenario, too; its kernels still come from the folder.
    std::ofstream(folder.file("anywhere.yaml")) << device;
    std::string text = read(scenario);
    text.replace(text.find("gpu: my-gpu"), 11, "gpu: anywhere.yaml");
    std::ofstream(scenario) << text;
    const auto up_to_events = [](const std::string& all) { return all.substr(0, all.find("events in")); };
    CHECK(up_to_events(orrery_command("run " + scenario + " --data " + mine).text) == up_to_events(run.text));
    CHECK(prices(gemm + " --device " + folder.file("anywhere.yaml") + " --data " + mine).at(0)["seconds"] ==
          price["seconds"]);
    std::ofstream(folder.file("anywhere.yaml")) << "memory: 3 parsecs\n";
    const Outcome wrong = orrery_command("run " + scenario + " --data " + mine);
    CHECK(wrong.code == 2);
    CHECK_MESSAGE(wrong.text.find("anywhere.yaml:1:9") != std::string::npos, wrong.text);
    std::filesystem::remove(folder.file("anywhere.yaml"));
    check_refused("run " + scenario + " --data " + mine, "anywhere.yaml' describes a device");
    check_refused("run " + scenario + " --data " + folder.file("none"), "holds none of models/data");
}

TEST_CASE("price layer: the operations of each kind of layer of a model, with times on a device") {
    const auto rows = prices("layer qwen3-32b sequences=64 keys=4096 tensor=2 --device h100-sxm");
    double weights = 0;
    double seconds = 0;
    double attention = 0;
    for (const auto& row : rows) {
        CHECK(row["count"] == 64);
        weights += row["weights"].get<double>();
        seconds += row["seconds"].get<double>();
        attention += row["operation"] == "attention" ? row["seconds"].get<double>() : 0;
    }
    // 64 query heads of 128 and 8 key heads over 5,120 values, and a gated feed-forward of 25,600, over two devices, with two norms.
    CHECK(weights == 5120.0 * (2 * 64 * 128 + 2 * 8 * 128 + 3 * 25600) / 2 + 4 * 5120);
    Attention decode{64 * 32, 1, 4096, 128};
    decode.causal = false;
    decode.group = 8;
    const CostModel& device = model_cache().device(read_device("h100-sxm", data()), ComputeKind::calibrated);
    CHECK(attention == doctest::Approx(device.seconds(decode).value()).epsilon(1e-9));
    CHECK(seconds > 2 * attention);
    // Two kinds of layers, without a device their shapes alone.
    std::set<std::string> kinds;
    for (const auto& row : prices("layer deepseek-ai/DeepSeek-V3 queries=512 keys=512")) {
        kinds.insert(row["layers"].get<std::string>());
        CHECK(row["seconds"] == 0);
    }
    CHECK(kinds == std::set<std::string>{"dense layers", "layers with experts"});
    check_refused("price layer", "takes a model");
    check_refused("price layer qwen3-32c", "did you mean 'qwen3-32b'?");
    check_refused("price layer qwen3-32b keys=0", "'keys=0' is not one of");
    check_refused("price layer qwen3-32b queries=9 keys=8", "keys (8) counts the queries (9)");
    check_refused("price layer qwen3-32b tensor=7", "tensor (7) must divide the 64 heads");
    check_refused("price layer qwen3-32b --library nccl", "--library has no effect on a layer");
}
