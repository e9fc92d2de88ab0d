// The files of public repositories that calibration and validation read, one line each.

#include "models/calibration/profiles.hpp"

namespace orrery::models {

namespace {
constexpr const char* kApache = "Apache-2.0";
constexpr const char* kMit = "MIT";
constexpr const char* kBsd = "BSD-3-Clause";
constexpr const char* kVllm24 = "ai-dynamo/aiconfigurator@095f58a, vLLM 0.24.0";
constexpr const char* kVllm22 = "ai-dynamo/aiconfigurator@095f58a, vLLM 0.22.0";
constexpr const char* kVllm20 = "ai-dynamo/aiconfigurator@095f58a, vLLM 0.20.0";
constexpr const char* kVllm19 = "ai-dynamo/aiconfigurator@095f58a, vLLM 0.19.0";
constexpr const char* kVllm14 = "ai-dynamo/aiconfigurator@095f58a, vLLM 0.14.0";
constexpr const char* kSglang5 = "ai-dynamo/aiconfigurator@095f58a, SGLang 0.5.10";
constexpr const char* kTrt = "ai-dynamo/aiconfigurator@095f58a, TensorRT-LLM 1.3.0rc20";
constexpr const char* kVidur = "microsoft/vidur@7d47513, PyTorch profiler";
constexpr const char* kVidurOld = "microsoft/vidur@e2d00e9, FlashAttention, PyTorch profiler";
constexpr const char* kLayers = "casys-kaist/LLMServingSim@5daddb2, vLLM 0.19.0";
constexpr const char* kLayersOld = "casys-kaist/LLMServingSim@5daddb2, profiler v0";
constexpr const char* kCompass = "PrincetonUniversity/LLMCompass@2e015fd";
// Nemotron 3 Nano, Super and Ultra: squared ReLU without a gate (read as gated, their rows would beat the memory's rate).
constexpr const char* kNemotron = "2688x1856 1024x2688 2048x5120";
// DeepSeek-V3's routing by groups: with even scores it took the first groups alone (half of the experts take as long).
constexpr const char* kGrouped = "7168x2048x256";
// The fused kernel written in Triton that vLLM and SGLang run on Hopper, of which these tables have every shape.
constexpr const char* kTriton = "triton";
constexpr const char* kBlocks = "fp8-block";
// vLLM 0.24 quantises in blocks on the host's side of its sweep: its fastest product takes 55 us (Hopper) to 280 us (L40S), whatever
// its size. Those of 0.19 take 6 us.
constexpr const char* kNotBlocks = "bf16 fp8 fp4-nv";
// vLLM 0.24's experts in fp8 with a scale a tensor are FlashInfer's on Hopper and take 2.4 to 3.2 times as long as those in bf16
// (medians from 16 to 256 tokens; on B200 0.54). 0.19's, in Triton, take 0.56 to 0.58 of it: no engine would keep the others.
constexpr const char* kTensorwise = "fp8";
constexpr const char* kNotTensorwise = "bf16 fp8-block bf16:int4 bf16:fp4-mx";
// Kernels of other engines where a table has them: sets that an engine's software names.
constexpr const char* kSglang = "sglang";
constexpr const char* kSglang14 = "ai-dynamo/aiconfigurator@095f58a, SGLang 0.5.14";
constexpr const char* kSglang16 = "ai-dynamo/aiconfigurator@095f58a, SGLang 0.5.16";
constexpr const char* kVllmDev = "ai-dynamo/aiconfigurator@095f58a, vLLM 0.1.dev19262";
constexpr const char* kTrt10 = "ai-dynamo/aiconfigurator@095f58a, TensorRT-LLM 1.0.0";
constexpr const char* kApex = "microsoft/apex_plus@8769096, cuBLAS";
#define AIC "aiconfigurator-kernels/"
#define AICD "aiconfigurator/data/"
#define VID "vidur/data/profiling/compute/"
#define LSS "LLMServingSim/profiler/perf/"
#define LS0 "LLMServingSim/profiler/v0/perf_models/"
}  // namespace

const std::vector<PublicProfile>& public_profiles() {
    // The first profile of a (device, kernel, format) is the one that models/data/kernels holds a fit of; further ones
    // are other collections of the same, for the spread between collections.
    static const std::vector<PublicProfile> kProfiles = {
        {"aic-gemm", AIC "a100_sxm/gemm/vllm/0.14.0/gemm_perf.csv.xz", "a100-sxm-80g", kVllm14, kApache},
        {"aic-gemm", AIC "a100_sxm/gemm/sglang/0.5.10/gemm_perf.csv.xz", "a100-sxm-80g", kSglang5, kApache},
        {"aic-gemm", AIC "h100_sxm/gemm/vllm/0.24.0/gemm_perf.csv.xz", "h100-sxm", kVllm24, kApache, 0, 0, 0, 0, 0, 0,
         1, kNotBlocks},
        {"aic-gemm", AICD "h100_sxm/gemm/vllm/0.19.0/gemm_perf.csv.xz", "h100-sxm", kVllm19, kApache},
        {"aic-gemm", AIC "h200_sxm/gemm/vllm/0.24.0/gemm_perf.csv.xz", "h200-sxm", kVllm24, kApache, 0, 0, 0, 0, 0, 0,
         1, kNotBlocks},
        {"aic-gemm", AICD "h200_sxm/gemm/vllm/0.19.0/gemm_perf.csv.xz", "h200-sxm", kVllm19, kApache},
        // Its fp8 rows are slower than its bf16 rows: products that fell back on 16 bits.
        {"aic-gemm", AICD "b200_sxm/gemm/vllm/0.19.0/gemm_perf.csv.xz", "b200-sxm", kVllm19, kApache, 0, 0, 0, 0, 0, 0,
         1, "bf16 fp4-nv"},
        // Its 8-bit products with one scale compute that scale in each call (12 us at least); engines do not.
        {"aic-gemm", AIC "b300_sxm/gemm/trtllm/1.3.0rc20/gemm_perf.csv.xz", "b300-sxm", kTrt, kApache, 0, 0, 0, 0, 0, 0,
         1, "bf16 fp4-nv fp8-block"},
        {"aic-gemm", AIC "gb300/gemm/vllm/0.24.0/gemm_perf.csv.xz", "gb300", kVllm24, kApache, 0, 0, 0, 0, 0, 0, 1,
         kNotBlocks},
        // 0.24 has 16-bit products of 16,384 rows at 40 % of the peak (median), where 0.19 of the same device, and B200, have 64 %, and
        // those in 4 bits from 1,024 rows on take 1.1 to 1.3 times as long; 0.19 has fp8 products slower than those in bf16, as on B200.
        {"aic-gemm", AICD "gb200/gemm/vllm/0.19.0/gemm_perf.csv.xz", "gb200", kVllm19, kApache, 0, 0, 0, 0, 0, 0, 1,
         "bf16 fp4-nv fp8-block"},
        {"aic-gemm", AIC "gb200/gemm/vllm/0.24.0/gemm_perf.csv.xz", "gb200", kVllm24, kApache, 0, 0, 0, 0, 0, 0, 1,
         kNotBlocks},
        {"aic-gemm", AIC "l40s/gemm/vllm/0.24.0/gemm_perf.csv.xz", "l40s", kVllm24, kApache, 0, 0, 0, 0, 0, 0, 1,
         kNotBlocks},
        {"aic-gemm", AIC "rtx_pro_6000_server/gemm/vllm/0.24.0/gemm_perf.csv.xz", "rtx-pro-6000", kVllm24, kApache, 0,
         0, 0, 0, 0, 0, 1, kNotBlocks},
        {"aic-gemm", AIC "b60/gemm/vllm/0.20.0/gemm_perf.csv.xz", "arc-pro-b60", kVllm20, kApache},
        {"aic-context", AIC "a100_sxm/attention/vllm/0.14.0/context_attention_perf.csv.xz", "a100-sxm-80g", kVllm14,
         kApache},
        {"aic-generation", AIC "a100_sxm/attention/vllm/0.14.0/generation_attention_perf.csv.xz", "a100-sxm-80g",
         kVllm14, kApache},
        {"aic-context", AIC "h100_sxm/attention/vllm/0.24.0/context_attention_perf.csv.xz", "h100-sxm", kVllm24,
         kApache},
        {"aic-generation", AIC "h100_sxm/attention/vllm/0.24.0/generation_attention_perf.csv.xz", "h100-sxm", kVllm24,
         kApache},
        {"aic-context", AIC "h200_sxm/attention/vllm/0.24.0/context_attention_perf.csv.xz", "h200-sxm", kVllm24,
         kApache},
        {"aic-generation", AIC "h200_sxm/attention/vllm/0.24.0/generation_attention_perf.csv.xz", "h200-sxm", kVllm24,
         kApache},
        {"aic-context", AIC "b200_sxm/attention/vllm/0.24.0/context_attention_perf.csv.xz", "b200-sxm", kVllm24,
         kApache},
        {"aic-generation", AIC "b200_sxm/attention/vllm/0.24.0/generation_attention_perf.csv.xz", "b200-sxm", kVllm24,
         kApache},
        {"aic-context", AICD "gb200/attention/vllm/0.19.0/context_attention_perf.csv.xz", "gb200", kVllm19, kApache},
        {"aic-generation", AICD "gb200/attention/vllm/0.19.0/generation_attention_perf.csv.xz", "gb200", kVllm19,
         kApache},
        {"aic-context", AIC "b300_sxm/attention/trtllm/1.3.0rc20/context_attention_perf.csv.xz", "b300-sxm", kTrt,
         kApache},
        {"aic-generation", AIC "b300_sxm/attention/trtllm/1.3.0rc20/generation_attention_perf.csv.xz", "b300-sxm", kTrt,
         kApache},
        {"aic-context", AIC "gb300/attention/vllm/0.24.0/context_attention_perf.csv.xz", "gb300", kVllm24, kApache},
        {"aic-generation", AIC "gb300/attention/vllm/0.24.0/generation_attention_perf.csv.xz", "gb300", kVllm24,
         kApache},
        {"aic-context", AIC "l40s/attention/vllm/0.24.0/context_attention_perf.csv.xz", "l40s", kVllm24, kApache},
        {"aic-generation", AIC "l40s/attention/vllm/0.24.0/generation_attention_perf.csv.xz", "l40s", kVllm24, kApache},
        {"aic-context", AICD "rtx_pro_6000_server/attention/vllm/0.19.0/context_attention_perf.csv.xz", "rtx-pro-6000",
         kVllm19, kApache},
        {"aic-generation", AICD "rtx_pro_6000_server/attention/vllm/0.19.0/generation_attention_perf.csv.xz",
         "rtx-pro-6000", kVllm19, kApache},
        {"aic-context", AIC "b60/attention/vllm/0.20.0/context_attention_perf.csv.xz", "arc-pro-b60", kVllm20, kApache},
        {"aic-generation", AIC "b60/attention/vllm/0.20.0/generation_attention_perf.csv.xz", "arc-pro-b60", kVllm20,
         kApache},
        {"aic-mla", AIC "h200_sxm/mla/trtllm/1.3.0rc20/context_mla_perf.csv", "h200-sxm", kTrt, kApache},
        {"aic-mla", AIC "h200_sxm/mla/trtllm/1.3.0rc20/generation_mla_perf.csv.xz", "h200-sxm", kTrt, kApache},
        {"aic-gemm", AIC "a100_sxm/gemm/sglang/0.5.10/gemm_perf.csv.xz", "a100-sxm-80g", kSglang5, kApache, 0, 0, 0, 0,
         0, 0, 1, "", "", "", kSglang},
        {"aic-context", AIC "a100_sxm/attention/sglang/0.5.10/context_attention_perf.csv.xz", "a100-sxm-80g", kSglang5,
         kApache, 0, 0, 0, 0, 0, 0, 1, "", "", "", kSglang},
        {"aic-generation", AIC "a100_sxm/attention/sglang/0.5.10/generation_attention_perf.csv.xz", "a100-sxm-80g",
         kSglang5, kApache, 0, 0, 0, 0, 0, 0, 1, "", "", "", kSglang},
        // Prompts of this table take 3.4 times those of TensorRT-LLM and vLLM, as much as absorbed projections have more arithmetic:
        // SGLang runs prompts with keys and values of every head (deepseek_v2.py), so that its decodes alone are taken.
        {"aic-mla", AIC "h200_sxm/mla/sglang/0.5.14/generation_mla_perf.csv.xz", "h200-sxm", kSglang14, kApache, 0, 0,
         0, 0, 0, 0, 1, "", "", "", kSglang},
        {"aic-mla", AIC "b200_sxm/mla/trtllm/1.3.0rc20/context_mla_perf.csv.xz", "b200-sxm", kTrt, kApache},
        {"aic-mla", AIC "b200_sxm/mla/trtllm/1.3.0rc20/generation_mla_perf.csv.xz", "b200-sxm", kTrt, kApache},
        {"aic-mla", AIC "b300_sxm/mla/trtllm/1.3.0rc20/context_mla_perf.csv.xz", "b300-sxm", kTrt, kApache},
        {"aic-mla", AIC "b300_sxm/mla/trtllm/1.3.0rc20/generation_mla_perf.csv.xz", "b300-sxm", kTrt, kApache},
        {"aic-mla", AIC "gb300/mla/trtllm/1.3.0rc20/context_mla_perf.csv.xz", "gb300", kTrt, kApache},
        {"aic-mla", AIC "gb300/mla/trtllm/1.3.0rc20/generation_mla_perf.csv.xz", "gb300", kTrt, kApache},
        // Of GB200 there are SGLang's alone, which call TensorRT-LLM's kernels on Blackwell (`trtllm_mla`), prompts with all heads.
        {"aic-mla", AIC "gb200/mla/sglang/0.5.14/context_mla_perf.csv.xz", "gb200", kSglang14, kApache},
        {"aic-mla", AIC "gb200/mla/sglang/0.5.14/generation_mla_perf.csv.xz", "gb200", kSglang14, kApache},
        {"aic-mla", AIC "b300_sxm/mla/sglang/0.5.14/context_mla_perf.csv.xz", "b300-sxm", kSglang14, kApache, 0, 0, 0,
         0, 0, 0, 1, "", "", "", kSglang},
        {"aic-mla", AIC "b300_sxm/mla/sglang/0.5.14/generation_mla_perf.csv.xz", "b300-sxm", kSglang14, kApache, 0, 0,
         0, 0, 0, 0, 1, "", "", "", kSglang},
        // L40S: rows with an 8-bit cache take what those with 16 bits take (medians 84.8 and 84.7 us), so that the cache was not of 8 bits.
        {"aic-mla", AIC "l40s/mla/trtllm/1.0.0/context_mla_perf.csv.xz", "l40s", kTrt10, kApache, 0, 0, 0, 0, 0, 0, 1,
         "bf16"},
        {"aic-mla", AIC "l40s/mla/trtllm/1.0.0/generation_mla_perf.csv.xz", "l40s", kTrt10, kApache, 0, 0, 0, 0, 0, 0,
         1, "bf16"},
        {"aic-mla", AIC "rtx_pro_6000_server/mla/trtllm/1.3.0rc20/context_mla_perf.csv.xz", "rtx-pro-6000", kTrt,
         kApache},
        {"aic-mla", AIC "rtx_pro_6000_server/mla/trtllm/1.3.0rc20/generation_mla_perf.csv.xz", "rtx-pro-6000", kTrt,
         kApache},
        // Elsewhere than on data centres' Blackwell its prompts are absorbed in all tables, as on H200.
        {"aic-mla", AIC "h100_sxm/mla/sglang/0.5.14/generation_mla_perf.csv.xz", "h100-sxm", kSglang14, kApache, 0, 0,
         0, 0, 0, 0, 1, "", "", "", kSglang},
        {"aic-mla", AIC "l40s/mla/sglang/0.5.14/generation_mla_perf.csv.xz", "l40s", kSglang14, kApache, 0, 0, 0, 0, 0,
         0, 1, "", "", "", kSglang},
        {"aic-mla", AIC "rtx_pro_6000_server/mla/sglang/0.5.14/generation_mla_perf.csv.xz", "rtx-pro-6000", kSglang14,
         kApache, 0, 0, 0, 0, 0, 0, 1, "", "", "", kSglang},
        // Gated delta nets and Kimi delta attention. Tables of an older sweep (SGLang 0.5.10 of A100, TensorRT-LLM) have convolutions at 2.1 to
        // 2.7 times and updates of 32-bit states at 1.03 to 1.1 times the memory's rate: of fewer channels and narrower states than they say.
        {"aic-delta", AIC "h100_sxm/linear_attention/vllm/0.24.0/gdn_perf.csv.xz", "h100-sxm", kVllm24, kApache},
        {"aic-delta", AIC "h200_sxm/linear_attention/vllm/0.24.0/gdn_perf.csv.xz", "h200-sxm", kVllm24, kApache},
        {"aic-delta", AIC "b300_sxm/linear_attention/vllm/0.24.0/gdn_perf.csv.xz", "b300-sxm", kVllm24, kApache},
        {"aic-delta", AIC "gb200/linear_attention/vllm/0.24.0/gdn_perf.csv.xz", "gb200", kVllm24, kApache},
        {"aic-delta", AIC "gb300/linear_attention/vllm/0.24.0/gdn_perf.csv.xz", "gb300", kVllm24, kApache},
        {"aic-delta", AIC "b200_sxm/linear_attention/sglang/0.5.14/gdn_perf.csv.xz", "b200-sxm", kSglang14, kApache},
        {"aic-delta", AIC "l40s/linear_attention/sglang/0.5.14/gdn_perf.csv.xz", "l40s", kSglang14, kApache},
        {"aic-delta", AIC "rtx_pro_6000_server/linear_attention/sglang/0.5.14/gdn_perf.csv.xz", "rtx-pro-6000",
         kSglang14, kApache},
        {"aic-delta", AIC "h100_sxm/linear_attention/sglang/0.5.14/gdn_perf.csv.xz", "h100-sxm", kSglang14, kApache, 0,
         0, 0, 0, 0, 0, 1, "", "", "", kSglang},
        {"aic-delta", AIC "b300_sxm/linear_attention/sglang/0.5.14/gdn_perf.csv.xz", "b300-sxm", kSglang14, kApache, 0,
         0, 0, 0, 0, 0, 1, "", "", "", kSglang},
        {"aic-delta", AIC "gb200/linear_attention/sglang/0.5.14/gdn_perf.csv.xz", "gb200", kSglang14, kApache, 0, 0, 0,
         0, 0, 0, 1, "", "", "", kSglang},
        {"aic-delta", AIC "h100_sxm/kda/vllm/0.1.dev19262/kda_perf.csv.xz", "h100-sxm", kVllmDev, kApache},
        {"aic-delta", AIC "h200_sxm/kda/vllm/0.1.dev19262/kda_perf.csv.xz", "h200-sxm", kVllmDev, kApache},
        {"aic-delta", AIC "b200_sxm/kda/vllm/0.1.dev19262/kda_perf.csv.xz", "b200-sxm", kVllmDev, kApache},
        {"aic-delta", AIC "b300_sxm/kda/vllm/0.1.dev19262/kda_perf.csv.xz", "b300-sxm", kVllmDev, kApache},
        {"aic-delta", AIC "gb200/kda/vllm/0.1.dev19262/kda_perf.csv.xz", "gb200", kVllmDev, kApache},
        {"aic-delta", AIC "l40s/kda/vllm/0.1.dev19262/kda_perf.csv.xz", "l40s", kVllmDev, kApache},
        {"aic-delta", AIC "rtx_pro_6000_server/kda/vllm/0.1.dev19262/kda_perf.csv.xz", "rtx-pro-6000", kVllmDev,
         kApache},
        {"aic-delta", AIC "gb300/kda/sglang/0.5.16/kda_perf.csv.xz", "gb300", kSglang16, kApache},
        {"aic-delta", AIC "h200_sxm/kda/sglang/0.5.16/kda_perf.csv.xz", "h200-sxm", kSglang16, kApache, 0, 0, 0, 0, 0,
         0, 1, "", "", "", kSglang},
        {"aic-delta", AIC "b200_sxm/kda/sglang/0.5.16/kda_perf.csv.xz", "b200-sxm", kSglang16, kApache, 0, 0, 0, 0, 0,
         0, 1, "", "", "", kSglang},
        {"aic-delta", AIC "b300_sxm/kda/sglang/0.5.16/kda_perf.csv.xz", "b300-sxm", kSglang16, kApache, 0, 0, 0, 0, 0,
         0, 1, "", "", "", kSglang},
        {"aic-sparse", AIC "h100_sxm/sparse_attention/sglang/0.5.14/glm5_mqa_logits_module_perf.csv.xz", "h100-sxm",
         kSglang14, kApache},
        {"aic-sparse", AIC "h100_sxm/sparse_attention/sglang/0.5.14/dsv4_paged_mqa_logits_module_perf.csv.xz",
         "h100-sxm", kSglang14, kApache},
        {"aic-sparse", AIC "h100_sxm/sparse_attention/sglang/0.5.14/glm5_topk_module_perf.csv.xz", "h100-sxm",
         kSglang14, kApache},
        {"aic-sparse", AIC "h100_sxm/sparse_attention/sglang/0.5.14/glm5_dsa_attn_module_perf.csv.xz", "h100-sxm",
         kSglang14, kApache},
        {"aic-sparse", AIC "h200_sxm/sparse_attention/sglang/0.5.14/glm5_mqa_logits_module_perf.csv.xz", "h200-sxm",
         kSglang14, kApache},
        {"aic-sparse", AIC "h200_sxm/sparse_attention/sglang/0.5.14/dsv4_paged_mqa_logits_module_perf.csv.xz",
         "h200-sxm", kSglang14, kApache},
        {"aic-sparse", AIC "h200_sxm/sparse_attention/sglang/0.5.14/glm5_topk_module_perf.csv.xz", "h200-sxm",
         kSglang14, kApache},
        {"aic-sparse", AIC "h200_sxm/sparse_attention/sglang/0.5.14/glm5_dsa_attn_module_perf.csv.xz", "h200-sxm",
         kSglang14, kApache},
        {"aic-sparse", AIC "b200_sxm/sparse_attention/sglang/0.5.14/glm5_mqa_logits_module_perf.csv.xz", "b200-sxm",
         kSglang14, kApache},
        {"aic-sparse", AIC "b200_sxm/sparse_attention/sglang/0.5.14/dsv4_paged_mqa_logits_module_perf.csv.xz",
         "b200-sxm", kSglang14, kApache},
        {"aic-sparse", AIC "b200_sxm/sparse_attention/sglang/0.5.14/glm5_topk_module_perf.csv.xz", "b200-sxm",
         kSglang14, kApache},
        {"aic-sparse", AIC "b200_sxm/sparse_attention/sglang/0.5.14/glm5_dsa_attn_module_perf.csv.xz", "b200-sxm",
         kSglang14, kApache},
        {"aic-sparse", AIC "b300_sxm/sparse_attention/sglang/0.5.14/glm5_mqa_logits_module_perf.csv.xz", "b300-sxm",
         kSglang14, kApache},
        {"aic-sparse", AIC "b300_sxm/sparse_attention/sglang/0.5.14/dsv4_paged_mqa_logits_module_perf.csv.xz",
         "b300-sxm", kSglang14, kApache},
        {"aic-sparse", AIC "b300_sxm/sparse_attention/sglang/0.5.14/glm5_topk_module_perf.csv.xz", "b300-sxm",
         kSglang14, kApache},
        {"aic-sparse", AIC "b300_sxm/sparse_attention/sglang/0.5.14/glm5_dsa_attn_module_perf.csv.xz", "b300-sxm",
         kSglang14, kApache},
        {"aic-sparse", AIC "gb200/sparse_attention/vllm/0.24.0/dsv4_paged_mqa_logits_module_perf.csv.xz", "gb200",
         kVllm24, kApache},
        {"aic-sparse", AIC "gb300/sparse_attention/vllm/0.24.0/dsv4_paged_mqa_logits_module_perf.csv.xz", "gb300",
         kVllm24, kApache},
        {"aic-moe", AIC "a100_sxm/moe/sglang/0.5.10/moe_perf.csv.xz", "a100-sxm-80g", kSglang5, kApache},
        {"aic-moe", AIC "h100_sxm/moe/vllm/0.24.0/moe_perf.csv.xz", "h100-sxm", kVllm24, kApache, 0, 0, 0, 0, 0, 0, 1,
         kNotTensorwise, kNemotron, kGrouped},
        {"aic-moe", AICD "h100_sxm/moe/vllm/0.19.0/moe_perf.csv.xz", "h100-sxm", kVllm19, kApache, 0, 0, 0, 0, 0, 0, 1,
         kTensorwise},
        {"aic-moe", AIC "h200_sxm/moe/vllm/0.24.0/moe_perf.csv.xz", "h200-sxm", kVllm24, kApache, 0, 0, 0, 0, 0, 0, 1,
         kNotTensorwise, kNemotron, kGrouped},
        {"aic-moe", AICD "h200_sxm/moe/vllm/0.19.0/moe_perf.csv.xz", "h200-sxm", kVllm19, kApache, 0, 0, 0, 0, 0, 0, 1,
         kTensorwise},
        {"aic-moe", AIC "b200_sxm/moe/vllm/0.24.0/moe_perf.csv.xz", "b200-sxm", kVllm24, kApache, 0, 0, 0, 0, 0, 0, 1,
         "", kNemotron, kGrouped},
        {"aic-moe", AIC "b300_sxm/moe/vllm/0.24.0/moe_perf.csv.xz", "b300-sxm", kVllm24, kApache, 0, 0, 0, 0, 0, 0, 1,
         "", kNemotron, kGrouped},
        // GB200's of 0.24 take 0.93 to 0.96 of B200's time; GB200 goes on borrowing B200's, as engines on it were served by other libraries,
        // whose runs they would price too fast (see README of validation/compute).
        {"aic-moe", AIC "gb300/moe/vllm/0.24.0/moe_perf.csv.xz", "gb300", kVllm24, kApache, 0, 0, 0, 0, 0, 0, 1, "",
         kNemotron, kGrouped},
        {"aic-moe", AICD "h100_sxm/moe/vllm/0.19.0/moe_perf.csv.xz", "h100-sxm", kVllm19, kApache, 0, 0, 0, 0, 0, 0, 1,
         kBlocks, "", "", kTriton},
        {"aic-moe", AICD "h200_sxm/moe/vllm/0.19.0/moe_perf.csv.xz", "h200-sxm", kVllm19, kApache, 0, 0, 0, 0, 0, 0, 1,
         kBlocks, "", "", kTriton},
        {"aic-moe", AICD "rtx_pro_6000_server/moe/vllm/0.19.0/moe_perf.csv.xz", "rtx-pro-6000", kVllm19, kApache},
        {"vidur-mlp", VID "a100/meta-llama/Meta-Llama-3-70B/mlp.csv.xz", "a100-sxm-80g", kVidur, kMit},
        {"vidur-mlp", VID "a100/meta-llama/Llama-2-70b-hf/mlp.csv.xz", "a100-sxm-80g", kVidur, kMit},
        {"vidur-mlp", VID "a100/meta-llama/Llama-2-7b-hf/mlp.csv.xz", "a100-sxm-80g", kVidur, kMit},
        {"vidur-mlp", VID "a100/Qwen/Qwen-72B/mlp.csv.xz", "a100-sxm-80g", kVidur, kMit},
        {"vidur-mlp", VID "a100/internlm/internlm-20b/mlp.csv.xz", "a100-sxm-80g", kVidur, kMit},
        {"vidur-mlp", VID "h100/meta-llama/Llama-2-70b-hf/mlp.csv.xz", "h100-sxm", kVidur, kMit},
        {"vidur-mlp", VID "h100/meta-llama/Llama-2-7b-hf/mlp.csv.xz", "h100-sxm", kVidur, kMit},
        {"vidur-mlp", VID "h100/Qwen/Qwen-72B/mlp.csv.xz", "h100-sxm", kVidur, kMit},
        {"vidur-mlp", VID "h100/internlm/internlm-20b/mlp.csv.xz", "h100-sxm", kVidur, kMit},
        {"vidur-mlp", VID "a40/meta-llama/Llama-2-70b-hf/mlp.csv.xz", "a40", kVidur, kMit},
        {"vidur-mlp", VID "a40/meta-llama/Llama-2-7b-hf/mlp.csv.xz", "a40", kVidur, kMit},
        {"vidur-mlp", VID "a40/Qwen/Qwen-72B/mlp.csv.xz", "a40", kVidur, kMit},
        {"vidur-mlp", VID "a40/internlm/internlm-20b/mlp.csv.xz", "a40", kVidur, kMit},
        {"vidur-mlp", VID "a40/codellama/CodeLlama-34b-Instruct-hf/mlp.csv.xz", "a40", kVidur, kMit},
        {"vidur-attention", "vidur/history/a100_attention.csv@e2d00e9.xz", "a100-sxm-80g", kVidurOld, kMit},
        {"layers", LSS "RTX4090/meta-llama/Llama-3.1-8B/bf16/tp1/dense.csv", "rtx-4090", kLayers, kMit, 32, 8, 128,
         4096, 14336, 128256},
        {"layers", LSS "RTX4090/meta-llama/Llama-3.1-8B/bf16/tp1/per_sequence.csv", "rtx-4090", kLayers, kMit, 32, 8,
         128, 4096, 14336, 128256},
        {"layer-attention", LSS "RTX4090/meta-llama/Llama-3.1-8B/bf16/tp1/attention.csv.xz", "rtx-4090", kLayers, kMit,
         32, 8, 128, 4096, 14336, 128256},
        {"layers", LSS "RTXPRO6000/Qwen/Qwen3-32B/bf16/tp1/dense.csv", "rtx-pro-6000", kLayers, kMit, 64, 8, 128, 5120,
         25600, 151936},
        {"layers", LSS "RTXPRO6000/meta-llama/Llama-3.1-8B/bf16/tp1/dense.csv", "rtx-pro-6000", kLayers, kMit, 32, 8,
         128, 4096, 14336, 128256},
        {"layer-attention", LSS "RTXPRO6000/Qwen/Qwen3-32B/bf16/tp1/attention.csv.xz", "rtx-pro-6000", kLayers, kMit,
         64, 8, 128, 5120, 25600, 151936},
        {"layers", LS0 "A6000/meta-llama/Llama-3.1-8B/tp1/layers.csv.xz", "a6000", kLayersOld, kMit, 32, 8, 128, 4096,
         14336, 128256},
        {"layers", LS0 "A6000/meta-llama/Llama-3.1-8B/tp2/layers.csv.xz", "a6000", kLayersOld, kMit, 32, 8, 128, 4096,
         14336, 128256, 2},
        {"layers", LS0 "RTX3090/meta-llama/Llama-3.1-8B/tp1/layers.csv.xz", "rtx-3090", kLayersOld, kMit, 32, 8, 128,
         4096, 14336, 128256},
        {"layers", LS0 "RTX3090/meta-llama/Llama-3.1-8B/tp2/layers.csv.xz", "rtx-3090", kLayersOld, kMit, 32, 8, 128,
         4096, 14336, 128256, 2},
        {"layers", LS0 "TPU-v6e-1/meta-llama/Llama-3.1-8B/tp1/layers.csv.xz", "tpu-v6e", kLayersOld, kMit, 32, 8, 128,
         4096, 14336, 128256},
        {"llmcompass-gemm", "LLMCompass/ae/figure5/ab/real_hardware/matmul_MI210.csv", "mi210", kCompass, kBsd},
        {"llmcompass-gemm", "LLMCompass/ae/figure5/ab/real_hardware/matmul_A100.csv", "a100-sxm-80g", kCompass, kBsd},
        {"apex-gemm", "apex_plus/profile/comp/V100-PCIE-16GB/gemm_0.csv.xz", "v100-pcie-16g", kApex, kMit},
    };
    return kProfiles;
}

const std::vector<HeldProfile>& held_profiles() {
    static const std::vector<HeldProfile> kProfiles = {
        {{"aic-gemm", AIC "h200_sxm/gemm/vllm/0.22.0/gemm_perf.csv.xz", "h200-sxm", kVllm22, kApache},
         {"aic-gemm", AIC "h200_sxm/gemm/vllm/0.24.0/gemm_perf.csv.xz", "h200-sxm", kVllm24, kApache}},
        {{"aic-gemm", AIC "b200_sxm/gemm/vllm/0.22.0/gemm_perf.csv.xz", "b200-sxm", kVllm22, kApache},
         {"aic-gemm", AICD "b200_sxm/gemm/vllm/0.19.0/gemm_perf.csv.xz", "b200-sxm", kVllm19, kApache, 0, 0, 0, 0, 0, 0,
          1, "bf16 fp4-nv"}},
    };
    return kProfiles;
}

}  // namespace orrery::models
