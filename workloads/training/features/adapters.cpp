#include "workloads/training/features/adapters.hpp"

#include "workloads/training/plan/name_list.hpp"
#include "workloads/training/plan/spec.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace orrery::training {

namespace {

/// A product that may have an adapter: a row each.
struct AdapterModule {
    const char* name;
    LayerProduct product;
    const char* with;  ///< what it is a part of, where libraries fuse products; empty: of nothing
    AdapterShape (*shape)(const ModelSpec&);
};

constexpr AdapterShape shape(double inputs, double outputs) {
    return {inputs, outputs};
}

double hidden(const ModelSpec& model) {
    return static_cast<double>(model.hidden);
}

double width(const ModelSpec& model) {
    return static_cast<double>(model.ffn);
}

const std::vector<AdapterModule>& modules() {
    using Product = LayerProduct;
    static const std::vector<AdapterModule> kModules = {
        {"query", Product::attention_in, "qkv", [](const ModelSpec& m) { return shape(hidden(m), m.q_width()); }},
        {"key", Product::attention_in, "qkv", [](const ModelSpec& m) { return shape(hidden(m), m.kv_width()); }},
        {"value", Product::attention_in, "qkv", [](const ModelSpec& m) { return shape(hidden(m), m.kv_width()); }},
        {"qkv", Product::attention_in, "",
         [](const ModelSpec& m) { return shape(hidden(m), m.q_width() + 2 * m.kv_width()); }},
        {"output", Product::attention_out, "", [](const ModelSpec& m) { return shape(m.q_width(), hidden(m)); }},
        {"gate", Product::ffn_in, "gate_up", [](const ModelSpec& m) { return shape(hidden(m), width(m)); }},
        {"up", Product::ffn_in, "gate_up", [](const ModelSpec& m) { return shape(hidden(m), width(m)); }},
        {"gate_up", Product::ffn_in, "", [](const ModelSpec& m) { return shape(hidden(m), 2 * width(m)); }},
        {"down", Product::ffn_out, "", [](const ModelSpec& m) { return shape(width(m), hidden(m)); }},
    };
    return kModules;
}

std::vector<std::string> adapter_module_names() {
    std::vector<std::string> out;
    for (const AdapterModule& module : modules()) {
        out.emplace_back(module.name);
    }
    return out;
}

bool cuts_outputs(LayerProduct product) {
    return product == LayerProduct::attention_in || product == LayerProduct::ffn_in;
}

constexpr LayerProduct kProducts[] = {LayerProduct::attention_in, LayerProduct::attention_out, LayerProduct::ffn_in,
                                      LayerProduct::ffn_out};

std::vector<std::string> module_problems(const ModelSpec& model, const AdapterPlan& adapters) {
    std::vector<std::string> out;
    const std::vector<std::string> known = adapter_module_names();
    const std::vector<std::string> given = names_in(adapters.modules);
    if (given.empty()) {
        out.push_back(fmt::format("adapters.modules names none of {}: nothing is trained", fmt::join(known, ", ")));
    }
    for (std::size_t i = 0; i < given.size(); ++i) {
        const std::string& name = given[i];
        const auto row = std::find(known.begin(), known.end(), name);
        if (row == known.end()) {
            const std::string nearest = nearest_name(name, known);
            out.push_back(fmt::format("adapters.modules names '{}'; there are {}{}", name, fmt::join(known, ", "),
                                      nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest)));
            continue;
        }
        if (std::find(given.begin(), given.begin() + static_cast<std::ptrdiff_t>(i), name) !=
            given.begin() + static_cast<std::ptrdiff_t>(i)) {
            out.push_back(fmt::format("adapters.modules names '{}' twice", name));
        }
        const AdapterModule& module = modules()[static_cast<std::size_t>(row - known.begin())];
        if (*module.with != '\0' && std::find(given.begin(), given.end(), module.with) != given.end()) {
            out.push_back(fmt::format("adapters.modules: '{}' is a part of '{}': give one", name, module.with));
        }
        if (!model.gated && (name == "gate" || name == "gate_up")) {
            out.push_back(
                fmt::format("adapters.modules: the feed-forward of this model has no gate, so no '{}'", name));
        }
    }
    return out;
}

}  // namespace

void AdapterPlan::describe(Fields& fields) {
    fields.integer({"rank", "rank of the two matrices of an adapter", true, 1, 16'384}, rank);
    fields.text(
        {"modules", "products with an adapter, by commas: query, key, value or qkv, output; gate, up or gate_up, down"},
        modules);
    fields.enumeration(
        {"base",
         "format of the frozen weights of layers; nf4: 4 bits with double quantisation; gptq: 4 bits in groups of 128"},
        {"16-bit", "fp8", "nf4", "gptq"}, base);
    fields.boolean({"wide_inputs",
                    "inputs of layers are kept in 32 bits (PEFT's prepare_model_for_kbit_training widens norms and "
                    "tables)"},
                   wide_inputs);
}

void AdapterPlan::check(const ModelSpec& model, const PlanSpec& plan, PlanProblems& out) const {
    for (const std::string& problem : module_problems(model, *this)) {
        out.refuse(true, problem);
    }
    out.refuse(base != BaseWeights::whole && plan.precision == Precision::fp4,
               "adapters.base of fewer bits with precision: fp4 is not modelled");
    out.refuse((base == BaseWeights::nf4 || base == BaseWeights::gptq) && plan.precision == Precision::fp8,
               "adapters.base of 4 bits is widened to 16 bits before products: precision: bf16 or fp16");
    const bool in_experts = !adapters_of(model, plan, LayerProduct::ffn_in).empty() ||
                            !adapters_of(model, plan, LayerProduct::ffn_out).empty();
    out.refuse(model.experts.count > 0 && in_experts,
               "adapters.modules of a model with experts: adapters of experts are not modelled, but query, key, value, "
               "qkv and output");
}

std::optional<RankWeights> AdapterPlan::own_weights(const ModelSpec& model, const PlanSpec& plan,
                                                    const LayerMix& layers, double tables) const {
    return RankWeights{layers.total() * adapter_weights(model, plan).all, 0, frozen_bytes(model, plan, layers, tables)};
}

std::vector<AdapterShape> adapters_of(const ModelSpec& model, const PlanSpec& plan, LayerProduct product) {
    std::vector<AdapterShape> out;
    if (!plan.has<AdapterPlan>()) {
        return out;
    }
    const std::vector<std::string> given = names_in(plan.feature<AdapterPlan>().modules);
    const auto cut = static_cast<double>(plan.tensor);
    for (const AdapterModule& module : modules()) {
        if (module.product == product && std::find(given.begin(), given.end(), module.name) != given.end()) {
            AdapterShape one = module.shape(model);
            (cuts_outputs(product) ? one.outputs : one.inputs) /= cut;
            out.push_back(one);
        }
    }
    return out;
}

AdapterWeights adapter_weights(const ModelSpec& model, const PlanSpec& plan) {
    AdapterWeights out;
    const auto rank = static_cast<double>(plan.feature<AdapterPlan>().rank);
    for (const LayerProduct product : kProducts) {
        for (const AdapterShape& one : adapters_of(model, plan, product)) {
            out.all += rank * (one.inputs + one.outputs);
            out.shared += plan.tensor > 1 ? rank * (cuts_outputs(product) ? one.inputs : one.outputs) : 0;
        }
    }
    return out;
}

double trained_parameters(const ModelSpec& model, const PlanSpec& plan) {
    if (!plan.has<AdapterPlan>()) {
        return model.parameters();
    }
    PlanSpec whole = plan;
    whole.tensor = 1;
    return static_cast<double>(model.layers) * adapter_weights(model, whole).all;
}

double base_bytes(const AdapterPlan& adapters) {
    constexpr double kNf4 = (4 + 8.0 / 64 + 32.0 / (64 * 256)) / 8;
    constexpr double kGptq = (4 + (16.0 + 4) / 128) / 8;
    switch (adapters.base) {
        case BaseWeights::nf4:
            return kNf4;
        case BaseWeights::gptq:
            return kGptq;
        case BaseWeights::fp8:
            return 1;
        default:
            return 2;
    }
}

double frozen_bytes(const ModelSpec& model, const PlanSpec& plan, const LayerMix& layers, double tables) {
    const double norms = 4 * hidden(model);
    const double base = base_bytes(plan.feature<AdapterPlan>());
    const double beside = model.attention_parameters() + model.unrouted_parameters();
    const double routed =
        model.routed_parameters() / static_cast<double>(plan.experts.expert * plan.expert_tensor());  // on a rank
    return (layers.dense * base * (model.layer_parameters() - norms) + layers.experts * base * beside +
            2 * norms * layers.total() + 2 * tables * model.embedding_parameters()) /
               static_cast<double>(plan.tensor) +
           layers.experts * base * routed;
}

std::optional<double> AdapterPlan::flops_per_token(const ModelSpec& model, const PlanSpec& plan) const {
    double frozen = model.embedding_parameters();
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        const ExpertsSpec& experts = model.experts;
        frozen += model.kind_of(layer).experts ? model.attention_parameters() + model.unrouted_parameters() +
                                                     model.routed_parameters() * static_cast<double>(experts.topk) /
                                                         static_cast<double>(experts.count)
                                               : model.layer_parameters() - 4 * hidden(model);
    }
    return model.flops_per_token() - 2 * frozen + 6 * trained_parameters(model, plan);
}

extern const FeatureRow kAdapters;
const FeatureRow kAdapters = {"adapters",
                              "low-rank adapters, which are trained while all other weights are frozen (LoRA, QLoRA)",
                              make_feature<AdapterPlan>};

}  // namespace orrery::training
