#pragma once
// Presets of models as they are read.

#include "tests/support/support.hpp"
#include "workloads/model/model_spec.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace orrery::test {

/// A preset of a model with what follows from it filled in.
inline ModelSpec preset(const std::string& name) {
    ModelSpec model;
    std::vector<Diagnostic> errors;
    read_fields(load_yaml(data().path(kModelPresets, name)), data(), errors,
                [&](Fields& fields) { describe(fields, model); });
    REQUIRE_MESSAGE(errors.empty(), name);
    REQUIRE_MESSAGE(model::layer_problems(model).empty(), name);
    complete(model);
    return model;
}

}  // namespace orrery::test
