// The command lines of SGLang (sglang/srt/server_args.py) and of its load generator (sglang/bench_serving.py) as a serving scenario.
//
// Claims: what workloads/data/flags/sglang-serve.csv says of each flag, of versions 0.3 to 0.5, with SGLang's own defaults by memory
// (server_args.py). Prompts go before decodes unless they are mixed. Attention with data parallelism shares out the tensor-parallel
// ranks; without it data parallelism is replicas behind a router.

#include "workloads/imports/serving_command.hpp"

#include "sim/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::imports {

namespace {

ServingRanks sglang_ranks(GivenFlags& flags, const ServedModel& model) {
    constexpr std::int64_t kMost = 65536;
    ServingRanks out;
    out.tensor = flags.whole("tensor", kMost).value_or(1);
    out.pipeline = flags.whole("pipeline", kMost).value_or(1);
    const std::int64_t data = flags.whole("data", kMost).value_or(1);
    std::int64_t expert = flags.whole("expert", kMost).value_or(1);
    const std::string how = flags.text("dispatch");
    if (flags.on("all_experts") || how == "deepep" || how == "mooncake" || how == "mori") {
        expert = out.tensor;  // their all-to-all spans all ranks
    }
    out.expert = model.experts ? expert : 0;
    if (flags.on("attention_data")) {
        if (out.tensor % data != 0) {
            throw ConfigError(
                {flags.error("data", fmt::format("--dp {} does not divide --tp {}, which --enable-dp-attention "
                                                 "shares out",
                                                 data, out.tensor))});
        }
        out.groups = data;
        out.tensor /= data;
    } else {
        out.replicas = data;
    }
    return out;
}

// By memory of a device (server_args.py): tokens of a piece of a prompt.
std::int64_t usual_piece(double gib, bool old) {
    return old         ? gib < 24.4 ? 2048 : 8192  // 25,000 MiB
           : gib < 35  ? 2048
           : gib < 60  ? 4096
           : gib < 160 ? 8192
                       : 16384;
}

// The same: sequences of the largest graph, by all tensor-parallel ranks.
std::int64_t usual_graphs(double gib, std::int64_t ranks) {
    const bool few = ranks < 4;
    return gib < 20    ? 8
           : gib < 35  ? (few ? 24 : 80)
           : gib < 60  ? (few ? 32 : 160)
           : gib < 160 ? (few ? 256 : 512)
                       : 512;
}

ServingChoices choose_sglang(ServingLine& line) {
    GivenFlags& flags = line.flags;
    ServingChoices out;
    out.ranks = sglang_ranks(flags, line.model);
    // Kernels for block scales were slower before 0.4.6, which made DeepGEMM the default.
    const bool slow_blocks = line.model.checkpoint.scaling == "block" && version_before(line.version, {0, 4, 6});
    out.software = line.model.linear    ? "sglang-linear-0.5"
                   : line.model.indexer ? "sglang-indexer-0.5"
                   : slow_blocks        ? "sglang-block-0.4"
                                        : engine_preset("sglang", line.version, "sglang-0.5", line.data);
    const double gib = line.node.memory / 1073741824.0;
    // Versions before 0.4.8 have shares of memory by ranks, and before 0.4 a host that plans after each iteration.
    const bool old = version_before(line.version, {0, 4, 8});
    const std::int64_t piece = usual_piece(gib, old);
    const std::string chunk = flags.text("chunk");
    const std::int64_t whole_prompts = flags.whole("token_budget", 1 << 20).value_or(16384);
    const std::int64_t given = chunk == "-1" ? 0 : flags.whole("chunk", 1 << 20).value_or(0);
    out.token_budget = chunk == "-1" ? whole_prompts : given > 0 ? given : piece;
    out.scheduler = flags.on("mixed") ? "chunked-prefill" : "vllm-v0";
    if (out.scheduler == "vllm-v0") {  // pieces of a prompt follow each other, so that it goes whole
        out.token_budget = std::max(out.token_budget, whole_prompts);
    }
    const std::string drafts = flags.text("speculation");
    const bool speculates = !drafts.empty() && drafts != "None";
    const auto sequences = flags.whole("sequences", 1 << 20);
    // server_args.py: 48 in all with speculation; DeepSeek-V4 has, before that is asked, 256 and a cache in 8 bits.
    const bool v4 = line.model.checkpoint.preset.rfind("deepseek-v4", 0) == 0;
    const std::int64_t usual = v4 ? 256 : speculates ? 48 : 2048 * out.ranks.groups;
    out.kv_precision = v4 ? "fp8" : "";
    out.max_sequences = std::max<std::int64_t>(1, sequences.value_or(usual) / out.ranks.groups);
    note_batches(line, given > 0 || chunk == "-1" ? 0 : out.token_budget, sequences ? 0 : out.max_sequences);
    const std::int64_t ranks = out.ranks.tensor * out.ranks.groups;
    const std::int64_t graphs =
        std::max<std::int64_t>(1, flags.whole("graph_sequences", 1 << 20).value_or(usual_graphs(gib, ranks)));
    const std::int64_t old_graphs = gib < 24.4 ? 8 : ranks < 4 ? 80 : 160;
    out.graph_sequences = flags.whole("graph_sequences", 1 << 20).value_or(old ? old_graphs : 0);
    out.eager = flags.on("eager");
    out.serial_host = flags.on("serial_host") || version_before(line.version, {0, 4});
    out.prefix_cache = !flags.on("no_prefix");
    out.host_cache =
        host_cache(line, out.ranks.gpus() / std::max<std::int64_t>(1, out.ranks.replicas), 1e9);  // a rank's
    const std::int64_t steps = flags.whole("draft_steps", 64, true).value_or(0);
    const std::int64_t tokens = flags.whole("draft_tokens", 64, true).value_or(4);  // with the one that is verified
    out.draft_tokens = !speculates ? 0 : steps > 0 ? steps : std::max<std::int64_t>(1, tokens - 1);
    // NEXTN is EAGLE with the model's own layer for multi-token prediction; heads of EAGLE have a layer too.
    out.own_drafts = out.draft_tokens > 0 && (drafts.rfind("EAGLE", 0) == 0 || drafts == "NEXTN");
    out.draft_model = flags.text("draft_model");
    // server_args.py: what activations, graphs and communicators take stays free, in MiB.
    const auto per_token = static_cast<double>(std::max<std::int64_t>(2048, given > 0 ? given : piece));
    const auto largest = static_cast<double>(graphs);
    double kept = per_token * 1.5 + largest * 2 + static_cast<double>(ranks * out.ranks.pipeline) * 128;
    if (out.ranks.groups > 1) {
        kept += largest * static_cast<double>(out.ranks.groups) * (graphs > 300 ? 4.5 : 3);
    }
    kept = std::max(gib > 60 ? 10.0 : 0.5, kept / 1024);
    const bool before_04 = version_before(line.version, {0, 4});
    const double old_share = ranks >= 16  ? 0.79
                             : ranks >= 8 ? (before_04 ? 0.83 : 0.81)
                             : ranks >= 4 ? 0.85
                             : ranks >= 2 ? 0.87
                                          : 0.88;
    const auto memory = flags.number("memory");
    out.memory = memory_share(line, old ? old_share : gib > 0 ? std::max(0.05, 1 - kept / gib) : 0.88);
    if (!memory) {
        line.notes.assumed(fmt::format("{:.2f} of the memory for weights and cache, SGLang's default on {}", out.memory,
                                       line.node.device));
    }
    out.stored_cache = !line.version.empty() && !version_before(line.version, {0, 5, 5});  // model_runner.py
    const std::string phase = flags.text("phase");
    out.phase = phase == "prefill" || phase == "decode" ? phase : "";
    return out;
}

const ServingEngine kSglang = {
    "SGLang",
    "sglang-args",
    "python -m sglang.launch_server --model-path MODEL",
    "sglang",
    {"sglang.launch_server", "sglang serve", "sglang_router.launch_server", "launch_server.py"},
    {"sglang.bench_offline_throughput", "sglang.bench_one_batch"},
    "dynamo.sglang",
    "dynamo-sglang-0.5",
    "sglang-serve",
    "sglang-bench",
    "file",
    choose_sglang,
    {"Engine", "ServerArgs"}};

}  // namespace

extern const Importer kSglangImporter = {
    "sglang-args", "command lines of SGLang and of its load generator, as a serving scenario", serving_options(),
    [](const ImportInput& input) { return read_serving_commands(input, kSglang); }, "yaml"};

}  // namespace orrery::imports
