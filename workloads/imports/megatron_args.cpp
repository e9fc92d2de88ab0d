// The command line of a Megatron-LM training run (megatron/training/arguments.py) as a training scenario: model and plan.
//
// Claims: the flags that decide times and memory here. The cluster is what the launcher's flags (torchrun: --nnodes,
// --nproc_per_node) or --gpus say, else the smallest that the degrees fill; its node is --node.

#include "sim/base/error.hpp"
#include "workloads/imports/command_text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::imports {

namespace {

std::string number(const std::optional<std::int64_t>& value) {
    return value ? std::to_string(*value) : "";
}

// Routed experts of a layer, as one YAML value; empty when there are none.
std::string experts_of(CommandText& flags, ImportNotes& notes) {
    const std::optional<std::int64_t> count = flags.whole({"num-experts"});
    if (!count) {
        return "";
    }
    std::optional<std::int64_t> width = flags.whole({"moe-ffn-hidden-size"});
    if (!width) {
        width = flags.whole({"ffn-hidden-size"});
    }
    if (!width) {
        notes.assumed("experts four times as wide as the model, as Megatron-LM does without --ffn-hidden-size");
        width = 4 * flags.whole({"hidden-size"}).value_or(0);
    }
    std::string text =
        fmt::format("{{count: {}, topk: {}, ffn: {}", *count, flags.whole({"moe-router-topk"}).value_or(2), *width);
    const std::pair<const char*, const char*> others[] = {{"shared", "moe-shared-expert-intermediate-size"},
                                                          {"every", "moe-layer-freq"},
                                                          {"groups", "moe-router-num-groups"},
                                                          {"group_topk", "moe-router-group-topk"}};
    for (const auto& [key, flag] : others) {
        if (const auto value = flags.whole({flag})) {
            text += fmt::format(", {}: {}", key, *value);
        }
    }
    return text + "}";
}

YamlLines model_of(CommandText& flags, ImportNotes& notes) {
    const auto needed = [&](const char* flag) {
        const std::optional<std::int64_t> value = flags.whole({flag});
        if (!value) {
            throw ConfigError(
                {flags.error({}, fmt::format("--{} is missing: the model is not known without it", flag))});
        }
        return std::to_string(*value);
    };
    std::optional<std::int64_t> vocabulary = flags.whole({"padded-vocab-size", "vocab-size"});
    if (!vocabulary) {
        notes.assumed("a vocabulary of 51,200 tokens: it is in a file that the command line names");
        vocabulary = 51200;
    }
    return {{"name", "imported"},
            {"layers", needed("num-layers")},
            {"hidden", needed("hidden-size")},
            {"heads", needed("num-attention-heads")},
            {"kv_heads", number(flags.whole({"num-query-groups"}))},
            {"head_dim", number(flags.whole({"kv-channels"}))},
            {"ffn", number(flags.whole({"ffn-hidden-size"}))},
            {"experts", experts_of(flags, notes)},
            {"gated", flags.has("swiglu") ? "true" : ""},
            {"vocabulary", number(vocabulary)},
            {"sequence", needed("seq-length")},
            {"tied_embeddings", flags.has("untie-embeddings-and-output-weights") ? "false" : "true"},
            {"rotary", flags.has("use-rotary-position-embeddings") || flags.text({"position-embedding-type"}) == "rope"
                           ? "true"
                           : ""}};
}

std::string recompute_of(CommandText& flags) {
    const std::string granularity = flags.text({"recompute-granularity"});
    if (flags.has("recompute-activations")) {
        return "selective";
    }
    return granularity;  // full or selective, as here
}

// 'block' recomputes the first layers of each stage or chunk, 'uniform' all of them in groups of so many.
std::string recompute_layers_of(CommandText& flags, const std::string& granularity) {
    return granularity == "full" && flags.text({"recompute-method"}) == "block"
               ? number(flags.whole({"recompute-num-layers"}))
               : "";
}

// Megatron-LM gathers the tokens of all ranks unless another dispatcher is named; 'flex' is DeepEP's, over NVLink first.
std::string dispatch_of(CommandText& flags, bool experts) {
    const std::string type = flags.text({"moe-token-dispatcher-type"});
    if (!experts) {
        return "";
    }
    return type == "alltoall" ? "all-to-all" : type == "flex" ? "hierarchical" : "all-gather";
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

YamlLines plan_of(CommandText& flags, const Degrees& degrees, std::int64_t data, std::int64_t layers,
                  ImportNotes& notes) {
    std::string chunks = number(flags.whole({"num-virtual-stages-per-pipeline-rank"}));
    if (const auto each = flags.whole({"num-layers-per-virtual-pipeline-stage"})) {
        if (layers % degrees.pipeline != 0 || layers / degrees.pipeline % *each != 0) {
            throw ConfigError(
                {flags.error({"num-layers-per-virtual-pipeline-stage"},
                             "--num-layers-per-virtual-pipeline-stage does not divide the layers of a stage")});
        }
        chunks = std::to_string(layers / degrees.pipeline / *each);
    }
    const bool experts = flags.has("num-experts");
    const std::int64_t micro = flags.whole({"micro-batch-size"}, 1e6).value_or(1);
    std::optional<std::int64_t> global = flags.whole({"global-batch-size"});
    if (!global) {
        notes.assumed(
            "a global batch of micro-batch times data-parallel degree, as Megatron-LM does without "
            "--global-batch-size");
        global = micro * data;
    }
    const bool sharded = flags.has("use-torch-fsdp2") || flags.has("use-custom-fsdp") || flags.has("use-megatron-fsdp");
    return {{"tensor", std::to_string(degrees.tensor)},
            {"pipeline", std::to_string(degrees.pipeline)},
            {"context", degrees.context > 1 ? std::to_string(degrees.context) : ""},
            {"context_exchange", degrees.context > 1 ? context_exchange_of(flags) : ""},
            {"context_inner", degrees.context > 1 ? number(flags.whole({"hierarchical-context-parallel-sizes"})) : ""},
            {"data", std::to_string(data)},
            {"expert", number(flags.whole({"expert-model-parallel-size"}))},
            {"expert_tensor",
             experts ? std::to_string(flags.whole({"expert-tensor-parallel-size"}).value_or(degrees.tensor)) : ""},
            {"dispatch", dispatch_of(flags, experts)},
            {"capacity", flags.text({"moe-expert-capacity-factor"})},
            {"pad", flags.has("moe-pad-expert-input-to-capacity") ? "true" : ""},
            {"micro_batch", std::to_string(micro)},
            {"global_batch", number(global)},
            {"schedule", chunks.empty() || chunks == "1" ? "" : "interleaved"},
            {"chunks", chunks == "1" ? "" : chunks},
            {"recompute", recompute_of(flags)},
            {"recompute_layers", recompute_layers_of(flags, recompute_of(flags))},
            {"sequence_parallel", flags.has("sequence-parallel") ? "true" : ""},
            {"zero", sharded                                  ? "3"
                     : flags.has("use-distributed-optimizer") ? "1"
                                                              : ""},
            {"precision", flags.has("fp8-format") || flags.has("fp8-hybrid") ? "fp8"
                          : flags.has("fp16")                                ? "fp16"
                          : flags.has("bf16")                                ? "bf16"
                                                                             : ""},
            {"attention", flags.has("use-flash-attn") ? "flash" : ""},
            {"loss", loss_of(flags)},
            {"overlap", flags.has("overlap-grad-reduce")
                            ? (flags.has("overlap-param-gather") ? "{data: true, parameters: true}" : "{data: true}")
                            : ""}};
}

Imported read_megatron_arguments(const ImportInput& input) {
    CommandText flags(input.bytes(), input.path());
    Imported out;
    if (flags.has("multi-latent-attention")) {
        throw ConfigError({flags.error({"multi-latent-attention"},
                                       "--multi-latent-attention is not read: write 'model.latent' in the scenario")});
    }
    if (flags.has("hybrid-override-pattern") || flags.has("hybrid-layer-pattern")) {
        throw ConfigError({flags.error({"hybrid-override-pattern", "hybrid-layer-pattern"},
                                       "patterns of hybrid layers are not read: write 'model.pattern' and "
                                       "'model.state_space' in the scenario")});
    }
    if (flags.has("vision-model-type") || flags.has("img-h")) {
        throw ConfigError({flags.error({"vision-model-type", "img-h"},
                                       "encoders of images are not read: write 'model.encoder' in the scenario")});
    }
    const YamlLines model = model_of(flags, out.notes);
    const Degrees degrees = {flags.degree({"tensor-model-parallel-size"}),
                             flags.degree({"pipeline-model-parallel-size"}), flags.degree({"context-parallel-size"})};
    std::int64_t gpus = input.whole_option("gpus");
    const std::int64_t per_node = flags.whole({"nproc-per-node", "nproc_per_node"}, 65536).value_or(8);
    const std::optional<std::int64_t> nodes = flags.whole({"nnodes"}, 1 << 20);
    if (gpus == 0 && nodes) {
        gpus = *nodes * per_node;
    }
    if (gpus == 0) {
        gpus = std::max(per_node, degrees.product());
        out.notes.assumed(fmt::format("{} GPUs: the text does not say how many (--gpus N)", gpus));
    }
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
    const std::int64_t in_node = std::min(gpus, per_node);
    out.text =
        "# How long is one iteration of this Megatron-LM run? Written by 'orrery import megatron-args'.\norrery: "
        "1\nkind: training\n" +
        yaml_section("cluster",
                     {{"nodes", std::to_string((gpus + in_node - 1) / in_node)},
                      {"node", in_node == 8 ? node : fmt::format("{{preset: {}, gpus: {}}}", node, in_node)}}) +
        yaml_section("model", model) + yaml_section("plan", plan);
    out.use = "'orrery run' as it is";
    flags.count(out.notes);
    out.facts.push_back({"GPUs", std::to_string(gpus)});
    return out;
}

}  // namespace

extern const Importer kMegatronImporter = {"megatron-args",
                                           "the command line or script of a Megatron-LM run, as a training scenario",
                                           {{"gpus", "N", "GPUs of the run, where the text does not say it"},
                                            {"node", "NAME", "what a node is (orrery list nodes)"}},
                                           read_megatron_arguments,
                                           "yaml"};

}  // namespace orrery::imports
