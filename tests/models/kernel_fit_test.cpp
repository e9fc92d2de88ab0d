#include "models/calibrated.hpp"
#include "models/calibration/points.hpp"
#include "models/calibration/profiles.hpp"
#include "sim/base/input_file.hpp"
#include "sim/base/math.hpp"
#include "sim/base/random.hpp"
#include "tests/support/support.hpp"
#include "tools/calibration/collections.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

using namespace orrery;

namespace {

const KernelRates kRates{1e15, 4e12, 50e6, 132};

MeasuredPoint product(double m, double n, double k, double seconds) {
    return {*kernel_point(Gemm{m, n, k}), seconds, 0, 0};
}

/// Products of a device that is exactly a roofline with a smooth efficiency.
std::vector<MeasuredPoint> smooth_products(double wiggle) {
    std::vector<MeasuredPoint> points;
    for (double m = 16; m <= 8192; m *= 2) {
        for (double n = 128; n <= 16384; n *= 2) {
            for (double k = 128; k <= 16384; k *= 2) {
                const Gemm gemm{m, n, k};
                const double time =
                    3e-6 + std::max(gemm.flops() / (0.7 * kRates.flops), gemm.bytes() / (0.8 * kRates.bandwidth));
                points.push_back(product(m, n, k, time * exp_pinned(wiggle * (log2_pinned(m) - 8) / 8)));
            }
        }
    }
    return points;
}

}  // namespace

TEST_CASE("a fit of a roofline finds its constants, and interpolates what a smooth residual adds") {
    const auto points = smooth_products(0);
    FitOptions options;
    options.cross_validate = false;
    const KernelFit fit = fit_kernel(points, kRates, options);
    CHECK(fit.start == doctest::Approx(3e-6).epsilon(0.05));
    CHECK(fit.compute_efficiency == doctest::Approx(0.7).epsilon(0.02));
    CHECK(fit.memory_efficiency == doctest::Approx(0.8).epsilon(0.02));
    CHECK(errors_on(fit, points, kRates).mape < 0.005);
    const KernelFit bent = fit_kernel(smooth_products(0.3), kRates, options);
    const Gemm between{768, 3000, 5000};
    const double expected =
        (3e-6 + between.flops() / (0.7 * kRates.flops)) * exp_pinned(0.3 * (log2_pinned(768) - 8) / 8);
    CHECK(bent.seconds(*kernel_point(between), kRates) == doctest::Approx(expected).epsilon(0.02));
}

TEST_CASE("few products scattered over all sizes may have a prior that adds its terms, where those do not overlap") {
    std::vector<MeasuredPoint> few;
    std::vector<MeasuredPoint> rest;
    for (const MeasuredPoint& one : smooth_products(0)) {
        const double seconds =
            3e-6 + one.point.flops / (0.7 * kRates.flops) + one.point.bytes / (0.8 * kRates.bandwidth);
        MeasuredPoint in_turn = one;
        in_turn.seconds = seconds;
        ((few.size() + rest.size()) % 13 == 0 ? few : rest).push_back(in_turn);
    }
    REQUIRE(few.size() < 60);
    const KernelFit fit = fit_kernel(few, kRates, FitOptions());
    CHECK(fit.prior == KernelFit::Prior::serial);
    CHECK(errors_on(fit, rest, kRates).mape < 0.01);
}

TEST_CASE("a fit read back from its text gives the same times, bit for bit") {
    FitOptions options;
    KernelFit fit = fit_kernel(smooth_products(0.3), kRates, options);
    fit.meta["device"] = "h200-sxm";
    fit.held_back["sparse"] = {100, 0.05, 0.2};
    const std::string text = format_fit(fit);
    const KernelFit again = parse_fit(text, "again.fit");
    CHECK(format_fit(again) == text);
    CHECK(again.held_back.at("sparse").rows == 100);
    const KernelFit third = parse_fit(format_fit(again), "third.fit");
    for (double m = 1; m < 1e5; m *= 3.7) {
        const KernelPoint point = *kernel_point(Gemm{m, 777, 2 * m});
        CHECK(again.seconds(point, kRates) == third.seconds(point, kRates));
        CHECK(again.seconds(point, kRates) == doctest::Approx(fit.seconds(point, kRates)).epsilon(1e-3));
    }
}

TEST_CASE("no fit beats the peaks, and its spread grows outside its grid") {
    auto points = smooth_products(0);
    for (MeasuredPoint& one : points) {
        one.seconds *= 0.1;  // faster than the device can
    }
    FitOptions options;
    options.cross_validate = false;
    KernelFit fit = fit_kernel(points, kRates, options);
    fit.spread = 0.05;
    fit.spread_larger = 0.1;
    const Gemm large{8192, 8192, 8192};
    CHECK(fit.seconds(*kernel_point(large), kRates) == doctest::Approx(large.flops() / kRates.flops));
    CHECK(fit.estimate(*kernel_point(large), kRates).spread == 0.05);
    const Gemm twice{16384, 8192, 8192};
    CHECK(fit.estimate(*kernel_point(twice), kRates).spread == doctest::Approx(0.1));
    CHECK(fit.estimate(*kernel_point(Gemm{32768, 8192, 8192}), kRates).spread == doctest::Approx(0.15));
}

TEST_CASE("rows that beat the peak or the memory are refused, and just below them they are not") {
    const Gemm gemm{8192, 8192, 8192};
    const double at_peak = gemm.flops() / kRates.flops;
    CHECK(beats_peak(product(8192, 8192, 8192, at_peak * 1.0001), kRates).empty());
    CHECK(beats_peak(product(8192, 8192, 8192, at_peak * 0.9999), kRates).find("above the peak") != std::string::npos);
    const Gemm thin{1, 65536, 16384};
    const double from_memory = (thin.bytes() - kRates.cache) / kRates.bandwidth;
    CHECK(beats_peak(product(1, 65536, 16384, from_memory * 1.0001), kRates).empty());
    CHECK(beats_peak(product(1, 65536, 16384, from_memory * 0.9999), kRates).find("memory") != std::string::npos);
}

TEST_CASE("a trace becomes points: held-back rows, neighbours and impossible rows stay out") {
    const Trace trace = read_trace(test::data().path("tests/data/microbenchmark.csv"));
    const DeviceSpec device = read_device("h200-sxm", test::data());
    const auto sets = point_sets(trace, device, "microbenchmark.csv");
    std::size_t points = 0;
    std::int64_t refused = 0;
    for (const PointSet& set : sets) {
        points += set.points.size();
        refused += set.refused_rows;
    }
    CHECK(points ==
          2);  // of six rows one is a gradient, one held back, one was held for seconds, one ran beside a copy
    CHECK(refused == 0);
    Trace fast = trace;
    fast.rows[0].median_ns = 100;
    const auto again = point_sets(fast, device, "microbenchmark.csv");
    REQUIRE(again.front().refused.size() == 1);
    CHECK(again.front().refused[0].line == trace.rows[0].line);
}

TEST_CASE(
    "attention of training: long backward passes in eager mode are points, short ones are the host's, held ones are "
    "brought to bursts") {
    const DeviceSpec h200 = read_device("h200-sxm", test::data());
    const auto points = [&](const std::string& head, const std::string& row) {
        const Trace trace = parse_trace("# orrery-trace: 1\n# device: h200-sxm\n# source: t\n# date: unknown\n" + head +
                                            "op,phase,dtype,shape,mode,cache,median_ns\n" + row + "\n",
                                        "t");
        const std::vector<PointSet> sets = point_sets(trace, h200, "t");
        return sets.empty() ? std::vector<MeasuredPoint>() : sets.front().points;
    };
    const std::string backward =
        "attention_training,backward,bf16,batch=1 queries=8192 keys=8192 heads=32 kv_heads=8 head_dim=128,eager,warm,";
    CHECK(points("", backward + "299000").empty());
    const auto long_one = points("", backward + "2816000");
    REQUIRE(long_one.size() == 1);
    CHECK(long_one[0].point.kind == KernelKind::attention_backward);
    CHECK(long_one[0].seconds == doctest::Approx(2816e-6));
    const auto held = points("# sustained: 0.2 s\n", backward + "2816000");
    REQUIRE(held.size() == 1);
    CHECK(held[0].seconds < 0.99 * long_one[0].seconds);
    const auto forward = points(
        "", "attention_training,,bf16,batch=1 queries=512 keys=512 heads=32 kv_heads=8 head_dim=128,graph,warm,20270");
    REQUIRE(forward.size() == 1);
    CHECK(forward[0].point.kind == KernelKind::attention_forward);
    // Prompts of a serving engine come from a paged cache in memory.
    CHECK(
        points("",
               "attention_prefill,,bf16,batch=1 queries=512 keys=512 heads=32 kv_heads=8 head_dim=128,graph,warm,20270")
            .empty());
}

TEST_CASE("products of one row leave a table where every width has them half as long again as those of two") {
    const DeviceSpec device = read_device("h200-sxm", test::data());
    const auto points_with = [&](double excess_ns) {
        Trace trace;
        for (double n = 512; n < 512 * 31; n += 512) {
            for (const double m : {1, 2, 64}) {
                TraceRow row;
                row.op = "gemm";
                row.dtype = "fp8";
                row.shape = {{"m", m}, {"n", n}, {"k", 4096}};
                row.median_ns = 10000 + n + (m == 1 ? excess_ns : 0);
                trace.rows.push_back(row);
            }
        }
        return point_sets(trace, device, "rows").front().points;
    };
    CHECK(points_with(0).size() == 90);
    CHECK(points_with(3000).size() == 90);  // noise, or a kernel of its own
    const std::vector<MeasuredPoint> kept = points_with(17000);
    CHECK(kept.size() == 60);
    CHECK(std::none_of(kept.begin(), kept.end(), [](const MeasuredPoint& one) { return one.point.sizes[0] == 1; }));
}

TEST_CASE("experts taken in turn get equal rows, those chosen independently fewer active experts than choices") {
    FusedExperts experts{16, 256, 8, 2048, 512};
    experts.in_turn = true;
    CHECK(experts.active_experts() == 128);
    CHECK(kernel_point(experts)->sizes[0] == 1);
    experts.tokens = 31;
    CHECK(experts.active_experts() == 248);
    experts.tokens = 32;  // every expert has one row
    CHECK(experts.active_experts() == 256);
    experts.tokens = 512;
    CHECK(experts.active_experts() == 256);
    CHECK(kernel_point(experts)->sizes[0] == 16);
    CHECK_FALSE(kernel_point(experts)->spread);
    experts.tokens = 1;
    experts.topk = 0.125;  // one choice in eight falls on this device: an expert of its own has a whole row
    CHECK(kernel_point(experts)->sizes[0] == 1);
    CHECK(kernel_point(experts)->sizes[1] == 1);
    experts = FusedExperts{32, 256, 8, 2048, 512};
    CHECK(experts.active_experts() == doctest::Approx(256 * (1 - std::pow(1 - 8.0 / 256, 32))));
    CHECK(kernel_point(experts)->spread);
    // Choices of other devices weigh as much as those of this one.
    CHECK(kernel_point(experts)->passing == 0);
    experts.topk_elsewhere = 8;
    const double weights = 256 * (1 - std::pow(1 - 8.0 / 256, 32)) * 3 * 2048 * 512 * 2;
    CHECK(kernel_point(experts)->passing == doctest::Approx(kernel_point(experts)->bytes - weights));
}

TEST_CASE("rows of experts are padded to tiles: equal ones exactly, spread ones as the mean of an exponential law") {
    KernelFit fit;
    fit.kind = KernelKind::experts;
    fit.rounding = 64;
    KernelPoint point;
    point.kind = KernelKind::experts;
    for (const auto& [rows, padded] : {std::pair{1.0, 64.0}, {64.0, 64.0}, {65.0, 128.0}, {128.0, 128.0}}) {
        point.sizes[0] = rows;
        CHECK(fit.rounded(point) == padded);
    }
    point.spread = true;
    for (const double mean : {3.0, 40.0, 64.0, 300.0}) {
        point.sizes[0] = mean;
        double sum = 0;  // tile t is needed with the probability that the rows exceed 64 t
        for (int tile = 0; tile < 1000; ++tile) {
            sum += 64 * std::exp(-64.0 * tile / mean);
        }
        CHECK(fit.rounded(point) == doctest::Approx(sum).epsilon(1e-6));
    }
    fit.powers = true;
    fit.rounding = 128;
    point.spread = false;
    for (const auto& [rows, padded] :
         {std::pair{8.0, 8.0}, {9.0, 16.0}, {17.0, 32.0}, {128.0, 128.0}, {129.0, 256.0}}) {
        point.sizes[0] = rows;
        CHECK(fit.rounded(point) == padded);
    }
}

TEST_CASE("experts: the share of passing rows, ungated widths and unaligned ones come out of the rows that have them") {
    std::vector<MeasuredPoint> points;
    const double kPassing = 0.4;
    const double kSlow = 1.8;  // of widths that 16 does not divide
    for (double tokens = 1; tokens <= 16384; tokens *= 2) {
        for (const double parallel : {1.0, 4.0, 16.0}) {
            for (const double ffn : {512.0, 1024.0, 1032.0, 1048.0}) {
                FusedExperts experts{tokens, 128 / parallel, 8 / parallel, 4096, ffn};
                experts.topk_elsewhere = 8 - experts.topk;
                experts.in_turn = true;
                const KernelPoint point = *kernel_point(experts);
                const double memory = (point.bytes + kPassing * point.passing) / (0.8 * kRates.bandwidth);
                const double time = 20e-6 + point.flops / (0.6 * kRates.flops) + memory;
                points.push_back({point, time * (ffn == 512 || ffn == 1024 ? 1 : kSlow), 0, 0});
            }
        }
    }
    const KernelFit fit = fit_kernel(points, kRates, FitOptions());
    CHECK(fit.prior == KernelFit::Prior::serial);
    CHECK(fit.passing > 0);  // a part of it goes into what the memory reaches
    CHECK(errors_on(fit, points, kRates).mape < 0.03);
    const KernelFit again = parse_fit(format_fit(fit), "again.fit");
    CHECK(again.passing == doctest::Approx(fit.passing).epsilon(1e-3));
    CHECK(again.tile_weights == fit.tile_weights);
}

TEST_CASE("work beyond the grid goes at the rate of the last octaves, where the mean rate still falls short") {
    const auto cached = [](double keys, double heads) {
        Attention attention{heads * 4, 1, keys, 128};
        attention.group = 4;
        return attention;
    };
    const auto seconds = [&](double keys, double heads) {
        return 30e-6 + cached(keys, heads).bytes() / (0.9 * kRates.bandwidth) +
               2e-6 * std::sqrt(heads);  // a smooth part that the prior lacks
    };
    std::vector<MeasuredPoint> points;
    for (double heads = 8; heads <= 512; heads *= 2) {
        for (double keys = 64; keys <= 16384; keys *= 2) {
            points.push_back({*kernel_point(cached(keys, heads)), seconds(keys, heads), 0, 0});
        }
    }
    FitOptions options;
    options.cross_validate = false;
    KernelFit fit = fit_kernel(points, kRates, options);
    fit.memory_efficiency *= 0.7;  // a prior placed by short rows; the residual makes up for it within the grid
    for (double& value : fit.values) {
        value += std::log(0.7);
    }
    const double truth = seconds(16384 * 8, 512);
    fit.beyond = KernelFit::Beyond::fade;
    const double faded = fit.seconds(*kernel_point(cached(16384 * 8, 512)), kRates);
    fit.beyond = KernelFit::Beyond::slope;
    const double sloped = fit.seconds(*kernel_point(cached(16384 * 8, 512)), kRates);
    CHECK(std::abs(faded / truth - 1) > 0.2);
    CHECK(sloped == doctest::Approx(truth).epsilon(0.03));
    // Continuous at the border, and the same as ever within it.
    const double at = fit.seconds(*kernel_point(cached(16384, 512)), kRates);
    CHECK(fit.seconds(*kernel_point(cached(16385, 512)), kRates) == doctest::Approx(at).epsilon(1e-3));
    CHECK(parse_fit(format_fit(fit), "again.fit").beyond == KernelFit::Beyond::slope);
}

TEST_CASE("a sibling's shape is taken for sparse rows where it fits, and is not where it does not") {
    // Kernels with a jagged residual that 5 % of the rows cannot show.
    const auto jag = [](double m, double n, double k, std::uint64_t seed) {
        const auto step = [](double x) { return static_cast<std::uint64_t>(log2_pinned(x) * 2); };
        return 0.5 *
               (static_cast<double>(mix64(step(m) + 64 * step(n) + 4096 * step(k) + 1000003 * seed) % 1000) / 1000 -
                0.5);
    };
    const auto table = [&](std::uint64_t seed, double scale) {
        std::vector<MeasuredPoint> points;
        for (double m = 16; m <= 8192; m *= 1.4142135623730951) {
            for (double n = 128; n <= 16384; n *= 2) {
                for (double k = 128; k <= 65536; k *= 1.4142135623730951) {
                    const Gemm gemm{m, n, k};
                    const double time =
                        30e-6 + gemm.flops() / (0.6 * kRates.flops) + gemm.bytes() / (0.7 * kRates.bandwidth);
                    points.push_back(
                        product(m, n, k, scale * time * exp_pinned(jag(m * 1.01, n * 1.01, k * 1.01, seed))));
                }
            }
        }
        return points;
    };
    FitOptions options;
    options.cross_validate = false;
    options.most_nodes = 4000;
    const KernelFit sibling = fit_kernel(table(1, 1.0), kRates, options);
    KernelFit alike;
    alike.held_back["sparse"] = {1, 0.1, 0.2};
    judge_sibling(alike, table(1, 1.2), kRates, sibling, "h100-sxm");
    REQUIRE(alike.held_back.contains("sibling"));
    CHECK(alike.meta.at(kSiblingKey) == "h100-sxm");
    CHECK(alike.held_back.at("sibling").mape < 0.06);
    KernelFit other;
    judge_sibling(other, table(2, 1.2), kRates, sibling, "h100-sxm");
    CHECK_FALSE(other.held_back.contains("sibling"));
}

TEST_CASE("damaged fits give errors with their lines and never anything else") {
    const std::string good = read_input(test::data().path("models/data/kernels/h200-sxm/latent_decode-bf16.fit"));
    RandomStream random(11, "fit-fuzz");
    const std::string alphabet = "0123456789.: -\nabcx\xff";
    for (int i = 0; i < 500 * test::scale(); ++i) {
        std::string text = good.substr(0, random.below(good.size() + 1));
        for (std::uint64_t edits = random.below(5); edits > 0 && !text.empty(); --edits) {
            text[random.below(text.size())] = alphabet[random.below(alphabet.size())];
        }
        try {
            const KernelFit fit = parse_fit(text, "fuzz");
            const double time = fit.seconds(*kernel_point(LatentAttention{}), kRates);
            REQUIRE(time > 0);
        } catch (const ConfigError& error) {
            REQUIRE(!error.diagnostics().empty());
        }
    }
}

TEST_CASE("each reader of public profiles maps a sample onto the trace format and survives damaged ones") {
    struct Sample {
        const char* format;
        const char* text;
        std::size_t rows;
        const char* op;
    };
    const Sample samples[] = {
        {"aic-gemm", "gemm_dtype,m,n,k,latency,kernel_source\nbfloat16,64,128,256,0.01,a\nfp8,64,128,256,0.02,b\n", 2,
         "gemm"},
        {"aic-context",
         "batch_size,isl,num_heads,num_key_value_heads,head_dim,attn_dtype,kv_cache_dtype,step,latency,kernel_source\n"
         "2,1024,32,8,128,bfloat16,fp8,0,0.2,fa3\n",
         1, "attention_prefill"},
        {"aic-generation",
         "batch_size,isl,num_heads,num_key_value_heads,head_dim,attn_dtype,kv_cache_dtype,step,window_size,latency,"
         "kernel_source\n2,1,32,8,128,bfloat16,bfloat16,4095,0,0.2,fa3\n",
         1, "attention_decode"},
        {"aic-mla",
         "op_name,mla_dtype,kv_cache_dtype,num_heads,batch_size,isl,step,latency,kernel_source\n"
         "mla_generation,bfloat16,bfloat16,128,4,1,511,0.05,default\n",
         1, "mla_decode"},
        {"aic-delta",  // prompts of one token, drafts and three convolutions in one row stay out
         "kernel_source,phase,op_name,batch_size,seq_len,num_k_heads,head_k_dim,num_v_heads,head_v_dim,latency\n"
         "chunk_gated_delta_rule,context,gdn,2,512,16,128,32,128,0.1\nchunk_gated_delta_rule,context,gdn,2,1,16,128,32,"
         "128,0.1\ncausal_conv1d_fn_qkv3,context,kda,2,512,96,128,96,128,0.1\nfused_recurrent_kda,verify,kda,2,4,96,"
         "128,"
         "96,128,0.1\ncausal_conv1d_update,generation,gdn,2,1,16,128,32,128,0.1\n",
         2, "delta_scan"},
        {"aic-sparse",  // of choices those among scores that differ; of scores of decoding those from pages
         "op_name,batch_size,isl,step,num_heads,kernel_source,latency,score_mode\n"
         "glm5_topk_module,4,16,4096,64,a,0.01,top_last\nglm5_topk_module,4,16,4096,64,a,0.02,flat\n"
         "glm5_mqa_logits_module,4,1,4096,64,b,0.02,\ndsv4_paged_mqa_logits_module,4,1,4095,64,b,0.02,\n"
         "glm5_dsa_attn_module,4,16,128,64,b,0.02,\n",
         2, "top_choice"},
        {"aic-moe",
         "moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,distribution,latency,"
         "kernel_source\nbfloat16,64,4096,14336,2,8,1,1,balanced,0.5,t\nbfloat16,64,4096,14336,2,8,1,1,power_law_1.2,0."
         "5,t\nbfloat16,64,4096,14336,2,8,1,1,power_law_1.01,0.5,t\nbfloat16,64,4096,14336,2,8,1,2,power_law_1.2,0.5,"
         "t\n",
         2, "moe"},
        {"aic-moe",  // of SGLang, rows of a part of the experts stay out
         "moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,distribution,latency,"
         "kernel_source\nbfloat16,64,4096,14336,2,8,1,2,balanced,0.5,sglang_x\nbfloat16,64,4096,14336,2,8,1,1,balanced,"
         "0.5,sglang_x\nbfloat16,64,512,256,2,8,1,2,balanced,0.5,vllm_x\nbfloat16,64,7168,2048,8,256,1,1,balanced,0.5,"
         "vllm_x\n",
         2, "moe"},
        {"layer-attention",
         "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n512,0,0,0,30\n0,0,8,1024,20\n64,0,8,1024,40\n", 2,
         "attention_prefill"},
        {"layers", "layer,tokens,time_us\nqkv_proj,128,20\nlayernorm,128,4\nunknown,128,4\n", 2, "gemm"},
        {"apex-gemm", "gpu,dtype,m,k,n,time(us)\nV100,half,4096,4096,4096,1600\nV100,half,1,1,1,14\n", 1, "gemm"},
        {"llmcompass-gemm", "64, 12288, 12288, 0.1900ms, 101.7124Tflops\n", 1, "gemm"},
    };
    RandomStream random(13, "profile-fuzz");
    const std::string alphabet = "0123456789.,-\nabms\xff";
    for (const Sample& sample : samples) {
        PublicProfile profile{sample.format, "sample.csv", "h200-sxm", "a sample", "none"};
        profile.heads = 32;
        profile.kv_heads = 8;
        profile.head_dim = 128;
        profile.hidden = 4096;
        profile.ffn = 14336;
        profile.vocabulary = 128256;
        profile.ungated = "512x256 1x1";
        profile.misrouted = "7168x2048x256";
        const Trace trace = parse_profile(profile, sample.text, "sample.csv");
        CHECK_MESSAGE(trace.rows.size() == sample.rows, sample.format);
        CHECK_MESSAGE(trace.rows[0].op == sample.op, sample.format);
        for (const TraceRow& row : trace.rows) {
            if (row.op == "moe") {
                CHECK(row.dim("gated") == (row.dim("hidden") == 512 ? 0 : 1));
                CHECK(row.dim("in_turn") == (row.dim("skew") > 0 ? 0 : 1));
            }
        }
        // What a reader makes is a valid trace.
        std::string written =
            "# orrery-trace: 1\n# device: any\n# source: any\n# date: any\nop,dtype,kv_dtype,shape,median_ns\n";
        for (const TraceRow& row : trace.rows) {
            written += fmt::format("{},{},{},", row.op, row.dtype, row.kv_dtype);
            for (const auto& [dimension, value] : row.shape) {
                written += fmt::format("{}={} ", dimension, value);
            }
            written += fmt::format(",{}\n", row.median_ns);
        }
        CHECK(parse_trace(written, sample.format).rows.size() == sample.rows);
        const std::string good = sample.text;
        for (int i = 0; i < 300 * test::scale(); ++i) {
            std::string text = good.substr(0, random.below(good.size() + 1));
            for (std::uint64_t edits = random.below(4); edits > 0 && !text.empty(); --edits) {
                text[random.below(text.size())] = alphabet[random.below(alphabet.size())];
            }
            try {
                const Trace damaged = parse_profile(profile, text, "fuzz.csv");
                REQUIRE(!damaged.rows.empty());
            } catch (const ConfigError& error) {
                REQUIRE(!error.diagnostics().empty());
            }
        }
    }
    try {
        (void)parse_profile({"aic-gemm", "", "h200-sxm", "", ""},
                            "gemm_dtype,m,n,k,latency,kernel_source\nfp8,1,x,1,1,a\n1,2\n", "p.csv");
        FAIL("accepted");
    } catch (const ConfigError& error) {
        REQUIRE(error.diagnostics().size() == 2);
        CHECK(error.diagnostics()[0].line == 2);
        CHECK(error.diagnostics()[1].line == 3);
    }
}

TEST_CASE(
    "decode attention that a sweep reads again from the device's cache steps at its capacity, and the fit follows") {
    const KernelRates rates{400e12, 800e9, 96e6, 128};
    std::vector<MeasuredPoint> in, back;
    for (double batch = 1; batch <= 256; batch *= 2) {
        for (double keys = 256; keys <= 65536; keys *= 2) {
            for (const double group : {2.0, 4.0, 8.0}) {
                Attention attention{batch * 8 * group, 1, keys, 128};
                attention.group = group;
                const KernelPoint point = *kernel_point(attention);
                const double rate = rates.bandwidth * 0.8 * (point.bytes < rates.cache ? 2.5 : 1);
                ((in.size() + back.size()) % 3 == 0 ? in : back).push_back({point, 4e-6 + point.bytes / rate});
            }
        }
    }
    const KernelFit fit = fit_kernel(in, rates, {});
    CHECK(errors_on(fit, back, rates).mape < 0.03);
}
