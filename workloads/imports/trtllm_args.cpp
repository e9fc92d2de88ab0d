// The command lines of TensorRT-LLM (trtllm-serve, trtllm-bench; tensorrt_llm/commands, tensorrt_llm/bench) as a serving scenario, with
// the file of --extra_llm_api_options (tensorrt_llm/llmapi/llm_args.py).
//
// Claims: what workloads/data/flags/trtllm-serve.csv says of each flag and option, of versions 0.18 to 1.2 with the PyTorch backend.
// The memory fraction is of what weights leave.

#include "workloads/imports/serving_command.hpp"

#include "sim/base/error.hpp"
#include "sim/config/units.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::imports {

namespace {

ServingChoices choose_trtllm(ServingLine& line) {
    constexpr std::int64_t kMost = 65536;
    GivenFlags& flags = line.flags;
    ServingChoices out;
    out.ranks.tensor = flags.whole("tensor", kMost).value_or(1);
    out.ranks.pipeline = flags.whole("pipeline", kMost).value_or(1);
    const std::int64_t expert = flags.whole("expert", kMost).value_or(1);
    out.ranks.expert = line.model.experts ? expert : 0;
    if (flags.on("attention_data")) {
        out.ranks.groups = out.ranks.tensor;
        out.ranks.tensor = 1;
    }
    out.software = engine_preset(line.offline ? "trtllm-bench" : "trtllm", line.version,
                                 line.offline ? "trtllm-bench-1.0" : "trtllm-1.0", line.data);
    out.scheduler = flags.on("chunked") ? "chunked-prefill" : "in-flight";
    const auto budget = flags.whole("token_budget", 1 << 20);
    const auto sequences = flags.whole("sequences", 1 << 20);
    out.token_budget = budget.value_or(8192);
    out.max_sequences = sequences.value_or(2048);
    note_batches(line, budget ? 0 : out.token_budget, sequences ? 0 : out.max_sequences);
    if (!line.offline && !flags.given("engine.max_context")) {
        line.notes.assumed("requests as long as the cache has room for (--max_seq_len)");
    }
    // Before 0.20 the PyTorch backend has graphs and overlaps the host where it is told so.
    const bool old = version_before(line.version, {0, 20});
    const bool graphs_off = flags.text("graphs") == "null" || flags.off("graphs") || (old && !flags.on("graphs"));
    out.eager = graphs_off;
    out.serial_host = flags.on("serial_host") || (old ? !flags.on("overlap_host") : flags.off("overlap_host"));
    out.graph_sequences = flags.whole("graph_sequences", 1 << 20, true).value_or(0);
    out.prefix_cache = !flags.off("prefix") && !(line.offline && !flags.on("prefix"));
    out.host_cache = host_cache(line, out.ranks.gpus(), 1);
    out.draft_tokens = flags.whole("draft_tokens", 64, true).value_or(0);
    for (const char* name : {"num_nextn_predict_layers", "max_draft_len"}) {
        double number = 0;
        if (out.draft_tokens == 0 && parse_number(flags.part("speculation", name), number) && number >= 1 &&
            number <= 64) {
            out.draft_tokens = static_cast<std::int64_t>(number);
        }
    }
    const std::string drafts = flags.part("speculation", "decoding_type");
    out.own_drafts = out.draft_tokens > 0 && (drafts == "MTP" || drafts.rfind("Eagle", 0) == 0);
    for (const char* name : {"speculative_model", "speculative_model_dir"}) {
        const std::string drafting = flags.part("speculation", name);
        out.draft_model = drafting.empty() ? out.draft_model : drafting;
    }
    out.memory = memory_share(line, 0.9);
    out.of_free = true;
    out.stored_cache = true;  // llm_args.py: kv_cache_quant_algo of hf_quant_config.json
    return out;
}

const ServingEngine kTensorRtLlm = {"TensorRT-LLM",
                                    "trtllm-args",
                                    "trtllm-serve MODEL",
                                    "trtllm",
                                    {"trtllm-serve", "trtllm-serve serve"},
                                    {"trtllm-bench"},
                                    "dynamo.trtllm",
                                    "dynamo-trtllm-1.0",
                                    "trtllm-serve",
                                    "trtllm-bench",
                                    "file",
                                    choose_trtllm,
                                    {"LLM"}};

}  // namespace

extern const Importer kTensorRtLlmImporter = {
    "trtllm-args", "command lines of TensorRT-LLM and of load generators, as a serving scenario", serving_options(),
    [](const ImportInput& input) { return read_serving_commands(input, kTensorRtLlm); }, "yaml"};

}  // namespace orrery::imports
