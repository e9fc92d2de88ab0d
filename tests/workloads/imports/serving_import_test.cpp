// Command lines of serving engines as people write them: each becomes a scenario that runs, or is refused with what is missing.

#include "tests/support/support.hpp"
#include "tools/driver/model_cache.hpp"
#include "tools/driver/scenario_trial.hpp"
#include "workloads/imports/flag_table.hpp"
#include "workloads/imports/importer.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

using namespace orrery;
using namespace orrery::test;

namespace {

struct Line {
    const char* format;
    const char* text;
    std::vector<const char*> keys;  ///< that stand in the scenario; of a refusal: in its message
};

Imported import_line(const std::string& format, const std::string& text,
                     std::map<std::string, std::string> options = {}) {
    static ModelCache models(data().read_once());
    return import_file(
        format,
        ImportInput::of_bytes("input", text, std::move(options)).with(models.data(), [](const std::string& scenario) {
            return trial_problem(scenario, models);
        }));
}

bool holds(const ImportNotes::Counts& notes, const std::string& part) {
    return std::any_of(notes.begin(), notes.end(),
                       [&](const auto& note) { return note.first.find(part) != std::string::npos; });
}

void check_runs(const std::vector<Line>& lines) {
    for (const Line& line : lines) {
        CAPTURE(line.text);
        std::string said;
        Imported out;
        try {
            out = import_line(line.format, line.text);
        } catch (const Error& error) {
            said = error.what();
        }
        CHECK(said == "");
        CHECK(out.use == "'orrery run' as it is");
        for (const char* key : line.keys) {
            CHECK_MESSAGE(out.text.find(key) != std::string::npos, std::string(key) << "\n" << out.text);
        }
        CHECK_MESSAGE(!holds(out.notes.left_out(), "not understood"), out.text);
    }
}

}  // namespace

TEST_CASE("command lines of serving engines become scenarios that run") {
    const std::vector<Line> lines = {
        // One server without a load.
        {"vllm-args",
         "vllm serve Qwen/Qwen3-8B",
         {"model: Qwen/Qwen3-8B", "gpus: 1", "rate: 1", "software: vllm-0.11"}},
        {"vllm-args",
         "$ vllm serve openai/gpt-oss-20b --max-model-len 32k --port $PORT",
         {"max_context: 32000", "longest: 32000"}},
        {"vllm-args", "vllm serve openai/gpt-oss-20b --max-model-len 32K", {"max_context: 32768"}},
        {"vllm-args",
         "vllm serve google/gemma-3-27b-it --max-model-len auto --max-num-seqs=64",
         {"model: google/gemma-3-27b-it", "max_sequences: 64"}},
        {"vllm-args", "vllm serve /mnt/weights --served-model-name Qwen/Qwen3-8B-FP8", {"model: Qwen/Qwen3-8B-FP8"}},
        {"vllm-args", "vllm serve /mnt/Qwen3-8B", {"model: /mnt/Qwen3-8B"}},
        // Precision: by the checkpoint, by a flag, by both.
        {"vllm-args", "vllm serve Qwen/Qwen3-32B-AWQ --quantization awq_marlin", {"model: Qwen/Qwen3-32B-AWQ"}},
        {"vllm-args", "vllm serve Qwen/Qwen3-32B -q fp8 --kv-cache-dtype fp8_e4m3", {"weights: fp8", "precision: fp8"}},
        {"vllm-args", "vllm serve Qwen/Qwen3-30B-A3B --quantization modelopt_fp4", {"weights: bf16", "experts: fp4"}},
        {"vllm-args", "vllm serve Qwen/Qwen3-4B --dtype half", {"weights: fp16", "precision: fp16"}},
        {"vllm-args", "vllm serve nvidia/DeepSeek-R1-FP4 -tp 8", {"node: dgx-b200"}},
        // Arrangement.
        {"vllm-args",
         "vllm serve deepseek-ai/DeepSeek-V3 -dp 8 --enable-expert-parallel",
         {"node: dgx-h200", "replicas: 1", "tensor: 1", "groups: 8", "expert: 8", "token_budget: 65536"}},
        {"vllm-args",
         "VLLM_ALL2ALL_BACKEND=deepep_low_latency vllm serve zai-org/GLM-4.5-Air -tp 2 -dp 4 -ep",
         {"tensor: 2", "groups: 4", "expert: 8", "dispatch: all-to-all"}},
        {"vllm-args",
         "vllm serve zai-org/GLM-4.5-Air-FP8 -tp 2 --data-parallel-size 2",
         {"replicas: 1", "tensor: 2", "groups: 2"}},
        {"vllm-args",
         "vllm serve meta-llama/Llama-3.1-8B-Instruct --data_parallel_size 4",
         {"replicas: 4", "tensor: 1"}},
        {"vllm-args",
         "vllm serve moonshotai/Kimi-K2-Instruct -tp 8 -pp 2 --max-num-seqs 1",
         {"nodes: 2", "tensor: 8", "pipeline: 2", "max_sequences: 1"}},
        {"vllm-args", "vllm serve Qwen/Qwen3-8B --attention-backend ROCM_AITER_FA", {"preset: mi300x-8, gpus: 1"}},
        // Nodes: one that has room for a sequence of the whole context, or the one that a comment names.
        {"vllm-args",
         "vllm serve Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8 -dp 8 -ep --max-model-len 131072",
         {"node: dgx-h200"}},
        {"vllm-args",
         "vllm serve Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8 -dp 8 -ep --max-model-len 8192",
         {"node: dgx-h200"}},
        {"vllm-args", "# 8xH20, 141 GB\nvllm serve deepseek-ai/DeepSeek-V3 -tp 8", {"node: hgx-h20-141g"}},
        {"vllm-args", "# 8xH20\nvllm serve Qwen/Qwen3-8B -tp 8", {"node: hgx-h20\n"}},
        {"vllm-args", "# H100 or H200\nvllm serve Qwen/Qwen3-8B  # not on A100", {"preset: dgx-h100"}},
        // Images of other registries, and pods of their own.
        {"vllm-args",
         "podman run -d --name vllm -p 8000:8000 -v /opt/vllm:/cache registry.redhat.io/rhaiis/vllm-cuda-rhel9:3.2.1 "
         "--model Qwen/Qwen3-8B --tensor-parallel-size 2",
         {"tensor: 2", "software: vllm-0.11"}},
        {"vllm-args",
         "kubectl run vllm --image=vllm/vllm-openai:v0.16.0 --limits=nvidia.com/gpu=1 -- --model Qwen/Qwen3-8B",
         {"model: Qwen/Qwen3-8B", "software: vllm-0.16"}},
        // Engines.
        // Keys of the engine stay where the first node tried has no room.
        {"vllm-args",
         "vllm serve deepseek-ai/DeepSeek-V3 -tp 8 --block-size 32 --num-gpu-blocks-override 16384",
         {"node: dgx-h200", "block: 32", "blocks: 16384"}},
        // Keys and values as checkpoints of ModelOpt say, where the engine asks them.
        {"trtllm-args", "trtllm-serve nvidia/Llama-3.1-8B-Instruct-FP8", {"kv: {precision: fp8"}},
        {"vllm-args",
         "docker run vllm/vllm-openai:v0.16.0 --model nvidia/Llama-3.1-8B-Instruct-FP8",
         {"kv: {precision: fp8"}},
        {"vllm-args", "vllm serve nvidia/Llama-3.1-8B-Instruct-FP8", {"kv: {memory: 0.9"}},
        {"sglang-args",
         "python -m sglang.launch_server --model moonshotai/Kimi-K2.5 --tp 8 --quantization w4afp8",
         {"model: moonshotai/Kimi-K2.5", "kv: {memory:"}},
        // A model that drafts takes the time of as many layers as have its weights.
        {"vllm-args",
         "vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 4 --speculative-model meta-llama/Llama-3.1-8B-Instruct "
         "--num-speculative-tokens 5",
         {"speculation: {tokens: 5, layers: 8}"}},
        {"vllm-args",
         "vllm serve Qwen/Qwen3-8B --enforce-eager --no-enable-prefix-caching",
         {"compiled: false, graph_sequences: 0, graph_tokens: 0", "kv: {memory: 0.9}"}},
        {"vllm-args",
         "vllm serve Qwen/Qwen3-8B -O3 --compilation-config '{\"cudagraph_mode\": \"FULL_DECODE_ONLY\"}'",
         {"software: {preset: vllm-0.11, graph_tokens: 0}"}},
        {"vllm-args", "vllm serve Qwen/Qwen3-8B -cc.cudagraph_mode=NONE", {"graph_sequences: 0"}},
        {"vllm-args",
         "VLLM_USE_V1=0 vllm serve Qwen/Qwen3-8B --max-model-len 8192",
         {"kind: vllm-v0, token_budget: 8192, max_sequences: 256", "kv: {memory: 0.9}", "software: vllm-0.6"}},
        {"vllm-args",
         "pip install vllm==0.6.3\nvllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 8192",
         {"kind: vllm-v0", "software: vllm-0.6"}},
        {"vllm-args",
         "docker pull vllm/vllm-openai:v0.9.1\ndocker run vllm/vllm-openai:v0.9.1 --model Qwen/Qwen3-8B",
         {"kind: chunked-prefill", "software: {preset: vllm-0.11, overlap: false}"}},
        {"vllm-args",
         "docker run --gpus all -p 8000:8000 -e HF_TOKEN=x vllm/vllm-openai:v0.16.0 --model Qwen/Qwen3-8B -tp 2",
         {"tensor: 2", "software: vllm-0.16"}},
        {"vllm-args",
         "python3 -m vllm.entrypoints.openai.api_server \\\n  --model Qwen/Qwen3-8B \\\n  --tensor-parallel 2  # both",
         {"tensor: 2"}},
        {"vllm-args",
         "vllm serve Qwen/Qwen3-Next-80B-A3B-Instruct -tp 4 --speculative-config.num_speculative_tokens 2",
         {"speculation: {tokens: 2}"}},
        {"vllm-args",
         "vllm serve moonshotai/Kimi-K2-Thinking -tp 8 --speculative-config '{\"model\": <draft>, "
         "\"num_speculative_tokens\": 3}'",
         {"speculation: {tokens: 3}"}},
        {"vllm-args",
         "vllm serve Qwen/Qwen3-8B --enable-lora --max-lora-rank 32 --max-loras 4",
         {"lora: {rank: 32, slots: 4}"}},
        // Version 0 by flags that it alone has.
        {"vllm-args",
         "vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 8192 --use-v2-block-manager --num-scheduler-steps 8",
         {"kind: vllm-v0", "software: vllm-0.6"}},
        {"vllm-args", "VLLM_USE_V1=1 vllm serve Qwen/Qwen2.5-7B-Instruct --use-v2-block-manager", {"vllm-0.11"}},
        // Versions of images that are not the engine's own, and of one that says it in its tag.
        {"vllm-args",
         "docker run nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.5.1 python3 -m dynamo.vllm --model Qwen/Qwen3-8B",
         {"kind: chunked-prefill", "software: dynamo-vllm-0.19"}},
        {"vllm-args", "docker run lmcache/vllm-openai:v0.3.5 --model Qwen/Qwen3-8B", {"vllm-0.11"}},
        {"vllm-args",
         "docker run rocm/vllm:rocm6.4.1_vllm_0.6.3_20250812 vllm serve Qwen/Qwen3-8B",
         {"software: vllm-0.6"}},
        // Caches in host memory: of all ranks, of each, in bytes.
        {"vllm-args", "vllm serve Qwen/Qwen3-8B -tp 2 --kv-offloading-size 64", {"prefix: {host: 64 GiB}"}},
        {"vllm-args",
         "LMCACHE_MAX_LOCAL_CPU_SIZE=20 vllm serve Qwen/Qwen3-8B -tp 2 --kv-transfer-config "
         "'{\"kv_connector\": \"LMCacheConnectorV1\", \"kv_role\": \"kv_both\"}'",
         {"prefix: {host: 40 GiB}"}},
        {"sglang-args",
         "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 2 --enable-hierarchical-cache --hicache-size "
         "50 --dsa-prefill-backend fa3 --prefill-max-requests 8",
         {"prefix: {host: 93.1323 GiB}"}},
        {"trtllm-args",
         "cat > o.yml <<EOF\nkv_cache_config: {host_cache_size: 34359738368}\nEOF\n"
         "trtllm-serve Qwen/Qwen3-8B --tp_size 2 --extra_llm_api_options o.yml",
         {"prefix: {host: 64 GiB}"}},
        // Scripts in Python: generate() takes all prompts at once, a server does not.
        {"vllm-args",
         "from vllm import LLM, SamplingParams\nprompts = [\"Hello\"] * 256\n"
         "llm = LLM(model=\"Qwen/Qwen3-8B\", tensor_parallel_size=2)\n"
         "out = llm.generate(prompts, SamplingParams(temperature=0.8, max_tokens=512))\n",
         {"arrivals: at-once", "count: 256", "output: {kind: fixed, mean: 512}", "token_budget: 16384", "tensor: 2"}},
        {"vllm-args",
         "args = AsyncEngineArgs(model='Qwen/Qwen3-8B')\nengine = AsyncLLMEngine.from_engine_args(args)\n",
         {"rate: 1", "token_budget: 8192"}},
        {"sglang-args",
         "import sglang as sgl\nllm = sgl.Engine(model_path=\"Qwen/Qwen3-8B\", tp_size=2)\n"
         "llm.generate(prompts, {\"temperature\": 0, \"max_new_tokens\": 64})\n",
         {"arrivals: at-once", "output: {kind: fixed, mean: 64}"}},
        // One file says both phases.
        {"trtllm-args",
         "cat > d.yaml <<EOF\nhostname: localhost\nport: 8000\nmodel: Qwen/Qwen3-8B\nfree_gpu_memory_fraction: 0.8\n"
         "context_servers: {num_instances: 2, tensor_parallel_size: 1, max_num_tokens: 4096, urls: [\"a:1\", "
         "\"a:2\"]}\n"
         "generation_servers: {num_instances: 1, tensor_parallel_size: 2, max_batch_size: 128, urls: [\"a:3\"]}\nEOF\n"
         "trtllm-serve disaggregated -c d.yaml",
         {"prefill: {replicas: 2, tensor: 1, scheduler: {kind: in-flight, token_budget: 4096",
          "decode: {replicas: 1, tensor: 2", "max_sequences: 128", "memory: 0.8"}},
        // Tasks of SkyPilot and applications of Ray Serve.
        {"vllm-args",
         "resources: {accelerators: H100:4}\nenvs: {MODEL: Qwen/Qwen2.5-72B-Instruct}\nsetup: |\n  pip install "
         "vllm==0.6.4\nrun: |\n  vllm serve $MODEL --tensor-parallel-size $SKYPILOT_NUM_GPUS_PER_NODE\n",
         {"model: Qwen/Qwen2.5-72B-Instruct", "tensor: 4", "software: vllm-0.6"}},
        {"vllm-args",
         "applications:\n- name: llm\n  args:\n    llm_configs:\n    - model_loading_config: {model_id: q, "
         "model_source: "
         "Qwen/Qwen3-8B}\n      deployment_config: {autoscaling_config: {min_replicas: 2, max_replicas: 2}}\n      "
         "engine_kwargs: {tensor_parallel_size: 2, max_model_len: 16384, enable_prefix_caching: false}\n",
         {"model: Qwen/Qwen3-8B", "replicas: 2", "tensor: 2", "max_context: 16384", "kv: {memory: 0.9}"}},
        {"trtllm-args", "trtllm-bench -m Qwen/Qwen3-8B latency --dataset d.txt --concurrency 1", {"clients: 1"}},
        // A hybrid of state-space, attention and feed-forward layers.
        {"vllm-args", "vllm serve nvidia/NVIDIA-Nemotron-Nano-9B-v2 --mamba-ssm-cache-dtype float32", {"gpus: 1"}},
        // Loads.
        {"vllm-args",
         "vllm serve Qwen/Qwen3-8B --served-model-name q\nvllm bench serve --model q --dataset-name random "
         "--random-input 2048 "
         "--random-output 512 --max-concurrency 32 --num-prompt 64",
         {"arrivals: closed", "clients: 32", "count: 64", "prompt: {kind: fixed, mean: 2048}",
          "output: {kind: fixed, mean: 512}"}},
        {"vllm-args",
         "vllm serve Qwen/Qwen3-8B &\nvllm bench serve --model Qwen/Qwen3-8B --request-rate inf --dataset-name sonnet",
         {"arrivals: at-once", "count: 1000", "mean: 350", "common: 200"}},
        {"vllm-args",
         "vllm serve Qwen/Qwen3-8B\nvllm bench serve --model Qwen/Qwen3-8B --request-rate 5 --burstiness 4 "
         "--dataset-name "
         "sharegpt --num-prompts 50 --goodput ttft:500 tpot:40",
         {"arrivals: gamma", "burstiness: 0.5", "rate: 5", "lognormal, mean: 215", "ttft: 500 ms", "tpot: 40 ms"}},
        {"vllm-args",
         "vllm serve Qwen/Qwen3-8B\nvllm bench serve --model Qwen/Qwen3-8B --request-rate 0.1 --max-concurrency 100 "
         "--random-input-len 1000 --random-output-len 100 --random-range-ratio 0.2 --random-prefix-len 500",
         {"rate: 0.1", "kind: uniform, mean: 1000, spread: 0.2", "common: 500"}},
        {"vllm-args",
         "vllm bench throughput --model Qwen/Qwen3-8B --input-len 512 --output-len 64 --num-prompts 200 -tp 2",
         {"arrivals: at-once", "tensor: 2", "count: 200", "token_budget: 16384"}},
        {"vllm-args",
         "vllm serve openai/gpt-oss-20b --kv-transfer-config '{\"kv_role\": \"kv_producer\"}' -tp 2\n"
         "vllm serve openai/gpt-oss-20b --kv-transfer-config '{\"kv_role\": \"kv_consumer\"}' -tp 4",
         {"prefill: {replicas: 1, tensor: 2", "decode: {replicas: 1, tensor: 4"}},
        // Variables, arrays, files in the script, hosts of one deployment.
        {"vllm-args",
         "export M=Qwen/Qwen3-8B\nARGS=(--tensor-parallel-size 2 --max-num-seqs \"64\")\nvllm serve $M \"${ARGS[@]}\"",
         {"model: Qwen/Qwen3-8B", "tensor: 2", "max_sequences: 64"}},
        {"vllm-args",
         "cat > c.yaml <<EOF\ntensor-parallel-size: 2\nkv-cache-dtype: fp8\nEOF\nvllm serve Qwen/Qwen3-8B --config "
         "c.yaml",
         {"tensor: 2", "precision: fp8"}},
        {"vllm-args",
         "vllm serve Qwen/Qwen3-30B-A3B -dp 16 -ep --data-parallel-size-local 8\n"
         "vllm serve Qwen/Qwen3-30B-A3B -dp 16 -ep --data-parallel-size-local 8 --headless --data-parallel-start-rank "
         "8",
         {"nodes: 2", "groups: 16", "expert: 16"}},
        {"vllm-args",
         "vllm serve nvidia/Llama-3.1-8B-Instruct-$KIND\nvllm bench serve --model nvidia/Llama-3.1-8B-Instruct-FP8",
         {"model: nvidia/Llama-3.1-8B-Instruct-FP8", "mean: 128"}},
        {"vllm-args",
         "N=4\nfor c in 8 16; do\n  vllm bench serve --model Qwen/Qwen3-8B --max-concurrency $c --num-prompts $((c * "
         "(N + 1) / 2 % 100))\n"
         "done\nvllm serve Qwen/Qwen3-8B -tp 2",
         {"clients: 8", "count: 20", "tensor: 2"}},
        {"vllm-args",
         "vllm serve Qwen/Qwen3-8B\naiperf profile --model Qwen/Qwen3-8B --endpoint-type chat --streaming "
         "--concurrency 32 "
         "--request-count 96 --synthetic-input-tokens-mean 2000 --osl 256 --extra-inputs ignore_eos:true",
         {"clients: 32", "count: 96", "fixed, mean: 2000", "fixed, mean: 256"}},
        {"vllm-args",
         "vllm serve Qwen/Qwen3-8B\nguidellm benchmark --target http://localhost:8000 --rate-type concurrent --rate 16 "
         "--max-requests 64 --data \"prompt_tokens=512,output_tokens=128\"",
         {"arrivals: closed", "clients: 16", "count: 64", "fixed, mean: 512", "fixed, mean: 128"}},
        {"vllm-args",
         "vllm serve Qwen/Qwen3-8B\nguidellm benchmark run --target http://localhost:8000 --profile poisson --rate 2 "
         "--max-requests 64 --data '{\"prompt_tokens\": 512, \"prompt_tokens_stdev\": 128, \"output_tokens\": 128}'",
         {"rate: 2", "lognormal, mean: 512, spread: 0.25", "fixed, mean: 128"}},
        {"vllm-args",
         "vllm serve Qwen/Qwen3-8B\nguidellm benchmark --rate-type sweep --data 'prompt_tokens=256,output_tokens=32'",
         {"clients: 1", "fixed, mean: 256"}},
        {"vllm-args",
         "# Qwen3\nIt doesn't take long on one H200:\n\n```bash\nvllm serve Qwen/Qwen3-8B -tp 2\n```\n\n1. Then load "
         "it:\n\n   "
         "```shell\n"
         "   vllm bench serve --model Qwen/Qwen3-8B --num-prompts 40\n   ```\n\n```python\nprint('vllm serve "
         "it')\n```\n",
         {"tensor: 2", "count: 40", "preset: dgx-h200"}},
        {"vllm-args",
         "docker run --gpus all vllm/vllm-openai:v0.16.0 bash -lc \"pip install x && vllm serve Qwen/Qwen3-8B -tp 2\"",
         {"tensor: 2"}},
        // SGLang.
        {"sglang-args",
         "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 2",
         {"tensor: 2", "kind: vllm-v0", "prefix: {}", "software: sglang-0.5", "collectives: sglang"}},
        {"sglang-args",
         "python3 -m sglang.launch_server --model deepseek-ai/DeepSeek-V3 --tp 8 --dp 8 --enable-dp-attention "
         "--moe-a2a-backend deepep --mem-fraction-static 0.8 --disable-radix-cache",
         {"tensor: 1", "groups: 8", "expert: 8", "dispatch: hierarchical", "kv: {memory: 0.8}"}},
        {"sglang-args",
         "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --dp 2 --enable-mixed-chunk --chunked-prefill-size "
         "4096 "
         "--disable-overlap-schedule --disable-cuda-graph --context-length 8192\npython -m sglang.bench_serving "
         "--dataset-name random "
         "--random-input 1000 "
         "--random-output 100 --random-range-ratio 1 --max-concurrency 8 --num-prompts 16",
         {"replicas: 2", "kind: chunked-prefill, token_budget: 4096", "overlap: false", "graph_sequences: 0",
          "clients: 8", "fixed, mean: 1000"}},
        {"sglang-args",
         "sglang serve --model-path openai/gpt-oss-20b\npython -m sglang.bench_serving --dataset-name random "
         "--random-input-len 1000 --random-output-len 1000 --random-range-ratio 0.5",
         {"kind: uniform, mean: 750, spread: 0.333"}},
        {"sglang-args",
         "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --speculative-algorithm EAGLE "
         "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4",
         {"speculation: {tokens: 3, layers: 1}", "max_sequences: 48"}},
        {"sglang-args",
         "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V4-Flash --tp 4 --speculative-algorithm "
         "EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4",
         {"speculation: {tokens: 3, layers: 1}", "max_sequences: 256", "precision: fp8"}},
        {"sglang-args",
         "python -m sglang.launch_server --model-path Qwen/Qwen3-Next-80B-A3B-Instruct --tp 4",
         {"software: sglang-linear-0.5"}},
        {"sglang-args",
         "python -m sglang.launch_server --model-path zai-org/GLM-5-FP8 --tp 8",
         {"software: sglang-indexer-0.5"}},
        {"sglang-args",
         "pip install sglang==0.4.5\npython -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 --tp 8",
         {"preset: sglang-block-0.4"}},
        {"sglang-args",
         "pip install sglang==0.4.6\npython -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 --tp 8",
         {"preset: sglang-0.5"}},
        {"vllm-args", "pip install vllm==0.8.4\nvllm serve deepseek-ai/DeepSeek-R1 -tp 8", {"preset: vllm-block-0.8"}},
        {"vllm-args", "pip install vllm==0.8.4\nvllm serve Qwen/Qwen3-32B -tp 2", {"preset: vllm-0.11"}},
        {"sglang-args",
         "pip install \"sglang[all]==0.4.6.post1\"\npython -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 8",
         {"memory: 0.81", "graph_sequences: 160"}},
        {"sglang-args",
         "docker run --gpus all lmsysorg/sglang:v0.3.6-cu124 python3 -m sglang.launch_server --model-path "
         "Qwen/Qwen3-8B",
         {"memory: 0.88", "overlap: false", "graph_sequences: 80"}},
        // TensorRT-LLM.
        {"trtllm-args",
         "cat >x.yml <<EOF\npytorch_backend_config:\n  use_cuda_graph: true\nEOF\npip install tensorrt_llm==0.18.2\n"
         "trtllm-serve Qwen/Qwen3-8B --backend pytorch --extra_llm_api_options x.yml",
         {"overlap: false"}},
        {"trtllm-args",
         "trtllm-serve Qwen/Qwen3-8B --port 8001 &\ntrtllm-serve Qwen/Qwen3-8B --port 8002 &\n"
         "trtllm-serve Qwen/Qwen3-8B --port 8003 --tp_size 2 &\ncat > d.yaml <<EOF\nhostname: localhost\nport: 8000\n"
         "context_servers:\n  num_instances: 2\n  urls: [\"localhost:8001\", \"localhost:8002\"]\n"
         "generation_servers:\n  num_instances: 1\n  urls: [\"localhost:8003\"]\nEOF\n"
         "trtllm-serve disaggregated -c d.yaml",
         {"prefill: {replicas: 2, tensor: 1", "decode: {replicas: 1, tensor: 2"}},
        {"trtllm-args", "pip install tensorrt_llm==0.19.0\ntrtllm-serve Qwen/Qwen3-8B", {"graph_sequences: 0"}},
        {"trtllm-args",
         "trtllm-serve nvidia/Llama-3.1-8B-Instruct-FP8 --tp_size 2 --max_batch_size 64 --max_num_tokens 4096",
         {"tensor: 2", "kind: in-flight, token_budget: 4096, max_sequences: 64", "of_free: true",
          "software: trtllm-1.0"}},
        {"trtllm-args",
         "cat >x.yml <<EOF\nenable_attention_dp: true\nkv_cache_config:\n  free_gpu_memory_fraction: 0.7\n  dtype: "
         "fp8\n"
         "cuda_graph_config: null\nspeculative_config: {decoding_type: MTP, num_nextn_predict_layers: 1}\nEOF\n"
         "trtllm-serve serve deepseek-ai/DeepSeek-R1 --tp_size 8 --ep_size 8 --extra_llm_api_options x.yml",
         {"groups: 8", "expert: 8", "memory: 0.7", "precision: fp8", "tokens: 1", "graph_sequences: 0"}},
        {"trtllm-args",
         "trtllm-bench --model meta-llama/Llama-3.1-8B --model_path /m throughput --dataset d.json --concurrency 16 "
         "--num_requests 32 --tp 2 --target_input_len 500 --target_output_len 100",
         {"clients: 16", "count: 32", "software: trtllm-bench-1.0", "tensor: 2", "fixed, mean: 500"}},
        // What SGLang keeps free: activations of its pieces, the largest graph and, with data-parallel attention, padding.
        {"sglang-args",
         "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --chunked-prefill-size 16384",
         {"memory: 0.691"}},
        {"sglang-args",
         "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 --tp 8 --dp 8 --enable-dp-attention",
         {"groups: 8", "memory: 0.772"}},
        // Other load generators.
        {"vllm-args",
         "vllm serve Qwen/Qwen3-8B\nevalscope perf --parallel 8 16 --number 40 80 --model Qwen3-8B --dataset random "
         "--max-tokens 64 --min-prompt-length 100 --max-prompt-length 128",
         {"clients: 8", "count: 40", "fixed, mean: 128", "fixed, mean: 64"}},
        {"vllm-args",
         "vllm serve Qwen/Qwen3-8B\npython token_benchmark_ray.py --model Qwen/Qwen3-8B --mean-input-tokens 500 "
         "--stddev-input-tokens 100 --mean-output-tokens 150 --stddev-output-tokens 0 --num-concurrent-requests 4 "
         "--max-num-completed-requests 20",
         {"clients: 4", "count: 20", "lognormal, mean: 500, spread: 0.2", "fixed, mean: 150"}},
        {"vllm-args",
         "vllm serve Qwen/Qwen3-8B\nguidellm benchmark run --profile concurrent --rate 2,8 --data "
         "prompt_tokens=64,output_tokens=32",
         {"clients: 2"}},
        // Names that lead to files.
        {"vllm-args", "vllm serve /data/Qwen2.5-32B-Instruct/", {"model: /data/Qwen2.5-32B-Instruct"}},
        {"vllm-args", "vllm serve s3://bucket/Qwen3-8B", {"model: bucket/Qwen3-8B"}},
        {"vllm-args", "vllm serve ~/hub/models--Qwen--Qwen3-8B/snapshots/ab", {"model: Qwen/Qwen3-8B"}},
        {"vllm-args", "vllm serve unsloth/Qwen3-0.6B-GGUF:Q4_K_M", {"model: unsloth/Qwen3-0.6B.Q4_K_M"}},
        {"vllm-args", "vllm serve $MODELS/hub/Qwen/Qwen3-8B", {"model: /hub/Qwen/Qwen3-8B"}},
        {"vllm-args", "vllm serve /models/llama3.1_8B", {"model: /models/llama3.1_8B"}},
        {"vllm-args",
         "docker run -v /data/models--Qwen--Qwen3-8B:/app/model:ro ours/vllm bash -c \"vllm serve -tp 2 "
         "/app/model/snapshots/ab/\"",
         {"model: Qwen/Qwen3-8B", "tensor: 2"}},
    };
    check_runs(lines);
}

TEST_CASE("servers that are written in Python or as a file of flags become scenarios that run") {
    check_runs({
        {"vllm-args",
         "from vllm import LLM\nMODEL = \"Qwen/Qwen3-8B\"  # a comment\nllm = LLM(model=MODEL,  # another, (\n"
         "    tensor_parallel_size=2, enforce_eager=True, enable_prefix_caching=False,\n"
         "    speculative_config={'method': 'ngram', 'num_speculative_tokens': 3})\n",
         {"model: Qwen/Qwen3-8B", "tensor: 2", "graph_sequences: 0", "tokens: 3"}},
        {"sglang-args",
         "llm = sgl.Engine(model_path='Qwen/Qwen3-8B', tp_size=2, mem_fraction_static=0.8)",
         {"tensor: 2", "memory: 0.8"}},
        {"trtllm-args",
         "llm = LLM('Qwen/Qwen3-8B', kv_cache_config=KvCacheConfig(free_gpu_memory_fraction=0.7))",
         {"model: Qwen/Qwen3-8B", "memory: 0.7"}},
        {"vllm-args", "model: Qwen/Qwen3-8B\ntensor-parallel-size: 2\n", {"model: Qwen/Qwen3-8B", "tensor: 2"}},
        {"vllm-args",
         "servingEngineSpec:\n  modelSpec:\n  - repository: vllm/vllm-openai\n    tag: v0.16.0\n    modelURL: "
         "Qwen/Qwen3-8B\n    replicaCount: 2\n    vllmConfig:\n      maxModelLen: 4096\n      extraArgs: [\"-tp\", "
         "\"2\"]\n",
         {"replicas: 2", "tensor: 2", "max_context: 4096", "software: vllm-0.16"}},
    });
    CHECK(problems_when([] { (void)import_line("vllm-args", "llm = LLM(model='a'"); }) ==
          "input:1:10: error: this call does not end: expected ')'\n");
    CHECK(problems_when([] {
              (void)import_line("vllm-args", "LLM(args.model, max_num_seqs=args.n)");
          }).find("--max_num_seqs needs args.n, which has no value") != std::string::npos);
}

TEST_CASE("manifests of containers become scenarios that run") {
    check_runs({
        {"vllm-args",
         "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n---\napiVersion: apps/v1\nkind: Deployment\nspec:\n  "
         "replicas: 2\n"
         "  template:\n    spec:\n      containers:\n      - name: vllm\n        image: vllm/vllm-openai:v0.16.1\n"
         "        command: [vllm, serve]\n        args: [Qwen/Qwen3-8B, --tensor-parallel-size, \"2\"]\n"
         "        env:\n        - {name: VLLM_LOGGING_LEVEL, value: INFO}\n",
         {"replicas: 2", "tensor: 2", "software: vllm-0.16"}},
        {"vllm-args",
         "services:\n  llm:\n    image: vllm/vllm-openai:latest\n    command: >\n      --model Qwen/Qwen3-8B\n      "
         "-tp 2\n",
         {"model: Qwen/Qwen3-8B", "tensor: 2"}},
        {"vllm-args",
         "kind: Pod\nspec:\n  containers:\n  - command: [/bin/sh, -c]\n    args:\n    - |\n      export "
         "M=Qwen/Qwen3-8B\n"
         "      exec vllm serve $M --max-num-seqs 32\n",
         {"model: Qwen/Qwen3-8B", "max_sequences: 32"}},
        {"vllm-args",
         "apiVersion: nvidia.com/v1alpha1\nkind: DynamoGraphDeployment\nspec:\n  services:\n    Frontend:\n      "
         "replicas: 1\n"
         "      extraPodSpec: {mainContainer: {command: [python3, -m, dynamo.frontend]}}\n    Decode:\n      replicas: "
         "1\n"
         "      extraPodSpec: {mainContainer: {command: [python3, -m, dynamo.vllm], args: [--model, Qwen/Qwen3-8B]}}\n"
         "    Prefill:\n      replicas: 3\n      extraPodSpec:\n        mainContainer:\n"
         "          command: [python3, -m, dynamo.vllm]\n          args: [--model, Qwen/Qwen3-8B, "
         "--is-prefill-worker]\n",
         {"prefill: {replicas: 3, tensor: 1", "decode: {replicas: 1, tensor: 1", "software: dynamo-vllm-0.19"}},
        {"trtllm-args",
         "kind: ConfigMap\napiVersion: v1\ndata:\n  agg.yaml: |\n    tensor_parallel_size: 2\n    kv_cache_config:\n"
         "      free_gpu_memory_fraction: 0.8\n---\nkind: Pod\nspec:\n  containers:\n  - command: [python3, -m, "
         "dynamo.trtllm]\n"
         "    args: [--model-path, Qwen/Qwen3-8B, --extra-engine-args, /mnt/agg.yaml]\n",
         {"tensor: 2", "memory: 0.8", "software: dynamo-trtllm-1.0"}},
    });
    CHECK(problems_when([] { (void)import_line("vllm-args", "kind: Pod\nspec: {a: [\n"); }).find("input:") == 0);
}

TEST_CASE("command lines of serving engines are refused with what is missing, at their place") {
    const std::vector<Line> lines = {
        {"vllm-args",
         "",
         {"input:1:1: error: holds no command of vLLM such as 'vllm serve MODEL', but no command at all"}},
        {"vllm-args", "{\"hidden_size\": 64}", {"input:1:1: error: holds no command of vLLM", "'{hidden_size: 64}'"}},
        {"vllm-args",
         "A page.\n```sh\nvllm serve Qwen/Qwen3-8B -tp x\n```",
         {"input:3:26: error: -tp must be a whole number"}},
        {"vllm-args", "echo 'cut", {"input:1:6: error: the quote ' does not end"}},
        {"vllm-args",
         "\npython -m sglang.launch_server --model-path Qwen/Qwen3-8B",
         {"input:2:1: error: ", "which 'orrery import sglang-args' reads"}},
        {"sglang-args", "vllm serve Qwen/Qwen3-8B", {"which 'orrery import vllm-args' reads"}},
        {"trtllm-args", "vllm bench serve --model x", {"a load generator without its server"}},
        {"vllm-args", "vllm serve ... --port 1", {"input:1:12: error: names no model"}},
        {"vllm-args",
         "vllm serve acme/model-7b -tp 2",
         {"input:1:12: error: no model is known by the name 'acme/model-7b'", "--config FILE"}},
        {"vllm-args", "vllm serve acme/$MODEL", {"input:1:12: error: the name of the model needs MODEL"}},
        {"vllm-args", "vllm serve Qwen/Qwen3-8B -tp $TP", {"input:1:26: error: -tp needs TP, which has no value"}},
        {"vllm-args", "vllm serve Qwen/Qwen3-8B -tp", {"input:1:26: error: -tp needs a value"}},
        {"vllm-args",
         "vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 1.5",
         {"input:1:26: error: 1.5 must be a share of the device's memory"}},
        {"vllm-args",
         "vllm serve Qwen/Qwen3-8B --max-num 3",
         {"'--max-num' begins several flags: --max-num-batched-tokens"}},
        {"vllm-args", "vllm serve Qwen/Qwen3-8B --config c.yaml", {"'c.yaml' is not beside this file"}},
        {"vllm-args",
         "vllm serve Qwen/Qwen3-8B --speculative-config x",
         {"--speculative-config must be a map in JSON"}},
        {"vllm-args",
         "vllm serve Qwen/Qwen3-8B --kv-transfer-config '{\"kv_role\": \"kv_producer\"}'",
         {"input:1:26: error: this server does prefill alone"}},
        {"vllm-args",
         "vllm serve Qwen/Qwen3-8B\nvllm serve Qwen/Qwen3-4B",
         {"input:2:1: error: is a second server", "lines 1, 2"}},
        {"vllm-args",
         "vllm serve Qwen/Qwen3-8B --max-model-len 1000\nvllm bench serve --random-input-len 1000 --random-output-len "
         "100",
         {"input:2:18: error: requests of 1100 tokens with their answers are longer than the 1000"}},
        {"vllm-args",
         "vllm serve Qwen/Qwen3-8B -tp 5000",
         {"input:1:1: error: makes a scenario that is refused: 'tensor'"}},
        {"vllm-args",
         "vllm serve meta-llama/Llama-3.1-405B-Instruct",
         {"input:1: this does not run on any of dgx-h100, dgx-h200", "does not fit",
          "It runs with 4 tensor-parallel ranks on dgx-b300"}},
        {"trtllm-args",
         "trtllm-serve Qwen/Qwen3-8B --port 8001\ntrtllm-serve disaggregated -c d.yaml",
         {"input:2:1: error: expected the file of phases", "found no 'd.yaml'"}},
        {"trtllm-args",
         "cat > d.yaml <<EOF\ncontext_servers: {num_instances: 1}\nEOF\ntrtllm-serve Qwen/Qwen3-8B\ntrtllm-serve "
         "disaggregated -c d.yaml",
         {"d.yaml:1:18: error: expected 'context_servers' with the 'urls' of its servers"}},
        {"vllm-args",
         "vllm serve Qwen/Qwen3-8B\nguidellm benchmark --rate-type wave",
         {"input:2:20: error: 'wave' is none of synchronous, concurrent"}},
        {"vllm-args",
         "vllm serve Qwen/Qwen3-8B\nguidellm benchmark --rate-type poisson",
         {"input:2:20: error: requests that arrive as 'poisson' need a --rate"}},
        {"vllm-args",
         "vllm serve Qwen/Qwen3-8B\nguidellm benchmark --rate-type throughput --data prompt_tokens=many",
         {"input:2:43: error: 'prompt_tokens=many' must be a number of tokens"}},
        {"sglang-args",
         "python -m sglang.launch_server --model Qwen/Qwen3-8B --tp 4 --dp 3 --enable-dp-attention",
         {"--dp 3 does not divide --tp 4"}},
    };
    for (const Line& line : lines) {
        CAPTURE(line.text);
        std::string said;
        try {
            (void)import_line(line.format, line.text);
        } catch (const Error& error) {
            said = error.what();
        }
        for (const char* part : line.keys) {
            CHECK_MESSAGE(said.find(part) != std::string::npos, std::string(part) << "\n" << said);
        }
    }
    CHECK_THROWS_AS((void)import_line("vllm-args", "vllm serve Qwen/Qwen3-8B", {{"node", "dgx-h1000"}}), ConfigError);
    CHECK_THROWS_AS((void)import_line("vllm-args", "vllm serve Qwen/Qwen3-235B-A22B", {{"node", "rtx-4090"}}),
                    InfeasibleError);
}

TEST_CASE("an import of a command line says of every flag once what it did") {
    const Imported out = import_line("vllm-args",
                                     "NCCL_NOVEL=1 vllm serve Qwen/Qwen3-8B --tensor-parallel-size 2 --port 8000 "
                                     "--cpu-offload-gb 5 --enable-novelty 3 --no-enable-prefix-caching");
    const auto said = [&](const std::string& flag) {
        const auto found =
            std::find_if(out.facts.begin(), out.facts.end(), [&](const auto& fact) { return fact[0] == flag; });
        return found == out.facts.end() ? "" : (*found)[1];
    };
    CHECK(said("--tensor-parallel-size 2") == "engine.tensor");
    CHECK(said("--port 8000") == "no effect: address of the server");
    CHECK(said("--no-enable-prefix-caching") == "engine.kv.prefix");
    CHECK(holds(out.notes.left_out(), "--cpu-offload-gb 5, which is not modelled: weights in host memory"));
    CHECK(holds(out.notes.left_out(), "--enable-novelty 3, which is not understood"));
    CHECK(holds(out.notes.left_out(), "NCCL_NOVEL 1, which is not understood"));
    CHECK(holds(out.notes.assumed(), "nodes of dgx-h100"));
    const Imported loop = import_line("vllm-args", "for t in 2 4; do vllm serve Qwen/Qwen3-8B -tp $t; done");
    CHECK(holds(loop.notes.assumed(), "t=2, the first of 2 in a loop"));
    // vLLM refuses to start with it.
    CHECK_THROWS_AS((void)import_line("vllm-args", "vllm serve Qwen/Qwen3-8B --max-model-len 1000000",
                                      {{"node", "rtx-4090"}, {"software", "vllm-0.16"}}),
                    InfeasibleError);
    const Imported taken = import_line("vllm-args", "vllm serve --enable-novelty Qwen/Qwen3-8B -tp 2");
    CHECK(taken.text.find("model: Qwen/Qwen3-8B") != std::string::npos);
    // Of a file with several servers and loads one of each is taken.
    const std::string page =
        "vllm serve Qwen/Qwen3-8B -tp $UNSET\nvllm serve Qwen/Qwen3-4B\nvllm bench serve --model Qwen/Qwen3-4B "
        "--num-prompts 10\n"
        "vllm bench serve --model Qwen/Qwen3-4B --num-prompts 20";
    const Imported second = import_line("vllm-args", page, {{"server", "2"}, {"client", "2"}});
    CHECK(second.text.find("model: Qwen/Qwen3-4B") != std::string::npos);
    CHECK(second.text.find("count: 20") != std::string::npos);
    CHECK(holds(second.notes.left_out(), "the load at line 3 (--client 1 takes it)"));
}

TEST_CASE("a model that is not known by its name comes from its config.json") {
    const std::filesystem::path file =
        std::filesystem::temp_directory_path() / fmt::format("orrery-config-{}.json", getpid());
    std::ofstream(file)
        << R"({"model_type": "qwen3_moe", "num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 8,
        "num_key_value_heads": 2, "vocab_size": 32000, "max_position_embeddings": 4096, "num_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 256, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})";
    const Imported out = import_line("vllm-args", "vllm serve acme/tiny-moe -dp 2 -ep", {{"config", file.string()}});
    for (const char* key :
         {"model:\n  name: tiny-moe\n  layers: 4", "groups: 2", "expert: 2", "weights: fp8", "scaling: block"}) {
        CHECK_MESSAGE(out.text.find(key) != std::string::npos, std::string(key) << "\n" << out.text);
    }
    const Imported wide = import_line("vllm-args", "vllm serve acme/tiny-moe -q awq", {{"config", file.string()}});
    CHECK(wide.text.find("weights: int4") != std::string::npos);
    std::filesystem::remove(file);
}

TEST_CASE("tables of flags name no flag twice, and importers ask for every key in them") {
    const std::vector<std::tuple<const char*, const char*, std::string>> engines = {
        {"vllm-serve", "vllm-args", "vllm serve Qwen/Qwen3-30B-A3B"},
        {"sglang-serve", "sglang-args", "python -m sglang.launch_server --model Qwen/Qwen3-30B-A3B"},
        {"trtllm-serve", "trtllm-args", "trtllm-serve Qwen/Qwen3-30B-A3B"}};
    for (const auto& [tool, format, command] : engines) {
        const std::string table = tool;
        std::set<std::string> names;
        const FlagTable flags({table}, data());
        for (const FlagRow& row : flags.rows()) {
            for (const std::string& name : row.names) {
                CHECK_MESSAGE(names.insert(name).second, table << ": " << name);
            }
            const std::string& name = row.names[0];
            const bool variable = std::isupper(static_cast<unsigned char>(name[0])) != 0;
            if (row.effect != FlagEffect::key || row.key == "file" || row.key == "model" || variable ||
                name.find('.') != std::string::npos) {
                continue;
            }
            const char* value = row.value == FlagValue::json ? " '{}'" : row.value == FlagValue::word ? " 1" : "";
            const Imported out = import_file(
                format, ImportInput::of_bytes("input", fmt::format("{} --{}{}", command, name, value)).with(data()));
            const bool idle = std::any_of(out.facts.begin(), out.facts.end(),
                                          [](const auto& fact) { return fact[1].rfind("no effect here", 0) == 0; });
            // Adapters need --enable-lora beside their limits, and dispatches several groups.
            CHECK_MESSAGE((!idle || row.key.rfind("engine.lora.", 0) == 0 || row.key == "dispatch"),
                          table << ": " << name);
        }
    }
}

TEST_CASE("what a text says of a deployment and a scenario cannot say is named") {
    const auto notes_of = [](const std::string& format, const std::string& text) {
        return import_line(format, text).notes;
    };
    CHECK(holds(notes_of("vllm-args", "vllm serve Qwen/Qwen3-8B --tensor-paralel-size 2").left_out(),
                "not understood; did you mean --tensor-parallel-size?"));
    const std::string pair =
        "python -m sglang.launch_server --model Qwen/Qwen3-8B --disaggregation-mode prefill --mem-fraction-static 0.8 "
        "--disable-cuda-graph\n"
        "python -m sglang.launch_server --model Qwen/Qwen3-8B --disaggregation-mode decode --mem-fraction-static 0.9\n";
    CHECK(holds(notes_of("sglang-args", pair).left_out(), "--mem-fraction-static 0.8 of the server for prefill"));
    CHECK(holds(notes_of("sglang-args", pair).left_out(), "--disable-cuda-graph of the server for prefill"));
    CHECK_FALSE(holds(notes_of("sglang-args", pair).left_out(), "--model"));
    // Variables of an engine are said once, by the server that reads them.
    CHECK_FALSE(holds(notes_of("vllm-args",
                               "export VLLM_USE_V1=0\nvllm serve Qwen/Qwen3-8B --max-model-len 8192\n"
                               "vllm bench serve --model Qwen/Qwen3-8B --num-prompts 10")
                          .left_out(),
                      "VLLM_USE_V1"));
    const std::string longer = "vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 131072";
    CHECK(holds(notes_of("vllm-args", longer).assumed(), "a context of 131072 tokens where the model's configuration"));
    CHECK_FALSE(holds(notes_of("vllm-args", "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 " + longer).assumed(), "a context of"));
    CHECK_FALSE(holds(notes_of("vllm-args", "vllm serve deepseek-ai/DeepSeek-V3 -tp 8 --max-model-len 65536").assumed(),
                      "a context of"));
    CHECK(holds(notes_of("vllm-args", "vllm serve nvidia/Llama-3.1-8B-Instruct-FP8").assumed(),
                "later versions of the engine take fp8"));
}

TEST_CASE("offline benchmarks draw the lengths that their own programs draw") {
    const std::string prepared =
        "python prepare_dataset.py --tokenizer x --stdout token-norm-dist --num-requests=3000 --input-mean=1000 "
        "--output-mean=500 --input-stdev=100 --output-stdev=0 > d.txt\n"
        "trtllm-bench --model nvidia/Llama-3.1-8B-Instruct-FP8 throughput --dataset d.txt --concurrency 64";
    const std::string text = import_line("trtllm-args", prepared).text;
    for (const char* key : {"clients: 64", "count: 3000", "prompt: {kind: lognormal, mean: 1000, spread: 0.1}",
                            "output: {kind: fixed, mean: 500}"}) {
        CHECK_MESSAGE(text.find(key) != std::string::npos, std::string(key) << "\n" << text);
    }
    const std::string drawn = import_line("sglang-args",
                                          "python -m sglang.bench_offline_throughput --model-path Qwen/Qwen3-8B "
                                          "--dataset-name random --random-input 512 --random-output 256")
                                  .text;
    CHECK_MESSAGE(drawn.find("prompt: {kind: uniform, mean: 256, spread: 1}") != std::string::npos, drawn);
}

TEST_CASE("manifests set the variables of their commands, and a chart's values give both phases") {
    const std::string deployment =
        "kind: Deployment\nspec:\n  replicas: 1\n  template:\n    spec:\n      containers:\n      - name: vllm\n"
        "        image: ghcr.io/llm-d/llm-d-cuda:v0.3.0\n        command: [/bin/bash, -c]\n        args:\n        - |\n"
        "          exec vllm serve deepseek-ai/DeepSeek-R1-0528 --enable-expert-parallel \\\n"
        "            --tensor-parallel-size $TP_SIZE --data-parallel-size $((LWS_GROUP_SIZE * DP_SIZE_LOCAL))\n"
        "        env:\n        - {name: DP_SIZE_LOCAL, value: \"8\"}\n        - {name: TP_SIZE, value: \"1\"}\n"
        "        - {name: LWS_GROUP_SIZE, value: \"2\"}\n";
    const std::string script = import_line("vllm-args", deployment).text;
    CHECK_MESSAGE(script.find("groups: 16") != std::string::npos, script);
    const std::string pod =
        "kind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai:v0.16.0\n"
        "    args: [\"--model\", \"$(MODEL)\", \"--tensor-parallel-size\", \"$(TP)\"]\n"
        "    env: [{name: MODEL, value: Qwen/Qwen3-8B}, {name: TP, value: \"2\"}]\n";
    const std::string words = import_line("vllm-args", pod).text;
    CHECK_MESSAGE(words.find("model: Qwen/Qwen3-8B") != std::string::npos, words);
    CHECK_MESSAGE(words.find("tensor: 2") != std::string::npos, words);
    const std::string chart =
        "modelArtifacts: {uri: \"hf://Qwen/Qwen3-32B\", name: Qwen/Qwen3-32B}\n"
        "decode:\n  create: true\n  parallelism: {tensor: 4}\n  replicas: 1\n  containers:\n  - name: vllm\n"
        "    args: [\"--block-size\", \"128\", \"--max-model-len\", \"32000\"]\n"
        "prefill:\n  replicas: 4\n  parallelism: {tensor: 1}\n  containers:\n  - name: vllm\n"
        "    args: [\"--block-size\", \"128\"]\n";
    const std::string phases = import_line("vllm-args", chart).text;
    for (const char* key : {"model: Qwen/Qwen3-32B", "prefill: {replicas: 4, tensor: 1",
                            "decode: {replicas: 1, tensor: 4", "block: 128", "max_context: 32000"}) {
        CHECK_MESSAGE(phases.find(key) != std::string::npos, std::string(key) << "\n" << phases);
    }
}

TEST_CASE("texts from editors and pages are read, or refused where they mislead") {
    CHECK(import_line("vllm-args", "\xEF\xBB\xBFvllm serve Qwen/Qwen3-8B -tp 2\r\n").text.find("tensor: 2") !=
          std::string::npos);
    const auto problem = [](const std::string& text) {
        return problems_when([&] { (void)import_line("vllm-args", text); });
    };
    CHECK(problem("vllm serve Qwen/Qwen3-8B \xE2\x80\x93tensor-parallel-size 2").find("input:1:26: error:") !=
          std::string::npos);
    CHECK(problem("vllm serve Qwen/Qwen3-8B -tp $2").find("-tp needs $2, which has no value") != std::string::npos);
    CHECK(problem("lmdeploy serve api_server internlm/internlm2_5-7b-chat --tp 2")
              .find("of LMDeploy, which no importer reads") != std::string::npos);
}

TEST_CASE("a page that starts one server a thousand times is one deployment, read in linear time") {
    std::string text;
    for (int i = 0; i < 1000; ++i) {
        text +=
            "export NCCL_DEBUG=WARN\nexport VLLM_USE_V1=1\nvllm serve Qwen/Qwen3-8B -tp 2 --port 8000 &\n"
            "vllm bench serve --model Qwen/Qwen3-8B --num-prompts 10 --request-rate 2\n";
    }
    const Imported out = import_line("vllm-args", text);
    CHECK(out.text.find("tensor: 2") != std::string::npos);
    CHECK(holds(out.notes.left_out(), "999 loads (--client N takes the Nth)"));
    // Those that differ are named, twenty of them.
    std::string others;
    for (int i = 1; i <= 40; ++i) {
        others += fmt::format("vllm serve Qwen/Qwen3-8B --max-num-seqs {}\n", i);
    }
    const std::string said = problems_when([&] { (void)import_line("vllm-args", others); });
    CHECK(said.find("lines 1, 2, 3") != std::string::npos);
    CHECK(said.find("19, 20 and 20 more (--server N takes the Nth)") != std::string::npos);
}
