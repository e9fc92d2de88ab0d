// The command lines of vLLM (vllm serve, vllm/engine/arg_utils.py) and of its load generators (vllm/benchmarks) as a serving scenario.
//
// Claims: what workloads/data/flags/vllm-serve.csv says of each flag, of versions 0.6 to 0.19, with vLLM's own defaults of batches by
// device (arg_utils.py, _set_default_args). Data-parallel ranks of a mixture of experts share the experts and are one replica; those
// of a dense model are replicas.

#include "workloads/imports/serving_command.hpp"

#include "sim/base/error.hpp"
#include "sim/config/units.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::imports {

namespace {

constexpr double kGibibyte = 1024.0 * 1024 * 1024;

ServingRanks vllm_ranks(GivenFlags& flags, const ServedModel& model) {
    constexpr std::int64_t kMost = 65536;
    ServingRanks out;
    out.tensor = flags.whole("tensor", kMost).value_or(1);
    out.pipeline = flags.whole("pipeline", kMost).value_or(1);
    const std::int64_t data = flags.whole("data", kMost).value_or(1);
    const bool experts = flags.on("expert");
    if (model.experts) {
        out.groups = data;
        out.expert = experts ? data * out.tensor : 1;
    } else {
        out.replicas = data;
    }
    return out;
}

// Number of a JSON value; 0 for none.
std::int64_t whole_of(const std::string& text) {
    double number = 0;
    return parse_number(text, number) && number >= 0 && number <= 1e6 ? static_cast<std::int64_t>(number) : 0;
}

// The second number of a version 0.x; of none and of later ones one beyond all.
std::int64_t vllm_minor(const std::string& version) {
    const std::int64_t minor = version.rfind("0.", 0) == 0 ? whole_of(version.substr(2, version.find('.', 2) - 2)) : 0;
    return minor > 0 ? minor : 1000;
}

std::int64_t draft_tokens(GivenFlags& flags) {
    const std::string method = flags.part("speculation", "method");
    const std::int64_t tokens = whole_of(flags.part("speculation", "num_speculative_tokens"));
    const std::int64_t given = tokens > 0 ? tokens : flags.whole("draft_tokens", 64, true).value_or(0);
    return given > 0 ? std::min<std::int64_t>(given, 64) : method.find("mtp") != std::string::npos ? 1 : 0;
}

void set_graphs(GivenFlags& flags, ServingChoices& out) {
    std::string level = flags.part("compilation", "level");
    level = level.empty() ? flags.part("compilation", "mode") : level;
    std::string mode = flags.part("compilation", "cudagraph_mode");
    std::transform(mode.begin(), mode.end(), mode.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    const std::string optimisation = flags.text("optimisation");
    out.eager = flags.on("eager") || level == "0" || optimisation == "0" || mode == "NONE";
    out.decode_graphs_alone = mode == "FULL_DECODE_ONLY";
    const std::string most = flags.part("compilation", "max_cudagraph_capture_size");
    out.graph_sequences = std::max(whole_of(most), flags.whole("graph_sequences", 1 << 20, true).value_or(0));
    const std::string sizes = flags.part("compilation", "cudagraph_capture_sizes");
    for (std::size_t i = 0; i < sizes.size();) {  // the largest number of the list
        const std::size_t start = sizes.find_first_of("0123456789", i);
        if (start == std::string::npos) {
            break;
        }
        i = std::min(sizes.find_first_not_of("0123456789", start), sizes.size());
        out.graph_sequences = std::max(out.graph_sequences, whole_of(sizes.substr(start, i - start)));
    }
}

// vLLM refuses a context longer than that of the model's config.json, unless a flag or a variable stretches it
// (config/model.py).
void note_long_context(ServingLine& line, std::int64_t longest) {
    const auto stretches = [](const GivenFlag& flag) {
        return flag.written.find("rope") != std::string::npos || flag.written.find("overrides") != std::string::npos ||
               flag.written == "VLLM_ALLOW_LONG_MAX_MODEL_LEN";
    };
    const auto& flags = line.flags.flags();
    if (line.model.sequence > 0 && longest > line.model.sequence &&
        std::none_of(flags.begin(), flags.end(), stretches)) {
        const std::string what = fmt::format(
            "a context of {} tokens where the model's configuration has {}: vLLM starts so with --hf-overrides of its "
            "positions or VLLM_ALLOW_LONG_MAX_MODEL_LEN=1",
            longest, line.model.sequence);
        if (!line.notes.assumed().contains(what)) {
            line.notes.assumed(what);
        }
    }
}

// Whether flags that version 0 of the engine alone has say that it runs. Version 1 refuses several steps at a time.
bool is_old_by_flags(ServingLine& line, std::int64_t minor) {
    const std::int64_t steps = line.flags.whole("steps", 1000).value_or(1);
    const bool blocks = line.flags.on("old_blocks");
    if (steps > 1) {
        const std::string what = fmt::format("{} steps without the host between them (--num-scheduler-steps)", steps);
        if (!line.notes.left_out().contains(what)) {
            line.notes.left_out(what);
        }
    }
    const bool old = (steps > 1 || blocks) && !line.flags.on("v1") && (minor < 11 || line.version.empty());
    const std::string what =
        "version 0 of the engine, which alone has --num-scheduler-steps and --use-v2-block-manager";
    if (old && !line.notes.assumed().contains(what)) {
        line.notes.assumed(what);
    }
    return old;
}

ServingChoices choose_vllm(ServingLine& line) {
    GivenFlags& flags = line.flags;
    ServingChoices out;
    out.ranks = vllm_ranks(flags, line.model);
    const std::int64_t longest = flags.whole("engine.max_context").value_or(line.model.sequence);
    const std::int64_t minor = vllm_minor(line.version);
    const bool by_flags = is_old_by_flags(line, minor);
    const bool old = flags.off("v1") || minor < 8 || by_flags;  // version 0 of the engine
    out.software = old ? engine_preset("vllm", minor < 8 ? line.version : "0.6", "vllm-0.6", line.data)
                       : engine_preset("vllm", minor < 11 ? "0.11" : line.version, "vllm-0.11", line.data);
    // DeepGEMM runs products with block scales by default from 0.11 on.
    out.software = !old && minor < 11 && line.model.checkpoint.scaling == "block" ? "vllm-block-0.8" : out.software;
    // Version 0 cuts prompts of models with long contexts alone.
    const bool whole = flags.off("chunked") || (old && !flags.on("chunked") && longest <= 32768);
    out.scheduler = whole ? "vllm-v0" : "chunked-prefill";
    const bool large =
        line.node.memory >= 70 * 1073741824.0 && line.node.device.find("a100") == std::string::npos && !old;
    const std::int64_t usual = line.offline ? (large ? 16384 : 8192) : (large ? 8192 : 2048);
    const auto budget = flags.whole("token_budget", 1 << 20);
    out.token_budget = budget ? *budget : whole ? std::clamp<std::int64_t>(longest, usual, 1 << 20) : usual;
    const auto sequences = flags.whole("sequences", 1 << 20);
    out.max_sequences = sequences.value_or(large ? 1024 : 256);
    note_batches(line, budget ? 0 : out.token_budget, sequences ? 0 : out.max_sequences);
    set_graphs(flags, out);
    // Asynchronous scheduling is the default from 0.14 on.
    out.serial_host = flags.off("async") || (!old && minor < 14 && !flags.on("async"));
    out.prefix_cache = !flags.off("prefix") && (flags.on("prefix") || !old);
    // The size is that of all ranks together; LMCache's is a rank's.
    out.host_cache = host_cache(line, out.ranks.gpus() / std::max<std::int64_t>(1, out.ranks.replicas), kGibibyte);
    out.draft_tokens = draft_tokens(flags);
    const std::string method = flags.part("speculation", "method");
    const std::string drafts = flags.text("draft_model");
    out.draft_model = drafts.empty() ? flags.part("speculation", "model") : drafts;
    out.own_drafts = method.find("mtp") != std::string::npos || method.rfind("eagle", 0) == 0;
    out.memory = memory_share(line, 0.9);
    out.stored_cache = minor >= 12 && !line.version.empty();  // torch_utils.py, resolve_kv_cache_dtype_string
    note_long_context(line, longest);
    const std::string role = flags.part("phase", "kv_role");
    out.phase = role == "kv_producer" ? "prefill" : role == "kv_consumer" ? "decode" : "";
    return out;
}

const ServingEngine kVllm = {
    "vLLM",
    "vllm-args",
    "vllm serve MODEL",
    "vllm",
    {"vllm serve", "vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server",
     "vllm.entrypoints.openai.run_batch", "api_server.py", "vllm-openai*", "rocm/vllm*"},
    {"vllm bench throughput", "vllm bench latency", "benchmark_throughput.py", "benchmark_latency.py"},
    "dynamo.vllm",
    "dynamo-vllm-0.19",
    "vllm-serve",
    "vllm-bench",
    "file",
    choose_vllm,
    {"LLM", "EngineArgs", "AsyncEngineArgs"},
    true};

}  // namespace

extern const Importer kVllmImporter = {
    "vllm-args", "command lines of vLLM and of its load generator, as a serving scenario", serving_options(),
    [](const ImportInput& input) { return read_serving_commands(input, kVllm); }, "yaml"};

}  // namespace orrery::imports
