#include "tools/driver/named_model.hpp"

#include "workloads/model/model_names.hpp"

#include <fmt/format.h>

#include <string>

namespace orrery::driver {

namespace {

YamlNode* entry_of(YamlNode& map, const char* key) {
    return map.kind == YamlNode::Kind::map ? map.find(key) : nullptr;
}

// The name of a preset that a model is or starts from; null: it is written out.
YamlNode* name_in(YamlNode& scenario) {
    YamlNode* model = entry_of(scenario, "model");
    if (model != nullptr && model->kind == YamlNode::Kind::map) {
        model = model->find("preset");
    }
    const bool named = model != nullptr && model->kind == YamlNode::Kind::scalar && !model->scalar.ends_with(".yaml");
    return named ? model : nullptr;
}

void add(YamlNode& map, const char* key, const std::string& value, const Mark& mark) {
    YamlNode node;
    node.kind = YamlNode::Kind::scalar;
    node.scalar = value;
    node.mark = mark;
    map.entries.push_back({key, mark, std::move(node)});
}

// Weights that the scenario gives have their own precision in experts too.
void set_precision(YamlNode& scenario, const NamedCheckpoint& checkpoint, const Mark& mark) {
    YamlNode* engine = scenario.find("engine");
    if (engine == nullptr) {
        YamlNode empty;
        empty.kind = YamlNode::Kind::map;
        empty.mark = mark;
        scenario.entries.push_back({"engine", mark, std::move(empty)});
        engine = &scenario.entries.back().value;
    }
    if (engine->kind != YamlNode::Kind::map || engine->find("weights") != nullptr) {
        return;
    }
    if (!checkpoint.weights.empty()) {
        add(*engine, "weights", checkpoint.weights, mark);
    }
    if (!checkpoint.experts.empty() && engine->find("experts") == nullptr) {
        add(*engine, "experts", checkpoint.experts, mark);
    }
    if (!checkpoint.scaling.empty() && engine->find("scaling") == nullptr) {
        add(*engine, "scaling", checkpoint.scaling, mark);
    }
}

// Engines load what the checkpoint has beside the model: in 16 bits.
void add_other_weights(YamlNode& scenario, double billions, const Mark& mark) {
    YamlNode* engine = scenario.find("engine");
    if (billions > 0 && engine != nullptr && engine->kind == YamlNode::Kind::map &&
        engine->find("software") != nullptr && engine->find("other_weights") == nullptr) {
        add(*engine, "other_weights", fmt::format("{:g} GB", 2 * billions), mark);
    }
}

// The checkpoint's longest sequence, where the preset is known by another.
void set_context(YamlNode& scenario, std::int64_t context, const Mark& mark) {
    YamlNode* model = entry_of(scenario, "model");
    if (context == 0 || model == nullptr) {
        return;
    }
    if (model->kind == YamlNode::Kind::scalar) {
        const std::string preset = model->scalar;
        *model = YamlNode();
        model->kind = YamlNode::Kind::map;
        model->mark = mark;
        add(*model, "preset", preset, mark);
    }
    if (model->find("sequence") == nullptr) {
        add(*model, "sequence", std::to_string(context), mark);
    }
}

void name_model(YamlNode& scenario, const DataDirectory& data, std::vector<Diagnostic>& errors,
                std::vector<std::string>& notes) {
    YamlNode* name = name_in(scenario);
    const YamlNode* kind = entry_of(scenario, "kind");
    if (name == nullptr || kind == nullptr) {
        return;
    }
    const std::optional<NamedCheckpoint> checkpoint = find_checkpoint(name->scalar, data);
    if (!checkpoint) {
        return;
    }
    const Mark mark = name->mark;
    if (kind->scalar != "serving" && checkpoint->quantised()) {
        errors.push_back(
            mark.error(fmt::format("'{}' is a checkpoint in {}, and training starts from weights in 16 bits: name the "
                                   "preset '{}' or a checkpoint in 16 bits",
                                   name->scalar, checkpoint->precision(), checkpoint->preset)));
    }
    if (!checkpoint->left_out.empty()) {
        notes.push_back(fmt::format("the model of '{}' is described by '{}', without its {}", name->scalar,
                                    checkpoint->preset, checkpoint->left_out));
    }
    name->scalar = checkpoint->preset;
    if (kind->scalar == "serving") {
        add_other_weights(scenario, checkpoint->beside(), mark);
    }
    if (kind->scalar == "serving" && (!checkpoint->weights.empty() || !checkpoint->experts.empty())) {
        set_precision(scenario, *checkpoint, mark);
    }
    if (kind->scalar == "serving") {
        set_context(scenario, checkpoint->context, mark);
    }
}

}  // namespace

YamlNode with_named_models(const YamlNode& root, const DataDirectory& data, std::vector<Diagnostic>& errors,
                           std::vector<std::string>& notes) {
    YamlNode out = root;
    name_model(out, data, errors, notes);
    if (YamlNode* jobs = entry_of(out, "jobs"); jobs != nullptr) {
        for (YamlNode& job : jobs->items) {
            if (YamlNode* scenario = entry_of(job, "scenario"); scenario != nullptr) {
                name_model(*scenario, data, errors, notes);
            }
        }
    }
    return out;
}

void add_model_limits(const std::string& model, const DataDirectory& data, std::vector<std::string>& notes) {
    if (const std::string what = model.empty() ? "" : not_modelled(model, data); !what.empty()) {
        notes.push_back(fmt::format("not modelled of {}: {}", model, what));
    }
}

}  // namespace orrery::driver
