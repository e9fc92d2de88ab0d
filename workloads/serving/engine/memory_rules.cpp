#include "workloads/serving/engine/memory_rules.hpp"

namespace orrery::serving {

void describe(Fields& fields, MemoryRules& rules) {
    fields.enumeration(
        {"rule", "engine whose way of sizing the cache is followed; none: kv.memory less reserved_memory"},
        {"none", "vllm", "sglang", "tensorrt-llm"}, rules.rule);
    fields.when(rules.rule != MemoryRule::none, "a rule", [&](Fields& same) {
        const auto bytes = [&](const char* key, const char* doc, double most, Sourced<double>& value) {
            same.sourced({key, doc, false, 0, most}, Dimension::bytes, value);
        };
        const auto widths = [&](const char* key, const char* doc, Sourced<double>& value) {
            same.sourced({key, doc, false, 0, 100}, Dimension::fraction, value);
        };
        bytes("context", "memory of a rank outside of the framework's allocator, without communicators", 1e12,
              rules.context);
        bytes("communicators", "memory of a rank for communicators, from two ranks on", 1e12, rules.communicators);
        bytes("logits", "memory of a sequence and a vocabulary entry at the peak of sampling", 1e4, rules.logits);
        widths("sampled_token", "16-bit values of a token at the peak of sampling, in widths of the model",
               rules.sampled_token);
        widths("forward_token", "16-bit values of a token at the widest point of a layer, in widths of the model",
               rules.forward_token);
        widths("forward_inner",
               "16-bit values of a token at the widest point of a layer, in inner widths of the feed-forward",
               rules.forward_inner);
        bytes("layer_graphs", "memory of the captured graphs of a dense layer", 1e12, rules.layer_graphs);
        bytes("expert_graphs", "memory of the captured graphs of a layer with routed experts", 1e12,
              rules.expert_graphs);
        same.boolean(
            {"graphs_inside", "count CUDA graphs inside the engine's memory share; otherwise they come on top"},
            rules.graphs_inside);
        same.boolean({"hybrid", "windowed and linear layers have pages of groups of their own"}, rules.hybrid);
        same.boolean({"counts_requests", "report capacity as the number of longest requests times their length"},
                     rules.counts_requests);
    });
}

}  // namespace orrery::serving
