// The command line of a Megatron-LM training run (megatron/training/arguments.py) as a training scenario: model and plan.
//
// Claims: the flags that decide times and memory here. The cluster is what the launcher's flags (torchrun: --nnodes,
// --nproc_per_node) or --gpus say, else the smallest that the degrees fill; its node is --node.

#include "sim/base/error.hpp"
#include "workloads/imports/megatron_flags.hpp"
#include "workloads/imports/megatron_model.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace orrery::imports {

namespace {

// A whole number, or nothing where the value is a word or a variable that the script does not set.
std::optional<std::int64_t> number_if_given(CommandText& flags, const std::vector<std::string>& names) {
    const std::string value = flags.text(names);
    const std::string digits = value.substr(0, value.find(':'));  // of --nnodes 2:4, the fewest
    const bool whole = !digits.empty() && digits.size() < 9 &&
                       std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
    return whole && std::stoll(digits) > 0 ? std::optional<std::int64_t>(std::stoll(digits)) : std::nullopt;
}

// What layers compute again, and the parts of one where it is not all of it.
std::pair<std::string, std::string> recompute_of(CommandText& flags, ImportNotes& notes) {
    std::string granularity = flags.text({"recompute-granularity"});
    if (flags.has("recompute-activations")) {
        granularity = "selective";
    }
    if (flags.has("checkpoint-activations") || flags.has("activations-checkpoint-method")) {  // until 2022
        granularity = "full";
    }
    if (granularity.empty() && flags.has("moe-layer-recompute")) {
        return {"experts", ""};
    }
    const std::vector<std::string> modules = flags.values("recompute-modules");
    if (granularity != "selective" || modules.empty() || modules == std::vector<std::string>{"core_attn"}) {
        return {granularity, ""};  // full or selective, as here
    }
    if (modules == std::vector<std::string>{"moe"}) {
        return {"experts", ""};
    }
    // The activation function of experts is a part of a whole feed-forward, which dense layers alone compute again beside it.
    const bool activation = std::find(modules.begin(), modules.end(), "moe_act") != modules.end();
    std::string parts;
    for (const std::string& module : modules) {
        if (activation && module == "mlp") {
            notes.left_out("not modelled: --recompute-modules mlp, of dense layers alone beside moe_act");
            continue;
        }
        const char* part = module == "core_attn"                ? "attention"
                           : module == "moe_act"                ? "activation"
                           : module == "layernorm"              ? "norm"
                           : module == "mlp" || module == "moe" ? "ffn"
                                                                : nullptr;
        if (part == nullptr) {
            notes.left_out(fmt::format("not modelled: --recompute-modules {}", module));
        } else if (parts.find(part) == std::string::npos) {
            parts += (parts.empty() ? "" : ",") + std::string(part);
        }
    }
    return parts.empty() ? std::pair<std::string, std::string>()
                         : std::pair<std::string, std::string>("modules", fmt::format("\"{}\"", parts));
}

// 'block' recomputes the first layers of each stage or chunk, 'uniform' all of them in groups of so many.
std::string recompute_layers_of(CommandText& flags, const std::string& granularity) {
    return granularity == "full" && flags.text({"recompute-method"}) == "block"
               ? yaml_number(flags.whole({"recompute-num-layers"}))
               : "";
}

// Megatron-LM gathers the tokens of all ranks unless another dispatcher is named; 'flex' is DeepEP's, over NVLink first.
std::string dispatch_of(CommandText& flags, bool experts) {
    const std::string type = flags.text({"moe-token-dispatcher-type"});
    if (!experts) {
        return "";
    }
    return type == "flex" || flags.has("moe-enable-deepep") ? "hierarchical"
           : type == "alltoall" || type == "alltoall_seq"   ? "all-to-all"
                                                            : "all-gather";
}

// One type for all layers, or the first layer's. Of two levels the first size is that of the neighbours.
std::string context_exchange_of(CommandText& flags) {
    const std::string type = flags.text({"cp-comm-type"});
    return type == "all_gather" ? "all-gather" : type == "a2a" ? "all-to-all" : type == "a2a+p2p" ? "hierarchical" : "";
}

struct Degrees {
    std::int64_t tensor, pipeline, context;
    [[nodiscard]] std::int64_t product() const { return tensor * pipeline * context; }
};

// Without the flag each step of the loss is a kernel of its own.
std::string loss_of(CommandText& flags) {
    if (!flags.has("cross-entropy-loss-fusion")) {
        return "separate";
    }
    return flags.text({"cross-entropy-fusion-impl"}) == "te" ? "fused" : "compiled";
}

// Layers that the embedding and the loss count as.
std::int64_t accounted(CommandText& flags) {
    return (flags.has("account-for-embedding-in-pipeline-split") ? 1 : 0) +
           (flags.has("account-for-loss-in-pipeline-split") ? 1 : 0);
}

std::int64_t chunks_of(CommandText& flags, std::int64_t pipeline, std::int64_t layers) {
    if (const auto each = flags.whole({"num-layers-per-virtual-pipeline-stage"})) {
        const std::int64_t all = layers + accounted(flags);
        if (all % pipeline != 0 || all / pipeline % *each != 0) {
            throw ConfigError({flags.error(
                {"num-layers-per-virtual-pipeline-stage"},
                fmt::format(
                    "--num-layers-per-virtual-pipeline-stage does not divide the layers of a stage, {} / {}: uneven "
                    "stages take --num-virtual-stages-per-pipeline-rank",
                    all, pipeline))});
        }
        return all / pipeline / *each;
    }
    return flags.whole({"num-virtual-stages-per-pipeline-rank"}, 1000).value_or(1);
}

// Layers of each part in --pipeline-model-parallel-layout: "Et*3|(tt|)*29,m|L", where t is a layer, m one that predicts further tokens
// and | ends a part.
std::vector<std::int64_t> layout_of(const std::string& text) {
    std::string flat;
    const auto times = [&](std::size_t& i) {
        std::size_t count = 0;
        for (++i; i < text.size() && text[i] >= '0' && text[i] <= '9' && count < 10'000; ++i) {
            count = 10 * count + static_cast<std::size_t>(text[i] - '0');
        }
        return std::min<std::size_t>(count, 10'000);
    };
    std::size_t group = 0;
    std::string last;
    for (std::size_t i = 0; i < text.size() && flat.size() < 1'000'000;) {
        const char c = text[i];
        if (c == '*') {
            const std::size_t count = times(i);
            for (std::size_t k = 1; k < count && flat.size() < 1'000'000; ++k) {
                flat += last;
            }
            continue;
        }
        if (c == '(') {
            group = flat.size();
        } else if (c == ')') {
            last = flat.substr(group);
        } else if (c != ',' && c != ' ') {
            last = std::string(1, c);
            flat += c;
        }
        ++i;
    }
    std::vector<std::int64_t> parts(1);
    for (const char c : flat) {
        if (c == '|') {
            parts.push_back(0);
        } else {
            parts.back() += c == 't' || c == 'm' ? 1 : 0;
        }
    }
    return parts;
}

// Layers of each part where Megatron-LM does not divide them evenly, as one YAML value.
std::string stages_of(CommandText& flags, std::int64_t pipeline, std::int64_t chunks, std::int64_t layers) {
    const auto first = flags.whole({"decoder-first-pipeline-num-layers"});
    const auto last = flags.whole({"decoder-last-pipeline-num-layers"});
    const std::string layout = flags.text({"pipeline-model-parallel-layout"});
    std::vector<std::int64_t> parts;
    if (!layout.empty()) {
        parts = layout_of(layout);
        std::int64_t sum = 0;
        for (const std::int64_t part : parts) {
            sum += part;
        }
        if (sum != layers || static_cast<std::int64_t>(parts.size()) % pipeline != 0) {
            throw ConfigError(
                {flags.error({"pipeline-model-parallel-layout"},
                             fmt::format("--pipeline-model-parallel-layout has {} layers in {} parts, and the "
                                         "model has {} in {} stages",
                                         sum, parts.size(), layers, pipeline))});
        }
    } else if (const std::int64_t more = accounted(flags); pipeline > 1 && more > 0) {
        if ((layers + more) % (pipeline * chunks) != 0) {
            throw ConfigError(
                {flags.error({"account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split"},
                             fmt::format("{} layers, embedding and loss among them, do not divide over {} stages of "
                                         "{} chunks",
                                         layers + more, pipeline, chunks))});
        }
        parts.assign(static_cast<std::size_t>(pipeline * chunks), (layers + more) / (pipeline * chunks));
        parts.front() -= flags.has("account-for-embedding-in-pipeline-split") ? 1 : 0;
        parts.back() -= flags.has("account-for-loss-in-pipeline-split") ? 1 : 0;
    } else if (pipeline > 1 && (first || last)) {
        const std::vector<std::string> named = {"decoder-first-pipeline-num-layers",
                                                "decoder-last-pipeline-num-layers"};
        const std::int64_t between = layers - first.value_or(0) - last.value_or(0);
        const std::int64_t inner = pipeline - (first ? 1 : 0) - (last ? 1 : 0);
        if (between < 0 || (inner == 0 ? between != 0 : between % inner != 0)) {
            throw ConfigError(
                {flags.error(named, fmt::format("{} layers do not divide over {} stages this way", layers, pipeline))});
        }
        for (std::int64_t part = 0; part < pipeline * chunks; ++part) {
            const std::int64_t stage = part % pipeline;
            const std::int64_t held = stage == 0 && first             ? *first
                                      : stage == pipeline - 1 && last ? *last
                                                                      : between / std::max<std::int64_t>(1, inner);
            if (held % chunks != 0) {
                throw ConfigError({flags.error(
                    named, fmt::format("{} layers of a stage do not divide into {} chunks", held, chunks))});
            }
            parts.push_back(held / chunks);
        }
    }
    std::string text;
    for (const std::int64_t part : parts) {
        text += fmt::format("{}{{layers: {}}}", text.empty() ? "" : ", ", part);
    }
    return text.empty() ? "" : "[" + text + "]";
}

std::string zero_of(CommandText& flags) {
    const std::string strategy = flags.text({"data-parallel-sharding-strategy"});
    if (flags.has("use-torch-fsdp2")) {
        return "3";
    }
    if (flags.has("use-custom-fsdp") || flags.has("use-megatron-fsdp")) {
        return strategy == "optim"                ? "1"
               : strategy == "optim_grads"        ? "2"
               : strategy == "optim_grads_params" ? "3"
                                                  : "";
    }
    if (std::string stage = flags.text({"zero-stage"}); stage == "1" || stage == "2" || stage == "3") {
        return stage;  // Megatron-DeepSpeed
    }
    return flags.has("use-distributed-optimizer") ? "1" : "";
}

struct Precisions {
    std::string products, scaling, gradients;
};

// Gradients are summed and reduced in 32 bits where weights have bf16, unless a flag says otherwise, and in 16 under fp16.
Precisions precisions_of(CommandText& flags, ImportNotes& notes) {
    const bool eight = flags.has("fp8-format") || flags.has("fp8-hybrid") || flags.has("fp8-e4m3");
    const bool four = flags.has("fp4-format") || flags.has("fp4-recipe");
    const bool half = flags.has("fp16");
    const bool bfloat = flags.has("bf16");
    if (!eight && !four && !half && !bfloat) {
        notes.assumed("training in 32 bits, as Megatron-LM does without --bf16 and --fp16");
        return {"fp32", "", "fp32"};
    }
    const std::string recipe = flags.text({"fp8-recipe"});
    const bool wide_flag = flags.has("accumulate-allreduce-grads-in-fp32");
    const bool narrow = flags.has("grad-reduce-in-bf16") || flags.has("no-accumulate-allreduce-grads-in-fp32") ||
                        flags.text({"main-grads-dtype"}) == "bf16";
    return {four    ? "fp4"
            : eight ? "fp8"
            : half  ? "fp16"
                    : "bf16",
            !eight || four                               ? ""
            : recipe == "tensorwise"                     ? "current"
            : recipe == "mxfp8" || recipe == "blockwise" ? "block"
                                                         : "",
            narrow || (half && !wide_flag) ? (half ? "fp16" : "bf16") : "fp32"};
}

std::string overlap_of(CommandText& flags, const Degrees& degrees, std::int64_t chunks, const std::string& zero) {
    std::vector<std::string> out;
    if (flags.has("tp-comm-overlap") && degrees.tensor > 1) {
        out.emplace_back("tensor: full");
    }
    // Interleaved schedules overlap sends unless they are told not to.
    if (chunks > 1 && !flags.has("no-overlap-p2p-communication")) {
        out.emplace_back("pipeline: true");
    }
    if (flags.has("overlap-grad-reduce") || zero == "3") {
        out.emplace_back("data: true");
    }
    if (flags.has("overlap-param-gather") && (zero == "1" || zero == "2")) {
        out.emplace_back("parameters: true");
    }
    const bool shared = flags.has("moe-shared-expert-overlap");
    if (flags.has("overlap-moe-expert-parallel-comm")) {
        out.emplace_back("experts: batches");
    } else if (shared) {
        out.emplace_back("experts: shared");
    }
    return out.empty() ? "" : fmt::format("{{{}}}", fmt::join(out, ", "));
}

// Share of the optimizer's states that the host keeps; empty where it is not described for such a plan.
std::string offload_of(CommandText& flags, bool described, ImportNotes& notes) {
    if (!flags.has("optimizer-cpu-offload")) {
        return "";
    }
    const std::string fraction = flags.text({"optimizer-offload-fraction"});
    if (!described) {
        notes.left_out(
            "not modelled (the host's optimizer states, with pipeline stages, experts or replicas that do not shard "
            "gradients; memory of GPUs is overstated): --optimizer-cpu-offload");
        return "";
    }
    return fmt::format("{{optimizer: {{tier: dram{}}}}}", fraction.empty() ? "" : ", fraction: " + fraction);
}

// Types of the optimizer's states; empty where all are of 32 bits. From Transformer Engine 2.1 on Megatron-Core holds of a copy in 32
// bits what the bf16 weight lacks.
std::string optimizer_types_of(CommandText& flags, const std::string& products, ImportNotes& notes) {
    const auto type = [&](const char* flag) {
        const std::string given = flags.text({flag});
        return given.empty() ? std::string("fp32") : given;
    };
    const std::string master = type("main-params-dtype");
    const std::string first = type("exp-avg-dtype");
    const std::string second = type("exp-avg-sq-dtype");
    if (!flags.has("use-precision-aware-optimizer")) {
        return "";
    }
    if (flags.has("optimizer-cpu-offload")) {
        notes.left_out("not modelled (types of states that the host keeps): --use-precision-aware-optimizer");
        return "";
    }
    const bool remainders = master == "fp32" && products == "bf16";
    if (master == "fp32" && first == "fp32" && second == "fp32" && !remainders) {
        return "";
    }
    return fmt::format("{{master: {}, first_moment: {}, second_moment: {}{}}}", master, first, second,
                       remainders ? ", remainders: true" : "");
}

std::string attention_of(CommandText& flags) {
    const std::string backend = flags.text({"attention-backend"});
    const bool flash = flags.has("use-flash-attn");
    const bool local = flags.text({"transformer-impl"}) == "local";
    return flash || backend == "flash" ? "flash" : backend == "unfused" || backend == "local" || local ? "unfused" : "";
}

// Deviations from the preset of the software, as one YAML value.
std::string software_of(CommandText& flags) {
    std::string out;
    const std::string scope = flags.text({"cuda-graph-scope"});
    const std::string way = flags.text({"cuda-graph-impl"});
    if (flags.has("enable-cuda-graph") || flags.has("external-cuda-graph") || (!way.empty() && way != "none")) {
        out += scope == "full_iteration" ? ", graphs: iteration" : ", graphs: layers";
    }
    if (flags.has("no-gradient-accumulation-fusion")) {
        out += ", fused_gradient_accumulation: false";
    }
    if (const auto bucket = flags.whole({"ddp-bucket-size"})) {
        out += fmt::format(
            ", gradient_bucket: {{value: {}, how: spec, source: \"--ddp-bucket-size\"}}, gradient_bucket_per_rank: "
            "{{value: "
            "0, how: spec, source: \"--ddp-bucket-size\"}}",
            *bucket);
    }
    return out.empty() ? "" : "software: {preset: megatron-core-2024" + out + "}\n";
}

YamlLines plan_of(CommandText& flags, const Degrees& degrees, std::int64_t data, std::int64_t layers,
                  ImportNotes& notes) {
    std::int64_t chunks = chunks_of(flags, degrees.pipeline, layers);
    const std::string stages = stages_of(flags, degrees.pipeline, chunks, layers);
    if (flags.has("pipeline-model-parallel-layout")) {
        chunks = (1 + std::count(stages.begin(), stages.end(), ',')) / degrees.pipeline;
    }
    const bool experts = flags.whole({"num-experts"}).value_or(1) > 1;
    const std::int64_t micro = flags.whole({"micro-batch-size"}, 1e6).value_or(1);
    const bool sequence = flags.has("sequence-parallel");
    if (experts && degrees.tensor > 1 && !sequence) {
        notes.assumed("--sequence-parallel, without which Megatron-LM refuses experts under tensor parallelism");
    }
    std::optional<std::int64_t> global = flags.whole({"global-batch-size"});
    if (!global) {
        notes.assumed(
            "a global batch of micro-batch times data-parallel degree, as Megatron-LM does without "
            "--global-batch-size");
        global = micro * data;
    }
    const std::string zero = zero_of(flags);
    const Precisions precisions = precisions_of(flags, notes);
    const auto [recompute, modules] = recompute_of(flags, notes);
    const std::string types = optimizer_types_of(flags, precisions.products, notes);
    const bool described =
        degrees.pipeline == 1 && !experts && (zero == "2" || zero == "3" || data * degrees.context == 1);
    return {
        {"tensor", std::to_string(degrees.tensor)},
        {"pipeline", std::to_string(degrees.pipeline)},
        {"context", degrees.context > 1 ? std::to_string(degrees.context) : ""},
        {"context_exchange", degrees.context > 1 ? context_exchange_of(flags) : ""},
        {"context_inner", degrees.context > 1 ? yaml_number(flags.whole({"hierarchical-context-parallel-sizes"})) : ""},
        {"data", std::to_string(data)},
        {"spread", flags.has("use-tp-pp-dp-mapping") && degrees.pipeline > 1 && data > 1 ? "replicas" : ""},
        {"expert", yaml_number(flags.whole({"expert-model-parallel-size", "moe-expert-parallel-size"}))},
        {"expert_tensor",
         experts ? std::to_string(flags.whole({"expert-tensor-parallel-size"}).value_or(degrees.tensor)) : ""},
        {"dispatch", dispatch_of(flags, experts)},
        {"capacity", flags.text({"moe-expert-capacity-factor"})},
        {"pad", flags.has("moe-pad-expert-input-to-capacity") ? "true" : ""},
        {"micro_batch", std::to_string(micro)},
        {"global_batch", yaml_number(global)},
        {"schedule", chunks > 1 ? "interleaved" : ""},
        {"chunks", chunks > 1 ? std::to_string(chunks) : ""},
        {"stages", stages},
        {"recompute", recompute},
        {"recompute_layers", recompute_layers_of(flags, recompute)},
        {"recompute_modules", modules},
        {"sequence_parallel", sequence || (experts && degrees.tensor > 1) ? "true" : ""},
        {"zero", zero},
        {"states", types.empty() ? "" : "mixed"},
        {"optimizer_types", types},
        {"precision", precisions.products},
        {"fp8_scaling", precisions.scaling},
        {"gradient_precision", precisions.gradients},
        {"attention", attention_of(flags)},
        {"loss", loss_of(flags)},
        {"offload", offload_of(flags, described, notes)},
        {"overlap", overlap_of(flags, degrees, chunks, zero)}};
}

struct Size {
    std::int64_t gpus, per_node;
};

// GPUs and GPUs of a node: what the launcher's flags say, or Slurm's directives.
Size size_of(CommandText& flags, const Degrees& degrees, std::int64_t asked, ImportNotes& notes) {
    const std::string resources = flags.text({"gres"});  // gpu:h100:8
    std::optional<std::int64_t> per_node = number_if_given(flags, {"nproc-per-node", "num-gpus", "gpus-per-node"});
    if (!per_node && !resources.empty()) {
        const std::string last = resources.substr(resources.rfind(':') + 1);
        per_node = last.size() < 4 && !last.empty() && last.find_first_not_of("0123456789") == std::string::npos
                       ? std::optional<std::int64_t>(std::max(1, std::stoi(last)))
                       : std::nullopt;
    }
    if (!per_node) {
        per_node = number_if_given(flags, {"ntasks-per-node"});
        per_node = per_node && *per_node > 1 ? per_node : std::nullopt;
    }
    const std::int64_t in_node = std::min<std::int64_t>(per_node.value_or(8), 65536);
    std::optional<std::int64_t> nodes;
    for (const char* flag : {"nnodes", "num-nodes", "nodes", "N"}) {
        nodes = nodes ? nodes : number_if_given(flags, {flag});
    }
    const std::optional<std::int64_t> tasks = number_if_given(flags, {"np", "ntasks"});
    std::int64_t gpus = asked;
    if (gpus == 0 && (nodes || tasks)) {
        gpus = nodes ? *nodes * in_node : *tasks;
    }
    if (gpus == 0) {
        // Attention and experts both fill all ranks.
        const std::int64_t expert = flags.degree({"expert-model-parallel-size"});
        const std::int64_t cut =
            expert > 1 ? flags.whole({"expert-tensor-parallel-size"}, 65536).value_or(degrees.tensor) : 1;
        const double both =
            static_cast<double>(expert) * static_cast<double>(cut) * static_cast<double>(degrees.pipeline);
        constexpr double kMost = 1 << 20;
        const std::int64_t filled = expert > 1 && both <= kMost && degrees.product() <= (1 << 20)
                                        ? std::lcm(degrees.product(), static_cast<std::int64_t>(both))
                                        : degrees.product();
        gpus = std::max(in_node, filled);
        notes.assumed(fmt::format("{} GPUs: the text does not say how many (--gpus N)", gpus));
    }
    return {gpus, in_node};
}

}  // namespace

Imported megatron_scenario(CommandText& flags, const ImportInput& input, const std::string& title) {
    Imported out;
    if (flags.has("vision-model-type") || flags.has("img-h")) {
        throw ConfigError({flags.error({"vision-model-type", "img-h"},
                                       "encoders of images are not read: write 'model.encoder' in the scenario")});
    }
    const Degrees degrees = {flags.degree({"tensor-model-parallel-size"}),
                             flags.degree({"pipeline-model-parallel-size"}), flags.degree({"context-parallel-size"})};
    const YamlLines model = megatron_model(flags, degrees.tensor, out.notes);
    const Size size = size_of(flags, degrees, input.whole_option("gpus"), out.notes);
    const std::int64_t gpus = size.gpus;
    if (gpus % degrees.product() != 0) {
        throw ConfigError(
            {flags.error({"tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size"},
                         fmt::format("tensor {} x pipeline {} x context {} does not divide {} GPUs", degrees.tensor,
                                     degrees.pipeline, degrees.context, gpus))});
    }
    std::string node = input.option("node");
    if (node.empty()) {
        node = "dgx-h100";
        out.notes.assumed("nodes of dgx-h100 (--node NAME; orrery list nodes)");
    }
    const YamlLines plan = plan_of(flags, degrees, gpus / degrees.product(), std::stoll(model[1].second), out.notes);
    if (flags.text({"optimizer"}) != "adam") {
        flags.forget("optimizer");
    }
    const std::int64_t in_node = std::min(gpus, size.per_node);
    const bool offloads = std::any_of(plan.begin(), plan.end(),
                                      [](const auto& line) { return line.first == "offload" && !line.second.empty(); });
    std::string changes = in_node == 8 ? "" : fmt::format(", gpus: {}", in_node);
    if (offloads) {
        out.notes.assumed("1 TB of DRAM at 300 GB/s in a node for the optimizer (cluster.node.host.tiers)");
        changes +=
            ", host: {tiers: [{name: dram, medium: dram, capacity: 1 TB, read: {value: 300 GB/s, how: assumed, source: "
            "\"eight "
            "channels of DDR5-4800\"}, latency: 100 ns}]}";
    }
    out.text =
        title + "\norrery: 1\nkind: training\n" +
        yaml_section("cluster", {{"nodes", std::to_string((gpus + in_node - 1) / in_node)},
                                 {"node", changes.empty() ? node : fmt::format("{{preset: {}{}}}", node, changes)}}) +
        yaml_section("model", model) + yaml_section("plan", plan) + software_of(flags);
    out.scenario = true;
    out.use = "'orrery run' as it is";
    flags.count(out.notes, megatron_flag_groups());
    out.facts.push_back({"GPUs", std::to_string(gpus)});
    return out;
}

namespace {

Imported read_megatron_arguments(const ImportInput& input) {
    CommandText flags = CommandText::of_script(input.bytes(), input.path(), input.option("variables"));
    flags.complete(megatron_flag_groups());
    return megatron_scenario(
        flags, input, "# How long is one iteration of this Megatron-LM run? Written by 'orrery import megatron-args'.");
}

}  // namespace

extern const Importer kMegatronImporter = {
    "megatron-args",
    "the command line or script of a Megatron-LM run, as a training scenario",
    {{"gpus", "N", "GPUs of the run, where the text does not say it"},
     {"node", "NAME", "type of the nodes (orrery list nodes)"},
     {"variables", "NAME=VALUE", "variables that the script takes from its environment, by spaces; 1=VALUE for $1"}},
    read_megatron_arguments,
    "yaml"};

}  // namespace orrery::imports
