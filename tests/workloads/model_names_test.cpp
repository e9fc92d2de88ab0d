// Presets of models against what is published of them.

#include "workloads/model/model_names.hpp"

#include "sim/base/error.hpp"
#include "sim/config/fields.hpp"
#include "workloads/model/model_spec.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <map>

using namespace orrery;

namespace {

DataDirectory data() {
    return DataDirectory(ORRERY_SOURCE_DIR);
}

ModelSpec preset(const std::string& name) {
    ModelSpec model;
    std::vector<Diagnostic> errors;
    read_fields(load_yaml(data().path(kModelPresets, name)), data(), errors,
                [&](Fields& fields) { describe(fields, model); });
    REQUIRE_MESSAGE(errors.empty(), name);
    complete(model);
    return model;
}

}  // namespace

TEST_CASE("every preset of a model has a source and the parameters that are published") {
    std::map<std::string, ModelSource> sources;
    for (const ModelSource& row : model_sources(data())) {
        CHECK_MESSAGE(sources.emplace(row.preset, row).second, row.preset << " has two rows");
    }
    for (const std::string& name : data().names(kModelPresets)) {
        const auto found = sources.find(name);
        REQUIRE_MESSAGE(found != sources.end(), name << " has no row in model_sources.csv");
        const ModelSource& source = found->second;
        const ModelSpec model = preset(name);
        CHECK_MESSAGE(model.name == name, name);
        CHECK_MESSAGE(!source.source.empty(), name);
        const double total = model.parameters() / 1e9;
        const double error = std::abs(total / source.total - 1) * 100;
        CHECK_MESSAGE(error <= source.tolerance, name << ": " << total << " B, published " << source.total << " B");
        // A wider tolerance is for what the description leaves out, or for a published figure in whole billions.
        CHECK_MESSAGE((source.tolerance <= 2 || !source.not_modelled.empty()), name);
        // Of published active parameters some count the embedding, some the head alone, and some neither.
        const double idle =
            model.experts.count == 0
                ? 0
                : static_cast<double>(model.expert_layers()) * model.routed_parameters() *
                      (1 - static_cast<double>(model.experts.topk) / static_cast<double>(model.experts.count));
        const double active = (model.parameters() - idle) / 1e9;
        const double tables = 2 * model.embedding_parameters() / 1e9;
        const bool near = active - tables < source.active * 1.1 && active > source.active * 0.9;
        CHECK_MESSAGE((near || source.active == 0 || !source.not_modelled.empty()),
                      name << ": " << active << " B active, published " << source.active << " B");
        sources.erase(found);
    }
    for (const auto& [name, source] : sources) {
        FAIL_CHECK(name << " has a row in model_sources.csv and is no preset");
    }
}
