#include "workloads/imports/bridge_recipe.hpp"

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/fields.hpp"
#include "sim/config/yaml_tree.hpp"
#include "workloads/model/model_spec.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <string_view>
#include <vector>

namespace orrery::imports {

namespace {

constexpr const char* kRecipes = "workloads/data/bridge_recipes.csv";

ModelSpec preset(const std::string& name, const DataDirectory& data) {
    ModelSpec out;
    std::vector<Diagnostic> errors;
    read_fields(*data.preset(kModelPresets, name), data, errors, [&](Fields& fields) { describe(fields, out); });
    complete(out);
    return out;
}

// The keys of a model, as ConfigContainer has them.
std::string model_keys(const ModelSpec& model) {
    std::string out = fmt::format(
        "num_layers: {}, hidden_size: {}, ffn_hidden_size: {}, num_attention_heads: {}, num_query_groups: {}, "
        "kv_channels: {}, vocab_size: {}, position_embedding_type: rope, normalization: RMSNorm, add_bias_linear: "
        "false, gated_linear_unit: {}, share_embeddings_and_output_weights: {}",
        model.layers, model.hidden, model.ffn, model.heads, model.kv_heads, model.head_dim, model.vocabulary,
        model.gated, model.tied_embeddings);
    if (model.query_key_norm != QueryKeyNorm::none) {
        out += ", qk_layernorm: true";
    }
    if (const LatentSpec& latent = model.latent; latent.kv_rank > 0) {
        out += fmt::format(
            ", multi_latent_attention: true, kv_lora_rank: {}, q_lora_rank: {}, qk_head_dim: {}, "
            "qk_pos_emb_head_dim: {}, v_head_dim: {}",
            latent.kv_rank, latent.q_rank, model.head_dim, latent.rotary,
            latent.value_dim > 0 ? latent.value_dim : model.head_dim);
    }
    if (const ExpertsSpec& experts = model.experts; experts.count > 0) {
        out +=
            fmt::format(", num_moe_experts: {}, moe_router_topk: {}, moe_ffn_hidden_size: {}, moe_grouped_gemm: true",
                        experts.count, experts.topk, experts.ffn);
        out += experts.shared > 0 ? fmt::format(", moe_shared_expert_intermediate_size: {}", experts.shared) : "";
        std::vector<int> has(static_cast<std::size_t>(model.layers), 1);
        for (std::int64_t layer = 0; layer < experts.dense_layers; ++layer) {
            has[static_cast<std::size_t>(layer)] = 0;
        }
        out += experts.dense_layers > 0 ? fmt::format(", moe_layer_freq: [{}]", fmt::join(has, ", ")) : "";
        if (experts.groups > 1) {
            out += fmt::format(", moe_router_num_groups: {}, moe_router_group_topk: {}", experts.groups,
                               experts.group_topk);
        }
    }
    return out;
}

}  // namespace

std::string bridge_recipe(const std::string& written) {
    std::string name = written.substr(written.rfind(':') + 1);
    std::string last = name.substr(name.rfind('.') + 1);
    for (const std::string_view plain : {"pretrain_config", "pretrain", "config", "sft_config", "finetune_config"}) {
        if (last == plain && name.find('.') != std::string::npos) {  // of a module that is called as the recipe
            name = name.substr(0, name.rfind('.'));
            last = name.substr(name.rfind('.') + 1);
        }
    }
    for (const std::string_view end : {"_pretrain_config", "_pretrain", "_config"}) {
        if (last.size() > end.size() && last.ends_with(end)) {
            return last.substr(0, last.size() - end.size());
        }
    }
    return written.find("megatron.bridge.recipes") != std::string::npos ? last : "";
}

std::string bridge_defaults(const std::string& recipe, const DataDirectory& data) {
    std::ifstream file(data.path(kRecipes));
    std::vector<std::string> known;
    for (std::string line; std::getline(file, line);) {
        const std::vector<std::string_view> cells = split(std::string_view(line), ',');
        if (line.empty() || line[0] == '#' || cells.size() != 12 || cells[0] == "recipe") {
            continue;
        }
        known.emplace_back(cells[0]);
        if (cells[0] != recipe) {
            continue;
        }
        const bool parallel = cells[2] != "1";
        std::string out = fmt::format(
            "model: {{{}, seq_length: {}, tensor_model_parallel_size: {}, pipeline_model_parallel_size: {}, "
            "context_parallel_size: {}, sequence_parallel: {}",
            model_keys(preset(std::string(cells[1]), data)), cells[7], cells[2], cells[3], cells[5], parallel);
        out += cells[4].empty() ? "" : fmt::format(", virtual_pipeline_model_parallel_size: {}", cells[4]);
        out += cells[6].empty()
                   ? ""
                   : fmt::format(", expert_model_parallel_size: {}, expert_tensor_parallel_size: 1", cells[6]);
        out += cells[10] == "full" ? ", recompute_granularity: full, recompute_method: uniform, recompute_num_layers: 1"
               : cells[10].empty() ? ""
                                   : fmt::format(", recompute_granularity: {}", cells[10]);
        out += fmt::format(
            "}}\ntrain: {{global_batch_size: {}, micro_batch_size: {}}}\n"
            "optimizer: {{use_distributed_optimizer: true}}\n"
            "ddp: {{overlap_grad_reduce: true, overlap_param_gather: true, grad_reduce_in_fp32: {}}}\n"
            "comm_overlap: {{tp_comm_overlap: {}}}\nmixed_precision: bf16_mixed\n",
            cells[8], cells[9], cells[11] != "bf16", cells[11] == "tp");
        return out;
    }
    throw ConfigError(fmt::format("'{}' is none of the recipes of Megatron-Bridge that are known here ({}): write its "
                                  "model and arrangement out ('model.num_layers', ...)",
                                  printable(recipe, 60), fmt::join(known, ", ")),
                      ErrorCode::unknown_name);
}

}  // namespace orrery::imports
