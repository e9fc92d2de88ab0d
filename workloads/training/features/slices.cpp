#include "workloads/training/features/slices.hpp"

#include "workloads/training/plan/name_list.hpp"
#include "workloads/training/plan/spec.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace orrery::training {

namespace {

struct SlicedProduct {
    const char* name;
    LayerProduct product;
    double (*inputs)(const ModelSpec&);
    double (*outputs)(const ModelSpec&);
};

double hidden(const ModelSpec& model) {
    return static_cast<double>(model.hidden);
}
double width(const ModelSpec& model) {
    return static_cast<double>(model.ffn);
}
double queries(const ModelSpec& model) {
    return model.q_width();
}
double keys(const ModelSpec& model) {
    return model.kv_width();
}

constexpr std::array<SlicedProduct, 7> kProducts = {{{"query", LayerProduct::attention_in, hidden, queries},
                                                     {"key", LayerProduct::attention_in, hidden, keys},
                                                     {"value", LayerProduct::attention_in, hidden, keys},
                                                     {"output", LayerProduct::attention_out, queries, hidden},
                                                     {"gate", LayerProduct::ffn_in, hidden, width},
                                                     {"up", LayerProduct::ffn_in, hidden, width},
                                                     {"down", LayerProduct::ffn_out, width, hidden}}};

bool of_outputs(LayerProduct product) {
    return product == LayerProduct::attention_in || product == LayerProduct::ffn_in;
}

}  // namespace

void SlicePlan::describe(Fields& fields) {
    fields.integer(
        {"channels", "channels of each product that are trained: inputs of output and down, outputs of others", true, 1,
         1'000'000},
        channels);
    fields.text({"modules", "products with trained channels, by commas: query, key, value, output, gate, up, down"},
                modules);
}

void SlicePlan::check(const ModelSpec& model, const PlanSpec& plan, PlanProblems& out) const {
    std::vector<std::string> known;
    for (const SlicedProduct& one : kProducts) {
        known.emplace_back(one.name);
    }
    const std::vector<std::string> named = names_in(modules);
    out.refuse(named.empty(),
               fmt::format("slices.modules names none of {}: nothing is trained", fmt::join(known, ", ")));
    for (const std::string& name : named) {
        const auto found = std::find(known.begin(), known.end(), name);
        if (found == known.end()) {
            const std::string nearest = nearest_name(name, known);
            out.refuse(true, fmt::format("slices.modules names '{}'; there are {}{}", name, fmt::join(known, ", "),
                                         nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest)));
            continue;
        }
        out.refuse(std::count(named.begin(), named.end(), name) > 1,
                   fmt::format("slices.modules names '{}' twice", name));
        const SlicedProduct& one = kProducts[static_cast<std::size_t>(found - known.begin())];
        const double most = of_outputs(one.product) ? one.outputs(model) : one.inputs(model);
        out.refuse(static_cast<double>(channels) > most,
                   fmt::format("slices.channels is {}, and '{}' has {}", channels, name, most));
        out.refuse(!model.gated && name == "gate", "slices.modules: the feed-forward of this model has no gate");
    }
    out.refuse(plan.tensor > 1, "slices are of whole products: tensor: 1");
}

double SlicePlan::trained(const ModelSpec& model) const {
    double sum = 0;
    const std::vector<std::string> named = names_in(modules);
    for (const SlicedProduct& one : kProducts) {
        if (std::find(named.begin(), named.end(), one.name) != named.end()) {
            sum += static_cast<double>(channels) * (of_outputs(one.product) ? one.inputs(model) : one.outputs(model));
        }
    }
    return sum;
}

std::optional<RankWeights> SlicePlan::own_weights(const ModelSpec& model, const PlanSpec&, const LayerMix& layers,
                                                  double tables) const {
    const double own = layers.total() * trained(model);
    const double all = layers.total() * model.layer_parameters() + tables * model.embedding_parameters();
    return RankWeights{own, 0, 2 * (all - own)};
}

std::optional<double> SlicePlan::flops_per_token(const ModelSpec& model, const PlanSpec&) const {
    // No gradients of the weights of products but the slices'; norms are in none.
    const double norms = 4 * hidden(model);
    const auto layers = static_cast<double>(model.layers);
    return model.flops_per_token() -
           2 * (model.embedding_parameters() + layers * (model.layer_parameters() - norms - trained(model)));
}

std::vector<AdapterShape> slices_of(const ModelSpec& model, const PlanSpec& plan, LayerProduct product) {
    std::vector<AdapterShape> out;
    if (!plan.has<SlicePlan>()) {
        return out;
    }
    const auto& slices = plan.feature<SlicePlan>();
    const std::vector<std::string> given = names_in(slices.modules);
    for (const SlicedProduct& one : kProducts) {
        if (one.product == product && std::find(given.begin(), given.end(), one.name) != given.end()) {
            const auto channels = static_cast<double>(slices.channels);
            out.push_back(of_outputs(product) ? AdapterShape{one.inputs(model), channels}
                                              : AdapterShape{channels, one.outputs(model)});
        }
    }
    return out;
}

extern const FeatureRow kSlices;
const FeatureRow kSlices = {"slices",
                            "some channels of products are trained in place, all other weights are frozen (S2FT)",
                            make_feature<SlicePlan>};

}  // namespace orrery::training
